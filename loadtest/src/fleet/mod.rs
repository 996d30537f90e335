//! Many MCP clients on one thread.
//!
//! Owns the clients, their connections and the poller. It carries out single steps (open, listen,
//! call, delete, cut) and reports what came of them as notices; it has no plan of its own, which is
//! what scenarios are for. Invariant: a notice always names a client that exists.
//! About 300 bytes per held stream, all included but the kernel's socket.

mod client;
mod exchange;
mod link;
mod notice;

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::io::Errno;
use slab::Slab;

pub(crate) use client::{ClientId, Step};
pub(crate) use notice::{Cause, Ending, EventFacts, Failure, Notice, Reply};

use crate::clock::Moment;
use crate::http::request::Wording;
use crate::net::dial::Sources;
use crate::net::poller::{Poller, Ready, Token};
use crate::net::target::Target;
use crate::rpc::{self, Era, Request};
use client::Client;
use link::Link;

/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 * 1024;
/// The token of the descriptor that is no client's.
const OUTSIDER: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// What every client of a fleet needs to know.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The servers, in turn.
    pub(crate) targets: Vec<Target>,
    /// Headers and versions.
    pub(crate) wording: Wording,
    /// The number that marks messages of this run.
    pub(crate) run: u32,
    /// How long a step may wait for its answer, in milliseconds.
    pub(crate) timeout_ms: u64,
}

/// All clients of one worker.
#[derive(Debug)]
pub(crate) struct Fleet {
    terms: Terms,
    clients: Slab<Client>,
    sources: Sources,
    poller: Poller,
    ready: Vec<Ready>,
    notices: VecDeque<(ClientId, Notice)>,
    buffer: Box<[u8]>,
    opened_count: usize,
    /// Targets that are servers; behind them are the addresses of posters.
    servers_count: usize,
}

impl Fleet {
    /// A fleet without clients.
    ///
    /// # Errors
    /// No epoll instance.
    pub(crate) fn new(terms: Terms, sources: Sources) -> Result<Self, Errno> {
        Ok(Self {
            servers_count: terms.targets.len(),
            terms,
            clients: Slab::new(),
            sources,
            poller: Poller::new()?,
            ready: Vec::new(),
            notices: VecDeque::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            opened_count: 0,
        })
    }

    /// Also watches a descriptor that is not a client's; see [`Fleet::turn`].
    pub(crate) fn watch(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.poller.watch(fd, OUTSIDER)
    }

    /// Waits at most `timeout_ns` for the network and handles what is ready; true when the outside descriptor is.
    pub(crate) fn turn(&mut self, timeout_ns: u64) -> Result<bool, Errno> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(timeout_ns, &mut ready)?;
        let is_outsider_ready = ready.iter().any(|ready| ready.token == OUTSIDER);
        for report in ready.iter().filter(|ready| ready.token != OUTSIDER) {
            self.on_ready(*report);
        }
        self.ready = ready;
        Ok(is_outsider_ready)
    }

    /// The number that marks messages of this run.
    pub(crate) fn run(&self) -> u32 {
        self.terms.run
    }

    /// Whose rules the clients are under.
    pub(crate) fn era(&self) -> Era {
        self.terms.wording.era
    }

    /// Opens a client: connect, `initialize`, `notifications/initialized`, or without sessions `server/discover`;
    /// then [`Notice::Ready`].
    pub(crate) fn open(&mut self, now: Moment) -> ClientId {
        let who = self.add(None);
        self.open_again(who, now);
        who
    }

    /// Opens a client at the server with that index.
    pub(crate) fn open_at(&mut self, target: usize, now: Moment) -> ClientId {
        let who = self.add(None);
        self.clients[who.index()].target = target;
        self.open_again(who, now);
        who
    }

    /// Opens a new session for a client that has none any more.
    pub(crate) fn open_again(&mut self, who: ClientId, now: Moment) {
        self.clients[who.index()].forget_session();
        match self.era() {
            Era::Sessions => {
                let body = rpc::initialize(&self.terms.wording.protocol_version);
                self.post(who, Step::Initializing, &body, now);
            }
            Era::Stateless => {
                let request = Request::bare("server/discover");
                self.post_stateless(who, Step::Discovering, rpc::INITIALIZE_ID, &request, now);
            }
        }
    }

    /// Adds a client that is no MCP client: it only POSTs to `target`.
    pub(crate) fn add_poster(&mut self, target: Target) -> ClientId {
        let who = self.add(None);
        self.terms.targets.push(target);
        self.clients[who.index()].target = self.terms.targets.len() - 1;
        who
    }

    /// POSTs a body that is no JSON-RPC message; then [`Notice::Posted`].
    pub(crate) fn post_plain(&mut self, who: ClientId, body: &[u8], intended: Moment) {
        self.post(who, Step::Posting, body, intended);
    }

    /// Whether the client could take a step now.
    pub(crate) fn is_free(&self, who: ClientId) -> bool {
        matches!(self.clients[who.index()].step, Step::Ready | Step::Failed)
    }

    /// Adds a client that speaks for a session which another one opened; it sends nothing yet.
    pub(crate) fn join(&mut self, session: ClientId) -> ClientId {
        let who = self.add(Some(session));
        self.clients[who.index()].step = Step::Ready;
        who
    }

    /// Opens a stream, behind `cursor` if there is one and the era has such a thing; then [`Notice::Up`].
    pub(crate) fn listen(&mut self, who: ClientId, cursor: Option<&str>, now: Moment) {
        if self.era() == Era::Stateless {
            let id = self.clients[who.index()].next_request_id();
            return self.post_stateless(who, Step::Subscribing { id }, id, &Request::listen(), now);
        }
        let client = &self.clients[who.index()];
        let standing = client.standing(cursor);
        let bytes = self.terms.wording.get(&self.terms.targets[client.target], standing);
        self.send(who, Step::Listening, bytes, now);
    }

    /// Sends a request; then [`Notice::Replied`]. Latency counts from `intended`.
    pub(crate) fn request(&mut self, who: ClientId, request: &Request<'_>, intended: Moment) {
        let id = self.clients[who.index()].next_request_id();
        match self.era() {
            Era::Sessions => self.post(who, Step::Calling { id }, &request.body(id), intended),
            Era::Stateless => self.post_stateless(who, Step::Calling { id }, id, request, intended),
        }
    }

    /// Ends the session with a DELETE; then [`Notice::Deleted`].
    pub(crate) fn delete(&mut self, who: ClientId, now: Moment) {
        let client = &self.clients[who.index()];
        let bytes = self.terms.wording.delete(&self.terms.targets[client.target], client.standing(None));
        self.send(who, Step::Deleting, bytes, now);
    }

    /// Closes the client's connection without a word; session and cursor stay, and no notice follows.
    pub(crate) fn cut(&mut self, who: ClientId) {
        let client = &mut self.clients[who.index()];
        client.unlink();
        client.step = Step::Ready;
    }

    /// What the client is doing.
    pub(crate) fn step(&self, who: ClientId) -> Step {
        self.clients[who.index()].step
    }

    /// The last event id the client saw.
    pub(crate) fn cursor(&self, who: ClientId) -> Option<&str> {
        self.clients[who.index()].cursor.as_deref()
    }

    /// Forgets the last event id.
    pub(crate) fn forget_cursor(&mut self, who: ClientId) {
        self.clients[who.index()].cursor = None;
    }

    /// The reconnection time the server asked for, in milliseconds.
    pub(crate) fn retry_ms(&self, who: ClientId) -> Option<u64> {
        self.clients[who.index()].retry_ms.map(u64::from)
    }

    /// When the client's step in progress was meant to begin.
    pub(crate) fn intended(&self, who: ClientId) -> Moment {
        self.clients[who.index()].intended
    }

    /// When the client last received anything.
    pub(crate) fn last_heard(&self, who: ClientId) -> Moment {
        self.clients[who.index()].last_heard
    }

    /// All clients with what they are doing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, Step)> {
        self.clients.iter().map(|(index, client)| (ClientId::new(index), client.step))
    }

    /// The next thing that happened.
    pub(crate) fn next_notice(&mut self) -> Option<(ClientId, Notice)> {
        self.notices.pop_front()
    }

    /// Whether notices wait.
    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    fn on_ready(&mut self, ready: Ready) {
        let who = ClientId::new(ready.token.slot as usize);
        let Some(client) = self.clients.get_mut(who.index()) else { return };
        if client.link.generation() != ready.token.generation {
            return;
        }
        if ready.writable
            && let Err(errno) = client.link.flush()
        {
            return self.on_cut(who, Some(errno));
        }
        if ready.readable {
            self.read(who);
        }
    }

    /// Fails every step that has waited too long; to be called about once a second.
    pub(crate) fn expire(&mut self, now: Moment) {
        let timeout_ms = self.terms.timeout_ms;
        for (index, client) in &mut self.clients {
            if client.step.awaits_answer() && now.ms_since(client.sent_at) > timeout_ms {
                let failure = Failure { during: client.step, cause: Cause::Timeout };
                client.unlink();
                client.step = Step::Failed;
                self.notices.push_back((ClientId::new(index), Notice::Failed(failure)));
            }
        }
    }

    fn add(&mut self, session_of: Option<ClientId>) -> ClientId {
        let mut client = match session_of {
            Some(other) => Client::joining(&self.clients[other.index()]),
            None => Client::new(self.opened_count % self.servers_count),
        };
        self.opened_count += 1;
        let entry = self.clients.vacant_entry();
        client.link = Link::none(u32::try_from(self.opened_count & 0x00ff_ffff).unwrap_or(0) << 8);
        let who = ClientId::new(entry.key());
        entry.insert(client);
        who
    }

    fn post(&mut self, who: ClientId, step: Step, body: &[u8], intended: Moment) {
        let client = &self.clients[who.index()];
        let bytes = self.terms.wording.post(&self.terms.targets[client.target], client.standing(None), body);
        self.send(who, step, bytes, intended);
    }

    fn post_stateless(
        &mut self,
        who: ClientId,
        step: Step,
        id: u32,
        request: &Request<'_>,
        intended: Moment,
    ) {
        let target = &self.terms.targets[self.clients[who.index()].target];
        let bytes = self.terms.wording.post_stateless(target, id, request);
        self.send(who, step, bytes, intended);
    }

    /// Begins a step: its bytes go out on the kept connection, or on a new one.
    fn send(&mut self, who: ClientId, step: Step, bytes: Vec<u8>, intended: Moment) {
        let client = &mut self.clients[who.index()];
        debug_assert!(!client.step.awaits_answer(), "one step at a time");
        client.begin(step, bytes, intended);
        if client.link.is_open() {
            if let Err(errno) = client.link.flush() {
                self.on_cut(who, Some(errno));
            }
        } else {
            self.dial(who);
        }
    }

    fn dial(&mut self, who: ClientId) {
        let client = &mut self.clients[who.index()];
        let dialled = self.sources.dial(self.terms.targets[client.target].addr);
        let linked = dialled.and_then(|fd| {
            let generation = client.link.set(fd);
            let slot = u32::try_from(who.index()).expect("fewer clients than descriptors");
            self.poller.watch(client.link.fd().expect("was just set"), Token { slot, generation })
        });
        if let Err(errno) = linked {
            self.fail(who, Cause::Connect(errno));
        }
    }

    /// Reads until the socket is empty. A short read means empty: more bytes raise a new edge.
    fn read(&mut self, who: ClientId) {
        loop {
            let client = &mut self.clients[who.index()];
            let count = match client.link.read(&mut self.buffer) {
                Ok(0) => return self.on_cut(who, None),
                Ok(count) => count,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(errno) => return self.on_cut(who, Some(errno)),
            };
            let now = Moment::now();
            self.on_bytes(who, count, now);
            let is_open = self.clients.get(who.index()).is_some_and(|client| client.link.is_open());
            if !is_open {
                return;
            }
        }
    }

    fn on_bytes(&mut self, who: ClientId, count: usize, now: Moment) {
        let client = &mut self.clients[who.index()];
        let notices = &mut self.notices;
        let run = self.terms.run;
        let outcome =
            client.on_bytes(&self.buffer[..count], now, run, |notice| notices.push_back((who, notice)));
        match outcome {
            Ok(None) => {}
            Ok(Some(exchange::Finished::Initialize)) => {
                self.post(who, Step::Confirming, rpc::initialized(), now);
            }
            Ok(Some(exchange::Finished::Notice(notice))) => self.notices.push_back((who, notice)),
            Err(cause) => self.fail(who, cause),
        }
    }

    /// The connection ended: harmless between steps, worth one more try if the server had just closed an
    /// idle connection (RFC 9112 section 9.3.1), and otherwise the end of the step.
    fn on_cut(&mut self, who: ClientId, errno: Option<Errno>) {
        let client = &mut self.clients[who.index()];
        let (step, ends_cleanly) = (client.step, client.exchange.may_end_with_connection());
        if step.awaits_answer() && client.may_send_again() {
            client.send_again();
            self.notices.push_back((who, Notice::SentAgain));
            return self.dial(who);
        }
        client.unlink();
        match step {
            Step::Ready | Step::Failed => {}
            Step::Streaming => {
                client.step = Step::Ready;
                let ending = match errno {
                    None if ends_cleanly => Ending::Clean,
                    None => Ending::Cut,
                    Some(_) => Ending::Reset,
                };
                self.notices.push_back((who, Notice::Ended(ending)));
            }
            _ if ends_cleanly && errno.is_none() => self.finish_with_connection(who),
            _ => self.fail(who, errno.map_or(Cause::Cut, Cause::of)),
        }
    }

    /// A response without a length ends with its connection.
    fn finish_with_connection(&mut self, who: ClientId) {
        let now = Moment::now();
        let client = &mut self.clients[who.index()];
        match client.finish(now) {
            Ok(exchange::Finished::Initialize) => {
                self.post(who, Step::Confirming, rpc::initialized(), now);
            }
            Ok(exchange::Finished::Notice(notice)) => self.notices.push_back((who, notice)),
            Err(cause) => self.fail(who, cause),
        }
    }

    fn fail(&mut self, who: ClientId, cause: Cause) {
        let client = &mut self.clients[who.index()];
        let failure = Failure { during: client.step, cause };
        client.unlink();
        client.step = Step::Failed;
        self.notices.push_back((who, Notice::Failed(failure)));
    }
}
