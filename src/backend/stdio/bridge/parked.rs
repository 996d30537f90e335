//! Calls of 2026-07-28 whose children asked something: their clients have to come back with answers.
//!
//! Owns what becomes of such a call: it is answered with the question (`input_required`), its child goes on waiting, and the
//! call that comes back with this state takes its place. The child learns of nothing but the answer. At a time one question
//! of a call is open, because a child does not say which call it asks for.
//!
//! A question that is not answered in time is answered by us with an error, and the call cancelled.

use super::{Bridge, ChildAsk, Client, ClientCall, Flight, Link, Progress, child_gone, failure, wire};
use crate::{
    backend::{
        rounds::{self, Answers, Round},
        service,
    },
    core::{
        jsonrpc::RpcError,
        seam::{Call, CallKey, ClientFeatures, Principal, ServerMethod, Tell},
    },
    shell::child::ChildId,
};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// What is known of a call of 2026-07-28 while it is under way.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) method: Box<str>,
    params: Option<Bytes>,
    principal: Option<Principal>,
    features: ClientFeatures,
}

/// A call whose client is away.
pub(super) struct Parked {
    pub(super) call: ClientCall,
    ticket: u64,
    /// The child's request, by its own id.
    ask: Bytes,
    method: ServerMethod,
    params: Option<Bytes>,
}

/// Where a client that comes back finds its call.
pub(super) enum Waiting {
    /// The child still works on it.
    With(ChildId, u64),
    /// It did not wait for the answer; this is for the client.
    Over(Result<Bytes, RpcError>),
}

/// The name of the one question of a round.
const QUESTION: &str = "question";

impl Alone {
    pub(super) fn of(call: &Call) -> Self {
        Alone {
            method: call.method.as_str().into(),
            params: call.params.clone().filter(|_| rounds::may_ask(call.method.as_str())),
            principal: call.principal.clone(),
            features: call.client,
        }
    }

    fn digest(&self) -> [u8; 32] {
        rounds::digest(self.principal.as_ref(), &self.method, self.params.as_deref())
    }

    /// Why this client cannot be asked that.
    fn fault(&self, method: ServerMethod) -> Option<&'static str> {
        let (wanted, fault) = match method {
            ServerMethod::CreateMessage => (ClientFeatures::SAMPLING, "the client does not declare sampling"),
            ServerMethod::Elicit => {
                (ClientFeatures::FORMS.with(ClientFeatures::URLS), "the client does not declare elicitation")
            }
            ServerMethod::ListRoots => (ClientFeatures::ROOTS, "the client does not declare roots"),
            ServerMethod::Ping => return None,
        };
        if !rounds::may_ask(&self.method) {
            return Some(
                "in 2026-07-28 a client can be asked during tools/call, prompts/get and resources/read only",
            );
        }
        (!self.features.has_any(wanted)).then_some(fault)
    }
}

impl Bridge {
    /// Passes a child's question on to the client of the one call that is under way, which is of 2026-07-28.
    pub(in super::super) fn ask_alone(
        &mut self,
        child: ChildId,
        ask: ChildAsk,
        call: CallKey,
        out: &mut Vec<Tell>,
    ) {
        let Some(&(_, id)) = self.by_call.get(&call) else { return };
        let Some(link) = self.links.get_mut(&child) else { return };
        let Some(Flight::Client(flight)) = link.flights.get(&id) else { return };
        let fault = match &flight.alone {
            Some(alone) => alone.fault(ask.method),
            None => Some("it is not clear which client this is for"),
        };
        if let Some(fault) = fault {
            return self.refuse_ask(child, &ask, fault);
        }
        if let Some(Flight::Client(call)) = link.flights.remove(&id) {
            let ChildAsk { id: ask, method, params } = ask;
            self.park(child, id, Parked { call, ticket: 0, ask, method, params }, out);
        }
    }

    /// Answers a call with the question its child asks, and keeps what is under way.
    fn park(&mut self, child: ChildId, id: u64, mut parked: Parked, out: &mut Vec<Tell>) {
        let Some(alone) = &parked.call.alone else { return };
        let request = rounds::request(parked.method, parked.params.as_deref());
        let bytes = request.len() + alone.params.as_ref().map_or(0, Bytes::len);
        let digest = alone.digest();
        while let Some(oldest) = self.lot.crowded_out(bytes) {
            self.give_up(oldest);
        }
        let due = Instant::now() + Duration::from_millis(self.ask_timeout_ms);
        let (ticket, state) =
            self.lot.park(Waiting::With(child, id), alone.principal.clone(), &digest, due.into(), bytes);
        parked.ticket = ticket;
        let key = parked.call.key;
        self.by_call.remove(&key);
        let result = rounds::input_required(&[(QUESTION.to_owned(), request)], &state);
        let method = parked.call.alone.as_ref().map_or("", |alone| &*alone.method);
        out.push(Tell::Respond(key, self.revised(child, method, Ok(result))));
        if let Some(link) = self.links.get_mut(&child) {
            link.flights.insert(id, Flight::Parked(parked));
        }
    }

    /// Whether a call goes on where an earlier one was; if so it is taken care of. A state of somebody else is left alone.
    pub(in super::super) fn goes_on(&mut self, call: Call, out: &mut Vec<Tell>) -> Option<Call> {
        if !rounds::may_ask(call.method.as_str()) {
            return Some(call);
        }
        match rounds::read(call.params.as_deref()) {
            Ok(Round::Next { state, answers }) if state.starts_with("moorline.") => {
                self.go_on(call, &state, answers, out);
            }
            Ok(Round::First(_) | Round::Next { .. }) => return Some(call),
            Err(refusal) => out.push(Tell::Respond(call.key, Err(refusal))),
        }
        None
    }

    fn go_on(&mut self, call: Call, state: &str, answers: Answers, out: &mut Vec<Tell>) {
        let alone = Alone::of(&call);
        match self.lot.claim(state, &alone.digest()) {
            Some(Waiting::With(child, id)) => self.reopen(child, id, call, alone, answers, out),
            Some(Waiting::Over(answer)) => out.push(Tell::Respond(call.key, answer)),
            None => {
                let reason = "`requestState` is not of this request, was used before or has expired";
                out.push(Tell::Respond(call.key, Err(service::invalid_params(reason))));
            }
        }
    }

    /// The client is back: its call takes the place of the former one, and the child gets its answer.
    fn reopen(
        &mut self,
        child: ChildId,
        id: u64,
        call: Call,
        alone: Alone,
        answers: Answers,
        out: &mut Vec<Tell>,
    ) {
        let flight = self.links.get_mut(&child).and_then(|link| link.flights.remove(&id));
        let Some(Flight::Parked(mut parked)) = flight else {
            return out.push(Tell::Respond(call.key, Err(child_gone())));
        };
        parked.call.key = call.key;
        // The child goes on with the token it was given.
        let progress = parked.call.progress.take().zip(call.progress_token);
        parked.call.progress = progress.map(|(Progress { ours, .. }, theirs)| Progress { theirs, ours });
        parked.call.alone = Some(alone);
        let Some((_, answer)) = answers.into_iter().find(|(name, _)| name == QUESTION) else {
            return self.park(child, id, parked, out);
        };
        self.by_call.insert(call.key, (child, id));
        if let Some(link) = self.links.get_mut(&child) {
            link.flights.insert(id, Flight::Client(parked.call));
        }
        self.tell(child, wire::answer(&parked.ask, &Ok(answer)));
    }

    /// The child has answered a call whose client is away, or is gone: the answer waits for the client.
    pub(super) fn answer_parked(&mut self, parked: &Parked, answer: Result<Bytes, RpcError>) {
        if let Some(place) = self.lot.place_mut(parked.ticket) {
            *place = Waiting::Over(answer);
        }
    }

    /// Gives up the calls whose clients have not come back in time, and says which calls were given up.
    pub(in super::super) fn give_up_parked(&mut self, now: Instant) -> Vec<(ChildId, Client)> {
        while let Some(late) = self.lot.expired(now.into()) {
            self.give_up(late);
        }
        std::mem::take(&mut self.given_up)
    }

    /// When the next of them is late.
    pub(in super::super) fn next_late(&self) -> Option<Instant> {
        self.lot.next_due().map(tokio::time::Instant::into_std)
    }

    fn give_up(&mut self, waiting: Waiting) {
        let Waiting::With(child, id) = waiting else { return };
        let flight = self.links.get_mut(&child).and_then(|link: &mut Link| link.land(id));
        if let Some(Flight::Parked(parked)) = flight {
            self.tell(child, wire::answer(&parked.ask, &Err(failure("the client did not come back"))));
            let params = format!(r#"{{"requestId":{id}}}"#);
            self.tell(child, wire::notification("notifications/cancelled", Some(params.as_bytes())));
            self.given_up.push((child, parked.call.client));
        }
    }
}
