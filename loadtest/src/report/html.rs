//! The report as one page that needs nothing else: no script, no font, no network.
//!
//! Everything that came from outside (command line, error texts) is escaped.

use std::fmt::Write;

use super::plot::{Format, Line, Plot};
use super::text::{Text, label};
use super::units::{bytes, digits, micros, thousands};
use super::{Distribution, Point, Report};
use crate::measure::tally::Timed;

const SERVER_MEMORY: &str = "Server memory";
const STYLE: &str = include_str!("report.css");

/// The page.
pub(crate) fn page(report: &Report) -> String {
    let title = format!("moorline-load {}", escape(&report.scenario));
    let sections = [header(report), verdict(report), tiles(report), plots(report), summary(report)].concat();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>\n{sections}</main></body></html>\n"
    )
}

fn header(report: &Report) -> String {
    format!(
        "<header><h1>{}</h1><p>{} clients, measured for {} s · {} · {} processors · version {}</p>\
         <pre class=\"command\">moorline-load {}</pre></header>\n",
        escape(&report.scenario),
        thousands(report.clients_wanted),
        digits(report.measured_ms as f64 / 1_000.0),
        escape(&report.host.kernel),
        report.host.cpus_count,
        escape(&report.version),
        escape(&report.command.join(" ")),
    )
}

fn verdict(report: &Report) -> String {
    let list = |class: &str, texts: &[String]| {
        texts.iter().fold(String::new(), |mut list, text| {
            // Writing to a string cannot fail.
            let _ = write!(list, "<li class=\"{class}\">{}</li>", escape(text));
            list
        })
    };
    let faults = match report.faults.as_slice() {
        [] => "<li class=\"good\">No fault found.</li>".to_owned(),
        faults => list("bad", faults),
    };
    format!("<ul class=\"verdict\">{faults}{}</ul>\n", list("warning", &report.warnings))
}

/// The figures one looks for first.
fn tiles(report: &Report) -> String {
    let shown: [(&str, &str, Format); 10] = [
        ("clients_up_at_end", "in place at the end", thousands_of),
        ("rate", "per second", digits),
        ("p50_us", "median", micros),
        ("p99_us", "99th percentile", micros),
        ("bytes_per_stream", "server memory per stream", bytes),
        ("cpu_us_per_keep_alive", "CPU per keep-alive", micros),
        ("cpu_us_per_request", "CPU per request", micros),
        ("leak_bytes_per_cycle", "memory kept per session", bytes),
        ("closes", "unexpected closes", thousands_of),
        ("errors", "errors", thousands_of),
    ];
    let main = report.main_latency.map(|what| label(&what)).unwrap_or_default();
    let tile = |(metric, text, format): (&str, &str, Format)| {
        let value = report.metrics.get(metric)?;
        let of = if matches!(metric, "p50_us" | "p99_us") { format!("{main}, ") } else { String::new() };
        Some(format!("<div class=\"tile\"><b>{}</b><span>{of}{text}</span></div>", format(*value)))
    };
    format!("<section class=\"tiles\">{}</section>\n", shown.into_iter().filter_map(tile).collect::<String>())
}

fn plots(report: &Report) -> String {
    let main =
        report.latencies.iter().filter(|(what, _)| !is_keep_alive(**what) && **what != Timed::GeneratorLag);
    let plots = [
        latency_plot("Latency by percentile", main),
        latency_plot(
            "Keep-alive lateness by percentile",
            report.latencies.iter().filter(|(what, _)| **what == Timed::KeepAliveLateness),
        ),
        over_time(report, "Clients in place", thousands_of, &[("in place", |p| p.up as f64)]),
        over_time(report, "Rate per second", digits, &[("per second", |p| p.done_per_second)]),
        over_time(
            report,
            "Latency over time (worst worker)",
            micros,
            &[
                ("p50", |p| p.p50_us as f64),
                ("p99", |p| p.p99_us as f64),
                ("generator's lag", |p| p.lag_us as f64),
            ],
        ),
        over_time(report, SERVER_MEMORY, bytes, &[("resident", |p| p.rss_bytes as f64)]),
        over_time(report, "Server CPU", |v| format!("{v:.0} %"), &[("of one processor", |p| p.cpu_percent)]),
        over_time(
            report,
            "Errors and unexpected closes",
            thousands_of,
            &[("errors", |p| p.errors as f64), ("closes", |p| p.closes as f64)],
        ),
    ];
    let has_server = report.server.is_some();
    let shown = plots.into_iter().filter(|plot| has_server || !plot.title.starts_with("Server"));
    format!("<section class=\"plots\">{}</section>\n", shown.map(|plot| plot.svg()).collect::<String>())
}

fn is_keep_alive(what: Timed) -> bool {
    matches!(what, Timed::KeepAliveLateness | Timed::KeepAliveSilence)
}

/// Percentiles at equal distances of nines, so that the tail has room.
fn latency_plot<'a>(title: &str, shown: impl Iterator<Item = (&'a Timed, &'a Distribution)>) -> Plot {
    let nines = |q: f64| -(1.0 - q).max(1e-9).log10();
    let line = |(what, distribution): (&Timed, &Distribution)| {
        // Beyond one value in the count the curve would only repeat the maximum.
        let reach = (distribution.count as f64).log10() + 0.3;
        let points = distribution.curve.iter().map(|(q, micros)| (nines(*q), *micros as f64));
        Line { name: label(what), points: points.take_while(|(x, _)| *x <= reach).collect() }
    };
    let ticks =
        [(0.0, "0"), (0.301, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99"), (5.0, "99.999")];
    let lines: Vec<Line> = shown.map(line).collect();
    let reach =
        lines.iter().filter_map(|line| line.points.last()).fold(0.0, |reach: f64, point| reach.max(point.0));
    Plot {
        title: title.to_owned(),
        x_label: "percentile",
        x_ticks: ticks
            .into_iter()
            .filter(|(x, _)| *x <= reach)
            .map(|(x, text)| (x, text.to_owned()))
            .collect(),
        y_unit: 1.0,
        y_format: micros,
        lines,
    }
}

type Figure = fn(&Point) -> f64;

fn over_time(report: &Report, title: &str, y_format: Format, figures: &[(&str, Figure)]) -> Plot {
    let line = |(name, figure): &(&str, Figure)| Line {
        name: (*name).to_owned(),
        points: report.series.iter().map(|point| (point.ms as f64 / 1_000.0, figure(point))).collect(),
    };
    Plot {
        title: title.to_owned(),
        x_label: "seconds",
        x_ticks: Vec::new(),
        y_unit: if title == SERVER_MEMORY { 1_048_576.0 } else { 1.0 },
        y_format,
        lines: figures.iter().map(line).collect(),
    }
}

fn summary(report: &Report) -> String {
    format!(
        "<details open><summary>All figures</summary><pre>{}</pre></details>\n",
        escape(&Text(report).to_string())
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of a report")]
fn thousands_of(value: f64) -> String {
    thousands(value as u64)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_from_outside_is_escaped() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
