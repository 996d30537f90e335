//! Listener messages that moved to another stream for want of evidence, and the cursor that proves their arrival
//! after all.
//!
//! What a connection did not acknowledge before it died may have arrived: its acknowledgement may have been lost with it.
//! If its client comes back with a cursor at or behind such a message, the message is taken out of wherever it waits,
//! and where it is on its way it moves no further, so that the client does not get it again under another id, unless it asks
//! for it with an older cursor. Remembers under which ids
//! messages were logged, at most [`MOVED_PER_SESSION_MAX`] and for the replay time; 40 bytes each. Signals are left out:
//! one that waits stands also for those that were merged into it.

use super::{
    ids::EventId,
    log::{Delivery, Event},
    queue::Class,
    seam::*,
    shard::Shard,
    stream::Attachment,
    table::{SessionSlot, StreamSlot},
};
use crate::limits::MOVED_PER_SESSION_MAX;
use bytes::Bytes;
use std::{
    collections::VecDeque,
    rc::{Rc, Weak},
};

/// The names under which messages may have arrived, in the order in which they moved.
#[derive(Debug, Default)]
pub(super) struct Moved {
    names: VecDeque<Name>,
}

#[derive(Debug)]
struct Name {
    stream: u32,
    sequence: u32,
    /// The last event by which a cursor can prove it: whoever went on with the stream from before it was not given it.
    provable_until: u32,
    /// When the event was logged.
    at_ms: u64,
    payload: Weak<Bytes>,
    proof: Proof,
}

/// Whether a cursor showed that the message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    None,
    Named,
}

impl Name {
    fn is_of(&self, payload: &Rc<Bytes>) -> bool {
        std::ptr::eq(self.payload.as_ptr(), Rc::as_ptr(payload))
    }
}

impl Moved {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.names.iter().map(|name| name.at_ms).min()
    }

    /// Forgets the names of what was logged at or before `limit_ms`.
    pub(super) fn expire(&mut self, limit_ms: u64) {
        self.names.retain(|name| name.at_ms > limit_ms);
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
    }

    fn push(&mut self, stream: u32, event: &Event) {
        if self.names.len() >= MOVED_PER_SESSION_MAX {
            self.names.pop_front();
        }
        let payload = Rc::downgrade(&event.message.payload);
        self.names.push_back(Name {
            stream,
            sequence: event.sequence,
            provable_until: u32::MAX,
            at_ms: event.at_ms,
            payload,
            proof: Proof::None,
        });
    }

    /// The messages that the cursor shows to have arrived, as far as they are still somewhere. Events of the stream after
    /// `issued` will say nothing of those behind the cursor: they went elsewhere, and its client cannot get them in between.
    fn prove(&mut self, cursor: EventId, issued: u32) -> Vec<Rc<Bytes>> {
        self.names.retain(|name| name.payload.strong_count() > 0);
        let of_stream = self.names.iter_mut().filter(|name| name.stream == cursor.stream);
        for name in of_stream.filter(|name| name.sequence > cursor.sequence) {
            name.provable_until = name.provable_until.min(issued);
            name.proof = Proof::None;
        }
        let is_named = |name: &&mut Name| {
            name.stream == cursor.stream && (name.sequence..=name.provable_until).contains(&cursor.sequence)
        };
        let named = self.names.iter_mut().filter(is_named);
        named
            .filter_map(|name| {
                name.proof = Proof::Named;
                name.payload.upgrade()
            })
            .collect()
    }

    fn is_proven(&self, payload: &Rc<Bytes>) -> bool {
        self.names.iter().any(|name| name.proof == Proof::Named && name.is_of(payload))
    }

    /// The client wants that message once more.
    fn disprove(&mut self, payload: &Rc<Bytes>) {
        self.names.iter_mut().filter(|name| name.is_of(payload)).for_each(|name| name.proof = Proof::None);
    }
}

impl Shard {
    /// Events of that listener stream go elsewhere though they may have arrived.
    pub(super) fn remember_moved(&mut self, session: SessionSlot, number: u32, events: &[Event], now: Now) {
        let ttl_ms = self.config.replay_ttl_ms;
        let is_nameable = |event: &&Event| {
            event.at_ms + ttl_ms > now.ms && !matches!(event.message.class, Class::Signal(_))
        };
        let mut events = events.iter().filter(is_nameable).peekable();
        if events.peek().is_none() {
            return;
        }
        let recovery = self.sessions[session].recovery.get_or_insert_default();
        for event in events {
            recovery.moved.push(number, event);
        }
        self.arm_recovery(session, now.ms + ttl_ms);
    }

    /// A client named an event of a listener stream: what moved from there and was written before it has arrived.
    pub(super) fn cursor_proves(&mut self, session: SessionSlot, cursor: EventId, now: Now) {
        let issued = match self.find_stream(session, cursor.kind, cursor.stream) {
            Some(stream) => self.streams[stream].sequence,
            None => self.sessions[session].listener_sequence_forgotten,
        };
        let Some(recovery) = &mut self.sessions[session].recovery else { return };
        let proven = recovery.moved.prove(cursor, issued);
        self.drop_empty_recovery(session);
        if proven.is_empty() {
            return;
        }
        let is_proven = |payload: &Rc<Bytes>| proven.iter().any(|other| Rc::ptr_eq(other, payload));
        if let Some(queue) = &mut self.sessions[session].queue {
            queue.remove_where(is_proven);
            self.sessions[session].queue.take_if(|queue| queue.is_empty());
        }
        let listening: Vec<_> =
            self.streams_of(session).filter(|slot| self.streams[*slot].listens()).collect();
        for stream in listening {
            self.withdraw(stream, is_proven, now);
        }
    }

    /// Leaves out the events whose arrival a cursor proved meanwhile.
    pub(super) fn without_proven(&self, session: SessionSlot, events: Vec<Event>) -> Vec<Event> {
        let Some(recovery) = &self.sessions[session].recovery else { return events };
        events.into_iter().filter(|event| !recovery.moved.is_proven(&event.message.payload)).collect()
    }

    /// The client asked for everything that this stream's log still holds unacknowledged, whatever it named before.
    pub(super) fn asked_again(&mut self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        let Some(recovery) = &mut self.sessions[entry.session].recovery else { return };
        for event in entry.log.iter().flat_map(|log| log.iter()) {
            if event.delivery != Delivery::Acked {
                recovery.moved.disprove(&event.message.payload);
            }
        }
    }

    /// Takes messages out of a stream and back from its connection, as far as they are not with the kernel.
    fn withdraw(&mut self, stream: StreamSlot, condemned: impl Fn(&Rc<Bytes>) -> bool, now: Now) {
        let lent = self.streams[stream].live_conn().map_or(0, |conn| self.conns[conn].lent_offset());
        let Some(log) = &mut self.streams[stream].log else { return };
        let removed = log.remove_behind(lent, condemned);
        if removed.events == 0 {
            return;
        }
        self.account_removed(stream, removed);
        if let Attachment::Live(conn) = self.streams[stream].attachment {
            self.retract_stream(stream, now);
            if self.sessions[self.streams[stream].session].primary == Some(stream) {
                let offset = self.conns[conn].queued_offset();
                if let Some(log) = &mut self.streams[stream].log {
                    log.forget_writes_behind(offset);
                }
                self.pump_stream(stream, now);
            } else {
                // What else was taken back goes to the primary with what did not arrive.
                self.effects.push_back(Effect::Measure(self.conn_key(conn)));
            }
        }
        self.forget_if_done(stream);
    }
}
