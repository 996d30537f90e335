//! What stands behind the core: the [`Service`] that answers calls, and the [`Host`] that runs one.
//!
//! Owns the Rust side of a backend: handlers, their contexts, the JSON of what they say. It knows the
//! [seam](crate::core::seam) and nothing of HTTP, streams, sessions' state or sockets: a handler cannot
//! tell whether its words travel in a JSON reply or on an event stream.
//!
//! Read in this order: [`server`] (the builder most servers are made with), [`service`] (the trait for the rest),
//! [`context`] and [`client`] (what a handler can do while it runs), [`model`], [`notification`] and [`params`] (JSON
//! in and out), [`host`] (how a shard runs handlers), and [`builtin`] (the server that comes with the program).
//! `docs/writing-a-server.md` tells the same from an author's side.
#![forbid(unsafe_code)]

mod asks;
pub mod builtin;
pub mod client;
pub mod context;
mod failure;
pub mod host;
mod info;
mod inquiry;
mod members;
pub mod model;
pub mod notification;
pub mod params;
mod rounds;
pub mod schema;
mod serve;
pub mod server;
pub mod service;
mod stamp;
pub mod stdio;
pub mod tasks;

#[cfg(test)]
mod rig;

/// The page for authors; its examples have to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/writing-a-server.md")]
mod writing_a_server {}

pub use builtin::Builtin;
pub use client::{AskError, Client, Elicited, Root, UrlElicitation};
pub use context::{Context, Outlet};
pub use failure::{Failure, URL_ELICITATION_REQUIRED};
pub use host::Host;
pub use info::{
    CacheScope, Caching, Capabilities, EmptyCapability, Implementation, ListCapability, ResourcesCapability,
    ServerInfo,
};
pub use params::ParamsError;
pub use serve::{ServeError, serve};
pub use server::{BuildError, Builder, NoArguments, Prompt, Resource, Server, Template, Tool};
pub use service::{Reply, Request, Service};
pub use tasks::Tasks;
