//! The locks of the store: those of std, or those of a model checker.
//!
//! A panic inside a critical section does not close the store: arithmetic under the locks does
//! not panic, and a poisoned lock is entered all the same.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};

use std::sync::PoisonError;

/// Locks, whatever happened to an earlier holder.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
