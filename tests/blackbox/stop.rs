//! How the server ends, and how it refuses to begin.

use super::{
    PATIENCE,
    admin::metric,
    events::{EventStream, Next},
    server::{Server, command, exit_within},
    session::{NEWEST, Session, answer, initialize, post, slow_call},
    until,
    wire::Fill,
};
use moorline::limits::NEWCOMERS_WAIT_MS;
use rustix::process::Signal;
use serde_json::json;
use std::{
    net::TcpListener,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

#[test]
fn a_signal_ends_listeners_cleanly_and_lets_calls_finish() {
    for (signal, shards) in [(Signal::TERM, "1"), (Signal::INT, "2"), (Signal::TERM, "4")] {
        let mut server = Server::start(&["--shards", shards]);
        let session = Session::open(server.address());
        let listener = session.listen();
        let shadow = session.listen();
        let mut caller = server.connect();
        caller.send(session.post_bytes(&slow_call(json!(1), 1.0, 4)));
        let head = caller.final_head();
        server.signal(signal);
        // Neither may be cut: both bodies have their last chunk.
        listener.until_end();
        shadow.until_end();
        let events = EventStream::new(caller, &head).until_end();
        assert!(events.iter().filter(|event| event.is_message()).any(|event| event.json()["id"] == 1));
        assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
        let summary = "stopped streams_ended=2 sessions_ended=1 calls_cut=0";
        assert_eq!(server.log().matches(summary).count(), 1, "{}", server.log());
    }
}

#[test]
fn a_call_answered_as_json_finishes_too() {
    let mut server = Server::start(&["--response-mode", "json", "--admin-listen", "127.0.0.1:0"]);
    let session = Session::open(server.address());
    let mut caller = server.connect();
    caller.send(session.post_bytes(&slow_call(json!(1), 2.0, 1)));
    until("the call is under way", || metric(&server, "moorline_calls_in_flight", None) > 0.5);
    server.signal(Signal::TERM);
    assert_eq!(answer(&caller.response("POST"))["id"], 1);
    assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
}

#[test]
fn known_sessions_are_served_until_their_calls_have_finished() {
    for shards in ["1", "2", "4"] {
        let mut server = Server::start(&["--shards", shards, "--drain", "60s"]);
        let session = Session::open(server.address());
        let mut caller = server.connect();
        caller.send(session.post_bytes(&slow_call(json!(1), 60.0, 600)));
        let head = caller.final_head();
        server.signal(Signal::TERM);
        let newcomer = || {
            let mut connection = server.connect();
            connection.send(post(&initialize(NEWEST), &[]));
            connection.response("POST").status()
        };
        // Each on a connection of its own, which any shard may take, until all of them know.
        let deadline = Instant::now() + PATIENCE;
        while (0..8).map(|_| newcomer()).any(|status| status != 503) {
            assert!(Instant::now() < deadline, "new sessions are still taken");
        }
        for _ in 0..8 {
            assert_eq!(session.ping_status(), 200);
            assert_eq!(session.get_status(), 503, "no new listener");
        }
        assert!(server.is_running(), "the call still runs");
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(session.post(&cancel).status(), 202);
        EventStream::new(caller, &head).until_end();
        assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
    }
}

#[test]
fn an_idle_server_stops_at_once() {
    let mut server = Server::start(&[]);
    let session = Session::open(server.address());
    let mut idle = server.connect();
    session.call_on(&mut idle, "echo", &json!({"message": "kept alive"}));
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(matches!(idle.rest().1, Fill::Closed | Fill::Reset));
}

#[test]
fn whoever_came_last_is_answered() {
    let is_heard = |shards: &str| {
        let mut server = Server::start(&["--shards", shards, "--admin-listen", "127.0.0.1:0"]);
        let mut newcomers: Vec<_> = (0..4).map(|_| server.connect()).collect();
        until("they are accepted", || metric(&server, "moorline_connections_open", None) > 3.5);
        let start = Instant::now();
        server.signal(Signal::TERM);
        until("it stops", || server.log().contains("stopping"));
        for newcomer in &mut newcomers {
            newcomer.send(post(&initialize(NEWEST), &[]));
        }
        // On a machine that held this test up for so long the server need not wait.
        if start.elapsed() > Duration::from_millis(NEWCOMERS_WAIT_MS / 2) {
            return false;
        }
        for mut newcomer in newcomers {
            let reply = newcomer.response("POST");
            assert_eq!(reply.status(), 503, "not an end without a word");
        }
        assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
        true
    };
    for shards in ["1", "2"] {
        assert!((0..100).any(|_| is_heard(shards)), "no chance to see");
    }
}

#[test]
fn the_grace_period_bounds_a_stop() {
    let mut server = Server::start(&["--drain", "500ms"]);
    let session = Session::open(server.address());
    let mut caller = server.connect();
    caller.send(session.post_bytes(&slow_call(json!(1), 60.0, 600)));
    let head = caller.final_head();
    server.signal(Signal::TERM);
    // It did not finish, yet its stream ends as any other.
    let events = EventStream::new(caller, &head).until_end();
    assert!(events.iter().filter(|event| event.is_message()).all(|event| event.json().get("id").is_none()));
    assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--drain", "60s"]);
    let session = Session::open(server.address());
    let mut listener = session.listen();
    let mut caller = server.connect();
    caller.send(session.post_bytes(&slow_call(json!(1), 60.0, 600)));
    caller.final_head();
    server.signal(Signal::TERM);
    while let Next::Event(_) = listener.next_within(PATIENCE) {}
    assert!(server.is_running(), "the call still runs");
    server.signal(Signal::TERM);
    server.exit_within(Duration::from_secs(2));
}

#[test]
fn a_taken_port_is_one_line_and_exit_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("a bound socket has an address").to_string();
    refuses_to_start(&["--listen", &address], 3, &address);
}

#[test]
fn a_port_of_another_instance_is_taken() {
    let server = Server::start(&[]);
    let address = server.address().to_string();
    refuses_to_start(&["--listen", &address], 3, &address);
    assert_eq!(Session::open(server.address()).ping_status(), 200);
}

#[test]
fn a_foreign_address_is_exit_code_3() {
    // TEST-NET-1 is assigned to no host (RFC 5737).
    refuses_to_start(&["--listen", "192.0.2.1:8080", "--allow-anonymous"], 3, "192.0.2.1:8080");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for flags in [["--no-such-flag", "1"], ["--shards", "many"], ["--keep-alive", "soon"]] {
        let (status, text) = failed_start(&flags);
        assert_eq!(status.code(), Some(2), "{flags:?}: {text}");
        assert!(!text.is_empty());
    }
}

/// Starts the binary and expects exit code `code` and one line on stderr that names `cause`.
fn refuses_to_start(flags: &[&str], code: i32, cause: &str) {
    let (status, text) = failed_start(flags);
    assert_eq!(status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(cause), "{text}");
}

/// The exit status and the messages of a start that comes to nothing.
fn failed_start(flags: &[&str]) -> (ExitStatus, String) {
    let mut child = command(flags).stderr(Stdio::piped()).spawn().expect("the binary under test starts");
    let status = exit_within(&mut child, PATIENCE);
    let output = child.wait_with_output().expect("its output can be read");
    (status, String::from_utf8(output.stderr).expect("messages are UTF-8"))
}
