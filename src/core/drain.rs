//! A stop under way: what it ends, at which pace, and when it is over.
//!
//! Owns the order of a stop on one shard. From its first moment no session, no listener and no request without a session
//! begins; requests of known
//! sessions are taken until the end, since a call that runs may wait for one of them (an answer, a cancellation), and so is a
//! GET that comes back for what is left of its request. Listener streams end one after the other, spread over the time
//! given (those of sessions with a hint of its own each when to come back), so that whoever takes over is not visited by all at once.
//!
//! A shard that has finished may still be needed by another: its listeners are the kernel's choice for any client. So shards
//! say to each other, by the [`Census`](super::census::Census), whether they have finished, and nobody leaves before all
//! have.
//!
//! Invariants: every connection that was there at the beginning is looked at once, in time; later ones need not be, since
//! no listener begins any more. O(1) per connection, no allocation.

use super::{
    conn::State,
    seam::Now,
    session::SessionEnd,
    shard::Shard,
    stream::EndOfStream,
    table::{ConnSlot, SessionSlot},
};
use crate::limits::{DRAIN_ENDS_PER_S_MIN, DRAIN_STEP_MS};

/// A stop under way.
#[derive(Debug)]
pub(super) struct Drain {
    begun_ms: u64,
    spread_ms: u64,
    /// The next connection slot to look at, how far it may go at present, and where it stops.
    next: usize,
    due: usize,
    end: usize,
    /// The next session slot, once all sessions end.
    next_session: Option<usize>,
    /// The same for requests without one.
    next_exchange: Option<usize>,
    /// Whether the other shards were told that this one has finished.
    is_finished: bool,
}

impl Drain {
    fn begin(connections: usize, spread_ms: u64, now: Now) -> Self {
        let quick_ms = (connections as u64).saturating_mul(1_000) / DRAIN_ENDS_PER_S_MIN;
        let spread_ms = spread_ms.min(quick_ms);
        let mut drain = Drain {
            begun_ms: now.ms,
            spread_ms,
            next: 0,
            due: 0,
            end: connections,
            next_session: None,
            next_exchange: None,
            is_finished: false,
        };
        drain.advance(now);
        drain
    }

    /// How far it may go by now: in proportion to the time, in steps.
    fn advance(&mut self, now: Now) {
        let elapsed_ms = now.ms.saturating_sub(self.begun_ms);
        self.due = if elapsed_ms >= self.spread_ms {
            self.end
        } else {
            let stepped_ms = elapsed_ms - elapsed_ms % DRAIN_STEP_MS;
            usize::try_from(self.end as u64 * stepped_ms / self.spread_ms).unwrap_or(self.end)
        };
    }

    /// When it may go further.
    fn next_step_ms(&self, now_ms: u64) -> Option<u64> {
        (self.due < self.end).then(|| {
            let elapsed_ms = now_ms.saturating_sub(self.begun_ms);
            let step_ms = elapsed_ms - elapsed_ms % DRAIN_STEP_MS + DRAIN_STEP_MS;
            self.begun_ms + step_ms.min(self.spread_ms)
        })
    }
}

impl Shard {
    /// Starts to stop: new sessions and listeners are refused, listener streams end within `spread_ms`, running calls
    /// finish. Few streams take less than that.
    pub fn drain(&mut self, spread_ms: u64, now: Now) {
        if self.drain.is_none() {
            self.drain = Some(Drain::begin(self.conns.index_end(), spread_ms, now));
        }
    }

    /// Goes on with a drain that has taken long enough, or has finished: every session ends, and with it what still runs.
    pub fn end_sessions(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.due = drain.end;
            drain.next_session.get_or_insert(0);
            drain.next_exchange.get_or_insert(0);
        }
    }

    /// Whether a drain is complete: everything looked at, no call in flight, nothing left to write.
    pub fn is_drained(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.next >= drain.end)
            && !self.has_broadcasts()
            && self.calls.is_empty()
            && self.exchanges.is_empty()
            && self.with_output.is_empty()
    }

    /// Whether there are connections whose first request may be on its way.
    pub fn has_newcomers(&self) -> bool {
        self.newcomers > 0
    }

    /// Whether the drains of all shards of the process are complete. Others wait for what this one says by being asked, so
    /// ask it every turn.
    pub fn all_are_drained(&mut self) -> bool {
        let is_finished = self.is_drained();
        if let Some(drain) = &mut self.drain
            && drain.is_finished != is_finished
        {
            drain.is_finished = is_finished;
            if is_finished { self.census.shard_finished() } else { self.census.shard_resumed() }
        }
        is_finished && self.census.all_shards_finished()
    }

    pub(super) fn draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether the drain may go on at once.
    pub(super) fn drain_is_due(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| {
            let sessions_left = |next: usize| next < self.sessions.index_end();
            let exchanges_left = |next: usize| next < self.exchanges.index_end();
            drain.next < drain.due
                || drain.next_session.is_some_and(sessions_left)
                || drain.next_exchange.is_some_and(exchanges_left)
        })
    }

    /// Lets the drain go as far as the time says.
    pub(super) fn advance_drain(&mut self, now: Now) {
        if let Some(drain) = &mut self.drain
            && drain.due < drain.end
        {
            drain.advance(now);
        }
    }

    /// When the drain goes on by itself, if it has to wait.
    pub(super) fn drain_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        self.drain.as_ref()?.next_step_ms(now_ms)
    }

    /// Goes on with the drain: looks at no more than `budget` connections, sessions and requests without
    /// one.
    pub(super) fn pump_drain(&mut self, budget: &mut usize, now: Now) {
        while *budget > 0
            && let Some(drain) = &mut self.drain
            && drain.next < drain.due
        {
            let index = drain.next;
            drain.next += 1;
            *budget -= 1;
            if let Some((conn, _)) = self.conns.at(index) {
                self.drain_conn(conn, now);
            }
        }
        let end = self.sessions.index_end();
        while *budget > 0
            && let Some(Drain { next_session: Some(next), .. }) = &mut self.drain
            && *next < end
        {
            let index = *next;
            *next += 1;
            *budget -= 1;
            if let Some((session, _)) = self.sessions.at(index) {
                let session: SessionSlot = session;
                self.end_session(session, SessionEnd::Stopped, now);
            }
        }
        let end = self.exchanges.index_end();
        while *budget > 0
            && let Some(Drain { next_exchange: Some(next), .. }) = &mut self.drain
            && *next < end
        {
            let index = *next;
            *next += 1;
            *budget -= 1;
            if let Some((exchange, _)) = self.exchanges.at(index) {
                self.stop_exchange(exchange, now);
            }
        }
    }

    /// Ends the listener stream on this connection, if there is one. An idle connection stays: its client may be about to ask.
    fn drain_conn(&mut self, conn: ConnSlot, now: Now) {
        if let State::Exchanging(exchange) = self.conns[conn].state {
            return self.drain_listen(exchange, now);
        }
        if let State::Carrying(session) = self.conns[conn].state {
            return self.drain_carrier(session, now);
        }
        if let State::Streaming(stream) = self.conns[conn].state
            && self.streams[stream].via.is_get()
            && self.streams[stream].post.is_none()
        {
            self.counters.streams_drained += 1;
            self.end_stream(stream, EndOfStream::Drain, now);
        }
    }

    /// When a client whose stream the drain ends is to come back: between once and twice the usual time, at random.
    pub(super) fn drained_retry_ms(&mut self) -> u64 {
        let mut random = [0; 8];
        self.entropy.fill(&mut random);
        let usual_ms = self.config.retry_ms;
        usual_ms + u64::from_le_bytes(random) % (usual_ms + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms, unix_s: 0 }
    }

    #[test]
    fn connections_are_looked_at_in_proportion_to_the_time() {
        let mut drain = Drain::begin(100_000, 10_000, at(500));
        assert_eq!((drain.due, drain.next_step_ms(500)), (0, Some(500 + DRAIN_STEP_MS)));
        drain.advance(at(500 + 5_000));
        assert_eq!(drain.due, 50_000);
        drain.advance(at(500 + 9_999));
        assert!(drain.due < drain.end);
        assert_eq!(drain.next_step_ms(500 + 9_999), Some(10_500));
        drain.advance(at(10_500));
        assert_eq!((drain.due, drain.next_step_ms(10_500)), (100_000, None));
    }

    #[test]
    fn few_connections_do_not_take_the_whole_time() {
        let spread_ms = |connections| Drain::begin(connections, 10_000, at(0)).spread_ms;
        assert_eq!(spread_ms(0), 0);
        assert_eq!(spread_ms(100), 100 * 1_000 / DRAIN_ENDS_PER_S_MIN);
        assert_eq!(spread_ms(1_000_000), 10_000);
        assert_eq!(Drain::begin(7, 0, at(0)).due, 7, "no time, no waiting");
    }
}
