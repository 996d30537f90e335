//! Connections that serve sessions of other shards than the one they landed on.

use super::{
    server::Server,
    session::{Session, answer, echo_call, text_of},
    wire::Leave,
};
use serde_json::json;
use std::collections::BTreeMap;

/// One session on each of the server's shards: sessions are opened until there is one everywhere.
fn one_session_per_shard(server: &Server, shards: usize) -> Vec<Session> {
    let mut found = BTreeMap::new();
    for _ in 0..500 {
        let session = Session::open(server.address());
        assert!(usize::from(session.shard()) < shards, "a session on shard {}", session.shard());
        found.entry(session.shard()).or_insert(session);
        if found.len() == shards {
            return found.into_values().collect();
        }
    }
    panic!("sessions only on shards {:?}", found.keys());
}

#[test]
fn sessions_live_on_every_shard() {
    for shards in [1, 2, 4] {
        let server = Server::start(&["--shards", &shards.to_string()]);
        assert_eq!(one_session_per_shard(&server, shards).len(), shards);
    }
}

/// Every request after the first finds its connection on the wrong shard.
#[test]
fn one_connection_serves_sessions_of_all_shards_in_turn() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = one_session_per_shard(&server, 4);
    let mut connection = server.connect();
    for round in 0..25 {
        for session in &sessions {
            let message = format!("round {round}");
            let response = session.post_on(&mut connection, &echo_call(json!(round), &message));
            assert_eq!(text_of(&answer(&response)), message);
        }
    }
}

/// The same with all requests sent at once: bytes already read move along, and the order holds.
#[test]
fn pipelined_requests_to_all_shards_are_answered_in_order() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = one_session_per_shard(&server, 4);
    let mut connection = server.connect();
    let calls: Vec<_> = (0..40).map(|i| (&sessions[i * 7 % 4], format!("call {i}"))).collect();
    let bytes: Vec<u8> = calls
        .iter()
        .flat_map(|(session, message)| session.post_bytes(&echo_call(json!(1), message)))
        .collect();
    connection.send(bytes);
    for (_, message) in &calls {
        assert_eq!(text_of(&answer(&connection.response("POST"))), *message);
    }
}

/// A listener opened on a connection that last served another shard hears its session's messages once.
#[test]
fn a_listener_moves_to_its_session() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = one_session_per_shard(&server, 4);
    for (i, session) in sessions.iter().enumerate() {
        let mut connection = server.connect();
        let elsewhere = &sessions[(i + 1) % 4];
        elsewhere.call_on(&mut connection, "echo", &json!({"message": "from elsewhere"}));
        let mut listener = session.listen_on(connection, None);
        session.notify();
        listener.message();
        listener.stays_silent();
    }
}

/// Connections that leave while they move harm nobody.
#[test]
fn connections_may_leave_on_the_way() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = one_session_per_shard(&server, 4);
    for round in 0..200 {
        let mut connection = server.connect();
        connection.send(sessions[round % 4].post_bytes(&echo_call(json!(1), "gone")));
        connection.leave(if round % 2 == 0 { Leave::Rst } else { Leave::Fin });
    }
    for session in &sessions {
        assert_eq!(session.ping_status(), 200);
    }
}
