//! Charges on limiters: the elements of a list, and what a pacer waits for.

use std::sync::Arc;

use tidegate_core::AnyKey;

use crate::live_limit::{LimitSnapshot, LiveLimit};
use crate::store_handle::StoreHandle;

/// A number of tokens of one key of a limiter, under the policy in force when they are spent.
///
/// Made by [`Limiter::charge`](crate::Limiter::charge). An [`Engine`](crate::Engine) decides a list
/// of charges at once; a [`Pacer`](crate::pacer::Pacer) waits until a list fits.
///
/// ```
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let client = engine.limiter("client", Policy::per_second(50).burst(100).build()?)?;
/// let organization = engine.limiter("organization", Policy::per_second(500).build()?)?;
///
/// let decision = engine.take([client.charge("alice", 3), organization.charge("acme", 3)]).now()?;
/// assert!(decision.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    pub(crate) live_limit: Arc<LiveLimit>,
    pub(crate) store: StoreHandle,
    pub(crate) key: AnyKey<'a>,
    pub(crate) cost: u64,
    /// Expected final cost, if lower than `cost`.
    pub(crate) expected: Option<u64>,
    pub(crate) per_tenant: bool,
}

impl<'a> Charge<'a> {
    pub(crate) const fn new(
        live_limit: Arc<LiveLimit>,
        store: StoreHandle,
        key: AnyKey<'a>,
        cost: u64,
    ) -> Self {
        Self { live_limit, store, key, cost, expected: None, per_tenant: false }
    }

    /// Marks the limit as the tenant's own, for a pacer: while it is not ready, other tenants go
    /// on.
    ///
    /// Do not mark a limit that several tenants share: they would overtake each other on it.
    #[must_use]
    pub const fn per_tenant(mut self) -> Self {
        self.per_tenant = true;
        self
    }

    /// Sets the number of tokens that the permit is expected to be settled to, for a pacer.
    ///
    /// The grant charges the full cost, but projected waits count on the refund: a caller is not
    /// refused because of tokens that the waiters ahead of it will not use. Default: the cost.
    #[must_use]
    pub const fn expected(mut self, tokens: u64) -> Self {
        self.expected = Some(tokens);
        self
    }

    /// Number of tokens.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Name of the limit.
    #[must_use]
    pub fn limit(&self) -> String {
        self.live_limit.limit().name().to_owned()
    }

    /// Copies a borrowed key, so that the charge can be stored.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
        let Self { live_limit, store, key, cost, expected, per_tenant } = self;
        Charge { live_limit, store, key: key.into_key_buf().into(), cost, expected, per_tenant }
    }

    pub(crate) fn snapshot(&self) -> LimitSnapshot {
        self.live_limit.snapshot_on(&self.store)
    }
}
