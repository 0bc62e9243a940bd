//! Encoding of policies by their parameters. Parameters that are not a valid policy are rejected.

use std::time::Duration;

use tidegate_core::{Policy, PolicyChange, Rate};

use super::bytes::Bytes;

const BUCKET: u8 = 1;
const QUOTA: u8 = 2;
const ALLOWANCE: u8 = 3;
const CONCURRENCY: u8 = 4;

pub(super) fn put(policy: &Policy, to: &mut Vec<u8>) {
    let mut numbers = |kind: u8, numbers: &[u64]| {
        to.push(kind);
        to.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    match policy {
        Policy::Bucket(bucket) => {
            let (rate, horizon) = (bucket.rate(), nanos(bucket.horizon()));
            let tokens = rate.tokens().into();
            let (capacity, max_debt) = (bucket.capacity(), bucket.max_debt());
            numbers(BUCKET, &[tokens, rate.period(), capacity, max_debt, horizon]);
        }
        Policy::Quota(quota) => numbers(QUOTA, &[quota.amount(), quota.max_debt()]),
        Policy::Allowance(allowance) => numbers(ALLOWANCE, &[allowance.amount()]),
        Policy::Concurrency(limit) => {
            // Zero stands for no lease, since a lease is longer than zero.
            numbers(CONCURRENCY, &[limit.slots(), limit.lease().map_or(0, nanos)]);
        }
        // A kind unknown to this version is rejected when it is read.
        _ => numbers(0, &[]),
    }
}

pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Policy> {
    match bytes.u8()? {
        BUCKET => {
            let (tokens, period) = (bytes.u64()?, Duration::from_nanos(bytes.u64()?));
            let policy = Policy::rate(Rate::per(tokens, period).ok()?);
            let policy = policy.capacity(bytes.u64()?).max_debt(bytes.u64()?);
            policy.max_horizon(Duration::from_nanos(bytes.u64()?)).build().ok()
        }
        QUOTA => {
            let (amount, max_debt) = (bytes.u64()?, bytes.u64()?);
            let policy = Policy::quota(amount).ok()?;
            let same = matches!(policy, Policy::Quota(quota) if quota.max_debt() == max_debt);
            same.then_some(policy)
        }
        ALLOWANCE => Policy::allowance(bytes.u64()?).ok(),
        CONCURRENCY => {
            let (slots, lease) = (bytes.u64()?, bytes.u64()?);
            Policy::concurrency(slots, (lease > 0).then(|| Duration::from_nanos(lease))).ok()
        }
        _ => None,
    }
}

pub(super) fn put_change(change: PolicyChange, to: &mut Vec<u8>) {
    to.push(match change {
        PolicyChange::KeepTokens => 1,
        PolicyChange::Proportional => 2,
        PolicyChange::Reset => 3,
        _ => 0,
    });
}

pub(super) fn read_change(bytes: &mut Bytes<'_>) -> Option<PolicyChange> {
    match bytes.u8()? {
        1 => Some(PolicyChange::KeepTokens),
        2 => Some(PolicyChange::Proportional),
        3 => Some(PolicyChange::Reset),
        _ => None,
    }
}

/// Does not saturate, since no span of a policy is longer than 100 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
