//! The numbers that clients can be told about limits. Which of them are reported, and how, is
//! decided elsewhere.

use super::Dimension;
use crate::limits::charging::CallCharge;

/// Status of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitStatus {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Nanoseconds until the limit is fully available again.
    pub(crate) reset: u64,
}

/// Status of all limits of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitSnapshot {
    pub(crate) requests: Option<LimitStatus>,
    pub(crate) slice: Option<LimitStatus>,
    pub(crate) day: Option<LimitStatus>,
    /// Requests per day, if the day refills continuously.
    pub(crate) refilling_day: Option<LimitStatus>,
    pub(crate) tokens: Option<LimitStatus>,
    /// One second's share of `tokens`, or what remains of the minute if that is less.
    pub(crate) second_tokens: Option<LimitStatus>,
    pub(crate) input: Option<LimitStatus>,
    pub(crate) output: Option<LimitStatus>,
    /// What was admitted in the current second; not a limit.
    pub(crate) this_second: CallCharge,
}

impl LimitSnapshot {
    /// Applies `change` to every limit.
    pub(crate) fn map(self, change: impl Fn(LimitStatus) -> LimitStatus) -> Self {
        Self {
            requests: self.requests.map(&change),
            slice: self.slice.map(&change),
            day: self.day.map(&change),
            refilling_day: self.refilling_day.map(&change),
            tokens: self.tokens.map(&change),
            second_tokens: self.second_tokens.map(&change),
            input: self.input.map(&change),
            output: self.output.map(&change),
            this_second: self.this_second,
        }
    }

    /// Returns the limit to report when `dimension` rejects a call.
    pub(crate) fn of(&self, dimension: Dimension) -> Option<LimitStatus> {
        match dimension {
            Dimension::Requests | Dimension::Slice | Dimension::Acceleration => self.requests,
            Dimension::Day => self.day,
            Dimension::Tokens => self.tokens,
            Dimension::InputTokens => self.input,
            Dimension::OutputTokens => self.output,
        }
    }
}

/// Returns one second's share of a limit per minute, rounded up.
pub(super) fn per_second(minute: LimitStatus) -> LimitStatus {
    let limit = minute.limit.div_ceil(60);
    LimitStatus { limit, remaining: minute.remaining.min(limit), ..minute }
}
