//! Permits: what was granted, how long it took, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{ReceiptError, Settlement, StoreError};

use super::adaptive::{CallStart, PermitOutcome};
use super::claim::Claim;
use super::driver::leases::StoreGrant;
use super::inner::PacerInner;
use super::pending_acquire::PendingAcquire;
use super::scheduler::wait_attribution::WaitPart;
use crate::store_handle::now_or_never;

/// What happens to the tokens of a permit that is dropped without being settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnDrop {
    /// They stay spent: the call may have been made.
    #[default]
    Keep,
    /// They are given back: the call was not made.
    Refund,
}

impl OnDrop {
    pub(super) const fn refund(is_refunded: bool) -> Self {
        if is_refunded { Self::Refund } else { Self::Keep }
    }
}

/// Permission to proceed. While it lives it holds one slot of the pacer's concurrency.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::pacer::{Pacer, PermitOutcome};
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let tokens = engine.limiter("tokens", Policy::per_minute(60_000).capacity(1_000).build()?)?;
/// let pacer = Pacer::builder(&engine).concurrency(4).build();
///
/// let mut permit = pacer.acquire([tokens.charge("gpt", 300)]).await?;
/// // ... the call turns out to have used 120 tokens:
/// permit.settle_now(&[120])?;
/// permit.finish(PermitOutcome::Success);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the permit releases its slot"]
pub struct Permit {
    inner: Arc<PacerInner>,
    details: GrantDetails,
    settled: bool,
    /// Whether what it held was already given back.
    returned: bool,
    outcome: PermitOutcome,
}

/// The grant that a permit is made of.
pub(super) struct GrantDetails {
    pub(super) pending: PendingAcquire,
    pub(super) store_grant: StoreGrant,
    pub(super) waited: Duration,
    pub(super) parts: Vec<WaitPart>,
    pub(super) on_drop: OnDrop,
    pub(super) call_start: CallStart,
}

impl Permit {
    pub(super) fn new(inner: Arc<PacerInner>, details: GrantDetails) -> Self {
        let outcome = PermitOutcome::default();
        Self { inner, details, settled: false, returned: false, outcome }
    }

    /// How long the caller waited, by the store's clock; zero if it did not.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.details.waited
    }

    /// The limits that made it wait and for how long, longest first. While several limits are not
    /// ready, the first one in the list of charges counts, so that a later one has only the time
    /// beyond that. On the in-process store the sum is [`waited`](Self::waited); on a shared one, up
    /// to 250 ms of a reservation may have no cause.
    #[must_use]
    pub fn wait_parts(&self) -> &[WaitPart] {
        &self.details.parts
    }

    /// Whether slots that it holds were lost. This applies to slots of a [concurrency limit with a
    /// lease](crate::Policy::concurrency) that could not be renewed in time. Other holders may have
    /// them by now; they are not taken again. Always `false` for a permit without such slots.
    ///
    /// Slots are renewed automatically at a third of the lease, while the runtime (or outside a
    /// runtime, the process) runs. They are lost if it was suspended, or the store was unreachable,
    /// for longer than the lease, or if the store has forgotten them.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use tidegate::clock::ManualClock;
    /// # use tidegate::{Engine, MemoryStore, Policy, pacer::Pacer};
    /// # let clock = ManualClock::new();
    /// # let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// # let engine = Engine::on(std::sync::Arc::new(store));
    /// let lease = Duration::from_secs(30);
    /// let calls = engine.limiter("calls", Policy::concurrency(1, Some(lease))?)?;
    /// let pacer = Pacer::builder(&engine).manual().build();
    /// let permit = pacer.acquire([calls.charge("key", 1)]).now()?;
    /// clock.advance(lease / 2);
    /// pacer.poll(); // renews: a pacer that is not driven manually does so by itself
    /// clock.advance(lease / 2);
    /// assert!(!permit.has_lost_slots());
    /// clock.advance(lease);
    /// assert!(permit.has_lost_slots());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn has_lost_slots(&self) -> bool {
        self.details.store_grant.lease.as_ref().is_some_and(|lease| lease.is_lost(self.inner.now()))
    }

    /// Corrects each charge to the actual use, in the order of the charges: the difference is given
    /// back, or charged, into debt if necessary. Can be called again as more becomes known.
    ///
    /// # Errors
    /// When the number of values is not that of the charges, or the store refuses. Nothing is
    /// changed then.
    pub async fn settle(&mut self, actual: &[u64]) -> Result<Settlement, StoreError> {
        let GrantDetails { pending, store_grant, .. } = &mut self.details;
        if actual.len() != pending.claims.len() {
            return Err(ReceiptError::Mismatch.into());
        }
        let delta = |(claim, actual): (&Claim, &u64)| {
            let delta = i128::from(*actual) - i128::from(claim.cost);
            i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX })
        };
        let deltas: Vec<i64> = pending.claims.iter().zip(actual).map(delta).collect();
        if let Some(lease) = &store_grant.lease {
            // A renewal must not report slots as lost that are given back on purpose.
            lease.lower_to(actual);
        }
        let settlement = self.inner.settle(pending, &deltas, &store_grant.receipt).await?;
        // From here on, what was actually charged counts: forgiven debt is not given back.
        for (claim, applied) in pending.claims.iter_mut().zip(&settlement.applied) {
            claim.cost = claim.cost.saturating_add_signed(*applied);
        }
        self.settled = true;
        Ok(settlement)
    }

    /// Runs [`settle`](Self::settle) at once, on the in-process store.
    ///
    /// # Errors
    /// Those of [`settle`](Self::settle), and [`StoreError::MustAwait`] if the store is shared.
    pub fn settle_now(&mut self, actual: &[u64]) -> Result<Settlement, StoreError> {
        if !self.inner.is_local() {
            return Err(StoreError::MustAwait);
        }
        now_or_never(self.settle(actual)).unwrap_or(Err(StoreError::MustAwait))
    }

    /// Changes whether the tokens are given back if the permit is dropped without being settled.
    ///
    /// ```
    /// # use tidegate::{Engine, Policy, pacer::Pacer};
    /// # let engine = Engine::new();
    /// let calls = engine.limiter("calls", Policy::per_minute(1).capacity(1).build()?)?;
    /// let pacer = Pacer::new(&engine);
    /// let mut permit = pacer.acquire([calls.charge("key", 1)]).refund_on_drop(true).now()?;
    /// // ... the call is about to be made:
    /// permit.set_refund_on_drop(false);
    /// drop(permit);
    /// assert!(pacer.acquire([calls.charge("key", 1)]).now().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_refund_on_drop(&mut self, is_refunded: bool) {
        self.details.on_drop = OnDrop::refund(is_refunded);
    }

    /// Ends the permit as dropping it does, and completes when a shared store has released its
    /// slots, so that the next request finds them free. If the future is dropped before that, slots
    /// that were not yet released expire with their lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use tidegate::{Engine, Policy, pacer::Pacer};
    /// # let engine = Engine::new();
    /// let lease = Some(Duration::from_secs(30));
    /// let calls = engine.limiter("calls", Policy::concurrency(1, lease)?)?;
    /// let pacer = Pacer::new(&engine);
    /// pacer.acquire([calls.charge("key", 1)]).await?.release().await;
    /// assert!(pacer.acquire([calls.charge("key", 1)]).now().is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) {
        let on_drop = self.on_drop();
        let GrantDetails { pending, store_grant, .. } = &self.details;
        if let Some(lease) = &store_grant.lease {
            lease.end();
        }
        let back = self.inner.give_back(pending, &store_grant.receipt, on_drop);
        self.returned = true;
        if let Some(back) = back {
            back.await;
        }
    }

    /// What happens to its tokens when it ends.
    const fn on_drop(&self) -> OnDrop {
        if self.settled { OnDrop::Keep } else { self.details.on_drop }
    }

    /// Ends the permit and reports how the call ended, for an adaptive concurrency.
    pub fn finish(mut self, outcome: PermitOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let on_drop = (!self.returned).then(|| self.on_drop());
        let GrantDetails { pending, store_grant, call_start, .. } = &mut self.details;
        self.inner.release(pending, store_grant, on_drop, (self.outcome, *call_start));
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("claims", &self.details.pending.claims)
            .field("waited", &self.details.waited)
            .field("parts", &self.details.parts)
            .finish_non_exhaustive()
    }
}
