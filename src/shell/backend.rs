//! What the shell needs of a backend: somewhere to put the core's asks, and something to poll.
//!
//! Knows nothing of services, processes or protocols. One instance per shard; it stays on its thread.

use crate::core::seam::{Ask, Tell};
use std::task::Context;

/// The backend of one shard.
pub trait Backend {
    /// Takes one item from the core and appends what the backend says to it at once.
    fn ask(&mut self, ask: Ask, out: &mut Vec<Tell>);

    /// Makes progress on what is pending and appends what comes of it. Called once per turn, after the turn's
    /// asks; the waker of `cx` is woken when there is reason to call again.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Tell>);
}
