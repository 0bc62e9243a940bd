//! A manually driven pacer on a manual clock, and waiters whose wake-ups are counted.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::clock::{Clock, ManualClock};
use tidegate::pacer::{Acquire, AcquireError, Pacer, PacerBuilder, Permit};
use tidegate::{Engine, Limiter, MemoryStore, Policy};
use tidegate_core::{Time, WallTime};

type AcquireFuture = <Acquire as std::future::IntoFuture>::IntoFuture;

/// A manual clock that notifies nobody, as the machine's does not.
#[derive(Clone, Debug, Default)]
pub(super) struct SilentClock(pub(super) ManualClock);

impl Clock for SilentClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wall(&self) -> WallTime {
        self.0.wall()
    }
}

/// An engine on a manual clock.
pub(super) struct ManualEngine {
    pub(super) clock: ManualClock,
    pub(super) engine: Engine,
}

impl ManualEngine {
    pub(super) fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        Self { clock, engine: Engine::on(Arc::new(store)) }
    }

    pub(super) fn pacer(&self) -> Pacer {
        self.builder().build()
    }

    pub(super) fn builder(&self) -> PacerBuilder {
        Pacer::builder(&self.engine).manual()
    }

    /// A limiter with this many tokens per second.
    pub(super) fn per_second(&self, name: &str, tokens: u64, capacity: u64) -> Limiter {
        let policy = Policy::per_second(tokens).capacity(capacity).build().unwrap();
        self.engine.limiter(name, policy).unwrap()
    }

    /// Advances time, from one event to the next, until `span` has passed.
    pub(super) fn run(&self, pacer: &Pacer, span: Duration) {
        let mut left = span;
        loop {
            let due = pacer.poll().unwrap_or(left).min(left);
            if due.is_zero() && left.is_zero() {
                return;
            }
            self.clock.advance(due);
            left -= due;
            if left.is_zero() {
                pacer.poll();
                return;
            }
        }
    }
}

/// Counts wake-ups.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waiter that is polled only on request.
pub(super) struct Waiter {
    future: Pin<Box<AcquireFuture>>,
    wakes: Arc<Wakes>,
}

impl Waiter {
    /// Joins the queue; the error is an immediate result.
    #[expect(clippy::result_large_err, reason = "a permit is large")]
    pub(super) fn join(acquire: Acquire) -> Result<Self, Result<Permit, AcquireError>> {
        let mut waiter =
            Self { future: Box::pin(acquire.into_future()), wakes: Arc::new(Wakes::default()) };
        match waiter.poll() {
            None => Ok(waiter),
            Some(done) => Err(done),
        }
    }

    /// The result of the wait; `None` while it waits.
    pub(super) fn poll(&mut self) -> Option<Result<Permit, AcquireError>> {
        let waker = Waker::from(self.wakes.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// Number of wake-ups.
    pub(super) fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }
}

/// A deterministic generator of pseudo-random numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(7_919).wrapping_add(88_172_645_463_325_252))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % 1_000_000_007).unwrap() % bound
    }
}
