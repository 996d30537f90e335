//! HTTP/1.1 as a well-meaning client uses it, and the limits an ill one meets.

use super::{
    PATIENCE, on_every_shard_count,
    server::Server,
    session::{Session, answer, echo_call, initialize, ping, post, request, slow_call, text_of, tool_call},
    wire::{Connection, Fill, Leave},
};
use serde_json::json;
use std::time::{Duration, Instant};

on_every_shard_count! {
    /// Requests sent in one go are answered in their order.
    fn pipelined_requests_are_answered_in_order(server: &Server) {
        let session = Session::open(server.address());
        let mut connection = server.connect();
        let bytes: Vec<u8> =
            (0..50).flat_map(|i| session.post_bytes(&echo_call(json!(i), &format!("message {i}")))).collect();
        connection.send(bytes);
        for i in 0..50 {
            let answer = answer(&connection.response("POST"));
            assert_eq!((answer["id"].as_i64(), text_of(&answer)), (Some(i), format!("message {i}").as_str()));
        }
    }

    /// Replies that nobody has read yet hold the next request back, of which only a part may have been received. When they are
    /// read the rest of it is, too.
    fn requests_behind_unread_replies_are_read_when_those_are(server: &Server) {
        let session = Session::open(server.address());
        for padding in [2_500, 3_000, 3_500, 4_000] {
            let mut connection = Connection::open_narrow(server.address(), 2_048);
            let padding = "x".repeat(padding);
            let call = |i: usize| {
                let [session, revision] = session.fields();
                let call = tool_call(json!(i), "add", &json!({"a": 1, "b": 2}));
                post(&call, &[session, revision, ("X-Padding", &padding)])
            };
            connection.send((0..60).flat_map(call).collect::<Vec<_>>());
            // The server goes as far as it does without anything being read.
            std::thread::sleep(Duration::from_millis(300));
            for i in 0..60 {
                assert_eq!(answer(&connection.response("POST"))["id"], i);
            }
        }
    }

    /// So are those that nobody has read when their client closes its side, however many there are.
    fn requests_before_a_half_close_are_all_answered(server: &Server) {
        let session = Session::open(server.address());
        let mut connection = server.connect();
        let mut bytes = session.post_bytes(&slow_call(json!(0), 0.3, 3));
        bytes.extend((1..200).flat_map(|i| session.post_bytes(&ping(json!(i)))));
        connection.send(bytes);
        connection.finish_sending();
        for i in 0..200 {
            assert_eq!(answer(&connection.response("POST"))["id"], i);
        }
        assert!(matches!(connection.rest().1, Fill::Closed));
    }

    /// A request may come in any pieces.
    fn a_request_may_come_byte_by_byte(server: &Server) {
        let session = Session::open(server.address());
        let mut connection = server.connect();
        for byte in session.post_bytes(&echo_call(json!(1), "slowly")) {
            connection.send([byte]);
        }
        assert_eq!(text_of(&answer(&connection.response("POST"))), "slowly");
    }

    /// A request behind a stream waits for its end, and is answered then.
    fn a_request_behind_a_streamed_reply_waits(server: &Server) {
        let session = Session::open(server.address());
        let mut connection = server.connect();
        let mut bytes = session.post_bytes(&slow_call(json!(1), 0.3, 3));
        bytes.extend(session.post_bytes(&echo_call(json!(2), "behind")));
        connection.send(bytes);
        assert_eq!(answer(&connection.response("POST"))["id"], 1);
        assert_eq!(text_of(&answer(&connection.response("POST"))), "behind");
    }

    /// Chunked bodies are decoded to their end, and the next request is intact.
    fn chunked_bodies_are_decoded(server: &Server) {
        let session = Session::open(server.address());
        let mut connection = server.connect();
        for size in [1, 7, 64, 4096] {
            let message = format!("in chunks of {size}");
            let mut bytes = chunked(&session, &echo_call(json!(1), &message).to_string(), size);
            bytes.extend(session.post_bytes(&echo_call(json!(2), "next")));
            connection.send(bytes);
            assert_eq!(text_of(&answer(&connection.response("POST"))), message);
            assert_eq!(text_of(&answer(&connection.response("POST"))), "next");
        }
    }
}

#[test]
fn expect_gets_100_before_the_body() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    let body = echo_call(json!(1), "expected").to_string();
    let length = body.len().to_string();
    let mut fields = session.fields().to_vec();
    fields.extend([
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("Content-Length", length.as_str()),
        ("Expect", "100-continue"),
    ]);
    connection.send(request("POST", &fields, ""));
    assert_eq!(connection.head().status, 100);
    connection.send(&body);
    assert_eq!(text_of(&answer(&connection.response("POST"))), "expected");
}

#[test]
fn an_unmet_expectation_is_refused() {
    let server = Server::start(&[]);
    let fields = [("Content-Type", "application/json"), ("Content-Length", "2"), ("Expect", "miracles")];
    let mut connection = server.connect();
    connection.send(request("POST", &fields, ""));
    assert_eq!(connection.response("POST").status(), 417);
}

#[test]
fn other_methods_are_named_in_allow() {
    let server = Server::start(&[]);
    for method in ["HEAD", "PUT", "PATCH"] {
        let mut connection = server.connect();
        connection.send(request(method, &[], ""));
        let response = connection.response(method);
        assert_eq!(response.status(), 405, "{method}");
        let allow = response.head.field("allow").expect("405 names what is allowed");
        assert!(["GET", "POST", "DELETE"].iter().all(|known| allow.contains(known)), "{allow}");
        if method == "HEAD" {
            // Had it a body, the next response would not begin with a status line.
            connection.send(request("PUT", &[], ""));
            assert_eq!(connection.response("PUT").status(), 405);
        }
    }
}

#[test]
fn preflight_allows_what_a_browser_needs() {
    let server = Server::start(&[]);
    let origin = format!("http://localhost:{}", server.address().port());
    let fields = [
        ("Origin", origin.as_str()),
        ("Access-Control-Request-Method", "DELETE"),
        ("Access-Control-Request-Headers", "content-type,mcp-protocol-version,mcp-session-id,last-event-id"),
    ];
    let mut connection = server.connect();
    connection.send(request("OPTIONS", &fields, ""));
    let response = connection.response("OPTIONS");
    assert_eq!(response.status(), 204);
    assert_eq!(response.head.field("access-control-allow-origin"), Some(origin.as_str()));
    let methods = response.head.field("access-control-allow-methods").expect("allowed methods");
    assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
    let headers = response.head.field("access-control-allow-headers").expect("allowed headers");
    let headers = headers.to_ascii_lowercase();
    for needed in
        ["content-type", "accept", "authorization", "mcp-protocol-version", "mcp-session-id", "last-event-id"]
    {
        assert!(headers.contains(needed), "{needed} is not in {headers}");
    }
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let server = Server::start(&[]);
    for (name, value) in [("Host", "evil.example"), ("Origin", "http://evil.example")] {
        let bytes = String::from_utf8(request("GET", &[], "")).expect("ASCII");
        let bytes = match name {
            "Host" => bytes.replace("Host: localhost", &format!("Host: {value}")),
            _ => bytes.replace("\r\n\r\n", &format!("\r\n{name}: {value}\r\n\r\n")),
        };
        let mut connection = server.connect();
        connection.send(bytes);
        assert_eq!(connection.response("GET").status(), 403, "{name}");
    }
    let open = Server::start(&["--allow-host", "mcp.example", "--allow-origin", "https://app.example"]);
    let bytes = String::from_utf8(post(&initialize("2025-11-25"), &[("Origin", "https://app.example")]));
    let mut connection = open.connect();
    connection.send(bytes.expect("ASCII").replace("Host: localhost", "Host: mcp.example"));
    let response = connection.response("POST");
    assert_eq!(response.status(), 200);
    assert_eq!(response.head.field("access-control-allow-origin"), Some("https://app.example"));
}

#[test]
fn http_1_0_is_served_and_closed() {
    let server = Server::start(&[]);
    let bytes = post(&initialize("2025-11-25"), &[]);
    let old = String::from_utf8(bytes).expect("ASCII").replace("HTTP/1.1", "HTTP/1.0");
    let mut connection = server.connect();
    connection.send(old);
    let response = connection.response("POST");
    assert_eq!((response.status(), response.head.closes()), (200, true));
    assert_eq!(connection.rest(), (Vec::new(), Fill::Closed));
}

#[test]
fn connection_close_is_honoured() {
    let server = Server::start(&[]);
    let mut connection = server.connect();
    connection.send(post(&initialize("2025-11-25"), &[("Connection", "close")]));
    let response = connection.response("POST");
    assert_eq!((response.status(), response.head.closes()), (200, true));
    assert_eq!(connection.rest(), (Vec::new(), Fill::Closed));
}

#[test]
fn a_half_closed_client_still_gets_its_reply() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    connection.send(session.post_bytes(&slow_call(json!(1), 0.3, 2)));
    connection.finish_sending();
    assert_eq!(answer(&connection.response("POST"))["id"], 1);
}

#[test]
fn slow_requests_time_out() {
    let server = Server::start(&["--header-timeout", "300ms", "--body-timeout", "300ms"]);
    let session = Session::open(server.address());
    let whole = session.post_bytes(&echo_call(json!(1), "never finished"));
    for sent in [10, whole.len() - 5] {
        let mut connection = server.connect();
        let start = Instant::now();
        connection.send(&whole[..sent]);
        let response = connection.response("POST");
        assert_eq!((response.status(), response.head.closes()), (408, true), "after {sent} bytes");
        assert!(start.elapsed().as_millis() >= 250, "too early");
        assert_eq!(connection.rest().1, Fill::Closed);
    }
}

#[test]
fn an_idle_connection_is_closed() {
    let server = Server::start(&["--idle-timeout", "300ms"]);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    session.call_on(&mut connection, "echo", &json!({"message": "then nothing"}));
    let start = Instant::now();
    assert_eq!(connection.rest(), (Vec::new(), Fill::Closed));
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn limits_have_their_status() {
    let server = Server::start(&["--max-body", "64KiB"]);
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(9_000));
    let long_field = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(17_000));
    let many_fields = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(65));
    let json = "Content-Type: application/json\r\n";
    let large = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{json}Content-Length: 65537\r\n\r\n");
    let endless = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{json}Transfer-Encoding: chunked\r\n\r\n{}",
        format!("1000\r\n{}\r\n", "a".repeat(0x1000)).repeat(17)
    );
    let cases = [(long_target, 414), (long_field, 431), (many_fields, 431), (large, 413), (endless, 413)];
    for (bytes, status) in cases {
        let mut connection = server.connect();
        connection.send_unheard(bytes.as_bytes());
        let response = connection.response("GET");
        assert_eq!((response.status(), response.head.closes()), (status, true));
        assert_eq!(connection.rest(), (Vec::new(), Fill::Closed), "after {status}");
    }
}

#[test]
fn the_largest_body_is_taken() {
    let server = Server::start(&["--max-body", "64KiB"]);
    let session = Session::open(server.address());
    let frame = echo_call(json!(1), "").to_string().len();
    let message = "a".repeat(64 * 1024 - frame);
    assert_eq!(text_of(&answer(&session.post(&echo_call(json!(1), &message)))), message);
    assert_eq!(session.post(&echo_call(json!(1), &(message + "a"))).status(), 413);
}

#[test]
fn connections_that_say_nothing_hold_nobody_up() {
    let server = Server::start(&["--shards", "1"]);
    let silent: Vec<Connection> = (0..200).map(|_| server.connect()).collect();
    let session = Session::open(server.address());
    assert_eq!(session.ping_status(), 200);
    silent.into_iter().for_each(|connection| connection.leave(Leave::Rst));
    assert_eq!(session.ping_status(), 200);
}

/// A POST of `body` in chunks of `size` bytes, with an extension and a trailer.
fn chunked(session: &Session, body: &str, size: usize) -> Vec<u8> {
    let mut fields = session.fields().to_vec();
    fields.extend([
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("Transfer-Encoding", "chunked"),
    ]);
    let mut bytes = request("POST", &fields, "");
    for chunk in body.as_bytes().chunks(size) {
        bytes.extend_from_slice(format!("{:x};name=value\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nMcp-Session-Id: ignored\r\n\r\n");
    bytes
}
