//! The `Service` trait: what an MCP server written in Rust implements.
//!
//! Owns the vocabulary between a service and its host: requests and replies. It must never mention a transport.
//!
//! Most servers are made with [`Server::builder`](super::Server::builder) and never implement this; it is for those
//! whose tools, resources or prompts are not known when they start, or whose methods are their own.
//!
//! ```
//! use moorline::backend::{Context, Reply, Request, ServerInfo, Service, service};
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
//!             _ => Err(service::method_not_found(&request.method)),
//!         }
//!     }
//! }
//! ```

use super::{
    context::{Context, Outlet, meta_of},
    failure::URL_ELICITATION_REQUIRED,
    info::ServerInfo,
    model::{Meta, Revised},
    params,
    params::ParamsError,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{CallKey, ClientFeatures, Method, Notified, ParamField, Revision, SessionKey, Tell};
use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, sync::Arc};

/// An MCP server. Every shard has an instance of its own, which never leaves its thread: no `Send`, no
/// locks, `Cell` and `RefCell` suffice.
///
/// A handler that blocks its thread delays every connection of its shard.
pub trait Service: 'static {
    /// What `initialize` and `server/discover` say about this server. Asked once, before anything else.
    fn info(&self) -> ServerInfo;

    /// Answers a request of a client. `initialize`, `ping`, `logging/setLevel`, `server/discover` and
    /// `subscriptions/listen` never arrive here.
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

    /// Looks at a request that goes on where an earlier one with the same parameters asked its client something
    /// (2026-07-28); the handler that waits does not see it.
    ///
    /// # Errors
    /// An error for the client; the handler goes on waiting.
    fn readmit(&self, _request: &Request) -> Result<(), RpcError> {
        Ok(())
    }

    /// The shard runs: from now on the service may speak on its own, from tasks on this thread
    /// (`tokio::task::spawn_local`). Called once, before anything else.
    fn started(&self, _outlet: Outlet) {}

    /// A session begins. `initialize` is the client's request; its parameters say who the client is.
    fn session_started(&self, _initialize: &Request) {}

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
    /// The session's revision, or the one the request claims: decides which fields a result may have.
    pub revision: Revision,
    /// The session the request belongs to; `None` from 2026-07-28 on, where there are none.
    pub session: Option<SessionKey>,
    /// What the client can be asked for.
    pub client: ClientFeatures,
    /// The `Mcp-Param-*` fields of a `tools/call` (2026-07-28).
    pub param_fields: Vec<ParamField>,
}

impl Request {
    /// The parameters as a `T`; absent ones as an empty object.
    ///
    /// # Errors
    /// [`ParamsError`], which turns into -32602 by `?`, names the field that does not fit.
    pub fn params<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ParamsError> {
        params::parse(self.params.as_deref().unwrap_or(b"{}"))
    }

    /// `_meta`; empty if there is none.
    pub fn meta(&self) -> Meta {
        meta_of(self.params.as_deref())
    }
}

/// The result of a request: one JSON value on one line, serialised once. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Said);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Json(Bytes),
    Subscribed(Arc<str>),
    Unsubscribed(Arc<str>),
}

impl Reply {
    /// The JSON of `result`.
    ///
    /// # Errors
    /// -32603 if it does not serialise, which is a fault of the service and logged as one.
    pub fn of(result: &impl Serialize) -> Result<Self, RpcError> {
        serde_json::to_vec(result).map(|json| Reply(Said::Json(json.into()))).map_err(|error| {
            tracing::error!(%error, "a result does not serialise");
            internal_error()
        })
    }

    /// The JSON of `result`, without what `revision` does not know.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn revised(mut result: impl Serialize + Revised, revision: Revision) -> Result<Self, RpcError> {
        // The newest knows everything.
        if revision < Revision::V2026_07_28 {
            result.revise(revision);
        }
        Reply::of(&result)
    }

    /// JSON as it is.
    pub(super) fn raw(json: Bytes) -> Self {
        Reply(Said::Json(json))
    }

    /// `{}`
    pub fn empty() -> Self {
        Reply(Said::Json(Bytes::from_static(EMPTY)))
    }

    /// `{}` to `resources/subscribe`: from now on the session hears of updates of `uri`
    /// ([`Context::resource_updated`]). If it has too many subscriptions the client gets an error instead.
    pub fn subscribed(uri: impl Into<Arc<str>>) -> Self {
        Reply(Said::Subscribed(uri.into()))
    }

    /// `{}` to `resources/unsubscribe`: from now on it does not.
    pub fn unsubscribed(uri: impl Into<Arc<str>>) -> Self {
        Reply(Said::Unsubscribed(uri.into()))
    }

    /// The JSON.
    pub fn json(&self) -> &[u8] {
        match &self.0 {
            Said::Json(json) => json,
            Said::Subscribed(_) | Said::Unsubscribed(_) => EMPTY,
        }
    }

    /// The same, if it is JSON, as `change` makes it.
    pub(super) fn map(self, change: impl FnOnce(Bytes) -> Bytes) -> Self {
        match self.0 {
            Said::Json(json) => Reply(Said::Json(change(json))),
            Said::Subscribed(_) | Said::Unsubscribed(_) => self,
        }
    }

    /// What the core is told.
    pub(super) fn answer(self, call: CallKey) -> Tell {
        match self.0 {
            Said::Json(json) => Tell::Respond(call, Ok(json)),
            Said::Subscribed(uri) => Tell::Subscribe(call, uri),
            Said::Unsubscribed(uri) => Tell::Unsubscribe(call, uri),
        }
    }
}

const EMPTY: &[u8] = b"{}";

// --- Errors -------------------------------------------------------------------------------------

/// -32601: this server does not have the method.
pub fn method_not_found(method: &Method) -> RpcError {
    error(-32601, format!("Method not found: {}", excerpt(method.as_str())))
}

/// -32602: the parameters do not fit, for the reason given.
pub fn invalid_params(reason: impl std::fmt::Display) -> RpcError {
    error(-32602, format!("Invalid params: {reason}"))
}

/// The error for a resource that does not exist: -32002, which becomes -32602 where 2026-07-28 is spoken.
pub fn resource_not_found(uri: &str) -> RpcError {
    let data = json!({ "uri": excerpt(uri) });
    RpcError { data: Some(data.to_string().into()), ..error(RESOURCE_NOT_FOUND, "Resource not found") }
}

const RESOURCE_NOT_FOUND: i32 = -32002;

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

/// -32020: a header field is missing, malformed or differs from the body (2026-07-28).
pub fn header_mismatch(reason: impl std::fmt::Display) -> RpcError {
    error(-32020, format!("Header mismatch: {reason}"))
}

/// -32021: the client would have to declare that it can be asked for these (2026-07-28).
pub fn missing_features(features: ClientFeatures) -> RpcError {
    let mut required = Map::new();
    let mut need = |feature, path: &[&str]| {
        if features.has(feature) {
            path.iter().fold(&mut required, |place, name| {
                let inner = place.entry(*name).or_insert_with(|| json!({}));
                inner.as_object_mut().expect("only objects are put in")
            });
        }
    };
    need(ClientFeatures::SAMPLING, &["sampling"]);
    need(ClientFeatures::SAMPLING_TOOLS, &["sampling", "tools"]);
    need(ClientFeatures::SAMPLING_CONTEXT, &["sampling", "context"]);
    need(ClientFeatures::FORMS, &["elicitation", "form"]);
    need(ClientFeatures::URLS, &["elicitation", "url"]);
    need(ClientFeatures::ROOTS, &["roots"]);
    missing(Value::Object(required))
}

/// -32021: the client would have to declare that it knows tasks (2026-07-28).
pub fn missing_tasks() -> RpcError {
    missing(json!({ "extensions": { TASKS: {} } }))
}

fn missing(required: Value) -> RpcError {
    let data = json!({ "requiredCapabilities": required }).to_string();
    RpcError { data: Some(data.into()), ..error(-32021, "The client has not declared what this needs") }
}

/// The extension of 2026-07-28 for work that outlives its request.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Whether a request with these parameters declares that its client knows tasks.
pub(super) fn declares_tasks(params: Option<&[u8]>) -> bool {
    let capabilities =
        "/io.modelcontextprotocol~1clientCapabilities/extensions/io.modelcontextprotocol~1tasks";
    let names_them = params.is_some_and(|params| memmem::find(params, TASKS.as_bytes()).is_some());
    names_them && Value::Object(meta_of(params)).pointer(capabilities).is_some_and(Value::is_object)
}

/// The same error in the words of 2026-07-28, which has given up two codes.
pub(super) fn revised_error(error: RpcError) -> RpcError {
    let code = match error.code {
        RESOURCE_NOT_FOUND => -32602,
        URL_ELICITATION_REQUIRED => -32603,
        code => code,
    };
    RpcError { code, ..error }
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
