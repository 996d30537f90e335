//! Keeps web pages out: a browser on this machine reaches loopback, and so does every page it shows.
//!
//! - `Host` must be a loopback name, or a page whose name was made to resolve to this machine (DNS rebinding) could read
//!   and publish.
//! - `Origin`, where a browser sends it, must be this listener's own.
//! - `Sec-Fetch-*`, which browsers send with what has no `Origin`, must not say that another site's page asks: images and
//!   frames could take all places of live pages. A link that a person follows is welcome.
//! - A publication must be `application/json`, which no page may send elsewhere without asking first; nobody answers that
//!   question here, for there is no CORS. [`publish`](super::publish) sees to it.

use super::answer::Fault;
use crate::core::http::authority::Authority;
use hyper::{
    Request, StatusCode,
    header::{HOST, HeaderMap, HeaderName, ORIGIN},
};

/// Lets a request pass that no foreign page can have made.
///
/// # Errors
/// 400 or 403, saying which rule.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Fault> {
    let host = only(request.headers(), &HOST)
        .ok_or_else(|| Fault::new(StatusCode::BAD_REQUEST, "exactly one Host header is needed"))?;
    let is_loopback = |authority: &[u8]| Authority::parse(authority).is_some_and(|it| it.is_loopback());
    let target = request.uri().authority();
    if !is_loopback(host) || target.is_some_and(|target| !is_loopback(target.as_str().as_bytes())) {
        let error = "the Host header must be a loopback name, such as localhost or 127.0.0.1";
        return Err(Fault::new(StatusCode::FORBIDDEN, error));
    }
    if request.headers().contains_key(ORIGIN) && !is_own_origin(request.headers(), host) {
        let error = "the Origin header is not this listener's own: other web pages may not use it";
        return Err(Fault::new(StatusCode::FORBIDDEN, error));
    }
    if is_fetched_by_another_site(request.headers()) {
        let error = "another site's page may not use this listener; open it by itself";
        return Err(Fault::new(StatusCode::FORBIDDEN, error));
    }
    Ok(())
}

fn is_fetched_by_another_site(fields: &HeaderMap) -> bool {
    let is =
        |name: &str, values: &[&[u8]]| fields.get(name).is_some_and(|it| values.contains(&it.as_bytes()));
    is("sec-fetch-site", &[b"cross-site", b"same-site"]) && !is("sec-fetch-dest", &[b"document"])
}

fn is_own_origin(fields: &HeaderMap, host: &[u8]) -> bool {
    only(fields, &ORIGIN).and_then(|origin| origin.strip_prefix(b"http://")) == Some(host)
}

fn only<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = fields.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    fn status(fields: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri("/status");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap()).map_or_else(|fault| fault.status.as_u16(), |()| 200)
    }

    #[test]
    fn loopback_names_pass_with_any_port() {
        for host in ["localhost", "localhost:9", "LOCALHOST", "127.0.0.1:9", "127.1.2.3", "[::1]:9"] {
            assert_eq!(status(&[("host", host)]), 200, "{host}");
        }
    }

    #[test]
    fn other_names_do_not() {
        for host in ["evil.example", "localhost.evil.example", "192.0.2.1:9", "[2001:db8::1]", "", "a b"] {
            assert_eq!(status(&[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&[]), 400);
        assert_eq!(status(&[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn only_the_own_origin_passes() {
        let origin = |origin| status(&[("host", "localhost:9"), ("origin", origin)]);
        assert_eq!(origin("http://localhost:9"), 200);
        for foreign in
            ["http://localhost", "https://localhost:9", "http://127.0.0.1:9", "http://evil.example", "null"]
        {
            assert_eq!(origin(foreign), 403, "{foreign}");
        }
    }

    #[test]
    fn other_sites_may_link_here_and_nothing_else() {
        let fetched = |site, dest| {
            status(&[("host", "localhost:9"), ("sec-fetch-site", site), ("sec-fetch-dest", dest)])
        };
        for (site, dest) in [("same-origin", "empty"), ("none", "document"), ("cross-site", "document")] {
            assert_eq!(fetched(site, dest), 200, "{site} {dest}");
        }
        for (site, dest) in [("cross-site", "image"), ("cross-site", "iframe"), ("same-site", "empty")] {
            assert_eq!(fetched(site, dest), 403, "{site} {dest}");
        }
    }

    #[test]
    fn an_absolute_target_is_no_way_around() {
        let request = Request::builder().uri("http://evil.example/status").header("host", "localhost");
        assert_eq!(check(&request.body(()).unwrap()).unwrap_err().status, 403);
    }
}
