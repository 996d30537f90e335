//! An independent reading of what a server writes: HTTP/1.1 responses, chunks, server-sent events.
//!
//! Shares nothing with the server. Strict: whatever is not exactly what RFC 9112 and the event stream format
//! allow a careful server to write is an error, so that a frame torn by a fault cannot pass as something else.

use serde_json::Value;
use std::{collections::VecDeque, fmt};

/// Something whole on the wire, with the connection offset at which its last byte stands.
#[derive(Clone, Debug)]
pub struct Item {
    /// Where its first byte stands.
    pub start: u64,
    pub end: u64,
    pub exchange: usize,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Head(Head),
    /// One block of an event stream.
    Block(Block),
    /// A body of known length.
    Body(Vec<u8>),
    /// The response is over.
    End,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Head(head) if head.is_stream() => f.write_str("200, a stream"),
            What::Head(head) => write!(f, "{}", head.status),
            What::Block(Block { comment: Some(text), .. }) => write!(f, ": {text}"),
            What::Block(block) => {
                let (id, data) = (block.id.as_deref(), block.data.as_deref());
                write!(f, "{} {:?} {}", id.unwrap_or("no id"), block.retry, data.unwrap_or("no data"))
            }
            What::Body(body) => f.write_str(&String::from_utf8_lossy(body)),
            What::End => f.write_str("end"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub fields: Vec<(String, String)>,
}

impl Head {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn is_stream(&self) -> bool {
        self.field("content-type") == Some("text/event-stream")
    }
}

/// A block of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Option<String>,
    pub retry: Option<u64>,
    pub comment: Option<String>,
}

impl Block {
    pub fn json(&self) -> Option<Value> {
        let data = self.data.as_deref().filter(|data| !data.is_empty())?;
        Some(serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in {data:?}")))
    }
}

/// An event id as its text promises: tag, kind, stream, sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub tag: String,
    pub stream: StreamName,
    pub sequence: u32,
}

/// Kind letter and number of a stream in its session.
pub type StreamName = (char, u32);

impl Id {
    pub fn parse(text: &str) -> Self {
        let parse = || {
            let (tag, rest) = text.split_once('-')?;
            let (stream, sequence) = rest.split_once('-')?;
            let kind = stream.chars().next().filter(|kind| "lr".contains(*kind))?;
            Some(Id {
                tag: tag.to_owned(),
                stream: (kind, stream[1..].parse().ok()?),
                sequence: sequence.parse().ok()?,
            })
        };
        parse().unwrap_or_else(|| panic!("not an event id: {text:?}"))
    }
}

#[derive(Debug)]
enum State {
    Head,
    Body(usize),
    Chunks,
    UntilClose,
}

/// Reads one connection as its bytes come.
#[derive(Debug)]
pub struct Reader {
    bytes: Vec<u8>,
    at: usize,
    state: State,
    is_stream: bool,
    exchange: usize,
    emitted: u64,
    pub items: VecDeque<Item>,
}

impl Reader {
    pub fn new() -> Self {
        Reader {
            bytes: Vec::new(),
            at: 0,
            state: State::Head,
            is_stream: false,
            exchange: 0,
            emitted: 0,
            items: VecDeque::new(),
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while self.advance() {}
    }

    /// Whether the connection could end here without cutting anything short.
    pub fn is_at_boundary(&self) -> bool {
        match self.state {
            State::Head | State::UntilClose => self.at == self.bytes.len(),
            State::Body(_) | State::Chunks => false,
        }
    }

    /// Responses that were read to their end, or that only the connection's end can end.
    pub fn is_between_responses(&self) -> bool {
        matches!(self.state, State::Head) && self.at == self.bytes.len()
    }

    fn advance(&mut self) -> bool {
        match self.state {
            State::Head => self.head(),
            State::Body(length) => self.body(length),
            State::Chunks => self.chunk(),
            State::UntilClose => self.block_until_close(),
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn emit(&mut self, what: What) {
        let (start, end) = (self.emitted, self.at as u64);
        self.items.push_back(Item { start, end, exchange: self.exchange, what });
        self.emitted = end;
    }

    fn head(&mut self) -> bool {
        let Some(length) = find(self.rest(), b"\r\n\r\n") else { return false };
        let head = std::str::from_utf8(&self.rest()[..length]).expect("heads are ASCII");
        let head = parse_head(head);
        self.at += length + 4;
        if head.status == 100 {
            return true;
        }
        self.is_stream = head.is_stream();
        self.state = match (head.field("transfer-encoding"), head.field("content-length")) {
            (Some("chunked"), None) => State::Chunks,
            (None, Some(length)) => State::Body(length.parse().expect("a length")),
            (None, None) if head.status == 204 || head.status == 202 => State::Body(0),
            (None, None) => {
                assert_eq!(head.field("connection"), Some("close"), "only a close can end this: {head:?}");
                State::UntilClose
            }
            other => panic!("framing in doubt: {other:?}"),
        };
        self.emit(What::Head(head));
        true
    }

    fn body(&mut self, length: usize) -> bool {
        let Some(body) = self.rest().get(..length) else { return false };
        let body = body.to_vec();
        self.at += length;
        self.emit(What::Body(body));
        self.end()
    }

    fn end(&mut self) -> bool {
        self.emit(What::End);
        self.exchange += 1;
        self.state = State::Head;
        true
    }

    /// A frame is a chunk: whole blocks, nothing torn.
    fn chunk(&mut self) -> bool {
        let Some(line) = find(self.rest(), b"\r\n") else { return false };
        let digits = std::str::from_utf8(&self.rest()[..line]).expect("a chunk size is ASCII");
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("a chunk size: {digits:?}"));
        let start = line + 2;
        let Some(chunk) = self.rest().get(start..start + size + 2) else { return false };
        assert_eq!(&chunk[size..], b"\r\n", "a chunk ends with CRLF");
        let content = String::from_utf8(chunk[..size].to_vec()).expect("event streams are UTF-8");
        self.at += start + size + 2;
        if size == 0 {
            return self.end();
        }
        assert!(self.is_stream, "only event streams are chunked");
        let whole = content.strip_suffix("\n\n").unwrap_or_else(|| panic!("a torn event: {content:?}"));
        for block in whole.split("\n\n") {
            let block = parse_block(block);
            self.emit(What::Block(block));
        }
        true
    }

    fn block_until_close(&mut self) -> bool {
        let Some(length) = find(self.rest(), b"\n\n") else { return false };
        let block = parse_block(std::str::from_utf8(&self.rest()[..length]).expect("UTF-8"));
        self.at += length + 2;
        self.emit(What::Block(block));
        true
    }
}

fn parse_head(head: &str) -> Head {
    let mut lines = head.split("\r\n");
    let status_line = lines.next().expect("a status line");
    let mut parts = status_line.splitn(3, ' ');
    assert_eq!(parts.next(), Some("HTTP/1.1"), "{status_line:?}");
    let status = parts.next().expect("a status").parse().expect("a number");
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("not a field: {line:?}"));
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{name:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
        (name.to_ascii_lowercase(), value.to_owned())
    });
    Head { status, fields: fields.collect() }
}

fn parse_block(text: &str) -> Block {
    let mut block = Block::default();
    for line in text.split('\n') {
        assert!(!line.contains('\r'), "a bare CR would end a line: {text:?}");
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {text:?}"));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        let former = match name {
            "" => block.comment.replace(value),
            "id" => block.id.replace(value),
            "event" => block.name.replace(value),
            "data" => block.data.replace(value),
            "retry" => block.retry.replace(value.parse().expect("digits")).map(|retry| retry.to_string()),
            other => panic!("unknown field {other:?}"),
        };
        assert_eq!(former, None, "a field twice in one block: {text:?}");
    }
    block
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
