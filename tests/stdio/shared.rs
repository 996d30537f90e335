//! A few children for all sessions.

use super::{
    behind::{Behind, begin, cancellation, finish, value, value_of},
    events::{EventStream, Next},
    session::{NEWEST, Session, answer, initialize, post, tool_call},
    until,
    wire::Connection,
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

const SHARED: [&str; 4] = ["--stdio-mode", "shared", "--shards", "1"];

#[test]
fn all_sessions_share_one_child_that_is_initialised_once() {
    let behind = Behind::start(&SHARED);
    let sessions: Vec<Session> = (0..10).map(|_| behind.session()).collect();
    let pids: HashSet<Value> = sessions
        .iter()
        .map(|session| value(session, "pid", &json!({})))
        .map(|pid| pid.to_string().into())
        .collect();
    assert_eq!((pids.len(), behind.processes().len()), (1, 1));
    assert_eq!(value(&sessions[3], "seen", &json!({}))["notified"], json!(["notifications/initialized"]));
    for session in &sessions {
        assert_eq!(session.delete(), 204);
    }
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn children_are_divided_among_shards_and_sessions_among_children() {
    let behind = Behind::start(&["--stdio-mode", "shared", "--shards", "2", "--children", "5"]);
    behind.until_processes(5);
    let sessions: Vec<Session> = (0..60).map(|_| behind.session()).collect();
    let pids: HashSet<String> =
        sessions.iter().map(|session| value(session, "pid", &json!({})).to_string()).collect();
    assert_eq!(pids.len(), 5);
    for session in &sessions {
        let pid = value(session, "pid", &json!({}));
        assert_eq!(value(session, "pid", &json!({})), pid, "a session stays where it is");
    }
    behind.stop();
}

#[test]
fn fewer_children_than_threads_make_fewer_threads() {
    let behind = Behind::start(&["--stdio-mode", "shared", "--children", "1"]);
    for _ in 0..8 {
        assert_eq!(behind.session().shard(), 0);
    }
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn the_older_revision_is_agreed_on() {
    let behind = Behind::start(&[&SHARED[..], &["--child-env", "CHILD_REVISION=2025-06-18"]].concat());
    for (asked, given) in
        [("2025-11-25", "2025-06-18"), ("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05")]
    {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize(asked), &[]));
        let answer = answer(&connection.response("POST"));
        assert_eq!(answer["result"]["protocolVersion"], given, "asked for {asked}");
        assert_eq!(answer["result"]["serverInfo"]["name"], "child");
    }
    behind.stop();
}

#[test]
fn two_hundred_sessions_at_once() {
    let behind = Behind::start(&["--stdio-mode", "shared", "--shards", "2"]);
    let address = behind.server.address();
    let workers: Vec<_> = (0..20)
        .map(|worker| {
            thread::spawn(move || {
                let sessions: Vec<Session> = (0..10).map(|_| Session::open(address)).collect();
                let calls: Vec<_> = (0..50)
                    .map(|number| {
                        let text = format!("worker {worker} call {number}");
                        (begin(&sessions[number % 10], json!(number), "echo", &json!({"text": text})), text)
                    })
                    .collect();
                for (call, text) in calls {
                    assert_eq!(value_of(&finish(call)), text);
                }
                sessions
            })
        })
        .collect();
    let sessions: Vec<Session> =
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker fails")).collect();
    assert_eq!(sessions.len(), 200);
    assert_eq!(behind.processes().len(), 2);
    // All of them still are there, and all hear of a change.
    let mut listeners: Vec<_> = sessions.iter().step_by(20).map(Session::listen).collect();
    for session in
        [&sessions[0], &sessions[1], &sessions[2], &sessions[3], &sessions[4], &sessions[5], &sessions[6]]
    {
        value(session, "note", &json!({"method": "notifications/tools/list_changed"}));
    }
    let heard =
        |listener: &mut EventStream| matches!(listener.next_within(Duration::from_secs(5)), Next::Event(_));
    assert!(listeners.iter_mut().all(heard));
    behind.stop();
}

#[test]
fn changes_reach_everybody_and_updates_their_subscribers() {
    let behind = Behind::start(&SHARED);
    let (a, b, c) = (behind.session(), behind.session(), behind.session());
    let mut listeners = [a.listen(), b.listen(), c.listen()];
    value(&a, "note", &json!({"method": "notifications/prompts/list_changed"}));
    for listener in &mut listeners {
        assert_eq!(listener.message().json()["method"], "notifications/prompts/list_changed");
    }
    for session in [&a, &b] {
        assert_eq!(subscription(session, "resources/subscribe", "x://1")["result"], json!({}));
    }
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": "x://1"}});
    value(&c, "note", &updated);
    for listener in &mut listeners[..2] {
        assert_eq!(listener.message().json()["params"]["uri"], "x://1");
    }
    assert_eq!(subscription(&a, "resources/unsubscribe", "x://1")["result"], json!({}));
    value(&c, "note", &updated);
    assert_eq!(listeners[1].message().json()["params"]["uri"], "x://1");
    assert_eq!(b.delete(), 204);
    until("the child is told of the last one's leaving", || {
        value(&c, "seen", &json!({}))["subscribed"]
            == json!(["resources/subscribe x://1", "resources/unsubscribe x://1"])
    });
    let [mut of_a, _, mut of_c] = listeners;
    of_a.stays_silent();
    of_c.stays_silent();
    behind.stop();
}

fn subscription(session: &Session, method: &str, uri: &str) -> Value {
    answer(&session.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": uri}})))
}

#[test]
fn the_child_logs_what_any_session_wants_and_each_gets_its_own() {
    let behind = Behind::start(&SHARED);
    let (a, b) = (behind.session(), behind.session());
    for (session, level) in [(&a, "error"), (&b, "critical"), (&b, "info")] {
        let set =
            json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": level}});
        assert_eq!(answer(&session.post(&set))["result"], json!({}));
    }
    assert_eq!(value(&a, "seen", &json!({}))["levels"], json!(["error", "info"]));
    let log = json!({"level": "warning", "data": "w"});
    let filtered = a.post(&tool_call(json!(1), "log", &log));
    assert_eq!(filtered.head.field("content-type"), Some("application/json"), "below its level");
    let heard = b.post(&tool_call(json!(1), "log", &log));
    assert!(heard.text().contains("notifications/message"), "{}", heard.text());
    assert_eq!(b.delete(), 204);
    until("the level rises again", || {
        value(&a, "seen", &json!({}))["levels"] == json!(["error", "info", "error"])
    });
    // What belongs to no call is nobody's.
    let mut listener = a.listen();
    let later = json!({"seconds": 0.1, "method": "notifications/message", "params": {"level": "error", "data": "nobody's"}});
    value(&a, "later", &later);
    until("it is in our log", || behind.server.log().contains("nobody's"));
    listener.stays_silent();
    behind.stop();
}

#[test]
fn a_question_goes_to_the_one_client_it_can_be_for() {
    let behind = Behind::start(&SHARED);
    let capabilities = json!({"sampling": {}, "elicitation": {}});
    let session = Session::open_as(behind.server.address(), &capabilities);
    let _bystander = Session::open_as(behind.server.address(), &capabilities);
    let mut connection = begin(&session, json!(1), "sample", &json!({}));
    let head = connection.final_head();
    let mut stream = EventStream::new(connection, &head);
    let question = stream.message().json();
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant"}});
    assert_eq!(session.post(&reply).status(), 202);
    assert_eq!(value_of(&stream.message().json()), json!({"role": "assistant"}));
    behind.stop();
}

#[test]
fn a_question_that_may_be_for_several_is_refused() {
    let behind = Behind::start(&SHARED);
    let capabilities = json!({"sampling": {}});
    let (a, b) = (Session::open_as(behind.server.address(), &capabilities), behind.session());
    let other = begin(&b, json!(1), "slow", &json!({"seconds": 6}));
    until("it is under way", || value(&b, "seen", &json!({}))["called"]["slow"].is_array());
    let refusal = value(&a, "sample", &json!({}));
    assert_eq!(refusal["code"], -32000);
    assert!(refusal["message"].as_str().is_some_and(|text| text.contains("per-session")), "{refusal}");
    assert_eq!(value_of(&finish(other)), "done");
    behind.stop();
}

#[test]
fn a_cancelled_call_harms_nobody() {
    let behind = Behind::start(&SHARED);
    let (a, b) = (behind.session(), behind.session());
    let hanging = begin(&a, json!(7), "hang", &json!({}));
    let same_id = begin(&b, json!(7), "slow", &json!({"seconds": 0.5}));
    until("both are under way", || {
        let called = value(&b, "seen", &json!({}))["called"].clone();
        called["hang"].is_array() && called["slow"].is_array()
    });
    assert_eq!(a.post(&cancellation(&json!(7))).status(), 202);
    drop(hanging);
    assert_eq!(value_of(&finish(same_id)), "done");
    assert_eq!(value(&a, "echo", &json!({"text": "goes on"})), "goes on");
    assert_eq!(behind.processes().len(), 1);
    behind.stop();
}

// --- Crashes ------------------------------------------------------------------------------------

#[test]
fn sessions_and_subscriptions_survive_a_crash() {
    let behind = Behind::start(&SHARED);
    let session = behind.session();
    subscription(&session, "resources/subscribe", "x://1");
    let set = json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "error"}});
    session.post(&set);
    let mut listener = session.listen();
    let hanging = begin(&session, json!("h"), "hang", &json!({}));
    let crashing = begin(&session, json!("c"), "crash", &json!({}));
    for (call, id) in [(hanging, "h"), (crashing, "c")] {
        let answer = finish(call);
        assert_eq!((answer["id"].as_str(), answer["error"]["code"].as_i64()), (Some(id), Some(-32000)));
    }
    until("the next one serves", || session.call("pid", &json!({})).get("result").is_some());
    let seen = value(&session, "seen", &json!({}));
    assert_eq!(
        (&seen["subscribed"], &seen["levels"]),
        (&json!(["resources/subscribe x://1"]), &json!(["error"]))
    );
    value(
        &session,
        "note",
        &json!({"method": "notifications/resources/updated", "params": {"uri": "x://1"}}),
    );
    assert_eq!(listener.message().json()["params"]["uri"], "x://1");
    behind.stop();
}

#[test]
fn a_child_killed_under_load_costs_its_calls_and_nothing_else() {
    let behind = Behind::start(&SHARED);
    let address = behind.server.address();
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let session = behind.session();
            thread::spawn(move || {
                let mut connection = Connection::open(address);
                let (end, mut good, mut bad) = (Instant::now() + Duration::from_secs(5), 0, 0);
                while Instant::now() < end {
                    let answer = session.call_on(&mut connection, "echo", &json!({"text": "load"}));
                    match answer.get("result") {
                        Some(_) => good += 1,
                        None => {
                            assert_eq!(answer["error"]["code"], -32000);
                            bad += 1;
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                }
                until("the next child serves", || {
                    session.call_on(&mut connection, "echo", &json!({"text": "last"})).get("result").is_some()
                });
                (good, bad)
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    for process in behind.processes() {
        kill_process(process, Signal::KILL).expect("it runs");
    }
    for worker in workers {
        let (good, bad) = worker.join().expect("no worker fails");
        assert!(good > 0 && bad > 0, "{good} good, {bad} bad");
    }
    behind.until_processes(1);
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn a_child_that_cannot_start_is_tried_again_ever_more_slowly() {
    let behind =
        Behind::start(&[&SHARED[..], &["--child-env", "CHILD_DIES=1", "--sse-after", "1m"]].concat());
    let refused = || {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize(NEWEST), &[]));
        let response = connection.response("POST");
        (response.status(), response.head.field("retry-after").is_some())
    };
    assert_eq!(refused(), (503, true));
    let starts = || behind.server.log().matches("it is started again").count();
    until("it is tried again", || starts() >= 3);
    thread::sleep(Duration::from_secs(2));
    assert!(starts() < 10, "{} starts", starts());
    assert_eq!(refused(), (503, true));
    behind.stop();
}
