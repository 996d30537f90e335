//! Which clients are subscribed to which resources of one shared child.
//!
//! Owns the lists, by resource and by client, which always agree. The child is told of the first subscriber of a resource
//! and of the last one's leaving, and knows nothing of the others. O(1) per change; a lookup costs one step for each level of
//! the URI.

use super::client::Client;
use crate::limits::CHILD_SUBSCRIPTIONS_PER_SESSION_MAX;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_uri: HashMap<Arc<str>, Topic>,
    by_client: HashMap<Client, HashSet<Arc<str>>>,
}

#[derive(Debug, Default)]
struct Topic {
    clients: HashSet<Client>,
    /// The child has said yes to one of them.
    is_confirmed: bool,
}

/// What the child has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing: it makes no difference to it.
    None,
    /// Pass the request on.
    Forward,
    /// The client has too many already.
    Refused,
}

impl Subscriptions {
    /// A client subscribes. It counts from now on, since an update may come before the child's answer.
    pub(super) fn subscribe(&mut self, client: Client, uri: &Arc<str>) -> Change {
        let own = self.by_client.entry(client).or_default();
        if !own.contains(uri) && own.len() >= CHILD_SUBSCRIPTIONS_PER_SESSION_MAX {
            return Change::Refused;
        }
        own.insert(uri.clone());
        let topic = self.by_uri.entry(uri.clone()).or_default();
        topic.clients.insert(client);
        if topic.is_confirmed { Change::None } else { Change::Forward }
    }

    /// The child said yes.
    pub(super) fn confirm(&mut self, uri: &str) {
        if let Some(topic) = self.by_uri.get_mut(uri) {
            topic.is_confirmed = true;
        }
    }

    /// The child is gone: what it has not said yes to came to nothing.
    pub(super) fn forget_unconfirmed(&mut self) {
        let unconfirmed = self.by_uri.extract_if(|_, topic| !topic.is_confirmed);
        for (uri, topic) in unconfirmed {
            for client in topic.clients {
                forget(&mut self.by_client, client, &uri);
            }
        }
    }

    /// The child says no: nobody is subscribed.
    pub(super) fn forget(&mut self, uri: &str) {
        let topic = self.by_uri.remove(uri).unwrap_or_default();
        for client in topic.clients {
            forget(&mut self.by_client, client, uri);
        }
    }

    /// A client unsubscribes, or its subscription came to nothing.
    pub(super) fn unsubscribe(&mut self, client: Client, uri: &str) -> Change {
        forget(&mut self.by_client, client, uri);
        self.leave_topic(client, uri)
    }

    /// A client is gone: what nobody is subscribed to any more.
    pub(super) fn end_client(&mut self, client: Client) -> Vec<Arc<str>> {
        let own = self.by_client.remove(&client).unwrap_or_default();
        own.into_iter().filter(|uri| self.leave_topic(client, uri) == Change::Forward).collect()
    }

    /// What a new child has to be told.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_uri.iter().filter(|(_, topic)| topic.is_confirmed).map(|(uri, _)| uri)
    }

    /// Who is to hear of an update of that resource: its subscribers, and those of what it is a part of.
    pub(super) fn subscribers(&self, uri: &str) -> HashSet<Client> {
        let parents = uri.match_indices(['/', '#', '?']).flat_map(|(at, _)| [&uri[..at], &uri[..=at]]);
        std::iter::once(uri)
            .chain(parents)
            .filter_map(|uri| self.by_uri.get(uri))
            .flat_map(|topic| topic.clients.iter().copied())
            .collect()
    }

    fn leave_topic(&mut self, client: Client, uri: &str) -> Change {
        let Some(topic) = self.by_uri.get_mut(uri) else { return Change::None };
        if !topic.clients.remove(&client) || !topic.clients.is_empty() {
            return Change::None;
        }
        self.by_uri.remove(uri);
        Change::Forward
    }
}

fn forget(by_client: &mut HashMap<Client, HashSet<Arc<str>>>, client: Client, uri: &str) {
    if let Some(own) = by_client.get_mut(&client) {
        own.remove(uri);
        if own.is_empty() {
            by_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::core::seam::{Generation, SessionKey};
    use std::num::NonZeroU64;

    fn session(slot: u32) -> Client {
        let generation = Generation(NonZeroU64::new(1).unwrap());
        Client::Session(SessionKey { slot, generation })
    }

    #[test]
    fn only_the_first_and_the_last_matter_to_the_child() {
        let (mut subscriptions, uri) = (Subscriptions::default(), Arc::from("a://b"));
        assert_eq!(subscriptions.subscribe(session(1), &uri), Change::Forward);
        assert_eq!(subscriptions.subscribe(session(2), &uri), Change::Forward, "it may still say no");
        subscriptions.confirm(&uri);
        assert_eq!(subscriptions.subscribe(session(3), &uri), Change::None);
        assert_eq!(subscriptions.subscribe(session(3), &uri), Change::None, "twice is once");
        assert_eq!(subscriptions.unsubscribe(session(1), &uri), Change::None);
        assert_eq!(subscriptions.unsubscribe(session(1), &uri), Change::None);
        assert!(subscriptions.end_client(session(3)).is_empty());
        assert_eq!(subscriptions.end_client(session(2)).len(), 1);
        assert_eq!(subscriptions.confirmed().count(), 0);
        assert_eq!(subscriptions.subscribe(session(1), &uri), Change::Forward);
    }

    #[test]
    fn parts_concern_those_who_subscribed_to_the_whole() {
        let mut subscriptions = Subscriptions::default();
        for (slot, uri) in [(1, "f://x/dir"), (2, "f://x/dir/"), (3, "f://x/dir/file"), (4, "f://x/di")] {
            subscriptions.subscribe(session(slot), &Arc::from(uri));
        }
        let slots = |uri: &str| {
            let subscribers = subscriptions.subscribers(uri);
            (1..=4).filter(|slot| subscribers.contains(&session(*slot))).collect::<Vec<u32>>()
        };
        assert_eq!(slots("f://x/dir/file"), [1, 2, 3]);
        assert_eq!(slots("f://x/dir"), [1]);
        assert_eq!(slots("f://x/dirt"), [0; 0]);
    }

    #[test]
    fn what_was_not_confirmed_ends_with_the_child() {
        let (mut subscriptions, yes, no) =
            (Subscriptions::default(), Arc::from("a://yes"), Arc::from("a://no"));
        subscriptions.subscribe(session(1), &yes);
        subscriptions.confirm(&yes);
        subscriptions.subscribe(session(1), &no);
        subscriptions.forget_unconfirmed();
        assert_eq!(subscriptions.confirmed().collect::<Vec<_>>(), [&yes]);
        assert!(subscriptions.subscribers("a://no").is_empty());
        assert_eq!(subscriptions.end_client(session(1)), [yes]);
    }

    #[test]
    fn a_session_has_a_bounded_number() {
        let mut subscriptions = Subscriptions::default();
        for index in 0..CHILD_SUBSCRIPTIONS_PER_SESSION_MAX {
            let uri = Arc::from(format!("a://{index}"));
            assert_eq!(subscriptions.subscribe(session(1), &uri), Change::Forward);
        }
        assert_eq!(subscriptions.subscribe(session(1), &Arc::from("a://more")), Change::Refused);
        assert_eq!(subscriptions.subscribe(session(1), &Arc::from("a://0")), Change::Forward);
        assert_eq!(subscriptions.subscribe(session(2), &Arc::from("a://more")), Change::Forward);
    }
}
