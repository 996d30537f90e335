//! The life of a session: how it begins, what refuses it, how it ends.

use super::{
    on_every_shard_count,
    server::Server,
    session::{NEWEST, Session, answer, echo_call, initialize, ping, post, request, slow_call, text_of},
    until,
    wire::{Leave, Response},
};
use serde_json::{Value, json};

on_every_shard_count! {
    /// 204, then 404 for every method, and its stream ends in order.
    fn a_deleted_session_is_gone(server: &Server) {
        let session = Session::open(server.address());
        let stream = session.listen();
        assert_eq!(session.delete(), 204);
        stream.until_end();
        assert_eq!((session.ping_status(), session.get_status(), session.delete()), (404, 404, 404));
    }

    /// One answer for every id that is none, whatever it looks like.
    fn unknown_ids_are_not_found(server: &Server) {
        let known = Session::open(server.address());
        let mut forged = known.clone();
        let last = if known.id.ends_with('0') { "1" } else { "0" };
        forged.id.replace_range(known.id.len() - 1.., last);
        let mut answers = Vec::new();
        for id in [forged.id.as_str(), "ff", "zz", "0", &"9".repeat(200), &"!".repeat(30)] {
            let mut stranger = known.clone();
            stranger.id = id.to_owned();
            assert_eq!((stranger.get_status(), stranger.delete()), (404, 404), "{id}");
            let response = stranger.post(&ping(json!(1)));
            assert_eq!(response.status(), 404, "{id}");
            answers.push(response.body);
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "the answer must not tell ids apart");
        assert_eq!(known.ping_status(), 200);
    }

    /// Two calls in one session with the same id each get their own answer, whoever is first.
    fn equal_ids_get_their_own_answers(server: &Server) {
        let session = Session::open(server.address());
        let mut slow = server.connect();
        slow.send(session.post_bytes(&slow_call(json!(1), 0.5, 2)));
        let mut callers: Vec<_> = (0..10).map(|_| server.connect()).collect();
        for (i, caller) in callers.iter_mut().enumerate() {
            caller.send(session.post_bytes(&echo_call(json!(1), &format!("call {i}"))));
        }
        for (i, caller) in callers.iter_mut().enumerate() {
            assert_eq!(text_of(&answer(&caller.response("POST"))), format!("call {i}"));
        }
        let slow = answer(&slow.response("POST"));
        assert!(text_of(&slow).contains("2 steps"), "{slow}");
    }

    /// A POST that loses its connection harms nothing but itself.
    fn a_lost_call_leaves_the_session_alone(server: &Server) {
        let session = Session::open(server.address());
        for how in [Leave::Fin, Leave::Rst] {
            let mut caller = server.connect();
            caller.send(session.post_bytes(&slow_call(json!(1), 0.3, 3)));
            caller.final_head();
            caller.leave(how);
            assert_eq!(session.ping_status(), 200);
        }
        let echo = session.post(&echo_call(json!("x"), "still here"));
        assert_eq!(text_of(&answer(&echo)), "still here");
    }
}

#[test]
fn every_revision_is_negotiated() {
    let server = Server::start(&[]);
    let asked_and_given = [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2099-01-01", NEWEST),
        ("2026-07-28", NEWEST),
        ("nonsense", NEWEST),
    ];
    for (asked, given) in asked_and_given {
        let response = send(&server, &post(&initialize(asked), &[]));
        let answer = answer(&response);
        assert_eq!(answer["result"]["protocolVersion"], given, "asked for {asked}");
        assert!(answer["result"]["capabilities"]["tools"].is_object(), "{answer}");
        let id = response.head.field("mcp-session-id").expect("a session id");
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()) && id.len() >= 22, "{id:?}");
    }
}

#[test]
fn a_missing_session_id_is_a_bad_request() {
    let server = Server::start(&[]);
    assert_eq!(send(&server, &post(&ping(json!(1)), &[])).status(), 400);
    assert_eq!(send(&server, &request("GET", &[("Accept", "text/event-stream")], "")).status(), 400);
    assert_eq!(send(&server, &request("DELETE", &[], "")).status(), 400);
}

#[test]
fn initialize_with_a_session_id() {
    let server = Server::start(&[]);
    let live = Session::open(server.address());
    let again = send(&server, &post(&initialize(NEWEST), &[("Mcp-Session-Id", &live.id)]));
    assert_eq!(again.status(), 400);
    assert_eq!(live.delete(), 204);
    let anew = send(&server, &post(&initialize(NEWEST), &[("Mcp-Session-Id", &live.id)]));
    assert_eq!(anew.status(), 200);
    assert_ne!(anew.head.field("mcp-session-id"), Some(live.id.as_str()));
}

#[test]
fn a_bad_version_header_is_refused_before_dispatch() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    for version in ["1900-01-01", "not-a-version"] {
        let fields = [("Mcp-Session-Id", session.id.as_str()), ("MCP-Protocol-Version", version)];
        assert_eq!(send(&server, &post(&ping(json!(1)), &fields)).status(), 400, "POST with {version}");
        assert_eq!(send(&server, &request("DELETE", &fields, "")).status(), 400, "DELETE with {version}");
    }
    let fields = [("Mcp-Session-Id", session.id.as_str())];
    assert_eq!(send(&server, &post(&ping(json!(1)), &fields)).status(), 200, "without the header");
}

#[test]
fn a_session_that_never_shakes_hands_is_dropped() {
    let server = Server::start(&["--handshake-timeout", "200ms"]);
    let silent = Session::open_silent(server.address(), NEWEST);
    let proper = Session::open(server.address());
    // Asking would be the valid request that ends the deadline, so this one has to wait instead.
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert_eq!(silent.ping_status(), 404);
    assert_eq!(proper.ping_status(), 200);
}

#[test]
fn an_idle_session_is_dropped() {
    let server = Server::start(&["--session-idle-timeout", "300ms"]);
    let session = Session::open(server.address());
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert_eq!(session.ping_status(), 404);
}

#[test]
fn at_the_cap_the_newcomer_is_refused() {
    let server = Server::start(&["--max-sessions", "4", "--shards", "1"]);
    let sessions: Vec<_> = (0..4).map(|_| Session::open(server.address())).collect();
    let refused = send(&server, &post(&initialize(NEWEST), &[]));
    assert_eq!(refused.status(), 503);
    assert!(refused.head.field("retry-after").is_some());
    assert!(sessions.iter().all(|session| session.ping_status() == 200), "nobody was evicted");
    assert_eq!(sessions[0].delete(), 204);
    until("a place is free", || send(&server, &post(&initialize(NEWEST), &[])).status() == 200);
}

#[test]
fn ids_come_back_byte_for_byte() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    for id in [r#""a""#, r#""\u0041\"""#, "0", "-7", "9007199254740993", r#""""#] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"ping","id":{id}}}"#);
        let length = body.len().to_string();
        let mut fields = session.fields().to_vec();
        fields.extend([
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Content-Length", length.as_str()),
        ]);
        let response = send(&server, &request("POST", &fields, &body));
        assert_eq!(response.status(), 200, "{id}");
        assert!(response.text().contains(&format!(r#""id":{id}"#)), "{id}: {}", response.text());
    }
}

#[test]
fn malformed_messages_are_told_what_is_wrong() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let cases = [
        ("{", 400, -32700),
        ("", 400, -32700),
        ("[]", 400, -32600),
        ("7", 400, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, 400, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":9,"method":"no/such"}"#, 200, -32601),
    ];
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for (body, status, code) in cases.into_iter().chain([(deep.as_str(), 400, -32600)]) {
        let length = body.len().to_string();
        let mut fields = session.fields().to_vec();
        fields.extend([
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Length", length.as_str()),
        ]);
        let response = send(&server, &request("POST", &fields, body));
        let shown = &body[..body.len().min(60)];
        assert_eq!(response.status(), status, "{shown}: {}", response.text());
        let answer: Value = response.json();
        // A parse that stops at a depth may call that either.
        let codes = if body.len() > 1_000 { vec![code, -32700] } else { vec![code] };
        assert!(codes.iter().any(|&code| answer["error"]["code"] == code), "{shown}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap_or("").is_empty(), "{shown}: {answer}");
    }
    assert_eq!(session.ping_status(), 200);
}

fn send(server: &Server, bytes: &[u8]) -> Response {
    let mut connection = server.connect();
    connection.send(bytes);
    let method = bytes.split(|&byte| byte == b' ').next().expect("a request begins with its method");
    connection.response(std::str::from_utf8(method).expect("a method is ASCII"))
}
