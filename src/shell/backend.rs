//! What a shard asks of whatever answers the calls.
//!
//! The shell carries [`Ask`]s from the core to a [`Backend`] and its [`Tell`]s back. It must never look
//! into either.

use crate::core::{Ask, Tell};
use std::task::Context;

/// One shard's backend. It lives on the shard's thread and is never sent.
pub trait Backend {
    /// Takes something from the core. What can be answered at once is appended to `out`; it must not block.
    fn ask(&mut self, ask: Ask, out: &mut Vec<Tell>);

    /// Advances what was woken since the last call, appending what it says to `out`. Called once per
    /// turn; must be cheap when nothing was woken. Whatever is still pending arranges for `cx`'s waker to
    /// be woken, from any thread.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Tell>);
}
