//! Children that do not read, and children that do not stop.

use super::{
    PATIENCE,
    behind::{Behind, begin, finish, value},
    session::{Session, answer, tool_call},
};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};

/// Resident memory of the server, in bytes.
fn memory(behind: &Behind) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", behind.server.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel tells");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}

#[test]
fn a_child_that_never_reads_costs_its_own_clients_only() {
    let behind = Behind::start(&["--shards", "1"]);
    let (deaf, other) = (behind.session(), behind.session());
    value(&deaf, "deaf", &json!({}));
    let before = memory(&behind);
    let text = "z".repeat(1_000_000);
    let mut refused = 0;
    let mut waiting = Vec::new();
    for number in 0..40 {
        let mut connection = behind.server.connect();
        connection.send(deaf.post_bytes(&tool_call(json!(number), "echo", &json!({"text": text}))));
        if number >= 8 {
            // By now it is full: the answer comes at once.
            let answer = answer(&connection.response("POST"));
            assert_eq!(answer["error"]["code"], -32000, "call {number}: {answer}");
            refused += 1;
        } else {
            waiting.push(connection);
        }
        let start = Instant::now();
        assert_eq!(value(&other, "echo", &json!({"text": "quick"})), "quick");
        assert!(start.elapsed() < PATIENCE / 6, "{:?}", start.elapsed());
    }
    assert_eq!(refused, 32);
    let grown = memory(&behind).saturating_sub(before);
    assert!(grown < 40_000_000, "{grown} bytes more");
    assert_eq!(deaf.delete(), 204);
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn a_child_that_floods_fills_no_memory_and_holds_nobody_up() {
    for mode in ["per-session", "shared"] {
        let behind = Behind::start(&["--shards", "1", "--stdio-mode", mode, "--children", "2"]);
        let (flooded, other) = (behind.session(), behind.session());
        let before = memory(&behind);
        let flood = begin(&flooded, json!(1), "flood", &json!({"count": 60_000, "bytes": 1_000}));
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let start = Instant::now();
            assert_eq!(value(&other, "echo", &json!({"text": "quick"})), "quick");
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < PATIENCE / 6, "{mode}: {slowest:?}");
        let grown = memory(&behind).saturating_sub(before);
        assert!(grown < 60_000_000, "{mode}: {grown} bytes more");
        drop(flood);
        behind.stop();
    }
}

#[test]
fn many_floods_at_once_leave_room_for_a_quiet_one() {
    let behind = Behind::start(&["--shards", "1"]);
    let floods: Vec<Session> = (0..6).map(|_| behind.session()).collect();
    let quiet = behind.session();
    let calls: Vec<_> = floods
        .iter()
        .map(|session| begin(session, json!(1), "flood", &json!({"count": 20_000, "bytes": 2_000})))
        .collect();
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(value(&quiet, "echo", &json!({"text": "quick"})), "quick");
        assert!(start.elapsed() < PATIENCE / 6, "{:?}", start.elapsed());
    }
    drop(calls);
    behind.stop();
}

#[test]
fn a_large_answer_arrives_whole() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let text = "w".repeat(3_000_000);
    let answer = finish(begin(&session, json!(1), "echo", &json!({"text": text})));
    assert_eq!(answer["result"]["content"][0]["text"], text);
    behind.stop();
}
