//! What one client's bodies may hold together, and that they and replies are counted wherever they are, and no longer.

use crate::{
    memory::call,
    world::{
        ClientId, World,
        ask::{bodiless, chunked, post, post_head, request},
        config, stateless,
    },
};
use moorline::{
    core::{
        CallKey, Effect, Ending,
        config::CoreConfig,
        quotas::{Loopback, Quota, Quotas},
    },
    limits::MEMORY_STEP_BYTES,
};
use proptest::prelude::*;
use std::sync::Arc;

const REVISION: &str = "2025-11-25";
const KIB: usize = 1024;

pub(crate) fn counted(max: u32) -> Quota {
    Quota { max, loopback: Loopback::Bounded }
}

/// A world in which one client's bodies may hold that much, and a connection from an address of a client.
fn shared_world(kib: u32) -> World {
    World::with(CoreConfig { quotas: Quotas { body_kib: counted(kib), ..Quotas::NONE }, ..config(2) })
}

pub(crate) fn open_from(world: &mut World, number: u8) -> ClientId {
    let client = connect_from(world, number);
    world.shake_hands(client, REVISION);
    client
}

pub(crate) fn connect_from(world: &mut World, number: u8) -> ClientId {
    world.try_connect_from(0, [192, 0, 2, number].into()).expect("admitted")
}

/// A POST from that address in the session of `owner` of which so many bytes come, and its status if it was refused.
pub(crate) fn stall(world: &mut World, number: u8, owner: ClientId, bytes: usize) -> (ClientId, Option<u16>) {
    let fields = format!("{}Accept: */*\r\nContent-Length: 1000000\r\n", world.session_field(owner));
    let client = connect_from(world, number);
    world.send(client, post_head(&fields));
    for part in vec![b'x'; bytes].chunks(16 * KIB) {
        if world.ending(client).is_none() {
            world.send(client, part);
        }
    }
    let status = if world.is_silent(client) { None } else { Some(world.response(client).status) };
    (client, status)
}

#[test]
fn who_never_ends_its_bodies_takes_its_own_share() {
    let mut world = shared_world(1_000);
    let (mine, other) = (open_from(&mut world, 1), open_from(&mut world, 2));
    let first = stall(&mut world, 1, mine, 500 * KIB);
    let second = stall(&mut world, 1, mine, 490 * KIB);
    assert_eq!((first.1, second.1), (None, None));
    let third = stall(&mut world, 1, mine, 100 * KIB);
    assert_eq!(third.1, Some(429));
    assert!(world.ending(third.0).is_some(), "the rest is not awaited");
    assert_eq!(stall(&mut world, 2, other, 500 * KIB).1, None, "others are not concerned");
    assert_eq!(world.ask_for(mine, &request("1", "ping")).status, 200, "small bodies are taken");
    assert_eq!(world.counted("clients_over_quota"), 1);
    world.reset(first.0);
    assert_eq!(stall(&mut world, 1, mine, 400 * KIB).1, None, "there is room again");
}

#[test]
fn the_404_of_a_session_comes_before_the_share_of_bodies() {
    let mut world = shared_world(100);
    let mine = open_from(&mut world, 1);
    assert_eq!(stall(&mut world, 1, mine, 90 * KIB).1, None);
    let late = stall(&mut world, 1, mine, 8 * KIB).0;
    world.delete(mine);
    for _ in 0..2 {
        if world.ending(late).is_none() {
            world.send(late, vec![b'x'; 8 * KIB]);
        }
    }
    assert_eq!(world.response(late).status, 404);
}

#[test]
fn a_share_of_bodies_is_held_until_the_calls_end_and_wherever_they_run() {
    let mut world = shared_world(1_000);
    let padding = format!(r#""name":"echo","arguments":{{"padding":"{}"}}"#, "x".repeat(600 * KIB));
    let body = stateless::body("1", "tools/call", &padding);
    let large = post(&stateless::fields("tools/call", "Mcp-Name: echo\r\n"), &body);
    for _ in 0..3 {
        let (first, second) = (connect_from(&mut world, 1), connect_from(&mut world, 1));
        let (shard, call) = world.begin_exchange(first, &large);
        assert_eq!(world.exchange(second, &large).status, 429);
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(first).status, 200);
    }
    let mine = open_from(&mut world, 1);
    let caller = world.try_connect_from(1, [192, 0, 2, 1].into()).expect("admitted");
    let fields = world.session_field(mine) + "Accept: */*\r\n";
    world.send(caller, post(&fields, &call(700 * KIB)));
    let (shard, running) = world.take_call();
    assert_eq!(stall(&mut world, 1, mine, 400 * KIB).1, Some(429));
    world.answer(shard, running.key, "{}");
    assert_eq!(world.response(caller).status, 200);
    assert_eq!(stall(&mut world, 1, mine, 400 * KIB).1, None);
}

#[test]
fn the_largest_body_fits_into_a_share_of_its_size_however_it_is_framed() {
    let bytes = 100 * KIB;
    let quotas = Quotas { body_kib: counted(100), ..Quotas::NONE };
    let body = call(bytes - call(0).len());
    assert_eq!(body.len(), bytes);
    for chunk_bytes in [100, 1_000, 10_000, bytes] {
        let mut world = World::with(CoreConfig { quotas, body_bytes_max: bytes, ..config(1) });
        let mine = open_from(&mut world, 1);
        let fields = world.session_field(mine) + "Accept: */*\r\nTransfer-Encoding: chunked\r\n";
        let caller = connect_from(&mut world, 1);
        world.send(caller, post_head(&fields));
        let framed = chunked(&body, chunk_bytes);
        let (most, end) = framed.split_at(framed.len() - 8);
        world.send(caller, most);
        // All of the body is here, and framing that cannot be decoded yet.
        end.as_bytes().chunks(1).for_each(|byte| world.send(caller, byte));
        assert!(world.is_silent(caller), "{:?}", world.client(caller).take_text());
        let (shard, running) = world.take_call();
        world.answer(shard, running.key, "{}");
        assert_eq!(world.response(caller).status, 200);
    }
}

// --- Between shards -----------------------------------------------------------------------------

/// A request without a session, of about 600 KiB, for whatever shard 1 has begun.
fn continued() -> String {
    let padding = "x".repeat(600 * KIB);
    let params =
        format!(r#""name":"echo","arguments":{{"padding":"{padding}"}},"requestState":"moorline.1.x""#);
    post(&stateless::fields("tools/call", "Mcp-Name: echo\r\n"), &stateless::body("1", "tools/call", &params))
}

/// A connection of the client of `owner` that does not read its replies, and so cannot be moved to shard 1 for the large
/// request it sends.
fn wait_to_move(world: &mut World, number: u8, owner: ClientId) -> ClientId {
    let client = connect_from(world, number);
    world.client(client).session = world.client(owner).session.clone();
    world.hold(client);
    world.post(client, &request("1", "ping"));
    world.send(client, continued());
    assert_eq!((world.client(client).shard, world.calls.len()), (0, 0), "it waits");
    client
}

/// Whether another large body of that client finds room.
fn finds_room(world: &mut World, number: u8, owner: ClientId) -> bool {
    let (client, status) = stall(world, number, owner, 500 * KIB);
    if status.is_none() {
        world.reset(client);
    }
    status.is_none()
}

/// Lets the connection move and takes the call that it moves for.
fn let_it_move(world: &mut World, client: ClientId) -> CallKey {
    world.acknowledge(client);
    world.advance(100);
    let (shard, call) = world.take_call();
    assert_eq!((shard, world.client(client).shard), (1, 1));
    call.key
}

#[test]
fn a_body_is_counted_while_its_connection_waits_to_move_and_where_it_arrives() {
    for memory_bytes_max in [usize::MAX, 1_100 * KIB] {
        let body_kib = counted(if memory_bytes_max == usize::MAX { 1_000 } else { u32::MAX });
        let quotas = Quotas { body_kib, ..Quotas::NONE };
        let mut world = World::with(CoreConfig { quotas, memory_bytes_max, ..config(2) });
        let mine = open_from(&mut world, 1);
        assert!(finds_room(&mut world, 1, mine));
        let client = wait_to_move(&mut world, 1, mine);
        assert!(!finds_room(&mut world, 1, mine), "on its way");
        let call = let_it_move(&mut world, client);
        assert!(!finds_room(&mut world, 1, mine), "while its call runs");
        world.answer(1, call, "{}");
        assert_eq!([world.response(client).status, world.response(client).status], [200, 200]);
        assert!(finds_room(&mut world, 1, mine), "no longer");
    }
}

#[test]
fn what_was_let_in_on_one_shard_is_not_refused_on_the_next() {
    let mut world = shared_world(700);
    let mine = open_from(&mut world, 1);
    let client = wait_to_move(&mut world, 1, mine);
    reconfigure(
        &mut world,
        CoreConfig {
            quotas: Quotas { body_kib: counted(10), ..Quotas::NONE },
            memory_bytes_max: 100 * KIB,
            ..config(2)
        },
    );
    let call = let_it_move(&mut world, client);
    world.answer(1, call, "{}");
    assert_eq!([world.response(client).status, world.response(client).status], [200, 200]);
    assert_eq!(world.counted("clients_over_quota") + world.counted("refused_for_memory"), 0);
}

#[test]
fn a_connection_waits_for_its_move_no_longer_than_for_a_write() {
    let mut world = shared_world(1_000);
    let mine = open_from(&mut world, 1);
    let client = wait_to_move(&mut world, 1, mine);
    let write_timeout_ms = config(1).write_timeout_ms;
    world.advance(write_timeout_ms - 1_000);
    assert_eq!(world.ending(client), None);
    // A little now and then gains no time.
    world.client(client).unacked -= 1;
    world.advance(2_000);
    assert_eq!(world.ending(client), Some(Ending::Cut));
    assert_eq!(world.counted("connections_stalled"), 1);
    assert!(finds_room(&mut world, 1, mine), "its body is gone");
    assert!(world.calls.is_empty());
}

#[test]
fn a_connection_moves_however_late_the_kernel_is_asked() {
    for (write_timeout_ms, late_ms) in [(30_000, 31_000), (20, 200)] {
        let quotas = Quotas { body_kib: counted(1_000), ..Quotas::NONE };
        let mut world = World::with(CoreConfig { quotas, write_timeout_ms, ..config(2) });
        let mine = open_from(&mut world, 1);
        let client = wait_to_move(&mut world, 1, mine);
        world.acknowledge(client);
        // The process does not run for a while.
        world.now.ms += late_ms;
        world.advance(0);
        assert_eq!((world.ending(client), world.calls.len()), (None, 1));
    }
}

#[test]
fn a_body_that_no_shard_takes_is_counted_no_longer() {
    let mut world = shared_world(1_000);
    let mine = open_from(&mut world, 1);
    let now = world.now;
    let admitted = world.shards[0].connect_from([192, 0, 2, 1].into(), now);
    let moorline::core::shard::Admission::Admitted(key) = admitted else { panic!("{admitted:?}") };
    world.shards[0].received(key, continued().as_bytes().into(), now);
    let Some(Effect::Move(moved)) = world.shards[0].next_effect() else { panic!("no move") };
    assert!(!finds_room(&mut world, 1, mine), "in the mailbox");
    let source = moved.source;
    drop(moved);
    world.shards[0].strayed(source);
    assert!(finds_room(&mut world, 1, mine));
}

// --- Bounds that change -------------------------------------------------------------------------

pub(crate) fn reconfigure(world: &mut World, config: CoreConfig) {
    let config = Arc::new(config);
    world.shards.iter_mut().for_each(|shard| shard.reconfigure(Arc::clone(&config)));
}

#[test]
fn a_bound_that_comes_later_holds_for_those_who_are_there_already() {
    let mut world = World::with(config(2));
    let mine = world.open(REVISION);
    let (caller, listener) = (world.join(mine), world.join(mine));
    world.get(listener);
    assert_eq!(world.response(listener).status, 200);
    let fields = world.session_field(mine) + "Accept: */*\r\n";
    world.send(caller, post_head(&format!("{fields}Content-Length: 1000000\r\n")));
    world.send(caller, vec![b'x'; 90 * KIB]);
    assert!(world.is_silent(caller));
    let (none, one) = (Quotas::NONE, counted(1));
    let refused = |world: &mut World, quotas: Quotas, bytes: String| {
        reconfigure(world, CoreConfig { quotas, ..config(2) });
        let reply = world.exchange(mine, bytes);
        (reply.status, world.ending(mine).is_some())
    };
    let begin = post("", &World::initialize_body(REVISION));
    assert_eq!(refused(&mut world, Quotas { sessions: one, ..none }, begin), (429, false));
    let streams = Quotas { streams: one, ..none };
    let get = world.session_field(mine) + "Accept: text/event-stream\r\n";
    assert_eq!(refused(&mut world, streams, bodiless("GET", &get)), (429, false));
    reconfigure(&mut world, CoreConfig { quotas: Quotas { connections: counted(3), ..none }, ..config(2) });
    assert!(world.try_connect_to(1).is_err(), "three are there");
    let bodies = Quotas { body_kib: counted(100), ..none };
    reconfigure(&mut world, CoreConfig { quotas: bodies, ..config(2) });
    world.send(caller, vec![b'x'; 20 * KIB]);
    assert_eq!(world.response(caller).status, 429, "all of the body counts");
}

#[test]
fn a_body_is_counted_in_full_whatever_bodies_may_be_since() {
    let mut world = shared_world(1_000);
    let mine = open_from(&mut world, 1);
    let (client, status) = stall(&mut world, 1, mine, 500 * KIB);
    assert_eq!(status, None);
    let quotas = Quotas { body_kib: counted(1_000), ..Quotas::NONE };
    reconfigure(&mut world, CoreConfig { quotas, body_bytes_max: 100 * KIB, ..config(2) });
    world.send(client, vec![b'x'; 400 * KIB]);
    assert!(world.is_silent(client), "it began under the larger bound");
    assert!(!finds_room(&mut world, 1, mine));
}

// --- Everything at once -------------------------------------------------------------------------

/// What may happen to connections with bodies.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Connect {
        shard: usize,
        client: u8,
        reads: bool,
    },
    Ping(usize),
    Call {
        conn: usize,
        kib: usize,
        state: u8,
        chunked: bool,
        of_it: usize,
    },
    /// A small one in the session, for a reply of either form.
    Ask {
        conn: usize,
        accept: &'static str,
    },
    /// With so much.
    Answer(usize),
    Stall(usize),
    Read {
        conn: usize,
        kib: usize,
    },
    Acknowledge(usize),
    Reset(usize),
    Wait(u64),
    Rules {
        kib: u32,
        memory_kib: usize,
        body_kib: usize,
    },
}

fn happening() -> impl Strategy<Value = Happening> {
    let sizes = prop::sample::select(vec![1, 4, 5, 100, 600, 990]);
    prop_oneof![
        2 => (0..3usize, 1..3u8, any::<bool>())
            .prop_map(|(shard, client, reads)| Happening::Connect { shard, client, reads }),
        2 => any::<usize>().prop_map(Happening::Ping),
        4 => (any::<usize>(), sizes, 0..4u8, any::<bool>(), 0..5usize).prop_map(
            |(conn, kib, state, chunked, of_it)| Happening::Call { conn, kib, state, chunked, of_it }
        ),
        2 => (any::<usize>(), prop::sample::select(vec!["application/json", "text/event-stream"]))
            .prop_map(|(conn, accept)| Happening::Ask { conn, accept }),
        4 => prop::sample::select(vec![0, 5, 600]).prop_map(Happening::Answer),
        2 => any::<usize>().prop_map(Happening::Stall),
        2 => (any::<usize>(), prop::sample::select(vec![1, 500, 100_000]))
            .prop_map(|(conn, kib)| Happening::Read { conn, kib }),
        1 => any::<usize>().prop_map(Happening::Acknowledge),
        1 => any::<usize>().prop_map(Happening::Reset),
        1 => (0..40_000u64).prop_map(Happening::Wait),
        1 => (
            prop::sample::select(vec![u32::MAX, 10, 700, 1_000]),
            prop::sample::select(vec![usize::MAX / KIB, 2_000]),
            prop::sample::select(vec![50, 1_000, 4_000])
        )
            .prop_map(|(kib, memory_kib, body_kib)| Happening::Rules { kib, memory_kib, body_kib }),
    ]
}

impl Happening {
    fn befalls(self, world: &mut World, owners: &[ClientId], conns: &mut Vec<ClientId>) {
        let at = |conns: &[ClientId], index: usize| conns[index % conns.len()];
        match self {
            Happening::Connect { shard, client, reads } => {
                let address = [192, 0, 2, client].into();
                let conn = world.try_connect_from(shard, address).expect("there are few");
                world.client(conn).session = world.client(owners[usize::from(client) - 1]).session.clone();
                if !reads {
                    world.hold(conn);
                }
                conns.push(conn);
            }
            Happening::Answer(kib) if !world.calls.is_empty() => {
                let (shard, call) = world.take_call();
                world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "y".repeat(kib * KIB)));
            }
            Happening::Wait(ms) => world.advance(ms),
            Happening::Rules { kib, memory_kib, body_kib } => {
                let quotas = Quotas { body_kib: counted(kib), ..Quotas::NONE };
                let (memory_bytes_max, body_bytes_max) = (memory_kib * KIB, body_kib * KIB);
                reconfigure(world, CoreConfig { quotas, memory_bytes_max, body_bytes_max, ..config(3) });
            }
            _ if conns.is_empty() => {}
            Happening::Stall(conn) => world.stall(at(conns, conn)),
            Happening::Read { conn, kib } => world.open_window(at(conns, conn), kib * KIB),
            Happening::Ask { conn, accept } => {
                let (conn, body) = (at(conns, conn), request("1", "tools/call"));
                let length = body.len();
                let fields =
                    world.session_field(conn) + &format!("Accept: {accept}\r\nContent-Length: {length}\r\n");
                if world.ending(conn).is_none() {
                    world.send(conn, post_head(&fields) + &body);
                }
            }
            Happening::Ping(conn) => world.post(at(conns, conn), &request("1", "ping")),
            Happening::Acknowledge(conn) => world.acknowledge(at(conns, conn)),
            Happening::Reset(conn) => {
                let conn = conns.swap_remove(conn % conns.len());
                if world.ending(conn).is_none() {
                    world.reset(conn);
                }
            }
            Happening::Call { conn, kib, state, chunked, of_it } => {
                let request = large_request(kib * KIB, state, chunked);
                // A quarter of it, a half, three quarters, or, twice as often, all.
                let sent = request.len() * (of_it + 1).min(4) / 4;
                for part in request.as_bytes()[..sent].chunks(50 * KIB) {
                    if world.ending(at(conns, conn)).is_none() {
                        world.send(at(conns, conn), part);
                    }
                }
            }
            Happening::Answer(_) => {}
        }
    }
}

/// A request without a session of about that size for whatever that shard has begun.
fn large_request(bytes: usize, state: u8, in_chunks: bool) -> String {
    let padding = "x".repeat(bytes);
    let params =
        format!(r#""name":"echo","arguments":{{"padding":"{padding}"}},"requestState":"moorline.{state}.x""#);
    let (fields, body) =
        (stateless::fields("tools/call", "Mcp-Name: echo\r\n"), stateless::body("1", "tools/call", &params));
    if in_chunks {
        let fields = format!("{fields}Accept: */*\r\nTransfer-Encoding: chunked\r\n");
        post_head(&fields) + &chunked(&body, 3_000)
    } else {
        post(&fields, &body)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_counted_once_it_is_gone(happenings in prop::collection::vec(happening(), 1..100)) {
        let quotas = Quotas { body_kib: counted(1_000), ..Quotas::NONE };
        let mut world = World::with(CoreConfig { quotas, ..config(3) });
        let owners: Vec<_> = [1, 2].map(|number| open_from(&mut world, number)).into();
        let mut conns = Vec::new();
        for happening in happenings {
            happening.befalls(&mut world, &owners, &mut conns);
        }
        for client in 0..world.clients.len() {
            if world.ending(ClientId(client)).is_none() {
                world.reset(ClientId(client));
            }
        }
        while !world.calls.is_empty() {
            let (shard, call) = world.take_call();
            world.answer(shard, call.key, "{}");
        }
        world.advance(3 * 3_600_000);
        for shard in &world.shards {
            prop_assert_eq!(shard.population(), Default::default());
        }
        prop_assert!(world.census.kept() < 3 * MEMORY_STEP_BYTES, "{} bytes", world.census.kept());
        prop_assert_eq!(world.census.ledger().accounts(), 0);
    }
}
