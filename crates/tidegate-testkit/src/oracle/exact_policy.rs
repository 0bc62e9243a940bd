//! The token bucket over rational numbers.
//!
//! A bucket is seen as its gap: how long from now until it is full. The stored number is the
//! instant at which that will be. Every number is exact; only what leaves as an answer is rounded.

use num_bigint::BigInt;
use num_rational::Ratio;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use crate::scenario::spec::PolicySpec;

/// An exact number.
pub(super) type Rational = Ratio<BigInt>;

/// How far ahead the core lets reservations start when a strict window does not say.
const DEFAULT_HORIZON_NS: u64 = 3_600_000_000_000;

/// A bucket's policy in exact numbers.
#[derive(Clone, Debug)]
pub(super) struct ExactPolicy {
    /// Nanoseconds that one token takes.
    one: Rational,
    /// Tokens per period in lowest terms: stored instants are multiples of one over this.
    grain: BigInt,
    capacity: u64,
    /// Nanoseconds from empty to full.
    full: Rational,
    /// Nanoseconds from the deepest debt to full.
    deepest: Rational,
    horizon_ns: u64,
}

impl ExactPolicy {
    /// The terms of a policy; none if it is no bucket.
    pub(super) fn of(policy: &PolicySpec) -> Option<Self> {
        let (tokens, period, capacity, debt, horizon_ns) = match *policy {
            PolicySpec::Bucket { tokens, period_ns, capacity, max_debt, horizon_ns } => {
                (tokens, u128::from(period_ns), capacity, max_debt, horizon_ns)
            }
            // Nothing may come back within the closed window itself.
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

    /// Nanoseconds that so many tokens take.
    pub(super) fn span(&self, tokens: u128) -> Rational {
        &self.one * BigInt::from(tokens)
    }

    /// Time to full by what was stored alone. An instant further ahead than honest spending can
    /// put it is the trace of a clock that stepped back.
    pub(super) fn gap(&self, stored: Option<&Rational>, now: u64) -> Rational {
        let Some(stored) = stored else { return Rational::zero() };
        let furthest = &self.deepest + from_nanos(self.horizon_ns);
        (stored - from_nanos(now)).max(Rational::zero()).min(furthest)
    }

    /// Time to full when the bucket was held until an instant, at which it is empty.
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

    /// How many whole nanoseconds until `cost` fits; none if it never does.
    pub(super) fn wait(&self, gap: &Rational, cost: u128) -> Option<u64> {
        if cost > u128::from(self.capacity) {
            return None;
        }
        Some(ceil(&(gap + self.span(cost) - &self.full)))
    }

    /// The stored instant after spending `cost` as of `start`.
    pub(super) fn spent(&self, gap: &Rational, cost: u128, start: u64, now: u64) -> Rational {
        (gap + from_nanos(now)).max(from_nanos(start)) + self.span(cost)
    }

    /// Whole tokens there are.
    pub(super) fn remaining(&self, gap: &Rational) -> u64 {
        let tokens = (&self.full - gap) / &self.one;
        tokens.floor().to_integer().max(BigInt::zero()).to_u64().unwrap_or(u64::MAX)
    }

    /// The gap after charging more, and whether the debt reached its bound.
    pub(super) fn charged(&self, gap: &Rational, tokens: u128) -> (Rational, bool) {
        let wanted = gap + self.span(tokens);
        if wanted > self.deepest {
            (gap.clone().max(self.deepest.clone()), true)
        } else {
            (wanted, false)
        }
    }

    /// The gap that keeps the tokens of a bucket with `gap` under `old`.
    pub(super) fn keep_tokens(&self, old: &Self, gap: &Rational) -> Rational {
        if !gap.is_positive() {
            return Rational::zero();
        }
        let tokens = from_nanos(old.capacity) - gap / &old.one;
        let missing = (from_nanos(self.capacity) - tokens) * &self.one;
        self.round_to_grain(missing)
    }

    /// The gap that keeps the filled share of a bucket with `gap` under `old`.
    pub(super) fn keep_filled_share(&self, old: &Self, gap: &Rational) -> Rational {
        self.round_to_grain(gap / &old.full * &self.full)
    }

    /// Rounded down in tokens is rounded up in time, to the grain of the rate; within bounds.
    fn round_to_grain(&self, missing: Rational) -> Rational {
        let grain = Rational::from_integer(self.grain.clone());
        let missing = (missing * &grain).ceil() / grain;
        missing.max(Rational::zero()).min(self.deepest.clone())
    }

    /// A gap that no honest spending can have left is brought back to the furthest that can.
    pub(super) fn repaired(&self, stored: &Rational, now: u64) -> Option<Rational> {
        let furthest = &self.deepest + from_nanos(self.horizon_ns) + from_nanos(now);
        (*stored > furthest).then_some(furthest)
    }

    /// The instant at which a hold that ends at `until` is over and refilled.
    pub(super) fn refilled(&self, until: u64) -> Rational {
        from_nanos(until) + &self.full
    }
}

/// A whole number of nanoseconds.
pub(super) fn from_nanos(ns: u64) -> Rational {
    Rational::from_integer(ns.into())
}

/// Rounded up to whole nanoseconds, not below zero.
pub(super) fn ceil(span: &Rational) -> u64 {
    span.ceil().to_integer().max(BigInt::zero()).to_u64().unwrap_or(u64::MAX)
}
