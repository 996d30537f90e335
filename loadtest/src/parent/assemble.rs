//! From what workers and samples said to one report: merging, figures, and judgement.
//!
//! Owns what counts as a fault of the server and what as a weakness of the measurement.

use std::collections::BTreeMap;

use super::conduct::{Job, Measured};
use super::watch::Watch;
use super::workers::{Fate, Workers};
use crate::measure::process::Sample;
use crate::measure::receipts::Delivery;
use crate::measure::tally::{Count, Tally, Timed};
use crate::report::text::name;
use crate::report::{Distribution, FORMAT, Fanout, Host, MemoryStep, Report, Server, Spread, WorkerReport};
use crate::wire::Outcome;

/// The generator was the limit when its own lag was above this for one tick in a hundred, in microseconds.
const LAG_P99_US_MAX: u64 = 20_000;
/// Keep-alives later than this at the 99th percentile are a fault, in microseconds.
const LATENESS_P99_US_MAX: u64 = 1_000_000;
/// Memory kept per cycle of churn that is a fault, in bytes, if it adds up to [`LEAK_BYTES_MIN`].
const LEAK_BYTES_PER_CYCLE_MAX: f64 = 256.0;
/// Growth that may be caches and arenas, in bytes.
const LEAK_BYTES_MIN: f64 = 4.0 * 1_048_576.0;

/// Everything a report is made from.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) job: &'a Job,
    pub(super) workers: &'a Workers,
    pub(super) watch: &'a Watch,
    pub(super) started_unix_ms: u64,
    pub(super) before: Sample,
    pub(super) measured: Measured,
    pub(super) after: Sample,
}

/// Makes the report.
pub(super) fn assemble(evidence: Evidence<'_>) -> Report {
    let merged = merge(evidence.workers);
    let fanout = fanout(&merged);
    let mut tally = merged.tally;
    if let Some(fanout) = &fanout {
        tally.count_n(Count::ReceiptsDue, fanout.due);
        tally.count_n(Count::Lost, fanout.lost);
    }
    let mut report = Report {
        format: FORMAT.to_owned(),
        scenario: evidence.job.name.clone(),
        era: evidence.job.plan.wording.era,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(),
        started_unix_ms: evidence.started_unix_ms,
        host: host(),
        clients_wanted: evidence.job.clients_count,
        clients_up_at_end: merged.up,
        measured_ms: evidence.job.measured_ms,
        is_complete: evidence.workers.iter().all(|worker| matches!(worker.fate, Fate::Finished(_))),
        workers: worker_reports(evidence.workers),
        counts: tally.all_counts().clone(),
        errors: tally.errors().clone(),
        latencies: distributions(&tally),
        main_latency: main_latency(&tally),
        fanout,
        server: server(&evidence),
        series: evidence.watch.points.clone(),
        metrics: BTreeMap::new(),
        faults: Vec::new(),
        warnings: evidence.job.warnings.clone(),
    };
    report.metrics = metrics(&report, &tally);
    report.faults = faults(&report, &tally);
    report.metrics.insert("faults".into(), report.faults.len() as f64);
    let warnings = warnings(&report, &tally, evidence.job);
    report.warnings.extend(warnings);
    report
}

fn merge(workers: &Workers) -> Outcome {
    let mut merged = Outcome::default();
    for worker in workers.iter() {
        let Fate::Finished(outcome) = &worker.fate else { continue };
        merged.tally.merge(&outcome.tally);
        merged.accepted.extend(&outcome.accepted);
        merged.up += outcome.up;
        for (seq, delivery) in &outcome.deliveries {
            merged.deliveries.entry(*seq).or_default().merge(delivery);
        }
    }
    merged
}

fn fanout(merged: &Outcome) -> Option<Fanout> {
    let accepted: Vec<&Delivery> =
        merged.accepted.iter().filter_map(|seq| merged.deliveries.get(seq)).collect();
    if merged.accepted.is_empty() && merged.deliveries.is_empty() {
        return None;
    }
    let sum = |figure: fn(&Delivery) -> u64| accepted.iter().map(|delivery| figure(delivery)).sum::<u64>();
    let (due, received) = (sum(|d| d.due), sum(|d| d.received));
    let spread = |figure: fn(&Delivery) -> u64| {
        spread(accepted.iter().filter(|d| d.latencies.count() > 0).map(|delivery| figure(delivery)).collect())
    };
    Some(Fanout {
        publications: merged.accepted.len() as u64,
        due,
        received,
        lost: due.saturating_sub(received),
        duplicates: sum(|d| d.duplicates),
        first: spread(|d| d.latencies.min()),
        median: spread(|d| d.latencies.quantile(0.5)),
        p99: spread(|d| d.latencies.quantile(0.99)),
        last: spread(|d| d.latencies.max()),
    })
}

fn spread(mut values: Vec<u64>) -> Spread {
    values.sort_unstable();
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    Spread { min_us: at(0), p50_us: at(values.len() / 2), max_us: at(values.len().saturating_sub(1)) }
}

/// The command line, with the values of headers left out: they may be credentials.
fn command() -> Vec<String> {
    let mut is_header = false;
    let hide = |argument: String| {
        let text = match (
            std::mem::replace(&mut is_header, argument == "--header" || argument == "-H"),
            &argument,
        ) {
            (true, value) => format!("{}: …", value.split(':').next().unwrap_or_default()),
            (false, value) if value.starts_with("--header=") => "--header=…".to_owned(),
            (false, value) => value.clone(),
        };
        Some(text)
    };
    std::env::args().skip(1).filter_map(hide).collect()
}

fn host() -> Host {
    let uname = rustix::system::uname();
    Host {
        kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        cpus_count: std::thread::available_parallelism().map_or(0, Into::into),
    }
}

fn worker_reports(workers: &Workers) -> Vec<WorkerReport> {
    let report = |(index, worker): (usize, &super::workers::Worker)| WorkerReport {
        index,
        pid: worker.pid(),
        fate: match &worker.fate {
            Fate::Finished(_) => "finished".to_owned(),
            Fate::Crashed(why) => format!("crashed: {why}"),
            Fate::Working => "working".to_owned(),
        },
        cpu_ms: if let Fate::Finished(outcome) = &worker.fate { outcome.cpu_ms } else { 0 },
        worst_lag_us: worker.worst_lag_us,
    };
    workers.iter().enumerate().map(report).collect()
}

fn distributions(tally: &Tally) -> BTreeMap<Timed, Distribution> {
    let filled = tally.all_times().iter().filter(|(_, latencies)| latencies.count() > 0);
    filled.map(|(what, latencies)| (*what, latencies.into())).collect()
}

fn main_latency(tally: &Tally) -> Option<Timed> {
    let by_weight = [
        Timed::Request,
        Timed::Reconnect,
        Timed::Cycle,
        Timed::Delivery,
        Timed::KeepAliveLateness,
        Timed::StreamOpen,
        Timed::Handshake,
    ];
    by_weight.into_iter().find(|what| tally.times(*what).is_some())
}

fn server(evidence: &Evidence<'_>) -> Option<Server> {
    evidence.watch.has_pids().then(|| Server {
        pids: evidence.job.pids.clone(),
        before: evidence.before,
        from: evidence.measured.from,
        middle: evidence.measured.middle,
        to: evidence.measured.to,
        after: evidence.after,
        steps: evidence.watch.steps.clone(),
    })
}

fn metrics(report: &Report, tally: &Tally) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let mut put = |name: String, value: f64| {
        metrics.insert(name, value);
    };
    for what in Count::ALL {
        put(name(what), tally.of(*what) as f64);
    }
    for (what, distribution) in &report.latencies {
        for (suffix, micros) in percentiles(distribution) {
            put(format!("{}_{suffix}_us", name(what)), micros);
        }
    }
    let main = report.main_latency.and_then(|what| report.latencies.get(&what));
    for (suffix, micros) in main.map(percentiles).into_iter().flatten() {
        put(format!("{suffix}_us"), micros);
    }
    put("errors".into(), tally.error_count() as f64);
    put("closes".into(), tally.closes() as f64);
    put("clients_up_at_end".into(), report.clients_up_at_end as f64);
    put("clients_missing".into(), report.clients_wanted.saturating_sub(report.clients_up_at_end) as f64);
    if let Some((_, done)) = work(tally).filter(|_| report.measured_ms > 0) {
        put("rate".into(), done as f64 * 1_000.0 / report.measured_ms as f64);
    }
    if let Some(server) = &report.server {
        server_metrics(&mut put, server, report, tally);
    }
    metrics
}

fn percentiles(d: &Distribution) -> [(&'static str, f64); 6] {
    let [p50, p90, p99, p999, max] = [d.p50_us, d.p90_us, d.p99_us, d.p999_us, d.max_us].map(|us| us as f64);
    [("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999), ("max", max), ("mean", d.mean_us)]
}

/// What the server mainly did in the measured time.
fn work(tally: &Tally) -> Option<(&'static str, u64)> {
    let by_weight = [
        ("request", Count::Requests),
        ("cycle", Count::Cycles),
        ("receipt", Count::Receipts),
        ("keep_alive", Count::KeepAlivesMeasured),
    ];
    by_weight.into_iter().map(|(unit, count)| (unit, tally.of(count))).find(|(_, done)| *done > 0)
}

fn server_metrics(put: &mut impl FnMut(String, f64), server: &Server, report: &Report, tally: &Tally) {
    let cpu_ms = server.to.cpu_ms.saturating_sub(server.from.cpu_ms) as f64;
    put("server_cpu_ms".into(), cpu_ms);
    if report.measured_ms > 0 {
        put("server_cpu_percent".into(), cpu_ms * 100.0 / report.measured_ms as f64);
    }
    if let Some((unit, done)) = work(tally) {
        put(format!("cpu_us_per_{unit}"), cpu_ms * 1_000.0 / done as f64);
    }
    put("rss_before_bytes".into(), server.before.rss_bytes as f64);
    put("rss_end_bytes".into(), server.to.rss_bytes as f64);
    put("rss_after_bytes".into(), server.after.rss_bytes as f64);
    if let Some(slope) = slope(server, |step| step.rss_bytes) {
        put("bytes_per_stream".into(), slope);
    }
    if let Some(slope) = slope(server, |step| step.anonymous_bytes) {
        put("anonymous_bytes_per_stream".into(), slope);
    }
    if let Some(("cycle", cycles)) = work(tally) {
        put("leak_bytes_per_cycle".into(), kept_bytes(server) / cycles as f64);
    }
}

/// What the server grew by over the measured time, if it was still growing in the second half: caches and
/// pools fill up early, a leak goes on.
fn kept_bytes(server: &Server) -> f64 {
    let grown = |from: Sample, to: Sample| to.rss_bytes as f64 - from.rss_bytes as f64;
    let (whole, late) = (grown(server.from, server.to), grown(server.middle, server.to));
    if late * 4.0 > whole { whole } else { (late * 2.0).max(0.0) }
}

/// Memory per client between the first and the last step of the ramp; with one step, from the start.
fn slope(server: &Server, bytes: fn(&MemoryStep) -> u64) -> Option<f64> {
    let last = server.steps.last()?;
    let start = MemoryStep {
        clients_count: 0,
        rss_bytes: server.before.rss_bytes,
        anonymous_bytes: server.before.anonymous_bytes,
    };
    let first =
        server.steps.first().filter(|first| first.clients_count < last.clients_count).unwrap_or(&start);
    let clients_count = last.clients_count.saturating_sub(first.clients_count);
    (clients_count > 0).then(|| (bytes(last) as f64 - bytes(first) as f64) / clients_count as f64)
}

fn faults(report: &Report, tally: &Tally) -> Vec<String> {
    let counted = [
        (tally.closes(), "streams were ended by the server"),
        (
            tally.of(Count::StreamsSilent),
            "streams had fallen silent: no keep-alive for one and a half intervals",
        ),
        (tally.of(Count::Lost), "notifications were lost"),
        (tally.of(Count::Duplicates), "notifications came twice"),
        (tally.of(Count::EventIdsRepeated), "events repeated the id of the event before"),
        (tally.of(Count::EventsGarbled), "events were no JSON-RPC messages"),
        (tally.of(Count::EventsStray), "messages on listen streams did not name their subscription"),
        (tally.of(Count::SessionsLost), "sessions were forgotten by the server"),
        (tally.of(Count::RequestsFailed), "requests were not answered with a result"),
        (tally.of(Count::RequestsUnsent), "requests were due and never found a free connection"),
        (tally.of(Count::GetsAgain), "GETs had to be sent again: streams were ended that should have stayed"),
        (tally.of(Count::PublicationsFailed), "publications were refused"),
        (tally.error_count(), "errors (listed above)"),
    ];
    let mut faults: Vec<String> = counted
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, text)| format!("{count} {text}"))
        .collect();
    let lateness = tally.times(Timed::KeepAliveLateness).map_or(0, |latencies| latencies.quantile(0.99));
    if lateness > LATENESS_P99_US_MAX {
        let text = crate::report::units::micros(lateness as f64);
        faults.push(format!("keep-alives were late: by {text} at the 99th percentile"));
    }
    if let Some(leak) = report.metrics.get("leak_bytes_per_cycle") {
        let kept = leak * tally.of(Count::Cycles) as f64;
        if *leak > LEAK_BYTES_PER_CYCLE_MAX && kept > LEAK_BYTES_MIN {
            faults.push(format!("memory grew by {leak:.0} bytes per session that had ended"));
        }
    }
    faults
}

fn warnings(report: &Report, tally: &Tally, job: &Job) -> Vec<String> {
    let mut warnings = Vec::new();
    for worker in report.workers.iter().filter(|worker| worker.fate != "finished") {
        warnings
            .push(format!("worker {} {}: its part of every number is missing", worker.index, worker.fate));
    }
    let lag_us = tally.times(Timed::GeneratorLag).map_or(0, |latencies| latencies.quantile(0.99));
    if lag_us > LAG_P99_US_MAX {
        warnings.push(format!(
            "the generator, not the server, may have been the limit: it was {} late at the 99th percentile; use more --workers, another machine, or less load",
            crate::report::units::micros(lag_us as f64),
        ));
    }
    let silence = tally.times(Timed::KeepAliveSilence).map_or(0, |latencies| latencies.quantile(0.5)) / 1_000;
    if silence > 0 && silence.abs_diff(job.plan.keep_alive_ms) * 5 > job.plan.keep_alive_ms {
        warnings.push(format!(
            "the server's keep-alives come every {silence} ms, not every {}; say --keep-alive {silence}ms to have lateness measured",
            job.plan.keep_alive_ms,
        ));
    }
    if tally.of(Count::PostsWithoutCursor) > 0 {
        warnings.push(format!(
            "{} calls gave no event id to follow; try --accept sse, a tool that streams, or a server that keeps events",
            tally.of(Count::PostsWithoutCursor),
        ));
    }
    let queued = tally.of(Count::RequestsQueued);
    if queued * 10 > tally.of(Count::Requests).max(tally.of(Count::Cycles)) {
        warnings.push(format!(
            "{queued} requests had to wait for a free connection, and that wait is in their latency; more --connections shorten it if the server is not the limit"
        ));
    }
    if report.server.as_ref().is_some_and(|server| server.to.processes_count == 0) {
        warnings.push("no process with the given --pid was there at the end".to_owned());
    }
    warnings
}
