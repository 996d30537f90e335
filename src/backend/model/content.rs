//! Content of results and messages: text, images, audio, resources and links to them.
//!
//! Binary data is kept as base64, as it is sent.

use super::{Contents, Meta, Revised, since, with};
use crate::core::seam::Revision;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use std::mem;

/// One piece of content (`ContentBlock`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Content {
    /// What it is.
    #[serde(flatten)]
    pub body: Body,
    /// For whom, and how important.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// What a [`Content`] is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub enum Body {
    /// Text.
    Text { text: String },
    /// An image; `data` is base64.
    Image { data: String, mime_type: String },
    /// Audio, since 2025-03-26; older clients get a text in its place.
    Audio { data: String, mime_type: String },
    /// A resource itself.
    Resource { resource: Embedded },
    /// Where a resource is, since 2025-06-18; older clients get its name and URI as a text.
    ResourceLink {
        uri: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// A resource with its URI.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Embedded {
    /// Which one.
    pub uri: String,
    /// What is in it.
    #[serde(flatten)]
    pub contents: Contents,
}

impl Content {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::of(Body::Text { text: text.into() })
    }

    /// An image, given as its bytes.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Content::of(Body::Image { data: STANDARD.encode(bytes), mime_type: mime_type.into() })
    }

    /// Audio, given as its bytes.
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Content::of(Body::Audio { data: STANDARD.encode(bytes), mime_type: mime_type.into() })
    }

    /// A resource itself.
    pub fn resource(uri: impl Into<String>, contents: Contents) -> Self {
        Content::of(Body::Resource { resource: Embedded { uri: uri.into(), contents } })
    }

    /// Where a resource is.
    pub fn link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        let (uri, name) = (uri.into(), name.into());
        Content::of(Body::ResourceLink { uri, name, description: None, mime_type: None })
    }

    with! {
        /// For whom, and how important.
        annotations: Annotations,
        /// Sent from 2025-06-18 on.
        meta: Meta,
    }

    fn of(body: Body) -> Self {
        Content { body, annotations: None, meta: None }
    }
}

impl Revised for Content {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.meta);
        self.annotations.revise(revision);
        match &mut self.body {
            Body::Audio { mime_type, .. } if revision < Revision::V2025_03_26 => {
                let text = format!("[{}]", mem::take(mime_type));
                self.body = Body::Text { text };
            }
            Body::ResourceLink { uri, name, .. } if revision < Revision::V2025_06_18 => {
                let text = format!("{name}: {uri}");
                self.body = Body::Text { text };
            }
            Body::Resource { resource } => resource.contents.revise(revision),
            Body::Text { .. } | Body::Image { .. } | Body::Audio { .. } | Body::ResourceLink { .. } => {}
        }
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Role {
    User,
    Assistant,
}

/// For whom something is, and how important.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// For whom; empty: says nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<Role>,
    /// From 0, entirely optional, to 1, required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// An ISO 8601 date; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl Revised for Annotations {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.last_modified);
    }
}

/// A picture for something in a list; sent from 2025-11-25 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// Its type, where the URI does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Like `48x48`, or `any`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// The background it is drawn for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theme: Option<Theme>,
}

/// A background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Theme {
    Light,
    Dark,
}

impl Icon {
    /// The icon at that URI.
    pub fn new(src: impl Into<String>) -> Self {
        Icon { src: src.into(), mime_type: None, sizes: Vec::new(), theme: None }
    }

    /// One more size it comes in: `48x48`, or `any`.
    #[must_use]
    pub fn size(mut self, size: impl Into<String>) -> Self {
        self.sizes.push(size.into());
        self
    }

    with! {
        /// Its type, where the URI does not tell.
        mime_type: String,
        /// The background it is drawn for.
        theme: Theme,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};

    fn at(revision: Revision, content: &Content) -> Value {
        let mut content = content.clone();
        content.revise(revision);
        serde_json::to_value(content).unwrap()
    }

    #[test]
    fn every_kind_is_spelled_as_the_specification_does() {
        let newest = |content: Content| at(Revision::NEWEST_WITH_SESSIONS, &content);
        assert_eq!(newest(Content::text("a")), json!({"type": "text", "text": "a"}));
        assert_eq!(
            newest(Content::image([1, 2], "image/png")),
            json!({"type": "image", "data": "AQI=", "mimeType": "image/png"})
        );
        assert_eq!(newest(Content::audio([], "audio/wav"))["type"], "audio");
        assert_eq!(
            newest(Content::resource("a:b", Contents::text("x").mime_type("text/plain"))),
            json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": "x"}})
        );
        assert_eq!(
            newest(Content::link("a:b", "B")),
            json!({"type": "resource_link", "uri": "a:b", "name": "B"})
        );
    }

    #[test]
    fn older_revisions_get_what_they_know() {
        let meta = Meta::from_iter([("example.com/a".to_owned(), json!(1))]);
        let annotations = Annotations {
            audience: vec![Role::User],
            priority: Some(0.5),
            last_modified: Some("2025-01-01T00:00:00Z".into()),
        };
        let text = Content::text("t").meta(meta).annotations(annotations);
        for revision in Revision::ALL {
            let is_new = revision >= Revision::V2025_06_18;
            assert_eq!(at(revision, &text).get("_meta").is_some(), is_new);
            assert_eq!(at(revision, &text)["annotations"].get("lastModified").is_some(), is_new);
            assert_eq!(at(revision, &text)["annotations"]["audience"], json!(["user"]));
            let link = at(revision, &Content::link("a:b", "B"));
            assert_eq!(link.get("text").is_some_and(|text| text == "B: a:b"), !is_new);
            let audio = at(revision, &Content::audio([1], "audio/wav"));
            assert_eq!(audio["type"] == "audio", revision >= Revision::V2025_03_26);
        }
    }

    #[test]
    fn an_icon_says_what_it_knows() {
        let icon = Icon::new("data:,").mime_type("image/png").size("48x48").theme(Theme::Dark);
        assert_eq!(
            serde_json::to_value(icon).unwrap(),
            json!({"src": "data:,", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"})
        );
        assert_eq!(serde_json::to_value(Icon::new("data:,")).unwrap(), json!({"src": "data:,"}));
    }
}
