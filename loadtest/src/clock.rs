//! One clock for every process of a run.
//!
//! Owns the reading of `CLOCK_MONOTONIC`, which all processes of a machine share: the parent names
//! moments ("send the first request at …") and every worker means the same by them. No other module
//! reads a clock. 8 bytes per moment.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A point on the machine's monotonic clock, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Reads the clock (about 30 ns, no system call).
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// The moment that many nanoseconds later.
    pub(crate) fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// The moment that many milliseconds later.
    pub(crate) fn plus_ms(self, ms: u64) -> Self {
        self.plus_ns(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds from `earlier` to here; 0 when `earlier` is not earlier.
    pub(crate) fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole microseconds from `earlier` to here.
    pub(crate) fn us_since(self, earlier: Self) -> u64 {
        self.ns_since(earlier) / 1_000
    }

    /// Whole milliseconds from `earlier` to here.
    pub(crate) fn ms_since(self, earlier: Self) -> u64 {
        self.ns_since(earlier) / 1_000_000
    }
}

/// Paces sends at a fixed rate, whatever the answers do: the *open loop*.
///
/// Every send has an intended moment. One that is sent late keeps it, so that waiting caused by a
/// slow server is part of the latency and not silently left out.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Moment,
    interval_ns: f64,
    sent_count: u64,
}

impl Pace {
    /// From `start` on, `per_second` sends a second; a rate of zero or less means never.
    pub(crate) fn new(start: Moment, per_second: f64) -> Self {
        let interval_ns = if per_second > 0.0 { 1e9 / per_second } else { f64::INFINITY };
        Self { start, interval_ns, sent_count: 0 }
    }

    /// When the next send is meant to happen; `None` when the pace is never.
    pub(crate) fn next(&self) -> Option<Moment> {
        let offset_ns = self.interval_ns * self.sent_count as f64;
        // A float beyond the range saturates, and a run of 500 years is not a use.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        self.interval_ns.is_finite().then(|| self.start.plus_ns(offset_ns as u64))
    }

    /// Takes the next send if it is due at `now`, and says when it was meant to happen.
    pub(crate) fn take(&mut self, now: Moment) -> Option<Moment> {
        let intended = self.next().filter(|due| *due <= now)?;
        self.sent_count += 1;
        Some(intended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_pace_catches_up_and_keeps_the_intended_moments() {
        let start = Moment::default().plus_ms(1_000);
        let mut pace = Pace::new(start, 1_000.0);
        assert_eq!(pace.take(Moment::default()), None);
        let late = start.plus_ms(3);
        let taken: Vec<_> = std::iter::from_fn(|| pace.take(late)).collect();
        assert_eq!(taken, [0, 1, 2, 3].map(|ms| start.plus_ms(ms)));
    }

    #[test]
    fn a_pace_does_not_drift() {
        let mut pace = Pace::new(Moment::default(), 3.0);
        for _ in 0..3_000 {
            assert!(pace.take(Moment::default().plus_ms(2_000_000)).is_some());
        }
        assert_eq!(pace.next(), Some(Moment::default().plus_ms(1_000_000)));
    }

    #[test]
    fn a_rate_of_nothing_never_sends() {
        assert_eq!(Pace::new(Moment::default(), 0.0).take(Moment::now()), None);
    }
}
