//! Wakers run anything: they must be called and dropped with no lock held.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tidegate::pacer::{Acquire, Pacer, Permit, Priority};
use tidegate::{Change, Limiter, Policy};

use super::hand::{Hand, Waiter};

type Waiting = <Acquire as std::future::IntoFuture>::IntoFuture;

/// Runs something that may deadlock on a thread of its own, and says whether it came to its end.
fn ends(run: impl FnOnce() + Send + 'static) -> bool {
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    end.recv_timeout(Duration::from_secs(20)).is_ok()
}

fn poll(waiting: &mut Pin<Box<Waiting>>, waker: &Waker) {
    assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
}

/// A waker that asks the pacer something when it is woken, and when it is dropped.
struct Curious(Pacer);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        let _ = self.0.gauges();
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        let _ = self.0.gauges();
    }
}

#[test]
fn wakers_are_dropped_with_no_lock_held() {
    for replaced in [true, false] {
        assert!(ends(move || {
            let hand = Hand::new();
            let (pacer, limiter) = (hand.pacer(), hand.per_second("calls", 1, 1));
            let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
            let mut waiting = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
            let curious = Waker::from(Arc::new(Curious(pacer.clone())));
            poll(&mut waiting, &curious);
            drop(curious);
            if replaced {
                poll(&mut waiting, Waker::noop());
            }
        }));
    }
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_asleep() {
    let hand = Hand::new();
    let pacer = hand.builder().concurrency(1).build();
    let limiter = hand.per_second("calls", 100, 100);
    let _held = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut bomb = Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
    poll(&mut bomb, &Waker::from(Arc::new(Bomb)));
    let other = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    let grown = catch_unwind(AssertUnwindSafe(|| pacer.set_concurrency(Some(5))));
    assert!(grown.is_err(), "the panic is told");
    assert_eq!(other.wakes(), 1);
}

/// A waker that ends a permit of another pacer and a wait of its own one, and changes the policy.
struct Busy(Mutex<Vec<Permit>>, Mutex<Vec<Waiter>>, Limiter);

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().clear();
        self.1.lock().unwrap().clear();
        let policy = Policy::per_second(7).capacity(100).build().unwrap();
        self.2.reconfigure(policy, Change::KeepTokens).unwrap();
    }
}

#[test]
fn a_waker_may_do_anything_to_pacers() {
    assert!(ends(|| {
        let hand = Hand::new();
        let (one, two) =
            (hand.builder().concurrency(1).build(), hand.builder().concurrency(1).build());
        let limiter = hand.per_second("calls", 5, 100);
        let of_one = one.acquire([limiter.charge("k", 1)]).now().unwrap();
        let of_two = two.acquire([limiter.charge("k", 1)]).now().unwrap();
        let mut waiting = Box::pin(one.acquire([limiter.charge("k", 1)]).into_future());
        let low = one.acquire([limiter.charge("k", 1)]).priority(Priority::Low);
        let low = Waiter::join(low).unwrap();
        let of_other = Waiter::join(two.acquire([limiter.charge("k", 1)])).unwrap();
        let busy = Busy(Mutex::new(vec![of_two]), Mutex::new(vec![low]), limiter.clone());
        poll(&mut waiting, &Waker::from(Arc::new(busy)));
        drop(of_one);
        assert_eq!(of_other.wakes(), 1);
    }));
}
