//! What a provider says of a limit, heard by its meter.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::{Policy, Time};
use tidegate_providers::Reading;

use super::super::feedback::{Standing, Upward, correction};
use super::super::pace::Allowed;
use super::{Mark, Meter};

/// A shared store is not asked about its buckets more often than this.
const SHARED_PAUSE: Duration = Duration::from_millis(250);
/// What is left of a shorter window is out of date when it is heard of.
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);

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
