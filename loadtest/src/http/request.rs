//! Writing the HTTP requests of an MCP client over Streamable HTTP.
//!
//! Owns which header goes on which request. One buffer per request, freed once the response begins.

use serde::{Deserialize, Serialize};

use crate::net::target::Target;
use crate::rpc::{Era, Request};

/// What a POST accepts as its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Accept {
    /// Both forms, as the specification asks of clients.
    #[default]
    Both,
    /// `text/event-stream` only.
    Sse,
    /// `application/json` only.
    Json,
}

impl Accept {
    fn value(self) -> &'static str {
        match self {
            Self::Both => "application/json, text/event-stream",
            Self::Sse => "text/event-stream",
            Self::Json => "application/json",
        }
    }
}

/// What all requests of a run have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wording {
    /// Whose rules requests are under.
    pub(crate) era: Era,
    /// Protocol version asked for, and sent in `MCP-Protocol-Version`: of 2025 once a session stands, of 2026 always.
    pub(crate) protocol_version: String,
    /// Additional header lines as `Name: value`.
    pub(crate) headers: Vec<String>,
    /// What POSTs accept.
    pub(crate) accept: Accept,
}

/// The session a request belongs to, and the event it wants to continue behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing<'a> {
    /// `Mcp-Session-Id`, when the server gave one.
    pub(crate) session: Option<&'a str>,
    /// `Last-Event-ID`, on a GET that resumes.
    pub(crate) cursor: Option<&'a str>,
    /// Whether `initialize` has been answered, so that the version is known.
    pub(crate) negotiated: bool,
}

impl Wording {
    /// A POST that carries one JSON-RPC message.
    pub(crate) fn post(&self, target: &Target, standing: Standing<'_>, body: &[u8]) -> Vec<u8> {
        let bytes = self.start("POST", target, standing, body.len() + 512);
        self.finish_post(bytes, body)
    }

    /// A POST that carries one request without a session: what its body says is said in its head too.
    pub(crate) fn post_stateless(&self, target: &Target, id: u32, request: &Request<'_>) -> Vec<u8> {
        let body = request.stateless_body(id, &self.protocol_version);
        let standing = Standing { negotiated: true, ..Standing::default() };
        let mut bytes = self.start("POST", target, standing, body.len() + 512);
        field(&mut bytes, "Mcp-Method", request.method);
        if let Some(name) = request.name {
            field(&mut bytes, "Mcp-Name", name);
        }
        self.finish_post(bytes, &body)
    }

    /// A GET that opens a stream, or resumes one when the standing has a cursor.
    pub(crate) fn get(&self, target: &Target, standing: Standing<'_>) -> Vec<u8> {
        let mut bytes = self.start("GET", target, standing, 512);
        field(&mut bytes, "Accept", "text/event-stream");
        if let Some(cursor) = standing.cursor {
            field(&mut bytes, "Last-Event-ID", cursor);
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// A DELETE that ends the session.
    pub(crate) fn delete(&self, target: &Target, standing: Standing<'_>) -> Vec<u8> {
        let mut bytes = self.start("DELETE", target, standing, 512);
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    fn finish_post(&self, mut bytes: Vec<u8>, body: &[u8]) -> Vec<u8> {
        field(&mut bytes, "Accept", self.accept.value());
        field(&mut bytes, "Content-Type", "application/json");
        field(&mut bytes, "Content-Length", &body.len().to_string());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        bytes
    }

    fn start(&self, method: &str, target: &Target, standing: Standing<'_>, capacity: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(capacity);
        for part in [method, " ", &target.path, " HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        field(&mut bytes, "Host", &target.authority);
        if let Some(session) = standing.session {
            field(&mut bytes, "Mcp-Session-Id", session);
        }
        if standing.negotiated {
            field(&mut bytes, "MCP-Protocol-Version", &self.protocol_version);
        }
        for line in &self.headers {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        bytes.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn a_resuming_get_carries_session_version_cursor_and_the_users_headers() {
        let wording = Wording {
            era: Era::Sessions,
            protocol_version: "2025-11-25".into(),
            headers: vec!["Authorization: Bearer x".into()],
            accept: Accept::Both,
        };
        let target = Target::resolve("http://127.0.0.1:1/mcp").unwrap();
        let standing = Standing { session: Some("s"), cursor: Some("c-1"), negotiated: true };
        let text = String::from_utf8(wording.get(&target, standing)).unwrap();
        assert_eq!(
            text,
            "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:1\r\nMcp-Session-Id: s\r\nMCP-Protocol-Version: 2025-11-25\r\n\
             Authorization: Bearer x\r\nAccept: text/event-stream\r\nLast-Event-ID: c-1\r\n\r\n"
        );
    }

    fn wording(era: Era, version: &str) -> Wording {
        Wording { era, protocol_version: version.into(), headers: vec![], accept: Accept::Json }
    }

    #[test]
    fn a_request_without_a_session_says_in_its_head_what_its_body_says() {
        let target = Target::resolve("http://127.0.0.1:1/mcp").unwrap();
        let request = Request::tool("echo", "{}");
        let bytes = wording(Era::Stateless, "2026-07-28").post_stateless(&target, 7, &request);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        for line in ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"] {
            assert!(head.lines().any(|there| there == line), "{line} in {head}");
        }
        assert!(!head.contains("Session"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["id"], &body["method"]), (&7.into(), &"tools/call".into()));
        assert_eq!(body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    }

    #[test]
    fn a_first_post_has_neither_session_nor_version() {
        let wording = wording(Era::Sessions, "v");
        let target = Target::resolve("http://127.0.0.1:1/").unwrap();
        let text = String::from_utf8(wording.post(&target, Standing::default(), b"{}")).unwrap();
        assert!(!text.contains("Mcp-") && !text.contains("MCP-"), "{text}");
        assert!(text.ends_with("Content-Length: 2\r\n\r\n{}"), "{text}");
    }
}
