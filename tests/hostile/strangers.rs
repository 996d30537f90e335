//! Whoever has no token: guesses, mutations, and what they cost.

use super::fuzz::world::{ClientId, World, config};
use moorline::core::{
    auth::{Authenticator, Resource, Scheme, Tokens, tokens},
    config::CoreConfig,
};
use proptest::prelude::*;
use std::sync::Arc;

/// A server with one good token.
fn guarded() -> (World, String) {
    let (token, hash) = tokens::token(&[0x5a; 32]);
    let scheme = Scheme::Tokens(Tokens::parse(&format!("alice {hash}")).expect("a good line"));
    let auth = Some(Arc::new(Authenticator::new(scheme, Resource::default())));
    (World::with(CoreConfig { auth, ..config(2) }), token)
}

fn initialize(authorization: &[u8]) -> Vec<u8> {
    let body = World::initialize_body("2025-11-25");
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: ";
    let rest = format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    [head.as_bytes(), authorization, rest.as_bytes()].concat()
}

fn status(world: &mut World, authorization: &[u8]) -> u16 {
    let client = world.connect();
    world.send(client, initialize(authorization));
    let status = world.response(client).status;
    world.reset(client);
    status
}

fn assert_nobody_came_in(world: &World) {
    for shard in &world.shards {
        let population = shard.population();
        assert_eq!((population.sessions, population.calls, population.conns), (0, 0, 0), "{population:?}");
        assert_eq!((shard.counters().sessions, shard.counters().tokens_verified), (0, 0));
    }
    assert!(world.calls.is_empty() && world.ended.is_empty());
}

#[test]
fn a_token_that_is_wrong_in_one_place_is_wrong() {
    let (mut world, token) = guarded();
    for at in 0..token.len() {
        for wrong in [b'A', b'z', b'0', b'-', b'_'] {
            let mut guess = token.clone().into_bytes();
            if guess[at] != wrong {
                guess[at] = wrong;
                assert_eq!(status(&mut world, &[b"Bearer ", &guess[..]].concat()), 401);
            }
        }
        assert_eq!(status(&mut world, format!("Bearer {}", &token[..at]).as_bytes()), 401);
    }
    assert_eq!(status(&mut world, format!("Bearer {token}A").as_bytes()), 401);
    assert_nobody_came_in(&world);
}

#[test]
fn a_token_in_any_other_place_is_none() {
    let (mut world, token) = guarded();
    let body = World::initialize_body("2025-11-25");
    for (target, fields) in [
        (format!("/mcp?access_token={token}"), String::new()),
        ("/mcp".to_owned(), format!("Cookie: access_token={token}\r\n")),
        ("/mcp".to_owned(), format!("X-Authorization: Bearer {token}\r\n")),
        ("/mcp".to_owned(), format!("Mcp-Session-Id: {token}\r\n")),
        ("/mcp".to_owned(), format!("Authorization2: Bearer {token}\r\n")),
        (format!("http://alice:{token}@localhost/mcp"), String::new()),
    ] {
        let client = world.connect();
        let length = body.len();
        world.send(client, format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
        let status = world.response(client).status;
        assert!(status == 401 || status == 400, "{target} {fields}: {status}");
        world.reset(client);
    }
    // In a trailer, after the head was judged.
    let client = world.connect();
    world.send(client, format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer {token}\r\n\r\n"));
    assert_eq!(world.response(client).status, 401);
    world.reset(client);
    assert_nobody_came_in(&world);
}

#[test]
fn other_ways_to_write_the_path_lead_nowhere() {
    let (mut world, _) = guarded();
    for target in [
        "/mcp/",
        "//mcp",
        "/./mcp",
        "/x/../mcp",
        "/MCP",
        "/mc%70",
        "/%6dcp",
        "/mcp;x",
        "/mcp/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/../../mcp",
        "/.well-known/oauth-protected-resource%2fmcp",
        "/metrics",
        "/publish",
    ] {
        let client = world.connect();
        world.send(client, format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(world.response(client).status, 404, "{target}");
        world.reset(client);
    }
    assert_nobody_came_in(&world);
}

#[test]
fn a_thousand_strangers_leave_nothing_behind() {
    let (mut world, token) = guarded();
    for guess in 0..1_000 {
        assert_eq!(status(&mut world, format!("Bearer moorline_{guess:043}").as_bytes()), 401);
    }
    assert_nobody_came_in(&world);
    let client: ClientId = world.connect();
    world.send(client, initialize(format!("Bearer {token}").as_bytes()));
    assert_eq!(world.response(client).status, 200);
}

proptest! {
    #[test]
    fn whatever_stands_in_the_field_nobody_comes_in(
        scheme in prop_oneof![Just("Bearer "), Just("bearer"), Just(""), Just("Bearer\t"), Just("Basic ")],
        value in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut world, _) = guarded();
        let client = world.connect();
        world.send(client, initialize(&[scheme.as_bytes(), &value[..]].concat()));
        if !world.is_silent(client) {
            let status = world.response(client).status;
            prop_assert!(matches!(status, 400 | 401 | 431), "{status}");
        }
        world.reset(client);
        assert_nobody_came_in(&world);
    }
}
