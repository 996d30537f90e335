//! Lines to and from a child, made around values that are never parsed further than needed.
//!
//! Owns nothing. Ids and progress tokens of clients are replaced by ones of ours on the way to a child and put back,
//! byte for byte, on the way to the client; everything else in a message passes as it was written. Only line breaks change:
//! inside JSON they are white space, between a child and us they are the end of a message.

use crate::core::{
    jsonrpc::{self, Meta, RpcError},
    seam::{LogLevel, NotificationKind, Revision, ServerMethod},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, sync::Arc};

// --- To a child ---------------------------------------------------------------------------------

/// A request. `params` is one JSON value as written by whoever.
pub(super) fn request(id: u64, method: &str, params: Option<&[u8]>) -> Bytes {
    line(&jsonrpc::request(itoa::Buffer::new().format(id).as_bytes(), method, params))
}

/// A notification.
pub(super) fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    line(&jsonrpc::notification(method, params))
}

/// The answer to a request of the child, whose id is given as it was written.
pub(super) fn answer(id: &[u8], outcome: &Result<Bytes, RpcError>) -> Bytes {
    let mut out = Vec::new();
    match outcome {
        Ok(result) => jsonrpc::write_result(&mut out, id, result),
        Err(error) => jsonrpc::write_error(&mut out, Some(id), error),
    }
    line(&out)
}

/// What a child is given in place of a client's progress token: the number of the call, and what nobody can guess.
///
/// Whatever else stands in a client's `params` reaches the child, and no two parsers agree on what a repeated or oddly spelled
/// member means. A child may so be led to speak of any token a client likes; it must be none of another client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgressToken {
    pub(super) call: u64,
    secret: u64,
}

impl ProgressToken {
    /// One for this call.
    pub(super) fn draw(call: u64) -> Self {
        let secret = getrandom::u64().expect("Linux has random bytes once it has booted");
        ProgressToken { call, secret }
    }

    /// Reads one, as a child wrote it.
    pub(super) fn parse(written: &str) -> Option<Self> {
        let (call, secret) = written.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        Some(ProgressToken { call: call.parse().ok()?, secret: u64::from_str_radix(secret, 16).ok()? })
    }

    pub(super) fn json(self) -> String {
        format!("\"{}-{:016x}\"", self.call, self.secret)
    }
}

/// `params` of a request with our token in place of the client's, if it has one.
pub(super) fn with_token(params: &Bytes, ours: ProgressToken) -> Bytes {
    let raw = serde_json::from_slice::<&RawValue>(params).ok();
    match Meta::of(raw).progress_token {
        Some(token) => splice(params, token.get(), ours.json().as_bytes()),
        None => params.clone(),
    }
}

/// What a client says of its progress with a request of a child.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    #[serde(borrow)]
    progress: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    total: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
}

impl<'a> Progress<'a> {
    /// Reads the params of a `notifications/progress`.
    pub(super) fn read(params: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(params).ok()
    }

    /// The token as it is written.
    pub(super) fn token(&self) -> &'a str {
        self.progress_token.get()
    }

    /// The same and nothing else.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("what was JSON is JSON")
    }
}

/// The progress token of a request's params, as it is written there.
pub(super) fn wanted_progress(params: &Bytes) -> Option<Bytes> {
    let raw = serde_json::from_slice::<&RawValue>(params).ok();
    Meta::of(raw).progress_token.map(|token| params.slice_ref(token.get().as_bytes()))
}

/// `params` of an `initialize` that ask for this revision.
pub(super) fn with_revision(params: &Bytes, revision: Revision) -> Bytes {
    match protocol_version(params) {
        Some(version) => splice(params, version.get(), format!("\"{}\"", revision.date()).as_bytes()),
        None => params.clone(),
    }
}

/// A copy as one line with its end.
fn line(json: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json);
    for line_break in memchr::memchr2_iter(b'\r', b'\n', json) {
        line[line_break] = b' ';
    }
    line.push(b'\n');
    line.into()
}

// --- From a child -------------------------------------------------------------------------------

/// The progress token of a notification's params, as it is written there.
pub(super) fn progress_token(params: Option<&RawValue>) -> Option<&str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        progress_token: &'a RawValue,
    }
    serde_json::from_str::<Params<'_>>(params?.get()).ok().map(|params| params.progress_token.get())
}

/// The request that a `notifications/cancelled` is about, as it is written there.
pub(super) fn cancelled_request(params: Option<&RawValue>) -> Option<&str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    serde_json::from_str::<Params<'_>>(params?.get()).ok().map(|params| params.request_id.get())
}

/// The subscription that a `notifications/subscriptions/acknowledged` is about, one of ours, and the resources it will tell of.
pub(super) fn acknowledged(params: &RawValue) -> Option<(u64, Vec<Arc<str>>)> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Meta<'a>,
        #[serde(borrow)]
        notifications: Honoured<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: &'a RawValue,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Honoured<'a> {
        #[serde(borrow, default)]
        resource_subscriptions: Vec<Cow<'a, str>>,
    }
    let Params { meta, notifications } = serde_json::from_str(params.get()).ok()?;
    let subscription = meta.subscription.get().parse().ok()?;
    let uris = notifications.resource_subscriptions.into_iter().map(Arc::from);
    Some((subscription, uris.collect()))
}

/// The `uri` of a request's or notification's params.
pub(super) fn uri_of(params: &[u8]) -> Option<Arc<str>> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        uri: Cow<'a, str>,
    }
    serde_json::from_slice::<Params<'_>>(params).ok().map(|params| params.uri.into())
}

/// The level of log messages that a request of 2026-07-28 asks for.
pub(super) fn log_level(params: &[u8]) -> Option<LogLevel> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
        level: Cow<'a, str>,
    }
    memchr::memmem::find(params, b"logLevel")?;
    let params: Params<'_> = serde_json::from_slice(params).ok()?;
    LogLevel::from_name(&params.meta.level)
}

/// What a notification is, as far as routing needs to know.
pub(super) fn kind_of(method: &str, params: Option<&RawValue>) -> NotificationKind {
    #[derive(Deserialize)]
    struct Log<'a> {
        #[serde(borrow)]
        level: Cow<'a, str>,
    }
    match method {
        "notifications/tools/list_changed" => NotificationKind::ToolsListChanged,
        "notifications/prompts/list_changed" => NotificationKind::PromptsListChanged,
        "notifications/resources/list_changed" => NotificationKind::ResourcesListChanged,
        "notifications/resources/updated" => params
            .and_then(|params| uri_of(params.get().as_bytes()))
            .map_or(NotificationKind::Other, NotificationKind::ResourceUpdated),
        "notifications/message" => params
            .and_then(|params| serde_json::from_str::<Log<'_>>(params.get()).ok())
            .and_then(|log| LogLevel::from_name(&log.level))
            .map_or(NotificationKind::Other, NotificationKind::Log),
        _ => NotificationKind::Other,
    }
}

/// The request of that name, if a server may send it to a client.
pub(super) fn server_method(method: &str) -> Option<ServerMethod> {
    [ServerMethod::CreateMessage, ServerMethod::Elicit, ServerMethod::ListRoots]
        .into_iter()
        .find(|known| known.name() == method)
}

/// `whole` with `part`, which must be borrowed from it, replaced.
pub(super) fn splice(whole: &Bytes, part: &str, replacement: &[u8]) -> Bytes {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    let (Some(before), Some(after)) = (whole.get(..start), whole.get(start.saturating_add(part.len())..))
    else {
        debug_assert!(false, "a part of the whole");
        return whole.clone();
    };
    [before, replacement, after].concat().into()
}

// --- What a child says of itself ----------------------------------------------------------------

/// A child's answer to `initialize`.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    result: Bytes,
    revision: Revision,
    /// It takes `logging/setLevel`.
    pub(super) has_logging: bool,
}

impl Greeting {
    /// Reads the result of an `initialize`. `None` if it names no known revision.
    pub(super) fn read(result: Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(borrow)]
            capabilities: Option<Capabilities<'a>>,
        }
        #[derive(Deserialize)]
        struct Capabilities<'a> {
            #[serde(borrow)]
            logging: Option<&'a RawValue>,
        }
        let revision = jsonrpc::revision_of(&result)?;
        let capabilities =
            serde_json::from_slice::<Wire<'_>>(&result).ok().and_then(|wire| wire.capabilities);
        let has_logging = capabilities.is_some_and(|capabilities| capabilities.logging.is_some());
        Some(Greeting { result, revision, has_logging })
    }

    /// The result as the child wrote it.
    pub(super) fn result(&self) -> &Bytes {
        &self.result
    }

    /// The same for a client that asked for `wanted`: in its revision, or the child's own if that is older.
    pub(super) fn for_client(&self, wanted: Revision) -> Bytes {
        match protocol_version(&self.result) {
            Some(version) if wanted < self.revision => {
                splice(&self.result, version.get(), format!("\"{}\"", wanted.date()).as_bytes())
            }
            Some(_) | None => self.result.clone(),
        }
    }
}

fn protocol_version(json: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow)]
        protocol_version: &'a RawValue,
    }
    serde_json::from_slice::<Wire<'_>>(json).ok().map(|wire| wire.protocol_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn a_token_is_replaced_and_nothing_else_changes() {
        for (params, expected) in [
            (
                r#"{"_meta":{"progressToken":"p\u0041"},"a":[1.0, 2e1]}"#,
                r#"{"_meta":{"progressToken":"7-00000000000000ab"},"a":[1.0, 2e1]}"#,
            ),
            (
                r#"{ "x":"progressToken" , "_meta" : { "progressToken" : 12 , "y":0 } }"#,
                r#"{ "x":"progressToken" , "_meta" : { "progressToken" : "7-00000000000000ab" , "y":0 } }"#,
            ),
            (r#"{"_meta":{}}"#, r#"{"_meta":{}}"#),
            (r#"{"progressToken":3}"#, r#"{"progressToken":3}"#),
        ] {
            assert_eq!(with_token(&bytes(params), ProgressToken { call: 7, secret: 0xab }), expected);
        }
    }

    #[test]
    fn a_token_of_ours_is_known_again_and_no_other_is() {
        let token = ProgressToken::draw(12);
        assert_eq!(ProgressToken::parse(&token.json()), Some(token));
        assert_ne!(ProgressToken::draw(12), token);
        for other in ["12", "\"12\"", "\"12-\"", "\"-1\"", "\"x-1\"", "12-1", "\"1-10000000000000000\"", ""] {
            assert_eq!(ProgressToken::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_client_s_token_comes_back_byte_for_byte() {
        let line = bytes(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.50,"progressToken": 7}}"#,
        );
        let Ok(jsonrpc::Body::Single(jsonrpc::Message::Notification { params, .. })) = jsonrpc::parse(&line)
        else {
            panic!("a notification")
        };
        let token = progress_token(params).unwrap();
        assert_eq!(token, "7");
        assert_eq!(
            splice(&line, token, br#""a\/b""#),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.50,"progressToken": "a\/b"}}"#
        );
    }

    #[test]
    fn a_pretty_printed_message_becomes_one_line() {
        let params = b"{\r\n  \"a\": \"x\\ny\"\n}";
        let line = request(3, "tools/call", Some(params));
        assert_eq!(
            line,
            &b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{    \"a\": \"x\\ny\" }}\n"
                [..]
        );
        assert_eq!(
            answer(b"\"q\"", &Ok(Bytes::from_static(b"{\n}"))),
            "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{ }}\n"
        );
    }

    #[test]
    fn the_older_of_two_revisions_is_agreed_on() {
        let result = |date: &str| {
            bytes(&format!(r#"{{"capabilities":{{"logging":{{}}}},"protocolVersion":"{date}"}}"#))
        };
        let greeting = Greeting::read(result("2025-06-18")).unwrap();
        assert!(greeting.has_logging);
        for (wanted, given) in [
            (Revision::V2025_11_25, "2025-06-18"),
            (Revision::V2025_06_18, "2025-06-18"),
            (Revision::V2024_11_05, "2024-11-05"),
        ] {
            assert_eq!(greeting.for_client(wanted), result(given));
        }
        assert!(Greeting::read(result("2031-01-01")).is_none());
        assert!(
            !Greeting::read(bytes(r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#))
                .unwrap()
                .has_logging
        );
    }

    #[test]
    fn a_child_is_asked_for_the_negotiated_revision() {
        let params = bytes(r#"{"protocolVersion":"2026-07-28","capabilities":{"x":{}}}"#);
        assert_eq!(
            with_revision(&params, Revision::NEWEST_WITH_SESSIONS),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"x":{}}}"#
        );
    }

    #[test]
    fn the_level_a_request_asks_for_is_found() {
        let level = |meta: &str| log_level(format!(r#"{{"name":"logLevel","_meta":{meta}}}"#).as_bytes());
        assert_eq!(level(r#"{"io.modelcontextprotocol/logLevel":"error"}"#), Some(LogLevel::Error));
        assert_eq!(level(r#"{"io.modelcontextprotocol/logLevel":7}"#), None);
        assert_eq!(level("{}"), None);
    }

    #[test]
    fn notifications_are_told_apart() {
        let kind = |method: &str, params: &str| {
            kind_of(method, Some(&serde_json::value::RawValue::from_string(params.to_owned()).unwrap()))
        };
        assert_eq!(
            kind("notifications/resources/updated", r#"{"uri":"a:\/\/b"}"#),
            NotificationKind::ResourceUpdated("a://b".into())
        );
        assert_eq!(
            kind("notifications/message", r#"{"level":"error","data":1}"#),
            NotificationKind::Log(LogLevel::Error)
        );
        assert_eq!(kind("notifications/message", r#"{"level":"loud"}"#), NotificationKind::Other);
        assert_eq!(kind("notifications/tools/list_changed", "{}"), NotificationKind::ToolsListChanged);
        assert_eq!(kind("notifications/whatever", "{}"), NotificationKind::Other);
    }
}
