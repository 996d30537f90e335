//! Replies whose connection died: who gets them, once.

use crate::world::{World, ask::post, client::ClientId};
use moorline::limits::{ACK_RECHECK_MS, UNPROVEN_BYTES_MAX, UNPROVEN_REPLIES_MAX};

const CALL: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}"#;

/// A POST whose connection is reset before its call is answered with JSON.
fn lose_a_reply(world: &mut World, client: ClientId, id: u32) {
    let poster = world.join(client);
    world.post(poster, &CALL.replace('5', &id.to_string()));
    let (shard, call) = world.take_call();
    world.reset(poster);
    world.answer(shard, call.key, "{}");
}

fn response_ids(world: &mut World, client: ClientId) -> Vec<u64> {
    let response = world.response(client);
    assert_eq!(response.status, 200);
    response
        .events()
        .iter()
        .filter(|event| event.name.is_some())
        .filter_map(|e| e.json()["id"].as_u64())
        .collect()
}

#[test]
fn a_plain_get_gets_lost_replies_without_an_id_and_stays_open() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    lose_a_reply(&mut world, client, 5);
    let listener = world.join(client);
    world.get(listener);
    let response = world.response(listener);
    assert!(!response.complete, "it goes on as a listener");
    let reply = response.events().into_iter().find(|event| event.name.is_some()).unwrap();
    assert_eq!((reply.id.as_deref(), reply.json()["id"].as_u64()), (None, Some(5)));
    world.announce(client, "later");
    assert_eq!(world.texts(listener), ["later"]);
}

#[test]
fn of_two_plain_gets_one_gets_the_reply() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    lose_a_reply(&mut world, client, 5);
    let (first, second) = (world.join(client), world.join(client));
    world.get(first);
    world.get(second);
    assert_eq!(response_ids(&mut world, first), [5]);
    assert_eq!(response_ids(&mut world, second), [] as [u64; 0]);
}

#[test]
fn a_claim_that_dies_unacknowledged_goes_to_the_next() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    lose_a_reply(&mut world, client, 5);
    let (first, second) = (world.join(client), world.join(client));
    world.client(first).acknowledges = false;
    world.get(first);
    world.get(second);
    assert_eq!(response_ids(&mut world, second), [] as [u64; 0]);
    world.reset(first);
    let events = world.events(second);
    assert_eq!(events.iter().filter(|e| e.name.is_some()).count(), 1, "{events:?}");

    // And with nobody there, to the next that comes.
    lose_a_reply(&mut world, client, 6);
    let third = world.join(client);
    world.client(third).acknowledges = false;
    world.get(third);
    world.reset(second);
    world.reset(third);
    let fourth = world.join(client);
    world.get(fourth);
    assert_eq!(response_ids(&mut world, fourth), [6]);
}

#[test]
fn a_reply_that_arrived_is_not_copied_when_its_connection_is_reset_later() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    world.post(poster, CALL);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(poster).status, 200);
    world.reset(poster);
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(response_ids(&mut world, listener), [] as [u64; 0]);
}

#[test]
fn a_written_reply_that_did_not_arrive_is_recovered() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    world.post(poster, CALL);
    world.client(poster).acknowledges = false;
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    world.reset(poster);
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(response_ids(&mut world, listener), [5]);
}

#[test]
fn a_request_behind_a_reply_is_no_evidence_that_it_arrived() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut world = World::new();
        let client = world.open(revision);
        let poster = world.join(client);
        world.hold(poster);
        world.post(poster, CALL);
        let (shard, call) = world.take_call();
        world.answer(shard, call.key, "{}");
        world.post(poster, &CALL.replace('5', "6"));
        let (shard, call) = world.take_call();
        world.progress(shard, call.key, 1);
        world.answer(shard, call.key, "{}");
        world.reset(poster);
        let listener = world.join(client);
        world.get(listener);
        assert_eq!(response_ids(&mut world, listener), [5, 6], "{revision}");
    }
}

#[test]
fn requests_wait_when_too_many_replies_may_not_have_arrived() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    world.hold(poster);
    let count = UNPROVEN_REPLIES_MAX + 3;
    let field = world.session_field(client);
    let pipeline: String = (0..count).map(|id| post(&field, &CALL.replace('5', &id.to_string()))).collect();
    world.send(poster, pipeline);
    world.half_close(poster);
    let answer_all = |world: &mut World| {
        let mut answered = 0;
        while !world.calls.is_empty() {
            let (shard, call) = world.take_call();
            world.answer(shard, call.key, "{}");
            answered += 1;
        }
        answered
    };
    assert_eq!(answer_all(&mut world), UNPROVEN_REPLIES_MAX);
    world.advance(10 * ACK_RECHECK_MS);
    assert_eq!(answer_all(&mut world), 0, "nothing has arrived yet");
    world.acknowledge(poster);
    world.advance(2 * ACK_RECHECK_MS);
    assert_eq!(answer_all(&mut world), 3);
    let ids: Vec<_> = world.responses(poster).iter().map(|reply| reply.json()["id"].clone()).collect();
    assert_eq!(ids, (0..count).collect::<Vec<_>>());
    world.reset(poster);
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(response_ids(&mut world, listener), [] as [u64; 0], "all have arrived");
}

#[test]
fn large_replies_wait_for_each_other() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    world.hold(poster);
    world.post(poster, CALL);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "x".repeat(UNPROVEN_BYTES_MAX)));
    world.post(poster, &CALL.replace('5', "6"));
    assert!(world.calls.is_empty());
    world.acknowledge(poster);
    world.advance(2 * ACK_RECHECK_MS);
    assert_eq!(world.calls.len(), 1);
}

#[test]
fn a_get_with_a_cursor_never_takes_this_path_and_names_its_own_stream_only() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    lose_a_reply(&mut world, client, 7);
    let (a, b) = (world.join(client), world.join(client));
    let mut cursors = Vec::new();
    for (poster, id) in [(a, "20"), (b, "21")] {
        world.post(poster, &CALL.replace('5', id));
        let (shard, call) = world.take_call();
        world.progress(shard, call.key, 1);
        cursors.push(world.response(poster).events()[0].id.clone().unwrap());
        world.reset(poster);
        world.answer(shard, call.key, "{}");
    }
    let get = world.join(client);
    world.get_after(get, &cursors[1]);
    let response = world.response(get);
    assert!(response.complete, "it ends with its response");
    let ids: Vec<_> =
        response.events().iter().filter(|e| e.name.is_some()).map(|e| e.json()["id"].clone()).collect();
    assert_eq!(ids, [serde_json::Value::Null, 21.into()], "progress, then the response");
}

#[test]
fn a_stream_whose_first_event_id_never_arrived_counts_as_unnamed() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let poster = world.join(client);
    world.client(poster).acknowledges = false;
    world.post(poster, CALL);
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    world.reset(poster);
    world.answer(shard, call.key, "{}");
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(response_ids(&mut world, listener), [5]);
}

#[test]
fn lost_replies_leave_with_their_time_and_with_their_session() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let before = world.shards[0].population().timers;
    lose_a_reply(&mut world, client, 5);
    assert_eq!(world.shards[0].population().timers, before + 1);
    world.advance(121_000);
    let listener = world.listen(client);
    assert!(world.events(listener).is_empty());
    world.reset(listener);
    lose_a_reply(&mut world, client, 6);
    let poster = world.join(client);
    world.delete(poster);
    assert_eq!(world.shards[0].population().sessions, 0);
}

#[test]
fn nothing_is_recovered_when_the_fallback_is_off() {
    let config = moorline::core::config::CoreConfig { fresh_get_fallback: false, ..crate::world::config(1) };
    let mut world = World::with(config);
    let client = world.open("2025-06-18");
    lose_a_reply(&mut world, client, 5);
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(response_ids(&mut world, listener), [] as [u64; 0]);
}
