//! Which session got which publication: the part of a scenario that proves "exactly once".
//!
//! Owns the receipts and how a publication is recognised: by the marker it carries, or, where the server
//! cannot carry one, by its order. By order a loss is still counted, but shifts the latencies behind it.

use super::publisher::{Publisher, Schedule};
use super::{Books, Scene};
use crate::fleet::{ClientId, EventFacts};
use crate::measure::receipts::Receipts;
use crate::measure::tally::{Count, Timed};
use crate::plan::{Plan, Recognition};
use crate::rpc::Kind;

/// How long receipts may still come in after the window, in milliseconds.
const STRAGGLERS_MS: u64 = 2_000;

/// Receipts of publications, if the plan publishes at all.
#[derive(Debug)]
pub(crate) struct Ledger {
    publishing: Option<(Schedule, Recognition)>,
    receipts: Receipts,
}

impl Ledger {
    /// An empty ledger.
    pub(crate) fn new(plan: &Plan) -> Self {
        let publishing = plan.publishing.as_ref();
        Self {
            publishing: publishing.map(|publishing| (Schedule::new(publishing), publishing.recognition)),
            receipts: Receipts::default(),
        }
    }

    /// From now on the session is owed every publication; a second joining changes nothing.
    pub(crate) fn join(&mut self, scene: &Scene, session: ClientId) {
        if let Some((schedule, _)) = self.publishing {
            self.receipts.join(session, schedule.next_after(scene.window, scene.now));
        }
    }

    /// The session is owed nothing any more, until it joins again.
    pub(crate) fn excuse(&mut self, session: ClientId) {
        self.receipts.leave(session);
    }

    /// Notes what an event proves.
    pub(crate) fn on_event(&mut self, scene: &mut Scene, session: ClientId, facts: EventFacts) {
        let (Some((schedule, recognition)), Some(window)) = (self.publishing, scene.window) else { return };
        let seq = match recognition {
            Recognition::Marker => facts.marker,
            Recognition::Order if facts.kind == Some(Kind::Notification) => {
                self.receipts.next_expected(session)
            }
            Recognition::Order => None,
        };
        let Some(seq) = seq else { return };
        let intended = schedule.intended(window, seq);
        // By order, what comes before its time can only be one too many.
        let is_premature = recognition == Recognition::Order && facts.at < intended;
        if is_premature || !self.receipts.note(session, seq, facts.at.us_since(intended)) {
            scene.tally.count(Count::Duplicates);
        } else {
            scene.tally.count(Count::Receipts);
            scene.time(Timed::Delivery, intended, facts.at);
        }
    }

    /// Whether publications are expected.
    pub(crate) fn is_kept(&self) -> bool {
        self.publishing.is_some()
    }

    /// Whether every publication was made and had its time to arrive.
    pub(crate) fn is_done(&self, scene: &Scene, publisher: Option<&Publisher>) -> bool {
        let (Some(_), Some(window)) = (self.publishing, scene.window) else { return true };
        let has_published = publisher.is_none_or(|publisher| publisher.is_done(window));
        has_published && scene.now >= window.end.plus_ms(STRAGGLERS_MS)
    }

    /// Closes the ledger.
    pub(crate) fn settle(self, scene: &Scene, publisher: Option<Publisher>) -> Books {
        let count =
            self.publishing.zip(scene.window).map_or(0, |((schedule, _), window)| schedule.count(window));
        Books {
            deliveries: self.receipts.settle(count),
            accepted: publisher.map(Publisher::into_accepted).unwrap_or_default(),
        }
    }
}
