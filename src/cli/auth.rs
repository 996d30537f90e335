//! Flags of who gets in, and the command that makes tokens.

use super::refuse;
use anyhow::{Context as _, Result};
use clap::Args;
use moorline::config::{AuthConfig, AuthMode, JwtAlgorithm, Switch};
use moorline::core::auth::tokens;
use moorline::limits;
use moorline::units::Millis;
use std::io::Write;
use std::path::PathBuf;

const ACCESS: &str = "Who gets in";

#[derive(Args, Debug)]
pub(super) struct Auth {
    /// What clients have to bring: none, tokens=FILE or jwt; the file is read again on SIGHUP
    #[arg(long, env = "MOORLINE_AUTH", value_name = "MODE", help_heading = ACCESS)]
    #[arg(default_value_t)]
    auth: AuthMode,
    /// Let everybody in from other machines, too, where --auth is none
    #[arg(long, env = "MOORLINE_ALLOW_ANONYMOUS", value_name = "SWITCH", help_heading = ACCESS)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value_t = Switch::Off)]
    allow_anonymous: Switch,
    /// The endpoint's URL as clients know it [default: a URL among --jwt-audience, or as requested]
    #[arg(long, env = "MOORLINE_AUTH_RESOURCE", value_name = "URL", help_heading = ACCESS)]
    auth_resource: Option<String>,
    /// Authorization server that clients are referred to; may be repeated [default: the issuer]
    #[arg(long, env = "MOORLINE_AUTH_SERVER", value_name = "URL", help_heading = ACCESS)]
    #[arg(value_delimiter = ',')]
    auth_server: Vec<String>,
    /// Scope that a JWT must have; may be repeated: all of them [default: none]
    #[arg(long, env = "MOORLINE_AUTH_SCOPE", value_name = "SCOPE", help_heading = ACCESS)]
    #[arg(value_delimiter = ',')]
    auth_scope: Vec<String>,
    /// Issuer of JWTs, exactly as in their iss [default: none]
    #[arg(long, env = "MOORLINE_JWT_ISSUER", value_name = "URL", help_heading = ACCESS)]
    jwt_issuer: Option<String>,
    /// Audience that JWTs are for, as in their aud; may be repeated: one of them [default: none]
    #[arg(long, env = "MOORLINE_JWT_AUDIENCE", value_name = "AUDIENCE", help_heading = ACCESS)]
    #[arg(value_delimiter = ',')]
    jwt_audience: Vec<String>,
    /// File with the issuer's public keys, a JWK Set; it is read again on SIGHUP [default: none]
    #[arg(long, env = "MOORLINE_JWT_KEYS", value_name = "FILE", help_heading = ACCESS)]
    jwt_keys: Option<PathBuf>,
    /// Signature algorithm of JWTs; may be repeated
    #[arg(long, env = "MOORLINE_JWT_ALGORITHM", value_name = "ALGORITHM", help_heading = ACCESS)]
    #[arg(value_delimiter = ',', default_values_t = JwtAlgorithm::DEFAULT)]
    jwt_algorithm: Vec<JwtAlgorithm>,
    /// What the clocks of the issuer and this host may differ by
    #[arg(long, env = "MOORLINE_JWT_SKEW", value_name = "DURATION", help_heading = ACCESS)]
    #[arg(default_value_t = Millis(limits::JWT_SKEW_MS))]
    jwt_skew: Millis,
}

impl Auth {
    pub(super) fn config(&self) -> AuthConfig {
        AuthConfig {
            mode: self.auth.clone(),
            allow_anonymous: self.allow_anonymous,
            resource: self.auth_resource.clone(),
            servers: self.auth_server.clone(),
            scopes: self.auth_scope.clone(),
            jwt_issuer: self.jwt_issuer.clone(),
            jwt_audiences: self.jwt_audience.clone(),
            jwt_keys: self.jwt_keys.clone(),
            jwt_algorithms: self.jwt_algorithm.clone(),
            jwt_skew_ms: self.jwt_skew.0,
        }
    }
}

/// Whose token is to be made.
#[derive(Args, Clone, Debug)]
pub(crate) struct NewToken {
    /// Whom it will stand for
    name: String,
}

impl NewToken {
    /// Writes a new token, and the line for the file of tokens, to `out`; what they are goes to stderr.
    pub(crate) fn write(&self, out: &mut impl Write) -> Result<()> {
        if let Err(reason) = tokens::check_name(&self.name) {
            refuse(reason);
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| anyhow::anyhow!("the system has no random bytes: {error}"))?;
        let (token, hash) = tokens::token(&random);
        eprintln!(
            "first the token, which is shown this once; then the line for the file of --auth tokens=FILE"
        );
        writeln!(out, "{token}\n{} {hash}", self.name).context("cannot print")
    }
}
