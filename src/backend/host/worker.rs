//! The places where handlers run.
//!
//! Owns a handler's future, the desk where it finds its request and leaves its result, and the waker that is its own for
//! life. It must never let a panic out. See the [host](super) for why there are workers at all.

use super::{
    super::{
        context::{CallState, Context},
        service::{Reply, Request, Service},
    },
    away::Standing,
    ready::{ReadyList, WorkerWake},
};
use crate::core::jsonrpc::RpcError;
use std::{
    any::Any,
    cell::Cell,
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{self, Poll, Waker},
};

pub(super) struct Worker {
    pub(super) desk: Rc<Desk>,
    /// The loop of [`work`]; it never ends.
    task: Pin<Box<dyn Future<Output = Infallible>>>,
    wake: Arc<WorkerWake>,
    pub(super) waker: Waker,
    /// The pending call, if any.
    pub(super) running: Option<Rc<CallState>>,
    /// Who waits for it.
    pub(super) standing: Standing,
}

/// What one poll of a worker came to.
pub(super) enum Step {
    Pending,
    Answered(Result<Reply, RpcError>),
    Panicked,
}

/// Where a worker finds its request and leaves its result.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) job: Cell<Option<(Request, Context)>>,
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
    pub(super) fn new<S: Service>(index: usize, service: Rc<S>, ready: Arc<ReadyList>) -> Self {
        let desk = Rc::new(Desk::default());
        let wake = Arc::new(WorkerWake::new(index, ready));
        let waker = Waker::from(Arc::clone(&wake));
        let task = Box::pin(work(service, Rc::clone(&desk)));
        Worker { task, desk, wake, waker, running: None, standing: Standing::OnCall }
    }

    /// What its handler takes, without what that has put into boxes of its own.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.task)
    }

    /// Polls the handler once. After [`Step::Panicked`] the worker must be dropped.
    pub(super) fn step(&mut self) -> Step {
        // From here on a wake counts again, also one that happens while the handler runs.
        self.wake.rearm();
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
    pub(super) fn cancel(&self) {
        if let Some(state) = &self.running {
            state.cancel();
            self.waker.wake_by_ref();
        }
    }
}

pub(super) fn report(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("(not a text)"), "a handler panicked");
}
