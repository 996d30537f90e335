//! Faults that were found by a seed, each cut down to the few steps that show it.
//!
//! Drives one shard by hand, so that what the shell has pulled and what it has not is part of the test.

use super::{rng::Rng, scenario::roomy, wire::Reader};
use bytes::BytesMut;
use moorline::core::{
    Ask, CallKey, ConnKey, Effect, Notification, NotificationKind, Now, SessionKey, ShardId, Tell,
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
