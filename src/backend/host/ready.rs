//! The workers that were woken, and whom to tell.
//!
//! Owns the list and the driver's waker. Wakers may be used on any thread and touch nothing but this. An index may be stale.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

/// The workers that were woken, and whom to tell.
#[derive(Debug, Default)]
pub(in super::super) struct ReadyList {
    inner: Mutex<Ready>,
}

#[derive(Debug, Default)]
struct Ready {
    workers: Vec<usize>,
    /// Taken by the first wake after a poll: the driver is woken once a turn.
    driver: Option<Waker>,
}

impl ReadyList {
    /// Moves the woken workers to `woken` and has `driver` woken for the next one.
    pub(super) fn take(&self, driver: &Waker, woken: &mut Vec<usize>) {
        let mut ready = self.lock();
        woken.append(&mut ready.workers);
        ready.driver = Some(driver.clone());
    }

    fn push(&self, worker: usize) {
        self.lock().workers.push(worker);
        self.wake_driver();
    }

    pub(in super::super) fn wake_driver(&self) {
        // Not while the lock is held: a waker may do anything.
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// No code that can panic runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one worker, from any thread.
pub(super) struct WorkerWake {
    index: usize,
    /// Already on the list.
    queued: AtomicBool,
    ready: Arc<ReadyList>,
}

impl WorkerWake {
    pub(super) fn new(index: usize, ready: Arc<ReadyList>) -> Self {
        WorkerWake { index, queued: AtomicBool::new(false), ready }
    }

    /// The worker is about to be polled: from now on a wake counts again.
    pub(super) fn rearm(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for WorkerWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.index);
        }
    }
}
