//! The `moorline` binary.

fn main() {}
