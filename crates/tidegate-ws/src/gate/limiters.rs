//! The limiters of a gate, and the store that decides each charge.
//!
//! What belongs to a single connection is decided in this process, also under limits of a shared
//! store. A connection exists in one process only, so a shared store would decide the same, after a
//! round trip, and would keep the bucket if the process crashes.

use std::fmt;
use std::sync::OnceLock;

use smallvec::SmallVec;
use tidegate::{Decision, Engine, LimitSnapshot, Limiter, Policy, Receipt, Settlement, StoreError};
use tidegate_core::{Charge, Correction, Operation, Target};

use crate::connection::charges::MessageCharge;

/// The store that decides a charge, in the order of the decisions: in-process stores first, because
/// what they grant can be given back at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DecidedBy {
    /// The gate's own store in this process.
    Gate,
    /// The in-process store of the ceiling, if the rules have another one.
    Ceiling,
    /// The store of the rules.
    Rules,
}

/// The limiters of a gate, by index.
pub(crate) struct Limiters {
    list: Vec<Limiter>,
    ceiling: Option<usize>,
    /// Who decides charges to the ceiling.
    ceiling_by: DecidedBy,
    /// Who decides the other charges with connection keys.
    connections_by: DecidedBy,
    /// The gate's own store. Its buckets have the limits of `list`, which are on other stores.
    own: OnceLock<Engine>,
}

impl Limiters {
    pub(crate) fn new(rules: Vec<Limiter>, ceiling: Option<Limiter>) -> Self {
        let ceiling_by = match (&ceiling, rules.first()) {
            (Some(ceiling), _) if is_on_shared_store(ceiling) => DecidedBy::Gate,
            (Some(ceiling), Some(rule)) if !is_on_same_store(ceiling, rule) => DecidedBy::Ceiling,
            _ => DecidedBy::Rules,
        };
        let connections_by = match rules.first() {
            Some(rule) if is_on_shared_store(rule) => DecidedBy::Gate,
            _ => DecidedBy::Rules,
        };
        let ceiling_index = ceiling.is_some().then_some(rules.len());
        let list = rules.into_iter().chain(ceiling).collect();
        Self { list, ceiling: ceiling_index, ceiling_by, connections_by, own: OnceLock::new() }
    }

    pub(crate) fn first(&self) -> Option<&Limiter> {
        self.list.first()
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Index of the limiter for whole connections.
    pub(crate) const fn ceiling(&self) -> Option<usize> {
        self.ceiling
    }

    pub(crate) fn decided_by(&self, limiter_index: usize, is_connection_key: bool) -> DecidedBy {
        if self.ceiling == Some(limiter_index) {
            self.ceiling_by
        } else if is_connection_key {
            self.connections_by
        } else {
            DecidedBy::Rules
        }
    }

    /// The policy of a limiter, as known here.
    pub(crate) fn policy(&self, limiter_index: usize) -> Policy {
        *self.list[limiter_index].snapshot().limit().policy()
    }

    /// Returns whether a limiter counts concurrency, according to the policy known here.
    pub(crate) fn counts_slots(&self, limiter_index: usize) -> bool {
        matches!(self.policy(limiter_index), Policy::Concurrency(_))
    }

    /// Returns whether a shared store decides these charges, which are all decided by one store.
    pub(crate) fn is_shared(&self, charges: &[MessageCharge]) -> bool {
        charges.first().is_some_and(|charge| match charge.decided_by {
            DecidedBy::Gate | DecidedBy::Ceiling => false,
            DecidedBy::Rules => is_on_shared_store(&self.list[charge.limiter_index]),
        })
    }

    /// Decides charges of one store: all of them, or none. On an in-process store the future is
    /// ready at the first poll.
    pub(crate) async fn take(&self, charges: &[MessageCharge]) -> Result<Decision, StoreError> {
        let limiter = |charge: &MessageCharge| &self.list[charge.limiter_index];
        match charges {
            [charge, ..] if charge.decided_by == DecidedBy::Gate => self
                .in_process(charges, |engine, list| engine.operation(Operation::Take(list)).now()),
            // Faster than a list of one.
            [charge] => limiter(charge).take(&charge.key).cost(charge.cost).await,
            _ => {
                let list =
                    charges.iter().map(|charge| limiter(charge).charge(&charge.key, charge.cost));
                self.engine(charges).take(list).await
            }
        }
    }

    /// Gives back exactly what an in-process store has granted.
    pub(crate) fn give_back(&self, charges: &[MessageCharge], receipt: &Receipt) {
        let given_back = self.in_process(charges, |engine, list| {
            let corrections: SmallVec<[Correction<'_>; 2]> = list
                .iter()
                // Costs are positive numbers of 63 bits.
                .map(|charge| Correction {
                    target: charge.target,
                    delta: -charge.cost.cast_signed(),
                })
                .collect();
            let receipt = Some(receipt);
            engine
                .operation::<Settlement>(Operation::Settle { corrections: &corrections, receipt })
                .now()
        });
        debug_assert!(given_back.is_ok(), "an in-process store accepts its own receipts");
    }

    /// Releases the slots of a receipt. If the store is unavailable, slots with a lease are
    /// released when it expires, and those without one when their key is reset.
    pub(crate) async fn release(&self, charges: &[MessageCharge], receipt: &Receipt) {
        let is_own = charges.first().is_some_and(|charge| charge.decided_by == DecidedBy::Gate);
        if is_own {
            let _ = self.in_process(charges, |engine, list| {
                let targets: SmallVec<[Target<'_>; 2]> =
                    list.iter().map(|charge| charge.target).collect();
                engine.operation::<u64>(Operation::Release { targets: &targets, receipt }).now()
            });
            return;
        }
        let list = charges
            .iter()
            .map(|charge| self.list[charge.limiter_index].charge(&charge.key, charge.cost));
        let _ = self.engine(charges).release(list, receipt).await;
    }

    /// Resets a bucket with a connection key, which is always in this process.
    pub(crate) fn reset(&self, limiter_index: usize, key: &str) {
        let limiter = &self.list[limiter_index];
        match self.decided_by(limiter_index, true) {
            DecidedBy::Gate => {
                let snapshot = limiter.snapshot();
                let target = snapshot.target(key);
                let _ = self.own().operation::<bool>(Operation::Reset { target }).now();
            }
            DecidedBy::Ceiling | DecidedBy::Rules => {
                let _ = limiter.reset(key).now();
            }
        }
    }

    /// Runs an operation on an in-process store that decides these charges.
    fn in_process<T>(
        &self,
        charges: &[MessageCharge],
        run: impl FnOnce(&Engine, &[Charge<'_>]) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let snapshots: SmallVec<[LimitSnapshot; 2]> =
            charges.iter().map(|charge| self.list[charge.limiter_index].snapshot()).collect();
        let list: SmallVec<[Charge<'_>; 2]> = snapshots
            .iter()
            .zip(charges)
            .map(|(snapshot, charge)| snapshot.charge(&charge.key, charge.cost))
            .collect();
        run(self.engine(charges), &list)
    }

    /// The engine of the store that decides these charges.
    fn engine(&self, charges: &[MessageCharge]) -> &Engine {
        match charges.first() {
            Some(charge) if charge.decided_by != DecidedBy::Gate => {
                self.list[charge.limiter_index].engine()
            }
            _ => self.own(),
        }
    }

    fn own(&self) -> &Engine {
        self.own.get_or_init(Engine::new)
    }
}

impl fmt::Debug for Limiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

/// Returns whether a limiter is on a shared store.
fn is_on_shared_store(limiter: &Limiter) -> bool {
    limiter.engine().store().local().is_none()
}

fn is_on_same_store(one: &Limiter, other: &Limiter) -> bool {
    one.engine().store().ptr_eq(other.engine().store())
}
