//! A pipeline whose limits come from plans: planner, rate limit, API.
//!
//! While [`rate_limit`](crate::rate_limit) enforces the limits of an account, a
//! [`RateLimitHandler`] enforces the constraint in each command's plan. A plan without a constraint
//! passes through; any other waits for the limits of its key. Buckets live in a store of bounded
//! memory, and unused keys and constraints are evicted, so keys may be users. Observers see hashes
//! of such keys unless configured otherwise. The handler never fails and never changes a command.

mod handler;
mod limiter_cache;
mod limits;

use std::fmt;

use tidegate_providers::Reply;
use tower_service::Service;

pub use handler::{Permits, Planned, RateLimitHandler};

use crate::call::{Call, CallError, CallResponse, OutgoingCall};
use crate::plan::{PlanRequest, Planner, TokenEstimate};

/// A planner, a rate-limit handler and an API in sequence.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_llm::mock::{Mock, Step};
/// use tidegate_llm::pipeline::{Pipeline, RateLimitHandler};
/// use tidegate_llm::plan::{PlanRequest, Planner};
/// use tidegate_llm::Call;
/// use tidegate_llm::Chat;
///
/// let mock = Mock::new("mock").always(Step::reply("hello"));
/// let mut pipeline = Pipeline::new(Planner::default(), RateLimitHandler::new(), mock);
/// let request = PlanRequest::new().model("gpt-4o");
/// let reply = pipeline.run(&request, Call::new(Chat::user("hi"))).await?;
/// assert_eq!(reply.text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pipeline<S> {
    planner: std::sync::Arc<Planner>,
    limits: RateLimitHandler,
    api: S,
}

impl<S> Pipeline<S>
where
    S: Service<Call, Response = CallResponse, Error = CallError>,
{
    /// Creates a pipeline.
    pub fn new(planner: Planner, limits: RateLimitHandler, api: S) -> Self {
        Self { planner: std::sync::Arc::new(planner), limits, api }
    }

    /// Plans a call, waits for its limits, makes the call and settles its token usage.
    ///
    /// # Errors
    /// When the limits of the request are invalid, or the call fails.
    pub async fn run(&mut self, request: &PlanRequest, call: Call) -> Result<Reply, CallError> {
        let plan = self.planner.plan(request)?.with_estimate(estimate(&call));
        let planned = Planned::new(call, plan).with_request(request);
        let Planned { command, permits, .. } = self.limits.handle(planned).await;
        std::future::poll_fn(|context| self.api.poll_ready(context)).await?;
        let reply = self.api.call(command).await?.into_reply().await?;
        if let (Some(permits), Some(usage)) = (permits, reply.usage) {
            permits.settle(&usage).await;
        }
        Ok(reply)
    }
}

impl<S: fmt::Debug> fmt::Debug for Pipeline<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("limits", &self.limits)
            .field("api", &self.api)
            .finish_non_exhaustive()
    }
}

/// Estimates the tokens of a call before it is made.
fn estimate(call: &Call) -> TokenEstimate {
    let input = call.input_tokens();
    let most = call.max_output().unwrap_or(0).saturating_add(input);
    TokenEstimate {
        min_tokens: input,
        expected_tokens: most,
        max_tokens: most,
        input_tokens: Some(input),
    }
}
