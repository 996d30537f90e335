//! The summary people read at the end of a run.

use std::fmt::{self, Display, Formatter, Write};

use super::units::{bytes, micros, thousands};
use super::{Distribution, Fanout, Report, Server, Spread};
use crate::rpc::Era;

/// A report as text.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a Report);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(
            f,
            "\n{}{}: {} of {} clients in place at the end, measured for {:.1} s by {} worker(s)",
            report.scenario,
            match report.era {
                Era::Sessions => "",
                Era::Stateless => " under 2026-07-28",
            },
            thousands(report.clients_up_at_end),
            thousands(report.clients_wanted),
            report.measured_ms as f64 / 1_000.0,
            report.workers.len(),
        )?;
        latencies(f, report)?;
        report.fanout.as_ref().map_or(Ok(()), |fanout| self::fanout(f, fanout))?;
        report.server.as_ref().map_or(Ok(()), |server| self::server(f, report, server))?;
        counts(f, report)?;
        remarks(f, report)
    }
}

fn latencies(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    if report.latencies.is_empty() {
        return Ok(());
    }
    write!(f, "\n  {:<22}", "latency")?;
    for column in ["count", "p50", "p90", "p99", "p99.9", "max"] {
        write!(f, "{column:>11}")?;
    }
    writeln!(f)?;
    for (what, distribution) in &report.latencies {
        writeln!(f, "  {:<22}{}", label(what), row(distribution))?;
    }
    Ok(())
}

fn row(d: &Distribution) -> String {
    let times = [d.p50_us, d.p90_us, d.p99_us, d.p999_us, d.max_us].map(|us| micros(us as f64));
    times.iter().fold(format!("{:>11}", thousands(d.count)), |mut row, time| {
        // Writing to a string cannot fail.
        let _ = write!(row, "{time:>11}");
        row
    })
}

fn fanout(f: &mut Formatter<'_>, fanout: &Fanout) -> fmt::Result {
    writeln!(
        f,
        "\n  fan-out of {} publications: {} receipts of {} due, {} lost, {} duplicates",
        thousands(fanout.publications),
        thousands(fanout.received),
        thousands(fanout.due),
        thousands(fanout.lost),
        thousands(fanout.duplicates),
    )?;
    let line = |spread: &Spread| {
        format!("median {:>9}   worst {:>9}", micros(spread.p50_us as f64), micros(spread.max_us as f64))
    };
    for (name, spread) in
        [("first", &fanout.first), ("median", &fanout.median), ("p99", &fanout.p99), ("last", &fanout.last)]
    {
        writeln!(f, "    to the {name:<7} client  {}", line(spread))?;
    }
    Ok(())
}

fn server(f: &mut Formatter<'_>, report: &Report, server: &Server) -> fmt::Result {
    writeln!(f, "\n  server ({} process(es))", server.to.processes_count)?;
    writeln!(f, "    memory before {}, after all had gone {}", memory(server.before), memory(server.after))?;
    for step in &server.steps {
        writeln!(
            f,
            "    with {:>9} clients {:>9} resident, {:>9} anonymous",
            thousands(step.clients_count),
            bytes(step.rss_bytes as f64),
            bytes(step.anonymous_bytes as f64),
        )?;
    }
    for (name, text) in [
        ("bytes_per_stream", "resident memory per client"),
        ("anonymous_bytes_per_stream", "anonymous memory per client"),
        ("leak_bytes_per_cycle", "memory kept per cycle"),
    ] {
        if let Some(value) = report.metrics.get(name) {
            writeln!(f, "    {text:<32} {}", bytes(*value))?;
        }
    }
    for (name, text) in [
        ("cpu_us_per_keep_alive", "CPU per keep-alive"),
        ("cpu_us_per_request", "CPU per request"),
        ("cpu_us_per_receipt", "CPU per receipt"),
        ("cpu_us_per_cycle", "CPU per cycle"),
    ] {
        if let Some(value) = report.metrics.get(name) {
            writeln!(f, "    {text:<32} {}", micros(*value))?;
        }
    }
    writeln!(
        f,
        "    {:<32} {:.1} % of a processor",
        "CPU in the measured time",
        report.metrics.get("server_cpu_percent").unwrap_or(&0.0)
    )
}

fn memory(sample: crate::measure::process::Sample) -> String {
    bytes(sample.rss_bytes as f64)
}

fn counts(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f)?;
    if let Some(rate) = report.metrics.get("rate") {
        writeln!(f, "  {:<28}{rate:>12.1} per second", "throughput")?;
    }
    for (what, count) in report.counts.iter().filter(|(_, count)| **count > 0) {
        writeln!(f, "  {:<28}{:>12}", label(what), thousands(*count))?;
    }
    Ok(())
}

fn remarks(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    for (text, count) in &report.errors {
        writeln!(f, "  error: {text} (×{})", thousands(*count))?;
    }
    for warning in &report.warnings {
        writeln!(f, "  warning: {warning}")?;
    }
    match report.faults.as_slice() {
        [] => writeln!(f, "\n  no fault found"),
        faults => {
            writeln!(f)?;
            faults.iter().try_for_each(|fault| writeln!(f, "  FAULT: {fault}"))
        }
    }
}

/// The serialised name of a closed set's member, with spaces.
pub(crate) fn label(what: &impl serde::Serialize) -> String {
    name(what).replace('_', " ")
}

/// The serialised name of a closed set's member.
pub(crate) fn name(what: &impl serde::Serialize) -> String {
    match serde_json::to_value(what) {
        Ok(serde_json::Value::String(name)) => name,
        other => format!("{other:?}"),
    }
}
