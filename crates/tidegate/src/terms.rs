//! The live terms of a limiter: its limit, which can be revised under readers, and its calendar.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use tidegate_core::{
    Change, Charge, FailureRule, Key, KeyBuf, Limit, LimitError, Policy, Target, WallTime, Windows,
};

use crate::pacer::Pacer;
#[cfg(feature = "calendar")]
use crate::schedule::Schedule;
use crate::store_handle::StoreHandle;

/// Somebody who wants to know when terms change.
pub(crate) trait Watch: Send + Sync {
    /// They have changed. `false` if nobody here waits for another change: whoever does so later
    /// watches again.
    fn changed(&self) -> bool;
}

/// A watcher, and the number of its last registration: one that was told and waits no more is removed
/// unless it has registered since.
#[derive(Clone)]
struct Watcher {
    watch: Weak<dyn Watch>,
    registration: u64,
}

/// The watchers of a limit. Limits that many pacers share have many; those that wait for nothing cost
/// one call and are then forgotten.
#[derive(Clone, Default)]
struct Watchers {
    list: Vec<Watcher>,
    registrations: u64,
}

/// The tokens that waiters of pacers want, by key, so that a plain take does not overtake them.
#[derive(Debug, Default)]
pub(crate) struct Queued {
    /// How many keys there are: looked at before the lock is taken, which nobody pays for unless
    /// somebody waits.
    keys: AtomicUsize,
    wanted: Mutex<HashMap<KeyBuf, u128>>,
}

impl Queued {
    pub(crate) fn join(&self, key: &KeyBuf, tokens: u64) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted.entry(key.clone()).or_default() += u128::from(tokens);
        self.keys.store(wanted.len(), Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, key: &KeyBuf, tokens: u64) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = wanted.get_mut(key) {
            *left = left.saturating_sub(tokens.into());
            if *left == 0 {
                wanted.remove(key);
            }
        }
        self.keys.store(wanted.len(), Ordering::Relaxed);
    }

    /// Tokens that waiters want of a key; none if nobody waits.
    #[inline]
    pub(crate) fn ahead_of(&self, key: Key<'_>) -> Option<u128> {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.get(&KeyBuf::from(key)).copied()
    }
}

/// What a limiter goes by. Readers take no lock; a change is one pointer, never half of it.
pub(crate) struct Terms {
    limit: ArcSwap<Limit>,
    /// Taken by those who revise, so that no revision is lost.
    revising: Mutex<()>,
    watchers: Mutex<Watchers>,
    queued: Queued,
    /// The queue of those who wait for this limit alone.
    waiters: OnceLock<Pacer>,
    /// Somebody relies on these being a token bucket.
    stays_bucket: AtomicBool,
    /// The windows of a calendar quota.
    #[cfg(feature = "calendar")]
    schedule: Option<Schedule>,
}

impl Terms {
    /// Terms without a calendar.
    pub(crate) fn new(limit: Limit) -> Result<Self, LimitError> {
        if let Policy::Quota(_) = limit.policy() {
            return Err(LimitError::NoSchedule);
        }
        Ok(Self::bare(limit))
    }

    fn bare(limit: Limit) -> Self {
        Self {
            limit: ArcSwap::from_pointee(limit),
            revising: Mutex::new(()),
            watchers: Mutex::default(),
            queued: Queued::default(),
            waiters: OnceLock::new(),
            stays_bucket: AtomicBool::new(false),
            #[cfg(feature = "calendar")]
            schedule: None,
        }
    }

    #[cfg(feature = "calendar")]
    pub(crate) fn scheduled(limit: Limit, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..Self::bare(limit) }
    }

    /// The same terms with another revision of the limit.
    pub(crate) fn with_limit(mut self, limit: Limit) -> Self {
        self.limit = ArcSwap::from_pointee(limit);
        self
    }

    /// Whether these are the same terms: policy and calendar.
    pub(crate) fn agree_with(&self, other: &Self) -> bool {
        self.has_schedule_of(other) && self.limit.load().policy() == other.limit.load().policy()
    }

    /// Whether both take their windows from the same calendar, or from none.
    pub(crate) fn has_schedule_of(&self, other: &Self) -> bool {
        #[cfg(feature = "calendar")]
        return self.schedule == other.schedule;
        #[cfg(not(feature = "calendar"))]
        let _ = other;
        #[cfg(not(feature = "calendar"))]
        true
    }

    /// The limit now.
    pub(crate) fn limit(&self) -> Limit {
        Limit::clone(&self.limit.load())
    }

    /// Puts another policy in place, one generation on.
    pub(crate) fn revise(&self, policy: Policy, change: Change) -> Result<(), LimitError> {
        self.put(policy, change)?;
        self.tell_watchers();
        Ok(())
    }

    /// Puts another policy in place and tells nobody: who changes several terms together tells
    /// the watchers when all are in place.
    pub(crate) fn put(&self, policy: Policy, change: Change) -> Result<(), LimitError> {
        if matches!(policy, Policy::Quota(_)) && !self.on_calendar() {
            return Err(LimitError::NoSchedule);
        }
        if self.stays_bucket.load(Ordering::Relaxed) && !matches!(policy, Policy::Bucket(_)) {
            return Err(LimitError::NotABucket);
        }
        let _one_at_a_time = self.revising.lock().unwrap_or_else(PoisonError::into_inner);
        let revised = self.limit.load().revise(policy, change)?;
        self.limit.store(Arc::new(revised));
        Ok(())
    }

    /// From now on these are a token bucket, whatever becomes of its numbers.
    pub(crate) fn stay_bucket(&self) {
        self.stays_bucket.store(true, Ordering::Relaxed);
    }

    /// Sets what is decided while the store does not answer.
    pub(crate) fn set_failure_rule(&self, rule: Option<FailureRule>) {
        self.put_failure_rule(rule);
        self.tell_watchers();
    }

    /// Sets the failure rule and tells nobody.
    pub(crate) fn put_failure_rule(&self, rule: Option<FailureRule>) {
        let _one_at_a_time = self.revising.lock().unwrap_or_else(PoisonError::into_inner);
        let ruled = self.limit.load().on_failure(rule);
        self.limit.store(Arc::new(ruled));
    }

    /// Lets all watchers know: the policy has changed, or tokens or slots were given back.
    pub(crate) fn tell_watchers(&self) {
        let told = self.lock_watchers().list.clone();
        let waits =
            |watcher: &Watcher| watcher.watch.upgrade().is_some_and(|watch| watch.changed());
        let over = told.iter().filter(|watcher| !waits(watcher));
        let mut over: Vec<u64> = over.map(|watcher| watcher.registration).collect();
        if !over.is_empty() {
            over.sort_unstable();
            // One that registered again meanwhile has another number.
            let waits = |watcher: &Watcher| over.binary_search(&watcher.registration).is_err();
            self.lock_watchers().list.retain(waits);
        }
    }

    /// Lets somebody know of every change from now on, for as long as they live and wait.
    pub(crate) fn watch(&self, watcher: Weak<dyn Watch>) {
        let mut watchers = self.lock_watchers();
        watchers.registrations += 1;
        let registration = watchers.registrations;
        match watchers.list.iter_mut().find(|known| known.watch.ptr_eq(&watcher)) {
            Some(known) => known.registration = registration,
            None => {
                watchers.list.retain(|known| known.watch.strong_count() > 0);
                watchers.list.push(Watcher { watch: watcher, registration });
            }
        }
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who waits for tokens of this limit.
    pub(crate) const fn queued(&self) -> &Queued {
        &self.queued
    }

    /// The queue of those who wait for this limit alone. Terms are of one engine, so it does not
    /// matter who makes it.
    pub(crate) fn waiters(&self, make: impl FnOnce() -> Pacer) -> &Pacer {
        self.waiters.get_or_init(make)
    }

    /// Whether the wall time matters.
    pub(crate) fn on_calendar(&self) -> bool {
        #[cfg(feature = "calendar")]
        return self.schedule.is_some();
        #[cfg(not(feature = "calendar"))]
        false
    }

    /// The limit as it is now, with the calendar windows around the wall time of a store.
    #[inline]
    pub(crate) fn snapshot_on(&self, store: &StoreHandle) -> Snapshot {
        self.snapshot(self.wall_time(store))
    }

    /// The wall time of a store, if anybody will look at it.
    #[inline]
    pub(crate) fn wall_time(&self, store: &StoreHandle) -> WallTime {
        if self.on_calendar() { store.wall_time() } else { WallTime::default() }
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

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terms").field("limit", &self.limit.load()).finish_non_exhaustive()
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
