//! What must be true of everything the server writes, and what each client must have seen in the end.
//!
//! Knows the protocol and `design.md`; knows nothing of the server's insides. Messages and calls carry numbers,
//! so that every event on the wire can be traced to what the backend said.

use super::{
    backend::Origin,
    socket::{Asked, Exchange, Socket},
    wire::{Block, Head, Id, Item, StreamName, What},
};
use moorline::core::{CallKey, NotificationKind, Revision, SessionKey};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Model {
    pub sessions: Vec<Session>,
    pub calls: BTreeMap<u64, Call>,
    /// Requests to clients, and whether the backend has its answer.
    pub asks: BTreeMap<u64, bool>,
    /// What each broadcast says, and when it was made.
    pub broadcasts: BTreeMap<u64, (Class, u64, u64)>,
    pub next_number: u64,
    /// Queues may overflow: what was to come may never.
    pub drops: bool,
}

#[derive(Debug)]
pub struct Session {
    pub shard: usize,
    pub key: SessionKey,
    pub revision: Revision,
    /// Until the backend was told its end.
    pub is_alive: bool,
    /// The client knows its id.
    pub id: Option<String>,
    pub tag: Option<String>,
    /// What each event id stands for.
    pub events: BTreeMap<(StreamName, u32), u64>,
    /// Whose POST a request stream answers: socket and exchange.
    pub posts: BTreeMap<u32, (usize, usize)>,
    pub inbox: BTreeMap<u64, Message>,
    pub rewinds: Vec<Rewind>,
    /// The last step at which a stream of its own ended, was measured or was continued elsewhere.
    pub disturbed_step: u64,
    /// The last step at which the client sent a GET.
    pub got_ms: u64,
    /// Somebody answered it 404.
    pub called_dead: bool,
    /// Cancellations its client sent: step and JSON-RPC id.
    pub cancels: Vec<(u64, String)>,
    /// What was wrong unless the session was about to end.
    pub doubts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Other,
    Log,
    Progress,
    Tools,
    Prompts,
    Resources,
    Resource(u8),
    /// A request of the server to the client.
    Request,
}

impl Class {
    pub fn is_signal(self) -> bool {
        matches!(self, Class::Tools | Class::Prompts | Class::Resources | Class::Resource(_))
    }

    /// What a notification for everyone is.
    pub fn of(kind: &NotificationKind) -> Self {
        match kind {
            NotificationKind::ToolsListChanged => Class::Tools,
            NotificationKind::PromptsListChanged => Class::Prompts,
            NotificationKind::ResourcesListChanged => Class::Resources,
            NotificationKind::ResourceUpdated(uri) => Class::Resource(uri[1..].parse().expect("a number")),
            NotificationKind::Progress => Class::Progress,
            NotificationKind::Log(_) => Class::Log,
            NotificationKind::Other => Class::Other,
        }
    }
}

/// Something said unasked to one session.
#[derive(Debug)]
pub struct Message {
    pub class: Class,
    pub step: u64,
    pub ms: u64,
    pub origin: Origin,
    pub writes: Vec<Write>,
    pub seen: bool,
}

impl Session {
    /// A signal waits where the first that says the same was put: nothing said later comes before it.
    fn check_overtaken(&self, m: u64, step: u64) {
        // A broadcast comes by a session in its time.
        let signals = self.inbox.range(..m).filter(|(_, other)| other.class.is_signal());
        for (n, signal) in signals.filter(|(_, other)| other.origin != Origin::Broadcast) {
            if self.disturbed_step >= signal.step || signal.step >= step {
                continue;
            }
            let mut same = self.inbox.values().filter(|other| other.class == signal.class);
            let told = same.any(|other| other.writes.iter().any(|write| write.step >= signal.step));
            assert!(told, "message {m} was written before signal {n}, which was said first");
        }
    }
}

impl Message {
    pub fn new(class: Class, step: u64, ms: u64, origin: Origin) -> Self {
        Message { class, step, ms, origin, writes: Vec::new(), seen: false }
    }
}

/// A GET with a cursor that the client sent.
#[derive(Clone, Copy, Debug)]
pub struct Rewind {
    pub stream: StreamName,
    pub sequence: u32,
    pub socket: usize,
    pub exchange: usize,
}

impl Rewind {
    /// Whether the server may have acted on it at that step or later.
    fn may_follow(&self, step: u64, sockets: &[Socket]) -> bool {
        let exchange = &sockets[self.socket].exchanges[self.exchange];
        exchange.answered_step.is_none_or(|answered| answered >= step)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub stream: StreamName,
    pub sequence: u32,
    pub socket: usize,
    pub end: u64,
    pub step: u64,
}

#[derive(Debug)]
pub struct Call {
    pub session: usize,
    /// As the client wrote it.
    pub id: String,
    pub socket: usize,
    pub exchange: usize,
    pub key: Option<(usize, CallKey)>,
    pub is_cancelled: bool,
    /// When its call was cancelled it had been under way for as long as a call may take: it may have timed out instead.
    pub may_have_timed_out: bool,
    /// The client tried to cancel it.
    pub may_be_cancelled: bool,
    pub response: Option<(StreamName, u32)>,
    /// Where its response ends, if it was written as JSON.
    pub in_json: Option<u64>,
    /// Where it was given to a plain GET instead.
    pub recoveries: Vec<Write>,
    pub seen: bool,
    /// Numbers of its notifications in order.
    pub said: Vec<u64>,
    pub called_ms: u64,
    pub called_step: u64,
}

impl Call {
    pub fn new(session: usize, id: String, socket: usize, exchange: usize) -> Self {
        Call {
            session,
            id,
            socket,
            exchange,
            key: None,
            is_cancelled: false,
            may_have_timed_out: false,
            may_be_cancelled: false,
            response: None,
            in_json: None,
            recoveries: Vec::new(),
            seen: false,
            said: Vec::new(),
            called_ms: 0,
            called_step: 0,
        }
    }
}

/// The moment a judgement is made in.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub step: u64,
    pub ms: u64,
    pub keep_alive_ms: u64,
    pub primes_posts: bool,
    pub primes_gets: bool,
    pub evicts: bool,
    pub recovers: bool,
    pub is_draining: bool,
}

impl Model {
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub fn session_of_key(&self, shard: usize, key: SessionKey) -> Option<usize> {
        self.sessions.iter().rposition(|session| session.shard == shard && session.key == key)
    }

    /// The server wrote something whole.
    pub fn written(&mut self, index: usize, sockets: &mut [Socket], item: &Item, moment: Moment) {
        let socket = &mut sockets[index];
        if socket.refused {
            return;
        }
        // A time-out or a malformed head is answered though no request is known.
        let Some(exchange) = socket.exchanges.get_mut(item.exchange) else {
            if let What::Head(head) = &item.what {
                assert!([400, 408].contains(&head.status), "an answer to nothing: {head:?}");
                socket.refused = true;
            }
            return;
        };
        match &item.what {
            What::Head(head) => self.head(exchange, head, moment),
            What::Body(body) => self.body(index, item, exchange, body),
            What::End => exchange.is_over = true,
            What::Block(block) => {
                if block.comment.is_some() {
                    let probed = is_probed(sockets, index, item.exchange);
                    self.comment(&sockets[index], item.exchange, block, moment, probed);
                } else {
                    let mut exchange = socket.exchanges[item.exchange].clone();
                    self.event(index, item, &mut exchange, block, sockets, moment);
                    sockets[index].exchanges[item.exchange] = exchange;
                }
                sockets[index].written_ms = moment.ms;
            }
        }
    }

    fn head(&mut self, exchange: &mut Exchange, head: &Head, moment: Moment) {
        assert_eq!(exchange.status, None, "one answer each");
        exchange.status = Some(head.status);
        exchange.answered_step = Some(moment.step);
        exchange.is_stream = head.is_stream();
        if head.is_stream() {
            assert_eq!(head.status, 200);
            assert_eq!(head.field("cache-control"), Some("no-cache, no-transform"));
            assert_eq!(head.field("x-accel-buffering"), Some("no"));
        }
        if let (Asked::Plain, Some(session)) = (&exchange.asked, exchange.session) {
            self.sessions[session].got_ms = moment.ms;
        }
        let may_time_out = moment.ms - exchange.sent_ms > 1_000;
        let allowed: &[u16] = match &exchange.asked {
            _ if head.status == 408 && may_time_out => return,
            // The handshake's deadline may pass before the backend answers.
            Asked::Initialize => &[200, 404, 503],
            Asked::Notice => &[202, 404],
            Asked::Calls(_) => &[200, 202, 404],
            Asked::Ping(_) => &[200, 404],
            Asked::Plain if moment.is_draining => &[200, 503, 404],
            Asked::Plain => &[200, 404],
            Asked::Cursor(_) if moment.is_draining || moment.evicts => &[200, 400, 404, 405, 503],
            Asked::Cursor(_) => &[200, 404, 405],
            Asked::Delete => &[204, 404],
            Asked::Refusable(statuses) => statuses,
            Asked::Stateless(_) => unreachable!("judged elsewhere"),
        };
        let crowded = head.status == 503
            && matches!(exchange.asked, Asked::Plain | Asked::Cursor(_))
            && head.field("retry-after").is_some();
        assert!(
            allowed.contains(&head.status) || crowded,
            "{} is no answer to {:?}: {head:?}",
            head.status,
            exchange.asked
        );
        if head.status == 405 && !matches!(exchange.asked, Asked::Refusable(_)) {
            assert!(head.field("allow").is_some(), "405 says what is allowed");
            assert!(matches!(&exchange.asked, Asked::Cursor(cursor) if Id::parse(cursor).stream.0 == 'r'));
        }
        if head.status == 404 && !matches!(exchange.asked, Asked::Refusable(_) | Asked::Initialize) {
            let session = exchange.session.expect("it named a session");
            self.sessions[session].called_dead = true;
        }
    }

    fn body(&mut self, socket: usize, item: &Item, exchange: &mut Exchange, body: &[u8]) {
        if exchange.status != Some(200) {
            return;
        }
        match exchange.asked.clone() {
            Asked::Calls(calls) => {
                let json: Value = serde_json::from_slice(body).expect("JSON");
                let answers = match json {
                    Value::Array(answers) => answers,
                    answer => vec![answer],
                };
                for answer in &answers {
                    let is_open = |call: &Call| call.in_json.is_none();
                    let call = self.match_answer(socket, item.exchange, &calls, answer, is_open);
                    let entry = self.calls.get_mut(&call).expect("matched");
                    assert!(entry.in_json.is_none() && entry.response.is_none(), "answered twice: {answer}");
                    entry.in_json = Some(item.end);
                }
                for call in calls {
                    let call = &self.calls[&call];
                    assert!(
                        call.in_json.is_some() || call.may_be_cancelled,
                        "a call of this POST has no answer: {call:?}"
                    );
                }
            }
            Asked::Ping(id) => {
                let json: Value = serde_json::from_slice(body).expect("JSON");
                assert_eq!(json["id"], id);
                assert!(json["result"].is_object());
            }
            _ => {}
        }
    }

    /// Which of these calls an answer belongs to; panics if none. Of calls with equal ids that an answer without a number
    /// fits, it is the first that it may still be the answer to.
    fn match_answer(
        &self,
        socket: usize,
        exchange: usize,
        calls: &[u64],
        answer: &Value,
        is_open: impl Fn(&Call) -> bool,
    ) -> u64 {
        assert_eq!(answer["result"]["stale"], Value::Null, "the answer to a call that was over");
        let id = answer["id"].to_string();
        let of_answer = answer["result"]["n"].as_u64().or(answer["error"]["data"]["n"].as_u64());
        let fits = |call: &&u64| self.calls[call].id == id && of_answer.is_none_or(|n| n == **call);
        let call = calls
            .iter()
            .filter(fits)
            .find(|call| is_open(&self.calls[call]) && !self.calls[call].is_cancelled)
            .or_else(|| calls.iter().find(fits))
            .unwrap_or_else(|| panic!("{answer} answers none of {calls:?}"));
        let entry = &self.calls[call];
        assert_eq!((entry.socket, entry.exchange), (socket, exchange), "the answer of another POST");
        let timed_out = entry.may_have_timed_out && is_time_out(answer);
        assert!(!entry.is_cancelled || timed_out, "an answer to a cancelled call: {answer}");
        *call
    }

    fn comment(&self, socket: &Socket, number: usize, block: &Block, moment: Moment, probed: bool) {
        let text = block.comment.as_deref().unwrap_or_default();
        assert!(["keepalive", "ok"].contains(&text), "{text:?}");
        let exchange = &socket.exchanges[number];
        let Some(session) = exchange.session else { return };
        // A newcomer's probe may come at any time until its own head is out.
        let session = &self.sessions[session];
        if text == "ok" || probed || session.got_ms + 1 >= socket.written_ms {
            return;
        }
        assert!(moment.keep_alive_ms > 0, "no keep-alive was asked for");
        let since_ms = moment.ms - socket.written_ms;
        let least_ms = moment.keep_alive_ms - moment.keep_alive_ms / 8 - 1;
        assert!(since_ms >= least_ms, "a comment {since_ms} ms after the last write: somebody else's timer");
    }

    fn event(
        &mut self,
        socket: usize,
        item: &Item,
        exchange: &mut Exchange,
        block: &Block,
        sockets: &[Socket],
        moment: Moment,
    ) {
        let Some(text) = &block.id else {
            return self.without_id(socket, item, exchange, block, sockets, moment);
        };
        if exchange.asked == Asked::Initialize {
            return assert_ne!(block.data.as_deref(), Some(""), "initialize is never primed");
        }
        let id = Id::parse(text);
        let session_index = exchange.session.expect("ids exist in sessions");
        let session = &mut self.sessions[session_index];
        let tag = session.tag.get_or_insert_with(|| id.tag.clone());
        assert_eq!(*tag, id.tag, "an event of another session");
        self.check_place(session_index, exchange, &id, block, socket, item.exchange, moment);
        exchange.first_id_end.get_or_insert(item.end);
        exchange.last_written = Some(text.clone());
        let Some(json) = block.json() else { return };
        assert_eq!(block.name.as_deref(), Some("message"));
        assert!(id.sequence > 0, "a message has a number");
        if let Asked::Ping(n) = exchange.asked {
            assert!(json["id"] == n && json["result"].is_object(), "{json} answers no ping");
        } else if id.stream.0 == 'r' {
            self.request_event(session_index, &id, &json, sockets);
        } else {
            self.listener_event(session_index, &id, &json, socket, item, exchange, sockets);
        }
    }

    /// A block without an id answers an initialize, says when to come back, or is a reply that no cursor can recover.
    fn without_id(
        &mut self,
        socket: usize,
        item: &Item,
        exchange: &Exchange,
        block: &Block,
        sockets: &[Socket],
        moment: Moment,
    ) {
        let Some(json) = block.json() else {
            assert!(block.data.is_none() && block.retry.is_some(), "{block:?}");
            return;
        };
        if exchange.asked == Asked::Initialize {
            return;
        }
        assert!(exchange.asked == Asked::Plain && moment.recovers, "a message without an id: {block:?}");
        let session = exchange.session;
        let id = json["id"].to_string();
        // What answers a call has its number, unless it is an error.
        if json["result"].is_object() && json["result"]["n"].is_null() {
            let is_ping = |asked: &Exchange| {
                asked.session == session && matches!(&asked.asked, Asked::Ping(n) if json["id"] == *n)
            };
            let post = sockets.iter().find(|post| post.exchanges.iter().any(is_ping));
            let doubted = post.is_some_and(|post| !post.reports.is_empty());
            return assert!(doubted, "the answer to no ping, or to a healthy one: {json}");
        }
        let of_answer = json["result"]["n"].as_u64().or(json["error"]["data"]["n"].as_u64());
        let mut alike: Vec<&mut Call> = self
            .calls
            .iter_mut()
            .filter(|(n, call)| Some(call.session) == session && of_answer.is_none_or(|of| of == **n))
            .map(|(_, call)| call)
            .filter(|call| call.id == id && !call.is_cancelled)
            .collect();
        assert!(!alike.is_empty() || of_answer.is_none(), "an answer to nothing: {json}");
        // Without a number, equal ids cannot be told apart.
        let [call] = alike.as_mut_slice() else { return };
        let post = &sockets[call.socket];
        assert!(post.reports.iter().any(|_| true), "a healthy POST is never copied: {json}");
        let doubted = |end: u64, step: u64, at: usize| {
            sockets[at].reports.iter().any(|(then, offset)| *then >= step && *offset < end)
        };
        assert!(call.in_json.is_none_or(|end| doubted(end, 0, call.socket)), "it had arrived: {json}");
        let first_id = post.exchanges[call.exchange].first_id_end;
        assert!(first_id.is_none_or(|end| doubted(end, 0, call.socket)), "a cursor could recover it: {json}");
        let last = exchange.last_written.as_deref().map(Id::parse);
        let (stream, sequence) = last.map_or((('l', 0), 0), |id| (id.stream, id.sequence));
        let step = sockets[socket].lent_step(item.start);
        let write = Write { stream, sequence, socket, end: item.end, step };
        let rewinds = session.map_or(&[][..], |session| &self.sessions[session].rewinds);
        for former in &call.recoveries {
            let first = if former.step <= write.step { former } else { &write };
            let rewound = rewinds.iter().any(|rewind| {
                rewind.stream == first.stream
                    && rewind.sequence <= first.sequence
                    && rewind.may_follow(first.step, sockets)
            });
            // The event a cursor names may be evicted, and with it what its client's coming back proves.
            let forgotten =
                moment.evicts && rewinds.iter().any(|rewind| rewind.may_follow(first.step, sockets));
            let rewound = rewound || forgotten;
            let again = former.socket != socket && (rewound || doubted(first.end, first.step, first.socket));
            assert!(again, "given to two GETs: {json}");
        }
        call.recoveries.push(write);
    }

    /// A stream stays one stream: its events go up, start after the cursor, and belong to what was asked.
    #[allow(clippy::too_many_arguments, reason = "everything the rule speaks of")]
    fn check_place(
        &mut self,
        session_index: usize,
        exchange: &Exchange,
        id: &Id,
        block: &Block,
        socket: usize,
        number: usize,
        moment: Moment,
    ) {
        let session = &mut self.sessions[session_index];
        let is_first = exchange.last_written.is_none();
        if block.data.as_deref() == Some("") {
            assert!(session.revision == Revision::V2025_11_25, "an older client would choke on empty data");
            assert!(is_first, "priming comes first");
            assert!(block.retry.is_some());
        }
        let primes = session.revision == Revision::V2025_11_25
            && if matches!(exchange.asked, Asked::Calls(_) | Asked::Ping(_)) {
                moment.primes_posts
            } else {
                moment.primes_gets
            };
        if is_first {
            assert_eq!(block.data.as_deref() == Some(""), primes, "priming as configured: {block:?}");
        }
        if let Some(last) = exchange.last_written.as_deref().map(Id::parse) {
            if last.stream == id.stream {
                assert!(id.sequence > last.sequence, "{id:?} after {last:?}");
                let is_contiguous = id.stream.0 == 'l' || moment.evicts || id.sequence == last.sequence + 1;
                assert!(is_contiguous, "a hole between {last:?} and {id:?}");
            } else {
                let fell_through = last.stream.0 == 'r' && id.stream.0 == 'l';
                let left_over =
                    session.rewinds.iter().any(|rewind| rewind.stream == last.stream) && id.stream.0 == 'l';
                assert!(fell_through || left_over, "{id:?} on the stream of {last:?}");
            }
        }
        match &exchange.asked {
            Asked::Calls(_) | Asked::Ping(_) => {
                assert_eq!(id.stream.0, 'r', "a POST's stream");
                let post = session.posts.entry(id.stream.1).or_insert((socket, number));
                assert_eq!(*post, (socket, number), "two POSTs on one stream");
            }
            Asked::Plain => assert_eq!(id.stream.0, 'l', "a plain GET listens"),
            Asked::Cursor(cursor) => {
                let cursor = Id::parse(cursor);
                let primed = block.data.as_deref() == Some("");
                if primed {
                    assert_eq!(*id, cursor, "a continued stream is primed with its cursor");
                } else if cursor.stream == id.stream {
                    assert!(id.sequence > cursor.sequence, "replay is strictly after the cursor");
                    let is_contiguous = id.stream.0 == 'l'
                        || moment.evicts
                        || !is_first
                        || id.sequence == cursor.sequence + 1;
                    assert!(is_contiguous, "a hole after the cursor {cursor:?}: {id:?}");
                } else {
                    assert_eq!(id.stream.0, 'l', "no other request stream on this one");
                }
            }
            other => panic!("an event in answer to {other:?}"),
        }
    }

    fn request_event(&mut self, session_index: usize, id: &Id, json: &Value, sockets: &[Socket]) {
        let session = &mut self.sessions[session_index];
        let (socket, exchange) = *session.posts.get(&id.stream.1).expect("a stream is opened by its POST");
        let first_id_end = sockets[socket].exchanges.get(exchange).and_then(|post| post.first_id_end);
        let in_doubt =
            first_id_end.is_some_and(|end| sockets[socket].reports.iter().any(|(_, offset)| *offset < end));
        let asked = json["params"]["m"].as_u64().is_some_and(|m| self.asks.contains_key(&m));
        let doubted_request = in_doubt && asked;
        let calls: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| (call.socket, call.exchange) == (socket, exchange))
            .map(|(n, _)| *n)
            .collect();
        let key = (id.stream, id.sequence);
        if calls.is_empty() {
            return assert!(json["result"].is_object(), "a ping has one answer: {json}");
        }
        if is_withdrawal(json) {
            return;
        }
        if json.get("method").is_some() {
            let (call, m) = (json["params"]["call"].as_u64(), json["params"]["m"].as_u64());
            let (call, m) = (call.expect("of a call"), m.expect("a number"));
            assert!(calls.contains(&call), "a message of call {call} on the stream of {calls:?}");
            assert!(self.calls[&call].said.contains(&m), "nobody said {json}");
            let known = *session.events.entry(key).or_insert(m);
            assert_eq!(known, m, "an event id means one message");
            let mut elsewhere = session.events.iter().filter(|(other, n)| **n == m && **other != key);
            // Whether the client got a name for the stream may have been in doubt: a request is on the listener, too.
            let is_doubted =
                |((stream, _), _): (&(StreamName, u32), &u64)| stream.0 == 'l' && doubted_request;
            assert!(elsewhere.all(is_doubted), "one message under two ids: {json}");
        } else {
            let is_open = |call: &Call| call.response.is_none_or(|known| known == key);
            let call = self.match_answer(socket, exchange, &calls, json, is_open);
            let entry = self.calls.get_mut(&call).expect("matched");
            assert!(entry.in_json.is_none());
            let known = *entry.response.get_or_insert(key);
            assert_eq!(known, key, "answered under two ids: {json}");
        }
    }

    #[allow(clippy::too_many_arguments, reason = "everything the rule speaks of")]
    fn listener_event(
        &mut self,
        session_index: usize,
        id: &Id,
        json: &Value,
        socket: usize,
        item: &Item,
        exchange: &mut Exchange,
        sockets: &[Socket],
    ) {
        assert!(json.get("method").is_some(), "a response on a listener stream: {json}");
        if is_withdrawal(json) {
            return;
        }
        let session = &mut self.sessions[session_index];
        let m = json["params"]["m"].as_u64().expect("messages are numbered");
        let key = (id.stream, id.sequence);
        let known = *session.events.entry(key).or_insert(m);
        assert_eq!(known, m, "an event id means one message");
        let in_call = session.events.iter().any(|((stream, _), n)| *n == m && stream.0 == 'r');
        let is_request = self.asks.contains_key(&m);
        assert!(!in_call || is_request, "on the stream of its call and on a listener: {json}");
        // A broadcast may reach a session before the backend has heard of it.
        if let Some((class, step, ms)) = self.broadcasts.get(&m) {
            session.inbox.entry(m).or_insert_with(|| Message::new(*class, *step, *ms, Origin::Broadcast));
        }
        let message = session.inbox.get_mut(&m).unwrap_or_else(|| panic!("nobody said {json}"));
        let write = Write {
            stream: id.stream,
            sequence: id.sequence,
            socket,
            end: item.end,
            step: sockets[socket].lent_step(item.start),
        };
        for former in &message.writes {
            if (former.stream, former.sequence) == key {
                continue;
            }
            // The same message on another stream: only what was not known to have arrived may move. What the kernel
            // had been given by then is still written.
            let (first, _) = if former.step <= write.step { (former, &write) } else { (&write, former) };
            let doubted = sockets[first.socket]
                .reports
                .iter()
                .any(|(step, offset)| *step >= first.step && *offset < first.end);
            let rewound = session.rewinds.iter().any(|rewind| {
                rewind.stream == first.stream
                    && rewind.sequence < first.sequence
                    && rewind.may_follow(first.step, sockets)
            });
            assert!(
                doubted || rewound,
                "message {m} is in {former:?} and in {write:?} though it had arrived"
            );
            // A cursor is evidence, too: from then on it moves no further, unless its client asked for it again.
            let is_new = !message.writes.iter().any(|other| (other.stream, other.sequence) == key);
            let rewinds = session.rewinds.iter().filter(|rewind| rewind.stream == former.stream);
            let asked_again = |since: u64| {
                let mut older = rewinds.clone().filter(|rewind| rewind.sequence < former.sequence);
                older.any(|rewind| rewind.may_follow(since, sockets))
            };
            let proven = is_new
                && !message.class.is_signal()
                && rewinds.clone().any(|rewind| {
                    let exchange = &sockets[rewind.socket].exchanges[rewind.exchange];
                    rewind.sequence >= former.sequence
                        && exchange.status == Some(200)
                        && exchange
                            .answered_step
                            .is_some_and(|answered| answered < write.step && !asked_again(answered))
                });
            assert!(!proven, "message {m} is in {write:?} though a cursor had named {former:?}");
        }
        let is_fresh = message.writes.is_empty();
        let (class, origin, step) = (message.class, message.origin, message.step);
        if is_fresh && !self.drops && class == Class::Other && origin == Origin::Session {
            session.check_overtaken(m, step);
        }
        let message = session.inbox.get_mut(&m).expect("seen above");
        if is_fresh && message.class == Class::Other && message.origin == Origin::Session {
            if let Some(last_step) = exchange.last_fresh {
                let inverted = message.step < last_step && session.disturbed_step < message.step;
                assert!(!inverted, "message {m} was said before {} and written after", exchange.last_fresh_m);
            }
            exchange.last_fresh = Some(message.step.max(exchange.last_fresh.unwrap_or(0)));
            exchange.last_fresh_m = m;
        }
        // Evidence counts as long as the stream was where it came from.
        let moved_on = |from: u64| {
            let later = session
                .rewinds
                .iter()
                .filter(|rewind| rewind.stream == id.stream && rewind.may_follow(from, sockets));
            let sent = later.map(|rewind| sockets[rewind.socket].exchanges[rewind.exchange].step);
            sent.min().unwrap_or(u64::MAX).min(exchange.step).max(from)
        };
        let repeated = message.class.is_signal()
            && message.writes.iter().any(|former| {
                // A half-close ends a listener's stream there, and with it what is known of it by then.
                let over = sockets[former.socket].half_closed_step.unwrap_or(u64::MAX);
                (former.stream, former.sequence) == key
                    && sockets[former.socket].reports.iter().any(|(step, offset)| {
                        (former.step..moved_on(former.step)).contains(step)
                            && *step <= over
                            && *offset >= former.end
                    })
            });
        assert!(!repeated, "a signal that arrived was replayed: {m}");
        message.writes.push(write);
    }
}

/// Whether it says that the call took too long.
fn is_time_out(answer: &Value) -> bool {
    answer["error"]["message"] == "the request timed out"
}

/// Whether it tells the client that a request to it needs no answer any more.
fn is_withdrawal(json: &Value) -> bool {
    json["method"] == "notifications/cancelled"
}

/// Whether a plain GET of the same session is on its way or was just answered.
fn is_probed(sockets: &[Socket], index: usize, exchange: usize) -> bool {
    let session = sockets[index].exchanges[exchange].session;
    let mut others = sockets.iter().flat_map(|socket| &socket.exchanges);
    others.any(|other| other.session == session && other.asked == Asked::Plain && other.status.is_none())
}
