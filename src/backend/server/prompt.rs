//! Prompts of a built server.
//!
//! Owns their definitions, handlers and completers. The arguments of a prompt are strings on the wire; their names,
//! descriptions and which of them are required follow from the type the handler takes.

use super::{
    super::{
        Context, Reply, Request,
        model::{
            Partial, PromptArgument, PromptDefinition, PromptResult,
            prompt::{IntoCompletion, IntoPrompt},
        },
        schema, service,
    },
    complete::Completers,
    described::described,
    error::BuildError,
    handler::Handler,
    pages::Pages,
    strings,
};
use crate::core::jsonrpc::RpcError;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap, collections::HashMap};

type Arguments = BTreeMap<String, String>;

/// A prompt: how it is described, and what it says.
pub struct Prompt {
    definition: PromptDefinition,
    handler: Handler<Arguments, PromptResult>,
    completers: Completers,
}

described! { Prompt }

impl Prompt {
    /// A prompt. The fields of `A` are its arguments: strings, numbers, booleans and enumerations, or such as an [`Option`].
    pub fn new<A, F, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, Context) -> F + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        F: Future<Output = R> + 'static,
        R: IntoPrompt + 'static,
    {
        let handler = Handler::later(
            |arguments: &Arguments| {
                strings::parse::<A>(arguments)
                    .map_err(|error| RpcError::from(error.within("arguments")).into())
            },
            move |arguments, context| {
                let said = handler(arguments, context);
                async { said.await.into_prompt() }
            },
        );
        let definition = PromptDefinition {
            name: name.into(),
            title: None,
            description: Some(description.into()),
            arguments: arguments_of(&schema::of::<A>()),
            icons: None,
            meta: None,
        };
        Prompt { definition, handler, completers: Completers::default() }
    }

    /// Completes an argument (`completion/complete`).
    ///
    /// # Panics
    /// If the prompt has no such argument.
    #[must_use]
    pub fn complete<F, R>(
        mut self,
        argument: impl Into<String>,
        handler: impl Fn(Partial, Context) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = R> + 'static,
        R: IntoCompletion + 'static,
    {
        let argument = argument.into();
        let is_there = self.definition.arguments.iter().any(|known| known.name == argument);
        assert!(is_there, "`{}` has no argument `{argument}`", self.definition.name);
        self.completers.add(argument, handler);
        self
    }

    pub(super) fn completes(&self) -> bool {
        !self.completers.is_empty()
    }
}

/// In the order of the schema, which is that of the fields' names.
fn arguments_of(schema: &Value) -> Vec<PromptArgument> {
    let text = |property: &Value, key: &str| Some(property.get(key)?.as_str()?.to_owned());
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flat_map(Map::iter)
        .map(|(name, property)| PromptArgument {
            name: name.clone(),
            title: text(property, "title"),
            description: text(property, "description"),
            required: is_required(name),
        })
        .collect()
}

// --- All of them --------------------------------------------------------------------------------

pub(super) struct Prompts {
    pages: Pages,
    by_name: HashMap<String, Prompt>,
}

impl Prompts {
    /// # Errors
    /// If two prompts have one name.
    pub(super) fn new(prompts: Vec<Prompt>, page_items: usize) -> Result<Self, BuildError> {
        let listed: Vec<_> = prompts.iter().map(|prompt| prompt.definition.clone()).collect();
        let mut by_name = HashMap::new();
        for prompt in prompts {
            let name = prompt.definition.name.clone();
            if by_name.insert(name.clone(), prompt).is_some() {
                return Err(BuildError::TwoPrompts(name));
            }
        }
        Ok(Prompts { pages: Pages::new("prompts", &listed, page_items), by_name })
    }

    pub(super) fn list(&self, request: &Request) -> Result<Reply, RpcError> {
        self.pages.page(request)
    }

    pub(super) async fn get(&self, request: &Request, context: Context) -> Result<Reply, RpcError> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(default)]
            arguments: Option<Arguments>,
        }
        let Params { name, arguments } = request.params()?;
        let prompt = self.by_name.get(&*name).ok_or_else(|| unknown(&name))?;
        let outcome = prompt.handler.run(&arguments.unwrap_or_default(), context).await;
        let mut said = outcome.map_err(|failure| failure.into_error(request.revision, request.client))?;
        said.description = said.description.or_else(|| prompt.definition.description.clone());
        Reply::revised(said, request.revision)
    }

    /// The completers of a prompt.
    pub(super) fn completers(&self, name: &str) -> Option<&Completers> {
        self.by_name.get(name).map(|prompt| &prompt.completers)
    }
}

pub(super) fn unknown(name: &str) -> RpcError {
    service::invalid_params(format_args!("unknown prompt `{}`", service::excerpt(name)))
}
