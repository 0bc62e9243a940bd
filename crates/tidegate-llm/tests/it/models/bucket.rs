//! The bucket of a provider, by itself, under paused time (R58 to R63).

use std::time::Duration;

use futures_util::future::join_all;
use tidegate::clock::TokioClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy};
use tokio::time::{Instant, advance};

use super::SECOND;

/// A bucket with this capacity and refill rate.
fn bucket(capacity: u64, per_second: u64) -> Limiter {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let policy = Policy::per_second(per_second).capacity(capacity).build().unwrap();
    Engine::on(store).limiter("requests", policy).unwrap()
}

fn tokens(bucket: &Limiter) -> u64 {
    bucket.peek("anthropic").cost(0).now().unwrap().remaining()
}

/// Takes a token, and returns the reported wait.
async fn acquire(bucket: &Limiter) -> Duration {
    let start = Instant::now();
    let waited = bucket.wait("anthropic").await.unwrap().waited();
    assert_eq!(waited, start.elapsed());
    waited
}

#[tokio::test(start_paused = true)]
async fn full_bucket_gives_tokens_without_a_wait() {
    let bucket = bucket(10, 1);
    assert_eq!(tokens(&bucket), 10);
    assert_eq!(acquire(&bucket).await, Duration::ZERO);
    assert_eq!(tokens(&bucket), 9);
}

#[tokio::test(start_paused = true)]
async fn empty_bucket_is_waited_for_exactly() {
    let bucket = bucket(1, 2);
    assert_eq!(acquire(&bucket).await, Duration::ZERO);
    assert_eq!(acquire(&bucket).await, SECOND / 2);
    advance(SECOND / 8).await;
    assert_eq!(acquire(&bucket).await, SECOND * 3 / 8, "a quarter of a token was there");
}

#[tokio::test(start_paused = true)]
async fn refill_is_elapsed_time_times_rate_up_to_the_capacity() {
    let bucket = bucket(10, 2);
    for _ in 0..10 {
        assert_eq!(acquire(&bucket).await, Duration::ZERO);
    }
    advance(SECOND * 3).await;
    assert_eq!(tokens(&bucket), 6);
    advance(SECOND * 100).await;
    assert_eq!(tokens(&bucket), 10);
}

/// More than that the bucket stays above zero: no two of a hundred waiters go together.
#[tokio::test(start_paused = true)]
async fn concurrent_waiters_keep_to_the_rate() {
    let bucket = bucket(1, 1);
    let waits = join_all((0..100).map(|_| acquire(&bucket))).await;
    let expected: Vec<_> = (0..100).map(|second| SECOND * second).collect();
    assert_eq!(waits, expected);
}
