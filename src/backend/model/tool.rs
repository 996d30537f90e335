//! Tools: how they are described, and what they return.

use super::{Content, Icon, Meta, Revised, since, with};
use crate::backend::Failure;
use crate::core::seam::Revision;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// A tool as `tools/list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Unique in the server: 1 to 128 of `A-Z a-z 0-9 _ - .`
    pub name: String,
    /// For people. Sent from 2025-06-18 on; 2025-03-26 has it among the annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For the model that chooses a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON Schema of the arguments, an object.
    pub input_schema: Value,
    /// A JSON Schema of the structured result; sent from 2025-06-18 on, if it is no object from 2026-07-28 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints about what it does; sent from 2025-03-26 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Sent from 2025-11-25 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Sent from 2025-06-18 on.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// Hints about what a tool does. A client must not rely on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// Where 2025-03-26 has the title of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// What it changes may be lost. Means something only for a tool that is not read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A second call with the same arguments changes nothing more. Likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It deals with things outside the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl ToolAnnotations {
    /// Of a tool that only looks at what the server itself has.
    pub fn read_only() -> Self {
        ToolAnnotations {
            read_only_hint: Some(true),
            open_world_hint: Some(false),
            ..ToolAnnotations::default()
        }
    }
}

impl Revised for ToolDefinition {
    fn revise(&mut self, revision: Revision) {
        if revision == Revision::V2025_03_26 && self.title.is_some() {
            self.annotations.get_or_insert_default().title = self.title.take();
        }
        since(Revision::V2025_03_26, revision, &mut self.annotations);
        since(Revision::V2025_06_18, revision, &mut self.title);
        since(Revision::V2025_06_18, revision, &mut self.output_schema);
        if self.output_schema.as_ref().is_some_and(|schema| schema["type"] != "object") {
            since(Revision::V2026_07_28, revision, &mut self.output_schema);
        }
        since(Revision::V2025_06_18, revision, &mut self.meta);
        since(Revision::V2025_11_25, revision, &mut self.icons);
    }
}

// --- Results ------------------------------------------------------------------------------------

/// What a tool returns.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// For models and people.
    pub content: Vec<Content>,
    /// For programs, as the output schema says; sent from 2025-06-18 on, if it is no object from 2026-07-28 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Box<RawValue>>,
    /// The tool has failed, and `content` says why.
    #[serde(skip_serializing_if = "is_false")]
    pub is_error: bool,
    /// More for whoever knows it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ToolResult {
    /// One text.
    pub fn text(text: impl Into<String>) -> Self {
        ToolResult { content: vec![Content::text(text)], ..ToolResult::default() }
    }

    /// The tool has failed, for the reason given. The model that called it reads this.
    pub fn failure(reason: impl Into<String>) -> Self {
        ToolResult { is_error: true, ..ToolResult::text(reason) }
    }

    /// A structured result, and the same as a text for clients that know no other.
    ///
    /// # Errors
    /// If `value` does not serialise.
    pub fn structured(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let json = serde_json::value::to_raw_value(value)?;
        Ok(ToolResult { structured_content: Some(json.clone()), ..ToolResult::text(json.get()) })
    }

    with! {
        /// More for whoever knows it.
        meta: Meta,
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Revised for ToolResult {
    fn revise(&mut self, revision: Revision) {
        since(Revision::V2025_06_18, revision, &mut self.structured_content);
        if self.structured_content.as_ref().is_some_and(|value| !value.get().starts_with('{')) {
            since(Revision::V2026_07_28, revision, &mut self.structured_content);
        }
        self.content.revise(revision);
    }
}

/// A structured result: the handler's value becomes both `structuredContent` and a text, and its type the tool's output
/// schema.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// What a tool's handler may return.
pub trait IntoToolResult {
    /// The tool's output schema, if the type has one.
    fn output_schema() -> Option<Value> {
        None
    }

    /// The result.
    ///
    /// # Errors
    /// What the handler failed with.
    fn into_tool_result(self) -> Result<ToolResult, Failure>;
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        Ok(self)
    }
}

impl IntoToolResult for String {
    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for &'static str {
    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for Content {
    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        vec![self].into_tool_result()
    }
}

impl IntoToolResult for Vec<Content> {
    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        Ok(ToolResult { content: self, ..ToolResult::default() })
    }
}

impl<T: Serialize + schemars::JsonSchema> IntoToolResult for Json<T> {
    fn output_schema() -> Option<Value> {
        Some(crate::backend::schema::of_result::<T>())
    }

    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        Ok(ToolResult::structured(&self.0)?)
    }
}

impl<T: IntoToolResult, E: Into<Failure>> IntoToolResult for Result<T, E> {
    fn output_schema() -> Option<Value> {
        T::output_schema()
    }

    fn into_tool_result(self) -> Result<ToolResult, Failure> {
        self.map_err(Into::into)?.into_tool_result()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    fn at<T: Revised + Clone + Serialize>(revision: Revision, value: &T) -> Value {
        let mut value = value.clone();
        value.revise(revision);
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn a_definition_has_the_fields_of_its_revision() {
        let tool = ToolDefinition {
            name: "t".into(),
            title: Some("T".into()),
            description: Some("d".into()),
            input_schema: json!({"type": "object"}),
            output_schema: Some(json!({"type": "object"})),
            annotations: None,
            icons: Some(vec![Icon::new("data:,")]),
            meta: Some(Meta::new()),
        };
        let fields = |revision| {
            let value = at(revision, &tool);
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fields(Revision::V2024_11_05), "description inputSchema name");
        assert_eq!(fields(Revision::V2025_03_26), "annotations description inputSchema name");
        assert_eq!(at(Revision::V2025_03_26, &tool)["annotations"], json!({"title": "T"}));
        assert_eq!(fields(Revision::V2025_06_18), "_meta description inputSchema name outputSchema title");
        assert_eq!(
            fields(Revision::V2025_11_25),
            "_meta description icons inputSchema name outputSchema title"
        );
    }

    #[test]
    fn a_structured_result_is_a_text_too() {
        let result = Json(json!({"a": 1})).into_tool_result().unwrap();
        assert_eq!(
            at(Revision::V2025_06_18, &result),
            json!({"content": [{"type": "text", "text": "{\"a\":1}"}], "structuredContent": {"a": 1}})
        );
        assert!(at(Revision::V2025_03_26, &result).get("structuredContent").is_none());
    }

    #[test]
    fn only_objects_are_structured_before_2026_07_28() {
        let result = Json(vec![1, 2]).into_tool_result().unwrap();
        let schema = <Json<Vec<i32>>>::output_schema();
        let tool = ToolDefinition {
            name: "t".into(),
            title: None,
            description: None,
            input_schema: json!({"type": "object"}),
            output_schema: schema,
            annotations: None,
            icons: None,
            meta: None,
        };
        for revision in Revision::ALL {
            let is_newest = revision == Revision::V2026_07_28;
            assert_eq!(at(revision, &result).get("structuredContent").is_some(), is_newest);
            assert_eq!(at(revision, &result)["content"][0]["text"], "[1,2]");
            assert_eq!(at(revision, &tool).get("outputSchema").is_some(), is_newest);
        }
    }

    #[test]
    fn only_a_failure_says_whether_it_is_one() {
        assert!(at(Revision::NEWEST_WITH_SESSIONS, &ToolResult::text("a")).get("isError").is_none());
        assert_eq!(at(Revision::NEWEST_WITH_SESSIONS, &ToolResult::failure("a"))["isError"], true);
    }
}
