//! Policies: what a limit allows. Valid by construction, immutable afterwards.

pub(crate) mod bucket;
pub(crate) mod counter;
pub(crate) mod decimal;
pub(crate) mod exact;
pub(crate) mod rate;
pub(crate) mod wide;

use alloc::string::String;
use core::fmt::Write as _;
use core::time::Duration;

use crate::policy::bucket::Bucket;
use crate::policy::counter::{Allowance, Concurrency, Quota};
use crate::policy::rate::{Rate, RateError};
use crate::time::MAX_SPAN;

/// How far ahead a reservation may start unless the policy says otherwise.
const DEFAULT_HORIZON: Duration = HOUR;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Why a policy cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A capacity of zero.
    #[error("Rate limit capacity must be >= 1")]
    Capacity,
    /// A rate that cannot be used.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// Refill, debt and horizon together reach beyond 100 years.
    #[error("the time to refill capacity and debt, plus the horizon, must be at most 100 years")]
    TooLong,
    /// A strict window with a burst outside of 1 to N.
    #[error("the burst of a strict window must be between 1 and its number of tokens")]
    Burst,
    /// A calendar quota of zero.
    #[error("a calendar quota must be >= 1")]
    Quota,
    /// An allowance of zero.
    #[error("an allowance must be >= 1")]
    Allowance,
    /// A concurrency limit of zero.
    #[error("a concurrency limit must be >= 1")]
    Slots,
    /// A lease of zero or of more than 100 years.
    #[error("a lease must be longer than zero and at most 100 years")]
    Lease,
    /// A limiter of one token bucket was given a policy of another kind.
    #[error("the policy must be a token bucket: a capacity and a rate")]
    NotABucket,
}

/// What a limit allows.
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
    /// Tokens that come at a rate.
    Bucket(Bucket),
    /// So many in every calendar window.
    Quota(Quota),
    /// So many in total.
    Allowance(Allowance),
    /// So many at the same time.
    Concurrency(Concurrency),
}

impl Policy {
    /// `tokens` per second, all of them at once unless a [burst](PolicyBuilder::burst) is set.
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

    /// `tokens` per minute, a second's worth (a 60th, at least 1) at once unless a
    /// [burst](PolicyBuilder::burst) is set.
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

    /// `tokens` per hour, a second's worth (a 3,600th, at least 1) at once unless a
    /// [burst](PolicyBuilder::burst) is set.
    pub fn per_hour(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, HOUR))
    }

    /// `tokens` per 24 hours, a second's worth (an 86,400th, at least 1) at once unless a
    /// [burst](PolicyBuilder::burst) is set. Days of a calendar are a [quota](Self::quota).
    pub fn per_day(tokens: u64) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, DAY))
    }

    /// `tokens` per `period`, a second's worth (at least 1) at once unless a
    /// [burst](PolicyBuilder::burst) is set.
    pub fn per(tokens: u64, period: Duration) -> PolicyBuilder {
        PolicyBuilder::new(Rate::per(tokens, period))
    }

    /// Tokens at any rate, a second's worth (at least 1) at once unless a
    /// [burst](PolicyBuilder::burst) is set.
    pub fn rate(rate: Rate) -> PolicyBuilder {
        PolicyBuilder::new(Ok(rate))
    }

    /// Never more than `tokens` in any closed window of length `window`, wherever it starts.
    ///
    /// This is a bucket of capacity `burst` that refills `tokens - burst` per window: what is
    /// there at the start of any window and what comes during it are `tokens` together. A small
    /// burst gives the higher sustained rate.
    ///
    /// # Errors
    /// When `burst` is not between 1 and `tokens`, or the window is unusable.
    pub fn strict_window(tokens: u64, window: Duration, burst: u64) -> Result<Self, PolicyError> {
        if burst < 1 || burst > tokens {
            return Err(PolicyError::Burst);
        }
        let rate = if burst == tokens {
            // Nothing may come back within the closed window: the next token a nanosecond later.
            Rate::per(1, window.saturating_add(Duration::from_nanos(1)))?
        } else {
            Rate::per(tokens - burst, window)?
        };
        PolicyBuilder::new(Ok(rate)).capacity(burst).build()
    }

    /// `amount` in every calendar window; the windows come with each charge.
    ///
    /// # Errors
    /// When `amount` is zero.
    pub fn quota(amount: u64) -> Result<Self, PolicyError> {
        Quota::new(amount, None).map(Self::Quota)
    }

    /// `amount` in total, until the key is reset.
    ///
    /// # Errors
    /// When `amount` is zero.
    pub fn allowance(amount: u64) -> Result<Self, PolicyError> {
        Allowance::new(amount).map(Self::Allowance)
    }

    /// `slots` at the same time; a slot is given back by releasing it, or when `lease` has
    /// passed without renewal.
    ///
    /// # Errors
    /// When `slots` is zero or the lease is zero or above 100 years.
    pub fn concurrency(slots: u64, lease: Option<Duration>) -> Result<Self, PolicyError> {
        Concurrency::new(slots, lease).map(Self::Concurrency)
    }

    /// The most that one charge can ever take: capacity, quota, allowance or slots.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.capacity(),
            Self::Quota(quota) => quota.amount(),
            Self::Allowance(allowance) => allowance.amount(),
            Self::Concurrency(concurrency) => concurrency.slots(),
        }
    }

    /// How far ahead a reservation may start. Kinds without a future set no bound of their own.
    #[must_use]
    pub const fn horizon(&self) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.horizon(),
            Self::Quota(_) | Self::Allowance(_) | Self::Concurrency(_) => MAX_SPAN,
        }
    }

    /// A text that two policies share if and only if they are equal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
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

/// Builds a token bucket policy. What is wrong is told by [`build`](Self::build).
#[derive(Clone, Copy, Debug)]
#[must_use = "a policy is made by `build`"]
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

    /// How many tokens may go at once after a pause. Default: one second's worth, at least 1.
    pub fn burst(self, tokens: u64) -> Self {
        self.capacity(tokens)
    }

    /// Tokens in a full bucket: another name of the [burst](Self::burst), as in configurations.
    pub fn capacity(mut self, tokens: u64) -> Self {
        self.capacity = Some(tokens);
        self
    }

    /// How many tokens below zero a later settlement may charge. Default: the capacity.
    pub fn max_debt(mut self, tokens: u64) -> Self {
        self.max_debt = Some(tokens);
        self
    }

    /// How far ahead a reservation may start. Default: one hour.
    pub fn max_horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// When capacity or rate is zero, the rate too fine, or the spans beyond 100 years.
    pub fn build(self) -> Result<Policy, PolicyError> {
        if self.capacity == Some(0) {
            return Err(PolicyError::Capacity);
        }
        let rate = self.rate?;
        let capacity = self.capacity.unwrap_or_else(|| rate.one_seconds_worth());
        Bucket::new(rate, capacity, self.max_debt, self.horizon).map(Policy::Bucket)
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
