//! What is not wrong enough to stop for, and should be known all the same.

use std::fmt;
use std::num::NonZeroU32;

use crate::error::Origin;
use crate::values::setting::Source;

/// A warning, to be logged by whoever uses the plan. Its `Display` is one line without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A concurrency that could not be used as it was found.
    Concurrency {
        /// Whose, such as `openai` or `openai embeddings`.
        provider: String,
        /// What was done about it.
        warning: tidegate_llm::settings::Warning,
    },
    /// More calls at once for a part of a provider than for all of it.
    InnerConcurrency {
        /// The provider.
        provider: String,
        /// An endpoint or a model of it.
        part: String,
        /// What the part may have.
        limit: NonZeroU32,
        /// What the provider may have.
        most: NonZeroU32,
    },
    /// A cap of concurrencies that cannot be used.
    Cap(tidegate_llm::settings::Warning),
    /// Retries that could not be used as they were found.
    Retries {
        /// Whose.
        provider: String,
        /// The most there can be.
        most: u32,
        /// What is used.
        used: u32,
    },
    /// A key to a provider is to be in a variable that is not set.
    NoKey {
        /// Whose.
        provider: String,
        /// The variable.
        variable: String,
    },
    /// Two variables mean the same setting.
    TwoVariables {
        /// The one that counts.
        used: String,
        /// The other.
        unused: String,
    },
    /// Somebody set a key that no code of this version reads.
    Unused {
        /// The key.
        key: String,
        /// Where it was set.
        origin: Origin,
        /// Why it has no effect, and what to do.
        why: &'static str,
    },
    /// A limit that has the name of a tier of admission and cannot be one.
    NotATier {
        /// Its name.
        limit: &'static str,
    },
    /// Settings that were changed at run time, and no database to keep them.
    NotKept {
        /// How many there are.
        settings: usize,
    },
    /// A change at run time hides what somebody wrote elsewhere.
    Shadowed {
        /// The setting that is hidden.
        key: String,
        /// Its value, as JSON without secrets.
        value: String,
        /// Who wrote it.
        source: Source,
        /// The changed setting that hides it.
        by: String,
        /// The value of that.
        by_value: String,
        /// Where that is kept: in the database, or at run time only.
        by_source: Source,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency { provider, warning } => write!(f, "{provider}: {warning}"),
            Self::InnerConcurrency { provider, part, limit, most } => write!(
                f,
                "{provider} {part}: max_concurrent_requests ({limit}) is above that of the provider \
                 ({most}), which holds for all of its calls together"
            ),
            Self::Cap(warning) => write!(f, "MAX_CONCURRENT_THREADS: {warning}"),
            Self::Retries { provider, most, used } => {
                write!(f, "{provider}: max retries must be from 0 to {most}. Using {used}.")
            }
            Self::NoKey { provider, variable } => write!(
                f,
                "{provider}: {variable} is not set; calls go out with the caller's own key"
            ),
            Self::TwoVariables { used, unused } => {
                write!(f, "{unused} is not used: {used} says the same and wins")
            }
            Self::Unused { key, origin, why } => {
                write!(f, "{origin}: {key} is accepted but not used by this version: {why}")
            }
            Self::NotATier { limit } => write!(
                f,
                "limits.{limit}: is not used as a tier of admission, which takes a token bucket: \
                 a capacity and a rate"
            ),
            Self::NotKept { settings } => write!(
                f,
                "changes made at run time are lost when the program ends: there is no database \
                 (database.url is \"none\"); settings changed so far: {settings}"
            ),
            Self::Shadowed { key, value, source, by, by_value, by_source } => {
                let other = if by == key { String::new() } else { format!("{by} = ") };
                write!(f, "{key}: {value} of the {source} is shadowed by {other}{by_value}")?;
                match by_source {
                    Source::Runtime => {
                        write!(f, ", which was set at run time; unset {by} through the admin API")
                    }
                    _ => write!(f, " of the database; tidegate config unset {by}"),
                }
            }
        }
    }
}
