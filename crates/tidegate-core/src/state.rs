//! What a store keeps for a bucket, and how a policy change carries it on.

use crate::limit::{Change, Limit, Revision};
use crate::policy::Policy;
use crate::policy::exact::Exact;
use crate::time::{Now, Time, WallTime};

/// What a store keeps for one key under one limit, besides a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nothing spent: the same as no entry.
    #[default]
    Fresh,
    /// The arrival time of a token bucket.
    Bucket(Exact),
    /// What was used of a calendar quota in the window that ends at `ends` (Unix seconds).
    Quota {
        /// End of the window.
        ends: u32,
        /// Used in it.
        used: u64,
    },
    /// What was used of an allowance.
    Allowance {
        /// Used so far.
        used: u64,
    },
    /// Slots taken under a concurrency limit.
    Concurrency {
        /// Taken now.
        taken: u64,
    },
}

impl State {
    /// Whether the state is the same as no entry at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Now) -> bool {
        match *self {
            Self::Fresh => true,
            Self::Bucket(tat) => tat <= Exact::whole(now.time.as_nanos()),
            Self::Quota { ends, used } => used == 0 || now.wall >= WallTime::from_secs(ends),
            Self::Allowance { used } => used == 0,
            Self::Concurrency { taken } => taken == 0,
        }
    }

    /// The state under the present policy of `limit`, of a bucket that was last written under
    /// `generation`. A store converts a bucket when it is next asked to spend from it, also if it
    /// denies that; until then the bucket refills as before.
    #[must_use]
    pub fn carried(self, limit: &Limit, generation: u32, now: Time) -> Self {
        if generation == limit.generation() {
            return self;
        }
        self.convert_since(limit, generation, None, now)
    }

    /// The state under the present policy of `limit`, of a key that was held under `generation`
    /// until an instant that has passed: a bucket that was empty then, with the tokens that have
    /// come since. A change of the policy does not open it earlier, whatever its mode.
    #[must_use]
    pub fn after_hold(limit: &Limit, generation: u32, until: Time, now: Time) -> Self {
        let then = limit.since(generation).and_then(|mut revisions| revisions.next());
        let (policy, generation) =
            then.map_or((limit.policy(), limit.generation()), |then| (then.policy(), generation));
        match policy {
            Policy::Bucket(bucket) => {
                let empty = Self::Bucket(bucket.empty(until));
                empty.convert_since(limit, generation, Some(Change::KeepTokens), now)
            }
            _ => Self::Fresh,
        }
    }

    /// Carries a state over every revision since `generation`, each in its mode or all in one.
    fn convert_since(
        self,
        limit: &Limit,
        generation: u32,
        mode: Option<Change>,
        now: Time,
    ) -> Self {
        let Some(revisions) = limit.since(generation) else {
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

    /// The one of two states of a bucket in which less is left.
    #[must_use]
    pub fn or_less(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bucket(one), Self::Bucket(other)) => Self::Bucket(one.max(other)),
            (Self::Fresh, other) => other,
            (one, _) => one,
        }
    }

    fn convert(self, old: &Policy, new: &Policy, mode: Change, now: Time) -> Self {
        match (self, old, new) {
            _ if mode == Change::Reset => Self::Fresh,
            (Self::Bucket(tat), Policy::Bucket(old), Policy::Bucket(bucket)) => {
                let tat = if mode == Change::Proportional {
                    bucket.keep_share(old, tat, now)
                } else {
                    bucket.keep_tokens(old, tat, now)
                };
                if tat == Exact::ZERO { Self::Fresh } else { Self::Bucket(tat) }
            }
            (_, _, policy) => self.if_same_kind(policy),
        }
    }

    /// Never in the caller's favour: a bucket whose parameters are forgotten is empty.
    fn convert_from_unknown(self, policy: &Policy, now: Time) -> Self {
        match (self, policy) {
            (Self::Bucket(tat), Policy::Bucket(_)) if tat <= Exact::whole(now.as_nanos()) => {
                Self::Fresh
            }
            (Self::Bucket(_), Policy::Bucket(bucket)) => Self::Bucket(bucket.empty(now)),
            _ => self.if_same_kind(policy),
        }
    }

    /// A limit that changed its kind starts anew.
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
