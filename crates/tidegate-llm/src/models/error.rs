//! Why a model cannot be loaded.

use tidegate_providers::Provider;
use tidegate_providers::request::TargetError;

use crate::fallback::ChainError;
use crate::plan::Invalid;
use crate::rate_limit::AccountError;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nobody said which model, and the provider has no default.
    #[error("no model was named for {0}, and it has no default")]
    NoModel(Provider),
    /// Nobody said where the provider is.
    #[error("the address of {0} is not known: set its base URL")]
    NoAddress(Provider),
    /// The address, the model or the key cannot be used.
    #[error("{provider} cannot be called")]
    Target {
        /// Who.
        provider: Provider,
        /// Why.
        #[source]
        source: TargetError,
    },
    /// A setting of a module makes no sense.
    #[error("a setting of the module {module} makes no sense")]
    Setting {
        /// Which module.
        module: &'static str,
        /// What is wrong.
        #[source]
        source: Invalid,
    },
    /// The chain of fallbacks is none.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The limits cannot be kept.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No model of the provider was loaded with this key, so there is nothing to change.
    #[error("no model of {0} was loaded with this key")]
    NotLoaded(Provider),
    /// Another loader has set other limits, and this registry is strict.
    #[error("limits of {provider} are {present} already, not {wanted}")]
    Conflict {
        /// Whose limits.
        provider: Provider,
        /// What they are.
        present: String,
        /// What was asked for.
        wanted: String,
    },
}
