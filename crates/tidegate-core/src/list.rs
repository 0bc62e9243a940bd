//! Merging the items of a list: charges, corrections or targets on the same bucket become one
//! entry.
//!
//! Two charges on one bucket are decided as their sum. Otherwise each would be checked against a
//! balance that the other is about to spend. Short lists do not allocate.

use core::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::receipt::{ChargeRecord, Receipt};

/// One bucket of a list and the amount for it. `B` is the store's representation of the bucket.
#[derive(Clone, Debug)]
pub struct ListEntry<B> {
    /// The bucket.
    pub bucket: B,
    /// Sum of the costs of its charges, or of the deltas of its corrections.
    pub amount: i128,
}

impl<B> ListEntry<B> {
    /// Returns the amount as the cost of a charge, saturating.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> u64 {
        u64::try_from(self.amount).unwrap_or(u64::MAX)
    }

    /// Returns the amount as the delta of a correction, saturating.
    #[must_use]
    pub fn delta(&self) -> i64 {
        i64::try_from(self.amount).unwrap_or(if self.amount < 0 { i64::MIN } else { i64::MAX })
    }
}

impl<B> Deref for ListEntry<B> {
    type Target = B;

    #[inline]
    fn deref(&self) -> &B {
        &self.bucket
    }
}

impl<B> DerefMut for ListEntry<B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut B {
        &mut self.bucket
    }
}

/// The distinct buckets of a list and, for each item, the index of its bucket.
///
/// ```
/// use tidegate_core::list::MergedList;
/// let mut list = MergedList::new();
/// for (name, cost) in [("a", 2), ("b", 1), ("a", 3)] {
///     list.add(cost, |known| *known == name, || name);
/// }
/// assert_eq!(list.order().collect::<Vec<_>>(), [0, 1, 0]);
/// assert_eq!(list.iter().map(|entry| entry.cost()).collect::<Vec<_>>(), [5, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct MergedList<B> {
    entries: SmallVec<[ListEntry<B>; 2]>,
    /// A list has at most 16 items, so an index fits a byte.
    order: SmallVec<[u8; 8]>,
}

impl<B> MergedList<B> {
    /// Creates an empty list.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self { entries: SmallVec::new(), order: SmallVec::new() }
    }

    /// Adds an item to the bucket for which `same` returns true, or to a new one created by `make`.
    /// A list holds at most [`MAX_CHARGES`](crate::MAX_CHARGES) items.
    #[inline]
    pub fn add(
        &mut self,
        amount: i128,
        mut same: impl FnMut(&B) -> bool,
        make: impl FnOnce() -> B,
    ) {
        let known = self.entries.iter().position(|entry| same(&entry.bucket));
        let index = known.unwrap_or_else(|| {
            self.entries.push(ListEntry { bucket: make(), amount: 0 });
            self.entries.len() - 1
        });
        self.entries[index].amount += amount;
        self.order.push(index_byte(index));
    }

    /// Moves the items of the bucket at `index` to an earlier one that turned out to be the same
    /// bucket.
    pub fn merge(&mut self, index: usize, earlier: usize) {
        let amount = core::mem::take(&mut self.entries[index].amount);
        self.entries[earlier].amount += amount;
        for entry in &mut self.order {
            if usize::from(*entry) == index {
                *entry = index_byte(earlier);
            }
        }
    }

    /// Returns the index of the bucket for each item of the list.
    #[inline]
    pub fn order(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.order.iter().map(|&index| usize::from(index))
    }

    /// Returns which item of the list is the first one of the bucket at `index`, for errors that name
    /// the item.
    #[must_use]
    pub fn first_item(&self, index: usize) -> usize {
        self.order().position(|entry| entry == index).unwrap_or(index)
    }

    /// Returns the record of a bucket in `receipt`: that of its first item.
    #[must_use]
    pub fn record_of<'r>(&self, index: usize, receipt: &'r Receipt) -> Option<&'r ChargeRecord> {
        let item = self.order().position(|entry| entry == index)?;
        receipt.charges().get(item)
    }
}

impl<B> Default for MergedList<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Deref for MergedList<B> {
    type Target = [ListEntry<B>];

    #[inline]
    fn deref(&self) -> &[ListEntry<B>] {
        &self.entries
    }
}

impl<B> DerefMut for MergedList<B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [ListEntry<B>] {
        &mut self.entries
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a list has at most 16 items")]
const fn index_byte(index: usize) -> u8 {
    index as u8
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn list(items: &[(u8, i128)]) -> MergedList<u8> {
        let mut list = MergedList::new();
        for &(bucket, amount) in items {
            list.add(amount, |known| *known == bucket, || bucket);
        }
        list
    }

    #[test]
    fn entries_of_one_bucket_can_be_merged_later() {
        let mut list = list(&[(1, 5), (2, 7), (1, 1), (2, 2)]);
        list.merge(1, 0);
        assert_eq!(list.order().collect::<Vec<_>>(), [0, 0, 0, 0]);
        assert_eq!([list[0].amount, list[1].amount], [15, 0]);
    }

    #[test]
    fn first_item_of_a_bucket_is_its_place_in_the_list() {
        let list = list(&[(1, 5), (1, 7), (2, 1), (1, 2), (3, 1)]);
        assert_eq!([0, 1, 2].map(|index| list.first_item(index)), [0, 2, 4]);
    }

    #[test]
    fn sums_saturate_as_cost_and_as_delta() {
        let list = list(&[(1, u64::MAX.into()), (1, 1), (2, i64::MIN.into()), (2, -1)]);
        assert_eq!([list[0].cost(), list[1].cost()], [u64::MAX, u64::MAX]);
        assert_eq!([list[0].delta(), list[1].delta()], [i64::MAX, i64::MIN]);
    }
}
