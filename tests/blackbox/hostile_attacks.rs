//! Hostile clients against the running server, each beside one that behaves.
//!
//! After every attack the bystander must have been served, its stream must still carry each message once, memory and
//! descriptors must be back near the start, and nothing may have panicked. `MOORLINE_TEST_HOSTILE_FACTOR` makes the floods
//! longer.

use super::{
    PATIENCE,
    events::EventStream,
    server::Server,
    session::{Session, answer, echo_call, initialize, ping, post, request, slow_call},
    until,
    wire::{Connection, Fill, Leave},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More than any table, pool or allocator keeps of an attack that left nothing.
const MEMORY_SLACK_KIB: u64 = 24 * 1024;
/// Connections that the kernel has not told the server about yet.
const FILES_SLACK: usize = 4;

/// A client that behaves, and the server's state when it came.
struct Bystander<'a> {
    server: &'a Server,
    session: Session,
    listener: EventStream,
    memory_kib: u64,
    files: usize,
}

impl<'a> Bystander<'a> {
    fn arrive(server: &'a Server) -> Self {
        let session = Session::open(server.address());
        let listener = session.listen();
        let (memory_kib, files) = (memory_kib(server), files(server));
        Bystander { server, session, listener, memory_kib, files }
    }

    /// It gets an answer while the attack goes on.
    fn is_served(&self) {
        let start = Instant::now();
        assert_eq!(self.session.ping_status(), 200);
        assert!(start.elapsed() < PATIENCE / 2, "served after {:?}", start.elapsed());
    }

    /// The attack is over and has left nothing.
    fn leaves_unharmed(mut self) {
        self.is_served();
        self.session.notify();
        self.listener.message();
        until("descriptors are back", || files(self.server) <= self.files + FILES_SLACK);
        let memory_kib = memory_kib(self.server);
        assert!(
            memory_kib <= self.memory_kib + MEMORY_SLACK_KIB,
            "{memory_kib} KiB after {} KiB",
            self.memory_kib
        );
        let log = self.server.log();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    }
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs").count()
}

fn factor() -> usize {
    let text = std::env::var("MOORLINE_TEST_HOSTILE_FACTOR").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The head of a POST without its end.
const OPEN_HEAD: &str = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

// --- Slow ---------------------------------------------------------------------------------------

#[test]
fn slow_senders_are_let_go_while_others_are_served() {
    let server = Server::start(&["--shards", "1", "--header-timeout", "600ms", "--body-timeout", "600ms"]);
    let bystander = Bystander::arrive(&server);
    let starts = [
        "GET /",
        OPEN_HEAD,
        &format!("{OPEN_HEAD}Content-Length: 9999\r\n\r\n"),
        &format!("{OPEN_HEAD}Transfer-Encoding: chunked\r\n\r\n3e8\r\n"),
    ];
    let mut slow: Vec<Connection> = (0..60)
        .map(|index| {
            let mut connection = server.connect();
            connection.send(starts[index % starts.len()]);
            connection
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    while slow.iter_mut().any(|connection| connection.arrived().is_empty()) {
        assert!(Instant::now() < end, "a slow sender is still waited for");
        for connection in &mut slow {
            connection.send_unheard(b"x");
        }
        bystander.is_served();
    }
    for mut connection in slow {
        assert_eq!(connection.response("POST").status(), 408);
    }
    bystander.leaves_unharmed();
}

#[test]
fn endless_heads_bodies_and_trailers_are_refused_while_they_come() {
    let server = Server::start(&["--shards", "2", "--max-body", "64KiB"]);
    let bystander = Bystander::arrive(&server);
    let chunked = format!("{OPEN_HEAD}Transfer-Encoding: chunked\r\n\r\n");
    let last_chunk = format!("{chunked}0\r\n");
    let attacks = [
        ("GET /", "aaaaaaaaaaaaaaaa", 414),
        (OPEN_HEAD, "X: y\r\n", 431),
        (OPEN_HEAD, "xxxxxxxxxxxxxxxx", 431),
        (chunked.as_str(), "1\r\n[\r\n", 413),
        (chunked.as_str(), "1;xxxxxxxxxxxxxxxxxxxxxxxx\r\n[\r\n", 400),
        (last_chunk.as_str(), "X: y\r\n", 431),
    ];
    for (start, more, status) in attacks {
        let mut connection = server.connect();
        connection.send(start);
        // Far more than any bound; the server stops reading before.
        connection.send_while_taken(more.repeat(1_000_000 / more.len()).as_bytes(), PATIENCE);
        let (bytes, _) = connection.rest();
        let text = String::from_utf8_lossy(&bytes);
        // Closed with input left, its reply may be destroyed on its way; another one is never sent.
        assert!(text.is_empty() || text.starts_with(&format!("HTTP/1.1 {status} ")), "{more:?}: {text}");
        assert!(text.matches("HTTP/1.1").count() <= 1, "{text}");
    }
    bystander.leaves_unharmed();
}

// --- Sessions -----------------------------------------------------------------------------------

/// Ten thousand ids, many times that in the long run.
#[test]
fn unknown_session_ids_cost_nothing() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    let message = ping(json!(1));
    let known = bystander.session.id.clone();
    let mut connection = server.connect();
    let mut bodies = std::collections::BTreeSet::new();
    for round in 0..100 * factor() {
        let mut bytes = Vec::new();
        for n in 0..100 {
            // The bystander's slot, other slots, other shards; never its secret.
            let id = match n % 3 {
                0 => format!("{}{:032x}", &known[..10], round * 100 + n),
                1 => format!("{}{:08x}{:032x}", &known[..2], round * 100 + n, n),
                _ => format!("{:02x}{:040x}", n, round),
            };
            bytes.extend(post(&message, &[("Mcp-Session-Id", &id)]));
        }
        connection.send(bytes);
        for _ in 0..100 {
            let response = connection.response("POST");
            assert_eq!(response.status(), 404);
            bodies.insert(response.body);
        }
    }
    assert_eq!(bodies.len(), 1, "one answer for all");
    bystander.leaves_unharmed();
}

#[test]
fn a_cursor_of_another_session_is_no_cursor() {
    let server = Server::start(&["--shards", "1"]);
    let bystander = Bystander::arrive(&server);
    let foreign = Session::open(server.address()).finished_cursors(1).remove(0);
    let mut answers = Vec::new();
    for cursor in [&foreign, "aaaaaa-l1-1", "0", "../../etc/passwd", "-1", "aaaaaa-r4294967295-4294967295"] {
        let mut connection = server.connect();
        connection.send(bystander.session.get_bytes(Some(cursor)));
        let response = connection.response("GET");
        answers.push((response.status(), response.text().to_owned()));
    }
    assert_eq!(answers[0].0, 400);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    for n in 0..500 {
        let (connection, head) =
            bystander.session.try_listen_on(server.connect(), Some(&format!("aaaaaa-l{n}-{n}")));
        assert_eq!(head.status, 400);
        connection.leave(Leave::Fin);
    }
    bystander.leaves_unharmed();
}

#[test]
fn a_flood_of_gets_locks_nobody_out() {
    let server = Server::start(&["--shards", "1"]);
    let bystander = Bystander::arrive(&server);
    let flooded = Session::open(server.address());
    let mut held = Vec::new();
    for _ in 0..100 {
        let (connection, head) = flooded.try_listen_on(server.connect(), None);
        if head.status == 200 {
            held.push(connection);
        } else {
            assert!([405, 429, 503].contains(&head.status), "{}", head.status);
        }
    }
    assert_eq!(held.len(), 32, "the cap of one session");
    bystander.is_served();
    held.into_iter().for_each(|connection| connection.leave(Leave::Rst));
    until("a place is free again", || flooded.get_status() == 200);
    assert_eq!(flooded.delete(), 204);
    bystander.leaves_unharmed();
}

#[test]
fn a_delete_ends_every_stream_of_its_session_and_no_other() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    for _ in 0..10 {
        let session = Session::open(server.address());
        let mut open: Vec<Connection> =
            (0..10).map(|_| session.try_listen_on(server.connect(), None).0).collect();
        for n in 0..10 {
            let mut connection = server.connect();
            connection.send(session.post_bytes(&slow_call(json!(n), 30.0, 1000)));
            open.push(connection);
        }
        assert_eq!(session.delete(), 204);
        for connection in &mut open {
            connection.finish_sending();
            assert_eq!(connection.rest().1, Fill::Closed, "a stream ends in order");
        }
        assert_eq!((session.ping_status(), session.get_status(), session.delete()), (404, 404, 404));
    }
    bystander.leaves_unharmed();
}

/// Ids are credentials: at the most talkative level none is in the log, whatever is done with it.
#[test]
fn no_session_id_is_ever_logged() {
    let mut server = Server::start(&["--shards", "2", "--log-level", "trace"]);
    let session = Session::open(server.address());
    let (id, unknown) = (session.id.clone(), "0123456789abcdef".repeat(3)[..42].to_owned());
    session.call_on(&mut server.connect(), "echo", &json!({"message": "x"}));
    let listener = session.listen();
    session.notify();
    drop(listener);
    let mut connection = server.connect();
    connection.send(post(&ping(json!(1)), &[("Mcp-Session-Id", &unknown)]));
    assert_eq!(connection.response("POST").status(), 404);
    assert_eq!(session.delete(), 204);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.exit_within(PATIENCE).success());
    let log = server.log();
    for secret in [&id[10..], &unknown[10..]] {
        assert!(!log.contains(secret), "{log}");
    }
}

// --- Messages -----------------------------------------------------------------------------------

#[test]
fn bodies_that_are_no_messages_are_refused_and_the_connection_goes_on() {
    let server = Server::start(&["--shards", "1"]);
    let bystander = Bystander::arrive(&server);
    let deep = "[".repeat(200_000);
    let wide = format!("[{}1]", "1,".repeat(200_000));
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "i".repeat(100_000));
    let big_id = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, "9".repeat(100_000));
    let bodies: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\xff\xfe{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        deep.as_bytes(),
        wide.as_bytes(),
        long_id.as_bytes(),
        big_id.as_bytes(),
        br#"{"jsonrpc":"2.0","id":1e999,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}"#,
        br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
    ];
    let mut connection = server.connect();
    for body in bodies {
        let length = body.len().to_string();
        let mut fields = bystander.session.fields().to_vec();
        fields.extend([("Content-Type", "application/json"), ("Content-Length", length.as_str())]);
        connection.send([&request("POST", &fields, ""), body].concat());
        let response = connection.response("POST");
        assert_eq!(response.status(), 400, "{}", body[..body.len().min(60)].escape_ascii());
        let id = &response.json()["id"];
        assert!(id.is_null() || id == 1, "an id that is none is not repeated: {id}");
        assert!(response.body.len() < 2_000, "an answer does not grow with the attack");
    }
    assert_eq!(bystander.session.post_on(&mut connection, &ping(json!(2))).status(), 200);
    bystander.leaves_unharmed();
}

#[test]
fn storms_of_cancellations_answers_and_calls_are_taken() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    for round in 0..20 * factor() {
        let mut bytes = Vec::new();
        for n in 0..50 {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n}});
            let unasked = json!({"jsonrpc": "2.0", "id": round * 50 + n, "result": {}});
            bytes.extend(session.post_bytes(&cancelled));
            bytes.extend(session.post_bytes(&unasked));
        }
        connection.send(bytes);
        (0..100).for_each(|_| assert_eq!(connection.response("POST").status(), 202));
    }
    // Calls of whom nobody waits for the answer, then the cancellation of each.
    for n in 0..200 {
        let mut caller = server.connect();
        caller.send(session.post_bytes(&slow_call(json!(n), 60.0, 1)));
        caller.leave(Leave::Rst);
    }
    bystander.is_served();
    assert_eq!(session.delete(), 204);
    bystander.leaves_unharmed();
}

// --- Connections --------------------------------------------------------------------------------

#[test]
fn ten_thousand_pipelined_requests_whose_replies_nobody_reads_are_bounded() {
    let server = Server::start(&["--shards", "1", "--write-timeout", "1s", "--replay-ttl", "40s"]);
    let bystander = Bystander::arrive(&server);
    let bytes = bystander.session.post_bytes(&echo_call(json!(1), &"x".repeat(300))).repeat(10_000);
    let mut flooding: Vec<Connection> =
        (0..4).map(|_| Connection::open_narrow(server.address(), 4096)).collect();
    let before_kib = memory_kib(&server);
    for connection in &mut flooding {
        connection.send_while_taken(&bytes, Duration::from_millis(300));
        bystander.is_served();
    }
    assert!(
        memory_kib(&server) < before_kib + MEMORY_SLACK_KIB,
        "replies pile up: {} KiB",
        memory_kib(&server)
    );
    until("who does not read is cut", || files(&server) <= bystander.files + FILES_SLACK);
    drop(flooding);
    bystander.leaves_unharmed();
}

#[test]
fn ten_thousand_pipelined_requests_are_answered_in_order() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    let mut connection = server.connect();
    for round in 0..20 * factor() {
        let calls = (0..100).map(|n| bystander.session.post_bytes(&ping(json!(round * 100 + n))));
        connection.send(calls.collect::<Vec<_>>().concat());
        for n in 0..100 {
            assert_eq!(answer(&connection.response("POST"))["id"], round * 100 + n);
        }
    }
    bystander.leaves_unharmed();
}

#[test]
fn large_replies_that_nobody_reads_are_given_up() {
    let server = Server::start(&["--shards", "1", "--write-timeout", "1s", "--fresh-get-fallback", "off"]);
    let bystander = Bystander::arrive(&server);
    let large = bystander.session.post_bytes(&echo_call(json!(1), &"x".repeat(400_000)));
    let mut peaks = Vec::new();
    for _ in 0..3 {
        let mut stalled: Vec<Connection> =
            (0..6).map(|_| Connection::open_narrow(server.address(), 4096)).collect();
        stalled.iter_mut().for_each(|connection| connection.send(&large));
        bystander.is_served();
        peaks.push(memory_kib(&server));
        until("who does not read is cut", || files(&server) <= bystander.files + FILES_SLACK);
    }
    assert!(peaks[2] < peaks[0] + MEMORY_SLACK_KIB, "each round keeps something: {peaks:?}");
    assert_eq!(bystander.session.ping_status(), 200);
}

/// Every state a connection can be in, left in every way.
#[test]
fn peers_may_leave_in_any_state() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    let session = Session::open(server.address());
    let whole = session.post_bytes(&slow_call(json!(1), 0.05, 2));
    let head = whole.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let expecting = format!("{OPEN_HEAD}Content-Length: 10\r\nExpect: 100-continue\r\n\r\n").into_bytes();
    let chunked = format!("{OPEN_HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhel").into_bytes();
    let states: [Vec<u8>; 12] = [
        Vec::new(),
        b"\r\n".to_vec(),
        whole[..7].to_vec(),
        whole[..head - 1].to_vec(),
        whole[..head].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        whole.clone(),
        [&whole[..], &whole[..]].concat(),
        [&whole[..], &whole[..20]].concat(),
        session.get_bytes(None),
        expecting,
        chunked,
    ];
    for state in &states {
        for _ in 0..4 * factor() {
            for how in [Leave::Fin, Leave::Rst] {
                let mut connection = server.connect();
                connection.send(state);
                connection.leave(how);
            }
            let mut connection = server.connect();
            connection.send(state);
            connection.finish_sending();
            let (bytes, end) = connection.rest();
            assert_ne!(end, Fill::TimedOut, "a half-close after {} leaves it open", state.escape_ascii());
            assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 "));
        }
    }
    assert_eq!(session.delete(), 204);
    bystander.leaves_unharmed();
}

/// Replies that come before the body was sent: what comes then is never a request.
#[test]
fn what_follows_an_early_refusal_is_not_parsed() {
    let server = Server::start(&["--shards", "2", "--max-body", "64KiB"]);
    let bystander = Bystander::arrive(&server);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let id = &bystander.session.id;
    let length = smuggled.len();
    let heads = [
        format!("{OPEN_HEAD}Accept: image/png\r\nMcp-Session-Id: {id}\r\nContent-Length: {length}\r\n\r\n"),
        format!("{OPEN_HEAD}Content-Length: 65537\r\n\r\n"),
        format!("{OPEN_HEAD}Expect: miracles\r\nContent-Length: {length}\r\n\r\n"),
        format!("{OPEN_HEAD}Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n"),
        format!("POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"),
        format!(
            "POST http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        ),
        format!(
            "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {}\r\nContent-Length: {length}\r\n\r\n",
            "0".repeat(42)
        ),
        "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        format!("HEAD /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"),
    ];
    for head in &heads {
        let mut connection = server.connect();
        connection.send(head);
        let method = head.split(' ').next().expect("a method");
        let response = connection.response(method);
        connection.send_unheard(smuggled.as_bytes());
        let (rest, _) = if response.head.closes() { connection.rest() } else { (Vec::new(), Fill::Closed) };
        assert!(response.head.closes(), "goes on after {head}");
        assert!(rest.is_empty(), "{head}: {}", rest.escape_ascii());
    }
    bystander.leaves_unharmed();
}

// --- Running out --------------------------------------------------------------------------------

#[test]
fn churn_at_the_open_file_limit_is_survived() {
    let server = Server::start_with_files(256, &["--shards", "1", "--header-timeout", "2s"]);
    let bystander = Bystander::arrive(&server);
    for round in 0..3 * factor() {
        let silent: Vec<Connection> = (0..400).map(|_| server.connect()).collect();
        let how = if round % 2 == 0 { Leave::Rst } else { Leave::Fin };
        silent.into_iter().for_each(|connection| connection.leave(how));
        until("newcomers are served again", || is_welcome(&server));
    }
    assert!(files(&server) < 256);
    bystander.leaves_unharmed();
}

/// The limit is lowered under the running server: the kernel has no descriptor for a newcomer, who is told so.
#[test]
fn a_host_without_descriptors_is_survived() {
    let server = Server::start(&["--shards", "1"]);
    let bystander = Bystander::arrive(&server);
    let limit = u64::try_from(files(&server)).expect("a few") + 8;
    limit_files(&server, limit);
    let hoard: Vec<Connection> = (0..30).map(|_| server.connect()).collect();
    until("the server notices", || server.log().contains("no descriptor is left"));
    assert!(
        server.log().matches("no descriptor is left").count() <= 2,
        "it does not fill the log: {}",
        server.log()
    );
    drop(hoard);
    until("newcomers are served again", || is_welcome(&server));
    limit_files(&server, 1024);
    bystander.leaves_unharmed();
}

fn limit_files(server: &Server, files: u64) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid()).expect("a pid"));
    let limit = rustix::process::Rlimit { current: Some(files), maximum: Some(1024.max(files)) };
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).expect("it is our child");
}

/// Whether a newcomer gets a session, which it ends again.
fn is_welcome(server: &Server) -> bool {
    let mut connection = server.connect();
    connection.send_unheard(&post(&initialize("2025-11-25"), &[]));
    let (bytes, _) = {
        connection.finish_sending();
        connection.rest()
    };
    bytes.starts_with(b"HTTP/1.1 200")
}

#[test]
fn sessions_beyond_the_cap_are_refused_and_nobody_is_evicted() {
    let server = Server::start(&["--shards", "2", "--max-sessions", "50", "--handshake-timeout", "1s"]);
    let bystander = Bystander::arrive(&server);
    let mut statuses = Vec::new();
    for _ in 0..100 {
        let mut connection = server.connect();
        connection.send(post(&initialize("2025-11-25"), &[]));
        let response = connection.response("POST");
        if response.status() == 503 {
            assert!(response.head.field("retry-after").is_some());
        }
        statuses.push(response.status());
    }
    let count = |status| statuses.iter().filter(|known| **known == status).count();
    assert_eq!((count(200), count(503)), (49, 51), "the bystander's is one of fifty");
    bystander.is_served();
    // Nobody went on with them.
    until("abandoned sessions are gone", || is_welcome(&server));
    bystander.leaves_unharmed();
}

/// Bodies that were promised and never come are no reason to refuse anybody else.
#[test]
fn announced_bodies_shut_nobody_out() {
    let server = Server::start(&["--shards", "2", "--memory-limit", "8MiB", "--max-body", "4MiB"]);
    let bystander = Bystander::arrive(&server);
    let session = Session::open(server.address());
    let length = (4 * 1024 * 1024).to_string();
    let mut fields = session.fields().to_vec();
    fields.extend([
        ("Content-Type", "application/json"),
        ("Expect", "100-continue"),
        ("Content-Length", &length),
    ]);
    let head = request("POST", &fields, "");
    let mut promising: Vec<Connection> = (0..100 * factor()).map(|_| server.connect()).collect();
    for connection in &mut promising {
        connection.send(&head);
        assert_eq!(connection.head().status, 100, "it is waited for");
    }
    let newcomer = Session::open(server.address());
    let large = echo_call(json!(1), &"x".repeat(1024 * 1024));
    assert_eq!(newcomer.post(&large).status(), 200);
    assert_eq!((newcomer.delete(), session.delete()), (204, 204));
    drop(promising);
    bystander.leaves_unharmed();
}

#[test]
fn announcements_to_everyone_are_bounded_in_memory() {
    let server = Server::start(&["--shards", "2"]);
    let bystander = Bystander::arrive(&server);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    let notify: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "notify", "arguments": {"kind": "message", "scope": "all"}}});
    for _ in 0..20 * factor() {
        connection.send(session.post_bytes(&notify).repeat(50));
        (0..50).for_each(|_| assert_eq!(connection.response("POST").status(), 200));
    }
    bystander.is_served();
    assert!(memory_kib(&server) < bystander.memory_kib + MEMORY_SLACK_KIB);
    assert_eq!(session.delete(), 204);
}
