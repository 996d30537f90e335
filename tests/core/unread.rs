//! Large replies that nobody reads: they are counted, in their client's share too, and beyond it an answer fails its call.

use crate::{
    bodies::{connect_from, counted, open_from, reconfigure, stall},
    memory::call,
    world::{
        ClientId, World,
        ask::{post, post_head, request},
        config, stateless,
    },
};
use moorline::{
    core::{Ending, config::CoreConfig, http::policy::LegacySse, quotas::Quotas},
    limits::{ENTRY_BYTES_EXPECTED, MEMORY_STEP_BYTES},
};

const REVISION: &str = "2025-11-25";
const KIB: usize = 1024;
const DROPPED: &str = "read your replies";

fn share(kib: u32) -> CoreConfig {
    let config = config(1);
    let policy = config.policy.with_legacy_sse(LegacySse::On);
    CoreConfig { quotas: Quotas { body_kib: counted(kib), ..Quotas::NONE }, policy, ..config }
}

/// How a reply comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    /// With event ids, and kept for replay.
    Stream,
    StatelessJson,
    StatelessStream,
    Batch,
    Carried,
}

const FORMS: [Form; 6] =
    [Form::Json, Form::Stream, Form::StatelessJson, Form::StatelessStream, Form::Batch, Form::Carried];

impl Form {
    /// The newest revision that has it.
    fn revision(self) -> &'static str {
        if self == Form::Batch { "2025-03-26" } else { REVISION }
    }

    /// A call of the client at that address that takes none of its reply from here on. Returns who the reply is for.
    fn ask(self, world: &mut World, number: u8, owner: ClientId) -> ClientId {
        if self == Form::Carried {
            return ask_carried(world, number);
        }
        let client = connect_from(world, number);
        let session = world.session_field(owner);
        let in_session = |accept: &str, body: &str| {
            let length = body.len();
            post_head(&format!("{session}Accept: {accept}\r\nContent-Length: {length}\r\n")) + body
        };
        let single = request("1", "tools/call");
        let bytes = match self {
            Form::Json => in_session("application/json", &single),
            Form::Stream => in_session("text/event-stream", &single),
            Form::Batch => in_session("*/*", &format!("[{single},{}]", request("2", "ping"))),
            Form::StatelessJson => stateless::tool_call("1"),
            Form::StatelessStream => {
                stateless::tool_call("1").replacen("Accept: */*", "Accept: text/event-stream", 1)
            }
            Form::Carried => unreachable!("seen above"),
        };
        world.stall(client);
        world.send(client, bytes);
        client
    }
}

/// The same over HTTP+SSE, where the stream is what takes nothing.
fn ask_carried(world: &mut World, number: u8) -> ClientId {
    let (stream, uri) = open_carried(world, number);
    world.stall(stream);
    say(world, number, &uri, &request("1", "tools/call"));
    stream
}

/// A stream over HTTP+SSE from that address, and where its messages go.
fn open_carried(world: &mut World, number: u8) -> (ClientId, String) {
    let stream = connect_from(world, number);
    world.client(stream).initializing = true;
    let head =
        world.exchange(stream, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    let uri = head.events()[0].data.clone().unwrap();
    say(world, number, &uri, &World::initialize_body("2024-11-05"));
    say(world, number, &uri, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    world.client(stream).take_text();
    (stream, uri)
}

fn say(world: &mut World, number: u8, uri: &str, body: &str) {
    let poster = connect_from(world, number);
    let length = body.len();
    let status = world.exchange(
        poster,
        format!("POST {uri} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"),
    );
    assert_eq!(status.status, 202);
    world.reset(poster);
}

/// A result of that size in quotes.
fn answer_with(world: &mut World, kib: usize) {
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "y".repeat(kib * KIB)));
}

fn ask_and_answer(form: Form, world: &mut World, number: u8, owner: ClientId, kib: usize) -> ClientId {
    let client = form.ask(world, number, owner);
    answer_with(world, kib);
    client
}

/// All that comes once the client reads.
fn read(world: &mut World, client: ClientId) -> String {
    world.open_window(client, usize::MAX);
    world.client(client).take_text()
}

fn fills_share(kib: u32, world: &mut World, number: u8, owner: ClientId) -> bool {
    let (client, status) = stall(world, number, owner, kib as usize * KIB);
    if status.is_none() {
        world.reset(client);
    }
    status == Some(429)
}

#[test]
fn who_reads_nothing_takes_its_own_share_in_every_form_of_reply() {
    for form in FORMS {
        let mut world = World::with(share(1_000));
        let [mine, other] = [1, 2].map(|number| {
            let client = connect_from(&mut world, number);
            world.shake_hands(client, form.revision());
            client
        });
        let unread = [(); 2].map(|()| ask_and_answer(form, &mut world, 1, mine, 600));
        let late = ask_and_answer(form, &mut world, 1, mine, 600);
        assert!(world.census.kept() + MEMORY_STEP_BYTES >= 1_200 * KIB, "{form:?}");
        assert!(fills_share(10, &mut world, 1, mine), "{form:?}: bodies have the same share");
        let theirs = ask_and_answer(form, &mut world, 2, other, 600);
        let small = ask_and_answer(form, &mut world, 1, mine, 3);
        let refused = read(&mut world, late);
        assert!(refused.contains(DROPPED) && !refused.contains("yyyy"), "{form:?}: {refused}");
        assert!(refused.contains("-32000"), "{form:?}: {refused}");
        for client in unread.into_iter().chain([theirs, small]) {
            let text = read(&mut world, client);
            assert!(text.contains("yyyy") && !text.contains(DROPPED), "{form:?}");
        }
        assert_eq!(world.counted("clients_over_quota"), 2, "{form:?}");
        assert!(!fills_share(900, &mut world, 1, mine), "{form:?}: all was read");
        let again = ask_and_answer(form, &mut world, 1, mine, 600);
        assert!(read(&mut world, again).contains("yyyy"), "{form:?}");
    }
}

#[test]
fn a_reply_counts_until_its_last_byte_is_taken() {
    for form in FORMS {
        let mut world = World::with(share(1_000));
        let mine = connect_from(&mut world, 1);
        world.shake_hands(mine, form.revision());
        let slow = ask_and_answer(form, &mut world, 1, mine, 950);
        for _ in 0..9 {
            world.advance(20_000);
            world.open_window(slow, 100 * KIB);
            assert_eq!(world.ending(slow), None, "{form:?}: it goes on");
            assert!(fills_share(100, &mut world, 1, mine), "{form:?}");
        }
        assert!(read(&mut world, slow).contains("yyyy"), "{form:?}");
        assert!(!fills_share(100, &mut world, 1, mine), "{form:?}");
    }
}

#[test]
fn what_a_dead_connection_did_not_take_leaves_the_share() {
    for form in FORMS {
        let mut world = World::with(share(1_000));
        let mine = connect_from(&mut world, 1);
        world.shake_hands(mine, form.revision());
        let gone = ask_and_answer(form, &mut world, 1, mine, 990);
        assert!(fills_share(100, &mut world, 1, mine), "{form:?}");
        world.advance(31_000);
        assert_eq!(world.ending(gone), Some(Ending::Cut), "{form:?}");
        assert!(!fills_share(100, &mut world, 1, mine), "{form:?}");
        world.delete(mine);
        world.advance(200_000);
        assert!(world.census.kept() < MEMORY_STEP_BYTES, "{form:?}: {}", world.census.kept());
    }
}

#[test]
fn a_reply_larger_than_a_share_arrives() {
    for form in FORMS {
        let mut world = World::with(share(10));
        let mine = connect_from(&mut world, 1);
        world.shake_hands(mine, form.revision());
        for _ in 0..3 {
            let client = ask_and_answer(form, &mut world, 1, mine, 600);
            assert!(read(&mut world, client).contains("yyyy"), "{form:?}");
        }
        assert_eq!(world.counted("clients_over_quota"), 0, "{form:?}");
    }
}

#[test]
fn the_body_of_a_call_leaves_its_answer_room() {
    let mut world = World::with(share(600));
    let mine = open_from(&mut world, 1);
    let fields = world.session_field(mine);
    let body = call(600 * KIB - call(0).len());
    let padding = format!(r#""name":"echo","arguments":{{"padding":"{}"}}"#, "x".repeat(599 * KIB));
    let without_session = post(
        &stateless::fields("tools/call", "Mcp-Name: echo\r\n"),
        &stateless::body("1", "tools/call", &padding),
    );
    for request in [post(&fields, &body), without_session] {
        let caller = connect_from(&mut world, 1);
        request.as_bytes().chunks(50 * KIB).for_each(|part| world.send(caller, part));
        answer_with(&mut world, 600);
        assert!(world.response(caller).text().contains("yyyy"));
    }
}

/// A batch whose answers are there but for one holds them, and no more than others may.
#[test]
fn the_answers_of_a_batch_count_while_they_wait_for_the_last() {
    let mut world = World::with(share(1_000));
    let mine = connect_from(&mut world, 1);
    world.shake_hands(mine, "2025-03-26");
    let calls = ["1", "2", "3", "4"].map(|id| request(id, "tools/call")).join(",");
    let caller = connect_from(&mut world, 1);
    let fields = world.session_field(mine);
    world.send(caller, post(&fields, &format!("[{calls}]")));
    for _ in 0..3 {
        answer_with(&mut world, 600);
    }
    assert!(fills_share(10, &mut world, 1, mine));
    answer_with(&mut world, 1);
    let replies = world.response(caller).text();
    assert_eq!(replies.matches("-32000").count(), 1, "the third");
    assert_eq!(replies.matches(r#""text":"yyyy"#).count(), 3);
    assert!(!fills_share(900, &mut world, 1, mine));
}

/// Over HTTP+SSE answers wait behind the one that is being written.
#[test]
fn answers_that_wait_for_one_stream_are_as_much_as_the_share_at_most() {
    let mut world = World::with(share(1_000));
    let (stream, uri) = open_carried(&mut world, 1);
    world.stall(stream);
    for id in ["1", "2", "3", "4"] {
        say(&mut world, 1, &uri, &request(id, "tools/call"));
    }
    for _ in 0..4 {
        answer_with(&mut world, 600);
    }
    let text = read(&mut world, stream);
    assert_eq!((text.matches(r#""text":"yyyy"#).count(), text.matches(DROPPED).count()), (3, 1));
    say(&mut world, 1, &uri, &request("5", "tools/call"));
    answer_with(&mut world, 600);
    assert!(world.client(stream).take_text().contains("yyyy"));
}

/// The connection of a batch may be gone while its calls run.
#[test]
fn a_batch_that_nobody_waits_for_is_counted_until_its_end() {
    let mut world = World::with(share(1_000));
    let mine = connect_from(&mut world, 1);
    world.shake_hands(mine, "2025-03-26");
    let padding = "x".repeat(100 * KIB);
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"padding":"{padding}"}}}}"#);
    let caller = connect_from(&mut world, 1);
    let fields = world.session_field(mine);
    let batch = post(&fields, &format!("[{large},{}]", request("2", "tools/call")));
    batch.as_bytes().chunks(50 * KIB).for_each(|part| world.send(caller, part));
    world.reset(caller);
    answer_with(&mut world, 700);
    assert!(fills_share(300, &mut world, 1, mine));
    answer_with(&mut world, 1);
    assert!(!fills_share(900, &mut world, 1, mine));
}

#[test]
fn replies_that_wait_are_part_of_the_memory_limit() {
    for form in FORMS {
        let memory_bytes_max = 20 * ENTRY_BYTES_EXPECTED + 1_000 * KIB;
        let mut world = World::with(CoreConfig { memory_bytes_max, ..share(u32::MAX) });
        let mine = connect_from(&mut world, 1);
        world.shake_hands(mine, form.revision());
        let begin = post("", &World::initialize_body(REVISION));
        let unread = [(); 2].map(|()| ask_and_answer(form, &mut world, 1, mine, 600));
        let newcomer = connect_from(&mut world, 2);
        assert_eq!(world.exchange(newcomer, &begin).status, 503, "{form:?}");
        // Over HTTP+SSE each of them begins a session, which is a newcomer.
        let third = (form != Form::Carried).then(|| ask_and_answer(form, &mut world, 1, mine, 600));
        for client in unread.into_iter().chain(third) {
            assert!(read(&mut world, client).contains("yyyy"), "{form:?}: those inside are served");
        }
        // What is kept for replay has its time.
        world.advance(130_000);
        assert_eq!(world.exchange_alone(&begin).status, 200, "{form:?}");
    }
}

/// What a connection did not take is kept for its session, and counted there.
#[test]
fn a_lost_reply_is_counted_as_long_as_it_is_kept() {
    let mut world = World::with(share(u32::MAX));
    let mine = open_from(&mut world, 1);
    let gone = ask_and_answer(Form::Json, &mut world, 1, mine, 600);
    world.reset(gone);
    assert!(world.census.kept() + MEMORY_STEP_BYTES >= 600 * KIB);
    let listener = world.join(mine);
    world.get(listener);
    assert!(world.client(listener).take_text().contains("yyyy"), "it is what the next GET gets");
    world.advance(130_000);
    assert!(world.census.kept() < MEMORY_STEP_BYTES, "{}", world.census.kept());
}

#[test]
fn a_lost_reply_is_in_the_share_while_a_get_has_it_unread() {
    let mut world = World::with(share(600));
    let mine = open_from(&mut world, 1);
    let gone = ask_and_answer(Form::Json, &mut world, 1, mine, 600);
    world.reset(gone);
    assert!(!fills_share(10, &mut world, 1, mine));
    let listener = connect_from(&mut world, 1);
    world.client(listener).session = world.client(mine).session.clone();
    world.stall(listener);
    world.get(listener);
    world.open_window(listener, KIB);
    assert!(fills_share(10, &mut world, 1, mine));
    assert!(read(&mut world, listener).contains("yyyy"));
    assert!(!fills_share(10, &mut world, 1, mine));
}

#[test]
fn what_is_taken_back_from_a_connection_leaves_the_share() {
    let mut world = World::with(share(600));
    let mine = open_from(&mut world, 1);
    let client = Form::Stream.ask(&mut world, 1, mine);
    world.advance(2_000);
    world.open_window(client, 10 * KIB);
    let cursor = world.response(client).events()[0].id.clone().unwrap();
    world.stall(client);
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    world.answer(shard, call.key, &format!(r#"{{"text":"{}"}}"#, "y".repeat(600 * KIB)));
    assert!(fills_share(10, &mut world, 1, mine));
    // Another address goes on with it, and so has it in its share.
    world.client(client).session = world.client(mine).session.clone();
    let (_, resumed) = world.resume(client, &cursor);
    assert!(resumed.text().contains("yyyy"));
    assert!(!fills_share(600, &mut world, 1, mine));
}

#[test]
fn a_share_that_comes_later_knows_what_waits_since() {
    let none = CoreConfig { quotas: Quotas::NONE, ..share(0) };
    let mut world = World::with(none);
    let mine = open_from(&mut world, 1);
    let before = ask_and_answer(Form::Json, &mut world, 1, mine, 600);
    let quotas = Quotas { body_kib: counted(500), ..Quotas::NONE };
    reconfigure(&mut world, CoreConfig { quotas, ..share(0) });
    let since = ask_and_answer(Form::Json, &mut world, 1, mine, 600);
    let beyond = ask_and_answer(Form::Json, &mut world, 1, mine, 600);
    assert!(read(&mut world, beyond).contains(DROPPED));
    for client in [before, since] {
        assert!(read(&mut world, client).contains("yyyy"));
    }
    world.reset(mine);
    let accounts = |world: &World| world.census.ledger().accounts();
    assert!(accounts(&world) > 0);
    for client in 0..world.clients.len() {
        if world.ending(ClientId(client)).is_none() {
            world.reset(ClientId(client));
        }
    }
    world.advance(3 * 3_600_000);
    assert_eq!(accounts(&world), 0);
}
