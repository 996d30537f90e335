//! `/metrics`: counters and gauges in the Prometheus text format, version 0.0.4.
//!
//! Names follow its conventions: a prefix, base units, `_total` for what only grows. Every counter of the shards is
//! here, with what is written above it as its help, so that a new one cannot be forgotten. A shard that does not answer
//! has `moorline_shard_up` 0 and nothing else. Families are in a fixed order, and so are shards.

use super::{
    answer::{self, Body},
    desk::{Desk, Readiness},
    process::Process,
};
use crate::{
    core::{
        counters::Counters as CoreCounters,
        shard::{Attached, Population},
    },
    shell::counters::{Counters as ShellCounters, Statistics},
};
use hyper::{Response, StatusCode};
use std::fmt::{Display, Write as _};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn answer(desk: &Desk) -> Response<Body> {
    let shards = desk.statistics().await;
    let facts = Facts {
        is_ready: desk.readiness() == Readiness::Ready,
        uptime_s: desk.started.elapsed().as_secs(),
        process: Process::read(),
    };
    answer::whole(StatusCode::OK, CONTENT_TYPE, page(&shards, &facts))
}

/// What is of the process as a whole.
struct Facts {
    is_ready: bool,
    uptime_s: u64,
    process: Process,
}

fn page(shards: &[Option<Statistics>], facts: &Facts) -> String {
    let mut page = Page { text: String::new(), shards };
    page.process(facts);
    page.population();
    page.core_counters();
    page.shell_counters();
    page.text
}

struct Page<'a> {
    text: String,
    shards: &'a [Option<Statistics>],
}

impl Page<'_> {
    fn process(&mut self, facts: &Facts) {
        self.head("moorline_build_info", "gauge", "The version that runs.");
        self.line("moorline_build_info", &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1);
        self.head("moorline_ready", "gauge", "Whether newcomers are welcome.");
        self.line("moorline_ready", "", u8::from(facts.is_ready));
        self.head("moorline_uptime_seconds", "gauge", "Time since the server started.");
        self.line("moorline_uptime_seconds", "", facts.uptime_s);
        self.head("process_cpu_seconds_total", "counter", "Processor time of all threads.");
        self.line("process_cpu_seconds_total", "", facts.process.cpu_s);
        if let Some(bytes) = facts.process.resident_bytes {
            self.head("process_resident_memory_bytes", "gauge", "Resident memory.");
            self.line("process_resident_memory_bytes", "", bytes);
        }
        self.head("moorline_shard_up", "gauge", "Whether the shard answered in time.");
        for (shard, statistics) in self.shards.iter().enumerate() {
            self.line("moorline_shard_up", &of_shard(shard), u8::from(statistics.is_some()));
        }
    }

    fn population(&mut self) {
        self.gauge("moorline_connections_open", "Connections, ending ones included.", |held| held.conns);
        self.gauge("moorline_sessions_active", "Sessions.", |held| held.sessions);
        self.gauge("moorline_calls_in_flight", "Calls the backend works on.", Population::calls_in_flight);
        self.gauge("moorline_timers_armed", "Timers in the wheel.", |held| held.timers);
        let help = "Bytes of bodies, until their calls have ended, and of replies kept for replay or for slow streams.";
        self.gauge("moorline_held_bytes", help, |held| held.held_bytes);
        self.streams();
    }

    fn streams(&mut self) {
        self.head(
            "moorline_streams_held",
            "gauge",
            "Streams by kind: listener (GET), fallen_through (GET after a finished request stream), request (POST), \
             listen (subscriptions/listen), carrier (HTTP+SSE), detached (kept for replay).",
        );
        for (shard, statistics) in answering(self.shards) {
            for (kind, count) in streams_by_kind(&statistics.population) {
                let labels = format!("{},kind=\"{kind}\"", of_shard(shard));
                self.line("moorline_streams_held", &labels, count);
            }
        }
    }

    fn core_counters(&mut self) {
        for (index, (name, help)) in CoreCounters::HELP.iter().enumerate() {
            let value =
                |statistics: &Statistics| statistics.core.iter().nth(index).map_or(0, |(_, value)| value);
            match *name {
                "comments_late_ms" => self.family(
                    "moorline_keep_alive_lateness_seconds_total",
                    "counter",
                    "Time by which keep-alive comments were late, summed.",
                    |statistics| seconds(value(statistics)),
                ),
                "comments_late_ms_max" => self.family(
                    "moorline_keep_alive_lateness_seconds_max",
                    "gauge",
                    "The worst lateness of a keep-alive comment since the start.",
                    |statistics| seconds(value(statistics)),
                ),
                name => self.family(&format!("moorline_{name}_total"), "counter", help.trim(), value),
            }
        }
    }

    fn shell_counters(&mut self) {
        for (index, (name, help)) in ShellCounters::HELP.iter().enumerate() {
            let value =
                |statistics: &Statistics| statistics.shell.iter().nth(index).map_or(0, |(_, value)| value);
            self.family(&format!("moorline_loop_{name}_total"), "counter", help.trim(), value);
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: fn(&Population) -> usize) {
        self.family(name, "gauge", help, |statistics| value(&statistics.population));
    }

    /// A family with one value for each shard that answers.
    fn family<V: Display>(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&Statistics) -> V) {
        self.head(name, kind, help);
        for (shard, statistics) in answering(self.shards) {
            self.line(name, &of_shard(shard), value(statistics));
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        debug_assert!(!help.contains(['\\', '\n']), "would need escaping");
        write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("a String takes all");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        }
        .expect("a String takes all");
    }
}

fn streams_by_kind(held: &Population) -> [(&'static str, usize); 6] {
    let Attached { listeners, fallen_through, requests, exchanges, listens, carriers } = held.attached;
    let detached = held.streams - listeners - fallen_through - requests;
    [
        ("listener", listeners),
        ("fallen_through", fallen_through),
        ("request", requests + exchanges),
        ("listen", listens),
        ("carrier", carriers),
        ("detached", detached),
    ]
}

fn answering(shards: &[Option<Statistics>]) -> impl Iterator<Item = (usize, &Statistics)> {
    shards.iter().enumerate().filter_map(|(shard, statistics)| Some((shard, statistics.as_ref()?)))
}

fn of_shard(shard: usize) -> String {
    format!("shard=\"{shard}\"")
}

#[allow(clippy::cast_precision_loss, reason = "a rounding error of 2^-53 is nobody's concern")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;

    /// Two shards, one of which does not answer.
    fn sample() -> String {
        let core =
            CoreCounters { comments: 7, comments_late_ms: 1_500, sessions: 3, ..CoreCounters::default() };
        let attached =
            Attached { listeners: 4, fallen_through: 1, requests: 2, exchanges: 1, listens: 3, carriers: 5 };
        let population = Population {
            conns: 9,
            sessions: 3,
            streams: 10,
            attached,
            calls: 2,
            exchanges: 4,
            timers: 12,
            held_bytes: 70_000,
        };
        let shell = ShellCounters { turns: 1_000, ..ShellCounters::default() };
        let process = Process { resident_bytes: Some(4_096), cpu_s: 1.5 };
        let facts = Facts { is_ready: true, uptime_s: 61, process };
        page(&[Some(Statistics { core, shell, population }), None], &facts)
            .replace(env!("CARGO_PKG_VERSION"), "VERSION")
    }

    #[test]
    fn the_page_is_the_golden_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.txt");
        let actual = sample();
        if std::env::var_os("MOORLINE_UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &actual).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), actual, "{path}");
    }

    #[test]
    fn names_follow_the_conventions() {
        let page = sample();
        let mut families = std::collections::HashSet::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(families.insert(name.trim_end_matches("_total").to_owned()), "{name} is there twice");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(!name.contains("_ms"), "{name}: base units");
        }
        let help = page.lines().filter(|line| line.starts_with("# HELP ")).count();
        assert_eq!(help, families.len());
    }
}
