//! The stored state of a bucket, and its conversion when the policy changes.

use crate::limit::{Limit, PolicyChange, Revision};
use crate::policy::Policy;
use crate::policy::exact::ExactTime;
use crate::time::{Now, Time, WallTime};

/// Stored state of one key under one limit, apart from a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nothing spent; equivalent to no entry.
    #[default]
    Fresh,
    /// Theoretical arrival time of a token bucket.
    Bucket(ExactTime),
    /// Usage of a calendar quota in one window.
    Quota {
        /// End of the window, in seconds since the Unix epoch.
        ends: u32,
        /// Amount used in the window.
        used: u64,
    },
    /// Usage of an allowance.
    Allowance {
        /// Amount used so far.
        used: u64,
    },
    /// Usage of a concurrency limit.
    Concurrency {
        /// Slots taken now.
        taken: u64,
    },
}

impl State {
    /// Returns whether the state is equivalent to no entry at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Now) -> bool {
        match *self {
            Self::Fresh => true,
            Self::Bucket(tat) => tat <= ExactTime::from_nanos(now.time.as_nanos()),
            Self::Quota { ends, used } => used == 0 || now.wall >= WallTime::from_secs(ends),
            Self::Allowance { used } => used == 0,
            Self::Concurrency { taken } => taken == 0,
        }
    }

    /// Converts a state last written under `generation` to the current policy of `limit`.
    ///
    /// A store converts a bucket on the next attempt to spend from it, even if that attempt is
    /// denied. Until then the bucket refills under the old policy.
    #[must_use]
    pub fn converted_to(self, limit: &Limit, generation: u32, now: Time) -> Self {
        if generation == limit.generation() {
            return self;
        }
        self.convert_since(limit, generation, None, now)
    }

    /// Returns the state, under the current policy of `limit`, of a key whose hold ended at `until`
    /// and was set under `generation`: a bucket that was empty at `until` and has refilled since. A
    /// policy change never ends a hold early, whatever its mode.
    #[must_use]
    pub fn after_hold(limit: &Limit, generation: u32, until: Time, now: Time) -> Self {
        let then = limit.revisions_since(generation).and_then(|mut revisions| revisions.next());
        let (policy, generation) =
            then.map_or((limit.policy(), limit.generation()), |then| (then.policy(), generation));
        match policy {
            Policy::Bucket(bucket) => {
                let empty = Self::Bucket(bucket.empty_tat(until));
                empty.convert_since(limit, generation, Some(PolicyChange::KeepTokens), now)
            }
            _ => Self::Fresh,
        }
    }

    /// Applies every revision since `generation`, each in its own mode or all in `mode`.
    fn convert_since(
        self,
        limit: &Limit,
        generation: u32,
        mode: Option<PolicyChange>,
        now: Time,
    ) -> Self {
        let Some(revisions) = limit.revisions_since(generation) else {
            return self.convert_from_unknown(limit.policy(), now);
        };
        let mut state = self;
        let mut before: Option<&Revision> = None;
        for revision in revisions {
            if let Some(before) = before {
                let mode = mode.unwrap_or(revision.change());
                state = state.convert(before.policy(), revision.policy(), mode, now);
            }
            before = Some(revision);
        }
        state
    }

    /// Returns the stricter of two states of the same bucket.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bucket(one), Self::Bucket(other)) => Self::Bucket(one.max(other)),
            (Self::Fresh, other) => other,
            (one, _) => one,
        }
    }

    fn convert(self, old: &Policy, new: &Policy, mode: PolicyChange, now: Time) -> Self {
        match (self, old, new) {
            _ if mode == PolicyChange::Reset => Self::Fresh,
            (Self::Bucket(tat), Policy::Bucket(old), Policy::Bucket(bucket)) => {
                let tat = if mode == PolicyChange::Proportional {
                    bucket.keep_proportion(old, tat, now)
                } else {
                    bucket.keep_tokens(old, tat, now)
                };
                if tat == ExactTime::ZERO { Self::Fresh } else { Self::Bucket(tat) }
            }
            (_, _, policy) => self.if_same_kind(policy),
        }
    }

    /// Treats a bucket whose old parameters are unknown as empty, never in the caller's favour.
    fn convert_from_unknown(self, policy: &Policy, now: Time) -> Self {
        match (self, policy) {
            (Self::Bucket(tat), Policy::Bucket(_))
                if tat <= ExactTime::from_nanos(now.as_nanos()) =>
            {
                Self::Fresh
            }
            (Self::Bucket(_), Policy::Bucket(bucket)) => Self::Bucket(bucket.empty_tat(now)),
            _ => self.if_same_kind(policy),
        }
    }

    /// Keeps the state only if the policy is of the same kind; otherwise starts fresh.
    fn if_same_kind(self, policy: &Policy) -> Self {
        match (self, policy) {
            (Self::Bucket(_), Policy::Bucket(_))
            | (Self::Quota { .. }, Policy::Quota(_))
            | (Self::Allowance { .. }, Policy::Allowance(_))
            | (Self::Concurrency { .. }, Policy::Concurrency(_)) => self,
            _ => Self::Fresh,
        }
    }
}
