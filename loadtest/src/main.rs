//! `moorline-load`: a load generator for MCP servers.
//!
//! The parent process reads the command line, starts workers, watches the server and writes the
//! report; workers hold the connections. Nothing here shares code with a server.

#![forbid(unsafe_code)]

mod cli;
mod clock;
mod fleet;
mod http;
mod measure;
mod net;
mod parent;
mod plan;
mod report;
mod rpc;
mod scenario;
mod sse;
mod wire;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use cli::{Cli, Command};
use report::Report;
use report::text::Text;

/// Exit code of a run that could not be carried out.
const EXIT_NOT_RUN: u8 = 3;
/// Exit code of an incomplete report.
const EXIT_INCOMPLETE: u8 = 4;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == parent::workers::WORKER_ARGUMENT) {
        return worker::run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("moorline-load: {error:#}");
            ExitCode::from(EXIT_NOT_RUN)
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    let (job, args) = cli::job(command)?;
    for warning in &job.warnings {
        eprintln!("warning: {warning}");
    }
    let report = parent::conduct(job)?;
    print!("{}", Text(&report));
    if let Some(file) = &args.json {
        std::fs::write(file, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(verdict(&report))
}

fn verdict(report: &Report) -> ExitCode {
    if report.is_complete { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INCOMPLETE) }
}
