//! Request heads.
//!
//! Rules: the verdict does not depend on how the bytes were cut; a head ends with an empty line and within its bound;
//! framing is what a naive reading of the fields says, or the head is refused; a host that is let through is a name of this
//! machine; a refusal is one well-formed reply into which nothing of the request can break.

use bytes::BytesMut;
use moorline::{
    core::http::{
        Authority, Binding, DateText, Exchange, Framing, Head, HeadLimits, Method, Parsed, Persistence,
        Policy, Refusal, Target, Version, head,
    },
    limits::{HEAD_BYTES_MAX, LEADING_EMPTY_LINES_MAX},
};

/// Judges any bytes as the begin of a connection.
pub fn check(bytes: &[u8]) {
    let whole = head::parse(bytes, &HeadLimits::default());
    check_cuts(bytes, &whole);
    match whole {
        Ok(Parsed::Incomplete) => {
            assert!(
                bytes.len() <= HEAD_BYTES_MAX + 2 * LEADING_EMPTY_LINES_MAX,
                "an endless head is waited for"
            );
        }
        Ok(Parsed::Complete { head, consumed }) => {
            check_head(&head, &bytes[..consumed]);
            check_policy(&head, &bytes[..consumed]);
        }
        Err(refusal) => {
            assert_eq!(refusal.persistence, Persistence::Close, "what follows a refused head is no request");
            check_refusal(&refusal, None);
        }
    }
}

/// Heads that reach deep.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = super::corpus();
    seeds.extend([
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: abcdef-l1-2\r\n\r\n".to_vec(),
        b"\r\nPOST http://127.0.0.1:8080/mcp?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\nOrigin: http://localhost:6274\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}".to_vec(),
        b"OPTIONS * HTTP/1.1\r\nHost: localhost.\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: mcp-param-a, authorization\r\n\r\n".to_vec(),
        b"DELETE /mcp HTTP/1.0\r\nConnection: keep-alive, close\r\nMCP-Protocol-Version: 2025-06-18\r\nMcp-Session-Id: 0000000000\r\n\r\n".to_vec(),
    ]);
    seeds
}

/// Once a verdict is there, more bytes do not change it.
fn check_cuts(bytes: &[u8], whole: &Result<Parsed<'_>, Refusal>) {
    // Every cut of a short head, and some of a long one: parsing starts over with every read.
    let step = (bytes.len() / 32).max(1);
    for cut in (0..bytes.len()).step_by(step) {
        match head::parse(&bytes[..cut], &HeadLimits::default()) {
            Ok(Parsed::Incomplete) => {}
            verdict => {
                assert_eq!(&verdict, whole, "the verdict after {cut} bytes is not the last word");
                break;
            }
        }
    }
}

fn check_head(head: &Head<'_>, text: &[u8]) {
    assert!(text.len() <= HEAD_BYTES_MAX + 2 * LEADING_EMPTY_LINES_MAX, "longer than a head may be");
    assert!(text.ends_with(b"\r\n\r\n"), "a head ends with an empty line");
    let bare = text.iter().enumerate().any(|(at, &byte)| byte == b'\n' && text[at - 1] != b'\r');
    assert!(!bare && !text.contains(&0), "a bare line feed or NUL hides a line from other readers");
    let fields = naive_fields(text);
    let of = |name: &str| -> Vec<&str> {
        fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    };
    let (codings, lengths) = (of("transfer-encoding"), of("content-length"));
    match head.framing {
        Framing::Chunked => {
            assert!(codings.len() == 1 && codings[0].eq_ignore_ascii_case("chunked"), "{codings:?}");
            assert!(lengths.is_empty(), "two framings");
        }
        Framing::Length(length) => {
            assert!(codings.is_empty(), "two framings");
            assert!(
                !lengths.is_empty() && lengths.iter().all(|text| text.parse() == Ok(length)),
                "{lengths:?}"
            );
        }
        Framing::None => {
            assert!(codings.is_empty() && lengths.iter().all(|text| text.bytes().all(|b| b == b'0')));
        }
    }
    assert!(["host", "mcp-session-id", "origin"].iter().all(|name| of(name).len() <= 1), "two readings");
    assert_eq!(head.session_id.is_some(), of("mcp-session-id").len() == 1);
}

/// Names in lower case, values without white space around them.
fn naive_fields(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text).into_owned();
    let lines = text.trim_start_matches("\r\n").trim_end_matches("\r\n").split("\r\n").skip(1);
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').expect("a field has a colon");
            (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned())
        })
        .collect()
}

fn check_policy(head: &Head<'_>, text: &[u8]) {
    let policy = Policy::new::<&str>("/mcp", Binding::Loopback, &[], &[]).expect("a path is enough");
    match policy.check(head) {
        Ok(cors) => {
            assert!(is_this_machine(head.authority), "let through: {:?}", head.authority);
            if let Some(origin) = cors.origin() {
                assert!(!origin.contains(&b'\r') && !origin.contains(&b'\n'));
                check_refusal(&Refusal::not_found("/mcp"), Some(origin));
            }
        }
        Err(refusal) => check_refusal(&refusal, None),
    }
    if policy.locate(head.target).is_ok()
        && let Target::Path { .. } = head.target
    {
        assert!(text.windows(4).any(|window| window == b"/mcp"));
    }
    drop((head.admit_post().map_err(|refusal| check_refusal(&refusal, None)), head.admit_expectation()));
}

fn is_this_machine(authority: Option<Authority<'_>>) -> bool {
    // HTTP/1.0 without `Host` is nobody's web page.
    let Some(authority) = authority else { return true };
    let name = authority.host.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let v4 = name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    let inner = name.trim_start_matches('[').trim_end_matches(']');
    let v6 = inner.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback());
    name == "localhost" || v4 || v6
}

/// A refusal is exactly one reply.
fn check_refusal(refusal: &Refusal, cors: Option<&[u8]>) {
    let date = DateText::from_unix_s(0);
    let exchange = Exchange { version: Version::Http11, persistence: Persistence::Keep, cors, date: &date };
    let mut out = BytesMut::new();
    refusal.write(Method::Post, exchange, &mut out);
    let end = out.windows(4).position(|window| window == b"\r\n\r\n").expect("a reply has a head") + 4;
    let head = std::str::from_utf8(&out[..end]).expect("our heads are ASCII");
    let length =
        head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("it has a length");
    assert_eq!(length.parse(), Ok(out.len() - end), "nothing follows the body");
    serde_json::from_slice::<serde_json::Value>(&out[end..]).expect("a refusal is JSON");
}
