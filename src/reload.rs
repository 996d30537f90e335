//! What SIGHUP does: settings are read again, from the same words, the environment and the file as it is now.
//!
//! Owns the configuration that is in force. Must never change half of it: what cannot be read or breaks a rule changes
//! nothing. Says in one line what has changed and what waits for a restart. No stream is touched.

use crate::cli::Typed;
use moorline::{
    config::{Changes, Config, Machine, Verbosity},
    core::auth::Authenticator,
    server::SettingsHandle,
};
use std::{ffi::OsString, sync::Arc};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Registry, reload::Handle};

/// The level of the log, which can be changed while it is written.
pub(crate) type LogLevel = Handle<LevelFilter, Registry>;

/// How much `verbosity` lets through.
pub(crate) fn level_of(verbosity: Verbosity) -> LevelFilter {
    match verbosity {
        Verbosity::Off => LevelFilter::OFF,
        Verbosity::Error => LevelFilter::ERROR,
        Verbosity::Warn => LevelFilter::WARN,
        Verbosity::Info => LevelFilter::INFO,
        Verbosity::Debug => LevelFilter::DEBUG,
        Verbosity::Trace => LevelFilter::TRACE,
    }
}

/// A server whose settings can be read again.
pub(crate) struct Reload {
    words: Vec<OsString>,
    in_force: Config,
    settings: SettingsHandle,
    log: LogLevel,
}

impl Reload {
    pub(crate) fn new(in_force: Config, settings: SettingsHandle, log: LogLevel) -> Self {
        Reload { words: std::env::args_os().collect(), in_force, settings, log }
    }

    /// Reads everything again, and applies what can be applied.
    pub(crate) fn run(&mut self) {
        match self.changed() {
            Ok(changes) => self.say(&changes),
            Err(why) => tracing::error!(%why, "settings not reloaded; those in force stay"),
        }
    }

    fn changed(&mut self) -> Result<Changes, String> {
        let typed = Typed::from_words(&self.words).map_err(|error| in_one_line(&error.to_string()))?;
        let machine = Machine::read();
        // Sockets stay where they are.
        let wanted = Config { listen: self.in_force.listen.clone(), ..typed.config(&machine) };
        let wanted = wanted.validated(&machine).map_err(|error| typed.with_sources(error))?;
        let mut next = self.in_force.clone();
        let changes = next.adopt(&wanted);
        // Rules hold between what has changed and what has not.
        let next =
            next.validated(&machine).map_err(|error| format!("{error}, with what waits for a restart"))?;
        let rules = next.auth.rules().map_err(|error| error.to_string())?;
        let mut server = next.server().map_err(|error| error.to_string())?;
        // Removing the last token is a way to lock everybody out; a file caught while it is written is none.
        match rules.as_ref().and_then(Authenticator::tokens_count) {
            Some(0) => tracing::warn!("the file of tokens has none: nobody gets in"),
            Some(tokens) => tracing::info!(tokens, "the file of tokens was read again"),
            None => {}
        }
        server.core.auth = rules.map(Arc::new);
        self.settings.apply(server.core);
        self.in_force = next;
        Ok(changes)
    }

    /// At the more talkative of the old and the new level, so that the change of it is seen.
    fn say(&self, changes: &Changes) {
        let new = level_of(self.in_force.log_level);
        // The log is there for as long as the process.
        let _ = self.log.modify(|level| *level = new.max(*level));
        let list = |items: &[String]| if items.is_empty() { "nothing".to_owned() } else { items.join(", ") };
        tracing::info!(
            changed = list(&changes.made),
            needs_restart = list(&changes.waiting),
            "settings reloaded"
        );
        let _ = self.log.modify(|level| *level = new);
    }
}

fn in_one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
