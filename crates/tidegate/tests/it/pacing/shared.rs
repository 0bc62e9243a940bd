//! Waiting on a store that takes its time to answer.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::{AcquireError, OnDrop, Pacer, SettleError};
use tidegate::{
    Answers, Engine, Limiter, MemoryStore, Operation, Policy, Store, StoreError, Submission,
};

const SECOND: Duration = Duration::from_secs(1);
/// How long a question and its answer take.
const ROUND_TRIP: Duration = Duration::from_millis(4);

/// A store at the other end of a wire: it decides exactly, but not at once.
#[derive(Debug)]
struct Distant {
    store: MemoryStore,
    asked: AtomicUsize,
    down: AtomicBool,
    /// Every so manieth question fails; zero: none.
    fails: AtomicUsize,
    /// Half of the time that a question and its answer take, in microseconds.
    half_us: AtomicU64,
}

impl Store for Distant {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            let number = self.asked.fetch_add(operations.len(), Ordering::SeqCst);
            let half = Duration::from_micros(self.half_us.load(Ordering::SeqCst));
            tokio::time::sleep(half).await;
            let fails = self.fails.load(Ordering::SeqCst);
            let reserve = matches!(operations, [Operation::Reserve { .. }]);
            let unlucky = fails > 0 && reserve && number % fails == 0;
            if unlucky || self.down.load(Ordering::SeqCst) {
                answers.extend(operations.iter().map(|_| Err(StoreError::TimedOut)));
            } else {
                self.store.submit(operations, answers).await;
            }
            tokio::time::sleep(half).await;
        }))
    }
}

fn distant(policy: Policy) -> (Arc<Distant>, Pacer, Limiter<dyn Store>) {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let half_us = u64::try_from(ROUND_TRIP.as_micros() / 2).unwrap().into();
    let (asked, down, fails) = (0.into(), false.into(), 0.into());
    let distant = Arc::new(Distant { store, asked, down, fails, half_us });
    let engine: Engine<dyn Store> = Engine::on(distant.clone());
    let pacer = Pacer::builder(&engine).concurrency(4).build();
    (distant, pacer, engine.limiter("calls", policy).unwrap())
}

fn per_second(tokens: u64, capacity: u64) -> Policy {
    Policy::per_second(tokens).capacity(capacity).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiters_are_granted_in_order_and_only_the_head_asks() {
    let (distant, pacer, limiter) = distant(per_second(1, 1));
    let start = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..50_u64)
        .map(|number| {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            tokio::spawn(async move {
                let permit = pacer.acquire([limiter.claim("k", 1)]).await.unwrap();
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
    let asked = distant.asked.load(Ordering::SeqCst);
    assert!(asked <= 2 * 50 + 2, "{asked} questions for 50 grants");
    assert_eq!(pacer.gauges().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_one_who_left_is_given_back() {
    let (distant, pacer, limiter) = distant(per_second(1, 10));
    drop(pacer.acquire([limiter.claim("k", 10)]).await.unwrap());
    let left = tokio::spawn({
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        async move { pacer.acquire([limiter.claim("k", 10)]).await.map(drop) }
    });
    // The head is reserved within the last quarter of a second; it leaves right after that.
    tokio::time::sleep(SECOND * 9 + Duration::from_millis(900)).await;
    assert!(limiter.peek("k").cost(0).await.unwrap().remaining() == 0, "it is reserved");
    left.abort();
    tokio::time::sleep(SECOND).await;
    assert!(distant.store.stats().keys <= 1);
    assert!(limiter.peek("k").cost(10).await.unwrap().is_allowed(), "all ten are there again");
    assert_eq!((pacer.gauges().waiting, pacer.gauges().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_refused_at_the_head() {
    let (_distant, pacer, limiter) = distant(per_second(1, 10));
    drop(pacer.acquire([limiter.claim("k", 10)]).await.unwrap());
    let begin = tokio::time::Instant::now();
    let refused = pacer.acquire([limiter.claim("k", 10)]).max_wait(SECOND * 3).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TooLong { projected, .. } if projected > SECOND * 9));
    assert!(begin.elapsed() < SECOND, "without waiting for the deadline");
    assert!(pacer.acquire([limiter.claim("k", 3)]).max_wait(SECOND * 4).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn permits_settle_and_refund_through_the_store() {
    let (_distant, pacer, limiter) = distant(per_second(1, 10));
    let mut permit = pacer.acquire([limiter.claim("k", 8)]).await.unwrap();
    assert!(matches!(permit.settle(&[2]).now(), Err(SettleError::Shared)));
    permit.settle(&[2]).await.unwrap();
    drop(permit);
    assert_eq!(limiter.peek("k").cost(0).await.unwrap().remaining(), 8);
    drop(pacer.acquire([limiter.claim("k", 8)]).on_drop(OnDrop::Refund).await.unwrap());
    tokio::time::sleep(ROUND_TRIP * 2).await;
    assert_eq!(limiter.peek("k").cost(0).await.unwrap().remaining(), 8);
    let refused = pacer.acquire([limiter.claim("k", 1)]).now().unwrap_err();
    assert!(matches!(refused, AcquireError::NotAtOnce));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_an_error_for_the_head_and_not_the_end() {
    let (distant, pacer, limiter) = distant(per_second(1, 1));
    distant.down.store(true, Ordering::SeqCst);
    let refused = pacer.acquire([limiter.claim("k", 1)]).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Store(StoreError::TimedOut)));
    distant.down.store(false, Ordering::SeqCst);
    assert!(pacer.acquire([limiter.claim("k", 1)]).await.is_ok());
}

#[test]
fn outside_of_a_runtime_there_is_nobody_to_ask() {
    let engine: Engine<dyn Store> = Engine::on(Arc::new(MemoryStore::new()));
    let limiter = engine.limiter("calls", per_second(1, 1)).unwrap();
    let refused = Pacer::new(&engine).acquire([limiter.claim("k", 1)]).wait().unwrap_err();
    assert!(matches!(refused, AcquireError::NoRuntime));
}

/// Deadlines are kept while the store takes its time, and while the head waits out a reservation.
#[tokio::test(start_paused = true)]
async fn deadlines_are_kept_while_the_store_is_asked() {
    let (distant, pacer, limiter) = distant(per_second(4, 1));
    drop(pacer.acquire([limiter.claim("k", 1)]).await.unwrap());
    let head = tokio::spawn({
        let (pacer, limiter) = (pacer.clone(), limiter.clone());
        async move { pacer.acquire([limiter.claim("k", 1)]).await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let begin = tokio::time::Instant::now();
    let short = Duration::from_millis(20);
    let refused = pacer.acquire([limiter.claim("k", 1)]).max_wait(short).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut(_)), "{refused:?}");
    assert!(begin.elapsed() < short * 2);
    head.await.unwrap().unwrap();

    distant.half_us.store(60_000_000, Ordering::SeqCst);
    let begin = tokio::time::Instant::now();
    let refused = pacer.acquire([limiter.claim("k", 1)]).max_wait(short).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut(_)), "{refused:?}");
    assert!(begin.elapsed() < short * 2);
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!(distant.store.stats().keys, 0, "what was reserved in vain is given back");
}

/// Several runtimes ask a store that fails every now and then: grants and refusals of one waiter
/// must not overwrite each other.
#[test]
fn several_runtimes_share_a_store_that_fails() {
    let (distant, pacer, limiter) = distant(per_second(1_000_000, 1_000_000));
    distant.half_us.store(0, Ordering::SeqCst);
    distant.fails.store(3, Ordering::SeqCst);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            std::thread::spawn(move || {
                let builder = &mut tokio::runtime::Builder::new_multi_thread();
                let runtime = builder.worker_threads(2).enable_all().build().unwrap();
                let tasks: Vec<_> = (0..4)
                    .map(|_| {
                        let (pacer, limiter) = (pacer.clone(), limiter.clone());
                        runtime.spawn(async move {
                            for _ in 0..40 {
                                let _ = pacer.acquire([limiter.claim("k", 1)]).await.map(drop);
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

/// A waiter that is polled outside of a runtime is told so, and keeps nobody else waiting.
#[test]
fn a_waiter_polled_outside_of_a_runtime_is_refused() {
    let (_distant, pacer, limiter) = distant(per_second(10, 1));
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { drop(pacer.acquire([limiter.claim("k", 1)]).await.unwrap()) });
    let mut moved = Box::pin(pacer.acquire([limiter.claim("k", 1)]).into_future());
    let mut context = Context::from_waker(Waker::noop());
    let entered = runtime.enter();
    assert!(moved.as_mut().poll(&mut context).is_pending());
    drop(entered);
    let outside = moved.as_mut().poll(&mut context);
    assert!(matches!(outside, Poll::Ready(Err(AcquireError::NoRuntime))));
    let next = runtime.block_on(pacer.acquire([limiter.claim("k", 1)]).into_future());
    assert!(next.is_ok());
}
