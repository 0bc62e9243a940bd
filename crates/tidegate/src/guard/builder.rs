//! Making a guard: how long to wait, what to decide by, and how much memory that may take.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{FailureRule, Store};
use tidegate_memory::clock::Clock;
use tidegate_memory::{MemoryError, MemoryStore, MemoryStoreBuilder, Overflow};

use super::Guarded;
use super::fallback::Fallback;
use super::nodes::Nodes;
use super::receipts::Book;

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
/// Timers are no finer.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);

/// Why a guard cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// A time-out that no timer can keep.
    #[error("the time-out must be at least {LEAST_TIMEOUT:?}, not {0:?}")]
    Timeout(Duration),
    /// No store to decide on while the guarded one does not answer.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Builds a [`Guarded`] store.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::guard::Guarded;
/// use tidegate::{FailureRule, MemoryStore, Store};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new()); // any store
/// let guarded = Guarded::builder(store)
///     .timeout(Duration::from_millis(20))
///     .default_rule(FailureRule::Closed)
///     .expected_nodes(3.try_into()?)
///     .build()?;
/// let store: Arc<dyn Store> = Arc::new(guarded);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a guard is made by `build`"]
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

    /// The longest that a call may take, and a probe. Default: 50 ms; at least 1 ms. Timers are
    /// exact to a millisecond: a call is cut off up to one later than this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What is decided about limits that have no rule of their own and are no calendar quotas.
    /// Default: [`FailureRule::Local`].
    pub fn default_rule(mut self, rule: FailureRule) -> Self {
        self.default_rule = rule;
        self
    }

    /// Among how many nodes a limit is divided as long as the store has never told, and among how
    /// many at least until it has answered for 10 s: one that has just come up, or this process,
    /// may not have met all of them yet. Default: 1.
    pub fn expected_nodes(mut self, nodes: NonZeroU32) -> Self {
        self.expected_nodes = nodes;
        self
    }

    /// Bytes that the buckets of rule local may take, from 1 MiB to 1 TiB. Default: 64 MiB. Memory
    /// is taken as keys come.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.local = self.local.max_memory(bytes);
        self
    }

    /// What rule local does with a new key when that memory is used up. Default:
    /// [`Overflow::Shared`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.local = self.local.overflow(overflow);
        self
    }

    /// The clock that rule local decides by. Default: the system's monotonic clock. Time-outs and
    /// probes follow tokio's timers.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.local = self.local.clock(clock);
        self
    }

    /// The guard. It asks the store nothing yet.
    ///
    /// # Errors
    /// When the time-out is below 1 ms, the memory below 1 MiB or above 1 TiB, or the operating
    /// system gives no random bytes.
    pub fn build(self) -> Result<Guarded, GuardError> {
        if self.timeout < LEAST_TIMEOUT {
            return Err(GuardError::Timeout(self.timeout));
        }
        let fallback = Fallback::new(Book::open(self.local)?, self.default_rule);
        let nodes = Nodes::new(self.expected_nodes);
        Ok(Guarded::new(self.timeout, fallback, nodes, self.store))
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
