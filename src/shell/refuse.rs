//! Newcomers that are turned away, and the moment their refusal needs to reach them.
//!
//! Owns the descriptors of refused connections for [`REFUSED_LINGER_MS`], at most [`REFUSALS_KEPT_MAX`] of them. Closing at
//! once would reset the connection when the request is still on its way, and the peer would never read
//! why. No operation of the ring is involved.
//!
//! O(1) per refusal.

use super::socket;
use crate::limits::{REFUSALS_KEPT_MAX, REFUSED_INPUT_BYTES_MAX, REFUSED_LINGER_MS};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
};

/// Refused connections, oldest first.
#[derive(Default)]
pub(crate) struct Refusals {
    waiting: VecDeque<Refused>,
}

struct Refused {
    fd: OwnedFd,
    until_ms: u64,
}

impl Refusals {
    /// Writes `answer` to a connection, and closes it in a moment.
    pub(crate) fn refuse(&mut self, fd: OwnedFd, answer: &[u8], now_ms: u64) {
        socket::send_now(fd.as_fd(), answer);
        socket::shut_write(fd.as_fd());
        if self.waiting.len() == REFUSALS_KEPT_MAX {
            self.close_oldest();
        }
        self.waiting.push_back(Refused { fd, until_ms: now_ms + REFUSED_LINGER_MS });
    }

    /// Closes those whose moment is over.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        while self.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            self.close_oldest();
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.front().map(|refused| refused.until_ms)
    }

    fn close_oldest(&mut self) {
        if let Some(refused) = self.waiting.pop_front() {
            // Unread input would turn the close into a reset.
            let _ = socket::discard_input(refused.fd.as_fd(), REFUSED_INPUT_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0.into(), client)
    }

    #[test]
    fn the_answer_survives_a_request_that_nobody_read() {
        let mut refusals = Refusals::default();
        let (fd, mut client) = pair();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        refusals.refuse(fd, b"503", 0);
        client.write_all(b"more").unwrap();
        assert_eq!(refusals.next_deadline_ms(), Some(REFUSED_LINGER_MS));
        refusals.expire(REFUSED_LINGER_MS - 1);
        assert!(refusals.next_deadline_ms().is_some());
        refusals.expire(REFUSED_LINGER_MS);
        assert_eq!(refusals.next_deadline_ms(), None);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"503");
    }

    #[test]
    fn a_flood_keeps_a_bounded_number_open() {
        let mut refusals = Refusals::default();
        let clients: Vec<_> = (0..2 * REFUSALS_KEPT_MAX as u64)
            .map(|now_ms| {
                let (fd, client) = pair();
                refusals.refuse(fd, b"503", now_ms);
                client
            })
            .collect();
        assert_eq!(refusals.waiting.len(), REFUSALS_KEPT_MAX);
        assert_eq!(refusals.next_deadline_ms(), Some(REFUSALS_KEPT_MAX as u64 + REFUSED_LINGER_MS));
        for mut client in clients.into_iter().take(REFUSALS_KEPT_MAX) {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"503");
        }
    }
}
