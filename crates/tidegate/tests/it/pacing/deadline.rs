//! Deadlines and bounds: refused at once, and nothing spent.

use std::time::Duration;

use tidegate::pacer::{AcquireError, Priority};

use super::hand::{Hand, Waiter};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_wait_that_would_be_too_long_is_refused_at_once() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("calls", 1, 1));
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let mut waiters: Vec<_> = (0..10).map(|_| Waiter::join(acquire()).unwrap()).collect();
    let refused = acquire().max_wait(Duration::from_millis(10_999)).now().unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { projected, .. } if projected == SECOND * 11));
    let refused = Waiter::join(acquire().max_wait(SECOND * 10)).err().unwrap();
    assert_eq!(refused.unwrap_err().retry_after(), Some(SECOND * 11));
    assert_eq!(pacer.gauges().waiting, 10);
    let mut last = Waiter::join(acquire().max_wait(SECOND * 11)).unwrap();
    hand.run(&pacer, SECOND * 11);
    assert!(waiters.iter_mut().all(|waiter| waiter.ask().unwrap().is_ok()));
    assert!(last.ask().unwrap().is_ok(), "a deadline that can just be met is met");
}

/// A wait whose end nobody can foretell ends at the deadline, with one wake-up.
#[test]
fn a_slot_that_does_not_come_free_in_time_is_given_up() {
    let hand = Hand::new();
    let pacer = hand.builder().concurrency(1).build();
    let limiter = hand.per_second("calls", 100, 100);
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter =
        Waiter::join(pacer.acquire([limiter.charge("k", 1)]).max_wait(SECOND * 5)).unwrap();
    hand.run(&pacer, SECOND * 5);
    assert!(waiter.ask().is_none());
    hand.run(&pacer, SECOND);
    assert!(matches!(waiter.ask(), Some(Err(AcquireError::TimedOut(wait))) if wait == SECOND * 5));
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
    let hand = Hand::new();
    let pacer = hand.builder().max_waiting(2).build();
    let limiter = hand.per_second("calls", 1, 1);
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
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("tokens", 1, 10));
    let acquire = |cost| pacer.acquire([limiter.charge("k", cost)]);
    let refused = acquire(11).now().unwrap_err();
    assert!(matches!(refused, AcquireError::NeverFits(limit) if limit == "tokens"));
    let _one = acquire(1).now().unwrap();
    let mut large = Waiter::join(acquire(15).into_debt()).unwrap();
    assert!(large.ask().is_none(), "it waits until the bucket is full");
    hand.run(&pacer, SECOND);
    assert!(large.ask().unwrap().is_ok());
    let mut next = Waiter::join(acquire(1)).unwrap();
    hand.run(&pacer, Duration::from_millis(5_999));
    assert!(next.ask().is_none(), "five tokens of debt come first");
    hand.run(&pacer, Duration::from_millis(1));
    assert!(next.ask().unwrap().is_ok());
    let refused = acquire(21).into_debt().now().unwrap_err();
    assert!(matches!(refused, AcquireError::NeverFits(_)), "beyond capacity and debt");
}

/// What is ahead counts by turns: a tenant of its own waits for its share only.
#[test]
fn the_projection_knows_of_tenants_and_classes() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("calls", 1, 1));
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

/// What goes into debt does not keep a request waiting, so it does not count for its deadline.
#[test]
fn an_oversize_request_is_projected_by_when_it_goes() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("tokens", 1, 10));
    let _one = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let large = || pacer.acquire([limiter.charge("k", 15)]).into_debt();
    assert!(Waiter::join(large().max_wait(Duration::from_millis(999))).is_err());
    let mut large = Waiter::join(large().max_wait(SECOND)).unwrap();
    hand.run(&pacer, SECOND);
    assert!(large.ask().unwrap().is_ok());
}

/// A wait that was accepted beside other classes is kept.
#[test]
fn the_shares_of_lower_classes_are_counted() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("calls", 1, 1));
    let acquire = || pacer.acquire([limiter.charge("k", 1)]);
    let _first = acquire().now().unwrap();
    let low = || acquire().priority(Priority::Low);
    let _low: Vec<_> = (0..100).map(|_| Waiter::join(low()).unwrap()).collect();
    let _crowd: Vec<_> = (0..100).map(|_| Waiter::join(acquire()).unwrap()).collect();
    let projected = acquire().now().unwrap_err().retry_after().unwrap();
    let mut waiter = Waiter::join(acquire().max_wait(projected)).unwrap();
    hand.run(&pacer, SECOND * 300);
    let waited = waiter.ask().unwrap().unwrap().waited();
    assert!(waited <= projected, "{waited:?} of {projected:?}");
}

#[test]
fn without_waiting_a_taken_slot_is_told_as_such() {
    let hand = Hand::new();
    let pacer = hand.builder().concurrency(1).build();
    let limiter = hand.per_second("calls", 100, 100);
    let _held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let refused = pacer.acquire([limiter.charge("k", 1)]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::WouldWait));
}
