//! The tools: `echo`, `add`, `slow`, `notify`.
//!
//! Owns their descriptions, and what they do. Each schema follows from the type that reads the arguments; the tests hold
//! both together all the same.

use crate::backend::{
    Context, Failure, ParamsError, Tool,
    model::{Content, ToolAnnotations, ToolResult},
    notification, schema,
};
use crate::core::seam::{LogLevel, Notification};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;
use std::{borrow::Cow, time::Duration};
use tokio::time::Instant;

const SECONDS_MAX: f64 = 3600.0;
const STEPS_MAX: u32 = 1000;
const STEPS_DEFAULT: u32 = 10;

/// All of them.
pub(super) fn all() -> [Tool; 4] {
    [
        Tool::ready("echo", "Returns the message unchanged.", echo)
            .title("Echo")
            .annotations(ToolAnnotations::read_only()),
        Tool::ready("add", "Adds two numbers. Integers of up to 128 bits are added exactly.", add)
            .title("Add")
            .output_schema(schema::of_result::<Sum>())
            .annotations(ToolAnnotations::read_only()),
        Tool::new(
            "slow",
            "Takes its time: sleeps in equal steps, reports progress after each, and stops when cancelled.",
            slow,
        )
        .title("Slow work")
        .annotations(ToolAnnotations::read_only()),
        Tool::ready(
            "notify",
            "Sends a list-changed notification, or a log message, to listener streams.",
            notify,
        )
        .title("Notify listeners")
        .annotations(ToolAnnotations {
            read_only_hint: Some(false),
            destructive_hint: Some(false),
            idempotent_hint: Some(false),
            ..ToolAnnotations::read_only()
        }),
    ]
}

// --- What they do -------------------------------------------------------------------------------

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Echo {
    /// What to return
    message: String,
}

fn echo(Echo { message }: Echo, _: &Context) -> String {
    message
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Add {
    /// The first number
    a: Number,
    /// The second number
    b: Number,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sum {
    /// The sum of both numbers
    sum: Number,
}

/// The text is the bare sum, which reads better than an object.
fn add(Add { a, b }: Add, _: &Context) -> Result<ToolResult, Failure> {
    let sum = match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => a.checked_add(b).map(Number::Integer),
        (a, b) => Number::real(a.as_real() + b.as_real()),
    };
    let sum = sum.ok_or_else(|| Failure::new("The sum is too large."))?;
    let text = serde_json::to_string(&sum)?;
    Ok(ToolResult { content: vec![Content::text(text)], ..ToolResult::structured(&Sum { sum })? })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Slow {
    /// How long the work takes in all, in seconds
    #[schemars(range(min = 0.0, max = SECONDS_MAX))]
    seconds: f64,
    /// How many steps the work is divided into
    #[serde(default = "steps_default")]
    #[schemars(range(min = 1, max = STEPS_MAX))]
    steps: u32,
}

fn steps_default() -> u32 {
    STEPS_DEFAULT
}

async fn slow(Slow { seconds, steps }: Slow, context: Context) -> Result<ToolResult, Failure> {
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(unfit("seconds", format!("must be from 0 to {SECONDS_MAX}")));
    }
    if !(1..=STEPS_MAX).contains(&steps) {
        return Err(unfit("steps", format!("must be from 1 to {STEPS_MAX}")));
    }
    Ok(work(Duration::from_secs_f64(seconds), steps, &context).await)
}

fn unfit(field: &str, reason: String) -> Failure {
    Failure::new(format_args!("Invalid arguments: {}", ParamsError::new(field, reason)))
}

/// Sleeps until the end of each step, reckoned from the start, so that the steps do not drift.
async fn work(whole: Duration, steps: u32, context: &Context) -> ToolResult {
    let start = Instant::now();
    for step in 1..=steps {
        let due = start + whole * step / steps;
        // A step without time is not slept through: the timer would round it up to a millisecond.
        if !whole.is_zero() && context.unless_cancelled(tokio::time::sleep_until(due)).await.is_none() {
            return ToolResult::failure(format!("Cancelled in step {step} of {steps}."));
        }
        let message = format!("Step {step} of {steps}");
        context.progress(f64::from(step), Some(f64::from(steps)), Some(&message));
    }
    ToolResult::text(format!("Done: {steps} steps in {} s.", whole.as_secs_f64()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Notify {
    /// Which list is said to have changed, or `message` for a log message
    kind: Kind,
    /// Whether only this session hears it, or every session of the server
    #[serde(default)]
    scope: Scope,
}

fn notify(Notify { kind, scope }: Notify, context: &Context) -> Result<String, Failure> {
    let notification =
        kind.notification().ok_or_else(|| Failure::new("The message could not be written."))?;
    Ok(match scope {
        Scope::Session if context.session().is_none() => {
            return Err(Failure::new("This request belongs to no session. Use scope all."));
        }
        Scope::Session => {
            context.notify_session(notification);
            format!("Sent {} to this session.", kind.method())
        }
        Scope::All => {
            context.notify_all(notification);
            format!("Sent {} to all who listen.", kind.method())
        }
    })
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
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

#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Session,
    All,
}

// --- Numbers ------------------------------------------------------------------------------------

/// A JSON number: integers stay exact well beyond what a double can hold.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Number {
    Integer(i128),
    Real(f64),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(source)?;
        Number::parse(json.get()).map_err(D::Error::custom)
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
    }

    fn inline_schema() -> bool {
        true
    }
}

impl Number {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err("must be a number");
        }
        if text.contains(['.', 'e', 'E']) {
            return text.parse().ok().and_then(Number::real).ok_or("is too large");
        }
        text.parse().map(Number::Integer).map_err(|_| "must be an integer of at most 128 bits")
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
