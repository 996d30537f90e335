//! The facade of a shard's core: every input the shell can give, every effect it can pull.
//!
//! Owns all tables, the wheel, and what waits to be pulled. What the inputs mean is in the modules beside it:
//! [`conn`](super::conn) and [`request`](super::request) for HTTP, [`calls`](super::calls) for POSTs,
//! [`session`](super::session), [`stream`](super::stream) and [`listener`](super::listener) for what lives longer.
//!
//! Invariants: keys from outside are checked by generation, so a late word of the shell or the backend about something
//! that is no more changes nothing; effects are pulled in the order they arose.

use super::{
    access::Access,
    calls::{CallEntry, Outcome, Post},
    census::Census,
    config::CoreConfig,
    conn::Conn,
    counters::Counters,
    drain::Drain,
    eviction::Ages,
    exchange::Exchange,
    http::DateText,
    ids::Generations,
    journal::Journal,
    ledger::Account,
    listen,
    memory::{Kept, Meter, size_of_answer},
    output::Output,
    publish::Of,
    queue::{Class, Message},
    quotas::Source,
    request::ReadRequest,
    seam::*,
    session::{Session, SessionEnd},
    sse,
    stream::{Role, Stream},
    subscriptions::Subscriptions,
    table::{CallSlot, ConnSlot, ExchangeSlot, PostSlot, PrincipalSlot, SessionSlot, StreamSlot, Table},
    tag::Tagged,
    unproven::Unproven,
    wheel::{TimerId, Wheel},
};
use crate::limits;
use bytes::{Bytes, BytesMut};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
    sync::Arc,
};

/// One shard's sessions, streams, connections and timers.
pub struct Shard {
    pub(super) id: ShardId,
    pub(super) config: Arc<CoreConfig>,
    pub(super) census: Arc<Census>,
    pub(super) access: Access,
    pub(super) meter: Rc<Meter>,
    pub(super) entropy: Box<dyn Entropy>,
    pub(super) generations: Generations,
    pub(super) wheel: Wheel<Deadline>,
    pub(super) conns: Table<ConnSlot, Conn>,
    pub(super) sessions: Table<SessionSlot, Session>,
    pub(super) streams: Table<StreamSlot, Stream>,
    pub(super) attached: Attached,
    /// Of the sessions, by slot, that have had too many events.
    pub(super) ages: BTreeMap<u32, Ages>,
    /// What is kept for replay, by client.
    pub(super) kept: BTreeMap<Account, Kept>,
    pub(super) posts: Table<PostSlot, Post>,
    pub(super) calls: Table<CallSlot, CallEntry>,
    pub(super) exchanges: Table<ExchangeSlot, Exchange>,
    pub(super) journal: Journal,
    pub(super) counters: Counters,
    /// Unknown tokens of addresses that had sent too many bad ones.
    pub(super) guesses: u64,
    pub(super) date: DateText,
    date_unix_s: u64,
    /// Emptied output queues, for reuse.
    #[allow(clippy::vec_box, reason = "connections hold boxes, and get these ones")]
    pub(super) outputs: Vec<Box<Output>>,
    /// Emptied places of input, for reuse.
    #[allow(clippy::vec_box, reason = "connections hold boxes, and get these ones")]
    pub(super) inputs: Vec<Box<BytesMut>>,
    /// Emptied lists of unproven replies, for reuse.
    #[allow(clippy::vec_box, reason = "connections hold boxes, and get these ones")]
    pub(super) unproven: Vec<Box<Unproven>>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) with_output: VecDeque<ConnKey>,
    pub(super) with_comment: VecDeque<ConnKey>,
    pub(super) broadcasts: VecDeque<Broadcast>,
    pub(super) subscriptions: Subscriptions<SessionSlot>,
    pub(super) listen_subscriptions: Subscriptions<ExchangeSlot>,
    pub(super) drain: Option<Drain>,
    /// Connections that have asked for nothing yet.
    pub(super) newcomers: usize,
    /// When timers were last expired.
    pub(super) ticked_ms: u64,
}

/// Whose deadline a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Conn(ConnSlot),
    Session(SessionSlot),
    Stream(StreamSlot),
    Post(PostSlot),
    Exchange(ExchangeSlot),
    /// What the session waits for from its client.
    Asks(SessionSlot),
    /// Lost replies kept for the session.
    Recovery(SessionSlot),
}

/// A message on its way to every session and every listen stream, some of them per turn.
#[derive(Debug)]
pub(super) struct Broadcast {
    kind: NotificationKind,
    message: Message,
    /// The same for listen streams, if it is for any.
    tagged: Option<Rc<Tagged>>,
    walk: Walk,
    /// The next slot to look at, and where to stop.
    next: usize,
    end: usize,
    /// Sessions and listen streams begun later do not get it.
    before: Generation,
    /// Only this principal's sessions get it.
    owner: Option<PrincipalSlot>,
    /// Who wants to know how it went, and how it goes.
    pub(super) publication: Option<PublicationId>,
    pub(super) reach: Reach,
}

/// Over what a broadcast goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Sessions,
    Listens,
}

impl Broadcast {
    /// Whether it will tell every session what that signal says.
    fn says(&self, message: &Message) -> bool {
        let is_untold = self.walk == Walk::Sessions && self.next == 0 && self.publication.is_none();
        is_untold && matches!(message.class, Class::Signal(_)) && self.message.class == message.class
    }
}

/// The result of [`Shard::connect`].
#[derive(Debug)]
pub enum Admission {
    /// The connection has a place.
    Admitted(ConnKey),
    /// At the cap: write these static bytes and close.
    Refused(&'static [u8]),
}

/// How many entries of each kind a shard holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Connections, ending ones included.
    pub conns: usize,
    /// Sessions.
    pub sessions: usize,
    /// Streams: attached, or kept for replay.
    pub streams: usize,
    /// The attached ones among them.
    pub attached: Attached,
    /// Calls of sessions in flight.
    pub calls: usize,
    /// Requests without a session in flight, and listen streams.
    pub exchanges: usize,
    /// Armed timers.
    pub timers: usize,
    /// Bytes of bodies, until their calls have ended, and of replies that are kept for replay or wait for a slow stream. A
    /// body on its way to another shard is in neither's.
    pub held_bytes: usize,
}

impl Population {
    /// Requests that wait for their response.
    pub fn calls_in_flight(&self) -> usize {
        self.calls + self.exchanges - self.attached.listens
    }
}

/// Attached streams, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Opened or continued by a GET: primaries and shadows.
    pub listeners: usize,
    /// GETs whose cursor named a finished request stream.
    pub fallen_through: usize,
    /// Of POSTs, wherever they are continued.
    pub requests: usize,
    /// Of requests without a session, until their response.
    pub exchanges: usize,
    /// Of `subscriptions/listen`.
    pub listens: usize,
    /// Of sessions over HTTP+SSE.
    pub carriers: usize,
}

impl Attached {
    pub(super) fn of_role(&mut self, role: Role) -> &mut usize {
        match role {
            Role::Listener => &mut self.listeners,
            Role::FallenThrough => &mut self.fallen_through,
            Role::Request | Role::Superseded => &mut self.requests,
        }
    }
}

/// What one entry of each kind takes in its table, in bytes. What hangs on an entry while it is busy is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryBytes {
    /// A connection.
    pub conn: usize,
    /// A session.
    pub session: usize,
    /// A stream.
    pub stream: usize,
    /// A request without a session, or a listen stream.
    pub exchange: usize,
    /// A timer: sessions and connections have one each.
    pub timer: usize,
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.id)
            .field("population", &self.population())
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// A shard without connections. `census` is shared by all shards of the process; `entropy` feeds session ids.
    pub fn new(
        id: ShardId,
        config: Arc<CoreConfig>,
        census: Arc<Census>,
        entropy: Box<dyn Entropy>,
        now: Now,
    ) -> Self {
        let (conns, sessions) = capacities(&config);
        let meter = Meter::new(census.clone());
        census.shard_began();
        Shard {
            id,
            census,
            access: Access::new(config.auth.clone()),
            meter,
            entropy,
            generations: Generations::default(),
            wheel: Wheel::new(now.ms, conns + sessions),
            conns: Table::with_capacity(conns),
            sessions: Table::with_capacity(sessions),
            streams: Table::with_capacity(conns),
            attached: Attached::default(),
            ages: BTreeMap::new(),
            kept: BTreeMap::new(),
            posts: Table::with_capacity(0),
            calls: Table::with_capacity(0),
            exchanges: Table::with_capacity(conns),
            journal: Journal::default(),
            counters: Counters::default(),
            guesses: 0,
            date: DateText::from_unix_s(now.unix_s),
            date_unix_s: now.unix_s,
            outputs: Vec::new(),
            inputs: Vec::new(),
            unproven: Vec::new(),
            effects: VecDeque::new(),
            with_output: VecDeque::new(),
            with_comment: VecDeque::new(),
            broadcasts: VecDeque::new(),
            subscriptions: Subscriptions::default(),
            listen_subscriptions: Subscriptions::default(),
            drain: None,
            newcomers: 0,
            ticked_ms: now.ms,
            config,
        }
    }

    // --- Inputs --------------------------------------------------------------------------------

    /// A connection was accepted, from an address that does not matter.
    pub fn connect(&mut self, now: Now) -> Admission {
        self.connect_from(Ipv4Addr::LOCALHOST.into(), now)
    }

    /// A connection was accepted.
    pub fn connect_from(&mut self, address: IpAddr, now: Now) -> Admission {
        self.keep_date(now);
        self.admit(address, now)
    }

    /// A connection arrived from another shard: [`MovedConn::bytes`], [`MovedConn::request`] and [`MovedConn::source`].
    pub fn adopt(
        &mut self,
        bytes: BytesMut,
        request: Option<Box<ReadRequest>>,
        source: Source,
        now: Now,
    ) -> ConnKey {
        self.keep_date(now);
        self.adopt_conn(bytes, request, source, now)
    }

    /// The buffer to receive into: what is kept of an unfinished message, with room for more. `None`: any
    /// empty buffer will do.
    pub fn take_input(&mut self, conn: ConnKey) -> Option<BytesMut> {
        let conn = self.find_conn(conn)?;
        self.lend_input(conn)
    }

    /// Bytes were received: `buffer` is the one from [`take_input`](Self::take_input) with the new bytes
    /// appended. Returns a buffer that is no longer needed, for reuse.
    pub fn received(&mut self, conn: ConnKey, buffer: BytesMut, now: Now) -> Option<BytesMut> {
        self.keep_date(now);
        match self.find_conn(conn) {
            Some(conn) => self.take_in(conn, buffer, now),
            None => Some(buffer),
        }
    }

    /// The kernel took `count` bytes of what the last [`fill`](Self::fill) of this connection gave. If there is more
    /// to write the connection is named by [`next_output`](Self::next_output) again.
    pub fn wrote(&mut self, conn: ConnKey, count: usize, now: Now) {
        self.keep_date(now);
        if let Some(conn) = self.find_conn(conn) {
            self.output_taken(conn, count, now);
        }
    }

    /// The peer will send nothing more (end of file, or `POLLRDHUP`), but may still read. `unacknowledged` is what
    /// `SIOCOUTQ` says at that moment, in bytes.
    pub fn half_closed(&mut self, conn: ConnKey, unacknowledged: usize, now: Now) {
        if let Some(conn) = self.find_conn(conn) {
            self.peer_half_closed(conn, unacknowledged, now);
        }
    }

    /// The connection is dead (reset, time-out, write error). Answered with [`Effect::Close`].
    pub fn lost(&mut self, conn: ConnKey, unacknowledged: usize, now: Now) {
        if let Some(conn) = self.find_conn(conn) {
            self.peer_lost(conn, unacknowledged, now);
        }
    }

    /// The answer to [`Effect::Measure`], in bytes.
    pub fn unacknowledged(&mut self, conn: ConnKey, bytes: usize, now: Now) {
        if let Some(conn) = self.find_conn(conn) {
            self.conn_measured(conn, bytes, now);
        }
    }

    /// No operation is in flight and the descriptor is about to be closed: the slot may be reused.
    /// `unacknowledged` is the last word of `SIOCOUTQ`, in bytes.
    pub fn closed(&mut self, conn: ConnKey, unacknowledged: usize, now: Now) {
        if let Some(conn) = self.find_conn(conn) {
            self.conn_closed(conn, unacknowledged, now);
        }
    }

    /// A connection this shard gave away was taken by nobody and is closed: it counts no longer.
    pub fn strayed(&mut self, source: Source) {
        self.leave_source(source);
        self.census.leave_connection();
    }

    /// The backend says something.
    pub fn tell(&mut self, tell: Tell, now: Now) {
        if let Some(exchange) = tell.call().and_then(|call| self.find_exchange(call)) {
            return self.tell_exchange(exchange, tell, now);
        }
        let heard = match tell {
            Tell::Respond(call, answer) => self.find_call(call).map(|call| {
                let answer = self.bounded(answer);
                let answer = self.admit_response(call, answer);
                self.finish_call(call, Outcome::Answered(answer), now);
            }),
            Tell::Refuse(call) => {
                self.find_call(call).map(|call| self.finish_call(call, Outcome::Refused, now))
            }
            Tell::EndSession(session) => self
                .find_session_key(session)
                .map(|session| self.end_session(session, SessionEnd::BackendGone, now)),
            Tell::Notify(call, notification) => self.find_call(call).map(|call| {
                if self.is_bounded(notification.json.len()) {
                    self.notify_call(call, &notification, now);
                }
            }),
            Tell::Announce(session, notification) => self.find_session_key(session).map(|session| {
                if self.is_bounded(notification.json.len()) {
                    let message = message_of(&notification.kind, sse::payload(&notification.json));
                    self.notify_session(session, &notification.kind, message, now);
                }
            }),
            Tell::Broadcast(notification) => {
                if self.is_bounded(notification.json.len()) {
                    let payload = sse::payload(&notification.json);
                    let announcement = Announcement { kind: notification.kind, payload };
                    self.broadcast(announcement.clone());
                    self.effects.push_back(Effect::Broadcast(announcement));
                }
                Some(())
            }
            Tell::Subscribe(call, uri) => {
                self.find_call(call).map(|call| self.subscribe_call(call, uri, now))
            }
            Tell::Unsubscribe(call, uri) => self.find_call(call).map(|call| {
                self.subscriptions.remove(self.session_of_call(call), &uri);
                self.finish_call(call, Outcome::Answered(Ok(Bytes::from_static(b"{}"))), now);
            }),
            // No call of a session may be answered like that.
            Tell::Listen(..) => None,
            Tell::Request(request) => match self.find_session_key(request.session) {
                Some(session) => {
                    self.ask_client(session, request, now);
                    Some(())
                }
                None => {
                    self.ask_failed(request.id, super::asks::session_ended());
                    None
                }
            },
            Tell::CloseStream(call, retry_ms) => {
                self.find_call(call).map(|call| self.close_call_stream(call, retry_ms, now))
            }
            Tell::CloseListeners(session, retry_ms) => {
                self.find_session_key(session).map(|session| self.close_listeners(session, retry_ms, now))
            }
        };
        if heard.is_none() {
            self.counters.tells_stale += 1;
        }
    }

    /// A message for every session and listen stream of this shard that is to have it; [`pump`](Self::pump) hands it out. A signal that no session has been
    /// given yet is merged with one that says the same. Beyond
    /// [`BROADCASTS_WAITING_MAX`](limits::BROADCASTS_WAITING_MAX) it is dropped and counted.
    pub fn broadcast(&mut self, announcement: Announcement) {
        self.begin_broadcast(announcement, None, None);
    }

    /// Gives a notification from outside to those it is for; [`pump`](Self::pump) hands it out if they may be many.
    pub fn publish(&mut self, publication: Publication, now: Now) {
        self.keep_date(now);
        self.begin_publication(publication, now);
    }

    pub(super) fn begin_broadcast(
        &mut self,
        announcement: Announcement,
        owner: Option<PrincipalSlot>,
        publication: Option<PublicationId>,
    ) {
        let tagged = self.tagged(&announcement);
        let message = message_of(&announcement.kind, announcement.payload);
        let (end, before) = (self.sessions.index_end(), self.generations.issue());
        // Whoever publishes wants a count of their own.
        let mergeable = publication.is_none();
        if mergeable && let Some(waiting) = self.broadcasts.iter_mut().find(|waiting| waiting.says(&message))
        {
            (waiting.end, waiting.before) = (end, before);
            waiting.tagged = waiting.tagged.take().or(tagged);
            self.counters.messages_merged += 1;
        } else if self.broadcasts.len() >= limits::BROADCASTS_WAITING_MAX {
            self.counters.broadcasts_dropped += 1;
            self.refuse_publication(owner, publication);
        } else {
            let (kind, reach) = (announcement.kind, Reach::default());
            let walk = Walk::Sessions;
            self.broadcasts.push_back(Broadcast {
                kind,
                message,
                tagged,
                walk,
                next: 0,
                end,
                before,
                owner,
                publication,
                reach,
            });
        }
    }

    /// The message as listen streams get it, if there are any that could.
    fn tagged(&mut self, announcement: &Announcement) -> Option<Rc<Tagged>> {
        if self.attached.listens == 0 || !listen::is_listened_to(&announcement.kind) {
            return None;
        }
        let tagged = Tagged::notification(&announcement.payload);
        if tagged.is_none() {
            self.counters.messages_dropped += 1;
        }
        tagged.map(Rc::new)
    }

    /// Goes on with other settings. What is looked at each time it matters follows at once; deadlines that are set stay as
    /// they are. The number of shards, the endpoint and keep-alives have to be the same.
    pub fn reconfigure(&mut self, config: Arc<CoreConfig>) {
        assert_eq!(config.shards, self.config.shards, "session ids name the shards that were there");
        assert_eq!(config.keep_alive_ms, self.config.keep_alive_ms, "streams without timers would get none");
        if let Some(rules) = &config.auth {
            self.reauthorize(rules.clone());
        }
        self.config = config;
    }

    /// Expires due timers, looking at no more than `budget`. Call it every turn; as long as
    /// [`next_deadline_ms`](Self::next_deadline_ms) is not in the future there is more to expire.
    pub fn tick(&mut self, now: Now, budget: usize) {
        self.keep_date(now);
        self.ticked_ms = now.ms;
        self.advance_drain(now);
        let mut budget = budget;
        while let Some(expired) = self.wheel.pop_due(now.ms, &mut budget) {
            match expired.owner {
                Deadline::Conn(conn) => self.conn_expired(conn, now),
                Deadline::Session(session) => self.session_expired(session, now),
                Deadline::Stream(stream) => self.stream_expired(stream, now),
                Deadline::Post(post) => self.post_expired(post, now),
                Deadline::Exchange(exchange) => self.exchange_expired(exchange, now),
                Deadline::Asks(session) => self.asks_expired(session, now),
                Deadline::Recovery(session) => self.recovery_expired(session, now),
            }
        }
    }

    // --- Effects -------------------------------------------------------------------------------

    /// The next thing to be done, in order; `None` when there is nothing at present.
    pub fn next_effect(&mut self) -> Option<Effect> {
        loop {
            match self.effects.pop_front()? {
                // The connection's slot stays taken until the shell takes the descriptor.
                Effect::Move(moved) => match self.find_conn(moved.conn) {
                    Some(conn) if self.is_moving(conn) => {
                        return Some(Effect::Move(self.depart(conn)));
                    }
                    Some(_) | None => continue,
                },
                effect => return Some(effect),
            }
        }
    }

    /// Whether [`pump`](Self::pump) has something to do.
    pub fn has_broadcasts(&self) -> bool {
        !self.broadcasts.is_empty() || self.is_sweeping() || self.drain_is_due()
    }

    /// Goes on with broadcasts, with a drain, and with what new rules of admission end: looks at no more than
    /// `budget` sessions, listen streams or connections.
    pub fn pump(&mut self, budget: usize, now: Now) {
        let mut budget = budget;
        self.pump_drain(&mut budget, now);
        self.pump_sweep(&mut budget, now);
        while budget > 0 && !self.broadcasts.is_empty() {
            self.pump_broadcast(&mut budget, now);
        }
    }

    /// A connection that has output (replies and events), or `None`. Skip it while a write of it is in flight:
    /// [`wrote`](Self::wrote) names it again if there is more.
    pub fn next_output(&mut self) -> Option<ConnKey> {
        let key = self.with_output.pop_front()?;
        if let Some(conn) = self.find_conn(key) {
            self.unlist_output(conn);
        }
        Some(key)
    }

    /// A connection whose keep-alive comment is due, or `None`. Each counts against the caller's budget.
    pub fn next_comment(&mut self) -> Option<ConnKey> {
        while let Some(key) = self.with_comment.pop_front() {
            if self.find_conn(key).is_some_and(|conn| self.wants_comment(conn)) {
                return Some(key);
            }
        }
        None
    }

    /// Whether comments are due that were not pulled yet.
    pub fn has_comments(&self) -> bool {
        !self.with_comment.is_empty()
    }

    /// Appends the next pieces to be written on this connection to `pieces`, at most
    /// [`SLICES_PER_WRITE_MAX`](crate::limits::SLICES_PER_WRITE_MAX) in all. Only while no write of it is in flight. What is
    /// appended must be reported with [`wrote`](Self::wrote), or the connection as [`lost`](Self::lost).
    pub fn fill(&mut self, conn: ConnKey, pieces: &mut Vec<Piece>) {
        if let Some(conn) = self.find_conn(conn) {
            self.lend_output(conn, pieces);
        }
    }

    /// What the connection's read side should be doing.
    pub fn interest(&self, conn: ConnKey) -> Interest {
        self.find_conn(conn).map_or(Interest::Nothing, |conn| self.read_interest(conn))
    }

    /// The earliest deadline in milliseconds of [`Now::ms`], or `None` when no timer is armed.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let drain = self.drain_deadline_ms(self.ticked_ms);
        [self.wheel.next_deadline_ms(), drain].into_iter().flatten().min()
    }

    /// This shard's index.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is there now.
    pub fn population(&self) -> Population {
        Population {
            conns: self.conns.len(),
            sessions: self.sessions.len(),
            streams: self.streams.len(),
            attached: self.attached,
            calls: self.calls.len(),
            exchanges: self.exchanges.len(),
            timers: self.wheel.len(),
            held_bytes: self.meter.bytes(),
        }
    }

    /// What one entry of each kind takes.
    pub fn entry_bytes() -> EntryBytes {
        EntryBytes {
            conn: Table::<ConnSlot, Conn>::ENTRY_BYTES,
            session: Table::<SessionSlot, Session>::ENTRY_BYTES,
            stream: Table::<StreamSlot, Stream>::ENTRY_BYTES,
            exchange: Table::<ExchangeSlot, Exchange>::ENTRY_BYTES,
            timer: Wheel::<Deadline>::ENTRY_BYTES,
        }
    }

    // --- For the modules beside ----------------------------------------------------------------

    pub(super) fn ask(&mut self, ask: Ask) {
        self.effects.push_back(Effect::Ask(ask));
    }

    /// Makes sure that a timer fires at `deadline_ms` or earlier.
    pub(super) fn arm_no_later(
        &mut self,
        timer: Option<TimerId>,
        deadline_ms: u64,
        owner: Deadline,
    ) -> TimerId {
        match timer {
            None => self.wheel.arm(deadline_ms, owner),
            Some(timer) => {
                if self.wheel.deadline_ms(timer).is_some_and(|armed_ms| armed_ms > deadline_ms) {
                    self.wheel.rearm(timer, deadline_ms);
                }
                timer
            }
        }
    }

    fn find_conn(&self, key: ConnKey) -> Option<ConnSlot> {
        self.conns.find(key.slot, key.generation)
    }

    pub(super) fn find_call(&self, key: CallKey) -> Option<CallSlot> {
        self.calls.find(key.slot, key.generation)
    }

    pub(super) fn find_session_key(&self, key: SessionKey) -> Option<SessionSlot> {
        self.sessions.find(key.slot, key.generation)
    }

    fn keep_date(&mut self, now: Now) {
        if self.date_unix_s != now.unix_s {
            self.date_unix_s = now.unix_s;
            self.date = DateText::from_unix_s(now.unix_s);
        }
    }

    pub(super) fn is_bounded(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.config.message_bytes_max;
        if !fits {
            self.counters.messages_oversized += 1;
        }
        fits
    }

    /// The answer, unless it is larger than a message may be.
    pub(super) fn bounded(
        &mut self,
        answer: Result<Bytes, super::jsonrpc::RpcError>,
    ) -> Result<Bytes, super::jsonrpc::RpcError> {
        if self.is_bounded(size_of_answer(&answer)) {
            return answer;
        }
        let error = super::jsonrpc::RpcError::internal_error();
        Err(super::jsonrpc::RpcError {
            message: "the answer is larger than the server sends".into(),
            ..error
        })
    }

    fn pump_broadcast(&mut self, budget: &mut usize, now: Now) {
        let Some(broadcast) = self.broadcasts.front_mut() else { return };
        let next = match (&broadcast.kind, broadcast.walk) {
            (NotificationKind::ResourceUpdated(uri), Walk::Sessions) => {
                self.subscriptions.next(uri, broadcast.next)
            }
            (NotificationKind::ResourceUpdated(uri), Walk::Listens) => {
                self.listen_subscriptions.next(uri, broadcast.next)
            }
            _ => Some(broadcast.next),
        };
        let Some(index) = next.filter(|index| *index < broadcast.end) else {
            return self.end_walk();
        };
        broadcast.next = index + 1;
        *budget -= 1;
        match broadcast.walk {
            Walk::Sessions => self.broadcast_to_session(index, now),
            Walk::Listens => self.broadcast_to_listen(index, now),
        }
    }

    /// The broadcast under way has come by all sessions, or by all listen streams as well.
    fn end_walk(&mut self) {
        let end = self.exchanges.index_end();
        match self.broadcasts.front_mut() {
            Some(broadcast) if broadcast.walk == Walk::Sessions && broadcast.tagged.is_some() => {
                (broadcast.walk, broadcast.next, broadcast.end) = (Walk::Listens, 0, end);
            }
            Some(_) | None => self.finish_broadcast(),
        }
    }

    fn broadcast_to_session(&mut self, index: usize, now: Now) {
        let Some(broadcast) = self.broadcasts.front() else { return };
        let Some((slot, session)) = self.sessions.at(index) else { return };
        let owner = broadcast.owner;
        if session.is_older_than(broadcast.before) && (owner.is_none() || session.owner == owner) {
            let (kind, message) = (broadcast.kind.clone(), broadcast.message.clone());
            let fate = self.notify_session(slot, &kind, message, now);
            self.count_broadcast(Of::Session, fate);
        }
    }

    fn broadcast_to_listen(&mut self, index: usize, now: Now) {
        let Some(Broadcast { kind, tagged: Some(tagged), before, owner, .. }) = self.broadcasts.front()
        else {
            return;
        };
        let Some((slot, exchange)) = self.exchanges.at(index) else { return };
        let is_for = owner.is_none() || self.principal_of_conn(exchange.conn) == *owner;
        if exchange.is_older_than(*before) && is_for {
            let (kind, message) = (kind.clone(), Rc::clone(tagged));
            if let Some(fate) = self.give_listen(slot, &kind, &message, now) {
                self.count_broadcast(Of::Listen, fate);
            }
        }
    }
}

pub(super) fn message_of(kind: &NotificationKind, payload: Bytes) -> Message {
    Message { class: Class::of(kind), payload: Rc::new(payload) }
}

/// Entries reserved for connections and sessions: their caps, shared fairly with room for imbalance.
fn capacities(config: &CoreConfig) -> (usize, usize) {
    let share = |max: usize| (max / usize::from(config.shards)).saturating_mul(5) / 4 + 64;
    (share(config.connections_max.min(1 << 20)), share(config.sessions_max.min(1 << 21)))
}
