//! Refusals: everything HTTP alone can say no to, as one typed value that knows how to write itself.
//!
//! A refusal never depends on a session. Its body is a JSON-RPC error object without an id (`null`), because
//! that is what MCP clients parse on any status. Building one allocates only if its message names
//! something of the client's.

use super::{
    Exchange, Method, Persistence, Status,
    reply::{Content, ReplyHead},
};
use bytes::BytesMut;
use std::borrow::Cow;

/// `Allow` of the MCP endpoint where sessions are served (RFC 9110 section 10.2.1).
pub const ALLOW_ENDPOINT: &str = "GET, POST, DELETE, OPTIONS";
/// `Allow` of the MCP endpoint towards a client of the sessionless era.
pub const ALLOW_POST: &str = "POST, OPTIONS";

/// `Allow` of the path on which streams of HTTP+SSE are asked for.
pub const ALLOW_GET: &str = "GET, OPTIONS";
/// `Allow` of what can only be read.
pub const ALLOW_READ: &str = "GET, HEAD, OPTIONS";

/// JSON-RPC code of a request that is not valid.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC code of a fault or a shortage of the server's own.
pub const INTERNAL_ERROR: i32 = -32603;
/// MCP code of a request header that is missing, malformed or contradicts the body.
pub const HEADER_MISMATCH: i32 = -32020;

/// Why a request is answered without being looked at further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: Status,
    /// The JSON-RPC code of the body.
    pub code: i32,
    /// For a person: what is wrong and what would be right.
    pub message: Cow<'static, str>,
    /// `Close` if the end of the request is unknown or its rest is not worth reading. With `Keep`, an
    /// unread body must still be skipped before the next request.
    pub persistence: Persistence,
    /// The `Allow` field of a 405.
    pub allow: Option<&'static str>,
    /// The `Retry-After` field of a 503 or 429, in seconds.
    pub retry_after_s: Option<u64>,
    /// The `WWW-Authenticate` field of a 401 or 403.
    pub challenge: Option<Box<str>>,
}

impl Refusal {
    /// A refusal after which the connection can go on.
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal {
            status,
            code: INVALID_REQUEST,
            message: message.into(),
            persistence: Persistence::Keep,
            allow: None,
            retry_after_s: None,
            challenge: None,
        }
    }

    /// The same, ending the connection.
    pub fn closing(self) -> Self {
        Refusal { persistence: Persistence::Close, ..self }
    }

    /// The same with another JSON-RPC code.
    pub fn with_code(self, code: i32) -> Self {
        Refusal { code, ..self }
    }

    /// 400: the message is malformed, so its end is unknown.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(Status::BadRequest, message).closing()
    }

    /// 403: a `Host` or `Origin` rule; `message` names it.
    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(Status::Forbidden, message)
    }

    /// 404: nothing is served on that path.
    pub fn not_found(endpoint: &str) -> Self {
        Refusal::new(Status::NotFound, format!("nothing is served here; the MCP endpoint is {endpoint}"))
    }

    /// 405 with the methods that would do, e.g. [`ALLOW_ENDPOINT`].
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let message = format!("this method is not offered here; use one of {allow}");
        Refusal { allow: Some(allow), ..Refusal::new(Status::MethodNotAllowed, message) }
    }

    /// 406: no form of reply is left.
    pub fn not_acceptable(message: &'static str) -> Self {
        Refusal::new(Status::NotAcceptable, message)
    }

    /// 408: head or body took too long.
    pub fn timeout(message: &'static str) -> Self {
        Refusal::new(Status::RequestTimeout, message).closing()
    }

    /// 413: the body is over `bytes_max`.
    pub fn too_large(bytes_max: u64) -> Self {
        Refusal::new(
            Status::ContentTooLarge,
            format!("the request body is over the limit of {bytes_max} bytes"),
        )
        .closing()
    }

    /// 415.
    pub fn unsupported_media(message: &'static str) -> Self {
        Refusal::new(Status::UnsupportedMediaType, message)
    }

    /// 503 with `Retry-After`: at a cap, or shutting down.
    pub fn unavailable(message: &'static str, retry_after_s: u64) -> Self {
        let refusal = Refusal::new(Status::ServiceUnavailable, message).with_code(INTERNAL_ERROR);
        Refusal { retry_after_s: Some(retry_after_s), ..refusal }
    }

    /// Appends the whole reply, head and body, to `out`. After it the connection ends if
    /// [`persistence`](Self::persistence) or the exchange's says so. A HEAD request gets the head only.
    pub fn write(&self, method: Method, exchange: Exchange<'_>, out: &mut BytesMut) {
        let body = self.body();
        let head = ReplyHead {
            allow: self.allow,
            retry_after_s: self.retry_after_s,
            challenge: self.challenge.as_deref(),
            ..ReplyHead::new(
                self.status,
                Content::Json(body.len() as u64),
                Exchange { persistence: exchange.persistence.and(self.persistence), ..exchange },
            )
        };
        match method {
            Method::Head => head.write(out),
            _ => head.write_with(&[body.as_bytes()], out),
        }
    }

    /// The JSON-RPC error object.
    pub fn body(&self) -> String {
        let message = serde_json::Value::from(self.message.as_ref());
        format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{},"message":{message}}}}}"#, self.code)
    }
}
