//! POSTs: envelopes, forms of reply, streams, priming, batches, equal ids, cancellation and time-outs.

use crate::world::{
    World,
    ask::{bodiless, cancellation, messages, notification, post, request},
    client::ClientId,
    config,
    http::Response,
};
use moorline::core::{
    LogLevel, Notification, NotificationKind, Tell,
    config::{CoreConfig, Priming, ResponseMode},
    jsonrpc::{self, RpcError},
};

const ALL: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn call(id: &str) -> String {
    request(id, "tools/call")
}

// --- Envelopes ----------------------------------------------------------------------------------

#[test]
fn what_is_no_message_is_400_with_the_code_and_the_id_if_it_is_legal() {
    let long_id = format!(r#""{}""#, "x".repeat(300));
    let with_id = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let cases = [
        (-32700, "null", String::new()),
        (-32700, "null", "{".into()),
        (-32700, "null", "nonsense".into()),
        (-32700, "null", r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#.into()),
        (-32600, "null", "7".into()),
        (-32600, "null", r#""text""#.into()),
        (-32600, "null", "{}".into()),
        (-32600, "1", r#"{"id":1,"method":"ping"}"#.into()),
        (-32600, "1", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.into()),
        (-32600, r#""a""#, r#"{"jsonrpc":"2.0","id":"a","method":7}"#.into()),
        (-32600, "5", r#"{"jsonrpc":"2.0","id":5}"#.into()),
        (-32600, "5", r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":7}"#.into()),
        (-32600, "null", with_id("{}")),
        (-32600, "null", with_id("true")),
        (-32600, "null", with_id("[1]")),
        (-32600, "null", with_id("null")),
        (-32600, "null", with_id("1.5")),
        (-32600, "null", with_id(&long_id)),
        (-32600, "null", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.into()),
        (-32600, "null", r#"{"jsonrpc":"2.0","result":{}}"#.into()),
    ];
    let mut world = World::new();
    let client = world.open("2025-11-25");
    for (code, id, body) in cases {
        let reply = world.ask_for(client, &body);
        assert_eq!((reply.status, reply.code()), (400, code), "{body:?}");
        assert_eq!(reply.json()["id"].to_string(), id, "{body:?}");
        assert_eq!(reply.field("content-type"), Some("application/json"));
    }
    let session = world.session_field(client);
    let mut invalid = post(&session, r#"{"jsonrpc":"2.0","id":1,"method":"pXng"}"#).into_bytes();
    let at = invalid.iter().position(|byte| *byte == b'X').unwrap();
    invalid[at] = 0xff;
    let reply = world.exchange(client, invalid);
    assert_eq!((reply.status, reply.code()), (400, -32700), "not UTF-8");
    assert!(world.calls.is_empty() && world.ending(client).is_none(), "the connection goes on");
}

#[test]
fn ids_come_back_as_they_were_written() {
    let ids = [
        "1",
        "-7",
        "0",
        r#""1""#,
        r#""""#,
        r#""\u0041\n""#,
        r#""é""#,
        "123456789012345678901234567890",
        "-0",
    ];
    for (mode, form) in [(ResponseMode::Json, "application/json"), (ResponseMode::Sse, "text/event-stream")] {
        let mut world = World::with(CoreConfig { response_mode: mode, ..config(1) });
        let client = world.open("2025-06-18");
        for id in ids {
            let (shard, call) = world.begin(client, id);
            world.answer(shard, call.key, "{}");
            let reply = world.response(client);
            assert_eq!(reply.field("content-type"), Some(form));
            let text = reply.text();
            assert!(text.contains(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)), "{text}");
        }
    }
}

#[test]
fn what_wants_no_answer_gets_202_and_nothing_more() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let bodies = [
        notification("notifications/roots/list_changed"),
        notification("notifications/initialized"),
        notification("no/such/notification"),
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#.into(),
        r#"{"jsonrpc":"2.0","id":"unknown","error":{"code":-1,"message":"no"}}"#.into(),
        cancellation("99"),
    ];
    for body in bodies {
        let reply = world.ask_for(client, &body);
        assert_eq!((reply.status, reply.field("content-length")), (202, Some("0")), "{body}");
        assert_eq!((reply.field("content-type"), reply.body.len()), (None, 0), "{body}");
    }
    assert_eq!(world.told, ["notifications/roots/list_changed", "no/such/notification"]);
}

#[test]
fn a_ping_is_answered_by_the_core_alone() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    assert_eq!(
        world.ask_for(client, &request(r#""p""#, "ping")).text(),
        r#"{"jsonrpc":"2.0","id":"p","result":{}}"#
    );
    assert!(world.calls.is_empty());
}

#[test]
fn a_log_level_is_checked_and_belongs_to_its_session() {
    let mut world = World::new();
    let (loud, quiet) = (world.open("2025-06-18"), world.open("2025-06-18"));
    let set = |level: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":{level}}}}}"#)
    };
    for bad in [r#""loud""#, "7", "null", r#""INFO""#] {
        let reply = world.ask_for(quiet, &set(bad));
        assert_eq!((reply.status, reply.code()), (200, -32602), "{bad}");
    }
    assert_eq!(world.ask_for(quiet, &request("1", "logging/setLevel")).code(), -32602);
    assert_eq!(world.ask_for(quiet, &set(r#""error""#)).json()["result"].to_string(), "{}");
    let listeners = [world.listen(loud), world.listen(quiet)];
    for level in [LogLevel::Debug, LogLevel::Warning, LogLevel::Error, LogLevel::Emergency] {
        for client in [loud, quiet] {
            world.announce_kind(client, NotificationKind::Log(level), "notifications/message");
        }
    }
    let heard = listeners.map(|listener| world.events(listener).len());
    assert_eq!(heard, [4, 2]);
    let (shard, call) = world.begin(quiet, "3");
    log(&mut world, shard, &call, LogLevel::Info);
    world.answer(shard, call.key, "{}");
    assert!(!world.response(quiet).is_stream(), "nothing was to be said, so the reply is JSON");
    assert_eq!(world.counted("messages_filtered"), 3);
}

fn log(world: &mut World, shard: usize, call: &moorline::core::Call, level: LogLevel) {
    let json = jsonrpc::notification("notifications/message", None);
    world.tell(shard, Tell::Notify(call.key, Notification { kind: NotificationKind::Log(level), json }));
}

#[test]
fn errors_of_the_backend_are_http_200_in_either_form() {
    for accept in ["application/json", "text/event-stream"] {
        let mut world = World::new();
        let client = world.open("2025-11-25");
        world.post_with(client, &format!("Accept: {accept}\r\n"), &request("9", "no/such"));
        let (shard, asked) = world.take_call();
        world.fail(shard, asked.key, RpcError::method_not_found("no/such"));
        let reply = world.response(client);
        assert_eq!((reply.status, reply.complete), (200, true));
        let error = if reply.is_stream() { reply.messages().remove(0) } else { reply.json() };
        assert_eq!((&error["id"], &error["error"]["code"]), (&9.into(), &(-32601).into()));
        assert_eq!(world.ending(client), None);
    }
}

#[test]
fn a_result_over_the_bound_fails_its_call_and_nothing_else() {
    let mut world = World::with(CoreConfig { message_bytes_max: 200, ..config(1) });
    let client = world.open("2025-06-18");
    let (shard, asked) = world.begin(client, "1");
    let large = format!(r#""{}""#, "x".repeat(300));
    world.answer(shard, asked.key, &large);
    let reply = world.response(client);
    assert_eq!((reply.status, reply.code()), (200, -32603));
    assert_eq!(world.counted("messages_oversized"), 1);
    assert!(world.is_alive(client));
}

#[test]
fn a_cursor_on_a_post_is_ignored() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    for cursor in ["", "nonsense", "aaaaaa-l1-1"] {
        world.post_with(client, &format!("Last-Event-ID: {cursor}\r\n"), &request("1", "ping"));
        assert_eq!(world.response(client).status, 200, "{cursor:?}");
    }
}

#[test]
fn media_types_are_compared_as_http_says() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let session = world.session_field(client);
    let cases = [
        (200, "Content-Type: application/json"),
        (200, "content-type: Application/JSON; charset=utf-8"),
        (415, "Content-Type: text/json"),
        (415, "Content-Type: application/jsonp"),
        (415, "X: y"),
        (415, "Content-Type: application/json\r\nContent-Encoding: br"),
        (200, "Content-Type: application/json\r\nContent-Encoding: identity"),
    ];
    for (status, fields) in cases {
        let request = post(&session, &request("1", "ping")).replace("Content-Type: application/json", fields);
        assert_eq!(world.exchange(client, request).status, status, "{fields}");
    }
}

// --- The form of a reply ------------------------------------------------------------------------

/// The reply to a call that says nothing but its response.
fn plain_reply(world: &mut World, client: ClientId, accept: &str) -> Response {
    let session = world.session_field(client);
    let request = post(&session, &call("1")).replace("Accept: */*\r\n", accept);
    world.send(client, request);
    if let Some((shard, asked)) = world.calls.pop() {
        world.answer(shard, asked.key, "{}");
    }
    world.response(client)
}

#[test]
fn the_form_is_what_client_and_mode_agree_on() {
    const JSON: &str = "application/json";
    const SSE: &str = "text/event-stream";
    let both = [
        "",
        "Accept: */*\r\n",
        "Accept: application/json, text/event-stream\r\n",
        "Accept: text/event-stream;q=0.5,application/*;q=0.1\r\n",
        "Accept: application/json\r\nAccept: text/event-stream\r\n",
    ];
    let json = ["Accept: application/json\r\n", "Accept: */*, text/event-stream;q=0\r\n"];
    let sse = ["Accept: text/event-stream\r\n", "Accept: text/*\r\n"];
    for (mode, form) in [(ResponseMode::Auto, JSON), (ResponseMode::Json, JSON), (ResponseMode::Sse, SSE)] {
        let mut world = World::with(CoreConfig { response_mode: mode, ..config(1) });
        let client = world.open("2025-06-18");
        let cases = both
            .map(|accept| (accept, form))
            .into_iter()
            .chain(json.map(|accept| (accept, JSON)))
            .chain(sse.map(|accept| (accept, SSE)));
        for (accept, form) in cases {
            let reply = plain_reply(&mut world, client, accept);
            assert_eq!((reply.status, reply.complete), (200, true));
            assert_eq!(reply.field("content-type"), Some(form), "{mode:?} {accept:?}");
        }
    }
}

#[test]
fn a_client_that_accepts_neither_form_gets_406_that_names_both() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    for accept in ["Accept: text/html\r\n", "Accept: */*;q=0\r\n", "Accept: \r\n"] {
        let reply = plain_reply(&mut world, client, accept);
        if accept == "Accept: \r\n" && reply.status == 200 {
            continue; // An empty list may count as absent.
        }
        assert_eq!((reply.status, reply.json()["id"].is_null()), (406, true), "{accept:?}");
        let text = reply.text();
        assert!(text.contains("application/json") && text.contains("text/event-stream"), "{text}");
    }
}

#[test]
fn silence_makes_a_stream_after_a_second_and_only_then() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (shard, asked) = world.begin(client, "1");
    world.advance(999);
    assert!(world.is_silent(client), "the status is decided before any byte");
    world.advance(17);
    let head = world.response(client);
    assert!(head.is_stream() && !head.complete);
    world.answer(shard, asked.key, "{}");
    let events = world.events(client);
    assert_eq!(events.iter().map(|event| event.json()["id"].clone()).collect::<Vec<_>>(), [1]);
    assert_eq!(world.ask_for(client, &request("2", "ping")).status, 200, "and the connection goes on");
}

#[test]
fn whatever_is_said_before_the_response_makes_a_stream_where_it_may() {
    let cases = [
        (ResponseMode::Auto, "application/json, text/event-stream", true),
        (ResponseMode::Sse, "application/json, text/event-stream", true),
        (ResponseMode::Json, "application/json, text/event-stream", false),
        (ResponseMode::Auto, "application/json", false),
        (ResponseMode::Sse, "application/json", false),
        (ResponseMode::Json, "text/event-stream", true),
    ];
    for (response_mode, accept, streams) in cases {
        let mut world = World::with(CoreConfig { response_mode, ..config(1) });
        let client = world.open("2025-06-18");
        let listener = world.listen(client);
        world.post_with(client, &format!("Accept: {accept}\r\n"), &call("1"));
        let (shard, asked) = world.take_call();
        world.progress(shard, asked.key, 1);
        log(&mut world, shard, &asked, LogLevel::Error);
        world.advance(5_000);
        world.answer(shard, asked.key, "{}");
        let reply = world.response(client);
        assert_eq!((reply.is_stream(), reply.complete), (streams, true), "{response_mode:?} {accept}");
        let (on_post, on_listener) = if streams { (3, 0) } else { (0, 1) };
        assert_eq!(if reply.is_stream() { reply.messages().len() } else { 0 }, on_post);
        let heard = messages(&world.events(listener));
        assert_eq!(heard.len(), on_listener, "a log message is lost nowhere, progress has no other place");
        assert!(heard.iter().all(|message| message["method"] == "notifications/message"));
        assert_eq!(world.counted("messages_dropped"), u64::from(!streams));
    }
}

#[test]
fn streams_say_that_nobody_may_hold_them_back_and_name_every_message() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let (shard, asked) = world.begin(client, "1");
    world.progress(shard, asked.key, 1);
    world.answer(shard, asked.key, "\"a\\nb\"");
    let reply = world.response(client);
    assert_eq!(reply.field("content-type"), Some("text/event-stream"));
    assert_eq!(reply.field("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(reply.field("x-accel-buffering"), Some("no"));
    assert_eq!(reply.field("content-encoding"), None);
    assert_eq!(reply.field("mcp-session-id"), None);
    let events = reply.events();
    assert_eq!((events[0].name.as_deref(), events[0].data.as_deref()), (None, Some("")));
    assert!(events[1..].iter().all(|event| event.name.as_deref() == Some("message")));
    assert!(events[1..].iter().all(|event| event.retry.is_none()), "the hint comes once");
}

#[test]
fn event_ids_carry_tag_kind_stream_and_sequence() {
    let mut world = World::new();
    let (one, two) = (world.open("2025-11-25"), world.open("2025-11-25"));
    let mut tags = Vec::new();
    for client in [one, two] {
        let listener = world.join(client);
        world.get(listener);
        world.announce(client, "a");
        let mut ids: Vec<String> =
            world.response(listener).events().into_iter().filter_map(|event| event.id).collect();
        for _ in 0..2 {
            let (shard, asked) = world.begin(client, "1");
            world.progress(shard, asked.key, 1);
            world.answer(shard, asked.key, "{}");
            ids.extend(world.response(client).events().into_iter().filter_map(|event| event.id));
        }
        let tag = ids[0].split('-').next().unwrap().to_owned();
        assert!(tag.len() == 6 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
        assert!(!world.client(client).session.as_ref().unwrap().contains(&tag), "a tag tells nothing");
        let rest: Vec<&str> = ids.iter().map(|id| id.strip_prefix(&*tag).unwrap()).collect();
        assert_eq!(rest, ["-l1-0", "-l1-1", "-r1-0", "-r1-1", "-r1-2", "-r2-0", "-r2-1", "-r2-2"]);
        tags.push(tag);
    }
    assert_ne!(tags[0], tags[1]);
}

// --- Priming ------------------------------------------------------------------------------------

#[test]
fn the_session_and_the_setting_decide_which_streams_are_primed() {
    for revision in ALL {
        for priming in [Priming::Auto, Priming::Post, Priming::Off] {
            let mut world = World::with(CoreConfig { priming, retry_ms: 1_234, ..config(1) });
            let client = world.open(revision);
            let session = world.session_field(client);
            // The header of the request does not decide.
            let fields =
                format!("{session}MCP-Protocol-Version: 2025-11-25\r\nAccept: text/event-stream\r\n");
            world.send(client, post("", &call("1")).replace("Accept: */*\r\n", &fields));
            let (shard, asked) = world.take_call();
            world.answer(shard, asked.key, "{}");
            let of_post = world.response(client).events();
            let listener = world.join(client);
            world.send(listener, bodiless("GET", &fields));
            let of_get = world.response(listener).events();

            let newest = revision == "2025-11-25";
            assert_eq!(
                of_post.len(),
                1 + usize::from(newest && priming != Priming::Off),
                "{revision} {priming:?}"
            );
            assert_eq!(of_get.len(), 1);
            if newest && priming != Priming::Off {
                assert!(of_post[0].id.as_ref().unwrap().ends_with("-r1-0"));
                assert_eq!(of_post[0].retry.as_deref(), Some("1234"));
            }
            if newest && priming == Priming::Auto {
                assert!(of_get[0].id.as_ref().unwrap().ends_with("-l1-0"));
                assert_eq!((of_get[0].data.as_deref(), of_get[0].retry.as_deref()), (Some(""), Some("1234")));
            } else {
                assert!(of_get[0].is_comment(), "head and first bytes go out at once: {of_get:?}");
            }
        }
    }
}

#[test]
fn the_reply_to_initialize_is_never_primed() {
    for revision in ALL {
        for after_ms in [0, 2_000] {
            let mut world = World::with(CoreConfig { response_mode: ResponseMode::Sse, ..config(1) });
            world.answers_initialize = after_ms == 0;
            let client = world.connect();
            world.send(client, post("", &World::initialize_body(revision)));
            world.advance(after_ms);
            if let Some((shard, asked)) = world.calls.pop() {
                world.answer(shard, asked.key, "{}");
            }
            let reply = world.response(client);
            assert!(reply.is_stream() && reply.complete && reply.field("mcp-session-id").is_some());
            let first = &reply.events()[0];
            assert_eq!((first.json()["id"].clone(), first.name.as_deref()), (1.into(), Some("message")));
        }
    }
}

// --- Time ---------------------------------------------------------------------------------------

#[test]
fn a_call_that_spoke_early_may_then_be_silent_for_long() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (shard, asked) = world.begin(client, "1");
    world.advance(300);
    world.progress(shard, asked.key, 1);
    world.advance(60_000);
    assert_eq!(world.counted("calls_timed_out"), 0);
    world.answer(shard, asked.key, r#"{"done":true}"#);
    let found = world.response(client).messages();
    assert_eq!(found.last().unwrap()["result"]["done"], true);
}

#[test]
fn a_lost_connection_cancels_nothing_at_any_time() {
    for progress in [false, true] {
        let mut world = World::new();
        let client = world.open("2025-06-18");
        let other = world.join(client);
        let (shard, asked) = world.begin(other, "1");
        if progress {
            world.progress(shard, asked.key, 1);
        }
        world.reset(other);
        world.advance(600_000);
        assert_eq!((world.cancelled.len(), world.counted("calls_timed_out")), (0, 0));
        assert_eq!(world.shards[0].population().calls, 1, "the call runs on");
        world.answer(shard, asked.key, "{}");
        assert_eq!(world.shards[0].population().calls, 0);
        assert_eq!(world.counted("replies_lost"), u64::from(!progress));
        assert!(world.is_alive(client), "one failed connection never ends a session");
    }
}

#[test]
fn a_call_that_never_answers_fails_when_its_time_is_over() {
    let timeouts = CoreConfig { request_timeout_ms: 90_000, ..config(1) };
    for accept in ["application/json", "application/json, text/event-stream"] {
        for progress in [false, true] {
            let mut world = World::with(timeouts.clone());
            let client = world.open("2025-06-18");
            world.post_with(client, &format!("Accept: {accept}\r\n"), &call(r#""t""#));
            let (shard, asked) = world.take_call();
            if progress {
                world.progress(shard, asked.key, 1);
            }
            world.advance(89_990);
            assert_eq!(world.counted("calls_timed_out"), 0);
            world.advance(30);
            let reply = world.response(client);
            let error = match reply.is_stream() {
                true => reply.messages().pop().unwrap(),
                false => reply.json(),
            };
            assert!(reply.complete && reply.status == 200);
            assert_eq!(error["id"], "t");
            assert!(error["error"]["message"].as_str().unwrap().contains("timed out"), "{error}");
            assert_eq!((world.cancelled.len(), world.counted("calls_timed_out")), (1, 1));
            world.answer(shard, asked.key, "{}");
            assert!(world.is_silent(client), "a late answer is dropped");
            assert_eq!(world.counted("tells_stale"), 1);
        }
    }
}

#[test]
fn the_default_request_time_out_is_an_hour_also_without_a_connection() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (_, _) = world.begin(client, "1");
    world.reset(client);
    world.advance(3_599_000);
    assert_eq!(world.shards[0].population().calls, 1);
    world.advance(1_100);
    assert_eq!((world.shards[0].population().calls, world.cancelled.len()), (0, 1));
}

#[test]
fn a_time_out_shorter_than_sse_after_wins() {
    let mut world = World::with(CoreConfig { request_timeout_ms: 500, ..config(1) });
    let client = world.open("2025-06-18");
    world.begin(client, "1");
    world.advance(520);
    let reply = world.response(client);
    assert_eq!((reply.status, reply.is_stream()), (200, false));
    assert!(reply.code() < 0);
}

// --- Equal ids and cancellation -----------------------------------------------------------------

#[test]
fn equal_ids_in_flight_each_get_their_own_answer() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let posts: Vec<_> = ["1", "1", r#""1""#, "1"]
        .into_iter()
        .map(|id| {
            let poster = world.join(client);
            let (shard, asked) = world.begin(poster, id);
            (poster, id, shard, asked)
        })
        .collect();
    world.progress(posts[3].2, posts[3].3.key, 1);
    for (index, (poster, id, shard, asked)) in posts.iter().enumerate().rev() {
        world.answer(*shard, asked.key, &index.to_string());
        let reply = world.response(*poster);
        let found = if reply.is_stream() { reply.messages().pop().unwrap() } else { reply.json() };
        assert_eq!((found["result"].clone(), found["id"].to_string().as_str()), (index.into(), *id));
        assert!(posts[..index].iter().all(|(other, ..)| world.client(*other).received.is_empty()));
    }
}

#[test]
fn a_cancelled_call_gets_no_response() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (undecided, streaming) = (world.join(client), world.join(client));
    let (shard, first) = world.begin(undecided, "1");
    let (_, second) = world.begin_stream(streaming, r#""s""#);

    assert_eq!(world.ask_for(client, &cancellation("1")).status, 202);
    let reply = world.response(undecided);
    assert_eq!((reply.status, reply.field("content-length")), (202, Some("0")));
    assert_eq!(world.ask_for(client, &cancellation(r#""s""#)).status, 202);
    assert_eq!(world.client(streaming).take_text(), "0\r\n\r\n", "a clean end without a response");
    assert_eq!(world.cancelled, [first.key, second.key]);
    assert_eq!(world.counted("calls_cancelled"), 2);

    world.answer(shard, first.key, "{}");
    world.answer(shard, second.key, "{}");
    for poster in [undecided, streaming] {
        assert!(world.is_silent(poster) && world.ending(poster).is_none());
        assert_eq!(world.ask_for(poster, &request("5", "ping")).status, 200, "the connection goes on");
    }
}

#[test]
fn a_cancellation_that_means_no_call_or_several_is_ignored_and_counted() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let (one, other) = (world.join(client), world.join(client));
    let (shard, first) = world.begin(one, "1");
    let (_, second) = world.begin(other, "1");
    let malformed = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x"}}"#;
    let bodies = [
        cancellation("1"),
        cancellation(r#""1""#),
        cancellation("2"),
        cancellation("{}"),
        malformed.into(),
        notification("notifications/cancelled"),
    ];
    for (count, body) in (1..).zip(bodies) {
        assert_eq!(world.ask_for(client, &body).status, 202, "{body}");
        assert_eq!(world.counted("cancels_ignored"), count, "{body}");
    }
    assert!(world.cancelled.is_empty());
    world.answer(shard, first.key, "1");
    assert_eq!(world.response(one).json()["result"], 1);
    assert_eq!(world.ask_for(client, &cancellation("1")).status, 202);
    assert_eq!(world.cancelled, [second.key], "one is left, so it is meant");
    world.ask_for(client, &cancellation("1"));
    assert_eq!(world.counted("cancels_ignored"), 7, "finished");
}

#[test]
fn a_session_cannot_cancel_the_calls_of_another() {
    let mut world = World::new();
    let (mine, yours) = (world.open("2025-06-18"), world.open("2025-06-18"));
    let (shard, asked) = world.begin(mine, "1");
    world.ask_for(yours, &cancellation("1"));
    assert!(world.cancelled.is_empty());
    world.answer(shard, asked.key, "{}");
    assert_eq!(world.response(mine).status, 200);
}

// --- Batches ------------------------------------------------------------------------------------

fn batch(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

#[test]
fn batches_exist_in_2025_03_26_alone() {
    for revision in ALL {
        let mut world = World::new();
        let client = world.open(revision);
        let reply = world.ask_for(client, &batch(&[request("1", "ping"), notification("x")]));
        if revision == "2025-03-26" {
            assert_eq!(reply.text(), r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
        } else {
            assert_eq!((reply.status, reply.code()), (400, -32600), "{revision}");
            assert!(reply.json()["id"].is_null());
            assert!(world.told.is_empty(), "nothing is executed");
        }
    }
}

#[test]
fn a_batch_is_judged_as_a_whole() {
    let initialize = World::initialize_body("2025-03-26");
    let ping = request("1", "ping");
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned();
    let quiet = notification("x");
    let cases = [
        (202, vec![quiet.clone(), quiet.clone()]),
        (202, vec![response.clone(), response.clone()]),
        (200, vec![ping.clone(), quiet.clone()]),
        (200, vec![ping.clone(); 64]),
        (400, vec![]),
        (400, vec![ping.clone(); 65]),
        (400, vec![initialize.clone()]),
        (400, vec![quiet.clone(), initialize]),
        (400, vec![ping.clone(), response.clone()]),
        (400, vec![quiet.clone(), response]),
        (400, vec![quiet.clone(), "7".into()]),
        (400, vec![quiet.clone(), "{}".into()]),
        (400, vec![quiet.clone(), "[]".into()]),
        (400, vec![quiet, r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#.into()]),
    ];
    for (status, elements) in cases {
        let mut world = World::new();
        let client = world.open("2025-03-26");
        let body = batch(&elements);
        let reply = world.ask_for(client, &body);
        let shown = body.get(..120).unwrap_or(&body);
        assert_eq!(reply.status, status, "{shown}");
        match status {
            202 => assert!(reply.body.is_empty()),
            200 => assert!(reply.json().is_array()),
            _ => {
                assert_eq!(reply.code(), -32600, "{shown}");
                assert!(
                    world.told.is_empty() && world.calls.is_empty(),
                    "nothing of it is executed: {shown}"
                );
                assert_eq!(world.census.sessions(), 1);
            }
        }
    }
}

#[test]
fn a_batch_without_a_session_needs_one() {
    let mut world = World::new();
    let reply = world.exchange_alone(post("", &batch(&[request("1", "ping")])));
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("Mcp-Session-Id"));
}

#[test]
fn a_batch_in_json_is_one_array_when_its_last_call_is_done() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    let body = batch(&[call("1"), request("2", "ping"), call("3"), call("4")]);
    world.post_with(client, "Accept: application/json\r\n", &body);
    let calls: Vec<_> = (0..3).map(|_| world.take_call()).collect();
    world.answer(calls[2].0, calls[2].1.key, "{}");
    world.fail(calls[0].0, calls[0].1.key, RpcError::invalid_params("no"));
    assert!(world.is_silent(client));
    world.answer(calls[1].0, calls[1].1.key, "{}");
    let reply = world.response(client);
    let found = reply.json();
    let mut ids: Vec<i64> =
        found.as_array().unwrap().iter().map(|message| message["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!((reply.status, ids), (200, vec![1, 2, 3, 4]));
}

#[test]
fn a_batch_as_a_stream_has_one_event_per_response_and_then_ends() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    world.post(client, &batch(&[call("1"), request("2", "ping"), call("3")]));
    let calls: Vec<_> = (0..2).map(|_| world.take_call()).collect();
    world.answer(calls[1].0, calls[1].1.key, "{}");
    world.progress(calls[0].0, calls[0].1.key, 1);
    let head = world.response(client);
    assert!(head.is_stream() && !head.complete);
    let ids: Vec<_> = head.messages().iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, [2.into(), 3.into(), serde_json::Value::Null], "what was known, then the progress");
    world.answer(calls[0].0, calls[0].1.key, "{}");
    let text = world.client(client).take_text();
    assert!(text.contains(r#""id":1,"result""#) && text.ends_with("0\r\n\r\n"), "{text:?}");
}

#[test]
fn cancelled_calls_of_a_batch_are_left_out() {
    let mut world = World::new();
    let client = world.open("2025-03-26");
    let poster = world.join(client);
    world.post(poster, &batch(&[call("1"), call("2")]));
    let (_, _) = world.take_call();
    let (shard, second) = world.take_call();
    world.ask_for(client, &cancellation("1"));
    assert!(world.is_silent(poster));
    world.answer(shard, second.key, "{}");
    assert_eq!(world.response(poster).json(), serde_json::json!([{"jsonrpc":"2.0","id":2,"result":{}}]));

    world.post(poster, &batch(&[call("1"), call("2")]));
    world.ask_for(client, &batch(&[cancellation("1"), cancellation("2")]));
    assert_eq!(world.response(poster).status, 202, "nothing is left to say");
}

#[test]
fn a_batch_that_takes_too_long_fails_as_one() {
    let mut world = World::with(CoreConfig { request_timeout_ms: 50_000, ..config(1) });
    let client = world.open("2025-03-26");
    world.post(client, &batch(&[call("1"), call("2"), request("3", "ping")]));
    world.advance(50_020);
    let reply = world.response(client);
    let messages = reply.messages();
    assert!(reply.is_stream() && reply.complete);
    assert_eq!(messages.iter().filter(|message| message["error"].is_object()).count(), 2);
    assert_eq!((messages.len(), world.cancelled.len()), (3, 2));
}

// --- Lost connections ---------------------------------------------------------------------------

#[test]
fn answers_stay_on_their_post_and_never_appear_on_a_healthy_listener() {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    let listener = world.listen(client);
    for index in 0..100 {
        let (shard, asked) = world.begin(client, &index.to_string());
        if index % 2 == 0 {
            world.progress(shard, asked.key, 1);
        }
        world.answer(shard, asked.key, "{}");
        assert!(world.response(client).complete);
    }
    assert!(world.is_silent(listener));
}

#[test]
fn a_reset_stream_is_detached_and_its_session_works_on() {
    let mut world = World::new();
    let client = world.open("2025-06-18");
    let poster = world.join(client);
    let (shard, asked) = world.begin_stream(poster, "1");
    world.reset(poster);
    world.progress(shard, asked.key, 2);
    assert_eq!(world.ask_for(client, &request("2", "ping")).status, 200);
    world.answer(shard, asked.key, "{}");
    world.advance(130_000);
    assert_eq!(world.shards[0].population().streams, 0, "its log leaves in time");
}
