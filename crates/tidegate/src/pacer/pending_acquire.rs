//! The claims of one acquire, and how they are charged, settled and given back.

use std::cmp::Reverse;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    BucketLocation, Charge, ChargeRecord, Correction, Decision, Operation, Outcome, Policy,
    Receipt, Retry, Settlement, StoreError, Target, Time,
};

use super::claim::{Claim, Oversize};
use super::group::SlotGroup;
use super::scheduler::demand::Demands;
use super::scheduler::slab::Id;
use crate::live_limit::LimitSnapshot;
use crate::request::FromAnswer as _;
use crate::store_handle::StoreHandle;

/// The claims of one acquire.
#[derive(Clone, Debug)]
pub(super) struct PendingAcquire {
    pub(super) claims: SmallVec<[Claim; 1]>,
    pub(super) buckets: SmallVec<[Id; 2]>,
    pub(super) oversize: Oversize,
    /// The peer of its caller.
    pub(super) peer: u64,
    pub(super) groups: SmallVec<[SlotGroup; 2]>,
}

impl Demands for PendingAcquire {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        self.buckets.iter().copied().zip(self.claims.iter().map(Claim::expected_cost))
    }

    fn on_join(&self) {
        self.claims.iter().for_each(Claim::register_demand);
    }

    fn on_leave(&self) {
        self.claims.iter().for_each(Claim::unregister_demand);
    }
}

/// Result of trying to charge a list.
#[derive(Debug)]
pub(super) enum ChargeResult {
    /// The list is charged, as of `wait` from now.
    Granted {
        receipt: Receipt,
        #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "always zero without tokio"))]
        wait: Duration,
        /// What was actually charged, if some of it was debt; else empty, and the claims' costs
        /// apply.
        charged: SmallVec<[u64; 2]>,
        /// The shortest lease of the slots among it.
        lease: Option<Duration>,
    },
    /// The claim with this index is not ready.
    Blocked(Block),
    /// The claim with this index never fits.
    NeverFits(usize),
    Failed(StoreError),
}

/// What a list waits for.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Claims that are not ready, in the order in which they become so, each after this time; `None`
    /// if unknown. Those before the last come earlier in the list than a later one.
    pub(super) causes: SmallVec<[(usize, Option<Duration>); 2]>,
    /// Whether its limit is the tenant's own.
    pub(super) per_tenant: bool,
    /// Time until the list fits if nothing is given back; `None` if unknown.
    pub(super) wait: Option<Duration>,
    /// The part of `wait` that no release of a slot can shorten.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "for shared stores"))]
    pub(super) timed_wait: Option<Duration>,
    /// Whether slots are missing, which may be released at any time.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "for shared stores"))]
    pub(super) slots: bool,
}

/// The claims of a list under the policies of one instant.
pub(super) struct ClaimSnapshots<'c> {
    claims: &'c [Claim],
    limits: SmallVec<[LimitSnapshot; 2]>,
}

impl<'c> ClaimSnapshots<'c> {
    pub(super) fn read(claims: &'c [Claim]) -> Self {
        Self { claims, limits: claims.iter().map(Claim::snapshot).collect() }
    }

    fn charges<'s>(&'s self, cost: impl Fn(&Claim, &Policy) -> u64) -> SmallVec<[Charge<'s>; 2]>
    where
        'c: 's,
    {
        let charge = |(claim, snapshot): (&'c Claim, &'s LimitSnapshot)| {
            snapshot.charge(claim.key.as_key(), cost(claim, snapshot.limit().policy()))
        };
        self.claims.iter().zip(&self.limits).map(charge).collect()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.limits.iter().map(|snapshot| snapshot.limit().policy())
    }

    /// The shortest lease of the slots of a receipt, if any has one.
    #[inline]
    pub(super) fn lease(&self, receipt: &Receipt) -> Option<Duration> {
        if holds_slots(receipt) { self.shortest_lease(receipt) } else { None }
    }

    fn shortest_lease(&self, receipt: &Receipt) -> Option<Duration> {
        let slots =
            receipt.charges().iter().zip(self.policies()).filter(|(record, _)| is_slot(record));
        let lease = |policy: &Policy| match policy {
            Policy::Concurrency(slots) => slots.lease(),
            _ => None,
        };
        slots.filter_map(|(_, policy)| lease(policy)).min()
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        let pairs = self.claims.iter().zip(&self.limits);
        pairs.map(|(claim, snapshot)| snapshot.target(claim.key.as_key()))
    }

    fn corrections(&self, deltas: impl Iterator<Item = i64>) -> SmallVec<[Correction<'_>; 2]> {
        self.targets().zip(deltas).map(|(target, delta)| Correction { target, delta }).collect()
    }
}

impl PendingAcquire {
    /// Charges the whole list or nothing, now or up to `lead` from now.
    pub(super) async fn charge(&self, store: &StoreHandle, lead: Duration) -> ChargeResult {
        let snapshots = ClaimSnapshots::read(&self.claims);
        let oversize = self.oversize;
        if let Some(index) = self.never_fits(&snapshots) {
            return ChargeResult::NeverFits(index);
        }
        let charges = snapshots.charges(|claim, policy| match oversize {
            Oversize::Refuse => claim.cost,
            Oversize::Debt => claim.cost.min(policy.capacity()),
        });
        let operation = if lead.is_zero() {
            Operation::Take(&charges)
        } else {
            Operation::Reserve { charges: &charges, horizon: lead }
        };
        match store.execute(operation).await.and_then(Decision::from_answer) {
            Ok(Decision::Allowed(grant)) => {
                let charged = self.charge_excess(store, &snapshots, &charges).await;
                let lease = snapshots.lease(&grant.receipt);
                ChargeResult::Granted { receipt: grant.receipt, wait: grant.wait, charged, lease }
            }
            Ok(denied) => self.blocked_result(denied.outcomes(), &snapshots),
            Err(error) => ChargeResult::Failed(error),
        }
    }

    /// Charges the excess over the capacity after the fact. Returns what the claims actually cost,
    /// if there was any excess: debt beyond its bound is forgiven, and must not be given back
    /// later.
    async fn charge_excess(
        &self,
        store: &StoreHandle,
        snapshots: &ClaimSnapshots<'_>,
        charges: &[Charge<'_>],
    ) -> SmallVec<[u64; 2]> {
        let excess =
            self.claims.iter().zip(charges).map(|(claim, charge)| claim.cost - charge.cost);
        if !excess.clone().any(|excess| excess > 0) {
            return SmallVec::new();
        }
        let deltas = excess.map(|excess| i64::try_from(excess).unwrap_or(i64::MAX));
        let corrections = snapshots.corrections(deltas);
        let settle = Operation::Settle { corrections: &corrections, receipt: None };
        let settlement = store.execute(settle).await.and_then(Settlement::from_answer);
        // If the store fails now, the debt is forgiven.
        let applied = settlement.map(|settlement| settlement.applied).unwrap_or_default();
        let applied = applied.into_iter().chain(std::iter::repeat(0));
        charges
            .iter()
            .zip(applied)
            .map(|(c, applied)| c.cost.saturating_add_signed(applied))
            .collect()
    }

    /// Sets the claims to what was actually charged.
    pub(super) fn set_charged(&mut self, charged: &[u64]) {
        for (claim, charged) in self.claims.iter_mut().zip(charged) {
            claim.cost = *charged;
        }
    }

    /// Tokens that the list is expected to need from a claim's bucket before it can go. Debt does
    /// not make it wait.
    fn expected_tokens(&self, index: usize, snapshots: &ClaimSnapshots<'_>) -> u128 {
        let capacity = snapshots.limits[index].limit().policy().capacity().into();
        let expected = self.total_on_bucket(index, Claim::expected_cost);
        match self.oversize {
            Oversize::Refuse => expected,
            Oversize::Debt => expected.min(capacity),
        }
    }

    /// Tokens of all claims on the bucket of a claim.
    fn total_on_bucket(&self, index: usize, tokens: impl Fn(&Claim) -> u64) -> u128 {
        let same = self.claims.iter().filter(|claim| claim.is_same_bucket(&self.claims[index]));
        same.map(|claim| u128::from(tokens(claim))).sum()
    }

    fn never_fits(&self, snapshots: &ClaimSnapshots<'_>) -> Option<usize> {
        let max_cost =
            |index: usize| match (self.oversize, snapshots.limits[index].limit().policy()) {
                (Oversize::Debt, Policy::Bucket(bucket)) => {
                    u128::from(bucket.capacity()) + u128::from(bucket.max_debt())
                }
                (_, policy) => policy.capacity().into(),
            };
        let wanted = |index: usize| match self.claims.len() {
            1 => self.claims[0].cost.into(),
            _ => self.total_on_bucket(index, |claim| claim.cost),
        };
        (0..self.claims.len()).find(|&index| wanted(index) > max_cost(index))
    }

    /// The binding claim. A limit of the tenant's own binds before shared limits: until it is
    /// ready, the tenant is skipped and does not block the shared ones.
    fn blocked_result(&self, outcomes: &[Outcome], snapshots: &ClaimSnapshots<'_>) -> ChargeResult {
        let waits = |per_tenant: bool| {
            let claims = self.claims.iter().zip(outcomes).zip(snapshots.policies()).enumerate();
            claims
                .filter(move |(_, ((claim, _), _))| claim.per_tenant == per_tenant)
                .filter_map(|(index, ((_, outcome), policy))| Some((outcome.retry?, index, policy)))
        };
        let per_tenant = waits(true).next().is_some();
        let longest = waits(per_tenant).max_by_key(|(retry, index, _)| (*retry, Reverse(*index)));
        match longest {
            Some((Retry::Never, index, _)) => ChargeResult::NeverFits(index),
            Some((retry, ..)) => {
                let is_slots = |policy: &Policy| matches!(policy, Policy::Concurrency(_));
                let slots = waits(per_tenant).any(|(_, _, policy)| is_slots(policy));
                let timed_wait = waits(per_tenant).filter(|(_, _, policy)| !is_slots(policy));
                let timed_wait = timed_wait.filter_map(|(retry, _, _)| retry.after()).max();
                ChargeResult::Blocked(Block {
                    causes: causes(outcomes),
                    per_tenant,
                    wait: retry.after(),
                    timed_wait,
                    slots,
                })
            }
            None => {
                let causes = std::iter::once((0, None)).collect();
                ChargeResult::Blocked(Block { causes, ..Block::default() })
            }
        }
    }

    /// Gives back everything that was charged.
    pub(super) async fn refund(&self, store: &StoreHandle, receipt: &Receipt) {
        let back = |claim: &Claim| i64::try_from(claim.cost).map_or(i64::MIN, |cost| -cost);
        let deltas: SmallVec<[i64; 2]> = self.claims.iter().map(back).collect();
        // The store issued the receipt for exactly these claims; if it fails now they stay spent.
        let _ = self.settle(store, &deltas, receipt).await;
    }

    /// Notifies every pacer that waits for one of the limits that something was given back.
    pub(super) fn notify_watchers(&self) {
        self.claims.iter().for_each(|claim| claim.live_limit.notify_watchers());
    }

    /// Releases the slots of claims on concurrency limits.
    pub(super) async fn release_slots(&self, store: &StoreHandle, receipt: &Receipt) {
        let snapshots = ClaimSnapshots::read(&self.claims);
        let targets: SmallVec<[_; 2]> = snapshots.targets().collect();
        // An error is ignored here as well; a slot with a lease expires.
        let _ = store.execute(Operation::Release { targets: &targets, receipt }).await;
    }

    /// Corrects what was charged.
    pub(super) async fn settle(
        &self,
        store: &StoreHandle,
        deltas: &[i64],
        receipt: &Receipt,
    ) -> Result<Settlement, StoreError> {
        let snapshots = ClaimSnapshots::read(&self.claims);
        let corrections = snapshots.corrections(deltas.iter().copied());
        let settle = Operation::Settle { corrections: &corrections, receipt: Some(receipt) };
        store.execute(settle).await.and_then(Settlement::from_answer)
    }

    /// The cost that decides turns: the longest time, in microseconds, that a shared limit takes to
    /// refill what a claim takes; for a limit that is not a bucket, the part of its capacity in
    /// millionths. The tenant's own limits do not count.
    pub(super) fn weight(&self) -> u64 {
        let part = |claim: &Claim| {
            let weight = match claim.live_limit.limit().policy() {
                Policy::Bucket(bucket) => {
                    let rate = bucket.rate();
                    let nanos = u128::from(claim.cost) * u128::from(rate.period());
                    nanos / u128::from(rate.tokens()).max(1) / 1_000
                }
                policy => u128::from(claim.cost) * 1_000_000 / u128::from(policy.capacity()).max(1),
            };
            u64::try_from(weight).unwrap_or(u64::MAX)
        };
        let shared = self.claims.iter().filter(|claim| !claim.per_tenant).map(part).max();
        shared.unwrap_or(1).max(1)
    }

    /// Projected wait until the list can be charged if `ahead` tokens of each claim's bucket go to
    /// others first; or the index of a claim that never can.
    pub(super) async fn projected(
        &self,
        store: &StoreHandle,
        ahead: impl Fn(usize) -> u128,
    ) -> Result<Result<Duration, usize>, StoreError> {
        let snapshots = ClaimSnapshots::read(&self.claims);
        if let Some(index) = self.never_fits(&snapshots) {
            return Ok(Err(index));
        }
        let charges = snapshots.charges(|_, _| 0);
        let decision =
            store.execute(Operation::Peek(&charges)).await.and_then(Decision::from_answer)?;
        let mut longest = Duration::ZERO;
        for (index, outcome) in decision.outcomes().iter().enumerate() {
            let tokens = ahead(index).saturating_add(self.expected_tokens(index, &snapshots));
            match project(snapshots.limits[index].limit().policy(), outcome, tokens) {
                Some(wait) => longest = longest.max(wait),
                None => return Ok(Err(index)),
            }
        }
        Ok(Ok(longest))
    }
}

/// The claims that a list waits for. While several are not ready, the first in the list is the cause
/// of the wait: a later one adds only what it takes longer.
fn causes(outcomes: &[Outcome]) -> SmallVec<[(usize, Option<Duration>); 2]> {
    let mut causes = SmallVec::new();
    let mut longest = None;
    for (index, retry) in outcomes.iter().enumerate().filter_map(|(i, one)| Some((i, one.retry?))) {
        if longest.is_none_or(|longest| longest < retry) {
            longest = Some(retry);
            causes.push((index, retry.after()));
        }
    }
    causes
}

/// Projected time until this many tokens have been granted one after the other.
pub(crate) fn project(policy: &Policy, outcome: &Outcome, tokens: u128) -> Option<Duration> {
    let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
    match policy {
        Policy::Bucket(bucket) => Some(bucket.wait_for(tokens, outcome.reset.unwrap_or_default())),
        Policy::Quota(_) if tokens > outcome.remaining => outcome.reset,
        Policy::Allowance(_) if tokens > outcome.remaining => None,
        // It is unknown when slots are released.
        _ => Some(Duration::ZERO),
    }
}

/// The instant that is `wait` from now.
pub(super) fn instant_after(wait: Option<Duration>, now: Time) -> Option<Time> {
    wait.map(|wait| now.after(wait))
}

/// Whether a receipt is for slots of the store, which the permit holds.
#[inline]
pub(super) fn holds_slots(receipt: &Receipt) -> bool {
    receipt.charges().iter().any(is_slot)
}

pub(super) fn is_slot(record: &ChargeRecord) -> bool {
    matches!(record.location, BucketLocation::Slot(_))
}
