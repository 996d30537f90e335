//! One request that is two: eras, shards and members that two readers could take for different ones, and what a stranger could
//! make of that. A bystander of another principal keeps its session, and nobody reaches a backend by it.

use super::fuzz::world::{ClientId, World, config};
use moorline::core::{
    auth::{Authenticator, Resource, Scheme, Tokens, tokens},
    config::CoreConfig,
};
use std::sync::Arc;

const CLAIM: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const STATELESS: &str = "MCP-Protocol-Version: 2026-07-28\r\n";
const LEGACY: &str = "MCP-Protocol-Version: 2025-03-26\r\n";
const ECHO: &str = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n";

/// Two shards, where ada has a session on each and eve has a token.
struct Scene {
    world: World,
    ada: String,
    eve: String,
    sessions: Vec<String>,
}

impl Scene {
    fn new() -> Scene {
        let ((ada, adas), (eve, eves)) = (tokens::token(&[1; 32]), tokens::token(&[2; 32]));
        let scheme =
            Scheme::Tokens(Tokens::parse(&format!("ada {adas}\neve {eves}")).expect("two good lines"));
        let auth = Some(Arc::new(Authenticator::new(scheme, Resource::default())));
        let world = World::with(CoreConfig { auth, ..config(2) });
        let mut scene = Scene { world, ada, eve, sessions: Vec::new() };
        for shard in 0..2 {
            let client = scene.world.connect_to(shard);
            let initialize = World::initialize_body("2025-11-25");
            let (ada, fields) = (scene.ada.clone(), String::new());
            scene.post(client, &ada, &fields, &initialize);
            let response = scene.world.response(client);
            assert_eq!(response.status, 200);
            scene.sessions.push(response.field("mcp-session-id").expect("a session").to_owned());
            scene.world.reset(client);
        }
        scene
    }

    fn post(&mut self, client: ClientId, token: &str, fields: &str, body: &str) {
        let length = body.len();
        self.world.send(client, format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer {token}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
    }

    /// What eve gets for it; her connection begins on shard 0.
    fn eve(&mut self, fields: &str, body: &str) -> u16 {
        let client = self.world.connect_to(0);
        let eve = self.eve.clone();
        self.post(client, &eve, fields, body);
        let status = self.world.response(client).status;
        self.world.reset(client);
        status
    }

    fn assert_ada_is_served(&mut self) {
        for session in self.sessions.clone() {
            let (client, ada) = (self.world.connect_to(0), self.ada.clone());
            let fields = format!("Mcp-Session-Id: {session}\r\n");
            self.post(client, &ada, &fields, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
            assert_eq!(self.world.response(client).status, 200);
            self.world.reset(client);
        }
    }
}

#[test]
fn a_claim_opens_no_session_of_somebody_else() {
    let mut scene = Scene::new();
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{CLAIM}}}}}"#);
    let twice = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{CLAIM},{CLAIM}}}}}"#);
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    let batch = format!("[{plain},{list}]");
    for session in scene.sessions.clone() {
        for (version, body, status) in [
            (LEGACY, &list, 400),
            ("", &list, 400),
            ("", &twice, 404),
            (LEGACY, &batch, 400),
            (LEGACY, &plain, 404),
            ("", &plain, 404),
            ("MCP-Protocol-Version: 1999-01-01\r\n", &plain, 404),
            (STATELESS, &list, 400),
            (STATELESS, &plain, 400),
            (STATELESS, &batch, 400),
            (STATELESS, &twice, 400),
        ] {
            let fields = format!("{version}Mcp-Session-Id: {session}\r\n");
            let got = scene.eve(&fields, body);
            assert_eq!(got, status, "{fields}{body}");
        }
    }
    assert!(scene.world.calls.is_empty(), "no backend heard of it");
    scene.assert_ada_is_served();
}

#[test]
fn members_that_occur_twice_are_refused_where_two_readers_could_differ() {
    let mut scene = Scene::new();
    let call = |members: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{members},{CLAIM}}}}}"#)
    };
    for body in [
        call(r#""name":"echo","name":"notify""#),
        call(r#""name":"notify","name":"echo""#),
        call(r#""name":"echo","n\u0061me":"notify""#),
        call(r#""name":"notify""#),
        call(r#""name":["echo"]"#),
        call(&format!(r#""name":"echo",{CLAIM}"#)),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list","params":{{"name":"echo",{CLAIM}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{{"name":"echo",{CLAIM}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo",{CLAIM}}},"params":{{}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[{{"name":"echo",{CLAIM}}}]}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{{"name":"echo",{CLAIM}}}}}"#),
    ] {
        assert_eq!(scene.eve(ECHO, &body), 400, "{body}");
    }
    assert!(scene.world.calls.is_empty(), "no backend heard of it");
    scene.assert_ada_is_served();
}

#[test]
fn a_state_names_no_shard_that_is_not_there() {
    let mut scene = Scene::new();
    let long = "A".repeat(100_000);
    for state in [
        "moorline.1.x",
        "moorline.2.x",
        "moorline.65535.x",
        "moorline.65536.x",
        "moorline.-1.x",
        "moorline.+1.x",
        "moorline.01.x",
        "moorline..x",
        "moorline.1.moorline.0.x",
        r#"moorline.1.\"\\"#,
        r"moorline.1.\u0000",
        &format!("moorline.1.{long}"),
        &format!("moorline.{}.x", "9".repeat(1_000)),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","requestState":"{state}",{CLAIM}}}}}"#
        );
        let client = scene.world.connect_to(0);
        let eve = scene.eve.clone();
        scene.post(client, &eve, ECHO, &body);
        // Whatever the state says, the call reaches one backend, once, which is the judge of it.
        let (shard, call) = scene.world.take_call();
        assert!(scene.world.calls.is_empty());
        scene.world.answer(shard, call.key, "{}");
        assert_eq!(scene.world.response(client).status, 200, "{}", &state[..state.len().min(40)]);
        scene.world.reset(client);
    }
    scene.assert_ada_is_served();
}
