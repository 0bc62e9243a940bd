//! A pipeline whose limits stand in its plans: source, planner, rate limit, API, result.
//!
//! Where [`rate_limit`](crate::rate_limit) belongs to an account, a [`RateLimitHandler`] belongs to
//! whatever a plan says: a plan without a constraint goes through untouched, any other waits for
//! the limits of its key. Buckets live in a store of bounded memory, and keys and constraints that
//! nobody uses are forgotten, so keys may be users, who are not shown to observers unless asked.
//! The handler never fails: a command comes out as it went in.

mod handler;
mod limiter_cache;
mod limits;

use std::fmt;

use tidegate_providers::Reply;
use tower_service::Service;

pub use handler::{Permits, Planned, RateLimitHandler};

use crate::call::{Answer, Call, CallError, Outgoing};
use crate::plan::{PlanRequest, Planner, TokenEstimate};

/// A planner, limits and an API in a row.
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
    S: Service<Call, Response = Answer, Error = CallError>,
{
    /// A pipeline of these parts.
    pub fn new(planner: Planner, limits: RateLimitHandler, api: S) -> Self {
        Self { planner: std::sync::Arc::new(planner), limits, api }
    }

    /// Plans a call, waits for its limits, makes it, and settles what it used.
    ///
    /// # Errors
    /// When the limits of the request make no sense, or the call fails.
    pub async fn run(&mut self, request: &PlanRequest, call: Call) -> Result<Reply, CallError> {
        let plan = self.planner.plan(request)?.with_estimate(estimate(&call));
        let planned = Planned::new(call, plan).asked_by(request);
        let Planned { command, permits, .. } = self.limits.handle(planned).await;
        std::future::poll_fn(|context| self.api.poll_ready(context)).await?;
        let reply = self.api.call(command).await?.whole().await?;
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

/// What a call may use, before it is made.
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
