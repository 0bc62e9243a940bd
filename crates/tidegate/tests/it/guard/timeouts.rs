//! How long a call may take.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::FailureRule::Local;
use tidegate::guard::{NotAsked, StoreState, within};
use tidegate::{Correction, Operation, StoreError};
use tokio::time::Instant;

use super::stand_in::{
    MILLI, Mood, SECOND, StandIn, TIMEOUT, guard_of, guarded, limiter, named, one, per_second,
};

#[tokio::test(start_paused = true)]
async fn no_call_outlives_the_time_out() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Hangs);
    let start = Instant::now();
    let decision = limiter.take("k").await.unwrap();
    assert_eq!(start.elapsed(), TIMEOUT);
    assert_eq!((decision.is_allowed(), decision.degraded()), (true, Some(Local)));
    assert_eq!((guard.stats().timed_out, guard.stats().local), (1, 1));
    assert_eq!((store.asked(), store.under_way()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_time_is_the_stores_and_what_does_not_is_not() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Slow(TIMEOUT - MILLI));
    assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    store.set(Mood::Slow(TIMEOUT + MILLI));
    assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
    assert_eq!(guard.stats().timed_out, 1);
    assert_eq!(store.store.len(), 1, "one was charged");
}

#[tokio::test(start_paused = true)]
async fn the_time_out_can_be_set() {
    let store = StandIn::new();
    let guard = guard_of(&store).timeout(MILLI * 7).build().unwrap();
    store.set(Mood::Hangs);
    let start = Instant::now();
    assert!(limiter(&guard, per_second(1, 1)).take("k").await.unwrap().is_allowed());
    assert_eq!(start.elapsed(), MILLI * 7);
}

/// The caller keeps a quarter of its deadline to act on the answer.
#[tokio::test(start_paused = true)]
async fn a_callers_deadline_shortens_the_time_out() {
    let (store, _guard, limiter) = guarded(per_second(1, 1_000));
    store.set(Mood::Hangs);
    let ask = || async { limiter.take("k").await.unwrap() };
    for (deadline, taken) in [(20, 15), (40, 30), (60, 45)] {
        let start = Instant::now();
        let decision = within(MILLI * deadline, ask()).await;
        assert_eq!((decision.degraded(), start.elapsed()), (Some(Local), MILLI * taken));
        store.set(Mood::Answers);
        assert_eq!(ask().await.degraded(), None, "never three in a row");
        store.set(Mood::Hangs);
    }
    let start = Instant::now();
    let _ = within(SECOND, ask()).await;
    assert_eq!(start.elapsed(), TIMEOUT, "a far deadline lengthens nothing");
    let start = Instant::now();
    let _ = within(SECOND, within(MILLI * 20, within(Duration::MAX, ask()))).await;
    assert_eq!(start.elapsed(), MILLI * 15, "the nearest counts");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_too_late_does_not_ask() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let late = within(MILLI * 20, async {
        tokio::time::sleep(MILLI * 30).await;
        let settle = limiter.settle("k", 1, None).await.unwrap_err();
        (limiter.take("k").await.unwrap(), settle)
    });
    let (decision, error) = late.await;
    assert_eq!((decision.degraded(), store.asked()), (Some(Local), 0));
    let StoreError::Unavailable(reason) = error else { panic!("{error:?}") };
    assert_eq!(reason.downcast_ref(), Some(&NotAsked::TooLate));
    assert_eq!(guard.stats().timed_out, 0);
}

/// One caller in a great hurry must not take the store away from all others; many with the
/// deadline of a proxy must not wait for a dead one for ever.
#[tokio::test(start_paused = true)]
async fn great_hurry_tells_nothing_about_the_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Hangs);
    for _ in 0..10 {
        let _ = within(MILLI * 4, limiter.take("k").into_future()).await;
    }
    assert_eq!((guard.state(), guard.stats().timed_out), (StoreState::Up, 10));
    for _ in 0..3 {
        let _ = within(MILLI * 20, limiter.take("k").into_future()).await;
    }
    assert_eq!(guard.state(), StoreState::Down);
}

/// It may have been charged, and here it was: sent twice it would cost twice.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Swallows);
    assert_eq!(limiter.take("k").cost(4).await.unwrap().degraded(), Some(Local));
    assert_eq!(store.asked(), 1);
    store.set(Mood::Answers);
    let left = limiter.peek("k").cost(0).await.unwrap();
    assert_eq!((left.degraded(), left.remaining()), (None, 6));
    store.set(Mood::Swallows);
    let limit = named("calls", 1, 10);
    let correction = [Correction::new(&limit, "k", 3)];
    let settle = Operation::Settle { corrections: &correction, receipt: None };
    assert!(matches!(one(&guard, settle).await, Err(StoreError::TimedOut)));
    assert_eq!(store.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_leaves_nothing_behind() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Hangs);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        drop(limiter.take("k").into_future());
        let mut begun = Box::pin(limiter.take("k").into_future());
        assert!(begun.as_mut().poll(&mut context).is_pending());
        assert_eq!(store.under_way(), 1);
        tokio::time::sleep(MILLI * 40).await;
        drop(begun);
        assert_eq!(store.under_way(), 0);
    }
    assert_eq!((store.asked(), guard.stats().timed_out), (10, 0));
    assert_eq!(guard.state(), StoreState::Up, "the store was given no time to fail");
    let mut waiting = pin!(limiter.take("k").into_future());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    store.set(Mood::Answers);
    assert_eq!(limiter.take("k").await.unwrap().degraded(), None, "others are not in its way");
}
