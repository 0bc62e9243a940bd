//! Slots taken under concurrency limits: one lease per acquisition, which is released or expires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::{Concurrency, Time};

/// One acquisition of slots.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: u64,
    slots: u64,
    /// `None` keeps it until it is released.
    ends: Option<Time>,
}

/// Maximum and current number of leases in the whole store. All leases of a key are in one shard,
/// so a budget per shard would be too small for a key with many.
#[derive(Debug)]
pub(crate) struct LeaseBudget {
    max: usize,
    in_use: AtomicUsize,
}

impl LeaseBudget {
    pub(crate) const fn new(max: usize) -> Self {
        Self { max, in_use: AtomicUsize::new(0) }
    }

    fn is_exhausted(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) >= self.max
    }
}

/// Leases of one shard, by bucket.
#[derive(Debug)]
pub(crate) struct Leases {
    buckets: BTreeMap<u64, Vec<Lease>>,
    total: usize,
    last_id: u64,
    budget: Arc<LeaseBudget>,
}

impl Leases {
    /// Maximum size of a lease that is alone under its key: map entry, list and allocator overhead,
    /// in bytes.
    pub(crate) const BYTES: usize = 224;

    pub(crate) fn new(budget: Arc<LeaseBudget>) -> Self {
        Self { buckets: BTreeMap::new(), total: 0, last_id: 0, budget }
    }

    /// Returns whether another lease may be acquired. If the budget is exhausted, forgets expired
    /// leases of this shard first.
    pub(crate) fn has_capacity(&mut self, now: Time) -> bool {
        if self.budget.is_exhausted() {
            self.expire_all(now);
        }
        !self.budget.is_exhausted()
    }

    /// Sets the number of leases and updates the budget.
    fn set_total(&mut self, total: usize) {
        if total > self.total {
            self.budget.in_use.fetch_add(total - self.total, Ordering::Relaxed);
        } else {
            self.budget.in_use.fetch_sub(self.total - total, Ordering::Relaxed);
        }
        self.total = total;
    }

    /// Returns the number of leases.
    pub(crate) fn len(&self) -> usize {
        self.total
    }

    /// Returns the number of slots of a bucket that are taken at `now`.
    pub(crate) fn taken(&mut self, bucket: u64, now: Time) -> u64 {
        self.expire(bucket, now);
        let leases = self.buckets.get(&bucket);
        leases.map_or(0, |leases| leases.iter().map(|lease| lease.slots).sum())
    }

    /// Returns how long until enough leases have expired for `wanted` slots to be free.
    pub(crate) fn free_in(
        &self,
        bucket: u64,
        wanted: u64,
        policy: &Concurrency,
        now: Time,
    ) -> Option<Duration> {
        let leases = self.buckets.get(&bucket)?;
        let mut taken: u64 = leases.iter().map(|lease| lease.slots).sum();
        let mut ends: Vec<_> = leases.iter().filter_map(|l| Some((l.ends?, l.slots))).collect();
        ends.sort_unstable();
        ends.into_iter().find_map(|(end, slots)| {
            taken -= slots;
            (taken.saturating_add(wanted) <= policy.slots()).then(|| end.since(now))
        })
    }

    /// Takes slots and returns the id of the lease.
    pub(crate) fn acquire(
        &mut self,
        bucket: u64,
        slots: u64,
        lease: Option<Duration>,
        now: Time,
    ) -> u64 {
        self.last_id += 1;
        self.set_total(self.total + 1);
        let ends = lease.map(|lease| now.after(lease));
        self.buckets.entry(bucket).or_default().push(Lease { id: self.last_id, slots, ends });
        self.last_id
    }

    /// Releases up to `slots` slots of a lease. Returns how many were still held.
    pub(crate) fn release(&mut self, bucket: u64, id: u64, slots: u64, now: Time) -> u64 {
        self.expire(bucket, now);
        let Some(leases) = self.buckets.get_mut(&bucket) else { return 0 };
        let Some(index) = leases.iter().position(|lease| lease.id == id) else { return 0 };
        let given = leases[index].slots.min(slots);
        leases[index].slots -= given;
        let ended = leases[index].slots == 0;
        if ended {
            leases.swap_remove(index);
        }
        if leases.is_empty() {
            self.buckets.remove(&bucket);
        }
        self.set_total(self.total - usize::from(ended));
        given
    }

    /// Renews a lease. Returns how many slots it still holds.
    pub(crate) fn renew(
        &mut self,
        bucket: u64,
        id: u64,
        lease: Option<Duration>,
        now: Time,
    ) -> u64 {
        self.expire(bucket, now);
        let leases = self.buckets.get_mut(&bucket).into_iter().flatten();
        let Some(found) = leases.into_iter().find(|lease| lease.id == id) else { return 0 };
        found.ends = lease.map(|lease| now.after(lease));
        found.slots
    }

    /// Forgets a bucket. Returns whether it had any lease.
    pub(crate) fn forget(&mut self, bucket: u64) -> bool {
        let leases = self.buckets.remove(&bucket).unwrap_or_default();
        self.set_total(self.total - leases.len());
        !leases.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
        self.set_total(0);
    }

    /// Forgets expired leases of all buckets.
    pub(crate) fn expire_all(&mut self, now: Time) {
        self.buckets.retain(|_, leases| {
            leases.retain(|lease| lease.ends.is_none_or(|end| end > now));
            !leases.is_empty()
        });
        self.set_total(self.buckets.values().map(Vec::len).sum());
    }

    fn expire(&mut self, bucket: u64, now: Time) {
        let Some(leases) = self.buckets.get_mut(&bucket) else { return };
        let before = leases.len();
        leases.retain(|lease| lease.ends.is_none_or(|end| end > now));
        let ended = before - leases.len();
        if leases.is_empty() {
            self.buckets.remove(&bucket);
        }
        self.set_total(self.total - ended);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use tidegate_core::Policy;

    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn leases_expire_unless_renewed() {
        let mut leases = Leases::new(Arc::new(LeaseBudget::new(9)));
        let lease = Some(Duration::from_secs(10));
        let first = leases.acquire(1, 2, lease, at(0));
        let second = leases.acquire(1, 1, lease, at(5));
        let kept = leases.acquire(1, 1, None, at(5));
        assert_eq!(leases.taken(1, at(9)), 4);
        assert_eq!(leases.renew(1, second, lease, at(9)), 1);
        assert_eq!(leases.taken(1, at(10)), 2);
        assert_eq!(leases.renew(1, first, lease, at(11)), 0);
        assert_eq!(leases.release(1, kept, 9, at(12)), 1);
        assert_eq!(leases.release(1, kept, 9, at(12)), 0);
        assert_eq!((leases.taken(1, at(18)), leases.taken(1, at(19))), (1, 0));
        assert_eq!(leases.len(), 0);
    }

    #[test]
    fn free_in_is_when_enough_leases_have_expired() {
        let Policy::Concurrency(policy) = Policy::concurrency(4, None).unwrap() else {
            unreachable!()
        };
        let mut leases = Leases::new(Arc::new(LeaseBudget::new(9)));
        leases.acquire(1, 2, Some(Duration::from_secs(30)), at(0));
        leases.acquire(1, 1, Some(Duration::from_secs(10)), at(0));
        leases.acquire(1, 1, None, at(0));
        assert_eq!(leases.free_in(1, 1, &policy, at(0)), Some(Duration::from_secs(10)));
        assert_eq!(leases.free_in(1, 2, &policy, at(5)), Some(Duration::from_secs(25)));
        assert_eq!(leases.free_in(1, 4, &policy, at(0)), None);
    }
}
