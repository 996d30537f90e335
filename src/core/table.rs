//! Slabs indexed by typed slots.
//!
//! Owns nothing but the slab. A slot is a link inside one shard and always names a live entry: whoever
//! removes an entry first unlinks it. Keys that leave the core carry a generation and are checked with
//! [`Table::find`]. Links cost 4 bytes, present or not.

use super::seam::Generation;
use slab::Slab;
use std::{
    marker::PhantomData,
    num::NonZeroU32,
    ops::{Index, IndexMut},
};

/// A typed index of a table.
pub(super) trait Slot: Copy {
    fn new(index: usize) -> Self;
    fn index(self) -> usize;
    /// As it appears in keys and session ids.
    fn number(self) -> u32;
}

macro_rules! slots {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(NonZeroU32);

        impl Slot for $name {
            fn new(index: usize) -> Self {
                let index = u32::try_from(index + 1).expect("tables are capped far below 2^32 entries");
                $name(NonZeroU32::MIN.saturating_add(index - 1))
            }

            fn index(self) -> usize {
                self.number() as usize
            }

            fn number(self) -> u32 {
                self.0.get() - 1
            }
        }

    )*};
}

slots! { ConnSlot SessionSlot StreamSlot PostSlot CallSlot ExchangeSlot CredentialSlot PrincipalSlot }

/// An entry that knows which owner of its slot it is.
pub(super) trait Generational {
    fn generation(&self) -> Generation;
}

/// A slab whose index is a typed slot.
#[derive(Debug)]
pub(super) struct Table<S, T> {
    slab: Slab<T>,
    index_end: usize,
    slot: PhantomData<S>,
}

/// An entry of a slab as it is laid out: vacant ones hold the next vacant index in the entry's place.
#[allow(dead_code, reason = "only its size is of interest")]
enum SlabEntry<T> {
    Vacant(usize),
    Occupied(T),
}

/// What a slab takes for each entry.
pub(super) const fn slab_entry_bytes<T>() -> usize {
    size_of::<SlabEntry<T>>()
}

impl<S: Slot, T> Table<S, T> {
    /// What each entry takes.
    pub(super) const ENTRY_BYTES: usize = slab_entry_bytes::<T>();

    /// An empty table that never reallocates below `capacity` entries; untouched pages cost nothing.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Table { slab: Slab::with_capacity(capacity), index_end: 0, slot: PhantomData }
    }

    pub(super) fn insert(&mut self, entry: T) -> S {
        let slot = S::new(self.slab.insert(entry));
        self.index_end = self.index_end.max(slot.index() + 1);
        slot
    }

    pub(super) fn remove(&mut self, slot: S) -> T {
        self.slab.remove(slot.index())
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (S, &T)> {
        self.slab.iter().map(|(index, entry)| (S::new(index), entry))
    }

    /// The entry of a slot that may have been freed.
    pub(super) fn get(&self, slot: S) -> Option<&T> {
        self.slab.get(slot.index())
    }

    /// The entry at a bare index, for walks in several steps.
    pub(super) fn at(&self, index: usize) -> Option<(S, &T)> {
        self.slab.get(index).map(|entry| (S::new(index), entry))
    }

    /// One past the highest index an entry ever had.
    pub(super) fn index_end(&self) -> usize {
        self.index_end
    }
}

impl<S: Slot, T: Generational> Table<S, T> {
    /// The slot of a key from outside, if its entry still lives.
    pub(super) fn find(&self, slot: u32, generation: Generation) -> Option<S> {
        let index = slot as usize;
        self.slab.get(index).filter(|entry| entry.generation() == generation).map(|_| S::new(index))
    }
}

impl<S: Slot, T> Index<S> for Table<S, T> {
    type Output = T;

    fn index(&self, slot: S) -> &T {
        &self.slab[slot.index()]
    }
}

impl<S: Slot, T> IndexMut<S> for Table<S, T> {
    fn index_mut(&mut self, slot: S) -> &mut T {
        &mut self.slab[slot.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    struct Entry(Generation);

    impl Generational for Entry {
        fn generation(&self) -> Generation {
            self.0
        }
    }

    fn generation(n: u64) -> Generation {
        Generation(NonZeroU64::new(n).expect("not zero"))
    }

    #[test]
    fn a_link_costs_four_bytes_present_or_not() {
        assert_eq!(size_of::<Option<StreamSlot>>(), 4);
    }

    #[test]
    fn slots_count_from_zero() {
        let mut table: Table<ConnSlot, u8> = Table::with_capacity(2);
        let (a, b) = (table.insert(7), table.insert(8));
        assert_eq!((a.number(), b.number(), a.index()), (0, 1, 0));
        assert_eq!((table[a], table[b]), (7, 8));
    }

    #[test]
    fn a_key_of_a_former_owner_finds_nothing() {
        let mut table: Table<SessionSlot, Entry> = Table::with_capacity(1);
        let slot = table.insert(Entry(generation(1)));
        assert_eq!(table.find(slot.number(), generation(1)), Some(slot));
        table.remove(slot);
        assert_eq!(table.find(slot.number(), generation(1)), None);
        table.insert(Entry(generation(2)));
        assert_eq!(table.find(slot.number(), generation(1)), None);
        assert_eq!(table.find(99, generation(2)), None);
    }
}
