//! An arrival time of any rate, and its policy, under a small lock of its own.
//!
//! The lock is taken by one compare-and-swap and given back by one store. It is held for a few
//! nanoseconds; whoever finds it taken spins a little and then lets others run.

use std::fmt;
use std::sync::atomic::Ordering;

use tidegate_core::{Bucket, Exact};

use crate::sync::atomic::AtomicBool;
use crate::sync::{Backoff, UnsafeCell};

/// The state of a direct limiter whose arrival time does not fit a word, or whose policy has
/// changed.
pub(super) struct LockedBucket {
    is_locked: AtomicBool,
    state: UnsafeCell<LockedState>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct LockedState {
    pub(super) tat: Exact,
    pub(super) bucket: Bucket,
    /// How often the policy has changed.
    pub(super) generation: u32,
}

/// The right to look at the state. A clock that is not ours may panic under it, so giving back is
/// left to `drop`.
struct Guard<'l>(&'l AtomicBool);

impl LockedBucket {
    pub(super) fn new(bucket: Bucket) -> Self {
        let state = LockedState { tat: Exact::ZERO, bucket, generation: 0 };
        Self { is_locked: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Runs `act` under the lock.
    #[inline]
    #[allow(unsafe_code, reason = "the state under the lock")]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut LockedState) -> R) -> R {
        let _guard = self.lock();
        // SAFETY: the lock is held until the end of this function, by this thread alone, and the
        // borrow ends with the call of `act`.
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

// SAFETY: `locked` is reached through `with` alone, by one thread at a time; what is in it may be
// used by any thread.
#[allow(unsafe_code, reason = "the state under the lock")]
unsafe impl Sync for LockedBucket {}

impl fmt::Debug for LockedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedBucket").finish_non_exhaustive()
    }
}
