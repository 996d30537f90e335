//! Why a handler has no result.
//!
//! Owns the difference between a failure of the work, which a model may read and react to, and an error of the protocol.
//! Any error of the standard library's kind becomes a [`Failure`] by `?`, so a handler is written as if there were only
//! one kind.

use super::{
    client::{AskError, UrlElicitation},
    service,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{ClientFeatures, Revision};
use serde_json::json;
use std::{any::Any, error::Error, fmt};

/// Why a handler has no result. It is no [`Error`] itself, which is what lets every error become one.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The work failed. For a tool a result with `isError`, for anything else the error -32603; the text is sent.
    Failed(String),
    /// An error of the protocol, sent as it is.
    Protocol(RpcError),
    /// The user has to do something in a browser first: the error -32042 for clients that know it (2025-11-25), else as
    /// if the work had failed.
    UrlRequired(Vec<UrlElicitation>),
    /// The client could not be asked, or its answer is of no use: as if the work had failed. Where 2026-07-28 is spoken it is
    /// -32021 if the client would have to declare a feature first, and -32602 if its answer is malformed.
    Asking(AskError),
}

/// -32042: see [`Failure::UrlRequired`].
pub const URL_ELICITATION_REQUIRED: i32 = -32042;

impl Failure {
    /// The work failed, for the reason given.
    pub fn new(reason: impl fmt::Display) -> Self {
        Failure::Failed(reason.to_string())
    }

    /// What a tool says: a reason for a result with `isError`, or a protocol error.
    pub(super) fn of_tool(self, revision: Revision, client: ClientFeatures) -> Result<String, RpcError> {
        match self {
            Failure::Failed(reason) => Ok(reason),
            Failure::Protocol(error) => Err(error),
            Failure::UrlRequired(urls) if knows_urls(revision, client) => Err(url_required(&urls)),
            Failure::UrlRequired(urls) => Ok(describe(&urls)),
            Failure::Asking(error) if revision.has_sessions() => Ok(error.to_string()),
            Failure::Asking(AskError::Unsupported { features, .. })
                if features != ClientFeatures::default() =>
            {
                Err(service::missing_features(features))
            }
            Failure::Asking(AskError::Malformed(reason)) => Err(service::invalid_params(reason)),
            Failure::Asking(error) => Ok(error.to_string()),
        }
    }

    /// What anything else says.
    pub(super) fn into_error(self, revision: Revision, client: ClientFeatures) -> RpcError {
        match self.of_tool(revision, client) {
            Ok(reason) => service::error(-32603, reason),
            Err(error) => error,
        }
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let asking = (&error as &dyn Any).downcast_ref::<AskError>();
        asking.map_or_else(|| Failure::new(&error), |asking| Failure::Asking(asking.clone()))
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Failure::Protocol(error)
    }
}

/// Whether a client of that revision knows the error that asks it to open a URL.
fn knows_urls(revision: Revision, client: ClientFeatures) -> bool {
    revision == Revision::V2025_11_25 && client.has(ClientFeatures::URLS)
}

fn url_required(urls: &[UrlElicitation]) -> RpcError {
    let elicitations: Vec<_> = urls.iter().map(|url| url.params(Revision::V2025_11_25)).collect();
    RpcError {
        data: Some(json!({ "elicitations": elicitations }).to_string().into()),
        ..service::error(URL_ELICITATION_REQUIRED, describe(urls))
    }
}

fn describe(urls: &[UrlElicitation]) -> String {
    let lines: Vec<_> = urls.iter().map(|wanted| format!("{}: {}", wanted.message, wanted.url)).collect();
    format!("This has to be done in a browser first. {}", lines.join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_error_of_any_kind_is_a_failure() {
        fn parse(text: &str) -> Result<u8, Failure> {
            Ok(text.parse()?)
        }
        assert_eq!(parse("x"), Err(Failure::Failed("invalid digit found in string".into())));
        let error = service::invalid_params("p");
        assert_eq!(Failure::from(error.clone()), Failure::Protocol(error));
    }

    #[test]
    fn a_feature_that_is_missing_has_an_error_where_the_client_can_declare_it() {
        let features = ClientFeatures::SAMPLING.with(ClientFeatures::URLS);
        let failure = Failure::from(AskError::Unsupported { what: "its model", features });
        let client = ClientFeatures::default();
        let before = failure.clone().of_tool(Revision::V2025_11_25, client);
        assert_eq!(before, Ok("the client cannot be asked for its model".into()));
        let error = failure.of_tool(Revision::V2026_07_28, client).unwrap_err();
        let data: serde_json::Value = serde_json::from_str(error.data.as_deref().unwrap()).unwrap();
        assert_eq!(error.code, -32021);
        assert_eq!(data, json!({"requiredCapabilities": {"sampling": {}, "elicitation": {"url": {}}}}));
        let malformed = Failure::from(AskError::Malformed("no `content`".into()));
        assert_eq!(malformed.of_tool(Revision::V2026_07_28, client).unwrap_err().code, -32602);
        let late = Failure::from(AskError::TimedOut);
        assert!(late.of_tool(Revision::V2026_07_28, client).is_ok());
    }

    #[test]
    fn a_url_is_required_only_of_clients_that_know_how() {
        let url = UrlElicitation::new("e1", "Sign in", "https://example.com/");
        let failure = Failure::UrlRequired(vec![url]);
        let (newest, urls) = (Revision::NEWEST_WITH_SESSIONS, ClientFeatures::URLS);
        let error = failure.clone().of_tool(newest, urls).unwrap_err();
        assert_eq!(error.code, -32042);
        let data: serde_json::Value = serde_json::from_str(error.data.as_deref().unwrap()).unwrap();
        assert_eq!(
            data["elicitations"][0],
            json!({"mode": "url", "elicitationId": "e1", "message": "Sign in", "url": "https://example.com/"})
        );
        let others =
            [(Revision::V2025_06_18, urls), (newest, ClientFeatures::FORMS), (Revision::V2026_07_28, urls)];
        for (revision, client) in others {
            let reason = failure.clone().of_tool(revision, client).unwrap();
            assert!(reason.ends_with("Sign in: https://example.com/"), "{reason}");
        }
    }
}
