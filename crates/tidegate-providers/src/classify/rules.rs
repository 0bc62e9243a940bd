//! Classification rules of the user, which take precedence over the built-in tables.

use std::sync::Arc;

use super::{Evidence, NEVER_RETRIED, retryable_statuses};
use crate::dialect::Dialect;
use crate::failure::Class;
use crate::provider::Provider;

/// Classification rules that take precedence over the built-in tables. The first rule that matches
/// an error decides.
///
/// A rule that assigns [`Class::RateLimited`] without a delay or a dimension takes them from the
/// provider's response.
///
/// ```
/// use tidegate_providers::Class;
/// use tidegate_providers::classify::ClassificationRules;
/// let rules = ClassificationRules::new()
///     .status(418, Class::Transient)
///     .only_for("my-vllm")
///     .kind("model_loading", Class::Overloaded);
/// # let _ = rules;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "rules have no effect until they are used to classify an error"]
pub struct ClassificationRules {
    rules: Vec<Rule>,
    /// Statuses that are retried instead of the dialect's list.
    retried: Option<Arc<[u16]>>,
}

/// One rule. Every condition that is set must match.
#[derive(Clone, Debug)]
struct Rule {
    status: Option<u16>,
    kind: Option<String>,
    provider: Option<Provider>,
    class: Class,
}

impl ClassificationRules {
    /// Creates an empty list: the built-in tables decide.
    pub const fn new() -> Self {
        Self { rules: Vec::new(), retried: None }
    }

    /// Adds a rule for responses with this status, and for errors in streams that carry it as their
    /// code.
    pub fn status(self, status: u16, class: Class) -> Self {
        self.add(Some(status), None, class)
    }

    /// Adds a rule for errors whose type, code or reason is `kind`, as the provider spells it.
    pub fn kind(self, kind: impl Into<String>, class: Class) -> Self {
        self.add(None, Some(kind.into()), class)
    }

    /// Adds a rule for errors that have both this status and this kind.
    pub fn status_and_kind(self, status: u16, kind: impl Into<String>, class: Class) -> Self {
        self.add(Some(status), Some(kind.into()), class)
    }

    /// Restricts the rule added last to one provider; without a rule, it has no effect. Default: all
    /// providers.
    pub fn only_for(mut self, provider: impl Into<Provider>) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.provider = Some(provider.into());
        }
        self
    }

    /// Sets the statuses after which calls are retried, instead of the dialect's
    /// [`retryable_statuses`]. A response with any other status is final after one attempt; what it
    /// reports about limits and about the provider still counts. A listed status that the tables do
    /// not know is [`Class::Transient`]. [`NEVER_RETRIED`] statuses are ignored.
    ///
    /// ```
    /// use tidegate_providers::classify::ClassificationRules;
    /// let rules = ClassificationRules::new().retry_statuses([429, 500, 502, 503]);
    /// # let _ = rules;
    /// ```
    pub fn retry_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        let statuses = statuses.into_iter().filter(|status| !NEVER_RETRIED.contains(status));
        self.retried = Some(statuses.collect());
        self
    }

    /// Returns whether a call is retried after this status.
    pub(crate) fn retries(&self, dialect: Dialect, status: u16) -> bool {
        let statuses = self.retried.as_deref().unwrap_or_else(|| retryable_statuses(dialect));
        statuses.contains(&status)
    }

    /// Returns whether the user listed this status as retryable.
    pub(crate) fn lists(&self, status: u16) -> bool {
        self.retried.as_ref().is_some_and(|statuses| statuses.contains(&status))
    }

    pub(crate) fn find(&self, evidence: &Evidence<'_>) -> Option<Class> {
        self.rules.iter().find(|rule| rule.matches(evidence)).map(|rule| rule.class)
    }

    fn add(mut self, status: Option<u16>, kind: Option<String>, class: Class) -> Self {
        self.rules.push(Rule { status, kind, provider: None, class });
        self
    }
}

impl Rule {
    fn matches(&self, evidence: &Evidence<'_>) -> bool {
        let Self { status, kind, provider, .. } = self;
        let is_status = |status: &u16| evidence.status.is_some_and(|known| known == *status);
        status.as_ref().is_none_or(is_status)
            && kind.as_ref().is_none_or(|kind| evidence.has(kind))
            && provider.as_ref().is_none_or(|provider| provider == evidence.provider)
    }
}
