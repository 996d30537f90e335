//! What a server says about itself: in `initialize`, from 2026-07-28 on in `server/discover`.
//!
//! Owns the shapes of these answers and what each revision knows of them; and how long clients may keep what they are told.

use super::{
    model::{Icon, Meta, Revised, since, with},
    service::Reply,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::Revision;
use serde::Serialize;
use std::{borrow::Cow, time::Duration};

/// What a server says about itself.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Who it is.
    pub implementation: Implementation,
    /// How a model should use this server.
    pub instructions: Option<Cow<'static, str>>,
    /// What the server offers; advertise only what [`Service::call`](super::Service::call) answers.
    pub capabilities: Capabilities,
    /// How long clients may keep its lists, and what it says here (2026-07-28).
    pub lists: Caching,
    /// How long clients may keep what is in its resources (2026-07-28).
    pub resources: Caching,
}

impl ServerInfo {
    /// A server of that name that offers nothing yet.
    pub fn new(name: impl Into<Cow<'static, str>>, version: impl Into<Cow<'static, str>>) -> Self {
        ServerInfo {
            implementation: Implementation {
                name: name.into(),
                title: None,
                version: version.into(),
                description: None,
                website_url: None,
                icons: None,
            },
            instructions: None,
            capabilities: Capabilities::default(),
            lists: Caching::NONE,
            resources: Caching::NONE,
        }
    }

    with! {
        /// How a model should use this server.
        instructions: Cow<'static, str>,
    }

    /// What it offers.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The result of `initialize` for a session of that revision; that of `server/discover` where there are none.
    ///
    /// # Errors
    /// Never in practice: it is made of strings.
    pub(super) fn greeting(&self, revision: Revision) -> Result<Reply, RpcError> {
        if !revision.has_sessions() {
            return self.discovery();
        }
        let greeting = Greeting {
            protocol_version: revision.date(),
            capabilities: self.capabilities.clone(),
            server_info: self.implementation.clone(),
            instructions: self.instructions.as_deref(),
        };
        Reply::revised(greeting, revision)
    }

    /// The revisions are those that the core names to whoever claims another. Who it is goes into the `_meta` of this as of
    /// every result.
    fn discovery(&self) -> Result<Reply, RpcError> {
        Reply::of(&Discovery {
            supported_versions: Revision::WITHOUT_SESSIONS.map(Revision::date),
            capabilities: &self.capabilities,
            instructions: self.instructions.as_deref(),
        })
    }
}

/// How long, and for whom, a client may keep a result (`ttlMs`, `cacheScope` of 2026-07-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// How long; zero means that it is to ask again each time.
    pub ttl: Duration,
    /// For whom.
    pub scope: CacheScope,
}

/// Whose a kept result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// For those with the same credentials only.
    Private,
    /// For everybody: intermediaries may hand it to others. Never for what depends on who asks.
    Public,
}

impl Caching {
    /// Not at all.
    pub const NONE: Caching = Caching { ttl: Duration::ZERO, scope: CacheScope::Private };

    /// That long, for those with the same credentials.
    pub const fn private(ttl: Duration) -> Self {
        Caching { ttl, scope: CacheScope::Private }
    }

    /// That long, for everybody.
    pub const fn public(ttl: Duration) -> Self {
        Caching { ttl, scope: CacheScope::Public }
    }
}

/// Who a server is (`serverInfo`).
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// For programs.
    pub name: Cow<'static, str>,
    /// For people; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Cow<'static, str>>,
    /// Of the server.
    pub version: Cow<'static, str>,
    /// What it is for; sent from 2025-11-25 on, as are the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Cow<'static, str>>,
    /// Where there is more about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub website_url: Option<Cow<'static, str>>,
    /// Its pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
}

impl Revised for Implementation {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.title);
        since(Revision::V2025_11_25, revision, &mut self.description);
        since(Revision::V2025_11_25, revision, &mut self.website_url);
        since(Revision::V2025_11_25, revision, &mut self.icons);
    }
}

/// The features a server advertises; `None` is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Capabilities {
    /// `completion/complete`; sent from 2025-03-26 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<EmptyCapability>,
    /// Extensions of the protocol by their names, with their settings; sent from 2026-07-28 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Meta>,
    /// What the specification does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Meta>,
    /// The server sends `notifications/message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<EmptyCapability>,
    /// `prompts/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ListCapability>,
    /// `resources/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesCapability>,
    /// `tools/*`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ListCapability>,
}

impl Revised for Capabilities {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_03_26, revision, &mut self.completions);
        since(Revision::V2026_07_28, revision, &mut self.extensions);
    }
}

/// A capability without details: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EmptyCapability {}

/// A list a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// The server sends `notifications/…/list_changed` for it.
    pub list_changed: bool,
}

/// The resources a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesCapability {
    /// `resources/subscribe` and `resources/unsubscribe`
    pub subscribe: bool,
    /// The server sends `notifications/resources/list_changed`.
    pub list_changed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Greeting<'a> {
    protocol_version: &'a str,
    capabilities: Capabilities,
    server_info: Implementation,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discovery<'a> {
    supported_versions: [&'a str; Revision::WITHOUT_SESSIONS.len()],
    capabilities: &'a Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

impl Revised for Greeting<'_> {
    fn revise(&mut self, revision: Revision) {
        self.capabilities.revise(revision);
        self.server_info.revise(revision);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};

    fn greeting(info: &ServerInfo, revision: Revision) -> Value {
        serde_json::from_slice(info.greeting(revision).unwrap().json()).unwrap()
    }

    #[test]
    fn a_bare_server_says_the_least() {
        let said = greeting(&ServerInfo::new("bare", "1"), Revision::V2025_03_26);
        assert_eq!(
            said,
            json!({"protocolVersion": "2025-03-26", "capabilities": {},
                   "serverInfo": {"name": "bare", "version": "1"}})
        );
    }

    #[test]
    fn it_says_what_the_revision_knows() {
        let mut info = ServerInfo::new("n", "1").instructions("Ask.");
        info.capabilities.completions = Some(EmptyCapability {});
        info.implementation.title = Some("Name".into());
        info.implementation.icons = Some(vec![Icon::new("data:,")]);
        info.implementation.website_url = Some("https://example.com".into());
        for revision in Revision::WITH_SESSIONS {
            let said = greeting(&info, revision);
            assert_eq!(said["serverInfo"].get("title").is_some(), revision >= Revision::V2025_06_18);
            assert_eq!(said["serverInfo"].get("icons").is_some(), revision >= Revision::V2025_11_25);
            assert_eq!(said["serverInfo"].get("websiteUrl").is_some(), revision >= Revision::V2025_11_25);
            assert_eq!(said["capabilities"].get("completions").is_some(), revision >= Revision::V2025_03_26);
            assert_eq!(said["instructions"], "Ask.");
        }
    }

    #[test]
    fn discovery_names_the_revisions_without_sessions_and_what_is_served() {
        let mut info = ServerInfo::new("n", "1").instructions("Ask.");
        let tasks = Meta::from_iter([("io.modelcontextprotocol/tasks".to_owned(), json!({}))]);
        info.capabilities.extensions = Some(tasks);
        assert_eq!(
            greeting(&info, Revision::V2026_07_28),
            json!({"supportedVersions": ["2026-07-28"], "instructions": "Ask.",
                   "capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}})
        );
        let older = greeting(&info, Revision::V2025_11_25);
        assert_eq!(older["capabilities"], json!({}));
    }

    #[test]
    fn capabilities_are_spelled_as_the_specification_does() {
        let all = Capabilities {
            completions: Some(EmptyCapability {}),
            extensions: Some(Meta::new()),
            experimental: Some(Meta::new()),
            logging: Some(EmptyCapability {}),
            prompts: Some(ListCapability { list_changed: true }),
            resources: Some(ResourcesCapability { subscribe: true, list_changed: false }),
            tools: Some(ListCapability::default()),
        };
        let expected = json!({
            "completions": {}, "extensions": {}, "experimental": {}, "logging": {}, "prompts": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": false}, "tools": {"listChanged": false},
        });
        assert_eq!(serde_json::to_value(all).unwrap(), expected);
    }
}
