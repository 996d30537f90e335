//! One client's connection, if it has one, and the request that is on its way out.
//!
//! Invariant: the generation changes with every connection, so that a readiness report of an
//! earlier one is recognised. 24 bytes; the request's bytes are kept until its response begins, so
//! that it can be sent again if the server had closed the idle connection meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// A connection that may be there.
#[derive(Debug)]
pub(crate) struct Link {
    fd: Option<OwnedFd>,
    generation: u32,
    /// Requests sent on this connection so far, up to 255.
    uses_count: u8,
    out: Option<Box<Outgoing>>,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Link {
    /// No connection; the next ones are numbered from `generation`.
    pub(crate) fn none(generation: u32) -> Self {
        Self { fd: None, generation, uses_count: 0, out: None }
    }

    /// Takes a connection that is being opened and returns its generation.
    pub(crate) fn set(&mut self, fd: OwnedFd) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.uses_count = 1;
        self.fd = Some(fd);
        self.generation
    }

    /// Closes the connection and forgets what was not sent.
    pub(crate) fn close(&mut self) {
        self.fd = None;
        self.out = None;
    }

    /// The number of the current connection, or of the last one.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Whether there is a connection, be it still being opened.
    pub(crate) fn is_open(&self) -> bool {
        self.fd.is_some()
    }

    /// Puts a request on its way; it leaves with the next flush.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        self.uses_count = self.uses_count.saturating_add(1);
        self.out = Some(Box::new(Outgoing { bytes, sent: 0 }));
    }

    /// Whether the request went out on a connection that had served another one before.
    pub(crate) fn is_reused(&self) -> bool {
        self.uses_count > 1 && self.out.is_some()
    }

    /// Closes the connection and rewinds the request, to be sent on the next connection.
    pub(crate) fn rewind(&mut self) {
        self.fd = None;
        if let Some(out) = &mut self.out {
            out.sent = 0;
        }
    }

    /// Frees the request: its response has begun.
    pub(crate) fn settle(&mut self) {
        self.out = None;
    }

    /// Writes what can be written.
    ///
    /// # Errors
    /// What the socket reports, except that it is full or not connected yet.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        let (Some(fd), Some(out)) = (&self.fd, &mut self.out) else { return Ok(()) };
        while out.sent < out.bytes.len() {
            match send(fd, &out.bytes[out.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => out.sent += count,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads into `buffer`; 0 is the end.
    ///
    /// # Errors
    /// What the socket reports.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let Some(fd) = &self.fd else { return Err(Errno::AGAIN) };
        recv(fd, buffer, RecvFlags::empty()).map(|(count, _)| count)
    }
}
