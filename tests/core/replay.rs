//! Cursors: what a GET with `Last-Event-ID` gets, and what is kept for it how long. Slow and vanished peers.

use crate::world::{ClientId, World, config, http};
use moorline::core::{Call, NotificationKind};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn session() -> (World, ClientId) {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    (world, client)
}

/// A call on a connection of its own.
fn call(world: &mut World, owner: ClientId, id: &str) -> (ClientId, usize, Call) {
    let caller = world.join(owner);
    world.post(caller, &format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call"}}"#));
    let (shard, call) = world.calls.pop().expect("the backend was asked");
    (caller, shard, call)
}

/// A call whose reply has begun as a stream, and the id of its first progress notification.
fn streaming_call(world: &mut World, owner: ClientId, id: &str) -> (ClientId, usize, Call, String) {
    let (caller, shard, call) = call(world, owner, id);
    world.progress(shard, call.key, 1);
    let events = world.response(caller).events();
    let first = events.into_iter().find(|event| event.data.as_deref().is_some_and(|data| !data.is_empty()));
    let first = first.and_then(|event| event.id).expect("the progress has an id");
    (caller, shard, call, first)
}

/// What matters of events: progress as a number, responses by their id, announced texts.
fn gist(events: &[http::Event]) -> Vec<String> {
    let has_data = |event: &&http::Event| event.data.as_deref().is_some_and(|data| !data.is_empty());
    events
        .iter()
        .filter(has_data)
        .map(|event| {
            let json = event.json();
            if let Some(progress) = json["params"]["progress"].as_u64() {
                return progress.to_string();
            }
            if let Some(id) = json["id"].as_str() {
                return format!("response {id}");
            }
            event.text().unwrap_or_else(|| json["method"].to_string())
        })
        .collect()
}

fn sequence_of(id: &str) -> u32 {
    id.rsplit('-').next().unwrap().parse().unwrap()
}

fn with_sequence(id: &str, sequence: u32) -> String {
    format!("{}-{sequence}", id.rsplit_once('-').unwrap().0)
}

// --- Request streams -----------------------------------------------------------------------------

#[test]
fn a_running_request_goes_on_strictly_after_the_cursor_and_ends_with_its_response() {
    for revision in REVISIONS {
        let mut world = World::new();
        let owner = world.open(revision);
        let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
        world.progress(shard, call.key, 2);
        world.reset(caller);
        world.progress(shard, call.key, 3);
        let (resumed, response) = world.resume(owner, &first);
        assert_eq!(response.status, 200);
        assert_eq!(gist(&response.events()), ["2", "3"], "{revision}");
        world.progress(shard, call.key, 4);
        world.answer(shard, call.key, "{}");
        let bytes = std::mem::take(&mut world.client(resumed).received);
        let (content, complete) = http::dechunk(&bytes);
        assert_eq!(gist(&http::events(&content)), ["4", "response a"], "{revision}");
        assert!(complete, "the stream ends after the response");
    }
}

#[test]
fn a_resumed_stream_is_primed_with_exactly_its_cursor() {
    let (mut world, owner) = session();
    let (caller, _, _, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    for cursor in [with_sequence(&first, 0), first] {
        let (_, response) = world.resume(owner, &cursor);
        let priming = &response.events()[0];
        assert_eq!(priming.id.as_deref(), Some(cursor.as_str()));
        assert_eq!((priming.data.as_deref(), priming.retry.as_deref()), (Some(""), Some("3000")));
    }
}

#[test]
fn revisions_without_priming_open_with_a_comment() {
    let mut world = World::new();
    let owner = world.open("2025-06-18");
    let (caller, _, _, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    let (_, response) = world.resume(owner, &first);
    let events = response.events();
    assert!(events.len() == 1 && events[0].is_comment(), "{events:?}");
}

#[test]
fn the_earlier_connection_gets_only_comments_and_ends_with_the_request() {
    for resumed_is_cut in [false, true] {
        let (mut world, owner) = session();
        let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
        let (resumed, response) = world.resume(owner, &first);
        assert!(gist(&response.events()).is_empty());
        world.progress(shard, call.key, 2);
        assert_eq!(gist(&world.events(resumed)), ["2"]);
        world.advance(40_000);
        let events = world.events(caller);
        assert!(!events.is_empty() && events.iter().all(|event| event.is_comment()), "{events:?}");
        world.announce(owner, "for listeners");
        assert!(world.events(caller).is_empty(), "it is never promoted");
        if resumed_is_cut {
            world.reset(resumed);
        }
        world.answer(shard, call.key, "{}");
        let bytes = std::mem::take(&mut world.client(caller).received);
        let (content, complete) = http::dechunk(&bytes);
        assert!(content.is_empty() && complete, "it ends without a response");
        if resumed_is_cut {
            let (_, response) = world.resume(owner, &first);
            assert_eq!(gist(&response.events()), ["2", "response a"]);
        }
    }
}

#[test]
fn a_connection_that_keeps_taking_over_gets_every_event_once() {
    let (mut world, owner) = session();
    let (_, shard, call, mut cursor) = streaming_call(&mut world, owner, "a");
    let mut got = Vec::new();
    for round in 0..200u32 {
        world.progress(shard, call.key, 2 + round * 2);
        let (resumed, response) = world.resume(owner, &cursor);
        assert_eq!(response.status, 200, "round {round}");
        let mut events = response.events();
        world.progress(shard, call.key, 3 + round * 2);
        events.extend(world.events(resumed));
        cursor = events.iter().filter_map(|event| event.id.clone()).next_back().unwrap();
        got.extend(gist(&events));
        if round % 3 == 0 {
            world.half_close(resumed);
        }
    }
    let expected: Vec<_> = (2..402).map(|n: u32| n.to_string()).collect();
    assert_eq!(got, expected);
}

/// Events that come while a slow reader is still getting the replay follow it, each once and in order.
#[test]
fn there_is_no_gap_or_duplicate_where_replay_meets_live() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    for n in 2..400 {
        world.progress(shard, call.key, n);
    }
    let resumed = world.join(owner);
    world.stall(resumed);
    world.get_after(resumed, &first);
    for n in 400..600 {
        world.progress(shard, call.key, n);
        world.open_window(resumed, 171);
    }
    world.answer(shard, call.key, "{}");
    world.open_window(resumed, usize::MAX);
    let response = world.response(resumed);
    let mut expected: Vec<_> = (2..600).map(|n: u32| n.to_string()).collect();
    expected.push("response a".to_owned());
    assert_eq!(gist(&response.events()), expected);
    assert!(response.complete);
}

#[test]
fn only_events_of_the_cursors_stream_appear() {
    let (mut world, owner) = session();
    let (slow, shard, call_a, first_a) = streaming_call(&mut world, owner, "20");
    let (other, _, call_b, first_b) = streaming_call(&mut world, owner, "21");
    world.reset(slow);
    world.reset(other);
    world.answer(shard, call_a.key, "{}");
    let (resumed, response) = world.resume(owner, &first_b);
    assert!(gist(&response.events()).is_empty());
    world.announce(owner, "for listeners");
    assert!(world.events(resumed).is_empty());
    world.answer(shard, call_b.key, "{}");
    assert_eq!(gist(&world.events(resumed)), ["response 21"]);
    let (_, response) = world.resume(owner, &first_a);
    assert_eq!(gist(&response.events()), ["response 20"]);
    assert!(response.complete);
}

#[test]
fn a_response_is_replayed_again_and_again_until_its_time_is_over() {
    for acknowledged in [false, true] {
        let (mut world, owner) = session();
        let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
        if !acknowledged {
            world.hold(caller);
        }
        world.answer(shard, call.key, "{}");
        world.reset(caller);
        for _ in 0..3 {
            world.advance(30_000);
            let (resumed, response) = world.resume(owner, &with_sequence(&first, 0));
            assert_eq!(gist(&response.events()), ["1", "response a"]);
            assert!(response.complete);
            world.reset(resumed);
        }
        world.advance(40_000);
        let (_, response) = world.resume(owner, &first);
        assert_eq!(response.status, 200, "never refused for age");
        assert!(gist(&response.events()).is_empty() && !response.complete, "fallen through");
    }
}

#[test]
fn a_request_that_finished_while_its_client_was_away_is_kept() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    let (other, _, other_call, _) = streaming_call(&mut world, owner, "b");
    world.answer(shard, other_call.key, "{}");
    assert!(gist(&world.events(other)).contains(&"response b".to_owned()));
    world.answer(shard, call.key, "{}");
    world.advance(60_000);
    let (_, response) = world.resume(owner, &first);
    assert_eq!(gist(&response.events()), ["response a"]);
    assert!(response.complete);
}

#[test]
fn a_cancelled_request_leaves_a_stream_that_does_not_end_at_once_for_ever() {
    let (mut world, owner) = session();
    let (caller, _, _, first) = streaming_call(&mut world, owner, "a");
    world.post(owner, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#);
    world.response(owner);
    world.reset(caller);
    let (_, response) = world.resume(owner, &first);
    assert_eq!(response.status, 200);
    assert!(!response.complete, "fallen through");
}

/// An acknowledged signal is not replayed; a stream with nothing else left is one with nothing left.
#[test]
fn a_stream_with_only_arrived_signals_left_has_nothing_left() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    let json = moorline::core::jsonrpc::notification("notifications/tools/list_changed", None);
    let kind = NotificationKind::ToolsListChanged;
    world.tell(shard, moorline::core::Tell::Notify(call.key, moorline::core::Notification { kind, json }));
    world.post(owner, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#);
    world.response(owner);
    world.reset(caller);
    let (_, response) = world.resume(owner, &first);
    assert!(gist(&response.events()).is_empty());
    assert!(!response.complete, "never a 200 that ends at once");
}

// --- Listener streams ----------------------------------------------------------------------------

#[test]
fn a_listener_goes_on_strictly_after_its_cursor_in_every_revision() {
    for revision in REVISIONS {
        let mut world = World::new();
        let owner = world.open(revision);
        let listener = world.listen(owner);
        for text in ["one", "two", "three"] {
            world.announce(owner, text);
        }
        let events = world.numbered(listener);
        world.reset(listener);
        world.announce(owner, "four");
        let (resumed, response) = world.resume(owner, &events[0].0);
        world.announce(owner, "five");
        let mut got = response.events();
        got.extend(world.events(resumed));
        assert_eq!(gist(&got), ["two", "three", "four", "five"], "{revision}");
        let ids: Vec<_> =
            got.iter().filter(|event| event.text().is_some()).map(|event| event.id.clone()).collect();
        let expected: Vec<_> = (2..=5).map(|n| Some(with_sequence(&events[0].0, n))).collect();
        assert_eq!(ids, expected);
    }
}

#[test]
fn acknowledged_signals_are_not_replayed_but_unacknowledged_ones_are() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.announce(owner, "zero");
    let zero = world.numbered(listener).remove(0).0;
    world.announce_kind(owner, NotificationKind::ToolsListChanged, "notifications/tools/list_changed");
    world.announce(owner, "one");
    world.hold(listener);
    world.announce_kind(owner, NotificationKind::PromptsListChanged, "notifications/prompts/list_changed");
    world.reset(listener);
    let mut cursor = zero;
    for round in 0..10 {
        let (resumed, response) = world.resume(owner, &cursor);
        let expected: &[&str] =
            if round == 0 { &["one", "\"notifications/prompts/list_changed\""] } else { &["one"] };
        assert_eq!(gist(&response.events()), expected, "round {round}");
        cursor = with_sequence(&cursor, 1);
        world.reset(resumed);
    }
}

#[test]
fn a_forgotten_listener_is_continued_under_ids_never_used_before() {
    let (mut world, owner) = session();
    let mut seen = std::collections::HashSet::new();
    let listener = world.listen(owner);
    world.announce(owner, "x");
    let mut cursor = world.numbered(listener).remove(0).0;
    seen.insert(cursor.clone());
    world.reset(listener);
    for round in 0..20 {
        // Its log is forgotten while nobody is there.
        world.advance(130_000);
        let (resumed, response) = world.resume(owner, &cursor);
        assert_eq!(response.status, 200, "never refused for age");
        world.announce(owner, "y");
        world.announce(owner, "z");
        let events = world.numbered(resumed);
        assert_eq!(events.len(), 2);
        for (id, _) in &events {
            assert!(seen.insert(id.clone()), "{id} was used before, round {round}");
        }
        // Sometimes from an older cursor, sometimes by another stream.
        if round % 3 != 0 {
            cursor = events[round % 2].0.clone();
        }
        world.reset(resumed);
        if round % 4 == 0 {
            let plain = world.listen(owner);
            world.announce(owner, "w");
            for (id, _) in world.numbered(plain) {
                assert!(seen.insert(id.clone()), "{id} was used before, round {round}");
            }
            world.reset(plain);
        }
    }
}

#[test]
fn event_ids_of_all_streams_of_a_session_differ() {
    let (mut world, owner) = session();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10 {
        let listener = world.join(owner);
        world.get(listener);
        world.announce(owner, "x");
        let (caller, shard, call) = call(&mut world, owner, "a");
        world.progress(shard, call.key, 1);
        world.answer(shard, call.key, "{}");
        let mut events = world.response(listener).events();
        events.extend(world.response(caller).events());
        for id in events.into_iter().filter_map(|event| event.id) {
            assert!(seen.insert(id.clone()), "{id} twice");
        }
        world.reset(listener);
        world.reset(caller);
        world.advance(150_000);
    }
}

// --- Which cursors are refused -------------------------------------------------------------------

#[test]
fn malformed_never_issued_and_foreign_cursors_get_one_identical_400() {
    let (mut world, owner) = session();
    let (_, shard, call, first) = streaming_call(&mut world, owner, "a");
    let listener = world.listen(owner);
    world.announce(owner, "one");
    let one = world.numbered(listener).remove(0).0;
    let tag = one.split('-').next().unwrap().to_owned();
    let stranger = world.open("2025-11-25");
    let foreign_listener = world.listen(stranger);
    world.announce(stranger, "secret");
    let foreign = world.numbered(foreign_listener).remove(0).0;
    let cursors = [
        "x".to_owned(),
        "0".to_owned(),
        "abcdef".to_owned(),
        format!("{one} "),
        format!("{one}0"),
        one.replace("-l", "-L"),
        one.replace("-l", "-r9"),
        with_sequence(&one, 2),
        with_sequence(&first, 7),
        format!("{tag}-l99-0"),
        format!("{tag}-r99-0"),
        format!("{tag}-l0-0"),
        format!("{tag}-r0-0"),
        format!("{tag}-l1-01"),
        format!("{tag}-l1-4294967296"),
        format!("{tag}-x1-0"),
        foreign,
    ];
    let mut bodies = std::collections::HashSet::new();
    for cursor in cursors {
        let (client, response) = world.resume(owner, &cursor);
        if cursor.ends_with(' ') {
            assert_eq!(response.status, 200, "white space around a field is no part of it");
            world.reset(client);
            continue;
        }
        assert_eq!(response.status, 400, "{cursor:?}");
        bodies.insert(response.body);
    }
    assert_eq!(bodies.len(), 1, "they tell nothing apart");
    world.answer(shard, call.key, "{}");
}

#[test]
fn an_empty_cursor_is_none_and_a_repeated_one_is_refused() {
    let (mut world, owner) = session();
    let listener = world.join(owner);
    world.get_with(listener, "Last-Event-ID:\r\n");
    assert_eq!(world.response(listener).status, 200);
    world.announce(owner, "one");
    let (one, _) = world.numbered(listener).remove(0);
    let twice = world.join(owner);
    world.get_with(twice, &format!("Last-Event-ID: {one}\r\nLast-Event-ID: {one}\r\n"));
    assert_eq!(world.response(twice).status, 400);
}

#[test]
fn a_cursor_on_a_post_is_ignored() {
    let (mut world, owner) = session();
    for cursor in ["x", "aaaaaa-l1-1", ""] {
        let fields = format!("Last-Event-ID: {cursor}\r\n");
        world.post_with(owner, &fields, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!(world.response(owner).status, 200);
    }
}

#[test]
fn a_cursor_of_the_present_is_good_and_of_the_future_is_not() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    assert_eq!(world.resume(owner, &with_sequence(&first, 2)).1.status, 400);
    world.progress(shard, call.key, 2);
    assert_eq!(world.resume(owner, &with_sequence(&first, 2)).1.status, 200);
}

#[test]
fn finished_and_forgotten_request_streams_are_fallen_through() {
    let (mut world, owner) = session();
    let (last, first) = world.finished_post(owner);
    let (finished, response) = world.resume(owner, &last);
    assert!(response.status == 200 && !response.complete);
    world.reset(finished);
    world.advance(300_000);
    for cursor in [&last, &first] {
        let (_, response) = world.resume(owner, cursor);
        assert!(response.status == 200 && !response.complete, "{cursor}");
    }
}

#[test]
fn a_request_stream_whose_unacknowledged_response_was_evicted_is_refused() {
    let mut config = config(1);
    config.replay_events_max = 4;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.hold(caller);
    world.answer(shard, call.key, "{}");
    world.reset(caller);
    let malformed = world.resume(owner, "x").1;
    for id in ["b", "c", "d", "e", "f"] {
        let (caller, shard, call, _) = streaming_call(&mut world, owner, id);
        world.hold(caller);
        world.answer(shard, call.key, "{}");
        world.reset(caller);
    }
    let (_, refused) = world.resume(owner, &first);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.body, malformed.body);
    world.advance(400_000);
    assert_eq!(world.shards[0].population().streams, 0, "what is known of lost responses goes, too");
    assert_eq!(world.resume(owner, &first).1.status, 200);
}

#[test]
fn knowledge_of_lost_responses_is_bounded() {
    let mut config = config(1);
    config.replay_events_max = 4;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    for n in 0..500 {
        let (caller, shard, call, _) = streaming_call(&mut world, owner, &n.to_string());
        world.hold(caller);
        world.answer(shard, call.key, "{}");
        world.reset(caller);
    }
    assert!(world.shards[0].population().streams < 100, "{:?}", world.shards[0].population());
}

/// One response of a batch grew too old; the other is still to come.
#[test]
fn a_running_batch_is_not_refused_for_the_age_of_its_first_response() {
    let mut world = World::new();
    let owner = world.open("2025-03-26");
    let caller = world.join(owner);
    let batch = r#"[{"jsonrpc":"2.0","id":"a","method":"tools/call"},{"jsonrpc":"2.0","id":"b","method":"tools/call"}]"#;
    world.post(caller, batch);
    let ((shard, one), (_, two)) = (world.take_call(), world.take_call());
    world.progress(shard, one.key, 1);
    let first = world.response(caller).events().into_iter().find_map(|event| event.id).unwrap();
    world.hold(caller);
    world.answer(shard, one.key, "{}");
    world.reset(caller);
    world.advance(200_000);
    let (resumed, response) = world.resume(owner, &first);
    assert_eq!(response.status, 200, "never refused for age");
    world.answer(shard, two.key, "{}");
    assert_eq!(gist(&world.events(resumed)), ["response b"]);
}

// --- Bounds and time -----------------------------------------------------------------------------

#[test]
fn logs_are_bounded_and_a_response_is_evicted_last() {
    let mut config = config(1);
    config.replay_events_max = 8;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.reset(caller);
    world.answer(shard, call.key, "{}");
    let (chatty, _, chatty_call, chatty_first) = streaming_call(&mut world, owner, "b");
    world.reset(chatty);
    for n in 2..50 {
        world.progress(shard, chatty_call.key, n);
    }
    world.answer(shard, chatty_call.key, "{}");
    assert_eq!(gist(&world.resume(owner, &first).1.events()), ["response a"]);
    let kept = gist(&world.resume(owner, &chatty_first).1.events());
    assert_eq!(kept, ["44", "45", "46", "47", "48", "49", "response b"], "what is kept, without the rest");
    assert!(world.shards[0].counters().clone().events_evicted > 0);
}

#[test]
fn memory_returns_when_logs_grow_old() {
    let (mut world, owner) = session();
    let before = world.shards[0].population();
    for n in 0..50 {
        let (caller, shard, call, _) = streaming_call(&mut world, owner, &n.to_string());
        if n % 2 == 0 {
            world.hold(caller);
        }
        world.answer(shard, call.key, "{}");
        world.reset(caller);
    }
    let listener = world.listen(owner);
    world.announce(owner, "one");
    world.hold(listener);
    world.announce(owner, "two");
    world.reset(listener);
    assert_eq!(world.shards[0].population().streams, 51);
    world.advance(121_000);
    let after = world.shards[0].population();
    assert_eq!(after.streams, 0);
    // The first connection was idle for too long meanwhile.
    assert_eq!(after.timers, before.timers - (before.conns - after.conns));
}

#[test]
fn events_are_kept_while_they_wait_for_a_slow_reader() {
    let mut config = config(1);
    config.replay_ttl_ms = 10_000;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    let (caller, shard, call, _) = streaming_call(&mut world, owner, "a");
    world.stall(caller);
    for n in 2..300 {
        world.progress(shard, call.key, n);
    }
    for _ in 0..3 {
        world.advance(8_000);
        world.open_window(caller, 1_000);
    }
    world.open_window(caller, usize::MAX);
    let expected: Vec<_> = (2..300).map(|n: u32| n.to_string()).collect();
    assert_eq!(gist(&world.events(caller)), expected);
}

// --- Slow and vanished peers ---------------------------------------------------------------------

#[test]
fn a_stalled_listener_is_cut_and_loses_nothing_a_cursor_brings_back() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.announce(owner, "0");
    let cursor = world.numbered(listener).remove(0).0;
    world.stall(listener);
    for n in 1..100 {
        world.announce(owner, &n.to_string());
    }
    world.advance(31_000);
    assert!(world.client(listener).closed, "past the write deadline");
    assert_eq!(world.shards[0].counters().connections_stalled, 1);
    let (_, response) = world.resume(owner, &cursor);
    let expected: Vec<_> = (1..100).map(|n| n.to_string()).collect();
    assert_eq!(gist(&response.events()), expected);
}

#[test]
fn what_a_cut_primary_did_not_get_goes_to_the_next_in_order() {
    let (mut world, owner) = session();
    let (first, second) = (world.listen(owner), world.listen(owner));
    world.advance(6_000);
    world.events(second);
    world.stall(first);
    for n in 0..250 {
        world.announce(owner, &n.to_string());
    }
    world.advance(31_000);
    assert!(world.client(first).closed);
    let expected: Vec<_> = (0..250).map(|n| n.to_string()).collect();
    assert_eq!(gist(&world.events(second)), expected);
    assert_eq!(world.shards[0].counters().messages_dropped, 0);
}

#[test]
fn a_stalled_reader_costs_only_itself() {
    let (mut world, owner) = session();
    let stranger = world.open("2025-11-25");
    let (slow, quick) = (world.listen(owner), world.listen(stranger));
    let (stalled_caller, shard, stalled_call, _) = streaming_call(&mut world, owner, "a");
    world.stall(slow);
    world.stall(stalled_caller);
    for n in 0..200u32 {
        world.announce(owner, &n.to_string());
        world.announce(stranger, &n.to_string());
        world.progress(shard, stalled_call.key, n);
        assert_eq!(world.texts(quick), [n.to_string()]);
        let (caller, shard, call) = call(&mut world, owner, "b");
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(caller).status, 200, "the session's other requests go on");
        world.reset(caller);
    }
    world.advance(31_000);
    assert!(world.client(slow).closed && world.client(stalled_caller).closed);
    assert_eq!(world.client(quick).ending, None);
    assert_eq!(world.shards[0].population().sessions, 2, "one failed write ends no session");
}

#[test]
fn overflow_cuts_only_a_connection_that_stalls() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    let large = "x".repeat(100_000);
    world.stall(listener);
    for _ in 0..5 {
        world.announce(owner, &large);
    }
    assert_eq!(world.client(listener).ending, None, "a burst is not a stall");
    world.open_window(listener, usize::MAX);
    assert_eq!(world.texts(listener).len(), 5);
    world.announce(owner, "last");
    let cursor = world.numbered(listener).remove(0).0;
    world.stall(listener);
    for _ in 0..3 {
        world.announce(owner, &large);
    }
    world.advance(200);
    assert_eq!(world.client(listener).ending, None, "within the bound");
    for _ in 0..3 {
        world.announce(owner, &large);
    }
    assert!(world.client(listener).closed, "over the bound, and stalled");
    assert_eq!(world.shards[0].counters().connections_overflowed, 1);
    let (_, response) = world.resume(owner, &cursor);
    assert_eq!(response.events().iter().filter(|event| event.text().is_some()).count(), 6);
}

#[test]
fn one_large_message_never_closes_a_stream() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.stall(listener);
    let large = "x".repeat(2_000_000);
    world.announce(owner, &large);
    for _ in 0..20 {
        world.advance(10_000);
        world.open_window(listener, 100_000);
        assert_eq!(world.client(listener).ending, None);
    }
    world.open_window(listener, usize::MAX);
    assert_eq!(world.texts(listener), [large]);
}

#[test]
fn a_half_closed_post_still_gets_its_reply_and_a_half_closed_get_ends() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    world.half_close(caller);
    world.progress(shard, call.key, 2);
    assert_eq!(gist(&world.events(caller)), ["2"]);
    let (resumed, _) = world.resume(owner, &first);
    world.half_close(resumed);
    assert!(http::dechunk(&world.client(resumed).received).1);
    world.answer(shard, call.key, "{}");
    let (_, response) = world.resume(owner, &first);
    assert_eq!(gist(&response.events()), ["2", "response a"]);
    assert_eq!(sequence_of(&first) + 2, 3);
}

/// The kernel says what arrived when a peer half-closes; the stream of its POST goes on.
#[test]
fn a_half_close_is_evidence_of_what_arrived() {
    let (mut world, owner) = session();
    let (caller, shard, call, first) = streaming_call(&mut world, owner, "a");
    let json = moorline::core::jsonrpc::notification("notifications/tools/list_changed", None);
    let kind = NotificationKind::ToolsListChanged;
    world.tell(shard, moorline::core::Tell::Notify(call.key, moorline::core::Notification { kind, json }));
    world.half_close(caller);
    let (_, response) = world.resume(owner, &first);
    assert!(gist(&response.events()).is_empty(), "the signal arrived");
}
