//! Process-wide counts that per-shard quotas would get wrong by the hash's imbalance.
//!
//! Owned by all shards together; touched only when a connection is accepted or ends, when a session begins or ends, in
//! steps by what shards hold, and when a request is read on one shard for another: never on the usual request or keep-alive
//! path.

use super::ledger::Ledger;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many connections and sessions the process has.
#[derive(Debug)]
pub struct Census {
    connections: AtomicUsize,
    sessions: AtomicUsize,
    /// Shards whose drain is not complete.
    unfinished_shards: AtomicUsize,
    ledger: Ledger,
    /// Bytes held for clients, as far as shards have said so.
    kept: AtomicUsize,
}

impl Default for Census {
    fn default() -> Self {
        Census::new()
    }
}

impl Census {
    /// Nobody yet. The ledger of clients is for tests: what it hides from them is known to everybody.
    pub fn new() -> Self {
        Census::seeded(0)
    }

    /// Nobody yet; `seed` is one that no client knows.
    pub fn seeded(seed: u64) -> Self {
        Census {
            connections: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            unfinished_shards: AtomicUsize::new(0),
            ledger: Ledger::new(seed),
            kept: AtomicUsize::new(0),
        }
    }

    /// What each client has.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes held for clients, as far as shards have said so: each is behind by less than a
    /// [step](crate::limits::MEMORY_STEP_BYTES).
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// A shard that had said it holds `before` bytes holds `now`.
    pub(super) fn change_kept(&self, before: usize, now: usize) {
        self.kept.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Connections at present.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sessions at present.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(super) fn shard_began(&self) {
        self.unfinished_shards.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn shard_finished(&self) {
        leave(&self.unfinished_shards);
    }

    /// It had finished, and was asked for something again.
    pub(super) fn shard_resumed(&self) {
        self.shard_began();
    }

    pub(super) fn all_shards_finished(&self) -> bool {
        self.unfinished_shards.load(Ordering::Relaxed) == 0
    }

    pub(super) fn enter_connection(&self, max: usize) -> Result<(), Full> {
        enter(&self.connections, max)
    }

    pub(super) fn leave_connection(&self) {
        leave(&self.connections);
    }

    pub(super) fn enter_session(&self, max: usize) -> Result<(), Full> {
        enter(&self.sessions, max)
    }

    pub(super) fn leave_session(&self) {
        leave(&self.sessions);
    }
}

/// The cap is reached; nothing was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

fn enter(count: &AtomicUsize, max: usize) -> Result<(), Full> {
    if count.fetch_add(1, Ordering::Relaxed) < max {
        return Ok(());
    }
    leave(count);
    Err(Full)
}

fn leave(count: &AtomicUsize) {
    let before = count.fetch_sub(1, Ordering::Relaxed);
    debug_assert!(before > 0, "someone left who never entered");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_holds_and_a_refused_newcomer_is_not_counted() {
        let census = Census::new();
        assert_eq!(census.enter_session(2), Ok(()));
        assert_eq!(census.enter_session(2), Ok(()));
        assert_eq!(census.enter_session(2), Err(Full));
        assert_eq!(census.sessions(), 2);
        census.leave_session();
        assert_eq!(census.enter_session(2), Ok(()));
    }
}
