//! The distinct buckets of a list, as read from the storage.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tidegate_core::list::MergedList;
use tidegate_core::{
    BucketEntry, BucketLocation, ChargeError, ChargeRecord, Key, Now, Policy, State, StoreError,
    Time, Windows, hash,
};

use crate::entry::{EffectiveState, Entry};
use crate::history::History;
use crate::message::TargetMessage;

/// One bucket of a list, with the amount for it.
pub(crate) type ListEntry = tidegate_core::list::ListEntry<ListedBucket>;

/// One bucket of a list.
#[derive(Debug)]
pub(crate) struct ListedBucket {
    /// Key in the storage.
    pub(crate) name: String,
    pub(crate) history: Rc<History>,
    /// The stored value.
    pub(crate) stored: Option<Vec<u8>>,
    pub(crate) entry: Entry,
    pub(crate) effective: EffectiveState,
    /// Id of the lease of a charge to slots; zero otherwise.
    pub(crate) lease: u64,
    windows: Option<Windows>,
}

impl ListedBucket {
    /// Returns the policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        self.history.limit().policy()
    }

    /// Returns whether this is a concurrency limit.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.policy(), Policy::Concurrency(_))
    }

    /// Sets the state, written under the policy in force.
    pub(crate) fn set_state(&mut self, state: State) {
        self.entry.set_state(state, self.effective, self.history.revision());
    }

    /// Returns the number of the bucket in receipts of the shard with this number.
    pub(crate) fn number(&self, shard: u64) -> u64 {
        hash::digest(&self.name) ^ hash::mix(shard)
    }

    /// Returns the record of a charge that left the bucket in `state`.
    pub(crate) fn record(&self, shard: u64, state: State) -> ChargeRecord {
        let location = match self.lease {
            0 => BucketLocation::Own,
            lease => BucketLocation::Slot(lease),
        };
        let generation = self.history.revision();
        ChargeRecord { bucket: self.number(shard), location, generation, state }
    }
}

/// The distinct buckets of a list.
#[derive(Debug, Default)]
pub(crate) struct List(MergedList<ListedBucket>);

impl List {
    /// Adds an item.
    pub(crate) fn add(
        &mut self,
        target: &TargetMessage,
        amount: i128,
        history: Rc<History>,
    ) -> Result<(), String> {
        let name = storage_name(history.limit().identity(), target.key());
        let windows = target.windows()?;
        let effective =
            EffectiveState { state: State::Fresh, held_until: Time::ZERO, converted: false };
        self.0.add(
            amount,
            |bucket| bucket.name == name,
            || ListedBucket {
                name: name.clone(),
                history,
                stored: None,
                entry: Entry::default(),
                effective,
                lease: 0,
                windows,
            },
        );
        Ok(())
    }

    /// Returns what the core decides on.
    pub(crate) fn bucket_entries(
        &self,
        now: Now,
    ) -> Result<SmallVec<[BucketEntry<'_>; 2]>, ChargeError> {
        let mut buckets = SmallVec::with_capacity(self.len());
        for (index, listed) in self.iter().enumerate() {
            let EffectiveState { state, held_until, .. } = listed.effective;
            let mut bucket = BucketEntry::new(listed.policy(), state, held_until, listed.cost());
            match listed.policy() {
                Policy::Quota(_) => {
                    let item = || self.first_item(index);
                    let windows = listed.windows;
                    let windows = windows.ok_or_else(|| ChargeError::NoWindows(item()))?;
                    if !bucket.open_window(&windows, now) {
                        return Err(ChargeError::OtherWindows(item()));
                    }
                }
                Policy::Concurrency(policy) => {
                    bucket.set_taken(listed.entry.taken());
                    let free_in = listed.entry.free_in(listed.cost(), policy, now.time);
                    bucket = bucket.slots_free_in(free_in);
                }
                _ => {}
            }
            buckets.push(bucket);
        }
        Ok(buckets)
    }

    /// Returns the states to write although the list was denied: those that were converted to a
    /// changed policy, or repaired after the clock stepped back.
    pub(crate) fn states_after_denial(
        &self,
        now: Now,
    ) -> Result<SmallVec<[(usize, State); 2]>, ChargeError> {
        let all = self.bucket_entries(now)?.into_iter().zip(self.iter()).enumerate();
        let states = all
            .filter(|(_, (_, listed))| listed.amount != 0 && !listed.has_slots())
            .filter_map(|(index, (mut bucket, listed))| {
                let changed = bucket.repair(now) || listed.effective.converted;
                changed.then(|| (index, bucket.state()))
            })
            .collect();
        Ok(states)
    }
}

impl Deref for List {
    type Target = MergedList<ListedBucket>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Returns the key of a bucket in the storage. Different buckets have different ones: an identity
/// has no control character, and the length of the group says where it ends.
fn storage_name(identity: &str, key: Key<'_>) -> String {
    let mut name = String::from(identity);
    // Writing to a `String` does not fail. The mark keeps a key without a group from looking like
    // one with.
    let _ = match key.group() {
        Some(group) => write!(name, "\u{1f}{}:{group}{}", group.len(), key.name()),
        None => write!(name, "\u{1f}-{}", key.name()),
    };
    name
}

/// Turns a reason into the error of an operation.
pub(crate) fn rejected(reason: String) -> StoreError {
    StoreError::Rejected(reason.into())
}
