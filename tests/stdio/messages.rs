//! What may not change on its way, and what must.

use super::{
    behind::{Behind, begin, finish, value},
    events::EventStream,
    session::{Session, post},
    wire::Connection,
};
use serde_json::{Value, json};

/// In both modes.
fn with_each_mode(check: impl Fn(&Behind)) {
    for flags in [&["--shards", "1"][..], &["--shards", "1", "--stdio-mode", "shared"][..]] {
        let behind = Behind::start(flags);
        check(&behind);
        behind.stop();
    }
}

#[test]
fn equal_ids_of_many_clients_do_not_meet() {
    with_each_mode(|behind| {
        let sessions: Vec<Session> = (0..3).map(|_| behind.session()).collect();
        let calls: Vec<_> = (0..60)
            .map(|number| {
                let arguments = json!({"text": format!("text {number}")});
                begin(&sessions[number % 3], json!(1), "echo", &arguments)
            })
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            let answer = finish(call);
            assert_eq!(answer["id"], 1);
            assert_eq!(answer["result"]["content"][0]["text"], format!("text {number}"));
        }
    });
}

#[test]
fn progress_comes_back_with_the_client_s_own_token() {
    with_each_mode(|behind| {
        let session = behind.session();
        for token in [r#""a\u0062\/c""#, "17", "\"1\""] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":"i\u0064","method":"tools/call","params":{{"name":"slow","arguments":{{"seconds":0.05,"steps":3}},"_meta":{{"progressToken":{token},"x":1.0}}}}}}"#
            );
            let mut connection = Connection::open(session.address());
            connection.send(raw_post(&session, &body));
            let head = connection.final_head();
            let events = EventStream::new(connection, &head).until_end();
            let messages: Vec<&str> =
                events.iter().filter(|event| event.is_message()).map(|event| event.data.as_str()).collect();
            assert_eq!(messages.len(), 4, "{messages:?}");
            for (step, message) in messages[..3].iter().enumerate() {
                assert!(message.contains(&format!(r#""progressToken": {token}"#)), "{message}");
                let message: Value = serde_json::from_str(message).expect("JSON");
                assert_eq!(message["params"]["progress"], step + 1);
            }
            assert!(messages[3].contains(r#""id":"i\u0064""#), "{}", messages[3]);
        }
    });
}

#[test]
fn calls_without_a_token_get_no_progress() {
    with_each_mode(|behind| {
        let session = behind.session();
        let response = session.call("slow", &json!({"seconds": 0.05, "steps": 3}));
        assert_eq!(response["result"]["content"][0]["text"], "done");
    });
}

#[test]
fn line_breaks_inside_a_message_do_not_break_it() {
    with_each_mode(|behind| {
        let session = behind.session();
        let body = "{\r\n \"jsonrpc\": \"2.0\",\n \"id\": 5,\n \"method\": \"tools/call\",\n \"params\": {\r\n  \"name\": \"echo\",\n  \"arguments\": {\n \"text\": \"a\\nb\" } } }";
        let mut connection = Connection::open(session.address());
        connection.send(raw_post(&session, body));
        let answer = super::session::answer(&connection.response("POST"));
        assert_eq!(answer["result"]["content"][0]["text"], "a\nb");
        assert_eq!(value(&session, "echo", &json!({"text": "still in step"})), "still in step");
    });
}

#[test]
fn errors_pass_as_they_are() {
    with_each_mode(|behind| {
        let session = behind.session();
        let answer = session.call("no-such-tool", &json!({}));
        assert_eq!(
            answer["error"],
            json!({"code": -32602, "message": "missing 'no-such-tool'", "data": [1.0]})
        );
        let unknown = session.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "no/such/method"}));
        assert_eq!(super::session::answer(&unknown)["error"]["code"], -32601);
    });
}

#[test]
fn garbage_is_skipped_and_reported() {
    with_each_mode(|behind| {
        let session = behind.session();
        assert_eq!(value(&session, "garbage", &json!({})), "after the garbage");
        assert_eq!(value(&session, "echo", &json!({"text": "goes on"})), "goes on");
        super::until("it is reported", || behind.server.log().contains("Server is listening!"));
    });
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_reported() {
    for mode in ["per-session", "shared"] {
        let behind = Behind::start(&["--max-message", "64KiB", "--stdio-mode", mode]);
        let session = behind.session();
        assert_eq!(value(&session, "long", &json!({"bytes": 3_000_000})), "after the long line");
        super::until("it is reported", || behind.server.log().contains("longer than --max-message"));
        behind.stop();
    }
}

#[test]
fn standard_error_reaches_the_log_in_measure() {
    let behind = Behind::start(&[]);
    let session = behind.session();
    value(&session, "complain", &json!({"count": 2}));
    super::until("it is in the log", || behind.server.log().contains("complaint 1"));
    assert!(!behind.server.log().contains('\u{1b}'), "without control characters");
    assert_eq!(value(&session, "complain", &json!({"count": 20_000})), "complained");
    let lines = behind.server.log().lines().filter(|line| line.contains("complaint")).count();
    assert!(lines < 2_000, "{lines} lines");
    behind.stop();
}

#[test]
fn environment_directory_and_arguments_are_as_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("it is there");
    let path = path.to_str().expect("a path of text");
    let script = super::behind::script();
    let flags = [
        "--child-dir",
        path,
        "--child-env",
        "SOME=a=b",
        "--child-env",
        "HOME=/nowhere",
        "--child-inherit",
        "basic",
    ];
    let behind = Behind::start_command(&flags, &["python3", &script, "--flag", "two words"]);
    let seen = value(&behind.session(), "environment", &json!({}));
    assert_eq!(seen["directory"], path);
    assert_eq!(seen["arguments"], json!(["--flag", "two words"]));
    assert_eq!(
        (seen["variables"]["SOME"].as_str(), seen["variables"]["HOME"].as_str()),
        (Some("a=b"), Some("/nowhere"))
    );
    assert!(seen["variables"]["CARGO_MANIFEST_DIR"].is_null(), "not basic");
    assert!(seen["variables"]["PATH"].is_string());
    behind.stop();
    let behind = Behind::start(&[]);
    let seen = value(&behind.session(), "environment", &json!({}));
    assert!(seen["variables"]["CARGO_MANIFEST_DIR"].is_string(), "all");
    behind.stop();
}

/// The bytes of a POST with exactly this body.
fn raw_post(session: &Session, body: &str) -> Vec<u8> {
    let empty = post(&json!({}), &session.fields());
    let text = String::from_utf8(empty).expect("ASCII");
    let text = text.replace("Content-Length: 2\r\n", &format!("Content-Length: {}\r\n", body.len()));
    format!("{}{body}", text.strip_suffix("{}").expect("the body is last")).into_bytes()
}
