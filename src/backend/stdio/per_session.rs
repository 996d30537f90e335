//! One child for each session: nothing of one client is ever seen by another.
//!
//! Owns who belongs to whom. A child is started by its session's `initialize`, which it answers itself, and ends with the
//! session; when it ends first, the session ends with it, so that the client learns to begin again.

use super::{
    Common,
    bridge::{ChildAsk, Heard, Purpose, child_gone},
    client::Client,
    wire::Greeting,
};
use crate::{
    core::seam::{Call, LogLevel, Notification, NotificationKind, Notified, SessionKey, Tell},
    shell::child::{ChildId, Event},
};
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
pub(super) struct PerSession {
    children: HashMap<SessionKey, ChildId>,
    owners: HashMap<ChildId, Owner>,
    /// Until when a child has to answer `initialize`, earliest first. Those that have are taken out when they come up.
    starting: VecDeque<(Instant, ChildId)>,
}

#[derive(Debug)]
struct Owner {
    session: SessionKey,
    /// Its answer to `initialize`, once the client has it.
    greeting: Option<Greeting>,
}

impl PerSession {
    pub(super) fn call(&mut self, common: &mut Common, session: SessionKey, call: Call, out: &mut Vec<Tell>) {
        if call.method.as_str() == "initialize" {
            return self.begin(common, session, call, out);
        }
        match self.children.get(&session) {
            Some(child) => {
                common.bridge.forward(*child, Client::Session(session), call, Purpose::Plain, out);
            }
            None => out.push(Tell::Respond(call.key, Err(child_gone()))),
        }
    }

    fn begin(&mut self, common: &mut Common, session: SessionKey, call: Call, out: &mut Vec<Tell>) {
        let Some(child) = common.bridge.start(&common.program) else {
            common.bridge.counters.sessions_refused += 1;
            return out.push(Tell::Refuse(call.key));
        };
        self.children.insert(session, child);
        self.owners.insert(child, Owner { session, greeting: None });
        self.starting.push_back((Instant::now() + common.start_timeout, child));
        common.bridge.forward(child, Client::Session(session), call, Purpose::Initialize, out);
    }

    pub(super) fn notified(&mut self, common: &mut Common, notified: &Notified) {
        if let Some(child) = self.children.get(&notified.session) {
            common.bridge.notify(*child, notified);
        }
    }

    pub(super) fn log_level(&mut self, common: &mut Common, session: SessionKey, level: LogLevel) {
        let Some(child) = self.children.get(&session) else { return };
        let greeting = self.owners.get(child).and_then(|owner| owner.greeting.as_ref());
        if greeting.is_some_and(|greeting| greeting.has_logging) {
            common.bridge.request_log_level(*child, level);
        }
    }

    pub(super) fn end_session(&mut self, common: &mut Common, session: SessionKey, out: &mut Vec<Tell>) {
        if let Some(child) = self.children.remove(&session) {
            self.owners.remove(&child);
            common.bridge.end(child, common.grace, out);
        }
    }

    /// Gives up on children that have not answered `initialize` in time.
    pub(super) fn poll(&mut self, common: &mut Common, out: &mut Vec<Tell>) {
        while let Some(&(until, child)) = self.starting.front() {
            if self.is_starting(child) {
                if until > Instant::now() {
                    return;
                }
                self.lose(common, child, "did not answer initialize in time", out);
                common.bridge.end(child, common.grace, out);
            }
            self.starting.pop_front();
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.starting.front().map(|(until, _)| *until)
    }

    fn is_starting(&self, child: ChildId) -> bool {
        self.owners.get(&child).is_some_and(|owner| owner.greeting.is_none())
    }

    pub(super) fn event(&mut self, common: &mut Common, child: ChildId, event: Event, out: &mut Vec<Tell>) {
        match event {
            Event::Said(line) => {
                for heard in common.bridge.hear(child, line, out) {
                    self.heard(common, child, heard, out);
                }
            }
            Event::Logged(line) => common.bridge.log(child, &line),
            Event::Broken => {
                self.lose(common, child, "closed its standard input or output", out);
                common.bridge.end(child, common.grace, out);
            }
            Event::Exited(status) => {
                common.bridge.counters.children_ended += 1;
                self.lose(common, child, &status, out);
                common.bridge.end(child, Duration::ZERO, out);
            }
        }
    }

    /// A child of a living session is of no more use: calls fail, then the session ends.
    fn lose(&mut self, common: &mut Common, child: ChildId, status: &str, out: &mut Vec<Tell>) {
        let Some(owner) = self.owners.remove(&child) else { return };
        if !common.is_ending {
            tracing::warn!(%child, status, "a child ended before its session");
        }
        self.children.remove(&owner.session);
        common.bridge.abandon(child, out);
        // A session whose initialize has just failed ends by that.
        if owner.greeting.is_some() {
            out.push(Tell::EndSession(owner.session));
        }
    }

    fn heard(&mut self, common: &mut Common, child: ChildId, heard: Heard, out: &mut Vec<Tell>) {
        match heard {
            Heard::Answered(_, Purpose::Initialize, Ok(result)) => {
                if let Some(owner) = self.owners.get_mut(&child) {
                    owner.greeting = Greeting::read(result);
                }
            }
            Heard::Answered(..) | Heard::Own(..) => {}
            Heard::Asked(ask) => self.asked(common, child, ask, out),
            Heard::Noted(message) => self.noted(common, child, message, out),
        }
    }

    fn asked(&mut self, common: &mut Common, child: ChildId, ask: ChildAsk, out: &mut Vec<Tell>) {
        if let Some(owner) = self.owners.get(&child) {
            let call = common.bridge.only_call(child).map(|(call, _)| call);
            common.bridge.ask(child, ask, owner.session, call, out);
        }
    }

    /// A log message, or something unknown, goes with the only call there is. What is about the server as a whole, or may
    /// belong to any of several calls, goes to the listener.
    fn noted(&mut self, common: &mut Common, child: ChildId, message: Notification, out: &mut Vec<Tell>) {
        let Some(owner) = self.owners.get(&child) else { return };
        let call = match message.kind {
            NotificationKind::Log(_) | NotificationKind::Other | NotificationKind::Progress => {
                common.bridge.only_call(child)
            }
            NotificationKind::ToolsListChanged
            | NotificationKind::PromptsListChanged
            | NotificationKind::ResourcesListChanged
            | NotificationKind::ResourceUpdated(_) => None,
        };
        out.push(match call {
            Some((call, _)) => Tell::Notify(call, message),
            None => Tell::Announce(owner.session, message),
        });
    }
}
