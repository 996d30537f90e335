//! The roll of a worker's clients: ordered, joining, in place, failed.
//!
//! Owns the pace of the ramp and the bound on handshakes under way. Clients that a scenario opens for itself (a
//! publisher, a cycle of churn) are not on the roll. One byte per client.

use crate::clock::{Moment, Pace};
use crate::fleet::ClientId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not on the roll.
    Stranger,
    Joining,
    InPlace,
    Failed,
}

/// The roll.
#[derive(Debug)]
pub(crate) struct Crew {
    standings: Vec<Standing>,
    ordered: u64,
    joining: u64,
    in_place: u64,
    failed: u64,
    joining_max: u64,
    pace: Option<Pace>,
}

impl Crew {
    /// An empty roll that lets `joining_max` clients join at once.
    pub(crate) fn new(joining_max: u64) -> Self {
        Self {
            standings: Vec::new(),
            ordered: 0,
            joining: 0,
            in_place: 0,
            failed: 0,
            joining_max: joining_max.max(1),
            pace: None,
        }
    }

    /// Orders clients until there are `count`; a rate of 0 is as fast as they come.
    pub(crate) fn order(&mut self, count: u64, per_second: f64, now: Moment) {
        self.ordered = self.ordered.max(count);
        self.pace = (per_second > 0.0).then(|| Pace::new(now, per_second));
    }

    /// Whether a client is to be opened now, and when it was meant to be.
    pub(crate) fn take(&mut self, now: Moment) -> Option<Moment> {
        let has_room = self.joining < self.joining_max && !self.is_complete_order();
        match &mut self.pace {
            _ if !has_room => None,
            Some(pace) => pace.take(now),
            None => Some(now),
        }
    }

    /// When the next client is to be opened, if only time is missing.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        let has_room = self.joining < self.joining_max && !self.is_complete_order();
        self.pace.as_ref().filter(|_| has_room).and_then(Pace::next)
    }

    /// Whether clients could be opened at this moment without regard to time.
    pub(crate) fn is_eager(&self) -> bool {
        self.pace.is_none() && self.joining < self.joining_max && !self.is_complete_order()
    }

    fn is_complete_order(&self) -> bool {
        self.joining + self.in_place + self.failed >= self.ordered
    }

    /// Puts a client that was just opened on the roll.
    pub(crate) fn enrol(&mut self, who: ClientId) {
        if self.standings.len() <= who.index() {
            self.standings.resize(who.index() + 1, Standing::Stranger);
        }
        self.standings[who.index()] = Standing::Joining;
        self.joining += 1;
    }

    /// The client is in place; says whether it is so for the first time since it joined or was lost.
    pub(crate) fn establish(&mut self, who: ClientId) -> bool {
        match self.standing(who) {
            Standing::Joining => self.joining -= 1,
            Standing::Failed => self.failed -= 1,
            Standing::InPlace | Standing::Stranger => return false,
        }
        self.in_place += 1;
        self.replace(who, Standing::InPlace);
        true
    }

    /// The client failed to join, or is in place no more.
    pub(crate) fn lose(&mut self, who: ClientId) {
        match self.standing(who) {
            Standing::Joining => self.joining -= 1,
            Standing::InPlace => self.in_place -= 1,
            Standing::Failed | Standing::Stranger => return,
        }
        self.failed += 1;
        self.replace(who, Standing::Failed);
    }

    /// Whether the client is on the roll.
    pub(crate) fn has(&self, who: ClientId) -> bool {
        self.standing(who) != Standing::Stranger
    }

    /// Whether the client is in place.
    pub(crate) fn is_in_place(&self, who: ClientId) -> bool {
        self.standing(who) == Standing::InPlace
    }

    /// Clients in place.
    pub(crate) fn in_place(&self) -> u64 {
        self.in_place
    }

    /// Clients that failed to join or were lost.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Clients ordered.
    pub(crate) fn ordered(&self) -> u64 {
        self.ordered
    }

    /// Whether every client ordered is in place or failed.
    pub(crate) fn is_grown(&self) -> bool {
        self.in_place + self.failed >= self.ordered
    }

    fn standing(&self, who: ClientId) -> Standing {
        self.standings.get(who.index()).copied().unwrap_or(Standing::Stranger)
    }

    fn replace(&mut self, who: ClientId, standing: Standing) -> Standing {
        self.standings
            .get_mut(who.index())
            .map_or(Standing::Stranger, |current| std::mem::replace(current, standing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_join_at_once_than_allowed_and_no_more_in_all_than_ordered() {
        let now = Moment::default();
        let mut crew = Crew::new(2);
        crew.order(3, 0.0, now);
        for index in 0..2 {
            assert!(crew.take(now).is_some());
            crew.enrol(ClientId::for_test(index));
        }
        assert!(crew.take(now).is_none());
        assert!(crew.establish(ClientId::for_test(0)));
        assert!(crew.take(now).is_some());
        crew.enrol(ClientId::for_test(2));
        crew.lose(ClientId::for_test(1));
        crew.lose(ClientId::for_test(2));
        assert!(crew.take(now).is_none());
        assert!(crew.is_grown());
        assert_eq!((crew.in_place(), crew.failed()), (1, 2));
    }
}
