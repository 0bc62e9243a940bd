//! The live terms of a limiter: its limit, which can be revised under readers, and its calendar.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tidegate_core::{Change, Charge, Key, Limit, LimitError, Policy, Target, WallTime, Windows};

#[cfg(feature = "calendar")]
use crate::schedule::Schedule;

/// What a limiter goes by. Readers take no lock; a change is one pointer, never half of it.
#[derive(Debug)]
pub(crate) struct Terms {
    limit: ArcSwap<Limit>,
    /// Taken by those who revise, so that no revision is lost.
    revising: Mutex<()>,
    /// The windows of a calendar quota.
    #[cfg(feature = "calendar")]
    schedule: Option<Schedule>,
}

impl Terms {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit: ArcSwap::from_pointee(limit),
            revising: Mutex::new(()),
            #[cfg(feature = "calendar")]
            schedule: None,
        }
    }

    #[cfg(feature = "calendar")]
    pub(crate) fn scheduled(limit: Limit, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..Self::new(limit) }
    }

    /// The limit now.
    pub(crate) fn limit(&self) -> Limit {
        Limit::clone(&self.limit.load())
    }

    /// Puts another policy in place, one generation on.
    pub(crate) fn revise(&self, policy: Policy, change: Change) -> Result<(), LimitError> {
        let _one_at_a_time = self.revising.lock().unwrap_or_else(PoisonError::into_inner);
        let revised = self.limit.load().revise(policy, change)?;
        self.limit.store(Arc::new(revised));
        Ok(())
    }

    /// Whether the wall time matters.
    pub(crate) fn on_calendar(&self) -> bool {
        #[cfg(feature = "calendar")]
        return self.schedule.is_some();
        #[cfg(not(feature = "calendar"))]
        false
    }

    /// The limit as it is now, with the calendar windows around a wall time.
    #[inline]
    pub(crate) fn snapshot(&self, wall: WallTime) -> Snapshot {
        #[cfg(feature = "calendar")]
        let windows = self.schedule.as_ref().map(|schedule| schedule.windows(wall));
        #[cfg(not(feature = "calendar"))]
        let (windows, _) = (None, wall);
        Snapshot { limit: self.limit.load(), windows }
    }
}

/// A limiter's terms as they were at one moment, for a list of charges over several limiters.
///
/// Taken by [`Limiter::snapshot`](crate::Limiter::snapshot); keep it no longer than one decision.
#[derive(Debug)]
pub struct Snapshot {
    limit: Guard<Arc<Limit>>,
    windows: Option<Windows>,
}

impl Snapshot {
    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The bucket of a key.
    pub fn target<'a>(&'a self, key: impl Into<Key<'a>>) -> Target<'a> {
        Target { limit: &self.limit, key: key.into(), windows: self.windows }
    }

    /// A charge on the bucket of a key.
    pub fn charge<'a>(&'a self, key: impl Into<Key<'a>>, cost: u64) -> Charge<'a> {
        Charge { target: self.target(key), cost }
    }
}
