//! Slots of a message, released when the message is done.
//!
//! No caller waits for the release. On a local store it happens where the slots are dropped; on a
//! shared store in a task, if there is or was a tokio runtime. Leases are not renewed: when a lease
//! expires, the store may grant its slot to others.

use std::fmt;
use std::sync::Arc;

use tidegate::{Limiter, Policy, Receipt, now_or_never};
use tidegate_core::BucketLocation;
use tokio::runtime::Handle;

use crate::connection::charges::{MessageCharge, MessageCharges};

/// The limiters of a gate, by index.
pub(crate) type Limiters = Arc<[Limiter]>;

/// Returns whether a limiter counts concurrency, according to the policy known here.
pub(crate) fn counts_slots(limiter: &Limiter) -> bool {
    matches!(limiter.snapshot().limit().policy(), Policy::Concurrency(_))
}

/// Returns whether a limiter is on a shared store.
pub(crate) fn is_on_shared_store(limiter: &Limiter) -> bool {
    limiter.engine().store().local().is_none()
}

/// The slots that a message holds.
pub(crate) struct Slots(Option<HeldSlots>);

struct HeldSlots {
    limiters: Limiters,
    list: Vec<MessageCharge>,
    receipt: Receipt,
    /// Runtime in which they were taken. They may be dropped on a thread without one.
    runtime: Option<Handle>,
}

impl Slots {
    /// Returns the slots of a grant, if it took any.
    pub(crate) fn of(
        limiters: &Limiters,
        charges: &MessageCharges,
        receipt: Receipt,
    ) -> Option<Self> {
        if !has_slots(&receipt) {
            return None;
        }
        let (limiters, list) = (limiters.clone(), charges.list().to_vec());
        Some(Self(Some(HeldSlots { limiters, list, receipt, runtime: Handle::try_current().ok() })))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let Some(slots) = self.0.take() else { return };
        if !is_on_shared_store(&slots.limiters[0]) {
            now_or_never(slots.release());
            return;
        }
        if let Some(runtime) = Handle::try_current().ok().or_else(|| slots.runtime.clone()) {
            runtime.spawn(async move { slots.release().await });
        }
    }
}

impl HeldSlots {
    /// Releases the slots. If the store is unavailable, slots with a lease are released when it
    /// expires, and those without one when their key is reset.
    async fn release(&self) {
        let charges = self
            .list
            .iter()
            .map(|charge| self.limiters[charge.limiter_index].charge(&charge.key, charge.cost));
        let _ = self.limiters[0].engine().release(charges, &self.receipt).await;
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

/// Returns whether a grant took slots, judging by its receipt. The policy is no indication: it may
/// have changed since it was read, on a shared store also by another node.
fn has_slots(receipt: &Receipt) -> bool {
    receipt.charges().iter().any(|record| matches!(record.location, BucketLocation::Slot(_)))
}
