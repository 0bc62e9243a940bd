//! What this client knows of its own policies: which revisions a shard has confirmed, and since when
//! each policy applies.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::Limit;
use tidegate_shard::message::PolicySync;

/// Maximum number of remembered pairs of shard and limit, and of limits. If there are more, all are
/// forgotten: revisions are then sent again, which changes nothing, and count as new.
const MAX_ENTRIES: usize = 65_536;

/// The revisions of each limit.
#[derive(Debug, Default)]
pub(crate) struct KnownPolicies {
    /// The newest revision of each limit that each shard has confirmed.
    confirmed: RwLock<HashMap<(u32, Arc<str>), u32>>,
    /// The newest revision of each limit, and when it was first used.
    used: RwLock<HashMap<Arc<str>, (u32, Duration)>>,
}

impl KnownPolicies {
    /// Returns what is known of a limit. `now` is the time of this client.
    pub(crate) fn sync(&self, shard: Option<u32>, limit: &Limit, now: Duration) -> PolicySync {
        if limit.is_inline() {
            return PolicySync::default();
        }
        let confirmed = shard.and_then(|shard| self.confirmed(shard, limit));
        PolicySync { confirmed, age: self.age(limit, now) }
    }

    /// Remembers that a shard has confirmed the revision of a limit.
    pub(crate) fn confirm(&self, shard: u32, limit: &Limit) {
        if limit.is_inline() || limit.generation() == 0 {
            return;
        }
        if self.confirmed(shard, limit).is_some_and(|known| known >= limit.generation()) {
            return;
        }
        let mut confirmed = self.confirmed.write().unwrap_or_else(PoisonError::into_inner);
        if confirmed.len() >= MAX_ENTRIES {
            confirmed.clear();
        }
        confirmed.insert((shard, limit.shared_identity()), limit.generation());
    }

    fn confirmed(&self, shard: u32, limit: &Limit) -> Option<u32> {
        if limit.generation() == 0 {
            // There is nothing older to leave out.
            return None;
        }
        let confirmed = self.confirmed.read().unwrap_or_else(PoisonError::into_inner);
        confirmed.get(&(shard, limit.shared_identity())).copied()
    }

    /// Returns for how long the policy of a limit has been used. One that was replaced is older than
    /// the one that replaced it.
    fn age(&self, limit: &Limit, now: Duration) -> Duration {
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        match used.get(limit.identity()) {
            Some((generation, since)) if *generation >= limit.generation() => {
                let replaced = u64::from(*generation > limit.generation());
                return now.saturating_sub(*since) + Duration::from_nanos(replaced);
            }
            _ => {}
        }
        drop(used);
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= MAX_ENTRIES {
            used.clear();
        }
        used.insert(limit.shared_identity(), (limit.generation(), now));
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Policy, PolicyChange};

    use super::*;

    #[test]
    fn ages_are_those_of_the_newest_policy() {
        let known = KnownPolicies::default();
        let seconds = Duration::from_secs;
        let policy = |capacity| Policy::per_second(1).capacity(capacity).build().unwrap();
        let first = Limit::named("a", policy(10)).unwrap();
        let second = first.revise(policy(4), PolicyChange::KeepTokens).unwrap();
        let age = |limit, now| known.sync(Some(3), limit, seconds(now)).age;
        assert_eq!((age(&first, 100), age(&first, 130)), (seconds(0), seconds(30)));
        assert_eq!((age(&second, 131), age(&second, 140)), (seconds(0), seconds(9)));
        assert!(age(&first, 140) > age(&second, 140));
        assert_eq!(age(&Limit::inline(policy(1)), 500), seconds(0));
    }
}
