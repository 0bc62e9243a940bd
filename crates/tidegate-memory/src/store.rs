//! The store itself: what it is made of, what can be asked of it, and its figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Answer, Answers, Charge, Decision, Denial, Key, Limit, Now, Operation, Outcome, Outcomes,
    Retry, Store, StoreError, Submission, Target, Time, WallTime,
};

use crate::builder::{MemoryStoreBuilder, Overflow, Sizes};
use crate::clock::Source;
use crate::hash::Hasher;
use crate::leases::{LeaseBudget, Leases};
use crate::operations::{LeaseAct, Mode};
use crate::overflow::SharedBuckets;
use crate::shard::Shard;
use crate::stats::Stats;
use crate::sync::{Mutex, RwLock, lock};
use crate::table::Table;

/// Buckets in the memory of this process.
///
/// ```
/// use tidegate_core::{Limit, Policy};
/// use tidegate_memory::MemoryStore;
/// let store = MemoryStore::new();
/// let limit = Limit::named("client", Policy::per_second(1).capacity(2).build()?)?;
/// assert!(store.take_one(&limit, "alice".into(), 2).is_allowed());
/// assert!(!store.take_one(&limit, "alice".into(), 1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    pub(crate) shards: Box<[Padded<Mutex<Shard>>]>,
    pub(crate) shared: SharedBuckets,
    /// The newest revision seen of each limit that has been revised, for callers that still
    /// hold an older one.
    pub(crate) newest: RwLock<BTreeMap<Arc<str>, Limit>>,
    pub(crate) hasher: Hasher,
    pub(crate) clock: Source,
    pub(crate) sizes: Sizes,
    pub(crate) overflow: Overflow,
    pub(crate) issuer: u64,
}

/// Keeps the lock of one shard off the cache line of the next.
#[repr(align(64))]
pub(crate) struct Padded<T>(pub(crate) T);

impl MemoryStore {
    /// A store of at most 64 MiB on the system's clock.
    ///
    /// # Panics
    /// When the operating system gives no random bytes; use the builder to handle that.
    #[must_use]
    #[expect(clippy::expect_used, reason = "documented; the builder is the fallible way")]
    pub fn new() -> Self {
        Self::builder().build().expect("random bytes from the operating system")
    }

    /// A store with other sizes, rules or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    pub(crate) fn assemble(
        sizes: Sizes,
        overflow: Overflow,
        clock: Source,
        seed: u64,
        issuer: u64,
    ) -> Self {
        let budget = Arc::new(LeaseBudget::new(sizes.max_leases));
        let shard = |_| Padded(Mutex::new(Shard::new(budget.clone())));
        let shards = (0..sizes.shards).map(shard).collect();
        Self {
            shards,
            shared: SharedBuckets::new(sizes.max_shared_sets),
            newest: RwLock::new(BTreeMap::new()),
            hasher: Hasher::new(seed),
            clock,
            sizes,
            overflow,
            issuer,
        }
    }

    /// Carries out one operation at once.
    ///
    /// # Errors
    /// When the list or the receipt is wrong, or there is no room for a hold or a slot.
    pub fn execute(&self, operation: &Operation<'_>) -> Result<Answer, StoreError> {
        match *operation {
            Operation::Take(charges) => self.decide(charges, Mode::Take).map(Answer::Decision),
            Operation::Peek(charges) => self.decide(charges, Mode::Peek).map(Answer::Decision),
            Operation::Reserve { charges, horizon } => {
                self.decide(charges, Mode::Reserve(horizon)).map(Answer::Decision)
            }
            Operation::Settle { corrections, receipt } => {
                self.settle(corrections, receipt).map(Answer::Settled)
            }
            Operation::Release { targets, receipt } => {
                self.each_lease(targets, receipt, LeaseAct::Release).map(Answer::Slots)
            }
            Operation::Renew { targets, receipt } => {
                self.each_lease(targets, receipt, LeaseAct::Renew).map(Answer::Slots)
            }
            Operation::Hold { target, span } => self.hold(&target, span).map(Answer::Held),
            Operation::Reset { target } => Ok(Answer::Reset(self.reset(&target))),
            // The contract may grow; a store that does not know an operation says so.
            _ => Err(StoreError::Unavailable("operation not known to this store".into())),
        }
    }

    /// Spends `cost` tokens of one key, or denies.
    ///
    /// A calendar quota needs its windows and a full concurrency limit has no room: both are
    /// denied here; use [`execute`](Self::execute) for them.
    pub fn take_one(&self, limit: &Limit, key: Key<'_>, cost: u64) -> Decision {
        let charge = Charge { target: Target { limit, key, windows: None }, cost };
        self.decide(&[charge], Mode::Take).unwrap_or_else(|_| {
            let outcome = Outcome::new(limit.policy().capacity(), 0, None, Some(Retry::Never));
            Decision::Denied(Denial::new(smallvec::smallvec![outcome]))
        })
    }

    /// The number of this store on its receipts, by which it knows them again.
    ///
    /// ```
    /// use tidegate_core::{Limit, Policy};
    /// use tidegate_memory::MemoryStore;
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

    /// The time by the store's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Removes the keys whose bucket has been full for `max_idle`, and gives memory back.
    /// Returns how many were removed. Nothing is lost: a full bucket is the same as none.
    pub fn cleanup_stale(&self, max_idle: Duration) -> usize {
        let now = self.clock.now();
        self.shared.clean(Now { time: now, wall: self.clock.wall() });
        let clean = |shard: &Padded<Mutex<Shard>>| lock(&shard.0).clean(max_idle, now, &self.clock);
        self.shards.iter().map(clean).sum()
    }

    /// Forgets every key, hold and lease.
    pub fn clear(&self) {
        for shard in &self.shards {
            lock(&shard.0).clear();
        }
        self.shared.clear();
    }

    /// How many keys are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).table.len()).sum()
    }

    /// Whether no key is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures for people and metrics. Locks one shard after the other for a moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            max_keys: self.sizes.shards * Table::load(self.sizes.max_slots),
            max_memory_bytes: self.sizes.max_memory,
            memory_bytes: self.shared.bytes() + size_of_val(&*self.shards),
            ..Stats::default()
        };
        for shard in &self.shards {
            let shard = lock(&shard.0);
            stats.keys += shard.table.len();
            stats.held_keys += shard.holds();
            stats.leases += shard.leases.len();
            stats.memory_bytes += shard.table.slots() * Table::SLOT_BYTES
                + shard.holds() * Shard::HOLD_BYTES
                + shard.leases.len() * Leases::BYTES;
            stats.inserted += shard.counts.inserted;
            stats.evicted += shard.counts.evicted;
            stats.overflowed += shard.counts.overflowed;
            stats.saturated += shard.counts.saturated;
        }
        stats
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
        answers.extend(operations.iter().map(|operation| self.execute(operation)));
        Submission::Ready
    }

    fn execute_now(&self, operation: &Operation<'_>) -> Option<Result<Answer, StoreError>> {
        Some(self.execute(operation))
    }

    #[inline]
    fn spend_now(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes) -> bool {
        match charges {
            [charge] => self.spend_plain(charge, outcomes).is_some(),
            [first, second] => self.spend_plain_pair([first, second], outcomes).is_some(),
            _ => false,
        }
    }

    fn wall_time(&self) -> Option<WallTime> {
        Some(self.clock.wall())
    }
}
