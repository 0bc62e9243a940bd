//! How many calls may be under way at once, from whatever was configured.
//!
//! Bounds hold for the value that is in force, wherever it comes from: a limit that nobody set, or
//! that cannot be read, is one, and one that is too large is the cap. Neither is an error, since a
//! program must start; both are warnings, to be logged by who asked.

use std::fmt;
use std::num::{IntErrorKind, NonZeroU32};

use tidegate_providers::{Dialect, Provider};

/// The cap unless `MAX_CONCURRENT_THREADS` says otherwise.
pub const DEFAULT_CONCURRENCY_CAP: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);

/// What is no number of at least one.
struct InvalidNumber;

/// The number that a text is.
fn parse(text: &str) -> Result<NonZeroU32, InvalidNumber> {
    let number = match text.trim().parse::<i64>() {
        Ok(number) => number,
        // A number all the same, and above any cap.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
        Err(_) => return Err(InvalidNumber),
    };
    let number = u64::try_from(number).map_err(|_| InvalidNumber)?;
    NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX)).ok_or(InvalidNumber)
}

/// What was done about a value that could not be used as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// There is no limit that could be used.
    NotConfigured,
    /// The limit is above the cap.
    AboveCap {
        /// What was configured.
        limit: NonZeroU32,
        /// What is used.
        cap: NonZeroU32,
    },
    /// The cap itself cannot be used.
    BadCap {
        /// What is used.
        cap: NonZeroU32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfigured => {
                f.write_str("concurrency limit not configured. Defaulting to 1 for safety.")
            }
            Self::AboveCap { limit, cap } => {
                write!(f, "concurrency limit ({limit}) exceeds maximum ({cap}). Capping at {cap}.")
            }
            Self::BadCap { cap } => {
                write!(f, "maximum of concurrency limits is not a number >= 1. Using {cap}.")
            }
        }
    }
}

/// What a provider takes at once where nothing is configured, if that is known.
#[must_use]
pub fn default_concurrency(provider: &Provider) -> Option<NonZeroU32> {
    concurrency_of(Dialect::of(provider))
}

/// The same by dialect.
pub(crate) const fn concurrency_of(dialect: Dialect) -> Option<NonZeroU32> {
    NonZeroU32::new(match dialect {
        Dialect::OpenAi => 8,
        Dialect::Anthropic => 4,
        Dialect::Ollama => 1,
        Dialect::Mock => 100,
        _ => return None,
    })
}

/// How many calls to a provider may be under way at once, from the text of what was configured:
/// `None` if nothing was. The cap does not hold for the mock,
/// which costs nobody anything.
///
/// ```
/// use tidegate_llm::settings::{DEFAULT_CONCURRENCY_CAP, resolve_concurrency};
/// let (limit, warning) = resolve_concurrency(&"openai".into(), Some("100"), DEFAULT_CONCURRENCY_CAP);
/// assert_eq!(limit.get(), 32);
/// let told = "concurrency limit (100) exceeds maximum (32). Capping at 32.";
/// assert_eq!(warning.unwrap().to_string(), told);
/// ```
#[must_use]
pub fn resolve_concurrency(
    provider: &Provider,
    value: Option<&str>,
    cap: NonZeroU32,
) -> (NonZeroU32, Option<Warning>) {
    let limit = match value.map(parse).transpose() {
        Ok(Some(limit)) => Some(limit),
        Ok(None) => default_concurrency(provider),
        Err(InvalidNumber) => None,
    };
    let exempt = Dialect::of(provider) == Dialect::Mock;
    match limit {
        None => (NonZeroU32::MIN, Some(Warning::NotConfigured)),
        Some(limit) if limit > cap && !exempt => (cap, Some(Warning::AboveCap { limit, cap })),
        Some(limit) => (limit, None),
    }
}

/// The cap, from what `MAX_CONCURRENT_THREADS` says.
#[must_use]
pub fn resolve_concurrency_cap(value: Option<&str>) -> (NonZeroU32, Option<Warning>) {
    let cap = DEFAULT_CONCURRENCY_CAP;
    match value.map(parse).transpose() {
        Ok(given) => (given.unwrap_or(cap), None),
        Err(InvalidNumber) => (cap, Some(Warning::BadCap { cap })),
    }
}
