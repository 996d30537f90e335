//! A call in the midst of a million streams whose keep-alives expire, without sockets.
//!
//! A whole shard with fake sockets works in turns as the shell does: what is due, up to the bound of a turn, and output. A
//! call comes in every turn, behind whatever the turn has to do first; what is timed is the turn until its reply is written.
//! The same with so few streams that hardly a turn has any: if the bounds hold, the quantiles differ by no more than
//! a turn's batch takes. Times; beside them how many keep-alives there were.
//!
//! Without `--bench` (as a test) it runs small.
#![allow(missing_docs, reason = "a program")]

#[path = "rig/mod.rs"]
mod rig;

use moorline::limits::{EXPIRIES_PER_TURN_MAX, KEEP_ALIVE_MS};
use rig::{CALL, Client, Rig};
use std::time::{Duration, Instant};

#[global_allocator]
static COUNTING: rig::counting::Counting = rig::counting::Counting;

fn main() {
    let (sizes, turns): ([usize; 3], usize) =
        if rig::is_measured() { ([100, 100_000, 1_000_000], 50_000) } else { ([10, 100, 1_000], 100) };
    println!("| a call among so many streams, µs | p50 | p99 | p99.9 | max | keep-alives per turn |");
    println!("|---|---|---|---|---|---|");
    for size in sizes {
        let mut rig = Rig::new(size + 1);
        for _ in 0..size {
            rig.open_listening();
        }
        let caller = rig.open();
        // All timers that were armed for the handshakes have come.
        rig.advance(2 * KEEP_ALIVE_MS);
        print(size, turns, &mut rig, &caller);
    }
}

fn print(size: usize, turns: usize, rig: &mut Rig, caller: &Client) {
    let request = rig::post(Some(&caller.id), "", CALL);
    rig.writes = 0;
    let mut times: Vec<Duration> = (0..turns).map(|_| turn(rig, caller, &request)).collect();
    times.sort_unstable();
    let at = |index: usize| times[index.min(times.len() - 1)].as_secs_f64() * 1e6;
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let comments = (rig.writes - turns as u64) as f64 / turns as f64;
    println!(
        "| {size} | {:.1} | {:.1} | {:.1} | {:.1} | {comments:.1} |",
        at(turns / 2),
        at(turns * 99 / 100),
        at(turns * 999 / 1000),
        at(turns)
    );
}

/// One turn, each millisecond: a little less often than a million streams would need for their expiries to keep up.
fn turn(rig: &mut Rig, caller: &Client, request: &[u8]) -> Duration {
    rig.now.ms += 1;
    let start = Instant::now();
    rig.shard.tick(rig.now, EXPIRIES_PER_TURN_MAX);
    rig.settle();
    rig.send(caller.conn, request);
    start.elapsed()
}
