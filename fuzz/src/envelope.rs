//! JSON-RPC envelopes.
//!
//! Rules: what is taken is JSON for another parser, too, with the same id; ids are bounded and come back byte for byte; what is
//! answered is one JSON object whatever was sent; an event made of it is one line of data.

use moorline::{
    core::{
        jsonrpc::{self, Body, InitializeParams, Message, Meta, RpcError},
        sse,
    },
    limits::{BATCH_MESSAGES_MAX, ID_BYTES_MAX},
};
use serde_json::Value;

/// Judges any bytes as a body.
pub fn check(bytes: &[u8]) {
    match jsonrpc::parse(bytes) {
        Ok(Body::Single(message)) => {
            if let Some(seen) = seen_by_another(bytes) {
                check_message(&message, &seen);
            }
        }
        Ok(Body::Batch(messages)) => {
            assert!((1..=BATCH_MESSAGES_MAX).contains(&messages.len()), "a batch is bounded");
            let Some(Value::Array(seen)) = seen_by_another(bytes) else { return };
            assert_eq!(messages.len(), seen.len());
            for (message, seen) in messages.iter().zip(&seen) {
                match message {
                    Ok(message) => check_message(message, seen),
                    Err(error) => check_error(error.id, &error.error),
                }
            }
        }
        Err(error) => check_error(error.id, &error.error),
    }
}

/// Messages that reach deep.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"t"}}}"#,
        r#"{"jsonrpc":"2.0","id":"a\u0062","method":"\u0070ing"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"\ud83d\ude00"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"a":[1,2.5e3,null,true]}}"#,
        r#"{"jsonrpc":"2.0","id":-9007199254740993,"error":{"code":-32601,"message":"no","data":[{}]}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"id":{}}]"#,
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        "[]",
        "\r\n\t {\"jsonrpc\":\"2.0\",\r\n\"method\":\"m\",\n\"params\":[\r]}\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// The same bytes for a parser that builds a tree. `None` for what the grammar allows and a tree cannot hold: numbers
/// beyond a double, half a surrogate pair, the last level of nesting.
fn seen_by_another(bytes: &[u8]) -> Option<Value> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            let reason = error.to_string();
            let no_tree = ["number out of range", "recursion limit", "surrogate", "hex escape"];
            assert!(
                no_tree.iter().any(|known| reason.contains(known)),
                "not JSON for another parser: {reason}"
            );
            None
        }
    }
}

fn check_message(message: &Message<'_>, seen: &Value) {
    assert_eq!(seen["jsonrpc"], "2.0");
    match message {
        Message::Request { id, method, params } => {
            check_id(id, &seen["id"]);
            assert_eq!(seen["method"], **method);
            let params = params.map(|params| params.get().as_bytes());
            check_event(&jsonrpc::request(id.as_bytes(), method, params), seen);
        }
        Message::Notification { method, params } => {
            assert!(seen.get("id").is_none() && seen["method"] == **method);
            check_event(&jsonrpc::notification(method, params.map(|params| params.get().as_bytes())), seen);
        }
        Message::Response { id, outcome } => {
            if let Some(id) = id {
                check_id(id, &seen["id"]);
            }
            if let Err(error) = outcome
                && let Some(error) = RpcError::from_json(error)
            {
                check_error(*id, &error);
            }
        }
    }
    if let Message::Request { params, .. } | Message::Notification { params, .. } = message {
        if let Some(token) = Meta::of(*params).progress_token {
            assert!(token.get().len() <= ID_BYTES_MAX, "tokens are kept while a call runs");
        }
        if let Err(error) = InitializeParams::parse(*params) {
            check_error(None, &error);
        }
    }
}

fn check_id(id: &str, seen: &Value) {
    assert!(id.len() <= ID_BYTES_MAX, "ids are kept while a call runs");
    assert!(seen.is_string() || seen.is_number(), "{seen}");
    assert_eq!(&serde_json::from_str::<Value>(id).expect("an id is JSON"), seen);
    let mut out = Vec::new();
    jsonrpc::write_result(&mut out, id.as_bytes(), b"{}");
    let answer: Value = serde_json::from_slice(&out).expect("an answer is JSON");
    assert_eq!(&answer["id"], seen);
}

/// What is sent on says the same, on one line of data.
fn check_event(json: &[u8], seen: &Value) {
    let event = sse::payload(json);
    let text = std::str::from_utf8(&event).expect("JSON is UTF-8");
    let data = text.strip_prefix("event: message\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let data = data.expect("an event has one form");
    assert!(!data.contains(['\r', '\n']), "a line end would begin a field of the sender's choice");
    let again: Value = serde_json::from_str(data).expect("it is still JSON");
    assert_eq!((&again["method"], &again["params"]), (&seen["method"], &seen["params"]));
}

fn check_error(id: Option<&str>, error: &RpcError) {
    let mut out = Vec::new();
    jsonrpc::write_error(&mut out, id.map(str::as_bytes), error);
    let answer: Value = serde_json::from_slice(&out).expect("an error is JSON");
    assert_eq!(answer["error"]["code"], error.code);
    assert!(matches!(answer["id"], Value::Null | Value::String(_) | Value::Number(_)), "{answer}");
    // `data` is the sender's, white space and all; as an event it is one line nevertheless.
    let lines = sse::payload(&out).iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    assert_eq!(lines, 3, "a line end would begin a field of the sender's choice");
}
