//! Calls that become tasks.

use crate::rounds;
use moorline::backend::{Context, Failure, NoArguments, Tool, service};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(300);

pub(crate) fn tools() -> [Tool; 7] {
    [
        Tool::ready("greet", "Greets at once.", |Greet { name }, _| format!("Hello, {name}!")),
        Tool::new("slow_compute", "Takes its time.", slow_compute).as_task(TTL),
        Tool::new("failing_job", "Fails after a second.", failing_job).as_task(TTL).needs_tasks(),
        Tool::new("protocol_error_job", "Fails as a request.", protocol_error_job).as_task(TTL),
        Tool::new("confirm_delete", "Asks before it goes on.", confirm_delete).as_task(TTL),
        Tool::new("multi_input", "Asks for two things at a time.", multi_input).as_task(TTL),
        Tool::new("test_tool_with_task", "Asks first and works then.", with_task).needs_tasks(),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Slow {
    /// How long
    seconds: f64,
    /// What for
    label: Option<String>,
}

async fn slow_compute(Slow { seconds, label }: Slow, context: Context) -> Result<String, Failure> {
    let time = Duration::try_from_secs_f64(seconds)?;
    if !time.is_zero() && context.unless_cancelled(sleep(time)).await.is_none() {
        return Err(Failure::new("cancelled"));
    }
    Ok(format!("Computed {} in {seconds} s.", label.unwrap_or_default()))
}

async fn failing_job(_: NoArguments, _: Context) -> Result<String, Failure> {
    sleep(Duration::from_secs(1)).await;
    Err(Failure::new("This job always fails."))
}

async fn protocol_error_job(_: NoArguments, _: Context) -> Result<String, Failure> {
    sleep(Duration::from_millis(200)).await;
    Err(service::internal_error().into())
}

#[derive(Deserialize, JsonSchema)]
struct Delete {
    /// What to delete
    filename: String,
}

async fn confirm_delete(Delete { filename }: Delete, context: Context) -> Result<String, Failure> {
    rounds::confirm(&context.client(), "confirm", &format!("Delete {filename}?")).await?;
    Ok(format!("{filename} would be gone now."))
}

async fn multi_input(_: NoArguments, context: Context) -> Result<String, Failure> {
    let client = context.client();
    let (first, second) = tokio::join!(
        rounds::confirm(&client, "first", "Is the first all right?"),
        rounds::confirm(&client, "second", "Is the second all right?"),
    );
    first?;
    second?;
    Ok("Both are all right.".into())
}

/// What it has to ask it asks while its client waits.
async fn with_task(_: NoArguments, context: Context) -> Result<String, Failure> {
    let name = rounds::name(&context.client()).await?;
    context.start_task(TTL);
    sleep(Duration::from_millis(200)).await;
    Ok(format!("Done for {name}."))
}
