//! Callers: one caller under many names gets the turns of one, in a queue and in a pool.

use std::time::Duration;

use tidegate::Policy;
use tidegate::pacer::{Acquire, CallerId, Pacer, Permit, PoolSize, Priority, SlotGroup, SlotPool};

use super::manual::{ManualEngine, Waiter};

/// Number of waiters of a crowd that get the held slot before a victim does.
fn grants_before_victim(
    mut held: Option<Permit>,
    mut crowd: Vec<Waiter>,
    mut victim: Waiter,
) -> usize {
    for count in 0.. {
        drop(held.take());
        if victim.wakes() > 0 {
            assert!(victim.poll().unwrap().is_ok());
            return count;
        }
        let next = crowd.iter().position(|waiter| waiter.wakes() > 0);
        let mut granted = crowd.remove(next.expect("a free slot is handed on"));
        held = granted.poll().unwrap().ok();
    }
    unreachable!()
}

fn join(acquire: Acquire) -> Waiter {
    Waiter::join(acquire).unwrap()
}

#[test]
fn one_caller_with_many_names_delays_another_by_one_turn() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(1).build();
    let calls = manual.per_second("calls", 1_000, 1_000);
    let acquire = |caller| pacer.acquire([calls.charge("k", 1)]).caller(caller);
    let held = acquire(CallerId::new(1)).now().ok();
    let many = |n: u64| acquire(CallerId::new(1).credential(n)).tenant(&n.to_string());
    let crowd = (0..50).map(|n| join(many(n).priority(Priority::High))).collect();
    let victim = join(acquire(CallerId::new(2)));
    assert!(grants_before_victim(held, crowd, victim) <= 1);
}

/// Every invented key is a member of the pool, and every model a pacer.
#[test]
fn members_and_pacers_of_one_peer_share_its_turns() {
    let manual = ManualEngine::new();
    let pool = SlotPool::new(&manual.engine, PoolSize::Fixed(1));
    let calls = manual.per_second("calls", 1_000, 1_000);
    let pacers: Vec<Pacer> =
        (0..50).map(|_| manual.builder().pool(&pool.member()).build()).collect();
    let acquire =
        |pacer: &Pacer, peer| pacer.acquire([calls.charge("k", 1)]).caller(CallerId::new(peer));
    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = pacers.iter().map(|pacer| join(acquire(pacer, 1))).collect();
    let own = manual.builder().pool(&pool.member()).build();
    let victim = join(acquire(&own, 2));
    assert!(grants_before_victim(held, crowd, victim) <= 1);

    // A victim that waits behind the peer in one of its pacers is not much later.
    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = pacers.iter().map(|pacer| join(acquire(pacer, 1))).collect();
    let victim = join(acquire(&pacers[49], 2));
    assert!(grants_before_victim(held, crowd, victim) <= 3);
    assert_eq!((pool.gauges().in_flight, pool.gauges().waiting), (0, 0));
}

/// The slots of a model are shared by the pacers of all keys. A backlog, or many pacers, gives a
/// peer no more turns.
#[test]
fn peers_take_turns_for_the_slots_of_a_group() {
    let manual = ManualEngine::new();
    let calls = manual.per_second("calls", 1_000, 1_000);
    let group = SlotGroup::new(1);
    let pacers: Vec<Pacer> = (0..20).map(|_| manual.pacer()).collect();
    let acquire = |pacer: &Pacer, peer| {
        pacer.acquire([calls.charge("k", 1)]).caller(CallerId::new(peer)).in_group(&group)
    };
    let held = acquire(&pacers[0], 1).now().ok();
    let twice = pacers.iter().flat_map(|pacer| [pacer, pacer]);
    let crowd = twice.map(|pacer| join(acquire(pacer, 1))).collect();
    let own = manual.pacer();
    let victim = join(acquire(&own, 2));
    assert!(grants_before_victim(held, crowd, victim) <= 1);

    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = (0..30).map(|_| join(acquire(&pacers[0], 1))).collect();
    let victim = join(acquire(&own, 2));
    assert!(grants_before_victim(held, crowd, victim) <= 1);
    assert_eq!(group.in_flight(), 0);
}

/// A crowd of one peer is no reason to refuse another peer that goes soon.
#[test]
fn a_crowd_does_not_affect_the_projection_of_another_peer() {
    let manual = ManualEngine::new();
    let (pacer, calls) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let acquire = |peer| pacer.acquire([calls.charge("k", 1)]).caller(CallerId::new(peer));
    let _spent = acquire(1).now().unwrap();
    let crowd: Vec<_> = (0..500).map(|n| join(acquire(1).tenant(&n.to_string()))).collect();
    let three = Duration::from_secs(3);
    assert!(Waiter::join(acquire(1).tenant("x").max_wait(three)).is_err(), "its own crowd");
    let mut victim = join(acquire(2).max_wait(three));
    manual.run(&pacer, three);
    assert!(victim.poll().unwrap().is_ok());
    drop(crowd);
}

/// A refilled token belongs to the waiter for it, even if a new tenant arrives before the pacer has
/// checked the time.
#[test]
fn a_new_tenant_does_not_overtake_a_due_waiter() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let own = manual.engine.limiter("own", Policy::per_second(1).capacity(1).build().unwrap());
    let own = own.unwrap();
    let acquire =
        |tenant: &str| pacer.acquire([own.charge("model", 1).per_tenant()]).tenant(tenant);
    let _first = acquire("a").now().unwrap();
    let waiter = join(acquire("b"));
    manual.clock.advance(Duration::from_secs(1));
    assert!(acquire("c").now().is_err());
    assert_eq!(waiter.wakes(), 1);
}
