//! SIGTERM and SIGINT: the first drains, the second ends the process. SIGHUP: files are read again.
//!
//! Owns one control thread. No signal is blocked in any thread, so children inherit nothing odd.

use super::{
    doorbell::{Doorbell, Phase},
    supervisor,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};
use std::{fmt, io, sync::Arc, thread};

/// The control thread, which ends when this is dropped.
pub(crate) struct Control(Handle);

impl Drop for Control {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What SIGHUP brings about; nothing, unless somebody has said what.
#[derive(Default)]
pub(crate) struct Hangup(pub(crate) Option<Box<dyn FnMut() + Send>>);

impl fmt::Debug for Hangup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hangup").field(&self.0.is_some()).finish()
    }
}

impl Hangup {
    fn act(&mut self) {
        match &mut self.0 {
            Some(act) => act(),
            None => tracing::info!("there is no file to be read again"),
        }
    }
}

/// Takes over SIGTERM, SIGINT and SIGHUP on behalf of the shards behind `doorbells`.
///
/// # Errors
/// If the handlers cannot be installed or the thread cannot be started.
pub(crate) fn control(doorbells: Vec<Arc<Doorbell>>, mut hangup: Hangup) -> io::Result<Control> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let handle = signals.handle();
    thread::Builder::new().name("moorline-control".into()).spawn(move || {
        let mut arrived = signals.forever();
        let mut stop = || {
            arrived.by_ref().find(|signal| {
                let is_stop = *signal != SIGHUP;
                if !is_stop {
                    hangup.act();
                }
                is_stop
            })
        };
        if stop().is_none() {
            return;
        }
        tracing::info!("stopping: no new sessions, running calls may finish; a second signal ends it now");
        supervisor::stopping();
        for doorbell in &doorbells {
            doorbell.advance(Phase::Drain);
        }
        if let Some(signal) = stop() {
            super::child::groups::kill_all();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(Control(handle))
}
