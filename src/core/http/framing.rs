//! Where a request's body ends (RFC 9112 section 6.3), decided from all its framing fields at once.
//!
//! Must never pick one of two readings: whatever another HTTP implementation might frame differently is
//! refused and closes the connection. That is the whole defence against request smuggling.

use super::{Refusal, Status, Version, fields};

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body (no framing field, or a length of zero).
    None,
    /// This many bytes, more than zero.
    Length(u64),
    /// Chunks until the one of size zero.
    Chunked,
}

/// The framing fields of one head, gathered in the order they come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingFields {
    length: Option<u64>,
    codings: Codings,
}

/// What the `Transfer-Encoding` list says so far.
#[derive(Clone, Copy, Debug, Default)]
enum Codings {
    #[default]
    Absent,
    Chunked,
    /// A coding of which this server knows nothing came last.
    Unknown,
    /// An unknown coding, then `chunked`.
    UnknownThenChunked,
    /// Something after `chunked`, or no coding where one must be.
    Broken,
}

impl FramingFields {
    /// Takes a `Content-Length`. Repeating the same number is harmless and accepted; anything else is not.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let length = decimal(value).ok_or_else(|| Refusal::malformed("Content-Length is not a number"))?;
        match self.length.replace(length) {
            Some(earlier) if earlier != length => Err(Refusal::malformed("Content-Length values differ")),
            _ => Ok(()),
        }
    }

    /// Takes a `Transfer-Encoding`, which continues the list of an earlier one.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) {
        for coding in value.split(|&byte| byte == b',') {
            self.codings = self.codings.then(fields::trim(coding));
        }
    }

    /// Decides. The order is that of the dangers: two framings, a coding that HTTP/1.0 does not have, an
    /// unknown end, and only then a coding that is merely not implemented.
    pub(crate) fn decide(self, version: Version) -> Result<Framing, Refusal> {
        match (self.codings, self.length) {
            (Codings::Absent, None | Some(0)) => Ok(Framing::None),
            (Codings::Absent, Some(length)) => Ok(Framing::Length(length)),
            (_, Some(_)) => {
                Err(Refusal::malformed("Content-Length and Transfer-Encoding exclude each other"))
            }
            _ if version == Version::Http10 => Err(Refusal::malformed("HTTP/1.0 has no Transfer-Encoding")),
            (Codings::Chunked, None) => Ok(Framing::Chunked),
            (Codings::Unknown | Codings::Broken, None) => {
                Err(Refusal::malformed("Transfer-Encoding must end with chunked, once"))
            }
            (Codings::UnknownThenChunked, None) => Err(Refusal::new(
                Status::NotImplemented,
                "the only transfer coding of this server is chunked",
            )
            .closing()),
        }
    }
}

impl Codings {
    /// The list with one more element. Empty elements are legal in lists, but not between cautious peers.
    fn then(self, coding: &[u8]) -> Codings {
        let chunked = coding.eq_ignore_ascii_case(b"chunked");
        match self {
            _ if coding.is_empty() => Codings::Broken,
            Codings::Absent if chunked => Codings::Chunked,
            Codings::Unknown if chunked => Codings::UnknownThenChunked,
            Codings::Absent | Codings::Unknown => Codings::Unknown,
            Codings::Chunked | Codings::UnknownThenChunked | Codings::Broken => Codings::Broken,
        }
    }
}

/// `1*DIGIT` within 64 bits: no sign, no space, no list.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The framing of these fields, or the status of the refusal, which must close.
    fn decide(version: Version, fields: &[(&str, &str)]) -> Result<Framing, u16> {
        let mut gathered = FramingFields::default();
        let taken = fields.iter().try_for_each(|(name, value)| match *name {
            "cl" => gathered.content_length(value.as_bytes()),
            _ => {
                gathered.transfer_encoding(value.as_bytes());
                Ok(())
            }
        });
        taken.and_then(|()| gathered.decide(version)).map_err(|refusal| {
            assert_eq!(refusal.persistence, super::super::Persistence::Close, "{refusal:?}");
            refusal.status.code()
        })
    }

    #[test]
    fn one_framing_or_none() {
        let http11 = |fields: &[(&str, &str)]| decide(Version::Http11, fields);
        assert_eq!(http11(&[]), Ok(Framing::None));
        assert_eq!(http11(&[("cl", "0")]), Ok(Framing::None));
        assert_eq!(http11(&[("cl", "42")]), Ok(Framing::Length(42)));
        assert_eq!(http11(&[("cl", "042"), ("cl", "42")]), Ok(Framing::Length(42)));
        assert_eq!(http11(&[("cl", "18446744073709551615")]), Ok(Framing::Length(u64::MAX)));
        assert_eq!(http11(&[("te", "chunked")]), Ok(Framing::Chunked));
        assert_eq!(http11(&[("te", "CHUNKED")]), Ok(Framing::Chunked));
    }

    #[test]
    fn lengths_that_are_not() {
        for bad in
            ["", "+5", "-5", "5 5", "5,5", "5, 5", "0x5", "5.0", "٥", "18446744073709551616", "5;", "five"]
        {
            assert_eq!(decide(Version::Http11, &[("cl", bad)]), Err(400), "{bad}");
        }
        assert_eq!(decide(Version::Http11, &[("cl", "5"), ("cl", "6")]), Err(400));
        assert_eq!(decide(Version::Http11, &[("cl", "0"), ("cl", "6")]), Err(400));
    }

    #[test]
    fn codings_that_are_not() {
        let http11 = |fields: &[(&str, &str)]| decide(Version::Http11, fields);
        for bad in [
            "",
            "identity",
            "gzip",
            "xchunked",
            "chunked, gzip",
            "chunked, chunked",
            "chunked,",
            ", chunked",
            "chunked;q=1",
            "\"chunked\"",
            "chunked chunked",
            "chun ked",
        ] {
            assert_eq!(http11(&[("te", bad)]), Err(400), "{bad}");
        }
        for unknown in ["gzip, chunked", "identity, chunked", "x, y,\tchunked"] {
            assert_eq!(http11(&[("te", unknown)]), Err(501), "{unknown}");
        }
        assert_eq!(http11(&[("te", "gzip"), ("te", "chunked")]), Err(501));
        assert_eq!(http11(&[("te", "chunked"), ("te", "identity")]), Err(400));
        assert_eq!(http11(&[("te", "chunked"), ("te", "chunked")]), Err(400));
    }

    #[test]
    fn two_framings_are_refused_in_either_order() {
        assert_eq!(decide(Version::Http11, &[("cl", "5"), ("te", "chunked")]), Err(400));
        assert_eq!(decide(Version::Http11, &[("te", "chunked"), ("cl", "5")]), Err(400));
        assert_eq!(decide(Version::Http11, &[("te", "chunked"), ("cl", "0")]), Err(400));
        assert_eq!(decide(Version::Http11, &[("te", "gzip, chunked"), ("cl", "0")]), Err(400));
    }

    #[test]
    fn http_1_0_has_lengths_only() {
        assert_eq!(decide(Version::Http10, &[("cl", "7")]), Ok(Framing::Length(7)));
        assert_eq!(decide(Version::Http10, &[("te", "chunked")]), Err(400));
    }
}
