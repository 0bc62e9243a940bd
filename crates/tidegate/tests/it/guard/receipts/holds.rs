//! Holds around an outage: in effect before, during and after it.

use tidegate::FailureRule::{Closed, Local, Open};
use tidegate::StoreError;
use tidegate_core::{Operation, Target};

use super::super::faulty::{
    FaultMode, MILLI, SECOND, TIMEOUT, bring_down, bring_up, execute, guarded, named, per_second,
};

/// A provider said when to retry, and the store cannot be reached.
#[tokio::test(start_paused = true)]
async fn a_hold_is_in_effect_while_the_store_is_down() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    assert_eq!(limiter.hold("k", SECOND * 3).await.unwrap(), SECOND * 3);
    bring_down(&store, &guard).await;
    assert_eq!(limiter.hold("late", SECOND * 30).await.unwrap(), SECOND * 30);
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.degraded(), denied.is_allowed()), (Some(Local), false));
    tokio::time::sleep(SECOND * 4).await;
    assert!(limiter.take("k").await.unwrap().is_allowed(), "reopened");
    assert!(!limiter.take("late").await.unwrap().is_allowed());
    for rule in [Open, Closed] {
        let limit = named("ruled", 1, 10).on_failure(rule);
        let hold = Operation::Hold { target: Target::new(&limit, "k"), span: SECOND };
        assert!(matches!(execute(&guard, hold).await, Err(StoreError::Unavailable(_))));
    }
}

/// A key that the store had closed used to reopen as soon as the store was down.
#[tokio::test(start_paused = true)]
async fn a_hold_of_the_store_outlasts_it() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    bring_down(&store, &guard).await;
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.is_allowed(), denied.degraded()), (false, Some(Local)));
    tokio::time::sleep(SECOND * 61).await;
    assert!(limiter.take("k").await.unwrap().is_allowed());
}

/// A hold that was confirmed for a minute during an outage used to be forgotten when the store came
/// back.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_hold_is_sent_to_the_recovered_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    assert_eq!(limiter.hold("brief", MILLI * 10).await.unwrap(), MILLI * 10);
    bring_up(&store, &guard).await;
    assert_eq!(store.inner().stats().held_keys, 1, "without a call, and without expired holds");
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.is_allowed(), denied.degraded()), (false, None));
    let wait = denied.retry().unwrap().after().unwrap();
    assert_eq!(wait, SECOND * (60 - 5 + 1) - TIMEOUT, "the rest of the hold, plus a token");
}

/// One call timed out, but the store was never down: the next answer shows that the hold can be
/// sent.
#[tokio::test(start_paused = true)]
async fn a_hold_that_timed_out_is_sent_after_the_next_answer() {
    let (store, _guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    store.set(FaultMode::Answers);
    assert!(limiter.take("other").await.unwrap().is_allowed());
    tokio::task::yield_now().await;
    assert!(!limiter.take("k").await.unwrap().is_allowed());
    let submissions = store.submissions();
    assert!(!limiter.take("k").await.unwrap().is_allowed());
    assert_eq!(store.submissions(), submissions + 1, "sent once");
}

/// Delivery is not repeated with every call to a store that accepts everything but holds.
#[tokio::test(start_paused = true)]
async fn failed_hold_delivery_is_retried_after_a_delay() {
    let (store, _guard, limiter) = guarded(per_second(1, 1_000));
    store.set(FaultMode::Hangs);
    for key in ["k", "l"] {
        assert_eq!(limiter.hold(key, SECOND * 60).await.unwrap(), SECOND * 60);
    }
    // The second operation of every call fails, and there are two holds.
    store.set(FaultMode::Half);
    let before = store.submissions();
    for _ in 0..100 {
        assert!(limiter.take("other").await.unwrap().is_allowed());
        tokio::time::sleep(MILLI * 40).await;
    }
    assert_eq!(store.submissions() - before, 101, "one try in four seconds");
    tokio::time::sleep(SECOND * 2).await;
    assert!(limiter.take("other").await.unwrap().is_allowed());
    tokio::task::yield_now().await;
    for key in ["k", "l"] {
        assert!(!limiter.take(key).await.unwrap().is_allowed(), "sent one at a time");
    }
}

/// A hold that the store cannot apply is not sent again and again.
#[tokio::test(start_paused = true)]
async fn a_rejected_hold_stays_local_and_is_not_resent() {
    let (store, guard, limiter) = guarded(per_second(1, 1_000));
    store.set(FaultMode::Picky);
    assert_eq!(limiter.hold("odd", SECOND * 60).await.unwrap(), SECOND * 60);
    for _ in 0..10 {
        assert!(limiter.take("k").await.unwrap().is_allowed());
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(store.submissions(), 12, "sent once more, then no more");
    assert_eq!(guard.stats().rejected, 1);
    assert!(!limiter.take("odd").await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_a_pending_hold() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    for key in ["k", "l"] {
        assert_eq!(limiter.hold(key, SECOND * 60).await.unwrap(), SECOND * 60);
    }
    assert!(limiter.reset("k").await.is_err(), "the store still has its state");
    assert!(limiter.take("k").await.unwrap().is_allowed());
    bring_up(&store, &guard).await;
    assert!(limiter.take("k").await.unwrap().is_allowed());
    assert!(!limiter.take("l").await.unwrap().is_allowed());
}

/// Many holds are sent in calls of 64; beyond the maximum a hold is in effect only here.
#[tokio::test(start_paused = true)]
async fn the_number_of_pending_holds_is_bounded() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    for key in 0..1_030 {
        let held = limiter.hold(key, SECOND * 600).await.unwrap();
        assert_eq!(held, SECOND * 600);
    }
    assert!(!limiter.take("1029").await.unwrap().is_allowed());
    let submissions = store.submissions();
    bring_up(&store, &guard).await;
    assert_eq!((store.inner().stats().held_keys, store.submissions() - submissions), (1_024, 16));
}
