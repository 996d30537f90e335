//! Whoever started this process and watches over it, in the words of systemd: sockets it hands over, and what it is told.
//!
//! Owns the protocol of `LISTEN_FDS`, `NOTIFY_SOCKET` and `WATCHDOG_USEC`, and the thread that feeds the watchdog. Without
//! these variables everything here does nothing. Must never fail a server that runs: a supervisor that does not listen is
//! logged.
//!
//! The watchdog is fed only if every shard has taken a turn since it was last called: a process of which one thread hangs
//! is restarted, all of its sessions with it, rather than left to serve a part of them.

use super::doorbell::Doorbell;
use sd_notify::NotifyState;
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::TcpListener,
    os::fd::{FromRawFd, OwnedFd},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// Times the roll is called in the time after which a supervisor would act.
const CALLS_PER_WATCHDOG: u32 = 4;

/// The listening sockets that were handed to this process, in their order; none if there are none. Call it once, before
/// anything else opens a descriptor.
///
/// # Errors
/// If one of them is no listening TCP socket, or the variables make no sense.
pub(crate) fn handed_sockets() -> io::Result<Vec<TcpListener>> {
    sd_notify::listen_fds()?
        .map(|fd| {
            // SAFETY: the variables name this process, so whoever started it has opened the descriptor for it (setting its
            // flags would have failed otherwise), and this is the one place that takes it.
            let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
            let is_tcp =
                matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6) && socket.r#type()? == Type::STREAM;
            if is_tcp && socket.is_listener()? {
                return Ok(TcpListener::from(socket));
            }
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("descriptor {fd} is no listening TCP socket"),
            ))
        })
        .collect()
}

/// Says that everything listens, and where.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that settings are being read again.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now();
    tell(&[NotifyState::Reloading, now.unwrap_or(NotifyState::Custom(""))]);
}

/// Says that this is over, however it went.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// Says that the end has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::warn!(%error, "the supervisor behind NOTIFY_SOCKET cannot be told");
    }
}

/// The thread that feeds the watchdog; it ends when this is dropped.
pub(crate) struct Watchdog {
    _end: mpsc::Sender<()>,
}

/// Feeds the supervisor's watchdog, if there is one, while all shards answer.
pub(crate) fn watchdog(doorbells: Vec<Arc<Doorbell>>) -> Option<Watchdog> {
    let interval = sd_notify::watchdog_enabled()? / CALLS_PER_WATCHDOG;
    let (end, ended) = mpsc::channel();
    let thread = thread::Builder::new().name("moorline-watchdog".into());
    match thread.spawn(move || watch(&doorbells, interval, &ended, || tell(&[NotifyState::Watchdog]))) {
        Ok(_) => Some(Watchdog { _end: end }),
        Err(error) => {
            tracing::error!(%error, "the watchdog's thread cannot be started: the supervisor will end this process");
            None
        }
    }
}

fn watch(doorbells: &[Arc<Doorbell>], interval: Duration, ended: &mpsc::Receiver<()>, feed: impl Fn()) {
    feed();
    loop {
        for doorbell in doorbells {
            doorbell.call();
        }
        if ended.recv_timeout(interval) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        match doorbells.iter().position(|doorbell| !doorbell.has_answered()) {
            None => feed(),
            Some(shard) => tracing::warn!(shard, "the thread does not answer; the watchdog is not fed"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Instant,
    };

    #[test]
    fn the_watchdog_is_fed_while_all_shards_answer() {
        let doorbells: Vec<_> = (0..2).map(|_| Arc::new(Doorbell::new().unwrap())).collect();
        let (end, ended) = mpsc::channel();
        let fed = Arc::new(AtomicUsize::new(0));
        let (watched, count) = (doorbells.clone(), fed.clone());
        let watcher = thread::spawn(move || {
            watch(&watched, Duration::from_millis(20), &ended, || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        while fed.load(Ordering::Relaxed) < 4 {
            assert!(Instant::now() < deadline);
            doorbells.iter().for_each(|doorbell| doorbell.answer());
            thread::yield_now();
        }
        // From now on one of them is silent; what was answered before may count once more.
        let before = fed.load(Ordering::Relaxed);
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            doorbells[0].answer();
            thread::yield_now();
        }
        assert!(fed.load(Ordering::Relaxed) <= before + 1);
        drop(end);
        watcher.join().unwrap();
    }
}
