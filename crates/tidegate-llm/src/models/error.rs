//! Errors of loading models.

use tidegate_providers::Provider;
use tidegate_providers::request::RequestError;

use crate::plan::InvalidSettings;
use tidegate::LimitError;

/// Reason why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No model name was given, and the provider has no default.
    #[error(
        "no model of {0} was named and it has no default: \
         pass a name to `load_model` or set `Profile::model`"
    )]
    NoModel(Provider),
    /// The provider has no known address.
    #[error("the base URL of {0} is not known: set `Profile::base_url`")]
    NoAddress(Provider),
    /// The registry has no HTTP client.
    #[error(
        "no HTTP client to call {0}: set `ModelsBuilder::http`, or `ModelsBuilder::backend` in tests"
    )]
    NoClient(Provider),
    /// The address, model or key is invalid.
    #[error("{provider} cannot be called: {source}")]
    Target {
        /// The provider.
        provider: Provider,
        /// The invalid part.
        source: RequestError,
    },
    /// Settings of a module are invalid.
    #[error("the settings of module `{module}` are invalid: {source}")]
    Setting {
        /// The module.
        module: &'static str,
        /// All violations.
        source: InvalidSettings,
    },
    /// The limits cannot be enforced.
    #[error("the limits of {provider} cannot be set: {source}")]
    Account {
        /// The provider.
        provider: Provider,
        /// The limit and the reason.
        source: LimitError,
    },
    /// No model of the provider was loaded with this key, so it has no limits to change.
    #[error("no model of {0} was loaded with this key: load one before `reconfigure`")]
    NotLoaded(Provider),
    /// The process already has a registry.
    #[error(
        "this process already has a registry of models: set it once, before the first model is \
         loaded"
    )]
    GlobalIsSet,
    /// The account already has other limits, and the registry is strict.
    #[error(
        "{provider} already has the limits {present}, not {wanted}: \
         use `Models::reconfigure` to change them"
    )]
    Conflict {
        /// The provider.
        provider: Provider,
        /// Existing limits of the account.
        present: String,
        /// Limits requested.
        wanted: String,
    },
}
