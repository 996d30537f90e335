//! The program from outside: exit codes, several workers, a worker that crashes, files it writes.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Fault, Server, count, generator, report, text};

#[test]
fn conditions_decide_the_exit_code() {
    let server = Server::start(Fault::None);
    let run = |condition: &str| {
        let arguments =
            ["call", "-c", "1", "-r", "50", "-d", "300ms", "--warm-up", "0s", "--fail-if", condition];
        generator(&arguments).args(["--url", &server.url()]).output().unwrap()
    };
    assert_eq!(run("p99>10s").status.code(), Some(0));
    let failed = run("p99>1us");
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed).contains("failed: p99>1us: p99_us is"), "{}", text(&failed));
}

#[test]
fn what_cannot_be_used_is_a_usage_error() {
    for arguments in [
        &["hold"][..],
        &["hold", "--url", "https://127.0.0.1/"],
        &["hold", "--url", "http://127.0.0.1:1/", "--header", "no colon"],
        &["call", "--url", "http://127.0.0.1:1/", "--args", "{not json"],
        &["hold", "--url", "http://127.0.0.1:1/", "--fail-if", "p99"],
        &["mixed", "--url", "http://127.0.0.1:1/", "--mix", "dance=3"],
    ] {
        let output = generator(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let output =
        generator(&["hold", "-n", "2", "-d", "1s", "--url", "http://127.0.0.1:1/mcp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("cannot connect"), "{}", text(&output));
}

#[test]
fn several_workers_and_several_servers_make_one_report() {
    let (first, second) = (Server::start(Fault::None), Server::start(Fault::None));
    let url = second.url();
    let arguments = ["hold", "-n", "30", "-d", "1s", "--workers", "3", "--url", &url];
    let report = report(&first, &arguments);
    assert_eq!(report["clients_up_at_end"], 30);
    assert_eq!(report["workers"].as_array().unwrap().len(), 3);
    assert_eq!(count(&report, "streams_opened"), 30);
    let gets = |server: &Server| server.get_count.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((gets(&first), gets(&second)), (15, 15));
}

#[test]
fn a_worker_that_crashes_is_reported() {
    let server = Server::start(Fault::None);
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = file.path().to_str().unwrap();
    let arguments = ["hold", "-n", "20", "-d", "4s", "--workers", "2", "--json", json];
    let mut command = generator(&arguments);
    let child =
        command.args(["--url", &server.url()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    kill_one(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("crashed: signal: 9"), "{}", text(&output));
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["is_complete"], false);
    assert_eq!(report["clients_up_at_end"], 10);
}

/// Kills the first worker once both are there.
fn kill_one(parent: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let pids: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        if pids.len() == 2 {
            std::thread::sleep(Duration::from_millis(1_500));
            let pid = rustix::process::Pid::from_raw(pids[0]).unwrap();
            return rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        assert!(Instant::now() < deadline, "the workers did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (json, html) = (directory.path().join("r.json"), directory.path().join("r.html"));
    let server = Server::start(Fault::None);
    let arguments = [
        "call",
        "-c",
        "2",
        "-r",
        "100",
        "-d",
        "2s",
        "--warm-up",
        "0s",
        "--header",
        "Authorization: Bearer hush",
    ];
    let output = generator(&arguments).args(["--url", &server.url(), "--json"]).arg(&json).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_moorline-load"))
        .arg("report")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .status()
        .unwrap();
    assert!(shown.success());
    let page = std::fs::read_to_string(html).unwrap();
    for outside in ["<script", "src=", "href=", "@import", "url(", "hush"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.matches("<svg").count() >= 3, "{} plots", page.matches("<svg").count());
    assert!(!std::fs::read_to_string(json).unwrap().contains("hush"));
}

#[test]
fn comparing_two_reports() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_moorline-load"))
        .args(["compare", &format!("{golden}/a.json"), &format!("{golden}/b.json")])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output), std::fs::read_to_string(format!("{golden}/compare.txt")).unwrap());
}
