//! The live state of a limit: its current policy, which can change under readers, its calendar, and
//! who waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use tidegate_core::{
    Charge, FailureRule, Key, KeyBuf, Limit, LimitError, Policy, PolicyChange, Target, WallTime,
    Windows,
};

use crate::pacer::Pacer;
#[cfg(feature = "calendar")]
use crate::schedule::Schedule;
use crate::store_handle::StoreHandle;

/// Is notified when a limit changes.
pub(crate) trait LimitWatcher: Send + Sync {
    /// Called after a change. Returns `false` if the watcher needs no further notification; it
    /// registers again when it does.
    fn on_change(&self) -> bool;
}

/// A watcher and the number of its latest registration. A watcher that needs no further
/// notification is removed, unless it has registered again since.
#[derive(Clone)]
struct Registration {
    watcher: Weak<dyn LimitWatcher>,
    number: u64,
}

/// The watchers of a limit. A limit that many pacers share has many; one without waiters costs a
/// single call and is then removed.
#[derive(Clone, Default)]
struct Watchers {
    registrations: Vec<Registration>,
    last_number: u64,
}

/// Tokens that waiters of pacers want, by key, so that a plain take does not overtake them.
#[derive(Debug, Default)]
pub(crate) struct QueuedDemand {
    /// Number of keys, read before the lock is taken: without waiters, no caller takes the lock.
    keys: AtomicUsize,
    wanted: Mutex<HashMap<KeyBuf, u128>>,
}

impl QueuedDemand {
    pub(crate) fn add(&self, key: &KeyBuf, tokens: u64) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted.entry(key.clone()).or_default() += u128::from(tokens);
        self.keys.store(wanted.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, key: &KeyBuf, tokens: u64) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = wanted.get_mut(key) {
            *left = left.saturating_sub(tokens.into());
            if *left == 0 {
                wanted.remove(key);
            }
        }
        self.keys.store(wanted.len(), Ordering::Relaxed);
    }

    /// Number of tokens that waiters want of a key; `None` if there are no waiters.
    #[inline]
    pub(crate) fn tokens_queued(&self, key: Key<'_>) -> Option<u128> {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.get(&KeyBuf::from(key)).copied()
    }
}

/// The state that all limiters of one limit share. Readers take no lock and never see half of a
/// change.
pub(crate) struct LiveLimit {
    limit: ArcSwap<Limit>,
    /// Serialises revisions, so that none is lost.
    revision_lock: Mutex<()>,
    watchers: Mutex<Watchers>,
    queued: QueuedDemand,
    /// Queue for callers that wait for this limit alone.
    pacer: OnceLock<Pacer>,
    /// Set when a user relies on the limit being a token bucket.
    must_be_bucket: AtomicBool,
    /// Windows of a calendar quota.
    #[cfg(feature = "calendar")]
    schedule: Option<Schedule>,
}

impl LiveLimit {
    /// Creates a limit without a schedule. A calendar quota needs one.
    pub(crate) fn new(limit: Limit) -> Result<Self, LimitError> {
        if let Policy::Quota(_) = limit.policy() {
            return Err(LimitError::NoSchedule);
        }
        Ok(Self::without_schedule(limit))
    }

    fn without_schedule(limit: Limit) -> Self {
        Self {
            limit: ArcSwap::from_pointee(limit),
            revision_lock: Mutex::new(()),
            watchers: Mutex::default(),
            queued: QueuedDemand::default(),
            pacer: OnceLock::new(),
            must_be_bucket: AtomicBool::new(false),
            #[cfg(feature = "calendar")]
            schedule: None,
        }
    }

    #[cfg(feature = "calendar")]
    pub(crate) fn with_schedule(limit: Limit, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..Self::without_schedule(limit) }
    }

    /// Replaces the limit by another revision of it.
    pub(crate) fn with_limit(mut self, limit: Limit) -> Self {
        self.limit = ArcSwap::from_pointee(limit);
        self
    }

    /// Whether both have the same policy and schedule.
    pub(crate) fn is_equivalent_to(&self, other: &Self) -> bool {
        self.has_same_schedule(other) && self.limit.load().policy() == other.limit.load().policy()
    }

    /// Whether both have the same schedule, or none.
    pub(crate) fn has_same_schedule(&self, other: &Self) -> bool {
        #[cfg(feature = "calendar")]
        return self.schedule == other.schedule;
        #[cfg(not(feature = "calendar"))]
        let _ = other;
        #[cfg(not(feature = "calendar"))]
        true
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::clone(&self.limit.load())
    }

    /// Replaces the policy, starts a new generation, and notifies the watchers.
    pub(crate) fn revise(
        &self,
        policy: Policy,
        change: PolicyChange,
        store: &StoreHandle,
    ) -> Result<(), LimitError> {
        self.replace_policy(policy, change, store)?;
        self.notify_watchers();
        Ok(())
    }

    /// Replaces the policy without notifying the watchers: a caller that changes several limits
    /// together notifies once all are replaced.
    pub(crate) fn replace_policy(
        &self,
        policy: Policy,
        change: PolicyChange,
        store: &StoreHandle,
    ) -> Result<(), LimitError> {
        if matches!(policy, Policy::Quota(_)) && !self.has_schedule() {
            return Err(LimitError::NoSchedule);
        }
        if self.must_be_bucket.load(Ordering::Relaxed) && !matches!(policy, Policy::Bucket(_)) {
            return Err(LimitError::NotABucket);
        }
        let _guard = self.revision_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let revised = self.limit.load().revise(policy, change)?;
        store.check_limit(&revised)?;
        self.limit.store(Arc::new(revised));
        Ok(())
    }

    /// Requires every later policy to be a token bucket.
    pub(crate) fn require_bucket(&self) {
        self.must_be_bucket.store(true, Ordering::Relaxed);
    }

    /// Sets what is decided while the store does not answer, and notifies the watchers.
    pub(crate) fn set_failure_rule(&self, rule: Option<FailureRule>) {
        self.replace_failure_rule(rule);
        self.notify_watchers();
    }

    /// Sets the failure rule without notifying the watchers.
    pub(crate) fn replace_failure_rule(&self, rule: Option<FailureRule>) {
        let _guard = self.revision_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let revised = self.limit.load().on_failure(rule);
        self.limit.store(Arc::new(revised));
    }

    /// Notifies all watchers: the policy has changed, or tokens or slots were given back.
    pub(crate) fn notify_watchers(&self) {
        let registrations = self.lock_watchers().registrations.clone();
        let stays = |registration: &Registration| {
            registration.watcher.upgrade().is_some_and(|watcher| watcher.on_change())
        };
        let ended = registrations.iter().filter(|registration| !stays(registration));
        let mut ended: Vec<u64> = ended.map(|registration| registration.number).collect();
        if !ended.is_empty() {
            ended.sort_unstable();
            // A watcher that has registered again meanwhile has another number.
            let stays =
                |registration: &Registration| ended.binary_search(&registration.number).is_err();
            self.lock_watchers().registrations.retain(stays);
        }
    }

    /// Registers a watcher, for as long as it lives and asks for further notifications.
    pub(crate) fn watch(&self, watcher: Weak<dyn LimitWatcher>) {
        let mut watchers = self.lock_watchers();
        watchers.last_number += 1;
        let number = watchers.last_number;
        match watchers.registrations.iter_mut().find(|known| known.watcher.ptr_eq(&watcher)) {
            Some(known) => known.number = number,
            None => {
                watchers.registrations.retain(|known| known.watcher.strong_count() > 0);
                watchers.registrations.push(Registration { watcher, number });
            }
        }
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tokens that waiters want of this limit.
    pub(crate) const fn queued_demand(&self) -> &QueuedDemand {
        &self.queued
    }

    /// Queue for callers that wait for this limit alone, created by the first of them. A limit
    /// belongs to one engine, so it does not matter who creates it.
    pub(crate) fn pacer(&self, make: impl FnOnce() -> Pacer) -> &Pacer {
        self.pacer.get_or_init(make)
    }

    /// Whether decisions depend on the wall time.
    pub(crate) fn has_schedule(&self) -> bool {
        #[cfg(feature = "calendar")]
        return self.schedule.is_some();
        #[cfg(not(feature = "calendar"))]
        false
    }

    /// Reads the current limit, with the calendar windows around the wall time of a store.
    #[inline]
    pub(crate) fn snapshot_on(&self, store: &StoreHandle) -> LimitSnapshot {
        self.snapshot(self.wall_time(store))
    }

    /// Wall time of a store, if decisions depend on it.
    #[inline]
    pub(crate) fn wall_time(&self, store: &StoreHandle) -> WallTime {
        if self.has_schedule() { store.wall_time() } else { WallTime::default() }
    }

    /// Reads the current limit, with the calendar windows around a wall time.
    #[inline]
    pub(crate) fn snapshot(&self, wall: WallTime) -> LimitSnapshot {
        #[cfg(feature = "calendar")]
        let windows = self.schedule.as_ref().map(|schedule| schedule.windows(wall));
        #[cfg(not(feature = "calendar"))]
        let (windows, _) = (None, wall);
        LimitSnapshot { limit: self.limit.load(), windows }
    }
}

impl std::fmt::Debug for LiveLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveLimit").field("limit", &self.limit.load()).finish_non_exhaustive()
    }
}

/// A limit at one instant, for a list of charges over several limiters.
///
/// Taken by [`Limiter::snapshot`](crate::Limiter::snapshot). Do not keep it for longer than one
/// decision.
#[derive(Debug)]
pub struct LimitSnapshot {
    limit: Guard<Arc<Limit>>,
    windows: Option<Windows>,
}

impl LimitSnapshot {
    /// The limit at that instant.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The bucket of a key under this limit.
    pub fn target<'a>(&'a self, key: impl Into<Key<'a>>) -> Target<'a> {
        Target { limit: &self.limit, key: key.into(), windows: self.windows }
    }

    /// A charge on the bucket of a key under this limit.
    pub fn charge<'a>(&'a self, key: impl Into<Key<'a>>, cost: u64) -> Charge<'a> {
        Charge { target: self.target(key), cost }
    }
}
