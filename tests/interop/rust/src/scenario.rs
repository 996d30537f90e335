//! The scenario of each era.

use crate::{
    checks::{Checks, Outcome, equal, settles_at},
    client::{
        Era, LOG, PROGRESS, PROMPTS, QUESTION, RESOURCES, Running, TOOLS, call, connect, everything, text,
    },
};
use rmcp::{
    ServiceError,
    model::{ReadResourceRequestParams, RequestMetaObject, ServerNotification},
};
use serde_json::json;
use std::{process::ExitCode, time::Duration};

const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// 2026-07-28.
pub async fn modern(url: &str, fixtures: &str) -> ExitCode {
    let mut checks = Checks::new("rmcp-modern");
    let Some(main) = opened(&mut checks, url, Era::Modern).await else { return checks.finish() };
    shared(&mut checks, &main).await;
    checks.check("listen, and each published change once", listen(&main)).await;
    checks.check("the level of logs is a matter of the request", logs(fixtures)).await;
    checks.check("a question to the user comes as input_required", elicitation(fixtures)).await;
    checks.check("resources", resources(fixtures)).await;
    checks.finish()
}

/// 2025-11-25.
pub async fn legacy(url: &str) -> ExitCode {
    let mut checks = Checks::new("rmcp-legacy");
    let Some(main) = opened(&mut checks, url, Era::Legacy).await else { return checks.finish() };
    shared(&mut checks, &main).await;
    checks.check("notifications arrive exactly once", notifications(&main)).await;
    checks.check("leaving", async { Ok(main.cancel().await.map(drop)?) }).await;
    checks.finish()
}

async fn opened(checks: &mut Checks, url: &str, era: Era) -> Option<Running> {
    let mut main = None;
    let connected = connect(url, era).await.map(|client| main = Some(client));
    checks.check("connect", std::future::ready(connected)).await;
    main
}

async fn shared(checks: &mut Checks, main: &Running) {
    checks.check("list tools", list_tools(main)).await;
    checks.check("call", call_tools(main)).await;
    checks.check("unknown tool is an error", call_unknown(main)).await;
    checks.check("progress", progress(main)).await;
    checks.check("a call that is given up", give_up(main)).await;
}

async fn list_tools(main: &Running) -> Outcome {
    let mut names: Vec<String> =
        main.list_all_tools().await?.into_iter().map(|tool| tool.name.into_owned()).collect();
    names.sort();
    equal(names, ["add", "echo", "notify", "slow"].map(String::from).to_vec(), "tool names")
}

async fn call_tools(main: &Running) -> Outcome {
    let message = "Grüße, 世界 \u{2028} \"quoted\"";
    let echo = main.call_tool(call("echo", json!({ "message": message }))).await?;
    equal(text(&echo).as_str(), message, "echo")?;
    let sum = main.call_tool(call("add", json!({ "a": 19, "b": 23 }))).await?;
    equal(text(&sum).as_str(), "42", "add")
}

async fn call_unknown(main: &Running) -> Outcome {
    match main.call_tool(call("no-such-tool", json!({}))).await {
        Err(ServiceError::McpError(error)) => equal(error.code.0, -32602, "code"),
        other => Err(format!("{other:?}").into()),
    }
}

async fn progress(main: &Running) -> Outcome {
    let before = main.service().count(PROGRESS);
    main.call_tool(call("slow", json!({ "seconds": 0.6, "steps": 3 }))).await?;
    settles_at(|| main.service().count(PROGRESS) - before, 3, "progress notifications").await
}

async fn give_up(main: &Running) -> Outcome {
    let slow = main.call_tool(call("slow", json!({ "seconds": 20, "steps": 20 })));
    let outcome = tokio::time::timeout(Duration::from_millis(300), slow).await;
    equal(outcome.is_err(), true, "given up")?;
    call_tools(main).await
}

async fn notifications(main: &Running) -> Outcome {
    for (kind, method) in [("tools", TOOLS), ("prompts", PROMPTS), ("resources", RESOURCES), ("message", LOG)]
    {
        main.call_tool(call("notify", json!({ "kind": kind, "scope": "session" }))).await?;
        settles_at(|| main.service().count(method), 1, method).await?;
    }
    Ok(())
}

async fn listen(main: &Running) -> Outcome {
    let mut subscription = main.listen(everything()).await?;
    equal(subscription.acknowledged(), &everything(), "acknowledged")?;
    for kind in ["tools", "prompts", "resources"] {
        main.call_tool(call("notify", json!({ "kind": kind, "scope": "all" }))).await?;
    }
    let mut heard = Vec::new();
    while let Ok(next) = tokio::time::timeout(Duration::from_millis(400), subscription.next()).await {
        heard.push(match next? {
            Some(ServerNotification::ToolListChangedNotification(_)) => TOOLS,
            Some(ServerNotification::PromptListChangedNotification(_)) => PROMPTS,
            Some(ServerNotification::ResourceListChangedNotification(_)) => RESOURCES,
            other => return Err(format!("{other:?}").into()),
        });
    }
    equal(heard, vec![TOOLS, PROMPTS, RESOURCES], "changes")?;
    Ok(subscription.cancel().await?)
}

async fn logs(fixtures: &str) -> Outcome {
    let client = connect(fixtures, Era::Modern).await?;
    for (level, expected) in [(None, 0), (Some("error"), 0), (Some("info"), 1)] {
        let before = client.service().count(LOG);
        let mut params = call("test_logging_tool", json!({}));
        params.meta = level.map(|level| {
            let mut meta = RequestMetaObject::new();
            meta.insert(LOG_LEVEL.to_owned(), json!(level));
            meta
        });
        client.call_tool(params).await?;
        settles_at(|| client.service().count(LOG) - before, expected, "messages").await?;
    }
    Ok(())
}

async fn elicitation(fixtures: &str) -> Outcome {
    let client = connect(fixtures, Era::Modern).await?;
    let result = client.call_tool(call("test_elicitation", json!({ "message": "Who are you?" }))).await?;
    equal(client.service().count(QUESTION), 1, "questions")?;
    equal(text(&result).contains("ada"), true, "the answer has what the user said")
}

async fn resources(fixtures: &str) -> Outcome {
    let client = connect(fixtures, Era::Modern).await?;
    let resources = client.list_all_resources().await?;
    let uri = "test://static-text";
    equal(resources.iter().any(|resource| resource.uri == uri), true, "the resource is listed")?;
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
    equal(read.contents.len(), 1, "contents")
}
