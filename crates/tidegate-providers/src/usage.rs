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
