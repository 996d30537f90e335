//! The children of one shard, and which of them were woken.
//!
//! Owns a seat for each child, from the order to start it until it is reaped. Each seat has one waker for life: waking puts
//! its index on a list, once however often, and wakes the driver, once however many. So a turn looks only at children
//! that have something. Reading has a budget per child and one for all of them together; what is left over is looked at
//! again in the next turn, in order, so that no child that floods keeps another waiting.
//!
//! Invariant: a seat is free exactly after its [`Event::Exited`] was told. Ids carry a generation, so that a late word to a
//! child that is no more is lost. O(1) per woken child; an idle one costs nothing but its memory.

use super::{
    Program,
    outbox::Outbox,
    process::{Child, Event, Left},
    spawner::{Newborn, Place, Places, Spawner},
};
use crate::limits::{CHILD_INPUT_BYTES_MAX, CHILD_READ_BYTES_MAX, CHILDREN_READ_BYTES_MAX};
use bytes::Bytes;
use slab::Slab;
use std::{
    collections::{BTreeSet, VecDeque},
    fmt, io, mem,
    sync::atomic::{AtomicBool, Ordering},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

pub(crate) use super::outbox::Full;

/// A child of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChildId {
    slot: usize,
    generation: u64,
}

impl fmt::Display for ChildId {
    /// Its number on its shard, in the order of starts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.generation.fmt(f)
    }
}

/// One shard's children. See the module.
pub(crate) struct Children {
    spawner: Spawner,
    places: Arc<Places>,
    line_bytes_max: usize,
    seats: Slab<Seat>,
    generations: u64,
    shared: Arc<Shared>,
    /// Woken seats that were not looked at for want of budget, or that had more to say.
    waiting: VecDeque<usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    buffer: Box<[u8]>,
}

struct Seat {
    generation: u64,
    wake: Arc<SeatWake>,
    waker: Waker,
    state: State,
    deadline: Option<Instant>,
    /// Given back with the seat.
    _place: Place,
}

enum State {
    /// Its start was ordered; what it is to be told waits.
    Ordered(Outbox),
    /// The same, but by now it is not wanted.
    Unwanted,
    Started(Box<Child>),
}

impl Children {
    /// None yet. `line_bytes_max` bounds a line of a child's output.
    pub(crate) fn new(spawner: Spawner, places: Arc<Places>, line_bytes_max: usize) -> Self {
        Children {
            spawner,
            places,
            line_bytes_max,
            seats: Slab::new(),
            generations: 0,
            shared: Arc::new(Shared::default()),
            waiting: VecDeque::new(),
            deadlines: BTreeSet::new(),
            buffer: vec![0; CHILD_READ_BYTES_MAX].into_boxed_slice(),
        }
    }

    /// Has a child started, or `None` if the process has as many as it may. It can be sent to at once.
    pub(crate) fn start(&mut self, program: &Arc<Program>) -> Option<ChildId> {
        let place = self.places.take()?;
        self.generations += 1;
        let generation = self.generations;
        let slot = self.seats.vacant_key();
        let wake =
            Arc::new(SeatWake { slot, is_listed: AtomicBool::new(false), shared: self.shared.clone() });
        let waker = Waker::from(Arc::clone(&wake));
        let state = State::Ordered(Outbox::default());
        self.seats.insert(Seat { generation, wake, waker, state, deadline: None, _place: place });
        let (id, shared) = (ChildId { slot, generation }, Arc::clone(&self.shared));
        self.spawner.order(Arc::clone(program), Box::new(move |newborn| shared.deliver(id, newborn)));
        Some(id)
    }

    /// Queues a line, which must end in a line feed and contain no other, and writes what can be written.
    ///
    /// # Errors
    /// If too much waits to be written already, or there is no such child to write to.
    pub(crate) fn send(&mut self, child: ChildId, line: Bytes) -> Result<(), Full> {
        debug_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1), "one line");
        let seat = self.find(child).ok_or(Full)?;
        match &mut seat.state {
            State::Ordered(outbox) => outbox.push(line, CHILD_INPUT_BYTES_MAX),
            State::Unwanted => Err(Full),
            State::Started(started) => started.send(line, &mut Context::from_waker(&seat.waker)),
        }
    }

    /// Lets a child end: see [`process`](super::process). Asked again it may get less time, never more.
    pub(crate) fn end(&mut self, child: ChildId, grace: Duration) {
        let Some(seat) = self.find(child) else { return };
        match &mut seat.state {
            State::Ordered(_) => seat.state = State::Unwanted,
            State::Unwanted => {}
            State::Started(started) => started.end(grace, Instant::now()),
        }
        self.keep_deadline(child.slot);
    }

    /// Lets all children end.
    pub(crate) fn end_all(&mut self, grace: Duration) {
        let all: Vec<_> = self.seats.iter().map(|(slot, seat)| (slot, seat.generation)).collect();
        for (slot, generation) in all {
            self.end(ChildId { slot, generation }, grace);
        }
    }

    /// Looks at the children that were woken and appends what they did to `events`. `cx`'s waker is woken when there
    /// is a reason to call it again; see also [`has_more`](Self::has_more) and [`deadline`](Self::deadline).
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, events: &mut Vec<(ChildId, Event)>) {
        let newborns = self.shared.take(cx.waker(), &mut self.waiting);
        for (child, newborn) in newborns {
            self.welcome(child, newborn, events);
        }
        if !self.deadlines.is_empty() {
            self.heed_time(Instant::now());
        }
        let mut budget = CHILDREN_READ_BYTES_MAX;
        for _ in 0..self.waiting.len() {
            if budget == 0 {
                break;
            }
            if let Some(slot) = self.waiting.pop_front() {
                self.advance(slot, &mut budget, events);
            }
        }
    }

    /// Whether there is more to do at once.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When to call [`poll`](Self::poll) at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many there are, starting and ending ones included.
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    // --- Seats --------------------------------------------------------------------------------

    fn find(&mut self, child: ChildId) -> Option<&mut Seat> {
        self.seats.get_mut(child.slot).filter(|seat| seat.generation == child.generation)
    }

    fn welcome(&mut self, child: ChildId, newborn: io::Result<Newborn>, events: &mut Vec<(ChildId, Event)>) {
        let line_bytes_max = self.line_bytes_max;
        let Some(seat) = self.find(child) else { return };
        let adopted = newborn.and_then(|newborn| match mem::replace(&mut seat.state, State::Unwanted) {
            State::Ordered(outbox) => Child::adopt(newborn, outbox, line_bytes_max),
            State::Unwanted | State::Started(_) => {
                let mut unwanted = Child::adopt(newborn, Outbox::default(), line_bytes_max)?;
                unwanted.end(Duration::ZERO, Instant::now());
                Ok(unwanted)
            }
        });
        match adopted {
            Ok(started) => {
                seat.state = State::Started(Box::new(started));
                self.waiting.push_back(child.slot);
            }
            Err(error) => self.leave(child, format!("it cannot be started: {error}"), events),
        }
    }

    fn advance(&mut self, slot: usize, budget: &mut usize, events: &mut Vec<(ChildId, Event)>) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        // From here on a wake counts again, also one that happens while the child is looked at.
        seat.wake.is_listed.store(false, Ordering::Release);
        let child = ChildId { slot, generation: seat.generation };
        let State::Started(started) = &mut seat.state else { return };
        let share = (*budget).min(CHILD_READ_BYTES_MAX);
        let (mut own, mut exit) = (share, None);
        let cx = &mut Context::from_waker(&seat.waker);
        let left = started.advance(cx, &mut self.buffer, &mut own, |event| match event {
            Event::Exited(status) => exit = Some(status),
            event => events.push((child, event)),
        });
        *budget -= share - own;
        match (exit, left) {
            (Some(status), _) => self.leave(child, status, events),
            (None, Left::Something) => self.waiting.push_back(slot),
            (None, Left::Nothing) => {}
        }
    }

    fn leave(&mut self, child: ChildId, status: String, events: &mut Vec<(ChildId, Event)>) {
        let seat = self.seats.remove(child.slot);
        if let Some(deadline) = seat.deadline {
            self.deadlines.remove(&(deadline, child.slot));
        }
        events.push((child, Event::Exited(status)));
    }

    fn heed_time(&mut self, now: Instant) {
        while let Some(&(deadline, slot)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            if let Some(seat) = self.seats.get_mut(slot) {
                seat.deadline = None;
                if let State::Started(started) = &mut seat.state {
                    started.heed_time(now);
                }
            }
            self.keep_deadline(slot);
        }
    }

    /// Brings the list in line with what the child waits for.
    fn keep_deadline(&mut self, slot: usize) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        let deadline = match &seat.state {
            State::Started(started) => started.deadline(),
            State::Ordered(_) | State::Unwanted => None,
        };
        if let Some(former) = mem::replace(&mut seat.deadline, deadline) {
            self.deadlines.remove(&(former, slot));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, slot));
        }
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("len", &self.seats.len()).finish_non_exhaustive()
    }
}

// --- Waking -------------------------------------------------------------------------------------

/// What other threads and the reactor leave for the shard.
#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    woken: Vec<usize>,
    newborns: Vec<(ChildId, io::Result<Newborn>)>,
    /// Taken by the first wake after a poll: the driver is woken once a turn.
    driver: Option<Waker>,
}

impl Shared {
    fn take(&self, driver: &Waker, woken: &mut VecDeque<usize>) -> Vec<(ChildId, io::Result<Newborn>)> {
        let mut inner = self.lock();
        woken.extend(inner.woken.drain(..));
        inner.driver = Some(driver.clone());
        mem::take(&mut inner.newborns)
    }

    fn deliver(&self, child: ChildId, newborn: io::Result<Newborn>) {
        self.lock().newborns.push((child, newborn));
        self.wake_driver();
    }

    fn wake_driver(&self) {
        // Not while the lock is held: a waker may do anything.
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// No code that can panic runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SeatWake {
    slot: usize,
    is_listed: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for SeatWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.shared.lock().woken.push(self.slot);
            self.shared.wake_driver();
        }
    }
}
