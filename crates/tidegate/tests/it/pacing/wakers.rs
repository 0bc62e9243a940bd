//! Wakers may run any code: they must be called and dropped with no lock held.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tidegate::pacer::{Acquire, Pacer, Permit, Priority};
use tidegate::{Limiter, Policy, PolicyChange};

use super::manual::{ManualEngine, Waiter};

type AcquireFuture = <Acquire as std::future::IntoFuture>::IntoFuture;

/// Runs code that may deadlock on its own thread, and returns whether it ended.
fn completes(run: impl FnOnce() + Send + 'static) -> bool {
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    end.recv_timeout(Duration::from_secs(20)).is_ok()
}

fn poll(future: &mut Pin<Box<AcquireFuture>>, waker: &Waker) {
    assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
}

/// A waker that calls the pacer when it is woken, and when it is dropped.
struct ReentrantWaker(Pacer);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.gauges();
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        let _ = self.0.gauges();
    }
}

#[test]
fn wakers_are_dropped_with_no_lock_held() {
    for replaced in [true, false] {
        assert!(completes(move || {
            let manual = ManualEngine::new();
            let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
            let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
            let mut future = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
            let reentrant = Waker::from(Arc::new(ReentrantWaker(pacer.clone())));
            poll(&mut future, &reentrant);
            drop(reentrant);
            if replaced {
                poll(&mut future, Waker::noop());
            }
        }));
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}

#[test]
fn a_panicking_waker_does_not_keep_others_asleep() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(1).build();
    let limiter = manual.per_second("calls", 100, 100);
    let _held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut panicking = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
    poll(&mut panicking, &Waker::from(Arc::new(PanickingWaker)));
    let other = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    let grown = catch_unwind(AssertUnwindSafe(|| pacer.set_concurrency(Some(5))));
    assert!(grown.is_err(), "the panic is propagated");
    assert_eq!(other.wakes(), 1);
}

/// A waker that ends a permit of another pacer and a wait of its own, and changes the policy.
struct MutatingWaker(Mutex<Vec<Permit>>, Mutex<Vec<Waiter>>, Limiter);

impl Wake for MutatingWaker {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().clear();
        self.1.lock().unwrap().clear();
        let policy = Policy::per_second(7).capacity(100).build().unwrap();
        self.2.reconfigure(policy, PolicyChange::KeepTokens).unwrap();
    }
}

#[test]
fn a_waker_may_use_pacers_and_limiters() {
    assert!(completes(|| {
        let manual = ManualEngine::new();
        let (one, two) =
            (manual.builder().concurrency(1).build(), manual.builder().concurrency(1).build());
        let limiter = manual.per_second("calls", 5, 100);
        let of_one = one.acquire([limiter.charge("k", 1)]).now().unwrap();
        let of_two = two.acquire([limiter.charge("k", 1)]).now().unwrap();
        let mut future = Box::pin(one.acquire([limiter.charge("k", 1)]).into_future());
        let low = one.acquire([limiter.charge("k", 1)]).priority(Priority::Low);
        let low = Waiter::join(low).unwrap();
        let of_other = Waiter::join(two.acquire([limiter.charge("k", 1)])).unwrap();
        let mutating =
            MutatingWaker(Mutex::new(vec![of_two]), Mutex::new(vec![low]), limiter.clone());
        poll(&mut future, &Waker::from(Arc::new(mutating)));
        drop(of_one);
        assert_eq!(of_other.wakes(), 1);
    }));
}
