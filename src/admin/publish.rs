//! `POST /publish`: one notification, for an audience, and what became of it.
//!
//! ```json
//! {"to": "all", "method": "notifications/tools/list_changed"}
//! {"to": {"principal": "alice"}, "method": "notifications/prompts/list_changed"}
//! {"to": {"session": "…"}, "method": "notifications/message", "params": {"level": "info", "data": "hello"}}
//! ```
//!
//! The message is serialised here, once; the shards share its bytes. Bounds: [`PUBLICATIONS_MAX`] under way, each of
//! at most `--max-message` bytes, whose body has to arrive in [`PUBLICATION_BODY_TIMEOUT_MS`]. What a body says is never
//! logged.
//!
//! [`PUBLICATIONS_MAX`]: crate::limits::PUBLICATIONS_MAX

use super::{
    Owners,
    answer::{self, Body, Fault},
    desk::{Desk, Outcome, Readiness},
};
use crate::{
    core::{
        Announcement, Audience, LogLevel, NotificationKind, Principal, Reach, ids::SessionId, jsonrpc, sse,
    },
    limits::{METHOD_BYTES_MAX, PUBLICATION_BODY_TIMEOUT_MS},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming, header::CONTENT_TYPE};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;
use std::{rc::Rc, time::Duration};

pub(super) async fn answer(request: Request<Incoming>, desk: &Rc<Desk>) -> Result<Response<Body>, Fault> {
    check_content_type(&request)?;
    match desk.readiness() {
        Readiness::Ready => {}
        Readiness::Starting => return Err(Fault::unavailable("the server is starting")),
        Readiness::Draining => return Err(Fault::unavailable("the server is stopping")),
    }
    let busy = || Fault::unavailable("as many publications as may be are under way");
    let place = desk.place_for_publication().ok_or_else(busy)?;
    let body = body_of(request, desk.terms.message_bytes_max).await?;
    let (audience, announcement) = parse(&body, desk.terms.message_bytes_max)?;
    drop(body);
    check_owners(audience.as_ref(), desk.terms.owners)?;
    let Some(audience) = audience else { return Ok(no_such_session()) };
    let outcome = desk.publish(place, audience.clone(), announcement).await.map_err(|_full| busy())?;
    Ok(report(&audience, outcome))
}

/// Also what keeps other web pages out: see [`guard`](super::guard).
fn check_content_type<B>(request: &Request<B>) -> Result<(), Fault> {
    let value = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case(answer::JSON) {
        return Ok(());
    }
    Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json"))
}

async fn body_of(request: Request<Incoming>, bytes_max: usize) -> Result<Bytes, Fault> {
    let body = Limited::new(request.into_body(), bytes_max).collect();
    let limit = Duration::from_millis(PUBLICATION_BODY_TIMEOUT_MS);
    match tokio::time::timeout(limit, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Fault::new(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_) => Err(Fault::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

fn too_large() -> Fault {
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "the message is larger than --max-message")
}

// --- The document -------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    to: Option<To>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum To {
    All,
    Session(String),
    Principal(String),
}

/// Who it is for, `None` being a session that cannot exist, and what they get.
fn parse(body: &[u8], bytes_max: usize) -> Result<(Option<Audience>, Announcement), Fault> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let document: Document = serde_path_to_error::deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(|error| not_one_document(&error))?;
    let missing = |field| Fault::field(field, format!("`{field}` is missing"));
    let to = document.to.ok_or_else(|| missing("to"))?;
    let method = document.method.ok_or_else(|| missing("method"))?;
    let kind = kind_of(&method, document.params)?;
    let json = jsonrpc::notification(&method, document.params.map(|params| params.get().as_bytes()));
    if json.len() > bytes_max {
        return Err(too_large());
    }
    Ok((audience_of(to)?, Announcement { kind, payload: sse::payload(&json) }))
}

fn malformed(error: serde_path_to_error::Error<serde_json::Error>) -> Fault {
    let path = error.path().to_string();
    let error = error.into_inner();
    if !error.is_data() {
        return not_one_document(&error);
    }
    let text = error.to_string();
    // For a member that does not belong there only the text has its name.
    match text.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
        Some(name) if path == "." => Fault::field(name.to_owned(), text),
        _ if path == "." => Fault::new(StatusCode::BAD_REQUEST, text),
        _ => Fault::field(path, text),
    }
}

fn not_one_document(error: &serde_json::Error) -> Fault {
    Fault::new(StatusCode::BAD_REQUEST, format!("the body is not one JSON document: {error}"))
}

fn audience_of(to: To) -> Result<Option<Audience>, Fault> {
    match to {
        To::All => Ok(Some(Audience::All)),
        To::Session(id) => Ok(SessionId::parse(id.as_bytes()).map(Audience::Session)),
        To::Principal(name) => Ok(Some(Audience::Principal(Principal::new(name)))),
    }
}

fn check_owners(audience: Option<&Audience>, owners: Owners) -> Result<(), Fault> {
    match (audience, owners) {
        (Some(Audience::Principal(_)), Owners::Nobody) => {
            let error = "sessions have no owners on this server, so there is no principal to publish to";
            Err(Fault::field("to.principal", error))
        }
        _ => Ok(()),
    }
}

/// What the routing needs to know of a notification; whatever the specification demands of the ones it knows is checked,
/// for clients drop what they cannot read without a word.
fn kind_of(method: &str, params: Option<&RawValue>) -> Result<NotificationKind, Fault> {
    check_method(method)?;
    if params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err(Fault::field("params", "`params` must be an object"));
    }
    Ok(match method {
        "notifications/tools/list_changed" => NotificationKind::ToolsListChanged,
        "notifications/prompts/list_changed" => NotificationKind::PromptsListChanged,
        "notifications/resources/list_changed" => NotificationKind::ResourcesListChanged,
        "notifications/resources/updated" => {
            let uri = members(params)?.uri.ok_or_else(|| needed("params.uri"))?;
            NotificationKind::ResourceUpdated(uri.into())
        }
        "notifications/message" => {
            let members = members(params)?;
            let level = members.level.ok_or_else(|| needed("params.level"))?;
            if !members.data {
                return Err(needed("params.data"));
            }
            NotificationKind::Log(LogLevel::from_name(&level).ok_or_else(unknown_level)?)
        }
        _ => NotificationKind::Other,
    })
}

fn check_method(method: &str) -> Result<(), Fault> {
    let is_plain = method.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || method.len() > METHOD_BYTES_MAX {
        let error = format!("`method` must be at most {METHOD_BYTES_MAX} visible ASCII characters");
        return Err(Fault::field("method", error));
    }
    match method.strip_prefix("notifications/") {
        None | Some("") => Err(Fault::field("method", "`method` must begin with notifications/")),
        Some("progress" | "cancelled") => {
            Err(Fault::field("method", "this notification belongs to one request and cannot be published"))
        }
        Some("initialized" | "roots/list_changed") => {
            Err(Fault::field("method", "this notification is a client's, not a server's"))
        }
        Some(_) => Ok(()),
    }
}

fn needed(field: &'static str) -> Fault {
    Fault::field(field, format!("`{field}` is needed for this method"))
}

fn unknown_level() -> Fault {
    let levels = "debug, info, notice, warning, error, critical, alert or emergency";
    Fault::field("params.level", format!("`params.level` must be {levels}"))
}

/// What is read of `params`.
#[derive(Default, Deserialize)]
struct Members {
    level: Option<String>,
    uri: Option<String>,
    /// Whether it is there, whatever it is.
    #[serde(default, deserialize_with = "is_there")]
    data: bool,
}

fn is_there<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

fn members(params: Option<&RawValue>) -> Result<Members, Fault> {
    let Some(params) = params else { return Ok(Members::default()) };
    let mut reader = serde_json::Deserializer::from_str(params.get());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = format!("params.{}", error.path());
        Fault::field(field, error.into_inner().to_string())
    })
}

// --- The answer ---------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report {
    sessions: u64,
    listens: u64,
    written: u64,
    pending: u64,
    filtered: u64,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl From<Reach> for Report {
    fn from(reach: Reach) -> Self {
        let Reach { sessions, listens, written, pending, filtered, refused } = reach;
        Report { sessions, listens, written, pending, filtered, refused, error: None, field: None }
    }
}

fn report(audience: &Audience, outcome: Outcome) -> Response<Body> {
    let Outcome { reach, silent } = outcome;
    if silent > 0 {
        let error = format!("{silent} shards had not finished in time; the counts are those of the others");
        return answer::json(StatusCode::GATEWAY_TIMEOUT, &Report { error: Some(error), ..reach.into() });
    }
    match audience {
        Audience::Session(_) if reach.sessions == 0 => no_such_session(),
        Audience::Session(_) | Audience::All | Audience::Principal(_) => {
            answer::json(StatusCode::OK, &Report::from(reach))
        }
    }
}

/// The same for one that never was, one that ended and one that was guessed.
fn no_such_session() -> Response<Body> {
    let error = Some("there is no such session".to_owned());
    let report = Report { error, field: Some("to.session"), ..Reach::default().into() };
    answer::json(StatusCode::NOT_FOUND, &report)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    fn kind(body: &str) -> NotificationKind {
        parse(body.as_bytes(), 1_000).unwrap().1.kind
    }

    /// The field and status of the refusal.
    fn fault(body: &str) -> (u16, String) {
        let response = parse(body.as_bytes(), 1_000).map(drop).unwrap_err();
        let text = format!("{response:?}");
        let field = text.split("field: Some(\"").nth(1).and_then(|rest| rest.split('"').next());
        (response.status.as_u16(), field.unwrap_or("").to_owned())
    }

    #[test]
    fn kinds_decide_merging_and_filtering() {
        use NotificationKind::*;
        assert_eq!(kind(r#"{"to":"all","method":"notifications/tools/list_changed"}"#), ToolsListChanged);
        assert_eq!(
            kind(r#"{"to":"all","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#),
            ResourceUpdated("a:b".into())
        );
        assert_eq!(
            kind(r#"{"to":"all","method":"notifications/message","params":{"level":"error","data":null}}"#),
            Log(LogLevel::Error)
        );
        assert_eq!(kind(r#"{"to":"all","method":"notifications/x/y","params":{}}"#), Other);
    }

    #[test]
    fn params_pass_as_written_on_one_line() {
        let body = "{\"to\":\"all\",\"method\":\"notifications/x\",\"params\":{\n \"n\": 1.0e0 }}";
        let (_, announcement) = parse(body.as_bytes(), 1_000).unwrap();
        let expected = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{  \"n\": 1.0e0 }}\n\n";
        assert_eq!(announcement.payload, expected);
    }

    #[test]
    fn bad_input_names_the_field() {
        for (body, field) in [
            (r#"{"method":"notifications/x"}"#, "to"),
            (r#"{"to":"all"}"#, "method"),
            (r#"{"to":"some","method":"notifications/x"}"#, "to"),
            (r#"{"to":{"session":1},"method":"notifications/x"}"#, "to.session"),
            (r#"{"to":{"principal":1},"method":"notifications/x"}"#, "to.principal"),
            (r#"{"to":"all","method":7}"#, "method"),
            (r#"{"to":"all","method":"tools/list"}"#, "method"),
            (r#"{"to":"all","method":"notifications/"}"#, "method"),
            (r#"{"to":"all","method":"notifications/a b"}"#, "method"),
            (r#"{"to":"all","method":"notifications/progress","params":{}}"#, "method"),
            (r#"{"to":"all","method":"notifications/initialized"}"#, "method"),
            (r#"{"to":"all","method":"notifications/x","params":[]}"#, "params"),
            (r#"{"to":"all","method":"notifications/x","extra":1}"#, "extra"),
            (r#"{"to":"all","method":"notifications/message"}"#, "params.level"),
            (
                r#"{"to":"all","method":"notifications/message","params":{"level":"loud","data":1}}"#,
                "params.level",
            ),
            (
                r#"{"to":"all","method":"notifications/message","params":{"level":3,"data":1}}"#,
                "params.level",
            ),
            (r#"{"to":"all","method":"notifications/message","params":{"level":"info"}}"#, "params.data"),
            (r#"{"to":"all","method":"notifications/resources/updated","params":{}}"#, "params.uri"),
        ] {
            assert_eq!(fault(body), (400, field.to_owned()), "{body}");
        }
    }

    #[test]
    fn what_is_no_document_has_no_field() {
        for body in ["", "{", "[]", "1", "{}{}", "\u{0}", r#"{"to":"all","method":"notifications/x"} x"#] {
            let (status, field) = fault(body);
            assert_eq!(status, 400, "{body}");
            assert!(field.is_empty() || body == "{}{}", "{body}: {field}");
        }
    }

    #[test]
    fn an_impossible_session_is_nobody() {
        let body = r#"{"to":{"session":"x"},"method":"notifications/x"}"#;
        assert!(parse(body.as_bytes(), 1_000).unwrap().0.is_none());
    }

    #[test]
    fn a_message_may_not_outgrow_its_bound_by_its_envelope() {
        let body = r#"{"to":"all","method":"notifications/x"}"#;
        assert_eq!(parse(body.as_bytes(), 40).unwrap_err().status, 413);
    }
}
