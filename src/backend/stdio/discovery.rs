//! What a child is to clients of 2026-07-28: of a 2025 revision its greeting in the words of `server/discover`, else what it
//! says to that itself.
//!
//! Owns the answer, made once for each greeting, and the stamp for the results of that child. What a child declares stands
//! as it wrote it, except for what that revision has in another form: tasks of 2025-11-25.

use super::claims::quoted;
use crate::{
    backend::{Capabilities, ListCapability, ResourcesCapability, members::Members, stamp::Stamp},
    core::seam::Revision,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{fmt::Write as _, rc::Rc};

const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// 2025 revisions want a name, which 2026-07-28 does not.
const NAMELESS: &str = r#"{"name":"unnamed","version":"0"}"#;

#[derive(Debug)]
pub(super) struct Discovery {
    /// The result of `server/discover`.
    pub(super) result: Bytes,
    /// For every result of the child. `None` if it speaks 2026-07-28 itself.
    pub(super) stamp: Option<Rc<Stamp>>,
    /// What the child sends of its own accord; nothing else is in it.
    pub(super) news: Capabilities,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Greeting<'a> {
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    server_info: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
}

impl Discovery {
    /// From the result of an `initialize`. `None` if it is none.
    pub(super) fn of_greeting(result: &[u8]) -> Option<Self> {
        let greeting: Greeting<'_> = serde_json::from_slice(result).ok()?;
        let capabilities = greeting.capabilities.map_or("{}", RawValue::get).as_bytes();
        let capabilities = Members::of(capabilities)?;
        let stamp = Rc::new(Stamp::of(greeting.server_info.map_or("{}", RawValue::get)));
        let result = discover(&capabilities, greeting.instructions)?;
        let result = stamp.on("server/discover", result.into());
        Some(Discovery { result, stamp: Some(stamp), news: news(&capabilities) })
    }

    /// From the result of a child's own `server/discover`.
    pub(super) fn of_child(result: Bytes) -> Option<Self> {
        let members = Members::of(&result)?;
        let capabilities = Members::of(members.value("capabilities")?.get().as_bytes())?;
        let news = news(&capabilities);
        Some(Discovery { stamp: None, news, result })
    }

    /// The same as an answer to `initialize`, of a child that speaks 2026-07-28: extensions are of that revision only.
    pub(super) fn greeting(&self, revision: Revision) -> Bytes {
        let members = Members::of(&self.result).unwrap_or_default();
        let capabilities = members.value("capabilities").map_or("{}", RawValue::get);
        let capabilities = Members::of(capabilities.as_bytes()).unwrap_or_default();
        let mut kept = String::new();
        for (name, value) in capabilities.0.iter().filter(|(name, _)| name != "extensions") {
            let comma = if kept.is_empty() { "" } else { "," };
            write!(kept, "{comma}{}:{value}", quoted(name)).expect("a string takes everything");
        }
        let meta = members.value("_meta").and_then(|meta| Members::of(meta.get().as_bytes()));
        let server = meta.and_then(|meta| meta.value(SERVER)).map_or(NAMELESS, RawValue::get);
        let instructions = members.value("instructions");
        let instructions = instructions.map_or_else(String::new, |it| format!(",\"instructions\":{it}"));
        let date = revision.date();
        format!(
            "{{\"protocolVersion\":\"{date}\",\"capabilities\":{{{kept}}},\"serverInfo\":{server}{instructions}}}"
        )
        .into()
    }
}

fn discover(capabilities: &Members<'_>, instructions: Option<&RawValue>) -> Option<String> {
    let versions = serde_json::to_string(&Revision::ALL.map(Revision::date)).ok()?;
    let mut json = format!("{{\"supportedVersions\":{versions},\"capabilities\":{{");
    let kept = capabilities.0.iter().filter(|(name, _)| name != "tasks");
    for (index, (name, value)) in kept.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(json, "{comma}{}:{value}", serde_json::to_string(name).ok()?).ok()?;
    }
    json.push('}');
    if let Some(instructions) = instructions {
        write!(json, ",\"instructions\":{instructions}").ok()?;
    }
    json.push('}');
    Some(json)
}

/// What can be listened to.
fn news(capabilities: &Members<'_>) -> Capabilities {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Detail {
        list_changed: bool,
        subscribe: bool,
    }
    let detail = |name: &str| {
        let value = capabilities.value(name)?;
        Some(serde_json::from_str::<Detail>(value.get()).unwrap_or_default())
    };
    let list = |name| detail(name).map(|Detail { list_changed, .. }| ListCapability { list_changed });
    Capabilities {
        tools: list("tools"),
        prompts: list("prompts"),
        resources: detail("resources")
            .map(|Detail { list_changed, subscribe }| ResourcesCapability { subscribe, list_changed }),
        ..Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_greeting_becomes_a_discovery() {
        let greeting = json!({
            "protocolVersion": "2025-11-25", "serverInfo": {"name": "n", "version": "1"}, "instructions": "Ask.",
            "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "tasks": {}, "logging": {}},
        });
        let discovery = Discovery::of_greeting(greeting.to_string().as_bytes()).unwrap();
        let said: Value = serde_json::from_slice(&discovery.result).unwrap();
        assert_eq!(
            said,
            json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "instructions": "Ask.",
                "supportedVersions": Revision::ALL.map(Revision::date),
                "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "n", "version": "1"}},
            })
        );
        assert_eq!(discovery.news.tools, Some(ListCapability { list_changed: true }));
        assert_eq!(discovery.news.prompts, None);
        let resources = ResourcesCapability { subscribe: true, list_changed: false };
        assert_eq!(discovery.news.resources, Some(resources));
    }

    #[test]
    fn a_discovery_becomes_a_greeting() {
        let said = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "instructions": "Ask.", "ttlMs": 0,
            "capabilities": {"tools": {"listChanged": true}, "extensions": {"a/b": {}}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "n", "version": "1"}},
        });
        let greeting = |said: &Value| {
            let discovery = Discovery::of_child(said.to_string().into()).unwrap();
            serde_json::from_slice::<Value>(&discovery.greeting(Revision::V2025_06_18)).unwrap()
        };
        assert_eq!(
            greeting(&said),
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "n", "version": "1"}, "instructions": "Ask.",
            })
        );
        assert_eq!(greeting(&json!({"capabilities": {}}))["serverInfo"]["name"], "unnamed");
    }

    #[test]
    fn a_bare_greeting_will_do_and_nonsense_will_not() {
        let discovery = Discovery::of_greeting(br#"{"capabilities":{"tools":7}}"#).unwrap();
        assert_eq!(discovery.news.tools, Some(ListCapability::default()));
        assert!(Discovery::of_greeting(b"[]").is_none());
        assert!(Discovery::of_greeting(br#"{"capabilities":[]}"#).is_none());
    }
}
