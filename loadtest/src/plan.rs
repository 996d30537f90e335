//! What a worker is to do: everything the user asked for, resolved, as data that travels.
//!
//! Owns the scenarios' parameters. Made once from the command line; workers never see the command line.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::http::request::Wording;
use crate::net::target::Target;
use crate::scenario::mix::Action;

/// The plan of one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Which worker this is, from 0. Worker 0 also publishes.
    pub(crate) worker_index: u32,
    /// How many workers there are.
    pub(crate) workers_count: u32,
    /// The servers; clients are spread over them in turn.
    pub(crate) targets: Vec<Target>,
    /// Headers and versions.
    pub(crate) wording: Wording,
    /// Source addresses named by the user.
    pub(crate) sources: Vec<IpAddr>,
    /// The number that marks messages of this run.
    pub(crate) run: u32,
    /// How long a step may wait for its answer, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// Handshakes under way at once during the ramp.
    pub(crate) in_flight_max: u64,
    /// The interval of keep-alives that lateness is measured against, in milliseconds.
    pub(crate) keep_alive_ms: u64,
    /// The tool calls of the run.
    pub(crate) call: ToolCall,
    /// How to make the servers send a notification to everyone, if at all.
    pub(crate) publishing: Option<Publishing>,
    /// What to do.
    pub(crate) scenario: Scenario,
}

/// The tool that is called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// Its name.
    pub(crate) tool: String,
    /// Its arguments as JSON text; `{marker}` stands for a text that differs from call to call.
    pub(crate) arguments: String,
}

/// How to make a server send a notification to all its sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Publishing {
    /// Where and what.
    pub(crate) trigger: Trigger,
    /// Time between publications, in milliseconds.
    pub(crate) every_ms: u64,
    /// How a received notification is matched with its publication.
    pub(crate) recognition: Recognition,
}

/// How a received notification is matched with its publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Recognition {
    /// By a marker in its text.
    Marker,
    /// By its place among the notifications of its session.
    Order,
}

impl Recognition {
    /// What a template of a publication allows.
    pub(crate) fn of(template: &str) -> Self {
        if template.contains("{marker}") { Self::Marker } else { Self::Order }
    }
}

/// What makes a server publish.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trigger {
    /// Call the plan's tool, once per server, with the marker in its arguments.
    Tool,
    /// POST this JSON to these addresses; `{marker}` is replaced.
    Post {
        /// Where.
        targets: Vec<Target>,
        /// What.
        body: String,
    },
}

/// The scenarios.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scenario {
    /// Hold streams; count what goes wrong. With publishing this is also `notify`.
    Hold,
    /// Act, at a rate or one action after the other: `call` and `churn`.
    Call(Calls),
    /// Cut all streams and come back.
    Storm(Storms),
    /// EventSources behind finished calls, so many per session.
    Leapfrog(u32),
    /// Held streams and callers.
    Mixed(Calls),
}

/// What callers do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// Actions a second, over all workers; `None`: each caller acts as soon as it can.
    pub(crate) per_second: Option<f64>,
    /// Which actions, by weight.
    pub(crate) mix: Vec<(Action, u32)>,
    /// Callers, over all workers, where not all clients are callers.
    pub(crate) callers_count: u64,
    /// Whether each new session takes a new connection.
    pub(crate) fresh_connections: bool,
    /// Every so many sessions one is left without DELETE; 0 is never.
    pub(crate) abandon_every: u32,
}

/// When all connections are cut.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Storms {
    /// How often.
    pub(crate) storms_count: u32,
    /// Time between storms, in milliseconds.
    pub(crate) every_ms: u64,
    /// Whether clients come back behind their last event.
    pub(crate) has_cursor: bool,
}

/// The measured part of a run, on the common clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Load begins.
    pub(crate) start: Moment,
    /// Measuring begins: what was intended earlier is warm-up.
    pub(crate) measure_from: Moment,
    /// Load ends; answers are still awaited for a while.
    pub(crate) end: Moment,
}

impl Window {
    /// Whether something intended at `moment` is measured.
    pub(crate) fn measures(&self, moment: Moment) -> bool {
        self.measure_from <= moment && moment < self.end
    }
}
