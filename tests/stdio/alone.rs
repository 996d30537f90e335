//! Clients of 2026-07-28 and a program that speaks an older revision.

use super::{
    PATIENCE,
    behind::{Behind, requests_of_both_eras, value, value_of},
    events::EventStream,
    session::{answer, post},
    until,
    wire::{Connection, Leave, Response},
};
use serde_json::{Value, json};
use std::{collections::HashSet, net::SocketAddr, process::Command, time::Duration};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// In both modes.
fn with_each_mode(check: impl Fn(&Behind)) {
    for flags in [&["--shards", "2"][..], &["--shards", "1", "--stdio-mode", "shared"][..]] {
        let behind = Behind::start(flags);
        check(&behind);
        behind.stop();
    }
}

/// A client: its requests belong to nothing, so all it has is an address and perhaps a token.
struct Alone {
    address: SocketAddr,
    token: Option<String>,
}

impl Alone {
    fn of(behind: &Behind) -> Alone {
        Alone { address: behind.server.address(), token: None }
    }

    /// Sends a request and leaves its answer for later. `_meta` in `params` is kept.
    fn begin(&self, method: &str, mut params: Value) -> Connection {
        let meta = params["_meta"].take();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}},
        });
        for (name, value) in meta.as_object().into_iter().flatten() {
            params["_meta"][name] = value.clone();
        }
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let token = format!("Bearer {}", self.token.as_deref().unwrap_or_default());
        let mut fields = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        fields.extend((!name.is_empty()).then_some(("Mcp-Name", &*name)));
        fields.extend(self.token.is_some().then_some(("Authorization", &*token)));
        let mut connection = Connection::open(self.address);
        let message = json!({"jsonrpc": "2.0", "id": "i", "method": method, "params": params});
        connection.send(post(&message, &fields));
        connection
    }

    fn response(&self, method: &str, params: Value) -> Response {
        self.begin(method, params).response("POST")
    }

    fn request(&self, method: &str, params: Value) -> Value {
        answer(&self.response(method, params))
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        value_of(&self.request("tools/call", json!({"name": tool, "arguments": arguments})))
    }

    /// A listen stream with its acknowledgement.
    fn listen(&self, wanted: &Value) -> (EventStream, Value) {
        let mut connection = self.begin("subscriptions/listen", json!({"notifications": wanted}));
        let head = connection.final_head();
        let mut stream = EventStream::new(connection, &head);
        let acknowledged = stream.message().json();
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        (stream, acknowledged["params"]["notifications"].clone())
    }
}

#[test]
fn discovery_is_the_child_s_own_greeting() {
    with_each_mode(|behind| {
        let said = Alone::of(behind).request("server/discover", json!({}));
        let result = &said["result"];
        assert_eq!(result["resultType"], "complete");
        assert!(result["supportedVersions"].as_array().expect("a list").contains(&json!("2026-07-28")));
        assert_eq!(result["capabilities"]["resources"], json!({"subscribe": true}));
        assert_eq!((&result["instructions"], &result["ttlMs"]), (&json!("Be kind."), &json!(0)));
        assert_eq!(result["_meta"][SERVER]["name"], "child");
        assert!(result.get("serverInfo").is_none() && result.get("protocolVersion").is_none());
    });
}

#[test]
fn what_both_revisions_have_is_passed_on_and_stamped() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        for (method, params, member) in requests_of_both_eras() {
            let said = client.request(method, params);
            let result = &said["result"];
            assert_eq!(said["id"], "i");
            assert!(result.get(member).is_some(), "{said}");
            assert_eq!(
                (&result["resultType"], &result["_meta"][SERVER]["name"]),
                (&json!("complete"), &json!("child"))
            );
            let is_kept = matches!(method, "tools/list" | "resources/read");
            assert_eq!(result.get("ttlMs").is_some(), is_kept, "{said}");
        }
        assert_eq!(client.call("echo", json!({"text": "hello"})), "hello");
    });
}

#[test]
fn errors_are_those_of_the_newer_revision() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        let missing = client.request("resources/read", json!({"uri": "missing://"}));
        assert_eq!(missing["error"]["code"], -32602, "{missing}");
        for method in
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/get", "no/such"]
        {
            let refused = client.response(method, json!({"taskId": "t", "uri": "u", "level": "info"}));
            assert!(matches!(refused.status(), 400 | 404), "{method}: {}", refused.text());
        }
        assert_eq!(client.response("ping", json!({})).status(), 404);
    });
}

#[test]
fn progress_has_the_client_s_own_token() {
    with_each_mode(|behind| {
        let arguments = json!({"seconds": 0.05, "steps": 2});
        let params = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": "mine"}});
        let response = Alone::of(behind).response("tools/call", params);
        let said = response.text();
        assert_eq!(said.matches(r#""progressToken": "mine""#).count(), 2, "{said}");
        assert!(said.contains("done"));
    });
}

/// A call whose connection goes is cancelled at the child.
fn assert_cancelled_with_its_connection(client: &Alone) {
    let connection = client.begin("tools/call", json!({"name": "hang", "arguments": {}}));
    until("the child has it", || !client.call("seen", json!({}))["called"]["hang"].is_null());
    connection.leave(Leave::Rst);
    until("it is cancelled", || {
        let seen = client.call("seen", json!({}));
        seen["cancelled"] == seen["called"]["hang"]
    });
}

#[test]
fn the_end_of_a_connection_cancels_at_the_child() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        assert_cancelled_with_its_connection(&client);
    });
}

#[test]
fn a_listen_stream_hears_what_its_child_announces() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        let wanted =
            json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a://b"]});
        let (mut stream, honoured) = client.listen(&wanted);
        let expected = json!({"toolsListChanged": true, "resourceSubscriptions": ["a://b"]});
        assert_eq!(honoured, expected, "the child has no prompts");
        let (other, _) = client.listen(&json!({"resourceSubscriptions": ["a://b"]}));
        let subscribed = || client.call("seen", json!({}))["subscribed"].clone();
        assert_eq!(subscribed()[0], "resources/subscribe a://b");
        client.call("note", json!({"method": "notifications/tools/list_changed"}));
        client.call("note", json!({"method": "notifications/resources/updated", "params": {"uri": "c://d"}}));
        client.call("note", json!({"method": "notifications/resources/updated", "params": {"uri": "a://b"}}));
        for method in ["notifications/tools/list_changed", "notifications/resources/updated"] {
            let said = stream.message().json();
            assert_eq!(said["method"], method, "{said}");
            assert_eq!(said["params"]["_meta"][SUBSCRIPTION], "i");
        }
        stream.stays_silent();
        stream.leave(Leave::Rst);
        other.leave(Leave::Rst);
        until("nobody is subscribed", || {
            let all = subscribed();
            all.as_array().and_then(|all| all.last()) == Some(&json!("resources/unsubscribe a://b"))
        });
        let all = subscribed();
        let left = all
            .as_array()
            .expect("a list")
            .iter()
            .filter(|said| **said == json!("resources/unsubscribe a://b"));
        assert_eq!(left.count(), 1, "the last one's leaving is what the child hears of: {all}");
    });
}

#[test]
fn log_messages_come_to_who_asked_for_them() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        let log = |meta: Value| {
            let arguments = json!({"level": "warning", "data": "careful"});
            let response =
                client.response("tools/call", json!({"name": "log", "arguments": arguments, "_meta": meta}));
            response.text().contains("careful")
        };
        assert!(!log(json!({})));
        assert!(log(json!({"io.modelcontextprotocol/logLevel": "info"})));
        assert!(!log(json!({"io.modelcontextprotocol/logLevel": "error"})));
        assert_eq!(client.call("seen", json!({}))["levels"][0], "info");
    });
}

#[test]
fn a_child_s_question_is_asked_in_a_round_of_its_own() {
    with_each_mode(|behind| {
        let client = Alone::of(behind);
        let asked =
            client.request("tools/call", json!({"name": "elicit", "arguments": {}}))["result"].clone();
        assert_eq!(
            (&asked["resultType"], &asked["_meta"][SERVER]["name"]),
            (&json!("input_required"), &json!("child"))
        );
        let question = &asked["inputRequests"]["question"];
        assert_eq!(
            (&question["method"], &question["params"]["message"]),
            (&json!("elicitation/create"), &json!("Who?"))
        );
        let next = |arguments: Value, state: &Value, responses: Value| {
            let params = json!({"name": "elicit", "arguments": arguments, "requestState": state, "inputResponses": responses});
            client.request("tools/call", params)
        };
        let state = &asked["requestState"];
        let answers = json!({"question": {"action": "accept", "content": {"name": "Ann"}}, "other": {}});
        let forged = next(json!({"other": 1}), state, answers.clone());
        assert_eq!(forged["error"]["code"], -32602, "it is of another request: {forged}");
        let again = next(json!({}), state, json!({}))["result"].clone();
        assert_eq!(again["resultType"], "input_required", "{again}");
        assert_eq!(next(json!({}), state, answers.clone())["error"]["code"], -32602, "it was used before");
        let done = next(json!({}), &again["requestState"], answers);
        assert_eq!(done["result"]["resultType"], "complete", "{done}");
        assert_eq!(value_of(&done)["content"]["name"], "Ann");
        assert_eq!(client.call("echo", json!({"text": "goes on"})), "goes on");
    });
}

#[test]
fn what_a_client_does_not_declare_it_is_not_asked() {
    with_each_mode(|behind| {
        let error = Alone::of(behind).call("roots", json!({}));
        assert!(error["message"].as_str().expect("a message").contains("roots"), "{error}");
    });
}

#[test]
fn a_client_that_does_not_come_back_is_waited_for_so_long_and_no_longer() {
    let behind = Behind::start(&["--shards", "1", "--request-timeout", "2s"]);
    let client = Alone::of(&behind);
    let ask = || client.request("tools/call", json!({"name": "sample", "arguments": {}}))["result"].clone();
    let asked = ask();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let seen = || client.call("seen", json!({}));
    until("it is cancelled", || {
        let seen = seen();
        seen["cancelled"] == seen["called"]["sample"]
    });
    assert_eq!(ask()["resultType"], "input_required", "and the child can ask again");
    behind.stop();
}

#[test]
fn a_child_that_ends_while_its_client_is_away_is_said_so() {
    let behind = Behind::start(&["--shards", "1"]);
    let client = Alone::of(&behind);
    let asked = client.request("tools/call", json!({"name": "sample", "arguments": {}}))["result"].clone();
    client.request("tools/call", json!({"name": "crash", "arguments": {}}));
    let answers = json!({"question": {"role": "assistant"}});
    let params = json!({"name": "sample", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    let failed = client.request("tools/call", params);
    assert_eq!(failed["error"]["message"], "the server behind this one has ended", "{failed}");
    behind.stop();
}

#[test]
fn everybody_unknown_shares_one_child_and_sessions_have_their_own() {
    let behind = Behind::start(&["--shards", "2"]);
    let client = Alone::of(&behind);
    let pids: HashSet<String> = (0..12).map(|_| client.call("pid", json!({})).to_string()).collect();
    assert_eq!((pids.len(), behind.processes().len()), (1, 1), "whatever shard a connection lands on");
    let session = behind.session();
    assert!(!pids.contains(&value(&session, "pid", &json!({})).to_string()));
    assert_eq!(client.call("seen", json!({}))["notified"], json!(["notifications/initialized"]));
    behind.until_processes(2);
    behind.stop();
}

#[test]
fn each_principal_has_a_child_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    let tokens: Vec<(String, String)> = ["ann", "bob"].map(token).into();
    let lines: Vec<&str> = tokens.iter().map(|(_, line)| &**line).collect();
    std::fs::write(&path, lines.join("\n")).expect("it can be written");
    let behind = Behind::start(&["--shards", "2", "--auth", &format!("tokens={}", path.display())]);
    let address = behind.server.address();
    let clients = tokens.iter().map(|(token, _)| Alone { address, token: Some(token.clone()) });
    let clients: Vec<Alone> = clients.collect();
    for _ in 0..4 {
        clients[0].call("set", json!({"value": "ann's"}));
        assert_eq!(clients[1].call("get", json!({})), Value::Null);
        assert_eq!(clients[0].call("get", json!({})), "ann's");
    }
    behind.until_processes(2);
    behind.stop();
}

/// A token of that name, and its line in a file of tokens.
fn token(name: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_moorline")).args(["token", name]).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("ASCII");
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().expect("a token"), lines.next().expect("a line"))
}

#[test]
fn a_child_that_nobody_uses_ends_and_is_started_again_when_needed() {
    let behind = Behind::start(&["--shards", "1", "--session-idle-timeout", "1s"]);
    let client = Alone::of(&behind);
    let first = client.call("pid", json!({}));
    let (stream, _) = client.listen(&json!({"toolsListChanged": true}));
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(client.call("pid", json!({})), first, "it is listened to");
    stream.leave(Leave::Rst);
    behind.until_processes(0);
    assert_ne!(client.call("pid", json!({})), first);
    behind.stop();
}

#[test]
fn a_crash_fails_what_runs_and_the_next_child_hears_of_the_subscriptions() {
    let behind = Behind::start(&["--shards", "1"]);
    let client = Alone::of(&behind);
    let (mut stream, _) = client.listen(&json!({"resourceSubscriptions": ["a://b"]}));
    let failed = client.request("tools/call", json!({"name": "crash", "arguments": {}}));
    assert_eq!(failed["error"]["code"], -32000);
    let is_back =
        || client.request("tools/call", json!({"name": "seen", "arguments": {}}))["error"].is_null();
    until("there is another", is_back);
    client.call("note", json!({"method": "notifications/resources/updated", "params": {"uri": "a://b"}}));
    assert_eq!(stream.message().json()["params"]["uri"], "a://b");
    assert_eq!(client.call("seen", json!({}))["subscribed"], json!(["resources/subscribe a://b"]));
    behind.stop();
}

#[test]
fn a_child_that_does_not_start_is_said_so_and_one_too_many_gets_503() {
    let behind = Behind::start(&["--shards", "1", "--child-env", "CHILD_DIES=1"]);
    let failed = Alone::of(&behind).request("server/discover", json!({}));
    assert_eq!(failed["error"]["message"], "the server behind this one did not start");
    behind.stop();
    let behind = Behind::start(&["--shards", "1", "--max-children", "1"]);
    let _session = behind.session();
    let refused = Alone::of(&behind).response("server/discover", json!({}));
    assert_eq!(refused.status(), 503, "within {PATIENCE:?}");
    behind.stop();
}

/// A child that speaks 2026-07-28 and nothing else.
fn with_a_newer_child(check: impl Fn(&Behind)) {
    for mode in ["auto", "per-session", "shared"] {
        let flags = ["--shards", "1", "--stdio-mode", mode, "--child-env", "CHILD_ERA=2026"];
        let behind = Behind::start(&flags);
        check(&behind);
        behind.stop();
    }
}

#[test]
fn a_child_of_the_same_revision_says_everything_itself() {
    with_a_newer_child(|behind| {
        let client = Alone::of(behind);
        let said = client.request("server/discover", json!({}));
        assert_eq!(
            (&said["result"]["supportedVersions"], &said["result"]["ttlMs"]),
            (&json!(["2026-07-28"]), &json!(5))
        );
        let params = json!({"name": "slow", "arguments": {"seconds": 0.05, "steps": 2}, "_meta": {"progressToken": "mine"}});
        let response = client.response("tools/call", params);
        assert_eq!(response.text().matches(r#""progressToken": "mine""#).count(), 2, "{}", response.text());
        assert_cancelled_with_its_connection(&client);
    });
}

#[test]
fn the_rounds_of_a_newer_child_are_its_own() {
    with_a_newer_child(|behind| {
        let client = Alone::of(behind);
        let asked = client.request("tools/call", json!({"name": "ask"}))["result"].clone();
        assert_eq!(
            (&asked["resultType"], &asked["requestState"]),
            (&json!("input_required"), &json!("mine"))
        );
        let answers = json!({"q": {"action": "accept", "content": {"name": "Ann"}}});
        let done = client
            .request("tools/call", json!({"name": "ask", "requestState": "mine", "inputResponses": answers}));
        assert_eq!(value_of(&done), "Ann");
    });
}

#[test]
fn what_a_newer_child_announces_comes_to_who_listens() {
    with_a_newer_child(|behind| {
        let client = Alone::of(behind);
        let (mut stream, honoured) =
            client.listen(&json!({"toolsListChanged": true, "resourceSubscriptions": ["a://b"]}));
        assert_eq!(honoured, json!({"toolsListChanged": true, "resourceSubscriptions": ["a://b"]}));
        let (other, _) = client.listen(&json!({"resourceSubscriptions": ["a://b"]}));
        until("it is listened to", || client.call("listened", json!({})) == json!(["a://b"]));
        client.call("change", json!({}));
        client.call("update", json!({"uri": "c://d"}));
        client.call("update", json!({"uri": "a://b"}));
        for method in ["notifications/tools/list_changed", "notifications/resources/updated"] {
            let said = stream.message().json();
            assert_eq!(said["method"], method, "{said}");
            assert_eq!(said["params"]["_meta"][SUBSCRIPTION], "i");
        }
        stream.stays_silent();
        stream.leave(Leave::Rst);
        other.leave(Leave::Rst);
        until("nobody listens", || client.call("listened", json!({})) == json!([]));
    });
}
