//! Replies that may not have arrived and that no cursor can recover, given to a plain GET.
//!
//! A client that lost a connection before it was told any event id of the reply cannot name what it misses. Its next
//! plain GET gets the response, without an id, before anything else. Owns those responses, bounded like the logs and
//! kept no longer; exists only while it holds something.
//!
//! Invariants: a response is claimed by one stream at a time; it is given up only with evidence that it arrived, by age,
//! or for want of room; a reply of which there is no doubt never gets here, nor that to `initialize`.

use super::{
    queue::Message,
    seam::*,
    shard::{Deadline, Shard},
    sse,
    stream::Via,
    table::{ConnSlot, SessionSlot, StreamSlot},
    wheel::TimerId,
};
use std::collections::VecDeque;

/// The lost replies of one session, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    replies: VecDeque<Lost>,
    bytes: usize,
    pub(super) timer: Option<TimerId>,
}

#[derive(Debug)]
struct Lost {
    message: Message,
    at_ms: u64,
    claim: Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Free,
    /// A stream will write it.
    Taken(StreamSlot),
    /// A stream wrote it; it ends at that offset of its connection.
    Written(StreamSlot, u64),
}

impl Claim {
    fn holder(self) -> Option<StreamSlot> {
        match self {
            Claim::Free => None,
            Claim::Taken(stream) | Claim::Written(stream, _) => Some(stream),
        }
    }
}

impl Recovery {
    fn remove(&mut self, condemned: impl Fn(&Lost) -> bool) {
        self.replies.retain(|lost| !condemned(lost));
        self.bytes = self.replies.iter().map(|lost| lost.message.payload.len()).sum();
    }

    fn drop_oldest(&mut self) {
        if let Some(lost) = self.replies.pop_front() {
            self.bytes -= lost.message.payload.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Whether every claim is held by a stream for which `live` is true.
    pub(super) fn claims_hold(&self, live: impl Fn(StreamSlot) -> bool) -> bool {
        self.replies.iter().filter_map(|lost| lost.claim.holder()).all(live)
    }
}

impl Shard {
    /// Keeps a response that may not have arrived and of which the client knows no event id.
    pub(super) fn reply_lost(&mut self, session: SessionSlot, message: Message, now: Now) {
        self.counters.replies_lost += 1;
        if !self.config.fresh_get_fallback {
            return;
        }
        let (events_max, bytes_max) = (self.config.replay_events_max, self.config.replay_bytes_max);
        let recovery = self.sessions[session].recovery.get_or_insert_default();
        recovery.bytes += message.payload.len();
        recovery.replies.push_back(Lost { message, at_ms: now.ms, claim: Claim::Free });
        while recovery.replies.len() > 1
            && (recovery.replies.len() > events_max || recovery.bytes > bytes_max)
        {
            recovery.drop_oldest();
            self.counters.events_evicted += 1;
        }
        self.arm_recovery(session, now.ms + self.config.replay_ttl_ms);
    }

    /// A plain GET was attached: it claims what nobody has.
    pub(super) fn claim_replies(&mut self, stream: StreamSlot) {
        let session = self.streams[stream].session;
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        for lost in recovery.replies.iter_mut().filter(|lost| lost.claim == Claim::Free) {
            lost.claim = Claim::Taken(stream);
        }
    }

    /// Frames the next response the stream claimed. False if there is none.
    pub(super) fn write_claimed(&mut self, stream: StreamSlot, conn: ConnSlot, now: Now) -> bool {
        let session = self.streams[stream].session;
        let Some(payload) = self.claimed(session, stream).map(|lost| lost.message.payload.clone()) else {
            return false;
        };
        let (before, after) = sse::event(self.conns[conn].transfer, None, payload.len());
        let pieces = [Piece::Inline(before), Piece::Shared(payload), Piece::Static(after)];
        let end = self.queue_frame(conn, pieces, now);
        self.counters.replies_recovered += 1;
        if let Some(lost) = self.claimed(session, stream) {
            lost.claim = Claim::Written(stream, end);
        }
        true
    }

    fn claimed(&mut self, session: SessionSlot, stream: StreamSlot) -> Option<&mut Lost> {
        let recovery = self.sessions[session].recovery.as_mut()?;
        recovery.replies.iter_mut().find(|lost| lost.claim == Claim::Taken(stream))
    }

    /// Everything up to `offset` of the stream's connection has arrived.
    pub(super) fn acknowledge_claimed(&mut self, stream: StreamSlot, offset: u64) {
        let session = self.streams[stream].session;
        let arrived = |lost: &Lost| matches!(lost.claim, Claim::Written(holder, end) if holder == stream && end <= offset);
        self.forget_replies(session, arrived);
    }

    /// The stream is gone: what it claimed and did not deliver goes to the plain GET that waits longest, or to the
    /// next that comes.
    pub(super) fn release_claims(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        let heir = self.next_plain_get(session, stream);
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        for lost in recovery.replies.iter_mut().filter(|lost| lost.claim.holder() == Some(stream)) {
            lost.claim = heir.map_or(Claim::Free, Claim::Taken);
        }
        if let Some(heir) = heir {
            self.pump_stream(heir, now);
        }
    }

    fn next_plain_get(&self, session: SessionSlot, not: StreamSlot) -> Option<StreamSlot> {
        self.streams_of(session)
            .filter(|slot| {
                let stream = &self.streams[*slot];
                *slot != not && stream.via == Via::PlainGet && stream.live_conn().is_some()
            })
            .last()
    }

    /// Replies have been kept long enough.
    pub(super) fn recovery_expired(&mut self, session: SessionSlot, now: Now) {
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        recovery.timer = None;
        let ttl_ms = self.config.replay_ttl_ms;
        self.forget_replies(session, |lost| lost.at_ms + ttl_ms <= now.ms);
        let oldest = self.sessions[session].recovery.as_ref().and_then(|recovery| recovery.replies.front());
        if let Some(deadline_ms) = oldest.map(|lost| lost.at_ms + ttl_ms) {
            self.arm_recovery(session, deadline_ms);
        }
    }

    /// The session ends.
    pub(super) fn abandon_replies(&mut self, session: SessionSlot) {
        self.forget_replies(session, |_| true);
    }

    fn forget_replies(&mut self, session: SessionSlot, condemned: impl Fn(&Lost) -> bool) {
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        recovery.remove(condemned);
        if recovery.is_empty() {
            if let Some(timer) = recovery.timer {
                self.wheel.cancel(timer);
            }
            self.sessions[session].recovery = None;
        }
    }

    fn arm_recovery(&mut self, session: SessionSlot, deadline_ms: u64) {
        let Some(timer) = self.sessions[session].recovery.as_ref().map(|recovery| recovery.timer) else {
            return;
        };
        let timer = self.arm_no_later(timer, deadline_ms, Deadline::Recovery(session));
        if let Some(recovery) = &mut self.sessions[session].recovery {
            recovery.timer = Some(timer);
        }
    }
}
