//! The thread that starts children: starting one takes milliseconds that no shard has.
//!
//! Owns the thread, which ends when the last [`Spawner`] is dropped, and [`Places`], the count that bounds children of the
//! whole process.

use super::{
    Program,
    groups::{self, Leash},
};
use rustix::process::{PidfdFlags, pidfd_open};
use std::{
    io,
    os::fd::OwnedFd,
    process::{ChildStderr, ChildStdin, ChildStdout, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// A child nobody has taken over yet. Dropped, it is killed.
pub(super) struct Newborn {
    pub(super) leash: Leash,
    pub(super) pidfd: OwnedFd,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

type Deliver = Box<dyn FnOnce(io::Result<Newborn>) + Send>;

struct Order {
    program: Arc<Program>,
    deliver: Deliver,
}

/// Has children started.
#[derive(Clone)]
pub(crate) struct Spawner {
    orders: mpsc::Sender<Order>,
}

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the host has no room for it.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::Builder::new().name("moorline-spawner".into()).spawn(move || {
            for Order { program, deliver } in taken {
                deliver(give_birth(&program));
            }
        })?;
        Ok(Spawner { orders })
    }

    /// Starts a child soon; `deliver` is called with it on the spawner's thread.
    pub(super) fn order(&self, program: Arc<Program>, deliver: Deliver) {
        if let Err(mpsc::SendError(order)) = self.orders.send(Order { program, deliver }) {
            (order.deliver)(Err(io::Error::other("the thread that starts children is gone")));
        }
    }
}

fn give_birth(program: &Program) -> io::Result<Newborn> {
    let mut command = program.command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, leash) = groups::spawn(&mut command)?;
    let pid = leash.pid().expect("a leash is held until it is let go");
    // Nobody has waited for it, so the number is still its own.
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("a pipe is missing"));
    };
    let (stdin, stdout, stderr): (ChildStdin, ChildStdout, ChildStderr) = (stdin, stdout, stderr);
    Ok(Newborn { leash, pidfd, stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() })
}

/// How many children the process may have, starting and ending ones included.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicUsize,
    max: usize,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Places { taken: AtomicUsize::new(0), max })
    }

    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.max {
            return Some(Place(Arc::clone(self)));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// The right to have one child; given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    #[test]
    fn places_are_given_back() {
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        drop(first);
        let _third = places.take().unwrap();
        assert!(places.take().is_none());
    }
}
