//! What stands behind the core: the [`Service`] that answers calls, and the [`Host`] that runs one.
//!
//! Owns the Rust side of a backend: handlers, their contexts, the JSON of what they say. It knows the
//! [seam](crate::core::seam) and nothing of HTTP, streams, sessions' state or sockets: a handler cannot
//! tell whether its words travel in a JSON reply or on an event stream.
//!
//! Read in this order: [`service`] (what an author implements), [`context`] (what a handler can do while it
//! runs), [`params`] and [`notification`] (JSON in and out), [`host`] (how a shard runs handlers), and
//! [`builtin`] (the server that comes with the program, and the example to copy).
#![forbid(unsafe_code)]

pub mod builtin;
pub mod context;
pub mod host;
pub mod notification;
pub mod params;
pub mod service;
pub mod stdio;

#[cfg(test)]
mod rig;

pub use builtin::Builtin;
pub use context::Context;
pub use host::Host;
pub use params::ParamsError;
pub use service::{Capabilities, ListCapability, LoggingCapability, Reply, Request, ServerInfo, Service};
