//! The seam between core and shell: keys, time, effects, output pieces, backend traffic.
//!
//! Owns no state. Everything here is plain data; the [`Shard`](super::shard::Shard) facade consumes and
//! produces it.

use super::{ids::SessionId, jsonrpc::RpcError, quotas::Source, request::ReadRequest};
use bytes::{Bytes, BytesMut};
use std::{fmt, num::NonZeroU64, rc::Rc, sync::Arc};

/// One reading of the clocks, taken by the caller once per turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic milliseconds since the shard started.
    pub ms: u64,
    /// Wall clock, seconds since the Unix epoch; only for the `Date` field.
    pub unix_s: u64,
}

/// A shard's index, `0..shards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

/// Distinguishes successive owners of one slot: drawn from one counter per shard, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(pub NonZeroU64);

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Index into the slab of its kind.
            pub slot: u32,
            /// The owner of that slot this key was made for.
            pub generation: Generation,
        }
    )*};
}

keys! {
    /// A connection of this shard.
    ConnKey
    /// A session of this shard.
    SessionKey
    /// A call in flight: one JSON-RPC request of a client that the backend works on.
    CallKey
}

/// Where random bytes come from: the system in production, a seed in simulations.
pub trait Entropy {
    /// Fills `out` with bytes no client can predict.
    fn fill(&mut self, out: &mut [u8]);
}

/// What the shell is asked to do. Pulled with `Shard::next_effect`, in order.
#[derive(Debug)]
pub enum Effect {
    /// End this connection; answered with `Shard::closed` once its last operation has completed and its
    /// descriptor is closed. May come again with a harder [`Ending`] while the first is under way.
    Close(ConnKey, Ending),
    /// Hand this connection to another shard, with the bytes it has already sent. No output is pending.
    /// The core has forgotten the key when this is pulled. If the target's mailbox is full the shell
    /// writes [`MovedConn::refusal`] and closes.
    Move(MovedConn),
    /// Read the peer's unacknowledged byte count (`SIOCOUTQ`) now and report it with
    /// `Shard::unacknowledged`.
    Measure(ConnKey),
    /// Something for the backend.
    Ask(Ask),
    /// Give this message to every other shard, each with `Shard::broadcast`.
    Broadcast(Announcement),
    /// A publication was given to all it is for on this shard.
    Published(PublicationId, Reach),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Everything was written: shut the write side down, drop input for a moment, close.
    Orderly,
    /// The peer is gone or idle: shut down both sides, close.
    Gone,
    /// The peer does not take its bytes: discard what is unsent, close.
    Cut,
}

/// A connection on its way to the shard that owns the session of its next request, or what that request goes on with.
#[derive(Debug)]
pub struct MovedConn {
    /// The connection's former key on this shard; the shell takes its descriptor from there.
    pub conn: ConnKey,
    /// Where it goes.
    pub shard: ShardId,
    /// Where it comes from.
    pub source: Source,
    /// Everything read and not consumed: it starts at a request line.
    pub bytes: BytesMut,
    /// The request to be answered before those bytes, if it had to be read to know where it belongs.
    pub request: Option<Box<ReadRequest>>,
    /// The static reply for a full mailbox, to be written before closing.
    pub refusal: &'static [u8],
}

/// What a connection's read side should be doing. Asked with `Shard::interest` after every input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Wait for readability without a buffer, then receive.
    Park,
    /// More of a started message is expected: receive into [`Shard::take_input`](super::shard::Shard::take_input).
    Receive,
    /// No input is wanted; only watch for the peer's close (`POLLRDHUP`), whatever it has sent before.
    HangUp,
    /// No input is wanted at present, and the peer's close would change nothing before what it has sent is read; only
    /// watch for the connection's death.
    Failure,
    /// Neither: the connection is ending, or its half-close is known already.
    Nothing,
}

/// A piece of output, owned so that an operation in flight can hold it.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes of the program itself: keep-alives, refusals, chunk ends.
    Static(&'static [u8]),
    /// A payload shared with other streams of this shard.
    Shared(Rc<Bytes>),
    /// Bytes of this connection alone: heads and replies.
    Owned(Bytes),
    /// A few bytes in place: chunk size and event id of one frame.
    Inline(Inline),
}

impl Piece {
    /// The bytes to be written.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Piece::Static(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
            Piece::Owned(bytes) => bytes,
            Piece::Inline(bytes) => bytes.as_slice(),
        }
    }

    /// How many bytes that is.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Up to [`Inline::CAPACITY`] bytes without an allocation.
#[derive(Clone, Copy)]
pub struct Inline {
    len: u8,
    bytes: [u8; Inline::CAPACITY],
}

impl Inline {
    /// Room for the longest priming event in one chunk.
    pub const CAPACITY: usize = 87;

    /// Nothing yet.
    pub const fn new() -> Self {
        Inline { len: 0, bytes: [0; Inline::CAPACITY] }
    }

    /// Appends `more`.
    ///
    /// # Panics
    /// If the capacity is exceeded: callers know their longest content.
    pub fn push(&mut self, more: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + more.len()].copy_from_slice(more);
        self.len += u8::try_from(more.len()).expect("an inline piece is short");
    }

    /// What was pushed.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for Inline {
    fn default() -> Self {
        Inline::new()
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_slice()))
    }
}

// --- Backend traffic ----------------------------------------------------------------------------

/// From the core to the backend.
#[derive(Debug)]
pub enum Ask {
    /// Work on this request and answer with [`Tell::Respond`].
    Call(Call),
    /// Stop working on this call if possible. Its answer, if one still comes, is dropped.
    Cancel(CallKey),
    /// A client notification, for a backend that cares.
    Notified(Notified),
    /// A session's client asked for log messages of this severity and above. The core has answered it, and filters what
    /// the session gets; the backend may say less from now on.
    LogLevel(SessionKey, LogLevel),
    /// A session is gone with everything that belonged to it.
    SessionEnded(SessionKey),
    /// The client's answer to a server request, or the reason why there will be none.
    Answered(ServerRequestId, Result<Bytes, RpcError>),
}

/// A client's request.
#[derive(Debug)]
pub struct Call {
    /// Names the call in everything the backend says about it.
    pub key: CallKey,
    /// The session it belongs to. `None` for a request that says everything itself (2026-07-28): nothing before it or
    /// after it is connected with it, and the end of its reply's connection cancels it.
    pub session: Option<SessionKey>,
    /// The JSON-RPC method, e.g. `tools/call`.
    pub method: Method,
    /// `params` as written, or absent.
    pub params: Option<Bytes>,
    /// `params._meta.progressToken` as written, if any.
    pub progress_token: Option<Bytes>,
    /// The revision to answer in: the session's, or the one the request claims.
    pub revision: Revision,
    /// What the client can be asked for.
    pub client: ClientFeatures,
    /// The `Mcp-Param-*` fields of a `tools/call` of 2026-07-28, for the tool that knows which it wants.
    pub param_fields: Vec<ParamField>,
    /// Who makes it; `None` on a server that lets everybody in.
    pub principal: Option<Principal>,
}

/// Whom a client has proved to be: the name its token stands for. Whatever one principal begins is closed to all others.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal of that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Principal(name.into())
    }

    /// Its name, as in the file of tokens, or the subject of a JWT.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Principal {
    /// Names of people stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal")
    }
}

/// One `Mcp-Param-{name}` field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamField {
    /// What follows `Mcp-Param-`, as written; compared without regard to case.
    pub name: Bytes,
    /// The value without the whitespace around it, as written: it may be in the base64 form.
    pub value: Bytes,
}

/// What a client declared, in `initialize` or in a request's `_meta`, that it can be asked for: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFeatures(u8);

impl ClientFeatures {
    /// `sampling/createMessage`
    pub const SAMPLING: ClientFeatures = ClientFeatures(1);
    /// Sampling with tools (2025-11-25).
    pub const SAMPLING_TOOLS: ClientFeatures = ClientFeatures(1 << 1);
    /// Sampling with the context of servers.
    pub const SAMPLING_CONTEXT: ClientFeatures = ClientFeatures(1 << 2);
    /// `elicitation/create` with a form. An empty declaration means this.
    pub const FORMS: ClientFeatures = ClientFeatures(1 << 3);
    /// `elicitation/create` with a URL (2025-11-25).
    pub const URLS: ClientFeatures = ClientFeatures(1 << 4);
    /// `roots/list`
    pub const ROOTS: ClientFeatures = ClientFeatures(1 << 5);

    /// These and those.
    pub const fn with(self, more: ClientFeatures) -> Self {
        ClientFeatures(self.0 | more.0)
    }

    /// Whether all of `wanted` is here.
    pub const fn has(self, wanted: ClientFeatures) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether something of `wanted` is here.
    pub const fn has_any(self, wanted: ClientFeatures) -> bool {
        self.0 & wanted.0 != 0
    }
}

/// A client's notification.
#[derive(Debug)]
pub struct Notified {
    /// The session it belongs to.
    pub session: SessionKey,
    /// The JSON-RPC method, e.g. `notifications/roots/list_changed`.
    pub method: Method,
    /// `params` as written, or absent.
    pub params: Option<Bytes>,
}

/// A method name, a slice of the request's bytes, known to be UTF-8 without escapes.
#[derive(Clone, PartialEq, Eq)]
pub struct Method(Bytes);

impl Method {
    /// Wraps a method name taken from a parsed envelope.
    pub fn new(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Method(bytes))
    }

    /// Shares the bytes of `name`, which is a part of `body`.
    pub(super) fn within(body: &Bytes, name: &str) -> Self {
        Method(body.slice_ref(name.as_bytes()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when made")
    }

    /// The name as bytes, to be compared.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A request the server sends to a client, numbered by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerRequestId(pub u64);

/// From the backend to the core.
#[derive(Debug)]
pub enum Tell {
    /// The result or error of a call; its last word. The bytes are one JSON value. The result of an `initialize` names the
    /// revision in `protocolVersion`: the session adopts it, or fails to begin if it is none of [`Revision::WITH_SESSIONS`].
    Respond(CallKey, Result<Bytes, RpcError>),
    /// There is no room for another session: the POST of an `initialize` gets 503 with `Retry-After`, and nothing remains
    /// of the session. Any other call fails with an error.
    Refuse(CallKey),
    /// What stands behind this session is gone for good. The session ends with everything that belongs to it, so that
    /// its client learns from the 404 to begin again.
    EndSession(SessionKey),
    /// A notification that belongs to a call: progress, a log message, anything about it. If the call became a listen
    /// stream: something for this one alone, of a kind that it carries.
    Notify(CallKey, Notification),
    /// A notification for one session's listener.
    Announce(SessionKey, Notification),
    /// A notification for every session of every shard; one of [`NotificationKind::ResourceUpdated`] only for those that
    /// are subscribed to the resource.
    Broadcast(Notification),
    /// Subscribes the session of a call to a resource, and answers the call: `{}`, or an error if its session has too many
    /// subscriptions. Until it unsubscribes or ends it gets the broadcasts about the resource.
    Subscribe(CallKey, Arc<str>),
    /// The opposite; answers the call with `{}`.
    Unsubscribe(CallKey, Arc<str>),
    /// Answers a `subscriptions/listen` (2026-07-28): its reply becomes a stream that says what it carries, and then carries
    /// the broadcasts of those kinds. It lasts until its client closes it, of which the backend hears by [`Ask::Cancel`],
    /// or until the backend answers the call with [`Tell::Respond`].
    Listen(CallKey, Listening),
    /// A request to the client; answered with [`Ask::Answered`].
    Request(ServerRequest),
    /// End the stream of this call's POST before its response; the client comes back for the rest after this many
    /// milliseconds (2025-11-25, "polling"). Ignored where the client could not come back.
    CloseStream(CallKey, u64),
    /// End the GET streams of a session; its client comes back after this many milliseconds, and what is sent meanwhile
    /// waits.
    CloseListeners(SessionKey, u64),
}

impl Tell {
    /// The call it is about, if it is about one.
    pub fn call(&self) -> Option<CallKey> {
        match self {
            Tell::Respond(call, _)
            | Tell::Refuse(call)
            | Tell::Notify(call, _)
            | Tell::Subscribe(call, _)
            | Tell::Unsubscribe(call, _)
            | Tell::Listen(call, _)
            | Tell::CloseStream(call, _) => Some(*call),
            Tell::EndSession(_)
            | Tell::Announce(..)
            | Tell::Broadcast(_)
            | Tell::Request(_)
            | Tell::CloseListeners(..) => None,
        }
    }
}

/// What a listen stream carries: what its client asked for, as far as the backend has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// `notifications/tools/list_changed`
    pub tools: bool,
    /// `notifications/prompts/list_changed`
    pub prompts: bool,
    /// `notifications/resources/list_changed`
    pub resources: bool,
    /// `notifications/resources/updated` of these resources.
    pub uris: Vec<Arc<str>>,
}

/// A request of the server to a client (sampling, elicitation, roots, ping).
#[derive(Debug)]
pub struct ServerRequest {
    /// The backend's number for it, unique on the shard; also its JSON-RPC id.
    pub id: ServerRequestId,
    /// Whose client is asked.
    pub session: SessionKey,
    /// The call on whose behalf: its stream carries the request.
    pub call: Option<CallKey>,
    /// The JSON-RPC method.
    pub method: ServerMethod,
    /// `params`, one JSON object, or absent.
    pub params: Option<Bytes>,
    /// How long the client may take, in milliseconds.
    pub timeout_ms: u64,
}

/// The code of the error with which a request fails that the client did not answer in time.
pub const ASK_TIMED_OUT: i32 = -32001;

/// What a server may ask a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMethod {
    /// `ping`
    Ping,
    /// `sampling/createMessage`
    CreateMessage,
    /// `elicitation/create`
    Elicit,
    /// `roots/list`
    ListRoots,
}

impl ServerMethod {
    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            ServerMethod::Ping => "ping",
            ServerMethod::CreateMessage => "sampling/createMessage",
            ServerMethod::Elicit => "elicitation/create",
            ServerMethod::ListRoots => "roots/list",
        }
    }
}

/// A server notification, serialised once.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Decides merging, filtering and what goes first when a queue is full.
    pub kind: NotificationKind,
    /// The whole JSON-RPC message on one line.
    pub json: Bytes,
}

/// What a notification is, as far as routing needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotificationKind {
    /// `notifications/tools/list_changed`
    ToolsListChanged,
    /// `notifications/prompts/list_changed`
    PromptsListChanged,
    /// `notifications/resources/list_changed`
    ResourcesListChanged,
    /// `notifications/resources/updated`, with its URI
    ResourceUpdated(Arc<str>),
    /// `notifications/progress`
    Progress,
    /// `notifications/message`, with its level
    Log(LogLevel),
    /// Anything else
    Other,
}

/// The severities of `notifications/message` (RFC 5424), least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// The level of that name, spelled as in the specification.
    pub fn from_name(name: &str) -> Option<Self> {
        use LogLevel::*;
        [Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency]
            .into_iter()
            .find(|level| level.name() == name)
    }

    /// The specification's spelling.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }
}

/// A broadcast on its way between shards: the payload is already framed as an SSE event and shared.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// As in [`Notification::kind`].
    pub kind: NotificationKind,
    /// `event: message\ndata: …\n\n`
    pub payload: Bytes,
}

// --- Publications -------------------------------------------------------------------------------

/// A notification from outside the protocol; answered with [`Effect::Published`].
#[derive(Debug)]
pub struct Publication {
    /// The caller's number for it.
    pub id: PublicationId,
    /// Who is to get it.
    pub audience: Audience,
    /// What they get.
    pub announcement: Announcement,
}

/// Tells the publications under way on one shard apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicationId(pub usize);

/// Who a publication is for.
#[derive(Clone, Debug)]
pub enum Audience {
    /// Every session, as a broadcast of the backend.
    All,
    /// This one, if it lives on the shard that is told.
    Session(SessionId),
    /// The sessions of this principal.
    Principal(Principal),
}

/// What became of a publication: how many sessions and listen streams it was for, and how it went for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Sessions it was for; with `listens` the sum of the others.
    pub sessions: u64,
    /// Listen streams that asked for it.
    pub listens: u64,
    /// It was given to a stream that is attached.
    pub written: u64,
    /// It waits in the session for a stream, or for room in one.
    pub pending: u64,
    /// The session asked not to see log messages of that level.
    pub filtered: u64,
    /// The session had no room for it.
    pub refused: u64,
}

impl Reach {
    /// Both together, as of two shards.
    #[must_use]
    pub fn plus(self, other: Reach) -> Reach {
        Reach {
            sessions: self.sessions + other.sessions,
            listens: self.listens + other.listens,
            written: self.written + other.written,
            pending: self.pending + other.pending,
            filtered: self.filtered + other.filtered,
            refused: self.refused + other.refused,
        }
    }
}

/// Revisions of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05, also spoken over Streamable HTTP by older clients.
    V2024_11_05,
    /// 2025-03-26: the only one with JSON-RPC batches.
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25: the first with priming events and polling, the last with sessions.
    V2025_11_25,
    /// 2026-07-28: every request says what it needs, none belongs to a session.
    V2026_07_28,
}

impl Revision {
    /// All, oldest first.
    pub const ALL: [Revision; 5] = [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
        Revision::V2026_07_28,
    ];
    /// Those that begin with `initialize`, oldest first.
    pub const WITH_SESSIONS: [Revision; 4] =
        [Revision::V2024_11_05, Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25];
    /// Those whose requests say everything themselves, oldest first.
    pub const WITHOUT_SESSIONS: [Revision; 1] = [Revision::V2026_07_28];
    /// What a client is offered whose `initialize` asks for something else.
    pub const NEWEST_WITH_SESSIONS: Revision = Revision::V2025_11_25;

    /// The revision of that date.
    pub fn from_date(date: &str) -> Option<Self> {
        Revision::ALL.into_iter().find(|revision| revision.date() == date)
    }

    /// The revision of that date, if it begins with `initialize`.
    pub fn with_sessions_from_date(date: &str) -> Option<Self> {
        Revision::from_date(date).filter(|revision| revision.has_sessions())
    }

    /// The date that names it.
    pub fn date(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether it begins with `initialize`.
    pub fn has_sessions(self) -> bool {
        self < Revision::V2026_07_28
    }
}
