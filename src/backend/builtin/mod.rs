//! The server that comes with the program, so that the first run needs nothing else.
//!
//! Owns the routing of methods and the (mostly empty) lists; the [`tools`] do the work. It advertises what it
//! has and nothing more: four tools, empty lists of prompts and resources whose changes it can announce, and
//! log messages.
//!
//! Lists are serialised once per revision at start; answering one clones a `Bytes`.

pub mod tools;

use super::service::{self, PerRevision};
use super::{Capabilities, Context, ListCapability, LoggingCapability, ParamsError};
use super::{Reply, Request, ServerInfo, Service};
use crate::core::jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use std::borrow::Cow;

/// The built-in service.
#[derive(Debug)]
pub struct Builtin {
    tools: PerRevision<Result<Reply, RpcError>>,
}

impl Builtin {
    /// One instance, for one shard.
    pub fn new() -> Self {
        Builtin { tools: PerRevision::new(|revision| Reply::of(&tools::list(revision))) }
    }
}

impl Default for Builtin {
    fn default() -> Self {
        Builtin::new()
    }
}

impl Service for Builtin {
    fn info(&self) -> ServerInfo {
        let list = Some(ListCapability { list_changed: true });
        ServerInfo {
            title: Some("Moorline".into()),
            instructions: Some(
                "A demonstration server: echo and add answer at once, slow works with progress and can be \
                 cancelled, notify sends notifications to listeners."
                    .into(),
            ),
            capabilities: Capabilities {
                logging: Some(LoggingCapability {}),
                prompts: list,
                resources: list,
                tools: list,
            },
            ..ServerInfo::new("moorline", env!("CARGO_PKG_VERSION"))
        }
    }

    async fn call(&self, request: Request, context: Context) -> Result<Reply, RpcError> {
        match request.method.as_str() {
            "tools/call" => call_tool(&request, &context).await,
            "tools/list" => first_page(&request).and_then(|()| self.tools.of(request.revision).clone()),
            "prompts/list" => empty_list(&request, "prompts"),
            "resources/list" => empty_list(&request, "resources"),
            "resources/templates/list" => empty_list(&request, "resourceTemplates"),
            "prompts/get" => unknown_prompt(&request),
            "resources/read" => unknown_resource(&request),
            _ => Err(service::method_not_found(&request)),
        }
    }
}

async fn call_tool(request: &Request, context: &Context) -> Result<Reply, RpcError> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let params: Params<'_> = request.params()?;
    let arguments = params.arguments.map_or("{}", RawValue::get);
    tools::call(&params.name, arguments, request.revision, context).await
}

/// Every list of this server fits one page, whose cursor is the empty string.
fn first_page(request: &Request) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        cursor: Option<Cow<'a, str>>,
    }
    let params: Params<'_> = request.params()?;
    match params.cursor.as_deref() {
        None | Some("") => Ok(()),
        Some(_) => Err(ParamsError::new("cursor", "not one of this server's").into()),
    }
}

fn empty_list(request: &Request, name: &str) -> Result<Reply, RpcError> {
    first_page(request)?;
    Reply::of(&json!({ name: [] }))
}

fn unknown_prompt(request: &Request) -> Result<Reply, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
    }
    let params: Params = request.params()?;
    Err(service::invalid_params(format_args!("unknown prompt `{}`", service::excerpt(&params.name))))
}

/// -32002 is the code of the sessions' revisions for this.
fn unknown_resource(request: &Request) -> Result<Reply, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let params: Params = request.params()?;
    let mut error = service::error(-32002, "Resource not found");
    error.data = Some(json!({ "uri": service::excerpt(&params.uri) }).to_string().into());
    Err(error)
}

#[cfg(test)]
mod tests;
