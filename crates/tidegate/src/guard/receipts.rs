//! Receipts of decisions made without the store: settled, released and renewed on the node that
//! charged them, also after the store is back.
//!
//! They carry the issuer number of the guard's own store and one record per charge, so they can be
//! serialised like any other receipt. A charge that was not counted has a record without a bucket.

use std::num::NonZeroU32;

use smallvec::SmallVec;
use tidegate_core::{
    BucketLocation, ChargeRecord, Correction, Limit, Operation, Outcomes, Receipt, ReceiptError,
    Settlement, State, StoreError, StoreResponse, Target, decide,
};
use tidegate_memory::{MemoryError, MemoryStore, MemoryStoreBuilder};

use super::fallback::full_outcome;
use super::share::Shares;
use crate::request::FromAnswer as _;

/// Record of a charge that was not counted. The in-process store never numbers a bucket zero.
pub(super) const NOT_CHARGED: ChargeRecord =
    ChargeRecord { bucket: 0, location: BucketLocation::Own, generation: 0, state: State::Fresh };

/// The guard's own store, which is the issuer of its receipts, and the shares that it enforces.
#[derive(Debug)]
pub(super) struct LocalStore {
    store: MemoryStore,
    shares: Shares,
}

impl LocalStore {
    pub(super) fn build(builder: MemoryStoreBuilder) -> Result<Self, MemoryError> {
        Ok(Self { store: builder.build()?, shares: Shares::default() })
    }

    pub(super) const fn store(&self) -> &MemoryStore {
        &self.store
    }

    pub(super) const fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(super) const fn issuer(&self) -> u64 {
        self.store.issuer()
    }

    /// Whether an operation refers to a receipt that this store issued.
    pub(super) fn has_issued(&self, operation: &Operation<'_>) -> bool {
        let receipt = match operation {
            Operation::Settle { receipt, .. } => *receipt,
            Operation::Release { receipt, .. } | Operation::Renew { receipt, .. } => Some(*receipt),
            _ => None,
        };
        receipt.is_some_and(|receipt| receipt.issuer() == self.issuer())
    }

    /// Executes an operation on a receipt that this store issued.
    pub(super) fn answer(
        &self,
        operation: &Operation<'_>,
        nodes: NonZeroU32,
    ) -> Result<StoreResponse, StoreError> {
        match *operation {
            Operation::Settle { corrections, receipt: Some(receipt) } => {
                self.settle(corrections, receipt, nodes).map(StoreResponse::Settled)
            }
            Operation::Release { targets, receipt } => {
                self.slot_operation(targets, receipt, nodes, |targets, receipt| {
                    Operation::Release { targets, receipt }
                })
            }
            Operation::Renew { targets, receipt } => {
                self.slot_operation(targets, receipt, nodes, |targets, receipt| Operation::Renew {
                    targets,
                    receipt,
                })
            }
            _ => Err(ReceiptError::Mismatch.into()),
        }
    }

    fn settle(
        &self,
        corrections: &[Correction<'_>],
        receipt: &Receipt,
        nodes: NonZeroU32,
    ) -> Result<Settlement, StoreError> {
        let targets = corrections.iter().map(|correction| correction.target);
        let charged = self.find_charges(targets, receipt, nodes)?;
        let local: SmallVec<[Correction<'_>; 2]> = corrections
            .iter()
            .zip(&charged.shares)
            .filter_map(|(correction, share)| {
                let target = Target { limit: share.as_ref()?, ..correction.target };
                Some(Correction { target, delta: correction.delta })
            })
            .collect();
        let settlement = if local.is_empty() {
            None
        } else {
            let receipt = Some(&charged.receipt);
            let settle = Operation::Settle { corrections: &local, receipt };
            Some(self.store.execute(&settle).and_then(Settlement::from_answer)?)
        };
        let mut outcomes = settlement.iter().flat_map(|local| &local.outcomes).copied();
        let mut applied = settlement.iter().flat_map(|local| &local.applied).copied();
        let (saturated, dropped) =
            settlement.as_ref().map_or((0, 0), |local| (local.saturated, local.dropped));
        // A charge that was not counted has nothing to correct.
        let uncounted_outcome =
            |index: usize| full_outcome(corrections[index].target.limit.policy());
        let shares = || charged.shares.iter().enumerate();
        let outcomes: Outcomes = shares()
            .map(|(index, share)| {
                share
                    .as_ref()
                    .and_then(|_| outcomes.next())
                    .unwrap_or_else(|| uncounted_outcome(index))
            })
            .collect();
        let applied =
            shares().map(|(_, share)| share.as_ref().and_then(|_| applied.next()).unwrap_or(0));
        Ok(Settlement::new(outcomes, saturated, dropped, applied.collect()))
    }

    fn slot_operation(
        &self,
        targets: &[Target<'_>],
        receipt: &Receipt,
        nodes: NonZeroU32,
        make_operation: impl for<'a> Fn(&'a [Target<'a>], &'a Receipt) -> Operation<'a>,
    ) -> Result<StoreResponse, StoreError> {
        let charged = self.find_charges(targets.iter().copied(), receipt, nodes)?;
        let local: SmallVec<[Target<'_>; 2]> = targets
            .iter()
            .zip(&charged.shares)
            .filter_map(|(target, share)| Some(Target { limit: share.as_ref()?, ..*target }))
            .collect();
        if local.is_empty() {
            return Ok(StoreResponse::Slots(0));
        }
        self.store.execute(&make_operation(&local, &charged.receipt))
    }

    /// Finds the shares that the charges of a receipt were counted on.
    fn find_charges<'a>(
        &self,
        targets: impl ExactSizeIterator<Item = Target<'a>> + Clone,
        receipt: &Receipt,
        nodes: NonZeroU32,
    ) -> Result<ReceiptCharges, StoreError> {
        decide::check_list(targets.clone().map(|target| target.key))?;
        if targets.len() != receipt.charges().len() {
            return Err(ReceiptError::Mismatch.into());
        }
        let (mut shares, mut records) = (SmallVec::new(), SmallVec::<[ChargeRecord; 2]>::new());
        for (target, record) in targets.zip(receipt.charges()) {
            if record.bucket == NOT_CHARGED.bucket {
                shares.push(None);
                continue;
            }
            let share =
                self.shares.find_charged(target.limit, nodes).ok_or(ReceiptError::Mismatch)?;
            shares.push(Some(share));
            records.push(*record);
        }
        Ok(ReceiptCharges {
            shares,
            receipt: Receipt::new(self.issuer(), receipt.start(), records),
        })
    }
}

/// The charges of a receipt: the share that each was counted on, if any, and a receipt for only
/// those.
struct ReceiptCharges {
    shares: SmallVec<[Option<Limit>; 2]>,
    receipt: Receipt,
}
