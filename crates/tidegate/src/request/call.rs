//! What a request asks, and how it becomes an operation: under which policy, and behind whom.
//!
//! Nothing is sent from here. The same is done for one request and for each of a batch.

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

/// What to do, described so that the policies of limiters are read when it is carried out.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    /// An operation with policies that the caller holds.
    Raw(Operation<'a>),
    /// One key of a limiter, under the policy of the moment.
    One { terms: &'a Terms, key: AnyKey<'a>, wall: WallTime, verb: Verb<'a> },
    /// A list of charges, under the policies of the moment.
    List(Charges<'a>, ListVerb<'a>),
}

/// The charges of a list.
pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 2]>;
/// The policies that a call goes by, in the order of its charges.
pub(crate) type Snapshots = SmallVec<[Snapshot; 2]>;

/// The verbs for a single key.
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

/// The verbs for a list.
#[derive(Debug)]
pub(crate) enum ListVerb<'a> {
    Take,
    Peek,
    Reserve(Duration),
    /// By how much each charge is corrected.
    Settle(SmallVec<[i64; 2]>, Option<&'a Receipt>),
    Release(&'a Receipt),
    Renew(&'a Receipt),
}

impl<'a> Call<'a> {
    /// The first charge on a limiter of another engine than the one that decides.
    fn foreign(&self, store: &StoreHandle) -> Option<ChargeError> {
        let Self::List(charges, _) = self else { return None };
        let foreign = charges.iter().position(|charge| !charge.store.is_same(store));
        foreign.map(ChargeError::OtherEngine)
    }

    /// The policies to go by, read now.
    pub(super) fn snapshots(&self) -> Snapshots {
        match self {
            Self::Raw(_) => SmallVec::new(),
            Self::One { terms, wall, .. } => smallvec![terms.snapshot(*wall)],
            Self::List(charges, _) => charges.iter().map(Charge::snapshot).collect(),
        }
    }

    /// Whose policy is to be read, and for which time, if it is one.
    pub(crate) const fn terms(&self) -> Option<(&'a Terms, WallTime)> {
        match self {
            Self::One { terms, wall, .. } => Some((terms, *wall)),
            Self::Raw(_) | Self::List(..) => None,
        }
    }

    /// The decision on a plain take of one key, for which nobody waits, of a token bucket: most
    /// takes are, and this way nothing is wrapped and unwrapped.
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

    /// For a plain take, and what a peek says of it: how many tokens others wait for of the key of
    /// each charge, and its own cost. Nothing if nobody waits for any of them.
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

    /// The operation under policies that were read before.
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

/// A call on its way: as it is sent, and who waits before it.
///
/// The policies that it goes by are kept beside it, because calls of a batch share theirs.
pub(crate) struct Asked<'c, 'a> {
    call: &'c Call<'a>,
    /// Why it is not sent.
    refused: Option<ChargeError>,
    behind: Behind,
}

/// Who waits before each charge of a call.
type Behind = SmallVec<[Ahead; 2]>;

/// Tokens that others wait for, and what the call itself wants.
#[derive(Clone, Copy)]
struct Ahead {
    tokens: u128,
    cost: u64,
}

impl<'c, 'a> Asked<'c, 'a> {
    pub(crate) fn of(call: &'c Call<'a>, store: &StoreHandle) -> Self {
        Self { call, refused: call.foreign(store), behind: call.behind() }
    }

    /// The operation, or a look at the state alone if it would overtake waiters.
    pub(crate) fn parts<'s>(&self, snapshots: &'s [Snapshot]) -> Parts<'s>
    where
        'c: 's,
    {
        if self.refused.is_some() {
            // Keeps its place in a batch; every store refuses an empty list.
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

/// The denial of a call that would overtake waiters, with the wait that they leave to it.
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
