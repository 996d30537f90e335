//! Attacks on a core, whose counters and tables say what they came to.
//!
//! The same kinds over real sockets are in `tests/blackbox`; here time is virtual, so that a slow sender costs none.

use super::fuzz::world::{ClientId, World, config, other};
use moorline::{
    core::{Tell, config::CoreConfig, counters::Counters},
    limits::{BATCH_MESSAGES_MAX, BROADCASTS_WAITING_MAX, CALLS_PER_SESSION_MAX, JSON_DEPTH_MAX},
};

fn counters(world: &World) -> &Counters {
    world.shards[0].counters()
}

/// Another connection of the session is served, and nothing else is left.
fn assert_unharmed(world: &mut World, bystander: ClientId) {
    world.post(bystander, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(world.response(bystander).status, 200);
    let population = world.shards[0].population();
    assert_eq!((population.conns, population.sessions), (1, 1), "{population:?}");
}

/// Sends one byte of `bytes` each second until the server ends the connection; after how many.
fn drip(world: &mut World, bytes: &[u8]) -> (ClientId, usize) {
    let client = world.connect();
    for (sent, byte) in bytes.iter().enumerate() {
        if world.client(client).server_side_closed() {
            return (client, sent);
        }
        world.send(client, [*byte]);
        world.advance(1_000);
    }
    panic!("the server took {} bytes of a slow sender", bytes.len());
}

#[test]
fn a_byte_a_second_outlives_no_deadline() {
    let mut world = World::new();
    let bystander = world.open("2025-11-25");
    let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(200));
    let (client, sent) = drip(&mut world, head.as_bytes());
    assert_eq!(world.response(client).status, 408);
    assert!((9..=11).contains(&sent), "the head's deadline runs from its first byte: {sent}");

    let client = world.connect();
    world.send(client, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    for second in 0.. {
        if world.client(client).server_side_closed() {
            break;
        }
        assert!(second < 32, "the body's deadline runs from the end of its head");
        world.send(client, "1\r\n \r\n");
        world.advance(1_000);
    }
    assert_eq!(world.response(client).status, 408);
    assert_eq!(counters(&world).requests_timed_out, 2);
    world.advance(2_000);
    assert_unharmed(&mut world, bystander);
}

#[test]
fn an_endless_body_of_tiny_chunks_is_refused_at_the_limit() {
    let mut world = World::with(CoreConfig { body_bytes_max: 10_000, ..config(1) });
    let bystander = world.open("2025-11-25");
    let client = world.connect();
    world.send(client, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut sent = 0;
    while !world.client(client).server_side_closed() {
        world.send(client, "1\r\n[\r\n".repeat(100));
        sent += 100;
        assert!(sent <= 10_100, "more than a body may have");
    }
    let response = world.response(client);
    assert_eq!((response.status, response.field("connection")), (413, Some("close")));
    assert_unharmed(&mut world, bystander);
}

#[test]
fn unknown_and_guessed_ids_get_one_answer_and_cost_nothing() {
    let mut world = World::new();
    let bystander = world.open("2025-11-25");
    let id = world.client(bystander).session.clone().expect("it has a session");
    let last = if id.ends_with('0') { "1" } else { "0" };
    let guess = format!("{}{last}", &id[..id.len() - 1]);
    let client = world.connect();
    let unknown_before = counters(&world).sessions_unknown;
    let mut answers = Vec::new();
    let shapes = [
        guess,
        "f".repeat(42),
        format!("00ffffffff{}", "0".repeat(32)),
        "x".into(),
        id.to_uppercase(),
        format!("{id}0"),
    ];
    for shape in &shapes {
        world.client(client).session = Some(shape.clone());
        for method in 0..3 {
            match method {
                0 => world.post(client, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
                1 => world.get(client),
                _ => world.delete(client),
            }
            let response = world.response(client);
            answers.push((response.status, response.text()));
        }
    }
    assert_eq!(answers[0].0, 404);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "one answer for all: {answers:?}");
    assert_eq!(counters(&world).sessions_unknown - unknown_before, 3 * shapes.len() as u64);
    world.reset(client);
    assert_unharmed(&mut world, bystander);
}

#[test]
fn words_about_nothing_are_counted_and_forgotten() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    for n in 0..500 {
        let cancel =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{n}}}}}"#);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{n},"result":{{}}}}"#);
        for message in [cancel, answer] {
            world.post(client, &message);
            assert_eq!(world.response(client).status, 202);
        }
    }
    assert_eq!((counters(&world).cancels_ignored, counters(&world).answers_ignored), (500, 500));
    assert_eq!(world.told, Vec::<String>::new(), "the backend hears nothing of it");
    assert_unharmed(&mut world, client);
}

#[test]
fn calls_beyond_the_cap_are_refused_within_the_session() {
    let mut world = World::new();
    let bystander = world.open("2025-03-26");
    // A client that resets each connection: its calls go on.
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
    let batch = format!("[{}]", [call; BATCH_MESSAGES_MAX].join(","));
    for _ in 0..CALLS_PER_SESSION_MAX / BATCH_MESSAGES_MAX {
        let client = world.join(bystander);
        world.post(client, &batch);
        world.reset(client);
    }
    assert_eq!(world.shards[0].population().calls, CALLS_PER_SESSION_MAX);
    world.post(bystander, r#"{"jsonrpc":"2.0","id":"late","method":"tools/call"}"#);
    let response = world.response(bystander);
    assert_eq!((response.status, response.json()["id"].as_str()), (200, Some("late")));
    assert!(response.json()["error"]["code"].is_i64());
    assert_eq!(counters(&world).calls_refused, 1);
    world.delete(bystander);
    assert_eq!(world.response(bystander).status, 204);
    assert_eq!((world.shards[0].population().calls, world.shards[0].population().sessions), (0, 0));
}

#[test]
fn bombs_of_messages_and_of_nesting_are_refused_whole() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let nested = |depth: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    let cases = [
        (format!("[{}]", vec![ping; BATCH_MESSAGES_MAX].join(",")), 200),
        (format!("[{}]", vec![ping; BATCH_MESSAGES_MAX + 1].join(",")), 400),
        (format!("[{}]", "[],".repeat(100_000) + "[]"), 400),
        (nested(JSON_DEPTH_MAX - 1), 200),
        (nested(JSON_DEPTH_MAX), 400),
        ("[".repeat(200_000), 400),
        (format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "i".repeat(100_000)), 400),
        (format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, "9".repeat(100_000)), 400),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(100_000)), 0),
        (r#"{"jsonrpc":"2.0","id":1e999,"method":"ping"}"#.to_owned(), 400),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}".to_owned(), 400),
    ];
    for (body, status) in cases {
        world.post(client, &body);
        if status == 0 {
            // A long name is a name: the backend's to judge.
            let (shard, call) = world.take_call();
            world.answer(shard, call.key, "{}");
            assert_eq!(world.response(client).status, 200);
            continue;
        }
        let response = world.response(client);
        assert_eq!(response.status, status, "{}", &body[..body.len().min(80)]);
        assert!(response.body.len() < 10_000, "an answer does not grow with the attack");
    }
    assert_unharmed(&mut world, client);
}

/// Sessions are looked at a few per turn, announcements come as fast as clients can ask for them.
#[test]
fn announcements_to_everyone_wait_in_a_bounded_queue() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.pump_budget = 0;
    for n in 0..BROADCASTS_WAITING_MAX + 50 {
        world.tell(0, Tell::Broadcast(other(&n.to_string())));
    }
    assert_eq!(counters(&world).broadcasts_dropped, 50);
    world.pump_budget = 1_000;
    world.settle();
    assert_eq!(counters(&world).broadcasts_dropped, 50);
    assert_unharmed(&mut world, client);
}
