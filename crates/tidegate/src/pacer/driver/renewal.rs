//! Renewal of leases: everything due in one pacer goes to the store in one submission.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Answers, Operation, StoreError, Target};

use crate::pacer::driver::leases::Held;
use crate::pacer::pending_acquire::Moment;
use crate::pacer::scope::{Locked, Scope};
use crate::request::FromAnswer as _;
use crate::store_handle::StoreHandle;

/// Leases that are renewed together.
pub(in crate::pacer) struct Round {
    pub(in crate::pacer) held: Vec<Arc<Held>>,
    /// How long to wait for the answers.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "for shared stores"))]
    pub(in crate::pacer) patience: Duration,
}

/// The store's answer for one lease.
pub(in crate::pacer) struct Reply<'r> {
    pub(in crate::pacer) held: &'r Held,
    /// The lease under the current policy, if it still has one.
    pub(in crate::pacer) lease: Option<Duration>,
    pub(in crate::pacer) slots: Result<u64, StoreError>,
}

impl Round {
    /// Renews all leases in one submission.
    async fn ask(&self, store: &StoreHandle) -> Vec<Reply<'_>> {
        let moments = self.held.iter().map(|held| (&**held, Moment::of(&held.claims)));
        let asked: Vec<_> =
            moments.filter(|(held, moment)| held.is_worth_renewing(moment)).collect();
        let targets: Vec<SmallVec<[Target<'_>; 2]>> =
            asked.iter().map(|(_, moment)| moment.targets().collect()).collect();
        let receipts = asked.iter().map(|(held, _)| &held.receipt);
        let operations: Vec<_> = std::iter::zip(&targets, receipts)
            .map(|(targets, receipt)| Operation::Renew { targets, receipt })
            .collect();
        let mut answers = Answers::new();
        if !operations.is_empty() {
            self.submit(store, &operations, &mut answers).await;
        }
        // A missing answer counts as a timeout.
        answers.resize_with(operations.len(), || Err(StoreError::TimedOut));
        let replies = asked.iter().zip(answers).map(|((held, moment), answer)| Reply {
            held,
            lease: moment.lease(&held.receipt),
            slots: answer.and_then(u64::from_answer),
        });
        replies.collect()
    }

    async fn submit(
        &self,
        store: &StoreHandle,
        operations: &[Operation<'_>],
        answers: &mut Answers,
    ) {
        #[cfg(feature = "tokio")]
        if store.local().is_none() {
            let _ = tokio::time::timeout(self.patience, store.submit(operations, answers)).await;
            return;
        }
        store.submit(operations, answers).await;
    }
}

impl Scope {
    /// Locks the state after leases that are due have been renewed, or a task was started for that.
    pub(in crate::pacer) fn lock_renewed(self: &Arc<Self>) -> Locked<'_> {
        let mut state = self.lock();
        if state.leases.tick().is_none_or(|tick| self.now() < tick) {
            return state;
        }
        let round = state.leases.due(self.now());
        drop(state);
        if let Some(round) = round {
            self.start(round);
        }
        self.lock()
    }

    /// Renews on a shared store in one task for the whole round, so that no caller waits for it.
    fn start(self: &Arc<Self>, round: Round) {
        let scope = self.clone();
        let renewal = async move { scope.renew(&round).await };
        self.store().detach(renewal);
    }

    async fn renew(&self, round: &Round) {
        let replies = round.ask(self.store()).await;
        let lost = self.act(|state| {
            let (now, before) = (self.now(), state.leases.lost());
            replies.into_iter().for_each(|reply| state.leases.answered(reply, now));
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
        tracing::warn!(permits, "slots were lost: their leases ran out before they were renewed");
    }
}

#[cfg(not(feature = "tokio"))]
fn log_lost(_: u64) {}
