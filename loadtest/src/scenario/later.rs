//! Clients that are to act again at a later moment: reconnection times and retries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Moment;
use crate::fleet::ClientId;

/// Clients by the moment they are to act.
#[derive(Debug, Default)]
pub(crate) struct Later(BinaryHeap<Reverse<(Moment, ClientId)>>);

impl Later {
    /// Lets the client act at `due`.
    pub(crate) fn put(&mut self, due: Moment, who: ClientId) {
        self.0.push(Reverse((due, who)));
    }

    /// A client whose moment has come.
    pub(crate) fn take(&mut self, now: Moment) -> Option<ClientId> {
        self.next_due().filter(|due| *due <= now)?;
        self.0.pop().map(|Reverse((_, who))| who)
    }

    /// When the next client is to act.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_acts_first_and_none_too_early() {
        let start = Moment::default();
        let [a, b] = [0, 1].map(ClientId::for_test);
        let mut later = Later::default();
        later.put(start.plus_ms(20), a);
        later.put(start.plus_ms(10), b);
        assert_eq!(later.take(start.plus_ms(9)), None);
        assert_eq!(later.take(start.plus_ms(30)), Some(b));
        assert_eq!(later.take(start.plus_ms(30)), Some(a));
        assert_eq!(later.next_due(), None);
    }
}
