//! Resources and templates of a built server.
//!
//! Owns their definitions and handlers, and what is a resource of this server: one it lists, or one that a template
//! matches. Templates are tried in the order in which they were added.

use super::{
    super::{
        Context, Failure, Reply, Request,
        model::{
            Annotations, Contents, Partial, ResourceDefinition, Revised, TemplateDefinition,
            content::Embedded, prompt::IntoCompletion, resource::IntoContents,
        },
        service,
    },
    complete::Completers,
    described::described,
    error::BuildError,
    handler::Handler,
    pages::Pages,
    strings,
    template::UriTemplate,
};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::Revision;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{borrow::Cow, collections::BTreeMap, collections::HashMap};

type Variables = BTreeMap<String, String>;

/// A resource: how it is described, and what is in it.
pub struct Resource {
    definition: ResourceDefinition,
    handler: Handler<(), Contents>,
}

/// A family of resources whose URIs a template describes.
pub struct Template {
    definition: TemplateDefinition,
    uris: UriTemplate,
    handler: Handler<Variables, Contents>,
    completers: Completers,
}

impl Resource {
    /// A resource; its handler returns what is in it.
    pub fn new<F, R>(
        uri: impl Into<String>,
        name: impl Into<String>,
        handler: impl Fn(Context) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = R> + 'static,
        R: IntoContents + 'static,
    {
        let handler = Handler::later(
            |()| Ok(()),
            move |(), context| {
                let contents = handler(context);
                async { contents.await.into_contents() }
            },
        );
        let definition = ResourceDefinition {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            annotations: None,
            icons: None,
            meta: None,
        };
        Resource { definition, handler }
    }

    /// Its size in bytes, if it is known without reading it.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.definition.size = Some(size);
        self
    }
}

impl Template {
    /// The resources at the URIs that `uri_template` describes, with `{name}` for anything without a slash and `{+name}` for
    /// anything (RFC 6570). The variables become the fields of `A`, which may be strings, numbers, booleans and
    /// enumerations; variables that do not fit are refused as invalid parameters, by name.
    ///
    /// # Panics
    /// If the template has other expressions, or two variables side by side.
    pub fn new<A, F, R>(
        uri_template: impl Into<String>,
        name: impl Into<String>,
        handler: impl Fn(A, Context) -> F + 'static,
    ) -> Self
    where
        A: DeserializeOwned + 'static,
        F: Future<Output = R> + 'static,
        R: IntoContents + 'static,
    {
        let handler = Handler::later(
            |variables: &Variables| {
                strings::parse::<A>(variables).map_err(|error| RpcError::from(error).into())
            },
            move |arguments, context| {
                let contents = handler(arguments, context);
                async { contents.await.into_contents() }
            },
        );
        let uri_template = uri_template.into();
        let uris = UriTemplate::parse(&uri_template)
            .unwrap_or_else(|error| panic!("a URI template that cannot be matched: {error}"));
        let definition = TemplateDefinition {
            uri_template,
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            annotations: None,
            icons: None,
            meta: None,
        };
        Template { definition, uris, handler, completers: Completers::default() }
    }

    /// Completes a variable (`completion/complete`).
    ///
    /// # Panics
    /// If the template has no such variable.
    #[must_use]
    pub fn complete<F, R>(
        mut self,
        variable: impl Into<String>,
        handler: impl Fn(Partial, Context) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = R> + 'static,
        R: IntoCompletion + 'static,
    {
        let variable = variable.into();
        assert!(self.uris.has(&variable), "`{}` has no variable `{variable}`", self.definition.uri_template);
        self.completers.add(variable, handler);
        self
    }

    pub(super) fn completes(&self) -> bool {
        !self.completers.is_empty()
    }
}

macro_rules! readable {
    ($($type:ident)*) => {$(
        impl $type {
            /// What it is, for a model.
            #[must_use]
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.definition.description = Some(description.into());
                self
            }

            /// The type of its contents, unless they say otherwise.
            #[must_use]
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.definition.mime_type = Some(mime_type.into());
                self
            }

            /// For whom it is, and how important.
            #[must_use]
            pub fn annotations(mut self, annotations: Annotations) -> Self {
                self.definition.annotations = Some(annotations);
                self
            }
        }
    )*};
}

described! { Resource Template }
readable! { Resource Template }

// --- All of them --------------------------------------------------------------------------------

pub(super) struct Resources {
    pages: Pages,
    template_pages: Pages,
    by_uri: HashMap<String, Resource>,
    templates: Vec<Template>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

impl Resources {
    /// # Errors
    /// If two resources have one URI.
    pub(super) fn new(
        resources: Vec<Resource>,
        templates: Vec<Template>,
        page_items: usize,
    ) -> Result<Self, BuildError> {
        let listed: Vec<_> = resources.iter().map(|resource| resource.definition.clone()).collect();
        let families: Vec<_> = templates.iter().map(|template| template.definition.clone()).collect();
        let mut by_uri = HashMap::new();
        for resource in resources {
            let uri = resource.definition.uri.clone();
            if by_uri.insert(uri.clone(), resource).is_some() {
                return Err(BuildError::TwoResources(uri));
            }
        }
        Ok(Resources {
            pages: Pages::new("resources", &listed, page_items),
            template_pages: Pages::new("resourceTemplates", &families, page_items),
            by_uri,
            templates,
        })
    }

    pub(super) fn list(&self, request: &Request) -> Result<Reply, RpcError> {
        self.pages.page(request)
    }

    pub(super) fn list_templates(&self, request: &Request) -> Result<Reply, RpcError> {
        self.template_pages.page(request)
    }

    pub(super) async fn read(&self, request: &Request, context: Context) -> Result<Reply, RpcError> {
        let Params { uri } = request.params()?;
        let (outcome, mime_type) = match self.by_uri.get(&*uri) {
            Some(resource) => (resource.handler.run(&(), context).await, &resource.definition.mime_type),
            None => {
                let (template, variables) = self.family(&uri)?;
                (template.handler.run(&variables, context).await, &template.definition.mime_type)
            }
        };
        let mut contents =
            outcome.map_err(|failure: Failure| failure.into_error(request.revision, request.client))?;
        contents.mime_type = contents.mime_type.or_else(|| mime_type.clone());
        Reply::revised(ReadResult { contents: [Embedded { uri: uri.into(), contents }] }, request.revision)
    }

    pub(super) fn subscribe(&self, request: &Request) -> Result<Reply, RpcError> {
        let Params { uri } = request.params()?;
        if !self.by_uri.contains_key(&*uri) {
            self.family(&uri)?;
        }
        Ok(Reply::subscribed(&*uri))
    }

    /// No error for what is not subscribed, or is no more.
    pub(super) fn unsubscribe(request: &Request) -> Result<Reply, RpcError> {
        let Params { uri } = request.params()?;
        Ok(Reply::unsubscribed(&*uri))
    }

    /// The completers of a template.
    pub(super) fn completers(&self, uri_template: &str) -> Option<&Completers> {
        let template =
            self.templates.iter().find(|template| template.definition.uri_template == uri_template)?;
        Some(&template.completers)
    }

    fn family(&self, uri: &str) -> Result<(&Template, Variables), RpcError> {
        self.templates
            .iter()
            .find_map(|template| Some((template, template.uris.matches(uri)?)))
            .ok_or_else(|| service::resource_not_found(uri))
    }
}

#[derive(Serialize)]
struct ReadResult {
    contents: [Embedded; 1],
}

impl Revised for ReadResult {
    fn revise(&mut self, revision: Revision) {
        self.contents.iter_mut().for_each(|embedded| embedded.contents.revise(revision));
    }
}
