//! The pipeline.

use std::time::Duration;

use tidegate_llm::pipeline::{Command, Pipeline, Planned, RateLimitHandler};
use tidegate_llm::plan::{PlanRequest, Planner};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, CallResponse, Chat, Provider};
use tower::Service;

/// Your own data of a command. Key functions see it; it is not sent to the provider.
#[derive(Clone)]
pub struct Session {
    pub user_id: Option<&'static str>,
}

/// Returns one key for all commands of a user.
fn per_user_key(_: &Provider, planned: &Planned<Command<Session>>) -> Vec<String> {
    let user = planned.command.context.user_id.unwrap_or("default");
    vec!["user".to_owned(), user.to_owned()]
}

/// Planner, rate limit and API in sequence. `api` is an `Adapter`, or any service that makes one
/// call; retries are around the rate limit, so that they wait for it too.
pub async fn run<S>(
    api: S,
    request: &PlanRequest,
    commands: Vec<(Session, String)>,
) -> Result<Vec<String>, CallError>
where
    S: Service<Call, Response = CallResponse, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    let limits = RateLimitHandler::new().key_extractor(per_user_key);
    let retry = RetryLayer::new("gemini");
    let mut pipeline = Pipeline::new(Planner::default(), limits, api).layer(&retry);
    let mut texts = Vec::new();
    for (session, prompt) in commands {
        let call = Call::new(Chat::user(prompt)).max_wait(Duration::from_secs(60));
        let reply = pipeline.run(request, Command::new(call, session)).await?;
        texts.push(reply.text);
    }
    Ok(texts)
}
