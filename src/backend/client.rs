//! Asking a client: its model, its user, its roots, or whether it is there.
//!
//! Owns the parameters and answers of server requests, and which of them a client's revision and declarations allow. What
//! cannot be asked fails at once, and nothing is sent. It must never wait for ever: every request has a time limit.

use super::{
    asks::Answer,
    context::{CallState, Cancelled, Link},
    inquiry::Question,
    model::{CreateMessage, IncludeContext, Meta, Sampled},
    params, rounds, schema,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{
    ASK_TIMED_OUT, ClientFeatures, Revision, ServerMethod, ServerRequest, SessionKey, Tell,
};
use crate::limits::ASK_TIMEOUT_MS;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll, time::Duration};
use thiserror::Error;

/// A session's client, to be asked things. From a call's context: on the call's own stream, and only while the call runs.
#[derive(Clone, Debug)]
pub struct Client {
    link: Rc<Link>,
    session: Option<SessionKey>,
    call: Option<Rc<CallState>>,
    timeout: Duration,
    name: Option<String>,
}

/// Why a client gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The client did not declare that it can do this, or its revision does not know it. Nothing was sent. In a handler of
    /// 2026-07-28, `?` makes this the error -32021, which names the features.
    #[error("the client cannot be asked for {what}")]
    Unsupported {
        /// What it would be asked for.
        what: &'static str,
        /// What it would have to declare; nothing if that would not help.
        features: ClientFeatures,
    },
    /// No answer came within the time limit; the client was told so.
    #[error("the client did not answer in time")]
    TimedOut,
    /// The call that asked was cancelled, or has already answered.
    #[error("the call is over")]
    CallOver,
    /// The client answered with an error, or its session has ended or has no room for the request.
    #[error("the client failed: {}", .0.message)]
    Failed(RpcError),
    /// The client's answer is not what the specification says.
    #[error("the client's answer is malformed: {0}")]
    Malformed(String),
}

/// What became of an elicitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elicited<T> {
    /// The user agreed; for a form, with these values.
    Accepted(T),
    /// The user said no.
    Declined,
    /// The user did not decide.
    Dismissed,
}

impl<T> Elicited<T> {
    /// The values, if the user agreed.
    pub fn accepted(self) -> Option<T> {
        match self {
            Elicited::Accepted(values) => Some(values),
            Elicited::Declined | Elicited::Dismissed => None,
        }
    }
}

/// Something a user is to do in a browser (2025-11-25).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlElicitation {
    /// Unique in the server; what [`elicitation_complete`](super::notification::elicitation_complete) names.
    pub id: String,
    /// Why, for the user.
    pub message: String,
    /// Where.
    pub url: String,
}

impl UrlElicitation {
    /// To be done at `url`, for the reason given.
    pub fn new(id: impl Into<String>, message: impl Into<String>, url: impl Into<String>) -> Self {
        UrlElicitation { id: id.into(), message: message.into(), url: url.into() }
    }

    /// 2026-07-28 has given up the id.
    pub(super) fn params(&self, revision: Revision) -> Value {
        let mut params = json!({ "mode": "url", "message": self.message, "url": self.url });
        if revision.has_sessions() {
            params["elicitationId"] = json!(self.id);
        }
        params
    }
}

/// A place in the client's file system, or wherever it works, that a server may deal with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Root {
    /// A `file:` URI at present.
    pub uri: String,
    /// For people.
    pub name: Option<String>,
    /// More for whoever knows it.
    #[serde(rename = "_meta")]
    pub meta: Option<Meta>,
}

impl Client {
    pub(super) fn new(link: &Rc<Link>, session: Option<SessionKey>, call: Option<&Rc<CallState>>) -> Self {
        let timeout = Duration::from_millis(ASK_TIMEOUT_MS);
        Client { link: Rc::clone(link), session, call: call.map(Rc::clone), timeout, name: None }
    }

    /// The same client, with another time limit than [`ASK_TIMEOUT_MS`] for each answer.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same client; what it is asked goes by this name in `inputRequests` (2026-07-28), instead of one that is made up. Of
    /// no importance elsewhere.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Has the client's model go on with a conversation (`sampling/createMessage`).
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn create_message(&self, question: CreateMessage) -> Result<Sampled, AskError> {
        let question = self.fit(question)?;
        let answer = self.ask(ServerMethod::CreateMessage, Some(json_of(&question)?)).await?;
        read(&answer)
    }

    /// Has the user fill in a form with the fields of `T` (`elicitation/create`, from 2025-06-18 on). They may be strings,
    /// numbers, booleans and enumerations, or such as an [`Option`]. Never ask for secrets this way.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn elicit<T: DeserializeOwned + JsonSchema>(
        &self,
        message: &str,
    ) -> Result<Elicited<T>, AskError> {
        self.elicit_form(message, &schema::of_form::<T>()).await
    }

    /// The same with a schema made by hand.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn elicit_form<T: DeserializeOwned>(
        &self,
        message: &str,
        schema: &Value,
    ) -> Result<Elicited<T>, AskError> {
        self.require(Revision::V2025_06_18, ClientFeatures::FORMS, "a form")?;
        let params = json_of(&json!({ "message": message, "requestedSchema": schema }))?;
        let answer = self.ask(ServerMethod::Elicit, Some(params)).await?;
        let Reaction { action, content } = read(&answer)?;
        action.with(|| {
            let content = content.ok_or_else(|| AskError::Malformed("no `content`".to_owned()))?;
            T::deserialize(content).map_err(|error| AskError::Malformed(error.to_string()))
        })
    }

    /// Has the user do something in a browser (`elicitation/create` in URL mode, 2025-11-25). Acceptance means that the user
    /// agreed to open the URL; that it is done, the server learns there, and tells with
    /// [`elicitation_complete`](super::notification::elicitation_complete).
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn elicit_url(&self, wanted: &UrlElicitation) -> Result<Elicited<()>, AskError> {
        self.require(Revision::V2025_11_25, ClientFeatures::URLS, "opening a URL")?;
        let revision = self.call.as_ref().map_or(Revision::NEWEST_WITH_SESSIONS, |call| call.revision());
        let answer = self.ask(ServerMethod::Elicit, Some(json_of(&wanted.params(revision))?)).await?;
        let Reaction { action, .. } = read(&answer)?;
        action.with(|| Ok(()))
    }

    /// The places the client lets its servers deal with (`roots/list`).
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn list_roots(&self) -> Result<Vec<Root>, AskError> {
        #[derive(Deserialize)]
        struct Roots {
            roots: Vec<Root>,
        }
        self.require(Revision::V2024_11_05, ClientFeatures::ROOTS, "its roots")?;
        let Roots { roots } = read(&self.ask(ServerMethod::ListRoots, None).await?)?;
        Ok(roots)
    }

    /// Whether the client is there (`ping`).
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ping(&self) -> Result<(), AskError> {
        self.ask(ServerMethod::Ping, None).await.map(drop)
    }

    /// A question without what this client does not know.
    fn fit(&self, mut question: CreateMessage) -> Result<CreateMessage, AskError> {
        self.require(Revision::V2024_11_05, ClientFeatures::SAMPLING, "its model")?;
        if question.tools.is_some() || question.tool_choice.is_some() {
            self.require(Revision::V2025_11_25, ClientFeatures::SAMPLING_TOOLS, "its model with tools")?;
        }
        let undeclared =
            self.require(Revision::V2025_11_25, ClientFeatures::SAMPLING_CONTEXT, "context").is_err();
        let is_newest = self.call.as_ref().is_some_and(|call| call.revision() >= Revision::V2025_11_25);
        if is_newest && undeclared {
            question.include_context = question.include_context.filter(|it| *it == IncludeContext::None);
        }
        Ok(question)
    }

    /// Outside of calls the revision and the declarations are not known here: the core refuses what was not declared.
    fn require(&self, since: Revision, features: ClientFeatures, what: &'static str) -> Result<(), AskError> {
        match &self.call {
            Some(call) if call.revision() < since => {
                Err(AskError::Unsupported { what, features: ClientFeatures::default() })
            }
            Some(call) if !call.client().has(features) => Err(AskError::Unsupported { what, features }),
            Some(_) | None => Ok(()),
        }
    }

    async fn ask(&self, method: ServerMethod, params: Option<Bytes>) -> Result<Bytes, AskError> {
        if self.call.as_ref().is_some_and(|call| call.is_over()) {
            return Err(AskError::CallOver);
        }
        let Some(session) = self.session else { return self.inquire(method, params).await };
        let answer = Answer::expect(&self.link);
        self.link.outbox.push(Tell::Request(ServerRequest {
            id: answer.id(),
            session,
            call: self.call.as_ref().map(|call| call.key()),
            method,
            params,
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX / 2),
        }));
        self.unless_over(answer).await?.map_err(AskError::of)
    }

    /// Without a session: the question goes out with the answer of the call, and the client comes back with another call.
    async fn inquire(&self, method: ServerMethod, params: Option<Bytes>) -> Result<Bytes, AskError> {
        let unsupported = |what| AskError::Unsupported { what, features: ClientFeatures::default() };
        let call = self.call.as_ref().ok_or(unsupported("anything outside of a call"))?;
        let kind = match method {
            ServerMethod::CreateMessage => "sampling",
            ServerMethod::Elicit => "elicitation",
            ServerMethod::ListRoots => "roots",
            ServerMethod::Ping => return Err(unsupported("a sign of life")),
        };
        if !rounds::may_ask(call.method()) {
            return Err(unsupported("anything by this method"));
        }
        let name = match call.question(self.name.as_deref(), kind) {
            Ok(name) => name,
            Err(answer) => return Ok(answer),
        };
        let answer = Answer::expect(&self.link);
        let request = rounds::request(method, params.as_deref());
        call.ask(Question { name, id: answer.id(), request, patience: self.timeout });
        self.link.asked(call);
        let in_time = tokio::time::timeout(self.timeout, answer);
        self.unless_over(in_time).await?.map_err(|_| AskError::TimedOut)?.map_err(AskError::of)
    }

    /// Waits no longer than the call.
    async fn unless_over<F: Future>(&self, future: F) -> Result<F::Output, AskError> {
        let mut future = pin!(future);
        let mut cancelled = self.call.as_ref().map(Cancelled::of);
        poll_fn(|cx| {
            let over = cancelled.as_mut().is_some_and(|cancelled| pin!(cancelled).poll(cx).is_ready());
            if over {
                return Poll::Ready(Err(AskError::CallOver));
            }
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }
}

impl AskError {
    fn of(error: RpcError) -> Self {
        match error.code {
            ASK_TIMED_OUT => AskError::TimedOut,
            _ => AskError::Failed(error),
        }
    }
}

#[derive(Deserialize)]
struct Reaction {
    action: Action,
    content: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Decline,
    Cancel,
}

impl Action {
    fn with<T>(self, values: impl FnOnce() -> Result<T, AskError>) -> Result<Elicited<T>, AskError> {
        Ok(match self {
            Action::Accept => Elicited::Accepted(values()?),
            Action::Decline => Elicited::Declined,
            Action::Cancel => Elicited::Dismissed,
        })
    }
}

fn json_of(value: &impl Serialize) -> Result<Bytes, AskError> {
    let json = serde_json::to_vec(value).map_err(|error| AskError::Malformed(error.to_string()))?;
    Ok(json.into())
}

fn read<T: DeserializeOwned>(answer: &Bytes) -> Result<T, AskError> {
    params::parse(answer).map_err(|error| AskError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
