//! A stop: who is still served, how streams end, and when it is over.

use crate::world::{World, config, http};

/// The hint with which the drain ended this listener's stream; `None` while it lasts.
fn retry_of_ended(world: &mut World, listener: crate::world::client::ClientId) -> Option<u64> {
    let bytes = std::mem::take(&mut world.client(listener).received);
    let (content, complete) = http::dechunk(&bytes);
    let events = http::events(&content);
    assert!(events.iter().all(|event| event.data.is_none()), "no message: {events:?}");
    complete.then(|| {
        let retry = events.iter().find_map(|event| event.retry.as_deref()).expect("when to come back");
        retry.parse().expect("milliseconds")
    })
}

#[test]
fn streams_end_one_after_the_other_and_their_clients_come_back_at_different_times() {
    let mut world = World::new();
    let listeners: Vec<_> = (0..200)
        .map(|_| {
            let owner = world.open("2025-11-25");
            let listener = world.listen(owner);
            world.events(listener);
            listener
        })
        .collect();
    let usual_ms = config(1).retry_ms;
    world.drain(60_000);
    world.settle();
    let mut retries = Vec::new();
    let mut ended_by = Vec::new();
    // 400 connections: at the least pace they take 400 ms.
    for _ in 0..4 {
        retries.extend(listeners.iter().filter_map(|listener| retry_of_ended(&mut world, *listener)));
        ended_by.push(retries.len());
        world.advance(100);
    }
    retries.extend(listeners.iter().filter_map(|listener| retry_of_ended(&mut world, *listener)));
    assert_eq!(ended_by[0], 0, "nobody is sent away at once: {ended_by:?}");
    assert!(ended_by.windows(2).all(|pair| (30..=70).contains(&(pair[1] - pair[0]))), "evenly: {ended_by:?}");
    assert_eq!(retries.len(), 200);
    assert!(retries.iter().all(|retry| (usual_ms..=2 * usual_ms).contains(retry)), "{retries:?}");
    retries.sort_unstable();
    retries.dedup();
    assert!(retries.len() > 100, "they do not come back together: {retries:?}");
}

#[test]
fn a_client_that_comes_back_for_a_running_call_gets_its_answer() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let caller = world.join(client);
    let (shard, call) = world.begin(caller, "1");
    world.progress(shard, call.key, 1);
    let cursor = world.response(caller).events()[0].id.clone().expect("a primed stream");
    world.drain(0);
    world.settle();
    world.reset(caller);
    let (resumed, head) = world.resume(client, &cursor);
    assert_eq!(head.status, 200);
    assert!(!world.shards[0].all_are_drained(), "the call runs");
    world.answer(shard, call.key, r#"{"late":true}"#);
    let bytes = std::mem::take(&mut world.client(resumed).received);
    let (content, complete) = http::dechunk(&bytes);
    assert!(complete && String::from_utf8(content).unwrap().contains("late"));
    assert!(world.shards[0].all_are_drained());
    let (_, again) = world.resume(client, &cursor);
    assert!(again.status == 200 && again.complete, "what is kept can be fetched: {again:?}");
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(world.response(listener).status, 503);
}

#[test]
fn a_shard_that_has_finished_waits_for_the_others() {
    let mut world = World::with(config(2));
    let client = world.open_on(0, "2025-11-25");
    let (shard, call) = world.begin(client, "1");
    world.drain(0);
    world.settle();
    assert!(world.shards[1].is_drained() && !world.shards[1].all_are_drained(), "clients may land on it");
    assert!(!world.shards[0].all_are_drained());
    world.answer(shard, call.key, "{}");
    assert!(world.shards[0].all_are_drained() && world.shards[1].all_are_drained());
}

#[test]
fn a_shard_that_is_asked_again_has_not_finished() {
    let mut world = World::with(config(2));
    let client = world.open_on(0, "2025-11-25");
    let (shard, first) = world.begin(client, "1");
    let other = world.open_on(1, "2025-11-25");
    world.drain(0);
    world.settle();
    assert!(!world.shards[1].all_are_drained());
    let (late_shard, late) = world.begin(other, "2");
    assert!(!world.shards[1].all_are_drained());
    world.answer(shard, first.key, "{}");
    assert!(!world.shards[0].all_are_drained(), "the other works again");
    world.answer(late_shard, late.key, "{}");
    assert!(world.shards[1].all_are_drained() && world.shards[0].all_are_drained());
}
