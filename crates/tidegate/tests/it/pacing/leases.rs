//! Slots of the store that have a lease: kept while their permit lives, freed by a crash.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Charge;
use tidegate::clock::{ManualClock, TokioClock};
use tidegate::pacer::{Pacer, Permit};
use tidegate::{Change, Engine, Limiter, MemoryStore, Policy, StoreHandle};
use tidegate_testkit::faulty_store::{FaultyStore, Timing, Verb};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::distant::{Distant, ROUND_TRIP, UP, distant, down};
use super::hand::{Hand, Waiter};

const LEASE: Duration = Duration::from_secs(6);

fn slots(slots: u64) -> Policy {
    Policy::concurrency(slots, Some(LEASE)).unwrap()
}

/// A distant store, and a pacer on it without a bound of its own.
fn shared(policy: Policy) -> (Arc<Distant>, Pacer, Limiter) {
    let (distant, pacer, limiter) = distant(policy);
    pacer.set_concurrency(None);
    (distant, pacer, limiter)
}

/// A task that waits for a permit, and says when it got it.
fn task(pacer: &Pacer, charge: Charge<'_>) -> JoinHandle<(Permit, Instant)> {
    let acquire = pacer.acquire([charge]);
    tokio::spawn(async move { (acquire.await.unwrap(), Instant::now()) })
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_permit_keeps_its_slot_on_a_shared_store() {
    let (distant, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    let next = task(&pacer, limiter.charge("k", 1));
    for _ in 0..100 {
        sleep(LEASE / 10).await;
        assert!(!held.is_lost() && !next.is_finished());
        assert_eq!(distant.inner().stats().leases, 1);
    }
    let dropped = Instant::now();
    drop(held);
    let (_permit, granted) = next.await.unwrap();
    // One round trip to release, and one to take; not the next of the regular questions.
    assert!(granted - dropped <= ROUND_TRIP * 3, "{:?}", granted - dropped);
    assert_eq!(pacer.gauges().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_keeps_its_slot_in_process() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let limiter = engine.limiter("calls", slots(1)).unwrap();
    let pacer = Pacer::new(&engine);
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    let next = task(&pacer, limiter.charge("k", 1));
    for _ in 0..100 {
        sleep(LEASE / 10).await;
        assert!(!held.is_lost() && !next.is_finished());
    }
    let dropped = Instant::now();
    drop(held);
    assert_eq!(next.await.unwrap().1, dropped, "at once");
}

/// Threads without a runtime hold slots as well: a thread of the pacer renews them.
#[test]
fn a_permit_keeps_its_slot_outside_of_any_runtime() {
    let engine = Engine::new();
    let lease = Duration::from_millis(60);
    let policy = Policy::concurrency(1, Some(lease)).unwrap();
    let limiter = engine.limiter("calls", policy).unwrap();
    let pacer = Pacer::new(&engine);
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let refused = pacer.acquire([limiter.charge("k", 1)]).max_wait(lease * 5).blocking();
    // A machine that stood still for longer than the lease has lost the slot, and knows.
    assert!(refused.is_err() || held.is_lost());
    drop((held, refused));
    assert!(pacer.acquire([limiter.charge("k", 1)]).now().is_ok());
}

/// The crash story: without the runtime nobody renews, and the slot is free after the lease.
#[test]
fn a_permit_whose_runtime_is_gone_loses_its_slot() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let limiter = engine.limiter("calls", slots(1)).unwrap();
    let (crashed, other) = (Pacer::new(&engine), Pacer::builder(&engine).by_hand().build());
    let runtime = runtime();
    let held = runtime.block_on(crashed.acquire([limiter.charge("k", 1)]).into_future()).unwrap();
    drop(runtime);
    clock.advance(LEASE - Duration::from_nanos(1));
    assert!(other.acquire([limiter.charge("k", 1)]).now().is_err() && !held.is_lost());
    clock.advance(Duration::from_nanos(1));
    assert!(other.acquire([limiter.charge("k", 1)]).now().is_ok() && held.is_lost());
}

#[test]
fn a_slot_of_a_shared_store_is_freed_by_a_crash() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let distant = FaultyStore::new(store, UP);
    let engine = Engine::on(StoreHandle::shared(distant.clone()));
    let limiter = engine.limiter("calls", slots(1)).unwrap();
    let (crashed, other) = (Pacer::new(&engine), Pacer::new(&engine));
    let first = runtime();
    let held = first.block_on(crashed.acquire([limiter.charge("k", 1)]).into_future()).unwrap();
    drop(first);
    clock.advance(LEASE);
    let next = runtime().block_on(other.acquire([limiter.charge("k", 1)]).into_future());
    assert!(next.is_ok());
    drop(held);
    assert_eq!(distant.submissions_with(Verb::Renew), 0);
}

/// Permits that come at all times go in step: one submission for each third of the lease.
#[tokio::test(start_paused = true)]
async fn permits_are_renewed_together() {
    let (distant, pacer, limiter) = shared(slots(1_000));
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
        sleep(LEASE / 200).await;
    }
    let (rounds, renewals) =
        (distant.submissions_with(Verb::Renew), distant.operations_of(Verb::Renew));
    assert!(rounds <= 3, "{rounds} rounds within half a lease");
    sleep(LEASE * 10).await;
    let (rounds, renewals) = (
        distant.submissions_with(Verb::Renew) - rounds,
        distant.operations_of(Verb::Renew) - renewals,
    );
    assert!((28..=31).contains(&rounds), "{rounds} rounds in ten leases");
    assert_eq!(renewals, rounds * 100);
    assert!(held.iter().all(|permit| !permit.is_lost()));
    drop(held);
    sleep(LEASE).await;
    let rounds = distant.submissions_with(Verb::Renew);
    assert_eq!(distant.inner().stats().leases, 0);
    sleep(LEASE * 10).await;
    assert_eq!(
        distant.submissions_with(Verb::Renew),
        rounds,
        "nothing is renewed for permits that have ended"
    );
}

/// Short and long leases side by side: the short ones do not drag the long ones along.
#[tokio::test(start_paused = true)]
async fn each_lease_has_its_own_pace() {
    let (distant, pacer, short) = shared(slots(1));
    let long = short.engine().limiter("long", Policy::concurrency(1, Some(LEASE * 10)).unwrap());
    let _long = pacer.acquire([long.unwrap().charge("k", 1)]).await.unwrap();
    let _short = pacer.acquire([short.charge("k", 1)]).await.unwrap();
    sleep(LEASE * 20).await;
    let (rounds, renewals) =
        (distant.submissions_with(Verb::Renew), distant.operations_of(Verb::Renew));
    assert!((58..=66).contains(&rounds), "{rounds} rounds in twenty short leases");
    assert!(renewals - rounds <= 8, "{renewals} renewals in {rounds} rounds");
}

#[tokio::test(start_paused = true)]
async fn permits_without_a_lease_renew_nothing() {
    let (distant, pacer, limiter) = shared(Policy::concurrency(2, None).unwrap());
    let rate = Policy::per_second(10).build().unwrap();
    let rate = limiter.engine().limiter("rate", rate).unwrap();
    let _both = pacer.acquire([limiter.charge("k", 1), rate.charge("k", 1)]).await.unwrap();
    let _one = pacer.acquire([rate.charge("k", 1)]).await.unwrap();
    let asked = distant.operations();
    sleep(LEASE * 100).await;
    assert_eq!(distant.submissions_with(Verb::Renew), 0);
    assert_eq!(distant.operations(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_costs_no_slot() {
    let (distant, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    sleep(LEASE * 3 / 2).await;
    for _ in 0..5 {
        let before = distant.submissions_with(Verb::Renew);
        distant.set(down());
        // The last renewal may be a third of a lease old by now.
        sleep(LEASE * 6 / 10).await;
        distant.set(UP);
        let tries = distant.submissions_with(Verb::Renew) - before;
        assert!((2..=6).contains(&tries), "{tries} tries in six tenths of a lease");
        sleep(LEASE).await;
        assert!(!held.is_lost());
    }
    assert_eq!((distant.inner().stats().leases, pacer.gauges().lost), (1, 0));
}

/// A store that does not answer at all is not waited for until the lease has run out.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_asked_for_again() {
    let (distant, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    distant.set(Timing::RoundTrip(Duration::from_secs(7_200)));
    sleep(LEASE * 6 / 10).await;
    distant.set(Timing::RoundTrip(Duration::from_millis(2)));
    sleep(LEASE * 2).await;
    assert!(!held.is_lost());
    assert_eq!(distant.inner().stats().leases, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_told_and_not_taken_anew() {
    // The store was flushed.
    let (distant, pacer, limiter) = shared(slots(2));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    assert!(limiter.reset("k").await.unwrap());
    assert!(!held.is_lost(), "nobody knows yet");
    sleep(LEASE / 2).await;
    assert!(held.is_lost());
    assert_eq!((pacer.gauges().lost, distant.inner().stats().leases), (1, 0));

    // The process was suspended.
    let suspended = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    advance(LEASE * 2).await;
    assert!(suspended.is_lost());
    sleep(LEASE).await;
    assert_eq!((pacer.gauges().lost, distant.inner().stats().leases), (2, 0));

    // The store could not be reached for too long.
    let cut_off = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    distant.set(down());
    sleep(LEASE * 2).await;
    assert!(cut_off.is_lost());
    let rounds = distant.submissions_with(Verb::Renew);
    distant.set(UP);
    sleep(LEASE * 2).await;
    assert_eq!((pacer.gauges().lost, distant.submissions_with(Verb::Renew)), (3, rounds));
    assert!(!pacer.acquire([limiter.charge("k", 1)]).await.unwrap().is_lost());
}

/// Some of the slots of a permit are lost: that is told, and the others are kept.
#[tokio::test(start_paused = true)]
async fn what_is_not_lost_is_kept() {
    let (distant, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("a", 1), limiter.charge("b", 1)]).await.unwrap();
    assert!(limiter.reset("a").await.unwrap());
    sleep(LEASE * 10).await;
    assert!(held.is_lost());
    assert_eq!((pacer.gauges().lost, distant.inner().stats().leases), (1, 1));
    drop(held);
    sleep(ROUND_TRIP * 2).await;
    assert_eq!(distant.inner().stats().leases, 0);
}

/// A grant that its waiter has not heard of yet holds its slots as well.
#[test]
fn a_grant_that_was_not_picked_up_is_kept() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let limiter = hand.engine.limiter("calls", slots(1)).unwrap();
    let first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    hand.run(&pacer, LEASE * 10);
    assert_eq!((waiter.wakes(), first.is_lost()), (0, false));
    drop(first);
    assert_eq!(waiter.wakes(), 1);
    hand.run(&pacer, LEASE * 10);
    assert_eq!(hand.engine.store().local().unwrap().stats().leases, 1);
    assert!(pacer.acquire([limiter.charge("k", 1)]).now().is_err());
    assert!(!waiter.ask().unwrap().unwrap().is_lost());
    // And one that goes away without having heard of it gives them back.
    let first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    drop(first);
    drop(waiter);
    assert_eq!(hand.engine.store().local().unwrap().stats().leases, 0);
    assert_eq!(pacer.poll(), None, "there is nothing left to renew");
    assert_eq!(pacer.gauges().lost, 0);
}

#[test]
fn whoever_drives_by_hand_is_told_when_to_renew() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let limiter = hand.engine.limiter("calls", slots(1)).unwrap();
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    assert_eq!(pacer.poll(), Some(LEASE / 3));
    hand.clock.advance(LEASE / 3);
    assert_eq!(pacer.poll(), Some(LEASE / 3));
    hand.clock.advance(LEASE - Duration::from_nanos(1));
    assert!(!held.is_lost());
    hand.clock.advance(Duration::from_nanos(1));
    assert!(held.is_lost());
    assert_eq!((pacer.poll(), pacer.gauges().lost), (None, 1));
}

/// Slots that a settlement gives back are not missed.
#[test]
fn settled_slots_are_not_lost() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let limiter = hand.engine.limiter("calls", slots(5)).unwrap();
    for is_refunded in [false, true] {
        let acquire = pacer.acquire([limiter.charge("k", 4), limiter.charge("l", 1)]);
        let mut held = acquire.refund_on_drop(is_refunded).now().unwrap();
        held.settle_now(&[1, 1]).unwrap();
        hand.run(&pacer, LEASE * 5);
        assert_eq!(limiter.peek("k").cost(0).now().unwrap().remaining(), 4);
        held.settle_now(&[0, 0]).unwrap();
        assert_eq!(pacer.poll(), None);
        hand.run(&pacer, LEASE * 5);
        assert!(!held.is_lost());
    }
    assert_eq!((pacer.gauges().lost, hand.engine.store().local().unwrap().stats().leases), (0, 0));
}

/// The lease is that of the policy of now; a limit that counts no slots any more misses none.
#[test]
fn leases_follow_the_policy() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let limiter = hand.engine.limiter("calls", slots(1)).unwrap();
    let revise = |policy| limiter.reconfigure(policy, Change::KeepTokens).unwrap();
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    revise(Policy::concurrency(1, Some(LEASE / 2)).unwrap());
    hand.clock.advance(LEASE / 3);
    assert_eq!(pacer.poll(), Some(LEASE / 6));
    revise(Policy::concurrency(1, None).unwrap());
    hand.clock.advance(LEASE / 6);
    assert_eq!(pacer.poll(), None, "it is kept until it is released");
    hand.clock.advance(LEASE * 9);
    assert_eq!((held.is_lost(), hand.engine.store().local().unwrap().stats().leases), (false, 1));
    drop(held);
    assert_eq!(hand.engine.store().local().unwrap().stats().leases, 0);

    revise(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    revise(Policy::per_second(1).build().unwrap());
    hand.run(&pacer, LEASE * 3);
    assert_eq!((held.is_lost(), pacer.gauges().lost), (false, 0));
}

/// Permits that come and go leave nothing behind: the list of leases stays short.
#[test]
fn permits_that_end_are_forgotten() {
    let hand = Hand::new();
    let pacer = hand.pacer();
    let limiter = hand.engine.limiter("calls", slots(100)).unwrap();
    let kept: Vec<_> =
        (0..50).map(|_| pacer.acquire([limiter.charge("k", 1)]).now().unwrap()).collect();
    for _ in 0..100_000 {
        drop(pacer.acquire([limiter.charge("k", 1)]).now().unwrap());
    }
    hand.run(&pacer, LEASE * 2);
    assert!(kept.iter().all(|permit| !permit.is_lost()));
    assert_eq!(hand.engine.store().local().unwrap().stats().leases, 50);
}
