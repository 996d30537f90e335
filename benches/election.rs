//! The election through the facade: the primary of a session dies, and the best of the others takes over.
//!
//! Its cost must depend on the streams of that session alone: it is measured with few and with all the streams a
//! session may have, beside a thousand and a hundred thousand other sessions.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

#[path = "rig/mod.rs"]
mod rig;

use criterion::{Criterion, criterion_group, criterion_main};
use moorline::{core::ConnKey, limits::GET_STREAMS_PER_SESSION_MAX};
use rig::{Client, Rig};
use std::collections::VecDeque;

fn promotion(c: &mut Criterion) {
    let mut group = c.benchmark_group("election/primary_dies");
    for (others, listeners) in [(0, 2), (0, GET_STREAMS_PER_SESSION_MAX), (1_000, 2), (100_000, 2)] {
        let crowd = if others == 0 { 0 } else { rig::sized(others) };
        let mut rig = Rig::new(crowd + 64);
        for _ in 0..crowd {
            rig.open_listening();
        }
        let client = rig.open();
        let mut conns: VecDeque<ConnKey> = (0..listeners).map(|_| listen(&mut rig, &client)).collect();
        group.bench_function(format!("{listeners}_streams_among_{others}_sessions"), |b| {
            // The primary is reset, a shadow is promoted, and a newcomer is the next shadow.
            b.iter(|| {
                let primary = conns.pop_front().expect("there are at least two");
                rig.reset(primary);
                let newcomer = listen(&mut rig, &client);
                conns.push_back(newcomer);
            });
        });
    }
    group.finish();
}

fn listen(rig: &mut Rig, client: &Client) -> ConnKey {
    let conn = rig.connect();
    rig.send(conn, &rig::get(&client.id, ""));
    conn
}

criterion_group!(benches, promotion);
criterion_main!(benches);
