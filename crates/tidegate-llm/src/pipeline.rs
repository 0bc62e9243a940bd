//! A pipeline whose limits come from plans: planner, rate limit, API.
//!
//! While [`rate_limit`](crate::rate_limit) enforces the limits of an account, a
//! [`RateLimitHandler`] enforces the constraint in each command's plan. A plan without a constraint
//! passes through; any other waits for the limits of its key. Buckets live in a store of bounded
//! memory, and unused keys are evicted, so keys may be users. Observers see hashes of such keys
//! unless configured otherwise. The handler never fails and never changes a command.

mod handler;
mod key;
mod key_limits;
mod limiter_cache;
mod permits;
mod plan_limit;
mod planned;

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_providers::Reply;
use tower_layer::Layer;
use tower_service::Service;

pub use handler::RateLimitHandler;
pub use key::{by_endpoint, by_model, by_user};
pub use permits::Permits;
pub use plan_limit::PlanLimit;
pub use planned::{Command, Planned};

use crate::call::{Call, CallError, CallResponse, OutgoingCall};
use crate::plan::{PlanRequest, Planner, TokenEstimate};

/// A planner, a rate-limit handler and an API in sequence, for commands with a context `X` of the
/// caller.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_llm::mock::{Mock, Step};
/// use tidegate_llm::pipeline::{Command, Pipeline, Planned, RateLimitHandler};
/// use tidegate_llm::plan::{PlanRequest, Planner};
/// use tidegate_llm::retry::RetryLayer;
/// use tidegate_llm::{Call, Chat};
///
/// let mock = Mock::new("mock").always(Step::reply("hello"));
/// let by_team = |_: &_, planned: &Planned<Command<u32>>| {
///     vec!["team".to_owned(), planned.command.context.to_string()]
/// };
/// let limits = RateLimitHandler::new().key_extractor(by_team);
/// let mut pipeline =
///     Pipeline::new(Planner::default(), limits, mock).layer(&RetryLayer::new("openai"));
/// let request = PlanRequest::new().model("gpt-4o");
/// let team = 7;
/// let reply = pipeline.run(&request, Command::new(Call::new(Chat::user("hi")), team)).await?;
/// assert_eq!(reply.text, "hello");
/// # Ok(())
/// # }
/// ```
pub struct Pipeline<S, X = ()> {
    planner: Arc<Planner>,
    api: S,
    context: PhantomData<fn(X)>,
}

impl<S, X> Pipeline<PlanLimit<S, X>, X> {
    /// Creates a pipeline. `api` makes one outgoing call for each permit: add retries with
    /// [`layer`](Self::layer), because retries inside of `api` would take no permits.
    pub fn new(planner: Planner, limits: RateLimitHandler<Command<X>>, api: S) -> Self {
        Self { planner: Arc::new(planner), api: PlanLimit::new(api, limits), context: PhantomData }
    }
}

impl<S, X> Pipeline<S, X> {
    /// Adds a layer around the rate limit and the API, such as a
    /// [`RetryLayer`](crate::retry::RetryLayer). Each attempt waits for permits of its own.
    pub fn layer<L: Layer<S>>(self, layer: &L) -> Pipeline<L::Service, X> {
        let Self { planner, api, context } = self;
        Pipeline { planner, api: layer.layer(api), context }
    }
}

impl<S, X> Pipeline<S, X>
where
    S: Service<Planned<Command<X>>, Response = CallResponse, Error = CallError>,
{
    /// Plans a call, waits for its limits, makes the call and settles its token usage. It waits as
    /// the options of the call say.
    ///
    /// # Errors
    /// When the limits of the request are invalid, the call fails, or it may not wait as long as
    /// necessary.
    pub async fn run(
        &mut self,
        request: &PlanRequest,
        command: impl Into<Command<X>>,
    ) -> Result<Reply, CallError> {
        let command = command.into();
        let plan = self.planner.plan(request)?.with_estimate(estimate(&command.call));
        let planned = Planned::new(command, plan).with_request(request);
        poll_fn(|context| self.api.poll_ready(context)).await?;
        self.api.call(planned).await?.into_reply().await
    }
}

impl<S: Clone, X> Clone for Pipeline<S, X> {
    fn clone(&self) -> Self {
        Self { planner: self.planner.clone(), api: self.api.clone(), context: PhantomData }
    }
}

impl<S: fmt::Debug, X> fmt::Debug for Pipeline<S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("api", &self.api).finish_non_exhaustive()
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
