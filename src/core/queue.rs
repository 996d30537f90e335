//! The listener queue: what the server sent a session unasked and no stream was given yet.
//!
//! Owns the waiting messages, bounded in number and bytes. Exists only while it holds something. Signals that say
//! the same are one message, at the oldest position. When it is full the oldest progress goes first, then the
//! oldest log message, then the oldest of the rest; a server request is never dropped: it is refused.
//! Operations are linear in the queue's length, which the limits bound.

use super::{
    memory::{Owed, large},
    seam::{NotificationKind, ServerRequestId},
};
use crate::limits::{QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX};
use bytes::Bytes;
use std::{collections::VecDeque, rc::Rc, sync::Arc};

/// What a message is, as far as merging, dropping and replay need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// An idempotent signal: worth sending once.
    Signal(Signal),
    Progress,
    Log,
    /// A request of the server: never merged, and dropped only with a word to the backend.
    Request(ServerRequestId),
    /// The answer to a client's request.
    Response,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Tools,
    Prompts,
    Resources,
    Resource(Arc<str>),
}

impl Class {
    pub(super) fn of(kind: &NotificationKind) -> Self {
        match kind {
            NotificationKind::ToolsListChanged => Class::Signal(Signal::Tools),
            NotificationKind::PromptsListChanged => Class::Signal(Signal::Prompts),
            NotificationKind::ResourcesListChanged => Class::Signal(Signal::Resources),
            NotificationKind::ResourceUpdated(uri) => Class::Signal(Signal::Resource(uri.clone())),
            NotificationKind::Progress => Class::Progress,
            NotificationKind::Log(_) => Class::Log,
            NotificationKind::Other => Class::Other,
        }
    }
}

/// A message for a stream: its class and its framed payload, shared by all streams of the shard.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) class: Class,
    pub(super) payload: Rc<Bytes>,
}

/// What became of a message given to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// It waits; nothing else changed.
    Waiting,
    /// It was merged into one that says the same.
    Merged,
    /// It waits, and this many others were dropped for it.
    Displaced(usize),
    /// There was no room for it.
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    /// What of it are large responses.
    pub(super) owed: Option<Box<Owed>>,
}

impl Queue {
    pub(super) fn push(&mut self, message: Message) -> Queued {
        if self.holds_same_signal(&message) {
            return Queued::Merged;
        }
        match self.make_room(&message) {
            None => Queued::Refused,
            Some(dropped) => {
                self.bytes += message.payload.len();
                self.messages.push_back(message);
                if dropped == 0 { Queued::Waiting } else { Queued::Displaced(dropped) }
            }
        }
    }

    /// Takes a message that may not be dropped, whatever the bounds say: others go for it if they can. Returns how
    /// many did.
    pub(super) fn push_owed(&mut self, message: Message) -> usize {
        let dropped = self.make_room(&message).unwrap_or(0);
        self.bytes += message.payload.len();
        self.messages.push_back(message);
        dropped
    }

    /// Bytes of responses that wait.
    pub(super) fn owed_bytes(&self) -> usize {
        let owed = self.messages.iter().filter(|message| message.class == Class::Response);
        owed.map(|message| message.payload.len()).sum()
    }

    /// The same of large ones.
    pub(super) fn large_owed_bytes(&self) -> usize {
        let owed = self.messages.iter().filter(|message| message.class == Class::Response);
        owed.map(|message| large(message.payload.len())).sum()
    }

    /// Puts back what was written to a stream that died, in its order, before everything that waits. It was
    /// accepted once, so the bounds do not apply again; they hold for the next push.
    pub(super) fn push_front(&mut self, returned: impl DoubleEndedIterator<Item = Message>) {
        for message in returned.rev() {
            self.remove_same_signal(&message);
            self.bytes += message.payload.len();
            self.messages.push_front(message);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.payload.len();
        Some(message)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Removes messages by their payloads.
    pub(super) fn remove_where(&mut self, condemned: impl Fn(&Rc<Bytes>) -> bool) {
        self.messages.retain(|message| !condemned(&message.payload));
        self.bytes = self.messages.iter().map(|message| message.payload.len()).sum();
    }

    fn holds_same_signal(&self, message: &Message) -> bool {
        matches!(message.class, Class::Signal(_)) && self.messages.iter().any(|m| m.class == message.class)
    }

    fn remove_same_signal(&mut self, message: &Message) {
        if !matches!(message.class, Class::Signal(_)) {
            return;
        }
        if let Some(index) = self.messages.iter().position(|m| m.class == message.class) {
            self.remove(index);
        }
    }

    /// Drops messages until `newcomer` fits. `None`, and nothing is dropped, if it cannot.
    fn make_room(&mut self, newcomer: &Message) -> Option<usize> {
        if !overflows(self.messages.len(), self.bytes, newcomer) {
            return Some(0);
        }
        let staying = || self.messages.iter().filter(|message| !yields(&message.class, &newcomer.class));
        let staying_bytes = staying().map(|message| message.payload.len()).sum();
        if overflows(staying().count(), staying_bytes, newcomer) {
            return None;
        }
        let mut dropped = 0;
        while overflows(self.messages.len(), self.bytes, newcomer) {
            let victim = self.most_expendable()?;
            self.remove(victim);
            dropped += 1;
        }
        Some(dropped)
    }

    /// The oldest of the most expendable kind.
    fn most_expendable(&self) -> Option<usize> {
        self.messages
            .iter()
            .enumerate()
            .filter_map(|(index, message)| Some((expendability(&message.class)?, index)))
            .min()
            .map(|(_, index)| index)
    }

    fn remove(&mut self, index: usize) {
        let removed = self.messages.remove(index).expect("an index of this queue");
        self.bytes -= removed.payload.len();
    }
}

/// Whether a queue of that many messages and bytes has no room for one more. An empty one always has.
fn overflows(messages: usize, bytes: usize, newcomer: &Message) -> bool {
    let too_many = messages >= QUEUE_MESSAGES_MAX;
    too_many || (messages > 0 && bytes + newcomer.payload.len() > QUEUE_BYTES_MAX)
}

/// Whether a message may be dropped for the newcomer: never for one that would have to go before it, and none but
/// progress and log messages for a request, which can be refused instead.
fn yields(waiting: &Class, newcomer: &Class) -> bool {
    match (expendability(waiting), expendability(newcomer)) {
        (None, _) => false,
        (Some(waiting), Some(newcomer)) => waiting <= newcomer,
        (Some(waiting), None) => waiting < 2,
    }
}

/// Lower goes first; `None` is never dropped.
fn expendability(class: &Class) -> Option<u8> {
    match class {
        Class::Progress => Some(0),
        Class::Log => Some(1),
        Class::Signal(_) | Class::Other => Some(2),
        Class::Request(_) | Class::Response => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(class: Class, text: &str) -> Message {
        Message { class, payload: Rc::new(Bytes::copy_from_slice(text.as_bytes())) }
    }

    fn contents(queue: &Queue) -> Vec<String> {
        queue.messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
    }

    #[test]
    fn equal_signals_are_one_at_the_oldest_position() {
        let mut queue = Queue::default();
        let updated = |uri: &str| Class::Signal(Signal::Resource(uri.into()));
        assert_eq!(queue.push(message(Class::Signal(Signal::Tools), "tools")), Queued::Waiting);
        assert_eq!(queue.push(message(updated("a"), "a")), Queued::Waiting);
        assert_eq!(queue.push(message(updated("b"), "b")), Queued::Waiting);
        assert_eq!(queue.push(message(Class::Signal(Signal::Tools), "tools again")), Queued::Merged);
        assert_eq!(queue.push(message(updated("a"), "a again")), Queued::Merged);
        assert_eq!(contents(&queue), ["tools", "a", "b"]);
    }

    #[test]
    fn returned_messages_come_first_in_order_and_merge_with_waiting_ones() {
        let mut queue = Queue::default();
        queue.push(message(Class::Other, "waiting"));
        queue.push(message(Class::Signal(Signal::Tools), "waiting tools"));
        let returned = [message(Class::Other, "one"), message(Class::Signal(Signal::Tools), "tools")];
        queue.push_front(returned.into_iter());
        assert_eq!(contents(&queue), ["one", "tools", "waiting"]);
        assert_eq!(queue.bytes(), "onetoolswaiting".len());
    }

    #[test]
    fn a_full_queue_drops_progress_then_logs_then_the_oldest() {
        let mut queue = Queue::default();
        queue.push(message(Class::Other, "other"));
        queue.push(message(Class::Log, "log"));
        queue.push(message(Class::Progress, "progress"));
        for n in 3..QUEUE_MESSAGES_MAX {
            queue.push(message(Class::Other, &n.to_string()));
        }
        for expected in ["progress", "log", "other"] {
            assert!(contents(&queue).contains(&expected.to_owned()));
            assert_eq!(queue.push(message(Class::Other, "new")), Queued::Displaced(1));
            assert!(!contents(&queue).contains(&expected.to_owned()), "{expected} had to go");
        }
        assert_eq!(queue.messages.len(), QUEUE_MESSAGES_MAX);
    }

    #[test]
    fn a_server_request_is_never_dropped_but_refused() {
        let request = Class::Request(ServerRequestId(1));
        let mut queue = Queue::default();
        for n in 0..QUEUE_MESSAGES_MAX {
            assert_eq!(queue.push(message(request.clone(), &n.to_string())), Queued::Waiting);
        }
        assert_eq!(queue.push(message(request, "late")), Queued::Refused);
        assert_eq!(queue.push(message(Class::Other, "late")), Queued::Refused);
        assert_eq!(queue.messages.len(), QUEUE_MESSAGES_MAX);
    }

    #[test]
    fn bytes_are_bounded_and_one_large_message_is_always_admitted() {
        let mut queue = Queue::default();
        let large = "x".repeat(QUEUE_BYTES_MAX + 1);
        assert_eq!(queue.push(message(Class::Other, &large)), Queued::Waiting);
        assert_eq!(queue.push(message(Class::Other, "small")), Queued::Displaced(1));
        assert_eq!(contents(&queue), ["small"]);
        assert_eq!(queue.bytes(), 5);
    }
}
