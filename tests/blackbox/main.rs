//! The binary over real sockets: every test starts a server of its own on a port the kernel chose.
//!
//! Nothing here uses the server's code. The client below it is a few hundred lines of blocking I/O that read
//! what the standards say and panic at everything else. Tests wait for what they expect, with a deadline; where
//! they have to show that something does *not* happen they watch for a while, which
//! `MOORLINE_TEST_QUIET_MS` lengthens.

mod admin;
mod auth;
mod departures;
mod event_source;
mod events;
mod failover;
mod hostile;
mod hostile_attacks;
mod http;
#[path = "../core/issuer.rs"]
mod issuer;
mod jwt;
mod keep_alive;
mod legacy;
mod logs;
mod reconnects;
mod reload;
mod replies;
mod server;
mod session;
mod sessions;
mod shards;
mod stop;
mod supervisor;
mod wire;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};

/// How long anything expected may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a listener is watched for a message too many.
const QUIET: Duration = Duration::from_millis(300);

/// Makes one test each with one, two and four shards out of a function that takes the server.
macro_rules! on_every_shard_count {
    ($($(#[$doc:meta])* fn $name:ident($server:ident: &Server) $body:block)*) => {$(
        mod $name {
            use super::*;

            $(#[$doc])*
            fn check($server: &Server) $body

            #[test]
            fn on_1_shard() {
                check(&Server::start(&["--shards", "1"]));
            }

            #[test]
            fn on_2_shards() {
                check(&Server::start(&["--shards", "2"]));
            }

            #[test]
            fn on_4_shards() {
                check(&Server::start(&["--shards", "4"]));
            }
        }
    )*};
}
use on_every_shard_count;

/// Lets this process open as many files as the machine lets it.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the hard limit");
}

/// Waits until `condition` holds.
///
/// # Panics
/// With `what` if it does not within [`PATIENCE`].
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
