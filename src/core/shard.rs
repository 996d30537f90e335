//! The facade of a shard's core: every input the shell can give, every effect it can pull.

use super::seam::*;
use bytes::{Bytes, BytesMut};
use std::{net::IpAddr, sync::Arc};

/// What a core is told once, at start.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// How many shards the process has.
    pub shards: u16,
}

/// One shard's sessions, streams, connections and timers.
#[derive(Debug)]
pub struct Shard {
    id: ShardId,
}

/// The result of [`Shard::connect`].
#[derive(Debug)]
pub enum Admission {
    /// The connection has a place.
    Admitted(ConnKey),
    /// At the cap: write these static bytes and close.
    Refused(&'static [u8]),
}

impl Shard {
    /// A shard without connections. `entropy` feeds session ids and tags.
    pub fn new(id: ShardId, _config: Arc<CoreConfig>, _entropy: Box<dyn Entropy>, _now: Now) -> Self {
        Shard { id }
    }

    // --- Inputs -------------------------------------------------------------------------------

    /// A connection was accepted.
    pub fn connect(&mut self, _peer: IpAddr, _now: Now) -> Admission {
        todo!()
    }

    /// A connection arrived from another shard with `bytes` already read, starting at a request line.
    pub fn adopt(&mut self, _peer: IpAddr, _bytes: BytesMut, _now: Now) -> ConnKey {
        todo!()
    }

    /// The buffer to receive into: what is kept of an unfinished message, with room for more. `None`: any
    /// empty buffer will do.
    pub fn take_input(&mut self, _conn: ConnKey) -> Option<BytesMut> {
        todo!()
    }

    /// Bytes were received: `buffer` is the one from [`take_input`](Self::take_input) with the new bytes
    /// appended. Returns a buffer that is no longer needed, for reuse.
    pub fn received(&mut self, _conn: ConnKey, _buffer: BytesMut, _now: Now) -> Option<BytesMut> {
        todo!()
    }

    /// `count` bytes of what the last [`fill`](Self::fill) of this connection gave were taken by the
    /// kernel; `unacknowledged` is not known. A short count is followed by another `fill`.
    pub fn wrote(&mut self, _conn: ConnKey, _count: usize, _now: Now) {
        todo!()
    }

    /// The peer will send nothing more (end of file, or `POLLRDHUP`), but may still read.
    pub fn half_closed(&mut self, _conn: ConnKey, _unacknowledged: usize, _now: Now) {
        todo!()
    }

    /// The connection is dead (reset, time-out, write error). Answered with [`Effect::Close`].
    pub fn lost(&mut self, _conn: ConnKey, _unacknowledged: usize, _now: Now) {
        todo!()
    }

    /// The answer to [`Effect::Measure`].
    pub fn unacknowledged(&mut self, _conn: ConnKey, _bytes: usize, _now: Now) {
        todo!()
    }

    /// The connection's descriptor is closed and no operation is in flight: its slot may be reused.
    pub fn closed(&mut self, _conn: ConnKey) {
        todo!()
    }

    /// The backend says something.
    pub fn tell(&mut self, _tell: Tell, _now: Now) {
        todo!()
    }

    /// Another shard's broadcast.
    pub fn broadcast(&mut self, _announcement: Announcement, _now: Now) {
        todo!()
    }

    /// Starts to stop: new sessions and listeners are refused, listener streams end, running calls finish.
    pub fn drain(&mut self, _now: Now) {
        todo!()
    }

    /// Expires due timers, at most `budget`. Call once per turn, and again in the next turn while
    /// [`next_deadline_ms`](Self::next_deadline_ms) is not in the future.
    pub fn tick(&mut self, _now: Now, _budget: usize) {
        todo!()
    }

    // --- Effects ------------------------------------------------------------------------------

    /// The next thing to be done, in order; `None` when the turn's effects are done.
    pub fn next_effect(&mut self) -> Option<Effect> {
        todo!()
    }

    /// Whether broadcasts are under way that wait for [`pump`](Self::pump).
    pub fn has_broadcasts(&self) -> bool {
        todo!()
    }

    /// Hands broadcasts under way to at most `budget` further sessions.
    pub fn pump(&mut self, _budget: usize, _now: Now) {
        todo!()
    }

    /// A connection that has output (replies and events), or `None`. Each is named once until it is filled. Skip it while a write
    /// of it is in flight; [`wrote`](Self::wrote) names it again if there is more.
    pub fn next_output(&mut self) -> Option<ConnKey> {
        todo!()
    }

    /// A connection whose keep-alive comment is due, or `None`; as [`next_output`](Self::next_output), but
    /// budgeted by the caller.
    pub fn next_comment(&mut self) -> Option<ConnKey> {
        todo!()
    }

    /// Appends the next pieces to be written on this connection to `pieces` (at most
    /// [`SLICES_PER_WRITE_MAX`](crate::limits::SLICES_PER_WRITE_MAX) in all). The pieces stay valid until the
    /// caller drops them; call [`wrote`](Self::wrote) before the next `fill` of the same connection.
    pub fn fill(&mut self, _conn: ConnKey, _pieces: &mut Vec<Piece>) {
        todo!()
    }

    /// What the connection's read side should be doing.
    pub fn interest(&self, _conn: ConnKey) -> Interest {
        todo!()
    }

    /// The earliest deadline in milliseconds of [`Now::ms`], or `None` when no timer is armed.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        todo!()
    }

    /// Whether a drain is complete: no call in flight, nothing left to write.
    pub fn is_drained(&self) -> bool {
        todo!()
    }

    /// This shard's index.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Reserved for refusals that the shell makes itself.
    pub fn refusal_busy() -> &'static [u8] {
        b""
    }

    /// Unused.
    pub fn _unused(_: Bytes) {}
}
