//! How connections end, and how they leave for another shard.
//!
//! Continues the [`Driver`]. Three endings ([`Ending`]): *orderly* shuts the write side and drops input until
//! the peer closes too; *gone* shuts both sides; *cut* discards what is unsent as well.
//!
//! Invariants
//! - The descriptor is closed, and the core told so, after the last operation has completed.
//! - An ending only gets harder.
//! - A connection leaves with no operation in flight; its slot is free for the core at once, so it waits
//!   for its last operation outside the table.

use super::{
    Backend,
    conn::{Conn, Read, State, Watch, Write},
    driver::Driver,
    mailbox::{Mail, Traveller},
    ring::{self, Progress, Source, Word},
    socket,
};
use crate::core::{ConnKey, Ending, MovedConn};

/// A connection on its way out whose poll is being cancelled.
pub(super) struct Leaving {
    conn: Conn,
    moved: MovedConn,
}

impl<B: Backend> Driver<B> {
    pub(super) fn end(&mut self, key: ConnKey, ending: Ending) {
        let Some(conn) = self.table.find(key) else { return };
        match (ending, conn.state) {
            (Ending::Orderly, State::Open) => self.linger(key),
            (Ending::Orderly, State::Lingering { .. } | State::Dying) => {}
            (Ending::Orderly, State::Lost) | (Ending::Gone, _) => self.shut_and_finish(key),
            (Ending::Cut, _) => {
                socket::discard_unsent_on_close(conn.fd());
                self.shut_and_finish(key);
            }
        }
    }

    fn linger(&mut self, key: ConnKey) {
        // Our own FIN will count as unacknowledged, so what arrived before it is asked first.
        self.measure(key);
        let Some(conn) = self.table.find(key) else { return };
        socket::shut_write(conn.fd());
        conn.state = State::Lingering { dropped: 0 };
        match (&conn.read, &conn.write) {
            (Read::Idle, _) => self.discard(key),
            // It would not see input, and a peer that is still sending would never get to its own close.
            (Read::Poll(_, Watch::HangUp | Watch::Failure), Write::Idle) => {
                let word = Word::new(Source::Write, key.slot);
                conn.write = Write::Cancel(ring::cancel(conn.fd(), word));
            }
            (Read::Poll(..), _) => {}
        }
    }

    /// Shuts both sides, which completes what is in flight, and closes once it has.
    pub(super) fn shut_and_finish(&mut self, key: ConnKey) {
        self.measure(key);
        let Some(conn) = self.table.find(key) else { return };
        socket::shut(conn.fd());
        conn.state = State::Dying;
        self.finish(key);
    }

    /// Closes a dying connection if nothing is in flight on it.
    pub(super) fn finish(&mut self, key: ConnKey) {
        let Some(conn) = self.table.find(key).filter(|conn| conn.is_idle()) else { return };
        let unacknowledged = socket::unacknowledged_bytes(conn.fd());
        drop(self.table.remove(key));
        self.core.closed(key, unacknowledged, self.now);
    }

    // --- Leaving ------------------------------------------------------------------------------

    pub(super) fn send_away(&mut self, moved: MovedConn) {
        let Some(conn) = self.table.remove(moved.conn) else { return };
        if conn.is_idle() {
            return self.deliver(Leaving { conn, moved });
        }
        let vacant = self.leaving.vacant_entry();
        let slot = u32::try_from(vacant.key()).expect("there are fewer connections than that");
        let word = Word::new(Source::Leaving, slot);
        let mut leaving = Leaving { conn, moved };
        leaving.cancel(word);
        leaving.look(word);
        vacant.insert(leaving);
        self.deliver_if_idle(slot);
    }

    pub(super) fn leaving_completed(&mut self, word: Word) {
        if let Some(leaving) = self.leaving.get_mut(word.slot as usize) {
            leaving.look(word);
            self.deliver_if_idle(word.slot);
        }
    }

    fn deliver_if_idle(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.leaving.get(slot).is_some_and(|leaving| leaving.conn.is_idle()) {
            let leaving = self.leaving.remove(slot);
            self.deliver(leaving);
        }
    }

    fn deliver(&mut self, leaving: Leaving) {
        let Leaving { conn, moved } = leaving;
        let traveller = Traveller::new(conn.into_fd(), moved.bytes, moved.request, moved.source);
        match self.mailbox.send(moved.shard, Mail::Connection(traveller)) {
            Ok(()) => self.counters.moved_away += 1,
            Err(Mail::Connection(traveller)) => {
                self.counters.moves_refused += 1;
                self.refuse(traveller.arrive().0, moved.refusal);
                self.core.strayed(moved.source);
            }
            Err(Mail::Announcement(_) | Mail::Publication(_) | Mail::Inquiry(_)) => {
                unreachable!("the mail that was given is given back")
            }
        }
    }
}

impl Leaving {
    /// Cancels what is in flight on the read side.
    fn cancel(&mut self, word: Word) {
        if let Write::Idle = self.conn.write {
            self.conn.write = Write::Cancel(ring::cancel(self.conn.fd(), word));
        }
    }

    /// Takes what has completed; the rest will be known by `word`.
    fn look(&mut self, word: Word) {
        let conn = &mut self.conn;
        conn.read = match std::mem::replace(&mut conn.read, Read::Idle) {
            Read::Idle => Read::Idle,
            Read::Poll(op, watch) => match op.poll(word) {
                Progress::Pending(op) => Read::Poll(op, watch),
                Progress::Done(..) => Read::Idle,
            },
        };
        conn.write = match std::mem::replace(&mut conn.write, Write::Idle) {
            Write::Idle => Write::Idle,
            Write::Static(op) => match op.poll(word) {
                Progress::Pending(op) => Write::Static(op),
                Progress::Done(..) => Write::Idle,
            },
            Write::Message(mut place) => {
                match place.take().expect("a place in use holds its operation").poll(word) {
                    Progress::Pending(op) => {
                        *place = Some(op);
                        Write::Message(place)
                    }
                    Progress::Done(..) => Write::Idle,
                }
            }
            Write::Cancel(op) => match op.poll(word) {
                Progress::Pending(op) => Write::Cancel(op),
                Progress::Done(..) => Write::Idle,
            },
        };
    }
}
