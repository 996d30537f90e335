//! A client of the world: its socket, what it received, and the requests it can send.

use super::{World, http};
use moorline::core::{ConnKey, Ending, SessionKey};

/// Names a client of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientId(pub usize);

/// One connection and what its peer knows.
#[derive(Debug)]
pub struct Client {
    pub shard: usize,
    pub key: ConnKey,
    /// Sent by the client, not yet read by the server.
    pub inbox: Vec<u8>,
    /// Bytes that arrived.
    pub received: Vec<u8>,
    /// Bytes the server's kernel took that did not arrive yet.
    pub unread: Vec<u8>,
    /// What `SIOCOUTQ` says.
    pub unacked: usize,
    /// How much the server's kernel still takes.
    pub window: usize,
    /// Whether what is taken arrives and is acknowledged at once.
    pub acknowledges: bool,
    pub lent: bool,
    pub in_flight: Vec<u8>,
    pub ending: Option<Ending>,
    pub closed: bool,
    /// Whether the client closes its side as soon as the server does.
    pub closes_promptly: bool,
    pub gone: bool,
    pub moves: usize,
    pub initializing: bool,
    pub backend_session: Option<(usize, SessionKey)>,
    /// `Mcp-Session-Id` to send.
    pub session: Option<String>,
}

impl Client {
    pub fn new(shard: usize, key: ConnKey) -> Self {
        Client {
            shard,
            key,
            inbox: Vec::new(),
            received: Vec::new(),
            unread: Vec::new(),
            unacked: 0,
            window: usize::MAX,
            acknowledges: true,
            lent: false,
            in_flight: Vec::new(),
            ending: None,
            closed: false,
            closes_promptly: true,
            gone: false,
            moves: 0,
            initializing: false,
            backend_session: None,
            session: None,
        }
    }

    pub fn server_side_closed(&self) -> bool {
        self.ending.is_some()
    }

    /// Everything received so far as text, taken out.
    pub fn take_text(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.received)).expect("UTF-8")
    }
}

impl World {
    pub fn client(&mut self, client: ClientId) -> &mut Client {
        &mut self.clients[client.0]
    }

    /// Whether the reply whose head was read, a stream, has ended; what came of it is taken out.
    pub fn response_is_over(&mut self, client: ClientId) -> bool {
        let received = std::mem::take(&mut self.client(client).received);
        http::dechunk(&received).1
    }

    /// How many interim responses the client has received and not looked at.
    pub fn interim_responses(&self, client: ClientId) -> usize {
        let received = &self.clients[client.0].received;
        received.windows(12).filter(|bytes| bytes == b"HTTP/1.1 100").count()
    }

    /// What the client received since it was last asked, as one response; a stream may go on after it.
    pub fn response(&mut self, client: ClientId) -> http::Response {
        let bytes = std::mem::take(&mut self.clients[client.0].received);
        let (response, rest) = http::Response::parse(&bytes).unwrap_or_else(|| {
            panic!("no response in {:?}", String::from_utf8_lossy(&bytes));
        });
        self.clients[client.0].received = rest;
        response
    }

    /// Further events of a stream whose head was taken with [`response`](Self::response).
    pub fn events(&mut self, client: ClientId) -> Vec<http::Event> {
        let bytes = std::mem::take(&mut self.clients[client.0].received);
        http::events(&http::dechunk(&bytes).0)
    }

    /// The `text` of every numbered message among new events.
    pub fn texts(&mut self, client: ClientId) -> Vec<String> {
        self.events(client).iter().filter_map(http::Event::text).collect()
    }

    /// Id and `text` of every numbered message among new events.
    pub fn numbered(&mut self, client: ClientId) -> Vec<(String, String)> {
        let named = |event: &http::Event| Some((event.id.clone()?, event.text()?));
        self.events(client).iter().filter_map(named).collect()
    }

    /// Sends a POST with that body in the client's session.
    pub fn post(&mut self, client: ClientId, body: &str) {
        self.post_with(client, "", body);
    }

    /// The same with more header lines.
    pub fn post_with(&mut self, client: ClientId, fields: &str, body: &str) {
        let session = self.session_line(client);
        let accept = if fields.to_ascii_lowercase().contains("accept:") {
            ""
        } else {
            "Accept: application/json, text/event-stream\r\n"
        };
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{accept}{session}{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(client, request);
    }

    pub fn get(&mut self, client: ClientId) {
        self.get_with(client, "");
    }

    pub fn get_after(&mut self, client: ClientId, cursor: &str) {
        self.get_with(client, &format!("Last-Event-ID: {cursor}\r\n"));
    }

    pub fn get_with(&mut self, client: ClientId, fields: &str) {
        let session = self.session_line(client);
        self.send(
            client,
            format!(
                "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{session}{fields}\r\n"
            ),
        );
    }

    pub fn delete(&mut self, client: ClientId) {
        let session = self.session_line(client);
        self.send(client, format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{session}\r\n"));
    }

    fn session_line(&self, client: ClientId) -> String {
        let session = &self.clients[client.0].session;
        session.as_ref().map_or(String::new(), |id| format!("Mcp-Session-Id: {id}\r\n"))
    }

    pub fn initialize_body(revision: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        )
    }

    /// A connection with a session of that revision, landing on shard 0.
    pub fn open(&mut self, revision: &str) -> ClientId {
        self.open_on(0, revision)
    }

    pub fn open_on(&mut self, shard: usize, revision: &str) -> ClientId {
        let client = self.connect_to(shard);
        self.shake_hands(client, revision);
        client
    }

    /// Gives a connection a session of that revision.
    pub fn shake_hands(&mut self, client: ClientId, revision: &str) {
        self.clients[client.0].initializing = true;
        self.post(client, &World::initialize_body(revision));
        let response = self.response(client);
        assert_eq!(response.status, 200, "{response:?}");
        self.clients[client.0].session = response.field("mcp-session-id").map(str::to_owned);
        self.post(client, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(self.response(client).status, 202);
    }

    /// Another connection in the same session.
    pub fn join(&mut self, client: ClientId) -> ClientId {
        let shard = self.clients[client.0].shard;
        self.join_on(client, shard)
    }

    pub fn join_on(&mut self, client: ClientId, shard: usize) -> ClientId {
        let joined = self.connect_to(shard);
        self.clients[joined.0].session = self.clients[client.0].session.clone();
        self.clients[joined.0].backend_session = self.clients[client.0].backend_session;
        joined
    }

    /// Another connection in the same session that went on after `cursor`, and what it got at once.
    pub fn resume(&mut self, client: ClientId, cursor: &str) -> (ClientId, http::Response) {
        let resumed = self.join(client);
        self.get_after(resumed, cursor);
        let response = self.response(resumed);
        (resumed, response)
    }

    /// A call on a connection of its own that was answered by a stream: the id of its last event, and of its first.
    pub fn finished_post(&mut self, client: ClientId) -> (String, String) {
        let caller = self.join(client);
        self.post(caller, r#"{"jsonrpc":"2.0","id":"finished","method":"tools/call"}"#);
        let (shard, call) = self.calls.pop().expect("the backend was asked");
        self.progress(shard, call.key, 1);
        self.answer(shard, call.key, "{}");
        let response = self.response(caller);
        assert!(response.complete, "{response:?}");
        let ids: Vec<String> = response.events().into_iter().filter_map(|event| event.id).collect();
        self.reset(caller);
        (ids[ids.len() - 1].clone(), ids[0].clone())
    }

    /// Another connection in the same session that holds a plain GET stream whose head was read.
    pub fn listen(&mut self, client: ClientId) -> ClientId {
        let listener = self.join(client);
        self.get(listener);
        let head = self.response(listener);
        assert_eq!(head.status, 200, "{head:?}");
        listener
    }
}
