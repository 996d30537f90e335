//! Clients leave: one from its request, or everybody at once, as when a network goes away or a proxy in front of thousands of
//! clients restarts.

use super::{
    raise_open_files,
    server::Server,
    session::{Session, stateless},
    until,
    wire::{Connection, Leave},
};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Several times as many as the completions that one turn of a shard takes (1,024).
const CONNECTIONS: usize = 4_000;
/// GET streams that one session holds.
const STREAMS_PER_SESSION: usize = 32;

/// One shard finds the ends of thousands of connections at once: it goes on serving, and keeps none of them.
fn leave_at_once(how: Leave) {
    raise_open_files();
    let server = Server::start_with_files(20_000, &["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let resident = Session::open(server.address());
    let mut listener = resident.listen();
    until("only the listener is connected", || open_connections(&server) == 1);
    let crowd = crowd(&server);
    until("everybody is connected", || open_connections(&server) == 1 + CONNECTIONS);
    // While it stands still the ends pile up.
    server.signal(Signal::STOP);
    for connection in crowd {
        connection.leave(how);
    }
    server.signal(Signal::CONT);
    // Asking would wake it up: whether it went on by itself shows in the first answer after it has come to rest.
    rest(&server);
    assert_eq!(open_connections(&server), 1, "nobody but the listener is connected");
    resident.notify();
    listener.message();
}

#[test]
fn thousands_close_at_once() {
    leave_at_once(Leave::Fin);
}

#[test]
fn thousands_reset_at_once() {
    leave_at_once(Leave::Rst);
}

/// Under 2026-07-28 the end of the connection is how a client cancels. An orderly close alone may be that of a client that
/// still reads, so the server has to find out, and not only when the next comment is due.
#[test]
fn a_client_that_closes_its_connection_cancels_its_request() {
    let flags = ["--shards", "1", "--keep-alive", "5m", "--admin-listen", "127.0.0.1:0"];
    let server = Server::start(&flags);
    for how in [Leave::Fin, Leave::Rst] {
        for (method, params, held) in [
            ("tools/call", json!({ "name": "slow", "arguments": { "seconds": 600 } }), IN_FLIGHT),
            ("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }), LISTENING),
        ] {
            let mut connection = server.connect();
            connection.send(stateless(method, params, &[]));
            until("the request is held", || held_count(&server, held) == 1);
            connection.leave(how);
            until("nobody works for a client that is gone", || held_count(&server, held) == 0);
        }
        let mut connection = server.connect();
        connection.send(for_json(600));
        until("the request is held", || held_count(&server, IN_FLIGHT) == 1);
        connection.leave(how);
        until("nobody works for a client that is gone", || held_count(&server, IN_FLIGHT) == 0);
    }
}

#[test]
fn a_client_of_json_alone_that_only_finished_sending_gets_its_reply() {
    let server = Server::start(&["--shards", "1"]);
    let mut connection = server.connect();
    connection.send(for_json(2));
    connection.finish_sending();
    let response = connection.response("POST");
    assert_eq!(response.status(), 200, "{}", response.text());
}

const IN_FLIGHT: &str = "moorline_calls_in_flight";

/// A slow call whose client takes nothing but JSON.
fn for_json(seconds: u32) -> Vec<u8> {
    let arguments = json!({ "seconds": seconds, "steps": 1 });
    let call = stateless("tools/call", json!({ "name": "slow", "arguments": arguments }), &[]);
    let call = String::from_utf8(call).expect("is text");
    call.replace("application/json, text/event-stream", "application/json").into_bytes()
}

const LISTENING: &str = r#"moorline_streams_held{shard="0",kind="listen"}"#;

/// Waits until no thread of the server runs or has run for a while.
fn rest(server: &Server) {
    let mut used = None;
    until("the server is at rest", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = processor_time(server.pid());
        now.is_some() && used.replace(now) == Some(now)
    });
}

/// User and system time of a process's threads, in clock ticks (`proc(5)`). `None` while one of them runs.
fn processor_time(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    threads
        .map(|thread| {
            let path = thread.expect("the directory can be read").path().join("stat");
            // Who ended meanwhile ran meanwhile.
            let line = std::fs::read_to_string(path).ok()?;
            let (_, rest) = line.rsplit_once(") ").expect("a name in parentheses");
            let fields: Vec<&str> = rest.split(' ').collect();
            let ticks = |field: &str| field.parse::<u64>().expect("a number");
            (fields[0] != "R").then(|| ticks(fields[11]) + ticks(fields[12]))
        })
        .sum()
}

/// That many connections with a listener stream each.
fn crowd(server: &Server) -> Vec<Connection> {
    let sessions: Vec<_> = (0..CONNECTIONS.div_ceil(STREAMS_PER_SESSION))
        .map(|_| Session::open_silent(server.address(), super::session::NEWEST))
        .collect();
    let mut crowd: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let mut connection = server.connect();
            connection.send(sessions[number / STREAMS_PER_SESSION].get_bytes(None));
            connection
        })
        .collect();
    for connection in &mut crowd {
        assert_eq!(connection.final_head().status, 200);
    }
    crowd
}

/// Connections to the MCP listener that the server counts as open.
fn open_connections(server: &Server) -> usize {
    held_count(server, "moorline_connections_open")
}

/// The sum of the samples that begin so.
fn held_count(server: &Server, sample: &str) -> usize {
    let mut admin = Connection::open(server.admin_address());
    admin.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let page = admin.response("GET");
    page.text()
        .lines()
        .filter(|line| line.starts_with(sample))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
        .sum()
}
