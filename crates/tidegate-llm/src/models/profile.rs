//! What a program knows of a provider before it loads a model.

use std::time::Duration;

use tidegate_providers::classify::Rules;
use tidegate_providers::{Credential, Dialect};

/// A provider as a program has it: its key, its address, a model to begin with.
#[derive(Clone, Debug)]
#[must_use]
pub struct Profile {
    pub(super) credential: Credential,
    pub(super) base_url: Option<String>,
    pub(super) dialect: Option<Dialect>,
    pub(super) model: Option<String>,
    pub(super) concurrency: Option<i64>,
    pub(super) timeout: Option<Duration>,
    pub(super) rules: Rules,
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
            rules: Rules::default(),
        }
    }
}

impl Profile {
    /// Without a key, at the provider's own address.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this key.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// At this address. Default: the provider's own, if it has one.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// In this dialect. Default: what the name says; any other name speaks OpenAI's API.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// With this model, unless another is asked for.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// So many calls under way, within the cap of the registry. Default: 8 for OpenAI, 4 for
    /// Anthropic, 1 for Ollama, 100 for the mock; 1 for others, with a warning.
    pub fn max_concurrent_requests(mut self, limit: i64) -> Self {
        self.concurrency = Some(limit);
        self
    }

    /// How long it may be silent. Default: as the retry module says, two minutes.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span);
        self
    }

    /// Rules that come before those of the provider when a failure is classed.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }
}
