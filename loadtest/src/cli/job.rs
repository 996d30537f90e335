//! From what was typed to a job: addresses resolved, limits looked at, defaults filled in.

use anyhow::{Result, bail};

use super::args::{Command, HoldArgs, RunArgs};
use crate::clock::Moment;
use crate::http::request::Wording;
use crate::net::target::Target;
use crate::parent::{Job, Readiness, Wish, preflight};
use crate::plan::{Plan, Publishing, Scenario, ToolCall};

/// The parts of a job that differ between scenarios.
struct Shape {
    name: &'static str,
    clients_count: u64,
    measured_ms: u64,
    call: ToolCall,
    publishing: Option<Publishing>,
    scenario: Scenario,
}

/// The job that a scenario's command asks for.
///
/// # Errors
/// URLs or headers that cannot be used.
pub(crate) fn job(command: &Command) -> Result<(Job, &RunArgs)> {
    let (shape, run) = match command {
        Command::Hold(args) => (hold(args), &args.run),
    };
    Ok((assemble(shape, run)?, run))
}

fn hold(args: &HoldArgs) -> Shape {
    Shape {
        name: "hold",
        clients_count: args.streams,
        measured_ms: args.hold,
        call: ToolCall { tool: String::new(), arguments: "{}".into() },
        publishing: None,
        scenario: Scenario::Hold,
    }
}

fn assemble(shape: Shape, run: &RunArgs) -> Result<Job> {
    let Readiness { workers_count, warnings } = preflight(shape.clients_count, run.workers);
    let plan = Plan {
        worker_index: 0,
        targets: run.url.iter().map(|url| Target::resolve(url)).collect::<Result<_>>()?,
        wording: Wording {
            protocol_version: run.protocol_version.clone(),
            headers: run.header.iter().map(|line| header(line)).collect::<Result<_>>()?,
            accept: run.accept,
        },
        sources: run.source.clone(),
        run: run_number(),
        timeout_ms: run.timeout,
        in_flight_max: run.in_flight,
        keep_alive_ms: run.keep_alive,
        call: shape.call,
        publishing: shape.publishing,
        scenario: shape.scenario,
    };
    Ok(Job {
        name: shape.name.to_owned(),
        plan,
        workers_count,
        clients_count: shape.clients_count,
        ramp_per_second: run.ramp,
        measure_at: run.measure_at.clone(),
        settle_ms: run.settle,
        warm_up_ms: run.warm_up,
        measured_ms: shape.measured_ms,
        pids: run.pid.clone(),
        wish: wish(run),
        warnings,
    })
}

/// A header line as it goes on the wire; one that would split a request is refused.
fn header(line: &str) -> Result<String> {
    let Some((name, value)) = line.split_once(':') else { bail!("--header {line:?} is not of the form 'Name: value'") };
    let is_token = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
    if !is_token(name) || value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        bail!("--header {name:?} has characters that a header must not have");
    }
    Ok(format!("{name}: {}", value.trim()))
}

/// A number that differs between runs.
fn run_number() -> u32 {
    let mixed = Moment::now().us_since(Moment::default()) ^ (u64::from(std::process::id()) << 20);
    u32::try_from(mixed & u64::from(u32::MAX)).expect("was masked to 32 bits")
}

fn wish(run: &RunArgs) -> Wish {
    match (run.quiet, run.no_color) {
        (true, _) => Wish::Nothing,
        (false, true) => Wish::Colorless,
        (false, false) => Wish::Fitting,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
    use super::*;

    #[test]
    fn headers_cannot_split_a_request() {
        assert_eq!(header("Authorization:Bearer x").unwrap(), "Authorization: Bearer x");
        for line in ["no colon", ": empty", "A: b\r\nC: d", "A B: c"] {
            assert!(header(line).is_err(), "{line:?}");
        }
    }
}
