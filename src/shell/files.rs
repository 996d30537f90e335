//! The open-file limit, and how many connections it leaves.
//!
//! Owns nothing; called once at start.

use super::refuse;
use crate::limits::DESCRIPTORS_RESERVED;
use std::io;

/// Raises the soft limit on open files to the hard limit and returns it.
///
/// # Errors
/// If the kernel refuses, which it has no reason to.
pub(crate) fn raise_limit() -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit that the call may write.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live rlimit that the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Descriptors that are never given to served connections.
pub(crate) fn reserved(shards: u16, listeners_per_shard: usize) -> usize {
    /// Ring, epoll, the runtime's own eventfd, doorbell.
    const PER_SHARD: usize = 4;
    /// The socket and its descriptor in reserve.
    const PER_LISTENER: usize = 2;
    let per_shard = PER_SHARD + PER_LISTENER * listeners_per_shard + refuse::WAITING_MAX;
    DESCRIPTORS_RESERVED + usize::from(shards) * per_shard
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise_limit().unwrap();
        assert!(limit >= 256);
        assert_eq!(raise_limit().unwrap(), limit);
    }

    #[test]
    fn every_shard_and_listener_adds_to_the_reserve() {
        assert!(reserved(1, 1) > DESCRIPTORS_RESERVED);
        assert_eq!(reserved(3, 2) - reserved(2, 2), reserved(2, 2) - reserved(1, 2));
        assert_eq!(reserved(2, 2) - reserved(2, 1), 4);
    }
}
