//! Handlers without a connection (2026-07-28): those whose clients have to come back with answers, and those that became
//! tasks.
//!
//! Owns the ways from a call to either and back. A handler never learns of it: it waits for an answer as it does where
//! there are sessions.

use super::super::{
    context::CallState,
    rounds::{self, Answers, Round},
    service::{self, Reply, Request, Service, internal_error},
    tasks::Task,
};
use super::Host;
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Call, Tell};
use crate::limits::{PARKED_GRACE_MS, PARKED_MS_MAX, TASK_TTL_MS_MAX};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
    task,
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Who waits for a handler.
#[derive(Debug, Default)]
pub(super) enum Standing {
    /// A client, on its call.
    #[default]
    OnCall,
    /// Nobody until the client with this ticket comes back.
    Parked(u64),
    /// Whoever asks for the task.
    Task(Arc<Task>),
    /// Nobody any more.
    Dropped,
}

/// Where a parked handler is.
#[derive(Debug)]
pub(super) enum Place {
    /// With the worker of that index.
    Worker(usize),
    /// It did not wait for the answers; this is for its client.
    Over(Result<Reply, RpcError>),
}

impl<S: Service> Host<S> {
    /// A call that may be answered with questions, or go on where an earlier one was.
    pub(super) fn begin(&mut self, call: Call, out: &mut Vec<Tell>) {
        match rounds::read(call.params.as_deref()) {
            Ok(Round::First(given)) => self.start(call, given, out),
            Ok(Round::Next { state, answers }) => self.go_on(call, &state, answers, out),
            Err(refusal) => out.push(Tell::Respond(call.key, Err(refusal))),
        }
    }

    /// The client has come back.
    fn go_on(&mut self, mut call: Call, state: &str, answers: Answers, out: &mut Vec<Tell>) {
        let request = coming_back(&mut call);
        let readmitted = catch_unwind(AssertUnwindSafe(|| self.service.readmit(&request)));
        if let Err(refusal) = readmitted.unwrap_or_else(|_| Err(internal_error())) {
            out.push(Tell::Respond(call.key, Err(refusal)));
            return;
        }
        let digest = digest_of(&call);
        match self.lot.claim(state, &digest) {
            Some(Place::Worker(index)) => self.reopen(index, &mut call, answers, out),
            Some(Place::Over(answer)) => {
                self.answer(call.key, call.revision, call.method.as_str(), answer, out);
            }
            None => {
                let reason = "`requestState` is not of this request, was used before or has expired";
                out.push(Tell::Respond(call.key, Err(service::invalid_params(reason))));
            }
        }
    }

    fn reopen(&mut self, index: usize, call: &mut Call, answers: Answers, out: &mut Vec<Tell>) {
        let worker = &mut self.workers[index];
        worker.standing = Standing::OnCall;
        let state = Rc::clone(worker.running.as_ref().expect("a parked worker runs a call"));
        state.reopen(call);
        self.by_call.insert(state.key(), index);
        self.deliver(&state, answers);
        self.resume(index, out);
    }

    pub(super) fn deliver(&self, state: &CallState, answers: Answers) {
        for (question, answer) in state.matched(answers) {
            self.link.asks.answered(question, Ok(answer));
        }
    }

    /// A handler without a session waits for something. If it is for its client, the client has to hear of it.
    pub(super) fn settle(&mut self, index: usize, out: &mut Vec<Tell>) {
        let worker = &self.workers[index];
        let Some(state) = worker.running.as_ref().filter(|state| !state.revision().has_sessions()) else {
            return;
        };
        let state = Rc::clone(state);
        match &worker.standing {
            Standing::OnCall => self.settle_on_call(index, &state, out),
            Standing::Task(task) => task.ask(state.questions(&self.link.asks)),
            Standing::Parked(_) | Standing::Dropped => {}
        }
    }

    fn settle_on_call(&mut self, index: usize, state: &Rc<CallState>, out: &mut Vec<Tell>) {
        if state.is_over() || self.become_task(index, state, out) {
            return;
        }
        let questions = state.questions(&self.link.asks);
        if !questions.is_empty() {
            self.park(index, state, &questions, out);
        }
    }

    fn park(&mut self, index: usize, state: &CallState, questions: &[(String, Bytes)], out: &mut Vec<Tell>) {
        let asked: usize = questions.iter().map(|(name, request)| name.len() + request.len()).sum();
        let params = state.params();
        let bytes = self.workers[index].size() + asked + params.as_ref().map_or(0, Bytes::len);
        while let Some(oldest) = self.lot.crowded_out(bytes) {
            self.give_up(oldest);
        }
        let digest = rounds::digest(state.principal(), state.method(), params.as_deref());
        let wait = state.patience().saturating_add(Duration::from_millis(PARKED_GRACE_MS));
        let due = Instant::now() + wait.min(Duration::from_millis(PARKED_MS_MAX));
        let (ticket, name) =
            self.lot.park(Place::Worker(index), state.principal().cloned(), &digest, due, bytes);
        self.workers[index].standing = Standing::Parked(ticket);
        self.by_call.remove(&state.key());
        state.leave();
        let asks = Ok(Reply::raw(rounds::input_required(questions, &name)));
        self.answer(state.key(), state.revision(), state.method(), asks, out);
    }

    /// A handler whose client has not come back is cancelled like one whose client has gone.
    fn give_up(&mut self, place: Place) {
        if let Place::Worker(index) = place {
            self.workers[index].standing = Standing::Dropped;
            self.workers[index].cancel();
        }
    }

    /// Gives up what has waited long enough, and has the driver woken for what has not.
    pub(super) fn watch(&mut self, cx: &mut task::Context<'_>) {
        loop {
            let Some(due) = self.lot.next_due().into_iter().chain(self.tasks_due()).min() else {
                self.timer = None;
                return;
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if Sleep::deadline(timer) != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let now = Instant::now();
            while let Some(place) = self.lot.expired(now) {
                self.give_up(place);
            }
            self.tasks.purge(now);
        }
    }

    /// Only who runs a task wakes up for its end; the table is one for all shards.
    fn tasks_due(&self) -> Option<Instant> {
        if self.tasks_here == 0 { None } else { self.tasks.next_due() }
    }

    // --- Tasks ----------------------------------------------------------------------------------

    /// Lets a call become the task that its handler wants, if there is room for one more.
    fn become_task(&mut self, index: usize, state: &Rc<CallState>, out: &mut Vec<Tell>) -> bool {
        let Some(ttl) = state.task_ttl().filter(|_| self.serves_tasks()) else { return false };
        let ttl = ttl.min(Duration::from_millis(TASK_TTL_MS_MAX));
        let waker = self.workers[index].waker.clone();
        let Some(task) = self.tasks.create(state.principal().cloned(), ttl, waker) else {
            state.forgo_task();
            return false;
        };
        self.by_call.remove(&state.key());
        state.leave();
        task.ask(state.questions(&self.link.asks));
        self.answer(state.key(), state.revision(), state.method(), task.created(), out);
        self.workers[index].standing = Standing::Task(task);
        self.tasks_here += 1;
        true
    }

    /// Passes on to a task's handler what other shards have heard.
    pub(super) fn hear(&mut self, index: usize) {
        let worker = &self.workers[index];
        if let (Standing::Task(task), Some(state)) = (&worker.standing, &worker.running) {
            let (answers, is_cancelled) = task.news();
            if is_cancelled && !state.is_over() {
                state.cancel();
            }
            self.deliver(state, answers);
        }
    }

    /// A handler is at its end.
    pub(super) fn end(
        &mut self,
        standing: Standing,
        state: &CallState,
        answer: Result<Reply, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        match standing {
            Standing::OnCall => self.respond(state, answer, out),
            Standing::Dropped => state.finish(),
            Standing::Parked(ticket) => {
                state.finish();
                if let Some(place) = self.lot.place_mut(ticket) {
                    *place = Place::Over(answer);
                }
            }
            Standing::Task(task) => {
                state.finish();
                self.tasks_here -= 1;
                let answer = self.in_words_of(state.revision(), state.method(), answer);
                self.tasks.finish(&task, answer);
            }
        }
    }

    pub(super) fn serves_tasks(&self) -> bool {
        let extensions = self.capabilities.extensions.as_ref();
        extensions.is_some_and(|extensions| extensions.contains_key(service::TASKS))
    }

    /// `tasks/get`, `tasks/update`, `tasks/cancel`: of any shard's tasks.
    pub(super) fn about_task(&self, call: &Call, out: &mut Vec<Tell>) {
        let answer = self.answer_about_task(call);
        self.answer(call.key, call.revision, call.method.as_str(), answer, out);
    }

    fn answer_about_task(&self, call: &Call) -> Result<Reply, RpcError> {
        if !service::declares_tasks(call.params.as_deref()) {
            return Err(service::missing_tasks());
        }
        let params: TaskParams<'_> = super::super::params::parse(call.params.as_deref().unwrap_or(b"{}"))?;
        let task = self.tasks.find(&params.task_id, call.principal.as_ref())?;
        match call.method.as_str() {
            "tasks/get" => task.described(),
            "tasks/cancel" => Ok(acknowledged(|| task.cancel())),
            "tasks/update" => {
                let missing = || service::invalid_params("missing field `inputResponses`");
                let answers = rounds::answers(params.input_responses.ok_or_else(missing)?)?;
                Ok(acknowledged(|| task.answer(answers)))
            }
            _ => Err(internal_error()),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
}

fn acknowledged(done: impl FnOnce()) -> Reply {
    done();
    Reply::empty()
}

/// The request of a call that stays one.
fn coming_back(call: &mut Call) -> Request {
    Request {
        method: call.method.clone(),
        params: call.params.clone(),
        revision: call.revision,
        session: None,
        client: call.client,
        param_fields: mem::take(&mut call.param_fields),
    }
}

fn digest_of(call: &Call) -> [u8; 32] {
    rounds::digest(call.principal.as_ref(), call.method.as_str(), call.params.as_deref())
}

#[cfg(test)]
mod tests;
