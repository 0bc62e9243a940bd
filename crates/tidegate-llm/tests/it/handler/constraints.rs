//! Several constraints on one key: each has its own limits, and eviction loses no state.

use std::time::Duration;

use tidegate_llm::pipeline::{Planned, RateLimitHandler};
use tidegate_llm::plan::RawConstraint;
use tokio::time::timeout;

use super::{constraint, per_minute, plan, wait_of};

#[tokio::test(start_paused = true)]
async fn days_of_two_time_zones_are_two_limits() {
    let handler = RateLimitHandler::new();
    let day = |zone: &str| {
        plan(constraint(&RawConstraint {
            requests_per_day: Some(1),
            requests_per_day_zone: Some(zone.to_owned()),
            ..RawConstraint::default()
        }))
    };
    assert_eq!(wait_of(&handler, &day("UTC")).await, Duration::ZERO);
    assert_eq!(wait_of(&handler, &day("America/Los_Angeles")).await, Duration::ZERO);
    let again = handler.handle(Planned::new((), day("UTC")));
    assert!(timeout(Duration::from_secs(1), again).await.is_err(), "one a day");
}

#[tokio::test(start_paused = true)]
async fn spent_quota_outlives_evicted_limiters() {
    let handler = RateLimitHandler::new();
    let slow = plan(per_minute(1));
    assert_eq!(wait_of(&handler, &slow).await, Duration::ZERO);
    for requests in 2..2_000 {
        drop(handler.handle(Planned::new((), plan(per_minute(requests)))).await);
    }
    let text = format!("{handler:?}");
    assert!(text.len() < 500, "{text}");
    assert_eq!(wait_of(&handler, &slow).await, Duration::from_secs(60));
}
