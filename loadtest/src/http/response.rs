//! Reading one HTTP/1.1 response from bytes as they come (RFC 9112).
//!
//! Owns the split of a byte stream into head, body bytes and end. Never looks into the body, never
//! buffers it, and never accepts a framing two readers could understand differently: a fault of the server is to be seen.
//! 40 bytes while nothing is pending; a head or chunk line that is cut in two waits in `pending`.

use std::fmt;

/// Longest response head that is read, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest chunk-size or trailer line that is read, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// What the body is, as far as a client of MCP cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// `application/json`.
    Json,
    /// `text/event-stream`.
    Events,
    /// Anything else, or nothing.
    Other,
}

/// The parts of a response head that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Status code, 200 to 999.
    pub(crate) status: u16,
    /// Kind of body.
    pub(crate) content: Content,
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<Box<str>>,
}

/// One step of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// The head is complete.
    Head(Head),
    /// Some bytes of the body, without framing.
    Body(&'a [u8]),
    /// The response is complete; `reusable` tells whether the connection may carry another.
    End {
        /// Neither side asked for the connection to be closed.
        reusable: bool,
    },
}

/// A response that is not HTTP/1.1, or that could be read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed response: {}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Body of known length: bytes still to come.
    Sized(u64),
    /// Waiting for a chunk-size line.
    ChunkSize,
    /// Chunk data still to come.
    ChunkData(u64),
    /// Waiting for the line end behind chunk data.
    ChunkEnd,
    Trailers,
    /// Body that ends with the connection.
    UntilClose,
    /// The end is known but not yet told.
    Ending,
    Done,
}

/// An incremental reader of one response.
#[derive(Debug)]
pub(crate) struct Response {
    state: State,
    close: bool,
    pending: Vec<u8>,
}

impl Response {
    /// A reader at the start of a response.
    pub(crate) fn new() -> Self {
        Self { state: State::Head, close: false, pending: Vec::new() }
    }

    /// Takes the next piece out of `input`, shortening it; `None` when more bytes are needed.
    ///
    /// # Errors
    /// A response that is malformed; the reader is of no use afterwards.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        loop {
            return match self.state {
                State::Head => self.head(input),
                State::Sized(left) => Ok(self.data(input, left, State::Sized, State::Ending)),
                State::ChunkData(left) => Ok(self.data(input, left, State::ChunkData, State::ChunkEnd)),
                State::UntilClose if input.is_empty() => Ok(None),
                State::UntilClose => Ok(Some(Piece::Body(std::mem::take(input)))),
                State::Ending => {
                    self.state = State::Done;
                    Ok(Some(Piece::End { reusable: !self.close }))
                }
                State::Done => Ok(None),
                State::ChunkSize | State::ChunkEnd | State::Trailers => match self.line(input)? {
                    true => continue,
                    false => Ok(None),
                },
            };
        }
    }

    /// Whether the peer closing now is a clean end of this response.
    pub(crate) fn may_end_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Done)
    }

    /// Whether any byte of the response has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.state != State::Head || !self.pending.is_empty()
    }

    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        while let Some(newline) = input.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = input.split_at(newline + 1);
            *input = rest;
            self.pending.extend_from_slice(line);
            if !(self.pending.ends_with(b"\n\r\n") || self.pending.ends_with(b"\n\n")) {
                continue;
            }
            let bytes = std::mem::take(&mut self.pending);
            let (head, framing) = parse_head(&bytes)?;
            if (100..200).contains(&head.status) {
                continue;
            }
            self.close = framing.close;
            self.state = framing.body;
            return Ok(Some(Piece::Head(head)));
        }
        self.pending.extend_from_slice(std::mem::take(input));
        if self.pending.len() > HEAD_BYTES_MAX {
            return Err(Malformed("head too long"));
        }
        Ok(None)
    }

    /// Passes on body bytes; `more` and `then` are the states while some are missing and after the last.
    fn data<'a>(
        &mut self,
        input: &mut &'a [u8],
        left: u64,
        more: fn(u64) -> State,
        then: State,
    ) -> Option<Piece<'a>> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        if count == 0 {
            return None;
        }
        let (bytes, rest) = input.split_at(count);
        *input = rest;
        let left = left - count as u64;
        self.state = if left == 0 { then } else { more(left) };
        Some(Piece::Body(bytes))
    }

    /// Handles one line of the chunked framing; `false` when it is not complete yet.
    fn line(&mut self, input: &mut &[u8]) -> Result<bool, Malformed> {
        let Some(newline) = input.iter().position(|&byte| byte == b'\n') else {
            self.pending.extend_from_slice(std::mem::take(input));
            return if self.pending.len() > LINE_BYTES_MAX {
                Err(Malformed("line too long"))
            } else {
                Ok(false)
            };
        };
        let (line, rest) = input.split_at(newline);
        *input = rest.get(1..).unwrap_or_default();
        let held = std::mem::take(&mut self.pending);
        self.state = if held.is_empty() {
            after_line(self.state, line)?
        } else {
            after_line(self.state, &[&held, line].concat())?
        };
        Ok(true)
    }
}

/// The state behind a line of the chunked framing (RFC 9112 section 7.1).
fn after_line(state: State, line: &[u8]) -> Result<State, Malformed> {
    let line = line.strip_suffix(b"\r").ok_or(Malformed("line without CR in chunked body"))?;
    match state {
        State::ChunkSize => Ok(match chunk_size(line)? {
            0 => State::Trailers,
            size => State::ChunkData(size),
        }),
        State::ChunkEnd if line.is_empty() => Ok(State::ChunkSize),
        State::ChunkEnd => Err(Malformed("bytes behind chunk data")),
        State::Trailers if line.is_empty() => Ok(State::Ending),
        _ => Ok(state),
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
    let valid = !digits.is_empty() && digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| valid).ok_or(Malformed("chunk size"))?;
    u64::from_str_radix(text, 16).map_err(|_| Malformed("chunk size"))
}

struct Framing {
    body: State,
    close: bool,
}

fn parse_head(bytes: &[u8]) -> Result<(Head, Framing), Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed("head is not text"))?;
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let (status, is_old) = parse_status(lines.next().unwrap_or_default())?;
    let mut head = Head { status, content: Content::Other, session: None };
    let (mut length, mut chunked, mut close) = (None, false, is_old);
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Malformed("field without a colon"))?;
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "content-type" => head.content = content(value),
            "mcp-session-id" => head.session = Some(value.into()),
            "content-length" => length = Some(content_length(value, length)?),
            "transfer-encoding" => chunked = is_chunked(value)?,
            "connection" => close = connection_close(value, close),
            _ => {}
        }
    }
    let body = framing(status, length, chunked)?;
    Ok((head, Framing { body, close: close || body == State::UntilClose }))
}

fn parse_status(line: &str) -> Result<(u16, bool), Malformed> {
    let rest = line.strip_prefix("HTTP/1.").ok_or(Malformed("status line"))?;
    let (minor, rest) = rest.split_once(' ').ok_or(Malformed("status line"))?;
    let code = rest.get(..3).filter(|code| code.bytes().all(|b| b.is_ascii_digit()));
    let code = code.and_then(|code| code.parse().ok()).ok_or(Malformed("status code"))?;
    if code < 100 || !matches!(minor, "0" | "1") {
        return Err(Malformed("status line"));
    }
    Ok((code, minor == "0"))
}

fn content(value: &str) -> Content {
    match value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Content::Json,
        "text/event-stream" => Content::Events,
        _ => Content::Other,
    }
}

fn content_length(value: &str, earlier: Option<u64>) -> Result<u64, Malformed> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let length = value.parse().ok().filter(|_| digits).ok_or(Malformed("content length"))?;
    match earlier {
        Some(other) if other != length => Err(Malformed("two content lengths")),
        _ => Ok(length),
    }
}

fn is_chunked(value: &str) -> Result<bool, Malformed> {
    if value.eq_ignore_ascii_case("chunked") { Ok(true) } else { Err(Malformed("transfer coding")) }
}

fn connection_close(value: &str, so_far: bool) -> bool {
    value.split(',').map(str::trim).fold(so_far, |close, option| {
        (close && !option.eq_ignore_ascii_case("keep-alive")) || option.eq_ignore_ascii_case("close")
    })
}

/// RFC 9112 section 6.3.
fn framing(status: u16, length: Option<u64>, chunked: bool) -> Result<State, Malformed> {
    match (status, length, chunked) {
        (_, Some(_), true) => Err(Malformed("both content length and chunked")),
        (100..200 | 204 | 304, ..) | (_, Some(0), false) => Ok(State::Ending),
        (_, Some(length), false) => Ok(State::Sized(length)),
        (_, None, true) => Ok(State::ChunkSize),
        (_, None, false) => Ok(State::UntilClose),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    /// Head, body, and whether the response ended and left the connection reusable.
    type Seen = (Option<Head>, Vec<u8>, Option<bool>);

    /// Feeds `bytes` in steps of `step` and returns status, body, and whether and how it ended.
    fn read(bytes: &[u8], step: usize) -> Result<Seen, Malformed> {
        let mut response = Response::new();
        let (mut head, mut body, mut end) = (None, Vec::new(), None);
        for mut input in bytes.chunks(step) {
            while let Some(piece) = response.next(&mut input)? {
                match piece {
                    Piece::Head(found) => head = Some(found),
                    Piece::Body(bytes) => body.extend_from_slice(bytes),
                    Piece::End { reusable } => end = Some(reusable),
                }
            }
        }
        Ok((head, body, end))
    }

    fn check(bytes: &[u8], status: u16, body: &[u8], end: Option<bool>) {
        for step in 1..=bytes.len() {
            let (head, found, ended) = read(bytes, step).unwrap();
            assert_eq!((head.unwrap().status, found.as_slice(), ended), (status, body, end), "step {step}");
        }
    }

    #[test]
    fn framings_in_pieces_of_every_size() {
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", Some(true));
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n",
            200,
            b"abcde",
            Some(true),
        );
        check(
            b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            202,
            b"",
            Some(false),
        );
        check(b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end", None);
        check(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\n\r\n", 204, b"", Some(true));
        check(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", Some(false));
        check(
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
            200,
            b"x",
            Some(true),
        );
    }

    #[test]
    fn fields_are_found_whatever_their_case() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-TYPE: Text/Event-Stream; charset=utf-8\r\nMCP-SESSION-ID:  a \r\ncontent-length: 0\r\n\r\n";
        let head = read(bytes, 7).unwrap().0.unwrap();
        assert_eq!((head.content, head.session.as_deref()), (Content::Events, Some("a")));
    }

    #[test]
    fn an_unfinished_chunked_body_does_not_end_with_the_connection() {
        let mut response = Response::new();
        let mut input: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        while response.next(&mut input).unwrap().is_some() {}
        assert!(!response.may_end_with_connection());
    }

    #[test]
    fn ambiguity_is_a_fault() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            b"HTTP/2 200 OK\r\n\r\n",
            b"HTTP/1.1 20x OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            assert!(read(bytes, bytes.len()).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
