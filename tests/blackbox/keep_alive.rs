//! Comments keep every stream alive, and nothing but comments does.

use super::{
    PATIENCE, QUIET,
    events::{EventStream, Next},
    server::Server,
    session::{NEWEST, Session, slow_call},
    wire::{Connection, Leave},
};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn every_get_stream_gets_comments() {
    let server = Server::start(&["--keep-alive", "200ms"]);
    let session = Session::open(server.address());
    let cursor = session.finished_cursors(1).remove(0);
    let mut streams = [session.listen(), session.listen(), session.listen_from(Some(&cursor))];
    streams.iter_mut().for_each(skip_opening);
    for _ in 0..3 {
        for stream in &mut streams {
            stream.comment_within(PATIENCE);
            assert_eq!(stream.comments.last().map(String::as_str), Some("keepalive"));
        }
    }
}

#[test]
fn a_waiting_call_gets_comments() {
    let server = Server::start(&["--keep-alive", "200ms", "--sse-after", "50ms"]);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    connection.send(session.post_bytes(&slow_call(json!(1), 2.0, 1)));
    let head = connection.final_head();
    let mut stream = EventStream::new(connection, &head);
    skip_opening(&mut stream);
    stream.comment_within(PATIENCE);
    stream.comment_within(PATIENCE);
    assert!(stream.until_end().iter().any(|event| event.is_message()));
}

#[test]
fn comments_come_at_their_interval() {
    let server = Server::start(&["--keep-alive", "500ms"]);
    let mut stream = Session::open(server.address()).listen();
    skip_opening(&mut stream);
    let start = Instant::now();
    for _ in 0..3 {
        stream.comment_within(PATIENCE);
    }
    // The upper bound of three intervals is generous: the machine may be busy, the server must not be early.
    let time = start.elapsed();
    assert!(time > Duration::from_millis(900) && time < Duration::from_secs(6), "{time:?}");
}

#[test]
fn zero_means_none() {
    let server = Server::start(&["--keep-alive", "0"]);
    let mut stream = Session::open(server.address()).listen();
    skip_opening(&mut stream);
    let known = stream.comments.len();
    assert_eq!(stream.next_within(Duration::from_secs(2)), Next::Silence);
    assert_eq!(stream.comments.len(), known);
}

#[test]
fn abrupt_re_attachments_leave_one_source_of_comments() {
    let server = Server::start(&["--keep-alive", "300ms"]);
    let session = Session::open(server.address());
    let mut cursor = None;
    for _ in 0..50 {
        let mut stream = session.listen_from(cursor.as_deref());
        skip_opening(&mut stream);
        cursor = stream.last_id.clone().or(cursor);
        stream.leave(Leave::Rst);
    }
    let mut stream = session.listen_from(cursor.as_deref());
    skip_opening(&mut stream);
    let known = stream.comments.len();
    assert_eq!(stream.next_within(Duration::from_millis(3_000)), Next::Silence);
    let comments = stream.comments.len() - known;
    assert!((5..=11).contains(&comments), "{comments} comments in ten intervals");
}

#[test]
fn an_attached_stream_keeps_its_session() {
    let server = Server::start(&["--session-idle-timeout", "500ms", "--keep-alive", "200ms"]);
    let session = Session::open(server.address());
    let mut stream = session.listen();
    skip_opening(&mut stream);
    for _ in 0..8 {
        stream.comment_within(PATIENCE);
    }
    session.notify();
    stream.message();
}

#[test]
fn a_running_call_keeps_its_session() {
    let server = Server::start(&["--session-idle-timeout", "300ms"]);
    let session = Session::open(server.address());
    let answer = session.call("slow", &json!({"seconds": 1.5, "steps": 1}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(session.ping_status(), 200);
}

#[test]
fn the_opening_comment_stands_in_for_a_priming_event() {
    let server = Server::start(&[]);
    for (revision, primed) in [("2025-03-26", false), ("2025-06-18", false), (NEWEST, true)] {
        let session = Session::open_with(server.address(), revision);
        let mut connection = Connection::open(server.address());
        connection.send(session.get_bytes(None));
        let head = connection.final_head();
        let mut stream = EventStream::new(connection, &head);
        match stream.next_within(QUIET) {
            Next::Event(event) => {
                assert!(primed, "{revision}: {event:?}");
                assert!(event.id.as_deref().is_some_and(|id| id.ends_with("-0")), "{event:?}");
                assert_eq!((event.retry_ms, event.is_message()), (Some(3_000), false));
            }
            Next::Silence => assert!(!primed && stream.comments.len() == 1, "{revision}"),
            other => panic!("{revision}: {other:?}"),
        }
    }
}

/// Reads what a stream opens with: a priming event or a comment, and any comment of a probe.
fn skip_opening(stream: &mut EventStream) {
    loop {
        match stream.next_within(Duration::from_millis(50)) {
            Next::Event(event) => assert!(!event.is_message(), "{event:?}"),
            Next::Silence => return,
            other => panic!("{other:?}"),
        }
    }
}
