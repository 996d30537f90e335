//! Children that serve several clients: a few for all sessions of a shard, or one for each [owner](super::owners).
//!
//! Owns a place for each child, which outlives it: who is served there, what they are subscribed to, what they want to see of
//! its log. A child is initialised once, by us, and its answer kept; a session costs an entry in two maps. A child that
//! ends is started again, after a wait that doubles with each failure; calls under way fail, sessions go on, and the new
//! child is told their subscriptions and log level.
//!
//! Who hears what: changed lists concern everybody of the place, an updated resource its subscribers. A request to a client
//! and a log message belong to the one call that is under way with the child; if there are more, or none, the child gets an
//! error and the message goes to our log, because a guess would give one client's words to another.
//!
//! What requests of 2026-07-28 have of it is in [`alone`](super::alone), what sessions have of a child of 2026-07-28 in
//! [`told`](super::told).

use super::{
    Common,
    alone::untagged,
    bridge::{ChildAsk, Forwarded, Heard, Own, Purpose, failure, own_initialize, own_params},
    claims::Claims,
    client::Client,
    discovery::Discovery,
    fanout::Fanout,
    levels::Levels,
    owners::{Owner, Owners},
    subscriptions::{Change, Subscriptions},
    watch::Watches,
    wire::{self, Greeting},
};
use crate::{
    core::{
        jsonrpc::RpcError,
        seam::{
            Call, CallKey, Listening, LogLevel, Notification, NotificationKind, Notified, SessionKey, Tell,
        },
    },
    limits::{CHILD_GREETINGS_WAITING_MAX, CHILD_RESTART_MS_MAX, CHILD_RESTART_MS_MIN},
    shell::child::{ChildId, Event},
};
use bytes::Bytes;
use slab::Slab;
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) struct Shared {
    pub(super) division: Division,
    pub(super) places: Slab<Place>,
    by_session: HashMap<SessionKey, usize>,
    pub(super) by_child: HashMap<ChildId, usize>,
    /// What sessions at children of 2026-07-28 say with every request.
    pub(super) claims: HashMap<SessionKey, Claims>,
    pub(super) fanout: Fanout,
}

/// Who gets which place.
pub(super) enum Division {
    /// There is a fixed number of places: a client gets the one that serves the fewest.
    Even,
    /// Each has an owner, made when it is needed and ended when nobody has used it for a while.
    Owned(Owners),
}

/// What is left of a child when it ends.
#[derive(Default)]
pub(super) struct Place {
    pub(super) state: State,
    /// Of the last child that gave one: a session can begin while the next one starts.
    pub(super) greeting: Option<Greeting>,
    /// The same for clients of 2026-07-28.
    pub(super) discovery: Option<Discovery>,
    pub(super) members: HashSet<SessionKey>,
    pub(super) listens: HashMap<CallKey, Listening>,
    /// Clients whose `initialize` waits for the first greeting, and requests without a session that wait for the child.
    pub(super) waiting: Vec<Call>,
    pub(super) subscriptions: Subscriptions,
    /// The same at a child of 2026-07-28.
    pub(super) watches: Watches,
    pub(super) levels: Levels,
    pub(super) failures: u32,
    /// When a client last wanted something, where it matters.
    pub(super) used: Option<Instant>,
    /// Whom it is for, if not for everybody.
    pub(super) owner: Option<Owner>,
    /// What the child said to the `initialize` that waits, if it is not known yet what it speaks.
    pub(super) refusal: Option<RpcError>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    /// No child has been started yet.
    #[default]
    Empty,
    /// Its answer to `initialize` is expected until then.
    Starting(ChildId, Instant),
    /// It serves, since then.
    Serving(ChildId, Instant),
    /// The next one is started then.
    Waiting(Instant),
    /// There will be none: the session it was for is about to end.
    Gone,
}

impl Shared {
    /// Places for `count` children, which are started at the first poll.
    pub(super) fn of_shard(count: usize) -> Self {
        let places = std::iter::repeat_with(Place::default).take(count).enumerate().collect();
        Shared { places, ..Shared::with(Division::Even) }
    }

    /// Places that are made for their owners.
    pub(super) fn owned(owners: Owners) -> Self {
        Shared::with(Division::Owned(owners))
    }

    fn with(division: Division) -> Self {
        Shared {
            division,
            places: Slab::new(),
            by_session: HashMap::new(),
            by_child: HashMap::new(),
            claims: HashMap::new(),
            fanout: Fanout::default(),
        }
    }

    /// Whether a child is of a place here.
    pub(super) fn has(&self, child: ChildId) -> bool {
        self.by_child.contains_key(&child)
    }

    /// Whether a session is served here.
    pub(super) fn has_session(&self, session: SessionKey) -> bool {
        self.by_session.contains_key(&session)
    }

    /// A session is served at this place from now on.
    pub(super) fn enter(&mut self, session: SessionKey, at: usize) {
        self.by_session.insert(session, at);
        self.places[at].members.insert(session);
    }

    /// A session is not served any more. Where it was.
    pub(super) fn leave(&mut self, session: SessionKey) -> Option<usize> {
        self.claims.remove(&session);
        let at = self.by_session.remove(&session)?;
        self.places[at].members.remove(&session);
        Some(at)
    }

    /// The place of a child is gone.
    pub(super) fn forget_child(&mut self, child: ChildId) {
        self.by_child.remove(&child);
    }

    // --- Clients ------------------------------------------------------------------------------

    pub(super) fn call(&mut self, common: &mut Common, session: SessionKey, call: Call, out: &mut Vec<Tell>) {
        if call.method.as_str() == "initialize" {
            return self.begin(common, session, call, out);
        }
        let Some(&at) = self.by_session.get(&session) else {
            return out.push(Tell::Respond(call.key, Err(restarting())));
        };
        match self.places[at].state {
            State::Serving(child, _) if self.places[at].speaks_newer() => {
                self.pass_on_told(common, (at, child), session, call, out);
            }
            State::Serving(child, _) => {
                self.pass_on(common, at, child, Client::Session(session), call, out);
            }
            State::Empty | State::Starting(..) | State::Waiting(_) | State::Gone => {
                common.bridge.counters.calls_failed += 1;
                out.push(Tell::Respond(call.key, Err(restarting())));
            }
        }
    }

    /// A session begins where there is room for it.
    pub(super) fn begin(
        &mut self,
        common: &mut Common,
        session: SessionKey,
        call: Call,
        out: &mut Vec<Tell>,
    ) {
        let at = self.place_for_session(common, session, Instant::now());
        let room = at.filter(|at| {
            let place = &self.places[*at];
            place.is_known() || place.waiting.len() < CHILD_GREETINGS_WAITING_MAX
        });
        let Some(at) = room else {
            common.bridge.counters.sessions_refused += 1;
            return out.push(Tell::Refuse(call.key));
        };
        self.enter(session, at);
        let place = &mut self.places[at];
        match &place.greeting {
            _ if place.speaks_newer() => self.introduce(at, session, &call, out),
            Some(greeting) => out.push(Tell::Respond(call.key, Ok(greeting.for_client(call.revision)))),
            None => place.waiting.push(call),
        }
    }

    fn pass_on(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        client: Client,
        call: Call,
        out: &mut Vec<Tell>,
    ) {
        let uri = || call.params.as_deref().and_then(wire::uri_of);
        let subscriptions = &mut self.places[at].subscriptions;
        let (change, purpose) = match call.method.as_str() {
            "resources/subscribe" => match uri() {
                Some(uri) => (subscriptions.subscribe(client, &uri), Purpose::Subscribe(uri)),
                None => (Change::Forward, Purpose::Plain),
            },
            "resources/unsubscribe" => match uri() {
                Some(uri) => (subscriptions.unsubscribe(client, &uri), Purpose::Plain),
                None => (Change::Forward, Purpose::Plain),
            },
            _ => (Change::Forward, Purpose::Plain),
        };
        match change {
            Change::Forward => {
                let uri = purpose.subscribed();
                if common.bridge.forward(child, client, call, purpose, out) == Forwarded::No
                    && let Some(uri) = uri
                {
                    self.places[at].subscriptions.unsubscribe(client, &uri);
                }
            }
            Change::None => out.push(Tell::Respond(call.key, Ok(Bytes::from_static(b"{}")))),
            Change::Refused => {
                let error = failure("this session has too many subscriptions");
                out.push(Tell::Respond(call.key, Err(error)));
            }
        }
    }

    pub(super) fn cancel(&mut self, common: &mut Common, call: CallKey, out: &mut Vec<Tell>) {
        for (_, place) in &mut self.places {
            place.waiting.retain(|waiting| waiting.key != call);
        }
        match common.bridge.cancel(call, out) {
            Some((child, client, Purpose::Subscribe(uri))) => self.unsubscribe(common, child, client, &uri),
            Some((child, client, Purpose::Logging)) => self.lower_level(common, child, client),
            Some(_) => {}
            None => {
                self.cancel_watch(common, call);
                self.end_listen(common, call);
            }
        }
    }

    /// Only what a client says about progress of a request that the child made of it concerns the child: its other
    /// notifications are about a client of its own, which it has not.
    pub(super) fn notified(&mut self, common: &mut Common, notified: &Notified) {
        let Some(params) = notified.params.as_deref() else { return };
        if notified.method.as_str() != "notifications/progress" {
            return;
        }
        if let Some(child) = self.by_session.get(&notified.session).and_then(|at| self.places[*at].child()) {
            common.bridge.notify_progress(child, notified.session, params);
        }
    }

    pub(super) fn log_level(&mut self, common: &mut Common, session: SessionKey, level: LogLevel) {
        let Some(&at) = self.by_session.get(&session) else { return };
        if self.places[at].levels.set(Client::Session(session), level) {
            self.tell_level(common, at);
        }
    }

    pub(super) fn end_session(&mut self, common: &mut Common, session: SessionKey, out: &mut Vec<Tell>) {
        let Some(at) = self.leave(session) else { return };
        self.places[at].waiting.retain(|call| call.session != Some(session));
        self.end_client(common, at, Client::Session(session));
        if self.places[at].owner == Some(Owner::Session(session)) {
            self.give_up(common, at, out);
        }
    }

    /// Nobody is there any more for what a client had the child told.
    pub(super) fn end_client(&mut self, common: &mut Common, at: usize, client: Client) {
        let place = &mut self.places[at];
        let unwanted = place.subscriptions.end_client(client);
        let level_has_changed = place.levels.remove(client);
        if let Some(child) = place.child() {
            for uri in unwanted {
                self.unwatch(common, at, child, &uri);
            }
        }
        if level_has_changed {
            self.tell_level(common, at);
        }
    }

    fn unsubscribe(&mut self, common: &mut Common, child: ChildId, client: Client, uri: &Arc<str>) {
        let Some(&at) = self.by_child.get(&child) else { return };
        if self.places[at].subscriptions.unsubscribe(client, uri) == Change::Forward {
            self.unwatch(common, at, child, uri);
        }
    }

    fn lower_level(&mut self, common: &mut Common, child: ChildId, client: Client) {
        let Some(&at) = self.by_child.get(&child) else { return };
        if self.places[at].levels.remove(client) {
            self.tell_level(common, at);
        }
    }

    /// The lowest level that any client asked for.
    pub(super) fn tell_level(&self, common: &mut Common, at: usize) {
        let place = &self.places[at];
        if let (State::Serving(child, _), Some(level), true) =
            (place.state, place.levels.lowest(), place.has_logging())
        {
            common.bridge.request_log_level(child, level);
        }
    }

    // --- Children -----------------------------------------------------------------------------

    pub(super) fn event(&mut self, common: &mut Common, child: ChildId, event: Event, out: &mut Vec<Tell>) {
        match event {
            Event::Said(line) => {
                for heard in common.bridge.hear(child, line, out) {
                    self.heard(common, child, heard, out);
                }
            }
            Event::Logged(line) => common.bridge.log(child, &line),
            Event::Broken => self.fail(common, child, "closed its standard input or output", out),
            Event::Exited(status) => {
                common.bridge.counters.children_ended += 1;
                self.fail(common, child, &status, out);
            }
        }
    }

    /// Starts what is due, and hands out what is to be said to many.
    pub(super) fn poll(&mut self, common: &mut Common, now: Instant, out: &mut Vec<Tell>) {
        for (child, client) in common.bridge.give_up_parked(now) {
            self.lower_level(common, child, client);
        }
        self.give_up_unused(common, now, out);
        let places: Vec<_> = self.places.iter().map(|(at, place)| (at, place.state)).collect();
        for (at, state) in places {
            match state {
                State::Empty => self.start(common, at, now),
                State::Waiting(until) if until <= now => self.start(common, at, now),
                State::Starting(child, until) if until <= now => {
                    self.fail(common, child, "did not answer initialize in time", out);
                }
                State::Starting(..) | State::Serving(..) | State::Waiting(_) | State::Gone => {}
            }
        }
        self.fanout.hand_out(out);
    }

    pub(super) fn has_more(&self) -> bool {
        !self.fanout.is_empty()
    }

    pub(super) fn deadline(&self, common: &Common) -> Option<Instant> {
        let of_place = |place: &Place| match place.state {
            State::Starting(_, until) | State::Waiting(until) => Some(until),
            State::Empty | State::Serving(..) | State::Gone => None,
        };
        let restarts = self.places.iter().filter_map(|(_, place)| of_place(place)).min();
        [restarts, self.end_of_idleness(), common.bridge.next_late()].into_iter().flatten().min()
    }

    pub(super) fn start(&mut self, common: &mut Common, at: usize, now: Instant) {
        if common.is_ending {
            return;
        }
        let place = &mut self.places[at];
        let Some(child) = common.bridge.start(&common.program) else {
            // Its predecessor takes its time to end.
            place.state = State::Waiting(now + Duration::from_millis(CHILD_RESTART_MS_MIN));
            return;
        };
        place.state = State::Starting(child, now + common.start_timeout);
        self.by_child.insert(child, at);
        let _ = match common.alike.is_known() {
            true => common.bridge.request(child, "server/discover", &own_params(""), Own::Discover),
            false => common.bridge.request(child, "initialize", &own_initialize(), Own::Initialize),
        };
    }

    /// A child is of no more use: calls fail, and another is started after a while.
    pub(super) fn fail(&mut self, common: &mut Common, child: ChildId, reason: &str, out: &mut Vec<Tell>) {
        common.bridge.end(child, common.grace, out);
        let Some(at) = self.by_child.remove(&child) else { return };
        let (place, now) = (&mut self.places[at], Instant::now());
        place.subscriptions.forget_unconfirmed();
        place.levels.forget_requests();
        let refusal = place.refusal.take();
        self.forget_watches(at, out);
        let place = &mut self.places[at];
        let has_proved_itself = matches!(place.state, State::Serving(_, since)
            if now.duration_since(since).as_millis() >= u128::from(CHILD_RESTART_MS_MAX));
        place.failures = if has_proved_itself { 1 } else { place.failures.saturating_add(1) };
        let wait = back_off(place.failures);
        place.state = State::Waiting(now + wait);
        // Who waited for a first greeting is told to come again.
        for call in place.waiting.drain(..) {
            common.bridge.counters.sessions_refused += 1;
            out.push(match (call.session, &refusal) {
                (Some(_), Some(refusal)) => Tell::Respond(call.key, Err(refusal.clone())),
                (Some(_), None) => Tell::Refuse(call.key),
                (None, _) => Tell::Respond(call.key, Err(failed_to_start())),
            });
        }
        if let Some(Owner::Session(session)) = place.owner {
            // It ends with its child; if it has not begun, it ends by that.
            if place.discovery.is_some() {
                out.push(Tell::EndSession(session));
            }
            place.state = State::Gone;
        } else if !common.is_ending {
            let wait_ms = wait.as_millis();
            tracing::warn!(%child, reason, wait_ms, "a shared child ended; it is started again");
        }
    }

    fn heard(&mut self, common: &mut Common, child: ChildId, heard: Heard, out: &mut Vec<Tell>) {
        let Some(&at) = self.by_child.get(&child) else { return };
        match heard {
            Heard::Own(Own::Initialize, answer) => self.greeted(common, at, child, answer, out),
            Heard::Own(Own::Discover, answer) => self.discovered(common, at, child, answer, out),
            Heard::Own(Own::Subscribe(uri), Ok(_)) => self.places[at].subscriptions.confirm(&uri),
            Heard::Own(Own::Subscribe(_) | Own::Setting, _) => {}
            Heard::Own(Own::Listen(topic), answer) => {
                self.watch_ended(common, (at, child), &topic, answer, out);
            }
            Heard::Acknowledged(uri, honoured) => self.acknowledged(common, (at, child), &uri, honoured, out),
            Heard::Answered(_, Purpose::Subscribe(uri), Ok(_)) => self.places[at].subscriptions.confirm(&uri),
            Heard::Answered(client, Purpose::Subscribe(uri), Err(_)) => {
                self.places[at].subscriptions.unsubscribe(client, &uri);
            }
            Heard::Answered(client, Purpose::Logging, _) => self.lower_level(common, child, client),
            Heard::Answered(..) => {}
            Heard::Asked(ask) => asked(common, child, ask, out),
            Heard::Noted(message) => self.noted(common, at, child, message, out),
        }
    }

    fn greeted(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        answer: Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        if answer.is_err() {
            // One that speaks 2026-07-28 alone knows no such method.
            let _ = common.bridge.request(child, "server/discover", &own_params(""), Own::Discover);
            return;
        }
        if matches!(self.places[at].owner, Some(Owner::Anyone(_) | Owner::Session(_))) {
            // The program was another one: what its clients know of it is not so any more.
            return self.dissolve(common, at, out);
        }
        let Some(greeting) = answer.ok().and_then(Greeting::read) else {
            return self.fail(common, child, "speaks another revision", out);
        };
        let place = &mut self.places[at];
        place.state = State::Serving(child, Instant::now());
        common.bridge.notify_own(child, "notifications/initialized");
        let (greeted, alone): (Vec<_>, Vec<_>) =
            place.waiting.drain(..).partition(|call| call.session.is_some());
        for call in greeted {
            out.push(Tell::Respond(call.key, Ok(greeting.for_client(call.revision))));
        }
        place.discovery = Discovery::of_greeting(greeting.result());
        if let Some(stamp) = place.discovery.as_ref().and_then(|discovery| discovery.stamp.as_ref()) {
            common.bridge.stamp(child, Rc::clone(stamp));
        }
        place.greeting = Some(greeting);
        for uri in place.subscriptions.confirmed() {
            tell_subscription(common, child, "resources/subscribe", uri);
        }
        self.tell_level(common, at);
        for call in alone {
            self.serve_alone(common, at, child, call, out);
        }
    }

    /// Ends a place with everybody there: they begin again, with what the program is now.
    fn dissolve(&mut self, common: &mut Common, at: usize, out: &mut Vec<Tell>) {
        let place = &mut self.places[at];
        for call in std::mem::take(&mut place.waiting) {
            out.push(match call.session {
                Some(_) => Tell::Refuse(call.key),
                None => Tell::Respond(call.key, Err(restarting())),
            });
        }
        let listens = std::mem::take(&mut place.listens).into_keys();
        out.extend(listens.map(|listen| Tell::Respond(listen, Err(restarting()))));
        for session in place.members.clone() {
            self.leave(session);
            out.push(Tell::EndSession(session));
        }
        self.give_up(common, at, out);
    }

    fn noted(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        message: Notification,
        out: &mut Vec<Tell>,
    ) {
        let place = &self.places[at];
        let message = if place.speaks_newer() { untagged(message) } else { Some(message) };
        let Some(message) = message else { return };
        match &message.kind {
            NotificationKind::ToolsListChanged
            | NotificationKind::PromptsListChanged
            | NotificationKind::ResourcesListChanged => {
                let kind = message.kind.clone();
                self.fanout.push(at, message, || place.audience(&kind));
            }
            NotificationKind::ResourceUpdated(uri) => {
                let subscribers = place.subscriptions.subscribers(uri);
                self.fanout.push(at, message, || subscribers.into_iter().collect());
            }
            NotificationKind::Log(_) | NotificationKind::Progress | NotificationKind::Other => {
                match common.bridge.only_call(child) {
                    Some((call, _)) => out.push(Tell::Notify(call, message)),
                    None if matches!(message.kind, NotificationKind::Log(_)) => {
                        common.bridge.log_message(child, &message);
                    }
                    None => common.bridge.counters.messages_dropped += 1,
                }
            }
        }
    }
}

impl Place {
    /// Whether a session can begin there at once.
    fn is_known(&self) -> bool {
        self.greeting.is_some() || self.speaks_newer()
    }

    fn child(&self) -> Option<ChildId> {
        match self.state {
            State::Serving(child, _) => Some(child),
            State::Empty | State::Starting(..) | State::Waiting(_) | State::Gone => None,
        }
    }

    /// The process, whether it serves yet or not.
    pub(super) fn process(&self) -> Option<ChildId> {
        match self.state {
            State::Serving(child, _) | State::Starting(child, _) => Some(child),
            State::Empty | State::Waiting(_) | State::Gone => None,
        }
    }

    /// Whether the child takes a log level.
    pub(super) fn has_logging(&self) -> bool {
        self.greeting.as_ref().is_some_and(|greeting| greeting.has_logging)
    }

    /// Who wants to hear of a changed list.
    fn audience(&self, kind: &NotificationKind) -> Vec<Client> {
        let wants = |listening: &Listening| match kind {
            NotificationKind::ToolsListChanged => listening.tools,
            NotificationKind::PromptsListChanged => listening.prompts,
            NotificationKind::ResourcesListChanged => listening.resources,
            NotificationKind::ResourceUpdated(_)
            | NotificationKind::Progress
            | NotificationKind::Log(_)
            | NotificationKind::Other => false,
        };
        let sessions = self.members.iter().copied().map(Client::Session);
        let listens = self.listens.iter().filter(|(_, listening)| wants(listening));
        sessions.chain(listens.map(|(listen, _)| Client::Alone(*listen))).collect()
    }
}

/// A question has one addressee: that of the only call.
fn asked(common: &mut Common, child: ChildId, ask: ChildAsk, out: &mut Vec<Tell>) {
    match common.bridge.only_call(child) {
        Some((call, Client::Session(session))) => common.bridge.ask(child, ask, session, Some(call), out),
        Some((call, Client::Alone(_))) => common.bridge.ask_alone(child, ask, call, out),
        None => common.bridge.refuse_ask(
            child,
            &ask,
            "it is not clear which client this is for: not exactly one call is under way; \
             a server that asks its client needs --stdio-mode per-session",
        ),
    }
}

pub(super) fn tell_subscription(common: &mut Common, child: ChildId, method: &str, uri: &str) {
    let params = serde_json::json!({ "uri": uri }).to_string();
    let _ = common.bridge.request(child, method, params.as_bytes(), Own::Setting);
}

fn failed_to_start() -> RpcError {
    failure("the server behind this one did not start")
}

pub(super) fn restarting() -> RpcError {
    failure("the server behind this one is being started; try again soon")
}

fn back_off(failures: u32) -> Duration {
    let doubled = CHILD_RESTART_MS_MIN.saturating_mul(1 << failures.saturating_sub(1).min(20));
    Duration::from_millis(doubled.min(CHILD_RESTART_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let waits_ms: Vec<_> = (1..=4).map(|failures| back_off(failures).as_millis()).collect();
        assert_eq!(waits_ms, [100, 200, 400, 800]);
        assert_eq!(back_off(u32::MAX), Duration::from_millis(CHILD_RESTART_MS_MAX));
    }
}
