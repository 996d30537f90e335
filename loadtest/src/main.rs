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

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use cli::{Cli, Command};
use report::Report;
use report::compare::Comparison;
use report::text::Text;
use report::threshold::Condition;

/// Exit code when a `--fail-if` condition held.
const EXIT_CONDITION: u8 = 1;
/// Exit code of a command line that cannot be used.
const EXIT_USAGE: u8 = 2;
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
    match command {
        Command::Report(args) => show(&args.file, args.html.as_deref(), &args.fail_if),
        Command::Compare(args) => {
            let (base, other) = (read(&args.base)?, read(&args.other)?);
            print!("{}", Comparison { base: &base, other: &other, is_full: args.all });
            Ok(ExitCode::SUCCESS)
        }
        _ => measure(command),
    }
}

fn measure(command: &Command) -> Result<ExitCode> {
    let (job, args) = match cli::job(command) {
        Ok(job) => job.context("not a scenario")?,
        Err(error) => {
            eprintln!("moorline-load: {error:#}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    for warning in &job.warnings {
        eprintln!("warning: {warning}");
    }
    let report = parent::conduct(job)?;
    print!("{}", Text(&report));
    if let Some(file) = &args.json {
        write(file, &serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(file) = &args.html {
        write(file, report::html::page(&report).as_bytes())?;
    }
    Ok(verdict(&report, &args.fail_if))
}

fn show(file: &Path, html: Option<&Path>, conditions: &[Condition]) -> Result<ExitCode> {
    let report = read(file)?;
    match html {
        Some(page) => write(page, report::html::page(&report).as_bytes())?,
        None => print!("{}", Text(&report)),
    }
    Ok(verdict(&report, conditions))
}

fn verdict(report: &Report, conditions: &[Condition]) -> ExitCode {
    let failures: Vec<String> =
        conditions.iter().filter_map(|condition| condition.check(&report.metrics)).collect();
    for failure in &failures {
        eprintln!("failed: {failure}");
    }
    match (report.is_complete, failures.is_empty()) {
        (false, _) => ExitCode::from(EXIT_INCOMPLETE),
        (true, false) => ExitCode::from(EXIT_CONDITION),
        (true, true) => ExitCode::SUCCESS,
    }
}

fn read(file: &Path) -> Result<Report> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let report: Report =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not a report", file.display()))?;
    if report.format != report::FORMAT {
        bail!(
            "{} has the format {:?}, this program reads {:?}",
            file.display(),
            report.format,
            report::FORMAT
        );
    }
    Ok(report)
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}
