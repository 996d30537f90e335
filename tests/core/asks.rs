//! Requests of the server to a client: where they travel, who answers, and what ends them.

use crate::world::{World, client::ClientId};
use moorline::core::{
    ASK_TIMED_OUT, CallKey, ClientFeatures, ServerMethod, ServerRequest, ServerRequestId, Tell,
};

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call"}"#;
const EVERYTHING: &str = r#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{}}"#;

/// A session whose client declared that, before it said `initialized`.
fn open(world: &mut World, capabilities: &str) -> ClientId {
    let client = world.connect();
    world.client(client).initializing = true;
    let body = World::initialize_body("2025-11-25")
        .replace(r#""capabilities":{}"#, &format!(r#""capabilities":{capabilities}"#));
    world.post(client, &body);
    let response = world.response(client);
    world.client(client).session = response.field("mcp-session-id").map(str::to_owned);
    client
}

fn initialized(world: &mut World, client: ClientId) {
    world.post(client, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(world.response(client).status, 202);
}

/// A client that can do everything, and a connection on which a call of it runs.
fn calling(world: &mut World) -> (ClientId, ClientId, CallKey) {
    let client = open(world, EVERYTHING);
    initialized(world, client);
    let caller = world.join(client);
    world.post(caller, CALL);
    let (_, call) = world.take_call();
    (client, caller, call.key)
}

fn ask(world: &mut World, client: ClientId, id: u64, call: Option<CallKey>, method: ServerMethod) {
    let (shard, session) = world.session_of(client);
    let params = Some(r#"{"x":1}"#.into());
    let request =
        ServerRequest { id: ServerRequestId(id), session, call, method, params, timeout_ms: 10_000 };
    world.tell(shard, Tell::Request(request));
}

/// What the backend was told about its requests since the last time.
fn answers(world: &mut World) -> Vec<String> {
    let told = std::mem::take(&mut world.told);
    told.into_iter().filter(|text| text.starts_with("Answered")).collect()
}

fn answer(world: &mut World, client: ClientId, body: &str) -> u16 {
    let other = world.join(client);
    world.post(other, body);
    world.response(other).status
}

#[test]
fn a_request_travels_with_the_call_that_made_it_and_is_answered_once() {
    let mut world = World::new();
    let (client, caller, call) = calling(&mut world);
    ask(&mut world, client, 7, Some(call), ServerMethod::CreateMessage);
    let head = world.response(caller);
    let sent = head.events().pop().expect("the request").json();
    assert_eq!(
        (&sent["id"], &sent["method"], &sent["params"]["x"]),
        (&7.into(), &"sampling/createMessage".into(), &1.into())
    );
    let said = r#"{"jsonrpc":"2.0","id":7,"result":{"model":"m"}}"#;
    assert_eq!(answer(&mut world, client, said), 202);
    let told = answers(&mut world);
    assert!(
        told.len() == 1 && told[0].contains("ServerRequestId(7)") && told[0].contains("model"),
        "{told:?}"
    );
    assert_eq!(answer(&mut world, client, said), 202, "a second answer is taken and forgotten");
    assert!(answers(&mut world).is_empty());
    assert_eq!(world.shards[0].counters().answers_ignored, 1);
}

#[test]
fn a_request_of_no_call_goes_to_the_listener() {
    let mut world = World::new();
    let client = open(&mut world, EVERYTHING);
    initialized(&mut world, client);
    let listener = world.listen(client);
    ask(&mut world, client, 1, None, ServerMethod::ListRoots);
    assert_eq!(world.events(listener).pop().expect("the request").json()["method"], "roots/list");
    answer(&mut world, client, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#);
    let told = answers(&mut world);
    assert!(told[0].contains("Err(") && told[0].contains("-1"), "{told:?}");
}

#[test]
fn what_was_not_declared_is_not_asked() {
    for (capabilities, method, is_sent) in [
        ("{}", ServerMethod::CreateMessage, false),
        ("{}", ServerMethod::ListRoots, false),
        ("{}", ServerMethod::Elicit, false),
        ("{}", ServerMethod::Ping, true),
        (r#"{"elicitation":{}}"#, ServerMethod::Elicit, true),
        (r#"{"elicitation":{"url":{}}}"#, ServerMethod::Elicit, true),
        (r#"{"elicitation":true}"#, ServerMethod::Elicit, false),
        (r#"{"sampling":{}}"#, ServerMethod::CreateMessage, true),
    ] {
        let mut world = World::new();
        let client = open(&mut world, capabilities);
        initialized(&mut world, client);
        ask(&mut world, client, 1, None, method);
        let told = answers(&mut world);
        assert_eq!(told.is_empty(), is_sent, "{capabilities} {method:?} {told:?}");
        assert!(is_sent || told[0].contains("did not declare"), "{told:?}");
    }
}

#[test]
fn calls_carry_what_their_client_declared() {
    let mut world = World::new();
    let client = open(&mut world, r#"{"sampling":{"tools":{}},"elicitation":{}}"#);
    initialized(&mut world, client);
    world.post(client, CALL);
    let (_, call) = world.take_call();
    let expected = ClientFeatures::SAMPLING.with(ClientFeatures::SAMPLING_TOOLS).with(ClientFeatures::FORMS);
    assert_eq!(call.client, expected);
}

#[test]
fn requests_wait_for_initialized_and_pings_do_not() {
    let mut world = World::new();
    let client = open(&mut world, EVERYTHING);
    let listener = world.listen(client);
    ask(&mut world, client, 1, None, ServerMethod::ListRoots);
    ask(&mut world, client, 2, None, ServerMethod::Ping);
    let sent: Vec<_> = world.events(listener).iter().map(|event| event.json()["id"].clone()).collect();
    assert_eq!(sent, [2]);
    initialized(&mut world, client);
    let sent: Vec<_> = world.events(listener).iter().map(|event| event.json()["id"].clone()).collect();
    assert_eq!(sent, [1]);
}

#[test]
fn a_client_that_does_not_answer_in_time_is_told_so() {
    let mut world = World::new();
    let (client, caller, call) = calling(&mut world);
    ask(&mut world, client, 3, Some(call), ServerMethod::Elicit);
    world.response(caller);
    world.advance(9_000);
    assert!(answers(&mut world).is_empty());
    world.advance(2_000);
    let told = answers(&mut world);
    assert!(told[0].contains(&ASK_TIMED_OUT.to_string()), "{told:?}");
    let cancelled = world.events(caller).pop().expect("a cancellation").json();
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&"notifications/cancelled".into(), &3.into())
    );
}

#[test]
fn the_end_of_a_session_answers_everything() {
    let mut world = World::new();
    let (client, _, call) = calling(&mut world);
    ask(&mut world, client, 1, Some(call), ServerMethod::Elicit);
    ask(&mut world, client, 2, None, ServerMethod::Ping);
    let (shard, session) = world.session_of(client);
    let ender = world.join(client);
    world.delete(ender);
    let told = answers(&mut world);
    assert!(told.len() == 2 && told.iter().all(|text| text.contains("the session has ended")), "{told:?}");
    let request = ServerRequest {
        id: ServerRequestId(3),
        session,
        call: None,
        method: ServerMethod::Ping,
        params: None,
        timeout_ms: 1,
    };
    world.tell(shard, Tell::Request(request));
    assert_eq!(answers(&mut world).len(), 1, "also what is asked afterwards");
}

// --- Closing streams early --------------------------------------------------------------------------

#[test]
fn a_closed_stream_goes_on_where_the_client_comes_back() {
    let mut world = World::new();
    let (client, caller, call) = calling(&mut world);
    world.tell(0, Tell::CloseStream(call, 1_500));
    let response = world.response(caller);
    assert!(response.is_stream() && response.complete, "{response:?}");
    let events = response.events();
    let retry = events.iter().filter_map(|event| event.retry.clone()).next_back();
    assert_eq!(retry.as_deref(), Some("1500"));
    let cursor = events[0].id.clone().expect("a primed stream");
    world.answer(0, call, r#"{"late":true}"#);
    let (_, rest) = world.resume(client, &cursor);
    assert_eq!(rest.events().pop().expect("the answer").json()["result"]["late"], true);
    assert!(rest.complete);
}

#[test]
fn a_stream_the_client_cannot_come_back_for_stays_open() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    world.post(client, CALL);
    let (shard, call) = world.take_call();
    world.tell(shard, Tell::CloseStream(call.key, 1));
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).status, 200);
    assert_eq!(world.shards[0].counters().streams_closed_early, 0);
}

#[test]
fn closed_listeners_come_back_for_what_was_sent_meanwhile() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let listener = world.listen(client);
    let (shard, session) = world.session_of(client);
    world.tell(shard, Tell::CloseListeners(session, 500));
    assert!(world.client(listener).server_side_closed() || !world.events(listener).is_empty());
    world.announce(client, "meanwhile");
    let again = world.join(client);
    world.get(again);
    let texts: Vec<_> = world.response(again).events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts, ["meanwhile"]);
}
