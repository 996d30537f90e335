//! The tools: `echo`, `add`, `slow`, `notify`.
//!
//! Owns their descriptions, their schemas, and what they do. A schema and the parser of the same arguments
//! must agree; the tests hold them together. Arguments that do not fit are results with `isError`, so that the
//! model that made them can read what was wrong; only an unknown tool is a protocol error.

use super::super::{Context, ParamsError, Reply, notification, params, service};
use crate::core::jsonrpc::RpcError;
use crate::core::seam::{LogLevel, Notification, Revision};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{borrow::Cow, time::Duration};
use tokio::time::Instant;

const SECONDS_MAX: f64 = 3600.0;
const STEPS_MAX: u32 = 1000;
const STEPS_DEFAULT: u32 = 10;

/// Calls a tool by its name.
///
/// # Errors
/// -32602 for an unknown tool.
pub(super) async fn call(
    name: &str,
    arguments: &str,
    revision: Revision,
    context: &Context,
) -> Result<Reply, RpcError> {
    let outcome = match name {
        "echo" => echo(arguments),
        "add" => add(arguments),
        "slow" => slow(arguments, context).await,
        "notify" => notify(arguments, context),
        _ => {
            let name = service::excerpt(name);
            return Err(service::invalid_params(format_args!("unknown tool `{name}`")));
        }
    };
    let outcome = outcome.unwrap_or_else(|error| Outcome::failure(format!("Invalid arguments: {error}")));
    Reply::of(&outcome.result(revision))
}

// --- What they do -------------------------------------------------------------------------------

fn echo(arguments: &str) -> Result<Outcome, ParamsError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object")]
    struct Arguments {
        message: String,
    }
    let Arguments { message } = parse(arguments)?;
    Ok(Outcome::text(message))
}

fn add(arguments: &str) -> Result<Outcome, ParamsError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object")]
    struct Arguments<'a> {
        #[serde(borrow)]
        a: &'a RawValue,
        #[serde(borrow)]
        b: &'a RawValue,
    }
    let Arguments { a, b } = parse(arguments)?;
    let sum = match (Number::parse("a", a)?, Number::parse("b", b)?) {
        (Number::Integer(a), Number::Integer(b)) => a.checked_add(b).map(Number::Integer),
        (a, b) => Number::real(a.as_real() + b.as_real()),
    };
    Ok(match sum {
        Some(sum) => {
            Outcome { structured: Some(json_of(&Sum { sum })), ..Outcome::text(json_of(&sum).get()) }
        }
        None => Outcome::failure("The sum is too large."),
    })
}

async fn slow(arguments: &str, context: &Context) -> Result<Outcome, ParamsError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object")]
    struct Arguments {
        seconds: f64,
        steps: Option<u32>,
    }
    let Arguments { seconds, steps } = parse(arguments)?;
    let steps = steps.unwrap_or(STEPS_DEFAULT);
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(ParamsError::new("seconds", format!("must be from 0 to {SECONDS_MAX}")));
    }
    if !(1..=STEPS_MAX).contains(&steps) {
        return Err(ParamsError::new("steps", format!("must be from 1 to {STEPS_MAX}")));
    }
    Ok(work(Duration::from_secs_f64(seconds), steps, context).await)
}

/// Sleeps until the end of each step, reckoned from the start, so that the steps do not drift.
async fn work(whole: Duration, steps: u32, context: &Context) -> Outcome {
    let start = Instant::now();
    for step in 1..=steps {
        let due = start + whole * step / steps;
        // A step without time is not slept through: the timer would round it up to a millisecond.
        if !whole.is_zero() && context.unless_cancelled(tokio::time::sleep_until(due)).await.is_none() {
            return Outcome::failure(format!("Cancelled in step {step} of {steps}."));
        }
        let message = format!("Step {step} of {steps}");
        context.progress(f64::from(step), Some(f64::from(steps)), Some(&message));
    }
    Outcome::text(format!("Done: {steps} steps in {} s.", whole.as_secs_f64()))
}

fn notify(arguments: &str, context: &Context) -> Result<Outcome, ParamsError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object")]
    struct Arguments {
        kind: Kind,
        scope: Option<Scope>,
    }
    let Arguments { kind, scope } = parse(arguments)?;
    let Some(notification) = kind.notification() else {
        return Ok(Outcome::failure("The message could not be written."));
    };
    Ok(match scope.unwrap_or(Scope::Session) {
        Scope::Session => {
            context.notify_session(notification);
            Outcome::text(format!("Sent {} to this session.", kind.method()))
        }
        Scope::All => {
            context.notify_all(notification);
            Outcome::text(format!("Sent {} to all sessions.", kind.method()))
        }
    })
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Tools,
    Prompts,
    Resources,
    Message,
}

impl Kind {
    fn notification(self) -> Option<Notification> {
        match self {
            Kind::Tools => Some(notification::tools_list_changed()),
            Kind::Prompts => Some(notification::prompts_list_changed()),
            Kind::Resources => Some(notification::resources_list_changed()),
            Kind::Message => {
                notification::log(LogLevel::Info, Some("notify"), &"A message for whoever listens.").ok()
            }
        }
    }

    fn method(self) -> &'static str {
        match self {
            Kind::Tools => "notifications/tools/list_changed",
            Kind::Prompts => "notifications/prompts/list_changed",
            Kind::Resources => "notifications/resources/list_changed",
            Kind::Message => "notifications/message",
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    Session,
    All,
}

fn parse<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, ParamsError> {
    params::parse(arguments.as_bytes())
}

// --- Numbers ------------------------------------------------------------------------------------

/// A JSON number: integers stay exact well beyond what a double can hold.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Number {
    Integer(i128),
    Real(f64),
}

#[derive(Serialize)]
struct Sum {
    sum: Number,
}

impl Number {
    fn parse(field: &str, json: &RawValue) -> Result<Self, ParamsError> {
        let text = json.get();
        let refuse = |reason: &str| Err(ParamsError::new(field, reason));
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return refuse("must be a number");
        }
        if text.contains(['.', 'e', 'E']) {
            return text.parse().ok().and_then(Number::real).map_or_else(|| refuse("is too large"), Ok);
        }
        text.parse().map(Number::Integer).or_else(|_| refuse("must be an integer of at most 128 bits"))
    }

    /// `None` for what JSON cannot say.
    fn real(value: f64) -> Option<Self> {
        value.is_finite().then_some(Number::Real(value))
    }

    fn as_real(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Real(value) => value,
        }
    }
}

// --- Results ------------------------------------------------------------------------------------

/// What came of a call, before the revision decides how much of it can be said.
struct Outcome {
    text: String,
    structured: Option<Box<RawValue>>,
    is_error: Option<True>,
}

impl Outcome {
    fn text(text: impl Into<String>) -> Self {
        Outcome { text: text.into(), structured: None, is_error: None }
    }

    fn failure(text: impl Into<String>) -> Self {
        Outcome { is_error: Some(True), ..Outcome::text(text) }
    }

    fn result(&self, revision: Revision) -> impl Serialize {
        CallToolResult {
            content: [Content { r#type: "text", text: &self.text }],
            structured_content: self.structured.as_deref().filter(|_| revision >= Revision::V2025_06_18),
            is_error: self.is_error,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallToolResult<'a> {
    content: [Content<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<True>,
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// `true`, or not there at all.
#[derive(Clone, Copy)]
struct True;

impl Serialize for True {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

fn json_of(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("finite numbers and named fields always serialise")
}

// --- Descriptions -------------------------------------------------------------------------------

/// The result of `tools/list`, in the fields a revision knows: annotations from 2025-03-26, titles and output
/// schemas from 2025-06-18.
pub(super) fn list(revision: Revision) -> impl Serialize {
    #[derive(Serialize)]
    struct List {
        tools: [Tool; 4],
    }
    List {
        tools: [describe_echo(), describe_add(), describe_slow(), describe_notify()]
            .map(|tool| tool.for_revision(revision)),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    description: Cow<'static, str>,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    /// Where 2025-03-26 has its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    read_only_hint: bool,
    /// Means something only for a tool that is not read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    /// Likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    open_world_hint: bool,
}

impl Annotations {
    const READ_ONLY: Annotations = Annotations {
        title: None,
        read_only_hint: true,
        destructive_hint: None,
        idempotent_hint: None,
        open_world_hint: false,
    };
    const SENDS: Annotations = Annotations {
        read_only_hint: false,
        destructive_hint: Some(false),
        idempotent_hint: Some(false),
        ..Annotations::READ_ONLY
    };
}

impl Tool {
    fn for_revision(mut self, revision: Revision) -> Self {
        if revision < Revision::V2025_03_26 {
            self.annotations = None;
        }
        if revision < Revision::V2025_06_18 {
            self.output_schema = None;
            let title = self.title.take();
            self.annotations = self.annotations.map(|annotations| Annotations { title, ..annotations });
        }
        self
    }
}

fn describe_echo() -> Tool {
    Tool {
        name: "echo",
        title: Some("Echo"),
        description: "Returns the message unchanged.".into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "What to return" },
            },
            "required": ["message"],
            "additionalProperties": false,
        }),
        output_schema: None,
        annotations: Some(Annotations::READ_ONLY),
    }
}

fn describe_add() -> Tool {
    Tool {
        name: "add",
        title: Some("Add"),
        description: "Adds two numbers. Integers of up to 128 bits are added exactly.".into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "a": { "type": "number", "description": "The first number" },
                "b": { "type": "number", "description": "The second number" },
            },
            "required": ["a", "b"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "sum": { "type": "number", "description": "The sum of both numbers" },
            },
            "required": ["sum"],
            "additionalProperties": false,
        })),
        annotations: Some(Annotations::READ_ONLY),
    }
}

fn describe_slow() -> Tool {
    Tool {
        name: "slow",
        title: Some("Slow work"),
        description:
            "Takes its time: sleeps in equal steps, reports progress after each, and stops when cancelled."
                .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "seconds": {
                    "type": "number", "minimum": 0, "maximum": 3600,
                    "description": "How long the work takes in all, in seconds",
                },
                "steps": {
                    "type": "integer", "minimum": 1, "maximum": STEPS_MAX, "default": STEPS_DEFAULT,
                    "description": "How many steps the work is divided into",
                },
            },
            "required": ["seconds"],
            "additionalProperties": false,
        }),
        output_schema: None,
        annotations: Some(Annotations::READ_ONLY),
    }
}

fn describe_notify() -> Tool {
    Tool {
        name: "notify",
        title: Some("Notify listeners"),
        description: "Sends a list-changed notification, or a log message, to listener streams.".into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "kind": {
                    "type": "string", "enum": ["tools", "prompts", "resources", "message"],
                    "description": "Which list is said to have changed, or `message` for a log message",
                },
                "scope": {
                    "type": "string", "enum": ["session", "all"], "default": "session",
                    "description": "Whether only this session hears it, or every session of the server",
                },
            },
            "required": ["kind"],
            "additionalProperties": false,
        }),
        output_schema: None,
        annotations: Some(Annotations::SENDS),
    }
}
