//! Loading the state of every key of a list, under its locks.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tidegate_core::{BucketLocation, Now, Receipt, State, StoreError, Time};

use super::locks::OperationLocks;
use crate::builder::Overflow;
use crate::operation::list_entry::{ListEntries, ListEntry};
use crate::side_table::SideTable;
use crate::side_table::holds::Hold;
use crate::snapshot::convert;
use crate::table::cell::Cell;
use crate::table::overflow::shared_bucket_index;

impl OperationLocks<'_> {
    /// Loads the state of every entry, its location, and the limit that decides.
    #[inline]
    pub(crate) fn load_states(
        &mut self,
        entries: &mut ListEntries<'_>,
        receipt: Option<&Receipt>,
        now: Now,
    ) -> Result<(), StoreError> {
        for index in 0..entries.len() {
            let record = receipt.and_then(|receipt| entries.record_of(index, receipt));
            let entry = &mut entries[index];
            let hold = self.current_hold(entry, now.time);
            if entry.is_concurrency() {
                self.load_slots(entry, now.time)?;
                apply_hold(entry, hold, now.time);
                continue;
            }
            let known = entry.slot.filter(|slot| !self.lines.is_new(*slot));
            let own = known.map(|slot| self.lines.cell(slot));
            let charged = match record.map(|record| record.location) {
                Some(BucketLocation::Shared) => self.load_charged_shared(entry),
                _ => None,
            };
            let found = match charged.or(own) {
                Some(found) => Some(found),
                None => self.load_new_key(entry, now),
            };
            match found {
                Some(cell) => self.load_cell(entry, cell, now.time),
                None => entry.rejected = true,
            }
            apply_hold(entry, hold, now.time);
            if entry.location == BucketLocation::Shared {
                merge_shared(entries, index);
            }
        }
        Ok(())
    }

    /// Returns the hold of a key. Forgets a hold that no longer has an effect, unless the clock may
    /// step back to when it had.
    fn current_hold(&mut self, entry: &ListEntry<'_>, now: Time) -> Option<Hold> {
        let hold = self.shard(entry).and_then(|shard| SideTable::get_hold(shard, entry.hash))?;
        if hold.lapses > now || !self.store.clock.is_monotonic() {
            return Some(hold);
        }
        self.drop_hold(entry);
        None
    }

    fn load_slots(&mut self, entry: &mut ListEntry<'_>, now: Time) -> Result<(), StoreError> {
        let Some(shard) = self.shard(entry) else { return Err(StoreError::Full) };
        if entry.amount > 0 && !shard.leases.has_capacity(now) {
            return Err(StoreError::Full);
        }
        entry.state = State::Concurrency { taken: shard.leases.taken(entry.hash, now) };
        Ok(())
    }

    /// Loads a key that is not in the table: it is new, or was evicted when its bucket was full.
    fn load_new_key(&mut self, entry: &mut ListEntry<'_>, now: Now) -> Option<Cell> {
        if !entry.no_slot {
            // Debt on a shared bucket moves with the key, so that the end of a flood does not
            // cancel it.
            let may_owe = entry.segment.is_some_and(|segment| {
                now.time < self.store.table.header(segment).times().shared_debt_until
            });
            let owed = if may_owe { self.shared().get(entry.limit(), entry.hash) } else { None };
            return Some(owed.filter(|cell| !cell.state().is_fresh(now)).unwrap_or_default());
        }
        self.store.overflowed.fetch_add(1, Ordering::Relaxed);
        match self.store.overflow {
            Overflow::Shared => self.load_shared(entry, now),
            Overflow::Deny => None,
        }
    }

    /// Loads the shared bucket of a key for which there is no room.
    fn load_shared(&mut self, entry: &mut ListEntry<'_>, now: Now) -> Option<Cell> {
        let found = self.shared().open(entry.limit(), entry.hash, now);
        if found.is_some() {
            entry.location = BucketLocation::Shared;
        }
        found
    }

    /// Loads the shared bucket named by a receipt. If its set is gone, the bucket was full again:
    /// there is nothing to refund, and a further charge goes to the key's own bucket.
    fn load_charged_shared(&mut self, entry: &mut ListEntry<'_>) -> Option<Cell> {
        let found = self.shared().get(entry.limit(), entry.hash);
        if found.is_some() {
            entry.location = BucketLocation::Shared;
        } else {
            entry.repaid = true;
        }
        found
    }

    /// Converts a stored state to the policy that decides: the newer one of caller and store.
    #[inline]
    fn load_cell(&mut self, entry: &mut ListEntry<'_>, cell: Cell, now: Time) {
        if cell.tag().is_vacant() {
            entry.state = State::Fresh;
            return;
        }
        if let Some(version) = cell.tag().restored_version() {
            let history = self.store.restored.get(entry.limit().identity());
            entry.state = convert::converted(cell.state(), version, history, entry.limit(), now);
            entry.converted = true;
            return;
        }
        let generation = cell.tag().generation_near(entry.limit().generation());
        if generation > entry.limit().generation() {
            let newest = self.store.newest.read().unwrap_or_else(PoisonError::into_inner);
            entry.newer = newest.get(entry.limit().identity()).cloned();
        }
        let generation = cell.tag().generation_near(entry.limit().generation());
        entry.converted = generation != entry.limit().generation();
        entry.state = cell.state().converted_to(entry.limit(), generation, now);
    }
}

/// Applies the hold of a key. A hold that ended under an older policy is converted to the current
/// one, like the tokens of the bucket; it must not close the key a second time.
fn apply_hold(entry: &mut ListEntry<'_>, hold: Option<Hold>, now: Time) {
    let Some(Hold { until, generation, .. }) = hold else { return };
    let limit = entry.limit();
    if until > now || generation == limit.generation() {
        entry.held_until = until;
        return;
    }
    let after_hold = State::after_hold(limit, generation, until, now);
    entry.state = entry.state.stricter(after_hold);
    (entry.hold_merged, entry.converted) = (true, true);
}

/// Merges an entry on a shared bucket with an earlier entry on the same one.
fn merge_shared(entries: &mut ListEntries<'_>, index: usize) {
    let (before, entry) = entries.split_at(index);
    let same = |other: &ListEntry<'_>| {
        other.location == BucketLocation::Shared
            && other.target.limit == entry[0].target.limit
            && shared_bucket_index(other.hash) == shared_bucket_index(entry[0].hash)
    };
    if let Some(earlier) = before.iter().position(same) {
        let held_until = entries[index].held_until.max(entries[earlier].held_until);
        entries[earlier].held_until = held_until;
        entries.merge(index, earlier);
    }
}
