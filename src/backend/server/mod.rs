//! A server made from closures: the common case of a [`Service`].
//!
//! Owns the routing of methods to tools, resources, prompts and completions that are known when the server starts, and
//! advertises exactly what is there. Lists are serialised once; a call costs a look-up by name, the reading of its
//! arguments and what its handler does.
//!
//! ```
//! use moorline::backend::{Context, Prompt, Resource, Server, Template, model::Json};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Sum {
//!     /// What is added up
//!     numbers: Vec<f64>,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Total {
//!     total: f64,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct About {
//!     topic: String,
//! }
//!
//! #[derive(Deserialize)]
//! struct Article {
//!     number: u32,
//! }
//!
//! let server = Server::builder("library", "1.0.0")
//!     .instructions("Articles, and sums of their prices.")
//!     .tool("sum", "Adds numbers up.", |args: Sum, context: Context| async move {
//!         context.progress(1.0, Some(1.0), None);
//!         Json(Total { total: args.numbers.iter().sum() })
//!     })
//!     .resource(Resource::new("library:index", "index", |_| async { "1, 2, 3" }).mime_type("text/plain"))
//!     .template(Template::new("library:article/{number}", "article", |wanted: Article, _| async move {
//!         format!("This is article {}.", wanted.number)
//!     }))
//!     .prompt(
//!         Prompt::new("explain", "Explains a topic.", |args: About, _| async move {
//!             format!("Explain {} in a few words.", args.topic)
//!         })
//!         .complete("topic", |typed, _| async move {
//!             ["moorings", "lines"].map(String::from).into_iter().filter(|it| it.starts_with(&typed.value)).collect::<Vec<_>>()
//!         }),
//!     )
//!     .build();
//! ```

mod complete;
mod described;
mod error;
mod handler;
mod headers;
mod pages;
mod prompt;
mod resource;
mod strings;
mod template;
mod tool;

pub use error::BuildError;
pub use headers::{HeaderError, HeaderFault};
pub use prompt::Prompt;
pub use resource::{Resource, Template};
pub use tool::{NoArguments, Tool};

use super::{
    Caching, Capabilities, Context, EmptyCapability, Failure, ListCapability, Outlet, Reply, Request,
    ResourcesCapability, ServerInfo, Service,
    model::{Completion, Icon, Meta, Partial, Revised, tool::IntoToolResult},
    service,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Notified, Revision, SessionKey};
use crate::limits::PAGE_ITEMS;
use prompt::Prompts;
use resource::Resources;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap, fmt, pin::Pin};
use tool::Tools;

/// A server made from closures. See the [module](self).
pub struct Server {
    info: ServerInfo,
    tools: Option<Tools>,
    resources: Option<Resources>,
    prompts: Option<Prompts>,
    hooks: Hooks,
}

/// Something that happens, told to whoever wants to know.
type Hook<T> = Option<Box<dyn Fn(T)>>;
type HookOf<T> = Option<Box<dyn for<'a> Fn(&'a T)>>;
type Answer = Pin<Box<dyn Future<Output = Result<Reply, RpcError>>>>;

/// What else it reacts to.
#[derive(Default)]
struct Hooks {
    otherwise: Option<Box<dyn Fn(Request, Context) -> Answer>>,
    started: Hook<Outlet>,
    session_started: HookOf<Request>,
    session_ended: Hook<SessionKey>,
    notified: HookOf<Notified>,
}

/// A list a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `resources/list` and `resources/templates/list`
    Resources,
    /// `prompts/list`
    Prompts,
}

/// Makes a [`Server`]. Methods that take a closure keep it as long as the server lives.
pub struct Builder {
    info: ServerInfo,
    tools: Vec<Tool>,
    resources: Vec<Resource>,
    templates: Vec<Template>,
    prompts: Vec<Prompt>,
    hooks: Hooks,
    /// Offered even if nothing is in them, because that may change.
    changing: Vec<List>,
    subscriptions: bool,
    page_items: usize,
}

impl Server {
    /// Starts to make a server of that name and version.
    pub fn builder(name: impl Into<Cow<'static, str>>, version: impl Into<Cow<'static, str>>) -> Builder {
        Builder {
            info: ServerInfo::new(name, version),
            tools: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            hooks: Hooks::default(),
            changing: Vec::new(),
            subscriptions: false,
            page_items: PAGE_ITEMS,
        }
    }
}

impl Builder {
    // --- Who it is -------------------------------------------------------------------------------

    /// Its name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.info.implementation.title = Some(title.into());
        self
    }

    /// What it is for, for people.
    #[must_use]
    pub fn description(mut self, description: impl Into<Cow<'static, str>>) -> Self {
        self.info.implementation.description = Some(description.into());
        self
    }

    /// Where there is more about it.
    #[must_use]
    pub fn website(mut self, url: impl Into<Cow<'static, str>>) -> Self {
        self.info.implementation.website_url = Some(url.into());
        self
    }

    /// One more picture.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Self {
        self.info.implementation.icons.get_or_insert_default().push(icon);
        self
    }

    /// How a model should use it.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Cow<'static, str>>) -> Self {
        self.info.instructions = Some(instructions.into());
        self
    }

    /// Capabilities the specification does not know.
    #[must_use]
    pub fn experimental(mut self, capabilities: Meta) -> Self {
        self.info.capabilities.experimental = Some(capabilities);
        self
    }

    /// How long clients may keep its lists, and what it says of itself (2026-07-28). Not at all unless said.
    #[must_use]
    pub fn cache_lists(mut self, caching: Caching) -> Self {
        self.info.lists = caching;
        self
    }

    /// How long clients may keep what is in its resources (2026-07-28). Not at all unless said.
    #[must_use]
    pub fn cache_resources(mut self, caching: Caching) -> Self {
        self.info.resources = caching;
        self
    }

    // --- What it offers --------------------------------------------------------------------------

    /// A tool: its name, what it does (for a model), and a handler that may wait. [`Tool`] says more about one.
    #[must_use]
    pub fn tool<A, F, R>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, Context) -> F + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        F: Future<Output = R> + 'static,
        R: IntoToolResult + 'static,
    {
        self.add_tool(Tool::new(name, description, handler))
    }

    /// A tool with all there is to say about it.
    #[must_use]
    pub fn add_tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// A resource.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self
    }

    /// A family of resources.
    #[must_use]
    pub fn template(mut self, template: Template) -> Self {
        self.templates.push(template);
        self
    }

    /// A prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        self.prompts.push(prompt);
        self
    }

    /// Lets clients subscribe to resources, to hear of [`Context::resource_updated`] and [`Outlet::resource_updated`].
    #[must_use]
    pub fn subscriptions(mut self) -> Self {
        self.subscriptions = true;
        self
    }

    /// Says that calls of tools may become tasks (2026-07-28), for handlers that decide it themselves by
    /// [`Context::start_task`]. A tool that always does, or needs it, says so without this.
    #[must_use]
    pub fn tasks(mut self) -> Self {
        let extensions = self.info.capabilities.extensions.get_or_insert_default();
        extensions.insert(service::TASKS.to_owned(), Value::Object(Meta::new()));
        self
    }

    /// Offers these lists even if nothing is in them, and says that the server tells when they change.
    #[must_use]
    pub fn changing(mut self, lists: impl IntoIterator<Item = List>) -> Self {
        self.changing.extend(lists);
        self
    }

    /// Items on one page of each list, at least 1, instead of [`PAGE_ITEMS`].
    #[must_use]
    pub fn page_items(mut self, count: usize) -> Self {
        self.page_items = count.max(1);
        self
    }

    // --- What else it does -----------------------------------------------------------------------

    /// Answers the requests that nothing else here does.
    #[must_use]
    pub fn otherwise<F: Future<Output = Result<Reply, RpcError>> + 'static>(
        mut self,
        handler: impl Fn(Request, Context) -> F + 'static,
    ) -> Self {
        self.hooks.otherwise = Some(Box::new(move |request, context| Box::pin(handler(request, context))));
        self
    }

    /// Runs when the shard does: see [`Service::started`].
    #[must_use]
    pub fn on_start(mut self, hook: impl Fn(Outlet) + 'static) -> Self {
        self.hooks.started = Some(Box::new(hook));
        self
    }

    /// Runs when a session begins, with its `initialize`.
    #[must_use]
    pub fn on_session_start(mut self, hook: impl Fn(&Request) + 'static) -> Self {
        self.hooks.session_started = Some(Box::new(hook));
        self
    }

    /// Runs when a session is gone.
    #[must_use]
    pub fn on_session_end(mut self, hook: impl Fn(SessionKey) + 'static) -> Self {
        self.hooks.session_ended = Some(Box::new(hook));
        self
    }

    /// Runs for each notification of a client.
    #[must_use]
    pub fn on_notification(mut self, hook: impl Fn(&Notified) + 'static) -> Self {
        self.hooks.notified = Some(Box::new(hook));
        self
    }

    /// The server.
    ///
    /// # Panics
    /// If two tools, resources or prompts have one name, or a tool's name or schema is none that MCP allows: faults that are
    /// found the first time the server starts.
    pub fn build(self) -> Server {
        match self.try_build() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// The server, for whoever makes tools of what others say and has to go on without one that is at fault.
    ///
    /// # Errors
    /// As [`build`](Self::build) panics.
    pub fn try_build(self) -> Result<Server, BuildError> {
        let capabilities = self.capabilities();
        let page_items = self.page_items;
        let resources =
            capabilities.resources.map(|_| Resources::new(self.resources, self.templates, page_items));
        Ok(Server {
            tools: capabilities.tools.map(|_| Tools::new(self.tools, page_items)).transpose()?,
            resources: resources.transpose()?,
            prompts: capabilities.prompts.map(|_| Prompts::new(self.prompts, page_items)).transpose()?,
            info: self.info.capabilities(capabilities),
            hooks: self.hooks,
        })
    }

    fn extensions(&self) -> Option<Meta> {
        let mut extensions = self.info.capabilities.extensions.clone();
        if self.tools.iter().any(Tool::uses_tasks) {
            let empty = Value::Object(Meta::new());
            extensions.get_or_insert_default().entry(service::TASKS).or_insert(empty);
        }
        extensions
    }

    fn capabilities(&self) -> Capabilities {
        let changing = |list| self.changing.contains(&list);
        let offered = |list, is_empty: bool| (!is_empty || changing(list)).then(|| changing(list));
        let list = |list_changed| ListCapability { list_changed };
        let completes =
            self.prompts.iter().any(Prompt::completes) || self.templates.iter().any(Template::completes);
        let no_resources = self.resources.is_empty() && self.templates.is_empty();
        Capabilities {
            completions: completes.then_some(EmptyCapability {}),
            extensions: self.extensions(),
            experimental: self.info.capabilities.experimental.clone(),
            logging: Some(EmptyCapability {}),
            prompts: offered(List::Prompts, self.prompts.is_empty()).map(list),
            resources: offered(List::Resources, no_resources)
                .map(|list_changed| ResourcesCapability { subscribe: self.subscriptions, list_changed }),
            tools: offered(List::Tools, self.tools.is_empty()).map(list),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("info", &self.info).finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Service for Server {
    fn info(&self) -> ServerInfo {
        self.info.clone()
    }

    async fn call(&self, request: Request, context: Context) -> Result<Reply, RpcError> {
        let subscribes = self.info.capabilities.resources.is_some_and(|resources| resources.subscribe);
        match (request.method.as_str(), &self.tools, &self.resources, &self.prompts) {
            ("tools/call", Some(tools), ..) => tools.call(&request, context).await,
            ("tools/list", Some(tools), ..) => tools.list(&request),
            ("resources/read", _, Some(resources), _) => resources.read(&request, context).await,
            ("resources/list", _, Some(resources), _) => resources.list(&request),
            ("resources/templates/list", _, Some(resources), _) => resources.list_templates(&request),
            ("resources/subscribe", _, Some(resources), _) if subscribes => resources.subscribe(&request),
            ("resources/unsubscribe", _, Some(_), _) if subscribes => Resources::unsubscribe(&request),
            ("prompts/get", .., Some(prompts)) => prompts.get(&request, context).await,
            ("prompts/list", .., Some(prompts)) => prompts.list(&request),
            ("completion/complete", ..) if self.info.capabilities.completions.is_some() => {
                self.complete(&request, context).await
            }
            _ => match &self.hooks.otherwise {
                Some(otherwise) => otherwise(request, context).await,
                None => Err(service::method_not_found(&request.method)),
            },
        }
    }

    fn readmit(&self, request: &Request) -> Result<(), RpcError> {
        match (request.method.as_str(), &self.tools) {
            ("tools/call", Some(tools)) => tools.readmit(request),
            _ => Ok(()),
        }
    }

    fn started(&self, outlet: Outlet) {
        if let Some(hook) = &self.hooks.started {
            hook(outlet);
        }
    }

    fn session_started(&self, initialize: &Request) {
        if let Some(hook) = &self.hooks.session_started {
            hook(initialize);
        }
    }

    fn notified(&self, notified: &Notified) {
        if let Some(hook) = &self.hooks.notified {
            hook(notified);
        }
    }

    fn session_ended(&self, session: SessionKey) {
        if let Some(hook) = &self.hooks.session_ended {
            hook(session);
        }
    }
}

// --- Completions --------------------------------------------------------------------------------

#[derive(Deserialize)]
struct CompleteParams {
    r#ref: Reference,
    argument: Argument,
    context: Option<CompleteContext>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Template { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct CompleteContext {
    #[serde(default)]
    arguments: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CompleteResult {
    completion: Completion,
}

impl Revised for CompleteResult {
    fn revise(&mut self, _revision: Revision) {}
}

impl Server {
    async fn complete(&self, request: &Request, context: Context) -> Result<Reply, RpcError> {
        let CompleteParams { r#ref, argument, context: known } = request.params()?;
        let completers = match &r#ref {
            Reference::Prompt { name } => self
                .prompts
                .as_ref()
                .and_then(|prompts| prompts.completers(name))
                .ok_or_else(|| prompt::unknown(name)),
            Reference::Template { uri } => self
                .resources
                .as_ref()
                .and_then(|resources| resources.completers(uri))
                .ok_or_else(|| unknown_template(uri)),
        }?;
        let others = known.map(|known| known.arguments).unwrap_or_default();
        let partial = Partial { value: argument.value, others };
        let completion = completers
            .complete(&argument.name, &partial, context)
            .await
            .map_err(|failure: Failure| failure.into_error(request.revision, request.client))?;
        Reply::revised(CompleteResult { completion }, request.revision)
    }
}

fn unknown_template(uri: &str) -> RpcError {
    service::invalid_params(format_args!("unknown template `{}`", service::excerpt(uri)))
}

#[cfg(test)]
mod tests;
