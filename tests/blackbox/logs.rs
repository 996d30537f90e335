//! What the log says of requests, and what it does not.

use super::{
    events::EventStream,
    server::Server,
    session::{Session, slow_call},
    until,
    wire::Leave,
};
use serde_json::{Value, json};

/// The lines of the access log, as JSON.
fn requests(server: &Server) -> Vec<Value> {
    let lines = server.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "moorline::access").map(|line| line["fields"].clone()).collect()
}

fn logging(rate: &str) -> Server {
    Server::start(&["--access-log-sample", rate, "--log-format", "json", "--shards", "2"])
}

#[test]
fn each_request_is_a_line_when_all_are_asked_for() {
    let server = logging("1");
    let session = Session::open(server.address());
    let secret = "a payload nobody may read in a log";
    session.call("echo", &json!({ "message": secret }));
    let mut other = server.connect();
    other.send(get("/secret/path"));
    assert_eq!(other.response("GET").status(), 404);
    assert_eq!(session.delete(), 204);
    // initialize, initialized, the call, the other path, DELETE; each exactly once, on whatever shard.
    until("five lines", || requests(&server).len() == 5);
    let lines = requests(&server);
    let found = |method: &str, status: u16, target: &str| {
        let is_it = |line: &&Value| {
            line["method"] == method
                && line["status"] == status
                && line["target"] == target
                && line["end"] == "whole"
        };
        lines.iter().filter(is_it).count()
    };
    assert_eq!(found("POST", 200, "endpoint"), 2, "{lines:#?}");
    assert_eq!(found("POST", 202, "endpoint"), 1, "{lines:#?}");
    assert_eq!(found("GET", 404, "other"), 1, "{lines:#?}");
    assert_eq!(found("DELETE", 204, "endpoint"), 1, "{lines:#?}");
    assert!(lines.iter().all(|line| line["bytes"].as_u64() > Some(50)), "{lines:#?}");
    let (_, id) = session.fields()[0];
    for text in [secret, id, "/secret/path", "echo"] {
        assert!(!server.log().contains(text), "{text}");
    }
}

#[test]
fn a_stream_is_a_line_when_it_is_over() {
    let server = logging("1");
    let session = Session::open(server.address());
    let mut caller = server.connect();
    caller.send(session.post_bytes(&slow_call(json!(1), 0.3, 3)));
    let head = caller.final_head();
    EventStream::new(caller, &head).until_end();
    until("three lines", || requests(&server).len() == 3);
    let streamed = requests(&server).pop().expect("just counted");
    assert!(streamed["duration_ms"].as_u64() >= Some(250), "{streamed}");
    let listener = session.listen();
    assert_eq!(session.ping_status(), 200);
    until("the ping's line, and none of the stream", || requests(&server).len() == 4);
    listener.leave(Leave::Rst);
    until("the stream's line", || requests(&server).len() == 5);
    let line = requests(&server).pop().expect("just counted");
    assert_eq!((&line["method"], &line["status"], &line["end"]), (&json!("GET"), &json!(200), &json!("cut")));
}

#[test]
fn of_a_rate_of_a_tenth_every_tenth_is_a_line() {
    let server = Server::start(&["--access-log-sample", "0.1", "--log-format", "json", "--shards", "1"]);
    let session = Session::open(server.address());
    // Two requests have opened the session.
    for _ in 0..98 {
        assert_eq!(session.ping_status(), 200);
    }
    until("ten lines", || requests(&server).len() >= 10);
    assert_eq!(requests(&server).len(), 10);
}

#[test]
fn unless_asked_for_there_are_no_lines_of_requests() {
    let server = Server::start(&["--log-format", "json"]);
    assert_eq!(Session::open(server.address()).delete(), 204);
    assert!(requests(&server).is_empty());
    assert!(!server.log().contains("moorline::access"));
}

#[test]
fn refusals_are_one_line_with_their_number_not_a_line_each() {
    let server = Server::start(&["--shards", "1"]);
    for _ in 0..50 {
        let mut connection = server.connect();
        connection.send(get("/nowhere"));
        assert_eq!(connection.response("GET").status(), 404);
    }
    let told = || server.log().lines().filter(|line| line.contains("refused since")).count();
    until("a line about it", || told() > 0);
    assert_eq!(told(), 1, "{}", server.log());
    assert!(server.log().contains("requests=1 "), "{}", server.log());
}

/// A request for another path.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}
