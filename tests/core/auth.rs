//! Who gets in, what belongs to whom, and how it ends when a token does.

use crate::{
    issuer,
    world::{
        ClientId, World,
        ask::{bodiless, post, request},
        config,
        http::Response,
        other, stateless,
    },
};
use jsonwebtoken::Algorithm;
use moorline::core::{
    Announcement, Audience, CallKey, Listening, NotificationKind, Principal, Publication, PublicationId,
    Reach, Tell,
    auth::{Authenticator, Digest, Jwt, JwtRules, Resource, Scheme, Tokens},
    config::CoreConfig,
    jsonrpc, sse,
};
use std::sync::Arc;

const REVISION: &str = "2025-11-25";

fn line(name: &str, token: &str) -> String {
    let hex: String = Digest::of(token.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} sha256:{hex}\n")
}

/// Rules under which `NAME-TOKEN` stands for `NAME`.
fn tokens(good: &[&str]) -> Arc<Authenticator> {
    let text: String = good.iter().map(|token| line(token.split('-').next().unwrap(), token)).collect();
    let scheme = Scheme::Tokens(Tokens::parse(&text).unwrap());
    Arc::new(Authenticator::new(scheme, Resource::default()))
}

fn jwt() -> Arc<Authenticator> {
    let rules = JwtRules {
        issuer: issuer::ISSUER.to_owned(),
        audiences: vec![issuer::AUDIENCE.to_owned()],
        algorithms: vec![Algorithm::EdDSA],
        skew_s: 0,
    };
    let resource = Resource::new(Some(issuer::AUDIENCE), &[issuer::ISSUER], &["mcp:use"]).unwrap();
    let jwt = Jwt::new(rules, &issuer::keys(&[issuer::ed()])).unwrap();
    Arc::new(Authenticator::new(Scheme::Jwt(jwt), resource))
}

fn world(shards: u16, auth: Arc<Authenticator>) -> World {
    World::with(CoreConfig { auth: Some(auth), ..config(shards) })
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn initialize(token: &str) -> String {
    post(&bearer(token), &World::initialize_body(REVISION))
}

/// A session of whoever has the token, and its connection.
fn open(world: &mut World, shard: usize, token: &str) -> ClientId {
    let client = world.connect_to(shard);
    world.client(client).initializing = true;
    let response = world.exchange(client, initialize(token));
    assert_eq!(response.status, 200, "{response:?}");
    world.client(client).session = response.field("mcp-session-id").map(str::to_owned);
    client
}

/// A ping in the client's session with that token, on a connection of its own.
fn ping(world: &mut World, owner: ClientId, token: &str) -> Response {
    let fields = world.session_field(owner) + &bearer(token);
    world.exchange_alone(post(&fields, &request("1", "ping")))
}

/// A GET stream of the client's session with that token.
fn listen(world: &mut World, owner: ClientId, token: &str) -> ClientId {
    let fields = world.session_field(owner) + &bearer(token) + "Accept: text/event-stream\r\n";
    let listener = world.connect_to(world.clients[owner.0].shard);
    let response = world.exchange(listener, bodiless("GET", &fields));
    assert_eq!(response.status, 200, "{response:?}");
    listener
}

fn reauthorize(world: &mut World, auth: &Arc<Authenticator>) {
    for shard in &mut world.shards {
        shard.reauthorize(auth.clone());
    }
    world.settle();
}

// --- Getting in ---------------------------------------------------------------------------------

#[test]
fn without_a_good_token_nobody_gets_in() {
    let mut world = world(1, tokens(&["alice-1"]));
    let body = World::initialize_body(REVISION);
    for fields in [
        String::new(),
        "Authorization: Basic YWxpY2U6MQ==\r\n".into(),
        "Authorization: alice-1\r\n".into(),
        bearer("alice-2"),
        bearer("alice-1x"),
        bearer("ALICE-1"),
        bearer(""),
        bearer("alice-1 x"),
        bearer(&"x".repeat(9_000)),
        "Authorization: Bearer\r\n".into(),
        "Authorization: Bearer,alice-1\r\n".into(),
        "Proxy-Authorization: Bearer alice-1\r\n".into(),
        "Cookie: Authorization=Bearer alice-1\r\n".into(),
    ] {
        let reply = world.exchange_alone(post(&fields, &body));
        assert_eq!(reply.status, 401, "{fields}");
        let challenge = reply.field("www-authenticate").unwrap();
        assert!(
            challenge.starts_with(
                r#"Bearer resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp""#
            ),
            "{challenge}"
        );
        assert_eq!(
            challenge.contains("invalid_token"),
            fields.contains("Bearer") && fields.starts_with("Auth") && !fields.contains("Bearer,"),
            "{fields}{challenge}"
        );
        assert!(!reply.text().contains("alice"), "{reply:?}");
    }
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(world.exchange_alone(bodiless(method, "")).status, 401, "{method}");
    }
    let in_query = format!(
        "POST /mcp?access_token=alice-1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(world.exchange_alone(in_query).status, 401);
    assert_eq!((world.counted("sessions"), world.counted("calls")), (0, 0));
    world.assert_no_session_left();
}

#[test]
fn a_good_token_gets_in_whatever_the_case_of_its_scheme() {
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer  "] {
        let mut world = world(1, tokens(&["alice-1"]));
        let fields = format!("authorization:{scheme} alice-1  \r\n");
        assert_eq!(
            world.exchange_alone(post(&fields, &World::initialize_body(REVISION))).status,
            200,
            "{scheme}"
        );
    }
}

#[test]
fn two_tokens_are_none() {
    let mut world = world(1, tokens(&["alice-1"]));
    for second in ["alice-1", "alice-2"] {
        let fields = bearer("alice-1") + &bearer(second);
        assert_eq!(world.exchange_alone(post(&fields, &World::initialize_body(REVISION))).status, 400);
    }
    world.assert_no_session_left();
}

#[test]
fn the_refusal_comes_before_the_body_and_after_host_origin_and_path() {
    let mut world = world(1, tokens(&["alice-1"]));
    let head =
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n";
    let client = world.connect();
    assert_eq!(world.exchange(client, head).status, 401);
    assert!(world.ending(client).is_some(), "nobody waits for that body");
    assert_eq!(world.exchange_alone("POST /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
    assert_eq!(world.exchange_alone(bodiless("GET", "Origin: https://evil.example\r\n")).status, 403);
    assert_eq!(world.exchange_alone("GET /mcp/../admin HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 404);
}

#[test]
fn browsers_can_read_every_refusal_and_ask_beforehand_without_a_token() {
    let mut world = world(1, jwt());
    let origin = "Origin: http://localhost:3000\r\n";
    let preflight = format!(
        "{origin}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
    );
    assert_eq!(world.exchange_alone(bodiless("OPTIONS", &preflight)).status, 204);
    let now = world.now.unix_s;
    let mut claims = issuer::claims("alice", now + 100);
    claims["scope"] = "other".into();
    let unscoped = bearer(&issuer::ed().sign(&claims));
    for (status, fields) in [(401, ""), (401, "Authorization: Bearer x\r\n"), (403, &unscoped)] {
        let reply = world.exchange_alone(bodiless("GET", &format!("{origin}{fields}")));
        assert_eq!(reply.status, status);
        assert_eq!(reply.field("access-control-allow-origin"), Some("http://localhost:3000"));
        assert!(reply.field("access-control-expose-headers").unwrap().contains("www-authenticate"));
        let challenge = reply.field("www-authenticate").unwrap();
        assert!(challenge.contains(r#"scope="mcp:use""#), "{challenge}");
        assert_eq!(challenge.contains(r#"error="insufficient_scope""#), status == 403);
        assert!(challenge.contains(
            r#"resource_metadata="https://mcp.example.org/.well-known/oauth-protected-resource/mcp""#
        ));
    }
}

#[test]
fn the_resource_describes_itself_to_anybody() {
    let mut world = world(1, jwt());
    let get =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let client = world.connect();
        let reply = world.exchange(client, get(path));
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
        assert_eq!(reply.field("access-control-allow-origin"), Some("http://localhost"));
        let document = reply.json();
        assert_eq!(document["resource"], issuer::AUDIENCE);
        assert_eq!(document["authorization_servers"], serde_json::json!([issuer::ISSUER]));
        assert_eq!(world.exchange(client, get(path)).status, 200, "the connection goes on");
        let head = world.exchange(client, get(path).replace("GET", "OPTIONS"));
        assert_eq!(head.status, 204);
        let posted = world.exchange_alone(get(path).replace("GET", "POST"));
        assert_eq!((posted.status, posted.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    for path in
        ["/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/x", "/.well-known"]
    {
        assert_eq!(world.exchange_alone(get(path)).status, 404, "{path}");
    }
    let mut open = World::new();
    assert_eq!(open.exchange_alone(get("/.well-known/oauth-protected-resource")).status, 404);
}

#[test]
fn a_token_is_looked_at_in_full_once_per_shard() {
    let mut world = world(2, jwt());
    let token = issuer::ed().sign(&issuer::claims("alice", world.now.unix_s + 100));
    let client = open(&mut world, 0, &token);
    for _ in 0..5 {
        assert_eq!(ping(&mut world, client, &token).status, 200);
        let fields = world.session_field(client) + &bearer(&token);
        assert_eq!(world.exchange(client, post(&fields, &request("1", "ping"))).status, 200);
    }
    assert_eq!(world.counted("tokens_verified"), 1);
    let elsewhere = world.connect_to(1);
    let fields = world.session_field(client) + &bearer(&token);
    assert_eq!(world.exchange(elsewhere, post(&fields, &request("1", "ping"))).status, 200);
    assert_eq!(world.counted("tokens_verified"), 2);
}

#[test]
fn every_request_of_a_connection_is_looked_at() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let client = open(&mut world, 0, "alice-1");
    let session = world.session_field(client);
    let with = |fields: &str| post(&(session.clone() + fields), &request("1", "ping"));
    assert_eq!(
        world.exchange(client, with("")).status,
        401,
        "the first token does not count for the second request"
    );
    assert_eq!(world.exchange(client, with(&bearer("bob-1"))).status, 404, "nor does its principal");
    assert_eq!(world.exchange(client, with(&bearer("alice-1"))).status, 200);
    let pipelined = with(&bearer("alice-1")) + &with(&bearer("bob-1")) + &with(&bearer("wrong"));
    world.send(client, pipelined);
    let statuses: Vec<_> = world.responses(client).iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 404, 401]);
}

// --- What belongs to whom -----------------------------------------------------------------------

#[test]
fn a_session_of_somebody_else_is_as_unknown_as_one_that_never_was() {
    let mut world = world(2, tokens(&["alice-1", "alice-2", "bob-1"]));
    let alices = open(&mut world, 0, "alice-1");
    let session = world.session_field(alices);
    let mut guessed = session.clone().into_bytes();
    guessed[40] ^= 1;
    let guessed = String::from_utf8(guessed).unwrap();
    let comparable = |reply: Response| (reply.status, reply.body.clone(), reply.fields.clone());
    let body = request("1", "ping");
    let accept = "Accept: text/event-stream\r\n";
    let requests: [&dyn Fn(&str) -> String; 7] = [
        &|session| post(&(session.to_owned() + &bearer("bob-1")), &body),
        &|session| post(&(session.to_owned() + &bearer("bob-1")), "{"),
        &|session| post(&(session.to_owned() + &bearer("bob-1") + "Content-Encoding: gzip\r\n"), &body),
        &|session| post(&(session.to_owned() + &bearer("bob-1")), "[]"),
        &|session| bodiless("GET", &(session.to_owned() + &bearer("bob-1") + accept)),
        &|session| {
            bodiless(
                "GET",
                &(session.to_owned() + &bearer("bob-1") + accept + "Last-Event-ID: aaaaaa-l1-0\r\n"),
            )
        },
        &|session| bodiless("DELETE", &(session.to_owned() + &bearer("bob-1"))),
    ];
    for (index, request) in requests.iter().enumerate() {
        for shard in 0..2 {
            let (foreign, unknown) = (world.connect_to(shard), world.connect_to(shard));
            let foreign = world.exchange(foreign, request(&session));
            let unknown = world.exchange(unknown, request(&guessed));
            assert_eq!(foreign.status, 404, "{index}");
            assert_eq!(comparable(foreign), comparable(unknown), "{index}");
        }
    }
    assert_eq!(ping(&mut world, alices, "alice-1").status, 200, "nothing happened to it");
    assert_eq!(
        ping(&mut world, alices, "alice-2").status,
        200,
        "another token of the same principal will do"
    );
    // With a foreign id as with a dead one: a session of one's own.
    let reply = world.exchange_alone(post(&(session + &bearer("bob-1")), &World::initialize_body(REVISION)));
    assert_eq!(reply.status, 200);
}

#[test]
fn a_cursor_of_somebody_elses_session_is_worth_nothing() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let (alices, bobs) = (open(&mut world, 0, "alice-1"), open(&mut world, 0, "bob-1"));
    let listener = listen(&mut world, alices, "alice-1");
    world.announce(alices, "secret");
    let cursor = world.events(listener).into_iter().filter_map(|event| event.id).next().unwrap();
    let cursor = format!("Last-Event-ID: {cursor}\r\nAccept: text/event-stream\r\n");
    let fields = world.session_field(bobs) + &bearer("bob-1") + &cursor;
    assert_eq!(world.exchange_alone(bodiless("GET", &fields)).status, 400);
    let fields = world.session_field(alices) + &bearer("bob-1") + &cursor;
    assert_eq!(world.exchange_alone(bodiless("GET", &fields)).status, 404);
}

#[test]
fn whoever_answers_a_call_knows_whose_it_is() {
    let mut world = world(1, tokens(&["alice-1"]));
    let client = open(&mut world, 0, "alice-1");
    let fields = world.session_field(client) + &bearer("alice-1");
    world.send(client, post(&fields, &request("1", "tools/call")));
    let (_, call) = world.take_call();
    assert_eq!(call.principal.as_ref().map(Principal::name), Some("alice"));
    assert!(!format!("{call:?}").contains("alice"), "names stay out of logs");
    let mut open = World::new();
    let client = open.open(REVISION);
    assert!(open.begin(client, "1").1.principal.is_none());
}

#[test]
fn a_publication_for_a_principal_reaches_all_its_sessions_and_no_others() {
    let mut world = world(2, tokens(&["alice-1", "alice-2", "bob-1"]));
    let alices = [open(&mut world, 0, "alice-1"), open(&mut world, 1, "alice-2")];
    let bobs = open(&mut world, 0, "bob-1");
    let (listener, other_listener) =
        (listen(&mut world, alices[0], "alice-1"), listen(&mut world, bobs, "bob-1"));
    for (name, written, pending) in [("alice", 1, 1), ("bob", 1, 0), ("carol", 0, 0)] {
        for shard in 0..2 {
            let notification = other(name);
            let announcement =
                Announcement { kind: notification.kind, payload: sse::payload(&notification.json) };
            let audience = Audience::Principal(Principal::new(name));
            let (id, now) = (PublicationId(shard), world.now);
            world.shards[shard].publish(Publication { id, audience, announcement }, now);
        }
        world.settle();
        let reach = std::mem::take(&mut world.published)
            .into_iter()
            .fold(Default::default(), |sum: moorline::core::Reach, (_, it)| sum.plus(it));
        assert_eq!(
            (reach.sessions, reach.written, reach.pending),
            (written + pending, written, pending),
            "{name}"
        );
    }
    assert_eq!(world.texts(listener), ["alice"]);
    assert_eq!(world.texts(other_listener), ["bob"]);
}

// --- Endings ------------------------------------------------------------------------------------

#[test]
fn a_stream_ends_when_its_token_does_and_goes_on_with_the_next() {
    let mut world = world(1, jwt());
    let token =
        |world: &World, seconds: u64| issuer::ed().sign(&issuer::claims("alice", world.now.unix_s + seconds));
    let first = token(&world, 40);
    let client = open(&mut world, 0, &first);
    let listener = listen(&mut world, client, &first);
    world.announce(client, "one");
    let cursor = world.numbered(listener).pop().unwrap().0;
    world.advance(39_000);
    assert!(!world.response_is_over(listener));
    world.advance(2_000);
    assert!(world.response_is_over(listener), "within a tick of its expiry");
    assert_eq!(world.counted("streams_unauthorized"), 1);
    assert_eq!(ping(&mut world, client, &first).status, 401);
    world.announce(client, "two");

    let second = token(&world, 40);
    let fields = world.session_field(client)
        + &bearer(&second)
        + &format!("Accept: text/event-stream\r\nLast-Event-ID: {cursor}\r\n");
    let again = world.connect();
    let response = world.exchange(again, bodiless("GET", &fields));
    assert_eq!(response.status, 200);
    let texts: Vec<_> = response.events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(texts, ["two"]);
}

#[test]
fn a_token_ends_a_silent_stream_too_where_there_are_no_comments() {
    let mut world = World::with(CoreConfig { auth: Some(jwt()), keep_alive_ms: 0, ..config(1) });
    let token = issuer::ed().sign(&issuer::claims("alice", world.now.unix_s + 40));
    let client = open(&mut world, 0, &token);
    let listener = listen(&mut world, client, &token);
    world.advance(41_000);
    assert!(world.response_is_over(listener));
}

#[test]
fn the_stream_of_a_post_ends_with_its_token_and_its_reply_is_not_lost() {
    let mut world = world(1, jwt());
    let sign = |world: &World| issuer::ed().sign(&issuer::claims("alice", world.now.unix_s + 10));
    let token = sign(&world);
    let client = open(&mut world, 0, &token);
    let fields = world.session_field(client) + &bearer(&token);
    let caller = world.connect();
    world.send(caller, post(&fields, &request("7", "tools/call")));
    let (shard, call) = world.take_call();
    world.progress(shard, call.key, 1);
    let events = world.response(caller).events();
    let cursor = events.iter().filter_map(|event| event.id.clone()).next_back().unwrap();
    world.advance(11_000);
    assert!(world.response_is_over(caller));
    world.answer(shard, call.key, r#"{"ok":true}"#);
    let fields = world.session_field(client)
        + &bearer(&sign(&world))
        + &format!("Accept: text/event-stream\r\nLast-Event-ID: {cursor}\r\n");
    let response = world.exchange_alone(bodiless("GET", &fields));
    assert!(response.text().contains(r#"{"ok":true}"#), "{response:?}");
}

#[test]
fn a_removed_principal_loses_its_sessions_in_steps() {
    for budget in [1, 3, 1_000] {
        let mut world = world(2, tokens(&["alice-1", "bob-1", "bob-2"]));
        let alices: Vec<_> = (0..6).map(|index| open(&mut world, index % 2, "alice-1")).collect();
        let bobs: Vec<_> = (0..6).map(|index| open(&mut world, index % 2, "bob-1")).collect();
        let streams: Vec<_> = alices.iter().map(|client| listen(&mut world, *client, "alice-1")).collect();
        let kept = listen(&mut world, bobs[0], "bob-1");
        world.pump_budget = budget;
        reauthorize(&mut world, &tokens(&["bob-1", "bob-2", "carol-1"]));
        for (client, stream) in alices.iter().zip(streams) {
            assert!(world.response_is_over(stream));
            assert_eq!(ping(&mut world, *client, "alice-1").status, 401);
        }
        assert_eq!(world.counted("sessions_revoked"), 6);
        assert_eq!(world.shards.iter().map(|shard| shard.population().sessions).sum::<usize>(), 6);
        assert!(!world.response_is_over(kept));
        for client in bobs {
            assert_eq!(ping(&mut world, client, "bob-1").status, 200);
        }
        assert_eq!(world.exchange_alone(initialize("carol-1")).status, 200);
    }
}

#[test]
fn a_removed_token_loses_its_streams_and_leaves_the_sessions_to_the_next_one() {
    let mut world = world(1, tokens(&["bob-1", "bob-2"]));
    let client = open(&mut world, 0, "bob-1");
    let (old, new) = (listen(&mut world, client, "bob-1"), listen(&mut world, client, "bob-2"));
    reauthorize(&mut world, &tokens(&["bob-2"]));
    assert!(world.response_is_over(old) && !world.response_is_over(new));
    assert_eq!(ping(&mut world, client, "bob-1").status, 401);
    assert_eq!(ping(&mut world, client, "bob-2").status, 200);
    world.announce(client, "news");
    assert_eq!(world.texts(new), ["news"], "whoever is left is promoted");
}

#[test]
fn a_token_given_to_somebody_else_is_somebody_elses() {
    let mut world = world(1, tokens(&["bob-1"]));
    let client = open(&mut world, 0, "bob-1");
    let text = line("carol", "bob-1");
    let scheme = Scheme::Tokens(Tokens::parse(&text).unwrap());
    reauthorize(&mut world, &Arc::new(Authenticator::new(scheme, Resource::default())));
    assert_eq!(world.counted("sessions_revoked"), 1);
    assert_eq!(ping(&mut world, client, "bob-1").status, 404);
}

#[test]
fn a_body_that_comes_after_its_token_was_removed_does_nothing() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let body = World::initialize_body(REVISION);
    let whole = post(&bearer("alice-1"), &body);
    let (head, tail) = whole.split_at(whole.len() - 5);
    let client = world.connect();
    world.send(client, head);
    reauthorize(&mut world, &tokens(&["bob-1"]));
    assert_eq!(world.exchange(client, tail).status, 401);
    world.assert_no_session_left();
}

#[test]
fn what_is_remembered_of_tokens_is_bounded() {
    let mut world = world(1, jwt());
    let until = world.now.unix_s + 100;
    // Those of connections that are gone.
    let probe = issuer::ed().sign(&issuer::claims("first", until));
    let count = if cfg!(debug_assertions) { 40 } else { 5_000 };
    for index in 0..count {
        let token = issuer::ed().sign(&issuer::claims(&format!("s{index}"), until));
        let client = world.connect();
        assert_eq!(world.exchange(client, bodiless("GET", &bearer(&token))).status, 400);
        world.reset(client);
    }
    let client = world.connect();
    assert_eq!(world.exchange(client, bodiless("GET", &bearer(&probe))).status, 400);
    assert_eq!(world.counted("tokens_verified"), count + 1);
}

// --- Requests without a session -----------------------------------------------------------------

/// That request with a token.
fn signed(request: &str, token: &str) -> String {
    request.replacen("\r\n", &format!("\r\n{}", bearer(token)), 1)
}

/// A stream of list changes for whoever has the token.
fn listen_stateless(world: &mut World, token: &str) -> (ClientId, CallKey) {
    let client = world.connect();
    let (shard, call) = world.begin_exchange(client, &signed(&stateless::listen("1", "{}"), token));
    world.tell(shard, Tell::Listen(call.key, Listening { tools: true, ..Listening::default() }));
    assert!(world.response(client).is_stream());
    (client, call.key)
}

#[test]
fn a_request_without_a_session_is_let_in_by_itself_and_its_handler_knows_for_whom() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let client = world.connect();
    for name in ["alice", "bob", "alice"] {
        let request = signed(&stateless::tool_call("1"), &format!("{name}-1"));
        let (shard, call) = world.begin_exchange(client, &request);
        assert_eq!(call.principal.unwrap().name(), name);
        world.answer(shard, call.key, "{}");
        assert_eq!(world.response(client).status, 200);
    }
    for bad in [stateless::tool_call("1"), signed(&stateless::tool_call("1"), "carol-1")] {
        assert_eq!(world.exchange_alone(bad).status, 401);
    }
}

#[test]
fn a_request_that_moves_is_let_in_where_it_arrives() {
    let rules = tokens(&["alice-1"]);
    let mut world = world(2, rules);
    let state = r#""requestState":"moorline.1.x""#;
    let request = signed(&stateless::stateless("1", "tools/list", state), "alice-1");
    let client = world.connect_to(0);
    let (shard, call) = world.begin_exchange(client, &request);
    assert_eq!((shard, call.principal.unwrap().name()), (1, "alice"));
    // The other shard has heard of new rules already.
    world.shards[1].reauthorize(tokens(&["bob-1"]));
    let late = world.connect_to(0);
    assert_eq!(world.exchange(late, &request).status, 401);
    assert_eq!(world.client(late).moves, 1);
}

#[test]
fn a_listen_stream_ends_with_its_token() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let ((alice, key), (bob, _)) =
        (listen_stateless(&mut world, "alice-1"), listen_stateless(&mut world, "bob-1"));
    let streaming = world.connect();
    let (shard, call) = world.begin_exchange(streaming, &signed(&stateless::tool_call("2"), "alice-1"));
    world.progress(shard, call.key, 1);
    reauthorize(&mut world, &tokens(&["bob-1"]));
    assert!(world.response_is_over(alice) && !world.response_is_over(bob));
    assert!(world.response(streaming).complete);
    assert_eq!(world.cancelled, [key, call.key]);
    assert_eq!(world.counted("streams_unauthorized"), 2);
}

#[test]
fn a_listen_stream_ends_when_its_token_expires() {
    let mut world = world(1, jwt());
    let claims = issuer::claims("alice", world.now.unix_s + 40);
    let (stream, key) = listen_stateless(&mut world, &issuer::ed().sign(&claims));
    world.advance(39_000);
    assert!(world.cancelled.is_empty() && !world.response_is_over(stream));
    world.advance(2_000);
    assert_eq!(world.cancelled, [key]);
    assert!(world.response_is_over(stream));
}

#[test]
fn a_publication_for_a_principal_reaches_its_listen_streams() {
    let mut world = world(1, tokens(&["alice-1", "bob-1"]));
    let ((alice, _), (bob, _)) =
        (listen_stateless(&mut world, "alice-1"), listen_stateless(&mut world, "bob-1"));
    let json = jsonrpc::notification("notifications/tools/list_changed", None);
    let announcement =
        Announcement { kind: NotificationKind::ToolsListChanged, payload: sse::payload(&json) };
    let audience = Audience::Principal(Principal::new("alice"));
    let now = world.now;
    world.shards[0].publish(Publication { id: PublicationId(0), audience, announcement }, now);
    world.settle();
    let reach = Reach { listens: 1, written: 1, ..Reach::default() };
    assert_eq!(world.published, [(PublicationId(0), reach)]);
    assert_eq!((world.events(alice).len(), world.events(bob).len()), (1, 0));
}
