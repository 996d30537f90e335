//! Which descriptors are ready: one epoll instance per worker.
//!
//! Edge-triggered and registered once per connection, so that a held stream costs one system call at
//! its birth and one read per keep-alive. Closing a descriptor unregisters it; an event that was
//! already fetched for it is recognised by its generation.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// What a registered descriptor belongs to: a slot and the generation of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Index of the owner.
    pub(crate) slot: u32,
    /// Which of the owner's connections, one after the other, this is.
    pub(crate) generation: u32,
}

/// One readiness report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// Whose descriptor.
    pub(crate) token: Token,
    /// Bytes can be written, or the connect has been decided.
    pub(crate) writable: bool,
    /// Bytes, an end or an error can be read.
    pub(crate) readable: bool,
}

/// An epoll instance and the buffer its reports land in.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// Reports fetched by one wait: enough to amortise the call, few enough to look at the clock between.
const EVENTS_MAX: usize = 512;

impl Poller {
    /// # Errors
    /// No descriptor or no memory for an epoll instance.
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `fd` for both directions, edge-triggered, until it is closed.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        use epoll::EventFlags as On;
        let data = (u64::from(token.generation) << 32) | u64::from(token.slot);
        let flags = On::IN | On::OUT | On::RDHUP | On::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), flags)
    }

    /// Waits at most `timeout_ns` and leaves in `ready` what is; an interrupted wait leaves nothing.
    ///
    /// # Errors
    /// What the kernel reports about the epoll instance.
    pub(crate) fn wait(&mut self, timeout_ns: u64, ready: &mut Vec<Ready>) -> Result<(), Errno> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(timeout_ns % 1_000_000_000).unwrap_or(0),
        };
        ready.clear();
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) => ready.extend(self.events.iter().map(read_event)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

fn read_event(event: &epoll::Event) -> Ready {
    use epoll::EventFlags as On;
    let (flags, data) = (event.flags, event.data.u64());
    let [slot, generation] = [data & u64::from(u32::MAX), data >> 32];
    let half = |value| u32::try_from(value).expect("half of 64 bits fits 32");
    Ready {
        token: Token { slot: half(slot), generation: half(generation) },
        writable: flags.intersects(On::OUT | On::ERR | On::HUP),
        readable: flags.intersects(On::IN | On::RDHUP | On::ERR | On::HUP),
    }
}
