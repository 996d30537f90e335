//! A shard's doorbell: wakes it, and says what the process as a whole wants of it.
//!
//! Owns an event descriptor and a few words beside it that have many writers and must get through when every ring of the
//! mailbox is full. Must never block whoever rings, nor the shard.
//!
//! Invariants
//! - What stands beside the bell is written before it is rung, and looked at after it was cleared.
//! - A phase only advances.
//!
//! O(1).

use crate::core::config::CoreConfig;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

/// What the process wants of its shards. It only ever advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serve.
    Run,
    /// Take no newcomers, finish what runs.
    Drain,
    /// End now.
    Stop,
}

/// Wakes a shard. Shared by everyone who has something for it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    eventfd: File,
    phase: AtomicU8,
    /// How often the roll was called.
    called: AtomicU64,
    /// The last call that the shard answered.
    answered: AtomicU64,
    /// Whether there are settings in `settings`.
    has_settings: AtomicBool,
    /// The latest settings, until the shard takes them. Locked when there are some, never otherwise.
    settings: Mutex<Option<Arc<CoreConfig>>>,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; its result is checked before it is used.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, open, and nobody else's.
        let eventfd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Doorbell {
            eventfd: File::from(eventfd),
            phase: AtomicU8::new(Phase::Run as u8),
            called: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            has_settings: AtomicBool::new(false),
            settings: Mutex::new(None),
        })
    }

    /// Wakes the shard.
    pub(crate) fn ring(&self) {
        // It fails only when the counter is full, which has rung it as well.
        let _ = (&self.eventfd).write(&1u64.to_ne_bytes());
    }

    /// Forgets earlier rings. Look for mail after this, not before.
    pub(crate) fn clear(&self) {
        // It fails only when nobody has rung.
        let _ = (&self.eventfd).read(&mut [0; 8]);
    }

    /// Forgets earlier rings, and says how many there were.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        let mut count = [0; 8];
        (&self.eventfd).read(&mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// Advances the shard to `phase`, and wakes it.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Release);
        self.ring();
    }

    /// What is wanted of the shard.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// Leaves new settings for the shard, in the place of those it has not taken, and wakes it.
    pub(crate) fn leave_settings(&self, settings: Arc<CoreConfig>) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
        self.has_settings.store(true, Ordering::Release);
        self.ring();
    }

    /// Settings that were left since the last call.
    pub(crate) fn take_settings(&self) -> Option<Arc<CoreConfig>> {
        if !self.has_settings.swap(false, Ordering::Acquire) {
            return None;
        }
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    // --- The roll ---------------------------------------------------------------------------------

    /// Asks the shard for a sign that it takes its turns.
    pub(crate) fn call(&self) {
        self.called.fetch_add(1, Ordering::Release);
        self.ring();
    }

    /// The shard's sign.
    pub(crate) fn answer(&self) {
        self.answered.store(self.called.load(Ordering::Acquire), Ordering::Release);
    }

    /// The shard has ended in an orderly way and answers no more, which is no fault of it.
    pub(crate) fn leave(&self) {
        self.answered.store(u64::MAX, Ordering::Release);
    }

    /// Whether the shard has answered since the last call.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) >= self.called.load(Ordering::Acquire)
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    #[test]
    fn a_shard_answers_each_call() {
        let bell = Doorbell::new().unwrap();
        assert!(bell.has_answered(), "nobody has called");
        bell.call();
        assert!(!bell.has_answered());
        bell.call();
        bell.answer();
        assert!(bell.has_answered());
        bell.call();
        assert!(!bell.has_answered());
    }

    #[test]
    fn nobody_waits_for_a_shard_that_has_left() {
        let bell = Doorbell::new().unwrap();
        bell.leave();
        bell.call();
        assert!(bell.has_answered());
    }
}
