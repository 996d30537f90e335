//! The run: shards, sockets, mail and a clock, moved on by one random step after the other.
//!
//! Plays the shell as the real one behaves at its laziest: effects are pulled late, writes complete short and
//! late, inputs come between a decision and its execution, mail waits. After every input the shard's invariants
//! are checked; every byte a kernel took goes through the reader and the model.

use super::{
    client::Agent,
    model::{Class, Model, Moment},
    requests::Stateless,
    rng::Rng,
    scenario::Scenario,
    socket::{Network, Peer, Place, Socket},
};
use bytes::BytesMut;
use moorline::core::{
    Announcement, Call, CallKey, ConnKey, Effect, Ending, Interest, MovedConn, Now, Piece, ReadRequest,
    ShardId,
    census::Census,
    config::{CoreConfig, Priming},
    quotas::Source,
    shard::{Admission, Population, Shard},
};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

/// The peer's TCP gives up on unacknowledged bytes after this long (`TCP_USER_TIMEOUT`).
const USER_TIMEOUT_MS: u64 = 30_000;

pub struct Sim {
    pub rng: Rng,
    pub now: Now,
    pub step: u64,
    pub scenario: Scenario,
    pub config: Arc<CoreConfig>,
    pub census: Arc<Census>,
    pub shards: Vec<Shard>,
    pub sockets: Vec<Socket>,
    pub keys: HashMap<(usize, ConnKey), usize>,
    pub mail: VecDeque<Mail>,
    pub agents: Vec<Agent>,
    pub model: Model,
    pub stateless: Stateless,
    /// Calls the backend works on, and those that are over but that it may still speak of.
    pub working: Vec<(usize, Call, u64)>,
    pub stale: Vec<(usize, Call, u64)>,
    /// `initialize` requests not answered yet, with the session.
    pub greeting: Vec<(usize, Call, usize)>,
    pub greeted: Vec<(usize, CallKey)>,
    pub is_calm: bool,
    pub is_draining: bool,
    pub trace: Trace,
}

/// What travels between shards.
pub enum Mail {
    Conn {
        socket: usize,
        to: usize,
        source: Source,
        bytes: BytesMut,
        request: Option<Box<ReadRequest>>,
        refusal: &'static [u8],
    },
    News {
        to: usize,
        announcement: Announcement,
        m: u64,
    },
    /// From the admin interface.
    Publication {
        to: usize,
        announcement: Announcement,
        m: u64,
    },
}

/// A digest of everything the run made visible; printed line by line when a seed is replayed.
pub struct Trace {
    pub hash: u64,
    pub prints: bool,
}

impl Trace {
    pub fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub fn note(&self, step: u64, ms: u64, what: fmt::Arguments<'_>) {
        if self.prints {
            println!("{step:>6} {ms:>8} ms  {what}");
        }
    }
}

macro_rules! note {
    ($sim:expr, $($what:tt)*) => { $sim.trace.note($sim.step, $sim.now.ms, format_args!($($what)*)) };
}
pub(crate) use note;

impl Sim {
    pub fn new(seed: u64, prints: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut scenario = Scenario::draw(&mut rng);
        // Seeds that had a meaning before there were clients without sessions keep it.
        let is_on = seed % 7 < 3 && std::env::var_os("MOORLINE_WITH_SESSIONS_ONLY").is_none();
        let mut own = Rng::new(seed ^ 0x2026_0728);
        if is_on {
            scenario.config.exchanges_max = own.pick(&[3, 1_000, 1_000, 1_000]);
        }
        let stateless = Stateless::new(own, is_on, scenario.config.shards.into());
        Sim::with(scenario, rng, stateless, prints)
    }

    pub fn with(scenario: Scenario, mut rng: Rng, stateless: Stateless, prints: bool) -> Self {
        let now = Now { ms: 1_000, unix_s: 1_790_000_000 };
        let census = Arc::new(Census::new());
        let config = Arc::new(scenario.config.clone());
        let shards = (0..config.shards)
            .map(|index| {
                let entropy = Box::new(Rng::new(rng.next()));
                Shard::new(ShardId(index), config.clone(), census.clone(), entropy, now)
            })
            .collect();
        let drops = scenario.floods;
        let agents = (0..scenario.agents).map(|_| Agent::draw(&mut rng)).collect();
        Sim {
            rng,
            now,
            step: 0,
            scenario,
            config,
            census,
            shards,
            sockets: Vec::new(),
            keys: HashMap::new(),
            mail: VecDeque::new(),
            agents,
            model: Model { drops, ..Model::default() },
            stateless,
            working: Vec::new(),
            stale: Vec::new(),
            greeting: Vec::new(),
            greeted: Vec::new(),
            is_calm: false,
            is_draining: false,
            trace: Trace { hash: 0xcbf2_9ce4_8422_2325, prints },
        }
    }

    /// One whole life: chaos, calm, accounts, end.
    pub fn run(&mut self) {
        note!(self, "{:?}", self.scenario);
        for _ in 0..self.scenario.steps {
            self.random_step();
        }
        self.calm_down();
        self.settle_accounts();
        self.end();
    }

    pub fn random_step(&mut self) {
        self.step += 1;
        let shard = self.rng.below(self.shards.len());
        match self.rng.weighted(&[14, 12, 8, 3, 6, 10, 12, 7, 3, 22, 12, 8, 2]) {
            0 => {
                let count = self.rng.between(1, 6);
                self.pull_effects(shard, count);
            }
            1 => {
                let count = self.rng.between(1, 4);
                self.start_writes(shard, count);
            }
            2 => self.tick(shard),
            3 => self.pump(shard),
            4 => self.deliver_mail(),
            5 => self.with_socket(Sim::finish_write),
            6 => self.with_socket(Sim::deliver_input),
            7 => self.with_socket(Sim::report),
            8 => self.with_socket(Sim::finish_close),
            9 => self.with_socket(Sim::carry),
            10 => self.act(),
            11 => self.backend_step(),
            _ => self.pass_time(),
        }
        self.stateless_step();
        if self.rng.percent(3) {
            self.settle();
        }
        self.trace.mix(&[u8::try_from(self.rng.clone().below(256)).unwrap()]);
    }

    fn with_socket(&mut self, act: fn(&mut Sim, usize)) {
        let open: Vec<usize> = (0..self.sockets.len())
            .filter(|s| !self.sockets[*s].eof_seen || !self.sockets[*s].is_closed())
            .collect();
        if !open.is_empty() {
            let socket = open[self.rng.below(open.len())];
            act(self, socket);
        }
    }

    fn pass_time(&mut self) {
        let ms = match self.rng.weighted(&[40, 30, 20, 8, 2]) {
            0 => self.rng.between(1, 100),
            1 => self.rng.between(100, 1_500),
            2 => self.rng.between(1_000, 6_000),
            3 => self.rng.between(5_000, 20_000),
            _ => self.rng.between(20_000, 70_000),
        };
        self.set_clock(self.now.ms + ms as u64);
        note!(self, "time passes: {ms} ms");
    }

    fn set_clock(&mut self, ms: u64) {
        self.now.unix_s += ms / 1000 - self.now.ms / 1000;
        self.now.ms = ms;
    }

    fn check(&self, shard: usize) {
        self.shards[shard].check_invariants();
    }

    pub fn moment(&self) -> Moment {
        Moment {
            step: self.step,
            ms: self.now.ms,
            keep_alive_ms: self.config.keep_alive_ms,
            primes_posts: self.config.priming != Priming::Off,
            primes_gets: self.config.priming == Priming::Auto,
            evicts: self.scenario.evicts,
            recovers: self.config.fresh_get_fallback,
            is_draining: self.is_draining,
        }
    }
}

// --- The shell ----------------------------------------------------------------------------------

impl Sim {
    fn tick(&mut self, shard: usize) {
        let budget = self.rng.pick(&[1, 3, 1_000]);
        self.shards[shard].tick(self.now, budget);
        self.check(shard);
    }

    fn pump(&mut self, shard: usize) {
        let budget = self.rng.between(1, 8);
        if self.shards[shard].has_broadcasts() {
            self.shards[shard].pump(budget, self.now);
            self.check(shard);
        }
    }

    fn pull_effects(&mut self, shard: usize, count: usize) -> bool {
        for done in 0..count {
            let Some(effect) = self.shards[shard].next_effect() else { return done > 0 };
            self.carry_out(shard, effect);
            self.check(shard);
        }
        true
    }

    fn carry_out(&mut self, shard: usize, effect: Effect) {
        self.step += 1;
        match effect {
            Effect::Close(key, ending) => self.begin_close(shard, key, ending),
            Effect::Move(moved) => {
                let socket = self.keys.remove(&(shard, moved.conn)).expect("a connection of this shard");
                note!(self, "socket {socket} leaves shard {shard} for {:?}", moved.shard);
                assert!(self.sockets[socket].in_flight.is_none(), "moved with a write in flight");
                if !self.is_calm && self.rng.percent(3) {
                    return self.stray(shard, socket, moved.source, moved.refusal);
                }
                self.sockets[socket].place = Place::Mail;
                let to = usize::from(moved.shard.0);
                assert_ne!(to, shard, "moved to where it is");
                let MovedConn { source, bytes, request, refusal, .. } = moved;
                self.mail.push_back(Mail::Conn { socket, to, source, bytes, request, refusal });
            }
            Effect::Measure(key) => {
                if let Some(socket) = self.find(shard, key) {
                    let unacked = self.evidence(socket);
                    self.shards[shard].unacknowledged(key, unacked, self.now);
                }
            }
            Effect::Ask(ask) => self.asked(shard, ask),
            Effect::Broadcast(announcement) => {
                let m = number_of(&announcement);
                for to in (0..self.shards.len()).filter(|to| *to != shard) {
                    self.mail.push_back(Mail::News { to, announcement: announcement.clone(), m });
                }
            }
            Effect::Published(id, reach) => self.was_published(shard, id.0 as u64, reach),
        }
    }

    /// The other shard's mailbox is full: the shell refuses the connection and closes it.
    fn stray(&mut self, shard: usize, socket: usize, source: Source, refusal: &'static [u8]) {
        assert!(refusal.starts_with(b"HTTP/1.1 503 "));
        note!(self, "socket {socket} finds no room");
        let entry = &mut self.sockets[socket];
        entry.place = Place::Closed;
        entry.eof_seen = true;
        self.shards[shard].strayed(source);
        self.saw_end(socket);
    }

    fn begin_close(&mut self, shard: usize, key: ConnKey, ending: Ending) {
        // A harder end may be asked for while the connection is already closing by itself.
        let Some(socket) = self.find(shard, key) else { return };
        self.disturb(socket);
        let entry = &mut self.sockets[socket];
        if entry.ending.is_some_and(|earlier| earlier >= ending) {
            panic!("ended twice in the same way");
        }
        if ending == Ending::Orderly {
            assert!(entry.in_flight.is_none(), "an orderly end comes after the last write");
            assert!(entry.reader.is_at_boundary(), "an orderly end in the middle of a reply");
        }
        if ending == Ending::Gone && entry.ending.is_none() && entry.peer == Peer::Open && !entry.is_lost {
            assert!(entry.reader.is_between_responses(), "the client of socket {socket} was cut off");
        }
        entry.ending = Some(ending);
        note!(self, "shard {shard} ends socket {socket}: {ending:?}");
    }

    /// Reads `SIOCOUTQ`, and notes what the core learns by it.
    fn evidence(&mut self, socket: usize) -> usize {
        self.step += 1;
        self.disturb(socket);
        let step = self.step;
        let entry = &mut self.sockets[socket];
        entry.reports.push((step, entry.acked));
        let (sent, acked) = (entry.sent, entry.acked);
        note!(self, "socket {socket} measured: {sent} sent, {acked} acked");
        self.sockets[socket].unacked()
    }

    fn disturb(&mut self, socket: usize) {
        for exchange in &self.sockets[socket].exchanges {
            if let Some(session) = exchange.session {
                self.model.sessions[session].disturbed_step = self.step;
            }
        }
    }

    fn find(&self, shard: usize, key: ConnKey) -> Option<usize> {
        self.keys.get(&(shard, key)).copied()
    }

    pub fn connect(&mut self, agent: usize) -> Option<usize> {
        let shard = self.rng.below(self.shards.len());
        let socket = self.sockets.len();
        match self.shards[shard].connect(self.now) {
            Admission::Admitted(key) => {
                self.sockets.push(Socket::new(agent, Place::Shard(shard), key, self.now.ms));
                self.sockets[socket].window = self.rng.pick(&[300, 1_000, 4_000, 64 * 1024]);
                let former = self.keys.insert((shard, key), socket);
                assert!(former.is_none(), "a key is never used twice");
                self.check(shard);
                Some(socket)
            }
            Admission::Refused(bytes) => {
                assert!(self.census.connections() >= self.config.connections_max);
                assert!(bytes.starts_with(b"HTTP/1.1 503 "));
                None
            }
        }
    }

    fn start_writes(&mut self, shard: usize, count: usize) -> bool {
        let mut any = false;
        for _ in 0..count {
            let Some(key) = self.shards[shard].next_output().or_else(|| self.shards[shard].next_comment())
            else {
                break;
            };
            any = true;
            self.start_write(shard, key);
        }
        any
    }

    fn start_write(&mut self, shard: usize, key: ConnKey) {
        self.step += 1;
        let Some(socket) = self.find(shard, key) else { return };
        if self.sockets[socket].in_flight.is_some() || self.sockets[socket].ending.is_some() {
            return;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        self.shards[shard].fill(key, &mut pieces);
        if !pieces.is_empty() {
            assert!(!self.sockets[socket].is_lost, "output for a connection that is lost");
            let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_slice().to_vec()).collect();
            note!(self, "socket {socket} is lent {} bytes", bytes.len());
            let entry = &mut self.sockets[socket];
            entry.lend(entry.sent + bytes.len() as u64, self.step);
            entry.in_flight = Some(bytes);
        }
        self.check(shard);
    }

    /// The kernel takes some of a write, if it has room.
    fn finish_write(&mut self, socket: usize) {
        let Place::Shard(shard) = self.sockets[socket].place else { return };
        let entry = &self.sockets[socket];
        let Some(bytes) = &entry.in_flight else { return };
        let mut count = bytes.len().min(entry.room());
        // Where nobody watches for the end of a connection, a write that fails tells.
        if self.stateless.is_on && self.is_given_up(entry) {
            return;
        }
        if entry.peer == Peer::Reset || count == 0 || entry.ending.is_some() {
            return;
        }
        if !self.is_calm && self.rng.percent(40) {
            count = self.rng.between(1, count);
        }
        self.take_output(socket, count);
        let key = self.sockets[socket].key;
        self.shards[shard].wrote(key, count, self.now);
        self.check(shard);
    }

    fn take_output(&mut self, socket: usize, count: usize) {
        let entry = &mut self.sockets[socket];
        let mut bytes = entry.in_flight.take().expect("a write in flight");
        bytes.truncate(count);
        note!(self, "socket {socket}: {count} bytes are taken");
        if entry.unacked() == 0 {
            entry.progress_ms = self.now.ms;
        }
        entry.sent += count as u64;
        entry.reader.feed(&bytes);
        self.trace.mix(&bytes);
        while let Some(item) = self.sockets[socket].reader.items.pop_front() {
            note!(self, "socket {socket} exchange {} .. {}: {}", item.exchange, item.end, item.what);
            match self.request_of(socket, item.exchange).filter(|_| !self.sockets[socket].refused) {
                Some(request) => self.written_stateless(request, &item),
                None => {
                    let moment = self.moment();
                    self.model.written(socket, &mut self.sockets, &item, moment);
                }
            }
            self.sockets[socket].on_the_way.push_back(item);
        }
    }

    /// Some of what the client sent reaches the shard.
    fn deliver_input(&mut self, socket: usize) {
        let entry = &mut self.sockets[socket];
        let Place::Shard(shard) = entry.place else { return };
        let key = entry.key;
        if entry.inbox.is_empty()
            || entry.network == Network::Black
            || entry.peer == Peer::Reset
            || entry.ending.is_some()
        {
            return;
        }
        let parked = match self.shards[shard].interest(key) {
            Interest::Park => true,
            Interest::Receive => false,
            Interest::HangUp | Interest::Failure | Interest::Nothing => return,
        };
        let mut count = entry.inbox.len();
        if !self.is_calm && self.rng.percent(50) {
            count = self.rng.between(1, count);
        }
        let bytes: Vec<u8> = entry.inbox.drain(..count).collect();
        let mut buffer = self.shards[shard].take_input(key).unwrap_or_default();
        assert!(!parked || buffer.is_empty(), "parked with a buffer");
        buffer.extend_from_slice(&bytes);
        note!(self, "socket {socket} delivers {:?}", String::from_utf8_lossy(&bytes));
        self.shards[shard].received(key, buffer, self.now);
        self.check(shard);
    }

    /// The shard's kernel says that the peer closed, reset, or is given up.
    fn report(&mut self, socket: usize) {
        let entry = &self.sockets[socket];
        let Place::Shard(shard) = entry.place else { return };
        if entry.ending.is_some() {
            return;
        }
        let key = entry.key;
        let interest = self.shards[shard].interest(key);
        let given_up = self.is_given_up(entry);
        let is_black = entry.network == Network::Black;
        let is_dead = entry.peer == Peer::Reset
            || given_up
            || (is_black && self.now.ms - entry.progress_ms > 2 * USER_TIMEOUT_MS);
        if is_dead && (interest != Interest::Nothing || entry.in_flight.is_some()) {
            let unacked = self.evidence(socket);
            self.sockets[socket].in_flight = None;
            self.sockets[socket].is_lost = true;
            self.shards[shard].lost(key, unacked, self.now);
            note!(self, "socket {socket} is lost");
            return self.check(shard);
        }
        let closed = matches!(entry.peer, Peer::WriteClosed | Peer::Closed);
        let noticed = match interest {
            Interest::Park | Interest::Receive => entry.inbox.is_empty(),
            Interest::HangUp => true,
            Interest::Failure | Interest::Nothing => false,
        };
        if closed && noticed && entry.half_closed_step.is_none() && !is_black {
            self.sockets[socket].half_closed_step = Some(self.step);
            let unacked = self.evidence(socket);
            note!(self, "socket {socket} is half closed");
            self.shards[shard].half_closed(key, unacked, self.now);
            self.check(shard);
        }
    }

    /// The kernel has given up on what was not acknowledged.
    fn is_given_up(&self, socket: &Socket) -> bool {
        socket.unacked() > 0 && self.now.ms - socket.progress_ms >= USER_TIMEOUT_MS
    }

    /// The shell is done with a connection it was asked to end.
    fn finish_close(&mut self, socket: usize) {
        let entry = &self.sockets[socket];
        let (Place::Shard(shard), Some(ending)) = (entry.place, entry.ending) else { return };
        let all_there = entry.arrived == entry.sent;
        let peer_done = entry.peer != Peer::Open && entry.peer != Peer::WriteClosed;
        if ending == Ending::Orderly && !(peer_done || (all_there && entry.eof_seen)) {
            return;
        }
        let key = entry.key;
        if let Some(bytes) = &self.sockets[socket].in_flight {
            let count = bytes.len().min(self.sockets[socket].room());
            if count > 0 && self.rng.percent(50) {
                self.take_output(socket, count);
                self.shards[shard].wrote(key, count, self.now);
            }
            self.sockets[socket].in_flight = None;
        }
        let unacked = self.evidence(socket);
        self.shards[shard].closed(key, unacked, self.now);
        self.keys.remove(&(shard, key));
        let entry = &mut self.sockets[socket];
        entry.place = Place::Closed;
        if ending == Ending::Cut {
            entry.eof_seen = true;
        }
        note!(self, "socket {socket} is closed");
        self.check(shard);
    }

    fn deliver_mail(&mut self) {
        if self.mail.is_empty() {
            return;
        }
        let index = self.rng.below(self.mail.len());
        let mail = self.mail.remove(index).expect("an index of the mailbox");
        self.open_mail(mail);
    }

    fn open_mail(&mut self, mail: Mail) {
        match mail {
            Mail::Conn { socket, to, source, bytes, request, refusal } => {
                assert!(refusal.starts_with(b"HTTP/1.1 503 "));
                let key = self.shards[to].adopt(bytes, request, source, self.now);
                note!(self, "socket {socket} arrives on shard {to}");
                let former = self.keys.insert((to, key), socket);
                assert!(former.is_none(), "a key is never used twice");
                self.sockets[socket].place = Place::Shard(to);
                self.sockets[socket].key = key;
                self.check(to);
            }
            Mail::News { to, announcement, m } => {
                self.expect_broadcast(to, m, Class::of(&announcement.kind));
                self.shards[to].broadcast(announcement);
                self.check(to);
            }
            Mail::Publication { to, announcement, m } => {
                self.begin_publication(to, announcement, m);
                self.check(to);
            }
        }
    }
}

// --- The network --------------------------------------------------------------------------------

impl Sim {
    /// Bytes arrive, acknowledgements come back, or the end is seen.
    fn carry(&mut self, socket: usize) {
        let entry = &mut self.sockets[socket];
        match entry.network {
            Network::Black => return,
            // What the peer's kernel holds is acknowledged all the same.
            Network::Stalled if entry.acked < entry.arrived => entry.acked = entry.arrived,
            Network::Stalled => return,
            Network::Fine => {}
        }
        if entry.peer == Peer::Closed && entry.sent > entry.arrived {
            entry.peer = Peer::Reset;
        }
        if entry.peer == Peer::Reset {
            entry.eof_seen = true;
            return;
        }
        let on_the_way = (entry.sent - entry.arrived) as usize;
        let discarded = entry.ending == Some(Ending::Cut);
        if on_the_way > 0 && !discarded {
            let count = if self.is_calm { on_the_way } else { self.rng.between(1, on_the_way) };
            entry.arrived += count as u64;
            self.observe(socket);
        }
        let entry = &mut self.sockets[socket];
        if entry.acked < entry.arrived && (self.is_calm || self.rng.percent(70)) {
            entry.acked = entry.arrived;
            entry.progress_ms = self.now.ms;
        }
        let ended = matches!(entry.ending, Some(Ending::Orderly | Ending::Gone));
        let was_cut = entry.ending == Some(Ending::Cut) && entry.is_closed();
        if !entry.eof_seen && ((ended && entry.arrived == entry.sent) || was_cut) {
            entry.eof_seen = true;
            note!(self, "the client of socket {socket} sees its end");
            self.saw_end(socket);
        }
    }
}

// --- Calm ---------------------------------------------------------------------------------------

impl Sim {
    /// Runs everything that can run without time passing. Stalled and half-open peers stay as they are.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for shard in 0..self.shards.len() {
                busy |= self.pull_effects(shard, usize::MAX);
                if self.shards[shard].has_broadcasts() {
                    self.shards[shard].pump(1_000, self.now);
                    self.check(shard);
                    busy = true;
                }
                busy |= self.start_writes(shard, usize::MAX);
            }
            while let Some(mail) = self.mail.pop_front() {
                self.open_mail(mail);
                busy = true;
            }
            for socket in 0..self.sockets.len() {
                if self.sockets[socket].is_closed() && self.sockets[socket].eof_seen {
                    continue;
                }
                let before = self.state_of(socket);
                self.finish_write(socket);
                self.deliver_input(socket);
                self.report(socket);
                self.carry(socket);
                self.finish_close(socket);
                busy |= self.state_of(socket) != before;
            }
            if !busy {
                self.check_stateless_ends();
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    #[allow(clippy::type_complexity, reason = "only compared")]
    fn state_of(&self, socket: usize) -> (u64, u64, u64, usize, bool, bool, bool, bool, Option<usize>) {
        let entry = &self.sockets[socket];
        (
            entry.sent,
            entry.arrived,
            entry.acked,
            entry.inbox.len(),
            entry.is_closed(),
            entry.eof_seen,
            entry.half_closed_step.is_some(),
            // Among clients of sessions alone nobody asks so exactly.
            entry.is_lost && self.stateless.is_on,
            entry.in_flight.as_ref().map(Vec::len),
        )
    }

    /// Lets time pass deadline by deadline, with everything settled in between.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.ms + ms;
        loop {
            self.step += 1;
            self.settle();
            for shard in 0..self.shards.len() {
                self.shards[shard].tick(self.now, usize::MAX);
                self.check(shard);
                let next_ms = self.shards[shard].next_deadline_ms();
                assert!(
                    next_ms.is_none_or(|next_ms| next_ms > self.now.ms),
                    "a deadline is due after a tick"
                );
            }
            self.settle();
            if self.now.ms >= end {
                return;
            }
            let next_ms = self.shards.iter().filter_map(|shard| shard.next_deadline_ms()).min();
            self.set_clock(next_ms.unwrap_or(end).clamp(self.now.ms + 1, end));
        }
    }

    /// All networks heal, all peers read.
    fn calm_down(&mut self) {
        note!(self, "calm");
        self.is_calm = true;
        for socket in 0..self.sockets.len() {
            let entry = &mut self.sockets[socket];
            entry.window = 1 << 20;
            if entry.network == Network::Stalled {
                entry.network = Network::Fine;
            }
        }
        self.settle();
    }

    /// Closes everything and waits for every trace of it to go.
    fn end(&mut self) {
        note!(self, "the end");
        if self.scenario.drains {
            self.is_draining = true;
            for shard in &mut self.shards {
                shard.drain(0, self.now);
            }
            self.settle();
            self.check_drained_listens();
        }
        for socket in &mut self.sockets {
            if socket.peer == Peer::Open || socket.peer == Peer::WriteClosed {
                socket.peer = Peer::Closed;
            }
        }
        self.advance(3 * USER_TIMEOUT_MS);
        self.advance(self.config.request_timeout_ms);
        self.advance(2 * self.config.session_idle_timeout_ms + 10_000);
        for shard in &self.shards {
            assert_eq!(shard.population(), Population::default(), "something stayed: {:?}", shard.counters());
            assert!(!self.is_draining || shard.is_drained());
            assert_eq!(shard.next_deadline_ms(), None);
        }
        assert_eq!((self.census.connections(), self.census.sessions()), (0, 0), "somebody is still counted");
        assert_eq!(self.census.ledger().accounts(), 0, "somebody still has something");
        self.check_stateless_over();
        for (m, answered) in &self.model.asks {
            assert!(answered, "request {m} was never answered to the backend");
        }
        for session in &self.model.sessions {
            assert!(!session.is_alive, "the backend was not told the end of a session");
        }
    }
}

pub fn number_of(announcement: &Announcement) -> u64 {
    let text = std::str::from_utf8(&announcement.payload).expect("UTF-8");
    let (_, rest) = text.split_once("\"m\":").expect("messages are numbered");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}
