//! What one client may have, as an operator says it.

use super::Config;
use crate::{
    core::quotas::{Loopback, Quota, Quotas},
    limits::{BAD_TOKEN_RATE_MAX, CLIENT_SHARE, CLIENT_SHARE_MIN, SESSION_RATE_MAX},
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
    /// Sessions that the same may begin per second.
    pub session_rate: Option<usize>,
    /// Bad tokens that one address may send per second.
    pub bad_token_rate: Option<usize>,
}

impl QuotaConfig {
    /// What the shards are told.
    pub(super) fn quotas(&self, config: &Config) -> Quotas {
        let quota = |given: Option<usize>, share: usize| Quota {
            max: u32::try_from(given.unwrap_or(share)).unwrap_or(u32::MAX),
            loopback: if given.is_some() { Loopback::Counted } else { Loopback::Exempt },
        };
        Quotas {
            connections: quota(self.connections, share_of(config.connections_max)),
            principal_connections: quota(self.principal_connections, share_of(config.connections_max)),
            sessions: quota(self.sessions, share_of(config.sessions_max)),
            streams: quota(self.streams, share_of(config.sessions_max)),
            session_rate: quota(self.session_rate, SESSION_RATE_MAX),
            bad_token_rate: quota(self.bad_token_rate, BAD_TOKEN_RATE_MAX),
        }
    }

    /// Every setting by the name of its flag.
    pub(super) fn entries(&self, config: &Config) -> Vec<(&'static str, String)> {
        let quotas = self.quotas(config);
        let number = |quota: Quota| quota.max.to_string();
        vec![
            ("max-connections-per-address", number(quotas.connections)),
            ("max-connections-per-principal", number(quotas.principal_connections)),
            ("max-sessions-per-client", number(quotas.sessions)),
            ("max-streams-per-client", number(quotas.streams)),
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
        assert_eq!(given.sessions, Quota { max: 5, loopback: Loopback::Counted });
        assert_eq!(given.streams, quotas.streams);
    }
}
