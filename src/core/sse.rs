//! Placeholder.

/// How the end of an event stream is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Chunked transfer coding (HTTP/1.1).
    Chunked,
    /// The connection's end (HTTP/1.0).
    CloseDelimited,
}
