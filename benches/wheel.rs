//! The timer wheel at a million entries: arm and cancel, re-arm, and steady expiry.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use moorline::{
    core::wheel::{TimerId, Wheel},
    limits::{KEEP_ALIVE_MS, TICK_MS},
};
use std::hint::black_box;

const TIMERS: u32 = 1_000_000;

/// A wheel of keep-alives whose phases are spread over one interval.
fn full_wheel() -> (Wheel<u32>, Vec<TimerId>) {
    let mut wheel = Wheel::new(0, TIMERS as usize + 1);
    let ids = (0..TIMERS).map(|owner| wheel.arm(u64::from(owner) % KEEP_ALIVE_MS, owner)).collect();
    (wheel, ids)
}

fn single_operations(c: &mut Criterion) {
    let (mut wheel, ids) = full_wheel();
    c.bench_function("wheel/1M/arm_and_cancel", |b| {
        let mut deadline_ms = 0;
        b.iter(|| {
            deadline_ms = (deadline_ms + 7_919) % (4 * KEEP_ALIVE_MS);
            let id = wheel.arm(black_box(deadline_ms), 0);
            wheel.cancel(id)
        });
    });
    c.bench_function("wheel/1M/rearm", |b| {
        let mut at = 0;
        b.iter(|| {
            at = (at + 7_919) % ids.len();
            wheel.rearm(ids[at], black_box(at as u64 % KEEP_ALIVE_MS))
        });
    });
}

/// One tick of a full wheel in steady state: every timer that expires is armed again.
fn steady_expiry(c: &mut Criterion) {
    let mut group = c.benchmark_group("wheel/1M");
    group.throughput(Throughput::Elements(u64::from(TIMERS) * TICK_MS / KEEP_ALIVE_MS));
    let (mut wheel, _) = full_wheel();
    let mut now_ms = 0;
    group.bench_function("tick", |b| {
        b.iter(|| {
            now_ms += TICK_MS;
            let mut budget = usize::MAX;
            while let Some(expired) = wheel.pop_due(now_ms, &mut budget) {
                wheel.arm(expired.deadline_ms + KEEP_ALIVE_MS, expired.owner);
            }
        });
    });
    group.finish();
}

fn drain(c: &mut Criterion) {
    let mut group = c.benchmark_group("wheel/1M");
    group.throughput(Throughput::Elements(TIMERS.into())).sample_size(10);
    group.bench_function("expire_all_after_a_gap", |b| {
        b.iter_batched(
            || full_wheel().0,
            |mut wheel| {
                let mut budget = usize::MAX;
                while wheel.pop_due(2 * KEEP_ALIVE_MS, &mut budget).is_some() {}
                wheel
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, single_operations, steady_expiry, drain);
criterion_main!(benches);
