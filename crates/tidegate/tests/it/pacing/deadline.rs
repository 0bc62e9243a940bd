//! Deadlines and bounds: refused at once, and nothing spent.

use std::time::Duration;

use tidegate::pacer::{AcquireError, Priority};

use super::manual::{ManualEngine, Waiter};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_wait_that_would_be_too_long_is_refused_at_once() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let mut waiters: Vec<_> = (0..10).map(|_| Waiter::join(acquire()).unwrap()).collect();
    let refused = acquire().max_wait(Duration::from_millis(10_999)).now().unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { projected, .. } if projected == SECOND * 11));
    let refused = Waiter::join(acquire().max_wait(SECOND * 10)).err().unwrap();
    assert_eq!(refused.unwrap_err().retry_after(), Some(SECOND * 11));
    assert_eq!(pacer.gauges().waiting, 10);
    let mut last = Waiter::join(acquire().max_wait(SECOND * 11)).unwrap();
    manual.run(&pacer, SECOND * 11);
    assert!(waiters.iter_mut().all(|waiter| waiter.poll().unwrap().is_ok()));
    assert!(last.poll().unwrap().is_ok(), "a deadline that can just be met is met");
}

/// A wait whose end cannot be projected ends at the deadline, with one wake-up.
#[test]
fn a_wait_for_a_slot_ends_at_its_deadline() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(1).build();
    let limiter = manual.per_second("calls", 100, 100);
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter =
        Waiter::join(pacer.acquire([limiter.charge("k", 1)]).max_wait(SECOND * 5)).unwrap();
    manual.run(&pacer, SECOND * 5);
    assert!(waiter.poll().is_none());
    manual.run(&pacer, SECOND);
    assert!(matches!(waiter.poll(), Some(Err(AcquireError::TimedOut(wait))) if wait == SECOND * 5));
    assert_eq!(waiter.wakes(), 1);
    drop(held);
    assert_eq!(
        limiter.peek("k").cost(0).now().unwrap().remaining(),
        100,
        "nothing was spent on it"
    );
    assert_eq!(pacer.gauges().in_flight, 0);
}

#[test]
fn a_full_queue_refuses_newcomers() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().max_waiting(2).build();
    let limiter = manual.per_second("calls", 1, 1);
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let waiters: Vec<_> = (0..2).map(|_| Waiter::join(acquire()).unwrap()).collect();
    let refused = Waiter::join(acquire()).err().unwrap();
    assert!(matches!(refused, Err(AcquireError::QueueFull(2))));
    drop(waiters);
    assert!(Waiter::join(acquire()).is_ok());
}

#[test]
fn a_cost_above_capacity_is_refused_or_goes_into_debt() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let acquire = |cost| pacer.acquire([limiter.charge("k", cost)]);
    let refused = acquire(11).now().unwrap_err();
    assert!(matches!(refused, AcquireError::NeverFits(limit) if limit == "tokens"));
    let _one = acquire(1).now().unwrap();
    let mut large = Waiter::join(acquire(15).into_debt()).unwrap();
    assert!(large.poll().is_none(), "it waits until the bucket is full");
    manual.run(&pacer, SECOND);
    assert!(large.poll().unwrap().is_ok());
    let mut next = Waiter::join(acquire(1)).unwrap();
    manual.run(&pacer, Duration::from_millis(5_999));
    assert!(next.poll().is_none(), "five tokens of debt come first");
    manual.run(&pacer, Duration::from_millis(1));
    assert!(next.poll().unwrap().is_ok());
    let refused = acquire(21).into_debt().now().unwrap_err();
    assert!(matches!(refused, AcquireError::NeverFits(_)), "beyond capacity and debt");
}

/// The projection counts turns: a separate tenant waits only for its share.
#[test]
fn the_projection_considers_tenants_and_classes() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let _crowd: Vec<_> =
        (0..100).map(|_| Waiter::join(acquire().tenant("crowd")).unwrap()).collect();
    let wait =
        |acquire: tidegate::pacer::Acquire| acquire.now().unwrap_err().retry_after().unwrap();
    assert_eq!(wait(acquire().tenant("crowd")), SECOND * 101);
    assert_eq!(wait(acquire().tenant("alone")), SECOND * 2);
    assert_eq!(wait(acquire().tenant("alone").priority(Priority::High)), SECOND);
    let low = wait(acquire().tenant("alone").priority(Priority::Low));
    assert_eq!(low, SECOND * 21, "its guaranteed twentieth, after twenty others");
}

/// Debt does not make a request wait, so it does not count towards its deadline.
#[test]
fn the_projection_of_an_oversize_request_excludes_debt() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _one = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let large = || pacer.acquire([limiter.charge("k", 15)]).into_debt();
    assert!(Waiter::join(large().max_wait(Duration::from_millis(999))).is_err());
    let mut large = Waiter::join(large().max_wait(SECOND)).unwrap();
    manual.run(&pacer, SECOND);
    assert!(large.poll().unwrap().is_ok());
}

/// A wait that was accepted despite other classes is kept.
#[test]
fn the_projection_includes_the_shares_of_lower_classes() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let low = || acquire().priority(Priority::Low);
    let _low: Vec<_> = (0..100).map(|_| Waiter::join(low()).unwrap()).collect();
    let _crowd: Vec<_> = (0..100).map(|_| Waiter::join(acquire()).unwrap()).collect();
    let projected = acquire().now().unwrap_err().retry_after().unwrap();
    let mut waiter = Waiter::join(acquire().max_wait(projected)).unwrap();
    manual.run(&pacer, SECOND * 300);
    let waited = waiter.poll().unwrap().unwrap().waited();
    assert!(waited <= projected, "{waited:?} of {projected:?}");
}

#[test]
fn acquire_now_without_a_free_slot_would_wait() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(1).build();
    let limiter = manual.per_second("calls", 100, 100);
    let _held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let refused = pacer.acquire([limiter.charge("k", 1)]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::WouldWait));
}
