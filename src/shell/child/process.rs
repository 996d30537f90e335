//! One child: its pipes, its end.
//!
//! Owns the child's descriptors, what waits to be written to it, and how far its end has come. Must never block, and
//! never read more in one go than it was allowed.
//!
//! **The end.** Asked to end, a child sees the end of its input; after a moment it gets TERM, and when its grace is over
//! KILL, always its whole group. Once its leader is gone the rest of the group is killed, the leader reaped, what is left
//! in the pipe read, and [`Event::Exited`] is the last word.
//!
//! About 400 bytes and four descriptors while idle.

use super::{
    groups::Leash,
    lines::{Line, Lines},
    outbox::{Full, Outbox},
    spawner::Newborn,
};
use crate::limits::{CHILD_INPUT_BYTES_MAX, CHILD_LOG_LINE_BYTES_MAX, CHILD_TERM_AFTER_MS};
use bytes::Bytes;
use rustix::process::Signal;
use std::{
    io,
    os::fd::OwnedFd,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::unix::pipe::{Receiver, Sender},
};

/// What a child did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It wrote a line to its standard output.
    Said(Line),
    /// It wrote a line to its standard error.
    Logged(Line),
    /// It closed its output or its input and can be of no more use. It still runs, and is to be ended.
    Broken,
    /// It is gone and reaped, and this is its last event: what it came to, or why it never started.
    Exited(String),
}

/// Whether a budget left something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

/// A child that runs, or is ending.
pub(super) struct Child {
    stage: Stage,
    pidfd: AsyncFd<OwnedFd>,
    stdin: Option<Sender>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    outbox: Outbox,
    said: Lines,
    logged: Lines,
}

/// How far it is from its end.
enum Stage {
    Running(Leash),
    /// [`Event::Broken`] was told.
    Broken(Leash),
    /// Its input is closed.
    Ending(Leash, Schedule),
    /// Its leader is reaped; its last words are being read.
    Gone(String),
}

/// When the next signal is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schedule {
    Term { at: Instant, kill_at: Instant },
    Kill { at: Instant },
    Killed,
}

impl Child {
    /// Takes a child over. On a shard's thread only: its pipes are watched there.
    ///
    /// # Errors
    /// If the host cannot watch its pipes; it is killed then.
    pub(super) fn adopt(newborn: Newborn, outbox: Outbox, line_bytes_max: usize) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` always gives the same descriptor, which stays open for as long as it lives; the `AsyncFd`
        // owns it and takes itself off the reactor before it is dropped.
        let pidfd = unsafe { AsyncFd::register_with_interest(newborn.pidfd, Interest::READABLE) }?;
        Ok(Child {
            stage: Stage::Running(newborn.leash),
            pidfd,
            stdin: Some(Sender::from_owned_fd(newborn.stdin)?),
            stdout: Some(Receiver::from_owned_fd(newborn.stdout)?),
            stderr: Some(Receiver::from_owned_fd(newborn.stderr)?),
            outbox,
            said: Lines::new(line_bytes_max),
            logged: Lines::new(CHILD_LOG_LINE_BYTES_MAX),
        })
    }

    /// Queues a message, a whole line, and writes what can be written.
    pub(super) fn send(&mut self, line: Bytes, cx: &mut Context<'_>) -> Result<(), Full> {
        if self.stdin.is_none() {
            return Err(Full);
        }
        self.outbox.push(line, CHILD_INPUT_BYTES_MAX)?;
        self.write(cx);
        Ok(())
    }

    /// Does what can be done without waiting. Reads at most `budget` bytes, which are subtracted from it.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        budget: &mut usize,
        mut tell: impl FnMut(Event),
    ) -> Left {
        // First, since someone who left the group may go on talking for ever.
        self.look_for_exit(cx);
        if let Stage::Gone(status) = &self.stage {
            let status = status.clone();
            self.read_last_words(buffer, &mut tell);
            tell(Event::Exited(status));
            return Left::Nothing;
        }
        self.write(cx);
        let said = read(&mut self.stdout, &mut self.said, buffer, budget, cx, |line| tell(Event::Said(line)));
        let logged =
            read(&mut self.stderr, &mut self.logged, buffer, budget, cx, |line| tell(Event::Logged(line)));
        if self.stdout.is_none() || self.stdin.is_none() {
            self.tell_once_broken(tell);
        }
        if said == Left::Nothing { logged } else { said }
    }

    /// Lets it end within `grace`. Asked again it may get less time, never more.
    pub(super) fn end(&mut self, grace: Duration, now: Instant) {
        self.stdin = None;
        self.outbox = Outbox::default();
        let kill_at = now + grace;
        let term_at = now + Duration::from_millis(CHILD_TERM_AFTER_MS).min(grace / 2);
        let fresh = Schedule::Term { at: term_at, kill_at };
        self.stage = match std::mem::replace(&mut self.stage, Stage::Gone(String::new())) {
            Stage::Running(leash) | Stage::Broken(leash) => Stage::Ending(leash, fresh),
            Stage::Ending(leash, schedule) => Stage::Ending(leash, schedule.no_later_than(kill_at)),
            gone @ Stage::Gone(_) => gone,
        };
        self.heed_time(now);
    }

    /// When [`heed_time`](Self::heed_time) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Ending(_, Schedule::Term { at, .. } | Schedule::Kill { at }) => Some(*at),
            Stage::Ending(_, Schedule::Killed) | Stage::Running(_) | Stage::Broken(_) | Stage::Gone(_) => {
                None
            }
        }
    }

    /// Sends the signals that are due.
    pub(super) fn heed_time(&mut self, now: Instant) {
        let Stage::Ending(leash, schedule) = &mut self.stage else { return };
        if let Schedule::Term { at, kill_at } = *schedule
            && at <= now
        {
            leash.signal(Signal::TERM);
            *schedule = Schedule::Kill { at: kill_at };
        }
        if let Schedule::Kill { at } = *schedule
            && at <= now
        {
            leash.signal(Signal::KILL);
            *schedule = Schedule::Killed;
        }
    }

    // --- Writing ------------------------------------------------------------------------------

    fn write(&mut self, cx: &mut Context<'_>) {
        while let Some(pipe) = &self.stdin
            && !self.outbox.is_empty()
        {
            match pipe.poll_write_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(Err(_)) => self.stdin = None,
                Poll::Ready(Ok(())) => match pipe.try_write_vectored(&self.outbox.slices()) {
                    Ok(count) => self.outbox.advance(count),
                    Err(error) if is_temporary(&error) => {}
                    Err(_) => self.stdin = None,
                },
            }
        }
        if self.stdin.is_none() && !self.outbox.is_empty() {
            self.outbox = Outbox::default();
            // Nobody may look at this child for a while otherwise.
            cx.waker().wake_by_ref();
        }
    }

    // --- The end ------------------------------------------------------------------------------

    fn look_for_exit(&mut self, cx: &mut Context<'_>) {
        if matches!(self.stage, Stage::Gone(_)) || self.pidfd.poll_read_ready(cx).is_pending() {
            return;
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Gone(String::new())) {
            Stage::Running(leash) | Stage::Broken(leash) | Stage::Ending(leash, _) => {
                Stage::Gone(leash.release())
            }
            gone @ Stage::Gone(_) => gone,
        };
    }

    /// What is in the pipes now is all there will be: everyone who could write is killed. Whoever left the group and
    /// holds them is not waited for. A pipe holds 64 KiB unless a child made it larger, at most a megabyte.
    fn read_last_words(&mut self, buffer: &mut [u8], tell: &mut impl FnMut(Event)) {
        read_rest(self.stdout.take(), &mut self.said, buffer, |line| tell(Event::Said(line)));
        read_rest(self.stderr.take(), &mut self.logged, buffer, |line| tell(Event::Logged(line)));
    }

    fn tell_once_broken(&mut self, mut tell: impl FnMut(Event)) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Gone(String::new())) {
            Stage::Running(leash) => {
                tell(Event::Broken);
                Stage::Broken(leash)
            }
            other => other,
        };
    }
}

impl Schedule {
    fn no_later_than(self, limit: Instant) -> Self {
        match self {
            Schedule::Term { at, kill_at } => {
                Schedule::Term { at: at.min(limit), kill_at: kill_at.min(limit) }
            }
            Schedule::Kill { at } => Schedule::Kill { at: at.min(limit) },
            Schedule::Killed => Schedule::Killed,
        }
    }
}

// --- Reading ------------------------------------------------------------------------------------

fn read(
    pipe: &mut Option<Receiver>,
    lines: &mut Lines,
    buffer: &mut [u8],
    budget: &mut usize,
    cx: &mut Context<'_>,
    mut each: impl FnMut(Line),
) -> Left {
    while let Some(open) = pipe {
        if *budget == 0 {
            return Left::Something;
        }
        let result = match open.poll_read_ready(cx) {
            Poll::Pending => return Left::Nothing,
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => {
                let room = buffer.len().min(*budget);
                open.try_read(&mut buffer[..room])
            }
        };
        match result {
            Ok(count) if count > 0 => {
                *budget -= count;
                lines.feed(&buffer[..count], &mut each);
            }
            Err(error) if is_temporary(&error) => {}
            Ok(_) | Err(_) => {
                *pipe = None;
                lines.finish(&mut each);
            }
        }
    }
    Left::Nothing
}

/// Reads past what the reactor knows: the news of the last bytes may still be under way.
fn read_rest(pipe: Option<Receiver>, lines: &mut Lines, buffer: &mut [u8], mut each: impl FnMut(Line)) {
    /// The largest pipe an unprivileged process can have.
    const PIPE_BYTES_MAX: usize = 1024 * 1024;
    let Some(pipe) = pipe else { return };
    let mut left = PIPE_BYTES_MAX;
    while left > 0 {
        match rustix::io::read(&pipe, &mut *buffer) {
            Ok(0) => break,
            Ok(count) => {
                lines.feed(&buffer[..count], &mut each);
                left = left.saturating_sub(count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    lines.finish(each);
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_can_come_earlier_and_never_later() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let schedule = Schedule::Term { at: at(10), kill_at: at(50) };
        assert_eq!(schedule.no_later_than(at(20)), Schedule::Term { at: at(10), kill_at: at(20) });
        assert_eq!(schedule.no_later_than(at(5)), Schedule::Term { at: at(5), kill_at: at(5) });
        assert_eq!(schedule.no_later_than(at(90)), schedule);
        assert_eq!(Schedule::Kill { at: at(50) }.no_later_than(at(0)), Schedule::Kill { at: at(0) });
        assert_eq!(Schedule::Killed.no_later_than(at(0)), Schedule::Killed);
    }
}
