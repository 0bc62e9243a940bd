//! Operations of the store contract. Each acquires its locks once and decides under all of them.

pub(crate) mod bare_decision;
mod batch;
mod fast_path;
pub(crate) mod line_locks;
mod list_entry;
mod load_states;
mod locks;

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::{DecisionMode, EntrySettlement};
use tidegate_core::{
    BucketEntry, BucketLocation, Charge, ChargeRecord, Correction, Decision, Denial, Grant,
    MAX_SPAN, Now, Policy, Receipt, ReceiptError, Settlement, State, StoreError, Target, WallTime,
    decide,
};

use crate::side_table::SideTable;
use crate::store::MemoryStore;
use crate::table::cell::Fingerprint;
use list_entry::{ListEntries, ListEntry};
use locks::OperationLocks;

/// What to do with the leases of a receipt.
#[derive(Clone, Copy)]
pub(crate) enum LeaseAction {
    Release,
    Renew,
}

impl MemoryStore {
    #[inline]
    pub(crate) fn decide(
        &self,
        charges: &[Charge<'_>],
        mode: DecisionMode,
    ) -> Result<Decision, StoreError> {
        let fast = match (charges, mode) {
            ([charge], DecisionMode::Take) => self.fast_charge(charge).and_then(|fast| {
                let found = self.table.look_up_and_prefetch(fast.fingerprint());
                self.take_fast(fast, found, self.now_before_lock())
            }),
            ([a, b], DecisionMode::Take) => self.take_list_fast(&[*a, *b]),
            ([a, b, c], DecisionMode::Take) => self.take_list_fast(&[*a, *b, *c]),
            ([a, b, c, d], DecisionMode::Take) => self.take_list_fast(&[*a, *b, *c, *d]),
            _ => None,
        };
        if let Some(decision) = fast {
            return Ok(decision);
        }
        self.decide_general(charges, mode)
    }

    /// Decides charges of any kind, without the fast path.
    pub(crate) fn decide_general(
        &self,
        charges: &[Charge<'_>],
        mode: DecisionMode,
    ) -> Result<Decision, StoreError> {
        decide::check_list(charges.iter().map(|charge| charge.target.key))?;
        let items = charges.iter().map(|charge| (charge.target, i128::from(charge.cost)));
        let mut entries = ListEntries::new(items, |target| self.hash(target));
        let mut locked = OperationLocks::new(self, &mut entries);
        let now = self.read_now(&entries);
        locked.load_states(&mut entries, None, now)?;
        let mut buckets = entries.bucket_entries(now)?;
        for (bucket, entry) in buckets.iter_mut().zip(entries.iter()) {
            locked.set_slot_hint(bucket, entry, now.time);
        }
        let none_rejected = entries.iter().all(|entry| !entry.rejected || entry.amount == 0);
        let start = if none_rejected {
            decide::earliest_start(&buckets, mode.horizon(), now)
        } else {
            None
        };
        let Some(start) = start else {
            let mut outcomes = decide::denied_outcomes(&buckets, entries.order(), now);
            locked.mark_rejected(&mut outcomes, &entries, now.time);
            if !matches!(mode, DecisionMode::Peek) {
                let after_denial = |(bucket, entry)| state_after_denial(bucket, entry, now);
                let states: States =
                    buckets.into_iter().zip(entries.iter()).map(after_denial).collect();
                write_back(&mut entries, &states, &mut locked, now);
                locked.drop_merged_holds(&entries);
            }
            return Ok(Decision::Denied(Denial::new(outcomes)));
        };
        decide::spend(&mut buckets, start, now);
        let outcomes = decide::granted_outcomes(&buckets, entries.order(), now);
        if let DecisionMode::Peek = mode {
            let grant = Grant::new(outcomes, Duration::ZERO, Receipt::default());
            return Ok(Decision::Allowed(grant));
        }
        let states: States = buckets.into_iter().map(|a| Some(a.state())).collect();
        write_back(&mut entries, &states, &mut locked, now);
        let receipt = Receipt::new(self.issuer, start, entries.records());
        Ok(Decision::Allowed(Grant::new(outcomes, start.since(now.time), receipt)))
    }

    pub(crate) fn settle(
        &self,
        corrections: &[Correction<'_>],
        receipt: Option<&Receipt>,
    ) -> Result<Settlement, StoreError> {
        decide::check_list(corrections.iter().map(|correction| correction.target.key))?;
        let targets = || corrections.iter().map(|correction| correction.target);
        if let Some(receipt) = receipt {
            self.check(receipt, targets())?;
        }
        let amounts = corrections.iter().map(|correction| i128::from(correction.delta));
        let mut entries = ListEntries::new(targets().zip(amounts), |target| self.hash(target));
        let mut locked = OperationLocks::for_settle(self, &mut entries, receipt);
        let now = self.read_now(&entries);
        locked.load_states(&mut entries, receipt, now)?;
        let mut buckets = entries.bucket_entries(now)?;
        let mut results: SmallVec<[EntrySettlement; 2]> = SmallVec::new();
        for (index, (bucket, entry)) in buckets.iter_mut().zip(entries.iter()).enumerate() {
            let record = receipt.and_then(|receipt| entries.record_of(index, receipt));
            let spend = record.zip(receipt.map(Receipt::start));
            let charged_slots =
                matches!(record, Some(ChargeRecord { location: BucketLocation::Slot(_), .. }));
            results.push(if bucket.concurrency().is_some() || charged_slots {
                let settled = locked.release_slots(entry, record, now.time);
                if bucket.concurrency().is_some() {
                    bucket.set_taken(locked.taken(entry, now.time));
                }
                settled
            } else if entry.rejected || (entry.repaid && entry.amount < 0) {
                EntrySettlement::without_effect(entry.delta())
            } else {
                bucket.settle(entry.delta(), spend, entry.limit().generation(), now)
            });
        }
        let settlement = decide::settlement(&buckets, &results, entries.order(), now);
        // Slots cannot be charged in a settlement, and released slots are already released.
        let settled =
            |bucket: BucketEntry<'_>| bucket.concurrency().is_none().then(|| bucket.state());
        let states: States = buckets.into_iter().map(settled).collect();
        write_back(&mut entries, &states, &mut locked, now);
        self.saturated.fetch_add(settlement.saturated as u64, Ordering::Relaxed);
        Ok(settlement)
    }

    /// Releases or renews every lease of a receipt.
    pub(crate) fn update_leases(
        &self,
        targets: &[Target<'_>],
        receipt: &Receipt,
        action: LeaseAction,
    ) -> Result<u64, StoreError> {
        decide::check_list(targets.iter().map(|target| target.key))?;
        self.check(receipt, targets.iter().copied())?;
        let entries = ListEntries::new(targets.iter().map(|&target| (target, 0)), |t| self.hash(t));
        let now = self.clock.now();
        let mut slots = 0;
        for (index, entry) in entries.iter().enumerate() {
            let location = entries.record_of(index, receipt).map(|record| record.location);
            let Some(BucketLocation::Slot(id)) = location else { continue };
            // Each lease is updated on its own; there is no joint decision.
            let leases = &mut self.side_table.lock(SideTable::shard_of(entry.hash)).leases;
            // Slots are released even if the limit is no longer a concurrency limit.
            slots += match (action, entry.limit().policy()) {
                (LeaseAction::Release, _) => leases.release(entry.hash, id, u64::MAX, now),
                (LeaseAction::Renew, Policy::Concurrency(policy)) => {
                    leases.renew(entry.hash, id, policy.lease(), now)
                }
                (LeaseAction::Renew, _) => 0,
            };
        }
        Ok(slots)
    }

    pub(crate) fn hold(&self, target: &Target<'_>, span: Duration) -> Result<Duration, StoreError> {
        let hash = self.hash(target);
        let refill = match target.limit.policy() {
            Policy::Bucket(bucket) => Duration::from_nanos(bucket.time_to_full().ceil()),
            _ => Duration::ZERO,
        };
        // Decisions read the filter of holds under the lock of the line.
        let _line = self.table.lock_home(Fingerprint::from_hash(hash));
        let now = self.clock.now_ordered();
        let until = now.after(span.min(MAX_SPAN));
        let hold = (until, refill, target.limit.generation());
        let held = self.side_table.hold(hash, hold, now);
        held.map(|until| until.since(now)).ok_or(StoreError::Full)
    }

    pub(crate) fn reset(&self, target: &Target<'_>) -> bool {
        let mut entries =
            ListEntries::new(std::iter::once((*target, 0)), |target| self.hash(target));
        let mut locked = OperationLocks::for_reset(self, &mut entries);
        entries.iter().any(|entry| locked.forget(entry))
    }

    /// Checks that this store issued the receipt for exactly these buckets.
    fn check<'a>(
        &self,
        receipt: &Receipt,
        targets: impl ExactSizeIterator<Item = Target<'a>>,
    ) -> Result<(), ReceiptError> {
        receipt.check(self.issuer, targets.map(|target| self.hash(&target)))
    }

    #[inline]
    fn read_now(&self, entries: &ListEntries<'_>) -> Now {
        let wall = if entries.needs_wall_time() { self.clock.wall() } else { WallTime::default() };
        Now { time: self.clock.now_ordered(), wall }
    }

    #[inline]
    pub(crate) fn hash(&self, target: &Target<'_>) -> u64 {
        self.hasher.bucket(target.limit, target.key)
    }
}

/// State to write for each entry, if any.
type States = SmallVec<[Option<State>; 2]>;

/// Writes the states of the entries.
#[inline]
fn write_back(
    entries: &mut ListEntries<'_>,
    states: &States,
    locked: &mut OperationLocks<'_>,
    now: Now,
) {
    for (entry, state) in entries.iter_mut().zip(states) {
        if let (Some(state), true) = (state, entry.amount != 0 && !entry.rejected) {
            entry.state = *state;
            locked.write(entry, now);
        }
    }
}

/// Returns the state to write after a denial, if it changed. Nothing is spent, but the bucket may
/// have been converted to the current policy, or its arrival time lowered because the clock stepped
/// back. A shared bucket is left alone: another thread may have written it with a later clock
/// reading than ours.
fn state_after_denial(
    mut bucket: BucketEntry<'_>,
    entry: &ListEntry<'_>,
    now: Now,
) -> Option<State> {
    if bucket.concurrency().is_some() || entry.location == BucketLocation::Shared {
        return None;
    }
    (bucket.repair(now) || entry.converted).then(|| bucket.state())
}
