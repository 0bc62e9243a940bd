//! The configured limits: registered with the engine, and kept in a snapshot by name.
//!
//! The engine owns the registry of limits, which also remembers retired ones. The snapshot adds
//! what a request needs besides: calendars and metrics.

use std::collections::BTreeMap;

use tidegate::admission::{Admission, Tier};
use tidegate::{Engine, LimitError, Limiter, Policy, PolicyChange};
use tidegate_config::{Calendar, LimitConfig, Limits};
use tidegate_core::Limit;

use super::ChangeError;
use crate::metrics::{LimitMetrics, Metrics};

/// An immutable snapshot of the limits that requests may name.
#[derive(Debug)]
pub(crate) struct ConfiguredLimits {
    by_name: BTreeMap<String, ConfiguredLimit>,
}

/// A limit, with its calendar if it is a calendar quota.
#[derive(Debug)]
pub(crate) struct ConfiguredLimit {
    pub(crate) limit: Limit,
    /// The limiter shared by all waiters.
    pub(crate) limiter: Limiter,
    pub(crate) calendar: Option<Calendar>,
    /// Counters of the HTTP API's decisions on this limit.
    pub(crate) metrics: LimitMetrics,
}

impl ConfiguredLimits {
    /// Registers the limits of a plan. Buckets of existing limits keep their tokens and are
    /// converted to the new policy when they are next used.
    ///
    /// # Errors
    /// If a limit cannot be changed; [`check`] finds that beforehand.
    pub(crate) fn register(
        engine: &Engine,
        limits: &Limits,
        admission: &Admission,
        metrics: &Metrics,
    ) -> Result<Self, ChangeError> {
        metrics.add_limits(limits.by_name.keys().map(String::as_str));
        let listener = metrics.listener("http");
        let configured = |(name, plan): (&String, &LimitConfig)| {
            let limiter = register_limiter(engine, name, plan, admission)
                .map_err(|error| ChangeError::Limit { limit: name.clone(), error })?;
            let failure_rule = plan.limit.failure_rule();
            if limiter.limit().failure_rule() != failure_rule {
                limiter.set_failure_rule(failure_rule);
            }
            let (limit, calendar) = (limiter.limit(), plan.calendar.clone());
            let metrics = listener.limit(name);
            Ok((name.clone(), ConfiguredLimit { limit, limiter, calendar, metrics }))
        };
        let by_name = limits.by_name.iter().map(configured).collect::<Result<_, ChangeError>>()?;
        Ok(Self { by_name })
    }

    /// Retires the limits of the previous configuration that are not in this one.
    pub(crate) fn retire_others(&self, before: &Self, engine: &Engine, admission: &Admission) {
        let gone = before.names().filter(|name| self.get(name).is_none());
        for name in gone.filter(|name| !is_admission_tier(admission, name)) {
            engine.retire(name);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ConfiguredLimit> {
        self.by_name.get(name)
    }

    /// Returns the names in alphabetical order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Returns all limits.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.by_name.values().map(|configured| &configured.limit)
    }
}

/// Checks whether the limits of a plan can replace these, without changing anything.
pub(crate) fn check<'l>(
    before: impl IntoIterator<Item = &'l Limit>,
    limits: &Limits,
) -> Result<(), ChangeError> {
    let is_bucket = |policy: &Policy| matches!(policy, Policy::Bucket(_));
    for limit in before {
        let Some(plan) = limits.by_name.get(limit.name()) else { continue };
        let (name, old, new) = (limit.name(), limit.policy(), plan.limit.policy());
        if tier(name).is_some() && is_bucket(old) != is_bucket(new) {
            return Err(ChangeError::TierKind { limit: name.to_owned() });
        }
        if old != new {
            let revised = limit.revise(*new, PolicyChange::KeepTokens);
            revised.map_err(|error| ChangeError::Limit { limit: name.to_owned(), error })?;
        }
    }
    Ok(())
}

/// Returns the limiter of a limit, under the policy of its plan.
fn register_limiter(
    engine: &Engine,
    name: &str,
    plan: &LimitConfig,
    admission: &Admission,
) -> Result<Limiter, LimitError> {
    let policy = *plan.limit.policy();
    let register = || match &plan.calendar {
        Some(calendar) => engine.calendar(name, policy.capacity(), calendar.schedule().clone()),
        None => engine.limiter(name, policy),
    };
    match register() {
        // The name has a different policy or calendar so far. Retiring it keeps its history for the
        // new limit.
        Err(LimitError::Taken(_)) if !is_admission_tier(admission, name) => {
            engine.retire(name);
            register()
        }
        registered => registered,
    }
}

/// Returns whether admission uses this limit as a tier. Admission revises such a limit itself, and
/// keeps it after it is removed from the configuration, so that open charges can be settled.
fn is_admission_tier(admission: &Admission, name: &str) -> bool {
    tier(name).is_some_and(|tier| admission.limiter(tier).is_some())
}

fn tier(name: &str) -> Option<Tier> {
    [Tier::Client, Tier::Organization].into_iter().find(|tier| tier.as_str() == name)
}
