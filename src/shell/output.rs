//! What is written, and how reading is parked.
//!
//! Continues the [`Driver`]: the last steps of a turn. The core says which connections have output and
//! fills a pooled list of pieces for each whose write side is free.
//!
//! Invariants
//! - Replies and events go first; keep-alive comments get what they leave of the turn's sends, but never
//!   nothing.
//! - A poll for the peer's close or the connection's death alone is not armed while a write is in flight: the write reports a dead
//!   peer itself, and most replies are written before such a poll would be of use.
//! - A poll is cancelled only while no write is in flight: the cancellation is by descriptor.

use super::{
    Backend,
    conn::{Input, Read, State, Watch, Write},
    driver::Driver,
    ring::{self, Message, Source, Word},
};
use crate::{
    core::{ConnKey, Interest, Piece},
    limits::{COMMENTS_PER_TURN_MIN, SENDS_PER_TURN_MAX},
};

impl<B: Backend> Driver<B> {
    pub(super) fn write_output(&mut self) {
        let mut sends = 0;
        for key in std::mem::take(&mut self.held_back) {
            sends += self.write(key);
        }
        while let Some(key) = self.core.next_output() {
            sends += self.write(key);
        }
        let budget = SENDS_PER_TURN_MAX.saturating_sub(sends).max(COMMENTS_PER_TURN_MIN);
        for _ in 0..budget {
            let Some(key) = self.core.next_comment() else { break };
            self.write(key);
        }
    }

    /// Writes what the core has for a connection, if its write side is free. The number of sends started.
    fn write(&mut self, key: ConnKey) -> usize {
        let Some(conn) = self.table.find(key) else { return 0 };
        match (conn.state, &conn.write) {
            (State::Open, Write::Idle) => {}
            (State::Open, Write::Cancel(_)) => {
                self.held_back.push(key);
                return 0;
            }
            // A write in flight: the core names the connection again when it hears of it. One that ends
            // writes nothing more.
            _ => return 0,
        }
        let mut message = self.messages.take_or(Message::new);
        self.core.fill(key, &mut message.pieces);
        let word = Word::new(Source::Write, key.slot);
        match message.pieces.as_slice() {
            [] => {
                self.messages.put(message);
                return 0;
            }
            [Piece::Static(bytes)] => {
                conn.write = Write::Static(ring::send(conn.fd(), bytes, word));
                message.pieces.clear();
                self.messages.put(message);
            }
            _ => {
                let mut place = self.sends.take_or(Box::default);
                *place = Some(ring::send_message(conn.fd(), message, word));
                conn.write = Write::Message(place);
            }
        }
        1
    }

    /// Arms the read side of every connection that something happened to.
    pub(super) fn park_reads(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            self.arm(key);
        }
        self.touched = touched;
    }

    fn arm(&mut self, key: ConnKey) {
        let Some(conn) = self.table.find(key) else { return };
        if conn.state != State::Open {
            return;
        }
        let interest = match (conn.input, self.core.interest(key)) {
            // Whoever will say nothing more may still die.
            (Input::Ended, Interest::Failure) | (Input::Open, _) => self.core.interest(key),
            (Input::Ended, _) => return,
        };
        let can_wait = !matches!(conn.write, Write::Idle);
        match (interest, &conn.read) {
            (Interest::Park | Interest::Receive, Read::Idle) => Self::park(key, conn, Watch::Readable),
            (Interest::HangUp, Read::Idle) if !can_wait => Self::park(key, conn, Watch::HangUp),
            (Interest::Failure, Read::Idle) if !can_wait => Self::park(key, conn, Watch::Failure),
            (Interest::Park | Interest::Receive, Read::Poll(_, Watch::HangUp | Watch::Failure))
            | (Interest::HangUp, Read::Poll(_, Watch::Failure))
                if !can_wait =>
            {
                let word = Word::new(Source::Write, key.slot);
                conn.write = Write::Cancel(ring::cancel(conn.fd(), word));
            }
            // Armed already, or armed when the write is done, or nothing to be armed.
            _ => {}
        }
    }
}
