//! Sampling: what a server asks a client's model, and what the model says.

use super::{Content, Meta, Role, ToolDefinition, with};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The parameters of `sampling/createMessage`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessage {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// The most tokens to sample.
    pub max_tokens: u64,
    /// The client may change or ignore it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// From 0 up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Where to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Which model would be good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// What else the model should see. Left out for a client of 2025-11-25 that did not declare it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// For the provider of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Meta>,
    /// What the model may use (2025-11-25); only for clients that declared it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolDefinition>>,
    /// Whether it has to (2025-11-25).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

impl CreateMessage {
    /// A question of the user.
    pub fn text(text: impl Into<String>, max_tokens: u64) -> Self {
        let message = SamplingMessage::user(text);
        CreateMessage { messages: vec![message], max_tokens, ..CreateMessage::default() }
    }

    with! {
        /// The client may change or ignore it.
        system_prompt: String,
        /// From 0 up.
        temperature: f64,
        /// Where to stop.
        stop_sequences: Vec<String>,
        /// Which model would be good.
        model_preferences: ModelPreferences,
        /// What else the model should see.
        include_context: IncludeContext,
        /// For the provider of the model.
        metadata: Meta,
        /// What the model may use.
        tools: Vec<ToolDefinition>,
        /// Whether it has to.
        tool_choice: ToolChoice,
    }
}

/// What else a model should see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IncludeContext {
    /// Nothing.
    None,
    /// What this server has given the client.
    ThisServer,
    /// What all its servers have given the client.
    AllServers,
}

/// Which model would be good; priorities are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// Parts of model names, the best first.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "hints")]
    pub hints: Vec<String>,
    /// That it is cheap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_priority: Option<f64>,
    /// That it is fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_priority: Option<f64>,
    /// That it is clever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intelligence_priority: Option<f64>,
}

fn hints<S: serde::Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Hint<'a> {
        name: &'a str,
    }
    serializer.collect_seq(names.iter().map(|name| Hint { name }))
}

/// Whether a model has to use a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum ToolChoice {
    Auto,
    Required,
    None,
}

/// One message of a conversation with a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplingMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    #[serde(serialize_with = "one_or_many")]
    pub content: Vec<SamplingContent>,
}

/// A single piece stands alone: revisions before 2025-11-25 know no list.
fn one_or_many<S: serde::Serializer>(content: &[SamplingContent], serializer: S) -> Result<S::Ok, S::Error> {
    match content {
        [one] => one.serialize(serializer),
        many => many.serialize(serializer),
    }
}

impl SamplingMessage {
    /// The user says a text.
    pub fn user(text: impl Into<String>) -> Self {
        SamplingMessage { role: Role::User, content: vec![SamplingContent::text(text)] }
    }

    /// The assistant says a text.
    pub fn assistant(text: impl Into<String>) -> Self {
        SamplingMessage { role: Role::Assistant, content: vec![SamplingContent::text(text)] }
    }
}

/// What is said to a model, or by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[allow(missing_docs, reason = "the fields are the specification's")]
pub enum SamplingContent {
    /// Text.
    Text { text: String },
    /// An image; `data` is base64.
    Image { data: String, mime_type: String },
    /// Audio; `data` is base64.
    Audio { data: String, mime_type: String },
    /// The model wants to use a tool (2025-11-25).
    ToolUse { id: String, name: String, input: Meta },
    /// What came of it (2025-11-25).
    ToolResult {
        tool_use_id: String,
        content: Vec<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured_content: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
}

impl SamplingContent {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        SamplingContent::Text { text: text.into() }
    }

    /// An image, given as its bytes.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        SamplingContent::Image { data: STANDARD.encode(bytes), mime_type: mime_type.into() }
    }

    /// What came of the use of a tool.
    ///
    /// # Errors
    /// If the content does not serialise, which content made by its constructors always does.
    pub fn tool_result(
        tool_use_id: impl Into<String>,
        content: &[Content],
    ) -> Result<Self, serde_json::Error> {
        let content = content.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let tool_use_id = tool_use_id.into();
        Ok(SamplingContent::ToolResult { tool_use_id, content, structured_content: None, is_error: None })
    }
}

/// What a client's model said.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sampled {
    /// Who speaks.
    pub role: Role,
    /// What is said; several pieces only from 2025-11-25 on.
    #[serde(deserialize_with = "one_or_many_of")]
    pub content: Vec<SamplingContent>,
    /// The model's name.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or the provider's own word.
    pub stop_reason: Option<String>,
}

impl Sampled {
    /// All its texts, one after the other.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            SamplingContent::Text { text } => Some(text.as_str()),
            SamplingContent::Image { .. }
            | SamplingContent::Audio { .. }
            | SamplingContent::ToolUse { .. }
            | SamplingContent::ToolResult { .. } => None,
        });
        texts.collect()
    }
}

fn one_or_many_of<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<SamplingContent>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(SamplingContent),
        Many(Vec<SamplingContent>),
    }
    Ok(match OneOrMany::deserialize(source)? {
        OneOrMany::One(content) => vec![content],
        OneOrMany::Many(content) => content,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_is_as_short_as_it_can_be() {
        assert_eq!(
            serde_json::to_value(CreateMessage::text("why?", 7)).unwrap(),
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "why?"}}], "maxTokens": 7})
        );
    }

    #[test]
    fn everything_else_is_spelled_as_the_specification_does() {
        let preferences = ModelPreferences { hints: vec!["m".into()], ..ModelPreferences::default() };
        let question = CreateMessage::text("why?", 7)
            .system_prompt("s")
            .include_context(IncludeContext::ThisServer)
            .tool_choice(ToolChoice::Required)
            .model_preferences(preferences);
        let said = serde_json::to_value(question).unwrap();
        assert_eq!(said["systemPrompt"], "s");
        assert_eq!(said["includeContext"], "thisServer");
        assert_eq!(said["toolChoice"], json!({"mode": "required"}));
        assert_eq!(said["modelPreferences"], json!({"hints": [{"name": "m"}]}));
    }

    #[test]
    fn one_piece_or_several_are_an_answer() {
        let one: Sampled = serde_json::from_value(
            json!({"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"}),
        )
        .unwrap();
        assert_eq!((one.text().as_str(), one.stop_reason), ("a", None));
        let content =
            json!([{"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "n", "input": {}}]);
        let many: Sampled = serde_json::from_value(
            json!({"role": "assistant", "content": content, "model": "m", "stopReason": "toolUse"}),
        )
        .unwrap();
        assert_eq!((many.content.len(), many.text().as_str()), (2, "a"));
    }
}
