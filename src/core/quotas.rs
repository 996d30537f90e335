//! What one client may have, and the refusal of more.
//!
//! Owns no state: accounts are in the [`ledger`](super::ledger), the bounds in the configuration. A client that is over
//! its share is refused with 429 and `Retry-After`; where the whole process has no room left it is 503. Neither comes in
//! the place of a session's 404; of a POST in a session that is open only if its body is large.

use super::{
    http::{Refusal, Status},
    jsonrpc::RpcError,
    ledger::{Account, Act, Client, Full, Item, Ledger, Pace},
    refusals::SERVER_ERROR,
    seam::Now,
    session::{Holder, Session},
    shard::Shard,
    table::{ConnSlot, PrincipalSlot, SessionSlot},
};
use crate::limits::{RETRY_AFTER_S, UNKNOWN_TOKENS_PER_LOOK};
use std::net::IpAddr;

/// One bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// At most this many.
    pub max: u32,
    /// Whether it holds for clients on this machine, too. They are a proxy's or a test's, and so many in one, unless
    /// somebody has said otherwise.
    pub loopback: Loopback,
}

/// What a bound means to this machine's own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// Nothing.
    Exempt,
    /// The same as to everybody.
    Bounded,
}

/// What one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Connections of one address (`--max-connections-per-address`).
    pub connections: Quota,
    /// Connections whose latest request proved to be of one principal (`--max-connections-per-principal`).
    pub principal_connections: Quota,
    /// Sessions of one principal or address (`--max-sessions-per-client`).
    pub sessions: Quota,
    /// Streams that listen, of either kind, of one principal or address (`--max-streams-per-client`).
    pub streams: Quota,
    /// Large bodies of one principal or address, on their way and in calls, and large replies that wait to be written; as much
    /// again of large replies that were not taken; and of what is kept for replay. In units of 1,024 bytes
    /// (`--max-body-memory-per-client`).
    pub body_kib: Quota,
    /// Sessions begun by one principal or address per second (`--max-session-rate`); ten seconds' worth at once.
    pub session_rate: Quota,
    /// Bad tokens of one address per second (`--max-bad-token-rate`); ten seconds' worth at once.
    pub bad_token_rate: Quota,
}

impl Quotas {
    /// Whatever one wants.
    pub const NONE: Quotas = {
        let none = Quota { max: u32::MAX, loopback: Loopback::Exempt };
        Quotas {
            connections: none,
            principal_connections: none,
            sessions: none,
            streams: none,
            body_kib: none,
            session_rate: none,
            bad_token_rate: none,
        }
    };
}

/// Whether a principal may have the connection that it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Within,
    /// It is one too many, and counted until it has ended.
    Beyond,
}

impl Quota {
    fn binds(self, locality: Locality) -> bool {
        match locality {
            _ if self.max == u32::MAX => false,
            Locality::Here => self.loopback == Loopback::Bounded,
            Locality::Elsewhere => true,
        }
    }

    fn max_for(self, locality: Locality) -> u32 {
        if self.binds(locality) { self.max } else { u32::MAX }
    }

    /// As a rate per second.
    fn pace(self) -> Pace {
        Pace { burst: self.max.saturating_mul(10), interval_us: 1_000_000 / u64::from(self.max.max(1)) }
    }
}

/// The size of a body in the unit of [`Quotas::body_kib`].
pub(crate) fn kib_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is counted in.
    account: Account,
    locality: Locality,
}

impl Source {
    /// Counts a connection from there in its address's account.
    pub(crate) fn enter(address: IpAddr, connections: Quota, ledger: &Ledger) -> Result<Self, Full> {
        let locality =
            if address.to_canonical().is_loopback() { Locality::Here } else { Locality::Elsewhere };
        let max = connections.max_for(locality);
        let account = ledger.enter(Client::Address(address), Item::Connection, max)?;
        Ok(Source { account, locality })
    }
}

/// Whether a peer is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locality {
    Here,
    Elsewhere,
}

impl Shard {
    /// Counts a connection from there. It is counted whether or not there is a bound: there may be one later.
    pub(super) fn enter_source(&self, address: IpAddr) -> Result<Source, Full> {
        Source::enter(address, self.config.quotas.connections, self.census.ledger())
    }

    /// A connection from there is no more.
    pub(super) fn leave_source(&self, source: Source) {
        self.census.ledger().leave(source.account, Item::Connection);
    }

    /// Counts a connection of this principal, wherever it comes from.
    pub(super) fn enter_principal(&mut self, principal: PrincipalSlot) -> Arrival {
        let (ledger, max) = (self.census.ledger(), self.config.quotas.principal_connections.max);
        let name = self.access.name(principal);
        let enter = |max| ledger.enter(Client::Principal(name.name()), Item::Connection, max);
        let (entered, arrival) = match enter(max) {
            Ok(account) => (Ok(account), Arrival::Within),
            Err(Full) => (enter(u32::MAX), Arrival::Beyond),
        };
        self.access.connection_began(principal, entered.expect("there are fewer descriptors"));
        arrival
    }

    /// A connection of this principal is no more, or somebody else's.
    pub(super) fn leave_principal(&mut self, principal: Option<PrincipalSlot>) {
        if let Some(account) = principal.and_then(|principal| self.access.connection_ended(principal)) {
            self.census.ledger().leave(account, Item::Connection);
        }
    }

    /// The 429 of a connection too many, which ends it.
    pub(super) fn refuse_arrival(&mut self) -> Refusal {
        self.refuse_over(Over::Connections).closing()
    }

    /// The 429 of a client that has enough of something.
    fn refuse_over(&mut self, over: Over) -> Refusal {
        self.counters.clients_over_quota += 1;
        over.refusal()
    }

    /// Whether the address of this connection has sent too many bad tokens. Now and then it has not, whatever it sent: so
    /// that others who share it get in, which is too seldom to keep the server busy.
    pub(super) fn guesses_too_fast(&mut self, conn: ConnSlot, now: Now) -> bool {
        let Some(account) = self.guesser(conn) else { return false };
        let pace = self.config.quotas.bad_token_rate.pace();
        if self.census.ledger().check_pace(account, Act::Guess, pace, now.ms).is_ok() {
            return false;
        }
        self.guesses = self.guesses.wrapping_add(1);
        !self.guesses.is_multiple_of(UNKNOWN_TOKENS_PER_LOOK)
    }

    /// The 429 of one bad token too many.
    pub(super) fn refuse_guess(&mut self) -> Refusal {
        self.counters.tokens_over_pace += 1;
        Over::Guesses.refusal()
    }

    /// A token was not good.
    pub(super) fn guessed(&self, conn: ConnSlot, now: Now) {
        if let Some(account) = self.guesser(conn) {
            let pace = self.config.quotas.bad_token_rate.pace();
            // Being too fast already changes nothing.
            let _ = self.census.ledger().pace_in(account, Act::Guess, pace, now.ms);
        }
    }

    /// In whose name tokens are guessed here, if there is a bound.
    fn guesser(&self, conn: ConnSlot) -> Option<Account> {
        let Source { account, locality } = self.conns[conn].source;
        self.config.quotas.bad_token_rate.binds(locality).then_some(account)
    }

    /// Counts a session of whoever is at this connection, whose it will be.
    ///
    /// # Errors
    /// 429 if they have as many as one client may, or begin them too fast.
    pub(super) fn enter_session(&mut self, conn: ConnSlot, now: Now) -> Result<Holder, Refusal> {
        let (owner, locality) = (self.principal_of_conn(conn), self.locality(conn));
        let entered = self.enter_client(conn, Item::Session, 1, |quotas| quotas.sessions);
        let outcome = entered.map_err(|Full| Over::Sessions).and_then(|account| {
            let (rate, ledger) = (self.config.quotas.session_rate, self.census.ledger());
            if rate.binds(locality) && ledger.pace_in(account, Act::Begin, rate.pace(), now.ms) == Err(Full) {
                ledger.leave(account, Item::Session);
                return Err(Over::Rate);
            }
            Ok(Holder { owner, account, locality })
        });
        outcome.map_err(|over| self.refuse_over(over))
    }

    /// Counts so many `item`s of whoever is at this connection, whether or not there is a bound.
    fn enter_client(
        &self,
        conn: ConnSlot,
        item: Item,
        many: u32,
        quota: impl Fn(&Quotas) -> Quota,
    ) -> Result<Account, Full> {
        let (quotas, ledger, locality) = (&self.config.quotas, self.census.ledger(), self.locality(conn));
        let max = quota(quotas).max_for(locality);
        match self.principal_of_conn(conn) {
            Some(principal) => {
                let name = self.access.name(principal);
                ledger.enter_many(Client::Principal(name.name()), item, many, max)
            }
            None => {
                let account = self.conns[conn].source.account;
                ledger.enter_many_in(account, item, many, max).map(|()| account)
            }
        }
    }

    /// Whoever has proved who they are counts as from elsewhere.
    fn locality(&self, conn: ConnSlot) -> Locality {
        match self.principal_of_conn(conn) {
            Some(_) => Locality::Elsewhere,
            None => self.conns[conn].source.locality,
        }
    }

    /// A session counted in this account is no more.
    pub(super) fn leave_session(&self, account: Account) {
        self.census.ledger().leave(account, Item::Session);
    }

    /// Whether the client of this session may have one GET stream more.
    ///
    /// # Errors
    /// 429 if not, and 503 while memory is short.
    pub(super) fn check_streams(&mut self, session: SessionSlot, conn: ConnSlot) -> Result<(), Refusal> {
        self.check_memory()?;
        let entry = &self.sessions[session];
        let locality =
            if entry.owner.is_some() { Locality::Elsewhere } else { self.conns[conn].source.locality };
        let max = self.config.quotas.streams.max_for(locality);
        if self.census.ledger().count(entry.account, Item::Stream) < max {
            return Ok(());
        }
        Err(self.refuse_over(Over::Streams))
    }

    /// A GET stream of this session is attached.
    pub(super) fn enter_stream(&self, session: SessionSlot) {
        // Whether there is room was asked before; what continues elsewhere is not refused.
        let _ = self.census.ledger().enter_in(self.sessions[session].account, Item::Stream, u32::MAX);
    }

    /// Counts a listen stream of whoever is at this connection.
    ///
    /// # Errors
    /// 429 if they have as many streams as one client may, and 503 while memory is short.
    pub(super) fn enter_listen(&mut self, conn: ConnSlot) -> Result<Account, Refusal> {
        self.check_memory()?;
        let entered = self.enter_client(conn, Item::Stream, 1, |quotas| quotas.streams);
        entered.map_err(|Full| self.refuse_over(Over::Streams))
    }

    /// A listen stream counted in this account is no more.
    pub(super) fn leave_listen(&self, account: Option<Account>) {
        if let Some(account) = account {
            self.census.ledger().leave(account, Item::Stream);
        }
    }

    /// Counts so many units more of a large body that comes on this connection, if there is a bound. `account` has what was
    /// counted of it before.
    ///
    /// # Errors
    /// 429 if its client's bodies would be more together than one client's may.
    pub(super) fn enter_body(
        &mut self,
        conn: ConnSlot,
        account: Option<Account>,
        kib: u32,
    ) -> Result<Option<Account>, Refusal> {
        let (quota, locality) = (self.config.quotas.body_kib, self.locality(conn));
        let entered = match account {
            Some(account) => {
                let max = quota.max_for(locality);
                self.census.ledger().enter_many_in(account, Item::BodyKib, kib, max).map(|()| Some(account))
            }
            None if quota.binds(locality) => {
                self.enter_client(conn, Item::BodyKib, kib, |quotas| quotas.body_kib).map(Some)
            }
            None => Ok(None),
        };
        entered.map_err(|Full| self.refuse_over(Over::Bodies))
    }

    /// What large replies on this connection are counted in, and from where it comes.
    pub(super) fn reader(&self, conn: ConnSlot) -> (Option<Account>, Locality) {
        let account = match self.principal_of_conn(conn) {
            Some(principal) => self.access.account(principal),
            None => Some(self.conns[conn].source.account),
        };
        (account, self.locality(conn))
    }

    /// Whether a large reply may be added to what a client has not read. `own_kib` of what is counted are of the call that is
    /// answered.
    ///
    /// # Errors
    /// That its large bodies and replies are as much as one client's may be without it.
    pub(super) fn check_unread(
        &mut self,
        account: Option<Account>,
        locality: Locality,
        own_kib: u32,
    ) -> Result<(), RpcError> {
        let max = self.config.quotas.body_kib.max_for(locality);
        if max == u32::MAX {
            return Ok(());
        }
        let count = |item| account.map_or(0, |account| self.census.ledger().count(account, item));
        if count(Item::BodyKib).saturating_sub(own_kib) < max && count(Item::OwedKib) < max {
            return Ok(());
        }
        self.counters.clients_over_quota += 1;
        let message = "the answer is dropped: you leave as much unread as one client may; read your replies";
        Err(RpcError { code: SERVER_ERROR, message: message.into(), data: None })
    }

    /// What the session's client has of that item, and its share of it.
    pub(super) fn of_share(&self, session: SessionSlot, item: Item) -> (u32, u32) {
        let Session { account, locality, .. } = self.sessions[session];
        let max = self.config.quotas.body_kib.max_for(locality);
        // Without a bound nobody needs to know.
        if max == u32::MAX { (0, max) } else { (self.census.ledger().count(account, item), max) }
    }

    /// Counts so many units of large replies that wait for whoever is at this connection, if there is a bound and anybody. What
    /// was counted with them before is in `account`.
    pub(super) fn enter_unread(
        &self,
        conn: Option<ConnSlot>,
        account: Option<Account>,
        kib: u32,
    ) -> Option<Account> {
        let binds = |conn: &ConnSlot| self.config.quotas.body_kib.binds(self.locality(*conn));
        let entered = match (account, conn.filter(binds)) {
            (Some(account), _) => {
                self.census.ledger().enter_many_in(account, Item::BodyKib, kib, u32::MAX).map(|()| account)
            }
            (None, Some(conn)) => self.enter_client(conn, Item::BodyKib, kib, |_| Quotas::NONE.body_kib),
            (None, None) => return None,
        };
        Some(entered.expect("u32::MAX KiB are more than there is"))
    }

    /// It is attached no longer.
    pub(super) fn leave_stream(&self, session: SessionSlot) {
        self.census.ledger().leave(self.sessions[session].account, Item::Stream);
    }
}

/// What a client has too much of.
#[derive(Clone, Copy, Debug)]
enum Over {
    Connections,
    Guesses,
    Sessions,
    Rate,
    Streams,
    Bodies,
}

impl Over {
    fn refusal(self) -> Refusal {
        let message = match self {
            Over::Connections => "you hold as many connections as one principal may; close one",
            Over::Guesses => "your address sends too many bad tokens; wait a moment",
            Over::Sessions => "you hold as many sessions as one client may; end one",
            Over::Rate => "you begin sessions faster than one client may; wait a moment",
            Over::Streams => "you hold as many streams as one client may; close one",
            Over::Bodies => "your large bodies are as much together as one client's may be; wait for a reply",
        };
        Refusal { retry_after_s: Some(RETRY_AFTER_S), ..Refusal::new(Status::TooManyRequests, message) }
    }
}
