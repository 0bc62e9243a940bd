//! Batches through a guard: one call, and a failure rule for each operation that is not answered.

use tidegate::{Batch, Decision, FailureRule, StoreError};

use super::faulty::{FaultMode, MILLI, guarded, per_second};

type Answer = Result<Decision, StoreError>;

fn degraded(answers: &[Answer]) -> Vec<Option<FailureRule>> {
    answers.iter().map(|answer| answer.as_ref().unwrap().degraded()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_call_and_failure_rules_decide_the_rest() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    let batch = || Batch::from_iter(["a", "b", "c", "d"].map(|key| limiter.take(key)));
    assert_eq!(degraded(&batch().await), [None; 4]);
    assert_eq!(store.submissions(), 1);

    store.set(FaultMode::Half);
    let local = Some(FailureRule::Local);
    assert_eq!(degraded(&batch().await), [None, local, None, local]);
    assert_eq!((store.submissions(), guard.is_up()), (2, true));

    store.set(FaultMode::Hangs);
    for _ in 0..3 {
        assert_eq!(degraded(&batch().await), [local; 4]);
    }
    assert_eq!((store.submissions(), guard.is_up()), (5, false));
    // A store that is down is not called, and the share of this node is exact.
    let answers = Batch::from_iter((0..200).map(|_| limiter.take("e"))).await;
    assert_eq!(store.submissions(), 5);
    let allowed = answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed());
    assert_eq!(allowed.count(), 100);
}

/// The store was cut off in the middle: answers that had arrived by then are kept.
#[tokio::test(start_paused = true)]
async fn answers_that_came_in_time_are_kept() {
    let (store, _guard, limiter) = guarded(per_second(1, 100));
    store.set(FaultMode::OneByOne(MILLI * 20));
    let answers = Batch::from_iter((0..4).map(|_| limiter.take("k"))).await;
    let local = Some(FailureRule::Local);
    assert_eq!(degraded(&answers), [None, None, local, local]);
}
