//! Requests of the server to a client: sent on the stream of the call that made them, or to the listener.
//!
//! Owns what the session waits for: number, deadline, and the message itself while it may not be sent yet. Bounded; exists
//! only while something is waited for. A request is answered to the backend exactly once, whatever happens: by the client, by
//! its deadline, by the end of the session, or at once if it cannot be sent. Where it travels, and that it is sent
//! again if its stream dies first, is the business of streams and queue.

use super::{
    jsonrpc::{self, ClientCapabilities, RpcError},
    queue::{Class, Message},
    refusals::SERVER_ERROR,
    seam::*,
    session::Phase,
    shard::{Deadline, Shard},
    sse,
    table::{CallSlot, SessionSlot},
    wheel::TimerId,
};
use crate::limits;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::rc::Rc;

/// What a session waits for from its client.
#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: Vec<Waiting>,
    pub(super) timer: Option<TimerId>,
}

#[derive(Debug)]
struct Waiting {
    id: ServerRequestId,
    call: Option<CallKey>,
    deadline_ms: u64,
    /// Not sent: the client has not said `initialized`.
    held: Option<Message>,
}

/// What a client declared it can be asked for.
pub(super) fn features(declared: &ClientCapabilities<'_>) -> ClientFeatures {
    [
        (declared.sampling, ClientFeatures::SAMPLING),
        (declared.sampling_tools, ClientFeatures::SAMPLING_TOOLS),
        (declared.sampling_context, ClientFeatures::SAMPLING_CONTEXT),
        (declared.forms, ClientFeatures::FORMS),
        (declared.urls, ClientFeatures::URLS),
        (declared.roots, ClientFeatures::ROOTS),
    ]
    .into_iter()
    .filter(|(is_declared, _)| *is_declared)
    .fold(ClientFeatures::default(), |features, (_, feature)| features.with(feature))
}

fn allow(client: ClientFeatures, method: ServerMethod) -> bool {
    match method {
        ServerMethod::Ping => true,
        ServerMethod::CreateMessage => client.has(ClientFeatures::SAMPLING),
        ServerMethod::Elicit => client.has_any(ClientFeatures::FORMS.with(ClientFeatures::URLS)),
        ServerMethod::ListRoots => client.has(ClientFeatures::ROOTS),
    }
}

impl Shard {
    /// The backend asks a client something.
    pub(super) fn ask_client(&mut self, session: SessionSlot, request: ServerRequest, now: Now) {
        let owner = &self.sessions[session];
        if !allow(owner.client, request.method) {
            return self.ask_failed(request.id, lacks_capability(request.method));
        }
        if owner.asks.as_ref().is_some_and(|asks| asks.waiting.len() >= limits::ASKS_PER_SESSION_MAX) {
            return self.ask_failed(request.id, no_room());
        }
        self.counters.asks += 1;
        let number = itoa::Buffer::new().format(request.id.0).to_owned();
        let json = jsonrpc::request(number.as_bytes(), request.method.name(), request.params.as_deref());
        let message = Message { class: Class::Request(request.id), payload: Rc::new(sse::payload(&json)) };
        let early = owner.phase < Phase::Initialized && request.method != ServerMethod::Ping;
        let held = early.then(|| message.clone());
        let deadline_ms = now.ms.saturating_add(request.timeout_ms);
        let asks = self.sessions[session].asks.get_or_insert_default();
        asks.waiting.push(Waiting { id: request.id, call: request.call, deadline_ms, held });
        self.arm_asks(session, deadline_ms);
        if !early {
            self.send_ask(session, request.call, message, now);
        }
    }

    /// The client is initialized: what was held goes out.
    pub(super) fn release_asks(&mut self, session: SessionSlot, now: Now) {
        let Some(asks) = &mut self.sessions[session].asks else { return };
        let held: Vec<_> =
            asks.waiting.iter_mut().filter_map(|ask| Some((ask.call, ask.held.take()?))).collect();
        for (call, message) in held {
            self.send_ask(session, call, message, now);
        }
    }

    fn send_ask(&mut self, session: SessionSlot, call: Option<CallKey>, message: Message, now: Now) {
        let call = call.and_then(|key| self.find_call(key));
        if let Some(message) = self.write_to_call(call, message, now) {
            self.announce(session, message, now);
        }
    }

    /// There was no room for a request that did not reach the client: nobody will answer it.
    pub(super) fn ask_dropped(&mut self, session: SessionSlot, id: ServerRequestId) {
        if self.take_ask(session, id) {
            self.ask_failed(id, no_room());
        }
    }

    /// Puts a message on the stream of a call. Returns it if the call has none, or none of which it is known that its
    /// client can continue it.
    fn write_to_call(&mut self, call: Option<CallSlot>, message: Message, now: Now) -> Option<Message> {
        match call.and_then(|call| self.stream_of_call(call, now)) {
            Some(stream) => {
                let as_well = self.streams[stream].is_doubtful().then(|| message.clone());
                self.log_message(stream, message, now);
                self.pump_stream(stream, now);
                as_well
            }
            None => Some(message),
        }
    }

    /// A client's answer.
    pub(super) fn client_answered(
        &mut self,
        session: SessionSlot,
        id: Option<&str>,
        outcome: Result<Bytes, &RawValue>,
    ) {
        let id = id.and_then(|id| id.parse().ok()).map(ServerRequestId);
        match id.filter(|id| self.take_ask(session, *id)) {
            Some(id) => {
                let malformed = || RpcError::invalid_request("the client's error is malformed");
                let answer = outcome.map_err(|error| RpcError::from_json(error).unwrap_or_else(malformed));
                self.ask(Ask::Answered(id, answer));
            }
            None => self.counters.answers_ignored += 1,
        }
    }

    /// Deadlines of asks passed: they fail, and the client is told not to bother.
    pub(super) fn asks_expired(&mut self, session: SessionSlot, now: Now) {
        let Some(asks) = &mut self.sessions[session].asks else { return };
        asks.timer = None;
        let late: Vec<_> = asks
            .waiting
            .extract_if(.., |ask| ask.deadline_ms <= now.ms)
            .map(|ask| (ask.id, ask.call))
            .collect();
        let next_ms = asks.waiting.iter().map(|ask| ask.deadline_ms).min();
        match next_ms {
            Some(next_ms) => self.arm_asks(session, next_ms),
            None => self.sessions[session].asks = None,
        }
        for (id, call) in late {
            self.ask_failed(id, timed_out());
            let params = format!(r#"{{"requestId":{},"reason":"timed out"}}"#, id.0);
            let json = jsonrpc::notification("notifications/cancelled", Some(params.as_bytes()));
            let message = Message { class: Class::Other, payload: Rc::new(sse::payload(&json)) };
            let call = call.and_then(|key| self.find_call(key));
            if let Some(message) = self.write_to_call(call, message, now) {
                self.announce(session, message, now);
            }
        }
    }

    /// The session ends: nobody will answer.
    pub(super) fn abandon_asks(&mut self, session: SessionSlot) {
        let Some(asks) = self.sessions[session].asks.take() else { return };
        if let Some(timer) = asks.timer {
            self.wheel.cancel(timer);
        }
        for ask in asks.waiting {
            self.ask_failed(ask.id, session_ended());
        }
    }

    /// Stops waiting for that answer. False if nobody did.
    fn take_ask(&mut self, session: SessionSlot, id: ServerRequestId) -> bool {
        let Some(asks) = &mut self.sessions[session].asks else { return false };
        let before = asks.waiting.len();
        asks.waiting.retain(|ask| ask.id != id);
        let found = asks.waiting.len() < before;
        if asks.waiting.is_empty() {
            if let Some(timer) = asks.timer {
                self.wheel.cancel(timer);
            }
            self.sessions[session].asks = None;
        }
        found
    }

    pub(super) fn ask_failed(&mut self, id: ServerRequestId, error: RpcError) {
        self.counters.asks_failed += 1;
        self.ask(Ask::Answered(id, Err(error)));
    }

    fn arm_asks(&mut self, session: SessionSlot, deadline_ms: u64) {
        let Some(timer) = self.sessions[session].asks.as_ref().map(|asks| asks.timer) else { return };
        let timer = self.arm_no_later(timer, deadline_ms, Deadline::Asks(session));
        if let Some(asks) = &mut self.sessions[session].asks {
            asks.timer = Some(timer);
        }
    }
}

fn failure(message: String) -> RpcError {
    RpcError { code: SERVER_ERROR, message: message.into(), data: None }
}

fn lacks_capability(method: ServerMethod) -> RpcError {
    failure(format!("the client did not declare the capability for {}", method.name()))
}

fn no_room() -> RpcError {
    failure("too much waits for this client already".into())
}

/// A code of its own, so that a backend can tell it from a refusal.
fn timed_out() -> RpcError {
    RpcError { code: ASK_TIMED_OUT, ..failure("the client did not answer in time".into()) }
}

pub(super) fn session_ended() -> RpcError {
    failure("the session has ended".into())
}
