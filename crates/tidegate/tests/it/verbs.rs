//! One set of verbs, sync on the in-process store and async on any.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{
    Change, Charge, ChargeError, Correction, Engine, LimitError, Limiter, MemoryStore, Operation,
    Policy, Retry, Store, StoreError,
};

fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

#[test]
fn a_limiter_counts_waits_settles_holds_and_forgets() {
    let (engine, clock) = engine();
    let limiter = engine.limiter("api", policy(10)).unwrap();
    assert_eq!(limiter.take("x").cost(4).now().unwrap().remaining(), 6);
    assert_eq!(limiter.peek("x").cost(6).now().unwrap().remaining(), 0);
    assert_eq!(limiter.settle("x", 8, None).now().unwrap().outcomes[0].remaining, 0);
    let denied = limiter.take("x").now().unwrap();
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_secs(3))));
    assert_eq!(limiter.settle("x", -8, None).now().unwrap().outcomes[0].remaining, 6);
    let grant =
        limiter.reserve("x", Duration::from_secs(9)).cost(8).now().unwrap().granted().unwrap();
    assert_eq!(grant.wait, Duration::from_secs(2));
    assert_eq!(limiter.hold("x", Duration::from_secs(5)).now().unwrap().as_secs(), 5);
    clock.advance(Duration::from_secs(5));
    assert_eq!(
        limiter.take("x").now().unwrap().retry(),
        Some(Retry::After(Duration::from_secs(1)))
    );
    assert!(limiter.reset("x").now().unwrap());
    assert_eq!(limiter.take("x").now().unwrap().remaining(), 9);
}

#[tokio::test]
async fn any_store_is_awaited_with_the_same_verbs() {
    let (local, _clock) = engine();
    let engine: Engine = Engine::on(Arc::new(MemoryStore::new()));
    let limiter = engine.limiter("api", policy(2)).unwrap();
    assert!(limiter.take("x").await.unwrap().is_allowed());
    assert!(limiter.take("x").await.unwrap().is_allowed());
    assert!(!limiter.take("x").await.unwrap().is_allowed());
    assert!(limiter.reset("x").await.unwrap());
    assert_eq!(limiter.peek("x").await.unwrap().remaining(), 1);
    let limiter = local.limiter("api", policy(2)).unwrap();
    assert_eq!(limiter.take("x").await.unwrap().remaining(), 1);
    assert_eq!(limiter.take("x").now().unwrap().remaining(), 0);
}

/// Two policies on one store never meet, even for equal keys; equal policies do.
#[test]
fn limits_are_told_apart_by_name_or_by_parameters() {
    let (engine, _clock) = engine();
    let (cheap, dear) = (engine.inline(policy(10)).unwrap(), engine.inline(policy(5)).unwrap());
    for _ in 0..10 {
        assert!(cheap.take("x").now().unwrap().is_allowed());
    }
    assert_eq!(dear.take("x").now().unwrap().remaining(), 4);
    assert!(!engine.inline(policy(10)).unwrap().take("x").now().unwrap().is_allowed());
    assert!(engine.limiter("named", policy(10)).unwrap().take("x").now().unwrap().is_allowed());
    assert!(Limiter::new(policy(10)).take("x").now().unwrap().is_allowed(), "another store");
}

#[test]
fn a_denied_list_spends_nothing_and_says_which_limit_binds() {
    let (engine, _clock) = engine();
    let client = engine.limiter("client", policy(5)).unwrap();
    let organization = engine.limiter("organization", policy(3)).unwrap();
    let terms = (client.snapshot(), organization.snapshot());
    let charges = [terms.0.charge("alice", 4), terms.1.charge("acme", 4)];
    let decision = engine.take(&charges).now().unwrap();
    assert_eq!((decision.is_allowed(), decision.binding()), (false, 1));
    assert_eq!(decision.retry(), Some(Retry::Never));
    assert_eq!(client.take("alice").cost(0).now().unwrap().remaining(), 5);
    assert!(engine.take(&charges[..1]).now().unwrap().is_allowed());
}

#[test]
fn wrong_lists_are_errors_of_the_caller() {
    let (engine, _clock) = engine();
    let limiter = engine.limiter("api", policy(5)).unwrap();
    let terms = limiter.snapshot();
    let many: Vec<Charge<'_>> = (0..17).map(|_| terms.charge("x", 1)).collect();
    let error = engine.take(&many).now().unwrap_err();
    assert!(matches!(error, StoreError::Charge(ChargeError::TooMany(17))));
    assert!(error.is_callers_fault());
    let error = engine.take(&[]).now().unwrap_err();
    assert!(matches!(error, StoreError::Charge(ChargeError::Empty)));
    assert_eq!(limiter.take("x").now().unwrap().remaining(), 4);
}

#[test]
fn batches_are_answered_in_order() {
    let (engine, _clock) = engine();
    let limiter = engine.limiter("api", policy(1)).unwrap();
    let terms = limiter.snapshot();
    let charges = [terms.charge("x", 1)];
    let corrections = [Correction { target: terms.target("x"), delta: -1 }];
    let operations = [
        Operation::Take(&charges),
        Operation::Take(&charges),
        Operation::Settle { corrections: &corrections, receipt: None },
        Operation::Take(&charges),
    ];
    let mut answers = tidegate::Answers::new();
    assert!(matches!(
        engine.store().local().unwrap().submit(&operations, &mut answers),
        tidegate::Submission::Ready
    ));
    let allowed: Vec<bool> = answers
        .into_iter()
        .filter_map(|answer| match answer.unwrap() {
            tidegate::Answer::Decision(decision) => Some(decision.is_allowed()),
            _ => None,
        })
        .collect();
    assert_eq!(allowed, [true, false, true]);
}

/// Two policies under one name would not agree on what a stored bucket means.
#[test]
fn a_name_is_one_policy_for_all_its_handles() {
    let (engine, _clock) = engine();
    let one = engine.limiter("api", policy(5)).unwrap();
    let two = engine.limiter("api", policy(5)).unwrap();
    assert!(
        matches!(engine.limiter("api", policy(6)), Err(LimitError::Taken(name)) if name == "api")
    );
    one.reconfigure(policy(6), Change::KeepTokens).unwrap();
    assert_eq!(two.policy().capacity(), 6);
    assert!(engine.limiter("api", policy(6)).is_ok());
}

#[test]
fn a_calendar_quota_needs_a_schedule() {
    let (engine, _clock) = engine();
    let quota = Policy::quota(5).unwrap();
    assert!(matches!(engine.limiter("daily", quota), Err(LimitError::NoSchedule)));
    let limiter = engine.limiter("api", policy(5)).unwrap();
    assert_eq!(limiter.reconfigure(quota, Change::Reset), Err(LimitError::NoSchedule));
}
