//! Updates of resources: to the sessions that are subscribed, on whatever shard, and to nobody else.

use crate::world::{World, client::ClientId, config};
use moorline::core::{Notification, NotificationKind, Tell};
use moorline::limits::SUBSCRIPTIONS_PER_SESSION_MAX;

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe"}"#;

/// Has the backend subscribe the client's session to `uri`; what the client is answered.
fn subscribe(world: &mut World, client: ClientId, uri: &str) -> String {
    world.post(client, REQUEST);
    let (shard, call) = world.take_call();
    world.tell(shard, Tell::Subscribe(call.key, uri.into()));
    world.response(client).text()
}

fn unsubscribe(world: &mut World, client: ClientId, uri: &str) {
    world.post(client, REQUEST);
    let (shard, call) = world.take_call();
    world.tell(shard, Tell::Unsubscribe(call.key, uri.into()));
    assert!(world.response(client).text().ends_with(r#""result":{}}"#));
}

fn update(world: &mut World, shard: usize, uri: &str) {
    let json = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    );
    let kind = NotificationKind::ResourceUpdated(uri.into());
    world.tell(shard, Tell::Broadcast(Notification { kind, json: json.into() }));
}

/// A session on that shard, and a listener of it that has its head.
fn listening(world: &mut World, shard: usize) -> (ClientId, ClientId) {
    let client = world.open_on(shard, "2025-11-25");
    let listener = world.join_on(client, shard);
    world.get(listener);
    world.response(listener);
    (client, listener)
}

/// How many updates the listener heard since it was last asked.
fn heard(world: &mut World, listener: ClientId) -> usize {
    let events = world.events(listener);
    events.iter().filter(|event| event.data.as_deref().is_some_and(|data| data.contains("updated"))).count()
}

#[test]
fn updates_reach_the_subscribed_sessions_of_all_shards() {
    let mut world = World::with(config(3));
    let sessions = [0, 1, 2, 1].map(|shard| listening(&mut world, shard));
    for (client, _) in &sessions[..3] {
        assert!(subscribe(&mut world, *client, "a:1").ends_with(r#""result":{}}"#));
    }
    subscribe(&mut world, sessions[0].0, "a:1");
    subscribe(&mut world, sessions[3].0, "a:2");
    update(&mut world, 1, "a:1");
    assert_eq!(sessions.map(|(_, listener)| heard(&mut world, listener)), [1, 1, 1, 0]);
    unsubscribe(&mut world, sessions[1].0, "a:1");
    unsubscribe(&mut world, sessions[1].0, "a:never");
    update(&mut world, 0, "a:1");
    update(&mut world, 0, "a:2");
    update(&mut world, 0, "a:3");
    assert_eq!(sessions.map(|(_, listener)| heard(&mut world, listener)), [1, 0, 1, 1]);
}

#[test]
fn a_subscription_ends_with_its_session_and_not_for_the_next_in_its_place() {
    let mut world = World::new();
    let (client, _) = listening(&mut world, 0);
    subscribe(&mut world, client, "a:1");
    world.delete(client);
    let (_, listener) = listening(&mut world, 0);
    update(&mut world, 0, "a:1");
    assert_eq!(heard(&mut world, listener), 0);
    assert!(!world.shards[0].has_broadcasts());
}

#[test]
fn an_update_goes_on_where_its_turn_ended() {
    let mut world = World::new();
    let sessions = [0; 5].map(|shard| listening(&mut world, shard));
    for (client, _) in &sessions {
        subscribe(&mut world, *client, "a:1");
    }
    world.pump_budget = 0;
    update(&mut world, 0, "a:1");
    world.pump_budget = 2;
    world.shards[0].pump(2, world.now);
    world.delete(sessions[3].0);
    world.settle();
    let heard = sessions.map(|(_, listener)| heard(&mut world, listener));
    assert_eq!((heard[0], heard[1], heard[2], heard[4]), (1, 1, 1, 1));
}

#[test]
fn a_session_with_too_many_subscriptions_is_refused_more() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    for number in 0..SUBSCRIPTIONS_PER_SESSION_MAX {
        subscribe(&mut world, client, &format!("a:{number}"));
    }
    let refused = subscribe(&mut world, client, "a:more");
    assert!(refused.contains("-32000") && refused.contains("too many subscriptions"), "{refused}");
    assert_eq!(world.shards[0].counters().subscriptions_refused, 1);
}

#[test]
fn a_cancelled_call_subscribes_to_nothing() {
    let mut world = World::new();
    let (client, listener) = listening(&mut world, 0);
    let other = world.join(client);
    world.post(other, REQUEST);
    let (shard, call) = world.take_call();
    world.post(client, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    world.tell(shard, Tell::Subscribe(call.key, "a:1".into()));
    update(&mut world, 0, "a:1");
    assert_eq!(heard(&mut world, listener), 0);
    assert_eq!(world.shards[0].counters().tells_stale, 1);
}
