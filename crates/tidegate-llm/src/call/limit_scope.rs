//! Scopes of limits.
//!
//! Providers count by account, and most of them by model and endpoint too. A scope names what
//! shares one limit; a part that is not set includes all values.

use std::fmt;
use std::sync::Arc;

use tidegate_providers::{Credential, Endpoint, Provider};

/// Scope of a limit: a provider, a credential, and optionally a model and an endpoint. Its
/// `Display` is the name of a bucket and shows no secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LimitScope {
    provider: Provider,
    credential: Arc<str>,
    model: Option<Arc<str>>,
    endpoint: Option<Endpoint>,
}

impl LimitScope {
    /// Creates the scope of all calls with one credential at one provider.
    pub(crate) fn new(provider: impl Into<Provider>, credential: &Credential) -> Self {
        let credential = credential.id().into();
        Self { provider: provider.into(), credential, model: None, endpoint: None }
    }

    /// Restricts the scope to a model, ignoring case.
    pub(crate) fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_lowercase().into());
        self
    }

    /// Restricts the scope to an endpoint.
    pub(crate) fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Returns the provider.
    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns the hash of the credential.
    pub(crate) fn credential_id(&self) -> &str {
        &self.credential
    }

    /// Returns the model, if the scope is restricted to one.
    pub(crate) fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the model and the endpoint that the scope is restricted to.
    pub(crate) fn model_and_endpoint(&self) -> (Option<Arc<str>>, Option<Endpoint>) {
        (self.model.clone(), self.endpoint.clone())
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.credential)?;
        if let Some(model) = &self.model {
            write!(f, "/{model}")?;
        }
        if let Some(endpoint) = &self.endpoint {
            write!(f, "#{}", endpoint.as_str())?;
        }
        Ok(())
    }
}
