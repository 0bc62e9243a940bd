//! The distinct buckets of one list, with the amount for each and where its state is stored.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tidegate_core::list::MergedList;
use tidegate_core::{
    BucketEntry, BucketLocation, ChargeError, ChargeRecord, Limit, Now, Policy, State, Target, Time,
};

use crate::operation::line_locks::SlotRef;
use crate::table::cell::Fingerprint;
use crate::table::segment::Segment;

/// One bucket of a list and the amount for it.
pub(crate) type ListEntry<'a> = tidegate_core::list::ListEntry<ListedBucket<'a>>;

/// One bucket of a list.
#[derive(Debug)]
pub(crate) struct ListedBucket<'a> {
    pub(crate) hash: u64,
    pub(crate) target: Target<'a>,
    /// Position in the table, if it is there.
    pub(crate) segment: Option<Segment>,
    pub(crate) slot: Option<SlotRef>,
    /// There is no room for it in the table.
    pub(crate) no_slot: bool,
    pub(crate) location: BucketLocation,
    pub(crate) state: State,
    pub(crate) held_until: Time,
    /// A hold that has ended was merged into the state.
    pub(crate) hold_merged: bool,
    /// The charge of the receipt is already repaid and forgotten: there is nothing to refund.
    pub(crate) repaid: bool,
    /// The state was converted to another policy. It refills under that policy from now on, so it
    /// must be written even if nothing is spent.
    pub(crate) converted: bool,
    /// There is no room for the key, and its limit has no shared buckets.
    pub(crate) rejected: bool,
    /// The store's newer revision of the limit, if the caller's is older.
    pub(crate) newer: Option<Limit>,
}

impl<'a> ListedBucket<'a> {
    #[inline]
    const fn new(hash: u64, target: Target<'a>) -> Self {
        Self {
            hash,
            target,
            segment: None,
            slot: None,
            no_slot: false,
            location: BucketLocation::Own,
            state: State::Fresh,
            held_until: Time::ZERO,
            hold_merged: false,
            repaid: false,
            converted: false,
            rejected: false,
            newer: None,
        }
    }

    /// Returns the limit that decides.
    #[inline]
    pub(crate) fn limit(&self) -> &Limit {
        self.newer.as_ref().unwrap_or(self.target.limit)
    }

    #[inline]
    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_hash(self.hash)
    }

    /// Returns whether its state is in the side table: slots of a concurrency limit are leases.
    #[inline]
    pub(crate) fn is_concurrency(&self) -> bool {
        matches!(self.limit().policy(), Policy::Concurrency(_))
    }
}

/// The distinct buckets of a list, and the hash of every item of the list.
#[derive(Debug)]
pub(crate) struct ListEntries<'a> {
    list: MergedList<ListedBucket<'a>>,
    /// Hash of each item of the list, even if it was merged with another.
    hashes: SmallVec<[u64; 2]>,
}

impl<'a> ListEntries<'a> {
    /// Merges targets and amounts. Targets with the same fingerprint are the same bucket.
    #[inline]
    pub(crate) fn new(
        items: impl Iterator<Item = (Target<'a>, i128)>,
        hash: impl Fn(&Target<'a>) -> u64,
    ) -> Self {
        let mut entries = Self { list: MergedList::new(), hashes: SmallVec::new() };
        for (target, amount) in items {
            let hash = hash(&target);
            let same =
                |known: &ListedBucket<'_>| known.fingerprint() == Fingerprint::from_hash(hash);
            entries.list.add(amount, same, || ListedBucket::new(hash, target));
            entries.hashes.push(hash);
        }
        entries
    }

    /// Returns the record of each item, for the receipt.
    #[inline]
    pub(crate) fn records(&self) -> impl Iterator<Item = ChargeRecord> + '_ {
        self.order().zip(&self.hashes).map(|(index, &bucket)| {
            let entry = &self[index];
            let generation = entry.limit().generation();
            ChargeRecord { bucket, location: entry.location, generation, state: entry.state }
        })
    }

    /// Returns whether any limit is a calendar quota, which needs the wall time.
    #[inline]
    pub(crate) fn needs_wall_time(&self) -> bool {
        self.iter().any(|entry| matches!(entry.limit().policy(), Policy::Quota(_)))
    }

    /// Returns the core's entries to decide on, in the same order.
    #[inline]
    pub(crate) fn bucket_entries(
        &self,
        now: Now,
    ) -> Result<SmallVec<[BucketEntry<'_>; 2]>, ChargeError> {
        let mut buckets = SmallVec::with_capacity(self.len());
        for (index, entry) in self.iter().enumerate() {
            let policy = entry.limit().policy();
            let mut bucket = BucketEntry::new(policy, entry.state, entry.held_until, entry.cost());
            if let Policy::Quota(_) = policy {
                let item = || self.first_item(index);
                let windows = entry.target.windows;
                let windows = windows.ok_or_else(|| ChargeError::NoWindows(item()))?;
                if !bucket.open_window(&windows, now) {
                    return Err(ChargeError::OtherWindows(item()));
                }
            }
            buckets.push(bucket);
        }
        Ok(buckets)
    }
}

impl<'a> Deref for ListEntries<'a> {
    type Target = MergedList<ListedBucket<'a>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl DerefMut for ListEntries<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.list
    }
}
