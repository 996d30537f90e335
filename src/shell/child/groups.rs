//! The process groups of all children of this process, so that an exit at once leaves none behind.
//!
//! Owns one registry for the process. It is touched when a child starts and when it is reaped, and by whoever ends the
//! process without waiting. Must never block on anything but its own lock.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::{
    collections::BTreeSet,
    io,
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { is_closed: false, groups: BTreeSet::new() });

struct Registry {
    /// The process is about to exit: nothing starts any more.
    is_closed: bool,
    /// The ids of their leaders.
    groups: BTreeSet<i32>,
}

/// Kills every group and lets no other begin: the process is about to end without waiting for anything.
pub(crate) fn kill_all() {
    let mut registry = registry();
    registry.is_closed = true;
    for group in registry.groups.iter().filter_map(|group| Pid::from_raw(*group)) {
        // One that is gone already needs no killing.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Starts a child that leads a group of its own.
///
/// # Errors
/// What the host says, or that this process is ending.
pub(super) fn spawn(command: &mut Command) -> io::Result<(Child, Leash)> {
    let mut registry = registry();
    if registry.is_closed {
        return Err(io::Error::other("the server is stopping"));
    }
    let child = command.spawn()?;
    let group = Pid::from_child(&child);
    registry.groups.insert(group.as_raw_nonzero().get());
    Ok((child, Leash { group: Some(group) }))
}

/// Holds on to a group until it is gone. Dropped before, it kills it.
#[derive(Debug)]
pub(super) struct Leash {
    group: Option<Pid>,
}

impl Leash {
    /// Sends a signal to every process of the group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group without processes is being reaped.
            let _ = kill_process_group(group, signal);
        }
    }

    /// The leader's id.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.group
    }

    /// The leader has ended: kills what is left of its group and reaps it. What it came to, for a person.
    pub(super) fn release(mut self) -> String {
        self.let_go().unwrap_or_else(|| "gone".to_owned())
    }

    fn let_go(&mut self) -> Option<String> {
        let group = self.group.take()?;
        // While its leader is a zombie the number is the group's own.
        let _ = kill_process_group(group, Signal::KILL);
        registry().groups.remove(&group.as_raw_nonzero().get());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(group), options).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "gone".to_owned(),
        })
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// No code that can panic runs under the lock, so a poisoned one is as good as any.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
