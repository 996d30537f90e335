//! System calls and ring entries per unit, counted by `strace`: they decide where times are too wide.
//!
//! Two runs of different length, each traced from its start; the slope leaves the start and the ramp out.

use super::{
    Outcome, Plan,
    contest::{Load, Side, figure, start, words},
};
use std::process::Command;

/// What one traced run made of how many units.
#[derive(Clone, Copy, Default)]
struct Traced {
    units: f64,
    calls: f64,
    enters: f64,
    entries: f64,
}

pub(crate) fn print(plan: &Plan) -> Outcome<()> {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("\nNo strace here: system calls and ring entries are not counted");
        return Ok(());
    }
    println!("\n| counts per unit | unit | system calls | io_uring_enter | ring entries |");
    println!("|---|---|---|---|---|");
    let calls: [(&str, Side); 6] = [
        ("server", Side::Server(&["--shards", "1"])),
        ("bare loop", Side::Bare(&["15000"])),
        ("bare loop, poll and receive", Side::Bare(&["15000", "ready"])),
        ("bare loop, multishot", Side::Bare(&["15000", "multishot"])),
        ("bare loop, multishot and deferred", Side::Bare(&["15000", "multishot", "deferred"])),
        ("bare tokio-uring", Side::Runtime(&["15000"])),
    ];
    for (name, side) in calls {
        row(
            name,
            "call",
            side,
            |seconds| format!("call -c 32 -d {seconds}s --warm-up 0s"),
            "counts.requests",
            plan,
        )?;
    }
    let comments: [(&str, Side); 4] = [
        ("server", Side::Server(&["--shards", "1", "--keep-alive", "1s"])),
        ("bare loop", Side::Bare(&["1000"])),
        ("bare loop, multishot and deferred", Side::Bare(&["1000", "multishot", "deferred"])),
        ("bare tokio-uring", Side::Runtime(&["1000"])),
    ];
    let hold = |seconds| format!("hold -n 1000 --ramp 0 -d {seconds}s --keep-alive 1s");
    for (name, side) in comments {
        row(name, "keep-alive", side, hold, "counts.keep_alives", plan)?;
    }
    Ok(())
}

fn row(
    name: &str,
    unit: &str,
    side: Side,
    load: impl Fn(u64) -> String,
    units: &str,
    plan: &Plan,
) -> Outcome<()> {
    let short = traced(side, &load(1), units)?;
    let long = traced(side, &load(1 + plan.seconds), units)?;
    let slope = |of: fn(&Traced) -> f64| (of(&long) - of(&short)) / (long.units - short.units);
    println!(
        "| {name} | {unit} | {:.2} | {:.2} | {:.2} |",
        slope(|traced| traced.calls),
        slope(|traced| traced.enters),
        slope(|traced| traced.entries)
    );
    Ok(())
}

fn traced(side: Side, load: &str, units: &str) -> Outcome<Traced> {
    let trace = tempfile::NamedTempFile::new()?;
    let tracer = words(&format!("strace -f -qq -e signal=none -o {}", trace.path().display()));
    let server = start(side, &tracer)?;
    let report = Load::start(&server, &words(load))?.finish()?;
    server.end();
    let mut traced = Traced { units: figure(&report, units)?, ..Traced::default() };
    for line in std::fs::read_to_string(trace.path())?.lines() {
        if line.contains(" resumed>") {
            continue;
        }
        traced.calls += 1.0;
        if let Some((_, arguments)) = line.split_once("io_uring_enter(") {
            traced.enters += 1.0;
            let entries = arguments.split(", ").nth(1).and_then(|entries| entries.parse::<f64>().ok());
            traced.entries += entries.unwrap_or(0.0);
        }
    }
    Ok(traced)
}
