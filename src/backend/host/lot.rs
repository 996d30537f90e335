//! Handlers that wait for their clients to come back (2026-07-28).
//!
//! Owns the places of a shard's parked handlers, the sealed names of these places that clients carry (`requestState`), and
//! when each is given up. It must never trust a byte of a state: it is a ticket number and an HMAC-SHA256 over that number
//! and the [digest](super::super::rounds::digest) of principal, method and parameters, under a key that this shard drew at
//! random and nobody else knows.
//!
//! `moorline.SHARD.` stands before it in the clear, so that whichever shard hears from the client can hand the connection on.
//! A ticket is good once: each round draws a new one. Tickets only grow, so the first is the oldest.
//!
//! Bounded by [`PARKED_HANDLERS_MAX`] and [`PARKED_BYTES_MAX`]; beyond, the oldest of whichever principal has most are given up:
//! one who fills the lot drives out nobody else. About 200 bytes for each beside what its handler takes, O(log n) for
//! everything but that choice, which looks at all principals.

use crate::core::seam::{Principal, ShardId};
use crate::limits::{PARKED_BYTES_MAX, PARKED_HANDLERS_MAX};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::time::Instant;

/// A shard's parked handlers. `P` is where a handler is.
pub(in crate::backend) struct Lot<P> {
    shard: ShardId,
    seal: Hmac<Sha256>,
    last: u64,
    parked: BTreeMap<u64, Parked<P>>,
    due: BTreeSet<(Instant, u64)>,
    /// Nobody's is the share of all who are not asked who they are.
    shares: HashMap<Option<Principal>, Share>,
    bytes: usize,
}

/// What one principal has parked.
#[derive(Default)]
struct Share {
    tickets: BTreeSet<u64>,
    bytes: usize,
}

struct Parked<P> {
    place: P,
    owner: Option<Principal>,
    due: Instant,
    bytes: usize,
}

impl<P> Lot<P> {
    pub(in crate::backend) fn new(shard: ShardId) -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("Linux has random bytes once it has booted");
        let seal = Hmac::new_from_slice(&key).expect("an HMAC takes a key of any length");
        Lot {
            shard,
            seal,
            last: 0,
            parked: BTreeMap::new(),
            due: BTreeSet::new(),
            shares: HashMap::new(),
            bytes: 0,
        }
    }

    /// Parks a handler of this principal that takes about so many bytes; returns its state.
    pub(in crate::backend) fn park(
        &mut self,
        place: P,
        owner: Option<Principal>,
        digest: &[u8; 32],
        due: Instant,
        bytes: usize,
    ) -> (u64, String) {
        self.last += 1;
        let ticket = self.last;
        let share = self.shares.entry(owner.clone()).or_default();
        share.tickets.insert(ticket);
        share.bytes += bytes;
        self.parked.insert(ticket, Parked { place, owner, due, bytes });
        self.due.insert((due, ticket));
        self.bytes += bytes;
        (ticket, self.state(ticket, digest))
    }

    fn state(&self, ticket: u64, digest: &[u8; 32]) -> String {
        let tag = self.tag(ticket, digest).finalize().into_bytes();
        let sealed = [&ticket.to_be_bytes()[..], &tag[..]].concat();
        format!("moorline.{}.{}", self.shard.0, URL_SAFE_NO_PAD.encode(sealed))
    }

    fn tag(&self, ticket: u64, digest: &[u8; 32]) -> Hmac<Sha256> {
        self.seal.clone().chain_update(ticket.to_be_bytes()).chain_update(digest)
    }

    /// Gives back the handler this state names, if it is for this request and the handler is still here.
    pub(in crate::backend) fn claim(&mut self, state: &str, digest: &[u8; 32]) -> Option<P> {
        let sealed = state.strip_prefix("moorline.")?.strip_prefix(&self.shard.0.to_string())?;
        let sealed = URL_SAFE_NO_PAD.decode(sealed.strip_prefix('.')?).ok()?;
        let (ticket, tag) = sealed.split_first_chunk()?;
        let ticket = u64::from_be_bytes(*ticket);
        self.tag(ticket, digest).verify_slice(tag).ok()?;
        self.remove(ticket)
    }

    /// Where the handler with that ticket is.
    pub(in crate::backend) fn place_mut(&mut self, ticket: u64) -> Option<&mut P> {
        self.parked.get_mut(&ticket).map(|parked| &mut parked.place)
    }

    /// The oldest of whoever has most, if there is no room for one more of that size.
    pub(in crate::backend) fn crowded_out(&mut self, bytes: usize) -> Option<P> {
        let oldest = if self.parked.len() >= PARKED_HANDLERS_MAX {
            self.oldest_of_most(|share| share.tickets.len())
        } else if self.bytes + bytes > PARKED_BYTES_MAX {
            self.oldest_of_most(|share| share.bytes)
        } else {
            None
        };
        self.remove(oldest?)
    }

    fn oldest_of_most(&self, size: impl Fn(&Share) -> usize) -> Option<u64> {
        self.shares.values().max_by_key(|share| size(share))?.tickets.first().copied()
    }

    /// One whose time is over.
    pub(in crate::backend) fn expired(&mut self, now: Instant) -> Option<P> {
        let &(due, ticket) = self.due.first()?;
        if due <= now { self.remove(ticket) } else { None }
    }

    /// When the next one's time is over.
    pub(in crate::backend) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(in crate::backend) fn len(&self) -> usize {
        self.parked.len()
    }

    fn remove(&mut self, ticket: u64) -> Option<P> {
        let parked = self.parked.remove(&ticket)?;
        self.due.remove(&(parked.due, ticket));
        self.bytes -= parked.bytes;
        let share = self.shares.get_mut(&parked.owner).expect("whoever parked has a share");
        share.tickets.remove(&ticket);
        share.bytes -= parked.bytes;
        if share.tickets.is_empty() {
            self.shares.remove(&parked.owner);
        }
        Some(parked.place)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::time::Duration;

    const MINE: [u8; 32] = [1; 32];

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_state_is_good_once_and_for_its_request_only() {
        let mut lot = Lot::new(ShardId(12));
        let (_, state) = lot.park('a', None, &MINE, later(1), 10);
        assert!(state.starts_with("moorline.12."), "{state}");
        assert_eq!(lot.claim(&state, &[2; 32]), None, "another request");
        assert_eq!(lot.claim(&state, &MINE), Some('a'));
        assert_eq!(lot.claim(&state, &MINE), None, "a second time");
        assert_eq!((lot.len(), lot.bytes, lot.due.len(), lot.shares.len()), (0, 0, 0, 0));
    }

    #[test]
    fn no_byte_of_a_state_can_be_changed() {
        let mut lot = Lot::new(ShardId(3));
        let (_, state) = lot.park('a', None, &MINE, later(1), 10);
        for index in 0..state.len() {
            let mut other = state.clone().into_bytes();
            other[index] = if other[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(lot.claim(&String::from_utf8(other).unwrap(), &MINE), None, "byte {index}");
            assert_eq!(lot.claim(&state[..index], &MINE), None, "cut at {index}");
        }
        for other in [format!("{state}-TAMPERED"), format!("{state}A"), String::new(), "moorline.3.".into()] {
            assert_eq!(lot.claim(&other, &MINE), None, "{other}");
        }
        let (_, foreign) = Lot::new(ShardId(3)).park('b', None, &MINE, later(1), 10);
        assert_eq!(lot.claim(&foreign, &MINE), None, "of another process");
        assert_eq!(lot.claim(&state, &MINE), Some('a'));
    }

    #[test]
    fn the_oldest_makes_room_and_the_late_go() {
        let mut lot = Lot::new(ShardId(0));
        for number in 0..PARKED_HANDLERS_MAX {
            assert_eq!(lot.crowded_out(1), None);
            lot.park(number, None, &MINE, later(if number == 5 { 10 } else { 100 }), 1);
        }
        assert_eq!(lot.crowded_out(1), Some(0));
        assert_eq!(lot.crowded_out(1), None);
        assert_eq!(lot.crowded_out(PARKED_BYTES_MAX), Some(1), "bytes count, too");
        assert_eq!(lot.expired(later(20)), Some(5));
        assert_eq!(lot.expired(later(20)), None);
    }

    #[test]
    fn who_fills_the_lot_drives_out_nobody_else() {
        for bytes in [1, PARKED_BYTES_MAX / 64] {
            let mut lot = Lot::new(ShardId(0));
            let (modest, hostile) = (Some(Principal::new("ada")), Some(Principal::new("eve")));
            lot.park("ada", modest.clone(), &MINE, later(100), bytes);
            let mut driven_out = 0;
            for _ in 0..2 * PARKED_HANDLERS_MAX {
                while let Some(place) = lot.crowded_out(bytes) {
                    assert_eq!(place, "eve");
                    driven_out += 1;
                }
                lot.park("eve", hostile.clone(), &MINE, later(100), bytes);
            }
            assert!(driven_out >= PARKED_HANDLERS_MAX);
            while lot.crowded_out(bytes).is_some() {}
            lot.park("ada", modest, &MINE, later(100), bytes);
            assert!(lot.bytes <= PARKED_BYTES_MAX);
        }
    }
}
