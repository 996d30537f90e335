//! Requests of 2026-07-28 as bytes: everything a test wants otherwise it says.

use super::{World, ask::post, client::ClientId};
use moorline::core::Call;

pub const HEADER: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

/// `_meta` with a claim of that version, and more members.
pub fn meta_of(version: &str, more: &str) -> String {
    format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}{more}}}"#
    )
}

pub fn meta() -> String {
    meta_of("2026-07-28", "")
}

/// The body of a request with complete `_meta` and more params.
pub fn body(id: &str, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{}}}}}"#, meta())
}

/// The head fields that a method asks for, and more.
pub fn fields(method: &str, more: &str) -> String {
    format!("{HEADER}Mcp-Method: {method}\r\n{more}")
}

/// A whole POST that is as it should be.
pub fn stateless(id: &str, method: &str, params: &str) -> String {
    post(&fields(method, ""), &body(id, method, params))
}

/// A call of the tool `echo`.
pub fn tool_call(id: &str) -> String {
    post(&fields("tools/call", "Mcp-Name: echo\r\n"), &body(id, "tools/call", r#""name":"echo""#))
}

/// A listen request with that filter.
pub fn listen(id: &str, filter: &str) -> String {
    stateless(id, "subscriptions/listen", &format!(r#""notifications":{filter}"#))
}

impl World {
    /// Sends a request of 2026-07-28 that reaches the backend.
    pub fn begin_exchange(&mut self, client: ClientId, request: &str) -> (usize, Call) {
        let known = self.calls.len();
        self.send(client, request);
        assert_eq!(self.calls.len(), known + 1, "the backend was asked");
        self.calls.pop().expect("seen above")
    }
}

impl World {
    /// The events of a stream that has ended, its head taken before.
    pub fn events_of_ended(&mut self, client: ClientId) -> Vec<super::http::Event> {
        let bytes = std::mem::take(&mut self.client(client).received);
        let (content, complete) = super::http::dechunk(&bytes);
        assert!(complete, "the stream goes on");
        super::http::events(&content)
    }
}
