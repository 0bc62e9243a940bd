//! Slots of a message, released when the message is done.
//!
//! No caller waits for the release. On an in-process store it happens where the slots are dropped;
//! on a shared store in a task, if there is or was a tokio runtime. Leases are not renewed: when a
//! lease expires, the store may grant its slot to others.

use std::fmt;
use std::sync::Arc;

use tidegate::{Receipt, now_or_never};
use tidegate_core::BucketLocation;
use tokio::runtime::Handle;

use crate::connection::charges::MessageCharge;
use crate::gate::limiters::Limiters;

/// The slots that a message holds on one store.
pub(crate) struct Slots(Option<HeldSlots>);

struct HeldSlots {
    limiters: Arc<Limiters>,
    list: Vec<MessageCharge>,
    receipt: Receipt,
    /// Runtime in which they were taken. They may be dropped on a thread without one.
    runtime: Option<Handle>,
}

impl Slots {
    /// Returns the slots of a grant, if it took any.
    pub(crate) fn of(
        limiters: &Arc<Limiters>,
        charges: &[MessageCharge],
        receipt: &Receipt,
    ) -> Option<Self> {
        if !has_slots(receipt) {
            return None;
        }
        let (limiters, list, receipt) = (limiters.clone(), charges.to_vec(), receipt.clone());
        Some(Self(Some(HeldSlots { limiters, list, receipt, runtime: Handle::try_current().ok() })))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let Some(slots) = self.0.take() else { return };
        if !slots.limiters.is_shared(&slots.list) {
            now_or_never(slots.release());
            return;
        }
        if let Some(runtime) = Handle::try_current().ok().or_else(|| slots.runtime.clone()) {
            runtime.spawn(async move { slots.release().await });
        }
    }
}

impl HeldSlots {
    async fn release(&self) {
        self.limiters.release(&self.list, &self.receipt).await;
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
