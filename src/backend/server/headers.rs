//! Arguments of a tool that a client repeats in header fields (2026-07-28, `x-mcp-header`), so that whoever is between can
//! see them without a look at the body.
//!
//! Owns which properties of a schema are repeated, whether that is allowed, and the comparison of a field with its argument.
//! A field and an argument that differ would let a request pass as another: it is refused before the handler runs. O(fields
//! × repeated arguments), for tools that have any.

use super::super::service;
use crate::core::jsonrpc::RpcError;
use crate::core::seam::ParamField;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use std::fmt;

/// A property that is repeated in the field `Mcp-Param-{field}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    field: String,
    path: Vec<String>,
}

/// Why an `x-mcp-header` is not allowed where it is. Clients leave out a tool that has such a one without a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderError {
    /// Where in the schema, as in `properties.region`.
    pub at: String,
    /// What is wrong there.
    pub fault: HeaderFault,
}

/// What is wrong with an `x-mcp-header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// It is no string, or its text cannot be part of a field's name: letters, digits and ``!#$%&'*+-.^_`|~``, at least one.
    Name,
    /// Another property has the same, but for the case of its letters.
    Repeated,
    /// The property's type is not exactly one of `string`, `integer` and `boolean`.
    Type,
    /// It is not reached by `properties` alone: an item of a list, an alternative, a definition.
    Place,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.fault {
            HeaderFault::Name => "is no name for a header field",
            HeaderFault::Repeated => "is there twice, but for the case of its letters",
            HeaderFault::Type => "belongs to a property that is not just a string, an integer or a boolean",
            HeaderFault::Place => "is not reached by `properties` alone",
        };
        write!(f, "`{}.{ANNOTATION}` {reason}", self.at)
    }
}

const ANNOTATION: &str = "x-mcp-header";

/// The repeated properties of a tool's arguments.
///
/// # Errors
/// [`HeaderError`] for the first annotation that is not allowed.
pub(super) fn of_schema(schema: &Value) -> Result<Vec<Repeated>, HeaderError> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    walk(schema, &mut path, &mut found)?;
    Ok(found)
}

/// Looks at a schema that is reached by `properties` alone.
fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Repeated>) -> Result<(), HeaderError> {
    let Some(schema) = schema.as_object() else { return Ok(()) };
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    walk(property, path, found)?;
                    path.pop();
                }
            }
            (ANNOTATION, value) => found.push(annotated(schema, value, path, found)?),
            (keyword, value) => refuse_within(keyword, value, &place(path))?,
        }
    }
    Ok(())
}

fn annotated(
    property: &Map<String, Value>,
    annotation: &Value,
    path: &[String],
    found: &[Repeated],
) -> Result<Repeated, HeaderError> {
    let fault = |fault| HeaderError { at: place(path), fault };
    let field = annotation.as_str().filter(|name| is_token(name)).ok_or_else(|| fault(HeaderFault::Name))?;
    if path.is_empty() {
        return Err(fault(HeaderFault::Place));
    }
    let kind = property.get("type").and_then(Value::as_str);
    if !matches!(kind, Some("string" | "integer" | "boolean")) {
        return Err(fault(HeaderFault::Type));
    }
    if found.iter().any(|other| other.field.eq_ignore_ascii_case(field)) {
        return Err(fault(HeaderFault::Repeated));
    }
    Ok(Repeated { field: field.to_owned(), path: path.to_vec() })
}

/// Whatever is beside `properties` may have no annotation at any depth.
fn refuse_within(keyword: &str, value: &Value, at: &str) -> Result<(), HeaderError> {
    if matches!(keyword, "const" | "enum" | "default" | "examples") {
        return Ok(());
    }
    let at = if at.is_empty() { keyword.to_owned() } else { format!("{at}.{keyword}") };
    match value {
        Value::Object(members) if members.contains_key(ANNOTATION) && keyword != "properties" => {
            Err(HeaderError { at, fault: HeaderFault::Place })
        }
        Value::Object(members) => {
            members.iter().try_for_each(|(keyword, value)| refuse_within(keyword, value, &at))
        }
        Value::Array(items) => items.iter().try_for_each(|item| refuse_within("[]", item, &at)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn place(path: &[String]) -> String {
    path.iter().map(|name| format!("properties.{name}")).collect::<Vec<_>>().join(".")
}

/// RFC 9110 section 5.6.2.
fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

// --- Comparing ----------------------------------------------------------------------------------

/// Whether the fields say what the arguments do. Fields nobody asked for are ignored.
///
/// # Errors
/// -32020 names the field that is missing, malformed, there twice or different; also one whose argument is not there.
pub(super) fn check(repeated: &[Repeated], fields: &[ParamField], arguments: &str) -> Result<(), RpcError> {
    if repeated.is_empty() {
        return Ok(());
    }
    // What is no object is refused where the arguments are read.
    let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
    repeated.iter().try_for_each(|one| one.check(fields, &arguments))
}

impl Repeated {
    fn check(&self, fields: &[ParamField], arguments: &Value) -> Result<(), RpcError> {
        let name = &self.field;
        let mut said = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes()));
        let (field, second) = (said.next(), said.next());
        let argument = self.path.iter().try_fold(arguments, |value, name| value.get(name));
        let refuse =
            |reason: &str| Err(service::header_mismatch(format_args!("`Mcp-Param-{name}` {reason}")));
        match (field, argument.filter(|value| !value.is_null())) {
            _ if second.is_some() => refuse("is there twice"),
            (None, None) => Ok(()),
            (None, Some(_)) => refuse("is missing"),
            (Some(_), None) => refuse("is there, but its argument is not"),
            (Some(field), Some(argument)) => match decode(&field.value) {
                None => refuse("is malformed"),
                Some(text) if says(&text, argument) => Ok(()),
                Some(_) => refuse("differs from its argument"),
            },
        }
    }
}

/// The text of a field: as it is, or in the base64 form, which has to be the only one of its text.
fn decode(value: &[u8]) -> Option<String> {
    let encoded = value.strip_prefix(b"=?base64?").and_then(|rest| rest.strip_suffix(b"?="));
    let bytes = match encoded {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None if value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) => value.to_vec(),
        None => return None,
    };
    String::from_utf8(bytes).ok()
}

fn says(text: &str, argument: &Value) -> bool {
    match argument {
        Value::String(argument) => text == argument,
        Value::Bool(argument) => text == if *argument { "true" } else { "false" },
        Value::Number(argument) => {
            let argument = Number::of(&argument.to_string());
            argument.is_some() && Number::of(text) == argument
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// A number by its value: `42`, `42.0` and `4.2e1` are one.
#[derive(PartialEq)]
enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    fn of(text: &str) -> Option<Self> {
        /// From here on not every whole number is an `f64`.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return None;
        }
        if let Ok(whole) = text.parse() {
            return Some(Number::Whole(whole));
        }
        let real: f64 = text.parse().ok().filter(|real: &f64| real.is_finite())?;
        if real.fract() == 0.0 && real.abs() < EXACT_MAX {
            #[allow(clippy::cast_possible_truncation, reason = "whole and within 53 bits, as just checked")]
            return Some(Number::Whole(real as i128));
        }
        Some(Number::Real(real))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    fn fault(schema: &Value) -> HeaderFault {
        of_schema(schema).unwrap_err().fault
    }

    fn one(property: &Value) -> Value {
        json!({"type": "object", "properties": {"a": property}})
    }

    #[test]
    fn annotated_properties_are_found_at_any_depth() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "x-mcp-header": {"type": "string"},
            "where": {"type": "object", "properties": {
                "level": {"type": "integer", "x-mcp-header": "Level", "default": {"x-mcp-header": 1}},
            }},
        }});
        let mut found = of_schema(&schema).unwrap();
        found.sort_by(|a, b| b.field.cmp(&a.field));
        let repeated = |field: &str, path: &[&str]| Repeated {
            field: field.into(),
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(found, [repeated("Region", &["region"]), repeated("Level", &["where", "level"])]);
        assert_eq!(of_schema(&json!({"type": "object"})), Ok(Vec::new()));
    }

    #[test]
    fn an_annotation_has_to_be_a_name_of_its_own_on_a_plain_property() {
        for name in [json!(""), json!("a b"), json!("é"), json!(1), json!("a:"), Value::Null] {
            let schema = one(&json!({"type": "string", "x-mcp-header": name}));
            assert_eq!(fault(&schema), HeaderFault::Name, "{name}");
        }
        for kind in [json!("number"), json!("object"), json!(["string", "null"]), Value::Null] {
            let schema = one(&json!({"type": kind, "x-mcp-header": "A"}));
            assert_eq!(fault(&schema), HeaderFault::Type, "{kind}");
        }
        let twice = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "Name"}, "b": {"type": "string", "x-mcp-header": "nAME"},
        }});
        assert_eq!(fault(&twice), HeaderFault::Repeated);
    }

    #[test]
    fn an_annotation_is_reached_by_properties_alone() {
        let annotated = json!({"type": "string", "x-mcp-header": "A"});
        for schema in [
            json!({"type": "string", "x-mcp-header": "A"}),
            one(&json!({"type": "array", "items": annotated})),
            one(&json!({"anyOf": [annotated]})),
            json!({"$defs": {"a": annotated}}),
            json!({"if": {"properties": {"a": annotated}}}),
            json!({"additionalProperties": annotated}),
        ] {
            assert_eq!(fault(&schema), HeaderFault::Place, "{schema}");
        }
    }

    fn verdict(argument: &Value, fields: &[(&str, &str)]) -> String {
        let repeated = [Repeated { field: "Wanted".into(), path: vec!["a".into(), "b".into()] }];
        let field = |(name, value): &(&str, &str)| ParamField {
            name: (*name).to_owned().into(),
            value: (*value).to_owned().into(),
        };
        let fields: Vec<_> = fields.iter().map(field).collect();
        let arguments = json!({"a": {"b": argument}}).to_string();
        match check(&repeated, &fields, &arguments) {
            Ok(()) => "fits".into(),
            Err(error) => format!("{} {}", error.code, error.message.rsplit("` ").next().unwrap()),
        }
    }

    #[test]
    fn a_field_says_what_its_argument_does() {
        for (argument, value) in [
            (json!("Hello"), "Hello"),
            (json!("Hello"), "=?base64?SGVsbG8=?="),
            (json!("SGVsbG8="), "SGVsbG8="),
            (json!("=?base64?SGVsbG8="), "=?base64?SGVsbG8="),
            (json!("=?BASE64?SGVsbG8=?="), "=?BASE64?SGVsbG8=?="),
            (json!("é"), "=?base64?w6k=?="),
            (json!(""), ""),
            (json!(true), "true"),
            (json!(42), "42.0"),
            (json!(42.0), "42"),
            (json!(-7), "-7"),
        ] {
            assert_eq!(
                verdict(&argument, &[("wANTED", value), ("Other", "x")]),
                "fits",
                "{argument} {value}"
            );
        }
        assert_eq!(verdict(&Value::Null, &[]), "fits");
    }

    #[test]
    fn a_field_that_does_not_is_refused() {
        let malformed =
            ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", "=?base64?SGVsbG9=?=", "é"];
        for value in malformed {
            assert_eq!(verdict(&json!("Hello"), &[("Wanted", value)]), "-32020 is malformed", "{value}");
        }
        for (argument, value) in [
            (json!("Hello"), "hello"),
            (json!(true), "TRUE"),
            (json!(1), "true"),
            (json!(1), "+1"),
            (json!(1), ""),
            (json!([1]), "1"),
        ] {
            assert_eq!(
                verdict(&argument, &[("Wanted", value)]),
                "-32020 differs from its argument",
                "{argument}"
            );
        }
        assert_eq!(verdict(&json!("a"), &[]), "-32020 is missing");
        assert_eq!(verdict(&Value::Null, &[("Wanted", "a")]), "-32020 is there, but its argument is not");
        assert_eq!(verdict(&json!("a"), &[("Wanted", "a"), ("wanted", "a")]), "-32020 is there twice");
    }
}
