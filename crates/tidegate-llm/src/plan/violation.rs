//! Violations in configured values: field, value and rule, collected all at once.

use std::fmt;
use std::num::NonZeroU32;

/// A rule that a value violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rule {
    #[error("must be > 0")]
    Positive,
    #[error("must be >= {0}")]
    AtLeast(u32),
    #[error("must be <= {0}")]
    AtMost(u32),
    /// Burst factor, up to this many seconds.
    #[error("must be a number from 1.0 to {0}.0")]
    Factor(u32),
    #[error("must be a time zone such as UTC or America/Los_Angeles")]
    Zone,
    /// The token total is set together with its parts.
    #[error(
        "is the total of input and output; set either it or input_tokens_per_minute and \
         output_tokens_per_minute"
    )]
    TotalOrParts,
    /// A time zone is set without the daily quota.
    #[error("must not be set without requests_per_day")]
    ZoneWithoutQuota,
    /// A required value of an enabled module is missing.
    #[error("must be set when the module is enabled")]
    Missing,
    #[error("must have at most {0} items")]
    TooMany(usize),
    /// A tier that is not in the tier table.
    #[error("is not a tier of {provider}; known tiers are {known}")]
    UnknownTier { provider: String, known: String },
    #[error("must name providers, such as \"anthropic\" or \"anthropic/claude-sonnet\"")]
    Target,
}

/// One violation. Its `Display` has the form `requests_per_minute = 0: must be > 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    /// Configuration key.
    field: &'static str,
    /// Value as given.
    value: String,
    rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.field, self.value, self.rule)
    }
}

/// Error for invalid values. It lists all violations, not just the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.violations))]
pub struct InvalidSettings {
    violations: Vec<Violation>,
}

impl InvalidSettings {
    /// Returns the violations, at least one, in the order of the fields: the configuration key, the
    /// value as given, and the text of the rule.
    pub fn violations(&self) -> impl ExactSizeIterator<Item = (&'static str, &str, String)> {
        self.violations.iter().map(|violation| {
            (violation.field, violation.value.as_str(), violation.rule.to_string())
        })
    }
}

fn lines(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects violations while values are parsed.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    violations: Vec<Violation>,
}

impl Checks {
    /// Returns the value of a field if it is valid, else records the violation.
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

    /// Checks an optional field like [`check`](Self::check).
    pub(crate) fn optional<G: fmt::Debug, T>(
        &mut self,
        field: &'static str,
        given: Option<G>,
        check: impl FnOnce(&G) -> Result<T, Rule>,
    ) -> Option<T> {
        self.check(field, given?, check)
    }

    /// Records a violation.
    pub(crate) fn reject(&mut self, field: &'static str, given: &impl fmt::Debug, rule: Rule) {
        /// Longer values are truncated.
        const MAX_CHARS: usize = 64;
        let value = format!("{given:?}");
        let value = match value.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}...", &value[..end]),
            None => value,
        };
        self.violations.push(Violation { field, value, rule });
    }

    /// Returns `value` unless violations were recorded.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, InvalidSettings> {
        if self.violations.is_empty() {
            Ok(value)
        } else {
            Err(InvalidSettings { violations: self.violations })
        }
    }
}

/// Parses a number from 1 to `most`; `least` is the rule that smaller numbers violate.
pub(crate) fn positive(given: i64, least: Rule, most: u32) -> Result<NonZeroU32, Rule> {
    if given <= 0 {
        return Err(least);
    }
    let number = u32::try_from(given).ok().and_then(NonZeroU32::new);
    number.filter(|number| number.get() <= most).ok_or(Rule::AtMost(most))
}

/// Parses a rate: a positive 32-bit number.
pub(crate) fn rate(given: i64) -> Result<NonZeroU32, Rule> {
    positive(given, Rule::Positive, u32::MAX)
}

/// Maximum burst. Even at one request per minute it refills within 100 years, the longest refill
/// time of a policy.
const MAX_BURST: u32 = 10_000_000;

/// Parses a burst.
pub(crate) fn burst(given: i64) -> Result<NonZeroU32, Rule> {
    positive(given, Rule::AtLeast(1), MAX_BURST)
}
