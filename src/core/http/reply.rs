//! The heads of replies, and the few replies that are always the same bytes.
//!
//! Must never write client text that was not checked (the origin is one of the policy's, session ids are our
//! own), nor a body where the status forbids one. A head takes one reservation at most and no formatting
//! machinery; it is built and dropped with the reply, so nothing is held per connection.

use super::{DateText, Persistence, Preflight, Status, Version, refusal::ALLOW_ENDPOINT};
use crate::core::sse::Transfer;
use bytes::{BufMut as _, BytesMut};

/// 503 for a newcomer at the connection cap and for a connection whose shard has no room in its mailbox.
/// Written before anything is known of the request, so it has neither `Date` nor CORS fields.
pub const BUSY_503: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Connection: close\r\n\
    Retry-After: 5\r\n\
    Cache-Control: no-store\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 101\r\n\
    \r\n\
    {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\"message\":\"the server is at capacity, retry soon\"}}";

/// 429 for a newcomer whose address has as many connections as one may. Like [`BUSY_503`].
pub const TOO_MANY_429: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\n\
    Connection: close\r\n\
    Retry-After: 5\r\n\
    Cache-Control: no-store\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 124\r\n\
    \r\n\
    {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"your address holds as many connections as one may; close one\"}}";

/// The interim reply to `Expect: 100-continue`, written only when the body is going to be read.
pub const CONTINUE_100: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the request and the moment decide about any reply to it.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The client's version: HTTP/1.0 has to be told that the connection stays.
    pub version: Version,
    /// What becomes of the connection.
    pub persistence: Persistence,
    /// The origin to be told that it may read this: [`Cors::origin`](super::Cors::origin).
    pub cors: Option<&'a [u8]>,
    /// Now.
    pub date: &'a DateText,
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Empty,
    /// JSON of this many bytes.
    Json(u64),
    /// Plain text of this many bytes.
    Text(u64),
    /// Server-sent events, framed like this.
    EventStream(Transfer),
}

/// The head of a final reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead<'a> {
    /// The status.
    pub status: Status,
    /// What follows. Nothing may follow in a reply to HEAD, but the fields are those of GET.
    pub content: Content,
    /// Version, connection, origin, date.
    pub exchange: Exchange<'a>,
    /// `Mcp-Session-Id`: visible ASCII, made by the server.
    pub session_id: Option<&'a [u8]>,
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// `WWW-Authenticate`: quoted where it has to be, no line end.
    pub challenge: Option<&'a str>,
    /// The preflight this reply grants.
    pub preflight: Option<Preflight<'a>>,
}

impl<'a> ReplyHead<'a> {
    /// A head without any of the optional fields.
    pub fn new(status: Status, content: Content, exchange: Exchange<'a>) -> Self {
        ReplyHead {
            status,
            content,
            exchange,
            session_id: None,
            allow: None,
            retry_after_s: None,
            challenge: None,
            preflight: None,
        }
    }

    /// The 204 to an OPTIONS request: a grant for a preflight, else the methods of the endpoint.
    pub fn options(preflight: Option<Preflight<'a>>, exchange: Exchange<'a>) -> Self {
        let allow = preflight.is_none().then_some(ALLOW_ENDPOINT);
        ReplyHead { allow, preflight, ..ReplyHead::new(Status::NoContent, Content::Empty, exchange) }
    }

    /// Appends the head with its final empty line to `out`.
    pub fn write(&self, out: &mut BytesMut) {
        out.reserve(self.len_bound());
        self.put(out);
    }

    /// Appends head and body, which comes in parts. It must be as long as [`content`](Self::content) says.
    pub fn write_with(&self, body: &[&[u8]], out: &mut BytesMut) {
        let body_len: usize = body.iter().map(|part| part.len()).sum();
        out.reserve(self.len_bound() + body_len);
        self.put(out);
        body.iter().for_each(|part| out.put_slice(part));
    }

    fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_slice(self.status.line().as_bytes());
        put_field(out, b"Date: ", self.exchange.date.as_bytes());
        self.put_connection(out);
        self.put_content(out);
        if let Some(id) = self.session_id {
            put_field(out, b"Mcp-Session-Id: ", id);
        }
        if let Some(methods) = self.allow {
            put_field(out, b"Allow: ", methods.as_bytes());
        }
        if let Some(seconds) = self.retry_after_s {
            put_number(out, b"Retry-After: ", seconds);
        }
        if let Some(challenge) = self.challenge {
            put_field(out, b"WWW-Authenticate: ", challenge.as_bytes());
        }
        self.put_cors(out);
        out.put_slice(b"\r\n");
        debug_assert!(out.len() - start <= self.len_bound(), "one reservation holds the head");
    }

    /// RFC 9112 section 9.3: silence means keep in HTTP/1.1 and close in HTTP/1.0.
    fn put_connection(&self, out: &mut BytesMut) {
        let persistence = match self.content {
            Content::EventStream(Transfer::CloseDelimited) => Persistence::Close,
            Content::EventStream(Transfer::Chunked)
            | Content::Empty
            | Content::Json(_)
            | Content::Text(_) => self.exchange.persistence,
        };
        match (persistence, self.exchange.version) {
            (Persistence::Close, _) => out.put_slice(b"Connection: close\r\n"),
            (Persistence::Keep, Version::Http10) => out.put_slice(b"Connection: keep-alive\r\n"),
            (Persistence::Keep, Version::Http11) => {}
        }
    }

    /// The fields that describe the content (RFC 9110 section 8.6: no length on a 204). A stream must neither be
    /// cached nor transformed, nor held back by a proxy's buffer.
    fn put_content(&self, out: &mut BytesMut) {
        match self.content {
            Content::Empty if self.status == Status::NoContent => {}
            Content::Empty => out.put_slice(b"Content-Length: 0\r\n"),
            Content::Json(length) => {
                out.put_slice(b"Content-Type: application/json\r\nCache-Control: no-store\r\n");
                put_number(out, b"Content-Length: ", length);
            }
            Content::Text(length) => {
                out.put_slice(b"Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n");
                put_number(out, b"Content-Length: ", length);
            }
            Content::EventStream(transfer) => {
                out.put_slice(
                    b"Content-Type: text/event-stream\r\n\
                      Cache-Control: no-cache, no-transform\r\n\
                      X-Accel-Buffering: no\r\n",
                );
                match transfer {
                    Transfer::Chunked => out.put_slice(b"Transfer-Encoding: chunked\r\n"),
                    Transfer::CloseDelimited => {}
                }
            }
        }
    }

    /// The Fetch standard's fields. `*` would not cover `authorization`, so everything is named.
    fn put_cors(&self, out: &mut BytesMut) {
        let Some(origin) = self.exchange.cors else { return };
        debug_assert!(
            !origin.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "the parser lets none through"
        );
        put_field(out, b"Access-Control-Allow-Origin: ", origin);
        out.put_slice(b"Vary: Origin\r\n");
        match self.preflight {
            Some(preflight) => put_grant(out, preflight),
            None => out.put_slice(b"Access-Control-Expose-Headers: mcp-session-id, www-authenticate\r\n"),
        }
    }

    /// What one reservation has to hold: all fixed texts together stay under 800 bytes.
    fn len_bound(&self) -> usize {
        800 + self.session_id.map_or(0, <[u8]>::len)
            + self.challenge.map_or(0, str::len)
            + self.exchange.cors.map_or(0, <[u8]>::len)
            + self.preflight.map_or(0, Preflight::len_bound)
    }
}

/// The grant of a preflight. Ten minutes of memory spare a browser a round trip per request.
fn put_grant(out: &mut BytesMut, preflight: Preflight<'_>) {
    out.put_slice(
        b"Access-Control-Allow-Methods: POST, GET, DELETE\r\n\
          Access-Control-Max-Age: 600\r\n\
          Access-Control-Allow-Headers: content-type, accept, authorization, mcp-protocol-version, \
          mcp-session-id, last-event-id, mcp-method, mcp-name",
    );
    for name in preflight.parameter_headers() {
        out.put_slice(b", ");
        out.put_slice(name);
    }
    out.put_slice(b"\r\n");
}

fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

fn put_number(out: &mut BytesMut, name: &[u8], value: u64) {
    put_field(out, name, itoa::Buffer::new().format(value).as_bytes());
}
