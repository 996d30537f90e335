//! Listening sockets: how they are bound, and how connections are taken from them.
//!
//! Owns a listener's descriptor, its one operation in flight, and the descriptor held in reserve. Must
//! never spin when the host is out of descriptors, and must never leave a connection in a backlog that is
//! about to be closed: closing one listener of a group resets what it had not accepted. A socket that was handed over is not
//! closed by closing our end of it, and whoever waits there waits for the next process.
//!
//! Invariants
//! - One operation in flight per listener (and at most one cancellation of it).
//! - Options are set on the listener and inherited by what it accepts.
//!
//! O(1) per connection; every accept is one operation of the ring.

use super::{
    errno::{self, Fault},
    ring::{self, Op, Progress, Source, Word},
    socket,
};
use crate::limits::{
    LISTEN_BACKLOG, LISTENER_PAUSE_MS, NOT_SENT_BYTES_MAX, SEND_BUFFER_BYTES, TCP_KEEP_ALIVE_INTERVAL_S,
    TCP_KEEP_ALIVE_S, TCP_USER_TIMEOUT_MS,
};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

/// The kernel asks silent peers whether they are there; TCP_USER_TIMEOUT bounds how often.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(TCP_KEEP_ALIVE_S))
    .with_interval(Duration::from_secs(TCP_KEEP_ALIVE_INTERVAL_S));
/// How often a lasting lack of descriptors is logged.
const WARNING_INTERVAL_MS: u64 = 10_000;
/// Input dropped from a connection that is dismissed for want of a descriptor.
const DISMISSED_BYTES_MAX: usize = 16 * 1024;

/// A listening socket of one shard.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: OwnedFd,
    origin: Origin,
}

/// Whose a listening socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// This process's: whoever is in its backlog when it closes is lost.
    Own,
    /// Handed over, and kept by whoever did: the backlog outlives this process. All shards take from the same one.
    Handed,
}

/// One listening socket per shard on `address`; with port 0 the first one chooses and the rest follow.
/// Returns the address they all have.
///
/// # Errors
/// `EADDRINUSE` if anyone listens there already, also a process of the same user that shares its port; and
/// whatever else bind(2) and listen(2) report.
pub(crate) fn bind_group(address: SocketAddr, shards: u16) -> io::Result<(SocketAddr, Vec<Bound>)> {
    probe(address)?;
    let first = bind(address)?;
    let actual = first.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
    let mut group = vec![first];
    for _ in 1..shards {
        group.push(bind(actual)?);
    }
    for socket in &group {
        socket.listen(LISTEN_BACKLOG)?;
    }
    let own = |socket: Socket| Bound { socket: socket.into(), origin: Origin::Own };
    Ok((actual, group.into_iter().map(own).collect()))
}

/// The same for a socket that listens already and was handed to this process: all shards take connections from it, whoever
/// is free first.
///
/// # Errors
/// What setting its options and duplicating its descriptor report.
pub(crate) fn share(socket: TcpListener, shards: u16) -> io::Result<Vec<Bound>> {
    let socket = Socket::from(socket);
    // An accept of the ring waits by itself, and would fail at once on a socket that does not block.
    socket.set_nonblocking(false)?;
    set_options(&socket)?;
    let mut group = (1..shards).map(|_| socket.try_clone()).collect::<Result<Vec<_>, _>>()?;
    group.push(socket);
    Ok(group.into_iter().map(|socket| Bound { socket: socket.into(), origin: Origin::Handed }).collect())
}

/// Binds without sharing the port, and lets go of it: the only way to learn that another process shares it.
fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    set_options(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// What connections inherit.
fn set_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(Duration::from_millis(TCP_USER_TIMEOUT_MS)))?;
    socket.set_tcp_keepalive(&KEEP_ALIVE)?;
    socket.set_tcp_notsent_lowat(NOT_SENT_BYTES_MAX)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)
}

/// A listener of a running shard.
pub(crate) struct Listener {
    word: Word,
    socket: Option<OwnedFd>,
    origin: Origin,
    state: State,
    closing: Closing,
    /// Not before this is a lack of descriptors logged again.
    next_warning_ms: u64,
    /// Given up for a moment when no other descriptor is left, to tell a newcomer so.
    reserve: Option<File>,
}

enum State {
    /// Nothing in flight.
    Idle,
    /// An accept.
    Accept(Op<()>),
    /// Out of descriptors: waiting for someone to knock. An accept would fail at once, whether or not
    /// anybody is there, because the kernel takes the descriptor first.
    Exhausted(Op<()>),
    /// An accept in the place of the reserve, to be answered and closed.
    Dismiss(Op<()>),
    /// Resting.
    Pause { until_ms: u64 },
}

enum Closing {
    No,
    /// The operation in flight is being cancelled.
    Cancelling(Op<()>),
    /// What is left in the backlog is refused as soon as nothing is in flight.
    Yes,
}

/// Connections that were accepted.
#[derive(Debug)]
pub(crate) enum Newcomer {
    /// To be served.
    Welcome(OwnedFd),
    /// Accepted while closing: to be refused.
    TooLate(OwnedFd),
}

impl Listener {
    /// Starts to accept. `index` is where completions with [`Source::Listener`] are delivered.
    pub(crate) fn start(bound: Bound, index: u32) -> Self {
        let Bound { socket, origin } = bound;
        let word = Word::new(Source::Listener, index);
        let state = State::Accept(ring::accept(socket.as_fd(), word));
        Listener {
            word,
            socket: Some(socket),
            origin,
            state,
            closing: Closing::No,
            next_warning_ms: 0,
            reserve: take_reserve(),
        }
    }

    /// Whether the socket is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Looks at what is in flight. `busy` is the answer to someone who is dismissed.
    pub(crate) fn completed(&mut self, now_ms: u64, busy: &[u8], out: &mut Vec<Newcomer>) {
        if let Closing::Cancelling(op) = std::mem::replace(&mut self.closing, Closing::No) {
            self.closing = match op.poll(self.word) {
                Progress::Pending(op) => Closing::Cancelling(op),
                Progress::Done(..) => Closing::Yes,
            };
        }
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Accept(op) => match op.poll(self.word) {
                Progress::Pending(op) => State::Accept(op),
                Progress::Done(result, ()) => self.accepted(ring::accepted(result), now_ms, out),
            },
            State::Exhausted(op) => match op.poll(self.word) {
                Progress::Pending(op) => State::Exhausted(op),
                Progress::Done(..) => self.make_room(),
            },
            State::Dismiss(op) => match op.poll(self.word) {
                Progress::Pending(op) => State::Dismiss(op),
                Progress::Done(result, ()) => self.dismiss(ring::accepted(result), now_ms, busy),
            },
            resting @ (State::Idle | State::Pause { .. }) => resting,
        };
        self.proceed(out);
    }

    /// Ends a rest that is over.
    pub(crate) fn expire(&mut self, now_ms: u64, out: &mut Vec<Newcomer>) {
        if self.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            self.reserve = self.reserve.take().or_else(take_reserve);
            self.state = State::Idle;
            self.proceed(out);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        match self.state {
            State::Pause { until_ms } => Some(until_ms),
            State::Idle | State::Accept(_) | State::Exhausted(_) | State::Dismiss(_) => None,
        }
    }

    /// Accepts nobody from now on: whoever is in the backlog is too late, then the socket is closed.
    pub(crate) fn close(&mut self, out: &mut Vec<Newcomer>) {
        let (Some(socket), Closing::No) = (&self.socket, &self.closing) else { return };
        self.closing = match self.state {
            State::Idle | State::Pause { .. } => Closing::Yes,
            State::Accept(_) | State::Exhausted(_) | State::Dismiss(_) => {
                Closing::Cancelling(ring::cancel(socket.as_fd(), self.word))
            }
        };
        if let State::Pause { .. } = self.state {
            self.state = State::Idle;
        }
        self.proceed(out);
    }

    /// With nothing in flight: accepts on, or closes.
    fn proceed(&mut self, out: &mut Vec<Newcomer>) {
        let (State::Idle, Some(socket)) = (&self.state, &self.socket) else { return };
        match self.closing {
            Closing::No => self.state = State::Accept(ring::accept(socket.as_fd(), self.word)),
            Closing::Cancelling(_) => {}
            Closing::Yes => self.empty_and_close(out),
        }
    }

    fn accepted(&mut self, result: io::Result<OwnedFd>, now_ms: u64, out: &mut Vec<Newcomer>) -> State {
        match (result, &self.closing) {
            (Ok(fd), Closing::No) => {
                out.push(Newcomer::Welcome(fd));
                State::Idle
            }
            (Ok(fd), Closing::Cancelling(_) | Closing::Yes) => {
                out.push(Newcomer::TooLate(fd));
                State::Idle
            }
            (Err(error), _) => self.failed(&error, now_ms),
        }
    }

    fn failed(&mut self, error: &io::Error, now_ms: u64) -> State {
        if errno::spares_the_listener(error) {
            return State::Idle;
        }
        match (errno::fault(error), error.raw_os_error(), &self.socket) {
            (Fault::Cancelled, ..) => State::Idle,
            (Fault::Host, Some(libc::EMFILE | libc::ENFILE), Some(socket)) if self.reserve.is_some() => {
                let state = State::Exhausted(ring::poll(socket.as_fd(), ring::READABLE, self.word));
                if self.next_warning_ms <= now_ms {
                    self.next_warning_ms = now_ms + WARNING_INTERVAL_MS;
                    tracing::warn!(%error, "no descriptor is left for a new connection");
                }
                state
            }
            _ => {
                tracing::error!(%error, "accepting connections fails; trying again");
                State::Pause { until_ms: now_ms + LISTENER_PAUSE_MS }
            }
        }
    }

    /// Someone knocks: accepts as usual if there is a descriptor again, or else gives the reserve up for it.
    fn make_room(&mut self) -> State {
        match (&self.socket, &self.closing) {
            (Some(socket), Closing::No) if take_reserve().is_none() => {
                self.reserve = None;
                State::Dismiss(ring::accept(socket.as_fd(), self.word))
            }
            _ => State::Idle,
        }
    }

    fn dismiss(&mut self, result: io::Result<OwnedFd>, now_ms: u64, busy: &[u8]) -> State {
        if let Ok(fd) = result {
            socket::send_now(fd.as_fd(), busy);
            socket::shut_write(fd.as_fd());
            let _ = socket::discard_input(fd.as_fd(), DISMISSED_BYTES_MAX);
        }
        self.reserve = take_reserve();
        match self.closing {
            Closing::No => State::Pause { until_ms: now_ms + LISTENER_PAUSE_MS },
            Closing::Cancelling(_) | Closing::Yes => State::Idle,
        }
    }

    fn empty_and_close(&mut self, out: &mut Vec<Newcomer>) {
        let Some(socket) = self.socket.take().map(Socket::from) else { return };
        if self.origin == Origin::Handed {
            return;
        }
        // No longer used through the ring, so that accept may be told not to wait.
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        for _ in 0..LISTEN_BACKLOG {
            match socket.accept() {
                Ok((connection, _)) => out.push(Newcomer::TooLate(connection.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if errno::spares_the_listener(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn take_reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::{cell::Cell, future::poll_fn, io::Read, net::TcpStream, task::Poll};

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn a_group_shares_the_port_the_first_one_chose() {
        let (address, group) = bind_group(loopback(), 3).unwrap();
        assert_ne!(address.port(), 0);
        for bound in group {
            let socket = Socket::from(bound.socket);
            assert_eq!(socket.local_addr().unwrap().as_socket(), Some(address));
        }
    }

    #[test]
    fn a_shared_port_is_found_taken() {
        let (address, _group) = bind_group(loopback(), 1).unwrap();
        assert_eq!(bind_group(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let plain = TcpListener::bind(loopback()).unwrap();
        let taken = bind_group(plain.local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn connections_inherit_the_options() {
        let (address, mut group) = bind_group(loopback(), 1).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (connection, _) = Socket::from(group.remove(0).socket).accept().unwrap();
        assert!(connection.tcp_nodelay().unwrap());
        assert!(connection.keepalive().unwrap());
        assert_eq!(connection.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(connection.tcp_user_timeout().unwrap(), Some(Duration::from_millis(TCP_USER_TIMEOUT_MS)));
        assert_eq!(connection.tcp_notsent_lowat().unwrap(), NOT_SENT_BYTES_MAX);
        assert_eq!(connection.send_buffer_size().unwrap(), 2 * SEND_BUFFER_BYTES);
        assert!(!connection.nonblocking().unwrap());
    }

    const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";

    /// A listener on a ring of its own, driven by hand until `done`.
    fn drive(
        start: impl FnOnce(Bound) -> Listener,
        act: impl FnOnce(&mut Listener, SocketAddr, &mut Vec<Newcomer>),
        done: impl Fn(&Listener, &[Newcomer]) -> bool,
    ) -> Vec<Newcomer> {
        let (address, mut group) = bind_group(loopback(), 1).unwrap();
        tokio_uring::start(async move {
            let mut listener = start(group.remove(0));
            let mut newcomers = Vec::new();
            act(&mut listener, address, &mut newcomers);
            poll_fn(|cx| {
                ring::listen_for_completions(cx.waker());
                while ring::next_completion().is_some() {
                    listener.completed(0, BUSY, &mut newcomers);
                }
                if done(&listener, &newcomers) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            newcomers
        })
    }

    fn started(bound: Bound) -> Listener {
        Listener::start(bound, 0)
    }

    #[test]
    fn those_who_connect_are_welcome() {
        let clients = Cell::new(Vec::new());
        let newcomers = drive(
            started,
            |_, address, _| clients.set((0..3).map(|_| TcpStream::connect(address).unwrap()).collect()),
            |_, newcomers| newcomers.len() == 3,
        );
        assert!(newcomers.iter().all(|newcomer| matches!(newcomer, Newcomer::Welcome(_))));
    }

    #[test]
    fn nobody_is_left_in_the_backlog_of_a_closed_listener() {
        let clients = Cell::new(Vec::new());
        let newcomers = drive(
            started,
            |listener, address, newcomers| {
                clients.set((0..5).map(|_| TcpStream::connect(address).unwrap()).collect());
                listener.close(newcomers);
            },
            |listener, _| listener.is_closed(),
        );
        assert_eq!(newcomers.len(), 5);
        assert!(newcomers.iter().any(|newcomer| matches!(newcomer, Newcomer::TooLate(_))));
    }

    #[test]
    fn a_backlog_that_was_handed_over_is_left_alone() {
        let socket = TcpListener::bind(loopback()).unwrap();
        let (address, kept) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
        let mut bound = share(socket, 2).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let newcomers = drive(
            |_own| at_rest(bound.remove(0)),
            |listener, _, newcomers| listener.close(newcomers),
            |listener, _| listener.is_closed(),
        );
        assert!(newcomers.is_empty());
        drop(bound);
        kept.set_nonblocking(true).unwrap();
        let (connection, _) = kept.accept().unwrap();
        assert!(connection.nodelay().unwrap(), "options are set on the one socket there is");
    }

    #[test]
    fn an_idle_listener_closes() {
        let newcomers = drive(
            started,
            |listener, _, newcomers| listener.close(newcomers),
            |listener, _| listener.is_closed(),
        );
        assert!(newcomers.is_empty());
    }

    fn at_rest(Bound { socket, origin }: Bound) -> Listener {
        Listener {
            word: Word::new(Source::Listener, 0),
            socket: Some(socket),
            origin,
            state: State::Idle,
            closing: Closing::No,
            next_warning_ms: 0,
            reserve: take_reserve(),
        }
    }

    #[test]
    fn without_descriptors_a_newcomer_is_told_and_the_listener_rests() {
        let client = Cell::new(None);
        drive(
            at_rest,
            |listener, address, _| {
                let socket = listener.socket.as_ref().unwrap();
                listener.state = State::Dismiss(ring::accept(socket.as_fd(), listener.word));
                client.set(Some(TcpStream::connect(address).unwrap()));
            },
            |listener, _| matches!(listener.state, State::Pause { until_ms: LISTENER_PAUSE_MS }),
        );
        let mut answer = Vec::new();
        client.take().unwrap().read_to_end(&mut answer).unwrap();
        assert_eq!(answer, BUSY);
    }

    #[test]
    fn when_there_are_descriptors_again_newcomers_are_welcome() {
        let client = Cell::new(None);
        let newcomers = drive(
            at_rest,
            |listener, address, _| {
                listener.state = listener.failed(&io::Error::from_raw_os_error(libc::EMFILE), 0);
                assert!(matches!(listener.state, State::Exhausted(_)));
                client.set(Some(TcpStream::connect(address).unwrap()));
            },
            |_, newcomers| !newcomers.is_empty(),
        );
        assert!(matches!(newcomers[..], [Newcomer::Welcome(_)]));
    }

    #[test]
    fn an_unknown_error_is_no_reason_to_spin() {
        drive(
            started,
            |listener, _, newcomers| {
                let strange = io::Error::from_raw_os_error(libc::EBADF);
                assert!(
                    matches!(listener.failed(&strange, 7), State::Pause { until_ms } if until_ms == 7 + LISTENER_PAUSE_MS)
                );
                let reset = io::Error::from_raw_os_error(libc::ECONNABORTED);
                assert!(matches!(listener.failed(&reset, 7), State::Idle));
                listener.close(newcomers);
            },
            |listener, _| listener.is_closed(),
        );
    }
}
