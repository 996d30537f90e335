//! What a session said once, as a program of 2026-07-28 wants to hear it with every request.
//!
//! Owns the words: who the client is and what it can be asked for, kept from `initialize` within
//! [`CHILD_CLAIMS_BYTES_MAX`], and a request's parameters with these words in their `_meta`. A client's own names in `_meta`
//! pass, except for those that the claims themselves have: a session could otherwise claim what it did not declare.

use super::wire::ProgressToken;
use crate::{
    backend::members::Members,
    core::seam::{Call, ClientFeatures, LogLevel, Revision, SessionKey},
    limits::CHILD_CLAIMS_BYTES_MAX,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{fmt::Write as _, rc::Rc};

/// The prefix of the specification's own names in `_meta`.
const OWN: &str = "io.modelcontextprotocol/";
/// Client capabilities that are the same in both revisions.
const KEPT: [&str; 4] = ["elicitation", "experimental", "roots", "sampling"];

/// The claims of one session: members of `_meta`.
#[derive(Clone, Debug)]
pub(super) struct Claims(Rc<str>);

impl Claims {
    /// From the session's `initialize`. What is too long, or is not what it should be, is left out, but never what the client
    /// can be asked for.
    pub(super) fn of(initialize: &Call) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            capabilities: Option<&'a RawValue>,
            #[serde(borrow)]
            client_info: Option<&'a RawValue>,
        }
        let params = initialize.params.as_deref().unwrap_or(b"{}");
        let Params { capabilities, client_info } = serde_json::from_slice(params).unwrap_or_default();
        let declared = capabilities.and_then(|declared| kept(declared.get()));
        let declared = declared.filter(|declared| declared.len() <= CHILD_CLAIMS_BYTES_MAX);
        let declared = declared.unwrap_or_else(|| spelled(initialize.client));
        let mut claims = format!(
            "\"{OWN}protocolVersion\":\"{}\",\"{OWN}clientCapabilities\":{declared}",
            Revision::V2026_07_28.date()
        );
        if let Some(info) = client_info.filter(|info| info.get().len() <= CHILD_CLAIMS_BYTES_MAX) {
            write!(claims, ",\"{OWN}clientInfo\":{info}").expect("a string takes everything");
        }
        Claims(claims.into())
    }
}

fn kept(declared: &str) -> Option<String> {
    let declared = Members::of(declared.as_bytes())?;
    let mut json = String::from("{");
    for name in KEPT {
        if let Some(value) = declared.value(name) {
            let comma = if json.len() == 1 { "" } else { "," };
            write!(json, "{comma}\"{name}\":{value}").ok()?;
        }
    }
    json.push('}');
    Some(json)
}

/// The same from what the core understood of it.
fn spelled(features: ClientFeatures) -> String {
    let mut all = Vec::new();
    if features.has(ClientFeatures::SAMPLING) {
        all.push("\"sampling\":{}");
    }
    match (features.has(ClientFeatures::FORMS), features.has(ClientFeatures::URLS)) {
        (true, true) => all.push("\"elicitation\":{\"form\":{},\"url\":{}}"),
        (true, false) => all.push("\"elicitation\":{\"form\":{}}"),
        (false, true) => all.push("\"elicitation\":{\"url\":{}}"),
        (false, false) => {}
    }
    if features.has(ClientFeatures::ROOTS) {
        all.push("\"roots\":{}");
    }
    format!("{{{}}}", all.join(","))
}

/// A request of a session, ready to be told a program of 2026-07-28 as often as that asks for more.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) session: SessionKey,
    pub(super) method: Box<str>,
    /// The client's.
    pub(super) revision: Revision,
    pub(super) rounds: usize,
    /// Each with a comma behind it.
    members: String,
    meta: String,
}

impl Told {
    pub(super) fn new(session: SessionKey, call: &Call, claims: &Claims, level: Option<LogLevel>) -> Self {
        let params = call.params.as_deref().and_then(Members::of).unwrap_or_default();
        let mut told = Told {
            session,
            method: call.method.as_str().into(),
            revision: call.revision,
            rounds: 0,
            members: String::new(),
            meta: claims.0.to_string(),
        };
        for (name, value) in &params.0 {
            match &**name {
                "_meta" => told.add_meta(value),
                "inputResponses" | "requestState" => {}
                _ => write!(told.members, "{}:{value},", quoted(name)).expect("a string takes everything"),
            }
        }
        if let Some(level) = level {
            write!(told.meta, ",\"{OWN}logLevel\":\"{}\"", level.name()).expect("a string takes everything");
        }
        told
    }

    fn add_meta(&mut self, meta: &RawValue) {
        let members = Members::of(meta.get().as_bytes()).unwrap_or_default();
        let is_ours = |name: &str| {
            name == "progressToken"
                || ["protocolVersion", "clientCapabilities", "clientInfo", "logLevel"]
                    .iter()
                    .any(|known| name.strip_prefix(OWN) == Some(*known))
        };
        for (name, value) in members.0.iter().filter(|(name, _)| !is_ours(name)) {
            write!(self.meta, ",{}:{value}", quoted(name)).expect("a string takes everything");
        }
    }

    /// The parameters, with the members of this round, each with a comma behind it.
    pub(super) fn params(&self, token: Option<ProgressToken>, round: &str) -> String {
        let token = token.map_or_else(String::new, |token| format!(",\"progressToken\":{}", token.json()));
        format!("{{{}{round}\"_meta\":{{{}{token}}}}}", self.members, self.meta)
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::core::seam::{CallKey, Generation, Method};
    use bytes::Bytes;
    use serde_json::{Value, json};
    use std::num::NonZeroU64;

    fn call(method: &'static str, params: &Value, client: ClientFeatures) -> Call {
        let generation = Generation(NonZeroU64::MIN);
        Call {
            key: CallKey { slot: 0, generation },
            session: None,
            method: Method::new(Bytes::from_static(method.as_bytes())).unwrap(),
            params: Some(params.to_string().into()),
            progress_token: None,
            revision: Revision::V2025_11_25,
            client,
            param_fields: Vec::new(),
            principal: None,
        }
    }

    fn claims(initialize: &Value, client: ClientFeatures) -> Value {
        let Claims(members) = Claims::of(&call("initialize", initialize, client));
        serde_json::from_str(&format!("{{{members}}}")).unwrap()
    }

    #[test]
    fn what_initialize_said_is_claimed() {
        let info = json!({"name": "n", "version": "1"});
        let said = json!({
            "protocolVersion": "2025-11-25", "clientInfo": info,
            "capabilities": {"sampling": {"tools": {}}, "roots": {"listChanged": true}, "tasks": {}},
        });
        assert_eq!(
            claims(&said, ClientFeatures::default()),
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": info,
                "io.modelcontextprotocol/clientCapabilities": {"sampling": {"tools": {}}, "roots": {"listChanged": true}},
            })
        );
    }

    #[test]
    fn what_is_too_long_is_said_in_fewer_words() {
        let long = "x".repeat(CHILD_CLAIMS_BYTES_MAX);
        let said = json!({"clientInfo": {"name": long}, "capabilities": {"sampling": {}, "experimental": {"x": long}}});
        let client = ClientFeatures::SAMPLING.with(ClientFeatures::URLS);
        assert_eq!(
            claims(&said, client),
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {"url": {}}},
            })
        );
    }

    #[test]
    fn a_request_is_told_with_its_claims_and_cannot_change_them() {
        let initialize = json!({"capabilities": {}, "clientInfo": {"name": "n"}});
        let claims = Claims::of(&call("initialize", &initialize, ClientFeatures::default()));
        let generation = Generation(NonZeroU64::MIN);
        let meta = json!({
            "a.b/c": 1, "progressToken": "mine", "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
            "io.modelcontextprotocol/related-task": {"taskId": "t"},
        });
        let params =
            json!({"name": "t\"", "_meta": meta, "requestState": "forged", "arguments": {"requestState": 1}});
        let call = call("tools/call", &params, ClientFeatures::default());
        let told = Told::new(SessionKey { slot: 0, generation }, &call, &claims, Some(LogLevel::Error));
        let said: Value = serde_json::from_str(&told.params(None, "\"requestState\":\"s\",")).unwrap();
        assert_eq!(
            said,
            json!({
                "name": "t\"", "arguments": {"requestState": 1}, "requestState": "s",
                "_meta": {
                    "a.b/c": 1,
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": {"name": "n"},
                    "io.modelcontextprotocol/logLevel": "error",
                    "io.modelcontextprotocol/related-task": {"taskId": "t"},
                },
            })
        );
        let token = ProgressToken::draw(7);
        let said: Value = serde_json::from_str(&told.params(Some(token), "")).unwrap();
        assert_eq!(said["_meta"]["progressToken"].to_string(), token.json());
    }
}
