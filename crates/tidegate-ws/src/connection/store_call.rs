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
pub(crate) enum Ruling {
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
    pub(crate) async fn ask(
        &self,
        limiters: &Limiters,
        own_keys: &Arc<ConnectionKeys>,
    ) -> Result<Ruling, StoreError> {
        let is_shared = limiters.first().is_some_and(is_on_shared_store);
        let takes_slots = || self.list().iter().any(|charge| counts_slots(&limiters[charge.seat]));
        let runtime = if is_shared && takes_slots() { Handle::try_current().ok() } else { None };
        let Some(runtime) = runtime else { return self.put(limiters).await };
        let (tell, told) = oneshot::channel();
        let (charges, limiters) = (self.copied(), limiters.clone());
        let own_keys = Arc::clone(own_keys);
        runtime.spawn(async move {
            // If the receiver is gone, the decision is dropped, which releases its slots.
            let _ = tell.send(charges.put(&limiters).await);
            drop(own_keys);
        });
        let gone = |_| Err(StoreError::Unavailable("the task that asks has ended".into()));
        told.await.unwrap_or_else(gone)
    }

    async fn put(&self, limiters: &Limiters) -> Result<Ruling, StoreError> {
        match self.request(limiters) {
            Some(request) => Ok(self.ruling(limiters, request.await?)),
            None => Ok(Ruling::Granted(None)),
        }
    }

    fn ruling(&self, limiters: &Limiters, decision: Decision) -> Ruling {
        match decision {
            Decision::Allowed(grant) => Ruling::Granted(Slots::of(limiters, self, grant.receipt)),
            Decision::Denied(denial) => Ruling::Denied(denial),
            _ => Ruling::Unknown,
        }
    }
}
