//! Sessions: how they begin, what their ids are, who may use them, how long they live, and how they end.

use crate::world::{
    World,
    ask::{bodiless, cancellation, chunked, notification, post, post_head, request},
    client::ClientId,
    config, http, other,
};
use moorline::core::{
    Ending, LogLevel, Tell,
    config::{CoreConfig, ResponseMode},
    jsonrpc::RpcError,
};
use std::collections::HashSet;

const MINUTE_MS: u64 = 60_000;

fn ping() -> String {
    request("1", "ping")
}

/// The reply to an `initialize` that asks for that revision on a connection of its own.
fn initialize(world: &mut World, fields: &str, revision: &str) -> crate::world::http::Response {
    world.exchange_alone(post(fields, &World::initialize_body(revision)))
}

// --- Beginning ----------------------------------------------------------------------------------

#[test]
fn versions_are_negotiated_never_refused() {
    let cases = [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1900-01-01", "2025-11-25"),
        ("not-a-version", "2025-11-25"),
        ("", "2025-11-25"),
    ];
    for (asked, answered) in cases {
        for header in ["", "MCP-Protocol-Version: 2025-03-26\r\n", "MCP-Protocol-Version: 2025-11-25\r\n"] {
            let reply = initialize(&mut World::new(), header, asked);
            assert_eq!(reply.status, 200, "{asked} {header:?}");
            assert_eq!(reply.json()["result"]["protocolVersion"], answered, "{asked}");
            assert!(reply.field("mcp-session-id").is_some());
        }
    }
}

#[test]
fn initialize_is_validated_before_anything_is_allocated() {
    let with = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":"i","method":"initialize"{params}}}"#);
    let info = r#""clientInfo":{"name":"c","version":"1"}"#;
    let cases = [
        (-32602, with("")),
        (-32602, with(r#","params":{}"#)),
        (-32602, with(r#","params":[]"#)),
        (-32602, with(&format!(r#","params":{{"protocolVersion":7,"capabilities":{{}},{info}}}"#))),
        (-32602, with(&format!(r#","params":{{"protocolVersion":"2025-06-18",{info}}}"#))),
        (-32602, with(r#","params":{"protocolVersion":"2025-06-18","capabilities":{}}"#)),
    ];
    let mut world = World::new();
    for (code, body) in cases {
        let reply = world.exchange_alone(post("", &body));
        assert_eq!((reply.status, reply.code()), (400, code), "{body}");
        assert_eq!((reply.json()["id"].as_str(), reply.field("mcp-session-id")), (Some("i"), None));
    }
    // As a notification, or by any other name, it opens nothing.
    for body in [notification("initialize"), request("1", "Initialize"), request("1", "tools/list")] {
        assert_eq!(world.exchange_alone(post("", &body)).status, 400, "{body}");
    }
    let foreign = post("Origin: https://evil.example\r\n", &World::initialize_body("2025-06-18"));
    assert_eq!(world.exchange_alone(foreign).status, 403);
    assert_eq!(world.counted("sessions"), 0);
    assert!(world.calls.is_empty());
    world.assert_no_session_left();
}

#[test]
fn initialize_with_a_dead_id_opens_a_new_session() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let deleted = world.session_field(client);
    world.delete(client);
    let foreign = deleted.replacen("00", "ff", 1);
    let fields = [&deleted, &foreign, "Mcp-Session-Id: nonsense\r\n", "Mcp-Session-Id: \r\n"];
    for (count, field) in (1..).zip(fields) {
        let reply = initialize(&mut world, field, "2025-06-18");
        assert_eq!(reply.status, 200, "{field:?}");
        let id = reply.field("mcp-session-id").unwrap();
        assert!(!field.contains(id));
        assert_eq!(world.census.sessions(), count);
    }
}

#[test]
fn initialize_with_a_live_id_is_refused_and_the_session_untouched() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    let field = world.session_field(client);
    let reply = initialize(&mut world, &field, "2025-06-18");
    assert_eq!((reply.status, reply.code(), reply.field("mcp-session-id")), (400, -32600, None));
    assert_eq!(world.census.sessions(), 1);
    world.announce(client, "still there");
    assert_eq!(world.texts(listener), ["still there"]);
}

#[test]
fn a_second_initialize_on_a_connection_opens_another_session() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let first = world.session_field(client);
    let reply = world.exchange(client, post("", &World::initialize_body("2025-03-26")));
    let second = format!("Mcp-Session-Id: {}\r\n", reply.field("mcp-session-id").unwrap());
    assert_ne!(first, second);
    for field in [first, second] {
        assert_eq!(world.exchange(client, post(&field, &ping())).status, 200, "both, on one connection");
    }
}

#[test]
fn a_session_that_the_backend_refuses_never_was() {
    for response_mode in [ResponseMode::Auto, ResponseMode::Sse] {
        for silent_ms in [0, 2_000] {
            let mut world = World::with(CoreConfig { response_mode, ..config(1) });
            world.answers_initialize = false;
            let client = world.connect();
            world.send(client, post("", &World::initialize_body("2025-06-18")));
            world.advance(silent_ms);
            let (shard, asked) = world.take_call();
            world.fail(shard, asked.key, RpcError::internal_error());
            let reply = world.response(client);
            let error = if reply.is_stream() { reply.messages().remove(0) } else { reply.json() };
            assert_eq!((reply.status, reply.complete), (200, true));
            assert_eq!(error["error"]["code"], -32603);
            if silent_ms == 0 {
                assert_eq!(reply.field("mcp-session-id"), None, "no id of a session that is none");
            }
            assert_eq!(world.ended, [asked.session.unwrap()]);
            world.assert_no_session_left();
        }
    }
}

#[test]
fn a_session_can_be_used_only_after_its_id_was_told() {
    let mut world = World::new();
    world.answers_initialize = false;
    let client = world.connect();
    world.send(client, post("", &World::initialize_body("2025-06-18")));
    let (shard, asked) = world.take_call();
    world.tell(shard, Tell::Announce(asked.session.unwrap(), other("early")));
    world.answer(shard, asked.key, &greeting("2025-06-18"));
    let id = world.response(client).field("mcp-session-id").unwrap().to_owned();
    world.client(client).session = Some(id);
    let listener = world.join(client);
    world.get(listener);
    let texts: Vec<_> = world.response(listener).events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts, ["early"], "what was said before waits");
}

/// The result of an `initialize`.
fn greeting(revision: &str) -> String {
    format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{{}},"serverInfo":{{"name":"w","version":"1"}}}}"#
    )
}

#[test]
fn a_session_is_of_the_revision_that_the_backend_answers_with() {
    // Only 2025-11-25 is primed, and only 2025-03-26 has batches.
    for (answered, primes) in [("2025-11-25", true), ("2025-06-18", false), ("2024-11-05", false)] {
        let mut world = World::new();
        world.answers_initialize = false;
        let client = world.connect();
        world.send(client, post("", &World::initialize_body("2025-11-25")));
        let (shard, asked) = world.take_call();
        world.answer(shard, asked.key, &greeting(answered));
        let reply = world.response(client);
        assert_eq!(reply.json()["result"]["protocolVersion"], answered);
        world.client(client).session = reply.field("mcp-session-id").map(str::to_owned);
        let listener = world.join(client);
        world.get(listener);
        let is_primed = world.response(listener).events().iter().any(|event| event.id.is_some());
        assert_eq!(is_primed, primes, "{answered}");
    }
}

#[test]
fn a_backend_of_an_unknown_revision_makes_no_session() {
    for result in ["{}", &greeting("2031-01-01"), r#"{"protocolVersion":7}"#, "[]"] {
        let mut world = World::new();
        world.answers_initialize = false;
        let client = world.connect();
        world.send(client, post("", &World::initialize_body("2025-11-25")));
        let (shard, asked) = world.take_call();
        world.answer(shard, asked.key, result);
        let reply = world.response(client);
        assert_eq!((reply.status, reply.json()["error"]["code"].as_i64()), (200, Some(-32603)), "{result}");
        assert_eq!(reply.field("mcp-session-id"), None);
        world.assert_no_session_left();
    }
}

#[test]
fn a_backend_without_room_is_503_with_retry_after() {
    let mut world = World::new();
    world.answers_initialize = false;
    let client = world.connect();
    world.send(client, post("", &World::initialize_body("2025-11-25")));
    let (shard, asked) = world.take_call();
    world.tell(shard, Tell::Refuse(asked.key));
    let reply = world.response(client);
    assert_eq!(
        (reply.status, reply.field("retry-after"), reply.field("mcp-session-id")),
        (503, Some("5"), None)
    );
    assert_eq!(world.ended, [asked.session.unwrap()]);
    world.assert_no_session_left();
}

#[test]
fn a_backend_without_room_is_an_error_once_the_reply_is_a_stream() {
    let mut world = World::new();
    world.answers_initialize = false;
    let client = world.connect();
    world.send(client, post("", &World::initialize_body("2025-11-25")));
    world.advance(2_000);
    let (shard, asked) = world.take_call();
    world.tell(shard, Tell::Refuse(asked.key));
    let reply = world.response(client);
    assert_eq!((reply.status, reply.complete), (200, true));
    assert_eq!(reply.messages()[0]["error"]["code"], -32000);
    world.assert_no_session_left();
}

#[test]
fn a_session_ends_when_its_backend_says_so() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let listener = world.join(client);
    world.get(listener);
    let (_, session) = world.session_of(client);
    world.tell(0, Tell::EndSession(session));
    assert!(world.response(listener).complete);
    assert_eq!(world.ended, [session]);
    assert_eq!(world.ask_for(client, &ping()).status, 404);
    world.tell(0, Tell::EndSession(session));
    world.assert_no_session_left();
}

#[test]
fn the_backend_learns_of_log_levels_and_of_initialized() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (_, session) = world.session_of(client);
    world.exchange(client, post(&world.session_field(client), &notification("notifications/initialized")));
    assert_eq!(world.initialized.last(), Some(&session));
    for (level, known) in [("warning", true), ("loud", false)] {
        let params = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        );
        let reply = world.ask_for(client, &params);
        assert_eq!(reply.json()["error"].is_null(), known);
    }
    assert_eq!(world.log_levels, [(session, LogLevel::Warning)]);
}

// --- Ids ----------------------------------------------------------------------------------------

#[test]
fn ids_are_visible_ascii_and_differ_in_every_part_but_the_place() {
    let mut world = World::with(config(4));
    let mut seen = HashSet::new();
    for index in 0..500 {
        let client = world.open_on(index % 4, "2025-06-18");
        let id = world.client(client).session.clone().unwrap();
        assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
        assert!(id.len() >= 32, "128 random bits at least");
        assert!(seen.insert(id[id.len() - 32..].to_owned()), "{id}");
        if index % 2 == 0 {
            world.delete(client); // Slots are used again.
        }
        world.reset(client);
    }
}

#[test]
fn a_reused_place_does_not_answer_to_its_former_id() {
    let mut world = World::new();
    let former = world.open("2025-06-18");
    world.delete(former);
    assert_eq!(world.response(former).status, 204);
    let latter = world.open("2025-06-18");
    let (a, b) = (world.session_field(former), world.session_field(latter));
    assert_eq!(a[..26], b[..26], "the same shard and slot");
    assert_eq!(world.ask_for(former, &ping()).status, 404);
    assert_eq!(world.ask_for(latter, &ping()).status, 200);
}

#[test]
fn an_id_with_one_wrong_character_is_unknown() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let id = world.client(client).session.clone().unwrap();
    for at in 0..id.len() {
        let mut wrong = id.clone().into_bytes();
        wrong[at] = if wrong[at] == b'3' { b'4' } else { b'3' };
        let field = format!("Mcp-Session-Id: {}\r\n", String::from_utf8(wrong).unwrap());
        assert_eq!(world.exchange(client, post(&field, &ping())).status, 404, "at {at}");
    }
    for wrong in [id.to_uppercase(), format!("{id}0"), id[1..].to_owned(), format!("{id}, {id}")] {
        if wrong != id {
            let field = format!("Mcp-Session-Id: {wrong}\r\n");
            assert_eq!(world.exchange(client, post(&field, &ping())).status, 404, "{wrong}");
        }
    }
}

// --- Missing and unknown ids --------------------------------------------------------------------

#[test]
fn without_an_id_every_method_says_which_field_is_missing() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let requests = [
        post("", &ping()),
        post("", &notification("notifications/initialized")),
        post("", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        bodiless("GET", "Accept: text/event-stream\r\n"),
        bodiless("DELETE", ""),
    ];
    for request in requests {
        let reply = world.exchange(client, &request);
        assert_eq!(reply.status, 400, "{request}");
        assert!(reply.text().contains("Mcp-Session-Id"), "{}", reply.text());
    }
    assert_eq!(world.ending(client), None);
}

/// Field lines of ids that name no session: never issued, of other shards, deleted, expired.
fn dead_ids(world: &mut World) -> Vec<String> {
    let (deleted, expired) = (world.open("2025-06-18"), world.open("2025-06-18"));
    let (deleted_field, expired_field) = (world.session_field(deleted), world.session_field(expired));
    world.delete(deleted);
    world.advance(31 * MINUTE_MS);
    let foreign = deleted_field.replacen("Id: 00", "Id: 63", 1);
    let digits = "0123456789".repeat(5);
    vec![
        deleted_field,
        expired_field,
        foreign,
        format!("Mcp-Session-Id: {}\r\n", &digits[..42]),
        format!("Mcp-Session-Id: {digits}\r\n"),
        "Mcp-Session-Id: 550e8400-e29b-41d4-a716-446655440000\r\n".into(),
        "Mcp-Session-Id: \u{e9}\r\n".into(),
    ]
}

#[test]
fn an_id_of_no_session_gets_the_same_404_everywhere() {
    let mut world = World::new();
    let mut bodies = HashSet::new();
    for field in dead_ids(&mut world) {
        let requests = [
            post(&field, &ping()),
            post(&field, &notification("notifications/initialized")),
            post(&field, &cancellation("1")),
            post(&field, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            bodiless("GET", &format!("{field}Accept: text/event-stream\r\n")),
            bodiless("GET", &format!("{field}Accept: text/event-stream\r\nLast-Event-ID: aaaaaa-l1-1\r\n")),
            bodiless("DELETE", &field),
        ];
        let client = world.connect();
        for request in requests {
            let reply = world.exchange(client, &request);
            assert_eq!(reply.status, 404, "{request}");
            bodies.insert(reply.text());
        }
        assert_eq!(world.ending(client), None, "the connection can initialize again");
    }
    assert_eq!(bodies.len(), 1, "it tells nothing about why: {bodies:?}");
}

#[test]
fn no_other_fault_of_a_request_hides_the_404() {
    let mut world = World::with(CoreConfig { body_bytes_max: 500, ..config(1) });
    let start = "POST /mcp HTTP/1.1\r\nHost: localhost\r\n";
    let json = "Content-Type: application/json\r\n";
    for field in dead_ids(&mut world) {
        let requests = [
            format!("{start}{field}Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"),
            format!("{start}{field}{json}Accept: image/png\r\nContent-Length: 0\r\n\r\n"),
            format!("{start}{field}{json}Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"),
            format!("{start}{field}{json}Expect: tea\r\nContent-Length: 0\r\n\r\n"),
            format!("{start}{field}{json}Content-Length: 501\r\n\r\n"),
            format!("{start}{field}{json}Content-Length: 501\r\nExpect: 100-continue\r\n\r\n"),
            post_head(&format!("{field}Transfer-Encoding: chunked\r\n")) + &chunked(&" ".repeat(600), 60),
            post_head(&format!("{field}Transfer-Encoding: chunked\r\n")) + "nonsense\r\n",
            post(&format!("{field}MCP-Protocol-Version: 1900-01-01\r\n"), &ping()),
            post(&field, ""),
            post(&field, "{"),
            post(&field, &"[".repeat(400)),
            post(&field, &request("null", "ping")),
            post(&field, &format!("[{},{}]", ping(), ping())),
            post(&field, "[]"),
            post(&field, r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"x"}}"#),
            bodiless("GET", &format!("{field}Accept: application/json\r\n")),
            bodiless("GET", &format!("{field}Accept: text/event-stream\r\nLast-Event-ID: x\r\n")),
            bodiless("GET", &format!("{field}MCP-Protocol-Version: x\r\n")),
            bodiless("DELETE", &format!("{field}MCP-Protocol-Version: x\r\n")),
            bodiless("DELETE", &format!("{field}Expect: tea\r\n")),
        ];
        for request in requests {
            let reply = world.exchange_alone(&request);
            assert_eq!(reply.status, 404, "{}", request.get(..300).unwrap_or(&request));
        }
    }
}

#[test]
fn requests_that_name_no_session_are_counted() {
    let mut world = World::new();
    let client = world.connect();
    for (count, request) in
        (1..).zip([post("Mcp-Session-Id: x\r\n", &ping()), bodiless("DELETE", "Mcp-Session-Id: x\r\n")])
    {
        world.exchange(client, request);
        assert_eq!(world.counted("sessions_unknown"), count);
    }
    world.exchange(client, bodiless("DELETE", ""));
    assert_eq!(world.counted("sessions_unknown"), 2, "a missing id is another matter");
}

// --- The version header -------------------------------------------------------------------------

#[test]
fn an_unserved_version_is_400_before_anything_is_done() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let session = world.session_field(client);
    let repeated = "2025-06-18\r\nMCP-Protocol-Version: 2025-06-18";
    for version in ["1900-01-01", "not-a-version", "", "2025-06-18x", "2025-06-18, 2025-03-26", repeated] {
        let fields = format!("{session}MCP-Protocol-Version: {version}\r\nAccept: text/event-stream\r\n");
        let requests = [
            post(&fields, &request("1", "tools/call")).replace("Accept: */*\r\n", ""),
            bodiless("GET", &fields),
            bodiless("DELETE", &fields),
        ];
        for request in requests {
            let reply = world.exchange_alone(&request);
            assert_eq!(reply.status, 400, "{request}");
        }
    }
    assert!(world.calls.is_empty() && world.is_alive(client));
    assert_eq!(world.shards[0].population().streams, 0);
}

#[test]
fn a_served_version_other_than_the_negotiated_one_is_accepted() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        world.post_with(client, &format!("MCP-Protocol-Version: {version}\r\n"), &format!("[{}]", ping()));
        assert_eq!(world.response(client).status, 200, "the session's version decides on batches: {version}");
    }
}

// --- Handshake ----------------------------------------------------------------------------------

#[test]
fn a_session_whose_client_does_not_come_back_is_dropped_after_a_minute() {
    let mut world = World::new();
    let reply = initialize(&mut world, "", "2025-06-18");
    let field = format!("Mcp-Session-Id: {}\r\n", reply.field("mcp-session-id").unwrap());
    world.advance(59_000);
    assert_eq!(world.census.sessions(), 1);
    world.advance(1_020);
    world.assert_no_session_left();
    assert_eq!((world.ended.len(), world.counted("sessions_handshake_expired")), (1, 1));
    assert_eq!(world.exchange_alone(post(&field, &ping())).status, 404);
}

#[test]
fn only_what_is_valid_ends_the_handshake() {
    let accept = "Accept: text/event-stream\r\n";
    type Build = fn(&str, &str) -> String;
    let cases: [(bool, Build); 9] = [
        (true, |session, _| post(session, &notification("notifications/initialized"))),
        (true, |session, _| post(session, &ping())),
        (true, |session, accept| bodiless("GET", &format!("{session}{accept}"))),
        (false, |session, _| post(session, "{")),
        (false, |session, _| post(session, &request("null", "ping"))),
        (false, |session, _| post(session, &format!("[{}]", ping()))),
        (false, |session, _| bodiless("GET", &format!("{session}Accept: image/png\r\n"))),
        (false, |session, accept| bodiless("GET", &format!("{session}{accept}Last-Event-ID: x\r\n"))),
        (false, |session, _| bodiless("PUT", session)),
    ];
    for (index, (valid, build)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        let reply = initialize(&mut world, "", "2025-06-18");
        let field = format!("Mcp-Session-Id: {}\r\n", reply.field("mcp-session-id").unwrap());
        world.advance(30_000);
        world.exchange_alone(build(&field, accept));
        world.advance(31_000);
        assert_eq!(world.census.sessions(), usize::from(valid), "case {index}");
    }
}

#[test]
fn a_slow_initialize_is_answered_and_leaves_the_client_its_minute() {
    for response_mode in [ResponseMode::Json, ResponseMode::Auto] {
        for slow_ms in [59_000, 200_000] {
            let mut world = World::with(CoreConfig { response_mode, ..config(1) });
            world.answers_initialize = false;
            let client = world.connect();
            world.send(client, post("", &World::initialize_body("2025-06-18")));
            world.advance(slow_ms);
            let (shard, asked) = world.take_call();
            world.answer(shard, asked.key, r#"{"protocolVersion":"2025-06-18"}"#);
            let reply = world.response(client);
            assert_eq!((reply.status, reply.complete), (200, true), "{slow_ms}");
            assert!(reply.field("mcp-session-id").is_some());
            world.advance(59_900);
            assert_eq!(world.census.sessions(), 1);
            world.advance(120);
            world.assert_no_session_left();
            assert_eq!(world.counted("sessions_handshake_expired"), 1);
        }
    }
}

#[test]
fn sessions_without_clients_leave_nothing_behind() {
    let mut world = World::new();
    for _ in 0..500 {
        let client = world.connect();
        let reply = world.exchange(client, post("", &World::initialize_body("2025-06-18")));
        assert_eq!(reply.status, 200);
        world.reset(client);
    }
    assert_eq!(world.census.sessions(), 500);
    world.advance(61_000);
    world.assert_no_session_left();
    assert_eq!((world.timers(), world.census.connections()), (0, 0));
}

// --- Idle clock ---------------------------------------------------------------------------------

const IDLE_MS: u64 = 30 * MINUTE_MS;

#[test]
fn a_session_without_activity_is_dropped_after_half_an_hour() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    world.advance(IDLE_MS - 1_000);
    let next = world.join(client);
    assert_eq!(world.ask_for(next, &ping()).status, 200);
    world.advance(IDLE_MS - 1_000);
    assert_eq!(world.census.sessions(), 1, "each request starts the clock anew");
    world.advance(1_020);
    world.assert_no_session_left();
    assert_eq!(world.counted("sessions_idle_expired"), 1);
    let late = world.join(client);
    assert_eq!(world.ask_for(late, &ping()).status, 404);
}

#[test]
fn the_idle_clock_stands_while_a_call_runs_and_starts_with_its_end() {
    for cut in [false, true] {
        let mut world = World::with(CoreConfig { session_idle_timeout_ms: 2_000, ..config(1) });
        let client = world.open("2025-06-18");
        let (shard, asked) = world.begin(client, "1");
        if cut {
            world.reset(client);
        }
        world.advance(600_000);
        assert_eq!(world.census.sessions(), 1, "busy");
        world.answer(shard, asked.key, "{}");
        world.advance(1_900);
        assert_eq!(world.census.sessions(), 1, "the clock starts at the last completion");
        world.advance(120);
        assert_eq!(world.census.sessions(), 0);
    }
}

#[test]
fn the_idle_clock_stands_while_a_stream_is_attached() {
    let mut world = World::with(CoreConfig { session_idle_timeout_ms: 5_000, ..config(1) });
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.reset(client);
    world.advance(10 * MINUTE_MS);
    assert!(world.events(listener).iter().all(|event| event.is_keep_alive()));
    world.announce(client, "hello");
    assert_eq!(world.texts(listener), ["hello"]);
    world.reset(listener);
    world.advance(4_900);
    assert_eq!(world.census.sessions(), 1);
    world.advance(120);
    assert_eq!(world.census.sessions(), 0, "the clock starts when the last stream is gone");
}

#[test]
fn a_stalled_stream_is_no_activity_once_it_is_cut() {
    let mut world = World::with(CoreConfig { session_idle_timeout_ms: 5_000, ..config(1) });
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.stall(listener);
    world.announce(client, "stuck");
    world.advance(40_000);
    assert_eq!(world.census.sessions(), 0);
}

#[test]
fn a_client_that_only_posts_now_and_then_keeps_its_session() {
    let mut world = World::with(CoreConfig { session_idle_timeout_ms: 12_000, ..config(1) });
    let client = world.open("2025-06-18");
    for _ in 0..50 {
        world.advance(10_000);
        assert_eq!(world.ask_for(client, &ping()).status, 200);
    }
}

#[test]
fn refused_requests_are_no_activity() {
    let mut world = World::with(CoreConfig { session_idle_timeout_ms: 12_000, ..config(1) });
    let client = world.open("2025-06-18");
    world.advance(10_000);
    assert_eq!(world.ask_for(client, "{").status, 400);
    world.advance(2_100);
    assert_eq!(world.census.sessions(), 0);
}

// --- Caps ---------------------------------------------------------------------------------------

#[test]
fn at_the_cap_of_sessions_the_newcomer_is_refused_and_nobody_evicted() {
    let mut world = World::with(CoreConfig { sessions_max: 3, ..config(2) });
    let clients: Vec<ClientId> = (0..3).map(|index| world.open_on(index % 2, "2025-06-18")).collect();
    for shard in [0, 1] {
        let newcomer = world.connect_to(shard);
        let reply = world.exchange(newcomer, post("", &World::initialize_body("2025-06-18")));
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("5")));
        assert_eq!((reply.field("mcp-session-id"), reply.code()), (None, -32603));
        assert_eq!(world.ending(newcomer), None, "it may try again on the same connection");
    }
    assert_eq!((world.counted("sessions_refused"), world.census.sessions()), (2, 3));
    assert!(clients.iter().all(|client| world.is_alive(*client)));
    world.delete(clients[0]);
    world.open("2025-06-18");
}

#[test]
fn at_the_cap_of_connections_the_newcomer_is_told_so() {
    let mut world = World::with(CoreConfig { connections_max: 2, ..config(2) });
    let client = world.open("2025-06-18");
    world.connect_to(1);
    for shard in [0, 1] {
        let refusal = String::from_utf8(world.try_connect_to(shard).unwrap_err().to_vec()).unwrap();
        assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("Retry-After: "), "{refusal}");
        let (head, body) = refusal.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len()))
                || head.ends_with(&format!("Content-Length: {}", body.len()))
        );
    }
    assert_eq!(world.counted("connections_refused"), 2);
    world.reset(client);
    world.connect();
    assert_eq!(world.census.connections(), 2);
}

#[test]
fn calls_beyond_the_cap_fail_as_json_rpc_and_cost_nobody_the_session() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    for chunk in 0..16 {
        let poster = world.join(client);
        let ids: Vec<_> = (0..64).map(|id| request(&(chunk * 64 + id).to_string(), "tools/call")).collect();
        world.post(poster, &format!("[{}]", ids.join(",")));
    }
    assert_eq!(world.calls.len(), 1_024);
    for method in ["tools/call", "ping"] {
        let reply = world.ask_for(client, &request(r#""over""#, method));
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
        assert_eq!((reply.json()["id"].as_str(), reply.code() < 0), (Some("over"), true));
    }
    assert_eq!((world.counted("calls_refused"), world.calls.len()), (2, 1_024));
    assert_eq!(world.ask_for(client, &notification("x")).status, 202);
    let (shard, asked) = world.take_call();
    world.answer(shard, asked.key, "{}");
    let (shard, asked) = world.begin(client, "1");
    world.answer(shard, asked.key, "{}");
    assert_eq!(world.response(client).status, 200, "a place was free again");
}

// --- Ends ---------------------------------------------------------------------------------------

#[test]
fn whatever_ends_a_session_ends_all_of_it() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (undecided, streaming, cut) = (world.join(client), world.join(client), world.join(client));
    world.post_with(undecided, "Accept: application/json\r\n", &request("1", "tools/call"));
    world.begin_stream(streaming, "2");
    world.begin_stream(cut, "3");
    world.reset(cut);
    let listeners = [world.listen(client), world.listen(client)];
    world.announce(client, "x");
    assert_eq!(world.events(listeners[0]).len(), 2, "a probe, and the message");

    world.delete(client);
    let reply = world.response(client);
    assert_eq!((reply.status, reply.body.len(), reply.field("content-length")), (204, 0, None));
    assert_eq!(world.response(undecided).status, 404);
    for stream in [streaming, listeners[0], listeners[1]] {
        assert_eq!(world.client(stream).take_text(), "0\r\n\r\n", "a clean end without a response");
    }
    assert_eq!((world.cancelled.len(), world.ended.len()), (3, 1));
    world.assert_no_session_left();
    for survivor in [client, undecided, streaming, listeners[0], listeners[1]] {
        assert_eq!(world.ending(survivor), None, "the connections go on");
        assert_eq!(world.ask_for(survivor, &ping()).status, 404);
        world.get(survivor);
        assert_eq!(world.response(survivor).status, 404);
    }
    world.delete(client);
    assert_eq!(world.response(client).status, 404, "once is enough");
    assert_eq!(world.ended.len(), 1);
}

#[test]
fn a_delete_needs_neither_body_nor_accept() {
    for fields in ["", "Accept: image/png\r\n", "Content-Type: text/plain\r\n", "Content-Length: 0\r\n"] {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let session = world.session_field(client);
        assert_eq!(world.exchange(client, bodiless("DELETE", &format!("{session}{fields}"))).status, 204);
        world.assert_no_session_left();
    }
}

#[test]
fn a_stalled_stream_of_an_ended_session_still_ends_cleanly_when_it_moves_again() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let listener = world.listen(client);
    world.client(listener).window = 5;
    world.announce(client, "in progress");
    world.announce(client, "behind");
    world.delete(client);
    world.open_window(listener, 1 << 20);
    let text = world.client(listener).take_text();
    assert!(text.ends_with("0\r\n\r\n"), "the frame in progress and the last chunk: {text:?}");
    let (content, complete) = crate::world::http::dechunk(text.as_bytes());
    assert!(complete && String::from_utf8(content).unwrap().contains("in progress"));
    world.assert_no_session_left();
}

#[test]
fn a_server_that_stops_serves_the_sessions_it_has_and_says_that_it_closes() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let guests: Vec<ClientId> = (0..4).map(|_| world.join(client)).collect();
    let running = world.join(client);
    let (shard, asked) = world.begin(running, "1");
    for guest in &guests {
        world.send(*guest, "P"); // A head has begun, so they are not idle.
    }
    world.drain(0);
    world.settle();
    assert!(world.is_silent(client), "what is idle may be about to ask");
    let session = world.session_field(client);
    let requests = [
        (200, post(&session, &ping())),
        (202, post(&session, &notification("x"))),
        (404, post("Mcp-Session-Id: x\r\n", &ping())),
        (503, post("", &World::initialize_body("2025-06-18"))),
    ];
    for (guest, (status, request)) in guests.iter().zip(&requests) {
        let reply = world.exchange(*guest, &request[1..]);
        assert_eq!((reply.status, reply.field("connection")), (*status, Some("close")), "{request}");
        assert_eq!(world.ending(*guest), Some(Ending::Orderly));
        assert_eq!(reply.field("retry-after").is_some(), *status == 503);
    }
    world.progress(shard, asked.key, 1);
    world.answer(shard, asked.key, "{}");
    let reply = world.response(running);
    assert!(reply.complete && reply.messages().len() == 2 && reply.field("connection") == Some("close"));
    assert_eq!(world.ending(running), Some(Ending::Orderly));
}

#[test]
fn many_sessions_come_and_go_without_a_trace() {
    let mut world = World::new();
    let client = world.connect();
    for round in 0..300 {
        let reply = world.exchange(client, post("", &World::initialize_body("2025-11-25")));
        world.client(client).session = reply.field("mcp-session-id").map(str::to_owned);
        let listener = world.listen(client);
        let (shard, asked) = world.begin(client, "1");
        world.progress(shard, asked.key, 1);
        if round % 2 == 0 {
            world.answer(shard, asked.key, "{}");
            assert!(world.response(client).complete);
            world.reset(listener);
            world.delete(client);
        } else {
            let other = world.join(client);
            world.delete(other);
            world.reset(other);
            world.reset(listener);
        }
        world.client(client).received.clear();
        world.client(client).session = None;
    }
    world.assert_no_session_left();
    assert_eq!(world.counted("sessions"), world.counted("sessions_deleted"));
    assert_eq!((world.shards[0].population().conns, world.ended.len()), (1, 300));
}

#[test]
fn a_stop_that_waits_no_longer_ends_what_runs_cleanly() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (streaming, undecided) = (world.join(client), world.join(client));
    world.begin_stream(streaming, "1");
    world.begin(undecided, "2");
    world.drain(0);
    world.settle();
    assert!(world.is_silent(streaming) && world.is_silent(undecided), "both may finish");
    world.shards[0].end_sessions();
    world.settle();
    let rest = std::mem::take(&mut world.client(streaming).received);
    let (content, complete) = http::dechunk(&rest);
    assert!(content.is_empty() && complete, "no response, but an end");
    assert_eq!(world.response(undecided).status, 404);
    assert_eq!((world.cancelled.len(), world.ended.len()), (2, 1));
    assert!(world.shards[0].is_drained());
    assert_eq!(world.counted("sessions_stopped"), 1);
}
