//! Children that serve several clients: a few for all sessions of a shard, or one for each principal of 2026-07-28.
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
//! What requests of 2026-07-28 have of it is in [`alone`](super::alone).

use super::{
    Common,
    alone::{speaks_newer_only, untagged},
    bridge::{ChildAsk, Forwarded, Heard, Own, Purpose, failure, own_initialize, own_params},
    client::Client,
    discovery::Discovery,
    fanout::Fanout,
    levels::Levels,
    subscriptions::{Change, Subscriptions},
    wire::{self, Greeting},
};
use crate::{
    core::{
        jsonrpc::RpcError,
        seam::{
            Call, CallKey, Listening, LogLevel, Notification, NotificationKind, Notified, Principal,
            SessionKey, Tell,
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
    by_child: HashMap<ChildId, usize>,
    pub(super) fanout: Fanout,
}

/// Who gets which place.
pub(super) enum Division {
    /// There is a fixed number of places: a client gets the one that serves the fewest.
    Even,
    /// Each principal has one, made when it is needed and ended when nobody has used it for so long. Without `--auth` all
    /// clients are one.
    Principals { by_principal: HashMap<Option<Principal>, usize>, idle: Duration },
}

/// What is left of a child when it ends.
#[derive(Default)]
pub(super) struct Place {
    pub(super) state: State,
    /// Of the last child that gave one: a session can begin while the next one starts.
    greeting: Option<Greeting>,
    /// The same for clients of 2026-07-28.
    pub(super) discovery: Option<Discovery>,
    members: HashSet<SessionKey>,
    pub(super) listens: HashMap<CallKey, Listening>,
    /// Clients whose `initialize` waits for the first greeting, and requests without a session that wait for the child.
    pub(super) waiting: Vec<Call>,
    pub(super) subscriptions: Subscriptions,
    pub(super) levels: Levels,
    failures: u32,
    /// When a client last wanted something, where it matters.
    pub(super) used: Option<Instant>,
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
}

impl Shared {
    /// Places for `count` children, which are started at the first poll.
    pub(super) fn of_shard(count: usize) -> Self {
        let places = std::iter::repeat_with(Place::default).take(count).enumerate().collect();
        Shared { places, ..Shared::with(Division::Even) }
    }

    /// A place for each principal, given up when nobody has used it for `idle`.
    pub(super) fn of_principals(idle: Duration) -> Self {
        Shared::with(Division::Principals { by_principal: HashMap::new(), idle })
    }

    fn with(division: Division) -> Self {
        Shared {
            division,
            places: Slab::new(),
            by_session: HashMap::new(),
            by_child: HashMap::new(),
            fanout: Fanout::default(),
        }
    }

    /// Whether a child is of a place here.
    pub(super) fn has(&self, child: ChildId) -> bool {
        self.by_child.contains_key(&child)
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
            State::Serving(child, _) => {
                self.pass_on(common, at, child, Client::Session(session), call, out);
            }
            State::Empty | State::Starting(..) | State::Waiting(_) => {
                common.bridge.counters.calls_failed += 1;
                out.push(Tell::Respond(call.key, Err(restarting())));
            }
        }
    }

    /// A session begins where the fewest are.
    fn begin(&mut self, common: &mut Common, session: SessionKey, call: Call, out: &mut Vec<Tell>) {
        let fewest = self.places.iter().min_by_key(|(_, place)| place.members.len());
        let (at, _) = fewest.expect("a shard has a place");
        let place = &mut self.places[at];
        if place.speaks_newer() {
            return out.push(Tell::Respond(call.key, Err(speaks_newer_only())));
        }
        if place.greeting.is_none() && place.waiting.len() >= CHILD_GREETINGS_WAITING_MAX {
            common.bridge.counters.sessions_refused += 1;
            return out.push(Tell::Refuse(call.key));
        }
        self.by_session.insert(session, at);
        place.members.insert(session);
        match &place.greeting {
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

    pub(super) fn cancel(&mut self, common: &mut Common, call: CallKey) {
        for (_, place) in &mut self.places {
            place.waiting.retain(|waiting| waiting.key != call);
        }
        match common.bridge.cancel(call) {
            Some((child, client, Purpose::Subscribe(uri))) => self.unsubscribe(common, child, client, &uri),
            Some((child, client, Purpose::Logging)) => self.lower_level(common, child, client),
            Some(_) => {}
            None => self.end_listen(common, call),
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

    pub(super) fn end_session(&mut self, common: &mut Common, session: SessionKey) {
        let Some(at) = self.by_session.remove(&session) else { return };
        let place = &mut self.places[at];
        place.members.remove(&session);
        place.waiting.retain(|call| call.session != Some(session));
        self.end_client(common, at, Client::Session(session));
    }

    /// Nobody is there any more for what a client had the child told.
    pub(super) fn end_client(&mut self, common: &mut Common, at: usize, client: Client) {
        let place = &mut self.places[at];
        let unwanted = place.subscriptions.end_client(client);
        let level_has_changed = place.levels.remove(client);
        if let Some(child) = place.child() {
            for uri in unwanted {
                tell_subscription(common, child, "resources/unsubscribe", &uri);
            }
        }
        if level_has_changed {
            self.tell_level(common, at);
        }
    }

    fn unsubscribe(&mut self, common: &mut Common, child: ChildId, client: Client, uri: &Arc<str>) {
        let Some(&at) = self.by_child.get(&child) else { return };
        if self.places[at].subscriptions.unsubscribe(client, uri) == Change::Forward {
            tell_subscription(common, child, "resources/unsubscribe", uri);
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
                State::Starting(..) | State::Serving(..) | State::Waiting(_) => {}
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
            State::Empty | State::Serving(..) => None,
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
        common.bridge.request(child, "initialize", &own_initialize(), Own::Initialize);
    }

    /// A child is of no more use: calls fail, and another is started after a while.
    pub(super) fn fail(&mut self, common: &mut Common, child: ChildId, reason: &str, out: &mut Vec<Tell>) {
        common.bridge.end(child, common.grace, out);
        let Some(at) = self.by_child.remove(&child) else { return };
        let (place, now) = (&mut self.places[at], Instant::now());
        place.subscriptions.forget_unconfirmed();
        place.levels.forget_requests();
        let has_proved_itself = matches!(place.state, State::Serving(_, since)
            if now.duration_since(since).as_millis() >= u128::from(CHILD_RESTART_MS_MAX));
        place.failures = if has_proved_itself { 1 } else { place.failures.saturating_add(1) };
        let wait = back_off(place.failures);
        place.state = State::Waiting(now + wait);
        // Who waited for a first greeting is told to come again.
        for call in place.waiting.drain(..) {
            common.bridge.counters.sessions_refused += 1;
            out.push(match call.session {
                Some(_) => Tell::Refuse(call.key),
                None => Tell::Respond(call.key, Err(failed_to_start())),
            });
        }
        if !common.is_ending {
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
            return common.bridge.request(child, "server/discover", &own_params(""), Own::Discover);
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
    fn child(&self) -> Option<ChildId> {
        match self.state {
            State::Serving(child, _) => Some(child),
            State::Empty | State::Starting(..) | State::Waiting(_) => None,
        }
    }

    /// The process, whether it serves yet or not.
    pub(super) fn process(&self) -> Option<ChildId> {
        match self.state {
            State::Serving(child, _) | State::Starting(child, _) => Some(child),
            State::Empty | State::Waiting(_) => None,
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
    common.bridge.request(child, method, params.as_bytes(), Own::Setting);
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
