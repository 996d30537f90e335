//! Moorline holds Model Context Protocol sessions and their event streams open, in very large
//! numbers, on few cores.
//!
//! The crate is a pure [`core`] behind a thin [`shell`]: the core turns bytes, clock ticks and backend
//! messages into effects and never performs one; the shell moves bytes through io_uring and knows no
//! protocol. [`backend`] is what stands behind both: the [`Service`](backend::Service) that answers
//! the calls. `ARCHITECTURE.md` has the map.

mod admin;
pub mod backend;
pub mod config;
pub mod core;
pub mod doctor;
pub mod limits;
pub mod server;
pub mod shell;
pub mod units;
