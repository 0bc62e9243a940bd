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

/// What a call used, and where each count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredUsage {
    /// The tokens.
    pub usage: Usage,
    /// Whether the provider reported the input tokens and their parts. If not, they were counted
    /// here, from what was sent.
    pub is_input_reported: bool,
    /// Whether the provider reported the output tokens and their parts. If not, they were counted
    /// here, from what came.
    pub is_output_reported: bool,
}

impl MeasuredUsage {
    /// What the provider told.
    #[must_use]
    pub const fn reported(usage: Usage) -> Self {
        Self { usage, is_input_reported: true, is_output_reported: true }
    }

    /// So much input, as it was counted here, and no output.
    #[must_use]
    pub const fn of_input(input: u64) -> Self {
        let usage = Usage { input, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 };
        Self { usage, is_input_reported: false, is_output_reported: false }
    }

    /// Where the count of input tokens comes from, as metrics and logs name it: `reported` or
    /// `estimated`.
    #[must_use]
    pub const fn input_source(&self) -> &'static str {
        source(self.is_input_reported)
    }

    /// Where the count of output tokens comes from, as metrics and logs name it: `reported` or
    /// `estimated`.
    #[must_use]
    pub const fn output_source(&self) -> &'static str {
        source(self.is_output_reported)
    }
}

const fn source(is_reported: bool) -> &'static str {
    if is_reported { "reported" } else { "estimated" }
}
