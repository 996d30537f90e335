//! Who gets in, as an operator says it; and the files that name them.
//!
//! Owns the settings and the reading of their files, at the start and whenever they are to be read again. What a token has
//! to look like is [`core::auth`](crate::core::auth)'s.

use super::{ConfigError, Switch};
use crate::core::auth::{
    Authenticator, Jwt, JwtRules, KeysError, Resource, ResourceError, Scheme, Tokens, TokensError,
};
use clap::ValueEnum;
use jsonwebtoken::Algorithm;
use std::{
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use thiserror::Error;

/// Who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// What makes a token good.
    pub mode: AuthMode,
    /// Whether everybody may come in from other machines, too.
    pub allow_anonymous: Switch,
    /// The endpoint's URL as clients know it; `None`: as each request has it.
    pub resource: Option<String>,
    /// Whom clients get their tokens from; empty: the issuer.
    pub servers: Vec<String>,
    /// What a token must be good for.
    pub scopes: Vec<String>,
    /// The `iss` of JWTs.
    pub jwt_issuer: Option<String>,
    /// The `aud` of JWTs: one of these.
    pub jwt_audiences: Vec<String>,
    /// The file with the JWK Set.
    pub jwt_keys: Option<PathBuf>,
    /// The algorithms of JWTs.
    pub jwt_algorithms: Vec<JwtAlgorithm>,
    /// What the clocks may differ by.
    pub jwt_skew_ms: u64,
}

/// What makes a token good (`--auth`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// None is needed.
    #[default]
    None,
    /// It is in this file.
    Tokens(PathBuf),
    /// An issuer has signed it.
    Jwt,
}

/// Why a text is no [`AuthMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected none, tokens=FILE or jwt")]
pub struct AuthModeError;

impl FromStr for AuthMode {
    type Err = AuthModeError;

    fn from_str(text: &str) -> Result<Self, AuthModeError> {
        match text.split_once('=') {
            None if text == "none" => Ok(AuthMode::None),
            None if text == "jwt" => Ok(AuthMode::Jwt),
            Some(("tokens", file)) if !file.is_empty() => Ok(AuthMode::Tokens(file.into())),
            _ => Err(AuthModeError),
        }
    }
}

impl fmt::Display for AuthMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthMode::None => f.write_str("none"),
            AuthMode::Tokens(file) => write!(f, "tokens={}", file.display()),
            AuthMode::Jwt => f.write_str("jwt"),
        }
    }
}

/// A signature algorithm that can be pinned (`--jwt-algorithm`). None is symmetric: a public key can never be taken for a
/// shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names are RFC 7518's and RFC 8037's")]
#[value(rename_all = "verbatim")]
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl JwtAlgorithm {
    /// What is pinned unless the operator says otherwise.
    pub const DEFAULT: [JwtAlgorithm; 3] = [JwtAlgorithm::RS256, JwtAlgorithm::ES256, JwtAlgorithm::EdDSA];
}

impl fmt::Display for JwtAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<JwtAlgorithm> for Algorithm {
    fn from(algorithm: JwtAlgorithm) -> Self {
        match algorithm {
            JwtAlgorithm::RS256 => Algorithm::RS256,
            JwtAlgorithm::RS384 => Algorithm::RS384,
            JwtAlgorithm::RS512 => Algorithm::RS512,
            JwtAlgorithm::PS256 => Algorithm::PS256,
            JwtAlgorithm::PS384 => Algorithm::PS384,
            JwtAlgorithm::PS512 => Algorithm::PS512,
            JwtAlgorithm::ES256 => Algorithm::ES256,
            JwtAlgorithm::ES384 => Algorithm::ES384,
            JwtAlgorithm::EdDSA => Algorithm::EdDSA,
        }
    }
}

/// A file, or something in it, that does not say who gets in. Shows nothing of what stands there.
#[derive(Debug, Error)]
pub enum AuthError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A line of the file of tokens.
    #[error("{}, {error}", path.display())]
    Tokens {
        /// Which file.
        path: PathBuf,
        /// Which line, and why.
        error: TokensError,
    },
    /// A key of the file of keys.
    #[error("{}: {error}", path.display())]
    Keys {
        /// Which file.
        path: PathBuf,
        /// Which key, and why.
        error: KeysError,
    },
    /// A URL or a scope.
    #[error("--auth-resource, --auth-server or --auth-scope: {0}")]
    Resource(#[from] ResourceError),
}

impl Default for AuthConfig {
    fn default() -> Self {
        AuthConfig {
            mode: AuthMode::None,
            allow_anonymous: Switch::Off,
            resource: None,
            servers: Vec::new(),
            scopes: Vec::new(),
            jwt_issuer: None,
            jwt_audiences: Vec::new(),
            jwt_keys: None,
            jwt_algorithms: JwtAlgorithm::DEFAULT.to_vec(),
            jwt_skew_ms: crate::limits::JWT_SKEW_MS,
        }
    }
}

impl AuthConfig {
    /// What is wrong with these settings for a server that listens there, before any file is looked at.
    pub(super) fn check(&self, listen: &[SocketAddr]) -> Result<(), ConfigError> {
        let open = listen.iter().find(|address| !address.ip().is_loopback());
        if let (AuthMode::None, Switch::Off, Some(&address)) = (&self.mode, self.allow_anonymous, open) {
            return Err(ConfigError::Anonymous { address });
        }
        let of_jwt = [
            ("jwt-issuer", self.jwt_issuer.is_some()),
            ("jwt-audience", !self.jwt_audiences.is_empty()),
            ("jwt-keys", self.jwt_keys.is_some()),
        ];
        let is_jwt = self.mode == AuthMode::Jwt;
        match of_jwt.into_iter().find(|(_, is_set)| *is_set != is_jwt) {
            Some((flag, _)) if is_jwt => Err(ConfigError::JwtNeeds { flag }),
            Some((flag, _)) => Err(ConfigError::OnlyOfJwt { flag }),
            None => Ok(()),
        }
    }

    /// Reads the files, and returns who gets in; `None`: everybody.
    ///
    /// # Errors
    /// See [`AuthError`].
    pub fn rules(&self) -> Result<Option<Authenticator>, AuthError> {
        let (scheme, resource, servers) = match &self.mode {
            AuthMode::None => return Ok(None),
            AuthMode::Tokens(path) => {
                let tokens = Tokens::parse(&read(path)?)
                    .map_err(|error| AuthError::Tokens { path: path.clone(), error })?;
                (Scheme::Tokens(tokens), self.resource.as_deref(), self.servers.clone())
            }
            AuthMode::Jwt => {
                let path = self.jwt_keys.as_deref().unwrap_or(Path::new(""));
                let jwt = Jwt::new(self.jwt_rules(), &read(path)?)
                    .map_err(|error| AuthError::Keys { path: path.to_owned(), error })?;
                let issuer = self.jwt_issuer.clone().filter(|_| self.servers.is_empty());
                (Scheme::Jwt(jwt), self.jwt_resource(), self.servers.iter().cloned().chain(issuer).collect())
            }
        };
        let resource = Resource::new(resource, &servers, &self.scopes)?;
        Ok(Some(Authenticator::new(scheme, resource)))
    }

    fn jwt_rules(&self) -> JwtRules {
        JwtRules {
            issuer: self.jwt_issuer.clone().unwrap_or_default(),
            audiences: self.jwt_audiences.clone(),
            algorithms: self.jwt_algorithms.iter().map(|algorithm| (*algorithm).into()).collect(),
            skew_s: Duration::from_millis(self.jwt_skew_ms).as_secs(),
        }
    }

    /// Tokens are made for the URL of the resource they are for (RFC 8707), so that the first audience that is one will do.
    fn jwt_resource(&self) -> Option<&str> {
        let is_url = |audience: &&String| audience.starts_with("https://") || audience.starts_with("http://");
        self.resource.as_deref().or_else(|| self.jwt_audiences.iter().find(is_url).map(String::as_str))
    }

    /// Every setting by the name of its flag, as it would be typed.
    pub(super) fn entries(&self) -> Vec<(&'static str, String)> {
        let or =
            |value: &Option<String>, otherwise: &str| value.clone().unwrap_or_else(|| otherwise.to_owned());
        let list = |items: Vec<String>, otherwise: &str| match items.is_empty() {
            true => otherwise.to_owned(),
            false => items.join(","),
        };
        let keys = self.jwt_keys.as_ref().map(|path| path.display().to_string());
        vec![
            ("auth", self.mode.to_string()),
            ("allow-anonymous", super::name_of(self.allow_anonymous)),
            ("auth-resource", or(&self.resource, "as requested")),
            ("auth-server", list(self.servers.clone(), "the issuer")),
            ("auth-scope", list(self.scopes.clone(), "none")),
            ("jwt-issuer", or(&self.jwt_issuer, "none")),
            ("jwt-audience", list(self.jwt_audiences.clone(), "none")),
            ("jwt-keys", or(&keys, "none")),
            ("jwt-algorithm", list(self.jwt_algorithms.iter().map(ToString::to_string).collect(), "none")),
            ("jwt-skew", crate::units::Millis(self.jwt_skew_ms).to_string()),
        ]
    }
}

fn read(path: &Path) -> Result<String, AuthError> {
    fs::read_to_string(path).map_err(|error| AuthError::Unreadable { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use std::io::Write as _;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    fn error(config: &AuthConfig) -> String {
        config.rules().unwrap_err().to_string()
    }

    #[test]
    fn modes_are_read_as_they_are_written() {
        for text in ["none", "jwt", "tokens=/etc/moorline/tokens", "tokens=a=b"] {
            assert_eq!(text.parse::<AuthMode>().unwrap().to_string(), text);
        }
        for text in ["", "tokens", "tokens=", "JWT", "jwt=x", "basic"] {
            assert_eq!(text.parse::<AuthMode>(), Err(AuthModeError), "{text}");
        }
    }

    #[test]
    fn a_bad_file_is_named_with_its_line() {
        let tokens =
            |path: &Path| AuthConfig { mode: AuthMode::Tokens(path.to_owned()), ..AuthConfig::default() };
        assert!(error(&tokens(Path::new("/nowhere"))).starts_with("cannot read /nowhere: No such file"));
        let bad = file("# tokens\nalice secret\n");
        let text = error(&tokens(bad.path()));
        assert!(
            text.starts_with(&format!("{}, line 2: the hash must begin", bad.path().display())),
            "{text}"
        );
        let jwt = |path: &Path| AuthConfig {
            mode: AuthMode::Jwt,
            jwt_keys: Some(path.to_owned()),
            jwt_issuer: Some("https://login.example.org".into()),
            ..AuthConfig::default()
        };
        let bad = file("{\"keys\":[]}");
        assert!(
            error(&jwt(bad.path())).ends_with("none of its keys is a public key for the pinned algorithms")
        );
        assert_eq!(
            error(&jwt(Path::new("/nowhere"))),
            "cannot read /nowhere: No such file or directory (os error 2)"
        );
        let good = file("# nobody\n");
        let scoped = AuthConfig { scopes: vec!["a b".into()], ..tokens(good.path()) };
        assert!(
            error(&scoped)
                .starts_with("--auth-resource, --auth-server or --auth-scope: \"a b\" is not a scope")
        );
    }

    #[test]
    fn other_machines_get_in_unknown_only_if_that_was_meant() {
        let (here, everywhere) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let config = AuthConfig::default();
        assert_eq!(config.check(&[here]), Ok(()));
        assert_eq!(config.check(&[here, everywhere]), Err(ConfigError::Anonymous { address: everywhere }));
        let meant = AuthConfig { allow_anonymous: Switch::On, ..AuthConfig::default() };
        assert_eq!(meant.check(&[everywhere]), Ok(()));
        let tokens = AuthConfig { mode: AuthMode::Tokens("f".into()), ..AuthConfig::default() };
        assert_eq!(tokens.check(&[everywhere]), Ok(()));
    }

    #[test]
    fn jwt_needs_all_of_its_settings_and_nothing_else_has_them() {
        let here = ["127.0.0.1:1".parse().unwrap()];
        let jwt = AuthConfig { mode: AuthMode::Jwt, ..AuthConfig::default() };
        assert_eq!(jwt.check(&here), Err(ConfigError::JwtNeeds { flag: "jwt-issuer" }));
        let jwt = AuthConfig { jwt_issuer: Some("i".into()), jwt_audiences: vec!["a".into()], ..jwt };
        assert_eq!(jwt.check(&here), Err(ConfigError::JwtNeeds { flag: "jwt-keys" }));
        let none = AuthConfig { mode: AuthMode::None, ..jwt.clone() };
        assert_eq!(none.check(&here), Err(ConfigError::OnlyOfJwt { flag: "jwt-issuer" }));
        assert_eq!(AuthConfig { jwt_keys: Some("k".into()), ..jwt }.check(&here), Ok(()));
    }
}
