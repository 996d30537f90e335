//! JSON Web Tokens: which are good, for whom and how long, and which keys count.

use crate::issuer::{self, AUDIENCE, ISSUER, claims};
use jsonwebtoken::Algorithm;
use moorline::core::auth::{
    Authenticator, Denial, Digest, Grant, Jwt, JwtRules, KeysError, Resource, Scheme,
};
use serde_json::{Value, json};

const NOW: u64 = 1_790_000_000;

/// What a test does to good claims.
type Change<'a> = &'a dyn Fn(&mut Value);

fn rules() -> JwtRules {
    JwtRules {
        issuer: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned()],
        algorithms: vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA],
        skew_s: 60,
    }
}

fn authenticator() -> Authenticator {
    let keys = issuer::keys(&[issuer::ed(), issuer::ec(), issuer::rsa()]);
    let resource = Resource::new(Some(AUDIENCE), &[ISSUER], &["mcp:use"]).unwrap();
    Authenticator::new(Scheme::Jwt(Jwt::new(rules(), &keys).unwrap()), resource)
}

fn verify(token: &str) -> Result<Grant, Denial> {
    verify_at(token, NOW)
}

fn verify_at(token: &str, now_unix_s: u64) -> Result<Grant, Denial> {
    authenticator().verify(token.as_bytes(), &Digest::of(token.as_bytes()), now_unix_s)
}

fn reason(token: &str) -> &'static str {
    match verify(token) {
        Err(Denial::Invalid(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_token_stands_for_its_subject_until_it_expires() {
    for signer in [issuer::ed(), issuer::ec(), issuer::rsa()] {
        let token = signer.sign(&claims("alice", NOW + 10));
        let grant = verify(&token).unwrap();
        assert_eq!((&*grant.name, grant.expires_unix_s), ("alice", Some(NOW + 70)), "with the skew");
        assert!(verify_at(&token, NOW + 69).is_ok());
        assert_eq!(verify_at(&token, NOW + 70), Err(Denial::Invalid("the token has expired")));
    }
}

#[test]
fn every_claim_counts() {
    let sign = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims("alice", NOW + 10);
        change(&mut claims);
        issuer::ed().sign(&claims)
    };
    let good: [Change<'_>; 6] = [
        &|claims| claims["aud"] = json!(["https://other.example", AUDIENCE]),
        &|claims| claims["nbf"] = json!(NOW + 60),
        &|claims| claims["exp"] = json!(1_790_000_010.5),
        &|claims| claims["iat"] = json!("nonsense that nobody reads"),
        &|claims| (claims["scope"], claims["scp"]) = (Value::Null, json!(["a", "mcp:use"])),
        &|claims| (claims["scope"], claims["scp"]) = (Value::Null, json!("a mcp:use")),
    ];
    for (index, change) in good.iter().enumerate() {
        assert!(verify(&sign(change)).is_ok(), "{index}");
    }
    let bad: [(&str, Change<'_>); 16] = [
        ("issuer", &|claims| claims["iss"] = json!("https://login.example.org/")),
        ("malformed", &|claims| claims["iss"] = json!([ISSUER])),
        ("malformed", &|claims| claims["iss"] = Value::Null),
        ("audience", &|claims| claims["aud"] = json!("https://mcp.example.org")),
        ("audience", &|claims| claims["aud"] = json!([])),
        ("malformed", &|claims| claims["aud"] = Value::Null),
        ("malformed", &|claims| claims["exp"] = Value::Null),
        ("malformed", &|claims| claims["exp"] = json!("2099")),
        ("malformed", &|claims| claims["exp"] = json!(-1)),
        ("expired", &|claims| claims["exp"] = json!(NOW - 60)),
        ("not valid yet", &|claims| claims["nbf"] = json!(NOW + 61)),
        ("malformed", &|claims| claims["nbf"] = json!("soon")),
        ("malformed", &|claims| claims["sub"] = Value::Null),
        ("malformed", &|claims| claims["sub"] = json!(7)),
        ("subject", &|claims| claims["sub"] = json!("")),
        ("subject", &|claims| claims["sub"] = json!("x".repeat(257))),
    ];
    for (part, change) in bad {
        let reason = reason(&sign(change));
        assert!(reason.contains(part), "{part}: {reason}");
    }
    for scope in ["", "mcp:user", "mcp", "MCP:USE"] {
        assert_eq!(verify(&sign(&|claims| claims["scope"] = json!(scope))), Err(Denial::Scope), "{scope}");
    }
}

#[test]
fn a_token_cannot_choose_how_it_is_verified() {
    let good = claims("alice", NOW + 10);
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let token = issuer::ed().sign(&good);
    let [header, payload, signature] = &parts(&token)[..] else { panic!() };
    let other = parts(&issuer::ed().sign(&claims("mallory", NOW + 10)));
    assert!(reason(&format!("{header}.{}.{signature}", other[1])).contains("signature"));
    assert!(reason(&format!("{header}.{payload}.")).contains("signature"));
    assert!(
        reason(&format!("{header}.{payload}.{}", &signature[..signature.len() - 4])).contains("signature")
    );

    // Nobody's algorithm, none at all, and a public key as if it were a shared secret.
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"HS256","kid":"ed"}"#,
        r#"{"alg":"RS384"}"#,
        "{}",
    ] {
        let header = URL_SAFE_NO_PAD.encode(header);
        assert!(verify(&format!("{header}.{payload}.{signature}")).is_err());
        assert!(verify(&format!("{header}.{payload}.")).is_err());
    }
    let secret = issuer::keys(&[issuer::ed()]);
    let forged = jsonwebtoken::encode(
        &jsonwebtoken::Header::new(Algorithm::HS256),
        &good,
        &jsonwebtoken::EncodingKey::from_secret(secret.as_bytes()).unwrap(),
    );
    assert!(reason(&forged.unwrap()).contains("algorithm"));

    // The key of another kind under the same id.
    assert!(reason(&issuer::ec().sign_as(Some("ed"), Algorithm::ES256, &good)).contains("signature"));
    assert!(reason(&issuer::weak_rsa().sign_as(Some("rsa"), Algorithm::RS256, &good)).contains("signature"));
    assert!(reason(&issuer::ed().sign_as(Some("unknown"), Algorithm::EdDSA, &good)).contains("signature"));
    assert!(verify(&issuer::ed().sign_as(None, Algorithm::EdDSA, &good)).is_ok(), "an id is not needed");
}

#[test]
fn what_is_no_jwt_is_survived() {
    for token in ["a", "a.b", "a.b.c", "..", "...", "e30.e30.e30", "bnVsbA.bnVsbA.bnVsbA", &"a.".repeat(4000)]
    {
        assert!(matches!(verify(token), Err(Denial::Invalid(_))), "{token}");
    }
}

// --- Keys ---------------------------------------------------------------------------------------

fn error(keys: &Value) -> KeysError {
    Jwt::new(rules(), &keys.to_string()).unwrap_err()
}

#[test]
fn keys_that_do_not_matter_are_left_out() {
    let mut encryption = issuer::ec().public();
    encryption["use"] = json!("enc");
    let mut other = issuer::rsa().public();
    other["alg"] = json!("RS512");
    let keys = json!({ "keys": [
        encryption, other,
        { "kty": "oct", "k": "c2VjcmV0", "kid": "shared" },
        { "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" },
        { "kty": "NEW" },
        issuer::ed().public(),
    ], "extra": 1 });
    let jwt = Jwt::new(rules(), &keys.to_string()).unwrap();
    let authenticator = Authenticator::new(Scheme::Jwt(jwt), Resource::default());
    let verify = |token: String| authenticator.verify(token.as_bytes(), &Digest::of(token.as_bytes()), NOW);
    assert!(verify(issuer::ed().sign(&claims("a", NOW + 1))).is_ok());
    assert!(verify(issuer::ec().sign(&claims("a", NOW + 1))).is_err());
    assert!(verify(issuer::rsa().sign(&claims("a", NOW + 1))).is_err());
}

#[test]
fn bad_keys_say_which_and_why() {
    let text = |keys: &Value| error(keys).to_string();
    assert!(matches!(Jwt::new(rules(), "{").unwrap_err(), KeysError::Document(_)));
    assert!(matches!(error(&json!({})), KeysError::Document(_)));
    assert_eq!(error(&json!({ "keys": [] })), KeysError::NoUsableKey);
    assert_eq!(error(&json!({ "keys": [{ "kty": "oct", "k": "AA" }] })), KeysError::NoUsableKey);
    let mut private = issuer::ed().public();
    private["d"] = json!("AA");
    let with = |key: Value| json!({ "keys": [issuer::ec().public(), key] });
    assert!(text(&with(private)).starts_with(r#"key 2 (kid "ed"): it is a private key"#));
    assert_eq!(
        text(&with(issuer::weak_rsa().public())),
        r#"key 2 (kid "weak"): an RSA key must have at least 2048 bits"#
    );
    let mut broken = issuer::rsa().public();
    broken["n"] = json!("not base64!");
    assert!(text(&with(broken)).starts_with(r#"key 2 (kid "rsa"): "#));
    assert!(text(&with(json!({ "kty": "RSA", "kid": "r" }))).starts_with(r#"key 2 (kid "r"): it lacks"#));
    assert!(text(&with(json!({ "kty": "OKP", "crv": "Ed25519" }))).starts_with("key 2: it lacks"));
}
