//! Starts the binary under test and ends it, whatever the test does.

use super::{PATIENCE, wire::Connection};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

/// A running server. Killed on drop.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `moorline serve` on a port of the kernel's choice with `flags` and waits until it is ready.
    pub(crate) fn start(flags: &[&str]) -> Server {
        let mut command = command(&["--listen", "127.0.0.1:0"]);
        command.args(flags);
        Server::launch(command)
    }

    /// As [`start`](Self::start), with an open-file limit of `files`.
    pub(crate) fn start_with_files(files: u32, flags: &[&str]) -> Server {
        let program = env!("CARGO_BIN_EXE_moorline");
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string(), program, "serve"]);
        command.args(["--listen", "127.0.0.1:0"]).args(flags);
        Server::launch(free_of_settings(command))
    }

    /// Starts `command`, which runs the server, and waits until it is ready.
    pub(crate) fn launch(mut command: Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary under test starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let log = Arc::new(Mutex::new(String::new()));
        let (ready, address) = mpsc::channel();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(address) = address_of(&line) {
                    // A test that gave up has dropped the receiver.
                    let _ = ready.send(address);
                }
                let mut log = kept.lock().expect("no thread panics with the log");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let address = address.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("no ready line; stderr: {}", log.lock().expect("no thread panics with the log"))
        });
        Server { child, address, log }
    }

    /// Its process.
    #[allow(dead_code, reason = "not every test crate looks at it")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its admin listener is.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        let log = self.log();
        let address = log.lines().find_map(|line| line.strip_prefix("administration on http://"));
        let address = address.and_then(|rest| rest.strip_suffix('/')?.parse().ok());
        address.unwrap_or_else(|| panic!("no line names the admin listener: {log}"))
    }

    /// A new connection to it.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Everything it wrote to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no thread panics with the log").clone()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server is a child of this process");
    }

    /// Its exit status, which must come within `patience`.
    pub(crate) fn exit_within(&mut self, patience: Duration) -> ExitStatus {
        exit_within(&mut self.child, patience)
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's stderr\n{}---", self.log());
        }
    }
}

/// The binary under test with `arguments`, its environment free of settings.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moorline"));
    command.arg("serve").args(arguments);
    free_of_settings(command)
}

/// `command` in an environment free of settings.
pub(crate) fn free_of_settings(mut command: Command) -> Command {
    let settings = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("MOORLINE_"));
    settings.for_each(|name| {
        command.env_remove(name);
    });
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits for the end of `child`.
///
/// # Panics
/// If it does not end within `patience`; it is killed then.
pub(crate) fn exit_within(child: &mut Child, patience: Duration) -> ExitStatus {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the server still ran after {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The address in a line that is exactly `listening on http://ADDR:PORT/mcp`.
fn address_of(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("listening on http://")?.strip_suffix("/mcp")?.parse().ok()
}
