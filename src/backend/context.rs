//! What a running handler can do: report progress, log, notify, ask its client, close its stream early, notice its
//! cancellation. And what can be said outside of calls: the [`Outlet`].
//!
//! A [`Context`] is a pair of `Rc`s; it never leaves its shard and never blocks. Everything a handler says
//! goes into the host's `Outbox` and from there to the core in the order in which it was said, always
//! before the handler's answer. After the answer a context is deaf and dumb: progress of a finished call is
//! a protocol violation.
//!
//! A call's state takes about 250 bytes, and its progress token if it has one; its parameters stay as long as it does.

use super::{
    asks::Asks,
    client::Client,
    host::ReadyList,
    inquiry::{Inquiry, Question},
    model::Meta,
    notification, params, service,
};
use crate::core::seam::{
    Call, CallKey, ClientFeatures, LogLevel, Method, Notification, Principal, Revision, ServerRequestId,
    SessionKey, Tell,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{self, Poll, Waker},
    time::Duration,
};

/// A handler's view of its call.
#[derive(Clone, Debug)]
pub struct Context {
    call: Rc<CallState>,
    link: Rc<Link>,
}

impl Context {
    pub(super) fn new(call: Rc<CallState>, link: Rc<Link>) -> Self {
        Context { call, link }
    }

    /// Sends `notifications/progress` if the client asked for it by a token; otherwise does nothing.
    ///
    /// `progress` must be greater than in the last report, and both numbers finite; a report that is not is
    /// left out, since the protocol forbids it. `message` is for people and is sent from 2025-03-26 on.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let token = self.call.progress_token.borrow();
        let Some(token) = token.as_deref() else { return };
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
        self.say_on_call(|call| Tell::Notify(call, notification));
    }

    /// Sends a notification to this session's listener; does nothing if the call belongs to none.
    pub fn notify_session(&self, notification: Notification) {
        if let Some(session) = self.call.session {
            self.say(Tell::Announce(session, notification));
        }
    }

    /// Sends a notification to every session of every shard.
    pub fn notify_all(&self, notification: Notification) {
        self.say(Tell::Broadcast(notification));
    }

    /// Tells every session of every shard that is subscribed to `uri` that the resource has changed.
    pub fn resource_updated(&self, uri: &str) {
        self.notify_all(notification::resource_updated(uri));
    }

    /// The session's client, to be asked things on behalf of this call.
    pub fn client(&self) -> Client {
        Client::new(&self.link, self.call.session, Some(&self.call))
    }

    /// Ends the stream of this call's reply before the answer; the client comes back for the rest after `retry`. For long
    /// work that should not hold a connection (2025-11-25, "polling"). Does nothing where the client could not come back.
    pub fn close_stream(&self, retry: Duration) {
        self.say_on_call(|call| Tell::CloseStream(call, millis(retry)));
    }

    /// Ends this session's listener streams; its client comes back after `retry`, and what is sent meanwhile waits.
    pub fn close_listeners(&self, retry: Duration) {
        if let Some(session) = self.call.session {
            self.say(Tell::CloseListeners(session, millis(retry)));
        }
    }

    /// Whether nobody waits for the answer any more. A handler should then return soon; what it returns is
    /// dropped.
    pub fn is_cancelled(&self) -> bool {
        self.call.cancelled.get()
    }

    /// Waits until the call is cancelled: by the client, by the end of its session, or by its deadline.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::of(&self.call)
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

    /// The session the call belongs to; `None` from 2026-07-28 on, where there are none.
    pub fn session(&self) -> Option<SessionKey> {
        self.call.session
    }

    /// The session's revision.
    pub fn revision(&self) -> Revision {
        self.call.revision
    }

    /// What the session's client can be asked for.
    pub fn client_features(&self) -> ClientFeatures {
        self.call.client()
    }

    /// Who makes the call: whom the request's token stands for. `None` on a server that lets everybody in.
    pub fn principal(&self) -> Option<&Principal> {
        self.call.principal()
    }

    /// Lets the call become a task (2026-07-28, `io.modelcontextprotocol/tasks`) that its client can ask for during `ttl`, at
    /// most [`TASK_TTL_MS_MAX`](crate::limits::TASK_TTL_MS_MAX). If the handler waits for something after this the client gets
    /// the task's name instead of a result, and the handler goes on without a connection; if it answers without waiting, its
    /// client gets the answer as ever.
    ///
    /// Nothing happens, and this is `false`, if the client does not know tasks or the call is none of a tool. What is said on
    /// the call of a task is lost; what it asks, its client finds when it asks for the task.
    pub fn start_task(&self, ttl: Duration) -> bool {
        let is_possible = self.call.method() == "tools/call" && self.call.knows_tasks();
        if is_possible {
            self.call.inquiry.borrow_mut().get_or_insert_default().task = Some(ttl);
        }
        is_possible
    }

    /// The `_meta` of the request; empty if it has none.
    pub fn meta(&self) -> Meta {
        meta_of(self.call.params.borrow().as_deref())
    }

    /// The call itself. From 2026-07-28 on another one each time a client comes back with answers.
    pub fn key(&self) -> CallKey {
        self.call.key()
    }

    fn say(&self, tell: Tell) {
        if self.call.stage.get() != Stage::Finished {
            self.link.outbox.push(tell);
        }
    }

    /// On a call nobody waits at just now there is nobody to hear it.
    fn say_on_call(&self, tell: impl FnOnce(CallKey) -> Tell) {
        if self.call.stage.get() == Stage::Open {
            self.link.outbox.push(tell(self.call.key()));
        }
    }
}

/// The `_meta` of a request with these parameters.
pub(super) fn meta_of(params: Option<&[u8]>) -> Meta {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "_meta", default)]
        meta: Meta,
    }
    let params = params.and_then(|params| params::parse::<Params>(params).ok());
    params.map_or_else(Meta::new, |params| params.meta)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What can be said outside of calls: by a task of the service's own, on the shard it was given to.
#[derive(Clone, Debug)]
pub struct Outlet {
    link: Rc<Link>,
}

impl Outlet {
    pub(super) fn new(link: &Rc<Link>) -> Self {
        Outlet { link: Rc::clone(link) }
    }

    /// Sends a notification to a session's listener. Nothing happens if the session is gone.
    pub fn notify_session(&self, session: SessionKey, notification: Notification) {
        self.link.outbox.push(Tell::Announce(session, notification));
    }

    /// Sends a notification to every session of every shard.
    pub fn notify_all(&self, notification: Notification) {
        self.link.outbox.push(Tell::Broadcast(notification));
    }

    /// Tells every session of every shard that is subscribed to `uri` that the resource has changed.
    pub fn resource_updated(&self, uri: &str) {
        self.notify_all(notification::resource_updated(uri));
    }

    /// A session's client, to be asked things on its listener stream. Outside of a call a client should be asked for
    /// nothing but its roots, or by a ping.
    pub fn client(&self, session: SessionKey) -> Client {
        Client::new(&self.link, Some(session), None)
    }
}

/// Between the host and everything that speaks through it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) outbox: Outbox,
    pub(super) asks: Asks,
    /// Calls without a session that asked something while nobody looked.
    asking: RefCell<Vec<Rc<CallState>>>,
}

impl Link {
    pub(super) fn new(ready: Arc<ReadyList>) -> Self {
        Link { outbox: Outbox::new(ready), asks: Asks::default(), asking: RefCell::default() }
    }

    /// A call has asked something: if its handler is not being polled, somebody has to look after it.
    pub(super) fn asked(&self, call: &Rc<CallState>) {
        if !self.outbox.attended.get() {
            self.asking.borrow_mut().push(Rc::clone(call));
            self.outbox.ready.wake_driver();
        }
    }

    pub(super) fn take_asking(&self) -> Vec<Rc<CallState>> {
        self.asking.take()
    }
}

/// Ready once the call is cancelled; see [`Context::cancelled`].
#[derive(Debug)]
pub struct Cancelled {
    call: Rc<CallState>,
}

impl Cancelled {
    pub(super) fn of(call: &Rc<CallState>) -> Self {
        Cancelled { call: Rc::clone(call) }
    }
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

/// What host and contexts share about one call. A call that a client comes back to (2026-07-28) is one to its handler: what
/// changes with each coming is in cells.
#[derive(Debug)]
pub(super) struct CallState {
    key: Cell<CallKey>,
    session: Option<SessionKey>,
    method: Method,
    revision: Revision,
    client: Cell<ClientFeatures>,
    principal: Option<Principal>,
    params: RefCell<Option<Bytes>>,
    progress_token: RefCell<Option<Bytes>>,
    /// The last progress reported; anything is greater than the first.
    progress: Cell<f64>,
    cancelled: Cell<bool>,
    stage: Cell<Stage>,
    /// Who waits for the cancellation: one waker for each task of the handler, hardly ever more than one.
    waiting: RefCell<Vec<Waker>>,
    /// Where the handler runs.
    worker: Cell<usize>,
    /// What the handler asks of a client without a session; `None` until it does.
    inquiry: RefCell<Option<Box<Inquiry>>>,
}

/// Who waits for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its client, on a connection.
    Open,
    /// Nobody until its client comes back.
    Away,
    /// Nobody any more.
    Finished,
}

impl CallState {
    pub(super) fn new(call: &mut Call) -> Self {
        CallState {
            key: Cell::new(call.key),
            session: call.session,
            method: call.method.clone(),
            revision: call.revision,
            client: Cell::new(call.client),
            principal: call.principal.take(),
            params: RefCell::new(call.params.clone()),
            progress_token: RefCell::new(call.progress_token.take()),
            progress: Cell::new(f64::NEG_INFINITY),
            cancelled: Cell::new(false),
            stage: Cell::new(Stage::Open),
            waiting: RefCell::default(),
            worker: Cell::new(usize::MAX),
            inquiry: RefCell::default(),
        }
    }

    pub(super) fn key(&self) -> CallKey {
        self.key.get()
    }

    pub(super) fn session(&self) -> Option<SessionKey> {
        self.session
    }

    pub(super) fn method(&self) -> &str {
        self.method.as_str()
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn client(&self) -> ClientFeatures {
        self.client.get()
    }

    pub(super) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    pub(super) fn params(&self) -> Option<Bytes> {
        self.params.borrow().clone()
    }

    /// Answered, or nobody waits for the answer.
    pub(super) fn is_over(&self) -> bool {
        self.stage.get() == Stage::Finished || self.cancelled.get()
    }

    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    pub(super) fn finish(&self) {
        self.stage.set(Stage::Finished);
    }

    // --- Without a session ----------------------------------------------------------------------

    /// Where its handler runs.
    pub(super) fn seat(&self, worker: usize) {
        self.worker.set(worker);
    }

    pub(super) fn worker(&self) -> usize {
        self.worker.get()
    }

    /// Its client has an answer and may come back.
    pub(super) fn leave(&self) {
        self.stage.set(Stage::Away);
    }

    /// Its client has come back, with another call.
    pub(super) fn reopen(&self, call: &mut Call) {
        self.key.set(call.key);
        self.client.set(call.client);
        self.params.replace(call.params.clone());
        self.progress_token.replace(call.progress_token.take());
        self.progress.set(f64::NEG_INFINITY);
        self.stage.set(Stage::Open);
    }

    /// Answers that came before their questions.
    pub(super) fn give(&self, answers: Vec<(String, Bytes)>) {
        if !answers.is_empty() {
            self.inquiry.borrow_mut().get_or_insert_default().given = answers;
        }
    }

    /// Names a question that is about to be asked; if it is answered already, that is the answer.
    pub(super) fn question(&self, name: Option<&str>, kind: &str) -> Result<String, Bytes> {
        self.inquiry.borrow_mut().get_or_insert_default().question(name, kind)
    }

    pub(super) fn ask(&self, question: Question) {
        self.inquiry.borrow_mut().get_or_insert_default().asked.push(question);
    }

    /// The questions somebody still waits at.
    pub(super) fn questions(&self, asks: &Asks) -> Vec<(String, Bytes)> {
        let mut inquiry = self.inquiry.borrow_mut();
        inquiry.as_mut().map_or_else(Vec::new, |inquiry| inquiry.open(asks))
    }

    /// How long the most patient question waits.
    pub(super) fn patience(&self) -> Duration {
        self.inquiry.borrow().as_ref().map_or(Duration::ZERO, |inquiry| inquiry.patience())
    }

    /// Which questions these answers are for; the others are nobody's.
    pub(super) fn matched(&self, answers: Vec<(String, Bytes)>) -> Vec<(ServerRequestId, Bytes)> {
        let mut inquiry = self.inquiry.borrow_mut();
        inquiry.as_mut().map_or_else(Vec::new, |inquiry| inquiry.matched(answers))
    }

    /// Whether the handler wants to be a task, and for how long its client can ask for it.
    pub(super) fn task_ttl(&self) -> Option<Duration> {
        self.inquiry.borrow().as_ref()?.task
    }

    /// The call stays one.
    pub(super) fn forgo_task(&self) {
        if let Some(inquiry) = self.inquiry.borrow_mut().as_mut() {
            inquiry.task = None;
        }
    }

    pub(super) fn knows_tasks(&self) -> bool {
        !self.revision.has_sessions() && service::declares_tasks(self.params.borrow().as_deref())
    }

    // --- Progress and cancellation --------------------------------------------------------------

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
    pub(super) fn push(&self, tell: Tell) {
        self.tells.borrow_mut().push(tell);
        if !self.attended.get() {
            self.ready.wake_driver();
        }
    }
}
