//! The election of the primary against a list: who is written to, and that nothing is lost, doubled or reordered.
//!
//! The model knows the rules of listener streams and nothing of slots, offsets or logs: it has a list of attached streams
//! in the order they were attached, the messages that wait, and what each peer has in flight. Keep-alive is off, so that
//! the probe is the only occasion to learn that a demoted peer lives.

use crate::world::{ClientId, World, config, http};
use proptest::prelude::*;

/// A multiple of the wheel's tick of which five seconds are none, so that no probe ends just when something happens.
const STEP_MS: u64 = 32;
const STEPS_OF_PROBE: u64 = 160;

#[derive(Clone, Copy, Debug)]
enum Op {
    Plain,
    FallThrough,
    /// A GET with the last id that a client saw, whether or not it is still connected.
    Resume(usize),
    Reset(usize),
    HalfClose(usize),
    /// The peer acknowledges nothing more.
    Silence(usize),
    /// It acknowledges everything again.
    Wake(usize),
    Announce,
    /// Longer than a probe takes.
    Pause,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Plain),
        2 => Just(Op::FallThrough),
        3 => any::<usize>().prop_map(Op::Resume),
        2 => any::<usize>().prop_map(Op::Reset),
        1 => any::<usize>().prop_map(Op::HalfClose),
        3 => any::<usize>().prop_map(Op::Silence),
        1 => any::<usize>().prop_map(Op::Wake),
        6 => Just(Op::Announce),
        2 => Just(Op::Pause),
    ]
}

// --- The model -----------------------------------------------------------------------------------

/// An attached stream.
#[derive(Debug)]
struct Stream {
    client: usize,
    number: u32,
    is_fallen_through: bool,
    is_demoted: bool,
    probe: Option<Probe>,
    /// Written and not acknowledged.
    unacked: Vec<String>,
}

#[derive(Debug)]
struct Probe {
    deadline_ms: u64,
    is_answered: bool,
}

#[derive(Debug, Default)]
struct Model {
    now_ms: u64,
    streams_begun: u32,
    /// In the order they were attached.
    attached: Vec<Stream>,
    /// The number of the primary.
    primary: Option<u32>,
    /// The primary that was cut last, unless it was cut again since as a shadow.
    cut_primary: Option<u32>,
    waiting: Vec<String>,
    /// What a stream that is gone did not deliver while nobody else was attached.
    left_behind: Option<(u32, Vec<String>)>,
    /// What went from that stream to another while the first's peer was still to get it.
    moved: Vec<Sent>,
    /// Of these a cursor has said that they arrived all the same: they move no further.
    proven: Vec<String>,
    /// Of each client: whether it acknowledges, what is in flight to it, what it got.
    peers: Vec<Peer>,
}

/// A message under the number of the stream it was written to.
type Sent = (u32, String);

#[derive(Debug, Default)]
struct Peer {
    is_silent: bool,
    in_flight: Vec<Sent>,
    got: Vec<Sent>,
}

impl Model {
    fn attach(&mut self, client: usize, number: u32, is_fallen_through: bool) {
        self.attached.push(Stream {
            client,
            number,
            is_fallen_through,
            is_demoted: false,
            probe: None,
            unacked: Vec::new(),
        });
    }

    fn new_number(&mut self) -> u32 {
        self.streams_begun += 1;
        self.streams_begun
    }

    fn new_peer(&mut self) -> usize {
        self.peers.push(Peer::default());
        self.peers.len() - 1
    }

    fn stream(&mut self, number: u32) -> &mut Stream {
        self.attached.iter_mut().find(|stream| stream.number == number).expect("attached")
    }

    /// A listener may take the place of nobody and of a fallen-through primary.
    fn primary_is_vacant(&self) -> bool {
        let is_listener =
            |number| self.attached.iter().any(|stream| stream.number == number && !stream.is_fallen_through);
        !self.primary.is_some_and(is_listener)
    }

    fn plain(&mut self) {
        let (client, number) = (self.new_peer(), self.new_number());
        self.attach(client, number, false);
        if self.primary_is_vacant() {
            return self.make_primary(number);
        }
        let deadline_ms = self.now_ms + 5_000;
        let primary = self.primary.expect("not vacant");
        let client = self.client_of(primary);
        let is_answered = !self.peers[client].is_silent;
        let primary = self.stream(primary);
        if primary.probe.is_none() {
            primary.probe = Some(Probe { deadline_ms, is_answered });
        }
    }

    fn client_of(&mut self, number: u32) -> usize {
        self.stream(number).client
    }

    fn fall_through(&mut self) {
        let (client, number) = (self.new_peer(), self.new_number());
        self.attach(client, number, true);
        if self.primary.is_none() {
            self.make_primary(number);
        }
    }

    /// Somebody comes back with the last id that the client `named` has seen, which is of that stream.
    fn resume(&mut self, number: u32, named: usize) {
        self.cursor_proves(number, named);
        let client = self.new_peer();
        let former = self.attached.iter().position(|stream| stream.number == number);
        let mut takes_over = self.cut_primary == Some(number);
        if let Some(former) = former {
            takes_over = self.primary == Some(number);
            self.primary = self.primary.filter(|primary| *primary != number);
            self.cut_primary =
                if takes_over { Some(number) } else { self.cut_primary.filter(|cut| *cut != number) };
            let left_over = self.attached.remove(former).client;
            let heir = self.new_number();
            self.attach(left_over, heir, false);
            self.stream(heir).is_demoted = true;
        }
        self.attach(client, number, false);
        let replayed = match self.left_behind.take() {
            Some((from, messages)) if from == number => messages,
            other => {
                self.left_behind = other;
                Vec::new()
            }
        };
        for text in replayed {
            self.proven.retain(|proven| *proven != text);
            self.write(number, text);
        }
        if takes_over || self.primary_is_vacant() {
            self.make_primary(number);
        }
    }

    /// Whoever names an event has what was written to its stream before.
    fn cursor_proves(&mut self, number: u32, named: usize) {
        let got = &self.peers[named].got;
        let proven = self.moved.iter().filter(|moved| moved.0 == number && got.contains(moved));
        self.proven.extend(proven.map(|(_, text)| text.clone()));
        if let Some((_, messages)) = &mut self.left_behind {
            messages.retain(|text| !self.proven.contains(text));
        }
        self.left_behind.take_if(|(_, messages)| messages.is_empty());
    }

    fn make_primary(&mut self, number: u32) {
        self.primary = Some(number);
        if let Some((_, mut messages)) = self.left_behind.take() {
            messages.retain(|text| !self.proven.contains(text));
            messages.append(&mut self.waiting);
            self.waiting = messages;
        }
        for text in std::mem::take(&mut self.waiting) {
            self.write(number, text);
        }
    }

    fn write(&mut self, number: u32, text: String) {
        let client = self.client_of(number);
        if self.peers[client].is_silent {
            self.peers[client].in_flight.push((number, text.clone()));
            self.stream(number).unacked.push(text);
        } else {
            self.peers[client].got.push((number, text));
        }
    }

    fn announce(&mut self, text: String) {
        match self.primary {
            Some(primary) => self.write(primary, text),
            None => self.waiting.push(text),
        }
    }

    /// Listeners before fallen-through streams before demoted ones; of equals the one attached last.
    fn best(&self) -> Option<&Stream> {
        let rank = |stream: &Stream| match (stream.is_demoted, stream.is_fallen_through) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        self.attached
            .iter()
            .enumerate()
            .max_by_key(|(index, stream)| (rank(stream), *index))
            .map(|(_, best)| best)
    }

    fn detach(&mut self, client: usize) {
        let index = self.attached.iter().position(|stream| stream.client == client).expect("attached");
        let gone = self.attached.remove(index);
        if self.primary == Some(gone.number) {
            self.primary = None;
            self.cut_primary = Some(gone.number);
        } else if self.cut_primary == Some(gone.number) {
            self.cut_primary = None;
        }
        self.peers[client].in_flight.clear();
        if !gone.unacked.is_empty() {
            assert!(self.left_behind.is_none(), "only while nobody is attached is anything left behind");
            self.left_behind = Some((gone.number, gone.unacked));
        }
        let heir = self.primary.or(self.best().map(|best| best.number));
        if let Some(heir) = heir {
            self.make_primary(heir);
        }
    }

    fn silence(&mut self, client: usize) {
        self.peers[client].is_silent = true;
    }

    fn wake(&mut self, client: usize) {
        let peer = &mut self.peers[client];
        peer.is_silent = false;
        peer.got.append(&mut peer.in_flight);
        if let Some(stream) = self.attached.iter_mut().find(|stream| stream.client == client) {
            stream.unacked.clear();
            if let Some(probe) = &mut stream.probe {
                probe.is_answered = true;
            }
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        let mut due: Vec<_> = self
            .attached
            .iter()
            .filter_map(|stream| Some((stream.probe.as_ref()?.deadline_ms, stream.number)))
            .filter(|(deadline_ms, _)| *deadline_ms <= self.now_ms)
            .collect();
        due.sort_unstable();
        for (_, number) in due {
            self.probe_ends(number);
        }
    }

    fn probe_ends(&mut self, number: u32) {
        let stream = self.stream(number);
        stream.is_demoted = !stream.probe.take().expect("due").is_answered;
        if !stream.is_demoted {
            return;
        }
        let better = self.best().filter(|best| !best.is_demoted).map(|best| best.number);
        let Some(heir) = self.primary.filter(|primary| *primary != number).or(better) else { return };
        let unacked = std::mem::take(&mut self.stream(number).unacked);
        self.moved.extend(unacked.iter().map(|text| (number, text.clone())));
        self.left_behind = Some((number, unacked));
        self.make_primary(heir);
    }
}

// --- Both ----------------------------------------------------------------------------------------

/// What a client of the world knows.
#[derive(Debug)]
struct Known {
    client: ClientId,
    is_connected: bool,
    last_id: String,
    got: Vec<String>,
}

struct Pair {
    world: World,
    owner: ClientId,
    /// A cursor of a finished POST.
    finished: String,
    known: Vec<Known>,
    model: Model,
    announced: usize,
}

impl Pair {
    fn new() -> Self {
        let mut config = config(1);
        config.keep_alive_ms = 0;
        config.replay_ttl_ms = 3_600_000;
        let mut world = World::with(config);
        let owner = world.open("2025-11-25");
        let (finished, _) = world.finished_post(owner);
        let model = Model { now_ms: world.now.ms, ..Model::default() };
        Pair { world, owner, finished, known: Vec::new(), model, announced: 0 }
    }

    fn step(&mut self, op: Op) {
        let room = self.model.attached.len() < 12;
        match op {
            Op::Plain if room => {
                self.open(None);
                self.model.plain();
            }
            Op::FallThrough if room => {
                self.open(Some(self.finished.clone()));
                self.model.fall_through();
            }
            Op::Resume(choice) if room => self.resume(choice),
            Op::Reset(choice) => self.close(choice, World::reset),
            Op::HalfClose(choice) => self.close(choice, World::half_close),
            Op::Silence(choice) => {
                if let Some(index) = self.connected(choice) {
                    self.world.hold(self.known[index].client);
                    self.model.silence(index);
                }
            }
            Op::Wake(choice) => {
                if let Some(index) = self.connected(choice) {
                    self.world.acknowledge(self.known[index].client);
                    self.model.wake(index);
                }
            }
            Op::Announce => {
                let text = self.announced.to_string();
                self.announced += 1;
                self.world.announce(self.owner, &text);
                self.model.announce(text);
            }
            Op::Pause => self.advance(STEPS_OF_PROBE * STEP_MS),
            Op::Plain | Op::FallThrough | Op::Resume(_) => {}
        }
        self.compare();
        self.advance(STEP_MS);
        self.compare();
    }

    fn open(&mut self, cursor: Option<String>) {
        let client = self.world.join(self.owner);
        match &cursor {
            None => self.world.get(client),
            Some(cursor) => self.world.get_after(client, cursor),
        }
        let response = self.world.response(client);
        assert!(response.status == 200 && !response.complete, "{response:?}");
        self.known.push(Known { client, is_connected: true, last_id: String::new(), got: Vec::new() });
        self.learn(self.known.len() - 1, &response.events());
    }

    fn resume(&mut self, choice: usize) {
        if self.known.is_empty() {
            return;
        }
        let named = choice % self.known.len();
        let cursor = self.known[named].last_id.clone();
        let stream = cursor.split('-').nth(1).expect("an event id");
        let Some(number) = stream.strip_prefix('l').map(|number| number.parse().expect("a number")) else {
            self.open(Some(cursor));
            return self.model.fall_through();
        };
        // Whoever names an older event, or one of a stream that is in the middle of something, asks for events twice.
        let is_latest = self.known.iter().all(|known| !is_later(&known.last_id, &cursor));
        let is_busy = self.model.attached.iter().any(|s| s.number == number && !s.unacked.is_empty());
        if is_latest && !is_busy {
            self.open(Some(cursor));
            self.model.resume(number, named);
        }
    }

    fn close(&mut self, choice: usize, how: fn(&mut World, ClientId)) {
        if let Some(index) = self.connected(choice) {
            how(&mut self.world, self.known[index].client);
            self.known[index].is_connected = false;
            self.model.detach(index);
        }
    }

    fn connected(&self, choice: usize) -> Option<usize> {
        let connected: Vec<_> =
            (0..self.known.len()).filter(|index| self.known[*index].is_connected).collect();
        (!connected.is_empty()).then(|| connected[choice % connected.len()])
    }

    fn advance(&mut self, ms: u64) {
        self.world.advance(ms);
        self.model.advance(ms);
    }

    fn learn(&mut self, index: usize, events: &[http::Event]) {
        let known = &mut self.known[index];
        for event in events {
            known.last_id = event.id.clone().unwrap_or_else(|| std::mem::take(&mut known.last_id));
            known.got.extend(event.text());
        }
    }

    fn compare(&mut self) {
        for index in 0..self.known.len() {
            if self.known[index].is_connected {
                let events = self.world.events(self.known[index].client);
                self.learn(index, &events);
            }
            let expected: Vec<_> = self.model.peers[index].got.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(self.known[index].got, expected, "what client {index} got");
            assert!(self.world.clients[self.known[index].client.0].closed != self.known[index].is_connected);
        }
    }

    /// All that are connected go; a last listener gets what nobody has.
    fn finish(mut self) {
        while let Some(index) = self.connected(0) {
            self.world.reset(self.known[index].client);
            self.known[index].is_connected = false;
            self.model.detach(index);
            self.compare();
        }
        self.step(Op::Plain);
        let mut got: Vec<usize> =
            self.known.iter().flat_map(|known| &known.got).map(|text| text.parse().unwrap()).collect();
        got.sort_unstable();
        got.dedup();
        assert_eq!(got, (0..self.announced).collect::<Vec<_>>(), "nothing is lost");
    }
}

/// Whether `one` is of the same stream as `other` and came later.
fn is_later(one: &str, other: &str) -> bool {
    let split =
        |id: &str| id.rsplit_once('-').map(|(stream, n)| (stream.to_owned(), n.parse::<u32>().unwrap()));
    matches!((split(one), split(other)), (Some((a, n)), Some((b, m))) if a == b && n > m)
}

/// Its client comes back with a cursor from before a message that has gone elsewhere since, and then with one from behind it.
#[test]
fn a_cursor_proves_nothing_of_what_its_client_said_it_had_not() {
    let mut pair = Pair::new();
    let ops = [
        Op::Plain,
        Op::Resume(0),
        Op::Plain,
        Op::Reset(1),
        Op::Reset(0),
        Op::Resume(1),
        Op::Silence(0),
        Op::Silence(1),
        Op::Announce,
        Op::Reset(1),
        Op::Resume(3),
        Op::Announce,
        Op::Resume(4),
    ];
    for op in ops {
        pair.step(op);
    }
    pair.finish();
}

/// A message has moved to a peer that is silent as well; then the first peer has it after all, and its client says so.
#[test]
fn what_a_cursor_proves_moves_no_further() {
    let mut pair = Pair::new();
    let ops = [
        Op::Plain,
        Op::FallThrough,
        Op::Silence(0),
        Op::Silence(1),
        Op::Announce,
        Op::Plain,
        Op::Reset(2),
        Op::Pause,
        Op::Plain,
        Op::Wake(0),
        Op::Resume(0),
    ];
    for op in ops {
        pair.step(op);
    }
    let got: Vec<_> = pair.known.iter().map(|known| known.got.len()).collect();
    assert_eq!(got, [1, 0, 0, 0, 0]);
    pair.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn listeners_are_elected_as_the_rules_say(ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new();
        for op in ops {
            pair.step(op);
        }
        pair.finish();
    }

    /// Peers that always acknowledge get every message exactly once, each in order.
    #[test]
    fn peers_that_acknowledge_get_every_message_once(ops in prop::collection::vec(op(), 1..80)) {
        let mut pair = Pair::new();
        for op in ops {
            if !matches!(op, Op::Silence(_)) {
                pair.step(op);
            }
        }
        let in_order = |known: &Known| known.got.is_sorted_by_key(|text| text.parse::<usize>().unwrap());
        assert!(pair.known.iter().all(in_order));
        let count: usize = pair.known.iter().map(|known| known.got.len()).sum();
        assert_eq!(count + pair.model.waiting.len(), pair.announced);
        pair.finish();
    }
}
