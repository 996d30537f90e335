//! Which place is whose, where places come and go: that of a principal, of a session, or of anyone.
//!
//! Owns the owners and the making and giving up of their places. A program of an older revision has a place for each principal
//! of 2026-07-28. One that speaks 2026-07-28 has places that do for anyone, up to a number, if sharing was not forbidden;
//! otherwise one for each session besides. Which of those serves a principal follows from its name: what one call does, and
//! the program tells those who listen, has to meet that principal's listen streams. A place that nobody has used for a while is given up, save that of a session,
//! which lasts as long as that.
//!
//! Finding those that nobody uses looks at all of them once per poll: there are no more than `--max-children`.

use super::{
    Common,
    shared::{Division, Place, Shared, State},
};
use crate::core::seam::{Call, Principal, SessionKey, Tell};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

/// Whom a place is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// Without `--auth` all clients are one.
    Principal(Option<Principal>),
    Session(SessionKey),
    /// Numbered.
    Anyone(usize),
}

pub(super) struct Owners {
    by_owner: HashMap<Owner, usize>,
    idle: Duration,
    /// Places for anyone; 0: none is shared.
    shared_max: usize,
}

impl Owners {
    pub(super) fn new(idle: Duration, shared_max: usize) -> Self {
        Owners { by_owner: HashMap::new(), idle, shared_max }
    }

    fn place(&self, owner: &Owner) -> Option<usize> {
        self.by_owner.get(owner).copied()
    }

    /// The place for anyone that serves this principal, unless none is shared.
    fn share_of(&self, principal: &Option<Principal>) -> Option<Owner> {
        let mut hasher = DefaultHasher::new();
        principal.hash(&mut hasher);
        let shared_max = u64::try_from(self.shared_max).expect("a usize has at most 64 bits");
        let number = hasher.finish().checked_rem(shared_max)?;
        Some(Owner::Anyone(usize::try_from(number).expect("less than a usize")))
    }

    fn vacancy(&self) -> Option<Owner> {
        (0..self.shared_max).map(Owner::Anyone).find(|owner| !self.by_owner.contains_key(owner))
    }

    fn of_anyone(&self) -> impl Iterator<Item = usize> {
        (0..self.shared_max).filter_map(|number| self.by_owner.get(&Owner::Anyone(number)).copied())
    }
}

impl Shared {
    /// The place that serves such a request without a session. `None` if there is none, and no room to make one.
    pub(super) fn place_of(&mut self, common: &mut Common, call: &Call, now: Instant) -> Option<usize> {
        match &self.division {
            Division::Even => self.least_loaded(common, self.places.iter().map(|(at, _)| at)),
            Division::Owned(owners) => {
                let own = Owner::Principal(call.principal.clone());
                let shared = owners.share_of(&call.principal).filter(|_| common.alike.is_known());
                // One that has a place of its own stays there as long as it is used.
                let known = owners.place(&own).or_else(|| owners.place(shared.as_ref()?));
                known.or_else(|| self.make_place(common, shared.unwrap_or(own), now))
            }
        }
    }

    /// The place where a session begins.
    pub(super) fn place_for_session(
        &mut self,
        common: &mut Common,
        session: SessionKey,
        now: Instant,
    ) -> Option<usize> {
        match &self.division {
            Division::Even => {
                self.places.iter().min_by_key(|(_, place)| place.members.len()).map(|(at, _)| at)
            }
            Division::Owned(owners) if owners.shared_max > 0 => self.place_of_anyone(common, now),
            Division::Owned(_) => self.make_place(common, Owner::Session(session), now),
        }
    }

    /// A new one as long as there may be more.
    fn place_of_anyone(&mut self, common: &mut Common, now: Instant) -> Option<usize> {
        let Division::Owned(owners) = &self.division else { return None };
        let vacancy = owners.vacancy();
        let made = vacancy.and_then(|owner| self.make_place(common, owner, now));
        made.or_else(|| {
            let Division::Owned(owners) = &self.division else { return None };
            self.least_loaded(common, owners.of_anyone())
        })
    }

    fn least_loaded(&self, common: &Common, places: impl Iterator<Item = usize>) -> Option<usize> {
        places.min_by_key(|at| self.places[*at].load(common) + self.places[*at].members.len())
    }

    fn make_place(&mut self, common: &mut Common, owner: Owner, now: Instant) -> Option<usize> {
        let at = self.places.insert(Place { used: Some(now), ..Place::default() });
        self.start(common, at, now);
        if !matches!(self.places[at].state, State::Starting(..)) {
            self.places.remove(at);
            return None;
        }
        self.give_place(at, owner);
        Some(at)
    }

    pub(super) fn give_place(&mut self, at: usize, owner: Owner) {
        let Division::Owned(owners) = &mut self.division else { return };
        if let Some(former) = self.places[at].owner.replace(owner.clone()) {
            owners.by_owner.remove(&former);
        }
        owners.by_owner.insert(owner, at);
    }

    /// The child of a place speaks 2026-07-28: it does for anyone, if there may be more of those. Whether it does now.
    pub(super) fn open_place(&mut self, at: usize) -> bool {
        let Division::Owned(owners) = &self.division else { return true };
        let wanted = match &self.places[at].owner {
            Some(Owner::Principal(principal)) => {
                owners.share_of(principal).filter(|share| owners.place(share).is_none())
            }
            Some(Owner::Session(_) | Owner::Anyone(_)) | None => owners.vacancy(),
        };
        match (&self.places[at].owner, wanted) {
            (Some(Owner::Anyone(_)), _) => true,
            (_, Some(owner)) => {
                self.give_place(at, owner);
                true
            }
            // Sessions of their own are what was asked for.
            (_, None) => owners.shared_max == 0,
        }
    }

    /// Ends what is left of a place. Its clients have been told.
    pub(super) fn give_up(&mut self, common: &mut Common, at: usize, out: &mut Vec<Tell>) {
        self.fanout.forget(at);
        let place = self.places.remove(at);
        if let (Division::Owned(owners), Some(owner)) = (&mut self.division, &place.owner) {
            owners.by_owner.remove(owner);
        }
        if let Some(child) = place.process() {
            self.forget_child(child);
            common.bridge.end(child, common.grace, out);
        }
    }

    /// Gives up the places that nobody has wanted anything of for a while.
    pub(super) fn give_up_unused(&mut self, common: &mut Common, now: Instant, out: &mut Vec<Tell>) {
        let Division::Owned(owners) = &self.division else { return };
        let idle = owners.idle;
        for (_, place) in &mut self.places {
            if place.is_used(common) {
                place.used = Some(now);
            }
        }
        let is_unused = |place: &Place| place.used.is_some_and(|used| now.duration_since(used) >= idle);
        let unused: Vec<usize> =
            self.places.iter().filter(|(_, place)| is_unused(place)).map(|(at, _)| at).collect();
        for at in unused {
            self.give_up(common, at, out);
        }
    }

    /// When the first of them will have been unused for long enough.
    pub(super) fn end_of_idleness(&self) -> Option<Instant> {
        let Division::Owned(owners) = &self.division else { return None };
        self.places.iter().filter_map(|(_, place)| Some(place.used? + owners.idle)).min()
    }
}

impl Place {
    /// What it has to do at present.
    fn load(&self, common: &Common) -> usize {
        let calls = self.process().map_or(0, |child| common.bridge.calls(child));
        calls + self.waiting.len() + self.listens.len()
    }

    fn is_used(&self, common: &Common) -> bool {
        self.load(common) > 0 || !self.members.is_empty()
    }
}
