//! Receipts, holds and resets around an outage.

mod holds;

use std::sync::Arc;

use tidegate::FailureRule::{Closed, Local, Open};
use tidegate::guard::{GuardedStore, NotCalled};
use tidegate::{Decision, Grant, Policy, Receipt, Retry, Settlement, StoreError};
use tidegate_core::{Charge, Correction, Limit, Operation, ReceiptError, StoreResponse, Target};

use super::faulty::{
    FaultMode, Faulty, MILLI, SECOND, bring_down, execute, guarded, named, per_second, take,
};

async fn granted(guard: &GuardedStore, charges: &[Charge<'_>]) -> Grant {
    match take(guard, charges).await {
        Decision::Allowed(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn settle(
    guard: &GuardedStore,
    corrections: &[Correction<'_>],
    receipt: &Receipt,
) -> Result<Settlement, StoreError> {
    match execute(guard, Operation::Settle { corrections, receipt: Some(receipt) }).await? {
        StoreResponse::Settled(settlement) => Ok(settlement),
        other => panic!("{other:?}"),
    }
}

fn over_the_wire(receipt: &Receipt) -> Receipt {
    Receipt::from_bytes(&receipt.to_bytes()).unwrap()
}

async fn recover(store: &Faulty) {
    store.set(FaultMode::Answers);
    tokio::time::sleep(SECOND * 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_degraded_grant_is_settled_locally_even_after_recovery() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    assert!(limiter.take("k").cost(60).await.unwrap().is_allowed());
    bring_down(&store, &guard).await;
    let grant = limiter.take("k").cost(50).await.unwrap().granted().unwrap();
    let receipt = over_the_wire(&grant.receipt);
    let back = limiter.settle("k", -20, Some(&receipt)).await.unwrap();
    assert_eq!((back.outcomes[0].remaining, back.applied[0]), (70, -20));
    recover(&store).await;
    let submissions = store.submissions();
    let more = limiter.settle("k", 60, Some(&receipt)).await.unwrap();
    assert_eq!((more.outcomes[0].remaining, more.applied[0]), (16, 60), "six seconds later");
    assert_eq!(store.submissions(), submissions, "the store was not called");
    let there = limiter.peek("k").cost(0).await.unwrap();
    assert_eq!((there.degraded(), there.remaining()), (None, 46));
}

/// The receipt of another revision cannot be compared: nothing is given back.
#[tokio::test(start_paused = true)]
async fn a_degraded_reservation_under_an_older_policy_is_dropped() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed());
    let grant = limiter.reserve("k", SECOND * 60).cost(5).await.unwrap().granted().unwrap();
    limiter.reconfigure(per_second(2, 10), tidegate::PolicyChange::KeepTokens).unwrap();
    let settled = limiter.settle("k", -5, Some(&grant.receipt)).await.unwrap();
    assert_eq!((settled.dropped, settled.applied[0]), (1, 0));
}

/// A reservation made during an outage is cancelled like any other.
#[tokio::test(start_paused = true)]
async fn a_degraded_reservation_is_cancelled_exactly() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed());
    let grant = limiter.reserve("k", SECOND * 60).cost(5).await.unwrap().granted().unwrap();
    assert_eq!(grant.wait, SECOND * 5);
    let receipt = over_the_wire(&grant.receipt);
    limiter.settle("k", -5, Some(&receipt)).await.unwrap();
    let next = limiter.take("k").await.unwrap();
    assert_eq!(next.retry(), Some(Retry::After(SECOND)));
}

#[tokio::test(start_paused = true)]
async fn a_receipt_has_one_stamp_per_charge() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    let (open, local, closed) = (
        named("a", 1, 10).on_failure(Open),
        named("b", 1, 10),
        named("c", 1, 10).on_failure(Closed),
    );
    let charges = [
        Charge::new(&open, "k", 4),
        Charge::new(&local, "k", 4),
        Charge::new(&closed, "k", 0),
        Charge::new(&local, "other", 4),
    ];
    let receipt = over_the_wire(&granted(&guard, &charges).await.receipt);
    assert_eq!(receipt.charges().len(), 4);
    let corrections = [-3, -2, 5, 1].into_iter().zip(&charges);
    let corrections: Vec<_> =
        corrections.map(|(delta, charge)| Correction { target: charge.target, delta }).collect();
    for _ in 0..2 {
        let settled = settle(&guard, &corrections, &receipt).await.unwrap();
        assert_eq!(&*settled.applied, [0, -2, 0, 1]);
        let left: Vec<_> = settled.outcomes.iter().map(|outcome| outcome.remaining).collect();
        assert!(left[0] == 10 && left[2] == 10, "uncounted charges leave the limit full");
        assert_eq!((settled.saturated, settled.dropped), (0, 0));
        recover(&store).await;
    }
    let of_open = granted(&guard, &charges[..1]).await;
    assert_eq!(of_open.degraded, None);
}

#[tokio::test(start_paused = true)]
async fn an_open_grant_has_nothing_to_settle_or_release() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    let open = named("a", 1, 10).on_failure(Open);
    let receipt = granted(&guard, &[Charge::new(&open, "k", 4)]).await.receipt;
    let settled = settle(&guard, &[Correction::new(&open, "k", 9)], &receipt).await.unwrap();
    assert_eq!((settled.outcomes[0].remaining, settled.applied[0]), (10, 0));
    let targets = [Target::new(&open, "k")];
    let release = Operation::Release { targets: &targets, receipt: &receipt };
    assert_eq!(execute(&guard, release).await.unwrap(), StoreResponse::Slots(0));
}

#[tokio::test(start_paused = true)]
async fn degraded_slots_are_renewed_and_released_locally() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    let slots = Limit::named("slots", Policy::concurrency(3, Some(SECOND * 10)).unwrap()).unwrap();
    let rate = named("rate", 1, 100);
    bring_down(&store, &guard).await;
    let charges = [Charge::new(&rate, "k", 1), Charge::new(&slots, "k", 3)];
    let grant = granted(&guard, &charges).await;
    let receipt = over_the_wire(&grant.receipt);
    let targets = charges.map(|charge| charge.target);
    tokio::time::sleep(SECOND * 8).await;
    let renew = Operation::Renew { targets: &targets, receipt: &receipt };
    assert_eq!(execute(&guard, renew).await.unwrap(), StoreResponse::Slots(3));
    tokio::time::sleep(SECOND * 8).await;
    assert!(!take(&guard, &charges).await.is_allowed(), "renewed");
    recover(&store).await;
    let release = Operation::Release { targets: &targets, receipt: &receipt };
    assert_eq!(execute(&guard, renew).await.unwrap(), StoreResponse::Slots(0), "expired by now");
    assert_eq!(execute(&guard, release).await.unwrap(), StoreResponse::Slots(0));
    bring_down(&store, &guard).await;
    let receipt = granted(&guard, &charges).await.receipt;
    let release = Operation::Release { targets: &targets, receipt: &receipt };
    assert_eq!(execute(&guard, release).await.unwrap(), StoreResponse::Slots(3));
    assert!(take(&guard, &charges).await.is_allowed());
}

/// Only the store knows what it charged: the caller gets an error.
#[tokio::test(start_paused = true)]
async fn receipts_of_the_store_are_errors_while_it_is_down() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let grant = limiter.take("k").cost(5).await.unwrap().granted().unwrap();
    let limit = limiter.limit();
    let (targets, corrections) = ([Target::new(&limit, "k")], [Correction::new(&limit, "k", -5)]);
    let operations = [
        Operation::Settle { corrections: &corrections, receipt: Some(&grant.receipt) },
        Operation::Settle { corrections: &corrections, receipt: None },
        Operation::Release { targets: &targets, receipt: &grant.receipt },
        Operation::Renew { targets: &targets, receipt: &grant.receipt },
    ];
    store.set(FaultMode::Hangs);
    for operation in &operations[..2] {
        assert!(matches!(execute(&guard, *operation).await, Err(StoreError::TimedOut)));
    }
    bring_down(&store, &guard).await;
    for operation in operations {
        let Err(StoreError::Unavailable(error)) = execute(&guard, operation).await else {
            panic!("{operation:?}")
        };
        let reason = error.downcast_ref();
        assert!(
            matches!(reason, Some(NotCalled::Down { retry_after }) if *retry_after == MILLI * 100)
        );
    }
    recover(&store).await;
    let settled = limiter.settle("k", -5, Some(&grant.receipt)).await.unwrap();
    assert_eq!(settled.outcomes[0].remaining, 10);
}

#[tokio::test(start_paused = true)]
async fn receipts_of_other_buckets_are_rejected() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    let grant = limiter.take("k").cost(5).await.unwrap().granted().unwrap();
    let error = |answer: Result<Settlement, StoreError>| match answer {
        Err(StoreError::Receipt(error)) => error,
        other => panic!("{other:?}"),
    };
    let (same, other) = (limiter.limit(), named("other", 1, 10));
    let twice = [Correction::new(&same, "k", 1); 2];
    assert_eq!(error(settle(&guard, &twice, &grant.receipt).await), ReceiptError::Mismatch);
    let of_other = [Correction::new(&other, "k", 1)];
    assert_eq!(error(settle(&guard, &of_other, &grant.receipt).await), ReceiptError::Mismatch);
    let of_key = [Correction::new(&same, "x", 1)];
    assert_eq!(error(settle(&guard, &of_key, &grant.receipt).await), ReceiptError::Mismatch);
    let stranger = guarded(per_second(1, 10));
    let correction = [Correction::new(&same, "k", 1)];
    assert_eq!(error(settle(&stranger.1, &correction, &grant.receipt).await), ReceiptError::Issuer);
    assert!(settle(&guard, &correction, &grant.receipt).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_local_share_and_fails_until_the_store_is_back() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed());
    bring_down(&store, &guard).await;
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed());
    assert!(matches!(limiter.reset("k").await, Err(StoreError::Unavailable(_))));
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed(), "forgotten locally");
    store.set(FaultMode::Answers);
    tokio::time::sleep(MILLI * 101).await;
    assert!(!limiter.take("k").await.unwrap().is_allowed(), "but not in the store");
    assert!(limiter.reset("k").await.unwrap());
    assert!(limiter.take("k").cost(10).await.unwrap().is_allowed());
    bring_down(&store, &guard).await;
    let again = limiter.take("k").cost(10).await.unwrap();
    assert_eq!((again.is_allowed(), again.degraded()), (true, Some(Local)), "forgotten by both");
}

/// One batch with a receipt of each kind.
#[tokio::test(start_paused = true)]
async fn a_batch_may_mix_receipts_of_guard_and_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let shared = limiter.take("k").cost(4).await.unwrap().granted().unwrap();
    bring_down(&store, &guard).await;
    let local = limiter.take("k").cost(4).await.unwrap().granted().unwrap();
    store.set(FaultMode::Answers);
    tokio::time::sleep(MILLI * 101).await;
    let limit = limiter.limit();
    let back = [Correction::new(&limit, "k", -4)];
    let charges = [Charge::new(&limit, "k", 0)];
    let operations = [
        Operation::Settle { corrections: &back, receipt: Some(&local.receipt) },
        Operation::Settle { corrections: &back, receipt: Some(&shared.receipt) },
        Operation::Peek(&charges),
    ];
    let mut answers = tidegate_core::StoreResponses::new();
    let guard: Arc<dyn tidegate::Store> = Arc::new(guard);
    guard.submit(&operations, &mut answers).await;
    let left: Vec<u64> = answers
        .iter()
        .map(|answer| match answer {
            Ok(StoreResponse::Settled(settled)) => settled.outcomes[0].remaining,
            Ok(StoreResponse::Decision(decision)) => decision.remaining(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(left, [10, 10, 10]);
}
