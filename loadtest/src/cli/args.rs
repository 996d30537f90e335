//! What can be typed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::http::request::Accept;
use crate::report::units::parse_duration_ms;

/// Load for any MCP server over Streamable HTTP, measured honestly.
///
/// Exit codes: 0 measured; 1 a --fail-if condition held; 2 usage; 3 the run could not be carried out;
/// 4 a worker crashed, so the report is incomplete.
#[derive(Debug, Parser)]
#[command(name = "moorline-load", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold many streams; count closes, silence, losses, memory and CPU per stream
    Hold(HoldArgs),
}

/// Options every scenario has.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The MCP endpoint; repeat it to spread the clients over several servers
    #[arg(long, short, required = true, value_name = "URL", help_heading = "Server")]
    pub(crate) url: Vec<String>,
    /// A header for every request, such as 'Authorization: Bearer …' (repeatable)
    #[arg(long, short = 'H', value_name = "LINE", help_heading = "Server")]
    pub(crate) header: Vec<String>,
    /// A process of the server, for its memory and CPU; its children count too (repeatable)
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pub(crate) pid: Vec<u32>,
    /// The protocol version to ask for
    #[arg(long, value_name = "VERSION", default_value = "2025-11-25", help_heading = "Server")]
    pub(crate) protocol_version: String,
    /// What POSTs accept as an answer
    #[arg(long, value_enum, default_value = "both", help_heading = "Server")]
    pub(crate) accept: Accept,
    /// The server's keep-alive interval, which lateness is measured against
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration_ms, help_heading = "Server")]
    pub(crate) keep_alive: u64,

    /// Clients opened a second; 0 is as fast as they come
    #[arg(long, value_name = "RATE", default_value_t = 2_000.0, help_heading = "Load")]
    pub(crate) ramp: f64,
    /// Handshakes under way at once, per worker
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Load")]
    pub(crate) in_flight: u64,
    /// How long the server may take to answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) timeout: u64,
    /// Worker processes; by default as many as the limit of open files demands
    #[arg(long, short, value_name = "N", help_heading = "Load")]
    pub(crate) workers: Option<u32>,
    /// A source address to connect from (repeatable); to loopback servers 127.0.0.0/8 is used by itself
    #[arg(long, value_name = "ADDRESS", help_heading = "Load")]
    pub(crate) source: Vec<IpAddr>,

    /// Pause the ramp at these numbers of clients to measure the server's memory
    #[arg(long, value_name = "N,N", value_delimiter = ',', help_heading = "Measurement")]
    pub(crate) measure_at: Vec<u64>,
    /// Quiet time before each measurement of memory
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration_ms, help_heading = "Measurement")]
    pub(crate) settle: u64,
    /// Load before the measured time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration_ms, help_heading = "Measurement")]
    pub(crate) warm_up: u64,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
    /// No live view
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// No colours in the live view
    #[arg(long, help_heading = "Output")]
    pub(crate) no_color: bool,
}

/// Options of `hold`.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// Streams, each in a session of its own
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1_000, help_heading = "Load")]
    pub(crate) streams: u64,
    /// How long to hold them once all are up
    #[arg(long, alias = "duration", value_name = "TIME", default_value = "60s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) hold: u64,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}
