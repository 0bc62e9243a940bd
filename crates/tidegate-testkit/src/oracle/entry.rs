//! The stored state of one key under one limit, and its conversion at a policy change.

use std::collections::BTreeMap;

use num_traits::Zero as _;

use super::exact_policy::{ExactPolicy, Rational, from_nanos};
use crate::scenario::spec::{ChangeSpec, LimitSpec, PolicySpec};

/// The stored state, by kind of policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing spent.
    #[default]
    Fresh,
    /// The instant at which the bucket will be full.
    Bucket(Rational),
    /// Amount used in the window that ends at a wall time, in seconds.
    Quota { ends: u64, used: u64 },
    /// Amount used.
    Allowance { used: u64 },
    /// Slots taken, by the step that took them.
    Slots(BTreeMap<usize, u64>),
}

impl State {
    /// The stored instant of a bucket.
    pub(super) fn stored(&self) -> Option<&Rational> {
        match self {
            Self::Bucket(stored) => Some(stored),
            _ => None,
        }
    }

    /// Amount used under a counted policy; zero for a token bucket.
    pub(super) fn used(&self) -> u64 {
        match self {
            Self::Quota { used, .. } | Self::Allowance { used } => *used,
            Self::Slots(slots) => slots.values().sum(),
            Self::Fresh | Self::Bucket(_) => 0,
        }
    }

    fn is_of(&self, policy: &PolicySpec) -> bool {
        matches!(
            (self, policy),
            (Self::Bucket(_), PolicySpec::Bucket { .. } | PolicySpec::StrictWindow { .. })
                | (Self::Quota { .. }, PolicySpec::Quota { .. })
                | (Self::Allowance { .. }, PolicySpec::Allowance { .. })
                | (Self::Slots(_), PolicySpec::Concurrency { .. })
        )
    }

    /// Converts the state to the next revision.
    fn converted(self, old: &PolicySpec, new: &PolicySpec, mode: ChangeSpec, now: u64) -> Self {
        if mode == ChangeSpec::Reset || !self.is_of(new) {
            return Self::Fresh;
        }
        let (Self::Bucket(stored), Some(before), Some(after)) =
            (&self, ExactPolicy::of(old), ExactPolicy::of(new))
        else {
            return self;
        };
        let gap = before.gap(Some(stored), now);
        let gap = match mode {
            ChangeSpec::Proportional => after.keep_filled_share(&before, &gap),
            _ => after.keep_tokens(&before, &gap),
        };
        if gap.is_zero() { Self::Fresh } else { Self::Bucket(from_nanos(now) + gap) }
    }
}

/// The stored entry of one key under one limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// The revision under which the state was written.
    pub(super) generation: usize,
    pub(super) state: State,
    pub(super) held_until: Option<u64>,
    /// The revision under which the key was last held.
    pub(super) hold_generation: usize,
    /// The latest time seen since the entry was written. A store may forget an entry that is full
    /// by then.
    pub(super) seen: u64,
}

impl Entry {
    /// Returns the state under a later revision as of now, and the hold that still applies.
    ///
    /// A hold that expired under an older revision is a bucket that was empty at its end. It is
    /// converted like tokens, whatever the mode of the change, and no longer is a hold.
    pub(super) fn under_revision(
        &self,
        limit: &LimitSpec,
        generation: usize,
        now: u64,
    ) -> (State, Option<u64>) {
        let carry = |state: State, from: usize, mode: Option<ChangeSpec>| {
            let lived = limit.revisions[from..=generation].windows(2);
            lived.fold(state, |state, pair| {
                let mode = mode.unwrap_or(pair[1].change);
                state.converted(&pair[0].policy, &pair[1].policy, mode, now)
            })
        };
        let state = carry(self.state.clone(), self.generation, None);
        let passed = self.held_until.filter(|&until| until <= now);
        let (Some(until), true) = (passed, self.hold_generation != generation) else {
            return (state, self.held_until);
        };
        let Some(exact) = ExactPolicy::of(&limit.revisions[self.hold_generation].policy) else {
            return (state, None);
        };
        let empty = State::Bucket(exact.refilled(until));
        let reopened = carry(empty, self.hold_generation, Some(ChangeSpec::KeepTokens));
        let state = match (state, reopened) {
            (State::Bucket(one), State::Bucket(other)) => State::Bucket(one.max(other)),
            (State::Fresh, reopened) => reopened,
            (state, _) => state,
        };
        (state, None)
    }
}
