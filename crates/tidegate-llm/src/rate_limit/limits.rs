//! Configured limits of an account.

use std::collections::HashMap;
use std::num::NonZeroU32;

use tidegate_providers::Endpoint;

use super::model_pattern::ModelPattern;
use crate::plan::{Constraint, ConstraintSource};

/// Configured limits of an account: for all of its calls together, for endpoints, and for models. A
/// call is subject to all that apply to it and to the limits that the provider reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountLimits {
    pub(super) all: Option<(Constraint, ConstraintSource)>,
    pub(super) endpoints: HashMap<Endpoint, Constraint>,
    /// Most specific first.
    pub(super) models: Vec<(ModelPattern, Constraint, ConstraintSource)>,
    /// Ceiling over all callers' keys, in requests and tokens per minute, where configured.
    pub(super) all_keys: (Option<NonZeroU32>, Option<NonZeroU32>),
}

impl AccountLimits {
    /// Sets the limits for all calls together.
    #[must_use]
    pub fn all(mut self, constraint: Constraint, source: ConstraintSource) -> Self {
        self.all = Some((constraint, source));
        self
    }

    /// Sets or removes the limits that a program requested for all calls together.
    pub(crate) fn for_all(mut self, limits: Option<Constraint>) -> Self {
        self.all = limits.map(|constraint| (constraint, ConstraintSource::Override));
        self
    }

    /// Sets the limits for all calls of one endpoint together.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoints.insert(endpoint, constraint);
        self
    }

    /// Sets limits shared by all models that match `pattern`: a name in which `*` matches any
    /// characters. Case is ignored. If several patterns match a model, the most specific one
    /// applies: exact names before patterns, then the longest.
    #[must_use]
    pub fn model(self, pattern: &str, constraint: Constraint) -> Self {
        self.model_limits(pattern, constraint, ConstraintSource::Override)
    }

    /// Sets limits of a tier table for the models that match `pattern`, as [`model`](Self::model)
    /// does. Limits that the provider reports replace them.
    #[must_use]
    pub fn tier_model(self, pattern: &str, constraint: Constraint) -> Self {
        self.model_limits(pattern, constraint, ConstraintSource::Tier)
    }

    fn model_limits(
        mut self,
        pattern: &str,
        constraint: Constraint,
        source: ConstraintSource,
    ) -> Self {
        let pattern = ModelPattern::new(pattern);
        self.models.retain(|(known, ..)| *known != pattern);
        self.models.push((pattern, constraint, source));
        self.models.sort_by(|(one, ..), (other, ..)| {
            other.specificity().cmp(&one.specificity()).then_with(|| one.cmp(other))
        });
        self
    }

    /// Sets the ceiling over all callers' keys per minute, for accounts under one
    /// ([`AccountGroup::with_ceiling`](super::AccountGroup::with_ceiling)). Default:
    /// [`ALL_KEYS_MULTIPLE`](super::ALL_KEYS_MULTIPLE) times the limits of one account.
    #[must_use]
    pub const fn all_keys(
        mut self,
        requests_per_minute: Option<NonZeroU32>,
        tokens_per_minute: Option<NonZeroU32>,
    ) -> Self {
        self.all_keys = (requests_per_minute, tokens_per_minute);
        self
    }

    /// Returns the limits for all calls together and their source.
    #[must_use]
    pub const fn account_limit(&self) -> Option<&(Constraint, ConstraintSource)> {
        self.all.as_ref()
    }

    /// Number of limits; each has its own bucket.
    pub(super) fn count(&self) -> usize {
        let all = self.all.iter().map(|(constraint, _)| constraint);
        let models = self.models.iter().map(|(_, constraint, _)| constraint);
        all.chain(self.endpoints.values()).chain(models).map(count).sum()
    }

    /// Returns whether nothing is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.endpoints.is_empty() && self.models.is_empty()
    }
}

/// Number of limits in a constraint.
fn count(constraint: &Constraint) -> usize {
    let rates = [
        constraint.requests_per_minute(),
        constraint.tokens_per_minute(),
        constraint.input_tokens_per_minute(),
        constraint.output_tokens_per_minute(),
    ];
    let interval = usize::from(!constraint.min_interval().is_zero());
    let day = usize::from(constraint.requests_per_day().is_some());
    rates.iter().flatten().count() + interval + day
}
