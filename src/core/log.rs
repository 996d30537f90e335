//! The events of one stream: what is still to be written, and what may be asked for again.
//!
//! Owns the events in order of their sequence numbers. Exists only while it holds something: 64 bytes per
//! event beside the payload, which is shared. Every event passes through here: it is appended unsent, marked with
//! the connection offset at which its frame ends when it is written, and with the peer's acknowledgement when there
//! is evidence of it. Events stay for the replay time, acknowledged or not: a client may come back with an older
//! cursor.
//!
//! Invariant: what is acknowledged comes before what is written, and that before what is not, because events are written
//! in order. So the next event to write is found by bisection; replay and expiry are linear in the events they
//! concern, which the session's bounds cap.

use super::{
    memory::{Owed, large},
    queue::{Class, Message},
};
use bytes::Bytes;
use std::{collections::VecDeque, rc::Rc};

#[derive(Debug)]
pub(super) struct Event {
    pub(super) sequence: u32,
    pub(super) at_ms: u64,
    pub(super) delivery: Delivery,
    pub(super) message: Message,
}

impl Event {
    fn is_arrived_signal(&self) -> bool {
        self.delivery == Delivery::Acked && matches!(self.message.class, Class::Signal(_))
    }
}

/// How far an event has come, the farthest first: the order in which a log holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivery {
    /// The peer's TCP has it, or the client named it or a later one as its cursor.
    Acked,
    /// Its frame ends at this offset of the attachment's connection.
    Written { end: u64 },
    /// Not written to the present attachment.
    Unsent,
}

/// What left a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

impl Removed {
    pub(super) fn count(&mut self, event: &Event) {
        self.events += 1;
        self.bytes += event.message.payload.len();
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// What its client has had time to take and has not, as far as it is large.
    pub(super) owed: Option<Box<Owed>>,
}

impl Log {
    pub(super) fn append(&mut self, sequence: u32, message: Message, now_ms: u64) {
        debug_assert!(self.events.back().is_none_or(|last| last.sequence < sequence));
        if self.events.capacity() == 0 {
            // A request stream mostly has its reply and nothing else, for the whole of the replay time.
            self.events.reserve_exact(1);
        }
        self.events.push_back(Event { sequence, at_ms: now_ms, delivery: Delivery::Unsent, message });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// The first event that was not written yet. Events are written in order, so all before it were.
    pub(super) fn next_unsent(&mut self) -> Option<&mut Event> {
        let first = self.first_unsent();
        self.events.get_mut(first)
    }

    /// Bytes not yet written.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.events.range(self.first_unsent()..).map(|event| event.message.payload.len()).sum()
    }

    /// In the usual cases, when all were written or all but the last, without bisection.
    fn first_unsent(&self) -> usize {
        let is_written = |event: &Event| event.delivery != Delivery::Unsent;
        let mut newest_first = self.events.iter().rev();
        match (newest_first.next().map(is_written), newest_first.next().map(is_written)) {
            (None | Some(true), _) => self.events.len(),
            (Some(false), None | Some(true)) => self.events.len() - 1,
            (Some(false), Some(false)) => self.events.partition_point(is_written),
        }
    }

    /// Bytes of large messages that are not known to have arrived.
    pub(super) fn owed_bytes(&self) -> usize {
        self.events.range(self.first_unacked()..).map(|event| large(event.message.payload.len())).sum()
    }

    fn first_unacked(&self) -> usize {
        self.events.partition_point(|event| event.delivery == Delivery::Acked)
    }

    fn index_of(&self, sequence: u32) -> Option<usize> {
        self.events.binary_search_by_key(&sequence, |event| event.sequence).ok()
    }

    /// Everything that ends within the first `offset` bytes of the attachment's connection has arrived.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        let first = self.first_unacked();
        for event in self.events.range_mut(first..) {
            match event.delivery {
                Delivery::Written { end } if end <= offset => event.delivery = Delivery::Acked,
                Delivery::Written { .. } | Delivery::Unsent | Delivery::Acked => break,
            }
        }
    }

    /// Where that event ends on the present attachment's connection, while it is not known to have arrived.
    pub(super) fn written_end(&self, sequence: u32) -> Option<u64> {
        match self.events[self.index_of(sequence)?].delivery {
            Delivery::Written { end } => Some(end),
            Delivery::Unsent | Delivery::Acked => None,
        }
    }

    /// Frames behind `offset` were taken back from the attachment.
    pub(super) fn forget_writes_behind(&mut self, offset: u64) {
        let written = self.first_unacked()..self.first_unsent();
        for event in self.events.range_mut(written) {
            if matches!(event.delivery, Delivery::Written { end } if end > offset) {
                event.delivery = Delivery::Unsent;
            }
        }
    }

    /// What was written to an attachment that is no more counts as unsent.
    pub(super) fn forget_writes(&mut self) {
        let written = self.first_unacked()..self.first_unsent();
        for event in self.events.range_mut(written) {
            event.delivery = Delivery::Unsent;
        }
    }

    /// Prepares the replay strictly after `cursor`: up to it the client has everything; after it everything
    /// is to be written again, save signals that arrived once (an old signal makes clients refetch for ever).
    pub(super) fn rewind(&mut self, cursor: u32) -> Removed {
        for event in &mut self.events {
            if event.sequence <= cursor {
                event.delivery = Delivery::Acked;
            }
        }
        let removed = self.remove_where(|event| event.sequence > cursor && event.is_arrived_signal());
        for event in self.events.iter_mut().filter(|event| event.sequence > cursor) {
            event.delivery = Delivery::Unsent;
        }
        removed
    }

    /// Takes out what no evidence shows to have arrived, in order, to be sent elsewhere.
    pub(super) fn take_unacked(&mut self) -> Vec<Event> {
        let mut unacked = Vec::new();
        let events = std::mem::take(&mut self.events);
        for event in events {
            match event.delivery {
                Delivery::Acked => self.events.push_back(event),
                Delivery::Unsent | Delivery::Written { .. } => unacked.push(event),
            }
        }
        unacked
    }

    /// Whether a replay after `cursor` would write anything.
    pub(super) fn reaches_beyond(&self, cursor: u32) -> bool {
        self.events.iter().any(|event| event.sequence > cursor && !event.is_arrived_signal())
    }

    /// When the oldest event was logged.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.events.front().map(|event| event.at_ms)
    }

    /// Removes what was logged at or before `limit_ms`, as far as there is evidence that it arrived or nobody is left to
    /// give it.
    pub(super) fn expire(&mut self, limit_ms: u64, unproven: Unproven) -> Removed {
        let mut removed = Removed::default();
        let is_over = |event: &Event| {
            event.at_ms <= limit_ms && (unproven == Unproven::Expires || event.delivery == Delivery::Acked)
        };
        while self.events.front().is_some_and(is_over)
            && let Some(event) = self.events.pop_front()
        {
            removed.count(&event);
        }
        removed
    }

    pub(super) fn find(&self, sequence: u32) -> Option<&Event> {
        self.events.get(self.index_of(sequence)?)
    }

    pub(super) fn evict(&mut self, sequence: u32) -> Option<Event> {
        self.events.remove(self.index_of(sequence)?)
    }

    /// Removes, by its payload, what was not written yet or ends behind `offset` of the attachment's connection.
    pub(super) fn remove_behind(&mut self, offset: u64, condemned: impl Fn(&Rc<Bytes>) -> bool) -> Removed {
        self.remove_where(|event| {
            event.delivery > Delivery::Written { end: offset } && condemned(&event.message.payload)
        })
    }

    /// Removes what is known to have arrived.
    pub(super) fn remove_arrived(&mut self) -> Removed {
        self.remove_where(|event| event.delivery == Delivery::Acked)
    }

    fn remove_where(&mut self, condemned: impl Fn(&Event) -> bool) -> Removed {
        let mut removed = Removed::default();
        self.events.retain(|event| {
            let goes = condemned(event);
            if goes {
                removed.count(event);
            }
            !goes
        });
        removed
    }
}

/// Whether expiry takes events that are not known to have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    Expires,
    Stays,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::queue::Signal;

    fn message(class: Class, text: &'static str) -> Message {
        Message { class, payload: Rc::new(Bytes::from_static(text.as_bytes())) }
    }

    fn tools() -> Class {
        Class::Signal(Signal::Tools)
    }

    fn log(classes: &[Class]) -> Log {
        let mut log = Log::default();
        for (sequence, class) in (1..).zip(classes) {
            log.append(sequence, message(class.clone(), "x"), u64::from(sequence));
        }
        log
    }

    fn write_all(log: &mut Log) {
        let mut end = 0;
        while let Some(event) = log.next_unsent() {
            end += 10;
            event.delivery = Delivery::Written { end };
        }
    }

    fn unsent(log: &Log) -> Vec<u32> {
        log.iter().filter(|event| event.delivery == Delivery::Unsent).map(|event| event.sequence).collect()
    }

    #[test]
    fn evidence_covers_whole_frames_only() {
        let mut log = log(&[Class::Other, Class::Other, Class::Other]);
        write_all(&mut log);
        log.acknowledge(29);
        let acked: Vec<_> = log.iter().map(|event| event.delivery == Delivery::Acked).collect();
        assert_eq!(acked, [true, true, false]);
        assert_eq!(log.take_unacked().len(), 1);
        assert_eq!(log.iter().count(), 2);
    }

    #[test]
    fn replay_is_strictly_after_the_cursor_and_repeats_no_arrived_signal() {
        let mut log = log(&[Class::Other, tools(), Class::Other, tools()]);
        write_all(&mut log);
        log.acknowledge(30);
        let removed = log.rewind(1);
        assert_eq!(removed.events, 1, "the signal that arrived");
        assert_eq!(unsent(&log), [3, 4]);
    }

    #[test]
    fn an_older_cursor_gets_acked_events_again() {
        let mut log = log(&[Class::Other, Class::Other]);
        write_all(&mut log);
        log.acknowledge(20);
        log.rewind(0);
        assert_eq!(unsent(&log), [1, 2]);
    }

    #[test]
    fn expiry_spares_what_an_attachment_has_still_to_get() {
        let mut log = log(&[Class::Other, Class::Other, Class::Other]);
        for end in [1, 2] {
            log.next_unsent().expect("three").delivery = Delivery::Written { end };
        }
        log.acknowledge(1);
        assert_eq!(log.expire(3, Unproven::Stays).events, 1);
        assert_eq!(log.expire(3, Unproven::Expires).events, 2);
        assert!(log.is_empty());
    }

    #[test]
    fn an_event_is_evicted_once() {
        let mut log = log(&[Class::Response, Class::Progress]);
        assert!(log.find(2).is_some());
        assert_eq!(log.evict(2).map(|event| event.message.class), Some(Class::Progress));
        assert!(log.find(2).is_none() && log.evict(2).is_none());
        assert_eq!(log.evict(1).map(|event| event.message.class), Some(Class::Response));
        assert!(log.is_empty());
    }
}
