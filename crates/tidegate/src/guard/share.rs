//! Shares: what one of several nodes may admit of a limit by itself.
//!
//! A limit and its share are different limits to the guard's own store. The share of a limit is
//! revised when the number of nodes or the policy changes, so its buckets are converted and not
//! started anew. The number of shares kept for that is bounded; a limit beyond the bound has a
//! share all the same, but one without a past: its buckets start full when the number of nodes
//! changes.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::{Bucket, Change, Limit, Policy, Rate, Revision, Stamp};

/// How many shares are kept.
const MOST: usize = 1_024;
/// How many of them inline limits may have, so that callers who choose policies cannot use up
/// what the named ones need.
const MOST_INLINE: usize = MOST / 2;

/// The shares of the limits that were decided here so far, by the identity of the limit.
#[derive(Debug, Default)]
pub(super) struct Shares {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    shares: HashMap<Arc<str>, Share>,
    /// How many of them are of inline limits.
    inline: usize,
}

impl Known {
    fn has_room_for(&self, limit: &Limit) -> bool {
        self.shares.len() < MOST && (!limit.is_inline() || self.inline < MOST_INLINE)
    }
}

#[derive(Clone, Debug)]
struct Share {
    /// The limit's policy and generation of which this is the share.
    policy: Policy,
    generation: u32,
    nodes: NonZeroU32,
    limit: Limit,
}

impl Share {
    /// Whether this is the share of the limit as it is, or as it has become since.
    fn is_of(&self, limit: &Limit, nodes: NonZeroU32) -> bool {
        let newer = self.generation > limit.generation();
        let same = self.generation == limit.generation() && self.policy == *limit.policy();
        self.nodes == nodes && (newer || same)
    }

    /// The share of the limit as it is now; of a caller who knows only an older policy the newer
    /// one is divided.
    fn revised(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Self> {
        let (policy, generation, change) = if limit.generation() < self.generation {
            (self.policy, self.generation, Change::KeepTokens)
        } else if self.policy == *limit.policy() {
            (self.policy, limit.generation(), Change::KeepTokens)
        } else {
            let present = limit.since(limit.generation()).and_then(|mut all| all.next());
            let change = present.map_or(Change::KeepTokens, Revision::change);
            (*limit.policy(), limit.generation(), change)
        };
        let limit = self.limit.revise(divided(&policy, nodes)?, change).ok()?;
        Some(Self { policy, generation, nodes, limit })
    }
}

impl Shares {
    /// The share of a limit for one of so many nodes; `None` if it cannot be expressed.
    pub(super) fn of(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.shares.get(limit.identity()) {
            Some(share) if share.is_of(limit, nodes) => return Some(share.limit.clone()),
            None if !known.has_room_for(limit) => return without_past(limit, nodes),
            _ => {}
        }
        drop(known);
        self.put(limit, nodes)
    }

    fn put(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let share = match known.shares.get(limit.identity()) {
            Some(share) if share.is_of(limit, nodes) => return Some(share.limit.clone()),
            Some(share) => share.revised(limit, nodes)?,
            None if !known.has_room_for(limit) => return without_past(limit, nodes),
            None => {
                // Numbered, since neither a name nor a fingerprint is sure to fit into a name.
                let name = format!("share-{}", known.shares.len());
                let (policy, generation) = (*limit.policy(), limit.generation());
                let share = Limit::named(&name, divided(&policy, nodes)?).ok()?;
                known.inline += usize::from(limit.is_inline());
                Share { policy, generation, nodes, limit: share }
            }
        };
        let divided = share.limit.clone();
        known.shares.insert(limit.shared_identity(), share);
        Some(divided)
    }

    /// The share that a stamp was charged to, with the stamp as the guard's own store wrote it.
    pub(super) fn charged(&self, limit: &Limit, stamp: &Stamp) -> Option<(Limit, Stamp)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let nodes = known.shares.get(limit.identity()).map(|share| share.nodes);
        drop(known);
        match nodes {
            Some(nodes) => Some((self.of(limit, nodes)?, *stamp)),
            None => {
                let share = without_past(limit, NonZeroU32::new(stamp.generation)?)?;
                Some((share, Stamp { generation: 0, ..*stamp }))
            }
        }
    }

    /// The stamp of a charge to a share, from which [`charged`](Self::charged) finds that again:
    /// a share without a past has no generations, so there is room to note the number of nodes.
    pub(super) fn stamped(share: &Limit, nodes: NonZeroU32, stamp: Stamp) -> Stamp {
        if share.is_inline() { Stamp { generation: nodes.get(), ..stamp } } else { stamp }
    }

    /// The share of a limit, if it can have been decided here.
    pub(super) fn find(&self, limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.shares.get(limit.identity()) {
            Some(share) => Some(share.limit.clone()),
            None if known.has_room_for(limit) => None,
            None => without_past(limit, nodes),
        }
    }
}

/// A share whose identity is that of the limit and its own parameters.
fn without_past(limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
    Some(Limit::inline_on(limit.identity(), divided(limit.policy(), nodes)?))
}

/// A policy divided among nodes: the rate exactly, whole numbers rounded down, but at least one
/// token for each node. `None` where that is beyond what a policy can be.
fn divided(policy: &Policy, nodes: NonZeroU32) -> Option<Policy> {
    let part = |whole: u64| (whole / u64::from(nodes.get())).max(1);
    match policy {
        Policy::Bucket(bucket) => divided_bucket(bucket, part(bucket.capacity()), nodes),
        Policy::Quota(quota) => Policy::quota(part(quota.amount())).ok(),
        Policy::Allowance(allowance) => Policy::allowance(part(allowance.amount())).ok(),
        Policy::Concurrency(limit) => Policy::concurrency(part(limit.slots()), limit.lease()).ok(),
        _ => None,
    }
}

fn divided_bucket(bucket: &Bucket, capacity: u64, nodes: NonZeroU32) -> Option<Policy> {
    let rate = bucket.rate();
    let period = Duration::from_nanos(rate.period()).checked_mul(nodes.get())?;
    let rate = Rate::per(rate.tokens().into(), period).ok()?;
    let debt = bucket.max_debt() / u64::from(nodes.get());
    let builder = Policy::rate(rate).capacity(capacity).max_debt(debt);
    builder.max_horizon(bucket.horizon()).build().ok()
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Place, State};

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
        assert_eq!(divided(&policy, nodes(3)), third.build().ok());
        assert_eq!(divided(&policy, nodes(1)), Some(policy));
        let tenth = divided(limit(3).policy(), nodes(10)).unwrap();
        assert_eq!(tenth.capacity(), 1, "each node has a token");
        for policy in [
            Policy::quota(10).unwrap(),
            Policy::allowance(10).unwrap(),
            Policy::concurrency(10, None).unwrap(),
        ] {
            assert_eq!(
                [1, 3, 50].map(|n| divided(&policy, nodes(n)).unwrap().capacity()),
                [10, 3, 1]
            );
        }
        let lifetime = Policy::per(1, Duration::from_secs(1_500_000_000)).build().unwrap();
        assert_eq!(divided(&lifetime, nodes(3)), None, "beyond a hundred years");
    }

    #[test]
    fn a_share_is_revised_with_the_nodes_and_with_the_limit() {
        let (shares, first) = (Shares::default(), limit(100));
        let three = shares.of(&first, nodes(3)).unwrap();
        assert_eq!((three.policy().capacity(), three.generation()), (33, 0));
        let two = shares.of(&first, nodes(2)).unwrap();
        assert_eq!((&two, two.policy().capacity(), two.generation()), (&three, 50, 1));
        assert_eq!(shares.of(&first, nodes(2)).unwrap().generation(), 1);
        let policy = Policy::per_second(7).capacity(40).build().unwrap();
        let second = first.revise(policy, Change::Reset).unwrap();
        let revised = shares.of(&second, nodes(2)).unwrap();
        assert_eq!((revised.policy().capacity(), revised.generation()), (20, 2));
        assert_eq!(revised.since(2).unwrap().next().unwrap().change(), Change::Reset);
        let stale = shares.of(&first, nodes(2)).unwrap();
        assert_eq!(
            (stale.policy().capacity(), stale.generation()),
            (20, 2),
            "the newer one counts"
        );
        assert_eq!(shares.of(&first, nodes(4)).unwrap().policy().capacity(), 10);
    }

    #[test]
    fn the_number_of_shares_is_bounded_and_named_limits_keep_their_part() {
        let shares = Shares::default();
        let inline = |capacity| Limit::inline(*limit(capacity).policy());
        for capacity in 1..2_000 {
            assert!(shares.of(&inline(capacity), nodes(3)).is_some());
        }
        assert_eq!(shares.known.read().unwrap().shares.len(), MOST_INLINE);
        assert!(!shares.of(&limit(100), nodes(3)).unwrap().is_inline());
        let (one, other) = (inline(1_501), inline(1_502));
        let share = shares.of(&one, nodes(3)).unwrap();
        assert_ne!(share, shares.of(&other, nodes(3)).unwrap(), "equal parameters, two limits");
        let stamp = Stamp { bucket: 9, place: Place::Own, generation: 0, state: State::Fresh };
        let noted = Shares::stamped(&share, nodes(3), stamp);
        assert_eq!(shares.charged(&one, &noted), Some((share, stamp)));
    }
}
