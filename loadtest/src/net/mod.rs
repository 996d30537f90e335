//! Sockets: where to connect, from which address, and which of them are ready.

pub(crate) mod dial;
pub(crate) mod poller;
pub(crate) mod target;
