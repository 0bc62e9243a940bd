//! The future of an acquire, and its position in the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::acquire::{Acquire, never_fits, not_driven};
use super::driver::driver_slot::{DriverSlot, Executor};
use super::driver::leases::StoreGrant;
use super::error::AcquireError;
use super::inner::{PacerInner, State};
use super::permit::{GrantDetails, OnDrop, Permit};
use super::scheduler::slab::Id;
use super::scheduler::waiter::{Granted, Polled, WaitError};

/// The future of an [`Acquire`]. Dropping it at any point gives back exactly what it held.
#[must_use = "nothing happens until the future is awaited"]
pub struct AcquireFuture {
    /// Set until the first poll.
    request: Option<Acquire>,
    /// Set while in the queue.
    queued: Option<QueuedWaiter>,
    /// Where it is driven, if not where it is polled.
    executor: Option<Executor>,
}

/// A waiter in the queue.
pub(super) struct QueuedWaiter {
    pub(super) inner: Arc<PacerInner>,
    pub(super) id: Id,
    pub(super) driver_slot: DriverSlot,
    pub(super) on_drop: OnDrop,
    pub(super) max_wait: Option<Duration>,
}

impl QueuedWaiter {
    /// The result of the wait; `None` while it waits, and then `waker` is stored.
    pub(super) fn poll_waiter(
        &mut self,
        state: &mut State,
        waker: &Waker,
        executor: Executor,
    ) -> Option<Result<GrantDetails, AcquireError>> {
        let (pending, mut done) = match state.scheduler.poll(self.id, waker)? {
            Polled::Waiting => return None,
            Polled::Granted(pending, granted) => (pending, Ok(granted)),
            Polled::Failed(pending, error) => (pending, Err(error)),
        };
        if let Ok(Granted { grant: StoreGrant { lease: Some(lease), .. }, .. }) = &mut done {
            // The driver that it waited with continues for its leases.
            lease.driver_slot = std::mem::take(&mut self.driver_slot);
            state.drivers.ensure_lease_driver(&mut lease.driver_slot, executor, &self.inner);
        }
        state.drivers.waiter_left(&mut self.driver_slot);
        state.buckets.release(&pending);
        Some(match done {
            Ok(Granted { grant: store_grant, waited, parts }) => {
                let (on_drop, call_start) = (self.on_drop, state.call_started());
                Ok(GrantDetails { pending, store_grant, waited, parts, on_drop, call_start })
            }
            Err(WaitError::TimedOut) => {
                Err(AcquireError::TimedOut(self.max_wait.unwrap_or_default()))
            }
            #[cfg(feature = "tokio")]
            Err(WaitError::TooLong(projected)) => {
                let max_wait = self.max_wait.unwrap_or_default();
                Err(AcquireError::TooLong { projected, max_wait })
            }
            Err(WaitError::QueueFull(waiting)) => Err(AcquireError::QueueFull(waiting)),
            Err(WaitError::NeverFits(index)) => Err(never_fits(&pending.claims[index])),
            Err(WaitError::Store(error)) => Err(error.into()),
        })
    }

    pub(super) fn leave(mut self) {
        self.inner.lock().drivers.waiter_left(&mut self.driver_slot);
        self.inner.leave(self.id);
    }
}

impl Future for AcquireFuture {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.request.is_some() {
            return self.start(context.waker());
        }
        let executor = self.executor.unwrap_or_else(Executor::current);
        let Some(queued) = &mut self.queued else { return Poll::Pending };
        let inner = queued.inner.clone();
        let mut state = inner.lock();
        let done = queued.poll_waiter(&mut state, context.waker(), executor);
        // The future may have moved, or the runtime of its driver may have ended.
        let driven = done.is_some()
            || state.drivers.ensure_driver(&mut queued.driver_slot, executor, &inner);
        let wakes = state.scheduler.take_wakes();
        drop(state);
        drop(wakes);
        match done {
            Some(done) => {
                self.queued = None;
                Poll::Ready(done.map(|details| Permit::new(inner, details)))
            }
            None if driven => Poll::Pending,
            None => {
                self.leave();
                Poll::Ready(Err(not_driven(&inner)))
            }
        }
    }
}

impl AcquireFuture {
    pub(super) fn new(request: Acquire) -> Self {
        Self { request: Some(request), queued: None, executor: None }
    }

    /// Uses a driver thread, wherever it is polled.
    pub(super) fn on_thread(mut self) -> Self {
        self.executor = Some(Executor::Thread);
        self
    }

    /// Runs the first poll.
    pub(super) fn start(&mut self, waker: &Waker) -> Poll<Result<Permit, AcquireError>> {
        let Some(request) = self.request.take() else { return Poll::Pending };
        let executor = self.executor.unwrap_or_else(Executor::current);
        request.start(waker, executor, &mut self.queued)
    }

    /// Leaves the queue, if it is in it.
    fn leave(&mut self) {
        if let Some(queued) = self.queued.take() {
            queued.leave();
        }
    }
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture")
            .field("queued", &self.queued.is_some())
            .finish_non_exhaustive()
    }
}
