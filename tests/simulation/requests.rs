//! What must be true of requests without a session: each has one end, and its reply says what is its own.
//!
//! Requests and what is said of them carry numbers, as calls of sessions do. A listen stream is held against the list of
//! broadcasts that began on its shard while it was open.

use super::{
    model::Class,
    rng::Rng,
    sim::{Sim, note},
    socket::{Network, Peer, Place},
    wire::{Block, Head, Item, What},
};
use moorline::core::{CallKey, LogLevel, config::ResponseMode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Everything of the era without sessions. Its chance is a stream of the seed of its own.
#[derive(Debug)]
pub struct Stateless {
    pub is_on: bool,
    pub rng: Rng,
    pub requests: Vec<Request>,
    /// By shard: broadcasts that may still be on their way to somebody.
    pub walking: Vec<Vec<Walk>>,
    /// Publications not reported yet: shard, number, what it says.
    pub published: BTreeSet<(usize, u64)>,
    /// What was merged, as far as streams show it.
    pub merged: u64,
}

impl Stateless {
    pub fn new(rng: Rng, is_on: bool, shards: usize) -> Self {
        Stateless {
            is_on,
            rng,
            requests: Vec::new(),
            walking: vec![Vec::new(); shards],
            published: BTreeSet::new(),
            merged: 0,
        }
    }
}

/// A message that is given out on a shard.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub m: u64,
    pub class: Class,
    /// Somebody waits for a count of its own: it is never merged with others.
    pub is_publication: bool,
}

/// What a request is at, as far as the backend knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The backend has not heard of it.
    Sent,
    Working,
    Listening,
    Answered,
    Cancelled,
}

/// The forms of reply a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    Both,
    Json,
    Stream,
}

/// A request of 2026-07-28.
#[derive(Debug)]
pub struct Request {
    pub id: Value,
    pub socket: usize,
    pub exchange: usize,
    pub accepts: Accepts,
    pub log_level: Option<LogLevel>,
    /// Where its state is.
    pub shard: Option<usize>,
    /// What a listen request asks for, one bit a kind.
    pub filter: Option<u8>,
    pub key: Option<(usize, CallKey)>,
    pub life: Life,
    pub sent_ms: u64,
    /// Said of it and to be written, in order, and how much of it was.
    pub said: Vec<u64>,
    pub written: usize,
    /// What the backend answered while it had not heard of an end: the code of an error.
    pub answer: Option<Result<(), i32>>,
    pub was_refused: bool,
    pub is_acknowledged: bool,
    pub expected: Vec<Expected>,
    /// The response was written.
    pub has_ended: bool,
    /// Why it may have been cancelled has still to be seen.
    pub is_unexplained: bool,
}

/// A broadcast that a listen stream asked for.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    m: u64,
    class: Class,
    /// Under way when the stream began or ended: it may be heard.
    is_optional: bool,
    /// One that says the same may not have begun by then: that one is given out, in its place, for both.
    may_join: bool,
    is_over: bool,
}

impl Request {
    pub fn new(id: Value, socket: usize, exchange: usize, sent_ms: u64) -> Self {
        Request {
            id,
            socket,
            exchange,
            accepts: Accepts::Both,
            log_level: None,
            shard: None,
            filter: None,
            key: None,
            life: Life::Sent,
            sent_ms,
            said: Vec::new(),
            written: 0,
            answer: None,
            was_refused: false,
            is_acknowledged: false,
            expected: Vec::new(),
            has_ended: false,
            is_unexplained: false,
        }
    }

    pub fn wants(&self, class: Class) -> bool {
        let bit = match class {
            Class::Tools => 1,
            Class::Prompts => 2,
            Class::Resources => 4,
            Class::Resource(1) => 8,
            Class::Resource(_) => 16,
            Class::Other | Class::Log | Class::Progress | Class::Request => 0,
        };
        self.filter.is_some_and(|filter| filter & bit != 0)
    }

    pub fn expect(&mut self, m: u64, class: Class, is_optional: bool, may_join: bool) {
        if self.wants(class) {
            self.expected.push(Expected { m, class, is_optional, may_join, is_over: false });
        }
    }

    /// What is under way on its shard may or may not reach it any more.
    pub fn excuse(&mut self, walking: &[Walk]) {
        for expected in &mut self.expected {
            expected.is_optional |= walking.iter().any(|walk| walk.m == expected.m);
        }
    }

    /// A message is heard once, and stands where the first that it was merged with stood. The number of those is returned.
    fn hear(&mut self, m: u64) -> u64 {
        let place = self.expected.iter().position(|expected| expected.m == m);
        let index = place.unwrap_or_else(|| panic!("{m} was not asked for, or said before: {self:?}"));
        let Expected { class, may_join: joins, .. } = self.expected[index];
        assert!(!self.expected[index].is_over, "{m} is heard twice, or after what came later: {self:?}");
        let is_same = |expected: &Expected| expected.class == class && !expected.is_over;
        let first = self.expected.iter().position(is_same).expect("it is one itself");
        let passed = self.expected[..first].iter().find(|other| !other.is_over && !other.is_optional);
        assert!(passed.is_none(), "{m} came before {passed:?}, which was said first");
        let mut merged = 0;
        for expected in self.expected[..=index].iter_mut().filter(|expected| is_same(expected)) {
            // In the place of one before, what came between is still to come.
            if expected.m != m && joins {
                expected.is_optional = true;
                continue;
            }
            merged += u64::from(expected.m != m && !expected.is_optional);
            expected.is_over = true;
        }
        for expected in self.expected[index..].iter_mut().filter(|expected| is_same(expected)) {
            expected.is_optional |= expected.may_join;
        }
        merged
    }

    pub fn check_all_heard(&self) {
        let missing = self.expected.iter().find(|expected| !expected.is_over && !expected.is_optional);
        assert!(missing.is_none(), "a listen stream misses {missing:?}: {self:?}");
    }
}

// --- What is written ----------------------------------------------------------------------------

impl Sim {
    /// The server wrote something whole in answer to that request.
    pub fn written_stateless(&mut self, r: usize, item: &Item) {
        let socket = self.stateless.requests[r].socket;
        match &item.what {
            What::Head(head) => self.stateless_head(r, head),
            What::Body(body) if !body.is_empty() => {
                let status = self.exchange_of(r).status.expect("a head came first");
                let json: Value = serde_json::from_slice(body).expect("JSON");
                let request = &self.stateless.requests[r];
                // A reply whose form is open is JSON only if nothing was to be said before.
                let may_stream =
                    request.accepts != Accepts::Json && self.config.response_mode != ResponseMode::Json;
                let is_its_own = json["result"]["n"].is_u64();
                assert!(!may_stream || request.said.is_empty() || !is_its_own, "unsaid: {request:?}");
                self.stateless_response(r, &json, Some(status));
            }
            What::Body(_) => {}
            What::End => {
                self.sockets[socket].exchanges[item.exchange].is_over = true;
                let request = &self.stateless.requests[r];
                assert!(request.has_ended, "a reply without its response: {request:?}");
            }
            What::Block(block) => {
                self.sockets[socket].written_ms = self.now.ms;
                self.stateless_block(r, block);
            }
        }
    }

    fn exchange_of(&mut self, r: usize) -> &mut super::socket::Exchange {
        let request = &self.stateless.requests[r];
        &mut self.sockets[request.socket].exchanges[request.exchange]
    }

    fn stateless_head(&mut self, r: usize, head: &Head) {
        let (step, is_draining) = (self.step, self.is_draining);
        let is_crowded = self.config.exchanges_max < 10 || is_draining;
        let exchange = self.exchange_of(r);
        assert_eq!(exchange.status, None, "one answer each");
        exchange.status = Some(head.status);
        exchange.answered_step = Some(step);
        exchange.is_stream = head.is_stream();
        assert_eq!(head.field("mcp-session-id"), None, "there is no session");
        let request = &mut self.stateless.requests[r];
        if head.is_stream() {
            assert_eq!((head.status, head.field("x-accel-buffering")), (200, Some("no")));
            assert_ne!(request.accepts, Accepts::Json, "a stream for a client that takes none");
            return;
        }
        let expected: &[u16] = match request.answer {
            Some(Err(-32601)) => &[200, 404],
            Some(Err(-32021)) => &[200, 400],
            _ if is_crowded || request.was_refused => &[200, 503],
            _ => &[200],
        };
        let timed_out = head.status == 408 && self.now.ms - request.sent_ms > 1_000;
        assert!(timed_out || expected.contains(&head.status), "{} for {request:?}", head.status);
        assert!(head.status != 503 || head.field("retry-after").is_some());
    }

    fn stateless_block(&mut self, r: usize, block: &Block) {
        if let Some(comment) = &block.comment {
            return assert!(["keepalive", "ok"].contains(&&**comment), "{comment:?}");
        }
        assert!(block.id.is_none() && block.retry.is_none(), "nobody comes back to this: {block:?}");
        assert_eq!(block.name.as_deref(), Some("message"));
        let json = block.json().expect("events have data");
        if json.get("method").is_none() {
            return self.stateless_response(r, &json, None);
        }
        let request = &mut self.stateless.requests[r];
        assert!(!request.has_ended, "said after the response: {json}");
        if request.filter.is_some() {
            return self.heard(r, &json);
        }
        let m = json["params"]["m"].as_u64().expect("messages are numbered");
        let next = request.said.get(request.written);
        assert_eq!(next, Some(&m), "said of another request, twice, out of order or unasked: {request:?}");
        request.written += 1;
    }

    fn heard(&mut self, r: usize, json: &Value) {
        let request = &mut self.stateless.requests[r];
        assert_eq!(json["params"]["_meta"][SUBSCRIPTION], request.id, "the id of another: {json}");
        if !request.is_acknowledged {
            assert_eq!(json["method"], "notifications/subscriptions/acknowledged", "first of all");
            assert_eq!(json["params"]["notifications"], honoured(request.filter.expect("a listen request")));
            request.is_acknowledged = true;
            return;
        }
        let m = json["params"]["m"].as_u64().expect("messages are numbered");
        self.stateless.merged += request.hear(m);
    }

    fn stateless_response(&mut self, r: usize, json: &Value, status: Option<u16>) {
        let (now_ms, timeout_ms) = (self.now.ms, self.config.request_timeout_ms);
        let is_listening_full = self.config.sessions_max < 10;
        let request = &mut self.stateless.requests[r];
        assert!(!request.has_ended, "answered twice: {json}");
        request.has_ended = true;
        if request.was_refused || matches!(status, Some(503 | 408)) {
            return;
        }
        assert_eq!(json["id"], request.id, "{json}");
        assert!(json["result"]["stale"].is_null(), "the answer to a request that was over: {json}");
        let n = json["result"]["n"].as_u64().or(json["error"]["data"]["n"].as_u64());
        if let Some(n) = n {
            assert_eq!(n, r as u64, "the answer to another request: {json}");
            assert_eq!(request.life, Life::Answered, "a request that was cancelled is answered: {request:?}");
            let code = json["error"]["code"].as_i64();
            let expected = request.answer.expect("it was answered").err();
            assert_eq!(code, expected.map(i64::from));
            if let Some(status) = status {
                let of_code = match expected {
                    Some(-32601) => 404,
                    Some(-32021) => 400,
                    _ => 200,
                };
                assert_eq!(status, of_code);
            }
        } else if json["error"]["message"] == "the request timed out" {
            assert!(now_ms - request.sent_ms >= timeout_ms, "timed out too soon");
            assert!(!request.is_acknowledged, "a listen stream lasts");
        } else if json["error"].is_object() {
            assert!(self.is_draining || is_listening_full && request.filter.is_some(), "{json}");
        } else {
            assert!(self.is_draining && request.is_acknowledged, "ended by nobody: {json}");
            assert_eq!(json["result"]["resultType"], "complete");
        }
        let is_streamed = status.is_none() && n.is_some();
        if is_streamed && request.filter.is_none() {
            assert_eq!(request.written, request.said.len(), "the response overtook: {request:?}");
        }
        if request.is_acknowledged {
            assert!(json["error"].is_object() || json["result"]["_meta"][SUBSCRIPTION] == request.id);
            request.check_all_heard();
        }
    }
}

/// The acknowledged part of a filter.
fn honoured(filter: u8) -> Value {
    let mut honoured = serde_json::Map::new();
    for (bit, name) in [(1, "toolsListChanged"), (2, "promptsListChanged"), (4, "resourcesListChanged")] {
        if filter & bit != 0 {
            honoured.insert(name.into(), true.into());
        }
    }
    let uris: Vec<&str> =
        [(8, "r1"), (16, "r2")].iter().filter(|(bit, _)| filter & bit != 0).map(|(_, uri)| *uri).collect();
    if !uris.is_empty() {
        honoured.insert("resourceSubscriptions".into(), json!(uris));
    }
    honoured.into()
}

// --- Ends ---------------------------------------------------------------------------------------

impl Sim {
    /// The backend hears of the end of a request that was none of its doing. False if the key is no request's.
    pub fn cancelled_stateless(&mut self, shard: usize, key: CallKey) -> bool {
        let mut requests = self.stateless.requests.iter_mut();
        let Some(request) = requests.find(|request| request.key == Some((shard, key))) else { return false };
        assert_ne!(request.life, Life::Cancelled, "a request ends once: {request:?}");
        // It may have been answered while the word was under way, but then nobody took the answer.
        let is_answered = request.life == Life::Answered && request.has_ended && !self.is_draining;
        let timed_out = self.now.ms - request.sent_ms >= self.config.request_timeout_ms;
        assert!(!is_answered || timed_out, "cancelled after its response: {request:?}");
        request.is_unexplained = true;
        request.life = Life::Cancelled;
        let socket = request.socket;
        note!(self, "a request of socket {socket} is cancelled");
        true
    }

    /// At rest the backend knows of every end, and every end has a reason.
    pub fn check_stateless_ends(&mut self) {
        if !self.stateless.is_on {
            return;
        }
        let (is_draining, now_ms) = (self.is_draining, self.now.ms);
        let mut in_flight = vec![(0, 0); self.shards.len()];
        for request in &mut self.stateless.requests {
            let socket = &self.sockets[request.socket];
            let is_gone = socket.place == Place::Closed || socket.is_lost || socket.ending.is_some();
            if std::mem::take(&mut request.is_unexplained) {
                let timed_out =
                    !request.is_acknowledged && now_ms - request.sent_ms >= self.config.request_timeout_ms;
                let refused = self.config.sessions_max < 10 && request.filter.is_some();
                assert!(is_gone || timed_out || is_draining || refused, "cancelled for nothing: {request:?}");
            }
            let is_open = matches!(request.life, Life::Working | Life::Listening);
            if let (true, Some((shard, _))) = (is_open, request.key) {
                assert!(!is_gone, "nobody told the backend that its client is gone: {request:?}");
                in_flight[shard].0 += 1;
                in_flight[shard].1 += usize::from(request.life == Life::Listening);
            }
        }
        for (shard, in_flight) in self.shards.iter().zip(in_flight) {
            let population = shard.population();
            assert_eq!(
                (population.exchanges, population.attached.listens),
                in_flight,
                "somebody is forgotten"
            );
        }
    }

    /// Whether its client is there and takes what comes.
    fn is_healthy(&self, request: &Request) -> bool {
        let socket = &self.sockets[request.socket];
        let is_there = matches!(socket.peer, Peer::Open | Peer::WriteClosed) && !socket.eof_seen;
        is_there && socket.network == Network::Fine && socket.ending.is_none() && !socket.is_closed()
    }

    /// With everything calm: requests are answered, and streams hear everything.
    pub fn check_stateless_calm(&mut self) {
        for request in self.stateless.requests.iter().filter(|request| self.is_healthy(request)) {
            match request.life {
                Life::Sent => {}
                Life::Working => panic!("the backend answers everything: {request:?}"),
                Life::Listening => {
                    assert!(request.is_acknowledged && !request.has_ended, "{request:?}");
                    request.check_all_heard();
                }
                Life::Answered => assert!(request.has_ended, "an answer was lost: {request:?}"),
                Life::Cancelled => {
                    // What refuses or times out is said in the reply.
                    assert!(request.has_ended, "ended without a word: {request:?}");
                }
            }
        }
        let merged: u64 = self.shards.iter().map(|shard| shard.counters().messages_merged).sum();
        assert!(
            self.stateless.merged <= merged,
            "merged and not counted: {} of {merged}",
            self.stateless.merged
        );
    }

    /// After everything: whatever the backend heard of it heard the end of.
    pub fn check_stateless_over(&self) {
        for request in &self.stateless.requests {
            let is_over = matches!(request.life, Life::Sent | Life::Answered | Life::Cancelled);
            assert!(is_over, "nobody told the backend of the end: {request:?}");
        }
        let left = &self.stateless.published;
        assert!(left.is_empty(), "publications without a report: {left:?}");
    }
}
