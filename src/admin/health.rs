//! Two questions of whoever supervises the process: should it be restarted, and should it get clients?

use super::{
    answer::{self, Body},
    desk::{Desk, Readiness},
};
use hyper::{Response, StatusCode};
use serde::Serialize;

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// 200 while every shard takes its turns. A shard that does not answer within
/// [`STATISTICS_TIMEOUT_MS`](crate::limits::STATISTICS_TIMEOUT_MS) serves nobody; only a restart helps. While the process
/// stops shards end one by one, which is no reason to kill it.
pub(super) async fn live(desk: &Desk) -> Response<Body> {
    if desk.readiness() == Readiness::Draining || desk.statistics().await.iter().all(Option::is_some) {
        return health(StatusCode::OK, "live");
    }
    health(StatusCode::SERVICE_UNAVAILABLE, "a shard does not answer")
}

/// 200 while newcomers are welcome: all shards listen, and the process does not stop.
pub(super) fn ready(desk: &Desk) -> Response<Body> {
    match desk.readiness() {
        Readiness::Starting => health(StatusCode::SERVICE_UNAVAILABLE, "starting"),
        Readiness::Ready => health(StatusCode::OK, "ready"),
        Readiness::Draining => health(StatusCode::SERVICE_UNAVAILABLE, "draining"),
    }
}

fn health(status: StatusCode, text: &'static str) -> Response<Body> {
    answer::json(status, &Health { status: text })
}
