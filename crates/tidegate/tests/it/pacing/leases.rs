//! Slots of the store with a lease: kept while their permit lives, freed by a crash.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Charge;
use tidegate::clock::{ManualClock, TokioClock};
use tidegate::pacer::{Pacer, Permit};
use tidegate::{Engine, Limiter, MemoryStore, Policy, PolicyChange, StoreHandle};
use tidegate_testkit::faulty_store::{FaultyStore, OperationKind, Timing};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::manual::{ManualEngine, SilentClock, Waiter};
use super::remote_store::{ROUND_TRIP, RemoteStore, UP, down, remote};

const LEASE: Duration = Duration::from_secs(6);

fn slots(slots: u64) -> Policy {
    Policy::concurrency(slots, Some(LEASE)).unwrap()
}

/// A remote store, and a pacer on it with unlimited concurrency.
fn shared(policy: Policy) -> (Arc<RemoteStore>, Pacer, Limiter) {
    let (remote, pacer, limiter) = remote(policy);
    pacer.set_concurrency(None);
    (remote, pacer, limiter)
}

/// A task that waits for a permit, and returns when it got it.
fn task(pacer: &Pacer, charge: Charge<'_>) -> JoinHandle<(Permit, Instant)> {
    let acquire = pacer.acquire([charge]);
    tokio::spawn(async move { (acquire.await.unwrap(), Instant::now()) })
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_permit_keeps_its_slot_on_a_shared_store() {
    let (remote, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    let next = task(&pacer, limiter.charge("k", 1));
    for _ in 0..100 {
        sleep(LEASE / 10).await;
        assert!(!held.has_lost_slots() && !next.is_finished());
        assert_eq!(remote.inner().stats().leases, 1);
    }
    let dropped = Instant::now();
    drop(held);
    let (_permit, granted) = next.await.unwrap();
    // One round trip to release, and one to take; not the next regular retry.
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
        assert!(!held.has_lost_slots() && !next.is_finished());
    }
    let dropped = Instant::now();
    drop(held);
    assert_eq!(next.await.unwrap().1, dropped, "at once");
}

/// Threads without a runtime hold slots as well: a thread of the pacer renews them.
#[test]
fn a_permit_keeps_its_slot_outside_a_runtime() {
    let engine = Engine::new();
    let lease = Duration::from_millis(60);
    let policy = Policy::concurrency(1, Some(lease)).unwrap();
    let limiter = engine.limiter("calls", policy).unwrap();
    let pacer = Pacer::new(&engine);
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let refused = pacer.acquire([limiter.charge("k", 1)]).max_wait(lease * 5).blocking();
    // A machine that stood still for longer than the lease has lost the slot, and knows it.
    assert!(refused.is_err() || held.has_lost_slots());
    drop((held, refused));
    assert!(pacer.acquire([limiter.charge("k", 1)]).now().is_ok());
}

/// A crash: without the runtime no lease is renewed, and the slot is free after the lease.
#[test]
fn a_permit_whose_runtime_is_gone_loses_its_slot() {
    let clock = SilentClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let limiter = engine.limiter("calls", slots(1)).unwrap();
    let (crashed, other) = (Pacer::new(&engine), Pacer::builder(&engine).manual().build());
    let runtime = runtime();
    let held = runtime.block_on(crashed.acquire([limiter.charge("k", 1)]).into_future()).unwrap();
    drop(runtime);
    clock.0.advance(LEASE - Duration::from_nanos(1));
    assert!(other.acquire([limiter.charge("k", 1)]).now().is_err() && !held.has_lost_slots());
    clock.0.advance(Duration::from_nanos(1));
    assert!(other.acquire([limiter.charge("k", 1)]).now().is_ok() && held.has_lost_slots());
}

#[test]
fn a_slot_of_a_shared_store_is_freed_by_a_crash() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let remote = FaultyStore::new(store, UP);
    let engine = Engine::on(StoreHandle::shared(remote.clone()));
    let limiter = engine.limiter("calls", slots(1)).unwrap();
    let (crashed, other) = (Pacer::new(&engine), Pacer::new(&engine));
    let first = runtime();
    let held = first.block_on(crashed.acquire([limiter.charge("k", 1)]).into_future()).unwrap();
    drop(first);
    clock.advance(LEASE);
    let next = runtime().block_on(other.acquire([limiter.charge("k", 1)]).into_future());
    assert!(next.is_ok());
    drop(held);
    assert_eq!(remote.submissions_with(OperationKind::Renew), 0);
}

/// Permits that start at different times are renewed together: one submission per third of the
/// lease.
#[tokio::test(start_paused = true)]
async fn permits_are_renewed_together() {
    let (remote, pacer, limiter) = shared(slots(1_000));
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
        sleep(LEASE / 200).await;
    }
    let (rounds, renewals) = (
        remote.submissions_with(OperationKind::Renew),
        remote.operations_by_kind(OperationKind::Renew),
    );
    assert!(rounds <= 3, "{rounds} rounds within half a lease");
    sleep(LEASE * 10).await;
    let (rounds, renewals) = (
        remote.submissions_with(OperationKind::Renew) - rounds,
        remote.operations_by_kind(OperationKind::Renew) - renewals,
    );
    assert!((28..=31).contains(&rounds), "{rounds} rounds in ten leases");
    assert_eq!(renewals, rounds * 100);
    assert!(held.iter().all(|permit| !permit.has_lost_slots()));
    drop(held);
    sleep(LEASE).await;
    let rounds = remote.submissions_with(OperationKind::Renew);
    assert_eq!(remote.inner().stats().leases, 0);
    sleep(LEASE * 10).await;
    assert_eq!(
        remote.submissions_with(OperationKind::Renew),
        rounds,
        "nothing is renewed for permits that have ended"
    );
}

/// Short and long leases side by side: the long ones are not renewed as often as the short ones.
#[tokio::test(start_paused = true)]
async fn each_lease_is_renewed_at_its_own_interval() {
    let (remote, pacer, short) = shared(slots(1));
    let long = short.engine().limiter("long", Policy::concurrency(1, Some(LEASE * 10)).unwrap());
    let _long = pacer.acquire([long.unwrap().charge("k", 1)]).await.unwrap();
    let _short = pacer.acquire([short.charge("k", 1)]).await.unwrap();
    sleep(LEASE * 20).await;
    let (rounds, renewals) = (
        remote.submissions_with(OperationKind::Renew),
        remote.operations_by_kind(OperationKind::Renew),
    );
    assert!((58..=66).contains(&rounds), "{rounds} rounds in twenty short leases");
    assert!(renewals - rounds <= 8, "{renewals} renewals in {rounds} rounds");
}

#[tokio::test(start_paused = true)]
async fn permits_without_a_lease_renew_nothing() {
    let (remote, pacer, limiter) = shared(Policy::concurrency(2, None).unwrap());
    let rate = Policy::per_second(10).build().unwrap();
    let rate = limiter.engine().limiter("rate", rate).unwrap();
    let _both = pacer.acquire([limiter.charge("k", 1), rate.charge("k", 1)]).await.unwrap();
    let _one = pacer.acquire([rate.charge("k", 1)]).await.unwrap();
    let operations = remote.operations();
    sleep(LEASE * 100).await;
    assert_eq!(remote.submissions_with(OperationKind::Renew), 0);
    assert_eq!(remote.operations(), operations);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_slot() {
    let (remote, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    sleep(LEASE * 3 / 2).await;
    for _ in 0..5 {
        let before = remote.submissions_with(OperationKind::Renew);
        remote.set(down());
        // The last renewal may be a third of a lease old by now.
        sleep(LEASE * 6 / 10).await;
        remote.set(UP);
        let tries = remote.submissions_with(OperationKind::Renew) - before;
        assert!((2..=6).contains(&tries), "{tries} tries in six tenths of a lease");
        sleep(LEASE).await;
        assert!(!held.has_lost_slots());
    }
    assert_eq!((remote.inner().stats().leases, pacer.gauges().lost), (1, 0));
}

/// A store that does not answer is not waited for until the lease has expired.
#[tokio::test(start_paused = true)]
async fn an_unanswered_renewal_is_retried() {
    let (remote, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    remote.set(Timing::RoundTrip(Duration::from_secs(7_200)));
    sleep(LEASE * 6 / 10).await;
    remote.set(Timing::RoundTrip(Duration::from_millis(2)));
    sleep(LEASE * 2).await;
    assert!(!held.has_lost_slots());
    assert_eq!(remote.inner().stats().leases, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_reported_and_not_taken_again() {
    // The store was flushed.
    let (remote, pacer, limiter) = shared(slots(2));
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    assert!(limiter.reset("k").await.unwrap());
    assert!(!held.has_lost_slots(), "not detected yet");
    sleep(LEASE / 2).await;
    assert!(held.has_lost_slots());
    assert_eq!((pacer.gauges().lost, remote.inner().stats().leases), (1, 0));

    // The process was suspended.
    let suspended = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    advance(LEASE * 2).await;
    assert!(suspended.has_lost_slots());
    sleep(LEASE).await;
    assert_eq!((pacer.gauges().lost, remote.inner().stats().leases), (2, 0));

    // The store was unreachable for too long.
    let cut_off = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    remote.set(down());
    sleep(LEASE * 2).await;
    assert!(cut_off.has_lost_slots());
    let rounds = remote.submissions_with(OperationKind::Renew);
    remote.set(UP);
    sleep(LEASE * 2).await;
    assert_eq!((pacer.gauges().lost, remote.submissions_with(OperationKind::Renew)), (3, rounds));
    assert!(!pacer.acquire([limiter.charge("k", 1)]).await.unwrap().has_lost_slots());
}

/// Some of the slots of a permit are lost: that is reported, and the others are kept.
#[tokio::test(start_paused = true)]
async fn remaining_slots_are_kept_when_others_are_lost() {
    let (remote, pacer, limiter) = shared(slots(1));
    let held = pacer.acquire([limiter.charge("a", 1), limiter.charge("b", 1)]).await.unwrap();
    assert!(limiter.reset("a").await.unwrap());
    sleep(LEASE * 10).await;
    assert!(held.has_lost_slots());
    assert_eq!((pacer.gauges().lost, remote.inner().stats().leases), (1, 1));
    drop(held);
    sleep(ROUND_TRIP * 2).await;
    assert_eq!(remote.inner().stats().leases, 0);
}

/// A grant whose waiter has not been polled since holds its slots as well.
#[test]
fn leases_of_an_unpolled_grant_are_renewed() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", slots(1)).unwrap();
    let first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    manual.run(&pacer, LEASE * 10);
    assert_eq!((waiter.wakes(), first.has_lost_slots()), (0, false));
    drop(first);
    assert_eq!(waiter.wakes(), 1);
    manual.run(&pacer, LEASE * 10);
    assert_eq!(manual.engine.store().local().unwrap().stats().leases, 1);
    assert!(pacer.acquire([limiter.charge("k", 1)]).now().is_err());
    assert!(!waiter.poll().unwrap().unwrap().has_lost_slots());
    // A waiter that is dropped before it is polled again gives them back.
    let first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let waiter = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    drop(first);
    drop(waiter);
    assert_eq!(manual.engine.store().local().unwrap().stats().leases, 0);
    assert_eq!(pacer.poll(), None, "nothing is left to renew");
    assert_eq!(pacer.gauges().lost, 0);
}

#[test]
fn poll_returns_the_time_of_the_next_renewal() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", slots(1)).unwrap();
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    assert_eq!(pacer.poll(), Some(LEASE / 3));
    manual.clock.advance(LEASE / 3);
    assert_eq!(pacer.poll(), Some(LEASE / 3));
    manual.clock.advance(LEASE - Duration::from_nanos(1));
    assert!(!held.has_lost_slots());
    manual.clock.advance(Duration::from_nanos(1));
    assert!(held.has_lost_slots());
    assert_eq!((pacer.poll(), pacer.gauges().lost), (None, 1));
}

/// Slots that a settlement releases are not reported as lost.
#[test]
fn settled_slots_are_not_lost() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", slots(5)).unwrap();
    for is_refunded in [false, true] {
        let acquire = pacer.acquire([limiter.charge("k", 4), limiter.charge("l", 1)]);
        let mut held = acquire.refund_on_drop(is_refunded).now().unwrap();
        held.settle_now(&[1, 1]).unwrap();
        manual.run(&pacer, LEASE * 5);
        assert_eq!(limiter.peek("k").cost(0).now().unwrap().remaining(), 4);
        held.settle_now(&[0, 0]).unwrap();
        assert_eq!(pacer.poll(), None);
        manual.run(&pacer, LEASE * 5);
        assert!(!held.has_lost_slots());
    }
    assert_eq!(
        (pacer.gauges().lost, manual.engine.store().local().unwrap().stats().leases),
        (0, 0)
    );
}

/// The lease is that of the current policy; a limit without slots loses none.
#[test]
fn leases_follow_the_policy() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", slots(1)).unwrap();
    let revise = |policy| limiter.reconfigure(policy, PolicyChange::KeepTokens).unwrap();
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    revise(Policy::concurrency(1, Some(LEASE / 2)).unwrap());
    manual.clock.advance(LEASE / 3);
    assert_eq!(pacer.poll(), Some(LEASE / 6));
    revise(Policy::concurrency(1, None).unwrap());
    manual.clock.advance(LEASE / 6);
    assert_eq!(pacer.poll(), None, "it is kept until it is released");
    manual.clock.advance(LEASE * 9);
    assert_eq!(
        (held.has_lost_slots(), manual.engine.store().local().unwrap().stats().leases),
        (false, 1)
    );
    drop(held);
    assert_eq!(manual.engine.store().local().unwrap().stats().leases, 0);

    revise(slots(1));
    let held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    revise(Policy::per_second(1).build().unwrap());
    manual.run(&pacer, LEASE * 3);
    assert_eq!((held.has_lost_slots(), pacer.gauges().lost), (false, 0));
}

/// Permits that come and go leave nothing behind: the list of leases stays short.
#[test]
fn permits_that_end_are_forgotten() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let limiter = manual.engine.limiter("calls", slots(100)).unwrap();
    let kept: Vec<_> =
        (0..50).map(|_| pacer.acquire([limiter.charge("k", 1)]).now().unwrap()).collect();
    for _ in 0..100_000 {
        drop(pacer.acquire([limiter.charge("k", 1)]).now().unwrap());
    }
    manual.run(&pacer, LEASE * 2);
    assert!(kept.iter().all(|permit| !permit.has_lost_slots()));
    assert_eq!(manual.engine.store().local().unwrap().stats().leases, 50);
}
