//! Limits: policies with a name.
//!
//! The name and a key identify a bucket. The policy may change while buckets exist; each change is
//! a new generation.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::failure::FailureRule;
use crate::hash;
use crate::policy::{Policy, PolicyError};
use crate::take_store::Unsupported;

/// Maximum length of a limit name, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Maximum number of past revisions kept per limit. A bucket last written before the oldest of them
/// counts as empty, never in the caller's favour.
const MAX_REVISIONS: usize = 256;
/// Generations have 24 bits, which leaves room for flags in a `u32`.
const MAX_GENERATION: u32 = (1 << 24) - 1;

/// Error creating or changing a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The name does not match `[a-z][a-z0-9_.-]*` or is longer than 128 bytes.
    #[error(
        "{0:?} is not a limit name: use a lower-case letter, then lower-case letters, digits, _ . or -, at most 128 bytes"
    )]
    Name(String),
    /// An inline limit cannot be revised, since its parameters are its identity.
    #[error("an inline limit cannot be revised; give it a name")]
    Inline,
    /// Another limit with a different policy has this name.
    #[error(
        "a limit named {0:?} with another policy already exists; reconfigure it, or get it with Engine::find"
    )]
    Taken(String),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The limit is a calendar quota and has no schedule to take its windows from.
    #[error("a calendar quota needs a schedule; create the limit with one")]
    NoSchedule,
    /// The limit must remain a token bucket.
    #[error("the limit is an admission tier and must be a token bucket with a capacity and a rate")]
    NotABucket,
    /// The store cannot decide the limit.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The limit has been revised 2^24 times.
    #[error("the limit has been revised 2^24 times; restart the process with its current policy")]
    TooManyRevisions,
}

/// How existing buckets are converted when the policy of a limit changes.
///
/// A full bucket stays full in every mode. Quotas, allowances and concurrency limits keep their
/// usage in every mode except [`Reset`](Self::Reset).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyChange {
    /// Keep the tokens, capped at the new capacity and rounded down.
    #[default]
    KeepTokens,
    /// Keep the fill level as a fraction of the capacity, rounded down.
    Proportional,
    /// Start every bucket full.
    Reset,
}

/// One policy in the history of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    generation: u32,
    policy: Policy,
    change: PolicyChange,
}

impl Revision {
    /// Returns the number of this revision; the first is 0.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the policy in force from this revision on.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns how existing buckets were converted at this revision.
    #[must_use]
    pub const fn change(&self) -> PolicyChange {
        self.change
    }
}

/// A named policy, or an inline policy identified by its parameters. Cheap to clone.
///
/// ```
/// use tidegate::{Policy, PolicyChange};
/// use tidegate_core::Limit;
/// let client = Limit::named("client", Policy::per_second(50).build()?)?;
/// let faster = client.revise(Policy::per_second(80).build()?, PolicyChange::KeepTokens)?;
/// assert_eq!(faster.identity(), client.identity());
/// assert_eq!(faster.generation(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limit(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    identity: Arc<str>,
    digest: u64,
    inline: bool,
    current: Revision,
    past: Vec<Revision>,
    on_failure: Option<FailureRule>,
}

impl Limit {
    /// Name under which inline limits are reported.
    pub const INLINE: &'static str = "inline";

    /// Creates a limit with a name. The name and a key identify a bucket.
    ///
    /// # Errors
    /// If the name does not match `[a-z][a-z0-9_.-]*` or is longer than 128 bytes.
    pub fn named(name: &str, policy: Policy) -> Result<Self, LimitError> {
        let mut bytes = name.bytes();
        let valid = bytes.next().is_some_and(|b| b.is_ascii_lowercase())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
            && name.len() <= MAX_NAME_BYTES;
        if !valid {
            return Err(LimitError::Name(name.to_string()));
        }
        Ok(Self::new(name.into(), false, policy))
    }

    /// Creates a limit without a name. Its parameters are its identity, so it never changes.
    #[must_use]
    pub fn inline(policy: Policy) -> Self {
        // Fingerprints contain a space and names do not, so they never collide.
        Self::new(policy.fingerprint().into(), true, policy)
    }

    /// Creates an inline calendar quota. The name of its schedule is part of its identity.
    #[must_use]
    pub fn inline_on(schedule: &str, policy: Policy) -> Self {
        let identity = alloc::format!("{} {schedule}", policy.fingerprint());
        Self::new(identity.into(), true, policy)
    }

    fn new(identity: Arc<str>, inline: bool, policy: Policy) -> Self {
        let current = Revision { generation: 0, policy, change: PolicyChange::default() };
        let past = Vec::new();
        let digest = hash::digest(&identity);
        Self(Arc::new(Inner { identity, digest, inline, current, past, on_failure: None }))
    }

    /// Returns this limit with another policy, as the next generation.
    ///
    /// # Errors
    /// If the limit is inline, or has been revised 2^24 times.
    pub fn revise(&self, policy: Policy, change: PolicyChange) -> Result<Self, LimitError> {
        if self.0.inline {
            return Err(LimitError::Inline);
        }
        let generation = self.generation() + 1;
        if generation > MAX_GENERATION {
            return Err(LimitError::TooManyRevisions);
        }
        let mut past = self.0.past.clone();
        if past.len() == MAX_REVISIONS {
            past.remove(0);
        }
        past.push(self.0.current);
        let current = Revision { generation, policy, change };
        Ok(Self(Arc::new(Inner { identity: self.0.identity.clone(), current, past, ..*self.0 })))
    }

    /// Returns this limit with a failure rule of its own, or without one.
    ///
    /// The rule is part of neither identity nor policy: buckets, generation and history are
    /// unchanged, and revisions keep the rule.
    ///
    /// ```
    /// use tidegate::{FailureRule, Policy};
    /// use tidegate_core::Limit;
    /// let budget = Limit::named("budget", Policy::per_minute(100).build()?)?;
    /// assert_eq!(budget.failure_rule(), None);
    /// let strict = budget.on_failure(FailureRule::Closed);
    /// assert_eq!((&strict, strict.failure_rule()), (&budget, Some(FailureRule::Closed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_failure(&self, rule: impl Into<Option<FailureRule>>) -> Self {
        Self(Arc::new(Inner { on_failure: rule.into(), ..(*self.0).clone() }))
    }

    /// Returns how the limit is decided while the store does not respond; `None` uses the guard's
    /// default.
    #[must_use]
    pub fn failure_rule(&self) -> Option<FailureRule> {
        self.0.on_failure
    }

    /// Returns the identity as a shared string.
    #[must_use]
    pub fn shared_identity(&self) -> Arc<str> {
        self.0.identity.clone()
    }

    /// Returns the identity: the name, or the fingerprint of an inline policy.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Returns a 64-bit digest of the identity, for stores to hash. A caller who chooses inline
    /// policies can construct two with the same digest, which then share buckets. A store separates
    /// named from inline limits with a secret.
    #[must_use]
    #[inline]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// Returns the display name: [`Limit::INLINE`] for an inline policy.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.0.inline { Self::INLINE } else { &self.0.identity }
    }

    /// Returns whether the limit is inline, identified by its parameters.
    #[must_use]
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.0.inline
    }

    /// Returns the current policy.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.0.current.policy
    }

    /// Returns the number of policy changes so far.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u32 {
        self.0.current.generation
    }

    /// Returns how existing buckets were converted at the last policy change.
    #[must_use]
    pub fn change(&self) -> PolicyChange {
        self.0.current.change
    }

    /// Returns revision `generation` and all later ones, oldest first; `None` if it is no longer
    /// remembered or does not exist yet.
    #[must_use]
    pub fn revisions_since(&self, generation: u32) -> Option<impl Iterator<Item = &Revision>> {
        let all = || self.0.past.iter().chain(core::iter::once(&self.0.current));
        let index = all().position(|revision| revision.generation == generation)?;
        Some(all().skip(index))
    }
}

impl PartialEq for Limit {
    /// Limits are equal if they have the same identity and so share their buckets.
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Limit {}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(capacity: u64) -> Policy {
        Policy::per_second(1).capacity(capacity).build().unwrap()
    }

    #[test]
    fn invalid_limit_names_are_rejected() {
        for good in ["client", "a", "per-ip.v2", "org_1"] {
            assert!(Limit::named(good, policy(1)).is_ok(), "{good}");
        }
        for bad in ["", "Client", "1st", "a b", "ä", "a:b", &"x".repeat(129)] {
            assert!(matches!(Limit::named(bad, policy(1)), Err(LimitError::Name(_))), "{bad}");
        }
    }

    #[test]
    fn inline_limits_are_identified_by_their_parameters() {
        assert_eq!(Limit::inline(policy(3)), Limit::inline(policy(3)));
        assert_ne!(Limit::inline(policy(3)), Limit::inline(policy(4)));
        let quota = Policy::quota(9).unwrap();
        assert_ne!(Limit::inline_on("day:UTC", quota), Limit::inline_on("month:UTC", quota));
        assert_eq!(
            Limit::inline(policy(3)).revise(policy(4), PolicyChange::Reset).unwrap_err(),
            LimitError::Inline
        );
    }

    #[test]
    fn failure_rule_changes_nothing_else_and_survives_revisions() {
        let first = Limit::named("a", policy(1)).unwrap();
        let second = first.revise(policy(2), PolicyChange::KeepTokens).unwrap();
        let with_rule = second.on_failure(FailureRule::Open);
        assert_eq!((with_rule.identity(), with_rule.generation()), ("a", 1));
        assert_eq!(with_rule.revisions_since(0).unwrap().count(), 2);
        assert_eq!(with_rule.policy(), second.policy());
        let third = with_rule.revise(policy(3), PolicyChange::Reset).unwrap();
        assert_eq!(third.failure_rule(), Some(FailureRule::Open));
        let inline = Limit::inline(policy(1)).on_failure(FailureRule::Closed);
        assert_eq!(inline, Limit::inline(policy(1)));
        assert!(inline.is_inline());
    }

    #[test]
    fn number_of_remembered_revisions_is_bounded() {
        let mut limit = Limit::named("a", policy(1)).unwrap();
        for capacity in 2..400 {
            limit = limit.revise(policy(capacity), PolicyChange::KeepTokens).unwrap();
        }
        assert_eq!(limit.revisions_since(397).unwrap().count(), 2);
        assert!(limit.revisions_since(0).is_none());
        assert!(limit.revisions_since(399).is_none());
    }
}
