//! The `moorline` binary: reads what was typed, and serves it or says in one line why not.

mod cli;
mod reload;

use self::{
    cli::{Doctor, Purpose, Task, Typed},
    reload::{LogLevel, Reload, level_of},
};
use anyhow::{Context as _, Result};
use moorline::{
    backend::{Builtin, Host, Tasks, stdio::Stdio},
    config::{Config, LogFormat, Machine},
    core::auth::Authenticator,
    doctor::Report,
    server::{self, Server, StartError},
};
use std::io::{IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// This host cannot serve what was asked for.
const EXIT_HOST: u8 = 3;

fn main() -> ExitCode {
    let outcome = match cli::read() {
        Task::Examine(doctor) => return examine(&doctor),
        Task::Serve(typed) => start(&typed),
        Task::MakeToken(token) => token.write(&mut std::io::stdout()),
        Task::Generate(what) => what.write(&mut std::io::stdout()).context("cannot print"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(EXIT_HOST)
        }
    }
}

fn start(typed: &Typed) -> Result<()> {
    // Before anything else opens files.
    let sockets = server::handed_sockets()?;
    let machine = Machine::read();
    let mut config = typed.config(&machine);
    if !sockets.is_empty() {
        config.listen = server::addresses_of(&sockets).map_err(StartError::Handed)?;
    }
    let config = match config.validated(&machine) {
        Err(error) if !error.is_of_host() => typed.refuse(error),
        validated => validated?,
    };
    let rules = config.auth.rules().unwrap_or_else(|error| typed.refuse(error));
    match typed.purpose() {
        Purpose::Print => print(&typed.describe(&config)),
        Purpose::Check => {
            config.stdio(std::env::vars_os())?;
            config.server()?;
            print("all settings are good\n")
        }
        Purpose::Serve => {
            let log = start_log(&config);
            run(config, sockets, log, rules)
        }
    }
}

/// Says what this host can hold; the exit code says whether it can run the server.
fn examine(doctor: &Doctor) -> ExitCode {
    let report = Report::of_host(Path::new("/"), doctor.streams);
    let text = if doctor.json { report.to_json() } else { report.to_string() };
    match print(&text) {
        Ok(()) if report.able => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_HOST),
    }
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")
}

/// Serves until the process is told to stop.
fn run(config: Config, sockets: Vec<TcpListener>, log: LogLevel, rules: Option<Authenticator>) -> Result<()> {
    let program = config.stdio(std::env::vars_os())?;
    let mut server = config.server()?;
    server.core.auth = rules.map(Arc::new);
    let mut server = Server::bind_on(server, sockets)?;
    if config.refuses_everyone_else() {
        tracing::warn!("only loopback host names are accepted; name this server's own with --allow-host");
    }
    let mut reload = Reload::new(config, server.settings_handle(), log);
    server.on_hangup(move || reload.run());
    match program {
        Some(program) => {
            let stdio = Stdio::new(program).context("cannot start the thread that starts programs")?;
            server.run(move |shard| stdio.backend(shard))?;
        }
        None => {
            let tasks = Tasks::default();
            server.run(move |shard| Host::on(shard, tasks.clone(), Builtin::new()))?;
        }
    }
    Ok(())
}

fn start_log(config: &Config) -> LogLevel {
    let (level, handle) = tracing_subscriber::reload::Layer::new(level_of(config.log_level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let log = match config.log_format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    tracing_subscriber::registry().with(level).with(log).init();
    handle
}
