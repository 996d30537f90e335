//! Requests as bytes and replies as values, for tests that say everything about an exchange themselves.

use super::{World, client::ClientId, http};
use moorline::core::{Call, Ending};
use serde_json::Value;

/// A JSON-RPC request; `id` as it is to be written.
pub fn request(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

pub fn notification(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

/// The cancellation of request `id`, as written.
pub fn cancellation(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"x"}}}}"#
    )
}

/// A body in chunks of that many bytes.
pub fn chunked(body: &str, size: usize) -> String {
    let chunks = body.as_bytes().chunks(size).map(|chunk| {
        let text = std::str::from_utf8(chunk).expect("ASCII");
        format!("{:x}\r\n{text}\r\n", chunk.len())
    });
    chunks.collect::<String>() + "0\r\n\r\n"
}

/// The head of a POST of JSON, with more field lines, each ended by CR LF.
pub fn post_head(fields: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}\r\n")
}

/// A POST that accepts both forms.
pub fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    post_head(&format!("Accept: */*\r\n{fields}Content-Length: {length}\r\n")) + body
}

/// A GET or DELETE of the endpoint.
pub fn bodiless(method: &str, fields: &str) -> String {
    format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

impl World {
    /// The client's `Mcp-Session-Id` line.
    pub fn session_field(&self, client: ClientId) -> String {
        let id = self.clients[client.0].session.as_ref().expect("the client initialized");
        format!("Mcp-Session-Id: {id}\r\n")
    }

    /// Sends bytes and takes the one reply there must be.
    pub fn exchange(&mut self, client: ClientId, bytes: impl AsRef<[u8]>) -> http::Response {
        self.send(client, bytes);
        self.response(client)
    }

    /// Sends bytes on a connection of their own and takes the one reply.
    pub fn exchange_alone(&mut self, bytes: impl AsRef<[u8]>) -> http::Response {
        let client = self.connect();
        self.exchange(client, bytes)
    }

    /// A POST in the client's session and its reply.
    pub fn ask_for(&mut self, client: ClientId, body: &str) -> http::Response {
        self.post(client, body);
        self.response(client)
    }

    /// Whether the session still answers.
    pub fn is_alive(&mut self, client: ClientId) -> bool {
        let probe = self.join(client);
        let status = self.ask_for(probe, &request("0", "ping")).status;
        self.reset(probe);
        status == 200
    }

    /// Every reply received so far; what is left must be nothing.
    pub fn responses(&mut self, client: ClientId) -> Vec<http::Response> {
        let mut bytes = std::mem::take(&mut self.client(client).received);
        let mut responses = Vec::new();
        while !bytes.is_empty() {
            let Some((response, rest)) = http::Response::parse(&bytes) else {
                panic!("no response in {:?}", String::from_utf8_lossy(&bytes));
            };
            responses.push(response);
            bytes = rest;
        }
        responses
    }

    pub fn is_silent(&mut self, client: ClientId) -> bool {
        self.client(client).received.is_empty()
    }

    pub fn ending(&mut self, client: ClientId) -> Option<Ending> {
        self.client(client).ending
    }

    /// A POST of a call in the client's session that is with the backend now.
    pub fn begin(&mut self, client: ClientId, id: &str) -> (usize, Call) {
        let known = self.calls.len();
        self.post(client, &request(id, "tools/call"));
        assert_eq!(self.calls.len(), known + 1, "the backend was asked");
        self.calls.pop().expect("seen above")
    }

    /// A call whose reply is a stream of which the head was read.
    pub fn begin_stream(&mut self, client: ClientId, id: &str) -> (usize, Call) {
        let (shard, call) = self.begin(client, id);
        self.progress(shard, call.key, 1);
        let head = self.response(client);
        assert!(head.is_stream() && !head.complete, "{head:?}");
        (shard, call)
    }

    /// Armed timers of all shards.
    pub fn timers(&self) -> usize {
        self.shards.iter().map(|shard| shard.population().timers).sum()
    }

    /// One counter, summed over the shards.
    pub fn counted(&self, name: &str) -> u64 {
        let of = |shard: &moorline::core::shard::Shard| {
            let mut counters = shard.counters().iter();
            counters.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no counter {name}")).1
        };
        self.shards.iter().map(of).sum()
    }

    /// Nothing of any session is left anywhere, and no timer but those of connections.
    pub fn assert_no_session_left(&self) {
        for shard in &self.shards {
            let left = shard.population();
            assert_eq!((left.sessions, left.streams, left.calls), (0, 0, 0), "{left:?}");
            assert!(left.timers <= left.conns, "{left:?}");
        }
        assert_eq!(self.census.sessions(), 0);
    }
}

impl http::Response {
    /// The code of a JSON-RPC error.
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error in {:?}", self.text()))
    }

    /// The JSON-RPC messages of a stream, priming and comments left out.
    pub fn messages(&self) -> Vec<Value> {
        messages(&self.events())
    }
}

/// The JSON-RPC messages among events.
pub fn messages(events: &[http::Event]) -> Vec<Value> {
    let has_data = |event: &&http::Event| event.data.as_deref().is_some_and(|data| !data.is_empty());
    events.iter().filter(has_data).map(http::Event::json).collect()
}
