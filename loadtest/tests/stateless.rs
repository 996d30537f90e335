//! The scenarios under 2026-07-28: right where the server is right, and each planted fault found.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use support::{Fault, Server, assert_fault, assert_no_fault, count, generator, report, text};

fn notify(fault: Fault) -> serde_json::Value {
    let arguments =
        ["notify", "--era", "2026", "-n", "50", "--tool", "notify", "--every", "50ms", "-d", "2500ms"];
    report(&Server::start(fault), &arguments)
}

#[test]
fn a_server_without_fault_is_reported_without_fault() {
    let server = Server::start(Fault::None);
    let held = report(&server, &["hold", "--era", "2026", "-n", "20", "-d", "3s", "--keep-alive", "1s"]);
    assert_no_fault(&held);
    assert_eq!(held["era"], "2026");
    assert!(count(&held, "keep_alives") >= 40, "{held}");
    assert_eq!(["streams_opened", "sessions_opened", "gets"].map(|name| count(&held, name)), [20, 0, 0]);
    let called =
        report(&server, &["call", "--era", "2026", "-c", "4", "-r", "200", "-d", "1s", "--warm-up", "500ms"]);
    assert_no_fault(&called);
    assert_eq!((count(&called, "requests"), count(&called, "requests_ok")), (200, 200));
    let churned = report(&server, &["churn", "--era", "2026", "-c", "4", "-d", "1s", "--warm-up", "0s"]);
    assert_no_fault(&churned);
    assert!(count(&churned, "cycles") > 20, "{churned}");
    let mixed = ["mixed", "--era", "2026", "-n", "10", "-c", "4", "-r", "100", "-d", "2s", "--warm-up", "0s"];
    let mixed = report(&server, &mixed);
    assert_no_fault(&mixed);
    assert!(count(&mixed, "reconnected") > 0 && count(&mixed, "cycles") > 0, "{mixed}");
}

#[test]
fn notify_counts_every_receipt() {
    let report = notify(Fault::None);
    assert_no_fault(&report);
    assert_eq!((count(&report, "receipts_due"), count(&report, "receipts")), (2_500, 2_500));
}

#[test]
fn notify_finds_what_is_lost_and_what_comes_twice() {
    let dropping = notify(Fault::DropsOneInThousand);
    assert_fault(&dropping, "notifications were lost");
    assert_fault(&notify(Fault::DuplicatesOne), "1 notifications came twice");
}

#[test]
fn notify_finds_messages_that_do_not_name_their_subscription() {
    let report = notify(Fault::ForgetsTags);
    assert_fault(&report, "2500 messages on listen streams did not name their subscription");
}

#[test]
fn hold_finds_streams_that_end() {
    let report =
        report(&Server::start(Fault::CutsStreams), &["hold", "--era", "2026", "-n", "5", "-d", "2s"]);
    assert_eq!(count(&report, "closes_cut"), 5, "{report}");
}

#[test]
fn a_stream_that_is_never_acknowledged_is_not_up() {
    let server = Server::start(Fault::NeverAcknowledges);
    let arguments =
        ["hold", "--era", "2026", "-n", "2", "-d", "1s", "--timeout", "1s", "--url", &server.url()];
    let output = generator(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}

#[test]
fn what_the_era_does_not_have_is_refused() {
    let url = "http://127.0.0.1:9/mcp";
    for (arguments, told) in [
        (&["leapfrog"][..], "event ids"),
        (&["storm", "--publish-url", url], "replay"),
        (&["churn", "--abandon", "3"], "sessions"),
        (&["call", "--tool", "zwölf"], "header"),
    ] {
        let output = generator(arguments).args(["--era", "2026", "--url", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(told), "{}", text(&output));
    }
}
