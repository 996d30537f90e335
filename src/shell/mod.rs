//! The shell.

pub mod backend;
