//! The configured limits: how they are registered with the engine, and a snapshot of them by name.
//!
//! The engine has the one registry of limits, which remembers also those that are retired. Here
//! stands what a request needs besides: the calendar, and where decisions are counted.

use std::collections::BTreeMap;

use tidegate::admission::{Admission, Tier};
use tidegate::{Change, Engine, LimitError, Limiter, Policy};
use tidegate_config::{Calendar, LimitPlan, Limits};
use tidegate_core::Limit;

use super::ChangeError;
use crate::metrics::{LimitMetrics, Metrics};

/// The limits that requests may name. It never changes; another configuration is another one.
#[derive(Debug)]
pub(crate) struct ConfiguredLimits {
    by_name: BTreeMap<String, ConfiguredLimit>,
}

/// One limit, with the calendar of its windows if it is a quota.
#[derive(Debug)]
pub(crate) struct ConfiguredLimit {
    pub(crate) limit: Limit,
    /// The limiter that those who wait have in common.
    pub(crate) limiter: Limiter,
    pub(crate) calendar: Option<Calendar>,
    /// Where decisions of the HTTP API on it are counted.
    pub(crate) metrics: LimitMetrics,
}

impl ConfiguredLimits {
    /// Registers the limits of a plan. Buckets of a limit that was there before keep their tokens,
    /// and come under the new policy when they are next used.
    ///
    /// # Errors
    /// With a limit that cannot be changed; [`check`] finds it beforehand.
    pub(crate) fn register(
        engine: &Engine,
        limits: &Limits,
        admission: &Admission,
        metrics: &Metrics,
    ) -> Result<Self, ChangeError> {
        metrics.limits(limits.by_name.keys().map(String::as_str));
        let door = metrics.door("http");
        let configured = |(name, plan): (&String, &LimitPlan)| {
            let limiter = registered(engine, name, plan, admission)
                .map_err(|error| ChangeError::Limit { limit: name.clone(), error })?;
            let rule = plan.limit.failure_rule();
            if limiter.limit().failure_rule() != rule {
                limiter.set_failure_rule(rule);
            }
            let (limit, calendar) = (limiter.limit(), plan.calendar.clone());
            let metrics = door.limit(name);
            Ok((name.clone(), ConfiguredLimit { limit, limiter, calendar, metrics }))
        };
        let by_name = limits.by_name.iter().map(configured).collect::<Result<_, ChangeError>>()?;
        Ok(Self { by_name })
    }

    /// Retires those limits of the configuration before that are not among these.
    pub(crate) fn retire_others(&self, before: &Self, engine: &Engine, admission: &Admission) {
        let gone = before.names().filter(|name| self.get(name).is_none());
        for name in gone.filter(|name| !is_held(admission, name)) {
            engine.retire(name);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ConfiguredLimit> {
        self.by_name.get(name)
    }

    /// The names, in alphabetical order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The limits themselves.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.by_name.values().map(|configured| &configured.limit)
    }
}

/// Whether the limits of a plan can be put in place of these, without anything being changed.
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
            let revised = limit.revise(*new, Change::KeepTokens);
            revised.map_err(|error| ChangeError::Limit { limit: name.to_owned(), error })?;
        }
    }
    Ok(())
}

/// The limiter of a limit, under its plan.
fn registered(
    engine: &Engine,
    name: &str,
    plan: &LimitPlan,
    admission: &Admission,
) -> Result<Limiter, LimitError> {
    let policy = *plan.limit.policy();
    let register = || match &plan.calendar {
        Some(calendar) => engine.calendar(name, policy.capacity(), calendar.schedule().clone()),
        None => engine.limiter(name, policy),
    };
    match register() {
        // The name has another policy or calendar until now, and its history goes on with these.
        Err(LimitError::Taken(_)) if !is_held(admission, name) => {
            engine.retire(name);
            register()
        }
        registered => registered,
    }
}

/// Whether admission has this limit as a tier. It revises the limit by itself, and keeps it when the
/// configuration has none any more, so that what it charged can still be settled.
fn is_held(admission: &Admission, name: &str) -> bool {
    tier(name).is_some_and(|tier| admission.limiter(tier).is_some())
}

fn tier(name: &str) -> Option<Tier> {
    [Tier::Client, Tier::Organization].into_iter().find(|tier| tier.as_str() == name)
}
