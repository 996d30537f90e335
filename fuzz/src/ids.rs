//! Session ids and cursors.
//!
//! Rule: an id has one spelling. Whatever parses is written back as it was read, so no two texts name one thing.

use moorline::core::{
    Inline,
    ids::{EventId, SessionId},
};

/// Judges any bytes as either.
pub fn check(bytes: &[u8]) {
    if let Some(id) = SessionId::parse(bytes) {
        assert_eq!(id.encode(), bytes);
        assert!(id.matches(id.secret) && !id.matches(id.secret ^ 1));
        let shown = format!("{id:?}");
        assert!(
            !shown.contains(&format!("{:x}", id.secret)) || id.secret < 1 << 32,
            "a log shows the secret"
        );
    }
    if let Some(id) = EventId::parse(bytes) {
        let mut out = Inline::new();
        id.push_to(&mut out);
        assert_eq!(out.as_slice(), bytes);
        assert!(bytes.len() <= EventId::LEN_MAX);
    }
}

/// Ids that are one step from others.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "00000000000123456789abcdef0123456789abcdef",
        "ffffffffffffffffffffffffffffffffffffffffff",
        "abcdef-l1-0",
        "777777-r4294967295-4294967295",
        "a2b3c4-r10-01",
        "abcdef-l-1",
        "abcdef--1-1",
        "abcdef-x1-1",
        "",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
