//! What the user typed: flags, their help, their environment variables, and where each value came from.
//!
//! Owns the words of the command line. It decides nothing that the program needs to know: it turns what was
//! typed into a [`Config`], which has the rules. Defaults come from [`limits`], so that the help cannot differ
//! from the truth.
//!
//! A value comes from its flag, or else its environment variable, the configuration file, or the default. What the file
//! says takes the place of defaults, and the same words are parsed again.

use self::auth::{Auth, NewToken};
use self::file::{File, FileError};
use self::generate::Generated;
use self::quotas::QuotaFlags;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use moorline::config::*;
use moorline::limits;
use moorline::units::{ByteSize, Fraction, Millis};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;

mod auth;
mod file;
mod generate;
mod quotas;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// Serve, or look at what would be served.
    Serve(Box<Typed>),
    /// Say what this host can hold.
    Examine(Doctor),
    /// Print what is made from the command line's description.
    Generate(Generated),
    /// Make a token.
    MakeToken(NewToken),
}

/// Reads the arguments of this process. Prints help, version or a usage error and exits where that is
/// what was asked for or deserved (codes 0 and 2).
pub(crate) fn read() -> Task {
    match Cli::parse().command {
        Some(Commands::Doctor(doctor)) => Task::Examine(doctor),
        Some(Commands::Generate { what }) => Task::Generate(what),
        Some(Commands::Token(token)) => Task::MakeToken(token),
        Some(Commands::Serve(_)) | None => {
            let typed = Typed::from_words(&std::env::args_os().collect::<Vec<_>>());
            Task::Serve(Box::new(typed.unwrap_or_else(|error| error.exit())))
        }
    }
}

/// Settings that were understood.
#[derive(Debug)]
pub(crate) struct Typed {
    flags: Serve,
    matches: ArgMatches,
    file: Option<File>,
}

/// What to do with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Serve it.
    Serve,
    /// Print it.
    Print,
    /// See whether it could be served.
    Check,
}

/// Why nothing can be made of what was typed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TypedError {
    /// The words themselves.
    #[error(transparent)]
    Words(#[from] clap::Error),
    /// The file they name.
    #[error(transparent)]
    File(#[from] FileError),
}

impl TypedError {
    /// Says why and ends the process (code 2).
    fn exit(self) -> ! {
        match self {
            TypedError::Words(error) => error.exit(),
            TypedError::File(error) => refuse(error),
        }
    }
}

impl Typed {
    /// Reads the words of a command line that serves, the environment, and the configuration file they name.
    pub(crate) fn from_words(words: &[OsString]) -> Result<Self, TypedError> {
        let plain = of_serve(Cli::command().try_get_matches_from(words)?);
        let flags = Serve::from_arg_matches(&plain)?;
        let Some(path) = &flags.config else { return Ok(Typed { flags, matches: plain, file: None }) };
        let file = File::read(path, &Cli::command())?;
        let command =
            file.as_defaults(Cli::command()).mut_subcommand("serve", |serve| file.as_defaults(serve));
        let matches = of_serve(command.try_get_matches_from(words)?);
        Ok(Typed { flags: Serve::from_arg_matches(&matches)?, matches, file: Some(file) })
    }

    /// What to do with it.
    pub(crate) fn purpose(&self) -> Purpose {
        match &self.flags {
            Serve { print_config: true, .. } => Purpose::Print,
            Serve { check: true, .. } => Purpose::Check,
            _ => Purpose::Serve,
        }
    }

    /// The configuration that was asked for, not yet validated.
    pub(crate) fn config(&self, machine: &Machine) -> Config {
        self.flags.config(machine)
    }

    /// One line for each setting: name, value, and where the value comes from.
    pub(crate) fn describe(&self, config: &Config) -> String {
        let entries = config.entries();
        let name_width = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let value_width = entries.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
        let mut lines = String::new();
        for (name, value) in &entries {
            let source = self.source(name);
            writeln!(lines, "{name:name_width$}  {value:value_width$}  {source}")
                .expect("a String takes all");
        }
        lines
    }

    fn source(&self, flag: &str) -> String {
        match self.matches.value_source(&flag.replace('-', "_")) {
            Some(ValueSource::CommandLine) if flag == COMMAND => "typed after --".to_owned(),
            Some(ValueSource::CommandLine) => format!("flag --{flag}"),
            Some(ValueSource::EnvVariable) => format!("environment {}", variable(flag)),
            _ => {
                let place = self.file.as_ref().and_then(|file| file.place_of(flag));
                place.map_or_else(|| "default".to_owned(), |place| format!("file {place}"))
            }
        }
    }

    /// Ends the process for a value that breaks a rule, and says where each value that is named comes from, unless it
    /// was typed (code 2).
    pub(crate) fn refuse(&self, reason: impl std::fmt::Display) -> ! {
        refuse(self.with_sources(reason))
    }

    /// A reason with the source of each value it names, unless that was typed.
    pub(crate) fn with_sources(&self, reason: impl std::fmt::Display) -> String {
        let mut text = reason.to_string();
        let command = Cli::command();
        let names = |flag: &str| {
            let rest = text.split(&format!("--{flag}")).skip(1).any(|rest| !rest.starts_with('-'));
            rest.then(|| self.source(flag))
                .filter(|source| !source.starts_with("flag") && source != "default")
        };
        let from: Vec<_> = settings(&command)
            .filter_map(|arg| {
                let flag = file::key_of(arg);
                names(&flag).map(|source| format!("--{flag} is from {source}"))
            })
            .collect();
        if !from.is_empty() {
            write!(text, " ({})", from.join(", ")).expect("a String takes all");
        }
        text
    }
}

/// The arguments of the command that serves, which need not be named.
fn of_serve(mut matches: ArgMatches) -> ArgMatches {
    matches.remove_subcommand().map_or(matches, |(_, of_command)| of_command)
}

/// What follows `--`, as a setting.
const COMMAND: &str = "command";

/// The arguments that set something: the list of flags, of variables and of keys in a configuration file.
fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let id = arg.get_id().as_str();
        id == COMMAND || (arg.get_env().is_some() && id != "config")
    })
}

/// Ends the process with a usage error that reads like clap's own (code 2).
pub(crate) fn refuse(reason: impl std::fmt::Display) -> ! {
    Cli::command().error(clap::error::ErrorKind::ValueValidation, reason).exit()
}

/// The environment variable that mirrors a flag.
fn variable(flag: &str) -> String {
    format!("MOORLINE_{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Holds Model Context Protocol sessions and their event streams open, in very large numbers
#[derive(Debug, Parser)]
#[command(
    name = "moorline",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = AFTER_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Commands>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Serve MCP over HTTP; this is also what happens without a command
    #[command(after_help = AFTER_HELP)]
    Serve(Box<Serve>),
    /// Say what this host can hold, what binds first, and how to lift it
    #[command(after_help = "Exit codes: 0 the server can run here, 2 usage error, 3 it cannot.")]
    Doctor(Doctor),
    /// Make a bearer token, and print it with its line for the file of --auth tokens=FILE
    Token(NewToken),
    /// Print shell completions or the manual page
    Generate {
        #[command(subcommand)]
        what: Generated,
    },
}

const AFTER_HELP: &str = "\
Durations are whole numbers with a unit: 500ms, 15s, 2m, 1h, or a plain 0.
Sizes are bytes, or whole numbers with a unit: 64KiB, 4MiB, 1GiB.
A flag goes before its environment variable, which goes before the configuration file, which goes
before the default. In the file, keys are named like flags: keep-alive = \"15s\".
Exit codes: 0 stopped, 2 usage error, 3 this host cannot serve what was asked for.";

const WHERE: &str = "Where to serve";
const SESSIONS: &str = "Sessions and streams";
const REPLIES: &str = "Replies";
const REPLAY: &str = "Replay";
const CONNECTIONS: &str = "Sizes and deadlines";
const PROGRAM: &str = "A program behind the server";
const OPERATION: &str = "Operation";

/// What the doctor is asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// Streams to be held at one time, for which to say what is missing
    #[arg(long, value_name = "COUNT", default_value_t = limits::SESSIONS_MAX as u64, value_parser = count::<u64>)]
    pub(crate) streams: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
struct Serve {
    /// Address to listen on; may be repeated; port 0 lets the kernel choose
    #[arg(long, env = "MOORLINE_LISTEN", value_name = "ADDRESS:PORT", help_heading = WHERE)]
    #[arg(value_delimiter = ',', default_values_t = [default_listen()], value_parser = listen_address)]
    listen: Vec<SocketAddr>,
    /// Loopback address for /publish, /metrics, health and the live page [default: off]
    #[arg(long, env = "MOORLINE_ADMIN_LISTEN", value_name = "ADDRESS:PORT", help_heading = WHERE)]
    #[arg(value_parser = listen_address)]
    admin_listen: Option<SocketAddr>,
    /// Path of the MCP endpoint
    #[arg(long, env = "MOORLINE_PATH", value_name = "PATH", help_heading = WHERE)]
    #[arg(default_value_t)]
    path: EndpointPath,
    /// Serve HTTP+SSE of 2024-11-05 on /sse and /messages [default: on if every --listen is loopback]
    #[arg(long, env = "MOORLINE_LEGACY_SSE", value_name = "SWITCH", help_heading = WHERE)]
    legacy_sse: Option<Switch>,
    /// Host header to accept, or * for all; may be repeated [default: this machine's loopback names]
    #[arg(long, env = "MOORLINE_ALLOW_HOST", value_name = "HOST[:PORT]", help_heading = WHERE)]
    #[arg(value_delimiter = ',')]
    allow_host: Vec<AllowedHost>,
    /// Origin header to accept, or * for all; may be repeated [default: loopback origins]
    #[arg(long, env = "MOORLINE_ALLOW_ORIGIN", value_name = "ORIGIN", help_heading = WHERE)]
    #[arg(value_delimiter = ',')]
    allow_origin: Vec<AllowedOrigin>,
    /// Threads to serve with, 1 to 256 [default: one for each usable core]
    #[arg(long, env = "MOORLINE_SHARDS", value_name = "COUNT", help_heading = WHERE)]
    #[arg(value_parser = count::<u16>)]
    shards: Option<u16>,
    /// Submission queue entries of each thread's ring, a power of two
    #[arg(long, env = "MOORLINE_RING_ENTRIES", value_name = "COUNT", help_heading = WHERE)]
    #[arg(default_value_t = limits::RING_ENTRIES, value_parser = count::<u32>)]
    ring_entries: u32,
    /// Connections at one time [default: what the open-file limit allows]
    #[arg(long, env = "MOORLINE_MAX_CONNECTIONS", value_name = "COUNT", help_heading = WHERE)]
    #[arg(value_parser = count::<usize>)]
    max_connections: Option<usize>,

    #[command(flatten)]
    auth: Auth,

    #[command(flatten)]
    quotas: QuotaFlags,

    /// Sessions at one time
    #[arg(long, env = "MOORLINE_MAX_SESSIONS", value_name = "COUNT", help_heading = SESSIONS)]
    #[arg(default_value_t = limits::SESSIONS_MAX, value_parser = count::<usize>)]
    max_sessions: usize,
    /// End a session after this long without activity
    #[arg(long, env = "MOORLINE_SESSION_IDLE_TIMEOUT", value_name = "DURATION", help_heading = SESSIONS)]
    #[arg(default_value_t = Millis(limits::SESSION_IDLE_TIMEOUT_MS))]
    session_idle_timeout: Millis,
    /// End a session that does nothing after initialize
    #[arg(long, env = "MOORLINE_HANDSHAKE_TIMEOUT", value_name = "DURATION", help_heading = SESSIONS)]
    #[arg(default_value_t = Millis(limits::HANDSHAKE_TIMEOUT_MS))]
    handshake_timeout: Millis,
    /// Send a comment on a stream that was silent for this long; 0 disables
    #[arg(long, env = "MOORLINE_KEEP_ALIVE", value_name = "DURATION", help_heading = SESSIONS)]
    #[arg(default_value_t = Millis(limits::KEEP_ALIVE_MS))]
    keep_alive: Millis,
    /// Which GET of a session receives its messages
    #[arg(long, env = "MOORLINE_LISTENER_POLICY", value_name = "POLICY", help_heading = SESSIONS)]
    #[arg(default_value_t = ListenerPolicy::First)]
    listener_policy: ListenerPolicy,

    /// How a POST is answered
    #[arg(long, env = "MOORLINE_RESPONSE_MODE", value_name = "MODE", help_heading = REPLIES)]
    #[arg(default_value_t = ResponseMode::Auto)]
    response_mode: ResponseMode,
    /// Make a reply a stream when nothing came for this long
    #[arg(long, env = "MOORLINE_SSE_AFTER", value_name = "DURATION", help_heading = REPLIES)]
    #[arg(default_value_t = Millis(limits::SSE_AFTER_MS))]
    sse_after: Millis,
    /// Which streams of 2025-11-25 start with a priming event
    #[arg(long, env = "MOORLINE_PRIMING", value_name = "WHICH", help_heading = REPLIES)]
    #[arg(default_value_t = Priming::Auto)]
    priming: Priming,
    /// How long clients should wait before they reconnect
    #[arg(long, env = "MOORLINE_RETRY", value_name = "DURATION", help_heading = REPLIES)]
    #[arg(default_value_t = Millis(limits::RETRY_MS))]
    retry: Millis,
    /// Fail a call that has not answered after this long
    #[arg(long, env = "MOORLINE_REQUEST_TIMEOUT", value_name = "DURATION", help_heading = REPLIES)]
    #[arg(default_value_t = Millis(limits::REQUEST_TIMEOUT_MS))]
    request_timeout: Millis,

    /// Events kept for replay in each session
    #[arg(long, env = "MOORLINE_REPLAY_EVENTS", value_name = "COUNT", help_heading = REPLAY)]
    #[arg(default_value_t = limits::REPLAY_EVENTS_MAX, value_parser = count::<usize>)]
    replay_events: usize,
    /// Bytes kept for replay in each session
    #[arg(long, env = "MOORLINE_REPLAY_BYTES", value_name = "SIZE", help_heading = REPLAY)]
    #[arg(default_value_t = ByteSize(limits::REPLAY_BYTES_MAX))]
    replay_bytes: ByteSize,
    /// How long an interrupted stream can be resumed; longer than --write-timeout
    #[arg(long, env = "MOORLINE_REPLAY_TTL", value_name = "DURATION", help_heading = REPLAY)]
    #[arg(default_value_t = Millis(limits::REPLAY_TTL_MS))]
    replay_ttl: Millis,
    /// Give a plain GET the replies that were lost with their POST
    #[arg(long, env = "MOORLINE_FRESH_GET_FALLBACK", value_name = "SWITCH", help_heading = REPLAY)]
    #[arg(default_value_t = Switch::On)]
    fresh_get_fallback: Switch,

    /// Refuse new sessions, new streams and large bodies while more than this is held for clients [default: none]
    #[arg(long, env = "MOORLINE_MEMORY_LIMIT", value_name = "SIZE", help_heading = CONNECTIONS)]
    memory_limit: Option<ByteSize>,
    /// Largest request body
    #[arg(long, env = "MOORLINE_MAX_BODY", value_name = "SIZE", help_heading = CONNECTIONS)]
    #[arg(default_value_t = ByteSize(limits::BODY_BYTES_MAX))]
    max_body: ByteSize,
    /// Largest message of the backend
    #[arg(long, env = "MOORLINE_MAX_MESSAGE", value_name = "SIZE", help_heading = CONNECTIONS)]
    #[arg(default_value_t = ByteSize(limits::MESSAGE_BYTES_MAX))]
    max_message: ByteSize,
    /// Bytes that may wait behind the message being written to a stream
    #[arg(long, env = "MOORLINE_WRITE_BUFFER", value_name = "SIZE", help_heading = CONNECTIONS)]
    #[arg(default_value_t = ByteSize(limits::WRITE_BUFFER_BYTES_MAX))]
    write_buffer: ByteSize,
    /// From the first byte of a request to the end of its header
    #[arg(long, env = "MOORLINE_HEADER_TIMEOUT", value_name = "DURATION", help_heading = CONNECTIONS)]
    #[arg(default_value_t = Millis(limits::HEADER_TIMEOUT_MS))]
    header_timeout: Millis,
    /// From the end of the header to the end of the body
    #[arg(long, env = "MOORLINE_BODY_TIMEOUT", value_name = "DURATION", help_heading = CONNECTIONS)]
    #[arg(default_value_t = Millis(limits::BODY_TIMEOUT_MS))]
    body_timeout: Millis,
    /// Between two requests of a connection
    #[arg(long, env = "MOORLINE_IDLE_TIMEOUT", value_name = "DURATION", help_heading = CONNECTIONS)]
    #[arg(default_value_t = Millis(limits::IDLE_TIMEOUT_MS))]
    idle_timeout: Millis,
    /// Cut a connection whose output makes no progress for this long
    #[arg(long, env = "MOORLINE_WRITE_TIMEOUT", value_name = "DURATION", help_heading = CONNECTIONS)]
    #[arg(default_value_t = Millis(limits::WRITE_TIMEOUT_MS))]
    write_timeout: Millis,

    /// Program that speaks MCP over standard input and output, and its arguments [default: a built-in server]
    #[arg(last = true, value_name = "COMMAND", help_heading = PROGRAM)]
    command: Vec<String>,
    /// Who shares its processes
    #[arg(long, env = "MOORLINE_STDIO_MODE", value_name = "MODE", help_heading = PROGRAM)]
    #[arg(default_value_t = StdioMode::Auto)]
    stdio_mode: StdioMode,
    /// Processes where they are shared, at least one for each thread; fewer threads are started otherwise [default: one
    /// for each thread]
    #[arg(long, env = "MOORLINE_CHILDREN", value_name = "COUNT", help_heading = PROGRAM)]
    #[arg(value_parser = count::<usize>)]
    children: Option<usize>,
    /// Processes at one time; a further session gets 503 [default: 256, or what the open-file limit allows]
    #[arg(long, env = "MOORLINE_MAX_CHILDREN", value_name = "COUNT", help_heading = PROGRAM)]
    #[arg(value_parser = count::<usize>)]
    max_children: Option<usize>,
    /// Which of this server's environment variables they get
    #[arg(long, env = "MOORLINE_CHILD_INHERIT", value_name = "WHICH", help_heading = PROGRAM)]
    #[arg(default_value_t = Inherit::All)]
    child_inherit: Inherit,
    /// Variable they get besides; may be repeated [default: none]
    #[arg(long, env = "MOORLINE_CHILD_ENV", value_name = "NAME=VALUE", help_heading = PROGRAM)]
    #[arg(value_delimiter = '\n', hide_env_values = true)]
    child_env: Vec<ChildVariable>,
    /// Directory they run in [default: this server's own]
    #[arg(long, env = "MOORLINE_CHILD_DIR", value_name = "DIRECTORY", help_heading = PROGRAM)]
    child_dir: Option<PathBuf>,
    /// What they get to answer initialize
    #[arg(long, env = "MOORLINE_CHILD_START_TIMEOUT", value_name = "DURATION", help_heading = PROGRAM)]
    #[arg(default_value_t = Millis(limits::CHILD_START_TIMEOUT_MS))]
    child_start_timeout: Millis,
    /// From the end of their input to KILL; TERM is sent after a second, or half of it
    #[arg(long, env = "MOORLINE_CHILD_GRACE", value_name = "DURATION", help_heading = PROGRAM)]
    #[arg(default_value_t = Millis(limits::CHILD_GRACE_MS))]
    child_grace: Millis,

    /// What running calls get to finish after SIGTERM or SIGINT
    #[arg(long, env = "MOORLINE_DRAIN", value_name = "DURATION", help_heading = OPERATION)]
    #[arg(default_value_t = Millis(limits::DRAIN_MS))]
    drain: Millis,
    /// Part of requests that get a line in the log, 0 to 1; at --log-level info or below
    #[arg(long, env = "MOORLINE_ACCESS_LOG_SAMPLE", value_name = "FRACTION", help_heading = OPERATION)]
    #[arg(default_value_t = Fraction(0))]
    access_log_sample: Fraction,
    /// The least severe events that are logged, to stderr
    #[arg(long, env = "MOORLINE_LOG_LEVEL", value_name = "LEVEL", help_heading = OPERATION)]
    #[arg(default_value_t = Verbosity::Info)]
    log_level: Verbosity,
    /// How they are written
    #[arg(long, env = "MOORLINE_LOG_FORMAT", value_name = "FORMAT", help_heading = OPERATION)]
    #[arg(default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// TOML file with settings [default: none]
    #[arg(long, env = "MOORLINE_CONFIG", value_name = "FILE", help_heading = OPERATION)]
    config: Option<PathBuf>,
    /// Print every setting with its value and where that comes from, and exit
    #[arg(long, help_heading = OPERATION)]
    print_config: bool,
    /// See whether all settings could be served, and exit
    #[arg(long, help_heading = OPERATION, conflicts_with = "print_config")]
    check: bool,
}

impl Serve {
    fn config(&self, machine: &Machine) -> Config {
        let shards = self.shards.unwrap_or_else(|| self.shards_default(machine));
        let children_max = self.max_children.unwrap_or_else(|| machine.children_default());
        let children_allowed = if self.command.is_empty() { 0 } else { children_max };
        let connections_default = || machine.connections_default(shards, self.listen.len(), children_allowed);
        Config {
            listen: self.listen.clone(),
            admin_listen: self.admin_listen,
            path: self.path.clone(),
            legacy_sse: self.legacy_sse,
            allow_hosts: self.allow_host.clone(),
            allow_origins: self.allow_origin.clone(),
            auth: self.auth.config(),
            memory_bytes_max: self.memory_limit.map(|limit| limit.0),
            quotas: self.quotas.config(),
            shards,
            ring_entries: self.ring_entries,
            connections_max: self.max_connections.unwrap_or_else(connections_default),
            sessions_max: self.max_sessions,
            session_idle_timeout_ms: self.session_idle_timeout.0,
            handshake_timeout_ms: self.handshake_timeout.0,
            keep_alive_ms: self.keep_alive.0,
            listener_policy: self.listener_policy,
            response_mode: self.response_mode,
            sse_after_ms: self.sse_after.0,
            priming: self.priming,
            retry_ms: self.retry.0,
            request_timeout_ms: self.request_timeout.0,
            replay_events_max: self.replay_events,
            replay_bytes_max: self.replay_bytes.0,
            replay_ttl_ms: self.replay_ttl.0,
            fresh_get_fallback: self.fresh_get_fallback,
            body_bytes_max: self.max_body.0,
            message_bytes_max: self.max_message.0,
            write_buffer_bytes_max: self.write_buffer.0,
            header_timeout_ms: self.header_timeout.0,
            body_timeout_ms: self.body_timeout.0,
            idle_timeout_ms: self.idle_timeout.0,
            write_timeout_ms: self.write_timeout.0,
            command: self.command.clone(),
            stdio_mode: self.stdio_mode,
            children: self.children.unwrap_or(usize::from(shards).max(1)),
            children_max,
            child_inherit: self.child_inherit,
            child_env: self.child_env.clone(),
            child_dir: self.child_dir.clone(),
            child_start_timeout_ms: self.child_start_timeout.0,
            child_grace_ms: self.child_grace.0,
            drain_ms: self.drain.0,
            access_log_sample: self.access_log_sample,
            log_level: self.log_level,
            log_format: self.log_format,
        }
    }

    /// One for each core, but no more than there are shared children: each shard has its own.
    fn shards_default(&self, machine: &Machine) -> u16 {
        let is_shared = self.stdio_mode != StdioMode::PerSession && !self.command.is_empty();
        let children = self.children.filter(|_| is_shared).and_then(|children| u16::try_from(children).ok());
        machine.shards().min(children.unwrap_or(u16::MAX)).max(1)
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080")
}

fn count<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "too large",
        _ => "expected a whole number",
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::collections::BTreeSet;

    const MACHINE: Machine = Machine { cores: 4, open_files_max: 20_000 };

    fn typed(args: &[&str]) -> Typed {
        let words: Vec<_> = ["moorline"].iter().chain(args).map(OsString::from).collect();
        Typed::from_words(&words).unwrap()
    }

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_typed_is_the_default_configuration() {
        assert_eq!(typed(&[]).config(&MACHINE), Config::for_machine(&MACHINE));
        assert_eq!(typed(&["serve"]).config(&MACHINE), Config::for_machine(&MACHINE));
    }

    #[test]
    fn flags_mean_the_same_with_and_without_the_command() {
        let flags =
            ["--listen", "[::1]:0", "--listen=0.0.0.0:81,0.0.0.0:82", "--keep-alive", "0", "--shards=2"];
        let bare = typed(&flags).config(&MACHINE);
        assert_eq!(bare, typed(&[&["serve"], &flags[..]].concat()).config(&MACHINE));
        assert_eq!((bare.listen.len(), bare.keep_alive_ms, bare.shards), (3, 0, 2));
    }

    #[test]
    fn every_setting_has_help_a_heading_a_variable_and_a_default() {
        let command = Cli::command();
        let is_other =
            |arg: &&Arg| ["help", "version", "print_config", "check"].contains(&arg.get_id().as_str());
        let typed = command.get_arguments().filter(|arg| !is_other(arg) && arg.get_id() != COMMAND);
        for arg in typed {
            let flag = arg.get_long().unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(arg.get_help_heading().is_some(), "{flag}");
            assert_eq!(arg.get_env().unwrap().to_str().unwrap(), variable(flag));
            assert!(!arg.get_default_values().is_empty() || help.contains("[default: "), "{flag}");
        }
    }

    #[test]
    fn every_setting_is_printed_and_set_by_its_own_flag() {
        let command = Cli::command();
        let flags: Vec<_> = settings(&command).filter_map(Arg::get_long).collect();
        let entries: Vec<_> =
            Config::for_machine(&MACHINE).entries().into_iter().map(|(name, _)| name).collect();
        let entries: Vec<_> = entries.into_iter().filter(|name| *name != COMMAND).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>(), entries.iter().collect::<BTreeSet<_>>());

        for flag in flags {
            let value = [
                "7s",
                "7KiB",
                "7",
                "on",
                "off",
                "latest",
                "json",
                "debug",
                "/x",
                "a.example",
                "http://a",
                "1.1.1.1:1",
                "shared",
                "basic",
                "NAME=value",
                "0.5",
                "jwt",
                "RS512",
            ];
            let default = typed(&[]).config(&MACHINE).entries();
            let change = value.iter().find_map(|value| {
                let words = ["moorline".into(), format!("--{flag}={value}").into()];
                let typed = Typed::from_words(&words).ok()?;
                let entries = typed.config(&MACHINE).entries();
                let changed: Vec<_> = entries.into_iter().filter(|entry| !default.contains(entry)).collect();
                (!changed.is_empty()).then_some(changed)
            });
            let changed: Vec<_> = change.unwrap().into_iter().map(|(name, _)| name).collect();
            // The defaults of some depend on others.
            let expected: &[&str] = match flag {
                "listen" => &["listen", "legacy-sse"],
                "memory-limit" => &["max-body-memory-per-client", "memory-limit"],
                "shards" => &[
                    "shards",
                    "max-connections",
                    "max-connections-per-address",
                    "max-connections-per-principal",
                    "children",
                ],
                "max-connections" => {
                    &["max-connections", "max-connections-per-address", "max-connections-per-principal"]
                }
                "max-sessions" => &["max-sessions-per-client", "max-streams-per-client", "max-sessions"],
                flag => &[flag],
            };
            assert_eq!(changed, expected);
        }
    }
}
