//! Latencies in microseconds, as HDR histograms that travel between processes.
//!
//! Owns range and precision: 1 µs to 2 hours, three significant digits (two for the many small ones
//! of publications). Longer values are recorded as the maximum, never dropped. Up to 200 KB, grown
//! on demand.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest latency that is told apart, in microseconds.
const MICROS_MAX: u64 = 2 * 3_600 * 1_000_000;

/// A distribution of microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self::with_digits(3)
    }
}

impl Latencies {
    /// Two significant digits: a tenth of the memory.
    pub(crate) fn coarse() -> Self {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Self {
        let mut histogram = Histogram::new(digits).expect("1 to 5 digits are valid");
        histogram.auto(true);
        Self(histogram)
    }

    /// Records one value.
    pub(crate) fn record(&mut self, micros: u64) {
        self.record_n(micros, 1);
    }

    fn record_n(&mut self, micros: u64, count: u64) {
        self.0.record_n(micros.min(MICROS_MAX), count).expect("the histogram grows to its bound");
    }

    /// Adds all values of another distribution.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows to its bound");
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// How many values.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that the fraction `q` (0 to 1) of all values does not exceed, in microseconds; 0 when empty.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }

    /// The smallest value, in microseconds; 0 when empty.
    pub(crate) fn min(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// The largest value, in microseconds; 0 when empty.
    pub(crate) fn max(&self) -> u64 {
        self.0.max()
    }

    /// The mean, in microseconds; 0 when empty.
    pub(crate) fn mean(&self) -> f64 {
        self.0.mean()
    }
}

#[derive(Serialize, Deserialize)]
struct Travelling {
    digits: u8,
    pairs: Vec<(u64, u64)>,
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        Travelling { digits: self.0.sigfig(), pairs: pairs.collect() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let travelling = Travelling::deserialize(deserializer)?;
        let mut latencies = Self::with_digits(travelling.digits.clamp(1, 5));
        for (micros, count) in travelling.pairs {
            latencies.record_n(micros, count);
        }
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    fn close(found: u64, expected: u64) {
        assert!(found.abs_diff(expected) * 1_000 <= expected, "{found} is not {expected} within 0.1 %");
    }

    #[test]
    fn a_uniform_distribution() {
        let mut latencies = Latencies::default();
        (1..=100_000).for_each(|micros| latencies.record(micros));
        close(latencies.quantile(0.5), 50_000);
        close(latencies.quantile(0.99), 99_000);
        close(latencies.quantile(0.999), 99_900);
        close(latencies.max(), 100_000);
        assert_eq!((latencies.min(), latencies.count()), (1, 100_000));
        assert!((latencies.mean() - 50_000.5).abs() < 50.0);
    }

    #[test]
    fn an_exponential_distribution() {
        let mut latencies = Latencies::default();
        let count = 200_000;
        for rank in 0..count {
            let u = (f64::from(rank) + 0.5) / f64::from(count);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive and small"
            )]
            latencies.record((-(1.0 - u).ln() * 10_000.0) as u64);
        }
        for (q, expected) in [(0.5, 6_931), (0.9, 23_026), (0.99, 46_052), (0.999, 69_078)] {
            let found = latencies.quantile(q);
            assert!(found.abs_diff(expected) * 500 <= expected, "q {q}: {found} is not {expected}");
        }
    }

    #[test]
    fn one_outlier_in_a_thousand_is_seen_at_p9995_and_not_at_p99() {
        let mut latencies = Latencies::default();
        (0..9_990).for_each(|_| latencies.record(1_000));
        (0..10).for_each(|_| latencies.record(5_000_000));
        close(latencies.quantile(0.99), 1_000);
        close(latencies.quantile(0.9995), 5_000_000);
    }

    #[test]
    fn merging_and_travelling_lose_nothing() {
        let (mut a, mut b) = (Latencies::default(), Latencies::default());
        (0..1_000).for_each(|micros| a.record(micros * 7));
        b.record(u64::MAX);
        a.merge(&b);
        let travelled: Latencies = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!(travelled.count(), 1_001);
        for q in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(travelled.quantile(q), a.quantile(q));
        }
        close(travelled.max(), MICROS_MAX);
    }
}
