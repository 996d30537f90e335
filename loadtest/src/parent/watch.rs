//! The run over time: the server's memory and CPU, and the workers' progress, once a second.
//!
//! Owns the samples. The series is bounded by thinning: when it is full, every other point goes and the
//! distance doubles, so that a run of a week still fits.

use crate::clock::Moment;
use crate::measure::process::{self, Sample};
use crate::parent::workers::Workers;
use crate::report::{MemoryStep, Point};

/// Points kept at most.
const POINTS_MAX: usize = 1_200;

/// Watches a run.
#[derive(Debug)]
pub(crate) struct Watch {
    pids: Vec<u32>,
    begun: Moment,
    every_ms: u64,
    due: Moment,
    last: Option<(Moment, Sample, u64)>,
    /// The series so far.
    pub(crate) points: Vec<Point>,
    /// Memory at the steps of the ramp.
    pub(crate) steps: Vec<MemoryStep>,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(pids: &[u32], now: Moment) -> Self {
        Self {
            pids: pids.to_vec(),
            begun: now,
            every_ms: 1_000,
            due: now,
            last: None,
            points: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Whether there is a server process to watch.
    pub(crate) fn has_pids(&self) -> bool {
        !self.pids.is_empty()
    }

    /// The server's memory and CPU time now.
    pub(crate) fn sample(&self) -> Sample {
        process::sample(&self.pids)
    }

    /// Notes the server's memory while so many clients are in place.
    pub(crate) fn note_step(&mut self, clients_count: u64) -> Sample {
        let sample = self.sample();
        self.steps.push(MemoryStep {
            clients_count,
            rss_bytes: sample.rss_bytes,
            anonymous_bytes: sample.anonymous_bytes,
        });
        sample
    }

    /// Adds a point if one is due.
    pub(crate) fn on_time(&mut self, workers: &Workers, now: Moment) -> Option<&Point> {
        if now < self.due {
            return None;
        }
        self.due = now.plus_ms(self.every_ms);
        let point = self.point(workers, now);
        self.points.push(point);
        if self.points.len() >= POINTS_MAX {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every_ms *= 2;
        }
        self.points.last()
    }

    fn point(&mut self, workers: &Workers, now: Moment) -> Point {
        let (sample, done) = (self.sample(), workers.sum(|progress| progress.done));
        let (last_at, last_sample, last_done) =
            self.last.replace((now, sample, done)).unwrap_or((now, sample, done));
        let elapsed_ms = now.ms_since(last_at).max(1) as f64;
        Point {
            ms: now.ms_since(self.begun),
            up: workers.sum(|progress| progress.up),
            done_per_second: done.saturating_sub(last_done) as f64 * 1_000.0 / elapsed_ms,
            errors: workers.sum(|progress| progress.errors),
            closes: workers.sum(|progress| progress.closes),
            p50_us: workers.worst(|progress| progress.p50_us),
            p99_us: workers.worst(|progress| progress.p99_us),
            lag_us: workers.worst(|progress| progress.lag_us),
            rss_bytes: sample.rss_bytes,
            cpu_percent: sample.cpu_ms.saturating_sub(last_sample.cpu_ms) as f64 * 100.0 / elapsed_ms,
        }
    }
}
