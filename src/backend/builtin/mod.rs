//! The server that comes with the program, so that the first run needs nothing else, and an example to copy.
//!
//! Owns nothing: the [`tools`] do the work, the [builder](super::server) the rest. It advertises what it has and nothing
//! more: four tools, empty lists of prompts and resources whose changes it can announce, and log messages.

pub mod tools;

use super::{Context, Outlet, Reply, Request, Server, ServerInfo, Service, server::List};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{Notified, SessionKey};

/// The built-in service.
#[derive(Debug)]
pub struct Builtin(Server);

impl Builtin {
    /// One instance, for one shard.
    pub fn new() -> Self {
        let builder = Server::builder("moorline", env!("CARGO_PKG_VERSION"))
            .title("Moorline")
            .instructions(
                "A demonstration server: echo and add answer at once, slow works with progress and can be \
                 cancelled, notify sends notifications to listeners.",
            )
            .changing([List::Tools, List::Resources, List::Prompts]);
        Builtin(tools::all().into_iter().fold(builder, |builder, tool| builder.add_tool(tool)).build())
    }
}

impl Default for Builtin {
    fn default() -> Self {
        Builtin::new()
    }
}

impl Service for Builtin {
    fn info(&self) -> ServerInfo {
        self.0.info()
    }

    fn call(&self, request: Request, context: Context) -> impl Future<Output = Result<Reply, RpcError>> {
        self.0.call(request, context)
    }

    fn readmit(&self, request: &Request) -> Result<(), RpcError> {
        self.0.readmit(request)
    }

    fn started(&self, outlet: Outlet) {
        self.0.started(outlet);
    }

    fn session_started(&self, initialize: &Request) {
        self.0.session_started(initialize);
    }

    fn notified(&self, notified: &Notified) {
        self.0.notified(notified);
    }

    fn session_ended(&self, session: SessionKey) {
        self.0.session_ended(session);
    }
}

#[cfg(test)]
mod tests;
