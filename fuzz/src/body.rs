//! Bodies.
//!
//! Rules: the result does not depend on how the bytes were cut, agrees with a naive decoder, stays within the limit, and
//! leaves what follows exactly as it was.

use super::Choices;
use bytes::BytesMut;
use moorline::core::http::{Decoder, Framing, Progress, Status};

const BODY_BYTES_MAX: u64 = 600;

/// The first byte chooses the framing, the second how the rest is cut into reads.
pub fn check(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let framing = match choices.byte() {
        byte @ 0..64 => Framing::Length(u64::from(byte) * 12),
        _ => Framing::Chunked,
    };
    let read_bytes = usize::from(choices.byte()).max(1);
    let rest = choices.rest();
    let whole = decode(framing, rest, rest.len().max(1));
    assert_eq!(whole, decode(framing, rest, read_bytes), "the reads change the result");
    assert_eq!(whole, decode(framing, rest, 1), "the reads change the result");
    assert_eq!(outcome(&whole), skip(framing, rest), "skipping sees another end than decoding");
    if let Outcome::Done { body, left } = &whole {
        assert!(body.len() as u64 <= BODY_BYTES_MAX, "longer than a body may be");
        assert!(rest.ends_with(left), "what follows is intact");
        let naive = match framing {
            Framing::Chunked => naive_chunks(rest).expect("a naive reader accepts it, too"),
            Framing::Length(_) | Framing::None => {
                let (body, left) = rest.split_at(rest.len() - left.len());
                (body.to_vec(), left.to_vec())
            }
        };
        assert_eq!((body.clone(), left.clone()), naive);
    }
}

/// Bodies that reach deep, each behind the two bytes that say how it is read.
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = [
        &b"\xff\x035\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"[..],
        b"\xff\x07a;name=value;other=\"x\"\r\n0123456789\r\n1\r\nz\r\n00\r\nTrailer: x\r\n\r\nPOST",
        b"\xff\x01fffffffffffffff0\r\n",
        b"\xff\x02258\r\n",
        b"\x02\x04the body of 24 bytes ....GET /smuggled HTTP/1.1\r\n\r\n",
        b"\x00\x01GET / HTTP/1.1\r\n\r\n",
    ];
    let of_corpus = super::corpus().into_iter().filter_map(|case| {
        let body = case.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        (case.len() > body).then(|| [b"\xff\x05", &case[body..]].concat())
    });
    plain.into_iter().map(<[u8]>::to_vec).chain(of_corpus).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    NeedMore,
    Done { body: Vec<u8>, left: Vec<u8> },
    Refused(Status),
}

/// What skipping can know.
#[derive(Debug, PartialEq, Eq)]
enum End {
    NeedMore,
    Done { left_bytes: usize },
    Refused(Status),
}

fn outcome(whole: &Outcome) -> End {
    match whole {
        Outcome::NeedMore => End::NeedMore,
        Outcome::Done { left, .. } => End::Done { left_bytes: left.len() },
        Outcome::Refused(status) => End::Refused(*status),
    }
}

fn decode(framing: Framing, bytes: &[u8], read_bytes: usize) -> Outcome {
    let mut decoder = match Decoder::new(framing, BODY_BYTES_MAX) {
        Ok(decoder) => decoder,
        Err(refusal) => return Outcome::Refused(refusal.status),
    };
    let (mut input, mut body, mut read) = (BytesMut::new(), BytesMut::new(), 0);
    loop {
        match decoder.decode(&mut input, &mut body) {
            Ok(Progress::Done) => {
                let left = [&input[..], &bytes[read..]].concat();
                return Outcome::Done { body: body.to_vec(), left };
            }
            Err(refusal) => return Outcome::Refused(refusal.status),
            Ok(Progress::NeedMore) if read == bytes.len() => return Outcome::NeedMore,
            Ok(Progress::NeedMore) => {
                let end = (read + read_bytes).min(bytes.len());
                input.extend_from_slice(&bytes[read..end]);
                read = end;
            }
        }
    }
}

fn skip(framing: Framing, bytes: &[u8]) -> End {
    let mut input = BytesMut::from(bytes);
    match Decoder::new(framing, BODY_BYTES_MAX).and_then(|mut decoder| decoder.skip(&mut input)) {
        Ok(Progress::Done) => End::Done { left_bytes: input.len() },
        Ok(Progress::NeedMore) => End::NeedMore,
        Err(refusal) => End::Refused(refusal.status),
    }
}

/// Chunks as RFC 9112 section 7.1 draws them, read line by line.
fn naive_chunks(mut rest: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let (line, after) = naive_line(rest)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            rest = after;
            break;
        }
        body.extend_from_slice(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, after) = naive_line(rest)?;
        rest = after;
        if line.is_empty() {
            return Some((body, rest.to_vec()));
        }
    }
}

fn naive_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}
