//! A worker process: one thread, one loop, one scenario.
//!
//! Owns the loop and the conversation with the parent. Standard output carries words and nothing
//! else. The loop does all that is due and never sleeps longer than to the next thing due.

use std::io::Write;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

use crate::clock::Moment;
use crate::fleet::{Fleet, Notice, Terms};
use crate::measure::histogram::Latencies;
use crate::measure::lag::Tick;
use crate::measure::process;
use crate::measure::tally::{Count, Tally, Timed};
use crate::net::dial::Sources;
use crate::plan::Plan;
use crate::scenario::crew::Crew;
use crate::scenario::{self, Scenario, Scene};
use crate::wire::{Order, Outcome, Progress, Word};

/// Time between progress words, in milliseconds.
const PROGRESS_MS: u64 = 250;
/// Time between looks for steps that have waited too long, in milliseconds.
const EXPIRY_MS: u64 = 500;
/// Clients opened per turn at most, so that a fast ramp does not starve the sockets.
const OPENINGS_PER_TURN_MAX: usize = 64;

/// Runs a worker until it is told to finish or its parent is gone.
///
/// # Errors
/// What keeps it from working at all; told to the parent as well.
pub(crate) fn run() -> Result<()> {
    raise_open_files_limit();
    let result = Worker::begin().and_then(Worker::work);
    if let Err(error) = &result {
        say(&Word::Fatal(format!("{error:#}")))?;
    }
    result
}

/// Raises the soft limit of open files to the hard one; the preflight has told what that is.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Failing to raise it shows as connections that cannot be opened, with their errno.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

struct Worker {
    orders: Orders,
    scene: Scene,
    scenario: Box<dyn Scenario>,
    tick: Tick,
    worst_lag_us: u64,
    progress_due: Moment,
    expiry_due: Moment,
    cpu_ms_at_start: u64,
}

impl Worker {
    /// Reads the plan and sets everything up.
    fn begin() -> Result<Self> {
        let mut orders = Orders::default();
        let Some(Order::Begin(plan)) = orders.wait_first()? else {
            bail!("the first order must be the plan")
        };
        let now = Moment::now();
        let fleet = fleet(&plan)?;
        orders.stop_blocking()?;
        fleet.watch(rustix::stdio::stdin()).context("cannot watch for orders")?;
        Ok(Self {
            orders,
            scenario: scenario::of(&plan),
            scene: Scene {
                crew: Crew::new(plan.in_flight_max),
                fleet,
                tally: Tally::default(),
                recent: Latencies::default(),
                window: None,
                now,
                plan: *plan,
            },
            tick: Tick::new(now),
            worst_lag_us: 0,
            progress_due: now,
            expiry_due: now,
            cpu_ms_at_start: own_cpu_ms(),
        })
    }

    fn work(mut self) -> Result<()> {
        loop {
            let has_orders = self.scene.fleet.turn(self.idle_ns()).context("epoll failed")?;
            self.scene.now = Moment::now();
            if has_orders {
                self.orders.read()?;
            }
            while let Some(order) = self.orders.next()? {
                match order {
                    Order::Begin(_) => bail!("a second plan"),
                    Order::Grow { clients_count, per_second } => {
                        self.scene.crew.order(clients_count, per_second, self.scene.now);
                    }
                    Order::Run(window) => self.scene.window = Some(window),
                    Order::Finish => return self.finish(),
                }
            }
            if self.orders.is_ended {
                return Ok(());
            }
            self.turn()?;
        }
    }

    fn turn(&mut self) -> Result<()> {
        while let Some((who, notice)) = self.scene.fleet.next_notice() {
            if notice == Notice::SentAgain {
                self.scene.tally.count(Count::SentAgain);
                continue;
            }
            self.scenario.on_notice(&mut self.scene, who, notice);
        }
        for _ in 0..OPENINGS_PER_TURN_MAX {
            let Some(intended) = self.scene.crew.take(self.scene.now) else { break };
            let who = self.scene.fleet.open(intended);
            self.scene.crew.enrol(who);
        }
        self.scenario.on_turn(&mut self.scene);
        let now = self.scene.now;
        if let Some(late_us) = self.tick.take(now) {
            self.worst_lag_us = self.worst_lag_us.max(late_us);
            self.scene.tally.time(Timed::GeneratorLag, late_us);
        }
        if now >= self.expiry_due {
            self.expiry_due = now.plus_ms(EXPIRY_MS);
            self.scene.fleet.expire(now);
        }
        if now >= self.progress_due {
            self.progress_due = now.plus_ms(PROGRESS_MS);
            self.report_progress()?;
        }
        Ok(())
    }

    /// Nanoseconds until something is due; 0 when notices wait or clients could be opened at once.
    fn idle_ns(&self) -> u64 {
        if self.scene.fleet.has_notices() || self.scene.crew.is_eager() {
            return 0;
        }
        let dues = [
            Some(self.tick.due()),
            Some(self.progress_due),
            self.scene.crew.next_due(),
            self.scenario.next_due(&self.scene),
        ];
        let now = Moment::now();
        dues.into_iter().flatten().map(|due| due.ns_since(now)).min().unwrap_or(0)
    }

    fn report_progress(&mut self) -> Result<()> {
        let scene = &mut self.scene;
        let progress = Progress {
            up: scene.crew.in_place(),
            failed: scene.crew.failed(),
            ordered: scene.crew.ordered(),
            is_grown: scene.crew.is_grown(),
            is_done: self.scenario.is_done(scene),
            done: self.scenario.done_count(&scene.tally),
            errors: scene.tally.error_count(),
            closes: scene.tally.closes(),
            keep_alives: scene.tally.of(Count::KeepAlives),
            p50_us: scene.recent.quantile(0.5),
            p99_us: scene.recent.quantile(0.99),
            lag_us: std::mem::take(&mut self.worst_lag_us),
        };
        scene.recent.clear();
        say(&Word::Progress(progress))
    }

    fn finish(mut self) -> Result<()> {
        let up = self.scene.crew.in_place();
        let books = self.scenario.settle(&mut self.scene);
        say(&Word::Outcome(Box::new(Outcome {
            tally: self.scene.tally,
            deliveries: books.deliveries,
            accepted: books.accepted,
            cpu_ms: own_cpu_ms().saturating_sub(self.cpu_ms_at_start),
            up,
        })))
    }
}

fn fleet(plan: &Plan) -> Result<Fleet> {
    let first = plan.targets.first().context("the plan names no server")?;
    let terms = Terms {
        targets: plan.targets.clone(),
        wording: plan.wording.clone(),
        run: plan.run,
        timeout_ms: plan.timeout_ms,
    };
    Fleet::new(terms, Sources::new(plan.worker_index, first.addr, &plan.sources))
        .context("cannot create an epoll instance")
}

fn own_cpu_ms() -> u64 {
    process::own().cpu_ms
}

fn say(word: &Word) -> Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).context("the parent is gone")
}

/// Orders read from standard input, cut at line ends.
#[derive(Debug, Default)]
struct Orders {
    bytes: Vec<u8>,
    is_ended: bool,
}

impl Orders {
    /// Waits for the first order.
    fn wait_first(&mut self) -> Result<Option<Order>> {
        while !self.is_ended {
            self.read_once()?;
            if let Some(order) = self.next()? {
                return Ok(Some(order));
            }
        }
        Ok(None)
    }

    fn stop_blocking(&self) -> Result<()> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        let stdin = rustix::stdio::stdin();
        Ok(fcntl_setfl(stdin, fcntl_getfl(stdin)? | OFlags::NONBLOCK)?)
    }

    /// Reads all there is: the descriptor is watched for edges.
    fn read(&mut self) -> Result<()> {
        while !self.is_ended && self.read_once()? {}
        Ok(())
    }

    /// Reads once; false when there is nothing now.
    fn read_once(&mut self) -> Result<bool> {
        let mut buffer = [0; 16 * 1024];
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => self.is_ended = true,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("cannot read orders"),
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Order>> {
        let Some(newline) = self.bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.bytes.drain(..=newline).collect();
        serde_json::from_slice(&line).map(Some).context("an order that is not understood")
    }
}
