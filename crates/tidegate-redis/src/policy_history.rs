//! The policy history of a limit, as shared by all nodes.
//!
//! Every process numbers the revisions of its limits itself, so these numbers mean nothing to
//! others. Stored entries carry a number from the server instead: higher than all others, and
//! stored with the policy in the history of the limit. The newest policy applies on all nodes: a
//! node with an older one adopts it as soon as it sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::{Limit, Policy, PolicyChange, Rate, Revision};

use crate::error::RedisStoreError;
use crate::format::names::FORMAT;
use crate::format::number::Reader;
use crate::format::script_args::is_countable;

/// Maximum number of policies in a history: the 256 previous ones that a limit remembers, and the
/// current one.
const MAX_REVISIONS: usize = 257;

/// The known policies of one limit. The numbers are ascending, the newest last.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHistory {
    /// The limit, with one revision per number.
    limit: Limit,
    numbers: Vec<u64>,
    /// The newest revision of the caller's own limit that has been synced.
    synced: u32,
    /// Numbers up to this one that are missing in the record are lost: their policies are unknown,
    /// and buckets under them count as empty.
    lost: u64,
}

impl PolicyHistory {
    /// Creates the history of an inline limit, which is its parameters and never changes.
    pub(crate) fn inline(limit: &Limit) -> Self {
        Self { limit: limit.clone(), numbers: vec![0], synced: 0, lost: 0 }
    }

    /// Reads a history from its record, and merges it with the previous one: a server may have lost
    /// part of the record, or all of it.
    pub(crate) fn read(
        identity: &str,
        synced: u32,
        record: &[u8],
        before: Option<&Self>,
    ) -> Result<Self, RedisStoreError> {
        let mut revisions: BTreeMap<u64, (PolicyChange, Policy)> = BTreeMap::new();
        if let Some(before) = before {
            let known = before.limit.revisions_since(0).into_iter().flatten();
            let known = known.map(|revision| (revision.change(), *revision.policy()));
            revisions.extend(before.numbers.iter().copied().zip(known));
        }
        let mut reader = Reader(record);
        while !reader.0.is_empty() {
            let (number, length) = (reader.number()?, reader.short()?);
            revisions.insert(number, parse(reader.bytes(length)?)?);
        }
        while revisions.len() > MAX_REVISIONS {
            revisions.pop_first();
        }
        let mut policies = revisions.values();
        let (_, first) = *policies.next().ok_or(RedisStoreError::InvalidReply)?;
        let mut limit = Limit::named(identity, first).map_err(|_| RedisStoreError::InvalidReply)?;
        for &(change, policy) in policies {
            limit = limit.revise(policy, change).map_err(|_| RedisStoreError::InvalidReply)?;
        }
        let lost = before.map_or(0, |before| before.lost);
        Ok(Self { limit, numbers: revisions.into_keys().collect(), synced, lost })
    }

    /// Marks missing numbers up to this one as lost.
    pub(crate) fn with_lost(mut self, number: u64) -> Self {
        self.lost = self.lost.max(number);
        self
    }

    /// Returns the limit under the current policy.
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the number of the current policy.
    pub(crate) fn generation(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(0)
    }

    /// Returns the generation as stored in receipts, which only compare it.
    #[expect(clippy::cast_possible_truncation, reason = "equal numbers have equal low halves")]
    pub(crate) fn stamp(&self) -> u32 {
        self.generation() as u32
    }

    /// Returns which revision of [`limit`](Self::limit) has this number; `u32::MAX` if it is
    /// unknown.
    pub(crate) fn index_of(&self, number: u64) -> u32 {
        let index = self.numbers.binary_search(&number).ok();
        index.and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX)
    }

    /// Returns the policy of this number.
    pub(crate) fn policy_of(&self, number: u64) -> Option<&Policy> {
        self.limit.revisions_since(self.index_of(number))?.next().map(Revision::policy)
    }

    /// Returns whether the number belongs to a newer policy than this history has and is not known
    /// as lost.
    pub(crate) fn is_behind(&self, number: u64) -> bool {
        number > self.generation() && number > self.lost
    }

    /// Returns the current policy in the format of a record.
    pub(crate) fn newest(&self) -> String {
        let change =
            self.limit.revisions_since(self.limit.generation()).and_then(|mut all| all.next());
        encode(self.limit.policy(), change.map(Revision::change).unwrap_or_default())
    }

    /// Returns the newest revision of the caller's limit that was synced.
    pub(crate) fn synced(&self) -> u32 {
        self.synced
    }
}

/// A revision in the format of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyRecord {
    pub(crate) text: String,
    /// Whether the owner revised the limit to an equal policy: that is a new generation, although
    /// the record already has the same policy.
    pub(crate) repeated: bool,
}

/// Returns the revisions of a limit after `synced`; only the newest if none has been synced.
pub(crate) fn revisions(limit: &Limit, synced: Option<u32>) -> Vec<PolicyRecord> {
    let from = synced.filter(|&generation| limit.revisions_since(generation).is_some());
    let first = from.unwrap_or(limit.generation());
    let known: Vec<&Revision> = limit.revisions_since(first).into_iter().flatten().collect();
    let new = |(index, revision): (usize, &&Revision)| {
        let before = index.checked_sub(1).and_then(|index| known.get(index));
        let repeated = before.is_some_and(|before| before.policy() == revision.policy());
        PolicyRecord { text: encode(revision.policy(), revision.change()), repeated }
    };
    let new_ones = known.iter().enumerate().skip(usize::from(from.is_some()));
    // Policies that the script cannot count exactly were never used here and are of no use to
    // others.
    new_ones.filter(|(_, revision)| is_countable(revision.policy())).map(new).collect()
}

/// Encodes a policy for a record: format, mode of the change, and the parameters.
fn encode(policy: &Policy, change: PolicyChange) -> String {
    let mode = match change {
        PolicyChange::Proportional => 'p',
        PolicyChange::Reset => 'r',
        _ => 'k',
    };
    let parameters = match policy {
        Policy::Bucket(bucket) => format!(
            "bucket {} {} {} {} {}",
            bucket.capacity(),
            bucket.rate().tokens(),
            bucket.rate().period(),
            bucket.max_debt(),
            bucket.horizon().as_nanos(),
        ),
        Policy::Quota(quota) => format!("quota {}", quota.amount()),
        Policy::Allowance(allowance) => format!("allowance {}", allowance.amount()),
        Policy::Concurrency(limit) => {
            let lease = limit.lease().map_or(0, |lease| lease.as_nanos());
            format!("concurrency {} {lease}", limit.slots())
        }
        // A future kind of policy needs a future format.
        _ => "unknown".to_owned(),
    };
    format!("{FORMAT}{mode} {parameters}")
}

fn parse(text: &[u8]) -> Result<(PolicyChange, Policy), RedisStoreError> {
    let text = std::str::from_utf8(text).map_err(|_| RedisStoreError::InvalidReply)?;
    let mut chars = text.chars();
    let format = chars.next().and_then(|c| c.to_digit(10)).ok_or(RedisStoreError::InvalidReply)?;
    if format != u32::from(FORMAT) {
        return Err(RedisStoreError::Format(u8::try_from(format).unwrap_or(u8::MAX)));
    }
    let change = match chars.next() {
        Some('k') => PolicyChange::KeepTokens,
        Some('p') => PolicyChange::Proportional,
        Some('r') => PolicyChange::Reset,
        _ => return Err(RedisStoreError::InvalidReply),
    };
    let mut words = chars.as_str().split_ascii_whitespace();
    let kind = words.next().ok_or(RedisStoreError::InvalidReply)?;
    let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
    let numbers = numbers.map_err(|_| RedisStoreError::InvalidReply)?;
    let policy = match (kind, numbers.as_slice()) {
        ("bucket", &[capacity, tokens, period, max_debt, horizon]) => {
            let rate = Rate::per(tokens, Duration::from_nanos(period));
            let rate = rate.map_err(|_| RedisStoreError::InvalidReply)?;
            let builder = Policy::rate(rate).capacity(capacity).max_debt(max_debt);
            builder.max_horizon(Duration::from_nanos(horizon)).build()
        }
        ("quota", &[amount]) => Policy::quota(amount),
        ("allowance", &[amount]) => Policy::allowance(amount),
        ("concurrency", &[slots, lease]) => {
            let lease = (lease > 0).then(|| Duration::from_nanos(lease));
            Policy::concurrency(slots, lease)
        }
        _ => return Err(RedisStoreError::InvalidReply),
    };
    let policy = policy.map_err(|_| RedisStoreError::InvalidReply)?;
    if is_countable(&policy) { Ok((change, policy)) } else { Err(RedisStoreError::InvalidReply) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::number::put;

    fn policies() -> Vec<Policy> {
        let rate = Policy::rate("999983/min".parse().unwrap());
        vec![
            rate.capacity(7).max_debt(0).max_horizon(Duration::ZERO).build().unwrap(),
            Policy::strict_window(5, Duration::from_secs(60), 5).unwrap(),
            Policy::quota(9).unwrap(),
            Policy::allowance(1 << 51).unwrap(),
            Policy::concurrency(3, None).unwrap(),
            Policy::concurrency(3, Some(Duration::from_millis(1_500))).unwrap(),
        ]
    }

    #[test]
    fn policies_round_trip_through_records() {
        for policy in policies() {
            for change in
                [PolicyChange::KeepTokens, PolicyChange::Proportional, PolicyChange::Reset]
            {
                let text = encode(&policy, change);
                assert_eq!(parse(text.as_bytes()).unwrap(), (change, policy), "{text}");
            }
        }
    }

    #[test]
    fn other_formats_are_refused() {
        assert!(matches!(parse(b"2k quota 9"), Err(RedisStoreError::Format(2))));
        for bad in [
            "",
            "1",
            "1k",
            "1x quota 9",
            "1k quota",
            "1k quota 0",
            "1k quota -1",
            "1k z 1",
            "1k quota 1 x",
        ] {
            assert!(matches!(parse(bad.as_bytes()), Err(RedisStoreError::InvalidReply)), "{bad}");
        }
    }

    #[test]
    fn newest_policy_of_a_record_applies() {
        let mut record = Vec::new();
        for (number, text) in [(900, "1k quota 3"), (700, "1k quota 2")] {
            put(number, &mut record);
            record.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
            record.extend(text.bytes());
        }
        let history = PolicyHistory::read("a", 0, &record, None).unwrap();
        assert_eq!((history.generation(), history.limit().policy().capacity()), (900, 3));
        assert_eq!(history.policy_of(700).unwrap().capacity(), 2);
        assert_eq!((history.index_of(700), history.index_of(800)), (0, u32::MAX));
        assert!(history.policy_of(800).is_none());
        assert!(history.is_behind(901));
        // The record lost its newest entry: known policies stay known, unknown ones are given up.
        let after = PolicyHistory::read("a", 0, &record[20..], Some(&history)).unwrap();
        assert_eq!(after.generation(), 900);
        assert_eq!(
            PolicyHistory::read("a", 0, &[], Some(&history)).unwrap().policy_of(700),
            history.policy_of(700)
        );
        assert!(!history.clone().with_lost(950).is_behind(950));
        assert!(history.with_lost(950).is_behind(951));
    }
}
