//! JSON-RPC messages: the few this program sends, and the little it must know of those it gets.
//!
//! Owns ids, bodies and *markers*. A marker is a short text that this program asks a server to
//! broadcast; finding it in a message tells which publication the message belongs to, on any server.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

/// Whose rules a run is under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Era {
    /// 2025-03-26 to 2025-11-25: a handshake, a session, and streams opened by GET.
    #[default]
    #[serde(rename = "2025")]
    #[value(name = "2025")]
    Sessions,
    /// 2026-07-28: every request for itself, and streams that answer `subscriptions/listen`.
    #[serde(rename = "2026")]
    #[value(name = "2026")]
    Stateless,
}

impl Era {
    /// The revision that is spoken unless the user names another.
    pub(crate) fn protocol_version(self) -> &'static str {
        match self {
            Self::Sessions => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

/// A request before it has an id.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    /// The method.
    pub(crate) method: &'static str,
    /// What `Mcp-Name` repeats of the params, where the method has such a thing.
    pub(crate) name: Option<&'a str>,
    /// The params, as the JSON text of an object.
    params: Cow<'static, str>,
}

impl<'a> Request<'a> {
    /// One without params of its own.
    pub(crate) fn bare(method: &'static str) -> Self {
        Self { method, name: None, params: "{}".into() }
    }

    /// A `tools/call`; `arguments` is JSON text.
    pub(crate) fn tool(tool: &'a str, arguments: &str) -> Self {
        let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(tool));
        Self { method: "tools/call", name: Some(tool), params: params.into() }
    }

    /// A `subscriptions/listen` for all that concerns everyone.
    pub(crate) fn listen() -> Self {
        let wanted = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}"#;
        Self { method: "subscriptions/listen", name: None, params: wanted.into() }
    }

    /// The message within a session.
    pub(crate) fn body(&self, id: u32) -> Vec<u8> {
        body(id, self.method, &self.params)
    }

    /// The message without a session: it says itself what a handshake would have said.
    pub(crate) fn stateless_body(&self, id: u32, protocol_version: &str) -> Vec<u8> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": protocol_version,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": client_info(),
        });
        let rest = &self.params[1..];
        let comma = if rest == "}" { "" } else { "," };
        body(id, self.method, &format!(r#"{{"_meta":{meta}{comma}{rest}"#))
    }
}

fn client_info() -> serde_json::Value {
    json!({ "name": "moorline-load", "version": env!("CARGO_PKG_VERSION") })
}

fn body(id: u32, method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).into_bytes()
}

/// The id of the first request, `initialize` or `server/discover`; later requests of a client count up from it.
pub(crate) const INITIALIZE_ID: u32 = 1;

/// The body of `initialize`.
pub(crate) fn initialize(protocol_version: &str) -> Vec<u8> {
    let params = json!({
        "protocolVersion": protocol_version,
        "capabilities": {},
        "clientInfo": client_info(),
    });
    body(INITIALIZE_ID, "initialize", &params.to_string())
}

/// The body of `notifications/initialized`.
pub(crate) fn initialized() -> &'static [u8] {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
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
    /// The notification that begins a listen stream.
    Acknowledgement,
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
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
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

/// What a listen stream has to begin with.
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The subscription a message says it belongs to, if that is a number.
pub(crate) fn subscription(bytes: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(alias = "result")]
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: u32,
    }
    serde_json::from_slice::<Message>(bytes).ok().map(|message| message.params.meta.subscription)
}

/// Reads one message; `None` when it is no JSON-RPC message.
pub(crate) fn read(bytes: &[u8]) -> Option<Kind> {
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).ok()?;
    match (envelope.method, envelope.id, envelope.result, envelope.error) {
        (Some(_), Some(_), None, None) => Some(Kind::Request),
        (Some(method), None, None, None) if method == ACKNOWLEDGED => Some(Kind::Acknowledgement),
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
        let acknowledged = br#"{"method":"notifications/subscriptions/acknowledged","params":{}}"#;
        assert_eq!(read(acknowledged), Some(Kind::Acknowledgement));
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"not json"), None);
    }

    #[test]
    fn bodies_are_json() {
        let tool = Request::tool("ec\"ho", r#"{"a":1}"#);
        let bare = Request::bare("tools/list");
        let of_sessions = [initialize("2025-11-25"), initialized().to_vec(), tool.body(2), bare.body(3)];
        let stateless = [&tool, &bare, &Request::listen()].map(|request| request.stateless_body(4, "v"));
        for body in of_sessions.iter().chain(&stateless) {
            serde_json::from_slice::<serde_json::Value>(body).unwrap();
        }
    }

    #[test]
    fn messages_tell_their_subscription_wherever_it_stands() {
        let meta = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#;
        for member in ["params", "result"] {
            assert_eq!(subscription(format!(r#"{{"{member}":{meta}}}"#).as_bytes()), Some(7));
        }
        for other in
            [r#"{"params":{}}"#, r#"{"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"}}}"#]
        {
            assert_eq!(subscription(other.as_bytes()), None, "{other}");
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
