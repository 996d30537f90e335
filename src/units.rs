//! Durations, sizes and parts as people write them: `15s`, `500ms`, `64KiB`, `0.01`.
//!
//! Owns three notations and nothing else. What is displayed parses back to the same value, which is what lets
//! `--print-config` and the defaults in `--help` be typed again.

use std::{fmt, str::FromStr};
use thiserror::Error;

/// A duration in whole milliseconds, at most [`Millis::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

/// A part of a whole, in millionths: 0 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(pub u32);

/// Why a duration or size cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum UnitError {
    #[error("expected a whole number with a unit, such as 500ms, 15s, 2m or 1h, or a plain 0")]
    Duration,
    #[error("longer than 365 days")]
    DurationTooLong,
    #[error("expected a whole number of bytes, or one with a unit, such as 64KiB, 4MiB or 1GiB")]
    Size,
    #[error("more bytes than this machine can address")]
    SizeTooLarge,
    #[error("expected a number from 0 to 1, such as 0.01, with at most six digits after the point")]
    Fraction,
}

impl Millis {
    /// 365 days.
    pub const MAX: Millis = Millis(365 * 24 * 3_600_000);
    /// Largest first, so that display finds the shortest form.
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
}

impl ByteSize {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
}

impl FromStr for Millis {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (digits, unit) = split(text).ok_or(UnitError::Duration)?;
        let scale = match unit {
            "" if digits.bytes().all(|digit| digit == b'0') => 1,
            _ => scale_of(unit, &Millis::UNITS).ok_or(UnitError::Duration)?,
        };
        let count: u64 = digits.parse().map_err(|_| UnitError::DurationTooLong)?;
        let millis = count.checked_mul(scale).map(Millis).filter(|millis| *millis <= Millis::MAX);
        millis.ok_or(UnitError::DurationTooLong)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (digits, unit) = split(text).ok_or(UnitError::Size)?;
        let scale = match unit {
            "" | "B" => 1,
            _ => scale_of(unit, &ByteSize::UNITS).ok_or(UnitError::Size)?,
        };
        let count: usize = digits.parse().map_err(|_| UnitError::SizeTooLarge)?;
        count.checked_mul(scale).map(ByteSize).ok_or(UnitError::SizeTooLarge)
    }
}

impl FromStr for Fraction {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 6 {
            return Err(UnitError::Fraction);
        }
        let millionths: u32 = format!("{part:0<6}").parse().map_err(|_| UnitError::Fraction)?;
        let whole: u32 = whole.parse().map_err(|_| UnitError::Fraction)?;
        let total = whole.checked_mul(1_000_000).and_then(|whole| whole.checked_add(millionths));
        total.filter(|total| *total <= 1_000_000).map(Fraction).ok_or(UnitError::Fraction)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Millis::UNITS.iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => f.write_str("0"),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ByteSize::UNITS.iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Digits, at least one, and what follows them.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn scale_of<T: Copy>(unit: &str, units: &[(&str, T)]) -> Option<T> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_units() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("15s", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("8760h", Millis::MAX.0),
        ] {
            assert_eq!(text.parse(), Ok(Millis(ms)), "{text}");
        }
        for text in ["", "s", "15", "1.5s", "-1s", "15 s", "15S", "1d", "1h30m", "+1s"] {
            assert_eq!(text.parse::<Millis>(), Err(UnitError::Duration), "{text}");
        }
        for text in ["8761h", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(text.parse::<Millis>(), Err(UnitError::DurationTooLong), "{text}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        for (text, bytes) in
            [("0", 0), ("1500", 1500), ("7B", 7), ("64KiB", 65_536), ("4MiB", 4 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "KiB", "64KB", "64kib", "64 KiB", "1.5MiB", "-1"] {
            assert_eq!(text.parse::<ByteSize>(), Err(UnitError::Size), "{text}");
        }
        for text in ["99999999999999999999", "18446744073709551615KiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(UnitError::SizeTooLarge), "{text}");
        }
    }

    #[test]
    fn fractions_are_parts_of_one() {
        for (text, ppm) in [("0", 0), ("1", 1_000_000), ("0.01", 10_000), ("0.000001", 1), ("1.0", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(Fraction(ppm)), "{text}");
        }
        for text in
            ["", ".", "1.", ".5", "1.1", "2", "-0.1", "+1", "0.0000001", "1e-3", "4295", "99999999999"]
        {
            assert_eq!(text.parse::<Fraction>(), Err(UnitError::Fraction), "{text}");
        }
        assert_eq!(
            [0, 1, 10_000, 1_000_000].map(|ppm| Fraction(ppm).to_string()),
            ["0", "0.000001", "0.01", "1"]
        );
    }

    #[test]
    fn the_shortest_form_is_shown() {
        let shown = [0, 1, 1_500, 15_000, 60_000, 90_000, 7_200_000].map(|ms| Millis(ms).to_string());
        assert_eq!(shown, ["0", "1ms", "1500ms", "15s", "1m", "90s", "2h"]);
        let shown = [0, 1, 1_024, 1_500, 3 << 20, 1 << 30].map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(shown, ["0", "1", "1KiB", "1500", "3MiB", "1GiB"]);
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_typed(ms in 0..=Millis::MAX.0, bytes: usize, part in 0..=1_000_000u32) {
            prop_assert_eq!(Fraction(part).to_string().parse(), Ok(Fraction(part)));
            prop_assert_eq!(Millis(ms).to_string().parse(), Ok(Millis(ms)));
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
