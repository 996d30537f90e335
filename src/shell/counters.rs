//! What happened to one shard's shell, in plain numbers, and the whole of what a shard says about itself.
//!
//! Written by the shard alone, without atomics; copied when somebody asks.

use crate::core::{counters, shard::Population};

counters::counters! {
    /// What a shard's shell counts.
    pub(crate) struct Counters;

    /// Turns of the loop.
    turns
    /// Turns that took longer than 10 ms: everyone on the shard has waited for them.
    slow_turns
    /// Connections accepted by the kernel's listener.
    accepted
    /// Newcomers told that there is no room.
    refused
    /// Connections that went to another shard.
    moved_away
    /// Connections that came from another shard.
    moved_here
    /// Connections that found the other shard's mailbox full.
    moves_refused
    /// Broadcasts that found another shard's mailbox full for too long.
    broadcasts_lost
    /// System calls refused for a reason that is our own fault.
    own_faults
}

/// What one shard says about itself at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    /// Of its core.
    pub(crate) core: counters::Counters,
    /// Of its shell.
    pub(crate) shell: Counters,
    /// What it holds.
    pub(crate) population: Population,
}
