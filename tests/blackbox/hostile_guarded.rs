//! A stranger and a neighbour against a server with tokens, two listeners and an admin listener.
//!
//! After every attack alice, who was there before, is served, and her stream carries her next message and nothing else.

use super::{
    PATIENCE,
    auth::{INITIALIZE, PING, Tokens, bearer, listen, open, ping, send},
    server::Server,
    session::echo_call,
    until,
    wire::{Chunk, Connection, Leave},
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

const NOTIFY: &str = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"notify","arguments":{"kind":"message","scope":"session"}}}"#;

/// The server, alice with a session and a stream, and bob with a token.
struct Guarded {
    server: Server,
    alice: String,
    bob: String,
    session: String,
    stream: Connection,
    _tokens: Tokens,
}

impl Guarded {
    fn start(flags: &[&str]) -> Self {
        let mut tokens = Tokens::new();
        let (alice, bob) = (tokens.add("alice"), tokens.add("bob"));
        tokens.save();
        let flag = tokens.flag();
        let own =
            ["--auth", &flag, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--shards", "2"];
        let server = Server::start(&[&own[..], flags].concat());
        let session = open(&server, &alice);
        let stream = listen(&server, &session, &alice);
        Guarded { server, alice, bob, session, stream, _tokens: tokens }
    }

    fn assert_unharmed(mut self) {
        assert_eq!(ping(&self.server, &self.session, &self.alice), 200);
        let fields = self.session.clone() + &bearer(&self.alice);
        assert_eq!(send(&mut self.server.connect(), "POST", &fields, NOTIFY).status(), 200);
        let mut seen = String::new();
        while !seen.contains("notifications/message") {
            match self.stream.chunk(Instant::now() + PATIENCE) {
                Chunk::Data(bytes) => seen.push_str(&String::from_utf8(bytes).expect("text")),
                other => panic!("{other:?} after {seen}"),
            }
        }
        assert_eq!(seen.matches("\"jsonrpc\"").count(), 1, "{seen}");
        let log = self.server.log();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        assert!(!log.contains(&self.alice) && !log.contains(&self.bob), "{log}");
    }
}

/// The status of the reply to those bytes, on a connection of their own.
fn status_of(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut connection = Connection::open(address);
    connection.send_unheard(bytes);
    connection.final_head().status
}

fn bytes_of(method: &str, fields: &str) -> Vec<u8> {
    format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

fn post(target: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// All that a neighbour can do with a session that is not his, and with ids near it.
#[test]
fn a_session_is_nobody_elses_however_it_is_asked_for() {
    let guarded = Guarded::start(&[]);
    let own = open(&guarded.server, &guarded.bob);
    let id = guarded.session.trim().split(' ').nth(1).expect("a value").to_owned();
    let mut guesses = vec![id.clone(), id.to_uppercase(), id[..id.len() - 1].to_owned(), format!("{id}0")];
    guesses.extend((0..id.len()).map(|at| {
        let mut guess = id.clone().into_bytes();
        guess[at] = if guess[at] == b'0' { b'1' } else { b'0' };
        String::from_utf8(guess).expect("ASCII")
    }));
    for guess in &guesses {
        let fields = format!("Mcp-Session-Id: {guess}\r\n{}", bearer(&guarded.bob));
        let mut connection = guarded.server.connect();
        assert_eq!(send(&mut connection, "POST", &fields, PING).status(), 404, "{guess}");
        let get = format!("{fields}Accept: text/event-stream\r\n");
        for cursor in ["", "Last-Event-ID: 0-0\r\n"] {
            assert_eq!(send(&mut guarded.server.connect(), "GET", &(get.clone() + cursor), "").status(), 404);
        }
        assert_eq!(send(&mut guarded.server.connect(), "DELETE", &fields, "").status(), 404);
    }
    // Both at once are neither.
    let both = format!("{own}{}{}", guarded.session, bearer(&guarded.bob));
    assert_eq!(status_of(guarded.server.address(), &post("/mcp", &both, PING)), 400);
    assert_eq!(ping(&guarded.server, &own, &guarded.bob), 200);
    guarded.assert_unharmed();
}

#[test]
fn heads_that_two_readers_could_differ_about_let_nobody_in() {
    let guarded = Guarded::start(&[]);
    let address = guarded.server.address();
    let token = bearer(&guarded.alice);
    let other = bearer("wrong");
    for (fields, expected) in [
        (format!("{token}{token}"), 400),
        (format!("{token}{other}"), 400),
        (format!("{other}{token}"), 400),
        (format!("{token}Host: evil.example\r\n"), 400),
        (format!("Host: localhost\r\n{token}"), 400),
        (format!("{token}Content-Length: 0\r\n"), 400),
        (format!("{token}Transfer-Encoding: chunked\r\n"), 400),
        (format!("X-Folded: a\r\n {token}"), 400),
        (format!("Authorization:\r\n Bearer {}\r\n", guarded.alice), 400),
        (format!("Authorization : Bearer {}\r\n", guarded.alice), 400),
        (format!("{token}Origin: https://evil.example\r\n"), 403),
        (format!("{token}Origin: null\r\n"), 403),
        (format!("{token}Origin: http://localhost.evil.example\r\n"), 403),
        (token.to_uppercase(), 401),
        (token.replace("Authorization", "aUTHORIZATION"), 200),
        (token.replace("Bearer", "bearer"), 200),
    ] {
        assert_eq!(status_of(address, &post("/mcp", &fields, INITIALIZE)), expected, "{fields}");
    }
    guarded.assert_unharmed();
}

#[test]
fn hosts_that_are_not_its_own_are_refused_on_every_port() {
    let guarded = Guarded::start(&[]);
    let (address, admin) = (guarded.server.address(), guarded.server.admin_address());
    let token = bearer(&guarded.alice);
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:80@localhost",
        "127.0.0.1.evil.example",
        "localhost, evil.example",
        "0.0.0.0",
        "",
    ] {
        let length = INITIALIZE.len();
        let mcp = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{token}Content-Length: {length}\r\n\r\n{INITIALIZE}"
        );
        let status = status_of(address, mcp.as_bytes());
        assert!(status == 403 || status == 400, "{host}: {status}");
        for target in ["/", "/metrics", "/status", "/livez"] {
            let status =
                status_of(admin, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
            assert!(status == 403 || status == 400, "admin {host} {target}: {status}");
        }
        let publish = format!(
            "POST /publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let status = status_of(admin, publish.as_bytes());
        assert!(status == 403 || status == 400, "admin {host}: {status}");
    }
    guarded.assert_unharmed();
}

#[test]
fn nothing_but_its_paths_is_served_and_nothing_of_the_admin_listener() {
    let guarded = Guarded::start(&[]);
    let address = guarded.server.address();
    let token = bearer(&guarded.alice);
    let long = format!("/{}", "a".repeat(7_000));
    for target in [
        "//mcp",
        "/mcp/",
        "/mcp/../mcp",
        "/mcp/../admin",
        "/mcp/../publish",
        "/%2e/mcp",
        "/%6dcp",
        "/mcp%00",
        "/mcp;x",
        "/MCP",
        "/publish",
        "/metrics",
        "/status",
        "/livez",
        "/readyz",
        "/",
        "/admin",
        &long,
    ] {
        for body in [INITIALIZE, r#"{"to":"all","method":"notifications/tools/list_changed"}"#] {
            let status = status_of(address, &post(target, &token, body));
            assert!([400, 404, 414].contains(&status), "{target}: {status}");
        }
    }
    for target in ["http://evil.example/mcp", "https://localhost:1/publish", "localhost:80", "*", "mcp"] {
        let status = status_of(address, &post(target, &token, INITIALIZE));
        assert!([400, 403, 404].contains(&status), "{target}: {status}");
    }
    // A query is no token and no session.
    let query = format!("/mcp?access_token={}&sessionId=x", guarded.alice);
    assert_eq!(status_of(address, &post(&query, "", INITIALIZE)), 401);
    guarded.assert_unharmed();
}

/// Pages of an allowed origin can read why; others learn nothing.
#[test]
fn every_refusal_is_readable_to_allowed_origins_and_to_no_others() {
    let flags = [
        "--allow-origin",
        "https://app.example",
        "--max-body",
        "8KiB",
        "--max-connections-per-principal",
        "9",
        "--max-sessions",
        "10",
    ];
    let guarded = Guarded::start(&flags);
    let bob = bearer(&guarded.bob);
    let huge = "x".repeat(9_000);
    let held: Vec<_> = (0..9)
        .map(|_| {
            let mut connection = guarded.server.connect();
            assert_eq!(send(&mut connection, "POST", &bob, INITIALIZE).status(), 200);
            connection
        })
        .collect();
    let dead = format!("{bob}Mcp-Session-Id: dead\r\n");
    let alice = bearer(&guarded.alice);
    let other_than = |usual: &str, wanted: &str| {
        let text = String::from_utf8(post("/mcp", &alice, INITIALIZE)).expect("text");
        assert!(text.contains(usual));
        text.replace(usual, wanted).into_bytes()
    };
    for (request, expected) in [
        (post("/mcp", "", INITIALIZE), 401),
        (post("/elsewhere", &bob, INITIALIZE), 404),
        (post("/mcp", &dead, PING), 404),
        (post("/mcp", &bob, INITIALIZE), 429),
        (post("/mcp", &alice, INITIALIZE), 503),
        (post("/mcp", &alice, "{"), 400),
        (post("/mcp", &alice, &huge), 413),
        (bytes_of("PUT", &alice), 405),
        (other_than("Accept: application/json, text/event-stream", "Accept: text/html"), 406),
        (other_than("Content-Type: application/json", "Content-Type: text/plain"), 415),
        (other_than("HTTP/1.1\r\n", "HTTP/1.1\r\nExpect: a-miracle\r\n"), 417),
    ] {
        for (origin, allowed) in [("https://app.example", true), ("https://evil.example", false)] {
            let mut connection = guarded.server.connect();
            let text = String::from_utf8(request.clone()).expect("text");
            connection
                .send_unheard(text.replacen("\r\n", &format!("\r\nOrigin: {origin}\r\n"), 1).as_bytes());
            let head = connection.final_head();
            assert_eq!(head.status, if allowed { expected } else { 403 }, "{expected} {origin}");
            let granted = head.field("access-control-allow-origin");
            assert_eq!(granted, allowed.then_some(origin), "{expected}");
        }
    }
    drop(held);
    guarded.assert_unharmed();
}

/// Whoever sends large bodies and never ends them has its share of memory, and no more.
#[test]
fn bodies_that_never_end_leave_room_for_others() {
    let flags = ["--memory-limit", "16MiB", "--max-body", "4MiB"];
    let guarded = Guarded::start(&flags);
    let bobs = open(&guarded.server, &guarded.bob) + &bearer(&guarded.bob);
    let length = 3 * 1024 * 1024;
    let part = "x".repeat(1_900 * 1024);
    let mut stalled: Vec<_> = (0..8)
        .map(|_| {
            let mut connection = guarded.server.connect();
            let head = post("/mcp", &bobs, "");
            let head =
                String::from_utf8(head).expect("text").replace("Length: 0", &format!("Length: {length}"));
            connection.send(head);
            connection.send_unheard(part.as_bytes());
            connection
        })
        .collect();
    until("no more than two of them are in his share, and the others refused on their way", || {
        stalled.retain_mut(|connection| !connection.arrived().starts_with(b"HTTP/1.1 429 "));
        stalled.len() <= 2
    });
    assert_eq!(send(&mut guarded.server.connect(), "POST", &bobs, PING).status(), 200);
    let alices = guarded.session.clone() + &bearer(&guarded.alice);
    let call = echo_call(7.into(), &"y".repeat(length)).to_string();
    assert_eq!(send(&mut guarded.server.connect(), "POST", &alices, &call).status(), 200);
    drop(stalled);
    guarded.assert_unharmed();
}

/// The same of whoever asks for much and reads nothing.
#[test]
fn replies_that_nobody_reads_leave_room_for_others() {
    let guarded = Guarded::start(&["--memory-limit", "64MiB", "--max-body", "4MiB"]);
    let bobs = open(&guarded.server, &guarded.bob) + &bearer(&guarded.bob);
    let call = echo_call(7.into(), &"y".repeat(1024 * 1024)).to_string();
    let bytes = post("/mcp", &bobs, &call);
    let mut deaf: Vec<_> = (0..40)
        .map(|_| {
            let mut connection = Connection::open_narrow(guarded.server.address(), 4096);
            connection.send_unheard(&bytes);
            connection
        })
        .collect();
    until("some are told to read their replies, or are refused", || {
        deaf.retain_mut(|connection| {
            let arrived = connection.arrived();
            !arrived.starts_with(b"HTTP/1.1 429 ") && !arrived.windows(8).any(|part| part == b"\"code\":-")
        });
        deaf.len() <= 10
    });
    let alices = guarded.session.clone() + &bearer(&guarded.alice);
    assert_eq!(send(&mut guarded.server.connect(), "POST", &alices, &call).status(), 200);
    open(&guarded.server, &guarded.alice);
    drop(deaf);
    guarded.assert_unharmed();
}

/// And of whoever asks in many sessions and hangs up: what it did not take is kept for it, as far as that leaves room.
#[test]
fn replies_that_nobody_stays_for_leave_room_for_others() {
    let guarded = Guarded::start(&["--memory-limit", "64MiB", "--max-body", "4MiB"]);
    let call = echo_call(7.into(), &"y".repeat(1024 * 1024)).to_string();
    for _ in 0..80 {
        let bobs = open(&guarded.server, &guarded.bob) + &bearer(&guarded.bob);
        let mut connection = Connection::open_narrow(guarded.server.address(), 4096);
        connection.send_unheard(&post("/mcp", &bobs, &call));
        until("the reply begins", || !connection.arrived().is_empty());
        connection.leave(Leave::Rst);
    }
    let alices = open(&guarded.server, &guarded.alice) + &bearer(&guarded.alice);
    assert_eq!(send(&mut guarded.server.connect(), "POST", &alices, &call).status(), 200);
    guarded.assert_unharmed();
}

#[test]
fn strangers_in_numbers_cost_nobody_else_anything() {
    let flags =
        ["--max-connections-per-address", "400", "--max-bad-token-rate", "5", "--max-session-rate", "5"];
    let guarded = Guarded::start(&flags);
    let address = guarded.server.address();
    // Connections that say nothing, then half a head, a byte at a time.
    let mut silent: Vec<Connection> = (0..100).map(|_| Connection::open(address)).collect();
    for connection in &mut silent {
        b"POST /mcp HT".iter().for_each(|byte| connection.send([*byte]));
    }
    // Bad tokens: 429 after a while, and all good ones are let in.
    let mut statuses = Vec::new();
    for guess in 0..300 {
        let guess = bearer(&format!("guess{guess}"));
        let reply = send(&mut guarded.server.connect(), "POST", &guess, INITIALIZE);
        assert_eq!(reply.status() == 429, reply.head.field("retry-after").is_some());
        statuses.push(reply.status());
    }
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    assert!((50..200).contains(&looked_at) && statuses.contains(&429), "{looked_at} of 300");
    assert_eq!(ping(&guarded.server, &guarded.session, &guarded.alice), 200);
    until("bob gets in", || {
        send(&mut guarded.server.connect(), "POST", &bearer(&guarded.bob), INITIALIZE).status() == 200
    });
    // Sessions: one more than their pace is 429, and alice's is served meanwhile.
    let begin = || send(&mut guarded.server.connect(), "POST", &bearer(&guarded.bob), INITIALIZE).status();
    until("he begins too many", || begin() == 429);
    assert_eq!(ping(&guarded.server, &guarded.session, &guarded.alice), 200);
    // Ten thousand requests without a token whose replies nobody reads.
    let mut deaf = Connection::open_narrow(address, 4096);
    deaf.send_while_taken(&post("/mcp", "", INITIALIZE).repeat(10_000), Duration::from_millis(300));
    assert_eq!(ping(&guarded.server, &guarded.session, &guarded.alice), 200);
    deaf.leave(Leave::Rst);
    drop(silent);
    guarded.assert_unharmed();
}
