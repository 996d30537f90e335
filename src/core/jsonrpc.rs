//! JSON-RPC 2.0 envelopes.

use std::borrow::Cow;

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The code, e.g. -32602.
    pub code: i32,
    /// For a person.
    pub message: Cow<'static, str>,
    /// `data` as one JSON value, if any.
    pub data: Option<Box<str>>,
}
