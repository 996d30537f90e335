//! A program behind the server, over real sockets and pipes: every test starts a server of its own with a child that
//! behaves as its tools are asked to (`child.py`), and ends with a look for processes that were left behind.
//!
//! The client is the black-box tests' own.
#![allow(dead_code, reason = "the client can do more than these tests need")]

#[path = "../blackbox/events.rs"]
mod events;
#[path = "../blackbox/server.rs"]
mod server;
#[path = "../blackbox/session.rs"]
mod session;
#[path = "../blackbox/wire.rs"]
mod wire;

mod alone;
mod auto;
mod backpressure;
mod behind;
mod endings;
mod messages;
mod neighbours;
mod per_session;
mod shared;
mod told;

use std::time::{Duration, Instant};

/// How long anything expected may take before the test has failed. A child is an interpreter that has to start, on a
/// machine that runs other tests as well.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a stream is watched for a message too many.
const QUIET: Duration = Duration::from_millis(300);

/// Waits until `condition` holds.
///
/// # Panics
/// With `what` if it does not within [`PATIENCE`].
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
