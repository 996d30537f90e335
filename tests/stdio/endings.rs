//! How children end: politely, if they let us, and in any case.

use super::{
    PATIENCE,
    behind::{Behind, begin, script, value},
    session::{Session, answer},
    until,
};
use rustix::process::{Signal, kill_process};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_child_that_wants_to_stay_is_killed_when_its_grace_is_over() {
    let behind = Behind::start(&["--child-grace", "1s"]);
    let session = behind.session();
    value(&session, "stay", &json!({}));
    let start = Instant::now();
    assert_eq!(session.delete(), 204);
    behind.until_processes(0);
    assert!(start.elapsed() > Duration::from_millis(900), "it had its grace: {:?}", start.elapsed());
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn a_grandchild_behind_a_shell_dies_too() {
    for mode in ["per-session", "shared"] {
        let flags = ["--stdio-mode", mode, "--shards", "1", "--child-grace", "1s"];
        let behind = Behind::start_command(&flags, &["sh", "-c", &wrapper()]);
        let session = behind.session();
        value(&session, "grandchild", &json!({}));
        value(&session, "stay", &json!({}));
        behind.until_processes(3);
        if mode == "per-session" {
            assert_eq!(session.delete(), 204);
            behind.until_processes(0);
        }
        behind.stop();
    }
}

/// A shell around the child: it passes no signal on and does not look at its input.
fn wrapper() -> String {
    format!("exec 3<&0; python3 {} <&3 & wait", script())
}

#[test]
fn killing_the_wrapper_kills_what_it_wrapped() {
    let behind = Behind::start_command(&["--shards", "1"], &["sh", "-c", &wrapper()]);
    let session = behind.session();
    value(&session, "stay", &json!({}));
    let shell = behind
        .processes()
        .into_iter()
        .find(|process| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.as_raw_nonzero()))
                .unwrap_or_default();
            name.trim() != "python3"
        })
        .expect("the shell");
    kill_process(shell, Signal::KILL).expect("it runs");
    behind.until_processes(0);
    until("the session is over", || session.ping_status() == 404);
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn many_sessions_behind_a_shell_leave_nothing() {
    let behind = Behind::start_command(&["--child-grace", "2s"], &["sh", "-c", &wrapper()]);
    let address = behind.server.address();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..5 {
                    let session = Session::open(address);
                    value(&session, "echo", &json!({"text": "hi"}));
                    assert_eq!(session.delete(), 204);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("no worker fails"));
    behind.until_processes(0);
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn a_stop_lets_calls_finish_and_children_end() {
    for mode in ["per-session", "shared"] {
        let mut behind = Behind::start(&["--shards", "2", "--stdio-mode", mode]);
        let sessions: Vec<Session> = (0..4).map(|_| behind.session()).collect();
        let mut slow = begin(&sessions[0], json!(1), "slow", &json!({"seconds": 0.7}));
        until("the call is under way", || {
            value(&sessions[0], "seen", &json!({}))["called"]["slow"].is_array()
        });
        behind.server.signal(Signal::TERM);
        assert_eq!(answer(&slow.response("POST"))["result"]["content"][0]["text"], "done");
        behind.until_gone();
    }
}

#[test]
fn a_stop_is_bounded_by_its_grace() {
    for mode in ["per-session", "shared"] {
        let mut behind = Behind::start(&["--drain", "1s", "--child-grace", "60s", "--stdio-mode", mode]);
        let session = behind.session();
        value(&session, "stay", &json!({}));
        value(&session, "grandchild", &json!({}));
        let _hanging = begin(&session, json!(1), "hang", &json!({}));
        let start = Instant::now();
        behind.server.signal(Signal::TERM);
        behind.server.exit_within(PATIENCE);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        behind.until_processes(0);
    }
}

#[test]
fn a_second_signal_leaves_no_child_either() {
    let mut behind = Behind::start(&["--drain", "60s"]);
    let sessions: Vec<Session> = (0..3).map(|_| behind.session()).collect();
    for session in &sessions {
        value(session, "stay", &json!({}));
        value(session, "grandchild", &json!({}));
    }
    behind.until_processes(6);
    let _hanging = begin(&sessions[0], json!(1), "hang", &json!({}));
    behind.server.signal(Signal::TERM);
    until("it has heard the first", || behind.server.log().contains("stopping"));
    behind.server.signal(Signal::TERM);
    behind.server.exit_within(PATIENCE);
    behind.until_processes(0);
}

#[test]
fn a_program_that_is_not_there_is_told_at_start() {
    for (command, reason) in [
        (&["no-such-program-anywhere"][..], "no such program"),
        (&["/dev/null"][..], "not executable"),
        (&[""][..], "without a name"),
    ] {
        let mut child = super::server::command(&["--listen", "127.0.0.1:0", "--"])
            .args(command)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary under test starts");
        assert_eq!(super::server::exit_within(&mut child, PATIENCE).code(), Some(3));
        let output = child.wait_with_output().expect("its output can be read");
        let text = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert!(text.contains(reason) && text.lines().count() == 1, "{text}");
    }
}
