//! What the server says about itself to clients that need a token: challenges (RFC 6750 section 3, RFC 9728 section 5.1)
//! and the metadata of the protected resource (RFC 9728 section 3).
//!
//! Built from the operator's settings and, where they are silent, from the request's authority, which the `Host` rule
//! has accepted and whose characters need no quoting.

use super::Denial;
use crate::core::http::{Authority, Refusal, Status};
use serde_json::json;
use thiserror::Error;

/// Where RFC 9728 wants the metadata of a resource.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The endpoint as clients know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    url: Option<Url>,
    servers: Vec<Box<str>>,
    scopes: Vec<Box<str>>,
}

/// A URL, split before its path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    origin: Box<str>,
    /// Empty, or begins with a slash.
    path: Box<str>,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResourceError {
    /// The resource, or a server.
    #[error("{0:?} is not a URL: write http://HOST/PATH or https://HOST/PATH, without query or fragment")]
    Url(String),
    /// A scope.
    #[error("{0:?} is not a scope: it must be of visible ASCII characters other than \" and \\")]
    Scope(String),
}

impl Resource {
    /// The endpoint at `url` (`None`: wherever the request found it), whose tokens `servers` issue, and which asks for all
    /// of `scopes`.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new<S: AsRef<str>>(url: Option<&str>, servers: &[S], scopes: &[S]) -> Result<Self, ResourceError> {
        let server = |text: &S| Url::parse(text.as_ref()).map(|_| text.as_ref().into());
        let scope = |text: &S| match text.as_ref() {
            scope if is_scope(scope) => Ok(scope.into()),
            scope => Err(ResourceError::Scope(scope.to_owned())),
        };
        Ok(Resource {
            url: url.map(Url::parse).transpose()?,
            servers: servers.iter().map(server).collect::<Result<_, _>>()?,
            scopes: scopes.iter().map(scope).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn scopes(&self) -> &[Box<str>] {
        &self.scopes
    }

    /// Whether the metadata is at that path: the plain well-known one, or the one with the path of the resource or of
    /// `endpoint` behind it.
    pub fn is_described_at(&self, path: &str, endpoint: &str) -> bool {
        let Some(suffix) = path.strip_prefix(WELL_KNOWN) else { return false };
        let known = self.url.as_ref().map(|url| &*url.path);
        suffix.is_empty() || suffix == endpoint || known == Some(suffix)
    }

    /// The metadata document.
    pub fn document(&self, authority: Option<Authority<'_>>, endpoint: &str) -> String {
        let (origin, path) = self.location(authority, endpoint);
        let mut document =
            json!({ "resource": format!("{origin}{path}"), "bearer_methods_supported": ["header"] });
        if !self.servers.is_empty() {
            document["authorization_servers"] = json!(self.servers);
        }
        if !self.scopes.is_empty() {
            document["scopes_supported"] = json!(self.scopes);
        }
        document.to_string()
    }

    /// The refusal of a request whose token, or its lack, is `denial`.
    pub fn refuse(&self, denial: Denial, authority: Option<Authority<'_>>, endpoint: &str) -> Refusal {
        let (origin, path) = self.location(authority, endpoint);
        let path = if path == "/" { "" } else { path };
        let mut challenge = format!("Bearer resource_metadata=\"{origin}{WELL_KNOWN}{path}\"");
        let (status, error, message) = match denial {
            Denial::Missing => (Status::Unauthorized, "", "a bearer token is needed in Authorization"),
            Denial::Invalid(why) => (Status::Unauthorized, "invalid_token", why),
            Denial::Scope => {
                (Status::Forbidden, "insufficient_scope", "the token lacks a scope that is needed")
            }
        };
        if !error.is_empty() {
            challenge += &format!(", error=\"{error}\", error_description=\"{message}\"");
        }
        if !self.scopes.is_empty() {
            challenge += &format!(", scope=\"{}\"", self.scopes.join(" "));
        }
        Refusal { challenge: Some(challenge.into()), ..Refusal::new(status, message) }
    }

    fn location<'a>(&'a self, authority: Option<Authority<'a>>, endpoint: &'a str) -> (String, &'a str) {
        match (&self.url, authority) {
            (Some(url), _) => (url.origin.to_string(), &url.path),
            (None, Some(Authority { host, port: Some(port) })) => (format!("http://{host}:{port}"), endpoint),
            (None, Some(Authority { host, port: None })) => (format!("http://{host}"), endpoint),
            (None, None) => (String::new(), endpoint),
        }
    }
}

impl Url {
    fn parse(text: &str) -> Result<Self, ResourceError> {
        let bad = || ResourceError::Url(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte);
        let is_good = (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
            && !authority.is_empty()
            && Authority::parse(authority.as_bytes()).is_some()
            && path.bytes().all(is_path);
        if !is_good {
            return Err(bad());
        }
        let origin = format!("{scheme}://{authority}");
        Ok(Url { origin: origin.into(), path: path.into() })
    }
}

/// RFC 6749 section 3.3.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    const NONE: [&str; 0] = [];

    fn host(text: &str) -> Option<Authority<'_>> {
        Authority::parse(text.as_bytes())
    }

    #[test]
    fn without_a_setting_the_request_says_where_it_is() {
        let resource = Resource::new(None, &NONE, &NONE).unwrap();
        let refusal = resource.refuse(Denial::Missing, host("localhost:8080"), "/mcp");
        assert_eq!(refusal.status, Status::Unauthorized);
        assert_eq!(
            refusal.challenge.as_deref(),
            Some(
                r#"Bearer resource_metadata="http://localhost:8080/.well-known/oauth-protected-resource/mcp""#
            )
        );
        let document = resource.document(host("[::1]"), "/mcp");
        assert_eq!(document, r#"{"bearer_methods_supported":["header"],"resource":"http://[::1]/mcp"}"#);
    }

    #[test]
    fn settings_say_where_who_and_what() {
        let resource =
            Resource::new(Some("https://mcp.example.org/v1"), &["https://login.example.org"], &["mcp:use"])
                .unwrap();
        let refusal = resource.refuse(Denial::Scope, host("10.0.0.1"), "/mcp");
        assert_eq!(refusal.status, Status::Forbidden);
        let challenge = refusal.challenge.unwrap();
        assert!(challenge.starts_with(
            r#"Bearer resource_metadata="https://mcp.example.org/.well-known/oauth-protected-resource/v1", error="insufficient_scope""#
        ), "{challenge}");
        assert!(challenge.ends_with(r#", scope="mcp:use""#), "{challenge}");
        let document = resource.document(host("10.0.0.1"), "/mcp");
        assert!(document.contains(r#""authorization_servers":["https://login.example.org"]"#), "{document}");
        assert!(document.contains(r#""scopes_supported":["mcp:use"]"#), "{document}");
    }

    #[test]
    fn the_metadata_is_at_its_two_paths_and_no_others() {
        let resource = Resource::new(Some("https://mcp.example.org/v1"), &NONE, &NONE).unwrap();
        for (path, there) in [
            ("/.well-known/oauth-protected-resource", true),
            ("/.well-known/oauth-protected-resource/mcp", true),
            ("/.well-known/oauth-protected-resource/v1", true),
            ("/.well-known/oauth-protected-resource/", false),
            ("/.well-known/oauth-protected-resource/other", false),
            ("/.well-known/oauth-protected-resourcemcp", false),
            ("/.well-known/oauth-protected-resource/../mcp", false),
            ("/mcp", false),
        ] {
            assert_eq!(resource.is_described_at(path, "/mcp"), there, "{path}");
        }
    }

    #[test]
    fn bad_settings_are_named() {
        for url in
            ["mcp.example.org", "ftp://a", "https://", "https://a/b?c", "https://a/b#c", "https://a\"b/"]
        {
            assert_eq!(Resource::new(Some(url), &NONE, &NONE), Err(ResourceError::Url(url.to_owned())));
        }
        for scope in ["", "a b", "a\"b", "a\\b"] {
            assert_eq!(Resource::new(None, &[], &[scope]), Err(ResourceError::Scope(scope.to_owned())));
        }
    }
}
