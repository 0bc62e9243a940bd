//! The rate-limit handler and the pipeline.

mod clocks;
mod constraints;
mod long_keys;
mod observers;
mod parts;
mod refusals;
mod users;
mod windows;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::MemoryStore;
use tidegate::clock::TokioClock;
use tidegate_llm::Call;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::pipeline::{Pipeline, Planned, RateLimitHandler, by_user};
use tidegate_llm::plan::{
    Constraint, ConstraintSource, Plan, PlanRequest, Planner, RawConstraint, TokenEstimate,
};
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_providers::{Chat, Class, Usage};
use tokio::time::{Instant, advance};
use tower::{ServiceExt as _, service_fn};

fn constraint(raw: &RawConstraint) -> Constraint {
    Constraint::try_new(raw).unwrap()
}

fn per_minute(requests: i64) -> Constraint {
    constraint(&RawConstraint { requests_per_minute: Some(requests), ..RawConstraint::default() })
}

fn plan(constraint: Constraint) -> Plan {
    Plan::constrained(constraint, ConstraintSource::Override)
}

fn tokens(max_tokens: u64) -> TokenEstimate {
    TokenEstimate {
        min_tokens: max_tokens,
        expected_tokens: max_tokens,
        max_tokens,
        input_tokens: None,
    }
}

/// Passes a command with this plan through the handler and returns how long it waited.
async fn wait_of(handler: &RateLimitHandler, plan: &Plan) -> Duration {
    let planned = handler.handle(Planned::new((), plan.clone())).await;
    planned.permits.unwrap().waited()
}

/// The first command on a fresh limiter never waits, even with the clock at zero.
#[tokio::test(start_paused = true)]
async fn first_command_does_not_wait_and_the_second_is_spaced() {
    let handler = RateLimitHandler::new();
    let plan = plan(per_minute(60));
    assert_eq!(wait_of(&handler, &plan).await, Duration::ZERO);
    advance(Duration::from_millis(500)).await;
    let before = Instant::now();
    assert_eq!(wait_of(&handler, &plan).await, Duration::from_millis(500));
    assert_eq!(before.elapsed(), Duration::from_millis(500), "one sleep of exactly that length");
}

#[tokio::test(start_paused = true)]
async fn plan_without_a_constraint_passes_through() {
    let handler = RateLimitHandler::new();
    let command = Arc::new("command");
    let planned = handler.handle(Planned::new(command.clone(), Plan::default())).await;
    assert!(Arc::ptr_eq(&planned.command, &command));
    assert!(planned.permits.is_none());
    assert_eq!(handler.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn command_is_returned_unchanged() {
    let handler = RateLimitHandler::new();
    let command = Arc::new("command");
    let with_tokens = RawConstraint {
        requests_per_minute: Some(60),
        tokens_per_minute: Some(1_000),
        ..RawConstraint::default()
    };
    let plan = plan(constraint(&with_tokens)).with_estimate(tokens(100));
    let planned = handler.handle(Planned::new(command.clone(), plan.clone())).await;
    assert!(Arc::ptr_eq(&planned.command, &command));
    assert_eq!(planned.plan, plan);
    assert_eq!(planned.permits.unwrap().reserved_tokens(), 100);
    let no_limit_on_tokens = Plan::constrained(per_minute(60), ConstraintSource::Override);
    let planned = Planned::new(command, no_limit_on_tokens.with_estimate(tokens(100)));
    assert_eq!(handler.handle(planned).await.permits.unwrap().reserved_tokens(), 0);
}

/// Fifty simultaneous commands at 60 per minute are sent one second apart, in order.
#[tokio::test(start_paused = true)]
async fn simultaneous_commands_are_spaced_in_order() {
    let handler = RateLimitHandler::new();
    let plan = plan(per_minute(60));
    let start = Instant::now();
    let left = join_all((0..50).map(|_| async {
        wait_of(&handler, &plan).await;
        start.elapsed()
    }))
    .await;
    let expected: Vec<Duration> = (0..50).map(Duration::from_secs).collect();
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn both_limits_cause_a_single_wait_with_its_cause() {
    let handler = RateLimitHandler::new();
    let raw = RawConstraint {
        requests_per_minute: Some(60),
        tokens_per_minute: Some(120),
        ..RawConstraint::default()
    };
    let plan = plan(constraint(&raw)).with_estimate(tokens(60));
    handler.handle(Planned::new((), plan.clone())).await;
    let planned = handler.handle(Planned::new((), plan)).await;
    let permits = planned.permits.unwrap();
    assert_eq!(permits.waited(), Duration::from_secs(30), "60 of 120 tokens a minute");
    assert_eq!(permits.token_wait(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn estimate_above_capacity_goes_into_debt_and_the_next_command_waits() {
    let handler = RateLimitHandler::new();
    let raw = RawConstraint {
        requests_per_minute: Some(6_000),
        tokens_per_minute: Some(600),
        ..RawConstraint::default()
    };
    let twice = plan(constraint(&raw)).with_estimate(tokens(1_200));
    assert_eq!(wait_of(&handler, &twice).await, Duration::ZERO);
    let one = plan(constraint(&raw)).with_estimate(tokens(10));
    assert_eq!(
        wait_of(&handler, &one).await,
        Duration::from_secs(120),
        "1,200 tokens at 10 a second"
    );
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_refunded() {
    let handler = RateLimitHandler::new();
    let raw = RawConstraint {
        requests_per_minute: Some(6_000),
        tokens_per_minute: Some(600),
        ..RawConstraint::default()
    };
    let plan = plan(constraint(&raw)).with_estimate(tokens(100));
    let first = handler.handle(Planned::new((), plan.clone())).await;
    first.permits.unwrap().settle(&Usage { input: 10, ..Usage::default() });
    assert_eq!(wait_of(&handler, &plan).await, Duration::from_secs(1), "10 of 100 were used");
}

#[tokio::test(start_paused = true)]
async fn minimum_interval_applies_between_starts_and_not_after_idle_time() {
    let handler = RateLimitHandler::new();
    let raw = RawConstraint {
        requests_per_minute: Some(60_000),
        min_interval_ms: Some(100),
        burst_capacity: Some(100),
        ..RawConstraint::default()
    };
    let plan = plan(constraint(&raw));
    assert_eq!(wait_of(&handler, &plan).await, Duration::ZERO);
    advance(Duration::from_millis(30)).await;
    assert_eq!(wait_of(&handler, &plan).await, Duration::from_millis(70));
    advance(Duration::from_millis(100)).await;
    assert_eq!(wait_of(&handler, &plan).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn burst_does_not_raise_the_rate() {
    let handler = RateLimitHandler::new();
    let raw = RawConstraint {
        requests_per_minute: Some(60),
        burst_factor: Some(5.0),
        ..RawConstraint::default()
    };
    let plan = plan(constraint(&raw));
    let start = Instant::now();
    let mut at_once = 0;
    for _ in 0..605 {
        at_once += u32::from(wait_of(&handler, &plan).await.is_zero());
    }
    assert_eq!(at_once, 5);
    assert_eq!(start.elapsed(), Duration::from_secs(600));
}

#[tokio::test(start_paused = true)]
async fn keys_have_separate_limits_and_are_removed_when_unused() {
    let handler = RateLimitHandler::new().key_extractor(by_user);
    let plan = plan(per_minute(1));
    let of = |user: &str| handler.handle(Planned::new((), plan.clone()).user(user));
    let ann = of("ann").await;
    let bob = of("bob").await;
    assert_eq!(bob.permits.as_ref().unwrap().waited(), Duration::ZERO);
    assert_eq!(handler.keys_in_use(), 2);
    drop((ann, bob));
    assert_eq!(handler.keys_in_use(), 0);
    let ann = of("ann").await;
    assert_eq!(ann.permits.unwrap().waited(), Duration::from_secs(60), "still spent");
}

/// Many users stay within the memory bound of the store, and leave no queues behind.
#[tokio::test(start_paused = true)]
async fn many_keys_stay_within_the_memory_bound() {
    let store =
        MemoryStore::builder().max_memory(4 << 20).clock(TokioClock::new()).build().unwrap();
    let store = Arc::new(store);
    let handler = RateLimitHandler::new().key_extractor(by_user).store(store.clone());
    let plan = plan(per_minute(600));
    for user in 0..200_000 {
        handler.handle(Planned::new((), plan.clone()).user(&user.to_string())).await;
    }
    assert_eq!(handler.keys_in_use(), 0);
    let stats = store.stats();
    assert!(stats.keys < 200_000, "{stats:?}");
}

/// Key, tokens, wait and requests per minute of a permit.
type Permit = (String, u64, Duration, Option<u64>);

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Permit>>);

impl Observer for Seen {
    fn acquired(&self, acquired: &Acquired<'_>) {
        self.0.lock().unwrap().push((
            acquired.limiter_key.to_owned(),
            acquired.estimated_tokens,
            acquired.wait,
            acquired.requests_per_minute,
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn every_limited_command_is_reported_once() {
    let seen = Arc::new(Seen::default());
    let handler = RateLimitHandler::new().observer(seen.clone());
    let request = PlanRequest::new().model("Gemini-2.0-Flash").tier("tier_2");
    for _ in 0..2 {
        let planned = Planned::new((), plan(per_minute(60))).with_request(&request);
        handler.handle(planned).await;
    }
    handler.handle(Planned::new((), Plan::default())).await;
    let key = "gemini/gemini-2.0-flash/tier_2".to_owned();
    let expected = |wait| (key.clone(), 0, Duration::from_secs(wait), Some(60));
    assert_eq!(*seen.0.lock().unwrap(), [expected(0), expected(1)]);
}

/// Planner, rate limit, API and result, in this order and with the plan's limits enforced.
#[tokio::test(start_paused = true)]
async fn command_passes_the_pipeline_stages_in_order() {
    let seen = Arc::new(Seen::default());
    let limits = RateLimitHandler::new().observer(seen.clone());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mock = Mock::new("openai").always(Step::reply("done"));
    let (log, permits) = (order.clone(), seen.clone());
    let api = service_fn(move |call: Call| {
        // The permit is reported before the API is called.
        log.lock().unwrap().push((permits.0.lock().unwrap().len(), Instant::now()));
        mock.clone().oneshot(call)
    });
    let mut pipeline = Pipeline::new(Planner::default(), limits.clone(), api);
    let rate_limits = RawConstraint { requests_per_minute: Some(120), ..RawConstraint::default() };
    let request = PlanRequest::new().model("gpt-4o").rate_limits(rate_limits);
    let start = Instant::now();
    for _ in 0..3 {
        let reply = pipeline.run(&request, Call::new(Chat::user("hello"))).await.unwrap();
        assert_eq!(reply.text, "done");
    }
    let half = Duration::from_millis(500);
    let order = order.lock().unwrap();
    let expected = [(1, start), (2, start + half), (3, start + half * 2)];
    assert_eq!(*order, expected, "120 a minute are two a second");
    assert_eq!(seen.0.lock().unwrap().len(), 3);
    assert_eq!(limits.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn invalid_limits_fail_before_anything_is_sent() {
    let mock = Mock::new("openai");
    let mut pipeline = Pipeline::new(Planner::default(), RateLimitHandler::new(), mock.clone());
    let rate_limits = RawConstraint { requests_per_minute: Some(0), ..RawConstraint::default() };
    let request = PlanRequest::new().model("gpt-4o").rate_limits(rate_limits);
    let error = pipeline.run(&request, Call::new(Chat::user("hello"))).await.unwrap_err();
    assert!(error.to_string().contains("requests_per_minute"), "{error}");
    assert_eq!(mock.call_count(), 0);
}

/// The permit of a failed call is released with the error.
#[tokio::test(start_paused = true)]
async fn failed_call_releases_its_permits() {
    let mock = Mock::new("openai").always(Step::fail(Class::BadRequest));
    let limits = RateLimitHandler::new();
    let mut pipeline = Pipeline::new(Planner::default(), limits.clone(), mock);
    let request = PlanRequest::new().model("gpt-4o");
    pipeline.run(&request, Call::new(Chat::user("hello"))).await.unwrap_err();
    assert_eq!(limits.keys_in_use(), 0);
}
