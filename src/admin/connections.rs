//! Connections to the admin listener: how many there are, and how long they may idle.
//!
//! Bounded: [`ADMIN_CONNECTIONS_MAX`] at a time, each with one head buffer of at most [`HEAD_BYTES_MAX`]; whoever comes
//! beyond that waits in the kernel's backlog.
//! A peer that takes no bytes is cut by the kernel after [`ADMIN_WRITE_TIMEOUT_MS`](crate::limits::ADMIN_WRITE_TIMEOUT_MS).

use super::{desk::Desk, routes};
use crate::limits::{ADMIN_CONNECTIONS_MAX, HEAD_BYTES_MAX, HEADER_TIMEOUT_MS};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, rc::Rc, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::spawn_local,
};

/// What a failed accept waits before the next, so that a lack of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves whoever connects, until it is dropped.
pub(super) async fn accept(listener: TcpListener, desk: Rc<Desk>) {
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = Rc::clone(&desk);
                spawn_local(async move {
                    serve(stream, desk).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the admin listener");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, desk: Rc<Desk>) {
    let service = service_fn(move |request| {
        let desk = Rc::clone(&desk);
        async move { Ok::<_, Infallible>(routes::answer(request, &desk).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEADER_TIMEOUT_MS))
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection ended early");
    }
}
