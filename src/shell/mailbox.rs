//! Mail between shards, and to them from outside: a bounded ring per ordered pair.
//!
//! Owns the rings, and rings the doorbells. Must never block, and never lose a connection in silence: one that is
//! not delivered is shut down and closed.
//!
//! Invariants
//! - Each ring has one producer and one consumer: loads and stores, no read-modify-write, no lock.
//! - A doorbell is rung after the mail is in the ring and cleared before the rings are read, so no mail is
//!   overlooked. At most one ring of the bell per target and turn.
//! - What the process as a whole wants of a shard is no mail but stands beside the bell (`doorbell`).
//!
//! O(1) per message. [`MAILBOX_MESSAGES_MAX`] slots per ordered pair, untouched until used.

use super::{
    counters::Statistics,
    doorbell::{Doorbell, Phase},
};
use crate::{
    core::{Announcement, Audience, Reach, ReadRequest, ShardId, http::reply::BUSY_503, quotas::Source},
    limits::{MAILBOX_MESSAGES_MAX, OUTSIDE_MESSAGES_MAX},
};
use bytes::BytesMut;
use std::{
    cell::UnsafeCell,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::oneshot;

/// What shards send each other.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A connection whose next request belongs to the receiver.
    Connection(Traveller),
    /// A notification for every session.
    Announcement(Announcement),
    /// A notification from outside.
    Publication(Letter),
    /// Somebody wants to know how the shard is.
    Inquiry(oneshot::Sender<Box<Statistics>>),
}

/// A notification from outside, for an audience on one shard.
#[derive(Debug)]
pub(crate) struct Letter {
    /// Who is to get it.
    pub(crate) audience: Audience,
    /// What they get.
    pub(crate) announcement: Announcement,
    /// Who wants to know how it went. Dropped if the shard ends before.
    pub(crate) reply: oneshot::Sender<Reach>,
}

/// A connection between two shards. Dropped on its way, because the shard it was sent to has ended, it is told to come
/// again (503), shut down and closed, so that its peer does not wait for ever.
#[derive(Debug)]
pub(crate) struct Traveller {
    fd: Option<OwnedFd>,
    bytes: BytesMut,
    request: Option<Box<ReadRequest>>,
    source: Source,
}

impl Traveller {
    /// A connection with no operation in flight, what was read from it and not consumed, the request before that if it was
    /// read, and where it came from.
    pub(crate) fn new(
        fd: OwnedFd,
        bytes: BytesMut,
        request: Option<Box<ReadRequest>>,
        source: Source,
    ) -> Self {
        Traveller { fd: Some(fd), bytes, request, source }
    }

    /// Ends the journey.
    pub(crate) fn arrive(mut self) -> (OwnedFd, BytesMut, Option<Box<ReadRequest>>, Source) {
        let fd = self.fd.take().expect("a traveller arrives once");
        (fd, std::mem::take(&mut self.bytes), self.request.take(), self.source)
    }
}

impl Drop for Traveller {
    fn drop(&mut self) {
        if let Some(fd) = &self.fd {
            super::socket::send_now(fd.as_fd(), BUSY_503);
            super::socket::shut(fd.as_fd());
        }
    }
}

// --- Mailboxes ----------------------------------------------------------------------------------

/// One shard's ends of all its rings.
#[derive(Debug)]
pub(crate) struct Mailbox {
    id: ShardId,
    outgoing: Vec<Option<Sender<Mail>>>,
    /// By sender; the one in the shard's own place comes from outside.
    incoming: Vec<Option<Receiver<Mail>>>,
    doorbells: Vec<Arc<Doorbell>>,
    to_ring: Vec<bool>,
    /// Where the next round of receiving starts, so that no sender is always last.
    first: usize,
}

/// Whether a budget left something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All was done.
    Nothing,
    /// There is more to do in the next turn.
    Something,
}

/// A mailbox for each of `shards` shards, connected to all the others.
///
/// # Errors
/// If the host has no descriptors left for the doorbells.
pub(crate) fn mailboxes(shards: u16) -> io::Result<Vec<Mailbox>> {
    let doorbells: Vec<_> = (0..shards).map(|_| Doorbell::new().map(Arc::new)).collect::<Result<_, _>>()?;
    let mut boxes: Vec<_> = (0..shards).map(|id| Mailbox::unconnected(ShardId(id), &doorbells)).collect();
    for from in 0..boxes.len() {
        for to in (0..boxes.len()).filter(|to| *to != from) {
            let (sender, receiver) = ring(MAILBOX_MESSAGES_MAX);
            boxes[from].outgoing[to] = Some(sender);
            boxes[to].incoming[from] = Some(receiver);
        }
    }
    Ok(boxes)
}

impl Mailbox {
    fn unconnected(id: ShardId, doorbells: &[Arc<Doorbell>]) -> Self {
        Mailbox {
            id,
            outgoing: doorbells.iter().map(|_| None).collect(),
            incoming: doorbells.iter().map(|_| None).collect(),
            doorbells: doorbells.to_vec(),
            to_ring: vec![false; doorbells.len()],
            first: 0,
        }
    }

    /// This shard's own bell.
    pub(crate) fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbells[usize::from(self.id.0)]
    }

    /// All the other shards.
    pub(crate) fn others(&self) -> impl Iterator<Item = ShardId> + use<> {
        let own = self.id;
        (0..u16::try_from(self.doorbells.len()).expect("made from a u16"))
            .map(ShardId)
            .filter(move |id| *id != own)
    }

    /// Puts `mail` into the ring to shard `to`, which learns of it at [`ring_doorbells`](Self::ring_doorbells).
    ///
    /// # Errors
    /// Gives the mail back if the ring is full or there is no such shard.
    pub(crate) fn send(&mut self, to: ShardId, mail: Mail) -> Result<(), Mail> {
        let index = usize::from(to.0);
        let Some(Some(sender)) = self.outgoing.get_mut(index) else { return Err(mail) };
        sender.push(mail)?;
        self.to_ring[index] = true;
        Ok(())
    }

    /// Wakes everyone who was sent something since the last call.
    pub(crate) fn ring_doorbells(&mut self) {
        for (bell, to_ring) in self.doorbells.iter().zip(&mut self.to_ring) {
            if std::mem::take(to_ring) {
                bell.ring();
            }
        }
    }

    /// Moves at most `budget` messages to `out`, a fair share from each sender.
    pub(crate) fn receive(&mut self, budget: usize, out: &mut Vec<Mail>) -> Left {
        let shards = self.incoming.len();
        let senders = self.incoming.iter().flatten().count();
        let share = budget.div_ceil(senders.max(1));
        let mut left = budget;
        for step in 0..shards {
            if let Some(receiver) = &mut self.incoming[(self.first + step) % shards] {
                let mut from_this = share.min(left);
                while from_this > 0
                    && let Some(mail) = receiver.pop()
                {
                    out.push(mail);
                    from_this -= 1;
                    left -= 1;
                }
            }
        }
        self.first = (self.first + 1) % shards.max(1);
        let all_are_empty = self.incoming.iter().flatten().all(Receiver::is_empty);
        if all_are_empty { Left::Nothing } else { Left::Something }
    }
}

// --- From outside -------------------------------------------------------------------------------

/// The way to all shards for one thread that is none of them.
#[derive(Debug)]
pub(crate) struct Outside {
    senders: Vec<Sender<Mail>>,
    doorbells: Vec<Arc<Doorbell>>,
}

/// Connects a thread that is no shard to all of `boxes`. There can be one such thread.
pub(crate) fn outside(boxes: &mut [Mailbox]) -> Outside {
    let mut senders = Vec::with_capacity(boxes.len());
    for (index, mailbox) in boxes.iter_mut().enumerate() {
        let (sender, receiver) = ring(OUTSIDE_MESSAGES_MAX);
        assert!(mailbox.incoming[index].is_none(), "one thread outside");
        mailbox.incoming[index] = Some(receiver);
        senders.push(sender);
    }
    let doorbells = boxes.iter().map(|mailbox| mailbox.doorbell().clone()).collect();
    Outside { senders, doorbells }
}

impl Outside {
    /// All shards.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..u16::try_from(self.senders.len()).expect("made from a u16")).map(ShardId)
    }

    /// Whether the next [`send`](Self::send) to `shard` finds room.
    pub(crate) fn has_room(&self, shard: ShardId) -> bool {
        self.senders.get(usize::from(shard.0)).is_some_and(|sender| !sender.is_full())
    }

    /// Sends `mail` to `shard` and wakes it.
    ///
    /// # Errors
    /// Gives the mail back if the ring is full or there is no such shard.
    pub(crate) fn send(&mut self, shard: ShardId, mail: Mail) -> Result<(), Mail> {
        let index = usize::from(shard.0);
        let Some(sender) = self.senders.get_mut(index) else { return Err(mail) };
        sender.push(mail)?;
        self.doorbells[index].ring();
        Ok(())
    }

    /// What is wanted of the shards.
    pub(crate) fn phase(&self) -> Phase {
        self.doorbells.iter().map(|bell| bell.phase()).max().unwrap_or(Phase::Run)
    }
}

// --- One ring -----------------------------------------------------------------------------------

/// The producer's end.
#[derive(Debug)]
struct Sender<T>(Arc<Ring<T>>);

/// The consumer's end.
#[derive(Debug)]
struct Receiver<T>(Arc<Ring<T>>);

/// `head..tail` are full. Both only grow (and wrap); a slot's index is the counter modulo the capacity.
#[derive(Debug)]
struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// The next to be read; stored by the consumer only.
    head: OwnLine<AtomicUsize>,
    /// The next to be written; stored by the producer only.
    tail: OwnLine<AtomicUsize>,
}

/// Keeps the two ends from sharing a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine<T>(T);

// SAFETY: a ring only moves values of `T` from one thread to another; a slot is accessed by the producer
// alone while outside `head..tail` and by the consumer alone while inside, handed over by the release
// store and acquire load of the counter that moves the boundary.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; it owns its values.
unsafe impl<T: Send> Send for Ring<T> {}

fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity.is_power_of_two(), "counters that wrap must map to the same slots");
    let ring = Arc::new(Ring {
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        head: OwnLine(AtomicUsize::new(0)),
        tail: OwnLine(AtomicUsize::new(0)),
    });
    (Sender(ring.clone()), Receiver(ring))
}

const _: () = assert!(MAILBOX_MESSAGES_MAX.is_power_of_two(), "the capacity of a ring");
const _: () = assert!(OUTSIDE_MESSAGES_MAX.is_power_of_two(), "the capacity of a ring");

impl<T> Sender<T> {
    fn push(&mut self, value: T) -> Result<(), T> {
        let ring = &*self.0;
        let tail = ring.tail.0.load(Ordering::Relaxed);
        if tail.wrapping_sub(ring.head.0.load(Ordering::Acquire)) == ring.slots.len() {
            return Err(value);
        }
        let slot = ring.slot(tail);
        // SAFETY:
        // - the slot is outside `head..tail`: the consumer does not touch it until the store below, and
        //   the acquire load above saw it done with the slot's former value;
        // - there is one producer: a `Sender` is not cloned and `push` takes it exclusively.
        unsafe { (*slot).write(value) };
        ring.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }
}

impl<T> Sender<T> {
    fn is_full(&self) -> bool {
        let ring = &*self.0;
        let tail = ring.tail.0.load(Ordering::Relaxed);
        tail.wrapping_sub(ring.head.0.load(Ordering::Acquire)) == ring.slots.len()
    }
}

impl<T> Receiver<T> {
    fn pop(&mut self) -> Option<T> {
        let ring = &*self.0;
        let head = ring.head.0.load(Ordering::Relaxed);
        if head == ring.tail.0.load(Ordering::Acquire) {
            return None;
        }
        let slot = ring.slot(head);
        // SAFETY:
        // - the slot is inside `head..tail`: the acquire load above makes the producer's write visible,
        //   so it is initialised, and the producer does not touch it until the store below;
        // - it is read once: there is one consumer, taken exclusively, and `head` moves past it.
        let value = unsafe { (*slot).assume_init_read() };
        ring.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    fn is_empty(&self) -> bool {
        self.0.head.0.load(Ordering::Relaxed) == self.0.tail.0.load(Ordering::Acquire)
    }
}

impl<T> Ring<T> {
    fn slot(&self, counter: usize) -> *mut MaybeUninit<T> {
        self.slots[counter & (self.slots.len() - 1)].get()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (mut head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        while head != tail {
            // SAFETY: both ends are gone, so this is the only access; `head..tail` is initialised.
            unsafe { (*self.slot(head)).assume_init_drop() };
            head = head.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use crate::core::{NotificationKind, ledger::Ledger, quotas::Quotas};
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::{
        collections::VecDeque,
        io::{Read, Write},
        net::Ipv4Addr,
        os::unix::net::UnixStream,
        rc::Rc,
        thread,
    };

    fn announcement(text: &'static str) -> Mail {
        Mail::Announcement(Announcement {
            kind: NotificationKind::Other,
            payload: Bytes::from_static(text.as_bytes()),
        })
    }

    fn text(mail: &Mail) -> &[u8] {
        match mail {
            Mail::Announcement(announcement) => &announcement.payload,
            Mail::Connection(traveller) => &traveller.bytes,
            Mail::Publication(_) | Mail::Inquiry(_) => b"",
        }
    }

    proptest! {
        #[test]
        fn a_ring_is_a_bounded_queue(ops in prop::collection::vec(prop::option::of(any::<u16>()), 0..400)) {
            let (mut sender, mut receiver) = ring(8);
            let mut model = VecDeque::new();
            for op in ops {
                match op {
                    Some(value) if model.len() < 8 => {
                        prop_assert_eq!(sender.push(value), Ok(()));
                        model.push_back(value);
                    }
                    Some(value) => prop_assert_eq!(sender.push(value), Err(value)),
                    None => prop_assert_eq!(receiver.pop(), model.pop_front()),
                }
                prop_assert_eq!(receiver.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn counters_may_wrap() {
        let (mut sender, mut receiver) = ring(4);
        for counter in [&sender.0.head.0, &sender.0.tail.0] {
            counter.store(usize::MAX - 1, Ordering::Relaxed);
        }
        for value in 0..10 {
            sender.push(value).unwrap();
            sender.push(value + 100).unwrap();
            assert_eq!(receiver.pop(), Some(value));
            assert_eq!(receiver.pop(), Some(value + 100));
            assert_eq!(receiver.pop(), None);
        }
    }

    #[test]
    fn what_is_left_in_a_ring_is_dropped_once() {
        let value = Rc::new(());
        let (mut sender, mut receiver) = ring(4);
        for _ in 0..3 {
            sender.push(value.clone()).unwrap();
        }
        drop(receiver.pop());
        drop((sender, receiver));
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn nothing_is_lost_or_reordered_between_threads() {
        const COUNT: u64 = 200_000;
        let (mut sender, mut receiver) = ring(64);
        let producer = thread::spawn(move || {
            for value in 0..COUNT {
                let mut value = Box::new(value);
                while let Err(back) = sender.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            match receiver.pop() {
                Some(value) => {
                    assert_eq!(*value, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        producer.join().unwrap();
        assert_eq!(receiver.pop(), None);
    }

    #[test]
    fn a_full_ring_gives_the_mail_back() {
        let mut boxes = mailboxes(2).unwrap();
        for _ in 0..MAILBOX_MESSAGES_MAX {
            boxes[0].send(ShardId(1), announcement("x")).unwrap();
        }
        assert_eq!(text(&boxes[0].send(ShardId(1), announcement("y")).unwrap_err()), b"y");
        assert_eq!(boxes[1].receive(1, &mut Vec::new()), Left::Something);
        boxes[0].send(ShardId(1), announcement("y")).unwrap();
    }

    #[test]
    fn there_is_no_mail_to_oneself_or_to_nobody() {
        let mut boxes = mailboxes(2).unwrap();
        assert!(boxes[0].send(ShardId(0), announcement("x")).is_err());
        assert!(boxes[0].send(ShardId(2), announcement("x")).is_err());
        assert_eq!(boxes[0].others().collect::<Vec<_>>(), [ShardId(1)]);
    }

    #[test]
    fn a_busy_sender_leaves_room_for_the_others() {
        let mut boxes = mailboxes(3).unwrap();
        for _ in 0..100 {
            boxes[0].send(ShardId(2), announcement("busy")).unwrap();
        }
        boxes[1].send(ShardId(2), announcement("quiet")).unwrap();
        let mut mail = Vec::new();
        assert_eq!(boxes[2].receive(10, &mut mail), Left::Something);
        assert!(mail.len() <= 10);
        assert!(mail.iter().any(|mail| text(mail) == b"quiet"));
    }

    #[test]
    fn the_bell_rings_once_for_many_letters() {
        let mut boxes = mailboxes(2).unwrap();
        for _ in 0..5 {
            boxes[0].send(ShardId(1), announcement("x")).unwrap();
        }
        boxes[0].ring_doorbells();
        boxes[0].ring_doorbells();
        assert_eq!(boxes[1].doorbell().count(), 1);
        boxes[1].doorbell().clear();
    }

    fn traveller(server: UnixStream) -> Traveller {
        let (address, ledger) = (Ipv4Addr::LOCALHOST.into(), Ledger::new(1));
        let source = Source::enter(address, Quotas::NONE.connections, &ledger).unwrap();
        Traveller::new(server.into(), BytesMut::from("GET"), None, source)
    }

    #[test]
    fn an_undelivered_connection_is_told_to_come_again() {
        let (server, mut client) = UnixStream::pair().unwrap();
        let mut boxes = mailboxes(2).unwrap();
        let traveller = traveller(server);
        boxes[0].send(ShardId(1), Mail::Connection(traveller)).unwrap();
        drop(boxes);
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).unwrap();
        assert_eq!(reply, BUSY_503);
    }

    #[test]
    fn a_delivered_connection_stays_open() {
        let (server, mut client) = UnixStream::pair().unwrap();
        let traveller = traveller(server);
        let (fd, bytes, ..) = traveller.arrive();
        assert_eq!(bytes, "GET");
        UnixStream::from(fd).write_all(b"ok").unwrap();
        let mut reply = [0; 2];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"ok");
    }

    #[test]
    fn a_phase_never_goes_back() {
        let boxes = mailboxes(1).unwrap();
        let bell = boxes[0].doorbell();
        assert_eq!(bell.phase(), Phase::Run);
        bell.advance(Phase::Stop);
        bell.advance(Phase::Drain);
        assert_eq!(bell.phase(), Phase::Stop);
    }
}
