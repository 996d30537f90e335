//! Handlers without their types.
//!
//! Owns the two forms of a handler: one that answers at once costs neither task nor allocation; one that may wait is a
//! future in a box. Arguments are read before the future is made.

use super::super::{Context, Failure};
use std::pin::Pin;

type Now<A, T> = dyn Fn(&A, &Context) -> Result<T, Failure>;
type Start<A, T> = dyn Fn(&A, Context) -> Result<Later<T>, Failure>;
type Later<T> = Pin<Box<dyn Future<Output = Result<T, Failure>>>>;

/// A handler that reads its arguments from an `A` and makes a `T`.
pub(super) enum Handler<A: ?Sized, T> {
    Now(Box<Now<A, T>>),
    Later(Box<Start<A, T>>),
}

impl<A: ?Sized, T: 'static> Handler<A, T> {
    /// Answers at once.
    pub(super) fn now(handler: impl Fn(&A, &Context) -> Result<T, Failure> + 'static) -> Self {
        Handler::Now(Box::new(handler))
    }

    /// Answers when the future does; `read` takes what it needs from the arguments.
    pub(super) fn later<P, F: Future<Output = Result<T, Failure>> + 'static>(
        read: impl Fn(&A) -> Result<P, Failure> + 'static,
        handler: impl Fn(P, Context) -> F + 'static,
    ) -> Self {
        Handler::Later(Box::new(move |arguments, context| {
            let future: Later<T> = Box::pin(handler(read(arguments)?, context));
            Ok(future)
        }))
    }

    pub(super) async fn run(&self, arguments: &A, context: Context) -> Result<T, Failure> {
        match self {
            Handler::Now(handler) => handler(arguments, &context),
            Handler::Later(handler) => handler(arguments, context)?.await,
        }
    }
}
