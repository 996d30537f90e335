//! `call` and `churn`: clients that act, at a rate or one action after the other.
//!
//! At a rate the loop is open: every action has an intended moment, and waits in the backlog, on the
//! clock, until a client is free. Without a rate each client acts as soon as its last action is
//! answered. Memory: 8 bytes per action in the backlog, 16 per client.

use std::collections::VecDeque;

use super::later::Later;
use super::mix::{Action, Mix};
use super::{Books, Scenario, Scene};
use crate::clock::{Moment, Pace};
use crate::fleet::{Cause, ClientId, Failure, Notice, Reply, Step};
use crate::measure::tally::{Count, Tally, Timed};
use crate::plan::{Calls, Plan};
use crate::rpc::{self, Era, Request, Verdict};

/// Rest of a client after a failure, in milliseconds: a server that is down is not to be asked without end.
const REST_MS: u64 = 250;

/// The scenario.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Calls,
    mix: Mix,
    pace: Option<Pace>,
    backlog: VecDeque<Moment>,
    free: VecDeque<ClientId>,
    doings: Vec<Doing>,
    busy_count: usize,
    cycles_begun: u32,
    calls_begun: u32,
    /// Clients that rest after a failure.
    resting: Later,
    /// Reconnections that are due and that another scenario carries out.
    pub(super) reconnects: Vec<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Request,
    /// Ends a session and opens another, or without sessions opens a listen stream and ends it, since the intended moment.
    Cycle(Moment),
}

impl Call {
    /// Nobody calls yet.
    pub(crate) fn new(calls: &Calls) -> Self {
        Self {
            mix: Mix::new(&calls.mix),
            calls: calls.clone(),
            pace: None,
            backlog: VecDeque::new(),
            free: VecDeque::new(),
            doings: Vec::new(),
            busy_count: 0,
            cycles_begun: 0,
            calls_begun: 0,
            resting: Later::default(),
            reconnects: Vec::new(),
        }
    }

    /// The pace of this worker: its share of the rate, its sends between those of the other workers.
    fn pace(&self, plan: &Plan, start: Moment) -> Option<Pace> {
        let total = self.calls.per_second?;
        let offset_ns = 1e9 / total.max(1e-3) * f64::from(plan.worker_index);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, never negative"
        )]
        Some(Pace::new(start.plus_ns(offset_ns as u64), total / f64::from(plan.workers_count.max(1))))
    }

    fn fill_backlog(&mut self, scene: &mut Scene) {
        let Some(window) = scene.running() else { return };
        if self.pace.is_none() {
            self.pace = self.pace(&scene.plan, window.start);
        }
        let Some(pace) = &mut self.pace else { return };
        while let Some(intended) = pace.take(scene.now) {
            if self.free.len() <= self.backlog.len()
                && scene.window.is_some_and(|window| window.measures(intended))
            {
                scene.tally.count(Count::RequestsQueued);
            }
            self.backlog.push_back(intended);
        }
    }

    /// The next action's intended moment, if one is to be begun now.
    fn take_due(&mut self, scene: &Scene) -> Option<Moment> {
        match self.calls.per_second {
            Some(_) => self.backlog.pop_front(),
            None => scene.running().map(|_| scene.now),
        }
    }

    fn begin(&mut self, scene: &mut Scene, intended: Moment) {
        let Some(action) = self.mix.next() else { return };
        if action == Action::Reconnect {
            return self.reconnects.push(intended);
        }
        let Some(who) = self.free.pop_front() else { return self.backlog.push_front(intended) };
        self.busy_count += 1;
        match action {
            Action::Churn => self.begin_cycle(scene, who, intended),
            Action::List => self.request(scene, who, &Request::bare("tools/list"), intended),
            Action::Ping => self.request(scene, who, &Request::bare(ping_of(scene.fleet.era())), intended),
            Action::Call | Action::Reconnect => {
                let marker = rpc::marker(scene.fleet.run(), self.calls_begun);
                self.calls_begun = self.calls_begun.wrapping_add(1);
                let call = scene.plan.call.clone();
                let arguments = call.arguments.replace("{marker}", &marker);
                self.request(scene, who, &Request::tool(&call.tool, &arguments), intended);
            }
        }
    }

    fn request(&mut self, scene: &mut Scene, who: ClientId, request: &Request<'_>, intended: Moment) {
        self.set(who, Doing::Request);
        if scene.is_measured(intended) {
            scene.tally.count(Count::Requests);
        }
        scene.fleet.request(who, request, intended);
    }

    fn begin_cycle(&mut self, scene: &mut Scene, who: ClientId, intended: Moment) {
        self.set(who, Doing::Cycle(intended));
        self.cycles_begun = self.cycles_begun.wrapping_add(1);
        if scene.fleet.era() == Era::Stateless {
            return scene.fleet.listen(who, None, scene.now);
        }
        let is_abandoned =
            self.calls.abandon_every > 0 && self.cycles_begun.is_multiple_of(self.calls.abandon_every);
        if is_abandoned {
            self.open_next(scene, who);
        } else {
            scene.fleet.delete(who, scene.now);
        }
    }

    fn open_next(&mut self, scene: &mut Scene, who: ClientId) {
        if self.calls.fresh_connections {
            scene.fleet.cut(who);
        }
        scene.fleet.open_again(who, scene.now);
    }

    fn on_ready(&mut self, scene: &mut Scene, who: ClientId) {
        let era = scene.fleet.era();
        if era == Era::Sessions {
            scene.tally.count(Count::SessionsOpened);
        }
        match self.doing(who) {
            Doing::Cycle(intended) if era == Era::Sessions => self.finish_cycle(scene, who, intended),
            Doing::Cycle(_) => scene.fleet.listen(who, None, scene.now),
            Doing::Request | Doing::Nothing => {
                let intended = scene.fleet.intended(who);
                scene.tally.time(Timed::Handshake, scene.now.us_since(intended));
                if scene.crew.establish(who) {
                    self.free.push_back(who);
                } else {
                    self.release(who);
                }
            }
        }
    }

    /// A listen stream is acknowledged: that is all a cycle without sessions wants of it.
    fn on_up(&mut self, scene: &mut Scene, who: ClientId) {
        let Doing::Cycle(intended) = self.doing(who) else { return };
        scene.tally.count(Count::StreamsOpened);
        scene.fleet.cut(who);
        self.finish_cycle(scene, who, intended);
    }

    fn finish_cycle(&mut self, scene: &mut Scene, who: ClientId, intended: Moment) {
        scene.time(Timed::Cycle, intended, scene.now);
        if scene.is_measured(intended) {
            scene.tally.count(Count::Cycles);
        }
        self.release(who);
    }

    fn on_reply(&mut self, scene: &mut Scene, who: ClientId, reply: Reply) {
        let intended = scene.fleet.intended(who);
        scene.time(Timed::Request, intended, reply.at);
        match reply.verdict {
            Some(Verdict::Result) if scene.is_measured(intended) => scene.tally.count(Count::RequestsOk),
            Some(Verdict::Result) => {}
            Some(Verdict::ToolError) => fail(&mut scene.tally, "the tool reported an error"),
            Some(Verdict::Error(code)) => fail(&mut scene.tally, &format!("JSON-RPC error {code}")),
            None => fail(&mut scene.tally, "the response ended without the answer"),
        }
        self.release(who);
    }

    fn on_failure(&mut self, scene: &mut Scene, who: ClientId, failure: Failure) {
        let is_lost_session = scene.fleet.era() == Era::Sessions
            && failure.cause == Cause::Status(404)
            && self.doing(who) == Doing::Request;
        match self.doing(who) {
            Doing::Nothing => {
                scene.tally.error(failure);
                return scene.crew.lose(who);
            }
            Doing::Request => {
                scene.tally.count(Count::RequestsFailed);
                scene.time(Timed::Request, scene.fleet.intended(who), scene.now);
            }
            Doing::Cycle(_) => {}
        }
        scene.tally.error(failure);
        if is_lost_session {
            scene.tally.count(Count::SessionsLost);
        }
        if is_lost_session || failure.during == Step::Deleting {
            scene.fleet.open_again(who, scene.now);
        } else {
            self.resting.put(scene.now.plus_ms(REST_MS), who);
        }
    }

    /// A client that failed acts again: it finishes its cycle, or is free for the next request.
    fn rise(&mut self, scene: &mut Scene, who: ClientId) {
        match self.doing(who) {
            Doing::Cycle(_) => self.open_next(scene, who),
            Doing::Request | Doing::Nothing => self.release(who),
        }
    }

    fn release(&mut self, who: ClientId) {
        if self.doing(who) != Doing::Nothing {
            self.busy_count -= 1;
        }
        self.set(who, Doing::Nothing);
        self.free.push_back(who);
    }

    fn doing(&self, who: ClientId) -> Doing {
        self.doings.get(who.index()).copied().unwrap_or(Doing::Nothing)
    }

    fn set(&mut self, who: ClientId, doing: Doing) {
        if self.doings.len() <= who.index() {
            self.doings.resize(who.index() + 1, Doing::Nothing);
        }
        self.doings[who.index()] = doing;
    }
}

/// The smallest request the era has: `ping` was of sessions.
fn ping_of(era: Era) -> &'static str {
    match era {
        Era::Sessions => "ping",
        Era::Stateless => "server/discover",
    }
}

fn fail(tally: &mut Tally, text: &str) {
    tally.count(Count::RequestsFailed);
    tally.error(format_args!("request: {text}"));
}

impl Scenario for Call {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        match notice {
            Notice::Ready => self.on_ready(scene, who),
            Notice::Replied(reply) => self.on_reply(scene, who, reply),
            Notice::Deleted => {
                scene.tally.count(Count::SessionsDeleted);
                self.open_next(scene, who);
            }
            Notice::Failed(failure) => self.on_failure(scene, who, failure),
            Notice::Up => self.on_up(scene, who),
            Notice::Comment { .. }
            | Notice::Event(_)
            | Notice::Ended(_)
            | Notice::Posted
            | Notice::SentAgain => {}
        }
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        while let Some(who) = self.resting.take(scene.now) {
            self.rise(scene, who);
        }
        self.fill_backlog(scene);
        while !self.free.is_empty() {
            let Some(intended) = self.take_due(scene) else { break };
            self.begin(scene, intended);
        }
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        let pace_due = match (&self.pace, scene.window) {
            (Some(pace), Some(_)) => scene.running().and_then(|_| pace.next()),
            (None, Some(window)) if scene.now < window.start => Some(window.start),
            _ => None,
        };
        pace_due.into_iter().chain(self.resting.next_due()).min()
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        tally.of(Count::RequestsOk) + tally.of(Count::RequestsFailed) + tally.of(Count::Cycles)
    }

    fn is_done(&self, scene: &Scene) -> bool {
        scene.running().is_none() && self.busy_count == 0 && self.backlog.is_empty()
    }

    /// What is still in the backlog has waited until now, and never got its turn.
    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        for intended in &self.backlog {
            scene.time(Timed::Request, *intended, scene.now);
            if scene.is_measured(*intended) {
                scene.tally.count(Count::Requests);
                scene.tally.count(Count::RequestsUnsent);
            }
        }
        Books::default()
    }
}
