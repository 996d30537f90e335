//! What a running handler can do: report progress, log, notify, notice its cancellation.
//!
//! A [`Context`] is a pair of `Rc`s; it never leaves its shard and never blocks. Everything a handler says
//! goes into the host's `Outbox` and from there to the core in the order in which it was said, always
//! before the handler's answer. After the answer a context is deaf and dumb: progress of a finished call is
//! a protocol violation.
//!
//! A call's state takes about 130 bytes, and its progress token if it has one.

use super::{host::ReadyList, notification};
use crate::core::seam::{Call, CallKey, LogLevel, Notification, Revision, SessionKey, Tell};
use bytes::Bytes;
use serde::Serialize;
use std::{
    cell::{Cell, RefCell},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{self, Poll, Waker},
};

/// A handler's view of its call.
#[derive(Clone, Debug)]
pub struct Context {
    call: Rc<CallState>,
    outbox: Rc<Outbox>,
}

impl Context {
    pub(super) fn new(call: Rc<CallState>, outbox: Rc<Outbox>) -> Self {
        Context { call, outbox }
    }

    /// Sends `notifications/progress` if the client asked for it by a token; otherwise does nothing.
    ///
    /// `progress` must be greater than in the last report, and both numbers finite; a report that is not is
    /// left out, since the protocol forbids it. `message` is for people and is sent from 2025-03-26 on.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.call.progress_token else { return };
        if !self.call.advance(progress) {
            return;
        }
        let total = total.filter(|total| total.is_finite());
        let message = message.filter(|_| self.call.revision >= Revision::V2025_03_26);
        if let Some(notification) = notification::progress(token, progress, total, message) {
            self.notify(notification);
        }
    }

    /// Sends `notifications/message` about this call. Entries below the level the client chose go no further.
    ///
    /// `data` that does not serialise is reported in the server's own log instead.
    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: &impl Serialize) {
        match notification::log(level, logger, data) {
            Ok(notification) => self.notify(notification),
            Err(error) => tracing::error!(%error, "a log entry does not serialise"),
        }
    }

    /// Sends a notification that belongs to this call, on the call's own stream.
    pub fn notify(&self, notification: Notification) {
        self.say(Tell::Notify(self.call.key, notification));
    }

    /// Sends a notification to this session's listener.
    pub fn notify_session(&self, notification: Notification) {
        self.say(Tell::Announce(self.call.session, notification));
    }

    /// Sends a notification to every session of every shard.
    pub fn notify_all(&self, notification: Notification) {
        self.say(Tell::Broadcast(notification));
    }

    /// Whether nobody waits for the answer any more. A handler should then return soon; what it returns is
    /// dropped.
    pub fn is_cancelled(&self) -> bool {
        self.call.cancelled.get()
    }

    /// Waits until the call is cancelled: by the client, by the end of its session, or by its deadline.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { call: Rc::clone(&self.call) }
    }

    /// Runs `future` to its end, or drops it and returns `None` when the call is cancelled first.
    pub async fn unless_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        let (mut future, mut cancelled) = (pin!(future), pin!(self.cancelled()));
        std::future::poll_fn(|cx| match cancelled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => future.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// The session the call belongs to.
    pub fn session(&self) -> SessionKey {
        self.call.session
    }

    /// The call itself.
    pub fn key(&self) -> CallKey {
        self.call.key
    }

    fn say(&self, tell: Tell) {
        if !self.call.finished.get() {
            self.outbox.push(tell);
        }
    }
}

/// Ready once the call is cancelled; see [`Context::cancelled`].
#[derive(Debug)]
pub struct Cancelled {
    call: Rc<CallState>,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<()> {
        if self.call.cancelled.get() {
            return Poll::Ready(());
        }
        self.call.remember(cx.waker());
        Poll::Pending
    }
}

/// What host and contexts share about one call.
#[derive(Debug)]
pub(super) struct CallState {
    key: CallKey,
    session: SessionKey,
    revision: Revision,
    progress_token: Option<Bytes>,
    /// The last progress reported; anything is greater than the first.
    progress: Cell<f64>,
    cancelled: Cell<bool>,
    finished: Cell<bool>,
    /// Who waits for the cancellation: one waker for each task of the handler, hardly ever more than one.
    waiting: RefCell<Vec<Waker>>,
}

impl CallState {
    pub(super) fn new(call: &mut Call) -> Self {
        CallState {
            key: call.key,
            session: call.session,
            revision: call.revision,
            progress_token: call.progress_token.take(),
            progress: Cell::new(f64::NEG_INFINITY),
            cancelled: Cell::new(false),
            finished: Cell::new(false),
            waiting: RefCell::default(),
        }
    }

    pub(super) fn key(&self) -> CallKey {
        self.key
    }

    pub(super) fn session(&self) -> SessionKey {
        self.session
    }

    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    pub(super) fn finish(&self) {
        self.finished.set(true);
    }

    /// Takes note of a report; whether it may be sent.
    fn advance(&self, progress: f64) -> bool {
        let advances = progress.is_finite() && progress > self.progress.get();
        if advances {
            self.progress.set(progress);
        }
        advances
    }

    fn remember(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

/// What handlers have said and the core has not been told yet.
#[derive(Debug)]
pub(super) struct Outbox {
    tells: RefCell<Vec<Tell>>,
    /// The host is polling a handler and will drain when it returns.
    attended: Cell<bool>,
    ready: Arc<ReadyList>,
}

impl Outbox {
    pub(super) fn new(ready: Arc<ReadyList>) -> Self {
        Outbox { tells: RefCell::default(), attended: Cell::new(false), ready }
    }

    /// Promises a [`drain`](Self::drain), so that nobody needs to be woken for it.
    pub(super) fn attend(&self) {
        self.attended.set(true);
    }

    /// Moves everything to the end of `out`.
    pub(super) fn drain(&self, out: &mut Vec<Tell>) {
        self.attended.set(false);
        out.append(&mut self.tells.borrow_mut());
    }

    /// A handler may have handed its context to a local task of its own: then the driver has to be told.
    fn push(&self, tell: Tell) {
        self.tells.borrow_mut().push(tell);
        if !self.attended.get() {
            self.ready.wake_driver();
        }
    }
}
