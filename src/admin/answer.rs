//! What the admin listener says: bodies, and faults as JSON.
//!
//! Every answer forbids caches to keep it and browsers to guess its type.

use crate::limits::RETRY_AFTER_S;
use bytes::Bytes;
use http_body_util::{Either, Full, channel::Channel};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS},
};
use serde::Serialize;
use std::borrow::Cow;

/// All at once, or bit by bit.
pub(super) type Body = Either<Full<Bytes>, Channel<Bytes>>;

pub(super) const JSON: &str = "application/json";

/// An answer whose body is known.
pub(super) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    with_body(status, content_type, Either::Left(Full::new(body.into())))
}

/// An answer whose body comes as it comes.
pub(super) fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An answer that is one line of JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let mut body = serde_json::to_vec(value).expect("our own structures serialise");
    body.push(b'\n');
    whole(status, JSON, body)
}

/// Why something was not done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    error: Cow<'static, str>,
    /// The member of the request that is at fault, as a path.
    field: Option<Cow<'static, str>>,
    hint: Hint,
}

/// What helps a client on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    None,
    /// `Retry-After`
    Later,
    /// `Allow`
    Methods(&'static str),
}

#[derive(Serialize)]
struct FaultBody<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Fault {
    pub(super) fn new(status: StatusCode, error: impl Into<Cow<'static, str>>) -> Self {
        Fault { status, error: error.into(), field: None, hint: Hint::None }
    }

    /// 400, for what stands in `field`.
    pub(super) fn field(field: impl Into<Cow<'static, str>>, error: impl Into<Cow<'static, str>>) -> Self {
        Fault { field: Some(field.into()), ..Fault::new(StatusCode::BAD_REQUEST, error) }
    }

    /// 503, with a hint when to come back.
    pub(super) fn unavailable(error: impl Into<Cow<'static, str>>) -> Self {
        Fault { hint: Hint::Later, ..Fault::new(StatusCode::SERVICE_UNAVAILABLE, error) }
    }

    /// 405, with what is allowed.
    pub(super) fn method(allowed: &'static str) -> Self {
        let error = format!("this resource takes {allowed} only");
        Fault { hint: Hint::Methods(allowed), ..Fault::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let body = FaultBody { error: &self.error, field: self.field.as_deref() };
        let mut response = json(self.status, &body);
        let fields = response.headers_mut();
        match self.hint {
            Hint::None => None,
            Hint::Later => fields.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S)),
            Hint::Methods(allowed) => fields.insert(ALLOW, HeaderValue::from_static(allowed)),
        };
        response
    }
}
