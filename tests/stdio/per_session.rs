//! One child for each session.

use super::{
    PATIENCE,
    behind::{Behind, begin, cancellation, finish, value, value_of},
    events::{EventStream, Next},
    session::{NEWEST, Session, answer, initialize, post, tool_call},
    until,
};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn each_session_has_a_child_of_its_own_that_ends_with_it() {
    let behind = Behind::start(&["--shards", "2"]);
    let sessions: Vec<Session> = (0..4).map(|_| behind.session()).collect();
    behind.until_processes(4);
    for (number, session) in sessions.iter().enumerate() {
        value(session, "set", &json!({"value": number}));
    }
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(value(session, "get", &json!({})), number, "the state of one client is its own");
    }
    for (index, session) in sessions.iter().enumerate() {
        assert_eq!(session.delete(), 204);
        behind.until_processes(3 - index);
    }
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn sessions_that_come_and_go_leave_nothing() {
    let behind = Behind::start(&["--shards", "1", "--max-children", "4"]);
    for _ in 0..12 {
        let session = behind.session();
        assert_eq!(value(&session, "echo", &json!({"text": "hi"})), "hi");
        assert_eq!(session.delete(), 204);
        behind.until_processes(0);
    }
    behind.until_all_reaped();
    behind.stop();
}

#[test]
fn initialize_is_the_child_s_own() {
    let behind = Behind::start(&[]);
    for (asked, given) in
        [("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05"), ("2099-01-01", "2025-11-25")]
    {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize(asked), &[]));
        let answer = answer(&connection.response("POST"));
        assert_eq!(answer["result"]["serverInfo"]["name"], "child");
        assert_eq!(answer["result"]["instructions"], "Be kind.");
        assert_eq!(answer["result"]["protocolVersion"], given);
        assert_eq!(answer["result"]["serverInfo"]["version"], given, "what the child was asked for");
    }
    behind.stop();
}

#[test]
fn the_session_is_of_the_child_s_revision() {
    let behind = Behind::start(&["--child-env", "CHILD_REVISION=2025-03-26"]);
    let session = Session::open_silent(behind.server.address(), "2025-03-26");
    // Only this revision has batches.
    let response = session.post(&json!([
        tool_call(json!(1), "echo", &json!({"text": "one"})),
        tool_call(json!(2), "echo", &json!({"text": "two"})),
    ]));
    assert_eq!(response.status(), 200, "{}", response.text());
    behind.stop();
}

#[test]
fn a_child_of_an_unknown_revision_makes_no_session() {
    let behind = Behind::start(&["--child-env", "CHILD_REVISION=2031-01-01"]);
    assert_eq!(refused_initialize(&behind)["error"]["code"], -32603);
    behind.until_processes(0);
    behind.stop();
}

#[test]
fn a_child_that_refuses_says_why() {
    let behind = Behind::start(&["--child-env", "CHILD_REFUSES=1"]);
    let answer = refused_initialize(&behind);
    assert_eq!(
        (answer["error"]["code"].as_i64(), answer["error"]["message"].as_str()),
        (Some(-32001), Some("not today"))
    );
    behind.until_processes(0);
    behind.stop();
}

#[test]
fn a_child_that_dies_at_once_is_an_error_and_not_a_wait() {
    let behind = Behind::start(&["--child-env", "CHILD_DIES=1"]);
    assert_eq!(refused_initialize(&behind)["error"]["code"], -32000);
    until("its last words are in the log", || behind.server.log().contains("cannot start today"));
    behind.stop();
}

/// The answer to an `initialize` that comes to nothing.
fn refused_initialize(behind: &Behind) -> Value {
    let mut connection = behind.server.connect();
    connection.send(post(&initialize(NEWEST), &[]));
    let response = connection.response("POST");
    assert_eq!(response.status(), 200);
    answer(&response)
}

#[test]
fn one_child_too_many_is_503_with_retry_after() {
    let behind = Behind::start(&["--max-children", "2"]);
    let (first, _second) = (behind.session(), behind.session());
    for _ in 0..3 {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize(NEWEST), &[]));
        let response = connection.response("POST");
        assert_eq!(response.status(), 503);
        assert!(response.head.field("retry-after").is_some());
        assert!(response.head.field("mcp-session-id").is_none());
    }
    assert_eq!(first.delete(), 204);
    behind.until_processes(1);
    until("there is room again", || {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize(NEWEST), &[]));
        connection.response("POST").status() == 200
    });
    behind.stop();
}

#[test]
fn a_crash_fails_calls_at_once_and_ends_the_session_alone() {
    let behind = Behind::start(&["--shards", "1"]);
    let (session, other) = (behind.session(), behind.session());
    let hanging = begin(&session, json!("a"), "hang", &json!({}));
    let crashing = begin(&session, json!("b"), "crash", &json!({}));
    for (connection, id) in [(hanging, "a"), (crashing, "b")] {
        let answer = finish(connection);
        assert_eq!((answer["id"].as_str(), answer["error"]["code"].as_i64()), (Some(id), Some(-32000)));
    }
    until("the session is over", || session.ping_status() == 404);
    assert_eq!(value(&other, "echo", &json!({"text": "unharmed"})), "unharmed");
    behind.until_processes(1);
    behind.stop();
}

#[test]
fn a_child_that_closes_its_output_is_as_good_as_gone() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let closing = begin(&session, json!(1), "close", &json!({}));
    assert_eq!(finish(closing)["error"]["code"], -32000);
    until("the session is over", || session.ping_status() == 404);
    behind.until_processes(0);
    behind.stop();
}

// --- Requests of the child ----------------------------------------------------------------------

/// Calls a tool that asks the client something, answers it, and gives the question and the tool's value.
fn ask(session: &Session, tool: &str, reply: Value) -> (Value, Value) {
    let mut connection = begin(session, json!(1), tool, &json!({}));
    let head = connection.final_head();
    let mut stream = EventStream::new(connection, &head);
    let question = stream.message().json();
    let mut message = reply;
    message["jsonrpc"] = json!("2.0");
    message["id"] = question["id"].clone();
    assert_eq!(session.post(&message).status(), 202);
    let answer = stream.message().json();
    assert_eq!(stream.next_within(PATIENCE), Next::Ended);
    (question, value_of(&answer))
}

#[test]
fn a_child_can_ask_its_client() {
    let behind = Behind::start(&[]);
    let capabilities = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    let session = Session::open_as(behind.server.address(), &capabilities);
    for (tool, method) in
        [("sample", "sampling/createMessage"), ("elicit", "elicitation/create"), ("roots", "roots/list")]
    {
        let (question, value) = ask(&session, tool, json!({"result": {"answer": tool}}));
        assert_eq!(question["method"], method);
        assert_eq!(value, json!({"answer": tool}));
        let (_, value) = ask(&session, tool, json!({"error": {"code": -1, "message": "no"}}));
        assert_eq!(value, json!({"code": -1, "message": "no"}));
    }
    behind.stop();
}

#[test]
fn what_a_client_cannot_do_is_an_error_to_the_child() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    for tool in ["sample", "elicit", "roots"] {
        assert_eq!(value(&session, tool, &json!({}))["code"], -32000, "{tool}");
    }
    assert_eq!(value(&session, "unknown", &json!({}))["code"], -32601);
    assert_eq!(value(&session, "ping", &json!({})), json!({}));
    behind.stop();
}

// --- Notifications ------------------------------------------------------------------------------

#[test]
fn what_the_client_says_reaches_the_child() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    assert_eq!(session.post(&changed).status(), 202);
    let level =
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "error"}});
    assert_eq!(session.post(&level).status(), 200);
    let seen = value(&session, "seen", &json!({}));
    assert_eq!(seen["notified"], json!(["notifications/initialized", "notifications/roots/list_changed"]));
    assert_eq!(seen["levels"], json!(["error"]));
    behind.stop();
}

#[test]
fn what_the_child_says_reaches_the_listener_or_the_call() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let mut listener = session.listen();
    for method in ["notifications/tools/list_changed", "notifications/resources/list_changed"] {
        value(&session, "note", &json!({"method": method}));
        assert_eq!(listener.message().json()["method"], method);
    }
    // One call is under way: the message is part of its reply.
    let mut logging = begin(&session, json!(1), "log", &json!({"level": "info", "data": {"a": 1.50}}));
    let head = logging.final_head();
    let events = EventStream::new(logging, &head).until_end();
    let messages: Vec<Value> =
        events.iter().filter(|event| event.is_message()).map(|event| event.json()).collect();
    assert_eq!(messages[0]["params"], json!({"level": "info", "data": {"a": 1.50}}));
    assert_eq!(messages.len(), 2);
    // None is under way.
    let later = json!({"seconds": 0.1, "method": "notifications/message", "params": {"level": "error", "data": "late"}});
    value(&session, "later", &later);
    assert_eq!(listener.message().json()["params"]["data"], "late");
    listener.stays_silent();
    behind.stop();
}

#[test]
fn log_messages_below_the_level_stay_away() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let level =
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "error"}});
    assert_eq!(session.post(&level).status(), 200);
    // The whole reply is JSON: there was nothing to say before it.
    let response = session.post(&tool_call(json!(2), "log", &json!({"level": "warning", "data": 1})));
    assert_eq!(response.head.field("content-type"), Some("application/json"));
    behind.stop();
}

// --- Cancellation -------------------------------------------------------------------------------

#[test]
fn a_cancelled_call_is_cancelled_at_the_child_which_goes_on() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    let id = json!("the client's own");
    let mut slow = begin(&session, id.clone(), "slow", &json!({"seconds": 4}));
    until("the child has it", || value(&session, "seen", &json!({}))["called"]["slow"].is_array());
    assert_eq!(session.post(&cancellation(&id)).status(), 202);
    assert_eq!(slow.response("POST").status(), 202, "nothing to say");
    let seen = value(&session, "seen", &json!({}));
    assert_eq!(seen["cancelled"], seen["called"]["slow"], "the id that the child knows it by");
    assert_ne!(seen["cancelled"], json!([id]));
    // The child answers all the same; nobody hears it.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(value(&session, "echo", &json!({"text": "goes on"})), "goes on");
    behind.stop();
}

#[test]
fn a_client_that_vanishes_takes_its_child_along() {
    let behind = Behind::start(&["--session-idle-timeout", "3s", "--handshake-timeout", "3s"]);
    let session = behind.session();
    behind.until_processes(1);
    drop(session);
    behind.until_processes(0);
    let _never_comes_back = Session::open_silent(behind.server.address(), NEWEST);
    behind.until_processes(1);
    behind.until_processes(0);
    behind.stop();
}

#[test]
fn a_silent_child_does_not_hold_up_a_client_for_ever() {
    let behind = Behind::start(&["--child-start-timeout", "1s", "--child-env", "CHILD_SILENT=1"]);
    assert_eq!(refused_initialize(&behind)["error"]["code"], -32000);
    behind.until_processes(0);
    behind.stop();
}
