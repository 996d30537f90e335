//! The clients: each agent has one session at a time and habits of its own.
//!
//! An SDK-like agent keeps a listener, comes back with the cursor of what it saw last, and fetches the rest of a POST
//! whose stream broke. An EventSource comes back with a cursor whenever any stream ends, also a finished one. A
//! rude one resets, stalls, vanishes, sends nonsense and cursors that are not its own. All of them misbehave at times.

use super::{
    model::{Call, Rewind},
    rng::Rng,
    sim::{Sim, note},
    socket::{Asked, Exchange, Network, Peer},
    wire::{Block, Id, Item, What},
};
use moorline::core::Revision;

#[derive(Debug)]
pub struct Agent {
    pub manners: Manners,
    pub revision: Revision,
    /// The session it uses, once it knows its id.
    pub session: Option<usize>,
    pub is_initializing: bool,
    /// Streams to come back to: when, the cursor if any.
    pub returns: Vec<(u64, Option<String>)>,
    /// Every event id it ever saw in this session.
    pub seen_ids: Vec<String>,
    /// Answered 405 on a GET with a cursor: an EventSource stops.
    pub gave_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    Sdk,
    EventSource,
    Rude,
}

impl Agent {
    pub fn draw(rng: &mut Rng) -> Self {
        let manners = rng.pick(&[Manners::Sdk, Manners::Sdk, Manners::EventSource, Manners::Rude]);
        let revision = rng.pick(&[
            Revision::V2025_11_25,
            Revision::V2025_11_25,
            Revision::V2025_06_18,
            Revision::V2025_03_26,
        ]);
        Agent::new(manners, revision)
    }

    pub fn new(manners: Manners, revision: Revision) -> Self {
        Agent {
            manners,
            revision,
            session: None,
            is_initializing: false,
            returns: Vec::new(),
            seen_ids: Vec::new(),
            gave_up: false,
        }
    }
}

// --- What a client does -------------------------------------------------------------------------

impl Sim {
    pub fn act(&mut self) {
        let agent = self.rng.below(self.agents.len());
        let Some(session) = self.agents[agent].session else {
            if !self.agents[agent].is_initializing {
                self.initialize(agent);
            }
            return self.misbehave(agent, None);
        };
        if self.come_back(agent) {
            return;
        }
        match self.rng.weighted(&[30, 10, 6, 6, 3, 1, 3, 22]) {
            0 => self.call(agent, session),
            1 => self.listen(agent, session),
            2 => self.return_somewhere(agent, session),
            3 => self.cancel(agent, session),
            4 => self.ping(agent, session),
            5 => self.delete(agent, session),
            6 => self.set_level(agent, session),
            _ => self.misbehave(agent, Some(session)),
        }
    }

    fn initialize(&mut self, agent: usize) {
        let Some(socket) = self.connect(agent) else { return };
        self.agents[agent].is_initializing = true;
        let revision = self.agents[agent].revision.date();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{"elicitation":{{}}}},"clientInfo":{{"name":"c","version":"1","socket":{socket}}}}}}}"#
        );
        self.post(socket, None, Asked::Initialize, &body);
    }

    fn come_back(&mut self, agent: usize) -> bool {
        let now_ms = self.now.ms;
        let Some(index) = self.agents[agent].returns.iter().position(|(at_ms, _)| *at_ms <= now_ms) else {
            return false;
        };
        let (_, cursor) = self.agents[agent].returns.remove(index);
        let session = self.agents[agent].session.expect("it acts in one");
        let cursor = self.remembered(cursor);
        self.get(agent, session, cursor);
        true
    }

    /// The cursor, unless the client lost it: some restart, some never keep one.
    pub fn remembered(&mut self, cursor: Option<String>) -> Option<String> {
        let is_listener = cursor.as_ref().is_some_and(|cursor| Id::parse(cursor).stream.0 == 'l');
        cursor.filter(|_| !is_listener || self.rng.percent(70))
    }

    pub fn call(&mut self, agent: usize, session: usize) {
        let Some(socket) = self.socket_for(agent, session) else { return };
        let batch = self.agents[agent].revision == Revision::V2025_03_26 && self.rng.percent(25);
        let count = if batch { self.rng.between(1, 3) } else { 1 };
        let exchange = self.sockets[socket].exchanges.len();
        let (mut calls, mut bodies) = (Vec::new(), Vec::new());
        for place in 0..count {
            let n = self.model.number();
            let id = match self.rng.below(3) {
                0 => format!("{}", place + 1),
                1 => format!("{n}"),
                _ => format!("\"call {n}\""),
            };
            bodies.push(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"n":{n},"_meta":{{"progressToken":{n}}}}}}}"#
            ));
            calls.push(n);
            self.model.calls.insert(n, Call::new(session, id, socket, exchange));
        }
        let body = if batch { format!("[{}]", bodies.join(",")) } else { bodies.remove(0) };
        self.post(socket, Some(session), Asked::Calls(calls), &body);
    }

    pub fn listen(&mut self, agent: usize, session: usize) {
        let open = self.open_listeners(agent, session);
        let enough = if self.agents[agent].manners == Manners::Sdk { 1 } else { 3 };
        if open < enough {
            self.get(agent, session, None);
        }
    }

    fn open_listeners(&self, agent: usize, session: usize) -> usize {
        let open = self.sockets.iter().filter(|socket| socket.agent == agent && socket.client_reads());
        open.flat_map(|socket| socket.exchanges.last())
            .filter(|exchange| exchange.session == Some(session) && !exchange.seen_over)
            .filter(|exchange| matches!(exchange.asked, Asked::Plain | Asked::Cursor(_)))
            .count()
    }

    /// A GET with some cursor this agent has seen, however old.
    fn return_somewhere(&mut self, agent: usize, session: usize) {
        let seen = &self.agents[agent].seen_ids;
        if !seen.is_empty() && self.agents[agent].manners != Manners::Sdk {
            let cursor = seen[self.rng.below(seen.len())].clone();
            self.get(agent, session, Some(cursor));
        }
    }

    pub fn get(&mut self, agent: usize, session: usize, cursor: Option<String>) -> Option<usize> {
        let socket = self.socket_for(agent, session)?;
        let field = cursor.as_ref().map_or(String::new(), |cursor| format!("Last-Event-ID: {cursor}\r\n"));
        let model = &mut self.model.sessions[session];
        model.got_ms = self.now.ms;
        let asked = match cursor {
            None => Asked::Plain,
            Some(cursor) => {
                let id = Id::parse(&cursor);
                let exchange = self.sockets[socket].exchanges.len();
                let (stream, sequence) = (id.stream, id.sequence);
                model.rewinds.push(Rewind { stream, sequence, socket, exchange });
                model.disturbed_step = self.step;
                Asked::Cursor(cursor)
            }
        };
        let line = self.session_line(session);
        let request =
            format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{line}{field}\r\n");
        self.send(socket, Some(session), asked, &request);
        Some(socket)
    }

    fn cancel(&mut self, agent: usize, session: usize) {
        let running: Vec<u64> = self.working.iter().map(|(_, _, n)| *n).collect();
        let mine: Vec<u64> = running.into_iter().filter(|n| self.model.calls[n].session == session).collect();
        if mine.is_empty() {
            return;
        }
        let Some(socket) = self.socket_for(agent, session) else { return };
        let id = self.model.calls[&mine[self.rng.below(mine.len())]].id.clone();
        for call in self.model.calls.values_mut().filter(|call| call.session == session && call.id == id) {
            call.may_be_cancelled = true;
        }
        self.model.sessions[session].cancels.push((self.step, id.clone()));
        let body = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        self.post(socket, Some(session), Asked::Notice, &body);
    }

    fn ping(&mut self, agent: usize, session: usize) {
        let Some(socket) = self.socket_for(agent, session) else { return };
        let n = self.model.number();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#);
        self.post(socket, Some(session), Asked::Ping(n), &body);
    }

    fn set_level(&mut self, agent: usize, session: usize) {
        let Some(socket) = self.socket_for(agent, session) else { return };
        let n = self.model.number();
        let level = self.rng.pick(&["debug", "error"]);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        );
        self.post(socket, Some(session), Asked::Ping(n), &body);
    }

    pub fn delete(&mut self, agent: usize, session: usize) {
        let Some(socket) = self.socket_for(agent, session) else { return };
        let line = self.session_line(session);
        let request = format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{line}\r\n");
        self.send(socket, Some(session), Asked::Delete, &request);
        self.forget_session(agent);
    }

    fn forget_session(&mut self, agent: usize) {
        let agent = &mut self.agents[agent];
        agent.session = None;
        agent.is_initializing = false;
        agent.returns.clear();
        agent.seen_ids.clear();
        agent.gave_up = false;
    }

    fn misbehave(&mut self, agent: usize, session: Option<usize>) {
        let rude = self.agents[agent].manners == Manners::Rude;
        if !rude && self.rng.percent(70) {
            return;
        }
        if rude && self.rng.percent(20) {
            return self.send_nonsense(agent, session);
        }
        let mine: Vec<usize> = (0..self.sockets.len())
            .filter(|socket| self.sockets[*socket].agent == agent && self.sockets[*socket].client_reads())
            .collect();
        if mine.is_empty() {
            return;
        }
        let socket = mine[self.rng.below(mine.len())];
        let what = self.rng.weighted(&[25, 10, 25, 10, 15, 15]);
        self.harm(socket, what);
    }

    /// Something of what clients and networks do to connections.
    pub fn harm(&mut self, socket: usize, what: usize) {
        let agent = self.sockets[socket].agent;
        let entry = &mut self.sockets[socket];
        match what {
            0 => entry.peer = Peer::Closed,
            1 => entry.peer = Peer::WriteClosed,
            2 => entry.peer = Peer::Reset,
            3 => entry.network = Network::Black,
            4 => entry.network = Network::Stalled,
            _ if entry.network == Network::Stalled => entry.network = Network::Fine,
            _ => entry.window = 200,
        }
        let names = [
            "closes",
            "closes its write side of",
            "resets",
            "vanishes from",
            "stops reading",
            "resumes or narrows",
        ];
        note!(self, "agent {agent} {} socket {socket}", names[what]);
        let entry = &mut self.sockets[socket];
        if matches!(entry.peer, Peer::Closed | Peer::Reset) {
            entry.inbox.clear();
            entry.eof_seen = true;
            self.saw_end(socket);
        } else if entry.network == Network::Black {
            // The client gave its side up long before the server can know.
            entry.eof_seen = true;
            self.saw_end(socket);
        }
    }

    fn send_nonsense(&mut self, agent: usize, session: Option<usize>) {
        let Some(socket) = self.connect(agent) else { return };
        let line = session.map_or(String::new(), |session| self.session_line(session));
        let get = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n";
        let (request, statuses): (String, &'static [u16]) = match self.rng.below(9) {
            0 => ("NONSENSE\r\n\r\n".into(), &[400]),
            1 => (format!("{get}\r\n"), &[400]),
            2 => (format!("{get}Mcp-Session-Id: 00000000000000000000000000000000000000000f\r\n\r\n"), &[404]),
            3 => (format!("{get}Mcp-Session-Id: x\r\n\r\n"), &[404]),
            4 => (format!("{get}{line}Last-Event-ID: aaaaaa-l1-1\r\n\r\n"), &[400, 404]),
            5 => (format!("{get}{line}Last-Event-ID: what\r\n\r\n"), &[400, 404]),
            6 => (
                format!(
                    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n{line}Content-Length: 5\r\n\r\n{{\"a\":"
                ),
                &[400, 404],
            ),
            7 => (format!("PUT /mcp HTTP/1.1\r\nHost: localhost\r\n{line}\r\n"), &[405]),
            _ => ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Le".into(), &[408, 400]),
        };
        self.send(socket, None, Asked::Refusable(statuses), &request);
    }

    fn session_line(&self, session: usize) -> String {
        let id = self.model.sessions[session].id.as_ref().expect("the client knows it");
        format!("Mcp-Session-Id: {id}\r\n")
    }

    /// A connection for another request: an idle one, or a new one, or for the impatient a busy one.
    fn socket_for(&mut self, agent: usize, _session: usize) -> Option<usize> {
        let mine = |sim: &Sim, socket: &usize| sim.sockets[*socket].agent == agent;
        let idle: Vec<usize> = (0..self.sockets.len())
            .filter(|socket| mine(self, socket) && self.sockets[*socket].is_idle_for_client())
            .collect();
        if !idle.is_empty() && self.rng.percent(60) {
            return Some(idle[self.rng.below(idle.len())]);
        }
        let busy: Vec<usize> = (0..self.sockets.len())
            .filter(|socket| mine(self, socket) && self.sockets[*socket].client_writes())
            .collect();
        if !busy.is_empty() && !self.is_calm && self.rng.percent(8) {
            return Some(busy[self.rng.below(busy.len())]);
        }
        self.connect(agent)
    }

    fn post(&mut self, socket: usize, session: Option<usize>, asked: Asked, body: &str) {
        let line = session.map_or(String::new(), |session| self.session_line(session));
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        let request = if self.rng.percent(20) {
            let (first, second) = body.split_at(body.len() / 2);
            format!(
                "{head}{line}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
                first.len(),
                second.len()
            )
        } else {
            format!("{head}{line}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        self.send(socket, session, asked, &request);
    }

    pub fn send(&mut self, socket: usize, session: Option<usize>, asked: Asked, request: &str) {
        self.step += 1;
        note!(self, "agent {} on socket {socket}: {asked:?}", self.sockets[socket].agent);
        self.sockets[socket].inbox.extend(request.as_bytes());
        self.sockets[socket].exchanges.push(Exchange::new(asked, session, self.step, self.now.ms));
    }
}

// --- What a client sees -------------------------------------------------------------------------

impl Sim {
    /// Whatever has arrived in whole is seen.
    pub fn observe(&mut self, socket: usize) {
        if !self.sockets[socket].client_reads() {
            return;
        }
        while let Some(item) = self.sockets[socket].on_the_way.front()
            && item.end <= self.sockets[socket].arrived
        {
            let item = self.sockets[socket].on_the_way.pop_front().expect("seen above");
            self.see(socket, &item);
        }
    }

    fn see(&mut self, socket: usize, item: &Item) {
        let agent = self.sockets[socket].agent;
        let Some(exchange) = self.sockets[socket].exchanges.get(item.exchange) else { return };
        let (asked, session) = (exchange.asked.clone(), exchange.session);
        if let Asked::Stateless(_) = asked {
            self.sockets[socket].exchanges[item.exchange].seen_over |= matches!(item.what, What::End);
            return;
        }
        match &item.what {
            What::Head(head) => match (&asked, head.status) {
                (Asked::Initialize, 200) => {
                    // An initialize that failed begins no session.
                    if let Some(id) = head.field("mcp-session-id") {
                        // A stream may begin before the backend hears of its session.
                        match session {
                            Some(session) => self.model.sessions[session].id = Some(id.to_owned()),
                            None => {
                                self.sockets[socket].exchanges[item.exchange].session_id = Some(id.to_owned())
                            }
                        }
                    }
                }
                (Asked::Initialize, _) => self.agents[agent].is_initializing = false,
                (_, 404) if self.agents[agent].session == session => self.forget_session(agent),
                (Asked::Cursor(_), 405) => self.agents[agent].gave_up = true,
                _ => {}
            },
            What::Block(block) => self.see_block(socket, item.exchange, block),
            What::Body(body) => {
                if let Asked::Calls(calls) = &asked
                    && !body.is_empty()
                {
                    for call in calls {
                        self.model.calls.get_mut(call).expect("known").seen = true;
                    }
                }
            }
            What::End => {
                self.sockets[socket].exchanges[item.exchange].seen_over = true;
                if asked == Asked::Initialize {
                    self.greeted(socket, item.exchange);
                }
                self.stream_ended(socket, item.exchange);
            }
        }
    }

    fn see_block(&mut self, socket: usize, number: usize, block: &Block) {
        let agent = self.sockets[socket].agent;
        let exchange = &mut self.sockets[socket].exchanges[number];
        let Some(id) = &block.id else { return self.see_recovered(block) };
        let Some(session) = exchange.session.filter(|_| exchange.asked != Asked::Initialize) else { return };
        exchange.last_seen = Some(id.clone());
        if self.agents[agent].session == Some(session) {
            self.agents[agent].seen_ids.push(id.clone());
        }
        let Some(json) = block.json() else { return };
        if json["method"] == "notifications/cancelled" {
            return;
        }
        if json.get("method").is_some() {
            let m = json["params"]["m"].as_u64().expect("messages are numbered");
            if let Some(message) = self.model.sessions[session].inbox.get_mut(&m) {
                message.seen = true;
            }
            if json.get("id").is_some() && self.agents[agent].session == Some(session) && self.rng.percent(80)
            {
                self.answer_server(agent, session, &json["id"].to_string());
            }
            return;
        }
        exchange.answers_seen += 1;
        let id = Id::parse(id);
        let response = Some((id.stream, id.sequence));
        let mut calls = self.model.calls.values_mut();
        if let Some(call) = calls.find(|call| call.session == session && call.response == response) {
            call.seen = true;
        }
    }

    fn answer_server(&mut self, agent: usize, session: usize, id: &str) {
        if let Some(socket) = self.socket_for(agent, session) {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            self.post(socket, Some(session), Asked::Notice, &body);
        }
    }

    /// A reply that came on a listener because its POST was cut.
    fn see_recovered(&mut self, block: &Block) {
        let Some(json) = block.json() else { return };
        let n = json["result"]["n"].as_u64().or(json["error"]["data"]["n"].as_u64());
        if let Some(call) = n.and_then(|n| self.model.calls.get_mut(&n)) {
            call.seen = true;
        }
    }

    fn greeted(&mut self, socket: usize, number: usize) {
        let agent = self.sockets[socket].agent;
        self.agents[agent].is_initializing = false;
        let Some(session) = self.sockets[socket].exchanges[number].session else { return };
        let model = &self.model.sessions[session];
        if model.is_alive && model.id.is_some() && self.agents[agent].session.is_none() {
            self.agents[agent].session = Some(session);
            if let Some(socket) = self.socket_for(agent, session) {
                let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                self.post(socket, Some(session), Asked::Notice, body);
            }
        }
    }

    /// The client lost a connection, or the server ended it: what was not over is over now.
    pub fn saw_end(&mut self, socket: usize) {
        for number in 0..self.sockets[socket].exchanges.len() {
            if !self.sockets[socket].exchanges[number].seen_over {
                self.sockets[socket].exchanges[number].seen_over = true;
                if self.sockets[socket].exchanges[number].asked == Asked::Initialize {
                    let agent = self.sockets[socket].agent;
                    self.agents[agent].is_initializing = false;
                }
                self.stream_ended(socket, number);
            }
        }
    }

    /// A response is over for the client: it may want to come back for more.
    fn stream_ended(&mut self, socket: usize, number: usize) {
        let agent = self.sockets[socket].agent;
        let exchange = &self.sockets[socket].exchanges[number];
        if exchange.session.is_none() || exchange.session != self.agents[agent].session {
            return;
        }
        let cursor = exchange.last_seen.clone().or(match &exchange.asked {
            Asked::Cursor(cursor) => Some(cursor.clone()),
            _ => None,
        });
        let answered = exchange.answers_seen > 0;
        let refused = exchange.status.is_some_and(|status| status >= 400);
        let at_ms = self.now.ms + self.rng.pick(&[0, 500, 3_000]);
        let manners = self.agents[agent].manners;
        let returns = match &exchange.asked {
            Asked::Plain | Asked::Cursor(_) if refused => false,
            Asked::Plain | Asked::Cursor(_) if answered => manners == Manners::EventSource,
            Asked::Plain | Asked::Cursor(_) => manners != Manners::Rude || self.rng.percent(30),
            Asked::Calls(_) if cursor.is_none() || refused => false,
            Asked::Calls(_) if answered => manners == Manners::EventSource && self.rng.percent(50),
            Asked::Calls(_) => true,
            _ => false,
        };
        if returns && !self.agents[agent].gave_up {
            self.agents[agent].returns.push((at_ms, cursor));
        }
    }
}
