//! JSON Schemas of Rust types, as MCP clients like them.
//!
//! Owns what is changed in what `schemars` derives: no `$schema` (the revisions' default is 2020-12, and older validators
//! stumble over a dialect they do not know), neither title nor description of the
//! type as a whole, which speak to readers of the code, no formats that are Rust's own,
//! and everything inline as far as a type is not recursive.

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::{Map, Value, json};

/// The schema of what a client sends as a `T`.
pub fn of<T: JsonSchema>() -> Value {
    derive::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of what a `T` is sent as.
pub fn of_result<T: JsonSchema>() -> Value {
    derive::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// The schema of a form for a `T` (`elicitation/create`): an object of strings, numbers, booleans and enumerations, as the
/// specification restricts it. What is optional in `T` may be left out.
pub fn of_form<T: JsonSchema>() -> Value {
    let mut schema = of::<T>();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        restrict(property);
    }
    schema
}

fn derive<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let settings = settings.with_transform(RecursiveTransform(drop_rust_formats));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.remove("description");
    // A map, or any value: at this place they are always objects.
    if schema.get("type").is_none() {
        schema.insert("type".into(), json!("object"));
    }
    Value::from(schema)
}

fn drop_rust_formats(schema: &mut Schema) {
    let is_rusts = |format: &str| {
        matches!(format, "float" | "double") || format.starts_with("int") || format.starts_with("uint")
    };
    if schema.get("format").and_then(Value::as_str).is_some_and(is_rusts) {
        schema.remove("format");
    }
}

/// Forms know neither `null` nor enumerations of constants with descriptions.
fn restrict(property: &mut Value) {
    if let Some(types) = property.get_mut("type")
        && let Some([one]) = types
            .as_array()
            .map(|types| types.iter().filter(|kind| *kind != "null").collect::<Vec<_>>())
            .as_deref()
    {
        *types = Value::clone(one);
    }
    if let Some(values) = property.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    if let Some(alternatives) = property.get_mut("anyOf").and_then(Value::as_array_mut) {
        alternatives.retain(|alternative| alternative.get("type").is_none_or(|kind| kind != "null"));
        if let [one] = &mut alternatives[..]
            && let (Value::Object(mut one), Some(outer)) = (one.take(), property.as_object_mut())
        {
            outer.remove("anyOf");
            outer.append(&mut one);
        }
    }
    let choices = property.get_mut("oneOf").and_then(Value::as_array_mut);
    if let Some(choices) = choices
        && choices.iter().all(|choice| choice.get("const").is_some())
    {
        for choice in choices {
            *choice = json!({ "const": choice["const"], "title": titled(choice) });
        }
        property["type"] = json!("string");
    }
    if let Some(property) = property.as_object_mut()
        && property.get("default").is_some_and(Value::is_null)
    {
        property.remove("default");
    }
}

fn titled(choice: &Value) -> Value {
    [&choice["title"], &choice["description"]]
        .into_iter()
        .find(|text| text.is_string())
        .unwrap_or(&choice["const"])
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Inner {
        /// How many.
        count: u32,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Outer {
        name: String,
        ratio: Option<f64>,
        inner: Inner,
    }

    #[test]
    fn a_type_becomes_a_plain_schema() {
        assert_eq!(
            of::<Outer>(),
            json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "ratio": {"type": ["number", "null"]},
                    "inner": {
                        "type": "object",
                        "properties": {"count": {"type": "integer", "minimum": 0, "description": "How many."}},
                        "required": ["count"],
                    },
                },
                "required": ["name", "inner"],
            })
        );
    }

    #[test]
    fn anything_is_an_object() {
        for schema in [of::<Value>(), of::<Map<String, Value>>(), of_result::<Value>()] {
            assert_eq!(schema["type"], "object");
        }
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    struct Form {
        /// Your name.
        name: Option<String>,
        age: u8,
        plain: Plain,
        told: Option<Told>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    enum Plain {
        A,
        B,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    enum Told {
        /// The first
        A,
        /// The second
        B,
    }

    #[test]
    fn a_form_is_as_restricted_as_the_specification_wants() {
        let form = of_form::<Form>();
        assert_eq!(
            form["properties"],
            json!({
                "name": {"type": "string", "description": "Your name."},
                "age": {"type": "integer", "minimum": 0, "maximum": 255},
                "plain": {"type": "string", "enum": ["A", "B"]},
                "told": {
                    "type": "string",
                    "oneOf": [{"const": "A", "title": "The first"}, {"const": "B", "title": "The second"}],
                },
            })
        );
        assert_eq!(form["required"], json!(["age", "plain"]));
    }
}
