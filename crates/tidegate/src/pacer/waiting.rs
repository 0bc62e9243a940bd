//! The future of an acquire, and its position in the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::acquire::{Acquire, never_fits, not_driven};
use super::driver::driver_slot::{Place, Post};
use super::driver::leases::Holding;
use super::error::AcquireError;
use super::permit::{Grounds, OnDrop, Permit};
use super::scheduler::slab::Id;
use super::scheduler::waiter::{Granted, Polled, Refused};
use super::scope::{Scope, State};

/// The future of an [`Acquire`]. Dropping it at any point gives back exactly what it held.
#[must_use = "nothing happens until the future is awaited"]
pub struct Waiting {
    /// Set until the first poll.
    request: Option<Acquire>,
    /// Set while in the queue.
    queued: Option<Queued>,
    /// Where it is driven, if not where it is polled.
    place: Option<Place>,
}

/// A waiter in the queue.
pub(super) struct Queued {
    pub(super) scope: Arc<Scope>,
    pub(super) id: Id,
    pub(super) post: Post,
    pub(super) on_drop: OnDrop,
    pub(super) max_wait: Option<Duration>,
}

impl Queued {
    /// The result of the wait; `None` while it waits, and then `waker` is stored.
    pub(super) fn ask(
        &mut self,
        state: &mut State,
        waker: &Waker,
        place: Place,
    ) -> Option<Result<Grounds, AcquireError>> {
        let (ticket, mut done) = match state.scheduler.poll(self.id, waker)? {
            Polled::Waiting => return None,
            Polled::Granted(ticket, granted) => (ticket, Ok(granted)),
            Polled::Refused(ticket, refused) => (ticket, Err(refused)),
        };
        if let Ok(Granted { grant: Holding { lease: Some(lease), .. }, .. }) = &mut done {
            // The driver that it waited with continues for its leases.
            lease.post = std::mem::take(&mut self.post);
            state.drivers.attend_leases(&mut lease.post, place, &self.scope);
        }
        state.drivers.left(&mut self.post);
        state.buckets.forget(&ticket);
        Some(match done {
            Ok(Granted { grant: holding, waited, parts }) => {
                let (on_drop, departure) = (self.on_drop, state.leaves());
                Ok(Grounds { ticket, holding, waited, parts, on_drop, departure })
            }
            Err(Refused::TimedOut) => {
                Err(AcquireError::TimedOut(self.max_wait.unwrap_or_default()))
            }
            #[cfg(feature = "tokio")]
            Err(Refused::TooLong(projected)) => {
                let max_wait = self.max_wait.unwrap_or_default();
                Err(AcquireError::TooLong { projected, max_wait })
            }
            Err(Refused::QueueFull(waiting)) => Err(AcquireError::QueueFull(waiting)),
            Err(Refused::NeverFits(index)) => Err(never_fits(&ticket.claims[index])),
            Err(Refused::Failed(error)) => Err(error.into()),
        })
    }

    pub(super) fn leave(mut self) {
        self.scope.lock().drivers.left(&mut self.post);
        self.scope.leave(self.id);
    }
}

impl Future for Waiting {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.request.is_some() {
            return self.start(context.waker());
        }
        let place = self.place.unwrap_or_else(Place::here);
        let Some(queued) = &mut self.queued else { return Poll::Pending };
        let scope = queued.scope.clone();
        let mut state = scope.lock();
        let done = queued.ask(&mut state, context.waker(), place);
        // The future may have moved, or the runtime of its driver may have ended.
        let driven = done.is_some() || state.drivers.attend(&mut queued.post, place, &scope);
        let wakes = state.scheduler.wakes();
        drop(state);
        drop(wakes);
        match done {
            Some(done) => {
                self.queued = None;
                Poll::Ready(done.map(|grounds| Permit::new(scope, grounds)))
            }
            None if driven => Poll::Pending,
            None => {
                self.leave();
                Poll::Ready(Err(not_driven(&scope)))
            }
        }
    }
}

impl Waiting {
    pub(super) fn new(request: Acquire) -> Self {
        Self { request: Some(request), queued: None, place: None }
    }

    /// Uses a driver thread, wherever it is polled.
    pub(super) fn on_a_thread(mut self) -> Self {
        self.place = Some(Place::Thread);
        self
    }

    /// Runs the first poll.
    pub(super) fn start(&mut self, waker: &Waker) -> Poll<Result<Permit, AcquireError>> {
        let Some(request) = self.request.take() else { return Poll::Pending };
        let place = self.place.unwrap_or_else(Place::here);
        request.start(waker, place, &mut self.queued)
    }

    /// Leaves the queue, if it is in it.
    fn leave(&mut self) {
        if let Some(queued) = self.queued.take() {
            queued.leave();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("queued", &self.queued.is_some()).finish_non_exhaustive()
    }
}
