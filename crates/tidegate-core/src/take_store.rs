//! The small store contract: a take from one token bucket, by the store's own clock.
//!
//! It is for buckets in a database or a service of one's own. Reservations, settlements, holds,
//! slots, resets and lists over several buckets need the whole [`Store`] contract.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use crate::charge::{Charge, ChargeError, Target};
use crate::decide::check_list;
use crate::decision::{Decision, Denial, Grant, Outcome, Outcomes, Retry};
use crate::key::Key;
use crate::limit::{Limit, LimitError, PolicyChange};
use crate::policy::Policy;
use crate::policy::bucket::TokenBucket;
use crate::policy::exact::ExactTime;
use crate::receipt::Receipt;
use crate::store::{
    Operation, Probe, Store, StoreError, StoreResponse, StoreResponses, Submission,
};
use crate::time::Time;

/// Storage for token buckets, one bucket at a time. [`TakeOnly`] makes a [`Store`] of it, for an
/// engine.
///
/// Implementations must pass the suite `take_tests!` of `tidegate-testkit`.
///
/// ```
/// use std::collections::HashMap;
/// use std::future::ready;
/// use std::sync::Mutex;
/// use std::time::SystemTime;
/// use tidegate_core::{ExactTime, TakeFuture, TakeStore, Time, TokenBucket};
///
/// #[derive(Debug, Default)]
/// struct Buckets(Mutex<HashMap<String, ExactTime>>);
///
/// impl TakeStore for Buckets {
///     fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a> {
///         let mut buckets = self.0.lock().unwrap();
///         // The clock is read under the lock, so that no time is older than a stored state.
///         let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
///         let now = Time::from_nanos(now.as_nanos().try_into().unwrap());
///         let tat = buckets.get(bucket).copied().unwrap_or(ExactTime::ZERO);
///         let (tat, outcome) = policy.take(tat, cost, now);
///         buckets.insert(bucket.to_owned(), tat);
///         Box::pin(ready(Ok(outcome)))
///     }
/// }
/// ```
pub trait TakeStore: Send + Sync + fmt::Debug {
    /// Spends `cost` tokens of a bucket now, or denies and spends nothing. The tokens were spent if
    /// the outcome has no `retry`.
    ///
    /// - The outcome is that of [`TokenBucket::take`] at the time of the store's own clock. No
    ///   time comes from the caller.
    /// - Reading the state and writing it back is one atomic step for a bucket, for all callers in
    ///   all processes.
    /// - An unknown bucket is full. A bucket may be forgotten once it is full again, not earlier.
    /// - A cost of zero reports the state, is never denied and changes nothing.
    ///
    /// `bucket` identifies limit, parameters and key; treat it as opaque. Two buckets are the same
    /// only if the texts are equal byte by byte. A text has no NUL characters, and at most 2,500
    /// bytes, unless the key has `%` or NUL, which are escaped. `policy` is always the same for the
    /// same bucket, apart from debt and horizon, which a take does not need.
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a>;
}

/// Future of [`TakeStore::take`].
pub type TakeFuture<'a> = Pin<Box<dyn Future<Output = Result<Outcome, StoreError>> + Send + 'a>>;

impl<S: TakeStore + ?Sized> TakeStore for Arc<S> {
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a> {
        (**self).take(bucket, cost, policy)
    }
}

impl TokenBucket {
    /// Decides a take for a store: returns the arrival time to store, and the outcome. An unknown
    /// bucket has the arrival time [`ExactTime::ZERO`]. An arrival time that has not changed need
    /// not be written.
    ///
    /// A denial changes the arrival time only if that is too far ahead because the clock stepped
    /// back.
    ///
    /// ```
    /// use tidegate::Policy;
    /// use tidegate_core::{ExactTime, Time};
    /// let Policy::Bucket(bucket) = Policy::per_second(1).capacity(10).build()? else { unreachable!() };
    /// let now = Time::from_nanos(5_000_000_000);
    /// let (tat, outcome) = bucket.take(ExactTime::ZERO, 8, now);
    /// assert_eq!((outcome.remaining, outcome.retry), (2, None));
    /// let (unchanged, outcome) = bucket.take(tat, 3, now);
    /// assert!(outcome.retry.is_some() && unchanged == tat);
    /// # Ok::<(), tidegate::PolicyError>(())
    /// ```
    #[must_use]
    pub fn take(&self, tat: ExactTime, cost: u64, now: Time) -> (ExactTime, Outcome) {
        let effective = self.effective_tat(tat, Time::ZERO, now);
        let (after, retry) = match self.earliest(effective, cost, now) {
            _ if cost == 0 => (effective, None),
            None => (effective, Some(Retry::Never)),
            Some(time) if time > now => (effective, Some(Retry::After(time.since(now)))),
            Some(_) => (self.spend(effective, cost, now), None),
        };
        let (remaining, reset) = (self.remaining(after, now), self.reset(after, now));
        let stored = if cost == 0 { tat } else { after };
        (stored, Outcome::new(self.capacity(), remaining, Some(reset), retry))
    }
}

/// A [`Store`] that takes from and peeks at one token bucket at a time, in a [`TakeStore`].
///
/// It refuses every other operation with [`Unsupported`]. An engine asks it when a limit is created
/// or changed, so a policy that it cannot decide is refused then. A changed policy starts with full
/// buckets, because the parameters are part of a bucket's identity: only
/// [`PolicyChange::Reset`] is accepted. If the old policy returns before its buckets are full, they
/// continue where they were.
///
/// The waits that a peek reports may be a nanosecond too long.
#[derive(Clone, Copy, Debug)]
pub struct TakeOnly<S>(pub S);

/// What a [`TakeOnly`] store refuses. Nothing was spent or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// A policy other than a token bucket.
    Policy,
    /// A change of policy that converts existing buckets.
    PolicyChange,
    /// A list over several buckets.
    List,
    /// A reservation, and so waiting.
    Reserve,
    /// A settlement.
    Settle,
    /// Releasing slots.
    Release,
    /// Renewing slot leases.
    Renew,
    /// A hold.
    Hold,
    /// Forgetting a key.
    Reset,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Policy => "decide a policy that is not a token bucket",
            Self::PolicyChange => "convert buckets to a changed policy (only PolicyChange::Reset)",
            Self::List => "decide several buckets together",
            Self::Reserve => "reserve ahead, so nothing can wait for its limits",
            Self::Settle => "settle an earlier charge",
            Self::Release => "release slots",
            Self::Renew => "renew slot leases",
            Self::Hold => "hold a key",
            Self::Reset => "reset a key",
        };
        write!(
            f,
            "the store implements TakeStore only and cannot {what}; use one that implements Store"
        )
    }
}

impl core::error::Error for Unsupported {}

impl<S: TakeStore> TakeOnly<S> {
    async fn answer(&self, operation: Operation<'_>) -> Result<StoreResponse, StoreError> {
        let unsupported = match operation {
            Operation::Take(charges) => {
                let (target, cost) = single_bucket(charges)?;
                return self.take(target, cost, charges.len()).await;
            }
            Operation::Peek(charges) => {
                let (target, cost) = single_bucket(charges)?;
                return self.peek(target, cost, charges.len()).await;
            }
            Operation::Reserve { charges, .. } => {
                check_list(charges.iter().map(|charge| charge.target.key))?;
                Unsupported::Reserve
            }
            Operation::Settle { corrections, .. } => {
                check_list(corrections.iter().map(|correction| correction.target.key))?;
                Unsupported::Settle
            }
            Operation::Release { targets, .. } => {
                check_list(targets.iter().map(|target| target.key))?;
                Unsupported::Release
            }
            Operation::Renew { targets, .. } => {
                check_list(targets.iter().map(|target| target.key))?;
                Unsupported::Renew
            }
            Operation::Hold { target, .. } => {
                check_list([target.key])?;
                Unsupported::Hold
            }
            Operation::Reset { target } => {
                check_list([target.key])?;
                Unsupported::Reset
            }
        };
        Err(unsupported.into())
    }

    /// Takes from the bucket that all `charges` of a list are on.
    async fn take(
        &self,
        target: Target<'_>,
        cost: u64,
        charges: usize,
    ) -> Result<StoreResponse, StoreError> {
        let outcome = self.call(target, cost).await?;
        Ok(StoreResponse::Decision(decision(outcome, charges)))
    }

    /// Computes what a take would decide from the state that a cost of zero reports.
    async fn peek(
        &self,
        target: Target<'_>,
        cost: u64,
        charges: usize,
    ) -> Result<StoreResponse, StoreError> {
        let policy = supported(target.limit)?;
        let state = self.call(target, 0).await?;
        let outcome = Outcome {
            retry: match cost {
                _ if cost <= state.remaining => None,
                _ if cost > state.capacity => Some(Retry::Never),
                _ => state.reset.map(|reset| Retry::After(policy.wait_for(cost, reset))),
            },
            ..state
        };
        let outcome = match outcome.retry {
            Some(_) => outcome,
            None => Outcome {
                remaining: state.remaining - cost,
                reset: state.reset.map(|reset| policy.reset_after(cost, reset)),
                ..outcome
            },
        };
        Ok(StoreResponse::Decision(decision(outcome, charges)))
    }

    async fn call(&self, target: Target<'_>, cost: u64) -> Result<Outcome, StoreError> {
        let policy = supported(target.limit)?;
        self.0.take(&bucket_id(target.limit, policy, target.key), cost, policy).await
    }
}

impl<S: TakeStore> Store for TakeOnly<S> {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            for operation in operations {
                responses.push(self.answer(*operation).await);
            }
        }))
    }

    fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        supported(limit)?;
        Ok(())
    }

    /// Reads the state of a bucket that nothing else uses.
    fn probe(&self) -> Probe<'_> {
        Box::pin(async {
            if let Ok(Policy::Bucket(policy)) = Policy::per_second(1).build() {
                self.0.take("probe", 0, &policy).await?;
            }
            Ok(())
        })
    }
}

/// Returns the bucket that all charges of a list are on, and the sum of their costs.
fn single_bucket<'a>(charges: &[Charge<'a>]) -> Result<(Target<'a>, u64), StoreError> {
    check_list(charges.iter().map(|charge| charge.target.key))?;
    let mut sum: Option<(Target<'a>, u64)> = None;
    for Charge { target, cost } in charges {
        let (first, before) = *sum.get_or_insert((*target, 0));
        if first.limit != target.limit || first.key != target.key {
            return Err(Unsupported::List.into());
        }
        sum = Some((first, before.saturating_add(*cost)));
    }
    sum.ok_or(StoreError::Charge(ChargeError::Empty))
}

/// Returns the token bucket of a limit, if a store with one operation can decide it.
fn supported(limit: &Limit) -> Result<&TokenBucket, Unsupported> {
    let Policy::Bucket(policy) = limit.policy() else { return Err(Unsupported::Policy) };
    let converts = limit.generation() > 0 && limit.change() != PolicyChange::Reset;
    if converts { Err(Unsupported::PolicyChange) } else { Ok(policy) }
}

/// Returns a text that identifies a bucket.
///
/// Limit and parameters contain no colon, and a group is written without one. A NUL is escaped
/// because some databases cannot store it.
fn bucket_id(limit: &Limit, policy: &TokenBucket, key: Key<'_>) -> String {
    let mut id = String::from(limit.identity());
    // The identity of an inline limit is its parameters.
    if !limit.is_inline() {
        // Writing to a `String` does not fail.
        let _ = write!(id, " {} {}", policy.capacity(), policy.rate());
    }
    id.push(':');
    for letter in key.group().unwrap_or_default().chars() {
        match letter {
            ':' => id.push_str("%3A"),
            letter => push_escaped(&mut id, letter),
        }
    }
    id.push(':');
    key.name().chars().for_each(|letter| push_escaped(&mut id, letter));
    id
}

fn push_escaped(id: &mut String, letter: char) {
    match letter {
        '\0' => id.push_str("%00"),
        '%' => id.push_str("%25"),
        letter => id.push(letter),
    }
}

fn decision(outcome: Outcome, charges: usize) -> Decision {
    let outcomes: Outcomes = core::iter::repeat_n(outcome, charges).collect();
    match outcome.retry {
        None => Decision::Allowed(Grant::new(outcomes, Duration::ZERO, Receipt::default())),
        Some(_) => Decision::Denied(Denial::new(outcomes)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use super::*;

    fn policy(capacity: u64) -> Policy {
        Policy::per_second(1).capacity(capacity).build().unwrap()
    }

    fn id(limit: &Limit, key: Key<'_>) -> String {
        bucket_id(limit, supported(limit).unwrap(), key)
    }

    #[test]
    fn different_buckets_have_different_ids_without_nul() {
        let limits = [
            Limit::named("bucket", policy(10)).unwrap(),
            Limit::named("bucket", policy(11)).unwrap(),
            Limit::named("b", policy(10)).unwrap(),
            Limit::inline(policy(10)),
            Limit::inline(policy(11)),
        ];
        let names = ["a", "b", ":", "a:b", ":a", "%", "%00", "\0", "%3A", "\0:", "A", "a "];
        let mut ids = BTreeSet::new();
        let mut count = 0;
        for limit in &limits {
            for name in names {
                let groups = names.map(Some).into_iter().chain([None]);
                for group in groups {
                    let key = group.map_or(Key::new(name), |group| Key::new(name).in_group(group));
                    let id = id(limit, key);
                    assert!(!id.contains('\0'), "{id:?}");
                    ids.insert(id);
                    count += 1;
                }
            }
        }
        assert_eq!(ids.len(), count);
        assert_eq!(
            id(&limits[2], Key::new("alice").in_group("acme")),
            "b 10 1/1000000000ns:acme:alice"
        );
    }

    #[test]
    fn longest_keys_have_ids_of_the_documented_length() {
        let longest = "x".repeat(crate::MAX_KEY_BYTES);
        let rate = "4294967291/99991day".parse().unwrap();
        let policy = Policy::rate(rate).capacity(1_000_000_000).max_debt(0).build().unwrap();
        let limit = Limit::named(&"x".repeat(128), policy).unwrap();
        let key = Key::new(&longest).in_group(&longest);
        assert!(id(&limit, key).len() <= 2_500);
    }

    #[test]
    fn only_token_buckets_without_conversion_are_supported() {
        let named = Limit::named("a", policy(10)).unwrap();
        assert!(supported(&named).is_ok());
        let reset = named.revise(policy(5), PolicyChange::Reset).unwrap();
        assert!(supported(&reset).is_ok());
        let kept = reset.revise(policy(6), PolicyChange::KeepTokens).unwrap();
        assert_eq!(supported(&kept), Err(Unsupported::PolicyChange));
        let quota = Limit::inline(Policy::quota(1).unwrap());
        assert_eq!(supported(&quota), Err(Unsupported::Policy));
        assert_eq!(
            Unsupported::Hold.to_string(),
            "the store implements TakeStore only and cannot hold a key; use one that implements \
             Store"
        );
    }
}
