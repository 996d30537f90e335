//! The values of single header fields: lists, media types, what a client accepts and sends.
//!
//! Lenient where HTTP asks for it (parameters, case, order, unknown elements), never where a message
//! boundary depends on it: that is [`framing`](super::framing). Allocates nothing but decoded text; linear in the value.

use super::Refusal;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::borrow::Cow;

/// What the client's `Accept` leaves of the two forms of reply (RFC 9110 section 12.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// No `Accept`, or it allows both.
    Both,
    /// Only `application/json`.
    JsonOnly,
    /// Only `text/event-stream`.
    SseOnly,
    /// Neither: 406.
    Neither,
}

/// The forms a reply to a POST may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// As the server likes.
    Both,
    /// `application/json`
    JsonOnly,
    /// `text/event-stream`
    SseOnly,
}

impl Accept {
    /// The forms for a reply to a POST, or 406.
    pub fn forms(self) -> Result<Forms, Refusal> {
        match self {
            Accept::Both => Ok(Forms::Both),
            Accept::JsonOnly => Ok(Forms::JsonOnly),
            Accept::SseOnly => Ok(Forms::SseOnly),
            Accept::Neither => Err(Refusal::not_acceptable(
                "Accept must allow application/json or text/event-stream, best both",
            )),
        }
    }

    /// 406 unless a stream may be sent: what a GET asks for.
    pub fn stream(self) -> Result<(), Refusal> {
        match self {
            Accept::Both | Accept::SseOnly => Ok(()),
            Accept::JsonOnly | Accept::Neither => {
                Err(Refusal::not_acceptable("Accept must allow text/event-stream on GET"))
            }
        }
    }
}

/// The media type of a request's body, parameters ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`
    Json,
    /// None named.
    Absent,
    /// Anything else.
    Other,
}

impl ContentType {
    /// Parses a `Content-Type` value.
    pub(crate) fn parse(value: &[u8]) -> Self {
        const JSON: &[u8] = b"application/json";
        let is_json = value == JSON || media_type(value).eq_ignore_ascii_case(JSON);
        if is_json { ContentType::Json } else { ContentType::Other }
    }
}

/// The `Content-Encoding` of a request's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// None, or `identity`.
    #[default]
    Identity,
    /// Anything else: 415.
    Unsupported,
}

impl Coding {
    /// This coding with those of one more `Content-Encoding` field.
    pub(crate) fn and(self, value: &[u8]) -> Self {
        let plain = elements(value).all(|coding| coding.eq_ignore_ascii_case(b"identity"));
        match self {
            Coding::Identity if plain => Coding::Identity,
            Coding::Identity | Coding::Unsupported => Coding::Unsupported,
        }
    }
}

/// What nearly every client of this protocol sends: known without being taken apart.
const USUAL_ACCEPT: &[u8] = b"application/json, text/event-stream";

/// Gathers all `Accept` fields of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcceptFields {
    ranges: Ranges,
    json: Preference,
    sse: Preference,
}

/// Whether any media range was seen.
#[derive(Clone, Copy, Debug, Default)]
enum Ranges {
    #[default]
    Absent,
    Present,
}

/// What the most specific range so far says about one media type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    specificity: Specificity,
    verdict: Verdict,
}

/// How closely a range names a type, the loosest first (RFC 9110 section 12.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    #[default]
    Unnamed,
    Anything,
    Family,
    Exact,
}

/// Whether a range has a weight above zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    #[default]
    Refused,
    Accepted,
}

impl AcceptFields {
    /// Takes one `Accept` value.
    pub(crate) fn take(&mut self, value: &[u8]) {
        if value == USUAL_ACCEPT {
            let exact = Preference { specificity: Specificity::Exact, verdict: Verdict::Accepted };
            *self = AcceptFields {
                ranges: Ranges::Present,
                json: self.json.max(exact),
                sse: self.sse.max(exact),
            };
            return;
        }
        for range in elements(value) {
            self.ranges = Ranges::Present;
            let (essence, verdict) = (media_type(range), weight(range));
            self.json = self.json.max(Preference::of(essence, verdict, b"application", b"json"));
            self.sse = self.sse.max(Preference::of(essence, verdict, b"text", b"event-stream"));
        }
    }

    /// What is left of the two forms.
    pub(crate) fn resolve(self) -> Accept {
        match (self.ranges, self.json.verdict, self.sse.verdict) {
            (Ranges::Absent, ..) | (_, Verdict::Accepted, Verdict::Accepted) => Accept::Both,
            (_, Verdict::Accepted, Verdict::Refused) => Accept::JsonOnly,
            (_, Verdict::Refused, Verdict::Accepted) => Accept::SseOnly,
            (_, Verdict::Refused, Verdict::Refused) => Accept::Neither,
        }
    }
}

impl Preference {
    /// What the range `essence` says about the type `family`/`kind`.
    fn of(essence: &[u8], verdict: Verdict, family: &[u8], kind: &[u8]) -> Preference {
        let Some(slash) = memchr::memchr(b'/', essence) else { return Preference::default() };
        let (range_family, range_kind) = (&essence[..slash], &essence[slash + 1..]);
        let specificity = match () {
            () if range_family == b"*" && range_kind == b"*" => Specificity::Anything,
            () if !range_family.eq_ignore_ascii_case(family) => Specificity::Unnamed,
            () if range_kind == b"*" => Specificity::Family,
            () if range_kind.eq_ignore_ascii_case(kind) => Specificity::Exact,
            () => Specificity::Unnamed,
        };
        match specificity {
            Specificity::Unnamed => Preference::default(),
            Specificity::Anything | Specificity::Family | Specificity::Exact => {
                Preference { specificity, verdict }
            }
        }
    }
}

/// The verdict of a range's `q` parameter: only a well-formed zero refuses.
fn weight(range: &[u8]) -> Verdict {
    let zero = split_outside_quotes(range, b';').skip(1).map(trim).any(|parameter| match parameter {
        [b'q' | b'Q', b'=', b'0', rest @ ..] => {
            matches!(rest, [] | [b'.', ..]) && rest.iter().skip(1).all(|&digit| digit == b'0')
        }
        _ => false,
    });
    if zero { Verdict::Refused } else { Verdict::Accepted }
}

/// A media type or range without its parameters.
fn media_type(value: &[u8]) -> &[u8] {
    trim(split_outside_quotes(value, b';').next().unwrap_or_default())
}

/// The elements of a comma-separated list without surrounding white space; empty ones are left out
/// (RFC 9110 section 5.6.1).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_outside_quotes(value, b',').map(trim).filter(|element| !element.is_empty())
}

/// Splits at `separator`, but not inside a quoted string.
fn split_outside_quotes(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut from = 0;
        while let Some(at) = memchr::memchr2(separator, b'"', &text[from..]).map(|offset| from + offset) {
            if text[at] == separator {
                rest = Some(&text[at + 1..]);
                return Some(&text[..at]);
            }
            from = after_quoted_string(text, at + 1);
        }
        rest = None;
        Some(text)
    })
}

/// Where the quoted string whose content starts at `from` is over; the end of `text` if it never closes.
fn after_quoted_string(text: &[u8], mut from: usize) -> usize {
    while let Some(at) =
        text[from..].iter().position(|&byte| byte == b'"' || byte == b'\\').map(|it| from + it)
    {
        if text[at] == b'"' {
            return at + 1;
        }
        from = (at + 2).min(text.len());
    }
    text.len()
}

/// The text that the value of `Mcp-Name` or `Mcp-Param-*` stands for: itself, or what is between `=?base64?` and `?=`. `None`
/// if it is neither printable ASCII nor canonical base64 of UTF-8 ("Streamable HTTP", "Value encoding").
pub fn decode_text(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"=?base64?").and_then(|rest| rest.strip_suffix(b"?="));
    match inner {
        Some(base64) => String::from_utf8(STANDARD.decode(base64).ok()?).ok().map(Cow::Owned),
        None => {
            let is_plain = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
            is_plain.then(|| std::str::from_utf8(value).ok().map(Cow::Borrowed)).flatten()
        }
    }
}

/// Without optional white space, which is spaces and tabs only (RFC 9110 section 5.6.3).
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether `text` is a `token` (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// `tchar`
pub(crate) fn is_token_byte(byte: u8) -> bool {
    static TOKEN: ByteSet = ByteSet::alphanumeric_and(b"!#$%&'*+-.^_`|~");
    TOKEN.contains(byte)
}

/// A set of bytes with constant-time look-up.
pub(crate) struct ByteSet([bool; 256]);

impl ByteSet {
    /// ASCII letters, digits, and `others`.
    pub(crate) const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut members = [false; 256];
        let mut byte = 0u8;
        while byte < 0x80 {
            members[byte as usize] = byte.is_ascii_alphanumeric();
            byte += 1;
        }
        let mut index = 0;
        while index < others.len() {
            members[others[index] as usize] = true;
            index += 1;
        }
        ByteSet(members)
    }

    /// Whether `byte` is a member.
    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(values: &[&str]) -> Accept {
        let mut fields = AcceptFields::default();
        values.iter().for_each(|value| fields.take(value.as_bytes()));
        fields.resolve()
    }

    #[test]
    fn what_accept_leaves() {
        for (values, expected) in [
            (&[][..], Accept::Both),
            (&[""], Accept::Both),
            (&["application/json, text/event-stream"], Accept::Both),
            (&["application/json", "text/event-stream"], Accept::Both),
            (&["application/json, text/event-stream", "*/*;q=0"], Accept::Both),
            (&["application/json;q=0", "application/json, text/event-stream"], Accept::Both),
            (&["application/json, text/event-stream", "text/event-stream;q=0"], Accept::Both),
            (&["application/json, text/event-streams"], Accept::JsonOnly),
            (&["APPLICATION/JSON;charset=utf-8 , Text/Event-Stream"], Accept::Both),
            (&["*/*"], Accept::Both),
            (&["application/*, text/*"], Accept::Both),
            (&["application/json"], Accept::JsonOnly),
            (&["application/*"], Accept::JsonOnly),
            (&["text/event-stream"], Accept::SseOnly),
            (&["text/*;q=0.1"], Accept::SseOnly),
            (&["*/*, application/json;q=0"], Accept::SseOnly),
            (&["application/json;q=0, */*"], Accept::SseOnly),
            (&["*/*;q=0, application/json"], Accept::JsonOnly),
            (&["text/*, text/event-stream; q=0.000, */*"], Accept::JsonOnly),
            (&["*/*;q=0"], Accept::Neither),
            (&["text/html, image/png"], Accept::Neither),
            (&["application/jsonx"], Accept::Neither),
            (&["json"], Accept::Neither),
            (&["application/json;q=0.001"], Accept::JsonOnly),
            (&["application/json;a=\"x,text/event-stream;q=0\""], Accept::JsonOnly),
            (&["application/json;q=zero"], Accept::JsonOnly),
        ] {
            assert_eq!(accept(values), expected, "{values:?}");
        }
    }

    #[test]
    fn content_types() {
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/json;"] {
            assert_eq!(ContentType::parse(json.as_bytes()), ContentType::Json, "{json}");
        }
        for other in ["", "text/plain", "application/jsonl", "application/json+x", "application / json"] {
            assert_eq!(ContentType::parse(other.as_bytes()), ContentType::Other, "{other}");
        }
    }

    #[test]
    fn content_codings() {
        assert_eq!(Coding::default().and(b"identity").and(b" Identity , identity"), Coding::Identity);
        assert_eq!(Coding::default().and(b"gzip"), Coding::Unsupported);
        assert_eq!(Coding::default().and(b"gzip").and(b"identity"), Coding::Unsupported);
    }

    #[test]
    fn lists() {
        let list = |text: &'static str| elements(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(list("a, b ,\t,c"), [b"a", b"b", b"c"]);
        assert_eq!(list(r#""a,\"b", c"#), [&br#""a,\"b""#[..], b"c"]);
        assert!(list(" , ").is_empty());
        assert_eq!(list(r#""a, b"#), [&br#""a, b"#[..]]);
        assert_eq!(list("\"a\\"), [b"\"a\\"]);
    }

    #[test]
    fn field_values_are_plain_or_canonical_base64_of_utf8() {
        for (value, text) in [
            ("echo", Some("echo")),
            ("a b", Some("a b")),
            ("", Some("")),
            ("=?base64?SGVsbG8=?=", Some("Hello")),
            ("=?base64?w6k=?=", Some("é")),
            ("=?base64??=", Some("")),
            ("SGVsbG8=", Some("SGVsbG8=")),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")),
            ("=?BASE64?SGVsbG8=?=", Some("=?BASE64?SGVsbG8=?=")),
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?SGVsbG9=?=", None),
            ("=?base64?/w==?=", None),
            ("é", None),
            ("a\u{1}", None),
            ("=?base64?=", Some("=?base64?=")),
        ] {
            assert_eq!(decode_text(value.as_bytes()).as_deref(), text, "{value}");
        }
    }
}
