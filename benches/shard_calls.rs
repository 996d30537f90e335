//! A fixed number of units of work through one shard with fake sockets, for a profiler that counts instructions.
//!
//! `valgrind --tool=callgrind` over this program with two counts gives instructions per unit as the slope, which leaves
//! the start and the sessions' set-up out. Without arguments (and as a test) it prints allocations per unit, and as a bench
//! also instructions, if there is a valgrind.
//!
//! ```text
//! shard_calls json 10000     # small tools/call, answered as JSON, canned backend
//! shard_calls sse 10000      # the same, answered as a stream; after 1,024 of them an old one is evicted each time
//! shard_calls builtin 10000  # the same as json with the built-in server behind
//! shard_calls large 1000     # a result of 64 KiB as JSON
//! shard_calls comments 10000 # keep-alive comments of 1,000 streams
//! shard_calls notify 10000   # one notification, to 1,000 streams, as often as it takes
//! shard_calls sessions 10000 # initialize and DELETE on one connection
//! shard_calls streams 10000  # connect, initialize, initialized, GET, reset, end
//! ```
#![allow(missing_docs, reason = "a program")]

#[path = "rig/mod.rs"]
mod rig;

use bytes::Bytes;
use moorline::{
    backend::{Builtin, Host},
    core::{Tell, config::ResponseMode},
    limits::KEEP_ALIVE_MS,
};
use rig::{Behind, CALL, Rig, counting};
use std::process::Command;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const LISTENERS: u32 = 1_000;
const WORKS: [(&str, Make); 8] = [
    ("json", || calls(Behind::Canned(Bytes::from_static(rig::CANNED)), ResponseMode::Auto)),
    ("sse", || calls(Behind::Canned(Bytes::from_static(rig::CANNED)), ResponseMode::Sse)),
    ("builtin", || calls(Behind::Builtin(Box::new(Host::new(Builtin::new()))), ResponseMode::Auto)),
    ("large", || calls(Behind::Canned(large_result()), ResponseMode::Auto)),
    ("comments", || comments()),
    ("notify", || notify()),
    ("sessions", || sessions()),
    ("streams", || streams()),
];

/// One unit of work, done so many times as asked.
type Work = Box<dyn FnMut(u64)>;
/// What it needs is set up.
type Make = fn() -> Work;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match &arguments[..] {
        [name, count] => {
            let make = WORKS.iter().find(|(known, _)| known == name).expect("a kind of work from the list").1;
            let count = count.parse().expect("a count");
            make()(count);
        }
        _ => report(),
    }
}

/// Allocations and bytes per unit in steady state.
fn report() {
    println!("| counts per unit | allocations | bytes allocated | instructions, user mode |");
    println!("|---|---|---|---|");
    let counted = rig::is_measured() && Command::new("valgrind").arg("--version").output().is_ok();
    for (name, make) in WORKS {
        let count = u64::from(2 * LISTENERS);
        let mut work = make();
        work(count);
        let ((), added) = counting::during(|| work(count));
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let per_unit = |total: u64| total as f64 / count as f64;
        let instructions = if counted { instructions(name) } else { None };
        println!(
            "| {name} | {:.2} | {:.0} | {} |",
            per_unit(added.allocations),
            per_unit(added.allocated_bytes),
            instructions.map_or("-".to_owned(), |count| count.to_string())
        );
    }
}

/// Instructions per unit of work, as callgrind counts them: the slope between two counts of units.
fn instructions(name: &str) -> Option<u64> {
    const UNITS: [u64; 2] = [1_000, 2_000];
    let collected = |units: u64| {
        let run = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().ok()?)
            .args([name, &units.to_string()])
            .output()
            .ok()?;
        let said = String::from_utf8(run.stderr).ok()?;
        let line = said.lines().find_map(|line| Some(line.split_once("Collected : ")?.1.to_owned()))?;
        line.trim().parse::<u64>().ok()
    };
    let [few, many] = UNITS.map(collected);
    Some((many? - few?) / (UNITS[1] - UNITS[0]))
}

fn calls(behind: Behind, mode: ResponseMode) -> Work {
    let mut rig = Rig::with(64, behind, |config| config.response_mode = mode);
    let client = rig.open();
    let request = rig::post(Some(&client.id), "", CALL);
    Box::new(move |count| (0..count).for_each(|_| rig.send(client.conn, &request)))
}

fn large_result() -> Bytes {
    let text = "x".repeat(64 * 1024);
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#).into()
}

fn listeners() -> Rig {
    let mut rig = Rig::new(2 * LISTENERS as usize);
    for _ in 0..LISTENERS {
        rig.open_listening();
    }
    // Everything that comes once comes now.
    rig.advance(4 * KEEP_ALIVE_MS);
    rig
}

fn comments() -> Work {
    let mut rig = listeners();
    Box::new(move |count| {
        rig.writes = 0;
        while rig.writes < count {
            rig.advance(16);
        }
    })
}

fn notify() -> Work {
    let mut rig = listeners();
    Box::new(move |count| {
        rig.writes = 0;
        while rig.writes < count {
            rig.tell(Tell::Broadcast(rig::message("hello")));
        }
    })
}

fn sessions() -> Work {
    let mut rig = Rig::new(64);
    let conn = rig.connect();
    Box::new(move |count| (0..count).for_each(|_| rig.begin_and_end(conn)))
}

fn streams() -> Work {
    let mut rig = Rig::new(64);
    Box::new(move |count| {
        for _ in 0..count {
            let client = rig.open_listening();
            rig.reset(client.conn);
            let conn = rig.connect();
            rig.delete(conn, &client.id);
            rig.reset(conn);
        }
    })
}
