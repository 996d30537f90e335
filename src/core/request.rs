//! From a request's head to what it wants.
//!
//! Owns the order of the checks and what has to be remembered of a head while its body arrives and its reply
//! is undecided. The order: syntax, host and origin, OPTIONS, path, token, method, era as far as the head knows it, session
//! (which may move the connection), revision, what the method accepts, body. A session that is no more is answered with its 404 before any other
//! fault of the request, except that `initialize` may carry a dead id.

use super::{
    conn::{State, Step},
    era::Named,
    http::{self, Content, DateText, Status},
    http::{
        Cors, Decoder, Expect, Forms, Framing, Head, HeadLimits, Method, Parsed, Persistence, Progress,
        Refusal, ReplyHead, Version, head,
        policy::Place,
        refusal::{ALLOW_ENDPOINT, ALLOW_POST},
        reply::CONTINUE_100,
    },
    ids::{EventId, SessionId},
    memory::{Charge, TravellingCharge},
    quotas::Arrival,
    seam::*,
    session::SessionEnd,
    shard::Shard,
    table::{ConnSlot, SessionSlot},
};
use bytes::{Buf as _, Bytes, BytesMut};

/// What replies to a request need to know of it.
#[derive(Clone, Debug)]
pub(super) struct ReplyFacts {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) persistence: Persistence,
    /// The allowed origin, to be named in the reply.
    pub(super) origin: Option<Box<[u8]>>,
}

impl Default for ReplyFacts {
    /// For a request of which nothing could be read.
    fn default() -> Self {
        ReplyFacts {
            method: Method::Other,
            version: Version::Http11,
            persistence: Persistence::Close,
            origin: None,
        }
    }
}

impl ReplyFacts {
    pub(super) fn of(head: &Head<'_>, cors: Cors<'_>) -> Self {
        let has_unread_body = head.framing != Framing::None && head.method != Method::Post;
        ReplyFacts {
            method: head.method,
            version: head.version,
            persistence: if has_unread_body { Persistence::Close } else { head.persistence },
            origin: cors.origin().map(Into::into),
        }
    }

    pub(super) fn exchange<'a>(&'a self, date: &'a DateText) -> http::Exchange<'a> {
        http::Exchange {
            version: self.version,
            persistence: self.persistence,
            cors: self.origin.as_deref(),
            date,
        }
    }
}

/// By which transport a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE (2024-11-05).
    HttpSse,
}

/// `Mcp-Session-Id` of a request, or what the query says instead.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionField {
    Absent,
    /// Not the form of any id of ours.
    Unknown,
    Id(SessionId),
}

impl SessionField {
    pub(super) fn parse(field: Option<&[u8]>) -> Self {
        match field {
            None => SessionField::Absent,
            Some(text) => SessionId::parse(text).map_or(SessionField::Unknown, SessionField::Id),
        }
    }
}

/// `Last-Event-ID` of a GET.
#[derive(Clone, Copy, Debug)]
pub(super) enum CursorField {
    Absent,
    Malformed,
    Event(EventId),
}

impl CursorField {
    fn parse(field: Option<&[u8]>) -> Self {
        match field {
            None => CursorField::Absent,
            Some(text) => EventId::parse(text).map_or(CursorField::Malformed, CursorField::Event),
        }
    }
}

/// A request whose head was found good.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) reply: ReplyFacts,
    pub(super) session: SessionField,
    pub(super) cursor: CursorField,
    pub(super) forms: Forms,
    pub(super) named: Named,
    pub(super) wire: Wire,
    decoder: Decoder,
    body: BytesMut,
    /// What is counted of the body, if it has one.
    pub(super) charge: Option<Charge>,
}

impl Request {
    /// One without a body.
    pub(super) fn bodiless(head: &Head<'_>, cors: Cors<'_>, session: SessionField, wire: Wire) -> Self {
        Request {
            reply: ReplyFacts::of(head, cors),
            session,
            cursor: CursorField::parse(head.last_event_id),
            forms: Forms::SseOnly,
            named: Named::Absent,
            wire,
            decoder: Decoder::new(Framing::None, 0).expect("nothing is not too much"),
            body: BytesMut::new(),
            charge: None,
        }
    }

    /// Decodes what has arrived of the body; `Some` when it is whole.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, Refusal> {
        Ok(match self.decoder.decode(input, &mut self.body)? {
            Progress::NeedMore => None,
            Progress::Done => Some(std::mem::take(&mut self.body).freeze()),
        })
    }

    /// How much of a body is here that is not whole. What is not decoded yet waits in the input for more of the same body; the
    /// framing among it is none.
    pub(super) fn arrived_bytes(&self, input: &BytesMut) -> usize {
        (self.body.len() + input.len()).min(self.decoder.bytes_max())
    }

    pub(super) fn wanted_bytes(&self, buffered: usize) -> usize {
        self.decoder.wanted_bytes(buffered)
    }
}

/// A request without a session that was read on one shard and is answered by another.
#[derive(Debug)]
pub struct ReadRequest {
    pub(super) reply: ReplyFacts,
    pub(super) forms: Forms,
    pub(super) named: Named,
    pub(super) body: Bytes,
    pub(super) charge: Option<TravellingCharge>,
}

/// What a good head asks for.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The session lives elsewhere: the connection goes there with everything it sent.
    Move(ShardId),
    /// A listener stream, or the rest of some stream.
    Listen(SessionSlot, Request),
    /// The end of a session.
    Delete(SessionSlot, Request),
    /// A session over HTTP+SSE, and its stream.
    Carry(Request),
    /// Messages, in a body.
    Post(Request, Expect),
}

impl Shard {
    /// Reads the head at the start of the input and acts on it.
    pub(super) fn read_head(&mut self, conn: ConnSlot, mut input: Box<BytesMut>, now: Now) -> Step {
        let (head, consumed) = match head::parse(&input, &HeadLimits::default()) {
            Ok(Parsed::Incomplete) => {
                self.keep_input(conn, input);
                self.await_head(conn, now);
                return Step::Wait;
            }
            Ok(Parsed::Complete { head, consumed }) => (head, consumed),
            Err(refusal) => {
                self.refuse(conn, &ReplyFacts::default(), &refusal, now);
                return Step::Wait;
            }
        };
        self.head_arrived(conn);
        self.note_request(conn, head.method, head.target, now);
        let cors = match self.config.policy.check(&head) {
            Ok(cors) => cors,
            Err(refusal) => {
                let facts = ReplyFacts::of(&head, Cors::NotAsked);
                let rest = Rest { framing: head.framing, consumed, input };
                return self.refuse_head(conn, facts, rest, refusal, now);
            }
        };
        if self.is_metadata(head.target) && head.method != Method::Options {
            let facts = ReplyFacts::of(&head, cors);
            if let Err(refusal) = self.answer_metadata(conn, &head, &facts, now) {
                let rest = Rest { framing: head.framing, consumed, input };
                return self.refuse_head(conn, facts, rest, refusal, now);
            }
            input.advance(consumed);
            self.keep_input(conn, input);
            return Step::Wait;
        }
        if head.method == Method::Options
            && (self.config.policy.locate(head.target).is_ok() || self.is_metadata(head.target))
        {
            self.answer_options(conn, &head, cors, now);
            input.advance(consumed);
            self.keep_input(conn, input);
            return Step::Wait;
        }
        match self.judge(conn, &head, cors, now) {
            Ok(Verdict::Move(shard)) => {
                self.keep_input(conn, input);
                self.move_conn(conn, shard, None, now);
                Step::Wait
            }
            Ok(Verdict::Post(mut request, expect)) => {
                input.advance(consumed);
                let progress = self.take_body(conn, &mut request, &mut input);
                self.keep_input(conn, input);
                if let Ok(None) = progress {
                    self.invite_body(conn, &request, expect, now);
                    self.await_body(conn, request, now);
                    return Step::Wait;
                }
                self.conns[conn].state = State::Idle;
                self.body_decoded(conn, &mut request, progress, now)
            }
            Ok(verdict) => {
                input.advance(consumed);
                self.keep_input(conn, input);
                self.follow(conn, verdict, now);
                Step::Again
            }
            Err(refusal) => {
                let facts = ReplyFacts::of(&head, cors);
                let rest = Rest { framing: head.framing, consumed, input };
                self.refuse_head(conn, facts, rest, refusal, now)
            }
        }
    }

    fn judge(
        &mut self,
        conn: ConnSlot,
        head: &Head<'_>,
        cors: Cors<'_>,
        now: Now,
    ) -> Result<Verdict, Refusal> {
        let place = self.config.policy.locate(head.target)?;
        let arrival = self.let_in(conn, head, now)?;
        let verdict = match place {
            Place::Endpoint => self.judge_endpoint(conn, head, cors),
            Place::Sse => Shard::judge_sse(head, cors),
            Place::Messages(query) => self.judge_messages(conn, head, cors, query),
        };
        match arrival {
            Arrival::Within => verdict,
            Arrival::Beyond => self.turn_away(verdict),
        }
    }

    /// A connection too many of its principal ends with this reply, unless another shard is to count it.
    fn turn_away(&mut self, verdict: Result<Verdict, Refusal>) -> Result<Verdict, Refusal> {
        match verdict {
            Ok(Verdict::Move(shard)) => Ok(Verdict::Move(shard)),
            Ok(Verdict::Post(request, _)) => {
                let over = self.refuse_arrival();
                Err(self.mask(request.session, over))
            }
            Ok(Verdict::Listen(..) | Verdict::Delete(..) | Verdict::Carry(_)) => Err(self.refuse_arrival()),
            Err(refusal) => Err(refusal.closing()),
        }
    }

    fn judge_endpoint(
        &mut self,
        conn: ConnSlot,
        head: &Head<'_>,
        cors: Cors<'_>,
    ) -> Result<Verdict, Refusal> {
        match head.method {
            Method::Get | Method::Post | Method::Delete => {}
            Method::Head | Method::Options | Method::Other => {
                return Err(Refusal::method_not_allowed(ALLOW_ENDPOINT));
            }
        }
        let named = Named::of(head);
        if let Named::Stateless(_) = named {
            return self.judge_stateless(head, cors, named);
        }
        let session = SessionField::parse(head.session_id);
        if let Some(shard) = self.home_of(session) {
            return Ok(Verdict::Move(shard));
        }
        let session = self.own_session(conn, self.session_by(Wire::Streamable, session));
        if head.method == Method::Post {
            let post = self.judge_post(head, cors, session, named);
            return post.map_err(|refusal| self.mask(session, refusal));
        }
        let live = self.require_session(session)?;
        if let Named::Unknown(_) = named {
            return Err(Refusal::unsupported_revision());
        }
        head.admit_expectation()?;
        let request = Request::bodiless(head, cors, session, Wire::Streamable);
        if head.method == Method::Delete {
            return Ok(Verdict::Delete(live, request));
        }
        head.accept.stream()?;
        Ok(Verdict::Listen(live, request))
    }

    /// What the head of a request says that has no session, whatever else it names. There are only POSTs.
    fn judge_stateless(&mut self, head: &Head<'_>, cors: Cors<'_>, named: Named) -> Result<Verdict, Refusal> {
        match head.method {
            Method::Post => self.judge_post(head, cors, SessionField::Absent, named),
            _ => Err(Refusal::method_not_allowed(ALLOW_POST)),
        }
    }

    /// Whether a version that is not known is one that is not served depends on the body, which may claim it.
    fn judge_post(
        &mut self,
        head: &Head<'_>,
        cors: Cors<'_>,
        session: SessionField,
        named: Named,
    ) -> Result<Verdict, Refusal> {
        let forms = head.admit_post()?;
        let request = self.with_body(head, cors, session, named)?;
        Ok(Verdict::Post(Request { forms, ..request }, head.expect))
    }

    /// The request of a head whose body is to be read.
    pub(super) fn with_body(
        &mut self,
        head: &Head<'_>,
        cors: Cors<'_>,
        session: SessionField,
        named: Named,
    ) -> Result<Request, Refusal> {
        Ok(Request {
            reply: ReplyFacts::of(head, cors),
            session,
            cursor: CursorField::Absent,
            forms: Forms::JsonOnly,
            named,
            wire: Wire::Streamable,
            decoder: Decoder::new(head.framing, self.config.body_bytes_max as u64)?,
            body: BytesMut::new(),
            charge: Some(self.charge_body(head.framing)?),
        })
    }

    /// The other shard that a session is on, if it is.
    pub(super) fn home_of(&self, session: SessionField) -> Option<ShardId> {
        let SessionField::Id(SessionId { shard, .. }) = session else { return None };
        (shard != self.id && shard.0 < self.config.shards).then_some(shard)
    }

    fn follow(&mut self, conn: ConnSlot, verdict: Verdict, now: Now) {
        match verdict {
            Verdict::Move(_) | Verdict::Post(..) => unreachable!("handled before"),
            Verdict::Listen(session, request) => self.listen(conn, session, &request, now),
            Verdict::Carry(request) => {
                if let Err(refusal) = self.open_carrier(conn, &request, now) {
                    self.refuse(conn, &request.reply, &refusal, now);
                }
            }
            Verdict::Delete(session, request) => {
                self.end_session(session, SessionEnd::Deleted, now);
                self.reply_empty(conn, &request.reply, Status::NoContent, now);
            }
        }
    }

    /// A client that waits for a word before it sends the body gets it.
    fn invite_body(&mut self, conn: ConnSlot, request: &Request, expect: Expect, now: Now) {
        if expect == Expect::Continue && request.body.is_empty() && !self.has_input(conn) {
            self.queue_frame(conn, [Piece::Static(CONTINUE_100)], now);
        }
    }

    fn listen(&mut self, conn: ConnSlot, session: SessionSlot, request: &Request, now: Now) {
        if let Err(refusal) = self.open_listener(conn, request, session, now) {
            self.refuse(conn, &request.reply, &refusal, now);
        }
    }

    /// Leaves the connection, and all it sent, to the shard that is to answer: with the request, if it was read already.
    pub(super) fn move_conn(
        &mut self,
        conn: ConnSlot,
        shard: ShardId,
        request: Option<Box<ReadRequest>>,
        now: Now,
    ) {
        let entry = self.conn_mut(conn);
        entry.state = State::Moving(shard, request);
        entry.progress_ms = now.ms;
        // It is counted where it is answered.
        self.counters.requests -= 1;
        self.unnote_request(conn);
        self.move_when_proven(conn, now);
    }

    // --- Sessions of requests --------------------------------------------------------------------

    /// The live session a request names.
    pub(super) fn require_session(&mut self, session: SessionField) -> Result<SessionSlot, Refusal> {
        let live = match session {
            SessionField::Absent => return Err(Refusal::session_missing()),
            SessionField::Unknown => None,
            SessionField::Id(id) => self.find_session(&id),
        };
        live.ok_or_else(|| {
            self.counters.sessions_unknown += 1;
            Refusal::session_unknown()
        })
    }

    /// The refusal of a request, or the 404 if its session is no more: nothing may hide that from a client.
    pub(super) fn mask(&mut self, session: SessionField, refusal: Refusal) -> Refusal {
        match session {
            SessionField::Absent => refusal,
            SessionField::Unknown | SessionField::Id(_) => match self.require_session(session) {
                Ok(_) => refusal,
                Err(unknown) => Refusal { persistence: refusal.persistence, ..unknown },
            },
        }
    }

    pub(super) fn mask_refusal(&mut self, request: &Request, refusal: Refusal) -> Refusal {
        self.mask(request.session, refusal)
    }

    // --- Replies without content -----------------------------------------------------------------

    pub(super) fn reply_empty(&mut self, conn: ConnSlot, facts: &ReplyFacts, status: Status, now: Now) {
        let date = self.date;
        let head = ReplyHead::new(status, Content::Empty, facts.exchange(&date));
        self.reply(conn, &head, &[], now);
    }

    fn answer_options(&mut self, conn: ConnSlot, head: &Head<'_>, cors: Cors<'_>, now: Now) {
        let (facts, date) = (ReplyFacts::of(head, cors), self.date);
        let reply = ReplyHead::options(head.preflight(), facts.exchange(&date));
        self.reply(conn, &reply, &[], now);
    }

    /// Refuses a request by its head. If its whole body is here it is skipped and the connection goes on; else the end
    /// of the request is unknown or not worth waiting for, and the connection ends with the reply.
    fn refuse_head(
        &mut self,
        conn: ConnSlot,
        mut facts: ReplyFacts,
        rest: Rest,
        refusal: Refusal,
        now: Now,
    ) -> Step {
        let Rest { framing, consumed, mut input } = rest;
        input.advance(consumed);
        let skipped = Decoder::new(framing, self.config.body_bytes_max as u64)
            .and_then(|mut decoder| decoder.skip(&mut input));
        if skipped != Ok(Progress::Done) {
            facts.persistence = Persistence::Close;
        }
        self.keep_input(conn, input);
        self.refuse(conn, &facts, &refusal, now);
        Step::Wait
    }
}

/// What is left of a refused request: its body, as far as it has arrived, and what follows.
struct Rest {
    framing: Framing,
    consumed: usize,
    input: Box<BytesMut>,
}
