//! Several shards: whatever shard a connection lands on, it sees the same server.

use crate::world::{
    World,
    ask::{bodiless, cancellation, chunked, messages, notification, post, post_head, request},
    client::ClientId,
    config,
    stateless::stateless,
};
use moorline::core::{
    ConnKey, Effect, Ending, Interest,
    config::{CoreConfig, StatelessHome},
};
use moorline::limits::ACK_RECHECK_MS;

const SHARDS: [u16; 3] = [1, 2, 4];
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// Runs `check` for every number of shards, every owner of the session and every shard the connection lands on.
fn for_every_landing(check: impl Fn(&mut World, ClientId, usize)) {
    for shards in SHARDS {
        for owner in 0..usize::from(shards) {
            for landing in 0..usize::from(shards) {
                let mut world = World::with(config(shards));
                let client = world.open_on(owner, "2025-11-25");
                assert_eq!(world.client(client).moves, 0, "a session is where its connection was");
                check(&mut world, client, landing);
                let moved = world.counted("connections_moved");
                assert!(landing != owner || moved == 0, "nothing moves to where it is");
            }
        }
    }
}

/// What was served must not depend on the landing: the connection moved once if it had to, and never again.
#[track_caller]
fn assert_settled(world: &mut World, client: ClientId, owner: ClientId, landing: usize) {
    let home = world.client(owner).shard;
    let entry = world.client(client);
    assert_eq!((entry.shard, entry.moves), (home, usize::from(landing != home)));
}

#[test]
fn basic_behaviour_is_the_same_on_every_shard() {
    for_every_landing(|world, client, landing| {
        let guest = world.join_on(client, landing);
        assert_eq!(world.ask_for(guest, &request("1", "ping")).json()["id"], 1);
        assert_settled(world, guest, client, landing);
        assert_eq!(world.counted("requests"), 3, "initialize, initialized and ping, each once");

        // A listener, a call as JSON, a call as a stream, a notification, a cancellation.
        let listener = world.join_on(client, landing);
        world.get(listener);
        assert_eq!(world.response(listener).events()[0].data.as_deref(), Some(""));
        world.announce(client, "hello");
        assert_eq!(world.texts(listener), ["hello"]);
        let (shard, call) = world.begin(guest, r#""j""#);
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(guest).json()["id"], "j");
        let poster = world.join_on(client, landing);
        let (shard, call) = world.begin_stream(poster, "7");
        world.advance(16_000);
        world.answer(shard, call.key, "{}");
        let text = world.client(poster).take_text();
        assert!(
            text.contains(": keepalive\n\n") && text.contains(r#""id":7"#) && text.ends_with("0\r\n\r\n")
        );
        assert!(world.events(listener).iter().all(|event| event.is_keep_alive()));
        let canceller = world.join_on(client, landing);
        let (_, call) = world.begin(guest, "8");
        assert_eq!(world.ask_for(canceller, &cancellation("8")).status, 202);
        assert_eq!((world.response(guest).status, &world.cancelled[..]), (202, &[call.key][..]));
        assert_eq!(world.ask_for(guest, &notification("x")).status, 202);

        // Continued from anywhere, ended from anywhere.
        let back = world.join_on(client, landing);
        let (_, _) = world.begin_stream(poster, "9");
        world.reset(poster);
        world.reset(listener);
        world.get_with(back, "");
        assert_eq!(world.response(back).status, 200);
        let ender = world.join_on(client, landing);
        world.delete(ender);
        assert_eq!(world.response(ender).status, 204);
        assert!(world.client(back).take_text().ends_with("0\r\n\r\n"));
        world.assert_no_session_left();
        for survivor in [guest, ender, back, client] {
            assert_eq!(world.ask_for(survivor, &request("1", "ping")).status, 404);
        }
        let late = world.join_on(client, landing);
        world.get(late);
        assert_eq!(world.response(late).status, 404);
        world.advance(200_000);
        assert_eq!((world.census.connections(), world.timers()), (0, 0));
    });
}

#[test]
fn a_request_stream_is_continued_from_any_shard() {
    for_every_landing(|world, client, landing| {
        let poster = world.join_on(client, landing);
        let (shard, call) = world.begin(poster, "1");
        world.progress(shard, call.key, 1);
        let cursor = world.response(poster).events()[1].id.clone().unwrap();
        world.reset(poster);
        world.progress(shard, call.key, 2);
        let back = world.join_on(client, landing);
        world.get_after(back, &cursor);
        world.answer(shard, call.key, "{}");
        let reply = world.response(back);
        let found: Vec<_> = messages(&reply.events());
        assert!(reply.complete);
        assert_eq!(
            (found.len(), &found[0]["params"]["progress"], &found[1]["id"]),
            (2, &2.into(), &1.into())
        );
        assert_settled(world, back, client, landing);
    });
}

#[test]
fn a_pipeline_of_requests_for_sessions_of_all_shards_is_answered_in_order() {
    for shards in SHARDS {
        for landing in 0..usize::from(shards) {
            let mut world = World::with(config(shards));
            let sessions: Vec<ClientId> =
                (0..usize::from(shards)).map(|shard| world.open_on(shard, "2025-06-18")).collect();
            let fields: Vec<String> = sessions.iter().map(|client| world.session_field(*client)).collect();
            let round = |round: usize| {
                let of = |(index, field): (usize, &String)| {
                    post(field, &request(&format!("{round}{index}"), "ping"))
                };
                fields.iter().enumerate().map(of).collect::<String>()
            };
            let pipeline = round(1) + &bodiless("PUT", "") + &round(2) + &round(3);
            let mut expected: Vec<String> = Vec::new();
            for round in 1..=3 {
                if round == 2 {
                    expected.push("405".into());
                }
                expected.extend((0..fields.len()).map(|index| format!("{round}{index}")));
            }
            for cut in [0, 1, 70, 150, 250, pipeline.len() / 2, pipeline.len() - 3] {
                let client = world.connect_to(landing);
                world.send(client, &pipeline[..cut]);
                world.send(client, &pipeline[cut..]);
                let replies: Vec<String> = world
                    .responses(client)
                    .iter()
                    .map(|reply| match reply.status {
                        200 => reply.json()["id"].to_string(),
                        status => status.to_string(),
                    })
                    .collect();
                assert_eq!(replies, expected, "{shards} shards, landing {landing}, cut {cut}");
                assert_eq!(world.ending(client), None);
            }
        }
    }
}

#[test]
fn a_request_behind_a_slow_one_moves_only_after_its_reply() {
    let mut world = World::with(config(2));
    let (here, there) = (world.open_on(0, "2025-06-18"), world.open_on(1, "2025-06-18"));
    let client = world.connect_to(0);
    let (mine, yours) = (world.session_field(here), world.session_field(there));
    world.send(
        client,
        [
            post(&mine, &request("1", "tools/call")),
            post(&yours, &request("2", "tools/call")),
            post(&mine, &request("3", "ping")),
        ]
        .concat(),
    );
    world.half_close(client);
    assert_eq!((world.calls.len(), world.client(client).moves), (1, 0));
    let (shard, call) = world.take_call();
    // Written in small parts: the move waits for the last byte.
    world.client(client).window = 30;
    world.answer(shard, call.key, "{}");
    assert_eq!(world.client(client).moves, 0);
    world.open_window(client, 1 << 20);
    assert_eq!(world.client(client).moves, 1);
    let (shard, call) = world.take_call();
    assert_eq!(shard, 1);
    world.answer(shard, call.key, "{}");
    let ids: Vec<_> = world.responses(client).iter().map(|reply| reply.json()["id"].clone()).collect();
    assert_eq!((ids, world.client(client).moves), (vec![1.into(), 2.into(), 3.into()], 2));
}

/// A connection on which a reply of one shard has not arrived, and the next request is for another shard.
struct Held {
    world: World,
    /// Whose session is where the connection is.
    here: ClientId,
    client: ClientId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Json,
    Stream,
}

impl Held {
    fn with(reply: Reply) -> Self {
        let mut world = World::with(config(2));
        let (here, there) = (world.open_on(0, "2025-11-25"), world.open_on(1, "2025-06-18"));
        let client = world.connect_to(0);
        world.hold(client);
        let (mine, yours) = (world.session_field(here), world.session_field(there));
        world.send(client, post(&mine, &request("1", "tools/call")));
        let (shard, call) = world.take_call();
        if reply == Reply::Stream {
            world.progress(shard, call.key, 1);
        }
        world.answer(shard, call.key, "{}");
        world.send(client, post(&yours, &request("2", "tools/call")));
        Held { world, here, client }
    }
}

#[test]
fn a_connection_moves_when_what_was_written_on_it_has_arrived() {
    let Held { mut world, client, .. } = Held::with(Reply::Json);
    world.advance(10 * ACK_RECHECK_MS);
    assert_eq!(world.client(client).moves, 0);
    world.acknowledge(client);
    world.advance(2 * ACK_RECHECK_MS);
    assert_eq!(world.client(client).moves, 1);
    let (shard, call) = world.take_call();
    world.answer(shard, call.key, "{}");
    assert_eq!(world.responses(client).len(), 2);
}

#[test]
fn a_connection_moves_when_the_session_ends_for_whose_reply_it_waited() {
    let Held { mut world, here, client } = Held::with(Reply::Stream);
    assert_eq!(world.client(client).moves, 0);
    assert_eq!(world.interest(client), Interest::Failure, "only its end would tell that the peer is gone");
    let (other, mine) = (world.join_on(here, 0), world.session_field(here));
    world.send(other, bodiless("DELETE", &mine));
    assert_eq!(world.client(client).moves, 1);
}

#[test]
fn a_reply_that_was_to_arrive_before_a_move_is_recovered_when_it_does_not() {
    let Held { mut world, here, client } = Held::with(Reply::Json);
    world.reset(client);
    let listener = world.join_on(here, 0);
    world.get(listener);
    let events = world.response(listener).events();
    assert!(events.iter().any(|event| event.name.is_some() && event.json()["id"] == 1), "{events:?}");
}

#[test]
fn a_connection_moves_with_as_much_of_its_body_as_has_come() {
    for_every_landing(|world, client, landing| {
        let session = world.session_field(client);
        let body = request("1", "ping");
        let length = format!("{session}Content-Length: {}\r\n", body.len());
        let chunks = format!("{session}Transfer-Encoding: chunked\r\n");
        for whole in [post_head(&length) + &body, post_head(&chunks) + &chunked(&body, 7)] {
            let head_len = whole.find("\r\n\r\n").unwrap() + 4;
            for cut in [head_len - 1, head_len, head_len + 1, head_len + 9, whole.len() - 1] {
                let guest = world.connect_to(landing);
                world.send(guest, &whole[..cut]);
                assert!(world.is_silent(guest));
                assert_eq!(world.exchange(guest, &whole[cut..]).json()["id"], 1, "cut at {cut}");
                assert_settled(world, guest, client, landing);
                world.reset(guest);
            }
        }
    });
}

#[test]
fn the_body_of_a_moved_request_has_its_deadline() {
    for_every_landing(|world, client, landing| {
        let session = world.session_field(client);
        let guest = world.connect_to(landing);
        world.send(guest, post_head(&format!("{session}Content-Length: 50\r\n")) + "{");
        world.advance(29_900);
        assert!(world.is_silent(guest));
        world.advance(200);
        assert_eq!(world.response(guest).status, 408);
        assert_eq!(world.ending(guest), Some(Ending::Orderly));
    });
}

#[test]
fn a_100_is_sent_once_by_the_shard_that_reads_the_body() {
    for_every_landing(|world, client, landing| {
        let session = world.session_field(client);
        let body = request("1", "ping");
        let expect = format!("{session}Expect: 100-continue\r\nContent-Length: {}\r\n", body.len());
        let guest = world.connect_to(landing);
        world.send(guest, post_head(&expect));
        assert_eq!(world.client(guest).take_text(), CONTINUE);
        assert_eq!(world.exchange(guest, &body).json()["id"], 1);
        assert_settled(world, guest, client, landing);
        let refused = world.connect_to(landing);
        let reply = world.exchange(refused, post_head(&format!("{expect}Accept: image/png\r\n")));
        assert_eq!((reply.status, world.ending(refused)), (406, Some(Ending::Orderly)));
    });
}

#[test]
fn refusals_are_the_same_wherever_the_connection_lands() {
    let replies = |landing: usize| {
        let mut world = World::with(config(4));
        let client = world.open_on(2, "2025-06-18");
        let session = world.session_field(client);
        let unknown = session.replace("Id: 02", "Id: 03");
        let beyond = session.replace("Id: 02", "Id: 04");
        let requests = [
            post(&session, "{"),
            post(&session, "[]"),
            post(&session, &World::initialize_body("2025-06-18")),
            post(&format!("{session}MCP-Protocol-Version: x\r\n"), &request("1", "ping")),
            bodiless("GET", &format!("{session}Accept: text/html\r\n")),
            bodiless("GET", &format!("{session}Last-Event-ID: x\r\n")),
            bodiless("GET", &session).replace("GET", "PUT"),
            post(&unknown, &request("1", "ping")),
            post(&beyond, &request("1", "ping")),
            bodiless("DELETE", &unknown),
            bodiless("DELETE", &beyond),
            post("", &request("1", "ping")),
        ];
        let guest = world.connect_to(landing);
        world.send(guest, requests.concat());
        world.client(guest).take_text()
    };
    let expected = replies(2);
    assert_eq!(expected.matches("HTTP/1.1 ").count(), 12);
    for landing in [0, 1, 3] {
        assert_eq!(replies(landing), expected, "landing on {landing}");
    }
}

#[test]
fn initialize_with_a_dead_id_works_wherever_the_id_points() {
    for shards in SHARDS {
        for landing in 0..usize::from(shards) {
            for named in 0..6 {
                let mut world = World::with(config(shards));
                let dead = format!("Mcp-Session-Id: {named:02x}{}\r\n", "0".repeat(40));
                let client = world.connect_to(landing);
                let reply = world.exchange(client, post(&dead, &World::initialize_body("2025-06-18")));
                assert_eq!(reply.status, 200);
                world.client(client).session = reply.field("mcp-session-id").map(str::to_owned);
                assert_eq!(world.ask_for(client, &request("1", "ping")).status, 200);
                assert!(world.client(client).moves <= 1, "it stays where its session is");
            }
        }
    }
}

#[test]
fn a_listener_that_moved_gets_its_comments_and_broadcasts() {
    for_every_landing(|world, client, landing| {
        let listener = world.join_on(client, landing);
        world.get(listener);
        world.response(listener);
        world.advance(15_016);
        assert!(world.events(listener).iter().any(|event| event.is_keep_alive()));
        let from = world.shards.len() - 1;
        world.tell(from, moorline::core::Tell::Broadcast(crate::world::other("to all")));
        assert_eq!(world.texts(listener), ["to all"], "once, whichever shard said it");
    });
}

#[test]
fn a_moved_connection_is_counted_once_and_leaves_no_timer_behind() {
    let mut world = World::with(CoreConfig { connections_max: 3, ..config(4) });
    let client = world.open_on(3, "2025-06-18");
    let mut guests = Vec::new();
    for landing in [0, 1] {
        let guest = world.join_on(client, landing);
        assert_eq!(world.ask_for(guest, &request("1", "ping")).status, 200);
        guests.push(guest);
    }
    assert_eq!(world.census.connections(), 3);
    assert!(world.try_connect_to(2).is_err(), "the cap is the process's");
    for shard in 0..3 {
        assert_eq!(world.shards[shard].population(), Default::default(), "shard {shard} forgot it");
    }
    for guest in guests {
        world.reset(guest);
    }
    world.reset(client);
    assert_eq!(world.census.connections(), 0);
}

/// The shard's next move, without a shell that carries it out.
fn next_move(world: &mut World, shard: usize, key: ConnKey) -> moorline::core::MovedConn {
    match world.shards[shard].next_effect() {
        Some(Effect::Move(moved)) if moved.conn == key => moved,
        other => panic!("no move but {other:?}"),
    }
}

#[test]
fn a_connection_that_finds_the_mailbox_full_is_refused_and_forgotten() {
    let mut world = World::with(CoreConfig { connections_max: 2, ..config(2) });
    let client = world.open_on(1, "2025-06-18");
    let session = world.session_field(client);
    for _ in 0..10 {
        let admitted = world.shards[0].connect(world.now);
        let moorline::core::shard::Admission::Admitted(key) = admitted else { panic!("{admitted:?}") };
        let bytes = post(&session, &request("1", "tools/call"));
        let now = world.now;
        world.shards[0].received(key, bytes.as_bytes().into(), now);
        let moved = next_move(&mut world, 0, key);
        assert_eq!((moved.shard.0, &moved.bytes[..]), (1, bytes.as_bytes()), "nothing was dispatched");
        assert!(moved.refusal.starts_with(b"HTTP/1.1 503 "));
        // The shell writes the refusal, closes, and says so in the name of a connection that came and died.
        let key = world.shards[0].adopt(Default::default(), None, moved.source, now);
        world.shards[0].lost(key, 0, now);
        world.shards[0].closed(key, 0, now);
        while world.shards[0].next_effect().is_some() {}
    }
    assert_eq!((world.shards[0].population().conns, world.census.connections()), (0, 1));
    assert!(world.calls.is_empty());
}

#[test]
fn a_request_that_was_read_goes_along_or_is_refused_undispatched() {
    let mut world = World::with(CoreConfig { connections_max: 2, ..config(2) });
    let state = r#""requestState":"moorline.1.x""#;
    let next = stateless("2", "tools/list", "");
    let now = world.now;
    for _ in 0..10 {
        let admitted = world.shards[0].connect(now);
        let moorline::core::shard::Admission::Admitted(key) = admitted else { panic!("{admitted:?}") };
        let bytes = stateless("1", "tools/list", state) + &next;
        world.shards[0].received(key, bytes.as_bytes().into(), now);
        let moved = next_move(&mut world, 0, key);
        assert_eq!((moved.shard.0, &moved.bytes[..]), (1, next.as_bytes()), "what follows goes along");
        assert!(moved.request.is_some() && moved.refusal.starts_with(b"HTTP/1.1 503 "));
        // The mailbox is full: the shell refuses it.
        world.shards[0].strayed(moved.source);
        assert_eq!((world.shards[0].population().exchanges, world.census.connections()), (0, 0));
    }
    assert!(world.calls.is_empty());
}

#[test]
fn what_one_principal_asks_without_a_session_is_worked_on_by_one_shard() {
    for shards in SHARDS {
        let home = StatelessHome::OfPrincipal;
        let mut world = World::with(CoreConfig { stateless_home: home, ..config(shards) });
        let mut homes = Vec::new();
        for landing in 0..usize::from(shards) {
            let client = world.connect_to(landing);
            let (home, call) = world.begin_exchange(client, &stateless("1", "tools/list", ""));
            world.answer(home, call.key, "{}");
            assert_eq!(world.response(client).status, 200);
            assert_eq!(world.client(client).moves, usize::from(home != landing), "at most once");
            homes.push(home);
        }
        homes.dedup();
        assert_eq!(homes.len(), 1, "wherever a connection lands: {homes:?}");
    }
}

#[test]
fn a_peer_that_is_lost_while_its_connection_moves_is_forgotten() {
    let mut world = World::with(config(2));
    let client = world.open_on(1, "2025-06-18");
    let session = world.session_field(client);
    let moorline::core::shard::Admission::Admitted(key) = world.shards[0].connect(world.now) else {
        panic!()
    };
    let now = world.now;
    world.shards[0].received(key, post(&session, &request("1", "ping")).as_bytes().into(), now);
    world.shards[0].lost(key, 0, now);
    while let Some(effect) = world.shards[0].next_effect() {
        assert!(matches!(effect, Effect::Close(closed, _) if closed == key), "{effect:?}");
        world.shards[0].closed(key, 0, now);
    }
    assert_eq!((world.shards[0].population().conns, world.census.connections()), (0, 1));
}
