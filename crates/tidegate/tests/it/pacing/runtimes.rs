//! R19: one pacer from many threads and several runtimes, and runtimes that go away.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::pacer::Pacer;
use tidegate::{Engine, Limiter, Policy};

fn paced(per_second: u64) -> (Pacer, Limiter) {
    let engine = Engine::new();
    let policy = Policy::per_second(per_second).capacity(1).build().unwrap();
    (Pacer::new(&engine), engine.limiter("calls", policy).unwrap())
}

#[test]
fn threads_and_two_runtimes_share_one_queue() {
    let (pacer, limiter) = paced(2_000);
    let on_runtime = |runtime: tokio::runtime::Runtime, pacer: Pacer, limiter: Limiter| {
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let tasks: Vec<_> = (0..50)
                    .map(|_| {
                        let (pacer, limiter) = (pacer.clone(), limiter.clone());
                        tokio::spawn(async move {
                            pacer.acquire([limiter.claim("k", 1)]).await.map(drop)
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap().unwrap();
                }
            });
        })
    };
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let two =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut threads = vec![
        on_runtime(one, pacer.clone(), limiter.clone()),
        on_runtime(two, pacer.clone(), limiter.clone()),
    ];
    threads.extend((0..2).map(|_| {
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        std::thread::spawn(move || {
            for _ in 0..50 {
                drop(pacer.acquire([limiter.claim("k", 1)]).wait().unwrap());
            }
        })
    }));
    for thread in threads {
        thread.join().unwrap();
    }
    let gauges = pacer.gauges();
    assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
}

/// A current-thread runtime that nobody runs any more must not keep others waiting.
#[test]
fn a_runtime_that_stands_still_stalls_nobody_else() {
    let (pacer, limiter) = paced(100);
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _first = pacer.acquire([limiter.claim("k", 1)]).wait().unwrap();
    // Its waiter joins, with a driver on the idle runtime, and is never polled again.
    let mut stuck = pin!(pacer.acquire([limiter.claim("k", 1)]).into_future());
    idle.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(stuck.as_mut().poll(&mut context), Poll::Pending));
    });
    let busy = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let permit = busy.block_on(pacer.acquire([limiter.claim("k", 1)]).into_future());
    assert!(permit.is_ok());
    drop(idle);
    assert!(pacer.acquire([limiter.claim("k", 1)]).wait().is_ok());
}

/// A waiter that moves to another runtime after the first was shut down is driven there.
#[test]
fn a_waiter_outlives_the_runtime_it_began_on() {
    let (pacer, limiter) = paced(50);
    let _first = pacer.acquire([limiter.claim("k", 1)]).wait().unwrap();
    let mut waiter = Box::pin(pacer.acquire([limiter.claim("k", 1)]).into_future());
    let first = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    first.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(waiter.as_mut().poll(&mut context), Poll::Pending));
        tokio::task::yield_now().await;
    });
    drop(first);
    let second = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let permit = second.block_on(waiter).unwrap();
    assert!(permit.waited() >= Duration::from_millis(19));
}
