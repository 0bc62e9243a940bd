//! What providers charge for a call.
//!
//! Providers charge an estimate on admission, and some correct it afterwards. Reserving less than
//! the provider does leads to refusals below the limit; reserving more wastes quota. Undocumented
//! rules are corrected by what providers report.

use tidegate_providers::{Dialect, Dimension, Usage};

/// How a provider charges output. Each rule leaves at least as much in the provider's bucket as the
/// one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutputCharge {
    /// `max_tokens` on admission, without a refund.
    MaxTokens,
    /// `max_tokens` on admission; unused tokens are refunded at the end.
    MaxTokensRefunded,
    /// Actual output, at the end.
    ActualUsage,
}

/// Whether input tokens read from the provider's cache are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedTokens {
    /// Charged like other input tokens.
    Counted,
    /// Not charged.
    Free,
}

/// What a limit on "tokens" counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenScope {
    /// Input and output.
    Both,
    /// The input alone.
    Input,
}

/// How a provider charges calls. [`TokenAccounting::of`] returns that of a dialect; setters change
/// parts.
///
/// The rule for output is only where an account starts: it is inferred per model from what the
/// provider reports, admits and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenAccounting {
    output: OutputCharge,
    cached: CachedTokens,
    tokens: TokenScope,
}

/// Expected or used tokens of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Amounts {
    pub(crate) const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl TokenAccounting {
    /// Returns the accounting of a dialect:
    ///
    /// | dialect | output | cached tokens | limit on tokens counts |
    /// | --- | --- | --- | --- |
    /// | OpenAI, Azure | `max_tokens` | counted | both |
    /// | Anthropic, Groq | `max_tokens`, refunded | free | both |
    /// | Gemini | actual usage | counted | input |
    /// | others | actual usage | counted | both |
    pub(crate) const fn of(dialect: Dialect) -> Self {
        let usual = Self {
            output: OutputCharge::ActualUsage,
            cached: CachedTokens::Counted,
            tokens: TokenScope::Both,
        };
        match dialect {
            Dialect::OpenAi | Dialect::Azure => usual.output(OutputCharge::MaxTokens),
            Dialect::Anthropic | Dialect::Groq => {
                usual.output(OutputCharge::MaxTokensRefunded).cached_tokens(CachedTokens::Free)
            }
            Dialect::Gemini => usual.tokens(TokenScope::Input),
            _ => usual,
        }
    }

    /// Sets the initial rule for output.
    pub(crate) const fn output(mut self, output: OutputCharge) -> Self {
        self.output = output;
        self
    }

    /// Sets whether cached tokens are charged.
    pub(crate) const fn cached_tokens(mut self, cached: CachedTokens) -> Self {
        self.cached = cached;
        self
    }

    /// Sets what a limit on tokens counts.
    pub(crate) const fn tokens(mut self, tokens: TokenScope) -> Self {
        self.tokens = tokens;
        self
    }

    /// Returns the rule for output to start with.
    pub(crate) const fn initial_rule(self) -> OutputCharge {
        self.output
    }

    /// Minimum charge of a call under `rule`, whatever it uses.
    pub(crate) fn minimum(rule: OutputCharge, input: u64, max_output: Option<u64>) -> Amounts {
        let output = match rule {
            OutputCharge::MaxTokens | OutputCharge::MaxTokensRefunded => max_output.unwrap_or(0),
            OutputCharge::ActualUsage => 0,
        };
        Amounts { input, output }
    }

    /// Charge of a call in flight: its input, and its `max_tokens` or learned output.
    pub(crate) fn reserved(
        rule: OutputCharge,
        input: u64,
        learned: u64,
        max_output: Option<u64>,
    ) -> Amounts {
        match (rule, max_output) {
            (OutputCharge::MaxTokens | OutputCharge::MaxTokensRefunded, Some(output)) => {
                Amounts { input, output }
            }
            _ => Self::expected(input, learned, max_output),
        }
    }

    /// Expected usage of a call.
    pub(crate) fn expected(input: u64, learned: u64, max_output: Option<u64>) -> Amounts {
        Amounts { input, output: learned.min(max_output.unwrap_or(u64::MAX)) }
    }

    /// Converts usage to the tokens that are charged.
    pub(crate) fn used(self, usage: &Usage) -> Amounts {
        let input = match self.cached {
            CachedTokens::Counted => usage.input,
            CachedTokens::Free => usage.input.saturating_sub(usage.cache_read),
        };
        Amounts { input, output: usage.output }
    }

    /// Returns whether a limit on `dimension` counts output.
    pub(crate) const fn counts_output(self, dimension: Dimension) -> bool {
        match dimension {
            Dimension::OutputTokens => true,
            Dimension::Tokens => matches!(self.tokens, TokenScope::Both),
            _ => false,
        }
    }

    /// Returns the charge in one dimension.
    pub(crate) fn cost(self, dimension: Dimension, amounts: Amounts) -> u64 {
        match (dimension, self.tokens) {
            (Dimension::Requests | Dimension::RequestsPerDay, _) => 1,
            (Dimension::InputTokens, _) | (Dimension::Tokens, TokenScope::Input) => amounts.input,
            (Dimension::OutputTokens, _) => amounts.output,
            (Dimension::Tokens, TokenScope::Both) => amounts.input.saturating_add(amounts.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_reserved_by_the_dialects_rule() {
        for (dialect, unset, bounded) in [
            (Dialect::OpenAi, 200, 1_000),
            (Dialect::Anthropic, 200, 1_000),
            (Dialect::Gemini, 200, 200),
            (Dialect::Mistral, 200, 200),
        ] {
            let rule = TokenAccounting::of(dialect).initial_rule();
            assert_eq!(TokenAccounting::reserved(rule, 7, 200, None).output, unset, "{dialect:?}");
            let reserved = TokenAccounting::reserved(rule, 7, 200, Some(1_000));
            assert_eq!(reserved.output, bounded, "{dialect:?}");
            assert_eq!(TokenAccounting::reserved(rule, 7, 200, Some(50)).output, 50, "{dialect:?}");
        }
    }

    #[test]
    fn usage_is_charged_as_the_provider_counts_it() {
        let usage = Usage { input: 100, output: 40, cache_read: 30, ..Usage::default() };
        let anthropic = TokenAccounting::of(Dialect::Anthropic).used(&usage);
        assert_eq!(anthropic, Amounts { input: 70, output: 40 });
        let mistral = TokenAccounting::of(Dialect::Mistral);
        let amounts = mistral.used(&usage);
        assert_eq!(mistral.cost(Dimension::Tokens, amounts), 140);
        assert_eq!(mistral.cost(Dimension::InputTokens, amounts), 100);
        assert_eq!(mistral.cost(Dimension::Requests, amounts), 1);
        let gemini = TokenAccounting::of(Dialect::Gemini);
        assert_eq!(gemini.cost(Dimension::Tokens, gemini.used(&usage)), 100);
        assert!(!gemini.counts_output(Dimension::Tokens));
    }
}
