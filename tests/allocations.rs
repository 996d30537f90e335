//! How often the hot paths ask the allocator for memory: not at all per keep-alive, a small number per call.
//!
//! Counted on whole shards with fake sockets, in steady state. The counts are upper bounds, so a change that adds an
//! allocation fails here; one that saves some lowers the number.
#![allow(missing_docs, clippy::cast_precision_loss, reason = "counts divided by small counts")]

#[path = "../benches/rig/mod.rs"]
mod rig;

use moorline::{
    backend::{Builtin, Host},
    core::{Tell, config::ResponseMode},
    limits::{KEEP_ALIVE_MS, TICK_MS},
};
use rig::{Behind, CALL, Rig, counting};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const UNITS: u64 = 200;

/// The body and its owner; the reply and its owner; the request's id.
const JSON: f64 = 5.0;
/// Beside the body: head, payload, log and their owners.
const STREAM: f64 = 8.1;
/// What the built-in server adds: the call's state, its arguments and its result.
const BUILTIN: f64 = 10.0;
/// The shared payload, and the logs' growth.
const NOTIFICATION: f64 = 2.0;

/// Allocations per unit, after as many units to warm up.
fn per_unit(mut unit: impl FnMut()) -> f64 {
    (0..UNITS).for_each(|_| unit());
    let ((), added) = counting::during(|| (0..UNITS).for_each(|_| unit()));
    added.allocations as f64 / UNITS as f64
}

fn per_call(behind: Behind, mode: ResponseMode) -> f64 {
    let mut rig = Rig::with(8, behind, |config| config.response_mode = mode);
    let client = rig.open();
    let request = rig::post(Some(&client.id), "", CALL);
    per_unit(|| rig.send(client.conn, &request))
}

fn canned() -> Behind {
    Behind::Canned(bytes::Bytes::from_static(rig::CANNED))
}

fn listeners(count: usize) -> Rig {
    let mut rig = Rig::new(count);
    for _ in 0..count {
        rig.open_listening();
    }
    rig
}

#[test]
fn a_keep_alive_allocates_nothing() {
    let mut rig = listeners(200);
    // Lists of what is due grow to the largest batch there is.
    rig.advance(40 * KEEP_ALIVE_MS);
    rig.writes = 0;
    let ((), added) = counting::during(|| rig.advance(20 * KEEP_ALIVE_MS));
    assert!(rig.writes >= 20 * 200, "only {} comments were written", rig.writes);
    assert_eq!(added.allocations, 0);
}

#[test]
fn time_that_passes_allocates_nothing() {
    let mut rig = listeners(1);
    rig.advance(2 * KEEP_ALIVE_MS);
    let ((), added) = counting::during(|| rig.advance(TICK_MS));
    assert_eq!(added.allocations, 0);
}

#[test]
fn a_call_answered_as_json() {
    let count = per_call(canned(), ResponseMode::Auto);
    assert!(count <= JSON, "{count} allocations");
}

#[test]
fn a_call_answered_as_a_stream() {
    let count = per_call(canned(), ResponseMode::Sse);
    assert!(count <= STREAM, "{count} allocations");
}

#[test]
fn a_call_to_the_built_in_server() {
    let behind = Behind::Builtin(Box::new(Host::new(Builtin::new())));
    let count = per_call(behind, ResponseMode::Auto);
    assert!(count <= BUILTIN, "{count} allocations");
}

/// One payload for all; each stream's log grows by an entry, and sheds its oldest.
#[test]
fn a_notification_to_many() {
    const STREAMS: u32 = 50;
    let mut rig = listeners(STREAMS as usize);
    let per_message = per_unit(|| rig.tell(Tell::Broadcast(rig::message("hello"))));
    let per_stream = per_message / f64::from(STREAMS);
    assert!(per_stream <= NOTIFICATION, "{per_stream} allocations per stream");
}
