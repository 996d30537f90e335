//! Child processes: started, fed, listened to, ended and reaped, whatever happens.
//!
//! Owns everything about children that is a system call. It moves lines between a child and whoever started it and
//! knows nothing of what they say. [`Children`] is the interface: the children of one shard.
//!
//! Read in this order: [`children`] (the set, and who was woken), [`process`] (one child), `outbox` and `lines` (what goes
//! in and comes out), `spawner` (the thread that starts them), `groups` (all process groups of this process).
//!
//! Invariants
//! - Each child leads a process group of its own. A group is in the registry from before anyone else can know of it
//!   until just before its leader is reaped, so its number cannot mean another group while it is there.
//! - When a leader ends, for whatever reason, what is left of its group is killed, and only then is it reaped: its zombie
//!   keeps the number from being used again.
//! - Nothing a child does or fails to do makes memory grow beyond [`CHILD_INPUT_BYTES_MAX`](crate::limits) behind the
//!   message being written and one line of the longest length on its way back.

pub(crate) mod children;
pub(crate) mod groups;
pub(crate) mod process;

mod lines;
mod outbox;
mod spawner;

pub(crate) use children::{ChildId, Children, Full};
pub(crate) use lines::Line;
pub(crate) use process::Event;
pub(crate) use spawner::{Places, Spawner};

use std::{ffi::OsString, path::PathBuf, process::Command};

/// What to run as a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file, absolute: nothing is searched for when a child is started.
    pub file: PathBuf,
    /// What the child sees as its own name.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; `None`: that of this process.
    pub directory: Option<PathBuf>,
}

impl Program {
    /// Nothing here needs code to run between fork and exec, so the standard library can use `posix_spawn`, whose
    /// cost does not grow with our memory.
    fn command(&self) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(&self.file);
        command.arg0(&self.name).args(&self.arguments).process_group(0);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}
