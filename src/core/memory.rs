//! What the process holds for its clients, and when newcomers are refused for it (`--memory-limit`).
//!
//! Counted are entries of connections, sessions and streams; bodies, as far as they have come, until their calls have ended;
//! large replies until they are written; and what is kept of replies for replay. Not counted: messages many sessions share,
//! and the backend's own memory.
//! Each shard counts for itself and adds to the process's sum in steps of [`MEMORY_STEP_BYTES`], so that a request on a
//! busy server touches nothing that shards share, unless it moves; the sum may lag by a step per shard.
//!
//! Over the limit nothing that was begun is hurt: new sessions, new GET streams and large bodies get 503, everything else
//! is served. A large body has to find room for all that it announces before it is read, but takes it only as it comes: a
//! mere announcement costs nobody a place. Many who announce at once get in together, and those for whom no room is left
//! are refused on the way. What one client's large bodies hold together is bounded, too (`--max-body-memory-per-client`), so
//! that whoever sends much and never ends takes its own share and nobody else's. A body has one charge, which goes where the
//! body goes: from the request to its call, and to another shard. So it is counted once, always, and asked about only
//! where it is read.
//!
//! Large replies that wait to be written are part of the same share: whoever asks for much and does not read it is
//! the same client as one who sends much and never ends. A reply of any size is let out as long as the share is not used up,
//! so one that is larger than a share arrives, too; beyond it a large answer fails its call.
//!
//! What is kept for replay, and of lost replies, is counted by client, too. Over a share of it the client's sessions give up what
//! arrived, and what was written for connections that are gone; large replies that were not taken have a bound of their own,
//! beyond which a large answer fails its call.

use super::{
    census::Census,
    http::{Framing, Refusal},
    ids::StreamKind,
    jsonrpc::RpcError,
    ledger::{Account, Item},
    quotas::kib_of,
    shard::Shard,
    table::{ConnSlot, SessionSlot, StreamSlot},
};
use crate::limits::{ENTRY_BYTES_EXPECTED, MEMORY_STEP_BYTES, RETRY_AFTER_S, SMALL_BODY_BYTES};
use bytes::Bytes;
use std::{cell::Cell, rc::Rc, sync::Arc};

/// What one shard holds beside its tables.
#[derive(Debug)]
pub(super) struct Meter {
    bytes: Cell<usize>,
    published: Cell<usize>,
    census: Arc<Census>,
}

impl Meter {
    pub(super) fn new(census: Arc<Census>) -> Rc<Self> {
        Rc::new(Meter { bytes: Cell::new(0), published: Cell::new(0), census })
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.publish();
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.publish();
    }

    /// What is held at present.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    fn publish(&self) {
        let (bytes, published) = (self.bytes.get(), self.published.get());
        if bytes.abs_diff(published) >= MEMORY_STEP_BYTES {
            self.census.change_kept(published, bytes);
            self.published.set(bytes);
        }
    }

    /// What all shards hold, this one to the byte.
    fn total(&self) -> usize {
        let others = self.census.kept().saturating_sub(self.published.get());
        let entries = self.census.connections().max(self.census.sessions()) * ENTRY_BYTES_EXPECTED;
        others + self.bytes.get() + entries
    }
}

/// What a shard keeps for replay for one client. Its account has that in steps of [`MEMORY_STEP_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: usize,
}

impl Kept {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn counted_kib(&self) -> u32 {
        kib_of(self.bytes - self.bytes % MEMORY_STEP_BYTES)
    }
}

/// Bytes of a body, counted until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    /// Bodies have at most [`KEPT_BYTES_MAX`](crate::limits::KEPT_BYTES_MAX).
    bytes: u32,
    /// The account that has them too, once they are many.
    account: Option<Account>,
    meter: Rc<Meter>,
}

/// A charge between two shards: neither counts it, but the process and its client's account have it until this is dropped.
#[derive(Debug)]
pub(super) struct TravellingCharge {
    bytes: u32,
    account: Option<Account>,
    census: Arc<Census>,
}

impl Charge {
    /// For another shard to take over.
    pub(super) fn depart(mut self) -> TravellingCharge {
        let (bytes, account) = (std::mem::take(&mut self.bytes), self.account.take());
        let census = Arc::clone(&self.meter.census);
        census.change_kept(0, bytes as usize);
        self.meter.remove(bytes as usize);
        TravellingCharge { bytes, account, census }
    }

    fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// What the account has of them.
    pub(super) fn kib(&self) -> u32 {
        self.account.map_or(0, |_| kib_of(self.bytes()))
    }

    /// Holds at least that many from now on.
    fn raise_to(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(self.bytes);
        self.meter.add((bytes - self.bytes) as usize);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.remove(self.bytes());
        leave_bodies(&self.meter.census, self.account, self.bytes());
    }
}

/// A large reply that waits to be read: counted until this is dropped.
#[derive(Debug)]
pub(super) struct Unread {
    bytes: usize,
    account: Option<Account>,
    meter: Rc<Meter>,
}

impl Unread {
    pub(super) fn new(bytes: usize, account: Option<Account>, meter: &Rc<Meter>) -> Self {
        meter.add(bytes);
        Unread { bytes, account, meter: Rc::clone(meter) }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.meter.remove(self.bytes);
        leave_bodies(&self.meter.census, self.account, self.bytes);
    }
}

/// Large replies that are kept for whoever did not take them, in their client's account until this is dropped.
#[derive(Debug)]
pub(super) struct Owed {
    account: Account,
    kib: u32,
    census: Arc<Census>,
}

impl Owed {
    pub(super) fn kib(&self) -> u32 {
        self.kib
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.census.ledger().leave_many(self.account, Item::OwedKib, self.kib);
    }
}

impl Drop for TravellingCharge {
    fn drop(&mut self) {
        self.census.change_kept(self.bytes as usize, 0);
        leave_bodies(&self.census, self.account, self.bytes as usize);
    }
}

fn leave_bodies(census: &Census, account: Option<Account>, bytes: usize) {
    if let Some(account) = account {
        census.ledger().leave_many(account, Item::BodyKib, kib_of(bytes));
    }
}

impl Shard {
    /// Whether that many bytes more are too many.
    fn is_short_of_memory(&self, bytes: usize) -> bool {
        self.config.memory_bytes_max != usize::MAX
            && self.meter.total().saturating_add(bytes) > self.config.memory_bytes_max
    }

    /// Refuses whoever wants to begin something while memory is short.
    ///
    /// # Errors
    /// 503.
    pub(super) fn check_memory(&mut self) -> Result<(), Refusal> {
        self.check_memory_for(0)
    }

    fn check_memory_for(&mut self, bytes: usize) -> Result<(), Refusal> {
        if !self.is_short_of_memory(bytes) {
            return Ok(());
        }
        self.counters.refused_for_memory += 1;
        Err(Refusal::unavailable("the server is short of memory; try again later", RETRY_AFTER_S))
    }

    /// Begins to count a body. Nothing of it is taken to be here yet.
    ///
    /// # Errors
    /// 503 for a large one that memory has no room for as things are.
    pub(super) fn charge_body(&mut self, framing: Framing) -> Result<Charge, Refusal> {
        let bytes = match framing {
            Framing::Length(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            Framing::None | Framing::Chunked => 0,
        };
        if bytes > SMALL_BODY_BYTES {
            self.check_memory_for(bytes)?;
        }
        Ok(self.charge())
    }

    /// A body that comes on this connection has come to this many bytes.
    ///
    /// # Errors
    /// Once it is large, 503 while memory is short, and 429 if its client's bodies together are too much.
    pub(super) fn raise_charge(
        &mut self,
        conn: ConnSlot,
        charge: &mut Charge,
        bytes: usize,
    ) -> Result<(), Refusal> {
        if bytes > charge.bytes() && bytes > SMALL_BODY_BYTES {
            self.check_memory_for(bytes - charge.bytes())?;
            match kib_of(bytes) - charge.kib() {
                0 => {}
                kib => charge.account = self.enter_body(conn, charge.account, kib)?,
            }
        }
        charge.raise_to(bytes);
        Ok(())
    }

    /// Goes on with what another shard has counted: it was let in there, so nobody is asked again.
    pub(super) fn receive_charge(&self, mut travelling: TravellingCharge) -> Charge {
        let mut charge = self.charge();
        charge.raise_to(travelling.bytes as usize);
        charge.account = travelling.account.take();
        charge
    }

    /// The answer, unless it is large and the share of whoever is to read it is used up. `own_kib` of the share are of the body
    /// that is answered.
    ///
    /// # Errors
    /// Those of the answer; or that its client leaves too much unread.
    pub(super) fn admit_answer(
        &mut self,
        reader: ConnSlot,
        own_kib: u32,
        answer: Result<Bytes, RpcError>,
    ) -> Result<Bytes, RpcError> {
        if size_of_answer(&answer) > SMALL_BODY_BYTES {
            let (account, locality) = self.reader(reader);
            self.check_unread(account, locality, own_kib)?;
        }
        answer
    }

    /// Counts a reply of that size that was queued on the connection just now, until it is written. What is kept of it for
    /// replay counts by itself: it may be evicted there before it is written here.
    pub(super) fn count_unread(&mut self, conn: ConnSlot, bytes: usize) {
        if let Some(unread) = self.unread(conn, bytes) {
            self.conns[conn].hold_until_written(unread);
        }
    }

    /// The count of a reply of that size that whoever is at this connection is to read, if it is large.
    pub(super) fn unread(&self, conn: ConnSlot, bytes: usize) -> Option<Unread> {
        if bytes <= SMALL_BODY_BYTES {
            return None;
        }
        let account = self.enter_unread(Some(conn), None, kib_of(bytes));
        Some(Unread::new(bytes, account, &self.meter))
    }

    /// Counts large replies of that size together that the session's client is owed.
    pub(super) fn owed(&self, session: SessionSlot, bytes: usize) -> Option<Box<Owed>> {
        if bytes == 0 {
            return None;
        }
        let (account, kib) = (self.sessions[session].account, kib_of(bytes));
        let entered = self.census.ledger().enter_many_in(account, Item::OwedKib, kib, u32::MAX);
        entered.expect("u32::MAX KiB are more than there is");
        Some(Box::new(Owed { account, kib, census: Arc::clone(&self.census) }))
    }

    /// Whether the session's client is owed as much as its share.
    pub(super) fn is_owed_enough(&self, session: SessionSlot) -> bool {
        let (owed_kib, max) = self.of_share(session, Item::OwedKib);
        owed_kib >= max
    }

    /// What the stream's client has not got by now it is owed.
    pub(super) fn count_owed(&mut self, stream: StreamSlot) {
        let entry = &self.streams[stream];
        if entry.kind == StreamKind::Request
            && let Some(log) = &entry.log
        {
            let owed = self.owed(entry.session, log.owed_bytes());
            if let Some(log) = &mut self.streams[stream].log {
                log.owed = owed;
            }
        }
    }

    /// Less may be owed than was.
    pub(super) fn recount_owed(&mut self, stream: StreamSlot) {
        if self.streams[stream].log.as_ref().is_some_and(|log| log.owed.is_some()) {
            self.count_owed(stream);
        }
    }

    // --- Replay --------------------------------------------------------------------------------

    /// So many bytes more are kept for the session's client.
    pub(super) fn keep(&mut self, session: SessionSlot, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.meter.add(bytes);
        let account = self.sessions[session].account;
        let kept = self.kept.entry(account).or_default();
        let before = kept.counted_kib();
        kept.bytes += bytes;
        match kept.counted_kib() - before {
            0 => {}
            kib => self
                .census
                .ledger()
                .enter_many_in(account, Item::KeptKib, kib, u32::MAX)
                .expect("u32::MAX KiB are more than there is"),
        }
    }

    /// So many less.
    pub(super) fn let_go(&mut self, session: SessionSlot, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.meter.remove(bytes);
        let account = self.sessions[session].account;
        let kept = self.kept.get_mut(&account).expect("what is kept was counted");
        let before = kept.counted_kib();
        kept.bytes -= bytes;
        match before - kept.counted_kib() {
            0 => {}
            kib => self.census.ledger().leave_many(account, Item::KeptKib, kib),
        }
        if kept.bytes == 0 {
            self.kept.remove(&account);
        }
    }

    /// Whether more is kept for the session's client than its share.
    pub(super) fn keeps_too_much(&self, session: SessionSlot) -> bool {
        let kept = self.kept.get(&self.sessions[session].account);
        if kept.is_none_or(|kept| kept.counted_kib() == 0) {
            return false;
        }
        let (kept_kib, max) = self.of_share(session, Item::KeptKib);
        kept_kib > max
    }

    /// Whether what has arrived is not kept for the session's client any longer.
    pub(super) fn lets_go_what_arrived(&self, session: SessionSlot) -> bool {
        self.keeps_too_much(session) || self.is_short_of_memory(0)
    }

    // --- Batches -------------------------------------------------------------------------------

    /// The charge of a batch with one response more, which waits for the others.
    pub(super) fn enlarged(&self, conn: Option<ConnSlot>, mut charge: Charge, bytes: usize) -> Charge {
        let bytes = charge.bytes() + bytes;
        if bytes > SMALL_BODY_BYTES {
            charge.account = self.enter_unread(conn, charge.account, kib_of(bytes) - charge.kib());
        }
        charge.raise_to(bytes);
        charge
    }

    /// Counts nothing yet.
    fn charge(&self) -> Charge {
        Charge { bytes: 0, account: None, meter: Rc::clone(&self.meter) }
    }
}

/// Those bytes, if they are more than are counted for nobody.
pub(super) fn large(bytes: usize) -> usize {
    if bytes > SMALL_BODY_BYTES { bytes } else { 0 }
}

/// What an answer takes, its framing aside.
pub(super) fn size_of_answer(answer: &Result<Bytes, RpcError>) -> usize {
    match answer {
        Ok(result) => result.len(),
        Err(error) => error.message.len() + error.data.as_ref().map_or(0, |data| data.len()),
    }
}
