//! Requests in several rounds (2026-07-28, multi round-trip requests), as JSON says them.
//!
//! Owns what a request says of its round (`inputResponses`, `requestState`), what an answer says that needs more
//! (`input_required`), and the digest by which a request and its next round are known to be one. It must never keep
//! anything. A request without either member costs two searches of its bytes.

use super::{members::Members, params, params::ParamsError};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Principal, ServerMethod};
use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The names and the JSON of answers.
pub(super) type Answers = Vec<(String, Bytes)>;

/// Which round a request is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// The first, perhaps with answers to what would be asked.
    First(Answers),
    /// One that goes on where this state says.
    Next { state: String, answers: Answers },
}

/// The methods that may be answered with questions.
pub(super) fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

const RESPONSES: &str = "inputResponses";
const STATE: &str = "requestState";

/// Which round a request with these parameters is.
///
/// # Errors
/// -32602 if either member is not of its type.
pub(super) fn read(params: Option<&[u8]>) -> Result<Round, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow, default, deserialize_with = "there")]
        input_responses: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "there")]
        request_state: Option<&'a RawValue>,
    }
    let params = params.unwrap_or_default();
    if [RESPONSES, STATE].iter().all(|name| memmem::find(params, name.as_bytes()).is_none()) {
        return Ok(Round::First(Vec::new()));
    }
    let Params { input_responses, request_state } = params::parse(params)?;
    let answers = input_responses.map(answers).transpose()?.unwrap_or_default();
    let state = request_state.map(|state| serde_json::from_str(state.get()));
    match state.transpose() {
        Ok(Some(state)) => Ok(Round::Next { state, answers }),
        Ok(None) => Ok(Round::First(answers)),
        Err(_) => Err(ParamsError::new(STATE, "expected a string").into()),
    }
}

/// A member that is `null` is there, too.
fn there<'de: 'a, 'a, D: Deserializer<'de>>(source: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(source).map(Some)
}

/// Answers by their names; each is an object.
///
/// # Errors
/// Says which is none.
pub(super) fn answers(json: &RawValue) -> Result<Answers, ParamsError> {
    let members = Members::of(json.get().as_bytes())
        .ok_or_else(|| ParamsError::new(RESPONSES, "expected an object"))?;
    let answer = |(name, value): (_, &RawValue)| {
        let name = std::borrow::Cow::into_owned(name);
        if !value.get().starts_with('{') {
            return Err(ParamsError::new(&format!("{RESPONSES}.{name}"), "expected an object"));
        }
        Ok((name, Bytes::copy_from_slice(value.get().as_bytes())))
    };
    members.0.into_iter().map(answer).collect()
}

/// The request of a question.
pub(super) fn request(method: ServerMethod, params: Option<&[u8]>) -> Bytes {
    let params = params.and_then(|params| std::str::from_utf8(params).ok());
    let params = params.map_or_else(String::new, |params| format!(",\"params\":{params}"));
    format!("{{\"method\":\"{}\"{params}}}", method.name()).into()
}

/// The members of an object of questions.
pub(super) fn object_of(questions: &[(String, Bytes)]) -> String {
    let mut json = String::from("{");
    for (index, (name, request)) in questions.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let (name, request) = (Value::from(name.as_str()), String::from_utf8_lossy(request));
        write!(json, "{comma}{name}:{request}").expect("a string takes everything");
    }
    json.push('}');
    json
}

/// The result that asks.
pub(super) fn input_required(questions: &[(String, Bytes)], state: &str) -> Bytes {
    let (questions, state) = (object_of(questions), Value::from(state));
    format!("{{\"resultType\":\"input_required\",\"inputRequests\":{questions},\"{STATE}\":{state}}}").into()
}

/// What all rounds of one request have in common: who sends it, its method, and its parameters but for those of a round.
pub(super) fn digest(principal: Option<&Principal>, method: &str, params: Option<&[u8]>) -> [u8; 32] {
    let mut params: Map<String, Value> =
        params.and_then(|params| serde_json::from_slice(params).ok()).unwrap_or_default();
    for name in ["_meta", RESPONSES, STATE] {
        params.remove(name);
    }
    let principal = principal.map_or_else(Vec::new, |principal| [b"p", principal.name().as_bytes()].concat());
    let params = Value::Object(params).to_string();
    let mut digest = Sha256::new();
    for part in [&principal, method.as_bytes(), params.as_bytes()] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    fn round(params: &str) -> Result<Round, String> {
        read(Some(params.as_bytes())).map_err(|error| format!("{} {}", error.code, error.message))
    }

    #[test]
    fn a_request_says_which_round_it_is() {
        assert_eq!(round(r#"{"name":"x"}"#), Ok(Round::First(Vec::new())));
        assert_eq!(read(None), Ok(Round::First(Vec::new())));
        assert_eq!(round(r#"{"arguments":{"requestState":1}}"#), Ok(Round::First(Vec::new())));
        let answers = vec![("a".to_owned(), Bytes::from_static(br#"{"b": 1}"#))];
        assert_eq!(round(r#"{"inputResponses":{"a":{"b": 1}}}"#), Ok(Round::First(answers.clone())));
        let next = Round::Next { state: "s\"".into(), answers };
        assert_eq!(round(r#"{"inputResponses":{"a":{"b": 1}},"requestState":"s\""}"#), Ok(next));
    }

    #[test]
    fn malformed_rounds_are_errors() {
        for (params, reason) in [
            (r#"{"inputResponses":null}"#, "`inputResponses`: expected an object"),
            (r#"{"inputResponses":[]}"#, "`inputResponses`: expected an object"),
            (r#"{"inputResponses":{"a":5}}"#, "`inputResponses.a`: expected an object"),
            (r#"{"requestState":null}"#, "`requestState`: expected a string"),
            (r#"{"requestState":{}}"#, "`requestState`: expected a string"),
        ] {
            assert_eq!(round(params), Err(format!("-32602 Invalid params: {reason}")));
        }
    }

    #[test]
    fn a_question_is_a_request_without_id() {
        let questions =
            [("a\"".to_owned(), request(ServerMethod::Elicit, Some(br#"{"message":"m"}"#)))].to_vec();
        let result: Value = serde_json::from_slice(&input_required(&questions, "s")).unwrap();
        assert_eq!(
            result,
            json!({"resultType": "input_required", "requestState": "s",
                   "inputRequests": {"a\"": {"method": "elicitation/create", "params": {"message": "m"}}}})
        );
        assert_eq!(request(ServerMethod::ListRoots, None), r#"{"method":"roots/list"}"#);
    }

    #[test]
    fn rounds_of_one_request_have_one_digest() {
        let of = |principal: Option<&str>, method: &str, params: &Value| {
            let principal = principal.map(Principal::new);
            digest(principal.as_ref(), method, Some(params.to_string().as_bytes()))
        };
        let first = of(None, "m", &json!({"a": 1, "b": 2, "_meta": {"x": 1}}));
        let next = json!({"b": 2, "a": 1, "_meta": {}, "inputResponses": {}, "requestState": ""});
        assert_eq!(of(None, "m", &next), first);
        assert_ne!(of(Some(""), "m", &next), first);
        assert_ne!(of(None, "n", &next), first);
        assert_ne!(of(None, "m", &json!({"a": 1, "b": 3})), first);
    }
}
