//! Tenants, weights, classes, and limits that are a tenant's own.

use std::time::Duration;

use tidegate::pacer::{Acquire, Pacer, Priority};
use tidegate::{Change, Policy};

use super::hand::{Hand, Waiter};

const SECOND: Duration = Duration::from_secs(1);

/// Runs until all have been granted; the order of the grants, by index.
fn order_of_grants(hand: &Hand, pacer: &Pacer, mut waiters: Vec<Waiter>) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < waiters.len() {
        hand.clock.advance(pacer.poll().expect("somebody waits"));
        pacer.poll();
        for (index, waiter) in waiters.iter_mut().enumerate() {
            if waiter.wakes() > 0 && !order.contains(&index) {
                assert!(waiter.ask().unwrap().is_ok());
                order.push(index);
            }
        }
    }
    order
}

fn join_all(acquires: impl Iterator<Item = Acquire>) -> Vec<Waiter> {
    acquires.map(|acquire| Waiter::join(acquire).unwrap()).collect()
}

/// A heavy tenant delays a light one by at most one quantum and one maximal request.
#[test]
fn a_crowd_delays_a_single_caller_by_one_turn() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let heavy = (0..50).map(|_| pacer.acquire([limiter.charge("k", 10)]).tenant("heavy"));
    let light = (0..5).map(|_| pacer.acquire([limiter.charge("k", 2)]).tenant("light"));
    let order = order_of_grants(&hand, &pacer, join_all(heavy.chain(light)));
    let first_light = order.iter().position(|&index| index >= 50).unwrap();
    assert!(first_light <= 2, "after {first_light} heavy requests");
    let lights: Vec<usize> = order.iter().copied().filter(|&index| index >= 50).collect();
    assert_eq!(lights, [50, 51, 52, 53, 54], "in order of arrival inside the tenant");
    let last_light = order.iter().position(|&index| index == 54).unwrap();
    assert!(last_light <= 8, "five of two go in a turn or two: {order:?}");
}

/// R6 of the gaps: over time each tenant gets its weight.
#[test]
fn weights_are_shares() {
    let hand = Hand::new();
    let (pacer, limiter) = (hand.pacer(), hand.per_second("calls", 1, 1));
    let _spent = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let acquire =
        |tenant, weight| pacer.acquire([limiter.charge("k", 1)]).tenant(tenant).weight(weight);
    let many = (0..90).map(|_| acquire("three", 3)).chain((0..90).map(|_| acquire("one", 1)));
    let order = order_of_grants(&hand, &pacer, join_all(many));
    let of_three = order[..80].iter().filter(|&&index| index < 90).count();
    assert!((58..=62).contains(&of_three), "{of_three} of 80 in place of 60");
}

#[test]
fn classes_go_first_but_guaranteed_shares_are_kept() {
    let hand = Hand::new();
    let pacer = hand.builder().min_share(Priority::Low, 10).min_share(Priority::Normal, 0).build();
    let limiter = hand.per_second("calls", 1, 1);
    let _spent = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let acquire = |priority| pacer.acquire([limiter.charge("k", 1)]).priority(priority);
    let low = (0..50).map(|_| acquire(Priority::Low));
    let high = (0..100).map(|_| acquire(Priority::High));
    let order = order_of_grants(&hand, &pacer, join_all(low.chain(high)));
    let low = order[..100].iter().filter(|&&index| index < 50).count();
    assert!((9..=11).contains(&low), "{low} of 100 in place of 10");
}

/// A tenant whose own limit is not ready is passed over and blocks nobody.
#[test]
fn a_tenant_waits_for_its_own_limit_alone() {
    let hand = Hand::new();
    let (pacer, shared) = (hand.pacer(), hand.per_second("shared", 10, 10));
    let own = hand.per_second("own", 1, 1);
    let slow =
        || pacer.acquire([shared.charge("k", 1), own.charge("slow", 1).own()]).tenant("slow");
    let _first = slow().now().unwrap();
    let mut passed_over = Waiter::join(slow()).unwrap();
    for _ in 0..9 {
        let fast = [shared.charge("k", 1), own.charge("fast", 0).own()];
        assert!(pacer.acquire(fast).tenant("fast").now().is_ok(), "nobody is in its way");
    }
    let mut fast = Waiter::join(pacer.acquire([shared.charge("k", 1)]).tenant("fast")).unwrap();
    hand.run(&pacer, Duration::from_millis(100));
    assert!(fast.ask().is_some());
    assert!(passed_over.ask().is_none());
    hand.run(&pacer, Duration::from_millis(900));
    let permit = passed_over.ask().unwrap().unwrap();
    assert_eq!(permit.waited(), SECOND);
}

fn granted(waiters: &[Waiter]) -> usize {
    waiters.iter().filter(|waiter| waiter.wakes() > 0).count()
}

/// How scarce a tenant's own limit is must not decide about its turns on the shared one.
#[test]
fn own_limits_do_not_count_for_turns() {
    let hand = Hand::new();
    let (pacer, shared) = (hand.pacer(), hand.per_second("shared", 100, 100));
    let own = hand.per_second("own", 1_000, 1);
    let _spent = pacer.acquire([shared.charge("k", 100)]).now().unwrap();
    let limited = |_| pacer.acquire([shared.charge("k", 1), own.charge("a", 1).own()]).tenant("a");
    let free = |_| pacer.acquire([shared.charge("k", 1)]).tenant("b");
    let (a, b) = (join_all((0..300).map(limited)), join_all((0..300).map(free)));
    for _ in 0..200 {
        hand.run(&pacer, Duration::from_millis(10));
    }
    assert!(granted(&a).abs_diff(granted(&b)) < 20, "{} and {}", granted(&a), granted(&b));
}

/// While its own limit is not ready a tenant keeps nobody from the shared one, however much of
/// that it wants.
#[test]
fn a_tenant_that_cannot_go_does_not_save_up_what_is_shared() {
    let hand = Hand::new();
    let (pacer, shared) = (hand.pacer(), hand.per_second("shared", 1, 10));
    let own = hand.engine.limiter("own", Policy::per_minute(1).build().unwrap()).unwrap();
    let both = || pacer.acquire([shared.charge("k", 10), own.charge("a", 1).own()]).tenant("a");
    let _first = both().now().unwrap();
    let _later = Waiter::join(both()).unwrap();
    let other = Waiter::join(pacer.acquire([shared.charge("k", 1)]).tenant("b")).unwrap();
    hand.run(&pacer, SECOND);
    assert_eq!(other.wakes(), 1);
}

#[test]
fn tenants_that_wait_for_themselves_do_not_fill_the_queue() {
    let hand = Hand::new();
    let pacer = hand.builder().max_waiting(3).build();
    let (shared, own) = (hand.per_second("shared", 10, 10), hand.per_second("own", 1, 1));
    let limited = || pacer.acquire([shared.charge("k", 1), own.charge("a", 1).own()]).tenant("a");
    let _first = limited().now().unwrap();
    let _parked: Vec<_> = (0..3).map(|_| Waiter::join(limited()).unwrap()).collect();
    assert!(pacer.acquire([shared.charge("k", 1)]).tenant("b").now().is_ok());
    assert!(Waiter::join(limited()).is_err(), "they have a bound of their own");
    let another = pacer.acquire([own.charge("c", 1).own()]).tenant("c").now().unwrap();
    let refused = Waiter::join(pacer.acquire([own.charge("c", 1).own()]).tenant("c"));
    assert!(refused.is_err(), "also for those who come as the first of a tenant");
    drop(another);
}

/// A slot of a tenant's own comes free at no known time, and a change of policy at any.
#[test]
fn whoever_is_passed_over_hears_when_something_changes() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let slots = hand.engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let slot = || pacer.acquire([slots.charge("a", 1).own()]).tenant("a");
    let held = slot().now().unwrap();
    let waiter = Waiter::join(slot()).unwrap();
    drop(held);
    assert_eq!(waiter.wakes(), 1);

    let own = hand.engine.limiter("own", Policy::per_minute(1).build().unwrap()).unwrap();
    let token = || pacer.acquire([own.charge("b", 1).own()]).tenant("b");
    let mut first = token().now().unwrap();
    let settled = Waiter::join(token()).unwrap();
    first.settle_now(&[0]).unwrap();
    assert_eq!(settled.wakes(), 1);
    let changed = Waiter::join(token()).unwrap();
    own.reconfigure(Policy::per_second(10).capacity(1).build().unwrap(), Change::KeepTokens)
        .unwrap();
    hand.run(&pacer, SECOND);
    assert_eq!(changed.wakes(), 1);
}

/// One large request that has left must not make turns long for ever.
#[test]
fn a_turn_is_as_long_as_the_largest_request_that_waits() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let policy = Policy::per_second(1).capacity(10).max_debt(1_000).build().unwrap();
    let limiter = hand.engine.limiter("tokens", policy).unwrap();
    let acquire = |cost, tenant| pacer.acquire([limiter.charge("k", cost)]).tenant(tenant);
    let _spent = acquire(10, "large").now().unwrap();
    let large = Waiter::join(acquire(1_000, "large").into_debt()).unwrap();
    let _heavy: Vec<_> = (0..500).map(|_| Waiter::join(acquire(1, "heavy")).unwrap()).collect();
    drop(large);
    let mut light = Waiter::join(acquire(1, "light")).unwrap();
    hand.run(&pacer, SECOND * 30);
    assert!(light.ask().unwrap().unwrap().waited() <= SECOND * 25);
}
