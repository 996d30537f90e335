//! Every fuzz target over its seeds and many thousands of their mutants.

use super::{
    fuzz::{body, envelope, head, ids, shard},
    mutator::Mutator,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn heads() {
    drive(head::check, head::seeds(), 6_000);
}

#[test]
fn bodies() {
    drive(body::check, body::seeds(), 10_000);
}

#[test]
fn envelopes() {
    drive(envelope::check, envelope::seeds(), 20_000);
}

#[test]
fn session_ids_and_cursors() {
    drive(ids::check, ids::seeds(), 50_000);
}

#[test]
fn sequences_of_operations_on_shards() {
    drive(shard::check, shard::seeds(), 300);
}

/// Scripts that never get anywhere would find nothing.
#[test]
fn sequences_reach_what_they_are_for() {
    let mut sums = std::collections::BTreeMap::new();
    for seed in shard::seeds() {
        for counters in shard::play(&seed) {
            counters.iter().for_each(|(name, count)| *sums.entry(name).or_insert(0) += count);
        }
    }
    // Nothing is logged, and lateness is none in virtual time; the others need more calls, streams, bytes or broadcasts than a
    // short script has, or a backend with children, or a server that asks who comes or counts what each has.
    let unreachable = [
        "access_notes_dropped",
        "broadcasts_dropped",
        "calls_refused",
        "carriers",
        "clients_over_quota",
        "comments_late_ms",
        "comments_late_ms_max",
        "connections_overflowed",
        "listeners_refused",
        "refused_for_memory",
        "requests_with_bad_token",
        "requests_without_scope",
        "requests_without_token",
        "sessions_abandoned",
        "sessions_revoked",
        "sessions_severed",
        "sessions_stopped",
        "streams_unauthorized",
        "subscriptions_refused",
        "tokens_over_pace",
        "tokens_verified",
    ];
    let missing: Vec<_> =
        sums.iter().filter(|(name, sum)| **sum == 0 && !unreachable.contains(name)).collect();
    assert!(missing.is_empty(), "never reached: {missing:?}\n{sums:#?}");
}

/// Inputs that once broke a rule.
#[test]
fn found_inputs() {
    for input in FOUND_SHARD {
        shard::check(input);
    }
}

const FOUND_SHARD: [&[u8]; 0] = [];

/// Runs `check` on every seed and on `rounds` mutants.
///
/// # Panics
/// With the input that broke a rule, to be put among those found.
fn drive(check: fn(&[u8]), seeds: Vec<Vec<u8>>, rounds: usize) {
    let run = |name: String, input: &[u8]| {
        let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
        assert!(outcome.is_ok(), "{name} breaks a rule:\nb\"{}\"", input.escape_ascii());
    };
    for (index, seed) in seeds.iter().enumerate() {
        run(format!("seed {index}"), seed);
    }
    let mut mutator = Mutator::new(seeds, 1);
    for round in 0..rounds * factor() {
        let input = mutator.next();
        run(format!("mutant {round}"), &input);
    }
}

fn factor() -> usize {
    std::env::var("MOORLINE_FUZZ_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
