//! Listen streams: what answers a `subscriptions/listen` of 2026-07-28, and lasts.
//!
//! Owns what such a stream carries and what waits for its connection. A message is serialised and cut once for all streams
//! ([`tag`](super::tag)); what is a stream's own of a frame is its chunk size and the id of its subscription. Without a log:
//! what a connection that ends has not got is gone, and its client asks anew ("Subscriptions": no replay).
//!
//! Invariants: the acknowledgement is the first message; nothing is written that was not asked for; what waits is bounded,
//! because it is merged by what it says and because a connection that does not take its bytes is cut. No bytes beyond the
//! exchange's entry and the id while nothing waits.

use super::{
    exchange::Phase,
    jsonrpc::{self, RpcError},
    publish::Fate,
    queue::Class,
    seam::*,
    shard::Shard,
    sse,
    table::{ConnSlot, ExchangeSlot},
    tag::{self, Tagged},
};
use crate::{core::conn::Afterwards, limits};
use bytes::Bytes;
use std::{collections::VecDeque, rc::Rc};

/// A connection that has made progress a moment ago is called slow only if more than so many times its bound waits.
const BURST_FACTOR: usize = 4;

/// What a listen stream carries, resources aside, and what waits.
#[derive(Debug)]
pub(super) struct Listen {
    tools: bool,
    prompts: bool,
    resources: bool,
    /// Without capacity while nothing waits.
    waiting: VecDeque<Waiting>,
}

/// A message that waits for room, and what it says.
#[derive(Debug)]
struct Waiting {
    class: Class,
    message: Rc<Tagged>,
}

impl Listen {
    /// Whether it carries messages of that kind; resources are looked up by their URI.
    fn wants(&self, kind: &NotificationKind) -> bool {
        match kind {
            NotificationKind::ToolsListChanged => self.tools,
            NotificationKind::PromptsListChanged => self.prompts,
            NotificationKind::ResourcesListChanged => self.resources,
            NotificationKind::ResourceUpdated(_) => true,
            NotificationKind::Progress | NotificationKind::Log(_) | NotificationKind::Other => false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    fn waiting_bytes(&self, id: &[u8]) -> usize {
        self.waiting.iter().map(|waiting| waiting.message.len(id)).sum()
    }
}

/// Whether messages of that kind ever go to a listen stream.
pub(super) fn is_listened_to(kind: &NotificationKind) -> bool {
    match kind {
        NotificationKind::ToolsListChanged
        | NotificationKind::PromptsListChanged
        | NotificationKind::ResourcesListChanged
        | NotificationKind::ResourceUpdated(_) => true,
        NotificationKind::Progress | NotificationKind::Log(_) | NotificationKind::Other => false,
    }
}

// --- Beginning and ending -----------------------------------------------------------------------

impl Shard {
    /// The backend answers with a subscription: from now on the reply is a stream of what it says.
    pub(super) fn listen_exchange(&mut self, exchange: ExchangeSlot, listening: Listening, now: Now) {
        if let Phase::Listening(_) = self.exchanges[exchange].phase {
            self.counters.tells_stale += 1;
            return;
        }
        if self.draining() {
            return self.stop_exchange(exchange, now);
        }
        if let Some(error) = self.fault_of_listen(exchange, &listening) {
            self.counters.listens_refused += 1;
            self.ask(Ask::Cancel(self.exchange_key(exchange)));
            return self.answer_exchange(exchange, Err(error), now);
        }
        self.counters.listens += 1;
        self.open_exchange_stream(exchange, now);
        let conn = self.exchanges[exchange].conn;
        let id = Bytes::copy_from_slice(&self.exchanges[exchange].id);
        let acknowledgement = acknowledgement(&id, &listening);
        let Listening { tools, prompts, resources, uris } = listening;
        let entry = &mut self.exchanges[exchange];
        // A slice of the request would keep all of it.
        entry.id = id;
        entry.phase = Phase::Listening(Listen { tools, prompts, resources, waiting: VecDeque::new() });
        entry.charge = None;
        let timer = entry.timer.take();
        if let Some(timer) = timer {
            self.wheel.cancel(timer);
        }
        self.attached.exchanges -= 1;
        self.attached.listens += 1;
        for uri in uris {
            let added = self.listen_subscriptions.add(exchange, uri);
            debug_assert_eq!(added, Ok(()), "their number was looked at before");
        }
        self.queue_event(conn, sse::payload(&acknowledgement), now);
    }

    fn fault_of_listen(&self, exchange: ExchangeSlot, listening: &Listening) -> Option<RpcError> {
        if !self.exchanges[exchange].can_listen() {
            return Some(RpcError::internal_error());
        }
        if self.attached.listens >= self.config.sessions_max {
            let message = "the server holds as many subscriptions as it may; try again later";
            return Some(RpcError { message: message.into(), ..RpcError::internal_error() });
        }
        (listening.uris.len() > limits::SUBSCRIPTIONS_PER_SESSION_MAX).then(|| {
            let max = limits::SUBSCRIPTIONS_PER_SESSION_MAX;
            RpcError::invalid_params(format!("a subscription has at most {max} resources"))
        })
    }

    /// The server ends a stream: what waits is written, then the response to the request that began it.
    pub(super) fn close_listen(&mut self, exchange: ExchangeSlot, answer: Result<Bytes, RpcError>, now: Now) {
        while self.write_waiting(exchange, now) {}
        let entry = self.remove_exchange(exchange);
        let mut json = Vec::new();
        match &answer {
            Ok(result) => jsonrpc::write_result(&mut json, &entry.id, &tag::object(result, &entry.id)),
            Err(error) => jsonrpc::write_error(&mut json, Some(&entry.id), error),
        }
        self.queue_event(entry.conn, sse::payload(&json), now);
        self.end_event_stream(entry.conn, Afterwards::AsAgreed, now);
    }

    /// The server stops: its listen streams end first.
    pub(super) fn drain_listen(&mut self, exchange: ExchangeSlot, now: Now) {
        if let Phase::Listening(_) = self.exchanges[exchange].phase {
            self.counters.streams_drained += 1;
            self.end_listen(exchange, now);
        }
    }

    /// The core ends a stream, and the backend hears of it.
    pub(super) fn end_listen(&mut self, exchange: ExchangeSlot, now: Now) {
        self.ask(Ask::Cancel(self.exchange_key(exchange)));
        let result = Bytes::from_static(br#"{"resultType":"complete"}"#);
        self.close_listen(exchange, Ok(result), now);
    }

    /// What is known of a stream beside its entry.
    pub(super) fn forget_listen(&mut self, exchange: ExchangeSlot) {
        self.attached.listens -= 1;
        self.listen_subscriptions.end(exchange);
    }
}

/// The first message: what of the wishes is fulfilled.
fn acknowledgement(id: &[u8], listening: &Listening) -> Bytes {
    let mut honoured = serde_json::Map::new();
    for (name, is_on) in [
        ("toolsListChanged", listening.tools),
        ("promptsListChanged", listening.prompts),
        ("resourcesListChanged", listening.resources),
    ] {
        if is_on {
            honoured.insert(name.into(), true.into());
        }
    }
    if !listening.uris.is_empty() {
        let uris: Vec<&str> = listening.uris.iter().map(|uri| &**uri).collect();
        honoured.insert("resourceSubscriptions".into(), uris.into());
    }
    let params = serde_json::json!({ "notifications": honoured }).to_string();
    let params = tag::object(params.as_bytes(), id);
    jsonrpc::notification("notifications/subscriptions/acknowledged", Some(&params))
}

// --- Messages out -------------------------------------------------------------------------------

impl Shard {
    /// The backend has something for this stream alone. Which resources it is for the backend knows as well.
    pub(super) fn notify_listen(&mut self, exchange: ExchangeSlot, notification: &Notification, now: Now) {
        let message = Tagged::notification(&sse::payload(&notification.json)).map(Rc::new);
        let fate = message.and_then(|message| self.give_listen(exchange, &notification.kind, &message, now));
        if fate.is_none() {
            self.counters.messages_filtered += 1;
        }
    }

    /// The stream in that slot gets a message if it asked for it, at once or when its connection has room. `None` if it is
    /// not for it.
    pub(super) fn give_listen(
        &mut self,
        exchange: ExchangeSlot,
        kind: &NotificationKind,
        message: &Rc<Tagged>,
        now: Now,
    ) -> Option<Fate> {
        let entry = &mut self.exchanges[exchange];
        let Phase::Listening(listen) = &mut entry.phase else { return None };
        if !listen.wants(kind) {
            return None;
        }
        let conn = entry.conn;
        if listen.is_idle() && self.conns[conn].output_bytes() < limits::PULL_BELOW_BYTES {
            self.write_tagged(exchange, message, now);
            return Some(Fate::Written);
        }
        let class = Class::of(kind);
        match listen.waiting.iter_mut().find(|waiting| waiting.class == class) {
            Some(waiting) => {
                waiting.message = Rc::clone(message);
                self.counters.messages_merged += 1;
            }
            None => listen.waiting.push_back(Waiting { class, message: Rc::clone(message) }),
        }
        let waiting = listen.waiting_bytes(&entry.id);
        if self.is_clogged(conn, waiting, now) {
            self.cut_clogged(conn);
            return Some(Fate::Refused);
        }
        Some(Fate::Pending)
    }

    /// Writes what waits, as far as the connection has room.
    pub(super) fn pump_listen(&mut self, exchange: ExchangeSlot, now: Now) {
        let conn = self.exchanges[exchange].conn;
        while self.conns[conn].output_bytes() < limits::PULL_BELOW_BYTES && self.write_waiting(exchange, now)
        {
        }
    }

    /// Writes the first message that waits. False if there is none.
    fn write_waiting(&mut self, exchange: ExchangeSlot, now: Now) -> bool {
        let Phase::Listening(listen) = &mut self.exchanges[exchange].phase else { return false };
        let Some(Waiting { message, .. }) = listen.waiting.pop_front() else { return false };
        if listen.waiting.is_empty() {
            listen.waiting = VecDeque::new();
        }
        self.write_tagged(exchange, &message, now);
        true
    }

    fn write_tagged(&mut self, exchange: ExchangeSlot, message: &Tagged, now: Now) {
        let entry = &self.exchanges[exchange];
        let (conn, length) = (entry.conn, message.len(&entry.id));
        let [head, tag, rest] = message.pieces(&entry.id);
        let (before, after) = sse::event(self.conns[conn].transfer, None, length);
        self.counters.events += 1;
        self.queue_frame(conn, [Piece::Inline(before), head, tag, rest, Piece::Static(after)], now);
    }

    /// Whether too much waits for a connection that does not take it: `waiting` bytes beside its output.
    pub(super) fn is_clogged(&self, conn: ConnSlot, waiting: usize, now: Now) -> bool {
        let entry = &self.conns[conn];
        let bytes = entry.output_bytes() + waiting;
        let is_stalled = now.ms.saturating_sub(entry.progress_ms) >= limits::BURST_MS;
        let bound = self.config.write_buffer_bytes;
        bytes > bound && (is_stalled || bytes > bound.saturating_mul(BURST_FACTOR))
    }

    /// Ends such a connection, and with it what it was for.
    pub(super) fn cut_clogged(&mut self, conn: ConnSlot) {
        self.counters.connections_overflowed += 1;
        self.close_conn(conn, Ending::Cut);
    }
}
