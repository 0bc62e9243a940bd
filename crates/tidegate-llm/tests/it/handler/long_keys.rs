//! Keys of any length: a user that callers choose never bypasses the limit. Handlers do not share
//! keys.

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::mock::Mock;
use tidegate_llm::pipeline::{Pipeline, Planned, RateLimitHandler, by_user};
use tidegate_llm::plan::{Constraint, Plan, PlanRequest, Planner, RawConstraint};
use tidegate_providers::{Chat, Provider};
use tokio::time::Instant;

use super::{per_minute, plan, wait_of};

const SECOND: Duration = Duration::from_secs(1);

/// Returns how long commands of these users wait, one after the other, at one a second each.
async fn waits(handler: &RateLimitHandler, users: &[&str]) -> Vec<Duration> {
    let mut waits = Vec::new();
    for user in users {
        let planned = Planned::new((), plan(per_minute(60))).user(user);
        waits.push(handler.handle(planned).await.permits.expect("limited").waited());
    }
    waits
}

#[tokio::test(start_paused = true)]
async fn long_user_is_limited_like_any_other() {
    let handler = RateLimitHandler::new().key_extractor(by_user);
    let (one, other) = ("x".repeat(1_100), format!("{}y", "x".repeat(1_099)));
    let waits = waits(&handler, &[&one, &one, &other, &other]).await;
    assert_eq!(waits, [Duration::ZERO, SECOND, Duration::ZERO, SECOND]);
    assert_eq!(handler.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn key_without_parts_is_limited() {
    for parts in [vec![], vec![String::new()]] {
        let nothing = move |_: &Provider, _: &Planned<()>| parts.clone();
        let handler = RateLimitHandler::new().key_extractor(nothing);
        assert_eq!(waits(&handler, &["ann", "bob"]).await, [Duration::ZERO, SECOND]);
    }
}

/// Of a key that is too long, only the hash is known, and no user can be called like it.
#[tokio::test(start_paused = true)]
async fn no_user_is_called_like_a_hash() {
    let alone = |_: &Provider, planned: &Planned<()>| {
        vec![planned.request.user_name().unwrap_or_default().to_owned()]
    };
    let handler = RateLimitHandler::new().key_extractor(alone);
    let long = "x".repeat(2_000);
    let hash = format!("%sha256:{}", tidegate_providers::name::short_hash(&long));
    assert_eq!(waits(&handler, &[&long, &hash]).await, [Duration::ZERO; 2]);
}

/// In the pipeline too, where a limit of a plan is a layer around the API.
#[tokio::test(start_paused = true)]
async fn long_user_is_limited_in_the_pipeline() {
    let limits = RateLimitHandler::new().key_extractor(by_user);
    let mut pipeline = Pipeline::new(Planner::default(), limits, Mock::new("openai"));
    let limit = RawConstraint { requests_per_minute: Some(60), ..RawConstraint::default() };
    let request = PlanRequest::new().model("gpt-4o").rate_limits(limit).user(&"x".repeat(5_000));
    let start = Instant::now();
    for _ in 0..3 {
        pipeline.run(&request, Call::new(Chat::user("hello"))).await.unwrap();
    }
    assert_eq!(start.elapsed(), SECOND * 2);
}

/// R94: a handler works for itself. Clones share its buckets, another handler has its own.
#[tokio::test(start_paused = true)]
async fn handlers_have_separate_buckets() {
    let (one, other) = (RateLimitHandler::new(), RateLimitHandler::new());
    let plan: Plan = plan(Constraint::per_minute(std::num::NonZeroU32::MIN));
    assert_eq!(wait_of(&one, &plan).await, Duration::ZERO);
    assert_eq!(wait_of(&other, &plan).await, Duration::ZERO);
    assert_eq!(wait_of(&one.clone(), &plan).await, SECOND * 60);
}
