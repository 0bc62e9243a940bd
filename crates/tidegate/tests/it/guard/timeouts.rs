//! How long a call may take.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::FailureRule::{Local, Open};
use tidegate::guard::{NotCalled, with_deadline};
use tidegate::{Store as _, StoreError};
use tidegate_core::{Charge, Correction, Operation, StoreResponses};
use tokio::time::Instant;

use super::faulty::{
    FaultMode, MILLI, SECOND, TIMEOUT, execute, faulty, guard_of, guarded, limiter, named,
    per_second,
};

#[tokio::test(start_paused = true)]
async fn no_call_outlives_the_timeout() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    let start = Instant::now();
    let decision = limiter.take("k").await.unwrap();
    assert_eq!(start.elapsed(), TIMEOUT);
    assert_eq!((decision.is_allowed(), decision.degraded()), (true, Some(Local)));
    assert_eq!((guard.stats().timed_out, guard.stats().local), (1, 1));
    assert_eq!((store.submissions(), store.in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn only_answers_in_time_come_from_the_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Slow(TIMEOUT - MILLI));
    assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    store.set(FaultMode::Slow(TIMEOUT + MILLI));
    assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
    assert_eq!(guard.stats().timed_out, 1);
    assert_eq!(store.inner().len(), 1, "one was charged");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_can_be_set() {
    let store = faulty();
    let guard = guard_of(&store).timeout(MILLI * 7).build().unwrap();
    store.set(FaultMode::Hangs);
    let start = Instant::now();
    assert!(limiter(&guard, per_second(1, 1)).take("k").await.unwrap().is_allowed());
    assert_eq!(start.elapsed(), MILLI * 7);
    let too_short = guard_of(&store).timeout(MILLI - Duration::from_nanos(1)).build();
    let error = too_short.unwrap_err();
    assert_eq!(error.to_string(), "the timeout must be at least 1ms, not 999.999µs");
}

/// The caller keeps a quarter of its deadline to act on the answer.
#[tokio::test(start_paused = true)]
async fn a_caller_deadline_shortens_the_timeout() {
    let (store, _guard, limiter) = guarded(per_second(1, 1_000));
    store.set(FaultMode::Slow(TIMEOUT - MILLI));
    let take = || async { limiter.take("k").await.unwrap() };
    for (deadline, taken) in [(20, 15), (40, 30), (60, 45)] {
        let start = Instant::now();
        let decision = with_deadline(MILLI * deadline, take()).await;
        assert_eq!((decision.degraded(), start.elapsed()), (Some(Local), MILLI * taken));
    }
    let start = Instant::now();
    let _ = with_deadline(SECOND, with_deadline(MILLI * 20, with_deadline(Duration::MAX, take())))
        .await;
    assert_eq!(start.elapsed(), MILLI * 15, "the nearest counts");
    store.set(FaultMode::Hangs);
    let start = Instant::now();
    let _ = with_deadline(SECOND, take()).await;
    assert_eq!(start.elapsed(), TIMEOUT, "a far deadline does not extend the timeout");
}

#[tokio::test(start_paused = true)]
async fn a_caller_past_its_deadline_does_not_call_the_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let late = with_deadline(MILLI * 20, async {
        tokio::time::sleep(MILLI * 30).await;
        let settle = limiter.settle("k", 1, None).await.unwrap_err();
        (limiter.take("k").await.unwrap(), settle)
    });
    let (decision, error) = late.await;
    assert_eq!((decision.degraded(), store.submissions()), (Some(Local), 0));
    let StoreError::Unavailable(reason) = error else { panic!("{error:?}") };
    assert_eq!(reason.downcast_ref(), Some(&NotCalled::DeadlinePassed));
    assert_eq!(guard.stats().timed_out, 0);
}

/// A caller with little or no time used to be allowed everything under rule open, although the
/// store was up.
#[tokio::test(start_paused = true)]
async fn a_short_deadline_does_not_open_a_limit() {
    let store = faulty();
    let guard = guard_of(&store).default_rule(Open).build().unwrap();
    let limiter = limiter(&guard, per_second(1, 5));
    store.set(FaultMode::Slow(MILLI * 20));
    let mut admitted = 0;
    for deadline in [Duration::ZERO, MILLI * 4] {
        for _ in 0..100 {
            let decision = with_deadline(deadline, limiter.take("k").into_future()).await.unwrap();
            assert_eq!(decision.degraded(), Some(Local));
            admitted += u64::from(decision.is_allowed());
        }
    }
    assert_eq!((admitted, guard.is_up()), (5, true));
    store.set(FaultMode::Refuses);
    let decision = with_deadline(MILLI * 4, limiter.take("k").into_future()).await.unwrap();
    assert_eq!(
        decision.degraded(),
        Some(Open),
        "an error in time counts as a failure of the store"
    );
}

/// Callers with less time than a healthy store needs used to mark it as down for all others.
#[tokio::test(start_paused = true)]
async fn short_deadlines_do_not_mark_the_store_as_down() {
    let (store, guard, limiter) = guarded(per_second(1, 100_000));
    store.set(FaultMode::Slow(MILLI * 16));
    for _ in 0..600 {
        for _ in 0..3 {
            let hurried = with_deadline(MILLI * 17, limiter.take("k").into_future()).await.unwrap();
            assert_eq!(hurried.degraded(), Some(Local));
        }
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    }
    assert_eq!((guard.is_up(), guard.stats().outages), (true, 0));
    assert_eq!(guard.stats().timed_out, 1_800);
    // 33 seconds of short calls, at most one probe per 150 ms.
    assert!(store.probes().len() <= 222, "{}", store.probes().len());
}

/// They must not wait for a dead store for ever either: a probe with the full timeout finds out.
#[tokio::test(start_paused = true)]
async fn short_deadlines_detect_a_dead_store_by_a_probe() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    let start = Instant::now();
    while guard.is_up() {
        let _ = with_deadline(MILLI * 4, limiter.take("k").into_future()).await;
    }
    // 3 ms for the first call, and then the full timeout, which the last call outlives.
    assert_eq!((start.elapsed(), store.probes().len()), (MILLI * 54, 1));
    assert_eq!(guard.stats().outages, 1);
    store.set(FaultMode::Answers);
    tokio::time::sleep(MILLI * 101).await;
    assert!(guard.is_up());
}

/// The deadline is for the caller, not for each operation.
#[tokio::test(start_paused = true)]
async fn a_batch_has_one_deadline() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    store.set(FaultMode::OneByOne(MILLI * 20));
    let limit = named("a", 1, 100);
    let charges = [Charge::new(&limit, "k", 1)];
    let (start, mut answers) = (Instant::now(), StoreResponses::new());
    with_deadline(MILLI * 32, guard.submit(&[Operation::Take(&charges); 50], &mut answers)).await;
    assert_eq!((start.elapsed(), answers.len()), (MILLI * 24, 50));
}

/// The call may have been charged, and here it was: sent twice, it would cost twice.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Swallows);
    assert_eq!(limiter.take("k").cost(4).await.unwrap().degraded(), Some(Local));
    assert_eq!(store.submissions(), 1);
    store.set(FaultMode::Answers);
    let left = limiter.peek("k").cost(0).await.unwrap();
    assert_eq!((left.degraded(), left.remaining()), (None, 6));
    store.set(FaultMode::Swallows);
    let limit = named("calls", 1, 10);
    let correction = [Correction::new(&limit, "k", 3)];
    let settle = Operation::Settle { corrections: &correction, receipt: None };
    assert!(matches!(execute(&guard, settle).await, Err(StoreError::TimedOut)));
    assert_eq!(store.submissions(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_leaves_nothing_behind() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        drop(limiter.take("k").into_future());
        let mut begun = Box::pin(limiter.take("k").into_future());
        assert!(begun.as_mut().poll(&mut context).is_pending());
        assert_eq!(store.in_flight(), 1);
        tokio::time::sleep(MILLI * 40).await;
        drop(begun);
        assert_eq!(store.in_flight(), 0);
    }
    assert_eq!((store.submissions(), guard.stats().timed_out), (10, 0));
    assert!(guard.is_up(), "dropped calls are not failures");
    let mut waiting = pin!(limiter.take("k").into_future());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    store.set(FaultMode::Answers);
    assert_eq!(limiter.take("k").await.unwrap().degraded(), None, "it does not block other calls");
}
