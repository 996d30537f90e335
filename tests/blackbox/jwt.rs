//! JSON Web Tokens over real sockets: which get in, what the others are told, and what new keys end.
#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

use super::{
    PATIENCE,
    issuer::{self, AUDIENCE, ISSUER, Signer, claims},
    server::Server,
    session::{initialize, ping, post, request},
    until,
    wire::{Chunk, Connection, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

/// What an issuer's file of keys and a server that reads it need.
struct Issued {
    server: Server,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Issued {
    /// A server that knows the keys of `signers`.
    fn start(signers: &[Signer]) -> Issued {
        Issued::start_with(signers, &[])
    }

    /// The same with more flags.
    fn start_with(signers: &[Signer], more: &[&str]) -> Issued {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.json");
        fs::write(&file, issuer::keys(signers)).unwrap();
        let flags = ["--shards", "2", "--auth", "jwt", "--jwt-skew", "0s", "--auth-scope", "mcp:use"];
        let of_issuer = ["--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE, "--jwt-keys"];
        let server = Server::start(&[&flags[..], &of_issuer, &[file.to_str().unwrap()], more].concat());
        Issued { server, file, _directory: directory }
    }

    fn reload(&self, keys: &str) {
        fs::write(&self.file, keys).unwrap();
        self.server.signal(Signal::HUP);
    }

    /// What becomes of an `initialize` with that token.
    fn initialize(&self, token: &str) -> Response {
        let mut connection = self.server.connect();
        connection.send(post(&initialize("2025-11-25"), &[("Authorization", &format!("Bearer {token}"))]));
        connection.response("POST")
    }

    /// The id of a new session of whoever has the token.
    fn open(&self, token: &str) -> String {
        let reply = self.initialize(token);
        assert_eq!(reply.status(), 200, "{}", reply.text());
        reply.head.field("mcp-session-id").unwrap().to_owned()
    }

    fn ping(&self, session: &str, token: &str) -> u16 {
        let authorization = format!("Bearer {token}");
        let mut connection = self.server.connect();
        connection
            .send(post(&ping(json!(1)), &[("Mcp-Session-Id", session), ("Authorization", &authorization)]));
        connection.response("POST").status()
    }

    /// A GET stream of that session whose head was read.
    fn listen(&self, session: &str, token: &str) -> Connection {
        let authorization = format!("Bearer {token}");
        let fields =
            [("Accept", "text/event-stream"), ("Mcp-Session-Id", session), ("Authorization", &authorization)];
        let mut connection = self.server.connect();
        connection.send(request("GET", &fields, ""));
        assert_eq!(connection.final_head().status, 200);
        connection
    }
}

fn in_s(seconds: i64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs().checked_add_signed(seconds).unwrap()
}

/// Waits until a stream ends as it should.
fn until_end(stream: &mut Connection) {
    loop {
        match stream.chunk(Instant::now() + PATIENCE) {
            Chunk::Data(_) => {}
            Chunk::Last => return,
            Chunk::Missing(why) => panic!("the stream ends, and cleanly: {why:?}"),
        }
    }
}

/// Whether nothing has ended the stream.
fn goes_on(stream: &mut Connection) -> bool {
    loop {
        match stream.chunk(Instant::now() + super::QUIET) {
            Chunk::Data(_) => {}
            Chunk::Last => return false,
            Chunk::Missing(why) => return why == super::wire::Fill::TimedOut,
        }
    }
}

/// `token` with another head.
fn with_head(token: &str, head: &Value) -> String {
    let (_, rest) = token.split_once('.').unwrap();
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head.to_string()))
}

#[test]
fn a_token_gets_its_subject_in_and_every_claim_counts() {
    let issued = Issued::start(&[issuer::ed(), issuer::ec(), issuer::rsa()]);
    let good = claims("alice", in_s(600));
    for signer in [issuer::ed(), issuer::ec(), issuer::rsa()] {
        let session = issued.open(&signer.sign(&good));
        // It is the subject that counts, not the token it came with.
        assert_eq!(issued.ping(&session, &issuer::ed().sign(&good)), 200);
        assert_eq!(issued.ping(&session, &issuer::ed().sign(&claims("mallory", in_s(600)))), 404);
    }
    let sign = |member: &str, value: Value| {
        let mut claims = good.clone();
        claims[member] = value;
        issuer::ed().sign(&claims)
    };
    for (token, status, error, why) in [
        (sign("exp", json!(in_s(-1))), 401, "invalid_token", "the token has expired"),
        (sign("nbf", json!(in_s(600))), 401, "invalid_token", "the token is not valid yet"),
        (
            sign("aud", json!("https://other.example/mcp")),
            401,
            "invalid_token",
            "the token is for another audience",
        ),
        (sign("iss", json!("https://evil.example")), 401, "invalid_token", "the token is of another issuer"),
        (
            sign("scope", json!("mcp:read")),
            403,
            "insufficient_scope",
            "the token lacks a scope that is needed",
        ),
    ] {
        let refused = issued.initialize(&token);
        let challenge = refused.head.field("www-authenticate").unwrap();
        assert_eq!((refused.status(), refused.head.field("mcp-session-id")), (status, None), "{why}");
        assert!(
            challenge.contains(&format!("error=\"{error}\", error_description=\"{why}\"")),
            "{challenge}"
        );
        assert!(
            challenge.contains("resource_metadata=\"https://mcp.example.org/.well-known/oauth-protected")
        );
        assert!(challenge.ends_with("scope=\"mcp:use\""), "{challenge}");
    }
    let mut connection = issued.server.connect();
    connection
        .send("GET /.well-known/oauth-protected-resource/mcp HTTP/1.1\r\nHost: mcp.example.org\r\n\r\n");
    assert_eq!(connection.response("GET").status(), 403, "a host nobody has allowed learns nothing");
    connection.send("GET /.well-known/oauth-protected-resource/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let described = connection.response("GET").json();
    assert_eq!(
        (&described["resource"], &described["authorization_servers"][0]),
        (&json!(AUDIENCE), &json!(ISSUER))
    );
}

#[test]
fn forged_tokens_do_not_get_in_whatever_they_say_of_themselves() {
    let issued = Issued::start(&[issuer::ed(), issuer::rsa()]);
    let good = claims("alice", in_s(600));
    let token = issuer::ed().sign(&good);
    let unsigned = token.rsplit_once('.').unwrap().0.to_owned() + ".";
    // A server that lets a token choose its algorithm takes the public key, which everybody has, for a shared secret.
    let with_secret = |secret: &[u8], id: &str| {
        let head = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::HS256) };
        jsonwebtoken::encode(&head, &good, &EncodingKey::from_secret(secret).unwrap()).unwrap()
    };
    let public = issuer::ed().public();
    let public_key = URL_SAFE_NO_PAD.decode(public["x"].as_str().unwrap()).unwrap();
    let forged = [
        with_head(&unsigned, &json!({"alg": "none"})),
        with_head(&unsigned, &json!({"alg": "NONE", "kid": "ed"})),
        with_head(&token, &json!({"alg": "none", "kid": "ed"})),
        with_secret(&public_key, "ed"),
        with_secret(public.to_string().as_bytes(), "ed"),
        with_secret(public["x"].as_str().unwrap().as_bytes(), "ed"),
        with_secret(&fs::read(&issued.file).unwrap(), "rsa"),
        unsigned,
        // A key that nobody knows, and known names for it.
        issuer::ec().sign(&good),
        issuer::ec().sign_as(Some("ed"), Algorithm::ES256, &good),
        issuer::weak_rsa().sign_as(Some("rsa"), Algorithm::RS256, &good),
        issuer::ed().sign_as(Some("nobody"), Algorithm::EdDSA, &good),
        issuer::ed().sign_as(Some("../../dev/null"), Algorithm::EdDSA, &good),
        // An algorithm that nobody has pinned.
        issuer::rsa().sign_as(Some("rsa"), Algorithm::RS384, &good),
        // A key that the token brings along, or names the place of.
        with_head(&issuer::ec().sign(&good), &json!({"alg": "ES256", "jwk": issuer::ec().public()})),
        with_head(&token, &json!({"alg": "EdDSA", "kid": "ed", "jku": "http://127.0.0.1:1/keys"})),
        token.clone() + ".",
        token.clone() + "x",
        format!("{token}.{token}"),
    ];
    for forged in &forged {
        let refused = issued.initialize(forged);
        assert_eq!((refused.status(), refused.head.field("mcp-session-id")), (401, None), "{forged}");
    }
    assert_eq!(issued.initialize(&token).status(), 200, "and the one they were made of does");
    let log = issued.server.log();
    assert!(forged.iter().all(|token| !log.contains(token.as_str())), "{log}");
}

#[test]
fn new_keys_end_the_streams_of_tokens_whose_key_is_gone() {
    let issued = Issued::start(&[issuer::ed(), issuer::ec()]);
    let (old, new) =
        (issuer::ed().sign(&claims("alice", in_s(600))), issuer::ec().sign(&claims("bob", in_s(600))));
    // On both shards.
    let sessions: Vec<_> = (0..6).map(|_| (issued.open(&old), issued.open(&new))).collect();
    let (mut ending, mut kept): (Vec<_>, Vec<_>) =
        sessions.iter().map(|(a, b)| (issued.listen(a, &old), issued.listen(b, &new))).unzip();

    issued.reload("{\"keys\": []}");
    until("a file without keys is refused", || issued.server.log().contains("none of its keys"));
    assert_eq!(issued.ping(&sessions[0].0, &old), 200, "and changes nothing");

    let began = Instant::now();
    issued.reload(&issuer::keys(&[issuer::ec(), issuer::rsa()]));
    ending.iter_mut().for_each(until_end);
    assert!(began.elapsed() < Duration::from_secs(10), "after {:?}", began.elapsed());
    assert!(kept.iter_mut().all(goes_on), "who has a known key does not notice");
    for (of_alice, of_bob) in &sessions {
        assert_eq!((issued.ping(of_alice, &old), issued.ping(of_bob, &new)), (401, 200));
        // Her sessions are hers still: with a token of a key that is known she goes on.
        assert_eq!(issued.ping(of_alice, &issuer::rsa().sign(&claims("alice", in_s(600)))), 200);
    }
}

#[test]
fn a_stream_ends_with_its_token() {
    let issued = Issued::start(&[issuer::ed()]);
    let (short, long) =
        (issuer::ed().sign(&claims("alice", in_s(3))), issuer::ed().sign(&claims("alice", in_s(600))));
    let session = issued.open(&long);
    let (mut ending, mut kept) = (issued.listen(&session, &short), issued.listen(&session, &long));
    until_end(&mut ending);
    assert!(goes_on(&mut kept));
    assert_eq!((issued.ping(&session, &short), issued.ping(&session, &long)), (401, 200));
}

#[test]
fn a_flood_of_forged_tokens_is_looked_at_less_and_locks_nobody_out() {
    let issued = Issued::start_with(&[issuer::ed(), issuer::ec()], &["--max-bad-token-rate", "2"]);
    let statuses: Vec<u16> = (0..400)
        .map(|number| {
            let mut forged = claims("mallory", in_s(3_600));
            forged["jti"] = json!(number);
            issued.initialize(&issuer::ed().sign_as(Some("nobody"), Algorithm::EdDSA, &forged)).status()
        })
        .collect();
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let unseen = statuses.iter().filter(|status| **status == 429).count();
    assert!(unseen > 200, "{unseen} of 400");
    let honest = issuer::ed().sign(&claims("alice", in_s(3_600)));
    until("somebody honest gets in", || issued.initialize(&honest).status() == 200);
}
