//! What the program speaks is found out, and decides who shares it.

use super::{
    behind::{Behind, value},
    session::{answer, post},
    until,
    wire::Connection,
};
use serde_json::{Value, json};
use std::{collections::HashSet, fs};

/// What a request without a session was answered with.
fn alone(behind: &Behind, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut fields = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    fields.extend((!name.is_empty()).then_some(("Mcp-Name", &*name)));
    let message = json!({"jsonrpc": "2.0", "id": "i", "method": method, "params": params});
    let mut connection = Connection::open(behind.server.address());
    connection.send(post(&message, &fields));
    answer(&connection.response("POST"))
}

fn pid_alone(behind: &Behind) -> Value {
    let said = alone(behind, "tools/call", &json!({"name": "pid", "arguments": {}}));
    super::behind::value_of(&said)
}

#[test]
fn a_program_of_an_older_revision_is_nobody_else_s() {
    let behind = Behind::start(&["--shards", "2"]);
    let sessions: Vec<_> = (0..3).map(|_| behind.session()).collect();
    let mut pids: HashSet<_> =
        sessions.iter().map(|session| value(session, "pid", &json!({})).to_string()).collect();
    let of_alone: HashSet<_> = (0..6).map(|_| pid_alone(&behind).to_string()).collect();
    assert_eq!(of_alone.len(), 1, "without tokens all are one");
    pids.extend(of_alone);
    assert_eq!(pids.len(), 4);
    drop(sessions);
    behind.stop();
}

#[test]
fn one_that_speaks_2026_07_28_serves_everybody() {
    let behind = Behind::start(&["--shards", "1", "--child-env", "CHILD_ERA=2026"]);
    behind.until_processes(0);
    let sessions: Vec<_> = (0..3).map(|_| behind.session()).collect();
    let mut pids: HashSet<_> =
        sessions.iter().map(|session| value(session, "pid", &json!({})).to_string()).collect();
    pids.insert(pid_alone(&behind).to_string());
    assert_eq!(pids.len(), 1, "{pids:?}");
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn what_a_request_without_a_session_found_out_is_known_to_sessions() {
    let behind = Behind::start(&["--shards", "1", "--child-env", "CHILD_ERA=2026"]);
    let pid = pid_alone(&behind);
    assert_eq!(value(&behind.session(), "pid", &json!({})), pid);
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn every_thread_and_every_child_has_a_share_of_it() {
    let flags = ["--shards", "2", "--children", "4", "--child-env", "CHILD_ERA=2026"];
    let behind = Behind::start(&flags);
    let (mut sessions, mut pids) = (Vec::new(), HashSet::new());
    until("all children serve", || {
        let session = behind.session();
        pids.insert(value(&session, "pid", &json!({})).to_string());
        sessions.push(session);
        pids.len() == 4
    });
    // What one of them does has to meet the listen streams of the same client.
    let of_alone: HashSet<_> = (0..12).map(|_| pid_alone(&behind).to_string()).collect();
    assert_eq!(of_alone.len(), 1, "without tokens all are one");
    assert!(pids.is_superset(&of_alone));
    behind.until_processes(4);
    behind.stop();
}

#[test]
fn sessions_that_begin_at_once_find_one_program() {
    let behind = Behind::start(&["--shards", "1", "--child-env", "CHILD_ERA=2026"]);
    let address = behind.server.address();
    let begin = || std::thread::spawn(move || super::session::Session::open(address));
    let begun: Vec<_> = std::iter::repeat_with(begin).take(8).collect();
    let sessions: Vec<_> = begun.into_iter().map(|thread| thread.join().expect("a session")).collect();
    let pids: HashSet<_> =
        sessions.iter().map(|session| value(session, "pid", &json!({})).to_string()).collect();
    assert_eq!(pids.len(), 1, "what each found out for itself was not kept");
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn nobody_shares_a_program_that_has_become_an_older_one() {
    let file = std::env::temp_dir().join(format!("moorline-newer-{}", std::process::id()));
    fs::write(&file, "").expect("a file");
    let variable = format!("CHILD_NEWER_FILE={}", file.display());
    let behind = Behind::start(&["--shards", "1", "--child-env", &variable]);
    let (one, other) = (behind.session(), behind.session());
    assert_eq!(value(&one, "pid", &json!({})), value(&other, "pid", &json!({})));
    fs::remove_file(&file).expect("it is there");
    assert!(one.call("crash", &json!({}))["error"]["code"].is_i64());
    until("their sessions end", || one.ping_status() == 404 && other.ping_status() == 404);
    let (one, other) = (behind.session(), behind.session());
    assert_ne!(value(&one, "pid", &json!({})), value(&other, "pid", &json!({})));
    behind.stop();
}

#[test]
fn an_unused_program_ends_and_comes_back_when_it_is_wanted() {
    let flags = ["--shards", "1", "--session-idle-timeout", "1s", "--child-env", "CHILD_ERA=2026"];
    let behind = Behind::start(&flags);
    let pid = pid_alone(&behind);
    behind.until_processes(0);
    assert_ne!(pid_alone(&behind), pid);
    behind.stop();
}
