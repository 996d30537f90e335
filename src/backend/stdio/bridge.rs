//! Between calls of clients and lines of children, for both modes.
//!
//! Owns the children of a shard and everything that is under way to or from them: calls of clients, requests of our own,
//! requests of children to clients. It rewrites ids and progress tokens, answers what needs no decision, and leaves to
//! the modes whom a message of a child concerns.
//!
//! Invariants: `by_call` holds exactly the clients' calls that are in some link's `flights`; a call between two rounds is in
//! `asking` instead, and its open questions in `inquiries`; `asked` and the links' `asks` hold the same requests. Ids given to a child are never used again, so an answer that comes too late names nothing and is
//! dropped and counted. When a child is gone, so is everything that was under way with it, and everybody was told.
//!
//! About 150 bytes per call in flight. O(1) per message.

mod asking;
mod parked;
mod telling;

use super::{
    claims::Told,
    client::Client,
    plain,
    voice::{Voice, printable},
    watch::Topic,
    wire::{self, ProgressToken},
};
use crate::{
    backend::{host::lot::Lot, service, stamp::Stamp},
    core::{
        jsonrpc::{self, Body, Message, RpcError},
        seam::{
            Call, CallKey, LogLevel, Notification, NotificationKind, Notified, Revision, ServerMethod,
            ServerRequest, ServerRequestId, SessionKey, ShardId, Tell,
        },
    },
    limits::CHILD_ASKS_MAX,
    shell::child::{ChildId, Children, Event, Full, Line, Program},
};
use asking::Asking;
use bytes::Bytes;
use parked::{Alone, Parked, Waiting};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    task::Context,
    time::{Duration, Instant},
};

/// Code of errors that this server makes, not the child.
const SERVER_ERROR: i32 = -32000;
/// How much of a line that is no message is quoted in the log.
const QUOTE_BYTES_MAX: usize = 200;

pub(super) struct Bridge {
    children: Children,
    links: HashMap<ChildId, Link>,
    by_call: HashMap<CallKey, (ChildId, u64)>,
    asked: HashMap<ServerRequestId, (ChildId, Bytes)>,
    /// Calls of sessions that a child of 2026-07-28 needs answers for.
    asking: HashMap<CallKey, Asking>,
    inquiries: HashMap<ServerRequestId, CallKey>,
    asks_made: u64,
    ask_timeout_ms: u64,
    /// Calls of 2026-07-28 whose clients were asked something and have to come back.
    lot: Lot<Waiting>,
    given_up: Vec<(ChildId, Client)>,
    events: Vec<(ChildId, Event)>,
    pub(super) counters: Counters,
}

/// What happened on one shard. Logged when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) children_started: u64,
    pub(super) children_ended: u64,
    pub(super) sessions_refused: u64,
    /// Calls that failed because their child takes no more.
    pub(super) calls_refused: u64,
    /// Calls that failed because their child was gone.
    pub(super) calls_failed: u64,
    /// Answers to calls that were cancelled or answered already.
    pub(super) answers_late: u64,
    /// Lines that are no message, or too long.
    pub(super) lines_skipped: u64,
    /// Messages of children that concern nobody.
    pub(super) messages_dropped: u64,
    /// Messages to children that take no more.
    pub(super) messages_unsent: u64,
    /// Requests of children that could not be passed on.
    pub(super) asks_refused: u64,
}

/// What is under way with one child.
struct Link {
    flights: HashMap<u64, Flight>,
    /// Of those, calls that a message of the child may belong to.
    calls: usize,
    requests_made: u64,
    /// By the child's own ids, as it wrote them.
    asks: HashMap<Bytes, Asked>,
    /// For results to clients of 2026-07-28, once the child has greeted.
    stamp: Option<Rc<Stamp>>,
    voice: Voice,
}

/// A request of a child that waits for a client.
struct Asked {
    request: ServerRequestId,
    session: SessionKey,
    /// As the child wrote it.
    progress_token: Option<Bytes>,
}

enum Flight {
    Client(ClientCall),
    Parked(Parked),
    Own(Own),
}

struct ClientCall {
    key: CallKey,
    client: Client,
    progress: Option<Progress>,
    purpose: Purpose,
    /// If the client is of 2026-07-28, and wants results in the words of that.
    alone: Option<Alone>,
    /// If the child is of 2026-07-28 and the client is not.
    told: Option<Box<Told>>,
}

/// How a call's progress is spoken of.
struct Progress {
    /// The client's token, as it wrote it.
    theirs: Bytes,
    /// What the child was given for it.
    ours: ProgressToken,
}

/// Why a call has to be looked at when it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It has not.
    Plain,
    Subscribe(Arc<str>),
    /// It raised what the child logs, for as long as it runs.
    Logging,
}

impl Purpose {
    /// The resource it subscribes to.
    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        match self {
            Purpose::Subscribe(uri) => Some(uri.clone()),
            Purpose::Plain | Purpose::Logging => None,
        }
    }
}

/// A request of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Initialize,
    Discover,
    /// For listen streams: the child is to tell of updates of that resource.
    Subscribe(Arc<str>),
    /// A child of 2026-07-28 is to tell of changes. The answer comes when it stops.
    Listen(Topic),
    /// Whatever the answer is, nothing follows from it.
    Setting,
}

/// Whether a call is under way now. If not, it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    Yes,
    No,
}

/// What a mode has to decide about.
#[derive(Debug)]
pub(super) enum Heard {
    /// A client's call was answered, and the client has its answer.
    Answered(Client, Purpose, Result<Bytes, RpcError>),
    /// A request of our own was answered.
    Own(Own, Result<Bytes, RpcError>),
    /// A child of 2026-07-28 says whether it will tell of changes of this resource.
    Acknowledged(Arc<str>, Honoured),
    /// The child asks a client something.
    Asked(ChildAsk),
    /// The child says something that is no progress of a call.
    Noted(Notification),
}

/// Whether a child does what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Honoured {
    Yes,
    No,
}

/// A request of a child to a client.
#[derive(Debug)]
pub(super) struct ChildAsk {
    /// As the child wrote it.
    id: Bytes,
    method: ServerMethod,
    params: Option<Bytes>,
}

impl Bridge {
    pub(super) fn new(children: Children, ask_timeout_ms: u64, shard: ShardId) -> Self {
        Bridge {
            children,
            links: HashMap::new(),
            by_call: HashMap::new(),
            asked: HashMap::new(),
            asking: HashMap::new(),
            inquiries: HashMap::new(),
            asks_made: 0,
            ask_timeout_ms,
            lot: Lot::new(shard),
            given_up: Vec::new(),
            events: Vec::new(),
            counters: Counters::default(),
        }
    }

    // --- Children -----------------------------------------------------------------------------

    /// Has a child started, unless there are as many as there may be.
    pub(super) fn start(&mut self, program: &Arc<Program>) -> Option<ChildId> {
        let child = self.children.start(program)?;
        self.counters.children_started += 1;
        self.links.insert(child, Link::new());
        Some(child)
    }

    /// Lets a child end. What is under way with it fails.
    pub(super) fn end(&mut self, child: ChildId, grace: Duration, out: &mut Vec<Tell>) {
        self.children.end(child, grace);
        self.abandon(child, out);
    }

    pub(super) fn end_all(&mut self, grace: Duration) {
        self.children.end_all(grace);
    }

    pub(super) fn children(&self) -> &Children {
        &self.children
    }

    /// What the woken children did. The vector is to be given back with [`keep`](Self::keep).
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Vec<(ChildId, Event)> {
        let mut events = std::mem::take(&mut self.events);
        self.children.poll(cx, &mut events);
        events
    }

    /// Keeps an emptied vector for its capacity.
    pub(super) fn keep(&mut self, events: Vec<(ChildId, Event)>) {
        self.events = events;
    }

    /// Puts this on results of a child to clients of 2026-07-28.
    pub(super) fn stamp(&mut self, child: ChildId, stamp: Rc<Stamp>) {
        if let Some(link) = self.links.get_mut(&child) {
            link.stamp = Some(stamp);
        }
    }

    /// How many calls of clients are under way with a child.
    pub(super) fn calls(&self, child: ChildId) -> usize {
        self.links.get(&child).map_or(0, |link| link.calls)
    }

    /// Everything that was under way with a child fails at once, and what it still says is not heard.
    pub(super) fn abandon(&mut self, child: ChildId, out: &mut Vec<Tell>) {
        let Some(link) = self.links.remove(&child) else { return };
        self.abandon_rounds(child, out);
        for flight in link.flights.into_values() {
            match flight {
                Flight::Client(call) => {
                    self.by_call.remove(&call.key);
                    self.counters.calls_failed += 1;
                    out.push(Tell::Respond(call.key, Err(child_gone())));
                }
                Flight::Parked(parked) => self.answer_parked(&parked, Err(child_gone())),
                Flight::Own(_) => {}
            }
        }
        for ask in link.asks.into_values() {
            self.asked.remove(&ask.request);
        }
    }

    // --- To a child ---------------------------------------------------------------------------

    /// Passes a client's call on to a child. It fails at once if the child takes no more.
    pub(super) fn forward(
        &mut self,
        child: ChildId,
        client: Client,
        call: Call,
        purpose: Purpose,
        out: &mut Vec<Tell>,
    ) -> Forwarded {
        let Some(link) = self.links.get_mut(&child) else {
            self.counters.calls_failed += 1;
            out.push(Tell::Respond(call.key, Err(child_gone())));
            return Forwarded::No;
        };
        let id = link.next_id();
        let alone = matches!(client, Client::Alone(_)).then(|| Alone::of(&call));
        let progress = call.progress_token.map(|theirs| Progress { theirs, ours: ProgressToken::draw(id) });
        let params = match (call.params, &progress) {
            (Some(params), Some(progress)) => Some(wire::with_token(&params, progress.ours)),
            (params, _) => params,
        };
        let line = wire::request(id, call.method.as_str(), params.as_deref());
        if self.children.send(child, line) == Err(Full) {
            self.counters.calls_refused += 1;
            out.push(Tell::Respond(call.key, Err(child_is_full())));
            return Forwarded::No;
        }
        link.calls += 1;
        let flight = ClientCall { key: call.key, client, progress, purpose, alone, told: None };
        link.flights.insert(id, Flight::Client(flight));
        self.by_call.insert(call.key, (child, id));
        Forwarded::Yes
    }

    /// Stops a client's call. What it was for, if it was under way.
    pub(super) fn cancel(
        &mut self,
        call: CallKey,
        out: &mut Vec<Tell>,
    ) -> Option<(ChildId, Client, Purpose)> {
        if let Some(asking) = self.withdraw(call, out) {
            return Some((asking.child, asking.call.client, asking.call.purpose));
        }
        let (child, id) = self.by_call.remove(&call)?;
        let flight = self.links.get_mut(&child)?.land(id);
        let Some(Flight::Client(call)) = flight else { return None };
        self.tell_cancelled(child, id);
        Some((child, call.client, call.purpose))
    }

    fn tell_cancelled(&mut self, child: ChildId, id: u64) {
        let params = format!(r#"{{"requestId":{id}}}"#);
        self.tell(child, wire::notification("notifications/cancelled", Some(params.as_bytes())));
    }

    /// Asks a child something on our own behalf.
    pub(super) fn request(&mut self, child: ChildId, method: &str, params: &[u8], own: Own) -> Forwarded {
        let Some(link) = self.links.get_mut(&child) else { return Forwarded::No };
        let id = link.next_id();
        if self.children.send(child, wire::request(id, method, Some(params))) == Err(Full) {
            self.counters.messages_unsent += 1;
            return Forwarded::No;
        }
        link.flights.insert(id, Flight::Own(own));
        Forwarded::Yes
    }

    /// Tells a child which log messages are wanted.
    pub(super) fn request_log_level(&mut self, child: ChildId, level: LogLevel) {
        let params = format!(r#"{{"level":"{}"}}"#, level.name());
        let _ = self.request(child, "logging/setLevel", params.as_bytes(), Own::Setting);
    }

    /// Passes a client's notification on to a child.
    pub(super) fn notify(&mut self, child: ChildId, notified: &Notified) {
        self.tell(child, wire::notification(notified.method.as_str(), notified.params.as_deref()));
    }

    /// Tells a child how far a client is with what the child asked of it, and of nobody else: in words of ours, for what
    /// else a client wrote may mean another token to the child.
    pub(super) fn notify_progress(&mut self, child: ChildId, session: SessionKey, params: &[u8]) {
        let Some(progress) = wire::Progress::read(params) else { return };
        let asks = self.links.get(&child).map(|link| link.asks.values());
        let is_asked = asks.into_iter().flatten().any(|ask| {
            ask.session == session && ask.progress_token.as_deref() == Some(progress.token().as_bytes())
        });
        if is_asked {
            self.tell(child, wire::notification("notifications/progress", Some(&progress.json())));
        }
    }

    /// Tells a child a notification of our own.
    pub(super) fn notify_own(&mut self, child: ChildId, method: &str) {
        self.tell(child, wire::notification(method, None));
    }

    /// Gives a child the answer to a request it made of a client.
    pub(super) fn answered(
        &mut self,
        request: ServerRequestId,
        outcome: &Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        if self.answered_in_round(request, outcome, out) {
            return;
        }
        let Some((child, id)) = self.asked.remove(&request) else { return };
        if let Some(link) = self.links.get_mut(&child) {
            link.asks.remove(&id);
        }
        self.tell(child, wire::answer(&id, outcome));
    }

    /// Makes a child's request of a client.
    pub(super) fn ask(
        &mut self,
        child: ChildId,
        ask: ChildAsk,
        session: SessionKey,
        call: Option<CallKey>,
        out: &mut Vec<Tell>,
    ) {
        let Some(link) = self.links.get_mut(&child) else { return };
        if link.asks.len() >= CHILD_ASKS_MAX || link.asks.contains_key(&ask.id) {
            return self.refuse_ask(child, &ask, "too many requests wait for this client");
        }
        self.asks_made += 1;
        let id = ServerRequestId(self.asks_made);
        let progress_token = ask.params.as_ref().and_then(wire::wanted_progress);
        link.asks.insert(ask.id.clone(), Asked { request: id, session, progress_token });
        self.asked.insert(id, (child, ask.id));
        let timeout_ms = self.ask_timeout_ms;
        out.push(Tell::Request(ServerRequest {
            id,
            session,
            call,
            method: ask.method,
            params: ask.params,
            timeout_ms,
        }));
    }

    /// Tells a child that its request reaches no client.
    pub(super) fn refuse_ask(&mut self, child: ChildId, ask: &ChildAsk, reason: &'static str) {
        self.counters.asks_refused += 1;
        self.tell(child, wire::answer(&ask.id, &Err(failure(reason))));
    }

    fn tell(&mut self, child: ChildId, line: Bytes) {
        if self.children.send(child, line) == Err(Full) {
            self.counters.messages_unsent += 1;
        }
    }

    // --- From a child -------------------------------------------------------------------------

    /// The one call that what a child says belongs to. `None` if there is none, or more than one.
    pub(super) fn only_call(&self, child: ChildId) -> Option<(CallKey, Client)> {
        let link = self.links.get(&child).filter(|link| link.calls == 1)?;
        link.flights.values().find_map(|flight| match flight {
            Flight::Client(call) => Some((call.key, call.client)),
            Flight::Parked(_) | Flight::Own(_) => None,
        })
    }

    /// A child wrote a line: does what needs no decision and gives the rest.
    pub(super) fn hear(&mut self, child: ChildId, line: Line, out: &mut Vec<Tell>) -> Vec<Heard> {
        let mut heard = Vec::new();
        if !self.links.contains_key(&child) {
            return heard;
        }
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong(start) => {
                self.skipped(child, "a line of its standard output is longer than --max-message", &start);
                return heard;
            }
        };
        match jsonrpc::parse(&line) {
            Ok(Body::Single(message)) => heard.extend(self.hear_message(child, &line, message, out)),
            Ok(Body::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => heard.extend(self.hear_message(child, &line, message, out)),
                        Err(error) => self.skipped(child, &error.error.message, &line),
                    }
                }
            }
            Err(error) => self.skipped(child, &error.error.message, &line),
        }
        heard
    }

    /// A child wrote a line to its standard error.
    pub(super) fn log(&mut self, child: ChildId, line: &Line) {
        let (bytes, is_cut) = match line {
            Line::Whole(bytes) => (bytes, ""),
            Line::TooLong(bytes) => (bytes, "…"),
        };
        self.speak(child, |left_out| {
            let text = printable(bytes, usize::MAX);
            tracing::info!(target: "moorline::child", %child, left_out, "{text}{is_cut}");
        });
    }

    /// A child's log message that is for no session.
    pub(super) fn log_message(&mut self, child: ChildId, message: &Notification) {
        self.speak(child, |left_out| {
            let text = printable(&message.json, QUOTE_BYTES_MAX);
            tracing::info!(target: "moorline::child", %child, left_out, "logs: {text}");
        });
    }

    fn hear_message(
        &mut self,
        child: ChildId,
        line: &Bytes,
        message: Message<'_>,
        out: &mut Vec<Tell>,
    ) -> Option<Heard> {
        match message {
            Message::Response { id, outcome } => self.hear_answer(child, line, id, outcome, out),
            Message::Request { id, method, params } => self.hear_request(child, line, id, &method, params),
            Message::Notification { method, params } => {
                self.hear_notification(child, line, &method, params, out)
            }
        }
    }

    fn hear_answer(
        &mut self,
        child: ChildId,
        line: &Bytes,
        id: Option<&str>,
        outcome: Result<&RawValue, &RawValue>,
        out: &mut Vec<Tell>,
    ) -> Option<Heard> {
        let number = id.and_then(|id| id.parse().ok());
        let flight = number.and_then(|number| self.links.get_mut(&child)?.land(number));
        let malformed = || failure("the server behind this one answered with a malformed error");
        let answer = outcome
            .map(|result| line.slice_ref(result.get().as_bytes()))
            .map_err(|error| RpcError::from_json(error).unwrap_or_else(malformed));
        match flight {
            Some(Flight::Client(call)) => {
                self.by_call.remove(&call.key);
                let words = match (&call.alone, &call.told, &answer) {
                    (_, Some(_), Ok(result)) if asking::asks(result) => {
                        self.begin_round(child, call, result, out);
                        return None;
                    }
                    (_, Some(told), Ok(result)) => plain::result(&told.method, result),
                    (_, Some(told), Err(error)) => {
                        Err(plain::error(&told.method, told.revision, error.clone()))
                    }
                    (Some(alone), None, _) => self.revised(child, &alone.method, answer.clone()),
                    (None, None, _) => answer.clone(),
                };
                out.push(Tell::Respond(call.key, words));
                (call.purpose != Purpose::Plain).then_some(Heard::Answered(call.client, call.purpose, answer))
            }
            Some(Flight::Parked(parked)) => {
                let method = parked.call.alone.as_ref().map_or("", |alone| &*alone.method);
                let words = self.revised(child, method, answer.clone());
                self.answer_parked(&parked, words);
                Some(Heard::Answered(parked.call.client, parked.call.purpose, answer))
            }
            Some(Flight::Own(own)) => Some(Heard::Own(own, answer)),
            None => {
                self.counters.answers_late += 1;
                None
            }
        }
    }

    /// What a child answered, in the words of 2026-07-28.
    fn revised(
        &self,
        child: ChildId,
        method: &str,
        answer: Result<Bytes, RpcError>,
    ) -> Result<Bytes, RpcError> {
        let stamp = self.links.get(&child).and_then(|link| link.stamp.as_ref());
        match (answer, stamp) {
            (Ok(result), Some(stamp)) => Ok(stamp.on(method, result)),
            (Ok(result), None) => Ok(result),
            (Err(error), _) => Err(service::revised_error(error)),
        }
    }

    fn hear_request(
        &mut self,
        child: ChildId,
        line: &Bytes,
        id: &str,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Heard> {
        if method == "ping" {
            self.tell(child, wire::answer(id.as_bytes(), &Ok(Bytes::from_static(b"{}"))));
            return None;
        }
        let Some(known) = wire::server_method(method) else {
            let error = RpcError::method_not_found(method);
            self.tell(child, wire::answer(id.as_bytes(), &Err(error)));
            return None;
        };
        let params = params.map(|params| line.slice_ref(params.get().as_bytes()));
        Some(Heard::Asked(ChildAsk { id: Bytes::copy_from_slice(id.as_bytes()), method: known, params }))
    }

    fn hear_notification(
        &mut self,
        child: ChildId,
        line: &Bytes,
        method: &str,
        params: Option<&RawValue>,
        out: &mut Vec<Tell>,
    ) -> Option<Heard> {
        match method {
            "notifications/progress" => {
                self.hear_progress(child, line, params, out);
                None
            }
            "notifications/cancelled" => self.hear_cancellation(child, line, params).map(Heard::Noted),
            "notifications/subscriptions/acknowledged" => self.hear_acknowledgement(child, params?),
            _ => {
                let kind = wire::kind_of(method, params);
                Some(Heard::Noted(Notification { kind, json: alone(line, method, params) }))
            }
        }
    }

    fn hear_progress(
        &mut self,
        child: ChildId,
        line: &Bytes,
        params: Option<&RawValue>,
        out: &mut Vec<Tell>,
    ) {
        let call = params.zip(wire::progress_token(params)).and_then(|(params, written)| {
            let token = ProgressToken::parse(written)?;
            let flight = self.links.get(&child)?.flights.get(&token.call)?;
            let Flight::Client(ClientCall { key, progress: Some(progress), .. }) = flight else {
                return None;
            };
            let theirs = (progress.ours == token).then_some(&progress.theirs)?;
            Some((*key, rewritten(line, "notifications/progress", params, written, theirs)))
        });
        let Some((key, json)) = call else {
            self.counters.messages_dropped += 1;
            return;
        };
        out.push(Tell::Notify(key, Notification { kind: NotificationKind::Progress, json }));
    }

    /// The child does not want the answer to a request of its own any more: the client is told so.
    fn hear_cancellation(
        &mut self,
        child: ChildId,
        line: &Bytes,
        params: Option<&RawValue>,
    ) -> Option<Notification> {
        let written = wire::cancelled_request(params)?;
        let Asked { request, .. } = self.links.get_mut(&child)?.asks.remove(written.as_bytes())?;
        self.asked.remove(&request);
        let number = itoa::Buffer::new().format(request.0).to_owned();
        let json = rewritten(line, "notifications/cancelled", params?, written, number.as_bytes());
        Some(Notification { kind: NotificationKind::Other, json })
    }

    fn skipped(&mut self, child: ChildId, reason: &str, line: &[u8]) {
        self.counters.lines_skipped += 1;
        self.speak(child, |left_out| {
            let start = printable(line, QUOTE_BYTES_MAX);
            tracing::warn!(%child, left_out, reason, "skipped what a child wrote: {start}");
        });
    }

    fn speak(&mut self, child: ChildId, write: impl FnOnce(u64)) {
        let voice = self.links.get_mut(&child).map(|link| &mut link.voice);
        if let Some(left_out) = voice.and_then(|voice| voice.admit(Instant::now())) {
            write(left_out);
        }
    }
}

/// A notification on its own: it passes as it was written, unless it was one of several on a line.
fn alone(line: &Bytes, method: &str, params: Option<&RawValue>) -> Bytes {
    if is_batch(line) {
        return jsonrpc::notification(method, params.map(|params| params.get().as_bytes()));
    }
    line.clone()
}

/// The same with a part of its params replaced.
fn rewritten(line: &Bytes, method: &str, params: &RawValue, part: &str, replacement: &[u8]) -> Bytes {
    if is_batch(line) {
        let params = line.slice_ref(params.get().as_bytes());
        return jsonrpc::notification(method, Some(&wire::splice(&params, part, replacement)));
    }
    wire::splice(line, part, replacement)
}

fn is_batch(line: &Bytes) -> bool {
    line.trim_ascii_start().first() == Some(&b'[')
}

impl Link {
    fn new() -> Self {
        Link {
            flights: HashMap::new(),
            calls: 0,
            requests_made: 0,
            asks: HashMap::new(),
            stamp: None,
            voice: Voice::new(Instant::now()),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.requests_made += 1;
        self.requests_made
    }

    /// A request is over.
    fn land(&mut self, id: u64) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        match &flight {
            Flight::Client(_) | Flight::Parked(_) => self.calls -= 1,
            Flight::Own(_) => {}
        }
        Some(flight)
    }
}

pub(super) fn failure(message: &'static str) -> RpcError {
    RpcError { code: SERVER_ERROR, message: message.into(), data: None }
}

pub(super) fn failure_owned(message: String) -> RpcError {
    RpcError { code: SERVER_ERROR, message: message.into(), data: None }
}

pub(super) fn child_gone() -> RpcError {
    failure("the server behind this one has ended")
}

pub(super) fn child_is_full() -> RpcError {
    failure("the server behind this one takes no more requests at present")
}

/// What each request of our own to a child of 2026-07-28 has to say, and more members.
pub(super) fn own_params(more: &str) -> Vec<u8> {
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"moorline","version":"{}"}}}}{more}}}"#,
        Revision::V2026_07_28.date(),
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes()
}

/// The `initialize` of a child that is shared by all sessions. Roots are left out: they are a client's own.
pub(super) fn own_initialize() -> Vec<u8> {
    format!(
        r#"{{"protocolVersion":"{}","capabilities":{{"sampling":{{}},"elicitation":{{"form":{{}},"url":{{}}}}}},"clientInfo":{{"name":"moorline","version":"{}"}}}}"#,
        Revision::NEWEST_WITH_SESSIONS.date(),
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes()
}
