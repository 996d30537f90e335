//! The shortest way from a service to a running server.

use super::{Host, Service, Tasks};
use crate::config::{Config, ConfigError, Machine};
use crate::core::http::policy::PolicyError;
use crate::server::{RunError, Server, StartError};
use thiserror::Error;

/// Why a service is not, or no longer, served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration contradicts itself or this machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The hosts or origins to accept are unusable.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The host does not let it start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It ran and has failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Serves what `make` makes, one instance for each shard on the shard's own thread, until the process is told to stop.
/// SIGTERM and SIGINT are handled: the first lets running calls finish, a second ends the process.
///
/// ```no_run
/// use moorline::backend::{Context, NoArguments, Server, serve};
/// use moorline::config::{Config, Machine};
///
/// let config = Config::for_machine(&Machine::read());
/// serve(config, || {
///     Server::builder("hello", "1.0.0")
///         .tool("hello", "Says hello.", |_: NoArguments, _: Context| async { "Hello!" })
///         .build()
/// })?;
/// # Ok::<(), moorline::backend::ServeError>(())
/// ```
///
/// # Errors
/// See [`ServeError`].
pub fn serve<S: Service>(
    config: Config,
    make: impl Fn() -> S + Clone + Send + 'static,
) -> Result<(), ServeError> {
    let config = config.validated(&Machine::read())?;
    let server = Server::bind(config.server()?)?;
    let tasks = Tasks::default();
    Ok(server.run(move |shard| Host::on(shard, tasks.clone(), make()))?)
}
