//! Conditions on a report's figures, for `--fail-if`.
//!
//! A condition names a metric, with or without the unit its name ends with (`p99` is `p99_us`), and compares it
//! with a value that may carry a unit. A metric the report does not have makes the condition hold: a
//! check that silently checks nothing is worse than one that fails.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

use super::units::split_unit;

/// A condition such as `p99>50ms`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    metric: String,
    relation: Relation,
    value: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    Unequal,
}

const RELATIONS: [(&str, Relation); 6] = [
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    (">", Relation::Above),
    ("<", Relation::Below),
];

/// What names of metrics end with, in the order they are tried behind a bare name.
const SUFFIXES: [&str; 5] = ["", "_us", "_bytes", "_ms", "_percent"];

impl Condition {
    /// Says why the condition holds, or nothing when it does not.
    pub(crate) fn check(&self, metrics: &BTreeMap<String, f64>) -> Option<String> {
        let Some((name, value)) = self.find(metrics) else {
            return Some(format!("{self}: the report has no figure named {:?}", self.metric));
        };
        self.relation.holds(value, self.value_for(name)).then(|| format!("{self}: {name} is {value:.1}"))
    }

    fn find<'a>(&self, metrics: &'a BTreeMap<String, f64>) -> Option<(&'a str, f64)> {
        SUFFIXES.iter().find_map(|suffix| {
            let (name, value) = metrics.get_key_value(&format!("{}{suffix}", self.metric))?;
            Some((name.as_str(), *value))
        })
    }

    /// The value in the metric's unit; times are kept in microseconds.
    fn value_for(&self, name: &str) -> f64 {
        if name.ends_with("_ms") && self.has_time_unit() { self.value / 1_000.0 } else { self.value }
    }

    fn has_time_unit(&self) -> bool {
        self.text.ends_with('s') || self.text.ends_with('m') || self.text.ends_with('h')
    }
}

impl Relation {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Above => left > right,
            Self::AtLeast => left >= right,
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Equal => (left - right).abs() < f64::EPSILON,
            Self::Unequal => (left - right).abs() >= f64::EPSILON,
        }
    }
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = RELATIONS.iter().find_map(|(sign, relation)| Some((text.split_once(sign)?, *relation)));
        let Some(((metric, value), relation)) = found else {
            bail!("{text:?} is not a condition such as 'p99>50ms' or 'closes>0'");
        };
        let metric = metric.trim().to_owned();
        if metric.is_empty() {
            bail!("{text:?} names no figure");
        }
        Ok(Self { metric, relation, value: parse_value(value)?, text: text.trim().to_owned() })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_value(text: &str) -> Result<f64> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" | "us" | "µs" | "B" | "%" => 1.0,
        "ms" => 1_000.0,
        "s" => 1_000_000.0,
        "m" => 60_000_000.0,
        "h" => 3_600_000_000.0,
        "KB" => 1_024.0,
        "MB" => 1_048_576.0,
        "GB" => 1_073_741_824.0,
        _ => bail!("{text:?}: units are us, ms, s, m, h, B, KB, MB, GB and %"),
    };
    let value: f64 = number.parse().with_context(|| format!("{text:?} is not a number"))?;
    Ok(value * scale)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    fn holds(text: &str) -> bool {
        let metrics =
            [("p99_us", 60_000.0), ("closes", 0.0), ("bytes_per_stream", 612.0), ("server_cpu_ms", 1_500.0)];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        text.parse::<Condition>().unwrap().check(&metrics).is_some()
    }

    #[test]
    fn units_and_relations() {
        for text in
            ["p99>50ms", "p99_us > 50000", "p99>=60ms", "closes==0", "bytes_per_stream>600B", "server_cpu<2s"]
        {
            assert!(holds(text), "{text}");
        }
        for text in
            ["p99>60ms", "p99<0.06s", "closes>0", "closes!=0", "bytes_per_stream>1KB", "server_cpu>2s"]
        {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn a_figure_that_is_not_there_fails_the_check() {
        assert!(holds("p98>1s"));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["p99", ">5", "p99>fast", "p99>5 parsecs"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
