//! Which era a POST belongs to, and what a request of 2026-07-28 has to say of itself before anything else counts.
//!
//! Owns the rules that tell a request without a session from one with: the body's claim first
//! (`io.modelcontextprotocol/protocolVersion` in `params._meta`), the header as cross-check (2026-07-28, "Versioning" and
//! "Streamable HTTP"). Pure functions of a head and an envelope; it must never look at a connection, a session or an earlier
//! request. Nothing is allocated for a request of a session; the fields of a head that may matter later are copied once.

use super::{
    asks,
    http::{Head, Status, fields, refusal::HEADER_MISMATCH},
    jsonrpc::{self, Body, ClientCapabilities, Message, RpcError},
    seam::*,
};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The member of `_meta` that makes a request one without a session.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The other one that every such request has.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The client lacks a capability that the request needs (2026-07-28, "Error codes").
pub(super) const MISSING_CAPABILITY: i32 = -32021;
/// The claimed revision is not served.
pub(super) const UNSUPPORTED_VERSION: i32 = -32022;

/// What `MCP-Protocol-Version` says of a request.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Absent,
    /// A revision with sessions that is served.
    WithSessions(Revision),
    /// 2026-07-28 or a later date.
    Stateless(Box<Fields>),
    /// Nothing that is known: the body decides what is wrong with it.
    Unknown(Box<Fields>),
}

/// The fields of a head by which a request without a session is routed, as written.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    version: Bytes,
    method: Option<Bytes>,
    name: Option<Bytes>,
    /// Which of these two is there more than once.
    repeated: Option<&'static str>,
    params: Vec<ParamField>,
    /// For another shard to look at.
    authorization: Option<Secret>,
}

/// A field that is never shown.
#[derive(Clone)]
struct Secret(Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Named {
    pub(super) fn of(head: &Head<'_>) -> Self {
        let Some(version) = head.protocol_version else { return Named::Absent };
        let text = std::str::from_utf8(version).unwrap_or_default();
        if let Some(revision) = Revision::with_sessions_from_date(text) {
            return Named::WithSessions(revision);
        }
        match is_date(version) && text >= Revision::V2026_07_28.date() {
            true => Named::Stateless(Fields::of(version, head)),
            false => Named::Unknown(Fields::of(version, head)),
        }
    }

    /// `Authorization`, as written.
    pub(super) fn authorization(&self) -> Option<&[u8]> {
        self.fields()?.authorization.as_ref().map(|secret| &secret.0[..])
    }

    fn fields(&self) -> Option<&Fields> {
        match self {
            Named::Absent | Named::WithSessions(_) => None,
            Named::Stateless(fields) | Named::Unknown(fields) => Some(fields),
        }
    }
}

impl Fields {
    fn of(version: &[u8], head: &Head<'_>) -> Box<Self> {
        let mut text = BytesMut::with_capacity(128);
        let mut copy = |value: &[u8]| {
            text.extend_from_slice(value);
            text.split().freeze()
        };
        Box::new(Fields {
            version: copy(version),
            method: head.mcp_method.map(&mut copy),
            name: head.mcp_name.map(&mut copy),
            repeated: head.repeated_route,
            authorization: head.authorization.map(|field| Secret(copy(field))),
            params: head
                .parameter_fields()
                .map(|(name, value)| ParamField { name: copy(name), value: copy(value) })
                .collect(),
        })
    }
}

/// `YYYY-MM-DD`, as far as digits go: only such texts can be compared as dates.
fn is_date(text: &[u8]) -> bool {
    text.len() == 10
        && text.iter().enumerate().all(|(index, byte)| match index {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// Whose rules a POST is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// 2025-11-25 and before.
    Sessions,
    /// 2026-07-28
    Stateless,
}

impl Era {
    /// The era of a whole body under that header. A claim counts in any message; without one, and in what cannot be
    /// read, the header does.
    pub(super) fn of<E>(named: &Named, body: &Result<Body<'_>, E>) -> Self {
        let is_claimed = || match body {
            Ok(Body::Single(message)) => has_claim(message),
            Ok(Body::Batch(messages)) => messages.iter().flatten().any(has_claim),
            Err(_) => false,
        };
        match named {
            Named::Stateless(_) => Era::Stateless,
            Named::Absent | Named::WithSessions(_) | Named::Unknown(_) if is_claimed() => Era::Stateless,
            Named::Absent | Named::WithSessions(_) | Named::Unknown(_) => Era::Sessions,
        }
    }
}

fn has_claim(message: &Message<'_>) -> bool {
    let (Message::Request { params, .. } | Message::Notification { params, .. }) = message else {
        return false;
    };
    params
        .filter(|params| may_claim(params.get().as_bytes()))
        .is_some_and(|params| jsonrpc::Meta::of(Some(params)).claimed_revision.is_some())
}

/// Whether there could be a claim: searches spare the requests of sessions a parse. With escapes it can be spelled in
/// many ways.
fn may_claim(params: &[u8]) -> bool {
    jsonrpc::may_have_meta(params)
        && (memchr::memmem::find(params, b"/protocolVersion\"").is_some()
            || memchr::memchr(b'\\', params).is_some())
}

// --- What a request says of itself ---------------------------------------------------------------

/// Why a message without a session is refused.
pub(super) type Fault = (Status, RpcError);

/// A request that may be served: what it says in `_meta`.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) client: ClientFeatures,
    /// The least severe log message wanted. Without it none is.
    pub(super) log_level: Option<LogLevel>,
    /// As written, if it is legal.
    pub(super) progress_token: Option<&'a RawValue>,
}

/// `params._meta` of a request, unchecked.
#[derive(Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    fn of(params: Option<&'a RawValue>) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        let unreadable = |what: &str, reason: &str| bad_meta(format!("{what}: {reason}"));
        let Some(params) = params else { return Ok(Meta::default()) };
        let params: Params<'_> =
            jsonrpc::parse_object(params).map_err(|reason| unreadable("params", &reason))?;
        let Some(meta) = params.meta else { return Ok(Meta::default()) };
        jsonrpc::parse_object(meta).map_err(|reason| unreadable("params._meta", &reason))
    }

    /// The claimed version and what the client can be asked for: both must be there, and be what they should.
    fn required(&self) -> Result<(Cow<'a, str>, ClientFeatures), Fault> {
        let missing: Vec<&str> = [(VERSION, self.version), (CAPABILITIES, self.capabilities)]
            .into_iter()
            .filter_map(|(name, value)| value.is_none().then_some(name))
            .collect();
        let (Some(version), Some(capabilities)) = (self.version, self.capabilities) else {
            return Err(bad_meta(format!(
                "params._meta lacks {}; sessions, which begin with initialize, are of 2025-11-25 and before",
                missing.join(" and ")
            )));
        };
        let version = jsonrpc::text_of(version)
            .ok_or_else(|| bad_meta(format!("params._meta: {VERSION} must be a string")))?;
        let declared = ClientCapabilities::parse(capabilities)
            .map_err(|reason| bad_meta(format!("params._meta: {CAPABILITIES}: {reason}")))?;
        Ok((version, asks::features(&declared)))
    }

    fn log_level(&self) -> Result<Option<LogLevel>, Fault> {
        let Some(level) = self.log_level else { return Ok(None) };
        let known = jsonrpc::text_of(level).and_then(|name| LogLevel::from_name(&name));
        known.map(Some).ok_or_else(|| {
            let message = "params._meta: io.modelcontextprotocol/logLevel must be one of debug, info, notice, \
                           warning, error, critical, alert, emergency";
            (Status::Ok, RpcError::invalid_params(message))
        })
    }
}

/// Checks a request in the order that every implementation reports its faults in: `_meta`, header against claim, version,
/// `Mcp-Method`, `Mcp-Name`, and whether the method exists in this revision at all.
pub(super) fn admit<'a>(
    named: &Named,
    method: &str,
    params: Option<&'a RawValue>,
) -> Result<Claims<'a>, Fault> {
    let meta = Meta::of(params)?;
    let (claimed, client) = meta.required()?;
    let fields = check_version(named, &claimed)?;
    check_once(fields)?;
    check_method(fields, method)?;
    check_name(fields, method, params)?;
    if is_removed(method) {
        return Err((Status::NotFound, RpcError::method_not_found(method)));
    }
    let log_level = meta.log_level()?;
    let progress_token = jsonrpc::Meta::of(params).progress_token;
    Ok(Claims { client, log_level, progress_token })
}

/// Checks a notification, of which nothing is required but that it does not contradict itself: its header rules are left
/// open ("Streamable HTTP", note on notifications).
pub(super) fn admit_notification(named: &Named, params: Option<&RawValue>) -> Result<(), Fault> {
    let Some(claim) = jsonrpc::Meta::of(params).claimed_revision else { return Ok(()) };
    let claimed = jsonrpc::text_of(claim)
        .ok_or_else(|| bad_meta(format!("params._meta: {VERSION} must be a string")))?;
    check_version(named, &claimed).map(|_| ())
}

/// The `Mcp-Param-*` fields of a request.
pub(super) fn param_fields(named: &Named) -> Vec<ParamField> {
    named.fields().map(|fields| fields.params.clone()).unwrap_or_default()
}

fn check_version<'n>(named: &'n Named, claimed: &str) -> Result<&'n Fields, Fault> {
    let fields = match named {
        Named::Absent => return Err(mismatch("the header MCP-Protocol-Version is missing")),
        // Sessions have their revisions from initialize, not from claims.
        Named::WithSessions(revision) if revision.date() == claimed => return Err(unsupported(claimed)),
        Named::WithSessions(_) => return Err(version_differs()),
        Named::Stateless(fields) | Named::Unknown(fields) => fields,
    };
    match () {
        () if fields.version != claimed.as_bytes() => Err(version_differs()),
        () if claimed != Revision::V2026_07_28.date() => Err(unsupported(claimed)),
        () => Ok(fields),
    }
}

/// No two parties may disagree on which one counts.
fn check_once(fields: &Fields) -> Result<(), Fault> {
    match fields.repeated {
        Some(name) => Err(mismatch(format!("the header {name} must not be repeated"))),
        None => Ok(()),
    }
}

fn check_method(fields: &Fields, method: &str) -> Result<(), Fault> {
    match &fields.method {
        None => Err(mismatch("the header Mcp-Method is missing")),
        Some(named) if named != method.as_bytes() => {
            Err(mismatch("the header Mcp-Method is not the method of the body"))
        }
        Some(_) => Ok(()),
    }
}

fn check_name(fields: &Fields, method: &str, params: Option<&RawValue>) -> Result<(), Fault> {
    let Some(member) = named_member(method) else { return Ok(()) };
    let Some(field) = &fields.name else { return Err(mismatch("the header Mcp-Name is missing")) };
    let Some(field) = fields::decode_text(field) else {
        return Err(mismatch("the header Mcp-Name is malformed"));
    };
    match text_member(params, member) {
        Some(name) if name == field => Ok(()),
        Some(_) | None => Err(mismatch(format!("the header Mcp-Name is not params.{member} of the body"))),
    }
}

/// The member of `params` that `Mcp-Name` repeats.
fn named_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// What earlier revisions have and this one has not. Whatever else does not exist the backend says.
fn is_removed(method: &str) -> bool {
    const REMOVED: [&str; 7] = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ];
    REMOVED.contains(&method)
}

/// A text member of `params`.
pub(super) fn text_member<'a>(params: Option<&'a RawValue>, member: &str) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        uri: Option<&'a RawValue>,
        #[serde(borrow, rename = "taskId")]
        task_id: Option<&'a RawValue>,
        #[serde(borrow, rename = "requestState")]
        request_state: Option<&'a RawValue>,
    }
    let params: Params<'_> = jsonrpc::parse_object(params?).ok()?;
    let value = match member {
        "name" => params.name,
        "uri" => params.uri,
        "taskId" => params.task_id,
        "requestState" => params.request_state,
        _ => None,
    };
    value.and_then(jsonrpc::text_of)
}

// --- Faults -------------------------------------------------------------------------------------

/// 400, as the specification has it for what `_meta` lacks.
fn bad_meta(message: String) -> Fault {
    (Status::BadRequest, RpcError::invalid_params(message))
}

fn mismatch(message: impl Into<Cow<'static, str>>) -> Fault {
    (Status::BadRequest, RpcError { code: HEADER_MISMATCH, message: message.into(), data: None })
}

fn version_differs() -> Fault {
    mismatch("the header MCP-Protocol-Version is not the version that params._meta claims")
}

/// The versions are those that `server/discover` names: one with sessions cannot be claimed.
fn unsupported(claimed: &str) -> Fault {
    let supported = Revision::WITHOUT_SESSIONS.map(Revision::date);
    let data = serde_json::json!({ "supported": supported, "requested": claimed });
    let message =
        "requests without a session are served in other versions only; those before have initialize";
    let error = RpcError {
        code: UNSUPPORTED_VERSION,
        message: message.into(),
        data: Some(data.to_string().into_boxed_str()),
    };
    (Status::BadRequest, error)
}

/// What no POST without a session may be: an array, or a response.
pub(super) fn not_a_request(what: &'static str) -> Fault {
    (Status::BadRequest, RpcError::invalid_request(what))
}

/// The status of an error of the backend while the form of the reply is open ("Error codes").
pub(super) fn status_of(error: &RpcError) -> Status {
    match error.code {
        jsonrpc::METHOD_NOT_FOUND => Status::NotFound,
        HEADER_MISMATCH
        | MISSING_CAPABILITY
        | UNSUPPORTED_VERSION
        | jsonrpc::INVALID_REQUEST
        | jsonrpc::PARSE_ERROR => Status::BadRequest,
        _ => Status::Ok,
    }
}

/// The shard that a `requestState` names: `moorline.<shard>.` and what is sealed.
pub(super) fn shard_of_state(params: Option<&RawValue>) -> Option<ShardId> {
    let params = params.filter(|params| {
        let text = params.get().as_bytes();
        memchr::memmem::find(text, b"moorline.").is_some() || memchr::memchr(b'\\', text).is_some()
    });
    let state = text_member(params, "requestState")?;
    let (shard, _) = state.strip_prefix("moorline.")?.split_once('.')?;
    shard.parse().ok().map(ShardId)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;

    #[test]
    fn dates_are_told_from_what_only_looks_later() {
        for date in ["2026-07-28", "2025-11-25", "9999-99-99"] {
            assert!(is_date(date.as_bytes()), "{date}");
        }
        for other in ["", "foo", "v999.0.0", "2026-7-28", "2026-07-28 ", "2026/07/28", "DRAFT-2026"] {
            assert!(!is_date(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_state_names_its_shard_in_the_clear() {
        let shard = |state: &str| {
            let params = RawValue::from_string(format!(r#"{{"requestState":{state}}}"#)).unwrap();
            shard_of_state(Some(&params)).map(|shard| shard.0)
        };
        assert_eq!(shard(r#""moorline.3.sealed""#), Some(3));
        assert_eq!(shard(r#""moor\u006cine.12.x.y""#), Some(12));
        for other in [r#""moorline.3""#, r#""moorline.x.y""#, r#""moorline.70000.y""#, r#""other.3.x""#, "7"]
        {
            assert_eq!(shard(other), None, "{other}");
        }
    }
}
