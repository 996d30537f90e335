//! Who is measured, and under what load: fresh processes, one after the other.
//!
//! Owns the processes it starts and ends each of them. The load is `moorline-load`, from the folder of the server's binary.

use super::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Who serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// The server with these arguments beside the addresses.
    Server(&'static [&'static str]),
    /// The bare io_uring loop: the interval of keep-alives in milliseconds, then features.
    Bare(&'static [&'static str]),
    /// The bare loop on tokio-uring.
    Runtime(&'static [&'static str]),
}

/// One of them, running.
pub(crate) struct Running {
    child: Child,
    /// The process that serves: the child, or the one that it traces.
    pub(crate) pid: u32,
    /// Where it serves MCP.
    pub(crate) url: String,
    /// Where notifications to everyone are posted.
    pub(crate) publish_url: String,
    errors: tempfile::NamedTempFile,
}

/// What is started to serve: behind a tracer, if one is named.
pub(crate) fn start(side: Side, tracer: &[String]) -> Outcome<Running> {
    let mut command = match side {
        Side::Server(arguments) => {
            let mut command = traced(tracer, env!("CARGO_BIN_EXE_moorline").into());
            command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).args(arguments);
            command
        }
        Side::Bare(arguments) => {
            let mut command = traced(tracer, std::env::current_exe()?);
            command.arg("bare-loop").args(arguments);
            command
        }
        Side::Runtime(arguments) => {
            let mut command = traced(tracer, std::env::current_exe()?);
            command.arg("runtime-loop").args(arguments);
            command
        }
    };
    let errors = tempfile::NamedTempFile::new()?;
    let child = command.stdout(Stdio::null()).stderr(errors.reopen()?).spawn()?;
    let pid = child.id();
    let mut running = Running { child, pid, url: String::new(), publish_url: String::new(), errors };
    let deadline = Instant::now() + Duration::from_secs(30);
    while running.url.is_empty() {
        if Instant::now() > deadline || running.child.try_wait()?.is_some() {
            return Err(format!("{side:?} did not say where it listens").into());
        }
        std::thread::sleep(Duration::from_millis(10));
        let said = std::fs::read_to_string(running.errors.path())?;
        let addresses: Vec<&str> =
            said.lines().filter_map(|line| Some(line.split_once("http://")?.1)).collect();
        let Some(mcp) = addresses.iter().find(|address| address.contains("/mcp")) else { continue };
        let admin = match side {
            Side::Server(_) => match addresses.iter().find(|address| !address.contains("/mcp")) {
                Some(admin) => admin.trim_end_matches('/'),
                None => continue,
            },
            Side::Bare(_) | Side::Runtime(_) => mcp.trim_end_matches("/mcp"),
        };
        running.url = format!("http://{mcp}");
        running.publish_url = format!("http://{admin}/publish");
    }
    if !tracer.is_empty() {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        running.pid = children.split_whitespace().next().ok_or("the tracer traces nothing")?.parse()?;
    }
    Ok(running)
}

fn traced(tracer: &[String], program: PathBuf) -> Command {
    let Some((first, rest)) = tracer.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

impl Running {
    /// Ends it; what it wrote to files is there afterwards.
    pub(crate) fn end(self) {}

    /// Descriptors it has open: about as many as connections.
    pub(crate) fn open_files(&self) -> Outcome<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid))?.count())
    }

    /// Waits until so many descriptors are open.
    pub(crate) fn await_connections(&self, count: usize) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.open_files()? < count {
            if Instant::now() > deadline {
                return Err(format!("{} of {count} connections are there", self.open_files()?).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A tracer ends with what it traces, and not the other way round.
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The load generator, beside the server's binary.
pub(crate) fn load_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_moorline")).with_file_name("moorline-load")
}

/// A load that runs.
pub(crate) struct Load {
    child: Child,
    report: tempfile::NamedTempFile,
}

impl Load {
    pub(crate) fn start(server: &Running, arguments: &[String]) -> Outcome<Self> {
        let report = tempfile::NamedTempFile::new()?;
        let child = Command::new(load_program())
            .args(arguments)
            .args(["--url", &server.url, "--pid", &server.pid.to_string(), "--quiet", "--json"])
            .arg(report.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Load { child, report })
    }

    /// Its report, once it has ended.
    pub(crate) fn finish(mut self) -> Outcome<Value> {
        let status = self.child.wait()?;
        serde_json::from_reader(std::fs::File::open(self.report.path())?).map_err(|error| {
            format!("the load generator ended with {status} and left no report: {error}").into()
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The report of one load on one server, which is started for it.
pub(crate) fn measure(side: Side, load: impl FnOnce(&Running) -> Vec<String>) -> Outcome<Value> {
    let server = start(side, &[])?;
    let arguments = load(&server);
    Load::start(&server, &arguments)?.finish()
}

/// A figure of a report, by the names that lead to it.
pub(crate) fn figure(report: &Value, path: &str) -> Outcome<f64> {
    let value = path.split('.').try_fold(report, |value, name| value.get(name));
    value.and_then(Value::as_f64).ok_or_else(|| format!("no {path} in the report").into())
}

/// Words of a command line.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
