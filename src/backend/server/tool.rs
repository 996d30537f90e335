//! Tools of a built server.
//!
//! Owns their definitions and handlers. Arguments that do not fit are results with `isError`, so that the model that made
//! them can read what was wrong; only an unknown tool is a protocol error.

use super::{
    super::{
        Context, Failure, Reply, Request,
        model::{ToolAnnotations, ToolDefinition, ToolResult, tool::IntoToolResult},
        params, schema, service,
    },
    described::described,
    error::BuildError,
    handler::Handler,
    headers::{self, Repeated},
    pages::Pages,
};
use crate::core::jsonrpc::RpcError;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::HashMap, time::Duration};

/// The arguments of a tool or prompt that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
#[schemars(inline)]
pub struct NoArguments {}

/// A tool: how it is described, and what it does.
pub struct Tool {
    definition: ToolDefinition,
    handler: Handler<str, ToolResult>,
    tasks: TaskUse,
}

/// What a tool has to do with tasks.
#[derive(Clone, Copy, Debug, Default)]
struct TaskUse {
    /// Calls become tasks from their beginning, that live so long.
    ttl: Option<Duration>,
    needed: Need,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Need {
    #[default]
    No,
    Yes,
}

described! { Tool }

impl Tool {
    /// A tool whose handler may wait. The type of its arguments makes the input schema; a result of
    /// [`Json`](super::super::model::Json) makes the output schema.
    pub fn new<A, F, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, Context) -> F + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        F: Future<Output = R> + 'static,
        R: IntoToolResult + 'static,
    {
        let handler = Handler::later(read::<A>, move |arguments, context| {
            let result = handler(arguments, context);
            async { result.await.into_tool_result() }
        });
        Tool::of(definition::<A, R>(name.into(), description.into()), handler)
    }

    /// A tool whose handler answers at once: it costs neither task nor allocation of its own.
    pub fn ready<A, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, &Context) -> R + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: IntoToolResult + 'static,
    {
        let handler = Handler::now(move |json: &str, context: &Context| {
            handler(read::<A>(json)?, context).into_tool_result()
        });
        Tool::of(definition::<A, R>(name.into(), description.into()), handler)
    }

    fn of(definition: ToolDefinition, handler: Handler<str, ToolResult>) -> Self {
        Tool { definition, handler, tasks: TaskUse::default() }
    }

    /// Calls become tasks that can be asked for during `ttl`, if their client knows tasks
    /// (2026-07-28, `io.modelcontextprotocol/tasks`) and the handler waits for something: see [`Context::start_task`]. All
    /// others are answered when the handler is done.
    #[must_use]
    pub fn as_task(mut self, ttl: Duration) -> Self {
        self.tasks.ttl = Some(ttl);
        self
    }

    /// Refuses clients of 2026-07-28 that do not know tasks (-32021).
    #[must_use]
    pub fn needs_tasks(mut self) -> Self {
        self.tasks.needed = Need::Yes;
        self
    }

    pub(super) fn uses_tasks(&self) -> bool {
        self.tasks.ttl.is_some() || self.tasks.needed == Need::Yes
    }

    /// Hints about what it does.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.definition.annotations = Some(annotations);
        self
    }

    /// An input schema made by hand, sent as it is.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.definition.input_schema = schema;
        self
    }

    /// An output schema made by hand, sent as it is.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.definition.output_schema = Some(schema);
        self
    }
}

fn definition<A: JsonSchema, R: IntoToolResult>(name: String, description: String) -> ToolDefinition {
    ToolDefinition {
        name,
        title: None,
        description: Some(description),
        input_schema: schema::of::<A>(),
        output_schema: R::output_schema(),
        annotations: None,
        icons: None,
        meta: None,
    }
}

fn read<A: DeserializeOwned>(json: &str) -> Result<A, Failure> {
    params::parse(json.as_bytes()).map_err(|error| Failure::new(format_args!("Invalid arguments: {error}")))
}

// --- All of them --------------------------------------------------------------------------------

pub(super) struct Tools {
    pages: Pages,
    by_name: HashMap<String, Entry>,
}

struct Entry {
    handler: Handler<str, ToolResult>,
    tasks: TaskUse,
    /// Which arguments are repeated in header fields.
    repeated: Vec<Repeated>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Tools {
    /// # Errors
    /// If two tools have one name, or a name or schema is none that MCP allows.
    pub(super) fn new(tools: Vec<Tool>, page_items: usize) -> Result<Self, BuildError> {
        let definitions: Vec<_> = tools.iter().map(|tool| tool.definition.clone()).collect();
        let mut by_name = HashMap::new();
        for Tool { definition, handler, tasks } in tools {
            let repeated = check(&definition)?;
            let entry = Entry { handler, tasks, repeated };
            if by_name.insert(definition.name.clone(), entry).is_some() {
                return Err(BuildError::TwoTools(definition.name));
            }
        }
        Ok(Tools { pages: Pages::new("tools", &definitions, page_items), by_name })
    }

    pub(super) fn list(&self, request: &Request) -> Result<Reply, RpcError> {
        self.pages.page(request)
    }

    pub(super) async fn call(&self, request: &Request, context: Context) -> Result<Reply, RpcError> {
        let (tool, arguments) = self.called(request)?;
        if let Some(ttl) = tool.tasks.ttl {
            context.start_task(ttl);
        }
        let outcome = tool.handler.run(arguments, context).await;
        let result = match outcome {
            Ok(result) => result,
            Err(failure) => ToolResult::failure(failure.of_tool(request.revision, request.client)?),
        };
        Reply::revised(result, request.revision)
    }

    /// The tool of a call, if this client may call it like this.
    fn called<'a>(&self, request: &'a Request) -> Result<(&Entry, &'a str), RpcError> {
        let Params { name, arguments } = request.params()?;
        let tool = self.by_name.get(&*name).ok_or_else(|| unknown(&name))?;
        let arguments = arguments.map_or("{}", RawValue::get);
        if !request.revision.has_sessions() {
            if tool.tasks.needed == Need::Yes && !service::declares_tasks(request.params.as_deref()) {
                return Err(service::missing_tasks());
            }
            headers::check(&tool.repeated, &request.param_fields, arguments)?;
        }
        Ok((tool, arguments))
    }

    /// Whether a client that comes back with answers may call it like this.
    pub(super) fn readmit(&self, request: &Request) -> Result<(), RpcError> {
        self.called(request).map(|_| ())
    }
}

/// Which arguments are repeated in header fields, if everything is as MCP allows it.
fn check(definition: &ToolDefinition) -> Result<Vec<Repeated>, BuildError> {
    let ToolDefinition { name, input_schema, .. } = definition;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !((1..=128).contains(&name.len()) && name.bytes().all(is_allowed)) {
        return Err(BuildError::ToolName(name.clone()));
    }
    if input_schema["type"] != "object" {
        return Err(BuildError::Arguments(name.clone()));
    }
    headers::of_schema(input_schema).map_err(|error| BuildError::Header { tool: name.clone(), error })
}

fn unknown(name: &str) -> RpcError {
    service::invalid_params(format_args!("unknown tool `{}`", service::excerpt(name)))
}
