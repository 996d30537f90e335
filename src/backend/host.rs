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
//! **Without sessions** (2026-07-28) a handler can outlive its call: it waits in the `Lot` for its client to come back with
//! answers, or has become one of the `Tasks`. See `away`.
//!
//! Invariants: a worker is idle, or runs one call; `by_call` and `by_session` hold exactly the pending calls whose clients
//! wait.
//! A pending call costs its worker (the size of the service's largest handler, and about 200 bytes) and
//! about 100 bytes in the maps. Asking, waking, cancelling: O(1); ending a session: O(its pending calls).

mod away;
pub(super) mod listen;
pub(super) mod lot;
mod ready;
mod worker;

pub(super) use ready::ReadyList;

use super::context::{CallState, Context, Link, Outlet};
use super::info::Capabilities;
use super::rounds::{self, Answers};
use super::service::{self, PerRevision, Reply, Request, Service, internal_error};
use super::stamp::Stamp;
use super::tasks::Tasks;
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Ask, Call, CallKey, Revision, SessionKey, ShardId, Tell};
use crate::limits::IDLE_WORKERS_MAX;
use crate::shell::backend::Backend;
use away::{Place, Standing};
use lot::Lot;
use slab::Slab;
use std::{
    collections::HashMap,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task,
};
use tokio::time::Sleep;
use worker::{Step, Worker, report};

/// One shard's handlers. See the module.
pub struct Host<S> {
    service: Rc<S>,
    greetings: PerRevision<Result<Reply, RpcError>>,
    capabilities: Capabilities,
    stamp: Stamp,
    link: Rc<Link>,
    ready: Arc<ReadyList>,
    workers: Slab<Worker>,
    idle: Vec<usize>,
    by_call: HashMap<CallKey, usize>,
    by_session: HashMap<SessionKey, Vec<usize>>,
    stage: Stage,
    /// Handlers whose clients have to come back.
    lot: Lot<Place>,
    tasks: Tasks,
    /// How many of them run here.
    tasks_here: usize,
    /// For the end of the next of either.
    timer: Option<Pin<Box<Sleep>>>,
    /// Woken workers of the poll under way; kept for its capacity.
    woken: Vec<usize>,
}

impl<S: Service> Host<S> {
    /// A host without calls, for a process with one shard.
    pub fn new(service: S) -> Self {
        Host::on(ShardId(0), Tasks::default(), service)
    }

    /// The same for one shard of several. They share `tasks`, so that each can be asked for the tasks of all; and each has
    /// the number that the server runs it under, so that clients with answers find the shard that waits for them.
    pub fn on(shard: ShardId, tasks: Tasks, service: S) -> Self {
        let ready = Arc::new(ReadyList::default());
        let info = service.info();
        Host {
            service: Rc::new(service),
            greetings: PerRevision::new(|revision| info.greeting(revision)),
            stamp: Stamp::new(&info),
            capabilities: info.capabilities,
            link: Rc::new(Link::new(Arc::clone(&ready))),
            ready,
            workers: Slab::new(),
            idle: Vec::new(),
            by_call: HashMap::new(),
            by_session: HashMap::new(),
            stage: Stage::New,
            lot: Lot::new(shard),
            tasks,
            tasks_here: 0,
            timer: None,
            woken: Vec::new(),
        }
    }

    /// Calls whose handlers have not answered yet.
    pub fn pending_count(&self) -> usize {
        self.by_call.len()
    }

    /// Handlers whose clients have to come back with answers, from 2026-07-28 on.
    pub fn parked_count(&self) -> usize {
        self.lot.len()
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
            Ask::Call(call) if call.revision.has_sessions() => self.call_of_session(call, out),
            Ask::Call(call) => self.call_without_session(call, out),
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
        for call in self.link.take_asking() {
            self.look_after(&call, out);
        }
        self.link.outbox.drain(out);
        self.watch(cx);
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

    fn call_of_session(&mut self, call: Call, out: &mut Vec<Tell>) {
        match call.method.as_str() {
            "initialize" => self.greet(call, out),
            _ => self.start(call, Answers::new(), out),
        }
    }

    /// From 2026-07-28 on: what is the host's own to answer, and what this revision has no more.
    fn call_without_session(&mut self, call: Call, out: &mut Vec<Tell>) {
        match call.method.as_str() {
            "server/discover" => {
                let discovery = self.greetings.of(call.revision).clone();
                self.answer(call.key, call.revision, call.method.as_str(), discovery, out);
            }
            "subscriptions/listen" => out.push(self.listen(&call)),
            "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                let refusal = service::method_not_found(&call.method);
                out.push(Tell::Respond(call.key, Err(refusal)));
            }
            "tasks/get" | "tasks/update" | "tasks/cancel" if self.serves_tasks() => {
                self.about_task(&call, out);
            }
            method if rounds::may_ask(method) => self.begin(call, out),
            _ => self.start(call, Answers::new(), out),
        }
    }

    fn listen(&self, call: &Call) -> Tell {
        match listen::read(call, &self.capabilities) {
            Ok(listening) => Tell::Listen(call.key, listening),
            Err(refusal) => Tell::Respond(call.key, Err(refusal)),
        }
    }

    fn greet(&self, call: Call, out: &mut Vec<Tell>) {
        let greeting = self.greetings.of(call.revision).clone();
        self.answer(call.key, call.revision, call.method.as_str(), greeting, out);
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
    fn start(&mut self, mut call: Call, given: Answers, out: &mut Vec<Tell>) {
        let state = Rc::new(CallState::new(&mut call));
        state.give(given);
        let context = Context::new(Rc::clone(&state), Rc::clone(&self.link));
        let request = request_of(call);
        let index = self.idle_worker();
        state.seat(index);
        self.workers[index].desk.job.set(Some((request, context)));
        match self.step(index, out) {
            Step::Pending => {
                self.remember(index, state);
                self.settle(index, out);
            }
            Step::Answered(answer) => {
                self.release(index);
                self.respond(&state, answer, out);
            }
            Step::Panicked => {
                self.workers.remove(index);
                self.respond(&state, Err(internal_error()), out);
            }
        }
    }

    /// Polls a woken worker.
    fn resume(&mut self, index: usize, out: &mut Vec<Tell>) {
        if self.workers.get(index).is_none_or(|worker| worker.running.is_none()) {
            return;
        }
        self.hear(index);
        match self.step(index, out) {
            Step::Pending => self.settle(index, out),
            Step::Answered(answer) => {
                let (standing, state) = self.forget(index);
                self.release(index);
                self.end(standing, &state, answer, out);
            }
            Step::Panicked => {
                let (standing, state) = self.forget(index);
                self.workers.remove(index);
                self.end(standing, &state, Err(internal_error()), out);
            }
        }
    }

    /// A task of a handler's own has asked something while the handler was not polled.
    fn look_after(&mut self, call: &Rc<CallState>, out: &mut Vec<Tell>) {
        let index = call.worker();
        let running = self.workers.get(index).and_then(|worker| worker.running.as_ref());
        if running.is_some_and(|running| Rc::ptr_eq(running, call)) {
            self.settle(index, out);
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

    fn respond(&self, state: &CallState, answer: Result<Reply, RpcError>, out: &mut Vec<Tell>) {
        state.finish();
        self.answer(state.key(), state.revision(), state.method(), answer, out);
    }

    /// Answers a call in the words of its revision.
    fn answer(
        &self,
        call: CallKey,
        revision: Revision,
        method: &str,
        answer: Result<Reply, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        out.push(match self.in_words_of(revision, method, answer) {
            Ok(reply) => reply.answer(call),
            Err(error) => Tell::Respond(call, Err(error)),
        });
    }

    fn in_words_of(
        &self,
        revision: Revision,
        method: &str,
        answer: Result<Reply, RpcError>,
    ) -> Result<Reply, RpcError> {
        match answer {
            answer if revision.has_sessions() => answer,
            Ok(reply) => Ok(reply.map(|json| self.stamp.on(method, json))),
            Err(error) => Err(service::revised_error(error)),
        }
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

    fn forget(&mut self, index: usize) -> (Standing, Rc<CallState>) {
        let worker = &mut self.workers[index];
        let standing = mem::take(&mut worker.standing);
        let state = worker.running.take().expect("only a running worker is resumed");
        self.by_call.remove(&state.key());
        if let Some(session) = state.session()
            && let Some(of_session) = self.by_session.get_mut(&session)
        {
            of_session.retain(|other| *other != index);
            if of_session.is_empty() {
                self.by_session.remove(&session);
            }
        }
        (standing, state)
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

fn request_of(call: Call) -> Request {
    Request {
        method: call.method,
        params: call.params,
        revision: call.revision,
        session: call.session,
        client: call.client,
        param_fields: call.param_fields,
    }
}

/// Whether the service knows that it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Started,
}

#[cfg(test)]
mod tests;
