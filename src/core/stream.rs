//! Streams: numbers, event ids, attachment, writing from the log, and ends.
//!
//! Owns a stream's entry and log. A stream is written by pulling: when its connection has room, the next unsent
//! event of its log, or for the primary the next message of the session's queue, becomes a frame. So whatever is not
//! written yet waits in exactly one place and a lost connection loses nothing. 80 bytes while idle.
//!
//! Invariants: a live or ending attachment and its connection name each other; an entry exists while it is attached,
//! while its request runs, while its log holds something, or to remember that a response was lost; sequence numbers of a (kind, number) pair never repeat,
//! also after the entry was forgotten.

use super::{
    conn::{Afterwards, State},
    ids::{EventId, StreamKind},
    log::{Event, Log, Removed, Unproven},
    queue::{Class, Message},
    recovery::Origin,
    seam::*,
    shard::{Deadline, Shard},
    sse,
    table::{ConnSlot, Generational, PostSlot, SessionSlot, StreamSlot},
    unproven::Kept,
    wheel::TimerId,
};
use crate::{
    core::log::Delivery,
    limits::{ACK_CHECK_MS, BURST_MS, PULL_BELOW_BYTES},
};

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) generation: Generation,
    pub(super) session: SessionSlot,
    pub(super) number: u32,
    /// The sequence number issued last; 0 is the priming event's.
    pub(super) sequence: u32,
    pub(super) kind: StreamKind,
    pub(super) role: Role,
    pub(super) trust: Trust,
    pub(super) via: Via,
    pub(super) attachment: Attachment,
    /// The POST whose calls still run.
    pub(super) post: Option<PostSlot>,
    pub(super) newer: Option<StreamSlot>,
    pub(super) older: Option<StreamSlot>,
    pub(super) log: Option<Box<Log>>,
    pub(super) probe: Option<Box<Probe>>,
    pub(super) timer: Option<TimerId>,
    /// A response was evicted before there was evidence of its arrival.
    pub(super) response: ResponseKept,
    /// The connection offset at which the first event id ends that the client may not have got; 0 once it has one,
    /// [`NAMELESS`] or [`DOUBTFUL`].
    pub(super) unnamed_until: u64,
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A GET, plain or with a listener cursor: may be primary.
    Listener,
    /// A GET whose cursor named a finished request stream: primary only for want of a listener.
    FallenThrough,
    /// The stream of a POST, wherever it is continued.
    Request,
    /// A connection from which its request stream was continued elsewhere: gets comments until that ends.
    Superseded,
}

/// What is known of the peer behind an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Trusted,
    /// Asked to acknowledge a comment.
    Probed,
    /// Did not, or was taken over from: the last choice for promotion.
    Demoted,
}

/// How the present attachment came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Post,
    /// A GET that named no event.
    PlainGet,
    /// A GET with a cursor, or a connection left over from one stream and given to another.
    CursorGet,
}

impl Via {
    pub(super) fn is_get(self) -> bool {
        matches!(self, Via::PlainGet | Via::CursorGet)
    }
}

/// No event id was written to the client yet.
const NAMELESS: u64 = u64::MAX;
/// The connection ended before it was known whether the first event id arrived.
const DOUBTFUL: u64 = u64::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment {
    None,
    Live(ConnSlot),
    /// The end was written; what arrived of it is not known yet.
    Ending(ConnSlot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKept {
    Yes,
    Lost,
}

/// What a suspected peer has to acknowledge, and by when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) offset: u64,
    pub(super) deadline_ms: u64,
    /// What was known before the question.
    pub(super) before: Trust,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOfStream {
    /// Its last response was written.
    Complete,
    /// The session ended: nothing of it is kept.
    WithSession,
    /// The client is told to come back after so many milliseconds; the stream lives on.
    Early(u64),
    /// The server stops: the client is told when to come back, and nobody is promoted.
    Drain,
    /// A listener needed its place.
    Displaced,
    /// The token its connection came with is good no longer.
    Unauthorized,
}

impl Generational for Stream {
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Stream {
    pub(super) fn live_conn(&self) -> Option<ConnSlot> {
        match self.attachment {
            Attachment::Live(conn) => Some(conn),
            Attachment::None | Attachment::Ending(_) => None,
        }
    }

    /// What is known of the peer; one that is asked again stays demoted until it answers.
    pub(super) fn standing(&self) -> Trust {
        match (self.trust, &self.probe) {
            (Trust::Probed, Some(probe)) => probe.before,
            (trust, _) => trust,
        }
    }

    /// Whether a detached stream is still good for something: more to come, more to replay, or, for the replay time, the
    /// knowledge that a response was lost.
    pub(super) fn is_kept(&self) -> bool {
        let lost = self.response == ResponseKept::Lost && self.timer.is_some();
        self.post.is_some() || self.log.is_some() || lost
    }

    /// Whether an event id was written to the client.
    pub(super) fn has_been_named(&self) -> bool {
        self.unnamed_until != NAMELESS
    }

    /// Whether its client may or may not know an event id of it: it is kept for a cursor, and its responses for a plain
    /// GET, too.
    pub(super) fn is_doubtful(&self) -> bool {
        self.unnamed_until == DOUBTFUL
    }

    /// Whether listener messages may be written to it.
    pub(super) fn listens(&self) -> bool {
        matches!(self.role, Role::Listener | Role::FallenThrough)
    }
}

impl Shard {
    // --- Making and forgetting -----------------------------------------------------------------

    /// A new stream with the next number of its kind.
    pub(super) fn new_stream(&mut self, session: SessionSlot, role: Role) -> StreamSlot {
        let kind = if role == Role::Request { StreamKind::Request } else { StreamKind::Listener };
        let entry = &mut self.sessions[session];
        let issued = match kind {
            StreamKind::Listener => &mut entry.listeners_issued,
            StreamKind::Request => &mut entry.requests_issued,
        };
        *issued += 1;
        let number = *issued;
        self.insert_stream(session, kind, role, number, 0)
    }

    /// The entry of a stream that is known by number only, going on after everything it may have issued.
    pub(super) fn remembered_stream(&mut self, session: SessionSlot, number: u32) -> StreamSlot {
        let sequence = self.sessions[session].listener_sequence_forgotten;
        self.insert_stream(session, StreamKind::Listener, Role::Listener, number, sequence)
    }

    pub(super) fn insert_stream(
        &mut self,
        session: SessionSlot,
        kind: StreamKind,
        role: Role,
        number: u32,
        sequence: u32,
    ) -> StreamSlot {
        let stream = self.streams.insert(Stream {
            generation: self.generations.issue(),
            session,
            number,
            sequence,
            kind,
            role,
            trust: Trust::Trusted,
            via: Via::Post,
            attachment: Attachment::None,
            post: None,
            newer: None,
            older: None,
            log: None,
            probe: None,
            timer: None,
            response: ResponseKept::Yes,
            unnamed_until: if role == Role::Request { NAMELESS } else { 0 },
        });
        self.link_stream(stream);
        stream
    }

    /// The stream of that kind and number, unless it is forgotten.
    pub(super) fn find_stream(
        &self,
        session: SessionSlot,
        kind: StreamKind,
        number: u32,
    ) -> Option<StreamSlot> {
        self.streams_of(session).find(|slot| {
            let stream = &self.streams[*slot];
            stream.kind == kind && stream.number == number && stream.role != Role::Superseded
        })
    }

    /// Removes the entry if nothing needs it any more.
    pub(super) fn forget_if_done(&mut self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        if entry.attachment == Attachment::None && !entry.is_kept() {
            self.forget_stream(stream);
        }
    }

    fn forget_stream(&mut self, stream: StreamSlot) {
        self.unlink_stream(stream);
        let entry = self.streams.remove(stream);
        if let Some(timer) = entry.timer {
            self.wheel.cancel(timer);
        }
        let session = &mut self.sessions[entry.session];
        let highest = match entry.kind {
            StreamKind::Listener => &mut session.listener_sequence_forgotten,
            StreamKind::Request => &mut session.request_sequence_forgotten,
        };
        *highest = (*highest).max(entry.sequence);
        if let Some(log) = entry.log {
            let mut removed = Removed::default();
            log.iter().for_each(|event| removed.count(event));
            if entry.kind == StreamKind::Request {
                self.let_go(entry.session, removed.bytes);
            }
            self.discount_events(entry.session, removed);
        }
    }

    fn link_stream(&mut self, stream: StreamSlot) {
        let session = self.streams[stream].session;
        let second = self.sessions[session].streams.replace(stream);
        self.streams[stream].older = second;
        self.streams[stream].newer = None;
        if let Some(second) = second {
            self.streams[second].newer = Some(stream);
        }
    }

    fn unlink_stream(&mut self, stream: StreamSlot) {
        let (session, newer, older) =
            (self.streams[stream].session, self.streams[stream].newer, self.streams[stream].older);
        match newer {
            Some(newer) => self.streams[newer].older = older,
            None => self.sessions[session].streams = older,
        }
        if let Some(older) = older {
            self.streams[older].newer = newer;
        }
    }

    // --- Attaching and detaching ---------------------------------------------------------------

    /// Makes `conn` the stream's attachment. The reply head was queued before; timers are armed after.
    pub(super) fn attach(&mut self, stream: StreamSlot, conn: ConnSlot, via: Via) {
        self.unlink_stream(stream);
        self.link_stream(stream);
        let entry = &mut self.streams[stream];
        debug_assert_eq!(entry.attachment, Attachment::None);
        entry.attachment = Attachment::Live(conn);
        entry.via = via;
        entry.trust = Trust::Trusted;
        if let Some(log) = &mut entry.log {
            log.owed = None;
        }
        if via.is_get() {
            entry.unnamed_until = 0;
            let session = entry.session;
            self.sessions[session].gets += 1;
            self.enter_stream(session);
        }
        *self.attached.of_role(self.streams[stream].role) += 1;
        self.conns[conn].pin_output();
        self.conns[conn].state = State::Streaming(stream);
    }

    /// The attachment no longer counts: not among the session's GETs, and not as primary.
    pub(super) fn leave_lists(&mut self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        let session = &mut self.sessions[entry.session];
        if entry.via.is_get() {
            session.gets -= 1;
            self.leave_stream(entry.session);
        }
        let entry = &self.streams[stream];
        let session = &mut self.sessions[entry.session];
        *self.attached.of_role(entry.role) -= 1;
        if session.primary == Some(stream) {
            session.primary = None;
            session.cut_primary = entry.number;
        } else if entry.kind == StreamKind::Listener && session.cut_primary == entry.number {
            // It came back since, and was no primary this time.
            session.cut_primary = 0;
        }
    }

    /// The stream's connection is gone, or is shown to have delivered everything up to `offset`.
    pub(super) fn detach(&mut self, stream: StreamSlot, offset: u64, now: Now) {
        if self.streams[stream].live_conn().is_some() {
            self.leave_lists(stream);
            let session = self.streams[stream].session;
            self.sessions[session].active_ms = now.ms;
        }
        let entry = &mut self.streams[stream];
        let session = entry.session;
        let lent = match entry.attachment {
            Attachment::Live(conn) | Attachment::Ending(conn) => self.conns[conn].lent_offset(),
            Attachment::None => offset,
        };
        entry.attachment = Attachment::None;
        entry.probe = None;
        if let Some(log) = &mut entry.log {
            log.acknowledge(offset);
            log.forget_writes();
        }
        if offset >= entry.unnamed_until {
            entry.unnamed_until = 0;
        }
        self.let_go_arrived(stream);
        self.settle_owed(stream, now);
        let entry = &mut self.streams[stream];
        if entry.unnamed_until > lent {
            return self.abandon_stream(stream, now);
        }
        if entry.unnamed_until > 0 {
            self.doubt_name(stream, now);
        }
        self.acknowledge_claimed(stream, offset);
        self.forget_copies(stream);
        self.release_claims(stream, now);
        self.settle_unacked(stream, now);
        self.elect(session, now);
    }

    /// What a detached stream may not have delivered goes to the session's listener, if it has one or is about to;
    /// the entry goes, unless it is needed.
    fn settle_unacked(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        let primary = self.sessions[session].primary;
        if primary.is_some() || self.best_listener(session).is_some() {
            self.return_unacked(stream, now);
        }
        self.forget_if_done(stream);
        if let Some(primary) = primary {
            self.pump_stream(primary, now);
        }
    }

    /// The connection ended before it was known whether the client got a name for the stream. It may come back with a
    /// cursor, or never be able to: the log stays, responses are kept for a plain GET, too, and requests to the client
    /// go to the listener as well.
    fn doubt_name(&mut self, stream: StreamSlot, now: Now) {
        let entry = &mut self.streams[stream];
        entry.unnamed_until = DOUBTFUL;
        let (session, number) = (entry.session, entry.number);
        let unacked = |event: &&Event| event.delivery != Delivery::Acked;
        let log = entry.log.iter().flat_map(|log| log.iter());
        let messages: Vec<_> = log.filter(unacked).map(|event| event.message.clone()).collect();
        for message in messages {
            match message.class {
                Class::Response => self.reply_lost(session, message, Origin::Doubtful(number), now),
                Class::Request(_) => {
                    self.announce(session, message, now);
                }
                Class::Signal(_) | Class::Progress | Class::Log | Class::Other => {}
            }
        }
    }

    /// The stream is gone and its client never got a name for it: no cursor can ask for the rest. Its responses are
    /// kept for a plain GET, requests to the client go to the listener, and what is still to come is no stream's.
    fn abandon_stream(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        if let Some(post) = self.streams[stream].post.take() {
            self.stream_abandoned(post);
        }
        for Event { message, .. } in self.take_unacked(stream) {
            match message.class {
                Class::Response => self.reply_lost(session, message, Origin::Nameless, now),
                Class::Request(_) => {
                    self.announce(session, message, now);
                }
                Class::Signal(_) | Class::Progress | Class::Log | Class::Other => {
                    self.counters.messages_dropped += 1
                }
            }
        }
        self.forget_stream(stream);
    }

    /// Takes the stream off its connection, which stays open, and returns it: it is continued elsewhere.
    pub(super) fn release_conn(&mut self, stream: StreamSlot, now: Now) -> Option<ConnSlot> {
        let conn = self.streams[stream].live_conn()?;
        self.forget_copies(stream);
        self.release_claims(stream, now);
        self.leave_lists(stream);
        self.retract_output(conn);
        let entry = &mut self.streams[stream];
        entry.attachment = Attachment::None;
        entry.probe = None;
        if let Some(log) = &mut entry.log {
            log.forget_writes();
        }
        Some(conn)
    }

    // --- Writing -------------------------------------------------------------------------------

    /// Appends a message to the stream's log under its next event id.
    pub(super) fn log_message(&mut self, stream: StreamSlot, message: Message, now: Now) {
        let entry = &mut self.streams[stream];
        let session = entry.session;
        let bytes = message.payload.len();
        entry.sequence += 1;
        entry.log.get_or_insert_default().append(entry.sequence, message, now.ms);
        let owner = &mut self.sessions[session];
        owner.replay_events += 1;
        owner.replay_bytes += bytes_u32(bytes);
        if self.streams[stream].kind == StreamKind::Request {
            self.keep(session, bytes);
        }
        self.keep_log_bounds(stream, now);
        if self.streams[stream].attachment == Attachment::None {
            self.settle_owed(stream, now);
        }
        self.arm_stream(stream, now.ms + self.config.replay_ttl_ms);
    }

    /// Writes what the stream's connection has room for.
    pub(super) fn pump_stream(&mut self, stream: StreamSlot, now: Now) {
        while let Some(conn) = self.streams[stream].live_conn() {
            if self.conns[conn].output_bytes() >= PULL_BELOW_BYTES {
                return self.check_backlog(stream, conn, now);
            }
            let wrote = self.write_claimed(stream, conn, now) || self.write_next(stream, conn, now);
            if !wrote && !self.pull_from_queue(stream, now) {
                break;
            }
        }
        self.end_if_complete(stream, now);
    }

    /// Frames the next unsent event of the log. False if there is none.
    fn write_next(&mut self, stream: StreamSlot, conn: ConnSlot, now: Now) -> bool {
        let entry = &mut self.streams[stream];
        let tag = self.sessions[entry.session].tag;
        let Some(event) = entry.log.as_mut().and_then(|log| log.next_unsent()) else { return false };
        let id = EventId { tag, kind: entry.kind, stream: entry.number, sequence: event.sequence };
        let payload = event.message.payload.clone();
        let bytes = payload.len();
        let (before, after) = sse::event(self.conns[conn].transfer, Some(id), bytes);
        self.counters.events += 1;
        let end = self.queue_frame(
            conn,
            [Piece::Inline(before), Piece::Shared(payload), Piece::Static(after)],
            now,
        );
        if id.kind == StreamKind::Request {
            self.count_unread(conn, bytes);
        }
        let entry = &mut self.streams[stream];
        if entry.unnamed_until == NAMELESS {
            entry.unnamed_until = end;
        }
        if let Some(event) = entry.log.as_mut().and_then(|log| log.next_unsent()) {
            event.delivery = Delivery::Written { end };
        }
        true
    }

    /// The primary takes the next message of the queue. False if it is not primary or nothing waits.
    fn pull_from_queue(&mut self, stream: StreamSlot, now: Now) -> bool {
        let session = self.streams[stream].session;
        let owner = &mut self.sessions[session];
        if owner.primary != Some(stream) {
            return false;
        }
        let Some(message) = owner.queue.as_mut().and_then(|queue| queue.pop()) else { return false };
        if owner.queue.as_ref().is_some_and(|queue| queue.is_empty()) {
            owner.queue = None;
        }
        self.log_message(stream, message, now);
        true
    }

    /// Cuts a connection for which too much waits, unless it is taking bytes right now.
    fn check_backlog(&mut self, stream: StreamSlot, conn: ConnSlot, now: Now) {
        let entry = &self.streams[stream];
        let session = &self.sessions[entry.session];
        let logged = entry.log.as_ref().map_or(0, |log| log.unsent_bytes());
        let queued = match &session.queue {
            Some(queue) if session.primary == Some(stream) => queue.bytes(),
            Some(_) | None => 0,
        };
        let stalled = now.ms.saturating_sub(self.conns[conn].progress_ms) >= BURST_MS;
        if stalled && logged + queued > self.config.write_buffer_bytes {
            self.counters.connections_overflowed += 1;
            self.close_conn(conn, Ending::Cut);
        }
    }

    // --- Ends ----------------------------------------------------------------------------------

    /// Ends a request stream whose calls are done and whose events are all written.
    fn end_if_complete(&mut self, stream: StreamSlot, now: Now) {
        let entry = &mut self.streams[stream];
        if entry.role != Role::Request || entry.post.is_some() {
            return;
        }
        let unsent = entry.log.as_mut().is_some_and(|log| log.next_unsent().is_some());
        let attached = entry.live_conn().is_some();
        self.end_superseded(stream, now);
        if attached && !unsent {
            self.end_stream(stream, EndOfStream::Complete, now);
        }
    }

    /// Ends the connections from which this request stream was continued elsewhere.
    pub(super) fn end_superseded(&mut self, stream: StreamSlot, now: Now) {
        // They count as GETs; most sessions have none when a POST is answered.
        if self.sessions[self.streams[stream].session].gets == 0 {
            return;
        }
        let (session, number) = (self.streams[stream].session, self.streams[stream].number);
        let is_left_over = |slot: &StreamSlot| {
            let entry = &self.streams[*slot];
            entry.role == Role::Superseded && entry.number == number && entry.live_conn().is_some()
        };
        let left_over: Vec<_> = self.streams_of(session).filter(is_left_over).collect();
        for stream in left_over {
            self.end_stream(stream, EndOfStream::Complete, now);
        }
    }

    /// Ends a stream cleanly: the frame in progress and the last chunk are written before anything else happens
    /// to the connection.
    pub(super) fn end_stream(&mut self, stream: StreamSlot, end: EndOfStream, now: Now) {
        let session = self.streams[stream].session;
        if let Some(conn) = self.streams[stream].live_conn() {
            self.leave_lists(stream);
            if let Some(retry_ms) = self.retry_at_end(end) {
                let retry = sse::retry(self.conns[conn].transfer, retry_ms);
                self.queue_frame(conn, [Piece::Inline(retry)], now);
            }
            let last = sse::last_chunk(self.conns[conn].transfer);
            self.queue_frame(conn, [Piece::Static(last)], now);
            self.streams[stream].attachment = Attachment::Ending(conn);
            self.keep_unproven(conn, Kept::Stream(stream), now.ms + ACK_CHECK_MS);
            let afterwards = if end == EndOfStream::Drain { Afterwards::Close } else { Afterwards::AsAgreed };
            self.finish_reply(conn, afterwards, now);
        }
        match end {
            EndOfStream::WithSession => {
                if let Attachment::Ending(conn) = self.streams[stream].attachment {
                    self.forget_unproven(conn, stream);
                }
                self.forget_stream(stream);
            }
            EndOfStream::Complete | EndOfStream::Displaced | EndOfStream::Unauthorized => {
                self.elect(session, now)
            }
            EndOfStream::Early(_) | EndOfStream::Drain => {}
        }
    }

    fn retry_at_end(&mut self, end: EndOfStream) -> Option<u64> {
        match end {
            EndOfStream::Early(retry_ms) => Some(retry_ms),
            EndOfStream::Drain => Some(self.drained_retry_ms()),
            EndOfStream::Complete
            | EndOfStream::WithSession
            | EndOfStream::Displaced
            | EndOfStream::Unauthorized => None,
        }
    }

    /// Ends all GET streams of a session that listen; their client comes back, and what is sent meanwhile waits.
    pub(super) fn close_listeners(&mut self, session: SessionSlot, retry_ms: u64, now: Now) {
        let listening =
            |slot: &StreamSlot| self.streams[*slot].listens() && self.streams[*slot].live_conn().is_some();
        let listeners: Vec<_> = self.streams_of(session).filter(listening).collect();
        for stream in listeners {
            self.counters.streams_closed_early += 1;
            self.end_stream(stream, EndOfStream::Early(retry_ms), now);
        }
    }

    // --- Time ----------------------------------------------------------------------------------

    /// Makes sure that the stream's timer fires no later than `deadline_ms`.
    pub(super) fn arm_stream(&mut self, stream: StreamSlot, deadline_ms: u64) {
        let timer = self.streams[stream].timer;
        self.streams[stream].timer = Some(self.arm_no_later(timer, deadline_ms, Deadline::Stream(stream)));
    }

    /// The stream's timer fired: a probe may be due, and old events leave.
    pub(super) fn stream_expired(&mut self, stream: StreamSlot, now: Now) {
        self.streams[stream].timer = None;
        self.probe_expired(stream, now);
        let ttl_ms = self.config.replay_ttl_ms;
        let entry = &mut self.streams[stream];
        let (conn, unproven) = match entry.attachment {
            Attachment::Live(conn) | Attachment::Ending(conn) => (Some(conn), Unproven::Stays),
            Attachment::None => (None, Unproven::Expires),
        };
        let limit_ms = now.ms.saturating_sub(ttl_ms);
        let oldest_ms = entry.log.as_ref().and_then(|log| log.oldest_ms());
        if entry.attachment == Attachment::None && oldest_ms.is_some_and(|at_ms| at_ms <= limit_ms) {
            // Too old for a cursor, yet never delivered: it waits with what no stream was given.
            self.return_unacked(stream, now);
        }
        let entry = &mut self.streams[stream];
        if let Some(log) = &mut entry.log {
            let removed = log.expire(limit_ms, unproven);
            self.account_removed(stream, removed);
        }
        let entry = &self.streams[stream];
        let log_ms = entry.log.as_ref().and_then(|log| log.oldest_ms());
        let log_deadline_ms = log_ms.map(|at_ms| (at_ms + ttl_ms).max(now.ms + ACK_CHECK_MS));
        if let Some(conn) = conn.filter(|_| log_ms.is_some_and(|at_ms| at_ms <= limit_ms)) {
            // Old, and not known to have arrived: it goes, or goes elsewhere, when it is.
            let key = self.conn_key(conn);
            self.effects.push_back(Effect::Measure(key));
        }
        let entry = &self.streams[stream];
        let probe_deadline_ms =
            entry.probe.as_ref().filter(|probe| probe.deadline_ms > now.ms).map(|probe| probe.deadline_ms);
        if let Some(deadline_ms) = [log_deadline_ms, probe_deadline_ms].into_iter().flatten().min() {
            self.arm_stream(stream, deadline_ms);
        }
        let entry = &mut self.streams[stream];
        if entry.log.is_none() && entry.post.is_none() {
            // Nobody will ask for a response that old.
            entry.response = ResponseKept::Yes;
        }
        self.forget_if_done(stream);
    }

    // --- Bounds --------------------------------------------------------------------------------

    /// An unacknowledged response was evicted: as long as it would have been kept, cursors of its stream are refused. The
    /// oldest of too many such streams is forgotten.
    pub(super) fn response_lost(&mut self, stream: StreamSlot, now: Now) {
        self.streams[stream].response = ResponseKept::Lost;
        if let Some(timer) = self.streams[stream].timer.take() {
            self.wheel.cancel(timer);
        }
        self.arm_stream(stream, now.ms + self.config.replay_ttl_ms);
        let lost: Vec<_> = self
            .streams_of(self.streams[stream].session)
            .filter(|slot| self.streams[*slot].response == ResponseKept::Lost)
            .collect();
        if lost.len() > crate::limits::LOST_RESPONSES_PER_SESSION_MAX
            && let Some(oldest) = lost.last().copied()
        {
            self.streams[oldest].response = ResponseKept::Yes;
            if oldest != stream {
                self.forget_if_done(oldest);
            }
        }
    }

    /// Keeps the session's sums right after events left a log, and drops an empty log.
    pub(super) fn account_removed(&mut self, stream: StreamSlot, removed: Removed) {
        let entry = &mut self.streams[stream];
        if entry.log.as_ref().is_some_and(|log| log.is_empty()) {
            entry.log = None;
        }
        let (session, kind) = (entry.session, entry.kind);
        if kind == StreamKind::Request && removed.bytes > 0 {
            self.let_go(session, removed.bytes);
            self.recount_owed(stream);
        }
        self.discount_events(session, removed);
    }

    /// What has arrived is kept as long as there is room for its client.
    pub(super) fn let_go_arrived(&mut self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        if entry.kind != StreamKind::Request || !self.lets_go_what_arrived(entry.session) {
            return;
        }
        if let Some(log) = &mut self.streams[stream].log {
            let removed = log.remove_arrived();
            self.counters.events_evicted += removed.events as u64;
            self.account_removed(stream, removed);
        }
    }

    /// Takes what is not known to have arrived out of the stream's log.
    pub(super) fn take_unacked(&mut self, stream: StreamSlot) -> Vec<Event> {
        let Some(log) = &mut self.streams[stream].log else { return Vec::new() };
        let events = log.take_unacked();
        let mut removed = Removed::default();
        events.iter().for_each(|event| removed.count(event));
        self.account_removed(stream, removed);
        events
    }
}

/// Bounded by the limits of a session, far below 4 GiB.
pub(super) fn bytes_u32(count: usize) -> u32 {
    u32::try_from(count).expect("a message is far below 4 GiB")
}
