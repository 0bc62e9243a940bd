//! The locks and atomics of the store: those of std, or those of a model checker.
//!
//! A panic inside a critical section does not close the store: arithmetic under the locks does
//! not panic, and a poisoned lock is entered all the same.

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
// Shuttle has none, and needs none: all it runs is in one order for all threads.
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::fence;

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread::yield_now;

use std::sync::PoisonError;

/// Locks, whatever happened to an earlier holder.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How to wait for somebody who will be done in some tens of nanoseconds, unless the system has
/// put him aside.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Spins this often before it lets others run. Model checkers do not know what spinning is.
    const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

    /// Waits a moment.
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

/// A cell whose accesses a model checker watches.
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// The same interface, watched by nobody.
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
