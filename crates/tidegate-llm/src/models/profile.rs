//! Configuration of a provider.

use std::time::Duration;

use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Credential, Dialect};

/// Configuration of a provider: key, address, default model and more.
#[derive(Clone, Debug)]
#[must_use]
pub struct Profile {
    pub(super) credential: Credential,
    pub(super) base_url: Option<String>,
    pub(super) dialect: Option<Dialect>,
    pub(super) model: Option<String>,
    pub(super) concurrency: Option<i64>,
    pub(super) timeout: Option<Duration>,
    pub(super) rules: ClassificationRules,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            credential: Credential::none(),
            base_url: None,
            dialect: None,
            model: None,
            concurrency: None,
            timeout: None,
            rules: ClassificationRules::default(),
        }
    }
}

impl Profile {
    /// Creates a profile without a key, at the provider's default address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Sets the base URL. Default: the provider's own, if it has one.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the dialect. Default: by the provider's name; OpenAI's API for unknown names.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Sets the default model.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Sets the maximum number of calls in flight, up to the cap of the registry. Default: 8 for
    /// OpenAI, 4 for Anthropic, 1 for Ollama, 100 for the mock; 1 for others, with a warning.
    pub fn max_concurrent_requests(mut self, limit: i64) -> Self {
        self.concurrency = Some(limit);
        self
    }

    /// Sets how long the provider may be silent. Default: the attempt timeout of the retry module,
    /// two minutes.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span);
        self
    }

    /// Sets rules that take precedence over the provider's when a failure is classified.
    pub fn rules(mut self, rules: ClassificationRules) -> Self {
        self.rules = rules;
        self
    }
}
