//! JSON Web Tokens as access tokens (RFC 9068, RFC 7519): whose signature counts, and which claims are looked at.
//!
//! The signature is the library's; every decision about claims, times and keys is made here, with the time as an argument.
//! Algorithms are pinned by the operator and are asymmetric: a token cannot choose how it is verified, and a public key
//! can never be taken for a shared secret. Candidates for one token are bounded.

use super::{Denial, Grant, Voucher};
use crate::limits::{JWT_KEYS_TRIED_MAX, PRINCIPAL_BYTES_MAX};
use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, Validation,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde::Deserialize;
use std::{collections::HashSet, fmt};
use thiserror::Error;

/// The algorithms an operator can pin.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// RSA keys below this are no protection (RFC 7518 section 3.3).
const RSA_MODULUS_BYTES_MIN: usize = 2048 / 8;

/// What a token has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRules {
    /// `iss`, to the letter.
    pub issuer: String,
    /// `aud`: one of these.
    pub audiences: Vec<String>,
    /// `alg`: one of these, of [`ALGORITHMS`].
    pub algorithms: Vec<Algorithm>,
    /// What the clocks of issuer and server may differ by, in seconds.
    pub skew_s: u64,
}

/// Rules and keys.
pub struct Jwt {
    rules: JwtRules,
    keys: Vec<Key>,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt").field("rules", &self.rules).field("keys", &self.keys.len()).finish()
    }
}

struct Key {
    id: Option<String>,
    /// What is checked of a token with this key, and the algorithms it is for.
    validation: Validation,
    verifying: DecodingKey,
    thumbprint: u64,
}

/// A set of keys that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeysError {
    /// It is not a JWK Set (RFC 7517 section 5).
    #[error("not a JWK Set: {0}")]
    Document(String),
    /// One of its keys is malformed or too weak.
    #[error("key {number}{}: {reason}", id.as_ref().map_or(String::new(), |id| format!(" (kid {id:?})")))]
    Key {
        /// From 1.
        number: usize,
        /// Its `kid`.
        id: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// Nothing in it could verify a token.
    #[error("none of its keys is a public key for the pinned algorithms")]
    NoUsableKey,
}

impl Jwt {
    /// The rules with the keys of the JWK Set in `keys`. Keys of kinds and uses that do not matter here are left out, as
    /// RFC 7517 section 5 wants it.
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn new(rules: JwtRules, keys: &str) -> Result<Self, KeysError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_str(keys).map_err(|error| KeysError::Document(error.to_string()))?;
        let usable = (1..).zip(&set.keys).map(|(number, value)| Key::parse(value, &rules.algorithms, number));
        let keys: Vec<Key> = usable.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(KeysError::NoUsableKey);
        }
        Ok(Jwt { rules, keys })
    }

    pub(super) fn has_key(&self, thumbprint: u64) -> bool {
        self.keys.iter().any(|key| key.thumbprint == thumbprint)
    }

    pub(super) fn verify(&self, token: &[u8], now_unix_s: u64, scopes: &[Box<str>]) -> Result<Grant, Denial> {
        let header =
            jsonwebtoken::decode_header(token).map_err(|_| Denial::Invalid("the token is not a JWT"))?;
        if !self.rules.algorithms.contains(&header.alg) {
            return Err(Denial::Invalid("the token's algorithm is not accepted"));
        }
        let fits = |key: &&Key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            is_named && key.validation.algorithms.contains(&header.alg)
        };
        for key in self.keys.iter().filter(fits).take(JWT_KEYS_TRIED_MAX) {
            if let Ok(data) =
                jsonwebtoken::decode::<serde_json::Value>(token, &key.verifying, &key.validation)
            {
                let claims = Claims::deserialize(data.claims).map_err(|_| {
                    Denial::Invalid("the token lacks iss, sub, aud or exp, or they are malformed")
                })?;
                return self.judge(claims, key, now_unix_s, scopes);
            }
        }
        Err(Denial::Invalid("the token's signature is not of a known key"))
    }

    fn judge(
        &self,
        claims: Claims,
        key: &Key,
        now_unix_s: u64,
        scopes: &[Box<str>],
    ) -> Result<Grant, Denial> {
        let JwtRules { issuer, audiences, skew_s, .. } = &self.rules;
        if claims.iss != *issuer {
            return Err(Denial::Invalid("the token is of another issuer"));
        }
        if !claims.aud.iter().any(|audience| audiences.contains(audience)) {
            return Err(Denial::Invalid("the token is for another audience"));
        }
        let expires_unix_s = claims.exp.0.saturating_add(*skew_s);
        if expires_unix_s <= now_unix_s {
            return Err(Denial::Invalid("the token has expired"));
        }
        if claims.nbf.is_some_and(|nbf| nbf.0 > now_unix_s.saturating_add(*skew_s)) {
            return Err(Denial::Invalid("the token is not valid yet"));
        }
        if claims.sub.is_empty() || claims.sub.len() > PRINCIPAL_BYTES_MAX {
            return Err(Denial::Invalid("the token's subject is empty or too long"));
        }
        if !scopes.iter().all(|scope| claims.has_scope(scope)) {
            return Err(Denial::Scope);
        }
        let voucher = Voucher::Key(key.thumbprint);
        Ok(Grant { name: claims.sub.into(), expires_unix_s: Some(expires_unix_s), voucher })
    }
}

/// The library checks the signature and nothing else: it would read the clock.
fn signature_only(algorithms: Vec<Algorithm>) -> Validation {
    let mut validation = Validation::new(Algorithm::RS256);
    validation.algorithms = algorithms;
    validation.required_spec_claims = HashSet::new();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

// --- Claims -------------------------------------------------------------------------------------

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: OneOrMany,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    /// RFC 9068 section 2.2.3.
    scope: Option<String>,
    /// What some issuers write instead.
    scp: Option<OneOrMany>,
}

impl Claims {
    fn has_scope(&self, wanted: &str) -> bool {
        let scope = self.scope.iter().flat_map(|text| text.split(' '));
        let scp = self.scp.iter().flat_map(OneOrMany::iter).flat_map(|text| text.split(' '));
        scope.chain(scp).any(|scope| scope == wanted)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn iter(&self) -> std::slice::Iter<'_, String> {
        match self {
            OneOrMany::One(text) => std::slice::from_ref(text).iter(),
            OneOrMany::Many(texts) => texts.iter(),
        }
    }
}

/// Seconds since the epoch; fractions are cut off (RFC 7519 section 2).
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Number")]
struct NumericDate(u64);

impl TryFrom<serde_json::Number> for NumericDate {
    type Error = &'static str;

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    fn try_from(number: serde_json::Number) -> Result<Self, Self::Error> {
        match (number.as_u64(), number.as_f64()) {
            (Some(seconds), _) => Ok(NumericDate(seconds)),
            (None, Some(seconds)) if (0.0..1e15).contains(&seconds) => Ok(NumericDate(seconds as u64)),
            _ => Err("not a time"),
        }
    }
}

// --- Keys ---------------------------------------------------------------------------------------

impl Key {
    /// The key in `value`; `None` if it could not verify a token here.
    fn parse(
        value: &serde_json::Value,
        pinned: &[Algorithm],
        number: usize,
    ) -> Result<Option<Self>, KeysError> {
        let id = value.get("kid").and_then(|id| id.as_str()).map(str::to_owned);
        let bad = |reason: String| KeysError::Key { number, id: id.clone(), reason };
        if !matches!(value.get("kty").and_then(|kty| kty.as_str()), Some("RSA" | "EC" | "OKP")) {
            return Ok(None);
        }
        if ["d", "p", "q"].iter().any(|member| value.get(member).is_some()) {
            return Err(bad("it is a private key, which does not belong here".to_owned()));
        }
        if !has_its_members(value) {
            return Err(bad("it lacks n and e, or crv, x and y, or they are no text".to_owned()));
        }
        // A curve or an algorithm that the library does not know is no fault of the file.
        let Ok(jwk) = Jwk::deserialize(value) else { return Ok(None) };
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return Ok(None);
        }
        let algorithms = algorithms_of(&jwk, pinned);
        if algorithms.is_empty() {
            return Ok(None);
        }
        let verifying = DecodingKey::from_jwk(&jwk).map_err(|error| bad(error.to_string()))?;
        check_strength(&verifying).map_err(bad)?;
        let thumbprint = thumbprint(&verifying);
        Ok(Some(Key { id: id.clone(), validation: signature_only(algorithms), verifying, thumbprint }))
    }
}

fn has_its_members(value: &serde_json::Value) -> bool {
    let has = |member: &str| value.get(member).is_some_and(serde_json::Value::is_string);
    match value.get("kty").and_then(|kty| kty.as_str()) {
        Some("RSA") => has("n") && has("e"),
        Some("EC") => has("crv") && has("x") && has("y"),
        _ => has("crv") && has("x"),
    }
}

/// The pinned algorithms this key is for.
fn algorithms_of(jwk: &Jwk, pinned: &[Algorithm]) -> Vec<Algorithm> {
    use Algorithm::*;
    let possible: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => &[EdDSA],
        _ => &[],
    };
    let declared = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
    let is_meant =
        |algorithm: &Algorithm| declared.as_ref().is_none_or(|name| *name == format!("{algorithm:?}"));
    possible
        .iter()
        .filter(|algorithm| pinned.contains(algorithm))
        .filter(|it| is_meant(it))
        .copied()
        .collect()
}

fn check_strength(key: &DecodingKey) -> Result<(), String> {
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            let significant = n.iter().skip_while(|byte| **byte == 0).count();
            if significant < RSA_MODULUS_BYTES_MIN {
                return Err("an RSA key must have at least 2048 bits".to_owned());
            }
            Ok(())
        }
        DecodingKeyKind::SecretOrDer(_) => Ok(()),
    }
}

/// Tells keys of successive files apart; nobody can choose a key of the operator's file.
fn thumbprint(key: &DecodingKey) -> u64 {
    let digest = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => super::Digest::of(&[&n[..], b".", &e[..]].concat()),
        DecodingKeyKind::SecretOrDer(bytes) => super::Digest::of(bytes),
    };
    u64::from_le_bytes(digest.0[..8].try_into().expect("8 bytes of 32"))
}
