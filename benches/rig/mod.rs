//! A shard between fake sockets and a backend that answers at once, for benches and for tests that count.
//!
//! Plays the shell's part of a turn and nothing more: no system call, no socket buffer, no parsing of replies. What
//! one call of it costs beyond the shard is a copy of the request into a pooled buffer and a look at each
//! piece of output. Everything is found by index, so it stays the same from one session to a million.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each bench uses its part of this")]

pub mod counting;

use bytes::{Bytes, BytesMut};
use moorline::{
    backend::{Builtin, Host},
    core::{
        Ask, ConnKey, Effect, Entropy, Notification, NotificationKind, Now, Piece, SessionKey, ShardId, Tell,
        census::Census,
        config::CoreConfig,
        http::{Binding, Policy},
        jsonrpc,
        shard::{Admission, Shard},
    },
    limits::{EXPIRIES_PER_TURN_MAX, SENDS_PER_TURN_MAX},
    shell::Backend,
};
use std::{sync::Arc, task};

/// Whether this run measures. Benches are also run by the tests, then as small as they can be.
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// A size for measuring; a small one in tests.
pub fn sized(measured: usize) -> usize {
    if is_measured() { measured } else { measured.min(1_000) }
}

/// What answers the calls.
pub enum Behind {
    /// Always these bytes, in no time: what is measured is the core alone.
    Canned(Bytes),
    /// The built-in server.
    Builtin(Box<Host<Builtin>>),
}

/// One shard and its clock.
pub struct Rig {
    pub shard: Shard,
    pub now: Now,
    /// Bytes that were written since this was last set to zero.
    pub written_bytes: u64,
    /// Writes since this was last set to zero: each is one ring entry and one operation of the kernel.
    pub writes: u64,
    /// The last write, while it is wanted.
    pub last_write: Option<Vec<u8>>,
    behind: Behind,
    /// The session of the last `initialize`.
    newest: Option<SessionKey>,
    buffers: Vec<BytesMut>,
    pieces: Vec<Piece>,
    tells: Vec<Tell>,
}

/// A client with a session, on one connection.
#[derive(Clone, Copy)]
pub struct Client {
    pub conn: ConnKey,
    pub session: SessionKey,
    /// `Mcp-Session-Id`.
    pub id: SessionText,
}

/// A session id, as long as they all are.
pub type SessionText = [u8; 42];

/// The same bytes in every run.
struct Seeded(u64);

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = self.0.to_be_bytes()[0];
        }
    }
}

impl Rig {
    /// A shard with room for that many sessions, each with a connection or two.
    pub fn new(sessions_max: usize) -> Self {
        Rig::with(sessions_max, Behind::Canned(Bytes::from_static(CANNED)), |_| {})
    }

    pub fn with(sessions_max: usize, behind: Behind, settle: impl FnOnce(&mut CoreConfig)) -> Self {
        let policy = Policy::new::<&str>("/mcp", Binding::Loopback, &[], &[]).expect("a valid policy");
        let mut config = CoreConfig::new(1, policy);
        config.sessions_max = sessions_max;
        config.connections_max = 2 * sessions_max + 64;
        settle(&mut config);
        let now = Now { ms: 0, unix_s: 1_700_000_000 };
        let shard =
            Shard::new(ShardId(0), Arc::new(config), Arc::new(Census::new()), Box::new(Seeded(1)), now);
        Rig {
            shard,
            now,
            written_bytes: 0,
            writes: 0,
            last_write: None,
            behind,
            newest: None,
            buffers: Vec::new(),
            pieces: Vec::with_capacity(16),
            tells: Vec::new(),
        }
    }

    // --- Clients ---------------------------------------------------------------------------------

    pub fn connect(&mut self) -> ConnKey {
        match self.shard.connect(self.now) {
            Admission::Admitted(key) => key,
            Admission::Refused(_) => panic!("the rig has room for its clients"),
        }
    }

    /// A session on a connection of its own, its handshake done.
    pub fn open(&mut self) -> Client {
        let conn = self.connect();
        let id = self.initialize(conn);
        let client = Client { conn, session: self.newest.expect("initialize reached the backend"), id };
        self.send(conn, &post(Some(&id), "", INITIALIZED));
        client
    }

    /// The same, and its connection holds a listener stream.
    pub fn open_listening(&mut self) -> Client {
        let client = self.open();
        self.send(client.conn, &get(&client.id, ""));
        client
    }

    /// A session that ends as soon as it has begun, on a connection that stays.
    pub fn begin_and_end(&mut self, conn: ConnKey) {
        let id = self.initialize(conn);
        self.delete(conn, &id);
    }

    pub fn delete(&mut self, conn: ConnKey, id: &SessionText) {
        let mut out = b"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n".to_vec();
        put_session(&mut out, Some(id));
        out.extend_from_slice(b"\r\n");
        self.send(conn, &out);
    }

    fn initialize(&mut self, conn: ConnKey) -> SessionText {
        let kept = self.last_write.replace(Vec::new());
        self.send(conn, &post(None, "", INITIALIZE));
        let reply = std::mem::replace(&mut self.last_write, kept).expect("set above");
        let name = b"Mcp-Session-Id: ";
        let at =
            reply.windows(name.len()).position(|window| window == name).expect("a new session") + name.len();
        reply[at..].first_chunk().copied().expect("an id of full length")
    }

    /// Bytes arrive; everything they lead to happens.
    pub fn send(&mut self, conn: ConnKey, bytes: &[u8]) {
        let kept = self.shard.take_input(conn);
        let mut buffer = kept.or_else(|| self.buffers.pop()).unwrap_or_else(|| BytesMut::with_capacity(8192));
        buffer.extend_from_slice(bytes);
        if let Some(mut spent) = self.shard.received(conn, buffer, self.now) {
            spent.clear();
            // As the shell does before it receives: the pages of a buffer are used again once nobody holds them.
            spent.reserve(1);
            self.buffers.push(spent);
        }
        self.settle();
    }

    /// The client's connection is reset with nothing left in the kernel.
    pub fn reset(&mut self, conn: ConnKey) {
        self.shard.lost(conn, 0, self.now);
        self.settle();
    }

    // --- The backend -----------------------------------------------------------------------------

    pub fn tell(&mut self, tell: Tell) {
        self.shard.tell(tell, self.now);
        self.settle();
    }

    fn ask(&mut self, ask: Ask) {
        if let Ask::Call(call) = &ask
            && call.method.as_str() == "initialize"
        {
            self.newest = call.session;
        }
        match (&mut self.behind, ask) {
            (Behind::Canned(_), Ask::Call(call)) if call.method.as_str() == "initialize" => {
                self.tells.push(Tell::Respond(call.key, Ok(Bytes::from_static(GREETING))));
            }
            (Behind::Canned(result), Ask::Call(call)) => {
                self.tells.push(Tell::Respond(call.key, Ok(result.clone())));
            }
            (Behind::Canned(_), _) => {}
            (Behind::Builtin(host), ask) => {
                host.ask(ask, &mut self.tells);
                host.poll(&mut task::Context::from_waker(task::Waker::noop()), &mut self.tells);
            }
        }
        for tell in self.tells.drain(..) {
            self.shard.tell(tell, self.now);
        }
    }

    // --- Running ---------------------------------------------------------------------------------

    /// Lets time pass tick by tick, in turns as long as the shell's: what a turn may look at bounds what waits in lists.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.ms + ms;
        while let Some(next) = self.shard.next_deadline_ms().filter(|next| *next <= end) {
            self.now.ms = next.max(self.now.ms);
            self.shard.tick(self.now, EXPIRIES_PER_TURN_MAX);
            self.settle();
        }
        self.now.ms = end;
    }

    /// Carries out effects and writes output until nothing is left to do.
    pub fn settle(&mut self) {
        loop {
            while let Some(effect) = self.shard.next_effect() {
                self.carry_out(effect);
            }
            let mut wrote = false;
            while let Some(conn) = self.shard.next_output().or_else(|| self.shard.next_comment()) {
                wrote |= self.write(conn);
            }
            if self.shard.has_broadcasts() {
                self.shard.pump(SENDS_PER_TURN_MAX, self.now);
            } else if !wrote {
                break;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Close(conn, _) => self.shard.closed(conn, 0, self.now),
            Effect::Measure(conn) => self.shard.unacknowledged(conn, 0, self.now),
            Effect::Ask(ask) => self.ask(ask),
            Effect::Broadcast(_) | Effect::Published(..) => {}
            Effect::Move(_) => panic!("there is one shard"),
        }
    }

    /// One write, taken whole.
    fn write(&mut self, conn: ConnKey) -> bool {
        self.shard.fill(conn, &mut self.pieces);
        let count: usize = self.pieces.iter().map(Piece::len).sum();
        if self.pieces.is_empty() {
            return false;
        }
        if let Some(seen) = &mut self.last_write {
            seen.clear();
            self.pieces.iter().for_each(|piece| seen.extend_from_slice(piece.as_slice()));
        }
        self.pieces.clear();
        self.writes += 1;
        self.written_bytes += count as u64;
        self.shard.wrote(conn, count, self.now);
        true
    }
}

// --- Requests -------------------------------------------------------------------------------------

/// The result of every call.
const GREETING: &[u8] =
    br#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"bench","version":"1"}}"#;
pub const CANNED: &[u8] = br#"{"content":[{"type":"text","text":"hello, world"}]}"#;
/// A small call.
pub const CALL: &str = r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello, world"}}}"#;
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;

/// What an SDK client sends with a POST; `fields` are more lines, each ended by CR LF.
pub fn post(session: Option<&SessionText>, fields: &str, body: &str) -> Vec<u8> {
    let accept =
        if fields.contains("Accept:") { "" } else { "Accept: application/json, text/event-stream\r\n" };
    let mut out =
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\n".to_vec();
    out.extend_from_slice(accept.as_bytes());
    put_session(&mut out, session);
    let length = body.len();
    out.extend_from_slice(
        format!("MCP-Protocol-Version: 2025-11-25\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
            .as_bytes(),
    );
    out
}

/// A GET of the endpoint.
pub fn get(session: &SessionText, fields: &str) -> Vec<u8> {
    let mut out = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: text/event-stream\r\n".to_vec();
    put_session(&mut out, Some(session));
    out.extend_from_slice(format!("{fields}\r\n").as_bytes());
    out
}

fn put_session(out: &mut Vec<u8>, session: Option<&SessionText>) {
    if let Some(id) = session {
        out.extend_from_slice(b"Mcp-Session-Id: ");
        out.extend_from_slice(id);
        out.extend_from_slice(b"\r\n");
    }
}

/// A notification that is merged with nothing.
pub fn message(text: &str) -> Notification {
    let params = format!(r#"{{"text":"{text}"}}"#);
    Notification {
        kind: NotificationKind::Other,
        json: jsonrpc::notification("notifications/bench", Some(params.as_bytes())),
    }
}
