//! The admin listener over real sockets: publishing, health, metrics, and who is kept out.

use super::{
    PATIENCE, QUIET,
    events::{EventStream, Next},
    raise_open_files,
    server::Server,
    session::{NEWEST, Session, slow_call, stateless},
    until,
    wire::{Connection, Response},
};
use moorline::limits::ADMIN_CONNECTIONS_MAX;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{net::SocketAddr, thread, time::Duration};

const ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

fn start(flags: &[&str]) -> Server {
    Server::start(&[&ADMIN, flags].concat())
}

/// One request with a body on a connection of its own.
fn send(address: SocketAddr, method: &str, target: &str, fields: &str, body: &str) -> Response {
    let mut connection = Connection::open(address);
    let length = body.len();
    connection.send(format!("{method} {target} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
    connection.response(method)
}

fn get(server: &Server, target: &str) -> Response {
    send(server.admin_address(), "GET", target, "Host: localhost\r\n", "")
}

fn publish_text(server: &Server, body: &str) -> Response {
    let fields = "Host: localhost\r\nContent-Type: application/json\r\n";
    send(server.admin_address(), "POST", "/publish", fields, body)
}

fn publish(server: &Server, body: &Value) -> (u16, Value) {
    let response = publish_text(server, &body.to_string());
    (response.status(), response.json())
}

fn log(to: &Value, text: &str) -> Value {
    let params = json!({"level": "info", "logger": "admin", "data": text});
    json!({"to": to, "method": "notifications/message", "params": params})
}

fn counts(sessions: u64, written: u64, pending: u64, filtered: u64) -> Value {
    json!({"sessions": sessions, "listens": 0, "written": written, "pending": pending, "filtered": filtered, "refused": 0})
}

fn data_of(stream: &mut EventStream) -> Value {
    stream.message().json()["params"]["data"].clone()
}

// --- Publishing -----------------------------------------------------------------------------------

fn everyone_is_counted(shards: &str) {
    let server = start(&["--shards", shards]);
    let listening: Vec<_> = (0..12).map(|_| Session::open(server.address())).collect();
    let mut streams: Vec<_> = listening.iter().map(Session::listen).collect();
    let absent = Session::open(server.address());
    let quiet = Session::open(server.address());
    let level =
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "error"}});
    assert_eq!(quiet.post(&level).status(), 200);

    assert_eq!(publish(&server, &log(&json!("all"), "news")), (200, counts(14, 12, 1, 1)));
    for stream in &mut streams {
        assert_eq!(data_of(stream), "news");
        assert_eq!(stream.next_within(QUIET / 10), Next::Silence);
    }
    assert_eq!(data_of(&mut absent.listen()), "news", "it waited");
}

#[test]
fn everyone_is_counted_on_1_shard() {
    everyone_is_counted("1");
}

#[test]
fn everyone_is_counted_on_2_shards() {
    everyone_is_counted("2");
}

#[test]
fn everyone_is_counted_on_4_shards() {
    everyone_is_counted("4");
}

#[test]
fn one_session_gets_what_is_for_it() {
    let server = start(&["--shards", "4"]);
    let sessions: Vec<_> = (0..6).map(|_| Session::open(server.address())).collect();
    let mut streams: Vec<_> = sessions.iter().map(Session::listen).collect();
    for (n, (session, stream)) in sessions.iter().zip(&mut streams).enumerate() {
        let text = format!("for {n}");
        let to = json!({"session": session.id});
        assert_eq!(publish(&server, &log(&to, &text)), (200, counts(1, 1, 0, 0)));
        assert_eq!(data_of(stream), text);
    }
    for stream in &mut streams {
        assert_eq!(stream.next_within(QUIET / 10), Next::Silence);
    }
}

#[test]
fn a_session_that_is_unknown_is_a_clear_404_and_never_logged() {
    let server = start(&["--log-level", "trace", "--shards", "2"]);
    let session = Session::open(server.address());
    let id = session.id.clone();
    let mut guess = id.clone();
    guess.replace_range(41.., if id.ends_with('0') { "1" } else { "0" });
    assert_eq!(session.delete(), 204);
    for unknown in [&id, &guess, "", "x", "ff00000000000000000000000000000000000000ff"] {
        let (status, answer) = publish(&server, &log(&json!({"session": unknown}), "secret payload"));
        assert_eq!(status, 404);
        assert_eq!(answer["field"], "to.session");
        for count in ["sessions", "listens", "written", "pending", "filtered", "refused"] {
            assert_eq!(answer[count], 0, "{count}");
        }
        assert!(unknown.is_empty() || unknown == "x" || !answer.to_string().contains(unknown));
    }
    for page in ["/metrics", "/status"] {
        assert!(!get(&server, page).text().contains(&id[10..]), "{page} shows no secret");
    }
    let log = server.log();
    assert!(!log.contains(&id) && !log.contains(&guess) && !log.contains("secret payload"), "{log}");
}

#[test]
fn bad_input_gets_an_error_that_names_the_field() {
    let server = start(&["--max-message", "1KiB"]);
    for (body, status, field) in [
        (r#"{"method":"notifications/x"}"#, 400, json!("to")),
        (r#"{"to":{"principal":"alice"},"method":"notifications/x"}"#, 400, json!("to.principal")),
        (r#"{"to":"all","method":"tools/call"}"#, 400, json!("method")),
        (
            r#"{"to":"all","method":"notifications/message","params":{"level":"x","data":1}}"#,
            400,
            json!("params.level"),
        ),
        ("{", 400, Value::Null),
        ("", 400, Value::Null),
    ] {
        let response = publish_text(&server, body);
        assert_eq!(response.status(), status, "{body}");
        assert_eq!(response.json()["field"], field, "{body}");
        assert!(response.json()["error"].as_str().is_some_and(|error| error.len() > 10), "{body}");
    }
    let large = log(&json!("all"), &"x".repeat(1024)).to_string();
    assert_eq!(publish_text(&server, &large).status(), 413);
    assert_eq!(publish(&server, &log(&json!("all"), "ok")).0, 200, "and it goes on");
}

#[test]
fn ten_thousand_sessions_across_shards_are_counted_exactly() {
    const SESSIONS: usize = 10_000;
    const THREADS: usize = 4;
    raise_open_files();
    let server = start(&["--shards", "4", "--keep-alive", "0", "--handshake-timeout", "10m"]);
    let address = server.address();
    let openers: Vec<_> = (0..THREADS)
        .map(|_| thread::spawn(move || (0..SESSIONS / THREADS).map(|_| hold(address)).collect::<Vec<_>>()))
        .collect();
    let mut streams: Vec<_> =
        openers.into_iter().flat_map(|opener| opener.join().expect("every stream opens")).collect();
    let absent: Vec<_> = (0..20).map(|_| Session::open(address)).collect();

    for round in ["one", "two"] {
        let all = (SESSIONS + absent.len()) as u64;
        let expected = counts(all, SESSIONS as u64, absent.len() as u64, 0);
        assert_eq!(publish(&server, &log(&json!("all"), round)), (200, expected));
        for stream in &mut streams {
            assert_eq!(data_of(stream), round);
        }
    }
}

/// A session with a stream, all on one connection.
fn hold(address: SocketAddr) -> EventStream {
    let mut connection = Connection::open(address);
    Session::open_silent_on(&mut connection, address, NEWEST).listen_on(connection, None)
}

// --- Who is kept out ------------------------------------------------------------------------------

#[test]
fn other_web_pages_are_kept_out() {
    let server = start(&[]);
    let body = log(&json!("all"), "x").to_string();
    let status = |fields: &str| send(server.admin_address(), "POST", "/publish", fields, &body).status();
    let json = "Content-Type: application/json\r\n";
    assert_eq!(status(&format!("Host: localhost\r\n{json}")), 200);
    assert_eq!(status(&format!("Host: evil.example\r\n{json}")), 403, "DNS rebinding");
    assert_eq!(status(&format!("Host: localhost\r\nOrigin: http://evil.example\r\n{json}")), 403);
    assert_eq!(status("Host: localhost\r\n"), 415);
    assert_eq!(status("Host: localhost\r\nContent-Type: text/plain\r\n"), 415, "needs no preflight");
    let image = format!("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: image\r\n{json}");
    assert_eq!(status(&image), 403, "what a browser fetches without an origin");
    let preflight = send(server.admin_address(), "OPTIONS", "/publish", "Host: localhost\r\n", "");
    assert_eq!(preflight.status(), 405);
    assert_eq!(preflight.head.field("access-control-allow-origin"), None);
}

#[test]
fn what_is_not_there_says_what_is() {
    let server = start(&[]);
    let missing = get(&server, "/sessions");
    assert_eq!(missing.status(), 404);
    assert!(missing.text().contains("/publish"));
    let wrong = get(&server, "/publish");
    assert_eq!((wrong.status(), wrong.head.field("allow")), (405, Some("POST")));
    let wrong = send(server.admin_address(), "POST", "/metrics", "Host: localhost\r\n", "");
    assert_eq!((wrong.status(), wrong.head.field("allow")), (405, Some("GET, HEAD")));
    // Nothing of it is on the clients' port.
    let mut client = server.connect();
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.response("GET").status(), 404);
}

#[test]
fn it_is_off_until_it_is_asked_for() {
    assert!(!Server::start(&[]).log().contains("administration"));
}

// --- Health ---------------------------------------------------------------------------------------

#[test]
fn readiness_ends_with_the_first_signal_and_liveness_does_not() {
    let mut server = start(&["--shards", "2"]);
    assert_eq!((get(&server, "/livez").status(), get(&server, "/readyz").status()), (200, 200));
    let session = Session::open(server.address());
    let mut caller = server.connect();
    caller.send(session.post_bytes(&slow_call(json!(1), 3.0, 30)));
    caller.final_head();
    server.signal(Signal::TERM);
    until("the server is not ready", || get(&server, "/readyz").status() == 503);
    assert_eq!(get(&server, "/readyz").json()["status"], "draining");
    assert_eq!(get(&server, "/livez").status(), 200);
    let refused = publish_text(&server, &log(&json!("all"), "late").to_string());
    assert_eq!((refused.status(), refused.head.field("retry-after")), (503, Some("5")));
    assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
}

// --- Numbers --------------------------------------------------------------------------------------

/// The sum of a metric over all shards, as a Prometheus parser reads it.
pub(super) fn metric(server: &Server, name: &str, label: Option<(&str, &str)>) -> f64 {
    let response = get(server, "/metrics");
    assert_eq!(response.head.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let lines = response.text().lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).expect("a Prometheus text page");
    let samples = scrape.samples.iter().filter(|sample| sample.metric == name);
    let samples = samples
        .filter(|sample| label.is_none_or(|(label, value)| sample.labels.get(label) == Some(value)))
        .map(|sample| match sample.value {
            prometheus_parse::Value::Counter(value) | prometheus_parse::Value::Gauge(value) => value,
            ref other => panic!("{name} is {other:?}"),
        });
    let samples: Vec<f64> = samples.collect();
    assert!(!samples.is_empty(), "there is a {name}");
    samples.iter().sum()
}

#[test]
fn metrics_say_what_is_held() {
    let server = start(&["--shards", "2"]);
    let sessions: Vec<_> = (0..5).map(|_| Session::open(server.address())).collect();
    let streams: Vec<_> = sessions.iter().take(3).map(Session::listen).collect();
    assert_eq!(publish(&server, &log(&json!("all"), "x")).0, 200);
    assert!((metric(&server, "moorline_sessions_active", None) - 5.0).abs() < 0.1);
    assert!((metric(&server, "moorline_sessions_total", None) - 5.0).abs() < 0.1);
    assert!((metric(&server, "moorline_streams_held", Some(("kind", "listener"))) - 3.0).abs() < 0.1);
    assert!((metric(&server, "moorline_events_total", None) - 3.0).abs() < 0.1);
    assert!((metric(&server, "moorline_shard_up", None) - 2.0).abs() < 0.1);
    assert!((metric(&server, "moorline_ready", None) - 1.0).abs() < 0.1);
    assert!(metric(&server, "process_resident_memory_bytes", None) > 1e6);
    drop(streams);
    until("the streams are gone", || {
        metric(&server, "moorline_streams_held", Some(("kind", "listener"))) < 0.5
    });
}

#[test]
fn status_says_the_same_as_json() {
    let server = start(&["--shards", "2"]);
    let session = Session::open(server.address());
    let _stream = session.listen();
    let status = get(&server, "/status").json();
    assert_eq!(status["state"], "ready");
    let shards = status["shards"].as_array().expect("a list");
    assert_eq!(shards.len(), 2);
    let held = &shards[usize::from(session.shard())]["holds"];
    assert_eq!((&held["sessions"], &held["streams"]["listeners"]), (&json!(1), &json!(1)));
    assert_eq!(shards[usize::from(session.shard())]["counted"]["listeners"], 1);
}

#[test]
fn a_listen_stream_whose_client_closes_is_forgotten() {
    let server = start(&["--shards", "1"]);
    let held = || get(&server, "/status").json()["shards"][0]["holds"]["streams"]["listens"].clone();
    let mut connection = Connection::open(server.address());
    let params = json!({ "notifications": { "toolsListChanged": true } });
    connection.send(stateless("subscriptions/listen", params, &[]));
    assert_eq!(connection.final_head().field("content-type"), Some("text/event-stream"));
    until("the stream is there", || held() == 1);
    drop(connection);
    until("nobody listens", || held() == 0);
}

#[test]
fn the_live_page_is_whole_and_its_events_keep_coming() {
    let server = start(&[]);
    let page = get(&server, "/");
    assert_eq!(page.head.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(
        page.head
            .field("content-security-policy")
            .is_some_and(|policy| policy.contains("default-src 'none'"))
    );
    for outside in ["http://", "https://", "src=", "@import"] {
        assert!(!page.text().contains(outside), "{outside}: it needs no network");
    }
    let mut connection = Connection::open(server.admin_address());
    connection.send("GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = connection.final_head();
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    let end = std::time::Instant::now() + PATIENCE;
    for _ in 0..2 {
        match connection.chunk(end) {
            super::wire::Chunk::Data(data) => assert!(data.starts_with(b"data: {\"version\""), "{data:?}"),
            _ => panic!("the stream goes on"),
        }
    }
}

#[test]
fn live_pages_leave_room_for_everyone_else() {
    let server = start(&[]);
    let open = || {
        let mut connection = Connection::open(server.admin_address());
        connection.send("GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let status = connection.final_head().status;
        (connection, status)
    };
    let pages: Vec<_> = (0..8).map(|_| open()).collect();
    assert!(pages.iter().all(|(_, status)| *status == 200));
    assert_eq!(open().1, 503);
    assert_eq!(get(&server, "/readyz").status(), 200);
    drop(pages);
    until("a place is free again", || open().1 == 200);
}

/// Whoever connects and takes no bytes has the place of somebody else for a bounded time.
#[test]
fn who_takes_no_bytes_loses_its_place() {
    let server = start(&[]);
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(400);
    let mut stalled: Vec<Connection> =
        (0..ADMIN_CONNECTIONS_MAX).map(|_| Connection::open_narrow(server.admin_address(), 4096)).collect();
    for connection in &mut stalled {
        connection.send_while_taken(request.as_bytes(), Duration::from_millis(20));
    }
    assert_eq!(get(&server, "/livez").status(), 200, "within what a peer may take no bytes for");
}
