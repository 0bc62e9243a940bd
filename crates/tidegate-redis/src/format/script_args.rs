//! Script arguments of a policy and a cost, with the multiplications already done.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Policy, TokenBucket, Windows, ceil_millis};

use crate::error::RedisStoreError;
use crate::format::number::{MAX_COUNTED, MAX_NUMBER, Pair, put};

/// Arguments as decoded by the script.
pub(crate) type ScriptArgs = SmallVec<[u8; 112]>;

/// Maximum number of slots: larger counts could not be distinguished from instants in their sorted
/// set.
const MAX_SLOTS: u64 = 1 << 32;
/// Minimum time to live of a bucket.
const MIN_TTL: Duration = Duration::from_secs(60);

/// Encodes the arguments for `amount` tokens under a policy of this generation. `ttl` replaces the
/// default time to live of a bucket; the script extends it where a bucket would refill too early.
pub(crate) fn script_args(
    policy: &Policy,
    generation: u64,
    amount: u64,
    windows: Option<Windows>,
    ttl: Option<Duration>,
) -> Result<ScriptArgs, RedisStoreError> {
    let mut out = ScriptArgs::new();
    let ttl = entry_ttl(policy, ttl);
    match policy {
        Policy::Bucket(bucket) => {
            out.push(1);
            put(generation, &mut out);
            put(ttl, &mut out);
            out.push(match amount {
                0 => 0,
                _ if amount <= bucket.capacity() => 1,
                _ => 2,
            });
            put(u64::from(bucket.rate().tokens()) * 1_000, &mut out);
            for span in [
                bucket.time_to_full(),
                bucket.max_tat_distance(),
                bucket.span(amount),
                bucket.time_to_full_from_max_debt(),
            ] {
                Pair::span(span, bucket).put(&mut out);
            }
        }
        Policy::Quota(quota) => {
            out.push(2);
            let max = quota.amount() + quota.max_debt().min(MAX_COUNTED);
            put_counts(&mut out, generation, ttl, amount, quota.amount());
            put(max, &mut out);
            for bound in windows.map_or([0; 4], |windows| windows.bounds()) {
                out.extend(bound.to_le_bytes());
            }
        }
        Policy::Allowance(allowance) => {
            out.push(3);
            let all = allowance.amount();
            put_counts(&mut out, generation, ttl, amount, all);
            put(all * 2, &mut out);
        }
        Policy::Concurrency(limit) => {
            out.push(4);
            put_counts(&mut out, generation, ttl, amount, limit.slots());
            let lease = limit.lease().map_or(0, |lease| lease.as_nanos().div_ceil(1_000));
            put(u64::try_from(lease).unwrap_or(MAX_NUMBER).min(MAX_NUMBER), &mut out);
        }
        _ => return Err(RedisStoreError::InvalidReply),
    }
    Ok(out)
}

/// Default time to live of an unused bucket: twice the time to full, at least a minute.
fn time_to_live(bucket: &TokenBucket) -> Duration {
    let full = Duration::from_nanos(bucket.time_to_full().ceil());
    full.saturating_mul(2).max(MIN_TTL)
}

/// Returns the time to live of an entry in milliseconds, 0 for unlimited.
pub(crate) fn entry_ttl(policy: &Policy, ttl: Option<Duration>) -> u64 {
    match policy {
        Policy::Bucket(bucket) => millis(ttl.unwrap_or_else(|| time_to_live(bucket))),
        Policy::Quota(_) => millis(ttl.unwrap_or(MIN_TTL)),
        // An allowance does not refill, so it does not expire either.
        Policy::Allowance(_) => 0,
        _ => millis(MIN_TTL),
    }
}

fn put_counts(out: &mut ScriptArgs, generation: u64, ttl: u64, amount: u64, capacity: u64) {
    put(generation, out);
    put(ttl, out);
    put(amount.min(MAX_NUMBER), out);
    put(capacity, out);
}

/// Returns whether the script can count exactly what a policy allows.
pub(crate) fn is_countable(policy: &Policy) -> bool {
    let max = match policy {
        Policy::Bucket(_) => u64::MAX,
        Policy::Concurrency(_) => MAX_SLOTS,
        _ => MAX_COUNTED,
    };
    policy.capacity() <= max
}

fn millis(span: Duration) -> u64 {
    ceil_millis(span).min(MAX_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(rate: u64, capacity: u64) -> u64 {
        let policy = Policy::per_second(rate).capacity(capacity).build().unwrap();
        entry_ttl(&policy, None)
    }

    /// R190.
    #[test]
    fn ttl_is_twice_the_time_to_full_and_at_least_a_minute() {
        assert_eq!([ttl(1, 10), ttl(10, 100), ttl(10, 1)], [60_000; 3]);
        assert_eq!(ttl(1, 100), 200_000);
        let seven_per_minute = Policy::rate("7/min".parse().unwrap()).capacity(11).build().unwrap();
        assert_eq!(entry_ttl(&seven_per_minute, None), 188_572);
    }

    #[test]
    fn uncountable_policies_are_detected() {
        assert!(is_countable(&Policy::allowance(1 << 51).unwrap()));
        assert!(!is_countable(&Policy::allowance((1 << 51) + 1).unwrap()));
        assert!(!is_countable(&Policy::quota(1 << 52).unwrap()));
        assert!(is_countable(&Policy::concurrency(1 << 32, None).unwrap()));
        assert!(!is_countable(&Policy::concurrency((1 << 32) + 1, None).unwrap()));
        assert!(is_countable(&Policy::per_second(1).capacity(1 << 30).build().unwrap()));
    }
}
