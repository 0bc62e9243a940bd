//! Why a model cannot be loaded.

use tidegate_providers::Provider;
use tidegate_providers::request::RequestError;

use crate::plan::Invalid;
use tidegate::LimitError;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No model was named, and the provider has no default.
    #[error(
        "no model of {0} was named and it has no default: \
         pass a name to `load_model` or set `Profile::model`"
    )]
    NoModel(Provider),
    /// The address of the provider is not known.
    #[error("the base URL of {0} is not known: set `Profile::base_url`")]
    NoAddress(Provider),
    /// The registry has no HTTP client.
    #[error(
        "no HTTP client to call {0}: set `ModelsBuilder::http`, or `ModelsBuilder::backend` in tests"
    )]
    NoClient(Provider),
    /// The address, the model or the key cannot be used.
    #[error("{provider} cannot be called: {source}")]
    Target {
        /// The provider.
        provider: Provider,
        /// What cannot be used.
        source: RequestError,
    },
    /// A setting of a module breaks its rule.
    #[error("the settings of module `{module}` are invalid: {source}")]
    Setting {
        /// The module.
        module: &'static str,
        /// Every value that breaks its rule.
        source: Invalid,
    },
    /// The limits cannot be kept.
    #[error("the limits of {provider} cannot be set: {source}")]
    Account {
        /// The provider.
        provider: Provider,
        /// Which limit, and why.
        source: LimitError,
    },
    /// No model of the provider was loaded with this key, so there is nothing to change.
    #[error("no model of {0} was loaded with this key: load one before `reconfigure`")]
    NotLoaded(Provider),
    /// The account has other limits already, and this registry is strict.
    #[error(
        "limits of {provider} are {present} already, not {wanted}: \
         use `Models::reconfigure` to change them"
    )]
    Conflict {
        /// The provider.
        provider: Provider,
        /// The limits that the account has.
        present: String,
        /// The limits that were asked for.
        wanted: String,
    },
}
