//! Failures on demand: which there are, and when they happen.
//!
//! A fault happens to one call. When is told in advance by a [`Faults`] plan, or at any time by
//! [`Simulator::inject`](crate::Simulator::inject). Everything random comes from the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::dialect::Dialect;
use crate::error::FaultError;
use crate::random::Random;

/// Whether a client is told how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// In the headers and the body, as the provider does it.
    Told,
    /// Nowhere.
    Withheld,
}

/// One way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A 429, though the limits would have allowed the call.
    RateLimited {
        /// What the client is told to wait; `None` tells it nothing.
        retry_after: Option<Duration>,
    },
    /// Every call of the account is refused for a time, this one first.
    LockOut {
        /// How long.
        length: Duration,
        /// Whether refused calls are told how much of it is left.
        hint: Hint,
    },
    /// The answer to a day's quota that is used up. Of Anthropic it is the 400 that names the date
    /// on which access returns; of Gemini it has a `retryDelay` of 22 seconds, which is not true.
    DayQuota,
    /// The account has no credit: `insufficient_quota`, a spend limit, or a 402.
    InsufficientQuota,
    /// A 500.
    ServerError,
    /// A 503.
    Unavailable,
    /// What the provider says when it has more work than it can do: 529 of Anthropic, a 429 of
    /// Azure, 503 elsewhere.
    Overloaded,
    /// The connection is closed in the middle of the answer: after so many tokens of a stream, or
    /// after half of an answer that is not streamed.
    Cut {
        /// Tokens that are sent.
        after: u64,
    },
    /// A stream ends with an error event after so many tokens. An answer that is not streamed is a
    /// 500.
    StreamError {
        /// Tokens that are sent.
        after: u64,
    },
    /// The answer stops coming and the connection stays open until the client leaves: after so many
    /// tokens of a stream, or after half of an answer that is not streamed.
    Stall {
        /// Tokens that are sent.
        after: u64,
    },
    /// The request is read and never answered; the connection stays open until the client leaves.
    Silent,
    /// The first token comes so much later.
    SlowStart(Duration),
    /// The connection is reset before a byte is answered.
    Reset,
    /// A 200 whose body, or whose first event, is not JSON.
    Malformed,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "a rate limit",
            Self::LockOut { .. } => "a lock-out",
            Self::DayQuota => "a day's quota",
            Self::InsufficientQuota => "missing credit",
            Self::ServerError => "a server error",
            Self::Unavailable => "an unavailable server",
            Self::Overloaded => "an overload",
            Self::Cut { .. } => "a cut stream",
            Self::StreamError { .. } => "an error in a stream",
            Self::Stall { .. } => "a stalled answer",
            Self::Silent => "silence",
            Self::SlowStart(_) => "a slow start",
            Self::Reset => "a reset connection",
            Self::Malformed => "a malformed body",
        }
    }

    /// Refuses what a provider never answers.
    pub(crate) fn check(self, dialect: Dialect) -> Result<(), FaultError> {
        use Dialect::{AzureOpenAi, DeepSeek, Mistral, Ollama, Together};
        let unknown = match self {
            Self::RateLimited { .. } | Self::LockOut { .. } => dialect == Ollama,
            Self::DayQuota => matches!(dialect, Ollama | DeepSeek),
            Self::InsufficientQuota => {
                matches!(dialect, Ollama | AzureOpenAi | Mistral | Together)
            }
            _ => false,
        };
        if unknown {
            return Err(FaultError::NotInDialect { dialect, fault: self.name() });
        }
        Ok(())
    }
}

/// When an account fails, and how. The calls of an account are counted from 1, those alone that
/// were understood; the first rule that fits a call decides it.
///
/// ```
/// use std::time::Duration;
/// use tidegate_sim::{Fault, Faults};
///
/// let faults = Faults::new()
///     .on_call(3, Fault::Reset)
///     .between(Duration::from_secs(60), Duration::from_secs(120), Fault::Overloaded)
///     .by_chance(1, 50, Fault::ServerError); // one call in fifty
/// # let _ = faults;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "faults do nothing until an account has them"]
pub struct Faults {
    rules: Vec<(Trigger, Fault)>,
}

#[derive(Clone, Debug)]
enum Trigger {
    Calls(RangeInclusive<u64>),
    Between(Duration, Duration),
    Chance(u64, u64),
}

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The n-th call of the account fails.
    pub fn on_call(self, number: u64, fault: Fault) -> Self {
        self.on_calls(number..=number, fault)
    }

    /// These calls of the account fail.
    pub fn on_calls(mut self, numbers: RangeInclusive<u64>, fault: Fault) -> Self {
        self.rules.push((Trigger::Calls(numbers), fault));
        self
    }

    /// All calls fail from one instant until before another, counted from the simulator's start.
    pub fn between(mut self, from: Duration, to: Duration, fault: Fault) -> Self {
        self.rules.push((Trigger::Between(from, to), fault));
        self
    }

    /// A call fails in `times` of `of` cases, as the seed has it.
    pub fn by_chance(mut self, times: u64, of: u64, fault: Fault) -> Self {
        self.rules.push((Trigger::Chance(times, of), fault));
        self
    }

    pub(crate) fn check(&self, dialect: Dialect) -> Result<(), FaultError> {
        self.rules.iter().try_for_each(|(_, fault)| fault.check(dialect))
    }

    /// What happens to a call.
    pub(crate) fn pick(
        &self,
        number: u64,
        elapsed: Duration,
        random: &mut Random,
    ) -> Option<Fault> {
        let mut picked = None;
        for (trigger, fault) in &self.rules {
            // Every chance is drawn, so that adding a rule does not change what others draw.
            let fits = match trigger {
                Trigger::Calls(numbers) => numbers.contains(&number),
                Trigger::Between(from, to) => (*from..*to).contains(&elapsed),
                Trigger::Chance(times, of) => random.happens(*times, *of),
            };
            if fits {
                picked = picked.or(Some(*fault));
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(faults: &Faults, number: u64, seconds: u64) -> Option<Fault> {
        faults.pick(number, Duration::from_secs(seconds), &mut Random::new(1, number))
    }

    #[test]
    fn first_matching_rule_decides() {
        let faults = Faults::new()
            .on_call(2, Fault::Reset)
            .between(Duration::from_secs(5), Duration::from_secs(7), Fault::Overloaded)
            .by_chance(1, 1, Fault::Malformed);
        assert_eq!(pick(&faults, 2, 6), Some(Fault::Reset));
        assert_eq!(pick(&faults, 3, 5), Some(Fault::Overloaded));
        assert_eq!(pick(&faults, 3, 7), Some(Fault::Malformed));
        assert_eq!(pick(&Faults::new(), 1, 1), None);
    }

    #[test]
    fn unsupported_faults_are_rejected() {
        let limited = Fault::RateLimited { retry_after: None };
        assert!(limited.check(Dialect::OpenAi).is_ok());
        let error = limited.check(Dialect::Ollama).unwrap_err();
        assert_eq!(error.to_string(), "Ollama has no answer for a rate limit");
        assert!(Faults::new().on_call(1, limited).check(Dialect::Ollama).is_err());
        assert!(Fault::DayQuota.check(Dialect::DeepSeek).is_err());
        assert!(Fault::InsufficientQuota.check(Dialect::Together).is_err());
    }
}
