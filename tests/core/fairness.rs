//! What one client may have, and that nobody pays for what another one does.

use crate::world::{
    ClientId, World,
    ask::{bodiless, post, request},
    config,
    http::Response,
    stateless,
};
use moorline::core::{
    Listening, Tell,
    auth::{Authenticator, Digest, Resource, Scheme, Tokens},
    config::{CoreConfig, StatelessHome},
    quotas::{Loopback, Quota, Quotas},
};
use std::{net::IpAddr, sync::Arc};

const REVISION: &str = "2025-11-25";

fn quota(max: u32) -> Quota {
    Quota { max, loopback: Loopback::Bounded }
}

fn world(shards: u16, quotas: Quotas) -> World {
    World::with(CoreConfig { quotas, ..config(shards) })
}

fn address(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

fn connect(world: &mut World, number: u8) -> ClientId {
    world.try_connect_from(0, address(number)).expect("admitted")
}

fn initialize(world: &mut World, client: ClientId, fields: &str) -> Response {
    world.client(client).initializing = true;
    let response = world.exchange(client, post(fields, &World::initialize_body(REVISION)));
    world.client(client).session = response.field("mcp-session-id").map(str::to_owned);
    response
}

fn is_over(response: &Response) -> bool {
    assert_eq!(response.status == 429, response.field("retry-after") == Some("5"), "{response:?}");
    response.status == 429
}

#[test]
fn an_address_has_its_share_of_connections_wherever_they_land() {
    let mut world = world(2, Quotas { connections: quota(3), ..Quotas::NONE });
    let mine: Vec<_> = (0..3).map(|n| world.try_connect_from(n % 2, address(1)).unwrap()).collect();
    for shard in 0..2 {
        let refusal = world.try_connect_from(shard, address(1)).unwrap_err();
        let (response, rest) = Response::parse(refusal).expect("a whole response");
        assert!(is_over(&response) && response.complete && rest.is_empty());
        assert_eq!(response.json()["error"]["code"], -32600);
        world.try_connect_from(shard, address(2)).expect("others are not concerned");
    }
    world.reset(mine[0]);
    world.try_connect_from(1, address(1)).expect("there is room again");
    assert_eq!(world.counted("clients_over_quota"), 2);
}

#[test]
fn a_connection_that_moves_is_counted_once_until_it_ends() {
    let mut world = world(2, Quotas { connections: quota(2), ..Quotas::NONE });
    let client = connect(&mut world, 1);
    assert_eq!(initialize(&mut world, client, "").status, 200);
    let fields = world.session_field(client);
    let traveller = world.try_connect_from(1, address(1)).unwrap();
    assert_eq!(world.exchange(traveller, post(&fields, &request("1", "ping"))).status, 200);
    assert_eq!(world.client(traveller).moves, 1);
    assert!(world.try_connect_from(0, address(1)).is_err());
    world.reset(traveller);
    world.try_connect_from(0, address(1)).expect("it has ended");
}

#[test]
fn an_address_has_its_share_of_sessions() {
    let mut world = world(2, Quotas { sessions: quota(2), ..Quotas::NONE });
    let clients: Vec<_> = (0..3).map(|_| connect(&mut world, 1)).collect();
    assert_eq!(initialize(&mut world, clients[0], "").status, 200);
    assert_eq!(initialize(&mut world, clients[1], "").status, 200);
    assert!(is_over(&initialize(&mut world, clients[2], "")));
    let other = connect(&mut world, 2);
    assert_eq!(initialize(&mut world, other, "").status, 200);
    let fields = world.session_field(clients[0]);
    assert_eq!(world.exchange(clients[2], bodiless("DELETE", &fields)).status, 204);
    assert_eq!(initialize(&mut world, clients[2], "").status, 200, "on the same connection");
}

#[test]
fn the_404_of_a_session_comes_before_any_bound() {
    let quotas = Quotas { sessions: quota(1), streams: quota(1), session_rate: quota(1), ..Quotas::NONE };
    let mut world = world(1, quotas);
    let client = connect(&mut world, 1);
    assert_eq!(initialize(&mut world, client, "").status, 200);
    let live = world.session_field(client);
    let mut dead = live.clone().into_bytes();
    dead[30] ^= 1;
    let dead = String::from_utf8(dead).unwrap();
    let listener = connect(&mut world, 1);
    let get = |fields: &str| bodiless("GET", &format!("{fields}Accept: text/event-stream\r\n"));
    assert_eq!(world.exchange(listener, get(&live)).status, 200);
    for request in [post(&dead, &request("1", "ping")), get(&dead), bodiless("DELETE", &dead)] {
        let probe = connect(&mut world, 1);
        assert_eq!(world.exchange(probe, request).status, 404);
    }
    let probe = connect(&mut world, 1);
    assert!(is_over(&world.exchange(probe, get(&live))));
    let probe = connect(&mut world, 1);
    assert_eq!(
        world.exchange(probe, post(&live, &request("1", "ping"))).status,
        200,
        "an open session is served"
    );
}

#[test]
fn a_stream_that_ended_leaves_its_place() {
    let mut world = world(1, Quotas { streams: quota(2), ..Quotas::NONE });
    let client = connect(&mut world, 1);
    assert_eq!(initialize(&mut world, client, "").status, 200);
    let get = bodiless("GET", &(world.session_field(client) + "Accept: text/event-stream\r\n"));
    for _ in 0..5 {
        let listeners = [connect(&mut world, 1), connect(&mut world, 1)];
        for listener in listeners {
            assert_eq!(world.exchange(listener, &get).status, 200);
        }
        let third = connect(&mut world, 1);
        assert!(is_over(&world.exchange(third, &get)));
        for listener in listeners {
            world.reset(listener);
        }
        world.reset(third);
    }
}

#[test]
fn a_listen_stream_is_a_stream_of_its_client() {
    let mut world = world(2, Quotas { streams: quota(2), ..Quotas::NONE });
    let listen = stateless::listen("1", r#"{"toolsListChanged":true}"#);
    for _ in 0..3 {
        let listeners = [0, 1].map(|shard| world.try_connect_from(shard, address(1)).expect("admitted"));
        for listener in listeners {
            let (shard, call) = world.begin_exchange(listener, &listen);
            world.tell(shard, Tell::Listen(call.key, Listening { tools: true, ..Listening::default() }));
            assert_eq!(world.response(listener).status, 200);
        }
        let third = connect(&mut world, 1);
        assert!(is_over(&world.exchange(third, &listen)));
        let call = stateless::tool_call("2");
        let (shard, asked) = world.begin_exchange(third, &call);
        world.answer(shard, asked.key, "{}");
        assert_eq!(world.response(third).status, 200, "a request is no stream");
        let stranger = connect(&mut world, 2);
        world.begin_exchange(stranger, &listen);
        for client in [listeners[0], listeners[1], third, stranger] {
            world.reset(client);
        }
    }
}

#[test]
fn sessions_are_begun_at_a_steady_pace() {
    let mut world = world(1, Quotas { session_rate: quota(2), ..Quotas::NONE });
    let begin = |world: &mut World, number: u8| {
        let client = connect(world, number);
        let response = initialize(world, client, "");
        if response.status == 200 {
            let fields = world.session_field(client);
            assert_eq!(world.exchange(client, bodiless("DELETE", &fields)).status, 204);
        }
        // Coming and going does not help.
        world.reset(client);
        !is_over(&response)
    };
    let allowed = (0..30).filter(|_| begin(&mut world, 1)).count();
    assert_eq!(allowed, 20, "ten seconds' worth at once");
    assert!(begin(&mut world, 2));
    world.advance(500);
    assert!(begin(&mut world, 1) && !begin(&mut world, 1));
}

/// Alice has two tokens, bob one.
fn alice_and_bob() -> Arc<Authenticator> {
    let line = |name: &str, token: &str| {
        let hex: String = Digest::of(token.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name} sha256:{hex}\n")
    };
    let text = line("alice", "a1") + &line("alice", "a2") + &line("bob", "b1");
    let scheme = Scheme::Tokens(Tokens::parse(&text).unwrap());
    Arc::new(Authenticator::new(scheme, Resource::default()))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// A ping in that session with that token.
fn ping_with(session: &str, token: &str) -> String {
    post(&(session.to_owned() + &bearer(token)), &request("1", "ping"))
}

#[test]
fn a_principal_has_its_share_of_connections_wherever_they_come_from() {
    let quotas = Quotas { principal_connections: quota(3), ..Quotas::NONE };
    let mut world = World::with(CoreConfig { auth: Some(alice_and_bob()), quotas, ..config(2) });
    let clients: Vec<_> =
        (0..5).map(|n: u8| world.try_connect_from(usize::from(n % 2), address(n)).unwrap()).collect();
    assert_eq!(initialize(&mut world, clients[0], &bearer("a1")).status, 200);
    let session = world.session_field(clients[0]);
    // One of the other shard moves, one stays: each is counted once, where it is answered.
    assert_eq!(world.exchange(clients[1], ping_with(&session, "a1")).status, 200);
    assert_eq!(world.client(clients[1]).moves, 1);
    assert_eq!(world.exchange(clients[2], ping_with(&session, "a2")).status, 200, "by whichever token");
    assert_eq!(world.exchange(clients[2], ping_with(&session, "a1")).status, 200, "which may change");
    for client in [clients[3], clients[4]] {
        assert!(is_over(&world.exchange(client, ping_with(&session, "a1"))));
        assert!(world.ending(client).is_some(), "it is not kept");
    }
    // A connection is of whoever sent its latest request.
    assert_eq!(initialize(&mut world, clients[2], &bearer("b1")).status, 200);
    let freed = world.try_connect_from(0, address(9)).unwrap();
    assert_eq!(world.exchange(freed, ping_with(&session, "a1")).status, 200);
    assert!(is_over(&world.exchange(clients[2], ping_with(&session, "a1"))));
    world.reset(freed);
    let last = world.try_connect_from(1, address(9)).unwrap();
    assert_eq!(world.exchange(last, ping_with(&session, "a1")).status, 200);
    assert_eq!(world.counted("clients_over_quota"), 3);
}

#[test]
fn the_404_of_a_session_comes_before_a_principals_bound() {
    let quotas = Quotas { principal_connections: quota(1), ..Quotas::NONE };
    let mut world = World::with(CoreConfig { auth: Some(alice_and_bob()), quotas, ..config(2) });
    let client = world.try_connect_from(0, address(1)).unwrap();
    assert_eq!(initialize(&mut world, client, &bearer("a1")).status, 200);
    let mut dead = world.session_field(client).into_bytes();
    dead[30] ^= 1;
    let dead = String::from_utf8(dead).unwrap();
    let fields = dead.clone() + &bearer("a1");
    let get = bodiless("GET", &(fields.clone() + "Accept: text/event-stream\r\n"));
    for request in [ping_with(&dead, "a1"), get, bodiless("DELETE", &fields)] {
        let probe = world.try_connect_from(1, address(2)).unwrap();
        assert_eq!(world.exchange(probe, request).status, 404);
        assert!(world.ending(probe).is_some(), "it is one too many all the same");
    }
}

#[test]
fn a_request_without_a_session_is_of_its_principal_where_it_is_answered() {
    let quotas = Quotas { principal_connections: quota(1), ..Quotas::NONE };
    let stateless_home = StatelessHome::OfPrincipal;
    let mut world =
        World::with(CoreConfig { auth: Some(alice_and_bob()), quotas, stateless_home, ..config(2) });
    let call = stateless::tool_call("1").replacen("\r\n", &format!("\r\n{}", bearer("a1")), 1);
    for shard in [0, 1, 0, 1] {
        let client = world.try_connect_from(shard, address(1)).unwrap();
        let (shard, asked) = world.begin_exchange(client, &call);
        world.answer(shard, asked.key, "{}");
        assert_eq!(world.response(client).status, 200);
        for shard in [0, 1] {
            let second = world.try_connect_from(shard, address(2)).unwrap();
            assert!(is_over(&world.exchange(second, &call)));
        }
        world.reset(client);
    }
}

#[test]
fn whoever_sends_bad_tokens_is_looked_at_less_and_harms_only_itself() {
    let quotas = Quotas { bad_token_rate: quota(2), ..Quotas::NONE };
    let mut world = World::with(CoreConfig { auth: Some(alice_and_bob()), quotas, ..config(1) });
    let guess = |world: &mut World, number: u8, token: &str| {
        let client = world.try_connect_from(0, address(number)).unwrap();
        let response = initialize(world, client, &bearer(token));
        world.reset(client);
        assert_eq!(is_over(&response), response.status == 429);
        response.status
    };
    assert_eq!(guess(&mut world, 1, "a1"), 200);
    let statuses: Vec<_> = (0..340).map(|n| guess(&mut world, 1, &format!("bad{n}"))).collect();
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!(
        (&statuses[..20], looked_at),
        (&[401; 20][..], 20 + 320 / 16),
        "ten seconds' worth, then one in 16"
    );
    assert_eq!(world.counted("tokens_over_pace"), 300);
    // A list takes no time to look into: whoever is on it gets in, known before or not, there or elsewhere.
    assert_eq!(guess(&mut world, 1, "a1"), 200);
    assert_eq!(guess(&mut world, 2, "a2"), 200);
    assert_eq!(guess(&mut world, 1, "b1"), 200);
    // Neither no token nor what is none at all counts; time gives the pace back.
    world.advance(10_000);
    for _ in 0..50 {
        assert_eq!((guess(&mut world, 1, "x y"), guess(&mut world, 1, "")), (401, 401));
    }
    assert_eq!([0; 20].map(|_| guess(&mut world, 1, "bad")), [401; 20]);
}

#[test]
fn a_principal_is_one_client_wherever_it_comes_from() {
    let auth = alice_and_bob();
    // Without a word of the operator: this machine's own addresses do not matter where there are principals.
    let sessions = Quota { max: 2, loopback: Loopback::Exempt };
    let quotas = Quotas { sessions, ..Quotas::NONE };
    let mut world = World::with(CoreConfig { auth: Some(auth), quotas, ..config(2) });
    let mut begin = |number: u8, token: &str| {
        let address = if number == 0 { [127, 0, 0, 1].into() } else { address(number) };
        let client = world.try_connect_from(usize::from(number % 2), address).unwrap();
        initialize(&mut world, client, &bearer(token)).status
    };
    assert_eq!([begin(1, "a1"), begin(2, "a2"), begin(3, "a1"), begin(0, "a2")], [200, 200, 429, 429]);
    assert_eq!([begin(1, "b1"), begin(0, "b1"), begin(0, "b1")], [200, 200, 429]);
}

#[test]
fn this_machine_is_exempt_unless_somebody_says_otherwise() {
    let exempt = Quota { max: 1, loopback: Loopback::Exempt };
    let quotas = Quotas {
        connections: exempt,
        sessions: exempt,
        streams: exempt,
        session_rate: exempt,
        ..Quotas::NONE
    };
    let mut open = world(1, quotas);
    for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        for _ in 0..20 {
            let client = open.try_connect_from(0, address.parse().unwrap()).unwrap();
            assert_eq!(initialize(&mut open, client, "").status, 200);
        }
    }
    assert_eq!(open.census.ledger().accounts(), 3, "a bound that comes later finds them");
    let mut counted = world(1, Quotas { connections: quota(1), ..quotas });
    counted.try_connect_from(0, [127, 0, 0, 1].into()).unwrap();
    assert!(counted.try_connect_from(0, [127, 0, 0, 1].into()).is_err());
}

#[test]
fn nothing_is_left_in_the_ledger_of_those_who_left() {
    let quotas = Quotas { connections: quota(9), sessions: quota(9), streams: quota(9), ..Quotas::NONE };
    let mut world = World::with(CoreConfig { sessions_max: 3, quotas, ..config(2) });
    for number in 1..9 {
        let client = world.try_connect_from(usize::from(number % 2), address(number)).unwrap();
        if initialize(&mut world, client, "").status == 200 {
            let fields = world.session_field(client) + "Accept: text/event-stream\r\n";
            assert_eq!(world.exchange(client, bodiless("GET", &fields)).status, 200);
        }
    }
    assert_eq!(world.census.ledger().accounts(), 8);
    for client in 0..world.clients.len() {
        world.reset(ClientId(client));
    }
    assert_eq!(world.census.ledger().accounts(), 3, "three have sessions");
    world.advance(3 * 3_600_000);
    world.assert_no_session_left();
    assert_eq!(world.census.ledger().accounts(), 0);
}
