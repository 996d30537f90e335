//! Where the admin thread talks to the shards: by mail, with an answer from each and a limit to the wait.
//!
//! Owns the sending ends. Invariants: a publication is sent to all the shards it is for or to none; its place is taken
//! until the shards have come by their sessions, whether or not its publisher still waits.

use super::{AllListen, Terms};
use crate::{
    core::{Announcement, Audience, Reach, ShardId},
    limits::{LIVE_STREAMS_MAX, PUBLICATION_TIMEOUT_MS, PUBLICATIONS_MAX, STATISTICS_TIMEOUT_MS},
    shell::{
        counters::Statistics,
        doorbell::Phase,
        mailbox::{Letter, Mail, Outside},
    },
};
use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::spawn_local,
    time::timeout_at,
};

/// The admin thread's own state.
pub(super) struct Desk {
    outside: RefCell<Outside>,
    all_listen: AllListen,
    publications: Arc<Semaphore>,
    live: Arc<Semaphore>,
    /// What may be published.
    pub(super) terms: Terms,
    /// When the server started.
    pub(super) started: Instant,
}

/// A place among the publications under way, or among the live pages.
pub(super) type Place = OwnedSemaphorePermit;

/// What the process does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Some shard does not accept yet.
    Starting,
    /// All do.
    Ready,
    /// None takes newcomers any more.
    Draining,
}

/// How a publication went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The sum of what the shards said.
    pub(super) reach: Reach,
    /// Shards that did not say anything in time.
    pub(super) silent: usize,
}

/// A shard has no room for more mail; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Desk {
    pub(super) fn new(outside: Outside, all_listen: AllListen, terms: Terms) -> Self {
        Desk {
            outside: RefCell::new(outside),
            all_listen,
            publications: Arc::new(Semaphore::new(PUBLICATIONS_MAX)),
            live: Arc::new(Semaphore::new(LIVE_STREAMS_MAX)),
            terms,
            started: Instant::now(),
        }
    }

    pub(super) fn readiness(&self) -> Readiness {
        match self.outside.borrow().phase() {
            Phase::Drain | Phase::Stop => Readiness::Draining,
            Phase::Run if self.all_listen.is_confirmed() => Readiness::Ready,
            Phase::Run => Readiness::Starting,
        }
    }

    /// A place for one more publication; `None` when as many as may be are under way.
    pub(super) fn place_for_publication(&self) -> Option<Place> {
        Arc::clone(&self.publications).try_acquire_owned().ok()
    }

    /// A place for one more live page.
    pub(super) fn place_for_live_page(&self) -> Option<Place> {
        Arc::clone(&self.live).try_acquire_owned().ok()
    }

    /// Gives a notification to all it is for, and waits until the shards have.
    pub(super) async fn publish(
        &self,
        place: Place,
        audience: Audience,
        announcement: Announcement,
    ) -> Result<Outcome, Full> {
        let replies = self.send_publication(audience, &announcement)?;
        drop(announcement);
        let reports = spawn_local(async move {
            let reports = all_of(replies, Duration::from_millis(PUBLICATION_TIMEOUT_MS)).await;
            drop(place);
            reports
        });
        // It fails only with the runtime.
        let reports = reports.await.unwrap_or_default();
        let silent = reports.iter().filter(|report| report.is_none()).count();
        let reach = reports.into_iter().flatten().fold(Reach::default(), Reach::plus);
        Ok(Outcome { reach, silent })
    }

    fn send_publication(
        &self,
        audience: Audience,
        announcement: &Announcement,
    ) -> Result<Vec<oneshot::Receiver<Reach>>, Full> {
        let mut outside = self.outside.borrow_mut();
        let is_for = |shard: &ShardId| match &audience {
            Audience::All | Audience::Principal(_) => true,
            Audience::Session(session) => session.shard == *shard,
        };
        let shards: Vec<_> = outside.shards().filter(is_for).collect();
        if !shards.iter().all(|shard| outside.has_room(*shard)) {
            return Err(Full);
        }
        let send = |shard| {
            let (reply, report) = oneshot::channel();
            let letter = Letter { audience: audience.clone(), announcement: announcement.clone(), reply };
            let sent = outside.send(shard, Mail::Publication(letter));
            debug_assert!(sent.is_ok(), "there was room");
            report
        };
        Ok(shards.into_iter().map(send).collect())
    }

    /// What each shard says about itself, in their order; `None` for one that does not answer in time.
    pub(super) async fn statistics(&self) -> Vec<Option<Statistics>> {
        let replies = self.inquire();
        let reports = all_of(replies, Duration::from_millis(STATISTICS_TIMEOUT_MS)).await;
        reports.into_iter().map(|report| report.map(|statistics| *statistics)).collect()
    }

    fn inquire(&self) -> Vec<oneshot::Receiver<Box<Statistics>>> {
        let mut outside = self.outside.borrow_mut();
        let shards = outside.shards();
        let inquire = |shard| {
            let (reply, report) = oneshot::channel();
            // Given back and dropped by a shard that does not take its mail, which tells the receiver.
            drop(outside.send(shard, Mail::Inquiry(reply)));
            report
        };
        shards.map(inquire).collect()
    }
}

/// What comes of `replies` until `limit` has passed, in their order.
async fn all_of<T>(replies: Vec<oneshot::Receiver<T>>, limit: Duration) -> Vec<Option<T>> {
    let end = tokio::time::Instant::now() + limit;
    let mut all = Vec::with_capacity(replies.len());
    for reply in replies {
        all.push(timeout_at(end, reply).await.ok().and_then(Result::ok));
    }
    all
}
