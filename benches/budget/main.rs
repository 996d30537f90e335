//! Each budget as a ratio: the server and a bare io_uring loop in turn, on this machine, under the same load.
//!
//! `cargo build --release --workspace && cargo bench --bench budget` runs all of it and prints tables; `-- --pairs 5` says how
//! often each pair is measured, and names pick parts: a line (`calls`, `comments`, …), or `latency`, `idle`,
//! `memory`, `counts`; `-- --list` names them all. Every pair is a fresh process of each; who goes first alternates. What
//! is printed is the median over the pairs, the quartiles of the ratio, and its extremes: on a shared machine a ratio says
//! more than a time.
//!
//! Without `--bench` (as a test) it runs one short pair of each kind and judges nothing.
#![allow(missing_docs, reason = "a program")]

mod bare;
mod canned;
mod contest;
mod counts;
mod lines;
mod mass;
mod print;
mod provided;
mod runtime;

use bare::{Features, Receive, TaskWork};
use canned::Reply;
use std::{error::Error, process::ExitCode};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [first, interval_ms, features @ ..] if first == "bare-loop" => bare_loop(interval_ms, features),
        [first, interval_ms, ..] if first == "runtime-loop" => runtime_loop(interval_ms),
        [only, ..] if only == "--list" => {
            names().for_each(|name| println!("{name}"));
            Ok(())
        }
        _ => compare(&Plan::of(&arguments)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bare_loop(interval_ms: &str, features: &[String]) -> Outcome<()> {
    let has = |feature: &str| features.iter().any(|other| other == feature);
    let reply = match () {
        () if has("sse") => Reply::Sse,
        () if has("large") => Reply::Large,
        () => Reply::Json,
    };
    let receive = match () {
        () if has("multishot") => Receive::Multishot,
        () if has("ready") => Receive::Ready,
        () => Receive::Single,
    };
    let task_work = if has("deferred") { TaskWork::Deferred } else { TaskWork::Cooperative };
    Ok(bare::run(bare::listen()?, interval_ms.parse()?, reply, Features { receive, task_work })?)
}

fn runtime_loop(interval_ms: &str) -> Outcome<()> {
    Ok(runtime::run(bare::listen()?.into(), interval_ms.parse()?, Reply::Json)?)
}

/// How much is measured.
struct Plan {
    pairs: usize,
    /// Rounds of what is compared within a round.
    rounds: usize,
    seconds: u64,
    streams: usize,
    /// Streams beside which calls are timed.
    mass: usize,
    /// Clients at which memory is measured.
    sizes: [usize; 3],
    /// What is asked for; everything if nothing is.
    only: Vec<String>,
}

impl Plan {
    fn of(arguments: &[String]) -> Self {
        let plan = match arguments.iter().any(|argument| argument == "--bench") {
            true => Plan {
                pairs: 15,
                rounds: 5,
                seconds: 4,
                streams: 10_000,
                mass: 15_000,
                sizes: [2_000, 10_000, 19_000],
                only: Vec::new(),
            },
            false => Plan {
                pairs: 1,
                rounds: 1,
                seconds: 1,
                streams: 50,
                mass: 50,
                sizes: [20, 50, 100],
                only: ["comments", "calls"].map(String::from).into(),
            },
        };
        let pairs = arguments.iter().skip_while(|argument| *argument != "--pairs").nth(1);
        let pairs = pairs.and_then(|pairs| pairs.parse().ok()).unwrap_or(plan.pairs);
        let only: Vec<String> =
            arguments.iter().filter(|argument| names().any(|name| name == **argument)).cloned().collect();
        Plan {
            pairs,
            rounds: plan.rounds.min(pairs),
            only: if only.is_empty() { plan.only } else { only },
            ..plan
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// A part that is no line of pairs: it prints a table of its own.
type Part = fn(&Plan) -> Outcome<()>;

const PARTS: [(&str, Part); 4] =
    [("latency", mass::latency), ("idle", mass::idle), ("memory", mass::memory), ("counts", counts::print)];

fn names() -> impl Iterator<Item = &'static str> {
    lines::LINES.iter().map(|line| line.name).chain(PARTS.iter().map(|(name, _)| *name))
}

fn compare(plan: &Plan) -> Outcome<()> {
    let load = contest::load_program();
    if !load.exists() {
        println!("{} is not built: cargo build --release --workspace", load.display());
        return Ok(());
    }
    print::pairs_head();
    let mut outcome = Ok(());
    // One part that fails does not take the others with it.
    let mut note = |name: &str, result: Outcome<()>| {
        if let Err(error) = result {
            println!("{name}: {error}");
            outcome = Err("not everything could be measured".into());
        }
    };
    for line in lines::LINES.iter().filter(|line| plan.wants(line.name)) {
        note(line.name, line.run(plan));
    }
    for (name, part) in PARTS.iter().filter(|(name, _)| plan.wants(name)) {
        note(name, part(plan));
    }
    outcome
}
