//! The shell: the only part of the server that makes system calls.
//!
//! One thread per shard, on it one tokio-uring runtime, on that one task: the [`driver`] that owns
//! all connections of the shard as plain entries and moves bytes between the kernel and the
//! [core](crate::core). The shell knows sockets, operations and turns; it must never know a method,
//! a header or a session.
//!
//! Read in this order: [`driver`] (the order of a turn), `input` (what completed), `output` (what is
//! written and how reading is parked), `ending` (how connections end or move). Below them: `ring`
//! (operations on tokio-uring), `conn` (one entry), `listen` and `refuse` (newcomers), [`mailbox`]
//! (between shards), `socket`, `errno`, `files`, `signals`. Beside them: [`child`] (processes that a backend runs).

pub mod backend;
pub mod child;
pub mod driver;
pub mod mailbox;

mod conn;
pub(crate) mod counters;
mod ending;
pub(crate) mod entropy;
mod errno;
mod input;
mod notices;
mod output;
mod refuse;
mod ring;
mod socket;

pub(crate) mod doorbell;
pub(crate) mod files;
pub(crate) mod listen;
pub(crate) mod signals;
pub(crate) mod supervisor;

pub use backend::Backend;

/// What the shell keeps of one connection, in bytes, beside the operation of the ring that it is parked on.
pub const CONNECTION_BYTES: usize = size_of::<Option<conn::Conn>>();
