//! Errors of the kernel: who is at fault, and what follows.
//!
//! Owns one table. Must never decide by the text of an error.

use std::io;

/// What an error of an operation means for whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody: the same operation may simply be started again.
    Nobody,
    /// Us, on purpose: the operation was cancelled.
    Cancelled,
    /// The peer, or the way to it: the connection is dead, the rest of the shard is well.
    Peer,
    /// The host is short of something: wait and try again, or refuse.
    Host,
    /// Our own mistake: a wrong descriptor or argument. Reported, and the connection is given up.
    Ours,
}

/// Who is at fault for `error`.
pub(crate) fn fault(error: &io::Error) -> Fault {
    let Some(number) = error.raw_os_error() else { return Fault::Ours };
    TABLE.iter().find(|(known, _)| *known == number).map_or(Fault::Ours, |(_, fault)| *fault)
}

/// Whether an accept failed for the connection it would have taken, not for the listener (accept(2) asks
/// to treat these as a retry).
pub(crate) fn spares_the_listener(error: &io::Error) -> bool {
    matches!(fault(error), Fault::Nobody | Fault::Peer) || error.raw_os_error() == Some(libc::EPERM)
}

const TABLE: &[(i32, Fault)] = &[
    (libc::EINTR, Fault::Nobody),
    (libc::EAGAIN, Fault::Nobody),
    (libc::ECANCELED, Fault::Cancelled),
    (libc::ECONNRESET, Fault::Peer),
    (libc::EPIPE, Fault::Peer),
    (libc::ETIMEDOUT, Fault::Peer),
    (libc::ECONNABORTED, Fault::Peer),
    (libc::ECONNREFUSED, Fault::Peer),
    (libc::ENOTCONN, Fault::Peer),
    (libc::ESHUTDOWN, Fault::Peer),
    (libc::EHOSTDOWN, Fault::Peer),
    (libc::EHOSTUNREACH, Fault::Peer),
    (libc::ENETDOWN, Fault::Peer),
    (libc::ENETUNREACH, Fault::Peer),
    (libc::ENONET, Fault::Peer),
    (libc::ENOPROTOOPT, Fault::Peer),
    (libc::EPROTO, Fault::Peer),
    (libc::EOPNOTSUPP, Fault::Peer),
    (libc::EMFILE, Fault::Host),
    (libc::ENFILE, Fault::Host),
    (libc::ENOBUFS, Fault::Host),
    (libc::ENOMEM, Fault::Host),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i32) -> Fault {
        fault(&io::Error::from_raw_os_error(number))
    }

    #[test]
    fn each_number_is_listed_once() {
        for (index, (number, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[index + 1..].iter().all(|(other, _)| other != number), "{number} is listed twice");
        }
    }

    #[test]
    fn the_ways_a_peer_vanishes_are_its_own() {
        for number in [libc::ECONNRESET, libc::EPIPE, libc::ETIMEDOUT, libc::EHOSTUNREACH] {
            assert_eq!(of(number), Fault::Peer);
        }
    }

    #[test]
    fn what_is_unknown_is_ours() {
        assert_eq!(of(libc::EBADF), Fault::Ours);
        assert_eq!(of(libc::EFAULT), Fault::Ours);
        assert_eq!(fault(&io::Error::other("no number")), Fault::Ours);
    }

    #[test]
    fn a_full_table_of_files_is_no_reason_to_retry_at_once() {
        let full = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(fault(&full), Fault::Host);
        assert!(!spares_the_listener(&full));
        assert!(spares_the_listener(&io::Error::from_raw_os_error(libc::ECONNABORTED)));
    }
}
