//! Every bound of the server in one place, each with its reason.
//!
//! A value an operator can change is the default of a flag; the flag's name stands beside it. Reaching a
//! bound is always a documented behaviour with a counter, never a panic and never silent loss.
//! Units are last in the name: `_ms`, `_bytes`, or a plain count.

/// One tick of a shard's timer wheel. Deadlines are rounded up to it; it bounds keep-alive lateness.
pub const TICK_MS: u64 = 16;

// --- HTTP ---------------------------------------------------------------------------------------

/// Request line and header fields together; more is 431. Above the 8,000 octets RFC 9112 section 3 asks
/// for, below anything that would make an idle flood expensive.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Request target; longer is 414. Leaves room for the rest of the request line within the head.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Header fields of one request; more is 431.
pub const HEADERS_MAX: usize = 64;
/// Empty lines tolerated before a request line (RFC 9112 section 2.2 asks for at least one).
pub const LEADING_EMPTY_LINES_MAX: usize = 4;
/// One chunk-size line with its extensions, and the whole trailer section; more is 400.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Trailer section of a chunked body; more is 431.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Request body (`--max-body`); more is 413.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Read buffer lent to a connection that has something to say.
pub const READ_BUFFER_BYTES: usize = 8 * 1024;
/// Read buffers kept per shard for reuse; beyond it they are freed. One is lent at a time, and stays with its
/// connection only while a message is unfinished.
pub const READ_BUFFERS_POOLED: usize = 8;

/// How long until the kernel is asked, or asked again, whether a reply arrived; until then what it was is kept.
pub const ACK_CHECK_MS: u64 = 1_000;
/// The same while the connection's next request waits for the answer: about as long as a peer delays an acknowledgement.
pub const ACK_RECHECK_MS: u64 = 32;
/// Replies of one connection that are not known to have arrived; its next request waits until some of them are. The
/// kernel is asked once for half as many.
pub const UNPROVEN_REPLIES_MAX: usize = 16;
/// Bytes of JSON replies among them, from which on the next request waits; the kernel is asked at half.
pub const UNPROVEN_BYTES_MAX: usize = 128 * 1024;
/// Emptied lists of such replies kept per shard for reuse.
pub const UNPROVEN_POOLED: usize = 64;
/// Emptied output queues kept per shard for reuse.
pub const OUTPUTS_POOLED: usize = 64;
/// Emptied places of input kept per shard for reuse: most are in use for the length of one turn.
pub const INPUTS_POOLED: usize = 64;
/// Structures of writes kept per shard for reuse: as many as a busy one has in flight.
pub const MESSAGES_POOLED: usize = 256;
/// Output a connection may hold before no further message is pulled for it, in bytes.
pub const PULL_BELOW_BYTES: usize = 16 * 1024;
/// A connection that made progress this recently is not called slow, however much waits for it.
pub const BURST_MS: u64 = 100;

// --- JSON-RPC -----------------------------------------------------------------------------------

/// Nesting of arrays and objects in a body; deeper is refused before it is parsed.
pub const JSON_DEPTH_MAX: usize = 128;
/// A JSON-RPC id as written, quotes included. Ids are kept while a call runs.
pub const ID_BYTES_MAX: usize = 256;
/// A body up to this size may be kept for the sake of an id in it; of a larger one the id is copied.
pub const SMALL_BODY_BYTES: usize = 4 * 1024;
/// Messages in one batch of a 2025-03-26 session.
pub const BATCH_MESSAGES_MAX: usize = 64;
/// One message of a backend; a larger one fails its call (`--max-message`).
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

// --- Sessions and streams -----------------------------------------------------------------------

/// Shards a session id can name.
pub const SHARDS_MAX: usize = 256;
/// Attached or resumable GET streams per session.
pub const GET_STREAMS_PER_SESSION_MAX: usize = 32;
/// Fallen-through streams per session; a further one gets 405, which stops an EventSource.
pub const FALLEN_THROUGH_PER_SESSION_MAX: usize = 16;
/// Calls in flight per session; a further one is refused as a JSON-RPC error with HTTP 200.
pub const CALLS_PER_SESSION_MAX: usize = 1024;
/// Requests without a session in flight per shard, listen streams aside; a further one gets 503. As many as some dozens of
/// busy sessions may have.
pub const EXCHANGES_PER_SHARD_MAX: usize = 64 * 1024;
/// Requests to the client a session waits for; a further one fails to the backend at once.
pub const ASKS_PER_SESSION_MAX: usize = 256;
/// Messages waiting for a primary per session.
pub const QUEUE_MESSAGES_MAX: usize = 256;
/// Messages waiting for the stream of a session over HTTP+SSE: all calls answered at once, and a queue.
pub const CARRIED_MESSAGES_MAX: usize = CALLS_PER_SESSION_MAX + QUEUE_MESSAGES_MAX;
/// Bytes waiting for it, one message of any size aside, while its connection makes progress.
pub const CARRIED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes waiting for a primary per session.
pub const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// Events kept for replay per session (`--replay-events`).
pub const REPLAY_EVENTS_MAX: usize = 1024;
/// Bytes kept for replay per session (`--replay-bytes`).
pub const REPLAY_BYTES_MAX: usize = 1024 * 1024;
/// What `--replay-bytes`, `--max-message` and `--max-body` may be at most: sessions and calls count their bytes in 32 bits,
/// and a session holds one message more than its bound.
pub const KEPT_BYTES_MAX: usize = 1 << 30;
/// How long an ended attachment's log is kept (`--replay-ttl`); longer than the TCP user timeout.
pub const REPLAY_TTL_MS: u64 = 120_000;
/// Request streams per session remembered for an evicted response; the cursor of an older one is fallen-through.
pub const LOST_RESPONSES_PER_SESSION_MAX: usize = 64;
/// Messages per session whose arrival a cursor may prove after they moved to another stream; of an older one there is no
/// proof any more, and it is sent.
pub const MOVED_PER_SESSION_MAX: usize = 64;
/// Bytes waiting behind the frame being written, per connection (`--write-buffer`).
pub const WRITE_BUFFER_BYTES_MAX: usize = 256 * 1024;
/// Resources a session or a listen stream can be subscribed to; more are refused as a JSON-RPC error.
pub const SUBSCRIPTIONS_PER_SESSION_MAX: usize = 256;
/// Sessions of the process when nothing derives a better number (`--max-sessions`).
pub const SESSIONS_MAX: usize = 1_000_000;

/// What a session with one open stream takes of the server's memory, rounded up (`docs/performance.md`).
pub const SESSION_BYTES: usize = 450;
/// What the kernel takes for one open socket without data, as measured.
pub const SOCKET_BYTES: usize = 4 * 1024;

// --- Deadlines ----------------------------------------------------------------------------------

/// A comment after this long without a write to a stream (`--keep-alive`). Shorter than the idle time-outs
/// of common proxies (60 s).
pub const KEEP_ALIVE_MS: u64 = 15_000;
/// From accept, or from the first byte of a request, to the end of its head (`--header-timeout`); 408.
pub const HEADER_TIMEOUT_MS: u64 = 10_000;
/// From the end of the head to the end of the body (`--body-timeout`); 408.
pub const BODY_TIMEOUT_MS: u64 = 30_000;
/// A kept-alive connection between two requests (`--idle-timeout`).
pub const IDLE_TIMEOUT_MS: u64 = 75_000;
/// Output that makes no progress (`--write-timeout`).
pub const WRITE_TIMEOUT_MS: u64 = 30_000;
/// From `initialize` to the first valid request or GET of the session (`--handshake-timeout`).
pub const HANDSHAKE_TIMEOUT_MS: u64 = 60_000;
/// A session without activity (`--session-idle-timeout`).
pub const SESSION_IDLE_TIMEOUT_MS: u64 = 30 * 60_000;
/// A call that never answers (`--request-timeout`).
pub const REQUEST_TIMEOUT_MS: u64 = 60 * 60_000;
/// What a client gets to answer a request of the server, unless the handler says otherwise: a user may have to be asked.
pub const ASK_TIMEOUT_MS: u64 = 5 * 60_000;
/// Silence of a call after which its reply becomes a stream (`--sse-after`).
pub const SSE_AFTER_MS: u64 = 1_000;
/// Between two comments to a client without a session that has closed its side: whether it is gone, and its request to be
/// cancelled, only a write that fails tells.
pub const SILENT_PEER_PROBE_MS: u64 = 1_000;
/// How long a probed primary has to acknowledge a comment before it is demoted.
pub const PROBE_TIMEOUT_MS: u64 = 5_000;
/// The `retry` hint of a primed stream (`--retry`).
pub const RETRY_MS: u64 = 3_000;
/// What an orderly end waits for the peer's own close.
pub const LINGER_MS: u64 = 2_000;
/// How long a refused newcomer is kept: a request that was on its way has arrived by then.
pub const REFUSED_LINGER_MS: u64 = 500;
/// What a server that stops waits for the first requests of connections that it has just accepted.
pub const NEWCOMERS_WAIT_MS: u64 = 250;
/// Input dropped when a refused newcomer is closed.
pub const REFUSED_INPUT_BYTES_MAX: usize = 64 * 1024;
/// What a forced end waits for the last operations.
pub const FORCED_END_MS: u64 = 500;
/// How long a listener rests when the host is out of descriptors or memory.
pub const LISTENER_PAUSE_MS: u64 = 20;
/// What a stop may take (`--drain`): listener streams end over the first half of it, running calls have all of it.
pub const DRAIN_MS: u64 = 10_000;
/// Listener streams a shard that stops ends in a second, at least: few of them do not take the time that many need.
pub const DRAIN_ENDS_PER_S_MIN: u64 = 1_000;
/// The pace of a stop: streams end in groups this far apart, and shards look this often whether the others have finished.
pub const DRAIN_STEP_MS: u64 = 20;
/// Input dropped during an orderly end before it becomes a hard one.
pub const LINGER_BYTES_MAX: usize = 64 * 1024;
/// `Retry-After` of a 503, in seconds.
pub const RETRY_AFTER_S: u64 = 5;

// --- Who gets in --------------------------------------------------------------------------------

/// A bearer token; a longer one is refused before it is hashed. A JWT with many claims has 2 to 4 KiB.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// The name of a principal.
pub const PRINCIPAL_BYTES_MAX: usize = 256;
/// Keys tried for one token that does not say which one it was signed with.
pub const JWT_KEYS_TRIED_MAX: usize = 4;
/// What the clocks of an issuer and this server may differ by (`--jwt-skew`).
pub const JWT_SKEW_MS: u64 = 60_000;
/// Verified tokens that a shard remembers although no connection uses them at present; about 200 bytes each.
pub const IDLE_CREDENTIALS_MAX: usize = 4096;

// --- What one client may have -------------------------------------------------------------------

/// Unless somebody says otherwise one client may have this part of what there is for all: enough for an office behind one
/// address, and sixteen such clients are needed to take everything.
pub const CLIENT_SHARE: usize = 16;
/// And never less than this (as far as there is as much): browsers and agents open several of everything.
pub const CLIENT_SHARE_MIN: usize = 256;
/// Sessions one client may begin per second (`--max-session-rate`); ten seconds' worth at once.
pub const SESSION_RATE_MAX: usize = 100;
/// Bad tokens one address may send per second (`--max-bad-token-rate`), ten seconds' worth at once. A signature takes about
/// as long to check as twenty requests to answer.
pub const BAD_TOKEN_RATE_MAX: usize = 10;
/// Beyond that one in so many of its unknown JWTs is still looked at: somebody honest behind the same address gets in.
pub const UNKNOWN_TOKENS_PER_LOOK: u64 = 16;
/// Parts of the ledger of clients, each with a lock of its own.
pub const LEDGER_STRIPES: usize = 64;
/// Clients with nothing to their name whose pace is remembered; about 60 bytes each.
pub const LEDGER_IDLE_ACCOUNTS_MAX: usize = 65_536;

// --- Memory -------------------------------------------------------------------------------------

/// What a connection, its session and its stream are taken to need when memory is counted (`--memory-limit`), sockets of
/// the kernel aside.
pub const ENTRY_BYTES_EXPECTED: usize = 600;
/// In steps of this a shard adds what it holds to the sum of all.
pub const MEMORY_STEP_BYTES: usize = 64 * 1024;

// --- Sockets ------------------------------------------------------------------------------------

/// Connections the kernel keeps for a listener; it applies `net.core.somaxconn` as well.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Unacknowledged data, or silence of a peer that was asked, for this long ends a connection.
pub const TCP_USER_TIMEOUT_MS: u64 = 30_000;
/// Silence before the kernel asks whether a peer is still there.
pub const TCP_KEEP_ALIVE_S: u64 = 60;
/// Between two such questions; [`TCP_USER_TIMEOUT_MS`] bounds their number.
pub const TCP_KEEP_ALIVE_INTERVAL_S: u64 = 10;
/// Unsent bytes the kernel takes for one connection before it calls it not writable.
pub const NOT_SENT_BYTES_MAX: u32 = 16 * 1024;
/// Send buffer of one connection. The kernel doubles it for its own bookkeeping; without it, it takes megabytes for a
/// peer that does not read.
pub const SEND_BUFFER_BYTES: usize = 128 * 1024;

// --- Requests in several rounds, and tasks (2026-07-28) -------------------------------------------

/// Handlers of one shard that wait for their clients to come back with answers; beyond it the oldest of whichever principal has
/// most is given up.
pub const PARKED_HANDLERS_MAX: usize = 1024;
/// What they may take in all, as far as it can be counted: their futures, parameters and questions.
pub const PARKED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long one of them waits beyond the time its client has for the answers, so that a client that is late learns why.
pub const PARKED_GRACE_MS: u64 = 60_000;
/// The longest it waits, whatever the handler allows.
pub const PARKED_MS_MAX: u64 = 60 * 60_000;
/// Tasks of the process; beyond it calls that would become tasks stay calls.
pub const TASKS_MAX: usize = 4096;
/// Results of tasks that are kept in the process; one that finds no room fails its task.
pub const TASK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A principal has one part of so many of these two at most.
pub const TASK_SHARES_MIN: usize = 4;
/// The longest time to live of a task.
pub const TASK_TTL_MS_MAX: u64 = 24 * 60 * 60_000;
/// How often clients are asked to look after a task.
pub const TASK_POLL_MS: u64 = 500;

// --- The admin listener -------------------------------------------------------------------------

/// Connections to the admin listener at one time; a further one waits in the backlog.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;
/// A peer of the admin listener that takes no bytes for this long loses its place.
pub const ADMIN_WRITE_TIMEOUT_MS: u64 = 10_000;
/// Publications under way at one time, their bodies included; a further one gets 503.
pub const PUBLICATIONS_MAX: usize = 8;
/// The body of a publication has to arrive within this time.
pub const PUBLICATION_BODY_TIMEOUT_MS: u64 = 10_000;
/// What a publication may take to come by all sessions before its publisher gets what is known: a million sessions on one
/// core take about ten seconds.
pub const PUBLICATION_TIMEOUT_MS: u64 = 60_000;
/// The name of a published method, in bytes.
pub const METHOD_BYTES_MAX: usize = 256;
/// What a shard may take to say how it is; a healthy one takes one turn.
pub const STATISTICS_TIMEOUT_MS: u64 = 2_000;
/// Live pages open at one time, so that they leave room for everyone else.
pub const LIVE_STREAMS_MAX: usize = 8;
/// Between two updates of the live page.
pub const LIVE_INTERVAL_MS: u64 = 1_000;

// --- The log ------------------------------------------------------------------------------------

/// Requests of the access log that may end in one turn; a further one has no line, and is counted.
pub const ACCESS_NOTES_MAX: usize = 1024;
/// Between two lines of a shard about refusals.
pub const REFUSALS_NOTICE_MS: u64 = 10_000;

// --- The loop -----------------------------------------------------------------------------------

/// Sends of keep-alives and broadcasts per turn: about half a millisecond of kernel time, which a call that comes
/// meanwhile has to wait.
pub const SENDS_PER_TURN_MAX: usize = 64;
/// Timers expired per turn.
pub const EXPIRIES_PER_TURN_MAX: usize = 128;
/// Completed operations taken per turn: enough for a busy shard; in a mass disconnect the rest waits while those who
/// are still there are served.
pub const COMPLETIONS_PER_TURN_MAX: usize = 1024;
/// Comments sent in a turn that is full of replies, so that neither starves.
pub const COMMENTS_PER_TURN_MIN: usize = 16;
/// Messages taken from other shards per turn.
pub const MAIL_PER_TURN_MAX: usize = 128;
/// Messages one shard may have waiting for another.
pub const MAILBOX_MESSAGES_MAX: usize = 1024;
/// Messages the admin listener may have waiting for one shard: what all its connections ask at once.
pub const OUTSIDE_MESSAGES_MAX: usize = 64;
/// A write of several pieces up to this size is copied into one: that takes some ten nanoseconds, which a list of slices
/// costs several times over.
pub const JOINED_BYTES_MAX: usize = 1024;
/// Slices of one vectored write.
pub const SLICES_PER_WRITE_MAX: usize = 16;
/// Broadcasts a shard has not handed out to all its sessions; a further one is dropped.
pub const BROADCASTS_WAITING_MAX: usize = 1024;
/// Submission queue entries of a shard's ring (`--ring-entries`).
pub const RING_ENTRIES: u32 = 256;
/// Completion queue entries of a shard's ring.
pub const RING_COMPLETIONS: u32 = 32_768;
/// Items on one page of a list (`tools/list` and its like), unless a server says otherwise.
pub const PAGE_ITEMS: usize = 250;
/// Workers without a call that a shard's host keeps for the next ones; beyond it they are freed.
pub const IDLE_WORKERS_MAX: usize = 64;
/// Descriptors never given to clients: listeners, rings, logs, and the one that answers a newcomer.
pub const DESCRIPTORS_RESERVED: usize = 64;
/// Descriptors a shard needs for itself, besides one for each listener: ring, event queue, mailbox, spare, and the
/// refused newcomers it keeps for a moment.
pub const DESCRIPTORS_PER_SHARD: usize = 8 + REFUSALS_KEPT_MAX;
/// Refused newcomers kept at once per shard until they have read why; a further one takes the oldest one's place.
pub const REFUSALS_KEPT_MAX: usize = 16;
/// Submission queue entries the kernel gives at most.
pub const RING_ENTRIES_MAX: u32 = 32_768;

// --- Children (`moorline serve -- COMMAND`) ------------------------------------------------------

/// Children of the process at one time (`--max-children`), as far as open files allow.
pub const CHILDREN_MAX: usize = 256;
/// Descriptors a child needs: three pipes, one to learn of its end, and one more while it is started.
pub const DESCRIPTORS_PER_CHILD: usize = 5;
/// Bytes waiting to be written to a child behind the message being written; a further call fails at once.
pub const CHILD_INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes read from one child per turn.
pub const CHILD_READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes read from all children of a shard per turn: a few milliseconds of parsing.
pub const CHILDREN_READ_BYTES_MAX: usize = 512 * 1024;
/// One line of a child's standard error; the rest of a longer one is left out.
pub const CHILD_LOG_LINE_BYTES_MAX: usize = 8 * 1024;
/// Lines of a child that reach the log at once, and per second from then on; what is left out is counted.
pub const CHILD_LOG_LINES_PER_S: u32 = 50;
/// From the end of its input to TERM, or half of the grace if that is shorter.
pub const CHILD_TERM_AFTER_MS: u64 = 1_000;
/// From the end of its input to KILL (`--child-grace`).
pub const CHILD_GRACE_MS: u64 = 5_000;
/// What a child gets to answer `initialize` (`--child-start-timeout`). Package runners download first.
pub const CHILD_START_TIMEOUT_MS: u64 = 120_000;
/// Before a shared child is started again after its first failure; doubled with each further one.
pub const CHILD_RESTART_MS_MIN: u64 = 100;
/// The longest such wait. A child that ran for this long has no failures.
pub const CHILD_RESTART_MS_MAX: u64 = 30_000;
/// Requests of one child to clients that wait for their answers; a further one is refused to the child.
pub const CHILD_ASKS_MAX: usize = 256;
/// What is kept of what a client says of itself and of what it can be asked for, each, if its child is of 2026-07-28: that is
/// told with every request. More is left out.
pub const CHILD_CLAIMS_BYTES_MAX: usize = 4 * 1024;
/// How often such a child may answer one call with questions; then the call fails.
pub const CHILD_ROUNDS_MAX: usize = 16;
/// Clients of one shared child that wait for its first start; a further one gets 503.
pub const CHILD_GREETINGS_WAITING_MAX: usize = 1024;
/// Resources one session may be subscribed to at a shared child; a further one is refused.
pub const CHILD_SUBSCRIPTIONS_PER_SESSION_MAX: usize = 256;

const _: () = {
    assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX, "a target must fit into a head");
    assert!(READ_BUFFER_BYTES <= HEAD_BYTES_MAX, "a head may need more than one read, never less");
    assert!(FALLEN_THROUGH_PER_SESSION_MAX < GET_STREAMS_PER_SESSION_MAX, "listeners always find a place");
    assert!(REPLAY_TTL_MS > WRITE_TIMEOUT_MS, "a log outlives the connection it was written to");
    assert!(REPLAY_TTL_MS > TCP_USER_TIMEOUT_MS, "a log outlives the kernel's patience");
    assert!(
        ADMIN_CONNECTIONS_MAX + PUBLICATIONS_MAX <= OUTSIDE_MESSAGES_MAX,
        "a shard that takes its mail has room for all that is asked"
    );
    assert!(
        ADMIN_CONNECTIONS_MAX < DESCRIPTORS_RESERVED,
        "the admin listener takes none of the clients' descriptors"
    );
    assert!(RING_ENTRIES <= RING_ENTRIES_MAX, "the default is one the kernel takes");
    assert!(SENDS_PER_TURN_MAX <= RING_ENTRIES as usize, "a turn's sends fit into the submission queue");
};
