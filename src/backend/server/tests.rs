#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::model::{Contents, Json, PromptMessage, ToolAnnotations, ToolResult};
use super::super::rig::Rig;
use super::*;
use crate::core::seam::{ClientFeatures, Tell};
use serde_json::{Value, json};

fn result(server: Server, method: &str, params: &Value) -> Result<Value, RpcError> {
    let mut rig = Rig::new(server);
    rig.call(0, method, Some(&params.to_string()));
    rig.poll();
    rig.answer(0)
}

fn refusal(server: Server, method: &str, params: &Value) -> String {
    let error = result(server, method, params).unwrap_err();
    format!("{} {}", error.code, error.message)
}

#[derive(Deserialize, JsonSchema)]
struct Pair {
    /// The first
    a: i64,
    b: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct Total {
    total: i64,
}

fn tools() -> Server {
    Server::builder("t", "1")
        .tool(
            "sum",
            "Adds.",
            |pair: Pair, _| async move { Json(Total { total: pair.a + pair.b.unwrap_or(0) }) },
        )
        .tool("fail", "Fails.", |_: NoArguments, _| async move {
            let number: u8 = "x".parse()?;
            Ok::<_, Failure>(number.to_string())
        })
        .tool("refuse", "Is a protocol error.", |_: NoArguments, _| async move {
            Err::<String, _>(service::invalid_params("no"))
        })
        .tool("sign-in", "Needs a browser.", |_: NoArguments, _| async move {
            let url = super::super::UrlElicitation::new("1", "Sign in", "https://example.com/");
            Err::<String, _>(Failure::UrlRequired(vec![url]))
        })
        .add_tool(
            Tool::ready("raw", "Has a schema made by hand.", |arguments: Value, _| arguments.to_string())
                .title("Raw")
                .icon(Icon::new("data:,"))
                .annotations(ToolAnnotations::read_only())
                .input_schema(json!({"type": "object", "$defs": {}}))
                .meta(Meta::from_iter([("example.com/x".to_owned(), json!(1))])),
        )
        .build()
}

// --- Tools ----------------------------------------------------------------------------------------

#[test]
fn tools_are_listed_with_the_schemas_of_their_types() {
    let listed = result(tools(), "tools/list", &json!({})).unwrap();
    assert_eq!(
        listed["tools"][0],
        json!({
            "name": "sum", "description": "Adds.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "The first"},
                    "b": {"type": ["integer", "null"]},
                },
                "required": ["a"],
            },
            "outputSchema": {
                "type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"],
            },
        })
    );
    let empty = json!({"type": "object", "additionalProperties": false});
    assert_eq!(listed["tools"][1]["inputSchema"], empty);
    let raw = &listed["tools"][4];
    assert_eq!(raw["inputSchema"], json!({"type": "object", "$defs": {}}));
    assert_eq!((&raw["icons"][0]["src"], &raw["_meta"]["example.com/x"]), (&json!("data:,"), &json!(1)));
}

#[test]
fn a_structured_result_comes_in_both_forms() {
    let said = result(tools(), "tools/call", &json!({"name": "sum", "arguments": {"a": 2, "b": 3}})).unwrap();
    let content = json!([{"type": "text", "text": "{\"total\":5}"}]);
    assert_eq!(said, json!({"content": content, "structuredContent": {"total": 5}}));
}

#[test]
fn failures_are_results_and_protocol_errors_are_errors() {
    let failure = |name: &str, arguments: Value| {
        let said = result(tools(), "tools/call", &json!({"name": name, "arguments": arguments})).unwrap();
        assert_eq!(said["isError"], true);
        said["content"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(failure("fail", json!({})), "invalid digit found in string");
    assert_eq!(failure("sum", json!({})), "Invalid arguments: missing field `a`");
    assert!(failure("sum", json!({"a": "x"})).starts_with("Invalid arguments: `a`: invalid type"));
    assert_eq!(
        failure("sign-in", json!({})).split('.').next(),
        Some("This has to be done in a browser first")
    );
    assert_eq!(refusal(tools(), "tools/call", &json!({"name": "refuse"})), "-32602 Invalid params: no");
    assert_eq!(
        refusal(tools(), "tools/call", &json!({"name": "x"})),
        "-32602 Invalid params: unknown tool `x`"
    );
    let mut rig = Rig::new(tools());
    rig.client = ClientFeatures::URLS;
    rig.call(0, "tools/call", Some(r#"{"name":"sign-in"}"#));
    assert_eq!(rig.answer(0).unwrap_err().code, -32042);
}

#[test]
fn arguments_may_be_left_out() {
    let said = result(tools(), "tools/call", &json!({"name": "raw"})).unwrap();
    assert_eq!(said["content"][0]["text"], "{}");
}

#[test]
fn a_ready_call_leaves_nothing_behind() {
    let mut rig = Rig::new(tools());
    for slot in 0..10 {
        rig.call(slot, "tools/call", Some(r#"{"name":"sum","arguments":{"a":1}}"#));
        assert_eq!(rig.answer(slot).unwrap()["structuredContent"]["total"], 1);
    }
    assert_eq!((rig.host.pending_count(), rig.wakes()), (0, 0));
}

#[test]
#[should_panic(expected = "two tools named `a`")]
fn two_tools_of_one_name_are_a_fault() {
    let tool = || Tool::ready("a", "", |_: NoArguments, _| "");
    let _ = Server::builder("t", "1").add_tool(tool()).add_tool(tool()).build();
}

#[test]
#[should_panic(expected = "`a b` is no name for a tool")]
fn a_name_that_mcp_does_not_allow_is_a_fault() {
    let _ = Server::builder("t", "1").tool("a b", "", |_: NoArguments, _| async { "" }).build();
}

#[test]
#[should_panic(expected = "the arguments of `a` must be an object")]
fn arguments_that_are_no_object_are_a_fault() {
    let _ = Server::builder("t", "1").tool("a", "", |_: Vec<u8>, _| async { "" }).build();
}

#[test]
fn an_annotation_that_mcp_does_not_allow_is_an_error() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
    let tool = Tool::ready("t", "", |_: Value, _| "").input_schema(schema);
    let error = Server::builder("t", "1").add_tool(tool).try_build().unwrap_err();
    let header = HeaderError { at: "properties.a".into(), fault: HeaderFault::Type };
    assert_eq!(error, BuildError::Header { tool: "t".into(), error: header });
    assert_eq!(
        error.to_string(),
        "in the schema of `t`, `properties.a.x-mcp-header` belongs to a property that is not just a string, an \
         integer or a boolean"
    );
}

// --- Capabilities and pages -----------------------------------------------------------------------

#[test]
fn what_is_not_there_is_neither_advertised_nor_answered() {
    let bare = || Server::builder("t", "1").build();
    assert_eq!(serde_json::to_value(bare().info().capabilities).unwrap(), json!({"logging": {}}));
    for method in [
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "x",
    ] {
        assert_eq!(refusal(bare(), method, &json!({})), format!("-32601 Method not found: {method}"));
    }
    assert!(refusal(library(), "resources/subscribe", &json!({"uri": "lib:index"})).starts_with("-32601"));
}

#[test]
fn the_rest_goes_to_whoever_takes_it() {
    let server = Server::builder("t", "1")
        .otherwise(|request, _| async move { Reply::of(&json!({"asked": request.method.as_str()})) })
        .build();
    assert_eq!(result(server, "x/y", &json!({})).unwrap(), json!({"asked": "x/y"}));
}

#[test]
fn pages_follow_each_other_by_their_cursors() {
    let server = || {
        let tool = |number: usize| Tool::ready(format!("t{number}"), "", |_: NoArguments, _| "");
        let builder = Server::builder("t", "1").page_items(2);
        (0..5).map(tool).fold(builder, Builder::add_tool).build()
    };
    let (mut names, mut cursor) = (Vec::new(), json!(""));
    let mut pages = 0;
    loop {
        let page = result(server(), "tools/list", &json!({ "cursor": cursor })).unwrap();
        names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()));
        pages += 1;
        match page.get("nextCursor") {
            Some(next) => cursor = next.clone(),
            None => break,
        }
    }
    assert_eq!((pages, json!(names)), (3, json!(["t0", "t1", "t2", "t3", "t4"])));
    for bad in [json!("tools-0"), json!("tools-3"), json!("prompts-1"), json!("x"), json!(1)] {
        assert!(refusal(server(), "tools/list", &json!({ "cursor": bad })).starts_with("-32602"), "{bad}");
    }
}

// --- Resources ------------------------------------------------------------------------------------

#[derive(Deserialize)]
struct Article {
    number: u32,
}

fn library() -> Server {
    with_library(Server::builder("t", "1")).build()
}

fn with_library(builder: Builder) -> Builder {
    builder
        .resource(Resource::new("lib:index", "index", |_| async { "all" }).mime_type("text/plain").size(3))
        .resource(Resource::new("lib:cover", "cover", |_| async {
            Contents::blob([1, 2]).mime_type("image/png")
        }))
        .resource(Resource::new("lib:broken", "broken", |_| async {
            Err::<String, _>(Failure::new("out of order"))
        }))
        .template(
            Template::new("lib:article/{number}", "article", |wanted: Article, _| async move {
                format!("article {}", wanted.number)
            })
            .mime_type("text/markdown")
            .complete("number", |typed, _| async move { vec![format!("{}0", typed.value)] }),
        )
}

fn read(uri: &str) -> Value {
    result(library(), "resources/read", &json!({ "uri": uri })).unwrap()["contents"][0].clone()
}

#[test]
fn resources_are_read() {
    assert_eq!(read("lib:index"), json!({"uri": "lib:index", "mimeType": "text/plain", "text": "all"}));
    assert_eq!(read("lib:cover"), json!({"uri": "lib:cover", "mimeType": "image/png", "blob": "AQI="}));
    assert_eq!(
        read("lib:article/7"),
        json!({"uri": "lib:article/7", "mimeType": "text/markdown", "text": "article 7"})
    );
    assert_eq!(refusal(library(), "resources/read", &json!({"uri": "lib:broken"})), "-32603 out of order");
    let number = refusal(library(), "resources/read", &json!({"uri": "lib:article/x"}));
    assert!(number.starts_with("-32602 Invalid params: `number`: expected a number"), "{number}");
}

#[test]
fn an_unknown_resource_is_named() {
    let error = result(library(), "resources/read", &json!({"uri": "lib:none"})).unwrap_err();
    assert_eq!((error.code, error.data.as_deref()), (-32002, Some(r#"{"uri":"lib:none"}"#)));
}

#[test]
fn resources_and_templates_are_listed() {
    let listed = result(library(), "resources/list", &json!({})).unwrap();
    assert_eq!(
        listed["resources"][0],
        json!({"uri": "lib:index", "name": "index", "mimeType": "text/plain", "size": 3})
    );
    let templates = result(library(), "resources/templates/list", &json!({})).unwrap();
    assert_eq!(
        templates["resourceTemplates"],
        json!([{"uriTemplate": "lib:article/{number}", "name": "article", "mimeType": "text/markdown"}])
    );
}

#[test]
fn only_what_exists_can_be_subscribed_to() {
    let server = || with_library(Server::builder("t", "1")).subscriptions().build();
    let told = |method: &str, uri: &str| {
        let mut rig = Rig::new(server());
        rig.call(0, method, Some(&json!({ "uri": uri }).to_string()));
        rig.take().pop().unwrap()
    };
    for known in ["lib:index", "lib:article/3"] {
        assert!(matches!(told("resources/subscribe", known), Tell::Subscribe(_, uri) if *uri == *known));
    }
    assert!(
        matches!(told("resources/subscribe", "lib:none"), Tell::Respond(_, Err(error)) if error.code == -32002)
    );
    assert!(
        matches!(told("resources/unsubscribe", "lib:none"), Tell::Unsubscribe(_, uri) if *uri == *"lib:none")
    );
}

// --- Prompts and completions ----------------------------------------------------------------------

#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// What about
    topic: String,
    words: Option<u32>,
}

fn prompts() -> Server {
    Server::builder("t", "1")
        .prompt(
            Prompt::new("explain", "Explains.", |wanted: Wanted, _| async move {
                vec![
                    PromptMessage::user(format!("Explain {}.", wanted.topic)),
                    PromptMessage::assistant(format!("In {} words.", wanted.words.unwrap_or(10))),
                ]
            })
            .title("Explain")
            .complete("topic", |typed, _| async move {
                typed.others.into_keys().chain([typed.value]).collect::<Vec<_>>()
            }),
        )
        .build()
}

#[test]
fn prompts_are_listed_with_the_arguments_of_their_types() {
    let listed = result(prompts(), "prompts/list", &json!({})).unwrap();
    assert_eq!(
        listed["prompts"],
        json!([{
            "name": "explain", "title": "Explain", "description": "Explains.",
            "arguments": [
                {"name": "topic", "description": "What about", "required": true},
                {"name": "words", "required": false},
            ],
        }])
    );
}

#[test]
fn prompts_take_strings_for_what_they_want() {
    let params = json!({"name": "explain", "arguments": {"topic": "ropes", "words": "5"}});
    let said = result(prompts(), "prompts/get", &params).unwrap();
    assert_eq!(said["description"], "Explains.");
    assert_eq!(said["messages"][0]["content"]["text"], "Explain ropes.");
    assert_eq!(
        said["messages"][1],
        json!({"role": "assistant", "content": {"type": "text", "text": "In 5 words."}})
    );
    for (params, error) in [
        (json!({"name": "x"}), "-32602 Invalid params: unknown prompt `x`"),
        (json!({"name": "explain"}), "-32602 Invalid params: `arguments`: missing field `topic`"),
        (
            json!({"name": "explain", "arguments": {"topic": "a", "words": "b"}}),
            "-32602 Invalid params: `arguments.words`: expected a number: invalid digit found in string",
        ),
    ] {
        assert_eq!(refusal(prompts(), "prompts/get", &params), error);
    }
}

#[test]
fn arguments_are_completed() {
    let complete = |server, reference: Value, argument: &str| {
        let argument = json!({"name": argument, "value": "a"});
        let context = json!({"arguments": {"words": "5"}});
        result(
            server,
            "completion/complete",
            &json!({"ref": reference, "argument": argument, "context": context}),
        )
    };
    let prompt = json!({"type": "ref/prompt", "name": "explain"});
    let completion = |values: Value| {
        let total = values.as_array().unwrap().len();
        json!({"completion": {"values": values, "total": total, "hasMore": false}})
    };
    assert_eq!(complete(prompts(), prompt.clone(), "topic").unwrap(), completion(json!(["words", "a"])));
    assert_eq!(complete(prompts(), prompt, "words").unwrap(), completion(json!([])));
    let template = json!({"type": "ref/resource", "uri": "lib:article/{number}"});
    assert_eq!(complete(library(), template, "number").unwrap(), completion(json!(["a0"])));
    for reference in [
        json!({"type": "ref/prompt", "name": "x"}),
        json!({"type": "ref/resource", "uri": "x"}),
        json!({"type": "ref/x"}),
    ] {
        assert_eq!(complete(prompts(), reference, "a").unwrap_err().code, -32602);
    }
}

// --- Revisions ------------------------------------------------------------------------------------

#[test]
fn results_have_what_the_revision_knows() {
    let server = || {
        Server::builder("t", "1")
            .tool("link", "Links.", |_: NoArguments, _| async {
                ToolResult {
                    content: vec![super::super::model::Content::link("a:b", "B")],
                    ..ToolResult::default()
                }
            })
            .build()
    };
    for revision in Revision::ALL {
        let mut rig = Rig::new(server());
        rig.call_at(revision, 0, "tools/call", Some(r#"{"name":"link"}"#));
        let said = rig.answer(0).unwrap();
        let is_link = said["content"][0]["type"] == "resource_link";
        assert_eq!(is_link, revision >= Revision::V2025_06_18, "{said}");
    }
}

// --- 2026-07-28 -----------------------------------------------------------------------------------

const NEWEST: Revision = Revision::V2026_07_28;

fn newest(server: Server, method: &str, params: &Value) -> Result<Value, RpcError> {
    let mut rig = Rig::new(server);
    rig.call_at(NEWEST, 0, method, Some(&params.to_string()));
    rig.poll();
    rig.answer(0)
}

#[test]
fn results_are_stamped_for_clients_that_know_it_only() {
    let call = json!({"name": "sum", "arguments": {"a": 2}});
    let said = newest(tools(), "tools/call", &call).unwrap();
    assert_eq!(said["resultType"], "complete");
    assert_eq!(said["_meta"], json!({"io.modelcontextprotocol/serverInfo": {"name": "t", "version": "1"}}));
    assert!(said.get("ttlMs").is_none());
    let before = result(tools(), "tools/call", &call).unwrap();
    assert!(before.get("resultType").is_none() && before.get("_meta").is_none());
    let builder = Server::builder("t", "1").changing([List::Tools]);
    let cached = builder.cache_lists(Caching::public(std::time::Duration::from_secs(5))).build();
    let listed = newest(cached, "tools/list", &json!({})).unwrap();
    assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(5000), &json!("public")));
}

#[test]
fn discovery_says_what_is_served() {
    let server = Server::builder("t", "1").title("T").changing([List::Tools]).build();
    let said = newest(server, "server/discover", &json!({})).unwrap();
    assert_eq!(
        said,
        json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"logging": {}, "tools": {"listChanged": true}},
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "t", "version": "1", "title": "T"}},
        })
    );
    assert_eq!(refusal(tools(), "server/discover", &json!({})), "-32601 Method not found: server/discover");
}

#[test]
fn methods_that_are_gone_are_unknown() {
    let server = || Server::builder("t", "1").changing([List::Resources]).subscriptions().build();
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "x"]
    {
        assert_eq!(newest(server(), method, &json!({"uri": "a:"})).unwrap_err().code, -32601, "{method}");
    }
}

#[test]
fn a_listen_stream_carries_what_is_served() {
    let mut rig = Rig::new(Server::builder("t", "1").changing([List::Tools]).build());
    let wanted = r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:"]}}"#;
    rig.call_at(NEWEST, 3, "subscriptions/listen", Some(wanted));
    let told = rig.take();
    let [Tell::Listen(key, listening)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((key.slot, listening.tools, listening.uris.len()), (3, true, 0));
    rig.call_at(NEWEST, 4, "subscriptions/listen", Some("{}"));
    assert_eq!(rig.answer(4).unwrap_err().code, -32602);
}

#[test]
fn a_missing_resource_has_the_code_of_its_revision() {
    let server = || Server::builder("t", "1").changing([List::Resources]).build();
    let uri = json!({"uri": "a:b"});
    let error = newest(server(), "resources/read", &uri).unwrap_err();
    assert_eq!((error.code, error.data.as_deref()), (-32602, Some(r#"{"uri":"a:b"}"#)));
    assert_eq!(result(server(), "resources/read", &uri).unwrap_err().code, -32002);
}

#[test]
fn repeated_arguments_are_compared_with_their_fields() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}});
    let server = || {
        let tool = Tool::ready("t", "", |_: Value, _| "done").input_schema(schema.clone());
        Server::builder("t", "1").add_tool(tool).build()
    };
    let call = json!({"name": "t", "arguments": {"a": "x"}});
    assert_eq!(newest(server(), "tools/call", &call).unwrap_err().code, -32020);
    assert_eq!(newest(server(), "tools/call", &json!({"name": "t"})).unwrap()["content"][0]["text"], "done");
    let before = result(server(), "tools/call", &call).unwrap();
    assert_eq!(before["content"][0]["text"], "done");
}
