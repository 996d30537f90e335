//! Clients of 2026-07-28 and what the backend does with their requests.
//!
//! They share agents and connections with the clients of sessions, so that both eras meet on one connection. Their
//! choices come from a stream of the seed of their own.

use super::{
    backend::notification,
    model::Class,
    requests::{Accepts, Life, Request, Walk},
    sim::{Mail, Sim, note},
    socket::{Asked, Place},
};
use moorline::core::{
    Announcement, Audience, Call, Listening, LogLevel, Notification, NotificationKind, Publication,
    PublicationId, Reach, Revision, Tell, jsonrpc::RpcError, sse,
};
use serde_json::Value;

const CLASSES: [Class; 5] =
    [Class::Tools, Class::Prompts, Class::Resources, Class::Resource(1), Class::Resource(2)];

// --- Clients ------------------------------------------------------------------------------------

impl Sim {
    /// Something of the era without sessions, at times, if this seed has it.
    pub fn stateless_step(&mut self) {
        if !self.stateless.is_on || !self.stateless.rng.percent(40) {
            return;
        }
        match self.stateless.rng.weighted(&[14, 8, 5, 5, 20, 16, 18, 12, 4, 3, 4]) {
            0 => self.send_requests(),
            1 => self.send_listen(),
            2 => self.harm_somebody(),
            3 => self.send_notice(),
            4 => self.with_request(Life::Working, Sim::answer_request),
            5 => self.with_request(Life::Working, Sim::speak_of_request),
            6 => self.with_request(Life::Working, Sim::honour),
            7 => self.say_to_listeners(),
            8 => self.publish(),
            9 => self.with_request(Life::Listening, Sim::answer_request),
            _ => self.speak_of_the_past(),
        }
    }

    /// One request, or several behind one another.
    fn send_requests(&mut self) {
        let agent = self.stateless.rng.below(self.agents.len());
        let Some(socket) = self.stateless_socket(agent) else { return };
        for _ in 0..self.stateless.rng.pick(&[1, 1, 1, 2, 4]) {
            self.send_request(socket);
        }
    }

    fn send_request(&mut self, socket: usize) {
        let r = self.begin_request(socket);
        let rng = &mut self.stateless.rng;
        let request = &mut self.stateless.requests[r];
        request.accepts = rng.pick(&[Accepts::Both, Accepts::Both, Accepts::Json, Accepts::Stream]);
        let mut meta = String::new();
        if rng.percent(40) {
            let level = rng.pick(&[LogLevel::Debug, LogLevel::Warning, LogLevel::Error]);
            request.log_level = Some(level);
            meta += &format!(r#","io.modelcontextprotocol/logLevel":"{}""#, level.name());
        }
        if rng.percent(60) {
            meta += &format!(r#","progressToken":{r}"#);
        }
        let mut params = format!(r#""name":"t","r":{r},"#);
        if rng.percent(35) {
            let shard = rng.below(usize::from(self.config.shards));
            request.shard = Some(shard);
            params += &format!(r#""requestState":"moorline.{shard}.x","#);
        }
        self.post_stateless(r, "tools/call", &params, &meta);
    }

    fn send_listen(&mut self) {
        let agent = self.stateless.rng.below(self.agents.len());
        let Some(socket) = self.stateless_socket(agent) else { return };
        let r = self.begin_request(socket);
        let filter = self.stateless.rng.below(32) as u8;
        self.stateless.requests[r].filter = Some(filter);
        let params = format!(r#""r":{r},"notifications":{{}},"#);
        self.post_stateless(r, "subscriptions/listen", &params, "");
    }

    fn stateless_socket(&mut self, agent: usize) -> Option<usize> {
        let busy: Vec<usize> = (0..self.sockets.len())
            .filter(|socket| self.sockets[*socket].agent == agent && self.sockets[*socket].client_writes())
            .collect();
        let idle: Vec<usize> =
            busy.iter().copied().filter(|socket| self.sockets[*socket].is_idle_for_client()).collect();
        let rng = &mut self.stateless.rng;
        match rng.below(10) {
            0 if !busy.is_empty() => Some(rng.pick(&busy)),
            1..6 if !idle.is_empty() => Some(rng.pick(&idle)),
            _ => self.connect(agent),
        }
    }

    fn begin_request(&mut self, socket: usize) -> usize {
        let r = self.stateless.requests.len();
        let id = match self.stateless.rng.below(3) {
            0 => Value::from(1),
            1 => Value::from(r),
            _ => Value::from(format!("é {r}")),
        };
        let exchange = self.sockets[socket].exchanges.len();
        self.stateless.requests.push(Request::new(id, socket, exchange, self.now.ms));
        r
    }

    fn post_stateless(&mut self, r: usize, method: &str, params: &str, meta: &str) {
        let request = &self.stateless.requests[r];
        let accept = match request.accepts {
            Accepts::Both => "application/json, text/event-stream",
            Accepts::Json => "application/json",
            Accepts::Stream => "text/event-stream",
        };
        let version = Revision::V2026_07_28.date();
        let name = if method == "tools/call" { "Mcp-Name: t\r\n" } else { "" };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}{meta}}}}}}}"#,
            request.id
        );
        let text = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {accept}\r\nMCP-Protocol-Version: {version}\r\nMcp-Method: {method}\r\n{name}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let socket = request.socket;
        self.send(socket, None, Asked::Stateless(r), &text);
    }

    /// A notification, or what has to be refused without ending the connection.
    fn send_notice(&mut self) {
        let agent = self.stateless.rng.below(self.agents.len());
        let Some(socket) = self.stateless_socket(agent) else { return };
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
        let (verb, body, statuses): (&str, &str, &'static [u16]) = match self.stateless.rng.below(5) {
            0 | 1 => ("POST", notice, &[202]),
            2 => ("POST", response, &[400]),
            3 => ("POST", request, &[400]),
            _ => ("DELETE", "", &[405]),
        };
        let text = format!(
            "{verb} /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(socket, None, Asked::Refusable(statuses), &text);
    }

    /// Something happens to a connection that a request waits on.
    fn harm_somebody(&mut self) {
        let open = self.stateless.requests.iter().filter(|request| !request.has_ended);
        let sockets: Vec<usize> = open.map(|request| request.socket).collect();
        let alive: Vec<usize> =
            sockets.into_iter().filter(|socket| self.sockets[*socket].client_reads()).collect();
        if !alive.is_empty() {
            let socket = self.stateless.rng.pick(&alive);
            let what = self.stateless.rng.weighted(&[20, 20, 25, 8, 20, 7]);
            self.harm(socket, what);
        }
    }
}

// --- The backend --------------------------------------------------------------------------------

impl Sim {
    /// The backend hears of a request without a session.
    pub fn asked_stateless(&mut self, shard: usize, call: &Call) {
        let params: Value =
            serde_json::from_slice(call.params.as_deref().expect("it has params")).expect("JSON");
        let r = params["r"].as_u64().expect("requests are numbered") as usize;
        let request = &mut self.stateless.requests[r];
        assert_eq!(request.life, Life::Sent, "asked twice: {request:?}");
        assert!(request.shard.is_none_or(|named| named == shard), "its state is elsewhere: {request:?}");
        assert_eq!(call.revision, Revision::V2026_07_28);
        assert_eq!(call.method.as_str() == "subscriptions/listen", request.filter.is_some());
        request.key = Some((shard, call.key));
        request.life = Life::Working;
        note!(self, "request {r} reaches shard {shard}");
    }

    fn with_request(&mut self, life: Life, act: fn(&mut Sim, usize)) {
        let alike: Vec<usize> = self.requests_in(life);
        if !alike.is_empty() {
            let r = self.stateless.rng.pick(&alike);
            act(self, r);
        }
    }

    fn requests_in(&self, life: Life) -> Vec<usize> {
        let requests = self.stateless.requests.iter().enumerate();
        requests.filter(|(_, request)| request.life == life).map(|(r, _)| r).collect()
    }

    pub fn answer_request(&mut self, r: usize) {
        let rng = &mut self.stateless.rng;
        let request = &mut self.stateless.requests[r];
        let (shard, key) = request.key.expect("the backend knows it");
        // What is under way may come too late.
        if request.life == Life::Listening {
            request.excuse(&self.stateless.walking[shard]);
        }
        request.life = Life::Answered;
        let tell = match rng.below(20) {
            0..3 => {
                let code = rng.pick(&[-32601, -32021, -32603, 7]);
                request.answer = Some(Err(code));
                let data = Some(format!(r#"{{"n":{r}}}"#).into());
                Tell::Respond(key, Err(RpcError { code, message: "no".into(), data }))
            }
            3 if request.filter.is_none() => {
                request.was_refused = true;
                Tell::Refuse(key)
            }
            _ => {
                request.answer = Some(Ok(()));
                let padding = "x".repeat(rng.pick(&[0, 0, 0, 300, 3_000, 20_000]));
                Tell::Respond(key, Ok(format!(r#"{{"n":{r},"p":"{padding}"}}"#).into()))
            }
        };
        note!(self, "request {r} is answered");
        self.tell(shard, tell);
    }

    fn speak_of_request(&mut self, r: usize) {
        let m = self.model.number();
        let rng = &mut self.stateless.rng;
        let kind = match rng.below(6) {
            0..3 => NotificationKind::Progress,
            3 | 4 => NotificationKind::Log(rng.pick(&[LogLevel::Info, LogLevel::Error])),
            _ => NotificationKind::ToolsListChanged,
        };
        let padding = "x".repeat(if rng.percent(5) { 9_000 } else { 0 });
        let request = &mut self.stateless.requests[r];
        let is_wanted = match &kind {
            NotificationKind::Log(level) => request.log_level.is_some_and(|least| *level >= least),
            kind => *kind == NotificationKind::Progress,
        };
        let takes_streams = match request.accepts {
            Accepts::Both => self.config.response_mode != moorline::core::config::ResponseMode::Json,
            Accepts::Json => false,
            Accepts::Stream => true,
        };
        if is_wanted && takes_streams && request.filter.is_none() {
            request.said.push(m);
        }
        let (shard, key) = request.key.expect("the backend knows it");
        note!(self, "request {r} says {m}: {kind:?}");
        let Notification { json, .. } = notification(Class::Progress, m, &format!(r#","p":"{padding}""#));
        self.tell(shard, Tell::Notify(key, Notification { kind, json }));
    }

    /// A listen request is answered with a stream; any other is not, and that would be an error.
    pub fn honour(&mut self, r: usize) {
        let request = &mut self.stateless.requests[r];
        let Some(filter) = request.filter else { return };
        let (shard, key) = request.key.expect("the backend knows it");
        for walk in &self.stateless.walking[shard] {
            request.expect(walk.m, walk.class, true, !walk.is_publication);
        }
        if !self.shards[shard].has_broadcasts() {
            request.expected.clear();
        }
        request.life = Life::Listening;
        let uris = [(8, "r1"), (16, "r2")].into_iter().filter(|(bit, _)| filter & bit != 0);
        let listening = Listening {
            tools: filter & 1 != 0,
            prompts: filter & 2 != 0,
            resources: filter & 4 != 0,
            uris: uris.map(|(_, uri)| uri.into()).collect(),
        };
        note!(self, "request {r} listens: {filter:b}");
        self.tell(shard, Tell::Listen(key, listening));
    }

    /// A word about a request that is over changes nothing.
    fn speak_of_the_past(&mut self) {
        let over = [self.requests_in(Life::Answered), self.requests_in(Life::Cancelled)].concat();
        if over.is_empty() {
            return;
        }
        let r = self.stateless.rng.pick(&over);
        let (shard, key) = self.stateless.requests[r].key.expect("the backend knows it");
        let tell = match self.stateless.rng.below(3) {
            0 => Tell::Respond(key, Ok(format!(r#"{{"n":{r},"stale":true}}"#).into())),
            1 => Tell::Notify(key, notification(Class::Progress, 0, "")),
            _ => Tell::Listen(key, Listening::default()),
        };
        self.tell(shard, tell);
    }

    fn draw_broadcast(&mut self) -> (u64, Class, Notification) {
        let m = self.model.number();
        let rng = &mut self.stateless.rng;
        let class = rng.pick(&CLASSES);
        let padding = "x".repeat(rng.pick(&[0, 0, 0, 0, 0, 6_000, 18_000]));
        (m, class, notification(class, m, &format!(r#","p":"{padding}""#)))
    }

    fn say_to_listeners(&mut self) {
        for _ in 0..self.stateless.rng.pick(&[1, 1, 3, 6]) {
            let (m, class, notification) = self.draw_broadcast();
            let shard = self.stateless.rng.below(self.shards.len());
            self.broadcast_of(shard, m, class, notification);
        }
    }

    pub fn broadcast_of(&mut self, shard: usize, m: u64, class: Class, notification: Notification) {
        note!(self, "all who want it are told {m} by shard {shard}: {class:?}");
        self.model.broadcasts.insert(m, (class, self.step, self.now.ms));
        self.expect_broadcast(shard, m, class);
        self.tell(shard, Tell::Broadcast(notification));
    }

    /// The admin interface tells every shard, each in its time.
    fn publish(&mut self) {
        let (m, class, notification) = self.draw_broadcast();
        note!(self, "{m} is published: {class:?}");
        self.model.broadcasts.insert(m, (class, self.step, self.now.ms));
        let announcement =
            Announcement { kind: notification.kind, payload: sse::payload(&notification.json) };
        for to in 0..self.shards.len() {
            self.stateless.published.insert((to, m));
            self.mail.push_back(Mail::Publication { to, announcement: announcement.clone(), m });
        }
    }

    pub fn begin_publication(&mut self, to: usize, announcement: Announcement, m: u64) {
        self.expect_broadcast(to, m, Class::of(&announcement.kind));
        let publication =
            Publication { id: PublicationId(m as usize), audience: Audience::All, announcement };
        self.shards[to].publish(publication, self.now);
    }

    pub fn was_published(&mut self, shard: usize, m: u64, reach: Reach) {
        note!(self, "{m} was published on shard {shard}: {reach:?}");
        assert!(self.stateless.published.remove(&(shard, m)), "reported twice");
        let fates = reach.written + reach.pending + reach.filtered + reach.refused;
        assert_eq!(reach.sessions + reach.listens, fates, "everybody has one fate: {reach:?}");
        let (class, ..) = self.model.broadcasts[&m];
        let on_shard = self
            .stateless
            .requests
            .iter()
            .filter(|request| request.key.is_some_and(|(of, _)| of == shard) && request.wants(class));
        let wanted = on_shard.count() as u64;
        assert!(reach.listens <= wanted, "it was for {} streams of {wanted}", reach.listens);
    }

    /// A message begins to be given out on a shard: whoever listens by now is to hear it.
    pub fn expect_of_listeners(&mut self, shard: usize, m: u64, class: Class) {
        let is_publication = self.stateless.published.contains(&(shard, m));
        if !self.shards[shard].has_broadcasts() {
            self.stateless.walking[shard].clear();
        }
        let earlier = self.stateless.walking[shard].iter();
        let may_join =
            !is_publication && earlier.clone().any(|walk| walk.class == class && !walk.is_publication);
        self.stateless.walking[shard].push(Walk { m, class, is_publication });
        for request in &mut self.stateless.requests {
            if request.life == Life::Listening && request.key.is_some_and(|(of, _)| of == shard) {
                request.expect(m, class, false, may_join);
            }
        }
    }
}

// --- The end ------------------------------------------------------------------------------------

impl Sim {
    /// The backend is done with everything it was asked.
    pub fn finish_requests(&mut self) {
        while let Some(r) = self.requests_in(Life::Working).first().copied() {
            match self.stateless.requests[r].filter {
                Some(_) if self.stateless.rng.percent(80) => self.honour(r),
                _ => self.answer_request(r),
            }
            self.settle();
        }
    }

    /// Every open stream hears what it asked for.
    pub fn probe_listens(&mut self) {
        if !self.stateless.is_on {
            return;
        }
        for class in CLASSES {
            let m = self.model.number();
            let shard = self.stateless.rng.below(self.shards.len());
            self.broadcast_of(shard, m, class, notification(class, m, ""));
            self.settle();
        }
        self.check_stateless_calm();
        let closed = self.requests_in(Life::Listening);
        for r in closed.into_iter().step_by(2) {
            self.answer_request(r);
        }
        // What waited behind them on their connections goes on.
        self.finish_work();
        self.check_stateless_calm();
    }

    pub fn request_of(&self, socket: usize, exchange: usize) -> Option<usize> {
        match self.sockets[socket].exchanges.get(exchange)?.asked {
            Asked::Stateless(r) => Some(r),
            _ => None,
        }
    }

    /// All that listens hears the end of a drain.
    pub fn check_drained_listens(&self) {
        for request in self.stateless.requests.iter().filter(|request| request.is_acknowledged) {
            let socket = &self.sockets[request.socket];
            let is_told = socket.place != Place::Closed && socket.client_reads() && !socket.is_lost;
            assert!(!is_told || request.has_ended, "a drain ends listen streams: {request:?}");
        }
    }
}
