//! What can be changed while the server runs, and what waits for the next start.
//!
//! Owns the list. What is on it is read by the shards each time it matters; what is not has become something that stands:
//! a socket, a thread, a process, the room of a table, a timer of every stream.

use super::Config;

/// What came of settings that were read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What holds from now on, as `name old -> new`.
    pub made: Vec<String>,
    /// What would take a restart, as `name old -> new`.
    pub waiting: Vec<String>,
}

macro_rules! reloadable {
    ($($flag:literal $field:ident,)*) => {
        impl Config {
            /// The flags whose values can change while the server runs.
            pub const RELOADABLE: &[&str] = &[$($flag,)*];

            fn take_reloadable(&mut self, new: &Config) {
                $(self.$field = new.$field.clone();)*
            }
        }
    };
}

reloadable! {
    "allow-host" allow_hosts,
    "allow-origin" allow_origins,
    "max-connections" connections_max,
    "max-sessions" sessions_max,
    "max-connections-per-address" quotas,
    "max-connections-per-principal" quotas,
    "max-sessions-per-client" quotas,
    "max-streams-per-client" quotas,
    "max-body-memory-per-client" quotas,
    "max-session-rate" quotas,
    "max-bad-token-rate" quotas,
    "memory-limit" memory_bytes_max,
    "session-idle-timeout" session_idle_timeout_ms,
    "handshake-timeout" handshake_timeout_ms,
    "request-timeout" request_timeout_ms,
    "sse-after" sse_after_ms,
    "retry" retry_ms,
    "max-body" body_bytes_max,
    "header-timeout" header_timeout_ms,
    "body-timeout" body_timeout_ms,
    "idle-timeout" idle_timeout_ms,
    "write-timeout" write_timeout_ms,
    "access-log-sample" access_log_sample,
    "log-level" log_level,
}

impl Config {
    /// Takes over from `new` what can change while the server runs; the rest stays as it is.
    pub fn adopt(&mut self, new: &Config) -> Changes {
        let before = self.entries();
        self.take_reloadable(new);
        let mut changes = Changes::default();
        for ((name, old), (_, wanted)) in before.into_iter().zip(new.entries()) {
            let is_made = Config::RELOADABLE.contains(&name);
            let list = if is_made { &mut changes.made } else { &mut changes.waiting };
            if old != wanted {
                list.push(format!("{name} {old} -> {wanted}"));
            }
        }
        if self.child_env != new.child_env && !changes.waiting.iter().any(|it| it.starts_with("child-env ")) {
            changes.waiting.push("child-env (a value)".to_owned());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{
        config::{Machine, QuotaConfig, Verbosity},
        units::Fraction,
    };

    const MACHINE: Machine = Machine { cores: 4, open_files_max: 20_000 };

    #[test]
    fn what_can_change_does_and_the_rest_is_said() {
        let mut running = Config::for_machine(&MACHINE);
        let mut new = running.clone();
        new.allow_hosts = vec!["a".parse().unwrap(), "b:1".parse().unwrap()];
        new.log_level = Verbosity::Debug;
        new.keep_alive_ms = 7_000;
        new.path = "/x".parse().unwrap();
        let changes = running.adopt(&new);
        assert_eq!(changes.made, ["allow-host loopback -> a,b:1", "log-level info -> debug"]);
        assert_eq!(changes.waiting, ["path /mcp -> /x", "keep-alive 15s -> 7s"]);
        // What waits is said again each time, what was done is not.
        let changes = running.adopt(&new);
        assert_eq!((changes.made.len(), changes.waiting.len()), (0, 2));
    }

    #[test]
    fn the_list_names_settings_and_each_is_taken_over() {
        let names: Vec<_> =
            Config::for_machine(&MACHINE).entries().into_iter().map(|(name, _)| name).collect();
        assert!(Config::RELOADABLE.iter().all(|name| names.contains(name)));
        let mut running = Config::for_machine(&MACHINE);
        let new = Config {
            allow_hosts: vec!["a".parse().unwrap()],
            allow_origins: vec!["null".parse().unwrap()],
            connections_max: 7,
            sessions_max: 7,
            quotas: QuotaConfig {
                connections: Some(7),
                principal_connections: Some(7),
                sessions: Some(6),
                streams: Some(6),
                body_bytes: Some(7),
                session_rate: Some(7),
                bad_token_rate: Some(7),
            },
            memory_bytes_max: Some(7),
            session_idle_timeout_ms: 7,
            handshake_timeout_ms: 7,
            request_timeout_ms: 7,
            sse_after_ms: 7,
            retry_ms: 7,
            body_bytes_max: 7,
            header_timeout_ms: 7,
            body_timeout_ms: 7,
            idle_timeout_ms: 7,
            write_timeout_ms: 7,
            access_log_sample: Fraction(7),
            log_level: Verbosity::Off,
            ..running.clone()
        };
        let changes = running.adopt(&new);
        assert_eq!(changes.made.len(), Config::RELOADABLE.len(), "{:?}", changes.made);
        assert_eq!((running, changes.waiting.len()), (new, 0));
    }

    #[test]
    fn every_share_of_a_client_can_change() {
        let config = Config::for_machine(&MACHINE);
        for (name, _) in config.quotas.entries(&config) {
            assert!(Config::RELOADABLE.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_secret_that_changes_is_noticed_and_not_shown() {
        let variable = |text: &str| vec![text.parse().unwrap()];
        let mut running = Config { child_env: variable("A=one"), ..Config::for_machine(&MACHINE) };
        let new = Config { child_env: variable("A=two"), ..running.clone() };
        assert_eq!(running.adopt(&new).waiting, ["child-env (a value)"]);
    }
}
