//! Tests of the layer as a whole: rule tables, the hostile corpus, and properties of every way to cut input.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::{policy::PolicyError, *};
use crate::core::sse::Transfer;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

const BODY_BYTES_MAX: u64 = crate::limits::BODY_BYTES_MAX as u64;

fn parse(buf: &[u8]) -> Result<Parsed<'_>, Refusal> {
    head::parse(buf, &HeadLimits::default())
}

/// The head of a request that has to be fine, fed whole.
fn complete(text: &str) -> Head<'_> {
    match parse(text.as_bytes()).unwrap() {
        Parsed::Complete { head, consumed } if consumed == text.len() => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

/// The status of a head that has to be refused and close.
fn refused(text: &str) -> u16 {
    let refusal = parse(text.as_bytes()).unwrap_err();
    assert_eq!(refusal.persistence, Persistence::Close, "{text:?}");
    refusal.status.code()
}

/// A GET with these field lines.
fn get(fields: &str) -> String {
    format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

fn policy(binding: Binding, hosts: &[&str], origins: &[&str]) -> Policy {
    Policy::new("/mcp", binding, hosts, origins).unwrap()
}

// --- Heads --------------------------------------------------------------------------------------

#[test]
fn a_whole_post() {
    let text = "POST /mcp?a=b?c HTTP/1.1\r\nhOsT: localhost:8080\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nContent-Length: 2\r\nMcp-Session-Id: abc\r\n\
                MCP-Protocol-Version:2025-06-18\r\nAuthorization: Bearer x\r\nMcp-Method: \t ping\t \r\n\
                Mcp-Name: n\r\nX-Forwarded-Host: evil\r\nUpgrade: h2c\r\n\r\n";
    let head = complete(text);
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.target, Target::Path { path: "/mcp", query: Some("a=b?c") });
    assert_eq!(head.authority, Some(Authority { host: "localhost", port: Some(8080) }));
    assert_eq!(head.framing, Framing::Length(2));
    assert_eq!(head.persistence, Persistence::Keep);
    assert_eq!(head.session_id, Some(&b"abc"[..]));
    assert_eq!(head.protocol_version, Some(&b"2025-06-18"[..]));
    assert_eq!(head.authorization, Some(&b"Bearer x"[..]));
    assert_eq!(head.mcp_method, Some(&b"ping"[..]));
    assert_eq!(head.mcp_name, Some(&b"n"[..]));
    assert_eq!(head.admit_post(), Ok(Forms::Both));
}

#[test]
fn every_field_is_known_in_any_case() {
    for name in [
        "Host",
        "Content-Type",
        "Origin",
        "Authorization",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Last-Event-ID",
        "Access-Control-Request-Method",
        "Access-Control-Request-Headers",
    ] {
        // Known means: not to be repeated.
        for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
            assert_eq!(refused(&get(&format!("{name}: a\r\n{name}: a\r\n"))), 400, "{name}");
        }
    }
    assert_eq!(refused(&get("CONTENT-LENGTH: x\r\n")), 400);
    assert_eq!(refused(&get("transfer-encoding: x\r\n")), 400);
    let text = get("CONNECTION: close\r\nexpect: x\r\nACCEPT: x/y\r\ncontent-ENCODING: br\r\n");
    let head = complete(&text);
    assert_eq!((head.persistence, head.expect), (Persistence::Close, Expect::Unknown));
    assert_eq!((head.accept, head.content_encoding), (Accept::Neither, Coding::Unsupported));
}

#[test]
fn versions_and_persistence() {
    for (line, fields, expected) in [
        ("1.1", "", Persistence::Keep),
        ("1.1", "Connection: close\r\n", Persistence::Close),
        ("1.1", "Connection: x, CLOSE\r\n", Persistence::Close),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", Persistence::Close),
        ("1.1", "Connection: closed\r\n", Persistence::Keep),
        ("1.0", "", Persistence::Close),
        ("1.0", "Connection: Keep-Alive\r\n", Persistence::Keep),
        ("1.0", "Connection: keep-alive, close\r\n", Persistence::Close),
    ] {
        let text = format!("GET / HTTP/{line}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(complete(&text).persistence, expected, "{text:?}");
    }
    assert_eq!(complete("GET / HTTP/1.0\r\n\r\n").authority, None);
}

#[test]
fn targets() {
    let target = |method: &str, target: &str| {
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = complete(&text);
        let target = match head.target {
            Target::Path { path, query } => format!("{path} {}", query.unwrap_or("-")),
            Target::Asterisk => "*".to_owned(),
        };
        (target, head.authority.unwrap().host.to_owned())
    };
    let expect = |target: &str, host: &str| (target.to_owned(), host.to_owned());
    assert_eq!(target("GET", "/mcp"), expect("/mcp -", "a"));
    assert_eq!(target("GET", "//mcp?"), expect("//mcp ", "a"));
    assert_eq!(target("GET", "http://b:1/mcp?x"), expect("/mcp x", "b"));
    assert_eq!(target("GET", "HTTPS://[::1]"), expect("/ -", "[::1]"));
    assert_eq!(target("GET", "http://b?x"), expect("/ x", "b"));
    assert_eq!(target("OPTIONS", "*"), expect("*", "a"));
    assert_eq!(target("OPTIONS", "http://b"), expect("*", "b"));
}

#[test]
fn methods() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PUT", Method::Other),
        ("PATCH", Method::Other),
        ("TRACE", Method::Other),
    ] {
        assert_eq!(complete(&format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n")).method, method);
    }
}

#[test]
fn expectations() {
    let expect = |version: &str, value: &str| {
        complete(&format!("POST / HTTP/{version}\r\nHost: a\r\nExpect: {value}\r\n\r\n")).expect
    };
    assert_eq!(expect("1.1", "100-Continue"), Expect::Continue);
    assert_eq!(expect("1.1", ""), Expect::Nothing);
    assert_eq!(expect("1.1", "200-ok"), Expect::Unknown);
    assert_eq!(expect("1.1", "100-continue, x"), Expect::Unknown);
    assert_eq!(expect("1.0", "100-continue"), Expect::Nothing);
    assert_eq!(expect("1.0", "x"), Expect::Nothing);
}

#[test]
fn an_empty_cursor_is_none() {
    assert_eq!(complete(&get("Last-Event-ID:  \r\n")).last_event_id, None);
    assert_eq!(complete(&get("Last-Event-ID: x-l1-2\r\n")).last_event_id, Some(&b"x-l1-2"[..]));
    assert_eq!(refused(&get("Last-Event-ID:\r\nLast-Event-ID:\r\n")), 400);
}

#[test]
fn post_needs_json_and_an_acceptable_reply() {
    let admit = |fields: &str| {
        let text = format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        complete(&text).admit_post().map_err(|refusal| refusal.status.code())
    };
    let json = "Content-Type: application/json\r\n";
    assert_eq!(admit(json), Ok(Forms::Both));
    assert_eq!(admit(&format!("{json}Accept: application/json\r\n")), Ok(Forms::JsonOnly));
    assert_eq!(admit(&format!("{json}Accept: text/event-stream\r\n")), Ok(Forms::SseOnly));
    assert_eq!(admit(&format!("{json}Accept: text/html\r\n")), Err(406));
    assert_eq!(admit(&format!("{json}Content-Encoding: br\r\n")), Err(415));
    assert_eq!(admit(&format!("{json}Expect: x\r\n")), Err(417));
    assert_eq!(admit("Content-Type: text/plain\r\n"), Err(415));
    assert_eq!(admit(""), Err(415));
}

#[test]
fn get_needs_an_acceptable_stream_and_delete_needs_nothing() {
    for (fields, expected) in [
        ("", Ok(())),
        ("Accept: text/event-stream\r\n", Ok(())),
        ("Accept: */*\r\n", Ok(())),
        ("Accept: application/json\r\n", Err(406)),
    ] {
        let text = get(fields);
        assert_eq!(complete(&text).accept.stream().map_err(|refusal| refusal.status.code()), expected);
    }
    let delete = complete("DELETE /mcp HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((delete.framing, delete.accept), (Framing::None, Accept::Both));
}

#[test]
fn bounds_are_exact() {
    let line = "GET / HTTP/1.1\r\nHost: a\r\n";
    let padded = |bytes: usize| {
        let pad = bytes - line.len() - "X: \r\n\r\n".len();
        format!("{line}X: {}\r\n\r\n", "a".repeat(pad))
    };
    assert!(matches!(parse(padded(16 * 1024).as_bytes()), Ok(Parsed::Complete { consumed: 16384, .. })));
    assert_eq!(refused(&padded(16 * 1024 + 1)), 431);

    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(count - 1));
    complete(&fields(64));
    assert_eq!(refused(&fields(65)), 431);

    let target = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(bytes - 1));
    complete(&target(8192));
    assert_eq!(refused(&target(8193)), 414);

    let empty_lines = |count: usize| "\r\n".repeat(count) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    complete(&empty_lines(4));
    assert_eq!(refused(&empty_lines(5)), 400);
}

#[test]
fn what_is_wrong_is_refused_before_the_head_ends() {
    assert_eq!(refused("PRI * HTTP/2"), 505);
    assert_eq!(refused("\x16\x03\x01"), 400);
    assert_eq!(refused("GET / HTTP/1.1\n"), 400);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost :"), 400);
    assert_eq!(refused(&format!("GET /{}", "a".repeat(8192))), 414);
    assert_eq!(refused(&"A".repeat(33)), 501);
}

#[test]
fn a_repeated_routing_header_is_left_to_who_goes_by_it() {
    for name in ["Mcp-Name", "Mcp-Method"] {
        for spelled in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
            let text = get(&format!("{spelled}: a\r\n{name}: a\r\n"));
            assert_eq!(complete(&text).repeated_route, Some(name));
        }
    }
}

// --- Bodies -------------------------------------------------------------------------------------

/// A body fed in pieces: the body and what is left over, or the status of the refusal.
fn decode<'a>(
    framing: Framing,
    body_bytes_max: u64,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Progress, Vec<u8>, Vec<u8>), u16> {
    let run = || {
        let mut decoder = Decoder::new(framing, body_bytes_max)?;
        let (mut input, mut body) = (BytesMut::new(), BytesMut::new());
        let mut progress = decoder.decode(&mut input, &mut body)?;
        for piece in pieces {
            input.extend_from_slice(piece);
            progress = decoder.decode(&mut input, &mut body)?;
            assert_eq!(progress == Progress::Done, decoder.is_done());
        }
        Ok((progress, body.to_vec(), input.to_vec()))
    };
    run().map_err(|refusal: Refusal| {
        assert_eq!(refusal.persistence, Persistence::Close);
        refusal.status.code()
    })
}

fn chunked(bytes: &[u8]) -> Result<(Progress, Vec<u8>, Vec<u8>), u16> {
    decode(Framing::Chunked, BODY_BYTES_MAX, [bytes])
}

fn done(body: &[u8], rest: &[u8]) -> Result<(Progress, Vec<u8>, Vec<u8>), u16> {
    Ok((Progress::Done, body.to_vec(), rest.to_vec()))
}

#[test]
fn lengths() {
    assert_eq!(decode(Framing::None, 0, [&b"GET"[..]]), done(b"", b"GET"));
    assert_eq!(decode(Framing::Length(3), 3, [&b"abcGET"[..]]), done(b"abc", b"GET"));
    assert_eq!(decode(Framing::Length(3), 3, [&b"ab"[..], b"cG"]), done(b"abc", b"G"));
    assert_eq!(decode(Framing::Length(4), 3, []), Err(413));
    assert_eq!(decode(Framing::Length(u64::MAX), 3, []), Err(413));
    let (progress, body, _) = decode(Framing::Length(3), 3, [&b"ab"[..]]).unwrap();
    assert_eq!((progress, body.len()), (Progress::NeedMore, 0));
}

#[test]
fn a_whole_body_is_not_copied() {
    for (framing, text) in
        [(Framing::Length(5), &b"helloGET"[..]), (Framing::Chunked, b"5\r\nhello\r\n0\r\n\r\nGET")]
    {
        let mut input = BytesMut::from(text);
        let place = input.as_ptr() as usize + text.windows(5).position(|window| window == b"hello").unwrap();
        let mut body = BytesMut::new();
        Decoder::new(framing, 5).unwrap().decode(&mut input, &mut body).unwrap();
        assert_eq!((body.as_ptr() as usize, &body[..], &input[..]), (place, &b"hello"[..], &b"GET"[..]));
    }
}

#[test]
fn declaring_a_length_reserves_nothing() {
    let decoder = Decoder::new(Framing::Length(BODY_BYTES_MAX), BODY_BYTES_MAX).unwrap();
    assert_eq!(decoder.wanted_bytes(0), crate::limits::READ_BUFFER_BYTES);
    assert_eq!(decoder.wanted_bytes(100_000), 100_000);
    assert_eq!(decoder.wanted_bytes(crate::limits::BODY_BYTES_MAX - 7), 7);
    assert_eq!(Decoder::new(Framing::None, 0).unwrap().wanted_bytes(0), 0);
}

#[test]
fn a_decoder_is_small() {
    assert_eq!(size_of::<Decoder>(), 40);
}

#[test]
fn chunks() {
    assert_eq!(chunked(b"0\r\n\r\nGET"), done(b"", b"GET"));
    assert_eq!(chunked(b"5\r\nhello\r\n00\r\n\r\n"), done(b"hello", b""));
    assert_eq!(chunked(b"A;x=\"y;\"\r\n0123456789\r\n1\r\n\n\r\n0;z\r\n\r\n"), done(b"0123456789\n", b""));
    assert_eq!(
        chunked(b"000a\r\n0123456789\r\n0\r\nMcp-Session-Id: x\r\nA:\r\n\r\nG"),
        done(b"0123456789", b"G")
    );
    let open = |bytes| chunked(bytes).map(|(progress, ..)| progress);
    for unfinished in
        [&b""[..], b"5", b"5\r", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r", b"0\r\n", b"0\r\nX: a\r\n\r"]
    {
        assert_eq!(open(unfinished), Ok(Progress::NeedMore));
    }
}

#[test]
fn chunk_bounds_are_exact() {
    let extended = |bytes: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(bytes - 4)).into_bytes();
    assert_eq!(chunked(&extended(256)), done(b"a", b""));
    assert_eq!(chunked(&extended(257)), Err(400));

    let trailed = |bytes: usize| format!("0\r\nX:{}\r\n\r\n", "x".repeat(bytes - 4)).into_bytes();
    assert_eq!(chunked(&trailed(4096)), done(b"", b""));
    assert_eq!(chunked(&trailed(4097)), Err(431));

    let limited = |bytes: &[u8]| decode(Framing::Chunked, 5, [bytes]);
    assert_eq!(limited(b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"), done(b"abcde", b""));
    assert_eq!(limited(b"2\r\nab\r\n4\r\n"), Err(413));
    assert_eq!(limited(b"ffffffffffffffff\r\n"), Err(413));
    assert_eq!(limited(b"10000000000000000\r\n"), Err(400));
}

#[test]
fn skipping_keeps_nothing() {
    for (framing, text) in
        [(Framing::Length(5), &b"helloG"[..]), (Framing::Chunked, b"5\r\nhello\r\n0\r\n\r\nG")]
    {
        let mut decoder = Decoder::new(framing, 5).unwrap();
        let mut input = BytesMut::new();
        for (at, byte) in text.iter().enumerate() {
            input.extend_from_slice(&[*byte]);
            let progress = decoder.skip(&mut input).unwrap();
            assert_eq!(progress == Progress::Done, at + 2 >= text.len(), "{at}");
        }
        assert_eq!(&input[..], b"G");
    }
}

// --- Policy -------------------------------------------------------------------------------------

/// The status of a check of these fields, or the granted origin.
fn check(policy: &Policy, fields: &str) -> Result<Option<String>, (u16, String)> {
    let text = format!("GET /mcp HTTP/1.1\r\n{fields}\r\n");
    match policy.check(&complete(&text)) {
        Ok(cors) => Ok(cors.origin().map(|origin| String::from_utf8_lossy(origin).into_owned())),
        Err(refusal) => Err((refusal.status.code(), refusal.message.into_owned())),
    }
}

#[test]
fn hosts() {
    let default = policy(Binding::Loopback, &[], &[]);
    for good in ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080"] {
        assert_eq!(check(&default, &format!("Host: {good}\r\n")), Ok(None), "{good}");
    }
    for bad in ["evil.example", "", "127.0.0.1.nip.io", "192.168.0.1", "[::2]", "0.0.0.0"] {
        let (status, message) = check(&default, &format!("Host: {bad}\r\n")).unwrap_err();
        assert_eq!(status, 403, "{bad}");
        assert!(message.contains("host rule") && message.contains("--allow-host"), "{message}");
    }

    let listed = policy(Binding::Network, &["mcp.example.", "other.example:8443"], &[]);
    for good in ["mcp.example", "MCP.example.:99", "other.example:8443", "localhost"] {
        assert_eq!(check(&listed, &format!("Host: {good}\r\n")), Ok(None), "{good}");
    }
    for bad in ["other.example", "other.example:80", "x.mcp.example"] {
        assert!(check(&listed, &format!("Host: {bad}\r\n")).is_err(), "{bad}");
    }

    let any = policy(Binding::Network, &["*"], &[]);
    assert_eq!(check(&any, "Host: evil.example\r\n"), Ok(None));
    let old = complete("GET /mcp HTTP/1.0\r\n\r\n");
    assert!(any.check(&old).is_ok() && default.check(&old).is_err());
    let absolute = complete("GET http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(default.check(&absolute).unwrap_err().status, Status::Forbidden);
}

#[test]
fn origins() {
    let origin =
        |policy: &Policy, origin: &str| check(policy, &format!("Host: localhost\r\nOrigin: {origin}\r\n"));
    let loopback = policy(Binding::Loopback, &[], &["https://App.example:443", "vscode-webview://abc"]);
    for good in [
        "http://localhost",
        "https://localhost:3000",
        "http://127.0.0.1:6274",
        "http://[::1]:1",
        "https://app.example",
        "vscode-webview://abc",
    ] {
        assert_eq!(origin(&loopback, good), Ok(Some(good.to_owned())), "{good}");
    }
    for bad in [
        "null",
        "",
        "https://evil.example",
        "http://app.example",
        "https://app.example:444",
        "localhost",
        "ftp://localhost",
        "http://localhost/",
        "http://localhost@evil.example",
        "http://localhost.evil.example",
    ] {
        let (status, message) = origin(&loopback, bad).unwrap_err();
        assert_eq!(status, 403, "{bad}");
        assert!(message.contains("origin rule") && message.contains("--allow-origin"), "{message}");
    }

    let network = policy(Binding::Network, &[], &["null"]);
    assert_eq!(origin(&network, "null"), Ok(Some("null".to_owned())));
    assert!(origin(&network, "http://localhost").is_err());
    let any = policy(Binding::Network, &[], &["*"]);
    assert_eq!(origin(&any, "https://x.example"), Ok(Some("https://x.example".to_owned())));
    assert!(origin(&any, "null").is_err());
}

#[test]
fn bad_lists_are_refused_at_start() {
    let new = |endpoint: &str, host: &str, origin: &str| {
        Policy::new(endpoint, Binding::Loopback, &[host], &[origin]).map(|_| ())
    };
    assert_eq!(new("/mcp", "a", "http://a"), Ok(()));
    assert_eq!(new("mcp", "a", "http://a"), Err(PolicyError::Endpoint("mcp".into())));
    assert_eq!(new("/a b", "a", "http://a"), Err(PolicyError::Endpoint("/a b".into())));
    assert_eq!(new("/mcp", "http://a", "http://a"), Err(PolicyError::Host("http://a".into())));
    assert_eq!(new("/mcp", "", "http://a"), Err(PolicyError::Host("".into())));
    assert_eq!(new("/mcp", "a", "a.example"), Err(PolicyError::Origin("a.example".into())));
    assert_eq!(new("/mcp", "a", "http://a/"), Err(PolicyError::Origin("http://a/".into())));
}

// --- Replies ------------------------------------------------------------------------------------

/// The second all replies of these tests are written in.
fn date() -> DateText {
    DateText::from_unix_s(784_111_777)
}

fn exchange(date: &DateText) -> Exchange<'_> {
    Exchange { version: Version::Http11, persistence: Persistence::Keep, cors: None, date }
}

/// What a head looks like, and that any client can parse it.
fn written(head: &ReplyHead<'_>) -> String {
    let mut out = BytesMut::new();
    head.write(&mut out);
    let mut parsed = [httparse::EMPTY_HEADER; 32];
    let status = httparse::Response::new(&mut parsed).parse(&out).unwrap();
    assert_eq!(status, httparse::Status::Complete(out.len()));
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn reply_heads() {
    let date = date();
    let exchange = exchange(&date);
    assert_eq!(
        written(&ReplyHead {
            session_id: Some(b"id"),
            ..ReplyHead::new(Status::Ok, Content::Json(12), exchange)
        }),
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: application/json\r\n\
         Cache-Control: no-store\r\nContent-Length: 12\r\nMcp-Session-Id: id\r\n\r\n"
    );
    assert_eq!(
        written(&ReplyHead::new(Status::Accepted, Content::Empty, exchange)),
        "HTTP/1.1 202 Accepted\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(
        written(&ReplyHead::new(Status::NoContent, Content::Empty, exchange)),
        "HTTP/1.1 204 No Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
    );
    assert_eq!(
        written(&ReplyHead::new(Status::Ok, Content::EventStream(Transfer::Chunked), exchange)),
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/event-stream\r\n\
         Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn one_reservation_holds_the_longest_head() {
    let text = format!(
        "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nAccess-Control-Request-Method: GET\r\n\
         Access-Control-Request-Headers: {}\r\n\r\n",
        "mcp-param-a,".repeat(1000)
    );
    let (head, date) = (complete(&text), date());
    let exchange = Exchange { cors: head.origin, persistence: Persistence::Close, ..exchange(&date) };
    let longest = ReplyHead {
        session_id: Some(&[b'a'; 100]),
        allow: Some(refusal::ALLOW_ENDPOINT),
        retry_after_s: Some(u64::MAX),
        preflight: head.preflight(),
        ..ReplyHead::new(Status::HeaderFieldsTooLarge, Content::Text(u64::MAX), exchange)
    };
    // The bound is asserted where heads are written; this gives it the worst that can come.
    assert_eq!(written(&longest).matches("mcp-param-a").count(), 1000);
}

#[test]
fn what_becomes_of_the_connection_is_said() {
    let date = date();
    let said = |version, persistence, content| {
        let exchange = Exchange { version, persistence, ..exchange(&date) };
        let text = written(&ReplyHead::new(Status::Ok, content, exchange));
        text.lines().find_map(|line| line.strip_prefix("Connection: ").map(str::to_owned))
    };
    let close = Some("close".to_owned());
    assert_eq!(said(Version::Http11, Persistence::Keep, Content::Empty), None);
    assert_eq!(said(Version::Http11, Persistence::Close, Content::Empty), close);
    assert_eq!(said(Version::Http10, Persistence::Keep, Content::Empty).as_deref(), Some("keep-alive"));
    assert_eq!(said(Version::Http10, Persistence::Close, Content::Empty), close);
    let cut = Content::EventStream(Transfer::CloseDelimited);
    assert_eq!(said(Version::Http10, Persistence::Keep, cut), close);
}

#[test]
fn every_status_names_the_origin() {
    let date = date();
    for &status in Status::ALL {
        let exchange = Exchange { cors: Some(b"http://localhost:3000"), ..exchange(&date) };
        let mut out = BytesMut::new();
        Refusal::new(status, "no").write(Method::Get, exchange, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(text.contains("\r\nAccess-Control-Allow-Origin: http://localhost:3000\r\nVary: Origin\r\n"));
        assert!(text.contains("\r\nAccess-Control-Expose-Headers: mcp-session-id, www-authenticate\r\n"));
    }
}

#[test]
fn preflights() {
    let text = "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\
                Access-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: content-type,Mcp-Param-City, mcp-param-a\"b,mcp-param-,x-y\r\n\r\n";
    let head = complete(text);
    let date = date();
    let cors = policy(Binding::Loopback, &[], &[]).check(&head).unwrap();
    let exchange = Exchange { cors: cors.origin(), ..exchange(&date) };
    assert_eq!(
        written(&ReplyHead::options(head.preflight(), exchange)),
        "HTTP/1.1 204 No Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Access-Control-Allow-Origin: http://localhost:3000\r\nVary: Origin\r\n\
         Access-Control-Allow-Methods: POST, GET, DELETE\r\nAccess-Control-Max-Age: 600\r\n\
         Access-Control-Allow-Headers: content-type, accept, authorization, mcp-protocol-version, \
         mcp-session-id, last-event-id, mcp-method, mcp-name, Mcp-Param-City\r\n\r\n"
    );
}

#[test]
fn a_plain_options_lists_the_methods() {
    let head =
        complete("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    assert_eq!(head.preflight(), None);
    let date = date();
    let text = written(&ReplyHead::options(None, exchange(&date)));
    assert!(
        text.starts_with("HTTP/1.1 204 ") && text.contains("\r\nAllow: GET, POST, DELETE, OPTIONS\r\n"),
        "{text}"
    );
}

#[test]
fn refusals_write_themselves() {
    let date = date();
    let reply = |refusal: Refusal, method| {
        let mut out = BytesMut::new();
        refusal.write(method, exchange(&date), &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    };
    let text = reply(Refusal::method_not_allowed(refusal::ALLOW_POST), Method::Get);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nAllow: POST, OPTIONS") && !head.contains("Connection"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["id"], serde_json::Value::Null);
    assert_eq!(body["error"]["code"], -32600);

    let text = reply(Refusal::unavailable("full", 5), Method::Head);
    assert!(text.contains("\r\nRetry-After: 5\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    assert!(reply(Refusal::malformed("x"), Method::Post).contains("\r\nConnection: close\r\n"));
    let odd = Refusal::forbidden("a \"quoted\"\nname").body();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&odd).unwrap()["error"]["message"],
        "a \"quoted\"\nname"
    );
}

#[test]
fn the_static_replies_are_well_formed() {
    let mut fields = [httparse::EMPTY_HEADER; 8];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_len) = response.parse(reply::BUSY_503).unwrap() else { panic!() };
    let body = &reply::BUSY_503[head_len..];
    let field = |name: &str| {
        let field = response.headers.iter().find(|field| field.name == name).unwrap();
        std::str::from_utf8(field.value).unwrap()
    };
    assert_eq!(response.code, Some(503));
    assert_eq!(field("Content-Length"), body.len().to_string());
    assert_eq!(field("Retry-After"), crate::limits::RETRY_AFTER_S.to_string());
    assert_eq!(field("Connection"), "close");
    serde_json::from_slice::<serde_json::Value>(body).unwrap();
    assert_eq!(reply::CONTINUE_100, b"HTTP/1.1 100 Continue\r\n\r\n");
}

// --- The corpus ---------------------------------------------------------------------------------

/// What this layer makes of one connection's bytes: the first refusal, if there is one.
fn first_refusal(bytes: &[u8]) -> Option<Refusal> {
    let policy = policy(Binding::Loopback, &[], &[]);
    let judge = || -> Result<(), Refusal> {
        let Parsed::Complete { head, consumed } = parse(bytes)? else { return Ok(()) };
        policy.check(&head)?;
        policy.locate(head.target)?;
        match head.method {
            Method::Post => _ = head.admit_post()?,
            Method::Get => head.accept.stream()?,
            Method::Delete | Method::Options => {}
            Method::Head | Method::Other => {
                return Err(Refusal::method_not_allowed(refusal::ALLOW_ENDPOINT));
            }
        }
        let mut decoder = Decoder::new(head.framing, BODY_BYTES_MAX)?;
        decoder.decode(&mut BytesMut::from(&bytes[consumed..]), &mut BytesMut::new())?;
        Ok(())
    };
    judge().err()
}

#[test]
fn hostile_corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/http");
    let mut cases = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "http") {
            continue;
        }
        let text = std::fs::read(&path).unwrap();
        let line_end = text.iter().position(|&byte| byte == b'\n').unwrap();
        let expected = std::str::from_utf8(&text[..line_end]).unwrap();
        let bytes = &text[line_end + 1..];
        assert_head_is_cut_independent(bytes);
        let refusal = first_refusal(bytes).unwrap_or_else(|| panic!("{path:?} passed"));
        let ending = match (refusal.persistence, expected.ends_with("either")) {
            (_, true) => "either",
            (Persistence::Close, _) => "close",
            (Persistence::Keep, _) => "keep",
        };
        assert_eq!(format!("{} {ending}", refusal.status.code()), expected, "{path:?}: {refusal:?}");
        cases += 1;
    }
    assert!(cases > 150, "the corpus was not read: {cases}");
}

// --- Properties ---------------------------------------------------------------------------------

/// Feeds `bytes` one more at a time (long ones in steps) until a result is final, which must be that of the
/// whole.
fn assert_head_is_cut_independent(bytes: &[u8]) {
    let whole = parse(bytes);
    let step = 1 + bytes.len() / 1000;
    let ends = (0..bytes.len()).step_by(step).chain([bytes.len()]);
    let stepwise = ends.map(|len| parse(&bytes[..len])).find(|it| *it != Ok(Parsed::Incomplete));
    match stepwise {
        Some(early) => assert_eq!(early, whole, "{}", bytes.escape_ascii()),
        None => assert_eq!(whole, Ok(Parsed::Incomplete), "{}", bytes.escape_ascii()),
    }
}

/// An obviously right decoder of whole chunked bodies without extensions and trailers.
fn naive_chunks(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|window| window == b"\r\n")?;
        let digits = std::str::from_utf8(&rest[..line_end]).ok()?;
        let size = usize::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        rest = &rest[line_end + 2..];
        body.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
        if size == 0 {
            return Some((body, rest));
        }
    }
}

fn encode_chunks(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        encoded.extend_from_slice(chunk);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    encoded
}

/// Fragments that matter to the parser, in any order.
fn head_soup() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => prop::sample::select(vec![
            "GET", "POST", "OPTIONS", "PRI", "CONNECT", " ", "/mcp", "*", "http://a/", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0",
            "\r\n", "\r\n\r\n", "\n", "\r", "Host: a\r\n", "Host", ":", "Content-Length: 5\r\n", "X: y\r\n",
            "Transfer-Encoding: chunked\r\n", "Origin: null\r\n", "Accept: */*\r\n", "\0", "\t", "é",
            "GET / HTTP/1.1\r\nHost: a\r\n", "POST /mcp HTTP/1.1\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(fragment, 0..16).prop_map(|fragments| fragments.concat())
}

fn chunk_soup() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => prop::sample::select(vec![
            "0", "1", "5", "a", "ffffffffffffffff", "\r\n", "\r\n\r\n", "\n", "\r", ";", ";x=y", " ", "hello", "X: y",
            "5\r\nhello\r\n", "1\r\na\r\n", "0\r\n", "0\r\n\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(fragment, 0..16).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn any_head_is_cut_independent(bytes in head_soup()) {
        assert_head_is_cut_independent(&bytes);
    }

    #[test]
    fn arbitrary_bytes_are_cut_independent(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_head_is_cut_independent(&bytes);
    }

    #[test]
    fn heads_leave_what_follows(fields in prop::collection::vec("[A-Za-z-]{40,44}: [ -~]{0,20}\r\n", 0..10), rest in any::<Vec<u8>>()) {
        let mut bytes = get(&fields.concat()).into_bytes();
        let len = bytes.len();
        bytes.extend_from_slice(&rest);
        let complete = matches!(parse(&bytes), Ok(Parsed::Complete { consumed, .. }) if consumed == len);
        prop_assert!(complete);
    }

    #[test]
    fn any_body_is_cut_independent(
        bytes in chunk_soup(),
        cut in prop::collection::vec(1usize..9, 1..40),
        framing in prop_oneof![Just(Framing::Chunked), Just(Framing::None), (1u64..30).prop_map(Framing::Length)],
    ) {
        let limit = 24;
        let whole = decode(framing, limit, [&bytes[..]]);
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for &len in cut.iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, more) = rest.split_at(len.min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        prop_assert_eq!(decode(framing, limit, pieces), whole);
    }

    #[test]
    fn chunks_come_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8), rest in any::<Vec<u8>>()) {
        let mut encoded = encode_chunks(&chunks);
        encoded.extend_from_slice(&rest);
        prop_assert_eq!(chunked(&encoded), done(&chunks.concat(), &rest));
        prop_assert_eq!(naive_chunks(&encoded), Some((chunks.concat(), &rest[..])));
    }

    #[test]
    fn the_naive_decoder_agrees(bytes in chunk_soup()) {
        // Where the naive one sees a whole body, ours must see the same one, or refuse a size line for form.
        match (chunked(&bytes), naive_chunks(&bytes)) {
            (Ok((Progress::Done, body, rest)), Some(naive)) => prop_assert_eq!((body, &rest[..]), (naive.0, naive.1)),
            (Ok((Progress::NeedMore, ..)), Some(naive)) => prop_assert!(false, "ours waits, naive has {:?}", naive),
            (Err(status), Some(naive)) => prop_assert!(false, "ours refuses with {}, naive has {:?}", status, naive),
            (Ok(_) | Err(_), None) => {}
        }
    }

    #[test]
    fn policies_never_panic(origin in "[ -~]{0,30}", host in "[ -~]{0,30}") {
        let policy = policy(Binding::Loopback, &["a.example"], &["https://a.example"]);
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n");
        if let Ok(Parsed::Complete { head, .. }) = parse(text.as_bytes()) {
            let _ = policy.check(&head).map_err(|refusal| Bytes::from(refusal.body()));
        }
    }
}

#[test]
fn a_line_without_a_method_is_malformed_however_long_it_gets() {
    let line = format!(" {}", "a".repeat(crate::limits::TARGET_BYTES_MAX + 1));
    assert_eq!((refused(&line[..100]), refused(&line)), (400, 400));
}
