//! What a provider reports about its limits, in one form for all of them.

pub(crate) mod delay;
pub(crate) mod headers;

use std::time::Duration;

use smallvec::SmallVec;

/// What a limit counts. All of them: code that limits has to know what to do with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Requests of a short time, a minute as a rule.
    Requests,
    /// Requests of a day.
    RequestsPerDay,
    /// Tokens, input and output together.
    Tokens,
    /// Input tokens.
    InputTokens,
    /// Output tokens.
    OutputTokens,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Requests, Self::RequestsPerDay, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    /// The name in metrics, logs and the names of limits.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::RequestsPerDay => "requests_per_day",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
        }
    }

    /// Whether it counts tokens rather than calls.
    #[must_use]
    pub const fn is_of_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::InputTokens | Self::OutputTokens)
    }
}

/// How one limit stands, as far as it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How much may be used in a window.
    pub limit: Option<u64>,
    /// How much of it is left.
    pub remaining: Option<u64>,
    /// How long until all of it is there again, from when the answer was sent.
    pub reset: Option<Duration>,
    /// The window that `limit` is meant for.
    pub window: Duration,
}

impl Reading {
    /// How long one of it takes to come back, if they come back one by one.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let limit = u32::try_from(self.limit?.max(1)).unwrap_or(u32::MAX);
        let one = self.window / limit;
        Some(self.reset.map_or(one, |reset| reset.min(one)))
    }
}

/// What one answer reported about limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedLimits {
    readings: SmallVec<[(Dimension, Reading); 2]>,
}

impl ReportedLimits {
    /// Nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Whether nothing was reported.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.readings.is_empty()
    }

    /// Adds a reading; an earlier one of the same dimension stays.
    pub fn add(&mut self, dimension: Dimension, reading: Reading) {
        if self.get(dimension).is_none() {
            self.readings.push((dimension, reading));
        }
    }

    /// The reading of a dimension.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> Option<&Reading> {
        self.readings.iter().find(|(known, _)| *known == dimension).map(|(_, reading)| reading)
    }

    /// All readings.
    pub fn iter(&self) -> impl Iterator<Item = (Dimension, &Reading)> {
        self.readings.iter().map(|(dimension, reading)| (*dimension, reading))
    }
}
