//! Token usage of a call.

/// Tokens used by a call, as the provider reports them or as they are estimated locally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens, including those read from and written to the provider's cache.
    pub input: u64,
    /// All output tokens, including reasoning.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
    /// Whether the input was counted locally, from the request, because the provider did not report
    /// it.
    pub is_input_estimated: bool,
    /// Whether the output was counted locally, from the response, because the provider did not
    /// report all of it.
    pub is_output_estimated: bool,
}

impl Usage {
    /// Creates the usage of a call whose input is estimated locally and whose output is still zero.
    #[must_use]
    pub const fn estimated_input(input: u64) -> Self {
        Self {
            input,
            output: 0,
            cache_read: 0,
            cache_write: 0,
            reasoning: 0,
            is_input_estimated: true,
            is_output_estimated: true,
        }
    }

    /// Returns input and output tokens together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Returns the source of the input count for metrics and logs: `reported` or `estimated`.
    #[must_use]
    pub const fn input_source(&self) -> &'static str {
        source(self.is_input_estimated)
    }

    /// Returns the source of the output count for metrics and logs: `reported` or `estimated`.
    #[must_use]
    pub const fn output_source(&self) -> &'static str {
        source(self.is_output_estimated)
    }
}

const fn source(is_estimated: bool) -> &'static str {
    if is_estimated { "estimated" } else { "reported" }
}
