//! Where a guard is used: outside of any runtime, in several, and in one that ends.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::FailureRule::{Local, Open};
use tidegate::guard::NotAsked;
use tidegate::{Decision, Store as _, StoreError};
use tidegate_core::{Answer, Answers, Charge, Operation};
use tokio::runtime::{Builder, Runtime};

use super::faulty::{MILLI, Mood, SECOND, TIMEOUT, bring_down, guarded, per_second};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// The result of a future that has it at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn outside_of_any_runtime_the_rules_decide() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    for _ in 0..5 {
        let decision: Decision = at_once(limiter.take("k").into_future()).unwrap();
        assert_eq!((decision.is_allowed(), decision.degraded()), (true, Some(Local)));
    }
    let settled = at_once(limiter.settle("k", 1, None).into_future());
    let Err(StoreError::Unavailable(reason)) = settled else { panic!("{settled:?}") };
    assert_eq!(reason.downcast_ref(), Some(&NotAsked::NoRuntime));
    assert_eq!((store.submissions(), guard.is_up()), (0, true), "no fault of the store");
    let open = limiter.limit().on_failure(Open);
    let charges = [Charge::new(&open, "k", 1)];
    let mut answers = Answers::new();
    at_once(guard.submit(&[Operation::Take(&charges)], &mut answers));
    let Some(Ok(Answer::Decision(decision))) = answers.pop() else { panic!("{answers:?}") };
    assert_eq!(decision.degraded(), Some(Local), "nothing is open while the store is well");
    paused().block_on(async {
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
        bring_down(&store, &guard).await;
    });
    let decision: Decision = at_once(limiter.take("k").into_future()).unwrap();
    assert_eq!(decision.degraded(), Some(Local), "and nobody is there to probe");
}

/// A future is carried out where it is awaited, not where it was made.
#[test]
fn a_future_may_be_made_outside_and_awaited_inside() {
    let (store, _guard, limiter) = guarded(per_second(1, 10));
    let take = limiter.take("k").into_future();
    assert_eq!(paused().block_on(take).unwrap().degraded(), None);
    assert_eq!(store.submissions(), 1);
}

#[test]
fn when_the_runtime_of_the_prober_ends_another_one_probes() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let first = paused();
    first.block_on(bring_down(&store, &guard));
    drop(first);
    assert_eq!(store.probes().len(), 0);
    store.set(Mood::Answers);
    paused().block_on(async {
        tokio::time::sleep(SECOND).await;
        assert!(!guard.is_up(), "nobody has probed");
        assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
        tokio::time::sleep(MILLI * 101).await;
        assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    });
}

/// The runtime of the prober is still there, but nobody runs it.
#[test]
fn when_the_runtime_of_the_prober_sleeps_another_one_probes() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    let asleep = paused();
    asleep.block_on(bring_down(&store, &guard));
    store.set(Mood::Answers);
    let awake = paused();
    awake.block_on(async {
        for _ in 0..40 {
            let _ = limiter.take("k").await.unwrap();
            tokio::time::sleep(TIMEOUT).await;
        }
        assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
    });
    // The one that slept finds that it is not wanted any more.
    asleep.block_on(async { tokio::time::sleep(SECOND * 10).await });
    assert_eq!((guard.is_up(), store.probes().len()), (true, 1));
    store.set(Mood::Refuses);
    awake.block_on(async {
        bring_down(&store, &guard).await;
        tokio::time::sleep(MILLI * 900).await;
        let probes = store.probes().len();
        assert!((3..=6).contains(&probes), "{probes} probes: one prober, not two");
    });
}

/// Many threads of several runtimes, while the store goes and comes: whatever they are told is a
/// decision, and when it is over the store decides.
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
                                store.set(if fails { Mood::Refuses } else { Mood::Answers });
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
    store.set(Mood::Answers);
    paused().block_on(async {
        for _ in 0..200 {
            let _ = limiter.take("k").await.unwrap();
            tokio::time::sleep(TIMEOUT).await;
        }
        assert!(guard.is_up());
        assert_eq!(limiter.take("k").await.unwrap().degraded(), None);
    });
}
