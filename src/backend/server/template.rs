//! URI templates (RFC 6570), as far as matching needs them: `{name}` and `{+name}`.
//!
//! Owns the parts of a template and how a URI is taken apart by them. `{name}` stands for one or more characters without a
//! slash, percent-encoded in the URI; `{+name}` for any, as they are. A variable ends where the literal after it is found
//! first, so a template is matched in one pass.

use std::collections::BTreeMap;
use thiserror::Error;

/// A template, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UriTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable(String, Reach),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Segment,
    Anything,
}

/// Why a text is no template that can be matched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum TemplateError {
    /// A brace without its partner.
    #[error("the braces of `{0}` do not match")]
    Braces(String),
    /// Only `{name}` and `{+name}`, each name once.
    #[error("`{{{0}}}` is not supported, or is there twice")]
    Expression(String),
    /// Nothing tells where the first ends.
    #[error("`{0}` has two variables without anything between them")]
    Adjacent(String),
}

impl UriTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            push_literal(&mut parts, literal, text)?;
            let (expression, after) =
                after.split_once('}').ok_or_else(|| TemplateError::Braces(text.to_owned()))?;
            if matches!(parts.last(), Some(Part::Variable(..))) {
                return Err(TemplateError::Adjacent(text.to_owned()));
            }
            let variable = variable(expression)?;
            if parts.contains(&variable) {
                return Err(TemplateError::Expression(expression.to_owned()));
            }
            parts.push(variable);
            rest = after;
        }
        push_literal(&mut parts, rest, text)?;
        Ok(UriTemplate(parts))
    }

    /// The variables of `uri`, if it is one of this template.
    pub(super) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let mut rest = uri;
        let mut parts = self.0.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable(name, reach) => {
                    let end = match parts.peek() {
                        // At least one character is the variable's own.
                        Some(Part::Literal(next)) => {
                            let first = rest.chars().next()?.len_utf8();
                            first + rest[first..].find(next.as_str())?
                        }
                        Some(Part::Variable(..)) | None => rest.len(),
                    };
                    let (value, after) = rest.split_at(end);
                    found.insert(name.clone(), reach.decode(value)?);
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(found)
    }

    /// Whether it has a variable of that name.
    pub(super) fn has(&self, variable: &str) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Variable(name, _) if name == variable))
    }
}

fn push_literal(parts: &mut Vec<Part>, literal: &str, text: &str) -> Result<(), TemplateError> {
    if literal.contains('}') {
        return Err(TemplateError::Braces(text.to_owned()));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.to_owned()));
    }
    Ok(())
}

fn variable(expression: &str) -> Result<Part, TemplateError> {
    let (name, reach) = match expression.strip_prefix('+') {
        Some(name) => (name, Reach::Anything),
        None => (expression, Reach::Segment),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(TemplateError::Expression(expression.to_owned()));
    }
    Ok(Part::Variable(name.to_owned(), reach))
}

impl Reach {
    fn decode(self, value: &str) -> Option<String> {
        match self {
            _ if value.is_empty() => None,
            Reach::Anything => Some(value.to_owned()),
            Reach::Segment if value.contains('/') => None,
            Reach::Segment => percent_decoded(value),
        }
    }
}

/// `None` if it is not UTF-8 then, or an escape is broken.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' { digit(bytes.next()?)? << 4 | digit(bytes.next()?)? } else { byte });
    }
    String::from_utf8(decoded).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use proptest::prelude::*;

    fn found(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        Some(UriTemplate::parse(template).unwrap().matches(uri)?.into_iter().collect())
    }

    fn values(template: &str, uri: &str) -> Option<String> {
        Some(found(template, uri)?.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn variables_are_found_between_literals() {
        assert_eq!(
            found("test://template/{id}/data", "test://template/123/data"),
            Some(vec![("id".into(), "123".into())])
        );
        assert_eq!(values("a:{x}-{y}", "a:1-2-3").as_deref(), Some("1|2-3"));
        assert_eq!(values("a:{x}", "a:%C3%A9%2f").as_deref(), Some("é/"));
        assert_eq!(values("a:/{+path}", "a:/b/c%20d").as_deref(), Some("b/c%20d"));
        assert_eq!(values("a:b", "a:b").as_deref(), Some(""));
        assert_eq!(values("{x}:é", "é:é").as_deref(), Some("é"));
    }

    #[test]
    fn what_does_not_fit_does_not_match() {
        for (template, uri) in [
            ("a:{x}", "a:"),
            ("a:{x}", "a:b/c"),
            ("a:{x}", "b:c"),
            ("a:{x}/d", "a:c/d/e"),
            ("a:{x}/d", "a:/d"),
            ("a:{x}", "a:%4"),
            ("a:{x}", "a:%zz"),
            ("a:{x}", "a:%ff"),
            ("a:b", "a:bc"),
        ] {
            assert_eq!(found(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn other_templates_are_refused() {
        for text in ["a:{x", "a:x}", "a:{}", "a:{?q}", "a:{x,y}", "a:{x}{y}", "a:{x}/{x}", "a:{x*}"] {
            assert!(UriTemplate::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_uri_panics_and_what_matches_fits_together_again(uri in ".{0,40}", middle in "[/:a-c]{1,2}") {
            let template = UriTemplate::parse(&format!("{{+x}}{middle}{{+y}}")).unwrap();
            if let Some(found) = template.matches(&uri) {
                prop_assert_eq!(format!("{}{middle}{}", found["x"], found["y"]), uri);
            }
        }
    }
}
