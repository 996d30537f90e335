//! `storm`: every client loses its connection at the same moment and comes back at once.
//!
//! Owns reconnection: cut, come back (behind the cursor or without), try again after a refusal, take a new
//! session when the server has forgotten the old one. Time counts from when the last one was cut. With
//! publishing, what was sent meanwhile must still arrive, once, if the client comes back with its cursor.

use super::hold::{Hold, count_get};
use super::later::Later;
use super::{Books, Scenario, Scene};
use crate::clock::Moment;
use crate::fleet::{Cause, ClientId, Failure, Notice, Step};
use crate::measure::tally::{Count, Tally, Timed};
use crate::plan::{Plan, Storms};
use crate::rpc::Era;

/// Clients that come back per turn: the others wait, on the clock, while sockets are read.
const RECONNECTS_PER_TURN_MAX: usize = 128;
/// Time before another try after a refusal, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// Held streams that can be cut and come back.
#[derive(Debug)]
pub(crate) struct Reconnecting {
    hold: Hold,
    has_cursor: bool,
    /// Clients that are coming back, with the moment since when.
    since: Vec<Option<Moment>>,
    away_count: usize,
    again: Later,
}

impl Reconnecting {
    /// `has_cursor`: whether clients come back behind their last event.
    pub(crate) fn new(hold: Hold, has_cursor: bool) -> Self {
        Self { hold, has_cursor, since: Vec::new(), away_count: 0, again: Later::default() }
    }

    /// Cuts the client's connection.
    pub(crate) fn cut(&mut self, scene: &mut Scene, who: ClientId) {
        scene.fleet.cut(who);
        scene.crew.lose(who);
        if !self.has_cursor {
            self.hold.excuse(who);
        }
    }

    /// Lets the client come back.
    pub(crate) fn reconnect(&mut self, scene: &mut Scene, who: ClientId, since: Moment) {
        if self.since.len() <= who.index() {
            self.since.resize(who.index() + 1, None);
        }
        if self.since[who.index()].replace(since).is_none() {
            self.away_count += 1;
        }
        scene.tally.count(Count::Reconnects);
        self.listen(scene, who);
    }

    fn listen(&mut self, scene: &mut Scene, who: ClientId) {
        let cursor = scene.fleet.cursor(who).filter(|_| self.has_cursor).map(ToOwned::to_owned);
        count_get(scene);
        scene.fleet.listen(who, cursor.as_deref(), scene.now);
    }

    fn since(&self, who: ClientId) -> Option<Moment> {
        self.since.get(who.index()).copied().flatten()
    }

    fn on_back(&mut self, scene: &mut Scene, who: ClientId) {
        let Some(since) = self.since.get_mut(who.index()).and_then(Option::take) else { return };
        self.away_count -= 1;
        scene.tally.count(Count::Reconnected);
        scene.time(Timed::Reconnect, since, scene.now);
    }

    /// A client that was coming back did not get through.
    fn on_refusal(&mut self, scene: &mut Scene, who: ClientId, failure: Failure) {
        scene.tally.error(failure);
        if failure.cause == Cause::Status(404) && scene.fleet.era() == Era::Sessions {
            scene.tally.count(Count::SessionsLost);
            self.hold.excuse(who);
            scene.fleet.open_again(who, scene.now);
        } else {
            self.again.put(scene.now.plus_ms(RETRY_MS), who);
        }
    }
}

impl Scenario for Reconnecting {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        match notice {
            Notice::Failed(failure) if self.since(who).is_some() && failure.during != Step::Streaming => {
                return self.on_refusal(scene, who, failure);
            }
            Notice::Up => self.on_back(scene, who),
            _ => {}
        }
        self.hold.on_notice(scene, who, notice);
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        while let Some(who) = self.again.take(scene.now) {
            self.listen(scene, who);
        }
        self.hold.on_turn(scene);
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        self.again.next_due().into_iter().chain(self.hold.next_due(scene)).min()
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        tally.of(Count::Reconnected)
    }

    fn is_done(&self, scene: &Scene) -> bool {
        self.away_count == 0 && self.hold.is_done(scene)
    }

    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        Box::new(self.hold).settle(scene)
    }
}

/// The scenario.
#[derive(Debug)]
pub(crate) struct Storm {
    streams: Reconnecting,
    storms: Storms,
    passed: u32,
    away: Vec<ClientId>,
    since: Moment,
}

impl Storm {
    /// Calm.
    pub(crate) fn new(plan: &Plan, storms: &Storms) -> Self {
        Self {
            streams: Reconnecting::new(Hold::new(plan), storms.has_cursor),
            storms: storms.clone(),
            passed: 0,
            away: Vec::new(),
            since: Moment::default(),
        }
    }

    fn next_storm(&self, scene: &Scene) -> Option<Moment> {
        let window = scene.window.filter(|_| self.passed < self.storms.storms_count)?;
        Some(window.measure_from.plus_ms(self.storms.every_ms * u64::from(self.passed)))
    }

    fn strike(&mut self, scene: &mut Scene) {
        let streaming = scene.fleet.iter().filter(|(_, step)| *step == Step::Streaming).map(|(who, _)| who);
        self.away = streaming.collect();
        for who in &self.away {
            self.streams.cut(scene, *who);
        }
        // Closing so many sockets takes this program's time, which is not the server's.
        self.since = Moment::now();
    }
}

impl Scenario for Storm {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        self.streams.on_notice(scene, who, notice);
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        if self.next_storm(scene).is_some_and(|moment| moment <= scene.now) {
            self.passed += 1;
            self.strike(scene);
        }
        let from = self.away.len().saturating_sub(RECONNECTS_PER_TURN_MAX);
        for who in self.away.drain(from..) {
            self.streams.reconnect(scene, who, self.since);
        }
        self.streams.on_turn(scene);
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        let at_once = (!self.away.is_empty()).then_some(scene.now);
        [at_once, self.next_storm(scene), self.streams.next_due(scene)].into_iter().flatten().min()
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        self.streams.done_count(tally)
    }

    fn is_done(&self, scene: &Scene) -> bool {
        self.away.is_empty() && self.streams.is_done(scene)
    }

    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        Box::new(self.streams).settle(scene)
    }
}
