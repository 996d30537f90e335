//! One connection: the server's socket, the client's, and the network between them.
//!
//! Three counts say where the server's bytes are: `sent` (taken by its kernel), `arrived` (at the peer), `acked`
//! (known to have arrived). `SIOCOUTQ` is `sent - acked`. The reader sees every byte taken, so that what the
//! server did is judged even when no client ever sees it; the client sees what arrived.

use super::wire::{Item, Reader};
use moorline::core::{ConnKey, Ending};
use std::collections::VecDeque;

/// Where the connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Shard(usize),
    /// On its way between shards.
    Mail,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Fine,
    /// The client reads nothing: its buffer is full.
    Stalled,
    /// Half-open: nothing passes any more, and nobody says so.
    Black,
}

/// What the client has done with its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Open,
    /// Sends no more, still reads.
    WriteClosed,
    /// Closed: neither sends nor reads.
    Closed,
    /// Reset: the server's kernel knows.
    Reset,
}

/// What a client asked for, in order of its requests on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Initialize,
    /// A POST of nothing that is answered.
    Notice,
    /// The calls of one POST, by their numbers.
    Calls(Vec<u64>),
    Ping(u64),
    Plain,
    /// A GET with this cursor.
    Cursor(String),
    Delete,
    /// A request without a session, by its number.
    Stateless(usize),
    /// Something that has to be refused with one of these.
    Refusable(&'static [u16]),
}

#[derive(Clone, Debug)]
pub struct Exchange {
    pub asked: Asked,
    /// The session model it belongs to.
    pub session: Option<usize>,
    /// The id that the head of the answer to an `initialize` gave, until there is a model of its session.
    pub session_id: Option<String>,
    /// When the client sent it.
    pub step: u64,
    pub sent_ms: u64,
    /// What was written in answer.
    pub status: Option<u16>,
    /// When its head was written: it was acted on before.
    pub answered_step: Option<u64>,
    pub is_stream: bool,
    pub is_over: bool,
    /// The last event id written in it, and the last the client saw.
    pub last_written: Option<String>,
    /// Where the first event with an id ends.
    pub first_id_end: Option<u64>,
    pub last_seen: Option<String>,
    /// Whether the client saw its end.
    pub seen_over: bool,
    /// Responses the client saw in it.
    pub answers_seen: usize,
    /// The order of the last message that was written here for the first time.
    pub last_fresh: Option<u64>,
    pub last_fresh_m: u64,
}

impl Exchange {
    pub fn new(asked: Asked, session: Option<usize>, step: u64, sent_ms: u64) -> Self {
        Exchange {
            asked,
            session,
            session_id: None,
            step,
            sent_ms,
            status: None,
            answered_step: None,
            is_stream: false,
            is_over: false,
            last_written: None,
            first_id_end: None,
            last_seen: None,
            seen_over: false,
            answers_seen: 0,
            last_fresh: None,
            last_fresh_m: 0,
        }
    }
}

#[derive(Debug)]
pub struct Socket {
    pub agent: usize,
    pub place: Place,
    pub key: ConnKey,
    /// From the client, not yet given to a shard.
    pub inbox: VecDeque<u8>,
    pub in_flight: Option<Vec<u8>>,
    /// Up to which offset bytes had been given to the kernel by which step.
    pub lent: Vec<(u64, u64)>,
    pub sent: u64,
    pub arrived: u64,
    pub acked: u64,
    /// What the server's kernel holds at most of what was not acknowledged.
    pub window: usize,
    pub network: Network,
    pub peer: Peer,
    /// When the shard was told that its client sends nothing more.
    pub half_closed_step: Option<u64>,
    pub ending: Option<Ending>,
    /// The last acknowledgement, or the first byte after everything was acknowledged.
    pub progress_ms: u64,
    /// Last write of anything to this connection, and whether a comment may come at any time until the next one.
    pub written_ms: u64,
    pub reader: Reader,
    /// Items written whose bytes have not all arrived.
    pub on_the_way: VecDeque<Item>,
    pub exchanges: Vec<Exchange>,
    /// Evidence given to the core: step and the offset up to which everything had arrived.
    pub reports: Vec<(u64, u64)>,
    /// The client saw the server's end.
    pub eof_seen: bool,
    pub refused: bool,
    /// The shard was told that it is dead.
    pub is_lost: bool,
}

impl Socket {
    pub fn new(agent: usize, place: Place, key: ConnKey, now_ms: u64) -> Self {
        Socket {
            agent,
            place,
            key,
            inbox: VecDeque::new(),
            in_flight: None,
            lent: Vec::new(),
            sent: 0,
            arrived: 0,
            acked: 0,
            window: 64 * 1024,
            network: Network::Fine,
            peer: Peer::Open,
            half_closed_step: None,
            ending: None,
            progress_ms: now_ms,
            written_ms: now_ms,
            reader: Reader::new(),
            on_the_way: VecDeque::new(),
            exchanges: Vec::new(),
            reports: Vec::new(),
            eof_seen: false,
            refused: false,
            is_lost: false,
        }
    }

    pub fn unacked(&self) -> usize {
        (self.sent - self.acked) as usize
    }

    /// The kernel is given everything up to `until`. What it was given before and did not take may have been taken back.
    pub fn lend(&mut self, until: u64, step: u64) {
        for (end, _) in self.lent.iter_mut().rev().take_while(|(end, _)| *end > until) {
            *end = until;
        }
        self.lent.push((until, step));
    }

    /// When the byte at this offset was first given to the kernel: from then on it could not be taken back.
    pub fn lent_step(&self, offset: u64) -> u64 {
        self.lent.iter().find(|(until, _)| *until > offset).expect("what is written was lent").1
    }

    pub fn room(&self) -> usize {
        self.window.saturating_sub(self.unacked())
    }

    pub fn is_closed(&self) -> bool {
        self.place == Place::Closed
    }

    /// Whether the client still listens to it.
    pub fn client_reads(&self) -> bool {
        matches!(self.peer, Peer::Open | Peer::WriteClosed) && !self.eof_seen
    }

    /// Whether the client may send another request.
    pub fn client_writes(&self) -> bool {
        self.peer == Peer::Open && !self.eof_seen && self.ending.is_none() && !self.refused
    }

    /// Whether every request was answered as far as the client knows.
    pub fn is_idle_for_client(&self) -> bool {
        self.client_writes() && self.exchanges.iter().all(|exchange| exchange.seen_over)
    }
}
