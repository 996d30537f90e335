//! Resources: how they are described, and what is in them.

use super::{Annotations, Icon, Meta, Revised, since, with};
use crate::backend::Failure;
use crate::core::seam::Revision;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Serialize;

/// A resource as `resources/list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub struct ResourceDefinition {
    pub uri: String,
    pub name: String,
    /// For people; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// In bytes, before any encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Sent from 2025-11-25 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Revised for ResourceDefinition {
    fn revise(&mut self, revision: Revision) {
        self.annotations.revise(revision);
        since(Revision::V2025_06_18, revision, &mut self.title);
        since(Revision::V2025_06_18, revision, &mut self.meta);
        since(Revision::V2025_11_25, revision, &mut self.icons);
    }
}

/// A family of resources as `resources/templates/list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub struct TemplateDefinition {
    /// RFC 6570.
    pub uri_template: String,
    pub name: String,
    /// For people; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Sent from 2025-11-25 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Revised for TemplateDefinition {
    fn revise(&mut self, revision: Revision) {
        self.annotations.revise(revision);
        since(Revision::V2025_06_18, revision, &mut self.title);
        since(Revision::V2025_06_18, revision, &mut self.meta);
        since(Revision::V2025_11_25, revision, &mut self.icons);
    }
}

// --- Contents -----------------------------------------------------------------------------------

/// What is in a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Its type; where a resource or template has one, that is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text or bytes.
    #[serde(flatten)]
    pub data: Data,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// Text or bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Text.
    Text(String),
    /// Bytes, as base64.
    Blob(String),
}

impl Contents {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Contents { mime_type: None, data: Data::Text(text.into()), meta: None }
    }

    /// Bytes.
    pub fn blob(bytes: impl AsRef<[u8]>) -> Self {
        Contents { mime_type: None, data: Data::Blob(STANDARD.encode(bytes)), meta: None }
    }

    with! {
        /// Its type.
        mime_type: String,
        /// Sent from 2025-06-18 on.
        meta: Meta,
    }
}

impl Revised for Contents {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.meta);
    }
}

/// What a resource's handler may return.
pub trait IntoContents {
    /// The contents.
    ///
    /// # Errors
    /// What the handler failed with.
    fn into_contents(self) -> Result<Contents, Failure>;
}

impl IntoContents for Contents {
    fn into_contents(self) -> Result<Contents, Failure> {
        Ok(self)
    }
}

impl IntoContents for String {
    fn into_contents(self) -> Result<Contents, Failure> {
        Ok(Contents::text(self))
    }
}

impl IntoContents for &'static str {
    fn into_contents(self) -> Result<Contents, Failure> {
        Ok(Contents::text(self))
    }
}

impl IntoContents for Vec<u8> {
    fn into_contents(self) -> Result<Contents, Failure> {
        Ok(Contents::blob(self))
    }
}

impl IntoContents for Bytes {
    fn into_contents(self) -> Result<Contents, Failure> {
        Ok(Contents::blob(self))
    }
}

impl<T: IntoContents, E: Into<Failure>> IntoContents for Result<T, E> {
    fn into_contents(self) -> Result<Contents, Failure> {
        self.map_err(Into::into)?.into_contents()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    #[test]
    fn contents_are_text_or_base64() {
        let text = Contents::text("x").mime_type("text/plain");
        assert_eq!(serde_json::to_value(text).unwrap(), json!({"mimeType": "text/plain", "text": "x"}));
        let blob = vec![255].into_contents().unwrap();
        assert_eq!(serde_json::to_value(blob).unwrap(), json!({"blob": "/w=="}));
    }
}
