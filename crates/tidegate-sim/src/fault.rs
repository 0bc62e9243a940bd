//! Faults: how calls can fail, and when.
//!
//! A fault applies to one call. Faults are scheduled in advance with [`Faults`], or injected at any
//! time with [`Simulator::inject`](crate::Simulator::inject). All randomness comes from the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::dialect::Dialect;
use crate::error::FaultError;
use crate::random::Random;

/// Whether a response says how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// In headers and body, like the provider does.
    Sent,
    /// Not at all.
    Withheld,
}

/// A way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A 429 although the limits would allow the call.
    RateLimited {
        /// The wait to report; `None` reports none.
        retry_after: Option<Duration>,
    },
    /// Rejects this and all other calls of the account for a time.
    LockOut {
        /// Length of the lock-out.
        length: Duration,
        /// Whether rejections report the time left.
        hint: Hint,
    },
    /// The response to an exhausted daily quota. For Anthropic, a 400 with the date on which access
    /// returns; for Gemini, a 429 with a misleading `retryDelay` of 22 seconds.
    DayQuota,
    /// The account has no credit: `insufficient_quota`, a spend limit, or a 402.
    InsufficientQuota,
    /// A 500.
    ServerError,
    /// A 503.
    Unavailable,
    /// The provider is overloaded: 529 for Anthropic, 429 for Azure, 503 for others.
    Overloaded,
    /// Closes the connection in the middle of the response: after some tokens of a stream, or after
    /// half of a response that is not streamed.
    Cut {
        /// Number of tokens sent before.
        after: u64,
    },
    /// Ends a stream with an error event after some tokens. A response that is not streamed is a
    /// 500.
    StreamError {
        /// Number of tokens sent before.
        after: u64,
    },
    /// Stops sending but keeps the connection open until the client disconnects: after some tokens
    /// of a stream, or after half of a response that is not streamed.
    Stall {
        /// Number of tokens sent before.
        after: u64,
    },
    /// Reads the request and never responds; the connection stays open until the client
    /// disconnects.
    Silent,
    /// Delays the first token.
    SlowStart(Duration),
    /// Resets the connection before sending anything.
    Reset,
    /// A 200 whose body, or first event, is not valid JSON.
    Malformed,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "a rate limit",
            Self::LockOut { .. } => "a lock-out",
            Self::DayQuota => "a day's quota",
            Self::InsufficientQuota => "exhausted credit",
            Self::ServerError => "a server error",
            Self::Unavailable => "an unavailable server",
            Self::Overloaded => "an overload",
            Self::Cut { .. } => "a cut stream",
            Self::StreamError { .. } => "an error in a stream",
            Self::Stall { .. } => "a stalled response",
            Self::Silent => "silence",
            Self::SlowStart(_) => "a slow start",
            Self::Reset => "a reset connection",
            Self::Malformed => "a malformed body",
        }
    }

    /// Rejects a fault that the provider does not have.
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

/// A schedule of faults of an account. Calls are counted from 1; malformed requests do not count.
/// The first rule that matches a call applies.
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
#[must_use = "faults do nothing until they are added to an account"]
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
    /// Creates an empty schedule.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the call with this number fail.
    pub fn on_call(self, number: u64, fault: Fault) -> Self {
        self.on_calls(number..=number, fault)
    }

    /// Makes the calls with these numbers fail.
    pub fn on_calls(mut self, numbers: RangeInclusive<u64>, fault: Fault) -> Self {
        self.rules.push((Trigger::Calls(numbers), fault));
        self
    }

    /// Makes all calls fail in a period, measured from the start of the simulator; `to` is
    /// excluded.
    pub fn between(mut self, from: Duration, to: Duration, fault: Fault) -> Self {
        self.rules.push((Trigger::Between(from, to), fault));
        self
    }

    /// Makes calls fail at random, with probability `times` / `of`, determined by the seed.
    pub fn by_chance(mut self, times: u64, of: u64, fault: Fault) -> Self {
        self.rules.push((Trigger::Chance(times, of), fault));
        self
    }

    pub(crate) fn check(&self, dialect: Dialect) -> Result<(), FaultError> {
        self.rules.iter().try_for_each(|(_, fault)| fault.check(dialect))
    }

    /// Returns the fault of a call, if any.
    pub(crate) fn pick(
        &self,
        number: u64,
        elapsed: Duration,
        random: &mut Random,
    ) -> Option<Fault> {
        let mut picked = None;
        for (trigger, fault) in &self.rules {
            // Draw for every rule, so that adding a rule does not change the draws of others.
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
        assert_eq!(error.to_string(), "Ollama has no error for a rate limit");
        assert!(Faults::new().on_call(1, limited).check(Dialect::Ollama).is_err());
        assert!(Fault::DayQuota.check(Dialect::DeepSeek).is_err());
        assert!(Fault::InsufficientQuota.check(Dialect::Together).is_err());
    }
}
