//! Bounds that only an unlikely order of events reaches, and what follows then.

use crate::world::{ClientId, World, config, http, other};
use moorline::core::{
    Notification, NotificationKind, ServerMethod, ServerRequest, ServerRequestId, Tell, config::CoreConfig,
    jsonrpc,
};
use moorline::limits;

fn session() -> (World, ClientId) {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    (world, client)
}

/// The id of the first event of a response.
fn first_id(response: &http::Response) -> String {
    response.events().into_iter().find_map(|event| event.id).expect("an event with an id")
}

/// A call whose reply became a stream by time alone, continued by a GET after its priming event.
fn continued_call(world: &mut World, owner: ClientId) -> (ClientId, http::Response) {
    let caller = world.join(owner);
    world.begin(caller, "1");
    world.advance(2 * limits::SSE_AFTER_MS);
    let cursor = first_id(&world.response(caller));
    world.resume(owner, &cursor)
}

#[test]
fn continued_posts_cannot_exceed_the_cap_on_get_streams() {
    let (mut world, owner) = session();
    let statuses: Vec<u16> = (0..40).map(|_| continued_call(&mut world, owner).1.status).collect();
    let (served, refused) = statuses.split_at(statuses.iter().take_while(|status| **status == 200).count());
    assert_eq!(served.len(), 31, "each needs two places at first, then those of the oldest that were left");
    assert!(refused.iter().all(|status| *status == 503), "{refused:?}");
}

#[test]
fn making_place_may_cost_the_stream_that_was_asked_for_its_last_events() {
    let mut world = World::with(CoreConfig { replay_events_max: 1, ..config(1) });
    let owner = world.open("2025-11-25");
    let (last, _) = world.finished_post(owner);
    let primary = world.resume(owner, &last).0;
    for _ in 1..limits::FALLEN_THROUGH_PER_SESSION_MAX {
        assert_eq!(world.resume(owner, &last).1.status, 200);
    }
    let left = limits::GET_STREAMS_PER_SESSION_MAX - limits::FALLEN_THROUGH_PER_SESSION_MAX;
    for _ in 0..left / 2 {
        assert_eq!(continued_call(&mut world, owner).1.status, 200);
    }
    // The primary is the oldest of the streams that can be done without, and something waits behind its output.
    world.stall(primary);
    world.announce(owner, &"x".repeat(20_000));
    let (_, first) = world.finished_post(owner);
    world.announce(owner, "waiting");
    let (resumed, response) = world.resume(owner, &first);
    assert_eq!(response.status, 200);
    assert!(!response.complete && !world.client(resumed).server_side_closed());
}

#[test]
fn broadcasts_that_wait_to_be_handed_out_are_bounded() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.pump_budget = 0;
    for number in 0..limits::BROADCASTS_WAITING_MAX + 5 {
        world.tell(0, Tell::Broadcast(other(&number.to_string())));
    }
    assert_eq!(world.counted("broadcasts_dropped"), 5);
    world.pump_budget = 1;
    world.settle();
    let texts = world.texts(listener);
    assert_eq!(texts.len(), limits::BROADCASTS_WAITING_MAX);
    assert_eq!(texts[..2], ["0", "1"]);
}

#[test]
fn equal_signals_that_wait_to_be_handed_out_are_one_broadcast() {
    let (mut world, owner) = session();
    let listener = world.listen(owner);
    world.pump_budget = 0;
    let changed = || Notification {
        kind: NotificationKind::ToolsListChanged,
        json: jsonrpc::notification("notifications/tools/list_changed", None),
    };
    for _ in 0..3 {
        world.tell(0, Tell::Broadcast(changed()));
    }
    // It is told to those who came before the last of them.
    let late = world.open("2025-11-25");
    world.tell(0, Tell::Broadcast(changed()));
    let late_listener = world.listen(late);
    world.pump_budget = 1_000;
    world.settle();
    let count = |world: &mut World, client| {
        let has_data = |event: &http::Event| event.data.as_deref().is_some_and(|data| !data.is_empty());
        world.events(client).iter().filter(|event| has_data(event)).count()
    };
    assert_eq!((count(&mut world, listener), count(&mut world, late_listener)), (1, 1));
    assert_eq!(world.counted("messages_merged"), 3);
}

#[test]
fn more_requests_to_a_client_than_it_could_answer_fail_at_once() {
    let (mut world, owner) = session();
    world.listen(owner);
    let (shard, session) = world.session_of(owner);
    let ping = |number: usize| ServerRequest {
        id: ServerRequestId(number as u64),
        session,
        call: None,
        method: ServerMethod::Ping,
        params: None,
        timeout_ms: u64::MAX,
    };
    for number in 0..limits::ASKS_PER_SESSION_MAX {
        world.tell(shard, Tell::Request(ping(number)));
    }
    assert_eq!(world.counted("asks_failed"), 0);
    world.tell(shard, Tell::Request(ping(limits::ASKS_PER_SESSION_MAX)));
    assert_eq!(world.counted("asks_failed"), 1);
    let answer = world.told.last().expect("the backend was told");
    assert!(answer.contains("Answered(ServerRequestId(256), Err("), "{answer}");
    // One that was answered makes room for the next.
    world.post(owner, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(world.response(owner).status, 202);
    world.tell(shard, Tell::Request(ping(1_000)));
    assert_eq!(world.counted("asks_failed"), 1);
}

#[test]
fn an_error_larger_than_a_message_may_be_is_replaced() {
    let mut world = World::with(CoreConfig { message_bytes_max: 1_000, ..config(1) });
    let owner = world.open("2025-11-25");
    let (shard, call) = world.begin(owner, "1");
    let data = Some(format!("\"{}\"", "x".repeat(1_000)).into());
    world.fail(shard, call.key, jsonrpc::RpcError { data, ..jsonrpc::RpcError::internal_error() });
    let response = world.response(owner);
    assert!(response.text().len() < 500, "{response:?}");
    assert_eq!(world.counted("messages_oversized"), 1);
}

#[test]
fn a_request_to_the_client_that_is_evicted_unsent_fails() {
    let mut world = World::with(CoreConfig { replay_events_max: 1, ..config(1) });
    let owner = world.open("2025-11-25");
    let caller = world.join(owner);
    let (shard, call) = world.begin_stream(caller, "1");
    world.reset(caller);
    let (_, session) = world.session_of(owner);
    let request = ServerRequest {
        id: ServerRequestId(9),
        session,
        call: Some(call.key),
        method: ServerMethod::Ping,
        params: None,
        timeout_ms: 60_000,
    };
    world.tell(shard, Tell::Request(request));
    assert_eq!((world.counted("asks"), world.counted("asks_failed")), (1, 0));
    world.progress(shard, call.key, 2);
    assert_eq!(world.counted("asks_failed"), 1);
    let answer = world.told.last().expect("the backend was told");
    assert!(answer.contains("Answered(ServerRequestId(9), Err("), "{answer}");
}
