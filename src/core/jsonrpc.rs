//! JSON-RPC 2.0 envelopes, read from borrowed bytes and written back around values that are never parsed.
//!
//! Owns the shape of messages: which members there may be, which ids are legal, what is refused and how. It
//! knows no method, with two exceptions that the transport itself depends on: [`Meta`] and
//! [`InitializeParams`]. It never looks into `params`, `result` or `data` otherwise; they pass as
//! [`RawValue`], and ids come back byte for byte, as they were spelled.
//!
//! A body is checked in linear passes without recursion: UTF-8, then nesting, then the envelope. Apart from
//! the list of a batch nothing is allocated for a well-formed message whose method is spelled without
//! escapes. Members of the envelope may occur once: what two parsers could read differently is refused.

use super::seam::Revision;
use crate::limits;
use bytes::{BufMut, Bytes};
use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

// --- Errors -------------------------------------------------------------------------------------

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The code, e.g. -32602.
    pub code: i32,
    /// For a person.
    pub message: Cow<'static, str>,
    /// `data` as one JSON value, if any.
    pub data: Option<Box<str>>,
}

/// The body is not JSON (JSON-RPC 2.0 section 5.1, as are the next four).
pub const PARSE_ERROR: i32 = -32700;
/// JSON, but not a legal message here.
pub const INVALID_REQUEST: i32 = -32600;
/// A method that does not exist or is not offered.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// `params` are not what the method takes.
pub const INVALID_PARAMS: i32 = -32602;
/// Our own fault.
pub const INTERNAL_ERROR: i32 = -32603;

impl RpcError {
    fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        RpcError { code, message: message.into(), data: None }
    }

    /// The body is not JSON.
    pub fn parse_error(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(PARSE_ERROR, message)
    }

    /// JSON, but not a legal message here.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(INVALID_REQUEST, message)
    }

    /// The method does not exist; a long name is cut in the message.
    pub fn method_not_found(method: &str) -> Self {
        RpcError::new(METHOD_NOT_FOUND, format!("method not found: {}", excerpt(method)))
    }

    /// `params` are not what the method takes.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(INVALID_PARAMS, message)
    }

    /// Our own fault; the cause belongs into the log, not to the client.
    pub fn internal_error() -> Self {
        RpcError::new(INTERNAL_ERROR, "internal error")
    }

    /// Reads the `error` member of a response. `None` unless it has an integer `code` of 32 bits and a
    /// `message`.
    pub fn from_json(error: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire {
            code: i32,
            message: String,
            data: Option<Box<RawValue>>,
        }
        let Wire { code, message, data } = parse_object(error).ok()?;
        Some(RpcError { code, message: message.into(), data: data.map(Into::into) })
    }
}

/// Why a body, or one element of a batch, is not a message: what to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError<'a> {
    /// -32700 or -32600, and a message for a person.
    pub error: RpcError,
    /// The id to answer with, as written, if it was legal and the client's own.
    pub id: Option<&'a str>,
}

impl EnvelopeError<'_> {
    fn not_json(reason: impl fmt::Display) -> Self {
        EnvelopeError { error: RpcError::parse_error(format!("the body is not JSON: {reason}")), id: None }
    }

    fn not_a_message(reason: impl Into<Cow<'static, str>>) -> Self {
        EnvelopeError { error: RpcError::invalid_request(reason), id: None }
    }
}

// --- Reading ------------------------------------------------------------------------------------

/// What a POST carried.
#[derive(Debug)]
pub enum Body<'a> {
    /// One message.
    Single(Message<'a>),
    /// An array of 1 to [`BATCH_MESSAGES_MAX`](limits::BATCH_MESSAGES_MAX) elements, each judged alone.
    /// Whether arrays are allowed at all, and in which mixture, depends on the session's revision.
    Batch(Vec<Result<Message<'a>, EnvelopeError<'a>>>),
}

/// One JSON-RPC message, borrowed from the body.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// A string or an integer as written, at most [`ID_BYTES_MAX`](limits::ID_BYTES_MAX) bytes.
        id: &'a str,
        /// Borrowed unless it was spelled with escapes.
        method: Cow<'a, str>,
        /// An object or array.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// Borrowed unless it was spelled with escapes.
        method: Cow<'a, str>,
        /// An object or array.
        params: Option<&'a RawValue>,
    },
    /// Answers a request of the server.
    Response {
        /// The server's id as written; absent only in an error about something the client could not read.
        id: Option<&'a str>,
        /// `result`, or `error`, which is an object: see [`RpcError::from_json`].
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

/// Reads a body.
///
/// # Errors
/// -32700 if it is not UTF-8, not JSON, or nested deeper than [`JSON_DEPTH_MAX`](limits::JSON_DEPTH_MAX);
/// -32600 if it is JSON but no message, or a batch that is empty or too long.
pub fn parse(body: &[u8]) -> Result<Body<'_>, EnvelopeError<'_>> {
    let text = std::str::from_utf8(body).map_err(EnvelopeError::not_json)?;
    if is_too_deep(body) {
        let reason = format!("nested deeper than {} levels", limits::JSON_DEPTH_MAX);
        return Err(EnvelopeError::not_json(reason));
    }
    if starts_with(text, '[') {
        parse_batch(text).map(Body::Batch)
    } else {
        parse_message(text).map(Body::Single)
    }
}

fn parse_batch(text: &str) -> Result<Vec<Result<Message<'_>, EnvelopeError<'_>>>, EnvelopeError<'_>> {
    let Elements { first, count } = serde_json::from_str(text).map_err(EnvelopeError::not_json)?;
    if count == 0 {
        return Err(EnvelopeError::not_a_message("a batch holds at least one message"));
    }
    if count > limits::BATCH_MESSAGES_MAX {
        let reason = format!("a batch holds at most {} messages", limits::BATCH_MESSAGES_MAX);
        return Err(EnvelopeError::not_a_message(reason));
    }
    Ok(first.into_iter().map(|element| parse_message(element.get())).collect())
}

fn parse_message(text: &str) -> Result<Message<'_>, EnvelopeError<'_>> {
    if !starts_with(text, '{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(EnvelopeError::not_json)?;
        return Err(EnvelopeError::not_a_message("a JSON-RPC message is an object"));
    }
    let members: Members<'_> = serde_json::from_str(text).map_err(EnvelopeError::not_json)?;
    members.message().map_err(|reason| EnvelopeError {
        error: RpcError::invalid_request(reason),
        id: members.id_to_echo(),
    })
}

/// The members of an envelope, as often as they occurred.
#[derive(Debug, Default)]
struct Members<'a> {
    jsonrpc: Occurrence<'a>,
    id: Occurrence<'a>,
    method: Occurrence<'a>,
    params: Occurrence<'a>,
    result: Occurrence<'a>,
    error: Occurrence<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Occurrence<'a> {
    #[default]
    Absent,
    Once(&'a RawValue),
    Repeated,
}

type Reason = Cow<'static, str>;

impl<'a> Members<'a> {
    /// The message these members make.
    fn message(&self) -> Result<Message<'a>, Reason> {
        let version = self.jsonrpc.at_most_once("jsonrpc")?.and_then(text_of);
        if version.as_deref() != Some("2.0") {
            return Err(r#"`jsonrpc` must be "2.0""#.into());
        }
        let id = self.id.at_most_once("id")?;
        let method = self.method.at_most_once("method")?;
        let params = self.params.at_most_once("params")?;
        let result = self.result.at_most_once("result")?;
        let error = self.error.at_most_once("error")?;
        match (method, result, error) {
            (Some(method), None, None) => call(id, method, params),
            (None, Some(result), None) => success(id, result),
            (None, None, Some(error)) => failure(id, error),
            (None, None, None) => Err("there is no `method`, `result` or `error`".into()),
            _ => Err("only one of `method`, `result` and `error` is allowed".into()),
        }
    }

    /// The id, if it is legal and names a request of the client. That of an answer belongs to the server's
    /// own requests and would be mistaken for another.
    fn id_to_echo(&self) -> Option<&'a str> {
        match (self.id, self.method, self.result, self.error) {
            (Occurrence::Once(id), Occurrence::Absent, Occurrence::Absent, Occurrence::Absent)
            | (Occurrence::Once(id), Occurrence::Once(_) | Occurrence::Repeated, _, _) => legal_id(id).ok(),
            _ => None,
        }
    }
}

fn call<'a>(
    id: Option<&'a RawValue>,
    method: &'a RawValue,
    params: Option<&'a RawValue>,
) -> Result<Message<'a>, Reason> {
    let method = text_of(method).ok_or("`method` must be a string")?;
    if params.is_some_and(|params| !is_object(params) && !is_array(params)) {
        return Err("`params` must be an object or an array".into());
    }
    Ok(match id {
        Some(id) => Message::Request { id: legal_id(id)?, method, params },
        None => Message::Notification { method, params },
    })
}

fn success<'a>(id: Option<&'a RawValue>, result: &'a RawValue) -> Result<Message<'a>, Reason> {
    let id = legal_id(id.ok_or("a result needs the `id` it answers")?)?;
    Ok(Message::Response { id: Some(id), outcome: Ok(result) })
}

fn failure<'a>(id: Option<&'a RawValue>, error: &'a RawValue) -> Result<Message<'a>, Reason> {
    if !is_object(error) {
        return Err("`error` must be an object".into());
    }
    let id = id.filter(|id| id.get() != "null").map(legal_id).transpose()?;
    Ok(Message::Response { id, outcome: Err(error) })
}

/// An id as written: a string, or a number without fraction and exponent (MCP, "Requests"; never null).
fn legal_id(id: &RawValue) -> Result<&str, Reason> {
    let text = id.get();
    let is_integer = || text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if !text.starts_with('"') && !is_integer() {
        return Err("`id` must be a string or an integer".into());
    }
    if text.len() > limits::ID_BYTES_MAX {
        return Err(format!("`id` must not be longer than {} bytes", limits::ID_BYTES_MAX).into());
    }
    // Half a surrogate pair is in JSON's grammar, but many a reader of our answer would refuse all of it.
    if text.starts_with('"') && text_of(id).is_none() {
        return Err("`id` must be Unicode".into());
    }
    Ok(text)
}

// --- Writing ------------------------------------------------------------------------------------
// `out` grows: a `Vec<u8>` or `BytesMut`.

/// The answer to request `id` (as written) with `result`, one JSON value, in parts to be written one after the other:
/// its length is known before anything is copied.
pub fn result_parts<'a>(id: &'a [u8], result: &'a [u8]) -> [&'a [u8]; 5] {
    [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}"]
}

/// Appends the answer to request `id` (as written) with `result`, one JSON value.
pub fn write_result(out: &mut impl BufMut, id: &[u8], result: &[u8]) {
    for part in result_parts(id, result) {
        out.put_slice(part);
    }
}

/// Appends an error answer to request `id` (as written). Without a readable id it is `null` (JSON-RPC 2.0
/// section 5), which clients of every revision accept.
pub fn write_error(out: &mut impl BufMut, id: Option<&[u8]>, error: &RpcError) {
    out.put_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.put_slice(id.unwrap_or(b"null"));
    out.put_slice(br#","error":{"code":"#);
    out.put_slice(itoa::Buffer::new().format(error.code).as_bytes());
    out.put_slice(br#","message":"#);
    write_string(out, &error.message);
    if let Some(data) = &error.data {
        out.put_slice(br#","data":"#);
        out.put_slice(data.as_bytes());
    }
    out.put_slice(b"}}");
}

/// A notification of the server; `params` is one JSON object.
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut out = Vec::with_capacity(48 + method.len() + params.map_or(0, <[u8]>::len));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"#);
    write_call(&mut out, method, params);
    out.into()
}

/// A request of the server. `id` is a JSON string or integer, `params` one JSON object.
pub fn request(id: &[u8], method: &str, params: Option<&[u8]>) -> Bytes {
    let mut out = Vec::with_capacity(56 + id.len() + method.len() + params.map_or(0, <[u8]>::len));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id);
    out.extend_from_slice(br#","method":"#);
    write_call(&mut out, method, params);
    out.into()
}

fn write_call(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    write_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(params);
    }
    out.push(b'}');
}

fn write_string(out: &mut impl BufMut, text: &str) {
    serde_json::to_writer(out.writer(), text).expect("writing a string to memory does not fail");
}

// --- Params the transport reads -----------------------------------------------------------------

/// What the transport needs of `params._meta`. Anything malformed, or ambiguous by repetition, counts as
/// absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta<'a> {
    /// `progressToken`, if it is a string or an integer.
    pub progress_token: Option<&'a RawValue>,
    /// `io.modelcontextprotocol/protocolVersion`: the claim that makes a request one of the sessionless era,
    /// of whatever type.
    pub claimed_revision: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// Reads the `_meta` of `params`.
    pub fn of(params: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(borrow, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
            #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
            claimed_revision: Option<&'a RawValue>,
        }
        let meta = params
            .filter(|params| may_have_meta(params.get().as_bytes()))
            .and_then(|params| parse_object::<Params<'_>>(params).ok()?.meta);
        let Some(wire) = meta.and_then(|meta| parse_object::<Wire<'_>>(meta).ok()) else {
            return Meta::default();
        };
        Meta {
            progress_token: wire.progress_token.filter(|token| legal_id(token).is_ok()),
            claimed_revision: wire.claimed_revision,
        }
    }
}

/// Whether `_meta` could be the name of a member: a search for two rare bytes spares most params a parse. With escapes it
/// can be spelled in many ways.
pub(super) fn may_have_meta(params: &[u8]) -> bool {
    memchr::memchr2_iter(b'_', b'\\', params)
        .any(|at| params[at] == b'\\' || params[at..].starts_with(b"_meta\""))
}

/// The params of `initialize` (2025-11-25, "Initialization").
#[derive(Clone, Debug)]
pub struct InitializeParams<'a> {
    /// The revision the client would like.
    pub protocol_version: Cow<'a, str>,
    /// What the server may ask the client for.
    pub capabilities: ClientCapabilities<'a>,
    /// `clientInfo.name`
    pub client_name: Cow<'a, str>,
    /// `clientInfo.version`
    pub client_version: Cow<'a, str>,
}

/// What a client declared. A capability is declared by an object, however empty.
#[derive(Clone, Copy, Debug)]
pub struct ClientCapabilities<'a> {
    /// `sampling/createMessage` may be sent.
    pub sampling: bool,
    /// Sampling may use tools.
    pub sampling_tools: bool,
    /// Sampling may include the context of servers.
    pub sampling_context: bool,
    /// `elicitation/create` may be sent with a form; also declared by an `elicitation` without any mode.
    pub forms: bool,
    /// `elicitation/create` may be sent with a URL.
    pub urls: bool,
    /// `roots/list` may be sent.
    pub roots: bool,
    /// The whole object, for a backend that wants more.
    pub raw: &'a RawValue,
}

impl<'a> InitializeParams<'a> {
    /// Reads the params of an `initialize` request.
    ///
    /// # Errors
    /// -32602, naming what is missing or wrong.
    pub fn parse(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            #[serde(borrow)]
            protocol_version: Cow<'a, str>,
            #[serde(borrow)]
            capabilities: &'a RawValue,
            #[serde(borrow)]
            client_info: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct ClientInfo<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            version: Cow<'a, str>,
        }
        let wire: Wire<'_> = parse_object(params.ok_or_else(|| unusable("params", "missing"))?)
            .map_err(|reason| unusable("params", &reason))?;
        let client: ClientInfo<'_> =
            parse_object(wire.client_info).map_err(|reason| unusable("params.clientInfo", &reason))?;
        Ok(InitializeParams {
            protocol_version: wire.protocol_version,
            capabilities: ClientCapabilities::parse(wire.capabilities)
                .map_err(|reason| unusable("params.capabilities", &reason))?,
            client_name: client.name,
            client_version: client.version,
        })
    }
}

impl<'a> ClientCapabilities<'a> {
    /// Reads a declaration.
    pub(super) fn parse(raw: &'a RawValue) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(borrow)]
            sampling: Option<&'a RawValue>,
            #[serde(borrow)]
            elicitation: Option<&'a RawValue>,
            #[serde(borrow)]
            roots: Option<&'a RawValue>,
        }
        #[derive(Deserialize, Default)]
        struct Sampling<'a> {
            #[serde(borrow)]
            tools: Option<&'a RawValue>,
            #[serde(borrow)]
            context: Option<&'a RawValue>,
        }
        #[derive(Deserialize, Default)]
        struct Elicitation<'a> {
            #[serde(borrow)]
            form: Option<&'a RawValue>,
            #[serde(borrow)]
            url: Option<&'a RawValue>,
        }
        let wire: Wire<'_> = parse_object(raw)?;
        let is_declared = |capability: Option<&RawValue>| capability.is_some_and(is_object);
        let sampling: Sampling<'_> = sub_capabilities(wire.sampling);
        let elicitation: Elicitation<'_> = sub_capabilities(wire.elicitation);
        let urls = is_declared(elicitation.url);
        Ok(ClientCapabilities {
            sampling: is_declared(wire.sampling),
            sampling_tools: is_declared(sampling.tools),
            sampling_context: is_declared(sampling.context),
            forms: is_declared(elicitation.form) || is_declared(wire.elicitation) && !urls,
            urls,
            roots: is_declared(wire.roots),
            raw,
        })
    }
}

/// What a capability says in detail; what cannot be read says nothing.
fn sub_capabilities<'a, T: Deserialize<'a> + Default>(capability: Option<&'a RawValue>) -> T {
    capability.and_then(|capability| parse_object(capability).ok()).unwrap_or_default()
}

/// The revision that the result of an `initialize` names. `None` if it names none, or none that has sessions.
pub fn revision_of(result: &[u8]) -> Option<Revision> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow)]
        protocol_version: Cow<'a, str>,
    }
    let text = std::str::from_utf8(result).ok().filter(|text| starts_with(text, '{'))?;
    let wire: Wire<'_> = serde_json::from_str(text).ok()?;
    Revision::with_sessions_from_date(&wire.protocol_version)
}

fn unusable(what: &str, reason: &str) -> RpcError {
    RpcError::invalid_params(format!("{what}: {}", excerpt(reason)))
}

// --- Values -------------------------------------------------------------------------------------

/// The text of a JSON string, borrowed if it has no escapes. `None` for any other value, and for a string
/// that is not Unicode (a lone surrogate).
pub fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let inner = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(value.get()).ok().map(Cow::Owned)
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_array(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

/// Reads a struct from an object and from nothing else; serde alone would take an array for it, too.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, String> {
    if !is_object(value) {
        return Err("must be an object".to_owned());
    }
    serde_json::from_str(value.get()).map_err(|error| error.to_string())
}

/// Whether the first character after white space is `first`.
fn starts_with(text: &str, first: char) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with(first)
}

/// The beginning of a client's text, for a message that quotes it.
fn excerpt(text: &str) -> &str {
    const EXCERPT_BYTES_MAX: usize = 160;
    let end = EXCERPT_BYTES_MAX.min(text.len());
    let end = (0..=end).rev().find(|&end| text.is_char_boundary(end)).expect("0 is a boundary");
    &text[..end]
}

/// Whether arrays and objects are nested deeper than allowed. Brackets within strings do not count; what is
/// not JSON may get any answer, it is refused in any case.
fn is_too_deep(json: &[u8]) -> bool {
    // What opens no more than that cannot be too deep: a search spares almost all bodies the walk.
    if memchr::memchr2_iter(b'[', b'{', json).nth(limits::JSON_DEPTH_MAX).is_none() {
        return false;
    }
    let (mut depth, mut at) = (0usize, 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'[' | b'{' if depth == limits::JSON_DEPTH_MAX => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The index after the quote that closes the string whose content starts at `at`; past the end if none does.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(rest) = json.get(at..) {
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(found) if rest[found] == b'"' => return at + found + 1,
            Some(found) => at += found + 2,
            None => break,
        }
    }
    json.len()
}

// --- Collecting without judging -----------------------------------------------------------------
// These fail on syntax only, so that whatever serde_json refuses is not JSON.

impl<'a> Occurrence<'a> {
    fn at_most_once(self, name: &str) -> Result<Option<&'a RawValue>, Reason> {
        match self {
            Occurrence::Absent => Ok(None),
            Occurrence::Once(value) => Ok(Some(value)),
            Occurrence::Repeated => Err(format!("`{name}` occurs more than once").into()),
        }
    }

    fn count(&mut self, value: &'a RawValue) {
        *self = match self {
            Occurrence::Absent => Occurrence::Once(value),
            Occurrence::Once(_) | Occurrence::Repeated => Occurrence::Repeated,
        };
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Members::default();
                while let Some(Name(name)) = map.next_key()? {
                    let member = match name {
                        Some("jsonrpc") => &mut members.jsonrpc,
                        Some("id") => &mut members.id,
                        Some("method") => &mut members.method,
                        Some("params") => &mut members.params,
                        Some("result") => &mut members.result,
                        Some("error") => &mut members.error,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    member.count(map.next_value()?);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// A member's name if the envelope knows it, however it is spelled.
struct Name(Option<&'static str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Recognise;

        impl Visitor<'_> for Recognise {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                const KNOWN: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
                Ok(Name(KNOWN.into_iter().find(|known| *known == name)))
            }
        }

        deserializer.deserialize_identifier(Recognise)
    }
}

/// The elements of an array, as many as a batch may have, and how many there are.
struct Elements<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements<'de>, A::Error> {
                let mut elements = Elements { first: Vec::new(), count: 0 };
                while elements.count < limits::BATCH_MESSAGES_MAX {
                    let Some(element) = seq.next_element()? else { return Ok(elements) };
                    elements.first.push(element);
                    elements.count += 1;
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    elements.count += 1;
                }
                Ok(elements)
            }
        }

        deserializer.deserialize_seq(Collect)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// What a body is, in a form to compare: kind, id, method or value, params.
    fn summary(body: &str) -> String {
        match parse(body.as_bytes()) {
            Ok(Body::Single(message)) => summary_of(&message),
            Ok(Body::Batch(messages)) => {
                let all: Vec<_> = messages
                    .iter()
                    .map(|message| message.as_ref().map_or_else(|error| refusal_of(error), summary_of))
                    .collect();
                all.join(" | ")
            }
            Err(error) => refusal_of(&error),
        }
    }

    fn summary_of(message: &Message<'_>) -> String {
        let raw = |value: &Option<&RawValue>| value.map_or("-", |value| value.get()).to_owned();
        match message {
            Message::Request { id, method, params } => format!("request {id} {method} {}", raw(params)),
            Message::Notification { method, params } => format!("notification {method} {}", raw(params)),
            Message::Response { id, outcome: Ok(result) } => format!("result {} {result}", id.unwrap_or("-")),
            Message::Response { id, outcome: Err(error) } => format!("error {} {error}", id.unwrap_or("-")),
        }
    }

    fn refusal_of(error: &EnvelopeError<'_>) -> String {
        format!("{} {}", error.error.code, error.id.unwrap_or("-"))
    }

    fn check(body: &str, expected: &str) {
        assert_eq!(summary(body), expected, "{body}");
    }

    #[test]
    fn an_id_that_is_not_unicode_is_refused_and_not_echoed() {
        for id in [r#""\ud800""#, r#""a\udc00b""#, r#""\ud83d\u0041""#] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let error = parse(body.as_bytes()).unwrap_err();
            assert_eq!((error.error.code, error.id), (INVALID_REQUEST, None), "{id}");
        }
        let pair = br#"{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"ping"}"#;
        assert!(matches!(parse(pair), Ok(Body::Single(Message::Request { id: r#""\ud83d\ude00""#, .. }))));
    }

    #[test]
    fn messages_are_told_apart() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping -");
        check(r#"{"jsonrpc":"2.0","method":"a/b","params":{"x":[1]}}"#, r#"notification a/b {"x":[1]}"#);
        check(r#"{"jsonrpc":"2.0","id":"s","result":{}}"#, r#"result "s" {}"#);
        check(r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "result 7 null");
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#, r#"error 7 {"code":1}"#);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "error - {}");
        check(r#"{"jsonrpc":"2.0","error":{}}"#, "error - {}");
        check(
            " \r\n\t{ \"params\" : [ ] , \"method\" : \"m\" , \"id\" : 2 , \"jsonrpc\" : \"2.0\" } \n",
            "request 2 m [ ]",
        );
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","more":{"id":2,"method":1}}"#, "request 1 m -");
        check(r#"{"jsonrpc":"2.0","\u0069d":1,"m\u0065thod":"\u0070ing\n"}"#, "request 1 ping\n -");
    }

    #[test]
    fn methods_without_escapes_are_borrowed() {
        let body = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let Ok(Body::Single(Message::Notification { method, .. })) = parse(body) else { panic!() };
        assert!(matches!(method, Cow::Borrowed("notifications/initialized")));
    }

    #[test]
    fn what_is_not_json_is_a_parse_error() {
        for body in [
            "",
            " ",
            "{",
            "[",
            "nul",
            "{]",
            "{}x",
            "[{}",
            "{\"a\":}",
            "{'a':1}",
            "[1,]",
            "\u{feff}{}",
            "\"\u{1}\"",
            "[\"\\x\"]",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"",
            "01",
            "[1}",
        ] {
            check(body, "-32700 -");
        }
        let latin1 = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\xe9\"}}";
        assert_eq!(parse(latin1).unwrap_err().error.code, PARSE_ERROR);
    }

    #[test]
    fn json_that_is_no_message_is_an_invalid_request() {
        for body in ["1", "null", "\"x\"", "true", "{}", "1e999", r#"{"jsonrpc":"2.0"}"#] {
            check(body, "-32600 -");
        }
        let with =
            |members: &str, expected: &str| check(&format!(r#"{{"jsonrpc":"2.0",{members}}}"#), expected);
        with(r#""id":5"#, "-32600 5");
        with(r#""id":5,"method":1"#, "-32600 5");
        with(r#""id":5,"method":null"#, "-32600 5");
        with(r#""id":5,"method":"\ud800""#, "-32600 5");
        with(r#""id":5,"method":"m","params":1"#, "-32600 5");
        with(r#""id":5,"method":"m","params":null"#, "-32600 5");
        with(r#""id":5,"method":"m","params":"p""#, "-32600 5");
        with(r#""id":5,"method":"m","result":{}"#, "-32600 5");
        with(r#""method":"m","params":7"#, "-32600 -");
        with(r#""id":5,"result":1,"error":{}"#, "-32600 -");
        with(r#""id":5,"error":[]"#, "-32600 -");
        with(r#""id":null,"result":{}"#, "-32600 -");
        with(r#""result":{}"#, "-32600 -");
        for version in ["", r#""jsonrpc":"1.0","#, r#""jsonrpc":2.0,"#, r#""jsonrpc":null,"#] {
            check(&format!(r#"{{{version}"id":"x","method":"m"}}"#), r#"-32600 "x""#);
        }
    }

    #[test]
    fn repeated_members_are_refused() {
        let base = r#""jsonrpc":"2.0","id":5,"method":"m","params":{}"#;
        for (again, id) in [
            (r#""jsonrpc":"2.0""#, "5"),
            (r#""id":5"#, "-"),
            (r#""\u0069d":6"#, "-"),
            (r#""method":"m""#, "5"),
            (r#""params":{}"#, "5"),
            (r#""params":{},"params":{}"#, "5"),
        ] {
            check(&format!("{{{base},{again}}}"), &format!("-32600 {id}"));
        }
        check(r#"{"jsonrpc":"2.0","id":5,"result":1,"result":1}"#, "-32600 -");
        check(&format!(r#"{{{base},"x":1,"x":2}}"#), "request 5 m {}");
    }

    #[test]
    fn illegal_ids_are_refused_and_not_echoed() {
        for id in ["null", "true", "false", "{}", "[1]", "1.0", "1.5", "1e3", "1E3", "-1e-1", r#"{"id":1}"#] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#), "-32600 -");
        }
        let too_long = format!("\"{}\"", "x".repeat(limits::ID_BYTES_MAX - 1));
        check(&format!(r#"{{"jsonrpc":"2.0","id":{too_long},"method":"m"}}"#), "-32600 -");
        let digits = "9".repeat(limits::ID_BYTES_MAX);
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":{digits},"method":"m"}}"#),
            &format!("request {digits} m -"),
        );
        check(&format!(r#"{{"jsonrpc":"2.0","id":{digits}9,"method":"m"}}"#), "-32600 -");
    }

    #[test]
    fn batches_are_judged_element_by_element() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        check(&format!("[{ping}]"), "request 1 ping -");
        check(
            &format!(r#" [ {ping} , 1 , [{ping}], {{"jsonrpc":"2.0","id":"b"}} ] "#),
            r#"request 1 ping - | -32600 - | -32600 - | -32600 "b""#,
        );
        check("[]", "-32600 -");
        let of = |count: usize| format!("[{}]", vec![ping; count].join(","));
        assert!(
            matches!(parse(of(limits::BATCH_MESSAGES_MAX).as_bytes()), Ok(Body::Batch(all)) if all.len() == 64)
        );
        check(&of(limits::BATCH_MESSAGES_MAX + 1), "-32600 -");
        check(&format!("[{}1}}", "1,".repeat(100)), "-32700 -");
    }

    #[test]
    fn nesting_is_bounded_and_strings_do_not_nest() {
        let nested = |depth: usize| {
            let inner = depth - 1;
            let params = format!("{}{}", "[".repeat(inner), "]".repeat(inner));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#)
        };
        assert!(parse(nested(limits::JSON_DEPTH_MAX).as_bytes()).is_ok());
        check(&nested(limits::JSON_DEPTH_MAX + 1), "-32700 -");
        check(&"[".repeat(200_000), "-32700 -");
        check(&"[{\"a\":".repeat(200_000), "-32700 -");
        let text = format!(r#"["\"\\{}"]"#, "[{".repeat(1000));
        let body = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{text}}}"#);
        check(&body, &format!("notification m {text}"));
        // Many siblings are not deep.
        let siblings = format!("[{}0]", "[],".repeat(1000));
        check(
            &format!(r#"{{"jsonrpc":"2.0","method":"m","params":{siblings}}}"#),
            &format!("notification m {siblings}"),
        );
    }

    #[test]
    fn answers_are_written_as_json() {
        let mut out = BytesMut::new();
        write_result(&mut out, b"\"a\\u0062\"", b"{}");
        assert_eq!(&out[..], br#"{"jsonrpc":"2.0","id":"a\u0062","result":{}}"#);
        let mut out = Vec::new();
        let error = RpcError { data: Some("[1]".into()), ..RpcError::invalid_params("not \"this\"\n") };
        write_error(&mut out, None, &error);
        let expected = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "not \"this\"\n", "data": [1]}});
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        let mut out = Vec::new();
        write_error(&mut out, Some(b"7"), &RpcError::internal_error());
        check(std::str::from_utf8(&out).unwrap(), r#"error 7 {"code":-32603,"message":"internal error"}"#);
    }

    #[test]
    fn server_messages_are_read_back() {
        let read = |bytes: Bytes| summary(std::str::from_utf8(&bytes).unwrap());
        assert_eq!(read(notification("a\"b", None)), "notification a\"b -");
        assert_eq!(read(notification("m", Some(b"{\"x\":1}"))), "notification m {\"x\":1}");
        assert_eq!(read(request(b"9", "m", None)), "request 9 m -");
        assert_eq!(read(request(b"\"q\"", "m", Some(b"{}"))), "request \"q\" m {}");
    }

    #[test]
    fn errors_of_clients_are_read() {
        let read = |json: &str| RpcError::from_json(&RawValue::from_string(json.to_owned()).unwrap());
        let full = RpcError { code: -1, message: "no".into(), data: Some("{\"a\": 1}".into()) };
        assert_eq!(read(r#"{"message":"no","code":-1,"data":{"a": 1}}"#), Some(full));
        assert_eq!(read(r#"{"code":5,"message":"m","x":0}"#), Some(RpcError::new(5, "m")));
        for wrong in [
            "{}",
            r#"{"code":"5","message":"m"}"#,
            r#"{"code":5e9,"message":"m"}"#,
            r#"{"code":5}"#,
            r#"[5,"m"]"#,
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn quoted_names_are_cut_at_a_character() {
        let error = RpcError::method_not_found(&"é".repeat(5_000));
        assert!(error.message.len() < 200);
    }

    #[test]
    fn meta_is_read_from_objects_only() {
        let check = |params: &str, token: Option<&str>, claim: Option<&str>| {
            let params = RawValue::from_string(params.to_owned()).unwrap();
            let meta = Meta::of(Some(&params));
            assert_eq!(meta.progress_token.map(RawValue::get), token, "{params}");
            assert_eq!(meta.claimed_revision.map(RawValue::get), claim, "{params}");
        };
        check(r#"{"_meta":{"progressToken":"t"},"x":1}"#, Some("\"t\""), None);
        check(r#"{"x":{"_meta":{"progressToken":1}}}"#, None, None);
        check(
            r#"{"_meta":{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"v"}}"#,
            Some("17"),
            Some("\"v\""),
        );
        check(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}"#, None, Some("5"));
        for token in ["1.5", "null", "true", "{}"] {
            check(&format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#), None, None);
        }
        for nothing in ["[]", r#"[{"progressToken":1}]"#, r#"{"_meta":[1,2]}"#, r#"{"_meta":null}"#, "{}"] {
            check(nothing, None, None);
        }
        check(r#"{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}"#, None, None);
        check(r#"{"\u005fmeta":{"progressToken":1}}"#, Some("1"), None);
        assert!(Meta::of(None).progress_token.is_none());
    }

    #[test]
    fn an_elicitation_without_a_mode_means_forms() {
        let declared = |capabilities: Value| {
            let raw = serde_json::value::to_raw_value(&capabilities).unwrap();
            let declared = ClientCapabilities::parse(&raw).unwrap();
            [declared.forms, declared.urls, declared.sampling_tools, declared.sampling_context]
        };
        for (capabilities, expected) in [
            (json!({}), [false; 4]),
            (json!({"elicitation": {}}), [true, false, false, false]),
            (json!({"elicitation": {"form": {}}}), [true, false, false, false]),
            (json!({"elicitation": {"url": {}}}), [false, true, false, false]),
            (json!({"elicitation": {"url": {}, "form": {}}}), [true, true, false, false]),
            (json!({"elicitation": true}), [false; 4]),
            (json!({"sampling": {"tools": {}}}), [false, false, true, false]),
            (json!({"sampling": {"context": {}, "tools": null}}), [false, false, false, true]),
        ] {
            assert_eq!(declared(capabilities.clone()), expected, "{capabilities}");
        }
    }

    #[test]
    fn initialize_names_what_is_missing() {
        let parse = |params: Value| {
            let raw = serde_json::value::to_raw_value(&params).unwrap();
            InitializeParams::parse(Some(&raw)).map_err(|error| (error.code, error.message.into_owned())).map(
                |params| {
                    let ClientCapabilities { sampling, forms, roots, .. } = params.capabilities;
                    let texts = [params.protocol_version, params.client_name, params.client_version];
                    (texts.map(Cow::into_owned).join(" "), [sampling, forms, roots])
                },
            )
        };
        let good = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"sampling": {}, "elicitation": null, "roots": {"listChanged": true}, "other": 1},
            "clientInfo": {"name": "n\n", "version": "1", "title": "t"},
        });
        assert_eq!(parse(good.clone()), Ok(("2025-11-25 n\n 1".to_owned(), [true, false, true])));
        for (pointer, names) in [
            ("/protocolVersion", "protocolVersion"),
            ("/capabilities", "capabilities"),
            ("/clientInfo", "clientInfo"),
            ("/clientInfo/name", "name"),
            ("/clientInfo/version", "version"),
        ] {
            let (parent, member) = pointer.rsplit_once('/').unwrap();
            let mut without = good.clone();
            without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member);
            let (code, message) = parse(without).unwrap_err();
            assert!(code == INVALID_PARAMS && message.contains(names), "{message}");
            let mut wrong = good.clone();
            *wrong.pointer_mut(pointer).unwrap() = json!([1]);
            assert_eq!(parse(wrong).unwrap_err().0, INVALID_PARAMS);
        }
        let mut long = good.clone();
        long["clientInfo"]["name"] = json!(["x".repeat(10_000)]);
        assert!(parse(long).unwrap_err().1.len() < 250);
        assert_eq!(parse(json!(["2025-11-25", {}, {}])).unwrap_err().0, INVALID_PARAMS);
        assert_eq!(InitializeParams::parse(None).unwrap_err().code, INVALID_PARAMS);
    }

    /// Legal ids in every spelling: integers of any length, strings with and without escapes.
    fn ids() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|id| id.to_string()),
            "-?[1-9][0-9]{0,80}",
            "-?0",
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
            r#""([a-z]|\\u[0-9a-c][0-9a-f]{3}|\\/|\\n|\\"|\\\\|é|\{|\[){0,20}""#,
        ]
        .prop_filter("a legal length", |id| id.len() <= limits::ID_BYTES_MAX)
    }

    /// An envelope of members that are absent or take one of a few values, in any order.
    fn envelopes() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
        let member = |name: &'static str, values: &'static [&'static str]| {
            prop::option::weighted(0.6, prop::sample::select(values)).prop_map(move |value| (name, value))
        };
        (
            prop::sample::select(&[r#""2.0""#, r#""2.0""#, r#""2.0""#, "2.0"][..])
                .prop_map(|value| ("jsonrpc", Some(value))),
            member("id", &["1", "\"i\"", "null", "1.5", "[]"]),
            member("method", &["\"m\"", "1"]),
            member("params", &["{}", "[]", "null", "0"]),
            member("result", &["{}", "null"]),
            member("error", &["{}", "0"]),
        )
            .prop_map(|(a, b, c, d, e, f)| {
                [a, b, c, d, e, f]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?)))
                    .collect::<Vec<_>>()
            })
            .prop_shuffle()
    }

    /// The rules once more, on a parsed tree.
    fn naive(message: &Value) -> Option<&'static str> {
        let has = |name: &str| message.get(name);
        let legal = |id: &Value| id.is_string() || id.is_i64();
        if has("jsonrpc") != Some(&json!("2.0")) {
            return None;
        }
        match (has("method"), has("result"), has("error")) {
            (Some(method), None, None) => {
                let params_are_legal =
                    has("params").is_none_or(|params| params.is_object() || params.is_array());
                (method.is_string() && params_are_legal && has("id").is_none_or(legal))
                    .then_some(if has("id").is_some() { "request" } else { "notification" })
            }
            (None, Some(_), None) => has("id").is_some_and(legal).then_some("result"),
            (None, None, Some(error)) => {
                (error.is_object() && has("id").is_none_or(|id| id.is_null() || legal(id))).then_some("error")
            }
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn ids_come_back_byte_for_byte(id in ids()) {
            let body = format!("{{\"jsonrpc\":\"2.0\", \"id\" :\t{id} ,\"method\":\"m\"}}");
            let Ok(Body::Single(Message::Request { id: read, .. })) = parse(body.as_bytes()) else {
                return Err(TestCaseError::fail(body));
            };
            prop_assert_eq!(read, &id);
            let mut answer = Vec::new();
            write_result(&mut answer, read.as_bytes(), b"{}");
            prop_assert_eq!(summary(std::str::from_utf8(&answer).unwrap()), format!("result {id} {{}}"));
            let mut answer = Vec::new();
            write_error(&mut answer, Some(read.as_bytes()), &RpcError::internal_error());
            let read = summary(std::str::from_utf8(&answer).unwrap());
            let start = format!("error {id} ");
            prop_assert!(read.starts_with(&start), "{}", read);
        }

        #[test]
        fn agrees_with_a_parsed_tree(members in envelopes()) {
            let text: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let body = format!("{{{}}}", text.join(","));
            let expected = naive(&serde_json::from_str(&body).unwrap()).unwrap_or("-32600");
            let read = summary(&body);
            prop_assert_eq!(read.split(' ').next(), Some(expected), "{}", body);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn anything_like_json_is_survived(text in r#"([\[\]{},: ]|"(id|method|jsonrpc|2\.0|params|_meta|\\)?"?|[0-9.eE+-]{1,3}|null|\\u?){0,60}"#) {
            let is_json = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            let code = parse(text.as_bytes()).err().map(|error| error.error.code);
            prop_assert_eq!(is_json, code != Some(PARSE_ERROR), "{}", text);
        }
    }
}
