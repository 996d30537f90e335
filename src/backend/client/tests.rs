#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::rig::{Rig, call, session};
use super::super::{Context, Reply, Request, ServerInfo, Service, service};
use super::*;
use crate::core::seam::{Ask, ServerRequestId};
use std::cell::RefCell;

/// Asks its client what the method says, and answers with what came of it.
#[derive(Default)]
struct Curious {
    kept: Rc<RefCell<Vec<Client>>>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Person {
    name: String,
    age: Option<u8>,
}

impl Service for Curious {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("curious", "1")
    }

    async fn call(&self, request: Request, context: Context) -> Result<Reply, RpcError> {
        let client = context.client().within(Duration::from_millis(250));
        self.kept.borrow_mut().push(client.clone());
        let text = match request.method.as_str() {
            "sample" => {
                let question = CreateMessage::text("why?", 9).include_context(IncludeContext::ThisServer);
                client.create_message(question).await.map(|said| said.text())
            }
            "sample with tools" => {
                let question = CreateMessage::text("why?", 9).tools(Vec::new());
                client.create_message(question).await.map(|said| said.text())
            }
            "form" => client.elicit::<Person>("Who?").await.map(|answer| format!("{answer:?}")),
            "url" => {
                let url = UrlElicitation::new("e1", "Sign in", "https://example.com/");
                client.elicit_url(&url).await.map(|answer| format!("{answer:?}"))
            }
            "roots" => client.list_roots().await.map(|roots| format!("{} {:?}", roots[0].uri, roots[0].name)),
            "ping" => client.ping().await.map(|()| "there".to_owned()),
            _ => return Err(service::method_not_found(&request.method)),
        };
        Reply::of(&text.map_err(|error| error.to_string()))
    }
}

const ALL: ClientFeatures = ClientFeatures::SAMPLING
    .with(ClientFeatures::SAMPLING_TOOLS)
    .with(ClientFeatures::FORMS)
    .with(ClientFeatures::URLS)
    .with(ClientFeatures::ROOTS);

/// The request that a call of that method sends.
fn asked(rig: &mut Rig<Curious>, method: &str) -> ServerRequest {
    rig.call_of(ALL, Revision::NEWEST_WITH_SESSIONS, 7, method, None);
    let mut told = rig.take();
    assert_eq!(told.len(), 1, "{told:?}");
    let Some(Tell::Request(request)) = told.pop() else { panic!("{told:?}") };
    assert_eq!((request.session, request.call, request.timeout_ms), (session(0), Some(call(7)), 250));
    request
}

fn params(request: &ServerRequest) -> Value {
    serde_json::from_slice(request.params.as_deref().unwrap()).unwrap()
}

fn answer(rig: &mut Rig<Curious>, id: ServerRequestId, answer: Result<Value, RpcError>) -> Value {
    rig.ask(Ask::Answered(id, answer.map(|json| json.to_string().into())));
    rig.poll();
    rig.answer(7).unwrap()
}

/// What a call comes to if its client answers so.
fn outcome(method: &str, said: Value) -> Value {
    let mut rig = Rig::new(Curious::default());
    let request = asked(&mut rig, method);
    let outcome = answer(&mut rig, request.id, Ok(said));
    assert_eq!(rig.host.waiting_count(), 0);
    outcome
}

#[test]
fn a_model_is_asked_and_answers() {
    let mut rig = Rig::new(Curious::default());
    let request = asked(&mut rig, "sample");
    assert_eq!(request.method, ServerMethod::CreateMessage);
    let message = json!({"role": "user", "content": {"type": "text", "text": "why?"}});
    assert_eq!(params(&request), json!({"messages": [message], "maxTokens": 9}), "no undeclared context");
    let said = json!({"role": "assistant", "content": {"type": "text", "text": "because"}, "model": "m"});
    assert_eq!(answer(&mut rig, request.id, Ok(said)), json!({"Ok": "because"}));
}

#[test]
fn a_form_is_filled_in_or_not() {
    let mut rig = Rig::new(Curious::default());
    let request = asked(&mut rig, "form");
    assert_eq!(request.method, ServerMethod::Elicit);
    let schema = &params(&request)["requestedSchema"];
    assert_eq!(schema["properties"]["name"], json!({"type": "string"}));
    assert_eq!(schema["required"], json!(["name"]));
    let said = json!({"action": "accept", "content": {"name": "Ada", "age": 36}});
    assert_eq!(
        answer(&mut rig, request.id, Ok(said)),
        json!({"Ok": r#"Accepted(Person { name: "Ada", age: Some(36) })"#})
    );
    assert_eq!(outcome("form", json!({"action": "decline"})), json!({"Ok": "Declined"}));
    assert_eq!(outcome("form", json!({"action": "cancel", "content": null})), json!({"Ok": "Dismissed"}));
}

#[test]
fn a_malformed_answer_is_an_error() {
    for (said, reason) in [
        (json!({"action": "accept"}), "no `content`"),
        (json!({"action": "accept", "content": {"name": 3}}), "invalid type"),
        (json!({"action": "maybe"}), "`action`"),
        (json!([]), "expected an object"),
    ] {
        let outcome = outcome("form", said.clone());
        let error = outcome["Err"].as_str().unwrap();
        assert!(
            error.starts_with("the client's answer is malformed") && error.contains(reason),
            "{said} {error}"
        );
    }
}

#[test]
fn urls_roots_and_pings_are_asked_for() {
    let mut rig = Rig::new(Curious::default());
    let request = asked(&mut rig, "url");
    assert_eq!(
        params(&request),
        json!({"mode": "url", "elicitationId": "e1", "message": "Sign in", "url": "https://example.com/"})
    );
    assert_eq!(answer(&mut rig, request.id, Ok(json!({"action": "accept"}))), json!({"Ok": "Accepted(())"}));
    let said = json!({"roots": [{"uri": "file:///a", "name": "A"}]});
    assert_eq!(outcome("roots", said), json!({"Ok": "file:///a Some(\"A\")"}));
    assert_eq!(outcome("ping", json!({})), json!({"Ok": "there"}));
}

#[test]
fn errors_and_time_outs_are_told_apart() {
    for (code, message) in
        [(-32001, "the client did not answer in time"), (-1, "the client failed: User rejected")]
    {
        let mut rig = Rig::new(Curious::default());
        let request = asked(&mut rig, "ping");
        let error = service::error(code, "User rejected");
        assert_eq!(answer(&mut rig, request.id, Err(error)), json!({ "Err": message }));
    }
}

#[test]
fn what_a_client_does_not_know_is_not_sent() {
    for (client, revision, method) in [
        (ClientFeatures::default(), Revision::NEWEST_WITH_SESSIONS, "sample"),
        (ClientFeatures::SAMPLING, Revision::NEWEST_WITH_SESSIONS, "sample with tools"),
        (ALL, Revision::V2025_06_18, "sample with tools"),
        (ClientFeatures::URLS, Revision::NEWEST_WITH_SESSIONS, "form"),
        (ALL, Revision::V2025_03_26, "form"),
        (ClientFeatures::FORMS, Revision::NEWEST_WITH_SESSIONS, "url"),
        (ALL, Revision::V2025_06_18, "url"),
        (ClientFeatures::SAMPLING, Revision::NEWEST_WITH_SESSIONS, "roots"),
    ] {
        let mut rig = Rig::new(Curious::default());
        rig.call_of(client, revision, 7, method, None);
        let said = rig.answer(7).unwrap();
        assert!(
            said["Err"].as_str().unwrap().starts_with("the client cannot be asked for"),
            "{method}: {said}"
        );
    }
}

#[test]
fn context_is_left_to_clients_that_declared_it() {
    for (client, revision, is_there) in [
        (ALL, Revision::NEWEST_WITH_SESSIONS, false),
        (ALL.with(ClientFeatures::SAMPLING_CONTEXT), Revision::NEWEST_WITH_SESSIONS, true),
        (ALL, Revision::V2025_06_18, true),
    ] {
        let mut rig = Rig::new(Curious::default());
        rig.call_of(client, revision, 7, "sample", None);
        let Some(Tell::Request(request)) = rig.take().pop() else { panic!("nothing was asked") };
        assert_eq!(params(&request).get("includeContext").is_some(), is_there, "{revision:?}");
    }
}

#[test]
fn a_cancelled_call_waits_no_longer_and_a_late_answer_is_forgotten() {
    let mut rig = Rig::new(Curious::default());
    let request = asked(&mut rig, "ping");
    assert_eq!(rig.host.waiting_count(), 1);
    rig.ask(Ask::Cancel(call(7)));
    rig.poll();
    assert_eq!(rig.answer(7).unwrap(), json!({"Err": "the call is over"}));
    assert_eq!(rig.host.waiting_count(), 0);
    rig.ask(Ask::Answered(request.id, Ok("{}".into())));
    rig.ask(Ask::Answered(ServerRequestId(99), Ok("{}".into())));
    rig.poll();
    assert!(rig.take().is_empty());
}

#[test]
fn a_client_kept_beyond_its_call_asks_nothing() {
    let curious = Curious::default();
    let kept = Rc::clone(&curious.kept);
    let mut rig = Rig::new(curious);
    let request = asked(&mut rig, "ping");
    answer(&mut rig, request.id, Ok(json!({})));
    let client = kept.borrow_mut().pop().unwrap();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert_eq!(pin!(client.ping()).poll(&mut cx), Poll::Ready(Err(AskError::CallOver)));
    rig.poll();
    assert!(rig.take().is_empty());
}
