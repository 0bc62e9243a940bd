//! Waiting on a store that takes its time to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
}

impl Store for Distant {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            self.asked.fetch_add(operations.len(), Ordering::SeqCst);
            tokio::time::sleep(ROUND_TRIP / 2).await;
            if self.down.load(Ordering::SeqCst) {
                answers.extend(operations.iter().map(|_| Err(StoreError::TimedOut)));
            } else {
                self.store.submit(operations, answers).await;
            }
            tokio::time::sleep(ROUND_TRIP / 2).await;
        }))
    }
}

fn distant(policy: Policy) -> (Arc<Distant>, Pacer, Limiter<dyn Store>) {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let (asked, down) = (AtomicUsize::new(0), AtomicBool::new(false));
    let distant = Arc::new(Distant { store, asked, down });
    let engine: Engine<dyn Store> = Engine::on(distant.clone());
    (distant, Pacer::new(&engine), engine.limiter("calls", policy).unwrap())
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
