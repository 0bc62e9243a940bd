//! Building a guard: its timeout, its default rule, and the memory for local decisions.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{FailureRule, Store};
use tidegate_memory::clock::Clock;
use tidegate_memory::{MemoryError, MemoryStore, MemoryStoreBuilder, Overflow};

use super::GuardedStore;
use super::fallback::Fallback;
use super::nodes::Nodes;
use super::receipts::LocalStore;

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
/// Timers have no finer resolution.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Why a guard cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The timeout is shorter than the resolution of timers.
    #[error("the timeout must be at least {MIN_TIMEOUT:?}, not {0:?}")]
    Timeout(Duration),
    /// The store for local decisions cannot be created.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Builds a [`GuardedStore`].
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::guard::GuardedStore;
/// use tidegate::{FailureRule, MemoryStore, Store};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new()); // any store
/// let guarded = GuardedStore::builder(store)
///     .timeout(Duration::from_millis(20))
///     .default_rule(FailureRule::Closed)
///     .expected_nodes(3.try_into()?)
///     .build()?;
/// let store: Arc<dyn Store> = Arc::new(guarded);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "call `build` to create the guard"]
pub struct GuardBuilder {
    store: Arc<dyn Store>,
    timeout: Duration,
    default_rule: FailureRule,
    expected_nodes: NonZeroU32,
    local: MemoryStoreBuilder,
}

impl GuardBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            timeout: DEFAULT_TIMEOUT,
            default_rule: FailureRule::Local,
            expected_nodes: NonZeroU32::MIN,
            local: MemoryStore::builder(),
        }
    }

    /// Sets the longest time for a call or a probe. Default: 50 ms; minimum: 1 ms. Timers have a
    /// resolution of a millisecond, so a call may end up to one millisecond late.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the failure rule of limits that have no rule of their own, calendar quotas excepted.
    /// Default: [`FailureRule::Local`].
    pub fn default_rule(mut self, rule: FailureRule) -> Self {
        self.default_rule = rule;
        self
    }

    /// Sets the number of nodes to divide limits by until the store has reported a number, and the
    /// minimum until the store has answered for 10 s: when the store or this process has just
    /// started, it may not know all nodes yet. Default: 1.
    pub fn expected_nodes(mut self, nodes: NonZeroU32) -> Self {
        self.expected_nodes = nodes;
        self
    }

    /// Sets the maximum memory for buckets of rule local, in bytes, from 1 MiB to 1 TiB. Memory is
    /// allocated as keys arrive. Default: 64 MiB.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.local = self.local.max_memory(bytes);
        self
    }

    /// Sets what rule local does with a new key when that memory is used up. Default:
    /// [`Overflow::Shared`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.local = self.local.overflow(overflow);
        self
    }

    /// Sets the clock that rule local decides by. Default: the system's monotonic clock. Timeouts
    /// and probes follow tokio's timers.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.local = self.local.clock(clock);
        self
    }

    /// Builds the guard. Does not call the store.
    ///
    /// # Errors
    /// When the timeout is below 1 ms, the memory is below 1 MiB or above 1 TiB, or the operating
    /// system provides no random bytes.
    pub fn build(self) -> Result<GuardedStore, GuardError> {
        if self.timeout < MIN_TIMEOUT {
            return Err(GuardError::Timeout(self.timeout));
        }
        let fallback = Fallback::new(LocalStore::build(self.local)?, self.default_rule);
        let nodes = Nodes::new(self.expected_nodes);
        Ok(GuardedStore::new(self.timeout, fallback, nodes, self.store))
    }
}

impl fmt::Debug for GuardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBuilder")
            .field("timeout", &self.timeout)
            .field("default_rule", &self.default_rule)
            .field("expected_nodes", &self.expected_nodes)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
