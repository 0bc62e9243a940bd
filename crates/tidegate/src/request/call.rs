//! How a request becomes a store operation: which policies apply, and whether waiters are ahead of
//! it.
//!
//! Nothing is sent from here. Single requests and batches share this code.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{
    Answer, AnyKey, ChargeError, Correction, Decision, Denial, Key, Operation, Outcome, Policy,
    Receipt, Retry, StoreError, Target, WallTime,
};
use tidegate_memory::MemoryStore;

use super::FromAnswer;
use crate::charge::Charge;
use crate::pacer::project;
use crate::store_handle::StoreHandle;
use crate::terms::{Snapshot, Terms};

/// An operation whose policies are read when it runs, not when it is described.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    /// An operation on limits that the caller holds.
    Raw(Operation<'a>),
    /// An operation on one key of a limiter, under the policy in force when it runs.
    One { terms: &'a Terms, key: AnyKey<'a>, wall: WallTime, verb: Verb<'a> },
    /// An operation on a list of charges, under the policies in force when it runs.
    List(Charges<'a>, ListVerb<'a>),
}

pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 2]>;
/// The policies of an operation, in the order of its charges.
pub(crate) type Snapshots = SmallVec<[Snapshot; 2]>;

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

impl<'a> Call<'a> {
    /// The first charge on a limiter of another engine.
    fn foreign(&self, store: &StoreHandle) -> Option<ChargeError> {
        let Self::List(charges, _) = self else { return None };
        let foreign = charges.iter().position(|charge| !charge.store.is_same(store));
        foreign.map(ChargeError::OtherEngine)
    }

    /// Reads the policies in force now.
    pub(super) fn snapshots(&self) -> Snapshots {
        match self {
            Self::Raw(_) => SmallVec::new(),
            Self::One { terms, wall, .. } => smallvec![terms.snapshot(*wall)],
            Self::List(charges, _) => charges.iter().map(Charge::snapshot).collect(),
        }
    }

    /// The limit and the wall time of an operation on one key.
    pub(crate) const fn terms(&self) -> Option<(&'a Terms, WallTime)> {
        match self {
            Self::One { terms, wall, .. } => Some((terms, *wall)),
            Self::Raw(_) | Self::List(..) => None,
        }
    }

    /// Decides a take of one key of a token bucket without waiters. Most takes are of this kind,
    /// and this path skips all wrapping.
    #[inline]
    pub(super) fn take_plain(&self, store: &MemoryStore) -> Option<Decision> {
        let Self::One { terms, key, verb: Verb::Take(cost), .. } = self else { return None };
        let key = key.as_key();
        if terms.on_calendar() || key.check().is_err() || terms.queued().ahead_of(key).is_some() {
            return None;
        }
        let snapshot = terms.snapshot(WallTime::default());
        let limit = snapshot.limit();
        let of_bucket = matches!(limit.policy(), Policy::Bucket(_));
        of_bucket.then(|| store.take_one(limit, key, *cost))
    }

    /// For a take or a peek: the tokens that waiters want of the key of each charge, and the
    /// charge's own cost. Empty if no charge has waiters ahead of it.
    fn behind(&self) -> Behind {
        let ahead = |terms: &Terms, key: Key<'_>, cost: u64| {
            let ahead = terms.queued().ahead_of(key).filter(|_| cost > 0);
            Ahead { tokens: ahead.unwrap_or_default(), cost }
        };
        let behind: Behind = match self {
            Self::One { terms, key, verb: Verb::Take(cost) | Verb::Peek(cost), .. } => {
                smallvec![ahead(terms, key.as_key(), *cost)]
            }
            Self::List(charges, ListVerb::Take | ListVerb::Peek) => charges
                .iter()
                .map(|charge| ahead(&charge.terms, charge.key.as_key(), charge.cost))
                .collect(),
            _ => Behind::new(),
        };
        let is_free = behind.iter().all(|ahead| ahead.tokens == 0);
        if is_free { Behind::new() } else { behind }
    }

    /// Builds the operation under policies that were read before.
    fn under<'s>(&'s self, snapshots: &'s [Snapshot]) -> Parts<'s> {
        match (self, snapshots) {
            (Self::Raw(operation), _) => Parts::Whole(*operation),
            (Self::One { key, verb, .. }, [snapshot, ..]) => {
                one(snapshot.target(key.as_key()), *verb)
            }
            (Self::One { .. }, []) => Parts::Whole(Operation::Take(&[])),
            (Self::List(charges, verb), snapshots) => list(charges, snapshots, verb),
        }
    }
}

fn one<'s>(target: Target<'s>, verb: Verb<'s>) -> Parts<'s> {
    let charge = |cost| smallvec![tidegate_core::Charge { target, cost }];
    match verb {
        Verb::Take(cost) => Parts::Take(charge(cost)),
        Verb::Peek(cost) => Parts::Peek(charge(cost)),
        Verb::Reserve(cost, horizon) => Parts::Reserve(charge(cost), horizon),
        Verb::Settle(delta, receipt) => {
            Parts::Settle(smallvec![Correction { target, delta }], receipt)
        }
        Verb::Release(receipt) => Parts::Release(smallvec![target], receipt),
        Verb::Renew(receipt) => Parts::Renew(smallvec![target], receipt),
        Verb::Hold(span) => Parts::Whole(Operation::Hold { target, span }),
        Verb::Reset => Parts::Whole(Operation::Reset { target }),
    }
}

fn list<'s>(
    charges: &'s [Charge<'_>],
    snapshots: &'s [Snapshot],
    verb: &'s ListVerb<'s>,
) -> Parts<'s> {
    let targets = || {
        let pairs = charges.iter().zip(snapshots);
        pairs.map(|(charge, snapshot)| snapshot.target(charge.key.as_key()))
    };
    let charged = || {
        let pairs = targets().zip(charges);
        pairs.map(|(target, charge)| tidegate_core::Charge { target, cost: charge.cost }).collect()
    };
    match verb {
        ListVerb::Take => Parts::Take(charged()),
        ListVerb::Peek => Parts::Peek(charged()),
        ListVerb::Reserve(horizon) => Parts::Reserve(charged(), *horizon),
        ListVerb::Settle(deltas, receipt) => {
            let pairs = targets().zip(deltas);
            let corrections = pairs.map(|(target, &delta)| Correction { target, delta });
            Parts::Settle(corrections.collect(), *receipt)
        }
        ListVerb::Release(receipt) => Parts::Release(targets().collect(), receipt),
        ListVerb::Renew(receipt) => Parts::Renew(targets().collect(), receipt),
    }
}

/// An operation ready to be sent.
///
/// Its policies are stored outside, because operations of a batch share them.
pub(crate) struct Asked<'c, 'a> {
    call: &'c Call<'a>,
    /// Why it is not sent.
    refused: Option<ChargeError>,
    behind: Behind,
}

/// Waiters ahead of each charge.
type Behind = SmallVec<[Ahead; 2]>;

/// Tokens that waiters want, and the cost of the charge itself.
#[derive(Clone, Copy)]
struct Ahead {
    tokens: u128,
    cost: u64,
}

impl<'c, 'a> Asked<'c, 'a> {
    pub(crate) fn of(call: &'c Call<'a>, store: &StoreHandle) -> Self {
        Self { call, refused: call.foreign(store), behind: call.behind() }
    }

    /// The operation; only a peek if it would overtake waiters.
    pub(crate) fn parts<'s>(&self, snapshots: &'s [Snapshot]) -> Parts<'s>
    where
        'c: 's,
    {
        if self.refused.is_some() {
            // Fills its position in a batch: every store rejects an empty list.
            return Parts::Whole(Operation::Take(&[]));
        }
        if self.behind.is_empty() {
            return self.call.under(snapshots);
        }
        let keys: SmallVec<[Key<'s>; 2]> = match self.call {
            Call::One { key, .. } => smallvec![key.as_key()],
            Call::List(charges, _) => charges.iter().map(|charge| charge.key.as_key()).collect(),
            Call::Raw(_) => SmallVec::new(),
        };
        let targets = snapshots.iter().zip(keys).map(|(snapshot, key)| snapshot.target(key));
        Parts::Peek(targets.map(|target| tidegate_core::Charge { target, cost: 0 }).collect())
    }

    pub(crate) fn answered<T: FromAnswer>(
        &self,
        snapshots: &[Snapshot],
        answer: Result<Answer, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(error) = self.refused {
            return Err(error.into());
        }
        if self.behind.is_empty() {
            return answer.and_then(T::from_answer);
        }
        let state = answer.and_then(Decision::from_answer)?;
        T::from_answer(Answer::Decision(overtaking(snapshots, &state, &self.behind)))
    }
}

/// The denial of an operation that would overtake waiters, with the wait that they leave to it.
fn overtaking(snapshots: &[Snapshot], state: &Decision, behind: &[Ahead]) -> Decision {
    let charges = state.outcomes().iter().zip(snapshots).zip(behind);
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
pub(crate) enum Parts<'s> {
    Whole(Operation<'s>),
    Take(SmallVec<[tidegate_core::Charge<'s>; 1]>),
    Peek(SmallVec<[tidegate_core::Charge<'s>; 1]>),
    Reserve(SmallVec<[tidegate_core::Charge<'s>; 1]>, Duration),
    Settle(SmallVec<[Correction<'s>; 1]>, Option<&'s Receipt>),
    Release(SmallVec<[Target<'s>; 1]>, &'s Receipt),
    Renew(SmallVec<[Target<'s>; 1]>, &'s Receipt),
}

impl Parts<'_> {
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Whole(operation) => *operation,
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
