//! The slabs of a shard at three sizes: a session found by its id, begun and ended; a connection come and gone; a
//! tick of keep-alives.
//!
//! Only the caches may tell a thousand from a million.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

#[path = "rig/mod.rs"]
mod rig;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use moorline::limits::KEEP_ALIVE_MS;
use rig::{CALL, Client, Rig};

fn sizes(c: &mut Criterion) {
    for size in [1_000, 100_000, 1_000_000].map(rig::sized) {
        let mut rig = Rig::new(size + 64);
        let clients: Vec<Client> = (0..size).map(|_| rig.open_listening()).collect();
        let mut group = c.benchmark_group(format!("table/{size}"));
        look_up(&mut group, &mut rig, &clients);
        come_and_go(&mut group, &mut rig);
        tick(&mut group, &mut rig);
        group.finish();
    }
}

/// A whole small call, each in another session, on one connection.
fn look_up(group: &mut BenchmarkGroup<'_, WallTime>, rig: &mut Rig, clients: &[Client]) {
    let conn = rig.connect();
    let mut request = rig::post(Some(&clients[0].id), "", CALL);
    let start = request.windows(42).position(|window| window == clients[0].id).expect("the id is in it");
    let mut at = 0;
    group.bench_function("call_in_any_session", |b| {
        b.iter(|| {
            at = (at + 7_919) % clients.len();
            request[start..start + 42].copy_from_slice(&clients[at].id);
            rig.send(conn, &request);
        });
    });
    rig.reset(conn);
}

fn come_and_go(group: &mut BenchmarkGroup<'_, WallTime>, rig: &mut Rig) {
    group.bench_function("connect_and_reset", |b| {
        b.iter(|| {
            let conn = rig.connect();
            rig.reset(conn);
        });
    });
    let conn = rig.connect();
    group.bench_function("initialize_and_delete", |b| b.iter(|| rig.begin_and_end(conn)));
    rig.reset(conn);
}

/// All keep-alives of one interval, comment by comment.
fn tick(group: &mut BenchmarkGroup<'_, WallTime>, rig: &mut Rig) {
    rig.advance(2 * KEEP_ALIVE_MS);
    group.sample_size(10);
    group.bench_function("keep_alives_of_one_interval", |b| b.iter(|| rig.advance(KEEP_ALIVE_MS)));
}

criterion_group!(benches, sizes);
criterion_main!(benches);
