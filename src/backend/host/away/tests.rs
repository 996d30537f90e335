#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::super::{
    AskError, Context, Elicited, Failure, NoArguments, Prompt, Server, Tool,
    model::CreateMessage,
    rig::{Rig, call},
};
use super::*;
use crate::core::seam::{Ask, CallKey, ClientFeatures, Revision};
use crate::limits::PARKED_HANDLERS_MAX;
use schemars::JsonSchema;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const ALL: ClientFeatures = ClientFeatures::SAMPLING.with(ClientFeatures::FORMS).with(ClientFeatures::ROOTS);

#[derive(Debug, Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn greet(_: NoArguments, context: Context) -> Result<String, Failure> {
    context.progress(1.0, None, None);
    let Elicited::Accepted(Name { name }) = context.client().named("who").elicit("Who are you?").await?
    else {
        return Ok("Hello, whoever.".into());
    };
    context.progress(0.5, None, None);
    Ok(format!("Hello, {name}!"))
}

async fn steps(_: NoArguments, context: Context) -> Result<String, Failure> {
    let first: Elicited<Name> = context.client().elicit("First?").await?;
    let second: Elicited<Name> = context.client().elicit("Second?").await?;
    Ok(format!("{first:?} {second:?}"))
}

async fn both(_: NoArguments, context: Context) -> Result<String, Failure> {
    let client = context.client();
    let (elicited, roots) = (client.elicit::<Name>("Who?"), client.list_roots());
    let (elicited, roots) = tokio::join!(elicited, roots);
    Ok(format!("{:?} {}", elicited?, roots?.len()))
}

async fn later(_: NoArguments, context: Context) -> Result<String, Failure> {
    let asks = tokio::task::spawn_local(async move { context.client().list_roots().await });
    Ok(asks.await??.len().to_string())
}

async fn brief(_: NoArguments, context: Context) -> Result<String, Failure> {
    match context.client().within(Duration::from_secs(5)).list_roots().await {
        Err(AskError::TimedOut) => Ok("nobody answered".into()),
        other => Ok(other?.len().to_string()),
    }
}

async fn works(_: NoArguments, context: Context) -> &'static str {
    match context.unless_cancelled(tokio::time::sleep(Duration::from_secs(30))).await {
        Some(()) => "worked",
        None => "stopped",
    }
}

async fn confirms(_: NoArguments, context: Context) -> Result<String, Failure> {
    let confirmed: Elicited<Name> = context.client().named("sure").elicit("Sure?").await?;
    Ok(format!("{confirmed:?}"))
}

/// Asks first and becomes a task then.
async fn escalates(_: NoArguments, context: Context) -> Result<String, Failure> {
    let answer: Elicited<Name> = context.client().named("who").elicit("Who?").await?;
    context.start_task(MINUTE);
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(format!("{answer:?}"))
}

const MINUTE: Duration = Duration::from_secs(60);

fn server() -> Server {
    Server::builder("t", "1")
        .tool("greet", "", greet)
        .tool("steps", "", steps)
        .tool("both", "", both)
        .tool("later", "", later)
        .tool("brief", "", brief)
        .tool("sample", "", |_: NoArguments, context: Context| async move {
            context.client().create_message(CreateMessage::text("why?", 9)).await.map(|said| said.text())
        })
        .add_tool(Tool::new("works", "", works).as_task(MINUTE))
        .add_tool(Tool::new("confirms", "", confirms).as_task(MINUTE))
        .add_tool(Tool::new("escalates", "", escalates).needs_tasks())
        .add_tool(Tool::ready("at-once", "", |_: NoArguments, _| "done").as_task(MINUTE))
        .prompt(Prompt::new("asks", "", |_: NoArguments, context: Context| async move {
            context.client().list_roots().await.map(|roots| format!("{} roots", roots.len()))
        }))
        .otherwise(|_, context| async move {
            let failed = context.client().list_roots().await.unwrap_err();
            Err(service::invalid_params(failed))
        })
        .build()
}

/// A shard whose time stands still until it is told.
struct World {
    rig: Rig<Server>,
    runtime: Runtime,
    slot: u32,
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut rig = Rig::new(server());
        rig.client = ALL;
        World { rig, runtime, slot: 0 }
    }

    /// Makes a call and takes what it is answered at once.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.try_ask(method, params).unwrap()
    }

    fn try_ask(&mut self, method: &str, params: &Value) -> Result<Value, RpcError> {
        self.slot += 1;
        let slot = self.slot;
        self.inside(|rig| {
            rig.call_at(Revision::V2026_07_28, slot, method, Some(&params.to_string()));
            rig.poll();
        });
        self.answer(slot).expect("an answer")
    }

    fn inside(&mut self, run: impl FnOnce(&mut Rig<Server>)) {
        let _inside = self.runtime.enter();
        run(&mut self.rig);
    }

    /// The answer of a call, without the notifications before it.
    fn answer(&mut self, slot: u32) -> Option<Result<Value, RpcError>> {
        let told = self.rig.take();
        told.into_iter().find_map(|tell| match tell {
            Tell::Respond(key, answer) if key == call(slot) => {
                Some(answer.map(|json| serde_json::from_slice(&json).unwrap()))
            }
            _ => None,
        })
    }

    fn tool(&mut self, name: &str) -> Value {
        self.ask("tools/call", &json!({ "name": name }))
    }

    /// Comes back with answers to an `input_required`.
    fn back(&mut self, name: &str, asked: &Value, answers: Value) -> Result<Value, RpcError> {
        let state = asked["requestState"].as_str().unwrap();
        let params = json!({"name": name, "inputResponses": answers, "requestState": state});
        self.try_ask("tools/call", &params)
    }

    fn pass(&mut self, time: Duration) {
        self.runtime.block_on(tokio::time::advance(time));
        self.inside(Rig::poll);
        // What was cancelled or woken by that goes on.
        self.inside(Rig::poll);
    }

    /// A call of a client that knows tasks.
    fn with_tasks(&mut self, method: &str, mut params: Value) -> Result<Value, RpcError> {
        params["_meta"] = json!({"io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }});
        self.try_ask(method, &params)
    }

    fn task(&mut self, id: &Value) -> Value {
        self.with_tasks("tasks/get", json!({ "taskId": id })).unwrap()
    }
}

fn accepted(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

fn text(result: &Value) -> &str {
    assert_eq!(result["resultType"], "complete", "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

// --- Rounds ---------------------------------------------------------------------------------------

#[test]
fn a_handler_waits_for_its_client_to_come_back() {
    let mut world = World::new();
    let asked = world.tool("greet");
    assert_eq!(asked["resultType"], "input_required");
    assert!(asked.get("ttlMs").is_none() && asked["_meta"].is_object());
    let request = &asked["inputRequests"]["who"];
    assert_eq!(
        (&request["method"], &request["params"]["message"]),
        (&json!("elicitation/create"), &json!("Who are you?"))
    );
    assert_eq!((world.rig.host.parked_count(), world.rig.host.pending_count()), (1, 0));
    let said = world.back("greet", &asked, json!({"who": accepted("Ada"), "more": {}})).unwrap();
    assert_eq!(text(&said), "Hello, Ada!");
    assert_eq!((world.rig.host.parked_count(), world.rig.host.waiting_count()), (0, 0));
}

#[test]
fn what_a_handler_says_goes_to_the_call_of_the_round() {
    let mut world = World::new();
    world.inside(|rig| rig.call_at(Revision::V2026_07_28, 1, "tools/call", Some(r#"{"name":"greet"}"#)));
    let told = world.rig.take();
    let [Tell::Notify(first, _), Tell::Respond(_, Ok(asked))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*first, call(1));
    let asked: Value = serde_json::from_slice(asked).unwrap();
    let params = json!({"name": "greet", "requestState": asked["requestState"], "inputResponses": {"who": accepted("Ada")}});
    world.inside(|rig| rig.call_at(Revision::V2026_07_28, 2, "tools/call", Some(&params.to_string())));
    let told = world.rig.take();
    let [Tell::Notify(second, _), Tell::Respond(..)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*second, call(2), "and less progress than in the round before is more than none");
}

#[test]
fn each_round_has_a_state_of_its_own() {
    let mut world = World::new();
    let first = world.tool("steps");
    assert_eq!(first["inputRequests"]["elicitation-1"]["params"]["message"], "First?");
    let second = world.back("steps", &first, json!({"elicitation-1": accepted("a")})).unwrap();
    assert_eq!(second["inputRequests"]["elicitation-2"]["params"]["message"], "Second?");
    assert_ne!(first["requestState"], second["requestState"]);
    let again = world.back("steps", &first, json!({"elicitation-1": accepted("a")})).unwrap_err();
    assert_eq!(again.code, -32602, "a state is good once");
    let last = world.back("steps", &second, json!({"elicitation-2": accepted("b")})).unwrap();
    assert!(text(&last).contains(r#"name: "b""#));
}

#[test]
fn questions_at_one_time_go_out_together_and_may_be_answered_apart() {
    let mut world = World::new();
    let asked = world.tool("both");
    let names: Vec<_> = asked["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["elicitation-1", "roots-2"]);
    let rest = world.back("both", &asked, json!({"roots-2": {"roots": []}})).unwrap();
    assert_eq!(rest["resultType"], "input_required");
    assert_eq!(rest["inputRequests"].as_object().unwrap().len(), 1);
    let none = world.back("both", &rest, json!({"wrong": {}})).unwrap();
    assert_eq!(none["inputRequests"], rest["inputRequests"], "asks again");
    let said = world.back("both", &none, json!({"elicitation-1": {"action": "decline"}})).unwrap();
    assert_eq!(text(&said), "Declined 0");
}

#[test]
fn answers_may_come_with_the_first_round() {
    let mut world = World::new();
    let said = world
        .ask("tools/call", &json!({"name": "greet", "inputResponses": {"who": accepted("Ada"), "x": {}}}));
    assert_eq!(text(&said), "Hello, Ada!");
    let asked = world.ask("tools/call", &json!({"name": "greet", "inputResponses": {"wrong": {}}}));
    assert_eq!(asked["resultType"], "input_required");
}

#[test]
fn malformed_answers_are_errors_and_cost_no_state() {
    let mut world = World::new();
    let asked = world.tool("greet");
    for answers in [json!(null), json!([]), json!({"who": 12345})] {
        assert_eq!(world.back("greet", &asked, answers).unwrap_err().code, -32602);
    }
    let malformed = world.back("greet", &asked, json!({"who": {"action": "maybe"}})).unwrap_err();
    assert_eq!(malformed.code, -32602);
    assert_eq!(world.rig.host.parked_count(), 0, "the handler has seen it");
}

#[test]
fn a_state_is_of_its_request_alone() {
    let mut world = World::new();
    let asked = world.tool("greet");
    let state = asked["requestState"].as_str().unwrap().to_owned();
    for (name, state) in
        [("steps", state.clone()), ("greet", format!("{state}-TAMPERED")), ("greet", "x".into())]
    {
        let params = json!({"name": name, "requestState": state, "inputResponses": {}});
        assert_eq!(world.try_ask("tools/call", &params).unwrap_err().code, -32602);
    }
    assert!(world.back("greet", &asked, json!({"who": accepted("Ada")})).is_ok());
}

#[test]
fn prompts_ask_and_other_methods_do_not() {
    let mut world = World::new();
    let asked = world.ask("prompts/get", &json!({"name": "asks"}));
    let params = json!({"name": "asks", "requestState": asked["requestState"], "inputResponses": {"roots-1": {"roots": []}}});
    assert_eq!(world.ask("prompts/get", &params)["messages"][0]["content"]["text"], "0 roots");
    let refused = world.try_ask("x/y", &json!({})).unwrap_err();
    assert!(refused.message.contains("anything by this method"), "{}", refused.message);
}

#[test]
fn what_a_client_did_not_declare_is_named() {
    let mut world = World::new();
    world.rig.client = ClientFeatures::default();
    let error = world.try_ask("tools/call", &json!({"name": "sample"})).unwrap_err();
    assert_eq!(error.code, -32021);
    assert_eq!(error.data.as_deref(), Some(r#"{"requiredCapabilities":{"sampling":{}}}"#));
}

#[test]
fn a_task_of_a_handlers_own_may_ask() {
    let mut world = World::new();
    let World { rig, runtime, .. } = &mut world;
    let local = tokio::task::LocalSet::new();
    let asked = runtime.block_on(local.run_until(async {
        rig.call_at(Revision::V2026_07_28, 1, "tools/call", Some(r#"{"name":"later"}"#));
        tokio::task::yield_now().await;
        rig.poll();
        rig.answer(1).unwrap()
    }));
    assert_eq!(asked["inputRequests"]["roots-1"]["method"], "roots/list");
}

#[test]
fn a_client_that_does_not_come_back_is_given_up() {
    let mut world = World::new();
    let asked = world.tool("greet");
    world.pass(Duration::from_millis(crate::limits::ASK_TIMEOUT_MS + PARKED_GRACE_MS + 1000));
    assert_eq!(
        (world.rig.host.parked_count(), world.rig.host.waiting_count()),
        (0, 0),
        "nor does its handler wait"
    );
    assert_eq!(world.back("greet", &asked, json!({"who": accepted("Ada")})).unwrap_err().code, -32602);
}

#[test]
fn a_client_that_is_late_learns_what_came_of_it() {
    let mut world = World::new();
    let asked = world.tool("brief");
    world.pass(Duration::from_secs(6));
    let said = world.back("brief", &asked, json!({"roots-1": {"roots": []}})).unwrap();
    assert_eq!(text(&said), "nobody answered");
}

#[test]
fn the_oldest_handler_makes_room() {
    let mut world = World::new();
    let oldest = world.tool("greet");
    let second = world.tool("greet");
    for _ in 1..PARKED_HANDLERS_MAX {
        world.tool("greet");
    }
    assert_eq!(world.rig.host.parked_count(), PARKED_HANDLERS_MAX);
    assert!(world.back("greet", &oldest, json!({"who": accepted("Ada")})).is_err());
    assert!(world.back("greet", &second, json!({"who": accepted("Ada")})).is_ok());
}

#[test]
fn a_client_that_leaves_cancels_the_round_it_is_in() {
    let mut world = World::new();
    let key: CallKey = call(9);
    world.inside(|rig| {
        rig.call_at(Revision::V2026_07_28, 9, "tools/call", Some(r#"{"name":"works"}"#));
        rig.ask(Ask::Cancel(key));
        rig.poll();
    });
    assert_eq!(text(&world.answer(9).unwrap().unwrap()), "stopped");
}

// --- Tasks ----------------------------------------------------------------------------------------

#[test]
fn a_call_becomes_a_task_for_clients_that_know_them() {
    let mut world = World::new();
    let created = world.with_tasks("tools/call", json!({"name": "works"})).unwrap();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    assert!(created.get("requestState").is_none() && created["_meta"].is_object());
    let id = created["taskId"].clone();
    assert_eq!((&world.task(&id)["status"], world.rig.host.pending_count()), (&json!("working"), 0));
    world.pass(Duration::from_secs(31));
    let done = world.task(&id);
    assert_eq!(
        (&done["status"], &done["result"]["content"][0]["text"]),
        (&json!("completed"), &json!("worked"))
    );
    assert_eq!(
        (&done["resultType"], &done["result"]["resultType"]),
        (&json!("complete"), &json!("complete"))
    );
}

#[test]
fn a_call_stays_one_where_it_may() {
    let mut world = World::new();
    assert_eq!(text(&world.with_tasks("tools/call", json!({"name": "at-once"})).unwrap()), "done");
    world.inside(|rig| rig.call_at(Revision::V2026_07_28, 1, "tools/call", Some(r#"{"name":"works"}"#)));
    world.pass(Duration::from_secs(31));
    assert_eq!(text(&world.answer(1).unwrap().unwrap()), "worked");
}

#[test]
fn a_task_asks_whoever_looks_after_it() {
    let mut world = World::new();
    let created = world.with_tasks("tools/call", json!({"name": "confirms"})).unwrap();
    let id = &created["taskId"];
    assert_eq!((&created["resultType"], created.get("inputRequests")), (&json!("task"), None));
    assert_eq!(world.task(id)["inputRequests"]["sure"]["method"], "elicitation/create");
    let update = |answers: Value| json!({"taskId": id, "inputResponses": answers});
    let ack = world.with_tasks("tasks/update", update(json!({"wrong": {}}))).unwrap();
    assert_eq!(ack.as_object().unwrap().keys().collect::<Vec<_>>(), ["_meta", "resultType"]);
    assert_eq!(world.task(id)["status"], "input_required");
    for answers in [json!(null), json!({"sure": 1})] {
        assert_eq!(world.with_tasks("tasks/update", update(answers)).unwrap_err().code, -32602);
    }
    world.with_tasks("tasks/update", update(json!({"sure": accepted("yes")}))).unwrap();
    world.pass(Duration::ZERO);
    assert_eq!(world.task(id)["status"], "completed");
}

#[test]
fn a_cancelled_task_says_so_and_its_handler_hears_it() {
    let mut world = World::new();
    let created = world.with_tasks("tools/call", json!({"name": "works"})).unwrap();
    let id = json!({"taskId": created["taskId"]});
    for _ in 0..2 {
        assert_eq!(world.with_tasks("tasks/cancel", id.clone()).unwrap()["resultType"], "complete");
        assert_eq!(world.task(&id["taskId"])["status"], "cancelled");
        world.pass(Duration::ZERO);
    }
    assert_eq!(world.rig.host.tasks_here, 0);
}

#[test]
fn tasks_are_for_those_who_declare_them() {
    let mut world = World::new();
    for (method, params) in [
        ("tasks/get", json!({"taskId": "x"})),
        ("tasks/update", json!({"taskId": "x", "inputResponses": {}})),
        ("tasks/cancel", json!({"taskId": "x"})),
        ("tools/call", json!({"name": "escalates"})),
    ] {
        let error = world.try_ask(method, &params).unwrap_err();
        assert_eq!(error.code, -32021, "{method}");
        let required = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert_eq!(error.data.as_deref(), Some(required));
    }
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(world.with_tasks(method, json!({"taskId": "x"})).unwrap_err().code, -32602);
    }
    for method in ["tasks/result", "tasks/list"] {
        let mut rig = Rig::new(Server::builder("t", "1").tasks().build());
        rig.call_at(Revision::V2026_07_28, 1, method, Some("{}"));
        assert_eq!(rig.refusal(1).0, -32601);
    }
}

#[test]
fn a_handler_may_ask_before_it_becomes_a_task() {
    let mut world = World::new();
    let asked = world.with_tasks("tools/call", json!({"name": "escalates"})).unwrap();
    assert_eq!(asked["resultType"], "input_required");
    assert!(asked.get("taskId").is_none());
    let back = json!({
        "name": "escalates", "requestState": asked["requestState"], "inputResponses": {"who": accepted("Ada")},
    });
    let created = world.with_tasks("tools/call", back).unwrap();
    assert_eq!(created["resultType"], "task");
    world.pass(Duration::from_secs(2));
    let text = world.task(&created["taskId"])["result"]["content"][0]["text"].to_string();
    assert!(text.contains("Ada"), "{text}");
}

#[test]
fn a_task_ends_with_its_time() {
    let mut world = World::new();
    let created = world.with_tasks("tools/call", json!({"name": "confirms"})).unwrap();
    world.pass(MINUTE + Duration::from_secs(1));
    let id = json!({"taskId": created["taskId"]});
    assert_eq!(world.with_tasks("tasks/get", id).unwrap_err().code, -32602);
    assert_eq!((world.rig.host.tasks_here, world.rig.host.waiting_count()), (0, 0));
}
