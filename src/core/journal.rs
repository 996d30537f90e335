//! The access log: which requests are noted, and what is said of each.
//!
//! Owns the notes of sampled requests until they are over. Must never hold what identifies a client or what it says: no
//! session id, no token, no path but the endpoint's, no payload.
//!
//! Which requests are noted is decided by counting, not by chance: of a rate of 0.01 it is every hundredth of a shard. While
//! it is off a request costs one comparison and no memory; while it is on, a note per sampled request that runs, and one
//! look into a map per reply.

use super::{
    http::{Method, head::Target, status::Status},
    seam::Now,
    shard::Shard,
    table::{ConnSlot, Slot as _},
};
use crate::limits::ACCESS_NOTES_MAX;
use std::collections::{BTreeMap, VecDeque};

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// What it asked for.
    pub method: Method,
    /// Of what.
    pub target: Resource,
    /// The reply's status; `None` if the connection ended before there was one.
    pub status: Option<u16>,
    /// From the end of its head to the end of its reply, as far as the kernel has taken it.
    pub duration_ms: u64,
    /// Bytes of the reply that the kernel has taken, heads and framing included.
    pub bytes: u64,
    /// How it ended.
    pub end: NotedEnd,
}

/// What a request was for, as far as it may be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The MCP endpoint.
    Endpoint,
    /// Anything else.
    Other,
}

/// How a noted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotedEnd {
    /// Its whole reply was written.
    Whole,
    /// The connection ended first.
    Cut,
}

/// What the notes of one shard are.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Grows by the rate with each request, in millionths; each whole one is a note.
    due_ppm: u32,
    /// By number of the connection, which has one request at a time.
    running: BTreeMap<u32, Running>,
    over: VecDeque<Noted>,
}

#[derive(Debug)]
struct Running {
    method: Method,
    target: Resource,
    status: Option<u16>,
    start_ms: u64,
    start_bytes: u64,
}

const WHOLE_PPM: u32 = 1_000_000;

impl Journal {
    /// Whether the next request is noted.
    fn draw(&mut self, rate_ppm: u32) -> bool {
        self.due_ppm += rate_ppm.min(WHOLE_PPM);
        let is_due = self.due_ppm >= WHOLE_PPM;
        if is_due {
            self.due_ppm -= WHOLE_PPM;
        }
        is_due
    }
}

impl Shard {
    /// A request's head is complete.
    pub(super) fn note_request(&mut self, conn: ConnSlot, method: Method, target: Target<'_>, now: Now) {
        if self.config.access_log_ppm == 0 || !self.journal.draw(self.config.access_log_ppm) {
            return;
        }
        let is_endpoint = self.config.policy.locate(target).is_ok();
        let target = if is_endpoint { Resource::Endpoint } else { Resource::Other };
        let start_bytes = self.written_bytes(conn);
        let running = Running { method, target, status: None, start_ms: now.ms, start_bytes };
        self.journal.running.insert(conn.number(), running);
    }

    /// It goes to another shard with its connection: there it is a request again, here it was none.
    pub(super) fn unnote_request(&mut self, conn: ConnSlot) {
        let rate_ppm = self.config.access_log_ppm.min(WHOLE_PPM);
        let was_noted = self.journal.running.remove(&conn.number()).is_some();
        let due_ppm = self.journal.due_ppm + if was_noted { WHOLE_PPM } else { 0 };
        self.journal.due_ppm = due_ppm.saturating_sub(rate_ppm);
    }

    /// The head of a reply is queued.
    pub(super) fn note_status(&mut self, conn: ConnSlot, status: Status) {
        if let Some(running) = self.journal.running.get_mut(&conn.number()) {
            running.status = Some(status.code());
        }
    }

    /// The exchange on this connection is over.
    pub(super) fn note_end(&mut self, conn: ConnSlot, end: NotedEnd, now: Now) {
        let Some(running) = self.journal.running.remove(&conn.number()) else { return };
        if self.journal.over.len() >= ACCESS_NOTES_MAX {
            self.counters.access_notes_dropped += 1;
            return;
        }
        self.journal.over.push_back(Noted {
            method: running.method,
            target: running.target,
            status: running.status,
            duration_ms: now.ms.saturating_sub(running.start_ms),
            bytes: self.written_bytes(conn).saturating_sub(running.start_bytes),
            end,
        });
    }

    /// The next request that is over and is to be written to the log.
    pub fn next_noted(&mut self) -> Option<Noted> {
        self.journal.over.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_by_counting() {
        for (rate_ppm, expected) in
            [(0, 0), (1, 0), (1_000, 1), (10_000, 10), (333_333, 333), (1_000_000, 1_000)]
        {
            let mut log = Journal::default();
            assert_eq!((0..1_000).filter(|_| log.draw(rate_ppm)).count(), expected, "{rate_ppm}");
        }
    }
}
