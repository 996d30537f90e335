//! A file of tokens: who they stand for, and their hashes.
//!
//! ```text
//! # name   hash of the token
//! alice    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//!
//! A name may have several lines, so that tokens can be changed without a gap. The tokens themselves are nowhere: they
//! are 256 random bits, so that one plain SHA-256 cannot be reversed by guessing. About 100 bytes per line; look-up is
//! O(log n) in digests, whose comparison tells nothing about a token.

use super::{Denial, Digest, Grant, Voucher};
use crate::limits::PRINCIPAL_BYTES_MAX;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thiserror::Error;

/// What every token begins with, so that scanners for lost secrets know one when they see it.
pub const PREFIX: &str = "moorline_";

/// Good tokens, by their hashes.
#[derive(Debug)]
pub struct Tokens {
    by_digest: BTreeMap<[u8; 32], Arc<str>>,
    names: BTreeSet<Arc<str>>,
}

/// A line that cannot be read. Says where and why, and nothing of what stands there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TokensError {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Tokens {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens = Tokens { by_digest: BTreeMap::new(), names: BTreeSet::new() };
        let mut lines = BTreeMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (name, digest) = parse_line(content).map_err(|reason| TokensError { line, reason })?;
            if let Some(earlier) = lines.insert(digest, line) {
                return Err(TokensError { line, reason: format!("line {earlier} has the same hash") });
            }
            let name = tokens.intern(name);
            tokens.by_digest.insert(digest, name);
        }
        Ok(tokens)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_digest.len()
    }

    pub(super) fn verify(&self, digest: &Digest) -> Result<Grant, Denial> {
        let name = self.by_digest.get(&digest.0).ok_or(Denial::Invalid("the token is unknown"))?;
        Ok(Grant { name: name.clone(), expires_unix_s: None, voucher: Voucher::File })
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
    }
}

fn parse_line(content: &str) -> Result<(&str, [u8; 32]), String> {
    let mut words = content.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    check_name(name)?;
    let hash = words.next().ok_or("expected a name and a hash: NAME sha256:HEX")?;
    if words.next().is_some() {
        return Err("expected a name and a hash and nothing else".to_owned());
    }
    let Some(digits) = hash.strip_prefix("sha256:") else {
        return Err("the hash must begin with sha256:, as `moorline token` prints it".to_owned());
    };
    let digest = parse_hex(digits).ok_or("sha256: must be followed by 64 hexadecimal digits")?;
    Ok((name, digest))
}

/// Names travel in JSON and in the operator's terminal: visible ASCII, no spaces.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > PRINCIPAL_BYTES_MAX {
        return Err(format!("a name has 1 to {PRINCIPAL_BYTES_MAX} characters"));
    }
    if name.starts_with('#') || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "a name is of visible ASCII characters without spaces, and does not begin with #".to_owned()
        );
    }
    Ok(())
}

/// A token of these random bits, and its hash as it stands in the file.
pub fn token(random: &[u8; 32]) -> (String, String) {
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let digits: String = Digest::of(token.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
    (token, format!("sha256:{digits}"))
}

fn parse_hex(digits: &str) -> Option<[u8; 32]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    fn hash(token: &str) -> String {
        let digits: String =
            Digest::of(token.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    }

    #[test]
    fn a_token_stands_for_the_name_on_its_line() {
        let text = format!("# who\n\nalice {}\r\n  bob\t{}\nalice {}", hash("a"), hash("b"), hash("c"));
        let tokens = Tokens::parse(&text).unwrap();
        let name =
            |token: &str| tokens.verify(&Digest::of(token.as_bytes())).map(|grant| grant.name.to_string());
        assert_eq!(name("a").as_deref(), Ok("alice"));
        assert_eq!(name("b").as_deref(), Ok("bob"));
        assert_eq!(name("c").as_deref(), Ok("alice"));
        assert!(name("d").is_err() && name("").is_err());
        assert!(tokens.has_name("bob") && !tokens.has_name("bobby"));
        assert_eq!(tokens.count(), 3);
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        let good = hash("a");
        for (line, part) in [
            ("alice".to_owned(), "a name and a hash"),
            ("alice secret-token".to_owned(), "must begin with sha256:"),
            ("alice sha256:12".to_owned(), "64 hexadecimal digits"),
            (format!("alice {}x", &good[..good.len() - 1]), "64 hexadecimal digits"),
            (format!("alice {good} extra"), "nothing else"),
            (format!("\u{e9} {good}"), "visible ASCII"),
            (format!("{} {good}", "n".repeat(PRINCIPAL_BYTES_MAX + 1)), "characters"),
        ] {
            let error = Tokens::parse(&format!("# first\nbob {}\n{line}\n", hash("b"))).unwrap_err();
            assert_eq!(error.line, 3);
            assert!(error.reason.contains(part), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let twice = Tokens::parse(&format!("a {good}\nb {good}")).unwrap_err();
        assert_eq!(twice.to_string(), "line 2: line 1 has the same hash");
    }

    #[test]
    fn a_new_token_is_good_once_its_line_is_in_the_file() {
        let (token, hash) = token(&[7; 32]);
        assert!(token.starts_with(PREFIX) && token.len() == PREFIX.len() + 43);
        let tokens = Tokens::parse(&format!("alice {hash}")).unwrap();
        assert!(tokens.verify(&Digest::of(token.as_bytes())).is_ok());
        assert!(crate::core::auth::bearer(Some(format!("Bearer {token}").as_bytes())).is_ok());
    }

    #[test]
    fn an_empty_file_lets_nobody_in() {
        assert_eq!(Tokens::parse("# nobody\n").unwrap().count(), 0);
    }
}
