//! JSON-RPC messages: the few this program sends, and the little it must know of those it gets.
//!
//! Owns ids, bodies and *markers*. A marker is a short text that this program asks a server to
//! broadcast; finding it in a message tells which publication the message belongs to, on any server.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The id of `initialize`; later requests of a client count up from it.
pub(crate) const INITIALIZE_ID: u32 = 1;

/// The body of `initialize`.
pub(crate) fn initialize(protocol_version: &str) -> Vec<u8> {
    let params = json!({
        "protocolVersion": protocol_version,
        "capabilities": {},
        "clientInfo": { "name": "moorline-load", "version": env!("CARGO_PKG_VERSION") },
    });
    request(INITIALIZE_ID, "initialize", &params.to_string())
}

/// The body of `notifications/initialized`.
pub(crate) fn initialized() -> &'static [u8] {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
}

/// A request whose `params` are JSON text already.
pub(crate) fn request(id: u32, method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).into_bytes()
}

/// The params of a `tools/call`; `arguments` is JSON text.
pub(crate) fn tool_params(tool: &str, arguments: &str) -> String {
    format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(tool))
}

/// What a message is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The answer to the request with that id.
    Answer {
        /// The id, when it is a number of ours.
        id: Option<u32>,
        /// Whether it is a result.
        verdict: Verdict,
    },
    /// A request of the server.
    Request,
    /// A notification of the server.
    Notification,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With a result.
    Result,
    /// With a result that says the tool failed.
    ToolError,
    /// With a JSON-RPC error of that code.
    Error(i64),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Error {
    code: i64,
}

#[derive(Deserialize)]
struct ToolResult {
    #[serde(rename = "isError", default)]
    is_error: bool,
}

/// Reads one message; `None` when it is no JSON-RPC message.
pub(crate) fn read(bytes: &[u8]) -> Option<Kind> {
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).ok()?;
    match (envelope.method, envelope.id, envelope.result, envelope.error) {
        (Some(_), Some(_), None, None) => Some(Kind::Request),
        (Some(_), None, None, None) => Some(Kind::Notification),
        (None, id, Some(result), None) => Some(Kind::Answer { id: number(id), verdict: verdict(result) }),
        (None, id, None, Some(error)) => {
            Some(Kind::Answer { id: number(id), verdict: Verdict::Error(error.code) })
        }
        _ => None,
    }
}

fn number(id: Option<&RawValue>) -> Option<u32> {
    id?.get().parse().ok()
}

fn verdict(result: &RawValue) -> Verdict {
    match serde_json::from_str::<ToolResult>(result.get()) {
        Ok(ToolResult { is_error: true }) => Verdict::ToolError,
        _ => Verdict::Result,
    }
}

/// The marker of publication number `seq` in the run `run`; runs differ so that a server's replay of
/// an earlier run is not taken for this one.
pub(crate) fn marker(run: u32, seq: u32) -> String {
    format!("mlt:{run:08x}:{seq:08x}")
}

/// The publication a message belongs to, if it carries a marker of this run.
pub(crate) fn find_marker(data: &[u8], run: u32) -> Option<u32> {
    let text = std::str::from_utf8(data).ok()?;
    let prefix = format!("mlt:{run:08x}:");
    let at = text.find(&prefix)? + prefix.len();
    u32::from_str_radix(text.get(at..at + 8)?, 16).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let answer = |id, verdict| Some(Kind::Answer { id, verdict });
        assert_eq!(read(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#), answer(Some(7), Verdict::Result));
        assert_eq!(read(br#"{"id":7,"result":{"isError":true}}"#), answer(Some(7), Verdict::ToolError));
        assert_eq!(
            read(br#"{"id":null,"error":{"code":-32600,"message":""}}"#),
            answer(None, Verdict::Error(-32600))
        );
        assert_eq!(read(br#"{"method":"notifications/x","params":{}}"#), Some(Kind::Notification));
        assert_eq!(read(br#"{"id":"a","method":"ping"}"#), Some(Kind::Request));
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"not json"), None);
    }

    #[test]
    fn bodies_are_json() {
        let params = tool_params("ec\"ho", r#"{"a":1}"#);
        for body in [initialize("2025-11-25"), initialized().to_vec(), request(2, "tools/call", &params)] {
            serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        }
    }

    #[test]
    fn markers_of_other_runs_are_not_ours() {
        let data = format!(r#"{{"data":"{}"}}"#, marker(7, 300));
        assert_eq!(find_marker(data.as_bytes(), 7), Some(300));
        assert_eq!(find_marker(data.as_bytes(), 8), None);
        assert_eq!(find_marker(b"mlt:00000007:12", 7), None);
    }
}
