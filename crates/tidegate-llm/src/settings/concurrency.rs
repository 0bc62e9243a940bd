//! Resolves the number of concurrent calls from configured texts.
//!
//! Bounds apply to the effective value, wherever it comes from. A limit that is missing or invalid
//! becomes 1, and one that is too large becomes the cap. Neither is an error, since the program
//! must start; both return a warning for the caller to log.

use std::fmt;
use std::num::{IntErrorKind, NonZeroU32};

use tidegate_providers::{Dialect, Provider};

/// Default cap, unless `MAX_CONCURRENT_THREADS` sets another.
pub const DEFAULT_CONCURRENCY_CAP: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);

/// A text that is not a number of at least 1.
struct InvalidNumber;

fn parse(text: &str) -> Result<NonZeroU32, InvalidNumber> {
    let number = match text.trim().parse::<i64>() {
        Ok(number) => number,
        // Still a number, above any cap.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
        Err(_) => return Err(InvalidNumber),
    };
    let number = u64::try_from(number).map_err(|_| InvalidNumber)?;
    NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX)).ok_or(InvalidNumber)
}

/// Why a configured value was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConcurrencyWarning {
    /// The limit is missing or invalid.
    NotConfigured,
    /// The limit is above the cap.
    AboveCap {
        /// Configured limit.
        limit: NonZeroU32,
        /// Cap that is used.
        cap: NonZeroU32,
    },
    /// The cap is invalid.
    BadCap {
        /// Cap that is used.
        cap: NonZeroU32,
    },
}

impl fmt::Display for ConcurrencyWarning {
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

/// Returns the default number of concurrent calls to a provider, if known.
#[must_use]
pub fn default_concurrency(provider: &Provider) -> Option<NonZeroU32> {
    concurrency_of(Dialect::of(provider))
}

/// Returns the default number of concurrent calls in a dialect, if known.
pub(crate) const fn concurrency_of(dialect: Dialect) -> Option<NonZeroU32> {
    NonZeroU32::new(match dialect {
        Dialect::OpenAi => 8,
        Dialect::Anthropic => 4,
        Dialect::Ollama => 1,
        Dialect::Mock => 100,
        _ => return None,
    })
}

/// Returns the maximum number of concurrent calls to a provider. `value` is the configured text, if
/// any. The cap does not apply to the mock.
///
/// ```
/// use tidegate_llm::settings::{DEFAULT_CONCURRENCY_CAP, resolve_concurrency};
/// let (limit, warning) = resolve_concurrency(&"openai".into(), Some("100"), DEFAULT_CONCURRENCY_CAP);
/// assert_eq!(limit.get(), 32);
/// let text = "concurrency limit (100) exceeds maximum (32). Capping at 32.";
/// assert_eq!(warning.unwrap().to_string(), text);
/// ```
#[must_use]
pub fn resolve_concurrency(
    provider: &Provider,
    value: Option<&str>,
    cap: NonZeroU32,
) -> (NonZeroU32, Option<ConcurrencyWarning>) {
    let limit = match value.map(parse).transpose() {
        Ok(Some(limit)) => Some(limit),
        Ok(None) => default_concurrency(provider),
        Err(InvalidNumber) => None,
    };
    let exempt = Dialect::of(provider) == Dialect::Mock;
    match limit {
        None => (NonZeroU32::MIN, Some(ConcurrencyWarning::NotConfigured)),
        Some(limit) if limit > cap && !exempt => {
            (cap, Some(ConcurrencyWarning::AboveCap { limit, cap }))
        }
        Some(limit) => (limit, None),
    }
}

/// Returns the cap; `value` is the text of `MAX_CONCURRENT_THREADS`, if set.
#[must_use]
pub fn resolve_concurrency_cap(value: Option<&str>) -> (NonZeroU32, Option<ConcurrencyWarning>) {
    let cap = DEFAULT_CONCURRENCY_CAP;
    match value.map(parse).transpose() {
        Ok(given) => (given.unwrap_or(cap), None),
        Err(InvalidNumber) => (cap, Some(ConcurrencyWarning::BadCap { cap })),
    }
}
