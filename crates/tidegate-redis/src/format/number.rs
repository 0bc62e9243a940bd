//! Numbers of the script: integers in doubles, never above 2^53.

use tidegate_core::{ExactTime, Now, Time, TokenBucket, WallTime};

use crate::error::RedisStoreError;

/// Maximum span and count: far beyond any policy, and still exact.
pub(crate) const MAX_NUMBER: u64 = 1 << 52;

/// Maximum instant, in microseconds since the epoch: in the year 2255.
const MAX_INSTANT: u64 = (1 << 53) - 1;

/// Maximum quota, allowance or number of slots: doubled by debt, it is still exact.
pub(crate) const MAX_COUNTED: u64 = 1 << 51;

/// Appends a number to a message.
pub(crate) fn put(number: u64, into: &mut impl Extend<u8>) {
    // Exact: every number that is sent is below 2^53.
    into.extend((number as f64).to_le_bytes());
}

/// Appends a length-prefixed text.
pub(crate) fn put_text(text: &str, into: &mut impl Extend<u8>) {
    into.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    into.extend(text.bytes());
}

/// An instant or span as whole microseconds and a remainder in units of 1/(1000 N) of a
/// microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) us: u64,
    pub(crate) rest: u64,
}

impl Pair {
    /// Encodes a span in the units of `bucket`'s rate.
    pub(crate) fn span(value: ExactTime, bucket: &TokenBucket) -> Self {
        Self::of(value, bucket, MAX_NUMBER)
    }

    /// Encodes an instant in the units of `bucket`'s rate.
    pub(crate) fn instant(value: ExactTime, bucket: &TokenBucket) -> Self {
        Self::of(value, bucket, MAX_INSTANT)
    }

    fn of(value: ExactTime, bucket: &TokenBucket, max: u64) -> Self {
        let us = value.ns / 1_000;
        if us >= max {
            return Self { us: max, rest: 0 };
        }
        let n = u64::from(bucket.rate().tokens());
        Self { us, rest: value.ns % 1_000 * n + u64::from(value.part) }
    }

    /// Returns the exact value under `bucket`'s rate.
    pub(crate) fn exact(self, bucket: &TokenBucket) -> ExactTime {
        let n = u64::from(bucket.rate().tokens());
        let ns = self.us.saturating_mul(1_000).saturating_add(self.rest / n);
        // The remainder of a division by a 32-bit number.
        #[expect(clippy::cast_possible_truncation)]
        ExactTime { ns, part: (self.rest % n) as u32 }
    }

    pub(crate) fn put(self, into: &mut impl Extend<u8>) {
        put(self.us, into);
        put(self.rest, into);
    }
}

/// Appends an instant as whole microseconds and nanoseconds.
pub(crate) fn put_time(time: Time, into: &mut impl Extend<u8>) {
    put(time.as_nanos() / 1_000, into);
    put(time.as_nanos() % 1_000, into);
}

/// Converts the time of the server, whose wall clock is the same clock.
pub(crate) fn server_time(us: u64) -> Now {
    let nanos = us.saturating_mul(1_000);
    Now { time: Time::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

/// Reads numbers from the front of a reply.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, RedisStoreError> {
        let (&first, rest) = self.0.split_first().ok_or(RedisStoreError::InvalidReply)?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads a non-negative integer.
    pub(crate) fn number(&mut self) -> Result<u64, RedisStoreError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(RedisStoreError::InvalidReply)?;
        self.0 = rest;
        let number = f64::from_le_bytes(*head);
        if !(0.0..=(1_u64 << 53) as f64).contains(&number) || number.fract() != 0.0 {
            return Err(RedisStoreError::InvalidReply);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked")]
        Ok(number as u64)
    }

    pub(crate) fn short(&mut self) -> Result<usize, RedisStoreError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(RedisStoreError::InvalidReply)?;
        self.0 = rest;
        Ok(usize::from(u16::from_le_bytes(*head)))
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], RedisStoreError> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(RedisStoreError::InvalidReply)?;
        self.0 = rest;
        Ok(head)
    }

    /// Reads whole microseconds and nanoseconds.
    pub(crate) fn time(&mut self) -> Result<Time, RedisStoreError> {
        let (us, ns) = (self.number()?, self.number()?);
        Ok(Time::from_nanos(us.saturating_mul(1_000).saturating_add(ns)))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Policy;

    use super::*;

    #[test]
    fn pairs_are_exact_for_an_awkward_rate() {
        let policy = Policy::rate("999983/min".parse().unwrap()).capacity(7).build().unwrap();
        let Policy::Bucket(bucket) = policy else { panic!("a bucket") };
        for value in [
            ExactTime { ns: 1_699_920_000_123_456_789, part: 999_982 },
            ExactTime { ns: 999, part: 0 },
            ExactTime::ZERO,
        ] {
            let pair = Pair::instant(value, &bucket);
            assert!(pair.rest < 1_000 * 999_983);
            assert_eq!(pair.exact(&bucket), value);
        }
    }

    #[test]
    fn only_whole_numbers_are_accepted() {
        let mut bytes = Vec::new();
        put(MAX_NUMBER, &mut bytes);
        assert_eq!(Reader(&bytes).number().unwrap(), MAX_NUMBER);
        assert!(Reader(&bytes[1..]).number().is_err());
        for bad in [0.5_f64, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(Reader(&bad.to_le_bytes()).number().is_err(), "{bad}");
        }
    }
}
