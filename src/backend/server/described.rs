//! What tools, prompts, resources and templates are described with alike.
//!
//! Owns nothing: one macro that gives a builder with a `definition` the setters all of them have.

/// Gives each type the setters that all definitions share.
macro_rules! described {
    ($($type:ident)*) => {$(
        impl $type {
            /// Its name for people.
            #[must_use]
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.definition.title = Some(title.into());
                self
            }

            /// One more picture.
            #[must_use]
            pub fn icon(mut self, icon: $crate::backend::model::Icon) -> Self {
                self.definition.icons.get_or_insert_default().push(icon);
                self
            }

            /// More for whoever knows it.
            #[must_use]
            pub fn meta(mut self, meta: $crate::backend::model::Meta) -> Self {
                self.definition.meta = Some(meta);
                self
            }
        }
    )*};
}
pub(super) use described;
