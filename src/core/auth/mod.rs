//! Who gets in: what a bearer token says about whoever sends it.
//!
//! Owns the rules, as one immutable snapshot ([`Authenticator`]) that all shards share and a reload replaces. Reads no
//! file and no clock: texts and times come in as arguments. Never writes a token anywhere, nor a name into a log.
//!
//! What has been verified is remembered by each shard ([`access`](super::access)), so that a signature is checked once
//! per token and shard, not once per request.

pub mod jwt;
mod resource;
pub mod tokens;

pub use self::{
    jwt::{Jwt, JwtRules, KeysError},
    resource::{Resource, ResourceError},
    tokens::{Tokens, TokensError},
};
use crate::limits::TOKEN_BYTES_MAX;
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::Arc};

/// The SHA-256 of a token. All comparisons are of these, so that their time says nothing about a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `token`.
    pub fn of(token: &[u8]) -> Self {
        Digest(Sha256::digest(token).into())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// The rules in force.
#[derive(Debug)]
pub struct Authenticator {
    scheme: Scheme,
    resource: Resource,
}

/// What makes a token good.
#[derive(Debug)]
pub enum Scheme {
    /// It is in the operator's file.
    Tokens(Tokens),
    /// An issuer has signed it.
    Jwt(Jwt),
}

/// A token that is good, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The principal's name.
    pub name: Arc<str>,
    /// The first second (Unix time) at which it is good no longer, if there is one.
    pub expires_unix_s: Option<u64>,
    /// What vouches for it: the signing key, as far as there is one.
    pub voucher: Voucher,
}

/// What a grant rests on, so that a reload can tell whether it still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voucher {
    /// The file of tokens.
    File,
    /// The signing key with this thumbprint.
    Key(u64),
}

/// Why somebody does not get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// There is no bearer token at all.
    Missing,
    /// It is not good; for a person, why.
    Invalid(&'static str),
    /// It is good for less than this.
    Scope,
}

impl Authenticator {
    /// These rules, at that resource.
    pub fn new(scheme: Scheme, resource: Resource) -> Self {
        Authenticator { scheme, resource }
    }

    /// What clients are told about how to get in.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// How many tokens there are, where they are listed.
    pub fn tokens_count(&self) -> Option<usize> {
        match &self.scheme {
            Scheme::Tokens(tokens) => Some(tokens.count()),
            Scheme::Jwt(_) => None,
        }
    }

    /// Whether to look at a token is to find it in a list; otherwise a signature is checked, which takes its time.
    pub fn only_looks_up(&self) -> bool {
        matches!(self.scheme, Scheme::Tokens(_))
    }

    /// Looks at a token from [`bearer`], whose digest is `digest`.
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn verify(&self, token: &[u8], digest: &Digest, now_unix_s: u64) -> Result<Grant, Denial> {
        match &self.scheme {
            Scheme::Tokens(tokens) => tokens.verify(digest),
            Scheme::Jwt(jwt) => jwt.verify(token, now_unix_s, self.resource.scopes()),
        }
    }

    /// Whether a token that was good under earlier rules would be good for the same principal now, its time aside.
    pub fn upholds(&self, digest: &Digest, name: &str, voucher: Voucher) -> bool {
        match (&self.scheme, voucher) {
            (Scheme::Tokens(tokens), Voucher::File) => {
                tokens.verify(digest).is_ok_and(|grant| &*grant.name == name)
            }
            (Scheme::Jwt(jwt), Voucher::Key(key)) => jwt.has_key(key),
            (Scheme::Tokens(_), Voucher::Key(_)) | (Scheme::Jwt(_), Voucher::File) => false,
        }
    }

    /// Whether this principal could still get in. Of the subjects of JWTs nobody knows.
    pub fn may_know(&self, name: &str) -> bool {
        match &self.scheme {
            Scheme::Tokens(tokens) => tokens.has_name(name),
            Scheme::Jwt(_) => true,
        }
    }
}

/// The token in an `Authorization` field (RFC 6750 section 2.1; the scheme in any case, as RFC 9110 section 11.1 has it).
///
/// # Errors
/// [`Denial::Missing`] without a field or with another scheme; [`Denial::Invalid`] for what is no token.
pub fn bearer(field: Option<&[u8]>) -> Result<&[u8], Denial> {
    let (scheme, rest) = field.and_then(|field| field.split_at_checked(6)).ok_or(Denial::Missing)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|byte| *byte != b' ') {
        return Err(Denial::Missing);
    }
    let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
    let token = &rest[start..];
    if token.is_empty() {
        return Err(Denial::Invalid("the token is empty"));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Denial::Invalid("the token is too long"));
    }
    let padding = token.iter().rev().take_while(|byte| **byte == b'=').count();
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    let body = &token[..token.len() - padding];
    if body.is_empty() || !body.iter().all(is_token) {
        return Err(Denial::Invalid("the token has characters that no token has"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        for field in ["Bearer abc", "bearer abc", "BEARER abc", "bEaReR   abc"] {
            assert_eq!(bearer(Some(field.as_bytes())), Ok(&b"abc"[..]), "{field}");
        }
        assert_eq!(bearer(Some(b"Bearer a-._~+/9==")), Ok(&b"a-._~+/9=="[..]));
    }

    #[test]
    fn what_is_no_bearer_token_is_missing() {
        let fields = ["", "Bear", "Basic abc", "Beareabc x", "Bearerabc", "Bearer\tabc", "Digest Bearer abc"];
        for field in fields {
            assert_eq!(bearer(Some(field.as_bytes())), Err(Denial::Missing), "{field:?}");
        }
        assert_eq!(bearer(None), Err(Denial::Missing));
    }

    #[test]
    fn what_no_token_looks_like_is_invalid() {
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
        for field in [
            "Bearer",
            "Bearer ",
            "Bearer a b",
            "Bearer a,b",
            "Bearer =a",
            "Bearer ==",
            "Bearer a\u{e9}",
            &long,
        ] {
            assert!(matches!(bearer(Some(field.as_bytes())), Err(Denial::Invalid(_))), "{field:?}");
        }
    }

    #[test]
    fn nothing_shows_a_digest() {
        assert_eq!(format!("{:?}", Digest::of(b"secret")), "Digest(…)");
    }
}
