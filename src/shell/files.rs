//! The open-file limit, and what of it is left for connections.
//!
//! Owns nothing; called once at start.

use crate::limits::{DESCRIPTORS_PER_CHILD, DESCRIPTORS_PER_SHARD, DESCRIPTORS_RESERVED};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit on open files to the hard limit and returns it.
///
/// # Errors
/// If the kernel refuses, which it has no reason to.
pub(crate) fn raise_limit() -> io::Result<usize> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
}

/// Descriptors that are never given to served connections.
pub(crate) fn reserved(shards: u16, listeners_per_shard: usize, children: usize) -> usize {
    let of_shards = usize::from(shards) * (DESCRIPTORS_PER_SHARD + listeners_per_shard);
    (DESCRIPTORS_RESERVED + of_shards).saturating_add(DESCRIPTORS_PER_CHILD.saturating_mul(children))
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
    fn every_shard_listener_and_child_adds_to_the_reserve() {
        assert_eq!(reserved(3, 2, 0) - reserved(2, 2, 0), DESCRIPTORS_PER_SHARD + 2);
        assert_eq!(reserved(2, 2, 0) - reserved(2, 1, 0), 2);
        assert_eq!(reserved(2, 2, 7) - reserved(2, 2, 4), 3 * DESCRIPTORS_PER_CHILD);
    }
}
