//! The form of replies: JSON or event stream, and what each carries.

use super::{
    events::{Event, EventStream, events_of},
    on_every_shard_count,
    server::Server,
    session::{NEWEST, Session, answer, echo_call, initialize, post, request, slow_call},
    wire::Response,
};
use serde_json::{Value, json};
use std::collections::HashSet;

on_every_shard_count! {
    /// Progress makes the reply a stream: growing steps, then the response, then its end.
    fn progress_comes_before_the_response(server: &Server) {
        let session = Session::open(server.address());
        let response = session.post(&slow_call(json!("s"), 0.2, 4));
        let messages = messages_of(&response);
        let steps: Vec<_> = messages.iter().filter_map(|m| m["params"]["progress"].as_f64()).collect();
        assert_eq!(steps, [1.0, 2.0, 3.0, 4.0]);
        let last = messages.last().expect("the response");
        assert_eq!((last["id"].as_str(), messages.len()), (Some("s"), 5));
    }

    /// Event ids are unique in the whole session, whatever stream they are on.
    fn event_ids_are_unique(server: &Server) {
        let session = Session::open(server.address());
        let mut listener = session.listen();
        let mut ids = HashSet::new();
        let mut connection = server.connect();
        for _ in 0..20 {
            let call = session.streamed_call_on(&mut connection);
            session.notify_on(&mut connection);
            for event in call.into_iter().chain([listener.message()]) {
                let id = event.id.expect("every event of a session has an id");
                assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id:?}");
                assert!(ids.insert(id.clone()), "{id} twice");
            }
        }
    }

    /// Answers never appear on a listener whose client got them already.
    fn a_listener_hears_no_answers(server: &Server) {
        let session = Session::open(server.address());
        let mut listener = session.listen();
        let mut connection = server.connect();
        for i in 0..100 {
            session.call_on(&mut connection, "add", &json!({"a": i, "b": 1}));
        }
        session.streamed_call_on(&mut connection);
        listener.stays_silent();
    }
}

#[test]
fn the_session_decides_about_priming() {
    let server = Server::start(&[]);
    for (revision, primed) in [("2025-03-26", false), ("2025-06-18", false), (NEWEST, true)] {
        let session = Session::open_with(server.address(), revision);
        let events = events_of(&session.post(&slow_call(json!(1), 0.02, 1)).body);
        let priming: Vec<&Event> = events.iter().filter(|event| !event.is_message()).collect();
        assert_eq!(priming.len(), usize::from(primed), "{revision}: {events:?}");
        if primed {
            assert!(priming[0].id.as_deref().is_some_and(|id| id.ends_with("-0")), "{events:?}");
            assert_eq!((priming[0].retry_ms, &priming[0].name), (Some(3_000), &None));
            assert_eq!(events[0], *priming[0]);
        }
    }
}

#[test]
fn every_message_is_a_message_event() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let events = events_of(&session.post(&slow_call(json!(1), 0.02, 2)).body);
    let messages: Vec<_> = events.iter().filter(|event| event.is_message()).collect();
    assert!(messages.len() >= 3);
    assert!(messages.iter().all(|event| event.name.as_deref() == Some("message")), "{events:?}");
}

#[test]
fn the_form_follows_mode_and_accept() {
    let both = "application/json, text/event-stream";
    let (json, sse) = ("application/json", "text/event-stream");
    let cases = [
        ("auto", Some(both), Some(json)),
        ("sse", Some(both), Some(sse)),
        ("json", Some(both), Some(json)),
        ("auto", Some(json), Some(json)),
        ("auto", Some(sse), Some(sse)),
        ("sse", Some(json), Some(json)),
        ("auto", Some("*/*"), Some(json)),
        ("auto", None, Some(json)),
        ("auto", Some("text/html"), None),
    ];
    for mode in ["auto", "sse", "json"] {
        let server = Server::start(&["--response-mode", mode]);
        let session = Session::open(server.address());
        for (_, accept, form) in cases.iter().filter(|case| case.0 == mode) {
            let response = echo_accepting(&server, &session, *accept);
            match form {
                Some(form) => {
                    assert_eq!(response.head.field("content-type"), Some(*form), "{mode} {accept:?}")
                }
                None => assert_eq!(response.status(), 406, "{mode} {accept:?}"),
            }
        }
    }
}

#[test]
fn a_silent_call_becomes_a_stream_in_time() {
    let server = Server::start(&["--sse-after", "100ms"]);
    let session = Session::open(server.address());
    let mut call = slow_call(json!(1), 1.0, 1);
    call["params"].as_object_mut().expect("params are an object").remove("_meta");
    let response = session.post(&call);
    assert_eq!(response.head.field("content-type"), Some("text/event-stream"));
    assert!(answer(&response)["result"].is_object());
}

#[test]
fn a_quick_reply_stays_json() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let mut call = slow_call(json!(1), 0.1, 2);
    call["params"].as_object_mut().expect("params are an object").remove("_meta");
    assert_eq!(session.post(&call).head.field("content-type"), Some("application/json"));
}

#[test]
fn initialize_is_never_primed() {
    for mode in ["auto", "sse"] {
        let server = Server::start(&["--response-mode", mode]);
        let mut connection = server.connect();
        connection.send(post(&initialize(NEWEST), &[]));
        let response = connection.response("POST");
        assert!(response.head.field("mcp-session-id").is_some());
        let first = events_of(&response.body).first().map_or_else(|| response.json(), Event::json);
        assert!(first["result"]["protocolVersion"].is_string(), "{mode}: {first}");
    }
}

#[test]
fn notifications_and_responses_get_202() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let messages = [
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "method": "notifications/no-such"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}),
        json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
    ];
    for message in messages {
        let response = session.post(&message);
        assert_eq!((response.status(), response.text()), (202, ""), "{message}");
    }
}

#[test]
fn a_cancelled_call_is_not_answered() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let mut connection = server.connect();
    connection.send(session.post_bytes(&slow_call(json!(77), 20.0, 200)));
    let head = connection.final_head();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
    assert_eq!(session.post(&cancel).status(), 202);
    let events = EventStream::new(connection, &head).until_end();
    let answered =
        events.iter().filter(|event| event.is_message()).any(|event| event.json().get("id").is_some());
    assert!(!answered, "{events:?}");
}

#[test]
fn a_large_message_comes_back_whole() {
    let server = Server::start(&[]);
    let session = Session::open(server.address());
    let message = "äöü€ \u{2028} 𝄞 ".repeat(100_000);
    let answer = answer(&session.post(&echo_call(json!(1), &message)));
    assert!(answer["result"]["content"][0]["text"] == message.as_str());
}

fn echo_accepting(server: &Server, session: &Session, accept: Option<&str>) -> Response {
    let body = echo_call(json!(1), "hello").to_string();
    let length = body.len().to_string();
    let mut fields = session.fields().to_vec();
    fields.extend([("Content-Type", "application/json"), ("Content-Length", length.as_str())]);
    fields.extend(accept.map(|accept| ("Accept", accept)));
    let mut connection = server.connect();
    connection.send(request("POST", &fields, &body));
    connection.response("POST")
}

fn messages_of(response: &Response) -> Vec<Value> {
    events_of(&response.body).iter().filter(|event| event.is_message()).map(Event::json).collect()
}
