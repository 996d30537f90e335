//! Each scenario finds the fault that was planted for it, and finds none where there is none.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::sync::atomic::Ordering;

use support::{Fault, Server, assert_fault, assert_no_fault, count, metric, report};

const NOTIFY: [&str; 9] = ["notify", "-n", "50", "--tool", "notify", "--every", "50ms", "-d", "2500ms"];

#[test]
fn a_server_without_fault_is_reported_without_fault() {
    let server = Server::start(Fault::None);
    let held = report(&server, &["hold", "-n", "20", "-d", "3s", "--keep-alive", "1s"]);
    assert_no_fault(&held);
    assert!(count(&held, "keep_alives") >= 40, "{held}");
    let called = report(&server, &["call", "-c", "4", "-r", "200", "-d", "1s", "--warm-up", "500ms"]);
    assert_no_fault(&called);
    assert_eq!((count(&called, "requests"), count(&called, "requests_ok")), (200, 200));
    let churned = report(&server, &["churn", "-c", "4", "-d", "1s", "--warm-up", "0s", "--reconnect"]);
    assert_no_fault(&churned);
    assert!(count(&churned, "cycles") > 20, "{churned}");
    let mixed =
        report(&server, &["mixed", "-n", "10", "-c", "4", "-r", "100", "-d", "2s", "--warm-up", "0s"]);
    assert_no_fault(&mixed);
    assert!(count(&mixed, "reconnected") > 0 && count(&mixed, "cycles") > 0, "{mixed}");
}

#[test]
fn notify_counts_every_receipt() {
    let report = report(&Server::start(Fault::None), &NOTIFY);
    assert_no_fault(&report);
    assert_eq!(report["fanout"]["publications"], 50);
    assert_eq!((count(&report, "receipts_due"), count(&report, "receipts")), (2_500, 2_500));
    assert!(metric(&report, "delivery_p50_us") > 0.0);
}

#[test]
fn notify_finds_one_lost_message_in_a_thousand() {
    let report = report(&Server::start(Fault::DropsOneInThousand), &NOTIFY);
    assert_fault(&report, "notifications were lost");
    assert!((2..=3).contains(&count(&report, "lost")), "{}", report["fanout"]);
    assert_eq!(count(&report, "duplicates"), 0);
}

#[test]
fn notify_finds_one_duplicate() {
    let report = report(&Server::start(Fault::DuplicatesOne), &NOTIFY);
    assert_fault(&report, "1 notifications came twice");
    assert_fault(&report, "1 events repeated the id");
    assert_eq!(count(&report, "lost"), 0);
}

#[test]
fn hold_can_publish_too() {
    let server = Server::start(Fault::DuplicatesOne);
    let url = server.url();
    let body = r#"{"method":"publish","text":"{marker}"}"#;
    let arguments =
        ["hold", "-n", "30", "-d", "2s", "--publish-url", &url, "--publish-body", body, "--every", "100ms"];
    let report = report(&server, &arguments);
    assert_eq!(count(&report, "receipts"), 600);
    assert_fault(&report, "1 notifications came twice");
}

#[test]
fn hold_finds_late_keep_alives() {
    let report = report(
        &Server::start(Fault::LateKeepAlives),
        &["hold", "-n", "10", "-d", "6s", "--keep-alive", "1s"],
    );
    assert_fault(&report, "keep-alives were late");
    let lateness = metric(&report, "keep_alive_lateness_p50_us");
    assert!((1_400_000.0..2_000_000.0).contains(&lateness), "{lateness}");
}

#[test]
fn hold_finds_silence() {
    let report =
        report(&Server::start(Fault::NoKeepAlives), &["hold", "-n", "10", "-d", "2s", "--keep-alive", "1s"]);
    assert_fault(&report, "10 streams had fallen silent");
}

#[test]
fn hold_tells_ended_streams_from_cut_ones() {
    let ended = report(&Server::start(Fault::EndsStreams), &["hold", "-n", "10", "-d", "2s"]);
    assert_fault(&ended, "10 streams were ended by the server");
    assert_eq!((count(&ended, "closes_clean"), count(&ended, "closes_cut")), (10, 0));
    assert_eq!(ended["clients_up_at_end"], 0);
    let cut = report(&Server::start(Fault::CutsStreams), &["hold", "-n", "10", "-d", "2s"]);
    assert_eq!(
        (count(&cut, "closes_clean"), count(&cut, "closes_cut") + count(&cut, "closes_reset")),
        (0, 10)
    );
}

#[test]
fn leapfrog_counts_the_gets_of_streams_that_kill_each_other() {
    let arguments = ["leapfrog", "-n", "2", "--calls", "2", "--tool", "streamed", "-d", "3s"];
    let server = Server::start(Fault::KillsOtherStream);
    let wrong = report(&server, &arguments);
    assert_fault(&wrong, "GETs had to be sent again");
    assert!(count(&wrong, "gets_again") > 10, "{}", wrong["counts"]);
    assert!(server.get_count.load(Ordering::Relaxed) >= count(&wrong, "gets"));
    let right = report(&Server::start(Fault::None), &arguments);
    assert_no_fault(&right);
    assert_eq!((count(&right, "gets"), count(&right, "gets_again")), (6, 0));
}

#[test]
fn leapfrog_counts_deliveries_per_session_whatever_the_stream() {
    let server = Server::start(Fault::None);
    let url = server.url();
    let body = r#"{"method":"publish","text":"{marker}"}"#;
    let publish = ["--publish-url", &url, "--publish-body", body, "--every", "100ms"];
    let arguments = ["leapfrog", "-n", "5", "--tool", "streamed", "-d", "1s"];
    let report = report(&server, &[&arguments[..], &publish].concat());
    assert_no_fault(&report);
    assert_eq!((count(&report, "receipts"), count(&report, "receipts_due")), (50, 50));
}

#[test]
fn storm_brings_everyone_back_and_finds_forgotten_sessions() {
    let arguments = ["storm", "-n", "20", "--storms", "2", "--calm", "1500ms"];
    let right = report(&Server::start(Fault::None), &arguments);
    assert_no_fault(&right);
    assert_eq!((count(&right, "reconnects"), count(&right, "reconnected")), (40, 40));
    assert_eq!(right["clients_up_at_end"], 20);
    let wrong = report(&Server::start(Fault::ForgetsSessions), &arguments);
    assert_fault(&wrong, "sessions were forgotten");
}

#[test]
fn storm_with_cursors_loses_nothing_that_was_sent_meanwhile() {
    let server = Server::start(Fault::None);
    let url = server.url();
    let body = r#"{"method":"publish","text":"{marker}"}"#;
    let publish = ["--publish-url", &url, "--publish-body", body, "--every", "20ms"];
    let arguments = ["storm", "-n", "10", "--storms", "2", "--calm", "1s", "--warm-up", "500ms"];
    let report = report(&server, &[&arguments[..], &publish].concat());
    assert_eq!((count(&report, "lost"), count(&report, "duplicates")), (0, 0), "{}", report["fanout"]);
    assert_eq!(count(&report, "reconnected"), 20);
}

#[test]
fn call_finds_answers_that_are_not_its_own() {
    let arguments = ["call", "-c", "2", "-r", "100", "-d", "1s", "--warm-up", "0s"];
    let report = report(&Server::start(Fault::SwapsIds), &arguments);
    assert_fault(&report, "requests were not answered with a result");
    assert!((5..=20).contains(&count(&report, "requests_failed")), "{}", report["counts"]);
}

/// A stall of half a second in two seconds hits a quarter of the intended sends. A closed loop would have one slow
/// answer per connection to show for it.
#[test]
fn a_stall_is_in_the_latency_of_everything_it_delayed() {
    let arguments = ["call", "-c", "2", "-r", "200", "-d", "2s", "--warm-up", "0s"];
    let report = report(&Server::start(Fault::Stalls), &arguments);
    assert_eq!(count(&report, "requests_ok"), 400);
    let p90 = metric(&report, "p90_us");
    assert!((150_000.0..500_000.0).contains(&p90), "{}", report["latencies"]["request"]);
    assert!(metric(&report, "p50_us") < 50_000.0);
    assert!(report["warnings"].to_string().contains("wait for a free connection"), "{}", report["warnings"]);
}

#[test]
fn notifications_without_a_marker_are_counted_by_their_order() {
    let arguments = [&NOTIFY[..], &["--args", r#"{"message":"the same every time"}"#]].concat();
    let right = report(&Server::start(Fault::None), &arguments);
    assert_no_fault(&right);
    assert_eq!(count(&right, "receipts"), 2_500);
    let lossy = report(&Server::start(Fault::DropsOneInThousand), &arguments);
    assert_fault(&lossy, "notifications were lost");
    let doubled = report(&Server::start(Fault::DuplicatesOne), &arguments);
    assert!(count(&doubled, "duplicates") >= 1, "{}", doubled["counts"]);
}

/// Not a fault: servers may close idle connections, and clients open new ones.
#[test]
fn idle_connections_may_be_closed() {
    let report = report(
        &Server::start(Fault::ClosesIdle),
        &["call", "-c", "4", "-r", "5", "-d", "3s", "--warm-up", "0s"],
    );
    assert_no_fault(&report);
    assert_eq!(count(&report, "requests_ok"), 15);
}
