//! The JSON of server notifications, made once and shared from then on.
//!
//! Owns nothing. Every function returns a whole JSON-RPC message on one line, as the framer needs it. The
//! list-changed messages are static: sending one allocates nothing.

use crate::core::seam::{LogLevel, Notification, NotificationKind};
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// `notifications/tools/list_changed`
pub fn tools_list_changed() -> Notification {
    fixed(
        NotificationKind::ToolsListChanged,
        br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    )
}

/// `notifications/prompts/list_changed`
pub fn prompts_list_changed() -> Notification {
    fixed(
        NotificationKind::PromptsListChanged,
        br#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
    )
}

/// `notifications/resources/list_changed`
pub fn resources_list_changed() -> Notification {
    fixed(
        NotificationKind::ResourcesListChanged,
        br#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
    )
}

/// `notifications/resources/updated`: the resource, or something in it, has changed.
pub fn resource_updated(uri: &str) -> Notification {
    let params = UpdatedParams { uri };
    let json = message("notifications/resources/updated", &params).expect("a string always serialises");
    Notification { kind: NotificationKind::ResourceUpdated(uri.into()), json }
}

/// `notifications/elicitation/complete` (2025-11-25): what the user was to do in a browser is done. For the session whose
/// client was asked.
pub fn elicitation_complete(elicitation_id: &str) -> Notification {
    let params = CompleteParams { elicitation_id };
    let json = message("notifications/elicitation/complete", &params).expect("a string always serialises");
    Notification { kind: NotificationKind::Other, json }
}

/// Any other notification. `method` starts with `notifications/`.
///
/// # Errors
/// If `params` does not serialise.
pub fn other(method: &str, params: &impl Serialize) -> Result<Notification, serde_json::Error> {
    Ok(Notification { kind: NotificationKind::Other, json: message(method, params)? })
}

/// `notifications/message`: a log entry for the client. `data` is any JSON value.
///
/// # Errors
/// If `data` does not serialise (a map whose keys are no strings, or its own error).
pub fn log(
    level: LogLevel,
    logger: Option<&str>,
    data: &impl Serialize,
) -> Result<Notification, serde_json::Error> {
    let params = LogParams { level: level.name(), logger, data };
    Ok(Notification { kind: NotificationKind::Log(level), json: message("notifications/message", &params)? })
}

/// `notifications/progress`. `token` is the client's own, as written; `None` if it is no JSON.
pub(super) fn progress(
    token: &[u8],
    progress: f64,
    total: Option<f64>,
    text: Option<&str>,
) -> Option<Notification> {
    let params = ProgressParams {
        progress_token: serde_json::from_slice(token).ok()?,
        progress: Amount(progress),
        total: total.map(Amount),
        message: text,
    };
    let json = message("notifications/progress", &params).ok()?;
    Some(Notification { kind: NotificationKind::Progress, json })
}

fn fixed(kind: NotificationKind, json: &'static [u8]) -> Notification {
    Notification { kind, json: Bytes::from_static(json) }
}

fn message(method: &str, params: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&Message { jsonrpc: "2.0", method, params }).map(Bytes::from)
}

#[derive(Serialize)]
struct Message<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct UpdatedParams<'a> {
    uri: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CompleteParams<'a> {
    elicitation_id: &'a str,
}

#[derive(Serialize)]
struct LogParams<'a, D> {
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logger: Option<&'a str>,
    data: &'a D,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: &'a RawValue,
    progress: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// A number that is written without a fraction when it has none: `3`, not `3.0`.
struct Amount(f64);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// From here on not every whole number is an `f64`.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT_MAX {
            #[allow(clippy::cast_possible_truncation, reason = "whole and within 53 bits, as just checked")]
            return serializer.serialize_i64(self.0 as i64);
        }
        serializer.serialize_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn list_changed_messages_are_what_they_say() {
        for (notification, method) in [
            (tools_list_changed(), "notifications/tools/list_changed"),
            (prompts_list_changed(), "notifications/prompts/list_changed"),
            (resources_list_changed(), "notifications/resources/list_changed"),
        ] {
            let value: serde_json::Value = serde_json::from_slice(&notification.json).unwrap();
            assert_eq!(value, serde_json::json!({"jsonrpc": "2.0", "method": method}));
        }
    }

    #[test]
    fn updates_and_completions_name_what_they_are_about() {
        let updated = resource_updated("a:\"b\"");
        assert_eq!(updated.kind, NotificationKind::ResourceUpdated("a:\"b\"".into()));
        assert_eq!(
            updated.json,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:\"b\""}}"#
        );
        assert_eq!(
            elicitation_complete("e1").json,
            r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e1"}}"#
        );
    }

    #[test]
    fn log_entries_stay_on_one_line() {
        let entry = log(LogLevel::Warning, Some("disk"), &"one\ntwo").unwrap();
        assert_eq!(entry.kind, NotificationKind::Log(LogLevel::Warning));
        assert_eq!(
            entry.json,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"disk","data":"one\ntwo"}}"#
        );
    }

    #[test]
    fn log_data_that_is_no_json_is_an_error() {
        let data = std::collections::BTreeMap::from([(vec![1], 2)]);
        assert!(log(LogLevel::Info, None, &data).is_err());
    }

    #[test]
    fn the_token_is_kept_byte_for_byte() {
        for token in [r#""a\u0062\/""#, "1.0", "-0", "12345678901234567890123", "1E2"] {
            let notification = progress(token.as_bytes(), 0.5, Some(3.0), Some("half")).unwrap();
            let expected = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":0.5,"total":3,"message":"half"}}}}"#
            );
            assert_eq!(notification.json, expected);
        }
    }

    #[test]
    fn amounts_lose_a_fraction_only_when_they_have_none() {
        let text = |amount| serde_json::to_string(&Amount(amount)).unwrap();
        assert_eq!(
            [text(0.0), text(7.0), text(-2.0), text(0.25), text(1e300)],
            ["0", "7", "-2", "0.25", "1e+300"]
        );
    }
}
