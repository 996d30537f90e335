//! Kinds of failure other servers were seen to have, where no other test is of that kind.
//!
//! `docs/internals/known-failures.md` says which row each of them answers.

use super::fuzz::world::{ClientId, World, http};
use moorline::core::{CallKey, ServerMethod, ServerRequest, ServerRequestId, Tell};

/// A request of the server to the client of a session.
fn ask(world: &mut World, client: ClientId, id: u64, call: Option<CallKey>) {
    let (shard, session) = world.session_of(client);
    let request = ServerRequest {
        id: ServerRequestId(id),
        session,
        call,
        method: ServerMethod::Ping,
        params: None,
        timeout_ms: 20_000,
    };
    world.tell(shard, Tell::Request(request));
}

fn asked(events: &[http::Event]) -> Vec<u64> {
    let messages = events.iter().filter(|event| event.data.as_deref().is_some_and(|data| !data.is_empty()));
    messages.filter_map(|event| event.json()["id"].as_u64()).collect()
}

/// What the backend was told about the requests it made.
fn answers(world: &World) -> Vec<&str> {
    world.told.iter().map(String::as_str).filter(|told| told.starts_with("Answered")).collect()
}

#[test]
fn a_server_request_made_before_any_listener_waits_for_the_first() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    ask(&mut world, client, 7, None);
    world.advance(500);
    let listener = world.join(client);
    world.get(listener);
    assert_eq!(asked(&world.response(listener).events()), [7]);
    world.post(client, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(world.response(client).status, 202);
    assert_eq!(answers(&world).len(), 1);
}

#[test]
fn a_server_request_rides_the_stream_of_its_call() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let listener = world.listen(client);
    let caller = world.join(client);
    world.post(caller, r#"{"jsonrpc":"2.0","id":"c","method":"tools/call"}"#);
    let (shard, call) = world.take_call();
    ask(&mut world, client, 8, Some(call.key));
    assert_eq!(asked(&world.response(caller).events()), [8], "also without any listener it would be there");
    world.post(client, r#"{"jsonrpc":"2.0","id":8,"result":{"ok":true}}"#);
    assert_eq!(world.response(client).status, 202);
    world.answer(shard, call.key, "{}");
    assert_eq!(world.events(caller).len(), 1, "then the call's own response");
    assert_eq!(asked(&world.events(listener)), Vec::<u64>::new());
}

#[test]
fn a_server_request_that_did_not_arrive_is_sent_again_and_one_that_did_is_not() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let first = world.listen(client);
    world.hold(first);
    ask(&mut world, client, 9, None);
    world.reset(first);
    for _ in 0..10 {
        let next = world.join(client);
        world.get(next);
        let seen = asked(&world.response(next).events());
        assert_eq!(seen, if next.0 == first.0 + 1 { vec![9] } else { vec![] });
        world.reset(next);
    }
}

#[test]
fn a_server_request_that_nobody_answers_fails_in_bounded_time() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.listen(client);
    ask(&mut world, client, 10, None);
    world.advance(19_000);
    assert_eq!(answers(&world), Vec::<&str>::new());
    world.advance(1_100);
    assert_eq!(answers(&world).len(), 1);
    world.post(client, r#"{"jsonrpc":"2.0","id":10,"result":{}}"#);
    assert_eq!(world.response(client).status, 202, "too late is no fault of the client");
    assert_eq!(answers(&world).len(), 1, "the backend hears one word");
}

#[test]
fn the_head_and_first_bytes_of_a_listener_go_out_at_once() {
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let mut world = World::new();
        let client = world.open(revision);
        let listener = world.join(client);
        world.get(listener);
        let head = world.response(listener);
        assert_eq!(head.status, 200);
        assert!(!head.body.is_empty() && !head.complete, "{revision}: {head:?}");
    }
}

#[test]
fn a_call_whose_method_is_unknown_ends_its_stream_with_the_error() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    world.post_with(
        client,
        "Accept: text/event-stream\r\n",
        r#"{"jsonrpc":"2.0","id":9,"method":"no/such"}"#,
    );
    let (shard, call) = world.take_call();
    world.fail(shard, call.key, moorline::core::jsonrpc::RpcError::method_not_found("no/such"));
    let response = world.response(client);
    assert!(response.complete, "the stream is left open");
    let last = response.events().pop().expect("an event");
    assert_eq!(last.json()["error"]["code"], -32601);
}
