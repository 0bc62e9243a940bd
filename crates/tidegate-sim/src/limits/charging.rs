//! Charging rules: what a call is charged at admission, and after its usage is known.
//!
//! Defaults follow the documentation of the provider. Undocumented rules have a simple default and
//! are marked as such.

use crate::dialect::Dialect;

/// What a call is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCharge {
    /// Requests: 1, or 0 if the call does not count.
    pub requests: u64,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

impl CallCharge {
    /// Returns input and output tokens together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    pub(crate) const fn of_use(input: u64, output: u64) -> Self {
        Self { requests: 1, input, output }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// What is charged for the output at admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputReserve {
    /// Nothing; the output is charged when it is known.
    Nothing,
    /// The `max_tokens` of the request, or `unset` without it.
    MaxTokens {
        /// Charge for a request without `max_tokens`.
        unset: u64,
    },
}

/// Whether a charge is corrected after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettlementRule {
    /// The estimate is final.
    Never,
    /// The charge is corrected to the usage, up or down; for a cut stream, to what was sent.
    ToUsage,
}

/// Whether cached input tokens are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CachedTokens {
    /// Cached tokens are charged like others.
    Count,
    /// Cached tokens are not charged.
    Free,
}

/// Whether failed and rejected calls are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailedCalls {
    /// A rejected call counts as a request of its minute; a call that ends in a server error keeps
    /// its full charge.
    Count,
    /// A rejected call costs nothing; a call that ends in a server error is refunded.
    Free,
}

/// How a provider charges. [`Charging::of`] returns the rules of a dialect; setters change single
/// rules, or both rules that determine the cost of output.
///
/// ```
/// use tidegate_sim::{Charging, Dialect, OutputReserve};
///
/// // Whether Anthropic reserves output by `max_tokens` has changed over the years.
/// let charging = Charging::of(Dialect::Anthropic).output(OutputReserve::Nothing);
/// assert_eq!(charging, Charging::of(Dialect::Anthropic).charge_at_end());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "charging rules do nothing until they are added to an account"]
pub struct Charging {
    pub(crate) output: OutputReserve,
    pub(crate) settlement: SettlementRule,
    pub(crate) cached: CachedTokens,
    pub(crate) failed: FailedCalls,
}

impl Charging {
    /// Returns the rules of a dialect:
    ///
    /// | dialect | output at admission | settled | cached tokens | failed calls |
    /// | --- | --- | --- | --- | --- |
    /// | OpenAI | `max_tokens`, else 16 | never | count | count |
    /// | Azure OpenAI | `max_tokens` × `best_of`, else 16 | never | count | are free |
    /// | Anthropic | `max_tokens` | to usage | are free | are free |
    /// | Gemini | nothing; its limit is on input alone | to usage | count | are free |
    /// | Groq | `max_tokens`, else nothing | to usage | are free | are free |
    /// | others | nothing | to usage | count | are free |
    ///
    /// Input is always charged at admission, by an estimate from its characters. What OpenAI and
    /// Azure charge for a request without `max_tokens`, and whether Groq settles, is undocumented;
    /// those cells are guesses.
    pub fn of(dialect: Dialect) -> Self {
        let settled = Self {
            output: OutputReserve::Nothing,
            settlement: SettlementRule::ToUsage,
            cached: CachedTokens::Count,
            failed: FailedCalls::Free,
        };
        let estimate = OutputReserve::MaxTokens { unset: 16 };
        let max_tokens = OutputReserve::MaxTokens { unset: 0 };
        match dialect {
            Dialect::OpenAi => settled
                .output(estimate)
                .settlement(SettlementRule::Never)
                .failed_calls(FailedCalls::Count),
            Dialect::AzureOpenAi => settled.output(estimate).settlement(SettlementRule::Never),
            Dialect::Anthropic | Dialect::Groq => {
                settled.output(max_tokens).cached_tokens(CachedTokens::Free)
            }
            _ => settled,
        }
    }

    /// Sets what is charged for the output at admission.
    pub fn output(mut self, output: OutputReserve) -> Self {
        self.output = output;
        self
    }

    /// Sets whether the charge is corrected after the response.
    pub fn settlement(mut self, settlement: SettlementRule) -> Self {
        self.settlement = settlement;
        self
    }

    /// Sets whether cached input tokens are charged.
    pub fn cached_tokens(mut self, cached: CachedTokens) -> Self {
        self.cached = cached;
        self
    }

    /// Sets whether failed and rejected calls are charged.
    pub fn failed_calls(mut self, failed: FailedCalls) -> Self {
        self.failed = failed;
        self
    }

    /// Charges `max_tokens` at admission and never settles: a short response costs as much as a
    /// long one.
    ///
    /// The charge of a request without `max_tokens` does not change; it is 0 if nothing was
    /// reserved before.
    pub fn keep_reserved(self) -> Self {
        self.output(self.max_tokens()).settlement(SettlementRule::Never)
    }

    /// Charges `max_tokens` at admission and refunds what the response did not use.
    ///
    /// The charge of a request without `max_tokens` does not change; it is 0 if nothing was
    /// reserved before.
    pub fn refund_unused(self) -> Self {
        self.output(self.max_tokens()).settlement(SettlementRule::ToUsage)
    }

    /// Charges the output when the call ends, if necessary into debt.
    pub fn charge_at_end(self) -> Self {
        self.output(OutputReserve::Nothing).settlement(SettlementRule::ToUsage)
    }

    fn max_tokens(&self) -> OutputReserve {
        match self.output {
            OutputReserve::MaxTokens { .. } => self.output,
            OutputReserve::Nothing => OutputReserve::MaxTokens { unset: 0 },
        }
    }

    /// Returns the charge at admission.
    pub(crate) fn admission(&self, estimate: &Estimate) -> CallCharge {
        let output = match self.output {
            OutputReserve::Nothing => 0,
            OutputReserve::MaxTokens { unset } => {
                estimate.max_output.unwrap_or(unset).saturating_mul(estimate.attempts)
            }
        };
        CallCharge { requests: 1, input: self.input(estimate.input, estimate.cached), output }
    }

    /// Returns the charge after the usage is known.
    pub(crate) fn settled(
        &self,
        admitted: CallCharge,
        input: u64,
        cached: u64,
        output: u64,
    ) -> CallCharge {
        match self.settlement {
            SettlementRule::Never => admitted,
            SettlementRule::ToUsage => {
                CallCharge { input: self.input(input, cached), output, ..admitted }
            }
        }
    }

    fn input(&self, tokens: u64, cached: u64) -> u64 {
        match self.cached {
            CachedTokens::Count => tokens,
            CachedTokens::Free => tokens.saturating_sub(cached),
        }
    }
}

/// What is known about a call at admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// Input tokens, from the characters of the prompt.
    pub(crate) input: u64,
    /// Input tokens in the provider's cache.
    pub(crate) cached: u64,
    /// `max_tokens` of the request.
    pub(crate) max_output: Option<u64>,
    /// Number of generated responses, of which one is returned (`best_of`).
    pub(crate) attempts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(max_output: Option<u64>) -> Estimate {
        Estimate { input: 100, cached: 30, max_output, attempts: 2 }
    }

    fn tokens(charge: CallCharge) -> (u64, u64) {
        (charge.input, charge.output)
    }

    #[test]
    fn dialects_have_their_own_admission_charge() {
        for (dialect, unset, limited) in [
            (Dialect::OpenAi, (100, 32), (100, 1_000)),
            (Dialect::AzureOpenAi, (100, 32), (100, 1_000)),
            (Dialect::Anthropic, (70, 0), (70, 1_000)),
            (Dialect::Groq, (70, 0), (70, 1_000)),
            (Dialect::Gemini, (100, 0), (100, 0)),
            (Dialect::Mistral, (100, 0), (100, 0)),
        ] {
            let charging = Charging::of(dialect);
            assert_eq!(tokens(charging.admission(&estimate(None))), unset, "{dialect:?}");
            assert_eq!(tokens(charging.admission(&estimate(Some(500)))), limited, "{dialect:?}");
        }
    }

    #[test]
    fn only_some_dialects_settle_to_usage() {
        let admitted = CallCharge { requests: 1, input: 100, output: 500 };
        let settled = |dialect| tokens(Charging::of(dialect).settled(admitted, 110, 10, 50));
        assert_eq!(settled(Dialect::OpenAi), (100, 500));
        assert_eq!(settled(Dialect::AzureOpenAi), (100, 500));
        assert_eq!(settled(Dialect::Anthropic), (100, 50));
        assert_eq!(settled(Dialect::Mistral), (110, 50));
    }

    #[test]
    fn named_rules_set_only_reserve_and_settlement() {
        for (dialect, unset) in
            [(Dialect::OpenAi, 16), (Dialect::Anthropic, 0), (Dialect::Mistral, 0)]
        {
            let rule = Charging::of(dialect);
            let max_tokens = OutputReserve::MaxTokens { unset };
            for (named, output, settlement) in [
                (rule.keep_reserved(), max_tokens, SettlementRule::Never),
                (rule.refund_unused(), max_tokens, SettlementRule::ToUsage),
                (rule.charge_at_end(), OutputReserve::Nothing, SettlementRule::ToUsage),
            ] {
                assert_eq!(named, rule.output(output).settlement(settlement), "{dialect}");
            }
        }
    }
}
