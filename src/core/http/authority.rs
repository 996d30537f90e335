//! The authority of a request: `Host`, or the authority of an absolute-form target (RFC 9110 section 7.2).
//!
//! Parses syntax and recognises loopback names; which names are allowed is [`policy`](super::policy)'s.
//! Borrows its text, allocates nothing, linear in its length.

use super::fields::ByteSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// `uri-host [ ":" port ]` (RFC 3986 section 3.2.2), without user information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host as written; an IPv6 address keeps its brackets. Empty for an empty `Host` field.
    pub host: &'a str,
    /// The port if one is written and not empty.
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Parses `text`; `None` if it is no authority. An empty text is one without a host, as an empty `Host`
    /// field is legal.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (host, port) = split_port(text)?;
        let legal = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None if host.is_empty() => text.is_empty(),
            None => is_registered_name(host),
        };
        let port = parse_port(port)?;
        legal.then_some(Authority { host, port })
    }

    /// The host without the root dot: `localhost.` is `localhost`.
    pub fn host_name(&self) -> &'a str {
        self.host.strip_suffix('.').unwrap_or(self.host)
    }

    /// Whether the host can only mean this machine: `localhost`, `127.0.0.0/8` or `::1`, whatever the port.
    pub fn is_loopback(&self) -> bool {
        let name = self.host_name();
        if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback());
        }
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Splits at the colon before the port, which is never one of those inside brackets.
fn split_port(text: &str) -> Option<(&str, &str)> {
    let place_of = |wanted| text.bytes().position(|byte| byte == wanted);
    let host_end =
        if text.starts_with('[') { place_of(b']')? + 1 } else { place_of(b':').unwrap_or(text.len()) };
    let (host, rest) = text.split_at(host_end);
    match rest {
        "" => Some((host, "")),
        _ => Some((host, rest.strip_prefix(':')?)),
    }
}

/// `port = *DIGIT`; the empty one means the default.
fn parse_port(digits: &str) -> Option<Option<u16>> {
    if digits.is_empty() {
        return Some(None);
    }
    let numeric = digits.bytes().all(|byte| byte.is_ascii_digit());
    numeric.then(|| digits.parse().ok())?.map(Some)
}

/// `reg-name` (RFC 3986): unreserved, percent-encoded, or sub-delimiter characters. IPv4 addresses look
/// the same.
fn is_registered_name(host: &str) -> bool {
    static NAME: ByteSet = ByteSet::alphanumeric_and(b"-._~%!$&'()*+,;=");
    host.bytes().all(|byte| NAME.contains(byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let parsed = |text: &'static str| Authority::parse(text.as_bytes()).map(|it| (it.host, it.port));
        assert_eq!(parsed("a.example"), Some(("a.example", None)));
        assert_eq!(parsed("a.example:8080"), Some(("a.example", Some(8080))));
        assert_eq!(parsed("a.example:"), Some(("a.example", None)));
        assert_eq!(parsed("[::1]:80"), Some(("[::1]", Some(80))));
        assert_eq!(parsed(""), Some(("", None)));
        for bad in [
            "a b",
            "u@a",
            "a:b",
            "a:1:2",
            "a:65536",
            "a:+1",
            "[::1",
            "[::1]x",
            "[g]",
            "::1",
            "a/b",
            ":80",
            "a?b",
            "a\\b",
            "a\"b",
            "[fe80::1%eth0]",
            "a#",
            "ä",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn loopback_names() {
        let loopback = |text: &str| Authority::parse(text.as_bytes()).unwrap().is_loopback();
        for name in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "LocalHost.:1",
            "127.0.0.1",
            "127.9.8.7:1",
            "[::1]",
            "[::1]:9",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "127.0.0.1.",
        ] {
            assert!(loopback(name), "{name}");
        }
        for name in [
            "",
            "localhost.evil.example",
            "evil-localhost",
            "localhost..",
            "128.0.0.1",
            "127.1",
            "0x7f.1",
            "2130706433",
            "127.0.0.1.nip.io",
            "[::2]",
            "0.0.0.0",
            "xlocalhost",
        ] {
            assert!(!loopback(name), "{name}");
        }
    }
}
