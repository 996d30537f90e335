//! Replies of a connection that are written and not known to have arrived.
//!
//! A request on the same connection is no evidence that the reply before it arrived: a client may send it without having
//! read anything. The kernel knows, and asking it costs a system call; so replies are kept, in the order in which they
//! were written, until they are half as many or as large as the limits allow or [`ACK_CHECK_MS`] have passed, and are settled
//! together then. Whatever ends the connection settles all of them.
//!
//! Invariant: the next request is not looked at while the limits are reached, and a connection moves to another shard
//! with nothing unproven: one that is to move, and whose peer has not acknowledged everything within the write time-out,
//! is cut. A list exists only while it holds something; 56 bytes for each reply beside what is kept of it.

use super::{
    conn::State,
    http::reply::BUSY_503,
    memory::Unread,
    seam::*,
    shard::Shard,
    table::{ConnSlot, StreamSlot},
};
use crate::limits::{
    ACK_CHECK_MS, ACK_RECHECK_MS, UNPROVEN_BYTES_MAX, UNPROVEN_POOLED, UNPROVEN_REPLIES_MAX,
};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Unproven {
    /// In the order in which they were written.
    replies: VecDeque<Reply>,
    json_bytes: usize,
    /// When to ask the kernel.
    check_ms: u64,
}

#[derive(Debug)]
struct Reply {
    /// Where it ends in the connection's output.
    end: u64,
    kept: Kept,
    /// It is written, its peer takes its time, and it is large.
    unread: Option<Box<Unread>>,
}

/// What there is of a reply in case it did not arrive.
#[derive(Debug)]
pub(super) enum Kept {
    /// All of it: it carries no event id by which it could be asked for.
    Json(SessionKey, Bytes),
    /// The stream that it was the end of, and its log.
    Stream(StreamSlot),
}

impl Kept {
    fn json_bytes(&self) -> usize {
        match self {
            Kept::Json(_, json) => json.len(),
            Kept::Stream(_) => 0,
        }
    }
}

impl Unproven {
    fn push(&mut self, reply: Reply) {
        self.json_bytes += reply.kept.json_bytes();
        self.replies.push_back(reply);
    }

    /// The oldest reply, if it ends within the first `offset` bytes.
    fn pop_within(&mut self, offset: u64) -> Option<Reply> {
        self.replies.front().filter(|reply| reply.end <= offset)?;
        let reply = self.replies.pop_front()?;
        self.json_bytes -= reply.kept.json_bytes();
        Some(reply)
    }

    /// Enough to be worth asking the kernel.
    fn is_worth_asking(&self) -> bool {
        self.replies.len() >= UNPROVEN_REPLIES_MAX / 2 || self.json_bytes >= UNPROVEN_BYTES_MAX / 2
    }

    fn is_full(&self) -> bool {
        self.replies.len() >= UNPROVEN_REPLIES_MAX || self.json_bytes >= UNPROVEN_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// The streams that ended here.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamSlot> {
        self.replies.iter().filter_map(|reply| match reply.kept {
            Kept::Stream(stream) => Some(stream),
            Kept::Json(..) => None,
        })
    }

    pub(super) fn holds(&self, stream: StreamSlot) -> bool {
        self.streams().any(|other| other == stream)
    }
}

impl Shard {
    /// Keeps what was queued last until it is known to have arrived. The kernel is asked at `check_ms` at the latest.
    pub(super) fn keep_unproven(&mut self, conn: ConnSlot, kept: Kept, check_ms: u64) {
        let entry = &mut self.conns[conn];
        let end = entry.queued_offset();
        let pool = &mut self.unproven;
        let unproven = entry.unproven.get_or_insert_with(|| {
            let mut unproven = pool.pop().unwrap_or_default();
            unproven.check_ms = check_ms;
            unproven
        });
        unproven.push(Reply { end, kept, unread: None });
    }

    /// That stream's arrival is nobody's concern any more.
    pub(super) fn forget_unproven(&mut self, conn: ConnSlot, stream: StreamSlot) {
        if let Some(unproven) = &mut self.conns[conn].unproven {
            unproven.replies.retain(|reply| !matches!(reply.kept, Kept::Stream(other) if other == stream));
        }
        if self.is_held(conn) {
            // What waited for it goes on with the answer.
            self.effects.push_back(Effect::Measure(self.conn_key(conn)));
        }
        self.recycle_unproven(conn);
    }

    fn recycle_unproven(&mut self, conn: ConnSlot) {
        if let Some(emptied) = self.conns[conn].unproven.take_if(|unproven| unproven.is_empty())
            && self.unproven.len() < UNPROVEN_POOLED
        {
            self.unproven.push(emptied);
        }
    }

    /// The first `offset` bytes of the connection's output have arrived.
    pub(super) fn settle_arrived(&mut self, conn: ConnSlot, offset: u64, now: Now) {
        while let Some(reply) =
            self.conns[conn].unproven.as_mut().and_then(|unproven| unproven.pop_within(offset))
        {
            if let Kept::Stream(stream) = reply.kept {
                self.detach(stream, offset, now);
            }
        }
        self.recycle_unproven(conn);
        let in_part: Vec<_> =
            self.conns[conn].unproven.iter().flat_map(|unproven| unproven.streams()).collect();
        for stream in in_part {
            self.stream_arrived(stream, offset);
        }
        self.count_unproven(conn);
    }

    /// What was written to the kernel and has not arrived by now is unread like what was not written.
    fn count_unproven(&mut self, conn: ConnSlot) {
        let Some(mut unproven) = self.conns[conn].unproven.take() else { return };
        let written = self.conns[conn].written_offset();
        for reply in unproven.replies.iter_mut().filter(|reply| reply.end <= written) {
            match &reply.kept {
                Kept::Json(_, json) if reply.unread.is_none() => {
                    reply.unread = self.unread(conn, json.len()).map(Box::new);
                }
                Kept::Json(..) => {}
                Kept::Stream(stream) => self.count_owed(*stream),
            }
        }
        self.conns[conn].unproven = Some(unproven);
    }

    /// The connection has ended: the first `offset` bytes of its output have arrived, and no more will.
    pub(super) fn settle_all(&mut self, conn: ConnSlot, offset: u64, now: Now) {
        let Some(unproven) = self.conns[conn].unproven.take() else { return };
        for reply in unproven.replies {
            match reply.kept {
                Kept::Stream(stream) => self.detach(stream, offset, now),
                Kept::Json(session, json) if reply.end > offset => {
                    if let Some(session) = self.find_session_key(session) {
                        self.json_lost(session, &json, now);
                    }
                }
                Kept::Json(..) => {}
            }
        }
    }

    /// Whether the next request has to wait until more of what was written is known to have arrived. The kernel is
    /// asked in time.
    pub(super) fn awaits_evidence(&mut self, conn: ConnSlot, now: Now) -> bool {
        if self.conns[conn].unproven.as_ref().is_some_and(|unproven| unproven.is_worth_asking()) {
            self.ask_for_evidence(conn, now);
        }
        self.is_full_of_unproven(conn)
    }

    pub(super) fn is_full_of_unproven(&self, conn: ConnSlot) -> bool {
        self.conns[conn].unproven.as_ref().is_some_and(|unproven| unproven.is_full())
    }

    /// Has the connection, which is to be moved, moved once all that was written here is known to have arrived.
    pub(super) fn move_when_proven(&mut self, conn: ConnSlot, now: Now) {
        self.ask_for_evidence(conn, now);
        self.move_if_proven(conn);
    }

    /// What arrived so far is known: the connection moves, or waits on, if not for too long.
    pub(super) fn move_measured(&mut self, conn: ConnSlot, now: Now) {
        self.move_if_proven(conn);
        let entry = &self.conns[conn];
        let wait_ms = self.config.write_timeout_ms.max(ACK_CHECK_MS);
        if entry.unproven.is_some() && entry.progress_ms + wait_ms <= now.ms {
            self.cut_stalled(conn);
        }
    }

    fn move_if_proven(&mut self, conn: ConnSlot) {
        let entry = &self.conns[conn];
        if let (State::Moving(shard, _), None) = (&entry.state, &entry.unproven) {
            let (shard, source, bytes, request) = (*shard, entry.source, BytesMut::new(), None);
            let moved =
                MovedConn { conn: self.conn_key(conn), shard, source, bytes, request, refusal: BUSY_503 };
            self.effects.push_back(Effect::Move(moved));
        }
    }

    /// Whether the next request, or the move to another shard, waits for evidence of what was written before.
    pub(super) fn is_held(&self, conn: ConnSlot) -> bool {
        let entry = &self.conns[conn];
        let waits = match entry.state {
            State::Moving(..) => true,
            State::Idle => self.has_input(conn),
            _ => false,
        };
        waits && entry.unproven.is_some()
    }

    /// When the kernel is to be asked about this connection.
    pub(super) fn evidence_due_ms(&self, conn: ConnSlot) -> u64 {
        self.conns[conn].unproven.as_ref().map_or(u64::MAX, |unproven| unproven.check_ms)
    }

    pub(super) fn ask_for_evidence(&mut self, conn: ConnSlot, now: Now) {
        let wait_ms = if self.is_held(conn) { ACK_RECHECK_MS } else { ACK_CHECK_MS };
        let key = self.conn_key(conn);
        if let Some(unproven) = &mut self.conns[conn].unproven {
            unproven.check_ms = now.ms + wait_ms;
            self.effects.push_back(Effect::Measure(key));
        }
    }
}
