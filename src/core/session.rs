//! A session: everything the server knows about one client of a revision before 2026-07-28.
//!
//! Owns its streams, calls and queue through links; whatever ends a session ends them all, in one place
//! ([`Shard::end_session`]). 128 bytes while idle. Invariant: the entry is in the table exactly as long as its id
//! is valid.

use super::{
    asks::Asks,
    calls::Outcome,
    ids::{SessionId, Tag},
    ledger::Account,
    queue::Queue,
    quotas::Locality,
    recovery::Recovery,
    seam::*,
    shard::{Deadline, Shard},
    stream::EndOfStream,
    table::{CallSlot, ConnSlot, Generational, PrincipalSlot, SessionSlot, Slot as _, StreamSlot},
    wheel::TimerId,
};

#[derive(Debug)]
pub(super) struct Session {
    generation: Generation,
    /// As bytes, so that the entry keeps the alignment of a word.
    secret: [u8; 16],
    pub(super) tag: Tag,
    pub(super) revision: Revision,
    pub(super) phase: Phase,
    pub(super) log_level: LogLevel,
    pub(super) client: ClientFeatures,
    /// Whose it is; nobody else's requests find it.
    pub(super) owner: Option<PrincipalSlot>,
    /// What it, its streams and what it keeps are counted in.
    pub(super) account: Account,
    /// From where it was begun.
    pub(super) locality: Locality,
    /// Attached streams that came by GET.
    pub(super) gets: u8,
    pub(super) calls_in_flight: u16,
    /// Most recently attached first.
    pub(super) streams: Option<StreamSlot>,
    pub(super) calls: Option<CallSlot>,
    pub(super) primary: Option<StreamSlot>,
    /// Over HTTP+SSE: the connection of the one stream that everything goes to.
    pub(super) carrier: Option<ConnSlot>,
    /// Number of the listener stream that was primary when it was cut most recently; 0 for none.
    pub(super) cut_primary: u32,
    /// Numbers issued so far, by kind.
    pub(super) listeners_issued: u32,
    pub(super) requests_issued: u32,
    /// The highest sequence number that a forgotten stream issued, by kind.
    pub(super) listener_sequence_forgotten: u32,
    pub(super) request_sequence_forgotten: u32,
    pub(super) replay_events: u32,
    pub(super) replay_bytes: u32,
    pub(super) active_ms: u64,
    pub(super) timer: Option<TimerId>,
    pub(super) queue: Option<Box<Queue>>,
    pub(super) asks: Option<Box<Asks>>,
    pub(super) recovery: Option<Box<Recovery>>,
}

/// Whose a session is, and what it is counted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) owner: Option<PrincipalSlot>,
    pub(super) account: Account,
    pub(super) locality: Locality,
}

/// How far the handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The backend refused `initialize`: no one will ever know the id.
    Rejected,
    /// The connection that carried it is gone: no one can reach it.
    Severed,
    /// The same, before the backend heard of it.
    Unmet,
    /// `initialize` is with the backend: the id is not known to anyone yet.
    Initializing,
    /// Over HTTP+SSE, where the id comes first: `initialize` has to follow.
    Connected,
    /// The client has its id; the handshake deadline runs.
    Handshake,
    /// The client came back with its id.
    Open,
    /// It said `initialized`: it may be asked things.
    Initialized,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Deleted,
    Idle,
    Handshake,
    InitializeFailed,
    BackendGone,
    /// The server stops, and did not wait for it any longer.
    Stopped,
    /// Its owner may come in no longer.
    Revoked,
    /// The stream that carried it is gone.
    Severed,
}

impl Generational for Session {
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Session {
    fn new(
        generation: Generation,
        secret: [u8; 16],
        tag: Tag,
        revision: Revision,
        client: ClientFeatures,
        holder: Holder,
        now: Now,
    ) -> Self {
        Session {
            generation,
            secret,
            tag,
            revision,
            phase: Phase::Initializing,
            log_level: LogLevel::Debug,
            client,
            owner: holder.owner,
            account: holder.account,
            locality: holder.locality,
            gets: 0,
            calls_in_flight: 0,
            streams: None,
            calls: None,
            primary: None,
            carrier: None,
            cut_primary: 0,
            listeners_issued: 0,
            requests_issued: 0,
            listener_sequence_forgotten: 0,
            request_sequence_forgotten: 0,
            replay_events: 0,
            replay_bytes: 0,
            active_ms: now.ms,
            timer: None,
            queue: None,
            asks: None,
            recovery: None,
        }
    }

    /// Whether it began before that generation was issued.
    pub(super) fn is_older_than(&self, generation: Generation) -> bool {
        self.generation.0 < generation.0
    }

    pub(super) fn secret(&self) -> u128 {
        u128::from_le_bytes(self.secret)
    }
}

impl Shard {
    /// Begins a session, if the process has room for one.
    pub(super) fn begin_session(
        &mut self,
        revision: Revision,
        client: ClientFeatures,
        holder: Holder,
        now: Now,
    ) -> Option<SessionSlot> {
        if self.census.enter_session(self.config.sessions_max).is_err() {
            self.counters.sessions_refused += 1;
            self.leave_session(holder.account);
            return None;
        }
        self.counters.sessions += 1;
        self.access.session_began(holder.owner);
        let mut random = [0; 20];
        self.entropy.fill(&mut random);
        let (secret, tag) = random.split_at(16);
        let secret = secret.try_into().expect("16 bytes");
        let tag = Tag::new(u32::from_le_bytes(tag.try_into().expect("4 bytes")));
        let generation = self.generations.issue();
        let session =
            self.sessions.insert(Session::new(generation, secret, tag, revision, client, holder, now));
        self.arm_session(session, now.ms + self.config.handshake_timeout_ms);
        Some(session)
    }

    /// The session of that id, with a comparison whose time does not depend on the secret.
    pub(super) fn find_session(&self, id: &SessionId) -> Option<SessionSlot> {
        if id.shard != self.id {
            return None;
        }
        let (slot, session) = self.sessions.at(id.slot as usize)?;
        let known = match session.phase {
            Phase::Rejected | Phase::Severed | Phase::Unmet => false,
            Phase::Initializing => session.carrier.is_some(),
            Phase::Connected | Phase::Handshake | Phase::Open | Phase::Initialized => true,
        };
        (id.matches(session.secret()) && known).then_some(slot)
    }

    pub(super) fn session_id(&self, session: SessionSlot) -> SessionId {
        SessionId { shard: self.id, slot: session.number(), secret: self.sessions[session].secret() }
    }

    pub(super) fn session_key(&self, session: SessionSlot) -> SessionKey {
        SessionKey { slot: session.number(), generation: self.sessions[session].generation }
    }

    /// A valid request or GET: the client came back, and is active.
    pub(super) fn touch_session(&mut self, session: SessionSlot, now: Now) {
        let entry = &mut self.sessions[session];
        entry.active_ms = now.ms;
        if entry.phase < Phase::Open {
            entry.phase = Phase::Open;
            // The idle clock may be shorter than what is left of the handshake's.
            let (timer, deadline_ms) = (entry.timer, now.ms + self.config.session_idle_timeout_ms);
            let timer = self.arm_no_later(timer, deadline_ms, Deadline::Session(session));
            self.sessions[session].timer = Some(timer);
        }
    }

    /// The session's deadline passed: end it, or see that it is alive and look again later. Until the client came back
    /// that is the handshake's; while the backend works on `initialize` it is the backend that is slow.
    pub(super) fn session_expired(&mut self, session: SessionSlot, now: Now) {
        self.sessions[session].timer = None;
        if let Phase::Severed | Phase::Unmet = self.sessions[session].phase {
            return self.end_session(session, SessionEnd::Severed, now);
        }
        if self.sessions[session].calls_in_flight > 0 || self.has_attached_stream(session) {
            self.sessions[session].active_ms = now.ms;
        }
        let entry = &self.sessions[session];
        let (allowed_ms, end) = match entry.phase {
            Phase::Rejected
            | Phase::Severed
            | Phase::Unmet
            | Phase::Initializing
            | Phase::Connected
            | Phase::Handshake => (self.config.handshake_timeout_ms, SessionEnd::Handshake),
            Phase::Open | Phase::Initialized => (self.config.session_idle_timeout_ms, SessionEnd::Idle),
        };
        let deadline_ms = entry.active_ms + allowed_ms;
        if deadline_ms <= now.ms {
            return self.end_session(session, end, now);
        }
        self.arm_session(session, deadline_ms);
    }

    /// Ends a session and everything that belongs to it, whatever the reason.
    pub(super) fn end_session(&mut self, session: SessionSlot, end: SessionEnd, now: Now) {
        match end {
            SessionEnd::Deleted => self.counters.sessions_deleted += 1,
            SessionEnd::Idle => self.counters.sessions_idle_expired += 1,
            SessionEnd::Handshake => self.counters.sessions_handshake_expired += 1,
            SessionEnd::Stopped => self.counters.sessions_stopped += 1,
            SessionEnd::InitializeFailed => {}
            SessionEnd::Revoked => self.counters.sessions_revoked += 1,
            SessionEnd::Severed => self.counters.sessions_severed += 1,
            SessionEnd::BackendGone => self.counters.sessions_abandoned += 1,
        }
        let key = self.session_key(session);
        self.sessions[session].primary = None;
        while let Some(call) = self.sessions[session].calls {
            self.finish_call(call, Outcome::SessionEnded, now);
        }
        while let Some(stream) = self.sessions[session].streams {
            self.end_stream(stream, EndOfStream::WithSession, now);
        }
        self.end_carrier(session, end, now);
        self.abandon_asks(session);
        self.abandon_replies(session);
        self.subscriptions.end(session);
        let entry = self.sessions.remove(session);
        if let Some(timer) = entry.timer {
            self.wheel.cancel(timer);
        }
        debug_assert_eq!((entry.replay_events, entry.replay_bytes, entry.gets), (0, 0, 0));
        self.access.session_ended(entry.owner);
        self.leave_session(entry.account);
        self.census.leave_session();
        if !matches!(entry.phase, Phase::Connected | Phase::Unmet) {
            self.ask(Ask::SessionEnded(key));
        }
    }

    fn arm_session(&mut self, session: SessionSlot, deadline_ms: u64) {
        let timer = self.wheel.arm(deadline_ms, Deadline::Session(session));
        self.sessions[session].timer = Some(timer);
    }

    fn has_attached_stream(&self, session: SessionSlot) -> bool {
        let entry = &self.sessions[session];
        let is_carried = entry.carrier.is_some() && entry.phase >= Phase::Open;
        is_carried || self.streams_of(session).any(|stream| self.streams[stream].live_conn().is_some())
    }

    /// The session's streams, most recently attached first.
    pub(super) fn streams_of(&self, session: SessionSlot) -> impl Iterator<Item = StreamSlot> + '_ {
        std::iter::successors(self.sessions[session].streams, |stream| self.streams[*stream].older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_takes_what_is_said_of_it() {
        assert_eq!(size_of::<Session>(), 128);
    }
}
