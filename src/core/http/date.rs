//! The text of the `Date` field (RFC 9110 section 6.6.1).
//!
//! Never reads a clock: the caller passes the second and keeps the text while it lasts. 29 bytes, no
//! allocation.

use std::{
    fmt,
    io::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// The last second the format can express: 9999-12-31 23:59:59 UTC.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// A date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DateText([u8; DateText::LEN]);

impl DateText {
    /// Every date has this many bytes.
    pub const LEN: usize = 29;

    /// The date of `unix_s` seconds since the epoch; seconds beyond the year 9999 are shown as its last.
    pub fn from_unix_s(unix_s: u64) -> Self {
        let mut text = [b' '; DateText::LEN];
        let instant = UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_S_MAX));
        write!(&mut text[..], "{}", httpdate::HttpDate::from(instant))
            .expect("the format has a fixed width of 29 bytes");
        DateText(text)
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let text = |unix_s| String::from_utf8_lossy(DateText::from_unix_s(unix_s).as_bytes()).into_owned();
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(UNIX_S_MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(text(u64::MAX), text(UNIX_S_MAX));
    }
}
