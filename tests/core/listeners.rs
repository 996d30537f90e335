//! Who gets what the server sends unasked: one primary, probed when in doubt, and shadows in its place.

use crate::world::{ClientId, World, config};
use moorline::core::{NotificationKind, config::ListenerPolicy};

fn session() -> (World, ClientId) {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    (world, client)
}

/// Announces a message and asserts that it arrives at `expected` and at no other listener.
#[track_caller]
fn assert_primary(world: &mut World, owner: ClientId, expected: ClientId, listeners: &[ClientId]) {
    for listener in listeners {
        world.events(*listener);
    }
    world.announce(owner, "who");
    for listener in listeners {
        let texts = world.texts(*listener);
        let wanted: &[&str] = if *listener == expected { &["who"] } else { &[] };
        assert_eq!(texts, wanted, "at {listener:?}, {expected:?} being primary");
    }
}

#[track_caller]
fn assert_open(world: &mut World, clients: &[ClientId]) {
    for client in clients {
        assert_eq!(world.client(*client).ending, None, "{client:?} stays open");
    }
}

fn fallen_through(world: &mut World, owner: ClientId) -> ClientId {
    let (last, _) = world.finished_post(owner);
    let (client, response) = world.resume(owner, &last);
    assert_eq!(response.status, 200);
    assert!(!response.complete, "a fallen-through stream stays open");
    client
}

// --- One primary, every GET gets its stream ------------------------------------------------------

#[test]
fn every_get_is_held_and_each_message_is_on_exactly_one() {
    let (mut world, owner) = session();
    let listeners: Vec<_> = (0..5).map(|_| world.listen(owner)).collect();
    for _ in 0..10 {
        assert_primary(&mut world, owner, listeners[0], &listeners);
        world.advance(20_000);
    }
    assert_open(&mut world, &listeners);
}

#[test]
fn a_shadow_gets_comments() {
    let (mut world, owner) = session();
    let (_primary, shadow) = (world.listen(owner), world.listen(owner));
    world.advance(60_000);
    let events = world.events(shadow);
    assert!(events.len() >= 4, "{events:?}");
    assert!(events.iter().all(|event| event.is_keep_alive()));
}

#[test]
fn streams_opened_and_closed_without_pause_all_stay_open() {
    let (mut world, owner) = session();
    for round in 0..100 {
        let listener = world.listen(owner);
        assert_primary(&mut world, owner, listener, &[listener]);
        assert_open(&mut world, &[listener]);
        if round % 2 == 0 { world.reset(listener) } else { world.half_close(listener) }
    }
    assert_eq!(world.shards[0].population().conns, 1);
}

// --- The probe -----------------------------------------------------------------------------------

#[test]
fn a_primary_that_acknowledges_the_probe_stays() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    let second = world.listen(owner);
    let probe = world.events(first);
    assert_eq!(probe.len(), 1, "a comment goes to the primary at once");
    assert!(probe[0].is_comment());
    world.advance(6_000);
    assert_primary(&mut world, owner, first, &[first, second]);
    assert_eq!(world.shards[0].counters().primaries_demoted, 0);
}

#[test]
fn a_primary_that_does_not_acknowledge_is_demoted_not_closed() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.hold(first);
    world.announce(owner, "early");
    let second = world.listen(owner);
    world.advance(4_900);
    assert_eq!(world.texts(second), [""; 0], "the probe is not over");
    world.advance(200);
    assert_eq!(world.texts(second), ["early"], "what was not acknowledged moves");
    assert_eq!(world.shards[0].counters().primaries_demoted, 1);
    world.acknowledge(first);
    assert_primary(&mut world, owner, second, &[first, second]);
    assert_open(&mut world, &[first, second]);
    world.advance(30_000);
    let events = world.events(first);
    assert!(!events.is_empty() && events.iter().all(|event| event.is_keep_alive()), "{events:?}");
}

#[test]
fn an_acknowledged_part_is_not_moved_by_a_failed_probe() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "arrived");
    assert_eq!(world.texts(first), ["arrived"]);
    world.hold(first);
    world.announce(owner, "lost");
    let second = world.listen(owner);
    world.advance(5_100);
    assert_eq!(world.texts(second), ["lost"]);
}

#[test]
fn a_newcomer_that_leaves_before_the_probe_ends_changes_nothing() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.hold(first);
    world.announce(owner, "once");
    let newcomer = world.listen(owner);
    world.reset(newcomer);
    world.advance(6_000);
    world.acknowledge(first);
    assert_eq!(world.texts(first), ["once"], "nothing is written twice to the one stream there is");
    assert_primary(&mut world, owner, first, &[first]);
    let later = world.listen(owner);
    world.advance(6_000);
    assert_primary(&mut world, owner, first, &[first, later]);
}

#[test]
fn a_primary_that_dies_during_the_probe_is_succeeded_at_once() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.hold(first);
    world.announce(owner, "moves");
    let second = world.listen(owner);
    world.advance(2_000);
    world.reset(first);
    assert_eq!(world.texts(second), ["moves"]);
    world.advance(10_000);
    assert_primary(&mut world, owner, second, &[second]);
    assert_eq!(world.shards[0].counters().primaries_demoted, 0);
}

#[test]
fn further_newcomers_neither_restart_nor_shorten_a_probe() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.hold(first);
    let second = world.listen(owner);
    world.advance(3_000);
    let third = world.listen(owner);
    world.advance(1_900);
    world.announce(owner, "waits");
    assert!(world.texts(second).is_empty() && world.texts(third).is_empty());
    world.advance(200);
    assert_eq!(world.texts(third), ["waits"], "the most recently attached is promoted");
    assert_primary(&mut world, owner, third, &[second, third]);
}

#[test]
fn a_primary_that_passed_a_probe_can_fail_the_next() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.listen(owner);
    world.advance(6_000);
    world.hold(first);
    let third = world.listen(owner);
    world.advance(5_100);
    assert_primary(&mut world, owner, third, &[third]);
}

#[test]
fn a_stalled_primary_is_demoted_and_finishes_only_its_frame() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.stall(first);
    for n in 0..40 {
        world.announce(owner, &n.to_string());
    }
    let second = world.listen(owner);
    world.advance(5_100);
    let expected: Vec<_> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(world.texts(second), expected);
    world.open_window(first, usize::MAX);
    let late = world.texts(first);
    assert!(late.len() < 10, "only what the kernel held already: {late:?}");
    assert_primary(&mut world, owner, second, &[first, second]);
}

// --- Policy --------------------------------------------------------------------------------------

#[test]
fn with_policy_latest_a_plain_get_takes_over_at_once() {
    let mut config = config(1);
    config.listener_policy = ListenerPolicy::Latest;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    let first = world.listen(owner);
    world.announce(owner, "arrived");
    world.hold(first);
    world.announce(owner, "lost");
    let second = world.join(owner);
    world.get(second);
    let opened = world.response(second);
    let texts: Vec<_> = opened.events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts, ["lost"], "what the former primary did not acknowledge moves");
    world.acknowledge(first);
    assert_primary(&mut world, owner, second, &[first, second]);
    let third = world.listen(owner);
    assert_primary(&mut world, owner, third, &[first, second, third]);
    assert_open(&mut world, &[first, second, third]);
    world.reset(third);
    assert_primary(&mut world, owner, second, &[first, second]);
}

#[test]
fn with_policy_latest_a_cursor_takes_over_nothing() {
    let mut config = config(1);
    config.listener_policy = ListenerPolicy::Latest;
    let mut world = World::with(config);
    let owner = world.open("2025-11-25");
    let first = world.listen(owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(first).remove(0);
    let second = world.listen(owner);
    world.reset(first);
    let (back, _) = world.resume(owner, &id);
    let fallen = fallen_through(&mut world, owner);
    assert_primary(&mut world, owner, second, &[second, back, fallen]);
}

// --- Cursors of listener streams -----------------------------------------------------------------

#[test]
fn the_cursor_of_the_cut_primary_is_primary_again() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(first).remove(0);
    let second = world.listen(owner);
    world.reset(first);
    assert_primary(&mut world, owner, second, &[second]);
    let (back, _) = world.resume(owner, &id);
    assert_primary(&mut world, owner, back, &[second, back]);
    assert_open(&mut world, &[second, back]);
}

#[test]
fn the_cursor_of_the_attached_primary_takes_the_stream_along() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(first).remove(0);
    let (back, _) = world.resume(owner, &id);
    assert_primary(&mut world, owner, back, &[first, back]);
    assert_open(&mut world, &[first, back]);
    world.advance(30_000);
    let events = world.events(first);
    assert!(!events.is_empty() && events.iter().all(|event| event.is_keep_alive()), "{events:?}");
    world.reset(back);
    assert_primary(&mut world, owner, first, &[first]);
}

#[test]
fn the_cursor_of_a_shadow_is_a_shadow_after_its_own_replay() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "zero");
    world.announce(owner, "one");
    let zero = world.numbered(first)[0].0.clone();
    world.hold(first);
    let second = world.listen(owner);
    world.advance(5_100);
    world.reset(first);
    let (back, response) = world.resume(owner, &zero);
    let texts: Vec<_> = response.events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts, ["one"]);
    assert_primary(&mut world, owner, second, &[second, back]);
    world.reset(second);
    assert_primary(&mut world, owner, back, &[back]);
}

/// A stream that was primary when it was cut, came back, and was cut as a shadow, claims nothing.
#[test]
fn a_claim_to_be_primary_is_used_up_by_coming_back() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(first).remove(0);
    world.reset(first);
    let (again, _) = world.resume(owner, &id);
    world.hold(again);
    let second = world.listen(owner);
    world.advance(5_100);
    world.reset(again);
    assert_primary(&mut world, owner, second, &[second]);
    let (shadow, _) = world.resume(owner, &id);
    assert_primary(&mut world, owner, second, &[second, shadow]);
}

#[test]
fn a_listener_cursor_takes_the_place_of_a_fallen_through_primary() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(first).remove(0);
    let second = world.listen(owner);
    world.advance(6_000);
    world.reset(second);
    let fallen = fallen_through(&mut world, owner);
    world.reset(first);
    assert_primary(&mut world, owner, fallen, &[fallen]);
    let (back, _) = world.resume(owner, &id);
    assert_primary(&mut world, owner, back, &[fallen, back]);
}

// --- Fallen through ------------------------------------------------------------------------------

#[test]
fn a_fallen_through_stream_is_primary_only_for_want_of_a_listener() {
    let (mut world, owner) = session();
    let fallen = fallen_through(&mut world, owner);
    assert_primary(&mut world, owner, fallen, &[fallen]);
    let another = fallen_through(&mut world, owner);
    assert_primary(&mut world, owner, fallen, &[fallen, another]);
    let plain = world.listen(owner);
    assert_primary(&mut world, owner, plain, &[fallen, another, plain]);
    let third = fallen_through(&mut world, owner);
    assert_primary(&mut world, owner, plain, &[fallen, another, plain, third]);
    world.reset(plain);
    assert_primary(&mut world, owner, third, &[fallen, another, third]);
    assert_open(&mut world, &[fallen, another, third]);
}

#[test]
fn a_fallen_through_stream_that_was_given_messages_goes_on_as_a_listener() {
    let (mut world, owner) = session();
    let fallen = fallen_through(&mut world, owner);
    world.announce(owner, "one");
    let (id, _) = world.numbered(fallen).remove(0);
    world.reset(fallen);
    let (back, _) = world.resume(owner, &id);
    let plain = world.listen(owner);
    world.advance(6_000);
    assert_primary(&mut world, owner, back, &[back, plain]);
}

/// An `EventSource`: it reconnects after its retry interval with the last id it saw, and stops at a refusal.
struct EventSource {
    client: ClientId,
    last_id: Option<String>,
    closes: usize,
    messages: usize,
    reconnect_at_ms: Option<u64>,
    stopped: bool,
}

impl EventSource {
    fn start(world: &mut World, owner: ClientId, last_id: Option<String>) -> Self {
        let client = world.join(owner);
        let mut source =
            EventSource { client, last_id, closes: 0, messages: 0, reconnect_at_ms: None, stopped: false };
        source.get(world);
        source
    }

    fn get(&mut self, world: &mut World) {
        match &self.last_id {
            None => world.get(self.client),
            Some(id) => world.get_after(self.client, id),
        }
        let response = world.response(self.client);
        if response.status != 200 {
            self.stopped = true;
            return;
        }
        self.take(&response.events());
        assert!(!response.complete, "no stream ends at once");
    }

    fn take(&mut self, events: &[crate::world::http::Event]) {
        for event in events {
            self.last_id = event.id.clone().or(self.last_id.take());
            self.messages += usize::from(event.text().is_some());
        }
    }

    fn step(&mut self, world: &mut World, owner: ClientId) {
        if self.stopped {
            return;
        }
        if let Some(at_ms) = self.reconnect_at_ms {
            if at_ms <= world.now.ms {
                self.reconnect_at_ms = None;
                self.client = world.join(owner);
                self.get(world);
            }
            return;
        }
        let bytes = std::mem::take(&mut world.client(self.client).received);
        let (content, ended) = crate::world::http::dechunk(&bytes);
        self.take(&crate::world::http::events(&content));
        if ended || world.client(self.client).closed {
            self.closes += 1;
            self.reconnect_at_ms = Some(world.now.ms + 3_000);
        }
    }
}

#[test]
fn event_sources_with_cursors_of_finished_posts_do_not_leapfrog() {
    let (mut world, owner) = session();
    let mut sources = vec![EventSource::start(&mut world, owner, None)];
    for _ in 0..4 {
        let (last, _) = world.finished_post(owner);
        sources.push(EventSource::start(&mut world, owner, Some(last)));
    }
    sources.push(EventSource::start(&mut world, owner, None));
    let seconds = 5 * 60;
    for second in 0..seconds {
        world.announce(owner, &second.to_string());
        world.advance(1_000);
        for source in &mut sources {
            source.step(&mut world, owner);
        }
    }
    let closes: usize = sources.iter().map(|source| source.closes).sum();
    let messages: usize = sources.iter().map(|source| source.messages).sum();
    assert_eq!(closes, 0, "no stream was closed by another's GET");
    assert_eq!(messages, seconds, "each message on exactly one stream");
    assert_eq!(sources[0].messages, seconds, "the first stays primary");
    assert_eq!(world.shards[0].counters().listeners, 6, "nobody came back");
}

#[test]
fn event_sources_whose_streams_break_settle_again() {
    let (mut world, owner) = session();
    let (last, _) = world.finished_post(owner);
    let mut sources: Vec<_> = [None, Some(last), None]
        .into_iter()
        .map(|cursor| EventSource::start(&mut world, owner, cursor))
        .collect();
    let mut breaks = 0;
    for second in 0..120 {
        world.announce(owner, &second.to_string());
        if second < 60 && second % 7 == 0 {
            let index = second / 7 % 3;
            if sources[index].reconnect_at_ms.is_none() {
                sources[index].step(&mut world, owner);
                world.reset(sources[index].client);
                breaks += 1;
            }
        }
        world.advance(1_000);
        for source in &mut sources {
            source.step(&mut world, owner);
        }
    }
    assert_eq!(
        sources.iter().map(|source| source.closes).sum::<usize>(),
        breaks,
        "only what the network broke"
    );
    assert_eq!(sources.iter().map(|source| source.messages).sum::<usize>(), 120, "each message once");
}

#[test]
fn a_hundred_finished_posts_that_all_reconnect_lock_nobody_out() {
    let (mut world, owner) = session();
    let mut held = Vec::new();
    for n in 0..100 {
        let (last, _) = world.finished_post(owner);
        let (client, response) = world.resume(owner, &last);
        if n < 16 {
            assert_eq!(response.status, 200);
            held.push(client);
        } else {
            assert_eq!(response.status, 405, "an EventSource stops");
            assert_eq!(response.field("allow"), Some("GET, POST, DELETE, OPTIONS"));
        }
    }
    assert_eq!(world.shards[0].counters().listeners_refused, 84);
    let plain = world.listen(owner);
    held.push(plain);
    assert_primary(&mut world, owner, plain, &held);
    assert_open(&mut world, &held);
}

// --- Promotion -----------------------------------------------------------------------------------

#[test]
fn the_most_recent_listener_is_promoted_then_fallen_through_ones() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    let second = world.listen(owner);
    let third = world.listen(owner);
    let fallen = fallen_through(&mut world, owner);
    world.advance(6_000);
    assert_primary(&mut world, owner, first, &[first, second, third, fallen]);
    world.reset(first);
    assert_primary(&mut world, owner, third, &[second, third, fallen]);
    world.half_close(third);
    assert_primary(&mut world, owner, second, &[second, fallen]);
    world.reset(second);
    assert_primary(&mut world, owner, fallen, &[fallen]);
}

#[test]
fn a_demoted_stream_is_the_last_choice_until_it_acknowledges_something() {
    for recovers in [false, true] {
        let (mut world, owner) = session();
        let first = world.listen(owner);
        world.hold(first);
        let second = world.listen(owner);
        world.advance(5_100);
        let fallen = fallen_through(&mut world, owner);
        if recovers {
            world.acknowledge(first);
        }
        world.advance(45_000);
        world.reset(second);
        let expected = if recovers { first } else { fallen };
        assert_primary(&mut world, owner, expected, &[first, fallen]);
        world.reset(fallen);
        world.acknowledge(first);
        assert_primary(&mut world, owner, first, &[first]);
    }
}

#[test]
fn a_demoted_stream_that_is_asked_again_stays_the_last_choice() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.hold(first);
    let second = world.listen(owner);
    world.advance(5_100);
    world.announce(owner, "one");
    let (id, _) = world.numbered(second).remove(0);
    world.reset(second);
    let asking = world.listen(owner);
    world.reset(asking);
    let (back, _) = world.resume(owner, &id);
    let fallen = fallen_through(&mut world, owner);
    world.reset(back);
    assert_primary(&mut world, owner, fallen, &[first, fallen]);
}

#[test]
fn unacknowledged_events_move_under_new_ids_and_leave_the_old_log() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "arrived");
    let arrived = world.numbered(first).remove(0).0;
    world.hold(first);
    world.announce(owner, "one");
    world.announce(owner, "two");
    let second = world.listen(owner);
    world.reset(first);
    let moved = world.numbered(second);
    assert_eq!(moved.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let stream_of = |id: &str| id.split('-').nth(1).unwrap().to_owned();
    assert!(moved.iter().all(|(id, _)| stream_of(id) != stream_of(&arrived)), "{moved:?} after {arrived}");
    let (back, response) = world.resume(owner, &arrived);
    assert_eq!(response.status, 200);
    assert!(response.events().iter().all(|event| event.text().is_none()), "the old log has them no more");
    assert_eq!(world.texts(back), [""; 0]);
    assert_eq!(world.shards[0].counters().events_moved, 2);
}

#[test]
fn unacknowledged_events_wait_for_a_plain_get_however_late() {
    for wait_ms in [0, 1_000, 600_000] {
        let (mut world, owner) = session();
        let first = world.listen(owner);
        world.hold(first);
        world.announce(owner, "one");
        world.announce(owner, "two");
        world.reset(first);
        world.announce(owner, "three");
        world.advance(wait_ms);
        let later = world.join(owner);
        world.get(later);
        let response = world.response(later);
        let texts: Vec<_> = response.events().iter().filter_map(|event| event.text()).collect();
        assert_eq!(texts, ["one", "two", "three"], "after {wait_ms} ms");
    }
}

#[test]
fn acknowledged_events_are_never_repeated_on_a_plain_get() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.announce(owner, "one");
    world.announce_kind(owner, NotificationKind::ToolsListChanged, "notifications/tools/list_changed");
    world.reset(first);
    for _ in 0..10 {
        let next = world.join(owner);
        world.get(next);
        let response = world.response(next);
        assert!(response.events().iter().all(|event| event.data.as_deref().is_none_or(str::is_empty)));
        world.reset(next);
    }
}

/// A half-closed peer may still read: it must not get what moved to another.
#[test]
fn a_half_closed_listener_gets_nothing_that_moved() {
    let (mut world, owner) = session();
    let first = world.listen(owner);
    world.stall(first);
    for n in 0..40 {
        world.announce(owner, &n.to_string());
    }
    world.half_close(first);
    let second = world.join(owner);
    world.get(second);
    let texts: Vec<_> = world.response(second).events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts.len(), 40);
    world.open_window(first, usize::MAX);
    let bytes = std::mem::take(&mut world.client(first).received);
    let (content, complete) = crate::world::http::dechunk(&bytes);
    assert!(complete, "the stream ends cleanly");
    let late = crate::world::http::events(&content).len();
    assert!(late < 10, "only what the kernel held already, not {late}");
}

#[test]
fn a_drain_ends_listeners_with_a_retry_and_promotes_nobody() {
    let (mut world, owner) = session();
    let listeners: Vec<_> = (0..4).map(|_| world.listen(owner)).collect();
    world.advance(6_000);
    for listener in &listeners {
        world.events(*listener);
    }
    world.hold(listeners[0]);
    world.announce(owner, "not arrived");
    world.drain(0);
    world.settle();
    for listener in &listeners[1..] {
        let bytes = std::mem::take(&mut world.client(*listener).received);
        let (content, complete) = crate::world::http::dechunk(&bytes);
        assert!(complete);
        let events = crate::world::http::events(&content);
        assert_eq!(events.len(), 1, "no message, only when to come back: {events:?}");
        assert!(events[0].retry.is_some() && events[0].data.is_none());
    }
    assert_eq!(world.shards[0].counters().primaries_promoted, 0);
    let late = world.join(owner);
    world.get(late);
    assert_eq!(world.response(late).status, 503);
}

// --- Caps ----------------------------------------------------------------------------------------

#[test]
fn a_listener_takes_the_place_of_the_oldest_fallen_through_stream() {
    let (mut world, owner) = session();
    let plain: Vec<_> = (0..16).map(|_| world.listen(owner)).collect();
    let fallen: Vec<_> = (0..16).map(|_| fallen_through(&mut world, owner)).collect();
    let (last, _) = world.finished_post(owner);
    assert_eq!(world.resume(owner, &last).1.status, 405);
    for index in 0..16 {
        world.listen(owner);
        let bytes = std::mem::take(&mut world.client(fallen[index]).received);
        assert!(crate::world::http::dechunk(&bytes).1, "the oldest ends cleanly");
        assert_open(&mut world, &fallen[index + 1..]);
    }
    let late = world.join(owner);
    world.get(late);
    let refused = world.response(late);
    assert_eq!(refused.status, 503);
    assert!(refused.field("retry-after").is_some());
    assert_open(&mut world, &plain);
    world.reset(plain[3]);
    world.get(late);
    assert_eq!(world.response(late).status, 200);
}

/// Clients beyond the cap that always come back: nobody's place is taken, so nothing cascades.
#[test]
fn newcomers_beyond_the_cap_evict_nobody() {
    let (mut world, owner) = session();
    let held: Vec<_> = (0..32).map(|_| world.listen(owner)).collect();
    for _ in 0..60 {
        for _ in 0..20 {
            let late = world.join(owner);
            world.get(late);
            assert_eq!(world.response(late).status, 503);
            world.reset(late);
        }
        world.advance(5_000);
    }
    assert_open(&mut world, &held);
}

#[test]
fn a_place_is_free_again_whatever_closed_the_connection() {
    let (mut world, owner) = session();
    for round in 0..12 {
        let held: Vec<_> = (0..16).map(|_| fallen_through(&mut world, owner)).collect();
        for client in held {
            match round % 3 {
                0 => world.reset(client),
                1 => world.half_close(client),
                _ => {
                    world.stall(client);
                    world.hold(client);
                }
            }
        }
        // Stalled ones are cut when their keep-alive does not get through.
        world.advance(50_000);
    }
    assert_eq!(world.shards[0].population().conns, 0);
    let plain = world.listen(owner);
    assert_primary(&mut world, owner, plain, &[plain]);
}

// --- Ends ----------------------------------------------------------------------------------------

#[test]
fn a_deleted_session_ends_every_stream_and_opens_no_other() {
    let (mut world, owner) = session();
    let listeners: Vec<_> = (0..3).map(|_| world.listen(owner)).collect();
    world.hold(listeners[1]);
    world.announce(owner, "one");
    world.delete(owner);
    assert_eq!(world.response(owner).status, 204);
    world.acknowledge(listeners[1]);
    for listener in listeners {
        let bytes = std::mem::take(&mut world.client(listener).received);
        assert!(crate::world::http::dechunk(&bytes).1, "{listener:?} ends");
    }
    let late = world.join(owner);
    world.get(late);
    assert_eq!(world.response(late).status, 404);
    assert_eq!(world.shards[0].population().streams, 0);
}
