//! POSTs: messages in, replies out.
//!
//! Owns the calls in flight and the POSTs that wait for them, and decides the form of each reply: JSON if the response
//! is the first thing there is to say, else a stream. Routing is by POST, never by JSON-RPC id, so equal ids in flight each
//! get their own answer. Knows methods only as far as the transport must: `initialize`, `ping`, `logging/setLevel` and
//! the cancellation.
//!
//! Invariants: a call is in its session's list exactly while it runs; a POST lives while one of its calls does; its
//! status is decided before any byte of its reply is queued.

use super::{
    asks,
    config::{Priming, ResponseMode},
    era::{Era, Named},
    exchange::Asked,
    http::{Content, Forms, Refusal, ReplyHead, Status},
    ids::EventId,
    jsonrpc::{self, Body, EnvelopeError, InitializeParams, Message, Meta, RpcError},
    memory::{Charge, size_of_answer},
    queue::{self, Class},
    recovery::Origin,
    refusals::SERVER_ERROR,
    request::{ReplyFacts, Request, SessionField, Wire},
    seam::*,
    session::{Phase, Session, SessionEnd},
    shard::{Deadline, Shard},
    sse,
    stream::{EndOfStream, Role, Via},
    subscriptions::Full,
    table::{CallSlot, ConnSlot, Generational, PostSlot, SessionSlot, Slot as _, StreamSlot},
    unproven::Kept,
    wheel::TimerId,
};
use crate::{core::conn::State, limits};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, rc::Rc, sync::Arc};

/// A POST with calls in flight.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) session: SessionSlot,
    /// Where the reply goes while its form is undecided.
    pub(super) conn: Option<ConnSlot>,
    form: Form,
    pub(super) kind: PostKind,
    calls: u32,
    /// When its calls have taken too long.
    late_ms: u64,
    pub(super) timer: Option<TimerId>,
    /// Its body, which those who work on it hold, and the responses of a batch that wait for others.
    charge: Option<Charge>,
}

/// The form of a reply, once there is one.
#[derive(Debug)]
enum Form {
    /// What it needs to know of the request, and the responses of a batch so far.
    Undecided(ReplyFacts, Forms, Vec<Bytes>),
    Stream(StreamSlot),
    /// It was answered at once: what its calls lead to goes to the stream that carries the session.
    Carried,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostKind {
    Initialize,
    Single,
    Batch,
}

/// A client's request that the backend works on.
#[derive(Debug)]
pub(super) struct CallEntry {
    generation: Generation,
    session: SessionSlot,
    post: PostSlot,
    /// As the client wrote it.
    id: Bytes,
    newer: Option<CallSlot>,
    older: Option<CallSlot>,
}

impl Generational for CallEntry {
    fn generation(&self) -> Generation {
        self.generation
    }
}

/// How a call ends.
#[derive(Debug)]
pub(super) enum Outcome {
    Answered(Result<Bytes, RpcError>),
    /// The backend has no room for another session.
    Refused,
    TimedOut,
    Cancelled,
    SessionEnded,
}

/// Whether a POST still has calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    Some,
    None,
}

/// A request taken from a body, with what outlives it.
pub(super) struct Incoming {
    id: Bytes,
    method: Method,
    params: Option<Bytes>,
    progress_token: Option<Bytes>,
}

// --- Messages in --------------------------------------------------------------------------------

impl Shard {
    /// A POST's body is whole: acts on its messages.
    pub(super) fn dispatch(&mut self, conn: ConnSlot, request: &mut Request, body: &Bytes, now: Now) {
        if let Err(refusal) = self.still_in(conn, now) {
            return self.refuse(conn, &request.reply, &refusal, now);
        }
        let parsed = jsonrpc::parse(body);
        if request.wire == Wire::HttpSse {
            return self.dispatch_carried(conn, request, body, parsed, now);
        }
        if Era::of(&request.named, &parsed) == Era::Stateless {
            let (charge, reply, named) = (request.charge.take(), &request.reply, &request.named);
            let asked = Asked { reply, forms: request.forms, named, body, charge };
            return self.dispatch_stateless(conn, asked, parsed, now);
        }
        if let Named::Unknown(_) = request.named {
            let refusal = self.mask_refusal(request, Refusal::unsupported_revision());
            return self.refuse(conn, &request.reply, &refusal, now);
        }
        let outcome = match parsed {
            Ok(Body::Single(message)) => self.dispatch_message(conn, request, body, message, now),
            Ok(Body::Batch(messages)) => self.dispatch_batch(conn, request, body, messages, now),
            Err(error) => Err(self.refused_envelope(request, &error)),
        };
        if let Err(refused) = outcome {
            self.refuse_post(conn, request, refused, now);
        }
    }

    pub(super) fn refuse_post(&mut self, conn: ConnSlot, request: &Request, refused: Refused, now: Now) {
        match refused {
            Refused::Http(refusal) => self.refuse(conn, &request.reply, &refusal, now),
            Refused::Rpc(status, id, error) => {
                self.reply_error(conn, &request.reply, status, id.as_deref(), &error, now);
            }
        }
    }

    fn dispatch_message(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        body: &Bytes,
        message: Message<'_>,
        now: Now,
    ) -> Result<(), Refused> {
        if let Message::Request { id, method, params } = &message
            && method == "initialize"
        {
            return self.initialize(conn, request, body.slice_ref(id.as_bytes()), *params, body, now);
        }
        let session = self.require_session(request.session)?;
        self.touch_session(session, now);
        match message {
            Message::Request { .. } => {
                let incoming = Incoming::of(body, message).expect("a request");
                let post = self.begin_post(conn, session, request, PostKind::Single);
                self.begin_call(post, incoming, now);
                self.settle_post(post, now);
            }
            Message::Notification { method, params } => {
                self.notified(session, body, method, params, now);
                self.reply_empty(conn, &request.reply, Status::Accepted, now);
            }
            Message::Response { id, outcome } => {
                self.answered(session, body, id, outcome);
                self.reply_empty(conn, &request.reply, Status::Accepted, now);
            }
        }
        Ok(())
    }

    /// Batches exist in 2025-03-26 alone, and only of one direction.
    fn dispatch_batch(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        body: &Bytes,
        messages: Vec<Result<Message<'_>, EnvelopeError<'_>>>,
        now: Now,
    ) -> Result<(), Refused> {
        let has_initialize = |message: &Result<Message<'_>, EnvelopeError<'_>>| matches!(message, Ok(Message::Request { method, .. }) if method == "initialize");
        if messages.iter().any(has_initialize) {
            return Err(Refusal::initialize_in_batch().into());
        }
        let session = self.require_session(request.session)?;
        if self.sessions[session].revision != Revision::V2025_03_26 {
            return Err(Refusal::batch_not_allowed().into());
        }
        let messages: Vec<Message<'_>> =
            messages.into_iter().collect::<Result<_, _>>().map_err(|error| Refused::of_envelope(&error))?;
        check_batch_mixture(&messages)?;
        self.touch_session(session, now);
        let mut calls = Vec::new();
        for message in messages {
            match message {
                Message::Request { .. } => calls.extend(Incoming::of(body, message)),
                Message::Notification { method, params } => self.notified(session, body, method, params, now),
                Message::Response { id, outcome } => self.answered(session, body, id, outcome),
            }
        }
        if calls.is_empty() {
            self.reply_empty(conn, &request.reply, Status::Accepted, now);
            return Ok(());
        }
        let post = self.begin_post(conn, session, request, PostKind::Batch);
        for incoming in calls {
            self.begin_call(post, incoming, now);
        }
        self.settle_post(post, now);
        Ok(())
    }

    fn initialize(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        id: Bytes,
        params: Option<&RawValue>,
        body: &Bytes,
        now: Now,
    ) -> Result<(), Refused> {
        if let SessionField::Id(live) = request.session
            && self.find_session(&live).is_some()
        {
            return Err(Refusal::already_initialized().into());
        }
        let wanted = InitializeParams::parse(params)
            .map_err(|error| Refused::Rpc(Status::BadRequest, Some(id.clone()), error))?;
        if self.draining() {
            return Err(Refusal::draining().into());
        }
        self.check_memory()?;
        let revision = Revision::with_sessions_from_date(&wanted.protocol_version)
            .unwrap_or(Revision::NEWEST_WITH_SESSIONS);
        let holder = self.enter_session(conn, now)?;
        let session = self
            .begin_session(revision, asks::features(&wanted.capabilities), holder, now)
            .ok_or_else(Refusal::too_many_sessions)?;
        let post = self.begin_post(conn, session, request, PostKind::Initialize);
        self.begin_call(post, Incoming::of_initialize(body, id, params), now);
        self.settle_post(post, now);
        Ok(())
    }

    pub(super) fn notified(
        &mut self,
        session: SessionSlot,
        body: &Bytes,
        method: Cow<'_, str>,
        params: Option<&RawValue>,
        now: Now,
    ) {
        if method == "notifications/cancelled" {
            return self.cancel(session, params, now);
        }
        if method == "notifications/initialized" {
            self.sessions[session].phase = Phase::Initialized;
            self.release_asks(session, now);
        }
        let session = self.session_key(session);
        let method = method_of(body, method);
        let params = params.map(|params| body.slice_ref(params.get().as_bytes()));
        self.ask(Ask::Notified(Notified { session, method, params }));
    }

    /// An answer to the server. A late or unknown one is taken and forgotten.
    pub(super) fn answered(
        &mut self,
        session: SessionSlot,
        body: &Bytes,
        id: Option<&str>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let outcome = outcome.map(|result| body.slice_ref(result.get().as_bytes()));
        self.client_answered(session, id, outcome);
    }

    /// Ends the one call of that id. None, or several that share it: nothing happens.
    fn cancel(&mut self, session: SessionSlot, params: Option<&RawValue>, now: Now) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let wanted = params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok());
        let mut matching = self.calls_of(session).filter(|call| {
            let entry = &self.calls[*call];
            let is_initialize = self.posts[entry.post].kind == PostKind::Initialize;
            !is_initialize && wanted.as_ref().is_some_and(|params| entry.id == params.request_id.get())
        });
        match (matching.next(), matching.next()) {
            (Some(call), None) => {
                drop(matching);
                self.counters.calls_cancelled += 1;
                self.finish_call(call, Outcome::Cancelled, now);
            }
            _ => {
                drop(matching);
                self.counters.cancels_ignored += 1;
            }
        }
    }

    pub(super) fn refused_envelope(&mut self, request: &Request, error: &EnvelopeError<'_>) -> Refused {
        match request.session {
            SessionField::Absent => Refused::of_envelope(error),
            SessionField::Unknown | SessionField::Id(_) => match self.require_session(request.session) {
                Ok(_) => Refused::of_envelope(error),
                Err(unknown) => unknown.into(),
            },
        }
    }
}

/// Why a POST is answered without a call.
pub(super) enum Refused {
    Http(Refusal),
    Rpc(Status, Option<Bytes>, RpcError),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Refused::Http(refusal)
    }
}

impl Refused {
    fn of_envelope(error: &EnvelopeError<'_>) -> Self {
        let id = error.id.map(|id| Bytes::copy_from_slice(id.as_bytes()));
        Refused::Rpc(Status::BadRequest, id, error.error.clone())
    }
}

impl Incoming {
    /// Of `initialize`, of which nobody tells progress.
    pub(super) fn of_initialize(body: &Bytes, id: Bytes, params: Option<&RawValue>) -> Self {
        Incoming {
            id,
            method: Method::new(Bytes::from_static(b"initialize")).expect("is text"),
            params: params.map(|params| body.slice_ref(params.get().as_bytes())),
            progress_token: None,
        }
    }

    pub(super) fn of(body: &Bytes, message: Message<'_>) -> Option<Self> {
        let Message::Request { id, method, params } = message else { return None };
        let token = Meta::of(params).progress_token;
        Some(Incoming {
            id: id_of(body, id),
            method: method_of(body, method),
            params: params.map(|params| body.slice_ref(params.get().as_bytes())),
            progress_token: token.map(|token| body.slice_ref(token.get().as_bytes())),
        })
    }
}

/// A batch holds requests and notifications, or responses.
fn check_batch_mixture(messages: &[Message<'_>]) -> Result<(), Refused> {
    let responses = messages.iter().filter(|message| matches!(message, Message::Response { .. })).count();
    if responses == 0 || responses == messages.len() {
        return Ok(());
    }
    let error = RpcError::invalid_request("a batch holds either responses or requests and notifications");
    Err(Refused::Rpc(Status::BadRequest, None, error))
}

/// A request's id, which is kept as long as the call runs. A slice of a large body would keep all of it.
pub(super) fn id_of(body: &Bytes, id: &str) -> Bytes {
    if body.len() <= limits::SMALL_BODY_BYTES {
        body.slice_ref(id.as_bytes())
    } else {
        Bytes::copy_from_slice(id.as_bytes())
    }
}

pub(super) fn method_of(body: &Bytes, method: Cow<'_, str>) -> Method {
    match method {
        Cow::Borrowed(name) => Method::within(body, name),
        Cow::Owned(name) => Method::new(Bytes::from(name)).expect("was text"),
    }
}

// --- Calls --------------------------------------------------------------------------------------

impl Shard {
    fn begin_post(
        &mut self,
        conn: ConnSlot,
        session: SessionSlot,
        request: &mut Request,
        kind: PostKind,
    ) -> PostSlot {
        let facts = request.reply.clone();
        let post = self.posts.insert(Post {
            session,
            conn: Some(conn),
            form: Form::Undecided(facts, request.forms, Vec::new()),
            kind,
            // Held by the caller until every call of the POST has begun.
            calls: 1,
            late_ms: u64::MAX,
            timer: None,
            charge: request.charge.take(),
        });
        self.conns[conn].state = State::Waiting(post);
        post
    }

    /// The same for one that is answered already.
    pub(super) fn begin_carried_post(
        &mut self,
        session: SessionSlot,
        request: &mut Request,
        kind: PostKind,
    ) -> PostSlot {
        self.posts.insert(Post {
            session,
            conn: None,
            form: Form::Carried,
            kind,
            calls: 1,
            late_ms: u64::MAX,
            timer: None,
            charge: request.charge.take(),
        })
    }

    /// Every call of the POST has begun: from now on it lives as long as one of them runs.
    pub(super) fn settle_post(&mut self, post: PostSlot, now: Now) {
        if self.call_left(post, now) == Remaining::Some {
            self.posts[post].late_ms = now.ms + self.config.request_timeout_ms;
            self.arm_post(post, now.ms + self.first_wait_ms(post));
        }
    }

    pub(super) fn begin_call(&mut self, post: PostSlot, incoming: Incoming, now: Now) {
        let session = self.posts[post].session;
        let crowded = usize::from(self.sessions[session].calls_in_flight) >= limits::CALLS_PER_SESSION_MAX;
        let call = self.insert_call(post, session, incoming.id);
        let answer = match incoming.method.as_bytes() {
            _ if crowded => {
                self.counters.calls_refused += 1;
                Some(Err(too_many_calls()))
            }
            b"ping" => Some(Ok(Bytes::from_static(b"{}"))),
            b"logging/setLevel" => Some(self.set_log_level(session, incoming.params.as_deref())),
            _ => None,
        };
        match answer {
            Some(answer) => self.finish_call(call, Outcome::Answered(answer), now),
            None => {
                self.counters.calls += 1;
                let call = Call {
                    key: self.call_key(call),
                    session: Some(self.session_key(session)),
                    method: incoming.method,
                    params: incoming.params,
                    progress_token: incoming.progress_token,
                    revision: self.sessions[session].revision,
                    client: self.sessions[session].client,
                    principal: self.owner_name(session),
                    param_fields: Vec::new(),
                };
                self.ask(Ask::Call(call));
            }
        }
    }

    fn insert_call(&mut self, post: PostSlot, session: SessionSlot, id: Bytes) -> CallSlot {
        let older = self.sessions[session].calls;
        let generation = self.generations.issue();
        let call = self.calls.insert(CallEntry { generation, session, post, id, newer: None, older });
        if let Some(older) = older {
            self.calls[older].newer = Some(call);
        }
        let owner = &mut self.sessions[session];
        owner.calls = Some(call);
        owner.calls_in_flight += 1;
        self.posts[post].calls += 1;
        call
    }

    fn remove_call(&mut self, call: CallSlot) -> CallEntry {
        let entry = self.calls.remove(call);
        match entry.newer {
            Some(newer) => self.calls[newer].older = entry.older,
            None => self.sessions[entry.session].calls = entry.older,
        }
        if let Some(older) = entry.older {
            self.calls[older].newer = entry.newer;
        }
        self.sessions[entry.session].calls_in_flight -= 1;
        entry
    }

    /// Calls of a POST that run; its own count must agree.
    pub(super) fn calls_of_post(&self, post: PostSlot) -> usize {
        let count = self.calls.iter().filter(|(_, call)| call.post == post).count();
        assert_eq!(count, self.posts[post].calls as usize, "a POST counts its calls");
        count
    }

    pub(super) fn calls_of(&self, session: SessionSlot) -> impl Iterator<Item = CallSlot> + '_ {
        std::iter::successors(self.sessions[session].calls, |call| self.calls[*call].older)
    }

    fn call_key(&self, call: CallSlot) -> CallKey {
        CallKey { slot: call.number(), generation: self.calls[call].generation }
    }

    fn set_log_level(&mut self, session: SessionSlot, params: Option<&[u8]>) -> Result<Bytes, RpcError> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            level: Cow<'a, str>,
        }
        let level = params
            .and_then(|params| serde_json::from_slice::<Params<'_>>(params).ok())
            .and_then(|params| LogLevel::from_name(&params.level))
            .ok_or_else(|| {
                RpcError::invalid_params(
                    "params.level must be one of debug, info, notice, warning, error, critical, alert, emergency",
                )
            })?;
        self.sessions[session].log_level = level;
        let session = self.session_key(session);
        self.ask(Ask::LogLevel(session, level));
        Ok(Bytes::from_static(b"{}"))
    }

    /// Answers a call that subscribes to a resource.
    pub(super) fn subscribe_call(&mut self, call: CallSlot, uri: Arc<str>, now: Now) {
        let answer = match self.subscriptions.add(self.session_of_call(call), uri) {
            Ok(()) => Ok(Bytes::from_static(b"{}")),
            Err(Full) => {
                self.counters.subscriptions_refused += 1;
                Err(too_many_subscriptions())
            }
        };
        self.finish_call(call, Outcome::Answered(answer), now);
    }

    pub(super) fn session_of_call(&self, call: CallSlot) -> SessionSlot {
        self.calls[call].session
    }

    /// The backend's answer, unless it is large and whoever is to read it, or the session's client, leaves too much unread.
    pub(super) fn admit_response(
        &mut self,
        call: CallSlot,
        answer: Result<Bytes, RpcError>,
    ) -> Result<Bytes, RpcError> {
        if size_of_answer(&answer) <= limits::SMALL_BODY_BYTES {
            return answer;
        }
        let CallEntry { session, post, .. } = self.calls[call];
        let post = &self.posts[post];
        let reader = match post.form {
            Form::Undecided(..) => post.conn,
            Form::Stream(stream) => self.streams[stream].live_conn(),
            Form::Carried => self.sessions[session].carrier,
        };
        // A batch's earlier responses are with its body.
        let own = post.charge.as_ref().filter(|_| post.kind != PostKind::Batch);
        let own_kib = own.map_or(0, Charge::kib);
        let Session { account, locality, .. } = self.sessions[session];
        self.check_unread(Some(account), locality, own_kib)?;
        match reader {
            Some(reader) => self.admit_answer(reader, own_kib, answer),
            None => answer,
        }
    }

    /// A call is over: its response, if it gets one, goes where its POST is answered.
    pub(super) fn finish_call(&mut self, call: CallSlot, outcome: Outcome, now: Now) {
        let key = self.call_key(call);
        let entry = self.remove_call(call);
        let (session, post) = (entry.session, entry.post);
        self.sessions[session].active_ms = now.ms;
        let is_initialize = self.posts[post].kind == PostKind::Initialize;
        let outcome = if is_initialize { self.agree_on_revision(session, outcome) } else { outcome };
        let in_vain = is_initialize && !matches!(outcome, Outcome::Answered(Ok(_)));
        if in_vain {
            self.sessions[session].phase = Phase::Rejected;
        }
        match outcome {
            Outcome::Answered(answer) => self.respond(post, &entry.id, answer, now),
            Outcome::Refused => self.refuse_call(post, &entry.id, now),
            Outcome::TimedOut => {
                self.counters.calls_timed_out += 1;
                self.ask(Ask::Cancel(key));
                self.respond(post, &entry.id, Err(request_timed_out()), now);
            }
            Outcome::Cancelled => self.ask(Ask::Cancel(key)),
            Outcome::SessionEnded => {
                self.ask(Ask::Cancel(key));
                self.session_ended_under(post, now);
                self.call_left(post, now);
                return;
            }
        }
        self.call_left(post, now);
        if in_vain {
            self.end_session(session, SessionEnd::InitializeFailed, now);
        } else if self.draining() && self.is_carried_and_idle(session) {
            self.end_session(session, SessionEnd::Stopped, now);
        }
    }

    /// The session is of the revision that its backend answers with.
    fn agree_on_revision(&mut self, session: SessionSlot, outcome: Outcome) -> Outcome {
        let Outcome::Answered(Ok(result)) = &outcome else { return outcome };
        match jsonrpc::revision_of(result) {
            Some(revision) => {
                self.sessions[session].revision = revision;
                outcome
            }
            None => Outcome::Answered(Err(unknown_revision())),
        }
    }

    /// The backend has no room: 503, as long as the form of the reply is open.
    fn refuse_call(&mut self, post: PostSlot, id: &[u8], now: Now) {
        let is_initialize = self.posts[post].kind == PostKind::Initialize;
        match is_initialize.then(|| self.take_undecided(post)).flatten() {
            Some((conn, facts)) => {
                self.counters.sessions_refused += 1;
                self.refuse(conn, &facts, &Refusal::too_many_sessions(), now);
            }
            None => self.respond(post, id, Err(backend_full()), now),
        }
    }

    /// One call less: the last one ends the POST.
    fn call_left(&mut self, post: PostSlot, now: Now) -> Remaining {
        let entry = &mut self.posts[post];
        entry.calls -= 1;
        if entry.calls > 0 {
            return Remaining::Some;
        }
        let entry = self.posts.remove(post);
        if let Some(timer) = entry.timer {
            self.wheel.cancel(timer);
        }
        match entry.form {
            Form::Stream(stream) => {
                self.streams[stream].post = None;
                self.pump_stream(stream, now);
                self.forget_if_done(stream);
            }
            Form::Carried => {}
            Form::Undecided(facts, _, responses) => {
                let json = join_batch(&responses);
                match entry.conn {
                    Some(conn) if responses.is_empty() => {
                        self.reply_empty(conn, &facts, Status::Accepted, now)
                    }
                    Some(conn) => self.answer_json(entry.session, conn, &facts, &[&json], now),
                    None if responses.is_empty() => {}
                    None => self.json_lost(entry.session, &json, now),
                }
            }
        }
        Remaining::None
    }

    /// The session of an undecided POST is gone: 404. A stream simply ends.
    fn session_ended_under(&mut self, post: PostSlot, now: Now) {
        let entry = &mut self.posts[post];
        if let (Form::Undecided(facts, ..), Some(conn)) = (&mut entry.form, entry.conn) {
            let facts = std::mem::take(facts);
            entry.conn = None;
            self.refuse(conn, &facts, &Refusal::session_unknown(), now);
        }
    }
}

fn too_many_calls() -> RpcError {
    RpcError {
        code: SERVER_ERROR,
        message: "this session has too many requests in flight".into(),
        data: None,
    }
}

fn too_many_subscriptions() -> RpcError {
    RpcError { code: SERVER_ERROR, message: "this session has too many subscriptions".into(), data: None }
}

fn backend_full() -> RpcError {
    RpcError { code: SERVER_ERROR, message: "there is no room for this at present".into(), data: None }
}

fn unknown_revision() -> RpcError {
    let message = "the server behind this one speaks no revision of the protocol that is known here";
    RpcError { message: message.into(), ..RpcError::internal_error() }
}

pub(super) fn request_timed_out() -> RpcError {
    RpcError { code: SERVER_ERROR - 1, message: "the request timed out".into(), data: None }
}

fn join_batch(responses: &[Bytes]) -> Vec<u8> {
    let mut out = vec![b'['];
    out.extend_from_slice(&responses.join(&b","[..]));
    out.push(b']');
    out
}

// --- Replies out --------------------------------------------------------------------------------

impl Shard {
    fn respond(&mut self, post: PostSlot, id: &[u8], answer: Result<Bytes, RpcError>, now: Now) {
        let mut error = Vec::new();
        let parts = match &answer {
            Ok(result) => jsonrpc::result_parts(id, result),
            Err(why) => {
                jsonrpc::write_error(&mut error, Some(id), why);
                [&error[..], b"", b"", b"", b""]
            }
        };
        if self.must_stream(post) {
            self.open_post_stream(post, now);
        }
        let entry = &mut self.posts[post];
        match &mut entry.form {
            Form::Stream(stream) => {
                let stream = *stream;
                let payload = Rc::new(sse::payload(&parts.concat()));
                let message = queue::Message { class: Class::Response, payload };
                let owner = &self.streams[stream];
                if owner.is_doubtful() {
                    let origin = Origin::Doubtful(owner.number);
                    self.reply_lost(owner.session, message.clone(), origin, now);
                }
                self.log_message(stream, message, now);
                self.pump_stream(stream, now);
            }
            Form::Carried => {
                let payload = Rc::new(sse::payload(&parts.concat()));
                self.respond_carried(post, queue::Message { class: Class::Response, payload }, now);
            }
            Form::Undecided(_, _, responses) if entry.kind == PostKind::Batch => {
                let response = parts.concat();
                let (conn, bytes, charge) = (entry.conn, response.len(), entry.charge.take());
                responses.push(response.into());
                self.posts[post].charge = charge.map(|charge| self.enlarged(conn, charge, bytes));
            }
            Form::Undecided(..) => self.respond_with_json(post, &parts, now),
        }
    }

    fn respond_with_json(&mut self, post: PostSlot, json: &[&[u8]], now: Now) {
        let (session, kind) = (self.posts[post].session, self.posts[post].kind);
        match (self.take_undecided(post), kind) {
            (Some((conn, facts)), PostKind::Initialize) => {
                let id = self.announce_session(post);
                self.reply_json(conn, &facts, id.as_ref().map(|id| &id[..]), json, now);
            }
            (Some((conn, facts)), PostKind::Single | PostKind::Batch) => {
                self.answer_json(session, conn, &facts, json, now);
            }
            // Nobody knows the session's id, and its handshake deadline will end it.
            (None, PostKind::Initialize) => {}
            (None, PostKind::Single | PostKind::Batch) => self.json_lost(session, &json.concat(), now),
        }
    }

    /// Answers with JSON and remembers the reply until there is evidence that it arrived.
    fn answer_json(
        &mut self,
        session: SessionSlot,
        conn: ConnSlot,
        facts: &ReplyFacts,
        json: &[&[u8]],
        now: Now,
    ) {
        let json = self.reply_json(conn, facts, None, json, now);
        if self.config.fresh_get_fallback {
            let session = self.session_key(session);
            self.keep_unproven(conn, Kept::Json(session, json), now.ms + limits::ACK_CHECK_MS);
        }
    }

    pub(super) fn json_lost(&mut self, session: SessionSlot, json: &[u8], now: Now) {
        let message = queue::Message { class: Class::Response, payload: Rc::new(sse::payload(json)) };
        self.reply_lost(session, message, Origin::Nameless, now);
    }

    /// The reply's connection and facts, taken out: it is being answered.
    fn take_undecided(&mut self, post: PostSlot) -> Option<(ConnSlot, ReplyFacts)> {
        let entry = &mut self.posts[post];
        match &mut entry.form {
            Form::Undecided(facts, ..) => Some((entry.conn.take()?, std::mem::take(facts))),
            Form::Stream(_) | Form::Carried => None,
        }
    }

    /// The id that the reply to an `initialize` carries, unless it was refused. From here on the session can be found.
    fn announce_session(&mut self, post: PostSlot) -> Option<[u8; super::ids::SessionId::LEN]> {
        let entry = &self.posts[post];
        if entry.kind != PostKind::Initialize {
            return None;
        }
        let session = entry.session;
        if self.sessions[session].phase == Phase::Rejected {
            return None;
        }
        self.sessions[session].phase = Phase::Handshake;
        Some(self.session_id(session).encode())
    }

    /// Queues a reply with that JSON, which comes in parts, and returns it as it stands there.
    pub(super) fn reply_json(
        &mut self,
        conn: ConnSlot,
        facts: &ReplyFacts,
        session_id: Option<&[u8]>,
        json: &[&[u8]],
        now: Now,
    ) -> Bytes {
        let date = self.date;
        let json_len: usize = json.iter().map(|part| part.len()).sum();
        let head = ReplyHead {
            session_id,
            ..ReplyHead::new(Status::Ok, Content::Json(json_len as u64), facts.exchange(&date))
        };
        let mut reply = self.reply(conn, &head, json, now);
        reply.split_off(reply.len() - json_len)
    }

    pub(super) fn reply_error(
        &mut self,
        conn: ConnSlot,
        facts: &ReplyFacts,
        status: Status,
        id: Option<&[u8]>,
        error: &RpcError,
        now: Now,
    ) {
        self.counters.requests_refused += 1;
        let mut json = Vec::new();
        jsonrpc::write_error(&mut json, id, error);
        let date = self.date;
        let head = ReplyHead::new(status, Content::Json(json.len() as u64), facts.exchange(&date));
        self.reply(conn, &head, &[&json], now);
    }
}

// --- Streams of POSTs ---------------------------------------------------------------------------

impl Shard {
    /// A notification that belongs to a call. It makes the reply a stream where that is allowed; elsewhere progress
    /// has no place, and the rest goes to the listener.
    pub(super) fn notify_call(&mut self, call: CallSlot, notification: &Notification, now: Now) {
        let session = self.calls[call].session;
        if self.is_filtered(session, &notification.kind) {
            self.counters.messages_filtered += 1;
            return;
        }
        let message = queue::Message {
            class: Class::of(&notification.kind),
            payload: Rc::new(sse::payload(&notification.json)),
        };
        match self.stream_of_call(call, now) {
            Some(stream) => {
                self.log_message(stream, message, now);
                self.pump_stream(stream, now);
            }
            None if message.class == Class::Progress && self.sessions[session].carrier.is_none() => {
                self.counters.messages_dropped += 1
            }
            None => {
                self.announce(session, message, now);
            }
        }
    }

    /// Whether an undecided reply may become a stream.
    fn may_stream(&self, post: PostSlot) -> bool {
        let entry = &self.posts[post];
        match &entry.form {
            Form::Undecided(_, forms, _) if entry.conn.is_some() => {
                match (forms, self.config.response_mode) {
                    (Forms::SseOnly, _) => true,
                    (Forms::JsonOnly, _) | (Forms::Both, ResponseMode::Json) => false,
                    (Forms::Both, ResponseMode::Auto | ResponseMode::Sse) => true,
                }
            }
            Form::Undecided(..) | Form::Stream(_) | Form::Carried => false,
        }
    }

    /// Whether a reply of nothing but responses has to be a stream, too.
    fn must_stream(&self, post: PostSlot) -> bool {
        let sse_only = matches!(&self.posts[post].form, Form::Undecided(_, Forms::SseOnly, _));
        self.may_stream(post) && (sse_only || self.config.response_mode == ResponseMode::Sse)
    }

    /// Decides that the reply is a stream: head, priming event, then whatever there is to say.
    fn open_post_stream(&mut self, post: PostSlot, now: Now) {
        let Form::Undecided(_, _, responses) = &mut self.posts[post].form else { return };
        let responses = std::mem::take(responses);
        let Some((conn, facts)) = self.take_undecided(post) else { return };
        let session = self.posts[post].session;
        let stream = self.new_stream(session, Role::Request);
        let id = self.announce_session(post);
        self.queue_stream_head(conn, &facts, id.as_ref().map(|id| &id[..]), now);
        if self.primes_posts(session) && self.posts[post].kind != PostKind::Initialize {
            let id = self.event_id(stream, 0);
            let priming = sse::priming(self.conns[conn].transfer, id, self.config.retry_ms);
            let end = self.queue_frame(conn, [Piece::Inline(priming)], now);
            self.streams[stream].unnamed_until = end;
        }
        if self.posts[post].kind == PostKind::Initialize {
            // Its session would be unknown to whoever asked for the rest.
            self.streams[stream].unnamed_until = 0;
        }
        self.streams[stream].post = Some(post);
        self.posts[post].form = Form::Stream(stream);
        self.attach(stream, conn, Via::Post);
        self.arm_conn(conn);
        for response in responses {
            let message =
                queue::Message { class: Class::Response, payload: Rc::new(sse::payload(&response)) };
            self.log_message(stream, message, now);
        }
        self.pump_stream(stream, now);
    }

    /// Queues the head of an event stream.
    pub(super) fn queue_stream_head(
        &mut self,
        conn: ConnSlot,
        facts: &ReplyFacts,
        session_id: Option<&[u8]>,
        now: Now,
    ) {
        self.agree_on_stream(conn, facts);
        self.note_status(conn, Status::Ok);
        let mut exchange = facts.exchange(&self.date);
        exchange.persistence = self.conns[conn].persistence;
        let content = Content::EventStream(self.conns[conn].transfer);
        let head = ReplyHead { session_id, ..ReplyHead::new(Status::Ok, content, exchange) };
        let mut out = BytesMut::new();
        head.write(&mut out);
        self.queue_bytes(conn, out.freeze(), now);
    }

    /// The stream of a call's POST, if there is one or may be.
    pub(super) fn stream_of_call(&mut self, call: CallSlot, now: Now) -> Option<StreamSlot> {
        let post = self.calls[call].post;
        if self.may_stream(post) {
            self.open_post_stream(post, now);
        }
        match self.posts[post].form {
            Form::Stream(stream) => Some(stream),
            Form::Undecided(..) | Form::Carried => None,
        }
    }

    /// The stream is gone and its client cannot name it: the POST is as one that never was answered.
    pub(super) fn stream_abandoned(&mut self, post: PostSlot) {
        let entry = &mut self.posts[post];
        entry.conn = None;
        entry.form = Form::Undecided(ReplyFacts::default(), Forms::JsonOnly, Vec::new());
    }

    /// Ends the stream of a call's POST early, if its client can come back for the rest (2025-11-25, "polling").
    pub(super) fn close_call_stream(&mut self, call: CallSlot, retry_ms: u64, now: Now) {
        let session = self.calls[call].session;
        if self.sessions[session].revision < Revision::V2025_11_25 {
            return;
        }
        let Some(stream) = self.stream_of_call(call, now) else { return };
        let entry = &self.streams[stream];
        if entry.live_conn().is_some() && entry.has_been_named() {
            self.counters.streams_closed_early += 1;
            self.end_stream(stream, EndOfStream::Early(retry_ms), now);
        }
    }

    pub(super) fn event_id(&self, stream: StreamSlot, sequence: u32) -> EventId {
        let entry = &self.streams[stream];
        EventId { tag: self.sessions[entry.session].tag, kind: entry.kind, stream: entry.number, sequence }
    }

    fn primes_posts(&self, session: SessionSlot) -> bool {
        self.sessions[session].revision >= Revision::V2025_11_25 && self.config.priming != Priming::Off
    }

    pub(super) fn primes_listeners(&self, session: SessionSlot) -> bool {
        self.sessions[session].revision >= Revision::V2025_11_25 && self.config.priming == Priming::Auto
    }

    // --- Time ------------------------------------------------------------------------------------

    /// How long the POST's calls may be silent before something happens.
    fn first_wait_ms(&self, post: PostSlot) -> u64 {
        let timeout_ms = self.config.request_timeout_ms;
        if self.may_stream(post) { self.config.sse_after_ms.min(timeout_ms) } else { timeout_ms }
    }

    fn arm_post(&mut self, post: PostSlot, deadline_ms: u64) {
        let timer = self.wheel.arm(deadline_ms, Deadline::Post(post));
        self.posts[post].timer = Some(timer);
    }

    /// Nothing came for a while: the reply becomes a stream, or its calls have taken too long.
    pub(super) fn post_expired(&mut self, post: PostSlot, now: Now) {
        self.posts[post].timer = None;
        let late_ms = self.posts[post].late_ms;
        if now.ms < late_ms {
            if self.may_stream(post) {
                self.open_post_stream(post, now);
            }
            return self.arm_post(post, late_ms);
        }
        let session = self.posts[post].session;
        let late: Vec<CallSlot> =
            self.calls_of(session).filter(|call| self.calls[*call].post == post).collect();
        for call in late {
            self.finish_call(call, Outcome::TimedOut, now);
        }
    }
}
