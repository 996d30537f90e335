//! What tools, resources and prompts are made of, as JSON says it.
//!
//! Owns the shapes of 2026-07-28, and which of their parts older revisions know: [`Revised`] takes away, or says in other
//! words, what a session's revision has no place for. It must never decide what a server offers.
//!
//! Values are built by their constructors and the methods that take `self`; everything optional starts absent.

pub mod content;
pub mod prompt;
pub mod resource;
pub mod sampling;
pub mod tool;

pub use content::{Annotations, Content, Icon, Role, Theme};
pub use prompt::{Completion, Partial, PromptArgument, PromptDefinition, PromptMessage, PromptResult};
pub use resource::{Contents, ResourceDefinition, TemplateDefinition};
pub use sampling::{
    CreateMessage, IncludeContext, ModelPreferences, Sampled, SamplingContent, SamplingMessage, ToolChoice,
};
pub use tool::{Json, ToolAnnotations, ToolDefinition, ToolResult};

use crate::core::seam::Revision;

/// The `_meta` of a message: its names are the specification's or prefixed by a domain of their author.
pub type Meta = serde_json::Map<String, serde_json::Value>;

/// Something of which older revisions know less.
pub trait Revised {
    /// Leaves out what `revision` does not know, or says it in words it knows.
    fn revise(&mut self, revision: Revision);
}

impl<T: Revised> Revised for Vec<T> {
    fn revise(&mut self, revision: Revision) {
        self.iter_mut().for_each(|item| item.revise(revision));
    }
}

impl<T: Revised> Revised for Option<T> {
    fn revise(&mut self, revision: Revision) {
        if let Some(item) = self {
            item.revise(revision);
        }
    }
}

/// Leaves a field out of revisions before `since`.
pub(super) fn since<T>(since: Revision, revision: Revision, field: &mut Option<T>) {
    if revision < since {
        *field = None;
    }
}

/// Adds methods that set an optional field.
macro_rules! with {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: impl Into<$type>) -> Self {
            self.$name = Some($name.into());
            self
        }
    )*};
}
pub(super) use with;
