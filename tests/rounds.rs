//! Requests of 2026-07-28 in several rounds, and tasks, on a server of four shards: whichever shard a client's next connection
//! lands on, it finds what an earlier one began.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use moorline::backend::{Context, Elicited, Failure, Host, NoArguments, Server as Service, Tasks, Tool};
use moorline::config::{Config, Machine};
use moorline::server::{RunError, Server, ShutdownHandle};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn greet(_: NoArguments, context: Context) -> Result<String, Failure> {
    let answer = context.client().named("who").elicit("Who are you?").await?;
    Ok(match answer {
        Elicited::Accepted(Name { name }) => format!("Hello, {name}!"),
        Elicited::Declined | Elicited::Dismissed => "Hello, whoever.".into(),
    })
}

fn service() -> Service {
    Service::builder("rounds", "1")
        .tool("greet", "Asks for a name.", greet)
        .add_tool(Tool::new("greet-later", "The same as a task.", greet).as_task(Duration::from_secs(60)))
        .build()
}

// --- The server and its clients -------------------------------------------------------------------

struct Running {
    address: SocketAddr,
    shutdown: ShutdownHandle,
    thread: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start() -> Self {
        let machine = Machine::read();
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let config = Config { listen, shards: 4, connections_max: 256, ..Config::for_machine(&machine) };
        let server = Server::bind(config.validated(&machine).unwrap().server().unwrap()).unwrap();
        let (address, shutdown) = (server.addresses()[0], server.shutdown_handle());
        let tasks = Tasks::default();
        let run = move || server.run(move |shard| Host::on(shard, tasks.clone(), service()));
        Running { address, shutdown, thread: thread::spawn(run) }
    }

    fn stop(self) {
        self.shutdown.stop();
        self.thread.join().unwrap().unwrap();
    }

    /// The result of a request on a connection of its own.
    fn ask(&self, method: &str, params: Value) -> Value {
        let reply = self.exchange(method, params);
        assert_eq!(reply.get("error"), None, "{method}");
        reply["result"].clone()
    }

    fn exchange(&self, method: &str, mut params: Value) -> Value {
        let name = params.get("name").or(params.get("taskId")).and_then(Value::as_str).unwrap().to_owned();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
            },
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = [
            "POST /mcp HTTP/1.1".to_owned(),
            "Host: localhost".into(),
            "Connection: close".into(),
            "Content-Type: application/json".into(),
            "Accept: application/json, text/event-stream".into(),
            "MCP-Protocol-Version: 2026-07-28".into(),
            format!("Mcp-Method: {method}"),
            format!("Mcp-Name: {name}"),
            format!("Content-Length: {}", body.len()),
        ];
        write!(stream, "{}\r\n\r\n{body}", head.join("\r\n")).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (_, body) = reply.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"))
    }
}

fn shard_of(asked: &Value) -> String {
    asked["requestState"].as_str().unwrap().split('.').nth(1).unwrap().to_owned()
}

fn ada() -> Value {
    json!({"who": {"action": "accept", "content": {"name": "Ada"}}})
}

// --- Tests ----------------------------------------------------------------------------------------

#[test]
fn a_client_may_come_back_on_any_connection() {
    let server = Running::start();
    let mut shards = BTreeSet::new();
    for _ in 0..48 {
        let asked = server.ask("tools/call", json!({"name": "greet"}));
        shards.insert(shard_of(&asked));
        let back = json!({"name": "greet", "requestState": asked["requestState"], "inputResponses": ada()});
        let said = server.ask("tools/call", back.clone());
        assert_eq!(said["content"][0]["text"], "Hello, Ada!");
        assert_eq!(server.exchange("tools/call", back)["error"]["code"], -32602, "a second time");
    }
    assert!(shards.len() > 1, "all calls on one shard of four");
    server.stop();
}

#[test]
fn a_state_that_names_another_shard_is_refused_there() {
    let server = Running::start();
    let asked = server.ask("tools/call", json!({"name": "greet"}));
    let (own, state) = (shard_of(&asked), asked["requestState"].as_str().unwrap());
    for shard in (0..4).map(|shard| shard.to_string()).chain(["9".to_owned()]).filter(|shard| *shard != own) {
        let state = state.replacen(&format!(".{own}."), &format!(".{shard}."), 1);
        let back = json!({"name": "greet", "requestState": state, "inputResponses": ada()});
        assert_eq!(server.exchange("tools/call", back)["error"]["code"], -32602, "shard {shard}");
    }
    server.stop();
}

#[test]
fn a_task_is_known_wherever_a_client_asks() {
    let server = Running::start();
    for _ in 0..16 {
        let id = server.ask("tools/call", json!({"name": "greet-later"}))["taskId"].clone();
        assert_eq!(server.ask("tasks/get", json!({"taskId": id}))["status"], "input_required");
        server.ask("tasks/update", json!({"taskId": id, "inputResponses": ada()}));
        let patience = Instant::now() + Duration::from_secs(10);
        let task = loop {
            let task = server.ask("tasks/get", json!({"taskId": id}));
            if task["status"] != "working" || Instant::now() > patience {
                break task;
            }
        };
        assert_eq!(task["result"]["content"][0]["text"], "Hello, Ada!", "{task}");
    }
    server.stop();
}
