//! What waits for a listener: bounded, merged where it says the same, and written first.

use crate::world::{ClientId, World, http, other};
use moorline::core::{LogLevel, Notification, NotificationKind, Tell, jsonrpc};

fn session() -> (World, ClientId) {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    (world, client)
}

fn tools(world: &mut World, owner: ClientId) {
    world.announce_kind(owner, NotificationKind::ToolsListChanged, "notifications/tools/list_changed");
}

fn updated(world: &mut World, owner: ClientId, uri: &str) {
    let (shard, session) = world.session_of(owner);
    let json = jsonrpc::notification(
        "notifications/resources/updated",
        Some(format!(r#"{{"uri":"{uri}"}}"#).as_bytes()),
    );
    let kind = NotificationKind::ResourceUpdated(uri.into());
    world.tell(shard, Tell::Announce(session, Notification { kind, json }));
}

fn of_kind(world: &mut World, owner: ClientId, kind: NotificationKind, text: &str) {
    let (shard, session) = world.session_of(owner);
    world.tell(shard, Tell::Announce(session, Notification { kind, json: other(text).json }));
}

/// What a new plain GET gets at once: texts, methods, URIs.
fn drained(world: &mut World, owner: ClientId) -> (ClientId, Vec<String>) {
    let listener = world.join(owner);
    world.get(listener);
    let events = world.response(listener).events();
    (listener, gist(&events))
}

fn gist(events: &[http::Event]) -> Vec<String> {
    let has_data = |event: &&http::Event| event.data.as_deref().is_some_and(|data| !data.is_empty());
    let gist = |event: &http::Event| {
        let json = event.json();
        let detail = json["params"]["text"].as_str().or(json["params"]["uri"].as_str());
        detail.or(json["method"].as_str()).unwrap().trim_start_matches("notifications/").to_owned()
    };
    events.iter().filter(has_data).map(gist).collect()
}

#[test]
fn what_nobody_was_given_is_written_first_and_in_order() {
    let (mut world, owner) = session();
    for text in ["one", "two"] {
        world.announce(owner, text);
    }
    world.advance(10 * 60_000);
    let (listener, waiting) = drained(&mut world, owner);
    assert_eq!(waiting, ["one", "two"]);
    world.announce(owner, "three");
    assert_eq!(world.texts(listener), ["three"]);
}

#[test]
fn an_event_gets_its_id_when_it_is_written() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.reset(first);
    world.announce(owner, "one");
    let second = world.join(owner);
    world.get(second);
    let id =
        world.response(second).events().into_iter().find(|event| event.text().is_some()).unwrap().id.unwrap();
    assert!(id.ends_with("-l2-1"), "{id}");
}

#[test]
fn waiting_signals_are_one_each_at_the_oldest_position() {
    let (mut world, owner) = session();
    tools(&mut world, owner);
    world.announce(owner, "between");
    updated(&mut world, owner, "a:1");
    updated(&mut world, owner, "a:2");
    tools(&mut world, owner);
    updated(&mut world, owner, "a:1");
    world.announce(owner, "between");
    let (_, waiting) = drained(&mut world, owner);
    assert_eq!(waiting, ["tools/list_changed", "between", "a:1", "a:2", "between"]);
    assert_eq!(world.shards[0].counters().messages_merged, 2);
}

#[test]
fn returned_signals_merge_with_waiting_ones_at_the_oldest_position() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.hold(listener);
    world.announce(owner, "one");
    tools(&mut world, owner);
    world.announce(owner, "two");
    tools(&mut world, owner);
    world.reset(listener);
    world.announce(owner, "three");
    tools(&mut world, owner);
    updated(&mut world, owner, "a:1");
    let (_, waiting) = drained(&mut world, owner);
    assert_eq!(waiting, ["one", "tools/list_changed", "two", "three", "a:1"]);
}

#[test]
fn signals_that_were_written_are_not_merged_with() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    tools(&mut world, owner);
    tools(&mut world, owner);
    assert_eq!(gist(&world.events(listener)), ["tools/list_changed"; 2]);
}

#[test]
fn on_overflow_progress_goes_first_then_log_messages_then_the_oldest() {
    let (mut world, owner) = session();
    world.announce(owner, "oldest");
    of_kind(&mut world, owner, NotificationKind::Log(LogLevel::Error), "log");
    of_kind(&mut world, owner, NotificationKind::Progress, "progress 1");
    of_kind(&mut world, owner, NotificationKind::Progress, "progress 2");
    for n in 4..256 {
        world.announce(owner, &n.to_string());
    }
    assert_eq!(world.shards[0].counters().messages_dropped, 0);
    for n in 256..260 {
        world.announce(owner, &n.to_string());
    }
    assert_eq!(world.shards[0].counters().messages_dropped, 4, "every drop is counted");
    let (_, waiting) = drained(&mut world, owner);
    let expected: Vec<_> = (4..260).map(|n| n.to_string()).collect();
    assert_eq!(waiting, expected);
}

/// What may go first never pushes out what may not.
#[test]
fn progress_that_finds_the_queue_full_of_messages_is_dropped_itself() {
    let (mut world, owner) = session();
    for n in 0..256 {
        world.announce(owner, &n.to_string());
    }
    of_kind(&mut world, owner, NotificationKind::Progress, "progress");
    of_kind(&mut world, owner, NotificationKind::Log(LogLevel::Error), "log");
    assert_eq!(world.shards[0].counters().messages_dropped, 2);
    let (_, waiting) = drained(&mut world, owner);
    let expected: Vec<_> = (0..256).map(|n| n.to_string()).collect();
    assert_eq!(waiting, expected);
}

#[test]
fn the_queue_is_bounded_in_bytes_too() {
    let (mut world, owner) = session();
    let large = "x".repeat(100_000);
    for _ in 0..20 {
        world.announce(owner, &large);
    }
    world.announce(owner, "last");
    let (_, waiting) = drained(&mut world, owner);
    assert_eq!(waiting.len(), 11);
    assert_eq!(waiting[10], "last");
}

#[test]
fn the_queue_of_one_session_is_nobody_elses() {
    let (mut world, owner) = session();
    let stranger = world.open("2025-11-25");
    world.announce(owner, "mine");
    assert_eq!(drained(&mut world, stranger).1, [""; 0]);
    assert_eq!(drained(&mut world, owner).1, ["mine"]);
}
