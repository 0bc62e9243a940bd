//! Holds and policy changes while there are waiters.

use std::sync::Arc;
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate::{Engine, MemoryStore, Policy, PolicyChange};

use super::manual::{ManualEngine, Waiter};

const SECOND: Duration = Duration::from_secs(1);

fn per_second(tokens: u64, capacity: u64) -> Policy {
    Policy::per_second(tokens).capacity(capacity).build().unwrap()
}

#[test]
fn a_hold_delays_waiters_and_reopens_empty() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiters: Vec<_> =
        (0..2).map(|_| Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap()).collect();
    limiter.hold("k", SECOND * 10).now().unwrap();
    manual.run(&pacer, Duration::from_millis(10_999));
    assert!(waiters[0].poll().is_none());
    manual.run(&pacer, Duration::from_millis(1));
    assert!(waiters[0].poll().unwrap().is_ok());
    assert!(waiters[1].poll().is_none());
    manual.run(&pacer, SECOND);
    assert!(waiters[1].poll().unwrap().is_ok());
    assert_eq!(waiters.iter().map(Waiter::wakes).sum::<usize>(), 2);
}

#[test]
fn a_faster_policy_takes_effect_at_once() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", Policy::per_minute(1).build().unwrap()).unwrap();
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    assert_eq!(pacer.poll(), Some(SECOND * 60));
    limiter.reconfigure(per_second(10, 1), PolicyChange::KeepTokens).unwrap();
    assert_eq!(pacer.poll(), Some(Duration::from_millis(100)));
    manual.run(&pacer, Duration::from_millis(100));
    assert!(waiter.poll().unwrap().is_ok());
}

#[test]
fn waiters_that_no_longer_fit_a_reduced_policy_are_refused() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let mut large = Waiter::join(pacer.acquire([limiter.charge("k", 8)])).unwrap();
    let mut small = Waiter::join(pacer.acquire([limiter.charge("k", 2)])).unwrap();
    limiter.reconfigure(per_second(1, 5), PolicyChange::KeepTokens).unwrap();
    assert!(matches!(large.poll(), Some(Err(AcquireError::NeverFits(limit))) if limit == "tokens"));
    manual.run(&pacer, SECOND * 2);
    assert!(small.poll().unwrap().is_ok());
}

#[test]
fn a_nudge_notices_a_reset() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    limiter.reset("k").now().unwrap();
    assert!(waiter.poll().is_none());
    pacer.nudge();
    assert!(waiter.poll().unwrap().is_ok());
}

#[test]
fn claims_must_be_on_the_store_of_the_pacer() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let elsewhere = Engine::on(Arc::new(MemoryStore::new()));
    let limiter = elsewhere.limiter("calls", per_second(1, 1)).unwrap();
    let refused = pacer.acquire([limiter.charge("k", 1)]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::OtherEngine));
    let refused = pacer.acquire([]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::Store(error) if error.is_caller_error()));
}
