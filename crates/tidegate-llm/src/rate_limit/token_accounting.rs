//! What a call is charged, by the provider's own rule.
//!
//! Providers charge an estimate when a call is admitted, and some correct it afterwards. Whoever
//! reserves less than the provider does is refused "below quota"; whoever reserves more wastes it.
//! What providers report corrects a rule that is not documented.

use tidegate_providers::{Dialect, Dimension, Usage};

/// How the output of a call is charged. Each rule leaves at least as much in the provider's bucket as
/// the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutputCharge {
    /// What the call allows itself by `max_tokens`, when it is admitted. What it does not use is lost.
    MaxTokens,
    /// What the call allows itself by `max_tokens`, when it is admitted. What it does not use is given
    /// back at its end.
    MaxTokensRefunded,
    /// What was used, when it has ended.
    ActualUsage,
}

/// Whether input tokens that were in the provider's cache are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedTokens {
    /// Like others.
    Counted,
    /// They are free.
    Free,
}

/// What a limit on tokens as such is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenScope {
    /// Input and output.
    Both,
    /// The input alone.
    Input,
}

/// How a provider charges. [`Charging::of`] is the rule of a dialect; setters change one part.
///
/// How output is charged is where an account begins; it learns from what the provider reports, admits
/// and refuses, for each model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenAccounting {
    output: OutputCharge,
    cached: CachedTokens,
    tokens: TokenScope,
}

/// Tokens of a call, expected or used.
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
    /// The rule of a dialect:
    ///
    /// | dialect | output | cached tokens | a limit on tokens is of |
    /// | --- | --- | --- | --- |
    /// | OpenAI, Azure | `max_tokens`, kept | count | both |
    /// | Anthropic, Groq | `max_tokens`, given back | are free | both |
    /// | Gemini | at the end | count | input |
    /// | others | at the end | count | both |
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

    /// How output is charged, to begin with.
    pub(crate) const fn output(mut self, output: OutputCharge) -> Self {
        self.output = output;
        self
    }

    /// Whether cached tokens are charged.
    pub(crate) const fn cached_tokens(mut self, cached: CachedTokens) -> Self {
        self.cached = cached;
        self
    }

    /// What a limit on tokens as such is about.
    pub(crate) const fn tokens(mut self, tokens: TokenScope) -> Self {
        self.tokens = tokens;
        self
    }

    /// How output is charged before anything was learned.
    pub(crate) const fn initial_rule(self) -> OutputCharge {
        self.output
    }

    /// What a call is charged for certain under a rule, whatever it uses.
    pub(crate) fn certain(rule: OutputCharge, input: u64, max_output: Option<u64>) -> Amounts {
        let output = match rule {
            OutputCharge::MaxTokens | OutputCharge::MaxTokensRefunded => max_output.unwrap_or(0),
            OutputCharge::ActualUsage => 0,
        };
        Amounts { input, output }
    }

    /// What a call is charged while it is under way: counted input, and output as it allows itself or
    /// as was learned.
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
            _ => Self::likely(input, learned, max_output),
        }
    }

    /// What a call will use, as far as was learned.
    pub(crate) fn likely(input: u64, learned: u64, max_output: Option<u64>) -> Amounts {
        Amounts { input, output: learned.min(max_output.unwrap_or(u64::MAX)) }
    }

    /// What a call has used, in tokens that are charged.
    pub(crate) fn used(self, usage: &Usage) -> Amounts {
        let input = match self.cached {
            CachedTokens::Counted => usage.input,
            CachedTokens::Free => usage.input.saturating_sub(usage.cache_read),
        };
        Amounts { input, output: usage.output }
    }

    /// Whether a limit counts output.
    pub(crate) const fn counts_output(self, dimension: Dimension) -> bool {
        match dimension {
            Dimension::OutputTokens => true,
            Dimension::Tokens => matches!(self.tokens, TokenScope::Both),
            _ => false,
        }
    }

    /// The charge in one dimension.
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
    fn output_is_reserved_by_the_rule_of_the_provider() {
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
    fn tokens_are_counted_as_the_provider_counts_them() {
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
