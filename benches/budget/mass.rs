//! What is not a pair: latency beside a mass of streams, an idle mass, memory over sockets.
//!
//! Latency is compared within a round, on one server: calls on one connection with nobody else there, while streams get
//! keep-alives, and while every stream gets a notification each second.

use super::{
    Outcome, Plan,
    contest::{Load, Running, Side, figure, start, words},
    lines::PUBLISH_BODY,
    print::{at, sorted},
};
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Keep-alives every five seconds: three times as many as by default.
const MASS: Side = Side::Server(&["--shards", "1", "--keep-alive", "5s"]);
const BARE: Side = Side::Bare(&["5000"]);
const QUANTILES: [&str; 4] = ["p50", "p99", "p999", "max"];

/// What a round leaves for its load to come up, in seconds.
const SLACK_S: u64 = 6;

// --- Latency ---------------------------------------------------------------------------------------

/// What one round found, in microseconds.
struct Round {
    alone: [f64; 4],
    beside_comments: [f64; 4],
    beside_notifications: [f64; 4],
    /// Of keep-alives: median, 99th percentile, largest.
    lateness: [f64; 3],
}

pub(crate) fn latency(plan: &Plan) -> Outcome<()> {
    println!("\nCalls on one connection, 500 a second, beside {} streams: µs, medians of rounds", plan.mass);
    println!(
        "| | quantile | alone | beside keep-alives | ratio (extremes) | beside notifications | ratio (extremes) | rounds |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, side) in [("server", MASS), ("bare loop", BARE)] {
        let rounds: Vec<Round> = (0..plan.rounds).map(|_| round(plan, side)).collect::<Outcome<_>>()?;
        for (index, quantile) in QUANTILES.iter().enumerate() {
            let of = |part: fn(&Round) -> &[f64; 4]| sorted(rounds.iter().map(|round| part(round)[index]));
            let ratio = |part: fn(&Round) -> &[f64; 4]| {
                let ratios = sorted(rounds.iter().map(|round| part(round)[index] / round.alone[index]));
                format!("{:.2} ({:.2} to {:.2})", at(&ratios, 0.5), at(&ratios, 0.0), at(&ratios, 1.0))
            };
            println!(
                "| {name} | {quantile} | {:.0} | {:.0} | {} | {:.0} | {} | {} |",
                at(&of(|round| &round.alone), 0.5),
                at(&of(|round| &round.beside_comments), 0.5),
                ratio(|round| &round.beside_comments),
                at(&of(|round| &round.beside_notifications), 0.5),
                ratio(|round| &round.beside_notifications),
                rounds.len(),
            );
        }
        if let Side::Server(_) = side {
            print_lateness(&rounds);
        }
    }
    Ok(())
}

/// That of the bare loop says nothing: its ticks drift.
fn print_lateness(rounds: &[Round]) {
    let at = |index: usize| at(&sorted(rounds.iter().map(|round| round.lateness[index])), 0.5) / 1e3;
    println!(
        "| server | lateness of keep-alives, ms | p50 {:.1} | p99 {:.1} | max {:.1} | | | {} |",
        at(0),
        at(1),
        at(2),
        rounds.len()
    );
}

fn round(plan: &Plan, side: Side) -> Outcome<Round> {
    let server = start(side, &[])?;
    let call = words(&format!("call -c 1 -r 500 -d {}s --warm-up 1s", plan.seconds));
    let alone = latencies(&Load::start(&server, &call)?.finish()?)?;
    let hold_s = 2 * (plan.seconds + 1) + SLACK_S;
    let hold = words(&format!("hold -n {} --ramp 0 -d {hold_s}s --keep-alive 5s", plan.mass));
    let hold = Load::start(&server, &hold)?;
    server.await_connections(plan.mass)?;
    // So that the ramp's own work is done.
    std::thread::sleep(Duration::from_secs(2));
    let beside_comments = latencies(&Load::start(&server, &call)?.finish()?)?;
    let beside_notifications =
        latencies(&while_publishing(&server, || Load::start(&server, &call)?.finish())?)?;
    let report = hold.finish()?;
    let lateness = |quantile| figure(&report, &format!("latencies.keep_alive_lateness.{quantile}_us"));
    Ok(Round {
        alone,
        beside_comments,
        beside_notifications,
        lateness: [lateness("p50")?, lateness("p99")?, lateness("max")?],
    })
}

fn latencies(report: &Value) -> Outcome<[f64; 4]> {
    let mut values = [0.0; 4];
    for (value, quantile) in values.iter_mut().zip(QUANTILES) {
        *value = figure(report, &format!("latencies.request.{quantile}_us"))?;
    }
    Ok(values)
}

/// Does something while every stream gets a notification each second.
fn while_publishing<R>(server: &Running, work: impl FnOnce() -> Outcome<R>) -> Outcome<R> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                publish(&server.publish_url).map_err(|error| error.to_string())?;
                std::thread::sleep(Duration::from_secs(1));
            }
            Ok::<(), String>(())
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        publisher.join().map_err(|_| "the publisher panicked")??;
        result
    })
}

fn publish(url: &str) -> Outcome<()> {
    let (host, path) = url.trim_start_matches("http://").split_once('/').ok_or("an URL with a path")?;
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = PUBLISH_BODY.len();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{PUBLISH_BODY}"
    )?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    if status.starts_with(b"HTTP/1.1 2") { Ok(()) } else { Err("a publication was refused".into()) }
}

// --- Idle ------------------------------------------------------------------------------------------

/// What a mass costs that nothing is due for: processor time, and how often a thread went to sleep.
pub(crate) fn idle(plan: &Plan) -> Outcome<()> {
    let server = start(Side::Server(&["--shards", "1", "--keep-alive", "0"]), &[])?;
    let hold = words(&format!("hold -n {} --ramp 0 -d {}s", plan.streams, plan.seconds + 12));
    let hold = Load::start(&server, &hold)?;
    server.await_connections(plan.streams)?;
    std::thread::sleep(Duration::from_secs(4));
    let before = (cpu_ticks(server.pid)?, sleeps(server.pid)?);
    std::thread::sleep(Duration::from_secs(plan.seconds));
    let after = (cpu_ticks(server.pid)?, sleeps(server.pid)?);
    drop(hold);
    println!(
        "\nIdle with {} streams and nothing due, {} s: {} ticks of CPU, {} wake-ups of all threads",
        plan.streams,
        plan.seconds,
        after.0 - before.0,
        after.1 - before.1
    );
    Ok(())
}

/// User and system time, in ticks of a hundredth of a second.
fn cpu_ticks(pid: u32) -> Outcome<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("a name in parentheses")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn sleeps(pid: u32) -> Outcome<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += count.ok_or("a count of switches")?.trim().parse::<u64>()?;
    }
    Ok(all)
}

// --- Memory ----------------------------------------------------------------------------------------

/// Resident memory per client as their number grows, by sockets; then three fills of one server.
pub(crate) fn memory(plan: &Plan) -> Outcome<()> {
    println!(
        "\n| resident memory per client, by sockets | clients | bytes, from the start | bytes, from the step before |"
    );
    println!("|---|---|---|---|");
    let [small, medium, large] = plan.sizes;
    let at = format!("--measure-at {small},{medium},{large} --settle 3s");
    let loads = [
        ("session with stream", format!("hold -n {large} --ramp 4000 -d 1s {at}")),
        ("listen stream of 2026", format!("hold -n {large} --ramp 4000 -d 1s {at} --era 2026")),
        ("session with idle connection", format!("call -c {large} --ramp 4000 -r 1 -d 1s {at}")),
    ];
    for (name, load) in loads {
        let server = start(Side::Server(&["--shards", "1"]), &[])?;
        let report = Load::start(&server, &words(&load))?.finish()?;
        let mut last = (0.0, figure(&report, "server.before.rss_bytes")?);
        let start = last.1;
        for step in report["server"]["steps"].as_array().into_iter().flatten() {
            let (count, bytes) = (figure(step, "clients_count")?, figure(step, "rss_bytes")?);
            println!(
                "| {name} | {count:.0} | {:.0} | {:.0} |",
                (bytes - start) / count,
                (bytes - last.1) / (count - last.0)
            );
            last = (count, bytes);
        }
    }
    refills(medium)
}

fn refills(count: usize) -> Outcome<()> {
    let server = start(Side::Server(&["--shards", "1", "--session-idle-timeout", "4s"]), &[])?;
    println!(
        "\n| fills of one server with {count} sessions | resident MB, full | MB, 8 s after all were cut |"
    );
    println!("|---|---|---|");
    for fill in 1..=3 {
        let load = words(&format!("hold -n {count} --ramp 4000 -d 2s"));
        let report = Load::start(&server, &load)?.finish()?;
        std::thread::sleep(Duration::from_secs(8));
        println!(
            "| {fill} | {:.2} | {:.2} |",
            figure(&report, "server.to.rss_bytes")? / 1e6,
            resident_bytes(server.pid)? / 1e6
        );
    }
    Ok(())
}

fn resident_bytes(pid: u32) -> Outcome<f64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: f64 = statm.split(' ').nth(1).ok_or("a count of pages")?.parse()?;
    Ok(pages * 4096.0)
}
