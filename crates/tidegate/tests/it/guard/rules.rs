//! Decisions in place of the store.

use std::time::Duration;

use tidegate::FailureRule::{Closed, Local, Open};
use tidegate::guard::GuardedStore;
use tidegate::{Decision, FailureRule, Policy, Retry, Store, StoreError};
use tidegate_core::{
    Charge, ChargeError, Limit, Operation, StoreResponse, StoreResponses, Windows,
};

use super::faulty::{
    FaultMode, Faulty, MILLI, SECOND, bring_down, execute, faulty, guard_of, guarded, named,
    per_second, take,
};

async fn down() -> (std::sync::Arc<Faulty>, GuardedStore) {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    (store, guard)
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.outcomes().iter().map(|outcome| outcome.remaining).collect()
}

#[tokio::test(start_paused = true)]
async fn closed_denies_until_the_next_probe() {
    let (_store, guard) = down().await;
    let limit = named("money", 1, 10).on_failure(Closed);
    let denied = take(&guard, &[Charge::new(&limit, "k", 1)]).await;
    assert_eq!((denied.degraded(), denied.remaining()), (Some(Closed), 0));
    assert_eq!(denied.outcomes()[0].capacity, 10);
    assert_eq!(denied.retry(), Some(Retry::After(MILLI * 100)), "never sooner than that");
    // The probe interval has doubled several times by now.
    tokio::time::sleep(SECOND).await;
    let denied = take(&guard, &[Charge::new(&limit, "k", 1)]).await;
    let wait = denied.retry().and_then(Retry::after).unwrap();
    assert!(wait > MILLI * 100 && wait <= MILLI * 1_600, "{wait:?}");
    assert_eq!(guard.stats().closed, 2);
}

#[tokio::test(start_paused = true)]
async fn open_allows_everything_and_counts_nothing() {
    let (_store, guard) = down().await;
    let limit = named("harmless", 1, 10).on_failure(Open);
    for _ in 0..100 {
        let decision = take(&guard, &[Charge::new(&limit, "k", 11)]).await;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, 10));
        assert_eq!(decision.degraded(), Some(Open));
        assert_eq!(decision.outcomes()[0].reset, Some(Duration::ZERO));
    }
    assert_eq!(guard.stats().open, 100);
}

#[tokio::test(start_paused = true)]
async fn the_default_rule_applies_to_limits_without_one_except_quotas() {
    let store = faulty();
    for rule in [Open, Closed, Local] {
        let guard = guard_of(&store).default_rule(rule).build().unwrap();
        bring_down(&store, &guard).await;
        let decided = take(&guard, &[Charge::new(&named("plain", 1, 10), "k", 1)]).await;
        assert_eq!((decided.degraded(), decided.is_allowed()), (Some(rule), rule != Closed));
        let windows = Windows::new([0, u32::MAX - 2, u32::MAX - 1, u32::MAX]).unwrap();
        let quota = Limit::named("daily", Policy::quota(9).unwrap()).unwrap();
        for (limit, expected) in [(quota.clone(), Closed), (quota.on_failure(Local), Local)] {
            let mut charge = Charge::new(&limit, "k", 2);
            charge.target = charge.target.with_windows(windows);
            let decided = take(&guard, &[charge]).await;
            let left = if expected == Local { 7 } else { 0 };
            assert_eq!((decided.degraded(), decided.remaining()), (Some(expected), left));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_rule_applies_to_all_limiters_of_a_name() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let same = limiter.engine().limiter("calls", per_second(1, 10)).unwrap();
    limiter.set_failure_rule(Closed);
    limiter.reconfigure(per_second(1, 20), tidegate::PolicyChange::KeepTokens).unwrap();
    bring_down(&store, &guard).await;
    let denied = same.take("k").await.unwrap();
    assert_eq!((denied.degraded(), denied.outcomes()[0].capacity), (Some(Closed), 20));
}

#[tokio::test(start_paused = true)]
async fn one_closed_limit_denies_a_list_without_spending() {
    let (_store, guard) = down().await;
    let (closed, open, local) = (
        named("a", 1, 10).on_failure(Closed),
        named("b", 1, 20).on_failure(Open),
        named("c", 1, 30),
    );
    let list =
        [Charge::new(&local, "k", 5), Charge::new(&open, "k", 5), Charge::new(&closed, "k", 5)];
    for _ in 0..10 {
        let denied = take(&guard, &list).await;
        assert_eq!((denied.degraded(), denied.binding()), (Some(Closed), 2));
        assert_eq!(remaining(&denied), [30, 20, 0]);
        assert_eq!(denied.outcomes()[0].retry, None, "it would have fitted");
    }
    let all = [Charge::new(&local, "k", 30)];
    assert!(take(&guard, &all).await.is_allowed(), "nothing had been spent");
    let denied = take(&guard, &[Charge::new(&local, "k", 2), list[2]]).await;
    assert_eq!((denied.binding(), denied.retry()), (0, Some(Retry::After(SECOND * 2))), "longest");
}

#[tokio::test(start_paused = true)]
async fn open_and_local_limits_are_decided_together() {
    let (_store, guard) = down().await;
    let (open, one, other) =
        (named("a", 1, 10).on_failure(Open), named("b", 1, 10), named("c", 1, 5));
    let list = [Charge::new(&one, "k", 4), Charge::new(&open, "k", 4), Charge::new(&other, "k", 4)];
    let granted = take(&guard, &list).await;
    assert_eq!((granted.degraded(), remaining(&granted)), (Some(Local), vec![6, 10, 1]));
    let denied = take(&guard, &list).await;
    assert_eq!((denied.degraded(), remaining(&denied)), (Some(Local), vec![6, 10, 1]));
    assert_eq!((denied.binding(), denied.retry()), (2, Some(Retry::After(SECOND * 3))));
    let first = take(&guard, &[Charge::new(&one, "k", 6)]).await;
    assert!(first.is_allowed(), "all or nothing: a denied list spends of no limit");
}

#[tokio::test(start_paused = true)]
async fn a_cost_of_zero_is_never_denied() {
    let (_store, guard) = down().await;
    let (closed, local) = (named("a", 1, 10).on_failure(Closed), named("b", 1, 10));
    let looked = take(&guard, &[Charge::new(&closed, "k", 0)]).await;
    assert_eq!((looked.is_allowed(), looked.remaining()), (true, 0));
    assert_eq!(looked.degraded(), Some(Closed));
    let both = take(&guard, &[Charge::new(&closed, "k", 0), Charge::new(&local, "k", 4)]).await;
    assert_eq!((both.is_allowed(), both.degraded()), (true, Some(Closed)));
    assert_eq!(remaining(&both), [0, 6]);
}

#[tokio::test(start_paused = true)]
async fn caller_errors_are_errors_while_the_store_is_down() {
    let (_store, guard) = down().await;
    let error = |answer| match answer {
        Err(StoreError::Charge(error)) => error,
        other => panic!("{other:?}"),
    };
    let limit = named("a", 1, 10);
    assert_eq!(error(execute(&guard, Operation::Take(&[])).await), ChargeError::Empty);
    let many = [Charge::new(&limit, "k", 1); 17];
    assert_eq!(error(execute(&guard, Operation::Peek(&many)).await), ChargeError::TooMany(17));
    let settle = Operation::Settle { corrections: &[], receipt: None };
    assert_eq!(error(execute(&guard, settle).await), ChargeError::Empty);
    let quota = Limit::named("daily", Policy::quota(9).unwrap()).unwrap();
    let list = [Charge::new(&limit, "k", 1), Charge::new(&quota, "k", 1)];
    assert_eq!(error(execute(&guard, Operation::Take(&list)).await), ChargeError::NoWindows(1));
    let (open, quota) = (limit.on_failure(Open), quota.on_failure(Local));
    let mut list = [Charge::new(&open, "k", 1), Charge::new(&quota, "k", 1)];
    let past = Windows::new([1, 2, 3, 4]).unwrap();
    list[1].target = list[1].target.with_windows(past);
    assert_eq!(error(execute(&guard, Operation::Take(&list)).await), ChargeError::OtherWindows(1));
    assert_eq!(guard.stats().degraded(), 3, "those that marked it as down");
}

/// Three nodes share ten tokens; eight never fit one share, but will fit the limit.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_but_within_the_limit_waits_for_the_store() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set_nodes(3);
    assert!(limiter.take("k").await.unwrap().is_allowed());
    bring_down(&store, &guard).await;
    let denied = limiter.take("k").cost(8).await.unwrap();
    assert_eq!(denied.retry(), Some(Retry::After(MILLI * 100)));
    assert_eq!(limiter.take("k").cost(11).await.unwrap().retry(), Some(Retry::Never));
    let limit = limiter.limit();
    let twice = [Charge::new(&limit, "k", 6), Charge::new(&limit, "k", 6)];
    assert_eq!(take(&guard, &twice).await.retry(), Some(Retry::Never), "twelve are too many");
    let total = Limit::named("total", Policy::allowance(9).unwrap()).unwrap();
    assert!(take(&guard, &[Charge::new(&total, "k", 3)]).await.is_allowed());
    let denied = take(&guard, &[Charge::new(&total, "k", 1)]).await;
    assert_eq!(
        denied.retry(),
        Some(Retry::After(MILLI * 100)),
        "the rest may be available in the store"
    );
}

#[tokio::test(start_paused = true)]
async fn peeks_spend_nothing_and_reservations_wait() {
    let (_store, guard) = down().await;
    let limit = named("a", 1, 10);
    let charges = [Charge::new(&limit, "k", 10)];
    for _ in 0..3 {
        let Ok(StoreResponse::Decision(seen)) = execute(&guard, Operation::Peek(&charges)).await
        else {
            panic!("no decision")
        };
        assert_eq!((seen.is_allowed(), seen.remaining()), (true, 0));
        assert_eq!(seen.degraded(), Some(Local));
    }
    assert!(take(&guard, &charges).await.is_allowed());
    let reserve = Operation::Reserve { charges: &charges, horizon: SECOND * 60 };
    let Ok(StoreResponse::Decision(Decision::Allowed(grant))) = execute(&guard, reserve).await
    else {
        panic!("no grant")
    };
    assert_eq!((grant.wait, grant.degraded), (SECOND * 10, Some(Local)));
}

/// A batch whose operations have different results.
#[tokio::test(start_paused = true)]
async fn only_failed_operations_of_a_batch_are_degraded() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    let limit = named("a", 1, 10);
    let costs = [1, 2, 3, 4].map(|cost| [Charge::new(&limit, "k", cost)]);
    let [a, b, c, d] = &costs;
    let operations =
        [Operation::Take(a), Operation::Take(b), Operation::Take(&[]), Operation::Take(d)];
    let summary = |answers: &StoreResponses| {
        let summary = |answer: &Result<StoreResponse, StoreError>| match answer {
            Ok(StoreResponse::Decision(decision)) => {
                Some((decision.remaining(), decision.degraded()))
            }
            Err(StoreError::Charge(ChargeError::Empty)) => None,
            other => panic!("{other:?}"),
        };
        answers.iter().map(summary).collect::<Vec<_>>()
    };
    store.set(FaultMode::Half);
    let mut answers = StoreResponses::new();
    guard.submit(&operations, &mut answers).await;
    let half = vec![Some((9, None)), Some((8, Some(Local))), None, Some((4, Some(Local)))];
    assert_eq!(summary(&answers), half);
    assert_eq!((guard.stats().failed, guard.stats().local), (1, 2));

    store.set(FaultMode::Hangs);
    let mut answers = StoreResponses::new();
    answers.push(Err(StoreError::Full));
    guard.submit(&operations, &mut answers).await;
    assert!(matches!(answers.remove(0), Err(StoreError::Full)), "existing answers are kept");
    let rest: Vec<Option<(u64, Option<FailureRule>)>> =
        vec![Some((3, Some(Local))), Some((1, Some(Local))), None, Some((1, Some(Local)))];
    assert_eq!(summary(&answers), rest);
    store.set(FaultMode::Answers);
    let mut answers = StoreResponses::new();
    guard.submit(&[Operation::Take(c)], &mut answers).await;
    assert_eq!(summary(&answers), [Some((6, None))]);
}

/// While a pacer has waiters a plain take is denied; the denial is still marked as degraded.
#[tokio::test(start_paused = true)]
async fn a_degraded_denial_behind_waiters_is_marked() {
    use std::future::IntoFuture as _;
    use tidegate::Engine;
    use tidegate::pacer::Pacer;
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    let engine: Engine = Engine::on(guard);
    let limiter = engine.limiter("waited", per_second(1, 1)).unwrap();
    let pacer = Pacer::new(&engine);
    drop(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
    let waiter = tokio::spawn(pacer.acquire([limiter.charge("k", 1)]).into_future());
    tokio::time::sleep(MILLI).await;
    let denied = limiter.take("k").await.unwrap();
    assert_eq!((denied.is_allowed(), denied.degraded()), (false, Some(Local)));
    assert!(waiter.await.unwrap().is_ok());
}
