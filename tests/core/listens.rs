//! Listen streams: what they say first, what they carry, how they end, and what they cost.

use crate::world::{
    ClientId, World,
    ask::{messages, post},
    config,
    http::Event,
    other,
    stateless::{body, fields, listen, tool_call},
};
use bytes::Bytes;
use moorline::core::{
    Announcement, Audience, Call, CallKey, Ending, Listening, Notification, NotificationKind, Publication,
    PublicationId, Reach, Tell,
    config::{CoreConfig, ResponseMode},
    jsonrpc::{self, RpcError},
    shard::{Attached, Shard},
    sse,
};
use serde_json::{Value, json};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn all() -> Listening {
    Listening { tools: true, prompts: true, resources: true, uris: vec!["u:1".into(), "u:2".into()] }
}

fn tools() -> Listening {
    Listening { tools: true, ..Listening::default() }
}

fn resource(uri: &str) -> Listening {
    Listening { uris: vec![uri.into()], ..Listening::default() }
}

/// A stream on that shard whose request has that id, and its acknowledgement.
fn open_on(world: &mut World, shard: usize, id: &str, listening: Listening) -> (ClientId, CallKey, Value) {
    let client = world.connect_to(shard);
    let (shard, call) = world.begin_exchange(client, &listen(id, "{}"));
    world.tell(shard, Tell::Listen(call.key, listening));
    let head = world.response(client);
    assert!(head.is_stream() && !head.complete, "{head:?}");
    let said = head.messages();
    assert_eq!(said.len(), 1, "nothing but the acknowledgement");
    (client, call.key, said[0].clone())
}

fn open(world: &mut World, id: &str, listening: Listening) -> (ClientId, CallKey, Value) {
    open_on(world, 0, id, listening)
}

fn list_changed(what: &str) -> Notification {
    let kind = match what {
        "tools" => NotificationKind::ToolsListChanged,
        "prompts" => NotificationKind::PromptsListChanged,
        _ => NotificationKind::ResourcesListChanged,
    };
    Notification { kind, json: jsonrpc::notification(&format!("notifications/{what}/list_changed"), None) }
}

fn updated(uri: &str) -> Notification {
    let params = format!(r#"{{"uri":"{uri}"}}"#);
    let json = jsonrpc::notification("notifications/resources/updated", Some(params.as_bytes()));
    Notification { kind: NotificationKind::ResourceUpdated(uri.into()), json }
}

/// The methods of what a stream got, each checked to carry its subscription's id.
fn heard(world: &mut World, client: ClientId, id: &Value) -> Vec<String> {
    let events = world.events(client);
    let events: Vec<Event> = events.into_iter().filter(|event| !event.is_comment()).collect();
    assert!(events.iter().all(|event| event.id.is_none() && event.retry.is_none()), "no ids, no retry");
    let said = messages(&events);
    said.iter()
        .map(|message| {
            assert_eq!(&message["params"]["_meta"][ID], id, "{message}");
            message["method"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn attached(world: &World) -> Attached {
    world.shards[0].population().attached
}

// --- Beginning ----------------------------------------------------------------------------------

#[test]
fn the_first_message_says_what_is_honoured() {
    let mut world = World::new();
    for (id, listening, honoured) in [
        (
            "1",
            all(),
            json!({"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["u:1","u:2"]}),
        ),
        (r#""a""#, tools(), json!({ "toolsListChanged": true })),
        ("-3", Listening::default(), json!({})),
        (r#""é\n""#, resource("u:\"1"), json!({ "resourceSubscriptions": ["u:\"1"] })),
    ] {
        let (_, _, said) = open(&mut world, id, listening);
        let id: Value = serde_json::from_str(id).unwrap();
        assert_eq!(
            said,
            json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": { "_meta": { ID: id }, "notifications": honoured },
            })
        );
    }
    assert_eq!(attached(&world).listens, 4);
    assert_eq!(world.counted("listens"), 4);
}

#[test]
fn one_stream_alone_hears_what_is_for_it_if_it_carries_that() {
    let mut world = World::new();
    let (client, key, _) = open(&mut world, "1", tools());
    let (other, _, _) = open(&mut world, "2", tools());
    world.tell(0, Tell::Notify(key, list_changed("tools")));
    world.tell(0, Tell::Notify(key, list_changed("prompts")));
    world.progress(0, key, 1);
    assert_eq!(heard(&mut world, client, &json!(1)), ["notifications/tools/list_changed"]);
    assert!(world.is_silent(other));
    let (subscribed, key, _) = open(&mut world, "3", resource("u:1"));
    // Which resources are for it is the backend's to know: it may be a part of what was asked for.
    world.tell(0, Tell::Notify(key, updated("u:1/part")));
    assert_eq!(heard(&mut world, subscribed, &json!(3)), ["notifications/resources/updated"]);
}

#[test]
fn nothing_is_said_before_the_acknowledgement() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &listen("1", "{}"));
    world.progress(shard, call.key, 1);
    world.tell(shard, Tell::Broadcast(list_changed("tools")));
    assert!(world.is_silent(client));
    // Nor when the backend is slow: then the head goes ahead.
    world.advance(40_000);
    world.tell(shard, Tell::Listen(call.key, tools()));
    let reply = world.response(client);
    let said = reply.messages();
    assert_eq!((said.len(), &said[0]["method"]), (1, &json!("notifications/subscriptions/acknowledged")));
    assert!(reply.events().iter().any(Event::is_keep_alive));
    world.tell(shard, Tell::Broadcast(list_changed("tools")));
    assert_eq!(heard(&mut world, client, &json!(1)), ["notifications/tools/list_changed"]);
}

#[test]
fn a_listen_stream_is_one_whatever_the_response_mode_and_needs_a_client_that_takes_it() {
    let mut world = World::with(CoreConfig { response_mode: ResponseMode::Json, ..config(1) });
    open(&mut world, "1", tools());
    let text = listen("2", "{}").replace("Accept: */*", "Accept: application/json");
    let reply = world.exchange_alone(text);
    assert_eq!((reply.status, reply.json()["id"].clone()), (406, 2.into()));
    assert!(world.calls.is_empty());
}

#[test]
fn a_backend_may_refuse_before_anything_is_said() {
    let mut world = World::new();
    for (code, status) in [(-32602, 200), (-32601, 404), (-32603, 200)] {
        let client = world.connect();
        let (shard, call) = world.begin_exchange(client, &listen("1", "7"));
        world.fail(shard, call.key, RpcError { code, message: "no".into(), data: None });
        let reply = world.response(client);
        assert_eq!((reply.status, reply.code()), (status, i64::from(code)));
    }
    assert_eq!(attached(&world), Attached::default());
}

// --- Messages -----------------------------------------------------------------------------------

#[test]
fn a_stream_carries_what_it_asked_for_and_nothing_else() {
    let mut world = World::with(config(2));
    let kinds = ["tools", "prompts", "resources"];
    let filters = [
        tools(),
        Listening { prompts: true, ..Listening::default() },
        Listening { resources: true, ..Listening::default() },
        resource("u:1"),
        resource("u:2"),
        all(),
        Listening::default(),
    ];
    let streams: Vec<ClientId> = filters
        .iter()
        .enumerate()
        .map(|(n, filter)| open_on(&mut world, n % 2, "7", filter.clone()).0)
        .collect();
    for kind in kinds {
        world.tell(0, Tell::Broadcast(list_changed(kind)));
    }
    for uri in ["u:1", "u:2", "u:3", "u:11"] {
        world.tell(1, Tell::Broadcast(updated(uri)));
    }
    world.tell(0, Tell::Broadcast(other("for sessions")));
    let changed = |what: &str| format!("notifications/{what}/list_changed");
    let update = "notifications/resources/updated".to_owned();
    let expected = [
        vec![changed("tools")],
        vec![changed("prompts")],
        vec![changed("resources")],
        vec![update.clone()],
        vec![update.clone()],
        vec![changed("tools"), changed("prompts"), changed("resources"), update.clone(), update],
        vec![],
    ];
    for (stream, expected) in streams.iter().zip(expected) {
        assert_eq!(heard(&mut world, *stream, &json!(7)), expected);
    }
}

#[test]
fn every_message_has_the_id_of_its_own_subscription_in_its_own_type() {
    let mut world = World::new();
    let long = format!(r#""{}""#, "x".repeat(200));
    let ids = ["7", r#""7""#, "-1", &long, r#""é""#];
    let streams: Vec<_> = ids.iter().map(|id| open(&mut world, id, all()).0).collect();
    world.tell(0, Tell::Broadcast(list_changed("tools")));
    world.tell(0, Tell::Broadcast(updated("u:1")));
    let with_meta = Bytes::from_static(
        br#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"a":1}}}"#,
    );
    world.tell(
        0,
        Tell::Broadcast(Notification { kind: NotificationKind::PromptsListChanged, json: with_meta }),
    );
    for (id, stream) in ids.iter().zip(streams) {
        let said = messages(&world.events(stream));
        let id: Value = serde_json::from_str(id).unwrap();
        assert_eq!(said[0]["params"], json!({ "_meta": { ID: id } }));
        assert_eq!(said[1]["params"], json!({ "_meta": { ID: id }, "uri": "u:1" }));
        assert_eq!(said[2]["params"], json!({ "_meta": { ID: id, "a": 1 } }));
    }
}

#[test]
fn one_notification_reaches_clients_of_both_eras_once() {
    let mut world = World::with(config(3));
    let mut sessions = Vec::new();
    let mut streams = Vec::new();
    for n in 0..30 {
        let owner = world.open_on(n % 3, "2025-11-25");
        sessions.push(world.listen(owner));
        streams.push(open_on(&mut world, n % 3, "1", tools()).0);
    }
    for budget in [1, 7, 1_000] {
        world.pump_budget = budget;
        world.tell(1, Tell::Broadcast(list_changed("tools")));
        for (session, stream) in sessions.iter().zip(&streams) {
            assert_eq!(world.events(*session).len(), 1);
            assert_eq!(heard(&mut world, *stream, &json!(1)), ["notifications/tools/list_changed"]);
        }
    }
}

#[test]
fn streams_opened_or_ended_while_a_broadcast_is_under_way_change_nothing_for_the_others() {
    let mut world = World::new();
    let streams: Vec<_> = (0..20).map(|_| open(&mut world, "1", tools()).0).collect();
    world.pump_budget = 0;
    world.tell(0, Tell::Broadcast(list_changed("tools")));
    let now = world.now;
    world.shards[0].pump(7, now);
    world.settle();
    for stream in streams.iter().skip(14) {
        world.reset(*stream);
    }
    let late: Vec<_> = (0..10).map(|_| open(&mut world, "2", tools()).0).collect();
    world.pump_budget = 3;
    world.settle();
    for stream in streams.iter().take(14) {
        assert_eq!(heard(&mut world, *stream, &json!(1)).len(), 1);
    }
    for stream in &late {
        assert_eq!(heard(&mut world, *stream, &json!(2)).len(), 0, "it asked later");
    }
}

#[test]
fn a_message_with_no_place_for_the_id_goes_to_sessions_only() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let listener = world.listen(owner);
    let (stream, ..) = open(&mut world, "1", tools());
    let json =
        Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":[]}"#);
    world.tell(0, Tell::Broadcast(Notification { kind: NotificationKind::ToolsListChanged, json }));
    assert_eq!((world.events(listener).len(), world.is_silent(stream)), (1, true));
    assert_eq!(world.counted("messages_dropped"), 1);
}

#[test]
fn a_client_may_have_several_and_each_gets_its_own() {
    let mut world = World::new();
    let streams = [open(&mut world, "1", tools()).0, open(&mut world, "2", all()).0];
    world.tell(0, Tell::Broadcast(list_changed("tools")));
    for (stream, id) in streams.into_iter().zip([1, 2]) {
        assert_eq!(heard(&mut world, stream, &json!(id)).len(), 1);
    }
}

#[test]
fn calls_on_other_connections_go_on_beside_it() {
    let mut world = World::new();
    let (stream, key, _) = open(&mut world, "1", tools());
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.progress(shard, call.key, 1);
    world.progress(shard, key, 1);
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).messages().len(), 2);
    assert!(world.is_silent(stream), "progress never goes to it");
}

// --- Slow readers -------------------------------------------------------------------------------

#[test]
fn what_waits_for_a_slow_reader_says_each_thing_once() {
    let mut world = World::new();
    let (stream, ..) = open(&mut world, "1", all());
    world.stall(stream);
    // The first fills the connection's output, the others wait.
    let padding = "x".repeat(20_000);
    let params = format!(r#"{{"uri":"u:1","x":"{padding}"}}"#);
    let json = jsonrpc::notification("notifications/resources/updated", Some(params.as_bytes()));
    world.tell(
        0,
        Tell::Broadcast(Notification { kind: NotificationKind::ResourceUpdated("u:1".into()), json }),
    );
    for _ in 0..50 {
        for kind in ["tools", "prompts"] {
            world.tell(0, Tell::Broadcast(list_changed(kind)));
        }
        world.tell(0, Tell::Broadcast(updated("u:2")));
    }
    world.open_window(stream, usize::MAX);
    let expected = [
        "notifications/resources/updated",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
    ];
    assert_eq!(heard(&mut world, stream, &json!(1)), expected);
    assert_eq!(world.counted("messages_merged"), 147);
    world.tell(0, Tell::Broadcast(list_changed("tools")));
    assert_eq!(heard(&mut world, stream, &json!(1)).len(), 1, "and then it is as before");
}

#[test]
fn a_reader_for_whom_too_much_waits_is_cut_and_asks_anew() {
    let mut world = World::with(CoreConfig { write_buffer_bytes: 30_000, ..config(1) });
    let (stream, key, _) = open(&mut world, "1", all());
    let (other, ..) = open(&mut world, "2", all());
    world.stall(stream);
    let padding = "x".repeat(20_000);
    for uri in ["u:1", "u:2"] {
        let params = format!(r#"{{"uri":"{uri}","x":"{padding}"}}"#);
        let json = jsonrpc::notification("notifications/resources/updated", Some(params.as_bytes()));
        let kind = NotificationKind::ResourceUpdated(uri.into());
        world.advance(200);
        world.tell(0, Tell::Broadcast(Notification { kind, json }));
    }
    assert_eq!((world.ending(stream), &world.cancelled[..]), (Some(Ending::Cut), &[key][..]));
    assert_eq!(heard(&mut world, other, &json!(2)).len(), 2, "nobody else notices");
    assert_eq!((attached(&world).listens, world.counted("connections_overflowed")), (1, 1));
}

#[test]
fn a_reader_that_takes_nothing_is_cut_in_time() {
    let mut world = World::new();
    let (stream, key, _) = open(&mut world, "1", tools());
    world.stall(stream);
    world.tell(0, Tell::Broadcast(list_changed("tools")));
    world.advance(31_000);
    assert_eq!((world.ending(stream), &world.cancelled[..]), (Some(Ending::Cut), &[key][..]));
}

// --- Keep-alive ---------------------------------------------------------------------------------

#[test]
fn an_idle_stream_is_kept_alive_by_the_timer_of_its_connection_alone() {
    let mut world = World::new();
    let (stream, ..) = open(&mut world, "1", tools());
    assert_eq!(world.timers(), 1);
    world.advance(2 * 60 * 60_000);
    let comments = world.events(stream);
    assert!((470..=480).contains(&comments.len()), "{}", comments.len());
    assert!(comments.iter().all(Event::is_keep_alive), "no request time-out ends it");
    assert_eq!((world.timers(), world.ending(stream)), (1, None));
}

// --- Ends ---------------------------------------------------------------------------------------

#[test]
fn a_client_that_leaves_is_forgotten() {
    for half in [false, true] {
        let mut world = World::new();
        let (stream, key, _) = open(&mut world, "1", all());
        if half {
            world.half_close(stream);
            assert!(world.events(stream)[0].is_keep_alive(), "it is asked whether it still reads");
        }
        world.reset(stream);
        assert_eq!(world.cancelled, [key]);
        let left = world.shards[0].population();
        assert_eq!((left.exchanges, left.attached, left.timers), (0, Attached::default(), 0));
        world.tell(0, Tell::Broadcast(updated("u:1")));
        let stale = world.counted("tells_stale");
        world.answer(0, key, "{}");
        assert_eq!(world.counted("tells_stale"), stale + 1);
    }
}

#[test]
fn a_server_ends_it_with_the_response_and_the_connection_goes_on() {
    let mut world = World::new();
    for id in ["1", r#""a""#] {
        let (stream, key, _) = open(&mut world, id, tools());
        world.stall(stream);
        world.tell(0, Tell::Broadcast(list_changed("tools")));
        world.answer(0, key, r#"{"resultType":"complete","_meta":{"x":1}}"#);
        world.open_window(stream, usize::MAX);
        let bytes = std::mem::take(&mut world.client(stream).received);
        let (content, complete) = crate::world::http::dechunk(&bytes);
        let said = messages(&crate::world::http::events(&content));
        let id: Value = serde_json::from_str(id).unwrap();
        assert!(complete);
        assert_eq!(said[0]["method"], "notifications/tools/list_changed", "what waited goes first");
        let result = json!({ "resultType": "complete", "_meta": { ID: id, "x": 1 } });
        assert_eq!(said[1], json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        assert!(world.cancelled.is_empty(), "the backend knows");
        let (shard, call) = world.begin_exchange(stream, &tool_call("2"));
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(stream).status, 200);
    }
    let (stream, key, _) = open(&mut world, "3", tools());
    world.fail(0, key, RpcError::internal_error());
    assert_eq!(messages(&world.events_of_ended(stream))[0]["error"]["code"], -32603);
    assert_eq!(attached(&world), Attached::default());
}

#[test]
fn a_server_that_stops_ends_its_listen_streams_first() {
    let mut world = World::new();
    let streams: Vec<_> = (0..5).map(|n| open(&mut world, &n.to_string(), all())).collect();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("9"));
    let (_, asking) = {
        let client = world.connect();
        world.begin_exchange(client, &listen("8", "{}"))
    };
    world.pump_budget = 2;
    world.drain(0);
    world.settle();
    for (n, (stream, key, _)) in streams.iter().enumerate() {
        let said = messages(&world.events_of_ended(*stream));
        let result = json!({ "resultType": "complete", "_meta": { ID: n } });
        assert_eq!(said, [json!({ "jsonrpc": "2.0", "id": n, "result": result })]);
        assert_eq!(world.ending(*stream), Some(Ending::Orderly));
        assert!(world.cancelled.contains(key), "the backend hears of it");
    }
    assert_eq!(attached(&world), Attached::default());
    // One that is answered only now does not begin.
    world.tell(shard, Tell::Listen(asking.key, tools()));
    assert!(world.cancelled.contains(&asking.key));
    world.answer(shard, call.key, "{}");
    assert_eq!(world.response(client).status, 200);
    assert!(world.shards[0].is_drained());
}

// --- Bounds and cost ----------------------------------------------------------------------------

#[test]
fn streams_and_their_resources_are_bounded() {
    let mut world = World::with(CoreConfig { sessions_max: 3, ..config(1) });
    for _ in 0..3 {
        open(&mut world, "1", tools());
    }
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &listen("1", "{}"));
    world.tell(shard, Tell::Listen(call.key, tools()));
    let reply = world.response(client);
    assert_eq!((reply.status, reply.code()), (200, -32603));
    assert_eq!(world.cancelled, [call.key], "the backend hears that nobody listens");

    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &listen("1", "{}"));
    let uris = (0..257).map(|n| format!("u:{n}").into()).collect();
    world.tell(shard, Tell::Listen(call.key, Listening { uris, ..Listening::default() }));
    assert_eq!(world.response(client).code(), -32602);
    assert_eq!(world.counted("listens_refused"), 1);
}

#[test]
fn a_resource_named_twice_is_subscribed_once() {
    let mut world = World::new();
    let twice = Listening { uris: vec!["u:1".into(), "u:1".into()], ..Listening::default() };
    let (stream, ..) = open(&mut world, "1", twice);
    world.tell(0, Tell::Broadcast(updated("u:1")));
    assert_eq!(heard(&mut world, stream, &json!(1)).len(), 1);
}

#[test]
fn an_idle_stream_costs_no_more_than_an_idle_session_with_one() {
    let bytes = Shard::entry_bytes();
    let session = bytes.session + bytes.stream + bytes.conn + 2 * bytes.timer;
    // Its id is kept beside the entry.
    let listen = bytes.exchange + bytes.conn + bytes.timer + 64;
    assert!(listen <= session, "{listen} > {session}");
    assert!(bytes.exchange <= 128, "{bytes:?}");
}

#[test]
fn an_idle_stream_keeps_nothing_of_its_request() {
    let mut world = World::new();
    let client = world.connect();
    let padding = format!(r#""notifications":{{}},"x":"{}""#, "x".repeat(3_000));
    let text = post(&fields("subscriptions/listen", ""), &body("1", "subscriptions/listen", &padding));
    let (shard, call): (usize, Call) = world.begin_exchange(client, &text);
    let params = call.params.clone().unwrap();
    world.tell(shard, Tell::Listen(call.key, tools()));
    drop(call);
    assert!(params.is_unique(), "only the backend's own slice keeps the body");
}

// --- Publishing ---------------------------------------------------------------------------------

#[test]
fn a_publication_counts_the_streams_that_asked_for_it() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    world.listen(owner);
    world.open("2025-11-25");
    open(&mut world, "1", tools());
    open(&mut world, "2", resource("u:1"));
    let (slow, ..) = open(&mut world, "3", tools());
    world.stall(slow);
    let publish = |world: &mut World, notification: &Notification| {
        let announcement =
            Announcement { kind: notification.kind.clone(), payload: sse::payload(&notification.json) };
        let now = world.now;
        world.shards[0]
            .publish(Publication { id: PublicationId(0), audience: Audience::All, announcement }, now);
        world.settle();
        world.published.pop().unwrap().1
    };
    let reach = publish(&mut world, &list_changed("tools"));
    assert_eq!(reach, Reach { sessions: 2, listens: 2, written: 3, pending: 1, ..Reach::default() });
    let reach = publish(&mut world, &updated("u:1"));
    assert_eq!(reach, Reach { listens: 1, written: 1, ..Reach::default() });
    let reach = publish(&mut world, &other("x"));
    assert_eq!((reach.sessions, reach.listens), (2, 0));
}
