//! An issuer of JSON Web Tokens: keys from `tests/keys`, and claims as a test wants them.

#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://login.example.org";
pub(crate) const AUDIENCE: &str = "https://mcp.example.org/mcp";

/// A key pair and what it is for.
pub(crate) struct Signer {
    pub(crate) id: &'static str,
    pub(crate) algorithm: Algorithm,
    key: EncodingKey,
}

pub(crate) fn ed() -> Signer {
    let key = EncodingKey::from_ed_der(include_bytes!("../keys/ed.der"));
    Signer { id: "ed", algorithm: Algorithm::EdDSA, key }
}

pub(crate) fn ec() -> Signer {
    let key = EncodingKey::from_ec_der(include_bytes!("../keys/ec.der"));
    Signer { id: "ec", algorithm: Algorithm::ES256, key }
}

pub(crate) fn rsa() -> Signer {
    let key = EncodingKey::from_rsa_der(include_bytes!("../keys/rsa.der"));
    Signer { id: "rsa", algorithm: Algorithm::RS256, key }
}

pub(crate) fn weak_rsa() -> Signer {
    let key = EncodingKey::from_rsa_der(include_bytes!("../keys/weak-rsa.der"));
    Signer { id: "weak", algorithm: Algorithm::RS256, key }
}

impl Signer {
    /// A token with those claims, signed.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(Some(self.id), self.algorithm, claims)
    }

    pub(crate) fn sign_as(&self, id: Option<&str>, algorithm: Algorithm, claims: &Value) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }

    /// The public half, as in a JWK Set.
    pub(crate) fn public(&self) -> Value {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap()).unwrap();
        jwk["kid"] = json!(self.id);
        jwk
    }
}

/// A JWK Set.
pub(crate) fn keys(signers: &[Signer]) -> String {
    json!({ "keys": signers.iter().map(Signer::public).collect::<Vec<_>>() }).to_string()
}

/// Good claims for `subject` until that second.
pub(crate) fn claims(subject: &str, expires_unix_s: u64) -> Value {
    json!({ "iss": ISSUER, "sub": subject, "aud": AUDIENCE, "exp": expires_unix_s, "scope": "mcp:use other" })
}
