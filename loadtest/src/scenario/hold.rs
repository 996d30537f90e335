//! `hold`: every client opens one stream and keeps it; what the server does to it is counted.
//!
//! A stream that ends, falls silent, or misses or repeats a publication is a fault of the server. With
//! publishing in the plan this is also `notify`. Streams that end are not opened again: each stays
//! visible as missing.

use super::ledger::Ledger;
use super::publisher::Publisher;
use super::{Books, Scenario, Scene};
use crate::clock::Moment;
use crate::fleet::{ClientId, Ending, EventFacts, Notice, Step};
use crate::measure::tally::{Count, Tally, Timed};
use crate::plan::Plan;
use crate::rpc::{Era, Kind};

/// The scenario.
#[derive(Debug)]
pub(crate) struct Hold {
    ledger: Ledger,
    publisher: Option<Publisher>,
}

impl Hold {
    /// Nothing held yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { ledger: Ledger::new(plan), publisher: None }
    }

    /// The client is owed nothing any more, until its next stream.
    pub(super) fn excuse(&mut self, who: ClientId) {
        self.ledger.excuse(who);
    }

    fn on_up(&mut self, scene: &mut Scene, who: ClientId) {
        scene.tally.count(Count::StreamsOpened);
        let opened_us = scene.now.us_since(scene.fleet.intended(who));
        scene.tally.time(Timed::StreamOpen, opened_us);
        scene.crew.establish(who);
        self.ledger.join(scene, who);
    }

    fn on_end(&mut self, scene: &mut Scene, who: ClientId, ending: Ending) {
        scene.tally.count(match ending {
            Ending::Clean => Count::ClosesClean,
            Ending::Cut => Count::ClosesCut,
            Ending::Reset => Count::ClosesReset,
        });
        scene.crew.lose(who);
        self.ledger.excuse(who);
    }
}

impl Scenario for Hold {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        if let Some(publisher) = self.publisher.as_mut().filter(|publisher| publisher.owns(who)) {
            return publisher.on_notice(who, notice, &mut scene.fleet, &mut scene.tally, scene.now);
        }
        match notice {
            Notice::Ready => {
                if scene.fleet.era() == Era::Sessions {
                    scene.tally.count(Count::SessionsOpened);
                }
                let intended = scene.fleet.intended(who);
                scene.tally.time(Timed::Handshake, scene.now.us_since(intended));
                count_get(scene);
                scene.fleet.listen(who, None, scene.now);
            }
            Notice::Up => self.on_up(scene, who),
            Notice::Comment { silence_us } => note_comment(scene, silence_us),
            Notice::Event(facts) => {
                note_event(&mut scene.tally, facts);
                self.ledger.on_event(scene, who, facts);
            }
            Notice::Ended(ending) => self.on_end(scene, who, ending),
            Notice::Failed(failure) => {
                if failure.during == Step::Streaming {
                    scene.tally.count(Count::ClosesCut);
                }
                scene.tally.error(failure);
                scene.crew.lose(who);
                self.ledger.excuse(who);
            }
            Notice::Replied(_) | Notice::Posted | Notice::Deleted | Notice::SentAgain => {}
        }
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        Publisher::turn(&mut self.publisher, scene);
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        self.publisher.as_ref().and_then(|publisher| publisher.next_due(scene.window))
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        if self.ledger.is_kept() { tally.of(Count::Receipts) } else { tally.of(Count::KeepAlives) }
    }

    fn is_done(&self, scene: &Scene) -> bool {
        self.ledger.is_done(scene, self.publisher.as_ref())
    }

    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        count_silent(scene);
        self.ledger.settle(scene, self.publisher)
    }
}

/// Counts the GET that is about to open a stream, in the era that opens streams so.
pub(super) fn count_get(scene: &mut Scene) {
    if scene.fleet.era() == Era::Sessions {
        scene.tally.count(Count::Gets);
    }
}

/// Counts what an event shows, whatever the scenario.
pub(super) fn note_event(tally: &mut Tally, facts: EventFacts) {
    if facts.repeats_id {
        tally.count(Count::EventIdsRepeated);
    }
    if facts.is_garbled {
        tally.count(Count::EventsGarbled);
    }
    if facts.is_stray {
        tally.count(Count::EventsStray);
    }
    match facts.kind {
        Some(Kind::Request) => tally.count(Count::ServerRequests),
        Some(Kind::Notification | Kind::Acknowledgement | Kind::Answer { .. }) => tally.count(Count::Events),
        None => {}
    }
}

/// Judges a comment as a keep-alive: how much later than the interval it came.
pub(super) fn note_comment(scene: &mut Scene, silence_us: u64) {
    let interval_us = scene.plan.keep_alive_ms * 1_000;
    scene.tally.count(Count::KeepAlives);
    if scene.is_measured(scene.now) {
        scene.tally.count(Count::KeepAlivesMeasured);
    }
    if silence_us < interval_us / 2 {
        return scene.tally.count(Count::CommentsEarly);
    }
    scene.tally.time(Timed::KeepAliveSilence, silence_us);
    let lateness_us = silence_us.saturating_sub(interval_us);
    scene.recent.record(lateness_us);
    scene.tally.time(Timed::KeepAliveLateness, lateness_us);
}

/// Counts the streams that have been silent for more than one and a half intervals.
pub(super) fn count_silent(scene: &mut Scene) {
    let limit_ms = scene.plan.keep_alive_ms * 3 / 2;
    let streams = scene.fleet.iter().filter(|(_, step)| *step == Step::Streaming);
    let silent =
        streams.filter(|(who, _)| scene.now.ms_since(scene.fleet.last_heard(*who)) > limit_ms).count();
    scene.tally.count_n(Count::StreamsSilent, silent as u64);
}
