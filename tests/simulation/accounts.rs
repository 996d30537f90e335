//! The end of a run: everybody behaves, and everything the server owes is called in.

use super::{
    backend::Origin,
    model::Class,
    sim::{Sim, note},
    socket::{Asked, Network, Peer},
    wire::Id,
};
use moorline::core::Ending;

impl Sim {
    pub fn settle_accounts(&mut self) {
        self.finish_work();
        self.give_up_the_vanished();
        self.fetch_the_rest();
        self.listen_everywhere();
        self.probe_every_session();
        self.probe_listens();
        self.watch_keep_alives();
        self.check_calls();
        self.check_messages();
        self.check_ends();
        self.return_late();
    }

    pub fn finish_work(&mut self) {
        self.settle();
        while !self.greeting.is_empty() {
            self.answer_greeting(0);
            self.settle();
        }
        while !self.working.is_empty() {
            self.answer(0);
            self.settle();
        }
        self.finish_requests();
    }

    /// Peers nobody hears of are given up by their TCP within its time-outs.
    fn give_up_the_vanished(&mut self) {
        self.advance(7_000);
        let vanished =
            |socket: &super::socket::Socket| socket.network == Network::Black && !socket.is_closed();
        if self.sockets.iter().any(vanished) {
            self.advance(75_000);
        }
    }

    /// Clients come back for what they still miss.
    fn fetch_the_rest(&mut self) {
        for agent in 0..self.agents.len() {
            let returns = std::mem::take(&mut self.agents[agent].returns);
            for (_, cursor) in returns {
                if let Some(session) = self.agents[agent].session {
                    let cursor = self.remembered(cursor);
                    self.get(agent, session, cursor);
                    self.settle();
                }
            }
        }
        let numbers: Vec<u64> = self.model.calls.keys().copied().collect();
        for n in numbers {
            let call = &self.model.calls[&n];
            let (agent, session) = (self.sockets[call.socket].agent, call.session);
            let cursor = self.sockets[call.socket].exchanges[call.exchange].last_seen.clone();
            if !call.seen && cursor.is_some() && self.agents[agent].session == Some(session) {
                self.get(agent, session, cursor);
                self.settle();
            }
        }
        self.finish_work();
    }

    fn listen_everywhere(&mut self) {
        for agent in 0..self.agents.len() {
            if let Some(session) = self.agents[agent].session {
                self.get(agent, session, None);
                self.settle();
            }
        }
        self.advance(6_000);
    }

    fn live_sessions(&self) -> Vec<usize> {
        let in_use = self.agents.iter().filter_map(|agent| agent.session);
        in_use.filter(|session| self.model.sessions[*session].is_alive).collect()
    }

    /// A message to a session whose client listens arrives at once, and once.
    fn probe_every_session(&mut self) {
        for session in self.live_sessions() {
            if !self.listens(session) {
                continue;
            }
            let m = self.announce(session, Class::Other);
            self.settle();
            let message = &self.model.sessions[session].inbox[&m];
            assert!(message.seen, "session {session} is deaf");
            assert_eq!(message.writes.len(), 1, "told more than once");
        }
    }

    /// Whether a plain GET of it is open and the session has no reason to hold a message back.
    fn listens(&self, session: usize) -> bool {
        self.sockets.iter().filter(|socket| socket.client_reads() && socket.ending.is_none()).any(|socket| {
            socket.exchanges.last().is_some_and(|exchange| {
                exchange.session == Some(session)
                    && exchange.asked == Asked::Plain
                    && exchange.is_stream
                    && !exchange.is_over
            })
        })
    }

    fn watch_keep_alives(&mut self) {
        let keep_alive_ms = self.config.keep_alive_ms;
        if keep_alive_ms == 0 {
            return self.advance(20_000);
        }
        for _ in 0..4 {
            self.advance(keep_alive_ms / 2);
            for (index, socket) in self.sockets.iter().enumerate() {
                let streams = socket.exchanges.iter().any(|exchange| exchange.is_stream && !exchange.is_over);
                let is_open = socket.client_reads() && socket.ending.is_none() && !socket.is_closed();
                if streams && is_open && socket.network == Network::Fine && socket.in_flight.is_none() {
                    let silent_ms = self.now.ms - socket.written_ms;
                    assert!(silent_ms <= keep_alive_ms + 32, "socket {index}: no comment for {silent_ms} ms");
                }
            }
        }
    }

    /// A cursor of a stream that was forgotten long ago goes on under new numbers.
    fn return_late(&mut self) {
        if !self.scenario.evicts {
            return;
        }
        for socket in &mut self.sockets {
            socket.peer = Peer::Closed;
        }
        self.advance(self.config.replay_ttl_ms + 1_000);
        for agent in 0..self.agents.len() {
            let listened = |id: &&String| Id::parse(id).stream.0 == 'l';
            let cursor = self.agents[agent].seen_ids.iter().find(listened).cloned();
            let session = self.agents[agent].session.filter(|session| self.model.sessions[*session].is_alive);
            if let (Some(session), Some(cursor)) = (session, cursor) {
                self.get(agent, session, Some(cursor));
                self.settle();
                self.announce(session, Class::Other);
                self.settle();
            }
        }
    }

    /// Every POST is answered where its client could be reached.
    fn check_calls(&self) {
        let counters: Vec<_> = self.shards.iter().map(|shard| shard.counters()).collect();
        let evicted: u64 = counters.iter().map(|counters| counters.events_evicted).sum();
        for (n, call) in &self.model.calls {
            let session = &self.model.sessions[call.session];
            let socket = &self.sockets[call.socket];
            let exchange = &socket.exchanges[call.exchange];
            let closed_early = exchange.is_over && exchange.is_stream;
            let strayed = socket.is_closed() && socket.ending.is_none();
            let was_healthy = !closed_early
                && !strayed
                && socket.ending != Some(Ending::Cut)
                && socket.peer == Peer::Open
                && socket.network != Network::Black
                && (socket.ending.is_none() || exchange.is_over);
            if !session.is_alive || session.called_dead || call.may_be_cancelled || call.seen || evicted > 0 {
                continue;
            }
            // A POST whose connection was reachable to the end.
            let refused = exchange.status.is_some_and(|status| status != 200);
            assert!(
                !was_healthy || refused || call.key.is_none(),
                "call {n} was never answered: {call:?} {exchange:?}"
            );
            // A POST whose stream its client could come back to.
            let resumable = exchange.last_seen.is_some() && !self.scenario.evicts;
            let in_use = self.agents[socket.agent].session == Some(call.session);
            let gave_up = self.agents[socket.agent].gave_up || !self.could_connect();
            assert!(
                !resumable || !in_use || gave_up,
                "the rest of call {n} was not to be had: {call:?} {exchange:?}"
            );
        }
    }

    /// Whether clients were never turned away at the cap of connections.
    fn could_connect(&self) -> bool {
        self.shards.iter().all(|shard| shard.counters().connections_refused == 0)
    }

    /// Whatever was said to a session that listens was seen, or is counted as dropped.
    fn check_messages(&self) {
        let counters: Vec<_> = self.shards.iter().map(|shard| shard.counters()).collect();
        let dropped: u64 = counters.iter().map(|c| c.messages_dropped + c.events_evicted).sum();
        let mut missing = 0;
        for session in self.live_sessions() {
            if !self.listens(session) {
                continue;
            }
            let model = &self.model.sessions[session];
            // Signals that say the same are one message while they wait: they are dropped, and counted, as one.
            let mut untold = Vec::new();
            for (m, message) in &model.inbox {
                let arrived = message.seen || self.arrived(&message.writes);
                // What was in a log leaves it in time.
                let excused = self.scenario.evicts
                    && !message.writes.is_empty()
                    && self.now.ms - message.ms >= self.config.replay_ttl_ms;
                match message.class {
                    _ if arrived || excused || message.origin == Origin::Call => {}
                    Class::Other => {
                        note!(self, "session {session} misses {m}: {message:?}");
                        missing += 1;
                    }
                    Class::Tools | Class::Prompts | Class::Resources | Class::Resource(_) => {
                        let same = model.inbox.values().filter(|other| other.class == message.class);
                        let told = same.flat_map(|other| &other.writes).any(|write| {
                            write.step >= message.step && self.arrived(std::slice::from_ref(write))
                        });
                        if !told && !untold.contains(&message.class) {
                            note!(self, "session {session} was never told {m}: {message:?}");
                            untold.push(message.class);
                            missing += 1;
                        }
                    }
                    Class::Log | Class::Progress | Class::Request => {}
                }
            }
        }
        assert!(missing <= dropped, "{missing} messages are missing, {dropped} are counted as dropped");
    }

    fn arrived(&self, writes: &[super::model::Write]) -> bool {
        writes.iter().any(|write| write.end <= self.sockets[write.socket].arrived)
    }

    /// Who was told that a session is no more was told the truth.
    fn check_ends(&self) {
        for (index, session) in self.model.sessions.iter().enumerate() {
            assert!(!session.is_alive || session.doubts.is_empty(), "{:?}", session.doubts);
            assert!(!session.called_dead || !session.is_alive, "session {index} was denied while it lived");
        }
    }
}
