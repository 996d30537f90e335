//! The core alone: rules of sessions, replies, streams and keep-alive with a virtual clock and fake sockets.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

#[path = "../world/mod.rs"]
mod world;

mod asks;
mod auth;
mod bodies;
mod bounds;
mod broadcast;
mod election_model;
mod era;
mod exchanges;
mod fairness;
mod first_steps;
mod http;
mod issuer;
mod jwt;
mod keep_alive;
mod kept;
mod legacy;
mod listeners;
mod listens;
mod listens_model;
mod memory;
mod posts;
mod publish;
mod queue;
mod recovery;
mod replay;
mod sessions;
mod shards;
mod stop;
mod subscriptions;
mod unread;
