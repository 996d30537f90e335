//! What is kept of replies for one client: a share of what it did not take, and one of what it did.

use crate::{
    bodies::{connect_from, counted, open_from, stall},
    world::{
        ClientId, World,
        ask::{post_head, request},
        config, other,
    },
};
use moorline::{
    core::{Tell, config::CoreConfig, quotas::Quotas},
    limits::{ENTRY_BYTES_EXPECTED, MEMORY_STEP_BYTES},
};

const KIB: usize = 1024;
const DROPPED: &str = "read your replies";
const STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

fn share(kib: u32) -> CoreConfig {
    CoreConfig { quotas: Quotas { body_kib: counted(kib), ..Quotas::NONE }, ..config(1) }
}

/// A call from that address in the session of `owner`.
fn ask(world: &mut World, number: u8, owner: ClientId, accept: &str) -> ClientId {
    let client = connect_from(world, number);
    let (session, body) = (world.session_field(owner), request("1", "tools/call"));
    let fields = format!("{session}Accept: {accept}\r\nContent-Length: {}\r\n", body.len());
    world.client(client).session = world.client(owner).session.clone();
    world.send(client, post_head(&fields) + &body);
    client
}

fn answer(world: &mut World, bytes: usize) {
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "y".repeat(bytes)));
}

/// A reply of that size, read and acknowledged.
fn reply(world: &mut World, number: u8, owner: ClientId, accept: &str, bytes: usize) -> String {
    let client = ask(world, number, owner, accept);
    answer(world, bytes);
    let text = world.client(client).take_text();
    world.advance(50);
    world.reset(client);
    text
}

/// The same, of which nothing arrives before its connection is cut. `is_named`: but the first event id, which is returned.
fn cut_reply(
    world: &mut World,
    number: u8,
    owner: ClientId,
    accept: &str,
    bytes: usize,
    is_named: bool,
) -> Option<String> {
    let client = ask(world, number, owner, accept);
    let id = is_named.then(|| {
        world.advance(2_000);
        world.response(client).events()[0].id.clone().expect("named")
    });
    world.hold(client);
    answer(world, bytes);
    world.reset(client);
    id
}

fn kept(world: &World) -> usize {
    world.census.kept()
}

#[test]
fn what_a_client_did_not_take_is_its_share_at_most_over_all_its_sessions() {
    for (accept, is_named) in [(JSON, false), (STREAM, false), (STREAM, true)] {
        let mut world = World::with(share(1_000));
        let mine: Vec<_> = [(); 10].map(|()| open_from(&mut world, 1)).into();
        let other = open_from(&mut world, 2);
        for session in &mine {
            cut_reply(&mut world, 1, *session, accept, 600 * KIB, is_named);
        }
        // One that is kept under its name as well as for whoever does not know it counts twice.
        assert!((600 * KIB..1_400 * KIB).contains(&kept(&world)), "{accept} {is_named}: {}", kept(&world));
        let refused = reply(&mut world, 1, mine[0], accept, 600 * KIB);
        assert!(refused.contains(DROPPED) && !refused.contains("yyyy"), "{accept}: {refused}");
        assert!(reply(&mut world, 1, mine[0], accept, KIB).contains("yyyy"), "{accept}: small ones arrive");
        assert!(reply(&mut world, 2, other, accept, 600 * KIB).contains("yyyy"), "{accept}: others' arrive");
        let (body, status) = stall(&mut world, 1, mine[0], 900 * KIB);
        assert_eq!(status, None, "{accept}: bodies have a share of their own");
        world.reset(body);
        world.advance(130_000);
        assert!(
            reply(&mut world, 1, mine[0], accept, 600 * KIB).contains("yyyy"),
            "{accept}: its time is over"
        );
    }
}

#[test]
fn who_comes_back_for_what_it_is_owed_has_room_again() {
    let mut world = World::with(share(1_000));
    let mine: Vec<_> = [(); 2].map(|()| open_from(&mut world, 1)).into();
    for session in &mine {
        cut_reply(&mut world, 1, *session, JSON, 600 * KIB, false);
    }
    assert!(reply(&mut world, 1, mine[0], JSON, 600 * KIB).contains(DROPPED));
    let listener = world.join(mine[0]);
    world.get(listener);
    assert!(world.client(listener).take_text().contains("yyyy"));
    world.advance(2_000);
    world.reset(listener);
    assert!(reply(&mut world, 1, mine[0], JSON, 600 * KIB).contains("yyyy"));
}

#[test]
fn a_stream_that_is_gone_on_with_is_owed_no_longer() {
    let mut world = World::with(share(1_000));
    let mine = open_from(&mut world, 1);
    let client = ask(&mut world, 1, mine, STREAM);
    world.advance(2_000);
    let cursor = world.response(client).events()[0].id.clone().unwrap();
    world.hold(client);
    answer(&mut world, 1_100 * KIB);
    world.reset(client);
    let other = open_from(&mut world, 1);
    assert!(reply(&mut world, 1, other, STREAM, 600 * KIB).contains(DROPPED));
    let (_, resumed) = world.resume(client, &cursor);
    assert!(resumed.text().contains("yyyy"));
    assert!(reply(&mut world, 1, other, STREAM, 600 * KIB).contains("yyyy"));
}

#[test]
fn what_arrived_is_kept_as_far_as_a_share_goes_and_never_fails_a_call() {
    for bytes in [4 * KIB - 100, 100 * KIB] {
        let mut world = World::with(share(500));
        let mine: Vec<_> = [(); 3].map(|()| open_from(&mut world, 1)).into();
        for session in &mine {
            for _ in 0..300 * KIB / bytes {
                assert!(reply(&mut world, 1, *session, STREAM, bytes).contains("yyyy"));
            }
        }
        let most = 500 * KIB + bytes + 2 * MEMORY_STEP_BYTES;
        assert!((400 * KIB..most).contains(&kept(&world)), "{}", kept(&world));
        assert_eq!(world.counted("clients_over_quota"), 0);
        let other = open_from(&mut world, 2);
        for _ in 0..500 * KIB / bytes {
            reply(&mut world, 2, other, STREAM, bytes);
        }
        assert!(kept(&world) > 800 * KIB, "others have theirs");
        world.advance(130_000);
        assert!(kept(&world) < MEMORY_STEP_BYTES);
    }
}

/// A call whose client has gone and may come back is answered all the same.
#[test]
fn what_is_answered_while_nobody_is_there_is_owed() {
    let mut world = World::with(share(1_000));
    let mine = [(); 4].map(|()| open_from(&mut world, 1));
    for session in mine {
        let client = ask(&mut world, 1, session, STREAM);
        world.advance(2_000);
        world.client(client).take_text();
        world.reset(client);
        answer(&mut world, 600 * KIB);
    }
    assert!(kept(&world) < 1_300 * KIB, "two of them: {}", kept(&world));
    assert!(reply(&mut world, 1, mine[0], JSON, 600 * KIB).contains(DROPPED));
    assert!(
        reply(&mut world, 2, mine[0], JSON, 600 * KIB).contains(DROPPED),
        "from wherever it is asked for"
    );
}

/// All of them are with the kernel before anything is known of the first.
#[test]
fn of_many_that_hang_up_at_once_a_share_is_kept() {
    for (accept, is_named) in [(JSON, false), (STREAM, false), (STREAM, true)] {
        let mut world = World::with(share(1_000));
        let mine = [(); 8].map(|()| open_from(&mut world, 1));
        let clients = mine.map(|session| ask(&mut world, 1, session, accept));
        if is_named {
            world.advance(2_000);
        }
        for client in clients {
            world.client(client).take_text();
            world.hold(client);
            answer(&mut world, 600 * KIB);
        }
        for client in clients {
            world.reset(client);
        }
        assert!(kept(&world) < 1_500 * KIB, "{accept} {is_named}: {}", kept(&world));
    }
}

#[test]
fn what_was_said_last_is_kept_whatever_its_client_keeps() {
    let mut world = World::with(share(200));
    let (mine, other) = (open_from(&mut world, 1), open_from(&mut world, 1));
    cut_reply(&mut world, 1, other, STREAM, 400 * KIB, true);
    let client = ask(&mut world, 1, mine, STREAM);
    world.advance(2_000);
    let cursor = world.response(client).events()[0].id.clone().unwrap();
    world.reset(client);
    answer(&mut world, KIB);
    assert!(world.resume(mine, &cursor).1.text().contains("yyyy"));
}

/// What a call says before its answer is kept for the same client.
#[test]
fn what_is_said_while_nobody_is_there_is_owed_too() {
    let mut world = World::with(share(1_000));
    let mine = [(); 6].map(|()| open_from(&mut world, 1));
    for session in mine {
        let client = ask(&mut world, 1, session, STREAM);
        world.advance(2_000);
        world.client(client).take_text();
        world.reset(client);
        let (shard, call) = world.take_call();
        world.tell(shard, Tell::Notify(call.key, other(&"n".repeat(600 * KIB))));
        world.answer(shard, call.key, "{}");
    }
    assert!(kept(&world) < 1_500 * KIB, "{}", kept(&world));
}

/// Sessions have the messages of listeners in common, so they are in no share.
#[test]
fn whoever_is_owed_much_misses_nothing_as_a_listener() {
    let mut world = World::with(share(500));
    let mine = open_from(&mut world, 1);
    cut_reply(&mut world, 1, mine, STREAM, 600 * KIB, true);
    let listener = world.join(mine);
    world.get(listener);
    let cursor = world.response(listener).events()[0].id.clone().unwrap();
    world.hold(listener);
    world.announce(mine, &"n".repeat(100 * KIB));
    world.reset(listener);
    assert!(world.resume(mine, &cursor).1.text().contains("nnnn"));
}

#[test]
fn over_its_share_a_session_gives_up_what_arrived_before_what_did_not() {
    let mut world = World::with(share(500));
    let (mine, other) = (open_from(&mut world, 1), open_from(&mut world, 1));
    for _ in 0..4 {
        reply(&mut world, 1, mine, STREAM, 100 * KIB);
    }
    let cursor = cut_reply(&mut world, 1, mine, STREAM, 90 * KIB, true).unwrap();
    cut_reply(&mut world, 1, other, STREAM, 50 * KIB, true);
    let before = kept(&world);
    reply(&mut world, 1, mine, STREAM, 100 * KIB);
    assert!(kept(&world) < before, "the oldest of them");
    let resumed = world.resume(mine, &cursor).1;
    assert!(resumed.text().contains("yyyy"), "what did not arrive is there");
}

#[test]
fn what_is_given_up_is_owed_no_longer() {
    let mut world = World::with(share(200));
    let mine = open_from(&mut world, 1);
    let given_up = cut_reply(&mut world, 1, mine, STREAM, 300 * KIB, true).unwrap();
    assert!(reply(&mut world, 1, mine, STREAM, 100 * KIB).contains(DROPPED));
    for _ in 0..60 {
        reply(&mut world, 1, mine, STREAM, 4_000);
    }
    assert_eq!(world.resume(mine, &given_up).1.status, 400);
    assert!(reply(&mut world, 1, mine, STREAM, 100 * KIB).contains("yyyy"));
    let cursor = cut_reply(&mut world, 1, mine, STREAM, 150 * KIB, true).unwrap();
    assert!(world.resume(mine, &cursor).1.text().contains("yyyy"));
}

/// They are never large, so that none of them fails a call.
#[test]
fn small_replies_that_were_not_taken_are_a_share_at_most() {
    for (accept, is_named) in [(JSON, false), (STREAM, true)] {
        let mut world = World::with(share(200));
        let mine: Vec<_> = [(); 3].map(|()| open_from(&mut world, 1)).into();
        for session in mine.iter().cycle().take(120) {
            cut_reply(&mut world, 1, *session, accept, 4_000, is_named);
        }
        let most = 200 * KIB + 3 * MEMORY_STEP_BYTES;
        assert!((100 * KIB..most).contains(&kept(&world)), "{accept}: {}", kept(&world));
        assert!(reply(&mut world, 1, mine[0], accept, 600 * KIB).contains("yyyy"), "{accept}");
    }
}

/// Whoever reads slowly gets everything, whatever else its client keeps.
#[test]
fn what_is_on_its_way_is_not_given_up() {
    let mut world = World::with(share(1_000));
    let (mine, other) = (open_from(&mut world, 1), open_from(&mut world, 1));
    for _ in 0..12 {
        reply(&mut world, 1, other, STREAM, 90 * KIB);
    }
    let slow = ask(&mut world, 1, mine, STREAM);
    world.stall(slow);
    let (shard, call) = world.take_call();
    for number in 0..1_000 {
        world.progress(shard, call.key, number);
    }
    world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "s".repeat(600 * KIB)));
    for _ in 0..3 {
        assert!(reply(&mut world, 1, mine, STREAM, 90 * KIB).contains("yyyy"));
    }
    world.open_window(slow, usize::MAX);
    let text = world.client(slow).take_text();
    assert!(text.contains("ssss"));
    assert_eq!(text.matches("notifications/progress").count(), 1_000);
}

/// The kernel has taken all of a reply, and its peer nothing.
#[test]
fn a_reply_that_only_the_kernel_took_is_unread() {
    for accept in [JSON, STREAM] {
        let mut world = World::with(share(1_000));
        let mine = [(); 2].map(|()| open_from(&mut world, 1));
        let clients = mine.map(|session| {
            let client = ask(&mut world, 1, session, accept);
            world.hold(client);
            answer(&mut world, 600 * KIB);
            client
        });
        assert!(
            reply(&mut world, 1, mine[0], accept, 200 * KIB).contains("yyyy"),
            "{accept}: it has its time"
        );
        world.advance(1_500);
        assert!(reply(&mut world, 1, mine[0], accept, 200 * KIB).contains(DROPPED), "{accept}");
        for client in clients {
            world.acknowledge(client);
        }
        world.advance(1_500);
        assert!(reply(&mut world, 1, mine[0], accept, 200 * KIB).contains("yyyy"), "{accept}");
    }
}

#[test]
fn while_memory_is_short_what_arrived_is_not_kept() {
    let memory_bytes_max = 20 * ENTRY_BYTES_EXPECTED + 500 * KIB;
    let mut world = World::with(CoreConfig { memory_bytes_max, ..share(u32::MAX) });
    let mine = open_from(&mut world, 1);
    for _ in 0..10 {
        assert!(reply(&mut world, 1, mine, STREAM, 90 * KIB).contains("yyyy"));
    }
    assert!((400 * KIB..700 * KIB).contains(&kept(&world)), "{}", kept(&world));
}
