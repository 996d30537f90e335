//! The floor: an io_uring loop that does what the server does on the wire and nothing else.
//!
//! It answers each request with bytes that are ready ([`canned`](super::canned)). It keeps no sessions, checks nothing,
//! frames nothing and has no timer but one: streams are in the bucket of the tick that their slot falls on. What the server
//! costs beyond this is what the server does. [`Features`] say what else a ring offers, to be compared with the plain loop.
//!
//! Per connection: one receive in flight into a buffer of its own, one send at most. Must never be served to
//! anyone: it believes what it reads.

use super::{
    canned::{Canned, KEEP_ALIVE, Kind, Reply},
    provided::{self, Provided},
};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::SocketAddr,
    ops::ControlFlow,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

const BUFFER_BYTES: usize = 2048;
/// Room for a request of 64 KiB.
const LARGE_BUFFER_BYTES: usize = 128 * 1024;
const TICK_MS: u64 = 16;

/// What the loop does differently, to see what it is worth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) receive: Receive,
    pub(crate) task_work: TaskWork,
}

/// How bytes are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Receive {
    /// One receive in flight per connection, into a buffer of its own.
    #[default]
    Single,
    /// A poll in flight per connection, then a system call: what the server does.
    Ready,
    /// One receive per connection for all it will ever get, into buffers that are provided to the kernel.
    Multishot,
}

/// When the kernel does what is left to do for a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskWork {
    /// On the next way into the kernel, whatever it is.
    #[default]
    Cooperative,
    /// When completions are waited for (`IORING_SETUP_DEFER_TASKRUN`).
    Deferred,
}

/// Serves until it is killed. Prints its address once it listens.
pub(crate) fn run(listener: Socket, keep_alive_ms: u64, reply: Reply, features: Features) -> io::Result<()> {
    Loop::new(listener, keep_alive_ms, reply, features)?.run()
}

/// A listening socket whose address is printed as the server prints its own.
pub(crate) fn listen() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4096)?;
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    eprintln!("listening on http://{address}/mcp");
    Ok(socket)
}

struct Conn {
    fd: OwnedFd,
    buffer: Vec<u8>,
    filled: usize,
    reply: Vec<u8>,
    /// Bytes of `reply` the kernel has not taken.
    unsent: usize,
    sends_in_flight: u32,
    is_gone: bool,
}

struct Loop {
    ring: IoUring,
    listener: Socket,
    conns: Slab<Conn>,
    /// Streams by the tick of the interval on which they are due.
    buckets: Vec<Vec<u32>>,
    tick: usize,
    tick_length: types::Timespec,
    canned: Canned,
    buffer_bytes: usize,
    receive: Receive,
    provided: Option<Provided>,
    listening: Vec<bool>,
}

/// What completed, in the low bits of an entry's user data; the slot is above.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const COMMENT: u64 = 3;
const TICK: u64 = 4;
const READY: u64 = 5;
const PROVIDED: u64 = 6;

impl Loop {
    fn new(listener: Socket, keep_alive_ms: u64, reply: Reply, features: Features) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_cqsize(32_768);
        match features.task_work {
            TaskWork::Cooperative => builder.setup_coop_taskrun(),
            TaskWork::Deferred => builder.setup_defer_taskrun(),
        };
        let ring = builder.build(256)?;
        let provided = match features.receive {
            Receive::Multishot => Some(Provided::register(&ring, BUFFER_BYTES)?),
            Receive::Single | Receive::Ready => None,
        };
        let ticks = usize::try_from(keep_alive_ms / TICK_MS).unwrap_or(1).max(1);
        Ok(Loop {
            ring,
            listener,
            conns: Slab::new(),
            buckets: vec![Vec::new(); ticks],
            tick: 0,
            tick_length: types::Timespec::from(Duration::from_millis(TICK_MS)),
            canned: Canned::new(reply),
            buffer_bytes: if reply == Reply::Large { LARGE_BUFFER_BYTES } else { BUFFER_BYTES },
            receive: features.receive,
            provided,
            listening: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.accept();
        self.await_tick();
        let mut completions: Vec<cqueue::Entry> = Vec::new();
        loop {
            self.ring.submit_and_wait(1)?;
            completions.extend(self.ring.completion());
            for entry in completions.drain(..) {
                self.completed(&entry)?;
            }
        }
    }

    fn completed(&mut self, entry: &cqueue::Entry) -> io::Result<()> {
        let slot = usize::try_from(entry.user_data() >> 3).expect("a slot");
        match entry.user_data() & 7 {
            ACCEPT => self.accepted(entry.result())?,
            RECEIVE => self.received(slot, entry.result()),
            READY => self.ready(slot),
            PROVIDED => self.provided(slot, entry),
            SEND => self.sent(slot, entry.result()),
            COMMENT => self.conns[slot].sends_in_flight -= 1,
            _ => {
                self.send_comments();
                self.await_tick();
            }
        }
        if entry.user_data() & 7 != TICK && entry.user_data() & 7 != ACCEPT {
            self.forget_if_done(slot);
        }
        Ok(())
    }

    fn accepted(&mut self, result: i32) -> io::Result<()> {
        self.accept();
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(result) };
        let conn = Conn {
            fd,
            buffer: if self.receive == Receive::Single { vec![0; self.buffer_bytes] } else { Vec::new() },
            filled: 0,
            reply: Vec::with_capacity(512),
            unsent: 0,
            sends_in_flight: 0,
            is_gone: false,
        };
        let slot = self.conns.insert(conn);
        self.receive(slot);
        Ok(())
    }

    fn received(&mut self, slot: usize, result: i32) {
        let Ok(count @ 1..) = usize::try_from(result) else { return self.ended(slot) };
        let conn = &mut self.conns[slot];
        conn.filled += count;
        let buffer = std::mem::take(&mut conn.buffer);
        let filled = conn.filled;
        if self.answer(slot, &buffer[..filled]).is_continue() {
            self.conns[slot].filled = 0;
        }
        self.conns[slot].buffer = buffer;
        self.receive(slot);
    }

    /// Bytes are there: they are received into a buffer that all connections share.
    fn ready(&mut self, slot: usize) {
        let mut buffer = [0_u8; BUFFER_BYTES];
        let fd = self.conns[slot].fd.as_raw_fd();
        // SAFETY: the buffer is as long as said, and the descriptor is the connection's.
        let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        let Ok(count @ 1..) = usize::try_from(count) else { return self.ended(slot) };
        self.take(slot, &buffer[..count]);
        self.receive(slot);
    }

    /// Bytes came into a provided buffer; the receive goes on, unless the kernel says that it does not.
    fn provided(&mut self, slot: usize, entry: &cqueue::Entry) {
        let Some(index) = cqueue::buffer_select(entry.flags()) else {
            if entry.result() == -libc::ENOBUFS {
                return self.receive(slot);
            }
            return self.ended(slot);
        };
        let mut provided = self.provided.take().expect("buffers were provided");
        self.take(slot, provided.received(index, usize::try_from(entry.result()).unwrap_or(0)));
        provided.give_back(index);
        self.provided = Some(provided);
        if !cqueue::more(entry.flags()) {
            self.receive(slot);
        }
    }

    /// Bytes that are somewhere else than in the connection's own buffer.
    fn take(&mut self, slot: usize, bytes: &[u8]) {
        if self.conns[slot].buffer.is_empty() && self.answer(slot, bytes).is_continue() {
            return;
        }
        let mut kept = std::mem::take(&mut self.conns[slot].buffer);
        kept.extend_from_slice(bytes);
        if self.answer(slot, &kept).is_continue() {
            kept = Vec::new();
        }
        self.conns[slot].buffer = kept;
    }

    fn ended(&mut self, slot: usize) {
        self.conns[slot].is_gone = true;
        if self.listening.get(slot).is_some_and(|listens| *listens) {
            self.listening[slot] = false;
            let bucket = self.bucket_of(slot);
            let slot = u32::try_from(slot).expect("slots are 32-bit");
            self.buckets[bucket].retain(|other| *other != slot);
        }
    }

    /// Answers a request if it is all there.
    fn answer(&mut self, slot: usize, request: &[u8]) -> ControlFlow<()> {
        let kind = Kind::of(request)?;
        let conn = &mut self.conns[slot];
        self.canned.answer(kind, request, &mut conn.reply);
        conn.unsent = conn.reply.len();
        match kind {
            Kind::Listen => self.listen(slot),
            Kind::Publish => self.publish(),
            Kind::Initialize | Kind::Notification | Kind::Call => {}
        }
        self.send(slot);
        ControlFlow::Continue(())
    }

    fn bucket_of(&self, slot: usize) -> usize {
        slot.wrapping_mul(0x9e37_79b9) % self.buckets.len()
    }

    fn listen(&mut self, slot: usize) {
        let bucket = self.bucket_of(slot);
        self.buckets[bucket].push(u32::try_from(slot).expect("slots are 32-bit"));
        self.listening.resize(self.listening.len().max(slot + 1), false);
        self.listening[slot] = true;
    }

    fn publish(&mut self) {
        let (event, length) = (self.canned.event.as_ptr(), self.canned.event.len());
        for slot in 0..self.listening.len() {
            if self.listening[slot] {
                self.send_to_stream(slot, event, length);
            }
        }
    }

    fn sent(&mut self, slot: usize, result: i32) {
        let conn = &mut self.conns[slot];
        conn.sends_in_flight -= 1;
        conn.unsent -= usize::try_from(result).unwrap_or(conn.unsent);
        if conn.unsent > 0 {
            self.send(slot);
        }
    }

    /// A connection goes when nothing of it is in flight.
    fn forget_if_done(&mut self, slot: usize) {
        if self.conns.get(slot).is_some_and(|conn| conn.is_gone && conn.sends_in_flight == 0) {
            drop(self.conns.remove(slot));
        }
    }

    fn send_comments(&mut self) {
        self.tick = (self.tick + 1) % self.buckets.len();
        let bucket = std::mem::take(&mut self.buckets[self.tick]);
        for slot in &bucket {
            self.send_to_stream(*slot as usize, KEEP_ALIVE.as_ptr(), KEEP_ALIVE.len());
        }
        self.buckets[self.tick] = bucket;
    }

    /// The bytes must stay where they are as long as the loop runs.
    fn send_to_stream(&mut self, slot: usize, bytes: *const u8, length: usize) {
        let conn = &mut self.conns[slot];
        conn.sends_in_flight += 1;
        let fd = types::Fd(conn.fd.as_raw_fd());
        let length = u32::try_from(length).expect("short");
        let entry = opcode::Send::new(fd, bytes, length).flags(libc::MSG_NOSIGNAL).build();
        self.push(entry, slot, COMMENT);
    }

    // --- Entries ---------------------------------------------------------------------------------

    fn accept(&mut self) {
        let fd = types::Fd(self.listener.as_raw_fd());
        let entry = opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(entry, 0, ACCEPT);
    }

    fn receive(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        let fd = types::Fd(conn.fd.as_raw_fd());
        let (entry, what) = match self.receive {
            Receive::Single => {
                let room = &mut conn.buffer[conn.filled..];
                let length = u32::try_from(room.len()).expect("small");
                (opcode::Recv::new(fd, room.as_mut_ptr(), length).build(), RECEIVE)
            }
            Receive::Ready => {
                (opcode::PollAdd::new(fd, u32::from(libc::POLLIN.unsigned_abs())).build(), READY)
            }
            Receive::Multishot => (opcode::RecvMulti::new(fd, provided::GROUP).build(), PROVIDED),
        };
        self.push(entry, slot, what);
    }

    fn send(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        conn.sends_in_flight += 1;
        let rest = &conn.reply[conn.reply.len() - conn.unsent..];
        let length = u32::try_from(rest.len()).expect("small");
        let entry = opcode::Send::new(types::Fd(conn.fd.as_raw_fd()), rest.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.push(entry, slot, SEND);
    }

    fn await_tick(&mut self) {
        let entry = opcode::Timeout::new(&raw const self.tick_length).build();
        self.push(entry, 0, TICK);
    }

    fn push(&mut self, entry: squeue::Entry, slot: usize, what: u64) {
        let entry = entry.user_data((slot as u64) << 3 | what);
        loop {
            // SAFETY: what an entry points to is static, or belongs to the loop, which runs until the process ends, or to
            // a connection, which is removed only when nothing of it is in flight; its buffers do not move.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.ring.submit().expect("a full queue can be submitted");
        }
    }
}
