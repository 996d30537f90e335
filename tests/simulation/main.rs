//! Whole shards and their clients in a world made of chance: what may happen in months happens in seconds.
//!
//! A seed decides everything, so a failing run can be had again: `MOORLINE_SEED=7 cargo test --test simulation
//! replay -- --nocapture` prints it step by step. `MOORLINE_SEEDS=20000` runs more than the usual 256. See
//! `docs/internals/simulation.md` for what is simulated, what must hold, and which faults it was seen to catch.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a panic is a failed test, and the numbers are small"
)]

mod accounts;
mod backend;
mod client;
mod found;
mod model;
mod requests;
mod rng;
mod scenario;
mod sim;
mod socket;
mod stateless;
mod wire;

use sim::Sim;
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const SEEDS: u64 = 256;
/// More failures than this say nothing new.
const FAILURES_MAX: usize = 10;

/// The digest of a run.
fn run(seed: u64, prints: bool) -> u64 {
    let mut sim = Sim::new(seed, prints);
    sim.run();
    sim.trace.hash
}

#[test]
fn every_seed_keeps_the_rules() {
    let seeds = number("MOORLINE_SEEDS").unwrap_or(SEEDS);
    let first = number("MOORLINE_FIRST_SEED").unwrap_or(0);
    let next = AtomicU64::new(first);
    let threads = thread::available_parallelism().map_or(2, |count| count.get());
    let failed: Vec<u64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + seeds || failed.len() >= FAILURES_MAX {
                            return failed;
                        }
                        if catch_unwind(AssertUnwindSafe(|| run(seed, false))).is_err() {
                            eprintln!("^ seed {seed}");
                            failed.push(seed);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect()
    });
    assert!(
        failed.is_empty(),
        "{} of {seeds} seeds fail, e.g. MOORLINE_SEED={} cargo test --test simulation replay -- --nocapture; all: {failed:?}",
        failed.len(),
        failed[0]
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..8 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
    assert_ne!(run(0, false), run(1, false));
}

/// Does nothing unless a seed is named.
#[test]
fn replay() {
    if let Some(seed) = number("MOORLINE_SEED") {
        run(seed, true);
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}
