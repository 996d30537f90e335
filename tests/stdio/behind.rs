//! A server with a child behind it, and a way to find every process that comes of it.

use super::{
    PATIENCE,
    server::Server,
    session::{Session, answer, tool_call},
    until,
    wire::Connection,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// A server whose children carry a mark in their environment, which their own children inherit.
pub(crate) struct Behind {
    pub(crate) server: Server,
    mark: String,
}

impl Behind {
    /// `child.py` behind a server with these flags.
    pub(crate) fn start(flags: &[&str]) -> Behind {
        let script = script();
        Behind::start_command(flags, &["python3", &script])
    }

    /// Any program behind a server with these flags.
    pub(crate) fn start_command(flags: &[&str], command: &[&str]) -> Behind {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("MARK_OF_TEST={}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let server = Server::start(&[flags, &["--child-env", &mark, "--"], command].concat());
        Behind { server, mark }
    }

    /// A new session.
    pub(crate) fn session(&self) -> Session {
        Session::open(self.server.address())
    }

    /// Processes that run because of this server.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_marked = |id: &i32| {
            // One that is ending has no environment any more, and cannot do anything either.
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == self.mark.as_bytes())
        };
        ids.filter(is_marked).filter_map(Pid::from_raw).collect()
    }

    /// Waits until that many processes run.
    pub(crate) fn until_processes(&self, count: usize) {
        until(&format!("{count} processes"), || self.processes().len() == count);
    }

    /// Waits until none of the server's children is a zombie. Each is one for a moment between its end and its burial.
    pub(crate) fn until_all_reaped(&self) {
        until("all are reaped", || self.zombies() == 0);
    }

    /// Zombies among the children of the server: processes that it has not reaped.
    fn zombies(&self) -> usize {
        let server = self.server.id().to_string();
        let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
        let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        let fields = |stat: &str| {
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        };
        stats
            .filter_map(|stat| fields(&stat))
            .filter(|(state, parent)| state == "Z" && *parent == server)
            .count()
    }

    /// Stops the server, which must end in good order and leave nothing behind.
    pub(crate) fn stop(mut self) {
        self.server.signal(Signal::TERM);
        self.until_gone();
    }

    /// Waits until the server, told to stop, has ended in good order, and all that came of it too. What was killed may
    /// outlive its killer for a moment: the kernel takes it down in its own time.
    pub(crate) fn until_gone(&mut self) {
        assert_eq!(self.server.exit_within(PATIENCE).code(), Some(0));
        self.until_processes(0);
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// The path of `child.py`.
pub(crate) fn script() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/child.py");
    path.to_str().expect("a path of text").to_owned()
}

/// Requests that both eras have: method, params, and a member of the result.
pub(crate) fn requests_of_both_eras() -> [(&'static str, Value, &'static str); 5] {
    [
        ("tools/list", json!({}), "tools"),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "hello"}}), "content"),
        ("prompts/get", json!({"name": "p"}), "messages"),
        ("resources/read", json!({"uri": "a://b"}), "contents"),
        ("completion/complete", json!({"ref": {}, "argument": {}}), "completion"),
    ]
}

/// What a tool answered, as the value that it gave.
pub(crate) fn value(session: &Session, tool: &str, arguments: &Value) -> Value {
    value_of(&session.call(tool, arguments))
}

/// The value in an answer.
pub(crate) fn value_of(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"));
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Sends a call and leaves its answer for later.
pub(crate) fn begin(session: &Session, id: Value, tool: &str, arguments: &Value) -> Connection {
    let mut connection = Connection::open(session.address());
    connection.send(session.post_bytes(&tool_call(id, tool, arguments)));
    connection
}

/// The answer to a call that was begun.
pub(crate) fn finish(mut connection: Connection) -> Value {
    answer(&connection.response("POST"))
}

/// `notifications/cancelled` for the request of that id.
pub(crate) fn cancellation(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}
