//! One MCP client: its session, its connection, and the one step it is in.
//!
//! Owns the meaning of bytes and responses for each step; the fleet does the system calls. A client
//! does one thing at a time, as its connection carries one exchange at a time.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};

use super::exchange::{Exchange, Finished};
use super::link::Link;
use super::notice::{Cause, Notice};
use crate::clock::Moment;
use crate::http::request::Standing;
use crate::rpc::INITIALIZE_ID;

/// Which client of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(usize);

impl ClientId {
    pub(super) fn new(index: usize) -> Self {
        Self(index)
    }

    #[cfg(test)]
    pub(crate) fn for_test(index: usize) -> Self {
        Self(index)
    }

    /// The position in tables kept beside the fleet.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it could do anything next.
    Ready,
    /// Waits for the answer to `initialize`.
    Initializing,
    /// Waits for the answer to `server/discover`.
    Discovering,
    /// Waits for the answer to `notifications/initialized`.
    Confirming,
    /// Waits for the head of a stream.
    Listening,
    /// Waits for the acknowledgement of the `subscriptions/listen` with this id.
    Subscribing {
        /// JSON-RPC id.
        id: u32,
    },
    /// Has a stream.
    Streaming,
    /// Waits for the answer to the request with this id.
    Calling {
        /// JSON-RPC id.
        id: u32,
    },
    /// Waits for the answer to DELETE.
    Deleting,
    /// Waits for the answer to a POST that is no JSON-RPC message.
    Posting,
    /// Its last step failed.
    Failed,
}

impl Step {
    /// Whether the server owes an answer.
    pub(crate) fn awaits_answer(self) -> bool {
        match self {
            Self::Initializing | Self::Discovering | Self::Confirming | Self::Calling { .. } => true,
            Self::Listening | Self::Subscribing { .. } => true,
            Self::Deleting | Self::Posting => true,
            Self::Ready | Self::Streaming | Self::Failed => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "idle",
            Self::Initializing => "initialize",
            Self::Discovering => "server/discover",
            Self::Confirming => "notifications/initialized",
            Self::Listening => "GET",
            Self::Subscribing { .. } => "subscriptions/listen",
            Self::Streaming => "stream",
            Self::Calling { .. } => "request",
            Self::Deleting => "DELETE",
            Self::Posting => "POST",
            Self::Failed => "after a failure",
        })
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) link: Link,
    pub(super) step: Step,
    pub(super) exchange: Exchange,
    pub(super) target: usize,
    pub(super) session: Option<Box<str>>,
    pub(super) is_negotiated: bool,
    pub(super) cursor: Option<Box<str>>,
    pub(super) retry_ms: Option<u32>,
    pub(super) intended: Moment,
    pub(super) sent_at: Moment,
    pub(super) last_heard: Moment,
    /// The id of the `subscriptions/listen` that the stream answers.
    pub(super) subscription: Option<u32>,
    last_request_id: u32,
    last_event_hash: u64,
}

impl Client {
    /// A client without a session, for the server with that index.
    pub(super) fn new(target: usize) -> Self {
        Self {
            link: Link::none(0),
            step: Step::Ready,
            exchange: Exchange::new(),
            target,
            session: None,
            is_negotiated: false,
            cursor: None,
            retry_ms: None,
            intended: Moment::default(),
            sent_at: Moment::default(),
            last_heard: Moment::default(),
            subscription: None,
            last_request_id: INITIALIZE_ID,
            last_event_hash: 0,
        }
    }

    /// A client that speaks for the session of `other`.
    pub(super) fn joining(other: &Self) -> Self {
        Self { session: other.session.clone(), is_negotiated: other.is_negotiated, ..Self::new(other.target) }
    }

    /// What requests of this client carry.
    pub(super) fn standing<'a>(&'a self, cursor: Option<&'a str>) -> Standing<'a> {
        Standing { session: self.session.as_deref(), cursor, negotiated: self.is_negotiated }
    }

    pub(super) fn forget_session(&mut self) {
        (self.session, self.cursor, self.is_negotiated) = (None, None, false);
    }

    pub(super) fn next_request_id(&mut self) -> u32 {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        self.last_request_id
    }

    pub(super) fn begin(&mut self, step: Step, bytes: Vec<u8>, intended: Moment) {
        self.step = step;
        self.exchange = Exchange::new();
        self.intended = intended;
        self.sent_at = Moment::now();
        self.link.put(bytes);
    }

    pub(super) fn unlink(&mut self) {
        self.link.close();
        self.exchange = Exchange::new();
    }

    /// Whether the connection died under a request before the server can have taken it up.
    pub(super) fn may_send_again(&self) -> bool {
        self.link.is_reused() && !self.exchange.has_begun()
    }

    pub(super) fn send_again(&mut self) {
        self.link.rewind();
        self.exchange = Exchange::new();
    }

    /// Reads what arrived and emits what it means; returns what completes the step.
    pub(super) fn on_bytes(
        &mut self,
        bytes: &[u8],
        now: Moment,
        run: u32,
        emit: impl FnMut(Notice),
    ) -> Result<Option<Finished>, Cause> {
        if !self.step.awaits_answer() && self.step != Step::Streaming {
            return Err(Cause::Unfit("bytes that no request asked for"));
        }
        self.link.settle();
        self.read_response(bytes, now, run, emit)
    }

    /// Whether an event with this id follows one with the same id; remembers it as the cursor.
    pub(super) fn note_event_id(&mut self, id: Option<String>) -> bool {
        let Some(id) = id else { return false };
        let mut hasher = DefaultHasher::new();
        hasher.write(id.as_bytes());
        let hash = hasher.finish() | 1;
        let repeats = std::mem::replace(&mut self.last_event_hash, hash) == hash;
        self.cursor = (!id.is_empty()).then(|| id.into());
        repeats
    }
}
