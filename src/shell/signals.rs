//! SIGTERM and SIGINT: the first drains, the second ends the process. SIGHUP: settings are read again.
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
use std::{io, sync::Arc, thread};

/// The control thread, which ends when this is dropped.
pub(crate) struct Control(Handle);

impl Drop for Control {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What SIGHUP does; it logs what came of it.
pub(crate) type Reload = Box<dyn FnMut() + Send>;

/// Takes over SIGTERM, SIGINT and SIGHUP on behalf of the shards behind `doorbells`.
///
/// # Errors
/// If the handlers cannot be installed or the thread cannot be started.
pub(crate) fn control(doorbells: Vec<Arc<Doorbell>>, mut reload: Reload) -> io::Result<Control> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let handle = signals.handle();
    thread::Builder::new().name("moorline-control".into()).spawn(move || {
        let mut arrived = signals.forever();
        loop {
            match arrived.next() {
                None => return,
                Some(SIGHUP) => {
                    supervisor::reloading();
                    reload();
                    supervisor::reloaded();
                }
                Some(_) => break,
            }
        }
        tracing::info!("stopping: no new sessions, running calls may finish; a second signal ends it now");
        supervisor::stopping();
        for doorbell in &doorbells {
            doorbell.advance(Phase::Drain);
        }
        if let Some(signal) = arrived.find(|signal| *signal != SIGHUP) {
            super::child::groups::kill_all();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(Control(handle))
}
