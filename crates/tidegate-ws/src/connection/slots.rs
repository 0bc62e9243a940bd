//! The slots of a message, given back to the store when the message is done.
//!
//! Nobody waits for it. In process it is done where the slots are dropped; on a shared store a task
//! does it, if there is or was a tokio runtime. Nothing here renews a lease: slots that have one
//! are the store's to give to others when it has run out.

use std::fmt;
use std::sync::Arc;

use tidegate::{Limiter, Policy, Receipt, now_or_never};
use tidegate_core::Place;
use tokio::runtime::Handle;

use crate::connection::charges::{MessageCharge, MessageCharges};

/// The limiters of a gate, by seat.
pub(crate) type Limiters = Arc<[Limiter]>;

/// Whether a limiter counts concurrency, as far as is known here.
pub(crate) fn counts_slots(limiter: &Limiter) -> bool {
    matches!(limiter.snapshot().limit().policy(), Policy::Concurrency(_))
}

/// Whether the store of a limiter has to be waited for.
pub(crate) fn is_on_shared_store(limiter: &Limiter) -> bool {
    limiter.engine().store().local().is_none()
}

/// The slots that a message holds under limits that count concurrency.
pub(crate) struct Slots(Option<Held>);

struct Held {
    limiters: Limiters,
    list: Vec<MessageCharge>,
    receipt: Receipt,
    /// Where they were taken. They may be dropped on a thread that knows no runtime.
    runtime: Option<Handle>,
}

impl Slots {
    /// The slots of a grant, if it has taken any.
    pub(crate) fn of(
        limiters: &Limiters,
        charges: &MessageCharges,
        receipt: Receipt,
    ) -> Option<Self> {
        if !has_slots(&receipt) {
            return None;
        }
        let (limiters, list) = (limiters.clone(), charges.list().to_vec());
        Some(Self(Some(Held { limiters, list, receipt, runtime: Handle::try_current().ok() })))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        if !is_on_shared_store(&held.limiters[0]) {
            now_or_never(held.release());
            return;
        }
        if let Some(runtime) = Handle::try_current().ok().or_else(|| held.runtime.clone()) {
            runtime.spawn(async move { held.release().await });
        }
    }
}

impl Held {
    /// If the store is away, slots with a lease come back when it has run out, and those without
    /// one when their key is reset.
    async fn release(&self) {
        let charges = self
            .list
            .iter()
            .map(|charge| self.limiters[charge.seat].charge(&charge.key, charge.cost));
        let _ = self.limiters[0].engine().release(charges, &self.receipt).await;
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

/// Whether a grant has taken slots, by the places in its receipt. The policy does not tell: it may
/// have changed since it was read, and with a shared store it may have changed elsewhere.
fn has_slots(receipt: &Receipt) -> bool {
    receipt.stamps().iter().any(|stamp| matches!(stamp.place, Place::Slot(_)))
}
