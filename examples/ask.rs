//! A server that asks back: the client's user by a form, the client's model by sampling. And one that works long without
//! holding a connection.
//!
//! ```sh
//! cargo run --example ask
//! ```

use moorline::{
    backend::{Context, Elicited, Failure, NoArguments, ServeError, Server, model::CreateMessage, serve},
    config::{Config, Machine},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// Where do you want to go?
    destination: String,
    /// How many days do you have?
    days: u8,
}

/// `?` turns whatever the client could not do into a result that says so.
async fn plan_trip(_: NoArguments, context: Context) -> Result<String, Failure> {
    let client = context.client().within(Duration::from_secs(120));
    let Elicited::Accepted(trip) = client.elicit::<Trip>("Tell me about your trip.").await? else {
        return Ok("Another time, then.".into());
    };
    let question = format!("Plan {} days in {}.", trip.days, trip.destination);
    let plan = client.create_message(CreateMessage::text(question, 500)).await?;
    Ok(plan.text())
}

async fn brew(_: NoArguments, context: Context) -> String {
    context.close_stream(Duration::from_secs(2));
    match context.unless_cancelled(tokio::time::sleep(Duration::from_secs(10))).await {
        Some(()) => "Tea is ready.".into(),
        None => "Nobody wants tea any more.".into(),
    }
}

fn server() -> Server {
    Server::builder("ask", env!("CARGO_PKG_VERSION"))
        .tool("plan-trip", "Asks about a trip and has it planned.", plan_trip)
        .tool("brew", "Takes ten seconds; the client comes back for the answer.", brew)
        .build()
}

fn main() -> Result<(), ServeError> {
    serve(Config::for_machine(&Machine::read()), server)
}
