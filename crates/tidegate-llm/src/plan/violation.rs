//! What is wrong with numbers that somebody configured: field, value and rule, all at once.

use std::fmt;
use std::num::NonZeroU32;

/// The rule that a value breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rule {
    /// Zero or less.
    #[error("must be > 0")]
    Positive,
    /// Too small.
    #[error("must be >= {0}")]
    AtLeast(u32),
    /// Too large.
    #[error("must be <= {0}")]
    AtMost(u32),
    /// Not a factor of bursts.
    #[error("must be a number from 1.0 to {0}.0: so many seconds' worth may leave at once")]
    Factor(u32),
    /// Not the name of a time zone.
    #[error("must be a time zone such as UTC or America/Los_Angeles")]
    Zone,
    /// The total of tokens beside its parts.
    #[error("is the total: give it, or input_tokens_per_minute and output_tokens_per_minute")]
    TotalOrParts,
    /// A zone without the quota that it is for.
    #[error("is for requests_per_day, which is not given")]
    ZoneWithoutQuota,
    /// A switch that is on with nothing behind it.
    #[error("must be given where the module is enabled")]
    Missing,
    /// A list that is too long.
    #[error("must have at most {0} items")]
    TooMany(usize),
    /// Not a provider, or a provider and a model.
    #[error("must name providers, such as \"anthropic\" or \"anthropic/claude-sonnet\"")]
    Target,
}

/// One mistake. Its `Display` has the form `requests_per_minute = 0: must be > 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    /// The key, as it is written in a configuration.
    field: &'static str,
    /// The value as it was given.
    value: String,
    /// The rule it breaks.
    rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.field, self.value, self.rule)
    }
}

/// Everything that is wrong with what was given, never the first mistake only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.violations))]
pub struct Invalid {
    violations: Vec<Violation>,
}

impl Invalid {
    /// The mistakes, at least one, in the order of the fields: the key as it is written in a
    /// configuration, the value as it was given, and the rule that it breaks, in words.
    pub fn faults(&self) -> impl ExactSizeIterator<Item = (&'static str, &str, String)> {
        self.violations.iter().map(|violation| {
            (violation.field, violation.value.as_str(), violation.rule.to_string())
        })
    }
}

fn lines(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects mistakes while values are read.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    violations: Vec<Violation>,
}

impl Checks {
    /// The value of a field if it keeps its rule.
    pub(crate) fn check<G: fmt::Debug, T>(
        &mut self,
        field: &'static str,
        given: G,
        check: impl FnOnce(&G) -> Result<T, Rule>,
    ) -> Option<T> {
        match check(&given) {
            Ok(value) => Some(value),
            Err(rule) => {
                self.reject(field, &given, rule);
                None
            }
        }
    }

    /// As [`check`](Self::check), for a field that may be left out.
    pub(crate) fn optional<G: fmt::Debug, T>(
        &mut self,
        field: &'static str,
        given: Option<G>,
        check: impl FnOnce(&G) -> Result<T, Rule>,
    ) -> Option<T> {
        self.check(field, given?, check)
    }

    /// A mistake that takes more than one field to see.
    pub(crate) fn reject(&mut self, field: &'static str, given: &impl fmt::Debug, rule: Rule) {
        /// A value is shown on a line.
        const MAX_CHARS: usize = 64;
        let value = format!("{given:?}");
        let value = match value.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}...", &value[..end]),
            None => value,
        };
        self.violations.push(Violation { field, value, rule });
    }

    /// What was read, unless there is a mistake.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.violations.is_empty() {
            Ok(value)
        } else {
            Err(Invalid { violations: self.violations })
        }
    }
}

/// A whole number of at least one; `least` is the rule that zero and less break.
pub(crate) fn positive(given: i64, least: Rule, most: u32) -> Result<NonZeroU32, Rule> {
    if given <= 0 {
        return Err(least);
    }
    let number = u32::try_from(given).ok().and_then(NonZeroU32::new);
    number.filter(|number| number.get() <= most).ok_or(Rule::AtMost(most))
}

/// A rate: more than zero, and no more than the arithmetic of rates can take.
pub(crate) fn rate(given: i64) -> Result<NonZeroU32, Rule> {
    positive(given, Rule::Positive, u32::MAX)
}

/// The largest burst. Even at one request a minute it is refilled within 100 years, which is as
/// far as a policy may reach.
const MAX_BURST: u32 = 10_000_000;

/// How many may leave at once.
pub(crate) fn burst(given: i64) -> Result<NonZeroU32, Rule> {
    positive(given, Rule::AtLeast(1), MAX_BURST)
}
