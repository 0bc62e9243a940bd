//! Tenants, weights, classes, and limits of a single tenant.

use std::time::Duration;

use tidegate::pacer::{Acquire, Pacer, Priority};
use tidegate::{Policy, PolicyChange};

use super::manual::{ManualEngine, Waiter};

const SECOND: Duration = Duration::from_secs(1);

/// Runs until all waiters have been granted; returns the order of the grants, by index.
fn order_of_grants(manual: &ManualEngine, pacer: &Pacer, mut waiters: Vec<Waiter>) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < waiters.len() {
        manual.clock.advance(pacer.poll().expect("there are waiters"));
        pacer.poll();
        for (index, waiter) in waiters.iter_mut().enumerate() {
            if waiter.wakes() > 0 && !order.contains(&index) {
                assert!(waiter.poll().unwrap().is_ok());
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
fn a_heavy_tenant_delays_a_light_one_by_one_turn() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let heavy = (0..50).map(|_| pacer.acquire([limiter.charge("k", 10)]).tenant("heavy"));
    let light = (0..5).map(|_| pacer.acquire([limiter.charge("k", 2)]).tenant("light"));
    let order = order_of_grants(&manual, &pacer, join_all(heavy.chain(light)));
    let first_light = order.iter().position(|&index| index >= 50).unwrap();
    assert!(first_light <= 2, "after {first_light} heavy requests");
    let lights: Vec<usize> = order.iter().copied().filter(|&index| index >= 50).collect();
    assert_eq!(lights, [50, 51, 52, 53, 54], "in order of arrival inside the tenant");
    let last_light = order.iter().position(|&index| index == 54).unwrap();
    assert!(last_light <= 8, "five of two go in a turn or two: {order:?}");
}

/// R6 of the gaps: over time each tenant gets its weight.
#[test]
fn tenants_get_shares_by_weight() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _spent = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let acquire =
        |tenant, weight| pacer.acquire([limiter.charge("k", 1)]).tenant(tenant).weight(weight);
    let many = (0..90).map(|_| acquire("three", 3)).chain((0..90).map(|_| acquire("one", 1)));
    let order = order_of_grants(&manual, &pacer, join_all(many));
    let of_three = order[..80].iter().filter(|&&index| index < 90).count();
    assert!((58..=62).contains(&of_three), "{of_three} of 80 instead of 60");
}

#[test]
fn higher_classes_go_first_but_guaranteed_shares_are_kept() {
    let manual = ManualEngine::new();
    let pacer =
        manual.builder().min_share(Priority::Low, 10).min_share(Priority::Normal, 0).build();
    let limiter = manual.per_second("calls", 1, 1);
    let _spent = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let acquire = |priority| pacer.acquire([limiter.charge("k", 1)]).priority(priority);
    let low = (0..50).map(|_| acquire(Priority::Low));
    let high = (0..100).map(|_| acquire(Priority::High));
    let order = order_of_grants(&manual, &pacer, join_all(low.chain(high)));
    let low = order[..100].iter().filter(|&&index| index < 50).count();
    assert!((9..=11).contains(&low), "{low} of 100 instead of 10");
}

/// A tenant whose own limit is not ready is skipped and blocks no other tenant.
#[test]
fn a_tenant_waiting_for_its_own_limit_blocks_nobody() {
    let manual = ManualEngine::new();
    let (pacer, shared) = (manual.pacer(), manual.per_second("shared", 10, 10));
    let own = manual.per_second("own", 1, 1);
    let slow = || {
        pacer.acquire([shared.charge("k", 1), own.charge("slow", 1).per_tenant()]).tenant("slow")
    };
    let _first = slow().now().unwrap();
    let mut parked = Waiter::join(slow()).unwrap();
    for _ in 0..9 {
        let fast = [shared.charge("k", 1), own.charge("fast", 0).per_tenant()];
        assert!(pacer.acquire(fast).tenant("fast").now().is_ok(), "it is not blocked");
    }
    let mut fast = Waiter::join(pacer.acquire([shared.charge("k", 1)]).tenant("fast")).unwrap();
    manual.run(&pacer, Duration::from_millis(100));
    assert!(fast.poll().is_some());
    assert!(parked.poll().is_none());
    manual.run(&pacer, Duration::from_millis(900));
    let permit = parked.poll().unwrap().unwrap();
    assert_eq!(permit.waited(), SECOND);
}

fn granted(waiters: &[Waiter]) -> usize {
    waiters.iter().filter(|waiter| waiter.wakes() > 0).count()
}

/// How scarce a tenant's own limit is must not affect its turns on the shared one.
#[test]
fn own_limits_do_not_affect_turns() {
    let manual = ManualEngine::new();
    let (pacer, shared) = (manual.pacer(), manual.per_second("shared", 100, 100));
    let own = manual.per_second("own", 1_000, 1);
    let _spent = pacer.acquire([shared.charge("k", 100)]).now().unwrap();
    let limited =
        |_| pacer.acquire([shared.charge("k", 1), own.charge("a", 1).per_tenant()]).tenant("a");
    let free = |_| pacer.acquire([shared.charge("k", 1)]).tenant("b");
    let (a, b) = (join_all((0..300).map(limited)), join_all((0..300).map(free)));
    for _ in 0..200 {
        manual.run(&pacer, Duration::from_millis(10));
    }
    assert!(granted(&a).abs_diff(granted(&b)) < 20, "{} and {}", granted(&a), granted(&b));
}

/// While its own limit is not ready, a tenant does not block the shared one, however much of it the
/// tenant wants.
#[test]
fn a_parked_tenant_does_not_reserve_shared_tokens() {
    let manual = ManualEngine::new();
    let (pacer, shared) = (manual.pacer(), manual.per_second("shared", 1, 10));
    let own = manual.engine.limiter("own", Policy::per_minute(1).build().unwrap()).unwrap();
    let both =
        || pacer.acquire([shared.charge("k", 10), own.charge("a", 1).per_tenant()]).tenant("a");
    let _first = both().now().unwrap();
    let _later = Waiter::join(both()).unwrap();
    let other = Waiter::join(pacer.acquire([shared.charge("k", 1)]).tenant("b")).unwrap();
    manual.run(&pacer, SECOND);
    assert_eq!(other.wakes(), 1);
}

#[test]
fn parked_tenants_do_not_fill_the_queue() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().max_waiting(3).build();
    let (shared, own) = (manual.per_second("shared", 10, 10), manual.per_second("own", 1, 1));
    let limited =
        || pacer.acquire([shared.charge("k", 1), own.charge("a", 1).per_tenant()]).tenant("a");
    let _first = limited().now().unwrap();
    let _parked: Vec<_> = (0..3).map(|_| Waiter::join(limited()).unwrap()).collect();
    assert!(pacer.acquire([shared.charge("k", 1)]).tenant("b").now().is_ok());
    assert!(Waiter::join(limited()).is_err(), "parked waiters have their own bound");
    let another = pacer.acquire([own.charge("c", 1).per_tenant()]).tenant("c").now().unwrap();
    let refused = Waiter::join(pacer.acquire([own.charge("c", 1).per_tenant()]).tenant("c"));
    assert!(refused.is_err(), "also for the first waiter of a tenant");
    drop(another);
}

/// A tenant's own slot becomes free at an unknown time, and so does a policy change.
#[test]
fn parked_tenants_are_woken_by_changes() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let slots = manual.engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let slot = || pacer.acquire([slots.charge("a", 1).per_tenant()]).tenant("a");
    let held = slot().now().unwrap();
    let waiter = Waiter::join(slot()).unwrap();
    drop(held);
    assert_eq!(waiter.wakes(), 1);

    let own = manual.engine.limiter("own", Policy::per_minute(1).build().unwrap()).unwrap();
    let token = || pacer.acquire([own.charge("b", 1).per_tenant()]).tenant("b");
    let mut first = token().now().unwrap();
    let settled = Waiter::join(token()).unwrap();
    first.settle_now(&[0]).unwrap();
    assert_eq!(settled.wakes(), 1);
    let changed = Waiter::join(token()).unwrap();
    own.reconfigure(Policy::per_second(10).capacity(1).build().unwrap(), PolicyChange::KeepTokens)
        .unwrap();
    manual.run(&pacer, SECOND);
    assert_eq!(changed.wakes(), 1);
}

/// One large request that has left must not make turns long for ever.
#[test]
fn a_turn_is_as_long_as_the_largest_waiting_request() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let policy = Policy::per_second(1).capacity(10).max_debt(1_000).build().unwrap();
    let limiter = manual.engine.limiter("tokens", policy).unwrap();
    let acquire = |cost, tenant| pacer.acquire([limiter.charge("k", cost)]).tenant(tenant);
    let _spent = acquire(10, "large").now().unwrap();
    let large = Waiter::join(acquire(1_000, "large").into_debt()).unwrap();
    let _heavy: Vec<_> = (0..500).map(|_| Waiter::join(acquire(1, "heavy")).unwrap()).collect();
    drop(large);
    let mut light = Waiter::join(acquire(1, "light")).unwrap();
    manual.run(&pacer, SECOND * 30);
    assert!(light.poll().unwrap().unwrap().waited() <= SECOND * 25);
}
