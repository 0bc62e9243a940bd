//! Rules of the user, which win over the tables.

use std::sync::Arc;

use super::{Evidence, NEVER_RETRIED, retryable_statuses};
use crate::dialect::Dialect;
use crate::failure::Class;
use crate::provider::Provider;

/// What the user knows better than the tables; the first rule that fits decides.
///
/// ```
/// use tidegate_providers::Class;
/// use tidegate_providers::classify::{Rule, Rules};
/// let rules = Rules::new()
///     .rule(Rule::for_status(418, Class::Transient).provider("my-vllm"))
///     .rule(Rule::for_kind("model_loading", Class::Overloaded));
/// # let _ = rules;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "rules do nothing until something is classed by them"]
pub struct Rules {
    rules: Vec<Rule>,
    /// What is retried in place of the dialect's list.
    retried: Option<Arc<[u16]>>,
}

impl Rules {
    /// None: the tables decide.
    pub const fn new() -> Self {
        Self { rules: Vec::new(), retried: None }
    }

    /// Another rule, after those that are there.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The statuses after which calls are tried again, in place of the dialect's
    /// [`retryable_statuses`]. Others are final after one attempt; what their errors say about limits
    /// and about the provider counts as before. A listed status that the tables know nothing about is
    /// [`Class::Transient`]. [`NEVER_RETRIED`] are left out.
    ///
    /// ```
    /// use tidegate_providers::classify::Rules;
    /// let rules = Rules::new().retry_statuses([429, 500, 502, 503]);
    /// # let _ = rules;
    /// ```
    pub fn retry_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        let statuses = statuses.into_iter().filter(|status| !NEVER_RETRIED.contains(status));
        self.retried = Some(statuses.collect());
        self
    }

    /// Whether a call is tried again after this status.
    pub(crate) fn retries(&self, dialect: Dialect, status: u16) -> bool {
        let statuses = self.retried.as_deref().unwrap_or_else(|| retryable_statuses(dialect));
        statuses.contains(&status)
    }

    /// Whether the user lists this status.
    pub(crate) fn lists(&self, status: u16) -> bool {
        self.retried.as_ref().is_some_and(|statuses| statuses.contains(&status))
    }

    pub(crate) fn find(&self, evidence: &Evidence<'_>) -> Option<Class> {
        self.rules.iter().find(|rule| rule.fits(evidence)).map(|rule| rule.class)
    }
}

/// An error, and its class. All that is said of the error must fit. A [`Class::RateLimited`] that has
/// no delay or no dimension gets those that the provider tells.
#[derive(Clone, Debug)]
#[must_use]
pub struct Rule {
    status: Option<u16>,
    kind: Option<String>,
    provider: Option<Provider>,
    class: Class,
}

impl Rule {
    /// For answers with a status, and for errors in streams that name it as their code.
    pub const fn for_status(status: u16, class: Class) -> Self {
        Self { status: Some(status), kind: None, provider: None, class }
    }

    /// For errors with a type, a code or a reason of this name, as the provider writes it.
    pub fn for_kind(name: impl Into<String>, class: Class) -> Self {
        Self { status: None, kind: Some(name.into()), provider: None, class }
    }

    /// Only with this status.
    pub const fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Only with a type, a code or a reason of this name.
    pub fn kind(mut self, name: impl Into<String>) -> Self {
        self.kind = Some(name.into());
        self
    }

    /// Only of this provider. Default: of all.
    pub fn provider(mut self, provider: impl Into<Provider>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    fn fits(&self, evidence: &Evidence<'_>) -> bool {
        let Self { status, kind, provider, .. } = self;
        let is_status = |status: &u16| evidence.status.is_some_and(|known| known == *status);
        status.as_ref().is_none_or(is_status)
            && kind.as_ref().is_none_or(|kind| evidence.has(kind))
            && provider.as_ref().is_none_or(|provider| provider == evidence.provider)
    }
}
