//! Limits as plain numbers, for the oracle, the vectors and the generators.
//!
//! A specification converts to the core's types to drive a store. Nothing else of the core is used
//! here, and nothing is computed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::{Limit, LimitError, Policy, PolicyChange, PolicyError};

/// A policy as plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicySpec {
    /// A token bucket: `tokens` per `period_ns`.
    Bucket {
        /// Tokens refilled in a period.
        tokens: u64,
        /// The period in nanoseconds.
        period_ns: u64,
        /// Tokens in a full bucket.
        capacity: u64,
        /// Maximum debt in tokens.
        max_debt: u64,
        /// How far ahead a reservation may start, in nanoseconds.
        horizon_ns: u64,
    },
    /// At most `tokens` in any closed window.
    StrictWindow {
        /// Tokens in a window.
        tokens: u64,
        /// Length of the window in nanoseconds.
        window_ns: u64,
        /// Maximum number of tokens that can be taken together.
        burst: u64,
    },
    /// At most `amount` in every calendar window of the limit.
    Quota {
        /// Tokens per window.
        amount: u64,
    },
    /// At most `amount` in total.
    Allowance {
        /// Tokens in total.
        amount: u64,
    },
    /// At most `slots` at the same time, until they are released.
    Concurrency {
        /// Number of slots.
        slots: u64,
    },
}

impl PolicySpec {
    /// A token bucket with the core's defaults: maximum debt equal to the capacity, horizon of one
    /// hour.
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

    /// The maximum cost of one charge.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { capacity, .. } => capacity,
            Self::StrictWindow { burst, .. } => burst,
            Self::Quota { amount } | Self::Allowance { amount } => amount,
            Self::Concurrency { slots } => slots,
        }
    }

    /// Converts to the core's policy.
    ///
    /// # Errors
    /// If the core rejects the numbers.
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
    /// Converts to the core's mode.
    #[must_use]
    pub const fn to_change(self) -> PolicyChange {
        match self {
            Self::KeepTokens => PolicyChange::KeepTokens,
            Self::Proportional => PolicyChange::Proportional,
            Self::Reset => PolicyChange::Reset,
        }
    }
}

/// One revision of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionSpec {
    /// What happens to existing buckets when the revision takes effect.
    pub change: ChangeSpec,
    /// The policy from then on.
    pub policy: PolicySpec,
}

/// A limit with all of its revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSpec {
    /// Its name; `None` for an inline limit, which is identified by its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Length of its calendar windows in seconds; they start at multiples of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u32>,
    /// Its revisions; the first one is in force at the start.
    pub revisions: Vec<RevisionSpec>,
}

impl LimitSpec {
    /// A named limit with one policy.
    #[must_use]
    pub fn named(name: &str, policy: PolicySpec) -> Self {
        let revisions = vec![RevisionSpec { change: ChangeSpec::default(), policy }];
        Self { name: Some(name.to_owned()), window_s: None, revisions }
    }

    /// Sets the length of the calendar windows in seconds.
    #[must_use]
    pub fn windows_of(mut self, seconds: u32) -> Self {
        self.window_s = Some(seconds);
        self
    }

    /// Adds a revision.
    #[must_use]
    pub fn revised(mut self, change: ChangeSpec, policy: PolicySpec) -> Self {
        self.revisions.push(RevisionSpec { change, policy });
        self
    }

    /// Converts each revision to a limit of the core, in order.
    ///
    /// # Errors
    /// If the core rejects a policy or the name, or the limit is inline and has several revisions.
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

/// Why a specification does not convert to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The core rejected the policy.
    Policy(PolicyError),
    /// The core rejected the limit.
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
