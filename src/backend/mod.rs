//! Backends.
