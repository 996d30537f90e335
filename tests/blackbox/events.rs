//! An event stream as a client sees it: chunks, lines, events (WHATWG HTML, server-sent events).

use super::{
    PATIENCE, QUIET,
    wire::{Chunk, Connection, Fill, Head, Leave, first_chunk},
};
use std::time::{Duration, Instant};

/// A response with `text/event-stream`, open or ended.
pub(crate) struct EventStream {
    connection: Connection,
    /// The last event id seen; what a client would send as its cursor.
    pub(crate) last_id: Option<String>,
    /// Comments seen.
    pub(crate) comments: Vec<String>,
    parser: Parser,
}

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The id it carried itself.
    pub(crate) id: Option<String>,
    /// The event's name, if given.
    pub(crate) name: Option<String>,
    /// Its data; empty for a priming event.
    pub(crate) data: String,
    /// The `retry` that came with it, in milliseconds.
    pub(crate) retry_ms: Option<u64>,
}

impl Event {
    /// Whether it carries a message, as a priming event does not.
    pub(crate) fn is_message(&self) -> bool {
        !self.data.is_empty()
    }

    /// The message.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {:?}", self.data))
    }
}

/// What waiting for an event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// An event, priming ones included.
    Event(Event),
    /// The stream is open and silent, but for comments.
    Silence,
    /// The body ended with its last chunk.
    Ended,
    /// The connection ended without one.
    Cut,
}

impl EventStream {
    /// The response `head` of which was read from `connection`.
    ///
    /// # Panics
    /// If it is no event stream, or lacks the fields that keep proxies from buffering it.
    pub(crate) fn new(connection: Connection, head: &Head) -> EventStream {
        assert_eq!(head.status, 200);
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        assert_eq!(head.field("transfer-encoding"), Some("chunked"));
        assert_eq!(head.field("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(head.field("x-accel-buffering"), Some("no"));
        EventStream { connection, last_id: None, comments: Vec::new(), parser: Parser::default() }
    }

    /// The next event, if one comes within `patience`.
    pub(crate) fn next_within(&mut self, patience: Duration) -> Next {
        let end = Instant::now() + patience;
        loop {
            match self.parser.next() {
                Some(Block::Event(event)) => {
                    if let Some(id) = &event.id {
                        self.last_id = Some(id.clone());
                    }
                    return Next::Event(event);
                }
                Some(Block::Comment(comment)) => {
                    self.comments.push(comment);
                    continue;
                }
                None => {}
            }
            match self.connection.chunk(end) {
                Chunk::Data(data) => self.parser.push(&data),
                Chunk::Last => return Next::Ended,
                Chunk::Missing(Fill::TimedOut) => return Next::Silence,
                Chunk::Missing(_) => return Next::Cut,
            }
        }
    }

    /// The next event that carries a message.
    ///
    /// # Panics
    /// If none comes in time.
    pub(crate) fn message(&mut self) -> Event {
        loop {
            match self.next_within(PATIENCE) {
                Next::Event(event) if event.is_message() => return event,
                Next::Event(_) => {}
                other => panic!("no message: {other:?}"),
            }
        }
    }

    /// How many messages come until the stream is silent for [`QUIET`].
    pub(crate) fn messages_until_quiet(&mut self) -> usize {
        let mut count = 0;
        loop {
            match self.next_within(QUIET) {
                Next::Event(event) => count += usize::from(event.is_message()),
                Next::Silence => return count,
                other => panic!("the stream ended: {other:?}"),
            }
        }
    }

    /// # Panics
    /// If a message comes within [`QUIET`], or the stream ends.
    pub(crate) fn stays_silent(&mut self) {
        assert_eq!(self.messages_until_quiet(), 0, "a message too many");
    }

    /// Reads to the end of the body and gives every event of it.
    pub(crate) fn until_end(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            match self.next_within(PATIENCE) {
                Next::Event(event) => events.push(event),
                Next::Ended => return events,
                other => panic!("the stream did not end in order: {other:?} after {events:?}"),
            }
        }
    }

    /// Waits for a comment.
    ///
    /// # Panics
    /// If none comes within `patience`, or an event comes first.
    pub(crate) fn comment_within(&mut self, patience: Duration) {
        let known = self.comments.len();
        let end = Instant::now() + patience;
        while self.comments.len() == known {
            assert!(Instant::now() < end, "no comment within {patience:?}");
            match self.next_within(Duration::from_millis(20)) {
                Next::Silence => {}
                other => panic!("instead of a comment: {other:?}"),
            }
        }
    }

    /// How many messages have arrived whole in this host, read or not. None of them is used up.
    pub(crate) fn arrived(&mut self) -> usize {
        let bytes = self.connection.arrived();
        let mut parser = Parser::default();
        let mut rest = bytes.as_slice();
        while let Some((Chunk::Data(data), used)) = first_chunk(rest) {
            parser.push(&data);
            rest = &rest[used..];
        }
        std::iter::from_fn(|| parser.next())
            .filter(|block| matches!(block, Block::Event(event) if event.is_message()))
            .count()
    }

    /// Leaves the stream.
    pub(crate) fn leave(self, how: Leave) {
        self.connection.leave(how);
    }
}

/// The events of a body that was read whole.
pub(crate) fn events_of(body: &[u8]) -> Vec<Event> {
    let mut parser = Parser::default();
    parser.push(body);
    let blocks = std::iter::from_fn(|| parser.next());
    blocks
        .filter_map(|block| match block {
            Block::Event(event) => Some(event),
            Block::Comment(_) => None,
        })
        .collect()
}

/// Splits bytes into what blank lines end.
#[derive(Default)]
struct Parser {
    bytes: Vec<u8>,
}

enum Block {
    Event(Event),
    Comment(String),
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<Block> {
        let end = self.bytes.windows(2).position(|window| window == b"\n\n")?;
        let bytes: Vec<u8> = self.bytes.drain(..end + 2).collect();
        let text = std::str::from_utf8(&bytes[..end]).expect("an event stream is UTF-8");
        assert!(!text.contains('\r'), "our lines end with LF alone: {text:?}");
        Some(block_of(text))
    }
}

fn block_of(text: &str) -> Block {
    if let Some(comment) = text.strip_prefix(':') {
        assert!(!comment.contains('\n'), "a comment is one line: {text:?}");
        return Block::Comment(comment.trim().to_owned());
    }
    let mut event = Event { id: None, name: None, data: String::new(), retry_ms: None };
    let mut has_data = false;
    for line in text.split('\n') {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.name = Some(value.to_owned()),
            "retry" => event.retry_ms = Some(value.parse().expect("retry is a number")),
            "data" => {
                assert!(!has_data, "a message is one data line: {text:?}");
                has_data = true;
                event.data.push_str(value);
            }
            _ => panic!("unknown field in {text:?}"),
        }
    }
    Block::Event(event)
}
