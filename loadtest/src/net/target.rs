//! The servers under load, as the user named them.
//!
//! Owns the reading of `http://host[:port]/path`. Names are resolved once, before the run: a resolver
//! inside the measurement would be measured too.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// One URL under load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Where its name points (the first address).
    pub(crate) addr: SocketAddr,
    /// Host and port as they go into `Host`.
    pub(crate) authority: String,
    /// Path and query, from the first slash on.
    pub(crate) path: String,
}

impl Target {
    /// Reads and resolves a URL.
    ///
    /// # Errors
    /// Anything but plain `http`, and names that do not resolve.
    pub(crate) fn resolve(url: &str) -> Result<Self> {
        let (authority, path) = split(url)?;
        let host_port = if has_port(authority) { authority.to_owned() } else { format!("{authority}:80") };
        let addr = host_port
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve {authority:?} of {url:?}"))?
            .next()
            .with_context(|| format!("{authority:?} has no address"))?;
        Ok(Self { addr, authority: authority.to_owned(), path: path.to_owned() })
    }
}

fn split(url: &str) -> Result<(&str, &str)> {
    if url.starts_with("https://") {
        bail!("{url:?}: https is not supported; put the load on the plain port behind the TLS terminator");
    }
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("{url:?} is not a URL of the form http://host:port/path");
    };
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    if authority.is_empty() || authority.contains('@') {
        bail!("{url:?} names no host, or carries credentials (use --header for those)");
    }
    Ok((authority, if path.is_empty() { "/" } else { path }))
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn urls() {
        let target = Target::resolve("http://127.0.0.1:8080/mcp?x=1").unwrap();
        assert_eq!(target.addr, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("127.0.0.1:8080", "/mcp?x=1"));
        let bare = Target::resolve("http://127.0.0.1").unwrap();
        assert_eq!((bare.addr.port(), bare.path.as_str()), (80, "/"));
        assert_eq!(Target::resolve("http://[::1]:9/").unwrap().addr, "[::1]:9".parse().unwrap());
    }

    #[test]
    fn refusals() {
        for url in ["https://a/", "ftp://a/", "http://", "http://u:p@127.0.0.1/", "127.0.0.1:80"] {
            assert!(Target::resolve(url).is_err(), "{url}");
        }
    }
}
