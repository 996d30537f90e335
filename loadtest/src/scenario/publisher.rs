//! Making the servers send numbered notifications to everyone.
//!
//! Owns the schedule of publications, which is known to all workers (it follows from the window), and on the
//! publishing worker also the clients that trigger them, one per server. Publication `n` is meant to
//! happen `n` intervals after the window's start; receipts are timed from there.

use super::Scene;
use crate::clock::Moment;
use crate::fleet::{ClientId, Fleet, Notice, Step};
use crate::measure::receipts::PUBLICATIONS_MAX;
use crate::measure::tally::{Count, Tally};
use crate::plan::{Plan, Publishing, ToolCall, Trigger, Window};
use crate::rpc::{self, Request, Verdict};

/// The schedule, the same for every worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    every_ms: u64,
}

impl Schedule {
    /// The schedule of a plan that publishes.
    pub(crate) fn new(publishing: &Publishing) -> Self {
        Self { every_ms: publishing.every_ms.max(1) }
    }

    /// When publication `seq` is meant to happen.
    pub(crate) fn intended(&self, window: Window, seq: u32) -> Moment {
        window.start.plus_ms(self.every_ms.saturating_mul(u64::from(seq)))
    }

    /// The first publication meant to happen after `now`.
    pub(crate) fn next_after(&self, window: Option<Window>, now: Moment) -> u32 {
        let Some(window) = window.filter(|window| window.start <= now) else { return 0 };
        let passed = now.ms_since(window.start) / self.every_ms + 1;
        u32::try_from(passed).unwrap_or(PUBLICATIONS_MAX).min(PUBLICATIONS_MAX)
    }

    /// How many publications the window holds.
    pub(crate) fn count(&self, window: Window) -> u32 {
        let count = window.end.ms_since(window.start).div_ceil(self.every_ms);
        u32::try_from(count).unwrap_or(PUBLICATIONS_MAX).min(PUBLICATIONS_MAX)
    }
}

/// The publishing side, on one worker only.
#[derive(Debug)]
pub(crate) struct Publisher {
    schedule: Schedule,
    trigger: Trigger,
    call: ToolCall,
    clients: Vec<ClientId>,
    /// The publication under way, or else the next one.
    seq: u32,
    /// Answers still missing for the publication under way.
    missing: usize,
    has_failed: bool,
    accepted: Vec<u32>,
}

impl Publisher {
    /// Gives the publishing worker its publisher, and every publisher its turn.
    pub(crate) fn turn(publisher: &mut Option<Self>, scene: &mut Scene) {
        if publisher.is_none()
            && scene.plan.worker_index == 0
            && let Some(publishing) = &scene.plan.publishing
        {
            *publisher = Some(Self::open(&scene.plan, publishing, &mut scene.fleet, scene.now));
        }
        if let Some(publisher) = publisher {
            publisher.on_turn(scene.window, &mut scene.fleet, scene.now);
        }
    }

    /// Opens one triggering client per server.
    fn open(plan: &Plan, publishing: &Publishing, fleet: &mut Fleet, now: Moment) -> Self {
        let clients = match &publishing.trigger {
            Trigger::Tool => (0..plan.targets.len()).map(|target| fleet.open_at(target, now)).collect(),
            Trigger::Post { targets, .. } => {
                targets.iter().map(|target| fleet.add_poster(target.clone())).collect()
            }
        };
        Self {
            schedule: Schedule::new(publishing),
            trigger: publishing.trigger.clone(),
            call: plan.call.clone(),
            clients,
            seq: 0,
            missing: 0,
            has_failed: false,
            accepted: Vec::new(),
        }
    }

    /// Whether notices of this client are the publisher's.
    pub(crate) fn owns(&self, who: ClientId) -> bool {
        self.clients.contains(&who)
    }

    /// Takes a notice of one of its clients.
    pub(crate) fn on_notice(
        &mut self,
        who: ClientId,
        notice: Notice,
        fleet: &mut Fleet,
        tally: &mut Tally,
        now: Moment,
    ) {
        match notice {
            Notice::Replied(reply) => self.on_answer(reply.verdict == Some(Verdict::Result), tally),
            Notice::Posted => self.on_answer(true, tally),
            Notice::Failed(failure) => {
                tally.error(format_args!("publish: {failure}"));
                match failure.during {
                    Step::Calling { .. } | Step::Posting => self.on_answer(false, tally),
                    _ => fleet.open_again(who, now),
                }
            }
            _ => {}
        }
    }

    /// Triggers the next publication if it is due and the last one was answered.
    fn on_turn(&mut self, window: Option<Window>, fleet: &mut Fleet, now: Moment) {
        let Some(window) = window else { return };
        let intended = self.schedule.intended(window, self.seq);
        let is_ready = self.missing == 0 && self.clients.iter().all(|who| fleet.is_free(*who));
        if !is_ready || now < intended || self.seq >= self.schedule.count(window) {
            return;
        }
        self.missing = self.clients.len();
        self.has_failed = false;
        let marker = rpc::marker(fleet.run(), self.seq);
        for who in &self.clients {
            match &self.trigger {
                Trigger::Tool => {
                    let arguments = self.call.arguments.replace("{marker}", &marker);
                    fleet.request(*who, &Request::tool(&self.call.tool, &arguments), intended);
                }
                Trigger::Post { body, .. } => {
                    fleet.post_plain(*who, body.replace("{marker}", &marker).as_bytes(), intended);
                }
            }
        }
    }

    /// When the next publication is meant to happen.
    pub(crate) fn next_due(&self, window: Option<Window>) -> Option<Moment> {
        let window = window.filter(|window| self.missing == 0 && self.seq < self.schedule.count(*window))?;
        Some(self.schedule.intended(window, self.seq))
    }

    /// Whether every publication was triggered and answered.
    pub(crate) fn is_done(&self, window: Window) -> bool {
        self.seq >= self.schedule.count(window)
    }

    /// The publications that every server accepted.
    pub(crate) fn into_accepted(self) -> Vec<u32> {
        self.accepted
    }

    fn on_answer(&mut self, is_accepted: bool, tally: &mut Tally) {
        self.has_failed |= !is_accepted;
        self.missing = self.missing.saturating_sub(1);
        if self.missing > 0 {
            return;
        }
        if self.has_failed {
            tally.count(Count::PublicationsFailed);
        } else {
            tally.count(Count::PublicationsAccepted);
            self.accepted.push(self.seq);
        }
        self.seq += 1;
    }
}
