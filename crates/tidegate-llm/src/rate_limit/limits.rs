//! What was configured for an account.

use std::collections::HashMap;
use std::num::NonZeroU32;

use tidegate_providers::Endpoint;

use super::model_pattern::ModelPattern;
use crate::plan::{Constraint, Source};

/// The limits that were configured for an account: for all of its calls together, for endpoints and
/// for models. A call keeps to all that apply to it, and to what the provider reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountLimits {
    pub(super) all: Option<(Constraint, Source)>,
    pub(super) endpoints: HashMap<Endpoint, Constraint>,
    /// The most specific first.
    pub(super) models: Vec<(ModelPattern, Constraint)>,
    /// What all keys of callers may use in a minute: requests and tokens, where that was said.
    pub(super) all_keys: (Option<NonZeroU32>, Option<NonZeroU32>),
}

impl AccountLimits {
    /// For all calls together.
    #[must_use]
    pub fn all(mut self, constraint: Constraint, source: Source) -> Self {
        self.all = Some((constraint, source));
        self
    }

    /// With what a program wishes for all calls together, or without.
    pub(crate) fn for_all(mut self, wished: Option<Constraint>) -> Self {
        self.all = wished.map(|constraint| (constraint, Source::Override));
        self
    }

    /// For the calls of one endpoint together.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoints.insert(endpoint, constraint);
        self
    }

    /// For the calls of all models together that match a pattern: a name, or `*` for any characters,
    /// also none. Case does not matter. Of several patterns that match a model the most specific one
    /// holds: a name before any pattern, then the longest.
    #[must_use]
    pub fn model(mut self, pattern: &str, constraint: Constraint) -> Self {
        let pattern = ModelPattern::new(pattern);
        self.models.retain(|(known, _)| *known != pattern);
        self.models.push((pattern, constraint));
        self.models.sort_by(|(one, _), (other, _)| {
            other.specificity().cmp(&one.specificity()).then_with(|| one.cmp(other))
        });
        self
    }

    /// What all keys of callers may use together in a minute, if an account is under such a ceiling
    /// ([`AccountGroup::with_ceiling`](super::AccountGroup::with_ceiling)). Default:
    /// [`ALL_KEYS_MULTIPLE`](super::ALL_KEYS_MULTIPLE) times what one account may.
    #[must_use]
    pub const fn all_keys(
        mut self,
        requests_per_minute: Option<NonZeroU32>,
        tokens_per_minute: Option<NonZeroU32>,
    ) -> Self {
        self.all_keys = (requests_per_minute, tokens_per_minute);
        self
    }

    /// The limits of all calls together, and by whom they were set.
    #[must_use]
    pub const fn of_all(&self) -> Option<&(Constraint, Source)> {
        self.all.as_ref()
    }

    /// How many limits that are, each of which has a bucket of its own.
    pub(super) fn count(&self) -> usize {
        let all = self.all.iter().map(|(constraint, _)| constraint);
        let models = self.models.iter().map(|(_, constraint)| constraint);
        all.chain(self.endpoints.values()).chain(models).map(count).sum()
    }

    /// Whether anything was configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.endpoints.is_empty() && self.models.is_empty()
    }
}

/// How many limits a constraint is.
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
