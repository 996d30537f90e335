//! The memory limit: newcomers and large bodies are refused, and nobody inside is hurt.

use crate::world::{
    ClientId, World,
    ask::{bodiless, chunked, post, post_head, request},
    config, stateless,
};
use moorline::{core::config::CoreConfig, limits::ENTRY_BYTES_EXPECTED};

const REVISION: &str = "2025-11-25";
const KIB: usize = 1024;

fn world(memory_bytes_max: usize) -> World {
    World::with(CoreConfig { memory_bytes_max, ..config(1) })
}

/// A call with a body of about that many bytes.
pub(crate) fn call(bytes: usize) -> String {
    let padding = "x".repeat(bytes);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"padding":"{padding}"}}}}"#)
}

/// A POST in the client's session that announces that many bytes and sends part of them, or none.
fn upload(world: &mut World, owner: ClientId, announced: usize, sent: usize) -> (ClientId, Option<u16>) {
    let (client, status) = announce(world, owner, announced);
    if status.is_some() {
        return (client, status);
    }
    for part in vec![b'x'; sent].chunks(16 * KIB) {
        if world.ending(client).is_none() {
            world.send(client, part);
        }
    }
    let status = if world.is_silent(client) { None } else { Some(world.response(client).status) };
    (client, status)
}

/// A POST in the client's session that announces that many bytes and sends none.
fn announce(world: &mut World, owner: ClientId, bytes: usize) -> (ClientId, Option<u16>) {
    let fields = format!("{}Accept: */*\r\nContent-Length: {bytes}\r\n", world.session_field(owner));
    let client = world.connect();
    world.send(client, post_head(&fields));
    let status = if world.is_silent(client) { None } else { Some(world.response(client).status) };
    (client, status)
}

#[test]
fn newcomers_are_refused_and_those_inside_are_served() {
    let mut world = world(6 * ENTRY_BYTES_EXPECTED - 100);
    let clients: Vec<_> = (0..5).map(|_| world.open(REVISION)).collect();
    let listener = world.join(clients[0]);
    let fields = world.session_field(clients[0]);
    let refused =
        world.exchange(listener, bodiless("GET", &(fields.clone() + "Accept: text/event-stream\r\n")));
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("5")));
    assert_eq!(world.exchange(listener, post("", &World::initialize_body(REVISION))).status, 503);
    assert_eq!(world.ask_for(clients[1], &request("1", "ping")).status, 200);
    let mut dead = fields.into_bytes();
    dead[30] ^= 1;
    let dead = String::from_utf8(dead).unwrap();
    assert_eq!(world.exchange(listener, post(&dead, &call(100 * KIB))).status, 404, "nothing hides that");
    assert_eq!(world.counted("refused_for_memory"), 3);
    for client in &clients[2..] {
        world.delete(*client);
        world.reset(*client);
    }
    assert_eq!(world.exchange(listener, post("", &World::initialize_body(REVISION))).status, 200);
}

#[test]
fn the_body_of_a_request_without_a_session_counts_until_its_answer() {
    let mut world = world(KIB * KIB);
    let padding = format!(r#""name":"echo","arguments":{{"padding":"{}"}}"#, "x".repeat(600 * KIB));
    let body = stateless::body("1", "tools/call", &padding);
    let large = post(&stateless::fields("tools/call", "Mcp-Name: echo\r\n"), &body);
    let (first, second) = (world.connect(), world.connect());
    let (shard, call) = world.begin_exchange(first, &large);
    assert_eq!(world.exchange(second, &large).status, 503);
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(first).status, 200);
    let third = world.connect();
    world.begin_exchange(third, &large);
    let fourth = world.connect();
    assert_eq!(world.exchange(fourth, &large).status, 503);
    world.reset(third);
    let fifth = world.connect();
    world.begin_exchange(fifth, &large);
}

#[test]
fn what_is_announced_counts_as_it_comes() {
    let mut world = world(KIB * KIB);
    let owner = world.open(REVISION);
    let first = upload(&mut world, owner, 500 * KIB, 490 * KIB);
    let second = upload(&mut world, owner, 500 * KIB, 490 * KIB);
    assert_eq!((first.1, second.1), (None, None));
    let third = announce(&mut world, owner, 500 * KIB);
    assert_eq!(third.1, Some(503), "refused before it comes");
    assert_eq!(world.ask_for(owner, &request("1", "ping")).status, 200, "small bodies are taken");
    world.reset(first.0);
    assert_eq!(announce(&mut world, owner, 500 * KIB).1, None, "there is room again");
    world.advance(31_000);
    assert_eq!(world.response(second.0).status, 408);
    assert_eq!(announce(&mut world, owner, 900 * KIB).1, None, "and after a time-out");
}

#[test]
fn an_announcement_takes_nobodys_place() {
    let mut world = world(KIB * KIB);
    let owner = world.open(REVISION);
    for _ in 0..50 {
        assert_eq!(announce(&mut world, owner, 900 * KIB).1, None);
    }
    let newcomer = world.open(REVISION);
    assert_eq!(world.ask_for(newcomer, &request("1", "ping")).status, 200);
    assert_eq!(world.counted("refused_for_memory"), 0);
}

#[test]
fn those_who_announced_together_get_in_as_far_as_there_is_room() {
    let mut world = world(KIB * KIB);
    let owner = world.open(REVISION);
    let clients: Vec<_> = (0..4).map(|_| announce(&mut world, owner, 600 * KIB).0).collect();
    for _ in 0..30 {
        for client in &clients {
            if world.ending(*client).is_none() {
                world.send(*client, vec![b'x'; 16 * KIB]);
            }
        }
    }
    let refused = clients.iter().filter(|client| world.ending(**client).is_some()).count();
    assert!((1..4).contains(&refused), "{refused} of four");
    assert_eq!(world.ask_for(owner, &request("1", "ping")).status, 200);
}

#[test]
fn a_body_that_came_with_its_head_counts_while_its_call_runs() {
    for framing in [true, false] {
        let mut world = world(KIB * KIB);
        let owner = world.open(REVISION);
        let caller = world.join(owner);
        let fields = world.session_field(owner) + "Accept: */*\r\n";
        let request = if framing {
            post(&fields, &call(700 * KIB))
        } else {
            post_head(&(fields + "Transfer-Encoding: chunked\r\n")) + &chunked(&call(700 * KIB), 700 * KIB)
        };
        world.send(caller, request);
        let (shard, running) = world.take_call();
        assert_eq!(announce(&mut world, owner, 500 * KIB).1, Some(503));
        world.answer(shard, running.key, "{}");
        assert_eq!(world.response(caller).status, 200);
        assert_eq!(announce(&mut world, owner, 500 * KIB).1, None);
    }
}

#[test]
fn a_body_of_unknown_length_is_refused_once_it_is_large() {
    let mut world = world(256 * KIB);
    let owner = world.open(REVISION);
    let fields = world.session_field(owner) + "Accept: */*\r\nTransfer-Encoding: chunked\r\n";
    let body = chunked(&call(400 * KIB), 16 * KIB);
    let client = world.connect();
    world.send(client, post_head(&fields));
    for part in body.as_bytes().chunks(8 * KIB) {
        world.send(client, part);
    }
    assert_eq!(world.response(client).status, 503);
    assert!(world.ending(client).is_some(), "the rest is not awaited");
    let client = world.connect();
    world.send(client, post_head(&fields));
    world.send(client, chunked(&request("1", "ping"), 8));
    assert_eq!(world.response(client).status, 200);
}

#[test]
fn a_body_is_held_as_long_as_its_call_runs() {
    let mut world = world(KIB * KIB);
    let owner = world.open(REVISION);
    let caller = world.join(owner);
    world.post(caller, &call(700 * KIB));
    let (shard, running) = world.take_call();
    assert_eq!(announce(&mut world, owner, 500 * KIB).1, Some(503));
    world.answer(shard, running.key, "{}");
    assert_eq!(world.response(caller).status, 200);
    assert_eq!(announce(&mut world, owner, 500 * KIB).1, None);
}

#[test]
fn what_is_kept_for_replay_counts_until_it_is_forgotten() {
    let mut world = world(KIB * KIB);
    let owner = world.open(REVISION);
    let caller = world.join(owner);
    world.post(caller, &request("1", "tools/call"));
    let (shard, running) = world.take_call();
    world.progress(shard, running.key, 1);
    world.answer(shard, running.key, &format!("\"{}\"", "x".repeat(900 * KIB)));
    assert!(world.response(caller).complete);
    assert_eq!(announce(&mut world, owner, 500 * KIB).1, Some(503));
    world.advance(150_000);
    assert_eq!(announce(&mut world, owner, 500 * KIB).1, None);
}
