#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::rig::{Rig, call};
use super::*;
use crate::core::seam::{Ask, NotificationKind, Revision, Tell};
use crate::shell::backend::Backend as _;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::task::Poll;

fn rig() -> Rig<Builtin> {
    Rig::new(Builtin::new())
}

fn result_at(revision: Revision, name: &str, params: &str) -> Value {
    let mut rig = rig();
    rig.call_at(revision, 0, name, Some(params));
    rig.answer(0).unwrap()
}

fn result(name: &str, params: &str) -> Value {
    result_at(Revision::NEWEST_WITH_SESSIONS, name, params)
}

fn refusal(name: &str, params: Option<&str>) -> (i32, String) {
    let mut rig = rig();
    rig.call(0, name, params);
    rig.refusal(0)
}

fn tool(name: &str, arguments: &str) -> Value {
    result("tools/call", &format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

fn text(result: &Value) -> &str {
    assert_eq!(result["content"][0]["type"], "text");
    result["content"][0]["text"].as_str().unwrap()
}

/// The text of a result that says that the arguments do not fit.
fn complaint(name: &str, arguments: &str) -> String {
    let result = tool(name, arguments);
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.get("structuredContent").is_none());
    text(&result).strip_prefix("Invalid arguments: ").unwrap().to_owned()
}

// --- Lists ----------------------------------------------------------------------------------------

#[test]
fn it_advertises_what_it_has() {
    let said = result("initialize", "{}");
    assert_eq!(
        said["capabilities"],
        json!({"logging": {}, "prompts": {"listChanged": true},
               "resources": {"subscribe": false, "listChanged": true}, "tools": {"listChanged": true}})
    );
    assert_eq!(said["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_tools_come_in_order_with_the_fields_of_the_revision() {
    for revision in Revision::ALL {
        let listed = result_at(revision, "tools/list", "{}");
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["echo", "add", "slow", "notify"]);
        for tool in tools {
            let annotations = tool.get("annotations");
            assert_eq!(annotations.is_some(), revision >= Revision::V2025_03_26);
            assert_eq!(tool.get("title").is_some(), revision >= Revision::V2025_06_18);
            let inner_title = annotations.and_then(|annotations| annotations.get("title"));
            assert_eq!(inner_title.is_some(), revision == Revision::V2025_03_26);
            let structured = tool["name"] == "add" && revision >= Revision::V2025_06_18;
            assert_eq!(tool.get("outputSchema").is_some(), structured);
        }
        assert_eq!(listed, result_at(revision, "tools/list", "{}"));
    }
}

#[test]
fn only_notify_changes_anything() {
    let listed = result("tools/list", "{}");
    for tool in listed["tools"].as_array().unwrap() {
        let read_only = tool["name"] != "notify";
        assert_eq!(tool["annotations"]["readOnlyHint"], read_only);
        assert_eq!(tool["annotations"].get("destructiveHint").is_none(), read_only);
        assert_eq!(tool["annotations"]["openWorldHint"], false);
    }
}

#[test]
fn other_lists_are_empty() {
    for (method, field) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert_eq!(result(method, "{}"), json!({ field: [] }));
    }
}

#[test]
fn a_cursor_is_empty_or_unknown() {
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let mut rig = rig();
        for params in [None, Some("{}"), Some(r#"{"cursor":""}"#), Some(r#"{"_meta":{"a":1}}"#)] {
            rig.call(0, method, params);
            rig.answer(0).unwrap();
        }
        let unknown = (-32602, "Invalid params: `cursor`: not one of this server's".to_owned());
        assert_eq!(refusal(method, Some(r#"{"cursor":"2"}"#)), unknown);
        assert_eq!(refusal(method, Some(r#"{"cursor":2}"#)).0, -32602);
        assert_eq!(refusal(method, Some("[]")), (-32602, "Invalid params: expected an object".to_owned()));
    }
}

#[test]
fn what_does_not_exist_is_said_to_be_missing() {
    assert_eq!(
        refusal("completion/complete", None),
        (-32601, "Method not found: completion/complete".into())
    );
    assert_eq!(
        refusal("prompts/get", Some(r#"{"name":"p"}"#)),
        (-32602, "Invalid params: unknown prompt `p`".into())
    );
    let mut rig = rig();
    rig.call(0, "resources/read", Some(r#"{"uri":"file:///x"}"#));
    let error = rig.answer(0).unwrap_err();
    assert_eq!((error.code, error.data.as_deref()), (-32002, Some(r#"{"uri":"file:///x"}"#)));
}

// --- tools/call -----------------------------------------------------------------------------------

#[test]
fn a_call_of_no_tool_is_a_protocol_error() {
    assert_eq!(refusal("tools/call", None), (-32602, "Invalid params: missing field `name`".into()));
    assert_eq!(
        refusal("tools/call", Some(r#"{"name":3}"#)),
        (-32602, "Invalid params: `name`: invalid type: integer `3`, expected a string".into())
    );
    assert_eq!(
        refusal("tools/call", Some(r#"{"name":"dance"}"#)),
        (-32602, "Invalid params: unknown tool `dance`".into())
    );
}

#[test]
fn echo_returns_the_message() {
    assert_eq!(
        tool("echo", r#"{"message":"h\u00e9 \n\"x\""}"#),
        json!({
            "content": [{"type": "text", "text": "hé \n\"x\""}]
        })
    );
    assert_eq!(
        result("tools/call", r#"{"name":"\u0065cho","arguments":{"message":""}}"#)["content"][0]["text"],
        ""
    );
}

#[test]
fn arguments_that_do_not_fit_are_a_result_for_the_model() {
    assert_eq!(complaint("echo", "null"), "missing field `message`");
    assert_eq!(complaint("echo", r#"["hi"]"#), "expected an object");
    assert_eq!(
        complaint("echo", r#"{"message":1}"#),
        "`message`: invalid type: integer `1`, expected a string"
    );
    assert_eq!(
        complaint("echo", r#"{"message":"x","more":1}"#),
        "`more`: unknown field `more`, expected `message`"
    );
    assert_eq!(complaint("add", r#"{"a":1}"#), "missing field `b`");
    assert_eq!(complaint("add", r#"{"a":1,"b":"2"}"#), "`b`: must be a number");
    assert_eq!(complaint("add", r#"{"a":null,"b":2}"#), "`a`: must be a number");
    assert_eq!(complaint("add", r#"{"a":1e400,"b":2}"#), "`a`: is too large");
    assert_eq!(complaint("slow", r#"{"seconds":3601}"#), "`seconds`: must be from 0 to 3600");
    assert_eq!(complaint("slow", r#"{"seconds":-0.1}"#), "`seconds`: must be from 0 to 3600");
    assert_eq!(complaint("slow", r#"{"seconds":1,"steps":0}"#), "`steps`: must be from 1 to 1000");
    assert_eq!(complaint("slow", r#"{"seconds":1,"steps":1001}"#), "`steps`: must be from 1 to 1000");
    assert_eq!(
        complaint("slow", r#"{"seconds":1,"steps":1.5}"#),
        "`steps`: invalid type: floating point `1.5`, expected u32"
    );
    assert_eq!(
        complaint("notify", r#"{"kind":"cats"}"#),
        "`kind`: unknown variant `cats`, expected one of `tools`, `prompts`, `resources`, `message`"
    );
    assert_eq!(
        complaint("notify", r#"{"kind":"tools","scope":"world"}"#),
        "`scope`: unknown variant `world`, expected `session` or `all`"
    );
}

#[test]
fn integers_are_added_exactly() {
    for (a, b, sum) in [
        ("2", "3", "5"),
        ("-2", "2", "0"),
        ("9007199254740993", "1", "9007199254740994"),
        ("18446744073709551615", "18446744073709551615", "36893488147419103230"),
        ("170141183460469231731687303715884105726", "1", "170141183460469231731687303715884105727"),
        ("1.5", "2", "3.5"),
        ("1e2", "1", "101.0"),
    ] {
        let mut rig = rig();
        let params = format!(r#"{{"name":"add","arguments":{{"a":{a},"b":{b}}}}}"#);
        rig.call(0, "tools/call", Some(&params));
        let told = rig.take();
        let [Tell::Respond(_, Ok(json))] = &told[..] else { panic!("{told:?}") };
        let expected = format!(
            r#"{{"content":[{{"type":"text","text":"{sum}"}}],"structuredContent":{{"sum":{sum}}}}}"#
        );
        assert_eq!(json, &expected);
    }
}

#[test]
fn a_sum_out_of_range_is_a_failure() {
    let most = i128::MAX;
    for arguments in [format!(r#"{{"a":{most},"b":1}}"#), r#"{"a":1.7e308,"b":1.7e308}"#.to_owned()] {
        let result = tool("add", &arguments);
        assert_eq!((text(&result), &result["isError"]), ("The sum is too large.", &json!(true)));
    }
    assert_eq!(
        complaint("add", &format!(r#"{{"a":{most}0,"b":1}}"#)),
        "`a`: must be an integer of at most 128 bits"
    );
}

#[test]
fn structured_content_is_for_revisions_that_have_it() {
    for revision in Revision::ALL {
        let result = result_at(revision, "tools/call", r#"{"name":"add","arguments":{"a":1,"b":2}}"#);
        assert_eq!(result.get("structuredContent").is_some(), revision >= Revision::V2025_06_18);
        assert_eq!(text(&result), "3");
    }
}

#[test]
fn notify_sends_what_it_is_told_to() {
    for (kind, expected) in [
        ("tools", NotificationKind::ToolsListChanged),
        ("prompts", NotificationKind::PromptsListChanged),
        ("resources", NotificationKind::ResourcesListChanged),
        ("message", NotificationKind::Log(crate::core::seam::LogLevel::Info)),
    ] {
        for scope in [r#","scope":"session""#, "", r#","scope":"all""#] {
            let mut rig = rig();
            let params = format!(r#"{{"name":"notify","arguments":{{"kind":"{kind}"{scope}}}}}"#);
            rig.call(0, "tools/call", Some(&params));
            let told = rig.take();
            let [sent, Tell::Respond(_, Ok(_))] = &told[..] else { panic!("{told:?}") };
            match sent {
                Tell::Broadcast(notification) if scope.contains("all") => {
                    assert_eq!(notification.kind, expected)
                }
                Tell::Announce(_, notification) if !scope.contains("all") => {
                    assert_eq!(notification.kind, expected);
                }
                _ => panic!("{sent:?} for {scope}"),
            }
        }
    }
}

#[test]
fn a_request_without_a_session_has_nobody_of_its_own_to_notify() {
    let mut rig = rig();
    let params = r#"{"name":"notify","arguments":{"kind":"tools"}}"#;
    rig.call_at(Revision::V2026_07_28, 0, "tools/call", Some(params));
    let answer = rig.answer(0).unwrap();
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(rig.take().is_empty(), "nothing was sent");
    rig.call_at(
        Revision::V2026_07_28,
        1,
        "tools/call",
        Some(r#"{"name":"notify","arguments":{"kind":"tools","scope":"all"}}"#),
    );
    assert!(matches!(rig.take()[..], [Tell::Broadcast(_), Tell::Respond(_, Ok(_))]));
}

/// A runtime whose clock jumps to the next timer.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Polls the host as a driver would until nothing is pending, and runs `each_turn` after every poll.
async fn finish(rig: &mut Rig<Builtin>, mut each_turn: impl FnMut(&mut Rig<Builtin>)) {
    poll_fn(|cx| {
        rig.host.poll(cx, &mut rig.told);
        each_turn(rig);
        if rig.host.pending_count() == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn slow_reports_each_step_at_its_time() {
    let mut rig = rig();
    paused().block_on(async {
        let start = tokio::time::Instant::now();
        rig.call(0, "tools/call", Some(r#"{"name":"slow","arguments":{"seconds":9,"steps":3}}"#));
        let mut times = Vec::new();
        finish(&mut rig, |rig| times.resize(rig.told.len(), start.elapsed().as_secs())).await;
        assert_eq!(times, [3, 6, 9, 9]);
    });
    let told = rig.take();
    for (step, tell) in (1..=3).zip(&told) {
        let Tell::Notify(key, notification) = tell else { panic!("{tell:?}") };
        assert_eq!(*key, call(0));
        let message: Value = serde_json::from_slice(&notification.json).unwrap();
        let expected = json!({"progressToken": "t", "progress": step, "total": 3, "message": format!("Step {step} of 3")});
        assert_eq!(message["params"], expected);
    }
    assert!(
        matches!(&told[3], Tell::Respond(_, Ok(json)) if json.starts_with(br#"{"content":[{"type":"text","text":"Done: 3 steps in 9 s."#))
    );
}

#[test]
fn slow_without_time_is_done_at_once() {
    let mut rig = rig();
    rig.call(0, "tools/call", Some(r#"{"name":"slow","arguments":{"seconds":0}}"#));
    assert_eq!(rig.take().len(), 11, "ten steps and the answer, without a runtime");
}

#[test]
fn slow_stops_when_cancelled() {
    let mut rig = rig();
    paused().block_on(async {
        rig.call(0, "tools/call", Some(r#"{"name":"slow","arguments":{"seconds":3600,"steps":1000}}"#));
        let mut cancelled = false;
        finish(&mut rig, |rig| {
            if rig.told.len() == 2 && !std::mem::replace(&mut cancelled, true) {
                rig.ask(Ask::Cancel(call(0)));
            }
        })
        .await;
    });
    let told = rig.take();
    assert_eq!(told.len(), 3);
    assert!(matches!(&told[2], Tell::Respond(_, Ok(json)) if json.ends_with(br#""isError":true}"#)));
}

// --- Schemas --------------------------------------------------------------------------------------

/// Whether a value fits a schema, for the keywords our schemas use.
fn fits(schema: &Value, value: &Value) -> bool {
    let of_type = match schema["type"].as_str().unwrap() {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("type {other}"),
    };
    let number = value.as_f64().unwrap_or(0.0);
    of_type
        && schema.get("minimum").is_none_or(|least| number >= least.as_f64().unwrap())
        && schema.get("maximum").is_none_or(|most| number <= most.as_f64().unwrap())
        && schema.get("enum").is_none_or(|values| values.as_array().unwrap().contains(value))
        && value.as_object().is_none_or(|fields| {
            let known = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields
                    .iter()
                    .all(|(name, value)| known.get(name).is_some_and(|schema| fits(schema, value)))
        })
}

#[test]
fn schemas_are_closed_and_described() {
    let listed = result("tools/list", "{}");
    for tool in listed["tools"].as_array().unwrap() {
        assert!(!tool["description"].as_str().unwrap().is_empty());
        for schema in [&tool["inputSchema"], tool.get("outputSchema").unwrap_or(&tool["inputSchema"])] {
            assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
            let properties = schema["properties"].as_object().unwrap();
            assert!(
                schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| properties.contains_key(name.as_str().unwrap()))
            );
            for property in properties.values() {
                assert!(property["type"].is_string() && property["description"].is_string(), "{property}");
                assert!(property.get("default").is_none_or(|default| fits(property, default)), "{property}");
            }
        }
    }
}

/// Every combination of telling values of every property, present and absent: schema and parser agree.
#[test]
fn schemas_and_parsers_agree() {
    let values = [
        None,
        Some(json!("tools")),
        Some(json!("all")),
        Some(json!(0)),
        Some(json!(1)),
        Some(json!(1000)),
        Some(json!(1001)),
        Some(json!(-1)),
        Some(json!(2.5)),
        Some(json!(true)),
        Some(json!({})),
    ];
    let listed = result("tools/list", "{}");
    let runtime = paused();
    let _inside = runtime.enter();
    let (mut rig, mut slot) = (rig(), 0);
    let mut seen = [0, 0];
    for tool in listed["tools"].as_array().unwrap() {
        let schema = &tool["inputSchema"];
        let names: Vec<_> =
            schema["properties"].as_object().unwrap().keys().chain([&"stray".to_owned()]).cloned().collect();
        for choice in 0..values.len().pow(u32::try_from(names.len()).unwrap()) {
            let picked = names.iter().enumerate().filter_map(|(place, name)| {
                let value = &values[choice / values.len().pow(u32::try_from(place).unwrap()) % values.len()];
                value.clone().map(|value| (name.clone(), value))
            });
            let arguments = Value::Object(picked.collect());
            let fits = fits(schema, &arguments);
            seen[usize::from(fits)] += 1;
            slot += 1;
            assert_eq!(
                accepted(&mut rig, slot, tool["name"].as_str().unwrap(), &arguments),
                fits,
                "{arguments} for {tool}"
            );
        }
    }
    assert!(seen[0] > 100 && seen[1] > 20, "{seen:?}");
}

/// Whether a tool takes these arguments: it answers, or it starts to work.
fn accepted(rig: &mut Rig<Builtin>, slot: u32, name: &str, arguments: &Value) -> bool {
    rig.call(slot, "tools/call", Some(&json!({"name": name, "arguments": arguments}).to_string()));
    match rig.take().pop() {
        None => true,
        Some(Tell::Respond(_, Ok(json))) => !json.ends_with(br#""isError":true}"#),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn structured_content_fits_the_output_schema() {
    let listed = result("tools/list", "{}");
    let add = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "add").unwrap();
    for arguments in [r#"{"a":1,"b":2}"#, r#"{"a":0.5,"b":2}"#] {
        assert!(fits(&add["outputSchema"], &tool("add", arguments)["structuredContent"]));
    }
}
