//! Tools of a built server.
//!
//! Owns their definitions and handlers. Arguments that do not fit are results with `isError`, so that the model that made
//! them can read what was wrong; only an unknown tool is a protocol error.

use super::{
    super::{
        Context, Failure, Reply, Request,
        model::{Icon, Meta, ToolAnnotations, ToolDefinition, ToolResult, tool::IntoToolResult},
        params, schema, service,
    },
    error::BuildError,
    handler::Handler,
    headers::{self, Repeated},
    pages::Pages,
};
use crate::core::jsonrpc::RpcError;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::HashMap};

/// The arguments of a tool or prompt that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
#[schemars(inline)]
pub struct NoArguments {}

/// A tool: how it is described, and what it does.
pub struct Tool {
    definition: ToolDefinition,
    handler: Handler<str, ToolResult>,
}

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
        Tool { definition: definition::<A, R>(name.into(), description.into()), handler }
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
        Tool { definition: definition::<A, R>(name.into(), description.into()), handler }
    }

    /// Its name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Hints about what it does.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.definition.annotations = Some(annotations);
        self
    }

    /// One more picture.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Self {
        self.definition.icons.get_or_insert_default().push(icon);
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

    /// More for whoever knows it.
    #[must_use]
    pub fn meta(mut self, meta: Meta) -> Self {
        self.definition.meta = Some(meta);
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
    handlers: Vec<Handler<str, ToolResult>>,
    /// Which arguments of each are repeated in header fields.
    repeated: Vec<Vec<Repeated>>,
    by_name: HashMap<String, usize>,
}

impl Tools {
    /// # Errors
    /// If two tools have one name, or a name or schema is none that MCP allows.
    pub(super) fn new(tools: Vec<Tool>, page_items: usize) -> Result<Self, BuildError> {
        let (definitions, handlers): (Vec<_>, Vec<_>) =
            tools.into_iter().map(|tool| (tool.definition, tool.handler)).unzip();
        let mut by_name = HashMap::new();
        let mut repeated = Vec::new();
        for (index, definition) in definitions.iter().enumerate() {
            repeated.push(check(definition)?);
            if by_name.insert(definition.name.clone(), index).is_some() {
                return Err(BuildError::TwoTools(definition.name.clone()));
            }
        }
        Ok(Tools { pages: Pages::new("tools", &definitions, page_items), handlers, repeated, by_name })
    }

    pub(super) fn list(&self, request: &Request) -> Result<Reply, RpcError> {
        self.pages.page(request)
    }

    pub(super) async fn call(&self, request: &Request, context: Context) -> Result<Reply, RpcError> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
        }
        let Params { name, arguments } = request.params()?;
        let index = self.by_name.get(&*name).ok_or_else(|| unknown(&name))?;
        let arguments = arguments.map_or("{}", RawValue::get);
        if !request.revision.has_sessions() {
            headers::check(&self.repeated[*index], &request.param_fields, arguments)?;
        }
        let outcome = self.handlers[*index].run(arguments, context).await;
        let result = match outcome {
            Ok(result) => result,
            Err(failure) => ToolResult::failure(failure.of_tool(request.revision, request.client)?),
        };
        Reply::revised(result, request.revision)
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
