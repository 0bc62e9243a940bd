//! Callers: one with many names has the turns of one, in a queue and in a pool.

use std::time::Duration;

use tidegate::Policy;
use tidegate::pacer::{Acquire, Caller, Pacer, Permit, PoolSize, Priority, SlotGroup, SlotPool};

use super::hand::{Hand, Waiter};

/// How many of a crowd get the slot that is held before a victim does.
fn overtaking(mut held: Option<Permit>, mut crowd: Vec<Waiter>, mut victim: Waiter) -> usize {
    for count in 0.. {
        drop(held.take());
        if victim.wakes() > 0 {
            assert!(victim.ask().unwrap().is_ok());
            return count;
        }
        let next = crowd.iter().position(|waiter| waiter.wakes() > 0);
        let mut granted = crowd.remove(next.expect("a free slot is handed on"));
        held = granted.ask().unwrap().ok();
    }
    unreachable!()
}

fn join(acquire: Acquire) -> Waiter {
    Waiter::join(acquire).unwrap()
}

#[test]
fn a_caller_with_many_names_delays_another_by_one_turn() {
    let hand = Hand::new();
    let pacer = hand.builder().concurrency(1).build();
    let calls = hand.per_second("calls", 1_000, 1_000);
    let acquire = |caller| pacer.acquire([calls.charge("k", 1)]).caller(caller);
    let held = acquire(Caller::new(1)).now().ok();
    let many = |n: u64| acquire(Caller::new(1).credential(n)).tenant(&n.to_string());
    let crowd = (0..50).map(|n| join(many(n).priority(Priority::High))).collect();
    let victim = join(acquire(Caller::new(2)));
    assert!(overtaking(held, crowd, victim) <= 1);
}

/// Every invented key is a member of the pool, and every model a pacer.
#[test]
fn members_and_pacers_of_one_peer_share_its_turns() {
    let hand = Hand::new();
    let pool = SlotPool::new(&hand.engine, PoolSize::Fixed(1));
    let calls = hand.per_second("calls", 1_000, 1_000);
    let pacers: Vec<Pacer> = (0..50).map(|_| hand.builder().pool(&pool.member()).build()).collect();
    let acquire =
        |pacer: &Pacer, peer| pacer.acquire([calls.charge("k", 1)]).caller(Caller::new(peer));
    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = pacers.iter().map(|pacer| join(acquire(pacer, 1))).collect();
    let own = hand.builder().pool(&pool.member()).build();
    let victim = join(acquire(&own, 2));
    assert!(overtaking(held, crowd, victim) <= 1);

    // A victim that waits behind the peer in one of its pacers is not much later.
    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = pacers.iter().map(|pacer| join(acquire(pacer, 1))).collect();
    let victim = join(acquire(&pacers[49], 2));
    assert!(overtaking(held, crowd, victim) <= 3);
    assert_eq!((pool.gauges().in_flight, pool.gauges().waiting), (0, 0));
}

/// The slots of a model are shared by the pacers of all keys. Whoever has a backlog, or many pacers,
/// has the turns of one peer.
#[test]
fn slots_of_a_group_go_by_peer() {
    let hand = Hand::new();
    let calls = hand.per_second("calls", 1_000, 1_000);
    let group = SlotGroup::new(1);
    let pacers: Vec<Pacer> = (0..20).map(|_| hand.pacer()).collect();
    let acquire = |pacer: &Pacer, peer| {
        pacer.acquire([calls.charge("k", 1)]).caller(Caller::new(peer)).within(&group)
    };
    let held = acquire(&pacers[0], 1).now().ok();
    let twice = pacers.iter().flat_map(|pacer| [pacer, pacer]);
    let crowd = twice.map(|pacer| join(acquire(pacer, 1))).collect();
    let own = hand.pacer();
    let victim = join(acquire(&own, 2));
    assert!(overtaking(held, crowd, victim) <= 1);

    let held = acquire(&pacers[0], 1).now().ok();
    let crowd = (0..30).map(|_| join(acquire(&pacers[0], 1))).collect();
    let victim = join(acquire(&own, 2));
    assert!(overtaking(held, crowd, victim) <= 1);
    assert_eq!(group.in_flight(), 0);
}

/// What a crowd of one peer waits for is no reason to refuse another that goes soon.
#[test]
fn a_crowd_does_not_spoil_the_projection_of_another_peer() {
    let hand = Hand::new();
    let (pacer, calls) = (hand.pacer(), hand.per_second("calls", 1, 1));
    let acquire = |peer| pacer.acquire([calls.charge("k", 1)]).caller(Caller::new(peer));
    let _spent = acquire(1).now().unwrap();
    let crowd: Vec<_> = (0..500).map(|n| join(acquire(1).tenant(&n.to_string()))).collect();
    let three = Duration::from_secs(3);
    assert!(Waiter::join(acquire(1).tenant("x").max_wait(three)).is_err(), "its own crowd");
    let mut victim = join(acquire(2).max_wait(three));
    hand.run(&pacer, three);
    assert!(victim.ask().unwrap().is_ok());
    drop(crowd);
}

/// A token that comes back belongs to who waits for it, also if a newcomer under a new name comes
/// before the pacer has looked at the time.
#[test]
fn a_new_name_does_not_overtake_who_is_due() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let own = hand.engine.limiter("own", Policy::per_second(1).capacity(1).build().unwrap());
    let own = own.unwrap();
    let acquire = |tenant: &str| pacer.acquire([own.charge("model", 1).own()]).tenant(tenant);
    let _first = acquire("a").now().unwrap();
    let waiter = join(acquire("b"));
    hand.clock.advance(Duration::from_secs(1));
    assert!(acquire("c").now().is_err());
    assert_eq!(waiter.wakes(), 1);
}
