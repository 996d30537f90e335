//! Typed parsing of `params` and tool arguments, with errors that name the field.
//!
//! Owns nothing. Must never quote more of the client's bytes than serde's own message does, and must accept
//! objects only: MCP has no parameters by position, although serde would read a struct from an array.
//!
//! A well-formed value is parsed once, without bookkeeping; only a refused one is parsed a second time to
//! find out where.

use crate::core::jsonrpc::RpcError;
use serde::Deserialize;
use std::fmt;

/// Why parameters do not have the expected shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsError {
    /// Where, as in `arguments.steps`; empty for the object itself.
    pub field: String,
    /// What is wrong there, for a person.
    pub reason: String,
}

impl ParamsError {
    /// A field that has the right type and a wrong value.
    pub fn new(field: &str, reason: impl Into<String>) -> Self {
        ParamsError { field: field.to_owned(), reason: reason.into() }
    }

    /// The same error about a field of a field.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let field = if self.field.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.field) };
        ParamsError { field, ..self }
    }
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.reason);
        }
        write!(f, "`{}`: {}", self.field, self.reason)
    }
}

impl std::error::Error for ParamsError {}

impl From<ParamsError> for RpcError {
    fn from(error: ParamsError) -> Self {
        super::service::invalid_params(error.to_string())
    }
}

/// Reads one JSON object as a `T`.
///
/// # Errors
/// [`ParamsError`] names the first field that does not fit.
pub fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ParamsError> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(ParamsError::new("", "expected an object"));
    }
    serde_json::from_slice(json).or_else(|_| parse_slowly(json))
}

/// The same, keeping track of where it is.
fn parse_slowly<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ParamsError> {
    let mut source = serde_json::Deserializer::from_slice(json);
    serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = error.path().to_string();
        ParamsError { field: if path == "." { String::new() } else { path }, reason: reason(error.inner()) }
    })
}

/// serde_json's message without its position, which means nothing to someone who sees no line.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::value::RawValue;

    #[derive(Debug, Deserialize)]
    #[serde(expecting = "an object")]
    struct Outer<'a> {
        name: String,
        #[serde(borrow)]
        inner: Option<Inner<'a>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object")]
    struct Inner<'a> {
        count: u32,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
    }

    fn refusal(json: &str) -> String {
        parse::<Outer<'_>>(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_fitting_object_is_read_and_unknown_fields_are_left_alone() {
        let json = br#" {"name":"x","inner":{"count":3,"raw":[1, 2]},"_meta":{}}"#;
        let outer: Outer<'_> = parse(json).unwrap();
        let inner = outer.inner.unwrap();
        assert_eq!((outer.name.as_str(), inner.count, inner.raw.unwrap().get()), ("x", 3, "[1, 2]"));
    }

    #[test]
    fn a_refusal_names_the_field() {
        assert_eq!(refusal("{}"), "missing field `name`");
        assert_eq!(refusal(r#"{"name":5}"#), "`name`: invalid type: integer `5`, expected a string");
        assert_eq!(
            refusal(r#"{"name":"x","inner":{"count":"many"}}"#),
            "`inner.count`: invalid type: string \"many\", expected u32"
        );
        assert_eq!(
            refusal(r#"{"name":"x","inner":{"count":1,"more":2}}"#),
            "`inner.more`: unknown field `more`, expected `count` or `raw`"
        );
    }

    #[test]
    fn only_objects_are_parameters() {
        for json in ["[\"x\",null]", "5", "null", "", "  "] {
            assert_eq!(refusal(json), "expected an object", "{json}");
        }
    }

    #[test]
    fn an_error_becomes_invalid_params() {
        let error = RpcError::from(ParamsError::new("cursor", "unknown"));
        assert_eq!((error.code, &*error.message), (-32602, "Invalid params: `cursor`: unknown"));
    }
}
