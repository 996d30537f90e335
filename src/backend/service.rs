//! The `Service` trait: what an MCP server written in Rust implements.
//!
//! Owns the vocabulary between a service and its host: requests, replies, what `initialize` says. It must
//! never mention a transport.
//!
//! ```
//! use moorline::backend::{Capabilities, Context, Reply, Request, ServerInfo, Service, service};
//! use moorline::core::jsonrpc::RpcError;
//!
//! struct Clock;
//!
//! impl Service for Clock {
//!     fn info(&self) -> ServerInfo {
//!         ServerInfo::new("clock", "1.0.0")
//!     }
//!
//!     async fn call(&self, request: Request, _context: Context) -> Result<Reply, RpcError> {
//!         match request.method.as_str() {
//!             "clock/now" => Reply::of(&serde_json::json!({ "ms": 0 })),
//!             _ => Err(service::method_not_found(&request)),
//!         }
//!     }
//! }
//! ```

use super::{context::Context, params, params::ParamsError};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Method, Notified, Revision, SessionKey};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// An MCP server. Every shard has an instance of its own, which never leaves its thread: no `Send`, no
/// locks, `Cell` and `RefCell` suffice.
///
/// A handler that blocks its thread delays every connection of its shard.
pub trait Service: 'static {
    /// What `initialize` says about this server. Asked once, when the shard starts.
    fn info(&self) -> ServerInfo;

    /// Answers a request of a client. `initialize`, `ping` and `logging/setLevel` never arrive here.
    ///
    /// The future is polled once at once; most handlers are ready then and cost no task. A panic becomes the
    /// error -32603 of this call alone. Cancellation is a request, not an abort: a handler that never looks at
    /// [`Context::cancelled`] runs to its end, and keeps its memory until then.
    ///
    /// # Errors
    /// A JSON-RPC error for the client: -32601 ([`method_not_found`]) for a method this server does not have,
    /// -32602 ([`invalid_params`]) for parameters that do not fit. Failures inside a tool are results with
    /// `isError`, not errors.
    fn call(&self, request: Request, context: Context) -> impl Future<Output = Result<Reply, RpcError>>;

    /// A client's notification, such as `notifications/roots/list_changed`.
    fn notified(&self, _notified: &Notified) {}

    /// A session is gone; its calls in flight see their cancellation.
    fn session_ended(&self, _session: SessionKey) {}
}

/// A client's request.
#[derive(Debug)]
pub struct Request {
    /// The JSON-RPC method.
    pub method: Method,
    /// `params` as written, or absent. Most handlers want [`params`](Self::params).
    pub params: Option<Bytes>,
    /// The session's revision: decides which fields a result may have.
    pub revision: Revision,
    /// The session the request belongs to.
    pub session: SessionKey,
}

impl Request {
    /// The parameters as a `T`; absent ones as an empty object.
    ///
    /// # Errors
    /// [`ParamsError`], which turns into -32602 by `?`, names the field that does not fit.
    pub fn params<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ParamsError> {
        params::parse(self.params.as_deref().unwrap_or(b"{}"))
    }
}

/// The result of a request: one JSON value on one line, serialised once. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Bytes);

impl Reply {
    /// The JSON of `result`.
    ///
    /// # Errors
    /// -32603 if it does not serialise, which is a fault of the service and logged as one.
    pub fn of(result: &impl Serialize) -> Result<Self, RpcError> {
        serde_json::to_vec(result).map(|json| Reply(json.into())).map_err(|error| {
            tracing::error!(%error, "a result does not serialise");
            internal_error()
        })
    }

    /// `{}`
    pub fn empty() -> Self {
        Reply(Bytes::from_static(b"{}"))
    }

    /// The JSON.
    pub fn json(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn into_json(self) -> Bytes {
        self.0
    }
}

// --- initialize ---------------------------------------------------------------------------------

/// What a server says about itself in `initialize`.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// `serverInfo.name`, for programs.
    pub name: Cow<'static, str>,
    /// `serverInfo.version`
    pub version: Cow<'static, str>,
    /// `serverInfo.title`, for people; sent from 2025-06-18 on, which introduced it.
    pub title: Option<Cow<'static, str>>,
    /// How a model should use this server.
    pub instructions: Option<Cow<'static, str>>,
    /// What the server offers; advertise only what [`Service::call`] answers.
    pub capabilities: Capabilities,
}

impl ServerInfo {
    /// A server of that name that offers nothing yet.
    pub fn new(name: impl Into<Cow<'static, str>>, version: impl Into<Cow<'static, str>>) -> Self {
        ServerInfo {
            name: name.into(),
            version: version.into(),
            title: None,
            instructions: None,
            capabilities: Capabilities::default(),
        }
    }

    /// The result of `initialize` for a session of that revision.
    ///
    /// # Errors
    /// Never in practice: it is made of strings.
    pub(super) fn greeting(&self, revision: Revision) -> Result<Reply, RpcError> {
        Reply::of(&Greeting {
            protocol_version: revision.date(),
            capabilities: &self.capabilities,
            server_info: Implementation {
                name: &self.name,
                title: self.title.as_deref().filter(|_| revision >= Revision::V2025_06_18),
                version: &self.version,
            },
            instructions: self.instructions.as_deref(),
        })
    }
}

/// The features a server advertises; `None` is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The server sends `notifications/message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<LoggingCapability>,
    /// `prompts/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ListCapability>,
    /// `resources/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ListCapability>,
    /// `tools/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ListCapability>,
}

/// The `logging` capability: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoggingCapability {}

/// A list a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// The server sends `notifications/…/list_changed` for it.
    pub list_changed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Greeting<'a> {
    protocol_version: &'a str,
    capabilities: &'a Capabilities,
    server_info: Implementation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
struct Implementation<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'a str,
}

// --- Errors -------------------------------------------------------------------------------------

/// -32601: this server does not have the method.
pub fn method_not_found(request: &Request) -> RpcError {
    error(-32601, format!("Method not found: {}", excerpt(request.method.as_str())))
}

/// -32602: the parameters do not fit, for the reason given.
pub fn invalid_params(reason: impl std::fmt::Display) -> RpcError {
    error(-32602, format!("Invalid params: {reason}"))
}

/// -32603: a fault of the server. It says no more than that; the log does.
pub fn internal_error() -> RpcError {
    error(-32603, "Internal error")
}

/// At most 64 characters of a name the client chose, for an error message.
pub(super) fn excerpt(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(64) {
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
        None => Cow::Borrowed(name),
    }
}

pub(super) fn error(code: i32, message: impl Into<Cow<'static, str>>) -> RpcError {
    RpcError { code, message: message.into(), data: None }
}

// --- Revisions ----------------------------------------------------------------------------------

/// One value for each revision, made at start.
#[derive(Debug)]
pub(super) struct PerRevision<T>([T; Revision::ALL.len()]);

impl<T> PerRevision<T> {
    pub(super) fn new(make: impl FnMut(Revision) -> T) -> Self {
        PerRevision(Revision::ALL.map(make))
    }

    pub(super) fn of(&self, revision: Revision) -> &T {
        let index = Revision::ALL.iter().position(|known| *known == revision);
        &self.0[index.expect("every revision is in ALL")]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};

    fn greeting(info: &ServerInfo, revision: Revision) -> Value {
        serde_json::from_slice(info.greeting(revision).unwrap().json()).unwrap()
    }

    #[test]
    fn a_bare_server_says_the_least() {
        let said = greeting(&ServerInfo::new("bare", "1"), Revision::V2025_03_26);
        assert_eq!(
            said,
            json!({"protocolVersion": "2025-03-26", "capabilities": {},
                   "serverInfo": {"name": "bare", "version": "1"}})
        );
    }

    #[test]
    fn a_title_is_for_revisions_that_have_one() {
        let mut info = ServerInfo::new("n", "1");
        info.title = Some("Name".into());
        info.instructions = Some("Ask.".into());
        for revision in Revision::ALL {
            let said = greeting(&info, revision);
            assert_eq!(said["serverInfo"].get("title").is_some(), revision >= Revision::V2025_06_18);
            assert_eq!(said["instructions"], "Ask.");
        }
    }

    #[test]
    fn capabilities_are_spelled_as_the_specification_does() {
        let all = Capabilities {
            logging: Some(LoggingCapability {}),
            prompts: Some(ListCapability { list_changed: true }),
            resources: None,
            tools: Some(ListCapability::default()),
        };
        let expected =
            json!({"logging": {}, "prompts": {"listChanged": true}, "tools": {"listChanged": false}});
        assert_eq!(serde_json::to_value(all).unwrap(), expected);
    }

    #[test]
    fn a_reply_that_does_not_serialise_is_an_internal_error() {
        let bad = std::collections::BTreeMap::from([(vec![1], 2)]);
        assert_eq!(Reply::of(&bad).unwrap_err(), internal_error());
    }

    #[test]
    fn a_name_is_quoted_in_part_when_it_is_long() {
        assert_eq!(excerpt("tools/call"), "tools/call");
        let long = "é".repeat(65);
        assert_eq!(excerpt(&long), format!("{}…", "é".repeat(64)));
        assert_eq!(excerpt(&long[..128]), long[..128]);
    }
}
