//! `moorline-load`: a load generator for MCP servers.

fn main() {}
