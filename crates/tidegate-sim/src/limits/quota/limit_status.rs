//! What a client is told of limits, as numbers. Which of them are reported, and how, is for others
//! to decide.

use super::Dimension;
use crate::limits::charging::CallCharge;

/// One limit, as a client is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitStatus {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Nanoseconds until all of the limit is there again.
    pub(crate) reset: u64,
}

/// All limits of a pool, as a client is told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitSnapshot {
    pub(crate) requests: Option<LimitStatus>,
    pub(crate) slice: Option<LimitStatus>,
    pub(crate) day: Option<LimitStatus>,
    /// Requests of a day, if they come back all day long.
    pub(crate) refilling_day: Option<LimitStatus>,
    pub(crate) tokens: Option<LimitStatus>,
    /// The part of them that a second has, or what is left of the minute if that is less.
    pub(crate) second_tokens: Option<LimitStatus>,
    pub(crate) input: Option<LimitStatus>,
    pub(crate) output: Option<LimitStatus>,
    /// What was admitted in the present second, which no limit counts.
    pub(crate) this_second: CallCharge,
}

impl LimitSnapshot {
    /// Changes every limit that there is.
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

    /// The limit that a client is told of when a dimension refuses its call.
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

/// The part of a minute's limit that one of its seconds has, rounded up.
pub(super) fn per_second(minute: LimitStatus) -> LimitStatus {
    let limit = minute.limit.div_ceil(60);
    LimitStatus { limit, remaining: minute.remaining.min(limit), ..minute }
}
