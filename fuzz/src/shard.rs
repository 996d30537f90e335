//! Sequences of operations on two shards.
//!
//! The bytes are a script: connections come, send requests good and bad, stall, half-close and reset; the backend answers, asks and
//! announces; time passes; the server drains. The caps are so low that they are reached. Rules: every invariant of both shards
//! holds after each step (the world sees to that); what a client reads is HTTP; when all connections are gone and every time
//! is over, nothing is left: no connection, session, stream, call or timer.

use super::{
    Choices,
    world::{self, ClientId, World, http, stateless},
};
use bytes::Bytes;
use moorline::core::{
    CallKey, Listening, NotificationKind, ServerMethod, ServerRequest, ServerRequestId, SessionKey, Tell,
    config::{CoreConfig, ListenerPolicy},
    counters::Counters,
    jsonrpc::{self, RpcError},
};

/// Longer scripts are cut here, so that one run stays short.
const STEPS_MAX: usize = 200;
const CLIENTS_MAX: usize = 40;

/// Judges any bytes as a script.
pub fn check(bytes: &[u8]) {
    play(bytes);
}

/// Plays a script; what each shard counted.
pub fn play(bytes: &[u8]) -> Vec<Counters> {
    let mut choices = Choices::new(bytes);
    let mut play = Play::new(choices.byte());
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        play.step(&mut choices);
    }
    play.end()
}

/// Scripts that reach deep: each is a few steps that make sense together.
pub fn seeds() -> Vec<Vec<u8>> {
    use op::*;
    let open = [CONNECT, 0, REQUEST, 0, 0, INITIALIZE, REQUEST, 0, 0, INITIALIZED];
    let with = |config: u8, steps: &[u8]| [&[config], &open[..], steps].concat();
    let mut seeds = vec![
        with(0, &[REQUEST, 0, 0, PING, CONNECT, 1, REQUEST, 1, 0, LISTEN, ANNOUNCE, 0, ADVANCE, 5]),
        with(0, &[REQUEST, 0, 0, CALL, NOTIFY, 0, RESET, 0, ANSWER, 0, CONNECT, 0, REQUEST, 1, 0, RESUME, 0]),
        with(
            0,
            &[
                CONNECT, 0, REQUEST, 1, 0, LISTEN, STALL, 1, ANNOUNCE, 0, ANNOUNCE, 0, CONNECT, 1, REQUEST,
                2, 0, LISTEN, ADVANCE, 4,
            ],
        ),
        with(
            1,
            &[
                CONNECT, 0, REQUEST, 1, 0, LISTEN, HOLD, 1, ANNOUNCE, 0, RESET, 1, CONNECT, 0, REQUEST, 2, 0,
                RESUME, 1,
            ],
        ),
        with(
            2,
            &[
                CONNECT,
                0,
                REQUEST,
                1,
                0,
                CALL,
                ASK,
                0,
                CLOSE_STREAM,
                0,
                ADVANCE,
                3,
                ANSWER,
                0,
                REQUEST,
                0,
                0,
                DELETE,
            ],
        ),
        with(
            0,
            &[
                CONNECT, 0, REQUEST, 1, 0, HEAR, ANSWER, 0, BROADCAST, 0, BROADCAST, 1, STALL, 1, BROADCAST,
                5, ADVANCE, 4, BROADCAST, 100, BROADCAST, 101, ADVANCE, 12,
            ],
        ),
        with(
            0,
            &[CONNECT, 0, REQUEST, 1, 0, HEAR, ANSWER, 2, CONNECT, 1, REQUEST, 2, 0x10, GO_ON, ANSWER, 1],
        ),
        with(
            0,
            &[
                &[CONNECT, 0, CONNECT, 0, CONNECT, 0, CONNECT, 0][..],
                &[REQUEST, 1, 0, EXCHANGE, REQUEST, 2, 0, EXCHANGE, REQUEST, 3, 0, EXCHANGE],
                &[REQUEST, 4, 0, EXCHANGE, NOTIFY, 2, ANSWER, 1, RESET, 2, HALF_CLOSE, 3, ANSWER, 0],
            ]
            .concat(),
        ),
        with(3, &[REQUEST, 0, 0, BATCH, ANSWER, 0, ANSWER, 0, BROADCAST, 0, DRAIN, 0, ADVANCE, 6]),
        with(0, &[REQUEST, 0, 0, CHUNKED, REQUEST, 0, 0, EXPECT, REQUEST, 0, 0, RESPONSE, HALF_CLOSE, 0]),
        with(
            0,
            &[
                REQUEST,
                0,
                0,
                CALL,
                REQUEST,
                0,
                0,
                CANCEL,
                CONNECT,
                0,
                REQUEST,
                1,
                0,
                LISTEN,
                CLOSE_LISTENERS,
                0,
                ADVANCE,
                4,
            ],
        ),
        with(0, &[CONNECT, 1, RAW, 1, 9, b'P', b'O', b'S', b'T', b' ', b'/', b'm', b'c', b'p', ADVANCE, 12]),
        with(
            0,
            &[
                &[CONNECT, 0, REQUEST, 1, 0, CALL, NOTIFY, 2, STALL, 1][..],
                &[NOTIFY, 204, ADVANCE, 4].repeat(6)[..],
                &[ADVANCE, 12],
            ]
            .concat(),
        ),
    ];
    seeds.extend(super::corpus().into_iter().filter(|case| case.len() < 250).step_by(12).map(|case| {
        let length = u8::try_from(case.len()).expect("filtered");
        [&[0, CONNECT, 0, RAW, 0, length], &case[..]].concat()
    }));
    seeds.extend(
        (0..100_u32).map(|seed| with(seed.to_le_bytes()[0], &[&open[..], &any_steps(seed)].concat())),
    );
    seeds
}

/// Bytes each of which is some decision.
fn any_steps(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..500).map(|_| next()).collect()
}

/// The first byte of each step; a byte beyond them is one of those that lead on.
mod op {
    pub(super) fn of(byte: u8, count: u8, likely: &[u8]) -> u8 {
        if byte < count { byte } else { likely[usize::from(byte) % likely.len()] }
    }

    pub(super) const LIKELY: [u8; 18] = [
        REQUEST,
        REQUEST,
        REQUEST,
        REQUEST,
        REQUEST,
        REQUEST,
        REQUEST,
        REQUEST,
        CONNECT,
        CONNECT,
        ANSWER,
        NOTIFY,
        ANNOUNCE,
        ANNOUNCE,
        ACKNOWLEDGE,
        HOLD,
        ADVANCE,
        RESET,
    ];
    pub(super) const LIKELY_KINDS: [u8; 15] = [
        EXCHANGE,
        HEAR,
        GO_ON,
        CALL,
        LISTEN,
        RESUME,
        CALL,
        LISTEN,
        RESUME,
        CALL,
        INITIALIZE,
        INITIALIZED,
        INITIALIZE,
        CANCEL,
        RESPONSE,
    ];

    pub(super) const CONNECT: u8 = 0;
    pub(super) const RAW: u8 = 1;
    pub(super) const REQUEST: u8 = 2;
    pub(super) const HALF_CLOSE: u8 = 3;
    pub(super) const RESET: u8 = 4;
    pub(super) const ADVANCE: u8 = 5;
    pub(super) const STALL: u8 = 6;
    pub(super) const OPEN_WINDOW: u8 = 7;
    pub(super) const HOLD: u8 = 8;
    pub(super) const ACKNOWLEDGE: u8 = 9;
    pub(super) const ANSWER: u8 = 10;
    pub(super) const FAIL: u8 = 11;
    pub(super) const NOTIFY: u8 = 12;
    pub(super) const ANNOUNCE: u8 = 13;
    pub(super) const BROADCAST: u8 = 14;
    pub(super) const ASK: u8 = 15;
    pub(super) const CLOSE_STREAM: u8 = 16;
    pub(super) const CLOSE_LISTENERS: u8 = 17;
    pub(super) const STALE: u8 = 18;
    pub(super) const DRAIN: u8 = 19;
    pub(super) const COUNT: u8 = 20;

    // What a request is; the third byte after REQUEST.
    pub(super) const INITIALIZE: u8 = 0;
    pub(super) const INITIALIZED: u8 = 1;
    pub(super) const PING: u8 = 2;
    pub(super) const CALL: u8 = 3;
    pub(super) const LISTEN: u8 = 4;
    pub(super) const RESUME: u8 = 5;
    pub(super) const DELETE: u8 = 6;
    pub(super) const CANCEL: u8 = 7;
    pub(super) const BATCH: u8 = 8;
    pub(super) const RESPONSE: u8 = 9;
    pub(super) const CHUNKED: u8 = 10;
    pub(super) const EXPECT: u8 = 11;
    // Without a session: a call, a subscription, and a call that goes on with what some shard has.
    pub(super) const EXCHANGE: u8 = 12;
    pub(super) const HEAR: u8 = 13;
    pub(super) const GO_ON: u8 = 14;
    /// The last kind is a request for a log level.
    pub(super) const KINDS: u8 = 16;
}

const REVISIONS: [&str; 5] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "1900-01-01"];
/// One tick, less and more than most deadlines, and longer than all but the longest.
const TIMES_MS: [u64; 16] = [
    1, 16, 16, 200, 200, 1_000, 1_000, 1_000, 5_000, 5_000, 10_000, 15_000, 31_000, 61_000, 130_000,
    1_900_000,
];

/// A world and what its clients have learned.
struct Play {
    world: World,
    /// Which clients can still send, and which are there at all.
    sending: Vec<bool>,
    /// Bytes each client has read and not yet understood.
    unread: Vec<Vec<u8>>,
    sessions: Vec<String>,
    cursors: Vec<String>,
    asks: u64,
    /// Calls that were answered, for words that come too late.
    stale: Vec<(usize, CallKey, SessionKey)>,
}

impl Play {
    fn new(choice: u8) -> Self {
        let config = CoreConfig {
            connections_max: 12,
            sessions_max: 5,
            replay_events_max: 6,
            replay_bytes_max: 2_000,
            write_buffer_bytes: 600,
            message_bytes_max: 1_000,
            body_bytes_max: 2_000,
            request_timeout_ms: 100_000,
            exchanges_max: 3,
            keep_alive_ms: if choice & 4 == 0 { 15_000 } else { 0 },
            listener_policy: if choice & 1 == 0 { ListenerPolicy::First } else { ListenerPolicy::Latest },
            fresh_get_fallback: choice & 2 == 0,
            ..world::config(2)
        };
        Play {
            world: World::seeded(config, u64::from(choice)),
            sending: Vec::new(),
            unread: Vec::new(),
            sessions: Vec::new(),
            cursors: Vec::new(),
            asks: 0,
            stale: Vec::new(),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let code = op::of(choices.byte(), op::COUNT, &op::LIKELY);
        match code {
            op::CONNECT => self.connect(choices.below(2)),
            op::ADVANCE => self.world.advance(choices.pick(&TIMES_MS)),
            op::ANSWER..=op::DRAIN => self.backend(code, choices),
            _ => self.client(code, choices),
        }
        self.learn();
    }

    // --- Clients ---------------------------------------------------------------------------------

    fn connect(&mut self, shard: usize) {
        if self.sending.len() < CLIENTS_MAX && self.world.try_connect_to(shard).is_ok() {
            self.sending.push(true);
            self.unread.push(Vec::new());
        }
    }

    fn client(&mut self, code: u8, choices: &mut Choices<'_>) {
        let index = usize::from(choices.byte());
        let Some(client) = index.checked_rem(self.sending.len()).map(ClientId) else { return };
        let ended = self.world.client(client).gone || self.world.client(client).server_side_closed();
        match code {
            op::STALL => self.world.stall(client),
            op::OPEN_WINDOW => {
                let bytes = choices.pick(&[1, 17, 300, 100_000]);
                if !ended {
                    self.world.open_window(client, bytes);
                }
            }
            op::HOLD => self.world.hold(client),
            op::ACKNOWLEDGE => self.world.acknowledge(client),
            _ if ended => {}
            op::RESET => {
                self.sending[client.0] = false;
                self.world.reset(client);
            }
            _ if !self.sending[client.0] => {}
            op::HALF_CLOSE => {
                self.sending[client.0] = false;
                self.world.half_close(client);
            }
            op::RAW => {
                let length = usize::from(choices.byte());
                let bytes = choices.take(length).to_vec();
                self.world.send(client, bytes);
            }
            _ => self.request(client, choices),
        }
    }

    fn request(&mut self, client: ClientId, choices: &mut Choices<'_>) {
        let choice = choices.byte();
        let (session, id) = (self.session_line(choice), choice >> 4 & 3);
        let kind = op::of(choices.byte(), op::KINDS, &op::LIKELY_KINDS);
        let session = if kind == op::INITIALIZE { String::new() } else { session };
        let post = |fields: &str, body: &str| post(&format!("{session}{fields}"), body);
        let request = match kind {
            op::INITIALIZE => {
                self.world.client(client).initializing = true;
                post("", &World::initialize_body(REVISIONS[usize::from(id)]).replace("{}", CAPABILITIES))
            }
            op::INITIALIZED => post("", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            op::PING => post("", &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)),
            op::CALL => post("", &call(id)),
            op::LISTEN => get(&session, ""),
            op::RESUME => {
                let cursor = self.cursor(id);
                get(&session, &format!("Last-Event-ID: {cursor}\r\n"))
            }
            op::DELETE => format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{session}\r\n"),
            op::CANCEL => post(
                "",
                &format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                ),
            ),
            op::BATCH => post("", &format!("[{},{}]", call(id), call(id))),
            op::RESPONSE => post("", &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)),
            op::CHUNKED => format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{session}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"js\r\n"
            ),
            op::EXPECT => post("Expect: 100-continue\r\n", ""),
            op::EXCHANGE => stateless::tool_call(&id.to_string()),
            op::HEAR => stateless::listen(&id.to_string(), "{}"),
            op::GO_ON => {
                let state = format!(r#""requestState":"moorline.{id}.x""#);
                stateless::stateless(&id.to_string(), "tools/list", &state)
            }
            _ => post(
                "",
                &format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"error"}}}}"#
                ),
            ),
        };
        self.world.send(client, request);
    }

    /// A session somebody was given, or one that nobody was.
    fn session_line(&self, choice: u8) -> String {
        match usize::from(choice).checked_rem(self.sessions.len() + 1) {
            Some(index) if index < self.sessions.len() => {
                format!("Mcp-Session-Id: {}\r\n", self.sessions[index])
            }
            _ if choice & 0x40 == 0 => String::new(),
            _ => format!("Mcp-Session-Id: {:042x}\r\n", u32::from(choice)),
        }
    }

    fn cursor(&self, choice: u8) -> String {
        let index = self.cursors.len().checked_sub(1 + usize::from(choice));
        index.map_or_else(|| "aaaaaa-l1-1".to_owned(), |index| self.cursors[index].clone())
    }

    /// Reads what arrived: it has to be HTTP, and names sessions and events.
    fn learn(&mut self) {
        for index in 0..self.unread.len() {
            let bytes = std::mem::take(&mut self.world.client(ClientId(index)).received);
            if bytes.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            for line in text.lines() {
                if let Some(id) = line.strip_prefix("Mcp-Session-Id: ") {
                    self.sessions.push(id.trim().to_owned());
                } else if let Some(id) = line.strip_prefix("id: ") {
                    self.cursors.push(id.trim().to_owned());
                }
            }
            self.unread[index].extend_from_slice(&bytes);
        }
    }

    // --- The backend -----------------------------------------------------------------------------

    fn backend(&mut self, code: u8, choices: &mut Choices<'_>) {
        let choice = choices.byte();
        match code {
            op::BROADCAST => self.world.tell(0, Tell::Broadcast(notification(choice))),
            op::DRAIN if choice & 0xf == 0 => {
                for shard in &mut self.world.shards {
                    shard.drain(0, self.world.now);
                }
                self.world.settle();
            }
            op::DRAIN => {}
            op::ANSWER | op::FAIL => {
                if let Some(index) = usize::from(choice).checked_rem(self.world.calls.len()) {
                    let (shard, call) = &self.world.calls[index];
                    if code == op::ANSWER && choice & 1 == 0 && call.method.as_str() == "subscriptions/listen"
                    {
                        let tell = Tell::Listen(call.key, listening(choice));
                        return self.world.tell(*shard, tell);
                    }
                    let (shard, call) = self.world.calls.remove(index);
                    self.stale.extend(call.session.map(|session| (shard, call.key, session)));
                    let answer = match code {
                        op::ANSWER => {
                            Ok(Bytes::from(format!("{:width$}", "{}", width = usize::from(choice) * 5)))
                        }
                        _ => Err(RpcError::internal_error()),
                    };
                    self.world.tell(shard, Tell::Respond(call.key, answer));
                }
            }
            op::STALE => {
                if let Some(index) = usize::from(choice).checked_rem(self.stale.len()) {
                    let (shard, call, session) = self.stale[index];
                    self.world.tell(shard, Tell::Respond(call, Ok(Bytes::from_static(b"{}"))));
                    self.world.tell(shard, Tell::CloseListeners(session, 1));
                }
            }
            _ => self.about_a_call(code, choice),
        }
    }

    fn about_a_call(&mut self, code: u8, choice: u8) {
        let target = usize::from(choice).checked_rem(self.world.calls.len());
        if let Some((shard, call)) = target.map(|index| &self.world.calls[index])
            && call.session.is_none()
        {
            let tell = match code {
                op::NOTIFY => Tell::Notify(call.key, notification(choice)),
                op::CLOSE_STREAM => Tell::CloseStream(call.key, 1),
                _ => Tell::Refuse(call.key),
            };
            let shard = *shard;
            if let Tell::Refuse(key) = &tell {
                self.world.calls.retain(|(at, call)| *at != shard || call.key != *key);
            }
            return self.world.tell(shard, tell);
        }
        let target = target.map(|index| (self.world.calls[index].0, &self.world.calls[index].1));
        let target = target.and_then(|(shard, call)| Some((shard, Some(call.key), call.session?)));
        // Without a call, a session that initialized.
        let known = || self.world.clients.iter().rev().find_map(|client| client.backend_session);
        let target = target.or_else(|| known().map(|(shard, session)| (shard, None, session)));
        let Some((shard, call, session)) = target else { return };
        let tell = match (code, call) {
            (op::NOTIFY, Some(call)) => Tell::Notify(call, notification(choice)),
            (op::CLOSE_STREAM, Some(call)) => Tell::CloseStream(call, u64::from(choice)),
            (op::CLOSE_LISTENERS, _) => Tell::CloseListeners(session, u64::from(choice)),
            (op::ASK, call) => {
                self.asks += 1;
                Tell::Request(ServerRequest {
                    id: ServerRequestId(self.asks),
                    session,
                    call: call.filter(|_| choice & 1 == 0),
                    method: [ServerMethod::Ping, ServerMethod::Elicit, ServerMethod::CreateMessage]
                        [usize::from(choice % 3)],
                    params: None,
                    timeout_ms: u64::from(choice) * 1_000,
                })
            }
            _ => Tell::Announce(session, notification(choice)),
        };
        self.world.tell(shard, tell);
    }

    // --- The end ---------------------------------------------------------------------------------

    fn end(mut self) -> Vec<Counters> {
        for index in 0..self.sending.len() {
            let client = ClientId(index);
            self.world.client(client).closes_promptly = true;
            if !self.world.client(client).gone && !self.world.client(client).closed {
                self.world.reset(client);
            }
        }
        for (shard, call) in std::mem::take(&mut self.world.calls) {
            self.world.tell(shard, Tell::Respond(call.key, Ok(Bytes::from_static(b"{}"))));
        }
        // Handshake, idle, replay, request and ask deadlines are all within two of the longest.
        self.world.advance(3 * 3_600_000);
        self.learn();
        for unread in &self.unread {
            check_replies(unread);
        }
        for shard in &self.world.shards {
            assert_eq!(shard.population(), Default::default(), "something is left of what is gone");
        }
        assert_eq!((self.world.census.connections(), self.world.census.sessions()), (0, 0));
        assert_eq!(self.world.census.ledger().accounts(), 0, "nobody has anything");
        let begun: u64 = self.world.shards.iter().map(|shard| shard.counters().sessions).sum();
        assert_eq!(self.world.ended.len() as u64, begun, "the backend is told of every end");
        self.world.shards.iter().map(|shard| shard.counters().clone()).collect()
    }
}

const CAPABILITIES: &str = r#"{"elicitation":{},"sampling":{}}"#;

fn call(id: u8) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":"t"}}}}}}"#
    )
}

fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    )
}

fn get(session: &str, fields: &str) -> String {
    format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{session}{fields}\r\n")
}

/// What a subscription is to: sometimes to more than it may be.
fn listening(choice: u8) -> Listening {
    let uris = if choice & 2 == 0 { 1 } else { 300 };
    let uris = (0..uris).map(|n| if n == 0 { "file:///x".into() } else { format!("file:///{n}").into() });
    Listening { tools: choice & 4 == 0, prompts: false, resources: true, uris: uris.collect() }
}

fn notification(choice: u8) -> moorline::core::Notification {
    let kind = match choice % 5 {
        0 => NotificationKind::ToolsListChanged,
        1 => NotificationKind::ResourceUpdated("file:///x".into()),
        2 => NotificationKind::Progress,
        3 => NotificationKind::Log(moorline::core::LogLevel::Info),
        _ => NotificationKind::Other,
    };
    let params = format!(r#"{{"text":"{:width$}"}}"#, choice, width = usize::from(choice) * 4);
    moorline::core::Notification {
        kind,
        json: jsonrpc::notification("notifications/x", Some(params.as_bytes())),
    }
}

/// Everything a client got is one reply after the other, the last one cut at most.
fn check_replies(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    while !bytes.is_empty() {
        assert!(bytes.starts_with(&b"HTTP/1.1 "[..bytes.len().min(9)]), "{}", bytes.escape_ascii());
        // The reply to HEAD has a length and no body; no body of ours begins like a reply.
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        if bytes[end..].starts_with(b"HTTP/1.1 ") {
            drop(bytes.drain(..end));
            continue;
        }
        match http::Response::parse(&bytes) {
            Some((response, rest)) if response.complete => bytes = rest,
            // Cut by the connection's end, or ended by it.
            Some(_) | None => return,
        }
    }
}
