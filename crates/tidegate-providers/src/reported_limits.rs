//! Limits that a provider reports, in one form for all providers.

pub(crate) mod delay;
pub(crate) mod headers;

use std::time::Duration;

use smallvec::SmallVec;

/// What a limit counts. Exhaustive on purpose: code that enforces limits must handle each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Requests in a short window, usually a minute.
    Requests,
    /// Requests per day.
    RequestsPerDay,
    /// Tokens, input and output together.
    Tokens,
    /// Input tokens.
    InputTokens,
    /// Output tokens.
    OutputTokens,
}

impl Dimension {
    /// All dimensions.
    pub const ALL: [Self; 5] =
        [Self::Requests, Self::RequestsPerDay, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    /// Returns the name used in metrics, logs and the names of limits.
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

    /// Returns whether it counts tokens rather than requests.
    #[must_use]
    pub const fn counts_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::InputTokens | Self::OutputTokens)
    }
}

/// State of one limit, as far as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReading {
    /// Amount allowed per window.
    pub limit: Option<u64>,
    /// Amount remaining.
    pub remaining: Option<u64>,
    /// Time until the full limit is available again, from when the response was sent.
    pub reset: Option<Duration>,
    /// Window that `limit` applies to.
    pub window: Duration,
}

impl LimitReading {
    /// Returns how long one unit takes to become available, if the limit refills continuously.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let limit = u32::try_from(self.limit?.max(1)).unwrap_or(u32::MAX);
        let per_unit = self.window / limit;
        Some(self.reset.map_or(per_unit, |reset| reset.min(per_unit)))
    }
}

/// Limits reported by one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedLimits {
    readings: SmallVec<[(Dimension, LimitReading); 2]>,
}

impl ReportedLimits {
    /// Creates an empty report.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether no limit is reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    /// Adds a reading. An earlier reading of the same dimension takes precedence.
    pub fn add(&mut self, dimension: Dimension, reading: LimitReading) {
        if self.get(dimension).is_none() {
            self.readings.push((dimension, reading));
        }
    }

    /// Returns the reading of a dimension.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> Option<&LimitReading> {
        self.readings.iter().find(|(known, _)| *known == dimension).map(|(_, reading)| reading)
    }

    /// Iterates over all readings.
    pub fn iter(&self) -> impl Iterator<Item = (Dimension, &LimitReading)> {
        self.readings.iter().map(|(dimension, reading)| (*dimension, reading))
    }
}
