//! Charges on limiters: what lists are made of, and what a pacer waits for.

use std::sync::Arc;

use tidegate_core::AnyKey;

use crate::store_handle::StoreHandle;
use crate::terms::{Snapshot, Terms};

/// Tokens of one key of a limiter, under the policy that holds when they are spent.
///
/// Made by [`Limiter::charge`](crate::Limiter::charge). An [`Engine`](crate::Engine) decides lists of
/// them at once, a [`Pacer`](crate::pacer::Pacer) waits until a list fits.
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
    pub(crate) terms: Arc<Terms>,
    pub(crate) store: StoreHandle,
    pub(crate) key: AnyKey<'a>,
    pub(crate) cost: u64,
    /// What it is expected to cost in the end, if that is less.
    pub(crate) expected: Option<u64>,
    pub(crate) own: bool,
}

impl<'a> Charge<'a> {
    pub(crate) const fn new(
        terms: Arc<Terms>,
        store: StoreHandle,
        key: AnyKey<'a>,
        cost: u64,
    ) -> Self {
        Self { terms, store, key, cost, expected: None, own: false }
    }

    /// For a pacer: the limit is the tenant's own. While it is not ready, other tenants go on.
    ///
    /// A limit that several tenants share must not be marked so, or they would overtake each
    /// other on it.
    #[must_use]
    pub const fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// For a pacer: the permit will be settled to about so many tokens. The whole cost is charged
    /// when it is granted, but a projected wait counts on what is given back: nobody is refused for
    /// the sake of tokens that those ahead will not use. Default: the cost.
    #[must_use]
    pub const fn expected(mut self, tokens: u64) -> Self {
        self.expected = Some(tokens);
        self
    }

    /// How many tokens.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The name of the limit.
    #[must_use]
    pub fn limit(&self) -> String {
        self.terms.limit().name().to_owned()
    }

    /// Copies a borrowed key, so that the charge can be kept.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
        let Self { terms, store, key, cost, expected, own } = self;
        Charge { terms, store, key: key.into_key_buf().into(), cost, expected, own }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.terms.snapshot_on(&self.store)
    }
}
