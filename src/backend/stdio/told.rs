//! Sessions at a child that speaks 2026-07-28 and nothing older: what a session said once is told with each of its requests.
//!
//! `initialize` is answered from the child's `server/discover`, in the words of the client's revision. Subscriptions are
//! held [at the child](super::watch) for all sessions together; everything else is passed on with the session's
//! [claims](super::claims), and comes back [in older words](super::plain). Such a child keeps nothing of its clients, so it
//! may serve all of them; which, is a matter of [owners](super::owners).

use super::{
    Common,
    bridge::{Own, own_params},
    claims::Claims,
    client::Client,
    discovery::Discovery,
    owners::Owner,
    per_session::Refused,
    shared::{Place, Shared, State},
    wire,
};
use crate::{
    core::{
        jsonrpc::RpcError,
        seam::{Call, SessionKey, Tell},
    },
    shell::child::ChildId,
};
use bytes::Bytes;
use std::time::Instant;

impl Shared {
    /// A child refused the `initialize` of a session. It is asked whether it speaks 2026-07-28, and kept if it does.
    pub(super) fn adopt(&mut self, common: &mut Common, refused: Refused) {
        let Refused { child, session, call, error } = refused;
        let now = Instant::now();
        let at = self.places.insert(Place {
            state: State::Starting(child, now + common.start_timeout),
            used: Some(now),
            refusal: Some(error),
            waiting: vec![call],
            ..Place::default()
        });
        self.give_place(at, Owner::Session(session));
        self.enter(session, at);
        self.by_child.insert(child, at);
        let _ = common.bridge.request(child, "server/discover", &own_params(""), Own::Discover);
    }

    /// A child said what it is in the words of 2026-07-28, or that it does not know them.
    pub(super) fn discovered(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        answer: Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        let Some(discovery) = answer.ok().and_then(Discovery::of_child) else {
            // Whatever was known of the program is not so any more.
            common.alike.unlearn();
            return self.fail(common, child, "refused initialize and server/discover", out);
        };
        common.alike.learn();
        Shared::watch_lists(common, child, &discovery.news);
        let is_open = self.open_place(at);
        let place = &mut self.places[at];
        place.state = State::Serving(child, Instant::now());
        place.discovery = Some(discovery);
        place.refusal = None;
        let waiting = std::mem::take(&mut place.waiting);
        let confirmed: Vec<_> = place.subscriptions.confirmed().cloned().collect();
        for uri in confirmed {
            self.watch(common, at, child, &uri, out);
        }
        for call in waiting {
            match call.session {
                Some(session) if is_open => self.introduce(at, session, &call, out),
                // There are enough children that do for anyone.
                Some(session) => {
                    self.leave(session);
                    self.begin(common, session, call, out);
                }
                None => self.serve_alone(common, at, child, call, out),
            }
        }
        if matches!(self.places[at].owner, Some(Owner::Session(_))) && self.places[at].members.is_empty() {
            self.give_up(common, at, out);
        }
    }

    /// Answers the `initialize` of a session at a place that has been discovered.
    pub(super) fn introduce(&mut self, at: usize, session: SessionKey, call: &Call, out: &mut Vec<Tell>) {
        let Some(discovery) = &self.places[at].discovery else { return };
        let greeting = discovery.greeting(call.revision);
        self.claims.insert(session, Claims::of(call));
        out.push(Tell::Respond(call.key, Ok(greeting)));
    }

    /// Passes a session's request on.
    pub(super) fn pass_on_told(
        &mut self,
        common: &mut Common,
        (at, child): (usize, ChildId),
        session: SessionKey,
        call: Call,
        out: &mut Vec<Tell>,
    ) {
        let uri = || call.params.as_deref().and_then(wire::uri_of);
        match (call.method.as_str(), uri()) {
            ("resources/subscribe", Some(uri)) => {
                self.subscribe_told(common, (at, child), session, (&call, uri), out);
            }
            ("resources/unsubscribe", Some(uri)) => {
                self.unsubscribe_told(common, (at, child), session, (&call, &uri), out);
            }
            ("resources/subscribe" | "resources/unsubscribe", None) => {
                let error = RpcError::invalid_params("`uri`: expected a string");
                out.push(Tell::Respond(call.key, Err(error)));
            }
            _ => {
                let Some(claims) = self.claims.get(&session) else { return };
                let level = self.places[at].levels.of(Client::Session(session));
                common.bridge.forward_told(child, session, call, (claims, level), out);
            }
        }
    }
}
