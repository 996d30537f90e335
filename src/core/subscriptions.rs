//! Who wants to hear of updates of which resources: sessions, or listen streams.
//!
//! Written of sessions, and the same for listen streams. Owns the pairs of URI and session, findable from both ends, and nothing of what an update is. It must never outlive a
//! session: whoever ends one calls [`Subscriptions::end`]. Sessions of a URI come in the order of their slots, so
//! that a broadcast can stop and go on, and a seeded run is the same every time.
//!
//! Nothing at all while nobody subscribes; about 80 bytes for a subscription, and its URI once for all sessions of the
//! shard. Every operation is logarithmic in the sessions of a URI and linear in the (bounded) URIs of a session.

use super::table::Slot;
use crate::limits::SUBSCRIPTIONS_PER_SESSION_MAX;
use std::{
    collections::{BTreeSet, HashMap},
    marker::PhantomData,
    sync::Arc,
};

/// The subscriptions of a shard's sessions, or of its listen streams.
#[derive(Debug)]
pub(super) struct Subscriptions<S> {
    /// Slot numbers of the sessions, by URI. Never iterated over its URIs: their order is random.
    by_uri: HashMap<Arc<str>, BTreeSet<u32>>,
    by_session: HashMap<u32, Vec<Arc<str>>>,
    slot: PhantomData<S>,
}

impl<S> Default for Subscriptions<S> {
    fn default() -> Self {
        Subscriptions { by_uri: HashMap::new(), by_session: HashMap::new(), slot: PhantomData }
    }
}

/// The session has as many subscriptions as it may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl<S: Slot> Subscriptions<S> {
    /// Adds a subscription; one that is there already stays.
    pub(super) fn add(&mut self, session: S, uri: Arc<str>) -> Result<(), Full> {
        let number = session.number();
        let of_session = self.by_session.get(&number).map_or(&[][..], Vec::as_slice);
        if of_session.contains(&uri) {
            return Ok(());
        }
        if of_session.len() >= SUBSCRIPTIONS_PER_SESSION_MAX {
            return Err(Full);
        }
        let uri = self.by_uri.get_key_value(&uri).map_or(uri, |(known, _)| Arc::clone(known));
        self.by_uri.entry(Arc::clone(&uri)).or_default().insert(number);
        self.by_session.entry(number).or_default().push(uri);
        Ok(())
    }

    /// Takes a subscription away, if it is there.
    pub(super) fn remove(&mut self, session: S, uri: &str) {
        let number = session.number();
        self.remove_from_uri(number, uri);
        if let Some(of_session) = self.by_session.get_mut(&number) {
            of_session.retain(|known| **known != *uri);
            if of_session.is_empty() {
                self.by_session.remove(&number);
            }
        }
    }

    /// Takes all subscriptions of a session away.
    pub(super) fn end(&mut self, session: S) {
        for uri in self.by_session.remove(&session.number()).into_iter().flatten() {
            self.remove_from_uri(session.number(), &uri);
        }
    }

    /// The first session slot from `from` on that is subscribed to `uri`.
    pub(super) fn next(&self, uri: &str, from: usize) -> Option<usize> {
        let from = u32::try_from(from).ok()?;
        self.by_uri.get(uri)?.range(from..).next().map(|number| *number as usize)
    }

    /// Every session slot that has subscriptions.
    pub(super) fn sessions(&self) -> impl Iterator<Item = usize> + '_ {
        self.by_session.keys().map(|number| *number as usize)
    }

    /// Panics if the two ends disagree.
    pub(super) fn check_invariants(&self) {
        let by_session: usize = self.by_session.values().map(Vec::len).sum();
        let by_uri: usize = self.by_uri.values().map(BTreeSet::len).sum();
        assert_eq!(by_session, by_uri, "a subscription is found from both ends");
        assert!(self.by_uri.values().all(|sessions| !sessions.is_empty()), "a URI is kept for somebody");
        for (number, uris) in &self.by_session {
            assert!(!uris.is_empty(), "a session is kept for something");
            let known = |uri| self.by_uri.get(uri).is_some_and(|sessions| sessions.contains(number));
            assert!(uris.iter().all(known), "a subscription is found from both ends");
        }
    }

    fn remove_from_uri(&mut self, number: u32, uri: &str) {
        if let Some(sessions) = self.by_uri.get_mut(uri) {
            sessions.remove(&number);
            if sessions.is_empty() {
                self.by_uri.remove(uri);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::core::table::SessionSlot;
    use proptest::prelude::*;

    fn slot(number: usize) -> SessionSlot {
        SessionSlot::new(number)
    }

    fn subscribed(subscriptions: &Subscriptions<SessionSlot>, uri: &str) -> Vec<usize> {
        std::iter::successors(subscriptions.next(uri, 0), |last| subscriptions.next(uri, last + 1)).collect()
    }

    #[test]
    fn a_session_has_a_bounded_number_of_them() {
        let mut subscriptions = Subscriptions::default();
        for number in 0..SUBSCRIPTIONS_PER_SESSION_MAX {
            subscriptions.add(slot(1), format!("u:{number}").into()).unwrap();
        }
        assert_eq!(subscriptions.add(slot(1), "u:more".into()), Err(Full));
        assert_eq!(subscriptions.add(slot(1), "u:0".into()), Ok(()), "it has that one already");
        assert_eq!(subscriptions.add(slot(2), "u:more".into()), Ok(()), "others have their own");
        subscriptions.remove(slot(1), "u:0");
        assert_eq!(subscriptions.add(slot(1), "u:more".into()), Ok(()));
        assert_eq!(subscribed(&subscriptions, "u:more"), [1, 2]);
        subscriptions.check_invariants();
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(usize, u8),
        Remove(usize, u8),
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8usize, 0..5u8).prop_map(|(session, uri)| Step::Add(session, uri)),
            2 => (0..8usize, 0..5u8).prop_map(|(session, uri)| Step::Remove(session, uri)),
            1 => (0..8usize).prop_map(Step::End),
        ]
    }

    proptest! {
        #[test]
        fn they_are_a_set_of_pairs(steps in proptest::collection::vec(step(), 0..100)) {
            let mut subscriptions = Subscriptions::default();
            let mut pairs = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Add(session, uri) => {
                        subscriptions.add(slot(session), format!("u:{uri}").into()).unwrap();
                        pairs.insert((session, uri));
                    }
                    Step::Remove(session, uri) => {
                        subscriptions.remove(slot(session), &format!("u:{uri}"));
                        pairs.remove(&(session, uri));
                    }
                    Step::End(session) => {
                        subscriptions.end(slot(session));
                        pairs.retain(|(other, _)| *other != session);
                    }
                }
                subscriptions.check_invariants();
            }
            for uri in 0..5 {
                let expected: Vec<_> = pairs.iter().filter(|pair| pair.1 == uri).map(|pair| pair.0).collect();
                prop_assert_eq!(subscribed(&subscriptions, &format!("u:{uri}")), expected);
            }
        }
    }
}
