//! What the clients of a worker do, and what is measured about it.
//!
//! A scenario reacts to notices and to time; the fleet does the work and the crew keeps the roll.

mod call;
pub(crate) mod crew;
mod hold;
mod later;
mod leapfrog;
mod ledger;
pub(crate) mod mix;
mod mixed;
mod publisher;
mod storm;

use std::collections::BTreeMap;

use crate::clock::Moment;
use crate::fleet::{ClientId, Fleet, Notice};
use crate::measure::histogram::Latencies;
use crate::measure::receipts::Delivery;
use crate::measure::tally::{Tally, Timed};
use crate::plan::{Plan, Window};
use crew::Crew;

/// What a scenario works with.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The plan.
    pub(crate) plan: Plan,
    /// The clients.
    pub(crate) fleet: Fleet,
    /// Who is in place.
    pub(crate) crew: Crew,
    /// What was measured.
    pub(crate) tally: Tally,
    /// Latencies since the last progress, for the live view.
    pub(crate) recent: Latencies,
    /// The measured part of the run, once it is known.
    pub(crate) window: Option<Window>,
    /// The time of this turn.
    pub(crate) now: Moment,
}

impl Scene {
    /// Records a latency of something intended at `intended`: for the report if it is within the measured
    /// time, and for the live view.
    pub(crate) fn time(&mut self, what: Timed, intended: Moment, at: Moment) {
        let micros = at.us_since(intended);
        self.recent.record(micros);
        if self.is_measured(intended) {
            self.tally.time(what, micros);
        }
    }

    /// Whether something intended at that moment belongs to the measured time.
    pub(crate) fn is_measured(&self, intended: Moment) -> bool {
        self.window.is_some_and(|window| window.measures(intended))
    }

    /// The window, while it is open.
    pub(crate) fn running(&self) -> Option<Window> {
        self.window.filter(|window| window.start <= self.now && self.now < window.end)
    }
}

/// One scenario on one worker.
pub(crate) trait Scenario {
    /// Something happened to a client.
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice);

    /// Time has passed; called once per turn.
    fn on_turn(&mut self, scene: &mut Scene);

    /// When [`Scenario::on_turn`] is needed next, at the latest.
    fn next_due(&self, scene: &Scene) -> Option<Moment>;

    /// How many things were done so far, for the live view.
    fn done_count(&self, tally: &Tally) -> u64;

    /// Whether nothing more is to be waited for after the window's end.
    fn is_done(&self, scene: &Scene) -> bool;

    /// Closes the books: the last counts, and the publications.
    fn settle(self: Box<Self>, scene: &mut Scene) -> Books;
}

/// Publications as a scenario leaves them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// What became of each.
    pub(crate) deliveries: BTreeMap<u32, Delivery>,
    /// Which ones the servers accepted; only the publishing worker knows.
    pub(crate) accepted: Vec<u32>,
}

/// The scenario a plan asks for.
pub(crate) fn of(plan: &Plan) -> Box<dyn Scenario> {
    use crate::plan::Scenario as Planned;
    match &plan.scenario {
        Planned::Hold => Box::new(hold::Hold::new(plan)),
        Planned::Call(calls) => Box::new(call::Call::new(calls)),
        Planned::Storm(storms) => Box::new(storm::Storm::new(plan, storms)),
        Planned::Leapfrog(calls_count) => Box::new(leapfrog::Leapfrog::new(plan, *calls_count)),
        Planned::Mixed(calls) => Box::new(mixed::Mixed::new(plan, calls)),
    }
}
