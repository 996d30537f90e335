//! Faults that were found by a seed, each cut down to the few steps that show it.
//!
//! Drives one shard by hand, so that what the shell has pulled and what it has not is part of the test.

use super::{rng::Rng, scenario::roomy, wire::Reader};
use bytes::BytesMut;
use moorline::core::{
    Ask, CallKey, ConnKey, Effect, Interest, Listening, Notification, NotificationKind, Now, ServerMethod,
    ServerRequest, ServerRequestId, SessionKey, ShardId, Tell,
    census::Census,
    config::{CoreConfig, ListenerPolicy, Priming},
    jsonrpc,
    shard::{Admission, Shard},
};
use std::sync::Arc;

struct Bench {
    shard: Shard,
    now: Now,
    id: String,
    session: Option<SessionKey>,
    calls: Vec<CallKey>,
}

impl Bench {
    /// A shard with one session of the newest revision.
    fn new(config: CoreConfig) -> Self {
        let now = Now { ms: 1_000, unix_s: 1_790_000_000 };
        let shard =
            Shard::new(ShardId(0), Arc::new(config), Arc::new(Census::new()), Box::new(Rng::new(1)), now);
        let mut bench = Bench { shard, now, id: String::new(), session: None, calls: Vec::new() };
        let conn = bench.post(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
        );
        bench.answer(
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#,
        );
        let reply = bench.write(conn);
        let (_, rest) = reply.split_once("Mcp-Session-Id: ").unwrap();
        bench.id = format!("Mcp-Session-Id: {}\r\n", rest.split_once("\r\n").unwrap().0);
        bench
    }

    fn connect(&mut self) -> ConnKey {
        match self.shard.connect(self.now) {
            Admission::Admitted(conn) => conn,
            Admission::Refused(_) => panic!("there is room"),
        }
    }

    fn send(&mut self, conn: ConnKey, text: &str) {
        self.shard.received(conn, BytesMut::from(text), self.now);
        self.pull();
    }

    fn post(&mut self, body: &str) -> ConnKey {
        let conn = self.connect();
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        let request = format!("{head}{}Content-Length: {}\r\n\r\n{body}", self.id, body.len());
        self.send(conn, &request);
        conn
    }

    fn call(&mut self) -> ConnKey {
        self.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#)
    }

    fn get(&mut self, fields: &str) -> ConnKey {
        let conn = self.connect();
        let head = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n";
        self.send(conn, &format!("{head}{}{fields}\r\n", self.id));
        conn
    }

    fn pull(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(effect) = self.shard.next_effect() {
            match effect {
                Effect::Ask(Ask::Call(call)) => {
                    self.session = call.session;
                    self.calls.push(call.key);
                }
                other => seen.push(format!("{other:?}")),
            }
        }
        self.shard.check_invariants();
        seen
    }

    fn answer(&mut self, result: &str) {
        let call = self.calls.remove(0);
        self.tell(Tell::Respond(call, Ok(result.to_owned().into())));
    }

    fn tell(&mut self, tell: Tell) {
        self.shard.tell(tell, self.now);
        self.pull();
    }

    fn announce(&mut self, kind: NotificationKind, text: &str) {
        let json =
            jsonrpc::notification("notifications/test", Some(format!(r#"{{"text":"{text}"}}"#).as_bytes()));
        let session = self.session.unwrap();
        self.tell(Tell::Announce(session, Notification { kind, json }));
    }

    /// Asks the client for a sign of life on behalf of its oldest call, under number 7.
    fn ask(&mut self) {
        let request = ServerRequest {
            id: ServerRequestId(7),
            session: self.session.unwrap(),
            call: Some(self.calls[0]),
            method: ServerMethod::Ping,
            params: None,
            timeout_ms: 30_000,
        };
        self.tell(Tell::Request(request));
    }

    /// What one write of this connection would take, not yet taken.
    fn lend(&mut self, conn: ConnKey) -> String {
        let mut pieces = Vec::new();
        self.shard.fill(conn, &mut pieces);
        pieces.iter().map(|piece| String::from_utf8(piece.as_slice().to_vec()).unwrap()).collect()
    }

    /// Writes all there is on this connection.
    fn write(&mut self, conn: ConnKey) -> String {
        let mut all = String::new();
        loop {
            let text = self.lend(conn);
            if text.is_empty() {
                return all;
            }
            self.shard.wrote(conn, text.len(), self.now);
            self.pull();
            all += &text;
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.ms += ms;
        self.shard.tick(self.now, usize::MAX);
        self.pull();
    }

    /// The connection is reset and closed with that much unacknowledged.
    fn reset(&mut self, conn: ConnKey, unacknowledged: usize) {
        self.shard.lost(conn, unacknowledged, self.now);
        self.pull();
        self.shard.closed(conn, unacknowledged, self.now);
        self.pull();
    }

    /// The event ids in a text.
    fn ids(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.split_once("id: ").map(|(_, id)| id)).collect()
    }
}

#[test]
fn a_head_is_not_taken_back_with_the_events_behind_it() {
    let mut bench = Bench::new(CoreConfig { listener_policy: ListenerPolicy::Latest, ..roomy(1) });
    let first = bench.get("");
    bench.announce(NotificationKind::Other, "one");
    let second = bench.get("");
    let text = bench.write(first);
    let mut reader = Reader::new();
    reader.feed(text.as_bytes());
    assert!(text.starts_with("HTTP/1.1 200 ") && Bench::ids(&text).len() == 1, "head and priming: {text}");
    assert!(!text.contains("one"), "the message went elsewhere: {text}");
    bench.shard.unacknowledged(first, text.len(), bench.now);
    assert!(bench.write(second).contains("one"));
}

#[test]
fn comments_go_on_after_frames_were_taken_back() {
    let config = CoreConfig { listener_policy: ListenerPolicy::Latest, keep_alive_ms: 5_000, ..roomy(1) };
    let mut bench = Bench::new(config);
    let first = bench.get("");
    bench.write(first);
    bench.announce(NotificationKind::Other, "one");
    let lent = bench.lend(first);
    // The timer fires while a write is under way, and is set to the write's deadline.
    bench.pass(5_100);
    bench.announce(NotificationKind::Other, "two");
    bench.shard.wrote(first, lent.len(), bench.now);
    bench.get("");
    while bench.shard.next_output().is_some() {}
    bench.pass(5_100);
    assert_eq!(bench.shard.next_comment(), Some(first), "two was taken back: there is nothing but comments");
}

#[test]
fn evidence_counts_while_a_connection_is_being_ended() {
    let mut bench = Bench::new(CoreConfig { priming: Priming::Off, ..roomy(1) });
    let first = bench.get("");
    bench.announce(NotificationKind::Other, "one");
    bench.announce(NotificationKind::ToolsListChanged, "tools");
    let text = bench.write(first);
    bench.announce(NotificationKind::Other, "two");
    bench.lend(first);
    bench.pass(30_100);
    // The write's deadline passed; a measurement asked for before says that all but the last frame arrived.
    bench.shard.unacknowledged(first, 0, bench.now);
    let cursor = Bench::ids(&text)[0].to_owned();
    let second = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    let again = bench.write(second);
    assert!(
        again.contains("two") && !again.contains("tools"),
        "a signal that arrived is not replayed: {again}"
    );
}

#[test]
fn a_stream_whose_last_event_is_evicted_is_forgotten() {
    let mut bench = Bench::new(CoreConfig { replay_events_max: 1, ..roomy(1) });
    let first = bench.get("");
    bench.announce(NotificationKind::Other, "one");
    bench.write(first);
    bench.reset(first, 0);
    let second = bench.get("");
    bench.announce(NotificationKind::Other, "two");
    bench.write(second);
    assert_eq!(bench.shard.population().streams, 1, "nothing of the first stream is left");
}

#[test]
fn a_cursor_of_a_stream_whose_response_was_evicted_gets_400() {
    let mut bench = Bench::new(CoreConfig { replay_events_max: 1, sse_after_ms: 100, ..roomy(1) });
    let first = bench.call();
    bench.pass(200);
    let text = bench.write(first);
    let cursor = Bench::ids(&text)[0].to_owned();
    bench.reset(first, 0);
    bench.answer("{}");
    let second = bench.call();
    bench.pass(200);
    bench.answer("{}");
    bench.write(second);
    let third = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    let text = bench.write(third);
    assert!(text.starts_with("HTTP/1.1 400 "), "the rest is lost, and said to be: {text}");
}

#[test]
fn a_cursor_proves_the_arrival_of_what_was_written_before_it() {
    let mut bench = Bench::new(roomy(1));
    let cut = bench.call();
    bench.answer(r#"{"n":1}"#);
    let reply = bench.write(cut);
    bench.reset(cut, reply.len());
    let first = bench.get("");
    bench.announce(NotificationKind::Other, "one");
    let text = bench.write(first);
    assert!(text.contains(r#"{"n":1}"#), "the lost reply: {text}");
    let second = bench.get("");
    bench.write(second);
    let cursor = (*Bench::ids(&text).last().unwrap()).to_owned();
    let third = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    bench.write(third);
    let text = bench.write(second);
    assert!(!text.contains(r#"{"n":1}"#), "its reader has it: {text}");
}

/// A call whose reply became a stream, cut when its first event id was written and nothing of it was acknowledged.
/// Returns the id.
fn cut_before_the_ack(bench: &mut Bench) -> String {
    let cut = bench.call();
    bench.pass(1_100);
    let text = bench.write(cut);
    let cursor = Bench::ids(&text)[0].to_owned();
    bench.reset(cut, text.len());
    cursor
}

#[test]
fn an_id_whose_ack_was_lost_is_a_cursor_all_the_same() {
    for fresh_get_fallback in [true, false] {
        let mut bench = Bench::new(CoreConfig { fresh_get_fallback, ..roomy(1) });
        let cursor = cut_before_the_ack(&mut bench);
        bench.answer(r#"{"n":1}"#);
        let back = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
        let text = bench.write(back);
        assert!(text.contains(r#"{"n":1}"#), "its client has the id: {text}");
        let other = bench.get("");
        let text = bench.write(other);
        assert!(!text.contains(r#"{"n":1}"#), "who asks for it by name gets it there: {text}");
    }
}

#[test]
fn a_reply_whose_stream_may_have_no_name_is_had_by_a_plain_get_too() {
    let mut bench = Bench::new(roomy(1));
    let cursor = cut_before_the_ack(&mut bench);
    bench.answer(r#"{"n":1}"#);
    let fresh = bench.get("");
    assert!(bench.write(fresh).contains(r#"{"n":1}"#), "it may never have seen the id");
    let back = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    assert!(bench.write(back).contains(r#"{"n":1}"#), "or it has");
}

#[test]
fn a_request_on_a_stream_that_may_have_no_name_goes_to_the_listener_too() {
    for said_first in [true, false] {
        let mut bench = Bench::new(roomy(1));
        let listener = bench.get("");
        bench.write(listener);
        let cut = bench.call();
        bench.pass(1_100);
        if said_first {
            bench.ask();
        }
        let text = bench.write(cut);
        bench.reset(cut, text.len());
        if !said_first {
            bench.ask();
        }
        let cursor = Bench::ids(&text)[0].to_owned();
        assert!(bench.write(listener).contains(r#""id":7"#));
        let back = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
        assert!(bench.write(back).contains(r#""id":7"#));
    }
}

#[test]
fn a_message_that_never_arrived_is_not_too_old_for_the_next_listener() {
    let mut bench = Bench::new(CoreConfig { replay_ttl_ms: 40_000, ..roomy(1) });
    let stalled = bench.get("");
    bench.announce(NotificationKind::Other, "one");
    bench.lend(stalled);
    // The machine slept: the write's deadline and the message's pass at once.
    bench.pass(64_000);
    bench.shard.closed(stalled, 0, bench.now);
    let next = bench.get("");
    assert!(bench.write(next).contains("one"));
}

#[test]
fn old_events_leave_once_they_are_known_to_have_arrived() {
    let mut bench = Bench::new(CoreConfig { replay_ttl_ms: 40_000, keep_alive_ms: 0, ..roomy(1) });
    let listener = bench.get("");
    let cursor = Bench::ids(&bench.write(listener))[0].to_owned();
    bench.announce(NotificationKind::Other, "one");
    bench.write(listener);
    bench.now.ms += 41_000;
    bench.shard.tick(bench.now, usize::MAX);
    let effects = bench.pull();
    assert!(effects.iter().any(|effect| effect.starts_with("Measure")), "the kernel is asked: {effects:?}");
    bench.shard.unacknowledged(listener, 0, bench.now);
    bench.pass(2_000);
    let back = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    assert!(!bench.write(back).contains("one"), "nothing is kept any more");
}

#[test]
fn a_lost_reply_is_not_given_back_to_a_connection_that_carries_it() {
    let mut bench = Bench::new(CoreConfig { listener_policy: ListenerPolicy::Latest, ..roomy(1) });
    let cut = bench.call();
    bench.answer(r#"{"n":1}"#);
    let reply = bench.write(cut);
    bench.reset(cut, reply.len());
    let first = bench.get("");
    let lent = bench.lend(first);
    assert!(lent.contains(r#"{"n":1}"#));
    let second = bench.get("");
    bench.shard.unacknowledged(first, 0, bench.now);
    let text = bench.write(second);
    assert!(text.contains(r#"{"n":1}"#), "the first is in doubt: {text}");
    let third = bench.get("");
    bench.shard.unacknowledged(second, text.len(), bench.now);
    bench.shard.wrote(first, lent.len(), bench.now);
    assert!(!bench.write(first).contains(r#"{"n":1}"#), "it is on its way there already");
    assert!(bench.write(third).contains(r#"{"n":1}"#), "the second is in doubt");
}

/// A listener whose stream was continued on a second connection, which is reset when it has carried one message and
/// acknowledged nothing of it. Returns the first connection, to which the message goes now, and the message's former id.
fn lose_a_continued_listener(bench: &mut Bench) -> (ConnKey, String) {
    let first = bench.get("");
    let begin = Bench::ids(&bench.write(first))[0].to_owned();
    let second = bench.get(&format!("Last-Event-ID: {begin}\r\n"));
    bench.announce(NotificationKind::Other, "one");
    let text = bench.write(second);
    assert!(text.contains("one"));
    bench.reset(second, text.len());
    (first, (*Bench::ids(&text).last().unwrap()).to_owned())
}

#[test]
fn a_cursor_takes_back_what_it_shows_to_have_arrived() {
    let mut bench = Bench::new(roomy(1));
    let (first, cursor) = lose_a_continued_listener(&mut bench);
    let third = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    bench.announce(NotificationKind::Other, "two");
    let text = bench.write(first) + &bench.write(third);
    assert!(!text.contains("one"), "its client has it: {text}");
    assert_eq!(text.matches("two").count(), 1);
}

#[test]
fn a_message_that_a_cursor_shows_to_have_arrived_moves_no_further() {
    let mut bench = Bench::new(roomy(1));
    let (first, cursor) = lose_a_continued_listener(&mut bench);
    let text = bench.write(first);
    assert!(text.contains("one"), "nobody knows yet: {text}");
    let third = bench.get(&format!("Last-Event-ID: {cursor}\r\n"));
    bench.reset(first, text.len());
    let text = bench.write(third);
    assert!(!text.contains("one"), "its client has it: {text}");
}

#[test]
fn an_older_cursor_takes_nothing_back() {
    let mut bench = Bench::new(roomy(1));
    let (first, cursor) = lose_a_continued_listener(&mut bench);
    let (stream, _) = cursor.rsplit_once('-').unwrap();
    let third = bench.get(&format!("Last-Event-ID: {stream}-0\r\n"));
    let text = bench.write(first) + &bench.write(third);
    assert_eq!(text.matches("one").count(), 1, "its client may not have it: {text}");
}

#[test]
fn a_listener_that_was_taken_over_does_not_go_on_with_what_moves() {
    let mut bench = Bench::new(CoreConfig { listener_policy: ListenerPolicy::Latest, ..roomy(1) });
    let first = bench.get("");
    let begin = Bench::ids(&bench.write(first))[0].to_owned();
    bench.announce(NotificationKind::Other, &"x".repeat(17_000));
    bench.announce(NotificationKind::Other, "two");
    bench.write(first);
    let second = bench.get(&format!("Last-Event-ID: {begin}\r\n"));
    let lent = bench.lend(second);
    assert!(lent.contains("xxx") && !lent.contains("two"), "there is no room for the second yet");
    let third = bench.get("");
    bench.shard.wrote(second, lent.len(), bench.now);
    bench.shard.unacknowledged(second, lent.len(), bench.now);
    let text = bench.write(second) + &bench.write(third);
    assert_eq!(text.matches("two").count(), 1, "{text}");
}

#[test]
fn what_was_taken_back_from_a_listener_is_written_when_it_is_promoted_again() {
    let mut bench = Bench::new(CoreConfig { listener_policy: ListenerPolicy::Latest, ..roomy(1) });
    let first = bench.get("");
    bench.write(first);
    bench.announce(NotificationKind::Other, "one");
    bench.announce(NotificationKind::Other, "two");
    let second = bench.get("");
    // The newcomer goes before the kernel was asked about the first.
    bench.reset(second, 0);
    bench.announce(NotificationKind::Other, "three");
    let text = bench.write(first);
    for word in ["one", "two", "three"] {
        assert_eq!(text.matches(word).count(), 1, "{word}: {text}");
    }
}

#[test]
fn a_listen_stream_with_a_request_behind_it_notices_that_its_client_closes() {
    let mut bench = Bench::new(CoreConfig { keep_alive_ms: 0, ..roomy(1) });
    let conn = bench.connect();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let listen = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Nobody reads the second one, so nobody reads the end of the input either.
    bench.shard.received(conn, BytesMut::from(&*listen.repeat(2)), bench.now);
    bench.pull();
    let call = bench.calls.pop().unwrap();
    bench.shard.tell(Tell::Listen(call, Listening::default()), bench.now);
    bench.write(conn);
    assert_eq!(bench.shard.interest(conn), Interest::HangUp);
    bench.shard.half_closed(conn, 0, bench.now);
    assert!(bench.write(conn).contains(": keepalive"), "it is asked whether it still reads");
}
