//! Who may talk to the endpoint from where: `Host`, `Origin`, and what browsers are told (CORS).
//!
//! Runs before authentication, body and preflight grant. Must never trust `X-Forwarded-*`, and never put an
//! origin into a reply that it has not allowed. Checks allocate only when they refuse; one check is linear in
//! the lists the operator gave.
//!
//! Why both fields: after DNS rebinding a page's requests are same-origin and carry no `Origin`, but their
//! `Host` is the attacker's name. Loopback names are therefore always good, other names only if listed.

use super::{
    Authority, Head, Method, Refusal, Target,
    fields::{elements, is_token},
};

/// Where the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Loopback addresses only.
    Loopback,
    /// Addresses others can reach.
    Network,
}

/// Whether HTTP+SSE of 2024-11-05 is served beside the endpoint (`--legacy-sse`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacySse {
    /// On [`SSE_PATH`] and [`MESSAGES_PATH`].
    On,
    /// There is nothing on those paths.
    Off,
}

/// Where the stream of a session over HTTP+SSE is asked for.
pub const SSE_PATH: &str = "/sse";
/// Where its client sends its messages.
pub const MESSAGES_PATH: &str = "/messages";

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The endpoint, or `*`.
    Endpoint,
    /// [`SSE_PATH`]
    Sse,
    /// [`MESSAGES_PATH`], with the query.
    Messages(&'a str),
}

/// The rules of one endpoint.
#[derive(Clone, Debug)]
pub struct Policy {
    endpoint: Box<str>,
    legacy_sse: LegacySse,
    binding: Binding,
    hosts: Vec<HostRule>,
    origins: Vec<OriginRule>,
}

/// A list entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The path of the endpoint.
    #[error("{0:?} is not a path: it must start with / and hold neither ?, # nor spaces")]
    Endpoint(String),
    /// An allowed host.
    #[error("{0:?} is not a host: write NAME, NAME:PORT or *")]
    Host(String),
    /// An allowed origin.
    #[error("{0:?} is not an origin: write SCHEME://HOST, SCHEME://HOST:PORT, null or *")]
    Origin(String),
}

/// An allowed host beside the loopback names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostRule {
    Any,
    /// This name; without a port, on every port.
    Name {
        name: Box<str>,
        port: Option<u16>,
    },
}

/// An allowed origin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OriginRule {
    Any,
    /// The opaque origin of sandboxed pages and local files.
    Null,
    /// This one, without the default port, as browsers write it.
    Exact(Box<str>),
}

/// What a request's origin was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cors<'a> {
    /// No `Origin`: not a browser's cross-origin request.
    NotAsked,
    /// This allowed origin, to be named in every reply to the request.
    Allowed(&'a [u8]),
}

impl<'a> Cors<'a> {
    /// The origin to name in replies.
    pub fn origin(self) -> Option<&'a [u8]> {
        match self {
            Cors::NotAsked => None,
            Cors::Allowed(origin) => Some(origin),
        }
    }
}

/// What a browser asked before its real request; the reply grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preflight<'a> {
    requested_headers: &'a [u8],
}

impl<'a> Preflight<'a> {
    /// The requested parameter headers (`Mcp-Param-…`), which have to be granted one by one. Anything
    /// that is not a token is left out.
    pub fn parameter_headers(self) -> impl Iterator<Item = &'a [u8]> {
        const PREFIX: &[u8] = b"mcp-param-";
        elements(self.requested_headers).filter(|name| {
            is_token(name) && name.len() > PREFIX.len() && name[..PREFIX.len()].eq_ignore_ascii_case(PREFIX)
        })
    }

    /// An upper bound for the bytes of that list.
    pub(crate) fn len_bound(self) -> usize {
        self.requested_headers.len() * 3
    }
}

impl Policy {
    /// The rules for the endpoint at path `endpoint`. `hosts` are names or `name:port`, allowed beside
    /// loopback names; `origins` are origins, allowed beside loopback ones if the binding is loopback. In both,
    /// `*` allows everything.
    ///
    /// # Errors
    /// An entry that cannot be read.
    pub fn new<S: AsRef<str>>(
        endpoint: &str,
        binding: Binding,
        hosts: &[S],
        origins: &[S],
    ) -> Result<Self, PolicyError> {
        let is_path = endpoint.starts_with('/')
            && endpoint.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
        if !is_path {
            return Err(PolicyError::Endpoint(endpoint.to_owned()));
        }
        Ok(Policy {
            endpoint: endpoint.into(),
            legacy_sse: LegacySse::Off,
            binding,
            hosts: hosts.iter().map(|host| HostRule::parse(host.as_ref())).collect::<Result<_, _>>()?,
            origins: origins
                .iter()
                .map(|origin| OriginRule::parse(origin.as_ref()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The same, with or without HTTP+SSE. The endpoint keeps its path if it is one of the two.
    pub fn with_legacy_sse(self, legacy_sse: LegacySse) -> Self {
        Policy { legacy_sse, ..self }
    }

    /// The path of the MCP endpoint.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Checks `Host`, then `Origin`.
    ///
    /// # Errors
    /// 403 that names the rule and the option that changes it.
    pub fn check<'a>(&self, head: &Head<'a>) -> Result<Cors<'a>, Refusal> {
        self.check_host(head.authority)?;
        self.check_origin(head.origin)
    }

    /// What the target is. Paths are compared byte by byte.
    ///
    /// # Errors
    /// 404 if it is nothing.
    pub fn locate<'a>(&self, target: Target<'a>) -> Result<Place<'a>, Refusal> {
        let (path, query) = match target {
            Target::Path { path, query } => (path, query.unwrap_or_default()),
            Target::Asterisk => return Ok(Place::Endpoint),
        };
        match (path, self.legacy_sse) {
            _ if path == &*self.endpoint => Ok(Place::Endpoint),
            (SSE_PATH, LegacySse::On) => Ok(Place::Sse),
            (MESSAGES_PATH, LegacySse::On) => Ok(Place::Messages(query)),
            (_, LegacySse::On | LegacySse::Off) => Err(Refusal::not_found(&self.endpoint)),
        }
    }

    fn check_host(&self, authority: Option<Authority<'_>>) -> Result<(), Refusal> {
        if self.hosts.contains(&HostRule::Any) {
            return Ok(());
        }
        let Some(authority) = authority else {
            return Err(Refusal::forbidden("host rule: the request names no host"));
        };
        if authority.is_loopback() || self.hosts.iter().any(|rule| rule.matches(authority)) {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "host rule: {:?} is neither a loopback name nor listed with --allow-host",
            authority.host
        )))
    }

    fn check_origin<'a>(&self, origin: Option<&'a [u8]>) -> Result<Cors<'a>, Refusal> {
        let Some(origin) = origin else { return Ok(Cors::NotAsked) };
        let loopback = self.binding == Binding::Loopback && is_loopback_origin(origin);
        if loopback || self.origins.iter().any(|rule| rule.matches(origin)) {
            return Ok(Cors::Allowed(origin));
        }
        let shown = String::from_utf8_lossy(origin);
        Err(Refusal::forbidden(match self.binding {
            Binding::Loopback => {
                format!("origin rule: {shown:?} is neither a loopback origin nor listed with --allow-origin")
            }
            Binding::Network => format!("origin rule: {shown:?} is not listed with --allow-origin"),
        }))
    }
}

impl<'a> Head<'a> {
    /// The preflight in this request, if it is one: OPTIONS with an origin and a method to ask for.
    pub fn preflight(&self) -> Option<Preflight<'a>> {
        let asked = self.method == Method::Options && self.origin.is_some() && self.request_method.is_some();
        asked.then(|| Preflight { requested_headers: self.request_headers.unwrap_or_default() })
    }
}

impl HostRule {
    fn parse(text: &str) -> Result<Self, PolicyError> {
        if text == "*" {
            return Ok(HostRule::Any);
        }
        match Authority::parse(text.as_bytes()) {
            Some(authority) if !authority.host_name().is_empty() => {
                Ok(HostRule::Name { name: authority.host_name().into(), port: authority.port })
            }
            _ => Err(PolicyError::Host(text.to_owned())),
        }
    }

    fn matches(&self, authority: Authority<'_>) -> bool {
        match self {
            HostRule::Any => true,
            HostRule::Name { name, port } => {
                authority.host_name().eq_ignore_ascii_case(name)
                    && (port.is_none() || *port == authority.port)
            }
        }
    }
}

impl OriginRule {
    fn parse(text: &str) -> Result<Self, PolicyError> {
        match text {
            "*" => return Ok(OriginRule::Any),
            "null" => return Ok(OriginRule::Null),
            _ => {}
        }
        let bad = || PolicyError::Origin(text.to_owned());
        let (scheme, authority) = split_origin(text.as_bytes()).ok_or_else(bad)?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port = match authority.port {
            Some(port) if Some(port) != default_port => format!(":{port}"),
            _ => String::new(),
        };
        Ok(OriginRule::Exact(format!("{scheme}://{}{port}", authority.host).into()))
    }

    fn matches(&self, origin: &[u8]) -> bool {
        match self {
            // An opaque origin must be asked for by name, also when every site is welcome.
            OriginRule::Any => origin != b"null",
            OriginRule::Null => origin == b"null",
            OriginRule::Exact(allowed) => origin.eq_ignore_ascii_case(allowed.as_bytes()),
        }
    }
}

/// Whether a page of this machine, on whatever port, is the origin.
fn is_loopback_origin(origin: &[u8]) -> bool {
    split_origin(origin).is_some_and(|(scheme, authority)| {
        (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
            && authority.is_loopback()
    })
}

/// `scheme "://" host [ ":" port ]` (RFC 6454 section 6.1).
fn split_origin(origin: &[u8]) -> Option<(&str, Authority<'_>)> {
    let (scheme, authority) = std::str::from_utf8(origin).ok()?.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let authority = Authority::parse(authority.as_bytes())?;
    (is_scheme && !authority.host.is_empty()).then_some((scheme, authority))
}
