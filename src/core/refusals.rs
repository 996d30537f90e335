//! What a session's rules say no to, as [`Refusal`]s.
//!
//! The refusals of HTTP alone are beside the parser; these need a session, or its absence.

use super::http::{Refusal, Status, refusal::ALLOW_ENDPOINT};
use crate::limits::RETRY_AFTER_S;

/// Code of errors that the specification leaves to implementations and clients show as they are.
pub(super) const SERVER_ERROR: i32 = -32000;

impl Refusal {
    pub(super) fn session_missing() -> Self {
        Refusal::new(
            Status::BadRequest,
            "the Mcp-Session-Id header is missing: initialize first, then send the id it returned",
        )
        .with_code(SERVER_ERROR)
    }

    /// The same for unknown, expired and foreign ids, so that it tells nothing.
    pub(super) fn session_unknown() -> Self {
        Refusal::new(Status::NotFound, "no such session: initialize again").with_code(SERVER_ERROR)
    }

    pub(super) fn query_missing() -> Self {
        let message =
            "sessionId must be in the query once: post to the URI that the stream's endpoint event named";
        Refusal::new(Status::BadRequest, message).with_code(SERVER_ERROR)
    }

    pub(super) fn initialize_first() -> Self {
        Refusal::new(Status::BadRequest, "initialize first, and wait for its response")
            .with_code(SERVER_ERROR)
    }

    pub(super) fn one_message_per_post() -> Self {
        Refusal::new(Status::BadRequest, "this transport has no batches; send one message per POST")
    }

    pub(super) fn unsupported_revision() -> Self {
        Refusal::new(
            Status::BadRequest,
            "MCP-Protocol-Version is not supported; use 2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05",
        )
        .with_code(SERVER_ERROR)
    }

    /// The one answer to every cursor that cannot be served, so that it tells nothing.
    pub(super) fn bad_cursor() -> Self {
        Refusal::new(Status::BadRequest, "Last-Event-ID names no event of this session")
    }

    /// Stops an EventSource; SDK clients take it quietly.
    pub(super) fn no_more_streams() -> Self {
        Refusal {
            message: "this session has enough idle streams; its listener stays open".into(),
            ..Refusal::method_not_allowed(ALLOW_ENDPOINT)
        }
    }

    pub(super) fn too_many_streams() -> Self {
        Refusal::unavailable("this session has too many GET streams open; close one", RETRY_AFTER_S)
    }

    pub(super) fn too_many_sessions() -> Self {
        Refusal::unavailable("the server holds as many sessions as it may; try again later", RETRY_AFTER_S)
    }

    pub(super) fn too_many_exchanges() -> Self {
        Refusal::unavailable("the server works on as many requests as it can; try again later", RETRY_AFTER_S)
    }

    pub(super) fn draining() -> Self {
        Refusal::unavailable("the server is stopping; try again soon", RETRY_AFTER_S)
    }

    pub(super) fn already_initialized() -> Self {
        Refusal::new(
            Status::BadRequest,
            "this session is initialized already; send initialize without Mcp-Session-Id for another",
        )
    }

    pub(super) fn initialize_in_batch() -> Self {
        Refusal::new(Status::BadRequest, "initialize must not be part of a batch")
    }

    pub(super) fn batch_not_allowed() -> Self {
        Refusal::new(
            Status::BadRequest,
            "this session's protocol revision has no batches; send one message per POST",
        )
    }
}
