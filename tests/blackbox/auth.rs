//! Who gets in, over real sockets: tokens from a file, reading it again, and what never shows.
#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

use super::{
    PATIENCE,
    events::EventStream,
    server::{Server, command, exit_within},
    session::stateless,
    until,
    wire::{Chunk, Connection, Response},
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;

/// A file of tokens, and the tokens.
pub(crate) struct Tokens {
    directory: tempfile::TempDir,
    lines: Vec<String>,
}

impl Tokens {
    pub(crate) fn new() -> Self {
        Tokens { directory: tempfile::tempdir().unwrap(), lines: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tokens")
    }

    /// A new token of that name, whose line is written with the next [`save`](Self::save).
    pub(crate) fn add(&mut self, name: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_moorline")).args(["token", name]).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        let (token, line) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(line.starts_with(&format!("{name} sha256:")) && lines.next().is_none(), "{text}");
        self.lines.push(line);
        token
    }

    pub(crate) fn save(&self) {
        fs::write(self.path(), self.lines.join("\n")).unwrap();
    }

    pub(crate) fn flag(&self) -> String {
        format!("tokens={}", self.path().display())
    }
}

pub(crate) fn send(connection: &mut Connection, method: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    connection.send(format!(
        "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    ));
    connection.response(method)
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The field that names a new session of whoever has the token.
pub(crate) fn open(server: &Server, token: &str) -> String {
    let reply = send(&mut server.connect(), "POST", &bearer(token), INITIALIZE);
    assert_eq!(reply.status(), 200);
    format!("Mcp-Session-Id: {}\r\n", reply.head.field("mcp-session-id").unwrap())
}

pub(crate) fn ping(server: &Server, session: &str, token: &str) -> u16 {
    send(&mut server.connect(), "POST", &(session.to_owned() + &bearer(token)), PING).status()
}

/// A GET stream whose head was read.
pub(crate) fn listen(server: &Server, session: &str, token: &str) -> Connection {
    let mut connection = server.connect();
    let fields = session.to_owned() + &bearer(token);
    connection
        .send(format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n"));
    assert_eq!(connection.final_head().status, 200);
    connection
}

fn start(tokens: &Tokens, flags: &[&str]) -> Server {
    let flag = tokens.flag();
    Server::start(&[&["--auth", &flag, "--admin-listen", "127.0.0.1:0"], flags].concat())
}

#[test]
fn sessions_belong_to_whoever_began_them_on_every_shard() {
    let mut tokens = Tokens::new();
    let (alice, bob) = (tokens.add("alice"), tokens.add("bob"));
    tokens.save();
    let server = start(&tokens, &["--shards", "4"]);
    let sessions: Vec<_> = (0..8).map(|_| open(&server, &alice)).collect();
    for session in &sessions {
        assert_eq!(ping(&server, session, &alice), 200);
        assert_eq!(ping(&server, session, &bob), 404);
        assert_eq!(send(&mut server.connect(), "POST", session, PING).status(), 401);
        let fields = session.clone() + &bearer(&bob);
        assert_eq!(send(&mut server.connect(), "DELETE", &fields, "").status(), 404);
        assert_eq!(ping(&server, session, &alice), 200);
    }
    let refused = send(&mut server.connect(), "POST", "", INITIALIZE);
    let challenge = refused.head.field("www-authenticate").unwrap().to_owned();
    let at = challenge.split('"').nth(1).unwrap().strip_prefix("http://localhost").unwrap().to_owned();
    let mut connection = server.connect();
    connection.send(format!("GET {at} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let described = connection.response("GET");
    assert_eq!(
        (described.status(), described.json()["resource"].as_str()),
        (200, Some("http://localhost/mcp"))
    );
}

#[test]
fn the_file_is_read_again_on_sighup_and_a_bad_one_changes_nothing() {
    let mut tokens = Tokens::new();
    let (alice, bob) = (tokens.add("alice"), tokens.add("bob"));
    tokens.save();
    let server = start(&tokens, &["--shards", "2"]);
    let (alices, bobs) = (open(&server, &alice), open(&server, &bob));
    let (mut ending, kept) = (listen(&server, &alices, &alice), listen(&server, &bobs, &bob));

    fs::write(tokens.path(), "alice sha256:abc\n").unwrap();
    server.signal(Signal::HUP);
    until("the log names the line", || server.log().contains("line 1: sha256: must be followed by 64"));
    fs::remove_file(tokens.path()).unwrap();
    server.signal(Signal::HUP);
    until("the log names the file", || server.log().contains("No such file"));
    assert_eq!((ping(&server, &alices, &alice), ping(&server, &bobs, &bob)), (200, 200));

    tokens.lines.remove(0);
    let carol = tokens.add("carol");
    tokens.save();
    server.signal(Signal::HUP);
    until("carol gets in", || {
        send(&mut server.connect(), "POST", &bearer(&carol), INITIALIZE).status() == 200
    });
    until("alice does not", || ping(&server, &alices, &alice) == 401);
    loop {
        match ending.chunk(Instant::now() + PATIENCE) {
            Chunk::Data(_) => {}
            Chunk::Last => break,
            Chunk::Missing(why) => panic!("her stream ends, and cleanly: {why:?}"),
        }
    }
    assert_eq!(ping(&server, &bobs, &bob), 200);
    drop(kept);

    // Caught while it is written, or to lock everybody out: whoever reads the log learns of it.
    fs::write(tokens.path(), "").unwrap();
    server.signal(Signal::HUP);
    until("the log says so", || server.log().contains("has none: nobody gets in"));
    until("bob does not get in", || ping(&server, &bobs, &bob) == 401);
}

#[test]
fn no_token_and_no_name_shows_anywhere() {
    let mut tokens = Tokens::new();
    let alice = tokens.add("alice-in-wonderland");
    tokens.save();
    let server = start(&tokens, &["--log-level", "trace"]);
    let session = open(&server, &alice);
    assert_eq!(ping(&server, &session, &alice), 200);
    assert_eq!(ping(&server, &session, "wrong-secret"), 401);
    let mut shown = server.log();
    for page in ["/metrics", "/status", "/"] {
        let mut admin = Connection::open(server.admin_address());
        admin.send(format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        shown += &String::from_utf8_lossy(&admin.response("GET").body);
    }
    let hash = tokens.lines[0].split("sha256:").nth(1).unwrap();
    let id = session.trim().strip_prefix("Mcp-Session-Id: ").unwrap();
    for secret in [&*alice, hash, "wrong-secret", "wonderland", id] {
        assert!(!shown.contains(secret), "{secret} shows in {shown}");
    }
}

#[test]
fn a_publication_can_be_for_a_principal() {
    let mut tokens = Tokens::new();
    let (alice, bob) = (tokens.add("alice"), tokens.add("bob"));
    tokens.save();
    let server = start(&tokens, &["--shards", "2"]);
    let sessions = [open(&server, &alice), open(&server, &alice), open(&server, &bob)];
    let publish = |name: &str| {
        let body =
            format!(r#"{{"to":{{"principal":"{name}"}},"method":"notifications/tools/list_changed"}}"#);
        let mut admin = Connection::open(server.admin_address());
        admin.send(format!("POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        let reply = admin.response("POST");
        (reply.status(), reply.json()["sessions"].as_u64())
    };
    // Whoever asks without a session hears what is for its principal, and nothing else.
    let mut listeners = [&alice, &bob].map(|token| {
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let mut connection = server.connect();
        let authorization = format!("Bearer {token}");
        connection.send(stateless("subscriptions/listen", params, &[("Authorization", &authorization)]));
        let head = connection.final_head();
        let mut stream = EventStream::new(connection, &head);
        assert_eq!(stream.message().json()["method"], "notifications/subscriptions/acknowledged");
        stream
    });
    assert_eq!(publish("alice"), (200, Some(2)));
    assert_eq!(publish("bob"), (200, Some(1)));
    assert_eq!(publish("carol"), (200, Some(0)));
    for stream in &mut listeners {
        assert_eq!(stream.message().json()["method"], "notifications/tools/list_changed");
        stream.stays_silent();
    }
    drop(sessions);
}

#[test]
fn a_principal_has_its_share_of_connections_and_sighup_changes_it() {
    let mut tokens = Tokens::new();
    let (alice, bob) = (tokens.add("alice"), tokens.add("bob"));
    tokens.save();
    let settings = tokens.directory.path().join("moorline.toml");
    fs::write(&settings, "max-connections-per-principal = 2\n").unwrap();
    let server = start(&tokens, &["--shards", "2", "--config", settings.to_str().unwrap()]);
    let session = open(&server, &alice);
    let fields = session + &bearer(&alice);
    // What is kept open, and how many others were answered.
    let held = || {
        let mut kept = Vec::new();
        for _ in 0..8 {
            let mut connection = server.connect();
            let reply = send(&mut connection, "POST", &fields, PING);
            match reply.status() {
                200 => kept.push(connection),
                429 => assert!(reply.head.closes() && reply.head.field("retry-after").is_some()),
                other => panic!("{other}"),
            }
        }
        kept.len()
    };
    until("she has two at a time", || held() == 2);
    assert_eq!(send(&mut server.connect(), "POST", &bearer(&bob), INITIALIZE).status(), 200);
    fs::write(&settings, "max-connections-per-principal = 5\n").unwrap();
    server.signal(Signal::HUP);
    until("the log says so", || server.log().contains("max-connections-per-principal 2 -> 5"));
    until("she has five", || held() == 5);
}

#[test]
fn other_machines_get_in_unknown_only_if_that_was_meant() {
    let mut child = command(&["--listen", "0.0.0.0:0"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    assert_eq!(exit_within(&mut child, Duration::from_secs(10)).code(), Some(2));
    let server = Server::start(&["--listen", "127.0.0.1:0", "--allow-anonymous"]);
    assert_eq!(send(&mut server.connect(), "POST", "", INITIALIZE).status(), 200);
}
