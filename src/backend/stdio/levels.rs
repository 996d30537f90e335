//! Which log messages the clients of one shared child asked for.
//!
//! Owns the levels that were asked for and how often each: the lowest of them is what the child is told. O(1).

use super::client::Client;
use crate::core::seam::LogLevel;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default)]
pub(super) struct Levels {
    by_client: HashMap<Client, LogLevel>,
    counts: BTreeMap<LogLevel, usize>,
}

impl Levels {
    /// A client asks for a level. Whether the lowest one is another now.
    pub(super) fn set(&mut self, client: Client, level: LogLevel) -> bool {
        let before = self.lowest();
        if let Some(former) = self.by_client.insert(client, level) {
            self.forget(former);
        }
        *self.counts.entry(level).or_default() += 1;
        self.lowest() != before
    }

    /// A client is gone. Whether the lowest level is another now.
    pub(super) fn remove(&mut self, client: Client) -> bool {
        let before = self.lowest();
        if let Some(former) = self.by_client.remove(&client) {
            self.forget(former);
        }
        self.lowest() != before
    }

    /// The child is gone with every request that was under way.
    pub(super) fn forget_requests(&mut self) {
        let requests: Vec<Client> =
            self.by_client.keys().copied().filter(|client| matches!(client, Client::Alone(_))).collect();
        for request in requests {
            self.remove(request);
        }
    }

    /// What a client asked for.
    pub(super) fn of(&self, client: Client) -> Option<LogLevel> {
        self.by_client.get(&client).copied()
    }

    /// The lowest level anyone asked for.
    pub(super) fn lowest(&self) -> Option<LogLevel> {
        self.counts.keys().next().copied()
    }

    fn forget(&mut self, level: LogLevel) {
        if let Some(count) = self.counts.get_mut(&level) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&level);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::core::seam::{Generation, SessionKey};
    use std::num::NonZeroU64;

    #[test]
    fn the_lowest_level_anyone_wants_is_known() {
        let session = |slot| {
            let generation = Generation(NonZeroU64::new(1).unwrap());
            Client::Session(SessionKey { slot, generation })
        };
        let mut levels = Levels::default();
        assert_eq!(levels.lowest(), None);
        assert!(levels.set(session(1), LogLevel::Error));
        assert!(!levels.set(session(2), LogLevel::Critical));
        assert!(levels.set(session(2), LogLevel::Debug));
        assert!(!levels.set(session(3), LogLevel::Debug));
        assert!(!levels.remove(session(2)));
        assert!(levels.remove(session(3)));
        assert_eq!(levels.lowest(), Some(LogLevel::Error));
        assert!(levels.remove(session(1)));
        assert!(!levels.remove(session(1)));
        assert_eq!(levels.lowest(), None);
    }
}
