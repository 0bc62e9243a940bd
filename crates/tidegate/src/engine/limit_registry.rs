//! Limits by name.
//!
//! One name is one policy: two would not agree on what a bucket of theirs means. A limit that is
//! retired leaves its buckets behind, under the generation that they were last written in; so its
//! history is kept, and a limit that is made under the name again goes on from there.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_core::{Change, Limit, LimitError};

use crate::terms::Terms;

/// How many retired limits are remembered. Limits beyond that are forgotten, the longest retired
/// first: if one comes back it begins anew, and what was spent under a policy that it had been
/// revised to counts as empty.
pub(crate) const MAX_RETIRED: usize = 16_384;

/// The limits of an engine that have a name.
#[derive(Debug, Default)]
pub(crate) struct LimitRegistry(Mutex<Limits>);

#[derive(Debug, Default)]
struct Limits {
    active: HashMap<Arc<str>, Arc<Terms>>,
    retired: HashMap<Arc<str>, Retired>,
    /// The retired names by their number, the longest retired first.
    order: BTreeMap<u64, Arc<str>>,
    next_number: u64,
}

#[derive(Debug)]
struct Retired {
    /// The live limit, for as long as somebody still decides by it: two of one name would count
    /// their revisions apart.
    live: Weak<Terms>,
    /// The limit as it was when it was retired.
    limit: Limit,
    number: u64,
}

impl Retired {
    /// The limit as it is now.
    fn limit(&self) -> Limit {
        self.live.upgrade().map_or_else(|| self.limit.clone(), |live| live.limit())
    }
}

impl LimitRegistry {
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Terms>> {
        self.lock().active.get(name).cloned()
    }

    /// All limits, each as it is now; those that are retired too, since their buckets may still be
    /// in the store.
    pub(crate) fn all(&self) -> Vec<Limit> {
        let limits = self.lock();
        let active = limits.active.values().map(|terms| terms.limit());
        active.chain(limits.retired.values().map(Retired::limit)).collect()
    }

    /// Registers terms under their name: what the name stands for then.
    pub(crate) fn register(&self, terms: Terms) -> Result<Arc<Terms>, LimitError> {
        let mut limits = self.lock();
        limits.check(&terms)?;
        let is_known = limits.active.contains_key(terms.limit().identity());
        let terms = limits.add(terms);
        drop(limits);
        if !is_known {
            // Without the lock: a watcher may hold a lock of its own, and wait for this one.
            terms.tell_watchers();
        }
        Ok(terms)
    }

    /// Registers these under their names, all or none. Watchers of a limit that comes back are for the
    /// caller to tell, once it holds no lock.
    pub(crate) fn register_all<const N: usize>(
        &self,
        terms: [Option<Terms>; N],
    ) -> Result<[Option<Arc<Terms>>; N], LimitError> {
        let mut limits = self.lock();
        terms.iter().flatten().try_for_each(|terms| limits.check(terms))?;
        Ok(terms.map(|terms| terms.map(|terms| limits.add(terms))))
    }

    /// Takes a name out. Answers whether there was such a limit, and which limits were forgotten
    /// over it.
    pub(crate) fn retire(&self, name: &str) -> (bool, Vec<Limit>) {
        let mut limits = self.lock();
        let Some((name, terms)) = limits.active.remove_entry(name) else {
            return (false, Vec::new());
        };
        let number = limits.next_number;
        limits.next_number += 1;
        limits.order.insert(number, name.clone());
        limits
            .retired
            .insert(name, Retired { live: Arc::downgrade(&terms), limit: terms.limit(), number });
        (true, limits.forget_oldest())
    }

    fn lock(&self) -> MutexGuard<'_, Limits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limits {
    /// Refuses terms whose name has other terms already, or whose history cannot go on.
    fn check(&self, terms: &Terms) -> Result<(), LimitError> {
        let limit = terms.limit();
        match self.active.get(limit.identity()) {
            Some(known) if !known.agree_with(terms) => {
                Err(LimitError::Taken(limit.name().to_owned()))
            }
            Some(_) => Ok(()),
            None => match self.retired.get(limit.identity()) {
                Some(retired) => revived(&retired.limit(), &limit).map(drop),
                None => Ok(()),
            },
        }
    }

    /// The terms that have this name from now on: these, unless others have it already.
    fn add(&mut self, terms: Terms) -> Arc<Terms> {
        let limit = terms.limit();
        if let Some(known) = self.active.get(limit.identity()) {
            return known.clone();
        }
        let retired = self.retired.remove(limit.identity());
        let terms = match retired {
            Some(retired) => {
                self.order.remove(&retired.number);
                brought_back(&retired, terms)
            }
            None => Arc::new(terms),
        };
        self.active.insert(limit.shared_identity(), terms.clone());
        terms
    }

    /// Forgets what is retired beyond the bound.
    fn forget_oldest(&mut self) -> Vec<Limit> {
        let mut forgotten = Vec::new();
        while self.order.len() > MAX_RETIRED {
            let Some((_, name)) = self.order.pop_first() else { break };
            forgotten.extend(self.retired.remove(&name).map(|retired| retired.limit()));
        }
        forgotten
    }
}

/// The terms of a retired limit that comes back: those that somebody still holds, under the policy
/// of the new ones, or the new ones with the history of the old.
fn brought_back(retired: &Retired, terms: Terms) -> Arc<Terms> {
    let limit = terms.limit();
    if let Some(live) = retired.live.upgrade().filter(|live| live.has_schedule_of(&terms)) {
        let same = live.limit().policy() == limit.policy();
        if same || live.put(*limit.policy(), Change::KeepTokens).is_ok() {
            live.put_failure_rule(limit.failure_rule());
            return live;
        }
    }
    match revived(&retired.limit(), &limit) {
        Ok(revived) => Arc::new(terms.with_limit(revived)),
        Err(_) => Arc::new(terms),
    }
}

/// A retired limit that comes back under the policy of another.
fn revived(retired: &Limit, limit: &Limit) -> Result<Limit, LimitError> {
    let revived = if retired.policy() == limit.policy() {
        retired.clone()
    } else {
        retired.revise(*limit.policy(), Change::KeepTokens)?
    };
    Ok(revived.on_failure(limit.failure_rule()))
}
