//! The store itself: what it is made of, what can be asked of it, and its figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_core::decide::{self, DecisionMode};
use tidegate_core::{
    Answer, Answers, Charge, Decision, Denial, Key, Limit, Now, Operation, Outcome, Outcomes,
    Retry, Store, StoreError, Submission, Target, Time, WallTime,
};

use crate::builder::{MemoryStoreBuilder, Overflow, Sizes};
use crate::clock::ClockSource;
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

/// Buckets in the memory of this process.
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
    /// The newest revision seen of each limit that has been revised, for callers that still
    /// hold an older one.
    pub(crate) newest: RwLock<BTreeMap<Arc<str>, Limit>>,
    /// The limits of the processes that wrote what was restored.
    pub(crate) restored: RestoredLimits,
    pub(crate) hasher: Hasher,
    pub(crate) clock: ClockSource,
    pub(crate) sizes: Sizes,
    pub(crate) overflow: Overflow,
    pub(crate) issuer: u64,
    /// Decisions about keys for which there was no room.
    pub(crate) overflowed: AtomicU64,
    /// Settlements that hit the deepest debt.
    pub(crate) saturated: AtomicU64,
}

impl MemoryStore {
    /// A store of at most 64 MiB on the clock of the machine, see [`clock`](crate::clock).
    ///
    /// # Panics
    /// When the operating system gives no random bytes or no address space; use the builder to handle
    /// that.
    #[must_use]
    #[expect(clippy::expect_used, reason = "documented; the builder is the fallible way")]
    pub fn new() -> Self {
        Self::builder().build().expect("random bytes and address space from the operating system")
    }

    /// A store with other sizes, rules or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// A store of these parts; `None` if there is no address space for its table.
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

    /// Carries out one operation at once.
    ///
    /// # Errors
    /// When the list or the receipt is wrong, or there is no room for a hold or a slot.
    pub fn execute(&self, operation: &Operation<'_>) -> Result<Answer, StoreError> {
        match *operation {
            Operation::Take(charges) => {
                self.decide(charges, DecisionMode::Take).map(Answer::Decision)
            }
            Operation::Peek(charges) => {
                self.decide(charges, DecisionMode::Peek).map(Answer::Decision)
            }
            Operation::Reserve { charges, horizon } => {
                self.decide(charges, DecisionMode::Reserve(horizon)).map(Answer::Decision)
            }
            Operation::Settle { corrections, receipt } => {
                self.settle(corrections, receipt).map(Answer::Settled)
            }
            Operation::Release { targets, receipt } => {
                self.update_leases(targets, receipt, LeaseAction::Release).map(Answer::Slots)
            }
            Operation::Renew { targets, receipt } => {
                self.update_leases(targets, receipt, LeaseAction::Renew).map(Answer::Slots)
            }
            Operation::Hold { target, span } => {
                decide::check_list([target.key])?;
                self.hold(&target, span).map(Answer::Held)
            }
            Operation::Reset { target } => {
                decide::check_list([target.key])?;
                Ok(Answer::Reset(self.reset(&target)))
            }
            // The contract may grow; a store that does not know an operation says so.
            _ => Err(StoreError::Unavailable("operation not supported by this store".into())),
        }
    }

    /// Spends `cost` tokens of one key, or denies.
    ///
    /// A calendar quota needs its windows, a full concurrency limit has no room, a key may be empty
    /// or too long: all are denied here; [`execute`](Self::execute) tells them apart.
    pub fn take_one(&self, limit: &Limit, key: Key<'_>, cost: u64) -> Decision {
        if let Some(fast) = self.fast_charge_of(limit, key, cost) {
            let found = self.table.look_up_and_prefetch(fast.fingerprint());
            if let Some(decision) = self.take_fast(fast, found, self.now_before_lock()) {
                return decision;
            }
        }
        self.take_general(limit, key, cost)
    }

    /// Takes what the fast path leaves.
    #[cold]
    fn take_general(&self, limit: &Limit, key: Key<'_>, cost: u64) -> Decision {
        let charge = Charge { target: Target { limit, key, windows: None }, cost };
        self.decide_general(&[charge], DecisionMode::Take).unwrap_or_else(|_| {
            let outcome = Outcome::new(limit.policy().capacity(), 0, None, Some(Retry::Never));
            Decision::Denied(Denial::new(smallvec::smallvec![outcome]))
        })
    }

    /// The same without a receipt: the shortest way, for those who settle nothing later.
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

    /// Spends what the fast path leaves.
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

    /// The number of this store on its receipts, by which it knows them again.
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

    /// Which clock the store goes by now: `counter`, `system`, `cached`, or `other` for one that is
    /// not of this crate. A store on the counter of the processor goes by that of the system once
    /// the counter is given up.
    #[must_use]
    pub fn clock_name(&self) -> &'static str {
        self.clock.name()
    }

    /// The time by the store's clock, not before any reading that the caller has heard of.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now_after()
    }

    /// Removes the keys whose bucket has been full for `max_idle`, and gives memory back.
    /// Returns how many were removed. Nothing is lost: a full bucket is the same as none.
    pub fn cleanup_stale(&self, max_idle: Duration) -> usize {
        let now = self.clock.now();
        self.shared.clean(Now { time: now, wall: self.clock.wall() });
        self.side_table.clean(max_idle, now);
        self.table.clean(max_idle, now, &self.clock)
    }

    /// Forgets every key, hold and lease.
    pub fn clear(&self) {
        self.table.clear();
        self.side_table.clear();
        self.shared.clear();
    }

    /// How many keys are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.stats().keys
    }

    /// Whether no key is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures for people and metrics. Looks at every segment of the table for a decided_at.
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
    /// The fast path for a list: spends every charge, or none, if all are on token buckets that are
    /// there and not held, and there are at most four; else it answers `false` and nothing has
    /// happened. It is a take without a receipt: one outcome is pushed for each charge, and they
    /// were spent if none of them has a `retry`.
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

    /// Forgets the revisions of a limit that is no longer in use. If a limit of its name comes back,
    /// buckets that were written under a revised policy and are not full count as empty.
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
        answers: &'a mut Answers,
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
