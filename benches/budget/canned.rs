//! What the bare loops know: a few requests by a word in them, and for each an answer that is ready.
//!
//! The answers are as long as the server's own. Nothing is checked; the only thing looked up in a request is its id.

use std::ops::ControlFlow;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":         0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"bare","version":"1"}}}"#;
const ACCEPTED: &str =
    "HTTP/1.1 202 Accepted\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
const PUBLISHED: &str = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: application/json\r\n\
    Content-Length: 2\r\n\r\n{}";
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n";
const PRIMING: &str = "id: 0123456-r1000-0\nretry: 3000\ndata:\n\n";
/// One comment.
pub(crate) const KEEP_ALIVE: &[u8] = b"d\r\n: keepalive\n\n\r\n";

/// Where in a canned reply the id is, right-aligned.
const ID_DIGITS: usize = 10;
/// What is looked at of a body: its members' order is the load generator's.
const BODY_START_BYTES: usize = 160;

/// How calls are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reply {
    #[default]
    Json,
    Sse,
    /// A result of 64 KiB.
    Large,
}

/// The answers.
pub(crate) struct Canned {
    call: Vec<u8>,
    initialize: Vec<u8>,
    /// The event that a publication is to every stream.
    pub(crate) event: Vec<u8>,
}

impl Canned {
    pub(crate) fn new(reply: Reply) -> Self {
        let text = if reply == Reply::Large { "x".repeat(64 * 1024) } else { "mlt:00000000:00000000".into() };
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":         0,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        );
        let message = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"load","data":"to everyone"}}"#;
        Canned {
            call: if reply == Reply::Sse { streamed(&call) } else { json(&call, "") },
            initialize: json(INITIALIZE, "Mcp-Session-Id: 000000000000000000000000000000000000000000\r\n"),
            event: chunk(&format!("id: 0123456-l1-1000\nevent: message\ndata: {message}\n\n")).into(),
        }
    }

    /// Writes the answer to a request.
    pub(crate) fn answer(&self, kind: Kind, request: &[u8], reply: &mut Vec<u8>) {
        reply.clear();
        match kind {
            Kind::Initialize => reply.extend_from_slice(&self.initialize),
            Kind::Call => reply.extend_from_slice(&self.call),
            Kind::Notification => reply.extend_from_slice(ACCEPTED.as_bytes()),
            Kind::Publish => reply.extend_from_slice(PUBLISHED.as_bytes()),
            Kind::Listen => {
                reply.extend_from_slice(STREAM_HEAD.as_bytes());
                reply.extend_from_slice(chunk(PRIMING).as_bytes());
            }
        }
        if let Kind::Initialize | Kind::Call = kind {
            put_id(reply, number_after(request, b"\"id\":").unwrap_or(0));
        }
    }
}

/// What the bare loops can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Initialize,
    Notification,
    Call,
    Listen,
    Publish,
}

impl Kind {
    /// The kind of a whole request; `Break` while more of it is to come.
    pub(crate) fn of(bytes: &[u8]) -> ControlFlow<(), Self> {
        let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return ControlFlow::Break(()) };
        let (head, body) = bytes.split_at(end + 4);
        if head[0] != b'P' {
            return ControlFlow::Continue(if head[0] == b'G' { Kind::Listen } else { Kind::Notification });
        }
        if body.len() < number_after(head, b"ontent-Length: ").unwrap_or(0) {
            return ControlFlow::Break(());
        }
        let body = &body[..body.len().min(BODY_START_BYTES)];
        let holds = |word: &[u8]| memchr::memmem::find(body, word).is_some();
        ControlFlow::Continue(match () {
            () if head.starts_with(b"POST /publish") => Kind::Publish,
            () if !holds(b"\"id\":") => Kind::Notification,
            () if holds(b"\"initialize\"") => Kind::Initialize,
            () => Kind::Call,
        })
    }
}

fn number_after(bytes: &[u8], name: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(bytes, name)? + name.len();
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

fn json(body: &str, fields: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: application/json\r\n\
         Cache-Control: no-store\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    )
    .into()
}

fn streamed(message: &str) -> Vec<u8> {
    let event = format!("id: 0123456-r1000-1\nevent: message\ndata: {message}\n\n");
    format!("{STREAM_HEAD}{}{}0\r\n\r\n", chunk(PRIMING), chunk(&event)).into()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Writes the id over the blanks that end in the reply's zero.
fn put_id(reply: &mut [u8], id: usize) {
    let name = b"\"id\":";
    let Some(at) = memchr::memmem::find(reply, name) else { return };
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(id).as_bytes();
    let end = at + name.len() + ID_DIGITS;
    if digits.len() <= ID_DIGITS {
        reply[end - digits.len()..end].copy_from_slice(digits);
    }
}
