//! An MCP server that speaks over standard input and output, behind Streamable HTTP: `moorline serve -- COMMAND`.
//!
//! [`Stdio`] is made once per process and gives each shard its [`StdioBackend`]. In mode [`Mode::PerSession`] each session
//! has a child of its own, and each principal one for its requests of 2026-07-28; in mode [`Mode::Shared`] a few children
//! serve them all.
//!
//! It knows the [seam](crate::core::seam) on one side and lines of JSON on the other; processes and pipes are the
//! [shell's](crate::shell::child). It must never block, parse a message further than routing needs, or let one child's
//! silence or noise concern anyone but its own clients.
//!
//! Read in this order: `per_session` and `shared` (the two modes), `alone` and `discovery` (2026-07-28), `bridge` (what both do), `wire` (lines), and below them
//! `subscriptions`, `levels`, `fanout`, `voice`.

mod alone;
mod bridge;
mod client;
mod discovery;
mod fanout;
mod levels;
mod per_session;
mod shared;
mod subscriptions;
mod voice;
mod wire;

use crate::{
    core::seam::{Ask, ShardId, Tell},
    shell::{
        Backend,
        child::{Children, Places, Spawner},
    },
};
use bridge::Bridge;
use per_session::PerSession;
use shared::Shared;
use std::{
    fmt, io,
    pin::{Pin, pin},
    sync::Arc,
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
    /// Nobody: each session has its own.
    PerSession,
    /// All sessions of a shard, among which the children are divided.
    Shared {
        /// Children of the process, at least one for each shard.
        children: usize,
        /// Shards of the process.
        shards: u16,
    },
}

/// The children of a process. Gives each shard its backend.
#[derive(Clone)]
pub struct Stdio {
    config: Arc<StdioConfig>,
    spawner: Spawner,
    places: Arc<Places>,
}

impl Stdio {
    /// Ready to start children; it starts none by itself.
    ///
    /// # Errors
    /// If the host has no room for the thread that starts them.
    pub fn new(config: StdioConfig) -> io::Result<Self> {
        let places = Places::new(config.children_max);
        Ok(Stdio { config: Arc::new(config), spawner: Spawner::start()?, places })
    }

    /// The backend of a shard. It must be used on that shard's thread alone.
    pub fn backend(&self, shard: ShardId) -> StdioBackend {
        let config = &self.config;
        let children =
            Children::new(self.spawner.clone(), Arc::clone(&self.places), config.message_bytes_max);
        let (sessions, shared) = match config.mode {
            Mode::PerSession => {
                (Sessions::Apart(PerSession::default()), Shared::of_principals(config.idle_timeout))
            }
            Mode::Shared { children, shards } => {
                let of_shard = (usize::from(shard.0)..children).step_by(usize::from(shards.max(1))).count();
                (Sessions::Shared, Shared::of_shard(of_shard.max(1)))
            }
        };
        StdioBackend {
            common: Common {
                bridge: Bridge::new(children, config.ask_timeout_ms, shard),
                program: Arc::new(config.program.clone()),
                start_timeout: config.start_timeout,
                grace: config.grace,
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
    /// Children for several clients: in mode per-session those of 2026-07-28 alone.
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
    /// The process stops: children that end are expected to, and none is started.
    is_ending: bool,
}

/// Where sessions have their children.
enum Sessions {
    /// One for each.
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
                    mode.event(&mut self.common, child, event, out);
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
        match (ask, &mut self.sessions) {
            (Ask::Call(call), sessions) => match (call.session, sessions) {
                (Some(session), Sessions::Apart(mode)) => mode.call(common, session, call, out),
                (Some(session), Sessions::Shared) => shared.call(common, session, call, out),
                (None, _) => shared.call_alone(common, call, out),
            },
            (Ask::Cancel(call), _) => shared.cancel(common, call),
            (Ask::Notified(notified), Sessions::Apart(mode)) => mode.notified(common, &notified),
            (Ask::Notified(notified), Sessions::Shared) => shared.notified(common, &notified),
            (Ask::LogLevel(session, level), Sessions::Apart(mode)) => mode.log_level(common, session, level),
            (Ask::LogLevel(session, level), Sessions::Shared) => shared.log_level(common, session, level),
            (Ask::SessionEnded(session), Sessions::Apart(mode)) => mode.end_session(common, session, out),
            (Ask::SessionEnded(session), Sessions::Shared) => shared.end_session(common, session),
            (Ask::Answered(request, outcome), _) => common.bridge.answered(request, &outcome),
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
