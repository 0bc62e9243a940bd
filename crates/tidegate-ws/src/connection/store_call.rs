//! The store call for the charges of a message.
//!
//! The caller may drop its future before a shared store has decided. Tokens spent by then stay
//! spent, but slots must be released, and only the decision identifies them. So charges with slots
//! are sent by a task, which sees the decision even if the caller is gone. All other charges avoid
//! the task.

use std::sync::Arc;

use tidegate::{Decision, Denial, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::charges::MessageCharges;
use crate::connection::connection_keys::ConnectionKeys;
use crate::connection::slots::{Limiters, Slots, counts_slots, is_on_shared_store};

/// Decision of the store on the charges of a message.
pub(crate) enum StoreDecision {
    /// The message was charged, and these slots were taken.
    Granted(Option<Slots>),
    /// A limit denied the message.
    Denied(Denial),
    /// An unknown variant of the decision, treated as a denial.
    Unknown,
}

impl MessageCharges {
    /// Sends the charges to the store. If the caller drops the future, slots are released, provided
    /// that there is a tokio runtime.
    pub(crate) async fn call_store(
        &self,
        limiters: &Limiters,
        own_keys: &Arc<ConnectionKeys>,
    ) -> Result<StoreDecision, StoreError> {
        let is_shared = limiters.first().is_some_and(is_on_shared_store);
        let takes_slots =
            || self.list().iter().any(|charge| counts_slots(&limiters[charge.limiter_index]));
        let runtime = if is_shared && takes_slots() { Handle::try_current().ok() } else { None };
        let Some(runtime) = runtime else { return self.call(limiters).await };
        let (sender, receiver) = oneshot::channel();
        let (charges, limiters) = (self.to_owned_charges(), limiters.clone());
        let own_keys = Arc::clone(own_keys);
        runtime.spawn(async move {
            // If the receiver is gone, the decision is dropped, which releases its slots.
            let _ = sender.send(charges.call(&limiters).await);
            drop(own_keys);
        });
        let task_ended =
            |_| Err(StoreError::Unavailable("store task ended before its decision".into()));
        receiver.await.unwrap_or_else(task_ended)
    }

    async fn call(&self, limiters: &Limiters) -> Result<StoreDecision, StoreError> {
        match self.request(limiters) {
            Some(request) => Ok(self.decision(limiters, request.await?)),
            None => Ok(StoreDecision::Granted(None)),
        }
    }

    fn decision(&self, limiters: &Limiters, decision: Decision) -> StoreDecision {
        match decision {
            Decision::Allowed(grant) => {
                StoreDecision::Granted(Slots::of(limiters, self, grant.receipt))
            }
            Decision::Denied(denial) => StoreDecision::Denied(denial),
            _ => StoreDecision::Unknown,
        }
    }
}
