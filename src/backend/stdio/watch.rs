//! What a child of 2026-07-28 is listened to for: changed lists once for everybody, and each resource that somebody is
//! subscribed to.
//!
//! Owns the subscriptions at the child of one place, and who waits for it to say yes. Each resource has a `subscriptions/listen`
//! of its own: one that held them all would have to be opened anew, with all of them, for each that comes or goes, and there
//! would be a moment with two or none. O(1) per change.

use super::{
    Common,
    bridge::{Honoured, child_gone, child_is_full, failure_owned},
    client::Client,
    shared::{Shared, tell_subscription},
    subscriptions::Change,
};
use crate::{
    backend::Capabilities,
    core::{
        jsonrpc::RpcError,
        seam::{Call, CallKey, SessionKey, Tell},
    },
    shell::child::ChildId,
};
use bytes::Bytes;
use serde_json::json;
use std::{collections::HashMap, sync::Arc};

/// What a subscription at a child is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Lists,
    Resource(Arc<str>),
}

/// The subscriptions at one child.
#[derive(Debug, Default)]
pub(super) struct Watches(HashMap<Arc<str>, Watch>);

#[derive(Debug)]
struct Watch {
    /// Its number at the child.
    subscription: u64,
    /// Calls to be answered when the child has said yes or no.
    waiting: Vec<(CallKey, Client)>,
}

impl Shared {
    /// Listens to a child for changed lists.
    pub(super) fn watch_lists(common: &mut Common, child: ChildId, news: &Capabilities) {
        let tools = news.tools.is_some_and(|tools| tools.list_changed);
        let prompts = news.prompts.is_some_and(|prompts| prompts.list_changed);
        let resources = news.resources.is_some_and(|resources| resources.list_changed);
        if tools || prompts || resources {
            let wanted = json!({
                "toolsListChanged": tools, "promptsListChanged": prompts, "resourcesListChanged": resources,
            });
            common.bridge.listen(child, Topic::Lists, &wanted);
        }
    }

    /// A session subscribes to a resource: it is answered when the child has agreed.
    pub(super) fn subscribe_told(
        &mut self,
        common: &mut Common,
        (at, child): (usize, ChildId),
        session: SessionKey,
        (call, uri): (&Call, Arc<str>),
        out: &mut Vec<Tell>,
    ) {
        let client = Client::Session(session);
        match self.places[at].subscriptions.subscribe(client, &uri) {
            Change::None => out.push(Tell::Respond(call.key, Ok(Bytes::from_static(b"{}")))),
            Change::Forward => {
                self.watch(common, at, child, &uri, out);
                match self.places[at].watches.0.get_mut(&uri) {
                    Some(watch) => watch.waiting.push((call.key, client)),
                    None => out.push(Tell::Respond(call.key, Err(child_is_full()))),
                }
            }
            Change::Refused => {
                let error = failure_owned("this session has too many subscriptions".into());
                out.push(Tell::Respond(call.key, Err(error)));
            }
        }
    }

    pub(super) fn unsubscribe_told(
        &mut self,
        common: &mut Common,
        (at, child): (usize, ChildId),
        session: SessionKey,
        (call, uri): (&Call, &Arc<str>),
        out: &mut Vec<Tell>,
    ) {
        let change = self.places[at].subscriptions.unsubscribe(Client::Session(session), uri);
        if change == Change::Forward {
            self.unwatch(common, at, child, uri);
        }
        out.push(Tell::Respond(call.key, Ok(Bytes::from_static(b"{}"))));
    }

    /// Listens to a child for updates of a resource, unless it does already.
    pub(super) fn watch(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        uri: &Arc<str>,
        out: &mut Vec<Tell>,
    ) {
        if self.places[at].watches.0.contains_key(uri) {
            return;
        }
        let wanted = json!({ "resourceSubscriptions": [&**uri] });
        match common.bridge.listen(child, Topic::Resource(uri.clone()), &wanted) {
            Some(subscription) => {
                let watch = Watch { subscription, waiting: Vec::new() };
                self.places[at].watches.0.insert(uri.clone(), watch);
            }
            None => self.unwatched(common, at, child, uri, &child_is_full(), out),
        }
    }

    /// Nobody wants to hear of a resource any more.
    pub(super) fn unwatch(&mut self, common: &mut Common, at: usize, child: ChildId, uri: &Arc<str>) {
        if !self.places[at].speaks_newer() {
            return tell_subscription(common, child, "resources/unsubscribe", uri);
        }
        if let Some(watch) = self.places[at].watches.0.remove(uri) {
            common.bridge.end_listen(child, watch.subscription);
        }
    }

    /// A child has said what it will tell of.
    pub(super) fn acknowledged(
        &mut self,
        common: &mut Common,
        (at, child): (usize, ChildId),
        uri: &Arc<str>,
        honoured: Honoured,
        out: &mut Vec<Tell>,
    ) {
        match honoured {
            Honoured::Yes => {
                let place = &mut self.places[at];
                place.subscriptions.confirm(uri);
                let waiting = place.watches.0.get_mut(uri).map(|watch| std::mem::take(&mut watch.waiting));
                for (call, _) in waiting.into_iter().flatten() {
                    out.push(Tell::Respond(call, Ok(Bytes::from_static(b"{}"))));
                }
            }
            Honoured::No => {
                let what = format!("the server behind this one does not tell of updates of `{uri}`");
                self.unwatched(common, at, child, uri, &failure_owned(what), out);
            }
        }
    }

    /// A subscription at a child came to nothing, or to its end.
    pub(super) fn watch_ended(
        &mut self,
        common: &mut Common,
        (at, child): (usize, ChildId),
        topic: &Topic,
        answer: Result<Bytes, RpcError>,
        out: &mut Vec<Tell>,
    ) {
        let Topic::Resource(uri) = topic else { return };
        let ended =
            || failure_owned(format!("the server behind this one tells no more of updates of `{uri}`"));
        let error = answer.err().unwrap_or_else(ended);
        self.unwatched(common, at, child, uri, &error, out);
    }

    fn unwatched(
        &mut self,
        common: &mut Common,
        at: usize,
        child: ChildId,
        uri: &Arc<str>,
        error: &RpcError,
        out: &mut Vec<Tell>,
    ) {
        let place = &mut self.places[at];
        place.subscriptions.forget(uri);
        if let Some(watch) = place.watches.0.remove(uri) {
            common.bridge.end_listen(child, watch.subscription);
            for (call, _) in watch.waiting {
                out.push(Tell::Respond(call, Err(error.clone())));
            }
        }
    }

    /// A session does not wait for the child's word any more, and did not get to know it.
    pub(super) fn cancel_watch(&mut self, common: &mut Common, call: CallKey) {
        let found = self.places.iter_mut().find_map(|(at, place)| {
            let (uri, watch) = place
                .watches
                .0
                .iter_mut()
                .find(|(_, watch)| watch.waiting.iter().any(|(key, _)| *key == call))?;
            let index = watch.waiting.iter().position(|(key, _)| *key == call)?;
            let (_, client) = watch.waiting.swap_remove(index);
            Some((at, uri.clone(), client))
        });
        let Some((at, uri, client)) = found else { return };
        let change = self.places[at].subscriptions.unsubscribe(client, &uri);
        if let (Change::Forward, Some(child)) = (change, self.places[at].process()) {
            self.unwatch(common, at, child, &uri);
        }
    }

    /// The child is gone with everything it was to tell of.
    pub(super) fn forget_watches(&mut self, at: usize, out: &mut Vec<Tell>) {
        for (_, watch) in self.places[at].watches.0.drain() {
            for (call, _) in watch.waiting {
                out.push(Tell::Respond(call, Err(child_gone())));
            }
        }
    }
}
