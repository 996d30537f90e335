//! What 2026-07-28 wants on every result: its type, who made it, and how long it may be kept.
//!
//! Owns these members; it must never look at the rest of a result. What a service says itself stands: its own `resultType`,
//! its own name in `_meta`, its own caching. A result without them, which is nearly every one, is copied behind a prefix
//! made at start; any other is taken apart into its members and put together again. One copy of the result.

use super::{CacheScope, Caching, ServerInfo, members::Members};
use bytes::Bytes;
use memchr::memmem;
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// The stamp of one server.
#[derive(Debug)]
pub(super) struct Stamp {
    /// `"io.modelcontextprotocol/serverInfo":{…}`
    server: String,
    lists: String,
    resources: String,
}

const SERVER: &str = "io.modelcontextprotocol/serverInfo";

impl Stamp {
    pub(super) fn new(info: &ServerInfo) -> Self {
        let who = serde_json::to_string(&info.implementation).unwrap_or_else(|_| "{}".to_owned());
        Stamp {
            server: format!("\"{SERVER}\":{who}"),
            lists: members_of(info.lists),
            resources: members_of(info.resources),
        }
    }

    /// That of a server which says `who` it is, one JSON value, and nothing of caching.
    pub(super) fn of(who: &str) -> Self {
        let unkept = members_of(Caching::NONE);
        Stamp { server: format!("\"{SERVER}\":{who}"), lists: unkept.clone(), resources: unkept }
    }

    /// The result of a request of that method, with what was missing. One that is no object stays as it is: a fault of its
    /// service.
    pub(super) fn on(&self, method: &str, result: Bytes) -> Bytes {
        if !result.starts_with(b"{") {
            return result;
        }
        let says_some = ["\"resultType\"", "\"_meta\"", "\"ttlMs\"", "\"cacheScope\""]
            .iter()
            .any(|name| memmem::find(&result, name.as_bytes()).is_some());
        let stamped = if says_some { self.merged(method, &result) } else { self.prefixed(method, &result) };
        stamped.map_or(result, Bytes::from)
    }

    fn prefixed(&self, method: &str, result: &[u8]) -> Option<String> {
        let rest = std::str::from_utf8(result).ok()?.strip_prefix('{')?;
        let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
        let (server, caching) = (&self.server, self.caching(method));
        Some(format!("{{\"resultType\":\"complete\",\"_meta\":{{{server}}}{caching}{comma}{rest}"))
    }

    fn merged(&self, method: &str, result: &[u8]) -> Option<String> {
        let members = Members::of(result)?;
        let kind = members.value("resultType").map_or("\"complete\"", RawValue::get);
        let meta = self.meta(members.value("_meta"));
        let mut stamped = format!("{{\"resultType\":{kind},\"_meta\":{meta}");
        let is_cached = ["ttlMs", "cacheScope"].iter().all(|name| members.value(name).is_some());
        if kind == "\"complete\"" && !is_cached {
            stamped.push_str(self.caching(method));
        }
        let caching = self.caching(method);
        for (name, value) in &members.0 {
            let is_said = matches!(&**name, "resultType" | "_meta")
                || !is_cached && !caching.is_empty() && matches!(&**name, "ttlMs" | "cacheScope");
            if !is_said {
                let name = serde_json::to_string(name).ok()?;
                write!(stamped, ",{name}:{value}").ok()?;
            }
        }
        stamped.push('}');
        Some(stamped)
    }

    /// The result's own `_meta` with the server's name, unless it has one.
    fn meta(&self, own: Option<&RawValue>) -> String {
        let Some(own) = own else { return format!("{{{}}}", self.server) };
        match Members::of(own.get().as_bytes()) {
            Some(members) if members.value(SERVER).is_some() => own.get().to_owned(),
            Some(members) if members.0.is_empty() => format!("{{{}}}", self.server),
            Some(_) => format!("{{{},{}", self.server, own.get().trim_start().trim_start_matches('{')),
            None => own.get().to_owned(),
        }
    }

    /// The caching members of a result of that method, with their comma.
    fn caching(&self, method: &str) -> &str {
        match method {
            "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list" => &self.lists,
            "resources/read" => &self.resources,
            _ => "",
        }
    }
}

fn members_of(Caching { ttl, scope }: Caching) -> String {
    let scope = match scope {
        CacheScope::Private => "private",
        CacheScope::Public => "public",
    };
    format!(",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", ttl.as_millis())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn on(method: &str, result: &str) -> Value {
        let mut info = ServerInfo::new("n", "1");
        info.lists = Caching::public(Duration::from_secs(60));
        let stamped = Stamp::new(&info).on(method, Bytes::copy_from_slice(result.as_bytes()));
        serde_json::from_slice(&stamped).unwrap()
    }

    fn server() -> Value {
        json!({ SERVER: {"name": "n", "version": "1"} })
    }

    #[test]
    fn every_result_says_its_type_and_who_made_it() {
        let plain = on("tools/call", r#"{"content":[]}"#);
        assert_eq!(plain, json!({"resultType": "complete", "_meta": server(), "content": []}));
        assert_eq!(on("x", "{}"), json!({"resultType": "complete", "_meta": server()}));
        assert_eq!(on("x", "{ }"), json!({"resultType": "complete", "_meta": server()}));
    }

    #[test]
    fn what_may_be_kept_says_how_long() {
        let lists =
            ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"];
        for method in lists {
            let listed = on(method, r#"{"x":1}"#);
            assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(60_000), &json!("public")));
        }
        let read = on("resources/read", r#"{"contents":[]}"#);
        assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(0), &json!("private")));
    }

    #[test]
    fn what_a_service_says_itself_stands() {
        let asks = on("resources/read", r#"{"resultType":"input_required","requestState":"s"}"#);
        let expected = json!({"resultType": "input_required", "_meta": server(), "requestState": "s"});
        assert_eq!(asks, expected);
        let read = on("resources/read", r#"{"a":"\"_meta\"","ttlMs":5,"cacheScope":"public"}"#);
        assert_eq!(
            (&read["ttlMs"], &read["cacheScope"], &read["a"]),
            (&json!(5), &json!("public"), &json!("\"_meta\""))
        );
        let half = on("resources/read", r#"{"ttlMs":5}"#);
        assert_eq!((&half["ttlMs"], &half["cacheScope"]), (&json!(0), &json!("private")));
        assert_eq!(on("x", r#"{"ttlMs":5}"#)["ttlMs"], 5);
    }

    #[test]
    fn a_meta_is_kept_beside_the_name() {
        let meta = |own: &str| on("x", &format!(r#"{{"_meta":{own},"b":1}}"#))["_meta"].clone();
        let both = meta(r#" {"example.com/a": {"b": 1}}"#);
        assert_eq!((&both["example.com/a"]["b"], &both[SERVER]["name"]), (&json!(1), &json!("n")));
        assert_eq!(meta("{ }"), server());
        let other = format!(r#"{{"{SERVER}":{{"name":"o"}}}}"#);
        assert_eq!(meta(&other), json!({ SERVER: {"name": "o"} }));
    }
}
