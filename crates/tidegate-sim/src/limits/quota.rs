//! The limits of one pool, checked together: a call is charged to all of them or to none.
//!
//! The arithmetic uses integers: continuously refilled buckets for limits per minute and refilling
//! days, and fixed windows for slices, calendar days and ramps. It shares no code with the limiter
//! that is tested against it. Time is an argument; no clock is read.

mod bucket;
mod day;
mod limit_status;
mod token_limit;
mod window;

use std::fmt;

use crate::calendar::Now;
use crate::limits::Limits;
use crate::limits::charging::{CallCharge, FailedCalls};
use bucket::Bucket;
use day::Day;
use token_limit::TokenLimit;
use window::{CurrentSecond, Ramp, Slices};

pub(crate) use limit_status::{LimitSnapshot, LimitStatus};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dimension {
    /// Requests per minute.
    Requests,
    /// Requests per slice of a minute.
    Slice,
    /// Requests per day.
    Day,
    /// Tokens per minute, input and output together.
    Tokens,
    /// Input tokens per minute.
    InputTokens,
    /// Output tokens per minute.
    OutputTokens,
    /// Requests per minute, relative to the previous minute.
    Acceleration,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests per minute",
            Self::Slice => "requests per slice",
            Self::Day => "requests per day",
            Self::Tokens => "tokens per minute",
            Self::InputTokens => "input tokens per minute",
            Self::OutputTokens => "output tokens per minute",
            Self::Acceleration => "growth of requests",
        })
    }
}

/// Time until a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Now,
    /// Nanoseconds.
    For(u64),
    /// The cost exceeds the limit.
    Never,
}

/// The limit that rejects a call; of several, the one with the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) dimension: Dimension,
    pub(crate) wait: Wait,
    pub(crate) limit_status: LimitStatus,
    pub(crate) requested: u64,
}

/// The cost of a charge for a token limit.
type TokenCost = fn(CallCharge) -> u64;

/// The limits of one pool and their current use.
#[derive(Debug)]
pub(crate) struct Quotas {
    requests: Option<Bucket>,
    slices: Option<Slices>,
    day: Option<Day>,
    tokens: Option<TokenLimit>,
    input: Option<TokenLimit>,
    output: Option<TokenLimit>,
    ramp: Option<Ramp>,
    second: CurrentSecond,
    /// The latest instant seen. A thread that read the clock first may get here last, and must not
    /// move a window back.
    latest: Option<Now>,
}

impl Quotas {
    pub(crate) fn new(limits: &Limits) -> Self {
        let per_minute = limits.requests.unwrap_or(u64::MAX);
        let tokens = |limit| TokenLimit::new(limit, limits.token_slice, limits.phase);
        Self {
            requests: limits.requests.map(Bucket::new),
            slices: limits.slice.map(|length| Slices::new(per_minute, length, limits.phase)),
            day: limits.day.map(Day::new),
            tokens: limits.tokens.map(tokens),
            input: limits.input.map(tokens),
            output: limits.output.map(tokens),
            ramp: limits.ramp.map(|(floor, factor)| Ramp::new(floor, factor, limits.phase)),
            second: CurrentSecond::new(limits.phase),
            latest: None,
        }
    }

    /// Charges a call, or returns the limit that rejects it. A rejected call costs nothing unless
    /// failed calls count. Then it takes one request of the minute and of the slice, or what is
    /// left of one, so that retries faster than the refill never succeed.
    pub(crate) fn admit(
        &mut self,
        now: Now,
        charge: CallCharge,
        failed: FailedCalls,
    ) -> Result<(), (Blocked, CallCharge)> {
        self.advance(now);
        let Some(blocked) = self.blocked(charge) else {
            self.take(charge);
            return Ok(());
        };
        let counted = self.count_refused(now, failed);
        // Counting the rejection may have made the wait longer.
        Err((self.blocked(charge).unwrap_or(blocked), counted))
    }

    /// Counts a call that was rejected for a reason other than these limits.
    pub(crate) fn count_refused(&mut self, now: Now, failed: FailedCalls) -> CallCharge {
        self.advance(now);
        if failed == FailedCalls::Free {
            return CallCharge::default();
        }
        if let Some(slices) = &mut self.slices {
            slices.take(1);
        }
        let whole = self.requests.as_mut().is_none_or(Bucket::drain_one);
        CallCharge { requests: u64::from(whole), input: 0, output: 0 }
    }

    /// Corrects a charge made at `taken`. A call that no longer counts as a request is refunded to
    /// windows too.
    pub(crate) fn correct(&mut self, now: Now, taken: Now, from: CallCharge, to: CallCharge) {
        self.advance(now);
        let is_given_back = to.requests < from.requests;
        for (limit, cost) in self.token_limits() {
            if is_given_back {
                limit.refund(taken, cost(from));
            } else {
                limit.settle(cost(from), cost(to));
            }
        }
        if !is_given_back {
            return;
        }
        if let Some(requests) = &mut self.requests {
            requests.settle(from.requests, to.requests);
        }
        if let Some(slices) = &mut self.slices {
            slices.refund(taken, 1);
        }
        if let Some(day) = &mut self.day {
            day.refund(taken);
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.refund(taken);
        }
    }

    /// Returns the current limits.
    pub(crate) fn snapshot(&mut self, now: Now) -> LimitSnapshot {
        self.advance(now);
        let tokens = self.tokens.as_ref().map(TokenLimit::limit_status);
        LimitSnapshot {
            requests: self.requests.as_ref().map(Bucket::limit_status),
            slice: self.slices.as_ref().map(Slices::limit_status),
            day: self.day.as_ref().map(Day::limit_status),
            refilling_day: self.day.as_ref().and_then(Day::refilling),
            tokens,
            second_tokens: tokens.map(limit_status::per_second),
            input: self.input.as_ref().map(TokenLimit::limit_status),
            output: self.output.as_ref().map(TokenLimit::limit_status),
            this_second: self.second.admitted(),
        }
    }

    fn advance(&mut self, now: Now) {
        let now = self.latest.filter(|latest| latest.elapsed > now.elapsed).unwrap_or(now);
        self.latest = Some(now);
        if let Some(requests) = &mut self.requests {
            requests.refill(now.elapsed);
        }
        for (limit, _) in self.token_limits() {
            limit.advance(now);
        }
        if let Some(slices) = &mut self.slices {
            slices.advance(now);
        }
        if let Some(day) = &mut self.day {
            day.advance(now);
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.advance(now);
        }
        self.second.advance(now);
    }

    fn take(&mut self, charge: CallCharge) {
        if let Some(requests) = &mut self.requests {
            requests.take(charge.requests);
        }
        for (limit, cost) in self.token_limits() {
            limit.take(cost(charge));
        }
        if let Some(slices) = &mut self.slices {
            slices.take(1);
        }
        if let Some(day) = &mut self.day {
            day.take();
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.take();
        }
        self.second.take(charge);
    }

    /// Iterates over the token limits, with the cost function of each.
    fn token_limits(&mut self) -> impl Iterator<Item = (&mut TokenLimit, TokenCost)> {
        let limits: [(_, TokenCost); 3] = [
            (&mut self.tokens, CallCharge::total),
            (&mut self.input, |charge| charge.input),
            (&mut self.output, |charge| charge.output),
        ];
        limits.into_iter().filter_map(|(limit, cost)| Some((limit.as_mut()?, cost)))
    }

    fn blocked(&self, charge: CallCharge) -> Option<Blocked> {
        let token_limits = [
            (Dimension::Tokens, &self.tokens, charge.total()),
            (Dimension::InputTokens, &self.input, charge.input),
            (Dimension::OutputTokens, &self.output, charge.output),
        ];
        let mut worst: Option<Blocked> = None;
        let mut consider = |dimension, wait, limit_status, requested| {
            if wait != Wait::Now && worst.as_ref().is_none_or(|worst| worst.wait < wait) {
                worst = Some(Blocked { dimension, wait, limit_status, requested });
            }
        };
        if let Some(requests) = &self.requests {
            let cost = charge.requests;
            consider(Dimension::Requests, requests.wait(cost), requests.limit_status(), cost);
        }
        for (dimension, limit, cost) in token_limits {
            if let Some(limit) = limit {
                consider(dimension, limit.wait(cost), limit.limit_status(), cost);
            }
        }
        if let Some(slices) = &self.slices {
            // The limit per minute is reported even if a slice rejects the call.
            let limit_status =
                self.requests.as_ref().map_or_else(|| slices.limit_status(), Bucket::limit_status);
            consider(Dimension::Slice, slices.wait(1), limit_status, 1);
        }
        if let Some(day) = &self.day {
            consider(Dimension::Day, day.wait(), day.limit_status(), 1);
        }
        if let Some(ramp) = &self.ramp {
            consider(Dimension::Acceleration, ramp.wait(), ramp.limit_status(), 1);
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{SECOND, Zone};
    use std::time::Duration;

    fn at(elapsed: u64) -> Now {
        Now { elapsed, wall: elapsed }
    }

    fn charge(input: u64, output: u64) -> CallCharge {
        CallCharge { requests: 1, input, output }
    }

    #[test]
    fn call_is_charged_to_all_limits_or_none() {
        let limits = Limits::new().requests_per_minute(60).tokens_per_minute(100);
        let mut quotas = Quotas::new(&limits);
        quotas.admit(at(0), charge(50, 40), FailedCalls::Free).unwrap();
        let (blocked, counted) = quotas.admit(at(0), charge(5, 6), FailedCalls::Free).unwrap_err();
        assert_eq!(blocked.dimension, Dimension::Tokens);
        assert_eq!(blocked.wait, Wait::For(600_000_000));
        assert_eq!(counted, CallCharge::default());
        let snapshot = quotas.snapshot(at(0));
        assert_eq!(snapshot.requests.unwrap().remaining, 59);
        assert_eq!(snapshot.tokens.unwrap().remaining, 10);
    }

    #[test]
    fn limit_with_the_longest_wait_is_reported() {
        let limits = Limits::new().requests_per_minute(1).tokens_per_minute(10);
        let mut quotas = Quotas::new(&limits);
        quotas.admit(at(0), charge(5, 5), FailedCalls::Free).unwrap();
        let blocked = quotas.admit(at(0), charge(1, 0), FailedCalls::Free).unwrap_err().0;
        assert_eq!(blocked.dimension, Dimension::Requests);
        let blocked = quotas.admit(at(0), charge(11, 0), FailedCalls::Free).unwrap_err().0;
        assert_eq!((blocked.dimension, blocked.wait), (Dimension::Tokens, Wait::Never));
    }

    #[test]
    fn fast_retries_never_succeed_if_rejections_count() {
        let limits = Limits::new().requests_per_minute(60);
        let mut quotas = Quotas::new(&limits);
        for _ in 0..60 {
            quotas.admit(at(0), charge(1, 0), FailedCalls::Count).unwrap();
        }
        for tenth in 1..50 {
            let now = at(tenth * SECOND * 9 / 10);
            let (blocked, _) = quotas.admit(now, charge(1, 0), FailedCalls::Count).unwrap_err();
            assert_eq!(blocked.wait, Wait::For(SECOND));
        }
        let after = at(49 * SECOND * 9 / 10 + SECOND);
        quotas.admit(after, charge(1, 0), FailedCalls::Count).unwrap();
    }

    #[test]
    fn late_call_does_not_rewind_a_window() {
        let limits = Limits::new()
            .requests_per_minute(60)
            .requests_per_day(2, Zone::UTC)
            .slice(Duration::from_secs(1));
        let mut quotas = Quotas::new(&limits);
        quotas.admit(at(SECOND), charge(1, 0), FailedCalls::Free).unwrap();
        let late = quotas.admit(at(SECOND - 1), charge(1, 0), FailedCalls::Free);
        assert_eq!(late.unwrap_err().0.dimension, Dimension::Slice);
        let again = quotas.admit(at(SECOND), charge(1, 0), FailedCalls::Free);
        assert_eq!(again.unwrap_err().0.dimension, Dimension::Slice);
    }

    #[test]
    fn correction_works_both_ways_and_may_leave_a_debt() {
        let mut quotas = Quotas::new(&Limits::new().tokens_per_minute(60));
        quotas.admit(at(0), charge(10, 50), FailedCalls::Free).unwrap();
        quotas.correct(at(0), at(0), charge(10, 50), charge(10, 20));
        assert_eq!(quotas.snapshot(at(0)).tokens.unwrap().remaining, 30);
        quotas.correct(at(0), at(0), charge(10, 20), charge(10, 80));
        assert_eq!(quotas.snapshot(at(10 * SECOND)).tokens.unwrap().remaining, 0);
        assert_eq!(quotas.snapshot(at(31 * SECOND)).tokens.unwrap().remaining, 1);
    }
}
