//! Limits: a policy with a name. The name and the key identify a bucket; the parameters are a
//! generation that may change while buckets live.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::failure::FailureRule;
use crate::hash;
use crate::policy::{Policy, PolicyError};

/// The longest name of a limit, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// How many past revisions a limit remembers. A bucket that was last touched before the oldest
/// of them counts as empty: never in the caller's favour.
const MAX_REVISIONS: usize = 256;
/// Generations have 24 bits, so that they fit beside flags.
const MAX_GENERATION: u32 = (1 << 24) - 1;

/// Why a limit cannot be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A name outside of `[a-z][a-z0-9_.-]*` or longer than 128 bytes.
    #[error(
        "{0:?} is not a limit name: a lower-case letter, then letters, digits, _ . or -, at most 128"
    )]
    Name(String),
    /// An inline limit is its parameters: other parameters are another limit.
    #[error("an inline limit cannot be revised; name it")]
    Inline,
    /// Another policy has this name already.
    #[error(
        "there is a limit named {0:?} with another policy; reconfigure it, or take it as it is by Engine::find"
    )]
    Taken(String),
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A calendar quota without a schedule to take its windows from.
    #[error("a calendar quota needs a schedule; make the limit with one")]
    NoSchedule,
    /// A limit that has to stay a token bucket was to become something else.
    #[error(
        "the limit is a tier of an admission, which takes a token bucket: a capacity and a rate"
    )]
    NotABucket,
    /// More than 2^24 revisions.
    #[error("the limit has been revised too often; restart with its present policy")]
    TooManyRevisions,
}

/// What happens to the tokens of existing buckets when the policy of a limit changes.
///
/// A bucket that is full stays full under every mode. Quotas, allowances and concurrency keep
/// what was used, whatever the mode, except under [`Reset`](Self::Reset).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// Tokens stay, cut to the new capacity and rounded down.
    #[default]
    KeepTokens,
    /// The bucket stays filled to the same part of its capacity, rounded down.
    Proportional,
    /// Every bucket starts full.
    Reset,
}

/// One policy in the life of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    generation: u32,
    policy: Policy,
    change: Change,
}

impl Revision {
    /// The number of this revision; the first is 0.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// What the limit allows from this revision on.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What happened to existing buckets at this revision.
    #[must_use]
    pub const fn change(&self) -> Change {
        self.change
    }
}

/// A named policy, or a policy that is its own name. Cheap to clone.
///
/// ```
/// use tidegate::{Change, Policy};
/// use tidegate_core::Limit;
/// let client = Limit::named("client", Policy::per_second(50).build()?)?;
/// let faster = client.revise(Policy::per_second(80).build()?, Change::KeepTokens)?;
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
    /// The name under which inline limits are reported.
    pub const INLINE: &'static str = "inline";

    /// A limit with a name, which together with a key identifies a bucket.
    ///
    /// # Errors
    /// When the name is not `[a-z][a-z0-9_.-]*` or is longer than 128 bytes.
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

    /// A limit without a name: its parameters are its identity, and it never changes.
    #[must_use]
    pub fn inline(policy: Policy) -> Self {
        // Fingerprints hold a space and names do not, so the two never meet.
        Self::new(policy.fingerprint().into(), true, policy)
    }

    /// An inline calendar quota: the name of its schedule is part of its identity.
    #[must_use]
    pub fn inline_on(schedule: &str, policy: Policy) -> Self {
        let identity = alloc::format!("{} {schedule}", policy.fingerprint());
        Self::new(identity.into(), true, policy)
    }

    fn new(identity: Arc<str>, inline: bool, policy: Policy) -> Self {
        let current = Revision { generation: 0, policy, change: Change::default() };
        let past = Vec::new();
        let digest = hash::digest(&identity);
        Self(Arc::new(Inner { identity, digest, inline, current, past, on_failure: None }))
    }

    /// The same limit with another policy, one generation on.
    ///
    /// # Errors
    /// When the limit is inline, or has been revised 2^24 times.
    pub fn revise(&self, policy: Policy, change: Change) -> Result<Self, LimitError> {
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

    /// The same limit with a rule for the time in which its store does not answer, or with none of
    /// its own. The rule is no
    /// part of the identity or the policy: buckets, generation and history stay, and a revision
    /// keeps the rule.
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

    /// What is decided while the store does not answer; `None` leaves it to whoever decides then.
    #[must_use]
    pub fn failure_rule(&self) -> Option<FailureRule> {
        self.0.on_failure
    }

    /// The identity, shared.
    #[must_use]
    pub fn shared_identity(&self) -> Arc<str> {
        self.0.identity.clone()
    }

    /// What identifies the limit: its name, or the fingerprint of an inline policy.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// A number that stands for the identity, for stores to hash. Whoever chooses inline policies can
    /// choose two with the same number, which then share their buckets; a store keeps named limits
    /// apart from inline ones by a secret.
    #[must_use]
    #[inline]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// The name to show: [`Limit::INLINE`] for an inline policy.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.0.inline { Self::INLINE } else { &self.0.identity }
    }

    /// Whether the parameters are the identity.
    #[must_use]
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.0.inline
    }

    /// The policy now.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.0.current.policy
    }

    /// How often the policy has changed.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u32 {
        self.0.current.generation
    }

    /// The revisions after `generation`, oldest first, preceded by that one; `None` when it is
    /// not remembered any more, or lies ahead.
    #[must_use]
    pub fn since(&self, generation: u32) -> Option<impl Iterator<Item = &Revision>> {
        let all = || self.0.past.iter().chain(core::iter::once(&self.0.current));
        let index = all().position(|revision| revision.generation == generation)?;
        Some(all().skip(index))
    }
}

impl PartialEq for Limit {
    /// Equal identity: the same buckets.
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
            Limit::inline(policy(3)).revise(policy(4), Change::Reset).unwrap_err(),
            LimitError::Inline
        );
    }

    #[test]
    fn failure_rule_changes_nothing_else_and_survives_revisions() {
        let first = Limit::named("a", policy(1)).unwrap();
        let second = first.revise(policy(2), Change::KeepTokens).unwrap();
        let with_rule = second.on_failure(FailureRule::Open);
        assert_eq!((with_rule.identity(), with_rule.generation()), ("a", 1));
        assert_eq!(with_rule.since(0).unwrap().count(), 2);
        assert_eq!(with_rule.policy(), second.policy());
        let third = with_rule.revise(policy(3), Change::Reset).unwrap();
        assert_eq!(third.failure_rule(), Some(FailureRule::Open));
        let inline = Limit::inline(policy(1)).on_failure(FailureRule::Closed);
        assert_eq!(inline, Limit::inline(policy(1)));
        assert!(inline.is_inline());
    }

    #[test]
    fn number_of_remembered_revisions_is_bounded() {
        let mut limit = Limit::named("a", policy(1)).unwrap();
        for capacity in 2..400 {
            limit = limit.revise(policy(capacity), Change::KeepTokens).unwrap();
        }
        assert_eq!(limit.since(397).unwrap().count(), 2);
        assert!(limit.since(0).is_none());
        assert!(limit.since(399).is_none());
    }
}
