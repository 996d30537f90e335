//! This SDK's part of a crowd: says `ready` once all clients listen; told `report`, prints what each has heard, in order; leaves
//! when its input ends.

use crate::client::{Era, Heard, PROMPTS, RESOURCES, Running, TOOLS, call, connect, everything};
use rmcp::model::ServerNotification;
use std::{process::ExitCode, sync::Arc, time::Duration};
use tokio::io::AsyncBufReadExt as _;

pub async fn join(url: &str, count: usize) -> ExitCode {
    let (mut modern, mut legacy) = (Vec::new(), Vec::new());
    for _ in 0..count {
        modern.push(listening(url).await);
        let client = Arc::new(connect(url, Era::Legacy).await.expect("the server takes sessions"));
        legacy.push(client.service().clone());
        keep_calling(client);
    }
    println!("ready");
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "report" {
            let all = |clients: &[Heard]| clients.iter().map(Heard::all).collect::<Vec<_>>();
            println!("{}", serde_json::json!({ "modern": all(&modern), "legacy": all(&legacy) }));
        }
    }
    ExitCode::SUCCESS
}

/// What a client hears on a listen stream.
async fn listening(url: &str) -> Heard {
    let client = Arc::new(connect(url, Era::Modern).await.expect("the server can be discovered"));
    let mut subscription = client.listen(everything()).await.expect("the server acknowledges");
    let heard = Heard::default();
    let notes = heard.clone();
    tokio::spawn(async move {
        while let Ok(Some(notification)) = subscription.next().await {
            notes.note(match notification {
                ServerNotification::ToolListChangedNotification(_) => TOOLS,
                ServerNotification::PromptListChangedNotification(_) => PROMPTS,
                ServerNotification::ResourceListChangedNotification(_) => RESOURCES,
                _ => "something else",
            });
        }
        notes.note("the end");
    });
    keep_calling(client);
    heard
}

/// Calls between notifications, for as long as the program runs.
fn keep_calling(client: Arc<Running>) {
    tokio::spawn(async move {
        loop {
            let echo = call("echo", serde_json::json!({ "message": "between" }));
            client.call_tool(echo).await.expect("a call is answered");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
}
