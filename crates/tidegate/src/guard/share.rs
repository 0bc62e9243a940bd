//! Shares: the part of a limit that one node may admit by itself.
//!
//! In the guard's own store, a limit and its share are different limits. A share is revised when
//! the number of nodes or the policy changes, so its buckets are converted and not reset. The
//! number of shares with such a history is bounded. A limit beyond the bound gets a share without
//! history: when the number of nodes changes, its buckets keep their fill ratio, because rate and
//! capacity are divided by the same number and the instant at which a bucket is full stays the
//! same; when the policy changes, they are reset.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::{Limit, Policy, PolicyChange, Rate, TokenBucket};

/// Maximum number of shares with a history.
const MAX_SHARES: usize = 1_024;
/// Maximum number of those for inline limits, so that callers who choose policies cannot use up the
/// room of named limits.
const MAX_INLINE_SHARES: usize = MAX_SHARES / 2;

/// The shares of all limits decided here so far, by the identity of the limit.
#[derive(Debug, Default)]
pub(super) struct Shares {
    known: RwLock<Known>,
    /// Hashers for the names of shares without history.
    name_hashers: [RandomState; 2],
}

#[derive(Debug, Default)]
struct Known {
    shares: HashMap<Arc<str>, Share>,
    /// Number of shares of inline limits.
    inline: usize,
}

impl Known {
    fn has_room_for(&self, limit: &Limit) -> bool {
        self.shares.len() < MAX_SHARES && (!limit.is_inline() || self.inline < MAX_INLINE_SHARES)
    }
}

#[derive(Clone, Debug)]
struct Share {
    /// Policy and generation of the limit that this is a share of.
    policy: Policy,
    generation: u32,
    nodes: NonZeroU32,
    limit: Limit,
}

impl Share {
    /// Whether this is the share of the limit in its current or a newer revision.
    fn is_current_for(&self, limit: &Limit, nodes: NonZeroU32) -> bool {
        let newer = self.generation > limit.generation();
        let same = self.generation == limit.generation() && self.policy == *limit.policy();
        self.nodes == nodes && (newer || same)
    }

    /// The share of the current limit. If the caller knows only an older policy, the newer one is
    /// divided. Every missed revision is applied in its own mode.
    fn revised(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Self> {
        let is_older = limit.generation() < self.generation;
        let policy = if is_older { self.policy } else { *limit.policy() };
        let generation = self.generation.max(limit.generation());
        let mut share = self.limit.clone();
        // Revisions that are no longer remembered are skipped.
        let missed = if is_older { None } else { limit.revisions_since(self.generation) };
        for revision in missed.into_iter().flatten().skip(1) {
            let policy = divide(revision.policy(), nodes).unwrap_or(*share.policy());
            share = share.revise(policy, revision.change()).ok()?;
        }
        let divided = divide(&policy, nodes)?;
        if *share.policy() != divided {
            share = share.revise(divided, PolicyChange::KeepTokens).ok()?;
        }
        Some(Self { policy, generation, nodes, limit: share })
    }
}

impl Shares {
    /// Returns this node's share of a limit; `None` if it cannot be represented.
    pub(super) fn get_or_create(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.shares.get(limit.identity()) {
            Some(share) if share.is_current_for(limit, nodes) => return Some(share.limit.clone()),
            None if !known.has_room_for(limit) => return self.without_history(limit, nodes),
            _ => {}
        }
        drop(known);
        self.create_or_revise(limit, nodes)
    }

    fn create_or_revise(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let share = match known.shares.get(limit.identity()) {
            Some(share) if share.is_current_for(limit, nodes) => return Some(share.limit.clone()),
            Some(share) => share.revised(limit, nodes)?,
            None if !known.has_room_for(limit) => return self.without_history(limit, nodes),
            None => {
                // Numbered, because neither a name nor a fingerprint is sure to fit into a name.
                let name = format!("share-{}", known.shares.len());
                let (policy, generation) = (*limit.policy(), limit.generation());
                let share = Limit::named(&name, divide(&policy, nodes)?).ok()?;
                known.inline += usize::from(limit.is_inline());
                Share { policy, generation, nodes, limit: share }
            }
        };
        let divided = share.limit.clone();
        known.shares.insert(limit.shared_identity(), share);
        Some(divided)
    }

    /// The share that a charge of this limit was counted on, in its current revision.
    pub(super) fn find_charged(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let share = known.shares.get(limit.identity()).cloned();
        drop(known);
        match share {
            Some(share) => self.get_or_create(limit, share.nodes).or(Some(share.limit)),
            None => self.find(limit, nodes),
        }
    }

    /// The share of a limit, if a decision can have used it.
    pub(super) fn find(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.shares.get(limit.identity()) {
            Some(share) => Some(share.limit.clone()),
            None if known.has_room_for(limit) => None,
            None => self.without_history(limit, nodes),
        }
    }

    /// A share whose name depends only on the limit and its policy, not on the number of nodes.
    fn without_history(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let identity = (limit.identity(), limit.policy().fingerprint());
        let [one, other] = self.name_hashers.each_ref().map(|hasher| hasher.hash_one(&identity));
        Limit::named(&format!("beyond-{one:016x}{other:016x}"), divide(limit.policy(), nodes)?).ok()
    }
}

/// Divides a policy among nodes: the rate exactly, integers rounded down, with at least one token
/// per node. `None` if the result is not a valid policy.
fn divide(policy: &Policy, nodes: NonZeroU32) -> Option<Policy> {
    let part = |total: u64| (total / u64::from(nodes.get())).max(1);
    match policy {
        Policy::Bucket(bucket) => divide_bucket(bucket, part(bucket.capacity()), nodes),
        Policy::Quota(quota) => Policy::quota(part(quota.amount())).ok(),
        Policy::Allowance(allowance) => Policy::allowance(part(allowance.amount())).ok(),
        Policy::Concurrency(limit) => Policy::concurrency(part(limit.slots()), limit.lease()).ok(),
        _ => None,
    }
}

fn divide_bucket(bucket: &TokenBucket, capacity: u64, nodes: NonZeroU32) -> Option<Policy> {
    let rate = bucket.rate();
    let period = Duration::from_nanos(rate.period()).checked_mul(nodes.get())?;
    let rate = Rate::per(rate.tokens().into(), period).ok()?;
    let debt = bucket.max_debt() / u64::from(nodes.get());
    let builder = Policy::rate(rate).capacity(capacity).max_debt(debt);
    builder.max_horizon(bucket.horizon()).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn limit(capacity: u64) -> Limit {
        Limit::named("a", Policy::per_second(7).capacity(capacity).build().unwrap()).unwrap()
    }

    #[test]
    fn rates_are_divided_exactly_and_numbers_rounded_down() {
        let policy = *limit(100).policy();
        let third = Policy::per(7, Duration::from_secs(3)).capacity(33).max_debt(33);
        assert_eq!(divide(&policy, nodes(3)), third.build().ok());
        assert_eq!(divide(&policy, nodes(1)), Some(policy));
        let tenth = divide(limit(3).policy(), nodes(10)).unwrap();
        assert_eq!(tenth.capacity(), 1, "each node has a token");
        for policy in [
            Policy::quota(10).unwrap(),
            Policy::allowance(10).unwrap(),
            Policy::concurrency(10, None).unwrap(),
        ] {
            assert_eq!(
                [1, 3, 50].map(|n| divide(&policy, nodes(n)).unwrap().capacity()),
                [10, 3, 1]
            );
        }
        let ahead = Policy::per_second(7).capacity(9).max_horizon(Duration::from_secs(5)).build();
        let third = divide(&ahead.unwrap(), nodes(3)).unwrap();
        assert_eq!(third.horizon(), Duration::from_secs(5), "the horizon is not divided");
        let lifetime = Policy::per(1, Duration::from_secs(1_500_000_000)).build().unwrap();
        assert_eq!(divide(&lifetime, nodes(3)), None, "beyond a hundred years");
    }

    #[test]
    fn a_share_is_revised_with_the_nodes_and_with_the_limit() {
        let (shares, first) = (Shares::default(), limit(100));
        let three = shares.get_or_create(&first, nodes(3)).unwrap();
        assert_eq!((three.policy().capacity(), three.generation()), (33, 0));
        let two = shares.get_or_create(&first, nodes(2)).unwrap();
        assert_eq!((&two, two.policy().capacity(), two.generation()), (&three, 50, 1));
        assert_eq!(shares.get_or_create(&first, nodes(2)).unwrap().generation(), 1);
        let policy = Policy::per_second(7).capacity(40).build().unwrap();
        let second = first.revise(policy, PolicyChange::Reset).unwrap();
        let revised = shares.get_or_create(&second, nodes(2)).unwrap();
        assert_eq!((revised.policy().capacity(), revised.generation()), (20, 2));
        assert_eq!(
            revised.revisions_since(2).unwrap().next().unwrap().change(),
            PolicyChange::Reset
        );
        let stale = shares.get_or_create(&first, nodes(2)).unwrap();
        assert_eq!(
            (stale.policy().capacity(), stale.generation()),
            (20, 2),
            "the newer policy applies"
        );
        assert_eq!(shares.get_or_create(&first, nodes(4)).unwrap().policy().capacity(), 10);
    }

    #[test]
    fn the_number_of_shares_is_bounded_with_room_for_named_limits() {
        let shares = Shares::default();
        let inline = |capacity| Limit::inline(*limit(capacity).policy());
        for capacity in 1..2_000 {
            assert!(shares.get_or_create(&inline(capacity), nodes(3)).is_some());
        }
        assert_eq!(shares.known.read().unwrap().shares.len(), MAX_INLINE_SHARES);
        assert!(!shares.get_or_create(&limit(100), nodes(3)).unwrap().is_inline());
        let (one, other) = (inline(1_501), inline(1_502));
        let share = shares.get_or_create(&one, nodes(3)).unwrap();
        assert_ne!(
            share,
            shares.get_or_create(&other, nodes(3)).unwrap(),
            "equal parameters, two limits"
        );
        let fifth = shares.get_or_create(&one, nodes(5)).unwrap();
        assert_eq!((&fifth, fifth.policy().capacity()), (&share, 300), "the same buckets");
        assert_eq!(shares.find_charged(&one, nodes(5)), Some(share));
        assert_eq!(shares.find_charged(&limit(7), nodes(3)).unwrap().name(), "share-512");
        let stranger = Limit::named("b", *limit(1).policy()).unwrap();
        assert_eq!(shares.find_charged(&stranger, nodes(3)), None, "not decided here yet");
    }

    /// A share that skipped a reset, because it was not used in between, was never reset.
    #[test]
    fn every_missed_revision_is_applied() {
        let (shares, first) = (Shares::default(), limit(100));
        assert_eq!(shares.get_or_create(&first, nodes(2)).unwrap().generation(), 0);
        let with = |capacity| *limit(capacity).policy();
        let reset = first.revise(with(50), PolicyChange::Reset).unwrap();
        let third = reset.revise(with(60), PolicyChange::Proportional).unwrap();
        let share = shares.get_or_create(&third, nodes(3)).unwrap();
        let history: Vec<_> = share
            .revisions_since(0)
            .unwrap()
            .map(|revision| (revision.policy().capacity(), revision.change()))
            .collect();
        let expected = [
            (50, PolicyChange::KeepTokens),
            (16, PolicyChange::Reset),
            (20, PolicyChange::Proportional),
        ];
        assert_eq!(history, expected);
        // The policy is the same as before, but the buckets were reset in between.
        let back = third.revise(with(90), PolicyChange::Reset).unwrap();
        let back = back.revise(with(60), PolicyChange::KeepTokens).unwrap();
        assert_eq!(shares.get_or_create(&back, nodes(3)).unwrap().generation(), 4);
    }
}
