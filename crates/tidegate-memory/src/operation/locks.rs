//! The locks of one operation, and reading and writing its buckets under them.
//!
//! Locks are acquired in a fixed order, so lists cannot deadlock: lines by number, then shards of
//! the side table by number, then the shared buckets, then the newest limits. The clock is read
//! after the lines are locked: an earlier reading could be older than what another thread has
//! written meanwhile.

use std::sync::PoisonError;

use smallvec::SmallVec;
use tidegate_core::decide::EntrySettlement;
use tidegate_core::{
    BucketEntry, BucketLocation, ChargeRecord, Now, Outcome, Outcomes, Policy, Receipt, Retry,
    State, Time,
};

use crate::operation::line_locks::{LineLocks, NewKeys, lock_lines};
use crate::operation::list_entry::{ListEntries, ListEntry};
use crate::side_table::{SideShard, SideTable};
use crate::store::MemoryStore;
use crate::sync::MutexGuard;
use crate::table::cell::Cell;
use crate::table::overflow::SharedSets;
use crate::table::{NEVER, fresh_at};

/// Which shards of the side table to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShardsToLock {
    /// Shards of concurrency limits, and of keys that may be held.
    Needed,
    /// Shards of every key.
    All,
}

/// The locks of one operation.
pub(crate) struct OperationLocks<'s> {
    pub(super) store: &'s MemoryStore,
    // Released in this order.
    shared: Option<MutexGuard<'s, SharedSets>>,
    shards: SmallVec<[(usize, MutexGuard<'s, SideShard>); 1]>,
    pub(super) lines: LineLocks<'s>,
}

impl<'s> OperationLocks<'s> {
    /// Locks what a decision needs and makes room for new keys.
    #[inline]
    pub(crate) fn new(store: &'s MemoryStore, entries: &mut ListEntries<'_>) -> Self {
        Self::lock(store, entries, NewKeys::Insert, ShardsToLock::Needed)
    }

    /// Locks what a settlement needs. The receipt may have slots of a limit whose kind has changed.
    pub(crate) fn for_settle(
        store: &'s MemoryStore,
        entries: &mut ListEntries<'_>,
        receipt: Option<&Receipt>,
    ) -> Self {
        let mut records = receipt.into_iter().flat_map(Receipt::charges);
        let slots = records.any(|record| matches!(record.location, BucketLocation::Slot(_)));
        let shards = if slots { ShardsToLock::All } else { ShardsToLock::Needed };
        Self::lock(store, entries, NewKeys::Insert, shards)
    }

    /// Locks everything that may be stored for a key, to forget it.
    pub(crate) fn for_reset(store: &'s MemoryStore, entries: &mut ListEntries<'_>) -> Self {
        Self::lock(store, entries, NewKeys::Skip, ShardsToLock::All)
    }

    fn lock(
        store: &'s MemoryStore,
        entries: &mut ListEntries<'_>,
        new_keys: NewKeys,
        shards: ShardsToLock,
    ) -> Self {
        let lines = lock_lines(store, entries, new_keys);
        let wanted = |entry: &&ListEntry<'_>| {
            shards == ShardsToLock::All
                || entry.is_concurrency()
                || store.side_table.may_be_held(entry.hash)
        };
        let mut numbers: SmallVec<[usize; 1]> =
            entries.iter().filter(wanted).map(|entry| SideTable::shard_of(entry.hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.iter().map(|&shard| (shard, store.side_table.lock(shard))).collect();
        Self { store, shared: None, shards, lines }
    }

    /// Sets when enough leases will have expired, if there are too few free slots.
    #[inline]
    pub(crate) fn set_slot_hint(
        &mut self,
        bucket: &mut BucketEntry<'_>,
        entry: &ListEntry<'_>,
        now: Time,
    ) {
        if let (Some(policy), Some(shard)) = (bucket.concurrency(), self.shard(entry)) {
            let free_in = shard.leases.free_in(entry.hash, entry.cost(), policy, now);
            *bucket = bucket.slots_free_in(free_in);
        }
    }

    /// Replaces the outcomes of keys for which there is no room.
    pub(crate) fn mark_rejected(
        &mut self,
        outcomes: &mut Outcomes,
        entries: &ListEntries<'_>,
        now: Time,
    ) {
        for (outcome, index) in outcomes.iter_mut().zip(entries.order()) {
            let entry = &entries[index];
            if entry.rejected && entry.amount > 0 {
                let retry = Retry::After(self.store.table.room_hint(entry.fingerprint(), now));
                *outcome = Outcome::new(outcome.capacity, 0, outcome.reset, Some(retry));
            }
        }
    }

    /// Writes the state of an entry to its location.
    #[inline]
    pub(crate) fn write(&mut self, entry: &mut ListEntry<'_>, now: Now) {
        match (entry.location, *entry.limit().policy()) {
            (BucketLocation::Shared, _) => {
                self.shared().write(entry.limit(), entry.hash, entry.state);
                self.note_shared(entry, now);
                self.remember_newest(entry);
            }
            (_, Policy::Concurrency(policy)) if entry.amount > 0 => {
                let (hash, cost) = (entry.hash, entry.cost());
                if let Some(shard) = self.shard(entry) {
                    let lease = shard.leases.acquire(hash, cost, policy.lease(), now.time);
                    entry.location = BucketLocation::Slot(lease);
                }
            }
            (_, Policy::Concurrency(_)) => {}
            _ => {
                self.write_own(entry, now);
                self.remember_newest(entry);
            }
        }
        if entry.hold_merged {
            self.drop_hold(entry);
        }
    }

    /// Forgets holds that were merged into the state of their bucket.
    pub(crate) fn drop_merged_holds(&mut self, entries: &ListEntries<'_>) {
        for entry in entries.iter() {
            if entry.hold_merged && entry.amount != 0 && entry.location != BucketLocation::Shared {
                self.drop_hold(entry);
            }
        }
    }

    /// Forgets a key. Returns whether anything was stored for it.
    pub(crate) fn forget(&mut self, entry: &ListEntry<'_>) -> bool {
        if let Some(slot) = entry.slot {
            self.lines.vacate(slot);
        }
        let side_table = &self.store.side_table;
        let in_side_table = self.shard(entry).is_some_and(|shard| {
            let (hold, lease) =
                (side_table.release(shard, entry.hash), shard.leases.forget(entry.hash));
            hold | lease
        });
        in_side_table | entry.slot.is_some()
    }

    /// Releases slots of the lease in `record`. A settlement cannot charge slots.
    pub(crate) fn release_slots(
        &mut self,
        entry: &ListEntry<'_>,
        record: Option<&ChargeRecord>,
        now: Time,
    ) -> EntrySettlement {
        let slots = entry.delta().unsigned_abs();
        match (record.map(|record| record.location), self.shard(entry)) {
            (Some(BucketLocation::Slot(id)), Some(shard)) if entry.amount < 0 => {
                EntrySettlement::slots_released(shard.leases.release(entry.hash, id, slots, now))
            }
            _ => EntrySettlement::without_effect(entry.delta()),
        }
    }

    /// Returns the number of slots taken.
    pub(crate) fn taken(&mut self, entry: &ListEntry<'_>, now: Time) -> u64 {
        self.shard(entry).map_or(0, |shard| shard.leases.taken(entry.hash, now))
    }

    fn write_own(&mut self, entry: &ListEntry<'_>, now: Now) {
        let Some(slot) = entry.slot else { return };
        if entry.state.is_fresh(now) {
            self.lines.vacate(slot);
            return;
        }
        let generation = entry.limit().generation();
        if let Some(cell) = Cell::new(entry.fingerprint(), entry.state, generation) {
            self.lines.set(slot, cell);
        }
        if let Some(segment) = entry.segment {
            self.store.table.header(segment).note_full_at(match entry.state {
                State::Bucket(tat) => Time::from_nanos(tat.ns),
                State::Allowance { .. } => NEVER,
                // The end of a calendar window is in wall time; the next sweep determines it.
                _ => now.time,
            });
        }
    }

    /// Notes that keys of this segment may have debt on a shared bucket.
    fn note_shared(&self, entry: &ListEntry<'_>, now: Now) {
        if let Some(segment) = entry.segment {
            let until = fresh_at(entry.state, now.time, || now.wall);
            self.store.table.header(segment).note_shared_debt(until);
        }
    }

    pub(super) fn drop_hold(&mut self, entry: &ListEntry<'_>) {
        let side_table = &self.store.side_table;
        if let Some(shard) = self.shard(entry) {
            side_table.release(shard, entry.hash);
        }
    }

    /// Keeps a revised limit for callers that still use an older revision.
    fn remember_newest(&self, entry: &ListEntry<'_>) {
        let (limit, generation) = (entry.limit(), entry.limit().generation());
        if generation == 0 {
            return;
        }
        let known = |limit: &tidegate_core::Limit| limit.generation() >= generation;
        let newest = self.store.newest.read().unwrap_or_else(PoisonError::into_inner);
        let up_to_date = newest.get(limit.identity()).is_some_and(known);
        drop(newest);
        if !up_to_date {
            let mut newest = self.store.newest.write().unwrap_or_else(PoisonError::into_inner);
            if !newest.get(limit.identity()).is_some_and(known) {
                newest.insert(limit.shared_identity(), limit.clone());
            }
        }
    }

    /// Returns the shard of an entry, if it is locked.
    #[inline]
    pub(super) fn shard(&mut self, entry: &ListEntry<'_>) -> Option<&mut SideShard> {
        let number = SideTable::shard_of(entry.hash);
        let mut shards = self.shards.iter_mut();
        shards.find(|(shard, _)| *shard == number).map(|(_, shard)| &mut **shard)
    }

    pub(super) fn shared(&mut self) -> &mut SharedSets {
        let store = self.store;
        self.shared.get_or_insert_with(|| store.shared.lock())
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Charge, Key, Limit, Operation};

    use super::*;
    use crate::clock::ManualClock;

    /// Regression: the sweep that made room for new keys of a list evicted other keys of the same
    /// list, which were then inserted again. The table had no vacant cell left and a probe did not
    /// end.
    #[test]
    fn room_is_made_for_every_key_of_a_list() {
        let clock = ManualClock::new();
        let builder = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone()).seed(7);
        let store = builder.build().unwrap();
        let limit = Limit::named("a", Policy::per_second(1).build().unwrap()).unwrap();
        let names: Vec<String> = (0..32).map(|number: u32| number.to_string()).collect();
        // Seven keys of the list and nine others fill the smallest segment.
        for name in names[..7].iter().chain(&names[16..25]) {
            assert!(store.take_one(&limit, Key::new(name), 1).is_allowed());
        }
        clock.advance(Duration::from_secs(2));
        let charges: Vec<_> =
            names[..16].iter().map(|name| Charge::new(&limit, name.as_str(), 1)).collect();
        assert!(store.execute(&Operation::Take(&charges)).is_ok());
        assert_eq!((store.len(), store.stats().evicted), (16, 16));
        assert_eq!(store.stats().overflowed, 0);
    }
}
