//! Random schedules of threads that join, poll, leave, finish and renew, run by shuttle: nothing is
//! lost, no waiter is forgotten, and none is woken twice.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::acquire_future::AcquireFuture;
use super::{Pacer, Permit};
use crate::clock::ManualClock;
use crate::{Engine, Limiter, MemoryStore, Policy};

const SCHEDULES: usize = 1_000;
const THREADS: usize = 3;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn setup(capacity: u64, concurrency: u64) -> (Pacer, Limiter, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let policy = Policy::per_second(1).capacity(capacity).build().unwrap();
    let limiter = engine.limiter("calls", policy).unwrap();
    (Pacer::builder(&engine).manual().concurrency(concurrency).build(), limiter, clock)
}

fn poll(future: &mut Pin<Box<AcquireFuture>>, waker: &Waker) -> Option<Permit> {
    match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(done) => Some(done.unwrap()),
        Poll::Pending => None,
    }
}

/// Time stands still: in whatever order threads join, poll and leave, every token comes back.
#[test]
fn leaving_at_any_point_conserves_tokens_and_slots() {
    shuttle::check_random(
        || {
            let (pacer, limiter, _clock) = setup(5, 2);
            let workers: Vec<_> = (0..THREADS)
                .map(|worker| {
                    let (pacer, limiter) = (pacer.clone(), limiter.clone());
                    thread::spawn(move || {
                        for _ in 0..3 {
                            let claim = limiter.charge("k", 1 + worker as u64);
                            let acquire = pacer.acquire([claim]).refund_on_drop(true);
                            let mut future = Box::pin(acquire.into_future());
                            let mut permit = poll(&mut future, Waker::noop());
                            if permit.is_none() && thread_rng().gen_bool(0.5) {
                                permit = poll(&mut future, Waker::noop());
                            }
                            drop(future);
                            drop(permit);
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            let gauges = pacer.gauges();
            assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
            assert_eq!(limiter.peek("k").cost(0).now().unwrap().remaining(), 5);
        },
        SCHEDULES,
    );
}

/// One slot is passed from permit to permit: each waiter is woken exactly once and granted.
#[test]
fn every_waiter_is_woken_once_and_none_is_forgotten() {
    shuttle::check_random(
        || {
            let (pacer, limiter, clock) = setup(100, 1);
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (pacer, limiter, clock) = (pacer.clone(), limiter.clone(), clock.clone());
                    thread::spawn(move || {
                        let wakes = Arc::new(Wakes::default());
                        let waker = Waker::from(wakes.clone());
                        let mut future =
                            Box::pin(pacer.acquire([limiter.charge("k", 1)]).into_future());
                        let mut permit = poll(&mut future, &waker);
                        let waited = permit.is_none();
                        while permit.is_none() {
                            thread::yield_now();
                            // Polled only when woken, as a task would be.
                            if wakes.0.load(Ordering::SeqCst) > 0 {
                                permit = poll(&mut future, &waker);
                                assert!(permit.is_some(), "woken without a grant");
                            }
                        }
                        clock.advance(Duration::from_nanos(1));
                        drop(permit);
                        assert_eq!(wakes.0.load(Ordering::SeqCst), usize::from(waited));
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(pacer.gauges().in_flight, 0);
        },
        SCHEDULES,
    );
}

/// Leases are renewed while permits are granted, abandoned and ended: no slot is lost, and none
/// remains.
#[test]
fn renewing_loses_no_slot_and_keeps_none() {
    shuttle::check_random(
        || {
            let lease = Duration::from_secs(3);
            let (pacer, rate, clock) = setup(100, 100);
            let slots = Policy::concurrency(2, Some(lease)).unwrap();
            let slots = rate.engine().limiter("slots", slots).unwrap();
            let out = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (pacer, slots, out) = (pacer.clone(), slots.clone(), out.clone());
                    thread::spawn(move || {
                        for _ in 0..3 {
                            let acquire = pacer.acquire([slots.charge("k", 1)]);
                            let mut future = Box::pin(acquire.into_future());
                            if let Some(permit) = poll(&mut future, Waker::noop()) {
                                assert!(out.fetch_add(1, Ordering::SeqCst) < 2);
                                thread::yield_now();
                                assert!(!permit.has_lost_slots());
                                out.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..4 {
                clock.advance(lease / 3);
                pacer.poll();
            }
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!((pacer.gauges().lost, pacer.gauges().in_flight), (0, 0));
            assert_eq!(rate.engine().store().local().unwrap().stats().leases, 0);
            assert_eq!(pacer.poll(), None);
        },
        SCHEDULES,
    );
}
