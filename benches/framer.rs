//! SSE framing: the shared payload once, and the per-stream part of each event.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moorline::core::{
    ids::{EventId, StreamKind, Tag},
    sse::{self, Transfer},
};
use std::hint::black_box;

fn payloads(c: &mut Criterion) {
    let mut group = c.benchmark_group("framer/payload");
    for size in [100, 10_000] {
        let json = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, "m".repeat(size));
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(format!("{size}_bytes"), |b| {
            b.iter(|| -> Bytes { sse::payload(black_box(json.as_bytes())) })
        });
    }
    group.finish();
}

fn events(c: &mut Criterion) {
    let id = EventId { tag: Tag::new(0x1234_5678), kind: StreamKind::Listener, stream: 3, sequence: 1_234 };
    c.bench_function("framer/event", |b| {
        b.iter(|| sse::event(Transfer::Chunked, black_box(Some(id)), black_box(180)));
    });
    c.bench_function("framer/priming", |b| b.iter(|| sse::priming(Transfer::Chunked, black_box(id), 3_000)));
}

criterion_group!(benches, payloads, events);
criterion_main!(benches);
