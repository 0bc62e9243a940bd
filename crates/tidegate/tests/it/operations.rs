//! One set of methods, sync on the in-process store and async on any.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::pacer::AcquireError;
use tidegate::{
    Batch, Engine, KeyBuf, LimitError, Limiter, MAX_KEY_BYTES, MemoryStore, Policy, PolicyChange,
    Retry, Store, StoreError, StoreHandle,
};
use tidegate_core::{ChargeError, Correction, KeyError, Operation};

fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

#[test]
fn a_limiter_supports_all_operations() {
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

/// R181: a store of this process and a shared one have the same methods, except that only the local
/// one decides without an await.
#[tokio::test]
async fn any_store_is_awaited_with_the_same_methods() {
    let local = StoreHandle::from(Arc::new(MemoryStore::new()));
    let shared = StoreHandle::shared(Arc::new(MemoryStore::new()));
    for (store, decides_now) in [(local, true), (shared, false)] {
        let engine = Engine::on(store);
        let limiter = engine.limiter("api", policy(2)).unwrap();
        assert!(limiter.take("x").await.unwrap().is_allowed());
        assert!(limiter.take("x").await.unwrap().is_allowed());
        assert!(!limiter.take("x").await.unwrap().is_allowed());
        assert!(limiter.reset("x").await.unwrap());
        assert_eq!(limiter.peek("x").await.unwrap().remaining(), 1);
        assert_eq!(limiter.take("x").now().is_ok(), decides_now);
    }
}

/// Two policies on one store never share a bucket, even for equal keys; equal policies do.
#[test]
fn limits_are_identified_by_name_or_by_parameters() {
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
    let charges = [client.charge("alice", 4), organization.charge("acme", 4)];
    let decision = engine.take(charges.clone()).now().unwrap();
    assert_eq!((decision.is_allowed(), decision.binding()), (false, 1));
    assert_eq!(decision.retry(), Some(Retry::Never));
    assert_eq!(client.take("alice").cost(0).now().unwrap().remaining(), 5);
    let [first, _] = charges;
    assert!(engine.take([first]).now().unwrap().is_allowed());
}

#[test]
fn invalid_lists_are_caller_errors() {
    let (engine, _clock) = engine();
    let limiter = engine.limiter("api", policy(5)).unwrap();
    let error = engine.take((0..17).map(|_| limiter.charge("x", 1))).now().unwrap_err();
    assert!(matches!(error, StoreError::Charge(ChargeError::TooMany(17))));
    assert!(error.is_caller_error());
    let error = engine.take([]).now().unwrap_err();
    assert!(matches!(error, StoreError::Charge(ChargeError::Empty)));
    let foreign = Engine::new().limiter("api", policy(5)).unwrap();
    let mixed = [limiter.charge("x", 1), foreign.charge("x", 1)];
    let error = engine.take(mixed.clone()).now().unwrap_err();
    assert_eq!(
        error.to_string(),
        "charge 1 is on a limiter of another engine; create all limiters with one engine"
    );
    let batch = Batch::new().with(engine.take(mixed)).with(limiter.take("x"));
    let answers = batch.now();
    assert!(matches!(answers[0], Err(StoreError::Charge(ChargeError::OtherEngine(1)))));
    assert_eq!(answers[1].as_ref().unwrap().remaining(), 4);
    assert_eq!(foreign.take("x").now().unwrap().remaining(), 4);
}

#[test]
fn keys_are_strings_addresses_and_numbers() {
    let limiter = Limiter::new(policy(9));
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(limiter.take(address).now().unwrap().remaining(), 8);
    assert_eq!(limiter.take("2001:db8::1").now().unwrap().remaining(), 7);
    assert_eq!(limiter.take(42_u64).now().unwrap().remaining(), 8);
    assert_eq!(limiter.take(String::from("42")).now().unwrap().remaining(), 7);
    assert_eq!(limiter.take(KeyBuf::from_parts(["42"])).now().unwrap().remaining(), 6);
    assert_eq!(limiter.charge(42_i8, 1).limit(), "default");
}

#[test]
fn every_operation_rejects_empty_and_too_long_keys() {
    fn refused<T: Debug>(answer: Result<T, StoreError>, wrong: KeyError) {
        let error = answer.unwrap_err();
        assert!(error.is_caller_error());
        let StoreError::Charge(ChargeError::Key(0, found)) = error else { panic!("{error:?}") };
        assert_eq!(found, wrong);
    }
    let limiter = Limiter::new(policy(9));
    let too_long = "x".repeat(MAX_KEY_BYTES + 1);
    let receipt = limiter.take("alice").now().unwrap().granted().unwrap().receipt;
    for (key, wrong) in [("", KeyError::Empty), (too_long.as_str(), KeyError::TooLong)] {
        refused(limiter.take(key).now(), wrong);
        refused(limiter.take(key).cost(0).now(), wrong);
        refused(limiter.peek(key).now(), wrong);
        refused(limiter.reserve(key, Duration::from_secs(1)).now(), wrong);
        refused(limiter.settle(key, -1, None).now(), wrong);
        refused(limiter.release(key, &receipt).now(), wrong);
        refused(limiter.hold(key, Duration::from_secs(1)).now(), wrong);
        refused(limiter.reset(key).now(), wrong);
        refused(limiter.engine().take([limiter.charge(key, 1)]).now(), wrong);
        for answer in Batch::new().with(limiter.take(key)).with(limiter.take(key)).now() {
            refused(answer, wrong);
        }
        assert!(limiter.take_bare(&limiter.snapshot(), key, 1).is_none());
        let Err(AcquireError::Store(error)) = limiter.wait(key).now() else { panic!() };
        refused(Err::<(), _>(error), wrong);
    }
}

#[test]
fn a_standalone_limiter_can_be_reconfigured() {
    let limiter = Limiter::new(policy(10));
    assert_eq!(limiter.take("alice").cost(4).now().unwrap().remaining(), 6);
    limiter.reconfigure(policy(5), PolicyChange::KeepTokens).unwrap();
    assert_eq!(limiter.clone().take("alice").cost(0).now().unwrap().remaining(), 5);
}

#[test]
fn batches_are_answered_in_order() {
    let (engine, _clock) = engine();
    let limiter = engine.limiter("api", policy(1)).unwrap();
    let snapshot = limiter.snapshot();
    let charges = [snapshot.charge("x", 1)];
    let corrections = [Correction { target: snapshot.target("x"), delta: -1 }];
    let operations = [
        Operation::Take(&charges),
        Operation::Take(&charges),
        Operation::Settle { corrections: &corrections, receipt: None },
        Operation::Take(&charges),
    ];
    let mut answers = tidegate_core::StoreResponses::new();
    assert!(matches!(
        engine.store().local().unwrap().submit(&operations, &mut answers),
        tidegate_core::Submission::Ready
    ));
    let allowed: Vec<bool> = answers
        .into_iter()
        .filter_map(|answer| match answer.unwrap() {
            tidegate_core::StoreResponse::Decision(decision) => Some(decision.is_allowed()),
            _ => None,
        })
        .collect();
    assert_eq!(allowed, [true, false, true]);
}

/// Two policies under one name would disagree about what a stored bucket means.
#[test]
fn all_limiters_of_a_name_share_one_policy() {
    let (engine, _clock) = engine();
    let one = engine.limiter("api", policy(5)).unwrap();
    let two = engine.limiter("api", policy(5)).unwrap();
    assert!(
        matches!(engine.limiter("api", policy(6)), Err(LimitError::Taken(name)) if name == "api")
    );
    one.reconfigure(policy(6), PolicyChange::KeepTokens).unwrap();
    assert_eq!(two.policy().capacity(), 6);
    assert!(engine.limiter("api", policy(6)).is_ok());
}

#[test]
fn a_calendar_quota_needs_a_schedule() {
    let (engine, _clock) = engine();
    let quota = Policy::quota(5).unwrap();
    assert!(matches!(engine.limiter("daily", quota), Err(LimitError::NoSchedule)));
    let limiter = engine.limiter("api", policy(5)).unwrap();
    assert_eq!(limiter.reconfigure(quota, PolicyChange::Reset), Err(LimitError::NoSchedule));
}
