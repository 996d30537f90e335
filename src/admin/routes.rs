//! What there is on the admin listener.

use super::{
    answer::{Body, Fault},
    desk::Desk,
    guard, health, metrics, page, publish, status,
};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use std::rc::Rc;

/// Answers a request, whatever it is.
pub(super) async fn answer(request: Request<Incoming>, desk: &Rc<Desk>) -> Response<Body> {
    match route(request, desk).await {
        Ok(response) => response,
        Err(fault) => fault.into_response(),
    }
}

async fn route(request: Request<Incoming>, desk: &Rc<Desk>) -> Result<Response<Body>, Fault> {
    guard::check(&request)?;
    match request.uri().path() {
        "/publish" if request.method() == Method::POST => publish::answer(request, desk).await,
        "/publish" => Err(Fault::method("POST")),
        path @ ("/" | "/live" | "/livez" | "/readyz" | "/metrics" | "/status") => {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Err(Fault::method("GET, HEAD"));
            }
            match path {
                "/livez" => Ok(health::live(desk).await),
                "/readyz" => Ok(health::ready(desk)),
                "/metrics" => Ok(metrics::answer(desk).await),
                "/status" => Ok(status::answer(desk).await),
                "/live" => page::live(desk),
                _ => Ok(page::page()),
            }
        }
        _ => {
            let error = "there is / (live page), /publish, /livez, /readyz, /metrics and /status";
            Err(Fault::new(StatusCode::NOT_FOUND, error))
        }
    }
}
