//! One request of each kind from bytes to bytes.

use crate::world::World;

#[test]
fn a_session_is_opened_used_and_deleted() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.post(client, r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#);
    let (shard, call) = world.take_call();
    assert_eq!(call.method.as_str(), "tools/list");
    world.answer(shard, call.key, r#"{"tools":[]}"#);
    let response = world.response(client);
    assert_eq!(response.status, 200);
    assert_eq!(response.text(), r#"{"jsonrpc":"2.0","id":"a","result":{"tools":[]}}"#);

    world.delete(client);
    assert_eq!(world.response(client).status, 204);
    world.post(client, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    assert_eq!(world.response(client).status, 404);
    assert_eq!(world.shards[0].population().sessions, 0);
}

#[test]
fn a_listener_is_primed_and_gets_messages_and_comments() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let listener = world.join(client);
    world.get(listener);
    let head = world.response(listener);
    assert_eq!(head.status, 200);
    let opening = head.events();
    assert_eq!(opening[0].data.as_deref(), Some(""));
    assert_eq!(opening[0].retry.as_deref(), Some("3000"));
    world.announce(client, "one");
    let events = world.events(listener);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].text().as_deref(), Some("one"));
    assert_eq!(events[0].name.as_deref(), Some("message"));
    world.advance(15_000);
    assert!(world.events(listener).iter().all(|event| event.is_keep_alive()));
}

#[test]
fn a_call_with_progress_is_answered_by_a_stream() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.post(client, r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}"#);
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    world.answer(shard, call.key, "{}");
    let response = world.response(client);
    assert!(response.is_stream() && response.complete);
    let events = response.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(events[2].json()["id"], 7);
    world.post(client, r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#);
    assert_eq!(world.response(client).text(), r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
}

#[test]
fn a_connection_moves_to_the_shard_of_its_session() {
    let mut world = World::with(crate::world::config(4));
    let client = world.open_on(2, "2025-06-18");
    let other = world.join_on(client, 0);
    world.post(other, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(world.response(other).status, 200);
    assert_eq!((world.client(other).moves, world.client(other).shard), (1, 2));
    world.post(other, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(world.response(other).status, 200);
    assert_eq!(world.client(other).moves, 1);
}
