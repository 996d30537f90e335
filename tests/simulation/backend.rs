//! The backend: answers, fails, says things about calls and sessions and to everyone, at random times; also about
//! what is no more.

use super::{
    model::{Class, Message, Session},
    sim::{Sim, note},
    socket::Asked,
};
use moorline::core::{
    Ask, Call, LogLevel, Notification, NotificationKind, ServerMethod, ServerRequest, ServerRequestId, Tell,
    jsonrpc::{self, RpcError},
};

impl Sim {
    pub fn asked(&mut self, shard: usize, ask: Ask) {
        match ask {
            Ask::Call(call) if call.method.as_str() == "initialize" => self.greet(shard, call),
            Ask::Call(call) if call.session.is_none() => self.asked_stateless(shard, &call),
            Ask::Call(call) => {
                let key = call.session.expect("it was sent in a session");
                let session = self.model.session_of_key(shard, key).expect("a session it knows");
                assert!(self.model.sessions[session].is_alive, "a call of a session that is over");
                let n = self.number_of_call(&call);
                let entry = self.model.calls.get_mut(&n).expect("a client sent it");
                assert_eq!(entry.session, session, "the call of another session");
                assert!(entry.key.is_none(), "asked twice");
                entry.key = Some((shard, call.key));
                entry.called_ms = self.now.ms;
                entry.called_step = self.step;
                self.working.push((shard, call, n));
            }
            Ask::Cancel(key) if self.cancelled_stateless(shard, key) => {}
            Ask::Cancel(key) => {
                let is_it = |(at, call, _): &(usize, Call, u64)| *at == shard && call.key == key;
                if let Some(index) = self.working.iter().position(is_it) {
                    let over = self.working.remove(index);
                    let call = self.model.calls.get_mut(&over.2).expect("known");
                    let session = &self.model.sessions[call.session];
                    note!(self, "call {} is cancelled", over.2);
                    // Also by a word that was meant for another call of the same id.
                    call.may_be_cancelled |= session.cancels.iter().any(|(_, id)| *id == call.id);
                    if call.may_be_cancelled && session.is_alive {
                        // Cancelled, or timed out, which is answered. Its time began with the POST, at some moment
                        // between its being sent and the backend's hearing of it.
                        let timeout_ms = self.config.request_timeout_ms;
                        let times_out = self.now.ms - call.called_ms >= timeout_ms;
                        call.is_cancelled = !times_out;
                        let sent_ms = self.sockets[call.socket].exchanges[call.exchange].sent_ms;
                        call.may_have_timed_out = self.now.ms - sent_ms >= timeout_ms;
                        if !call.may_have_timed_out {
                            self.check_cancel(over.2);
                        }
                    }
                    self.stale.push(over);
                } else if let Some(index) =
                    self.greeting.iter().position(|(at, call, _)| *at == shard && call.key == key)
                {
                    self.greeting.remove(index);
                } else {
                    // It may have been answered while the word was under way.
                    let was_greeted = self.greeted.contains(&(shard, key));
                    assert!(
                        was_greeted || self.stale.iter().any(is_it),
                        "a call is cancelled that nobody worked on"
                    );
                }
            }
            Ask::SessionEnded(key) => {
                let session = self.model.session_of_key(shard, key).expect("a session it knows");
                note!(self, "session {session} is over");
                assert!(self.model.sessions[session].is_alive, "a session ends once");
                self.model.sessions[session].is_alive = false;
                assert!(
                    self.working.iter().all(|(at, call, _)| *at != shard || call.session != Some(key)),
                    "calls end before their session"
                );
            }
            Ask::Answered(id, answer) => {
                note!(self, "the client answers {}: {}", id.0, answer.is_ok());
                let answered = self.model.asks.get_mut(&id.0).expect("it was asked");
                assert!(!*answered, "a request has one answer");
                *answered = true;
            }
            Ask::Notified(_) | Ask::LogLevel(..) => {}
        }
    }

    /// A cancellation that fits more than one call ends none. Whether it was one, or the session's end, shows later.
    fn check_cancel(&mut self, n: u64) {
        let call = &self.model.calls[&n];
        let session = &self.model.sessions[call.session];
        let earliest = session.cancels.iter().filter(|(_, id)| *id == call.id).map(|(step, _)| *step).min();
        let twin =
            self.working.iter().map(|(_, _, other)| (other, &self.model.calls[other])).find(|(_, other)| {
                other.session == call.session && other.id == call.id && Some(other.called_step) < earliest
            });
        if let Some((twin, _)) = twin {
            let doubt = format!("call {n} was cancelled though call {twin} had the same id");
            let session = call.session;
            self.model.sessions[session].doubts.push(doubt);
        }
    }

    fn greet(&mut self, shard: usize, call: Call) {
        let params = call.params.as_deref().expect("initialize has params");
        let params: serde_json::Value = serde_json::from_slice(params).expect("JSON");
        let socket = params["clientInfo"]["socket"].as_u64().expect("sockets are numbered") as usize;
        let key = call.session.expect("initialize makes a session");
        assert_eq!(self.model.session_of_key(shard, key), None, "a session begins once");
        let exchange = self.sockets[socket].exchanges.iter_mut().find(|e| e.asked == Asked::Initialize);
        let exchange = exchange.expect("it was sent here");
        exchange.session = Some(self.model.sessions.len());
        self.model.sessions.push(Session {
            shard,
            key,
            revision: call.revision,
            is_alive: true,
            id: exchange.session_id.take(),
            tag: None,
            events: Default::default(),
            posts: Default::default(),
            inbox: Default::default(),
            rewinds: Vec::new(),
            disturbed_step: 0,
            got_ms: 0,
            called_dead: false,
            cancels: Vec::new(),
            doubts: Vec::new(),
        });
        self.greeting.push((shard, call, self.model.sessions.len() - 1));
    }

    fn number_of_call(&self, call: &Call) -> u64 {
        let params: serde_json::Value =
            serde_json::from_slice(call.params.as_deref().expect("calls have params")).expect("JSON");
        params["n"].as_u64().expect("calls are numbered")
    }

    pub fn backend_step(&mut self) {
        match self.rng.weighted(&[20, 30, 15, 25, 5, 5, 4, 2, 1]) {
            0 if !self.greeting.is_empty() => {
                let index = self.rng.below(self.greeting.len());
                self.answer_greeting(index);
            }
            1 if !self.working.is_empty() => {
                let index = self.rng.below(self.working.len());
                self.answer(index);
            }
            2 if !self.working.is_empty() => {
                let index = self.rng.below(self.working.len());
                self.speak_of(index);
            }
            3 if !self.model.sessions.is_empty() => {
                let session = self.rng.below(self.model.sessions.len());
                let count = match self.rng.below(10) {
                    0 if self.scenario.floods => 300,
                    0..3 => 4,
                    _ => 1,
                };
                for _ in 0..count {
                    let class = self.draw_class();
                    self.announce(session, class);
                }
            }
            4 => self.broadcast(),
            5 if !self.stale.is_empty() => self.answer_stale(),
            6 if !self.model.sessions.is_empty() => self.ask_a_client(),
            7 if !self.working.is_empty() => {
                let (shard, call, n) = &self.working[self.rng.below(self.working.len())];
                note!(self, "the stream of call {n} is closed early");
                let (shard, key) = (*shard, call.key);
                self.tell(shard, Tell::CloseStream(key, 500));
            }
            8 if !self.model.sessions.is_empty() => {
                let session = self.rng.below(self.model.sessions.len());
                note!(self, "the listeners of session {session} are closed early");
                let model = &mut self.model.sessions[session];
                model.disturbed_step = self.step;
                let (shard, key) = (model.shard, model.key);
                self.tell(shard, Tell::CloseListeners(key, 500));
            }
            _ => {}
        }
    }

    pub fn answer_greeting(&mut self, index: usize) {
        let (shard, call, session) = self.greeting.remove(index);
        self.greeted.push((shard, call.key));
        let answer = if !self.is_calm && self.rng.percent(5) {
            Err(RpcError::internal_error())
        } else {
            let revision = self.model.sessions[session].revision.date();
            Ok(format!(
                r#"{{"protocolVersion":"{revision}","capabilities":{{}},"serverInfo":{{"name":"s","version":"1"}}}}"#
            )
            .into())
        };
        note!(self, "initialize of session {session} is answered: {}", answer.is_ok());
        self.tell(shard, Tell::Respond(call.key, answer));
    }

    pub fn answer(&mut self, index: usize) {
        let (shard, call, n) = self.working.remove(index);
        note!(self, "call {n} is answered");
        let answer = if self.rng.percent(15) {
            let data = Some(format!(r#"{{"n":{n}}}"#).into());
            Err(RpcError { data, ..RpcError::internal_error() })
        } else {
            let padding = "x".repeat(self.rng.pick(&[0, 0, 0, 300, 3_000]));
            Ok(format!(r#"{{"n":{n},"p":"{padding}"}}"#).into())
        };
        self.tell(shard, Tell::Respond(call.key, answer));
        self.stale.push((shard, call, n));
    }

    /// A word about a call that is over changes nothing.
    fn answer_stale(&mut self) {
        let index = self.rng.below(self.stale.len());
        let (shard, call, n) = &self.stale[index];
        let (shard, key) = (*shard, call.key);
        let tell = if self.rng.percent(50) {
            Tell::Respond(key, Ok(format!(r#"{{"n":{n},"stale":true}}"#).into()))
        } else {
            Tell::Notify(key, notification(Class::Other, 0, ",\"call\":0"))
        };
        self.tell(shard, tell);
    }

    fn ask_a_client(&mut self) {
        let m = self.model.number();
        let (session, shard, call, more) = if !self.working.is_empty() && self.rng.percent(50) {
            let (shard, call, n) = &self.working[self.rng.below(self.working.len())];
            let entry = self.model.calls.get_mut(n).expect("known");
            entry.said.push(m);
            (entry.session, *shard, Some(call.key), format!(",\"call\":{n}"))
        } else {
            let session = self.rng.below(self.model.sessions.len());
            (session, self.model.sessions[session].shard, None, String::new())
        };
        note!(self, "session {session} is asked {m}, for {call:?}");
        self.model.asks.insert(m, false);
        self.expect_one(session, m, Class::Request, Origin::Call);
        let request = ServerRequest {
            id: ServerRequestId(m),
            session: self.model.sessions[session].key,
            call,
            method: self.rng.pick(&[ServerMethod::Ping, ServerMethod::Elicit, ServerMethod::ListRoots]),
            params: Some(format!(r#"{{"m":{m}{more}}}"#).into()),
            timeout_ms: self.rng.pick(&[3_000, 30_000]),
        };
        self.tell(shard, Tell::Request(request));
    }

    fn speak_of(&mut self, index: usize) {
        let (shard, call, n) = &self.working[index];
        let (shard, key, n) = (*shard, call.key, *n);
        let class = self.rng.pick(&[Class::Progress, Class::Progress, Class::Log, Class::Other]);
        let m = self.model.number();
        let call = self.model.calls.get_mut(&n).expect("known");
        call.said.push(m);
        let session = call.session;
        note!(self, "call {n} says {m}: {class:?}");
        // Without a stream of its own it goes to the listener.
        self.expect_one(session, m, class, Origin::Call);
        let padding = "x".repeat(if self.rng.percent(2) { 18_000 } else { 0 });
        let more = format!(",\"call\":{n},\"p\":\"{padding}\"");
        self.tell(shard, Tell::Notify(key, notification(class, m, &more)));
    }

    fn draw_class(&mut self) -> Class {
        match self.rng.weighted(&[60, 10, 15, 15]) {
            0 => Class::Other,
            1 => Class::Log,
            2 => Class::Tools,
            _ => Class::Resource(self.rng.pick(&[1, 2])),
        }
    }

    pub fn announce(&mut self, session: usize, class: Class) -> u64 {
        let m = self.model.number();
        let (shard, key) = (self.model.sessions[session].shard, self.model.sessions[session].key);
        note!(self, "session {session} is told {m}: {class:?}");
        self.expect_one(session, m, class, Origin::Session);
        self.tell(shard, Tell::Announce(key, notification(class, m, "")));
        m
    }

    fn broadcast(&mut self) {
        let m = self.model.number();
        let shard = self.rng.below(self.shards.len());
        note!(self, "everyone is told {m} by shard {shard}");
        self.model.broadcasts.insert(m, (Class::Other, self.step, self.now.ms));
        self.expect_broadcast(shard, m, Class::Other);
        self.tell(shard, Tell::Broadcast(notification(Class::Other, m, "")));
    }

    /// Every session and listen stream that the shard has by now is to get it. Sessions have no resources here.
    pub fn expect_broadcast(&mut self, shard: usize, m: u64, class: Class) {
        self.expect_of_listeners(shard, m, class);
        if matches!(class, Class::Resource(_)) {
            return;
        }
        for session in 0..self.model.sessions.len() {
            if self.model.sessions[session].shard == shard {
                self.expect_one(session, m, class, Origin::Broadcast);
            }
        }
    }

    fn expect_one(&mut self, session: usize, m: u64, class: Class, origin: Origin) {
        self.step += 1;
        let message = Message::new(class, self.step, self.now.ms, origin);
        self.model.sessions[session].inbox.insert(m, message);
    }

    pub fn tell(&mut self, shard: usize, tell: Tell) {
        self.shards[shard].tell(tell, self.now);
        self.shards[shard].check_invariants();
    }
}

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Session,
    Broadcast,
    /// It belongs on its call's stream if there is one.
    Call,
}

pub fn notification(class: Class, m: u64, more: &str) -> Notification {
    let (kind, method) = match class {
        Class::Other => (NotificationKind::Other, "notifications/other"),
        Class::Log => (NotificationKind::Log(LogLevel::Info), "notifications/message"),
        Class::Progress => (NotificationKind::Progress, "notifications/progress"),
        Class::Request => unreachable!("requests are no notifications"),
        Class::Tools => (NotificationKind::ToolsListChanged, "notifications/tools/list_changed"),
        Class::Prompts => (NotificationKind::PromptsListChanged, "notifications/prompts/list_changed"),
        Class::Resources => (NotificationKind::ResourcesListChanged, "notifications/resources/list_changed"),
        Class::Resource(n) => {
            (NotificationKind::ResourceUpdated(format!("r{n}").into()), "notifications/resources/updated")
        }
    };
    let params = format!(r#"{{"m":{m}{more}}}"#);
    Notification { kind, json: jsonrpc::notification(method, Some(params.as_bytes())) }
}
