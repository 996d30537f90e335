//! A stream's log through the facade: an event appended and written, one evicted, and a replay behind a cursor.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

#[path = "rig/mod.rs"]
mod rig;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moorline::{
    core::{Tell, config::ResponseMode},
    limits::{REPLAY_EVENTS_MAX, TICK_MS},
};
use rig::{Behind, CALL, Client, Rig};

/// A message to a listener that takes it at once: framed, logged, written, and an old one evicted.
fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("log/append_and_write");
    for others in [0, 1_000, 100_000] {
        let (mut rig, client) = full_log(if others == 0 { 0 } else { rig::sized(others) });
        let message = rig::message("hello");
        group.bench_function(format!("among_{others}_sessions"), |b| {
            b.iter(|| rig.tell(Tell::Announce(client.session, message.clone())));
        });
    }
    group.finish();
}

/// A streamed call in a session whose replay window is full: the oldest event of so many streams leaves.
fn evict(c: &mut Criterion) {
    let mut group = c.benchmark_group("log/evict");
    for events in [16, REPLAY_EVENTS_MAX] {
        let mut rig = Rig::with(64, Behind::Canned(Bytes::from_static(rig::CANNED)), |config| {
            config.response_mode = ResponseMode::Sse;
            config.replay_events_max = events;
        });
        let client = rig.open();
        let request = rig::post(Some(&client.id), "", CALL);
        (0..2 * events).for_each(|_| rig.send(client.conn, &request));
        group.bench_function(format!("among_{events}_streams"), |b| {
            b.iter(|| rig.send(client.conn, &request));
        });
    }
    group.finish();
}

/// A client comes back behind its last event, or behind one from before everything that is kept.
fn replay(c: &mut Criterion) {
    let mut group = c.benchmark_group("log/replay");
    for missed in [0, 10, REPLAY_EVENTS_MAX] {
        let (mut rig, client) = full_log(0);
        let newest = newest_event(&mut rig, &client);
        let (stream, number) = newest.rsplit_once('-').expect("stream and number");
        let number: usize = number.parse().expect("a number");
        let request = rig::get(&client.id, &format!("Last-Event-ID: {stream}-{}\r\n", number - missed));
        let mut conn = client.conn;
        group.throughput(Throughput::Elements(missed as u64));
        group.bench_function(format!("{missed}_events"), |b| {
            b.iter(|| {
                rig.reset(conn);
                conn = rig.connect();
                rig.send(conn, &request);
            });
        });
    }
    group.finish();
}

/// A listener whose log is full, beside so many others.
fn full_log(others: usize) -> (Rig, Client) {
    let mut rig = Rig::new(others + 64);
    for _ in 0..others {
        rig.open_listening();
    }
    let client = rig.open_listening();
    for _ in 0..=REPLAY_EVENTS_MAX {
        rig.tell(Tell::Announce(client.session, rig::message("hello")));
    }
    rig.advance(TICK_MS);
    (rig, client)
}

/// The id of one more event.
fn newest_event(rig: &mut Rig, client: &Client) -> String {
    rig.last_write = Some(Vec::new());
    rig.tell(Tell::Announce(client.session, rig::message("last")));
    let frame = String::from_utf8(rig.last_write.take().expect("set above")).expect("text");
    let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).expect("the event has an id");
    id.trim_end().to_owned()
}

criterion_group!(benches, append, evict, replay);
criterion_main!(benches);
