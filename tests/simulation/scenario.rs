//! What differs from seed to seed beside the order of steps: settings, caps, habits.

use super::rng::Rng;
use moorline::core::{
    config::{CoreConfig, ListenerPolicy, Priming, ResponseMode},
    http::{Binding, Policy},
};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub config: CoreConfig,
    pub agents: usize,
    pub steps: usize,
    /// Logs or queues may overflow: what a client misses has to be counted instead.
    pub evicts: bool,
    /// Ends by a drain instead of by everyone's leaving.
    pub drains: bool,
    /// The backend says much at once.
    pub floods: bool,
}

/// Settings with room for everything, for that many shards.
pub fn roomy(shards: u16) -> CoreConfig {
    let none: [&str; 0] = [];
    let policy = Policy::new("/mcp", Binding::Loopback, &none, &none).expect("a good policy");
    CoreConfig { connections_max: 200, sessions_max: 100, ..CoreConfig::new(shards, policy) }
}

impl Scenario {
    pub fn draw(rng: &mut Rng) -> Self {
        let evicts = rng.percent(20);
        let mut config = roomy(rng.pick(&[1, 1, 2, 3]));
        config.keep_alive_ms = rng.pick(&[0, 2_000, 5_000, 15_000]);
        config.listener_policy =
            rng.pick(&[ListenerPolicy::First, ListenerPolicy::First, ListenerPolicy::Latest]);
        config.response_mode =
            rng.pick(&[ResponseMode::Auto, ResponseMode::Auto, ResponseMode::Sse, ResponseMode::Json]);
        config.priming = rng.pick(&[Priming::Auto, Priming::Auto, Priming::Post, Priming::Off]);
        config.fresh_get_fallback = rng.percent(75);
        config.sse_after_ms = rng.pick(&[0, 200, 1_000]);
        config.session_idle_timeout_ms = rng.pick(&[40_000, 300_000, 1_800_000]);
        config.handshake_timeout_ms = rng.pick(&[5_000, 60_000]);
        config.request_timeout_ms = rng.pick(&[20_000, 3_600_000]);
        config.replay_ttl_ms = if evicts { 40_000 } else { 10_000_000 };
        if evicts {
            config.replay_events_max = rng.pick(&[3, 8, 1_000]);
            config.replay_bytes_max = rng.pick(&[600, 4_000, 1 << 20]);
        }
        config.write_buffer_bytes = rng.pick(&[500, 5_000, 256 * 1024]);
        if rng.percent(15) {
            config.connections_max = 6;
        }
        if rng.percent(15) {
            config.sessions_max = 2;
        }
        Scenario {
            config,
            agents: rng.between(1, 4),
            steps: rng.pick(&[300, 500, 800]),
            evicts,
            drains: rng.percent(30),
            floods: evicts && rng.percent(50),
        }
    }
}
