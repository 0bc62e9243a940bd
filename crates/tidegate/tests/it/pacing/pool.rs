//! A pool of slots that several pacers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::pacer::{Pacer, PermitOutcome, PoolSize, SlotGroup, SlotPool, Tuning, WaitPart};
use tidegate::{Engine, Limiter, Policy};

use super::manual::{ManualEngine, Random, Waiter};
use super::remote_store::remote;

const SECOND: Duration = Duration::from_secs(1);
const THROTTLED: PermitOutcome = PermitOutcome::Throttled { retry_after: None };

/// Pacers of one member each, and a limiter that never denies.
fn setup(manual: &ManualEngine, size: PoolSize, pacers: usize) -> (SlotPool, Vec<Pacer>, Limiter) {
    let pool = SlotPool::new(&manual.engine, size);
    let pacers = (0..pacers).map(|_| manual.builder().pool(&pool.member()).build()).collect();
    (pool, pacers, manual.per_second("calls", 1_000_000, 1_000_000))
}

fn adaptive(start: u64, cap: u64) -> PoolSize {
    PoolSize::Adaptive(Tuning::new(start, cap))
}

#[test]
fn pacers_together_stay_within_the_pool_size() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, PoolSize::Fixed(4), 3);
    let mut permits = Vec::new();
    for pacer in pacers.iter().cycle().take(12) {
        permits.extend(pacer.acquire([calls.charge("k", 1)]).now());
    }
    assert_eq!((permits.len(), pool.gauges().in_flight), (4, 4));
    assert_eq!(pacers[0].gauges().concurrency, Some(4));
    drop(permits);
    assert_eq!(pool.gauges().in_flight, 0);
}

/// The pacer whose turn it is gets the slot, and the wait is attributed to the concurrency.
#[test]
fn members_take_turns() {
    let manual = ManualEngine::new();
    let (_, pacers, calls) = setup(&manual, PoolSize::Fixed(1), 3);
    let acquire = |index: usize| pacers[index].acquire([calls.charge("k", 1)]);
    let mut held = acquire(0).now().ok();
    let mut waiters: Vec<_> = [0, 0, 0, 1, 2, 2]
        .map(|index| (index, Waiter::join(acquire(index)).unwrap()))
        .into_iter()
        .collect();
    manual.clock.advance(SECOND);
    let mut order = Vec::new();
    while !waiters.is_empty() {
        drop(held.take());
        let next = waiters.iter().position(|(_, waiter)| waiter.wakes() > 0);
        let (index, mut waiter) = waiters.remove(next.expect("a free slot is handed on"));
        let permit = waiter.poll().unwrap().unwrap();
        assert_eq!(&*permit.wait_parts()[0].limit, WaitPart::CONCURRENCY);
        held = Some(permit);
        order.push(index);
    }
    assert_eq!(order, [0, 1, 2, 0, 2, 0]);
}

/// Pacers of one member share its turns.
#[test]
fn a_member_with_many_pacers_has_one_turn() {
    let manual = ManualEngine::new();
    let pool = SlotPool::new(&manual.engine, PoolSize::Fixed(1));
    let (many, one) = (pool.member(), pool.member());
    let calls = manual.per_second("calls", 1_000, 1_000);
    let pacers: Vec<_> = [&many, &many, &many, &one]
        .map(|member| manual.builder().pool(member).build())
        .into_iter()
        .collect();
    let mut held = pacers[0].acquire([calls.charge("k", 1)]).now().ok();
    let mut waiters: Vec<_> = [0, 1, 2, 3, 3]
        .map(|index| (index, Waiter::join(pacers[index].acquire([calls.charge("k", 1)])).unwrap()))
        .into_iter()
        .collect();
    let mut order = Vec::new();
    while !waiters.is_empty() {
        drop(held.take());
        let next = waiters.iter().position(|(_, waiter)| waiter.wakes() > 0).unwrap();
        let (index, mut waiter) = waiters.remove(next);
        held = waiter.poll().unwrap().ok();
        order.push(index);
    }
    assert_eq!(order, [0, 3, 1, 3, 2]);
}

/// A waiter for tokens holds no slot, and a waiter for a slot has spent no tokens.
#[test]
fn waiters_hold_neither_slots_nor_tokens() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, PoolSize::Fixed(1), 2);
    let scarce = manual.per_second("scarce", 1, 1);
    drop(pacers[0].acquire([scarce.charge("k", 1)]).now().unwrap());
    let mut waiter = Waiter::join(pacers[0].acquire([scarce.charge("k", 1)])).unwrap();
    assert_eq!(pool.gauges().in_flight, 0, "it waits for a token");
    let held = pacers[1].acquire([calls.charge("k", 1)]).now().unwrap();
    manual.run(&pacers[0], SECOND * 5);
    assert!(waiter.poll().is_none(), "it waits for a slot");
    assert_eq!(scarce.peek("k").cost(0).now().unwrap().remaining(), 1, "not spent in advance");
    drop(held);
    let permit = waiter.poll().unwrap().unwrap();
    let parts: Vec<_> = permit.wait_parts().iter().map(|part| (&*part.limit, part.time)).collect();
    assert_eq!(parts, [(WaitPart::CONCURRENCY, SECOND * 4), ("scarce", SECOND)]);
}

#[test]
fn a_pool_is_resized_while_in_use() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, PoolSize::Fixed(2), 2);
    let held: Vec<_> =
        pacers.iter().map(|pacer| pacer.acquire([calls.charge("k", 1)]).now().unwrap()).collect();
    let mut waiters: Vec<_> = pacers
        .iter()
        .cycle()
        .take(6)
        .map(|pacer| Waiter::join(pacer.acquire([calls.charge("k", 1)])).unwrap())
        .collect();
    pool.resize(PoolSize::Fixed(5));
    assert_eq!(waiters.iter().filter(|waiter| waiter.wakes() > 0).count(), 3);
    pool.resize(PoolSize::Fixed(1));
    drop(held);
    assert_eq!(pool.gauges().in_flight, 3, "calls in flight drain");
    let granted: Vec<_> = waiters.iter_mut().filter_map(Waiter::poll).collect();
    assert_eq!(granted.len(), 3);
    drop(granted);
    assert_eq!(waiters.iter().filter(|waiter| waiter.wakes() > 0).count(), 4, "one at a time");
    pool.resize(PoolSize::Unlimited);
    assert_eq!(waiters.iter().filter(|waiter| waiter.wakes() > 0).count(), 6);
}

/// The pool grows while any of its pacers waits for a slot, up to its cap.
#[test]
fn an_adaptive_pool_grows_while_any_pacer_waits() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, adaptive(2, 6), 3);
    let mut waiters = Vec::new();
    let mut held = Vec::new();
    for pacer in pacers.iter().cycle().take(12) {
        match Waiter::join(pacer.acquire([calls.charge("k", 1)])) {
            Ok(waiter) => waiters.push(waiter),
            Err(granted) => held.push(granted.unwrap()),
        }
    }
    let mut sizes = Vec::new();
    for _ in 0..4 {
        for pacer in &pacers {
            pacer.poll();
        }
        sizes.push((pool.gauges().limit.unwrap(), pool.gauges().in_flight));
        manual.clock.advance(Duration::from_millis(250));
    }
    assert_eq!(sizes, [(2, 2), (4, 4), (6, 6), (6, 6)]);
}

/// Throttling of a member with few calls in flight says little about the others.
#[test]
fn one_member_cannot_shrink_the_pool_for_all() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, adaptive(40, 40), 2);
    let acquire = |index: usize| pacers[index].acquire([calls.charge("k", 1)]).now().unwrap();
    for _ in 0..200 {
        let others: Vec<_> = (0..4).map(|_| acquire(0)).collect();
        acquire(1).finish(THROTTLED);
        others.into_iter().for_each(|permit| permit.finish(PermitOutcome::Success));
    }
    assert_eq!(pool.gauges().limit, Some(40));
    for _ in 0..200 {
        acquire(1).finish(THROTTLED);
    }
    assert!(pool.gauges().limit < Some(40), "alone it represents the provider");
}

/// The limit does not grow while calls take too long.
#[test]
fn a_pool_does_not_grow_while_calls_are_slow() {
    for (took, grows) in [(SECOND, true), (SECOND * 3, false)] {
        let manual = ManualEngine::new();
        let mut tuning = Tuning::new(4, 64);
        tuning.max_latency = Some(SECOND * 2);
        let (pool, pacers, calls) = setup(&manual, PoolSize::Adaptive(tuning), 1);
        for _ in 0..10 {
            let mut permits = Vec::new();
            while let Ok(permit) = pacers[0].acquire([calls.charge("k", 1)]).now() {
                permits.push(permit);
            }
            manual.clock.advance(took);
            permits.into_iter().for_each(|permit| permit.finish(PermitOutcome::Success));
        }
        let gauges = pool.gauges();
        // It takes one round of answers to find out.
        assert_eq!(gauges.limit > Some(8), grows, "{took:?}: {gauges:?}");
        assert_eq!(gauges.adaptive.unwrap().is_slow, !grows);
    }
}

/// Joining, leaving, being granted and dropped, in any order: every slot is given back.
#[test]
fn random_cancellations_conserve_every_slot() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, PoolSize::Fixed(3), 4);
    let scarce = manual.per_second("scarce", 5, 2);
    let mut random = Random::new(7);
    let (mut waiters, mut permits) = (Vec::new(), Vec::new());
    for _ in 0..50_000 {
        match random.below(6) {
            0 | 1 => {
                let limiter = if random.below(2) == 0 { &calls } else { &scarce };
                let pacer = &pacers[random.below(4)];
                match Waiter::join(pacer.acquire([limiter.charge("k", 1)])) {
                    Ok(waiter) => waiters.push(waiter),
                    Err(granted) => permits.extend(granted),
                }
            }
            2 if !waiters.is_empty() => drop(waiters.swap_remove(random.below(waiters.len()))),
            3 if !permits.is_empty() => drop(permits.swap_remove(random.below(permits.len()))),
            4 => {
                manual.clock.advance(Duration::from_millis(50));
                for pacer in &pacers {
                    pacer.poll();
                }
            }
            _ => {}
        }
        let (mut waiting, mut granted) = (Vec::new(), Vec::new());
        for mut waiter in waiters.drain(..) {
            match waiter.poll() {
                None => waiting.push(waiter),
                Some(done) => granted.extend(done),
            }
        }
        waiters = waiting;
        permits.append(&mut granted);
        assert!(permits.len() <= 3);
        assert_eq!(pool.gauges().in_flight, permits.len() as u64);
    }
    waiters.clear();
    permits.clear();
    assert_eq!((pool.gauges().in_flight, pool.gauges().waiting), (0, 0));
}

/// Threads on two engines that share a pool: never more than its size, and all get through.
#[test]
fn threads_on_several_engines_never_exceed_the_pool() {
    let engines = [Engine::new(), Engine::new()];
    let pool = SlotPool::new(&engines[0], PoolSize::Fixed(3));
    let (inside, most, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for engine in engines.iter().cycle().take(8) {
            let policy = Policy::per_second(1_000_000).capacity(1_000_000).build().unwrap();
            let calls = engine.limiter("calls", policy).unwrap();
            let pacer = Pacer::builder(engine).pool(&pool.member()).build();
            let (inside, most, done) = (&inside, &most, &done);
            scope.spawn(move || {
                for _ in 0..500 {
                    let permit = pacer.acquire([calls.charge("k", 1)]).blocking().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 4_000);
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(pool.gauges().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_spans_pacers_on_a_shared_store() {
    let policy = Policy::per_second(1_000).capacity(1_000).build().unwrap();
    let (_store, _, limiter) = remote(policy);
    let engine = limiter.engine().clone();
    let pool = SlotPool::new(&engine, PoolSize::Fixed(2));
    let (inside, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..3)
        .map(|_| Pacer::builder(&engine).pool(&pool.member()).build())
        .flat_map(|pacer| (0..10).map(move |_| pacer.clone()))
        .map(|pacer| {
            let (limiter, inside, most) = (limiter.clone(), inside.clone(), most.clone());
            tokio::spawn(async move {
                let permit = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(SECOND).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(pool.gauges().in_flight, 0);
}

/// A group limits some of the permits; those of other groups go on.
#[test]
fn a_full_group_blocks_only_its_own_waiters() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(3).build();
    let calls = manual.per_second("calls", 1_000, 1_000);
    let group = SlotGroup::new(1);
    let inside = || pacer.acquire([calls.charge("k", 1)]).tenant("inside").in_group(&group);
    let outside = || pacer.acquire([calls.charge("k", 1)]).tenant("outside");
    let held = inside().now().unwrap();
    let mut second = Waiter::join(inside()).unwrap();
    let mut third = Waiter::join(inside()).unwrap();
    manual.clock.advance(SECOND);
    drop(outside().now().unwrap());
    assert_eq!((group.in_flight(), pacer.gauges().in_flight), (1, 1));
    drop(held);
    let permit = second.poll().unwrap().unwrap();
    let parts: Vec<_> = permit.wait_parts().iter().map(|part| (&*part.limit, part.time)).collect();
    assert_eq!(parts, [(WaitPart::CONCURRENCY, SECOND)]);
    assert!(third.poll().is_none());
    group.resize(2);
    pacer.nudge();
    drop(third.poll().unwrap().unwrap());
    drop(permit);
    let left = Waiter::join(inside()).map(drop);
    assert!(left.is_err(), "it was granted at once");
    drop(left);
    assert_eq!((group.in_flight(), pacer.gauges().in_flight), (0, 0));
}

/// If most members are throttled, the concurrency of the provider is too large.
#[test]
fn push_back_from_most_members_shrinks_the_pool() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, adaptive(30, 30), 3);
    for _ in 0..20 {
        let mut permits: Vec<_> = pacers
            .iter()
            .map(|pacer| pacer.acquire([calls.charge("k", 1)]).now().unwrap())
            .collect();
        let last = permits.pop();
        permits.into_iter().for_each(|permit| permit.finish(THROTTLED));
        last.into_iter().for_each(|permit| permit.finish(PermitOutcome::Success));
    }
    assert!(pool.gauges().limit < Some(30), "{:?}", pool.gauges());
}

/// Calls that started before the pool became adaptive do not count, and a changed start is a
/// restart.
#[test]
fn a_pool_that_becomes_adaptive_ignores_earlier_calls() {
    let manual = ManualEngine::new();
    let (pool, pacers, calls) = setup(&manual, PoolSize::Fixed(4), 1);
    let acquire = || pacers[0].acquire([calls.charge("k", 1)]).now().unwrap();
    let early: Vec<_> = (0..4).map(|_| acquire()).collect();
    manual.clock.advance(SECOND * 100);
    let size = |start| {
        let mut tuning = Tuning::new(start, 64);
        tuning.max_latency = Some(SECOND);
        PoolSize::Adaptive(tuning)
    };
    pool.resize(size(4));
    early.into_iter().for_each(|permit| permit.finish(PermitOutcome::Success));
    assert!(!pool.gauges().adaptive.unwrap().is_slow);
    pool.resize(size(9));
    assert_eq!(pool.gauges().limit, Some(9));
    pool.resize(size(9));
    assert_eq!(pool.gauges().limit, Some(9));
}

/// Pacers can share a group: never more than its slots, and every waiter for one is woken.
#[test]
fn a_group_spans_pacers() {
    let manual = ManualEngine::new();
    let (one, two) = (manual.pacer(), manual.pacer());
    let calls = manual.per_second("calls", 1_000, 1_000);
    let group = SlotGroup::new(1);
    let held = one.acquire([calls.charge("k", 1)]).in_group(&group).now().unwrap();
    assert!(two.acquire([calls.charge("k", 1)]).in_group(&group).now().is_err());
    let mut waiter = Waiter::join(two.acquire([calls.charge("k", 1)]).in_group(&group)).unwrap();
    let mut third = Waiter::join(one.acquire([calls.charge("k", 1)]).in_group(&group)).unwrap();
    drop(held);
    let granted: Vec<_> = [waiter.poll(), third.poll()].into_iter().flatten().collect();
    assert_eq!((granted.len(), group.in_flight()), (1, 1));
    drop(granted);
    let granted: Vec<_> = [waiter.wakes(), third.wakes()].into();
    assert_eq!(granted.iter().filter(|wakes| **wakes > 0).count(), 2, "each in turn");
    drop((waiter, third));
    assert_eq!(group.in_flight(), 0);
}
