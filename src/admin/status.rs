//! `/status`: what the server holds, for people and scripts. Counts only: nothing in it names a client.

use super::{
    answer::{self, Body},
    desk::{Desk, Readiness},
    process::Process,
};
use crate::{core::shard::Attached, shell::counters::Statistics};
use hyper::{Response, StatusCode};
use serde::{Serialize, Serializer, ser::SerializeMap};

pub(super) async fn answer(desk: &Desk) -> Response<Body> {
    answer::json(StatusCode::OK, &Status::read(desk).await)
}

/// Everything at one moment.
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    state: &'static str,
    uptime_s: u64,
    memory_bytes: Option<u64>,
    cpu_s: f64,
    shards: Vec<ShardStatus>,
}

impl Status {
    pub(super) async fn read(desk: &Desk) -> Self {
        let shards = desk.statistics().await;
        let process = Process::read();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            state: match desk.readiness() {
                Readiness::Starting => "starting",
                Readiness::Ready => "ready",
                Readiness::Draining => "draining",
            },
            uptime_s: desk.started.elapsed().as_secs(),
            memory_bytes: process.resident_bytes,
            cpu_s: process.cpu_s,
            shards: (0..).zip(shards).map(|(shard, statistics)| ShardStatus::of(shard, statistics)).collect(),
        }
    }
}

/// One shard; only its number if it does not answer.
#[derive(Serialize)]
struct ShardStatus {
    shard: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<Holds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<Counted>,
}

#[derive(Serialize)]
struct Holds {
    connections: usize,
    sessions: usize,
    streams: Streams,
    calls: usize,
    timers: usize,
}

#[derive(Serialize)]
struct Streams {
    listeners: usize,
    fallen_through: usize,
    requests: usize,
    listens: usize,
    carriers: usize,
    detached: usize,
}

/// The counters by name.
struct Counted(Statistics);

impl ShardStatus {
    fn of(shard: usize, statistics: Option<Statistics>) -> Self {
        ShardStatus { shard, holds: statistics.as_ref().map(Holds::of), counted: statistics.map(Counted) }
    }
}

impl Holds {
    fn of(statistics: &Statistics) -> Self {
        let population = &statistics.population;
        let Attached { listeners, fallen_through, requests, exchanges, listens, carriers } =
            population.attached;
        Holds {
            connections: population.conns,
            sessions: population.sessions,
            streams: Streams {
                listeners,
                fallen_through,
                requests: requests + exchanges,
                listens,
                carriers,
                detached: population.streams - listeners - fallen_through - requests,
            },
            calls: population.calls_in_flight(),
            timers: population.timers,
        }
    }
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.core.iter() {
            map.serialize_entry(name, &value)?;
        }
        for (name, value) in self.0.shell.iter() {
            map.serialize_entry(&format_args!("loop_{name}"), &value)?;
        }
        map.end()
    }
}
