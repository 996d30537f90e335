//! What parent and workers say to each other: one JSON object a line, orders on the worker's standard
//! input, words on its standard output.
//!
//! A worker that loses its parent sees the end of its input and ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::receipts::Delivery;
use crate::measure::tally::Tally;
use crate::plan::{Plan, Window};

/// From the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The plan; the first order.
    Begin(Box<Plan>),
    /// Open clients until there are this many.
    Grow {
        /// Clients in all.
        clients_count: u64,
        /// At this rate; 0 is as fast as they come.
        per_second: f64,
    },
    /// Carry out the scenario.
    Run(Window),
    /// Say what was measured, and end.
    Finish,
}

/// From a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// How it goes, several times a second.
    Progress(Progress),
    /// What was measured; the last word.
    Outcome(Box<Outcome>),
    /// It cannot go on.
    Fatal(String),
}

/// How a worker is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Clients that are in place now: with a stream, or ready to call.
    pub(crate) up: u64,
    /// Clients whose opening failed, so far.
    pub(crate) failed: u64,
    /// Clients ordered so far: tells whether the last order has been read.
    pub(crate) ordered: u64,
    /// Whether every client ordered is in place or failed.
    pub(crate) is_grown: bool,
    /// Whether the scenario has nothing more to wait for.
    pub(crate) is_done: bool,
    /// Things done so far: requests, receipts, keep-alives, cycles, as the scenario has it.
    pub(crate) done: u64,
    /// Errors so far.
    pub(crate) errors: u64,
    /// Streams ended by the server so far.
    pub(crate) closes: u64,
    /// Comments so far.
    pub(crate) keep_alives: u64,
    /// Median and 99th percentile of the scenario's main latency since the last progress, in microseconds.
    pub(crate) p50_us: u64,
    /// See `p50_us`.
    pub(crate) p99_us: u64,
    /// The worst lag of this worker since the last progress, in microseconds.
    pub(crate) lag_us: u64,
}

/// What one worker measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Counts, latencies, errors.
    pub(crate) tally: Tally,
    /// Publications, by number.
    pub(crate) deliveries: BTreeMap<u32, Delivery>,
    /// Publications the servers accepted, from the worker that publishes.
    pub(crate) accepted: Vec<u32>,
    /// CPU time of the worker during the run, in milliseconds.
    pub(crate) cpu_ms: u64,
    /// Clients that were in place at the end.
    pub(crate) up: u64,
}
