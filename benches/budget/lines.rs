//! What is compared in pairs: each line names two sides, one load, and the figures that come of it.

use super::{
    Outcome, Plan,
    contest::{Running, Side, figure, measure, words},
    print,
};
use serde_json::Value;

/// A comparison.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    sides: (Side, Side),
    load: fn(&Plan, &Running) -> Vec<String>,
    figures: &'static [Figure],
}

struct Figure {
    what: &'static str,
    of: fn(&Value) -> Outcome<f64>,
    /// What the ratio may be.
    budget: Option<f64>,
}

const SERVER: Side = Side::Server(&["--shards", "1"]);
const SERVER_SSE: Side = Side::Server(&["--shards", "1", "--response-mode", "sse"]);
/// Keep-alives come fast while they are measured, so that they are what there is to do.
const SERVER_COMMENTS: Side = Side::Server(&["--shards", "1", "--keep-alive", "1s"]);
const BARE: Side = Side::Bare(&["15000"]);
const BARE_COMMENTS: Side = Side::Bare(&["1000"]);

const PER_CALL: &[Figure] = &[per_call("CPU per call, µs", Some(1.5))];
const PER_CALL_FREE: &[Figure] = &[per_call("CPU per call, µs", None)];

const fn per_call(what: &'static str, budget: Option<f64>) -> Figure {
    Figure { what, of: |report| figure(report, "metrics.cpu_us_per_request"), budget }
}

const fn per_comment(budget: Option<f64>) -> Figure {
    Figure {
        what: "CPU per keep-alive, µs",
        of: |report| figure(report, "metrics.cpu_us_per_keep_alive"),
        budget,
    }
}

fn calls(plan: &Plan, _: &Running) -> Vec<String> {
    words(&format!("call -c 32 -d {}s", plan.seconds))
}

fn comments(plan: &Plan, _: &Running) -> Vec<String> {
    words(&format!("hold -n {} --ramp 0 -d {}s --keep-alive 1s", plan.streams / 2, plan.seconds))
}

fn large_calls(plan: &Plan, _: &Running) -> Vec<String> {
    let mut load = words(&format!("call -c 8 -d {}s --args", plan.seconds));
    load.push(format!(r#"{{"message":"{}"}}"#, "x".repeat(64 * 1024)));
    load
}

fn cycles(plan: &Plan, _: &Running) -> Vec<String> {
    words(&format!("churn -c 32 -d {}s", plan.seconds))
}

fn set_ups(plan: &Plan, _: &Running) -> Vec<String> {
    words(&format!("hold -n {} --ramp 0 -d 1s", plan.streams))
}

fn set_up_us(report: &Value) -> Outcome<f64> {
    let cpu_ms = figure(report, "server.from.cpu_ms")? - figure(report, "server.before.cpu_ms")?;
    Ok(cpu_ms * 1_000.0 / figure(report, "clients_up_at_end")?)
}

/// A message to everyone, the same each time.
pub(crate) const PUBLISH_BODY: &str = r#"{"to":"all","method":"notifications/message","params":{"level":"info","logger":"load","data":"to everyone"}}"#;

fn notifications(plan: &Plan, server: &Running) -> Vec<String> {
    let mut load = words(&format!("notify -n {} --ramp 0 -d {}s --every 1s", plan.streams, plan.seconds));
    load.extend(["--publish-url".into(), server.publish_url.clone()]);
    load.extend(["--publish-body".into(), PUBLISH_BODY.into()]);
    load
}

pub(crate) const LINES: &[Line] = &[
    Line {
        name: "comments",
        sides: (SERVER_COMMENTS, BARE_COMMENTS),
        load: comments,
        figures: &[PER_COMMENT_1_15],
    },
    Line { name: "calls", sides: (SERVER, BARE), load: calls, figures: PER_CALL },
    Line {
        name: "sse-calls",
        sides: (SERVER_SSE, Side::Bare(&["15000", "sse"])),
        load: calls,
        figures: PER_CALL,
    },
    Line {
        name: "large-calls",
        sides: (SERVER, Side::Bare(&["15000", "large"])),
        load: large_calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "set-ups",
        sides: (SERVER, BARE),
        load: set_ups,
        figures: &[Figure {
            what: "CPU per session with stream, µs (at most 100)",
            of: set_up_us,
            budget: None,
        }],
    },
    Line {
        name: "cycles",
        sides: (SERVER, BARE),
        load: cycles,
        figures: &[
            Figure {
                what: "CPU per initialize and DELETE, µs (at most 50)",
                of: |report| figure(report, "metrics.cpu_us_per_cycle"),
                budget: None,
            },
            Figure { what: "cycles per second", of: |report| figure(report, "metrics.rate"), budget: None },
        ],
    },
    Line {
        name: "notifications",
        sides: (SERVER, BARE),
        load: notifications,
        figures: &[
            Figure {
                what: "to the last of all streams, µs",
                of: |report| figure(report, "fanout.last.p50_us"),
                budget: Some(1.5),
            },
            Figure {
                what: "CPU per notification and stream, µs",
                of: |report| figure(report, "metrics.cpu_us_per_receipt"),
                budget: None,
            },
        ],
    },
    Line {
        name: "two-shards-calls",
        sides: (Side::Server(&["--shards", "2"]), SERVER),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "two-shards-comments",
        sides: (Side::Server(&["--shards", "2", "--keep-alive", "1s"]), SERVER_COMMENTS),
        load: comments,
        figures: &[PER_COMMENT_FREE],
    },
    // What the floor would be with other means: for the decisions.
    Line {
        name: "runtime-calls",
        sides: (Side::Runtime(&["15000"]), BARE),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "runtime-comments",
        sides: (Side::Runtime(&["1000"]), BARE_COMMENTS),
        load: comments,
        figures: &[PER_COMMENT_FREE],
    },
    Line {
        name: "ready-calls",
        sides: (Side::Bare(&["15000", "ready"]), BARE),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "multishot-calls",
        sides: (Side::Bare(&["15000", "multishot"]), BARE),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "deferred-calls",
        sides: (Side::Bare(&["15000", "deferred"]), BARE),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "multishot-deferred-calls",
        sides: (Side::Bare(&["15000", "multishot", "deferred"]), BARE),
        load: calls,
        figures: PER_CALL_FREE,
    },
    Line {
        name: "deferred-comments",
        sides: (Side::Bare(&["1000", "multishot", "deferred"]), BARE_COMMENTS),
        load: comments,
        figures: &[PER_COMMENT_FREE],
    },
];

const PER_COMMENT_1_15: Figure = per_comment(Some(1.15));
const PER_COMMENT_FREE: Figure = per_comment(None);

impl Line {
    /// Measures the pairs and prints a row per figure.
    pub(crate) fn run(&self, plan: &Plan) -> Outcome<()> {
        let (mut subjects, mut floors) = (Vec::new(), Vec::new());
        for index in 0..plan.pairs {
            let (subject, floor) = self.pair(plan, index)?;
            subjects.push(subject);
            floors.push(floor);
        }
        for figure in self.figures {
            let values = |reports: &[Value]| reports.iter().map(figure.of).collect::<Outcome<Vec<f64>>>();
            let what = format!("{}: {}", self.name, figure.what);
            print::pairs(&what, &values(&subjects)?, &values(&floors)?, figure.budget);
        }
        Ok(())
    }

    /// The reports of both sides, each in a fresh process; who goes first alternates.
    fn pair(&self, plan: &Plan, index: usize) -> Outcome<(Value, Value)> {
        let measure = |side| measure(side, |server| (self.load)(plan, server));
        if index.is_multiple_of(2) {
            let first = measure(self.sides.0)?;
            return Ok((first, measure(self.sides.1)?));
        }
        let first = measure(self.sides.1)?;
        Ok((measure(self.sides.0)?, first))
    }
}
