//! Frames of an event stream, made without copying the message.
//!
//! An event on the wire is three slices written together: a small part of the stream's own (chunk size and
//! `id` line, an [`Inline`]), the [`payload`], serialised once and shared by every stream it goes to, and a
//! static end. Everything else a stream says (keep-alive, priming, reconnection hint, last chunk) is static
//! or fits into one [`Inline`].
//!
//! Owns the text of the format (WHATWG HTML, "Server-sent events"; chunks: RFC 9112 section 7.1) and no
//! state. Never allocates except in [`payload`]; every chunk it opens it also closes in the same frame, so a
//! frame boundary is always a chunk boundary and a stream can end cleanly between any two frames.

use super::{ids::EventId, seam::Inline};
use bytes::Bytes;

/// How the end of a stream's response is told to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// HTTP/1.1: chunks.
    Chunked,
    /// HTTP/1.0: bytes until the connection closes.
    CloseDelimited,
}

// --- Events -------------------------------------------------------------------------------------

/// What stands before the message in a [`payload`].
pub(super) const BEFORE: &[u8] = b"event: message\ndata: ";
/// What stands after it.
pub(super) const AFTER: &[u8] = b"\n\n";

/// The shared part of an event that carries a JSON-RPC message: `event: message\ndata: …\n\n`.
///
/// CR and LF would end the `data` line. Inside JSON they are legal as white space only, so they become
/// spaces; the event is always one line of data.
pub fn payload(json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(BEFORE.len() + json.len() + AFTER.len());
    event.extend_from_slice(BEFORE);
    event.extend_from_slice(json);
    for line_break in memchr::memchr2_iter(b'\r', b'\n', json) {
        event[BEFORE.len() + line_break] = b' ';
    }
    event.extend_from_slice(AFTER);
    Bytes::from(event)
}

/// What one stream writes before and after a [`payload`] of `payload_len` bytes, which must not be 0: chunk
/// size and `id` line, then the end of the chunk.
pub fn event(transfer: Transfer, id: Option<EventId>, payload_len: usize) -> (Inline, &'static [u8]) {
    let line = id.map_or(Inline::new(), id_line);
    match transfer {
        Transfer::Chunked => {
            let mut before = chunk_start(line.as_slice().len() + payload_len);
            before.push(line.as_slice());
            (before, CHUNK_END)
        }
        Transfer::CloseDelimited => (line, b""),
    }
}

/// The event that hands a client its cursor before there is any message, with the `retry` hint in
/// milliseconds (2025-11-25, "Sending Messages to the Server", point 6). Its data is empty and it has no
/// name.
pub fn priming(transfer: Transfer, id: EventId, retry_ms: u64) -> Inline {
    let mut block = id_line(id);
    push_retry(&mut block, retry_ms);
    block.push(b"data:\n\n");
    framed(transfer, block)
}

// --- What is no event ---------------------------------------------------------------------------

/// A reconnection time in milliseconds in a block without data: it is noted and dispatches nothing.
pub fn retry(transfer: Transfer, retry_ms: u64) -> Inline {
    let mut block = Inline::new();
    push_retry(&mut block, retry_ms);
    block.push(b"\n");
    framed(transfer, block)
}

/// The keep-alive comment.
pub fn comment(transfer: Transfer) -> &'static [u8] {
    match transfer {
        Transfer::Chunked => b"d\r\n: keepalive\n\n\r\n",
        Transfer::CloseDelimited => b": keepalive\n\n",
    }
}

/// The comment that lets the first bytes of an unprimed stream go out with its head.
pub fn opening(transfer: Transfer) -> &'static [u8] {
    match transfer {
        Transfer::Chunked => b"6\r\n: ok\n\n\r\n",
        Transfer::CloseDelimited => b": ok\n\n",
    }
}

/// What ends a stream's response. After it only the close of a close-delimited one is missing.
pub fn last_chunk(transfer: Transfer) -> &'static [u8] {
    match transfer {
        Transfer::Chunked => b"0\r\n\r\n",
        Transfer::CloseDelimited => b"",
    }
}

// --- Lines and chunks ---------------------------------------------------------------------------

const CHUNK_END: &[u8] = b"\r\n";
/// Hexadecimal digits of the largest chunk.
const CHUNK_DIGITS_MAX: usize = 2 * size_of::<usize>();
const ID_LINE_LEN_MAX: usize = b"id: \n".len() + EventId::LEN_MAX;
const RETRY_LINE_LEN_MAX: usize = b"retry: 18446744073709551615\n".len();
const PRIMING_LEN_MAX: usize = ID_LINE_LEN_MAX + RETRY_LINE_LEN_MAX + b"data:\n\n".len();

const _: () = {
    assert!(PRIMING_LEN_MAX <= 0xff, "two digits are the size of any priming event");
    let priming_frame = 2 + CHUNK_END.len() + PRIMING_LEN_MAX + CHUNK_END.len();
    assert!(priming_frame <= Inline::CAPACITY, "a framed priming event is one inline piece");
    let before_payload = CHUNK_DIGITS_MAX + CHUNK_END.len() + ID_LINE_LEN_MAX;
    assert!(before_payload <= Inline::CAPACITY, "so is what stands before a payload of any length");
};

fn id_line(id: EventId) -> Inline {
    let mut line = Inline::new();
    line.push(b"id: ");
    id.push_to(&mut line);
    line.push(b"\n");
    line
}

fn push_retry(block: &mut Inline, retry_ms: u64) {
    block.push(b"retry: ");
    block.push(itoa::Buffer::new().format(retry_ms).as_bytes());
    block.push(b"\n");
}

fn framed(transfer: Transfer, block: Inline) -> Inline {
    match transfer {
        Transfer::Chunked => {
            let mut frame = chunk_start(block.as_slice().len());
            frame.push(block.as_slice());
            frame.push(CHUNK_END);
            frame
        }
        Transfer::CloseDelimited => block,
    }
}

/// The size line of a chunk of `len` bytes. A chunk of 0 bytes would end the response.
fn chunk_start(len: usize) -> Inline {
    debug_assert!(len > 0, "an empty chunk is the last one");
    let mut digits = [0; CHUNK_DIGITS_MAX];
    let mut start = CHUNK_DIGITS_MAX;
    let mut rest = len;
    while rest > 0 {
        start -= 1;
        digits[start] = b"0123456789abcdef"[rest & 0xf];
        rest >>= 4;
    }
    let mut line = Inline::new();
    line.push(&digits[start..]);
    line.push(b"\r\n");
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;
    use crate::core::ids::{StreamKind, Tag};
    use proptest::prelude::*;

    const BOTH: [Transfer; 2] = [Transfer::Chunked, Transfer::CloseDelimited];
    const LONGEST: EventId =
        EventId { tag: Tag::new(u32::MAX), kind: StreamKind::Request, stream: u32::MAX, sequence: u32::MAX };

    fn id_text(id: EventId) -> String {
        let mut text = Inline::new();
        id.push_to(&mut text);
        String::from_utf8(text.as_slice().to_vec()).unwrap()
    }

    /// A chunk decoder that shares nothing with the framer: the content, and what follows the last chunk.
    fn decode_chunks(mut wire: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut content = Vec::new();
        loop {
            let line = wire.windows(2).position(|two| two == b"\r\n").expect("a size line ends");
            let size = usize::from_str_radix(std::str::from_utf8(&wire[..line]).unwrap(), 16).unwrap();
            wire = &wire[line + 2..];
            content.extend_from_slice(&wire[..size]);
            assert_eq!(&wire[size..size + 2], b"\r\n", "a chunk ends where its size says");
            wire = &wire[size + 2..];
            if size == 0 {
                return (content, wire.to_vec());
            }
        }
    }

    fn decode(transfer: Transfer, wire: &[u8]) -> Vec<u8> {
        match transfer {
            Transfer::CloseDelimited => wire.to_vec(),
            Transfer::Chunked => {
                let (content, rest) = decode_chunks(wire);
                assert!(rest.is_empty(), "nothing follows the last chunk");
                content
            }
        }
    }

    /// What an EventSource makes of a stream.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        events: Vec<Dispatched>,
        last_event_id: String,
        retry_ms: Option<u64>,
        comments: usize,
    }

    /// One block with data; an empty `data` is kept, as SDK clients see it.
    #[derive(Debug, PartialEq, Eq)]
    struct Dispatched {
        id: String,
        name: String,
        data: String,
    }

    /// The interpretation algorithm of the standard, line by line.
    fn interpret(content: &[u8]) -> Seen {
        let text = std::str::from_utf8(content).unwrap().replace("\r\n", "\n").replace('\r', "\n");
        assert!(text.is_empty() || text.ends_with("\n\n"), "every block is complete");
        let mut seen = Seen::default();
        let (mut name, mut data) = (String::new(), None::<String>);
        for line in text.split('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (line.is_empty(), field) {
                (true, _) => {
                    if let Some(data) = data.take() {
                        seen.events.push(Dispatched {
                            id: seen.last_event_id.clone(),
                            name: name.clone(),
                            data,
                        });
                    }
                    name.clear();
                }
                (_, "") => seen.comments += 1,
                (_, "event") => name = value.to_owned(),
                (_, "id") => seen.last_event_id = value.to_owned(),
                (_, "retry") => seen.retry_ms = Some(value.parse().unwrap()),
                (_, "data") => {
                    data = Some(data.map_or(value.to_owned(), |before| format!("{before}\n{value}")));
                }
                _ => panic!("unknown field in {line:?}"),
            }
        }
        seen
    }

    #[derive(Clone, Debug)]
    enum Step {
        Event(Option<EventId>, String),
        Priming(EventId, u64),
        Retry(u64),
        Comment,
        Opening,
    }

    fn wire_of(transfer: Transfer, steps: &[Step]) -> Vec<u8> {
        let mut wire = Vec::new();
        for step in steps {
            match step {
                Step::Event(id, json) => {
                    let payload = payload(json.as_bytes());
                    let (before, after) = event(transfer, *id, payload.len());
                    wire.extend_from_slice(before.as_slice());
                    wire.extend_from_slice(&payload);
                    wire.extend_from_slice(after);
                }
                Step::Priming(id, ms) => wire.extend_from_slice(priming(transfer, *id, *ms).as_slice()),
                Step::Retry(ms) => wire.extend_from_slice(retry(transfer, *ms).as_slice()),
                Step::Comment => wire.extend_from_slice(comment(transfer)),
                Step::Opening => wire.extend_from_slice(opening(transfer)),
            }
        }
        wire.extend_from_slice(last_chunk(transfer));
        wire
    }

    /// The same content by plain formatting.
    fn naive_content(steps: &[Step]) -> String {
        let one = |step: &Step| match step {
            Step::Event(id, json) => {
                let id = id.map_or(String::new(), |id| format!("id: {}\n", id_text(id)));
                format!("{id}event: message\ndata: {}\n\n", json.replace(['\r', '\n'], " "))
            }
            Step::Priming(id, ms) => format!("id: {}\nretry: {ms}\ndata:\n\n", id_text(*id)),
            Step::Retry(ms) => format!("retry: {ms}\n\n"),
            Step::Comment => ": keepalive\n\n".to_owned(),
            Step::Opening => ": ok\n\n".to_owned(),
        };
        steps.iter().map(one).collect()
    }

    /// What a client must have seen.
    fn expected(steps: &[Step]) -> Seen {
        let mut seen = Seen::default();
        for step in steps {
            let dispatched = match step {
                Step::Event(id, json) => Some((*id, "message", json.replace(['\r', '\n'], " "))),
                Step::Priming(id, _) => Some((Some(*id), "", String::new())),
                Step::Retry(_) | Step::Comment | Step::Opening => None,
            };
            if let Some((id, name, data)) = dispatched {
                id.into_iter().for_each(|id| seen.last_event_id = id_text(id));
                seen.events.push(Dispatched { id: seen.last_event_id.clone(), name: name.to_owned(), data });
            }
            if let Step::Priming(_, ms) | Step::Retry(ms) = step {
                seen.retry_ms = Some(*ms);
            }
            seen.comments += usize::from(matches!(step, Step::Comment | Step::Opening));
        }
        seen
    }

    fn ids() -> impl Strategy<Value = EventId> {
        (any::<u32>(), any::<bool>(), any::<u32>(), any::<u32>()).prop_map(
            |(tag, listener, stream, sequence)| {
                let kind = if listener { StreamKind::Listener } else { StreamKind::Request };
                EventId { tag: Tag::new(tag), kind, stream, sequence }
            },
        )
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let json = "(\\{[ \r\n\t]{0,3}\"[a-zé:]{0,40}\"[\r\n]{0,2}:[ \r\n]{0,2}[0-9]{0,3000}\\}){0,2}";
        let step = prop_oneof![
            4 => (prop::option::of(ids()), json).prop_map(|(id, json)| Step::Event(id, json)),
            1 => (ids(), any::<u64>()).prop_map(|(id, ms)| Step::Priming(id, ms)),
            1 => any::<u64>().prop_map(Step::Retry),
            1 => Just(Step::Comment),
            1 => Just(Step::Opening),
        ];
        prop::collection::vec(step, 0..12)
    }

    proptest! {
        #[test]
        fn streams_read_as_they_were_written(steps in steps()) {
            for transfer in BOTH {
                let content = decode(transfer, &wire_of(transfer, &steps));
                prop_assert_eq!(std::str::from_utf8(&content).unwrap(), &naive_content(&steps));
                prop_assert_eq!(interpret(&content), expected(&steps));
            }
        }

        #[test]
        fn a_payload_is_one_line_of_data(json in prop::collection::vec(any::<u8>(), 0..200)) {
            let payload = payload(&json);
            prop_assert_eq!(payload.iter().filter(|&&byte| byte == b'\n').count(), 3);
            prop_assert!(!payload.contains(&b'\r'));
            prop_assert_eq!(payload.len(), json.len() + 23);
        }

        #[test]
        fn chunk_sizes_are_those_of_the_formatter(len in 1usize..) {
            let line = chunk_start(len);
            let naive = format!("{len:x}\r\n");
            prop_assert_eq!(line.as_slice(), naive.as_bytes());
        }
    }

    #[test]
    fn the_longest_frames_fit() {
        let frame = priming(Transfer::Chunked, LONGEST, u64::MAX);
        assert!(frame.as_slice().ends_with(b"retry: 18446744073709551615\ndata:\n\n\r\n"));
        let (before, after) = event(Transfer::Chunked, Some(LONGEST), usize::MAX - ID_LINE_LEN_MAX);
        assert!(before.as_slice().starts_with(b"ffffffffffffffff\r\nid: 777777-r"));
        assert_eq!(after, b"\r\n");
    }

    #[test]
    fn static_frames_are_what_clients_expect() {
        assert_eq!(comment(Transfer::CloseDelimited), b": keepalive\n\n");
        assert_eq!(opening(Transfer::CloseDelimited), b": ok\n\n");
        assert_eq!(last_chunk(Transfer::CloseDelimited), b"");
        assert_eq!(decode_chunks(b"0\r\n\r\nrest").1, b"rest");
        for frame in [comment, opening] {
            let wire = [frame(Transfer::Chunked), last_chunk(Transfer::Chunked)].concat();
            assert_eq!(decode(Transfer::Chunked, &wire), frame(Transfer::CloseDelimited));
        }
    }

    #[test]
    fn a_close_delimited_event_without_an_id_is_its_payload() {
        let (before, after) = event(Transfer::CloseDelimited, None, 23);
        assert!(before.as_slice().is_empty() && after.is_empty());
    }
}
