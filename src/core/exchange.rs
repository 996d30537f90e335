//! Exchanges: requests without a session (2026-07-28), from the body to the end of the reply.
//!
//! An exchange belongs to nothing but its connection: whatever ends that cancels it. Owns the form of its reply as
//! [`calls`](super::calls) does for a POST of a session: JSON if the response is the first thing there is to say, else a
//! stream, without event ids, priming or log. An exchange that a backend answers with a subscription is a
//! [listen stream](super::listen) from then on; it keeps its entry, and so the key that the backend knows.
//!
//! Invariants: an exchange and its connection name each other; its status is decided before any byte of its reply is queued;
//! the backend hears of its end unless it was the one to end it. At most 136 bytes while it lasts.

use super::{
    calls::{id_of, method_of, request_timed_out},
    config::{ResponseMode, StatelessHome},
    conn::{Afterwards, State},
    era::{self, Claims, Fault, Named},
    http::{Content, Forms, Refusal, ReplyHead, Status, Version},
    jsonrpc::{self, Body, EnvelopeError, Message, RpcError},
    ledger::Account,
    listen::Listen,
    memory::Charge,
    quotas::Arrival,
    request::{ReadRequest, ReplyFacts},
    seam::*,
    shard::{Deadline, Shard},
    sse,
    table::{ConnSlot, ExchangeSlot, Generational, Slot as _},
    wheel::TimerId,
};
use bytes::Bytes;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

#[derive(Debug)]
pub(super) struct Exchange {
    generation: Generation,
    pub(super) conn: ConnSlot,
    purpose: Purpose,
    log_level: Option<LogLevel>,
    /// As the client wrote it.
    pub(super) id: Bytes,
    /// When it has taken too long. A listen stream never has.
    late_ms: u64,
    pub(super) timer: Option<TimerId>,
    pub(super) phase: Phase,
    /// What a listen stream is counted in.
    account: Option<Account>,
    /// The body, as long as the backend may hold on to it.
    pub(super) charge: Option<Charge>,
}

const _: () = assert!(size_of::<Exchange>() <= 136, "a listen stream costs no more than a session with one");

/// What the reply is at.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its form is not decided: what it needs to know of the request.
    Undecided(ReplyFacts, Forms),
    /// An event stream that ends with the response.
    Streaming,
    /// An event stream that lasts.
    Listening(Listen),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Answer,
    /// `subscriptions/listen`: its acknowledgement is the first thing that is said.
    Listen,
}

impl Generational for Exchange {
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Exchange {
    pub(super) fn is_stream(&self) -> bool {
        !matches!(self.phase, Phase::Undecided(..))
    }

    /// Whether interim responses may come before its reply (RFC 9110 section 15.2: never in HTTP/1.0).
    pub(super) fn takes_interim(&self) -> bool {
        matches!(&self.phase, Phase::Undecided(facts, _) if facts.version == Version::Http11)
    }

    /// Whether it goes on until somebody ends it.
    pub(super) fn lasts(&self) -> bool {
        matches!(self.phase, Phase::Listening(_))
    }

    /// Whether a subscription may answer it.
    pub(super) fn can_listen(&self) -> bool {
        self.purpose == Purpose::Listen
    }

    /// Whether it was asked for before that generation was issued.
    pub(super) fn is_older_than(&self, generation: Generation) -> bool {
        self.generation.0 < generation.0
    }
}

/// A POST without a session whose body is whole.
pub(super) struct Asked<'a> {
    pub(super) reply: &'a ReplyFacts,
    pub(super) forms: Forms,
    pub(super) named: &'a Named,
    pub(super) body: &'a Bytes,
    /// What the body is counted as.
    pub(super) charge: Option<Charge>,
}

/// What a POST without a session leads to.
enum Verdict<'a> {
    /// A notification: nothing listens to any.
    Taken,
    /// A request that another shard works on, because its state or what serves its principal is there.
    Elsewhere(ShardId),
    Request(Message<'a>, Claims<'a>),
}

// --- Messages in --------------------------------------------------------------------------------

impl Shard {
    /// Acts on a body that is under the rules of 2026-07-28.
    pub(super) fn dispatch_stateless(
        &mut self,
        conn: ConnSlot,
        asked: Asked<'_>,
        parsed: Result<Body<'_>, EnvelopeError<'_>>,
        now: Now,
    ) {
        let id = id_to_echo(&parsed);
        match self.judge_body(conn, &asked, parsed) {
            Ok(Verdict::Taken) => self.reply_empty(conn, asked.reply, Status::Accepted, now),
            Ok(Verdict::Elsewhere(shard)) => {
                self.move_conn(conn, shard, Some(Box::new(asked.into_owned())), now)
            }
            Ok(Verdict::Request(message, claims)) => self.begin_exchange(conn, asked, message, claims, now),
            Err((status, error)) => {
                self.reply_error(conn, asked.reply, status, id.map(str::as_bytes), &error, now);
            }
        }
    }

    /// Acts on a request that another shard has read.
    pub(super) fn dispatch_read(&mut self, conn: ConnSlot, request: ReadRequest, now: Now) {
        let ReadRequest { reply, forms, named, body, charge } = request;
        let refusal = match self.let_read_in(conn, named.authorization(), now) {
            Ok(Arrival::Within) => None,
            Ok(Arrival::Beyond) => Some(self.refuse_arrival()),
            Err(denied) => Some(denied),
        };
        if let Some(refusal) = refusal {
            return self.refuse(conn, &reply, &refusal, now);
        }
        let charge = charge.map(|charge| self.receive_charge(charge));
        let asked = Asked { reply: &reply, forms, named: &named, body: &body, charge };
        self.dispatch_stateless(conn, asked, jsonrpc::parse(&body), now);
    }

    fn judge_body<'a>(
        &self,
        conn: ConnSlot,
        asked: &Asked<'a>,
        parsed: Result<Body<'a>, EnvelopeError<'a>>,
    ) -> Result<Verdict<'a>, Fault> {
        let message = match parsed {
            Ok(Body::Single(message)) => message,
            Ok(Body::Batch(_)) => return Err(era::not_a_request("this revision has no batches")),
            Err(envelope) => return Err((Status::BadRequest, envelope.error)),
        };
        match &message {
            Message::Request { method, params, .. } => {
                let (params, claims) = (*params, era::admit(asked.named, method, *params)?);
                if method == "subscriptions/listen" && asked.forms == Forms::JsonOnly {
                    let fault = "Accept must allow text/event-stream for subscriptions/listen";
                    return Err((Status::NotAcceptable, RpcError::invalid_request(fault)));
                }
                let shard = era::shard_of_state(params).filter(|shard| shard.0 < self.config.shards);
                match shard.unwrap_or_else(|| self.home_of_exchange(conn)) {
                    home if home == self.id => Ok(Verdict::Request(message, claims)),
                    home => Ok(Verdict::Elsewhere(home)),
                }
            }
            Message::Notification { params, .. } => {
                era::admit_notification(asked.named, *params).map(|()| Verdict::Taken)
            }
            Message::Response { .. } => {
                Err(era::not_a_request("this revision has no requests of the server to respond to"))
            }
        }
    }

    /// The shard that works on what this connection asks without a session. The same on every shard, so that no request
    /// moves twice.
    fn home_of_exchange(&self, conn: ConnSlot) -> ShardId {
        match self.config.stateless_home {
            StatelessHome::Anywhere => self.id,
            StatelessHome::OfPrincipal => {
                let mut hasher = DefaultHasher::new();
                self.principal_name_of_conn(conn).hash(&mut hasher);
                let shard = hasher.finish() % u64::from(self.config.shards);
                ShardId(u16::try_from(shard).expect("a remainder of a u16"))
            }
        }
    }

    fn begin_exchange(
        &mut self,
        conn: ConnSlot,
        asked: Asked<'_>,
        message: Message<'_>,
        claims: Claims<'_>,
        now: Now,
    ) {
        let Message::Request { id, method, params } = message else { unreachable!("seen by the caller") };
        let purpose = if method == "subscriptions/listen" { Purpose::Listen } else { Purpose::Answer };
        let account = match self.enter_exchange(conn, purpose) {
            Ok(account) => account,
            Err(refusal) => {
                self.counters.exchanges_refused += 1;
                return self.refuse(conn, asked.reply, &refusal, now);
            }
        };
        let body = asked.body;
        let generation = self.generations.issue();
        let exchange = self.exchanges.insert(Exchange {
            generation,
            conn,
            purpose,
            log_level: claims.log_level,
            id: id_of(body, id),
            late_ms: now.ms + self.config.request_timeout_ms,
            timer: None,
            phase: Phase::Undecided(asked.reply.clone(), asked.forms),
            account,
            charge: asked.charge,
        });
        self.conns[conn].state = State::Exchanging(exchange);
        self.counters.exchanges += 1;
        self.counters.calls += 1;
        self.ask(Ask::Call(Call {
            key: CallKey { slot: exchange.number(), generation },
            session: None,
            method: method_of(body, method),
            params: params.map(|params| body.slice_ref(params.get().as_bytes())),
            progress_token: claims.progress_token.map(|token| body.slice_ref(token.get().as_bytes())),
            revision: Revision::V2026_07_28,
            client: claims.client,
            param_fields: era::param_fields(asked.named),
            principal: self.principal_name_of_conn(conn),
        }));
        let wait_ms = self.config.request_timeout_ms;
        let wait_ms =
            if self.may_become_stream(exchange) { wait_ms.min(self.config.sse_after_ms) } else { wait_ms };
        self.arm_exchange(exchange, now.ms + wait_ms);
    }

    /// Counts an exchange, if there can be one more at present.
    fn enter_exchange(&mut self, conn: ConnSlot, purpose: Purpose) -> Result<Option<Account>, Refusal> {
        if self.draining() {
            return Err(Refusal::draining());
        }
        let in_flight = self.exchanges.len() - self.attached.listens;
        if in_flight >= self.config.exchanges_max {
            return Err(Refusal::too_many_exchanges());
        }
        match purpose {
            Purpose::Answer => Ok(None),
            Purpose::Listen => self.enter_listen(conn).map(Some),
        }
    }

    pub(super) fn find_exchange(&self, key: CallKey) -> Option<ExchangeSlot> {
        self.exchanges.find(key.slot, key.generation)
    }

    pub(super) fn exchange_key(&self, exchange: ExchangeSlot) -> CallKey {
        CallKey { slot: exchange.number(), generation: self.exchanges[exchange].generation }
    }
}

impl Asked<'_> {
    fn into_owned(self) -> ReadRequest {
        ReadRequest {
            reply: self.reply.clone(),
            forms: self.forms,
            named: self.named.clone(),
            body: self.body.clone(),
            charge: self.charge.map(Charge::depart),
        }
    }
}

/// The id to answer with, if the body has one of the client's.
fn id_to_echo<'a>(parsed: &Result<Body<'a>, EnvelopeError<'a>>) -> Option<&'a str> {
    match parsed {
        Ok(Body::Single(Message::Request { id, .. })) => Some(id),
        Ok(_) => None,
        Err(error) => error.id,
    }
}

// --- What the backend says ----------------------------------------------------------------------

impl Shard {
    /// The backend says something about an exchange. What only sessions have it cannot say.
    pub(super) fn tell_exchange(&mut self, exchange: ExchangeSlot, tell: Tell, now: Now) {
        match tell {
            Tell::Respond(_, answer) => {
                let answer = self.bounded(answer);
                let entry = &self.exchanges[exchange];
                let own_kib = entry.charge.as_ref().map_or(0, Charge::kib);
                let answer = self.admit_answer(entry.conn, own_kib, answer);
                self.answer_exchange(exchange, answer, now);
            }
            Tell::Refuse(_) => self.refuse_exchange(exchange, &Refusal::too_many_exchanges(), now),
            Tell::Notify(_, notification) => {
                if self.is_bounded(notification.json.len()) {
                    self.notify_exchange(exchange, &notification, now);
                }
            }
            Tell::Listen(_, listening) => self.listen_exchange(exchange, listening, now),
            Tell::Subscribe(..) | Tell::Unsubscribe(..) => {
                let error = RpcError::method_not_found("resources/subscribe");
                self.answer_exchange(exchange, Err(error), now);
            }
            // Its client could not come back for the rest.
            Tell::CloseStream(..) => {}
            Tell::EndSession(_)
            | Tell::Announce(..)
            | Tell::Broadcast(_)
            | Tell::Request(_)
            | Tell::CloseListeners(..) => unreachable!("these name no call"),
        }
    }

    /// A notification about a request, or for one listen stream: what is about anything else has no place here.
    fn notify_exchange(&mut self, exchange: ExchangeSlot, notification: &Notification, now: Now) {
        let entry = &self.exchanges[exchange];
        if let Phase::Listening(_) = entry.phase {
            return self.notify_listen(exchange, notification, now);
        }
        let is_wanted = match &notification.kind {
            NotificationKind::Log(level) => entry.log_level.is_some_and(|least| *level >= least),
            NotificationKind::Progress | NotificationKind::Other => true,
            NotificationKind::ToolsListChanged
            | NotificationKind::PromptsListChanged
            | NotificationKind::ResourcesListChanged
            | NotificationKind::ResourceUpdated(_) => false,
        };
        if !is_wanted || entry.purpose == Purpose::Listen {
            self.counters.messages_filtered += 1;
            return;
        }
        if self.may_become_stream(exchange) {
            self.open_exchange_stream(exchange, now);
        }
        if !self.exchanges[exchange].is_stream() {
            self.counters.messages_dropped += 1;
            return;
        }
        let conn = self.exchanges[exchange].conn;
        if self.is_clogged(conn, 0, now) {
            return self.cut_clogged(conn);
        }
        self.queue_event(conn, sse::payload(&notification.json), now);
    }

    /// The response ends the exchange.
    pub(super) fn answer_exchange(
        &mut self,
        exchange: ExchangeSlot,
        answer: Result<Bytes, RpcError>,
        now: Now,
    ) {
        if let Phase::Listening(_) = self.exchanges[exchange].phase {
            return self.close_listen(exchange, answer, now);
        }
        let status = answer.as_ref().map_or_else(era::status_of, |_| Status::Ok);
        if status == Status::Ok && self.must_become_stream(exchange) {
            self.open_exchange_stream(exchange, now);
        }
        let entry = self.remove_exchange(exchange);
        let mut error = Vec::new();
        let parts = match &answer {
            Ok(result) => jsonrpc::result_parts(&entry.id, result),
            Err(why) => {
                jsonrpc::write_error(&mut error, Some(&entry.id), why);
                [&error[..], b"", b"", b"", b""]
            }
        };
        match &entry.phase {
            Phase::Undecided(facts, _) => self.reply_with(entry.conn, facts, status, &parts, now),
            Phase::Streaming | Phase::Listening(_) => {
                self.queue_event(entry.conn, sse::payload(&parts.concat()), now);
                self.end_event_stream(entry.conn, Afterwards::AsAgreed, now);
            }
        }
    }

    /// There is no room for it, or no time: 503 while the form of the reply is open, else an error.
    pub(super) fn refuse_exchange(&mut self, exchange: ExchangeSlot, refusal: &Refusal, now: Now) {
        self.counters.exchanges_refused += 1;
        if self.exchanges[exchange].is_stream() {
            let message = refusal.message.clone();
            let error = RpcError { code: refusal.code, message, data: None };
            return self.answer_exchange(exchange, Err(error), now);
        }
        let entry = self.remove_exchange(exchange);
        if let Phase::Undecided(facts, _) = &entry.phase {
            self.refuse(entry.conn, facts, refusal, now);
        }
    }

    fn reply_with(&mut self, conn: ConnSlot, facts: &ReplyFacts, status: Status, json: &[&[u8]], now: Now) {
        let date = self.date;
        let length: usize = json.iter().map(|part| part.len()).sum();
        let head = ReplyHead::new(status, Content::Json(length as u64), facts.exchange(&date));
        self.reply(conn, &head, json, now);
    }

    /// Whether an undecided reply may become a stream.
    fn may_become_stream(&self, exchange: ExchangeSlot) -> bool {
        let entry = &self.exchanges[exchange];
        match (&entry.phase, self.config.response_mode) {
            (Phase::Undecided(..), _) if entry.purpose == Purpose::Listen => true,
            (Phase::Undecided(_, Forms::SseOnly), _) => true,
            (Phase::Undecided(_, Forms::Both), mode) => mode != ResponseMode::Json,
            (Phase::Undecided(_, Forms::JsonOnly) | Phase::Streaming | Phase::Listening(_), _) => false,
        }
    }

    /// Whether a reply of nothing but a response has to be a stream, too.
    fn must_become_stream(&self, exchange: ExchangeSlot) -> bool {
        let is_sse_only = matches!(self.exchanges[exchange].phase, Phase::Undecided(_, Forms::SseOnly));
        self.may_become_stream(exchange) && (is_sse_only || self.config.response_mode == ResponseMode::Sse)
    }

    /// Decides that the reply is a stream.
    pub(super) fn open_exchange_stream(&mut self, exchange: ExchangeSlot, now: Now) {
        let entry = &mut self.exchanges[exchange];
        let conn = entry.conn;
        if let Phase::Undecided(facts, _) = std::mem::replace(&mut entry.phase, Phase::Streaming) {
            self.attached.exchanges += 1;
            self.queue_stream_head(conn, &facts, None, now);
            self.arm_conn(conn);
        }
    }

    /// Queues one event without an id.
    pub(super) fn queue_event(&mut self, conn: ConnSlot, payload: Bytes, now: Now) {
        self.counters.events += 1;
        let (before, after) = sse::event(self.conns[conn].transfer, None, payload.len());
        let bytes = payload.len();
        self.queue_frame(conn, [Piece::Inline(before), Piece::Owned(payload), Piece::Static(after)], now);
        self.count_unread(conn, bytes);
    }

    /// Ends an event stream cleanly: everything queued and the last chunk are written first.
    pub(super) fn end_event_stream(&mut self, conn: ConnSlot, afterwards: Afterwards, now: Now) {
        let last = sse::last_chunk(self.conns[conn].transfer);
        self.queue_frame(conn, [Piece::Static(last)], now);
        self.finish_reply(conn, afterwards, now);
    }
}

// --- Ends ---------------------------------------------------------------------------------------

impl Shard {
    /// The connection is ending: nobody is there for an answer.
    pub(super) fn abandon_exchange(&mut self, exchange: ExchangeSlot) {
        let key = self.exchange_key(exchange);
        let entry = self.remove_exchange(exchange);
        if !matches!(entry.phase, Phase::Listening(_)) {
            self.counters.calls_cancelled += 1;
        }
        self.ask(Ask::Cancel(key));
    }

    /// The peer will send nothing more. If it is gone altogether it answers the next bytes with a reset, and those after
    /// them fail: so it gets some at once, and more every second. If not, it gets its reply. One that may only get JSON is given
    /// interim responses; one of HTTP/1.0 cannot be given anything, and is taken for gone.
    pub(super) fn exchange_half_closed(&mut self, exchange: ExchangeSlot, now: Now) {
        if self.may_become_stream(exchange) {
            return self.open_exchange_stream(exchange, now);
        }
        let entry = &self.exchanges[exchange];
        match entry.is_stream() || entry.takes_interim() {
            true => self.probe_reader(entry.conn),
            // There is nothing to ask with.
            false => self.close_conn(entry.conn, Ending::Gone),
        }
    }

    /// Nothing came for a while: the reply becomes a stream, or it has taken too long.
    pub(super) fn exchange_expired(&mut self, exchange: ExchangeSlot, now: Now) {
        self.exchanges[exchange].timer = None;
        let late_ms = self.exchanges[exchange].late_ms;
        if now.ms < late_ms {
            if self.may_become_stream(exchange) {
                self.open_exchange_stream(exchange, now);
            }
            return self.arm_exchange(exchange, late_ms);
        }
        self.counters.calls_timed_out += 1;
        self.ask(Ask::Cancel(self.exchange_key(exchange)));
        self.answer_exchange(exchange, Err(request_timed_out()), now);
    }

    /// The token of a stream is good no longer.
    pub(super) fn end_unauthorized(&mut self, exchange: ExchangeSlot, now: Now) {
        if let Phase::Listening(_) = self.exchanges[exchange].phase {
            return self.end_listen(exchange, now);
        }
        self.ask(Ask::Cancel(self.exchange_key(exchange)));
        let message = "the token this request came with is good no longer".into();
        self.answer_exchange(exchange, Err(RpcError { message, ..RpcError::internal_error() }), now);
    }

    /// The server stops, and does not wait for it any longer.
    pub(super) fn stop_exchange(&mut self, exchange: ExchangeSlot, now: Now) {
        self.ask(Ask::Cancel(self.exchange_key(exchange)));
        self.refuse_exchange(exchange, &Refusal::draining(), now);
    }

    /// Takes the entry out, with everything that hangs on it.
    pub(super) fn remove_exchange(&mut self, exchange: ExchangeSlot) -> Exchange {
        let entry = self.exchanges.remove(exchange);
        self.leave_listen(entry.account);
        if let Some(timer) = entry.timer {
            self.wheel.cancel(timer);
        }
        match entry.phase {
            Phase::Undecided(..) => {}
            Phase::Streaming => self.attached.exchanges -= 1,
            Phase::Listening(_) => self.forget_listen(exchange),
        }
        entry
    }

    fn arm_exchange(&mut self, exchange: ExchangeSlot, deadline_ms: u64) {
        let timer = self.wheel.arm(deadline_ms, Deadline::Exchange(exchange));
        self.exchanges[exchange].timer = Some(timer);
    }
}
