//! Requests in several rounds: handlers that ask their clients by names the suite knows.

use moorline::backend::{
    AskError, Client, Context, Elicited, Failure, NoArguments, Prompt, Tool, model::CreateMessage,
};
use moorline::core::ClientFeatures;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn tools() -> [Tool; 8] {
    [
        tool("elicitation", "Asks for a name.", |context| async move {
            Ok(format!("Hello, {}!", name(&context.client()).await?))
        }),
        tool("sampling", "Asks for a capital.", |context| async move { capital(&context.client()).await }),
        tool("list_roots", "Asks for the roots.", |context| async move {
            Ok(format!("{} roots", roots(&context.client()).await?))
        }),
        tool("request_state", "Asks for a confirmation.", |context| async move {
            confirm(&context.client(), "confirm", "Is that all right?").await?;
            Ok("state-ok".into())
        }),
        tool("multiple_inputs", "Asks for three things at a time.", |context| async move {
            let client = context.client();
            let (name, greeting, roots) = tokio::join!(name(&client), greeting(&client), roots(&client));
            Ok(format!("{}: {} ({} roots)", name?, greeting?, roots?))
        }),
        tool("multi_round", "Asks twice, one after the other.", |context| async move {
            confirm(&context.client(), "step1", "Shall we begin?").await?;
            confirm(&context.client(), "step2", "Shall we go on?").await?;
            Ok("Both steps are done.".into())
        }),
        tool("tampered_state", "Asks for a confirmation, and knows its own state.", |context| async move {
            confirm(&context.client(), "confirm", "Is that all right?").await?;
            Ok("Confirmed.".into())
        }),
        tool("capabilities", "Asks for what the client can be asked for.", |context| async move {
            let (client, features) = (context.client(), context.client_features());
            if features.has(ClientFeatures::FORMS) {
                name(&client).await?;
            }
            if features.has(ClientFeatures::SAMPLING) {
                capital(&client).await?;
            }
            Ok("Asked.".into())
        }),
    ]
}

pub(crate) fn prompt() -> Prompt {
    Prompt::new(
        "test_input_required_result_prompt",
        "Asks what it is about.",
        |_: NoArguments, context: Context| async move {
            let client = context.client().named("user_context");
            let answer: Elicited<Value> = client.elicit_form("What is this about?", &text("context")).await?;
            Ok::<_, Failure>(format!("The user says: {answer:?}"))
        },
    )
}

fn tool<F: Future<Output = Result<String, Failure>> + 'static>(
    name: &str,
    description: &str,
    handler: impl Fn(Context) -> F + 'static,
) -> Tool {
    let name = format!("test_input_required_result_{name}");
    Tool::new(name, description, move |_: NoArguments, context| handler(context))
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// The user's name, by the name the suite knows the question by.
pub(crate) async fn name(client: &Client) -> Result<String, AskError> {
    let client = client.clone().named("user_name");
    let answer: Elicited<Name> = client.elicit("What is your name?").await?;
    Ok(answer.accepted().map_or_else(|| "whoever you are".into(), |Name { name }| name))
}

async fn capital(client: &Client) -> Result<String, Failure> {
    let question = CreateMessage::text("What is the capital of France?", 100);
    Ok(client.clone().named("capital_question").create_message(question).await?.text())
}

async fn greeting(client: &Client) -> Result<String, AskError> {
    let question = CreateMessage::text("Say hello.", 50);
    Ok(client.clone().named("greeting").create_message(question).await?.text())
}

async fn roots(client: &Client) -> Result<usize, AskError> {
    Ok(client.clone().named("client_roots").list_roots().await?.len())
}

pub(crate) async fn confirm(client: &Client, name: &str, message: &str) -> Result<(), AskError> {
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
    let answer: Elicited<Value> = client.clone().named(name).elicit_form(message, &schema).await?;
    drop(answer);
    Ok(())
}

fn text(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]})
}
