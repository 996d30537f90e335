//! Requests of 2026-07-28 to children of a 2025 revision: what no session is needed for.
//!
//! Such a request is given to a child that was initialised by us. Discovery is answered from the child's greeting; a listen
//! stream gets what the child announces of its own accord, and the child hears of the resources it names; anything
//! else is passed on, and its result stamped with what the newer revision wants of one. What that revision has no more is
//! refused, as it is by every server of it. A child that speaks that revision itself is given everything as it is, save that it
//! is listened to once for all who listen.

use super::{
    Common,
    bridge::{Forwarded, Own, Purpose, failure},
    client::Client,
    shared::{Place, Shared, State, restarting},
    subscriptions::Change,
    wire,
};
use crate::{
    backend::{
        host::listen,
        rounds::{self, Round},
        service::{invalid_params, method_not_found},
    },
    core::{
        jsonrpc,
        seam::{Call, CallKey, Listening, Notification, NotificationKind, Tell},
    },
    limits::CHILD_GREETINGS_WAITING_MAX,
    shell::child::ChildId,
};
use std::time::Instant;

impl Shared {
    /// A request that belongs to no session.
    pub(super) fn call_alone(&mut self, common: &mut Common, call: Call, out: &mut Vec<Tell>) {
        if is_of_sessions(call.method.as_str()) {
            return out.push(Tell::Respond(call.key, Err(method_not_found(&call.method))));
        }
        let Some(call) = common.bridge.goes_on(call, out) else { return };
        let now = Instant::now();
        let Some(at) = self.place_of(common, &call, now) else {
            common.bridge.counters.sessions_refused += 1;
            return out.push(Tell::Refuse(call.key));
        };
        let place = &mut self.places[at];
        place.used = Some(now);
        match (place.state, &place.discovery) {
            (_, Some(discovery)) if call.method.as_str() == "server/discover" => {
                out.push(Tell::Respond(call.key, Ok(discovery.result.clone())));
            }
            (State::Serving(child, _), _) => self.serve_alone(common, at, child, call, out),
            (State::Empty | State::Starting(..), _) if place.waiting.len() < CHILD_GREETINGS_WAITING_MAX => {
                place.waiting.push(call);
            }
            (State::Empty | State::Starting(..), _) => out.push(Tell::Refuse(call.key)),
            (State::Waiting(_) | State::Gone, _) => {
                common.bridge.counters.calls_failed += 1;
                out.push(Tell::Respond(call.key, Err(restarting())));
            }
        }
    }

    /// Gives a request to a child that serves.
    pub(super) fn serve_alone(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        call: Call,
        out: &mut Vec<Tell>,
    ) {
        match (call.method.as_str(), &self.places[at].discovery) {
            ("server/discover", Some(discovery)) => {
                out.push(Tell::Respond(call.key, Ok(discovery.result.clone())));
            }
            ("subscriptions/listen", Some(discovery)) => match listen::read(&call, &discovery.news) {
                Ok(listening) => self.listen(common, at, child, call.key, listening, out),
                Err(refusal) => out.push(Tell::Respond(call.key, Err(refusal))),
            },
            (_, Some(_)) => self.pass_on_alone(common, at, child, call, out),
            (_, None) => {
                let error = failure("the server behind this one declares capabilities that are none");
                out.push(Tell::Respond(call.key, Err(error)));
            }
        }
    }

    /// While it runs the child logs as much as it wants; the core filters what others get of that.
    fn pass_on_alone(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        call: Call,
        out: &mut Vec<Tell>,
    ) {
        let stamp = self.places[at].discovery.as_ref().and_then(|discovery| discovery.stamp.as_ref());
        if let (Some(_), Ok(Round::Next { .. })) = (stamp, rounds::read(call.params.as_deref())) {
            let refusal = invalid_params("`requestState` is none of this server");
            return out.push(Tell::Respond(call.key, Err(refusal)));
        }
        let client = Client::Alone(call.key);
        let level = call.params.as_deref().and_then(wire::log_level);
        let level = level.filter(|_| self.places[at].has_logging());
        let Some(level) = level else {
            common.bridge.forward(child, client, call, Purpose::Plain, out);
            return;
        };
        if self.places[at].levels.set(client, level) {
            self.tell_level(common, at);
        }
        if common.bridge.forward(child, client, call, Purpose::Logging, out) == Forwarded::No {
            self.places[at].levels.remove(client);
            self.tell_level(common, at);
        }
    }

    fn listen(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        key: CallKey,
        listening: Listening,
        out: &mut Vec<Tell>,
    ) {
        let place = &mut self.places[at];
        let mut wanted = Vec::new();
        for uri in &listening.uris {
            if place.subscriptions.subscribe(Client::Alone(key), uri) == Change::Forward {
                wanted.push(uri.clone());
            }
        }
        place.listens.insert(key, listening.clone());
        let speaks_newer = place.speaks_newer();
        out.push(Tell::Listen(key, listening));
        for uri in wanted {
            if speaks_newer {
                self.watch(common, at, child, &uri, out);
            } else {
                let params = serde_json::json!({ "uri": &*uri }).to_string();
                let own = Own::Subscribe(uri.clone());
                let _ = common.bridge.request(child, "resources/subscribe", params.as_bytes(), own);
            }
        }
    }

    /// A client closed its listen stream, if that call is one.
    pub(super) fn end_listen(&mut self, common: &mut Common, call: CallKey) {
        let at = self.places.iter_mut().find_map(|(at, place)| place.listens.remove(&call).map(|_| at));
        if let Some(at) = at {
            self.places[at].used = Some(Instant::now());
            self.end_client(common, at, Client::Alone(call));
        }
    }
}

impl Place {
    /// Whether its child speaks 2026-07-28 itself.
    pub(super) fn speaks_newer(&self) -> bool {
        self.discovery.as_ref().is_some_and(|discovery| discovery.stamp.is_none())
    }
}

/// What a child of 2026-07-28 announces, without the name of our subscription. `None` for what is about that.
pub(super) fn untagged(message: Notification) -> Option<Notification> {
    let method = match &message.kind {
        NotificationKind::ToolsListChanged => "notifications/tools/list_changed",
        NotificationKind::PromptsListChanged => "notifications/prompts/list_changed",
        NotificationKind::ResourcesListChanged => "notifications/resources/list_changed",
        NotificationKind::ResourceUpdated(uri) => {
            let params = serde_json::json!({ "uri": &**uri }).to_string();
            let json = jsonrpc::notification("notifications/resources/updated", Some(params.as_bytes()));
            return Some(Notification { json, ..message });
        }
        NotificationKind::Other => return None,
        NotificationKind::Progress | NotificationKind::Log(_) => return Some(message),
    };
    Some(Notification { json: jsonrpc::notification(method, None), ..message })
}

/// What only sessions have.
fn is_of_sessions(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
    )
}
