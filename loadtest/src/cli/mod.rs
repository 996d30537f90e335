//! The command line: what the user typed, and how it becomes a job.
//!
//! Owns names, defaults and help. Keeps what was typed apart from what the program needs: `args` is
//! the former, `job` makes the latter of it.

mod args;
mod job;

pub(crate) use args::{Cli, Command};
pub(crate) use job::job;
