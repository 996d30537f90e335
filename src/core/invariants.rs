//! What must hold between any two inputs of a shard, checked in one walk.
//!
//! For tests and debug builds: it looks at every entry. Each check names the rule it guards.

use super::{
    conn::State,
    exchange::Phase,
    ids::StreamKind,
    ledger::Account,
    log::Log,
    quotas::kib_of,
    shard::{Attached, Shard},
    stream::Attachment,
    table::{SessionSlot, StreamSlot},
};
use std::collections::BTreeMap;

impl Shard {
    /// Panics if the shard's entries contradict each other. Linear in everything the shard holds.
    pub fn check_invariants(&self) {
        self.wheel.check_invariants();
        self.subscriptions.check_invariants();
        let alive = |index| self.sessions.at(index).is_some();
        assert!(self.subscriptions.sessions().all(alive), "a subscription ends with its session");
        for (session, _) in self.sessions.iter() {
            self.check_session(session);
        }
        let overflowed = |number: &u32| self.sessions.at(*number as usize).is_some();
        assert!(self.ages.keys().all(overflowed), "an order of events ends with its session");
        for (stream, _) in self.streams.iter() {
            self.check_stream(stream);
        }
        self.check_attached();
        self.check_exchanges();
        self.check_access();
        self.check_conns();
        self.check_posts();
        self.check_kept();
        self.check_timers();
    }

    /// What is kept for replay is counted for whoever it is kept for.
    fn check_kept(&self) {
        let mut kept = BTreeMap::<Account, usize>::new();
        for (session, entry) in self.sessions.iter() {
            let requests =
                self.streams_of(session).filter(|slot| self.streams[*slot].kind == StreamKind::Request);
            let logs = requests.filter_map(|slot| self.streams[slot].log.as_ref());
            let logged: usize =
                logs.flat_map(|log| log.iter()).map(|event| event.message.payload.len()).sum();
            let lost = entry.recovery.as_ref().map_or(0, |recovery| recovery.bytes());
            let queued = entry.queue.as_ref().map_or(0, |queue| queue.owed_bytes());
            *kept.entry(entry.account).or_default() += logged + lost + queued;
        }
        kept.retain(|_, bytes| *bytes > 0);
        assert!(self.kept.iter().map(|(account, kept)| (*account, kept.bytes())).eq(kept));
    }

    fn check_session(&self, session: SessionSlot) {
        let entry = &self.sessions[session];
        let streams: Vec<StreamSlot> = self.streams_of(session).collect();
        if let Some(conn) = entry.carrier {
            let carries = matches!(self.conns[conn].state, State::Carrying(slot) if slot == session);
            assert!(
                carries && streams.is_empty(),
                "a session over HTTP+SSE has its carrier and nothing else"
            );
        }
        let entries = || streams.iter().map(|slot| &self.streams[*slot]);
        let live = || entries().filter(|stream| stream.live_conn().is_some());
        let by_get = live().filter(|stream| stream.via.is_get()).count();
        assert_eq!(by_get, usize::from(entry.gets), "GET streams are counted");
        match entry.primary {
            Some(primary) => {
                assert!(streams.contains(&primary), "the primary is one of the session's streams");
                assert!(self.streams[primary].listens(), "the primary may carry listener messages");
                assert!(self.streams[primary].live_conn().is_some(), "the primary is attached");
            }
            None => {
                let deaf = live().all(|stream| !stream.listens());
                let unsettled = entries().any(|stream| matches!(stream.attachment, Attachment::Ending(_)));
                assert!(deaf || unsettled || self.draining(), "somebody attached means somebody primary");
            }
        }
        let events = || entries().filter_map(|stream| stream.log.as_ref()).flat_map(|log| log.iter());
        assert_eq!(events().count(), entry.replay_events as usize, "events kept for replay are counted");
        let bytes: usize = events().map(|event| event.message.payload.len()).sum();
        assert_eq!(bytes, entry.replay_bytes as usize, "bytes kept for replay are counted");
        self.check_ages(session);
        let is_attached = |stream: StreamSlot| {
            streams.contains(&stream) && self.streams[stream].attachment != Attachment::None
        };
        if let Some(recovery) = &entry.recovery {
            assert!(!recovery.is_empty(), "lost replies are kept while there are some");
            assert!(recovery.claims_hold(is_attached), "a lost reply is claimed by an attached stream");
        }
        assert_eq!(self.calls_of(session).count(), usize::from(entry.calls_in_flight), "calls are counted");
        assert!(
            entry.queue.as_ref().is_none_or(|queue| !queue.is_empty()),
            "a queue exists while it holds something"
        );
    }

    fn check_stream(&self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        assert!(
            self.streams_of(entry.session).any(|slot| slot == stream),
            "a stream is in its session's list"
        );
        match entry.attachment {
            Attachment::None => {
                assert!(entry.is_kept(), "a detached stream is kept for a reason: {entry:?}");
            }
            Attachment::Live(conn) => {
                assert!(
                    matches!(self.conns[conn].state, State::Streaming(slot) if slot == stream),
                    "a live attachment is what its connection streams"
                );
            }
            Attachment::Ending(conn) => {
                let unproven = self.conns[conn].unproven.as_ref();
                let is_held = unproven.is_some_and(|unproven| unproven.holds(stream));
                assert!(is_held, "an ending stream is unproven on its connection");
            }
        }
        assert!(
            entry.log.as_ref().is_none_or(|log| !log.is_empty()),
            "a log exists while it holds something"
        );
        assert!(entry.log.is_none() || entry.timer.is_some(), "a log's events leave in time");
        let owed = |log: &Log| log.owed.as_ref().is_none_or(|owed| owed.kib() == kib_of(log.owed_bytes()));
        assert!(entry.log.as_deref().is_none_or(owed), "what a client is owed is counted");
        let deliveries = entry.log.iter().flat_map(|log| log.iter()).map(|event| event.delivery);
        assert!(deliveries.is_sorted(), "events are written and acknowledged in order");
        let mut last = 0;
        for event in entry.log.iter().flat_map(|log| log.iter()) {
            assert!(event.sequence > last, "events are in order and each is there once");
            last = event.sequence;
        }
        assert!(last <= entry.sequence, "no event is ahead of its stream");
    }

    fn check_attached(&self) {
        let mut counted = Attached::default();
        for (_, stream) in self.streams.iter().filter(|(_, stream)| stream.live_conn().is_some()) {
            *counted.of_role(stream.role) += 1;
        }
        for (_, exchange) in self.exchanges.iter() {
            match exchange.phase {
                Phase::Undecided(..) => {}
                Phase::Streaming => counted.exchanges += 1,
                Phase::Listening(_) => counted.listens += 1,
            }
        }
        counted.carriers = self.sessions.iter().filter(|(_, entry)| entry.carrier.is_some()).count();
        assert_eq!(counted, self.attached, "attached streams are counted by kind");
    }

    fn check_exchanges(&self) {
        self.listen_subscriptions.check_invariants();
        let listens = |index| {
            let entry = self.exchanges.at(index);
            entry.is_some_and(|(_, exchange)| matches!(exchange.phase, Phase::Listening(_)))
        };
        assert!(self.listen_subscriptions.sessions().all(listens), "a subscription ends with its stream");
        for (exchange, entry) in self.exchanges.iter() {
            assert!(
                matches!(self.conns[entry.conn].state, State::Exchanging(slot) if slot == exchange),
                "an exchange lasts no longer than its connection is about it"
            );
            match &entry.phase {
                Phase::Undecided(..) | Phase::Streaming => {
                    assert!(entry.timer.is_some(), "a request has a deadline");
                }
                Phase::Listening(listen) => {
                    assert!(entry.timer.is_none(), "a listen stream has none but its connection's");
                    let waits = self.conns[entry.conn].output_bytes() > 0;
                    assert!(listen.is_idle() || waits, "messages wait for a connection that is busy");
                }
            }
        }
    }

    fn check_conns(&self) {
        let newcomers = self.conns.iter().filter(|(conn, _)| self.is_newcomer(*conn)).count();
        assert_eq!(newcomers, self.newcomers, "connections that have asked for nothing are counted");
        for (conn, entry) in self.conns.iter() {
            if let State::Streaming(stream) = entry.state {
                assert_eq!(self.streams[stream].live_conn(), Some(conn), "what is streamed is attached");
                if self.config.keep_alive_ms > 0 {
                    assert!(entry.has_timer(), "no stream is without its keep-alive timer");
                }
            }
            if let State::Exchanging(exchange) = entry.state {
                assert_eq!(self.exchanges[exchange].conn, conn, "what a connection is about knows it");
                let is_stream = self.exchanges[exchange].is_stream();
                if is_stream && self.config.keep_alive_ms > 0 {
                    assert!(entry.has_timer(), "no stream is without its keep-alive timer");
                }
            }
            if let State::Carrying(session) = entry.state {
                assert_eq!(
                    self.sessions[session].carrier,
                    Some(conn),
                    "a carrier and its session name each other"
                );
                if self.config.keep_alive_ms > 0 {
                    assert!(entry.has_timer(), "no stream is without its keep-alive timer");
                }
            }
            if let State::Waiting(post) = entry.state {
                assert_eq!(self.posts[post].conn, Some(conn), "what waits for a POST is its connection");
            }
            if let Some(unproven) = &entry.unproven {
                let is_ending =
                    |stream: StreamSlot| self.streams[stream].attachment == Attachment::Ending(conn);
                assert!(unproven.streams().all(is_ending), "what is unproven is ending");
                assert!(!unproven.is_empty(), "what is unproven is kept while there is some");
            }
        }
    }

    fn check_posts(&self) {
        let mut in_posts = 0;
        for (post, _) in self.posts.iter() {
            in_posts += self.calls_of_post(post);
            assert!(self.calls_of_post(post) > 0, "a POST lives while one of its calls does");
        }
        assert_eq!(in_posts, self.calls.len(), "every call belongs to a POST");
    }

    fn check_timers(&self) {
        let conns = self.conns.iter().filter(|(_, entry)| entry.has_timer()).count();
        let sessions = self.sessions.iter().filter(|(_, entry)| entry.timer.is_some()).count();
        let streams = self.streams.iter().filter(|(_, entry)| entry.timer.is_some()).count();
        let posts = self.posts.iter().filter(|(_, entry)| entry.timer.is_some()).count();
        let exchanges = self.exchanges.iter().filter(|(_, entry)| entry.timer.is_some()).count();
        let has_timer = |timer: Option<super::wheel::TimerId>| timer.is_some();
        let asks = self.sessions.iter().filter_map(|(_, entry)| entry.asks.as_ref());
        let asks = asks.filter(|asks| has_timer(asks.timer)).count();
        let lost = self.sessions.iter().filter_map(|(_, entry)| entry.recovery.as_ref());
        let lost = lost.filter(|recovery| has_timer(recovery.timer)).count();
        assert_eq!(
            conns + sessions + streams + posts + exchanges + asks + lost,
            self.wheel.len(),
            "every timer has an owner that knows it"
        );
        assert_eq!(sessions, self.sessions.len(), "every session has a deadline");
    }
}
