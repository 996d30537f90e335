//! What a shard asks of whatever answers the calls.
//!
//! The shell carries [`Ask`]s from the core to a [`Backend`] and its [`Tell`]s back. It must never look
//! into either.

use crate::core::{Ask, Tell};
use std::{task::Context, time::Duration};

/// One shard's backend. It lives on the shard's thread and is never sent.
pub trait Backend {
    /// Takes something from the core. What can be answered at once is appended to `out`; it must not block.
    fn ask(&mut self, ask: Ask, out: &mut Vec<Tell>);

    /// Advances what was woken since the last call, appending what it says to `out`. Called once per
    /// turn; must be cheap when nothing was woken. Whatever is still pending arranges for `cx`'s waker to
    /// be woken, from any thread.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Tell>);

    /// Whether the last [`poll`](Self::poll) stopped for its budget. It is called again once the ring had its turn. A
    /// backend that woke itself instead would keep everybody's replies from the kernel.
    fn has_more(&self) -> bool {
        false
    }

    /// The shard is about to end: what the backend holds outside this process has `grace` to end, too. May be called
    /// again with less. [`poll`](Self::poll) is still called.
    fn end(&mut self, grace: Duration) {
        let _ = grace;
    }

    /// Whether nothing is left outside this process.
    fn is_ended(&self) -> bool {
        true
    }
}
