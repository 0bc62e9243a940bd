//! One key under alternating constraints (R104): one bucket, whose policy is that of the newest
//! command.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join;
use tidegate_llm::pipeline::{Planned, RateLimitHandler, by_user};
use tidegate_llm::plan::{Plan, RawConstraint};
use tokio::time::{Instant, advance, timeout};

use super::{constraint, per_minute, plan, tokens, wait_of};

const SECOND: Duration = Duration::from_secs(1);

fn with_burst(requests: i64, burst: u32) -> Plan {
    plan(per_minute(requests).with_burst(NonZeroU32::new(burst).unwrap()))
}

fn per_day(requests: i64, zone: &str) -> Plan {
    plan(constraint(&RawConstraint {
        requests_per_day: Some(requests),
        requests_per_day_zone: Some(zone.to_owned()),
        ..RawConstraint::default()
    }))
}

/// Sends commands with this plan until one has to wait, and returns how many did not.
async fn at_once(handler: &RateLimitHandler, plan: &Plan) -> usize {
    let mut sent = 0;
    loop {
        let command = handler.handle(Planned::new((), plan.clone()));
        if timeout(Duration::ZERO, command).await.is_err() {
            return sent;
        }
        sent += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_kept_when_the_constraint_changes() {
    let handler = RateLimitHandler::new();
    let (small, large) = (with_burst(60, 10), with_burst(60, 100));
    for _ in 0..4 {
        assert_eq!(wait_of(&handler, &small).await, Duration::ZERO);
    }
    assert_eq!(at_once(&handler, &large).await, 6, "10 less the 4 that were sent");
    assert_eq!(at_once(&handler, &small).await, 0, "still empty");
    advance(SECOND * 50).await;
    assert_eq!(at_once(&handler, &small).await, 10, "no more than it holds");
}

/// Each command arrives while the bucket has a fraction of a token, which no change rounds away.
#[tokio::test(start_paused = true)]
async fn alternating_constraints_are_sent_at_the_newest_rate() {
    let handler = RateLimitHandler::new();
    let (slow, fast) = (plan(per_minute(60)), plan(per_minute(120)));
    wait_of(&handler, &slow).await;
    let start = Instant::now();
    for _ in 0..60 {
        // Three quarters of a token at one a second, then the last quarter at two.
        let first = timeout(SECOND * 3 / 4, handler.handle(Planned::new((), slow.clone())));
        assert!(first.await.is_err());
        assert_eq!(wait_of(&handler, &fast).await, SECOND / 8);
    }
    assert_eq!(start.elapsed(), SECOND * 60 * 7 / 8);
}

/// A bucket that is full under a small burst has no more than that under a large one.
#[tokio::test(start_paused = true)]
async fn small_fast_limit_does_not_refill_a_large_slow_one() {
    let handler = RateLimitHandler::new();
    let (large, fast) = (with_burst(60, 500), with_burst(6_000, 1));
    assert_eq!(at_once(&handler, &large).await, 500);
    let mut sent = 0;
    for _ in 0..10 {
        // Ten milliseconds fill the small one.
        wait_of(&handler, &fast).await;
        advance(Duration::from_millis(10)).await;
        sent += 1 + at_once(&handler, &large).await;
    }
    assert_eq!(sent, 20, "two per round, at 100 a second");
}

#[tokio::test(start_paused = true)]
async fn waiting_commands_follow_the_newest_constraint() {
    let handler = RateLimitHandler::new();
    let (slow, fast) = (plan(per_minute(1)), plan(per_minute(60)));
    wait_of(&handler, &slow).await;
    let (first, second) = join(wait_of(&handler, &slow), wait_of(&handler, &fast)).await;
    assert_eq!((first, second), (SECOND, SECOND * 2), "one a second, in order of arrival");
}

#[tokio::test(start_paused = true)]
async fn limit_that_a_constraint_does_not_have_keeps_its_state() {
    let handler = RateLimitHandler::new();
    let with_tokens = plan(constraint(&RawConstraint {
        requests_per_minute: Some(6_000),
        tokens_per_minute: Some(600),
        ..RawConstraint::default()
    }))
    .with_estimate(tokens(600));
    wait_of(&handler, &with_tokens).await;
    wait_of(&handler, &plan(per_minute(6_000))).await;
    // 600 tokens at 10 a second, less the 10 ms of the request between.
    let wait = wait_of(&handler, &with_tokens).await;
    assert_eq!(wait, SECOND * 60 - Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn concurrency_of_a_key_follows_the_newest_constraint() {
    let handler = RateLimitHandler::new();
    let slots = |slots| {
        plan(constraint(&RawConstraint {
            max_concurrent_requests: Some(slots),
            ..RawConstraint::default()
        }))
    };
    let send = |limit: i64| timeout(SECOND, handler.handle(Planned::new((), slots(limit))));
    let first = send(1).await.unwrap();
    assert!(send(1).await.is_err());
    let second = send(2).await.unwrap();
    assert!(send(2).await.is_err(), "the slot of the first counts");
    drop(first);
    assert!(send(1).await.is_err(), "the slot of the second counts");
    drop(second);
    assert!(send(1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn other_time_zone_starts_no_new_day() {
    let handler = RateLimitHandler::new();
    let (utc, pacific) = (per_day(3, "UTC"), per_day(3, "America/Los_Angeles"));
    for plan in [&utc, &pacific, &utc] {
        assert_eq!(wait_of(&handler, plan).await, Duration::ZERO);
    }
    for plan in [&pacific, &utc] {
        let fourth = handler.handle(Planned::new((), plan.clone()));
        assert!(timeout(SECOND, fourth).await.is_err(), "three a day");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_daily_quota_counts_what_was_used() {
    let handler = RateLimitHandler::new();
    for sent in 0..3 {
        assert_eq!(wait_of(&handler, &per_day(3, "UTC")).await, Duration::ZERO, "{sent}");
    }
    assert_eq!(wait_of(&handler, &per_day(4, "UTC")).await, Duration::ZERO);
    assert_eq!(at_once(&handler, &per_day(4, "UTC")).await, 0);
}

/// A key that comes with ever new constraints has one set of limits, and sends at the rate of the
/// newest.
#[tokio::test(start_paused = true)]
async fn thousands_of_constraints_are_one_key() {
    let handler = RateLimitHandler::new().key_extractor(by_user);
    let slow = plan(per_minute(1));
    assert_eq!(wait_of(&handler, &slow).await, Duration::ZERO);
    for requests in 2..2_000 {
        wait_of(&handler, &plan(per_minute(requests))).await;
    }
    let text = format!("{handler:?}");
    assert!(text.contains("keys: 1,"), "{text}");
    assert_eq!(wait_of(&handler, &slow).await, SECOND * 60);
}
