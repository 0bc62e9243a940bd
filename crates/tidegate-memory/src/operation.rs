//! The operations of the contract. Each takes its locks once and decides under all of them.

pub(crate) mod bare_decision;
mod batch;
mod fast_path;
pub(crate) mod line_locks;
mod list_entry;
mod locked;
mod open;

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::{DecisionMode, Settled};
use tidegate_core::{
    Account, Charge, Correction, Decision, Denial, Grant, MAX_SPAN, Now, Place, Policy, Receipt,
    ReceiptError, Settlement, Stamp, State, StoreError, Target, WallTime, decide,
};

use crate::side_table::SideTable;
use crate::store::MemoryStore;
use crate::table::cell::Fingerprint;
use list_entry::{ListEntries, ListEntry};
use locked::Locked;

/// What to do with the leases of a receipt.
#[derive(Clone, Copy)]
pub(crate) enum LeaseAct {
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
                let found = self.table.fetch(fast.fingerprint());
                self.take_fast(fast, found, self.early_now())
            }),
            ([a, b], DecisionMode::Take) => self.take_list_fast(&[*a, *b]),
            ([a, b, c], DecisionMode::Take) => self.take_list_fast(&[*a, *b, *c]),
            ([a, b, c, d], DecisionMode::Take) => self.take_list_fast(&[*a, *b, *c, *d]),
            _ => None,
        };
        if let Some(decision) = fast {
            return Ok(decision);
        }
        self.decide_any(charges, mode)
    }

    /// Decides whatever the charges are on.
    pub(crate) fn decide_any(
        &self,
        charges: &[Charge<'_>],
        mode: DecisionMode,
    ) -> Result<Decision, StoreError> {
        decide::check_list(charges.iter().map(|charge| charge.target.key))?;
        let items = charges.iter().map(|charge| (charge.target, i128::from(charge.cost)));
        let mut entries = ListEntries::new(items, |target| self.hash(target));
        let mut locked = Locked::new(self, &mut entries);
        let now = self.moment(&entries);
        locked.open(&mut entries, None, now)?;
        let mut accounts = entries.accounts(now)?;
        for (account, entry) in accounts.iter_mut().zip(entries.iter()) {
            locked.hint_at_leases(account, entry, now.time);
        }
        let open = entries.iter().all(|entry| !entry.rejected || entry.amount == 0);
        let start = if open { decide::start(&accounts, mode.horizon(), now) } else { None };
        let Some(start) = start else {
            let mut outcomes = decide::refused(&accounts, entries.order(), now);
            locked.mark_rejected(&mut outcomes, &entries, now.time);
            if !matches!(mode, DecisionMode::Peek) {
                let mended = |(account, entry)| mended(account, entry, now);
                let states: States = accounts.into_iter().zip(entries.iter()).map(mended).collect();
                write_back(&mut entries, &states, &mut locked, now);
                locked.drop_reopened(&entries);
            }
            return Ok(Decision::Denied(Denial::new(outcomes)));
        };
        decide::spend(&mut accounts, start, now);
        let outcomes = decide::granted(&accounts, entries.order(), now);
        if let DecisionMode::Peek = mode {
            let grant = Grant::new(outcomes, Duration::ZERO, Receipt::default());
            return Ok(Decision::Allowed(grant));
        }
        let states: States = accounts.into_iter().map(|a| Some(a.state())).collect();
        write_back(&mut entries, &states, &mut locked, now);
        let receipt = Receipt::new(self.issuer, start, entries.stamps());
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
        let mut locked = Locked::to_settle(self, &mut entries, receipt);
        let now = self.moment(&entries);
        locked.open(&mut entries, receipt, now)?;
        let mut accounts = entries.accounts(now)?;
        let mut results: SmallVec<[Settled; 2]> = SmallVec::new();
        for (index, (account, entry)) in accounts.iter_mut().zip(entries.iter()).enumerate() {
            let stamp = receipt.and_then(|receipt| entries.stamp_of(index, receipt));
            let spend = stamp.zip(receipt.map(Receipt::start));
            let of_slots = matches!(stamp, Some(Stamp { place: Place::Slot(_), .. }));
            results.push(if account.concurrency().is_some() || of_slots {
                let settled = locked.give_slots_back(entry, stamp, now.time);
                if account.concurrency().is_some() {
                    account.set_taken(locked.taken(entry, now.time));
                }
                settled
            } else if entry.rejected || (entry.repaid && entry.amount < 0) {
                Settled::nothing_of(entry.delta())
            } else {
                account.settle(entry.delta(), spend, entry.limit().generation(), now)
            });
        }
        let settlement = decide::settlement(&accounts, &results, entries.order(), now);
        // Slots are not charged after the fact: what was given back has been given back already.
        let settled =
            |account: Account<'_>| account.concurrency().is_none().then(|| account.state());
        let states: States = accounts.into_iter().map(settled).collect();
        write_back(&mut entries, &states, &mut locked, now);
        self.saturated.fetch_add(settlement.saturated as u64, Ordering::Relaxed);
        Ok(settlement)
    }

    /// Releases or renews every lease of a receipt.
    pub(crate) fn each_lease(
        &self,
        targets: &[Target<'_>],
        receipt: &Receipt,
        act: LeaseAct,
    ) -> Result<u64, StoreError> {
        decide::check_list(targets.iter().map(|target| target.key))?;
        self.check(receipt, targets.iter().copied())?;
        let entries = ListEntries::new(targets.iter().map(|&target| (target, 0)), |t| self.hash(t));
        let now = self.clock.now();
        let mut slots = 0;
        for (index, entry) in entries.iter().enumerate() {
            let place = entries.stamp_of(index, receipt).map(|stamp| stamp.place);
            let Some(Place::Slot(id)) = place else { continue };
            // Each lease is released by itself: there is nothing to decide about all of them.
            let leases = &mut self.side_table.lock(SideTable::part_of(entry.hash)).leases;
            // A slot is given back whatever the limit has become meanwhile.
            slots += match (act, entry.limit().policy()) {
                (LeaseAct::Release, _) => leases.release(entry.hash, id, u64::MAX, now),
                (LeaseAct::Renew, Policy::Concurrency(policy)) => {
                    leases.renew(entry.hash, id, policy.lease(), now)
                }
                (LeaseAct::Renew, _) => 0,
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
        // Decisions on the table look at the filter under the lock of the line.
        let _line = self.table.lock_home(Fingerprint::of(hash));
        let now = self.clock.now_after();
        let until = now.after(span.min(MAX_SPAN));
        let hold = (until, refill, target.limit.generation());
        let held = self.side_table.hold(hash, hold, now);
        held.map(|until| until.since(now)).ok_or(StoreError::Full)
    }

    pub(crate) fn reset(&self, target: &Target<'_>) -> bool {
        let mut entries =
            ListEntries::new(std::iter::once((*target, 0)), |target| self.hash(target));
        let mut locked = Locked::to_forget(self, &mut entries);
        entries.iter().any(|entry| locked.forget(entry))
    }

    /// Refuses a receipt of another store, or for other buckets than these.
    fn check<'a>(
        &self,
        receipt: &Receipt,
        targets: impl ExactSizeIterator<Item = Target<'a>>,
    ) -> Result<(), ReceiptError> {
        receipt.check(self.issuer, targets.map(|target| self.hash(&target)))
    }

    #[inline]
    fn moment(&self, entries: &ListEntries<'_>) -> Now {
        let wall = if entries.need_wall() { self.clock.wall() } else { WallTime::default() };
        Now { time: self.clock.now_after(), wall }
    }

    #[inline]
    pub(crate) fn hash(&self, target: &Target<'_>) -> u64 {
        self.hasher.bucket(target.limit, target.key)
    }
}

/// For each entry the state to write, if it is to be written.
type States = SmallVec<[Option<State>; 2]>;

/// Writes states to where their entries live.
#[inline]
fn write_back(entries: &mut ListEntries<'_>, states: &States, locked: &mut Locked<'_>, now: Now) {
    for (entry, state) in entries.iter_mut().zip(states) {
        if let (Some(state), true) = (state, entry.amount != 0 && !entry.rejected) {
            entry.state = *state;
            locked.write(entry, now);
        }
    }
}

/// The state that a denial leaves, if it changes: nothing is spent, but a bucket comes under the
/// present policy, and what a clock that stepped back has left is brought back. The time of a
/// shared bucket may have been read by another thread later than ours: it is left alone.
fn mended(mut account: Account<'_>, entry: &ListEntry<'_>, now: Now) -> Option<State> {
    if account.concurrency().is_some() || entry.place == Place::Shared {
        return None;
    }
    (account.repair(now) || entry.converted).then(|| account.state())
}
