//! A shard's one task: the order of a turn, and when to rest.
//!
//! Owns the shard's core, backend, connections and everything else of its thread. Must never wait for
//! anything but its wakers, and never wake itself: what a budget leaves over is continued after a
//! no-operation of the ring, so that the runtime parks, flushes and dispatches in between.
//!
//! A turn, in order: completions become inputs of the core; mail; the backend; timers; broadcasts; effects;
//! output; reads are parked again. Each step is bounded. The clock is read once.
//!
//! Invariants
//! - While work is left a no-operation is in flight; otherwise the one timer stands at the next deadline,
//!   or nothing is due and the shard uses no CPU.
//! - A panic in a turn ends the process: a shard that lost half of an update must not go on.
//!
//! O(what happened) per turn.

use super::{
    Backend,
    conn::{Pending, Table},
    counters::{Counters, Statistics},
    doorbell::{Doorbell, Phase},
    ending::Leaving,
    entropy::SystemEntropy,
    listen::{Bound, Listener, Newcomer},
    mailbox::{Left, Letter, Mail, Mailbox},
    notices::{self, Refused},
    refuse::Refusals,
    ring::{self, Message, Op, Progress, Source, Word},
};
use crate::{
    core::{
        Announcement, Ask, ConnKey, Effect, Ending, Now, Publication, PublicationId, Reach, ShardId, Tell,
        census::Census, config::CoreConfig, http::reply::BUSY_503, shard::Shard,
    },
    limits::{
        DRAIN_STEP_MS, EXPIRIES_PER_TURN_MAX, FORCED_END_MS, LINGER_MS, MAIL_PER_TURN_MAX,
        MAILBOX_MESSAGES_MAX, MESSAGES_POOLED, NEWCOMERS_WAIT_MS, READ_BUFFERS_POOLED, RING_COMPLETIONS,
        SENDS_PER_TURN_MAX,
    },
};
use bytes::BytesMut;
use slab::Slab;
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{Interest as Readiness, unix::AsyncFd},
    sync::oneshot,
    time::Sleep,
};

/// A turn that takes longer than this is counted: everyone on the shard has waited for it.
const SLOW_TURN: Duration = Duration::from_millis(10);

/// What a shard is made of.
pub(crate) struct Parts {
    /// Its index.
    pub(crate) id: ShardId,
    /// What its core is told.
    pub(crate) core: Arc<CoreConfig>,
    /// Its listening sockets.
    pub(crate) listeners: Vec<Bound>,
    /// Its ends of the rings to the other shards.
    pub(crate) mailbox: Mailbox,
    /// What all shards count together.
    pub(crate) census: Arc<Census>,
    /// Entries of its submission queue.
    pub(crate) ring_entries: u32,
    /// How long running calls may take to finish once it drains.
    pub(crate) grace: Duration,
}

/// Runs a shard on this thread until it has drained or was stopped. `ready` is called once it accepts.
///
/// # Errors
/// If the ring or the runtime cannot be made.
pub(crate) fn run<B: Backend + 'static>(
    parts: Parts,
    backend: B,
    ready: impl FnOnce(),
) -> io::Result<Farewell> {
    let mut ring = tokio_uring::uring_builder();
    ring.setup_single_issuer().setup_coop_taskrun().setup_cqsize(RING_COMPLETIONS);
    let runtime =
        tokio_uring::Runtime::new(tokio_uring::builder().entries(parts.ring_entries).uring_builder(&ring))?;
    let (end, farewell) = runtime.block_on(async move {
        let mut driver = Driver::start(parts, backend)?;
        ready();
        // A task of its own is polled only when it was woken; the runtime's root is polled whenever
        // anything was.
        let task = tokio_uring::spawn(poll_fn(move |cx| driver.guarded_turn(cx)));
        task.await.map_err(io::Error::other)
    })?;
    match end {
        End::Clean => drop(runtime),
        // Dropping it would wait for operations that may never complete; their buffers stay with it.
        End::Forced => std::mem::forget(runtime),
    }
    Ok(farewell)
}

/// What a stop ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Farewell {
    /// Listener streams that were ended cleanly.
    pub(crate) streams: u64,
    /// Sessions that were there at the end.
    pub(crate) sessions: u64,
    /// Calls that had not finished in time.
    pub(crate) calls_cut: usize,
}

impl Farewell {
    /// Both together, as of two shards.
    pub(crate) fn plus(self, other: Farewell) -> Farewell {
        Farewell {
            streams: self.streams + other.streams,
            sessions: self.sessions + other.sessions,
            calls_cut: self.calls_cut + other.calls_cut,
        }
    }
}

/// How a shard ended.
enum End {
    /// Nothing was in flight.
    Clean,
    /// Operations were left behind.
    Forced,
}

/// How far a shard is from its end.
#[derive(Clone, Copy)]
enum Stage {
    Running,
    /// Running calls finish.
    Draining {
        until_ms: u64,
    },
    /// Calls that run no longer may: what is said of them is still written.
    Stopping {
        until_ms: u64,
        /// Until then those who came last are heard.
        newcomers_until_ms: u64,
    },
    /// All connections are being closed; those that linger may.
    Closing {
        until_ms: u64,
    },
    /// All connections are shut; only the kernel is waited for.
    Forced {
        until_ms: u64,
    },
}

/// Everything of one shard. Its methods are in this module (turns), `input`, `output` and `ending`.
pub(super) struct Driver<B> {
    pub(super) core: Shard,
    backend: B,
    pub(super) table: Table,
    /// Connections that wait for their last operation before they move to another shard.
    pub(super) leaving: Slab<Leaving>,
    listeners: Vec<Listener>,
    pub(super) refusals: Refusals,
    pub(super) mailbox: Mailbox,
    bell: AsyncFd<Arc<Doorbell>>,
    clock: Clock,
    pub(super) now: Now,
    timer: Pin<Box<Sleep>>,
    timer_ms: Option<u64>,
    nop: Option<Op<()>>,
    stage: Stage,
    /// Calls that ran when their time was over.
    calls_cut: usize,
    grace: Duration,

    /// Connections whose read side is looked at before the turn ends.
    pub(super) touched: Vec<ConnKey>,
    /// Connections whose output had to wait for a cancellation.
    pub(super) held_back: Vec<ConnKey>,
    /// Broadcasts that found a full ring.
    backlog: VecDeque<(ShardId, Announcement)>,
    has_mail: Left,
    /// Who waits for the publications under way.
    publishers: Slab<oneshot::Sender<Reach>>,

    pub(super) buffers: Pool<BytesMut>,
    pub(super) messages: Pool<Box<Message>>,
    pub(super) sends: Pool<Pending<Box<Message>>>,
    newcomers: Vec<Newcomer>,
    mail: Vec<Mail>,
    tells: Vec<Tell>,
    pub(super) counters: Counters,
    refused: Refused,
}

impl<B: Backend> Driver<B> {
    fn start(parts: Parts, backend: B) -> io::Result<Self> {
        let clock = Clock::start();
        let now = clock.read();
        let connections_expected = share_of_connections(&parts.core);
        let entropy = Box::new(SystemEntropy::new());
        let doorbell = parts.mailbox.doorbell().clone();
        let listeners = (0..).zip(parts.listeners).map(|(index, fd)| Listener::start(fd, index)).collect();
        Ok(Driver {
            core: Shard::new(parts.id, parts.core, parts.census, entropy, now),
            backend,
            table: Table::with_capacity(connections_expected),
            leaving: Slab::new(),
            listeners,
            refusals: Refusals::default(),
            mailbox: parts.mailbox,
            bell: watch(doorbell)?,
            clock,
            now,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_ms: None,
            nop: None,
            stage: Stage::Running,
            calls_cut: 0,
            grace: parts.grace,
            touched: Vec::new(),
            held_back: Vec::new(),
            backlog: VecDeque::new(),
            // Mail may be older than the shard.
            has_mail: Left::Something,
            publishers: Slab::new(),
            buffers: Pool::new(READ_BUFFERS_POOLED),
            messages: Pool::new(MESSAGES_POOLED),
            sends: Pool::new(MESSAGES_POOLED),
            newcomers: Vec::new(),
            mail: Vec::new(),
            tells: Vec::new(),
            counters: Counters::default(),
            refused: Refused::default(),
        })
    }

    /// A turn whose panic is not left to the runtime, which would swallow it with the task.
    fn guarded_turn(&mut self, cx: &mut Context<'_>) -> Poll<(End, Farewell)> {
        abort_on_panic(self.core.id(), || self.turn(cx))
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<(End, Farewell)> {
        ring::listen_for_completions(cx.waker());
        self.now = self.clock.read();
        // Its word may stand behind more completions than one turn takes; unseen, it would not be started again and
        // nothing would bring about the next turn.
        self.nop_completed();
        self.take_completions();
        self.take_mail(cx);
        self.advance_backend(cx);
        self.expire_timers();
        self.core.pump(SENDS_PER_TURN_MAX, self.now);
        self.perform_effects();
        self.write_output();
        self.park_reads();
        self.mailbox.ring_doorbells();
        self.write_notices();
        self.count_turn();
        if let Some(end) = self.advance_stage() {
            tracing::debug!(shard = self.core.id().0, counters = ?self.counters, "shard ended");
            self.bell.get_ref().leave();
            return Poll::Ready((end, self.farewell()));
        }
        self.rest(cx);
        Poll::Pending
    }

    // --- The steps ----------------------------------------------------------------------------

    fn take_mail(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.bell.poll_read_ready(cx) {
            guard.get_inner().clear();
            guard.get_inner().answer();
            if let Some(settings) = guard.get_inner().take_settings() {
                self.core.reconfigure(settings);
            }
            guard.clear_ready();
            self.has_mail = Left::Something;
        }
        self.heed_phase();
        if self.has_mail == Left::Nothing {
            return;
        }
        let mut mail = std::mem::take(&mut self.mail);
        self.has_mail = self.mailbox.receive(MAIL_PER_TURN_MAX, &mut mail);
        for letter in mail.drain(..) {
            match letter {
                // Dropped, a traveller is told to come again, shut down and closed.
                Mail::Connection(_) | Mail::Publication(_) if self.is_ending() => {}
                Mail::Connection(traveller) => self.adopt(traveller),
                Mail::Announcement(announcement) => self.core.broadcast(announcement),
                Mail::Publication(letter) => self.publish(letter),
                Mail::Inquiry(reply) => self.describe(reply),
            }
        }
        self.mail = mail;
    }

    fn publish(&mut self, letter: Letter) {
        let id = PublicationId(self.publishers.insert(letter.reply));
        let publication = Publication { id, audience: letter.audience, announcement: letter.announcement };
        self.core.publish(publication, self.now);
    }

    fn describe(&self, reply: oneshot::Sender<Box<Statistics>>) {
        // Whoever asked may have given up.
        let _ = reply.send(Box::new(Statistics {
            core: self.core.counters().clone(),
            shell: self.counters.clone(),
            population: self.core.population(),
        }));
    }

    fn advance_backend(&mut self, cx: &mut Context<'_>) {
        self.backend.poll(cx, &mut self.tells);
        self.deliver_tells();
    }

    fn deliver_tells(&mut self) {
        for tell in self.tells.drain(..) {
            self.core.tell(tell, self.now);
        }
    }

    fn expire_timers(&mut self) {
        self.core.tick(self.now, EXPIRIES_PER_TURN_MAX);
        self.refusals.expire(self.now.ms);
        let mut newcomers = std::mem::take(&mut self.newcomers);
        for listener in &mut self.listeners {
            listener.expire(self.now.ms, &mut newcomers);
        }
        self.welcome(&mut newcomers);
        self.newcomers = newcomers;
    }

    fn perform_effects(&mut self) {
        self.send_backlog();
        while let Some(effect) = self.core.next_effect() {
            match effect {
                Effect::Close(conn, ending) => self.end(conn, ending),
                Effect::Move(moved) => self.send_away(moved),
                Effect::Measure(conn) => self.measure(conn),
                Effect::Ask(ask) => self.ask(ask),
                Effect::Broadcast(announcement) => self.broadcast(&announcement),
                Effect::Published(id, reach) => self.report(id, reach),
            }
        }
    }

    fn report(&mut self, id: PublicationId, reach: Reach) {
        if let Some(publisher) = self.publishers.try_remove(id.0) {
            // Whoever asked may have given up.
            let _ = publisher.send(reach);
        }
    }

    fn ask(&mut self, ask: Ask) {
        self.backend.ask(ask, &mut self.tells);
        self.deliver_tells();
    }

    fn broadcast(&mut self, announcement: &Announcement) {
        for shard in self.mailbox.others() {
            // What waits goes first.
            let refused = match self.backlog.is_empty() {
                true => self.mailbox.send(shard, Mail::Announcement(announcement.clone())).is_err(),
                false => true,
            };
            if refused && self.backlog.len() < MAILBOX_MESSAGES_MAX {
                self.backlog.push_back((shard, announcement.clone()));
            } else if refused {
                self.counters.broadcasts_lost += 1;
            }
        }
    }

    fn send_backlog(&mut self) {
        while let Some((shard, announcement)) = self.backlog.front() {
            if self.mailbox.send(*shard, Mail::Announcement(announcement.clone())).is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    // --- Listeners ----------------------------------------------------------------------------

    pub(super) fn listener_completed(&mut self, index: u32) {
        let mut newcomers = std::mem::take(&mut self.newcomers);
        if let Some(listener) = self.listeners.get_mut(index as usize) {
            listener.completed(self.now.ms, BUSY_503, &mut newcomers);
        }
        self.welcome(&mut newcomers);
        self.newcomers = newcomers;
    }

    fn welcome(&mut self, newcomers: &mut Vec<Newcomer>) {
        for newcomer in newcomers.drain(..) {
            match newcomer {
                Newcomer::Welcome(fd) => self.connect(fd),
                Newcomer::TooLate(fd) => self.refuse(fd, BUSY_503),
            }
        }
    }

    pub(super) fn refuse(&mut self, fd: OwnedFd, answer: &[u8]) {
        self.counters.refused += 1;
        self.refusals.refuse(fd, answer, self.now.ms);
    }

    // --- Stopping -----------------------------------------------------------------------------

    fn heed_phase(&mut self) {
        match (self.stage, self.bell.get_ref().phase()) {
            (Stage::Running, Phase::Drain) => {
                let grace_ms = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
                self.stage = Stage::Draining { until_ms: self.now.ms.saturating_add(grace_ms) };
                self.core.drain(grace_ms / 2, self.now);
            }
            (
                Stage::Running | Stage::Draining { .. } | Stage::Stopping { .. } | Stage::Closing { .. },
                Phase::Stop,
            ) => {
                self.close_listeners();
                self.force_all();
            }
            _ => {}
        }
    }

    fn close_listeners(&mut self) {
        let mut newcomers = std::mem::take(&mut self.newcomers);
        for listener in &mut self.listeners {
            listener.close(&mut newcomers);
        }
        self.welcome(&mut newcomers);
        self.newcomers = newcomers;
    }

    fn advance_stage(&mut self) -> Option<End> {
        let is_over = |until_ms| self.now.ms >= until_ms;
        match self.stage {
            Stage::Stopping { newcomers_until_ms, .. }
                if self.is_drained() && (!self.core.has_newcomers() || is_over(newcomers_until_ms)) =>
            {
                self.close_all()
            }
            Stage::Draining { until_ms } if self.core.all_are_drained() || is_over(until_ms) => {
                self.end_sessions()
            }
            Stage::Stopping { until_ms, .. } | Stage::Closing { until_ms } if is_over(until_ms) => {
                self.force_all()
            }
            Stage::Forced { until_ms } if is_over(until_ms) && !self.is_idle() => return Some(End::Forced),
            Stage::Running
            | Stage::Draining { .. }
            | Stage::Stopping { .. }
            | Stage::Closing { .. }
            | Stage::Forced { .. } => {}
        }
        (self.is_ending() && self.is_idle()).then_some(End::Clean)
    }

    /// All calls have finished, or their time is over: nobody can come any more, and every session ends.
    fn end_sessions(&mut self) {
        self.stage = Stage::Stopping {
            until_ms: self.now.ms + FORCED_END_MS,
            newcomers_until_ms: self.now.ms + NEWCOMERS_WAIT_MS,
        };
        self.close_listeners();
        self.calls_cut = self.core.population().calls;
        self.core.end_sessions();
    }

    fn farewell(&self) -> Farewell {
        let counted = self.core.counters();
        Farewell {
            streams: counted.streams_drained,
            sessions: counted.sessions_stopped,
            calls_cut: self.calls_cut,
        }
    }

    /// Closes what is open. Those that linger have their time, and the backend what is left of the grace.
    fn close_all(&mut self) {
        let linger_until_ms = self.now.ms + LINGER_MS + FORCED_END_MS;
        let grace_until_ms = match self.stage {
            Stage::Draining { until_ms } => until_ms.max(linger_until_ms),
            Stage::Running | Stage::Stopping { .. } | Stage::Closing { .. } | Stage::Forced { .. } => {
                linger_until_ms
            }
        };
        self.backend.end(Duration::from_millis(grace_until_ms - self.now.ms));
        let until_ms = if self.backend.is_ended() { linger_until_ms } else { grace_until_ms };
        self.stage = Stage::Closing { until_ms };
        for key in self.table.keys() {
            self.lost(key);
        }
        self.perform_effects();
    }

    fn force_all(&mut self) {
        self.calls_cut = self.calls_cut.max(self.core.population().calls);
        self.close_all();
        self.stage = Stage::Forced { until_ms: self.now.ms + FORCED_END_MS };
        self.backend.end(Duration::ZERO);
        for key in self.table.keys() {
            self.end(key, Ending::Gone);
        }
    }

    /// Whether all that was to be said has reached the kernel, and nobody can come and ask for more.
    fn is_drained(&self) -> bool {
        self.core.is_drained()
            && self.listeners_are_closed()
            && self.has_mail == Left::Nothing
            && self.held_back.is_empty()
            && !self.table.is_writing()
    }

    fn listeners_are_closed(&self) -> bool {
        self.listeners.iter().all(Listener::is_closed)
    }

    fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Closing { .. } | Stage::Forced { .. })
    }

    fn is_idle(&self) -> bool {
        self.table.len() == 0
            && self.leaving.is_empty()
            && self.nop.is_none()
            && self.backend.is_ended()
            && self.refusals.next_deadline_ms().is_none()
            && self.listeners_are_closed()
    }

    // --- Resting ------------------------------------------------------------------------------

    fn nop_completed(&mut self) {
        if let Some(op) = self.nop.take()
            && let Progress::Pending(op) = op.poll(TURN)
        {
            self.nop = Some(op);
        }
    }

    /// Arranges for the next turn.
    fn rest(&mut self, cx: &mut Context<'_>) {
        if self.has_work_left() || self.timer_is_due(cx) {
            self.nop.get_or_insert_with(|| ring::nop(TURN));
        }
    }

    fn has_work_left(&self) -> bool {
        ring::has_completions()
            || self.backend.has_more()
            || self.has_mail == Left::Something
            || self.core.has_comments()
            || !self.backlog.is_empty()
            || self.core.has_broadcasts()
    }

    /// Sets the timer to the next deadline. Whether that has passed already.
    fn timer_is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline_ms) = self.next_deadline_ms() else { return false };
        if deadline_ms <= self.now.ms {
            return true;
        }
        if self.timer_ms != Some(deadline_ms) {
            self.timer_ms = Some(deadline_ms);
            self.timer.as_mut().reset(self.clock.instant(deadline_ms));
        }
        self.timer.as_mut().poll(cx).is_ready()
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let stage = match self.stage {
            Stage::Running => None,
            // The others may have finished by then.
            Stage::Draining { until_ms } if self.core.is_drained() => {
                Some(until_ms.min(self.now.ms + DRAIN_STEP_MS))
            }
            Stage::Stopping { newcomers_until_ms, .. } if self.now.ms < newcomers_until_ms => {
                Some(newcomers_until_ms)
            }
            Stage::Draining { until_ms }
            | Stage::Stopping { until_ms, .. }
            | Stage::Closing { until_ms }
            | Stage::Forced { until_ms } => Some(until_ms),
        };
        let listeners = self.listeners.iter().filter_map(Listener::next_deadline_ms).min();
        [self.core.next_deadline_ms(), self.refusals.next_deadline_ms(), listeners, stage]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells the log what is to be told of this turn.
    fn write_notices(&mut self) {
        let shard = self.core.id();
        while let Some(noted) = self.core.next_noted() {
            notices::request(shard, &noted);
        }
        self.refused.tell(shard, self.core.counters(), &self.counters, self.now.ms);
    }

    fn count_turn(&mut self) {
        self.counters.turns += 1;
        if self.clock.elapsed_since(self.now) > SLOW_TURN {
            self.counters.slow_turns += 1;
        }
    }
}

/// Entries reserved: this shard's part of the cap, with room for imbalance.
fn share_of_connections(config: &CoreConfig) -> usize {
    config.connections_max.min(1 << 20) / usize::from(config.shards) * 5 / 4 + 64
}

fn watch(doorbell: Arc<Doorbell>) -> io::Result<AsyncFd<Arc<Doorbell>>> {
    // SAFETY: the descriptor stays the same and open for as long as the `AsyncFd` lives: a doorbell never
    // gives its own away, and the `Arc` that the `AsyncFd` owns keeps it.
    Ok(unsafe { AsyncFd::register_with_interest(doorbell, Readiness::READABLE) }?)
}

const TURN: Word = Word { source: Source::Turn, slot: 0 };

/// Runs `work` for a shard; a panic in it ends the process.
pub(crate) fn abort_on_panic<T>(id: ShardId, work: impl FnOnce() -> T) -> T {
    let guard = AbortOnPanic(id);
    let result = work();
    std::mem::forget(guard);
    result
}

/// Dropped by a panic only.
struct AbortOnPanic(ShardId);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("moorline: shard {} panicked, which is a bug; the process ends", self.0.0);
        super::child::groups::kill_all();
        std::process::abort();
    }
}

/// The two clocks of a shard.
struct Clock {
    start: Instant,
}

impl Clock {
    fn start() -> Self {
        Clock { start: Instant::now() }
    }

    fn read(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { ms: millis(self.start.elapsed()), unix_s: unix.as_secs() }
    }

    fn instant(&self, ms: u64) -> tokio::time::Instant {
        (self.start + Duration::from_millis(ms)).into()
    }

    fn elapsed_since(&self, now: Now) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(now.ms))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("no server runs for half a billion years")
}

/// Things kept for reuse, up to a bound.
pub(super) struct Pool<T> {
    items: Vec<T>,
    max: usize,
}

impl<T> Pool<T> {
    fn new(max: usize) -> Self {
        Pool { items: Vec::new(), max }
    }

    /// One of them, or a new one.
    pub(super) fn take_or(&mut self, make: impl FnOnce() -> T) -> T {
        self.items.pop().unwrap_or_else(make)
    }

    /// Keeps one, or drops it when there are enough.
    pub(super) fn put(&mut self, item: T) {
        if self.items.len() < self.max {
            self.items.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_a_bounded_number() {
        let mut pool = Pool::new(1);
        pool.put(1);
        pool.put(2);
        assert_eq!((pool.take_or(|| 3), pool.take_or(|| 3)), (1, 3));
    }

    #[test]
    fn a_deadline_is_due_when_the_clock_says_so() {
        let clock = Clock::start();
        let at = clock.instant(5);
        assert_eq!(at.into_std() - clock.start, Duration::from_millis(5));
        assert!(clock.read().ms < 1000);
    }
}
