//! Runs the handlers of one [`Service`] on one shard.
//!
//! Owns the service, the workers that run its handlers, and the list of workers that were woken. Must never
//! block, and never let a handler's panic out.
//!
//! **Workers.** A future that was polled cannot move any more, so polling a handler "inline first, boxed when
//! pending" has to give it its final place before it is known whether it needs one. A worker is such a place:
//! a boxed loop that takes a request, awaits the handler, leaves the result, and takes the next request.
//! A handler that is ready at once therefore costs no allocation and leaves its worker free for the next
//! call; only a pending one keeps its worker, and enters the maps that find it again.
//!
//! **Waking.** Each worker has one waker for life. Waking puts its index on the `ReadyList`, once however often,
//! and wakes the driver, once however many. Indices on the list may be stale; polling an idle worker or finding none is
//! harmless. Wakers may be used on any thread and touch nothing but the list.
//!
//! Invariants: a worker is idle, or runs one call; `by_call` and `by_session` hold exactly the pending calls.
//! A pending call costs its worker (the size of the service's largest handler, and about 200 bytes) and
//! about 100 bytes in the maps. Asking, waking, cancelling: O(1); ending a session: O(its pending calls).

use super::asks::Asks;
use super::context::{CallState, Context, Link, Outbox, Outlet};
use super::service::{PerRevision, Reply, Request, Service, internal_error};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Ask, Call, CallKey, SessionKey, Tell};
use crate::limits::IDLE_WORKERS_MAX;
use crate::shell::backend::Backend;
use slab::Slab;
use std::{
    any::Any,
    cell::Cell,
    collections::HashMap,
    convert::Infallible,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{self, Poll, Wake, Waker},
};

/// One shard's handlers. See the module.
pub struct Host<S> {
    service: Rc<S>,
    greetings: PerRevision<Result<Reply, RpcError>>,
    link: Rc<Link>,
    ready: Arc<ReadyList>,
    workers: Slab<Worker>,
    idle: Vec<usize>,
    by_call: HashMap<CallKey, usize>,
    by_session: HashMap<SessionKey, Vec<usize>>,
    stage: Stage,
    /// Woken workers of the poll under way; kept for its capacity.
    woken: Vec<usize>,
}

impl<S: Service> Host<S> {
    /// A host without calls.
    pub fn new(service: S) -> Self {
        let ready = Arc::new(ReadyList::default());
        let info = service.info();
        Host {
            service: Rc::new(service),
            greetings: PerRevision::new(|revision| info.greeting(revision)),
            link: Rc::new(Link { outbox: Outbox::new(Arc::clone(&ready)), asks: Asks::default() }),
            ready,
            workers: Slab::new(),
            idle: Vec::new(),
            by_call: HashMap::new(),
            by_session: HashMap::new(),
            stage: Stage::New,
            woken: Vec::new(),
        }
    }

    /// Calls whose handlers have not answered yet.
    pub fn pending_count(&self) -> usize {
        self.by_call.len()
    }

    /// Requests to clients whose answers handlers wait for.
    #[cfg(test)]
    pub(super) fn waiting_count(&self) -> usize {
        self.link.asks.len()
    }
}

impl<S: Service> Backend for Host<S> {
    /// Takes one item from the core. What a handler says at once is appended to `out`; the rest comes out of
    /// [`poll`](Self::poll), which has to follow in the same turn.
    fn ask(&mut self, ask: Ask, out: &mut Vec<Tell>) {
        self.start_service(out);
        match ask {
            Ask::Call(call) if call.method.as_str() == "initialize" => self.greet(call, out),
            Ask::Call(call) => self.start(call, out),
            Ask::Cancel(call) => self.cancel(call),
            Ask::Notified(notified) => self.attended(out, |service| service.notified(&notified)),
            Ask::SessionEnded(session) => self.end_session(session, out),
            Ask::Answered(request, answer) => self.link.asks.answered(request, answer),
            // The core filters; a handler is not told.
            Ask::LogLevel(..) => {}
        }
    }

    /// Polls every handler that was woken since the last time, once each.
    fn poll(&mut self, cx: &mut task::Context<'_>, out: &mut Vec<Tell>) {
        self.start_service(out);
        let mut woken = mem::take(&mut self.woken);
        self.ready.take(cx.waker(), &mut woken);
        for worker in woken.drain(..) {
            self.resume(worker, out);
        }
        self.woken = woken;
        self.link.outbox.drain(out);
    }
}

impl<S: Service> Host<S> {
    /// Not when the host is made: then the shard's runtime does not run yet.
    fn start_service(&mut self, out: &mut Vec<Tell>) {
        if mem::replace(&mut self.stage, Stage::Started) == Stage::New {
            let outlet = Outlet::new(&self.link);
            self.attended(out, |service| service.started(outlet));
        }
    }

    fn greet(&self, call: Call, out: &mut Vec<Tell>) {
        let greeting = self.greetings.of(call.revision).clone();
        out.push(answer_of(call.key, greeting));
        self.attended(out, |service| service.session_started(&request_of(call)));
    }

    /// Runs a part of the service that answers nothing, and passes on what it said.
    fn attended(&self, out: &mut Vec<Tell>, run: impl FnOnce(&S)) {
        self.link.outbox.attend();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&self.service))) {
            report(&*panic);
        }
        self.link.outbox.drain(out);
    }

    /// Gives a new call to a worker and polls it once.
    fn start(&mut self, mut call: Call, out: &mut Vec<Tell>) {
        let state = Rc::new(CallState::new(&mut call));
        let context = Context::new(Rc::clone(&state), Rc::clone(&self.link));
        let request = request_of(call);
        let index = self.idle_worker();
        self.workers[index].desk.job.set(Some((request, context)));
        match self.step(index, out) {
            Step::Pending => self.remember(index, state),
            Step::Answered(answer) => {
                self.release(index);
                respond(&state, answer, out);
            }
            Step::Panicked => {
                self.workers.remove(index);
                respond(&state, Err(internal_error()), out);
            }
        }
    }

    /// Polls a woken worker.
    fn resume(&mut self, index: usize, out: &mut Vec<Tell>) {
        if self.workers.get(index).is_none_or(|worker| worker.running.is_none()) {
            return;
        }
        match self.step(index, out) {
            Step::Pending => {}
            Step::Answered(answer) => {
                let state = self.forget(index);
                self.release(index);
                respond(&state, answer, out);
            }
            Step::Panicked => {
                let state = self.forget(index);
                self.workers.remove(index);
                respond(&state, Err(internal_error()), out);
            }
        }
    }

    /// Polls a worker once and passes on what it said.
    fn step(&mut self, index: usize, out: &mut Vec<Tell>) -> Step {
        self.link.outbox.attend();
        let step = self.workers[index].step();
        self.link.outbox.drain(out);
        step
    }

    fn cancel(&self, call: CallKey) {
        if let Some(&index) = self.by_call.get(&call) {
            self.workers[index].cancel();
        }
    }

    fn end_session(&self, session: SessionKey, out: &mut Vec<Tell>) {
        for &index in self.by_session.get(&session).into_iter().flatten() {
            self.workers[index].cancel();
        }
        self.attended(out, |service| service.session_ended(session));
    }

    // --- Bookkeeping --------------------------------------------------------------------------

    fn idle_worker(&mut self) -> usize {
        if let Some(index) = self.idle.pop() {
            return index;
        }
        let entry = self.workers.vacant_entry();
        let index = entry.key();
        entry.insert(Worker::new(index, Rc::clone(&self.service), Arc::clone(&self.ready)));
        index
    }

    fn release(&mut self, index: usize) {
        if self.idle.len() < IDLE_WORKERS_MAX {
            self.idle.push(index);
        } else {
            self.workers.remove(index);
        }
    }

    /// The worker's call is pending: it must be found for cancellation.
    fn remember(&mut self, index: usize, state: Rc<CallState>) {
        self.by_call.insert(state.key(), index);
        if let Some(session) = state.session() {
            self.by_session.entry(session).or_default().push(index);
        }
        self.workers[index].running = Some(state);
    }

    fn forget(&mut self, index: usize) -> Rc<CallState> {
        let state = self.workers[index].running.take().expect("only a running worker is resumed");
        self.by_call.remove(&state.key());
        if let Some(session) = state.session()
            && let Some(of_session) = self.by_session.get_mut(&session)
        {
            of_session.retain(|other| *other != index);
            if of_session.is_empty() {
                self.by_session.remove(&session);
            }
        }
        state
    }
}

impl<S> fmt::Debug for Host<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("workers", &self.workers.len())
            .field("pending", &self.by_call.len())
            .finish_non_exhaustive()
    }
}

fn respond(state: &CallState, answer: Result<Reply, RpcError>, out: &mut Vec<Tell>) {
    state.finish();
    out.push(answer_of(state.key(), answer));
}

fn answer_of(call: CallKey, answer: Result<Reply, RpcError>) -> Tell {
    match answer {
        Ok(reply) => reply.answer(call),
        Err(error) => Tell::Respond(call, Err(error)),
    }
}

fn request_of(call: Call) -> Request {
    Request {
        method: call.method,
        params: call.params,
        revision: call.revision,
        session: call.session,
        client: call.client,
    }
}

/// Whether the service knows that it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Started,
}

// --- Workers ------------------------------------------------------------------------------------

struct Worker {
    desk: Rc<Desk>,
    /// The loop of [`work`]; it never ends.
    task: Pin<Box<dyn Future<Output = Infallible>>>,
    wake: Arc<WorkerWake>,
    waker: Waker,
    /// The pending call, if any.
    running: Option<Rc<CallState>>,
}

/// What one poll of a worker came to.
enum Step {
    Pending,
    Answered(Result<Reply, RpcError>),
    Panicked,
}

/// Where a worker finds its request and leaves its result.
#[derive(Default)]
struct Desk {
    job: Cell<Option<(Request, Context)>>,
    answer: Cell<Option<Result<Reply, RpcError>>>,
}

async fn work<S: Service>(service: Rc<S>, desk: Rc<Desk>) -> Infallible {
    loop {
        let (request, context) =
            std::future::poll_fn(|_| desk.job.take().map_or(Poll::Pending, Poll::Ready)).await;
        let answer = service.call(request, context).await;
        desk.answer.set(Some(answer));
    }
}

impl Worker {
    fn new<S: Service>(index: usize, service: Rc<S>, ready: Arc<ReadyList>) -> Self {
        let desk = Rc::new(Desk::default());
        let wake = Arc::new(WorkerWake { index, queued: AtomicBool::new(false), ready });
        let waker = Waker::from(Arc::clone(&wake));
        Worker { task: Box::pin(work(service, Rc::clone(&desk))), desk, wake, waker, running: None }
    }

    /// Polls the handler once. After [`Step::Panicked`] the worker must be dropped.
    fn step(&mut self) -> Step {
        // From here on a wake counts again, also one that happens while the handler runs.
        self.wake.queued.store(false, Ordering::Release);
        let task = self.task.as_mut();
        let mut cx = task::Context::from_waker(&self.waker);
        match catch_unwind(AssertUnwindSafe(|| task.poll(&mut cx))) {
            Ok(Poll::Ready(never)) => match never {},
            Ok(Poll::Pending) => self.desk.answer.take().map_or(Step::Pending, Step::Answered),
            Err(panic) => {
                report(&*panic);
                Step::Panicked
            }
        }
    }

    /// Also wakes the handler itself, for one that looks at the flag between two steps.
    fn cancel(&self) {
        if let Some(state) = &self.running {
            state.cancel();
            self.waker.wake_by_ref();
        }
    }
}

fn report(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("(not a text)"), "a handler panicked");
}

// --- Waking -------------------------------------------------------------------------------------

/// The workers that were woken, and whom to tell.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    inner: Mutex<Ready>,
}

#[derive(Debug, Default)]
struct Ready {
    workers: Vec<usize>,
    /// Taken by the first wake after a poll: the driver is woken once a turn.
    driver: Option<Waker>,
}

impl ReadyList {
    /// Moves the woken workers to `woken` and has `driver` woken for the next one.
    fn take(&self, driver: &Waker, woken: &mut Vec<usize>) {
        let mut ready = self.lock();
        woken.append(&mut ready.workers);
        ready.driver = Some(driver.clone());
    }

    fn push(&self, worker: usize) {
        self.lock().workers.push(worker);
        self.wake_driver();
    }

    pub(super) fn wake_driver(&self) {
        // Not while the lock is held: a waker may do anything.
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// No code that can panic runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WorkerWake {
    index: usize,
    /// Already on the list.
    queued: AtomicBool,
    ready: Arc<ReadyList>,
}

impl Wake for WorkerWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests;
