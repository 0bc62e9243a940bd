//! What a call is charged, by the provider's own rule.
//!
//! Providers charge an estimate when a call is admitted, and some correct it afterwards. Whoever
//! reserves less than the provider does is refused "below quota"; whoever reserves more wastes it.
//! Where the rule is not documented, it is a knob, and what providers tell corrects the rest.

use tidegate_providers::{Dialect, Dimension, Usage};

/// What is reserved for the output when a call goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputReserve {
    /// What calls of this model used to use, at most what the call allows itself.
    Learned,
    /// What the call allows itself by `max_tokens`; what calls used to use if it does not say.
    MaxTokens,
}

/// What becomes of the charge when it is known what was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// It becomes what was used.
    ToUsage,
    /// It stays as it was, as the provider's does.
    Never,
}

/// Whether input tokens that were in the provider's cache are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CachedTokens {
    /// Like others.
    Count,
    /// They are free.
    AreFree,
}

/// What a limit on tokens as such is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// Input and output.
    Both,
    /// The input alone.
    Input,
}

/// How a provider charges. [`Charging::of`] is the rule of a dialect; setters change one part.
///
/// ```
/// use tidegate_providers::Dialect;
/// use tidegate_llm::rate_limit::{Charging, OutputReserve};
/// // Whether Anthropic reserves output by `max_tokens` has changed over the years.
/// let charging = Charging::of(Dialect::Anthropic).output(OutputReserve::Learned);
/// # let _ = charging;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charging {
    output: OutputReserve,
    settlement: Settlement,
    cached: CachedTokens,
    tokens: Tokens,
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

impl Charging {
    /// The rule of a dialect:
    ///
    /// | dialect | output when it goes out | settled | cached tokens | a limit on tokens is of |
    /// | --- | --- | --- | --- | --- |
    /// | OpenAI, Azure | `max_tokens` | never | count | both |
    /// | Anthropic, Groq | `max_tokens` | to usage | are free | both |
    /// | Gemini | learned | to usage | count | input |
    /// | others | learned | to usage | count | both |
    #[must_use]
    pub const fn of(dialect: Dialect) -> Self {
        let usual = Self {
            output: OutputReserve::Learned,
            settlement: Settlement::ToUsage,
            cached: CachedTokens::Count,
            tokens: Tokens::Both,
        };
        match dialect {
            Dialect::OpenAi | Dialect::Azure => {
                usual.output(OutputReserve::MaxTokens).settlement(Settlement::Never)
            }
            Dialect::Anthropic | Dialect::Groq => {
                usual.output(OutputReserve::MaxTokens).cached_tokens(CachedTokens::AreFree)
            }
            Dialect::Gemini => usual.tokens(Tokens::Input),
            _ => usual,
        }
    }

    /// What is reserved for the output.
    #[must_use]
    pub const fn output(mut self, output: OutputReserve) -> Self {
        self.output = output;
        self
    }

    /// What becomes of the charge afterwards.
    #[must_use]
    pub const fn settlement(mut self, settlement: Settlement) -> Self {
        self.settlement = settlement;
        self
    }

    /// Whether cached tokens are charged.
    #[must_use]
    pub const fn cached_tokens(mut self, cached: CachedTokens) -> Self {
        self.cached = cached;
        self
    }

    /// What a limit on tokens as such is about.
    #[must_use]
    pub const fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Whether more is reserved than is used in the end, and given back then. A bucket for that must
    /// hold what the provider's does, or what is given back does not fit into it.
    pub(crate) const fn is_generous(self) -> bool {
        matches!((self.output, self.settlement), (OutputReserve::MaxTokens, Settlement::ToUsage))
    }

    /// What a call is charged for certain, whatever it uses.
    pub(crate) fn certain(self, input: u64, max_output: Option<u64>) -> Amounts {
        let output = match self.output {
            OutputReserve::MaxTokens => max_output.unwrap_or(0),
            OutputReserve::Learned => 0,
        };
        Amounts { input, output }
    }

    /// What a call is expected to be charged: counted input, learned output, its own bound.
    pub(crate) fn expected(self, input: u64, learned: u64, max_output: Option<u64>) -> Amounts {
        let output = match (self.output, max_output) {
            (OutputReserve::MaxTokens, Some(most)) => most,
            (OutputReserve::Learned, Some(most)) => learned.min(most),
            (_, None) => learned,
        };
        Amounts { input, output }
    }

    /// What a call is charged in the end. `None`: what it was charged at first.
    pub(crate) fn settled(self, usage: &Usage) -> Option<Amounts> {
        let input = match self.cached {
            CachedTokens::Count => usage.input,
            CachedTokens::AreFree => usage.input.saturating_sub(usage.cache_read),
        };
        let amounts = Amounts { input, output: usage.output };
        (self.settlement == Settlement::ToUsage).then_some(amounts)
    }

    /// The charge in one dimension.
    pub(crate) fn cost(self, dimension: Dimension, amounts: Amounts) -> u64 {
        match (dimension, self.tokens) {
            (Dimension::Requests | Dimension::RequestsPerDay, _) => 1,
            (Dimension::InputTokens, _) | (Dimension::Tokens, Tokens::Input) => amounts.input,
            (Dimension::OutputTokens, _) => amounts.output,
            (Dimension::Tokens, Tokens::Both) => amounts.input.saturating_add(amounts.output),
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
            let charging = Charging::of(dialect);
            assert_eq!(charging.expected(7, 200, None).output, unset, "{dialect:?}");
            assert_eq!(charging.expected(7, 200, Some(1_000)).output, bounded, "{dialect:?}");
        }
        assert_eq!(Charging::of(Dialect::Mistral).expected(7, 200, Some(50)).output, 50);
    }

    #[test]
    fn a_charge_is_settled_as_the_provider_settles_it() {
        let usage = Usage { input: 100, output: 40, cache_read: 30, ..Usage::default() };
        assert_eq!(Charging::of(Dialect::OpenAi).settled(&usage), None);
        let anthropic = Charging::of(Dialect::Anthropic).settled(&usage).unwrap();
        assert_eq!(anthropic, Amounts { input: 70, output: 40 });
        let mistral = Charging::of(Dialect::Mistral);
        let amounts = mistral.settled(&usage).unwrap();
        assert_eq!(mistral.cost(Dimension::Tokens, amounts), 140);
        assert_eq!(mistral.cost(Dimension::InputTokens, amounts), 100);
        assert_eq!(mistral.cost(Dimension::Requests, amounts), 1);
        let gemini = Charging::of(Dialect::Gemini);
        assert_eq!(gemini.cost(Dimension::Tokens, gemini.settled(&usage).unwrap()), 100);
    }
}
