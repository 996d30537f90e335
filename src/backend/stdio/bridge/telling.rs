//! To children of 2026-07-28: calls of sessions, told with their claims, and what the child is listened to for.
//!
//! Owns how these are put; what is under way is the [bridge's](super). O(1) per message.

use super::{
    Bridge, ClientCall, Flight, Forwarded, Full, Heard, Honoured, Own, Progress, Purpose, child_gone,
    child_is_full, own_params,
};
use crate::{
    backend::stdio::{
        claims::{Claims, Told},
        client::Client,
        watch::Topic,
        wire::{self, ProgressToken},
    },
    core::{
        jsonrpc::RpcError,
        seam::{Call, LogLevel, SessionKey, Tell},
    },
    shell::child::ChildId,
};
use serde_json::value::RawValue;

impl Bridge {
    /// Passes a session's call on to a child of 2026-07-28.
    pub(in super::super) fn forward_told(
        &mut self,
        child: ChildId,
        session: SessionKey,
        call: Call,
        (claims, level): (&Claims, Option<LogLevel>),
        out: &mut Vec<Tell>,
    ) {
        let told = Some(Box::new(Told::new(session, &call, claims, level)));
        // What the child is given for the token is drawn when the number of the request is known.
        let ours = ProgressToken::draw(0);
        let progress = call.progress_token.map(|theirs| Progress { theirs, ours });
        let (key, client) = (call.key, Client::Session(session));
        let call = ClientCall { key, client, progress, purpose: Purpose::Plain, alone: None, told };
        if let Err(error) = self.tell_call(child, call, "") {
            out.push(Tell::Respond(key, Err(error)));
        }
    }

    /// Tells a child a session's call, with the members of its round.
    ///
    /// # Errors
    /// Why it cannot be told; nothing is under way then.
    pub(super) fn tell_call(
        &mut self,
        child: ChildId,
        mut call: ClientCall,
        round: &str,
    ) -> Result<(), RpcError> {
        let Some(link) = self.links.get_mut(&child) else {
            self.counters.calls_failed += 1;
            return Err(child_gone());
        };
        let id = link.next_id();
        if let Some(progress) = &mut call.progress {
            progress.ours = ProgressToken::draw(id);
        }
        let token = call.progress.as_ref().map(|progress| progress.ours);
        let told = call.told.as_ref().expect("such a call is told");
        let line = wire::request(id, &told.method, Some(told.params(token, round).as_bytes()));
        if self.children.send(child, line) == Err(Full) {
            self.counters.calls_refused += 1;
            return Err(child_is_full());
        }
        link.calls += 1;
        self.by_call.insert(call.key, (child, id));
        link.flights.insert(id, Flight::Client(call));
        Ok(())
    }

    /// Has a child of 2026-07-28 tell of changes. Returns the number of the subscription, unless the child takes no more.
    pub(in super::super) fn listen(
        &mut self,
        child: ChildId,
        topic: Topic,
        wanted: &serde_json::Value,
    ) -> Option<u64> {
        let params = own_params(&format!(",\"notifications\":{wanted}"));
        match self.request(child, "subscriptions/listen", &params, Own::Listen(topic)) {
            Forwarded::Yes => self.links.get(&child).map(|link| link.requests_made),
            Forwarded::No => None,
        }
    }

    /// It need not do so any more.
    pub(in super::super) fn end_listen(&mut self, child: ChildId, subscription: u64) {
        if self.links.get_mut(&child).and_then(|link| link.land(subscription)).is_some() {
            self.tell_cancelled(child, subscription);
        }
    }

    pub(super) fn hear_acknowledgement(&self, child: ChildId, params: &RawValue) -> Option<Heard> {
        let (subscription, uris) = wire::acknowledged(params)?;
        match self.links.get(&child)?.flights.get(&subscription)? {
            Flight::Own(Own::Listen(Topic::Resource(uri))) => {
                let honoured = if uris.contains(uri) { Honoured::Yes } else { Honoured::No };
                Some(Heard::Acknowledged(uri.clone(), honoured))
            }
            Flight::Own(_) | Flight::Client(_) | Flight::Parked(_) => None,
        }
    }
}
