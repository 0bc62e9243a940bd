//! Waiting for a direct limiter under tokio's paused time.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::{DirectLimiter, Policy, Retry};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

fn limiter(capacity: u64) -> Arc<DirectLimiter> {
    let policy = Policy::per_second(1).capacity(capacity).build().unwrap();
    Arc::new(DirectLimiter::with_clock(policy, TokioClock::new()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn waiters_go_in_order_each_at_its_exact_time() {
    let (limiter, start) = (limiter(1), Instant::now());
    let waiters = (0..5).map(|number| {
        let limiter = limiter.clone();
        async move {
            let waited = limiter.wait(1, MINUTE).await.unwrap();
            assert_eq!((waited, start.elapsed()), (Duration::from_secs(number), waited));
        }
    });
    let waiters: Vec<_> = waiters.map(tokio::spawn).collect();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_gives_back_its_reservation() {
    let limiter = limiter(2);
    assert_eq!(limiter.wait(2, MINUTE).await, Ok(Duration::ZERO));
    let left = tokio::time::timeout(Duration::from_millis(500), limiter.wait(2, MINUTE)).await;
    assert!(left.is_err());
    let denied = limiter.take(1);
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_millis(500))));
    assert_eq!(limiter.wait(1, MINUTE).await, Ok(Duration::from_millis(500)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_denied_at_once_and_spends_nothing() {
    let (limiter, start) = (limiter(1), Instant::now());
    assert!(limiter.take(1).is_allowed());
    let short = Duration::from_millis(999);
    let denial = limiter.wait(1, short).await.unwrap_err();
    assert_eq!(denial.retry, Retry::After(Duration::from_secs(1)));
    assert_eq!(limiter.wait(2, MINUTE).await.unwrap_err().retry, Retry::Never);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.wait(1, MINUTE).await, Ok(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_new_policy_applies_to_later_requests() {
    let limiter = limiter(1);
    assert!(limiter.take(1).is_allowed());
    limiter.reconfigure(Policy::per_second(10).capacity(1).build().unwrap()).unwrap();
    assert_eq!(limiter.wait(1, MINUTE).await, Ok(Duration::from_millis(100)));
    assert!(limiter.reconfigure(Policy::allowance(1).unwrap()).is_err());
}
