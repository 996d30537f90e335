//! The server under a supervisor that speaks as systemd does; here it is the test.

use super::{
    PATIENCE,
    server::{Server, command, free_of_settings},
    session::{Session, initialize, post},
    until,
    wire::Connection,
};
use rustix::process::Signal;
use std::{
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Where the server says how it is.
struct Ear {
    socket: UnixDatagram,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Ear {
    fn new() -> Ear {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket in it");
        Ear { socket, path, _directory: directory }
    }

    /// The next thing it says.
    fn hear(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).expect("a time-out is possible");
        let mut bytes = [0; 1024];
        let count = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    /// Waits until it has said `word`.
    fn expect(&self, word: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let said = self.hear(left.max(Duration::from_millis(1))).unwrap_or_else(|| panic!("no {word}"));
            if said.lines().any(|line| line == word) {
                return said;
            }
        }
    }

    fn start(&self, variables: &[(&str, &str)], flags: &[&str]) -> Server {
        let mut command = command(&["--listen", "127.0.0.1:0"]);
        command.args(flags).env("NOTIFY_SOCKET", &self.path).envs(variables.iter().copied());
        Server::launch(command)
    }
}

#[test]
fn a_supervisor_is_told_of_the_start_and_the_end() {
    let ear = Ear::new();
    let mut server = ear.start(&[], &[]);
    let said = ear.expect("READY=1");
    assert!(said.contains(&format!("STATUS=listening on http://{}/mcp", server.address())), "{said}");
    server.signal(Signal::TERM);
    ear.expect("STOPPING=1");
    assert_eq!(server.exit_within(PATIENCE).code(), Some(0));
}

#[test]
fn a_supervisor_is_told_of_a_reload_from_begin_to_end() {
    let ear = Ear::new();
    let server = ear.start(&[], &[]);
    ear.expect("READY=1");
    server.signal(Signal::HUP);
    let said = ear.expect("RELOADING=1");
    assert!(said.contains("MONOTONIC_USEC="), "{said}");
    ear.expect("READY=1");
}

#[test]
fn a_start_that_fails_is_not_reported_as_ready() {
    let ear = Ear::new();
    let mut command = command(&["--listen", "192.0.2.1:1", "--allow-anonymous"]);
    let status = command.env("NOTIFY_SOCKET", &ear.path).stderr(Stdio::null()).status();
    assert_eq!(status.expect("it runs").code(), Some(3));
    assert_eq!(ear.hear(Duration::from_millis(1)), None);
}

#[test]
fn the_watchdog_is_fed_again_and_again_while_all_is_well() {
    let ear = Ear::new();
    let server = ear.start(&[("WATCHDOG_USEC", "200000")], &["--shards", "2"]);
    let session = Session::open(server.address());
    for _ in 0..8 {
        ear.expect("WATCHDOG=1");
        assert_eq!(session.ping_status(), 200);
    }
}

#[test]
fn no_watchdog_is_fed_for_another_process() {
    let ear = Ear::new();
    let server = ear.start(&[("WATCHDOG_USEC", "10000"), ("WATCHDOG_PID", "1")], &[]);
    ear.expect("READY=1");
    assert_eq!(Session::open(server.address()).ping_status(), 200);
    assert_eq!(ear.hear(Duration::from_millis(100)), None);
}

#[test]
fn a_supervisor_that_is_gone_does_no_harm() {
    let mut command = command(&["--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", "/no/such/socket").env("WATCHDOG_USEC", "100000");
    let mut server = Server::launch(command);
    until("it says so", || server.log().contains("cannot be told"));
    assert_eq!(Session::open(server.address()).ping_status(), 200);
    assert!(server.is_running());
}

// --- Sockets that are handed over ---------------------------------------------------------------

/// The command that has `socket` as its descriptor 3 and knows of it.
fn handed(socket: OwnedFd, flags: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 </dev/null && LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]);
    command.args([env!("CARGO_BIN_EXE_moorline"), "serve"]).args(flags);
    let mut command = free_of_settings(command);
    command.stdin(Stdio::from(socket));
    command
}

fn socket() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("a bound socket has an address");
    (socket, address)
}

fn twin(socket: &TcpListener) -> OwnedFd {
    socket.try_clone().expect("a descriptor is free").into()
}

#[test]
fn a_socket_that_is_handed_over_serves_who_waits_in_it_on_every_shard() {
    for shards in ["1", "2", "4"] {
        let (socket, address) = socket();
        let mut early = Connection::open(address);
        early.send(post(&initialize("2025-11-25"), &[]));
        // What --listen says does not matter; the port is in the socket.
        let server = Server::launch(handed(twin(&socket), &["--shards", shards, "--listen", "192.0.2.1:1"]));
        assert_eq!(server.address(), address);
        assert_eq!(early.response("POST").status(), 200);
        let sessions: Vec<_> = (0..32).map(|_| Session::open(address)).collect();
        assert!(sessions.iter().all(|session| session.ping_status() == 200));
    }
}

#[test]
fn who_comes_while_nobody_serves_is_served_by_the_next_process() {
    let (socket, address) = socket();
    let mut first = Server::launch(handed(twin(&socket), &["--shards", "2"]));
    assert_eq!(Session::open(address).ping_status(), 200);
    first.signal(Signal::TERM);
    assert_eq!(first.exit_within(PATIENCE).code(), Some(0));
    let mut between = Connection::open(address);
    between.send(post(&initialize("2025-11-25"), &[]));
    let _second = Server::launch(handed(twin(&socket), &["--shards", "2"]));
    assert_eq!(between.response("POST").status(), 200);
}

#[test]
fn what_is_no_listening_socket_is_refused_in_one_line() {
    let (socket, address) = socket();
    let connected = std::net::TcpStream::connect(address).expect("it listens");
    drop(socket);
    for (descriptor, why) in [
        (OwnedFd::from(connected), "descriptor 3 is no listening TCP socket"),
        (UnixDatagram::unbound().expect("a socket").into(), "descriptor 3 is no listening TCP socket"),
        (std::fs::File::open("/dev/null").expect("it is there").into(), "LISTEN_FDS"),
    ] {
        let output = handed(descriptor, &[]).stderr(Stdio::piped()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(3), 1), "{text}");
        assert!(text.contains(why), "{text}");
    }
}
