//! Scopes: whose limit it is.
//!
//! A provider counts by account, and most by model and endpoint too. A scope names the parts that
//! share one limit; a part that is not given means all of its kind.

use std::fmt;
use std::sync::Arc;

use tidegate_providers::{Credential, Endpoint, Provider};

/// Those who share a limit: a provider, one of its credentials, and perhaps a model and an
/// endpoint. Its `Display` names a bucket, and shows no secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Scope {
    provider: Provider,
    credential: Arc<str>,
    model: Option<Arc<str>>,
    endpoint: Option<Endpoint>,
}

impl Scope {
    /// Everything that is done with one credential at one provider.
    pub(crate) fn new(provider: impl Into<Provider>, credential: &Credential) -> Self {
        let credential = credential.id().into();
        Self { provider: provider.into(), credential, model: None, endpoint: None }
    }

    /// One model of it; case does not matter.
    pub(crate) fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_lowercase().into());
        self
    }

    /// One endpoint of it.
    pub(crate) fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// The provider.
    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The hash of the credential.
    pub(crate) fn credential_id(&self) -> &str {
        &self.credential
    }

    /// The model, if the limit is of one.
    pub(crate) fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The model and the endpoint, where the limit is of one.
    pub(crate) fn model_and_endpoint(&self) -> (Option<Arc<str>>, Option<Endpoint>) {
        (self.model.clone(), self.endpoint.clone())
    }
}

impl fmt::Display for Scope {
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
