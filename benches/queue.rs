//! The listener queue through the facade: messages for a session that nobody listens to, and the listener that comes.
#![allow(missing_docs, reason = "the macro of criterion makes a public function without any")]

#[path = "rig/mod.rs"]
mod rig;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moorline::{
    core::{Notification, NotificationKind, Tell, jsonrpc},
    limits::QUEUE_MESSAGES_MAX,
};
use rig::Rig;

/// One more message where the queue is full: the oldest that may go makes room, or it is merged.
fn push(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/push_to_full");
    for (name, message) in [("displacing", progress()), ("merging", list_changed())] {
        let mut rig = Rig::new(64);
        let client = rig.open();
        rig.tell(Tell::Announce(client.session, list_changed()));
        for _ in 0..QUEUE_MESSAGES_MAX {
            rig.tell(Tell::Announce(client.session, progress()));
        }
        group.bench_function(name, |b| {
            b.iter(|| rig.tell(Tell::Announce(client.session, message.clone())));
        });
    }
    group.finish();
}

/// Messages wait, a listener comes and gets them all, and goes.
fn drain(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/fill_and_drain");
    group.throughput(Throughput::Elements(QUEUE_MESSAGES_MAX as u64));
    let mut rig = Rig::new(64);
    let client = rig.open();
    let request = rig::get(&client.id, "");
    group.bench_function(format!("{QUEUE_MESSAGES_MAX}_messages"), |b| {
        b.iter(|| {
            for _ in 0..QUEUE_MESSAGES_MAX {
                rig.tell(Tell::Announce(client.session, rig::message("hello")));
            }
            let conn = rig.connect();
            rig.send(conn, &request);
            rig.reset(conn);
        });
    });
    group.finish();
}

fn progress() -> Notification {
    Notification { kind: NotificationKind::Progress, ..rig::message("progress") }
}

fn list_changed() -> Notification {
    Notification {
        kind: NotificationKind::ToolsListChanged,
        json: jsonrpc::notification("notifications/tools/list_changed", None),
    }
}

criterion_group!(benches, push, drain);
criterion_main!(benches);
