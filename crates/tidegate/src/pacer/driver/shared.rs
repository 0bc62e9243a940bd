//! Waiting on a shared store: only the head of the queue calls it.
//!
//! One driver at a time asks the store to reserve for the head, at most a quarter of a second
//! ahead; the other waiters cost the store nothing. The grant takes effect when its reservation
//! starts.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::{Receipt, Time};

use crate::pacer::driver::leases::StoreGrant;
use crate::pacer::inner::{PacerInner, State};
use crate::pacer::pending_acquire::{Block, ChargeResult, PendingAcquire};
use crate::pacer::scheduler::NextAction;
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::waiter::WaitError;

/// How far ahead to reserve on a shared store. Until then, holds, priorities and policy changes
/// still affect who goes next.
const RESERVE_AHEAD: Duration = Duration::from_millis(250);

/// How often to call a shared store again when it is unknown when a limit will be ready.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A driver's call to a shared store for the head. However it ends, other drivers can call again,
/// and a reservation is given back. Only an answer that never arrives, because the runtime is shut
/// down during the call, may have been charged.
pub(in crate::pacer) struct HeadCall {
    inner: Arc<PacerInner>,
    id: Id,
    pending: PendingAcquire,
    /// How far ahead it may reserve.
    lead: Duration,
    /// Number of nudges of the scheduler before the call.
    nudge_count: u64,
    reserved: Option<StoreGrant>,
    /// Whether other drivers may call already.
    is_finished: bool,
    /// Whether it holds slots of the groups of its waiter.
    holds_group_slots: bool,
}

impl PacerInner {
    /// Starts a call for the head, if a shared store has to be called now and no other driver does.
    pub(in crate::pacer) fn start_head_call(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Option<HeadCall> {
        if self.is_local() || state.head_in_call.is_some() {
            return None;
        }
        let now = self.now();
        let id = loop {
            let NextAction::Try(id) = state.scheduler.next(now) else { return None };
            if state.enter_groups(id, now) {
                break id;
            }
        };
        if state.take_slot().is_err() {
            state.leave_groups(id);
            return None;
        }
        let pending = state.scheduler.pending(id)?.clone();
        // A reservation that starts after the deadline is useless.
        let left = state.scheduler.deadline(id).map(|deadline| deadline.since(now));
        let lead = left.map_or(RESERVE_AHEAD, |left| left.min(RESERVE_AHEAD));
        let (inner, nudge_count) = (self.clone(), state.scheduler.nudge_count());
        state.head_in_call = Some(id);
        let (reserved, is_finished, holds_group_slots) = (None, false, true);
        Some(HeadCall {
            inner,
            id,
            pending,
            lead,
            nudge_count,
            reserved,
            is_finished,
            holds_group_slots,
        })
    }

    /// Takes the reservations of drivers that are gone, to give them back.
    pub(in crate::pacer) fn take_abandoned(&self) -> Vec<(PendingAcquire, Receipt)> {
        std::mem::take(&mut self.lock().abandoned)
    }
}

impl HeadCall {
    pub(in crate::pacer) fn inner(&self) -> &Arc<PacerInner> {
        &self.inner
    }

    /// Calls a shared store for the head, waits until the reservation starts, and grants it. If the
    /// waiter has left meanwhile, the reservation is given back.
    pub(in crate::pacer) async fn run(mut self) {
        let store = self.inner.store().clone();
        let result = match self.pending.charge(&store, self.lead).await {
            ChargeResult::Granted { receipt, wait, charged, lease } => {
                self.pending.set_charged(&charged);
                self.keep_reservation(receipt, lease);
                self.wait_until_start(wait).await;
                None
            }
            other => Some(other),
        };
        if let Some(StoreGrant { receipt, lease }) = self.finish(result) {
            drop(lease);
            // Before the next head calls: a reservation that builds on this one would prevent
            // giving it back.
            self.pending.refund(&store, &receipt).await;
            self.finish(None);
            self.pending.notify_watchers();
        }
    }

    /// Stores the reservation. Its slots are taken from now on, whenever it starts.
    fn keep_reservation(&mut self, receipt: Receipt, lease: Option<Duration>) {
        let lease = lease.map(|lease| {
            let mut state = self.inner.lock();
            let kept = state.leases.register(&self.pending, &receipt, lease, self.inner.now());
            state.schedule_renewal();
            kept
        });
        self.reserved = Some(StoreGrant { receipt, lease });
    }

    /// Waits until the reservation starts, or its waiter has left.
    async fn wait_until_start(&self, wait: Duration) {
        if wait.is_zero() {
            return;
        }
        let mut sleep = pin!(tokio::time::sleep(wait));
        let over = |context: &mut Context<'_>| {
            let waits = self.inner.lock().scheduler.is_waiting(self.id);
            if waits { sleep.as_mut().poll(context) } else { Poll::Ready(()) }
        };
        poll_fn(over).await;
    }

    /// Grants the reservation, or applies the refusal, and lets other drivers call. Returns the
    /// reservation if its waiter has left.
    fn finish(&mut self, result: Option<ChargeResult>) -> Option<StoreGrant> {
        let Self {
            inner, id, pending, nudge_count, reserved, is_finished, holds_group_slots, ..
        } = self;
        inner.update(|state| {
            let (reserved, waits) = (reserved.take(), state.scheduler.is_waiting(*id));
            // With a grant, the group slots belong to the permit.
            if std::mem::take(holds_group_slots) && !(waits && reserved.is_some()) {
                state.leave_groups_of(pending);
            }
            if reserved.is_some() && !waits {
                return reserved;
            }
            // Under the same lock as what follows, or another driver would call for the same head.
            state.head_in_call = None;
            *is_finished = true;
            if !waits {
                return None;
            }
            let now = inner.now();
            match (reserved, result) {
                (Some(store_grant), _) => {
                    state.scheduler.grant(*id, store_grant, now);
                    state.slot_granted();
                    if let Some(granted) = state.scheduler.pending_mut(*id) {
                        granted.claims.clone_from(&pending.claims);
                    }
                }
                // Something was given back during the call, perhaps too late for the store's
                // answer: the head is tried again.
                (None, Some(ChargeResult::Blocked(_)))
                    if state.scheduler.nudge_count() != *nudge_count => {}
                (None, Some(result)) => state.apply_refusal(*id, result, now),
                (None, None) => {}
            }
            None
        })
    }
}

impl Drop for HeadCall {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut state = self.inner.lock();
        state.head_in_call = None;
        if std::mem::take(&mut self.holds_group_slots) {
            state.leave_groups_of(&self.pending);
        }
        if let Some(StoreGrant { receipt, .. }) = self.reserved.take() {
            state.abandoned.push((self.pending.clone(), receipt));
        }
        // The head may belong to another runtime, whose driver has left the call to us.
        state.drivers.notify_all();
    }
}

impl State {
    /// Applies an answer of a shared store for the head, other than a grant.
    fn apply_refusal(&mut self, id: Id, result: ChargeResult, now: Time) {
        let ChargeResult::Blocked(block) = result else { return self.apply(id, result, now) };
        if let Some(wait) =
            block.timed_wait.filter(|wait| self.scheduler.is_late(id, now.after(*wait)))
        {
            return self.scheduler.fail(id, WaitError::TooLong(wait));
        }
        let lead = block.timed_wait.map(|wait| wait.saturating_sub(RESERVE_AHEAD));
        // Other processes may release slots at any time, without notifying us.
        let least = if block.slots { RETRY_INTERVAL } else { Duration::from_millis(1) };
        let wait = Some(lead.unwrap_or(RETRY_INTERVAL).max(least));
        self.apply(id, ChargeResult::Blocked(Block { wait, ..block }), now);
    }
}
