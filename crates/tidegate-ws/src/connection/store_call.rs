//! Decides the charges of a message on their stores, one after the other.
//!
//! What belongs to the connection is decided first, in this process. If it is denied, the shared
//! store is not called. If the shared store denies, the connection gets back exactly what was
//! charged: it decides one message at a time, so nothing of its own happens in between.
//!
//! If the shared store fails, or the caller is dropped while it decides, it may have charged the
//! message; then the connection's own charge stays too. It also stays if the failure rule `closed`
//! denies. So a ceiling also bounds the messages that a client sends while the store is away.
//!
//! If a store rejects the charges, for example because a key is too long, the ceiling is charged
//! alone, as for frames that are not valid messages.
//!
//! Tokens spent for a dropped caller stay spent, but slots must be released, and only the decision
//! identifies them. So charges with slots are sent by a task, which sees the decision even if the
//! caller is gone. All other charges avoid the task.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::{Decision, Denial, FailureRule, Grant, Receipt, StoreError};
use tidegate_core::BucketLocation;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::charges::{MessageCharge, MessageCharges};
use crate::connection::connection_keys::ConnectionKeys;
use crate::connection::slots::Slots;
use crate::gate::limiters::Limiters;

/// Decision on the charges of a message.
pub(crate) enum ChargeDecision {
    /// The message was charged.
    Granted {
        /// The slots that it took.
        slots: Vec<Slots>,
        /// Number of charged buckets that were full, without that of the ceiling.
        full_buckets: usize,
    },
    /// A limit denied the message.
    Denied {
        denial: Denial,
        /// Index of the first charge that the denial is about.
        first: usize,
    },
    /// An unknown variant of the decision, treated as a denial.
    Unknown,
}

/// Decision of one store.
enum StoreDecision {
    Granted { slots: Option<Slots>, receipt: Receipt, full_buckets: usize },
    Denied(Denial),
    Unknown,
}

impl MessageCharges {
    /// Decides the charges: all of them, or none. If the caller drops the future, slots are
    /// released, provided that there is a tokio runtime.
    pub(crate) async fn decide(
        &self,
        limiters: &Arc<Limiters>,
        own_keys: &mut ConnectionKeys,
    ) -> Result<ChargeDecision, StoreError> {
        let (mut all_slots, mut all_full, mut first) = (Vec::new(), 0, 0);
        let mut granted: SmallVec<[(&[MessageCharge], Receipt); 2]> = SmallVec::new();
        for charges in self.by_store() {
            let decision = match take(limiters, charges).await {
                Err(error) if error.is_caller_error() => {
                    give_back(limiters, &granted);
                    drop(all_slots);
                    return self.charge_ceiling(limiters, own_keys, error).await;
                }
                decision => decision?,
            };
            let denied = match decision {
                StoreDecision::Granted { slots, receipt, full_buckets } => {
                    // The caller may be dropped from here on.
                    own_keys.track(charges);
                    all_slots.extend(slots);
                    all_full += full_buckets;
                    first += charges.len();
                    granted.push((charges, receipt));
                    continue;
                }
                StoreDecision::Denied(denial) => ChargeDecision::Denied { denial, first },
                StoreDecision::Unknown => ChargeDecision::Unknown,
            };
            if !is_without_store(&denied) {
                give_back(limiters, &granted);
            }
            return Ok(denied);
        }
        Ok(ChargeDecision::Granted { slots: all_slots, full_buckets: all_full })
    }

    /// Charges the ceiling alone, for a message whose charges were rejected with `error`.
    async fn charge_ceiling(
        &self,
        limiters: &Arc<Limiters>,
        own_keys: &mut ConnectionKeys,
        error: StoreError,
    ) -> Result<ChargeDecision, StoreError> {
        let is_ceiling = |charge: &MessageCharge| limiters.ceiling() == Some(charge.limiter_index);
        let Some(first) = self.list().iter().position(is_ceiling) else { return Err(error) };
        let ceiling = &self.list()[first..=first];
        if let StoreDecision::Denied(denial) = take(limiters, ceiling).await? {
            return Ok(ChargeDecision::Denied { denial, first });
        }
        own_keys.track(ceiling);
        Err(error)
    }
}

fn give_back(limiters: &Limiters, granted: &[(&[MessageCharge], Receipt)]) {
    granted.iter().for_each(|(charges, receipt)| limiters.give_back(charges, receipt));
}

/// Returns whether the rule for an unavailable store denied, and not a limit.
fn is_without_store(decision: &ChargeDecision) -> bool {
    matches!(decision, ChargeDecision::Denied { denial, .. }
        if denial.degraded == Some(FailureRule::Closed))
}

/// Decides the charges of one store.
async fn take(
    limiters: &Arc<Limiters>,
    charges: &[MessageCharge],
) -> Result<StoreDecision, StoreError> {
    let takes_slots = || charges.iter().any(|charge| limiters.counts_slots(charge.limiter_index));
    let runtime = if limiters.is_shared(charges) && takes_slots() {
        Handle::try_current().ok()
    } else {
        None
    };
    let Some(runtime) = runtime else { return take_here(limiters, charges).await };
    let (sender, receiver) = oneshot::channel();
    let (limiters, charges) = (limiters.clone(), charges.to_vec());
    runtime.spawn(async move {
        // If the receiver is gone, the decision is dropped, which releases its slots.
        let _ = sender.send(take_here(&limiters, &charges).await);
    });
    let task_ended =
        |_| Err(StoreError::Unavailable("store task ended before its decision".into()));
    receiver.await.unwrap_or_else(task_ended)
}

async fn take_here(
    limiters: &Arc<Limiters>,
    charges: &[MessageCharge],
) -> Result<StoreDecision, StoreError> {
    Ok(match limiters.take(charges).await? {
        Decision::Allowed(grant) => StoreDecision::Granted {
            slots: Slots::of(limiters, charges, &grant.receipt),
            full_buckets: full_buckets(limiters, charges, &grant),
            receipt: grant.receipt,
        },
        Decision::Denied(denial) => StoreDecision::Denied(denial),
        _ => StoreDecision::Unknown,
    })
}

/// Returns how many of the charged buckets were full. A full bucket is equivalent to none, so this
/// is the number of buckets that the store had to create. Slots are not counted, and neither is the
/// ceiling, whose key is no choice of the application.
fn full_buckets(limiters: &Limiters, charges: &[MessageCharge], grant: &Grant) -> usize {
    let outcomes = charges.iter().zip(&grant.outcomes).zip(grant.receipt.charges());
    outcomes
        .filter(|((charge, outcome), record)| {
            let is_slot = matches!(record.location, BucketLocation::Slot(_));
            let is_ceiling = limiters.ceiling() == Some(charge.limiter_index);
            let was_full = outcome.remaining.checked_add(charge.cost) == Some(outcome.capacity);
            was_full && !is_slot && !is_ceiling
        })
        .count()
}
