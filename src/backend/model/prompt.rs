//! Prompts: how they are described, what they say; and completions of their arguments.

use super::{Content, Icon, Meta, Revised, Role, since, with};
use crate::backend::Failure;
use crate::core::seam::Revision;
use serde::Serialize;
use std::collections::BTreeMap;

/// A prompt as `prompts/list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub struct PromptDefinition {
    pub name: String,
    /// For people; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// Sent from 2025-11-25 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Revised for PromptDefinition {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.title);
        since(Revision::V2025_06_18, revision, &mut self.meta);
        since(Revision::V2025_11_25, revision, &mut self.icons);
        for argument in &mut self.arguments {
            since(Revision::V2025_06_18, revision, &mut argument.title);
        }
    }
}

/// An argument of a prompt; its value is always a string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub struct PromptArgument {
    pub name: String,
    /// For people; sent from 2025-06-18 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub required: bool,
}

/// What a prompt says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub struct PromptResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl PromptResult {
    with! {
        /// What the prompt is about.
        description: String,
        /// More for whoever knows it.
        meta: Meta,
    }
}

impl Revised for PromptResult {
    fn revise(&mut self, revision: Revision) {
        self.messages.iter_mut().for_each(|message| message.content.revise(revision));
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
}

impl PromptMessage {
    /// The user says a text.
    pub fn user(text: impl Into<String>) -> Self {
        PromptMessage::of(Role::User, Content::text(text))
    }

    /// The assistant says a text.
    pub fn assistant(text: impl Into<String>) -> Self {
        PromptMessage::of(Role::Assistant, Content::text(text))
    }

    /// Somebody says something.
    pub fn of(role: Role, content: Content) -> Self {
        PromptMessage { role, content }
    }
}

/// What a prompt's handler may return.
pub trait IntoPrompt {
    /// What the prompt says.
    ///
    /// # Errors
    /// What the handler failed with.
    fn into_prompt(self) -> Result<PromptResult, Failure>;
}

impl IntoPrompt for PromptResult {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        Ok(self)
    }
}

impl IntoPrompt for Vec<PromptMessage> {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        Ok(PromptResult { messages: self, ..PromptResult::default() })
    }
}

impl IntoPrompt for PromptMessage {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        vec![self].into_prompt()
    }
}

impl IntoPrompt for String {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        PromptMessage::user(self).into_prompt()
    }
}

impl IntoPrompt for &'static str {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        PromptMessage::user(self).into_prompt()
    }
}

impl<T: IntoPrompt, E: Into<Failure>> IntoPrompt for Result<T, E> {
    fn into_prompt(self) -> Result<PromptResult, Failure> {
        self.map_err(Into::into)?.into_prompt()
    }
}

// --- Completions --------------------------------------------------------------------------------

/// An argument that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// What is typed so far.
    pub value: String,
    /// The other arguments, as far as the client has sent them (2025-06-18).
    pub others: BTreeMap<String, String>,
}

/// What an argument may become.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The best ones, at most [`Completion::VALUES_MAX`].
    pub values: Vec<String>,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Whether there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// As many as one answer may have (2025-11-25, "completion").
    pub const VALUES_MAX: usize = 100;
}

impl From<Vec<String>> for Completion {
    /// All there are; only the first are sent.
    fn from(mut values: Vec<String>) -> Self {
        let total = values.len();
        values.truncate(Completion::VALUES_MAX);
        Completion { has_more: Some(total > values.len()), total: Some(total), values }
    }
}

/// What a completion's handler may return.
pub trait IntoCompletion {
    /// What the argument may become.
    ///
    /// # Errors
    /// What the handler failed with.
    fn into_completion(self) -> Result<Completion, Failure>;
}

impl IntoCompletion for Completion {
    fn into_completion(self) -> Result<Completion, Failure> {
        Ok(self)
    }
}

impl IntoCompletion for Vec<String> {
    fn into_completion(self) -> Result<Completion, Failure> {
        Ok(self.into())
    }
}

impl<T: IntoCompletion, E: Into<Failure>> IntoCompletion for Result<T, E> {
    fn into_completion(self) -> Result<Completion, Failure> {
        self.map_err(Into::into)?.into_completion()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_said_by_the_user() {
        let said = serde_json::to_value("hello".into_prompt().unwrap()).unwrap();
        let message = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
        assert_eq!(said, json!({"messages": [message]}));
    }

    #[test]
    fn a_completion_is_cut_where_the_protocol_says() {
        let values = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let all = Completion::from(values(100));
        assert_eq!((all.values.len(), all.total, all.has_more), (100, Some(100), Some(false)));
        let some = Completion::from(values(101));
        assert_eq!((some.values.len(), some.total, some.has_more), (100, Some(101), Some(true)));
    }
}
