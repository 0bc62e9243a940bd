//! Where a guard is used: outside any runtime, in several runtimes, and in one that ends.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::FailureRule::{Local, Open};
use tidegate::guard::NotCalled;
use tidegate::{Decision, Store as _, StoreError};
use tidegate_core::{Charge, Operation, StoreResponse, StoreResponses};
use tokio::runtime::{Builder, Runtime};

use super::faulty::{FaultMode, MILLI, SECOND, TIMEOUT, bring_down, guarded, per_second};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// The result of a future that is ready at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is pending"),
    }
}

#[test]
fn failure_rules_decide_outside_a_runtime() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    for _ in 0..5 {
        let decision: Decision = at_once(limiter.take("k").into_future()).unwrap();
        assert_eq!((decision.is_allowed(), decision.degraded()), (true, Some(Local)));
    }
    let settled = at_once(limiter.settle("k", 1, None).into_future());
    let Err(StoreError::Unavailable(reason)) = settled else { panic!("{settled:?}") };
    assert_eq!(reason.downcast_ref(), Some(&NotCalled::NoRuntime));
    assert_eq!((store.submissions(), guard.is_up()), (0, true), "not a failure of the store");
    let open = limiter.limit().on_failure(Open);
    let charges = [Charge::new(&open, "k", 1)];
    let mut answers = StoreResponses::new();
    at_once(guard.submit(&[Operation::Take(&charges)], &mut answers));
    let Some(Ok(StoreResponse::Decision(decision))) = answers.pop() else { panic!("{answers:?}") };
    assert_eq!(decision.degraded(), Some(Local), "rule open does not apply while the store is up");
    paused().block_on(async {
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
        bring_down(&store, &guard).await;
    });
    let decision: Decision = at_once(limiter.take("k").into_future()).unwrap();
    assert_eq!(decision.degraded(), Some(Local), "and there is no runtime to probe in");
}

/// A future runs where it is awaited, not where it was created.
#[test]
fn a_future_may_be_created_outside_a_runtime() {
    let (store, _guard, limiter) = guarded(per_second(1, 10));
    let take = limiter.take("k").into_future();
    assert_eq!(paused().block_on(take).unwrap().degraded(), None);
    assert_eq!(store.submissions(), 1);
}

#[test]
fn a_prober_is_replaced_when_its_runtime_ends() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let first = paused();
    first.block_on(bring_down(&store, &guard));
    drop(first);
    assert_eq!(store.probes().len(), 0);
    store.set(FaultMode::Answers);
    paused().block_on(async {
        tokio::time::sleep(SECOND).await;
        assert!(!guard.is_up(), "no probe yet");
        assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
        tokio::time::sleep(MILLI * 101).await;
        assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    });
}

/// The runtime of the prober still exists, but is not being driven.
#[test]
fn a_prober_is_replaced_when_its_runtime_stalls() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let asleep = paused();
    asleep.block_on(bring_down(&store, &guard));
    store.set(FaultMode::Answers);
    let awake = paused();
    awake.block_on(async {
        for _ in 0..40 {
            let _ = limiter.take("k").await.unwrap();
            tokio::time::sleep(TIMEOUT).await;
        }
        assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
    });
    // The prober of that runtime finds that it has been replaced.
    asleep.block_on(async { tokio::time::sleep(SECOND * 10).await });
    assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
    store.set(FaultMode::Refuses);
    awake.block_on(async {
        bring_down(&store, &guard).await;
        tokio::time::sleep(MILLI * 900).await;
        let probes = store.probes().len();
        assert!((3..=6).contains(&probes), "{probes} probes: one prober, not two");
    });
}

/// Many threads of several runtimes, while the store fails and recovers: every result is a
/// decision, and in the end the store decides.
#[test]
fn several_runtimes_share_a_guard() {
    let (store, guard, limiter) = guarded(per_second(1, 1_000_000));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (store, limiter) = (store.clone(), limiter.clone());
            std::thread::spawn(move || {
                let runtime =
                    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                let tasks: Vec<_> = (0..4)
                    .map(|number: u32| {
                        let (store, limiter) = (store.clone(), limiter.clone());
                        runtime.spawn(async move {
                            for round in 0..300 {
                                let fails = (round / 50 + number) % 2 == 1;
                                store.set(if fails {
                                    FaultMode::Refuses
                                } else {
                                    FaultMode::Answers
                                });
                                assert!(limiter.take("k").await.unwrap().is_allowed());
                                tokio::task::yield_now().await;
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
    store.set(FaultMode::Answers);
    paused().block_on(async {
        for _ in 0..200 {
            let _ = limiter.take("k").await.unwrap();
            tokio::time::sleep(TIMEOUT).await;
        }
        assert!(guard.is_up());
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    });
}
