//! What a program of 2026-07-28 answers, in the words of the revisions before it.
//!
//! Owns what those do not know: the type of a result, how long it may be kept, who made it (`initialize` has said so), output
//! that is no object, and the newer code for an unknown resource. Everything else passes as it is. One pass over the result,
//! two over a list of tools.

use super::{bridge::failure_owned, claims::quoted};
use crate::{
    backend::members::Members,
    core::{
        jsonrpc::{INVALID_PARAMS, RpcError},
        seam::Revision,
    },
};
use bytes::Bytes;
use memchr::memmem;
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// The code of an unknown resource in revisions with sessions.
const RESOURCE_NOT_FOUND: i32 = -32002;
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// The members that no session knows.
const UNKNOWN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// A result, unless it is of a type that has no place before 2026-07-28.
pub(super) fn result(method: &str, result: &Bytes) -> Result<Bytes, RpcError> {
    let malformed =
        || failure_owned("the server behind this one answered with a result that is no object".into());
    let members = Members::of(result).ok_or_else(malformed)?;
    let kind = members.value("resultType").map_or("\"complete\"", RawValue::get);
    if kind != "\"complete\"" {
        let what = format!(
            "the server behind this one answered with a result of type {kind}, which clients of revisions before 2026-07-28 do not know"
        );
        return Err(failure_owned(what));
    }
    Ok(rewritten(method, &members).map_or_else(|| result.clone(), Bytes::from))
}

fn rewritten(method: &str, members: &Members<'_>) -> Option<String> {
    let mut json = String::from("{");
    for (name, value) in &members.0 {
        let value = match &**name {
            name if UNKNOWN.contains(&name) => continue,
            "structuredContent" if method == "tools/call" && !value.get().starts_with('{') => continue,
            "_meta" => match meta(value) {
                Some(meta) => meta,
                None => continue,
            },
            "tools" if method == "tools/list" => tools(value)?,
            _ => value.get().to_owned(),
        };
        add(&mut json, name, &value)?;
    }
    json.push('}');
    Some(json)
}

fn add(json: &mut String, name: &str, value: &str) -> Option<()> {
    let comma = if json.len() == 1 { "" } else { "," };
    write!(json, "{comma}{}:{value}", quoted(name)).ok()
}

/// Without the server's name. `None` if nothing is left.
fn meta(meta: &RawValue) -> Option<String> {
    let members = Members::of(meta.get().as_bytes())?;
    let mut json = String::from("{");
    for (name, value) in members.0.iter().filter(|(name, _)| name != SERVER) {
        add(&mut json, name, value.get())?;
    }
    json.push('}');
    (json.len() > 2).then_some(json)
}

/// Without schemas of output that is no object: there is no such output before 2026-07-28.
fn tools(list: &RawValue) -> Option<String> {
    if memmem::find(list.get().as_bytes(), b"outputSchema").is_none() {
        return Some(list.get().to_owned());
    }
    let list: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let tools: Option<Vec<String>> = list.into_iter().map(tool).collect();
    Some(format!("[{}]", tools?.join(",")))
}

fn tool(tool: &RawValue) -> Option<String> {
    let members = Members::of(tool.get().as_bytes())?;
    let mut json = String::from("{");
    for (name, value) in &members.0 {
        if name != "outputSchema" || is_of_object(value) {
            add(&mut json, name, value.get())?;
        }
    }
    json.push('}');
    Some(json)
}

fn is_of_object(schema: &RawValue) -> bool {
    let members = Members::of(schema.get().as_bytes()).unwrap_or_default();
    members.value("type").is_some_and(|kind| kind.get() == "\"object\"")
}

/// An error.
pub(super) fn error(method: &str, revision: Revision, error: RpcError) -> RpcError {
    let names_resource = || error.data.as_ref().is_some_and(|data| data.contains("\"uri\""));
    let is_unknown = method == "resources/read" && error.code == INVALID_PARAMS && names_resource();
    if is_unknown && revision.has_sessions() {
        return RpcError { code: RESOURCE_NOT_FOUND, ..error };
    }
    error
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};

    fn plain(method: &str, said: &Value) -> Value {
        serde_json::from_slice(&result(method, &said.to_string().into()).unwrap()).unwrap()
    }

    #[test]
    fn what_sessions_do_not_know_is_left_out() {
        let said = json!({
            "resultType": "complete", "ttlMs": 5, "cacheScope": "public", "contents": [{"ttlMs": 1}],
            "_meta": {SERVER: {"name": "n"}},
        });
        assert_eq!(plain("resources/read", &said), json!({"contents": [{"ttlMs": 1}]}));
        let said = json!({"resultType": "complete", "_meta": {SERVER: {}, "a/b": 1}});
        assert_eq!(plain("x", &said), json!({"_meta": {"a/b": 1}}));
        assert_eq!(plain("x", &json!({})), json!({}));
    }

    #[test]
    fn output_is_an_object_or_none() {
        let list = json!({"tools": [
            {"name": "a", "outputSchema": {"type": "object"}}, {"name": "b", "outputSchema": {"type": "array"}},
            {"name": "c", "outputSchema": {"anyOf": []}}, {"name": "d"},
        ]});
        let expected = json!({"tools": [
            {"name": "a", "outputSchema": {"type": "object"}}, {"name": "b"}, {"name": "c"}, {"name": "d"},
        ]});
        assert_eq!(plain("tools/list", &list), expected);
        let called =
            |output: Value| plain("tools/call", &json!({"content": [], "structuredContent": output}));
        assert_eq!(called(json!([1])), json!({"content": []}));
        assert_eq!(called(json!({"a": 1})), json!({"content": [], "structuredContent": {"a": 1}}));
    }

    #[test]
    fn a_result_of_another_type_is_an_error_that_names_it() {
        let said = Bytes::from_static(br#"{"resultType":"task","taskId":"t"}"#);
        let why = result("tools/call", &said).unwrap_err();
        assert!(why.message.contains("\"task\""), "{}", why.message);
        assert!(result("tools/call", &Bytes::from_static(b"[]")).is_err());
    }

    #[test]
    fn an_unknown_resource_has_the_older_code() {
        let unknown =
            || RpcError { data: Some(r#"{"uri":"a://b"}"#.into()), ..RpcError::invalid_params("no") };
        let code = |method, error_said| error(method, Revision::V2025_11_25, error_said).code;
        assert_eq!(code("resources/read", unknown()), RESOURCE_NOT_FOUND);
        assert_eq!(code("tools/call", unknown()), INVALID_PARAMS);
        assert_eq!(code("resources/read", RpcError::invalid_params("no")), INVALID_PARAMS);
    }
}
