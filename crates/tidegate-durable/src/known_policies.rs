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
    /// The newest revision of each limit that was revised, and when it was first used.
    used: RwLock<HashMap<Arc<str>, (u32, Duration)>>,
}

impl KnownPolicies {
    /// Returns what is known of a limit whose buckets are in these shards. `now` is the time since
    /// this client was created.
    pub(crate) fn sync(
        &self,
        shards: impl Iterator<Item = u32>,
        limit: &Limit,
        now: Duration,
    ) -> PolicySync {
        if limit.is_inline() || limit.generation() == 0 {
            // There is nothing older to leave out. The original policy applies since the client was
            // created: with its first use, a program that did not see a change would undo it.
            return PolicySync { confirmed: None, age: now };
        }
        PolicySync { confirmed: self.confirmed(shards, limit), age: self.age(limit, now) }
    }

    /// Remembers that a shard has confirmed the revision of a limit.
    pub(crate) fn confirm(&self, shard: u32, limit: &Limit) {
        if limit.is_inline() || limit.generation() == 0 {
            return;
        }
        let known = self.confirmed(std::iter::once(shard), limit);
        if known.is_some_and(|known| known >= limit.generation()) {
            return;
        }
        let mut confirmed = self.confirmed.write().unwrap_or_else(PoisonError::into_inner);
        if confirmed.len() >= MAX_ENTRIES {
            confirmed.clear();
        }
        confirmed.insert((shard, limit.shared_identity()), limit.generation());
    }

    /// Returns the newest revision that all of these shards have confirmed.
    fn confirmed(&self, mut shards: impl Iterator<Item = u32>, limit: &Limit) -> Option<u32> {
        let confirmed = self.confirmed.read().unwrap_or_else(PoisonError::into_inner);
        let of_shard = |shard| confirmed.get(&(shard, limit.shared_identity())).copied();
        let first = of_shard(shards.next()?)?;
        shards.try_fold(first, |least, shard| Some(least.min(of_shard(shard)?)))
    }

    /// Returns for how long the policy of a revised limit has been used. One that was replaced is
    /// older than the one that replaced it.
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

    fn policy(capacity: u64) -> Policy {
        Policy::per_second(1).capacity(capacity).build().unwrap()
    }

    fn revised(times: u64) -> Limit {
        let first = Limit::named("a", policy(10)).unwrap();
        (0..times).fold(first, |limit, number| {
            limit.revise(policy(11 + number), PolicyChange::KeepTokens).unwrap()
        })
    }

    #[test]
    fn ages_count_from_the_creation_of_the_client_and_from_the_first_use_of_a_revision() {
        let known = KnownPolicies::default();
        let seconds = Duration::from_secs;
        let [first, second, third] = [0, 1, 2].map(revised);
        let age = |limit, now| known.sync([3].into_iter(), limit, seconds(now)).age;
        assert_eq!((age(&first, 100), age(&first, 130)), (seconds(100), seconds(130)));
        assert_eq!((age(&second, 131), age(&second, 140)), (seconds(0), seconds(9)));
        assert_eq!((age(&third, 150), age(&third, 160)), (seconds(0), seconds(10)));
        assert!(age(&first, 160) > age(&second, 160) && age(&second, 160) > age(&third, 160));
    }

    #[test]
    fn what_all_shards_of_a_list_have_confirmed_is_not_sent_again() {
        let known = KnownPolicies::default();
        let [second, third, fourth] = [1, 2, 3].map(revised);
        known.confirm(3, &third);
        known.confirm(4, &second);
        let confirmed =
            |shards: &[u32]| known.sync(shards.iter().copied(), &fourth, Duration::ZERO).confirmed;
        assert_eq!(
            [confirmed(&[3]), confirmed(&[4]), confirmed(&[3, 4])],
            [Some(2), Some(1), Some(1)]
        );
        assert_eq!(confirmed(&[3, 5]), None, "a shard that knows nothing");
        known.confirm(3, &second);
        assert_eq!(confirmed(&[3]), Some(2), "an older revision");
    }
}
