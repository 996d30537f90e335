//! An MCP session as a client holds it.

use super::{
    events::{Event, EventStream, events_of},
    wire::{Connection, Head, Leave, Response},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The newest revision with sessions, the first with priming events.
pub(crate) const NEWEST: &str = "2025-11-25";

/// A session and where it lives. Every request takes a connection of its own unless it is given one.
#[derive(Clone)]
pub(crate) struct Session {
    address: SocketAddr,
    /// The session's id.
    pub(crate) id: String,
    revision: &'static str,
}

impl Session {
    /// Initialises a session of the newest revision.
    pub(crate) fn open(address: SocketAddr) -> Session {
        Session::open_with(address, NEWEST)
    }

    /// Initialises a session of `revision`.
    pub(crate) fn open_with(address: SocketAddr, revision: &'static str) -> Session {
        let session = Session::open_silent(address, revision);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized).status(), 202);
        session
    }

    /// Initialises a session of the newest revision whose client can do that.
    #[allow(dead_code, reason = "not every test crate has such clients")]
    pub(crate) fn open_as(address: SocketAddr, capabilities: &Value) -> Session {
        let mut message = initialize(NEWEST);
        message["params"]["capabilities"] = capabilities.clone();
        let session = Session::begin(&mut Connection::open(address), address, NEWEST, &message);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized).status(), 202);
        session
    }

    /// Sends `initialize` and nothing after it.
    pub(crate) fn open_silent(address: SocketAddr, revision: &'static str) -> Session {
        Session::begin(&mut Connection::open(address), address, revision, &initialize(revision))
    }

    /// As [`open_silent`](Self::open_silent), on `connection`, which leads to `address`.
    #[allow(dead_code, reason = "not every test crate counts its connections")]
    pub(crate) fn open_silent_on(
        connection: &mut Connection,
        address: SocketAddr,
        revision: &'static str,
    ) -> Session {
        Session::begin(connection, address, revision, &initialize(revision))
    }

    fn begin(
        connection: &mut Connection,
        address: SocketAddr,
        revision: &'static str,
        message: &Value,
    ) -> Session {
        connection.send(post(message, &[]));
        let response = connection.response("POST");
        assert_eq!(response.status(), 200, "{}", response.text());
        let id = response.head.field("mcp-session-id").expect("a session id").to_owned();
        Session { address, id, revision }
    }

    /// The index of the shard it lives on, which its id begins with.
    pub(crate) fn shard(&self) -> u8 {
        u8::from_str_radix(&self.id[..2], 16).expect("two hexadecimal digits")
    }

    /// The fields every request of it carries.
    pub(crate) fn fields(&self) -> [(&str, &str); 2] {
        [("Mcp-Session-Id", &self.id), ("MCP-Protocol-Version", self.revision)]
    }

    /// The bytes of a POST of `message`.
    pub(crate) fn post_bytes(&self, message: &Value) -> Vec<u8> {
        post(message, &self.fields())
    }

    /// Posts `message` on a connection of its own.
    pub(crate) fn post(&self, message: &Value) -> Response {
        self.post_on(&mut Connection::open(self.address), message)
    }

    /// Posts `message` on `connection`.
    pub(crate) fn post_on(&self, connection: &mut Connection, message: &Value) -> Response {
        connection.send(self.post_bytes(message));
        connection.response("POST")
    }

    /// Calls a tool and gives its response, whatever form the reply has.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.call_on(&mut Connection::open(self.address), tool, arguments)
    }

    /// As [`call`](Self::call), on `connection`.
    pub(crate) fn call_on(&self, connection: &mut Connection, tool: &str, arguments: &Value) -> Value {
        answer(&self.post_on(connection, &tool_call(json!(1), tool, arguments)))
    }

    /// Has the server send this session one log message that nothing merges.
    pub(crate) fn notify(&self) {
        self.notify_on(&mut Connection::open(self.address));
    }

    /// As [`notify`](Self::notify), on `connection`.
    pub(crate) fn notify_on(&self, connection: &mut Connection) {
        let response = self.call_on(connection, "notify", &json!({"kind": "message", "scope": "session"}));
        assert!(response["result"]["isError"] != true, "{response}");
    }

    /// Makes a call that is answered as a stream, and gives its events.
    pub(crate) fn streamed_call_on(&self, connection: &mut Connection) -> Vec<Event> {
        let response = self.post_on(connection, &slow_call(json!(1), 0.005, 1));
        assert_eq!(response.head.field("content-type"), Some("text/event-stream"), "progress comes first");
        events_of(&response.body)
    }

    /// The cursors of `count` calls that are finished.
    pub(crate) fn finished_cursors(&self, count: usize) -> Vec<String> {
        let mut connection = Connection::open(self.address);
        (0..count)
            .map(|_| {
                let events = self.streamed_call_on(&mut connection);
                events.iter().rev().find_map(|event| event.id.clone()).expect("events carry ids")
            })
            .collect()
    }

    /// Opens a plain listener stream.
    pub(crate) fn listen(&self) -> EventStream {
        self.listen_from(None)
    }

    /// Opens a GET stream, with a cursor if there is one.
    pub(crate) fn listen_from(&self, cursor: Option<&str>) -> EventStream {
        self.listen_on(Connection::open(self.address), cursor)
    }

    /// As [`listen_from`](Self::listen_from), on `connection`.
    pub(crate) fn listen_on(&self, connection: Connection, cursor: Option<&str>) -> EventStream {
        let (connection, head) = self.try_listen_on(connection, cursor);
        EventStream::new(connection, &head)
    }

    /// Sends the GET and gives whatever head comes back.
    pub(crate) fn try_listen_on(
        &self,
        mut connection: Connection,
        cursor: Option<&str>,
    ) -> (Connection, Head) {
        connection.send(self.get_bytes(cursor));
        let head = connection.final_head();
        (connection, head)
    }

    /// The bytes of a GET.
    pub(crate) fn get_bytes(&self, cursor: Option<&str>) -> Vec<u8> {
        let mut fields = self.fields().to_vec();
        fields.push(("Accept", "text/event-stream"));
        fields.extend(cursor.map(|cursor| ("Last-Event-ID", cursor)));
        request("GET", &fields, "")
    }

    /// The status of a GET that is then left.
    pub(crate) fn get_status(&self) -> u16 {
        let (connection, head) = self.try_listen_on(Connection::open(self.address), None);
        connection.leave(Leave::Fin);
        head.status
    }

    /// Deletes the session and gives the status.
    pub(crate) fn delete(&self) -> u16 {
        let mut connection = Connection::open(self.address);
        connection.send(request("DELETE", &self.fields(), ""));
        connection.response("DELETE").status()
    }

    /// The status of a ping.
    pub(crate) fn ping_status(&self) -> u16 {
        self.post(&ping(json!(7))).status()
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The one JSON-RPC response in an HTTP response, JSON or event stream.
pub(crate) fn answer(response: &Response) -> Value {
    assert_eq!(response.status(), 200, "{}", response.text());
    if response.head.field("content-type") == Some("application/json") {
        return response.json();
    }
    let messages: Vec<Value> =
        events_of(&response.body).iter().filter(|event| event.is_message()).map(Event::json).collect();
    let answers = messages.iter().filter(|message| message.get("id").is_some()).count();
    assert_eq!(answers, 1, "{messages:?}");
    messages
        .last()
        .filter(|last| last.get("id").is_some())
        .cloned()
        .expect("the response is the last message")
}

/// `initialize` for `revision`.
pub(crate) fn initialize(revision: &str) -> Value {
    let client = json!({"name": "blackbox", "version": "1"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

/// `ping`.
pub(crate) fn ping(id: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

/// `tools/call`.
pub(crate) fn tool_call(id: Value, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// A call of `echo`.
pub(crate) fn echo_call(id: Value, message: &str) -> Value {
    tool_call(id, "echo", &json!({"message": message}))
}

/// A call of `slow` that reports progress, so that its reply is a stream.
pub(crate) fn slow_call(id: Value, seconds: f64, steps: u32) -> Value {
    let mut call = tool_call(id, "slow", &json!({"seconds": seconds, "steps": steps}));
    call["params"]["_meta"] = json!({"progressToken": "p"});
    call
}

/// The text a tool answered with.
pub(crate) fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The bytes of a POST of `message` with the usual fields and `fields`.
pub(crate) fn post(message: &Value, fields: &[(&str, &str)]) -> Vec<u8> {
    let body = message.to_string();
    let length = body.len().to_string();
    let mut all = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Length", length.as_str()),
    ];
    all.extend_from_slice(fields);
    request("POST", &all, &body)
}

/// The bytes of a request to the endpoint.
pub(crate) fn request(method: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut bytes = format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in fields {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str("\r\n");
    bytes.push_str(body);
    bytes.into_bytes()
}

/// The bytes of a request of 2026-07-28, which has no session, with more fields.
pub(crate) fn stateless(method: &str, mut params: Value, fields: &[(&str, &str)]) -> Vec<u8> {
    const REVISION: &str = "2026-07-28";
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let own = [("MCP-Protocol-Version", REVISION), ("Mcp-Method", method), ("Mcp-Name", &name)];
    post(&message, &[&own, fields].concat())
}
