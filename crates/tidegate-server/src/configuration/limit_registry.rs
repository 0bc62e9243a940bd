//! What is served: a snapshot of the configured limits, looked up by name.

use std::collections::BTreeMap;

use tidegate::admission::{Admission, Tier};
use tidegate::{Change, Limit, Policy};
use tidegate_config::{Calendar, LimitPlan, Limits};

use super::ChangeError;
use crate::metrics::{LimitMetrics, Metrics};

/// The limits that requests may name. It never changes; another configuration is another one.
#[derive(Clone, Debug)]
pub(crate) struct LimitRegistry {
    by_name: BTreeMap<String, ConfiguredLimit>,
    /// Limits that are no longer there. One that comes back goes on where it was: its buckets may
    /// still be in the store, under a generation that a new limit would not know.
    retired: BTreeMap<String, Limit>,
}

/// One limit, with the calendar of its windows if it is a quota.
#[derive(Clone, Debug)]
pub(crate) struct ConfiguredLimit {
    pub(crate) limit: Limit,
    pub(crate) calendar: Option<Calendar>,
    /// Where decisions of the HTTP door on it are counted.
    pub(crate) metrics: LimitMetrics,
}

impl LimitRegistry {
    /// The limits of a plan, before anything was decided.
    pub(crate) fn new(limits: &Limits, metrics: &Metrics) -> Self {
        metrics.limits(limits.by_name.keys().map(String::as_str));
        let door = metrics.door("http");
        let served = |(name, plan): (&String, &LimitPlan)| {
            let (limit, calendar) = (plan.limit.clone(), plan.calendar.clone());
            (name.clone(), ConfiguredLimit { limit, calendar, metrics: door.limit(name) })
        };
        let by_name = limits.by_name.iter().map(served).collect();
        Self { by_name, retired: BTreeMap::new() }
    }

    /// Other limits in place of these. Buckets keep their tokens and come under the new policy
    /// when they are next used.
    ///
    /// # Errors
    /// With the first limit that cannot be changed. Nothing is changed by this function.
    pub(crate) fn revised(&self, limits: &Limits, metrics: &Metrics) -> Result<Self, ChangeError> {
        let mut retired = self.retired.clone();
        for (name, served) in &self.by_name {
            if !limits.by_name.contains_key(name) {
                retired.insert(name.clone(), served.limit.clone());
            }
        }
        let mut next = Self::new(limits, metrics);
        for (name, plan) in &limits.by_name {
            let before = self.by_name.get(name).map(|served| &served.limit);
            let before = before.cloned().or_else(|| retired.remove(name));
            if let (Some(before), Some(served)) = (before, next.by_name.get_mut(name)) {
                served.limit = revise(name, &before, plan)?;
            }
        }
        Ok(Self { retired, ..next })
    }

    /// Takes over the limits that admission has as its tiers: they are the same buckets, and their
    /// generations are counted in one place.
    pub(crate) fn share(mut self, admission: &Admission) -> Self {
        for tier in [Tier::Client, Tier::Organization] {
            if let (Some(served), Some(limit)) =
                (self.by_name.get_mut(tier.as_str()), admission.limit(tier))
                && served.limit.policy() == limit.policy()
            {
                served.limit = limit;
            }
        }
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ConfiguredLimit> {
        self.by_name.get(name)
    }

    /// The names, in alphabetical order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All limits that were ever served: buckets of those that are no longer may still be there.
    pub(crate) fn ever(&self) -> impl Iterator<Item = &Limit> {
        self.limits().chain(self.retired.values())
    }

    /// The limits themselves.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.by_name.values().map(|served| &served.limit)
    }
}

/// A limit under the policy of a plan, one generation on if that is another one.
fn revise(name: &str, before: &Limit, plan: &LimitPlan) -> Result<Limit, ChangeError> {
    let (old, new) = (before.policy(), plan.limit.policy());
    let is_tier = [Tier::Client, Tier::Organization].iter().any(|tier| tier.as_str() == name);
    let is_bucket = |policy| matches!(policy, &Policy::Bucket(_));
    if is_tier && is_bucket(old) != is_bucket(new) {
        return Err(ChangeError::TierKind { limit: name.to_owned() });
    }
    let limit = match old == new {
        true => before.clone(),
        false => before
            .revise(*new, Change::KeepTokens)
            .map_err(|error| ChangeError::Limit { limit: name.to_owned(), error })?,
    };
    Ok(limit.on_failure(plan.limit.failure_rule()))
}
