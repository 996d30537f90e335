//! From what was typed to a job: addresses resolved, limits looked at, defaults filled in.

use anyhow::{Context, Result, bail};

use super::args::{
    CallArgs, ChurnArgs, Command, HoldArgs, LeapfrogArgs, MixedArgs, NotifyArgs, PublishArgs, RunArgs,
    StormArgs, ToolArgs,
};
use crate::clock::Moment;
use crate::http::request::Wording;
use crate::net::target::Target;
use crate::parent::{Job, Readiness, Wanted, Wish, preflight};
use crate::plan::{Calls, Plan, Publishing, Recognition, Scenario, Storms, ToolCall, Trigger};
use crate::rpc::Era;
use crate::scenario::mix::Action;

/// The parts of a job that differ between scenarios.
struct Shape {
    name: &'static str,
    clients_count: u64,
    warm_up_ms: u64,
    measured_ms: u64,
    call: ToolCall,
    publishing: Option<Publishing>,
    scenario: Scenario,
}

/// Load before the measured time where caches and pools matter, in milliseconds.
const WARM_UP_MS: u64 = 2_000;

/// The job that a scenario's command asks for; `None` when it is no scenario.
///
/// # Errors
/// URLs, headers or arguments that cannot be used.
pub(crate) fn job(command: &Command) -> Result<Option<(Job, &RunArgs)>> {
    let (shape, run) = match command {
        Command::Hold(args) => (hold(args)?, &args.run),
        Command::Call(args) => (call(args)?, &args.run),
        Command::Notify(args) => (notify(args)?, &args.run),
        Command::Storm(args) => (storm(args)?, &args.run),
        Command::Leapfrog(args) => (leapfrog(args)?, &args.run),
        Command::Churn(args) => (churn(args), &args.run),
        Command::Mixed(args) => (mixed(args)?, &args.run),
        Command::Report(_) | Command::Compare(_) => return Ok(None),
    };
    check_era(command, &shape, run.era)?;
    Ok(Some((assemble(shape, run)?, run)))
}

/// Refuses what the era does not have, rather than measure something else.
fn check_era(command: &Command, shape: &Shape, era: Era) -> Result<()> {
    if era == Era::Sessions {
        return Ok(());
    }
    match command {
        Command::Leapfrog(_) => bail!("leapfrog follows event ids, which 2026-07-28 does not have"),
        Command::Storm(_) if shape.publishing.is_some() => {
            bail!("storm cannot expect what was published meanwhile: 2026-07-28 does not have a replay")
        }
        Command::Churn(args) if args.abandon > 0 => {
            bail!("--abandon is about sessions, which 2026-07-28 does not have")
        }
        _ if !shape.call.tool.bytes().all(|byte| byte.is_ascii_graphic()) => {
            bail!("--tool {:?} does not fit into a header, as 2026-07-28 demands", shape.call.tool)
        }
        _ => Ok(()),
    }
}

fn hold(args: &HoldArgs) -> Result<Shape> {
    Ok(Shape {
        name: "hold",
        clients_count: args.streams,
        warm_up_ms: 0,
        measured_ms: args.hold,
        call: no_tool(),
        publishing: posting(&args.publish, args.run.era)?,
        scenario: Scenario::Hold,
    })
}

fn call(args: &CallArgs) -> Result<Shape> {
    Ok(Shape {
        name: "call",
        clients_count: args.connections,
        warm_up_ms: WARM_UP_MS,
        measured_ms: args.duration,
        call: tool(&args.tool)?,
        publishing: None,
        scenario: Scenario::Call(Calls {
            per_second: args.rate,
            mix: vec![(Action::Call, 1)],
            callers_count: args.connections,
            fresh_connections: false,
            abandon_every: 0,
        }),
    })
}

fn notify(args: &NotifyArgs) -> Result<Shape> {
    let by_tool = Publishing {
        trigger: Trigger::Tool,
        every_ms: args.publish.every,
        recognition: Recognition::of(&args.tool.args),
    };
    Ok(Shape {
        name: "notify",
        clients_count: args.streams,
        warm_up_ms: 0,
        measured_ms: args.duration,
        call: tool(&args.tool)?,
        publishing: Some(posting(&args.publish, args.run.era)?.unwrap_or(by_tool)),
        scenario: Scenario::Hold,
    })
}

fn storm(args: &StormArgs) -> Result<Shape> {
    Ok(Shape {
        name: "storm",
        clients_count: args.streams,
        warm_up_ms: 0,
        measured_ms: args.calm.saturating_mul(u64::from(args.storms)),
        call: no_tool(),
        publishing: posting(&args.publish, args.run.era)?,
        scenario: Scenario::Storm(Storms {
            storms_count: args.storms,
            every_ms: args.calm,
            has_cursor: !args.without_cursor,
        }),
    })
}

fn leapfrog(args: &LeapfrogArgs) -> Result<Shape> {
    Ok(Shape {
        name: "leapfrog",
        clients_count: args.sessions,
        warm_up_ms: 0,
        measured_ms: args.duration,
        call: tool(&args.tool)?,
        publishing: posting(&args.publish, args.run.era)?,
        scenario: Scenario::Leapfrog(args.calls),
    })
}

fn churn(args: &ChurnArgs) -> Shape {
    Shape {
        name: "churn",
        clients_count: args.connections,
        warm_up_ms: WARM_UP_MS,
        measured_ms: args.duration,
        call: no_tool(),
        publishing: None,
        scenario: Scenario::Call(Calls {
            per_second: args.rate,
            mix: vec![(Action::Churn, 1)],
            callers_count: args.connections,
            fresh_connections: args.reconnect,
            abandon_every: args.abandon,
        }),
    }
}

fn mixed(args: &MixedArgs) -> Result<Shape> {
    Ok(Shape {
        name: "mixed",
        clients_count: args.streams + args.connections,
        warm_up_ms: WARM_UP_MS,
        measured_ms: args.duration,
        call: tool(&args.tool)?,
        publishing: posting(&args.publish, args.run.era)?,
        scenario: Scenario::Mixed(Calls {
            per_second: Some(args.rate),
            mix: args.mix.clone(),
            callers_count: args.connections,
            fresh_connections: false,
            abandon_every: 0,
        }),
    })
}

fn no_tool() -> ToolCall {
    ToolCall { tool: String::new(), arguments: "{}".to_owned() }
}

fn tool(args: &ToolArgs) -> Result<ToolCall> {
    check_json("--args", &args.args)?;
    Ok(ToolCall { tool: args.tool.clone(), arguments: args.args.clone() })
}

/// Something every client gets that is there: a log message in a session; of 2026 logs belong to requests, lists to everyone.
fn publish_body_of(era: Era) -> &'static str {
    match era {
        Era::Sessions => {
            r#"{"to":"all","method":"notifications/message","params":{"level":"info","logger":"load","data":"{marker}"}}"#
        }
        Era::Stateless => {
            r#"{"to":"all","method":"notifications/tools/list_changed","params":{"_meta":{"load":"{marker}"}}}"#
        }
    }
}

fn posting(args: &PublishArgs, era: Era) -> Result<Option<Publishing>> {
    if args.publish_url.is_empty() {
        return Ok(None);
    }
    let body = args.publish_body.as_deref().unwrap_or(publish_body_of(era));
    check_json("--publish-body", body)?;
    let targets = args.publish_url.iter().map(|url| Target::resolve(url)).collect::<Result<_>>()?;
    let trigger = Trigger::Post { targets, body: body.to_owned() };
    let recognition = Recognition::of(body);
    Ok(Some(Publishing { trigger, every_ms: args.every, recognition }))
}

fn check_json(option: &str, text: &str) -> Result<()> {
    serde_json::from_str::<serde::de::IgnoredAny>(&text.replace("{marker}", "m"))
        .map(|_| ())
        .with_context(|| format!("{option} {text:?} is not JSON"))
}

fn assemble(shape: Shape, run: &RunArgs) -> Result<Job> {
    let targets: Vec<Target> = run.url.iter().map(|url| Target::resolve(url)).collect::<Result<_>>()?;
    let Readiness { workers_count, warnings } = preflight(&Wanted {
        clients_count: shape.clients_count,
        workers_count: run.workers,
        targets: &targets,
        sources_count: run.source.len(),
        pids: &run.pid,
    });
    let plan = Plan {
        worker_index: 0,
        workers_count: 1,
        targets,
        wording: Wording {
            era: run.era,
            protocol_version: version(run)?,
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
        warm_up_ms: run.warm_up.unwrap_or(shape.warm_up_ms),
        measured_ms: shape.measured_ms,
        pids: run.pid.clone(),
        wish: wish(run),
        warnings,
    })
}

/// The version goes into a header as it is.
fn version(run: &RunArgs) -> Result<String> {
    let version = run.protocol_version.as_deref().unwrap_or(run.era.protocol_version());
    if !version.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("--protocol-version {version:?} has characters that a header must not have");
    }
    Ok(version.to_owned())
}

/// A header line as it goes on the wire; one that would split a request is refused.
fn header(line: &str) -> Result<String> {
    let Some((name, value)) = line.split_once(':') else {
        bail!("--header {line:?} is not of the form 'Name: value'")
    };
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
