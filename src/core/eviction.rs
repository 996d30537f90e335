//! Which events a session gives up when its logs hold more than they may: the oldest first, responses and requests to
//! the client last.
//!
//! Owns the order of a session's events by age, over all its logs. There is none until a session is over its bounds for the
//! first time, so that one that stays within them costs nothing. Then it is made once, in O(n log n); what
//! is logged afterwards joins at the end, and eviction takes from the front: a bisection in one log per event,
//! however many streams the session has. An event that left its log another way is skipped when its turn comes. 16 bytes
//! per event; at most as many names again are stale, and the order goes when the last event does.
//!
//! Invariant: where there is an order, every event of the session's logs is in it once, each kind in order of age.

use super::{
    ids::StreamKind,
    log::{Delivery, Event, Removed},
    memory::large,
    queue::Class,
    seam::*,
    shard::Shard,
    stream::{Attachment, Stream, bytes_u32},
    table::{SessionSlot, Slot as _, StreamSlot, Table},
};
use std::collections::VecDeque;

/// Stale names that are not worth a walk.
const STALE_MIN: usize = 64;

/// Where an event is, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    stream: StreamSlot,
    generation: Generation,
    sequence: u32,
}

/// A session's events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ages {
    plain: VecDeque<Place>,
    /// They go when nothing else is left.
    precious: VecDeque<Place>,
}

impl Ages {
    fn push(&mut self, class: &Class, place: Place) {
        match class {
            Class::Response | Class::Request(_) => self.precious.push_back(place),
            Class::Signal(_) | Class::Progress | Class::Log | Class::Other => self.plain.push_back(place),
        }
    }

    /// Takes the next to go; never `newest`, the one that was pushed last.
    fn pop(&mut self, newest: Place, is_kept: impl Fn(Place) -> bool) -> Option<Place> {
        [&mut self.plain, &mut self.precious].into_iter().find_map(|places| {
            while places.front().is_some_and(|first| !is_kept(*first)) {
                places.pop_front();
            }
            if places.front() == Some(&newest) { None } else { places.pop_front() }
        })
    }

    fn len(&self) -> usize {
        self.plain.len() + self.precious.len()
    }

    fn retain(&mut self, is_kept: impl Fn(Place) -> bool) {
        self.plain.retain(|place| is_kept(*place));
        self.precious.retain(|place| is_kept(*place));
    }
}

impl Shard {
    /// Evicts the session's oldest events until its logs are within bounds, and what is kept for its client within the
    /// client's share; never the one that has just been logged.
    pub(super) fn keep_log_bounds(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        let newest = self.place(stream, self.streams[stream].sequence);
        self.keep_session_bounds(session, stream, newest, now);
        if self.streams[stream].kind == StreamKind::Request {
            self.keep_share(session, stream, newest, now);
        }
    }

    fn keep_session_bounds(&mut self, session: SessionSlot, stream: StreamSlot, newest: Place, now: Now) {
        if !self.note_age(session, newest) {
            return;
        }
        while self.logs_overflow(session) {
            let streams = &self.streams;
            let Some(ages) = self.ages.get_mut(&session.number()) else { return };
            let is_kept = |place| find_event(streams, place).is_some();
            let Some(place) = ages.pop(newest, is_kept) else { return };
            self.evict(place, stream, now);
        }
    }

    /// Of request streams the session gives up what has arrived, and then what was written for connections that are gone. What
    /// is on its way stays: it is bounded by what its client may leave unread.
    fn keep_share(&mut self, session: SessionSlot, stream: StreamSlot, newest: Place, now: Now) {
        if !self.keeps_too_much(session) {
            return;
        }
        let requests =
            self.streams_of(session).filter(|slot| self.streams[*slot].kind == StreamKind::Request);
        let mut dispensable = Vec::new();
        for slot in requests {
            let is_attached = self.streams[slot].attachment != Attachment::None;
            for (event, place) in self.logged(slot) {
                let has_arrived = event.delivery == Delivery::Acked;
                if place != newest && (has_arrived || !is_attached) {
                    dispensable.push((!has_arrived, event.at_ms, place));
                }
            }
        }
        dispensable.sort_by_key(|(is_owed, at_ms, _)| (*is_owed, *at_ms));
        for (.., place) in dispensable {
            if !self.keeps_too_much(session) {
                return;
            }
            self.evict(place, stream, now);
        }
    }

    /// What the client of a detached stream did not get it is owed, unless it is owed a share without it: then what is large
    /// is given up.
    pub(super) fn settle_owed(&mut self, stream: StreamSlot, now: Now) {
        let Stream { session, kind: StreamKind::Request, log: Some(log), .. } = &mut self.streams[stream]
        else {
            return;
        };
        log.owed = None;
        let session = *session;
        if self.is_owed_enough(session) {
            let is_owed =
                |event: &Event| event.delivery != Delivery::Acked && large(event.message.payload.len()) > 0;
            let places: Vec<_> =
                self.logged(stream).filter(|(event, _)| is_owed(event)).map(|(_, place)| place).collect();
            for place in places {
                self.evict(place, stream, now);
            }
        }
        self.count_owed(stream);
    }

    fn logs_overflow(&self, session: SessionSlot) -> bool {
        let session = &self.sessions[session];
        session.replay_events as usize > self.config.replay_events_max
            || session.replay_bytes as usize > self.config.replay_bytes_max
    }

    fn evict(&mut self, place: Place, newest: StreamSlot, now: Now) {
        let stream = place.stream;
        let session = self.streams[stream].session;
        let Some(log) = &mut self.streams[stream].log else { return };
        let Some(event) = log.evict(place.sequence) else { return };
        self.counters.events_evicted += 1;
        let mut removed = Removed::default();
        removed.count(&event);
        self.account_removed(stream, removed);
        match (event.message.class, event.delivery) {
            (Class::Response, Delivery::Unsent | Delivery::Written { .. }) => self.response_lost(stream, now),
            (Class::Request(id), Delivery::Unsent) => self.ask_dropped(session, id),
            _ => {}
        }
        if stream != newest {
            self.forget_if_done(stream);
        }
    }

    // --- The order -----------------------------------------------------------------------------

    fn place(&self, stream: StreamSlot, sequence: u32) -> Place {
        Place { stream, generation: self.streams[stream].generation, sequence }
    }

    /// Puts the event that has just been logged into the session's order, which is made once it is needed. False if there
    /// is none.
    fn note_age(&mut self, session: SessionSlot, newest: Place) -> bool {
        if self.logs_overflow(session) && !self.ages.contains_key(&session.number()) {
            let ages = self.ages_without(session, newest);
            self.ages.insert(session.number(), ages);
        }
        let Some(ages) = self.ages.get_mut(&session.number()) else { return false };
        let streams = &self.streams;
        let event = find_event(streams, newest).expect("it has just been logged");
        ages.push(&event.message.class, newest);
        if ages.len() > 2 * self.sessions[session].replay_events as usize + STALE_MIN {
            ages.retain(|place| find_event(streams, place).is_some());
        }
        true
    }

    /// The order of what the session's logs hold, but for the newest event. Of events of one moment those of the stream
    /// attached longest ago come first.
    fn ages_without(&self, session: SessionSlot, newest: Place) -> Ages {
        let mut streams: Vec<StreamSlot> = self.streams_of(session).collect();
        streams.reverse();
        let mut events: Vec<_> = streams.into_iter().flat_map(|stream| self.logged(stream)).collect();
        events.sort_by_key(|(event, _)| event.at_ms);
        let mut ages = Ages::default();
        for (event, place) in events.into_iter().filter(|(_, place)| *place != newest) {
            ages.push(&event.message.class, place);
        }
        ages
    }

    fn logged(&self, stream: StreamSlot) -> impl Iterator<Item = (&Event, Place)> {
        let log = self.streams[stream].log.iter().flat_map(|log| log.iter());
        log.map(move |event| (event, self.place(stream, event.sequence)))
    }

    /// Events left the session's logs: they count no longer.
    pub(super) fn discount_events(&mut self, session: SessionSlot, removed: Removed) {
        let entry = &mut self.sessions[session];
        entry.replay_events -= bytes_u32(removed.events);
        entry.replay_bytes -= bytes_u32(removed.bytes);
        if entry.replay_events == 0 {
            self.ages.remove(&session.number());
        }
    }

    /// Panics if a session's order is not that of what its logs hold.
    pub(super) fn check_ages(&self, session: SessionSlot) {
        let Some(ages) = self.ages.get(&session.number()) else { return };
        let mut kept = 0;
        for places in [&ages.plain, &ages.precious] {
            let events: Vec<&Event> =
                places.iter().filter_map(|place| find_event(&self.streams, *place)).collect();
            assert!(events.is_sorted_by_key(|event| event.at_ms), "events are in order of age");
            kept += events.len();
        }
        assert_eq!(kept, self.sessions[session].replay_events as usize, "every event has its place in order");
    }
}

fn find_event(streams: &Table<StreamSlot, Stream>, place: Place) -> Option<&Event> {
    let stream = streams.find(place.stream.number(), place.generation)?;
    streams[stream].log.as_ref()?.find(place.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU64;

    /// What happens to a session's logs: an event is logged, in a stream out of a few; one leaves another way; one is
    /// evicted.
    #[derive(Clone, Debug)]
    enum Step {
        Log(usize, Class),
        Lose(usize),
        Evict,
    }

    fn step() -> impl Strategy<Value = Step> {
        let class = prop_oneof![Just(Class::Response), Just(Class::Progress), Just(Class::Other)];
        prop_oneof![
            4 => (0..4_usize, class).prop_map(|(stream, class)| Step::Log(stream, class)),
            1 => any::<usize>().prop_map(Step::Lose),
            3 => Just(Step::Evict),
        ]
    }

    /// The obviously right order: all events in a row, looked through from the start.
    #[derive(Default)]
    struct Model(Vec<(Class, Place)>);

    impl Model {
        fn next(&self, newest: Place) -> Option<Place> {
            let others = || self.0.iter().filter(|(_, place)| *place != newest);
            let plain = others().find(|(class, _)| *class != Class::Response);
            plain.or_else(|| others().next()).map(|(_, place)| *place)
        }
    }

    fn place(stream: usize, sequence: usize) -> Place {
        Place {
            stream: StreamSlot::new(stream),
            generation: Generation(NonZeroU64::MIN),
            sequence: u32::try_from(sequence).expect("a few"),
        }
    }

    proptest! {
        #[test]
        fn the_oldest_goes_first_and_responses_last(steps in prop::collection::vec(step(), 0..200)) {
            let (mut ages, mut model) = (Ages::default(), Model::default());
            for (sequence, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Log(stream, class) => {
                        ages.push(&class, place(stream, sequence));
                        model.0.push((class, place(stream, sequence)));
                    }
                    Step::Lose(_) if model.0.is_empty() => {}
                    Step::Lose(index) => drop(model.0.remove(index % model.0.len())),
                    Step::Evict => {
                        // The event logged last is spared, if it is still there.
                        let Some(newest) = model.0.last().map(|(_, place)| *place) else { continue };
                        let is_kept = |place: Place| model.0.iter().any(|(_, other)| *other == place);
                        let next = ages.pop(newest, is_kept);
                        prop_assert_eq!(next, model.next(newest));
                        model.0.retain(|(_, place)| Some(*place) != next);
                    }
                }
            }
            ages.retain(|place| model.0.iter().any(|(_, other)| *other == place));
            prop_assert_eq!(ages.len(), model.0.len());
        }
    }
}
