//! A shard for tests: asks a host, polls it when it says so, and keeps what it tells.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Host, Service};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::*;
use crate::shell::backend::Backend;
use serde_json::Value;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

/// The key of the session with that slot.
pub(super) fn session(slot: u32) -> SessionKey {
    SessionKey { slot, generation: Generation(NonZeroU64::MIN) }
}

/// The key of the call with that slot.
pub(super) fn call(slot: u32) -> CallKey {
    CallKey { slot, generation: Generation(NonZeroU64::MIN) }
}

pub(super) fn method(name: &str) -> Method {
    Method::new(name.to_owned().into()).unwrap()
}

/// Counts how often the driver was woken.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) struct Rig<S> {
    pub(super) host: Host<S>,
    pub(super) told: Vec<Tell>,
    /// What clients can be asked for, unless a call says otherwise.
    pub(super) client: ClientFeatures,
    wakes: Arc<Wakes>,
}

impl<S: Service> Rig<S> {
    pub(super) fn new(service: S) -> Self {
        let client = ClientFeatures::default();
        let mut rig = Rig { host: Host::new(service), told: Vec::new(), client, wakes: Arc::default() };
        rig.poll();
        rig
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.host.ask(ask, &mut self.told);
    }

    /// A call of the session with slot 0, at the newest revision, with the progress token `"t"`.
    pub(super) fn call(&mut self, slot: u32, name: &str, params: Option<&str>) {
        self.call_at(Revision::NEWEST_WITH_SESSIONS, slot, name, params);
    }

    pub(super) fn call_at(&mut self, revision: Revision, slot: u32, name: &str, params: Option<&str>) {
        self.call_of(self.client, revision, slot, name, params);
    }

    /// A call of a client that can be asked for all that.
    pub(super) fn call_of(
        &mut self,
        client: ClientFeatures,
        revision: Revision,
        slot: u32,
        name: &str,
        params: Option<&str>,
    ) {
        self.ask(Ask::Call(Call {
            key: call(slot),
            session: revision.has_sessions().then(|| session(0)),
            method: method(name),
            params: params.map(|params| params.to_owned().into()),
            progress_token: Some(r#""t""#.into()),
            revision,
            client,
            param_fields: Vec::new(),
            principal: None,
        }));
    }

    pub(super) fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.host.poll(&mut Context::from_waker(&waker), &mut self.told);
    }

    /// How often the driver was woken since the last time this was asked.
    pub(super) fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    /// What was told since the last time.
    pub(super) fn take(&mut self) -> Vec<Tell> {
        std::mem::take(&mut self.told)
    }

    /// The one thing told since the last time: the answer of that call.
    pub(super) fn answer(&mut self, slot: u32) -> Result<Value, RpcError> {
        let mut told = self.take();
        let Some(Tell::Respond(key, answer)) = told.pop() else { panic!("no answer came last") };
        assert!(told.is_empty(), "more than an answer: {told:?}");
        assert_eq!(key, call(slot));
        answer.map(|json| serde_json::from_slice(&json).unwrap())
    }

    /// The error of that call.
    pub(super) fn refusal(&mut self, slot: u32) -> (i32, String) {
        let error = self.answer(slot).unwrap_err();
        (error.code, error.message.into_owned())
    }
}
