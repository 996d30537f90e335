//! The few synchronous calls on a connection's socket.
//!
//! Owns nothing. None of them waits: those that could are made with `MSG_DONTWAIT`, because sockets used
//! through the ring are in blocking mode.

use bytes::BytesMut;
use socket2::SockRef;
use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Shutdown},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

/// What became of a peer's input that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// More may come; this many bytes were dropped now.
    Some(usize),
    /// The peer has closed, or is dead: nothing more will come.
    Everything,
}

/// Tells the peer that nothing more will be written. Leaves a parked poll pending.
pub(crate) fn shut_write(fd: BorrowedFd<'_>) {
    // Fails only when the peer is gone already, which the next operation reports.
    let _ = SockRef::from(&fd).shutdown(Shutdown::Write);
}

/// Shuts both sides, which completes every operation in flight.
pub(crate) fn shut(fd: BorrowedFd<'_>) {
    // As above.
    let _ = SockRef::from(&fd).shutdown(Shutdown::Both);
}

/// Makes the coming close discard what is unsent and reset the connection.
pub(crate) fn discard_unsent_on_close(fd: BorrowedFd<'_>) {
    // Cannot fail on a TCP socket; if it did, the kernel would merely keep the unsent bytes for longer.
    let _ = SockRef::from(&fd).set_linger(Some(Duration::ZERO));
}

/// Bytes written and not yet acknowledged by the peer's TCP (`SIOCOUTQ`).
pub(crate) fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int through the pointer, which is valid
    // for that; the descriptor is borrowed, so it is open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    // It fails only on a socket that never was connected. Then nothing proves an acknowledgement.
    if result == 0 { usize::try_from(count).unwrap_or(usize::MAX) } else { usize::MAX }
}

/// Where the connection comes from; the unspecified address if it is gone already.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> IpAddr {
    let address = SockRef::from(&fd).peer_addr().ok().and_then(|address| address.as_socket());
    address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip())
}

/// Bytes received and not read yet (`SIOCINQ`).
pub(crate) fn unread_bytes(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD (the same number as SIOCINQ) writes one int through the pointer, which is valid for
    // that; the descriptor is borrowed, so it is open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    // As above; a read will tell.
    if result == 0 { usize::try_from(count).unwrap_or(usize::MAX) } else { usize::MAX }
}

/// Receives what is there, at most as much as `buffer` has room for, and appends it.
///
/// # Errors
/// `WouldBlock` if nothing is there; otherwise what became of the connection. `Ok(0)` is the end of its input.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut BytesMut) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    assert!(!spare.is_empty(), "a receive without room would look like the end of the stream");
    let count = SockRef::from(&fd).recv_with_flags(spare, libc::MSG_DONTWAIT)?;
    assert!(count <= spare.len(), "the kernel received more than it was offered");
    let len = buffer.len() + count;
    // SAFETY:
    // - `len` is within the capacity, as asserted;
    // - the kernel initialised `count` bytes of the spare capacity, which starts at the old length.
    unsafe { buffer.set_len(len) }
    Ok(count)
}

/// Sends what the kernel takes at once and says nothing about the rest: for short static refusals.
pub(crate) fn send_now(fd: BorrowedFd<'_>, bytes: &[u8]) {
    // A newcomer's empty send buffer takes a refusal whole, or the peer is gone.
    let _ = SockRef::from(&fd).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
}

/// Drops up to about `bytes_max` of what the peer has sent.
pub(crate) fn discard_input(fd: BorrowedFd<'_>, bytes_max: usize) -> Discarded {
    let mut scratch = [MaybeUninit::uninit(); 16 * 1024];
    let mut dropped = 0;
    while dropped < bytes_max {
        // On TCP, MSG_TRUNC drops the bytes in the kernel instead of copying them.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        match SockRef::from(&fd.as_fd()).recv_with_flags(&mut scratch, flags) {
            Ok(0) => return Discarded::Everything,
            Ok(count) => dropped += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Discarded::Everything,
        }
    }
    Discarded::Some(dropped)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn what_is_received_is_appended_within_the_buffers_room() {
        let (server, mut client) = pair();
        let mut buffer = BytesMut::with_capacity(16);
        let room = buffer.capacity();
        buffer.extend_from_slice(b"POST ");
        let empty = receive(server.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        client.write_all(&[b'/'; 100]).unwrap();
        SockRef::from(&server).peek(&mut [MaybeUninit::uninit(); 100]).unwrap();
        assert_eq!(receive(server.as_fd(), &mut buffer).unwrap(), room - 5);
        assert_eq!((buffer.len(), &buffer[..6]), (room, &b"POST /"[..]));
        assert_eq!(unread_bytes(server.as_fd()), 100 - (room - 5));
        drop(client);
        let mut rest = BytesMut::with_capacity(256);
        receive(server.as_fd(), &mut rest).unwrap();
        assert_eq!(receive(server.as_fd(), &mut rest).unwrap(), 0);
    }

    #[test]
    fn input_is_dropped_up_to_a_bound_and_to_the_end() {
        let (server, mut client) = pair();
        assert_eq!(discard_input(server.as_fd(), 100), Discarded::Some(0));
        client.write_all(&[7; 100_000]).unwrap();
        drop(client);
        let mut dropped = 0;
        while let Discarded::Some(count) = discard_input(server.as_fd(), 20_000) {
            assert!(count < 20_000 + 16 * 1024);
            dropped += count;
        }
        assert!(dropped <= 100_000);
    }

    #[test]
    fn a_linger_of_zero_resets() {
        let (server, mut client) = pair();
        discard_unsent_on_close(server.as_fd());
        drop(server);
        assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn acknowledged_bytes_are_not_counted() {
        let (mut server, mut client) = pair();
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(unacknowledged_bytes(server.as_fd()), 0);
    }
}
