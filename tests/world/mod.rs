//! A world for shards: virtual clock, fake sockets, mail between shards, and a backend that answers when told.
//!
//! Plays the shell towards the core and the peers towards the shell. Every client has a socket with a window (how
//! much the kernel takes) and a count of unacknowledged bytes; both are under the test's control. After each
//! step all shards' invariants are checked.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "each test crate uses its part of this, and a panic is a failed test"
)]

pub mod ask;
pub mod client;
pub mod http;
pub mod stateless;

use bytes::Bytes;
use moorline::core::{
    Ask, Call, CallKey, ConnKey, Effect, Ending, Entropy, Interest, LogLevel, Notification, NotificationKind,
    Now, Piece, PublicationId, Reach, SessionKey, ShardId, Tell,
    census::Census,
    config::CoreConfig,
    http::{Binding, Policy},
    jsonrpc::{self, RpcError},
    shard::{Admission, Shard},
};
use std::{collections::VecDeque, sync::Arc};

pub use client::{Client, ClientId};

/// Shards, clients and a clock.
pub struct World {
    pub now: Now,
    pub shards: Vec<Shard>,
    pub census: Arc<Census>,
    pub clients: Vec<Client>,
    /// Calls the backend has not answered, oldest first, `initialize` excepted.
    pub calls: Vec<(usize, Call)>,
    /// What the core told the backend beside calls, as text.
    pub told: Vec<String>,
    /// Cancelled calls.
    pub cancelled: Vec<CallKey>,
    /// Sessions whose clients said `initialized`.
    pub initialized: Vec<SessionKey>,
    /// Log levels the backend was told of.
    pub log_levels: Vec<(SessionKey, LogLevel)>,
    /// Sessions the backend was told the end of.
    pub ended: Vec<SessionKey>,
    /// Publications that shards reported, with how they went.
    pub published: Vec<(PublicationId, Reach)>,
    /// Whether `initialize` is answered by itself.
    pub answers_initialize: bool,
    /// Sessions a shard looks at per turn while a broadcast is under way; 0 holds broadcasts and drains back.
    pub pump_budget: usize,
}

/// Entropy from a seed.
struct Seeded(u64);

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (self.0 >> 33) as u8;
        }
    }
}

/// The defaults, for that many shards on loopback.
pub fn config(shards: u16) -> CoreConfig {
    let none: [&str; 0] = [];
    CoreConfig::new(shards, Policy::new("/mcp", Binding::Loopback, &none, &none).unwrap())
}

impl World {
    /// One shard with default settings.
    pub fn new() -> Self {
        World::with(config(1))
    }

    pub fn with(config: CoreConfig) -> Self {
        World::seeded(config, 1)
    }

    pub fn seeded(config: CoreConfig, seed: u64) -> Self {
        let now = Now { ms: 1_000, unix_s: 1_790_000_000 };
        let census = Arc::new(Census::new());
        // The tables of a shard reserve room for the caps; tests need little.
        let config = CoreConfig {
            connections_max: config.connections_max.min(10_000),
            sessions_max: config.sessions_max.min(10_000),
            ..config
        };
        let config = Arc::new(config);
        let shards = (0..config.shards)
            .map(|index| {
                let entropy = Box::new(Seeded(seed.wrapping_mul(31).wrapping_add(u64::from(index))));
                Shard::new(ShardId(index), config.clone(), census.clone(), entropy, now)
            })
            .collect();
        World {
            now,
            shards,
            census,
            clients: Vec::new(),
            calls: Vec::new(),
            told: Vec::new(),
            initialized: Vec::new(),
            log_levels: Vec::new(),
            cancelled: Vec::new(),
            ended: Vec::new(),
            published: Vec::new(),
            answers_initialize: true,
            pump_budget: 1_000,
        }
    }

    // --- Time ------------------------------------------------------------------------------------

    /// Lets time pass, tick by tick as the deadlines ask for it.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.ms + ms;
        loop {
            self.settle();
            let next = self.shards.iter().filter_map(|shard| shard.next_deadline_ms()).min();
            match next {
                Some(next) if next <= end => self.set_clock(next.max(self.now.ms)),
                _ => break,
            }
            for shard in &mut self.shards {
                shard.tick(self.now, usize::MAX);
            }
        }
        self.set_clock(end);
        for shard in &mut self.shards {
            shard.tick(self.now, usize::MAX);
        }
        self.settle();
    }

    fn set_clock(&mut self, ms: u64) {
        self.now.unix_s += ms / 1000 - self.now.ms / 1000;
        self.now.ms = ms;
    }

    // --- Clients ---------------------------------------------------------------------------------

    /// A connection that lands on shard 0.
    pub fn connect(&mut self) -> ClientId {
        self.connect_to(0)
    }

    /// A connection that lands on that shard.
    pub fn connect_to(&mut self, shard: usize) -> ClientId {
        self.try_connect_to(shard).expect("admitted")
    }

    pub fn try_connect_to(&mut self, shard: usize) -> Result<ClientId, &'static [u8]> {
        self.try_connect_from(shard, [127, 0, 0, 1].into())
    }

    /// A connection from that address that lands on that shard.
    pub fn try_connect_from(
        &mut self,
        shard: usize,
        address: std::net::IpAddr,
    ) -> Result<ClientId, &'static [u8]> {
        let key = match self.shards[shard].connect_from(address, self.now) {
            Admission::Admitted(key) => key,
            Admission::Refused(bytes) => return Err(bytes),
        };
        self.clients.push(Client::new(shard, key));
        Ok(ClientId(self.clients.len() - 1))
    }

    /// The client sends bytes; the world settles.
    pub fn send(&mut self, client: ClientId, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let Client { shard, key, .. } = self.clients[client.0];
        if self.clients[client.0].server_side_closed() {
            return;
        }
        self.clients[client.0].inbox.extend_from_slice(bytes);
        self.deliver_input(client.0, shard, key);
        self.settle();
    }

    fn deliver_input(&mut self, client: usize, shard: usize, key: ConnKey) {
        let wants = matches!(self.shards[shard].interest(key), Interest::Park | Interest::Receive);
        if !wants || self.clients[client].inbox.is_empty() {
            return;
        }
        let mut buffer = self.shards[shard].take_input(key).unwrap_or_default();
        buffer.extend_from_slice(&self.clients[client].inbox);
        self.clients[client].inbox.clear();
        self.shards[shard].received(key, buffer, self.now);
    }

    /// The client closes its write side.
    pub fn half_close(&mut self, client: ClientId) {
        let entry = &self.clients[client.0];
        let (shard, key, unacked) = (entry.shard, entry.key, entry.unacked);
        self.shards[shard].half_closed(key, unacked, self.now);
        self.settle();
    }

    /// What the core wants to hear of the client's connection.
    pub fn interest(&self, client: ClientId) -> Interest {
        let entry = &self.clients[client.0];
        self.shards[entry.shard].interest(entry.key)
    }

    /// The client's connection is reset. What it had not acknowledged is lost.
    pub fn reset(&mut self, client: ClientId) {
        let entry = &mut self.clients[client.0];
        entry.gone = true;
        let (shard, key, unacked) = (entry.shard, entry.key, entry.unacked);
        self.shards[shard].lost(key, unacked, self.now);
        self.settle();
    }

    // --- The backend -----------------------------------------------------------------------------

    /// The oldest unanswered call, taken out.
    pub fn take_call(&mut self) -> (usize, Call) {
        assert!(!self.calls.is_empty(), "the backend was asked for nothing");
        self.calls.remove(0)
    }

    pub fn tell(&mut self, shard: usize, tell: Tell) {
        self.shards[shard].tell(tell, self.now);
        self.settle();
    }

    pub fn answer(&mut self, shard: usize, call: CallKey, result: &str) {
        self.tell(shard, Tell::Respond(call, Ok(Bytes::copy_from_slice(result.as_bytes()))));
    }

    pub fn fail(&mut self, shard: usize, call: CallKey, error: RpcError) {
        self.tell(shard, Tell::Respond(call, Err(error)));
    }

    /// A progress notification of a call.
    pub fn progress(&mut self, shard: usize, call: CallKey, progress: u32) {
        let params = format!(r#"{{"progressToken":"t","progress":{progress}}}"#);
        let json = jsonrpc::notification("notifications/progress", Some(params.as_bytes()));
        self.tell(shard, Tell::Notify(call, Notification { kind: NotificationKind::Progress, json }));
    }

    /// A numbered message for a session's listener.
    pub fn announce(&mut self, client: ClientId, text: &str) {
        let (shard, session) = self.session_of(client);
        self.tell(shard, Tell::Announce(session, other(text)));
    }

    pub fn announce_kind(&mut self, client: ClientId, kind: NotificationKind, method: &str) {
        let (shard, session) = self.session_of(client);
        let json = jsonrpc::notification(method, None);
        self.tell(shard, Tell::Announce(session, Notification { kind, json }));
    }

    /// The session a client opened, as the backend knows it.
    pub fn session_of(&self, client: ClientId) -> (usize, SessionKey) {
        let (shard, session) = self.clients[client.0].backend_session.expect("the client initialized");
        (shard, session)
    }

    // --- Stopping --------------------------------------------------------------------------------

    /// Every shard starts to stop, and ends its listener streams within `spread_ms`.
    pub fn drain(&mut self, spread_ms: u64) {
        for shard in &mut self.shards {
            shard.drain(spread_ms, self.now);
        }
    }

    // --- Running ---------------------------------------------------------------------------------

    /// Carries out effects and moves bytes until nothing is left to do at this moment.
    pub fn settle(&mut self) {
        loop {
            let mut busy = false;
            for shard in 0..self.shards.len() {
                while let Some(effect) = self.shards[shard].next_effect() {
                    self.carry_out(shard, effect);
                    busy = true;
                }
                if self.pump_budget > 0 && self.shards[shard].has_broadcasts() {
                    self.shards[shard].pump(self.pump_budget, self.now);
                    busy = true;
                }
                busy |= self.move_output(shard);
            }
            for client in 0..self.clients.len() {
                let Client { shard, key, .. } = self.clients[client];
                if !self.clients[client].inbox.is_empty() && !self.clients[client].server_side_closed() {
                    let before = self.clients[client].inbox.len();
                    self.deliver_input(client, shard, key);
                    busy |= self.clients[client].inbox.len() != before;
                }
            }
            if !busy {
                break;
            }
        }
        for shard in &self.shards {
            shard.check_invariants();
        }
    }

    fn carry_out(&mut self, shard: usize, effect: Effect) {
        match effect {
            Effect::Close(key, ending) => self.close(shard, key, ending),
            Effect::Move(moved) => {
                let client = self.client_of(shard, moved.conn);
                let target = usize::from(moved.shard.0);
                let key = self.shards[target].adopt(moved.bytes, moved.request, moved.source, self.now);
                self.clients[client].shard = target;
                self.clients[client].key = key;
                self.clients[client].moves += 1;
            }
            Effect::Measure(key) => {
                if let Some(client) = self.find_client(shard, key) {
                    let unacked = self.clients[client].unacked;
                    self.shards[shard].unacknowledged(key, unacked, self.now);
                }
            }
            Effect::Ask(ask) => self.ask(shard, ask),
            Effect::Broadcast(announcement) => {
                for (index, other) in self.shards.iter_mut().enumerate() {
                    if index != shard {
                        other.broadcast(announcement.clone());
                    }
                }
            }
            Effect::Published(id, reach) => self.published.push((id, reach)),
        }
    }

    fn close(&mut self, shard: usize, key: ConnKey, ending: Ending) {
        let client = self.client_of(shard, key);
        let entry = &mut self.clients[client];
        if entry.ending.is_some_and(|earlier| earlier >= ending) {
            return;
        }
        entry.ending = Some(ending);
        // An orderly end waits for the peer, unless it is gone; the others are immediate.
        if ending > Ending::Orderly || entry.closes_promptly || entry.gone {
            entry.closed = true;
            let unacked = entry.unacked;
            self.shards[shard].closed(key, unacked, self.now);
        }
    }

    fn ask(&mut self, shard: usize, ask: Ask) {
        match ask {
            Ask::Call(call) if call.method.as_str() == "initialize" && self.answers_initialize => {
                let client = self.clients.iter_mut().rfind(|client| client.initializing);
                if let Some(client) = client {
                    client.initializing = false;
                    client.backend_session = call.session.map(|session| (shard, session));
                }
                let result = format!(
                    r#"{{"protocolVersion":"{}","capabilities":{{}},"serverInfo":{{"name":"w","version":"1"}}}}"#,
                    call.revision.date()
                );
                self.shards[shard].tell(Tell::Respond(call.key, Ok(result.into())), self.now);
            }
            Ask::Call(call) => self.calls.push((shard, call)),
            Ask::Cancel(key) => {
                self.calls.retain(|(at, call)| *at != shard || call.key != key);
                self.cancelled.push(key);
            }
            Ask::Notified(notified) if notified.method.as_str() == "notifications/initialized" => {
                self.initialized.push(notified.session);
            }
            Ask::LogLevel(session, level) => self.log_levels.push((session, level)),
            Ask::Notified(notified) => self.told.push(notified.method.as_str().to_owned()),
            Ask::SessionEnded(session) => self.ended.push(session),
            other => self.told.push(format!("{other:?}")),
        }
    }

    fn move_output(&mut self, shard: usize) -> bool {
        let mut ready = VecDeque::new();
        while let Some(key) = self.shards[shard].next_output() {
            ready.push_back(key);
        }
        while let Some(key) = self.shards[shard].next_comment() {
            ready.push_back(key);
        }
        let busy = !ready.is_empty();
        for key in ready {
            if let Some(client) = self.find_client(shard, key) {
                self.write_to(client, shard, key);
            }
        }
        busy
    }

    /// One write: as much as the window takes. A full window holds the write until it opens.
    fn write_to(&mut self, client: usize, shard: usize, key: ConnKey) {
        if self.clients[client].lent {
            return;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        self.shards[shard].fill(key, &mut pieces);
        if pieces.is_empty() {
            return;
        }
        self.clients[client].in_flight = pieces.iter().flat_map(|piece| piece.as_slice().to_vec()).collect();
        self.clients[client].lent = true;
        self.finish_write(client);
    }

    fn finish_write(&mut self, client: usize) {
        let entry = &mut self.clients[client];
        let count = entry.in_flight.len().min(entry.window);
        if !entry.lent || count == 0 {
            return;
        }
        let taken: Vec<u8> = entry.in_flight.drain(..count).collect();
        entry.window -= count;
        entry.lent = false;
        entry.in_flight.clear();
        if entry.acknowledges {
            entry.received.extend_from_slice(&taken);
        } else {
            entry.unacked += count;
            entry.unread.extend_from_slice(&taken);
        }
        let (shard, key) = (entry.shard, entry.key);
        self.shards[shard].wrote(key, count, self.now);
    }

    /// The client's kernel takes that many bytes more.
    pub fn open_window(&mut self, client: ClientId, bytes: usize) {
        let entry = &mut self.clients[client.0];
        entry.window = entry.window.saturating_add(bytes);
        self.finish_write(client.0);
        self.settle();
    }

    /// The client takes nothing more.
    pub fn stall(&mut self, client: ClientId) {
        self.clients[client.0].window = 0;
    }

    /// What is written to the client from now on does not arrive until [`acknowledge`](Self::acknowledge).
    pub fn hold(&mut self, client: ClientId) {
        self.clients[client.0].acknowledges = false;
    }

    /// Everything written so far arrives and is acknowledged; what follows does, too.
    pub fn acknowledge(&mut self, client: ClientId) {
        let entry = &mut self.clients[client.0];
        entry.acknowledges = true;
        entry.unacked = 0;
        let unread = std::mem::take(&mut entry.unread);
        entry.received.extend_from_slice(&unread);
    }

    fn find_client(&self, shard: usize, key: ConnKey) -> Option<usize> {
        self.clients.iter().rposition(|client| client.shard == shard && client.key == key && !client.closed)
    }

    fn client_of(&self, shard: usize, key: ConnKey) -> usize {
        self.find_client(shard, key).expect("the core names connections of this world only")
    }
}

/// A notification that is merged with nothing, carrying `text`.
pub fn other(text: &str) -> Notification {
    let params = format!(r#"{{"text":"{text}"}}"#);
    Notification {
        kind: NotificationKind::Other,
        json: jsonrpc::notification("notifications/test", Some(params.as_bytes())),
    }
}
