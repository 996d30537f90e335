//! What an idle session with one stream costs in memory, part by part, what is left when all have gone, and whether a
//! million that come and go leave anything behind.
//!
//! Whole shards with fake sockets, at three sizes. The sizes of entries are what the types say; beside them stands what
//! the process became larger by, page by page, and what the allocator was asked for. Kernel memory (about 4 KB per
//! socket) and the operations of a real ring are not in it, save for the entry each one takes in tokio-uring's own
//! table, which is measured on a real ring.
//!
//! Without `--bench` (as a test) it runs at one small size.
#![allow(missing_docs, clippy::cast_precision_loss, reason = "a program that prints ratios of counts")]

#[path = "rig/mod.rs"]
mod rig;

use moorline::{core::shard::Shard, limits::KEEP_ALIVE_MS, shell};
use rig::{Client, Rig, counting};
use std::os::fd::AsRawFd as _;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

fn main() {
    let operation_bytes = parts();
    let sizes: &[usize] = if rig::is_measured() { &[2_000, 10_000, 1_000_000] } else { &[1_000] };
    println!(
        "\n{:<44}{}",
        "bytes per session with one stream, at",
        columns(sizes.iter().map(|size| *size as f64))
    );
    let fills: Vec<Fill> = sizes.iter().map(|size| fill(*size)).collect();
    let row = |name: &str, of: fn(&Fill) -> f64| println!("{name:<44}{}", columns(fills.iter().map(of)));
    row("resident, the core's structures", |fill| fill.resident);
    row("live on the heap beyond reserved tables", |fill| fill.live);
    row("of these, the allocator's own", |fill| fill.slack);
    row("after all have gone", |fill| fill.left_behind);
    row("filled a second time", |fill| fill.again[0]);
    row("filled a third time", |fill| fill.again[1]);
    let shell = (shell::CONNECTION_BYTES + operation_bytes) as f64;
    println!(
        "{:<44}{}",
        "with the shell's entry and its operation",
        columns(fills.iter().map(|fill| fill.resident + shell))
    );
    churn();
}

/// What a shard grows by while a million sessions come and go on few connections.
fn churn() {
    let count: u32 = if rig::is_measured() { 1_000_000 } else { 1_000 };
    let mut rig = Rig::new(64);
    let conn = rig.connect();
    let with_stream = |rig: &mut Rig| {
        let client = rig.open_listening();
        rig.reset(client.conn);
        let conn = rig.connect();
        rig.delete(conn, &client.id);
        rig.reset(conn);
    };
    let mut grown = |name: &str, cycle: &mut dyn FnMut(&mut Rig)| {
        (0..count / 100).for_each(|_| cycle(&mut rig));
        let start = resident_bytes();
        let ((), added) = counting::during(|| (0..count).for_each(|_| cycle(&mut rig)));
        let grown = resident_bytes() - start;
        println!("{name:<60} resident {grown:>9.0} B, live on the heap {:>6} B", added.live_bytes);
    };
    println!("\ngrowth over {count} sessions");
    grown("initialize and DELETE on one connection", &mut |rig| rig.begin_and_end(conn));
    grown("connect, initialize, GET, reset, DELETE on another", &mut |rig| with_stream(rig));
}

fn columns(values: impl Iterator<Item = f64>) -> String {
    values.map(|value| format!("{value:>12.0}")).collect()
}

/// Prints the size of each part; returns that of an operation in flight.
fn parts() -> usize {
    let sizes = Shard::entry_bytes();
    let operation = operation_bytes();
    println!("entry of a session                {:>5} B", sizes.session);
    println!("entry of a stream                 {:>5} B", sizes.stream);
    println!("entry of a listen stream          {:>5} B", sizes.exchange);
    println!("entry of a connection, core       {:>5} B", sizes.conn);
    println!("entry of a connection, shell      {:>5} B", shell::CONNECTION_BYTES);
    println!("timers, one each of session and connection {:>5} B", 2 * sizes.timer);
    println!("operation in flight, tokio-uring  {operation:>5} B");
    let all =
        sizes.session + sizes.stream + sizes.conn + 2 * sizes.timer + shell::CONNECTION_BYTES + operation;
    println!("together                          {all:>5} B");
    operation
}

/// What tokio-uring keeps of one operation in flight: a parked poll, as each idle connection has one.
fn operation_bytes() -> usize {
    const COUNT: usize = 1 << 12;
    tokio_uring::start(async {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        let mut parked = Vec::with_capacity(COUNT);
        let ((), added) = counting::during(|| {
            for _ in 0..COUNT {
                parked.push(poll(&ours));
            }
        });
        drop(_theirs);
        for operation in parked {
            operation.await;
        }
        usize::try_from(added.live_bytes).expect("something was kept") / COUNT
    })
}

fn poll(socket: &std::os::unix::net::UnixStream) -> tokio_uring::InFlightOneshot<(), Ignored> {
    let entry = io_uring::opcode::PollAdd::new(
        io_uring::types::Fd(socket.as_raw_fd()),
        u32::from(libc::POLLIN.unsigned_abs()),
    )
    .build();
    tokio_uring::UnsubmittedOneshot::new((), Ignored, entry).submit()
}

/// A result nobody looks at.
struct Ignored;

impl tokio_uring::OneshotOutputTransform for Ignored {
    type Output = ();
    type StoredData = ();

    fn transform_oneshot_output(self, (): (), _: io_uring::cqueue::Entry) {}
}

/// Bytes per session at one size.
struct Fill {
    resident: f64,
    live: f64,
    slack: f64,
    left_behind: f64,
    again: [f64; 2],
}

fn fill(count: usize) -> Fill {
    let mut rig = Rig::new(count);
    let mut clients = Vec::with_capacity(count);
    // Pages of the list of clients are touched before anything is counted.
    clients.resize(count, None);
    clients.clear();
    let per_session = |bytes: f64| bytes / count as f64;
    let start = resident_bytes();
    let ((), added) = counting::during(|| open(&mut rig, &mut clients, count));
    let full = resident_bytes();
    close(&mut rig, &mut clients);
    let empty = resident_bytes();
    let again = [(); 2].map(|()| {
        open(&mut rig, &mut clients, count);
        let again = resident_bytes();
        close(&mut rig, &mut clients);
        per_session(again - start)
    });
    Fill {
        resident: per_session(full - start),
        live: per_session(added.live_bytes as f64),
        slack: per_session((added.live_chunk_bytes - added.live_bytes) as f64),
        left_behind: per_session(empty - start),
        again,
    }
}

/// Opens sessions with a stream each and lets all that comes once come: comments, and timers that were armed early.
fn open(rig: &mut Rig, clients: &mut Vec<Option<Client>>, count: usize) {
    clients.extend((0..count).map(|_| Some(rig.open_listening())));
    rig.advance(2 * KEEP_ALIVE_MS);
}

/// All connections are reset at once, and the sessions end when their time is over.
fn close(rig: &mut Rig, clients: &mut Vec<Option<Client>>) {
    for client in clients.drain(..).flatten() {
        rig.reset(client.conn);
    }
    rig.advance(2 * moorline::limits::SESSION_IDLE_TIMEOUT_MS);
    assert_eq!(rig.shard.population(), Default::default(), "all have gone");
}

/// Resident memory of this process, from `/proc/self/statm`.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a count of pages");
    (pages * 4096) as f64
}
