//! Completions of arguments, of prompts and templates alike.
//!
//! Owns the completers by argument. An argument without one has no completions, which is no error.

use super::{
    super::{
        Context, Failure,
        model::{Completion, Partial, prompt::IntoCompletion},
    },
    handler::Handler,
};
use std::collections::HashMap;

/// The completers of one prompt or template.
#[derive(Default)]
pub(super) struct Completers(HashMap<String, Handler<Partial, Completion>>);

impl Completers {
    pub(super) fn add<F, R>(&mut self, argument: String, handler: impl Fn(Partial, Context) -> F + 'static)
    where
        F: Future<Output = R> + 'static,
        R: IntoCompletion + 'static,
    {
        let read = |partial: &Partial| Ok(partial.clone());
        let handler = Handler::later(read, move |partial, context| {
            let completion = handler(partial, context);
            async { completion.await.into_completion() }
        });
        self.0.insert(argument, handler);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) async fn complete(
        &self,
        argument: &str,
        partial: &Partial,
        context: Context,
    ) -> Result<Completion, Failure> {
        match self.0.get(argument) {
            Some(completer) => completer.run(partial, context).await,
            None => Ok(Completion::from(Vec::new())),
        }
    }
}
