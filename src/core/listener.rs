//! Listener streams: who gets what the server sends unasked.
//!
//! Decides for every GET which stream it becomes or continues, elects the one primary, probes a primary that
//! a newcomer puts in doubt, and hands messages to the queue the primary pulls from. Owns no state of its own: the
//! session names its primary, streams carry role and trust.
//!
//! Invariants: while any listening stream is attached exactly one of them is primary; a message is in the queue or in
//! exactly one log; nothing here closes a connection that could still be listening, save a fallen-through one whose place
//! a listener needs.

use super::{
    config::ListenerPolicy,
    http::refusal::Refusal,
    ids::{EventId, StreamKind},
    publish::Fate,
    queue::{Class, Message, Queue, Queued},
    request::{CursorField, Request},
    seam::*,
    shard::Shard,
    sse,
    stream::{Attachment, EndOfStream, Probe, ResponseKept, Role, Stream, Trust, Via},
    table::{ConnSlot, SessionSlot, StreamSlot},
};
use crate::limits;

/// Which stream a GET is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A new listener stream.
    Plain,
    /// Go on with this listener stream after the cursor.
    Listener(EventId),
    /// Go on with this request stream after the cursor.
    Request(EventId),
    /// The cursor's request stream has nothing left to say.
    FallenThrough(EventId),
}

impl Wanted {
    fn cursor(self) -> Option<EventId> {
        match self {
            Wanted::Plain => None,
            Wanted::Listener(cursor) | Wanted::Request(cursor) | Wanted::FallenThrough(cursor) => {
                Some(cursor)
            }
        }
    }
}

impl Shard {
    // --- GET -----------------------------------------------------------------------------------

    /// Answers a GET of a live session: with a stream, or with the refusal returned.
    pub(super) fn open_listener(
        &mut self,
        conn: ConnSlot,
        request: &Request,
        session: SessionSlot,
        now: Now,
    ) -> Result<(), Refusal> {
        let wanted = self.wanted_stream(session, request.cursor)?;
        if self.draining() && !matches!(wanted, Wanted::Request(_)) {
            return Err(Refusal::draining());
        }
        if let Wanted::Request(cursor) | Wanted::FallenThrough(cursor) = wanted {
            self.forget_named(session, cursor.stream);
        }
        self.check_streams(session, conn)?;
        if let Wanted::Listener(cursor) = wanted {
            self.cursor_proves(session, cursor, now);
        }
        self.make_place(session, wanted, now)?;
        self.touch_session(session, now);
        let stream = self.stream_for(session, wanted, now);
        self.counters.listeners += 1;
        self.queue_stream_head(conn, &request.reply, None, now);
        self.queue_opening(conn, session, wanted, stream, now);
        let via = if wanted == Wanted::Plain { Via::PlainGet } else { Via::CursorGet };
        self.attach(stream, conn, via);
        if via == Via::PlainGet {
            self.claim_replies(stream);
        }
        self.claim_primary(stream, wanted, now);
        self.pump_stream(stream, now);
        Ok(())
    }

    fn wanted_stream(&mut self, session: SessionSlot, cursor: CursorField) -> Result<Wanted, Refusal> {
        let wanted = match cursor {
            CursorField::Absent => Some(Wanted::Plain),
            CursorField::Malformed => None,
            CursorField::Event(cursor) if cursor.tag != self.sessions[session].tag => None,
            CursorField::Event(cursor) => match cursor.kind {
                StreamKind::Listener => self.wanted_listener(session, cursor),
                StreamKind::Request => self.wanted_request(session, cursor),
            },
        };
        wanted.ok_or_else(|| {
            self.counters.cursors_refused += 1;
            Refusal::bad_cursor()
        })
    }

    fn wanted_listener(&self, session: SessionSlot, cursor: EventId) -> Option<Wanted> {
        let owner = &self.sessions[session];
        let issued = match self.find_stream(session, cursor.kind, cursor.stream) {
            Some(stream) => cursor.sequence <= self.streams[stream].sequence,
            None => {
                (1..=owner.listeners_issued).contains(&cursor.stream)
                    && cursor.sequence <= owner.listener_sequence_forgotten
            }
        };
        issued.then_some(Wanted::Listener(cursor))
    }

    fn wanted_request(&self, session: SessionSlot, cursor: EventId) -> Option<Wanted> {
        let owner = &self.sessions[session];
        let Some(stream) = self.find_stream(session, cursor.kind, cursor.stream) else {
            let issued = (1..=owner.requests_issued).contains(&cursor.stream)
                && cursor.sequence <= owner.request_sequence_forgotten;
            return issued.then_some(Wanted::FallenThrough(cursor));
        };
        let stream = &self.streams[stream];
        if cursor.sequence > stream.sequence || stream.response == ResponseKept::Lost {
            return None;
        }
        let more = stream.log.as_ref().is_some_and(|log| log.reaches_beyond(cursor.sequence));
        Some(if more || stream.post.is_some() {
            Wanted::Request(cursor)
        } else {
            Wanted::FallenThrough(cursor)
        })
    }

    /// Keeps the caps on GET streams: a fallen-through stream gives way to any other, and is refused in a way that
    /// stops an EventSource.
    fn make_place(&mut self, session: SessionSlot, wanted: Wanted, now: Now) -> Result<(), Refusal> {
        let owner = &self.sessions[session];
        let full = usize::from(owner.gets) >= limits::GET_STREAMS_PER_SESSION_MAX;
        if let Wanted::FallenThrough(_) = wanted {
            self.counters.listeners_fallen_through += 1;
            if full || self.fallen_through(session) >= limits::FALLEN_THROUGH_PER_SESSION_MAX {
                self.counters.listeners_refused += 1;
                return Err(Refusal::no_more_streams());
            }
            return Ok(());
        }
        let needed = self.places_needed(session, wanted);
        while usize::from(self.sessions[session].gets) + needed > limits::GET_STREAMS_PER_SESSION_MAX {
            let Some(stream) = self.most_dispensable(session) else {
                self.counters.listeners_refused += 1;
                return Err(Refusal::too_many_streams());
            };
            self.end_stream(stream, EndOfStream::Displaced, now);
        }
        Ok(())
    }

    /// How many attached streams fell through.
    fn fallen_through(&self, session: SessionSlot) -> usize {
        let fell_through = |slot: &StreamSlot| {
            let stream = &self.streams[*slot];
            stream.role == Role::FallenThrough && stream.live_conn().is_some()
        };
        self.streams_of(session).filter(fell_through).count()
    }

    /// How many GET streams more there will be. The connection of a POST becomes one when its stream is continued
    /// elsewhere.
    fn places_needed(&self, session: SessionSlot, wanted: Wanted) -> usize {
        let Wanted::Request(cursor) = wanted else { return 1 };
        let continued = self.find_stream(session, cursor.kind, cursor.stream).map(|slot| &self.streams[slot]);
        let leaves_a_post = |stream: &Stream| stream.via == Via::Post && stream.live_conn().is_some();
        if continued.is_some_and(leaves_a_post) { 2 } else { 1 }
    }

    /// The oldest attached GET stream that carries nothing.
    fn most_dispensable(&self, session: SessionSlot) -> Option<StreamSlot> {
        self.streams_of(session)
            .filter(|slot| {
                let stream = &self.streams[*slot];
                stream.live_conn().is_some() && matches!(stream.role, Role::FallenThrough | Role::Superseded)
            })
            .last()
    }

    /// The entry that will carry the GET, detached and rewound to its cursor.
    fn stream_for(&mut self, session: SessionSlot, wanted: Wanted, now: Now) -> StreamSlot {
        match wanted {
            Wanted::Plain => self.new_stream(session, Role::Listener),
            Wanted::FallenThrough(_) => self.new_stream(session, Role::FallenThrough),
            Wanted::Listener(cursor) => {
                self.counters.streams_continued += 1;
                match self.find_stream(session, StreamKind::Listener, cursor.stream) {
                    Some(stream) => {
                        self.rewind(stream, cursor, now);
                        // However it began: its client follows the listener's events now.
                        self.streams[stream].role = Role::Listener;
                        stream
                    }
                    None => self.remembered_stream(session, cursor.stream),
                }
            }
            Wanted::Request(cursor) => match self.find_stream(session, cursor.kind, cursor.stream) {
                Some(stream) => {
                    self.counters.streams_continued += 1;
                    self.rewind(stream, cursor, now);
                    stream
                }
                // Whoever was promoted when a place was made got messages that took the room of its last events.
                None => self.new_stream(session, Role::FallenThrough),
            },
        }
    }

    /// Frees the stream from its former connection, which goes on as a stream without messages, and prepares the replay.
    fn rewind(&mut self, stream: StreamSlot, cursor: EventId, now: Now) {
        // Who names an event has it, and all that was written before it.
        let log = self.streams[stream].log.as_ref();
        if let Some(end) = log.and_then(|log| log.written_end(cursor.sequence)) {
            self.stream_arrived(stream, end);
        }
        if let Attachment::Ending(conn) = self.streams[stream].attachment {
            self.forget_unproven(conn, stream);
            self.streams[stream].attachment = Attachment::None;
            self.forget_copies(stream);
            self.release_claims(stream, now);
        }
        if let Some(left_over) = self.release_conn(stream, now) {
            let entry = &self.streams[stream];
            let (session, number) = (entry.session, entry.number);
            let heir = match entry.role {
                Role::Request | Role::Superseded => {
                    self.insert_stream(session, StreamKind::Request, Role::Superseded, number, 0)
                }
                Role::Listener | Role::FallenThrough => self.new_stream(session, Role::Listener),
            };
            self.attach(heir, left_over, Via::CursorGet);
            self.demote(heir);
        }
        if let Some(log) = &mut self.streams[stream].log {
            let removed = log.rewind(cursor.sequence);
            self.account_removed(stream, removed);
            self.asked_again(stream);
        }
    }

    /// The first bytes of a GET stream: a priming event where the session knows them, else a comment, so that head and
    /// first bytes go out at once.
    fn queue_opening(
        &mut self,
        conn: ConnSlot,
        session: SessionSlot,
        wanted: Wanted,
        stream: StreamSlot,
        now: Now,
    ) {
        let transfer = self.conns[conn].transfer;
        let piece = if self.primes_listeners(session) {
            let id = wanted.cursor().unwrap_or_else(|| self.event_id(stream, 0));
            Piece::Inline(sse::priming(transfer, id, self.config.retry_ms))
        } else {
            Piece::Static(sse::opening(transfer))
        };
        self.queue_frame(conn, [piece], now);
    }

    // --- Election ------------------------------------------------------------------------------

    /// A GET stream was attached: primary, or shadow that puts the primary in doubt.
    fn claim_primary(&mut self, stream: StreamSlot, wanted: Wanted, now: Now) {
        let session = self.streams[stream].session;
        let Some(primary) = self.sessions[session].primary else {
            return if self.streams[stream].listens() {
                self.make_primary(stream, now)
            };
        };
        let only_fallen_through = self.streams[primary].role == Role::FallenThrough;
        match wanted {
            Wanted::Request(_) | Wanted::FallenThrough(_) => {}
            Wanted::Plain | Wanted::Listener(_) if only_fallen_through => self.make_primary(stream, now),
            Wanted::Listener(_) => {
                if self.sessions[session].cut_primary == self.streams[stream].number {
                    self.make_primary(stream, now);
                }
            }
            Wanted::Plain => match self.config.listener_policy {
                ListenerPolicy::First => self.start_probe(primary, now),
                ListenerPolicy::Latest => self.take_over(primary, stream, now),
            },
        }
    }

    fn make_primary(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        self.sessions[session].primary = Some(stream);
        let orphans: Vec<_> = self
            .streams_of(session)
            .filter(|slot| *slot != stream && self.streams[*slot].attachment == Attachment::None)
            .collect();
        for orphan in orphans {
            self.return_unacked(orphan, now);
            self.forget_if_done(orphan);
        }
        let queued = self.streams[stream].live_conn().map(|conn| self.conns[conn].queued_offset());
        if let (Some(log), Some(queued)) = (&mut self.streams[stream].log, queued) {
            // What was taken back from it when it was taken over is still its own if nobody else got it since.
            log.forget_writes_behind(queued);
        }
        self.pump_stream(stream, now);
    }

    /// Promotes the best attached stream if the session has no primary. Nobody stays deaf.
    pub(super) fn elect(&mut self, session: SessionSlot, now: Now) {
        if self.sessions[session].primary.is_some() {
            return;
        }
        if let Some(best) = self.best_listener(session) {
            self.counters.primaries_promoted += 1;
            self.make_primary(best, now);
        }
    }

    /// The attached stream that would be promoted; nobody while the server stops.
    pub(super) fn best_listener(&self, session: SessionSlot) -> Option<StreamSlot> {
        // Whoever listens came by GET; without one there is no need to look at all that is kept for replay.
        if self.draining() || self.sessions[session].gets == 0 {
            return None;
        }
        self.streams_of(session)
            .filter(|slot| self.streams[*slot].listens() && self.streams[*slot].live_conn().is_some())
            .enumerate()
            .min_by_key(|(recency, slot)| (self.reluctance(*slot), *recency))
            .map(|(_, slot)| slot)
    }

    /// Lower is promoted first.
    pub(super) fn reluctance(&self, stream: StreamSlot) -> u8 {
        let entry = &self.streams[stream];
        match (entry.standing(), entry.role) {
            (Trust::Demoted, _) => 2,
            (Trust::Trusted | Trust::Probed, Role::FallenThrough) => 1,
            (Trust::Trusted | Trust::Probed, Role::Listener | Role::Request | Role::Superseded) => 0,
        }
    }

    fn take_over(&mut self, former: StreamSlot, newcomer: StreamSlot, now: Now) {
        if let Some(conn) = self.retract_stream(former, now) {
            self.effects.push_back(Effect::Measure(self.conn_key(conn)));
        }
        self.demote(former);
        self.make_primary(newcomer, now);
    }

    // --- Doubt ---------------------------------------------------------------------------------

    /// Asks the primary's peer for a sign of life: a comment that its TCP has to acknowledge in time.
    fn start_probe(&mut self, primary: StreamSlot, now: Now) {
        let Some(conn) = self.streams[primary].live_conn() else { return };
        if self.streams[primary].trust == Trust::Probed {
            return;
        }
        let offset = if self.conns[conn].output_bytes() == 0 {
            let comment = sse::comment(self.conns[conn].transfer);
            self.queue_frame(conn, [Piece::Static(comment)], now)
        } else {
            self.conns[conn].queued_offset()
        };
        let deadline_ms = now.ms + limits::PROBE_TIMEOUT_MS;
        let entry = &mut self.streams[primary];
        let before = std::mem::replace(&mut entry.trust, Trust::Probed);
        entry.probe = Some(Box::new(Probe { offset, deadline_ms, before }));
        self.arm_stream(primary, deadline_ms);
    }

    /// The probe's time is over: ask the kernel what arrived.
    pub(super) fn probe_expired(&mut self, stream: StreamSlot, now: Now) {
        let entry = &self.streams[stream];
        let due = entry.probe.as_ref().is_some_and(|probe| probe.deadline_ms <= now.ms);
        if let (Trust::Probed, true, Some(conn)) = (entry.trust, due, entry.live_conn()) {
            self.effects.push_back(Effect::Measure(self.conn_key(conn)));
        }
    }

    /// Evidence: everything up to `offset` of the stream's connection has arrived.
    pub(super) fn stream_arrived(&mut self, stream: StreamSlot, offset: u64) {
        self.acknowledge_claimed(stream, offset);
        let entry = &mut self.streams[stream];
        if let Some(log) = &mut entry.log {
            log.acknowledge(offset);
        }
        if offset >= entry.unnamed_until {
            entry.unnamed_until = 0;
        }
        self.recount_owed(stream);
    }

    /// The same of a live attachment, whose peer may be in doubt.
    pub(super) fn stream_measured(&mut self, stream: StreamSlot, offset: u64, now: Now) {
        self.stream_arrived(stream, offset);
        let entry = &mut self.streams[stream];
        let Some(probe) = entry.probe.as_deref().copied() else { return };
        match entry.trust {
            Trust::Trusted => {}
            Trust::Probed if offset >= probe.offset => {
                entry.trust = Trust::Trusted;
                entry.probe = None;
            }
            Trust::Probed if probe.deadline_ms <= now.ms => self.probe_failed(stream, now),
            Trust::Probed => {}
            Trust::Demoted if offset > probe.offset => {
                entry.trust = Trust::Trusted;
                entry.probe = None;
            }
            Trust::Demoted => self.pass_on_unacked(stream, now),
        }
    }

    /// Demotes the stream, and hands its messages to whoever is better. If nobody is, it stays primary: what is on its
    /// way there must not be written to it twice.
    fn probe_failed(&mut self, stream: StreamSlot, now: Now) {
        self.counters.primaries_demoted += 1;
        self.demote(stream);
        let session = self.streams[stream].session;
        let better =
            self.best_listener(session).filter(|best| self.streams[*best].standing() != Trust::Demoted);
        let primary = self.sessions[session].primary.filter(|primary| *primary != stream);
        let Some(heir) = primary.or(better) else { return };
        if self.retract_stream(stream, now).is_some() {
            self.demote(stream);
        }
        self.release_claims(stream, now);
        self.return_unacked(stream, now);
        if primary.is_none() {
            self.counters.primaries_promoted += 1;
        }
        self.make_primary(heir, now);
    }

    /// Takes back what the kernel was not given of a stream that stays on its connection, which is returned.
    pub(super) fn retract_stream(&mut self, stream: StreamSlot, now: Now) -> Option<ConnSlot> {
        let conn = self.streams[stream].live_conn()?;
        self.retract_output(conn);
        let offset = self.conns[conn].queued_offset();
        self.claims_retracted(stream, offset, now);
        Some(conn)
    }

    /// Distrusts a stream until its peer acknowledges more than was queued for it by now.
    fn demote(&mut self, stream: StreamSlot) {
        let Some(conn) = self.streams[stream].live_conn() else { return };
        let offset = self.conns[conn].queued_offset();
        let entry = &mut self.streams[stream];
        entry.trust = Trust::Demoted;
        entry.probe = Some(Box::new(Probe { offset, deadline_ms: 0, before: Trust::Demoted }));
    }

    // --- Messages ------------------------------------------------------------------------------

    /// Sends a session something nobody asked for: to its primary, or into its queue.
    pub(super) fn announce(&mut self, session: SessionSlot, message: Message, now: Now) -> Queued {
        if self.sessions[session].carrier.is_some() {
            return self.carry(session, message, now);
        }
        if let Some(primary) = self.sessions[session].primary
            && self.takes_at_once(session, primary)
        {
            self.log_message(primary, message, now);
            self.pump_stream(primary, now);
            return Queued::Waiting;
        }
        let request = match message.class {
            Class::Request(id) => Some(id),
            Class::Signal(_) | Class::Progress | Class::Log | Class::Response | Class::Other => None,
        };
        let queued = self.queue_mut(session).push(message);
        match queued {
            Queued::Waiting => {}
            Queued::Merged => self.counters.messages_merged += 1,
            Queued::Displaced(dropped) => self.counters.messages_dropped += dropped as u64,
            Queued::Refused => {
                self.counters.messages_dropped += 1;
                request.into_iter().for_each(|id| self.ask_dropped(session, id));
            }
        }
        if let Some(primary) = self.sessions[session].primary {
            self.pump_stream(primary, now);
        }
        queued
    }

    fn takes_at_once(&self, session: SessionSlot, primary: StreamSlot) -> bool {
        let idle = self.streams[primary].live_conn().is_some_and(|conn| self.conns[conn].output_bytes() == 0);
        idle && self.sessions[session].queue.is_none()
    }

    pub(super) fn queue_mut(&mut self, session: SessionSlot) -> &mut Queue {
        self.sessions[session].queue.get_or_insert_default()
    }

    /// Gives what a stream that is gone or in doubt may not have delivered to the primary, if there is one.
    fn pass_on_unacked(&mut self, stream: StreamSlot, now: Now) {
        let session = self.streams[stream].session;
        let Some(primary) = self.sessions[session].primary else { return };
        if primary == stream {
            return;
        }
        // What it was doubted with it may have gone on to write from its own log: only one of the two may write it now.
        if self.streams[stream].log.is_some() && self.retract_stream(stream, now).is_some() {
            self.demote(stream);
        }
        self.release_claims(stream, now);
        if self.return_unacked(stream, now) {
            self.pump_stream(primary, now);
        }
    }

    /// Puts what a stream may not have delivered back at the head of the queue. False if there was nothing.
    pub(super) fn return_unacked(&mut self, stream: StreamSlot, now: Now) -> bool {
        let entry = &self.streams[stream];
        if !entry.listens() || entry.log.is_none() {
            return false;
        }
        let (session, number) = (entry.session, entry.number);
        let events = self.take_unacked(stream);
        let events = self.without_proven(session, events);
        if events.is_empty() {
            return false;
        }
        self.counters.events_moved += events.len() as u64;
        self.remember_moved(session, number, &events, now);
        self.queue_mut(session).push_front(events.into_iter().map(|event| event.message));
        true
    }

    /// A notification for one session, by what it is.
    pub(super) fn notify_session(
        &mut self,
        session: SessionSlot,
        kind: &NotificationKind,
        message: Message,
        now: Now,
    ) -> Fate {
        if self.is_filtered(session, kind) {
            self.counters.messages_filtered += 1;
            return Fate::Filtered;
        }
        debug_assert!(message.class == Class::of(kind));
        match self.announce(session, message, now) {
            Queued::Refused => Fate::Refused,
            // The newest message leaves the queue last.
            Queued::Waiting | Queued::Displaced(_) | Queued::Merged => match self.sessions[session].queue {
                None => Fate::Written,
                Some(_) => Fate::Pending,
            },
        }
    }

    /// Whether the session asked not to see log messages of that level.
    pub(super) fn is_filtered(&self, session: SessionSlot, kind: &NotificationKind) -> bool {
        matches!(kind, NotificationKind::Log(level) if *level < self.sessions[session].log_level)
    }
}
