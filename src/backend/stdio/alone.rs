//! Requests of 2026-07-28 to children of a 2025 revision: what no session is needed for.
//!
//! Such a request is given to a child that was initialised by us. Discovery is answered from the child's greeting; a listen
//! stream gets what the child announces of its own accord, and the child hears of the resources it names; anything
//! else is passed on, and its result stamped with what the newer revision wants of one. What that revision has no more is
//! refused, as it is by every server of it.
//!
//! Places of principals are made here and given up here. Finding those that nobody uses looks at all of them once per poll:
//! there are no more than `--max-children`.

use super::{
    Common,
    bridge::{Forwarded, Own, Purpose, failure, own_params},
    client::Client,
    discovery::Discovery,
    shared::{Division, Place, Shared, State, restarting},
    subscriptions::Change,
    wire,
};
use crate::{
    backend::{
        Capabilities,
        host::listen,
        rounds::{self, Round},
        service::{invalid_params, method_not_found},
    },
    core::{
        jsonrpc::{self, RpcError},
        seam::{Call, CallKey, Listening, Notification, NotificationKind, Tell},
    },
    limits::CHILD_GREETINGS_WAITING_MAX,
    shell::child::ChildId,
};
use bytes::Bytes;
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
            (State::Waiting(_), _) => {
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

    /// A child speaks 2026-07-28 itself: it is listened to, once for everybody.
    pub(super) fn discovered(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        answer: Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        let Some(discovery) = answer.ok().and_then(Discovery::of_child) else {
            return self.fail(common, child, "refused initialize and server/discover", out);
        };
        let Capabilities { tools, prompts, resources, .. } = &discovery.news;
        let tools = tools.is_some_and(|tools| tools.list_changed);
        let prompts = prompts.is_some_and(|prompts| prompts.list_changed);
        let resources = resources.is_some_and(|resources| resources.list_changed);
        if tools || prompts || resources {
            let wanted = serde_json::json!({
                "toolsListChanged": tools, "promptsListChanged": prompts, "resourcesListChanged": resources,
            });
            let params = own_params(&format!(",\"notifications\":{wanted}"));
            common.bridge.request(child, "subscriptions/listen", &params, Own::Setting);
        }
        let place = &mut self.places[at];
        place.state = State::Serving(child, Instant::now());
        place.discovery = Some(discovery);
        for call in std::mem::take(&mut place.waiting) {
            match call.session {
                Some(_) => out.push(Tell::Respond(call.key, Err(speaks_newer_only()))),
                None => self.serve_alone(common, at, child, call, out),
            }
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
        for uri in &listening.uris {
            if place.subscriptions.subscribe(Client::Alone(key), uri) == Change::Forward {
                let params = serde_json::json!({ "uri": &**uri }).to_string();
                let own = Own::Subscribe(uri.clone());
                common.bridge.request(child, "resources/subscribe", params.as_bytes(), own);
            }
        }
        place.listens.insert(key, listening.clone());
        out.push(Tell::Listen(key, listening));
    }

    /// A client closed its listen stream, if that call is one.
    pub(super) fn end_listen(&mut self, common: &mut Common, call: CallKey) {
        let at = self.places.iter_mut().find_map(|(at, place)| place.listens.remove(&call).map(|_| at));
        if let Some(at) = at {
            self.places[at].used = Some(Instant::now());
            self.end_client(common, at, Client::Alone(call));
        }
    }

    // --- Places -------------------------------------------------------------------------------

    /// The place that serves such a request. `None` if there is none, and no room to make one.
    fn place_of(&mut self, common: &mut Common, call: &Call, now: Instant) -> Option<usize> {
        let known = match &self.division {
            Division::Even => {
                self.places.iter().min_by_key(|(_, place)| place.load(common)).map(|(at, _)| at)
            }
            Division::Principals { by_principal, .. } => by_principal.get(&call.principal).copied(),
        };
        known.or_else(|| self.make_place(common, call, now))
    }

    fn make_place(&mut self, common: &mut Common, call: &Call, now: Instant) -> Option<usize> {
        let at = self.places.insert(Place::default());
        self.start(common, at, now);
        if !matches!(self.places[at].state, State::Starting(..)) {
            self.places.remove(at);
            return None;
        }
        if let Division::Principals { by_principal, .. } = &mut self.division {
            by_principal.insert(call.principal.clone(), at);
        }
        Some(at)
    }

    /// Ends the children of principals that have not wanted anything for a while.
    pub(super) fn give_up_unused(&mut self, common: &mut Common, now: Instant, out: &mut Vec<Tell>) {
        let Division::Principals { by_principal, idle } = &mut self.division else { return };
        for (_, place) in &mut self.places {
            if place.is_used(common) {
                place.used = Some(now);
            }
        }
        let idle = *idle;
        let is_unused = |place: &Place| place.used.is_some_and(|used| now.duration_since(used) >= idle);
        let unused: Vec<usize> =
            self.places.iter().filter(|(_, place)| is_unused(place)).map(|(at, _)| at).collect();
        by_principal.retain(|_, at| !unused.contains(at));
        for at in unused {
            self.fanout.forget(at);
            let place = self.places.remove(at);
            if let Some(child) = place.process() {
                self.forget_child(child);
                common.bridge.end(child, common.grace, out);
            }
        }
    }

    /// When the first of them will have been unused for long enough.
    pub(super) fn end_of_idleness(&self) -> Option<Instant> {
        let Division::Principals { idle, .. } = &self.division else { return None };
        self.places.iter().filter_map(|(_, place)| Some(place.used? + *idle)).min()
    }
}

impl Place {
    /// Whether its child speaks 2026-07-28 itself.
    pub(super) fn speaks_newer(&self) -> bool {
        self.discovery.as_ref().is_some_and(|discovery| discovery.stamp.is_none())
    }

    /// What it has to do at present.
    fn load(&self, common: &Common) -> usize {
        let calls = self.process().map_or(0, |child| common.bridge.calls(child));
        calls + self.waiting.len() + self.listens.len()
    }

    fn is_used(&self, common: &Common) -> bool {
        self.load(common) > 0
    }
}

pub(super) fn speaks_newer_only() -> RpcError {
    failure(
        "the server behind this one speaks 2026-07-28, which has no initialize; it serves clients of that revision",
    )
}

/// What a child of 2026-07-28 announces, without the name of our subscription. `None` for what is about that.
pub(super) fn untagged(message: Notification) -> Option<Notification> {
    let method = match &message.kind {
        NotificationKind::ToolsListChanged => "notifications/tools/list_changed",
        NotificationKind::PromptsListChanged => "notifications/prompts/list_changed",
        NotificationKind::ResourcesListChanged => "notifications/resources/list_changed",
        NotificationKind::ResourceUpdated(_) | NotificationKind::Other => return None,
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
