//! Replies that may not have arrived and that no cursor can recover, given to a plain GET.
//!
//! A client that lost a connection before it was told any event id of the reply cannot name what it misses. Its next
//! plain GET gets the response, without an id, before anything else. Owns those responses, bounded like the logs and
//! kept no longer; exists only while it holds something.
//!
//! Invariants: a response is claimed by one stream at a time, and written at most once to an attachment; it is given up
//! only with evidence that it arrived or that its client can ask for it by name, by age, or for want of room; a reply of
//! which there is no doubt never gets here, nor that to `initialize`.

use super::{
    memory::{Owed, large},
    moved::Moved,
    queue::Message,
    seam::*,
    shard::{Deadline, Shard},
    sse,
    stream::Via,
    table::{ConnSlot, SessionSlot, StreamSlot},
    wheel::TimerId,
};
use std::collections::VecDeque;

/// The lost replies of one session, oldest first, and under which names messages moved.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    replies: VecDeque<Lost>,
    bytes: usize,
    pub(super) moved: Moved,
    pub(super) timer: Option<TimerId>,
}

#[derive(Debug)]
struct Lost {
    message: Message,
    at_ms: u64,
    origin: Origin,
    /// The stream that is to write it, or did last.
    claim: Option<StreamSlot>,
    /// Where it was written and may still arrive.
    copies: Vec<Written>,
    /// It is large.
    _owed: Option<Box<Owed>>,
}

/// Whether the client may come back for a response by name after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Nameless,
    /// It is in the log of the request stream of that number, too, whose first event id may have arrived.
    Doubtful(u32),
}

/// A response queued on an attached stream: it ends at that offset of the stream's connection.
#[derive(Clone, Copy, Debug)]
struct Written {
    stream: StreamSlot,
    end: u64,
}

impl Lost {
    fn bytes(&self) -> usize {
        self.message.payload.len()
    }

    fn is_on(&self, stream: StreamSlot) -> bool {
        self.copies.iter().any(|copy| copy.stream == stream)
    }
}

impl Recovery {
    /// Returns how many bytes went.
    fn remove(&mut self, condemned: impl Fn(&Lost) -> bool) -> usize {
        let before = self.bytes;
        self.replies.retain(|lost| {
            let stays = !condemned(lost);
            if !stays {
                self.bytes -= lost.bytes();
            }
            stays
        });
        before - self.bytes
    }

    /// The same of the oldest.
    fn drop_oldest(&mut self) -> usize {
        let bytes = self.replies.pop_front().map_or(0, |lost| lost.bytes());
        self.bytes -= bytes;
        bytes
    }

    /// Of the replies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.moved.is_empty()
    }

    /// When the oldest of what it holds came.
    fn oldest_ms(&self) -> Option<u64> {
        let reply_ms = self.replies.front().map(|lost| lost.at_ms);
        reply_ms.into_iter().chain(self.moved.oldest_ms()).min()
    }

    /// Whether `live` is true of every stream that holds a claim or a copy.
    pub(super) fn claims_hold(&self, live: impl Fn(StreamSlot) -> bool) -> bool {
        let copies = self.replies.iter().flat_map(|lost| &lost.copies).map(|copy| copy.stream);
        self.replies.iter().filter_map(|lost| lost.claim).chain(copies).all(live)
    }
}

impl Shard {
    /// Keeps a response that may not have arrived and of which the client may know no event id.
    pub(super) fn reply_lost(&mut self, session: SessionSlot, message: Message, origin: Origin, now: Now) {
        self.counters.replies_lost += 1;
        if !self.config.fresh_get_fallback {
            return;
        }
        // Of one that is in a log there was a word already.
        if origin == Origin::Nameless && large(message.payload.len()) > 0 && self.is_owed_enough(session) {
            self.counters.events_evicted += 1;
            return;
        }
        // Of one that is in a log as well both count: either may go before the other.
        let bytes = message.payload.len();
        let owed = self.owed(session, large(bytes));
        let lost = Lost { message, at_ms: now.ms, origin, claim: None, copies: Vec::new(), _owed: owed };
        let recovery = self.sessions[session].recovery.get_or_insert_default();
        recovery.bytes += bytes;
        recovery.replies.push_back(lost);
        self.keep(session, bytes);
        while self.has_reply_too_many(session) {
            let dropped =
                self.sessions[session].recovery.as_mut().map_or(0, |recovery| recovery.drop_oldest());
            self.let_go(session, dropped);
            self.counters.events_evicted += 1;
        }
        self.arm_recovery(session, now.ms + self.config.replay_ttl_ms);
    }

    /// Whether the oldest of several has to go.
    fn has_reply_too_many(&self, session: SessionSlot) -> bool {
        let Some(Recovery { replies, bytes, .. }) = self.sessions[session].recovery.as_deref() else {
            return false;
        };
        let (events_max, bytes_max) = (self.config.replay_events_max, self.config.replay_bytes_max);
        replies.len() > 1
            && (replies.len() > events_max || *bytes > bytes_max || self.keeps_too_much(session))
    }

    /// A plain GET was attached: it claims what nobody has.
    pub(super) fn claim_replies(&mut self, stream: StreamSlot) {
        let session = self.streams[stream].session;
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        for lost in recovery.replies.iter_mut().filter(|lost| lost.claim.is_none()) {
            lost.claim = Some(stream);
        }
    }

    /// Frames the next response the stream claimed. False if there is none.
    pub(super) fn write_claimed(&mut self, stream: StreamSlot, conn: ConnSlot, now: Now) -> bool {
        let session = self.streams[stream].session;
        let Some(payload) = self.claimed(session, stream).map(|lost| lost.message.payload.clone()) else {
            return false;
        };
        let bytes = payload.len();
        let (before, after) = sse::event(self.conns[conn].transfer, None, bytes);
        let pieces = [Piece::Inline(before), Piece::Shared(payload), Piece::Static(after)];
        let end = self.queue_frame(conn, pieces, now);
        self.count_unread(conn, bytes);
        self.counters.replies_recovered += 1;
        if let Some(lost) = self.claimed(session, stream) {
            lost.copies.push(Written { stream, end });
        }
        true
    }

    fn claimed(&mut self, session: SessionSlot, stream: StreamSlot) -> Option<&mut Lost> {
        let recovery = self.sessions[session].recovery.as_mut()?;
        recovery.replies.iter_mut().find(|lost| lost.claim == Some(stream) && !lost.is_on(stream))
    }

    /// Everything up to `offset` of the stream's connection has arrived.
    pub(super) fn acknowledge_claimed(&mut self, stream: StreamSlot, offset: u64) {
        let session = self.streams[stream].session;
        let has_arrived = |copy: &Written| copy.stream == stream && copy.end <= offset;
        self.forget_replies(session, |lost| lost.copies.iter().any(has_arrived));
    }

    /// The client named a request stream: it asks for the rest of it there.
    pub(super) fn forget_named(&mut self, session: SessionSlot, number: u32) {
        self.forget_replies(session, |lost| lost.origin == Origin::Doubtful(number));
    }

    /// The stream has left its connection: nothing that it wrote there will be heard of any more.
    pub(super) fn forget_copies(&mut self, stream: StreamSlot) {
        self.keep_copies(stream, |_| false);
    }

    /// Frames behind `offset` were taken back from the stream's connection: the responses among them go elsewhere.
    pub(super) fn claims_retracted(&mut self, stream: StreamSlot, offset: u64, now: Now) {
        self.keep_copies(stream, |end| end <= offset);
        self.pass_on_claims(stream, |lost| !lost.is_on(stream), now);
    }

    /// The stream is gone or in doubt: what it claimed and did not deliver goes to another plain GET, or to the next that
    /// comes.
    pub(super) fn release_claims(&mut self, stream: StreamSlot, now: Now) {
        self.pass_on_claims(stream, |_| true, now);
    }

    fn pass_on_claims(&mut self, stream: StreamSlot, which: impl Fn(&Lost) -> bool, now: Now) {
        let session = self.streams[stream].session;
        if self.sessions[session].recovery.is_none() {
            return;
        }
        let heirs = self.other_plain_gets(session, stream);
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        for lost in recovery.replies.iter_mut().filter(|lost| lost.claim == Some(stream) && which(lost)) {
            lost.claim = heirs.iter().copied().find(|heir| !lost.is_on(*heir));
        }
        for heir in heirs {
            self.pump_stream(heir, now);
        }
    }

    fn keep_copies(&mut self, stream: StreamSlot, stays: impl Fn(u64) -> bool) {
        let session = self.streams[stream].session;
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        for lost in &mut recovery.replies {
            lost.copies.retain(|copy| copy.stream != stream || stays(copy.end));
        }
    }

    /// The live plain GETs beside that stream: those whose peers are not in doubt before others, and of each the one that
    /// waits longest first.
    fn other_plain_gets(&self, session: SessionSlot, not: StreamSlot) -> Vec<StreamSlot> {
        let is_plain = |slot: &StreamSlot| {
            let stream = &self.streams[*slot];
            *slot != not && stream.via == Via::PlainGet && stream.live_conn().is_some()
        };
        let mut gets: Vec<_> = self.streams_of(session).filter(is_plain).collect();
        gets.reverse();
        gets.sort_by_key(|slot| self.reluctance(*slot));
        gets
    }

    /// Replies have been kept long enough.
    pub(super) fn recovery_expired(&mut self, session: SessionSlot, now: Now) {
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        recovery.timer = None;
        let ttl_ms = self.config.replay_ttl_ms;
        recovery.moved.expire(now.ms.saturating_sub(ttl_ms));
        self.forget_replies(session, |lost| lost.at_ms + ttl_ms <= now.ms);
        let oldest_ms = self.sessions[session].recovery.as_ref().and_then(|recovery| recovery.oldest_ms());
        if let Some(oldest_ms) = oldest_ms {
            self.arm_recovery(session, oldest_ms + ttl_ms);
        }
    }

    /// The session ends.
    pub(super) fn abandon_replies(&mut self, session: SessionSlot) {
        if let Some(recovery) = &mut self.sessions[session].recovery {
            recovery.moved.clear();
        }
        self.forget_replies(session, |_| true);
    }

    fn forget_replies(&mut self, session: SessionSlot, condemned: impl Fn(&Lost) -> bool) {
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        let bytes = recovery.remove(condemned);
        self.let_go(session, bytes);
        self.drop_empty_recovery(session);
    }

    pub(super) fn drop_empty_recovery(&mut self, session: SessionSlot) {
        if let Some(recovery) = self.sessions[session].recovery.take_if(|recovery| recovery.is_empty())
            && let Some(timer) = recovery.timer
        {
            self.wheel.cancel(timer);
        }
    }

    pub(super) fn arm_recovery(&mut self, session: SessionSlot, deadline_ms: u64) {
        let Some(timer) = self.sessions[session].recovery.as_ref().map(|recovery| recovery.timer) else {
            return;
        };
        let timer = self.arm_no_later(timer, deadline_ms, Deadline::Recovery(session));
        if let Some(recovery) = &mut self.sessions[session].recovery {
            recovery.timer = Some(timer);
        }
    }
}
