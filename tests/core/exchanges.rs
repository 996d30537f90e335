//! Requests without a session: forms of reply, what is said before the response, disconnects, time and bounds.

use crate::world::{
    World,
    ask::{messages, post, request},
    config, other,
    stateless::{body, fields, stateless, tool_call},
};
use bytes::Bytes;
use moorline::core::{
    Call, CallKey, Ending, LogLevel, Notification, NotificationKind, Tell,
    config::{CoreConfig, ResponseMode},
    jsonrpc::{self, RpcError},
};
use serde_json::json;

const DONE: &str = r#"{"resultType":"complete"}"#;

/// A tool call that accepts those forms.
fn accepting(accept: &str) -> String {
    tool_call("1").replace("Accept: */*", &format!("Accept: {accept}"))
}

fn error(code: i32) -> RpcError {
    RpcError { code, message: "no".into(), data: None }
}

fn notify(world: &mut World, (shard, call): &(usize, Call), kind: NotificationKind) {
    let json = jsonrpc::notification("notifications/message", None);
    world.tell(*shard, Tell::Notify(call.key, Notification { kind, json }));
}

/// Nothing without a session is left anywhere.
fn assert_none_left(world: &World) {
    for shard in &world.shards {
        let left = shard.population();
        assert_eq!((left.exchanges, left.attached.exchanges, left.attached.listens), (0, 0, 0), "{left:?}");
        assert!(left.timers <= left.conns, "{left:?}");
    }
}

// --- Forms of reply -----------------------------------------------------------------------------

#[test]
fn a_response_that_comes_first_is_json_in_one_write() {
    let mut world = World::new();
    let client = world.connect();
    for id in ["1", r#""a""#, "-7", r#""\u00e9""#] {
        let (shard, call) = world.begin_exchange(client, &tool_call(id));
        world.answer(shard, call.key, DONE);
        let reply = world.response(client);
        assert_eq!(reply.field("content-type"), Some("application/json"));
        assert_eq!(reply.text(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{DONE}}}"#));
    }
    assert_none_left(&world);
    assert!(world.cancelled.is_empty());
}

#[test]
fn what_comes_before_the_response_makes_the_reply_a_stream_without_ids() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.progress(shard, call.key, 1);
    let head = world.response(client);
    assert!(head.is_stream() && !head.complete);
    assert_eq!(head.field("x-accel-buffering"), Some("no"));
    assert_eq!(head.field("mcp-session-id"), None);
    let first = head.events();
    assert_eq!((first.len(), first[0].id.clone(), first[0].retry.clone()), (1, None, None));
    world.progress(shard, call.key, 2);
    world.answer(shard, call.key, DONE);
    let rest = world.events(client);
    assert!(rest.iter().all(|event| event.id.is_none() && event.retry.is_none()));
    let said = messages(&rest);
    assert_eq!(said[0]["params"]["progress"], 2);
    assert_eq!(said[1], json!({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}));
    assert_eq!(world.ending(client), None, "the connection goes on");
    let (shard, call) = world.begin_exchange(client, &tool_call("2"));
    world.answer(shard, call.key, DONE);
    assert_eq!(world.response(client).status, 200);
    assert_none_left(&world);
}

#[test]
fn a_call_that_is_silent_for_long_gets_a_stream_that_is_kept_alive() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.advance(999);
    assert!(world.is_silent(client));
    world.advance(20);
    assert!(world.response(client).is_stream());
    world.advance(60_000);
    let comments = world.events(client);
    assert!((3..=4).contains(&comments.len()), "{comments:?}");
    assert!(comments.iter().all(|event| event.is_keep_alive()), "{comments:?}");
    world.answer(shard, call.key, DONE);
    assert_eq!(messages(&world.events(client)).len(), 1);
    assert_none_left(&world);
}

#[test]
fn the_form_is_one_the_client_accepts_and_the_operator_wants() {
    for (mode, accept, form) in [
        (ResponseMode::Auto, "application/json", "application/json"),
        (ResponseMode::Auto, "text/event-stream", "text/event-stream"),
        (ResponseMode::Sse, "*/*", "text/event-stream"),
        (ResponseMode::Sse, "application/json", "application/json"),
        (ResponseMode::Json, "*/*", "application/json"),
        (ResponseMode::Json, "text/event-stream", "text/event-stream"),
    ] {
        let mut world = World::with(CoreConfig { response_mode: mode, ..config(1) });
        let client = world.connect();
        let (shard, call) = world.begin_exchange(client, &accepting(accept));
        if form == "application/json" {
            world.progress(shard, call.key, 1);
            assert!(world.is_silent(client), "progress has no place in {form}");
            world.advance(2_000);
        }
        world.answer(shard, call.key, DONE);
        let reply = world.response(client);
        assert_eq!((reply.field("content-type"), reply.complete), (Some(form), true), "{mode:?} {accept}");
        assert_none_left(&world);
    }
}

#[test]
fn a_client_of_http_1_0_gets_a_stream_that_its_connection_ends() {
    let mut world = World::new();
    let client = world.connect();
    let text = accepting("text/event-stream").replace("HTTP/1.1", "HTTP/1.0");
    let (shard, call) = world.begin_exchange(client, &text);
    world.answer(shard, call.key, DONE);
    let reply = world.response(client);
    assert_eq!((reply.field("transfer-encoding"), reply.messages().len()), (None, 1));
    assert_eq!(world.ending(client), Some(Ending::Orderly));
}

// --- Errors -------------------------------------------------------------------------------------

#[test]
fn errors_have_the_status_that_clients_tell_eras_by() {
    let mut world = World::new();
    let client = world.connect();
    for (code, status) in [
        (-32601, 404),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32600, 400),
        (-32700, 400),
        (-32602, 200),
        (-32603, 200),
        (-32000, 200),
        (7, 200),
    ] {
        for accept in ["*/*", "application/json", "text/event-stream"] {
            let (shard, call) = world.begin_exchange(client, &accepting(accept));
            world.fail(shard, call.key, error(code));
            let reply = world.response(client);
            assert_eq!((reply.status, reply.complete), (status, true), "{code} {accept}");
            let json = if reply.is_stream() { reply.messages().remove(0) } else { reply.json() };
            assert_eq!((&json["id"], &json["error"]["code"]), (&json!(1), &json!(code)));
            assert!(status == 200 || !reply.is_stream(), "a status that says something has a body of JSON");
        }
    }
    assert_none_left(&world);
}

#[test]
fn the_data_of_an_error_arrives() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    let data = Some(r#"{"requiredCapabilities":{"sampling":{}}}"#.into());
    world.fail(shard, call.key, RpcError { data, ..error(-32021) });
    assert_eq!(
        world.response(client).json()["error"]["data"]["requiredCapabilities"],
        json!({"sampling":{}})
    );
}

#[test]
fn an_error_after_the_stream_began_is_in_it() {
    for code in [-32601, -32020, -32602, -32603] {
        let mut world = World::new();
        let client = world.connect();
        let (shard, call) = world.begin_exchange(client, &tool_call("1"));
        world.progress(shard, call.key, 1);
        world.fail(shard, call.key, error(code));
        let reply = world.response(client);
        assert_eq!((reply.status, reply.complete), (200, true));
        assert_eq!(reply.messages()[1]["error"]["code"], code);
    }
}

#[test]
fn a_result_over_the_bound_is_an_error_and_so_is_a_message() {
    let mut world = World::with(CoreConfig { message_bytes_max: 200, ..config(1) });
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    let json = Bytes::from(format!(r#"{{"x":"{}"}}"#, "x".repeat(300)));
    world.tell(
        shard,
        Tell::Notify(call.key, Notification { kind: NotificationKind::Other, json: json.clone() }),
    );
    assert!(world.is_silent(client));
    world.tell(shard, Tell::Respond(call.key, Ok(json)));
    assert_eq!(world.response(client).code(), -32603);
    assert_eq!(world.counted("messages_oversized"), 2);
}

// --- What is said before the response -----------------------------------------------------------

#[test]
fn log_messages_are_said_only_if_the_request_asks_for_them_and_from_its_level_on() {
    let levels = [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Emergency];
    for (asked, heard) in [(None, 0), (Some("debug"), 4), (Some("warning"), 2), (Some("emergency"), 1)] {
        let mut world = World::new();
        let client = world.connect();
        let mut text = body("1", "server/discover", "");
        if let Some(level) = asked {
            let member = format!(r#""_meta":{{"io.modelcontextprotocol/logLevel":"{level}","#);
            text = text.replace("\"_meta\":{", &member);
        }
        let call = world.begin_exchange(client, &post(&fields("server/discover", ""), &text));
        for level in levels {
            notify(&mut world, &call, NotificationKind::Log(level));
        }
        world.answer(call.0, call.1.key, DONE);
        let reply = world.response(client);
        assert_eq!(reply.is_stream(), heard > 0, "{asked:?}");
        if heard > 0 {
            assert_eq!(reply.messages().len(), heard + 1, "{asked:?}");
        }
        assert_eq!(world.counted("messages_filtered"), 4 - heard as u64);
    }
}

#[test]
fn only_what_is_about_the_request_is_said_on_its_stream() {
    let mut world = World::new();
    let client = world.connect();
    let call = world.begin_exchange(client, &tool_call("1"));
    for kind in [
        NotificationKind::ToolsListChanged,
        NotificationKind::PromptsListChanged,
        NotificationKind::ResourcesListChanged,
        NotificationKind::ResourceUpdated("u:1".into()),
    ] {
        notify(&mut world, &call, kind);
    }
    world.tell(0, Tell::Broadcast(other("to all")));
    assert!(world.is_silent(client));
    world.answer(call.0, call.1.key, DONE);
    assert!(!world.response(client).is_stream());
}

#[test]
fn progress_tokens_reach_the_backend_as_written() {
    let mut world = World::new();
    let client = world.connect();
    let text =
        body("1", "server/discover", "").replace("\"_meta\":{", r#""_meta":{"progressToken":"t\u0041","#);
    let (_, call) = world.begin_exchange(client, &post(&fields("server/discover", ""), &text));
    assert_eq!(call.progress_token.as_deref(), Some(&br#""t\u0041""#[..]));
    assert!(call.params.is_some_and(|params| params.starts_with(b"{\"_meta\":")));
}

#[test]
fn what_only_sessions_have_the_backend_cannot_do_with_a_request_without_one() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.tell(shard, Tell::CloseStream(call.key, 1_000));
    assert!(world.is_silent(client));
    world.tell(shard, Tell::Subscribe(call.key, "u:1".into()));
    assert_eq!(world.response(client).status, 404);
    let (shard, call) = world.begin_exchange(client, &tool_call("2"));
    world.tell(shard, Tell::Listen(call.key, Default::default()));
    assert_eq!(
        world.response(client).code(),
        -32603,
        "only a listen request is answered with a subscription"
    );
    assert_none_left(&world);
}

// --- Disconnects --------------------------------------------------------------------------------

#[test]
fn a_connection_that_ends_cancels_its_request_at_any_time() {
    for streaming in [false, true] {
        let mut world = World::new();
        let client = world.connect();
        let (shard, call) = world.begin_exchange(client, &tool_call("1"));
        if streaming {
            world.progress(shard, call.key, 1);
        }
        world.reset(client);
        assert_eq!(world.cancelled, [call.key]);
        assert_none_left(&world);
        let stale = world.counted("tells_stale");
        world.progress(shard, call.key, 2);
        world.answer(shard, call.key, DONE);
        assert_eq!(world.counted("tells_stale"), stale + 2, "what comes late changes nothing");
    }
}

#[test]
fn a_half_close_alone_cancels_nothing() {
    for accept in ["*/*", "application/json"] {
        for streaming in [false, true] {
            let mut world = World::new();
            let client = world.connect();
            let (shard, call) = world.begin_exchange(client, &accepting(accept));
            if streaming && accept == "*/*" {
                world.progress(shard, call.key, 1);
            }
            world.half_close(client);
            assert!(world.cancelled.is_empty());
            world.answer(shard, call.key, DONE);
            let reply = world.response(client);
            assert!(reply.complete && reply.text().contains("complete"), "{reply:?}");
            assert_eq!(world.ending(client), Some(Ending::Orderly), "nothing more can be asked");
        }
    }
}

#[test]
fn a_half_close_is_answered_at_once_so_that_a_peer_that_is_gone_says_so() {
    let mut world = World::new();
    let client = world.connect();
    let (_, undecided) = world.begin_exchange(client, &tool_call("1"));
    world.half_close(client);
    assert!(world.response(client).is_stream(), "the head of a stream asks for a reset");
    world.reset(client);
    assert_eq!(world.cancelled, [undecided.key]);

    let client = world.connect();
    let (shard, streaming) = world.begin_exchange(client, &tool_call("2"));
    world.progress(shard, streaming.key, 1);
    world.response(client);
    world.half_close(client);
    assert!(world.events(client)[0].is_keep_alive(), "so does a comment");
    world.advance(3_100);
    assert_eq!(world.events(client).len(), 3, "it is asked every second: only a write that fails tells");
    world.reset(client);
    assert_eq!(world.cancelled, [undecided.key, streaming.key]);
    assert_none_left(&world);
}

#[test]
fn a_reply_of_json_alone_asks_with_interim_responses() {
    let mut world = World::new();
    let client = world.connect();
    let (_, call) = world.begin_exchange(client, &accepting("application/json"));
    world.half_close(client);
    assert_eq!(world.interim_responses(client), 1, "it is asked at once");
    world.advance(3_100);
    assert_eq!(world.interim_responses(client), 4, "and every second");
    world.reset(client);
    assert_eq!(world.cancelled, [call.key]);
    assert_none_left(&world);

    let client = world.connect();
    let (shard, reading) = world.begin_exchange(client, &accepting("application/json"));
    world.half_close(client);
    world.advance(2_100);
    world.answer(shard, reading.key, DONE);
    let reply = world.response(client);
    assert_eq!((reply.status, reply.complete), (200, true), "who reads on gets the reply");
    assert_eq!(world.cancelled, [call.key]);
}

#[test]
fn a_peer_of_http_1_0_cannot_be_asked_and_its_end_cancels() {
    let mut world = World::new();
    let client = world.connect();
    let older = accepting("application/json").replace("HTTP/1.1", "HTTP/1.0");
    let (_, call) = world.begin_exchange(client, &older);
    world.half_close(client);
    assert_eq!(world.cancelled, [call.key]);
    assert_none_left(&world);
}

#[test]
fn a_peer_that_takes_nothing_is_cut_and_its_request_cancelled() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.stall(client);
    world.progress(shard, call.key, 1);
    world.advance(29_000);
    assert!(world.cancelled.is_empty());
    world.advance(2_000);
    assert_eq!((world.ending(client), &world.cancelled[..]), (Some(Ending::Cut), &[call.key][..]));
    assert_none_left(&world);
}

#[test]
fn output_over_its_bound_ends_the_request() {
    let mut world = World::with(CoreConfig { write_buffer_bytes: 10_000, ..config(1) });
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.stall(client);
    let flood = |world: &mut World| {
        for _ in 0..150 {
            world.progress(shard, call.key, 1);
        }
    };
    flood(&mut world);
    assert_eq!(world.ending(client), None, "a burst is none yet");
    world.advance(200);
    world.progress(shard, call.key, 1);
    assert_eq!((world.ending(client), &world.cancelled[..]), (Some(Ending::Cut), &[call.key][..]));
    assert_eq!(world.counted("connections_overflowed"), 1);
    // Nor may a burst be endless.
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("2"));
    world.stall(client);
    for _ in 0..1_000 {
        world.progress(shard, call.key, 1);
    }
    assert_eq!(world.ending(client), Some(Ending::Cut));
    assert_none_left(&world);
}

// --- Pipelines and ids --------------------------------------------------------------------------

#[test]
fn replies_come_in_the_order_of_the_requests_of_a_connection() {
    let mut world = World::new();
    let client = world.connect();
    world.send(client, tool_call("1") + &tool_call("2") + &stateless("3", "ping", ""));
    let (shard, first) = world.take_call();
    assert!(world.calls.is_empty(), "one at a time");
    world.progress(shard, first.key, 1);
    world.answer(shard, first.key, DONE);
    let (shard, second) = world.take_call();
    world.answer(shard, second.key, DONE);
    let replies = world.responses(client);
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200, 404]);
    assert_eq!((replies[1].json()["id"].clone(), replies[2].json()["id"].clone()), (2.into(), 3.into()));
}

#[test]
fn equal_ids_of_different_connections_are_different_requests() {
    let mut world = World::new();
    let clients: Vec<_> = (0..5).map(|_| world.connect()).collect();
    let calls: Vec<(usize, Call)> =
        clients.iter().map(|client| world.begin_exchange(*client, &tool_call("1"))).collect();
    let keys: std::collections::HashSet<String> =
        calls.iter().map(|(_, call)| format!("{:?}", call.key)).collect();
    assert_eq!(keys.len(), 5);
    world.reset(clients[2]);
    for (index, (shard, call)) in calls.iter().enumerate().rev() {
        world.answer(*shard, call.key, &format!(r#"{{"n":{index}}}"#));
    }
    for (index, client) in clients.iter().enumerate().filter(|(index, _)| *index != 2) {
        assert_eq!(world.response(*client).json()["result"]["n"], index);
    }
}

#[test]
fn a_key_of_a_request_names_no_call_of_a_session_and_the_other_way_round() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let client = world.connect();
    let (shard, call) = world.begin(owner, "1");
    let (_, exchange) = world.begin_exchange(client, &tool_call("1"));
    assert_eq!(call.key.slot, exchange.key.slot, "both are the first of their table");
    world.answer(shard, exchange.key, r#"{"of":"exchange"}"#);
    assert!(world.is_silent(owner));
    world.answer(shard, call.key, r#"{"of":"session"}"#);
    assert_eq!(world.response(client).json()["result"]["of"], "exchange");
    assert_eq!(world.response(owner).json()["result"]["of"], "session");
}

// --- Time and bounds ----------------------------------------------------------------------------

#[test]
fn a_request_that_never_ends_is_ended() {
    for (accept, status) in [("*/*", 200), ("application/json", 200)] {
        let mut world = World::with(CoreConfig { request_timeout_ms: 30_000, ..config(1) });
        let client = world.connect();
        let (shard, call) = world.begin_exchange(client, &accepting(accept));
        for _ in 0..6 {
            world.advance(5_000);
            world.progress(shard, call.key, 1);
        }
        world.advance(100);
        let reply = world.response(client);
        assert_eq!((reply.status, reply.complete), (status, true));
        assert!(reply.text().contains("timed out"), "progress does not put it off");
        assert_eq!((&world.cancelled[..], world.counted("calls_timed_out")), (&[call.key][..], 1));
        assert_none_left(&world);
    }
}

#[test]
fn more_requests_than_a_shard_works_on_are_refused_for_a_while() {
    let mut world = World::with(CoreConfig { exchanges_max: 2, ..config(1) });
    let clients: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let (shard, first) = world.begin_exchange(clients[0], &tool_call("1"));
    world.begin_exchange(clients[1], &tool_call("2"));
    let reply = world.exchange(clients[2], tool_call("3"));
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("5")));
    assert_eq!(world.counted("exchanges_refused"), 1);
    world.answer(shard, first.key, DONE);
    world.begin_exchange(clients[2], &tool_call("4"));
    // Sessions have their own bounds.
    world.open("2025-11-25");
}

#[test]
fn a_backend_without_room_is_503_while_the_form_is_open() {
    let mut world = World::new();
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &tool_call("1"));
    world.tell(shard, Tell::Refuse(call.key));
    assert_eq!(world.response(client).status, 503);
    let (shard, call) = world.begin_exchange(client, &tool_call("2"));
    world.progress(shard, call.key, 1);
    world.tell(shard, Tell::Refuse(call.key));
    let reply = world.response(client);
    assert_eq!((reply.complete, reply.messages()[1]["error"]["code"].clone()), (true, (-32603).into()));
    assert_none_left(&world);
}

#[test]
fn a_server_that_stops_finishes_what_runs_and_takes_nothing_new() {
    let mut world = World::new();
    let clients: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let (shard, undecided) = world.begin_exchange(clients[0], &tool_call("1"));
    let (_, streaming) = world.begin_exchange(clients[1], &tool_call("2"));
    world.progress(shard, streaming.key, 1);
    // A request is half way in when the stop comes.
    let text = tool_call("3");
    world.send(clients[2], &text[..50]);
    world.drain(0);
    world.settle();
    assert!(!world.shards[0].is_drained());
    world.send(clients[2], &text[50..]);
    let reply = world.response(clients[2]);
    assert_eq!((reply.status, reply.field("connection")), (503, Some("close")));
    world.answer(shard, undecided.key, DONE);
    world.answer(shard, streaming.key, DONE);
    assert_eq!(world.response(clients[0]).status, 200);
    assert!(world.response(clients[1]).complete);
    assert!(world.shards[0].is_drained());
    assert_none_left(&world);
}

#[test]
fn a_server_that_stops_does_not_wait_for_ever() {
    let mut world = World::new();
    let (client, streamer) = (world.connect(), world.connect());
    let (shard, undecided) = world.begin_exchange(client, &tool_call("1"));
    let (_, streaming) = world.begin_exchange(streamer, &tool_call("2"));
    world.progress(shard, streaming.key, 1);
    world.drain(0);
    world.settle();
    world.pump_budget = 1;
    world.shards[0].end_sessions();
    world.settle();
    assert_eq!(world.response(client).status, 503);
    let reply = world.response(streamer);
    assert_eq!((reply.complete, reply.messages().len()), (true, 2));
    assert_eq!(world.cancelled, [undecided.key, streaming.key]);
    assert!(world.shards[0].is_drained());
}

#[test]
fn requests_without_a_session_leave_nothing_behind() {
    let mut world = World::new();
    let client = world.connect();
    for round in 0..200u32 {
        let (shard, call): (usize, Call) = world.begin_exchange(client, &tool_call("1"));
        if round % 3 == 0 {
            world.progress(shard, call.key, round);
        }
        world.answer(shard, call.key, DONE);
        world.responses(client);
    }
    assert_none_left(&world);
    world.assert_no_session_left();
    assert_eq!(world.counted("exchanges"), 200);
}

#[test]
fn a_session_of_the_same_connection_goes_on() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let listener = world.listen(owner);
    let (shard, call) = world.begin_exchange(owner, &tool_call("1"));
    let key: CallKey = call.key;
    world.announce(owner, "meanwhile");
    world.answer(shard, key, DONE);
    assert_eq!(world.response(owner).status, 200);
    assert_eq!(world.texts(listener), ["meanwhile"]);
    assert_eq!(world.ask_for(owner, &request("2", "ping")).status, 200);
}
