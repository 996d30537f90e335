//! Counts and latencies of one worker, and of all workers together.
//!
//! Owns the closed lists of what is counted and timed. Merging is adding, so the order of workers does
//! not matter.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::histogram::Latencies;

/// An enum whose members can all be listed.
macro_rules! listed {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $member:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name { $($(#[$doc])* $member,)* }

        impl $name {
            /// All members.
            pub(crate) const ALL: &[Self] = &[$(Self::$member,)*];
        }
    };
}

listed! {
    /// Things that are counted.
    Count {
    /// Sessions whose handshake was completed.
    SessionsOpened,
    /// Sessions ended by DELETE.
    SessionsDeleted,
    /// Streams whose head arrived.
    StreamsOpened,
    /// Streams the server ended cleanly though it should have kept them.
    ClosesClean,
    /// Streams cut in the middle.
    ClosesCut,
    /// Streams that were reset.
    ClosesReset,
    /// Comments on streams.
    KeepAlives,
    /// Comments within the measured time.
    KeepAlivesMeasured,
    /// Comments after less than half the interval: openings and probes, not keep-alives.
    CommentsEarly,
    /// Streams that were silent for more than one and a half intervals when the run ended.
    StreamsSilent,
    /// Events with data on streams.
    Events,
    /// Events that repeat the event id before them.
    EventIdsRepeated,
    /// Events whose data is no JSON-RPC message.
    EventsGarbled,
    /// Messages on listen streams that do not name their subscription.
    EventsStray,
    /// Requests of the server on streams.
    ServerRequests,
    /// Requests sent within the measured time.
    Requests,
    /// Requests answered with a result within the measured time.
    RequestsOk,
    /// Requests answered with an error, or not at all.
    RequestsFailed,
    /// Requests that had to wait for a free connection.
    RequestsQueued,
    /// Requests that were due and never sent, because no connection came free in time.
    RequestsUnsent,
    /// Requests sent once more because the server had closed the idle connection.
    SentAgain,
    /// Publications the server took.
    PublicationsAccepted,
    /// Publications that failed.
    PublicationsFailed,
    /// Receipts that were due.
    ReceiptsDue,
    /// Publications received for the first time.
    Receipts,
    /// Publications received again on the same session.
    Duplicates,
    /// Receipts that were due and never came.
    Lost,
    /// Streams cut by us to be opened again.
    Reconnects,
    /// Streams that were up again after that.
    Reconnected,
    /// Sessions the server did not know any more.
    SessionsLost,
    /// GETs sent.
    Gets,
    /// GETs beyond the first of each connection: what a leapfrog drives up.
    GetsAgain,
    /// GETs the server refused, after which the client stopped.
    GetsRefused,
    /// POSTs that finished without giving an event id to resume from.
    PostsWithoutCursor,
    /// Open and end cycles of sessions within the measured time.
    Cycles,
}
}

/// Things that are timed, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Timed {
    /// From the intended moment of a request to its answer.
    Request,
    /// From the intended opening of a session to the end of its handshake.
    Handshake,
    /// From sending a GET to its head.
    StreamOpen,
    /// Keep-alives: how much longer the silence was than the interval.
    KeepAliveLateness,
    /// Keep-alives: the silence before them.
    KeepAliveSilence,
    /// From the intended moment of a publication to each receipt.
    Delivery,
    /// From the moment of a storm to the new stream's head.
    Reconnect,
    /// From the intended start of a session to the end of its DELETE.
    Cycle,
    /// How late the generator itself did what it meant to do.
    GeneratorLag,
}

/// Counts, latencies and errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    counts: BTreeMap<Count, u64>,
    timed: BTreeMap<Timed, Latencies>,
    errors: BTreeMap<String, u64>,
}

/// Distinct error texts that are kept; the rest is counted as one.
const ERROR_TEXTS_MAX: usize = 64;

impl Tally {
    /// Counts one.
    pub(crate) fn count(&mut self, what: Count) {
        self.count_n(what, 1);
    }

    /// Counts several; also makes a count of zero visible.
    pub(crate) fn count_n(&mut self, what: Count, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    /// Records a time in microseconds.
    pub(crate) fn time(&mut self, what: Timed, micros: u64) {
        self.timed.entry(what).or_default().record(micros);
    }

    /// Counts an error under its text.
    pub(crate) fn error(&mut self, text: impl fmt::Display) {
        let mut text = text.to_string();
        if self.errors.len() >= ERROR_TEXTS_MAX && !self.errors.contains_key(&text) {
            text = "other errors".to_owned();
        }
        *self.errors.entry(text).or_default() += 1;
    }

    /// The value of a count.
    pub(crate) fn of(&self, what: Count) -> u64 {
        self.counts.get(&what).copied().unwrap_or(0)
    }

    /// The distribution of a time, if there is one.
    pub(crate) fn times(&self, what: Timed) -> Option<&Latencies> {
        self.timed.get(&what).filter(|latencies| latencies.count() > 0)
    }

    /// All distributions.
    pub(crate) fn all_times(&self) -> &BTreeMap<Timed, Latencies> {
        &self.timed
    }

    /// All counts.
    pub(crate) fn all_counts(&self) -> &BTreeMap<Count, u64> {
        &self.counts
    }

    /// Errors by text.
    pub(crate) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// Errors in all.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Streams the server ended though it should have kept them.
    pub(crate) fn closes(&self) -> u64 {
        self.of(Count::ClosesClean) + self.of(Count::ClosesCut) + self.of(Count::ClosesReset)
    }

    /// Adds another worker's.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            self.count_n(*what, *count);
        }
        for (what, latencies) in &other.timed {
            self.timed.entry(*what).or_default().merge(latencies);
        }
        for (text, count) in &other.errors {
            *self.errors.entry(text.clone()).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn merged_tallies_travel() {
        let (mut a, mut b) = (Tally::default(), Tally::default());
        a.count(Count::Requests);
        b.count_n(Count::Requests, 2);
        b.time(Timed::Request, 5);
        b.error("x");
        a.merge(&b);
        let a: Tally = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!((a.of(Count::Requests), a.error_count()), (3, 1));
        assert_eq!(a.times(Timed::Request).unwrap().count(), 1);
    }

    #[test]
    fn endless_kinds_of_errors_do_not_fill_memory() {
        let mut tally = Tally::default();
        (0..1_000).for_each(|number| tally.error(number));
        assert_eq!((tally.errors().len(), tally.error_count()), (ERROR_TEXTS_MAX + 1, 1_000));
    }
}
