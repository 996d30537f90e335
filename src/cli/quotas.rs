//! Flags of what one client may have.

use super::count;
use clap::Args;
use moorline::{config::QuotaConfig, units::ByteSize};

const FAIRNESS: &str = "What one client may have";

#[derive(Args, Debug)]
pub(super) struct QuotaFlags {
    /// Connections of one address; set by hand it bounds this machine's own, too [default: a sixteenth of
    /// --max-connections]
    #[arg(long, env = "MOORLINE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_connections_per_address: Option<usize>,
    /// Connections of one principal, wherever they come from [default: a sixteenth of --max-connections]
    #[arg(long, env = "MOORLINE_MAX_CONNECTIONS_PER_PRINCIPAL", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_connections_per_principal: Option<usize>,
    /// Sessions of one principal, or of one address where --auth is none [default: a sixteenth of --max-sessions]
    #[arg(long, env = "MOORLINE_MAX_SESSIONS_PER_CLIENT", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_sessions_per_client: Option<usize>,
    /// Streams that listen, of either era, of one principal, or of one address where --auth is none [default: a
    /// sixteenth of --max-sessions]
    #[arg(long, env = "MOORLINE_MAX_STREAMS_PER_CLIENT", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_streams_per_client: Option<usize>,
    /// Bytes that bodies over 4 KiB of the same may hold together, on their way and in calls, and such replies
    /// until they are written; as much again of those that were not taken, and of what is kept for replay; at least
    /// --max-body [default: a sixteenth of --memory-limit]
    #[arg(long, env = "MOORLINE_MAX_BODY_MEMORY_PER_CLIENT", value_name = "SIZE", help_heading = FAIRNESS)]
    max_body_memory_per_client: Option<ByteSize>,
    /// Sessions that the same may begin per second, ten seconds' worth at once [default: 100]
    #[arg(long, env = "MOORLINE_MAX_SESSION_RATE", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_session_rate: Option<usize>,
    /// Bad tokens of one address per second, ten seconds' worth at once; beyond it they get 429, and of JWTs most
    /// unknown ones without a look [default: 10]
    #[arg(long, env = "MOORLINE_MAX_BAD_TOKEN_RATE", value_name = "COUNT", help_heading = FAIRNESS)]
    #[arg(value_parser = count::<usize>)]
    max_bad_token_rate: Option<usize>,
}

impl QuotaFlags {
    pub(super) fn config(&self) -> QuotaConfig {
        QuotaConfig {
            connections: self.max_connections_per_address,
            principal_connections: self.max_connections_per_principal,
            sessions: self.max_sessions_per_client,
            streams: self.max_streams_per_client,
            body_bytes: self.max_body_memory_per_client.map(|size| size.0),
            session_rate: self.max_session_rate,
            bad_token_rate: self.max_bad_token_rate,
        }
    }
}
