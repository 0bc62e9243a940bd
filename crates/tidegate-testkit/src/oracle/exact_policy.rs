//! The token bucket over rational numbers.
//!
//! A bucket is represented by its gap: the time from now until it is full. The stored number is the
//! instant at which it will be full. All numbers are exact; only answers are rounded.

use num_bigint::BigInt;
use num_rational::Ratio;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use crate::scenario::spec::PolicySpec;

/// An exact number.
pub(super) type Rational = Ratio<BigInt>;

/// The core's horizon for reservations on a strict window.
const DEFAULT_HORIZON_NS: u64 = 3_600_000_000_000;

/// The policy of a token bucket in exact numbers.
#[derive(Clone, Debug)]
pub(super) struct ExactPolicy {
    /// Time to refill one token, in nanoseconds.
    one: Rational,
    /// Denominator of `one` in lowest terms: stored instants are multiples of one over this.
    grain: BigInt,
    capacity: u64,
    /// Time from empty to full, in nanoseconds.
    full: Rational,
    /// Time from the maximum debt to full, in nanoseconds.
    deepest: Rational,
    horizon_ns: u64,
}

impl ExactPolicy {
    /// Converts a policy; `None` if it is not a token bucket.
    pub(super) fn of(policy: &PolicySpec) -> Option<Self> {
        let (tokens, period, capacity, debt, horizon_ns) = match *policy {
            PolicySpec::Bucket { tokens, period_ns, capacity, max_debt, horizon_ns } => {
                (tokens, u128::from(period_ns), capacity, max_debt, horizon_ns)
            }
            // No token may be refilled within the closed window itself.
            PolicySpec::StrictWindow { tokens, window_ns, burst } if tokens == burst => {
                (1, u128::from(window_ns) + 1, burst, burst, DEFAULT_HORIZON_NS)
            }
            PolicySpec::StrictWindow { tokens, window_ns, burst } => {
                (tokens - burst, u128::from(window_ns), burst, burst, DEFAULT_HORIZON_NS)
            }
            _ => return None,
        };
        let one = Rational::new(period.into(), tokens.into());
        let full = &one * BigInt::from(capacity);
        let deepest = &full + &one * BigInt::from(debt);
        let grain = one.denom().clone();
        Some(Self { one, grain, capacity, full, deepest, horizon_ns })
    }

    pub(super) fn horizon_ns(&self) -> u64 {
        self.horizon_ns
    }

    /// Time to refill this many tokens, in nanoseconds.
    pub(super) fn span(&self, tokens: u128) -> Rational {
        &self.one * BigInt::from(tokens)
    }

    /// Time until full according to the stored instant. It is capped at the maximum that spending
    /// can cause, because a larger value means that the clock has stepped back.
    pub(super) fn gap(&self, stored: Option<&Rational>, now: u64) -> Rational {
        let Some(stored) = stored else { return Rational::zero() };
        let furthest = &self.deepest + from_nanos(self.horizon_ns);
        (stored - from_nanos(now)).max(Rational::zero()).min(furthest)
    }

    /// Time until full if the bucket is held until an instant, at which it is empty.
    pub(super) fn gap_with_hold(
        &self,
        stored: Option<&Rational>,
        held_until: Option<u64>,
        now: u64,
    ) -> Rational {
        let gap = self.gap(stored, now);
        match held_until {
            Some(until) => gap.max(from_nanos(until) - from_nanos(now) + &self.full),
            None => gap,
        }
    }

    /// Nanoseconds until `cost` fits, rounded up; `None` if it never does.
    pub(super) fn wait(&self, gap: &Rational, cost: u128) -> Option<u64> {
        if cost > u128::from(self.capacity) {
            return None;
        }
        Some(ceil(&(gap + self.span(cost) - &self.full)))
    }

    /// The stored instant after spending `cost` with effect from `start`.
    pub(super) fn spent(&self, gap: &Rational, cost: u128, start: u64, now: u64) -> Rational {
        (gap + from_nanos(now)).max(from_nanos(start)) + self.span(cost)
    }

    /// Number of whole tokens available.
    pub(super) fn remaining(&self, gap: &Rational) -> u64 {
        let tokens = (&self.full - gap) / &self.one;
        tokens.floor().to_integer().max(BigInt::zero()).to_u64().unwrap_or(u64::MAX)
    }

    /// The gap after an additional charge, and whether the debt reached its bound.
    pub(super) fn charged(&self, gap: &Rational, tokens: u128) -> (Rational, bool) {
        let wanted = gap + self.span(tokens);
        if wanted > self.deepest {
            (gap.clone().max(self.deepest.clone()), true)
        } else {
            (wanted, false)
        }
    }

    /// Converts `gap` under the policy `old` to a gap with the same number of tokens.
    pub(super) fn keep_tokens(&self, old: &Self, gap: &Rational) -> Rational {
        if !gap.is_positive() {
            return Rational::zero();
        }
        let tokens = from_nanos(old.capacity) - gap / &old.one;
        let missing = (from_nanos(self.capacity) - tokens) * &self.one;
        self.round_to_grain(missing)
    }

    /// Converts `gap` under the policy `old` to a gap with the same filled share.
    pub(super) fn keep_filled_share(&self, old: &Self, gap: &Rational) -> Rational {
        self.round_to_grain(gap / &old.full * &self.full)
    }

    /// Rounds a gap up to the grain of the rate, which rounds tokens down, and clamps it to its
    /// bounds.
    fn round_to_grain(&self, missing: Rational) -> Rational {
        let grain = Rational::from_integer(self.grain.clone());
        let missing = (missing * &grain).ceil() / grain;
        missing.max(Rational::zero()).min(self.deepest.clone())
    }

    /// Returns the maximum instant that spending can cause if `stored` is beyond it.
    pub(super) fn repaired(&self, stored: &Rational, now: u64) -> Option<Rational> {
        let furthest = &self.deepest + from_nanos(self.horizon_ns) + from_nanos(now);
        (*stored > furthest).then_some(furthest)
    }

    /// The instant at which a bucket held until `until` is full.
    pub(super) fn refilled(&self, until: u64) -> Rational {
        from_nanos(until) + &self.full
    }
}

/// Converts nanoseconds to an exact number.
pub(super) fn from_nanos(ns: u64) -> Rational {
    Rational::from_integer(ns.into())
}

/// Rounds up to whole nanoseconds, with a minimum of zero.
pub(super) fn ceil(span: &Rational) -> u64 {
    span.ceil().to_integer().max(BigInt::zero()).to_u64().unwrap_or(u64::MAX)
}
