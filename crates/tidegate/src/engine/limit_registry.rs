//! Limits by name.
//!
//! One name has one policy: two policies would disagree about what a bucket means. A retired limit
//! leaves its buckets in the store, under the generation of their last write. The registry
//! therefore keeps its history, and a limit that is created under the name again continues from
//! there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_core::{Limit, LimitError, PolicyChange};

use crate::live_limit::LiveLimit;
use crate::store_handle::StoreHandle;

/// Maximum number of retired limits to remember. Beyond it, the limits that were retired first are
/// forgotten: one that comes back starts a new history, and its buckets that were written under a
/// revised policy count as empty.
pub(crate) const MAX_RETIRED: usize = 16_384;

/// The named limits of an engine.
#[derive(Debug, Default)]
pub(crate) struct LimitRegistry(Mutex<Limits>);

#[derive(Debug, Default)]
struct Limits {
    active: HashMap<Arc<str>, Arc<LiveLimit>>,
    retired: HashMap<Arc<str>, Retired>,
    /// Retired names by retirement number, oldest first.
    order: BTreeMap<u64, Arc<str>>,
    next_number: u64,
}

#[derive(Debug)]
struct Retired {
    /// The live limit, while a limiter still uses it. A second one under the same name would count
    /// its revisions separately.
    live: Weak<LiveLimit>,
    /// The limit at the time of its retirement.
    limit: Limit,
    number: u64,
}

impl Retired {
    /// The current limit.
    fn limit(&self) -> Limit {
        self.live.upgrade().map_or_else(|| self.limit.clone(), |live| live.limit())
    }
}

impl LimitRegistry {
    pub(crate) fn find(&self, name: &str) -> Option<Arc<LiveLimit>> {
        self.lock().active.get(name).cloned()
    }

    /// All limits in their current state, including retired ones: their buckets may still be in the
    /// store.
    pub(crate) fn all(&self) -> Vec<Limit> {
        let limits = self.lock();
        let active = limits.active.values().map(|live_limit| live_limit.limit());
        active.chain(limits.retired.values().map(Retired::limit)).collect()
    }

    /// Registers a limit under its name, and returns the limit that the name stands for.
    pub(crate) fn register(
        &self,
        live_limit: LiveLimit,
        store: &StoreHandle,
    ) -> Result<Arc<LiveLimit>, LimitError> {
        let mut limits = self.lock();
        limits.check(&live_limit, store)?;
        let is_known = limits.active.contains_key(live_limit.limit().identity());
        let live_limit = limits.add(live_limit, store);
        drop(limits);
        if !is_known {
            // Not under the lock: a watcher may hold a lock of its own and wait for this one.
            live_limit.notify_watchers();
        }
        Ok(live_limit)
    }

    /// Registers these limits, all or none. The caller notifies the watchers of restored limits
    /// once it holds no lock.
    pub(crate) fn register_all<const N: usize>(
        &self,
        live_limits: [Option<LiveLimit>; N],
        store: &StoreHandle,
    ) -> Result<[Option<Arc<LiveLimit>>; N], LimitError> {
        let mut limits = self.lock();
        let mut all = live_limits.iter().flatten();
        all.try_for_each(|live_limit| limits.check(live_limit, store))?;
        Ok(live_limits.map(|live_limit| live_limit.map(|live_limit| limits.add(live_limit, store))))
    }

    /// Retires a name. Returns whether there was such a limit, and the limits that were forgotten
    /// to make room.
    pub(crate) fn retire(&self, name: &str) -> (bool, Vec<Limit>) {
        let mut limits = self.lock();
        let Some((name, live_limit)) = limits.active.remove_entry(name) else {
            return (false, Vec::new());
        };
        let number = limits.next_number;
        limits.next_number += 1;
        limits.order.insert(number, name.clone());
        limits.retired.insert(
            name,
            Retired { live: Arc::downgrade(&live_limit), limit: live_limit.limit(), number },
        );
        (true, limits.forget_oldest())
    }

    fn lock(&self) -> MutexGuard<'_, Limits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limits {
    /// Rejects a limit whose name has a different policy or schedule, or whose history cannot
    /// continue, or that the store cannot decide.
    fn check(&self, live_limit: &LiveLimit, store: &StoreHandle) -> Result<(), LimitError> {
        let limit = live_limit.limit();
        match self.active.get(limit.identity()) {
            Some(known) if !known.is_equivalent_to(live_limit) => {
                Err(LimitError::Taken(limit.name().to_owned()))
            }
            Some(_) => Ok(()),
            None => match self.retired.get(limit.identity()) {
                Some(retired) => store.check_limit(&revive(&retired.limit(), &limit)?),
                None => store.check_limit(&limit),
            },
        }
    }

    /// Returns the limit that has this name from now on: `live_limit`, unless the name is already
    /// taken.
    fn add(&mut self, live_limit: LiveLimit, store: &StoreHandle) -> Arc<LiveLimit> {
        let limit = live_limit.limit();
        if let Some(known) = self.active.get(limit.identity()) {
            return known.clone();
        }
        let retired = self.retired.remove(limit.identity());
        let live_limit = match retired {
            Some(retired) => {
                self.order.remove(&retired.number);
                restore_retired(&retired, live_limit, store)
            }
            None => Arc::new(live_limit),
        };
        self.active.insert(limit.shared_identity(), live_limit.clone());
        live_limit
    }

    /// Forgets the oldest retired limits beyond the maximum.
    fn forget_oldest(&mut self) -> Vec<Limit> {
        let mut forgotten = Vec::new();
        while self.order.len() > MAX_RETIRED {
            let Some((_, name)) = self.order.pop_first() else { break };
            forgotten.extend(self.retired.remove(&name).map(|retired| retired.limit()));
        }
        forgotten
    }
}

/// Restores a retired limit under the policy of `live_limit`: the old live limit if it is still in
/// use, else `live_limit` with the old history.
fn restore_retired(
    retired: &Retired,
    live_limit: LiveLimit,
    store: &StoreHandle,
) -> Arc<LiveLimit> {
    let limit = live_limit.limit();
    if let Some(live) = retired.live.upgrade().filter(|live| live.has_same_schedule(&live_limit)) {
        let same = live.limit().policy() == limit.policy();
        if same || live.replace_policy(*limit.policy(), PolicyChange::KeepTokens, store).is_ok() {
            live.replace_failure_rule(limit.failure_rule());
            return live;
        }
    }
    match revive(&retired.limit(), &limit) {
        Ok(revived) => Arc::new(live_limit.with_limit(revived)),
        Err(_) => Arc::new(live_limit),
    }
}

/// Revises a retired limit to the policy of `limit`.
fn revive(retired: &Limit, limit: &Limit) -> Result<Limit, LimitError> {
    let revived = if retired.policy() == limit.policy() {
        retired.clone()
    } else {
        retired.revise(*limit.policy(), PolicyChange::KeepTokens)?
    };
    Ok(revived.on_failure(limit.failure_rule()))
}
