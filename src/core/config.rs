//! What every shard of a process is told at start. Read-only afterwards, shared by all shards.

use super::{auth::Authenticator, http::policy::Policy, quotas::Quotas};
use crate::limits;
use std::sync::Arc;

/// Settings of the core; each field names the flag that sets it.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Shards of the process (`--shards`), `1..=SHARDS_MAX`.
    pub shards: u16,
    /// Endpoint path, hosts and origins (`--path`, `--allow-host`, `--allow-origin`).
    pub policy: Policy,
    /// Who gets in (`--auth`); `None`: everybody.
    pub auth: Option<Arc<Authenticator>>,
    /// Silence of a stream after which it gets a comment; 0 disables (`--keep-alive`).
    pub keep_alive_ms: u64,
    /// What a further plain GET does (`--listener-policy`).
    pub listener_policy: ListenerPolicy,
    /// Form of replies to POSTs (`--response-mode`).
    pub response_mode: ResponseMode,
    /// Silence of a call after which its reply becomes a stream (`--sse-after`).
    pub sse_after_ms: u64,
    /// Which streams of 2025-11-25 sessions are primed (`--priming`).
    pub priming: Priming,
    /// The reconnection hint of primed streams (`--retry`).
    pub retry_ms: u64,
    /// Life of a session without activity (`--session-idle-timeout`).
    pub session_idle_timeout_ms: u64,
    /// From `initialize` to the first further request (`--handshake-timeout`).
    pub handshake_timeout_ms: u64,
    /// A call that never answers (`--request-timeout`).
    pub request_timeout_ms: u64,
    /// A head that does not end (`--header-timeout`).
    pub header_timeout_ms: u64,
    /// A body that does not end (`--body-timeout`).
    pub body_timeout_ms: u64,
    /// A connection between two requests (`--idle-timeout`).
    pub idle_timeout_ms: u64,
    /// Output without progress (`--write-timeout`).
    pub write_timeout_ms: u64,
    /// Request body (`--max-body`).
    pub body_bytes_max: usize,
    /// One message of the backend (`--max-message`).
    pub message_bytes_max: usize,
    /// Bytes waiting behind the frame being written (`--write-buffer`).
    pub write_buffer_bytes: usize,
    /// Events kept per session for replay (`--replay-events`).
    pub replay_events_max: usize,
    /// Bytes kept per session for replay (`--replay-bytes`).
    pub replay_bytes_max: usize,
    /// How long events are kept for replay (`--replay-ttl`).
    pub replay_ttl_ms: u64,
    /// Whether a plain GET is given replies that no cursor can recover (`--fresh-get-fallback`).
    pub fresh_get_fallback: bool,
    /// Requests in a million that get a line in the log (`--access-log-sample`); 0: none.
    pub access_log_ppm: u32,
    /// Connections of the process (`--max-connections`).
    pub connections_max: usize,
    /// Sessions of the process, and listen streams of each shard (`--max-sessions`).
    pub sessions_max: usize,
    /// Which shard works on a request without a session; the backend's choice, no flag.
    pub stateless_home: StatelessHome,
    /// Requests without a session in flight per shard; no flag.
    pub exchanges_max: usize,
    /// Bytes held for clients beyond which newcomers are refused (`--memory-limit`); `usize::MAX`: never.
    pub memory_bytes_max: usize,
    /// What one client may have of them.
    pub quotas: Quotas,
}

impl CoreConfig {
    /// The defaults of every flag, for that many shards behind that policy.
    pub fn new(shards: u16, policy: Policy) -> Self {
        CoreConfig {
            shards,
            policy,
            auth: None,
            keep_alive_ms: limits::KEEP_ALIVE_MS,
            listener_policy: ListenerPolicy::First,
            response_mode: ResponseMode::Auto,
            sse_after_ms: limits::SSE_AFTER_MS,
            priming: Priming::Auto,
            retry_ms: limits::RETRY_MS,
            session_idle_timeout_ms: limits::SESSION_IDLE_TIMEOUT_MS,
            handshake_timeout_ms: limits::HANDSHAKE_TIMEOUT_MS,
            request_timeout_ms: limits::REQUEST_TIMEOUT_MS,
            header_timeout_ms: limits::HEADER_TIMEOUT_MS,
            body_timeout_ms: limits::BODY_TIMEOUT_MS,
            idle_timeout_ms: limits::IDLE_TIMEOUT_MS,
            write_timeout_ms: limits::WRITE_TIMEOUT_MS,
            body_bytes_max: limits::BODY_BYTES_MAX,
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            write_buffer_bytes: limits::WRITE_BUFFER_BYTES_MAX,
            replay_events_max: limits::REPLAY_EVENTS_MAX,
            replay_bytes_max: limits::REPLAY_BYTES_MAX,
            replay_ttl_ms: limits::REPLAY_TTL_MS,
            fresh_get_fallback: true,
            access_log_ppm: 0,
            connections_max: usize::MAX,
            sessions_max: limits::SESSIONS_MAX,
            stateless_home: StatelessHome::Anywhere,
            exchanges_max: limits::EXCHANGES_PER_SHARD_MAX,
            memory_bytes_max: usize::MAX,
            quotas: Quotas::NONE,
        }
    }
}

/// What a plain GET does while another listener is primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerPolicy {
    /// It waits as a shadow while the primary is probed.
    First,
    /// It takes over at once: for proxies that keep dead listeners open.
    Latest,
}

/// The form of a reply to a POST, where the client accepts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    /// JSON if the response is the first thing there is to say, else a stream.
    Auto,
    /// Always a stream.
    Sse,
    /// Always JSON; what a call says before its response goes to the listener queue or is dropped.
    Json,
}

/// Which new streams of sessions at 2025-11-25 or later open with a priming event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priming {
    /// All.
    Auto,
    /// Those opened by a POST.
    Post,
    /// None.
    Off,
}

/// Which shard works on a request without a session, unless its state names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatelessHome {
    /// The one that read it.
    Anywhere,
    /// One for each principal, and one for all whom nobody knows: something there serves that principal alone.
    OfPrincipal,
}
