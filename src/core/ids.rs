//! Names that travel: session ids, event ids, and the generations behind every key of a shard.
//!
//! Owns the text forms and their parsers. Every id has exactly one spelling, so that an id a client sends
//! back equals the one it was given or is refused. Nothing here allocates, and nothing here draws randomness:
//! secrets and tags are made from bytes the caller passes in.
//!
//! A session id locates its session by index and proves itself by its secret, so that look-up needs no hash
//! table. It is a credential: it has no `Display`, its `Debug` hides the secret, and it is compared in
//! constant time. An event id is no credential; its tag only keeps the cursors of different sessions apart.

use super::seam::{Generation, Inline, ShardId};
use crate::limits;
use std::{fmt, hint::black_box, num::NonZeroU64};

// --- Session ids --------------------------------------------------------------------------------

/// What a client presents as `Mcp-Session-Id`: visible ASCII (Streamable HTTP, "Session Management").
///
/// Not comparable with `==`: find the session at `slot` of `shard`, then ask [`matches`](Self::matches).
#[derive(Clone, Copy)]
pub struct SessionId {
    /// The shard that owns the session, below [`SHARDS_MAX`](limits::SHARDS_MAX). A parsed id may name a
    /// shard this process does not have.
    pub shard: ShardId,
    /// Where it stands in that shard's slab of sessions.
    pub slot: u32,
    /// 128 random bits.
    pub secret: u128,
}

const SHARD_DIGITS: usize = 2;
const SLOT_DIGITS: usize = 8;
const SECRET_DIGITS: usize = 32;
const SLOT_START: usize = SHARD_DIGITS;
const SECRET_START: usize = SLOT_START + SLOT_DIGITS;

const _: () = assert!(limits::SHARDS_MAX <= 1 << (4 * SHARD_DIGITS), "a session id can name every shard");

impl SessionId {
    /// Length of the text form in bytes.
    pub const LEN: usize = SHARD_DIGITS + SLOT_DIGITS + SECRET_DIGITS;

    /// Reads the text form: exactly [`LEN`](Self::LEN) lower-case hexadecimal digits. Anything else was never
    /// issued.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; Self::LEN] = text.try_into().ok()?;
        let shard = parse_hex(&text[..SLOT_START])?;
        let slot = parse_hex(&text[SLOT_START..SECRET_START])?;
        let secret = parse_hex(&text[SECRET_START..])?;
        Some(SessionId {
            shard: ShardId(u16::try_from(shard).ok()?),
            slot: u32::try_from(slot).ok()?,
            secret,
        })
    }

    /// The text form.
    ///
    /// # Panics
    /// If the shard is not below [`SHARDS_MAX`](limits::SHARDS_MAX): no process has such a shard.
    pub fn encode(&self) -> [u8; Self::LEN] {
        assert!(usize::from(self.shard.0) < limits::SHARDS_MAX, "a shard's index is below SHARDS_MAX");
        let mut text = [0; Self::LEN];
        write_hex(&mut text[..SLOT_START], self.shard.0.into());
        write_hex(&mut text[SLOT_START..SECRET_START], self.slot.into());
        write_hex(&mut text[SECRET_START..], self.secret);
        text
    }

    /// Whether `secret` is this id's, in a time that does not depend on how much of it is right.
    pub fn matches(&self, secret: u128) -> bool {
        // Hidden from the optimiser, or it might compare half by half and stop at the first difference.
        black_box(self.secret ^ secret) == 0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionId")
            .field("shard", &self.shard.0)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

// --- Event ids ----------------------------------------------------------------------------------

/// Tells the event ids of one session from another's: 30 random bits, written as six characters of `a-z2-7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(u32);

impl Tag {
    /// Length of the text form in bytes.
    pub const LEN: usize = 6;

    /// The tag of these random bits; the top two are not used.
    pub const fn new(random: u32) -> Self {
        Tag(random & (u32::MAX >> 2))
    }

    fn encode(self) -> [u8; Tag::LEN] {
        let mut rest = self.0;
        let mut text = [0; Tag::LEN];
        for character in text.iter_mut().rev() {
            *character = TAG_ALPHABET[(rest % 32) as usize];
            rest /= 32;
        }
        text
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; Tag::LEN] = text.try_into().ok()?;
        text.iter().try_fold(0, |bits, &character| Some(bits << 5 | tag_digit(character)?)).map(Tag)
    }
}

/// Which of a session's streams an event id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Opened by a GET: letter `l`.
    Listener,
    /// Opened by a POST: letter `r`.
    Request,
}

impl StreamKind {
    fn letter(self) -> u8 {
        match self {
            StreamKind::Listener => b'l',
            StreamKind::Request => b'r',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'l' => Some(StreamKind::Listener),
            b'r' => Some(StreamKind::Request),
            _ => None,
        }
    }
}

/// The `id` of an SSE event and, coming back in `Last-Event-ID`, a cursor: `<tag>-<kind><stream>-<n>`.
///
/// It is unique within the session (2025-11-25, "Resumability and Redelivery") and safe in a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// The session's.
    pub tag: Tag,
    /// What kind of stream.
    pub kind: StreamKind,
    /// The stream's number in its session.
    pub stream: u32,
    /// From 1 in each stream; 0 is its priming event.
    pub sequence: u32,
}

impl EventId {
    /// The longest text form in bytes: tag, kind letter, two numbers of ten digits, two dashes.
    pub const LEN_MAX: usize = Tag::LEN + 1 + 1 + 10 + 1 + 10;

    /// Reads the text form. `None` for anything this program would not have written.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (tag, rest) = text.split_at_checked(Tag::LEN)?;
        let (&kind, numbers) = rest.strip_prefix(b"-")?.split_first()?;
        let dash = numbers.iter().position(|&byte| byte == b'-')?;
        Some(EventId {
            tag: Tag::parse(tag)?,
            kind: StreamKind::from_letter(kind)?,
            stream: parse_decimal(&numbers[..dash])?,
            sequence: parse_decimal(&numbers[dash + 1..])?,
        })
    }

    /// Appends the text form, at most [`LEN_MAX`](Self::LEN_MAX) bytes.
    pub fn push_to(&self, out: &mut Inline) {
        out.push(&self.tag.encode());
        out.push(&[b'-', self.kind.letter()]);
        out.push(itoa::Buffer::new().format(self.stream).as_bytes());
        out.push(b"-");
        out.push(itoa::Buffer::new().format(self.sequence).as_bytes());
    }
}

// --- Generations --------------------------------------------------------------------------------

/// Where a shard's [`Generation`]s come from: 1, 2, 3, … Sixty-four bits do not wrap within any uptime, so a
/// key that outlived its slot's owner never fits the next one.
#[derive(Debug, Default)]
pub struct Generations {
    issued: u64,
}

impl Generations {
    /// A generation this shard has not used before.
    pub fn issue(&mut self) -> Generation {
        self.issued += 1;
        Generation(NonZeroU64::new(self.issued).expect("the counter starts at one and does not wrap"))
    }
}

// --- Digits -------------------------------------------------------------------------------------

const HEX_ALPHABET: &[u8; 16] = b"0123456789abcdef";
const TAG_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Fills `out` with the last `out.len()` digits of `value`.
fn write_hex(out: &mut [u8], mut value: u128) {
    for digit in out.iter_mut().rev() {
        *digit = HEX_ALPHABET[(value & 0xf) as usize];
        value >>= 4;
    }
}

/// The value of each lower-case hexadecimal digit; what is none has a value that no digit has.
static NIBBLES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        values[HEX_ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// Lower-case hexadecimal of at most 32 digits.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    let nibbles = digits.iter().map(|&digit| NIBBLES[usize::from(digit)]);
    let (value, all) =
        nibbles.fold((0, 0), |(value, all), nibble| (value << 4 | u128::from(nibble), all | nibble));
    (all < 16).then_some(value)
}

/// A decimal number as [`itoa`] writes it: no sign, no leading zero, no overflow.
fn parse_decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0u32, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn tag_digit(character: u8) -> Option<u32> {
    match character {
        b'a'..=b'z' => Some(u32::from(character - b'a')),
        b'2'..=b'7' => Some(u32::from(character - b'2') + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;
    use proptest::prelude::*;

    fn text_of(id: EventId) -> String {
        let mut out = Inline::new();
        id.push_to(&mut out);
        String::from_utf8(out.as_slice().to_vec()).unwrap()
    }

    #[test]
    fn a_session_id_is_written_as_shard_slot_secret() {
        let id = SessionId { shard: ShardId(0x0a), slot: 0x1234_5678, secret: 0xfedc };
        assert_eq!(&id.encode(), b"0a123456780000000000000000000000000000fedc");
        assert_eq!(SessionId::LEN, 42);
    }

    #[test]
    fn a_session_id_has_one_spelling() {
        let text = SessionId { shard: ShardId(255), slot: u32::MAX, secret: u128::MAX }.encode();
        assert!(SessionId::parse(&text).is_some());
        assert!(SessionId::parse(&text[1..]).is_none(), "too short");
        assert!(SessionId::parse(&[&text[..], b"f"].concat()).is_none(), "too long");
        assert!(SessionId::parse(&text.to_ascii_uppercase()).is_none(), "upper case");
        for position in 0..SessionId::LEN {
            for wrong in [b'g', b'+', b' ', b'F', b'/', b':', b'`', 0, 0xff] {
                let mut text = text;
                text[position] = wrong;
                assert!(SessionId::parse(&text).is_none(), "{wrong:#x} at {position}");
            }
        }
    }

    #[test]
    fn one_wrong_bit_of_a_secret_is_wrong() {
        let id = SessionId { shard: ShardId(0), slot: 0, secret: 0x5a5a << 64 | 0xa5 };
        assert!(id.matches(id.secret));
        assert!((0..128).all(|bit| !id.matches(id.secret ^ 1 << bit)));
    }

    #[test]
    fn debug_output_does_not_contain_the_secret() {
        let id = SessionId { shard: ShardId(3), slot: 9, secret: 0xdead_beef };
        assert_eq!(format!("{id:?}"), "SessionId { shard: 3, slot: 9, .. }");
    }

    #[test]
    fn event_ids_look_as_documented() {
        let id = EventId { tag: Tag::new(0), kind: StreamKind::Listener, stream: 0, sequence: 0 };
        assert_eq!(text_of(id), "aaaaaa-l0-0");
        let longest = EventId {
            tag: Tag::new(u32::MAX),
            kind: StreamKind::Request,
            stream: u32::MAX,
            sequence: u32::MAX,
        };
        assert_eq!(text_of(longest), "777777-r4294967295-4294967295");
        assert_eq!(text_of(longest).len(), EventId::LEN_MAX);
        assert_eq!(size_of::<Tag>(), 4);
    }

    #[test]
    fn malformed_event_ids_are_refused() {
        assert!(EventId::parse(b"abcdef-r7-12").is_some());
        for wrong in [
            "",
            "abcdef",
            "abcdef-",
            "abcdef-r",
            "abcdef-r7",
            "abcdef-r7-",
            "abcdef-r-1",
            "abcdef-r7-01",
            "abcdef-r07-1",
            "abcdef-r7-00",
            "abcdef-r7-+1",
            "abcdef-r7--1",
            "abcdef-r7-1-",
            "abcdef-r7-1 ",
            " abcdef-r7-1",
            "abcdef-R7-1",
            "abcdef-x7-1",
            "ABCDEF-r7-1",
            "abcde1-r7-1",
            "abcde-r7-1",
            "abcdefg-r7-1",
            "abcdef_r7-1",
            "abcdef-r4294967296-1",
            "abcdef-r7-4294967296",
            "abcdef-r7-99999999999999999999",
            "abcdef-r7-1\u{e9}",
        ] {
            assert_eq!(EventId::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn generations_never_repeat() {
        let mut generations = Generations::default();
        let first = generations.issue();
        assert_eq!(first.0.get(), 1);
        assert_ne!(first, generations.issue());
    }

    proptest! {
        #[test]
        fn session_ids_come_back(shard in 0..256u16, slot: u32, secret: u128) {
            let id = SessionId { shard: ShardId(shard), slot, secret };
            let text = id.encode();
            prop_assert!(text.iter().all(u8::is_ascii_graphic));
            let back = SessionId::parse(&text).unwrap();
            prop_assert_eq!((back.shard, back.slot, back.secret), (id.shard, slot, secret));
        }

        #[test]
        fn event_ids_come_back(bits: u32, listener: bool, stream: u32, sequence: u32) {
            let kind = if listener { StreamKind::Listener } else { StreamKind::Request };
            let id = EventId { tag: Tag::new(bits), kind, stream, sequence };
            prop_assert_eq!(EventId::parse(text_of(id).as_bytes()), Some(id));
        }

        /// Whatever is accepted is what would have been written: one spelling per id.
        #[test]
        fn accepted_event_ids_are_canonical(text in "[a-c2-3]{5,7}-?[lrx]?[0-9+-]{0,11}-[0-9]{0,11}") {
            if let Some(id) = EventId::parse(text.as_bytes()) {
                prop_assert_eq!(text_of(id), text);
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = SessionId::parse(&bytes);
            let _ = EventId::parse(&bytes);
        }
    }
}
