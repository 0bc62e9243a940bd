//! Limits described in plain numbers, for the oracle, the vectors and the generators.
//!
//! A description can be turned into the core's types to drive a store, and that is the only
//! place where the testkit touches them before a store does. Nothing is computed here.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::{Change, Limit, LimitError, Policy, PolicyError};

/// What a limit allows, in plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicySpec {
    /// `tokens` per `period_ns`.
    Bucket {
        /// Tokens that come in a period.
        tokens: u64,
        /// The period in nanoseconds.
        period_ns: u64,
        /// Tokens in a full bucket.
        capacity: u64,
        /// Tokens below zero that a settlement may reach.
        max_debt: u64,
        /// How far ahead a reservation may start, in nanoseconds.
        horizon_ns: u64,
    },
    /// Never more than `tokens` in any closed window.
    StrictWindow {
        /// Tokens in a window.
        tokens: u64,
        /// Length of the window in nanoseconds.
        window_ns: u64,
        /// How many may go at once.
        burst: u64,
    },
    /// So many in every calendar window of the limit.
    Quota {
        /// How many.
        amount: u64,
    },
    /// So many in total.
    Allowance {
        /// How many.
        amount: u64,
    },
    /// So many at the same time, until they are released.
    Concurrency {
        /// How many.
        slots: u64,
    },
}

impl PolicySpec {
    /// A bucket with the defaults of the core: debt as deep as the capacity, one hour of horizon.
    #[must_use]
    pub const fn bucket(tokens: u64, period: Duration, capacity: u64) -> Self {
        // The periods in use are far below the 584 years that 64 bits hold.
        #[expect(clippy::cast_possible_truncation)]
        let period_ns = period.as_nanos() as u64;
        Self::Bucket {
            tokens,
            period_ns,
            capacity,
            max_debt: capacity,
            horizon_ns: 3_600_000_000_000,
        }
    }

    /// The most that one charge can ever take.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { capacity, .. } => capacity,
            Self::StrictWindow { burst, .. } => burst,
            Self::Quota { amount } | Self::Allowance { amount } => amount,
            Self::Concurrency { slots } => slots,
        }
    }

    /// The core's policy.
    ///
    /// # Errors
    /// When the core refuses the numbers.
    pub fn to_policy(&self) -> Result<Policy, PolicyError> {
        match *self {
            Self::Bucket { tokens, period_ns, capacity, max_debt, horizon_ns } => {
                Policy::per(tokens, Duration::from_nanos(period_ns))
                    .capacity(capacity)
                    .max_debt(max_debt)
                    .max_horizon(Duration::from_nanos(horizon_ns))
                    .build()
            }
            Self::StrictWindow { tokens, window_ns, burst } => {
                Policy::strict_window(tokens, Duration::from_nanos(window_ns), burst)
            }
            Self::Quota { amount } => Policy::quota(amount),
            Self::Allowance { amount } => Policy::allowance(amount),
            Self::Concurrency { slots } => Policy::concurrency(slots, None),
        }
    }
}

/// What happens to existing buckets at a revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSpec {
    /// Tokens stay.
    #[default]
    KeepTokens,
    /// The filled share stays.
    Proportional,
    /// Every bucket starts full.
    Reset,
}

impl ChangeSpec {
    /// The core's mode.
    #[must_use]
    pub const fn to_change(self) -> Change {
        match self {
            Self::KeepTokens => Change::KeepTokens,
            Self::Proportional => Change::Proportional,
            Self::Reset => Change::Reset,
        }
    }
}

/// One policy in the life of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionSpec {
    /// What happens to existing buckets when it comes in force.
    pub change: ChangeSpec,
    /// What is allowed from then on.
    pub policy: PolicySpec,
}

/// A limit and all the policies it will have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSpec {
    /// Its name; none makes it inline, with its parameters as identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Length of its calendar windows in seconds, which start at multiples of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u32>,
    /// Its policies, the first one in force at the start.
    pub revisions: Vec<RevisionSpec>,
}

impl LimitSpec {
    /// A named limit with one policy.
    #[must_use]
    pub fn named(name: &str, policy: PolicySpec) -> Self {
        let revisions = vec![RevisionSpec { change: ChangeSpec::default(), policy }];
        Self { name: Some(name.to_owned()), window_s: None, revisions }
    }

    /// With calendar windows of this many seconds.
    #[must_use]
    pub fn windows_of(mut self, seconds: u32) -> Self {
        self.window_s = Some(seconds);
        self
    }

    /// With one more policy.
    #[must_use]
    pub fn revised(mut self, change: ChangeSpec, policy: PolicySpec) -> Self {
        self.revisions.push(RevisionSpec { change, policy });
        self
    }

    /// The core's limit in each of its revisions, the first one first.
    ///
    /// # Errors
    /// When the core refuses a policy, the name, or to revise an inline limit.
    pub fn to_limits(&self) -> Result<Vec<Limit>, SpecError> {
        let mut limits: Vec<Limit> = Vec::with_capacity(self.revisions.len());
        for revision in &self.revisions {
            let policy = revision.policy.to_policy()?;
            limits.push(match (limits.last(), &self.name) {
                (Some(limit), _) => limit.revise(policy, revision.change.to_change())?,
                (None, Some(name)) => Limit::named(name, policy)?,
                (None, None) => Limit::inline(policy),
            });
        }
        Ok(limits)
    }
}

/// Why a description is not a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The core refused the policy.
    Policy(PolicyError),
    /// The core refused the limit.
    Limit(LimitError),
}

impl From<PolicyError> for SpecError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

impl From<LimitError> for SpecError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SpecError {}
