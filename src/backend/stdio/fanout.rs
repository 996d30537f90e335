//! What one child has to say to many clients, some of them per turn.
//!
//! Owns the messages and who is still to get them. Bounded: of each kind of message (and each resource) of a place there is
//! at most one that has not begun, and one that has; a further one says nothing that the first does not.

use super::client::Client;
use crate::{
    core::seam::{Notification, NotificationKind, Tell},
    limits::SENDS_PER_TURN_MAX,
};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Fanout {
    queue: VecDeque<Round>,
}

#[derive(Debug)]
struct Round {
    place: usize,
    message: Notification,
    clients: Vec<Client>,
    next: usize,
}

impl Fanout {
    /// Something for the given clients of a place. They are asked for only if it has not been said already.
    pub(super) fn push(
        &mut self,
        place: usize,
        message: Notification,
        clients: impl FnOnce() -> Vec<Client>,
    ) {
        let same =
            |round: &Round, kind: &NotificationKind| round.place == place && round.message.kind == *kind;
        if self.queue.iter().any(|round| round.next == 0 && same(round, &message.kind)) {
            return;
        }
        let clients = clients();
        if !clients.is_empty() {
            self.queue.push_back(Round { place, message, clients, next: 0 });
        }
    }

    /// Hands out a turn's share.
    pub(super) fn hand_out(&mut self, out: &mut Vec<Tell>) {
        let mut left = SENDS_PER_TURN_MAX;
        while left > 0
            && let Some(round) = self.queue.front_mut()
        {
            let rest = &round.clients[round.next..];
            let share = rest.len().min(left);
            out.extend(rest[..share].iter().map(|client| match client {
                Client::Session(session) => Tell::Announce(*session, round.message.clone()),
                Client::Alone(listen) => Tell::Notify(*listen, round.message.clone()),
            }));
            round.next += share;
            left -= share;
            if round.next == round.clients.len() {
                self.queue.pop_front();
            }
        }
    }

    /// A place is gone: another may get its number.
    pub(super) fn forget(&mut self, place: usize) {
        self.queue.retain(|round| round.place != place);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{
        backend::notification::tools_list_changed,
        core::seam::{Generation, SessionKey},
    };
    use std::num::NonZeroU64;

    fn sessions(count: u32) -> Vec<Client> {
        let generation = Generation(NonZeroU64::new(1).unwrap());
        (0..count).map(|slot| Client::Session(SessionKey { slot, generation })).collect()
    }

    #[test]
    fn everyone_gets_it_and_no_turn_is_too_long() {
        let (mut fanout, mut total) = (Fanout::default(), 0);
        fanout.push(0, tools_list_changed(), || sessions(300));
        while !fanout.is_empty() {
            let mut out = Vec::new();
            fanout.hand_out(&mut out);
            assert!(!out.is_empty() && out.len() <= SENDS_PER_TURN_MAX);
            total += out.len();
        }
        assert_eq!(total, 300);
    }

    #[test]
    fn what_is_waiting_is_not_said_twice() {
        let (mut fanout, mut out) = (Fanout::default(), Vec::new());
        for place in [0, 1, 0, 1, 0] {
            fanout.push(place, tools_list_changed(), || sessions(100));
        }
        assert_eq!(fanout.queue.len(), 2);
        fanout.hand_out(&mut out);
        // The second has begun, and those it has reached have to hear of what came since.
        fanout.push(1, tools_list_changed(), || sessions(100));
        fanout.push(1, tools_list_changed(), || sessions(100));
        assert_eq!(fanout.queue.len(), 2);
    }
}
