//! Typed values from named strings: the arguments of prompts, the variables of URI templates.
//!
//! Owns the reading of numbers, booleans and enumerations from their text; what `T` leaves out is ignored. Errors name the
//! argument.

use super::super::ParamsError;
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, IntoDeserializer, Visitor,
        value::{Error, MapDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{collections::BTreeMap, fmt::Display, str::FromStr};

/// Reads a `T` from its named parts.
///
/// # Errors
/// [`ParamsError`] names the part that does not fit.
pub(super) fn parse<T: DeserializeOwned>(strings: &BTreeMap<String, String>) -> Result<T, ParamsError> {
    let parts = strings.iter().map(|(name, text)| (name.as_str(), Text(text)));
    let source = MapDeserializer::<_, Error>::new(parts);
    serde_path_to_error::deserialize(source).map_err(|error| {
        let path = error.path().to_string();
        ParamsError::new(if path == "." { "" } else { &path }, error.inner().to_string())
    })
}

/// One of them.
#[derive(Clone, Copy)]
struct Text<'a>(&'a str);

impl Text<'_> {
    fn read<T: FromStr<Err: Display>>(self, kind: &str) -> Result<T, Error> {
        let wrong = |error| serde::de::Error::custom(format_args!("expected {kind}: {error}"));
        self.0.parse().map_err(wrong)
    }
}

impl<'de> IntoDeserializer<'de, Error> for Text<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.read("a number")?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.read("true or false")?)
    }

    numbers! {
        deserialize_i8 visit_i8
        deserialize_i16 visit_i16
        deserialize_i32 visit_i32
        deserialize_i64 visit_i64
        deserialize_u8 visit_u8
        deserialize_u16 visit_u16
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_f32 visit_f32
        deserialize_f64 visit_f64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Wanted {
        name: String,
        count: u32,
        ratio: Option<f64>,
        bold: Option<bool>,
        color: Option<Color>,
        id: Option<Id>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Red,
        Blue,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Id(u8);

    fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn refusal(pairs: &[(&str, &str)]) -> String {
        parse::<Wanted>(&strings(pairs)).unwrap_err().to_string()
    }

    #[test]
    fn each_text_becomes_what_is_wanted() {
        let all = [
            ("name", "5"),
            ("count", "5"),
            ("ratio", "0.5"),
            ("bold", "true"),
            ("color", "blue"),
            ("id", "7"),
            ("more", ""),
        ];
        let wanted: Wanted = parse(&strings(&all)).unwrap();
        let expected = Wanted {
            name: "5".into(),
            count: 5,
            ratio: Some(0.5),
            bold: Some(true),
            color: Some(Color::Blue),
            id: Some(Id(7)),
        };
        assert_eq!(wanted, expected);
        let least: Wanted = parse(&strings(&[("name", ""), ("count", "0")])).unwrap();
        assert_eq!((least.ratio, least.bold, least.color), (None, None, None));
    }

    #[test]
    fn a_refusal_names_the_part() {
        assert_eq!(refusal(&[("name", "a")]), "missing field `count`");
        let wrong = refusal(&[("name", "a"), ("count", "-1")]);
        assert_eq!(wrong, "`count`: expected a number: invalid digit found in string");
        let wrong = refusal(&[("name", "a"), ("count", "1"), ("color", "green")]);
        assert_eq!(wrong, "`color`: unknown variant `green`, expected `red` or `blue`");
    }
}
