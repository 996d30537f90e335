//! Reports are what the schema in the repository says.
//!
//! The validator knows just the keywords the schema uses, and refuses any other: a keyword it does not know
//! would be a check that checks nothing.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use serde_json::{Value, json};
use support::{Fault, Server, report};

fn schema() -> Value {
    serde_json::from_str(include_str!("../schema/report.schema.json")).unwrap()
}

#[test]
fn reports_follow_the_schema() {
    let server = Server::start(Fault::EndsStreams);
    let init = "1";
    for arguments in [
        &["hold", "-n", "3", "-d", "1500ms", "--pid", init, "--measure-at", "1"][..],
        &["hold", "--era", "2026", "-n", "3", "-d", "500ms"],
        &["notify", "-n", "3", "--tool", "notify", "--every", "100ms", "-d", "500ms"],
        &["call", "-c", "2", "-r", "50", "-d", "500ms", "--warm-up", "0s"],
    ] {
        let report = report(&server, arguments);
        let schema = schema();
        check(&schema, &schema, &report, "report").unwrap();
    }
}

#[test]
fn the_validator_can_fail() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 0 } }, "required": ["a"], "additionalProperties": false });
    assert!(check(&schema, &schema, &json!({ "a": 1 }), "").is_ok());
    for wrong in [json!({}), json!({ "a": -1 }), json!({ "a": "1" }), json!({ "a": 1, "b": 1 }), json!([])] {
        assert!(check(&schema, &schema, &wrong, "").is_err(), "{wrong}");
    }
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let keywords = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Bool(false) => return Err(format!("{at}: nothing is allowed here")),
        _ => schema.as_object().unwrap(),
    };
    keywords.iter().try_for_each(|(keyword, wanted)| {
        let fits = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => true,
            "const" => wanted == value,
            "enum" => wanted.as_array().unwrap().contains(value),
            "type" => has_type(wanted.as_str().unwrap(), value),
            "minimum" => value.as_f64() >= wanted.as_f64(),
            "oneOf" => {
                1 == wanted.as_array().unwrap().iter().filter(|s| check(root, s, value, at).is_ok()).count()
            }
            "$ref" => return check(root, definition(root, wanted.as_str().unwrap()), value, at),
            "required" => {
                wanted.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "properties" | "additionalProperties" => return members(root, keywords, value, at),
            "items" | "prefixItems" => return items(root, keywords, value, at),
            other => panic!("the validator does not know {other:?}"),
        };
        if fits { Ok(()) } else { Err(format!("{at}: {keyword} is not met by {value}")) }
    })
}

fn has_type(wanted: &str, value: &Value) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the validator does not know the type {other:?}"),
    }
}

fn definition<'a>(root: &'a Value, reference: &str) -> &'a Value {
    &root["$defs"][reference.strip_prefix("#/$defs/").unwrap()]
}

fn members(
    root: &Value,
    keywords: &serde_json::Map<String, Value>,
    value: &Value,
    at: &str,
) -> Result<(), String> {
    let known = keywords.get("properties");
    let other = keywords.get("additionalProperties").unwrap_or(&Value::Bool(true));
    value.as_object().into_iter().flatten().try_for_each(|(name, member)| {
        let schema = known.and_then(|known| known.get(name)).unwrap_or(other);
        check(root, schema, member, &format!("{at}.{name}"))
    })
}

fn items(
    root: &Value,
    keywords: &serde_json::Map<String, Value>,
    value: &Value,
    at: &str,
) -> Result<(), String> {
    let first = keywords.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rest = keywords.get("items").unwrap_or(&Value::Bool(true));
    value.as_array().into_iter().flatten().enumerate().try_for_each(|(index, item)| {
        check(root, first.get(index).unwrap_or(rest), item, &format!("{at}[{index}]"))
    })
}
