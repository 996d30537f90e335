//! Clients of one shared child that reach for each other through it.

use super::{
    behind::{Behind, begin, value},
    events::EventStream,
    session::Session,
    until,
    wire::Connection,
};
use serde_json::{Value, json};

const SHARED: [&str; 4] = ["--stdio-mode", "shared", "--shards", "1"];

/// A body that no serialiser would write.
fn send_raw(session: &Session, body: &str) {
    let mut connection = Connection::open(session.address());
    let [(id, session_id), (version, revision)] = session.fields();
    connection.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n{id}: {session_id}\r\n\
         {version}: {revision}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let (reply, _) = connection.rest();
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", reply.escape_ascii());
}

/// The child takes the last of repeated members, and numbers for what they are worth: it speaks of any token it is led to.
#[test]
fn nobody_makes_a_child_speak_of_the_progress_of_another_s_call() {
    let behind = Behind::start(&SHARED);
    let (victim, hostile) = (behind.session(), behind.session());
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "slow", "arguments": {"seconds": 3, "steps": 1}, "_meta": {"progressToken": "mine"}}});
    let mut connection = Connection::open(victim.address());
    connection.send(victim.post_bytes(&call));
    let seen = || value(&hostile, "seen", &json!({}))["called"]["slow"].clone();
    until("it is under way", || seen().is_array());
    let number = seen()[0].as_u64().expect("a number of ours");
    for meta in [
        format!(r#"{{"progressToken":0,"progressToken":{number}}}"#),
        format!(r#"{{"progressToken":0,"progressToken":"{number}"}}"#),
        format!(r#"{{"progressToken":0,"progressToken":"{number}-0"}}"#),
        format!(r#"{{"progressToken":0,"progressToken":"{number}-0000000000000000"}}"#),
        format!(r#"{{"progressToken":0}},"_meta":{{"progressToken":{number}}}"#),
        format!(r#"{{"progressToken":0,"progress\u0054oken":{number}}}"#),
        format!(r#"{{"progressToken":{number}.0}}"#),
        format!(r#"{{"progressToken":{number}}}"#),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"slow","arguments":{{"seconds":0,"steps":3}},"_meta":{meta}}}}}"#
        );
        send_raw(&hostile, &body);
    }
    let head = connection.final_head();
    let events = EventStream::new(connection, &head).until_end();
    let messages: Vec<Value> =
        events.iter().filter(|event| event.is_message()).map(|event| event.json()).collect();
    assert_eq!(messages.len(), 2, "its own progress, and its answer: {messages:?}");
    assert_eq!(messages[0]["params"], json!({"progress": 1, "progressToken": "mine"}));
    behind.stop();
}

#[test]
fn only_who_was_asked_says_how_far_it_is() {
    let behind = Behind::start(&SHARED);
    let capabilities = json!({"sampling": {}});
    let asked = Session::open_as(behind.server.address(), &capabilities);
    let other = Session::open_as(behind.server.address(), &capabilities);
    let wish = json!({"_meta": {"progressToken": "t"}});
    let mut connection = begin(&asked, json!(1), "sample", &wish);
    let head = connection.final_head();
    let mut stream = EventStream::new(connection, &head);
    let question = stream.message().json();
    let say = |session: &Session, progress: u32, token: &str| {
        let params =
            json!({"progress": progress, "progressToken": token, "ProgressToken": "u", "message": "m"});
        let said = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        assert_eq!(session.post(&said).status(), 202);
    };
    say(&other, 1, "t");
    say(&asked, 2, "u");
    say(&asked, 3, "t");
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {}});
    assert_eq!(asked.post(&reply).status(), 202);
    stream.message();
    say(&asked, 4, "t");
    assert_eq!(
        value(&asked, "seen", &json!({}))["progress"],
        json!([{"progress": 3, "progressToken": "t", "message": "m"}]),
        "of nobody else's question, and in no words that mean another"
    );
    behind.stop();
}
