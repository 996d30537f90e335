//! What one client may have, as an operator says it.

use super::Config;
use crate::{
    core::quotas::{Loopback, Quota, Quotas, kib_of},
    limits::{BAD_TOKEN_RATE_MAX, CLIENT_SHARE, CLIENT_SHARE_MIN, SESSION_RATE_MAX},
    units::ByteSize,
};

/// Bounds for one client; `None`: its share of what there is for all, from which this machine's own addresses are exempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaConfig {
    /// Connections of one address.
    pub connections: Option<usize>,
    /// Connections of one principal.
    pub principal_connections: Option<usize>,
    /// Sessions of one principal, or of one address where nobody proves who they are.
    pub sessions: Option<usize>,
    /// GET streams of the same.
    pub streams: Option<usize>,
    /// Bytes of large bodies of the same, on their way and in calls.
    pub body_bytes: Option<usize>,
    /// Sessions that the same may begin per second.
    pub session_rate: Option<usize>,
    /// Bad tokens that one address may send per second.
    pub bad_token_rate: Option<usize>,
}

impl QuotaConfig {
    /// What the shards are told.
    pub(super) fn quotas(&self, config: &Config) -> Quotas {
        let loopback = |given: Option<usize>| match given {
            Some(_) => Loopback::Bounded,
            None => Loopback::Exempt,
        };
        let quota = |given: Option<usize>, share: usize| Quota {
            max: u32::try_from(given.unwrap_or(share)).unwrap_or(u32::MAX),
            loopback: loopback(given),
        };
        Quotas {
            connections: quota(self.connections, share_of(config.connections_max)),
            principal_connections: quota(self.principal_connections, share_of(config.connections_max)),
            sessions: quota(self.sessions, share_of(config.sessions_max)),
            streams: quota(self.streams, share_of(config.sessions_max)),
            body_kib: Quota {
                max: self.body_bytes_max(config).map_or(u32::MAX, kib_of),
                loopback: loopback(self.body_bytes),
            },
            session_rate: quota(self.session_rate, SESSION_RATE_MAX),
            bad_token_rate: quota(self.bad_token_rate, BAD_TOKEN_RATE_MAX),
        }
    }

    /// What was given, or a share of the memory limit, if there is one, with room for the largest body.
    fn body_bytes_max(&self, config: &Config) -> Option<usize> {
        let share = |limit: usize| (limit / CLIENT_SHARE).max(config.body_bytes_max);
        self.body_bytes.or_else(|| config.memory_bytes_max.map(share))
    }

    /// Every setting by the name of its flag.
    pub(super) fn entries(&self, config: &Config) -> Vec<(&'static str, String)> {
        let quotas = self.quotas(config);
        let number = |quota: Quota| quota.max.to_string();
        let size = |bytes| ByteSize(bytes).to_string();
        vec![
            ("max-connections-per-address", number(quotas.connections)),
            ("max-connections-per-principal", number(quotas.principal_connections)),
            ("max-sessions-per-client", number(quotas.sessions)),
            ("max-streams-per-client", number(quotas.streams)),
            (
                "max-body-memory-per-client",
                self.body_bytes_max(config).map_or_else(|| "none".to_owned(), size),
            ),
            ("max-session-rate", number(quotas.session_rate)),
            ("max-bad-token-rate", number(quotas.bad_token_rate)),
        ]
    }
}

fn share_of(max: usize) -> usize {
    (max / CLIENT_SHARE).max(CLIENT_SHARE_MIN).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;

    #[test]
    fn a_share_is_a_sixteenth_and_some_more_where_there_is_little() {
        assert_eq!([100, 1_000, 100_000].map(share_of), [100, 256, 6_250]);
        let machine = Machine { cores: 4, open_files_max: 20_000 };
        let config = Config::for_machine(&machine);
        let quotas = QuotaConfig::default().quotas(&config);
        assert_eq!(quotas.sessions, Quota { max: 62_500, loopback: Loopback::Exempt });
        let given = QuotaConfig { sessions: Some(5), ..QuotaConfig::default() }.quotas(&config);
        assert_eq!(given.sessions, Quota { max: 5, loopback: Loopback::Bounded });
        assert_eq!(given.streams, quotas.streams);
    }

    #[test]
    fn bodies_have_a_share_of_the_memory_limit_and_room_for_one() {
        let machine = Machine { cores: 4, open_files_max: 20_000 };
        let share = |limit: Option<usize>, given| {
            let config = Config { memory_bytes_max: limit, ..Config::for_machine(&machine) };
            QuotaConfig { body_bytes: given, ..QuotaConfig::default() }.quotas(&config).body_kib
        };
        let body_kib = kib_of(Config::for_machine(&machine).body_bytes_max);
        assert_eq!(share(None, None).max, u32::MAX);
        assert_eq!(share(Some(1 << 30), None), Quota { max: 1 << 16, loopback: Loopback::Exempt });
        assert_eq!(share(Some(1 << 20), None).max, body_kib);
        assert_eq!(share(None, Some(5_000_000)), Quota { max: 4_883, loopback: Loopback::Bounded });
    }
}
