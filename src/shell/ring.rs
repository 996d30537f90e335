//! Operations on tokio-uring: our own one-shots, their completions, and the keyed wakers that name them.
//!
//! Owns the shard thread's ready list and nothing else; operations belong to the entries that started
//! them. Everything here runs on the thread of one runtime.
//!
//! Invariants
//! - Whatever the kernel reads or writes is owned by the [`Op`] (or `'static`) until it completed. An
//!   [`Op`] dropped early leaves its data with tokio-uring's driver, which keeps it until the completion.
//! - Nothing is dropped early all the same: that would lose a result. To cancel, [`cancel`] and await.
//! - An [`Op`] is only ever polled with a keyed waker, so a completion always names its entry. A [`Word`]
//!   may be stale: whoever takes one finds the operation absent or pending and ignores it.
//! - A waker runs inside the borrow of tokio-uring's driver: it touches the ready list and tokio only.
//! - Entries reach the kernel when the runtime parks. Work left over is continued after a [`nop`], never
//!   by waking oneself: that would keep the runtime from parking.
//!
//! 16 B per operation without data; 24 B with a box. Pushing and popping a word is O(1).

use crate::{
    core::Piece,
    limits::{JOINED_BYTES_MAX, SLICES_PER_WRITE_MAX},
};
use io_uring::{cqueue, opcode, squeue, types};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    pin::Pin,
    ptr,
    task::{Context, Poll, RawWaker, RawWakerVTable, Waker},
};
use tokio_uring::{InFlightOneshot, OneshotOutputTransform, UnsubmittedOneshot};

// --- Words and the ready list -------------------------------------------------------------------

/// Which operation of which entry completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// What kind of entry and which of its operations.
    pub(crate) source: Source,
    /// Index into the table of that kind.
    pub(crate) slot: u32,
}

/// The operations a shard has in flight, by who waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The read side of a connection: a poll.
    Read,
    /// The write side of a connection: a send, or the cancellation of its poll.
    Write,
    /// Anything of a listener.
    Listener,
    /// Anything of a connection that is leaving for another shard.
    Leaving,
    /// The no-operation that continues budgeted work.
    Turn,
}

impl Word {
    const SOURCE_BITS: u32 = 3;

    /// Names an operation.
    pub(crate) fn new(source: Source, slot: u32) -> Self {
        Word { source, slot }
    }

    fn pack(self) -> usize {
        (self.slot as usize) << Self::SOURCE_BITS | self.source as usize
    }

    fn unpack(data: usize) -> Self {
        let source = match data & ((1 << Self::SOURCE_BITS) - 1) {
            0 => Source::Read,
            1 => Source::Write,
            2 => Source::Listener,
            3 => Source::Leaving,
            _ => Source::Turn,
        };
        let slot = u32::try_from(data >> Self::SOURCE_BITS).expect("packed from a 32-bit slot");
        Word { source, slot }
    }

    fn waker(self) -> Waker {
        // SAFETY:
        // - the vtable upholds the RawWaker contract: the data word is a number, never dereferenced, so
        //   cloning copies it and dropping is nothing;
        // - `wake` is safe on any thread: it touches only thread-locals of the thread it runs on. (On
        //   another thread the word would go unheard, but tokio-uring wakes on the runtime's own.)
        unsafe { Waker::from_raw(raw_waker(self.pack() as *const ())) }
    }
}

const _: () = assert!(usize::BITS >= u32::BITS + Word::SOURCE_BITS, "a word fits into a waker's data");

struct Ready {
    words: RefCell<VecDeque<usize>>,
    task: RefCell<Option<Waker>>,
    task_is_woken: Cell<bool>,
}

thread_local! {
    static READY: Ready = const {
        Ready { words: RefCell::new(VecDeque::new()), task: RefCell::new(None), task_is_woken: Cell::new(false) }
    };
}

/// Starts a turn: later completions wake `task`, once.
pub(crate) fn listen_for_completions(task: &Waker) {
    READY.with(|ready| {
        ready.task_is_woken.set(false);
        let mut known = ready.task.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    });
}

/// The next completion, oldest first.
pub(crate) fn next_completion() -> Option<Word> {
    READY.with(|ready| ready.words.borrow_mut().pop_front()).map(Word::unpack)
}

/// Whether completions wait to be taken.
pub(crate) fn has_completions() -> bool {
    READY.with(|ready| !ready.words.borrow().is_empty())
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(raw_waker, wake, wake, |_| ());

fn raw_waker(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

fn wake(data: *const ()) {
    // A thread that is being torn down has no ready list, and nobody who would look at it.
    let _ = READY.try_with(|ready| {
        ready.words.borrow_mut().push_back(data as usize);
        if !ready.task_is_woken.replace(true)
            && let Some(task) = &*ready.task.borrow()
        {
            task.wake_by_ref();
        }
    });
}

// --- One operation ------------------------------------------------------------------------------

/// An operation in flight, with the data the kernel uses.
pub(crate) struct Op<D: Unpin + 'static>(InFlightOneshot<D, Raw<D>>);

/// What [`Op::poll`] found.
pub(crate) enum Progress<D: Unpin + 'static> {
    /// Still in flight.
    Pending(Op<D>),
    /// Completed: the kernel's result and the data back.
    Done(io::Result<usize>, D),
}

pub(crate) struct Raw<D>(PhantomData<D>);

impl<D> Unpin for Raw<D> {}

impl<D: Unpin + 'static> OneshotOutputTransform for Raw<D> {
    type Output = (io::Result<usize>, D);
    type StoredData = D;

    fn transform_oneshot_output(self, data: D, completion: cqueue::Entry) -> Self::Output {
        let failed = |_| io::Error::from_raw_os_error(-completion.result());
        (usize::try_from(completion.result()).map_err(failed), data)
    }
}

impl<D: Unpin + 'static> Op<D> {
    fn start(data: D, entry: squeue::Entry, word: Word) -> Self {
        let op = Op(UnsubmittedOneshot::new(data, Raw(PhantomData), entry).submit());
        match op.poll(word) {
            Progress::Pending(op) => op,
            Progress::Done(..) => unreachable!("an entry that was just queued has not completed"),
        }
    }

    /// Takes the result if there is one; otherwise `word` is what its completion will be known by.
    pub(crate) fn poll(mut self, word: Word) -> Progress<D> {
        match Pin::new(&mut self.0).poll(&mut Context::from_waker(&word.waker())) {
            Poll::Pending => Progress::Pending(self),
            Poll::Ready((result, data)) => Progress::Done(result, data),
        }
    }
}

// --- The operations -----------------------------------------------------------------------------

/// Readability or the peer's close.
pub(crate) const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
/// The peer's close alone. `POLLERR` and `POLLHUP` are always reported.
pub(crate) const HANG_UP: u32 = libc::POLLRDHUP as u32;

/// The connection's death alone.
pub(crate) const FAILURE: u32 = 0;

/// Does nothing, but makes the runtime park, and so flush and dispatch.
pub(crate) fn nop(word: Word) -> Op<()> {
    Op::start((), opcode::Nop::new().build(), word)
}

/// Waits for any of `events`; the result is the mask that was found.
pub(crate) fn poll(fd: BorrowedFd<'_>, events: u32, word: Word) -> Op<()> {
    Op::start((), opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build(), word)
}

/// Cancels everything in flight on `fd`. Its own result says little: what was cancelled completes with
/// `ECANCELED`, or had completed already.
pub(crate) fn cancel(fd: BorrowedFd<'_>, word: Word) -> Op<()> {
    let which = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
    Op::start((), opcode::AsyncCancel2::new(which).build(), word)
}

/// Takes a connection; hand the result to [`accepted`].
pub(crate) fn accept(listener: BorrowedFd<'_>, word: Word) -> Op<()> {
    let entry = opcode::Accept::new(types::Fd(listener.as_raw_fd()), ptr::null_mut(), ptr::null_mut());
    Op::start((), entry.flags(libc::SOCK_CLOEXEC).build(), word)
}

/// The connection that an [`accept`] took. Call it once per result.
pub(crate) fn accepted(result: io::Result<usize>) -> io::Result<OwnedFd> {
    let fd = i32::try_from(result?).expect("the kernel returns a descriptor");
    // SAFETY: the result of an accept is a new descriptor that nobody else knows of, and each result is
    // consumed by one call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends bytes of the program itself: no allocation, nothing to hold.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &'static [u8], word: Word) -> Op<()> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let entry = opcode::Send::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), len);
    Op::start((), entry.flags(libc::MSG_NOSIGNAL).build(), word)
}

/// Sends all pieces of `message` by one write. A list of slices has to be copied and checked by the kernel, which takes
/// longer than to put a few small pieces into one.
pub(crate) fn send_message(fd: BorrowedFd<'_>, mut message: Box<Message>, word: Word) -> Op<Box<Message>> {
    let fd = types::Fd(fd.as_raw_fd());
    let entry = match message.as_one_slice() {
        Some(bytes) => {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            opcode::Send::new(fd, bytes.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build()
        }
        None => opcode::SendMsg::new(fd, message.prepare()).flags(libc::MSG_NOSIGNAL as u32).build(),
    };
    Op::start(message, entry, word)
}

/// The pieces of one write with the structures that describe them to the kernel. About 3 KiB; boxed and
/// pooled, so that its address is stable and a write allocates nothing.
pub(crate) struct Message {
    header: libc::msghdr,
    slices: [libc::iovec; SLICES_PER_WRITE_MAX],
    /// What is written, in order.
    pub(crate) pieces: Vec<Piece>,
    /// The same in one, if it is little.
    joined: Vec<u8>,
}

impl Message {
    /// Without pieces, with room for [`SLICES_PER_WRITE_MAX`].
    pub(crate) fn new() -> Box<Self> {
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Box::new(Message {
            // SAFETY: a msghdr of zeros is valid: null pointers with zero lengths.
            header: unsafe { std::mem::zeroed() },
            slices: [empty; SLICES_PER_WRITE_MAX],
            pieces: Vec::with_capacity(SLICES_PER_WRITE_MAX),
            joined: Vec::with_capacity(JOINED_BYTES_MAX),
        })
    }

    /// All that is written, if it is one piece, or little enough to be copied into one. The pointers stay valid while the
    /// message is untouched.
    fn as_one_slice(&mut self) -> Option<&[u8]> {
        if let [piece] = self.pieces.as_slice() {
            return Some(piece.as_slice());
        }
        if self.pieces.iter().map(Piece::len).sum::<usize>() > JOINED_BYTES_MAX {
            return None;
        }
        self.joined.clear();
        self.pieces.iter().for_each(|piece| self.joined.extend_from_slice(piece.as_slice()));
        Some(&self.joined)
    }

    /// Points the slices at the pieces. The pointers stay valid while the pieces are untouched: pieces
    /// in place live in the vector's allocation, all others in their own.
    fn prepare(&mut self) -> &libc::msghdr {
        assert!(self.pieces.len() <= SLICES_PER_WRITE_MAX, "one write has a bounded number of slices");
        for (slice, piece) in self.slices.iter_mut().zip(&self.pieces) {
            let bytes = piece.as_slice();
            *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
        &self.header
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use crate::{core::Inline, limits::RING_ENTRIES};
    use bytes::Bytes;
    use std::{
        future::poll_fn,
        io::{Read, Write},
        os::{fd::AsFd, unix::net::UnixStream},
        rc::Rc,
        time::{Duration, Instant},
    };

    const WORD: Word = Word { source: Source::Write, slot: 7 };

    fn on_a_ring<T>(completions: u32, future: impl Future<Output = T>) -> T {
        let mut ring = tokio_uring::uring_builder();
        ring.setup_single_issuer().setup_coop_taskrun().setup_cqsize(completions);
        let entries = RING_ENTRIES.min(completions / 2);
        let runtime =
            tokio_uring::Runtime::new(tokio_uring::builder().entries(entries).uring_builder(&ring)).unwrap();
        runtime.block_on(future)
    }

    /// Drives one operation as a shard does: by the ready list, never by its own waker.
    async fn done<D: Unpin + 'static>(op: Op<D>, word: Word) -> (io::Result<usize>, D) {
        let mut op = Some(op);
        poll_fn(move |cx| {
            listen_for_completions(cx.waker());
            while let Some(completed) = next_completion() {
                if completed == word {
                    match op.take().unwrap().poll(word) {
                        Progress::Done(result, data) => return Poll::Ready((result, data)),
                        Progress::Pending(pending) => op = Some(pending),
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    #[test]
    fn a_word_survives_its_packing() {
        for source in [Source::Read, Source::Write, Source::Listener, Source::Leaving, Source::Turn] {
            for slot in [0, 1, u32::MAX] {
                let word = Word::new(source, slot);
                assert_eq!(Word::unpack(word.pack()), word);
            }
        }
    }

    #[test]
    fn all_kinds_of_pieces_are_written_in_order() {
        // Small enough to be joined, by a byte, and too large, by a byte.
        let rest = b"1c\r\nid: 1\ndata: \n\n\r\n".len();
        for padding in [1, JOINED_BYTES_MAX - rest, JOINED_BYTES_MAX - rest + 1] {
            on_a_ring(64, async {
                let (server, mut client) = UnixStream::pair().unwrap();
                let mut message = Message::new();
                let mut inline = Inline::new();
                inline.push(b"id: 1\n");
                let payload = format!("data: {}\n\n", "x".repeat(padding));
                let expected = format!("1c\r\nid: 1\n{payload}\r\n: keepalive\n\n");
                message.pieces.push(Piece::Static(b"1c\r\n"));
                message.pieces.push(Piece::Inline(inline));
                message.pieces.push(Piece::Shared(Rc::new(Bytes::from(payload))));
                message.pieces.push(Piece::Owned(Bytes::from_static(b"\r\n")));
                let (result, message) = done(send_message(server.as_fd(), message, WORD), WORD).await;
                assert_eq!(result.unwrap(), message.pieces.iter().map(Piece::len).sum::<usize>());
                assert_eq!(done(send(server.as_fd(), b": keepalive\n\n", WORD), WORD).await.0.unwrap(), 13);
                drop(server);
                let mut written = String::new();
                client.read_to_string(&mut written).unwrap();
                assert_eq!(written, expected);
            });
        }
    }

    /// A pooled message says nothing of what it said before.
    #[test]
    fn a_message_that_is_used_again_is_new() {
        let mut message = Message::new();
        for text in ["longer at first", "short"] {
            message.pieces.clear();
            message.pieces.push(Piece::Static(b": "));
            message.pieces.push(Piece::Owned(Bytes::copy_from_slice(text.as_bytes())));
            assert_eq!(message.as_one_slice(), Some(format!(": {text}").as_bytes()));
        }
    }

    #[test]
    fn a_shutdown_completes_what_is_in_flight() {
        on_a_ring(64, async {
            for events in [READABLE, HANG_UP, FAILURE] {
                let (server, _client) = UnixStream::pair().unwrap();
                let parked = poll(server.as_fd(), events, WORD);
                server.shutdown(std::net::Shutdown::Both).unwrap();
                let events = done(parked, WORD).await.0.unwrap();
                assert_ne!(events & usize::try_from(libc::POLLHUP).unwrap(), 0);
            }
        });
    }

    #[test]
    fn a_cancelled_poll_completes() {
        on_a_ring(64, async {
            let (server, _client) = UnixStream::pair().unwrap();
            let other = Word::new(Source::Read, 7);
            let parked = poll(server.as_fd(), HANG_UP, other);
            let cancelled = cancel(server.as_fd(), WORD);
            let error = done(parked, other).await.0.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            // Its own word was taken while waiting for the other; a stale word does no harm.
            match cancelled.poll(WORD) {
                Progress::Done(result, ()) => assert_eq!(result.unwrap(), 1),
                Progress::Pending(cancelled) => assert_eq!(done(cancelled, WORD).await.0.unwrap(), 1),
            }
        });
    }

    #[test]
    fn a_write_to_a_closed_peer_fails_without_a_signal() {
        on_a_ring(64, async {
            let (server, client) = UnixStream::pair().unwrap();
            drop(client);
            let error = done(send(server.as_fd(), b"x", WORD), WORD).await.0.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        });
    }

    /// A full socket takes a part of a large message, and no more until its peer reads.
    #[test]
    fn a_short_write_reports_what_was_taken() {
        on_a_ring(64, async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let mut message = Message::new();
            message.pieces.push(Piece::Owned(Bytes::from(vec![b'x'; 32 << 20])));
            let (result, message) = done(send_message(server.as_fd(), message, WORD), WORD).await;
            let taken = result.unwrap();
            assert!(taken > 0 && taken < message.pieces[0].len());
            drop(server);
            let mut read = Vec::new();
            client.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), taken);
        });
    }

    #[test]
    fn more_completions_than_the_queue_holds_all_arrive() {
        const COUNT: u32 = 1000;
        on_a_ring(64, async {
            let pairs: Vec<_> = (0..COUNT).map(|_| UnixStream::pair().unwrap()).collect();
            let mut parked: Vec<_> = (0..)
                .zip(&pairs)
                .map(|(slot, (server, _))| {
                    Some(poll(server.as_fd(), READABLE, Word::new(Source::Read, slot)))
                })
                .collect();
            // Submit them all before all peers go at once.
            done(nop(WORD), WORD).await.0.unwrap();
            let servers: Vec<_> =
                pairs.into_iter().map(|(server, client)| (drop(client), server).1).collect();
            let mut left = COUNT;
            poll_fn(|cx| {
                listen_for_completions(cx.waker());
                while let Some(word) = next_completion() {
                    let slot = word.slot as usize;
                    if let Some(Progress::Done(result, ())) = parked[slot].take().map(|op| op.poll(word)) {
                        result.unwrap();
                        left -= 1;
                    }
                }
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!(servers.len(), COUNT as usize);
        });
    }

    /// While a task has work in every turn and ends each with a no-operation, others' operations go on.
    #[test]
    fn continuous_work_delays_an_operation_by_few_turns() {
        on_a_ring(64, async {
            let (server, mut client) = UnixStream::pair().unwrap();
            let mut found = None;
            let mut waiting = Some(poll(server.as_fd(), READABLE, WORD));
            let turn = Word::new(Source::Turn, 0);
            let mut between = None;
            let (mut turns, mut wrote_at) = (0, None);
            let deadline = Instant::now() + Duration::from_secs(10);
            poll_fn(|cx| {
                listen_for_completions(cx.waker());
                turns += 1;
                assert!(Instant::now() < deadline, "the operation starved");
                while let Some(word) = next_completion() {
                    match word.source {
                        Source::Turn => between = None,
                        _ => match waiting.take().unwrap().poll(WORD) {
                            Progress::Done(result, ()) => found = Some((result.unwrap(), turns)),
                            Progress::Pending(op) => waiting = Some(op),
                        },
                    }
                }
                if turns == 100 {
                    client.write_all(b"ping").unwrap();
                    wrote_at = Some(turns);
                }
                if found.is_some() {
                    return Poll::Ready(());
                }
                between.get_or_insert_with(|| nop(turn));
                Poll::Pending
            })
            .await;
            let (events, found_at) = found.unwrap();
            assert_eq!(events & usize::from(libc::POLLIN.unsigned_abs()), 1);
            assert!(found_at - wrote_at.unwrap() <= 4, "{} turns", found_at - wrote_at.unwrap());
        });
    }
}
