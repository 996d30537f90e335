//! What a child says to our log, and how much of it.
//!
//! Owns a bucket of lines per child: a child that writes more than [`CHILD_LOG_LINES_PER_S`] is cut short, and how much was
//! left out is said with the next line that gets through. Nothing here is a secret of ours, but a child may write
//! anything: control characters are replaced.

use crate::limits::CHILD_LOG_LINES_PER_S;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Voice {
    /// Lines that may still be written at `at`.
    lines: f64,
    at: Instant,
    left_out: u64,
}

impl Voice {
    pub(super) fn new(now: Instant) -> Self {
        Voice { lines: f64::from(CHILD_LOG_LINES_PER_S), at: now, left_out: 0 }
    }

    /// Whether a line may be written now, and how many were left out before it.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        let per_s = f64::from(CHILD_LOG_LINES_PER_S);
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * per_s;
        self.lines = (self.lines + gained).min(per_s);
        self.at = now;
        if self.lines < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.lines -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Text of a child for a log: on one line, without control characters, at most `bytes_max` long.
pub(super) fn printable(bytes: &[u8], bytes_max: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]);
    text.chars().map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flood_is_cut_short_and_counted() {
        let start = Instant::now();
        let mut voice = Voice::new(start);
        let admitted = (0..1000).filter(|_| voice.admit(start).is_some()).count();
        assert_eq!(admitted, CHILD_LOG_LINES_PER_S as usize);
        let later = start + Duration::from_millis(100);
        assert_eq!(voice.admit(later), Some(1000 - u64::from(CHILD_LOG_LINES_PER_S)));
        assert_eq!(voice.admit(later), Some(0));
    }

    #[test]
    fn silence_is_not_saved_up() {
        let start = Instant::now();
        let mut voice = Voice::new(start);
        let later = start + Duration::from_secs(3600);
        let admitted = (0..1000).filter(|_| voice.admit(later).is_some()).count();
        assert_eq!(admitted, CHILD_LOG_LINES_PER_S as usize);
    }

    #[test]
    fn a_child_cannot_forge_our_log() {
        assert_eq!(printable(b"a\x1b[31m\rb\tc\xff", 100), "a\u{fffd}[31m\u{fffd}b\tc\u{fffd}");
        assert_eq!(printable(b"abcdef", 3), "abc");
    }
}
