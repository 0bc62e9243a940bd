//! Counts the arrivals and grants of a crowd, and measures the time to the last grant.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, ensure};
use pin_project_lite::pin_project;
use tokio::sync::Notify;

use crate::stopwatch::Stopwatch;

/// State shared by the waiters and the task that opens the limiter.
#[derive(Debug)]
pub(super) struct Waiters {
    expected: usize,
    arrived: AtomicUsize,
    granted: AtomicUsize,
    refused: AtomicUsize,
    stopwatch: Stopwatch,
    /// Time of the last grant, in nanoseconds.
    last: AtomicU64,
    all_arrived: Notify,
    all_answered: Notify,
}

impl Waiters {
    pub(super) fn new(expected: usize) -> Arc<Self> {
        Arc::new(Self {
            expected,
            arrived: AtomicUsize::new(0),
            granted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            stopwatch: Stopwatch::start(),
            last: AtomicU64::new(0),
            all_arrived: Notify::new(),
            all_answered: Notify::new(),
        })
    }

    /// Starts the expected number of tasks, and waits until each was polled once.
    pub(super) async fn fill<F>(self: &Arc<Self>, acquire: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output: Answer> + Send + 'static,
    {
        for _ in 0..self.expected {
            tokio::spawn(Waiter {
                acquire: acquire(),
                waiters_state: self.clone(),
                arrived: false,
            });
        }
        self.all_arrived.notified().await;
        ensure!(self.answered() == 0, "some tasks did not wait; results would not be comparable");
        Ok(())
    }

    /// Opens the limiter, and measures from just before that to the last grant.
    pub(super) async fn drain(&self, open: impl FnOnce()) -> Result<Duration> {
        let opened = self.nanos();
        open();
        self.drain_since(opened).await
    }

    /// Measures from the opening to the last grant.
    pub(super) async fn drain_since(&self, opened: u64) -> Result<Duration> {
        self.all_answered.notified().await;
        let refused = self.refused.load(Ordering::Acquire);
        ensure!(refused == 0, "{refused} of the crowd were refused");
        Ok(Duration::from_nanos(self.last.load(Ordering::Acquire).saturating_sub(opened)))
    }

    /// The current time in nanoseconds.
    pub(super) fn nanos(&self) -> u64 {
        self.stopwatch.nanos()
    }

    fn answered(&self) -> usize {
        self.granted.load(Ordering::Acquire) + self.refused.load(Ordering::Acquire)
    }

    fn arrive(&self) {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.expected {
            self.all_arrived.notify_one();
        }
    }

    fn answer(&self, granted: bool) {
        if granted {
            // Only the last waiter reads the clock, so that it does not slow down the others.
            if self.granted.fetch_add(1, Ordering::AcqRel) + 1 == self.expected {
                self.last.store(self.nanos(), Ordering::Release);
            }
        } else {
            self.refused.fetch_add(1, Ordering::AcqRel);
        }
        if self.answered() == self.expected {
            self.all_answered.notify_one();
        }
    }
}

/// The result of a contender's wait.
pub(super) trait Answer {
    fn is_grant(&self) -> bool;
}

impl Answer for () {
    fn is_grant(&self) -> bool {
        true
    }
}

impl<T, E> Answer for Result<T, E> {
    fn is_grant(&self) -> bool {
        self.is_ok()
    }
}

pin_project! {
    /// One waiter. A hand-written future, because an async block would store the awaited future
    /// twice and double the measured memory.
    struct Waiter<F> {
        #[pin]
        acquire: F,
        waiters_state: Arc<Waiters>,
        arrived: bool,
    }
}

impl<F: Future<Output: Answer>> Future for Waiter<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let polled = this.acquire.poll(context);
        if let Poll::Ready(answer) = &polled {
            this.waiters_state.answer(answer.is_grant());
        }
        if !*this.arrived {
            *this.arrived = true;
            this.waiters_state.arrive();
        }
        // A permit is dropped here, as soon as it is granted.
        polled.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::runtime::Builder;
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn a_crowd_is_drained_to_the_last() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (waiters_state, semaphore) = (Waiters::new(100), Arc::new(Semaphore::new(0)));
            waiters_state.fill(|| semaphore.clone().acquire_owned()).await.unwrap();
            assert_eq!(waiters_state.answered(), 0);
            waiters_state.drain(|| semaphore.add_permits(1)).await.unwrap();
            assert_eq!(waiters_state.answered(), 100);
        });
    }

    #[test]
    fn a_crowd_that_does_not_wait_is_not_measured() {
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(Waiters::new(10).fill(|| ready(()))).is_err());
    }

    #[test]
    fn a_crowd_that_is_refused_is_not_measured() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (waiters_state, semaphore) = (Waiters::new(10), Arc::new(Semaphore::new(0)));
            waiters_state.fill(|| semaphore.clone().acquire_owned()).await.unwrap();
            assert!(waiters_state.drain(|| semaphore.close()).await.is_err());
        });
    }
}
