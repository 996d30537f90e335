//! What one shard knows of who is at its connections: verified tokens, the principals they stand for, and how both end.
//!
//! Owns the snapshot of the rules in force, a table of credentials (one per token that was verified) and one of principals
//! (one per name). Connections and sessions hold 4 bytes each; a credential takes about 200 bytes with its indices and
//! its principal, however many connections use it. On a server that lets everybody in all of it is empty, and nothing is
//! looked up.
//!
//! Invariants: a credential lives while connections hold it, and a bounded number beyond that; a principal lives while
//! credentials or sessions hold it, so equal slots are equal principals; whatever was verified under earlier rules is
//! looked at again before it counts. Verified tokens are found by their SHA-256: nobody can insert what was not good.

use super::{
    auth::{self, Authenticator, Denial, Digest, Voucher},
    conn::State,
    http::{Authority, Content, Head, Method, Refusal, ReplyHead, Status, Target, refusal::ALLOW_READ},
    ledger::Account,
    quotas::Arrival,
    request::{ReplyFacts, SessionField},
    seam::*,
    session::SessionEnd,
    shard::Shard,
    stream::EndOfStream,
    table::{ConnSlot, CredentialSlot, PrincipalSlot, SessionSlot, Table},
};
use crate::limits::IDLE_CREDENTIALS_MAX;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

/// Everybody a shard has let in.
#[derive(Debug)]
pub(super) struct Access {
    authenticator: Option<Arc<Authenticator>>,
    /// Counts the rules there have been.
    epoch: u32,
    credentials: Table<CredentialSlot, Credential>,
    by_digest: HashMap<[u8; 32], CredentialSlot, BuildHasherDefault<DigestHasher>>,
    principals: Table<PrincipalSlot, PrincipalEntry>,
    by_name: BTreeMap<Arc<str>, PrincipalSlot>,
    /// Credentials nobody held when they were put here, oldest first.
    idle: VecDeque<(CredentialSlot, u32)>,
    idle_stamp: u32,
    sweep: Option<Sweep>,
}

/// A token that was good when it was last looked at.
#[derive(Debug)]
struct Credential {
    digest: Digest,
    principal: PrincipalSlot,
    /// When it is good no longer, by the shard's clock.
    expires_ms: u64,
    voucher: Voucher,
    /// The rules it was last held against, and whether it passed.
    epoch: u32,
    standing: Standing,
    /// Connections whose latest request it came with.
    holders: u32,
    /// Which of its entries in the list of idle ones counts.
    idle_stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Good,
    /// No connection finds it any more; those that hold it are being ended.
    Revoked,
}

#[derive(Debug)]
struct PrincipalEntry {
    name: Principal,
    credentials: u32,
    sessions: u32,
    connections: u32,
    /// What its connections are counted in, while there are any.
    account: Option<Account>,
}

/// A walk over sessions and then connections after the rules have changed: the next of each to look at.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    next_session: usize,
    next_conn: usize,
}

/// The first bytes of a SHA-256 are a hash already.
#[derive(Debug, Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (_, tail) = bytes.split_at(bytes.len().saturating_sub(8));
        self.0 = tail.iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

// --- Requests -----------------------------------------------------------------------------------

impl Shard {
    /// Lets the request of this head in, and remembers for its connection with which token. Whether that is one connection
    /// too many of its principal is said, not refused: a session's 404 comes first.
    ///
    /// # Errors
    /// 401 or 403 with the challenge, or 429 if the address has sent too many bad tokens. Nothing was kept.
    pub(super) fn let_in(&mut self, conn: ConnSlot, head: &Head<'_>, now: Now) -> Result<Arrival, Refusal> {
        self.admit_token(conn, head.authorization, head.authority, now)
    }

    /// Lets in a request that another shard has read; that one's word for its token does not count here.
    ///
    /// # Errors
    /// As of [`let_in`](Self::let_in).
    pub(super) fn let_read_in(
        &mut self,
        conn: ConnSlot,
        authorization: Option<&[u8]>,
        now: Now,
    ) -> Result<Arrival, Refusal> {
        self.admit_token(conn, authorization, None, now)
    }

    fn admit_token(
        &mut self,
        conn: ConnSlot,
        field: Option<&[u8]>,
        authority: Option<Authority<'_>>,
        now: Now,
    ) -> Result<Arrival, Refusal> {
        if self.access.authenticator.is_none() {
            return Ok(Arrival::Within);
        }
        let token = auth::bearer(field).map_err(|denial| self.deny(denial, authority))?;
        let digest = Digest::of(token);
        let credential = match self.access.known(&digest, now) {
            Some(credential) => credential,
            None => self.admit_unknown(conn, token, digest, authority, now)?,
        };
        Ok(self.hold_credential(conn, credential))
    }

    /// Looks at a token in full, unless that takes time and its address has sent too many bad ones.
    fn admit_unknown(
        &mut self,
        conn: ConnSlot,
        token: &[u8],
        digest: Digest,
        authority: Option<Authority<'_>>,
        now: Now,
    ) -> Result<CredentialSlot, Refusal> {
        let is_too_fast = self.guesses_too_fast(conn, now);
        let is_cheap = self.access.authenticator.as_ref().is_some_and(|rules| rules.only_looks_up());
        if is_too_fast && !is_cheap {
            return Err(self.refuse_guess());
        }
        match self.access.verify(token, digest, now) {
            Ok(credential) => {
                self.counters.tokens_verified += 1;
                Ok(credential)
            }
            Err(_) if is_too_fast => Err(self.refuse_guess()),
            Err(denial) => {
                self.guessed(conn, now);
                Err(self.deny(denial, authority))
            }
        }
    }

    /// The connection is, from now on, of whoever this credential is for.
    fn hold_credential(&mut self, conn: ConnSlot, credential: CredentialSlot) -> Arrival {
        let former = self.conns[conn].credential.replace(credential);
        if former == Some(credential) {
            return Arrival::Within;
        }
        self.access.hold(credential);
        let principal = self.access.credentials[credential].principal;
        let before = former.map(|former| self.access.credentials[former].principal);
        let arrival = if before == Some(principal) {
            Arrival::Within
        } else {
            self.leave_principal(before);
            self.enter_principal(principal)
        };
        self.access.release(former);
        arrival
    }

    /// A connection that came with this credential is here no more.
    pub(super) fn release_credential(&mut self, credential: Option<CredentialSlot>) {
        self.leave_principal(credential.map(|credential| self.access.credentials[credential].principal));
        self.access.release(credential);
    }

    fn deny(&mut self, denial: Denial, authority: Option<Authority<'_>>) -> Refusal {
        match denial {
            Denial::Missing => self.counters.requests_without_token += 1,
            Denial::Invalid(_) => self.counters.requests_with_bad_token += 1,
            Denial::Scope => self.counters.requests_without_scope += 1,
        }
        let authenticator = self.access.authenticator.as_ref().expect("somebody has denied it");
        authenticator.resource().refuse(denial, authority, self.config.policy.endpoint())
    }

    /// Whether the token this connection's request came with is still good, now that its body is here.
    ///
    /// # Errors
    /// 401.
    pub(super) fn still_in(&mut self, conn: ConnSlot, now: Now) -> Result<(), Refusal> {
        match self.conns[conn].credential {
            Some(credential) if !self.access.is_good(credential, now) => {
                self.counters.requests_with_bad_token += 1;
                let authenticator = self.access.authenticator.as_ref().expect("it has let somebody in");
                let denial = Denial::Invalid("the token is good no longer");
                Err(authenticator.resource().refuse(denial, None, self.config.policy.endpoint()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whoever is at the other end, if the server asks.
    pub(super) fn principal_of_conn(&self, conn: ConnSlot) -> Option<PrincipalSlot> {
        self.conns[conn].credential.map(|credential| self.access.credentials[credential].principal)
    }

    /// The same by name, for whoever handles its requests.
    pub(super) fn principal_name_of_conn(&self, conn: ConnSlot) -> Option<Principal> {
        self.principal_of_conn(conn).map(|principal| self.access.principals[principal].name.clone())
    }

    /// The session a request names, as far as its principal may know: one of somebody else is as unknown as one that never
    /// was. Sessions of other shards are left to them.
    pub(super) fn own_session(&self, conn: ConnSlot, field: SessionField) -> SessionField {
        let SessionField::Id(id) = field else { return field };
        let Some(session) = self.find_session(&id) else { return field };
        if self.sessions[session].owner == self.principal_of_conn(conn) {
            return field;
        }
        SessionField::Unknown
    }

    /// The owner's name, for whoever handles the session's calls.
    pub(super) fn owner_name(&self, session: SessionSlot) -> Option<Principal> {
        self.sessions[session].owner.map(|owner| self.access.name(owner))
    }

    /// Whether the target is the description of this protected resource, which anybody may read.
    pub(super) fn is_metadata(&self, target: Target<'_>) -> bool {
        let Target::Path { path, .. } = target else { return false };
        let endpoint = self.config.policy.endpoint();
        let authenticator = self.access.authenticator.as_ref();
        authenticator.is_some_and(|authenticator| authenticator.resource().is_described_at(path, endpoint))
    }

    /// Answers a request for that description.
    ///
    /// # Errors
    /// 405 for anything but GET and HEAD.
    pub(super) fn answer_metadata(
        &mut self,
        conn: ConnSlot,
        head: &Head<'_>,
        facts: &ReplyFacts,
        now: Now,
    ) -> Result<(), Refusal> {
        let Some(authenticator) = &self.access.authenticator else { return Ok(()) };
        let document = authenticator.resource().document(head.authority, self.config.policy.endpoint());
        let body: &[&[u8]] = match head.method {
            Method::Get => &[document.as_bytes()],
            Method::Head => &[],
            Method::Post | Method::Delete | Method::Options | Method::Other => {
                return Err(Refusal::method_not_allowed(ALLOW_READ));
            }
        };
        let date = self.date;
        let content = Content::Json(document.len() as u64);
        let reply = ReplyHead::new(Status::Ok, content, facts.exchange(&date));
        self.reply(conn, &reply, body, now);
        Ok(())
    }

    /// When the token this connection came with ends what is written to it; `u64::MAX`: never.
    pub(super) fn token_expires_ms(&self, conn: ConnSlot) -> u64 {
        let credential = self.conns[conn].credential;
        credential.map_or(u64::MAX, |credential| self.access.credentials[credential].expires_ms)
    }
}

impl Access {
    /// Nobody yet.
    pub(super) fn new(authenticator: Option<Arc<Authenticator>>) -> Self {
        Access {
            authenticator,
            epoch: 0,
            credentials: Table::with_capacity(0),
            by_digest: HashMap::default(),
            principals: Table::with_capacity(0),
            by_name: BTreeMap::new(),
            idle: VecDeque::new(),
            idle_stamp: 0,
            sweep: None,
        }
    }

    /// The credential of a token that was good before, and is.
    fn known(&mut self, digest: &Digest, now: Now) -> Option<CredentialSlot> {
        let credential = *self.by_digest.get(&digest.0)?;
        self.is_good(credential, now).then_some(credential)
    }

    fn verify(&mut self, token: &[u8], digest: Digest, now: Now) -> Result<CredentialSlot, Denial> {
        let authenticator = self.authenticator.as_ref().expect("asked of a server with rules");
        let grant = authenticator.verify(token, &digest, now.unix_s)?;
        let expires_ms = grant.expires_unix_s.map_or(u64::MAX, |expires_s| {
            now.ms.saturating_add(expires_s.saturating_sub(now.unix_s).saturating_mul(1_000))
        });
        let principal = self.intern(&grant.name);
        self.principals[principal].credentials += 1;
        let credential = self.credentials.insert(Credential {
            digest,
            principal,
            expires_ms,
            voucher: grant.voucher,
            epoch: self.epoch,
            standing: Standing::Good,
            holders: 0,
            idle_stamp: 0,
        });
        self.by_digest.insert(digest.0, credential);
        self.set_aside(credential);
        Ok(credential)
    }

    /// Whether a token that was good still is. One that is not is found no more.
    fn is_good(&mut self, credential: CredentialSlot, now: Now) -> bool {
        let entry = &mut self.credentials[credential];
        if entry.epoch != self.epoch && entry.standing == Standing::Good {
            let name = self.principals[entry.principal].name.name();
            let upheld = self
                .authenticator
                .as_ref()
                .is_some_and(|authenticator| authenticator.upholds(&entry.digest, name, entry.voucher));
            entry.epoch = self.epoch;
            if !upheld {
                entry.standing = Standing::Revoked;
            }
        }
        let good = entry.standing == Standing::Good && entry.expires_ms > now.ms;
        if !good {
            self.unlist(credential);
        }
        good
    }

    /// Nobody finds the credential any more; it goes with its last holder.
    fn unlist(&mut self, credential: CredentialSlot) {
        let entry = &mut self.credentials[credential];
        entry.standing = Standing::Revoked;
        let digest = entry.digest.0;
        if self.by_digest.get(&digest) == Some(&credential) {
            self.by_digest.remove(&digest);
        }
    }

    fn hold(&mut self, credential: CredentialSlot) {
        self.credentials[credential].holders += 1;
    }

    /// A connection does not use this credential any more.
    fn release(&mut self, credential: Option<CredentialSlot>) {
        let Some(credential) = credential else { return };
        let entry = &mut self.credentials[credential];
        entry.holders -= 1;
        if entry.holders == 0 {
            self.set_aside(credential);
        }
    }

    /// Keeps a credential that nobody holds for whoever brings its token next, in the place of the oldest such one.
    fn set_aside(&mut self, credential: CredentialSlot) {
        self.idle_stamp = self.idle_stamp.wrapping_add(1);
        self.credentials[credential].idle_stamp = self.idle_stamp;
        self.idle.push_back((credential, self.idle_stamp));
        while self.idle.len() > IDLE_CREDENTIALS_MAX
            && let Some((oldest, stamp)) = self.idle.pop_front()
        {
            let is_idle = |entry: &Credential| entry.holders == 0 && entry.idle_stamp == stamp;
            if self.credentials.get(oldest).is_some_and(is_idle) {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, credential: CredentialSlot) {
        self.unlist(credential);
        let entry = self.credentials.remove(credential);
        self.principals[entry.principal].credentials -= 1;
        self.forget_if_unheld(entry.principal);
    }

    fn intern(&mut self, name: &Arc<str>) -> PrincipalSlot {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let entry = PrincipalEntry {
            name: Principal::new(name.clone()),
            credentials: 0,
            sessions: 0,
            connections: 0,
            account: None,
        };
        let principal = self.principals.insert(entry);
        self.by_name.insert(name.clone(), principal);
        principal
    }

    /// A session of this principal begins.
    pub(super) fn session_began(&mut self, owner: Option<PrincipalSlot>) {
        if let Some(owner) = owner {
            self.principals[owner].sessions += 1;
        }
    }

    /// A session of this principal is no more.
    pub(super) fn session_ended(&mut self, owner: Option<PrincipalSlot>) {
        if let Some(owner) = owner {
            self.principals[owner].sessions -= 1;
            self.forget_if_unheld(owner);
        }
    }

    /// A connection of this principal was counted there.
    pub(super) fn connection_began(&mut self, principal: PrincipalSlot, account: Account) {
        let entry = &mut self.principals[principal];
        entry.connections += 1;
        entry.account = Some(account);
    }

    /// One of its connections is no more; where it was counted.
    pub(super) fn connection_ended(&mut self, principal: PrincipalSlot) -> Option<Account> {
        let entry = &mut self.principals[principal];
        entry.connections -= 1;
        let account = entry.account;
        if entry.connections == 0 {
            entry.account = None;
        }
        account
    }

    /// Where its connections are counted, as long as it has any.
    pub(super) fn account(&self, principal: PrincipalSlot) -> Option<Account> {
        self.principals[principal].account
    }

    fn forget_if_unheld(&mut self, principal: PrincipalSlot) {
        let entry = &self.principals[principal];
        if (entry.credentials, entry.sessions) == (0, 0) {
            let entry = self.principals.remove(principal);
            self.by_name.remove(entry.name.name());
        }
    }

    /// Sessions of this principal on the shard.
    pub(super) fn sessions_of(&self, principal: PrincipalSlot) -> u32 {
        self.principals[principal].sessions
    }

    /// Its name.
    pub(super) fn name(&self, principal: PrincipalSlot) -> Principal {
        self.principals[principal].name.clone()
    }

    /// The principal of that name, if it is here.
    pub(super) fn find(&self, name: &str) -> Option<PrincipalSlot> {
        self.by_name.get(name).copied()
    }
}

// --- New rules ----------------------------------------------------------------------------------

impl Shard {
    /// Puts new rules in force. What was begun with a token that is good no longer ends, some of it per turn
    /// ([`Shard::pump`]); its next request is refused at once.
    ///
    /// # Panics
    /// If the server lets everybody in, or is to do so from now on: that cannot be changed while it runs.
    pub fn reauthorize(&mut self, authenticator: Arc<Authenticator>) {
        assert!(self.access.authenticator.is_some(), "rules follow rules");
        self.access.authenticator = Some(authenticator);
        self.access.epoch = self.access.epoch.wrapping_add(1);
        self.access.sweep = Some(Sweep::default());
    }

    pub(super) fn is_sweeping(&self) -> bool {
        self.access.sweep.is_some()
    }

    /// Goes on with the walk that new rules have begun.
    pub(super) fn pump_sweep(&mut self, budget: &mut usize, now: Now) {
        let Some(mut sweep) = self.access.sweep else { return };
        while *budget > 0 && sweep.next_session < self.sessions.index_end() {
            *budget -= 1;
            if let Some((session, _)) = self.sessions.at(sweep.next_session) {
                self.sweep_session(session, now);
            }
            sweep.next_session += 1;
        }
        while *budget > 0 && sweep.next_conn < self.conns.index_end() {
            *budget -= 1;
            if let Some((conn, _)) = self.conns.at(sweep.next_conn) {
                self.sweep_conn(conn, now);
            }
            sweep.next_conn += 1;
        }
        let over =
            sweep.next_session >= self.sessions.index_end() && sweep.next_conn >= self.conns.index_end();
        self.access.sweep = (!over).then_some(sweep);
    }

    fn sweep_session(&mut self, session: SessionSlot, now: Now) {
        let (Some(owner), Some(authenticator)) = (self.sessions[session].owner, &self.access.authenticator)
        else {
            return;
        };
        if !authenticator.may_know(self.access.principals[owner].name.name()) {
            self.end_session(session, SessionEnd::Revoked, now);
        }
    }

    fn sweep_conn(&mut self, conn: ConnSlot, now: Now) {
        if let Some(credential) = self.conns[conn].credential
            && !self.access.is_good(credential, now)
        {
            self.token_ended(conn, now);
        }
    }

    /// The token this connection came with is good no longer: its stream ends. One of a session can be continued with
    /// another token; without a session the client asks anew.
    pub(super) fn token_ended(&mut self, conn: ConnSlot, now: Now) {
        if let State::Streaming(stream) = self.conns[conn].state {
            self.counters.streams_unauthorized += 1;
            self.end_stream(stream, EndOfStream::Unauthorized, now);
        }
        if let State::Exchanging(exchange) = self.conns[conn].state
            && self.exchanges[exchange].is_stream()
        {
            self.counters.streams_unauthorized += 1;
            self.end_unauthorized(exchange, now);
        }
        if let State::Carrying(session) = self.conns[conn].state {
            self.counters.streams_unauthorized += 1;
            self.end_session(session, SessionEnd::Revoked, now);
        }
    }

    /// What [`check_invariants`](Shard::check_invariants) wants of credentials and principals.
    pub(super) fn check_access(&self) {
        let access = &self.access;
        for (slot, credential) in access.credentials.iter() {
            let holders = self.conns.iter().filter(|(_, conn)| conn.credential == Some(slot)).count();
            assert_eq!(holders, credential.holders as usize, "a credential counts its connections");
        }
        for (slot, principal) in access.principals.iter() {
            let credentials = access.credentials.iter().filter(|(_, it)| it.principal == slot).count();
            let sessions = self.sessions.iter().filter(|(_, it)| it.owner == Some(slot)).count();
            let is_its_own = |credential: CredentialSlot| access.credentials[credential].principal == slot;
            let connections =
                self.conns.iter().filter(|(_, conn)| conn.credential.is_some_and(is_its_own)).count();
            assert_eq!(credentials, principal.credentials as usize, "a principal counts its credentials");
            assert_eq!(connections, principal.connections as usize, "a principal counts its connections");
            assert_eq!(principal.account.is_some(), connections > 0, "in an account while there are any");
            assert_eq!(sessions, principal.sessions as usize, "a principal counts its sessions");
            assert_eq!(access.find(principal.name.name()), Some(slot), "a principal is found by its name");
        }
        assert_eq!(access.by_name.len(), access.principals.len());
        assert!(access.by_digest.values().all(|slot| access.credentials.get(*slot).is_some()));
    }
}
