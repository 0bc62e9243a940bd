//! How a request becomes a store operation: which policies apply, and whether waiters are ahead of
//! it.
//!
//! Nothing is sent from here. Single requests and batches share this code.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{
    AnyKey, ChargeError, Correction, Decision, Denial, Key, Operation, Outcome, Policy, Receipt,
    Retry, StoreError, StoreResponse, Target, WallTime,
};
use tidegate_memory::MemoryStore;

use super::FromAnswer;
use crate::charge::Charge;
use crate::live_limit::{LimitSnapshot, LiveLimit};
use crate::pacer::project;
use crate::store_handle::StoreHandle;

/// An operation whose policies are read when it runs, not when it is described.
#[derive(Debug)]
pub(crate) enum DeferredOperation<'a> {
    /// An operation on limits that the caller holds.
    Raw(Operation<'a>),
    /// An operation on one key of a limiter, under the policy in force when it runs.
    One { live_limit: &'a LiveLimit, key: AnyKey<'a>, wall: WallTime, verb: Verb<'a> },
    /// An operation on a list of charges, under the policies in force when it runs.
    List(Charges<'a>, ListVerb<'a>),
}

pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 2]>;
/// The policies of an operation, in the order of its charges.
pub(crate) type Snapshots = SmallVec<[LimitSnapshot; 2]>;

/// Operations on a single key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    Take(u64),
    Peek(u64),
    Reserve(u64, Duration),
    Settle(i64, Option<&'a Receipt>),
    Release(&'a Receipt),
    Renew(&'a Receipt),
    Hold(Duration),
    Reset,
}

/// Operations on a list.
#[derive(Debug)]
pub(crate) enum ListVerb<'a> {
    Take,
    Peek,
    Reserve(Duration),
    /// Correction of each charge.
    Settle(SmallVec<[i64; 2]>, Option<&'a Receipt>),
    Release(&'a Receipt),
    Renew(&'a Receipt),
}

impl<'a> DeferredOperation<'a> {
    /// The first charge on a limiter of another engine.
    fn foreign_charge(&self, store: &StoreHandle) -> Option<ChargeError> {
        let Self::List(charges, _) = self else { return None };
        let foreign_charge = charges.iter().position(|charge| !charge.store.ptr_eq(store));
        foreign_charge.map(ChargeError::OtherEngine)
    }

    /// Reads the policies in force now.
    pub(super) fn snapshots(&self) -> Snapshots {
        match self {
            Self::Raw(_) => SmallVec::new(),
            Self::One { live_limit, wall, .. } => smallvec![live_limit.snapshot(*wall)],
            Self::List(charges, _) => charges.iter().map(Charge::snapshot).collect(),
        }
    }

    /// The limit and the wall time of an operation on one key.
    pub(crate) const fn live_limit(&self) -> Option<(&'a LiveLimit, WallTime)> {
        match self {
            Self::One { live_limit, wall, .. } => Some((live_limit, *wall)),
            Self::Raw(_) | Self::List(..) => None,
        }
    }

    /// Decides a take of one key of a token bucket without waiters. Most takes are of this kind,
    /// and this path skips all wrapping.
    #[inline]
    pub(super) fn take_fast(&self, store: &MemoryStore) -> Option<Decision> {
        let Self::One { live_limit, key, verb: Verb::Take(cost), .. } = self else { return None };
        let key = key.as_key();
        if live_limit.has_schedule()
            || key.check().is_err()
            || live_limit.queued_demand().tokens_queued(key).is_some()
        {
            return None;
        }
        let snapshot = live_limit.snapshot(WallTime::default());
        let limit = snapshot.limit();
        let is_bucket = matches!(limit.policy(), Policy::Bucket(_));
        is_bucket.then(|| store.take_one(limit, key, *cost))
    }

    /// For a take or a peek: the tokens that waiters want of the key of each charge, and the
    /// charge's own cost. Empty if no charge has waiters ahead of it.
    fn queued_ahead(&self) -> QueuedAhead {
        let ahead = |live_limit: &LiveLimit, key: Key<'_>, cost: u64| {
            let ahead = live_limit.queued_demand().tokens_queued(key).filter(|_| cost > 0);
            ChargeAhead { tokens: ahead.unwrap_or_default(), cost }
        };
        let queued_ahead: QueuedAhead = match self {
            Self::One { live_limit, key, verb: Verb::Take(cost) | Verb::Peek(cost), .. } => {
                smallvec![ahead(live_limit, key.as_key(), *cost)]
            }
            Self::List(charges, ListVerb::Take | ListVerb::Peek) => charges
                .iter()
                .map(|charge| ahead(&charge.live_limit, charge.key.as_key(), charge.cost))
                .collect(),
            _ => QueuedAhead::new(),
        };
        let is_free = queued_ahead.iter().all(|ahead| ahead.tokens == 0);
        if is_free { QueuedAhead::new() } else { queued_ahead }
    }

    /// Builds the operation under policies that were read before.
    fn build<'s>(&'s self, snapshots: &'s [LimitSnapshot]) -> OperationBuf<'s> {
        match (self, snapshots) {
            (Self::Raw(operation), _) => OperationBuf::Plain(*operation),
            (Self::One { key, verb, .. }, [snapshot, ..]) => {
                build_single(snapshot.target(key.as_key()), *verb)
            }
            (Self::One { .. }, []) => OperationBuf::Plain(Operation::Take(&[])),
            (Self::List(charges, verb), snapshots) => build_list(charges, snapshots, verb),
        }
    }
}

fn build_single<'s>(target: Target<'s>, verb: Verb<'s>) -> OperationBuf<'s> {
    let charge = |cost| smallvec![tidegate_core::Charge { target, cost }];
    match verb {
        Verb::Take(cost) => OperationBuf::Take(charge(cost)),
        Verb::Peek(cost) => OperationBuf::Peek(charge(cost)),
        Verb::Reserve(cost, horizon) => OperationBuf::Reserve(charge(cost), horizon),
        Verb::Settle(delta, receipt) => {
            OperationBuf::Settle(smallvec![Correction { target, delta }], receipt)
        }
        Verb::Release(receipt) => OperationBuf::Release(smallvec![target], receipt),
        Verb::Renew(receipt) => OperationBuf::Renew(smallvec![target], receipt),
        Verb::Hold(span) => OperationBuf::Plain(Operation::Hold { target, span }),
        Verb::Reset => OperationBuf::Plain(Operation::Reset { target }),
    }
}

fn build_list<'s>(
    charges: &'s [Charge<'_>],
    snapshots: &'s [LimitSnapshot],
    verb: &'s ListVerb<'s>,
) -> OperationBuf<'s> {
    let targets = || {
        let pairs = charges.iter().zip(snapshots);
        pairs.map(|(charge, snapshot)| snapshot.target(charge.key.as_key()))
    };
    let to_charges = || {
        let pairs = targets().zip(charges);
        pairs.map(|(target, charge)| tidegate_core::Charge { target, cost: charge.cost }).collect()
    };
    match verb {
        ListVerb::Take => OperationBuf::Take(to_charges()),
        ListVerb::Peek => OperationBuf::Peek(to_charges()),
        ListVerb::Reserve(horizon) => OperationBuf::Reserve(to_charges(), *horizon),
        ListVerb::Settle(deltas, receipt) => {
            let pairs = targets().zip(deltas);
            let corrections = pairs.map(|(target, &delta)| Correction { target, delta });
            OperationBuf::Settle(corrections.collect(), *receipt)
        }
        ListVerb::Release(receipt) => OperationBuf::Release(targets().collect(), receipt),
        ListVerb::Renew(receipt) => OperationBuf::Renew(targets().collect(), receipt),
    }
}

/// An operation ready to be sent.
///
/// Its policies are stored outside, because operations of a batch share them.
pub(crate) struct PreparedOperation<'c, 'a> {
    operation: &'c DeferredOperation<'a>,
    /// Why it is not sent.
    error: Option<ChargeError>,
    queued_ahead: QueuedAhead,
}

/// Waiters ahead of each charge.
type QueuedAhead = SmallVec<[ChargeAhead; 2]>;

/// Tokens that waiters want, and the cost of the charge itself.
#[derive(Clone, Copy)]
struct ChargeAhead {
    tokens: u128,
    cost: u64,
}

impl<'c, 'a> PreparedOperation<'c, 'a> {
    pub(crate) fn new(operation: &'c DeferredOperation<'a>, store: &StoreHandle) -> Self {
        Self {
            operation,
            error: operation.foreign_charge(store),
            queued_ahead: operation.queued_ahead(),
        }
    }

    /// The operation; only a peek if it would overtake waiters.
    pub(crate) fn operation_buf<'s>(&self, snapshots: &'s [LimitSnapshot]) -> OperationBuf<'s>
    where
        'c: 's,
    {
        if self.error.is_some() {
            // Fills its position in a batch: every store rejects an empty list.
            return OperationBuf::Plain(Operation::Take(&[]));
        }
        if self.queued_ahead.is_empty() {
            return self.operation.build(snapshots);
        }
        let keys: SmallVec<[Key<'s>; 2]> = match self.operation {
            DeferredOperation::One { key, .. } => smallvec![key.as_key()],
            DeferredOperation::List(charges, _) => {
                charges.iter().map(|charge| charge.key.as_key()).collect()
            }
            DeferredOperation::Raw(_) => SmallVec::new(),
        };
        let targets = snapshots.iter().zip(keys).map(|(snapshot, key)| snapshot.target(key));
        OperationBuf::Peek(
            targets.map(|target| tidegate_core::Charge { target, cost: 0 }).collect(),
        )
    }

    pub(crate) fn resolve<T: FromAnswer>(
        &self,
        snapshots: &[LimitSnapshot],
        answer: Result<StoreResponse, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        if self.queued_ahead.is_empty() {
            return answer.and_then(T::from_answer);
        }
        let state = answer.and_then(Decision::from_answer)?;
        T::from_answer(StoreResponse::Decision(denial_behind_waiters(
            snapshots,
            &state,
            &self.queued_ahead,
        )))
    }
}

/// The denial of an operation that would overtake waiters, with the wait that they leave to it.
fn denial_behind_waiters(
    snapshots: &[LimitSnapshot],
    state: &Decision,
    queued_ahead: &[ChargeAhead],
) -> Decision {
    let charges = state.outcomes().iter().zip(snapshots).zip(queued_ahead);
    let outcomes = charges.map(|((outcome, snapshot), ahead)| {
        let policy = snapshot.limit().policy();
        let tokens = ahead.tokens.saturating_add(ahead.cost.into());
        let is_ready = ahead.tokens == 0 && ahead.cost <= outcome.remaining;
        let retry = match project(policy, outcome, tokens) {
            _ if is_ready => None,
            _ if ahead.cost > policy.capacity() => Some(Retry::Never),
            Some(wait) if !wait.is_zero() => Some(Retry::After(wait)),
            Some(_) => Some(Retry::OnRelease),
            None => Some(Retry::Never),
        };
        Outcome::new(outcome.capacity, outcome.remaining, outcome.reset, retry)
    });
    let denial = Denial::new(outcomes.collect());
    Decision::Denied(match state.degraded() {
        Some(rule) => denial.degraded(rule),
        None => denial,
    })
}

/// An operation together with the list that it borrows.
pub(crate) enum OperationBuf<'s> {
    Plain(Operation<'s>),
    Take(SmallVec<[tidegate_core::Charge<'s>; 1]>),
    Peek(SmallVec<[tidegate_core::Charge<'s>; 1]>),
    Reserve(SmallVec<[tidegate_core::Charge<'s>; 1]>, Duration),
    Settle(SmallVec<[Correction<'s>; 1]>, Option<&'s Receipt>),
    Release(SmallVec<[Target<'s>; 1]>, &'s Receipt),
    Renew(SmallVec<[Target<'s>; 1]>, &'s Receipt),
}

impl OperationBuf<'_> {
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Plain(operation) => *operation,
            Self::Take(charges) => Operation::Take(charges),
            Self::Peek(charges) => Operation::Peek(charges),
            Self::Reserve(charges, horizon) => Operation::Reserve { charges, horizon: *horizon },
            Self::Settle(corrections, receipt) => {
                Operation::Settle { corrections, receipt: *receipt }
            }
            Self::Release(targets, receipt) => Operation::Release { targets, receipt },
            Self::Renew(targets, receipt) => Operation::Renew { targets, receipt },
        }
    }
}
