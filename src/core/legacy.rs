//! HTTP+SSE, the transport of 2024-11-05: sessions that are carried by one stream.
//!
//! `GET /sse` begins a session and answers with the stream that carries it; the first event names the URI its client
//! posts to. A POST is answered with 202 at once, and whatever it leads to is said on the stream: responses, progress,
//! requests to the client, notifications. To backends it is a session like any other.
//!
//! Owns the carrier of a session: how it begins and ends, what is written to it, what waits for it in the session's
//! queue. There are no event ids and nothing is replayed: the end of the stream is the end of the session. It must never
//! let a POST wait for the stream.
//!
//! Invariants: a carrier and its session name each other; responses are never dropped, so that a stream for which
//! too much waits is cut, and its session ends; nothing but `initialize` reaches the backend first; a session is found by
//! the transport it began with alone. A connection that ends only marks its session, which ends with the next tick: so a
//! message may meet the end of its session anywhere. No bytes beyond the session's entry while nothing waits.

use super::{
    asks,
    calls::{Incoming, PostKind, Refused},
    conn::{Afterwards, State},
    era::{Era, Named},
    http::{
        Cors, Head, Method as Verb, Refusal, Status,
        policy::MESSAGES_PATH,
        refusal::{ALLOW_GET, ALLOW_POST},
    },
    jsonrpc::{Body, EnvelopeError, InitializeParams, Message as Parsed},
    memory::large,
    queue::{Class, Message, Queued},
    request::{Request, SessionField, Verdict, Wire},
    seam::*,
    session::{Phase, SessionEnd},
    shard::{Deadline, Shard},
    sse,
    table::{ConnSlot, PostSlot, SessionSlot},
};
use crate::limits::{BURST_MS, CARRIED_BYTES_MAX, CARRIED_MESSAGES_MAX, PULL_BELOW_BYTES};
use bytes::Bytes;
use serde_json::value::RawValue;

// --- Requests -----------------------------------------------------------------------------------

impl Shard {
    /// What a head on the path of streams asks for.
    pub(super) fn judge_sse(head: &Head<'_>, cors: Cors<'_>) -> Result<Verdict, Refusal> {
        if head.method != Verb::Get {
            // Clients that try Streamable HTTP first take this for the word to fall back.
            return Err(Refusal::method_not_allowed(ALLOW_GET));
        }
        check_named(&Named::of(head))?;
        head.admit_expectation()?;
        head.accept.stream()?;
        Ok(Verdict::Carry(Request::bodiless(head, cors, SessionField::Absent, Wire::HttpSse)))
    }

    /// What a head on the path of messages asks for. Its session is in the query.
    pub(super) fn judge_messages(
        &mut self,
        conn: ConnSlot,
        head: &Head<'_>,
        cors: Cors<'_>,
        query: &str,
    ) -> Result<Verdict, Refusal> {
        if head.method != Verb::Post {
            return Err(Refusal::method_not_allowed(ALLOW_POST));
        }
        let session = SessionField::parse(session_of_query(query).map(str::as_bytes));
        if let SessionField::Absent = session {
            return Err(Refusal::query_missing());
        }
        if let Some(shard) = self.home_of(session) {
            return Ok(Verdict::Move(shard));
        }
        let session = self.own_session(conn, self.session_by(Wire::HttpSse, session));
        let admitted = head.admit_json().and_then(|()| check_named(&Named::of(head)));
        let request = admitted.and_then(|()| self.with_body(head, cors, session, Named::Absent));
        let mut request = request.map_err(|refusal| self.mask(session, refusal))?;
        request.wire = Wire::HttpSse;
        Ok(Verdict::Post(request, head.expect))
    }

    /// The session, if it is one of that transport.
    pub(super) fn session_by(&self, wire: Wire, field: SessionField) -> SessionField {
        let SessionField::Id(id) = field else { return field };
        let Some(session) = self.find_session(&id) else { return field };
        match (wire, self.sessions[session].carrier) {
            (Wire::Streamable, None) | (Wire::HttpSse, Some(_)) => field,
            (Wire::Streamable, Some(_)) | (Wire::HttpSse, None) => SessionField::Unknown,
        }
    }

    /// Begins a session and the stream that carries it, or returns why not.
    pub(super) fn open_carrier(
        &mut self,
        conn: ConnSlot,
        request: &Request,
        now: Now,
    ) -> Result<(), Refusal> {
        if self.draining() {
            return Err(Refusal::draining());
        }
        self.check_memory()?;
        let holder = self.enter_session(conn, now)?;
        let session = self
            .begin_session(Revision::NEWEST_WITH_SESSIONS, ClientFeatures::default(), holder, now)
            .ok_or_else(Refusal::too_many_sessions)?;
        self.sessions[session].phase = Phase::Connected;
        if let Err(refusal) = self.check_streams(session, conn) {
            self.end_session(session, SessionEnd::InitializeFailed, now);
            return Err(refusal);
        }
        self.counters.carriers += 1;
        self.sessions[session].carrier = Some(conn);
        self.attached.carriers += 1;
        self.enter_stream(session);
        self.queue_stream_head(conn, &request.reply, None, now);
        self.conns[conn].state = State::Carrying(session);
        let id = self.session_id(session).encode();
        self.queue_event(conn, endpoint_event(&id), now);
        self.arm_conn(conn);
        Ok(())
    }
}

/// Before 2026-07-28 there is no other revision that could not be spoken here.
fn check_named(named: &Named) -> Result<(), Refusal> {
    match named {
        Named::Absent | Named::WithSessions(_) => Ok(()),
        Named::Stateless(_) | Named::Unknown(_) => Err(Refusal::unsupported_revision()),
    }
}

/// The value of `sessionId`, which must be there once: of two, a proxy might take the other. Ids need no escapes, so none is
/// undone.
fn session_of_query(query: &str) -> Option<&str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("sessionId="));
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// The first event: where to post to. Relative, so that it holds behind whatever name clients know.
fn endpoint_event(id: &[u8]) -> Bytes {
    [b"event: endpoint\ndata: ", MESSAGES_PATH.as_bytes(), b"?sessionId=", id, b"\n\n"].concat().into()
}

// --- Messages in --------------------------------------------------------------------------------

impl Shard {
    /// Acts on a body whose session is carried.
    pub(super) fn dispatch_carried(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        body: &Bytes,
        parsed: Result<Body<'_>, EnvelopeError<'_>>,
        now: Now,
    ) {
        if let Err(refused) = self.accept_carried(conn, request, body, parsed, now) {
            self.refuse_post(conn, request, refused, now);
        }
    }

    fn accept_carried(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        body: &Bytes,
        parsed: Result<Body<'_>, EnvelopeError<'_>>,
        now: Now,
    ) -> Result<(), Refused> {
        let session = self.require_session(request.session)?;
        let era = Era::of(&request.named, &parsed);
        let message = match parsed {
            Ok(Body::Single(message)) => message,
            Ok(Body::Batch(_)) => return Err(Refusal::one_message_per_post().into()),
            Err(error) => return Err(self.refused_envelope(request, &error)),
        };
        if era == Era::Stateless {
            return Err(Refusal::unsupported_revision().into());
        }
        if let Parsed::Request { id, method, params } = &message
            && method == "initialize"
        {
            let id = body.slice_ref(id.as_bytes());
            return self.initialize_carried(conn, session, request, id, *params, body, now);
        }
        if self.sessions[session].phase < Phase::Handshake {
            return Err(Refusal::initialize_first().into());
        }
        self.touch_session(session, now);
        self.reply_empty(conn, &request.reply, Status::Accepted, now);
        match message {
            Parsed::Request { .. } => {
                let incoming = Incoming::of(body, message).expect("a request");
                let post = self.begin_carried_post(session, request, PostKind::Single);
                self.begin_call(post, incoming, now);
                self.settle_post(post, now);
            }
            Parsed::Notification { method, params } => self.notified(session, body, method, params, now),
            Parsed::Response { id, outcome } => self.answered(session, body, id, outcome),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "what a request is made of")]
    fn initialize_carried(
        &mut self,
        conn: ConnSlot,
        session: SessionSlot,
        request: &mut Request,
        id: Bytes,
        params: Option<&RawValue>,
        body: &Bytes,
        now: Now,
    ) -> Result<(), Refused> {
        if self.sessions[session].phase != Phase::Connected {
            return Err(Refusal::already_initialized().into());
        }
        let wanted = InitializeParams::parse(params)
            .map_err(|error| Refused::Rpc(Status::BadRequest, Some(id.clone()), error))?;
        let entry = &mut self.sessions[session];
        entry.revision = Revision::with_sessions_from_date(&wanted.protocol_version)
            .unwrap_or(Revision::NEWEST_WITH_SESSIONS);
        entry.client = asks::features(&wanted.capabilities);
        entry.phase = Phase::Initializing;
        self.reply_empty(conn, &request.reply, Status::Accepted, now);
        let post = self.begin_carried_post(session, request, PostKind::Initialize);
        self.begin_call(post, Incoming::of_initialize(body, id, params), now);
        self.settle_post(post, now);
        Ok(())
    }
}

// --- Messages out -------------------------------------------------------------------------------

impl Shard {
    /// A call's response. Once that of `initialize` is out the handshake can go on.
    pub(super) fn respond_carried(&mut self, post: PostSlot, response: Message, now: Now) {
        let (session, kind) = (self.posts[post].session, self.posts[post].kind);
        let entry = &mut self.sessions[session];
        if kind == PostKind::Initialize && entry.phase == Phase::Initializing {
            entry.phase = Phase::Handshake;
        }
        self.carry(session, response, now);
    }

    /// Writes a message to the carrier, or leaves it in the session's queue until there is room.
    pub(super) fn carry(&mut self, session: SessionSlot, message: Message, now: Now) -> Queued {
        let Some(conn) = self.sessions[session].carrier else {
            self.counters.messages_dropped += 1;
            return Queued::Refused;
        };
        if self.sessions[session].queue.is_none() && self.conns[conn].output_bytes() < PULL_BELOW_BYTES {
            self.write_carried(conn, message, now);
            return Queued::Waiting;
        }
        let queued = self.queue_carried(session, message);
        if self.is_overfull(session, conn, now) {
            self.cut_clogged(conn);
            return Queued::Refused;
        }
        queued
    }

    fn queue_carried(&mut self, session: SessionSlot, message: Message) -> Queued {
        let queued = match message.class {
            Class::Response => {
                let bytes = message.payload.len();
                self.keep(session, bytes);
                let dropped = self.queue_mut(session).push_owed(message);
                self.recount_carried(session, bytes);
                if dropped == 0 { Queued::Waiting } else { Queued::Displaced(dropped) }
            }
            Class::Request(id) => {
                let queued = self.queue_mut(session).push(message);
                if queued == Queued::Refused {
                    self.ask_dropped(session, id);
                }
                queued
            }
            Class::Signal(_) | Class::Progress | Class::Log | Class::Other => {
                self.queue_mut(session).push(message)
            }
        };
        match queued {
            Queued::Waiting => {}
            Queued::Merged => self.counters.messages_merged += 1,
            Queued::Displaced(dropped) => self.counters.messages_dropped += dropped as u64,
            Queued::Refused => self.counters.messages_dropped += 1,
        }
        queued
    }

    /// Whether more waits than may: little behind a connection that takes nothing, much behind one that does.
    fn is_overfull(&self, session: SessionSlot, conn: ConnSlot, now: Now) -> bool {
        let Some(queue) = &self.sessions[session].queue else { return false };
        let is_stalled = now.ms.saturating_sub(self.conns[conn].progress_ms) >= BURST_MS;
        let bytes_max = if is_stalled { self.config.write_buffer_bytes } else { CARRIED_BYTES_MAX };
        queue.len() > CARRIED_MESSAGES_MAX || (queue.len() > 1 && queue.bytes() > bytes_max)
    }

    /// Writes what waits, as far as the connection has room.
    pub(super) fn pump_carrier(&mut self, session: SessionSlot, now: Now) {
        while let Some(conn) = self.sessions[session].carrier
            && self.conns[conn].output_bytes() < PULL_BELOW_BYTES
            && let Some(message) = self.pop_carried(session)
        {
            self.write_carried(conn, message, now);
        }
    }

    fn pop_carried(&mut self, session: SessionSlot) -> Option<Message> {
        let queue = self.sessions[session].queue.as_mut()?;
        let message = queue.pop()?;
        if queue.is_empty() {
            self.sessions[session].queue = None;
        }
        if message.class == Class::Response {
            let bytes = message.payload.len();
            self.let_go(session, bytes);
            self.recount_carried(session, bytes);
        }
        Some(message)
    }

    /// A response of that size joined the queue, or left it.
    fn recount_carried(&mut self, session: SessionSlot, bytes: usize) {
        if large(bytes) == 0 {
            return;
        }
        let owed_bytes = self.sessions[session].queue.as_ref().map_or(0, |queue| queue.large_owed_bytes());
        let owed = self.owed(session, owed_bytes);
        if let Some(queue) = &mut self.sessions[session].queue {
            queue.owed = owed;
        }
    }

    fn write_carried(&mut self, conn: ConnSlot, message: Message, now: Now) {
        self.counters.events += 1;
        let (is_response, bytes) = (message.class == Class::Response, message.payload.len());
        let (before, after) = sse::event(self.conns[conn].transfer, None, bytes);
        self.queue_frame(
            conn,
            [Piece::Inline(before), Piece::Shared(message.payload), Piece::Static(after)],
            now,
        );
        if is_response {
            self.count_unread(conn, bytes);
        }
    }
}

// --- Ends ---------------------------------------------------------------------------------------

impl Shard {
    /// The stream is gone, or is about to be: nobody reaches the session any more, and the next tick ends it.
    pub(super) fn sever(&mut self, session: SessionSlot) {
        self.release_carrier(session);
        let entry = &mut self.sessions[session];
        entry.phase = if entry.phase == Phase::Connected { Phase::Unmet } else { Phase::Severed };
        let owed_bytes = entry.queue.take().map_or(0, |queue| queue.owed_bytes());
        self.let_go(session, owed_bytes);
        let timer = self.sessions[session].timer;
        let timer = self.arm_no_later(timer, self.ticked_ms, Deadline::Session(session));
        self.sessions[session].timer = Some(timer);
    }

    /// The session ends: its stream does, too, once everything is written.
    pub(super) fn end_carrier(&mut self, session: SessionSlot, end: SessionEnd, now: Now) {
        let Some(conn) = self.sessions[session].carrier else { return };
        while let Some(message) = self.pop_carried(session) {
            self.write_carried(conn, message, now);
        }
        self.release_carrier(session);
        if end == SessionEnd::Stopped {
            let retry_ms = self.drained_retry_ms();
            let retry = sse::retry(self.conns[conn].transfer, retry_ms);
            self.queue_frame(conn, [Piece::Inline(retry)], now);
        }
        let afterwards = if end == SessionEnd::Stopped { Afterwards::Close } else { Afterwards::AsAgreed };
        self.end_event_stream(conn, afterwards, now);
    }

    /// The server stops: a session goes once none of its calls is running, since their answers have no other way.
    pub(super) fn drain_carrier(&mut self, session: SessionSlot, now: Now) {
        if self.is_carried_and_idle(session) {
            self.counters.streams_drained += 1;
            self.end_session(session, SessionEnd::Stopped, now);
        }
    }

    pub(super) fn is_carried_and_idle(&self, session: SessionSlot) -> bool {
        let entry = &self.sessions[session];
        entry.carrier.is_some() && entry.calls_in_flight == 0
    }

    /// Session and connection are each other's no longer.
    fn release_carrier(&mut self, session: SessionSlot) {
        if self.sessions[session].carrier.take().is_some() {
            self.attached.carriers -= 1;
            self.leave_stream(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_found_wherever_it_stands_in_the_query() {
        assert_eq!(session_of_query("sessionId=a"), Some("a"));
        assert_eq!(session_of_query("x=1&sessionId=a&y"), Some("a"));
        assert_eq!(session_of_query("sessionId="), Some(""));
        for absent in ["", "sessionid=a", "xsessionId=a", "a=sessionId=b", "sessionId"] {
            assert_eq!(session_of_query(absent), None, "{absent}");
        }
        for ambiguous in ["sessionId=a&sessionId=b", "sessionId=a&x&sessionId=a"] {
            assert_eq!(session_of_query(ambiguous), None, "{ambiguous}");
        }
    }
}
