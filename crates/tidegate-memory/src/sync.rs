//! Locks and atomics of the store: from std, or from a model checker.
//!
//! A panic inside a critical section does not disable the store. The arithmetic under the locks
//! does not panic, so poisoning is ignored.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock, atomic};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::AtomicU64;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::AtomicU64;
// Shuttle has no fence and needs none: it runs all threads in one sequential order.
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::fence;

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread::yield_now;

use std::sync::PoisonError;

/// Locks a mutex, ignoring poisoning.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for another thread that holds a lock for a few tens of nanoseconds, unless it is
/// preempted.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Number of spins before yielding. Spinning makes no progress under a model checker.
    const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

    /// Spins or yields once.
    #[inline]
    pub(crate) fn wait(&mut self) {
        if self.rounds < Self::SPINS {
            std::hint::spin_loop();
        } else {
            yield_now();
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

/// A cell whose accesses are tracked by the model checker.
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// Untracked cell with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
