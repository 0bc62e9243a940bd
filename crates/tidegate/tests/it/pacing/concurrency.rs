//! Slots: granted together with rates, resized while in use, and adaptive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::pacer::{Pacer, PermitOutcome, Tuning, WaitPart};
use tidegate::{Engine, Policy, PolicyChange};

use super::manual::{ManualEngine, Waiter};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn slots_and_rates_are_granted_together() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(2).build();
    let limiter = manual.per_second("calls", 1, 10);
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let held = [acquire().now().unwrap(), acquire().now().unwrap()];
    let mut waiter = Waiter::join(acquire()).unwrap();
    assert_eq!(limiter.peek("k").cost(0).now().unwrap().remaining(), 8, "no token without a slot");
    manual.run(&pacer, SECOND * 3);
    assert!(waiter.poll().is_none());
    drop(held);
    let permit = waiter.poll().unwrap().unwrap();
    let parts: Vec<_> = permit.wait_parts().iter().map(|part| (&*part.limit, part.time)).collect();
    assert_eq!(parts, [(WaitPart::CONCURRENCY, SECOND * 3)]);
    assert_eq!(pacer.gauges().in_flight, 1);
}

/// R366: shrinking drains, growing wakes at once.
#[test]
fn the_concurrency_is_resized_while_in_use() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(8).build();
    let limiter = manual.per_second("calls", 100, 100);
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let mut held: Vec<_> = (0..8).map(|_| acquire().now().unwrap()).collect();
    let mut waiters: Vec<_> = (0..6).map(|_| Waiter::join(acquire()).unwrap()).collect();
    pacer.set_concurrency(Some(2));
    for in_flight in (2..8).rev() {
        held.pop();
        assert_eq!(pacer.gauges().in_flight, in_flight);
    }
    assert!(waiters.iter().all(|waiter| waiter.wakes() == 0), "in flight drains to 2 first");
    held.pop();
    assert_eq!(waiters[0].wakes(), 1);
    assert!(waiters[0].poll().unwrap().is_ok());
    pacer.set_concurrency(Some(5));
    let woken = waiters.iter().filter(|waiter| waiter.wakes() > 0).count();
    assert_eq!((woken, pacer.gauges().in_flight), (5, 5));
    pacer.set_concurrency(None);
    assert!(waiters.iter().all(|waiter| waiter.wakes() > 0));
}

/// R296, R387: many threads, never more at once than the limit, and none lost.
#[test]
fn threads_never_exceed_the_limit() {
    let engine = Engine::new();
    let limiter = engine.limiter("calls", Policy::per_second(1_000_000).build().unwrap()).unwrap();
    let pacer = Pacer::builder(&engine).concurrency(3).build();
    let (now, most, done) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            let (now, most, done) = (now.clone(), most.clone(), done.clone());
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let permit = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
                    let inside = now.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(inside, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 4_000);
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(pacer.gauges().in_flight, 0);
}

/// A provider that serves 12 calls at once and pushes the others back.
#[test]
fn the_concurrency_adapts_to_a_hidden_limit() {
    let manual = ManualEngine::new();
    let bounds = Tuning::new(4, 64);
    let pacer = manual.builder().adaptive(bounds).build();
    let limiter = manual.per_second("calls", 1_000_000, 1_000_000);
    let mut seen = Vec::new();
    for round in 0..3_000 {
        let mut permits = Vec::new();
        while let Ok(permit) = pacer.acquire([limiter.charge("k", 1)]).now() {
            permits.push(permit);
        }
        for (index, permit) in permits.into_iter().enumerate() {
            let pushed_back = PermitOutcome::Throttled { retry_after: None };
            permit.finish(if index >= 12 { pushed_back } else { PermitOutcome::Success });
        }
        if round >= 1_000 {
            seen.push(pacer.gauges().concurrency.unwrap());
        }
    }
    let (low, high) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
    assert!(
        (11..=13).contains(low) && (11..=13).contains(high) && high - low <= 1,
        "{low}..{high}"
    );
    drop(pacer.acquire([limiter.charge("k", 1)]).now().unwrap());
    assert_eq!(pacer.gauges().in_flight, 0, "a dropped call counts as ignored");
}

/// The permit also holds slots of a concurrency policy of the store.
#[test]
fn slots_of_the_store_are_released_with_the_permit() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let slots = manual.engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let held = pacer.acquire([slots.charge("k", 1)]).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([slots.charge("k", 1)])).unwrap();
    manual.run(&pacer, SECOND);
    assert!(waiter.poll().is_none());
    drop(held);
    assert!(waiter.poll().unwrap().is_ok());
}

/// A slot of the store is released by one pacer and awaited by another.
#[test]
fn a_released_slot_wakes_a_waiter_of_another_pacer() {
    let manual = ManualEngine::new();
    let (one, two) = (manual.pacer(), manual.pacer());
    let slots = manual.engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let held = one.acquire([slots.charge("k", 1)]).now().unwrap();
    let waiter = Waiter::join(two.acquire([slots.charge("k", 1)])).unwrap();
    drop(held);
    assert_eq!(waiter.wakes(), 1);
}

#[test]
fn an_adaptive_limit_continues_from_a_set_value() {
    let manual = ManualEngine::new();
    let bounds = Tuning::new(4, 8);
    let pacer = manual.builder().adaptive(bounds).build();
    let limiter = manual.per_second("calls", 1_000, 1_000);
    let after_a_call = || {
        drop(pacer.acquire([limiter.charge("k", 1)]).now().unwrap());
        pacer.gauges().concurrency
    };
    pacer.set_concurrency(Some(100));
    assert_eq!(after_a_call(), Some(8), "within its bounds");
    pacer.set_concurrency(Some(3));
    assert_eq!(after_a_call(), Some(3));
    pacer.set_concurrency(None);
    assert_eq!(after_a_call(), None, "unlimited and no longer adaptive");
}

/// The cause of a wait is reported correctly even if concurrency was the cause for a while.
#[test]
fn waits_are_attributed_to_their_causes() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(5).build();
    let limiter = manual.per_second("calls", 1, 1);
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    limiter.hold("k", SECOND * 20).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    pacer.set_concurrency(Some(1));
    pacer.set_concurrency(Some(5));
    manual.run(&pacer, SECOND * 21);
    let parts = waiter.poll().unwrap().unwrap().wait_parts().to_vec();
    assert_eq!((&*parts[0].limit, parts[0].time), ("calls", SECOND * 21));

    let (shared, own) = (manual.per_second("shared", 1, 2), manual.per_second("own", 1, 1));
    let mine =
        || pacer.acquire([shared.charge("s", 1), own.charge("a", 1).per_tenant()]).tenant("a");
    let _mine = mine().now().unwrap();
    let mut parked = Waiter::join(mine()).unwrap();
    manual.run(&pacer, SECOND);
    let parts = parked.poll().unwrap().unwrap().wait_parts().to_vec();
    assert_eq!((&*parts[0].limit, parts[0].time), ("own", SECOND));
}

/// A slot is released no matter what its limit has become meanwhile.
#[test]
fn a_slot_is_released_after_its_policy_changed() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let slots = || Policy::concurrency(1, None).unwrap();
    let limiter = manual.engine.limiter("calls", slots()).unwrap();
    for is_refunded in [false, true] {
        let permit =
            pacer.acquire([limiter.charge("k", 1)]).refund_on_drop(is_refunded).now().unwrap();
        let bucket = Policy::per_second(10).build().unwrap();
        limiter.reconfigure(bucket, PolicyChange::KeepTokens).unwrap();
        drop(permit);
        assert_eq!(manual.engine.store().local().unwrap().stats().leases, 0);
        limiter.reconfigure(slots(), PolicyChange::KeepTokens).unwrap();
    }
}
