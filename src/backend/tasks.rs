//! Tasks (2026-07-28, the extension `io.modelcontextprotocol/tasks`): work that outlives the request that began it.
//!
//! Owns what is known of each: its status, its questions, its result, for as long as its time to live says. The handlers
//! themselves stay on the shards that run them; a task is how any shard learns of one, answers it or stops it. Tasks are
//! therefore one table of the process behind a lock, taken for a look-up and never while a handler runs, and a second lock for
//! each task. Requests about tasks are polls of seconds: the lock is off every path that is hot.
//!
//! A task's name is random and is worth nothing to another principal, for whom it does not exist. Bounded by [`TASKS_MAX`] and
//! [`TASK_BYTES_MAX`] of results, of which a principal has its share at most, so that one who fills it leaves room for others;
//! when it is full calls stay calls. Results that find no room fail their tasks.
//! A task takes about 400 bytes beside its result, O(log n) for everything.

use super::{
    rounds::{self, Answers},
    service::{self, Reply},
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::Principal;
use crate::limits::{TASK_BYTES_MAX, TASK_POLL_MS, TASK_SHARES_MIN, TASKS_MAX};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// The tasks of a process. Clones are the same table: each shard's host gets one.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, Arc<Task>>,
    due: BTreeSet<(Instant, String)>,
    all: Share,
    by_principal: HashMap<Principal, Share>,
}

/// How many tasks, and how many bytes of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    tasks: usize,
    bytes: usize,
}

impl Share {
    fn with(self, more: Share) -> Share {
        Share { tasks: self.tasks + more.tasks, bytes: self.bytes + more.bytes }
    }

    fn without(self, less: Share) -> Share {
        Share { tasks: self.tasks - less.tasks, bytes: self.bytes - less.bytes }
    }

    /// Whether it is within one part of so many of the whole.
    fn is_within(self, parts: usize) -> bool {
        self.tasks <= TASKS_MAX / parts && self.bytes <= TASK_BYTES_MAX / parts
    }
}

/// There is no room in the table, or in the principal's share of it.
struct Full;

impl Table {
    fn take(&mut self, principal: Option<&Principal>, more: Share) -> Result<(), Full> {
        let all = self.all.with(more);
        let own =
            principal.map(|name| (name, self.by_principal.get(name).copied().unwrap_or_default().with(more)));
        if !all.is_within(1) || own.is_some_and(|(_, share)| !share.is_within(TASK_SHARES_MIN)) {
            return Err(Full);
        }
        self.all = all;
        if let Some((name, share)) = own {
            self.by_principal.insert(name.clone(), share);
        }
        Ok(())
    }

    /// Counts a result as kept, if there is room.
    fn keep(&mut self, principal: Option<&Principal>, result: Bytes) -> Status {
        match self.take(principal, Share { tasks: 0, bytes: result.len() }) {
            Ok(()) => Status::Completed(result),
            Err(Full) => Status::Failed(service::error(-32603, "There is no room to keep the result")),
        }
    }

    fn give_back(&mut self, principal: Option<&Principal>, less: Share) {
        self.all = self.all.without(less);
        let Some(name) = principal else { return };
        let share = self.by_principal.get_mut(name).expect("whoever has a task has a share");
        *share = share.without(less);
        if share.tasks == 0 {
            self.by_principal.remove(name);
        }
    }
}

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    id: String,
    principal: Option<Principal>,
    created: SystemTime,
    ttl: Duration,
    /// Wakes the handler, whichever shard it is on.
    handler: Waker,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: Status,
    updated: SystemTime,
    /// Asked and not answered.
    questions: Vec<(String, Bytes)>,
    /// Answered and not taken by the handler.
    answers: Answers,
}

#[derive(Debug)]
enum Status {
    Working,
    Completed(Bytes),
    Failed(RpcError),
    Cancelled,
}

impl Tasks {
    /// A new task, whose handler is woken by `handler`; `None` if there is no room.
    pub(super) fn create(
        &self,
        principal: Option<Principal>,
        ttl: Duration,
        handler: Waker,
    ) -> Option<Arc<Task>> {
        let now = Instant::now();
        self.purge(now);
        let mut random = [0; 18];
        getrandom::fill(&mut random).expect("Linux has random bytes once it has booted");
        let id = format!("task-{}", URL_SAFE_NO_PAD.encode(random));
        let created = SystemTime::now();
        let state =
            State { status: Status::Working, updated: created, questions: Vec::new(), answers: Vec::new() };
        let task = Task { id: id.clone(), principal, created, ttl, handler, state: Mutex::new(state) };
        let task = Arc::new(task);
        let mut table = lock(&self.0);
        table.take(task.principal.as_ref(), Share { tasks: 1, bytes: 0 }).ok()?;
        table.by_id.insert(id.clone(), Arc::clone(&task));
        table.due.insert((now + ttl, id));
        Some(task)
    }

    /// The task of that name, if it is this principal's.
    ///
    /// # Errors
    /// -32602 if there is none, or none any more.
    pub(super) fn find(&self, id: &str, principal: Option<&Principal>) -> Result<Arc<Task>, RpcError> {
        self.purge(Instant::now());
        let task = lock(&self.0).by_id.get(id).map(Arc::clone);
        let unknown = || service::invalid_params(format_args!("unknown task `{}`", service::excerpt(id)));
        task.filter(|task| task.principal.as_ref() == principal).ok_or_else(unknown)
    }

    /// The task has an answer, which is dropped if it was cancelled. Its bytes are counted and kept in one step: nobody may
    /// cancel it between the two.
    pub(super) fn finish(&self, task: &Task, answer: Result<Reply, RpcError>) {
        let mut table = lock(&self.0);
        let mut state = lock(&task.state);
        if state.is_running() {
            state.end(match answer {
                _ if !table.by_id.contains_key(&task.id) => Status::Cancelled,
                Ok(reply) => table.keep(task.principal.as_ref(), Bytes::copy_from_slice(reply.json())),
                Err(error) => Status::Failed(error),
            });
        }
    }

    /// Forgets the tasks whose time is over; handlers that still run are cancelled.
    pub(super) fn purge(&self, now: Instant) {
        let mut over = Vec::new();
        let mut table = lock(&self.0);
        while let Some((due, _)) = table.due.first()
            && *due <= now
        {
            let id = table.due.pop_first().map(|(_, id)| id).unwrap_or_default();
            if let Some(task) = table.by_id.remove(&id) {
                table.give_back(task.principal.as_ref(), Share { tasks: 1, bytes: task.result_len() });
                over.push(task);
            }
        }
        drop(table);
        over.iter().for_each(|task| task.cancel());
    }

    /// When the next task's time is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        lock(&self.0).due.first().map(|(due, _)| *due)
    }
}

impl Task {
    /// The answer to the call that became this task.
    pub(super) fn created(&self) -> Result<Reply, RpcError> {
        Reply::of(&self.view(&lock(&self.state), "task"))
    }

    /// All there is to know of it.
    pub(super) fn described(&self) -> Result<Reply, RpcError> {
        let state = lock(&self.state);
        let mut view = self.view(&state, "complete");
        let raw = |json: &[u8]| serde_json::from_slice(json).ok();
        match &state.status {
            Status::Working if !state.questions.is_empty() => {
                view.input_requests = raw(rounds::object_of(&state.questions).as_bytes());
            }
            Status::Completed(result) => view.result = raw(result),
            Status::Failed(error) => view.error = Some(json_of(error)),
            Status::Working | Status::Cancelled => {}
        }
        Reply::of(&view)
    }

    fn view(&self, state: &State, result_type: &'static str) -> View<'_> {
        View {
            result_type,
            task_id: &self.id,
            status: match &state.status {
                Status::Working if state.questions.is_empty() => "working",
                Status::Working => "input_required",
                Status::Completed(_) => "completed",
                Status::Failed(_) => "failed",
                Status::Cancelled => "cancelled",
            },
            created_at: iso_8601(self.created),
            last_updated_at: iso_8601(state.updated),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            poll_interval_ms: TASK_POLL_MS,
            input_requests: None,
            result: None,
            error: None,
        }
    }

    /// What its handler asks at this moment.
    pub(super) fn ask(&self, questions: Vec<(String, Bytes)>) {
        let mut state = lock(&self.state);
        let State { answers, .. } = &*state;
        // What is answered already is only not taken yet.
        let is_open = |(name, _): &(String, _)| answers.iter().all(|(answered, _)| answered != name);
        let questions: Vec<_> = questions.into_iter().filter(is_open).collect();
        if state.is_running() && state.questions != questions {
            state.questions = questions;
            state.updated = SystemTime::now();
        }
    }

    /// Its client has answered; what was not asked is ignored.
    pub(super) fn answer(&self, answers: Answers) {
        let mut state = lock(&self.state);
        if !state.is_running() {
            return;
        }
        for (name, answer) in answers {
            if let Some(place) = state.questions.iter().position(|(asked, _)| *asked == name) {
                state.questions.remove(place);
                state.answers.push((name, answer));
                state.updated = SystemTime::now();
            }
        }
        drop(state);
        self.handler.wake_by_ref();
    }

    /// What its handler has not heard yet: answers, and whether it was cancelled.
    pub(super) fn news(&self) -> (Answers, bool) {
        let mut state = lock(&self.state);
        (mem::take(&mut state.answers), matches!(state.status, Status::Cancelled))
    }

    /// Stops it, if it runs.
    pub(super) fn cancel(&self) {
        let mut state = lock(&self.state);
        if state.is_running() {
            state.end(Status::Cancelled);
        }
        drop(state);
        self.handler.wake_by_ref();
    }

    fn result_len(&self) -> usize {
        match &lock(&self.state).status {
            Status::Completed(result) => result.len(),
            Status::Working | Status::Failed(_) | Status::Cancelled => 0,
        }
    }
}

impl State {
    fn is_running(&self) -> bool {
        matches!(self.status, Status::Working)
    }

    fn end(&mut self, status: Status) {
        self.status = status;
        self.updated = SystemTime::now();
        self.questions.clear();
    }
}

/// A task as its client sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    result_type: &'static str,
    task_id: &'a str,
    status: &'static str,
    created_at: String,
    last_updated_at: String,
    ttl_ms: u64,
    poll_interval_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

fn json_of(error: &RpcError) -> Value {
    let mut json = json!({ "code": error.code, "message": error.message });
    if let Some(data) = error.data.as_deref().and_then(|data| serde_json::from_str::<Value>(data).ok()) {
        json["data"] = data;
    }
    json
}

/// A moment of UTC, as in `2026-07-28T12:34:56.789Z`.
fn iso_8601(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01. Years begin in March here, so that the day
/// that leap years have more is their last.
fn date_of(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// No code that can panic runs under these locks, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn seen(task: &Task) -> Value {
        serde_json::from_slice(task.described().unwrap().json()).unwrap()
    }

    fn create(tasks: &Tasks) -> Arc<Task> {
        tasks.create(None, TTL, Waker::noop().clone()).unwrap()
    }

    fn question(name: &str) -> (String, Bytes) {
        (name.to_owned(), r#"{"method":"roots/list"}"#.into())
    }

    #[test]
    fn a_task_is_seen_as_the_extension_says() {
        let tasks = Tasks::default();
        let task = create(&tasks);
        let created: Value = serde_json::from_slice(task.created().unwrap().json()).unwrap();
        assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
        assert_eq!((&created["ttlMs"], &created["taskId"]), (&json!(60_000), &json!(task.id)));
        assert!(created["pollIntervalMs"].as_u64().unwrap() > 0);
        assert_eq!(seen(&task)["resultType"], "complete");
        tasks.finish(&task, Reply::of(&json!({"content": []})));
        assert_eq!(
            (&seen(&task)["status"], &seen(&task)["result"]),
            (&json!("completed"), &json!({"content": []}))
        );
        let failed = create(&tasks);
        tasks.finish(&failed, Err(service::internal_error()));
        assert_eq!(seen(&failed)["error"], json!({"code": -32603, "message": "Internal error"}));
        assert_eq!(seen(&failed)["status"], "failed");
    }

    #[test]
    fn a_question_stays_until_it_is_answered() {
        let task = create(&Tasks::default());
        task.ask(vec![question("a"), question("b")]);
        assert_eq!(
            (&seen(&task)["status"], seen(&task)["inputRequests"].as_object().unwrap().len()),
            (&json!("input_required"), 2)
        );
        task.answer(vec![("b".into(), "{}".into()), ("c".into(), "{}".into())]);
        assert_eq!(seen(&task)["inputRequests"], json!({"a": {"method": "roots/list"}}));
        task.ask(vec![question("a"), question("b")]);
        assert_eq!(seen(&task)["inputRequests"].as_object().unwrap().len(), 1, "b is only not taken yet");
        assert_eq!(task.news(), (vec![("b".to_owned(), "{}".into())], false));
        task.answer(vec![("a".into(), "{}".into())]);
        assert_eq!(seen(&task)["status"], "working");
    }

    #[test]
    fn a_cancelled_task_stays_cancelled() {
        let tasks = Tasks::default();
        let task = create(&tasks);
        task.ask(vec![question("a")]);
        task.cancel();
        tasks.finish(&task, Reply::of(&json!({})));
        task.ask(vec![question("a")]);
        let seen = seen(&task);
        assert_eq!(
            (&seen["status"], seen.get("result"), seen.get("inputRequests")),
            (&json!("cancelled"), None, None)
        );
        assert!(task.news().1);
        assert_eq!(lock(&tasks.0).all.bytes, 0);
    }

    #[test]
    fn a_task_is_its_principals_alone() {
        let tasks = Tasks::default();
        let (ada, bob) = (Principal::new("ada"), Principal::new("bob"));
        let task = tasks.create(Some(ada.clone()), TTL, Waker::noop().clone()).unwrap();
        assert!(tasks.find(&task.id, Some(&ada)).is_ok());
        for other in [Some(&bob), None] {
            assert_eq!(tasks.find(&task.id, other).unwrap_err().code, -32602);
        }
        assert_eq!(tasks.find("x", Some(&ada)).unwrap_err().code, -32602);
    }

    #[test]
    fn time_and_room_are_bounded() {
        let tasks = Tasks::default();
        let task = create(&tasks);
        tasks.finish(&task, Reply::of(&"x".repeat(100)));
        assert_eq!(lock(&tasks.0).all.bytes, 102);
        let runs = create(&tasks);
        tasks.purge(Instant::now() + TTL);
        assert_eq!(tasks.next_due(), None);
        assert_eq!(lock(&tasks.0).all.bytes, 0);
        assert!(tasks.find(&task.id, None).is_err());
        assert!(runs.news().1, "its handler is told");
        lock(&tasks.0).all.bytes = TASK_BYTES_MAX;
        let late = create(&tasks);
        tasks.finish(&late, Reply::of(&json!({})));
        assert_eq!(seen(&late)["status"], "failed");
        for _ in 1..TASKS_MAX {
            create(&tasks);
        }
        assert!(tasks.create(None, TTL, Waker::noop().clone()).is_none());
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (second, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_785_240_000, "2026-07-28T12:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_8601(UNIX_EPOCH + Duration::from_secs(second)), text);
        }
    }

    #[test]
    fn who_fills_the_table_leaves_room_for_others() {
        let tasks = Tasks::default();
        let of = |name: &str| tasks.create(Some(Principal::new(name)), TTL, Waker::noop().clone());
        let hostile: Vec<_> = std::iter::from_fn(|| of("eve")).collect();
        assert_eq!(hostile.len(), TASKS_MAX / TASK_SHARES_MIN);
        let share = TASK_BYTES_MAX / TASK_SHARES_MIN;
        let keep = |name: &str, bytes| {
            lock(&tasks.0).keep(Some(&Principal::new(name)), Bytes::from(vec![b'1'; bytes]))
        };
        assert!(matches!(keep("eve", share), Status::Completed(_)));
        assert!(matches!(keep("eve", 1), Status::Failed(_)));
        assert!(of("ada").is_some());
        assert!(matches!(keep("ada", 1), Status::Completed(_)));
    }

    #[test]
    fn what_is_over_is_given_back() {
        let tasks = Tasks::default();
        for principal in [None, Some(Principal::new("ada"))] {
            let task = tasks.create(principal, TTL, Waker::noop().clone()).unwrap();
            tasks.finish(&task, Reply::of(&json!({})));
        }
        tasks.purge(Instant::now() + TTL);
        let table = lock(&tasks.0);
        assert_eq!((table.all, table.by_principal.len(), table.by_id.len()), (Share::default(), 0, 0));
    }
}
