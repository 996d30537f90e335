//! A client that writes down what it hears.

#![allow(deprecated, reason = "log messages are what both eras have")]

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
        ElicitResult, ElicitationAction, Implementation, LoggingMessageNotificationParam,
        ProgressNotificationParam, ProtocolVersion, SubscriptionFilter,
    },
    service::{ClientLifecycleMode, ClientServiceExt, NotificationContext, RequestContext, RunningService},
    transport::StreamableHttpClientTransport,
};
use std::sync::{Arc, Mutex};

/// An era, as this SDK chooses it.
#[derive(Clone, Copy)]
pub enum Era {
    Modern,
    Legacy,
}

/// Everything a client has heard, by method.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    pub fn note(&self, method: &str) {
        self.0.lock().expect("nobody panics with it").push(method.to_owned());
    }

    pub fn count(&self, method: &str) -> usize {
        self.all().iter().filter(|heard| *heard == method).count()
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

pub const TOOLS: &str = "notifications/tools/list_changed";
pub const PROMPTS: &str = "notifications/prompts/list_changed";
pub const RESOURCES: &str = "notifications/resources/list_changed";
pub const LOG: &str = "notifications/message";
pub const PROGRESS: &str = "notifications/progress";
pub const QUESTION: &str = "elicitation/create";

/// Everything that can be listened to without naming a resource.
pub fn everything() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = Some(true);
    filter.prompts_list_changed = Some(true);
    filter.resources_list_changed = Some(true);
    filter
}

impl ClientHandler for Heard {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(Default::default());
        ClientConfig::new(capabilities, Implementation::new("moorline-interop", "1.0.0"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note(QUESTION);
        let answer = serde_json::json!({ "username": "ada", "email": "ada@example.org" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer))
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.note(PROGRESS);
    }

    async fn on_logging_message(
        &self,
        _: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note(LOG);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note(TOOLS);
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note(PROMPTS);
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note(RESOURCES);
    }
}

pub type Running = RunningService<RoleClient, Heard>;

/// A client that has opened its conversation.
pub async fn connect(url: &str, era: Era) -> Result<Running, Box<dyn std::error::Error + Send + Sync>> {
    let lifecycle = match era {
        Era::Modern => {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
        }
        Era::Legacy => ClientLifecycleMode::Initialize,
    };
    Ok(Heard::default().serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url), lifecycle).await?)
}

/// The params of a call.
pub fn call(tool: &'static str, arguments: serde_json::Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().unwrap_or_default())
}

/// The text of a result.
pub fn text(result: &CallToolResult) -> String {
    result
        .content
        .first()
        .and_then(|content| content.as_text())
        .map(|text| text.text.clone())
        .unwrap_or_default()
}
