//! Which client received which publication, and how long after its intended moment.
//!
//! Owns the proof of "exactly once": a bit per client and publication. A client owes receipts from the
//! publication it joined at; one bit set twice is a duplicate, one never set is a loss. Only
//! publications the server accepted are held against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::Latencies;
use crate::fleet::ClientId;

/// Publications of one run at most.
pub(crate) const PUBLICATIONS_MAX: u32 = 100_000;

/// Receipts of the clients of one worker.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    clients: Vec<Option<Receiver>>,
    deliveries: BTreeMap<u32, Delivery>,
}

#[derive(Debug)]
struct Receiver {
    joined_at: u32,
    seen: Vec<u64>,
}

/// What happened to one publication at the clients of one worker, or of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Clients that should have received it.
    pub(crate) due: u64,
    /// Clients that did.
    pub(crate) received: u64,
    /// Receipts beyond the first of a client.
    pub(crate) duplicates: u64,
    /// From the intended moment to each first receipt.
    pub(crate) latencies: Latencies,
}

impl Default for Delivery {
    fn default() -> Self {
        Self { due: 0, received: 0, duplicates: 0, latencies: Latencies::coarse() }
    }
}

impl Delivery {
    /// Adds another worker's part.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.due += other.due;
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.latencies.merge(&other.latencies);
    }
}

impl Receipts {
    /// From publication `next_seq` on the client is owed every one; a second joining changes nothing.
    pub(crate) fn join(&mut self, who: ClientId, next_seq: u32) {
        if self.clients.len() <= who.index() {
            self.clients.resize_with(who.index() + 1, || None);
        }
        self.clients[who.index()].get_or_insert(Receiver { joined_at: next_seq, seen: Vec::new() });
    }

    /// The client is owed nothing any more: its stream is gone, which is counted elsewhere.
    pub(crate) fn leave(&mut self, who: ClientId) {
        if let Some(client) = self.clients.get_mut(who.index()) {
            *client = None;
        }
    }

    /// Notes a receipt; false when it is a duplicate.
    pub(crate) fn note(&mut self, who: ClientId, seq: u32, latency_us: u64) -> bool {
        let Some(Some(receiver)) = self.clients.get_mut(who.index()) else { return true };
        let delivery = self.deliveries.entry(seq.min(PUBLICATIONS_MAX)).or_default();
        let is_first = receiver.see(seq);
        if !is_first {
            delivery.duplicates += 1;
        } else if seq >= receiver.joined_at {
            delivery.received += 1;
            delivery.latencies.record(latency_us);
        }
        is_first
    }

    /// The publication that comes next for a client that missed none.
    pub(crate) fn next_expected(&self, who: ClientId) -> Option<u32> {
        let receiver = self.clients.get(who.index())?.as_ref()?;
        let seen: u32 = receiver.seen.iter().map(|word| word.count_ones()).sum();
        Some(receiver.joined_at + seen)
    }

    /// Closes the books over the publications before `end_seq`.
    pub(crate) fn settle(mut self, end_seq: u32) -> BTreeMap<u32, Delivery> {
        for receiver in self.clients.iter().flatten() {
            for seq in receiver.joined_at..end_seq {
                self.deliveries.entry(seq).or_default().due += 1;
            }
        }
        self.deliveries
    }
}

impl Receiver {
    fn see(&mut self, seq: u32) -> bool {
        let (word, bit) = ((seq.min(PUBLICATIONS_MAX) / 64) as usize, 1 << (seq % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let is_first = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_duplicates_are_told_apart() {
        let (a, b) = (ClientId::for_test(0), ClientId::for_test(1));
        let mut receipts = Receipts::default();
        receipts.join(a, 0);
        receipts.join(b, 1);
        assert!(receipts.note(a, 0, 10));
        assert!(receipts.note(a, 1, 10));
        assert!(!receipts.note(a, 1, 20));
        assert!(receipts.note(b, 70, 10));
        let settled = receipts.settle(2);
        let facts = |seq| settled.get(&seq).map(|d: &Delivery| (d.due, d.received, d.duplicates));
        assert_eq!(facts(0), Some((1, 1, 0)));
        assert_eq!(facts(1), Some((2, 1, 1)));
    }

    #[test]
    fn who_left_owes_nothing() {
        let a = ClientId::for_test(0);
        let mut receipts = Receipts::default();
        receipts.join(a, 0);
        receipts.leave(a);
        assert!(receipts.settle(5).is_empty());
    }
}
