//! Holds around an outage: obeyed on both sides of either edge.

use tidegate::FailureRule::{Closed, Local, Open};
use tidegate::StoreError;
use tidegate_core::{Operation, Target};

use super::super::faulty::{
    MILLI, Mood, SECOND, TIMEOUT, bring_down, bring_up, guarded, named, one, per_second,
};

/// A provider said when to come back, and the store cannot be told.
#[tokio::test(start_paused = true)]
async fn a_hold_is_obeyed_while_the_store_is_down() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Hangs);
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
        assert!(matches!(one(&guard, hold).await, Err(StoreError::Unavailable(_))));
    }
}

/// A key that the store had closed was open again as soon as the store was away.
#[tokio::test(start_paused = true)]
async fn a_hold_of_the_store_is_obeyed_without_it() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    bring_down(&store, &guard).await;
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.is_allowed(), denied.degraded()), (false, Some(Local)));
    tokio::time::sleep(SECOND * 61).await;
    assert!(limiter.take("k").await.unwrap().is_allowed());
}

/// A hold was confirmed for a minute during an outage, and forgotten when the store was back.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_hold_is_told_to_the_store_when_it_is_back() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    assert_eq!(limiter.hold("brief", MILLI * 10).await.unwrap(), MILLI * 10);
    bring_up(&store, &guard).await;
    assert_eq!(store.inner().stats().held_keys, 1, "nobody had to ask, and what is over is over");
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.is_allowed(), denied.degraded()), (false, None));
    let wait = denied.retry().unwrap().after().unwrap();
    assert_eq!(wait, SECOND * (60 - 5 + 1) - TIMEOUT, "what is left of it, and a token");
}

/// One call timed out, the store was never down: the next answer shows that it can be told.
#[tokio::test(start_paused = true)]
async fn a_hold_that_timed_out_is_told_with_the_next_answer() {
    let (store, _guard, limiter) = guarded(per_second(1, 10));
    store.set(Mood::Hangs);
    assert_eq!(limiter.hold("k", SECOND * 60).await.unwrap(), SECOND * 60);
    store.set(Mood::Answers);
    assert!(limiter.take("other").await.unwrap().is_allowed());
    tokio::task::yield_now().await;
    assert!(!limiter.take("k").await.unwrap().is_allowed());
    let asked = store.submissions();
    assert!(!limiter.take("k").await.unwrap().is_allowed());
    assert_eq!(store.submissions(), asked + 1, "told once");
}

/// Telling is not repeated with every call of a store that takes everything but holds.
#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_told_is_left_in_peace_for_a_while() {
    let (store, _guard, limiter) = guarded(per_second(1, 1_000));
    store.set(Mood::Hangs);
    for key in ["k", "l"] {
        assert_eq!(limiter.hold(key, SECOND * 60).await.unwrap(), SECOND * 60);
    }
    // The second operation of every call fails, and there are two holds.
    store.set(Mood::Half);
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
        assert!(!limiter.take(key).await.unwrap().is_allowed(), "told one at a time");
    }
}

/// What a store can do nothing with is not told again and again.
#[tokio::test(start_paused = true)]
async fn a_hold_that_the_store_rejects_is_obeyed_here_and_given_up() {
    let (store, guard, limiter) = guarded(per_second(1, 1_000));
    store.set(Mood::Picky);
    assert_eq!(limiter.hold("odd", SECOND * 60).await.unwrap(), SECOND * 60);
    for _ in 0..10 {
        assert!(limiter.take("k").await.unwrap().is_allowed());
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(store.submissions(), 12, "told once more, and no more");
    assert_eq!(guard.stats().rejected, 1);
    assert!(!limiter.take("odd").await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_a_hold_that_the_store_has_not_heard_of() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    for key in ["k", "l"] {
        assert_eq!(limiter.hold(key, SECOND * 60).await.unwrap(), SECOND * 60);
    }
    assert!(limiter.reset("k").await.is_err(), "the store may know more");
    assert!(limiter.take("k").await.unwrap().is_allowed());
    bring_up(&store, &guard).await;
    assert!(limiter.take("k").await.unwrap().is_allowed());
    assert!(!limiter.take("l").await.unwrap().is_allowed());
}

/// Many held keys are told in calls of 64; beyond the bound a hold is obeyed here alone.
#[tokio::test(start_paused = true)]
async fn the_number_of_holds_that_are_kept_is_bounded() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    for key in 0..1_030 {
        let held = limiter.hold(key, SECOND * 600).await.unwrap();
        assert_eq!(held, SECOND * 600);
    }
    assert!(!limiter.take("1029").await.unwrap().is_allowed());
    let asked = store.submissions();
    bring_up(&store, &guard).await;
    assert_eq!((store.inner().stats().held_keys, store.submissions() - asked), (1_024, 16));
}
