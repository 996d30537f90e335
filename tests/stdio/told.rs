//! Sessions and a program that speaks 2026-07-28 and nothing older.

use super::{
    behind::{Behind, begin, requests_of_both_eras, value, value_of},
    events::EventStream,
    session::{NEWEST, Session, answer, initialize, post, tool_call},
    until,
};
use serde_json::{Value, json};

/// Whichever mode.
fn with_each_mode(check: impl Fn(&Behind)) {
    for mode in ["auto", "per-session", "shared"] {
        let flags = ["--shards", "1", "--stdio-mode", mode, "--child-env", "CHILD_ERA=2026"];
        let behind = Behind::start(&flags);
        check(&behind);
        behind.stop();
    }
}

fn request(session: &Session, method: &str, params: &Value) -> Value {
    answer(&session.post(&json!({"jsonrpc": "2.0", "id": "r", "method": method, "params": params})))
}

fn subscribe(session: &Session, uri: &str) -> Value {
    request(session, "resources/subscribe", &json!({"uri": uri}))
}

/// Begins a call that asks, answers each of its questions with what `reply` says, and gives the questions' methods and the
/// answer.
fn ask(session: &Session, tool: &str, reply: impl Fn(&Value) -> Value) -> (Vec<String>, Value) {
    let mut connection = begin(session, json!(1), tool, &json!({}));
    let head = connection.final_head();
    let mut stream = EventStream::new(connection, &head);
    let mut methods = Vec::new();
    loop {
        let said = stream.message().json();
        let Some(method) = said["method"].as_str() else { return (methods, said) };
        if method == "notifications/cancelled" {
            continue;
        }
        methods.push(method.to_owned());
        let mut message = reply(&said);
        message["jsonrpc"] = json!("2.0");
        message["id"] = said["id"].clone();
        assert_eq!(session.post(&message).status(), 202);
    }
}

#[test]
fn a_session_begins_with_what_the_program_says_of_itself() {
    with_each_mode(|behind| {
        let mut connection = behind.server.connect();
        connection.send(post(&initialize("2025-06-18"), &[]));
        let result = answer(&connection.response("POST"))["result"].clone();
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["serverInfo"]["name"], "newer child");
        assert_eq!(result["capabilities"]["resources"], json!({"subscribe": true}));
        assert!(result.get("resultType").is_none(), "{result}");
    });
}

#[test]
fn everything_is_passed_on_in_the_words_of_both() {
    with_each_mode(|behind| {
        let session = behind.session();
        for (method, params, member) in requests_of_both_eras() {
            let said = request(&session, method, &params);
            let result = &said["result"];
            assert!(result.get(member).is_some(), "{said}");
            for unknown in ["resultType", "ttlMs", "cacheScope"] {
                assert!(result.get(unknown).is_none(), "{said}");
            }
        }
        assert_eq!(
            request(&session, "resources/read", &json!({"uri": "missing://"}))["error"]["code"],
            -32002
        );
        assert_eq!(request(&session, "no/such", &json!({}))["error"]["code"], -32601);
        let tools = request(&session, "tools/list", &json!({}));
        assert!(!tools.to_string().contains("outputSchema"), "{tools}");
        let called = request(&session, "tools/call", &json!({"name": "output"}));
        assert!(called["result"].get("structuredContent").is_none(), "{called}");
    });
}

#[test]
fn each_request_says_for_its_session_who_asks_and_what_it_can_be_asked() {
    with_each_mode(|behind| {
        let capabilities = json!({"sampling": {}, "roots": {"listChanged": true}});
        let session = Session::open_as(behind.server.address(), &capabilities);
        let other = behind.session();
        let meta = |session: &Session| value(session, "meta", &json!({}));
        let said = meta(&session);
        assert_eq!(said["io.modelcontextprotocol/clientCapabilities"], capabilities);
        assert!(said["io.modelcontextprotocol/clientInfo"]["name"].is_string(), "{said}");
        assert!(said.get("io.modelcontextprotocol/logLevel").is_none(), "{said}");
        assert_eq!(meta(&other)["io.modelcontextprotocol/clientCapabilities"], json!({}));
        request(&session, "logging/setLevel", &json!({"level": "error"}));
        assert_eq!(meta(&session)["io.modelcontextprotocol/logLevel"], "error");
        assert!(meta(&other).get("io.modelcontextprotocol/logLevel").is_none());
    });
}

#[test]
fn progress_comes_and_a_cancelled_call_is_cancelled_there() {
    with_each_mode(|behind| {
        let session = behind.session();
        let mut call = tool_call(json!(1), "slow", &json!({"seconds": 0.05, "steps": 2}));
        call["params"]["_meta"] = json!({"progressToken": "mine"});
        let response = session.post(&call);
        let said = response.text();
        assert_eq!(said.matches(r#""progressToken": "mine""#).count(), 2, "{said}");
        let _hanging = begin(&session, json!(7), "hang", &json!({}));
        until("the child has it", || !value(&session, "seen", &json!({}))["called"]["hang"].is_null());
        session.post(&super::behind::cancellation(&json!(7)));
        until("it is cancelled", || {
            let seen = value(&session, "seen", &json!({}));
            seen["cancelled"] == seen["called"]["hang"]
        });
    });
}

#[test]
fn questions_of_the_program_reach_the_client_and_their_answers_come_back() {
    with_each_mode(|behind| {
        let capabilities = json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}});
        let session = Session::open_as(behind.server.address(), &capabilities);
        let name = |_: &Value| json!({"result": {"action": "accept", "content": {"name": "Ann"}}});
        let (methods, done) = ask(&session, "ask", name);
        assert_eq!(methods, ["elicitation/create"]);
        assert_eq!((value_of(&done), done["result"].get("resultType")), (json!("Ann"), None));
        let (mut methods, done) =
            ask(&session, "ask_both", |question| json!({"result": {"to": question["method"]}}));
        methods.sort();
        assert_eq!(methods, ["elicitation/create", "sampling/createMessage"]);
        let expected = json!({"who": {"to": "elicitation/create"}, "what": {"to": "sampling/createMessage"}});
        assert_eq!(value_of(&done), expected);
        let (_, done) = ask(&session, "ask_there", |question| json!({"result": question["params"]}));
        let there = &value_of(&done)["q"];
        assert!(there["elicitationId"].is_string() && there["url"] == "https://a.example/", "{there}");
        assert_eq!(value_of(&request(&session, "tools/call", &json!({"name": "ask_nothing"}))), json!(null));
    });
}

#[test]
fn what_cannot_be_asked_is_an_error_that_names_it() {
    with_each_mode(|behind| {
        let session = Session::open_as(behind.server.address(), &json!({"elicitation": {}}));
        let message = |said: &Value| said["error"]["message"].as_str().unwrap_or_default().to_owned();
        let (_, refused) = ask(&session, "ask", |_| json!({"error": {"code": -1, "message": "I will not"}}));
        assert!(message(&refused).contains("`elicitation/create`: I will not"), "{refused}");
        let (_, lacking) = ask(&session, "ask_both", |_| json!({"result": {}}));
        assert!(message(&lacking).contains("`sampling/createMessage`"), "{lacking}");
        let odd = request(&session, "tools/call", &json!({"name": "ask_oddly"}));
        assert!(message(&odd).contains("`no/such`"), "{odd}");
        let endless = request(&session, "tools/call", &json!({"name": "ask_for_ever"}));
        assert!(message(&endless).contains("again and again"), "{endless}");
        assert_eq!(value(&session, "echo", &json!({"text": "goes on"})), "goes on");
    });
}

#[test]
fn a_call_can_be_cancelled_while_its_client_is_asked() {
    with_each_mode(|behind| {
        let session = Session::open_as(behind.server.address(), &json!({"elicitation": {}}));
        let mut connection = begin(&session, json!(7), "ask", &json!({}));
        let head = connection.final_head();
        let mut stream = EventStream::new(connection, &head);
        let question = stream.message().json();
        session.post(&super::behind::cancellation(&json!(7)));
        let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
        assert_eq!(session.post(&late).status(), 202);
        assert_eq!(value(&session, "echo", &json!({"text": "goes on"})), "goes on");
    });
}

#[test]
fn changes_reach_the_listeners_they_are_for() {
    with_each_mode(|behind| {
        let (one, other) = (behind.session(), behind.session());
        let (mut of_one, mut of_other) = (one.listen(), other.listen());
        let is_shared = value(&one, "pid", &json!({})) == value(&other, "pid", &json!({}));
        assert_eq!(subscribe(&one, "a://b")["result"], json!({}));
        assert_eq!(subscribe(&one, "a://b")["result"], json!({}));
        value(&one, "update", &json!({"uri": "a://b"}));
        let said = of_one.message().json();
        assert_eq!(
            (&said["method"], &said["params"]),
            (&json!("notifications/resources/updated"), &json!({"uri": "a://b"}))
        );
        of_other.stays_silent();
        value(&one, "change", &json!({}));
        let said = of_one.message().json();
        assert_eq!((&said["method"], said.get("params")), (&json!("notifications/tools/list_changed"), None));
        if is_shared {
            assert_eq!(of_other.message().json()["method"], "notifications/tools/list_changed");
            assert_eq!(subscribe(&other, "a://b")["result"], json!({}));
            assert_eq!(value(&one, "listened", &json!({})), json!(["a://b"]), "once for both");
        }
        request(&one, "resources/unsubscribe", &json!({"uri": "a://b"}));
        other.delete();
        until("nobody listens", || value(&one, "listened", &json!({})) == json!([]));
        of_one.stays_silent();
    });
}

#[test]
fn a_resource_that_the_program_does_not_tell_of_cannot_be_subscribed_to() {
    with_each_mode(|behind| {
        let session = behind.session();
        let refused = subscribe(&session, "secret://a");
        assert!(
            refused["error"]["message"].as_str().unwrap_or_default().contains("`secret://a`"),
            "{refused}"
        );
        assert_eq!(subscribe(&session, "a://b")["result"], json!({}));
    });
}

#[test]
fn subscriptions_outlive_the_program_where_sessions_do() {
    let flags = ["--shards", "1", "--child-env", "CHILD_ERA=2026"];
    let behind = Behind::start(&flags);
    let session = behind.session();
    let mut stream = session.listen();
    subscribe(&session, "a://b");
    assert!(session.call("crash", &json!({}))["error"]["code"].is_i64());
    let listened = || session.call("listened", &json!({}));
    until("the next one is listened to", || {
        let said = listened();
        said.get("result").is_some() && value_of(&said) == json!(["a://b"])
    });
    value(&session, "update", &json!({"uri": "a://b"}));
    assert_eq!(stream.message().json()["params"]["uri"], "a://b");
    behind.stop();
}

#[test]
fn a_session_of_its_own_ends_with_its_program() {
    let flags = ["--shards", "1", "--stdio-mode", "per-session", "--child-env", "CHILD_ERA=2026"];
    let behind = Behind::start(&flags);
    let (session, other) = (behind.session(), behind.session());
    assert_ne!(value(&session, "pid", &json!({})), value(&other, "pid", &json!({})));
    assert!(session.call("crash", &json!({}))["error"]["code"].is_i64());
    until("its session is gone", || session.ping_status() == 404);
    assert_eq!(value(&other, "echo", &json!({"text": "well"})), "well");
    other.delete();
    behind.until_processes(0);
    assert_eq!(Session::open_with(behind.server.address(), NEWEST).ping_status(), 200);
    behind.stop();
}
