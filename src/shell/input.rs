//! What completed becomes input of the core.
//!
//! Continues the [`Driver`]: everything here runs in the first step of a turn. Must never start a write;
//! output is pulled later in the turn.
//!
//! Invariants
//! - A completed operation leaves its side of the entry idle before anyone is told.
//! - What the kernel says of unacknowledged bytes is read when no completed write is unheard of.
//! - The core hears nothing more of a connection after `lost`, and of its input after `half_closed`.

use super::{
    Backend,
    conn::{Conn, Input, Read, State, Watch, Write},
    driver::Driver,
    errno::{self, Fault},
    mailbox::Traveller,
    ring::{self, Progress, Source, Word},
    socket::{self, Discarded},
};
use crate::{
    core::{ConnKey, Interest, shard::Admission},
    limits::{COMPLETIONS_PER_TURN_MAX, LINGER_BYTES_MAX, READ_BUFFER_BYTES},
};
use bytes::BytesMut;
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

impl<B: Backend> Driver<B> {
    pub(super) fn take_completions(&mut self) {
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            let Some(word) = ring::next_completion() else { return };
            match word.source {
                Source::Read => self.read_completed(word),
                Source::Write => self.write_completed(word),
                Source::Listener => self.listener_completed(word.slot),
                Source::Leaving => self.leaving_completed(word),
                // Seen when the turn began.
                Source::Turn => {}
            }
        }
    }

    // --- Newcomers ----------------------------------------------------------------------------

    pub(super) fn connect(&mut self, fd: OwnedFd) {
        self.counters.accepted += 1;
        let address = socket::peer(fd.as_fd());
        match self.core.connect_from(address, self.now) {
            Admission::Admitted(key) => {
                self.table.insert(key, fd);
                self.touched.push(key);
            }
            Admission::Refused(answer) => self.refuse(fd, answer),
        }
    }

    pub(super) fn adopt(&mut self, traveller: Traveller) {
        self.counters.moved_here += 1;
        let (fd, bytes, request, source) = traveller.arrive();
        let key = self.core.adopt(bytes, request, source, self.now);
        self.table.insert(key, fd);
        self.touched.push(key);
    }

    // --- The read side ------------------------------------------------------------------------

    fn read_completed(&mut self, word: Word) {
        let Some((key, conn)) = self.table.at(word.slot) else { return };
        match std::mem::replace(&mut conn.read, Read::Idle) {
            Read::Idle => {}
            Read::Poll(op, watch) => match op.poll(word) {
                Progress::Pending(op) => conn.read = Read::Poll(op, watch),
                Progress::Done(result, ()) => self.polled(key, watch, result),
            },
        }
    }

    fn polled(&mut self, key: ConnKey, watch: Watch, result: io::Result<usize>) {
        let Some(conn) = self.table.find(key) else { return };
        match conn.state {
            State::Open => match result {
                Ok(events) => self.found(key, watch, events),
                Err(error) => self.read_failed(key, &error),
            },
            State::Lingering { .. } => self.discard(key),
            State::Lost => {}
            State::Dying => self.finish(key),
        }
    }

    /// What a poll of an open connection found.
    fn found(&mut self, key: ConnKey, watch: Watch, events: usize) {
        let found = |event: libc::c_short| events & usize::from(event.unsigned_abs()) != 0;
        // POLLHUP without our own shutdown means that the peer has reset the connection.
        if found(libc::POLLERR) || found(libc::POLLHUP) {
            return self.lost(key);
        }
        // A peer that closes while it has nothing left to say costs no buffer, however many do so at once.
        if found(libc::POLLRDHUP) && self.has_nothing_unread(key) {
            return self.half_closed(key);
        }
        match (watch, self.core.interest(key)) {
            (Watch::Readable, Interest::Park | Interest::Receive) => self.receive(key),
            (_, Interest::HangUp | Interest::Nothing) if found(libc::POLLRDHUP) => self.half_closed(key),
            _ => self.touched.push(key),
        }
    }

    fn has_nothing_unread(&mut self, key: ConnKey) -> bool {
        self.table.find(key).is_some_and(|conn| socket::unread_bytes(conn.fd()) == 0)
    }

    /// Receives what has come and gives it to the core. The buffer is needed for this moment only, unless a
    /// message is unfinished.
    fn receive(&mut self, key: ConnKey) {
        let kept = self.core.take_input(key);
        let mut buffer = kept.unwrap_or_else(|| self.buffers.take_or(BytesMut::new));
        if buffer.capacity() == buffer.len() {
            buffer.reserve(READ_BUFFER_BYTES);
        }
        let Some(conn) = self.table.find(key) else { return };
        match socket::receive(conn.fd(), &mut buffer) {
            Ok(0) => {
                self.recycle(buffer);
                self.half_closed(key);
            }
            Ok(_) => self.received(key, buffer),
            Err(error) if errno::fault(&error) == Fault::Nobody => self.received(key, buffer),
            Err(error) => {
                self.recycle(buffer);
                self.read_failed(key, &error);
            }
        }
    }

    fn received(&mut self, key: ConnKey, buffer: BytesMut) {
        if let Some(buffer) = self.core.received(key, buffer, self.now) {
            self.recycle(buffer);
        }
        self.touched.push(key);
    }

    fn read_failed(&mut self, key: ConnKey, error: &io::Error) {
        match errno::fault(error) {
            // Cancelled to be parked anew, or interrupted.
            Fault::Nobody | Fault::Cancelled => self.touched.push(key),
            Fault::Peer | Fault::Host => self.lost(key),
            Fault::Ours => self.own_fault(key, error),
        }
    }

    fn half_closed(&mut self, key: ConnKey) {
        self.reap_write(key);
        let Some(conn) = self.table.find(key) else { return };
        if conn.input == Input::Ended {
            return;
        }
        conn.input = Input::Ended;
        let unacknowledged = socket::unacknowledged_bytes(conn.fd());
        self.core.half_closed(key, unacknowledged, self.now);
        self.touched.push(key);
    }

    pub(super) fn lost(&mut self, key: ConnKey) {
        self.reap_write(key);
        let Some(conn) = self.table.find(key) else { return };
        if conn.state != State::Open {
            return;
        }
        conn.state = State::Lost;
        let unacknowledged = socket::unacknowledged_bytes(conn.fd());
        self.core.lost(key, unacknowledged, self.now);
    }

    pub(super) fn own_fault(&mut self, key: ConnKey, error: &io::Error) {
        self.counters.own_faults += 1;
        tracing::error!(%error, "an operation on a connection failed by our own fault");
        self.lost(key);
    }

    pub(super) fn measure(&mut self, key: ConnKey) {
        self.reap_write(key);
        let Some(conn) = self.table.find(key) else { return };
        let unacknowledged = socket::unacknowledged_bytes(conn.fd());
        self.core.unacknowledged(key, unacknowledged, self.now);
        // A request that waited for the answer goes on, and may want more of its input.
        self.touched.push(key);
    }

    // --- The input of those who linger --------------------------------------------------------

    pub(super) fn discard(&mut self, key: ConnKey) {
        let Some(conn) = self.table.find(key) else { return };
        match socket::discard_input(conn.fd(), LINGER_BYTES_MAX) {
            Discarded::Some(count) => self.count_discarded(key, count),
            Discarded::Everything => self.shut_and_finish(key),
        }
    }

    fn count_discarded(&mut self, key: ConnKey, count: usize) {
        let Some(conn) = self.table.find(key) else { return };
        let State::Lingering { dropped } = &mut conn.state else { return };
        *dropped = dropped.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if *dropped as usize >= LINGER_BYTES_MAX {
            self.shut_and_finish(key);
        } else {
            Self::park(key, conn, Watch::Readable);
        }
    }

    /// Hears of a write that has completed before the kernel is asked what arrived: its bytes are in the kernel's
    /// count, so they have to be in the core's, too.
    fn reap_write(&mut self, key: ConnKey) {
        self.write_completed(Word::new(Source::Write, key.slot));
    }

    // --- The write side -----------------------------------------------------------------------

    fn write_completed(&mut self, word: Word) {
        let Some((key, conn)) = self.table.at(word.slot) else { return };
        match std::mem::replace(&mut conn.write, Write::Idle) {
            Write::Idle => {}
            Write::Static(op) => match op.poll(word) {
                Progress::Pending(op) => conn.write = Write::Static(op),
                Progress::Done(result, ()) => self.wrote(key, result),
            },
            Write::Message(mut place) => {
                let op = place.take().expect("a place in use holds its operation");
                match op.poll(word) {
                    Progress::Pending(op) => {
                        *place = Some(op);
                        conn.write = Write::Message(place);
                    }
                    Progress::Done(result, mut message) => {
                        message.pieces.clear();
                        self.messages.put(message);
                        self.sends.put(place);
                        self.wrote(key, result);
                    }
                }
            }
            Write::Cancel(op) => match op.poll(word) {
                Progress::Pending(op) => conn.write = Write::Cancel(op),
                Progress::Done(..) => self.cancelled(key),
            },
        }
    }

    fn wrote(&mut self, key: ConnKey, result: io::Result<usize>) {
        let Some(conn) = self.table.find(key) else { return };
        match conn.state {
            State::Open => self.wrote_open(key, result),
            State::Lost | State::Lingering { .. } | State::Dying => {
                if let Ok(count) = result {
                    self.core.wrote(key, count, self.now);
                }
                self.finish_if_dying(key);
            }
        }
    }

    fn finish_if_dying(&mut self, key: ConnKey) {
        if self.table.find(key).is_some_and(|conn| conn.state == State::Dying) {
            self.finish(key);
        }
    }

    fn wrote_open(&mut self, key: ConnKey, result: io::Result<usize>) {
        match result {
            Ok(count) => self.core.wrote(key, count, self.now),
            Err(error) => match errno::fault(&error) {
                Fault::Nobody | Fault::Cancelled => self.core.wrote(key, 0, self.now),
                Fault::Peer | Fault::Host => return self.lost(key),
                Fault::Ours => return self.own_fault(key, &error),
            },
        }
        self.touched.push(key);
    }

    /// The cancellation of a poll is done; the poll itself may have completed before or will now.
    fn cancelled(&mut self, key: ConnKey) {
        let Some(conn) = self.table.find(key) else { return };
        match conn.state {
            State::Open => self.touched.push(key),
            State::Lost | State::Lingering { .. } => {}
            State::Dying => self.finish(key),
        }
    }

    pub(super) fn recycle(&mut self, mut buffer: BytesMut) {
        buffer.clear();
        self.buffers.put(buffer);
    }

    /// Parks the idle read side of `conn`.
    pub(super) fn park(key: ConnKey, conn: &mut Conn, watch: Watch) {
        let events = match watch {
            Watch::Readable => ring::READABLE,
            Watch::HangUp => ring::HANG_UP,
            Watch::Failure => ring::FAILURE,
        };
        if let Read::Idle = conn.read {
            let op = ring::poll(conn.fd(), events, Word::new(Source::Read, key.slot));
            conn.read = Read::Poll(op, watch);
        }
    }
}
