//! `subscriptions/listen` (2026-07-28): what a client wants to hear, as far as this server says it.
//!
//! Owns the reading of the request. Whatever was not declared is left out without a word, so that the acknowledgement tells
//! the client what it will hear; the stream itself is the core's.

use super::super::{Capabilities, ParamsError, params, service};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Call, Listening};
use crate::limits::SUBSCRIPTIONS_PER_SESSION_MAX;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, sync::Arc};

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    notifications: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wanted<'a> {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    #[serde(borrow)]
    resource_subscriptions: Vec<Cow<'a, str>>,
}

/// What the stream of this request is to carry.
///
/// # Errors
/// -32601 if this server never says anything of its own accord, -32602 if the parameters do not fit.
pub(in crate::backend) fn read(call: &Call, capabilities: &Capabilities) -> Result<Listening, RpcError> {
    let tools = capabilities.tools.is_some_and(|tools| tools.list_changed);
    let prompts = capabilities.prompts.is_some_and(|prompts| prompts.list_changed);
    let resources = capabilities.resources.is_some_and(|resources| resources.list_changed);
    let subscribes = capabilities.resources.is_some_and(|resources| resources.subscribe);
    if !(tools || prompts || resources || subscribes) {
        return Err(service::method_not_found(&call.method));
    }
    let Params { notifications } = params::parse(call.params.as_deref().unwrap_or(b"{}"))?;
    let wanted: Wanted<'_> =
        params::parse(notifications.get().as_bytes()).map_err(|error| error.within("notifications"))?;
    Ok(Listening {
        tools: tools && wanted.tools_list_changed,
        prompts: prompts && wanted.prompts_list_changed,
        resources: resources && wanted.resources_list_changed,
        uris: if subscribes { uris(&wanted.resource_subscriptions)? } else { Vec::new() },
    })
}

/// Each once.
fn uris(wanted: &[Cow<'_, str>]) -> Result<Vec<Arc<str>>, ParamsError> {
    if wanted.len() > SUBSCRIPTIONS_PER_SESSION_MAX {
        let reason = format!("more than {SUBSCRIPTIONS_PER_SESSION_MAX} resources");
        return Err(ParamsError::new("notifications.resourceSubscriptions", reason));
    }
    let mut wanted: Vec<&str> = wanted.iter().map(|uri| &**uri).collect();
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted.into_iter().map(Arc::from).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::super::{ListCapability, ResourcesCapability, rig};
    use super::*;
    use crate::core::seam::{ClientFeatures, Revision};
    use serde_json::{Value, json};

    fn listen(capabilities: &Capabilities, params: &Value) -> Result<Listening, (i32, String)> {
        let call = Call {
            key: rig::call(0),
            session: None,
            method: rig::method("subscriptions/listen"),
            params: Some(params.to_string().into()),
            progress_token: None,
            revision: Revision::V2026_07_28,
            client: ClientFeatures::default(),
            param_fields: Vec::new(),
            principal: None,
        };
        read(&call, capabilities).map_err(|error| (error.code, error.message.into_owned()))
    }

    fn all() -> Capabilities {
        Capabilities {
            tools: Some(ListCapability { list_changed: true }),
            prompts: Some(ListCapability { list_changed: true }),
            resources: Some(ResourcesCapability { subscribe: true, list_changed: true }),
            ..Capabilities::default()
        }
    }

    fn everything() -> Value {
        json!({"notifications": {
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["b:", "a:", "b:"], "unknown": 1,
        }})
    }

    #[test]
    fn a_client_hears_what_it_wants() {
        let uris = vec!["a:".into(), "b:".into()];
        let expected = Listening { tools: true, prompts: true, resources: true, uris };
        assert_eq!(listen(&all(), &everything()), Ok(expected));
        let tools = listen(&all(), &json!({"notifications": {"toolsListChanged": true}}));
        assert_eq!(tools, Ok(Listening { tools: true, ..Listening::default() }));
        assert_eq!(listen(&all(), &json!({"notifications": {}})), Ok(Listening::default()));
    }

    #[test]
    fn what_is_not_declared_is_left_out() {
        let prompts = Capabilities {
            prompts: Some(ListCapability { list_changed: true }),
            resources: Some(ResourcesCapability::default()),
            ..Capabilities::default()
        };
        let expected = Listening { prompts: true, ..Listening::default() };
        assert_eq!(listen(&prompts, &everything()), Ok(expected));
    }

    #[test]
    fn a_server_without_news_has_no_such_method() {
        assert_eq!(listen(&Capabilities::default(), &everything()).unwrap_err().0, -32601);
    }

    #[test]
    fn parameters_that_do_not_fit_are_named() {
        let many: Vec<_> = (0..=SUBSCRIPTIONS_PER_SESSION_MAX).map(|number| format!("a:{number}")).collect();
        for (params, reason) in [
            (json!({}), "missing field `notifications`"),
            (json!({"notifications": null}), "`notifications`"),
            (json!({"notifications": []}), "`notifications`"),
            (json!({"notifications": {"toolsListChanged": "yes"}}), "`notifications.toolsListChanged`"),
            (
                json!({"notifications": {"resourceSubscriptions": [1]}}),
                "`notifications.resourceSubscriptions[0]`",
            ),
            (json!({"notifications": {"resourceSubscriptions": many}}), "more than 256"),
        ] {
            let (code, message) = listen(&all(), &params).unwrap_err();
            assert_eq!(code, -32602);
            assert!(message.contains(reason), "{message}");
        }
    }
}
