//! What happened on one shard, in plain numbers.
//!
//! Owned by the shard, written without atomics. Every abnormal path and every bound that was hit has a counter
//! here; nothing in it names a client or a session.

/// Makes a structure of counters; what is written above each is what operators read of it.
macro_rules! counters {
    ($(#[$about:meta])* $vis:vis struct $Name:ident; $($(#[doc = $help:literal])* $name:ident)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $vis struct $Name {
            $($(#[doc = $help])* $vis $name: u64,)*
        }

        impl $Name {
            /// Every counter with what it counts, in order.
            $vis const HELP: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($help),*))),*];

            /// Every counter with its name, in order.
            $vis fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// Events of one shard since it started.
    pub struct Counters;

    /// Connections admitted.
    connections
    /// Connections refused at the cap.
    connections_refused
    /// Connections, sessions, streams and large bodies refused, and large answers dropped, because their client has as much as
    /// one client may.
    clients_over_quota
    /// Sessions, streams and large bodies refused because memory is short.
    refused_for_memory
    /// Connections handed to another shard.
    connections_moved
    /// Request heads that parsed, each on the shard that answers it.
    requests
    /// Requests answered by a refusal of HTTP or of the envelope.
    requests_refused
    /// Requests refused with 401 because they came without a bearer token.
    requests_without_token
    /// Requests refused with 401 because their token was unknown, malformed, expired or revoked.
    requests_with_bad_token
    /// Requests refused with 429 because their address had sent too many bad tokens.
    tokens_over_pace
    /// Requests refused with 403 because their token lacks a scope.
    requests_without_scope
    /// Tokens looked at in full: unknown to the shard so far, and good.
    tokens_verified
    /// Streams ended because their token expired or was revoked.
    streams_unauthorized
    /// Sessions begun.
    sessions
    /// Sessions refused at the cap.
    sessions_refused
    /// Sessions ended because the handshake did not go on.
    sessions_handshake_expired
    /// Sessions ended by the idle clock.
    sessions_idle_expired
    /// Sessions ended by DELETE.
    sessions_deleted
    /// Sessions over HTTP+SSE ended with the stream that carried them.
    sessions_severed
    /// Sessions ended because what stood behind them is gone.
    sessions_abandoned
    /// Sessions ended because their owner may come in no longer.
    sessions_revoked
    /// Sessions ended because the server stopped.
    sessions_stopped
    /// Listener streams ended because the server stops.
    streams_drained
    /// Requests that named no session of this server.
    sessions_unknown
    /// Calls given to the backend.
    calls
    /// Calls refused because the session had too many in flight.
    calls_refused
    /// Calls ended by the request time-out.
    calls_timed_out
    /// Calls cancelled by the client.
    calls_cancelled
    /// Cancellations that matched no call, or more than one.
    cancels_ignored
    /// Replies that may not have arrived and that no cursor can recover.
    replies_lost
    /// Of those, the ones given to a plain GET.
    replies_recovered
    /// Subscriptions refused because the session had too many.
    subscriptions_refused
    /// Requests without a session (2026-07-28) given to the backend.
    exchanges
    /// Of such requests, those refused for want of room or because the server stops.
    exchanges_refused
    /// Listen streams opened.
    listens
    /// Listen streams refused at a cap.
    listens_refused
    /// Requests sent to clients.
    asks
    /// Requests to clients that failed: time-out, missing capability, full queue, end of session.
    asks_failed
    /// Answers of clients to requests that were not, or no longer, waited for.
    answers_ignored
    /// Streams ended early for their client to come back.
    streams_closed_early
    /// Sessions begun over HTTP+SSE (2024-11-05).
    carriers
    /// GET streams opened.
    listeners
    /// GET streams refused at a cap.
    listeners_refused
    /// GETs whose cursor named a finished request stream.
    listeners_fallen_through
    /// GETs that continued the stream of their cursor.
    streams_continued
    /// Cursors answered with 400.
    cursors_refused
    /// Primaries that did not acknowledge a probe in time.
    primaries_demoted
    /// Shadows that became primary.
    primaries_promoted
    /// Comments written as keep-alive.
    comments
    /// Milliseconds by which keep-alive comments were late, summed.
    comments_late_ms
    /// The worst of them.
    comments_late_ms_max
    /// Events written to streams.
    events
    /// Messages merged into a waiting one that says the same.
    messages_merged
    /// Messages dropped because a queue was full.
    messages_dropped
    /// Broadcasts dropped because too many waited to be handed out.
    broadcasts_dropped
    /// Log messages below their session's level.
    messages_filtered
    /// Events evicted from logs before their time.
    events_evicted
    /// Events moved from a dead primary to its successor.
    events_moved
    /// Connections cut because they did not take their bytes in time.
    connections_stalled
    /// Connections cut because too much waited for them.
    connections_overflowed
    /// Heads or bodies that did not arrive in time.
    requests_timed_out
    /// Lines of the access log left out because too many requests ended in one turn.
    access_notes_dropped
    /// Backend messages that named something that is no more.
    tells_stale
    /// Backend messages refused for their size.
    messages_oversized
}
