//! The charges of a message put to the store, and what the store decides.
//!
//! Whoever asks a shared store may give up before the answer is there: its future is dropped. Tokens
//! that were spent by then stay spent, but slots have to be given back, and only the answer says
//! which they are. So charges with slots are put to such a store by a task, which sees the answer
//! whatever becomes of the one who asked. All others are spared the task.

use std::sync::Arc;

use tidegate::{Decision, Denial, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::charges::MessageCharges;
use crate::connection::connection_keys::ConnectionKeys;
use crate::connection::slots::{Limiters, Slots, counts_slots, is_on_shared_store};

/// What the store decides on the charges of a message.
pub(crate) enum Ruling {
    /// It was charged, and these slots were taken.
    Granted(Option<Slots>),
    /// A limit denies it.
    Denied(Denial),
    /// A kind of decision that is not known here, and so no permission.
    Unknown,
}

impl MessageCharges {
    /// Puts the charges to any store. Slots are given back if nobody waits for the answer any more,
    /// unless there is no tokio runtime to see to it.
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
            // What nobody fetches is dropped, and slots are given back by that.
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
