//! `mixed`: held streams, and callers beside them, by weight.
//!
//! The first clients of each worker are callers, the rest hold streams. Both parts are the scenarios of
//! their own names; this one only tells who belongs where, and reconnects streams when the mix asks for it.

use super::call::Call;
use super::hold::Hold;
use super::storm::Reconnecting;
use super::{Books, Scenario, Scene};
use crate::clock::Moment;
use crate::fleet::{ClientId, Notice, Step};
use crate::measure::tally::Tally;
use crate::plan::{Calls, Plan};

/// The scenario.
#[derive(Debug)]
pub(crate) struct Mixed {
    hold: Reconnecting,
    call: Call,
    /// Which clients are callers, by their index.
    callers: Vec<bool>,
    callers_count: usize,
    callers_max: usize,
    held: Vec<ClientId>,
    turn: usize,
}

impl Mixed {
    /// Nobody is there yet.
    pub(crate) fn new(plan: &Plan, calls: &Calls) -> Self {
        let share = calls.callers_count.div_ceil(u64::from(plan.workers_count.max(1)));
        Self {
            hold: Reconnecting::new(Hold::new(plan), false),
            call: Call::new(calls),
            callers: Vec::new(),
            callers_count: 0,
            callers_max: usize::try_from(share).unwrap_or(usize::MAX),
            held: Vec::new(),
            turn: 0,
        }
    }

    /// Whether the client is a caller; the first ones to be ready become callers.
    fn is_caller(&mut self, scene: &Scene, who: ClientId, notice: Notice) -> bool {
        if self.callers.get(who.index()).is_some_and(|is_caller| *is_caller) {
            return true;
        }
        let is_new = notice == Notice::Ready && scene.crew.has(who) && !scene.crew.is_in_place(who);
        if is_new && self.callers_count < self.callers_max {
            self.callers.resize(self.callers.len().max(who.index() + 1), false);
            self.callers[who.index()] = true;
            self.callers_count += 1;
            return true;
        }
        if is_new {
            self.held.push(who);
        }
        false
    }

    fn reconnect_due(&mut self, scene: &mut Scene) {
        for intended in std::mem::take(&mut self.call.reconnects) {
            for _ in 0..self.held.len() {
                self.turn = (self.turn + 1) % self.held.len();
                let who = self.held[self.turn];
                if scene.fleet.step(who) == Step::Streaming {
                    self.hold.cut(scene, who);
                    self.hold.reconnect(scene, who, intended);
                    break;
                }
            }
        }
    }
}

impl Scenario for Mixed {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        if self.is_caller(scene, who, notice) {
            self.call.on_notice(scene, who, notice);
        } else {
            self.hold.on_notice(scene, who, notice);
        }
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        self.hold.on_turn(scene);
        self.call.on_turn(scene);
        self.reconnect_due(scene);
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        self.call.next_due(scene).into_iter().chain(self.hold.next_due(scene)).min()
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        self.call.done_count(tally)
    }

    fn is_done(&self, scene: &Scene) -> bool {
        self.call.is_done(scene) && self.hold.is_done(scene)
    }

    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        Box::new(self.call).settle(scene);
        Box::new(self.hold).settle(scene)
    }
}
