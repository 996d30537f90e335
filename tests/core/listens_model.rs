//! Listen streams against a list: whatever comes in between, each hears what it asked for, once and in order.

use crate::world::{
    ClientId, World, config,
    http::Event,
    stateless::{listen, tool_call},
};
use moorline::core::{Listening, Notification, NotificationKind, Tell, config::CoreConfig, jsonrpc};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A stream of that filter, one bit a kind, whose connection lands on that shard.
    Open(usize, u8),
    /// A message of that kind, said on that shard.
    Say(usize, u8),
    Reset(usize),
    HalfClose(usize),
    Stall(usize),
    Unstall(usize),
    /// The backend ends a stream.
    Close(usize),
    /// A call beside it all, with progress, and whether its client waits for the answer.
    Call(usize, bool),
    Advance(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize, any::<u8>()).prop_map(|(shard, filter)| Step::Open(shard, filter)),
        8 => (0..3usize, 0..5u8).prop_map(|(shard, kind)| Step::Say(shard, kind)),
        1 => any::<usize>().prop_map(Step::Reset),
        1 => any::<usize>().prop_map(Step::HalfClose),
        1 => any::<usize>().prop_map(Step::Stall),
        1 => any::<usize>().prop_map(Step::Unstall),
        1 => any::<usize>().prop_map(Step::Close),
        2 => (0..3usize, any::<bool>()).prop_map(|(shard, waits)| Step::Call(shard, waits)),
        2 => any::<u16>().prop_map(Step::Advance),
    ]
}

/// A message of that kind which carries its number.
fn message(kind: u8, number: usize) -> Notification {
    let (kind, method) = match kind {
        0 => (NotificationKind::ToolsListChanged, "notifications/tools/list_changed"),
        1 => (NotificationKind::PromptsListChanged, "notifications/prompts/list_changed"),
        2 => (NotificationKind::ResourcesListChanged, "notifications/resources/list_changed"),
        3 => (NotificationKind::ResourceUpdated("u:1".into()), "notifications/resources/updated"),
        _ => (NotificationKind::ResourceUpdated("u:2".into()), "notifications/resources/updated"),
    };
    let params = format!(r#"{{"text":"{number}"}}"#);
    Notification { kind, json: jsonrpc::notification(method, Some(params.as_bytes())) }
}

struct Stream {
    client: ClientId,
    call: (usize, moorline::core::CallKey),
    filter: u8,
    expected: Vec<String>,
    heard: Vec<String>,
    is_open: bool,
}

struct Model {
    world: World,
    streams: Vec<Stream>,
    said: usize,
}

impl Model {
    fn step(&mut self, step: Step) {
        match step {
            Step::Open(shard, filter) => self.open(shard, filter),
            Step::Say(shard, kind) => {
                self.said += 1;
                for stream in self.streams.iter_mut().filter(|stream| stream.is_open) {
                    if stream.filter & 1 << kind != 0 {
                        stream.expected.push(self.said.to_string());
                    }
                }
                self.world.tell(shard, Tell::Broadcast(message(kind, self.said)));
            }
            Step::Reset(index) => self.with(index, |world, client| world.reset(client)),
            Step::HalfClose(index) => self.with(index, |world, client| world.half_close(client)),
            Step::Stall(index) => self.with(index, |world, client| world.stall(client)),
            Step::Unstall(index) => self.with(index, |world, client| world.open_window(client, usize::MAX)),
            Step::Close(index) => {
                let open: Vec<_> = self.streams.iter().filter(|stream| stream.is_open).collect();
                if let Some(index) = index.checked_rem(open.len()) {
                    let (shard, key) = open[index].call;
                    self.world.answer(shard, key, r#"{"resultType":"complete"}"#);
                    let client = open[index].client;
                    let closed = self.streams.iter_mut().find(|stream| stream.client == client);
                    closed.unwrap().is_open = false;
                }
            }
            Step::Call(shard, waits) => {
                let client = self.world.connect_to(shard);
                let (shard, call) = self.world.begin_exchange(client, &tool_call("1"));
                self.world.progress(shard, call.key, 1);
                if waits {
                    self.world.answer(shard, call.key, "{}");
                    assert_eq!(self.world.response(client).messages().len(), 2);
                }
                self.world.reset(client);
            }
            Step::Advance(ms) => self.world.advance(u64::from(ms) / 4),
        }
        self.look();
    }

    fn open(&mut self, shard: usize, filter: u8) {
        let client = self.world.connect_to(shard);
        let call = self.world.begin_exchange(client, &listen("\"s\"", "{}"));
        let uris = [(8, "u:1"), (16, "u:2")].into_iter().filter(|(bit, _)| filter & bit != 0);
        let listening = Listening {
            tools: filter & 1 != 0,
            prompts: filter & 2 != 0,
            resources: filter & 4 != 0,
            uris: uris.map(|(_, uri)| uri.into()).collect(),
        };
        self.world.tell(call.0, Tell::Listen(call.1.key, listening));
        assert_eq!(self.world.response(client).messages().len(), 1);
        let call = (call.0, call.1.key);
        let (expected, heard) = (Vec::new(), Vec::new());
        self.streams.push(Stream { client, call, filter, expected, heard, is_open: true });
    }

    /// Does something with one of the streams whose connections are there.
    fn with(&mut self, index: usize, act: fn(&mut World, ClientId)) {
        let alive: Vec<_> = self.streams.iter().filter(|stream| stream.is_open).collect();
        if let Some(index) = index.checked_rem(alive.len()) {
            act(&mut self.world, alive[index].client);
        }
    }

    /// Takes what arrived, and notices who is gone.
    fn look(&mut self) {
        for stream in &mut self.streams {
            let events = self.world.events(stream.client);
            let numbers = events.iter().filter(|event| !event.is_comment()).filter_map(Event::text);
            stream.heard.extend(numbers);
            let client = self.world.client(stream.client);
            stream.is_open &= !client.gone && client.ending.is_none();
        }
    }

    fn check(&mut self) {
        for index in 0..self.streams.len() {
            let (client, is_open) = (self.streams[index].client, self.streams[index].is_open);
            if is_open {
                self.world.open_window(client, usize::MAX);
            }
        }
        self.look();
        for stream in &self.streams {
            assert!(stream.expected.starts_with(&stream.heard), "{:?} {:?}", stream.heard, stream.expected);
            let is_whole = stream.heard.len() == stream.expected.len();
            assert!(is_whole || !stream.is_open, "an open stream hears everything");
        }
        let open = self.streams.iter().filter(|stream| stream.is_open).count();
        let counted: usize = self.world.shards.iter().map(|shard| shard.population().attached.listens).sum();
        assert_eq!(counted, open, "whoever is gone is forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_stream_hears_what_it_asked_for_once_and_in_order(
        shards in 1..=3u16,
        budget in prop::sample::select(vec![1, 3, 1_000]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let world = World::with(CoreConfig { keep_alive_ms: 5_000, ..config(shards) });
        let mut model = Model { world, streams: Vec::new(), said: 0 };
        model.world.pump_budget = budget;
        for step in steps {
            let on = |shard: usize| shard % usize::from(shards);
            model.step(match step {
                Step::Open(shard, filter) => Step::Open(on(shard), filter),
                Step::Say(shard, kind) => Step::Say(on(shard), kind),
                Step::Call(shard, waits) => Step::Call(on(shard), waits),
                other => other,
            });
        }
        model.check();
    }
}
