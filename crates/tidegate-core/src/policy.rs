//! Policies: the parameters of a limit. Valid by construction and immutable.

pub(crate) mod bucket;
pub(crate) mod counter;
pub(crate) mod decimal;
pub(crate) mod exact;
pub(crate) mod rate;
pub(crate) mod wide;

use alloc::string::String;
use core::fmt::Write as _;
use core::time::Duration;

use crate::policy::bucket::TokenBucket;
use crate::policy::counter::{Allowance, Concurrency, Quota};
use crate::policy::rate::{Rate, RateError};
use crate::time::MAX_SPAN;

/// Default for how far ahead a reservation may start.
const DEFAULT_HORIZON: Duration = HOUR;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Error returned for an invalid policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The capacity is zero.
    #[error("Rate limit capacity must be >= 1")]
    Capacity,
    /// The capacity is not a whole number.
    #[error(
        "Rate limit capacity must be a whole number; to limit in fractions, count smaller units: a \
         capacity of 5, 2 per second and a cost of 2 are 2.5, 1 per second and a cost of 1"
    )]
    FractionalCapacity,
    /// The rate is invalid.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// Refill time, debt and horizon add up to more than 100 years.
    #[error("the time to refill capacity and debt, plus the horizon, must be at most 100 years")]
    TooLong,
    /// The burst of a strict window is not between 1 and its number of tokens.
    #[error("the burst of a strict window must be between 1 and its number of tokens")]
    Burst,
    /// The calendar quota is zero.
    #[error("a calendar quota must be >= 1")]
    Quota,
    /// The allowance is zero.
    #[error("an allowance must be >= 1")]
    Allowance,
    /// The concurrency limit is zero.
    #[error("a concurrency limit must be >= 1")]
    Slots,
    /// The lease is zero or longer than 100 years.
    #[error("a lease must be longer than zero and at most 100 years")]
    Lease,
    /// The policy is not a token bucket, where only a token bucket is supported.
    #[error("the policy must be a token bucket with a capacity and a rate")]
    NotABucket,
}

/// Parameters of a limit.
///
/// ```
/// use core::time::Duration;
/// use tidegate::Policy;
/// let api = Policy::per_second(100).burst(200).build()?;
/// let slow = Policy::per(1, Duration::from_secs(10)).build()?;
/// let upload = Policy::allowance(1_000)?;
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Token bucket: tokens refill at a rate, up to a capacity.
    Bucket(TokenBucket),
    /// Calendar quota: an amount per calendar window.
    Quota(Quota),
    /// Allowance: an amount in total, without refill.
    Allowance(Allowance),
    /// Concurrency limit: a number of slots in use at the same time.
    Concurrency(Concurrency),
}

impl Policy {
    /// `tokens` per second. The default [burst](PolicyBuilder::burst) is all of them.
    ///
    /// ```
    /// use tidegate::Policy;
    /// assert_eq!(Policy::per_second(100).build()?.capacity(), 100);
    /// assert_eq!(Policy::per_second(100).burst(200).build()?.capacity(), 200);
    /// # Ok::<(), tidegate::PolicyError>(())
    /// ```
    pub fn per_second(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per_second(tokens))
    }

    /// `tokens` per minute. The default [burst](PolicyBuilder::burst) is one second's worth (a
    /// 60th), at least 1.
    ///
    /// ```
    /// use tidegate::Policy;
    /// assert_eq!(Policy::per_minute(600).build()?.capacity(), 10);
    /// assert_eq!(Policy::per_minute(600).burst(600).build()?.capacity(), 600);
    /// # Ok::<(), tidegate::PolicyError>(())
    /// ```
    pub fn per_minute(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per_minute(tokens))
    }

    /// `tokens` per hour. The default [burst](PolicyBuilder::burst) is one second's worth (a
    /// 3,600th), at least 1.
    pub fn per_hour(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, HOUR))
    }

    /// `tokens` per 24 hours. The default [burst](PolicyBuilder::burst) is one second's worth (an
    /// 86,400th), at least 1. For calendar days, use a [quota](Self::quota).
    pub fn per_day(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, DAY))
    }

    /// `tokens` per `period`. The default [burst](PolicyBuilder::burst) is one second's worth, at
    /// least 1.
    pub fn per(tokens: u64, period: Duration) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, period))
    }

    /// Tokens at `rate`. The default [burst](PolicyBuilder::burst) is one second's worth, at least
    /// 1.
    pub fn rate(rate: Rate) -> PolicyBuilder {
        PolicyBuilder::new(Ok(rate))
    }

    /// At most `tokens` in any closed window of length `window`, wherever it starts.
    ///
    /// This is a bucket of capacity `burst` that refills `tokens - burst` per window, so a full
    /// bucket and the refill of one window add up to `tokens`. A smaller burst gives a higher
    /// sustained rate.
    ///
    /// # Errors
    /// If `burst` is not between 1 and `tokens`, or the window is invalid.
    pub fn strict_window(tokens: u64, window: Duration, burst: u64) -> Result<Self, PolicyError> {
        if burst < 1 || burst > tokens {
            return Err(PolicyError::Burst);
        }
        let rate = if burst == tokens {
            // Nothing may refill within the closed window: the next token comes a nanosecond later.
            Rate::per(1, window.saturating_add(Duration::from_nanos(1)))?
        } else {
            Rate::per(tokens - burst, window)?
        };
        PolicyBuilder::new(Ok(rate)).capacity(burst).build()
    }

    /// `amount` per calendar window. Each charge brings the windows with it.
    ///
    /// # Errors
    /// If `amount` is zero.
    pub fn quota(amount: u64) -> Result<Self, PolicyError> {
        Quota::new(amount, None).map(Self::Quota)
    }

    /// `amount` in total, until the key is reset.
    ///
    /// # Errors
    /// If `amount` is zero.
    pub fn allowance(amount: u64) -> Result<Self, PolicyError> {
        Allowance::new(amount).map(Self::Allowance)
    }

    /// At most `slots` at the same time. A slot is freed when it is released, or when `lease` has
    /// passed without a renewal.
    ///
    /// # Errors
    /// If `slots` is zero, or the lease is zero or longer than 100 years.
    pub fn concurrency(slots: u64, lease: Option<Duration>) -> Result<Self, PolicyError> {
        Concurrency::new(slots, lease).map(Self::Concurrency)
    }

    /// Returns the maximum that one charge can ever take: capacity, quota, allowance or slots.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.capacity(),
            Self::Quota(quota) => quota.amount(),
            Self::Allowance(allowance) => allowance.amount(),
            Self::Concurrency(concurrency) => concurrency.slots(),
        }
    }

    /// Returns how far ahead a reservation may start. Only token buckets set a bound of their own.
    #[must_use]
    pub const fn horizon(&self) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.horizon(),
            Self::Quota(_) | Self::Allowance(_) | Self::Concurrency(_) => MAX_SPAN,
        }
    }

    /// Returns a text that is equal for two policies if and only if the policies are equal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = match self {
            Self::Bucket(bucket) => write!(
                text,
                "bucket {} {} {} {}",
                bucket.capacity(),
                bucket.rate(),
                bucket.max_debt(),
                bucket.horizon().as_nanos()
            ),
            Self::Quota(quota) => write!(text, "quota {} {}", quota.amount(), quota.max_debt()),
            Self::Allowance(allowance) => write!(text, "allowance {}", allowance.amount()),
            Self::Concurrency(limit) => {
                let lease = limit.lease().map_or(0, |lease| lease.as_nanos());
                write!(text, "concurrency {} {lease}", limit.slots())
            }
        };
        text
    }
}

/// Builds a token bucket policy. Errors are reported by [`build`](Self::build).
#[derive(Clone, Copy, Debug)]
#[must_use = "call `build` to create the policy"]
pub struct PolicyBuilder {
    rate: Result<Rate, RateError>,
    capacity: Option<u64>,
    max_debt: Option<u64>,
    horizon: Duration,
}

impl PolicyBuilder {
    fn new(rate: Result<Rate, RateError>) -> Self {
        Self { rate, capacity: None, max_debt: None, horizon: DEFAULT_HORIZON }
    }

    /// Maximum number of tokens that can be spent at once after a pause. Default: one second's
    /// worth, at least 1.
    pub fn burst(self, tokens: u64) -> Self {
        self.capacity(tokens)
    }

    /// Number of tokens in a full bucket. Another name for the [burst](Self::burst), as used in
    /// configuration files.
    pub fn capacity(mut self, tokens: u64) -> Self {
        self.capacity = Some(tokens);
        self
    }

    /// Maximum number of tokens below zero that a settlement may charge. Default: the capacity.
    pub fn max_debt(mut self, tokens: u64) -> Self {
        self.max_debt = Some(tokens);
        self
    }

    /// How far ahead a reservation may start. Default: one hour.
    pub fn max_horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// Builds the policy.
    ///
    /// # Errors
    /// If the capacity or the rate is zero, the rate cannot be represented, or the spans add up to
    /// more than 100 years.
    pub fn build(self) -> Result<Policy, PolicyError> {
        if self.capacity == Some(0) {
            return Err(PolicyError::Capacity);
        }
        let rate = self.rate?;
        let capacity = self.capacity.unwrap_or_else(|| rate.default_burst());
        TokenBucket::new(rate, capacity, self.max_debt, self.horizon).map(Policy::Bucket)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn invalid_policies_are_rejected_with_the_rule() {
        let text = |result: Result<Policy, PolicyError>| result.unwrap_err().to_string();
        assert_eq!(
            text(Policy::per_second(1).capacity(0).build()),
            "Rate limit capacity must be >= 1"
        );
        assert_eq!(
            text(Policy::per_second(0).capacity(5).build()),
            "tokens per second must be > 0"
        );
        assert_eq!(
            text(Policy::strict_window(5, Duration::from_secs(1), 6)),
            PolicyError::Burst.to_string()
        );
        assert_eq!(Policy::quota(0), Err(PolicyError::Quota));
        assert_eq!(Policy::allowance(0), Err(PolicyError::Allowance));
        assert_eq!(Policy::concurrency(0, None), Err(PolicyError::Slots));
        assert_eq!(Policy::concurrency(1, Some(Duration::ZERO)), Err(PolicyError::Lease));
    }

    #[test]
    fn burst_is_the_capacity_and_defaults_to_at_least_one_token() {
        let built = |builder: PolicyBuilder| builder.build().unwrap();
        assert_eq!(built(Policy::per_hour(7).burst(3)), built(Policy::per_hour(7).capacity(3)));
        assert_eq!(built(Policy::per_hour(7_200)), built(Policy::per_second(2)));
        assert_eq!(built(Policy::per_day(86_400)), built(Policy::per_minute(60)));
        assert_eq!(built(Policy::per_day(1)).capacity(), 1);
        assert_eq!(Policy::per_day(5).burst(0).build(), Err(PolicyError::Capacity));
    }

    #[test]
    fn fingerprints_are_equal_only_for_equal_policies() {
        let sixty = Policy::per_minute(60).capacity(5).build().unwrap();
        assert_eq!(
            sixty.fingerprint(),
            Policy::per_second(1).capacity(5).build().unwrap().fingerprint()
        );
        assert_ne!(
            sixty.fingerprint(),
            Policy::per_second(1).capacity(6).build().unwrap().fingerprint()
        );
        assert_ne!(
            sixty.fingerprint(),
            Policy::per_second(1).capacity(5).max_debt(6).build().unwrap().fingerprint()
        );
    }
}
