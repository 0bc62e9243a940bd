//! Renewal of leases: everything due in one pacer goes to the store in one submission.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Operation, StoreError, StoreResponses, Target};

use crate::pacer::driver::leases::LeasedSlots;
use crate::pacer::inner::{PacerInner, StateGuard};
use crate::pacer::pending_acquire::ClaimSnapshots;
use crate::request::FromAnswer as _;
use crate::store_handle::StoreHandle;

/// Leases that are renewed together.
pub(in crate::pacer) struct RenewalRound {
    pub(in crate::pacer) leased: Vec<Arc<LeasedSlots>>,
    /// How long to wait for the answers.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "for shared stores"))]
    pub(in crate::pacer) timeout: Duration,
}

/// The store's answer for one lease.
pub(in crate::pacer) struct RenewalResult<'r> {
    pub(in crate::pacer) leased: &'r LeasedSlots,
    /// The lease under the current policy, if it still has one.
    pub(in crate::pacer) lease: Option<Duration>,
    pub(in crate::pacer) slots: Result<u64, StoreError>,
}

impl RenewalRound {
    /// Renews all leases in one submission.
    async fn submit_all(&self, store: &StoreHandle) -> Vec<RenewalResult<'_>> {
        let pairs =
            self.leased.iter().map(|leased| (&**leased, ClaimSnapshots::read(&leased.claims)));
        let renewable: Vec<_> =
            pairs.filter(|(leased, snapshots)| leased.is_worth_renewing(snapshots)).collect();
        let targets: Vec<SmallVec<[Target<'_>; 2]>> =
            renewable.iter().map(|(_, snapshots)| snapshots.targets().collect()).collect();
        let receipts = renewable.iter().map(|(leased, _)| &leased.receipt);
        let operations: Vec<_> = std::iter::zip(&targets, receipts)
            .map(|(targets, receipt)| Operation::Renew { targets, receipt })
            .collect();
        let mut answers = StoreResponses::new();
        if !operations.is_empty() {
            self.submit(store, &operations, &mut answers).await;
        }
        // A missing answer counts as a timeout.
        answers.resize_with(operations.len(), || Err(StoreError::TimedOut));
        let results =
            renewable.iter().zip(answers).map(|((leased, snapshots), answer)| RenewalResult {
                leased,
                lease: snapshots.lease(&leased.receipt),
                slots: answer.and_then(u64::from_answer),
            });
        results.collect()
    }

    async fn submit(
        &self,
        store: &StoreHandle,
        operations: &[Operation<'_>],
        answers: &mut StoreResponses,
    ) {
        #[cfg(feature = "tokio")]
        if store.local().is_none() {
            let _ = tokio::time::timeout(self.timeout, store.submit(operations, answers)).await;
            return;
        }
        store.submit(operations, answers).await;
    }
}

impl PacerInner {
    /// Locks the state after leases that are due have been renewed, or a task was started for that.
    pub(in crate::pacer) fn lock_renewed(self: &Arc<Self>) -> StateGuard<'_> {
        let mut state = self.lock();
        if state.leases.next_due().is_none_or(|next_due| self.now() < next_due) {
            return state;
        }
        let round = state.leases.take_due(self.now());
        drop(state);
        if let Some(round) = round {
            self.spawn_renewal(round);
        }
        self.lock()
    }

    /// Renews on a shared store in one task for the whole round, so that no caller waits for it.
    fn spawn_renewal(self: &Arc<Self>, round: RenewalRound) {
        let inner = self.clone();
        let renewal = async move { inner.renew(&round).await };
        self.store().detach(renewal);
    }

    async fn renew(&self, round: &RenewalRound) {
        let results = round.submit_all(self.store()).await;
        let lost = self.update(|state| {
            let (now, before) = (self.now(), state.leases.lost());
            results.into_iter().for_each(|result| state.leases.apply_renewal(result, now));
            state.leases.sweep();
            state.leases.lost() - before
        });
        log_lost(lost);
    }
}

/// Logs once per round, after the lock is released: a log subscriber may run any code.
#[cfg(feature = "tokio")]
fn log_lost(permits: u64) {
    if permits > 0 {
        tracing::warn!(permits, "leases expired before they were renewed; slots lost");
    }
}

#[cfg(not(feature = "tokio"))]
fn log_lost(_: u64) {}
