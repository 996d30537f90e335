//! Clients that reconnect as their libraries make them: nobody's arrival may end anybody's stream, and each
//! message arrives once, on one of them.

use super::{
    QUIET,
    event_source::EventSource,
    on_every_shard_count,
    server::Server,
    session::Session,
    until,
    wire::{Connection, Leave},
};
use std::time::{Duration, Instant};

/// How long settled clients are watched for another GET: `MOORLINE_TEST_QUIET_MS`, or a few retry intervals.
fn settled_time() -> Duration {
    let asked = std::env::var("MOORLINE_TEST_QUIET_MS").ok().and_then(|value| value.parse().ok());
    Duration::from_millis(asked.unwrap_or(6_000))
}

on_every_shard_count! {
    /// Two EventSources on one session and one for each of several finished calls do not chase each other.
    fn event_sources_settle(server: &Server) {
        let session = Session::open(server.address());
        let mut clients = vec![EventSource::start(&session, None)];
        for cursor in session.finished_cursors(3) {
            clients.push(EventSource::start(&session, Some(&cursor)));
        }
        clients.push(EventSource::start(&session, None));
        until("every client has its stream", || clients.iter().all(EventSource::is_open));
        send_one_each_time(&session, &clients, 1);
        no_further_gets(&clients, settled_time());
        send_one_each_time(&session, &clients, 10);
    }

    /// The cursors come first, so that one of them is primary until a plain GET arrives.
    fn plain_listeners_after_cursors_settle(server: &Server) {
        let session = Session::open(server.address());
        let cursors = session.finished_cursors(2);
        let mut clients: Vec<_> =
            cursors.iter().map(|cursor| EventSource::start(&session, Some(cursor))).collect();
        until("the cursors have their streams", || clients.iter().all(EventSource::is_open));
        send_one_each_time(&session, &clients, 1);
        clients.push(EventSource::start(&session, None));
        clients.push(EventSource::start(&session, None));
        until("every client has its stream", || clients.iter().all(EventSource::is_open));
        no_further_gets(&clients, Duration::from_secs(2));
        send_one_each_time(&session, &clients, 5);
    }

    /// A client that follows each of a hundred finished calls by a GET neither goes deaf nor is locked out.
    fn a_hundred_finished_calls_leave_room(server: &Server) {
        let session = Session::open(server.address());
        let mut listener = session.listen();
        let mut held = Vec::new();
        for cursor in session.finished_cursors(100) {
            let (connection, head) = session.try_listen_on(Connection::open(server.address()), Some(&cursor));
            match head.status {
                200 => held.push(connection),
                405 => assert!(head.field("allow").is_some_and(|allow| allow.contains("POST"))),
                status => panic!("status {status}"),
            }
        }
        assert_eq!(held.len(), 16, "the cap of streams that have nothing left to send");
        session.notify();
        assert_eq!(listener.messages_until_quiet(), 1);

        let mut newcomer = session.listen();
        listener.leave(Leave::Fin);
        session.notify();
        newcomer.message();
        newcomer.stays_silent();
    }

    /// Some editors replace their listener every few minutes, without a cursor.
    fn a_listener_reopened_again_and_again_hears_everything_once(server: &Server) {
        let session = Session::open(server.address());
        let mut sent = 0;
        let mut heard = 0;
        for round in 0..40 {
            let mut stream = session.listen();
            session.notify();
            sent += 1;
            while heard < sent {
                stream.message();
                heard += 1;
            }
            stream.leave(if round % 2 == 0 { Leave::Fin } else { Leave::Rst });
            if round % 3 == 0 {
                session.notify();
                sent += 1;
            }
        }
        let mut last = session.listen();
        assert_eq!(heard + last.messages_until_quiet(), sent);
    }

    /// The same with a cursor, as the SDKs do.
    fn a_listener_resumed_again_and_again_hears_everything_once(server: &Server) {
        let session = Session::open(server.address());
        let mut cursor = None;
        let mut sent = 0;
        let mut heard = 0;
        for round in 0..40 {
            let mut stream = session.listen_from(cursor.as_deref());
            session.notify();
            sent += 1;
            while heard < sent {
                stream.message();
                heard += 1;
            }
            cursor = stream.last_id.clone();
            assert!(cursor.is_some());
            stream.leave(if round % 2 == 0 { Leave::Fin } else { Leave::Rst });
            if round % 3 == 0 {
                session.notify();
                sent += 1;
            }
        }
        let mut last = session.listen_from(cursor.as_deref());
        assert_eq!(heard + last.messages_until_quiet(), sent);
    }

    /// Streams that are opened while their predecessor still is do not end it, and the oldest stays primary.
    fn overlapping_listeners_hear_everything_once(server: &Server) {
        let session = Session::open(server.address());
        let mut streams = Vec::new();
        for count in 1..=8 {
            streams.push(session.listen());
            session.notify();
            streams[0].message();
            assert_eq!(streams.len(), count);
        }
        streams.iter_mut().for_each(|stream| stream.stays_silent());
    }

    /// Exactly one copy in all also when the message goes to every session there is.
    fn a_broadcast_reaches_each_session_once(server: &Server) {
        let sessions: Vec<_> = (0..12).map(|_| Session::open(server.address())).collect();
        let mut streams: Vec<_> = sessions.iter().map(|session| [session.listen(), session.listen()]).collect();
        let everyone = serde_json::json!({"kind": "message", "scope": "all"});
        sessions[0].call("notify", &everyone);
        for pair in &mut streams {
            pair[0].message();
            pair.iter_mut().for_each(|stream| stream.stays_silent());
        }
    }
}

/// Sends `count` notifications and sees each arrive exactly once in all.
fn send_one_each_time(session: &Session, clients: &[EventSource], count: usize) {
    let heard = || clients.iter().map(EventSource::messages).sum::<usize>();
    for _ in 0..count {
        let before = heard();
        session.notify();
        until("the notification arrives", || heard() > before);
        std::thread::sleep(QUIET);
        assert_eq!(heard(), before + 1, "each notification arrives exactly once");
    }
}

fn no_further_gets(clients: &[EventSource], time: Duration) {
    // A client that just lost its stream comes back within its retry interval.
    until("nobody is about to reconnect", || clients.iter().all(EventSource::is_open));
    let gets = || clients.iter().map(EventSource::gets).collect::<Vec<_>>();
    let before = gets();
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(gets(), before, "somebody's stream was ended");
    }
}
