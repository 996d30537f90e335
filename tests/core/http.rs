//! HTTP/1.1 on a connection: pipelining, deadlines, expectations, refusals, and how connections end.

use crate::world::{
    World,
    ask::{bodiless, chunked, notification, post, post_head, request},
    config,
    http::dechunk,
};
use moorline::core::{Ending, Interest, config::CoreConfig};

const PING_REPLY: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

fn ping(id: u32) -> String {
    request(&id.to_string(), "ping")
}

// --- Pipelining ---------------------------------------------------------------------------------

#[test]
fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let session = world.session_field(client);
    let parts = [
        post(&session, &ping(1)),
        post(&session, &notification("notifications/x")),
        post(&session, &request("3", "tools/call")),
        post(&session, &request("4", "tools/call")),
        bodiless("PUT", ""),
        post(&session, &ping(6)),
    ];
    world.send(client, parts.concat());
    let first = world.responses(client);
    assert_eq!(first.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 202]);
    assert_eq!(world.calls.len(), 1, "the next request waits for the reply before it");
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "3");
    assert_eq!(world.response(client).json()["result"], 3);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "4");
    let rest = world.responses(client);
    assert_eq!(rest.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 405, 200]);
    assert_eq!(rest[2].json()["id"], 6);
    assert_eq!(world.ending(client), None);
}

#[test]
fn a_request_behind_a_stream_waits_for_its_end() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (shard, call) = world.begin_stream(client, "7");
    let session = world.session_field(client);
    world.send(client, post(&session, &ping(8)));
    assert!(world.is_silent(client));
    world.answer(shard, call.key, "{}");
    let bytes = std::mem::take(&mut world.client(client).received);
    let (content, complete) = dechunk(&bytes);
    assert!(complete && String::from_utf8(content).unwrap().contains(r#""id":7,"result""#));
    let reply = String::from_utf8(bytes).unwrap();
    assert!(reply.ends_with(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#), "{reply:?}");
}

#[test]
fn a_request_behind_a_listener_waits_for_the_end_of_its_session() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.post(listener, &ping(8));
    assert!(world.is_silent(listener));
    world.delete(client);
    let text = world.client(listener).take_text();
    assert!(text.starts_with("0\r\n\r\nHTTP/1.1 404 "), "{text:?}");
}

#[test]
fn how_input_is_cut_into_reads_changes_nothing() {
    let whole = |world: &mut World| {
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        let body = chunked(&ping(2), 7);
        let chunks = post_head(&format!("{session}Transfer-Encoding: chunked\r\n")) + &body;
        let bytes = [
            post(&session, &ping(1)),
            chunks,
            bodiless("HEAD", &session),
            "\r\n".to_owned() + &post(&session, "{"),
            bodiless("DELETE", &session),
            bodiless("BAD METHOD", ""),
        ];
        (client, bytes.concat().into_bytes())
    };
    let mut world = World::new();
    let (client, bytes) = whole(&mut world);
    world.send(client, &bytes);
    let expected = world.client(client).take_text();
    for cut in 0..bytes.len() {
        let mut world = World::new();
        let (client, bytes) = whole(&mut world);
        world.send(client, &bytes[..cut]);
        world.send(client, &bytes[cut..]);
        assert_eq!(world.client(client).take_text(), expected, "cut at {cut}");
    }
    let mut world = World::new();
    let (client, bytes) = whole(&mut world);
    for byte in &bytes {
        world.send(client, [*byte]);
    }
    assert_eq!(world.client(client).take_text(), expected, "byte by byte");
}

// --- Deadlines ----------------------------------------------------------------------------------

/// Sends `bytes`, lets one byte of `drip` follow each second, and expects a 408 that closes at `due_ms`, not before.
#[track_caller]
fn check_408(bytes: &str, drip: &str, due_ms: u64) {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    world.advance(20_000);
    world.send(client, bytes);
    let start_ms = world.now.ms;
    for byte in drip.bytes() {
        world.advance(1_000);
        world.send(client, [byte]);
    }
    world.advance(start_ms + due_ms - 1 - world.now.ms);
    assert!(world.is_silent(client) && world.ending(client).is_none(), "not before its time");
    world.advance(17);
    let reply = world.response(client);
    assert_eq!((reply.status, reply.field("connection")), (408, Some("close")), "{bytes:?}");
    assert_eq!(world.ending(client), Some(Ending::Orderly));
    assert_eq!(world.counted("requests_timed_out"), 1);
    assert!(world.calls.is_empty(), "nothing unfinished is dispatched");
}

#[test]
fn a_head_has_ten_seconds_from_its_first_byte() {
    check_408("P", "", 10_000);
    check_408("POST /mcp HTTP/1.1\r\nHost: localhost\r\n", "X-A: bc", 10_000);
    check_408("\r\n", "\r\nPOST", 10_000);
}

#[test]
fn a_body_has_thirty_seconds_from_the_end_of_its_head() {
    check_408(&post_head("Content-Length: 50\r\n"), r#"{"jsonrpc":"2.0","#, 30_000);
    check_408(&post_head("Transfer-Encoding: chunked\r\n"), "1\r\n{\r\n1\r\n", 30_000);
    check_408(&(post_head("Content-Length: 50\r\n") + "{"), "", 30_000);
}

#[test]
fn a_head_that_begins_behind_a_reply_has_ten_seconds_from_the_end_of_that() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    world.send(client, post(&session, &request("1", "tools/call")) + "GET /mcp");
    world.advance(100_000);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert!(world.client(client).take_text().contains(r#""id":1"#));
    world.advance(9_900);
    assert!(world.is_silent(client) && world.ending(client).is_none());
    world.advance(120);
    assert_eq!(world.response(client).status, 408);
}

#[test]
fn a_connection_that_says_nothing_is_closed_after_the_header_time_out() {
    let mut world = World::new();
    let client = world.connect();
    world.advance(9_990);
    assert_eq!(world.ending(client), None);
    world.advance(30);
    assert_eq!(world.ending(client), Some(Ending::Gone));
    assert!(world.is_silent(client));
    assert_eq!((world.census.connections(), world.timers()), (0, 0));
}

#[test]
fn a_fresh_connection_has_ten_seconds_from_accept_however_it_drips() {
    let mut world = World::new();
    let client = world.connect();
    for byte in b"POST /mcp" {
        world.advance(1_000);
        world.send(client, [*byte]);
    }
    world.advance(1_016);
    assert_eq!(world.response(client).status, 408);
}

#[track_caller]
fn check_idle_close(idle_timeout_ms: u64) {
    let mut world = World::with(CoreConfig { idle_timeout_ms, ..config(1) });
    let client = world.open("2025-06-18");
    world.advance(idle_timeout_ms - 10);
    assert_eq!(world.ask_for(client, &ping(1)).text(), PING_REPLY);
    world.advance(idle_timeout_ms - 10);
    assert_eq!(world.ending(client), None, "the clock starts anew with each reply");
    world.advance(30);
    assert_eq!(world.ending(client), Some(Ending::Gone), "idle for {idle_timeout_ms} ms");
    assert!(world.is_silent(client));
    assert!(world.is_alive(client), "a connection is not its session");
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    for idle_timeout_ms in [75_000, 30_000, 12_000, 5_000, 1_000] {
        check_idle_close(idle_timeout_ms);
    }
}

#[test]
fn a_connection_with_a_call_or_a_stream_is_not_idle() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    let quiet = world.join(client);
    world.post_with(quiet, "Accept: application/json\r\n", &request("1", "tools/call"));
    world.advance(600_000);
    assert_eq!((world.ending(listener), world.ending(quiet)), (None, None));
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(quiet).status, 200);
    world.advance(74_000);
    assert_eq!(world.ending(quiet), None);
    world.advance(1_100);
    assert_eq!(world.ending(quiet), Some(Ending::Gone));
}

#[test]
fn an_orderly_end_waits_two_seconds_for_the_peer() {
    let mut world = World::new();
    let client = world.connect();
    world.client(client).closes_promptly = false;
    world.send(client, "nonsense\r\n\r\n");
    assert_eq!(world.response(client).status, 400);
    assert_eq!(world.ending(client), Some(Ending::Orderly));
    world.advance(1_980);
    assert_eq!(world.ending(client), Some(Ending::Orderly));
    world.advance(40);
    assert_eq!(world.ending(client), Some(Ending::Gone));
}

// --- Expect -------------------------------------------------------------------------------------

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn a_100_comes_when_the_body_is_wanted() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let body = ping(1);
    for framing in [format!("Content-Length: {}\r\n", body.len()), "Transfer-Encoding: chunked\r\n".into()] {
        let head = post_head(&format!("{session}{framing}expect: 100-Continue\r\n"));
        world.send(client, &head);
        assert_eq!(world.client(client).take_text(), CONTINUE);
        let sent = if framing.starts_with('C') { body.clone() } else { chunked(&body, 9) };
        assert_eq!(world.exchange(client, sent).text(), PING_REPLY);
    }
}

#[test]
fn no_100_when_the_body_is_there_or_the_client_is_too_old_for_it() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    world.send(client, post(&format!("{session}Expect: 100-continue\r\n"), &ping(1)));
    let text = world.client(client).take_text();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text:?}");

    world.send(client, post(&format!("{session}Expect: 100-continue\r\n"), ""));
    let text = world.client(client).take_text();
    assert!(text.starts_with("HTTP/1.1 400 "), "no body to wait for: {text:?}");

    let head = post_head(&format!("{session}Content-Length: {}\r\nExpect: 100-continue\r\n", ping(1).len()));
    world.send(client, head.replace("HTTP/1.1", "HTTP/1.0"));
    assert!(world.is_silent(client));
    assert_eq!(world.exchange(client, ping(1)).text(), PING_REPLY);
}

#[test]
fn a_refusal_comes_instead_of_a_100_and_the_body_is_never_read() {
    let json = "Content-Type: application/json\r\n";
    let dead = format!("Mcp-Session-Id: {}\r\n", "0".repeat(42));
    let cases = [
        (415, "Content-Type: text/plain\r\n".to_owned()),
        (415, format!("{json}Content-Encoding: gzip\r\n")),
        (406, format!("{json}Accept: image/png\r\n")),
        (413, format!("{json}Content-Length: 99999999\r\n")),
        (403, format!("{json}Origin: https://evil.example\r\n")),
        (404, format!("{json}{dead}Accept: image/png\r\n")),
    ];
    for (status, fields) in cases {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        let session = if status == 404 { "" } else { &session };
        let smuggled = bodiless("DELETE", &world.session_field(client));
        let length = format!("Content-Length: {}\r\n", smuggled.len());
        let length = if fields.contains("Content-Length") { "" } else { &length };
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{session}{fields}{length}Expect: 100-continue\r\n\r\n"
        );
        let reply = world.exchange(client, head);
        assert_eq!((reply.status, reply.field("connection")), (status, Some("close")), "{fields:?}");
        assert_eq!(world.ending(client), Some(Ending::Orderly));
        world.send(client, smuggled);
        assert!(world.is_silent(client) && world.is_alive(client), "{fields:?}");
    }
}

#[test]
fn an_unknown_expectation_is_refused_on_every_method() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let fields = format!("{session}Expect: tea\r\n");
    for request in [post(&fields, &ping(1)), bodiless("GET", &fields), bodiless("DELETE", &fields)] {
        assert_eq!(world.exchange(client, request).status, 417);
    }
    assert!(world.is_alive(client));
}

// --- Methods ------------------------------------------------------------------------------------

const ALLOW: &str = "GET, POST, DELETE, OPTIONS";

#[test]
fn head_gets_the_head_of_a_405_and_nothing_else() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    world.send(client, bodiless("HEAD", &session));
    let text = world.client(client).take_text();
    assert!(text.starts_with("HTTP/1.1 405 ") && text.ends_with("\r\n\r\n"), "{text:?}");
    assert!(text.contains(&format!("Allow: {ALLOW}\r\n")), "{text:?}");
    assert_eq!(world.shards[0].population().streams, 0);
    assert_eq!(world.ask_for(client, &ping(1)).text(), PING_REPLY, "the connection goes on");
}

#[test]
fn other_methods_are_405_and_unknown_ones_501() {
    let mut world = World::new();
    let client = world.connect();
    for method in ["PUT", "PATCH", "TRACE"] {
        let reply = world.exchange(client, bodiless(method, ""));
        assert_eq!((reply.status, reply.field("allow")), (405, Some(ALLOW)), "{method}");
        assert_eq!(world.ending(client), None);
    }
    for (method, status) in [("CONNECT", 405), ("BREW", 501), ("get", 501)] {
        let client = world.connect();
        let reply = world.exchange(client, bodiless(method, ""));
        assert_eq!((reply.status, world.ending(client)), (status, Some(Ending::Orderly)), "{method}");
    }
    assert_eq!(world.exchange_alone("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 505);
}

#[test]
fn a_preflight_is_granted_without_a_session() {
    let mut world = World::new();
    let client = world.connect();
    let asked = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: mcp-session-id, mcp-param-x\r\n";
    let reply =
        world.exchange(client, bodiless("OPTIONS", &format!("Origin: http://localhost:6274\r\n{asked}")));
    assert_eq!(reply.status, 204);
    assert_eq!(reply.field("access-control-allow-origin"), Some("http://localhost:6274"));
    assert_eq!(reply.field("vary"), Some("Origin"));
    let methods = reply.field("access-control-allow-methods").unwrap();
    let headers = reply.field("access-control-allow-headers").unwrap();
    for wanted in ["POST", "GET", "DELETE"] {
        assert!(methods.contains(wanted), "{methods}");
    }
    for wanted in [
        "mcp-protocol-version",
        "mcp-session-id",
        "last-event-id",
        "authorization",
        "content-type",
        "mcp-param-x",
    ] {
        assert!(headers.contains(wanted), "{headers}");
    }
    let evil =
        world.exchange(client, bodiless("OPTIONS", &format!("Origin: https://evil.example\r\n{asked}")));
    assert_eq!((evil.status, evil.field("access-control-allow-origin")), (403, None));
    let plain = world.exchange(client, bodiless("OPTIONS", ""));
    assert_eq!((plain.status, plain.field("allow")), (204, Some(ALLOW)));
    let all = world.exchange(client, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((all.status, all.field("content-length")), (204, None));
    assert_eq!(world.ending(client), None);
}

#[test]
fn a_browser_may_read_every_reply_it_gets() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let origin = format!("{}Origin: http://127.0.0.1:1234\r\n", world.session_field(client));
    let accept = format!("{origin}Accept: text/event-stream\r\n");
    let requests = [
        (200, post(&origin, &ping(1))),
        (202, post(&origin, &notification("x"))),
        (400, post(&origin, "{")),
        (400, bodiless("GET", &format!("{accept}Last-Event-ID: x\r\n"))),
        (404, post("Origin: http://127.0.0.1:1234\r\nMcp-Session-Id: x\r\n", &ping(1))),
        (405, bodiless("PUT", &origin)),
        (406, bodiless("GET", &format!("{origin}Accept: text/plain\r\n"))),
        (204, bodiless("DELETE", &origin)),
    ];
    for (status, request) in requests {
        let reply = world.exchange(client, &request);
        assert_eq!(reply.status, status, "{request:?}");
        assert_eq!(reply.field("access-control-allow-origin"), Some("http://127.0.0.1:1234"), "{request:?}");
        assert_eq!(reply.field("vary"), Some("Origin"));
        assert!(reply.field("access-control-expose-headers").unwrap().contains("mcp-session-id"));
        assert_eq!(reply.field("date"), Some("Mon, 21 Sep 2026 14:13:20 GMT"), "{request:?}");
    }
}

// --- Where a message ends -----------------------------------------------------------------------

/// Requests refused by their head, while their body may be on its way.
fn refused_early(session: &str) -> Vec<(u16, String)> {
    let json = "Content-Type: application/json\r\n";
    let start = "POST /mcp HTTP/1.1\r\nHost: localhost\r\n";
    vec![
        (406, format!("{start}{session}{json}Accept: text/html\r\n")),
        (415, format!("{start}{session}Content-Type: text/plain\r\n")),
        (405, format!("{}{session}MCP-Protocol-Version: 2026-07-28\r\n", start.replace("POST", "DELETE"))),
        (404, format!("{start}Mcp-Session-Id: gone\r\nContent-Type: text/plain\r\n")),
        (404, format!("{}{session}{json}", start.replace("/mcp", "/elsewhere"))),
        (403, format!("{}{session}{json}", start.replace("localhost", "evil.example"))),
        (405, format!("{}{session}", start.replace("POST", "PUT"))),
        (400, format!("{}Accept: text/event-stream\r\n", start.replace("POST", "GET"))),
        (404, format!("{}Mcp-Session-Id: gone\r\n", start.replace("POST", "DELETE"))),
    ]
}

#[test]
fn bytes_of_a_refused_body_are_never_a_request() {
    let count = refused_early("").len();
    for case in 0..count {
        for chunks in [false, true] {
            let mut world = World::new();
            let client = world.open("2025-06-18");
            let session = world.session_field(client);
            let (status, head) = refused_early(&session).swap_remove(case);
            let smuggled = bodiless("DELETE", &session);
            let (framing, body) = if chunks {
                ("Transfer-Encoding: chunked\r\n".to_owned(), chunked(&smuggled, 40))
            } else {
                (format!("Content-Length: {}\r\n", smuggled.len()), smuggled)
            };
            let head = format!("{head}{framing}\r\n");

            // The body comes later: the connection ends, whatever it holds.
            let reply = world.exchange(client, &head);
            assert_eq!((reply.status, reply.field("connection")), (status, Some("close")), "{head:?}");
            world.send(client, &body);
            assert!(world.is_silent(client) && world.is_alive(client), "{head:?}");

            // The body came along: it is skipped, or the connection ends as well.
            let client = world.join(client);
            world.send(client, format!("{head}{body}{}", post(&session, &ping(1))));
            let replies = world.responses(client);
            assert_eq!(replies[0].status, status);
            if world.ending(client).is_none() {
                assert_eq!(replies[1].text(), PING_REPLY, "{head:?}");
            }
            assert!(world.is_alive(client), "{head:?}");
        }
    }
}

#[test]
fn two_framings_are_refused_in_either_order_and_end_the_connection() {
    for (first, second) in [
        ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"),
        ("Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n"),
    ] {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        let request = post_head(&format!("{session}{first}{second}")) + "0\r\n\r\n";
        world.send(client, request + &bodiless("DELETE", &session));
        let replies = world.responses(client);
        assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [400]);
        assert_eq!(world.ending(client), Some(Ending::Orderly));
        assert!(world.is_alive(client));
    }
}

#[test]
fn a_body_over_the_limit_is_413_and_its_tail_is_no_request() {
    let limited = || World::with(CoreConfig { body_bytes_max: 300, ..config(1) });
    let check = |build: &dyn Fn(&str) -> String| {
        let mut world = limited();
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        world.send(client, build(&session));
        let replies = world.responses(client);
        assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [413]);
        assert_eq!(world.ending(client), Some(Ending::Orderly));
        assert!(world.is_alive(client));
    };
    let long = " ".repeat(300);
    check(&|session| post(session, &(long.clone() + &bodiless("DELETE", session))));
    check(&|session| {
        let body = chunked(&(long.clone() + &bodiless("DELETE", session)), 50);
        post_head(&format!("{session}Transfer-Encoding: chunked\r\n")) + &body
    });
    // A chunk that announces too much is refused before it comes, and so is a body that never ends.
    check(&|session| post_head(&format!("{session}Transfer-Encoding: chunked\r\n")) + "12d\r\n");
    check(&|session| {
        post_head(&format!("{session}Transfer-Encoding: chunked\r\n")) + &"1\r\n \r\n".repeat(301)
    });
    let mut world = limited();
    let client = world.open("2025-06-18");
    let body = ping(1) + &" ".repeat(300 - ping(1).len());
    assert_eq!(world.ask_for(client, &body).text(), PING_REPLY, "exactly the limit is fine");
}

#[test]
fn chunks_are_decoded_fully_and_the_successor_is_intact() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let head = post_head(&format!("{session}Transfer-Encoding: chunked\r\n"));
    let trailers = chunked(&ping(1), 3).replace("0\r\n\r\n", "0;x=y\r\nMcp-Session-Id: evil\r\n\r\n");
    world.send(client, format!("{head}{}{head}{trailers}{}", chunked(&ping(1), 5), post(&session, &ping(1))));
    let replies = world.responses(client);
    assert_eq!(replies.len(), 3);
    assert!(replies.iter().all(|reply| reply.text() == PING_REPLY));
    for bad in ["10000000000000000\r\n", "5\n", "1\r\n{}\r\n", "-1\r\n", "5 ;x\r\n", "\r\n"] {
        let client = world.join(client);
        let reply = world.exchange(client, format!("{head}{bad}{}", bodiless("DELETE", &session)));
        assert_eq!((reply.status, world.ending(client)), (400, Some(Ending::Orderly)), "{bad:?}");
    }
    assert!(world.is_alive(client));
}

#[test]
fn deep_nesting_is_refused() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    for body in ["[".repeat(200_000), r#"{"a":"#.repeat(200_000)] {
        let reply = world.ask_for(client, &body);
        assert_eq!((reply.status, reply.code()), (400, -32700));
    }
    assert!(world.is_alive(client));
}

#[test]
fn malformed_heads_are_answered_and_end_the_connection() {
    let host = "Host: localhost\r\n";
    let long = "a".repeat(9_000);
    let many = "X: y\r\n".repeat(70);
    let cases = [
        (400, "GET /mcp HTTP/1.1\r\n\r\n".to_owned()),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}{host}\r\n")),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}A : b\r\n\r\n")),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}A: b\r\n c\r\n\r\n")),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}A: b\rc\r\n\r\n")),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}A: b\0c\r\n\r\n")),
        (400, format!("GET /mcp HTTP/1.1\n{host}\r\n")),
        (400, format!("GET  /mcp HTTP/1.1\r\n{host}\r\n")),
        (400, "\r\n".repeat(6)),
        (400, format!("POST /mcp HTTP/1.1\r\n{host}Content-Length: +5\r\n\r\n")),
        (400, format!("POST /mcp HTTP/1.1\r\n{host}Content-Length: 5\r\nContent-Length: 6\r\n\r\n")),
        (400, format!("POST /mcp HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n")),
        (501, format!("POST /mcp HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n")),
        (400, format!("POST /mcp HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\n\r\n")),
        (400, format!("GET /mcp HTTP/1.1\r\n{host}Origin: null\r\nOrigin: null\r\n\r\n")),
        (414, format!("GET /{long} HTTP/1.1\r\n{host}\r\n")),
        (431, format!("GET /mcp HTTP/1.1\r\n{host}{many}\r\n")),
        (431, format!("GET /mcp HTTP/1.1\r\n{host}A: {long}{long}\r\n\r\n")),
        (505, format!("GET /mcp HTTP/3.0\r\n{host}\r\n")),
    ];
    for (status, bytes) in cases {
        let mut world = World::new();
        let client = world.connect();
        let shown = bytes.get(..80).unwrap_or(&bytes).to_owned();
        world.send(client, bytes + &bodiless("GET", ""));
        let replies = world.responses(client);
        assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [status], "{shown:?}");
        assert_eq!(replies[0].field("connection"), Some("close"));
        assert!(replies[0].json()["id"].is_null() && replies[0].code() < 0);
        assert_eq!(world.ending(client), Some(Ending::Orderly), "{shown:?}");
    }
}

#[test]
fn bodies_of_get_and_delete_end_the_connection_after_the_reply() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let smuggled = bodiless("DELETE", &session);
    let fields = format!("{session}Accept: text/event-stream\r\nContent-Length: {}\r\n", smuggled.len());
    let listener = world.join(client);
    world.send(listener, bodiless("GET", &fields) + &smuggled);
    let head = world.response(listener);
    assert_eq!((head.status, head.field("connection")), (200, Some("close")));
    assert!(world.is_alive(client));
    world.send(client, bodiless("DELETE", &fields) + &post("", &World::initialize_body("2025-06-18")));
    let replies = world.responses(client);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [204]);
    assert_eq!(world.ending(client), Some(Ending::Orderly));
    assert_eq!(world.census.sessions(), 0);
}

// --- Host and origin ----------------------------------------------------------------------------

#[test]
fn only_loopback_names_and_origins_are_served_by_default() {
    let ask = |target: &str, host: &str, origin: &str| {
        let mut world = World::new();
        let body = World::initialize_body("2025-06-18");
        let request = post(origin, &body).replace("localhost", host).replace("/mcp", target);
        let reply = world.exchange_alone(request);
        assert!(reply.status == 200 || world.census.sessions() == 0);
        reply.status
    };
    for host in ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1", "127.0.0.1:1", "[::1]:8080"] {
        assert_eq!(ask("/mcp", host, ""), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "[::2]"] {
        assert_eq!(ask("/mcp", host, ""), 403, "{host}");
    }
    assert_eq!(ask("http://evil.example/mcp", "localhost", ""), 403, "the target's authority counts");
    assert_eq!(ask("http://localhost/mcp", "evil.example", ""), 200, "and only that");
    for origin in ["null", "https://evil.example", "http://localhost.evil.example"] {
        assert_eq!(ask("/mcp", "127.0.0.1", &format!("Origin: {origin}\r\n")), 403, "{origin}");
    }
}

// --- Ends ---------------------------------------------------------------------------------------

#[test]
fn a_half_close_after_a_post_still_gets_the_reply() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (json, stream) = (world.join(client), world.join(client));
    let (shard, first) = world.begin(json, "1");
    let (_, second) = world.begin_stream(stream, "2");
    world.half_close(json);
    world.half_close(stream);
    assert_eq!((world.ending(json), world.ending(stream)), (None, None));
    assert!(world.cancelled.is_empty());
    world.answer(shard, first.key, "{}");
    world.answer(shard, second.key, "{}");
    assert_eq!(world.response(json).json()["id"], 1);
    assert_eq!(world.events(stream).last().unwrap().json()["id"], 2);
    assert_eq!((world.ending(json), world.ending(stream)), (Some(Ending::Orderly), Some(Ending::Orderly)));
}

#[test]
fn a_half_close_leaves_requests_that_came_whole_their_replies() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    world.send(
        client,
        [post(&session, &request("1", "tools/call")), post(&session, &ping(2)), post(&session, &ping(3))]
            .concat(),
    );
    world.half_close(client);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    let ids: Vec<_> = world.responses(client).iter().map(|reply| reply.json()["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(world.ending(client), Some(Ending::Orderly));
}

#[test]
fn a_half_close_within_a_request_dispatches_nothing() {
    for (whole, part) in [(0, 10), (0, 200), (1, 10), (1, 200)] {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        let requests = post(&session, &request("1", "tools/call")).repeat(whole);
        let cut = &post(&session, &request("2", "tools/call"))[..part];
        world.send(client, requests + cut);
        world.half_close(client);
        for _ in 0..whole {
            let (shard, call) = world.take_call();
            world.answer(shard, call.key, "{}");
            assert_eq!(world.response(client).status, 200);
        }
        assert!(world.calls.is_empty() && world.is_silent(client));
        assert!(world.ending(client).is_some(), "{whole} whole and {part} bytes");
    }
}

#[test]
fn a_half_close_between_requests_or_of_a_listener_ends_the_connection() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.half_close(listener);
    assert_eq!(world.client(listener).take_text(), "0\r\n\r\n", "a clean end");
    assert_eq!(world.ending(listener), Some(Ending::Orderly));
    world.half_close(client);
    assert_eq!(world.ending(client), Some(Ending::Gone));
    assert_eq!(world.census.connections(), 0);
}

#[test]
fn what_the_client_wants_of_the_connection_is_done() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let cases = [
        ("HTTP/1.1", "", None, None),
        ("HTTP/1.1", "Connection: x, CLOSE\r\n", Some("close"), Some(Ending::Orderly)),
        ("HTTP/1.0", "", Some("close"), Some(Ending::Orderly)),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", Some("keep-alive"), None),
    ];
    for (version, fields, connection, ending) in cases {
        let client = world.join(client);
        let request = post(&format!("{session}{fields}"), &ping(1)).replace("HTTP/1.1", version);
        let reply = world.exchange(client, request);
        assert_eq!((reply.text().as_str(), reply.field("connection")), (PING_REPLY, connection));
        assert_eq!(world.ending(client), ending, "{version} {fields:?}");
    }
    let client = world.join(client);
    world.post_with(client, "Connection: close\r\n", &request("1", "tools/call"));
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    world.answer(shard, call.key, "{}");
    let reply = world.response(client);
    assert!(reply.is_stream() && reply.complete && reply.field("connection") == Some("close"));
    assert_eq!(world.ending(client), Some(Ending::Orderly));
}

#[test]
fn an_http_1_0_stream_ends_with_its_connection() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let session = world.session_field(client);
    let fields = format!("{session}Connection: keep-alive\r\n");
    let (caller, listener) = (world.join(client), world.join(client));
    world.send(caller, post(&fields, &request("1", "tools/call")).replace("HTTP/1.1", "HTTP/1.0"));
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    world.answer(shard, call.key, "{}");
    let reply = world.response(caller);
    assert_eq!((reply.field("transfer-encoding"), reply.field("connection")), (None, Some("close")));
    assert_eq!(reply.messages().len(), 2, "no chunk framing is among the events");
    assert_eq!(world.ending(caller), Some(Ending::Orderly));

    let get = bodiless("GET", &format!("{fields}Accept: text/event-stream\r\n"));
    world.send(listener, get.replace("HTTP/1.1", "HTTP/1.0"));
    let head = world.response(listener);
    assert_eq!((head.status, head.field("transfer-encoding")), (200, None));
    world.advance(15_016);
    assert_eq!(world.client(listener).take_text(), ": keepalive\n\n");
    world.delete(client);
    assert!(world.is_silent(listener), "the end is the close");
    assert_eq!(world.ending(listener), Some(Ending::Orderly));
}

#[test]
fn the_read_side_waits_for_what_may_come() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    assert_eq!(world.interest(client), Interest::Park, "between requests, without a buffer");
    let session = world.session_field(client);
    let whole = post(&session, &request("1", "tools/call"));
    let (head, body) = whole.split_at(whole.find("\r\n\r\n").unwrap() + 4);
    for part in [&head[..20], &head[20..], &body[..5]] {
        world.send(client, part);
        assert_eq!(world.interest(client), Interest::Receive, "within a request");
    }
    world.send(client, &body[5..]);
    assert_eq!(world.interest(client), Interest::Park, "its reply is awaited");
    world.half_close(client);
    assert_eq!(world.interest(client), Interest::Nothing, "nothing more will come");
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert_eq!(world.interest(client), Interest::Nothing, "it is over");
}

#[test]
fn a_buffer_is_kept_only_while_it_holds_something() {
    // `Interest` tells: a connection that holds input reads no more of it.
    let mut world = World::with(config(2));
    let client = world.open_on(1, "2025-06-18");
    let moved = world.join_on(client, 0);
    world.get(moved);
    assert_eq!(world.response(moved).status, 200);
    assert_eq!(world.interest(moved), Interest::Park, "a moved listener");

    let piped = world.join_on(client, 1);
    let session = world.session_field(client);
    world.send(
        piped,
        post(&session, &request("1", "tools/call")) + &post(&session, &request("2", "tools/call")),
    );
    assert_eq!(world.interest(piped), Interest::Failure, "holds the second request");
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert_eq!(world.interest(piped), Interest::Park, "holds nothing");
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    world.send(piped, bodiless("GET", &(session + "Accept: text/event-stream\r\n")) + "more");
    assert_eq!(world.interest(piped), Interest::HangUp, "a stream whose client has sent more");
}
