//! Limit feedback: what a provider reports of a limit corrects our bucket of it.
//!
//! The provider's bucket holds a minute's worth, ours a second's: ours is for spacing, theirs is
//! the truth. As long as theirs holds more than a call can cost, nothing is refused, so ours is
//! lowered only where theirs is nearly empty, as when others use the same key. Where theirs holds
//! more than an eighth although callers wait, there is something to spare, stored from before or
//! because our estimates are too high, and ours is topped up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::{Policy, Time};
use tidegate_providers::Reading;

use super::super::pace::Allowed;
use super::{Mark, Meter};

/// A shared store is not asked about its buckets more often than this.
const SHARED_PAUSE: Duration = Duration::from_millis(250);
/// What is left of a shorter window is out of date when it is heard of.
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);
/// A provider's bucket is drawn on until this part of it is left, or some of the largest calls.
const SPARE: u64 = 8;

impl Meter {
    /// What the provider allows and has left, as told to a call that left at `mark`, `ago`.
    /// `then` is called if the bucket was given something.
    pub(in crate::rate_limit) fn hear(
        self: &Arc<Self>,
        reading: &Reading,
        (mark, ago): (Mark, Duration),
        now: Time,
        then: impl FnOnce() + Send + 'static,
    ) {
        if let Some(amount) = reading.limit {
            let allowed = Allowed { amount, window: reading.window };
            let news = self.pace.as_ref().is_some_and(|pace| pace.allow(allowed));
            if news {
                self.keep_pace(now);
            }
        }
        let Some(remaining) = reading.remaining else { return };
        let Some(allowed) = self.allowed() else { return };
        let largest = self.largest.load(Ordering::Relaxed);
        let tight = remaining <= largest.saturating_mul(2);
        if allowed.window < SHORTEST_WINDOW || !(tight || self.is_due(now)) {
            return;
        }
        let charged = self.charged.load(Ordering::Relaxed).saturating_sub(mark.0);
        let heard = Heard {
            allowed,
            remaining,
            charged_since: u64::try_from(charged).unwrap_or(0),
            refilled_since: allowed.in_span(ago),
            largest,
        };
        let meter = self.clone();
        self.bucket.store().detach(async move {
            if meter.compare(heard).await < 0 {
                then();
            }
        });
    }

    /// Whether a shared store may be asked again.
    fn is_due(&self, now: Time) -> bool {
        if !self.shared {
            return true;
        }
        let last = self.compared.load(Ordering::Relaxed);
        let due = now.since(Time::from_nanos(last)) >= SHARED_PAUSE || last == 0;
        let (order, now) = (Ordering::Relaxed, now.as_nanos());
        due && self.compared.compare_exchange(last, now, order, order).is_ok()
    }

    /// Brings the bucket in line with what was heard, and tells by how much.
    async fn compare(&self, heard: Heard) -> i64 {
        let limiter = self.bucket.limiter();
        let Policy::Bucket(policy) = limiter.policy() else { return 0 };
        let Ok(decision) = limiter.peek(self.bucket.key()).cost(0).await else { return 0 };
        let Some(reset) = decision.outcomes().first().and_then(|outcome| outcome.reset) else {
            return 0;
        };
        let rate = policy.rate();
        let missing = reset.as_nanos() * u128::from(rate.tokens()) / u128::from(rate.period());
        let level = i128::from(policy.capacity()) - i128::try_from(missing).unwrap_or(i128::MAX);
        let delta = correction(&Standing {
            level,
            capacity: policy.capacity(),
            limit: heard.allowed.amount,
            remaining: heard.remaining,
            charged_since: heard.charged_since,
            refilled_since: heard.refilled_since,
            largest: heard.largest,
            upward: self.upward(),
        });
        if delta != 0 {
            let settled = limiter.settle(self.bucket.key(), delta, None).await;
            if let Err(error) = settled {
                tracing::debug!(limit = limiter.limit().name(), %error, "not corrected");
                return 0;
            }
        }
        delta
    }

    /// Estimates of tokens can be too high, counts of calls cannot.
    const fn upward(&self) -> Upward {
        if self.is_of_tokens() { Upward::Yes } else { Upward::No }
    }
}

/// What was heard of a limit.
#[derive(Clone, Copy, Debug)]
struct Heard {
    allowed: Allowed,
    remaining: u64,
    charged_since: u64,
    refilled_since: u64,
    largest: u64,
}

/// How a limit stands, here and there.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// What our bucket holds; below zero it is in debt.
    level: i128,
    /// What it can hold.
    capacity: u64,
    /// What the provider allows in a window.
    limit: u64,
    /// What the provider had left when it answered.
    remaining: u64,
    /// What was charged here since the call left that was answered, and what the provider's bucket
    /// was given in that time.
    charged_since: u64,
    refilled_since: u64,
    /// The largest charge of late.
    largest: u64,
    /// Whether ours may be topped up: estimates can be wrong, counts of calls cannot.
    upward: Upward,
}

/// Whether a bucket may be topped up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upward {
    Yes,
    No,
}

/// By how much our bucket is to be corrected: above zero it is charged, below zero it is given.
/// Zero if it is not worth the trouble.
fn correction(standing: &Standing) -> i64 {
    // Nobody knows whether the answer was written before or after the calls that left since.
    let unseen = standing.charged_since.saturating_sub(standing.refilled_since);
    let left = i128::from(standing.remaining) - i128::from(unseen);
    let reserve = i128::from(standing.largest.min(standing.limit / 2));
    let most = left - reserve;
    let spare = i128::from((standing.limit / SPARE).max(standing.largest.saturating_mul(4)));
    let least = (left - spare).min(i128::from(standing.capacity));
    let delta = if standing.level > most {
        standing.level - most
    } else if standing.upward == Upward::Yes && standing.level < least {
        standing.level - least
    } else {
        0
    };
    let worth = i128::from((standing.capacity / 50).max(1));
    if delta.abs() < worth { 0 } else { i64::try_from(delta).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 90,000 tokens a minute, 1,500 a second.
    fn tokens(level: i128, remaining: u64) -> Standing {
        Standing {
            level,
            capacity: 1_500,
            limit: 90_000,
            remaining,
            charged_since: 0,
            refilled_since: 0,
            largest: 1_000,
            upward: Upward::Yes,
        }
    }

    #[test]
    fn a_provider_that_has_enough_is_not_argued_with() {
        for remaining in [2_500, 6_000, 10_000] {
            assert_eq!(correction(&tokens(1_500, remaining)), 0, "{remaining}");
            assert_eq!(correction(&tokens(-500, remaining)), 0, "{remaining}");
        }
    }

    #[test]
    fn what_others_have_used_is_waited_for() {
        assert_eq!(correction(&tokens(1_500, 2_000)), 500, "down to 1,000: one call may go");
        assert_eq!(correction(&tokens(0, 0)), 1_000, "into debt, until there is enough for a call");
        assert_eq!(correction(&tokens(-1_000, 0)), 0, "once, not with every answer");
    }

    #[test]
    fn estimates_that_were_too_high_are_given_back() {
        assert_eq!(correction(&tokens(-3_000, 80_000)), -4_500);
        assert_eq!(correction(&tokens(0, 12_250)), -1_000);
        let counted = Standing { upward: Upward::No, ..tokens(-3_000, 80_000) };
        assert_eq!(correction(&counted), 0);
    }

    #[test]
    fn calls_in_flight_are_allowed_for() {
        let in_flight = Standing { charged_since: 5_000, ..tokens(1_500, 7_000) };
        assert_eq!(correction(&in_flight), 500);
        let refilled = Standing { refilled_since: 4_900, ..in_flight };
        assert_eq!(correction(&refilled), 0);
    }

    #[test]
    fn trifles_are_left_alone() {
        assert_eq!(correction(&tokens(1_500, 2_490)), 0);
    }
}
