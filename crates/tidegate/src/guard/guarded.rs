//! The guard as its users see it: a store around a store.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    FailureRule, Limit, LimitError, Operation, Probe, Store, StoreResponses, Submission, WallTime,
};
use tokio::time::Instant;

use super::builder::GuardBuilder;
use super::call::{Inner, call_store};
use super::fallback::Fallback;
use super::nodes::Nodes;
use super::prober;
use super::stats::GuardStats;

/// A store that answers in time even if the store inside does not. Cheap to clone; clones share
/// everything.
///
/// # Panics
/// When it is called in a tokio runtime without timers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use tidegate::guard::GuardedStore;
/// use tidegate::{Engine, FailureRule, Policy, Store};
/// use tidegate_core::{Operation, StoreResponses, Submission};
///
/// #[derive(Debug)]
/// struct Dead;
/// impl Store for Dead {
///     fn submit<'a>(&'a self, _: &'a [Operation<'a>], _: &'a mut StoreResponses) -> Submission<'a> {
///         Submission::Pending(Box::pin(std::future::pending()))
///     }
/// }
///
/// let store = GuardedStore::builder(Arc::new(Dead)).expected_nodes(4.try_into()?).build()?;
/// let engine = Engine::on(store.clone());
/// let limiter = engine.limiter("api", Policy::per_second(10).capacity(100).build()?)?;
/// for _ in 0..25 {
///     let decision = limiter.take("alice").await?; // each takes 50 ms at most
///     assert!(decision.is_allowed());
///     assert_eq!(decision.degraded(), Some(FailureRule::Local));
/// }
/// assert!(!limiter.take("alice").await?.is_allowed(), "a quarter of the limit is used up");
/// assert!(!store.is_up());
/// assert_eq!((store.stats().local, store.stats().timed_out), (26, 3));
/// # Ok(())
/// # }
/// ```
pub struct GuardedStore {
    inner: Arc<Inner>,
}

impl GuardedStore {
    /// Returns a builder for a guard around this store.
    ///
    /// A store that can fail must implement [`Store::probe`]. The default probe always succeeds:
    /// the store would count as up again at once, and callers would pay three timeouts each time.
    pub fn builder(store: Arc<dyn Store>) -> GuardBuilder {
        GuardBuilder::new(store)
    }

    pub(super) fn new(
        timeout: Duration,
        fallback: Fallback,
        nodes: Nodes,
        store: Arc<dyn Store>,
    ) -> Self {
        Self { inner: Arc::new(Inner::new(timeout, fallback, nodes, store)) }
    }

    /// The guarded store.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    /// Whether the store is currently called.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.inner.breaker.is_up()
    }

    /// Probes the store and returns whether it is up. [`is_up`](Self::is_up) alone changes only
    /// when calls fail, so it is out of date while there are none.
    ///
    /// A store that is up is probed until one probe succeeds, or until as many have failed as it
    /// takes failed calls to mark it as down. Each probe has the timeout of a call. The result is
    /// cached for 250 ms, for all callers.
    pub async fn check(&self) -> bool {
        prober::check(&self.inner).await;
        self.is_up()
    }

    /// The failure rule that decides this limit while the store is down.
    #[must_use]
    pub fn failure_rule(&self, limit: &Limit) -> FailureRule {
        self.inner.fallback.rule(limit)
    }

    /// Counters since the guard was created.
    #[must_use]
    pub fn stats(&self) -> GuardStats {
        self.inner.counters.read()
    }
}

impl Store for GuardedStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        match self.inner.breaker.current_epoch() {
            Some(_) => Submission::Pending(Box::pin(call_store(&self.inner, operations, answers))),
            None => {
                prober::ensure_probing(&self.inner, Instant::now());
                let reason = || self.inner.down();
                self.inner.answer_without_store(operations, answers, FailureRule::Open, reason);
                Submission::Ready
            }
        }
    }

    fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        self.inner.store.check_limit(limit)
    }

    fn wall_time(&self) -> Option<WallTime> {
        self.inner.store.wall_time()
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        self.inner.store.nodes()
    }

    fn probe(&self) -> Probe<'_> {
        self.inner.store.probe()
    }
}

impl Clone for GuardedStore {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl fmt::Debug for GuardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedStore")
            .field("is_up", &self.is_up())
            .field("stats", &self.inner.counters.read())
            .field("store", &&*self.inner.store)
            .finish_non_exhaustive()
    }
}
