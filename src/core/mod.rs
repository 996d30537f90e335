//! The pure core of a shard: inputs in, effects out.
//!
//! Nothing here performs I/O, reads a clock, draws randomness or waits. Time is an argument ([`Now`]),
//! entropy a source passed in, and everything to be done is pulled by the caller as [`Effect`]s and
//! output. That is what lets a test run whole shards with a virtual clock and fake sockets.
//!
//! Read in this order: [`seam`] (what goes in and comes out), [`shard`] (the facade), then a request's
//! way: [`http`] → [`jsonrpc`] → [`shard`] → [`sse`].
#![forbid(unsafe_code)]

mod access;
mod asks;
pub mod auth;
mod calls;
pub mod census;
pub mod config;
mod conn;
pub mod counters;
mod drain;
mod era;
mod eviction;
mod exchange;
pub mod http;
pub mod ids;
mod invariants;
pub mod journal;
pub mod jsonrpc;
pub mod ledger;
mod legacy;
mod listen;
mod listener;
mod log;
mod memory;
mod moved;
mod output;
mod publish;
mod queue;
pub mod quotas;
mod recovery;
mod refusals;
mod request;
pub mod seam;
mod session;
pub mod shard;
pub mod sse;
mod stream;
mod subscriptions;
mod table;
mod tag;
mod unproven;
pub mod wheel;

pub use request::ReadRequest;
pub use seam::*;
