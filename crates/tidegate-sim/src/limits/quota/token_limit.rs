//! A limit of tokens per minute: a bucket, and optional slices.

use super::bucket::Bucket;
use super::window::Slices;
use super::{LimitStatus, Wait};
use crate::calendar::Now;

/// A limit of tokens per minute.
#[derive(Clone, Debug)]
pub(crate) struct TokenLimit {
    bucket: Bucket,
    slices: Option<Slices>,
}

impl TokenLimit {
    /// Creates a full bucket, with slices of `slice` nanoseconds if given.
    pub(crate) fn new(per_minute: u64, slice: Option<u64>, phase: u64) -> Self {
        Self {
            bucket: Bucket::new(per_minute),
            slices: slice.map(|length| Slices::new(per_minute, length, phase)),
        }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        self.bucket.refill(now.elapsed);
        if let Some(slices) = &mut self.slices {
            slices.advance(now);
        }
    }

    /// Returns the time until `cost` fits both the bucket and the slice.
    pub(crate) fn wait(&self, cost: u64) -> Wait {
        let slice = self.slices.as_ref().map_or(Wait::Now, |slices| slices.wait(cost));
        self.bucket.wait(cost).max(slice)
    }

    pub(crate) fn take(&mut self, cost: u64) {
        self.bucket.take(cost);
        if let Some(slices) = &mut self.slices {
            slices.take(cost);
        }
    }

    /// Corrects a charge in the bucket; the slice does not change.
    pub(crate) fn settle(&mut self, from: u64, to: u64) {
        self.bucket.settle(from, to);
    }

    /// Refunds a call that was charged at `taken`, in bucket and slice.
    pub(crate) fn refund(&mut self, taken: Now, cost: u64) {
        self.bucket.refund(cost);
        if let Some(slices) = &mut self.slices {
            slices.refund(taken, cost);
        }
    }

    /// Returns the status per minute, which is what is reported.
    pub(crate) fn limit_status(&self) -> LimitStatus {
        self.bucket.limit_status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::SECOND;

    fn at(elapsed: u64) -> Now {
        Now { elapsed, wall: elapsed }
    }

    /// 600 tokens per minute, ten in each second.
    fn sliced() -> TokenLimit {
        let mut limit = TokenLimit::new(600, Some(SECOND), SECOND / 4);
        limit.advance(at(0));
        limit
    }

    #[test]
    fn slice_allows_its_share_of_tokens() {
        let mut limit = sliced();
        limit.take(7);
        assert_eq!(limit.wait(3), Wait::Now);
        assert_eq!(limit.wait(4), Wait::For(3 * SECOND / 4));
        assert_eq!(limit.wait(0), Wait::Now);
        assert_eq!(limit.limit_status().remaining, 593, "the limit per minute is reported");
        limit.advance(at(3 * SECOND / 4));
        assert_eq!(limit.wait(4), Wait::Now);
    }

    #[test]
    fn oversized_call_needs_an_unused_slice() {
        let mut limit = sliced();
        assert_eq!(limit.wait(25), Wait::Now);
        limit.take(25);
        assert_eq!(limit.wait(1), Wait::For(3 * SECOND / 4));
        limit.advance(at(3 * SECOND / 4));
        limit.take(1);
        assert_eq!(limit.wait(25), Wait::For(SECOND));
        assert_eq!(limit.wait(601), Wait::Never, "the limit per minute still applies");
    }

    #[test]
    fn longer_wait_wins() {
        let mut limit = sliced();
        limit.take(600);
        assert_eq!(limit.wait(1), Wait::For(3 * SECOND / 4));
        assert_eq!(limit.wait(60), Wait::For(6 * SECOND));
    }

    #[test]
    fn refund_changes_the_slice_but_settlement_does_not() {
        let mut limit = sliced();
        limit.take(10);
        limit.settle(10, 2);
        assert_eq!(
            (limit.limit_status().remaining, limit.wait(1)),
            (598, Wait::For(3 * SECOND / 4))
        );
        limit.refund(at(0), 10);
        assert_eq!((limit.limit_status().remaining, limit.wait(10)), (600, Wait::Now));
    }
}
