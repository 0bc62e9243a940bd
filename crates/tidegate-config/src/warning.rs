//! Problems in a configuration that do not prevent the program from starting.

use std::fmt;
use std::num::NonZeroU32;

use crate::error::Origin;
use crate::values::setting::Source;

/// A configuration warning, to be logged by the caller. Its `Display` is one line without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A concurrency limit was replaced by a usable one.
    Concurrency {
        /// Provider and, if any, endpoint or model, such as `openai` or `openai embeddings`.
        provider: String,
        /// Reason and replacement.
        warning: tidegate_llm::settings::ConcurrencyWarning,
    },
    /// An endpoint or model allows more concurrent calls than its provider.
    InnerConcurrency {
        /// Name of the provider.
        provider: String,
        /// Name of the endpoint or model.
        part: String,
        /// Concurrency of the endpoint or model.
        limit: NonZeroU32,
        /// Concurrency of the provider.
        most: NonZeroU32,
    },
    /// `MAX_CONCURRENT_THREADS` is invalid and was replaced.
    Cap(tidegate_llm::settings::ConcurrencyWarning),
    /// An invalid number of retries was replaced.
    InvalidRetries {
        /// Name of the provider.
        provider: String,
        /// Largest allowed value.
        most: u32,
        /// The value used instead.
        used: u32,
    },
    /// The variable named by `api_key_env` is not set.
    ApiKeyNotSet {
        /// Name of the provider.
        provider: String,
        /// Name of the variable.
        variable: String,
    },
    /// Two variables set the same setting.
    ConflictingVariables {
        /// The variable in effect.
        used: String,
        /// The ignored variable.
        unused: String,
    },
    /// A key is set that this version accepts but does not use.
    Unused {
        /// Path of the key.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// Why it has no effect, and what to do.
        why: &'static str,
    },
    /// A key is set that only the library uses.
    LibraryOnly {
        /// Path of the key.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// Why the program does not use it, and what to do.
        why: &'static str,
    },
    /// A limit has the name of an admission tier but is not a token bucket.
    NotATier {
        /// Name of the limit.
        limit: &'static str,
    },
    /// Settings were changed at run time, and no database keeps them.
    LostOnRestart {
        /// Number of changed settings.
        settings: usize,
    },
    /// A change at run time overrides a value of the file or the environment.
    Shadowed {
        /// Path of the shadowed setting.
        key: String,
        /// Its value, as JSON without secrets.
        value: String,
        /// Layer of the shadowed value.
        source: Source,
        /// Path of the setting that shadows it.
        by: String,
        /// Value of the shadowing setting.
        by_value: String,
        /// Layer of the shadowing setting: the database, or run time only.
        by_source: Source,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency { provider, warning } => write!(f, "{provider}: {warning}"),
            Self::InnerConcurrency { provider, part, limit, most } => write!(
                f,
                "{provider} {part}: max_concurrent_requests ({limit}) exceeds that of the provider \
                 ({most}), which limits all of its calls together"
            ),
            Self::Cap(warning) => write!(f, "MAX_CONCURRENT_THREADS: {warning}"),
            Self::InvalidRetries { provider, most, used } => {
                write!(f, "{provider}: max_retries must be from 0 to {most}; using {used}")
            }
            Self::ApiKeyNotSet { provider, variable } => write!(
                f,
                "{provider}: {variable} is not set; calls go out with the caller's own key"
            ),
            Self::ConflictingVariables { used, unused } => {
                write!(f, "{unused} is ignored: {used} sets the same key and takes precedence")
            }
            Self::Unused { key, origin, why } => {
                write!(f, "{origin}: {key} is accepted but not used by this version: {why}")
            }
            Self::LibraryOnly { key, origin, why } => {
                write!(f, "{origin}: {key} is used by the library only: {why}")
            }
            Self::NotATier { limit } => write!(
                f,
                "limits.{limit} is not used as an admission tier: a tier must be a token bucket \
                 with capacity and rate"
            ),
            Self::LostOnRestart { settings } => write!(
                f,
                "changes made at run time will be lost on restart, because there is no database \
                 (database.url is \"none\"); settings changed so far: {settings}"
            ),
            Self::Shadowed { key, value, source, by, by_value, by_source } => {
                let other = if by == key { String::new() } else { format!("{by} = ") };
                write!(f, "{key}: {value} of the {source} is shadowed by {other}{by_value}")?;
                match by_source {
                    Source::Runtime => {
                        write!(
                            f,
                            ", which was set at run time; to remove it, unset {by} in the \
                                   admin API"
                        )
                    }
                    _ => write!(
                        f,
                        " of the database; to remove it, run `tidegate config unset \
                                    {by}`"
                    ),
                }
            }
        }
    }
}
