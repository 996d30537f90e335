//! HTTP+SSE of 2024-11-05: the stream comes first, and carries everything.

use crate::world::{
    ClientId, World,
    ask::{chunked, messages, notification, request},
    config,
    http::{Event, Response},
    other,
};
use bytes::Bytes;
use moorline::core::{
    Announcement, Call, Ending, NotificationKind, ServerMethod, ServerRequest, ServerRequestId, Tell,
    auth::{Authenticator, Digest, Resource, Scheme, Tokens},
    config::CoreConfig,
    http::policy::LegacySse,
    jsonrpc, sse,
};
use std::sync::Arc;

const MESSAGE_BYTES: usize = 64 * 1024;

fn legacy(shards: u16) -> CoreConfig {
    let config = config(shards);
    CoreConfig { policy: config.policy.with_legacy_sse(LegacySse::On), ..config }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n")
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A stream and where it says to post to.
struct Carried {
    stream: ClientId,
    uri: String,
}

impl Carried {
    fn connect_to(world: &mut World, shard: usize) -> Self {
        Carried::connect_with(world, shard, "")
    }

    fn connect_with(world: &mut World, shard: usize, fields: &str) -> Self {
        let stream = world.connect_to(shard);
        let head = world.exchange(stream, get("/sse", fields));
        assert!(head.status == 200 && head.is_stream() && !head.complete, "{head:?}");
        assert_eq!(head.field("mcp-session-id"), None, "this transport has no such field");
        let events = head.events();
        assert_eq!((events.len(), events[0].name.as_deref()), (1, Some("endpoint")), "{events:?}");
        assert_eq!(events[0].id, None);
        Carried { stream, uri: events[0].data.clone().unwrap() }
    }

    fn id(&self) -> &str {
        self.uri.strip_prefix("/messages?sessionId=").expect("a relative URI with the id in the query")
    }

    /// A session of that revision, whose client said `initialized`.
    fn open_on(world: &mut World, shard: usize, revision: &str) -> Self {
        let carried = Carried::connect_to(world, shard);
        carried.initialize(world, shard, revision);
        carried
    }

    fn open(world: &mut World) -> Self {
        Carried::open_on(world, 0, "2024-11-05")
    }

    fn initialize(&self, world: &mut World, shard: usize, revision: &str) {
        world.client(self.stream).initializing = true;
        self.post_on(world, shard, &World::initialize_body(revision));
        let messages = self.messages(world);
        assert_eq!((messages.len(), &messages[0]["id"]), (1, &1.into()), "{messages:?}");
        assert_eq!(messages[0]["result"]["protocolVersion"], revision);
        self.post_on(world, shard, &notification("notifications/initialized"));
    }

    /// Posts on a connection of its own that lands on that shard: taken at once, with nothing to say.
    fn post_on(&self, world: &mut World, shard: usize, body: &str) {
        let response = self.exchange_on(world, shard, "", body);
        assert_eq!((response.status, response.text().as_str()), (202, ""), "{response:?}");
        assert_eq!(response.field("mcp-session-id"), None);
    }

    fn post(&self, world: &mut World, body: &str) {
        self.post_on(world, 0, body);
    }

    fn exchange_on(&self, world: &mut World, shard: usize, fields: &str, body: &str) -> Response {
        let poster = world.connect_to(shard);
        let response = world.exchange(poster, post(&self.uri, fields, body));
        world.reset(poster);
        response
    }

    fn exchange(&self, world: &mut World, body: &str) -> Response {
        self.exchange_on(world, 0, "", body)
    }

    /// A call the backend works on.
    fn begin(&self, world: &mut World, id: &str) -> (usize, Call) {
        self.post(world, &request(id, "tools/call"));
        world.take_call()
    }

    /// What was said on the stream since: every message is an event of that name without an id.
    fn messages(&self, world: &mut World) -> Vec<serde_json::Value> {
        let events = world.events(self.stream);
        let said = |event: &&Event| event.data.is_some();
        for event in events.iter().filter(said) {
            assert_eq!((event.name.as_deref(), &event.id), (Some("message"), &None), "{event:?}");
        }
        messages(&events)
    }
}

// --- Sessions and messages ----------------------------------------------------------------------

#[test]
fn everything_of_a_call_is_said_on_the_stream_whatever_shards_its_connections_land_on() {
    for shards in [1, 2, 4] {
        let mut world = World::with(legacy(shards));
        let count = usize::from(shards);
        for (home, away) in (0..count).flat_map(|home| (0..count).map(move |away| (home, away))) {
            for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
                let carried = Carried::connect_to(&mut world, home);
                carried.initialize(&mut world, away, revision);
                carried.post_on(&mut world, away, &request("7", "tools/call"));
                let (shard, call) = world.take_call();
                assert_eq!(shard, home, "the session stays where its stream is");
                assert_eq!(call.revision.date(), revision);
                world.progress(shard, call.key, 1);
                world.answer(shard, call.key, r#"{"done":true}"#);
                let messages = carried.messages(&mut world);
                assert_eq!(messages.len(), 2, "{messages:?}");
                assert_eq!(messages[0]["method"], "notifications/progress");
                assert_eq!(messages[1], serde_json::json!({"jsonrpc":"2.0","id":7,"result":{"done":true}}));
            }
        }
    }
}

#[test]
fn no_session_is_ever_of_a_revision_without_sessions() {
    let mut world = World::with(legacy(1));
    let carried = Carried::connect_to(&mut world, 0);
    world.client(carried.stream).initializing = true;
    carried.post(&mut world, &World::initialize_body("2026-07-28"));
    assert_eq!(carried.messages(&mut world)[0]["result"]["protocolVersion"], "2025-11-25");
    let field = "MCP-Protocol-Version: 2026-07-28\r\n";
    assert_eq!(carried.exchange_on(&mut world, 0, field, &request("2", "ping")).status, 400);
    let claim = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    assert_eq!(carried.exchange(&mut world, claim).status, 400);
    let field = "MCP-Protocol-Version: 2025-11-25\r\n";
    assert_eq!(carried.exchange_on(&mut world, 0, field, &request("2", "ping")).status, 202);
    assert_eq!(carried.messages(&mut world)[0]["id"], 2);
}

#[test]
fn nothing_reaches_the_backend_before_initialize_and_that_comes_once() {
    let mut world = World::with(legacy(1));
    world.answers_initialize = false;
    let carried = Carried::connect_to(&mut world, 0);
    assert_eq!(carried.exchange(&mut world, &request("1", "tools/list")).status, 400);
    assert_eq!(carried.exchange(&mut world, &notification("notifications/initialized")).status, 400);
    carried.post(&mut world, &World::initialize_body("2024-11-05"));
    let (shard, initialize) = world.take_call();
    assert_eq!(carried.exchange(&mut world, &request("2", "tools/list")).status, 400, "not answered yet");
    assert_eq!(carried.exchange(&mut world, &World::initialize_body("2024-11-05")).status, 400);
    assert!(world.calls.is_empty() && world.initialized.is_empty());
    world.answer(shard, initialize.key, r#"{"protocolVersion":"2024-11-05"}"#);
    assert_eq!(carried.messages(&mut world)[0]["id"], 1);
    assert_eq!(carried.exchange(&mut world, &World::initialize_body("2024-11-05")).status, 400);
    carried.post(&mut world, &request("2", "tools/list"));
    assert_eq!(world.take_call().1.method.as_str(), "tools/list");
}

#[test]
fn an_initialize_that_fails_is_answered_and_ends_the_session() {
    for refuse in [false, true] {
        let mut world = World::with(legacy(1));
        world.answers_initialize = false;
        let carried = Carried::connect_to(&mut world, 0);
        carried.post(&mut world, &World::initialize_body("2024-11-05"));
        let (shard, call) = world.take_call();
        match refuse {
            true => world.tell(shard, Tell::Refuse(call.key)),
            false => world.fail(shard, call.key, jsonrpc::RpcError::internal_error()),
        }
        assert!(carried.messages(&mut world)[0]["error"].is_object());
        assert_eq!(carried.exchange(&mut world, &request("1", "ping")).status, 404);
        world.assert_no_session_left();
    }
}

#[test]
fn what_the_server_says_unasked_and_asks_goes_to_the_stream_and_answers_come_back() {
    let mut world = World::with(legacy(1));
    let carried = Carried::connect_to(&mut world, 0);
    world.client(carried.stream).initializing = true;
    let capable = World::initialize_body("2024-11-05")
        .replace(r#""capabilities":{}"#, r#""capabilities":{"sampling":{}}"#);
    carried.post(&mut world, &capable);
    carried.post(&mut world, &notification("notifications/initialized"));
    let (shard, session) = world.session_of(carried.stream);
    carried.messages(&mut world);
    let (_, call) = carried.begin(&mut world, "2");
    for (id, call) in [(5, None), (6, Some(call.key))] {
        world.tell(
            shard,
            Tell::Request(ServerRequest {
                id: ServerRequestId(id),
                session,
                call,
                method: ServerMethod::CreateMessage,
                params: Some(Bytes::from_static(b"{}")),
                timeout_ms: 1_000,
            }),
        );
        let asked = carried.messages(&mut world);
        assert_eq!((&asked[0]["method"], &asked[0]["id"]), (&"sampling/createMessage".into(), &id.into()));
        carried.post(&mut world, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        assert!(world.told.pop().expect("the backend hears").contains("Answered"));
    }
    world.tell(shard, Tell::Announce(session, other("for one")));
    let payload = sse::payload(&jsonrpc::notification("notifications/tools/list_changed", None));
    world.shards[shard].broadcast(Announcement { kind: NotificationKind::ToolsListChanged, payload });
    world.settle();
    let said = carried.messages(&mut world);
    assert_eq!(said[0]["params"]["text"], "for one");
    assert_eq!(said[1]["method"], "notifications/tools/list_changed");
}

#[test]
fn a_call_is_cancelled_by_its_client_and_by_its_deadline() {
    let mut world = World::with(CoreConfig { request_timeout_ms: 5_000, ..legacy(1) });
    let carried = Carried::open(&mut world);
    let (_, cancelled) = carried.begin(&mut world, "8");
    carried.post(&mut world, &crate::world::ask::cancellation("8"));
    assert_eq!(world.cancelled, [cancelled.key]);
    assert!(carried.messages(&mut world).is_empty(), "a cancelled call has no answer");
    let (_, late) = carried.begin(&mut world, "9");
    world.advance(6_000);
    assert_eq!(world.cancelled, [cancelled.key, late.key]);
    let messages = carried.messages(&mut world);
    assert!(messages[0]["id"] == 9 && messages[0]["error"].is_object(), "{messages:?}");
}

// --- Requests that are wrong --------------------------------------------------------------------

#[test]
fn wrong_posts_are_refused_with_the_status_for_it() {
    let mut world = World::with(legacy(2));
    let carried = Carried::open(&mut world);
    let ping = request("1", "ping");
    for query in ["", "?", "?session=x", "?sessionid=x"] {
        let response = world.exchange_alone(post(&format!("/messages{query}"), "", &ping));
        assert_eq!(response.status, 400, "{query}");
    }
    let foreign = carried.uri.replace(&carried.id()[carried.id().len() - 4..], "AAAA");
    for uri in ["/messages?sessionId=", "/messages?sessionId=x", &foreign] {
        assert_eq!(world.exchange_alone(post(uri, "", &ping)).status, 404, "{uri}");
        assert_eq!(world.exchange_alone(post(uri, "", "{")).status, 404, "the session first: {uri}");
    }
    for body in ["{", "7", r#"{"jsonrpc":"2.0"}"#] {
        assert_eq!(carried.exchange(&mut world, body).status, 400, "{body}");
    }
    assert_eq!(carried.exchange(&mut world, &format!("[{ping}]")).status, 400, "no batches");
    let text = post(&carried.uri, "", &ping).replace("application/json", "text/plain");
    assert_eq!(world.exchange_alone(text).status, 415);
    let head = post(&carried.uri, "", "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    assert_eq!(world.exchange_alone(head + &chunked(&ping, 3)).status, 202, "in chunks");
    let also = post(&format!("/messages?a=b&sessionId={}", carried.id()), "Accept: text/plain\r\n", &ping);
    assert_eq!(world.exchange_alone(also).status, 202, "a POST of which nothing is accepted but the status");
    assert_eq!(carried.messages(&mut world).len(), 2);
}

#[test]
fn each_path_has_its_methods_and_neither_is_there_when_it_is_off() {
    let mut world = World::with(legacy(1));
    for (method, path, allowed) in [
        ("POST", "/sse", "GET, OPTIONS"),
        ("DELETE", "/sse", "GET, OPTIONS"),
        ("HEAD", "/sse", "GET, OPTIONS"),
        ("GET", "/messages", "POST, OPTIONS"),
        ("DELETE", "/messages?sessionId=x", "POST, OPTIONS"),
        ("HEAD", "/messages", "POST, OPTIONS"),
    ] {
        let request = get(path, "Content-Length: 0\r\n").replacen("GET", method, 1);
        let bytes = {
            let client = world.connect();
            world.send(client, request);
            world.client(client).take_text()
        };
        assert!(bytes.starts_with("HTTP/1.1 405 "), "{method} {path}: {bytes}");
        assert!(
            bytes.to_ascii_lowercase().contains(&format!("allow: {allowed}\r\n").to_ascii_lowercase()),
            "{bytes}"
        );
    }
    let json_only = get("/sse", "").replace("text/event-stream", "application/json");
    assert_eq!(world.exchange_alone(json_only).status, 406);
    assert_eq!(world.exchange_alone(get("/sse", "MCP-Protocol-Version: 2026-07-28\r\n")).status, 400);
    world.assert_no_session_left();
    let mut off = World::with(config(1));
    for path in ["/sse", "/messages"] {
        assert_eq!(off.exchange_alone(get(path, "")).status, 404);
        assert_eq!(off.exchange_alone(post(path, "", &World::initialize_body("2024-11-05"))).status, 404);
    }
}

#[test]
fn origins_are_checked_and_told_on_both_paths() {
    let mut world = World::with(legacy(1));
    let carried = Carried::open(&mut world);
    let evil = "Origin: http://evil.example\r\n";
    assert_eq!(world.exchange_alone(get("/sse", evil)).status, 403);
    assert_eq!(carried.exchange_on(&mut world, 0, evil, &request("1", "ping")).status, 403);
    let rebound = get("/sse", "").replace("localhost", "evil.example");
    assert_eq!(world.exchange_alone(rebound).status, 403);
    let page = "Origin: http://localhost:3000\r\n";
    let allowed = |response: &Response| {
        assert_eq!(response.field("access-control-allow-origin"), Some("http://localhost:3000"));
    };
    let head = world.exchange_alone(get("/sse", page));
    assert_eq!(head.status, 200);
    allowed(&head);
    let response = carried.exchange_on(&mut world, 0, page, &request("1", "ping"));
    assert_eq!(response.status, 202);
    allowed(&response);
    for path in ["/sse", "/messages?sessionId=x"] {
        let fields = format!("{page}Access-Control-Request-Method: POST\r\n");
        let response = world.exchange_alone(get(path, &fields).replacen("GET", "OPTIONS", 1));
        assert_eq!(response.status, 204, "{path}");
        allowed(&response);
    }
}

#[test]
fn sessions_are_found_by_their_own_transport_only() {
    let mut world = World::with(legacy(1));
    let carried = Carried::open(&mut world);
    let field = format!("Mcp-Session-Id: {}\r\n", carried.id());
    assert_eq!(world.exchange_alone(get("/mcp", &field)).status, 404);
    let fields = format!("{field}Accept: */*\r\n");
    assert_eq!(world.exchange_alone(post("/mcp", &fields, &request("1", "ping"))).status, 404);
    assert_eq!(world.exchange_alone(get("/mcp", &field).replacen("GET", "DELETE", 1)).status, 404);
    let streamable = world.open("2025-11-25");
    let id = world.client(streamable).session.clone().unwrap();
    let uri = format!("/messages?sessionId={id}");
    assert_eq!(world.exchange_alone(post(&uri, "", &request("1", "ping"))).status, 404);
    assert!(world.is_alive(streamable));
    assert_eq!(carried.exchange(&mut world, &request("1", "ping")).status, 202);
}

// --- Ends ---------------------------------------------------------------------------------------

#[test]
fn the_end_of_the_stream_is_the_end_of_the_session() {
    for orderly in [true, false] {
        let mut world = World::with(legacy(1));
        let carried = Carried::open(&mut world);
        let (shard, call) = carried.begin(&mut world, "1");
        match orderly {
            true => world.half_close(carried.stream),
            false => world.reset(carried.stream),
        }
        assert_eq!(carried.exchange(&mut world, &request("2", "ping")).status, 404, "at once");
        world.progress(shard, call.key, 1);
        world.advance(100);
        assert_eq!(world.cancelled, [call.key]);
        assert_eq!(world.ended.len(), 1);
        world.assert_no_session_left();
        assert_eq!(world.counted("sessions_severed"), 1);
        world.answer(shard, call.key, "{}");
    }
}

#[test]
fn a_session_that_does_not_go_on_with_the_handshake_ends_with_its_stream() {
    for initialized in [false, true] {
        let mut world = World::with(CoreConfig { handshake_timeout_ms: 3_000, ..legacy(1) });
        let carried = Carried::connect_to(&mut world, 0);
        if initialized {
            world.client(carried.stream).initializing = true;
            carried.post(&mut world, &World::initialize_body("2024-11-05"));
        }
        world.advance(2_500);
        assert_eq!(world.census.sessions(), 1);
        world.advance(1_000);
        assert!(world.response_is_over(carried.stream));
        assert_eq!(world.counted("sessions_handshake_expired"), 1);
        assert_eq!(world.ended.len(), usize::from(initialized), "the backend hears of what it has met");
        world.assert_no_session_left();
    }
}

#[test]
fn the_backend_does_not_hear_of_streams_that_come_and_go() {
    let mut world = World::with(legacy(1));
    let carried = Carried::connect_to(&mut world, 0);
    world.reset(carried.stream);
    world.advance(100);
    world.assert_no_session_left();
    assert!(world.ended.is_empty());
}

#[test]
fn a_stream_keeps_its_session_and_gets_comments() {
    let mut world = World::with(CoreConfig { session_idle_timeout_ms: 10_000, ..legacy(1) });
    let carried = Carried::open(&mut world);
    world.advance(120_000);
    let events = world.events(carried.stream);
    assert!(events.len() > 3 && events.iter().all(Event::is_keep_alive), "{events:?}");
    assert_eq!(carried.exchange(&mut world, &request("1", "ping")).status, 202);
    let (shard, session) = world.session_of(carried.stream);
    world.tell(shard, Tell::EndSession(session));
    assert!(world.response_is_over(carried.stream));
    world.assert_no_session_left();
}

#[test]
fn a_reader_that_stalls_loses_its_session_and_holds_up_no_post() {
    let mut world = World::with(legacy(1));
    let carried = Carried::open(&mut world);
    world.stall(carried.stream);
    let text = "x".repeat(MESSAGE_BYTES);
    let mut posted = 0;
    while world.counted("connections_overflowed") == 0 {
        let (shard, call) = carried.begin(&mut world, "1");
        world.answer(shard, call.key, &format!(r#"{{"text":"{text}"}}"#));
        world.advance(50);
        posted += 1;
        assert!(posted < 100, "what waits is bounded");
    }
    assert_eq!(world.client(carried.stream).ending, Some(Ending::Cut));
    assert_eq!(carried.exchange(&mut world, &request("2", "ping")).status, 404);
    world.advance(100);
    world.assert_no_session_left();
}

#[test]
fn small_answers_that_nobody_reads_are_bounded_too() {
    let mut world = World::with(CoreConfig { write_buffer_bytes: 1 << 30, ..legacy(1) });
    let carried = Carried::open(&mut world);
    world.stall(carried.stream);
    let poster = world.connect();
    let mut pings = 0;
    while world.counted("connections_overflowed") == 0 {
        world.send(poster, post(&carried.uri, "", &request("1", "ping")));
        pings += 1;
        assert!(pings < 3_000, "what waits is bounded");
    }
}

#[test]
fn a_burst_of_answers_is_not_a_stalled_reader_and_none_is_lost() {
    let mut world = World::with(legacy(1));
    let carried = Carried::open(&mut world);
    let calls: Vec<_> = (0..200).map(|id| carried.begin(&mut world, &id.to_string())).collect();
    let text = "x".repeat(MESSAGE_BYTES);
    world.client(carried.stream).window = 1_000;
    for (shard, call) in calls {
        for _ in 0..3 {
            world.progress(shard, call.key, 1);
        }
        world.answer(shard, call.key, &format!(r#"{{"text":"{text}"}}"#));
    }
    world.open_window(carried.stream, usize::MAX);
    let messages = carried.messages(&mut world);
    let answered: Vec<_> = messages.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert_eq!(answered, (0..200).collect::<Vec<_>>(), "every response, in order");
    assert!(world.counted("messages_dropped") > 0, "progress went for them");
}

// --- Bounds, stops and admission ----------------------------------------------------------------

#[test]
fn sessions_count_and_are_refused_like_any_other() {
    let mut world = World::with(CoreConfig { sessions_max: 1, ..legacy(1) });
    let carried = Carried::connect_to(&mut world, 0);
    let refused = world.exchange_alone(get("/sse", ""));
    assert_eq!(refused.status, 503);
    assert!(refused.field("retry-after").is_some());
    let client = world.connect();
    world.post(client, &World::initialize_body("2025-11-25"));
    assert_eq!(world.response(client).status, 503, "the same places");
    world.reset(carried.stream);
    world.advance(100);
    Carried::connect_to(&mut world, 0);
    let mut short = World::with(CoreConfig { memory_bytes_max: 1, ..legacy(1) });
    assert_eq!(short.exchange_alone(get("/sse", "")).status, 503);
}

#[test]
fn a_stop_waits_for_calls_and_ends_streams() {
    let mut world = World::with(legacy(1));
    let idle = Carried::open(&mut world);
    let busy = Carried::open(&mut world);
    let (shard, call) = busy.begin(&mut world, "1");
    world.drain(0);
    world.settle();
    assert!(world.response_is_over(idle.stream), "nothing runs there");
    assert_eq!(world.exchange_alone(get("/sse", "")).status, 503);
    assert!(!world.shards[0].all_are_drained());
    let asked = busy.exchange(&mut world, &request("2", "ping"));
    assert_eq!(asked.status, 202, "a session that is known is served");
    assert_eq!(busy.messages(&mut world)[0]["id"], 2);
    world.answer(shard, call.key, r#"{"late":true}"#);
    let text = world.client(busy.stream).take_text();
    assert!(text.contains("late") && text.ends_with("0\r\n\r\n"), "{text}");
    assert!(world.shards[0].all_are_drained());
    world.assert_no_session_left();
}

#[test]
fn a_session_is_its_owners_and_ends_with_the_token() {
    let line = |name: &str| {
        let hex: String = Digest::of(name.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name} sha256:{hex}\n")
    };
    let rules = |names: &[&str]| {
        let text: String = names.iter().map(|name| line(name)).collect();
        Arc::new(Authenticator::new(Scheme::Tokens(Tokens::parse(&text).unwrap()), Resource::default()))
    };
    let bearer = |name: &str| format!("Authorization: Bearer {name}\r\n");
    let (ann, bob) = (bearer("ann"), bearer("bob"));
    let mut world = World::with(CoreConfig { auth: Some(rules(&["ann", "bob"])), ..legacy(2) });
    assert_eq!(world.exchange_alone(get("/sse", "")).status, 401);
    let carried = Carried::connect_with(&mut world, 1, &ann);
    let ping = World::initialize_body("2024-11-05");
    assert_eq!(carried.exchange_on(&mut world, 0, "", &ping).status, 401);
    assert_eq!(carried.exchange_on(&mut world, 0, &bob, &ping).status, 404);
    world.client(carried.stream).initializing = true;
    assert_eq!(carried.exchange_on(&mut world, 0, &ann, &ping).status, 202);
    assert_eq!(carried.messages(&mut world).len(), 1);
    for shard in &mut world.shards {
        shard.reauthorize(rules(&["bob"]));
    }
    world.settle();
    assert!(world.response_is_over(carried.stream));
    world.assert_no_session_left();
}
