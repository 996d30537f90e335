//! One child for each session: nothing of one client is ever seen by another.
//!
//! Owns who belongs to whom. A child is started by its session's `initialize`, which it answers itself, and ends with the
//! session; when it ends first, the session ends with it, so that the client learns to begin again. A child that refuses
//! `initialize` may speak 2026-07-28: it is given away, with the client that waits.

use super::{
    Common,
    bridge::{ChildAsk, Forwarded, Heard, Own, Purpose, child_gone, child_is_full},
    client::Client,
    wire::{self, Greeting},
};
use crate::{
    core::jsonrpc::RpcError,
    core::seam::{Call, LogLevel, Notification, NotificationKind, Notified, SessionKey, Tell},
    shell::child::{ChildId, Event},
};
use bytes::Bytes;
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
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The `initialize` that it has to answer.
    Starting(Call),
    /// It has, and the client has its answer.
    Serving(Option<Greeting>),
}

/// A child that refused the `initialize` of a client.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) child: ChildId,
    pub(super) session: SessionKey,
    pub(super) call: Call,
    pub(super) error: RpcError,
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
        let params = call.params.as_ref().map(|params| wire::with_revision(params, call.revision));
        let params = params.as_deref().unwrap_or(b"{}");
        if common.bridge.request(child, "initialize", params, Own::Initialize) == Forwarded::No {
            common.bridge.end(child, common.grace, out);
            return out.push(Tell::Respond(call.key, Err(child_is_full())));
        }
        self.children.insert(session, child);
        self.owners.insert(child, Owner { session, phase: Phase::Starting(call) });
        self.starting.push_back((Instant::now() + common.start_timeout, child));
    }

    pub(super) fn notified(&mut self, common: &mut Common, notified: &Notified) {
        if let Some(child) = self.children.get(&notified.session) {
            common.bridge.notify(*child, notified);
        }
    }

    pub(super) fn log_level(&mut self, common: &mut Common, session: SessionKey, level: LogLevel) {
        let Some(child) = self.children.get(&session) else { return };
        let phase = self.owners.get(child).map(|owner| &owner.phase);
        if matches!(phase, Some(Phase::Serving(Some(greeting))) if greeting.has_logging) {
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
        self.owners.get(&child).is_some_and(|owner| matches!(owner.phase, Phase::Starting(_)))
    }

    /// A child did something. If it is none of ours any more, what is known of it.
    pub(super) fn event(
        &mut self,
        common: &mut Common,
        child: ChildId,
        event: Event,
        out: &mut Vec<Tell>,
    ) -> Option<Refused> {
        match event {
            Event::Said(line) => {
                for heard in common.bridge.hear(child, line, out) {
                    match heard {
                        Heard::Own(Own::Initialize, Ok(result)) => self.greeted(child, result, out),
                        Heard::Own(Own::Initialize, Err(error)) => return self.refused(child, error),
                        other => self.heard(common, child, other, out),
                    }
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
        None
    }

    fn greeted(&mut self, child: ChildId, result: Bytes, out: &mut Vec<Tell>) {
        let Some(owner) = self.owners.get_mut(&child) else { return };
        let serving = Phase::Serving(Greeting::read(result.clone()));
        if let Phase::Starting(call) = std::mem::replace(&mut owner.phase, serving) {
            out.push(Tell::Respond(call.key, Ok(result)));
        }
    }

    fn refused(&mut self, child: ChildId, error: RpcError) -> Option<Refused> {
        let Owner { session, phase } = self.owners.remove(&child)?;
        self.children.remove(&session);
        let Phase::Starting(call) = phase else { return None };
        Some(Refused { child, session, call, error })
    }

    /// A child of a living session is of no more use: calls fail, then the session ends.
    fn lose(&mut self, common: &mut Common, child: ChildId, status: &str, out: &mut Vec<Tell>) {
        let Some(owner) = self.owners.remove(&child) else { return };
        if !common.is_ending {
            tracing::warn!(%child, status, "a child ended before its session");
        }
        self.children.remove(&owner.session);
        common.bridge.abandon(child, out);
        match owner.phase {
            // The session ends by that.
            Phase::Starting(call) => {
                common.bridge.counters.calls_failed += 1;
                out.push(Tell::Respond(call.key, Err(child_gone())));
            }
            Phase::Serving(_) => out.push(Tell::EndSession(owner.session)),
        }
    }

    fn heard(&mut self, common: &mut Common, child: ChildId, heard: Heard, out: &mut Vec<Tell>) {
        match heard {
            Heard::Answered(..) | Heard::Own(..) | Heard::Acknowledged(..) => {}
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
