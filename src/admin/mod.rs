//! The admin listener: what an operator asks a running server, and what other programs publish through it.
//!
//! Owns a socket on loopback, one thread, and the only way into the shards that is no client's. It is an ordinary small
//! HTTP server on a library, so that nothing of it is on the path of clients; it talks to the shards by mail and
//! shares no state with them.
//!
//! It must never show or log a session id, a token or a payload, and never let a web page in a browser on this
//! machine act through it: see [`guard`].
//!
//! Read in this order: [`connections`] (how many, for how long), [`routes`] (what there is), [`desk`] (talking to the
//! shards), then what each answer is made of: [`publish`], [`health`], [`metrics`], [`status`].

mod answer;
mod connections;
mod desk;
mod guard;
mod health;
mod metrics;
mod page;
mod process;
mod publish;
mod routes;
mod status;

use crate::{limits::ADMIN_WRITE_TIMEOUT_MS, shell::mailbox::Outside};
use desk::Desk;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::{LocalSet, spawn_local},
};

/// The socket, bound and listening, before anybody serves it.
#[derive(Debug)]
pub(crate) struct Socket(TcpListener);

impl Socket {
    /// Listens on `address`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // Connections inherit it: one whose peer takes no bytes must not keep its place.
        let patience = Duration::from_millis(ADMIN_WRITE_TIMEOUT_MS);
        socket2::SockRef::from(&listener).set_tcp_user_timeout(Some(patience))?;
        listener.set_nonblocking(true)?;
        Ok(Socket(listener))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Whether all shards accept: set once, by whoever started them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllListen(Arc<AtomicBool>);

impl AllListen {
    /// They do.
    pub(crate) fn confirm(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_confirmed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What may be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Larger messages are not.
    pub(crate) message_bytes_max: usize,
    /// Whether a principal can be named.
    pub(crate) owners: Owners,
}

/// Who owns sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Nobody: everybody is let in.
    Nobody,
    /// Whoever has proved to be somebody.
    Principals,
}

/// The thread that serves it. Ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin listener had failed; this is a bug");
        }
    }
}

/// Starts to serve `socket`.
///
/// # Errors
/// If the host refuses a thread or an event queue.
pub(crate) fn start(
    socket: Socket,
    outside: Outside,
    all_listen: AllListen,
    terms: Terms,
) -> io::Result<Admin> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::Builder::new().name("moorline-admin".into()).spawn(move || {
        let serve = async move {
            let desk = Rc::new(Desk::new(outside, all_listen, terms));
            match tokio::net::TcpListener::from_std(socket.0) {
                Ok(listener) => connections::accept(listener, desk).await,
                Err(error) => tracing::error!(%error, "the admin listener cannot be served"),
            }
        };
        LocalSet::new().block_on(&runtime, async {
            spawn_local(serve);
            // Nothing is sent: it resolves when the sender is dropped. What is served then ends with the set.
            let _ = stopped.await;
        });
    })?;
    Ok(Admin { stop: Some(stop), thread: Some(thread) })
}
