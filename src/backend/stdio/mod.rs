//! An MCP server that speaks over standard input and output, behind Streamable HTTP: `moorline serve -- COMMAND`.
//!
//! [`Stdio`] is made once per process and gives each shard its [`StdioBackend`]. In mode [`Mode::PerSession`] each session
//! has a child of its own, and each principal one for its requests of 2026-07-28; in mode [`Mode::Shared`] a few children
//! serve them all. [`Mode::Auto`] finds out with the first client what the program speaks: 2026-07-28 has no state between
//! requests, so such a program is shared; any other is not.
//!
//! It knows the [seam](crate::core::seam) on one side and lines of JSON on the other; processes and pipes are the
//! [shell's](crate::shell::child). It must never block, parse a message further than routing needs, or let one child's
//! silence or noise concern anyone but its own clients.
//!
//! Read in this order: `per_session` and `shared` (the two modes), `owners` (which child is whose), `alone` and `discovery`
//! (clients of 2026-07-28), `told`, `watch`, `claims` and `plain` (children of 2026-07-28), `bridge` (what all do), `wire` (lines), and
//! below them `subscriptions`, `levels`, `fanout`, `voice`.

mod alone;
mod bridge;
mod claims;
mod client;
mod discovery;
mod fanout;
mod levels;
mod owners;
mod per_session;
mod plain;
mod shared;
mod subscriptions;
mod told;
mod voice;
mod watch;
mod wire;

use crate::{
    core::seam::{Ask, ShardId, Tell},
    shell::{
        Backend,
        child::{Children, Places, Spawner},
    },
};
use bridge::Bridge;
use owners::Owners;
use per_session::PerSession;
use shared::Shared;
use std::{
    fmt, io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::{task::coop::unconstrained, time::Sleep};

pub use crate::shell::child::Program;

/// What to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioConfig {
    /// The program.
    pub program: Program,
    /// Who shares its processes (`--stdio-mode`).
    pub mode: Mode,
    /// Children of the process at one time (`--max-children`), starting and ending ones included.
    pub children_max: usize,
    /// What a child gets to answer `initialize` (`--child-start-timeout`).
    pub start_timeout: Duration,
    /// From the end of a child's input to KILL (`--child-grace`).
    pub grace: Duration,
    /// A line of a child, in bytes (`--max-message`); a longer one is skipped.
    pub message_bytes_max: usize,
    /// How long a client may take to answer a child, in milliseconds.
    pub ask_timeout_ms: u64,
    /// How long the child of a principal may be unused before it ends (`--session-idle-timeout`), as a session would.
    pub idle_timeout: Duration,
}

/// Who shares a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All clients, if the program speaks 2026-07-28 and nothing older; otherwise nobody.
    Auto(Shares),
    /// Nobody: each session has its own.
    PerSession,
    /// All clients of a shard, among which the children are divided.
    Shared(Shares),
}

/// How children are divided among shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Children of the process, at least one for each shard.
    pub children: usize,
    /// Shards of the process.
    pub shards: u16,
}

impl Shares {
    /// Children of that shard.
    fn of(self, shard: ShardId) -> usize {
        (usize::from(shard.0)..self.children).step_by(usize::from(self.shards.max(1))).count().max(1)
    }
}

/// Whether the program is known to speak 2026-07-28 and nothing older, so that any child of it does for anybody. One shard
/// finds out, all know.
#[derive(Clone, Debug, Default)]
struct Alike(Arc<AtomicBool>);

impl Alike {
    fn is_known(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn learn(&self) {
        self.0.store(true, Relaxed);
    }

    /// The program is not what it was.
    fn unlearn(&self) {
        self.0.store(false, Relaxed);
    }
}

/// The children of a process. Gives each shard its backend.
#[derive(Clone)]
pub struct Stdio {
    config: Arc<StdioConfig>,
    spawner: Spawner,
    places: Arc<Places>,
    alike: Alike,
}

impl Stdio {
    /// Ready to start children; it starts none by itself.
    ///
    /// # Errors
    /// If the host has no room for the thread that starts them.
    pub fn new(config: StdioConfig) -> io::Result<Self> {
        let places = Places::new(config.children_max);
        Ok(Stdio { config: Arc::new(config), spawner: Spawner::start()?, places, alike: Alike::default() })
    }

    /// The backend of a shard. It must be used on that shard's thread alone.
    pub fn backend(&self, shard: ShardId) -> StdioBackend {
        let config = &self.config;
        let children =
            Children::new(self.spawner.clone(), Arc::clone(&self.places), config.message_bytes_max);
        let (sessions, shared) = match config.mode {
            Mode::Auto(shares) => {
                let owners = Owners::new(config.idle_timeout, shares.of(shard));
                (Sessions::Apart(PerSession::default()), Shared::owned(owners))
            }
            Mode::PerSession => {
                let owners = Owners::new(config.idle_timeout, 0);
                (Sessions::Apart(PerSession::default()), Shared::owned(owners))
            }
            Mode::Shared(shares) => (Sessions::Shared, Shared::of_shard(shares.of(shard))),
        };
        StdioBackend {
            common: Common {
                bridge: Bridge::new(children, config.ask_timeout_ms, shard),
                program: Arc::new(config.program.clone()),
                start_timeout: config.start_timeout,
                grace: config.grace,
                alike: self.alike.clone(),
                is_ending: false,
            },
            sessions,
            shared,
            shard,
            alarm: None,
        }
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio").field("config", &self.config).finish_non_exhaustive()
    }
}

/// One shard's part of it. See the module.
pub struct StdioBackend {
    common: Common,
    sessions: Sessions,
    /// Children for several clients, and those that speak 2026-07-28.
    shared: Shared,
    shard: ShardId,
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What both modes need.
struct Common {
    bridge: Bridge,
    program: Arc<Program>,
    start_timeout: Duration,
    grace: Duration,
    alike: Alike,
    /// The process stops: children that end are expected to, and none is started.
    is_ending: bool,
}

/// Where sessions have their children.
enum Sessions {
    /// One for each, unless the program speaks 2026-07-28.
    Apart(PerSession),
    /// Among those that are for all.
    Shared,
}

impl Backend for StdioBackend {
    fn ask(&mut self, ask: Ask, out: &mut Vec<Tell>) {
        without_budget(|| self.take(ask, out));
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Tell>) {
        let common = &mut self.common;
        let mut events = without_budget(|| common.bridge.poll(cx));
        for (child, event) in events.drain(..) {
            match &mut self.sessions {
                Sessions::Apart(mode) if !self.shared.has(child) => {
                    if let Some(refused) = mode.event(&mut self.common, child, event, out) {
                        self.shared.adopt(&mut self.common, refused);
                    }
                }
                Sessions::Apart(_) | Sessions::Shared => {
                    self.shared.event(&mut self.common, child, event, out);
                }
            }
        }
        self.common.bridge.keep(events);
        if let Sessions::Apart(mode) = &mut self.sessions {
            mode.poll(&mut self.common, out);
        }
        self.shared.poll(&mut self.common, Instant::now(), out);
        self.set_alarm(cx);
    }

    fn has_more(&self) -> bool {
        self.shared.has_more() || self.common.bridge.children().has_more() || self.is_alarmed_late()
    }

    fn end(&mut self, grace: Duration) {
        self.common.is_ending = true;
        self.common.bridge.end_all(grace.min(self.common.grace));
        tracing::debug!(shard = self.shard.0, counters = ?self.common.bridge.counters, "children are ending");
    }

    fn is_ended(&self) -> bool {
        self.common.bridge.children().len() == 0
    }
}

impl StdioBackend {
    fn take(&mut self, ask: Ask, out: &mut Vec<Tell>) {
        let common = &mut self.common;
        let shared = &mut self.shared;
        let apart = match &mut self.sessions {
            Sessions::Apart(mode) => Some(mode),
            Sessions::Shared => None,
        };
        // A session of its own child stays there, whatever is known of the program since.
        let apart_of = |shared: &Shared, session| apart.filter(|_| !shared.has_session(session));
        match ask {
            Ask::Call(call) => match call.session {
                None => shared.call_alone(common, call, out),
                Some(session) => match apart_of(shared, session) {
                    Some(mode) if !(call.method.as_str() == "initialize" && common.alike.is_known()) => {
                        mode.call(common, session, call, out);
                    }
                    Some(_) | None => shared.call(common, session, call, out),
                },
            },
            Ask::Cancel(call) => shared.cancel(common, call, out),
            Ask::Notified(notified) => match apart_of(shared, notified.session) {
                Some(mode) => mode.notified(common, &notified),
                None => shared.notified(common, &notified),
            },
            Ask::LogLevel(session, level) => match apart_of(shared, session) {
                Some(mode) => mode.log_level(common, session, level),
                None => shared.log_level(common, session, level),
            },
            Ask::SessionEnded(session) => match apart_of(shared, session) {
                Some(mode) => mode.end_session(common, session, out),
                None => shared.end_session(common, session, out),
            },
            Ask::Answered(request, outcome) => common.bridge.answered(request, &outcome, out),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let of_sessions = match &self.sessions {
            Sessions::Apart(mode) => mode.deadline(),
            Sessions::Shared => None,
        };
        let of_shared = if self.common.is_ending { None } else { self.shared.deadline(&self.common) };
        [of_sessions, of_shared, self.common.bridge.children().deadline()].into_iter().flatten().min()
    }

    /// Whether a deadline is over, or comes before the alarm: only a poll sets that.
    fn is_alarmed_late(&self) -> bool {
        let alarm = self.alarm.as_ref().filter(|alarm| !alarm.is_elapsed());
        let alarm = alarm.map(|alarm| alarm.deadline().into_std());
        self.deadline().is_some_and(|deadline| alarm.is_none_or(|alarm| alarm > deadline))
    }

    fn set_alarm(&mut self, cx: &mut Context<'_>) {
        let Some(deadline) = self.deadline() else {
            self.alarm = None;
            return;
        };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        if alarm.deadline().into_std() != deadline {
            alarm.as_mut().reset(deadline.into());
        }
        // If it is over already, `has_more` says so.
        let _ = alarm.as_mut().poll(cx);
    }
}

impl fmt::Debug for StdioBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioBackend")
            .field("children", self.common.bridge.children())
            .finish_non_exhaustive()
    }
}

/// Runs `work` outside the runtime's budget for one task, which is meant for tasks that would starve others. Here the one
/// task serves everybody, with budgets of its own.
fn without_budget<T>(work: impl FnOnce() -> T) -> T {
    let once = pin!(unconstrained(async { work() }));
    match once.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("it is always ready"),
    }
}
