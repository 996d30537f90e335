//! `/`: one page that shows the server at work, and `/live`, the events that keep it current.
//!
//! The page is one file without references, so that it works where there is no network. An event is `/status` as it is
//! at that moment; the page computes rates from two of them.

use super::{
    answer::{self, Body, Fault},
    desk::Desk,
    status::Status,
};
use crate::limits::{LIVE_INTERVAL_MS, WRITE_TIMEOUT_MS};
use bytes::Bytes;
use http_body_util::{Either, channel::Channel};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_SECURITY_POLICY, HeaderValue},
};
use std::{rc::Rc, time::Duration};
use tokio::{
    task::spawn_local,
    time::{MissedTickBehavior, interval, timeout},
};

const PAGE: &str = include_str!("page.html");
/// Nothing from elsewhere, nothing to elsewhere, and no frame around it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn page() -> Response<Body> {
    let mut response = answer::whole(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// A stream of states, one every [`LIVE_INTERVAL_MS`].
pub(super) fn live(desk: &Rc<Desk>) -> Result<Response<Body>, Fault> {
    let full = || Fault::unavailable("as many live pages as may be are open");
    let place = desk.place_for_live_page().ok_or_else(full)?;
    let (mut sender, body) = Channel::new(1);
    let desk = Rc::clone(desk);
    spawn_local(async move {
        let _place = place;
        let mut ticks = interval(Duration::from_millis(LIVE_INTERVAL_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let event = event(&Status::read(&desk).await);
            // Whoever left, or reads nothing for long, has had enough.
            let sent = timeout(Duration::from_millis(WRITE_TIMEOUT_MS), sender.send_data(event)).await;
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
        }
    });
    Ok(answer::with_body(StatusCode::OK, "text/event-stream", Either::Right(body)))
}

fn event(status: &Status) -> Bytes {
    let mut event = b"data: ".to_vec();
    serde_json::to_writer(&mut event, status).expect("our own structures serialise");
    event.extend_from_slice(b"\n\n");
    event.into()
}
