//! The course of a run: ramp in steps, settle, measure, collect.
//!
//! Owns the order of things and the patience with workers. The server is sampled at the moments the
//! report compares: before, at each step of the ramp, at both ends of the measured time, and after.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::assemble::{Evidence, assemble};
use super::live::Live;
use super::watch::Watch;
use super::workers::Workers;
use crate::clock::Moment;
use crate::measure::process::Sample;
use crate::plan::{Plan, Window};
use crate::report::Report;
use crate::wire::{Order, Progress};

pub(crate) use super::live::Wish;

/// How long stragglers may take behind the measured time, in milliseconds.
const DONE_PATIENCE_MS: u64 = 10_000;
/// How long the outcomes may take, in milliseconds.
const OUTCOME_PATIENCE_MS: u64 = 30_000;
/// How often the parent looks around.
const GLANCE: Duration = Duration::from_millis(50);

/// Everything the parent needs to conduct a run.
#[derive(Debug)]
pub(crate) struct Job {
    /// The scenario's name as typed.
    pub(crate) name: String,
    /// The plan, the same for all workers but for their index.
    pub(crate) plan: Plan,
    /// Worker processes.
    pub(crate) workers_count: u32,
    /// Clients in all.
    pub(crate) clients_count: u64,
    /// Clients opened a second, in all; 0 is as fast as they come.
    pub(crate) ramp_per_second: f64,
    /// Numbers of clients at which the ramp pauses to measure memory.
    pub(crate) measure_at: Vec<u64>,
    /// Quiet time before each measurement of memory, in milliseconds.
    pub(crate) settle_ms: u64,
    /// Load that is not measured, in milliseconds.
    pub(crate) warm_up_ms: u64,
    /// Load that is measured, in milliseconds.
    pub(crate) measured_ms: u64,
    /// The server's processes.
    pub(crate) pids: Vec<u32>,
    /// What the user wants to see meanwhile.
    pub(crate) wish: Wish,
    /// Warnings of the preflight, to be kept in the report.
    pub(crate) warnings: Vec<String>,
}

/// Carries out a job.
///
/// # Errors
/// No worker could be started, or not a single client came into place.
pub(crate) fn conduct(job: Job) -> Result<Report> {
    let mut run = Run::start(job)?;
    run.ramp()?;
    let measured = run.measure();
    run.collect();
    let after = run.linger();
    Ok(run.report(measured, after))
}

/// The server's samples in the measured time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) from: Sample,
    pub(super) middle: Sample,
    pub(super) to: Sample,
}

struct Run {
    job: Job,
    workers: Workers,
    watch: Watch,
    live: Live,
    started_unix_ms: u64,
    before: Sample,
}

impl Run {
    fn start(job: Job) -> Result<Self> {
        let watch = Watch::new(&job.pids, Moment::now());
        let before = watch.sample();
        let workers_count = job.workers_count;
        let plans =
            (0..workers_count).map(|worker_index| Plan { worker_index, workers_count, ..job.plan.clone() });
        let workers = Workers::start(plans.collect())?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Ok(Self { live: Live::new(job.wish), job, workers, watch, started_unix_ms, before })
    }

    fn ramp(&mut self) -> Result<()> {
        let total = self.job.clients_count;
        let steps: Vec<u64> =
            self.job.measure_at.iter().copied().filter(|step| *step < total).chain([total]).collect();
        for step in steps {
            self.live.phase(&format!("opening {step} clients"));
            self.grow(step);
            self.pass(self.job.settle_ms);
            self.watch.note_step(self.workers.sum(|progress| progress.up));
        }
        let up = self.workers.sum(|progress| progress.up);
        if up == 0 && total > 0 {
            self.collect();
            bail!("not one of {total} clients came into place: {}", self.first_error());
        }
        Ok(())
    }

    /// Lets the clients grow to `count`; gives up when nothing has moved for as long as a step may take.
    fn grow(&mut self, count: u64) {
        let workers_count = self.workers.count() as u64;
        let rate = self.job.ramp_per_second / workers_count as f64;
        self.workers.order(|index| Order::Grow {
            clients_count: share(count, workers_count, index),
            per_second: rate,
        });
        let mut last = (0, Moment::now());
        loop {
            self.glance();
            let now = Moment::now();
            let moved = self.workers.sum(|progress| progress.up + progress.failed);
            if moved != last.0 {
                last = (moved, now);
            }
            let is_stuck = now.ms_since(last.1) > self.job.plan.timeout_ms + 2_000;
            let has_grown =
                |progress: &Progress| progress.is_grown && progress.ordered >= count / workers_count;
            if self.workers.all_report(has_grown) || is_stuck {
                return;
            }
        }
    }

    /// Runs the scenario.
    fn measure(&mut self) -> Measured {
        let start = Moment::now().plus_ms(100);
        let measure_from = start.plus_ms(self.job.warm_up_ms);
        let window = Window { start, measure_from, end: measure_from.plus_ms(self.job.measured_ms) };
        self.live.phase(&format!("measuring for {} s", self.job.measured_ms as f64 / 1_000.0));
        self.workers.order(|_| Order::Run(window));
        self.pass_until(window.measure_from);
        let from = self.watch.sample();
        self.pass_until(measure_from.plus_ms(self.job.measured_ms / 2));
        let middle = self.watch.sample();
        self.pass_until(window.end);
        let to = self.watch.sample();
        self.pass(300);
        let patience = Moment::now().plus_ms(DONE_PATIENCE_MS);
        while !self.workers.all_report(|progress| progress.is_done) && Moment::now() < patience {
            self.glance();
        }
        Measured { from, middle, to }
    }

    fn collect(&mut self) {
        self.workers.order(|_| Order::Finish);
        let patience = Moment::now().plus_ms(OUTCOME_PATIENCE_MS);
        while self.workers.are_working() && Moment::now() < patience {
            self.workers.listen(GLANCE);
        }
        self.workers.abandon_silent();
        self.live.end();
    }

    /// The clients are gone; samples the server once it had time to notice.
    fn linger(&mut self) -> Sample {
        if self.watch.has_pids() {
            std::thread::sleep(Duration::from_millis(self.job.settle_ms));
        }
        self.watch.sample()
    }

    fn report(self, measured: Measured, after: Sample) -> Report {
        assemble(Evidence {
            job: &self.job,
            workers: &self.workers,
            watch: &self.watch,
            started_unix_ms: self.started_unix_ms,
            before: self.before,
            measured,
            after,
        })
    }

    fn pass(&mut self, ms: u64) {
        self.pass_until(Moment::now().plus_ms(ms));
    }

    fn pass_until(&mut self, moment: Moment) {
        while Moment::now() < moment && self.workers.are_working() {
            self.glance();
        }
    }

    fn glance(&mut self) {
        self.workers.listen(GLANCE);
        let now = Moment::now();
        if let Some(point) = self.watch.on_time(&self.workers, now) {
            self.live.point(point, now);
        }
    }

    fn first_error(&self) -> String {
        let mut errors = self.workers.iter().filter_map(|worker| match &worker.fate {
            super::workers::Fate::Finished(outcome) => outcome.tally.errors().keys().next().cloned(),
            super::workers::Fate::Crashed(why) => Some(format!("worker crashed ({why})")),
            super::workers::Fate::Working => None,
        });
        errors.next().unwrap_or_else(|| "no answer".to_owned())
    }
}

/// The part of `total` that falls to one worker.
fn share(total: u64, workers_count: u64, index: usize) -> u64 {
    total / workers_count + u64::from((index as u64) < total % workers_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for total in [0, 1, 7, 60_000] {
            assert_eq!((0..4).map(|index| share(total, 4, index)).sum::<u64>(), total);
        }
    }
}
