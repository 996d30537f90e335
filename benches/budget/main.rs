//! Each budget as a ratio: the server and a bare io_uring loop in turn, on this machine, under the same load.
//!
//! `cargo build --release --workspace && cargo bench --bench budget` runs it; `-- --pairs 15` says how many times each
//! is measured, `-- calls` or `-- comments` picks one line. The load is `moorline-load`, from the folder of the server's
//! binary. Every pair is a fresh process of each; who goes first alternates. What is printed is the median over the
//! pairs, the quartiles of the ratio, and its extremes: on a shared machine a ratio says more than a time.
//!
//! Without `--bench` (as a test) it runs one short pair and judges nothing.
#![allow(missing_docs, reason = "a program")]

mod bare;

use serde_json::Value;
use std::{
    error::Error,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Interval of keep-alives while they are measured: short, so that they are what there is to do.
const KEEP_ALIVE: &str = "1s";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [first, interval_ms, ..] if first == "bare-loop" => {
            bare::run(interval_ms.parse().unwrap_or(15_000)).map_err(Into::into)
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

/// How much is measured.
struct Plan {
    pairs: usize,
    streams: &'static str,
    duration: &'static str,
    only: Option<String>,
}

impl Plan {
    fn of(arguments: &[String]) -> Self {
        let pairs = arguments.iter().skip_while(|argument| *argument != "--pairs").nth(1);
        let only = arguments.iter().find(|argument| LINES.iter().any(|line| line.name == **argument));
        let plan = match arguments.iter().any(|argument| argument == "--bench") {
            true => Plan { pairs: 15, streams: "5000", duration: "4s", only: None },
            false => Plan { pairs: 1, streams: "50", duration: "1s", only: None },
        };
        Plan {
            pairs: pairs.and_then(|pairs| pairs.parse().ok()).unwrap_or(plan.pairs),
            only: only.cloned(),
            ..plan
        }
    }
}

/// One line of the table.
struct Line {
    name: &'static str,
    what: &'static str,
    /// The metric of `moorline-load` it is about.
    metric: &'static str,
    budget: f64,
    load: fn(&Plan) -> Vec<&str>,
}

const LINES: [Line; 2] = [
    Line {
        name: "comments",
        what: "CPU per keep-alive, µs",
        metric: "cpu_us_per_keep_alive",
        budget: 1.15,
        load: |plan| {
            vec!["hold", "-n", plan.streams, "--ramp", "0", "-d", plan.duration, "--keep-alive", KEEP_ALIVE]
        },
    },
    Line {
        name: "calls",
        what: "CPU per small call, µs",
        metric: "cpu_us_per_request",
        budget: 1.5,
        load: |plan| vec!["call", "-c", "32", "-d", plan.duration],
    },
];

fn compare(plan: &Plan) -> Outcome<()> {
    let server = Path::new(env!("CARGO_BIN_EXE_moorline"));
    let load = server.with_file_name("moorline-load");
    if !load.exists() {
        println!("{} is not built: cargo build --release --workspace", load.display());
        return Ok(());
    }
    println!(
        "{:<24} {:>8} {:>8} {:>7} {:>15} {:>15} {:>7}",
        "", "server", "floor", "ratio", "quartiles", "extremes", "budget"
    );
    for line in LINES.iter().filter(|line| plan.only.as_ref().is_none_or(|only| only == line.name)) {
        let mut pairs = Vec::new();
        for index in 0..plan.pairs {
            pairs.push(pair(line, plan, server, &load, index)?);
        }
        print(line, &pairs);
    }
    Ok(())
}

/// The metric of the server and of the bare loop, each in a fresh process.
fn pair(line: &Line, plan: &Plan, server: &Path, load: &PathBuf, index: usize) -> Outcome<(f64, f64)> {
    let measure_server = || {
        let mut command = Command::new(server);
        command.args(["--listen", "127.0.0.1:0", "--shards", "1", "--keep-alive", KEEP_ALIVE]);
        measure(line, plan, command, load)
    };
    let measure_bare = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bare-loop", "1000"]);
        measure(line, plan, command, load)
    };
    if index.is_multiple_of(2) {
        let first = measure_server()?;
        return Ok((first, measure_bare()?));
    }
    let first = measure_bare()?;
    Ok((measure_server()?, first))
}

/// A process that is killed when it is no longer needed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(line: &Line, plan: &Plan, mut command: Command, load: &PathBuf) -> Outcome<f64> {
    let mut process = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
    let mut output = BufReader::new(process.0.stderr.take().ok_or("its output is piped")?).lines();
    let url = loop {
        let line = output.next().ok_or("it ended without saying where it listens")??;
        if let Some((_, address)) = line.split_once("http://") {
            break format!("http://{address}");
        }
    };
    let report = tempfile::NamedTempFile::new()?;
    let status = Command::new(load)
        .args((line.load)(plan))
        .args(["--url", &url, "--pid", &process.0.id().to_string(), "--quiet", "--json"])
        .arg(report.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let json: Value = serde_json::from_reader(std::fs::File::open(report.path())?)
        .map_err(|error| format!("the load generator ended with {status} and left no report: {error}"))?;
    json["metrics"][line.metric].as_f64().ok_or_else(|| format!("no {} in the report", line.metric).into())
}

fn print(line: &Line, pairs: &[(f64, f64)]) {
    let ratios = sorted(pairs.iter().map(|(server, floor)| server / floor));
    let servers = sorted(pairs.iter().map(|(server, _)| *server));
    let floors = sorted(pairs.iter().map(|(_, floor)| *floor));
    let quartiles = format!("{:.2} to {:.2}", at(&ratios, 0.25), at(&ratios, 0.75));
    let extremes = format!("{:.2} to {:.2}", at(&ratios, 0.0), at(&ratios, 1.0));
    println!(
        "{:<24} {:>8.2} {:>8.2} {:>7.2} {quartiles:>15} {extremes:>15} {:>7.2}",
        line.what,
        at(&servers, 0.5),
        at(&floors, 0.5),
        at(&ratios, 0.5),
        line.budget
    );
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value at that part of a sorted list.
fn at(sorted: &[f64], part: f64) -> f64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a short list"
    )]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}
