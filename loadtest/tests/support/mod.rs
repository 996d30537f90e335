//! A small MCP server that is wrong on purpose, and a way to run the generator against it.
//!
//! One thread per connection, no library: what it does on the wire is to be seen at a glance. Without a
//! fault it is right enough that every scenario must report nothing.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Loses one notification in a thousand.
    DropsOneInThousand,
    /// Sends one notification twice, early in the run.
    DuplicatesOne,
    /// Sends comments every 2.5 seconds instead of every second.
    LateKeepAlives,
    /// Sends no comments.
    NoKeepAlives,
    /// Ends every other stream of the session when a GET comes.
    KillsOtherStream,
    /// Ends streams after a second, with the last chunk.
    EndsStreams,
    /// Cuts streams after a second, in the middle.
    CutsStreams,
    /// Keeps 64 KB of every session for ever.
    Leaks,
    /// Forgets a session when a second GET comes for it.
    ForgetsSessions,
    /// Answers one call in ten with the id of another request.
    SwapsIds,
    /// Closes connections that are idle for 300 ms.
    ClosesIdle,
    /// Sends messages on listen streams without the id of their subscription.
    ForgetsTags,
    /// Begins listen streams without an acknowledgement.
    NeverAcknowledges,
    /// Stands still for half a second, once, in the second second of calls.
    Stalls,
}

/// A running server; it lives as long as the test process.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) get_count: Arc<AtomicU64>,
}

struct State {
    fault: Fault,
    sessions: Mutex<HashMap<String, Session>>,
    message_count: AtomicU64,
    call_count: AtomicU64,
    session_count: AtomicU64,
    get_count: Arc<AtomicU64>,
    leaked: Mutex<Vec<Vec<u8>>>,
    first_call: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Session {
    streams: Vec<Sender<Order>>,
    event_count: u64,
    get_count: u64,
    log: Vec<String>,
    /// The id of the `subscriptions/listen`, where the session is really a listen stream of 2026-07-28.
    subscription: Option<Value>,
}

enum Order {
    Write(String),
    End,
}

impl Server {
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let get_count = Arc::new(AtomicU64::new(0));
        let state = Arc::new(State {
            fault,
            sessions: Mutex::default(),
            message_count: AtomicU64::new(0),
            call_count: AtomicU64::new(0),
            session_count: AtomicU64::new(0),
            get_count: get_count.clone(),
            leaked: Mutex::default(),
            first_call: Mutex::default(),
        });
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let state = state.clone();
                thread::spawn(move || serve(&state, &connection));
            }
        });
        Self { port, get_count }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

struct Request {
    method: String,
    session: Option<String>,
    cursor: Option<String>,
    /// Version, method and name as the head says them.
    told: [Option<String>; 3],
    body: Value,
}

fn serve(state: &State, connection: &TcpStream) {
    connection.set_nodelay(true).unwrap();
    if state.fault == Fault::ClosesIdle {
        connection.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    }
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    while let Some(request) = read_request(&mut reader) {
        let is_open = match request.method.as_str() {
            "POST" => post(state, connection, &request),
            "GET" => {
                stream(state, connection, &request);
                false
            }
            "DELETE" => {
                let known =
                    request.session.and_then(|id| state.sessions.lock().unwrap().remove(&id)).is_some();
                respond(connection, if known { "200 OK" } else { "404 Not Found" }, "null", None)
            }
            _ => false,
        };
        if !is_open {
            break;
        }
    }
    let _ = connection.shutdown(Shutdown::Both);
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let method = line.split(' ').next()?.to_owned();
    let mut fields = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = fields.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        session: fields.remove("mcp-session-id"),
        cursor: fields.remove("last-event-id"),
        told: ["mcp-protocol-version", "mcp-method", "mcp-name"].map(|name| fields.remove(name)),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

fn respond(mut connection: &TcpStream, status: &str, body: &str, session: Option<&str>) -> bool {
    let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
    let length =
        if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let text = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{session}{length}\r\n{body}");
    connection.write_all(text.as_bytes()).is_ok()
}

fn post(state: &State, connection: &TcpStream, request: &Request) -> bool {
    let id = &request.body["id"];
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    if request.body["method"] == "initialize" {
        let session = format!("s{}", state.session_count.fetch_add(1, Ordering::Relaxed));
        if state.fault == Fault::Leaks {
            state.leaked.lock().unwrap().push(vec![1; 64 * 1024]);
        }
        state.sessions.lock().unwrap().insert(session.clone(), Session::default());
        let body = result(json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {} }));
        return respond(connection, "200 OK", &body, Some(&session));
    }
    if request.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28" {
        return post_stateless(state, connection, request, &result);
    }
    let is_known = request.session.as_ref().is_some_and(|id| state.sessions.lock().unwrap().contains_key(id));
    match request.body["method"].as_str() {
        Some("publish") => publish(state, request.body["text"].as_str().unwrap()),
        _ if !is_known => return respond(connection, "404 Not Found", "{}", None),
        Some("tools/call") if request.body["params"]["name"] == "notify" => {
            publish(state, request.body["params"]["arguments"]["message"].as_str().unwrap());
        }
        Some("tools/call") if request.body["params"]["name"] == "streamed" => {
            return streamed_call(connection, &result(json!({})));
        }
        Some("tools/call") => call(state),
        _ => {}
    }
    if id.is_null() && request.body["method"] != "publish" {
        return respond(connection, "202 Accepted", "", None);
    }
    let number = state.call_count.load(Ordering::Relaxed);
    if state.fault == Fault::SwapsIds && number % 10 == 9 {
        return respond(connection, "200 OK", r#"{"jsonrpc":"2.0","id":999999,"result":{}}"#, None);
    }
    respond(connection, "200 OK", &result(json!({})), None)
}

/// 2026-07-28: no session, and what the head says has to be what the body says.
fn post_stateless(
    state: &State,
    connection: &TcpStream,
    request: &Request,
    result: &dyn Fn(Value) -> String,
) -> bool {
    let (method, params) = (&request.body["method"], &request.body["params"]);
    let is_told = request.told
        == [Some("2026-07-28"), method.as_str(), params["name"].as_str()]
            .map(|value| value.map(str::to_owned));
    if !is_told || request.session.is_some() {
        return respond(connection, "400 Bad Request", "{}", None);
    }
    match method.as_str() {
        Some("subscriptions/listen") => {
            listen(state, connection, &request.body["id"]);
            return false;
        }
        Some("server/discover" | "tools/list") => {}
        Some("tools/call") if params["name"] == "notify" => {
            publish(state, params["arguments"]["message"].as_str().unwrap());
        }
        Some("tools/call") => call(state),
        _ => return respond(connection, "404 Not Found", "{}", None),
    }
    respond(connection, "200 OK", &result(json!({ "resultType": "complete" })), None)
}

fn listen(state: &State, mut connection: &TcpStream, id: &Value) {
    let (sender, orders) = mpsc::channel();
    let name = format!("l{}", state.session_count.fetch_add(1, Ordering::Relaxed));
    let session = Session { streams: vec![sender], subscription: Some(id.clone()), ..Session::default() };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": id });
    let acknowledged = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": { "_meta": meta, "notifications": { "toolsListChanged": true } } });
    let _ = connection.write_all(head.as_bytes());
    if state.fault != Fault::NeverAcknowledges {
        write(connection, &format!("data: {acknowledged}\n\n"));
    }
    state.sessions.lock().unwrap().insert(name.clone(), session);
    if pump(state.fault, connection, &orders) == Outcome::Ended {
        let _ = connection.write_all(b"0\r\n\r\n");
    }
    state.sessions.lock().unwrap().remove(&name);
}

fn call(state: &State) {
    state.call_count.fetch_add(1, Ordering::Relaxed);
    let mut first = state.first_call.lock().unwrap();
    let begun = first.get_or_insert_with(Instant::now).elapsed();
    if state.fault == Fault::Stalls && (1_000..1_500).contains(&begun.as_millis()) {
        // The lock is held: nobody else gets through.
        thread::sleep(Duration::from_millis(1_500).saturating_sub(begun));
    }
}

/// Answers as a stream with event ids, so that there is a cursor to follow.
fn streamed_call(mut connection: &TcpStream, body: &str) -> bool {
    let text = format!("id: r-0\nretry: 200\ndata:\n\nid: r-1\nevent: message\ndata: {body}\n\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("{head}{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    connection.write_all(chunk.as_bytes()).is_ok()
}

fn publish(state: &State, text: &str) {
    for session in state.sessions.lock().unwrap().values_mut() {
        let number = state.message_count.fetch_add(1, Ordering::Relaxed);
        session.event_count += 1;
        let event = event(state.fault, session, text);
        session.log.push(event.clone());
        let copies = match state.fault {
            Fault::DropsOneInThousand if number % 1_000 == 500 => 0,
            Fault::DuplicatesOne if number == 100 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            // The first live stream only: each message goes to exactly one.
            session.streams.retain(|stream| stream.send(Order::Write(String::new())).is_ok());
            if let Some(stream) = session.streams.first() {
                let _ = stream.send(Order::Write(event.clone()));
            }
        }
    }
}

/// A notification, as the era of the stream has it.
fn event(fault: Fault, session: &Session, text: &str) -> String {
    let Some(subscription) = &session.subscription else {
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/message",
            "params": { "level": "info", "data": text } });
        return format!("id: l-{}\nevent: message\ndata: {message}\n\n", session.event_count);
    };
    let mut meta = json!({ "load": text, "io.modelcontextprotocol/subscriptionId": subscription });
    if fault == Fault::ForgetsTags {
        meta.as_object_mut().unwrap().remove("io.modelcontextprotocol/subscriptionId");
    }
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": meta } });
    format!("data: {message}\n\n")
}

fn stream(state: &State, mut connection: &TcpStream, request: &Request) {
    state.get_count.fetch_add(1, Ordering::Relaxed);
    let Some((orders, missed)) = attach(state, request) else {
        respond(connection, "404 Not Found", "{}", None);
        return;
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let _ = connection.write_all(head.as_bytes());
    let is_open = write(connection, "retry: 200\n\n") && missed.iter().all(|event| write(connection, event));
    if is_open && pump(state.fault, connection, &orders) == Outcome::Ended {
        let _ = connection.write_all(b"0\r\n\r\n");
    }
}

/// Puts a stream on its session's list, and says what it missed behind its cursor.
fn attach(state: &State, request: &Request) -> Option<(Receiver<Order>, Vec<String>)> {
    let (sender, orders) = mpsc::channel();
    let mut sessions = state.sessions.lock().unwrap();
    let session = sessions.get_mut(request.session.as_ref()?)?;
    session.get_count += 1;
    if state.fault == Fault::ForgetsSessions && session.get_count == 2 {
        sessions.remove(request.session.as_ref()?);
        return None;
    }
    if state.fault == Fault::KillsOtherStream {
        session.streams.drain(..).for_each(|stream| drop(stream.send(Order::End)));
    }
    let cursor = request.cursor.as_deref().unwrap_or_default();
    let position = if cursor.starts_with("r-") { session.streams.len() } else { 0 };
    session.streams.insert(position, sender);
    let seen = cursor.strip_prefix("l-").and_then(|number| number.parse().ok());
    Some((orders, session.log.iter().skip(seen.unwrap_or(usize::MAX)).cloned().collect()))
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Ended,
    Cut,
}

/// Writes what comes, and comments in between, until the stream is over.
fn pump(fault: Fault, connection: &TcpStream, orders: &Receiver<Order>) -> Outcome {
    let keep_alive = match fault {
        Fault::LateKeepAlives => Duration::from_millis(2_500),
        Fault::NoKeepAlives => Duration::from_secs(3_600),
        _ => Duration::from_secs(1),
    };
    let begun = Instant::now();
    let mut due = begun + keep_alive;
    let mut is_open = true;
    while is_open {
        match fault {
            Fault::EndsStreams if begun.elapsed() > Duration::from_secs(1) => return Outcome::Ended,
            Fault::CutsStreams if begun.elapsed() > Duration::from_secs(1) => return Outcome::Cut,
            _ => {}
        }
        let wait = due.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
        match orders.recv_timeout(wait) {
            Ok(Order::Write(text)) if text.is_empty() => {}
            Ok(Order::Write(text)) => {
                is_open = write(connection, &text);
                due = Instant::now() + keep_alive;
            }
            Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return Outcome::Ended,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= due => {
                is_open = write(connection, ": keepalive\n\n");
                due += keep_alive;
            }
            Err(RecvTimeoutError::Timeout) => is_open = is_peer_there(connection),
        }
    }
    Outcome::Cut
}

fn write(mut connection: &TcpStream, text: &str) -> bool {
    connection.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).is_ok()
}

fn is_peer_there(connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    let peeked = connection.peek(&mut [0]);
    connection.set_nonblocking(false).unwrap();
    !matches!(peeked, Ok(0))
}

/// The generator, with options every test wants.
pub(crate) fn generator(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moorline-load"));
    command.args(arguments).args(["--quiet", "--settle", "100ms"]);
    command
}

/// Runs a scenario against a server and returns its report.
pub(crate) fn report(server: &Server, arguments: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let output = generator(arguments).args(["--url", &server.url(), "--json", path]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Everything a process wrote.
pub(crate) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// A count of a report.
pub(crate) fn count(report: &Value, name: &str) -> u64 {
    report["counts"][name].as_u64().unwrap_or(0)
}

/// A figure of a report.
pub(crate) fn metric(report: &Value, name: &str) -> f64 {
    report["metrics"][name].as_f64().unwrap_or_else(|| panic!("no figure {name} in {}", report["metrics"]))
}

/// Asserts that the report names a fault with that text, and returns it.
#[track_caller]
pub(crate) fn assert_fault(report: &Value, text: &str) {
    let faults = report["faults"].to_string();
    assert!(faults.contains(text), "no fault {text:?} in {faults}");
}

/// Asserts that the report names no fault.
#[track_caller]
pub(crate) fn assert_no_fault(report: &Value) {
    assert_eq!(report["faults"], json!([]), "{}", report["errors"]);
}
