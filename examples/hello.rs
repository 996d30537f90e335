//! The smallest server worth having: one tool, one resource, one prompt.
//!
//! ```sh
//! cargo run --example hello
//! ```

use moorline::{
    backend::{Context, Prompt, Resource, ServeError, Server, serve},
    config::{Config, Machine},
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted
    name: String,
    /// How often, once unless said
    times: Option<u8>,
}

async fn greet(Greet { name, times }: Greet, context: Context) -> String {
    let times = times.unwrap_or(1);
    let mut lines = Vec::new();
    for time in 1..=times {
        lines.push(format!("Hello, {name}!"));
        context.progress(f64::from(time), Some(f64::from(times)), None);
    }
    lines.join("\n")
}

fn server() -> Server {
    Server::builder("hello", env!("CARGO_PKG_VERSION"))
        .instructions("Greets people.")
        .tool("greet", "Greets somebody by name.", greet)
        .resource(
            Resource::new("hello:manners", "manners", |_| async { "Always greet first." })
                .mime_type("text/plain"),
        )
        .prompt(Prompt::new(
            "toast",
            "Asks for a toast to somebody.",
            |Greet { name, .. }: Greet, _| async move { format!("Write a short toast to {name}.") },
        ))
        .build()
}

fn main() -> Result<(), ServeError> {
    serve(Config::for_machine(&Machine::read()), server)
}
