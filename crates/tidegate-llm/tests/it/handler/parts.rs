//! Separate limits on input and output tokens.

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::pipeline::{Permits, Pipeline, Planned, RateLimitHandler};
use tidegate_llm::plan::{Plan, PlanRequest, Planner, RawConstraint, TokenEstimate};
use tidegate_providers::{Chat, Reply, Usage};
use tokio::time::Instant;

use super::{constraint, plan, tokens, wait_of};

/// Ten input tokens per second, and one output token.
fn apart() -> RawConstraint {
    RawConstraint {
        requests_per_minute: Some(6_000),
        input_tokens_per_minute: Some(600),
        output_tokens_per_minute: Some(60),
        ..RawConstraint::default()
    }
}

/// An estimate of at most 100 input tokens and 30 output tokens.
fn known() -> Plan {
    let estimate = TokenEstimate { input_tokens: Some(100), ..tokens(130) };
    plan(constraint(&apart())).with_estimate(estimate)
}

async fn permits(handler: &RateLimitHandler, plan: Plan) -> Permits {
    handler.handle(Planned::new((), plan)).await.permits.unwrap()
}

#[tokio::test(start_paused = true)]
async fn input_and_output_are_limited_separately() {
    let handler = RateLimitHandler::new();
    let first = permits(&handler, known()).await;
    assert_eq!((first.waited(), first.reserved_tokens()), (Duration::ZERO, 130));
    let second = permits(&handler, known()).await;
    assert_eq!(second.token_wait(), Duration::from_secs(30), "30 of output at one a second");
    assert_eq!(second.waited(), second.token_wait());
}

#[tokio::test(start_paused = true)]
async fn estimate_without_a_split_reserves_all_of_it_in_both() {
    let handler = RateLimitHandler::new();
    let unknown = plan(constraint(&apart())).with_estimate(tokens(130));
    let start = Instant::now();
    for _ in 0..3 {
        wait_of(&handler, &unknown).await;
    }
    assert_eq!(start.elapsed(), Duration::from_secs(260), "twice 130 at one a second");
}

#[tokio::test(start_paused = true)]
async fn input_and_output_are_settled_by_their_own_usage() {
    for (input, output, secs) in [(100, 3, 10), (10, 3, 3), (100, 40, 40), (200, 0, 20)] {
        let handler = RateLimitHandler::new();
        let usage = Usage { input, output, ..Usage::default() };
        permits(&handler, known()).await.settle(&usage);
        let wait = wait_of(&handler, &known()).await;
        assert_eq!(wait, Duration::from_secs(secs), "{input} at ten, {output} at one a second");
    }
}

#[tokio::test(start_paused = true)]
async fn pipeline_settles_input_and_output() {
    let usage = Usage { input: 50, output: 20, ..Usage::default() };
    let mut reply = Reply::default();
    reply.usage = Some(usage);
    let mock = Mock::new("openai").always(Step::from_reply(reply));
    let mut pipeline = Pipeline::new(Planner::default(), RateLimitHandler::new(), mock);
    let request = PlanRequest::new().model("gpt-4o").rate_limits(apart());
    let mut chat = Chat::user("hello");
    chat.max_tokens = Some(10_000);
    let start = Instant::now();
    for _ in 0..2 {
        pipeline.run(&request, Call::new(chat.clone())).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(20), "20 of output at one a second");
}

/// An estimate above the maximum debt is charged as the maximum debt, not left unlimited.
#[tokio::test(start_paused = true)]
async fn huge_estimate_is_capped_and_limited() {
    let handler = RateLimitHandler::new();
    let absurd = plan(constraint(&apart())).with_estimate(tokens(u64::MAX));
    assert_eq!(permits(&handler, absurd).await.waited(), Duration::ZERO);
    let next = handler.handle(Planned::new((), known()));
    assert!(tokio::time::timeout(Duration::from_secs(3_600), next).await.is_err());
}
