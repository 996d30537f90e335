//! `leapfrog`: clients that behave like an EventSource, with the cursors of finished POSTs.
//!
//! Each session makes a few calls, opens a plain listener, and then opens one more GET behind each
//! finished call, as EventSource-based clients do; every GET that ends is opened again after the
//! reconnection time. A server that ends one stream for another makes them do so for ever: GETs beyond the
//! first of each are the measure. With publishing, every session must get each notification once, on
//! whichever of its streams.

use super::hold::{note_comment, note_event};
use super::later::Later;
use super::ledger::Ledger;
use super::publisher::Publisher;
use super::{Books, Scenario, Scene};
use crate::clock::Moment;
use crate::fleet::{Cause, ClientId, EventFacts, Failure, Notice, Step};
use crate::measure::tally::{Count, Tally};
use crate::plan::Plan;
use crate::rpc;

/// The reconnection time where the server named none, in milliseconds: what browsers use.
const RETRY_MS: u64 = 3_000;
/// The scenario.
#[derive(Debug)]
pub(crate) struct Leapfrog {
    calls_count: u32,
    members: Vec<Option<Member>>,
    again: Later,
    ledger: Ledger,
    publisher: Option<Publisher>,
}

#[derive(Clone, Debug)]
enum Member {
    /// The client that opened the session: it calls, then listens.
    Leader { calls_left: u32, cursors: Vec<String> },
    /// A client that follows a finished call of the leader's session.
    Follower { leader: ClientId, cursor: String },
    /// An EventSource that was refused and has stopped.
    Stopped,
}

impl Leapfrog {
    /// No session yet; each makes `calls_count` calls before it listens.
    pub(crate) fn new(plan: &Plan, calls_count: u32) -> Self {
        Self {
            calls_count,
            members: Vec::new(),
            again: Later::default(),
            ledger: Ledger::new(plan),
            publisher: None,
        }
    }

    fn on_ready(&mut self, scene: &mut Scene, who: ClientId) {
        scene.tally.count(Count::SessionsOpened);
        self.set(who, Member::Leader { calls_left: self.calls_count, cursors: Vec::new() });
        self.call_or_listen(scene, who);
    }

    fn call_or_listen(&mut self, scene: &mut Scene, who: ClientId) {
        let Some(Some(Member::Leader { calls_left, .. })) = self.members.get_mut(who.index()) else { return };
        if *calls_left == 0 {
            scene.fleet.forget_cursor(who);
            return get(scene, who, None);
        }
        *calls_left -= 1;
        let call = &scene.plan.call;
        let marker = rpc::marker(!scene.fleet.run(), *calls_left);
        let arguments = call.arguments.replace("{marker}", &marker);
        scene.fleet.request(who, &rpc::Request::tool(&call.tool, &arguments), scene.now);
    }

    fn on_reply(&mut self, scene: &mut Scene, who: ClientId) {
        let cursor = scene.fleet.cursor(who).map(ToOwned::to_owned);
        if let (Some(Some(Member::Leader { cursors, .. })), Some(cursor)) =
            (self.members.get_mut(who.index()), cursor)
        {
            cursors.push(cursor);
        } else {
            scene.tally.count(Count::PostsWithoutCursor);
        }
        scene.fleet.forget_cursor(who);
        self.call_or_listen(scene, who);
    }

    fn on_up(&mut self, scene: &mut Scene, who: ClientId) {
        scene.tally.count(Count::StreamsOpened);
        let Some(Some(Member::Leader { cursors, .. })) = self.members.get_mut(who.index()) else { return };
        let cursors = std::mem::take(cursors);
        scene.crew.establish(who);
        self.ledger.join(scene, who);
        for cursor in cursors {
            let follower = scene.fleet.join(who);
            get(scene, follower, Some(&cursor));
            self.set(follower, Member::Follower { leader: who, cursor });
        }
    }

    fn on_event(&mut self, scene: &mut Scene, who: ClientId, facts: EventFacts) {
        if scene.fleet.step(who) != Step::Streaming {
            return;
        }
        note_event(&mut scene.tally, facts);
        let leader = match self.members.get(who.index()) {
            Some(Some(Member::Follower { leader, .. })) => *leader,
            _ => who,
        };
        self.ledger.on_event(scene, leader, facts);
    }

    /// The stream is gone: an EventSource waits and asks again.
    fn come_again(&mut self, scene: &Scene, who: ClientId) {
        let retry_ms = scene.fleet.retry_ms(who).unwrap_or(RETRY_MS);
        self.again.put(scene.now.plus_ms(retry_ms), who);
    }

    fn on_failure(&mut self, scene: &mut Scene, who: ClientId, failure: Failure) {
        match (failure.during, failure.cause) {
            (Step::Listening, Cause::Status(_) | Cause::Unfit(_)) if self.is_follower(who) => {
                scene.tally.count(Count::GetsRefused);
                self.set(who, Member::Stopped);
            }
            (Step::Listening | Step::Streaming, _) => {
                scene.tally.error(failure);
                self.come_again(scene, who);
            }
            _ => {
                scene.tally.error(failure);
                scene.crew.lose(who);
            }
        }
    }

    fn ask_again(&mut self, scene: &mut Scene, who: ClientId) {
        let last = scene.fleet.cursor(who).map(ToOwned::to_owned);
        let cursor = match self.members.get(who.index()) {
            Some(Some(Member::Follower { cursor, .. })) => last.or_else(|| Some(cursor.clone())),
            _ => last,
        };
        scene.tally.count(Count::GetsAgain);
        get(scene, who, cursor.as_deref());
    }

    fn is_follower(&self, who: ClientId) -> bool {
        matches!(self.members.get(who.index()), Some(Some(Member::Follower { .. })))
    }

    fn set(&mut self, who: ClientId, member: Member) {
        if self.members.len() <= who.index() {
            self.members.resize(who.index() + 1, None);
        }
        self.members[who.index()] = Some(member);
    }
}

fn get(scene: &mut Scene, who: ClientId, cursor: Option<&str>) {
    scene.tally.count(Count::Gets);
    scene.fleet.listen(who, cursor, scene.now);
}

impl Scenario for Leapfrog {
    fn on_notice(&mut self, scene: &mut Scene, who: ClientId, notice: Notice) {
        if let Some(publisher) = self.publisher.as_mut().filter(|publisher| publisher.owns(who)) {
            return publisher.on_notice(who, notice, &mut scene.fleet, &mut scene.tally, scene.now);
        }
        match notice {
            Notice::Ready => self.on_ready(scene, who),
            Notice::Replied(_) => self.on_reply(scene, who),
            Notice::Up => self.on_up(scene, who),
            Notice::Comment { silence_us } => note_comment(scene, silence_us),
            Notice::Event(facts) => self.on_event(scene, who, facts),
            Notice::Ended(_) => self.come_again(scene, who),
            Notice::Failed(failure) => self.on_failure(scene, who, failure),
            Notice::Posted | Notice::Deleted | Notice::SentAgain => {}
        }
    }

    fn on_turn(&mut self, scene: &mut Scene) {
        while let Some(who) = self.again.take(scene.now) {
            self.ask_again(scene, who);
        }
        Publisher::turn(&mut self.publisher, scene);
    }

    fn next_due(&self, scene: &Scene) -> Option<Moment> {
        let publisher_due = self.publisher.as_ref().and_then(|publisher| publisher.next_due(scene.window));
        self.again.next_due().into_iter().chain(publisher_due).min()
    }

    fn done_count(&self, tally: &Tally) -> u64 {
        tally.of(Count::Gets)
    }

    fn is_done(&self, scene: &Scene) -> bool {
        self.ledger.is_done(scene, self.publisher.as_ref())
    }

    fn settle(self: Box<Self>, scene: &mut Scene) -> Books {
        self.ledger.settle(scene, self.publisher)
    }
}
