//! The members of a JSON object, without a look at their values.
//!
//! Owns nothing. For results and parameters that are passed on as they are but for a few names: the values stay slices of
//! the text. One pass over the text, one entry for each member.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The members in the order in which they are written; a name may be there twice.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Those of an object; `None` for anything else.
    pub(super) fn of(json: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The value of the last member of that name, which is the one that counts.
    pub(super) fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(members)
            }
        }

        source.deserialize_map(Each).map(Members)
    }
}

/// Borrowed where it is written without escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn values_are_as_written_and_the_last_of_a_name_counts() {
        let members = Members::of(br#"{"a": 1.0, "\u0062": [2, {}], "a": null}"#).unwrap();
        let names: Vec<_> = members.0.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b", "a"]);
        assert_eq!(members.value("b").unwrap().get(), "[2, {}]");
        assert_eq!(members.value("a").unwrap().get(), "null");
        assert!(members.value("c").is_none());
    }

    #[test]
    fn only_objects_have_members() {
        for json in ["[]", "1", "null", "", "{", r#"{"a"}"#] {
            assert!(Members::of(json.as_bytes()).is_none(), "{json}");
        }
    }
}
