//! Token bucket of any rate, with its policy, under a spin lock.
//!
//! The lock is acquired with one compare-and-swap and released with one store. It is held for a few
//! nanoseconds. Waiting threads spin briefly and then yield.

use std::fmt;
use std::sync::atomic::Ordering;

use tidegate_core::{ExactTime, TokenBucket};

use crate::sync::atomic::AtomicBool;
use crate::sync::{Backoff, UnsafeCell};

/// State of a direct limiter whose arrival time does not fit a word, or whose policy has changed.
pub(super) struct LockedBucket {
    is_locked: AtomicBool,
    state: UnsafeCell<LockedState>,
}

/// The data guarded by the lock.
#[derive(Debug)]
pub(super) struct LockedState {
    pub(super) tat: ExactTime,
    pub(super) bucket: TokenBucket,
    /// Number of policy changes.
    pub(super) generation: u32,
}

/// Releases the lock on drop, since a foreign clock may panic while it is held.
struct Guard<'l>(&'l AtomicBool);

impl LockedBucket {
    pub(super) fn new(bucket: TokenBucket) -> Self {
        let state = LockedState { tat: ExactTime::ZERO, bucket, generation: 0 };
        Self { is_locked: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Runs `act` under the lock.
    #[inline]
    #[allow(unsafe_code, reason = "access to the state under the lock")]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut LockedState) -> R) -> R {
        let _guard = self.lock();
        // SAFETY: this thread holds the lock until the end of this function, and the borrow ends
        // with the call of `act`.
        self.state.with_mut(|locked| act(unsafe { &mut *locked }))
    }

    fn lock(&self) -> Guard<'_> {
        let mut backoff = Backoff::default();
        let (taken, seen) = (Ordering::Acquire, Ordering::Relaxed);
        while self.is_locked.compare_exchange_weak(false, true, taken, seen).is_err() {
            backoff.wait();
        }
        Guard(&self.is_locked)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

// SAFETY: `state` is only accessed through `with`, by one thread at a time, and its contents may be
// used by any thread.
#[allow(unsafe_code, reason = "access to the state under the lock")]
unsafe impl Sync for LockedBucket {}

impl fmt::Debug for LockedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedBucket").finish_non_exhaustive()
    }
}
