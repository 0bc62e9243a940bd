//! The number of pending requests: the number counted here, and the number reported from outside.
//!
//! Both numbers share one word, so that the common case is one load. They are not added: the
//! reported number is usually the depth of the queue that holds the requests counted here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Time;

use crate::store_handle::StoreClock;

/// The lower half of the word counts guards, the upper half is the reported number.
const REPORTED_SHIFT: u32 = 32;

/// The pending counter of an admission.
#[derive(Debug)]
pub(super) struct Pending {
    word: AtomicU64,
    /// When the reported number expires, in nanoseconds of the clock.
    until: AtomicU64,
    /// Serialises reports, so that no number gets the expiry of another.
    report_lock: Mutex<()>,
    clock: StoreClock,
}

impl Pending {
    pub(super) const fn new(clock: StoreClock) -> Self {
        let (word, until) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { word, until, report_lock: Mutex::new(()), clock }
    }

    /// Number of pending requests, if it is above `threshold`.
    #[inline]
    pub(super) fn above(&self, threshold: u32) -> Option<u32> {
        let (reported, counted) = halves(self.word.load(Ordering::Acquire));
        if reported.max(counted) <= threshold {
            return None;
        }
        let pending =
            if reported > counted && self.is_stale() { counted } else { reported.max(counted) };
        (pending > threshold).then_some(pending)
    }

    pub(super) fn now(&self) -> u32 {
        self.above(0).unwrap_or(0)
    }

    /// Sets the number reported from outside, valid for `good_for`.
    pub(super) fn report(&self, value: u32, good_for: Duration) {
        let _guard = self.report_lock.lock().unwrap_or_else(PoisonError::into_inner);
        // The old number is removed first: the new expiry must not make it valid again.
        self.set_reported(0);
        self.until.store(self.clock.now().after(good_for).as_nanos(), Ordering::Release);
        self.set_reported(value);
    }

    fn set_reported(&self, value: u32) {
        let reported = u64::from(value) << REPORTED_SHIFT;
        let set = |word: u64| Some(reported | (word & u64::from(u32::MAX)));
        // Cannot fail: `set` always returns a value.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, set);
    }

    #[cold]
    fn is_stale(&self) -> bool {
        self.clock.now() >= Time::from_nanos(self.until.load(Ordering::Acquire))
    }
}

const fn halves(word: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "one half each")]
    ((word >> REPORTED_SHIFT) as u32, word as u32)
}

/// A pending request. Dropping the guard ends it.
#[must_use = "the request counts as pending only while this guard lives"]
pub struct InFlight(Arc<Pending>);

impl InFlight {
    #[inline]
    pub(super) fn start(pending: &Arc<Pending>) -> Self {
        // It takes four billion concurrent guards to overflow into the other half.
        pending.word.fetch_add(1, Ordering::Relaxed);
        Self(pending.clone())
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        self.0.word.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}
