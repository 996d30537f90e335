//! Two reports side by side.
//!
//! Owns which figures are worth a look and which direction is better. A ratio is the second report to
//! the first; single runs on one machine differ by a third without any reason, so only more than that is marked.

use std::fmt::{self, Display, Formatter};

use super::Report;
use super::units::{bytes, digits, micros};

/// Differences up to this ratio are noise for single runs.
const NOISE_RATIO: f64 = 1.3;

/// A comparison.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    /// What is compared with.
    pub(crate) base: &'a Report,
    /// What is compared.
    pub(crate) other: &'a Report,
    /// Whether all figures are shown.
    pub(crate) is_full: bool,
}

/// Figures shown by default; those that end in `*` stand for all that begin so.
const WORTH_A_LOOK: [&str; 22] = [
    "rate",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "errors",
    "closes",
    "faults",
    "lost",
    "duplicates",
    "clients_up_at_end",
    "handshake_p99_us",
    "stream_open_p99_us",
    "delivery_*",
    "reconnect_*",
    "keep_alive_lateness_p99_us",
    "bytes_per_stream",
    "anonymous_bytes_per_stream",
    "leak_bytes_per_cycle",
    "cpu_us_per_*",
    "gets_again",
    "generator_lag_p99_us",
];

/// Figures of which more is better; all others are costs or losses.
const MORE_IS_BETTER: [&str; 5] = ["rate", "clients_up_at_end", "reconnected", "requests_ok", "receipts"];

impl Display for Comparison<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (base, other) = (self.base, self.other);
        if base.scenario != other.scenario {
            writeln!(f, "note: different scenarios, {} and {}", base.scenario, other.scenario)?;
        }
        if base.clients_wanted != other.clients_wanted {
            writeln!(
                f,
                "note: different numbers of clients, {} and {}",
                base.clients_wanted, other.clients_wanted
            )?;
        }
        for (name, report) in [("A", base), ("B", other)].iter().filter(|(_, report)| !report.is_complete) {
            writeln!(f, "note: {name} is incomplete ({}): a worker crashed", report.scenario)?;
        }
        writeln!(f, "{:<32}{:>14}{:>14}{:>9}", "", "A", "B", "B/A")?;
        for Row { name, a, b } in self.rows() {
            writeln!(
                f,
                "{name:<32}{:>14}{:>14}{:>9}{}",
                show(name, a),
                show(name, b),
                ratio(a, b),
                mark(name, a, b)
            )?;
        }
        Ok(())
    }
}

/// One figure of both reports; a report need not have it.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    name: &'a str,
    a: Option<f64>,
    b: Option<f64>,
}

impl Comparison<'_> {
    fn rows(&self) -> Vec<Row<'_>> {
        let (a, b) = (&self.base.metrics, &self.other.metrics);
        let mut names: Vec<&str> = a.keys().chain(b.keys()).map(String::as_str).collect();
        names.sort_unstable_by_key(|name| (rank(name), *name));
        names.dedup();
        let shown = names.into_iter().filter(|name| self.is_full || rank(name) < WORTH_A_LOOK.len());
        shown.map(|name| Row { name, a: a.get(name).copied(), b: b.get(name).copied() }).collect()
    }
}

fn rank(name: &str) -> usize {
    let fits = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    };
    WORTH_A_LOOK.iter().position(fits).unwrap_or(WORTH_A_LOOK.len())
}

fn show(name: &str, value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if name.ends_with("_us") || name.starts_with("cpu_us_") => micros(value),
        Some(value) if name.contains("bytes") => bytes(value),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => digits(value),
    }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a == b => "1.00".to_owned(),
        (Some(a), Some(b)) if a > 0.0 && b >= 0.0 => format!("{:.2}", b / a),
        _ => "-".to_owned(),
    }
}

fn mark(name: &str, a: Option<f64>, b: Option<f64>) -> &'static str {
    let (Some(a), Some(b)) = (a, b) else { return "" };
    let grows = b > a * NOISE_RATIO;
    let shrinks = b * NOISE_RATIO < a;
    match (MORE_IS_BETTER.contains(&name), grows, shrinks) {
        (_, false, false) => "",
        (true, true, _) | (false, _, true) => "  better",
        (true, _, true) | (false, true, _) => "  worse",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_and_worse_know_their_direction() {
        assert_eq!(mark("rate", Some(100.0), Some(200.0)), "  better");
        assert_eq!(mark("p99_us", Some(100.0), Some(200.0)), "  worse");
        assert_eq!(mark("p99_us", Some(100.0), Some(120.0)), "");
        assert_eq!(mark("closes", Some(0.0), Some(1.0)), "  worse");
        assert_eq!(ratio(Some(0.0), Some(1.0)), "-");
    }

    #[test]
    fn patterns_of_names() {
        assert!(rank("cpu_us_per_request") < WORTH_A_LOOK.len());
        assert_eq!(rank("handshake_p50_us"), WORTH_A_LOOK.len());
    }
}
