//! Calls of sessions whose child, of 2026-07-28, needs an answer of the client first (`input_required`).
//!
//! Owns what is under way between two rounds of such a call: the client's answers so far. Each question becomes a request of
//! the server on the call's stream; when the last one is answered the child is given the call again, with all answers and its
//! own state. The child knows nothing of it meanwhile, so there is nothing to cancel there.
//!
//! A client that answers with an error, or not at all, fails the call: the newer revision has no words for that. Bounded by
//! [`CHILD_ROUNDS_MAX`] rounds of [`CHILD_ASKS_MAX`] questions.

use super::{Bridge, ClientCall, child_gone, failure, failure_owned};
use crate::{
    backend::{members::Members, stdio::claims::quoted, stdio::wire},
    core::{
        jsonrpc::{self, RpcError},
        seam::{CallKey, Notification, NotificationKind, ServerRequest, ServerRequestId, Tell},
    },
    limits::{CHILD_ASKS_MAX, CHILD_ROUNDS_MAX},
    shell::child::ChildId,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// A call between two rounds.
pub(super) struct Asking {
    pub(super) child: ChildId,
    pub(super) call: ClientCall,
    questions: Vec<Question>,
    /// As the child wrote it.
    state: Option<Box<RawValue>>,
}

struct Question {
    name: String,
    method: &'static str,
    request: ServerRequestId,
    answer: Option<Bytes>,
}

/// What a child wants to know.
struct Wanted {
    name: String,
    method: crate::core::seam::ServerMethod,
    params: Option<Bytes>,
}

impl Bridge {
    /// A child answered a session's call with questions: they are put to its client.
    pub(super) fn begin_round(
        &mut self,
        child: ChildId,
        mut call: ClientCall,
        result: &Bytes,
        out: &mut Vec<Tell>,
    ) {
        let Some(told) = &mut call.told else { return };
        told.rounds += 1;
        let session = told.session;
        let wanted = match (told.rounds > CHILD_ROUNDS_MAX, wanted(result)) {
            (true, _) => Err(failure("the server behind this one asks again and again")),
            (false, wanted) => wanted,
        };
        let (wanted, state) = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return self.fail_call(call.key, error, out),
        };
        let key = call.key;
        let mut questions = Vec::with_capacity(wanted.len());
        for Wanted { name, method, params } in wanted {
            self.asks_made += 1;
            let request = ServerRequestId(self.asks_made);
            let params = params.map(|params| with_elicitation(&params, request));
            questions.push(Question { name, method: method.name(), request, answer: None });
            self.inquiries.insert(request, key);
            let timeout_ms = self.ask_timeout_ms;
            let call = Some(key);
            out.push(Tell::Request(ServerRequest { id: request, session, call, method, params, timeout_ms }));
        }
        let asking = Asking { child, call, questions, state };
        if asking.questions.is_empty() {
            return self.end_round(asking, out);
        }
        self.asking.insert(key, asking);
    }

    /// A client's answer, if it is to a question of a round.
    pub(super) fn answered_in_round(
        &mut self,
        request: ServerRequestId,
        outcome: &Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) -> bool {
        let Some(key) = self.inquiries.remove(&request) else { return false };
        let Some(asking) = self.asking.get_mut(&key) else { return true };
        let Some(question) = asking.questions.iter_mut().find(|question| question.request == request) else {
            return true;
        };
        match outcome {
            Ok(answer) => question.answer = Some(answer.clone()),
            Err(error) => {
                let what = format!("the client did not answer `{}`: {}", question.method, error.message);
                self.withdraw(key, out);
                self.fail_call(key, failure_owned(what), out);
                return true;
            }
        }
        if asking.questions.iter().all(|question| question.answer.is_some())
            && let Some(asking) = self.asking.remove(&key)
        {
            self.end_round(asking, out);
        }
        true
    }

    /// All is answered: the child gets the call again.
    fn end_round(&mut self, asking: Asking, out: &mut Vec<Tell>) {
        let round = asking.members();
        let key = asking.call.key;
        if let Err(error) = self.tell_call(asking.child, asking.call, &round) {
            self.fail_call(key, error, out);
        }
    }

    /// The call is over while its client is being asked. Its client is told not to bother.
    pub(super) fn withdraw(&mut self, key: CallKey, out: &mut Vec<Tell>) -> Option<Asking> {
        let asking = self.asking.remove(&key)?;
        for question in asking.questions.iter().filter(|question| question.answer.is_none()) {
            if self.inquiries.remove(&question.request).is_some() {
                let params = format!(r#"{{"requestId":{}}}"#, question.request.0);
                let json = jsonrpc::notification("notifications/cancelled", Some(params.as_bytes()));
                out.push(Tell::Notify(key, Notification { kind: NotificationKind::Other, json }));
            }
        }
        Some(asking)
    }

    /// A child is gone: so is what it was to be asked again.
    pub(super) fn abandon_rounds(&mut self, child: ChildId, out: &mut Vec<Tell>) {
        let of_child = self.asking.iter().filter(|(_, asking)| asking.child == child);
        let keys: Vec<CallKey> = of_child.map(|(key, _)| *key).collect();
        for key in keys {
            self.withdraw(key, out);
            self.fail_call(key, child_gone(), out);
        }
    }

    fn fail_call(&mut self, key: CallKey, error: RpcError, out: &mut Vec<Tell>) {
        self.counters.calls_failed += 1;
        out.push(Tell::Respond(key, Err(error)));
    }
}

impl Asking {
    /// What the next round says more than the first.
    fn members(&self) -> String {
        let mut members = String::new();
        if !self.questions.is_empty() {
            members.push_str("\"inputResponses\":{");
            for (index, Question { name, answer, .. }) in self.questions.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let answer = String::from_utf8_lossy(answer.as_deref().unwrap_or(b"{}"));
                write!(members, "{comma}{}:{answer}", quoted(name)).expect("a string takes everything");
            }
            members.push_str("},");
        }
        if let Some(state) = &self.state {
            write!(members, "\"requestState\":{state},").expect("a string takes everything");
        }
        members
    }
}

/// An elicitation by URL has a name of its own in 2025-11-25, which 2026-07-28 does without.
fn with_elicitation(params: &Bytes, request: ServerRequestId) -> Bytes {
    let members = Members::of(params).unwrap_or_default();
    let is_url = members.value("mode").is_some_and(|mode| mode.get() == "\"url\"");
    if !is_url || members.value("elicitationId").is_some() {
        return params.clone();
    }
    let number = format!("{{\"elicitationId\":\"{}\",", request.0);
    [number.as_bytes(), params.trim_ascii_start().strip_prefix(b"{").unwrap_or(params)].concat().into()
}

/// Whether a result asks for more.
pub(super) fn asks(result: &[u8]) -> bool {
    memchr::memmem::find(result, b"input_required").is_some()
        && Members::of(result)
            .and_then(|members| members.value("resultType"))
            .is_some_and(|kind| kind.get() == "\"input_required\"")
}

/// The questions of a result, and its state.
fn wanted(result: &[u8]) -> Result<(Vec<Wanted>, Option<Box<RawValue>>), RpcError> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let malformed = || failure("the server behind this one asks in a way that is malformed");
    let members = Members::of(result).ok_or_else(malformed)?;
    let requests = match members.value("inputRequests") {
        Some(requests) => Members::of(requests.get().as_bytes()).ok_or_else(malformed)?,
        None => Members::default(),
    };
    if requests.0.len() > CHILD_ASKS_MAX {
        return Err(failure("the server behind this one asks too many questions at once"));
    }
    let state = members.value("requestState").map(ToOwned::to_owned);
    let wanted = requests.0.iter().map(|(name, request)| {
        let Request { method, params } = serde_json::from_str(request.get()).map_err(|_| malformed())?;
        let known = wire::server_method(&method).ok_or_else(|| {
            let what =
                format!("the server behind this one asks for `{method}`, which this client does not know");
            failure_owned(what)
        })?;
        let params = params.map(|params| Bytes::copy_from_slice(params.get().as_bytes()));
        Ok(Wanted { name: name.clone().into_owned(), method: known, params })
    });
    Ok((wanted.collect::<Result<_, RpcError>>()?, state))
}
