//! Leaks show. In a file of its own: the server under test is this very process, and its memory is measured.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use support::{Fault, Server, assert_fault, assert_no_fault, metric, report};

#[test]
fn churn_finds_a_leak_and_hold_the_memory_per_stream() {
    let pid = std::process::id().to_string();
    let churn = ["churn", "-c", "4", "-r", "200", "-d", "3s", "--warm-up", "1s", "--pid", &pid];
    let right = report(&Server::start(Fault::None), &churn);
    assert_no_fault(&right);
    assert!(metric(&right, "server_cpu_ms") > 0.0);
    let leaky = Server::start(Fault::Leaks);
    let wrong = report(&leaky, &churn);
    assert_fault(&wrong, "memory grew by");
    let kept = metric(&wrong, "leak_bytes_per_cycle");
    assert!((60_000.0..80_000.0).contains(&kept), "{kept}");
    let held = report(&leaky, &["hold", "-n", "200", "-d", "1s", "--measure-at", "50", "--pid", &pid]);
    let slope = metric(&held, "bytes_per_stream");
    assert!((64_000.0..200_000.0).contains(&slope), "{slope}");
}
