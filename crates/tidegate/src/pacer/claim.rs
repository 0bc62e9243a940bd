//! Claims: what an acquire waits for.

use std::sync::{Arc, Weak};

use tidegate_core::{Key, KeyBuf, WallTime};

use crate::store_handle::StoreHandle;
use crate::terms::{Snapshot, Terms, Watch};

/// Tokens wanted of one key of a limiter, under the policy that holds when they are granted.
///
/// Made by [`Limiter::claim`](crate::Limiter::claim).
#[derive(Clone, Debug)]
pub struct Claim {
    pub(super) terms: Arc<Terms>,
    store: StoreHandle,
    pub(super) key: KeyBuf,
    pub(super) cost: u64,
    /// What it is expected to cost in the end, if that is less.
    expected: Option<u64>,
    pub(super) own: bool,
}

impl Claim {
    pub(crate) fn new(terms: Arc<Terms>, store: StoreHandle, key: Key<'_>, cost: u64) -> Self {
        Self { terms, store, key: key.into(), cost, expected: None, own: false }
    }

    /// Says that the limit is the tenant's own: while it is not ready, other tenants go on.
    ///
    /// A limit that several tenants share must not be marked so, or they would overtake each
    /// other on it.
    #[must_use]
    pub fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// Says that the permit will be settled to about so many tokens. The whole cost is charged when
    /// it is granted, but a projected wait counts on what is given back: nobody is refused for the
    /// sake of tokens that those ahead will not use. Default: the cost.
    #[must_use]
    pub const fn expected(mut self, tokens: u64) -> Self {
        self.expected = Some(tokens);
        self
    }

    /// What it is expected to cost in the end.
    pub(super) fn expected_cost(&self) -> u64 {
        self.expected.map_or(self.cost, |expected| expected.min(self.cost))
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

    /// What two claims on the same bucket have in common.
    pub(super) fn bucket(&self) -> BucketName {
        (self.terms.limit().shared_identity(), self.key.clone())
    }

    /// Whether two claims are on the same bucket.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.key == other.key
            && (Arc::ptr_eq(&self.terms, &other.terms) || self.terms.limit() == other.terms.limit())
    }

    /// Lets plain takes know that somebody waits for these tokens, or waits no more.
    pub(super) fn queue_up(&self) {
        if self.cost == 0 {
            return;
        }
        self.terms.queued().join(&self.key, self.cost);
    }

    pub(super) fn queue_off(&self) {
        if self.cost == 0 {
            return;
        }
        self.terms.queued().leave(&self.key, self.cost);
    }

    /// Whether the claim is on a limit of this store.
    pub(super) fn is_on(&self, store: &StoreHandle) -> bool {
        self.store.is_same(store)
    }

    /// Lets somebody know when the policy changes.
    pub(super) fn watch(&self, watcher: Weak<dyn Watch>) {
        self.terms.watch(watcher);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let wall =
            if self.terms.on_calendar() { self.store.wall_time() } else { WallTime::default() };
        self.terms.snapshot(wall)
    }
}

/// The limit and the key of a bucket.
pub(super) type BucketName = (Arc<str>, KeyBuf);

/// What to do with a cost above the capacity of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversize {
    /// Refuse it at once.
    #[default]
    Refuse,
    /// Let it go when the bucket is full, and take the rest as debt, up to the policy's
    /// `max_debt`; more than that is refused.
    Debt,
}
