//! The server that the official conformance suite is run against: every fixture it looks for, on the public API alone.
//! `tests/conformance/run` starts it.

mod rounds;
mod tasks;

use anyhow::Context as _;
use clap::Parser;
use moorline::{
    backend::{
        AskError, Context, Elicited, Failure, NoArguments, Prompt, Resource, Server, Template, Tool,
        model::{Content, Contents, CreateMessage, PromptMessage, Role, ToolResult},
        notification, serve,
        server::List,
    },
    config::{Config, Machine},
    core::LogLevel,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::time::sleep;

/// Serves the fixtures of the MCP conformance suite.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 lets the kernel choose
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let config = Config { listen: vec![options.listen], shards: 2, ..Config::for_machine(&Machine::read()) };
    serve(config, server).context("cannot serve")
}

fn server() -> Server {
    let builder = Server::builder("moorline-conformance", env!("CARGO_PKG_VERSION"))
        .title("Moorline conformance fixtures")
        .instructions("Fixtures for the conformance suite; of no other use.")
        .changing([List::Tools, List::Prompts])
        .subscriptions();
    let builder = tools().into_iter().fold(builder, |builder, tool| builder.add_tool(tool));
    let builder = resources().into_iter().fold(builder, |builder, resource| builder.resource(resource));
    let builder = prompts().into_iter().fold(builder, |builder, prompt| builder.prompt(prompt));
    builder.template(template()).build()
}

// --- Tools ----------------------------------------------------------------------------------------

fn tools() -> Vec<Tool> {
    let mut tools = vec![
        Tool::ready(
            "test_simple_text",
            "Returns one text.",
            |_: NoArguments, _| "This is a simple text response for testing.",
        ),
        Tool::ready("test_image_content", "Returns an image.", |_: NoArguments, _| image()),
        Tool::ready("test_audio_content", "Returns audio.", |_: NoArguments, _| audio()),
        Tool::ready("test_embedded_resource", "Returns a resource.", |_: NoArguments, _| embedded()),
        Tool::ready("test_multiple_content_types", "Returns three kinds.", |_: NoArguments, _| mixed()),
        Tool::ready("test_error_handling", "Always fails.", |_: NoArguments, _| {
            ToolResult::failure("This tool intentionally returns an error for testing")
        }),
        Tool::new("test_tool_with_logging", "Logs three entries.", with_logging),
        Tool::new("test_tool_with_progress", "Reports progress three times.", with_progress),
        Tool::ready(
            "json_schema_2020_12_tool",
            "Has a schema of all kinds of keywords.",
            |_: Value, _| "Done.",
        )
        .input_schema(schema_2020_12()),
    ];
    tools.extend(asking_tools());
    tools.extend(stateless_tools());
    tools.extend(rounds::tools());
    tools.extend(tasks::tools());
    tools
}

fn asking_tools() -> [Tool; 5] {
    [
        Tool::new("test_sampling", "Asks the client's model.", sampling),
        Tool::new("test_elicitation", "Asks the client's user.", elicitation),
        Tool::new("test_elicitation_sep1034_defaults", "Asks with defaults.", |_: NoArguments, context| {
            ask_user(context, "Please check the defaults.", defaults())
        }),
        Tool::new("test_elicitation_sep1330_enums", "Asks for choices.", |_: NoArguments, context| {
            ask_user(context, "Please choose.", enums())
        }),
        Tool::new("test_reconnection", "Answers on another connection.", reconnection),
    ]
}

/// What 2026-07-28 is tried with beside the rest.
fn stateless_tools() -> [Tool; 6] {
    [
        Tool::new(
            "test_missing_capability",
            "Needs the client's model.",
            |_: NoArguments, context: Context| async move {
                context
                    .client()
                    .create_message(CreateMessage::text("Are you there?", 10))
                    .await
                    .map(|said| said.text())
            },
        ),
        Tool::new("test_streaming_elicitation", "Asks the user, if that is possible.", streaming_elicitation),
        Tool::ready("test_logging_tool", "Logs one entry.", |_: NoArguments, context| {
            context.log(LogLevel::Info, None, &"Logged by a tool");
            "Logged one entry."
        }),
        Tool::ready(
            "test_trigger_tool_change",
            "Says that the tools have changed.",
            |_: NoArguments, context| {
                context.notify_all(notification::tools_list_changed());
                "Said so."
            },
        ),
        Tool::ready(
            "test_trigger_prompt_change",
            "Says that the prompts have changed.",
            |_: NoArguments, context| {
                context.notify_all(notification::prompts_list_changed());
                "Said so."
            },
        ),
        Tool::ready(
            "test_x_mcp_header",
            "Has an argument that is repeated in a header field.",
            |Region { region }, _| format!("Region: {}", region.unwrap_or_default()),
        )
        .input_schema(json!({
            "type": "object",
            "properties": {"region": {"type": "string", "description": "Where", "x-mcp-header": "Region"}},
        })),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Region {
    region: Option<String>,
}

async fn streaming_elicitation(_: NoArguments, context: Context) -> Result<String, Failure> {
    match context.client().elicit::<User>("Who are you?").await {
        Err(AskError::Unsupported { .. }) => Ok("The user cannot be asked.".into()),
        answer => Ok(format!("User response: {:?}", answer?)),
    }
}

/// A red dot.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, b'I', b'D', b'A', b'T', 8, 0xd7, 0x63, 0xf8,
    0xcf, 0xc0, 0, 0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42,
    0x60, 0x82,
];

/// No sound at all.
const WAV: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0";

fn image() -> Content {
    Content::image(PNG, "image/png")
}

fn audio() -> Content {
    Content::audio(WAV, "audio/wav")
}

fn embedded() -> Content {
    let contents = Contents::text("This is an embedded resource content.").mime_type("text/plain");
    Content::resource("test://embedded-resource", contents)
}

fn mixed() -> Vec<Content> {
    let json = json!({"test": "data", "value": 123}).to_string();
    let resource = Contents::text(json).mime_type("application/json");
    vec![
        Content::text("Multiple content types test:"),
        image(),
        Content::resource("test://mixed-content-resource", resource),
    ]
}

const PAUSE: Duration = Duration::from_millis(50);

async fn with_logging(_: NoArguments, context: Context) -> &'static str {
    context.log(LogLevel::Info, None, &"Tool execution started");
    sleep(PAUSE).await;
    context.log(LogLevel::Info, None, &"Tool processing data");
    sleep(PAUSE).await;
    context.log(LogLevel::Info, None, &"Tool execution completed");
    "Logged three entries."
}

async fn with_progress(_: NoArguments, context: Context) -> &'static str {
    for done in [0.0, 50.0, 100.0] {
        context.progress(done, Some(100.0), Some("Working"));
        sleep(PAUSE).await;
    }
    "Reported progress."
}

#[derive(Deserialize, JsonSchema)]
struct Sampling {
    /// What the model is asked
    prompt: String,
}

async fn sampling(Sampling { prompt }: Sampling, context: Context) -> Result<String, Failure> {
    let said = context.client().create_message(CreateMessage::text(prompt, 100)).await?;
    Ok(format!("LLM response: {}", said.text()))
}

#[derive(Deserialize, JsonSchema)]
struct Elicitation {
    /// What the user is told
    message: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct User {
    /// Your name here
    username: String,
    /// Your address
    email: String,
}

async fn elicitation(Elicitation { message }: Elicitation, context: Context) -> Result<String, Failure> {
    let answer: Elicited<User> = context.client().elicit(&message).await?;
    Ok(match answer {
        Elicited::Accepted(user) => format!("User response: {} <{}>", user.username, user.email),
        Elicited::Declined => "User response: declined".into(),
        Elicited::Dismissed => "User response: none".into(),
    })
}

async fn ask_user(context: Context, message: &'static str, schema: Value) -> Result<String, Failure> {
    let answer: Elicited<Value> = context.client().elicit_form(message, &schema).await?;
    Ok(format!("User response: {answer:?}"))
}

fn defaults() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        },
    })
}

fn enums() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First option"},
        {"const": "value2", "title": "Second option"},
        {"const": "value3", "title": "Third option"},
    ]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": plain, "enumNames": ["One", "Two", "Three"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    })
}

async fn reconnection(_: NoArguments, context: Context) -> &'static str {
    context.close_stream(Duration::from_millis(500));
    sleep(2 * PAUSE).await;
    "This came on another connection."
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

// --- Resources ------------------------------------------------------------------------------------

fn resources() -> [Resource; 3] {
    [
        Resource::new("test://static-text", "static-text", |_| async {
            "This is the content of the static text resource."
        })
        .description("A text that never changes.")
        .mime_type("text/plain"),
        Resource::new("test://static-binary", "static-binary", |_| async { PNG.to_vec() })
            .description("An image that never changes.")
            .mime_type("image/png"),
        Resource::new("test://watched-resource", "watched-resource", |_| async { "Watched." })
            .description("A resource to subscribe to.")
            .mime_type("text/plain"),
    ]
}

#[derive(Deserialize)]
struct DataOf {
    id: String,
}

fn template() -> Template {
    Template::new("test://template/{id}/data", "template-data", |DataOf { id }: DataOf, _| async move {
        json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string()
    })
    .description("Data for an id.")
    .mime_type("application/json")
}

// --- Prompts --------------------------------------------------------------------------------------

#[derive(Deserialize, JsonSchema)]
struct TwoArguments {
    /// The first argument
    arg1: String,
    /// The second argument
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct About {
    /// The resource the prompt is about
    resource_uri: String,
}

fn prompts() -> [Prompt; 5] {
    [
        Prompt::new("test_simple_prompt", "Says one text.", |_: NoArguments, _| async {
            "This is a simple prompt for testing."
        }),
        Prompt::new(
            "test_prompt_with_arguments",
            "Says its arguments.",
            |TwoArguments { arg1, arg2 }, _| async move {
                format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
            },
        )
        .complete("arg1", |typed, _| async move {
            ["test1", "test2", "other"]
                .map(String::from)
                .into_iter()
                .filter(|value| value.starts_with(&typed.value))
                .collect::<Vec<_>>()
        }),
        Prompt::new(
            "test_prompt_with_embedded_resource",
            "Says a resource.",
            |About { resource_uri }, _| async {
                let contents =
                    Contents::text("Embedded resource content for testing.").mime_type("text/plain");
                vec![
                    PromptMessage::of(Role::User, Content::resource(resource_uri, contents)),
                    PromptMessage::user("Please process the embedded resource above."),
                ]
            },
        ),
        Prompt::new("test_prompt_with_image", "Shows an image.", |_: NoArguments, _| async {
            vec![
                PromptMessage::of(Role::User, image()),
                PromptMessage::user("Please analyze the image above."),
            ]
        }),
        rounds::prompt(),
    ]
}
