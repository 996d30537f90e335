//! What a shard writes to the log about its clients: sampled requests, and now and then how many were refused.
//!
//! Owns the rate of both. Must never write a line per refusal, which a flood would turn into a full disk, nor per idle
//! stream.

use super::counters::Counters as ShellCounters;
use crate::{
    core::{
        ShardId,
        counters::Counters,
        http::Method,
        journal::{Noted, NotedEnd, Resource},
    },
    limits::REFUSALS_NOTICE_MS,
};

/// Refusals that were told of.
#[derive(Debug, Default)]
pub(super) struct Refused {
    told: Tally,
    next_ms: u64,
}

/// Refusals by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    requests: u64,
    sessions: u64,
    connections: u64,
    bad_tokens: u64,
}

impl Tally {
    fn of(core: &Counters, shell: &ShellCounters) -> Self {
        Tally {
            requests: core.requests_refused,
            sessions: core.sessions_refused,
            connections: core.connections_refused + shell.refused,
            bad_tokens: core.requests_with_bad_token + core.tokens_not_looked_at,
        }
    }
}

impl Refused {
    /// Tells of refusals since the last time, at most once in [`REFUSALS_NOTICE_MS`].
    pub(super) fn tell(&mut self, shard: ShardId, core: &Counters, shell: &ShellCounters, now_ms: u64) {
        if let Some(new) = self.due(Tally::of(core, shell), now_ms) {
            let Tally { requests, sessions, connections, bad_tokens } = new;
            tracing::info!(
                shard = shard.0,
                requests,
                sessions,
                connections,
                bad_tokens,
                "refused since the last such line"
            );
        }
    }

    /// What is new, if it is time to say so.
    fn due(&mut self, seen: Tally, now_ms: u64) -> Option<Tally> {
        if seen == self.told || now_ms < self.next_ms {
            return None;
        }
        let new = Tally {
            requests: seen.requests - self.told.requests,
            sessions: seen.sessions - self.told.sessions,
            connections: seen.connections - self.told.connections,
            bad_tokens: seen.bad_tokens - self.told.bad_tokens,
        };
        self.told = seen;
        self.next_ms = now_ms + REFUSALS_NOTICE_MS;
        Some(new)
    }
}

/// Writes one line of the access log.
pub(super) fn request(shard: ShardId, noted: &Noted) {
    let method = match noted.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Delete => "DELETE",
        Method::Options => "OPTIONS",
        Method::Other => "other",
    };
    let target = match noted.target {
        Resource::Endpoint => "endpoint",
        Resource::Other => "other",
    };
    let end = match noted.end {
        NotedEnd::Whole => "whole",
        NotedEnd::Cut => "cut",
    };
    let &Noted { status, duration_ms, bytes, .. } = noted;
    tracing::info!(target: "moorline::access", shard = shard.0, method, target, status, duration_ms, bytes, end, "request");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_flood_is_a_line_now_and_then_and_none_is_lost() {
        let mut refused = Refused::default();
        let tally = |requests| Tally { requests, ..Tally::default() };
        assert_eq!(refused.due(tally(0), 0), None);
        assert_eq!(refused.due(tally(1), 5).unwrap().requests, 1);
        for count in 2..1_000 {
            assert_eq!(refused.due(tally(count), 6), None);
        }
        assert_eq!(refused.due(tally(1_000), 5 + REFUSALS_NOTICE_MS).unwrap().requests, 999);
        assert_eq!(refused.due(tally(1_000), 5 + 9 * REFUSALS_NOTICE_MS), None);
    }
}
