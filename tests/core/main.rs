//! The core alone: rules of sessions, replies, streams and keep-alive with a virtual clock and fake sockets.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

#[path = "../world/mod.rs"]
mod world;

mod first_steps;
mod http;
mod posts;
mod sessions;
