//! The report of a run: one value that text, JSON, HTML, thresholds and comparisons are made from.
//!
//! Owns its shape, which `schema/report.schema.json` describes. Times are in the unit their name ends with.
//! `metrics` repeats the figures worth comparing as a flat list of names and numbers.

pub(crate) mod compare;
pub(crate) mod html;
mod plot;
pub(crate) mod text;
pub(crate) mod threshold;
pub(crate) mod units;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::histogram::Latencies;
use crate::measure::process::Sample;
use crate::measure::tally::{Count, Timed};
use crate::rpc::Era;

/// Names the shape of a report; changes when a reader of the old shape would misread it.
pub(crate) const FORMAT: &str = "moorline-load/1";

/// A report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// The scenario.
    pub(crate) scenario: String,
    /// Whose rules the clients were under.
    #[serde(default)]
    pub(crate) era: Era,
    /// Version of this program.
    pub(crate) version: String,
    /// The command line, header values left out.
    pub(crate) command: Vec<String>,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// The machine.
    pub(crate) host: Host,
    /// Clients that were to be opened.
    pub(crate) clients_wanted: u64,
    /// Clients in place at the end.
    pub(crate) clients_up_at_end: u64,
    /// Length of the measured time, in milliseconds.
    pub(crate) measured_ms: u64,
    /// Whether every worker delivered; if not, all numbers lack its part.
    pub(crate) is_complete: bool,
    /// The workers.
    pub(crate) workers: Vec<WorkerReport>,
    /// Counts.
    pub(crate) counts: BTreeMap<Count, u64>,
    /// Errors by text.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Latencies.
    pub(crate) latencies: BTreeMap<Timed, Distribution>,
    /// The scenario's main latency, a key of `latencies`.
    pub(crate) main_latency: Option<Timed>,
    /// Publications, when there were any.
    pub(crate) fanout: Option<Fanout>,
    /// The server's processes, when they were named.
    pub(crate) server: Option<Server>,
    /// The run over time.
    pub(crate) series: Vec<Point>,
    /// Figures by name.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// What the server did wrong.
    pub(crate) faults: Vec<String>,
    /// What limits the worth of the numbers.
    pub(crate) warnings: Vec<String>,
}

/// The machine of the generator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    /// Kernel name and release.
    pub(crate) kernel: String,
    /// Usable processors.
    pub(crate) cpus_count: usize,
}

/// One worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    /// From 0.
    pub(crate) index: usize,
    /// Process.
    pub(crate) pid: u32,
    /// `finished`, or what became of it.
    pub(crate) fate: String,
    /// CPU time it took, in milliseconds.
    pub(crate) cpu_ms: u64,
    /// Its worst lag, in microseconds.
    pub(crate) worst_lag_us: u64,
}

/// A distribution, summed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// Values.
    pub(crate) count: u64,
    /// Smallest.
    pub(crate) min_us: u64,
    /// Mean.
    pub(crate) mean_us: f64,
    /// Median.
    pub(crate) p50_us: u64,
    /// 90th percentile.
    pub(crate) p90_us: u64,
    /// 99th percentile.
    pub(crate) p99_us: u64,
    /// 99.9th percentile.
    pub(crate) p999_us: u64,
    /// Largest.
    pub(crate) max_us: u64,
    /// Pairs of quantile and microseconds, denser towards 1, for a plot.
    pub(crate) curve: Vec<(f64, u64)>,
}

impl From<&Latencies> for Distribution {
    fn from(latencies: &Latencies) -> Self {
        let curve = curve_quantiles().map(|q| (q, latencies.quantile(q)));
        Self {
            count: latencies.count(),
            min_us: latencies.min(),
            mean_us: latencies.mean(),
            p50_us: latencies.quantile(0.5),
            p90_us: latencies.quantile(0.9),
            p99_us: latencies.quantile(0.99),
            p999_us: latencies.quantile(0.999),
            max_us: latencies.max(),
            curve: curve.collect(),
        }
    }
}

/// Quantiles at equal distances of "nines": 0, …, 0.9, …, 0.99, …, 0.99999.
fn curve_quantiles() -> impl Iterator<Item = f64> {
    (0..=50).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 10.0))
}

/// How publications went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fanout {
    /// Publications the servers accepted.
    pub(crate) publications: u64,
    /// Receipts that were due.
    pub(crate) due: u64,
    /// Receipts that came.
    pub(crate) received: u64,
    /// Receipts that never came.
    pub(crate) lost: u64,
    /// Receipts beyond the first.
    pub(crate) duplicates: u64,
    /// Intended moment to the first client's receipt, over all publications.
    pub(crate) first: Spread,
    /// To the median client's.
    pub(crate) median: Spread,
    /// To the 99th percentile client's.
    pub(crate) p99: Spread,
    /// To the last client's.
    pub(crate) last: Spread,
}

/// A few figures of a small set of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// Smallest, in microseconds.
    pub(crate) min_us: u64,
    /// Median, in microseconds.
    pub(crate) p50_us: u64,
    /// Largest, in microseconds.
    pub(crate) max_us: u64,
}

/// The server's processes through the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Server {
    /// The processes named; their children count too.
    pub(crate) pids: Vec<u32>,
    /// Before the first client.
    pub(crate) before: Sample,
    /// At the beginning of the measured time.
    pub(crate) from: Sample,
    /// In its middle.
    pub(crate) middle: Sample,
    /// At its end.
    pub(crate) to: Sample,
    /// After all clients had gone.
    pub(crate) after: Sample,
    /// At the steps of the ramp.
    pub(crate) steps: Vec<MemoryStep>,
}

/// The server's memory while so many clients are in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryStep {
    /// Clients in place.
    pub(crate) clients_count: u64,
    /// Resident memory, in bytes.
    pub(crate) rss_bytes: u64,
    /// The part of it that belongs to no file, in bytes.
    pub(crate) anonymous_bytes: u64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Since the beginning, in milliseconds.
    pub(crate) ms: u64,
    /// Clients in place.
    pub(crate) up: u64,
    /// Things done per second: requests, receipts, keep-alives or cycles, as the scenario has it.
    pub(crate) done_per_second: f64,
    /// Errors so far.
    pub(crate) errors: u64,
    /// Streams ended by the server so far.
    pub(crate) closes: u64,
    /// Median of the main latency in the last quarter second, worst worker.
    pub(crate) p50_us: u64,
    /// 99th percentile of it.
    pub(crate) p99_us: u64,
    /// The generator's lag, worst worker.
    pub(crate) lag_us: u64,
    /// The server's resident memory.
    pub(crate) rss_bytes: u64,
    /// The server's use of CPU: 100 is one processor.
    pub(crate) cpu_percent: f64,
}
