//! A blocking HTTP/1.1 client of one connection: raw bytes out, parsed responses in.
//!
//! It understands what a client has to (RFC 9112): status line, fields, `Content-Length`, chunked coding. It
//! accepts nothing else, so a server that strays from the standard fails the test at once.

use super::PATIENCE;
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// One TCP connection and what was received on it but not yet used.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// The outcome of waiting for more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// There are more.
    More,
    /// The deadline passed.
    TimedOut,
    /// The peer has finished.
    Closed,
    /// The connection was reset.
    Reset,
}

/// How a connection is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Closed in order.
    Fin,
    /// Reset, as by a process that crashed on a host that did not.
    Rst,
}

impl Connection {
    /// Connects to `address`.
    pub(crate) fn open(address: SocketAddr) -> Connection {
        Connection::of(
            TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts connections"),
        )
    }

    /// Connects with a receive buffer of about `bytes`: what is beyond it stays on its way.
    pub(crate) fn open_narrow(address: SocketAddr, bytes: usize) -> Connection {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket can be made");
        socket.set_recv_buffer_size(bytes).expect("a small buffer is allowed");
        socket.connect(&address.into()).expect("the server accepts connections");
        Connection::of(socket.into())
    }

    fn of(stream: TcpStream) -> Connection {
        stream.set_nodelay(true).expect("a TCP socket has this option");
        Connection { stream, received: Vec::new() }
    }

    /// Sends `bytes` as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server takes the bytes");
    }

    /// Sends `bytes` to a server that may have closed already.
    pub(crate) fn send_unheard(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends as much of `bytes` as the server takes within `patience`; how much that was.
    pub(crate) fn send_while_taken(&mut self, bytes: &[u8], patience: Duration) -> usize {
        self.stream.set_write_timeout(Some(patience)).expect("the time-out is not zero");
        let mut taken = 0;
        while taken < bytes.len() {
            match self.stream.write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        taken
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub(crate) fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is open");
    }

    /// Leaves.
    pub(crate) fn leave(self, how: Leave) {
        let socket = socket2::SockRef::from(&self.stream);
        // What was read counts as taken: a delayed acknowledgement would otherwise die with the connection.
        socket.set_tcp_quickack(true).expect("a TCP socket has this option");
        if how == Leave::Rst {
            socket.set_linger(Some(Duration::ZERO)).expect("a TCP socket has this option");
        }
    }

    /// The next response to a request with `method`, whole. Interim responses are passed over.
    pub(crate) fn response(&mut self, method: &str) -> Response {
        let head = self.final_head();
        let body = self.body(&head, method);
        Response { head, body }
    }

    /// The next head that is not interim.
    pub(crate) fn final_head(&mut self) -> Head {
        loop {
            let head = self.head();
            if head.status >= 200 {
                return head;
            }
        }
    }

    /// The next head, interim or not.
    pub(crate) fn head(&mut self) -> Head {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                let bytes: Vec<u8> = self.received.drain(..at + 4).collect();
                return Head::parse(&bytes[..at]);
            }
            match self.fill(end) {
                Fill::More => {}
                other => panic!("no response: {other:?} after {:?}", String::from_utf8_lossy(&self.received)),
            }
        }
    }

    fn body(&mut self, head: &Head, method: &str) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        match head.framing(method) {
            Framing::Length(length) => {
                while self.received.len() < length {
                    let fill = self.fill(end);
                    assert_eq!(fill, Fill::More, "the body is cut short");
                }
                self.received.drain(..length).collect()
            }
            Framing::Chunked => {
                let mut body = Vec::new();
                loop {
                    match self.chunk(end) {
                        Chunk::Data(data) => body.extend_from_slice(&data),
                        Chunk::Last => return body,
                        Chunk::Missing(why) => panic!("the body is cut short: {why:?}"),
                    }
                }
            }
        }
    }

    /// The next whole chunk, its line end included.
    pub(crate) fn chunk(&mut self, end: Instant) -> Chunk {
        loop {
            if let Some((chunk, used)) = first_chunk(&self.received) {
                self.received.drain(..used);
                return chunk;
            }
            match self.fill(end) {
                Fill::More => {}
                other => return Chunk::Missing(other),
            }
        }
    }

    /// Waits for more bytes.
    fn fill(&mut self, end: Instant) -> Fill {
        // Zero would mean no time-out at all.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left)).expect("the time-out is not zero");
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Fill::Closed,
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Fill::More
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Fill::TimedOut,
                ErrorKind::Interrupted => Fill::More,
                _ => Fill::Reset,
            },
        }
    }

    /// How the connection ends: everything received until then, and whether in order.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Fill) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.fill(end) {
                Fill::More => {}
                other => return (std::mem::take(&mut self.received), other),
            }
        }
    }

    /// What has arrived and is not used, without making room for more of it in the kernel's buffer.
    pub(crate) fn arrived(&mut self) -> Vec<u8> {
        self.stream.set_nonblocking(true).expect("a TCP socket has this option");
        let mut bytes = vec![0; 1024 * 1024];
        let count = self.stream.peek(&mut bytes).unwrap_or(0);
        self.stream.set_nonblocking(false).expect("a TCP socket has this option");
        [&self.received, &bytes[..count]].concat()
    }
}

/// What [`Connection::chunk`] found.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// A chunk with data.
    Data(Vec<u8>),
    /// The chunk that ends the body.
    Last,
    /// None yet, or never.
    Missing(Fill),
}

/// The first chunk in `bytes` and its length, if it is there to its end.
pub(crate) fn first_chunk(bytes: &[u8]) -> Option<(Chunk, usize)> {
    let line = find(bytes, b"\r\n")?;
    let digits = std::str::from_utf8(&bytes[..line]).expect("a chunk size is ASCII");
    let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("chunk size {digits:?}"));
    let end = line + 2 + size;
    let tail = bytes.get(end..end + 2)?;
    assert_eq!(tail, b"\r\n", "a chunk ends with a line end");
    let chunk = if size == 0 { Chunk::Last } else { Chunk::Data(bytes[line + 2..end].to_vec()) };
    Some((chunk, end + 2))
}

/// Where the body of a response ends.
enum Framing {
    Length(usize),
    Chunked,
}

/// Status and fields of a response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The status code.
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Head {
        let text = std::str::from_utf8(bytes).expect("our heads are ASCII");
        let mut lines = text.split("\r\n");
        let status_line = lines.next().expect("a head has a first line");
        let status = status_line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("status line {status_line:?}"));
        let fields = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("field {line:?}"));
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        Head { status, fields }
    }

    /// The value of the only field with that name, lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values =
            self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} comes twice");
        value
    }

    /// Whether the server will close the connection after this response.
    pub(crate) fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    fn framing(&self, method: &str) -> Framing {
        let length = self.field("content-length").map(|value| value.parse().expect("a decimal length"));
        let chunked = self.field("transfer-encoding").is_some_and(|value| value == "chunked");
        if method == "HEAD" || self.status == 204 || self.status == 304 {
            return Framing::Length(0);
        }
        match (length, chunked) {
            (Some(length), false) => Framing::Length(length),
            (None, true) => Framing::Chunked,
            _ => panic!("a response needs one framing: {self:?}"),
        }
    }
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Status and fields.
    pub(crate) head: Head,
    /// The body, decoded.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("our bodies are UTF-8")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
