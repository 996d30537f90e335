//! The parent process: conducts a run and makes the report of it.

mod assemble;
mod conduct;
mod live;
mod preflight;
pub(crate) mod watch;
pub(crate) mod workers;

pub(crate) use conduct::{Job, Wish, conduct};
pub(crate) use preflight::{Readiness, Wanted, preflight};
