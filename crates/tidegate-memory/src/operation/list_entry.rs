//! The buckets of one list, each once, with what is asked of it and where it really lives.

use smallvec::SmallVec;
use tidegate_core::{
    Account, ChargeError, Limit, Now, Place, Policy, Receipt, Stamp, State, Target, Time,
};

use crate::operation::line_locks::SlotRef;
use crate::table::cell::Fingerprint;
use crate::table::segment::Segment;

/// One bucket of a list.
#[derive(Debug)]
pub(crate) struct ListEntry<'a> {
    pub(crate) hash: u64,
    pub(crate) target: Target<'a>,
    /// Cost of a charge or delta of a correction; equal buckets are summed.
    pub(crate) amount: i128,
    /// Where it lives in the table, unless it does not.
    pub(crate) segment: Option<Segment>,
    pub(crate) slot: Option<SlotRef>,
    /// There is no room in the table for it.
    pub(crate) no_slot: bool,
    pub(crate) place: Place,
    pub(crate) state: State,
    pub(crate) held_until: Time,
    /// A hold that has passed is part of the state now.
    pub(crate) reopened: bool,
    /// What the receipt charged is paid off and forgotten: there is nothing to give back.
    pub(crate) repaid: bool,
    /// The state was brought under another policy than it was written under. From now on it
    /// refills by that one, so it is to be written even if nothing is spent.
    pub(crate) converted: bool,
    /// There is no room for the key, and its limit has no shared buckets.
    pub(crate) rejected: bool,
    /// The limit that the store knows, when the caller's is older.
    pub(crate) newer: Option<Limit>,
}

impl ListEntry<'_> {
    /// The limit that decides.
    #[inline]
    pub(crate) fn limit(&self) -> &Limit {
        self.newer.as_ref().unwrap_or(self.target.limit)
    }

    #[inline]
    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.hash)
    }

    /// Whether its state is in the table: slots are leases, and those are beside it.
    #[inline]
    pub(crate) fn is_of_slots(&self) -> bool {
        matches!(self.limit().policy(), Policy::Concurrency(_))
    }

    /// The cost of a charge.
    #[inline]
    pub(crate) fn cost(&self) -> u64 {
        u64::try_from(self.amount).unwrap_or(u64::MAX)
    }

    /// The delta of a correction.
    pub(crate) fn delta(&self) -> i64 {
        i64::try_from(self.amount).unwrap_or(if self.amount < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The buckets of a list, each once, and for each item of the list its bucket.
#[derive(Debug)]
pub(crate) struct ListEntries<'a> {
    list: SmallVec<[ListEntry<'a>; 2]>,
    order: SmallVec<[u8; 8]>,
    /// For each item of the list its own hash, also if it was merged with another.
    hashes: SmallVec<[u64; 2]>,
}

impl<'a> ListEntries<'a> {
    /// Merges these targets and amounts; `hash` tells which are the same bucket.
    #[inline]
    pub(crate) fn new(
        items: impl Iterator<Item = (Target<'a>, i128)>,
        hash: impl Fn(&Target<'a>) -> u64,
    ) -> Self {
        let mut entries =
            Self { list: SmallVec::new(), order: SmallVec::new(), hashes: SmallVec::new() };
        for (target, amount) in items {
            let hash = hash(&target);
            let same = |entry: &ListEntry<'_>| entry.fingerprint() == Fingerprint::of(hash);
            let known = entries.list.iter().position(same);
            let index = known.unwrap_or_else(|| {
                entries.list.push(ListEntry {
                    hash,
                    target,
                    amount: 0,
                    segment: None,
                    slot: None,
                    no_slot: false,
                    place: Place::Own,
                    state: State::Fresh,
                    held_until: Time::ZERO,
                    reopened: false,
                    repaid: false,
                    converted: false,
                    rejected: false,
                    newer: None,
                });
                entries.list.len() - 1
            });
            entries.list[index].amount += amount;
            entries.order.push(index_byte(index));
            entries.hashes.push(hash);
        }
        entries
    }

    /// Merges an entry that turned out to be the same shared bucket as an earlier one with that.
    pub(crate) fn join(&mut self, index: usize, earlier: usize) {
        let amount = std::mem::take(&mut self.list[index].amount);
        let held_until = self.list[index].held_until;
        self.list[earlier].amount += amount;
        self.list[earlier].held_until = self.list[earlier].held_until.max(held_until);
        for entry in &mut self.order {
            if usize::from(*entry) == index {
                *entry = index_byte(earlier);
            }
        }
    }

    /// The stamp that a receipt holds for an entry: that of its first item.
    pub(crate) fn stamp_of<'r>(&self, index: usize, receipt: &'r Receipt) -> Option<&'r Stamp> {
        let item = self.order().position(|entry| entry == index)?;
        receipt.stamps().get(item)
    }

    /// For each item of the list how its charge left its bucket.
    #[inline]
    pub(crate) fn stamps(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.order().zip(&self.hashes).map(|(index, &bucket)| {
            let entry = &self.list[index];
            let generation = entry.limit().generation();
            Stamp { bucket, place: entry.place, generation, state: entry.state }
        })
    }

    /// For each item of the list, the index of its entry.
    #[inline]
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.order.iter().map(|&index| usize::from(index))
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[ListEntry<'a>] {
        &self.list
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [ListEntry<'a>] {
        &mut self.list
    }

    /// Whether a calendar quota is among them, so that the wall clock is needed.
    #[inline]
    pub(crate) fn need_wall(&self) -> bool {
        self.list.iter().any(|entry| matches!(entry.limit().policy(), Policy::Quota(_)))
    }

    /// The accounts to decide on, in the order of the entries.
    #[inline]
    pub(crate) fn accounts(&self, now: Now) -> Result<SmallVec<[Account<'_>; 2]>, ChargeError> {
        let mut accounts = SmallVec::with_capacity(self.list.len());
        for (index, entry) in self.list.iter().enumerate() {
            let policy = entry.limit().policy();
            let mut account = Account::new(policy, entry.state, entry.held_until, entry.cost());
            if let Policy::Quota(_) = policy {
                let windows = entry.target.windows.ok_or(ChargeError::NoWindows(index))?;
                if !account.open_window(&windows, now) {
                    return Err(ChargeError::OtherWindows(index));
                }
            }
            accounts.push(account);
        }
        Ok(accounts)
    }
}

/// A list has at most 16 items.
#[expect(clippy::cast_possible_truncation)]
const fn index_byte(index: usize) -> u8 {
    index as u8
}
