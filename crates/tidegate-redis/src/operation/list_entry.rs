//! The distinct buckets of a list, with the amount charged to each.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::list::MergedList;
use tidegate_core::{
    BucketEntry, BucketLocation, ChargeError, ChargeRecord, Now, Policy, State, StoreError, Target,
    Time, Windows,
};

use crate::error::RedisStoreError;
use crate::format::entry::Entry;
use crate::format::names::{Name, Names};
use crate::format::number::Reader;
use crate::format::script_args::script_args;
use crate::job::{Item, OperationStatus};
use crate::policy_history::PolicyHistory;

/// One bucket of a list, with the amount charged to it.
pub(crate) type ListEntry<'a> = tidegate_core::list::ListEntry<ListedBucket<'a>>;

/// One bucket of a list.
#[derive(Debug)]
pub(crate) struct ListedBucket<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) name: Name,
    /// The policy history of its limit; the newest policy applies.
    pub(crate) history: Arc<PolicyHistory>,
    /// Number of the lease that a charge to slots would get.
    pub(crate) lease: u64,
}

impl ListedBucket<'_> {
    pub(crate) fn policy(&self) -> &Policy {
        self.history.limit().policy()
    }

    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.policy(), Policy::Concurrency(_))
    }

    /// Builds the item of this bucket, with the script arguments for `amount`.
    pub(crate) fn item(
        &self,
        names: &Names,
        amount: u64,
        ttl: Option<std::time::Duration>,
    ) -> Result<Item, RedisStoreError> {
        let generation = self.history.generation();
        let args = script_args(self.policy(), generation, amount, self.target.windows, ttl)?;
        let other = self.has_slots().then(|| names.slots(&self.target));
        Ok(Item { entry: Some(self.name.clone()), other, args: Some(args), tail: SmallVec::new() })
    }
}

/// The distinct buckets of a list.
#[derive(Debug)]
pub(crate) struct List<'a>(MergedList<ListedBucket<'a>>);

impl<'a> List<'a> {
    /// Merges these targets and amounts; equal names are the same bucket.
    pub(crate) fn new(
        names: &Names,
        items: impl Iterator<Item = (Target<'a>, i128, Arc<PolicyHistory>)>,
        mut lease: impl FnMut() -> u64,
    ) -> Self {
        let mut list = MergedList::new();
        for (target, amount, history) in items {
            let name = names.entry(&target);
            list.add(
                amount,
                |listed: &ListedBucket<'_>| listed.name == name,
                || ListedBucket { target, name: name.clone(), history, lease: lease() },
            );
        }
        Self(list)
    }

    /// Returns the record of each item: the state in which its charge left the bucket.
    pub(crate) fn records(&self, states: &[State]) -> impl Iterator<Item = ChargeRecord> {
        self.order().map(|index| {
            let listed = &self[index];
            let location = if listed.has_slots() && listed.amount > 0 {
                BucketLocation::Slot(listed.lease)
            } else {
                BucketLocation::Own
            };
            let (bucket, generation) = (listed.name.number(), listed.history.stamp());
            ChargeRecord { bucket, location, generation, state: states[index] }
        })
    }

    /// Checks that all calendar quotas have windows.
    pub(crate) fn check_windows(&self) -> Result<(), ChargeError> {
        let missing = |listed: &ListEntry<'_>| {
            matches!(listed.policy(), Policy::Quota(_)) && listed.target.windows.is_none()
        };
        let error = |index| Err(ChargeError::NoWindows(self.first_item(index)));
        self.iter().position(missing).map_or(Ok(()), error)
    }

    /// Reads the status of the list. Windows that do not include the server's time are an error of
    /// the caller.
    pub(crate) fn status(
        &self,
        reader: &mut Reader<'_>,
        now: Now,
    ) -> Result<OperationStatus, StoreError> {
        let status = OperationStatus::read(reader)?;
        if status != OperationStatus::OtherWindows {
            return Ok(status);
        }
        let outside = |windows: Windows| windows.end_of(now.wall).is_none();
        let index = self.iter().position(|listed| listed.target.windows.is_some_and(outside));
        Err(ChargeError::OtherWindows(self.first_item(index.unwrap_or(0))).into())
    }

    /// Builds the accounts to decide on, from what the server found.
    pub(crate) fn accounts(
        &self,
        found: &[Found],
        now: Now,
    ) -> Result<SmallVec<[BucketEntry<'_>; 2]>, ChargeError> {
        let mut accounts = SmallVec::with_capacity(self.len());
        for (index, (listed, found)) in self.iter().zip(found).enumerate() {
            let effective_state = found.entry.effective_state(&listed.history, now.time);
            let policy = listed.policy();
            let mut account = BucketEntry::new(
                policy,
                effective_state.state,
                effective_state.held_until,
                listed.cost(),
            );
            if let (Policy::Quota(_), Some(windows)) = (policy, &listed.target.windows)
                && !account.open_window(windows, now)
            {
                return Err(ChargeError::OtherWindows(self.first_item(index)));
            }
            if let Some(slots) = found.slots {
                account.set_taken(slots.taken);
                let free_in = slots.free_at.map(|time| time.since(now.time));
                account = account.slots_free_in(free_in);
            }
            accounts.push(account);
        }
        Ok(accounts)
    }

    /// Returns the first bucket whose entry has a newer policy than this node knows, and its
    /// number.
    pub(crate) fn newer_policy(&self, found: &[Found]) -> Option<(usize, u64)> {
        let numbers = found.iter().map(|found| found.entry.newest());
        let mut pairs = self.iter().zip(numbers).enumerate();
        let newer = pairs.find(|(_, (listed, number))| listed.history.is_behind(*number));
        newer.map(|(index, (_, number))| (index, number))
    }
}

impl<'a> Deref for List<'a> {
    type Target = MergedList<ListedBucket<'a>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What the server found for a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) entry: Entry,
    pub(crate) slots: Option<Slots>,
}

/// Slots taken, and when enough of them will have expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) taken: u64,
    pub(crate) free_at: Option<Time>,
}

/// Reads what the server found for each bucket.
pub(crate) fn read_found(
    list: &List<'_>,
    reader: &mut Reader<'_>,
) -> Result<SmallVec<[Found; 2]>, RedisStoreError> {
    let mut all = SmallVec::with_capacity(list.len());
    for listed in list.iter() {
        let entry = Entry::read(reader)?;
        let slots = if listed.has_slots() {
            let (taken, free_at) = (reader.number()?, reader.number()?);
            let free_at = (free_at > 0).then(|| Time::from_nanos(free_at.saturating_mul(1_000)));
            Some(Slots { taken, free_at })
        } else {
            None
        };
        all.push(Found { entry, slots });
    }
    Ok(all)
}
