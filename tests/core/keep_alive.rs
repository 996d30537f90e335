//! Keep-alive comments: when they come, when they do not, what they cost, and whom they do not keep alive.

use crate::world::{
    World,
    ask::{bodiless, post, request},
    client::ClientId,
    config,
    http::Event,
    other,
};
use moorline::core::{
    Ending, Piece, Tell,
    config::{CoreConfig, Priming, ResponseMode},
};

/// Comments of streams written together are spread over the last eighth of the interval.
const EARLIEST_MS: u64 = 15_000 * 7 / 8 - 1;
/// What a comment may be late by: a tick of the wheel.
const TICK_MS: u64 = 16;

/// The comments that came since the last look; nothing else may have come.
#[track_caller]
fn comments(world: &mut World, client: ClientId) -> usize {
    let events = world.events(client);
    assert!(events.iter().all(Event::is_keep_alive), "{events:?}");
    events.len()
}

/// Takes away the head of a stream and what was written with it.
fn skip_opening(world: &mut World, client: ClientId) {
    let head = world.response(client);
    assert!(head.is_stream() && !head.complete, "{head:?}");
}

/// A stream of each kind, each on a connection of its own, opened at this moment.
fn streams_of_every_kind(world: &mut World, client: ClientId) -> Vec<(&'static str, ClientId)> {
    let primary = world.listen(client);
    let shadow = world.listen(client);
    let posted = world.join(client);
    world.begin_stream(posted, "1");
    let continued = world.join(client);
    world.begin_stream(continued, "2");
    world.reset(continued);
    let continued = world.join(client);
    let tag = tag_of(world, client);
    world.get_after(continued, &format!("{tag}-r2-0"));
    skip_opening(world, continued);
    // A finished request stream with nothing left: fallen through.
    let fallen_through = world.join(client);
    let (shard, asked) = world.begin_stream(fallen_through, "3");
    world.answer(shard, asked.key, "{}");
    world.events(fallen_through);
    world.get_after(fallen_through, &format!("{tag}-r3-2"));
    skip_opening(world, fallen_through);
    for stream in [primary, shadow] {
        world.events(stream); // the probe of the primary
    }
    vec![
        ("primary", primary),
        ("shadow", shadow),
        ("POST", posted),
        ("continued", continued),
        ("fallen-through", fallen_through),
    ]
}

/// The tag of a session's event ids.
fn tag_of(world: &mut World, client: ClientId) -> String {
    let probe = world.join(client);
    let (shard, asked) = world.begin(probe, r#""tag""#);
    // Streams are numbered in order of their heads; this one goes last.
    world.progress(shard, asked.key, 1);
    let id = world.response(probe).events().into_iter().find_map(|event| event.id).unwrap();
    world.answer(shard, asked.key, "{}");
    world.reset(probe);
    id.split('-').next().unwrap().to_owned()
}

// --- When they come -----------------------------------------------------------------------------

#[test]
fn every_kind_of_stream_gets_a_comment_after_fifteen_seconds_of_silence() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let streams = streams_of_every_kind(&mut world, client);
    for round in 0..4 {
        let slack = round * TICK_MS;
        if round == 0 {
            world.advance(EARLIEST_MS);
            for (kind, stream) in &streams {
                assert_eq!(comments(&mut world, *stream), 0, "{kind}: too early");
            }
            world.advance(15_000 - EARLIEST_MS + TICK_MS + slack);
        } else {
            world.advance(15_000 + TICK_MS);
        }
        for (kind, stream) in &streams {
            assert!(comments(&mut world, *stream) >= 1, "{kind}: silent for 15 s in round {round}");
        }
    }
    assert!(streams.iter().all(|(_, stream)| world.client(*stream).ending.is_none()));
}

#[test]
fn comments_come_from_the_start_on_a_connection_that_was_used_before() {
    // The timers of the past of a connection must not hide the comment that is due.
    for pause_ms in [0, 5_000, 9_000, 11_000, 30_000, 60_000, 74_000] {
        for by_post in [false, true] {
            let mut world = World::new();
            let client = world.open("2025-06-18");
            world.advance(pause_ms);
            if by_post {
                world.begin(client, "1");
                world.advance(1_000 + TICK_MS);
            } else {
                world.get(client);
            }
            skip_opening(&mut world, client);
            world.advance(15_000 + TICK_MS);
            assert!(comments(&mut world, client) >= 1, "after {pause_ms} ms, by POST: {by_post}");
        }
    }
}

#[test]
fn an_interval_of_any_length_is_kept() {
    for keep_alive_ms in [100, 1_000, 20_000, 29_000, 31_000, 120_000] {
        let mut world = World::with(CoreConfig { keep_alive_ms, ..config(1) });
        let client = world.open("2025-06-18");
        let listener = world.listen(client);
        world.advance(keep_alive_ms * 7 / 8 - 2);
        assert_eq!(comments(&mut world, listener), 0, "{keep_alive_ms}");
        world.advance(keep_alive_ms / 8 + 3 + TICK_MS);
        assert!(comments(&mut world, listener) >= 1, "{keep_alive_ms}");
        world.advance(keep_alive_ms * 20);
        assert!((18..=24).contains(&comments(&mut world, listener)), "{keep_alive_ms}");
    }
}

#[test]
fn zero_disables_them() {
    let mut world = World::with(CoreConfig { keep_alive_ms: 0, ..config(1) });
    let client = world.open("2025-11-25");
    let streams = streams_of_every_kind(&mut world, client);
    world.advance(600_000);
    for (kind, stream) in streams {
        assert_eq!(comments(&mut world, stream), 0, "{kind}");
        assert_eq!(world.ending(stream), None, "{kind}");
    }
    assert_eq!(world.counted("comments"), 0);
}

#[test]
fn zero_keeps_no_stalled_peer_for_ever() {
    let mut world = World::with(CoreConfig { keep_alive_ms: 0, ..config(1) });
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.advance(100_000);
    world.stall(listener);
    world.announce(client, "stuck");
    world.advance(30_000 + TICK_MS);
    assert_eq!(world.ending(listener), Some(Ending::Cut));
}

#[test]
fn a_comment_is_a_line_with_a_colon_and_a_blank_one() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.advance(15_000 + TICK_MS);
    assert_eq!(world.client(listener).take_text(), "d\r\n: keepalive\n\n\r\n");
    assert_eq!(world.counted("comments"), 1);
}

#[test]
fn a_write_to_one_stream_postpones_no_other() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (primary, shadow) = (world.listen(client), world.listen(client));
    world.events(primary);
    for _ in 0..5 {
        world.advance(10_000);
        world.announce(client, "x");
        assert_eq!(world.texts(primary), ["x"]);
    }
    assert_eq!(comments(&mut world, primary), 0, "it was never silent");
    assert!(comments(&mut world, shadow) >= 3, "it was never written to");
}

// --- When they do not ---------------------------------------------------------------------------

#[test]
fn nothing_comes_before_the_first_frame() {
    let mut world = World::with(CoreConfig { response_mode: ResponseMode::Json, ..config(1) });
    let client = world.open("2025-11-25");
    let (shard, asked) = world.begin(client, "1");
    world.advance(300_000);
    assert!(world.is_silent(client), "a reply whose form is not decided has no bytes");
    world.answer(shard, asked.key, "{}");
    assert_eq!(world.response(client).json()["id"], 1);
    world.advance(60_000);
    assert!(world.is_silent(client));
    assert_eq!(world.counted("comments"), 0);
}

#[test]
fn nothing_comes_after_the_last_frame() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (shard, asked) = world.begin_stream(client, "1");
    world.advance(14_000);
    world.answer(shard, asked.key, "{}");
    let text = world.client(client).take_text();
    assert!(text.ends_with("0\r\n\r\n"), "{text:?}");
    world.advance(70_000);
    assert!(world.is_silent(client));
}

#[test]
fn nothing_comes_while_bytes_wait_behind_a_stall() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.client(listener).window = 10;
    world.announce(client, "slow");
    for _ in 0..20 {
        // It takes a byte now and then: alive, but never idle.
        world.advance(14_000);
        world.open_window(listener, 1);
    }
    assert_eq!((world.ending(listener), world.counted("comments")), (None, 0));
    world.open_window(listener, 1 << 20);
    let events = world.events(listener);
    assert_eq!((events.len(), events[0].text().as_deref()), (1, Some("slow")));
    world.advance(15_000 + TICK_MS);
    assert!(comments(&mut world, listener) >= 1, "they come again");
}

#[test]
fn a_comment_written_in_part_is_finished_before_anything_else() {
    for window in 1..18 {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let listener = world.listen(client);
        world.client(listener).window = window;
        world.advance(15_000 + TICK_MS);
        world.announce(client, "after");
        world.open_window(listener, 1 << 20);
        let events = world.events(listener);
        assert!(events[0].is_keep_alive() && events[1].text().as_deref() == Some("after"), "{events:?}");
        assert_eq!((events.len(), world.counted("comments")), (2, 1), "{window} bytes at first");
    }
}

#[test]
fn a_due_comment_that_a_message_overtakes_is_not_written() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    let (shard, session) = world.session_of(client);
    world.now.ms += 15_000;
    let now = world.now;
    let core = &mut world.shards[shard];
    core.tick(now, usize::MAX);
    assert!(core.has_comments());
    // The message is written before the shell comes to the comment.
    core.tell(Tell::Announce(session, other("first")), now);
    let key = core.next_output().unwrap();
    let mut pieces = Vec::new();
    core.fill(key, &mut pieces);
    core.wrote(key, pieces.iter().map(Piece::len).sum(), now);
    assert_eq!((core.next_comment(), core.next_output()), (None, None));
    assert_eq!((world.client(listener).key, world.counted("comments")), (key, 0));
}

// --- What they cost -----------------------------------------------------------------------------

#[test]
fn real_writes_do_not_touch_the_wheel() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.reset(client);
    // All but the listener's own and the session's timer are gone; the listener's is the next.
    let (armed, due_ms) = (world.timers(), world.shards[0].next_deadline_ms());
    for _ in 0..10 {
        world.advance(100);
        world.announce(client, "x");
        assert_eq!(world.texts(listener), ["x"]);
        assert_eq!(world.shards[0].next_deadline_ms(), due_ms, "neither armed nor moved");
    }
    assert_eq!(world.timers(), armed + 1, "the log's, which goes with its events");
    let written_ms = world.now.ms;
    world.advance(written_ms + EARLIEST_MS - world.now.ms);
    assert_eq!(comments(&mut world, listener), 0, "but the comment is postponed");
    world.advance(15_000 - EARLIEST_MS + TICK_MS);
    assert!(comments(&mut world, listener) >= 1);
}

#[test]
fn a_stream_costs_one_timer() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let before = world.timers();
    let listeners: Vec<_> = (0..10).map(|_| world.listen(client)).collect();
    world.advance(6_000); // The probe of the primary is over.
    assert_eq!(world.timers(), before + 10);
    for listener in listeners {
        world.reset(listener);
    }
    world.advance(1);
    assert_eq!(world.timers(), before);
}

/// When the server learns of a cut: before the client is back, or after.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Before,
    After,
}

/// Attaches a stream fifty times, each time with an abrupt cut of the one before, and counts timers at the end.
fn check_re_attachments(revision: &str, cursor: Option<&str>, cut: Cut) {
    let mut world = World::new();
    let client = world.open(revision);
    let tag = cursor.map(|_| tag_of_running_streams(&mut world, client));
    let quiet = world.timers();
    let mut last: Option<ClientId> = None;
    for _ in 0..50 {
        let next = world.join(client);
        if let Some(last) = last.filter(|_| cut == Cut::Before) {
            world.reset(last);
        }
        match (cursor, &tag) {
            (Some(cursor), Some(tag)) => world.get_after(next, &format!("{tag}-{cursor}")),
            _ => world.get(next),
        }
        skip_opening(&mut world, next);
        if let Some(last) = last.filter(|_| cut == Cut::After) {
            world.advance(100);
            world.reset(last);
        }
        world.advance(500);
        last = Some(next);
    }
    let last = last.unwrap();
    world.advance(6_000); // Probes are over.
    world.events(last);
    assert_eq!(world.timers(), quiet + 1, "{revision} {cursor:?} {cut:?}");
    world.advance(60_000);
    assert!((4..=5).contains(&comments(&mut world, last)), "the last one still gets comments");
    assert_eq!(world.shards[0].population().conns, 1, "all others are gone, the idle one too");
}

/// A request stream `r1` that runs on and a listener stream `l1`, both cut before anything was written to them.
fn tag_of_running_streams(world: &mut World, client: ClientId) -> String {
    let (poster, listener) = (world.join(client), world.join(client));
    world.begin(poster, "1");
    world.advance(1_000 + TICK_MS);
    let id = world.response(poster).events().remove(0).id.unwrap();
    world.get(listener);
    world.reset(poster);
    world.reset(listener);
    id.split('-').next().unwrap().to_owned()
}

#[test]
fn fifty_abrupt_re_attachments_leave_one_live_timer() {
    for cut in [Cut::Before, Cut::After] {
        check_re_attachments("2025-06-18", None, cut);
        check_re_attachments("2025-11-25", None, cut);
        check_re_attachments("2025-11-25", Some("l1-0"), cut);
        check_re_attachments("2025-11-25", Some("r1-0"), cut);
    }
}

#[test]
fn a_set_up_that_fails_leaves_no_timer_and_no_stream() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let session = world.session_field(client);
    let sse = "Accept: text/event-stream\r\n";
    let refused = [
        bodiless("GET", &format!("{session}Accept: image/png\r\n")),
        bodiless("GET", &format!("{session}{sse}Last-Event-ID: x\r\n")),
        bodiless("GET", &format!("{session}{sse}Last-Event-ID: aaaaaa-l1-1\r\n")),
        bodiless("GET", &format!("{session}{sse}MCP-Protocol-Version: x\r\n")),
        bodiless("GET", &format!("{session}{sse}Expect: tea\r\n")),
        bodiless("GET", sse),
        bodiless("GET", &format!("Mcp-Session-Id: x\r\n{sse}")),
        post(&session, "{"),
        post(&session, &request("null", "ping")),
    ];
    let quiet = world.timers();
    for round in 0..100 {
        for request in &refused {
            let poor = world.connect();
            assert!(world.exchange(poor, request).status >= 400, "{request}");
            assert_eq!(world.shards[0].population().streams, 0, "{request}");
            world.reset(poor);
            assert_eq!(world.timers(), quiet, "round {round}: {request}");
        }
    }
}

#[test]
fn a_get_that_finds_the_session_full_leaves_no_timer() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    for _ in 0..32 {
        world.listen(client);
    }
    world.advance(6_000);
    let full = world.timers();
    for _ in 0..50 {
        let poor = world.join(client);
        world.get(poor);
        assert_eq!(world.response(poor).status, 503);
        world.reset(poor);
        assert_eq!((world.timers(), world.shards[0].population().streams), (full, 32));
    }
}

#[test]
fn a_stream_whose_peer_is_gone_at_once_leaves_nothing() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let quiet = world.timers();
    for _ in 0..200 {
        let brief = world.join(client);
        world.stall(brief); // Not even the head is written.
        world.get(brief);
        world.reset(brief);
        assert_eq!((world.timers(), world.shards[0].population().streams), (quiet, 0));
    }
}

#[test]
fn phases_are_spread_and_a_budget_holds() {
    let mut world = World::with(CoreConfig { priming: Priming::Off, ..config(1) });
    let client = world.open("2025-06-18");
    let mut owners = Vec::new();
    for _ in 0..8 {
        let owner = world.open("2025-06-18");
        owners.extend((0..32).map(|_| owner).collect::<Vec<_>>());
    }
    let listeners: Vec<_> = owners.into_iter().map(|owner| world.listen(owner)).collect();
    world.reset(client);
    world.advance(7_000);
    for listener in &listeners {
        world.events(*listener);
    }
    let mut per_tick = Vec::new();
    let before = world.counted("comments");
    let mut seen = before;
    for _ in 0..15_000 / TICK_MS + 2 {
        world.advance(TICK_MS);
        per_tick.push(world.counted("comments") - seen);
        seen = world.counted("comments");
    }
    assert!(seen - before >= 256, "{}", seen - before);
    assert!(per_tick.iter().all(|count| *count <= 64), "spread over an eighth of the interval: {per_tick:?}");
}

#[test]
fn expiry_stops_at_its_budget_and_goes_on_later() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listeners: Vec<_> = (0..32).map(|_| world.listen(client)).collect();
    world.advance(6_000);
    for listener in &listeners {
        world.events(*listener);
    }
    world.now.ms += 20_000;
    let now = world.now;
    let mut turns = 0;
    while world.shards[0].next_deadline_ms().is_some_and(|due_ms| due_ms <= now.ms) {
        world.shards[0].tick(now, 4);
        turns += 1;
        assert!(turns < 100, "it ends");
    }
    assert!(turns >= 8, "{turns} turns of 4");
    world.settle();
    for listener in listeners {
        assert_eq!(comments(&mut world, listener), 1, "one, however late");
    }
}

#[test]
fn lateness_is_counted() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.reset(client);
    world.advance(15_000 + TICK_MS);
    assert_eq!(comments(&mut world, listener), 1);
    let in_time_ms = world.counted("comments_late_ms_max");
    assert!(in_time_ms <= TICK_MS, "{in_time_ms}");
    // The shard was busy with something else for a second beyond the interval.
    world.now.ms += 16_000;
    let now = world.now;
    world.shards[0].tick(now, usize::MAX);
    world.settle();
    assert_eq!(comments(&mut world, listener), 1);
    let late_ms = world.counted("comments_late_ms_max");
    assert!((900..=3_000).contains(&late_ms), "{late_ms}");
    assert_eq!(world.counted("comments_late_ms"), in_time_ms + late_ms);
}

// --- Whom they do not keep alive ----------------------------------------------------------------

#[test]
fn a_stalled_peer_is_cut_after_thirty_seconds_and_nobody_else() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (stalled, fine) = (world.listen(client), world.listen(client));
    let posted = world.join(client);
    let (shard, asked) = world.begin_stream(posted, "1");
    world.events(stalled);
    world.stall(stalled);
    world.advance(15_000 + TICK_MS); // The comment finds no room.
    assert_eq!(world.ending(stalled), None);
    world.advance(30_000 + TICK_MS);
    assert_eq!((world.ending(stalled), world.counted("connections_stalled")), (Some(Ending::Cut), 1));
    assert_eq!((world.ending(fine), world.ending(posted)), (None, None));
    world.events(fine);
    world.announce(client, "on");
    assert_eq!(world.texts(fine), ["on"], "the shadow was promoted");
    world.events(posted);
    world.answer(shard, asked.key, "{}");
    assert!(world.client(posted).take_text().contains(r#""id":1"#));
}

#[test]
fn a_stalled_json_reply_is_cut_and_its_session_works_on() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    let (shard, asked) = world.begin(poster, "1");
    world.stall(poster);
    world.answer(shard, asked.key, "{}");
    world.advance(29_900);
    assert_eq!(world.ending(poster), None);
    world.advance(200);
    assert_eq!(world.ending(poster), Some(Ending::Cut));
    assert!(world.is_alive(client));
}

#[test]
fn progress_however_slow_is_no_stall() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.client(listener).window = 1;
    world.announce(client, &"x".repeat(60));
    for _ in 0..200 {
        world.advance(29_000);
        world.open_window(listener, 1);
    }
    assert_eq!(world.ending(listener), None);
}

#[test]
fn a_half_open_peer_is_let_go_when_the_kernel_gives_up_on_it() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (dead, fine) = (world.listen(client), world.listen(client));
    world.client(dead).acknowledges = false;
    world.announce(client, "lost on the wire");
    world.advance(20_000);
    world.events(fine);
    // TCP's user time-out.
    world.reset(dead);
    world.announce(client, "next");
    assert!(world.ending(dead).is_some());
    assert_eq!(world.shards[0].population().streams, 1);
    world.advance(15_000 + TICK_MS);
    let texts: Vec<_> = world.events(fine).iter().filter_map(Event::text).collect();
    assert_eq!(texts.last().map(String::as_str), Some("next"));
}

#[test]
fn comments_to_a_peer_that_half_closed_a_post_go_on_until_the_response() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (shard, asked) = world.begin_stream(client, "1");
    world.half_close(client);
    world.advance(31_000);
    assert_eq!(comments(&mut world, client), 2);
    world.answer(shard, asked.key, "{}");
    assert!(world.client(client).take_text().ends_with("0\r\n\r\n"));
    assert_eq!(world.ending(client), Some(Ending::Orderly));
}
