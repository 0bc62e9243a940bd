//! Claims: what an acquire waits for.

use std::sync::{Arc, Weak};

use tidegate_core::KeyBuf;

use crate::charge::Charge;
use crate::live_limit::{LimitSnapshot, LimitWatcher, LiveLimit};
use crate::store_handle::StoreHandle;

/// A charge that an acquire waits for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(super) live_limit: Arc<LiveLimit>,
    store: StoreHandle,
    pub(super) key: KeyBuf,
    pub(super) cost: u64,
    /// Expected final cost, if lower than `cost`.
    expected: Option<u64>,
    pub(super) per_tenant: bool,
}

impl From<Charge<'_>> for Claim {
    fn from(charge: Charge<'_>) -> Self {
        let Charge { live_limit, store, key, cost, expected, per_tenant } = charge;
        Self { live_limit, store, key: key.into_key_buf(), cost, expected, per_tenant }
    }
}

impl Claim {
    /// Expected final cost.
    pub(super) fn expected_cost(&self) -> u64 {
        self.expected.map_or(self.cost, |expected| expected.min(self.cost))
    }

    /// Name of the limit.
    pub(super) fn limit(&self) -> String {
        self.live_limit.limit().name().to_owned()
    }

    /// Identifies the bucket of the claim.
    pub(super) fn bucket(&self) -> BucketName {
        (self.live_limit.limit().shared_identity(), self.key.clone())
    }

    /// Whether two claims are on the same bucket.
    pub(super) fn is_same_bucket(&self, other: &Self) -> bool {
        self.key == other.key
            && (Arc::ptr_eq(&self.live_limit, &other.live_limit)
                || self.live_limit.limit() == other.live_limit.limit())
    }

    /// Registers the tokens as wanted, so that plain takes do not overtake the waiter.
    pub(super) fn register_demand(&self) {
        if self.cost == 0 {
            return;
        }
        self.live_limit.queued_demand().add(&self.key, self.cost);
    }

    pub(super) fn unregister_demand(&self) {
        if self.cost == 0 {
            return;
        }
        self.live_limit.queued_demand().remove(&self.key, self.cost);
    }

    /// Whether the claim is on a limit of this store.
    pub(super) fn is_on(&self, store: &StoreHandle) -> bool {
        self.store.ptr_eq(store)
    }

    /// Registers a watcher for policy changes.
    pub(super) fn watch(&self, watcher: Weak<dyn LimitWatcher>) {
        self.live_limit.watch(watcher);
    }

    pub(super) fn snapshot(&self) -> LimitSnapshot {
        self.live_limit.snapshot_on(&self.store)
    }
}

/// Limit identity and key of a bucket.
pub(super) type BucketName = (Arc<str>, KeyBuf);

/// What to do with a cost above the capacity of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Oversize {
    /// Refuse it at once.
    #[default]
    Refuse,
    /// Grant it when the bucket is full, and turn the rest into debt, up to the policy's
    /// `max_debt`; more than that is refused.
    Debt,
}
