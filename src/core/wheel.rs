//! The timer wheel: every deadline of a shard, in one structure.
//!
//! Four levels of 64 slots; a slot of level 0 is one tick ([`TICK_MS`]), a slot of each further level 64
//! slots of the one below, so the wheel spans 64⁴ ticks (74 hours). A slot is a doubly linked list through a
//! slab, in order of arrival; a bitmap per level says which slots hold anything. An entry stores its exact
//! deadline in ticks, rounded up: it is never popped early, and at most one tick late by a caller that polls
//! in time.
//!
//! **Placing.** An entry goes to the lowest level on which its slot is less than 64 slots ahead. A deadline
//! beyond the span waits in the farthest slot of the last level and is placed again when that comes up.
//!
//! **The invariant.** The wheel stands at one tick, and thereby at one slot of each level. Entries are only
//! placed ahead of these slots, or, if due, into the one of level 0. So whatever is found in the slots the
//! wheel stands at is work: on level 0 due, above to be placed anew, lower down. The wheel moves on only once
//! they are empty, directly to the start of the next slot that holds something; an idle gap costs one step
//! per occupied slot, whatever its length.
//!
//! **The bound.** An entry that is looked at, whether popped or placed anew, costs one unit of the caller's
//! budget. A slot of a million entries is not moved in one go: it stays where it is, and the wheel with it,
//! until later calls have worked it off. Meanwhile [`Wheel::next_deadline_ms`] is not in the future. Each
//! entry costs at most three units before the one that pops it, and one more per span for deadlines beyond
//! it.
//!
//! 24 bytes per timer for an 8-byte owner, 2 KiB per wheel. Arming, re-arming and cancelling are O(1) and,
//! within the capacity, without allocation. The wheel never reads a clock and never calls anything.

use crate::limits::TICK_MS;
use slab::Slab;
use std::{array, num::NonZeroU32};

const LEVELS: usize = 4;
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: usize = 6;

/// The farthest deadline from the tick the wheel stands at, in ticks: about 398 days. Entries store the low
/// 32 bits of their tick, and this keeps them unambiguous.
const HORIZON_TICKS: u64 = i32::MAX as u64;

/// Names an armed timer. After it was popped or cancelled the name is stale and fits no other timer, unless
/// 2³² timers were armed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    generation: NonZeroU32,
}

/// A timer whose deadline has passed; the wheel has forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<K> {
    /// Its former name.
    pub id: TimerId,
    /// What it was armed for.
    pub owner: K,
    /// When it was due, in milliseconds, rounded up to a tick. What has passed since is its lateness.
    pub deadline_ms: u64,
}

/// All timers of a shard. `K` says whom a timer belongs to.
#[derive(Debug)]
pub struct Wheel<K> {
    /// The tick the wheel stands at: everything due before it has been found.
    tick: u64,
    nodes: Slab<Node<K>>,
    lists: [Ends; LEVELS * SLOTS],
    /// One bit per list that is not empty.
    occupied: [u64; LEVELS],
    generation: NonZeroU32,
}

#[derive(Debug)]
struct Node<K> {
    next: Link,
    prev: Link,
    /// The low bits of the deadline's tick.
    tick: u32,
    generation: NonZeroU32,
    owner: K,
}

impl<K: Copy> Wheel<K> {
    /// What each timer takes.
    pub const ENTRY_BYTES: usize = super::table::slab_entry_bytes::<Node<K>>();

    /// An empty wheel that starts at `now_ms`, with room for `capacity` timers before it allocates again.
    pub fn new(now_ms: u64, capacity: usize) -> Self {
        Wheel {
            tick: now_ms / TICK_MS,
            nodes: Slab::with_capacity(capacity),
            lists: array::from_fn(Ends::empty),
            occupied: [0; LEVELS],
            generation: NonZeroU32::MIN,
        }
    }

    /// Sets a timer. A deadline in the past is due at once; one more than 398 days ahead is brought forward
    /// to that.
    pub fn arm(&mut self, deadline_ms: u64, owner: K) -> TimerId {
        let tick = self.tick_of(deadline_ms);
        let generation = self.generation;
        self.generation = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let unlinked = Link::end(0);
        let node = Node { next: unlinked, prev: unlinked, tick: low_bits(tick), generation, owner };
        let slot = index_u32(self.nodes.insert(node));
        self.place(slot, tick);
        TimerId { slot, generation }
    }

    /// Gives a timer another deadline under the same name. `false` if the name is stale.
    pub fn rearm(&mut self, id: TimerId, deadline_ms: u64) -> bool {
        if self.node(id).is_none() {
            return false;
        }
        let tick = self.tick_of(deadline_ms);
        self.unlink(id.slot);
        self.nodes[index(id.slot)].tick = low_bits(tick);
        self.place(id.slot, tick);
        true
    }

    /// Forgets a timer. `false` if the name is stale.
    pub fn cancel(&mut self, id: TimerId) -> bool {
        if self.node(id).is_none() {
            return false;
        }
        self.unlink(id.slot);
        self.nodes.remove(index(id.slot));
        true
    }

    /// A timer's deadline in milliseconds, rounded up to a tick, or `None` if the name is stale.
    pub fn deadline_ms(&self, id: TimerId) -> Option<u64> {
        self.node(id).map(|node| self.deadline_tick(node) * TICK_MS)
    }

    /// The next timer that is due at `now_ms`, taken out of the wheel. Timers of the same tick come in no
    /// particular order.
    ///
    /// `None` if nothing more is due, or if `budget` has run out, which takes one unit for each timer looked
    /// at. Only then may [`next_deadline_ms`](Self::next_deadline_ms) still be at or before `now_ms`: call
    /// again soon.
    pub fn pop_due(&mut self, now_ms: u64, budget: &mut usize) -> Option<Expired<K>> {
        let now_tick = (now_ms / TICK_MS).max(self.tick);
        loop {
            let Some(slot) = self.first_at_hand() else {
                if !self.advance(now_tick) {
                    return None;
                }
                continue;
            };
            *budget = budget.checked_sub(1)?;
            self.unlink(slot);
            let tick = self.deadline_tick(&self.nodes[index(slot)]);
            if tick <= now_tick {
                return Some(self.take(slot, tick));
            }
            self.place(slot, tick);
        }
    }

    /// When to call [`pop_due`](Self::pop_due) next, in milliseconds; `None` if no timer is armed. Never
    /// later than a timer's deadline (rounded up to a tick); it may be earlier, when there is something to
    /// place anew.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let tick = if self.first_at_hand().is_some() { self.tick } else { self.next_tick()? };
        Some(tick * TICK_MS)
    }

    /// How many timers are armed.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    // --- Moving on ----------------------------------------------------------------------------

    /// The first entry in the slots the wheel stands at; those of level 0 are due and come first.
    fn first_at_hand(&self) -> Option<u32> {
        let level =
            (0..LEVELS).find(|&level| self.occupied[level] & (1 << self.standing_slot(level)) != 0)?;
        self.lists[level * SLOTS + self.standing_slot(level)].first.node()
    }

    /// Moves to the next slot that holds something, at most to `now_tick`. `false` if nothing starts by then.
    /// The slots the wheel stands at are empty.
    fn advance(&mut self, now_tick: u64) -> bool {
        let next = self.next_tick().filter(|&next| next <= now_tick);
        self.tick = next.unwrap_or(now_tick);
        next.is_some()
    }

    /// The first tick of the nearest occupied slot ahead.
    fn next_tick(&self) -> Option<u64> {
        (0..LEVELS).filter_map(|level| self.next_tick_of(level)).min()
    }

    fn next_tick_of(&self, level: usize) -> Option<u64> {
        let standing = self.standing_slot(level);
        let ahead = self.occupied[level].rotate_right(index_u32(standing)) & !1;
        (ahead != 0).then(|| (self.unit(level) + u64::from(ahead.trailing_zeros())) << (SLOT_BITS * level))
    }

    /// The number of the slot the wheel stands at on `level`, counted from tick 0.
    fn unit(&self, level: usize) -> u64 {
        self.tick >> (SLOT_BITS * level)
    }

    fn standing_slot(&self, level: usize) -> usize {
        slot_of(self.unit(level))
    }

    // --- Ticks --------------------------------------------------------------------------------

    /// The first tick at which a deadline has passed, within the horizon.
    fn tick_of(&self, deadline_ms: u64) -> u64 {
        let tick = deadline_ms.div_ceil(TICK_MS);
        tick.clamp(self.tick.saturating_sub(HORIZON_TICKS), self.tick + HORIZON_TICKS)
    }

    /// The whole tick of which the node has the low bits: the one within the horizon.
    fn deadline_tick(&self, node: &Node<K>) -> u64 {
        let ahead = node.tick.wrapping_sub(low_bits(self.tick)).cast_signed();
        self.tick.checked_add_signed(ahead.into()).expect("no deadline is before tick 0")
    }

    // --- Lists --------------------------------------------------------------------------------

    fn node(&self, id: TimerId) -> Option<&Node<K>> {
        self.nodes.get(index(id.slot)).filter(|node| node.generation == id.generation)
    }

    fn take(&mut self, slot: u32, tick: u64) -> Expired<K> {
        let Node { generation, owner, .. } = self.nodes.remove(index(slot));
        Expired { id: TimerId { slot, generation }, owner, deadline_ms: tick * TICK_MS }
    }

    /// Links an unlinked entry into the list where a deadline at `tick` belongs.
    fn place(&mut self, slot: u32, tick: u64) {
        let list = self.list_for(tick);
        let last = self.lists[list].last;
        let node = &mut self.nodes[index(slot)];
        (node.prev, node.next) = (last, Link::end(list));
        self.set_next(last, Link(slot));
        self.lists[list].last = Link(slot);
        self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
    }

    fn list_for(&self, tick: u64) -> usize {
        let tick = tick.max(self.tick);
        for level in 0..LEVELS {
            let unit = tick >> (SLOT_BITS * level);
            if unit - self.unit(level) < SLOTS as u64 {
                return level * SLOTS + slot_of(unit);
            }
        }
        let farthest = self.unit(LEVELS - 1) + (SLOTS as u64 - 1);
        (LEVELS - 1) * SLOTS + slot_of(farthest)
    }

    fn unlink(&mut self, slot: u32) {
        let Node { next, prev, .. } = self.nodes[index(slot)];
        self.set_next(prev, next);
        self.set_prev(next, prev);
        if let (Some(list), Some(_)) = (next.list(), prev.list()) {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    fn set_next(&mut self, of: Link, next: Link) {
        match of.list() {
            Some(list) => self.lists[list].first = next,
            None => self.nodes[index(of.0)].next = next,
        }
    }

    fn set_prev(&mut self, of: Link, prev: Link) {
        match of.list() {
            Some(list) => self.lists[list].last = prev,
            None => self.nodes[index(of.0)].prev = prev,
        }
    }

    /// Checks everything the module's description promises about the structure; O(timers). For tests and
    /// debug builds.
    ///
    /// # Panics
    /// If a promise is broken.
    pub fn check_invariants(&self) {
        let counts = (0..self.lists.len()).map(|list| self.check_list(list));
        assert_eq!(counts.sum::<usize>(), self.nodes.len(), "every timer is in exactly one list");
    }

    fn check_list(&self, list: usize) -> usize {
        let mut count = 0;
        let (mut before, mut at) = (Link::end(list), self.lists[list].first);
        while let Some(slot) = at.node() {
            let node = &self.nodes[index(slot)];
            assert!(node.prev == before, "links agree in both directions");
            self.check_place(list, self.deadline_tick(node));
            (before, at) = (at, node.next);
            count += 1;
        }
        assert!(at == Link::end(list) && self.lists[list].last == before, "a list ends where it began");
        let bit = self.occupied[list / SLOTS] >> (list % SLOTS) & 1;
        assert_eq!(bit == 1, count > 0, "a bit is set exactly if its list holds something");
        count
    }

    fn check_place(&self, list: usize, tick: u64) {
        let level = list / SLOTS;
        let ahead = (list % SLOTS).wrapping_sub(self.standing_slot(level)) % SLOTS;
        let (unit, expected) = (tick >> (SLOT_BITS * level), self.unit(level) + ahead as u64);
        match (level, ahead) {
            (0, 0) => assert!(tick <= self.tick, "what stands at hand on level 0 is due"),
            (level, _) if level == LEVELS - 1 => assert!(unit >= expected, "no slot comes after its timers"),
            _ => assert_eq!(unit, expected, "a timer is in the slot of its tick"),
        }
    }
}

/// The two ends of a slot's list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: Link,
    last: Link,
}

impl Ends {
    fn empty(list: usize) -> Self {
        Ends { first: Link::end(list), last: Link::end(list) }
    }
}

/// A neighbour in a list: a node, or with the top bit set the list's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(u32);

impl Link {
    const END: u32 = 1 << 31;

    fn end(list: usize) -> Self {
        Link(Link::END | index_u32(list))
    }

    fn node(self) -> Option<u32> {
        (self.0 & Link::END == 0).then_some(self.0)
    }

    fn list(self) -> Option<usize> {
        (self.0 & Link::END != 0).then_some(index(self.0 & !Link::END))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below 64")]
fn slot_of(unit: u64) -> usize {
    (unit % SLOTS as u64) as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the rest follows from the horizon")]
fn low_bits(tick: u64) -> u32 {
    tick as u32
}

fn index(slot: u32) -> usize {
    slot as usize
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).ok().filter(|index| index & Link::END == 0).expect("fewer than 2^31 timers")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SPAN_TICKS: u64 = 1 << (SLOT_BITS * LEVELS);
    const AMPLE: usize = usize::MAX;

    /// The obviously right wheel, driven side by side with the real one.
    struct Pair {
        wheel: Wheel<u64>,
        now_ms: u64,
        /// Deadline in ticks and owner of each armed timer.
        model: BTreeSet<(u64, u64)>,
        /// Every timer ever armed and not known to be gone, with its deadline and owner.
        armed: Vec<(TimerId, u64, u64)>,
        /// Names that must be stale.
        stale: Vec<TimerId>,
        owners: u64,
    }

    impl Pair {
        fn new(now_ms: u64) -> Self {
            Pair {
                wheel: Wheel::new(now_ms, 0),
                now_ms,
                model: BTreeSet::new(),
                armed: Vec::new(),
                stale: Vec::new(),
                owners: 0,
            }
        }

        fn arm(&mut self, deadline_ms: u64) {
            self.owners += 1;
            let (tick, owner) = (deadline_ms.div_ceil(TICK_MS), self.owners);
            let id = self.wheel.arm(deadline_ms, owner);
            self.model.insert((tick, owner));
            self.armed.push((id, tick, owner));
        }

        fn rearm(&mut self, pick: usize, deadline_ms: u64) {
            let Some(index) = pick.checked_rem(self.armed.len()) else { return };
            let (id, tick, owner) = &mut self.armed[index];
            assert!(self.wheel.rearm(*id, deadline_ms));
            assert!(self.model.remove(&(*tick, *owner)));
            *tick = deadline_ms.div_ceil(TICK_MS);
            self.model.insert((*tick, *owner));
            assert_eq!(self.wheel.deadline_ms(*id), Some(*tick * TICK_MS));
        }

        fn cancel(&mut self, pick: usize) {
            let Some(index) = pick.checked_rem(self.armed.len()) else { return };
            let (id, tick, owner) = self.armed.swap_remove(index);
            assert_eq!(self.wheel.deadline_ms(id), Some(tick * TICK_MS));
            assert!(self.wheel.cancel(id));
            assert!(self.model.remove(&(tick, owner)));
            self.stale.push(id);
        }

        fn touch_stale(&mut self, pick: usize) {
            let Some(index) = pick.checked_rem(self.stale.len()) else { return };
            let id = self.stale.swap_remove(index);
            assert!(!self.wheel.cancel(id) && !self.wheel.rearm(id, self.now_ms));
            assert_eq!(self.wheel.deadline_ms(id), None);
        }

        /// Lets time pass and pops what `budget` allows. What comes out must be due and armed; what is due
        /// must come out unless the budget ended.
        fn pass(&mut self, ms: u64, mut budget: usize) {
            self.now_ms += ms;
            let now_tick = self.now_ms / TICK_MS;
            while let Some(expired) = self.wheel.pop_due(self.now_ms, &mut budget) {
                let tick = expired.deadline_ms / TICK_MS;
                assert!(tick <= now_tick, "early");
                assert!(self.model.remove(&(tick, expired.owner)), "not armed for then");
                self.stale.push(expired.id);
                self.forget(expired.id);
            }
            if budget > 0 {
                let due = self.model.first().is_some_and(|&(tick, _)| tick <= now_tick);
                assert!(!due, "late");
                assert!(self.wheel.next_deadline_ms().is_none_or(|next| next > self.now_ms), "busy loop");
            }
            self.stale.truncate(64);
            self.check();
        }

        fn forget(&mut self, id: TimerId) {
            // Recent timers expire first in these tests: search from the end.
            let index = self.armed.iter().rposition(|armed| armed.0 == id).expect("armed");
            self.armed.swap_remove(index);
        }

        fn check(&self) {
            assert_eq!(self.wheel.len(), self.model.len());
            assert_eq!(self.wheel.is_empty(), self.model.is_empty());
            let earliest = self.model.first().map(|&(tick, _)| tick * TICK_MS);
            match (self.wheel.next_deadline_ms(), earliest) {
                (Some(next), Some(earliest)) => assert!(next <= earliest.max(self.now_ms), "overslept"),
                (next, earliest) => assert_eq!(next, earliest),
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arm(u64),
        ArmPast(u64),
        Rearm(usize, u64),
        Cancel(usize),
        TouchStale(usize),
        Pass(u64, usize),
    }

    /// Durations of every order of magnitude, up to several spans of the wheel.
    fn durations_ms() -> impl Strategy<Value = u64> {
        (0..32u32, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => durations_ms().prop_map(Step::Arm),
            1 => durations_ms().prop_map(Step::ArmPast),
            2 => (any::<usize>(), durations_ms()).prop_map(|(pick, ms)| Step::Rearm(pick, ms)),
            1 => any::<usize>().prop_map(Step::Cancel),
            1 => any::<usize>().prop_map(Step::TouchStale),
            2 => (durations_ms(), prop_oneof![Just(AMPLE), 0..20usize]).prop_map(|(ms, budget)| Step::Pass(ms, budget)),
        ]
    }

    fn run(pair: &mut Pair, step: Step) {
        match step {
            Step::Arm(ms) => pair.arm(pair.now_ms + ms),
            Step::ArmPast(ms) => pair.arm(pair.now_ms.saturating_sub(ms)),
            Step::Rearm(pick, ms) => pair.rearm(pick, pair.now_ms + ms),
            Step::Cancel(pick) => pair.cancel(pick),
            Step::TouchStale(pick) => pair.touch_stale(pick),
            Step::Pass(ms, budget) => pair.pass(ms, budget),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set(
            // Also where the low 32 bits of the tick and the bits of the span wrap.
            start in prop_oneof![
                Just(0),
                (0..200u64).prop_map(|back| ((1 << 32) - back) * TICK_MS),
                (0..200u64).prop_map(|back| (SPAN_TICKS - back) * TICK_MS),
                any::<u32>().prop_map(u64::from),
            ],
            steps in prop::collection::vec(steps(), 0..200),
        ) {
            let mut pair = Pair::new(start);
            for step in steps {
                run(&mut pair, step);
                pair.wheel.check_invariants();
            }
            pair.pass(1 << 40, AMPLE);
            prop_assert!(pair.wheel.is_empty());
        }
    }

    /// A small generator (xorshift), so that a seed is a run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn pick(&mut self) -> usize {
            usize::try_from(self.next() >> 1).unwrap()
        }

        /// Up to `bits` bits, each length as likely as another.
        fn duration_ms(&mut self, bits: u64) -> u64 {
            let bits = self.next() % bits;
            self.next() & ((1 << bits) - 1)
        }

        fn step(&mut self) -> Step {
            match self.next() % 16 {
                0..=5 => Step::Arm(self.duration_ms(30)),
                6 => Step::ArmPast(self.duration_ms(20)),
                7..=10 => Step::Rearm(self.pick(), self.duration_ms(30)),
                11..=12 => Step::Cancel(self.pick()),
                13 => Step::TouchStale(self.pick()),
                14 => Step::Pass(self.duration_ms(12), self.pick() % 200),
                _ => Step::Pass(self.duration_ms(26), AMPLE),
            }
        }
    }

    #[test]
    fn millions_of_operations_agree_with_a_sorted_set() {
        for seed in 1..=4u64 {
            let mut random = Random(seed << 32 | 0x9e37_79b9);
            // Each run crosses the wrap of the low bits of the tick.
            let mut pair = Pair::new(((1 << 32) - (seed << 16)) * TICK_MS);
            for operation in 0..600_000 {
                let step = random.step();
                run(&mut pair, step);
                if operation % 10_000 == 0 {
                    pair.wheel.check_invariants();
                }
            }
            pair.pass(1 << 40, AMPLE);
            assert!(pair.wheel.is_empty());
        }
    }

    #[test]
    fn every_deadline_around_a_boundary_is_met_within_a_tick() {
        for level in 0..=LEVELS {
            let boundary = 1u64 << (SLOT_BITS * level);
            for ticks in boundary.saturating_sub(2)..=boundary + 2 {
                for start in [0, 1, 63, 64, 4095, SPAN_TICKS - 1] {
                    let (start_ms, deadline_ms) =
                        (start * TICK_MS, (start + ticks) * TICK_MS - 3 * u64::from(ticks > 0));
                    let mut wheel = Wheel::new(start_ms, 1);
                    wheel.arm(deadline_ms, 7u32);
                    // Polled only when it asks for it, the wheel must come out on time by itself.
                    let mut polls = 0;
                    let popped_ms = loop {
                        let now_ms = wheel.next_deadline_ms().unwrap();
                        polls += 1;
                        assert!(polls <= LEVELS + 2, "each poll makes progress");
                        if wheel.pop_due(now_ms, &mut AMPLE.clone()).is_some() {
                            break now_ms;
                        }
                    };
                    assert!((deadline_ms..deadline_ms + TICK_MS).contains(&popped_ms), "{start} {ticks}");
                }
            }
        }
    }

    #[test]
    fn a_deadline_beyond_the_span_is_kept_exactly() {
        let mut wheel = Wheel::new(0, 1);
        let deadline_ms = 5 * SPAN_TICKS * TICK_MS + 12_345 * TICK_MS;
        let id = wheel.arm(deadline_ms, ());
        assert!(wheel.pop_due(deadline_ms - 1, &mut AMPLE.clone()).is_none());
        assert_eq!(wheel.deadline_ms(id), Some(deadline_ms));
        assert_eq!(wheel.next_deadline_ms(), Some(deadline_ms));
        let expired = wheel.pop_due(deadline_ms, &mut AMPLE.clone()).unwrap();
        assert_eq!((expired.id, expired.deadline_ms), (id, deadline_ms));
    }

    #[test]
    fn deadlines_at_the_ends_of_time_are_brought_within_the_horizon() {
        let now_ms = 1 << 40;
        let mut wheel = Wheel::new(now_ms, 2);
        let never = wheel.arm(u64::MAX, ());
        let always = wheel.arm(0, ());
        assert_eq!(wheel.deadline_ms(never), Some(now_ms + HORIZON_TICKS * TICK_MS));
        assert_eq!(wheel.pop_due(now_ms, &mut AMPLE.clone()).map(|expired| expired.id), Some(always));
        assert!(wheel.pop_due(now_ms, &mut AMPLE.clone()).is_none());
        wheel.check_invariants();
    }

    #[test]
    fn a_full_slot_is_worked_off_in_budgeted_steps() {
        const TIMERS: usize = 10_000;
        const BUDGET: usize = 64;
        let mut wheel = Wheel::new(0, TIMERS);
        // One slot of level 1, every tick of it.
        let first_tick = 2 * SLOTS;
        for timer in 0..TIMERS {
            wheel.arm((first_tick + timer % SLOTS) as u64 * TICK_MS, timer);
        }
        let now_ms = first_tick as u64 * TICK_MS;
        let (mut popped, mut calls) = (0, 0);
        while wheel.next_deadline_ms().is_some_and(|next| next <= now_ms) {
            let mut budget = BUDGET;
            while let Some(expired) = wheel.pop_due(now_ms, &mut budget) {
                assert_eq!(expired.deadline_ms, now_ms);
                popped += 1;
            }
            calls += 1;
            wheel.check_invariants();
        }
        assert_eq!(popped, TIMERS.div_ceil(SLOTS));
        assert_eq!(calls, TIMERS.div_ceil(BUDGET), "each entry was looked at once, none twice");
        assert_eq!(wheel.len(), TIMERS - popped);
    }

    #[test]
    fn an_idle_gap_costs_no_step_per_tick() {
        let mut wheel = Wheel::new(0, 1);
        assert!(wheel.pop_due(u64::MAX / 2, &mut 0).is_none(), "needs no budget either");
        wheel.arm(0, ());
        assert!(wheel.pop_due(u64::MAX / 2, &mut 1).is_some());
    }

    #[test]
    fn a_stale_name_does_not_fit_the_next_owner_of_its_slot() {
        let mut wheel = Wheel::new(0, 1);
        let first = wheel.arm(100, 'a');
        assert!(wheel.cancel(first));
        let second = wheel.arm(100, 'b');
        assert_eq!(first.slot, second.slot);
        assert!(!wheel.cancel(first) && !wheel.rearm(first, 5));
        assert_eq!(wheel.deadline_ms(second), Some(112));
    }

    #[test]
    fn timers_are_small() {
        #[derive(Clone, Copy)]
        #[expect(dead_code, reason = "only its size matters")]
        enum Owner {
            Conn(u32),
            Session(u32),
        }
        /// What `slab` keeps per place.
        #[expect(dead_code, reason = "only its size matters")]
        enum SlabEntry<T> {
            Vacant(usize),
            Occupied(T),
        }
        assert_eq!(size_of::<Option<TimerId>>(), 8);
        assert_eq!(size_of::<Node<Owner>>(), 24);
        assert_eq!(size_of::<SlabEntry<Node<Owner>>>(), 24, "a free place in a slab needs no tag of its own");
        assert!(size_of::<Wheel<Owner>>() <= 2_200);
    }
}
