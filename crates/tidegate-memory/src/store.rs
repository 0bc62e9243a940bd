//! The in-process store and its public interface.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::decide::{self, DecisionMode};
use tidegate_core::{
    Charge, Decision, Denial, Key, Limit, Now, Operation, Outcome, Outcomes, Retry, Store,
    StoreError, StoreResponse, StoreResponses, Submission, Target, Time, WallTime,
};

use crate::builder::{MemoryStoreBuilder, Overflow, Sizes};
use crate::clock::{ClockSource, ClockWatcher};
use crate::operation::LeaseAction;
use crate::operation::bare_decision::BareDecision;
use crate::side_table::SideTable;
use crate::side_table::holds::Holds;
use crate::side_table::leases::Leases;
use crate::snapshot::RestoredLimits;
use crate::stats::Stats;
use crate::sync::RwLock;
use crate::table::Table;
use crate::table::hash::Hasher;
use crate::table::overflow::SharedBuckets;

/// A store that keeps its buckets in the memory of this process. Another process with the same
/// limits has other buckets, so `n` processes allow up to `n` times a limit. To share limits between
/// processes, use a store behind a server: it implements the same [`Store`] contract.
///
/// ```
/// use tidegate::{MemoryStore, Policy};
/// use tidegate_core::Limit;
/// let store = MemoryStore::new();
/// let limit = Limit::named("client", Policy::per_second(1).capacity(2).build()?)?;
/// assert!(store.take_one(&limit, "alice".into(), 2).is_allowed());
/// assert!(!store.take_one(&limit, "alice".into(), 1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    pub(crate) table: Table,
    pub(crate) side_table: SideTable,
    pub(crate) shared: SharedBuckets,
    /// Newest revision seen of each revised limit, for callers that still use an older one.
    pub(crate) newest: RwLock<BTreeMap<Arc<str>, Limit>>,
    /// Limits of earlier processes, read from the snapshot.
    pub(crate) restored: RestoredLimits,
    pub(crate) hasher: Hasher,
    pub(crate) clock: ClockSource,
    pub(crate) sizes: Sizes,
    pub(crate) overflow: Overflow,
    pub(crate) issuer: u64,
    /// Decisions on keys for which there was no room in the table.
    pub(crate) overflowed: AtomicU64,
    /// Settlements that reached the maximum debt.
    pub(crate) saturated: AtomicU64,
}

impl MemoryStore {
    /// Creates a store of at most 64 MiB with the default [clock](crate::clock).
    ///
    /// # Panics
    /// If the operating system does not provide random bytes or address space. Use the builder to
    /// handle that.
    #[must_use]
    #[expect(clippy::expect_used, reason = "documented; the builder returns an error instead")]
    pub fn new() -> Self {
        Self::builder()
            .build()
            .expect("the operating system provides random bytes and address space")
    }

    /// Returns a builder for a store with another size, overflow behaviour or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// Creates a store; `None` if there is no address space for its table.
    pub(crate) fn assemble(
        sizes: Sizes,
        overflow: Overflow,
        clock: ClockSource,
        seed: u64,
        issuer: u64,
    ) -> Option<Self> {
        Some(Self {
            table: Table::new(&sizes)?,
            side_table: SideTable::new(sizes.max_holds, sizes.max_leases),
            shared: SharedBuckets::new(sizes.max_shared_sets),
            newest: RwLock::new(BTreeMap::new()),
            restored: RestoredLimits::default(),
            hasher: Hasher::new(seed),
            clock,
            sizes,
            overflow,
            issuer,
            overflowed: AtomicU64::new(0),
            saturated: AtomicU64::new(0),
        })
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// If the list or the receipt is invalid, or there is no room for a hold or a slot lease.
    pub fn execute(&self, operation: &Operation<'_>) -> Result<StoreResponse, StoreError> {
        match *operation {
            Operation::Take(charges) => {
                self.decide(charges, DecisionMode::Take).map(StoreResponse::Decision)
            }
            Operation::Peek(charges) => {
                self.decide(charges, DecisionMode::Peek).map(StoreResponse::Decision)
            }
            Operation::Reserve { charges, horizon } => {
                self.decide(charges, DecisionMode::Reserve(horizon)).map(StoreResponse::Decision)
            }
            Operation::Settle { corrections, receipt } => {
                self.settle(corrections, receipt).map(StoreResponse::Settled)
            }
            Operation::Release { targets, receipt } => {
                self.update_leases(targets, receipt, LeaseAction::Release).map(StoreResponse::Slots)
            }
            Operation::Renew { targets, receipt } => {
                self.update_leases(targets, receipt, LeaseAction::Renew).map(StoreResponse::Slots)
            }
            Operation::Hold { target, span } => {
                decide::check_list([target.key])?;
                self.hold(&target, span).map(StoreResponse::HeldFor)
            }
            Operation::Reset { target } => {
                decide::check_list([target.key])?;
                Ok(StoreResponse::Reset(self.reset(&target)))
            }
            // `Operation` is non-exhaustive.
            _ => Err(StoreError::Unavailable("operation not supported by this store".into())),
        }
    }

    /// Spends `cost` tokens of one key, or denies.
    ///
    /// Also denies where [`execute`](Self::execute) returns an error: on a calendar quota, which
    /// needs windows, on an invalid key, and when there is no room for a slot lease.
    pub fn take_one(&self, limit: &Limit, key: Key<'_>, cost: u64) -> Decision {
        if let Some(fast) = self.fast_charge_of(limit, key, cost) {
            let found = self.table.look_up_and_prefetch(fast.fingerprint());
            if let Some(decision) = self.take_fast(fast, found, self.now_before_lock()) {
                return decision;
            }
        }
        self.take_general(limit, key, cost)
    }

    /// Handles what the fast path does not.
    #[cold]
    fn take_general(&self, limit: &Limit, key: Key<'_>, cost: u64) -> Decision {
        let charge = Charge { target: Target { limit, key, windows: None }, cost };
        self.decide_general(&[charge], DecisionMode::Take).unwrap_or_else(|_| {
            let outcome = Outcome::new(limit.policy().capacity(), 0, None, Some(Retry::Never));
            Decision::Denied(Denial::new(smallvec::smallvec![outcome]))
        })
    }

    /// Spends `cost` tokens of one key, or denies, without a receipt. This is the fastest path, for
    /// callers that never settle.
    #[inline(always)]
    pub fn spend_one<'l>(&self, limit: &'l Limit, key: Key<'_>, cost: u64) -> BareDecision<'l> {
        if let Some(fast) = self.fast_charge_of(limit, key, cost) {
            let found = self.table.look_up_and_prefetch(fast.fingerprint());
            if let Some(decision) = self.spend_fast(fast, found, self.now_before_lock()) {
                return decision;
            }
        }
        self.spend_general(limit, key, cost)
    }

    /// Handles what the fast path does not.
    #[cold]
    pub(crate) fn spend_general<'l>(
        &self,
        limit: &'l Limit,
        key: Key<'_>,
        cost: u64,
    ) -> BareDecision<'l> {
        let decision = self.take_general(limit, key, cost);
        let never = Outcome::new(limit.policy().capacity(), 0, None, Some(Retry::Never));
        BareDecision::from_outcome(decision.outcomes().first().copied().unwrap_or(never))
    }

    /// Returns the id of this store, as found in its receipts.
    ///
    /// ```
    /// use tidegate::{MemoryStore, Policy};
    /// use tidegate_core::Limit;
    /// let store = MemoryStore::new();
    /// let limit = Limit::named("client", Policy::per_second(1).build()?)?;
    /// let grant = store.take_one(&limit, "alice".into(), 1).granted();
    /// assert_eq!(grant.map(|grant| grant.receipt.issuer()), Some(store.issuer()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn issuer(&self) -> u64 {
        self.issuer
    }

    /// Returns the name of the clock in use: `counter`, `system`, `cached`, or `other` for a clock
    /// from outside this crate. A store on the time stamp counter reports `system` once it has
    /// fallen back to the system clock.
    #[must_use]
    pub fn clock_name(&self) -> &'static str {
        self.clock.name()
    }

    /// Returns the time of the store's clock. It is not before any earlier reading whose result is
    /// visible to the caller.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now_ordered()
    }

    /// Registers a watcher of the store's clock, if its time moves only when a program says so; see
    /// [`Clock::watch`](crate::clock::Clock::watch).
    pub fn watch_clock(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        self.clock.watch(watcher)
    }

    /// Removes keys whose bucket has been full for `max_idle`, and releases memory. Returns the
    /// number of keys removed. This loses nothing, since a full bucket is equivalent to none.
    pub fn cleanup_stale(&self, max_idle: Duration) -> usize {
        let now = self.clock.now();
        self.shared.clean(Now { time: now, wall: self.clock.wall() });
        self.side_table.clean(max_idle, now);
        self.table.clean(max_idle, now, &self.clock)
    }

    /// Removes every key, hold and lease.
    pub fn clear(&self) {
        self.table.clear();
        self.side_table.clear();
        self.shared.clear();
    }

    /// Returns the number of keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.stats().keys
    }

    /// Returns whether the table has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns statistics. Reads the header of every segment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let table = self.table.stats();
        let (held_keys, leases) = (self.side_table.holds(), self.side_table.leases());
        Stats {
            keys: table.keys,
            max_keys: Table::max_keys(&self.sizes),
            held_keys,
            leases,
            memory_bytes: table.bytes
                + self.side_table.bytes()
                + held_keys * Holds::BYTES
                + leases * Leases::BYTES
                + self.shared.bytes(),
            max_memory_bytes: self.sizes.max_memory,
            inserted: table.inserted,
            evicted: table.evicted,
            overflowed: self.overflowed.load(Ordering::Relaxed),
            saturated: self.saturated.load(Ordering::Relaxed),
        }
    }
}

impl MemoryStore {
    /// Fast path for a list: a take without a receipt. Returns `false`, with no effect, unless the
    /// list has at most four charges and all of them are on token buckets that are in the table and
    /// not held. Otherwise pushes one outcome per charge; the charges were spent if no outcome has
    /// a `retry`.
    #[inline]
    pub fn spend_list(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes) -> bool {
        match charges {
            [charge] => self.spend_list_fast(&[*charge], outcomes).is_some(),
            [a, b] => self.spend_list_fast(&[*a, *b], outcomes).is_some(),
            [a, b, c] => self.spend_list_fast(&[*a, *b, *c], outcomes).is_some(),
            [a, b, c, d] => self.spend_list_fast(&[*a, *b, *c, *d], outcomes).is_some(),
            _ => false,
        }
    }

    /// Forgets the revisions of a limit that is no longer used. If a limit of this name is created
    /// again, buckets that were written under a revised policy and are not full count as empty.
    pub fn forget_limit(&self, limit: &Limit) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        newest.remove(limit.identity());
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        match operations {
            [operation] => answers.push(self.execute(operation)),
            _ => self.execute_many(operations, answers),
        }
        Submission::Ready
    }

    fn wall_time(&self) -> Option<WallTime> {
        Some(self.clock.wall())
    }
}
