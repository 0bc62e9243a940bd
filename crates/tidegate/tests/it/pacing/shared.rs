//! Waiting on a store with a round trip.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::pacer::{AcquireError, Pacer};
use tidegate::{Decision, Engine, MemoryStore, Policy, StoreError, StoreHandle};
use tidegate_core::{Operation, StoreResponse};
use tidegate_testkit::faulty_store::{Behaviour, OperationContext, OperationKind, Timing};
use tokio::runtime::{Builder, Runtime};

use super::remote_store::{ROUND_TRIP, UP, down, remote};

const SECOND: Duration = Duration::from_secs(1);
fn per_second(tokens: u64, capacity: u64) -> Policy {
    Policy::per_second(tokens).capacity(capacity).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiters_are_granted_in_order_and_only_the_head_calls_the_store() {
    let (remote, pacer, limiter) = remote(per_second(1, 1));
    let start = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..50_u64)
        .map(|number| {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            tokio::spawn(async move {
                let permit = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
                drop(permit);
                (number, start.elapsed())
            })
        })
        .collect();
    for task in tasks {
        let (number, at) = task.await.unwrap();
        let due = SECOND * u32::try_from(number).unwrap();
        assert!(at >= due && at <= due + ROUND_TRIP * 3, "number {number} at {at:?}");
    }
    let operations = remote.operations();
    assert!(operations <= 2 * 50 + 2, "{operations} operations for 50 grants");
    assert_eq!(pacer.gauges().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn the_reservation_of_a_cancelled_waiter_is_given_back() {
    let (remote, pacer, limiter) = remote(per_second(1, 10));
    drop(pacer.acquire([limiter.charge("k", 10)]).await.unwrap());
    let left = tokio::spawn({
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        async move { pacer.acquire([limiter.charge("k", 10)]).await.map(drop) }
    });
    // The head is reserved within the last quarter of a second; it leaves right after that.
    tokio::time::sleep(SECOND * 9 + Duration::from_millis(900)).await;
    assert!(limiter.peek("k").cost(0).await.unwrap().remaining() == 0, "it is reserved");
    left.abort();
    tokio::time::sleep(SECOND).await;
    assert!(remote.inner().stats().keys <= 1);
    assert!(limiter.peek("k").cost(10).await.unwrap().is_allowed(), "all ten are there again");
    assert_eq!((pacer.gauges().waiting, pacer.gauges().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_refused_at_the_head() {
    let (_distant, pacer, limiter) = remote(per_second(1, 10));
    drop(pacer.acquire([limiter.charge("k", 10)]).await.unwrap());
    let begin = tokio::time::Instant::now();
    let refused = pacer.acquire([limiter.charge("k", 10)]).max_wait(SECOND * 3).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { projected, .. } if projected > SECOND * 9));
    assert!(begin.elapsed() < SECOND, "without waiting for the deadline");
    assert!(pacer.acquire([limiter.charge("k", 3)]).max_wait(SECOND * 4).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn permits_settle_and_refund_through_the_store() {
    let (_distant, pacer, limiter) = remote(per_second(1, 10));
    let mut permit = pacer.acquire([limiter.charge("k", 8)]).await.unwrap();
    assert!(matches!(permit.settle_now(&[2]), Err(StoreError::MustAwait)));
    permit.settle(&[2]).await.unwrap();
    drop(permit);
    assert_eq!(limiter.peek("k").cost(0).await.unwrap().remaining(), 8);
    drop(pacer.acquire([limiter.charge("k", 8)]).refund_on_drop(true).await.unwrap());
    tokio::time::sleep(ROUND_TRIP * 2).await;
    assert_eq!(limiter.peek("k").cost(0).await.unwrap().remaining(), 8);
    let refused = pacer.acquire([limiter.charge("k", 1)]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::MustAwait));
}

#[tokio::test(start_paused = true)]
async fn a_store_failure_fails_the_head_and_the_pacer_recovers() {
    let (remote, pacer, limiter) = remote(per_second(1, 1));
    remote.set(down());
    let refused = pacer.acquire([limiter.charge("k", 1)]).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Store(StoreError::TimedOut)));
    remote.set(UP);
    assert!(pacer.acquire([limiter.charge("k", 1)]).await.is_ok());
}

#[test]
fn a_shared_store_needs_a_runtime() {
    let engine = Engine::on(StoreHandle::shared(Arc::new(MemoryStore::new())));
    let limiter = engine.limiter("calls", per_second(1, 1)).unwrap();
    let refused = Pacer::new(&engine).acquire([limiter.charge("k", 1)]).blocking().unwrap_err();
    assert!(matches!(refused, AcquireError::NoRuntime));
}

/// Deadlines are kept during a slow store call, and while the head waits for its reservation to
/// start.
#[tokio::test(start_paused = true)]
async fn deadlines_are_kept_during_store_calls() {
    let (remote, pacer, limiter) = remote(per_second(4, 1));
    drop(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
    let head = tokio::spawn({
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        async move { pacer.acquire([limiter.charge("k", 1)]).await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let begin = tokio::time::Instant::now();
    let short = Duration::from_millis(20);
    let refused = pacer.acquire([limiter.charge("k", 1)]).max_wait(short).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut(_)), "{refused:?}");
    assert!(begin.elapsed() < short * 2);
    head.await.unwrap().unwrap();

    remote.set(Timing::RoundTrip(SECOND * 120));
    let begin = tokio::time::Instant::now();
    let refused = pacer.acquire([limiter.charge("k", 1)]).max_wait(short).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut(_)), "{refused:?}");
    assert!(begin.elapsed() < short * 2);
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!(remote.inner().stats().keys, 0, "unused reservations are given back");
}

/// Several runtimes use a store that fails now and then: grants and refusals of one waiter must not
/// overwrite each other.
#[test]
fn several_runtimes_share_a_store_that_fails() {
    let (remote, pacer, limiter) = remote(per_second(1_000_000, 1_000_000));
    let unlucky = |asked: OperationContext<'_>| {
        let is_reservation = OperationKind::of(asked.operation) == OperationKind::Reserve;
        (is_reservation && asked.number % 3 == 0).then_some(StoreError::TimedOut)
    };
    remote.set(Behaviour::from(Timing::RoundTrip(Duration::ZERO)).failing_if(unlucky));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            std::thread::spawn(move || {
                let builder = &mut Builder::new_multi_thread();
                let runtime = builder.worker_threads(2).enable_all().build().unwrap();
                let tasks: Vec<_> = (0..4)
                    .map(|_| {
                        let (pacer, limiter) = (pacer.clone(), limiter.clone());
                        runtime.spawn(async move {
                            for _ in 0..40 {
                                let _ = pacer.acquire([limiter.charge("k", 1)]).await.map(drop);
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    runtime.block_on(task).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let gauges = pacer.gauges();
    assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
}

/// A waiter that is polled outside a runtime gets an error, and blocks no other waiter.
#[test]
fn a_waiter_polled_outside_a_runtime_is_refused() {
    let (_distant, pacer, limiter) = remote(per_second(10, 1));
    let builder = &mut Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { drop(pacer.acquire([limiter.charge("k", 1)]).await.unwrap()) });
    let mut moved = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
    let mut context = Context::from_waker(Waker::noop());
    let entered = runtime.enter();
    assert!(moved.as_mut().poll(&mut context).is_pending());
    drop(entered);
    let outside = moved.as_mut().poll(&mut context);
    assert!(matches!(outside, Poll::Ready(Err(AcquireError::NoRuntime))));
    let next = runtime.block_on(pacer.acquire([limiter.charge("k", 1)]).into_future());
    assert!(next.is_ok());
}

/// A release in this process takes effect at once, whenever it comes.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_head_at_once() {
    let lease = Some(SECOND * 60);
    let (_distant, pacer, limiter) = remote(Policy::concurrency(1, lease).unwrap());
    for offset in 0..130 {
        let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
        let next = tokio::spawn(pacer.acquire([limiter.charge("k", 1)]).into_future());
        tokio::time::sleep(Duration::from_millis(offset)).await;
        let dropped = tokio::time::Instant::now();
        drop(held);
        drop(next.await.unwrap().unwrap());
        let waited = dropped.elapsed();
        assert!(waited <= ROUND_TRIP * 4, "{waited:?} after a release at {offset} ms");
        tokio::time::sleep(ROUND_TRIP * 2).await;
    }
}

/// The store has answered that the slot is taken, and the slot is released before the answer
/// arrives.
#[tokio::test(start_paused = true)]
async fn an_answer_overtaken_by_a_release_is_retried() {
    let (remote, pacer, limiter) = remote(Policy::concurrency(1, None).unwrap());
    let held = pacer.acquire([limiter.charge("k", 1)]).await.unwrap();
    remote.set(Timing::RoundTrip(Duration::from_millis(100)));
    let next = tokio::spawn(pacer.acquire([limiter.charge("k", 1)]).into_future());
    tokio::time::sleep(Duration::from_millis(60)).await;
    remote.set(UP);
    drop(held);
    let waited = next.await.unwrap().unwrap().waited();
    assert!(waited <= Duration::from_millis(100) + ROUND_TRIP * 2, "{waited:?}");
}

/// Another process releases a slot long before its lease expires: the head notices soon, and is not
/// refused because of the lease.
#[tokio::test(start_paused = true)]
async fn a_slot_released_elsewhere_is_noticed_before_its_lease_ends() {
    let lease = Some(SECOND * 60);
    let (remote, pacer, limiter) = remote(Policy::concurrency(1, lease).unwrap());
    let snapshot = limiter.snapshot();
    let charges = [snapshot.charge("k", 1)];
    let elsewhere = remote.inner().execute(&Operation::Take(&charges)).unwrap();
    let StoreResponse::Decision(Decision::Allowed(grant)) = elsewhere else { panic!("it is free") };
    let acquire = pacer.acquire([limiter.charge("k", 1)]).max_wait(SECOND * 5);
    let next = tokio::spawn(acquire.into_future());
    tokio::time::sleep(SECOND * 2).await;
    assert!(!next.is_finished());
    let (targets, receipt) = ([snapshot.target("k")], &grant.receipt);
    remote.inner().execute(&Operation::Release { targets: &targets, receipt }).unwrap();
    let waited = next.await.unwrap().unwrap().waited();
    assert!(waited <= SECOND * 2 + Duration::from_millis(120), "{waited:?}");
}

/// A slot and a rate: the slot is not taken before the rate is almost ready.
#[tokio::test(start_paused = true)]
async fn slots_are_reserved_only_shortly_before_use() {
    let (remote, pacer, rate) = remote(per_second(1, 10));
    let slots = Policy::concurrency(1, Some(SECOND * 60)).unwrap();
    let slots = rate.engine().limiter("slots", slots).unwrap();
    drop(pacer.acquire([rate.charge("k", 10)]).await.unwrap());
    let both = pacer.acquire([slots.charge("k", 1), rate.charge("k", 10)]);
    let both = tokio::spawn(both.into_future());
    tokio::time::sleep(Duration::from_millis(9_700)).await;
    assert_eq!(remote.inner().stats().leases, 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((remote.inner().stats().leases, both.is_finished()), (1, false));
    let permit = both.await.unwrap().unwrap();
    assert!(permit.waited() >= SECOND * 9 + Duration::from_millis(980));
}

/// The head leaves before its reservation starts: the next waiter does not wait for that start.
#[tokio::test(start_paused = true)]
async fn the_reservation_of_a_cancelled_waiter_delays_nobody() {
    let (_distant, pacer, limiter) = remote(per_second(1, 10));
    drop(pacer.acquire([limiter.charge("k", 10)]).await.unwrap());
    let left = tokio::spawn(pacer.acquire([limiter.charge("k", 10)]).into_future());
    tokio::time::sleep(Duration::from_millis(9_800)).await;
    let next = tokio::spawn(pacer.acquire([limiter.charge("k", 9)]).into_future());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!next.is_finished());
    let begin = tokio::time::Instant::now();
    left.abort();
    assert!(next.await.unwrap().is_ok());
    assert!(begin.elapsed() <= ROUND_TRIP * 3, "{:?}", begin.elapsed());
}

/// No reservation starts after the deadline of the head: it is refused, and others go on.
#[tokio::test(start_paused = true)]
async fn no_reservation_starts_after_the_deadline() {
    let (_distant, pacer, limiter) = remote(per_second(4, 1));
    drop(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
    let short = Duration::from_millis(100);
    let refused = pacer.acquire([limiter.charge("k", 1)]).max_wait(short).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { projected, .. } if projected > short));
    assert!(limiter.peek("k").cost(0).await.unwrap().outcomes()[0].reset <= Some(SECOND / 4));
}

/// A runtime is shut down while its driver calls the store for all waiters: another driver goes on.
#[test]
fn another_driver_takes_over_when_a_runtime_ends_mid_call() {
    let (remote, pacer, limiter) = remote(per_second(1_000_000, 1_000_000));
    let (one, two) = (runtime(), runtime());
    let join = |runtime: &Runtime| {
        let mut waiter = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
        runtime.block_on(async {
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiter.as_mut().poll(&mut context).is_pending());
            // Its driver runs once, and calls the store or sleeps.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        waiter
    };
    remote.set(Timing::RoundTrip(Duration::from_secs(7_200)));
    let (first, second) = (join(&one), join(&two));
    remote.set(Timing::RoundTrip(Duration::ZERO));
    drop(first);
    drop(one);
    let done = two.block_on(async { tokio::time::timeout(SECOND * 30, second).await });
    assert!(done.unwrap().is_ok());
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
