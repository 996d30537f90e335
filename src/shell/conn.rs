//! One connection as the shell sees it, and the table of all of them.
//!
//! Owns the descriptor and the operations in flight on it; knows neither requests nor streams. The
//! table's slots are the core's: a connection's entry stands where its [`ConnKey`] says.
//!
//! Invariants
//! - At most one operation on the read side (a poll) and one on the write side (a send, or the cancellation of
//!   the poll).
//! - An entry is removed, and its descriptor closed, only when both sides are idle.
//!
//! 72 B per connection; look-up is an index and a comparison.

use super::ring::{Message, Op};
use crate::core::{ConnKey, Generation};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection's entry.
pub(crate) struct Conn {
    generation: Generation,
    fd: OwnedFd,
    /// How far it is from its end.
    pub(crate) state: State,
    /// Whether its peer may still send.
    pub(crate) input: Input,
    /// What is in flight on the read side.
    pub(crate) read: Read,
    /// What is in flight on the write side.
    pub(crate) write: Write,
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In use by the core.
    Open,
    /// Dead; the core knows and has not yet said to close it.
    Lost,
    /// Everything was written and the write side is shut; input is dropped until the peer closes too.
    Lingering {
        /// Bytes dropped so far.
        dropped: u32,
    },
    /// Both sides are shut: once its operations have completed, it is gone.
    Dying,
}

/// Whether the peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// It may.
    Open,
    /// It has closed its side; the core knows.
    Ended,
}

/// What a poll waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Input, or the peer's close.
    Readable,
    /// The peer's close alone.
    HangUp,
    /// The connection's death alone.
    Failure,
}

/// The read side.
pub(crate) enum Read {
    /// Nothing.
    Idle,
    /// Parked without a buffer.
    Poll(Op<()>, Watch),
}

/// The write side.
pub(crate) enum Write {
    /// Nothing.
    Idle,
    /// Sending one static slice.
    Static(Op<()>),
    /// Sending a list of pieces. The box comes from a pool: in place it would be dead weight in the entry of a
    /// parked connection.
    Message(Pending<Box<Message>>),
    /// Cancelling the poll of the read side.
    Cancel(Op<()>),
}

/// A pooled place for an operation that is larger than most entries need; full while in use.
pub(crate) type Pending<D> = Box<Option<Op<D>>>;

impl Conn {
    /// An open connection without operations.
    pub(crate) fn new(generation: Generation, fd: OwnedFd) -> Self {
        Conn { generation, fd, state: State::Open, input: Input::Open, read: Read::Idle, write: Write::Idle }
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether no operation is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        matches!((&self.read, &self.write), (Read::Idle, Write::Idle))
    }

    /// Gives the descriptor away.
    ///
    /// # Panics
    /// If an operation is in flight: it could end up on another socket.
    pub(crate) fn into_fd(self) -> OwnedFd {
        assert!(self.is_idle(), "a descriptor is given away after its last operation");
        self.fd
    }
}

/// All connections of a shard, by slot.
pub(crate) struct Table {
    entries: Vec<Option<Conn>>,
    count: usize,
}

impl Table {
    /// An empty table that never reallocates up to `connections_max`: pages that are not touched cost
    /// nothing.
    pub(crate) fn with_capacity(connections_max: usize) -> Self {
        Table { entries: Vec::with_capacity(connections_max), count: 0 }
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Enters a connection under the key the core gave it.
    ///
    /// # Panics
    /// If the slot is taken: the core reuses one only after it was told that it is free.
    pub(crate) fn insert(&mut self, key: ConnKey, fd: OwnedFd) {
        let index = key.slot as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        assert!(self.entries[index].is_none(), "a slot is reused after its connection was closed");
        self.entries[index] = Some(Conn::new(key.generation, fd));
        self.count += 1;
    }

    /// The connection of that key, if it is still there.
    pub(crate) fn find(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.entries.get_mut(key.slot as usize)?.as_mut().filter(|conn| conn.generation == key.generation)
    }

    /// Whoever is in `slot`, and its key.
    pub(crate) fn at(&mut self, slot: u32) -> Option<(ConnKey, &mut Conn)> {
        let conn = self.entries.get_mut(slot as usize)?.as_mut()?;
        Some((ConnKey { slot, generation: conn.generation }, conn))
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, key: ConnKey) -> Option<Conn> {
        self.find(key)?;
        self.count -= 1;
        self.entries[key.slot as usize].take()
    }

    /// Whether a write is in flight on any of them. Looks at every entry.
    pub(crate) fn is_writing(&self) -> bool {
        self.entries.iter().flatten().any(|conn| matches!(conn.write, Write::Static(_) | Write::Message(_)))
    }

    /// The keys of all connections.
    pub(crate) fn keys(&self) -> Vec<ConnKey> {
        let key = |(slot, conn): (usize, &Option<Conn>)| {
            let slot = u32::try_from(slot).expect("slots are 32-bit");
            conn.as_ref().map(|conn| ConnKey { slot, generation: conn.generation })
        };
        self.entries.iter().enumerate().filter_map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::{num::NonZeroU64, os::unix::net::UnixStream};

    fn key(slot: u32, generation: u64) -> ConnKey {
        ConnKey { slot, generation: Generation(NonZeroU64::new(generation).unwrap()) }
    }

    fn fd() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[test]
    fn an_old_key_does_not_find_the_new_owner_of_its_slot() {
        let mut table = Table::with_capacity(4);
        table.insert(key(2, 1), fd());
        assert!(table.remove(key(2, 9)).is_none());
        assert!(table.remove(key(2, 1)).is_some());
        table.insert(key(2, 2), fd());
        assert!(table.find(key(2, 1)).is_none());
        assert!(table.find(key(2, 2)).is_some());
        assert_eq!((table.len(), table.keys()), (1, vec![key(2, 2)]));
    }

    #[test]
    #[should_panic(expected = "a slot is reused after its connection was closed")]
    fn a_taken_slot_is_our_mistake() {
        let mut table = Table::with_capacity(4);
        table.insert(key(0, 1), fd());
        table.insert(key(0, 2), fd());
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Op<()>>(), 16);
        assert_eq!(size_of::<Option<Conn>>(), 72);
    }
}
