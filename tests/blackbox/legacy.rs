//! HTTP+SSE of 2024-11-05, over sockets.

use super::{
    PATIENCE,
    events::{EventStream, Next},
    server::Server,
    session::{echo_call, initialize, post, request, slow_call, text_of},
    until,
    wire::{Connection, Leave, Response},
};
use serde_json::{Value, json};

/// A session's stream and where it says to post to.
struct Carried<'a> {
    server: &'a Server,
    stream: EventStream,
    uri: String,
}

impl<'a> Carried<'a> {
    fn open(server: &'a Server) -> Self {
        let mut connection = server.connect();
        let bytes = request("GET", &[("Accept", "text/event-stream")], "");
        connection.send(at("/sse", &bytes));
        let head = connection.final_head();
        assert_eq!(head.status, 200);
        let mut stream = EventStream::new(connection, &head);
        let Next::Event(endpoint) = stream.next_within(PATIENCE) else { panic!("no endpoint event") };
        assert_eq!((endpoint.name.as_deref(), &endpoint.id), (Some("endpoint"), &None));
        let mut carried = Carried { server, stream, uri: endpoint.data };
        assert_eq!(carried.post(&initialize("2024-11-05")).status(), 202);
        assert_eq!(carried.message()["result"]["protocolVersion"], "2024-11-05");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(carried.post(&initialized).status(), 202);
        carried
    }

    /// On a connection of its own, which lands where it may.
    fn post(&self, message: &Value) -> Response {
        let mut connection = Connection::open(self.server.address());
        connection.send(at(&self.uri, &post(message, &[])));
        connection.response("POST")
    }

    fn message(&mut self) -> Value {
        self.stream.message().json()
    }
}

/// The same request of another target.
fn at(target: &str, request: &[u8]) -> Vec<u8> {
    String::from_utf8(request.to_vec())
        .expect("a request of a test is text")
        .replacen("/mcp", target, 1)
        .into()
}

#[test]
fn a_session_is_carried_by_its_stream_whichever_shard_a_post_lands_on() {
    let server = Server::start(&["--shards", "2"]);
    let mut carried = Carried::open(&server);
    for number in 0..16 {
        assert_eq!(carried.post(&echo_call(json!(number), "hello")).status(), 202);
        let answer = carried.message();
        assert_eq!((&answer["id"], text_of(&answer)), (&json!(number), "hello"));
    }
    let mut slow = slow_call(json!("slow"), 0.2, 2);
    slow["params"]["_meta"] = json!({"progressToken": "t"});
    assert_eq!(carried.post(&slow).status(), 202);
    assert_eq!(carried.message()["method"], "notifications/progress");
    while carried.message()["id"] != "slow" {}
    let Carried { stream, uri, .. } = carried;
    stream.leave(Leave::Rst);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    until("the session is gone with its stream", || {
        let mut connection = server.connect();
        connection.send(at(&uri, &post(&ping, &[])));
        connection.response("POST").status() == 404
    });
}

#[test]
fn it_is_off_when_told_so() {
    let server = Server::start(&["--legacy-sse", "off"]);
    let mut connection = server.connect();
    connection.send(at("/sse", &request("GET", &[("Accept", "text/event-stream")], "")));
    assert_eq!(connection.response("GET").status(), 404);
}
