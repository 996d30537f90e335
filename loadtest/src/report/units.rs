//! Numbers as people read and write them: durations, bytes, thousands.

use anyhow::{Context, Result, bail};

/// Microseconds with a fitting unit and three digits.
pub(crate) fn micros(micros: f64) -> String {
    match micros {
        m if m < 1_000.0 => format!("{} µs", digits(m)),
        m if m < 1_000_000.0 => format!("{} ms", digits(m / 1_000.0)),
        m => format!("{} s", digits(m / 1_000_000.0)),
    }
}

/// Bytes with a fitting unit and three digits.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes.abs() {
        b if b < 10_000.0 => format!("{bytes:.0} B"),
        b if b < 1_024.0 * 1_024.0 => format!("{} KB", digits(bytes / 1_024.0)),
        b if b < 1_024.0 * 1_024.0 * 1_024.0 => format!("{} MB", digits(bytes / 1_048_576.0)),
        _ => format!("{} GB", digits(bytes / 1_073_741_824.0)),
    }
}

/// A whole number with its thousands set apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits, without an exponent.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Reads a duration such as `500ms`, `10s`, `2m`, `1h`, as milliseconds; a bare number is seconds.
///
/// # Errors
/// Anything else, and negative ones.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => bail!("{text:?}: a duration is a number with ms, s, m or h"),
    };
    let value: f64 = number.parse().with_context(|| format!("{text:?} is not a duration"))?;
    if !(0.0..1e12).contains(&(value * scale)) {
        bail!("{text:?} is not a duration");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "was checked to be in range")]
    Ok((value * scale) as u64)
}

/// Splits `12.5ms` into number and unit.
pub(crate) fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '_'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [micros(0.0), micros(999.0), micros(1_500.0), micros(12_345_678.0)],
            ["0 µs", "999 µs", "1.50 ms", "12.3 s"]
        );
        assert_eq!(
            [bytes(600.0), bytes(39_000.0), bytes(-2.0 * 1_048_576.0)],
            ["600 B", "38.1 KB", "-2.00 MB"]
        );
        assert_eq!(
            [thousands(0), thousands(999), thousands(1_000), thousands(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn durations() {
        for (text, ms) in
            [("500ms", 500), ("1.5s", 1_500), ("10", 10_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration_ms(text).unwrap(), ms);
        }
        for text in ["", "s", "-1s", "5 parsecs", "1e99"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }
}
