//! What the program needs to know before it starts.
//!
//! Owns every setting as a typed value, and the rules that hold between them. It knows nothing of flags being
//! typed or variables being set: the binary does that, an embedding program fills in a [`Config`] itself. A
//! [`Config`] that went through [`Config::validated`] can be served on this machine as far as anyone can tell
//! without trying.
//!
//! Errors name the flag that is to be changed, and what it may be.

pub use self::{
    auth::{AuthConfig, AuthError, AuthMode, AuthModeError, JwtAlgorithm},
    program::ProgramError,
    quotas::QuotaConfig,
    reload::Changes,
};
use crate::{
    backend::stdio::{Mode, Program, Shares, StdioConfig},
    core::{
        self,
        config::{CoreConfig, StatelessHome},
        http::{
            Binding, Policy,
            policy::{LegacySse, MESSAGES_PATH, PolicyError, SSE_PATH},
        },
    },
    limits,
    server::{ServerConfig, Signals},
    units::{ByteSize, Fraction, Millis},
};
use clap::ValueEnum;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    net::SocketAddr,
    num::NonZero,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use thiserror::Error;

mod auth;
mod program;
mod quotas;
mod reload;

/// Everything that can be set. Durations are milliseconds, sizes bytes, as the names say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    // --- Where ---
    /// Addresses to listen on, at least one; port 0 lets the kernel choose.
    pub listen: Vec<SocketAddr>,
    /// Where the admin listener is, a loopback address; `None`: nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The MCP endpoint.
    pub path: EndpointPath,
    /// Whether HTTP+SSE of 2024-11-05 is served; `None`: if all addresses are loopback.
    pub legacy_sse: Option<Switch>,
    /// `Host` values to accept; empty: the names of this machine's loopback.
    pub allow_hosts: Vec<AllowedHost>,
    /// `Origin` values to accept; empty: those of this machine's loopback.
    pub allow_origins: Vec<AllowedOrigin>,
    /// Who gets in.
    pub auth: AuthConfig,
    /// Bytes held for clients beyond which newcomers are refused; `None`: never.
    pub memory_bytes_max: Option<usize>,
    /// What one client may have.
    pub quotas: QuotaConfig,
    /// Threads, each with its own ring: 1 to [`limits::SHARDS_MAX`].
    pub shards: u16,
    /// Submission queue entries of each ring: a power of two.
    pub ring_entries: u32,
    /// Connections of the process.
    pub connections_max: usize,

    // --- Sessions and their streams ---
    /// Sessions of the process.
    pub sessions_max: usize,
    /// A session without activity ends after this long.
    pub session_idle_timeout_ms: u64,
    /// A session that does nothing after `initialize` ends after this long.
    pub handshake_timeout_ms: u64,
    /// Silence after which a stream gets a comment; 0: never.
    pub keep_alive_ms: u64,
    /// Which GET of a session receives its messages.
    pub listener_policy: ListenerPolicy,

    // --- Replies ---
    /// How a POST is answered.
    pub response_mode: ResponseMode,
    /// Silence of a call after which its reply becomes a stream.
    pub sse_after_ms: u64,
    /// Which streams start with a priming event.
    pub priming: Priming,
    /// The `retry` hint of primed streams.
    pub retry_ms: u64,
    /// A call that never answers fails after this long.
    pub request_timeout_ms: u64,

    // --- Replay ---
    /// Events kept per session.
    pub replay_events_max: usize,
    /// Bytes kept per session.
    pub replay_bytes_max: usize,
    /// How long an ended stream can be resumed.
    pub replay_ttl_ms: u64,
    /// Whether a plain GET gets replies that were lost with their POST.
    pub fresh_get_fallback: Switch,

    // --- Sizes and deadlines of connections ---
    /// A request's body.
    pub body_bytes_max: usize,
    /// A message of the backend.
    pub message_bytes_max: usize,
    /// Bytes that may wait behind the frame being written.
    pub write_buffer_bytes_max: usize,
    /// From the first byte of a request to the end of its head.
    pub header_timeout_ms: u64,
    /// From the end of the head to the end of the body.
    pub body_timeout_ms: u64,
    /// Between two requests.
    pub idle_timeout_ms: u64,
    /// Output that makes no progress.
    pub write_timeout_ms: u64,

    // --- A program behind the server ---
    /// The program and its arguments; empty: the built-in server.
    pub command: Vec<String>,
    /// Who shares its processes.
    pub stdio_mode: StdioMode,
    /// Processes that are shared: at least one for each shard.
    pub children: usize,
    /// Processes at one time.
    pub children_max: usize,
    /// Which variables of this process they get.
    pub child_inherit: Inherit,
    /// Variables they get besides.
    pub child_env: Vec<ChildVariable>,
    /// Their working directory; `None`: this process's own.
    pub child_dir: Option<PathBuf>,
    /// What a process gets to answer `initialize`.
    pub child_start_timeout_ms: u64,
    /// From the end of a process's input to KILL.
    pub child_grace_ms: u64,

    // --- Operation ---
    /// What running calls get to finish after a stop signal.
    pub drain_ms: u64,
    /// The part of requests that get a line in the log.
    pub access_log_sample: Fraction,
    /// The least severe events that are logged.
    pub log_level: Verbosity,
    /// How they are written.
    pub log_format: LogFormat,
}

impl Config {
    /// The defaults on a machine like this one.
    pub fn for_machine(machine: &Machine) -> Self {
        let listen = vec![default_listen()];
        let shards = machine.shards();
        Config {
            connections_max: machine.connections_default(shards, listen.len(), 0),
            listen,
            admin_listen: None,
            path: EndpointPath::default(),
            legacy_sse: None,
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            auth: AuthConfig::default(),
            memory_bytes_max: None,
            quotas: QuotaConfig::default(),
            shards,
            ring_entries: limits::RING_ENTRIES,
            sessions_max: limits::SESSIONS_MAX,
            session_idle_timeout_ms: limits::SESSION_IDLE_TIMEOUT_MS,
            handshake_timeout_ms: limits::HANDSHAKE_TIMEOUT_MS,
            keep_alive_ms: limits::KEEP_ALIVE_MS,
            listener_policy: ListenerPolicy::First,
            response_mode: ResponseMode::Auto,
            sse_after_ms: limits::SSE_AFTER_MS,
            priming: Priming::Auto,
            retry_ms: limits::RETRY_MS,
            request_timeout_ms: limits::REQUEST_TIMEOUT_MS,
            replay_events_max: limits::REPLAY_EVENTS_MAX,
            replay_bytes_max: limits::REPLAY_BYTES_MAX,
            replay_ttl_ms: limits::REPLAY_TTL_MS,
            fresh_get_fallback: Switch::On,
            body_bytes_max: limits::BODY_BYTES_MAX,
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            write_buffer_bytes_max: limits::WRITE_BUFFER_BYTES_MAX,
            header_timeout_ms: limits::HEADER_TIMEOUT_MS,
            body_timeout_ms: limits::BODY_TIMEOUT_MS,
            idle_timeout_ms: limits::IDLE_TIMEOUT_MS,
            write_timeout_ms: limits::WRITE_TIMEOUT_MS,
            command: Vec::new(),
            stdio_mode: StdioMode::Auto,
            children: usize::from(shards),
            children_max: machine.children_default(),
            child_inherit: Inherit::All,
            child_env: Vec::new(),
            child_dir: None,
            child_start_timeout_ms: limits::CHILD_START_TIMEOUT_MS,
            child_grace_ms: limits::CHILD_GRACE_MS,
            drain_ms: limits::DRAIN_MS,
            access_log_sample: Fraction(0),
            log_level: Verbosity::Info,
            log_format: LogFormat::Text,
        }
    }

    /// The same, if it makes sense and this machine can hold it.
    ///
    /// # Errors
    /// The first rule that is broken, in a sentence that names the flag.
    pub fn validated(self, machine: &Machine) -> Result<Self, ConfigError> {
        self.check_nothing_is_zero()?;
        self.check_sizes()?;
        self.check_threads()?;
        self.auth.check(&self.listen)?;
        self.check_paths()?;
        self.check_relations()?;
        self.check_children()?;
        self.check_machine(machine)?;
        Ok(self)
    }

    fn check_nothing_is_zero(&self) -> Result<(), ConfigError> {
        let durations = [
            ("session-idle-timeout", self.session_idle_timeout_ms),
            ("handshake-timeout", self.handshake_timeout_ms),
            ("request-timeout", self.request_timeout_ms),
            ("replay-ttl", self.replay_ttl_ms),
            ("header-timeout", self.header_timeout_ms),
            ("body-timeout", self.body_timeout_ms),
            ("idle-timeout", self.idle_timeout_ms),
            ("write-timeout", self.write_timeout_ms),
            ("child-start-timeout", self.child_start_timeout_ms),
        ];
        let counts = [
            ("max-connections", self.connections_max),
            ("max-sessions", self.sessions_max),
            ("replay-events", self.replay_events_max),
            ("replay-bytes", self.replay_bytes_max),
            ("max-body", self.body_bytes_max),
            ("max-message", self.message_bytes_max),
            ("write-buffer", self.write_buffer_bytes_max),
            ("children", self.children),
            ("max-children", self.children_max),
        ];
        let quotas = [
            ("max-connections-per-address", self.quotas.connections),
            ("max-connections-per-principal", self.quotas.principal_connections),
            ("max-sessions-per-client", self.quotas.sessions),
            ("max-streams-per-client", self.quotas.streams),
            ("max-body-memory-per-client", self.quotas.body_bytes),
            ("max-session-rate", self.quotas.session_rate),
            ("max-bad-token-rate", self.quotas.bad_token_rate),
            ("memory-limit", self.memory_bytes_max),
        ];
        if let Some((flag, _)) = quotas.into_iter().find(|(_, max)| *max == Some(0)) {
            return Err(ConfigError::Zero { flag });
        }
        let zero_duration = durations.into_iter().find(|(_, ms)| *ms == 0).map(|(flag, _)| flag);
        let zero_count = counts.into_iter().find(|(_, count)| *count == 0).map(|(flag, _)| flag);
        zero_duration.or(zero_count).map_or(Ok(()), |flag| Err(ConfigError::Zero { flag }))
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("max-message", self.message_bytes_max),
            ("replay-bytes", self.replay_bytes_max),
            ("max-body", self.body_bytes_max),
        ];
        let too_large = sizes.into_iter().find(|(_, bytes)| *bytes > limits::KEPT_BYTES_MAX);
        too_large.map_or(Ok(()), |(flag, bytes)| Err(ConfigError::TooLarge { flag, given: ByteSize(bytes) }))
    }

    fn check_threads(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        if let Some(given) = self.admin_listen.filter(|address| !address.ip().is_loopback()) {
            return Err(ConfigError::AdminListen { given });
        }
        if !(1..=limits::SHARDS_MAX).contains(&usize::from(self.shards)) {
            return Err(ConfigError::Shards { given: self.shards });
        }
        let range = RING_ENTRIES_MIN..=limits::RING_ENTRIES_MAX;
        if !self.ring_entries.is_power_of_two() || !range.contains(&self.ring_entries) {
            return Err(ConfigError::RingEntries { given: self.ring_entries });
        }
        Ok(())
    }

    fn check_paths(&self) -> Result<(), ConfigError> {
        let is_taken = [SSE_PATH, MESSAGES_PATH].contains(&self.path.as_str());
        if is_taken && self.legacy_sse == Some(Switch::On) {
            return Err(ConfigError::LegacyPath { path: self.path.clone() });
        }
        Ok(())
    }

    fn check_relations(&self) -> Result<(), ConfigError> {
        let (keep_alive, least) = (Millis(self.keep_alive_ms), Millis(limits::TICK_MS));
        if keep_alive != Millis(0) && keep_alive < least {
            return Err(ConfigError::KeepAlive { given: keep_alive });
        }
        if self.replay_ttl_ms <= self.write_timeout_ms {
            return Err(ConfigError::ReplayTtl {
                given: Millis(self.replay_ttl_ms),
                write_timeout: Millis(self.write_timeout_ms),
            });
        }
        if let Some(given) = self.quotas.body_bytes.filter(|given| *given < self.body_bytes_max) {
            return Err(ConfigError::BodyMemory {
                given: ByteSize(given),
                body: ByteSize(self.body_bytes_max),
            });
        }
        if self.sse_after_ms >= self.request_timeout_ms {
            return Err(ConfigError::SseAfter {
                given: Millis(self.sse_after_ms),
                request_timeout: Millis(self.request_timeout_ms),
            });
        }
        Ok(())
    }

    fn check_children(&self) -> Result<(), ConfigError> {
        if self.command.is_empty() || self.stdio_mode == StdioMode::PerSession {
            return Ok(());
        }
        if self.children < usize::from(self.shards) {
            return Err(ConfigError::Children { given: self.children, shards: self.shards });
        }
        if self.stdio_mode == StdioMode::Shared && self.children_max < self.children {
            return Err(ConfigError::ChildrenMax { given: self.children_max, children: self.children });
        }
        Ok(())
    }

    fn check_machine(&self, machine: &Machine) -> Result<(), ConfigError> {
        let children = self.children_allowed();
        let possible = machine.connections_max(self.shards, self.listen.len(), children);
        if self.connections_max <= possible {
            return Ok(());
        }
        let reserved = reserved(self.shards, self.listen.len(), children);
        Err(ConfigError::OpenFiles {
            wanted: self.connections_max,
            needed: self.connections_max.saturating_add(reserved),
            limit: machine.open_files_max,
        })
    }

    /// Processes there may be besides this one.
    fn children_allowed(&self) -> usize {
        if self.command.is_empty() { 0 } else { self.children_max }
    }

    /// The program to put behind the server; `None`: the built-in one. `variables` are those of this process.
    ///
    /// # Errors
    /// If there is no such program, or no such directory.
    pub fn stdio(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Option<StdioConfig>, ProgramError> {
        let Some((name, arguments)) = self.command.split_first() else { return Ok(None) };
        let environment = self.child_environment(variables);
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
        let program = Program {
            file: program::find(name, path, self.child_dir.as_deref())?,
            name: name.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment,
            directory: self.child_dir.clone(),
        };
        let shares = Shares { children: self.children, shards: self.shards };
        let mode = match self.stdio_mode {
            StdioMode::Auto => Mode::Auto(shares),
            StdioMode::PerSession => Mode::PerSession,
            StdioMode::Shared => Mode::Shared(shares),
        };
        Ok(Some(StdioConfig {
            program,
            mode,
            children_max: self.children_max,
            start_timeout: Duration::from_millis(self.child_start_timeout_ms),
            grace: Duration::from_millis(self.child_grace_ms),
            message_bytes_max: self.message_bytes_max,
            ask_timeout_ms: self.request_timeout_ms,
            idle_timeout: Duration::from_millis(self.session_idle_timeout_ms),
        }))
    }

    fn child_environment(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let own = self.child_env.iter().map(|variable| (variable.name().into(), variable.value().into()));
        let inherited = variables.into_iter().filter(|(name, _)| self.child_inherit.admits(name));
        // Each name once; the later one holds.
        inherited.chain(own).collect::<BTreeMap<OsString, OsString>>().into_iter().collect()
    }

    /// What the server is told.
    ///
    /// # Errors
    /// A path, host or origin that the policy does not accept.
    pub fn server(&self) -> Result<ServerConfig, PolicyError> {
        let binding = if self.is_on_loopback() { Binding::Loopback } else { Binding::Network };
        let hosts: Vec<_> = self.allow_hosts.iter().map(AllowedHost::as_str).collect();
        let origins: Vec<_> = self.allow_origins.iter().map(AllowedOrigin::as_str).collect();
        let policy = Policy::new(self.path.as_str(), binding, &hosts, &origins)?;
        let policy = policy.with_legacy_sse(self.legacy_sse().into());
        Ok(ServerConfig {
            listen: self.listen.clone(),
            admin_listen: self.admin_listen,
            ring_entries: self.ring_entries,
            drain: Duration::from_millis(self.drain_ms),
            children_max: self.children_allowed(),
            signals: Signals::Handled,
            ..ServerConfig::new(self.core(policy))
        })
    }

    /// Whether HTTP+SSE is served: where others than this machine can reach it, it has to be asked for.
    pub fn legacy_sse(&self) -> Switch {
        let default = if self.is_on_loopback() { Switch::On } else { Switch::Off };
        self.legacy_sse.unwrap_or(default)
    }

    fn is_on_loopback(&self) -> bool {
        self.listen.iter().all(|address| address.ip().is_loopback())
    }

    fn core(&self, policy: Policy) -> CoreConfig {
        CoreConfig {
            shards: self.shards,
            policy,
            auth: None,
            keep_alive_ms: self.keep_alive_ms,
            listener_policy: self.listener_policy.into(),
            response_mode: self.response_mode.into(),
            sse_after_ms: self.sse_after_ms,
            priming: self.priming.into(),
            retry_ms: self.retry_ms,
            session_idle_timeout_ms: self.session_idle_timeout_ms,
            handshake_timeout_ms: self.handshake_timeout_ms,
            request_timeout_ms: self.request_timeout_ms,
            header_timeout_ms: self.header_timeout_ms,
            body_timeout_ms: self.body_timeout_ms,
            idle_timeout_ms: self.idle_timeout_ms,
            write_timeout_ms: self.write_timeout_ms,
            body_bytes_max: self.body_bytes_max,
            message_bytes_max: self.message_bytes_max,
            write_buffer_bytes: self.write_buffer_bytes_max,
            replay_events_max: self.replay_events_max,
            replay_bytes_max: self.replay_bytes_max,
            replay_ttl_ms: self.replay_ttl_ms,
            fresh_get_fallback: self.fresh_get_fallback == Switch::On,
            access_log_ppm: self.access_log_sample.0,
            connections_max: self.connections_max,
            sessions_max: self.sessions_max,
            stateless_home: self.stateless_home(),
            exchanges_max: limits::EXCHANGES_PER_SHARD_MAX,
            memory_bytes_max: self.memory_bytes_max.unwrap_or(usize::MAX),
            quotas: self.quotas.quotas(self),
        }
    }

    /// What serves a principal, whether it serves others too or not, is one process on one shard, unless all were told to do.
    fn stateless_home(&self) -> StatelessHome {
        if !self.command.is_empty() && self.stdio_mode != StdioMode::Shared {
            StatelessHome::OfPrincipal
        } else {
            StatelessHome::Anywhere
        }
    }

    /// Whether other machines can connect, yet none of the names they know this one by is accepted.
    pub fn refuses_everyone_else(&self) -> bool {
        self.allow_hosts.is_empty() && self.listen.iter().any(|address| !address.ip().is_loopback())
    }

    /// Every setting by the name of its flag, as it would be typed; an empty list as what it stands for.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let ms = |ms| Millis(ms).to_string();
        let size = |bytes| ByteSize(bytes).to_string();
        let mut entries = vec![
            ("listen", list(&self.listen)),
            ("admin-listen", self.admin_listen.map_or_else(|| "off".to_owned(), |it| it.to_string())),
            ("path", self.path.to_string()),
            ("legacy-sse", name_of(self.legacy_sse())),
            ("allow-host", list(&self.allow_hosts)),
            ("allow-origin", list(&self.allow_origins)),
            ("shards", self.shards.to_string()),
            ("ring-entries", self.ring_entries.to_string()),
            ("max-connections", self.connections_max.to_string()),
        ];
        entries.extend(self.auth.entries());
        entries.extend(self.quotas.entries(self));
        entries.push(("memory-limit", self.memory_bytes_max.map_or_else(|| "none".to_owned(), size)));
        entries.extend([
            ("max-sessions", self.sessions_max.to_string()),
            ("session-idle-timeout", ms(self.session_idle_timeout_ms)),
            ("handshake-timeout", ms(self.handshake_timeout_ms)),
            ("keep-alive", ms(self.keep_alive_ms)),
            ("listener-policy", name_of(self.listener_policy)),
            ("response-mode", name_of(self.response_mode)),
            ("sse-after", ms(self.sse_after_ms)),
            ("priming", name_of(self.priming)),
            ("retry", ms(self.retry_ms)),
            ("request-timeout", ms(self.request_timeout_ms)),
            ("replay-events", self.replay_events_max.to_string()),
            ("replay-bytes", size(self.replay_bytes_max)),
            ("replay-ttl", ms(self.replay_ttl_ms)),
            ("fresh-get-fallback", name_of(self.fresh_get_fallback)),
            ("max-body", size(self.body_bytes_max)),
            ("max-message", size(self.message_bytes_max)),
            ("write-buffer", size(self.write_buffer_bytes_max)),
            ("header-timeout", ms(self.header_timeout_ms)),
            ("body-timeout", ms(self.body_timeout_ms)),
            ("idle-timeout", ms(self.idle_timeout_ms)),
            ("write-timeout", ms(self.write_timeout_ms)),
            ("command", if self.command.is_empty() { "built-in".to_owned() } else { self.command.join(" ") }),
            ("stdio-mode", name_of(self.stdio_mode)),
            ("children", self.children.to_string()),
            ("max-children", self.children_max.to_string()),
            ("child-inherit", name_of(self.child_inherit)),
            ("child-env", self.child_env.iter().map(ChildVariable::name).collect::<Vec<_>>().join(",")),
            ("child-dir", self.child_dir.as_ref().map_or(".".into(), |dir| dir.display().to_string())),
            ("child-start-timeout", ms(self.child_start_timeout_ms)),
            ("child-grace", ms(self.child_grace_ms)),
            ("drain", ms(self.drain_ms)),
            ("access-log-sample", self.access_log_sample.to_string()),
            ("log-level", name_of(self.log_level)),
            ("log-format", name_of(self.log_format)),
        ]);
        entries
    }
}

/// Loopback only: whoever wants more says so.
pub fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8080))
}

/// A turn's sends must fit into the submission queue.
#[allow(clippy::cast_possible_truncation, reason = "a constant of 64")]
const RING_ENTRIES_MIN: u32 = limits::SENDS_PER_TURN_MAX as u32;

/// Why a configuration cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Something is 0 that has to be more.
    #[error("--{flag} must be more than 0")]
    Zero {
        /// The flag's name without dashes.
        flag: &'static str,
    },
    /// The endpoint is where HTTP+SSE would be.
    #[error("--legacy-sse on needs /sse and /messages for itself; --path {path} is one of them")]
    LegacyPath {
        /// The endpoint.
        path: EndpointPath,
    },
    /// A session could not count it.
    #[error("--{flag} must be at most {}, not {given}", ByteSize(limits::KEPT_BYTES_MAX))]
    TooLarge {
        /// The flag's name without dashes.
        flag: &'static str,
        /// What was asked for.
        given: ByteSize,
    },
    /// There is nowhere to listen.
    #[error("--listen is needed at least once")]
    NoListener,
    /// Whoever reaches the admin listener can publish to every session.
    #[error(
        "--admin-listen must be a loopback address, not {given}: it has no authentication; put a proxy that has in \
         front of it"
    )]
    AdminListen {
        /// What was asked for.
        given: SocketAddr,
    },
    /// Everybody who can reach it could use it.
    #[error(
        "--listen {address} can be reached from other machines, and nobody has to say who they are: choose --auth \
         tokens=FILE or --auth jwt, or say that this is meant with --allow-anonymous"
    )]
    Anonymous {
        /// The address.
        address: SocketAddr,
    },
    /// Without it no JWT could be good.
    #[error("--auth jwt needs --{flag}")]
    JwtNeeds {
        /// The flag's name without dashes.
        flag: &'static str,
    },
    /// It was meant to keep somebody out, and would not.
    #[error("--{flag} is for --auth jwt")]
    OnlyOfJwt {
        /// The flag's name without dashes.
        flag: &'static str,
    },
    /// A session id cannot name that many shards.
    #[error("--shards must be from 1 to {}, not {given}", limits::SHARDS_MAX)]
    Shards {
        /// What was asked for.
        given: u16,
    },
    /// The kernel would round it, or a turn's sends would not fit.
    #[error(
        "--ring-entries must be a power of two from {RING_ENTRIES_MIN} to {}, not {given}",
        limits::RING_ENTRIES_MAX
    )]
    RingEntries {
        /// What was asked for.
        given: u32,
    },
    /// No timer is that fine.
    #[error("--keep-alive must be 0 (never) or at least {}, not {given}", Millis(limits::TICK_MS))]
    KeepAlive {
        /// What was asked for.
        given: Millis,
    },
    /// A log has to outlive the connection it was written to.
    #[error(
        "--replay-ttl ({given}) must be longer than --write-timeout ({write_timeout}): \
         a reply whose connection stalled could not be resumed"
    )]
    ReplayTtl {
        /// What was asked for.
        given: Millis,
        /// What it is compared with.
        write_timeout: Millis,
    },
    /// The largest body would be refused whoever sends it.
    #[error("--max-body-memory-per-client ({given}) must be at least --max-body ({body})")]
    BodyMemory {
        /// What was asked for.
        given: ByteSize,
        /// What it is compared with.
        body: ByteSize,
    },
    /// The call would have failed before its reply becomes a stream.
    #[error("--sse-after ({given}) must be shorter than --request-timeout ({request_timeout})")]
    SseAfter {
        /// What was asked for.
        given: Millis,
        /// What it is compared with.
        request_timeout: Millis,
    },
    /// A shard without a child would have nobody to ask.
    #[error(
        "--children must be at least one for each of the {shards} shards, not {given}: lower --shards, too"
    )]
    Children {
        /// What was asked for.
        given: usize,
        /// What it is compared with.
        shards: u16,
    },
    /// Not all shared children could be started.
    #[error("--max-children ({given}) must be at least --children ({children})")]
    ChildrenMax {
        /// What was asked for.
        given: usize,
        /// What it is compared with.
        children: usize,
    },
    /// The host allows too few open files.
    #[error(
        "--max-connections {wanted} needs {needed} open files, but the hard limit is {limit}: raise it (`ulimit -Hn \
         {needed}` as root, or LimitNOFILE={needed} in the service unit), or lower --max-connections or --shards"
    )]
    OpenFiles {
        /// Connections asked for.
        wanted: usize,
        /// Descriptors they need, with the program's own.
        needed: usize,
        /// Descriptors there may be.
        limit: usize,
    },
}

impl ConfigError {
    /// Whether the machine is at fault, rather than what was asked for.
    pub fn is_of_host(&self) -> bool {
        matches!(self, ConfigError::OpenFiles { .. })
    }
}

// --- The machine --------------------------------------------------------------------------------

/// What defaults are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// The hard limit of open files.
    pub open_files_max: usize,
}

impl Machine {
    /// This machine. One core where the system does not say how many there are.
    pub fn read() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        Machine {
            cores: std::thread::available_parallelism().map_or(1, NonZero::get),
            open_files_max: limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        }
    }

    /// One shard for each core, as far as session ids can name them and half of the open files are left for
    /// connections.
    pub fn shards(&self) -> u16 {
        let affordable = self.open_files_max / 2 / (limits::DESCRIPTORS_PER_SHARD + 1);
        let shards = self.cores.min(affordable).clamp(1, limits::SHARDS_MAX);
        u16::try_from(shards).expect("at most 256")
    }

    /// The connections that leave the program its own descriptors; at least 1, which [`Config::validated`]
    /// refuses if there is no room even for that.
    pub fn connections_default(&self, shards: u16, listeners: usize, children: usize) -> usize {
        self.connections_max(shards, listeners, children).clamp(1, CONNECTIONS_DEFAULT_MAX)
    }

    /// As many children as a quarter of the open files allows, up to [`limits::CHILDREN_MAX`].
    pub fn children_default(&self) -> usize {
        (self.open_files_max / 4 / limits::DESCRIPTORS_PER_CHILD).clamp(1, limits::CHILDREN_MAX)
    }

    fn connections_max(&self, shards: u16, listeners: usize, children: usize) -> usize {
        self.open_files_max.saturating_sub(reserved(shards, listeners, children))
    }
}

/// The default where nothing limits open files: a connection and a shadow for each of the default's sessions.
const CONNECTIONS_DEFAULT_MAX: usize = 2 * limits::SESSIONS_MAX;

fn reserved(shards: u16, listeners: usize, children: usize) -> usize {
    let per_shard = limits::DESCRIPTORS_PER_SHARD + listeners;
    let of_children = limits::DESCRIPTORS_PER_CHILD.saturating_mul(children);
    (limits::DESCRIPTORS_RESERVED + usize::from(shards) * per_shard).saturating_add(of_children)
}

// --- Choices ------------------------------------------------------------------------------------

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum $name { $($(#[$case_doc])* $case,)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&name_of(*self))
            }
        }
    )*};
}

choices! {
    /// Which GET of a session receives its messages (`--listener-policy`).
    ListenerPolicy {
        /// The first one, as long as it is alive
        First,
        /// The latest one, for proxies that keep dead listeners open
        Latest,
    }
    /// How a POST is answered (`--response-mode`).
    ResponseMode {
        /// As JSON if the response comes first and soon, else as a stream
        Auto,
        /// Always as a stream
        Sse,
        /// Always as JSON
        Json,
    }
    /// Which streams start with a priming event, in sessions of 2025-11-25 (`--priming`).
    Priming {
        /// All
        Auto,
        /// Those of POSTs
        Post,
        /// None
        Off,
    }
    /// Who shares the processes of a program behind the server (`--stdio-mode`).
    StdioMode {
        /// All clients, if the program speaks 2026-07-28 and nothing older; otherwise as per-session
        Auto,
        /// Each session has its own
        PerSession,
        /// All sessions share a few
        Shared,
    }
    /// Which variables of this process a program behind it gets (`--child-inherit`). Never those of this server.
    Inherit {
        /// All
        All,
        /// HOME, LANG, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ and USER
        Basic,
        /// None
        None,
    }
    /// On or off.
    Switch {
        /// Yes
        On,
        /// No
        Off,
    }
    /// The least severe events that are logged (`--log-level`).
    Verbosity {
        /// Nothing
        Off,
        /// What failed
        Error,
        /// And what looks wrong
        Warn,
        /// And what an operator wants to know
        Info,
        /// And what a developer wants to know
        Debug,
        /// And every step
        Trace,
    }
    /// How log entries are written (`--log-format`).
    LogFormat {
        /// For people
        Text,
        /// One JSON object per line
        Json,
    }
}

impl Inherit {
    fn admits(self, name: &OsStr) -> bool {
        const BASIC: [&str; 9] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];
        // What a supervisor says to this process is for no other.
        const OURS: [&[u8]; 4] = [b"MOORLINE_", b"LISTEN_", b"WATCHDOG_", b"NOTIFY_SOCKET"];
        let is_ours = OURS.iter().any(|ours| name.as_encoded_bytes().starts_with(ours));
        match self {
            Inherit::All => !is_ours,
            Inherit::Basic => BASIC.iter().any(|basic| name == *basic),
            Inherit::None => false,
        }
    }
}

macro_rules! core_choices {
    ($($name:ident { $($case:ident)* })*) => {$(
        impl From<$name> for core::config::$name {
            fn from(choice: $name) -> Self {
                match choice { $($name::$case => core::config::$name::$case,)* }
            }
        }
    )*};
}

core_choices! {
    ListenerPolicy { First Latest }
    ResponseMode { Auto Sse Json }
    Priming { Auto Post Off }
}

impl From<Switch> for LegacySse {
    fn from(switch: Switch) -> Self {
        match switch {
            Switch::On => LegacySse::On,
            Switch::Off => LegacySse::Off,
        }
    }
}

fn name_of(choice: impl ValueEnum) -> String {
    choice.to_possible_value().expect("no choice is hidden").get_name().to_owned()
}

fn list(items: &[impl fmt::Display]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { "loopback".to_owned() } else { items.join(",") }
}

// --- Texts with a form --------------------------------------------------------------------------

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident, $error:ident, $message:literal, $parse:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(Box<str>);

        impl $name {
            /// As it is compared.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        #[doc = concat!("Why a text is no [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
        #[error($message)]
        pub struct $error;

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                let parse: fn(&str) -> Option<String> = $parse;
                parse(text).map(|text| $name(text.into())).ok_or($error)
            }
        }
    )*};
}

texts! {
    /// A variable for a child: `NAME=VALUE`.
    ChildVariable, ChildVariableError,
    "expected NAME=VALUE", child_variable;
    /// The path of the endpoint: `/` and what is allowed in a path, nothing that a client might escape in
    /// another way, no query.
    EndpointPath, PathError,
    "expected a path such as /mcp, of letters, digits and - . _ ~ ! $ & ' ( ) * + , ; = : @ /", endpoint_path;
    /// A `Host` to accept, in lower case: `name`, `name:port`, or `*` for all. Without a port: any port.
    AllowedHost, HostError,
    "expected NAME, NAME:PORT or * (all), such as mcp.example.org or [::1]:8080, without a scheme", allowed_host;
    /// An `Origin` to accept, in lower case: `scheme://host`, `scheme://host:port`, `null`, or `*` for all.
    AllowedOrigin, OriginError,
    "expected SCHEME://HOST, SCHEME://HOST:PORT, null or * (all), without a path", allowed_origin;
}

impl ChildVariable {
    /// Its name.
    pub fn name(&self) -> &str {
        self.0.split_once('=').map_or(&*self.0, |(name, _)| name)
    }

    /// Its value.
    pub fn value(&self) -> &str {
        self.0.split_once('=').map_or("", |(_, value)| value)
    }
}

fn child_variable(text: &str) -> Option<String> {
    let (name, _) = text.split_once('=')?;
    (!name.is_empty() && !text.contains('\0')).then(|| text.to_owned())
}

impl Default for EndpointPath {
    fn default() -> Self {
        EndpointPath("/mcp".into())
    }
}

fn endpoint_path(text: &str) -> Option<String> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&c);
    (text.starts_with('/') && text.bytes().all(allowed)).then(|| text.to_owned())
}

fn allowed_host(text: &str) -> Option<String> {
    (text == "*" || is_authority(text)).then(|| text.to_ascii_lowercase())
}

fn allowed_origin(text: &str) -> Option<String> {
    let is_tuple = || {
        let (scheme, authority) = text.split_once("://")?;
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c));
        (is_scheme && is_authority(authority)).then_some(())
    };
    (text == "*" || text == "null" || is_tuple().is_some()).then(|| text.to_ascii_lowercase())
}

/// `name`, `name:port`, `[v6]`, `[v6]:port`.
fn is_authority(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let is_name = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)),
    };
    is_name && port.is_none_or(|port| port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const MACHINE: Machine = Machine { cores: 4, open_files_max: 20_000 };

    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::for_machine(&MACHINE);
        change(&mut config);
        config.validated(&MACHINE).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_valid_on_any_machine_that_can_hold_one_connection() {
        for cores in [1, 2, 64, 1000] {
            for (open_files_max, shards_max) in [(1024, 20), (4096, 81), (1 << 20, 256), (usize::MAX, 256)] {
                let machine = Machine { cores, open_files_max };
                let config = Config::for_machine(&machine).validated(&machine).unwrap();
                assert!(config.connections_max >= open_files_max.min(4_000_000) * 2 / 5);
                assert_eq!(usize::from(config.shards), cores.min(shards_max));
            }
        }
    }

    #[test]
    fn connections_leave_the_program_its_own_descriptors() {
        assert_eq!(Config::for_machine(&MACHINE).connections_max, 20_000 - 64 - 4 * 25);
        let unlimited = Machine { open_files_max: usize::MAX, ..MACHINE };
        assert_eq!(Config::for_machine(&unlimited).connections_max, 2_000_000);
    }

    #[test]
    fn a_machine_that_cannot_hold_it_is_at_fault() {
        let error = |connections_max, machine: &Machine| {
            Config { connections_max, ..Config::for_machine(machine) }.validated(machine).unwrap_err()
        };
        let few = Machine { open_files_max: 20, ..MACHINE };
        assert!(error(1, &few).is_of_host());
        let error = error(20_000, &MACHINE);
        assert!(error.is_of_host());
        assert_eq!(
            error.to_string(),
            "--max-connections 20000 needs 20164 open files, but the hard limit is 20000: raise it (`ulimit -Hn \
             20164` as root, or LimitNOFILE=20164 in the service unit), or lower --max-connections or --shards"
        );
    }

    #[test]
    fn http_sse_is_on_where_only_this_machine_can_reach_it() {
        let on = |listen: &[&str], legacy_sse| {
            let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
            Config { listen, legacy_sse, ..Config::for_machine(&MACHINE) }.legacy_sse()
        };
        assert_eq!(on(&["127.0.0.1:1", "[::1]:1"], None), Switch::On);
        assert_eq!(on(&["127.0.0.1:1", "0.0.0.0:1"], None), Switch::Off);
        assert_eq!(on(&["0.0.0.0:1"], Some(Switch::On)), Switch::On);
        assert_eq!(on(&["127.0.0.1:1"], Some(Switch::Off)), Switch::Off);
        let mut config = Config { path: "/sse".parse().unwrap(), ..Config::for_machine(&MACHINE) };
        assert!(config.clone().validated(&MACHINE).is_ok(), "the endpoint comes before a default");
        config.legacy_sse = Some(Switch::On);
        assert_eq!(
            config.validated(&MACHINE).unwrap_err().to_string(),
            "--legacy-sse on needs /sse and /messages for itself; --path /sse is one of them"
        );
    }

    #[test]
    fn rules_are_named_when_broken() {
        assert_eq!(refusal(|config| config.write_timeout_ms = 0), "--write-timeout must be more than 0");
        assert_eq!(refusal(|config| config.sessions_max = 0), "--max-sessions must be more than 0");
        assert_eq!(
            refusal(|config| config.message_bytes_max = 5 << 30),
            "--max-message must be at most 1GiB, not 5GiB"
        );
        assert_eq!(
            refusal(|config| config.replay_bytes_max = (1 << 30) + 1),
            "--replay-bytes must be at most 1GiB, not 1073741825"
        );
        assert_eq!(refusal(|config| config.listen.clear()), "--listen is needed at least once");
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 9090));
        assert!(
            refusal(|config| config.admin_listen = Some(everywhere))
                .starts_with("--admin-listen must be a loopback address, not 0.0.0.0:9090")
        );
        assert_eq!(refusal(|config| config.shards = 0), "--shards must be from 1 to 256, not 0");
        assert_eq!(refusal(|config| config.shards = 257), "--shards must be from 1 to 256, not 257");
        for given in [0, 16, 200, 65_536] {
            let expected = format!("--ring-entries must be a power of two from 64 to 32768, not {given}");
            assert_eq!(refusal(|config| config.ring_entries = given), expected);
        }
        assert_eq!(
            refusal(|config| config.keep_alive_ms = 15),
            "--keep-alive must be 0 (never) or at least 16ms, not 15ms"
        );
        assert!(
            refusal(|config| config.replay_ttl_ms = 30_000)
                .starts_with("--replay-ttl (30s) must be longer than --write-timeout (30s)")
        );
        assert_eq!(
            refusal(|config| config.sse_after_ms = 3_600_000),
            "--sse-after (1h) must be shorter than --request-timeout (1h)"
        );
    }

    #[test]
    fn zero_means_never_or_at_once_where_it_may() {
        let mut config = Config::for_machine(&MACHINE);
        config.keep_alive_ms = 0;
        config.sse_after_ms = 0;
        config.retry_ms = 0;
        config.drain_ms = 0;
        config.validated(&MACHINE).unwrap();
    }

    #[test]
    fn an_open_address_without_a_name_is_noticed() {
        let mut config = Config::for_machine(&MACHINE);
        assert!(!config.refuses_everyone_else());
        config.listen.push(SocketAddr::from(([0, 0, 0, 0], 80)));
        assert!(config.refuses_everyone_else());
        config.allow_hosts.push("mcp.example.org".parse().unwrap());
        assert!(!config.refuses_everyone_else());
    }

    #[test]
    fn paths_are_plain() {
        for text in ["/mcp", "/", "/a/b-c_d.e~", "/v1:call"] {
            assert_eq!(text.parse::<EndpointPath>().unwrap().as_str(), text);
        }
        for text in ["", "mcp", "/m cp", "/m?x", "/m#x", "/m%20", "/é"] {
            assert!(text.parse::<EndpointPath>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_names_with_or_without_a_port() {
        for text in ["*", "a", "mcp.example.org", "a:80", "127.0.0.1:8080", "[::1]", "[::1]:443", "my_box"] {
            assert_eq!(text.parse::<AllowedHost>().unwrap().as_str(), text);
        }
        assert_eq!("MCP.Example.org".parse::<AllowedHost>().unwrap().as_str(), "mcp.example.org");
        for text in
            ["", "http://a", "a/b", "a:", "a:x", "a:+1", "a:65536", "::1", "[::1", "[x]", "a b", ":80", "*.a"]
        {
            assert!(text.parse::<AllowedHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn origins_have_a_scheme_and_no_path() {
        for text in [
            "*",
            "null",
            "https://a.example",
            "http://localhost:3000",
            "vscode-webview://x",
            "http://[::1]:1",
        ] {
            assert_eq!(text.parse::<AllowedOrigin>().unwrap().as_str(), text);
        }
        for text in
            ["", "a.example", "https://", "https://a/", "https://a/b", "://a", "1x://a", "https://a:b"]
        {
            assert!(text.parse::<AllowedOrigin>().is_err(), "{text}");
        }
    }
}
