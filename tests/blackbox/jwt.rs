//! JSON Web Tokens, over real sockets: who gets in, what everybody else is told, and what ends when a key goes.
#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

use super::{
    PATIENCE,
    auth::{INITIALIZE, bearer, listen, open, ping, send},
    issuer::{self, AUDIENCE, ISSUER, Signer, claims},
    server::Server,
    until,
    wire::{Chunk, Connection, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// A JWK Set in a file, and servers that trust it.
struct Issuer {
    directory: tempfile::TempDir,
}

impl Issuer {
    fn with(signers: &[Signer]) -> Self {
        let issuer = Issuer { directory: tempfile::tempdir().unwrap() };
        issuer.publish(&issuer::keys(signers));
        issuer
    }

    /// From now on these are its keys, for whoever reads them.
    fn publish(&self, keys: &str) {
        let path = self.directory.path().join("next");
        fs::write(&path, keys).unwrap();
        fs::rename(path, self.path()).unwrap();
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("jwks.json")
    }

    fn start(&self, flags: &[&str]) -> Server {
        let path = self.path();
        let own =
            ["--auth", "jwt", "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE, "--auth-scope", "mcp:use"];
        Server::start(&[&own[..], &["--jwt-keys", path.to_str().unwrap()], flags].concat())
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Good claims for the next hour, changed.
fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut claims = claims("alice", now_unix_s() + 3_600);
    change(&mut claims);
    claims
}

fn good() -> Value {
    changed(|_| {})
}

fn initialize(server: &Server, token: &str) -> Response {
    send(&mut server.connect(), "POST", &bearer(token), INITIALIZE)
}

/// A token of those claims under a header of anybody's making.
fn forged(header: &str, claims: &Value, signature: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{signature}", encode(header), encode(&claims.to_string()))
}

/// A token signed with something public as if it were a shared secret.
fn hmac(secret: &[u8]) -> String {
    let header = Header { kid: Some("rsa".to_owned()), ..Header::new(Algorithm::HS256) };
    jsonwebtoken::encode(&header, &good(), &EncodingKey::from_secret(secret).unwrap()).unwrap()
}

#[test]
fn good_tokens_get_in_and_all_others_are_told_why_not() {
    let issuer = Issuer::with(&[issuer::ed(), issuer::ec(), issuer::rsa()]);
    let server = issuer.start(&["--shards", "2"]);
    for signer in [issuer::ed(), issuer::ec(), issuer::rsa()] {
        let token = signer.sign(&good());
        let session = open(&server, &token);
        assert_eq!(ping(&server, &session, &token), 200, "{}", signer.id);
        let again = signer.sign(&changed(|claims| claims["jti"] = json!("another")));
        assert_eq!(ping(&server, &session, &again), 200, "a session is its subject's, not its token's");
        let other = signer.sign(&changed(|claims| claims["sub"] = json!("mallory")));
        assert_eq!(ping(&server, &session, &other), 404, "and nobody else's");
    }

    let ed = issuer::ed();
    let whole = ed.sign(&good());
    let signature = whole.rsplit('.').next().unwrap();
    let rsa = issuer::rsa().public();
    let modulus = URL_SAFE_NO_PAD.decode(rsa["n"].as_str().unwrap()).unwrap();
    let expired = changed(|claims| claims["exp"] = json!(now_unix_s() - 600));
    let bad = [
        ("expired", ed.sign(&expired)),
        ("audience", ed.sign(&changed(|claims| claims["aud"] = json!("https://other.example.org/mcp")))),
        ("issuer", ed.sign(&changed(|claims| claims["iss"] = json!("https://evil.example.org")))),
        ("not valid yet", ed.sign(&changed(|claims| claims["nbf"] = json!(now_unix_s() + 600)))),
        ("signature", ed.sign_as(Some("nobody"), Algorithm::EdDSA, &good())),
        ("signature", issuer::weak_rsa().sign_as(Some("rsa"), Algorithm::RS256, &good())),
        (
            "signature",
            forged(r#"{"alg":"EdDSA","kid":"ed"}"#, &changed(|it| it["sub"] = json!("root")), signature),
        ),
        ("signature", forged(r#"{"alg":"EdDSA","kid":"ed"}"#, &good(), "")),
        ("JWT", forged(r#"{"alg":"none"}"#, &good(), "")),
        ("JWT", forged(r#"{"alg":"nOnE","typ":"JWT"}"#, &good(), signature)),
        ("algorithm", hmac(fs::read_to_string(issuer.path()).unwrap().as_bytes())),
        ("algorithm", hmac(rsa.to_string().as_bytes())),
        ("algorithm", hmac(&modulus)),
        ("JWT", "a.b.c".to_owned()),
    ];
    for (why, token) in &bad {
        let reply = initialize(&server, token);
        let challenge = reply.head.field("www-authenticate").unwrap_or_default().to_owned();
        assert_eq!(reply.status(), 401, "{why}: {token}");
        assert!(
            challenge.contains(r#"error="invalid_token""#) && challenge.contains(why),
            "{why}: {challenge}"
        );
        assert!(challenge.contains("resource_metadata="), "{challenge}");
    }
    let reply = initialize(&server, &ed.sign(&changed(|claims| claims["scope"] = json!("mcp:read"))));
    let challenge = reply.head.field("www-authenticate").unwrap().to_owned();
    assert_eq!(reply.status(), 403);
    assert!(challenge.contains(r#"error="insufficient_scope""#), "{challenge}");
    assert!(challenge.contains(r#"scope="mcp:use""#), "{challenge}");
    let log = server.log();
    assert!(bad.iter().all(|(_, token)| !log.contains(token)), "{log}");
}

#[test]
fn a_flood_of_forged_tokens_is_looked_at_less_and_locks_nobody_out() {
    let issuer = Issuer::with(&[issuer::ed(), issuer::ec()]);
    let server = issuer.start(&["--shards", "2", "--max-bad-token-rate", "2"]);
    let mut statuses = Vec::new();
    for number in 0..400 {
        let forged =
            issuer::ed().sign_as(Some("nobody"), Algorithm::EdDSA, &changed(|it| it["jti"] = json!(number)));
        statuses.push(initialize(&server, &forged).status());
    }
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let unseen = statuses.iter().filter(|status| **status == 429).count();
    assert!(unseen > 200, "{unseen} of 400");
    let honest = issuer::ed().sign(&good());
    until("somebody honest gets in", || initialize(&server, &honest).status() == 200);
}

/// Reads a stream to its end, which has to be an orderly one.
fn until_end(stream: &mut Connection) {
    loop {
        match stream.chunk(Instant::now() + PATIENCE) {
            Chunk::Data(_) => {}
            Chunk::Last => return,
            Chunk::Missing(why) => panic!("the stream ends, and cleanly: {why:?}"),
        }
    }
}

#[test]
fn a_key_that_is_gone_takes_its_streams_with_it() {
    let issuer = Issuer::with(&[issuer::ed(), issuer::ec()]);
    let server = issuer.start(&["--shards", "2"]);
    let alice = issuer::ed().sign(&good());
    let bob = issuer::ec().sign(&changed(|claims| claims["sub"] = json!("bob")));
    let (alices, bobs) = (open(&server, &alice), open(&server, &bob));
    let (mut ending, mut kept) = (listen(&server, &alices, &alice), listen(&server, &bobs, &bob));

    // What is no set of keys, or has none of use, changes nothing.
    for (keys, why) in [("{", "not a JWK Set"), (r#"{"keys":[]}"#, "none of its keys")] {
        issuer.publish(keys);
        server.signal(Signal::HUP);
        until("the log says why", || server.log().contains(why));
        assert_eq!((ping(&server, &alices, &alice), ping(&server, &bobs, &bob)), (200, 200));
    }

    issuer.publish(&issuer::keys(&[issuer::ec()]));
    server.signal(Signal::HUP);
    until("she is out", || ping(&server, &alices, &alice) == 401);
    until_end(&mut ending);
    // Her session waits for a token of a key that counts.
    let renewed = issuer::ec().sign(&good());
    assert_eq!(ping(&server, &alices, &renewed), 200);
    // His stream goes on: a message arrives on it.
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"notify","arguments":{"kind":"message","scope":"session"}}}"#;
    let told = send(&mut server.connect(), "POST", &(bobs + &bearer(&bob)), call);
    assert_eq!(told.status(), 200, "{}", told.text());
    let mut seen = String::new();
    while !seen.contains("notifications/message") {
        match kept.chunk(Instant::now() + PATIENCE) {
            Chunk::Data(bytes) => seen.push_str(&String::from_utf8(bytes).unwrap()),
            other => panic!("{other:?} after {seen}"),
        }
    }
}

#[test]
fn a_token_that_expires_takes_its_stream_with_it_and_leaves_the_session() {
    let issuer = Issuer::with(&[issuer::ed()]);
    let server = issuer.start(&["--shards", "2", "--jwt-skew", "0"]);
    let brief = issuer::ed().sign(&changed(|claims| claims["exp"] = json!(now_unix_s() + 6)));
    let session = open(&server, &brief);
    let mut ending = listen(&server, &session, &brief);
    until_end(&mut ending);
    assert_eq!(ping(&server, &session, &brief), 401);
    assert_eq!(ping(&server, &session, &issuer::ed().sign(&good())), 200);
}
