//! R19: one pacer used from many threads and several runtimes, and runtimes that end.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::clock::{Clock as _, SystemClock, TokioClock};
use tidegate::pacer::{Acquire, Pacer};
use tidegate::{Engine, Limiter, MemoryStore, Policy};
use tokio::runtime::{Builder, Runtime};

type AcquireFuture = <Acquire as std::future::IntoFuture>::IntoFuture;

fn paced(per_second: u64) -> (Pacer, Limiter) {
    let engine = Engine::new();
    let policy = Policy::per_second(per_second).capacity(1).build().unwrap();
    (Pacer::new(&engine), engine.limiter("calls", policy).unwrap())
}

#[test]
fn threads_and_two_runtimes_share_one_queue() {
    let clock = SystemClock::new();
    let (pacer, limiter) = paced(2_000);
    let on_runtime = |runtime: Runtime, pacer: Pacer, limiter: Limiter| {
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let tasks: Vec<_> = (0..50)
                    .map(|_| {
                        let (pacer, limiter) = (pacer.clone(), limiter.clone());
                        tokio::spawn(async move {
                            pacer.acquire([limiter.charge("k", 1)]).await.map(drop)
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap().unwrap();
                }
            });
        })
    };
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut threads = vec![
        on_runtime(one, pacer.clone(), limiter.clone()),
        on_runtime(two, pacer.clone(), limiter.clone()),
    ];
    threads.extend((0..2).map(|_| {
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        std::thread::spawn(move || {
            for _ in 0..50 {
                drop(pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap());
            }
        })
    }));
    for thread in threads {
        thread.join().unwrap();
    }
    let gauges = pacer.gauges();
    assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
    let least = Duration::from_micros(500) * 199;
    assert!(clock.now().since(tidegate_core::Time::ZERO) >= least, "200 grants at 2,000 a second");
}

/// A current-thread runtime that is no longer driven must not keep others waiting.
#[test]
fn a_stalled_runtime_stalls_only_its_own_waiters() {
    let (pacer, limiter) = paced(100);
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let _first = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
    // Its waiter joins, with a driver on the idle runtime, and is never polled again.
    let mut stuck = pin!(pacer.acquire([limiter.charge("k", 1)]).into_future());
    idle.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(stuck.as_mut().poll(&mut context), Poll::Pending));
    });
    let busy = Builder::new_current_thread().enable_all().build().unwrap();
    let permit = busy.block_on(pacer.acquire([limiter.charge("k", 1)]).into_future());
    assert!(permit.is_ok());
    drop(idle);
    assert!(pacer.acquire([limiter.charge("k", 1)]).blocking().is_ok());
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A waiter that was polled once on a runtime, and is in the queue.
fn waiter_on(runtime: &Runtime, pacer: &Pacer, limiter: &Limiter) -> Pin<Box<AcquireFuture>> {
    let mut waiter = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
    runtime.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(waiter.as_mut().poll(&mut context), Poll::Pending));
    });
    waiter
}

/// Futures move and runtimes end: a waiter is driven wherever it is polled.
#[test]
fn waiters_outlive_the_runtime_they_began_on() {
    for driver_ran in [true, false] {
        let (pacer, limiter) = paced(50);
        let _first = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
        let first = runtime();
        let (one, two) = (waiter_on(&first, &pacer, &limiter), waiter_on(&first, &pacer, &limiter));
        if driver_ran {
            first.block_on(tokio::task::yield_now());
        }
        drop(first);
        runtime().block_on(async {
            let (one, two) = tokio::join!(one, two);
            assert!(one.unwrap().waited() >= Duration::from_millis(19));
            assert!(two.unwrap().waited() >= Duration::from_millis(39));
        });
    }
}

#[test]
fn a_waiter_moves_off_a_stalled_runtime() {
    let (pacer, limiter) = paced(50);
    let _first = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
    let idle = runtime();
    let waiter = waiter_on(&idle, &pacer, &limiter);
    assert!(runtime().block_on(waiter).is_ok());
    drop(idle);
}

#[test]
fn a_waiter_moves_to_a_thread_without_a_runtime() {
    let (pacer, limiter) = paced(50);
    let _first = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
    let gone = runtime();
    let waiter = waiter_on(&gone, &pacer, &limiter);
    drop(gone);
    assert!(block_on(waiter).is_ok());
}

/// A thread that blocks inside an entered runtime does not drive that runtime.
#[test]
fn blocking_works_inside_an_entered_runtime() {
    let (pacer, limiter) = paced(50);
    let runtime = runtime();
    let _entered = runtime.enter();
    let _first = pacer.acquire([limiter.charge("k", 1)]).blocking().unwrap();
    assert!(pacer.acquire([limiter.charge("k", 1)]).blocking().is_ok());
}

#[test]
fn a_thread_drives_waiters_of_a_runtime_without_timers() {
    let (pacer, limiter) = paced(50);
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        for _ in 0..3 {
            assert!(pacer.acquire([limiter.charge("k", 1)]).await.is_ok());
        }
    });
}

/// Timers fire in whole milliseconds; a waiter that was due in time is granted nevertheless.
#[tokio::test(start_paused = true)]
async fn a_deadline_that_can_just_be_met_is_met_by_late_timers() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let policy = Policy::per_second(3).capacity(1).build().unwrap();
    let limiter = engine.limiter("calls", policy).unwrap();
    let pacer = Pacer::new(&engine);
    let due = Duration::from_nanos(333_333_334);
    for _ in 0..10 {
        drop(pacer.acquire([limiter.charge("k", 1)]).await.unwrap());
        let permit = pacer.acquire([limiter.charge("k", 1)]).max_wait(due).await.unwrap();
        assert!(permit.waited() >= due && permit.waited() <= due + Duration::from_millis(5));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
