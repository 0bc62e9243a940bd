//! What a call used, as the provider counts it.

/// Tokens of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens, those read from and written to the provider's cache included.
    pub input: u64,
    /// All output tokens, those of reasoning included.
    pub output: u64,
    /// The part of the input that was read from the provider's cache.
    pub cache_read: u64,
    /// The part of the input that was written to the provider's cache.
    pub cache_write: u64,
    /// The part of the output that was reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// Input and output together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Where a count of tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UsageSource {
    /// The provider told it.
    Reported,
    /// It was counted here, from what was sent and what came.
    Estimated,
}

impl UsageSource {
    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
        }
    }
}

/// What a call used, and where each count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredUsage {
    /// The tokens.
    pub usage: Usage,
    /// Where the count of input tokens comes from, and of its parts.
    pub input: UsageSource,
    /// Where the count of output tokens comes from, and of its parts.
    pub output: UsageSource,
}

impl MeasuredUsage {
    /// What the provider told.
    #[must_use]
    pub const fn reported(usage: Usage) -> Self {
        Self { usage, input: UsageSource::Reported, output: UsageSource::Reported }
    }

    /// So much input, as it was counted here, and no output.
    #[must_use]
    pub const fn of_input(input: u64) -> Self {
        let usage = Usage { input, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 };
        Self { usage, input: UsageSource::Estimated, output: UsageSource::Estimated }
    }
}
