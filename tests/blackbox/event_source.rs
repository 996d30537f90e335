//! A client that behaves like an EventSource: whatever ends its stream, it comes back after its retry interval,
//! with the last id it saw; any status but 200 stops it for good.

use super::{
    events::{EventStream, Next},
    session::Session,
    wire::{Connection, Leave},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Shorter than what the server asks for: the impatient client is the harder one.
const RETRY: Duration = Duration::from_millis(500);

/// How often a waiting client looks whether it should go.
const LOOK: Duration = Duration::from_millis(20);

/// A running client. Ends on drop.
pub(crate) struct EventSource {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    gets: AtomicUsize,
    open: AtomicBool,
    messages: AtomicUsize,
    stop: AtomicBool,
}

impl EventSource {
    /// Starts a client on `session` that has `cursor` from before, if any.
    pub(crate) fn start(session: &Session, cursor: Option<&str>) -> EventSource {
        let seen = Arc::new(Seen::default());
        let (session, cursor, shared) = (session.clone(), cursor.map(str::to_owned), Arc::clone(&seen));
        let thread = std::thread::spawn(move || run(&session, cursor, &shared));
        EventSource { seen, thread: Some(thread) }
    }

    /// GETs sent so far.
    pub(crate) fn gets(&self) -> usize {
        self.seen.gets.load(Ordering::SeqCst)
    }

    /// Whether it has a stream. One that was refused never has one again.
    pub(crate) fn is_open(&self) -> bool {
        self.seen.open.load(Ordering::SeqCst)
    }

    /// Messages received so far.
    pub(crate) fn messages(&self) -> usize {
        self.seen.messages.load(Ordering::SeqCst)
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(!matches!(ended, Some(Err(_))), "a client met something it does not understand");
        }
    }
}

fn run(session: &Session, mut cursor: Option<String>, seen: &Seen) {
    while !seen.stop.load(Ordering::SeqCst) {
        seen.gets.fetch_add(1, Ordering::SeqCst);
        let connection = Connection::open(session.address());
        let (connection, head) = session.try_listen_on(connection, cursor.as_deref());
        if head.status != 200 {
            return;
        }
        let mut stream = EventStream::new(connection, &head);
        seen.open.store(true, Ordering::SeqCst);
        read_to_end(&mut stream, seen);
        seen.open.store(false, Ordering::SeqCst);
        cursor = stream.last_id.take().or(cursor);
        stream.leave(Leave::Fin);
        pause(RETRY, seen);
    }
}

fn read_to_end(stream: &mut EventStream, seen: &Seen) {
    while !seen.stop.load(Ordering::SeqCst) {
        match stream.next_within(LOOK) {
            Next::Event(event) => {
                seen.messages.fetch_add(usize::from(event.is_message()), Ordering::SeqCst);
            }
            Next::Silence => {}
            Next::Ended | Next::Cut => return,
        }
    }
}

fn pause(time: Duration, seen: &Seen) {
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end && !seen.stop.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK);
    }
}
