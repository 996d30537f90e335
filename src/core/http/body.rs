//! The body of a request, decoded as it arrives (RFC 9112 sections 6 and 7).
//!
//! Must never allocate because of a declared length, never take a byte beyond the body's end (it belongs to
//! the next request), and never let anything of a trailer section or chunk extension through.
//!
//! A body of known length stays in the input buffer until it is whole and is then split off without
//! copying. Chunks are joined; a single chunk is split off as well. A decoder is 40 bytes.

use super::{Framing, Refusal, Status, fields};
use crate::limits::{CHUNK_LINE_BYTES_MAX, READ_BUFFER_BYTES, TRAILER_BYTES_MAX};
use bytes::{Buf as _, BytesMut};

/// Decodes one request's body.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// What the body may still grow by.
    room_bytes: u64,
    /// The limit `room_bytes` started from, for the message of the 413.
    body_bytes_max: u64,
    /// Bytes of chunk extensions and trailers so far: both are thrown away, and both are bounded.
    discarded_bytes: usize,
}

/// Whether a body is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More input is needed.
    NeedMore,
    /// The body is complete; what is left in the input starts the next request.
    Done,
}

/// What the next byte of input is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A body of known length, of which this many bytes are missing.
    Length(u64),
    /// A chunk-size line.
    ChunkSize,
    /// A chunk of which this many bytes are missing.
    ChunkData(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// A trailer field, or the empty line after the last.
    Trailer,
    /// Nothing: the body is complete.
    Done,
}

/// What becomes of body bytes.
enum Sink<'a> {
    Keep(&'a mut BytesMut),
    Drop,
}

impl Decoder {
    /// A decoder for a body framed like this, of at most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// 413 at once if a longer one is declared.
    pub fn new(framing: Framing, body_bytes_max: u64) -> Result<Self, Refusal> {
        let state = match framing {
            Framing::None => State::Done,
            Framing::Length(length) if length > body_bytes_max => {
                return Err(Refusal::too_large(body_bytes_max));
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkSize,
        };
        Ok(Decoder { state, room_bytes: body_bytes_max, body_bytes_max, discarded_bytes: 0 })
    }

    /// Takes body bytes out of `input` and appends them to `body`, which must be the same (at first empty)
    /// buffer in every call.
    ///
    /// # Errors
    /// 400 for anything wrong with chunks, 413 as soon as the body is over its limit, 431 for too long
    /// trailers. Each closes; the decoder must not be used again.
    pub fn decode(&mut self, input: &mut BytesMut, body: &mut BytesMut) -> Result<Progress, Refusal> {
        self.run(input, &mut Sink::Keep(body))
    }

    /// Takes body bytes out of `input` and drops them: for the rest of a request that was refused. The same
    /// bounds hold.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn skip(&mut self, input: &mut BytesMut) -> Result<Progress, Refusal> {
        self.run(input, &mut Sink::Drop)
    }

    /// Whether the body is complete already.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What the body may come to.
    pub fn bytes_max(&self) -> usize {
        usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX)
    }

    /// How much room the next read should have, given `buffered` bytes in the input: never more than what has
    /// already arrived, or one ordinary buffer, so that declaring a length costs the server nothing.
    pub fn wanted_bytes(&self, buffered: usize) -> usize {
        let missing = match self.state {
            State::Length(missing) => usize::try_from(missing).unwrap_or(usize::MAX).saturating_sub(buffered),
            State::ChunkData(_) | State::ChunkSize | State::ChunkEnd | State::Trailer => READ_BUFFER_BYTES,
            State::Done => 0,
        };
        missing.min(buffered.max(READ_BUFFER_BYTES))
    }

    fn run(&mut self, input: &mut BytesMut, sink: &mut Sink<'_>) -> Result<Progress, Refusal> {
        loop {
            let next = match self.state {
                State::Length(missing) => take_length(missing, input, sink),
                State::ChunkSize => self.chunk_size(input)?,
                State::ChunkData(missing) => take_chunk(missing, input, sink),
                State::ChunkEnd => chunk_end(input)?,
                State::Trailer => self.trailer(input)?,
                State::Done => return Ok(Progress::Done),
            };
            match next {
                Some(state) => self.state = state,
                None => return Ok(Progress::NeedMore),
            }
        }
    }

    /// `chunk-size [ chunk-ext ] CRLF`; `None` until the line is whole.
    fn chunk_size(&mut self, input: &mut BytesMut) -> Result<Option<State>, Refusal> {
        let Some(line) = line(input, CHUNK_LINE_BYTES_MAX)
            .map_err(|fault| fault.refuse(|| Refusal::malformed("a chunk-size line is too long")))?
        else {
            return Ok(None);
        };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size =
            parse_hex(&line[..digits]).ok_or_else(|| Refusal::malformed("a chunk size is malformed"))?;
        check_extension(&line[digits..])?;
        let extension_bytes = line.len() - digits;
        let line_bytes = line.len() + 2;
        self.discard(extension_bytes).map_err(|()| Refusal::malformed("chunk extensions are too long"))?;
        self.room_bytes =
            self.room_bytes.checked_sub(size).ok_or_else(|| Refusal::too_large(self.body_bytes_max))?;
        input.advance(line_bytes);
        Ok(Some(if size == 0 { State::Trailer } else { State::ChunkData(size) }))
    }

    /// One line of the trailer section; checked as a field line, then forgotten (RFC 9110 section 6.5).
    fn trailer(&mut self, input: &mut BytesMut) -> Result<Option<State>, Refusal> {
        let too_long =
            || Refusal::new(Status::HeaderFieldsTooLarge, "the trailer section is too long").closing();
        let room = (TRAILER_BYTES_MAX + 2).saturating_sub(self.discarded_bytes);
        let Some(line) = line(input, room).map_err(|fault| fault.refuse(too_long))? else { return Ok(None) };
        if line.is_empty() {
            input.advance(2);
            return Ok(Some(State::Done));
        }
        let name_len = memchr::memchr(b':', line).unwrap_or(0);
        if !fields::is_token(&line[..name_len]) || !line.iter().all(|&byte| is_text(byte)) {
            return Err(Refusal::malformed("a trailer field is malformed"));
        }
        let line_bytes = line.len() + 2;
        self.discard(line_bytes).map_err(|()| too_long())?;
        input.advance(line_bytes);
        Ok(Some(State::Trailer))
    }

    /// Counts bytes that lead to nothing.
    fn discard(&mut self, bytes: usize) -> Result<(), ()> {
        self.discarded_bytes = self.discarded_bytes.saturating_add(bytes);
        if self.discarded_bytes > TRAILER_BYTES_MAX { Err(()) } else { Ok(()) }
    }
}

/// A body of known length: kept in the input until it is whole, or dropped as it comes.
fn take_length(missing: u64, input: &mut BytesMut, sink: &mut Sink<'_>) -> Option<State> {
    let available = available(missing, input);
    match sink {
        Sink::Keep(body) if available as u64 == missing => append(body, input.split_to(available)),
        Sink::Keep(_) => return None,
        Sink::Drop => input.advance(available),
    }
    after_taking(missing, available, State::Length, State::Done)
}

/// A chunk's bytes, as they come.
fn take_chunk(missing: u64, input: &mut BytesMut, sink: &mut Sink<'_>) -> Option<State> {
    let available = available(missing, input);
    match sink {
        Sink::Keep(body) => append(body, input.split_to(available)),
        Sink::Drop => input.advance(available),
    }
    after_taking(missing, available, State::ChunkData, State::ChunkEnd)
}

/// How much of `missing` the input has.
fn available(missing: u64, input: &BytesMut) -> usize {
    usize::try_from(missing).unwrap_or(usize::MAX).min(input.len())
}

/// The state after `taken` of `missing` bytes; `None` if nothing could be taken.
fn after_taking(missing: u64, taken: usize, more: fn(u64) -> State, whole: State) -> Option<State> {
    match missing - taken as u64 {
        0 => Some(whole),
        _ if taken == 0 => None,
        left => Some(more(left)),
    }
}

/// Appends without copying if there is nothing yet.
fn append(body: &mut BytesMut, more: BytesMut) {
    if body.is_empty() {
        *body = more;
    } else {
        body.extend_from_slice(&more);
    }
}

/// The CRLF after a chunk, and nothing else.
fn chunk_end(input: &mut BytesMut) -> Result<Option<State>, Refusal> {
    match &input[..] {
        [] | [b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => {
            input.advance(2);
            Ok(Some(State::ChunkSize))
        }
        _ => Err(Refusal::malformed("a chunk does not end where its size says")),
    }
}

/// Why there is no line.
enum LineFault {
    TooLong,
    BareLineFeed,
}

impl LineFault {
    fn refuse(self, too_long: impl FnOnce() -> Refusal) -> Refusal {
        match self {
            LineFault::TooLong => too_long(),
            LineFault::BareLineFeed => Refusal::malformed("lines of a chunked body end with CR LF"),
        }
    }
}

/// The first line of the input without its CRLF, which is within `bytes_max`; `None` until it is whole.
fn line(input: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, LineFault> {
    let window = &input[..input.len().min(bytes_max)];
    match memchr::memchr(b'\n', window) {
        Some(end) => match window[..end].split_last() {
            Some((b'\r', line)) => Ok(Some(line)),
            _ => Err(LineFault::BareLineFeed),
        },
        None if window.len() == bytes_max => Err(LineFault::TooLong),
        None => Ok(None),
    }
}

/// `1*HEXDIG` within 64 bits. The digits were counted by the caller.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        number.checked_mul(16)?.checked_add(u64::from(digit))
    })
}

/// Extensions mean nothing to us; they only must not hide a line end from another reader. White space
/// before the semicolon is legal but has no use other than that, so it is refused.
fn check_extension(extension: &[u8]) -> Result<(), Refusal> {
    match extension {
        [] => Ok(()),
        [b';', rest @ ..] if rest.iter().all(|&byte| is_text(byte)) => Ok(()),
        _ => Err(Refusal::malformed("a chunk-size line is malformed")),
    }
}

/// What a line may hold: no control characters but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
