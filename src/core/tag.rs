//! Where the id of a subscription goes into a message that was serialised once for all.
//!
//! Every message of a listen stream carries its subscription's id in `_meta` (2026-07-28, "Subscriptions"). The message is cut
//! once at that place; each stream writes its own few bytes between the halves, which all of them share. Owns no state;
//! linear in the message, once per message.

use super::{
    jsonrpc,
    seam::{Inline, Piece},
    sse,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::rc::Rc;

/// The member of `_meta`.
macro_rules! key {
    () => {
        r#""io.modelcontextprotocol/subscriptionId""#
    };
}

/// A place in a JSON text and what surrounds an id that is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// What is before is kept up to here.
    end: usize,
    /// What is after is kept from here.
    start: usize,
    before: &'static str,
    after: &'static str,
}

/// A text cut at the place of its tag.
#[derive(Debug)]
pub(super) struct Tagged {
    head: Rc<Bytes>,
    rest: Rc<Bytes>,
    before: &'static str,
    after: &'static str,
}

impl Tagged {
    /// Cuts the payload of an event that is a notification. `None` if there is no place for a tag in it: its `params` are
    /// no object, or ambiguous.
    pub(super) fn notification(payload: &Bytes) -> Option<Self> {
        let lead = sse::BEFORE.len();
        let json = payload.strip_prefix(sse::BEFORE)?.strip_suffix(sse::AFTER)?;
        let place = in_notification(std::str::from_utf8(json).ok()?)?;
        Some(Tagged {
            head: Rc::new(payload.slice(..lead + place.end)),
            rest: Rc::new(payload.slice(lead + place.start..)),
            before: place.before,
            after: place.after,
        })
    }

    /// The length with that id.
    pub(super) fn len(&self, id: &[u8]) -> usize {
        self.head.len() + self.tag_len(id) + self.rest.len()
    }

    /// The three pieces with that id.
    pub(super) fn pieces(&self, id: &[u8]) -> [Piece; 3] {
        let parts = [self.before.as_bytes(), id, self.after.as_bytes()];
        let tag = if self.tag_len(id) <= Inline::CAPACITY {
            let mut tag = Inline::new();
            parts.iter().for_each(|part| tag.push(part));
            Piece::Inline(tag)
        } else {
            Piece::Owned(parts.concat().into())
        };
        [Piece::Shared(Rc::clone(&self.head)), tag, Piece::Shared(Rc::clone(&self.rest))]
    }

    fn tag_len(&self, id: &[u8]) -> usize {
        self.before.len() + id.len() + self.after.len()
    }
}

/// An object, such as a result, with the id in its `_meta`; what is none is given back as it is.
pub(super) fn object(object: &[u8], id: &[u8]) -> Vec<u8> {
    let place = std::str::from_utf8(object).ok().and_then(|text| in_object(text.trim()));
    match place {
        Some(place) => {
            let text = object.trim_ascii();
            [&text[..place.end], place.before.as_bytes(), id, place.after.as_bytes(), &text[place.start..]]
                .concat()
        }
        None => object.to_vec(),
    }
}

fn in_notification(json: &str) -> Option<Place> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_str(json).ok()?;
    let Some(params) = message.params else {
        let end = json.rfind('}')?;
        let before = concat!(r#","params":{"_meta":{"#, key!(), ":");
        return Some(Place { end, start: end, before, after: "}}" });
    };
    let lead = offset(json, params.get());
    in_object(params.get()).map(|place| Place { end: lead + place.end, start: lead + place.start, ..place })
}

/// The place in an object that may have `_meta`.
fn in_object(object: &str) -> Option<Place> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let value: &RawValue = serde_json::from_str(object).ok()?;
    let fields: Object<'_> = jsonrpc::parse_object(value).ok()?;
    match fields.meta {
        None => {
            let after = if is_empty(object) { "}" } else { "}," };
            Some(Place { end: 1, start: 1, before: concat!(r#""_meta":{"#, key!(), ":"), after })
        }
        Some(meta) => {
            let lead = offset(object, meta.get());
            let place = in_meta(meta)?;
            Some(Place { end: lead + place.end, start: lead + place.start, ..place })
        }
    }
}

/// The place in `_meta`; an id that is there already is replaced.
fn in_meta(meta: &RawValue) -> Option<Place> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        id: Option<&'a RawValue>,
    }
    let text = meta.get();
    let fields: Meta<'_> = jsonrpc::parse_object(meta).ok()?;
    Some(match fields.id {
        Some(id) => {
            let end = offset(text, id.get());
            Place { end, start: end + id.get().len(), before: "", after: "" }
        }
        None => {
            let after = if is_empty(text) { "" } else { "," };
            Place { end: 1, start: 1, before: concat!(key!(), ":"), after }
        }
    })
}

/// Where a part that is borrowed from `text` starts in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Whether an object has no members.
fn is_empty(object: &str) -> bool {
    object[1..].trim_start().starts_with('}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may panic")]
    use super::*;
    use serde_json::{Value, json};

    fn tagged(json: &str, id: &str) -> Value {
        let tagged = Tagged::notification(&sse::payload(json.as_bytes())).unwrap();
        let bytes: Vec<u8> =
            tagged.pieces(id.as_bytes()).iter().flat_map(|piece| piece.as_slice().to_vec()).collect();
        assert_eq!(bytes.len(), tagged.len(id.as_bytes()));
        let text = String::from_utf8(bytes).unwrap();
        serde_json::from_str(text.strip_prefix("event: message\ndata: ").unwrap().trim()).unwrap()
    }

    #[test]
    fn the_id_joins_whatever_a_notification_has() {
        let long = format!(r#""{}""#, "x".repeat(250));
        for id in ["7", r#""seven""#, "-1", &long] {
            let tag = json!({ "io.modelcontextprotocol/subscriptionId": serde_json::from_str::<Value>(id).unwrap() });
            for params in ["", r#","params":{}"#, r#","params": { }"#, r#","params":{"_meta":{}}"#] {
                let message = tagged(&format!(r#"{{"jsonrpc":"2.0","method":"m"{params}}}"#), id);
                assert_eq!(message, json!({ "jsonrpc": "2.0", "method": "m", "params": { "_meta": tag } }));
            }
            let message = tagged(r#"{"params":{"uri":"u:1"},"method":"m"}"#, id);
            assert_eq!(message["params"], json!({ "uri": "u:1", "_meta": tag }));
            let message = tagged(r#"{"params":{"uri":"u","_meta":{"a":[1]},"z":1}}"#, id);
            assert_eq!(message["params"]["_meta"]["a"], json!([1]));
            assert_eq!(message["params"]["z"], 1);
            let there = r#"{"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"other","a":1}}}"#;
            let message = tagged(there, id);
            assert_eq!(message["params"]["_meta"]["a"], 1);
            assert_eq!(
                message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
                tag["io.modelcontextprotocol/subscriptionId"]
            );
        }
    }

    #[test]
    fn what_has_no_place_for_an_id_gets_none() {
        for json in [
            r#"{"params":[1]}"#,
            r#"{"params":7}"#,
            r#"{"params":{"_meta":7}}"#,
            r#"{"params":{"_meta":{},"_meta":{}}}"#,
            "[]",
            "x",
            "",
        ] {
            assert!(Tagged::notification(&sse::payload(json.as_bytes())).is_none(), "{json}");
        }
    }

    #[test]
    fn results_take_the_id_too() {
        let text = |of: &str| String::from_utf8(object(of.as_bytes(), b"7")).unwrap();
        let tag = r#""_meta":{"io.modelcontextprotocol/subscriptionId":7}"#;
        assert_eq!(text("{}"), format!("{{{tag}}}"));
        assert_eq!(text(r#" {"resultType":"complete"}"#), format!(r#"{{{tag},"resultType":"complete"}}"#));
        assert_eq!(text("7"), "7");
    }
}
