//! SIGHUP: settings that change while the server runs, and files that change nothing.

use super::{
    events::EventStream,
    server::{Server, command},
    session::{Session, initialize},
    until,
};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// A server with a configuration file that can be written anew.
struct Configured {
    server: Server,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Configured {
    fn start(text: &str, flags: &[&str]) -> Configured {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let file = directory.path().join("moorline.toml");
        std::fs::write(&file, text).expect("a file in it");
        let server = Server::launch(with_file(&file, flags));
        Configured { server, file, _directory: directory }
    }

    /// Has it read `text`; returns the line of its log that says what came of it.
    fn reload(&self, text: &str) -> String {
        std::fs::write(&self.file, text).expect("the file can be written");
        let count = |log: &str| log.lines().filter(|line| line.contains("reloaded")).count();
        let before = count(&self.server.log());
        self.server.signal(Signal::HUP);
        until("it says what came of it", || count(&self.server.log()) > before);
        let log = self.server.log();
        log.lines().rfind(|line| line.contains("reloaded")).expect("just seen").to_owned()
    }

    /// The status of a request for `host`.
    fn status_for(&self, host: &str) -> u16 {
        let body = initialize("2025-11-25").to_string();
        let mut connection = self.server.connect();
        connection.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAccept: application/json, text/event-stream\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        connection.response("POST").status()
    }
}

fn with_file(file: &Path, flags: &[&str]) -> std::process::Command {
    let mut command = command(&["--listen", "127.0.0.1:0", "--config"]);
    command.arg(file).args(flags);
    command
}

/// Waits until `host` is answered with `status` on whatever shard a connection lands.
fn until_status(configured: &Configured, host: &str, status: u16) {
    until("all shards have the settings", || (0..16).all(|_| configured.status_for(host) == status));
}

#[test]
fn hosts_are_let_in_and_locked_out_without_a_stream_being_touched() {
    for shards in ["1", "4"] {
        let configured = Configured::start("", &["--shards", shards]);
        let session = Session::open(configured.server.address());
        let mut listener = session.listen();
        assert_eq!(configured.status_for("mcp.example.org"), 403);
        let line = configured.reload("allow-host = ['mcp.example.org', 'localhost']\n");
        assert!(line.contains("allow-host loopback -> mcp.example.org,localhost"), "{line}");
        assert!(line.contains("needs_restart=\"nothing\""), "{line}");
        until_status(&configured, "mcp.example.org", 200);
        configured.reload("");
        until_status(&configured, "mcp.example.org", 403);
        // The session is as it was, and so is its stream.
        session.notify();
        listener.message();
    }
}

#[test]
fn what_cannot_change_is_said_and_left_as_it_is() {
    let configured = Configured::start("keep-alive = '15s'\n", &[]);
    let line = configured.reload("keep-alive = '20s'\npath = '/other'\nmax-sessions = 1\n");
    assert!(line.contains("max-sessions 1000000 -> 1"), "{line}");
    assert!(line.contains("needs_restart=\"path /mcp -> /other, keep-alive 15s -> 20s\""), "{line}");
    assert_eq!(Session::open(configured.server.address()).ping_status(), 200);
    until_status(&configured, "localhost", 503);
}

#[test]
fn a_bad_file_says_why_and_changes_nothing() {
    let configured = Configured::start("allow-host = 'a.example'\n", &["--shards", "1"]);
    let file = configured.file.display().to_string();
    for (text, why) in [
        ("allow-host = 'b.example'\nretry = 5\n", format!("{file}:2: retry: ")),
        ("allow-host = 'b.example'\nallow-hosts = 'c'\n", format!("{file}:2: allow-hosts: unknown key")),
        ("allow-host = 'b.example\n", format!("{file}:1: ")),
        ("allow-host = 'b.example'\nmax-sessions = 0\n", "--max-sessions must be more than 0".to_owned()),
        (
            "allow-host = 'b.example'\nwrite-timeout = '3m'\nreplay-ttl = '1m'\n",
            format!("--write-timeout is from file {file}:2"),
        ),
        // Good by itself, but not with what stays until a restart.
        (
            "allow-host = 'b.example'\nwrite-timeout = '3m'\nreplay-ttl = '4m'\n",
            "waits for a restart".to_owned(),
        ),
    ] {
        let line = configured.reload(text);
        assert!(line.contains("settings not reloaded") && line.contains(&why), "{text}: {line}");
        assert_eq!((configured.status_for("a.example"), configured.status_for("b.example")), (200, 403));
    }
    std::fs::remove_file(&configured.file).expect("it is there");
    configured.server.signal(Signal::HUP);
    until("it misses the file", || configured.server.log().contains("cannot read the configuration file"));
    assert_eq!(configured.status_for("a.example"), 200);
}

#[test]
fn the_log_can_be_turned_up_and_down() {
    let configured = Configured::start("log-level = 'error'\n", &[]);
    let line = configured.reload("log-level = 'info'\n");
    assert!(line.contains("log-level error -> info"), "{line}");
    let line = configured.reload("log-level = 'off'\n");
    assert!(line.contains("log-level info -> off"), "{line}");
    // Off is off: of this reload nothing is seen, not even that it failed.
    let before = configured.server.log();
    std::fs::write(&configured.file, "log-level = 7\n").expect("the file can be written");
    configured.server.signal(Signal::HUP);
    assert_eq!(Session::open(configured.server.address()).ping_status(), 200);
    assert_eq!(configured.server.log(), before);
}

#[test]
fn flags_hold_against_a_file_that_changes() {
    let configured = Configured::start("", &["--allow-host", "typed.example"]);
    let line = configured.reload("allow-host = 'filed.example'\n");
    assert!(line.contains("changed=\"nothing\""), "{line}");
    assert_eq!((configured.status_for("typed.example"), configured.status_for("filed.example")), (200, 403));
}

#[test]
fn without_a_file_a_hangup_ends_nothing() {
    let mut server = Server::start(&[]);
    let session = Session::open(server.address());
    let listener: EventStream = session.listen();
    server.signal(Signal::HUP);
    until("it says so", || server.log().contains("settings reloaded"));
    assert_eq!(session.ping_status(), 200);
    assert!(server.is_running());
    server.signal(Signal::TERM);
    listener.until_end();
    assert_eq!(server.exit_within(super::PATIENCE).code(), Some(0));
}
