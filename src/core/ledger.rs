//! What each client has of the process: connections, sessions, streams, and how fast it begins sessions or sends bad tokens.
//!
//! A client is an address (of IPv6: the /64 it is in) until it has proved to be somebody, then that principal. All shards
//! share the ledger, so that a client's share does not depend on where its connections land. It is touched when a
//! connection is accepted, proves to be of a principal, or ends, a session begins or ends, a GET stream is attached or left,
//! and by large bodies as they come, large replies as they go, and every so many bytes kept for replay: never by a small request on a
//! kept connection, nor by keep-alives.
//!
//! Owns one account per client with anything to its name, and those whose pace is still remembered, up to a bound. Counts
//! are exact: nobody is refused for what another one has. About 80 bytes per client. Locks are of one stripe of many, held
//! for a look-up and an addition.

use crate::limits::{LEDGER_IDLE_ACCOUNTS_MAX, LEDGER_STRIPES};
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Everybody's accounts.
#[derive(Debug)]
pub struct Ledger {
    /// Keeps clients from choosing which of them meet.
    seed: u64,
    stripes: Box<[Mutex<Stripe>]>,
}

/// A client's account, held by everything that was entered in it. Four bytes, present or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(NonZeroU32);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A connection.
    Connection,
    /// A session.
    Session,
    /// An attached GET stream.
    Stream,
    /// 1,024 bytes of a large body that is on its way, or whose call runs, or of a large reply that waits to be written.
    BodyKib,
    /// 1,024 bytes that sessions keep for replay, in steps of [`MEMORY_STEP_BYTES`](crate::limits::MEMORY_STEP_BYTES) on each
    /// shard.
    KeptKib,
    /// 1,024 bytes of large replies that are kept and whose client has had time to take them.
    OwedKib,
}

/// Kinds of [`Item`].
const ITEMS: usize = 6;

/// What is counted by its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To begin a session.
    Begin,
    /// To send a token that is not good.
    Guess,
}

/// Who a client is, as far as accounts are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client<'a> {
    /// Whoever is at this address.
    Address(IpAddr),
    /// The principal of this name.
    Principal(&'a str),
}

/// How often something may happen: this many times at once, and one more each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At once.
    pub burst: u32,
    /// Between two, once those are used up, in microseconds.
    pub interval_us: u64,
}

/// The client has as much as one client may; nothing was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug, Default)]
struct Stripe {
    entries: Slab<Entry>,
    by_client: HashMap<u64, u32, BuildHasherDefault<Ready>>,
    /// Accounts that had nothing when they were put here, oldest first.
    idle: VecDeque<(u32, u64)>,
}

#[derive(Debug)]
struct Entry {
    client: u64,
    counts: [u32; ITEMS],
    /// When a client of perfect pace would act next, in microseconds of the shards' clocks.
    next_us: [u64; 2],
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.counts == [0; ITEMS]
    }

    /// When the act is due, if that is not too far ahead.
    fn due_us(&self, act: Act, pace: Pace, now_ms: u64) -> Result<u64, Full> {
        let now_us = now_ms.saturating_mul(1_000);
        let due_us = self.next_us[act as usize].max(now_us);
        let ahead_us = pace.interval_us.saturating_mul(u64::from(pace.burst.saturating_sub(1)));
        if due_us - now_us > ahead_us { Err(Full) } else { Ok(due_us) }
    }

    fn step(&mut self, act: Act, pace: Pace, now_ms: u64) -> Result<(), Full> {
        self.next_us[act as usize] = self.due_us(act, pace, now_ms)? + pace.interval_us;
        Ok(())
    }
}

/// A client's key is a hash already.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Ledger {
    /// Without accounts. `seed` is one that no client knows.
    pub fn new(seed: u64) -> Self {
        Ledger { seed, stripes: (0..LEDGER_STRIPES).map(|_| Mutex::default()).collect() }
    }

    /// Enters one `item` for a client, unless it has `max` of them.
    ///
    /// # Errors
    /// [`Full`] if it has.
    pub fn enter(&self, client: Client<'_>, item: Item, max: u32) -> Result<Account, Full> {
        self.enter_many(client, item, 1, max)
    }

    /// Enters so many of them, all or none.
    ///
    /// # Errors
    /// [`Full`] if there would be more than `max`.
    pub fn enter_many(&self, client: Client<'_>, item: Item, many: u32, max: u32) -> Result<Account, Full> {
        let key = self.key(client);
        let number = stripe_of(key);
        let mut stripe = self.lock(number);
        let slot = stripe.open(key);
        match stripe.add(slot, item, many, max) {
            Ok(()) => Ok(Account::new(number, slot)),
            Err(full) => {
                stripe.close_if_idle(slot);
                Err(full)
            }
        }
    }

    /// The same for a client whose account something else holds.
    ///
    /// # Errors
    /// [`Full`]
    pub fn enter_in(&self, account: Account, item: Item, max: u32) -> Result<(), Full> {
        self.enter_many_in(account, item, 1, max)
    }

    /// The same of so many, all or none.
    ///
    /// # Errors
    /// [`Full`]
    pub fn enter_many_in(&self, account: Account, item: Item, many: u32, max: u32) -> Result<(), Full> {
        let (number, slot) = account.place();
        self.lock(number).add(slot, item, many, max)
    }

    /// One `item` less. With its last one an account is closed.
    pub fn leave(&self, account: Account, item: Item) {
        self.leave_many(account, item, 1);
    }

    /// So many less.
    pub fn leave_many(&self, account: Account, item: Item, many: u32) {
        let (number, slot) = account.place();
        let mut stripe = self.lock(number);
        let entry = &mut stripe.entries[slot as usize];
        entry.counts[item as usize] -= many;
        stripe.close_if_idle(slot);
    }

    /// How many of `item` there are in an account that something holds.
    pub fn count(&self, account: Account, item: Item) -> u32 {
        let (number, slot) = account.place();
        self.lock(number).entries[slot as usize].counts[item as usize]
    }

    /// Lets a client whose account something holds do something, unless it is too fast.
    ///
    /// # Errors
    /// [`Full`] if it is; it may come again after [`Pace::interval_us`].
    pub fn pace_in(&self, account: Account, act: Act, pace: Pace, now_ms: u64) -> Result<(), Full> {
        let (number, slot) = account.place();
        self.lock(number).entries[slot as usize].step(act, pace, now_ms)
    }

    /// Whether it may, which changes nothing.
    ///
    /// # Errors
    /// [`Full`] if not.
    pub fn check_pace(&self, account: Account, act: Act, pace: Pace, now_ms: u64) -> Result<(), Full> {
        let (number, slot) = account.place();
        self.lock(number).entries[slot as usize].due_us(act, pace, now_ms).map(|_| ())
    }

    /// Accounts there are, those whose pace alone is remembered included.
    pub fn accounts(&self) -> usize {
        (0..self.stripes.len()).map(|number| self.lock(number).entries.len()).sum()
    }

    fn key(&self, client: Client<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        client.network().hash(&mut hasher);
        hasher.finish()
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Stripe> {
        // Nothing in here can be left half done by a panic.
        self.stripes[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client<'_> {
    /// Whoever has one address of a /64 has all of them.
    fn network(self) -> Self {
        match self {
            Client::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(address) => Client::Address(IpAddr::V4(address)),
                None => {
                    let network = u128::from(address) >> 64 << 64;
                    Client::Address(IpAddr::V6(Ipv6Addr::from(network)))
                }
            },
            Client::Address(IpAddr::V4(_)) | Client::Principal(_) => self,
        }
    }
}

fn stripe_of(key: u64) -> usize {
    usize::try_from(key >> 32).expect("Linux has 64 bits") % LEDGER_STRIPES
}

impl Account {
    fn new(stripe: usize, slot: u32) -> Self {
        let stripes = u32::try_from(LEDGER_STRIPES).expect("there are few");
        let number = slot * stripes + u32::try_from(stripe).expect("there are few");
        Account(NonZeroU32::MIN.saturating_add(number))
    }

    fn place(self) -> (usize, u32) {
        let stripes = u32::try_from(LEDGER_STRIPES).expect("there are few");
        let number = self.0.get() - 1;
        ((number % stripes) as usize, number / stripes)
    }
}

impl Stripe {
    fn open(&mut self, client: u64) -> u32 {
        if let Some(&slot) = self.by_client.get(&client) {
            return slot;
        }
        let entry = Entry { client, counts: [0; ITEMS], next_us: [0; 2] };
        let slot = u32::try_from(self.entries.insert(entry)).expect("accounts are bounded by connections");
        self.by_client.insert(client, slot);
        slot
    }

    fn add(&mut self, slot: u32, item: Item, many: u32, max: u32) -> Result<(), Full> {
        let count = &mut self.entries[slot as usize].counts[item as usize];
        *count = count.checked_add(many).filter(|count| *count <= max).ok_or(Full)?;
        Ok(())
    }

    /// An account with nothing in it is kept for the sake of its pace, if there is one to remember, in the place of the
    /// oldest such one.
    fn close_if_idle(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        if !entry.is_idle() {
            return;
        }
        if entry.next_us == [0; 2] {
            return self.remove(slot);
        }
        let client = entry.client;
        if self.idle.back() != Some(&(slot, client)) {
            self.idle.push_back((slot, client));
        }
        while self.idle.len() > LEDGER_IDLE_ACCOUNTS_MAX / LEDGER_STRIPES
            && let Some((oldest, client)) = self.idle.pop_front()
        {
            let is_same = |entry: &&Entry| entry.client == client && entry.is_idle();
            if self.entries.get(oldest as usize).filter(is_same).is_some() {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        let entry = self.entries.remove(slot as usize);
        self.by_client.remove(&entry.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether a client may begin something, which is over at once.
    fn may_begin(ledger: &Ledger, client: Client<'_>, pace: Pace, now_ms: u64) -> bool {
        let account = ledger.enter(client, Item::Session, u32::MAX).expect("no bound");
        let outcome = ledger.pace_in(account, Act::Begin, pace, now_ms);
        ledger.leave(account, Item::Session);
        outcome.is_ok()
    }

    fn address(text: &str) -> Client<'static> {
        Client::Address(text.parse().expect("an address"))
    }

    #[test]
    fn a_client_has_its_share_and_no_more() {
        let ledger = Ledger::new(1);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let first = ledger.enter(one, Item::Connection, 2).expect("room");
        assert_eq!(ledger.enter(one, Item::Connection, 2), Ok(first));
        assert_eq!(ledger.enter(one, Item::Connection, 2), Err(Full));
        assert!(ledger.enter(other, Item::Connection, 2).is_ok());
        assert_eq!(ledger.enter_in(first, Item::Session, 1), Ok(()), "each kind on its own");
        assert_eq!(ledger.enter_in(first, Item::Session, 1), Err(Full));
        ledger.leave(first, Item::Connection);
        assert_eq!(ledger.enter(one, Item::Connection, 2), Ok(first));
    }

    #[test]
    fn nothing_is_left_of_those_who_left() {
        let ledger = Ledger::new(1);
        let accounts: Vec<_> = (0..1_000u32)
            .map(|number| ledger.enter(Client::Address(IpAddr::V4(number.into())), Item::Connection, 1))
            .collect();
        assert_eq!(ledger.accounts(), 1_000);
        accounts.into_iter().for_each(|account| ledger.leave(account.expect("room"), Item::Connection));
        assert_eq!(ledger.accounts(), 0);
        assert_eq!(ledger.enter(address("::1"), Item::Stream, 0), Err(Full));
        assert_eq!(ledger.accounts(), 0, "nor of those who never came in");
    }

    #[test]
    fn a_network_is_one_client_however_it_is_written() {
        let ledger = Ledger::new(1);
        let same = [("2001:db8::1", "2001:db8::ffff:2"), ("192.0.2.1", "::ffff:192.0.2.1")];
        for (one, other) in same {
            assert_eq!(ledger.key(address(one)), ledger.key(address(other)));
        }
        assert_ne!(ledger.key(address("2001:db8::1")), ledger.key(address("2001:db8:0:1::1")));
        assert_ne!(ledger.key(address("192.0.2.1")), ledger.key(Client::Principal("192.0.2.1")));
        assert_ne!(ledger.key(address("192.0.2.1")), Ledger::new(2).key(address("192.0.2.1")));
    }

    #[test]
    fn a_burst_is_followed_by_a_steady_pace() {
        let ledger = Ledger::new(1);
        let pace = Pace { burst: 3, interval_us: 100_000 };
        let allowed = |now_ms| may_begin(&ledger, Client::Principal("a"), pace, now_ms);
        assert_eq!([0; 5].map(|_| allowed(1_000)), [true, true, true, false, false]);
        assert_eq!([allowed(1_099), allowed(1_100), allowed(1_100)], [false, true, false]);
        assert_eq!(
            [0; 5].map(|_| allowed(9_000)),
            [true, true, true, false, false],
            "time gives the burst back"
        );
        assert!(may_begin(&ledger, Client::Principal("b"), pace, 9_000));
    }

    #[test]
    fn each_act_has_its_own_pace_and_to_ask_is_not_to_act() {
        let ledger = Ledger::new(1);
        let pace = Pace { burst: 1, interval_us: 1_000_000 };
        let account = ledger.enter(Client::Principal("a"), Item::Connection, 1).expect("room");
        assert_eq!([0; 3].map(|_| ledger.check_pace(account, Act::Guess, pace, 0)), [Ok(()); 3]);
        assert_eq!(ledger.pace_in(account, Act::Guess, pace, 0), Ok(()));
        assert_eq!(ledger.check_pace(account, Act::Guess, pace, 999), Err(Full));
        assert_eq!(ledger.pace_in(account, Act::Begin, pace, 0), Ok(()));
        assert_eq!(ledger.check_pace(account, Act::Guess, pace, 1_000), Ok(()));
    }

    #[test]
    fn whoever_comes_and_goes_keeps_its_pace_and_what_is_remembered_is_bounded() {
        let ledger = Ledger::new(1);
        let pace = Pace { burst: 1, interval_us: 1_000_000 };
        assert!(may_begin(&ledger, Client::Principal("a"), pace, 0));
        assert!(!may_begin(&ledger, Client::Principal("a"), pace, 0));
        for number in 0..3 * u32::try_from(LEDGER_IDLE_ACCOUNTS_MAX).expect("few") {
            assert!(may_begin(&ledger, Client::Address(IpAddr::V4(number.into())), pace, 0));
        }
        assert!(ledger.accounts() <= LEDGER_IDLE_ACCOUNTS_MAX);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(
            ops in prop::collection::vec((0..6u8, any::<bool>(), 0..ITEMS, 1..4u32), 0..300)
        ) {
            let ledger = Ledger::new(7);
            let mut model: Vec<[Vec<(Account, u32)>; ITEMS]> = (0..6).map(|_| Default::default()).collect();
            let items = [Item::Connection, Item::Session, Item::Stream, Item::BodyKib, Item::KeptKib, Item::OwedKib];
            for (client, enters, item, many) in ops {
                let held = &mut model[usize::from(client)][item];
                if enters {
                    let client = Client::Address([10, 0, 0, client].into());
                    let entered = ledger.enter_many(client, items[item], many, 6);
                    let has: u32 = held.iter().map(|(_, many)| many).sum();
                    prop_assert_eq!(entered.is_ok(), has + many <= 6);
                    held.extend(entered.map(|account| (account, many)));
                } else if let Some((account, many)) = held.pop() {
                    ledger.leave_many(account, items[item], many);
                }
                let clients = model.iter().filter(|held| held.iter().any(|it| !it.is_empty())).count();
                prop_assert_eq!(ledger.accounts(), clients);
            }
        }
    }
}
