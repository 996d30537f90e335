//! Connections: input that waits, output that waits, one deadline, and how it all ends.
//!
//! Owns a connection's entry: what state its current exchange is in, the bytes of an unfinished or pipelined request,
//! and its output queue; both buffers exist only while they hold something. 88 bytes while idle. Knows
//! framing only through the parser and streams only by slot.
//!
//! Invariants: a connection has one timer at most, whose meaning follows from the state when it fires, so none can be
//! orphaned; a request is parsed only when the reply to the one before was handed over in full; a `Streaming` state
//! and a live attachment name each other, as do what is `unproven` and an ending one.

use super::{
    http::{Persistence, Refusal, ReplyHead, Version, reply::CONTINUE_100},
    journal::NotedEnd,
    memory::Unread,
    output::{Boundary, Output},
    quotas::Source,
    request::{ReadRequest, ReplyFacts, Request},
    seam::*,
    shard::{Admission, Deadline, Shard},
    sse::{self, Transfer},
    stream::{Attachment, Trust},
    table::{
        ConnSlot, CredentialSlot, ExchangeSlot, Generational, PostSlot, SessionSlot, Slot as _, StreamSlot,
    },
    unproven::{Kept, Unproven},
    wheel::TimerId,
};
use crate::limits;
use bytes::{Bytes, BytesMut};
use std::net::IpAddr;

#[derive(Debug)]
pub(super) struct Conn {
    generation: Generation,
    pub(super) state: State,
    timer: Option<TimerId>,
    input: Option<Box<BytesMut>>,
    output: Option<Box<Output>>,
    /// Bytes the kernel has taken since the connection was opened.
    written: u64,
    /// Last progress of output, or begin of the state while there is none.
    pub(super) progress_ms: u64,
    /// What ended here and may not have arrived yet.
    pub(super) unproven: Option<Box<Unproven>>,
    /// With what its latest request came in.
    pub(super) credential: Option<CredentialSlot>,
    pub(super) source: Source,
    pub(super) transfer: Transfer,
    pub(super) persistence: Persistence,
    comment: Comment,
    listing: Listing,
    peer: Peer,
    age: Age,
}

/// What the current exchange is at.
#[derive(Debug)]
pub(super) enum State {
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// A body is on its way.
    Body(Box<Request>),
    /// The form of the reply to a POST is not decided.
    Waiting(PostSlot),
    /// An event stream is written.
    Streaming(StreamSlot),
    /// The rest of a reply is written.
    Flushing(Afterwards),
    /// A request without a session is worked on, or the stream that answers it is written.
    Exchanging(ExchangeSlot),
    /// The stream that carries a session over HTTP+SSE is written.
    Carrying(SessionSlot),
    /// Being moved to this shard, with the request it is moved for if that was read.
    Moving(ShardId, Option<Box<ReadRequest>>),
    /// The shell was asked to end it.
    Closing(Ending),
}

/// What follows when a reply is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// What client and server agreed on.
    AsAgreed,
    /// The end of the connection.
    Close,
}

/// A keep-alive comment on its way, which needs no queue, or what stands for one before a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comment {
    None,
    Due(Words),
    Lent(Words),
}

/// What is said only to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// A comment of an event stream.
    Comment,
    /// An interim response: any number of them may come before the reply (RFC 9110 section 15.2).
    Interim,
}

/// Whether the connection is on the list of those that have output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Unlisted,
    Listed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Talking,
    /// It will send nothing more.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// No request yet: the head has to come within the header time-out.
    Fresh,
    Used,
}

impl Generational for Conn {
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Conn {
    fn new(generation: Generation, source: Source, now: Now) -> Self {
        Conn {
            generation,
            state: State::Idle,
            timer: None,
            input: None,
            output: None,
            written: 0,
            progress_ms: now.ms,
            unproven: None,
            credential: None,
            source,
            transfer: Transfer::Chunked,
            persistence: Persistence::Keep,
            comment: Comment::None,
            listing: Listing::Unlisted,
            peer: Peer::Talking,
            age: Age::Fresh,
        }
    }

    /// Bytes that wait to be taken by the kernel, comments aside.
    pub(super) fn output_bytes(&self) -> usize {
        self.output.as_ref().map_or(0, |output| output.bytes())
    }

    /// The offset in the connection's output at which everything queued so far ends.
    pub(super) fn queued_offset(&self) -> u64 {
        let comment = match self.comment {
            Comment::Lent(words) => self.said(words).len(),
            Comment::None | Comment::Due(_) => 0,
        };
        self.written + (comment + self.output_bytes()) as u64
    }

    /// The offset up to which the kernel has taken the connection's output, as far as it has reported.
    pub(super) fn written_offset(&self) -> u64 {
        self.written
    }

    /// The offset up to which the kernel may have taken the connection's output, whatever it has reported yet.
    pub(super) fn lent_offset(&self) -> u64 {
        let comment = match self.comment {
            Comment::Lent(words) => self.said(words).len(),
            Comment::None | Comment::Due(_) => 0,
        };
        self.written + (comment + self.output.as_ref().map_or(0, |output| output.lent())) as u64
    }

    /// The offset up to which everything has arrived, when this much of what was written has not.
    fn arrived_offset(&self, unacknowledged: usize) -> u64 {
        self.written.saturating_sub(unacknowledged as u64)
    }

    /// Everything queued by now is written before anything that could be taken back.
    pub(super) fn pin_output(&mut self) {
        if let Some(output) = &mut self.output {
            output.pin();
        }
    }

    /// What was queued last counts until it is written.
    pub(super) fn hold_until_written(&mut self, unread: Unread) {
        if let Some(output) = &mut self.output {
            output.hold(unread);
        }
    }

    pub(super) fn has_timer(&self) -> bool {
        self.timer.is_some()
    }

    fn has_output(&self) -> bool {
        self.output_bytes() > 0 || matches!(self.comment, Comment::Lent(_))
    }

    fn said(&self, words: Words) -> &'static [u8] {
        match words {
            Words::Comment => sse::comment(self.transfer),
            Words::Interim => CONTINUE_100,
        }
    }
}

// --- Coming and going ---------------------------------------------------------------------------

impl Shard {
    pub(super) fn admit(&mut self, address: IpAddr, now: Now) -> Admission {
        if self.census.enter_connection(self.config.connections_max).is_err() {
            self.counters.connections_refused += 1;
            return Admission::Refused(super::http::reply::BUSY_503);
        }
        let Ok(source) = self.enter_source(address) else {
            self.census.leave_connection();
            self.counters.clients_over_quota += 1;
            return Admission::Refused(super::http::reply::TOO_MANY_429);
        };
        self.counters.connections += 1;
        let conn = self.insert_conn(source, now);
        Admission::Admitted(self.conn_key(conn))
    }

    /// Takes over a connection that was counted when it was accepted elsewhere.
    pub(super) fn adopt_conn(
        &mut self,
        bytes: BytesMut,
        request: Option<Box<ReadRequest>>,
        source: Source,
        now: Now,
    ) -> ConnKey {
        let conn = self.insert_conn(source, now);
        self.conns[conn].input = Some(Box::new(bytes));
        self.mark_used(conn);
        let key = self.conn_key(conn);
        if let Some(request) = request {
            self.counters.requests += 1;
            self.dispatch_read(conn, *request, now);
        }
        self.process(conn, now);
        drop(self.spent_input(conn));
        key
    }

    fn insert_conn(&mut self, source: Source, now: Now) -> ConnSlot {
        let conn = self.conns.insert(Conn::new(self.generations.issue(), source, now));
        self.newcomers += 1;
        self.arm_conn(conn);
        conn
    }

    pub(super) fn conn_key(&self, conn: ConnSlot) -> ConnKey {
        ConnKey { slot: conn.number(), generation: self.conns[conn].generation }
    }

    pub(super) fn conn_mut(&mut self, conn: ConnSlot) -> &mut Conn {
        &mut self.conns[conn]
    }

    /// Asks the shell to end a connection. Its stream leaves the lists at once; what arrived of it is settled when the
    /// shell reports.
    pub(super) fn close_conn(&mut self, conn: ConnSlot, ending: Ending) {
        if matches!(self.conns[conn].state, State::Closing(earlier) if earlier >= ending) {
            return;
        }
        let entry = &mut self.conns[conn];
        if ending > Ending::Orderly {
            entry.output = None;
            entry.comment = Comment::None;
        }
        entry.input = None;
        self.effects.push_back(Effect::Close(self.conn_key(conn), ending));
        let state = std::mem::replace(&mut self.conns[conn].state, State::Closing(ending));
        match state {
            State::Streaming(stream) => self.suspend_stream(stream, conn),
            State::Waiting(post) => self.posts[post].conn = None,
            State::Exchanging(exchange) => self.abandon_exchange(exchange),
            State::Carrying(session) => self.sever(session),
            State::Idle
            | State::Head
            | State::Body(_)
            | State::Flushing(_)
            | State::Moving(..)
            | State::Closing(_) => {}
        }
    }

    /// The peer will send nothing more. That alone ends neither a POST nor the stream of one.
    pub(super) fn peer_half_closed(&mut self, conn: ConnSlot, unacknowledged: usize, now: Now) {
        self.conns[conn].peer = Peer::Silent;
        let offset = self.conns[conn].arrived_offset(unacknowledged);
        match self.conns[conn].state {
            // What it said before is still to be answered.
            State::Idle if self.is_held(conn) => {}
            State::Idle | State::Head | State::Body(_) => {
                self.settle_all(conn, offset, now);
                self.close_conn(conn, Ending::Gone);
            }
            State::Streaming(stream) if self.streams[stream].via.is_get() => {
                self.conns[conn].state = State::Flushing(Afterwards::Close);
                // What goes to another stream must not be written here, too.
                self.retract_output(conn);
                self.detach(stream, offset, now);
                let last = sse::last_chunk(self.conns[conn].transfer);
                self.queue_frame(conn, [Piece::Static(last)], now);
                self.finish_reply(conn, Afterwards::Close, now);
            }
            State::Carrying(session) => {
                self.sever(session);
                self.end_event_stream(conn, Afterwards::Close, now);
            }
            // It may still read; what it has read so far is evidence.
            State::Streaming(stream) => self.stream_measured(stream, offset, now),
            State::Exchanging(exchange) => self.exchange_half_closed(exchange, now),
            State::Waiting(_) | State::Flushing(_) | State::Moving(..) | State::Closing(_) => {}
        }
        self.arm_conn(conn);
    }

    /// The connection is dead.
    pub(super) fn peer_lost(&mut self, conn: ConnSlot, unacknowledged: usize, now: Now) {
        let offset = self.conns[conn].arrived_offset(unacknowledged);
        self.settle_all(conn, offset, now);
        if let State::Streaming(stream) = self.conns[conn].state {
            self.conns[conn].state = State::Flushing(Afterwards::Close);
            self.detach(stream, offset, now);
        }
        self.close_conn(conn, Ending::Gone);
    }

    /// The shell is done with the connection: its slot is free.
    pub(super) fn conn_closed(&mut self, conn: ConnSlot, unacknowledged: usize, now: Now) {
        let offset = self.conns[conn].arrived_offset(unacknowledged);
        self.settle_all(conn, offset, now);
        debug_assert!(
            matches!(self.conns[conn].state, State::Closing(_)),
            "the shell ends what it was asked to"
        );
        self.note_end(conn, NotedEnd::Cut, now);
        let entry = self.remove_conn(conn);
        self.leave_source(entry.source);
        self.census.leave_connection();
    }

    fn remove_conn(&mut self, conn: ConnSlot) -> Conn {
        self.mark_used(conn);
        let entry = self.conns.remove(conn);
        if let Some(timer) = entry.timer {
            self.wheel.cancel(timer);
        }
        self.release_credential(entry.credential);
        entry
    }

    /// Whether the connection is still to be moved: its end may have come first.
    pub(super) fn is_moving(&self, conn: ConnSlot) -> bool {
        matches!(self.conns[conn].state, State::Moving(..))
    }

    /// Takes the connection and what it sent out of this shard. It stays counted: it ends on the shard that adopts
    /// it.
    pub(super) fn depart(&mut self, conn: ConnSlot) -> MovedConn {
        let key = self.conn_key(conn);
        let entry = self.remove_conn(conn);
        self.counters.connections_moved += 1;
        let bytes = entry.input.map_or_else(BytesMut::new, |input| *input);
        let State::Moving(shard, request) = entry.state else { unreachable!("seen by the caller") };
        let source = entry.source;
        MovedConn { conn: key, shard, source, bytes, request, refusal: super::http::reply::BUSY_503 }
    }
}

// --- Input --------------------------------------------------------------------------------------

impl Shard {
    /// What the shell should receive into: the unfinished message with room for more.
    pub(super) fn lend_input(&mut self, conn: ConnSlot) -> Option<BytesMut> {
        let entry = &mut self.conns[conn];
        let mut place = entry.input.take()?;
        let mut buffer = std::mem::take(&mut *place);
        let wanted = match &entry.state {
            State::Body(request) => request.wanted_bytes(buffer.len()),
            _ => limits::READ_BUFFER_BYTES,
        };
        buffer.reserve(wanted.max(1));
        self.recycle_input(place);
        Some(buffer)
    }

    /// Takes what was received and does what it asks for. Returns a buffer to reuse.
    pub(super) fn take_in(&mut self, conn: ConnSlot, buffer: BytesMut, now: Now) -> Option<BytesMut> {
        if let State::Closing(_) | State::Moving(..) = self.conns[conn].state {
            return Some(buffer);
        }
        let mut place = self.inputs.pop().unwrap_or_default();
        *place = buffer;
        self.conns[conn].input = Some(place);
        self.process(conn, now);
        self.spent_input(conn)
    }

    /// An input buffer that holds nothing is given back.
    fn spent_input(&mut self, conn: ConnSlot) -> Option<BytesMut> {
        let mut place = self.conns[conn].input.take_if(|buffer| buffer.is_empty())?;
        let buffer = std::mem::take(&mut *place);
        self.recycle_input(place);
        Some(buffer)
    }

    fn recycle_input(&mut self, place: Box<BytesMut>) {
        if self.inputs.len() < limits::INPUTS_POOLED {
            self.inputs.push(place);
        }
    }

    /// Works through the input as far as it goes: one request after the other, each when its predecessor's reply is
    /// written.
    pub(super) fn process(&mut self, conn: ConnSlot, now: Now) {
        loop {
            let step = match self.conns[conn].state {
                State::Idle => self.begin_head(conn, now),
                State::Head => self.process_head(conn, now),
                State::Body(_) => self.process_body(conn, now),
                State::Waiting(_)
                | State::Streaming(_)
                | State::Exchanging(_)
                | State::Carrying(_)
                | State::Flushing(_)
                | State::Moving(..)
                | State::Closing(_) => Step::Wait,
            };
            if step == Step::Wait {
                break;
            }
        }
        self.arm_conn(conn);
    }

    fn begin_head(&mut self, conn: ConnSlot, now: Now) -> Step {
        if self.has_input(conn) && self.awaits_evidence(conn, now) {
            return Step::Wait;
        }
        self.process_head(conn, now)
    }

    fn process_head(&mut self, conn: ConnSlot, now: Now) -> Step {
        let Some(input) = self.conns[conn].input.take().filter(|input| !input.is_empty()) else {
            return Step::Wait;
        };
        self.read_head(conn, input, now)
    }

    fn process_body(&mut self, conn: ConnSlot, now: Now) -> Step {
        let Some(mut input) = self.conns[conn].input.take() else { return Step::Wait };
        let State::Body(mut request) = std::mem::replace(&mut self.conns[conn].state, State::Idle) else {
            unreachable!("called in this state only")
        };
        let progress = self.take_body(conn, &mut request, &mut input);
        self.keep_input(conn, input);
        if let Ok(None) = progress {
            self.conns[conn].state = State::Body(request);
            return Step::Wait;
        }
        self.body_decoded(conn, &mut request, progress, now)
    }

    /// Decodes what has arrived of a body, and counts it; `Some` when it is whole.
    pub(super) fn take_body(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        input: &mut BytesMut,
    ) -> Result<Option<Bytes>, Refusal> {
        let body = request.decode(input)?;
        let bytes = body.as_ref().map_or_else(|| request.arrived_bytes(input), Bytes::len);
        if let Some(charge) = &mut request.charge {
            self.raise_charge(conn, charge, bytes).map_err(Refusal::closing)?;
        }
        Ok(body)
    }

    /// What a body led to that is whole, or refused.
    pub(super) fn body_decoded(
        &mut self,
        conn: ConnSlot,
        request: &mut Request,
        progress: Result<Option<Bytes>, Refusal>,
        now: Now,
    ) -> Step {
        match progress {
            Ok(None) => return Step::Wait,
            Ok(Some(body)) => self.dispatch(conn, request, &body, now),
            Err(refusal) => {
                let refusal = self.mask_refusal(request, refusal);
                self.refuse(conn, &request.reply, &refusal, now);
            }
        }
        Step::Again
    }

    /// Puts the rest of the input back.
    pub(super) fn keep_input(&mut self, conn: ConnSlot, input: Box<BytesMut>) {
        self.conns[conn].input = Some(input);
    }

    pub(super) fn has_input(&self, conn: ConnSlot) -> bool {
        self.conns[conn].input.as_ref().is_some_and(|input| !input.is_empty())
    }

    /// A head is not complete yet: its deadline runs from its first byte.
    pub(super) fn await_head(&mut self, conn: ConnSlot, now: Now) {
        let entry = &mut self.conns[conn];
        if !matches!(entry.state, State::Head) {
            entry.state = State::Head;
            if entry.age == Age::Used {
                entry.progress_ms = now.ms;
            }
        }
    }

    /// Bytes of this connection that the kernel has taken.
    pub(super) fn written_bytes(&self, conn: ConnSlot) -> u64 {
        self.conns[conn].written
    }

    /// A head is complete.
    pub(super) fn head_arrived(&mut self, conn: ConnSlot) {
        self.mark_used(conn);
        self.counters.requests += 1;
    }

    /// Nobody waits for the connection's first request any more.
    fn mark_used(&mut self, conn: ConnSlot) {
        if std::mem::replace(&mut self.conns[conn].age, Age::Used) == Age::Fresh {
            self.newcomers -= 1;
        }
    }

    pub(super) fn is_newcomer(&self, conn: ConnSlot) -> bool {
        self.conns[conn].age == Age::Fresh
    }

    /// A body is on its way: its deadline runs from now.
    pub(super) fn await_body(&mut self, conn: ConnSlot, request: Request, now: Now) {
        let entry = &mut self.conns[conn];
        entry.progress_ms = now.ms;
        entry.state = State::Body(Box::new(request));
    }

    /// What the read side should be doing.
    pub(super) fn read_interest(&self, conn: ConnSlot) -> Interest {
        let entry = &self.conns[conn];
        match entry.state {
            State::Closing(_) => Interest::Nothing,
            // Nothing is written while evidence is awaited, so only this tells that the peer is gone.
            _ if self.is_held(conn) => Interest::Failure,
            State::Moving(..) => Interest::Nothing,
            _ if entry.peer == Peer::Silent => Interest::Nothing,
            State::Idle => Interest::Park,
            State::Head | State::Body(_) => Interest::Receive,
            State::Waiting(_)
            | State::Streaming(_)
            | State::Exchanging(_)
            | State::Carrying(_)
            | State::Flushing(_)
                if entry.input.is_none() =>
            {
                Interest::Park
            }
            State::Carrying(_) => Interest::HangUp,
            State::Streaming(stream) if self.streams[stream].via.is_get() => Interest::HangUp,
            State::Exchanging(exchange) if self.exchanges[exchange].lasts() => Interest::HangUp,
            State::Waiting(_) | State::Streaming(_) | State::Exchanging(_) | State::Flushing(_) => {
                Interest::Failure
            }
        }
    }
}

/// Whether to go on with the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Again,
    Wait,
}

// --- Output -------------------------------------------------------------------------------------

impl Shard {
    /// Queues pieces that make one frame. Returns the offset at which it ends.
    pub(super) fn queue_frame<const N: usize>(
        &mut self,
        conn: ConnSlot,
        pieces: [Piece; N],
        now: Now,
    ) -> u64 {
        let last = pieces.iter().rposition(|piece| !piece.is_empty());
        let entry = &mut self.conns[conn];
        if last.is_some() && !entry.has_output() {
            entry.progress_ms = now.ms;
            entry.comment = Comment::None;
        }
        if let Some(last) = last {
            let output = entry.output.get_or_insert_with(|| self.outputs.pop().unwrap_or_default());
            for (index, piece) in pieces.into_iter().enumerate() {
                let boundary = if index == last { Boundary::FrameEnd } else { Boundary::Inside };
                output.push(piece, boundary);
            }
            self.list_output(conn);
            self.arm_conn(conn);
        }
        self.conns[conn].queued_offset()
    }

    pub(super) fn queue_bytes(&mut self, conn: ConnSlot, bytes: Bytes, now: Now) {
        self.queue_frame(conn, [Piece::Owned(bytes)], now);
    }

    /// Takes back frames of which nothing was written or lent, save what was pinned.
    pub(super) fn retract_output(&mut self, conn: ConnSlot) {
        let entry = &mut self.conns[conn];
        if let Some(output) = &mut entry.output {
            output.retract();
        }
        entry.output.take_if(|output| output.is_empty());
        // With nothing to write the next comment may be due before the write deadline that the timer was armed for.
        self.arm_conn(conn);
    }

    fn list_output(&mut self, conn: ConnSlot) {
        if self.conns[conn].listing == Listing::Unlisted {
            self.conns[conn].listing = Listing::Listed;
            self.with_output.push_back(self.conn_key(conn));
        }
    }

    /// The connection was named to the shell. If a write is in flight, its end names it again.
    pub(super) fn unlist_output(&mut self, conn: ConnSlot) {
        self.conns[conn].listing = Listing::Unlisted;
    }

    /// Lends the connection's next output to the shell.
    pub(super) fn lend_output(&mut self, conn: ConnSlot, pieces: &mut Vec<Piece>) {
        let entry = &mut self.conns[conn];
        match (&mut entry.output, entry.comment) {
            (Some(output), _) => output.lend(pieces),
            (None, Comment::Due(words)) => {
                entry.comment = Comment::Lent(words);
                pieces.push(Piece::Static(entry.said(words)));
            }
            (None, Comment::None | Comment::Lent(_)) => {}
        }
    }

    /// The kernel took `count` bytes of what was lent.
    pub(super) fn output_taken(&mut self, conn: ConnSlot, count: usize, now: Now) {
        let entry = &mut self.conns[conn];
        if let State::Closing(Ending::Gone | Ending::Cut) = entry.state {
            entry.written += count as u64;
            return;
        }
        entry.written += count as u64;
        if count > 0 {
            entry.progress_ms = now.ms;
        }
        if let Comment::Lent(words) = entry.comment {
            self.comment_taken(conn, words, count);
        } else if let Some(output) = &mut entry.output {
            output.advance(count);
            self.recycle_output(conn);
        }
        self.write_on(conn, now);
    }

    fn comment_taken(&mut self, conn: ConnSlot, words: Words, count: usize) {
        let entry = &mut self.conns[conn];
        self.counters.comments += 1;
        entry.comment = Comment::None;
        let rest = &entry.said(words)[count..];
        if !rest.is_empty() {
            entry.output.get_or_insert_with(|| self.outputs.pop().unwrap_or_default()).push_rest(rest);
        }
    }

    fn recycle_output(&mut self, conn: ConnSlot) {
        if let Some(output) = self.conns[conn].output.take_if(|output| output.is_empty())
            && self.outputs.len() < limits::OUTPUTS_POOLED
        {
            self.outputs.push(output);
        }
    }

    /// After progress: more of the stream, more of the queue, or what comes after the reply.
    fn write_on(&mut self, conn: ConnSlot, now: Now) {
        match self.conns[conn].state {
            State::Streaming(stream) => self.pump_stream(stream, now),
            State::Exchanging(exchange) => self.pump_listen(exchange, now),
            State::Carrying(session) => self.pump_carrier(session, now),
            _ => {}
        }
        if self.conns[conn].output.is_some() {
            return self.list_output(conn);
        }
        if let State::Flushing(afterwards) = self.conns[conn].state {
            self.reply_flushed(conn, afterwards, now);
        }
        // What is due now may be due before the write deadline that the timer was armed for.
        self.arm_conn(conn);
    }

    /// The whole reply is queued; `afterwards` follows when it is written.
    pub(super) fn finish_reply(&mut self, conn: ConnSlot, afterwards: Afterwards, now: Now) {
        self.conns[conn].state = State::Flushing(afterwards);
        if !self.conns[conn].has_output() {
            self.reply_flushed(conn, afterwards, now);
        }
    }

    fn reply_flushed(&mut self, conn: ConnSlot, afterwards: Afterwards, now: Now) {
        self.note_end(conn, NotedEnd::Whole, now);
        let entry = &self.conns[conn];
        let close =
            afterwards == Afterwards::Close || entry.persistence == Persistence::Close || self.draining();
        if close {
            return self.close_orderly(conn, now);
        }
        let entry = &mut self.conns[conn];
        entry.state = State::Idle;
        entry.progress_ms = now.ms;
        self.go_on(conn, now);
    }

    /// Looks at the requests that came while others were answered.
    fn go_on(&mut self, conn: ConnSlot, now: Now) {
        if self.conns[conn].input.is_some() {
            self.process(conn, now);
            drop(self.spent_input(conn));
        }
        self.arm_conn(conn);
        // A silent peer still gets the replies to all it asked; what it left unfinished never comes.
        let entry = &self.conns[conn];
        let has_asked_all = matches!(entry.state, State::Idle | State::Head | State::Body(_));
        if entry.peer == Peer::Silent && has_asked_all && !self.is_held(conn) {
            self.close_orderly(conn, now);
        }
    }

    /// Ends a connection on which everything was written; the peer gets a moment to end it, too.
    fn close_orderly(&mut self, conn: ConnSlot, now: Now) {
        self.close_conn(conn, Ending::Orderly);
        self.conns[conn].progress_ms = now.ms;
        self.arm_conn(conn);
    }

    // --- Replies ---------------------------------------------------------------------------------

    /// Queues a reply of head and body, which comes in parts, in one buffer; after it the exchange is over. Returns the
    /// whole reply.
    pub(super) fn reply(&mut self, conn: ConnSlot, head: &ReplyHead<'_>, body: &[&[u8]], now: Now) -> Bytes {
        let mut head = *head;
        head.exchange.persistence = head.exchange.persistence.and(self.persistence());
        let mut out = BytesMut::new();
        head.write_with(body, &mut out);
        self.note_status(conn, head.status);
        let out = out.freeze();
        self.conns[conn].persistence = head.exchange.persistence;
        self.queue_bytes(conn, out.clone(), now);
        self.count_unread(conn, out.len());
        self.finish_reply(conn, Afterwards::AsAgreed, now);
        out
    }

    /// Queues a refusal, after which the exchange is over.
    pub(super) fn refuse(&mut self, conn: ConnSlot, facts: &ReplyFacts, refusal: &Refusal, now: Now) {
        self.counters.requests_refused += 1;
        self.note_status(conn, refusal.status);
        let mut exchange = facts.exchange(&self.date);
        exchange.persistence = exchange.persistence.and(self.persistence());
        let mut out = BytesMut::new();
        refusal.write(facts.method, exchange, &mut out);
        self.conns[conn].persistence = exchange.persistence.and(refusal.persistence);
        self.queue_bytes(conn, out.freeze(), now);
        self.finish_reply(conn, Afterwards::AsAgreed, now);
    }

    /// What the server wants of connections: one that stops says so with every reply.
    fn persistence(&self) -> Persistence {
        if self.draining() { Persistence::Close } else { Persistence::Keep }
    }

    /// Decides how a stream on this connection is framed, and what follows it.
    pub(super) fn agree_on_stream(&mut self, conn: ConnSlot, facts: &ReplyFacts) {
        let persistence = self.persistence();
        let entry = &mut self.conns[conn];
        (entry.transfer, entry.persistence) = match facts.version {
            Version::Http11 => (Transfer::Chunked, facts.persistence.and(persistence)),
            Version::Http10 => (Transfer::CloseDelimited, Persistence::Close),
        };
    }
}

// --- Time ---------------------------------------------------------------------------------------

impl Shard {
    /// When something has to happen to the connection if nothing else does, or the kernel is to be asked about it.
    fn conn_deadline_ms(&self, conn: ConnSlot) -> Option<u64> {
        let deadline_ms = self.state_deadline_ms(conn).unwrap_or(u64::MAX);
        let deadline_ms = match self.conns[conn].state {
            State::Closing(_) => deadline_ms,
            _ => deadline_ms.min(self.evidence_due_ms(conn)),
        };
        (deadline_ms < u64::MAX).then_some(deadline_ms)
    }

    /// When the present state ends by itself.
    fn state_deadline_ms(&self, conn: ConnSlot) -> Option<u64> {
        let (entry, config) = (&self.conns[conn], &self.config);
        let allowed_ms = match entry.state {
            State::Closing(Ending::Orderly) => limits::LINGER_MS,
            // The latter waits for evidence, and ends with it.
            State::Closing(Ending::Gone | Ending::Cut) | State::Moving(..) => return None,
            _ if entry.has_output() => config.write_timeout_ms,
            State::Idle if entry.age == Age::Used => config.idle_timeout_ms,
            State::Idle | State::Head => config.header_timeout_ms,
            State::Body(_) => config.body_timeout_ms,
            State::Streaming(_) | State::Carrying(_) => return self.stream_deadline_ms(conn),
            State::Exchanging(exchange) if self.exchanges[exchange].is_stream() => {
                return self.stream_deadline_ms(conn);
            }
            State::Exchanging(exchange)
                if entry.peer == Peer::Silent && self.exchanges[exchange].takes_interim() =>
            {
                limits::SILENT_PEER_PROBE_MS
            }
            State::Waiting(_) | State::Exchanging(_) | State::Flushing(_) => return None,
        };
        Some(entry.progress_ms + allowed_ms)
    }

    /// When a stream needs a comment, or its token ends it.
    fn stream_deadline_ms(&self, conn: ConnSlot) -> Option<u64> {
        let (entry, keep_alive_ms) = (&self.conns[conn], self.config.keep_alive_ms);
        let interval_ms = match (&entry.state, entry.peer) {
            (State::Exchanging(_), Peer::Silent) => Some(limits::SILENT_PEER_PROBE_MS),
            _ => (keep_alive_ms > 0).then(|| keep_alive_ms - self.phase_ms(conn)),
        };
        let comment_ms = interval_ms.map(|interval_ms| entry.progress_ms + interval_ms);
        let deadline_ms = comment_ms.unwrap_or(u64::MAX).min(self.token_expires_ms(conn));
        (deadline_ms < u64::MAX).then_some(deadline_ms)
    }

    /// Spreads the comments of streams that were last written together over an eighth of the interval.
    fn phase_ms(&self, conn: ConnSlot) -> u64 {
        let spread = u64::from(conn.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        spread % (self.config.keep_alive_ms / 8 + 1)
    }

    /// Makes sure that the timer fires no later than the connection's deadline. It may fire earlier: writes do not touch
    /// the wheel.
    pub(super) fn arm_conn(&mut self, conn: ConnSlot) {
        let Some(deadline_ms) = self.conn_deadline_ms(conn) else { return };
        let timer = self.conns[conn].timer;
        self.conns[conn].timer = Some(self.arm_no_later(timer, deadline_ms, Deadline::Conn(conn)));
    }

    /// The connection's timer fired.
    pub(super) fn conn_expired(&mut self, conn: ConnSlot, now: Now) {
        self.conns[conn].timer = None;
        if self.evidence_due_ms(conn) <= now.ms {
            self.ask_for_evidence(conn, now);
        }
        if let Some(deadline_ms) = self.state_deadline_ms(conn)
            && deadline_ms <= now.ms
        {
            self.conn_overdue(conn, deadline_ms, now);
        }
        self.arm_conn(conn);
    }

    fn conn_overdue(&mut self, conn: ConnSlot, deadline_ms: u64, now: Now) {
        match self.conns[conn].state {
            State::Closing(Ending::Orderly) => self.close_conn(conn, Ending::Gone),
            State::Closing(Ending::Gone | Ending::Cut) | State::Moving(..) => {}
            _ if self.conns[conn].has_output() => self.cut_stalled(conn),
            State::Idle => self.close_conn(conn, Ending::Gone),
            State::Head => {
                self.time_out(conn, Refusal::timeout("the request's head did not arrive in time"), now)
            }
            State::Body(_) => {
                self.time_out(conn, Refusal::timeout("the request's body did not arrive in time"), now)
            }
            State::Exchanging(exchange) if !self.exchanges[exchange].is_stream() => {
                self.comment_due(conn, deadline_ms, now);
            }
            State::Streaming(_) | State::Exchanging(_) | State::Carrying(_)
                if self.token_expires_ms(conn) <= now.ms =>
            {
                self.token_ended(conn, now);
            }
            State::Streaming(stream) => {
                self.comment_due(conn, deadline_ms, now);
                if self.streams[stream].trust == Trust::Demoted {
                    self.effects.push_back(Effect::Measure(self.conn_key(conn)));
                }
            }
            State::Exchanging(_) | State::Carrying(_) => self.comment_due(conn, deadline_ms, now),
            State::Waiting(_) | State::Flushing(_) => {}
        }
    }

    /// The peer takes what was written too slowly, or not at all.
    pub(super) fn cut_stalled(&mut self, conn: ConnSlot) {
        self.counters.connections_stalled += 1;
        self.close_conn(conn, Ending::Cut);
    }

    fn time_out(&mut self, conn: ConnSlot, refusal: Refusal, now: Now) {
        self.counters.requests_timed_out += 1;
        let facts = match &mut self.conns[conn].state {
            State::Body(request) => std::mem::take(&mut request.reply),
            _ => ReplyFacts::default(),
        };
        self.conns[conn].input = None;
        self.refuse(conn, &facts, &refusal, now);
    }

    fn comment_due(&mut self, conn: ConnSlot, deadline_ms: u64, now: Now) {
        let late_ms = now.ms - deadline_ms;
        self.counters.comments_late_ms += late_ms;
        self.counters.comments_late_ms_max = self.counters.comments_late_ms_max.max(late_ms);
        let words = self.words(conn);
        let entry = &mut self.conns[conn];
        entry.comment = Comment::Due(words);
        entry.progress_ms = now.ms;
        self.with_comment.push_back(self.conn_key(conn));
    }

    /// What can be said on the connection at any time.
    fn words(&self, conn: ConnSlot) -> Words {
        match self.conns[conn].state {
            State::Exchanging(exchange) if !self.exchanges[exchange].is_stream() => Words::Interim,
            _ => Words::Comment,
        }
    }

    /// Asks whether anybody reads what comes here, by something that means nothing: a peer that is gone answers with a reset, and the next one fails.
    pub(super) fn probe_reader(&mut self, conn: ConnSlot) {
        if self.conns[conn].output.is_none() && self.conns[conn].comment == Comment::None {
            self.conns[conn].comment = Comment::Due(self.words(conn));
            self.with_comment.push_back(self.conn_key(conn));
        }
    }

    /// Whether a comment that came due is still worth writing.
    pub(super) fn wants_comment(&self, conn: ConnSlot) -> bool {
        matches!(self.conns[conn].comment, Comment::Due(_)) && self.conns[conn].output.is_none()
    }

    /// What arrived so far is known: evidence for what is or was written here, for which something may have waited.
    pub(super) fn conn_measured(&mut self, conn: ConnSlot, unacknowledged: usize, now: Now) {
        let offset = self.conns[conn].arrived_offset(unacknowledged);
        self.settle_arrived(conn, offset, now);
        match self.conns[conn].state {
            State::Streaming(stream) => self.stream_measured(stream, offset, now),
            State::Moving(..) => self.move_measured(conn, now),
            State::Idle if self.has_input(conn) && !self.is_full_of_unproven(conn) => self.go_on(conn, now),
            _ => {}
        }
        self.arm_conn(conn);
    }

    /// The stream's connection is being ended: it is not live any more, but what arrived is not known yet.
    fn suspend_stream(&mut self, stream: StreamSlot, conn: ConnSlot) {
        self.leave_lists(stream);
        self.streams[stream].attachment = Attachment::Ending(conn);
        self.keep_unproven(conn, Kept::Stream(stream), u64::MAX);
    }
}
