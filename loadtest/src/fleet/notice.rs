//! What a fleet tells its scenario: closed sets, so that no outcome is overlooked.

use std::fmt;

use rustix::io::Errno;

use super::Step;
use crate::clock::Moment;
use crate::http::response::Malformed;
use crate::rpc::Verdict;

/// Something happened to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The handshake is complete.
    Ready,
    /// The stream's head has arrived.
    Up,
    /// A comment arrived on a stream, that long after the bytes before it.
    Comment {
        /// Silence before it, in microseconds.
        silence_us: u64,
    },
    /// An event arrived on a stream.
    Event(EventFacts),
    /// A request was answered, completely.
    Replied(Reply),
    /// The server ended a stream.
    Ended(Ending),
    /// The DELETE was answered with a success.
    Deleted,
    /// The plain POST was answered with a success.
    Posted,
    /// The server had closed the idle connection, and the request went out again on a new one.
    SentAgain,
    /// The step did not succeed; the client has no connection any more.
    Failed(Failure),
}

/// What matters of an event on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventFacts {
    /// When it was read.
    pub(crate) at: Moment,
    /// The publication it belongs to.
    pub(crate) marker: Option<u32>,
    /// Whether it has data and carries the same event id as the event before it.
    pub(crate) repeats_id: bool,
    /// What it is; `None` when it has no data, as a priming event, or is no JSON-RPC message.
    pub(crate) kind: Option<crate::rpc::Kind>,
    /// Whether it has data that is no JSON-RPC message.
    pub(crate) is_garbled: bool,
    /// Whether it came on a listen stream and does not say that it belongs to it.
    pub(crate) is_stray: bool,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// When the answer was read, which on a stream is before the stream ends.
    pub(crate) at: Moment,
    /// What it says; `None` when the response ended without an answer to this request.
    pub(crate) verdict: Option<Verdict>,
    /// Whether it came as an event stream.
    pub(crate) is_streamed: bool,
}

/// How a stream ended that the server should have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the last chunk, or as a response of open length.
    Clean,
    /// By a closed connection in the middle of the response.
    Cut,
    /// By a reset.
    Reset,
}

/// A step that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The step.
    pub(crate) during: Step,
    /// Why.
    pub(crate) cause: Cause,
}

/// Why a step did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No connection could be opened.
    Connect(Errno),
    /// The connection failed in the middle.
    Connection(Errno),
    /// The server closed the connection before the answer was complete.
    Cut,
    /// No answer within the time-out.
    Timeout,
    /// The server answered with this status.
    Status(u16),
    /// The answer is not HTTP, or not to be read without doubt.
    Malformed(Malformed),
    /// The answer has the right status and the wrong content.
    Unfit(&'static str),
}

impl Cause {
    /// What a socket's error means: some only come up while connecting.
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH => Self::Connect(errno),
            _ => Self::Connection(errno),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.during, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(errno) => write!(f, "cannot connect ({})", errno_text(*errno)),
            Self::Connection(errno) => write!(f, "connection failed ({})", errno_text(*errno)),
            Self::Cut => f.write_str("connection closed before the answer was complete"),
            Self::Timeout => f.write_str("timed out"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Unfit(what) => f.write_str(what),
        }
    }
}

fn errno_text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
