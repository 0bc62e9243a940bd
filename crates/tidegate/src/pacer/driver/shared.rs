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

use crate::pacer::driver::leases::Holding;
use crate::pacer::pending_acquire::{Block, PendingAcquire, Verdict};
use crate::pacer::scheduler::Step;
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::waiter::Refused;
use crate::pacer::scope::{Scope, State};

/// How far ahead to reserve on a shared store. Until then, holds, priorities and policy changes
/// still affect who goes next.
const LEAD: Duration = Duration::from_millis(250);

/// How often to call a shared store again when it is unknown when a limit will be ready.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A driver's call to a shared store for the head. However it ends, other drivers can call again,
/// and a reservation is given back. Only an answer that never arrives, because the runtime is shut
/// down during the call, may have been charged.
pub(in crate::pacer) struct Question {
    scope: Arc<Scope>,
    id: Id,
    ticket: PendingAcquire,
    /// How far ahead it may reserve.
    lead: Duration,
    /// Number of nudges of the scheduler before the call.
    nudges: u64,
    reserved: Option<Holding>,
    /// Whether other drivers may call already.
    answered: bool,
    /// Whether it holds slots of the groups of its waiter.
    is_in_groups: bool,
}

impl Scope {
    /// Starts a call for the head, if a shared store has to be called now and no other driver does.
    pub(in crate::pacer) fn to_ask(self: &Arc<Self>, state: &mut State) -> Option<Question> {
        if self.is_local() || state.asking.is_some() {
            return None;
        }
        let now = self.now();
        let id = loop {
            let Step::Try(id) = state.scheduler.next(now) else { return None };
            if state.enter_groups(id, now) {
                break id;
            }
        };
        if state.take_slot().is_err() {
            state.leave_groups(id);
            return None;
        }
        let ticket = state.scheduler.ticket(id)?.clone();
        // A reservation that starts after the deadline is useless.
        let left = state.scheduler.deadline(id).map(|deadline| deadline.since(now));
        let lead = left.map_or(LEAD, |left| left.min(LEAD));
        let (scope, nudges) = (self.clone(), state.scheduler.nudges());
        state.asking = Some(id);
        let (reserved, answered, is_in_groups) = (None, false, true);
        Some(Question { scope, id, ticket, lead, nudges, reserved, answered, is_in_groups })
    }

    /// Takes the reservations of drivers that are gone, to give them back.
    pub(in crate::pacer) fn take_stranded(&self) -> Vec<(PendingAcquire, Receipt)> {
        std::mem::take(&mut self.lock().stranded)
    }
}

impl Question {
    pub(in crate::pacer) fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// Calls a shared store for the head, waits until the reservation starts, and grants it. If the
    /// waiter has left meanwhile, the reservation is given back.
    pub(in crate::pacer) async fn ask(mut self) {
        let store = self.scope.store().clone();
        let refusal = match self.ticket.charge(&store, self.lead).await {
            Verdict::Granted { receipt, wait, charged, lease } => {
                self.ticket.correct(&charged);
                self.hold(receipt, lease);
                self.wait_out(wait).await;
                None
            }
            other => Some(other),
        };
        if let Some(Holding { receipt, lease }) = self.answer(refusal) {
            drop(lease);
            // Before the next head calls: a reservation that builds on this one would prevent
            // giving it back.
            self.ticket.give_back(&store, &receipt).await;
            self.answer(None);
            self.ticket.tell_watchers();
        }
    }

    /// Stores the reservation. Its slots are taken from now on, whenever it starts.
    fn hold(&mut self, receipt: Receipt, lease: Option<Duration>) {
        let lease = lease.map(|lease| {
            let mut state = self.scope.lock();
            let kept = state.leases.keep(&self.ticket, &receipt, lease, self.scope.now());
            state.mind_leases();
            kept
        });
        self.reserved = Some(Holding { receipt, lease });
    }

    /// Waits until the reservation starts, or its waiter has left.
    async fn wait_out(&self, wait: Duration) {
        if wait.is_zero() {
            return;
        }
        let mut sleep = pin!(tokio::time::sleep(wait));
        let over = |context: &mut Context<'_>| {
            let waits = self.scope.lock().scheduler.is_waiting(self.id);
            if waits { sleep.as_mut().poll(context) } else { Poll::Ready(()) }
        };
        poll_fn(over).await;
    }

    /// Grants the reservation, or applies the refusal, and lets other drivers call. Returns the
    /// reservation if its waiter has left.
    fn answer(&mut self, refusal: Option<Verdict>) -> Option<Holding> {
        let Self { scope, id, ticket, nudges, reserved, answered, is_in_groups, .. } = self;
        scope.act(|state| {
            let (reserved, waits) = (reserved.take(), state.scheduler.is_waiting(*id));
            // With a grant, the group slots belong to the permit.
            if std::mem::take(is_in_groups) && !(waits && reserved.is_some()) {
                state.leave_groups_of(ticket);
            }
            if reserved.is_some() && !waits {
                return reserved;
            }
            // Under the same lock as what follows, or another driver would call for the same head.
            state.asking = None;
            *answered = true;
            if !waits {
                return None;
            }
            let now = scope.now();
            match (reserved, refusal) {
                (Some(holding), _) => {
                    state.scheduler.granted(*id, holding, now);
                    state.slot_granted();
                    if let Some(granted) = state.scheduler.ticket_mut(*id) {
                        granted.claims.clone_from(&ticket.claims);
                    }
                }
                // Something was given back during the call, perhaps too late for the store's
                // answer: the head is tried again.
                (None, Some(Verdict::Blocked(_))) if state.scheduler.nudges() != *nudges => {}
                (None, Some(refusal)) => state.refused(*id, refusal, now),
                (None, None) => {}
            }
            None
        })
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.scope.lock();
        state.asking = None;
        if std::mem::take(&mut self.is_in_groups) {
            state.leave_groups_of(&self.ticket);
        }
        if let Some(Holding { receipt, .. }) = self.reserved.take() {
            state.stranded.push((self.ticket.clone(), receipt));
        }
        // The head may belong to another runtime, whose driver has left the call to us.
        state.drivers.ring();
    }
}

impl State {
    /// Applies an answer of a shared store for the head, other than a grant.
    fn refused(&mut self, id: Id, verdict: Verdict, now: Time) {
        let Verdict::Blocked(block) = verdict else { return self.apply(id, verdict, now) };
        if let Some(wait) = block.timed.filter(|wait| self.scheduler.is_late(id, now.after(*wait)))
        {
            return self.scheduler.refuse(id, Refused::TooLong(wait));
        }
        let lead = block.timed.map(|wait| wait.saturating_sub(LEAD));
        // Other processes may release slots at any time, without notifying us.
        let least = if block.slots { ASK_AGAIN } else { Duration::from_millis(1) };
        let wait = Some(lead.unwrap_or(ASK_AGAIN).max(least));
        self.apply(id, Verdict::Blocked(Block { wait, ..block }), now);
    }
}
