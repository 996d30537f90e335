//! The worker processes: started, told, listened to, and missed when they are gone.
//!
//! Owns the children. A worker that ends without its outcome is *crashed*, with the reason, and the report
//! says so: its part of the numbers is missing. Dropping this kills whatever still runs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::plan::Plan;
use crate::wire::{Order, Outcome, Progress, Word};

/// The hidden first argument that makes a process a worker.
pub(crate) const WORKER_ARGUMENT: &str = "worker-process";

/// What became of a worker.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It works.
    Working,
    /// It delivered its outcome.
    Finished(Box<Outcome>),
    /// It ended, or fell silent, without one.
    Crashed(String),
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    /// Its last progress.
    pub(crate) progress: Progress,
    /// What became of it.
    pub(crate) fate: Fate,
    /// The worst lag it reported, in microseconds.
    pub(crate) worst_lag_us: u64,
}

/// All workers of a run.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Worker>,
    heard: Receiver<(usize, Heard)>,
}

#[derive(Debug)]
enum Heard {
    Word(Box<Word>),
    Nothing,
}

impl Workers {
    /// Starts one process per plan and hands it its plan.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub(crate) fn start(plans: Vec<Plan>) -> Result<Self> {
        let (sender, heard) = mpsc::channel();
        let mut all = Vec::new();
        for (index, plan) in plans.into_iter().enumerate() {
            all.push(start_one(index, plan, sender.clone())?);
        }
        Ok(Self { all, heard })
    }

    /// The workers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.all.iter()
    }

    /// How many were started.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Gives an order to each worker that still works; what it says depends on the worker's index.
    pub(crate) fn order(&mut self, order: impl Fn(usize) -> Order) {
        for (index, worker) in self.all.iter_mut().enumerate() {
            worker.tell(&order(index));
        }
    }

    /// Listens for at most that long.
    pub(crate) fn listen(&mut self, timeout: Duration) {
        match self.heard.recv_timeout(timeout) {
            Ok((index, heard)) => self.all[index].on_heard(heard),
            Err(RecvTimeoutError::Timeout) => {}
            // Every worker is gone: do not spin.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(timeout),
        }
    }

    /// Whether any worker still works.
    pub(crate) fn are_working(&self) -> bool {
        self.all.iter().any(|worker| matches!(worker.fate, Fate::Working))
    }

    /// Whether `question` holds for each worker that still works.
    pub(crate) fn all_report(&self, question: impl Fn(&Progress) -> bool) -> bool {
        self.all
            .iter()
            .filter(|worker| matches!(worker.fate, Fate::Working))
            .all(|worker| question(&worker.progress))
    }

    /// Gives up on workers that did not deliver.
    pub(crate) fn abandon_silent(&mut self) {
        for worker in &mut self.all {
            if matches!(worker.fate, Fate::Working) {
                worker.fate = Fate::Crashed("did not deliver its outcome in time".to_owned());
            }
        }
    }

    /// The sum of a figure over all workers.
    pub(crate) fn sum(&self, figure: impl Fn(&Progress) -> u64) -> u64 {
        self.all.iter().map(|worker| figure(&worker.progress)).sum()
    }

    /// The largest of a figure over all workers.
    pub(crate) fn worst(&self, figure: impl Fn(&Progress) -> u64) -> u64 {
        self.all.iter().map(|worker| figure(&worker.progress)).max().unwrap_or(0)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.all {
            // Already gone is what is wanted; nothing is left to do about any other failure.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Worker {
    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tell(&mut self, order: &Order) {
        let Some(orders) = &mut self.orders else { return };
        let mut line = serde_json::to_vec(order).expect("orders are plain data");
        line.push(b'\n');
        if orders.write_all(&line).is_err() {
            // It is gone; its reader says so.
            self.orders = None;
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Word(word) => match *word {
                Word::Progress(progress) => {
                    self.worst_lag_us = self.worst_lag_us.max(progress.lag_us);
                    self.progress = progress;
                }
                Word::Outcome(outcome) => self.fate = Fate::Finished(outcome),
                Word::Fatal(why) => self.fate = Fate::Crashed(why),
            },
            Heard::Nothing if matches!(self.fate, Fate::Working) => {
                let status =
                    self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                self.progress.up = 0;
                self.fate = Fate::Crashed(status);
            }
            Heard::Nothing => {}
        }
    }
}

fn start_one(index: usize, plan: Plan, sender: Sender<(usize, Heard)>) -> Result<Worker> {
    let program = std::env::current_exe().context("cannot find this program to start workers")?;
    let mut child = Command::new(program)
        .arg(WORKER_ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a worker process")?;
    let output = child.stdout.take().expect("was piped");
    let orders = child.stdin.take();
    thread::spawn(move || relay(index, output, &sender));
    let progress = Progress::default();
    let mut worker = Worker { child, orders, progress, fate: Fate::Working, worst_lag_us: 0 };
    worker.tell(&Order::Begin(Box::new(plan)));
    Ok(worker)
}

/// Passes on a worker's words until it ends; a line that is no word ends it too.
fn relay(index: usize, output: ChildStdout, sender: &Sender<(usize, Heard)>) {
    for line in BufReader::new(output).lines() {
        let Some(word) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
        if sender.send((index, Heard::Word(Box::new(word)))).is_err() {
            return;
        }
    }
    // The parent may have finished already.
    let _ = sender.send((index, Heard::Nothing));
}
