//! What can be typed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::http::request::Accept;
use crate::report::threshold::Condition;
use crate::report::units::parse_duration_ms;
use crate::rpc::Era;
use crate::scenario::mix::Action;

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
    /// Call a tool, at a rate (open loop) or as fast as the connections go
    Call(CallArgs),
    /// Make the server notify everyone; time the fan-out, count losses and duplicates
    Notify(NotifyArgs),
    /// Cut all streams at once and let everyone come back
    Storm(StormArgs),
    /// EventSource-like clients behind finished calls; count their GETs
    Leapfrog(LeapfrogArgs),
    /// Open and end sessions, or of 2026 listen streams; look for leaks
    Churn(ChurnArgs),
    /// Held streams and callers together, by weight
    Mixed(MixedArgs),
    /// Show a report that was written with --json, again or as HTML
    Report(ReportArgs),
    /// Compare two reports
    Compare(CompareArgs),
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
    /// Whose rules to speak under: sessions and GET streams, or requests without sessions and listen streams
    #[arg(long, value_enum, default_value = "2025", help_heading = "Server")]
    pub(crate) era: Era,
    /// The protocol version to ask for [default: 2025-11-25, of --era 2026 2026-07-28]
    #[arg(long, value_name = "VERSION", help_heading = "Server")]
    pub(crate) protocol_version: Option<String>,
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
    /// Load before the measured time [default: 2s for call, churn and mixed, else 0s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms, help_heading = "Measurement")]
    pub(crate) warm_up: Option<u64>,
    /// Fail (exit code 1) if a figure of the report meets this condition, such as 'p99>50ms' (repeatable)
    #[arg(long, value_name = "CONDITION", help_heading = "Measurement")]
    pub(crate) fail_if: Vec<Condition>,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
    /// No live view
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// No colours in the live view
    #[arg(long, help_heading = "Output")]
    pub(crate) no_color: bool,
}

/// Which tool is called.
#[derive(Debug, Args)]
pub(crate) struct ToolArgs {
    /// The tool to call
    #[arg(long, value_name = "NAME", default_value = "echo", help_heading = "Server")]
    pub(crate) tool: String,
    /// Its arguments as JSON; {marker} is replaced by a text that differs from call to call
    #[arg(long, value_name = "JSON", default_value = r#"{"message":"{marker}"}"#, help_heading = "Server")]
    pub(crate) args: String,
}

/// What makes the server notify everyone.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// POST here to make a server notify everyone (repeatable, one per server)
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) publish_url: Vec<String>,
    /// What to POST; {marker} is replaced by a text to recognise the notification by [default: a log message to all, of
    /// --era 2026 a changed list of tools]
    #[arg(long, value_name = "JSON", help_heading = "Server")]
    pub(crate) publish_body: Option<String>,
    /// Time between notifications
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) every: u64,
}

/// Options of `hold`.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// Streams, of 2025 each in a session of its own
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1_000, help_heading = "Load")]
    pub(crate) streams: u64,
    /// How long to hold them once all are up
    #[arg(long, short = 'd', alias = "duration", value_name = "TIME", default_value = "60s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) hold: u64,
    /// Notifications while holding, if --publish-url is given.
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `call`.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Connections, of 2025 each with a session of its own
    #[arg(long, short, value_name = "N", default_value_t = 32, help_heading = "Load")]
    pub(crate) connections: u64,
    /// Calls a second over all connections; without it each connection calls as fast as it gets answers
    #[arg(long, short, value_name = "RATE", help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// How long to measure
    #[arg(long, short = 'd', value_name = "TIME", default_value = "10s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) duration: u64,
    /// The tool.
    #[command(flatten)]
    pub(crate) tool: ToolArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `notify`.
#[derive(Debug, Args)]
pub(crate) struct NotifyArgs {
    /// Streams, of 2025 each in a session of its own
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1_000, help_heading = "Load")]
    pub(crate) streams: u64,
    /// How long to publish
    #[arg(long, short = 'd', value_name = "TIME", default_value = "10s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) duration: u64,
    /// What makes the server notify.
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    /// The tool that makes it notify everyone, where there is no --publish-url.
    #[command(flatten)]
    pub(crate) tool: ToolArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `storm`.
#[derive(Debug, Args)]
pub(crate) struct StormArgs {
    /// Streams, of 2025 each in a session of its own
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1_000, help_heading = "Load")]
    pub(crate) streams: u64,
    /// How often all streams are cut
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Load")]
    pub(crate) storms: u32,
    /// Time from one storm to the next
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) calm: u64,
    /// Come back with a plain GET instead of behind the last event
    #[arg(long, help_heading = "Load")]
    pub(crate) without_cursor: bool,
    /// Notifications meanwhile, if --publish-url is given.
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `leapfrog`.
#[derive(Debug, Args)]
pub(crate) struct LeapfrogArgs {
    /// Sessions
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, help_heading = "Load")]
    pub(crate) sessions: u64,
    /// Finished calls per session that an EventSource follows
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Load")]
    pub(crate) calls: u32,
    /// How long to measure
    #[arg(long, short = 'd', value_name = "TIME", default_value = "30s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) duration: u64,
    /// Notifications meanwhile, if --publish-url is given.
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    /// The tool.
    #[command(flatten)]
    pub(crate) tool: ToolArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `churn`.
#[derive(Debug, Args)]
pub(crate) struct ChurnArgs {
    /// Connections that open and end sessions one after the other
    #[arg(long, short, value_name = "N", default_value_t = 32, help_heading = "Load")]
    pub(crate) connections: u64,
    /// Sessions a second over all connections; without it as fast as they go
    #[arg(long, short, value_name = "RATE", help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// How long to measure
    #[arg(long, short = 'd', value_name = "TIME", default_value = "20s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) duration: u64,
    /// A new connection for each session
    #[arg(long, help_heading = "Load")]
    pub(crate) reconnect: bool,
    /// Leave every Nth session without DELETE; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Load")]
    pub(crate) abandon: u32,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `mixed`.
#[derive(Debug, Args)]
pub(crate) struct MixedArgs {
    /// Streams, of 2025 each in a session of its own
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1_000, help_heading = "Load")]
    pub(crate) streams: u64,
    /// Connections that act
    #[arg(long, short, value_name = "N", default_value_t = 32, help_heading = "Load")]
    pub(crate) connections: u64,
    /// Actions a second
    #[arg(long, short, value_name = "RATE", default_value_t = 100.0, help_heading = "Load")]
    pub(crate) rate: f64,
    /// Actions with their weights: call, list, ping, churn, reconnect
    #[arg(long, value_name = "ACTION=N,…", value_delimiter = ',', value_parser = parse_weight,
          default_value = "call=80,list=5,ping=5,churn=5,reconnect=5", help_heading = "Load")]
    pub(crate) mix: Vec<(Action, u32)>,
    /// How long to measure
    #[arg(long, short = 'd', value_name = "TIME", default_value = "30s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub(crate) duration: u64,
    /// Notifications meanwhile, if --publish-url is given.
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    /// The tool.
    #[command(flatten)]
    pub(crate) tool: ToolArgs,
    /// The options of every scenario.
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A report written with --json
    pub(crate) file: PathBuf,
    /// Write it as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Fail (exit code 1) if a figure of the report meets this condition (repeatable)
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
}

/// Options of `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The report to compare with
    pub(crate) base: PathBuf,
    /// The report to compare
    pub(crate) other: PathBuf,
    /// All figures, not only those worth a look
    #[arg(long)]
    pub(crate) all: bool,
}

fn parse_weight(text: &str) -> Result<(Action, u32), String> {
    let (action, weight) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form action=weight"))?;
    let action = <Action as clap::ValueEnum>::from_str(action.trim(), true)?;
    let weight = weight.trim().parse().map_err(|_| format!("{weight:?} is not a weight"))?;
    Ok((action, weight))
}
