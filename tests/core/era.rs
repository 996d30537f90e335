//! Which era a request belongs to, and what a request without a session has to say of itself.

use crate::world::{
    World,
    ask::{bodiless, notification, post, request},
    config,
    http::Response,
    stateless::{HEADER, body, fields, meta, meta_of, stateless, tool_call},
};
use moorline::core::{ClientFeatures, Revision};
use serde_json::json;

const NAME: &str = "tools/call";

/// A request of that `_meta`, under that version header.
fn probe(world: &mut World, header: &str, meta: &str) -> Response {
    let params = if meta.is_empty() { "{}".to_owned() } else { format!("{{{meta}}}") };
    let body = format!(r#"{{"jsonrpc":"2.0","id":"p","method":"server/discover","params":{params}}}"#);
    let fields = format!("{header}Mcp-Method: server/discover\r\n");
    world.exchange_alone(post(&fields, &body))
}

fn version(date: &str) -> String {
    format!("MCP-Protocol-Version: {date}\r\n")
}

fn fault(response: &Response) -> (u16, i64) {
    (response.status, response.code())
}

#[test]
fn a_request_with_a_claim_and_its_header_is_served_without_a_session() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &stateless("7", "server/discover", ""));
    assert_eq!((call.session, call.revision), (None, Revision::V2026_07_28));
    assert_eq!(call.method.as_str(), "server/discover");
    world.answer(shard, call.key, r#"{"resultType":"complete"}"#);
    let reply = world.response(client);
    assert_eq!(reply.json(), json!({"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}));
    assert_eq!(reply.field("mcp-session-id"), None);
    world.assert_no_session_left();
}

#[test]
fn a_claim_and_a_header_that_do_not_agree_are_a_mismatch_whatever_they_name() {
    let mut world = World::new();
    for (header, claim) in [
        (String::new(), "2026-07-28"),
        (version("2025-11-25"), "2026-07-28"),
        (version("2026-07-28"), "2025-11-25"),
        (version("2026-07-28"), "v999.0.0"),
        (version("v999.0.0"), "2026-07-28"),
        (version("2027-01-01"), "2026-07-28"),
        (version("2025-06-18"), "2025-11-25"),
        (String::new(), "v999.0.0"),
    ] {
        let reply = probe(&mut world, &header, &meta_of(claim, ""));
        assert_eq!(fault(&reply), (400, -32020), "{header} {claim}");
        assert_eq!(reply.json()["id"], "p");
    }
    assert!(world.calls.is_empty());
}

#[test]
fn a_claim_that_is_not_served_is_told_what_is() {
    let mut world = World::new();
    for claim in ["v999.0.0", "2027-01-01", "2025-11-25", "2025-03-26", "DRAFT", "2026-07-29"] {
        let reply = probe(&mut world, &version(claim), &meta_of(claim, ""));
        assert_eq!(fault(&reply), (400, -32022), "{claim}");
        let data = &reply.json()["error"]["data"];
        assert_eq!(data["requested"], claim);
        assert_eq!(data["supported"], json!(["2026-07-28"]), "what server/discover says");
        assert_eq!(reply.json()["id"], "p");
    }
}

#[test]
fn what_meta_lacks_is_named_and_never_served_by_the_rules_of_sessions() {
    let mut world = World::new();
    let version_only = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let capabilities_only = r#""_meta":{"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let (version, capabilities) = ("protocolVersion", "clientCapabilities");
    for (header, meta, missing) in [
        (HEADER, "", vec![version, capabilities]),
        (HEADER, r#""_meta":{}"#, vec![version, capabilities]),
        (HEADER, version_only, vec![capabilities]),
        (HEADER, capabilities_only, vec![version]),
        // A claim is one whatever the header says.
        ("", version_only, vec![capabilities]),
        ("MCP-Protocol-Version: 2027-01-01\r\n", "", vec![version, capabilities]),
    ] {
        let reply = probe(&mut world, header, meta);
        assert_eq!(fault(&reply), (400, -32602), "{header:?} {meta}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(missing.iter().all(|name| message.contains(name)), "{message}");
        assert_eq!(reply.json()["id"], "p");
    }
    let initialize = post(HEADER, &World::initialize_body("2025-11-25"));
    let reply = world.exchange_alone(initialize);
    assert_eq!(fault(&reply), (400, -32602));
    assert!(reply.text().contains("2025-11-25"), "it says which revisions have sessions");
    world.assert_no_session_left();
}

#[test]
fn what_meta_has_of_a_wrong_type_is_refused() {
    let mut world = World::new();
    let key = "io.modelcontextprotocol";
    for meta in [
        format!(r#""_meta":{{"{key}/protocolVersion":7,"{key}/clientCapabilities":{{}}}}"#),
        format!(r#""_meta":{{"{key}/protocolVersion":null,"{key}/clientCapabilities":{{}}}}"#),
        format!(r#""_meta":{{"{key}/protocolVersion":"2026-07-28","{key}/clientCapabilities":[]}}"#),
        format!(r#""_meta":{{"{key}/protocolVersion":"2026-07-28","{key}/clientCapabilities":"x"}}"#),
        r#""_meta":7"#.to_owned(),
        r#""_meta":[]"#.to_owned(),
        format!("{},{}", meta(), meta()),
    ] {
        assert_eq!(fault(&probe(&mut world, HEADER, &meta)), (400, -32602), "{meta}");
    }
    let array = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":[1]}"#;
    assert_eq!(fault(&world.exchange_alone(post(&fields("server/discover", ""), array))), (400, -32602));
}

#[test]
fn a_client_need_not_say_who_it_is_and_its_capabilities_are_those_of_the_request() {
    let mut world = World::new();
    let client = world.connect();
    for (declared, features) in [
        ("{}", ClientFeatures::default()),
        (r#"{"sampling":{},"roots":{}}"#, ClientFeatures::SAMPLING.with(ClientFeatures::ROOTS)),
        (r#"{"elicitation":{}}"#, ClientFeatures::FORMS),
    ] {
        let body = body("1", "server/discover", "")
            .replace(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{declared}"#));
        let (shard, call) = world.begin_exchange(client, &post(&fields("server/discover", ""), &body));
        assert_eq!(call.client, features, "{declared}");
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(client).status, 200);
    }
}

#[test]
fn initialize_without_a_claim_begins_a_session_and_is_never_offered_what_has_none() {
    let mut world = World::new();
    for header in ["", "MCP-Protocol-Version: 2025-03-26\r\n"] {
        for wanted in ["2026-07-28", "2027-01-01", "2025-11-25"] {
            let client = world.connect();
            world.client(client).initializing = true;
            let reply = world.exchange(client, post(header, &World::initialize_body(wanted)));
            assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25", "{wanted}");
            assert!(reply.field("mcp-session-id").is_some());
        }
    }
}

#[test]
fn methods_that_only_sessions_have_are_unknown() {
    let mut world = World::new();
    let client = world.connect();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ] {
        let reply = world.exchange(client, stateless(r#""x""#, method, r#""protocolVersion":"2025-11-25""#));
        assert_eq!(fault(&reply), (404, -32601), "{method}");
        assert_eq!(reply.json()["id"], "x");
    }
    assert!(world.calls.is_empty());
    world.assert_no_session_left();
}

#[test]
fn a_session_named_by_a_request_without_one_is_ignored() {
    let mut world = World::with(config(2));
    let owner = world.open_on(1, "2025-11-25");
    let session = world.session_field(owner);
    for field in [session, "Mcp-Session-Id: nonsense\r\n".to_owned()] {
        let client = world.connect_to(0);
        let more = format!("{field}Last-Event-ID: aaaaaa-l1-1\r\n");
        let request = post(&fields("server/discover", &more), &body("1", "server/discover", ""));
        let (shard, call) = world.begin_exchange(client, &request);
        assert_eq!((shard, call.session), (0, None), "it is served where it landed");
        world.answer(shard, call.key, "{}");
        let reply = world.response(client);
        assert_eq!((reply.status, reply.field("mcp-session-id")), (200, None));
    }
    // Faults are told before any session is looked for, too.
    let unknown = format!("{HEADER}Mcp-Session-Id: nonsense\r\n");
    assert_eq!(fault(&world.exchange_alone(post(&unknown, "{"))), (400, -32700));
    let claim = post("Mcp-Session-Id: nonsense\r\n", &body("1", "server/discover", ""));
    assert_eq!(fault(&world.exchange_alone(claim)), (400, -32020));
}

#[test]
fn an_era_is_of_each_request_alone() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (shard, call) = world.begin_exchange(client, &stateless("1", "server/discover", ""));
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).status, 200);
    assert_eq!(world.ask_for(client, &request("2", "ping")).status, 200, "the session goes on");
    let (shard, call) = world.begin_exchange(client, &tool_call("3"));
    assert_eq!(call.session, None);
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).status, 200);
    // Without claim and header it is a request of sessions again.
    assert_eq!(world.exchange_alone(post("", &request("4", "server/discover"))).status, 400);
}

#[test]
fn notifications_are_taken_and_dropped_unless_they_contradict_themselves() {
    let mut world = World::new();
    let told = world.told.len();
    for text in [
        notification("notifications/cancelled"),
        notification("notifications/initialized"),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{{}}}}}"#, meta()),
    ] {
        let reply = world.exchange_alone(post(HEADER, &text));
        assert_eq!((reply.status, reply.body.len()), (202, 0), "{text}");
    }
    assert_eq!(world.told.len(), told, "nobody hears of them");
    let claiming = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{{}}}}}"#, meta());
    assert_eq!(fault(&world.exchange_alone(post("", &claiming))), (400, -32020));
    let future = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{{}}}}}"#, meta_of("2027-01-01", ""));
    assert_eq!(fault(&world.exchange_alone(post(&version("2027-01-01"), &future))), (400, -32022));
}

#[test]
fn a_cancellation_by_id_ends_nobodys_request() {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    let (shard, call) = world.begin_exchange(client, &tool_call("5"));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    assert_eq!(world.exchange(other, post(HEADER, cancel)).status, 202);
    assert!(world.cancelled.is_empty());
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).status, 200);
}

#[test]
fn responses_and_arrays_are_no_requests() {
    let mut world = World::new();
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#.to_owned(),
        format!("[{}]", request("1", "ping")),
        "[]".to_owned(),
        format!("[{}]", body("1", "server/discover", "")),
    ] {
        assert_eq!(fault(&world.exchange_alone(post(HEADER, &text))), (400, -32600), "{text}");
    }
    // A claim anywhere in an array counts, also in a session that has batches.
    let client = world.open("2025-03-26");
    let batch = format!("[{},{}]", request("1", "ping"), body("2", "server/discover", ""));
    let reply = world.ask_for(client, &batch);
    assert_eq!(fault(&reply), (400, -32600));
    let plain = format!("[{}]", request("1", "ping"));
    assert_eq!(world.ask_for(client, &plain).status, 200);
}

#[test]
fn what_is_no_message_is_400_with_the_id_if_it_is_legal() {
    let mut world = World::new();
    for (code, id, text) in [
        (-32700, "null", ""),
        (-32700, "null", "{"),
        (-32600, "null", "7"),
        (-32600, "1", r#"{"id":1,"method":"ping"}"#),
        (-32600, "null", r#"{"jsonrpc":"2.0","id":null,"method":"server/discover"}"#),
        (-32600, "null", r#"{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}"#),
    ] {
        let reply = world.exchange_alone(post(HEADER, text));
        assert_eq!(fault(&reply), (400, code), "{text}");
        assert_eq!(reply.json()["id"].to_string(), id, "{text}");
    }
}

#[test]
fn only_posts_have_no_session() {
    let mut world = World::with(config(2));
    let owner = world.open_on(1, "2025-11-25");
    let session = world.session_field(owner);
    for method in ["GET", "DELETE"] {
        for version in ["2026-07-28", "2027-01-01"] {
            let field = format!("MCP-Protocol-Version: {version}\r\nAccept: */*\r\n{session}");
            let reply = world.exchange_alone(bodiless(method, &field));
            assert_eq!((reply.status, reply.field("allow")), (405, Some("POST, OPTIONS")), "{method}");
        }
        let field = format!("MCP-Protocol-Version: v999\r\n{session}");
        assert_eq!(world.exchange_alone(bodiless(method, &field)).status, 400);
    }
    assert!(world.is_alive(owner), "nothing was deleted");
}

#[test]
fn a_version_that_is_none_is_refused_by_the_rules_of_sessions_if_nothing_claims_it() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    for named in ["foo", "2025-12-01", "v999.0.0", "2026-7-28", "DRAFT-2026-v1"] {
        world.post_with(client, &version(named), &request("1", "ping"));
        let reply = world.response(client);
        assert_eq!(fault(&reply), (400, -32000), "{named}");
        let dead = format!("{}Mcp-Session-Id: nonsense\r\n", version(named));
        assert_eq!(world.exchange_alone(post(&dead, &request("1", "ping"))).status, 404, "{named}");
        let first = post(&version(named), &World::initialize_body("2025-11-25"));
        assert_eq!(world.exchange_alone(first).status, 400, "{named}");
    }
}

// --- Routing headers ----------------------------------------------------------------------------

#[test]
fn the_method_header_repeats_the_method_to_the_byte() {
    let mut world = World::new();
    let list = body("1", "tools/list", "");
    for field in ["", "Mcp-Method: TOOLS/LIST\r\n", "Mcp-Method: tools/call\r\n", "Mcp-Method:\r\n"] {
        let reply = world.exchange_alone(post(&format!("{HEADER}{field}"), &list));
        assert_eq!(fault(&reply), (400, -32020), "{field:?}");
        assert_eq!(reply.json()["id"], 1);
    }
    for field in ["mcp-method: tools/list\r\n", "MCP-METHOD: \t tools/list \t\r\n"] {
        let client = world.connect();
        world.begin_exchange(client, &post(&format!("{HEADER}{field}"), &list));
    }
}

#[test]
fn the_name_header_repeats_what_the_request_is_about() {
    let mut world = World::new();
    for (method, member) in [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tasks/get", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
    ] {
        let text = body("1", method, &format!(r#""{member}":"a b é""#));
        for field in [
            "",
            "Mcp-Name: a b\r\n",
            "Mcp-Name: A B \r\n",
            "Mcp-Name: a b é\r\n",
            "Mcp-Name: =?base64?YSBi?=\r\n",
        ] {
            let reply = world.exchange_alone(post(&fields(method, field), &text));
            assert_eq!(fault(&reply), (400, -32020), "{method} {field:?}");
        }
        let client = world.connect();
        world.begin_exchange(client, &post(&fields(method, "Mcp-Name: =?base64?YSBiIMOp?=\r\n"), &text));
        let plain = body("1", method, &format!(r#""{member}":"a b""#));
        let client = world.connect();
        world.begin_exchange(client, &post(&fields(method, "mcp-name:  a b  \r\n"), &plain));
        let nameless = post(&fields(method, "Mcp-Name: a\r\n"), &body("1", method, ""));
        assert_eq!(fault(&world.exchange_alone(nameless)), (400, -32020));
    }
    // Other methods need none.
    let client = world.connect();
    world.begin_exchange(client, &stateless("1", "tools/list", ""));
}

#[test]
fn encoded_names_are_canonical_or_refused() {
    let mut world = World::new();
    let text = body("1", NAME, r#""name":"Hello""#);
    for value in [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVsbG9=?=",
        "SGVsbG8=",
        "=?base64?SGVsbG8=",
    ] {
        let reply = world.exchange_alone(post(&fields(NAME, &format!("Mcp-Name: {value}\r\n")), &text));
        assert_eq!(fault(&reply), (400, -32020), "{value}");
    }
    let client = world.connect();
    world.begin_exchange(client, &post(&fields(NAME, "Mcp-Name: =?base64?SGVsbG8=?=\r\n"), &text));
}

#[test]
fn a_routing_header_comes_once() {
    let mut world = World::new();
    for field in ["Mcp-Name: echo\r\nMcp-Name: echo\r\n", "Mcp-Name: echo\r\nMcp-Method: tools/call\r\n"] {
        let reply = world.exchange_alone(post(&fields(NAME, field), &body("1", NAME, r#""name":"echo""#)));
        assert_eq!(fault(&reply), (400, -32020), "{field:?}");
        assert!(reply.text().contains("must not be repeated"), "{field:?}");
    }
}

#[test]
fn faults_are_told_in_one_order() {
    let mut world = World::new();
    // Each has all the faults that come after the one that is told.
    let unclaimed = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}"#;
    assert_eq!(fault(&world.exchange_alone(post(HEADER, unclaimed))).1, -32602);
    let differs = body("1", "ping", "").replace("2026-07-28", "2027-01-01");
    assert_eq!(fault(&world.exchange_alone(post(HEADER, &differs))).1, -32020);
    assert_eq!(fault(&world.exchange_alone(post(&version("2027-01-01"), &differs))).1, -32022);
    assert_eq!(fault(&world.exchange_alone(post(HEADER, &body("1", "ping", "")))).1, -32020);
    assert_eq!(fault(&world.exchange_alone(stateless("1", "ping", ""))).1, -32601);
}

#[test]
fn requests_of_sessions_may_carry_any_routing_header() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.post_with(
        client,
        "Mcp-Method: nonsense\r\nMcp-Name: \u{e9}\r\nMcp-Param-X: 1\r\nMcp-Method: ping\r\nMcp-Name: \u{e9}\r\n",
        &request("1", "ping"),
    );
    assert_eq!(world.response(client).status, 200);
    let (_, call) = world.begin(client, "2");
    assert!(call.param_fields.is_empty());
}

#[test]
fn parameter_fields_reach_the_backend_as_they_came() {
    let mut world = World::new();
    let client = world.connect();
    let more = "Mcp-Name: echo\r\nMcp-Param-City:  Zürich \r\nMCP-PARAM-n: =?base64?SGk=?=\r\nMcp-Param-: x\r\nMcp-Params: y\r\n";
    let (_, call) =
        world.begin_exchange(client, &post(&fields(NAME, more), &body("1", NAME, r#""name":"echo""#)));
    let got: Vec<_> = call.param_fields.iter().map(|field| (&field.name[..], &field.value[..])).collect();
    assert_eq!(got, [(&b"City"[..], "Zürich".as_bytes()), (&b"n"[..], &b"=?base64?SGk=?="[..])]);
}

#[test]
fn a_bad_log_level_is_a_bad_parameter() {
    let mut world = World::new();
    for level in [r#""loud""#, "7", "{}", r#""INFO""#] {
        let text = body("1", "server/discover", "")
            .replace("\"_meta\":{", &format!(r#""_meta":{{"io.modelcontextprotocol/logLevel":{level},"#));
        let reply = world.exchange_alone(post(&fields("server/discover", ""), &text));
        assert_eq!(fault(&reply), (200, -32602), "{level}");
    }
}

// --- Other shards -------------------------------------------------------------------------------

/// A tool call that goes on with that state.
fn retry(id: &str, state: &str) -> String {
    let params = format!(r#""name":"echo","requestState":"{state}""#);
    post(&fields(NAME, "Mcp-Name: echo\r\n"), &body(id, NAME, &params))
}

#[test]
fn a_state_brings_the_connection_to_the_shard_that_has_it() {
    for shards in [2, 4] {
        let mut world = World::with(config(shards));
        for from in 0..usize::from(shards) {
            for to in 0..usize::from(shards) {
                let client = world.connect_to(from);
                let (shard, call) =
                    world.begin_exchange(client, &retry("1", &format!("moorline.{to}.sealed")));
                assert_eq!((shard, world.client(client).shard), (to, to));
                assert_eq!(world.client(client).moves, usize::from(from != to));
                world.answer(shard, call.key, r#"{"n":1}"#);
                assert_eq!(world.response(client).json()["result"]["n"], 1);
                // What it asks next is served where it is now.
                let (shard, call) = world.begin_exchange(client, &stateless("2", "server/discover", ""));
                assert_eq!(shard, to);
                world.answer(shard, call.key, "{}");
                assert_eq!(world.response(client).status, 200);
            }
        }
        let counted = world.counted("requests");
        assert_eq!(counted, 2 * u64::from(shards * shards), "each is counted once");
    }
}

#[test]
fn what_was_sent_behind_a_request_that_moves_moves_with_it() {
    let mut world = World::with(config(4));
    let client = world.connect_to(0);
    let both = retry("1", "moorline.3.x") + &stateless("2", "server/discover", "");
    let (shard, first) = world.begin_exchange(client, &both);
    assert_eq!(shard, 3);
    world.answer(shard, first.key, "{}");
    assert_eq!(world.response(client).json()["id"], 1);
    let (shard, second) = world.take_call();
    assert_eq!((shard, second.method.as_str()), (3, "server/discover"));
    world.answer(shard, second.key, "{}");
    assert_eq!(world.response(client).json()["id"], 2);
    // In pieces, too, and from the middle of its body.
    let client = world.connect_to(0);
    let text = retry("3", "moorline.2.x");
    for piece in text.as_bytes().chunks(7) {
        world.send(client, piece);
    }
    assert_eq!(world.take_call().0, 2);
}

#[test]
fn a_state_that_names_no_other_shard_stays() {
    let mut world = World::with(config(2));
    for state in
        ["moorline.2.x", "moorline.1", "moorline.one.x", "other.1.x", "", "moorline.-1.x", "moorline.0.x"]
    {
        let client = world.connect_to(0);
        let (shard, _) = world.begin_exchange(client, &retry("1", state));
        assert_eq!((shard, world.client(client).moves), (0, 0), "{state:?}");
    }
    // Nor is anything looked for in what is refused.
    let text = retry("1", "moorline.1.x").replace("Mcp-Name: echo", "Mcp-Name: other");
    let client = world.connect_to(0);
    assert_eq!(fault(&world.exchange(client, text)), (400, -32020));
    assert_eq!(world.client(client).moves, 0);
}

#[test]
fn json_replies_are_kept_from_caches_and_browsers_read_them() {
    let mut world = World::new();
    let client = world.connect();
    let more = "Origin: http://localhost:3000\r\n";
    let request = post(&fields("server/discover", more), &body("1", "server/discover", ""));
    let (shard, call) = world.begin_exchange(client, &request);
    world.answer(shard, call.key, "{}");
    let reply = world.response(client);
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(reply.field("access-control-allow-origin"), Some("http://localhost:3000"));
}
