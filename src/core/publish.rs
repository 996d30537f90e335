//! Publications: notifications from outside the protocol, for a named audience, with a count of how they went.
//!
//! Owns nothing. A publication to all is a broadcast that somebody waits for: it takes the same walk over sessions and
//! listen streams, some per turn, and reports when the walk is done. One for a principal is the same walk, past those of
//! others. One for a single session is given to it at once and overtakes walks
//! under way.
//!
//! Invariants: each publication is reported once; each session it was for is counted once, by what was true of its message
//! when the shard came by. Complexity: O(1) per session beyond the notification itself.

use super::{
    seam::*,
    shard::{Shard, message_of},
    table::PrincipalSlot,
};

/// What became of a notification in one session, or on one listen stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The primary, or the listen stream, took it.
    Written,
    /// It waits, or one does that says the same.
    Pending,
    /// The session asked not to see it.
    Filtered,
    /// There was no room for it.
    Refused,
}

/// Who a message came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Session,
    Listen,
}

impl Reach {
    fn count(&mut self, of: Of, fate: Fate) {
        match of {
            Of::Session => self.sessions += 1,
            Of::Listen => self.listens += 1,
        }
        match fate {
            Fate::Written => self.written += 1,
            Fate::Pending => self.pending += 1,
            Fate::Filtered => self.filtered += 1,
            Fate::Refused => self.refused += 1,
        }
    }
}

impl Shard {
    pub(super) fn begin_publication(&mut self, publication: Publication, now: Now) {
        let Publication { id, audience, announcement } = publication;
        match audience {
            Audience::All => self.begin_broadcast(announcement, None, Some(id)),
            Audience::Principal(principal) => match self.access.find(principal.name()) {
                Some(owner) => self.begin_broadcast(announcement, Some(owner), Some(id)),
                None => self.effects.push_back(Effect::Published(id, Reach::default())),
            },
            Audience::Session(session) => {
                let mut reach = Reach::default();
                if let Some(session) = self.find_session(&session) {
                    let message = message_of(&announcement.kind, announcement.payload);
                    reach.count(Of::Session, self.notify_session(session, &announcement.kind, message, now));
                }
                self.effects.push_back(Effect::Published(id, reach));
            }
        }
    }

    /// There is no room for one more broadcast: whoever published it learns that nobody got it.
    pub(super) fn refuse_publication(
        &mut self,
        owner: Option<PrincipalSlot>,
        publication: Option<PublicationId>,
    ) {
        if let Some(id) = publication {
            let of_owner = |owner| u64::from(self.access.sessions_of(owner));
            let sessions = owner.map_or(self.sessions.len() as u64, of_owner);
            let reach = Reach { sessions, refused: sessions, ..Reach::default() };
            self.effects.push_back(Effect::Published(id, reach));
        }
    }

    /// The broadcast under way came by one more session or listen stream.
    pub(super) fn count_broadcast(&mut self, of: Of, fate: Fate) {
        if let Some(broadcast) = self.broadcasts.front_mut() {
            broadcast.reach.count(of, fate);
        }
    }

    /// The broadcast under way has come by everybody.
    pub(super) fn finish_broadcast(&mut self) {
        if let Some(broadcast) = self.broadcasts.pop_front()
            && let Some(id) = broadcast.publication
        {
            self.effects.push_back(Effect::Published(id, broadcast.reach));
        }
    }
}
