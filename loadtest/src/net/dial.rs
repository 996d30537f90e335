//! Opening connections, and from which address.
//!
//! A pair of addresses and a server port has about 28,000 client ports, so a run that holds more, or
//! that leaves many behind in TIME_WAIT, must come from many addresses. On loopback all of
//! `127.0.0.0/8` is ours: each worker takes a block of it and walks through it connection by connection. To a server
//! elsewhere the addresses are the ones the user names, or the kernel's choice.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Loopback source addresses per worker: 7 million ports each, so TIME_WAIT never empties them.
const SOURCES_PER_WORKER: u32 = 250;

/// The source addresses of one worker, used in turn.
#[derive(Debug)]
pub(crate) struct Sources {
    addresses: Vec<IpAddr>,
    turn: usize,
}

impl Sources {
    /// The addresses of worker `worker_index` for servers at `target`; `named` overrides the choice.
    pub(crate) fn new(worker_index: u32, target: SocketAddr, named: &[IpAddr]) -> Self {
        let addresses = match target.ip() {
            _ if !named.is_empty() => named.to_vec(),
            IpAddr::V4(v4) if v4.is_loopback() => loopback_block(worker_index),
            IpAddr::V4(_) | IpAddr::V6(_) => Vec::new(),
        };
        Self { addresses, turn: 0 }
    }

    fn next(&mut self) -> Option<IpAddr> {
        self.turn = self.turn.wrapping_add(1);
        let count = self.addresses.len();
        (count > 0).then(|| self.addresses[self.turn % count])
    }

    /// Starts a connection to `target`; it is decided when the descriptor becomes writable.
    ///
    /// # Errors
    /// No descriptor (`EMFILE`), no port or address, or a refusal that is known at once.
    pub(crate) fn dial(&mut self, target: SocketAddr) -> Result<OwnedFd, Errno> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        if let Some(source) = self.next() {
            net::bind(&fd, &SocketAddr::new(source, 0))?;
        }
        match net::connect(&fd, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(errno) => Err(errno),
        }
    }
}

/// Worker 0 has 127.64.0.0/16, worker 1 127.65.0.0/16 and so on; 127.0.0.0/16 stays for others.
fn loopback_block(worker_index: u32) -> Vec<IpAddr> {
    let base = u32::from(Ipv4Addr::new(127, 64, 0, 1)) + ((worker_index % 128) << 16);
    (base..base + SOURCES_PER_WORKER).map(|bits| IpAddr::V4(Ipv4Addr::from(bits))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn workers_have_distinct_loopback_blocks_and_remote_servers_none() {
        let local = "127.0.0.1:80".parse().unwrap();
        let (a, b) = (Sources::new(0, local, &[]), Sources::new(1, local, &[]));
        assert!(a.addresses.iter().all(|address| address.is_loopback() && !b.addresses.contains(address)));
        assert_eq!(Sources::new(0, "192.0.2.1:80".parse().unwrap(), &[]).next(), None);
        let named = "10.0.0.7".parse().unwrap();
        assert_eq!(Sources::new(0, local, &[named]).next(), Some(named));
    }
}
