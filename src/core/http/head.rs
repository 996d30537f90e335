//! The head of a request: from bytes to a typed [`Head`] that borrows them (RFC 9112 sections 2 to 5).
//!
//! `httparse` knows the grammar; what a head means, and everything two HTTP implementations might read
//! differently, is decided here. Must never copy or allocate for a head it accepts, and never look beyond
//! the head's bound.
//!
//! Invariants: a refusal does not depend on how the bytes were cut into reads; a refused head always
//! closes, because nothing after it can be trusted to start a request. Parsing starts over with every
//! read, which is at worst quadratic in the head's bound of 16 KiB.

use super::{
    Accept, Authority, Coding, ContentType, Forms, Framing, Persistence, Refusal, Status,
    fields::{self, AcceptFields},
    framing::FramingFields,
    refusal::ALLOW_ENDPOINT,
};
use crate::limits;
use std::mem::MaybeUninit;

/// The bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Request line and fields together, in bytes; more is 431.
    pub bytes: usize,
    /// Header fields, at most [`limits::HEADERS_MAX`]; more is 431.
    pub headers: usize,
    /// Request target, in bytes; more is 414.
    pub target_bytes: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        HeadLimits {
            bytes: limits::HEAD_BYTES_MAX,
            headers: limits::HEADERS_MAX,
            target_bytes: limits::TARGET_BYTES_MAX,
        }
    }
}

/// The result of [`parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "taken apart at once where it is returned, never stored")]
pub enum Parsed<'a> {
    /// The head is not complete, and nothing is wrong with it yet.
    Incomplete,
    /// A head and the number of bytes up to its end, empty lines before it included.
    Complete {
        /// What it says.
        head: Head<'a>,
        /// Where the body starts.
        consumed: usize,
    },
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// What is to be done.
    pub method: Method,
    /// The client's version.
    pub version: Version,
    /// With what.
    pub target: Target<'a>,
    /// The authority of an absolute-form target, else `Host`; `None` only in HTTP/1.0 (RFC 9112 section 3.2).
    pub authority: Option<Authority<'a>>,
    /// Where the body ends.
    pub framing: Framing,
    /// What the client wants of the connection.
    pub persistence: Persistence,
    /// Whether the client waits before it sends the body.
    pub expect: Expect,
    /// `Origin`, unchecked.
    pub origin: Option<&'a [u8]>,
    /// `Accept`, resolved.
    pub accept: Accept,
    /// `Content-Type`.
    pub content_type: ContentType,
    /// `Content-Encoding`.
    pub content_encoding: Coding,
    /// `Authorization`, unchecked.
    pub authorization: Option<&'a [u8]>,
    /// `Mcp-Session-Id`, unchecked.
    pub session_id: Option<&'a [u8]>,
    /// `MCP-Protocol-Version`, unchecked.
    pub protocol_version: Option<&'a [u8]>,
    /// `Last-Event-ID`, unchecked; an empty one counts as absent.
    pub last_event_id: Option<&'a [u8]>,
    /// `Mcp-Method`, unchecked.
    pub mcp_method: Option<&'a [u8]>,
    /// `Mcp-Name`, unchecked.
    pub mcp_name: Option<&'a [u8]>,
    /// Whichever of these two is there more than once: only who goes by them has to refuse that.
    pub repeated_route: Option<&'static str>,
    /// `Access-Control-Request-Method`, the mark of a preflight.
    pub request_method: Option<&'a [u8]>,
    /// `Access-Control-Request-Headers`, unchecked.
    pub request_headers: Option<&'a [u8]>,
    /// The head itself.
    text: &'a [u8],
}

/// A request method this server knows (RFC 9110 section 9). CONNECT never gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are HTTP's")]
pub enum Method {
    Get,
    Head,
    Post,
    Delete,
    Options,
    /// PUT, PATCH or TRACE: known, and offered nowhere.
    Other,
}

/// A version of HTTP this server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// A request target (RFC 9112 section 3.2). Nothing is percent-decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Origin-form or absolute-form.
    Path {
        /// Starts with a slash.
        path: &'a str,
        /// What follows the first question mark.
        query: Option<&'a str>,
    },
    /// `*`, of OPTIONS only.
    Asterisk,
}

/// The client's `Expect` (RFC 9110 section 10.1.1). HTTP/1.0 has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    #[default]
    Nothing,
    /// `100-continue`: the body may come only after a 100.
    Continue,
    /// Something else: 417.
    Unknown,
}

/// Parses the head at the start of `buf`.
///
/// `buf` must be allowed to grow to `limits.bytes` and a few bytes for empty lines.
///
/// # Errors
/// Every [`Refusal`] closes: 400 for bad syntax or ambiguous framing, 405 for CONNECT, 414 and 431 for what
/// is too long (as soon as it is), 501 for unknown methods and codings, 505 for other versions.
pub fn parse<'a>(buf: &'a [u8], limits: &HeadLimits) -> Result<Parsed<'a>, Refusal> {
    let Some(start) = skip_empty_lines(buf)? else { return Ok(Parsed::Incomplete) };
    let window = &buf[start..buf.len().min(start.saturating_add(limits.bytes))];
    check_request_line(window, limits)?;
    let (readable, line_ends) = until_bare_line_feed(window);

    let mut slots = [const { MaybeUninit::uninit() }; limits::HEADERS_MAX];
    let slots = &mut slots[..limits.headers.min(limits::HEADERS_MAX)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(readable, slots) {
        Ok(httparse::Status::Complete(len)) => {
            let head = Draft::gather(request.headers)?.finish(&request, &window[..len])?;
            Ok(Parsed::Complete { head, consumed: start + len })
        }
        Ok(httparse::Status::Partial) => match line_ends {
            LineEnds::BareLineFeed => Err(Refusal::malformed("lines of a head end with CR LF")),
            LineEnds::Strict if window.len() >= limits.bytes => Err(head_too_large()),
            LineEnds::Strict => Ok(Parsed::Incomplete),
        },
        Err(error) => Err(refuse_syntax(error, window)),
    }
}

impl<'a> Head<'a> {
    /// What follows `Mcp-Param-` in the names of such fields, and their values without the white space around, as
    /// they come. Reads the head once more: few requests have them.
    pub fn parameter_fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        const PREFIX: &[u8] = b"mcp-param-";
        self.text.split(|&byte| byte == b'\n').skip(1).filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let (prefix, name) = line[..colon].split_at_checked(PREFIX.len())?;
            let is_one = prefix.eq_ignore_ascii_case(PREFIX) && !name.is_empty();
            let value = line[colon + 1..].strip_suffix(b"\r").unwrap_or(&line[colon + 1..]);
            is_one.then(|| (name, fields::trim(value)))
        })
    }

    /// What a POST must bring before its body is worth reading: a known expectation (417), JSON (415)
    /// without coding (415), and a form of reply it accepts (406).
    pub fn admit_post(&self) -> Result<Forms, Refusal> {
        self.admit_json()?;
        self.accept.forms()
    }

    /// The same for a POST whose reply says nothing.
    pub fn admit_json(&self) -> Result<(), Refusal> {
        self.admit_expectation()?;
        if self.content_encoding == Coding::Unsupported {
            return Err(Refusal::unsupported_media("request bodies must come without Content-Encoding"));
        }
        match self.content_type {
            ContentType::Json => Ok(()),
            ContentType::Absent | ContentType::Other => {
                Err(Refusal::unsupported_media("Content-Type must be application/json"))
            }
        }
    }

    /// 417 unless the expectation is one this server can meet.
    pub fn admit_expectation(&self) -> Result<(), Refusal> {
        match self.expect {
            Expect::Nothing | Expect::Continue => Ok(()),
            Expect::Unknown => {
                Err(Refusal::new(Status::ExpectationFailed, "the only known expectation is 100-continue"))
            }
        }
    }
}

// --- Before the grammar -------------------------------------------------------------------------

/// The longest method that is looked at; the longest registered one has 17 letters.
const METHOD_BYTES_MAX: usize = 32;

/// Where the request line starts: after a few empty lines (RFC 9112 section 2.2). `None`: not known yet.
fn skip_empty_lines(buf: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut start = 0;
    for _ in 0..=limits::LEADING_EMPTY_LINES_MAX {
        match &buf[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => start += 2,
            _ => return Ok(Some(start)),
        }
    }
    Err(Refusal::malformed("too many empty lines before a request"))
}

/// Refuses a method or target that is too long as soon as it is (RFC 9112 section 3). Bytes that do not
/// belong there are left to the grammar, which meets them first.
fn check_request_line(window: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
    let method_len = window.iter().take_while(|&&byte| fields::is_token_byte(byte)).count();
    if method_len > METHOD_BYTES_MAX {
        return Err(unknown_method());
    }
    if method_len == 0 {
        return Ok(());
    }
    let Some((b' ', target)) = window[method_len..].split_first() else { return Ok(()) };
    let target_len =
        target.iter().take(limits.target_bytes + 1).take_while(|&&byte| byte > b' ' && byte != 0x7f).count();
    if target_len > limits.target_bytes {
        let message = format!("the request target is over the limit of {} bytes", limits.target_bytes);
        return Err(Refusal::new(Status::UriTooLong, message).closing());
    }
    Ok(())
}

/// Whether the lines of a head seen so far end as they must.
enum LineEnds {
    Strict,
    BareLineFeed,
}

/// The head up to a line feed without carriage return, which the grammar would let pass. Anything that is
/// wrong before it is found first, whatever follows it.
fn until_bare_line_feed(window: &[u8]) -> (&[u8], LineEnds) {
    let mut line_start = 0;
    for end in memchr::memchr_iter(b'\n', window) {
        match &window[line_start..end] {
            [b'\r'] => break,
            [.., b'\r'] => line_start = end + 1,
            _ => return (&window[..end], LineEnds::BareLineFeed),
        }
    }
    (window, LineEnds::Strict)
}

/// What the grammar objects to.
fn refuse_syntax(error: httparse::Error, window: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => head_too_large(),
        httparse::Error::Version => refuse_version(window),
        httparse::Error::HeaderName => Refusal::malformed("a header field name is malformed"),
        httparse::Error::HeaderValue => Refusal::malformed("a header field value is malformed"),
        httparse::Error::NewLine => Refusal::malformed("a line of the head does not end with CR LF"),
        httparse::Error::Token | httparse::Error::Status => {
            Refusal::malformed("the request line is malformed")
        }
    }
}

/// 505 for another version of HTTP, such as the preface of HTTP/2; 400 for what is none.
fn refuse_version(window: &[u8]) -> Refusal {
    let version = window.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    match version.strip_prefix(b"HTTP/") {
        Some([b'0'..=b'9', ..]) => {
            Refusal::new(Status::VersionNotSupported, "this server speaks HTTP/1.1").closing()
        }
        _ => Refusal::malformed("the request line is malformed"),
    }
}

fn head_too_large() -> Refusal {
    Refusal::new(Status::HeaderFieldsTooLarge, "the request's header fields are too large or too many")
        .closing()
}

fn unknown_method() -> Refusal {
    Refusal::new(Status::NotImplemented, "this request method is unknown").closing()
}

// --- After the grammar --------------------------------------------------------------------------

/// The fields of a head as they come.
#[derive(Default)]
struct Draft<'a> {
    host: Option<&'a [u8]>,
    framing: FramingFields,
    connection: ConnectionOptions,
    expect: Expect,
    accept: AcceptFields,
    content_type: Option<&'a [u8]>,
    content_encoding: Coding,
    origin: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    session_id: Option<&'a [u8]>,
    protocol_version: Option<&'a [u8]>,
    last_event_id: Option<&'a [u8]>,
    mcp_method: Option<&'a [u8]>,
    mcp_name: Option<&'a [u8]>,
    repeated_route: Option<&'static str>,
    request_method: Option<&'a [u8]>,
    request_headers: Option<&'a [u8]>,
}

/// The options of all `Connection` fields that mean something to the last recipient. Fields named there
/// are addressed to us, the next hop, so nothing is dropped: dropping is for those who forward.
#[derive(Clone, Copy, Default)]
enum ConnectionOptions {
    #[default]
    Unsaid,
    KeepAlive,
    Close,
}

/// A field that means something to this server.
#[derive(Clone, Copy)]
enum Field {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Expect,
    Accept,
    ContentEncoding,
    ContentType,
    Origin,
    Authorization,
    SessionId,
    ProtocolVersion,
    LastEventId,
    McpMethod,
    McpName,
    RequestMethod,
    RequestHeaders,
}

impl Field {
    /// The field of that name in any case, if it means something. Lengths tell most of them apart.
    fn of(name: &str) -> Option<Field> {
        let name = name.as_bytes();
        let field = match name.len() {
            4 if is_named(name, b"host") => Field::Host,
            6 if is_named(name, b"accept") => Field::Accept,
            6 if is_named(name, b"origin") => Field::Origin,
            6 if is_named(name, b"expect") => Field::Expect,
            8 if is_named(name, b"mcp-name") => Field::McpName,
            10 if is_named(name, b"connection") => Field::Connection,
            10 if is_named(name, b"mcp-method") => Field::McpMethod,
            12 if is_named(name, b"content-type") => Field::ContentType,
            13 if is_named(name, b"authorization") => Field::Authorization,
            13 if is_named(name, b"last-event-id") => Field::LastEventId,
            14 if is_named(name, b"content-length") => Field::ContentLength,
            14 if is_named(name, b"mcp-session-id") => Field::SessionId,
            16 if is_named(name, b"content-encoding") => Field::ContentEncoding,
            17 if is_named(name, b"transfer-encoding") => Field::TransferEncoding,
            20 if is_named(name, b"mcp-protocol-version") => Field::ProtocolVersion,
            29 if is_named(name, b"access-control-request-method") => Field::RequestMethod,
            30 if is_named(name, b"access-control-request-headers") => Field::RequestHeaders,
            _ => return None,
        };
        Some(field)
    }
}

/// Whether a field name is `known` in any case. `known` is of small letters and hyphens, and `name` is a token, in which
/// only a letter or hyphen becomes one of these by its case bit. Of a known length and without branches, so that it is done
/// many bytes at a time.
fn is_named<const LEN: usize>(name: &[u8], known: &[u8; LEN]) -> bool {
    <&[u8; LEN]>::try_from(name).is_ok_and(|name| {
        let differences = name.iter().zip(known).map(|(byte, known)| (byte | 0x20) ^ known);
        differences.fold(0, |any, difference| any | difference) == 0
    })
}

impl<'a> Draft<'a> {
    fn gather(headers: &[httparse::Header<'a>]) -> Result<Self, Refusal> {
        let mut draft = Draft::default();
        for header in headers {
            draft.take(header.name, fields::trim(header.value))?;
        }
        Ok(draft)
    }

    /// Takes one field. Those that must come once are refused when repeated, so that no two parties can
    /// disagree on which one counts.
    fn take(&mut self, name: &str, value: &'a [u8]) -> Result<(), Refusal> {
        let Some(field) = Field::of(name) else { return Ok(()) };
        match field {
            Field::ContentLength => self.framing.content_length(value)?,
            Field::TransferEncoding => self.framing.transfer_encoding(value),
            Field::Connection => self.connection = self.connection.and(value),
            Field::Expect => self.expect = self.expect.and(value),
            Field::Accept => self.accept.take(value),
            Field::ContentEncoding => self.content_encoding = self.content_encoding.and(value),
            Field::Host => once(&mut self.host, value, "Host")?,
            Field::ContentType => once(&mut self.content_type, value, "Content-Type")?,
            Field::Origin => once(&mut self.origin, value, "Origin")?,
            Field::Authorization => once(&mut self.authorization, value, "Authorization")?,
            Field::SessionId => once(&mut self.session_id, value, "Mcp-Session-Id")?,
            Field::ProtocolVersion => once(&mut self.protocol_version, value, "MCP-Protocol-Version")?,
            Field::LastEventId => once(&mut self.last_event_id, value, "Last-Event-ID")?,
            Field::McpMethod if self.mcp_method.replace(value).is_some() => {
                self.repeated_route = Some("Mcp-Method");
            }
            Field::McpName if self.mcp_name.replace(value).is_some() => {
                self.repeated_route = Some("Mcp-Name");
            }
            Field::McpMethod | Field::McpName => {}
            Field::RequestMethod => once(&mut self.request_method, value, "Access-Control-Request-Method")?,
            Field::RequestHeaders => {
                once(&mut self.request_headers, value, "Access-Control-Request-Headers")?
            }
        }
        Ok(())
    }

    /// Puts fields and request line together. Framing is judged first: what it refuses is a danger.
    fn finish(self, request: &httparse::Request<'_, 'a>, text: &'a [u8]) -> Result<Head<'a>, Refusal> {
        let version = match request.version {
            Some(0) => Version::Http10,
            _ => Version::Http11,
        };
        let framing = self.framing.decide(version)?;
        let host = parse_host(self.host, version)?;
        let method = parse_method(request.method.unwrap_or_default())?;
        let (target, authority) = parse_target(request.path.unwrap_or_default(), method)?;
        Ok(Head {
            method,
            version,
            target,
            authority: authority.or(host),
            framing,
            persistence: self.connection.persistence(version),
            expect: match version {
                Version::Http10 => Expect::Nothing,
                Version::Http11 => self.expect,
            },
            origin: self.origin,
            accept: self.accept.resolve(),
            content_type: self.content_type.map_or(ContentType::Absent, ContentType::parse),
            content_encoding: self.content_encoding,
            authorization: self.authorization,
            session_id: self.session_id,
            protocol_version: self.protocol_version,
            last_event_id: self.last_event_id.filter(|cursor| !cursor.is_empty()),
            mcp_method: self.mcp_method,
            mcp_name: self.mcp_name,
            repeated_route: self.repeated_route,
            request_method: self.request_method,
            request_headers: self.request_headers,
            text,
        })
    }
}

impl ConnectionOptions {
    fn and(self, value: &[u8]) -> Self {
        fields::elements(value).fold(self, |options, token| match options {
            _ if token.eq_ignore_ascii_case(b"close") => ConnectionOptions::Close,
            ConnectionOptions::Unsaid if token.eq_ignore_ascii_case(b"keep-alive") => {
                ConnectionOptions::KeepAlive
            }
            ConnectionOptions::Unsaid | ConnectionOptions::KeepAlive | ConnectionOptions::Close => options,
        })
    }

    /// RFC 9112 section 9.3.
    fn persistence(self, version: Version) -> Persistence {
        match (version, self) {
            (Version::Http11, ConnectionOptions::Unsaid) | (_, ConnectionOptions::KeepAlive) => {
                Persistence::Keep
            }
            (Version::Http10, ConnectionOptions::Unsaid) | (_, ConnectionOptions::Close) => {
                Persistence::Close
            }
        }
    }
}

impl Expect {
    fn and(self, value: &[u8]) -> Self {
        fields::elements(value).fold(self, |expect, expectation| match expect {
            Expect::Nothing | Expect::Continue if expectation.eq_ignore_ascii_case(b"100-continue") => {
                Expect::Continue
            }
            Expect::Nothing | Expect::Continue | Expect::Unknown => Expect::Unknown,
        })
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8], name: &str) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::malformed(format!("{name} must not be repeated"))),
    }
}

/// RFC 9112 section 3.2: exactly one in HTTP/1.1, at most one before, and well-formed.
fn parse_host(host: Option<&[u8]>, version: Version) -> Result<Option<Authority<'_>>, Refusal> {
    match (host, version) {
        (Some(host), _) => match Authority::parse(host) {
            Some(authority) => Ok(Some(authority)),
            None => Err(Refusal::malformed("Host is malformed")),
        },
        (None, Version::Http10) => Ok(None),
        (None, Version::Http11) => Err(Refusal::malformed("HTTP/1.1 needs a Host field")),
    }
}

/// The method of that name; methods are case-sensitive.
fn parse_method(name: &str) -> Result<Method, Refusal> {
    match name {
        "GET" => Ok(Method::Get),
        "HEAD" => Ok(Method::Head),
        "POST" => Ok(Method::Post),
        "DELETE" => Ok(Method::Delete),
        "OPTIONS" => Ok(Method::Options),
        "PUT" | "PATCH" | "TRACE" => Ok(Method::Other),
        // Its target is an authority and its body has no meaning: nothing to go on with.
        "CONNECT" => Err(Refusal::method_not_allowed(ALLOW_ENDPOINT).closing()),
        _ => Err(unknown_method()),
    }
}

/// The target, and the authority if it is in absolute-form.
fn parse_target(text: &str, method: Method) -> Result<(Target<'_>, Option<Authority<'_>>), Refusal> {
    let malformed = || Refusal::malformed("the request target is malformed");
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(malformed());
    }
    if text.starts_with('/') {
        return Ok((path(text), None));
    }
    if text == "*" {
        return if method == Method::Options { Ok((Target::Asterisk, None)) } else { Err(malformed()) };
    }
    let rest = strip_scheme(text).ok_or_else(malformed)?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority =
        Authority::parse(authority.as_bytes()).filter(|it| !it.host.is_empty()).ok_or_else(malformed)?;
    let target = match rest {
        "" if method == Method::Options => Target::Asterisk,
        "" => path("/"),
        _ => match rest.strip_prefix('?') {
            Some(query) => Target::Path { path: "/", query: Some(query) },
            None => path(rest),
        },
    };
    Ok((target, Some(authority)))
}

/// Splits a path from its query.
fn path(text: &str) -> Target<'_> {
    match text.split_once('?') {
        Some((path, query)) => Target::Path { path, query: Some(query) },
        None => Target::Path { path: text, query: None },
    }
}

/// What follows `http://` or `https://`.
fn strip_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")).then_some(rest)
}
