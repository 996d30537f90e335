//! The floor: an io_uring loop that does what the server does on the wire and nothing else.
//!
//! It knows four requests by a word in them and answers each with bytes that are ready, as long as the server's own. It
//! keeps no sessions, checks nothing, frames nothing and has no timer but one: streams are in the bucket of the tick
//! that their slot falls on. What the server costs beyond this is what the server does.
//!
//! Per connection: one receive in flight into a buffer of its own, one send at most. Must never be served to
//! anyone: it believes what it reads.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

const BUFFER_BYTES: usize = 2048;
const TICK_MS: u64 = 16;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":         0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"bare","version":"1"}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":         0,"result":{"content":[{"type":"text","text":"mlt:00000000:00000000"}]}}"#;
const ACCEPTED: &str =
    "HTTP/1.1 202 Accepted\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n\
    3\r\n:\n\n\r\n";
const KEEP_ALIVE: &[u8] = b"d\r\n: keepalive\n\n\r\n";

/// Where in a canned reply the id is, right-aligned.
const ID_DIGITS: usize = 10;

/// Serves until it is killed. Prints its address once it listens.
pub(crate) fn run(keep_alive_ms: u64) -> io::Result<()> {
    let listener = listen()?;
    let address = listener.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    eprintln!("listening on http://{address}/mcp");
    Loop::new(listener, keep_alive_ms)?.run()
}

fn listen() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4096)?;
    Ok(socket)
}

struct Conn {
    fd: OwnedFd,
    buffer: Box<[u8; BUFFER_BYTES]>,
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
    call: Vec<u8>,
    initialize: Vec<u8>,
}

/// What completed, in the low bits of an entry's user data; the slot is above.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const COMMENT: u64 = 3;
const TICK: u64 = 4;

impl Loop {
    fn new(listener: Socket, keep_alive_ms: u64) -> io::Result<Self> {
        let ring =
            IoUring::builder().setup_single_issuer().setup_coop_taskrun().setup_cqsize(32_768).build(256)?;
        let ticks = usize::try_from(keep_alive_ms / TICK_MS).unwrap_or(1).max(1);
        Ok(Loop {
            ring,
            listener,
            conns: Slab::new(),
            buckets: vec![Vec::new(); ticks],
            tick: 0,
            tick_length: types::Timespec::from(Duration::from_millis(TICK_MS)),
            call: canned(CALL, ""),
            initialize: canned(INITIALIZE, "Mcp-Session-Id: 000000000000000000000000000000000000000000\r\n"),
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
            buffer: Box::new([0; BUFFER_BYTES]),
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
        let conn = &mut self.conns[slot];
        let Ok(count @ 1..) = usize::try_from(result) else {
            conn.is_gone = true;
            let slot = u32::try_from(slot).expect("slots are 32-bit");
            self.buckets.iter_mut().for_each(|bucket| bucket.retain(|other| *other != slot));
            return;
        };
        conn.filled += count;
        let Some(kind) = Kind::of(&conn.buffer[..conn.filled]) else { return self.receive(slot) };
        let id = id_in(&conn.buffer[..conn.filled]);
        conn.filled = 0;
        conn.reply.clear();
        match kind {
            Kind::Initialize => conn.reply.extend_from_slice(&self.initialize),
            Kind::Call => conn.reply.extend_from_slice(&self.call),
            Kind::Notification => conn.reply.extend_from_slice(ACCEPTED.as_bytes()),
            Kind::Listen => {
                conn.reply.extend_from_slice(STREAM.as_bytes());
                let bucket = slot.wrapping_mul(0x9e37_79b9) % self.buckets.len();
                self.buckets[bucket].push(u32::try_from(slot).expect("slots are 32-bit"));
            }
        }
        if let Kind::Initialize | Kind::Call = kind {
            put_id(&mut conn.reply, id);
        }
        conn.unsent = conn.reply.len();
        self.send(slot);
        self.receive(slot);
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
            let conn = &mut self.conns[*slot as usize];
            conn.sends_in_flight += 1;
            let fd = types::Fd(conn.fd.as_raw_fd());
            let length = u32::try_from(KEEP_ALIVE.len()).expect("short");
            let entry = opcode::Send::new(fd, KEEP_ALIVE.as_ptr(), length).flags(libc::MSG_NOSIGNAL).build();
            self.push(entry, *slot as usize, COMMENT);
        }
        self.buckets[self.tick] = bucket;
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
        let room = &mut conn.buffer[conn.filled..];
        let length = u32::try_from(room.len()).expect("small");
        let entry = opcode::Recv::new(types::Fd(conn.fd.as_raw_fd()), room.as_mut_ptr(), length).build();
        self.push(entry, slot, RECEIVE);
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

/// What the bare loop can tell apart.
enum Kind {
    Initialize,
    Notification,
    Call,
    Listen,
}

impl Kind {
    /// The kind of a whole request; `None` while more of it is to come.
    fn of(bytes: &[u8]) -> Option<Self> {
        let body = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
        if bytes[0] != b'P' {
            return Some(if bytes[0] == b'G' { Kind::Listen } else { Kind::Notification });
        }
        let length = number_after(&bytes[..body], b"ontent-Length: ")?;
        let body = bytes.get(body..)?;
        if body.len() < length {
            return None;
        }
        Some(match () {
            () if memchr::memmem::find(body, b"\"id\":").is_none() => Kind::Notification,
            () if memchr::memmem::find(body, b"\"initialize\"").is_some() => Kind::Initialize,
            () => Kind::Call,
        })
    }
}

fn id_in(bytes: &[u8]) -> usize {
    number_after(bytes, b"\"id\":").unwrap_or(0)
}

fn number_after(bytes: &[u8], name: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(bytes, name)? + name.len();
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

fn canned(json: &str, fields: &str) -> Vec<u8> {
    let length = json.len();
    format!(
        "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: application/json\r\n\
         Cache-Control: no-store\r\n{fields}Content-Length: {length}\r\n\r\n{json}"
    )
    .into()
}

/// Writes the id over the blanks that end in the reply's zero.
fn put_id(reply: &mut [u8], id: usize) {
    let name = b"\"id\":";
    let Some(at) = memchr::memmem::find(reply, name) else { return };
    let digits = itoa::Buffer::new().format(id).as_bytes().to_vec();
    let end = at + name.len() + ID_DIGITS;
    if digits.len() <= ID_DIGITS {
        reply[end - digits.len()..end].copy_from_slice(&digits);
    }
}
